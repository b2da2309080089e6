"""benchmarks/audit.py: ours beside two known audits, at equal samples."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import noisette as nz

SCRIPT = Path(__file__).resolve().parent.parent.parent / "benchmarks" / "audit.py"
SPEC: Any = importlib.util.spec_from_file_location("comparison", SCRIPT)
comparison: Any = importlib.util.module_from_spec(SPEC)
sys.modules["comparison"] = comparison  # dataclasses look their module up
SPEC.loader.exec_module(comparison)


@pytest.mark.long
def test_ours_is_the_tightest_and_nothing_is_written(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr(comparison, "DOCS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["audit.py", "--small"])
    comparison.main()
    shown = capsys.readouterr().out
    assert "nz.audit is at least as tight in 20 of 20 rows." in shown
    assert "| grr, 8 categories | 3 | 20,000 |" in shown
    assert not list(tmp_path.iterdir())


def test_the_others_are_no_straw_men() -> None:
    """Each comes near the truth where its paper says it does: rare events at a large epsilon, a guess of GRR."""
    response = nz.GeneralizedRandomizedResponse(3.0, nz.Categorical(8))
    assert 0.95 * 3 < comparison.guess(response, 50_000, 1) < 3
    assert 0.9 * 3 < comparison.sniper(nz.Laplace(3.0), 50_000, 1) < 3


@pytest.mark.parametrize("mechanism", comparison.categories(1.0, 8), ids=lambda m: m.name)
def test_a_guess_is_a_category_that_the_report_supports(mechanism: Any) -> None:
    rng = np.random.default_rng(3)
    drawn = comparison.reports(mechanism, 2, 4000, rng)
    guesses = comparison.attack(drawn, 8, rng)
    assert set(np.unique(guesses)) == set(range(8))
    assert np.bincount(guesses, minlength=8).argmax() == 2


def test_the_table_replaces_what_stood_between_the_marks() -> None:
    assert comparison.between("a <1> old <2> b", "<1>", "<2>", "new") == "a <1>\n\nnew\n\n<2> b"
