"""benchmarks/tensor.py runs, and its ratios are of the promised order; the figures of docs/ come from its full run."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
SCRIPT = Path(__file__).resolve().parents[3] / "benchmarks" / "tensor.py"


def test_ratios_of_a_small_run() -> None:
    bench = runpy.run_path(str(SCRIPT))
    row = bench["measure"]((64, 16, 25), 5)
    assert row.ratio("ours, identity", "numpy normal") < 10  # a busy machine disturbs; a slow sampler would be at 100
    assert row.ratio("noise, all modes", "products") < 20
    table = bench["table"]([row])
    assert table.count("\n") == 2
    text = bench["page"]([row], "| peak |")
    assert "64x16x25" in text
    assert "| peak |" in text


def test_products_of_the_benchmark_agree() -> None:
    bench = runpy.run_path(str(SCRIPT))
    x = np.random.default_rng(0).normal(size=(3, 4, 5))
    matrices = [bench["covariance"](n, n) for n in x.shape]
    assert bench["by_matmul"](x, matrices) == pytest.approx(bench["dense"](x, matrices))


def test_memory_is_measured_beside_the_input() -> None:
    """A tensor of a million entries: 4 MB, and a peak that does not fall."""
    bench = runpy.run_path(str(SCRIPT))
    bench["MEMORY"]["few"] = ((100, 10_000), np.float32, (0,))
    size, before, after = bench["memory_of"]("few")
    assert size == pytest.approx(4e6 / 2**20)
    assert after >= before > size
