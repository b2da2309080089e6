"""The benchmark of graded collection runs, and its promises are kept with room to spare."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

_BENCHMARK = runpy.run_path(str(Path(__file__).resolve().parents[3] / "benchmarks" / "graded.py"))
privatising, streaming, page = (_BENCHMARK[name] for name in ("privatising", "streaming", "page"))


def test_privatising_takes_no_more_than_five_times_grr_and_duchi() -> None:
    times = privatising(400_000, 7)
    assert times["lhp"] < 5 * (times["grr"] + times["duchi"])


@pytest.mark.slow
def test_streams_of_any_length_take_the_same_memory() -> None:
    short, long = streaming(200_000, 20_000), streaming(2_000_000, 20_000)
    assert long["peak"] < 1.2 * short["peak"] + 1e5
    found = {"users": 200_000, "privatising": {"lhp": 1.0, "grr": 1.0, "duchi": 1.0}, "streaming": short}
    assert "it does not grow" in page(found | {"streaming, ten times as long": long})
