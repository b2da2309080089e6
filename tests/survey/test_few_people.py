"""Intervals of few people, large budgets and ends of ranges hold: the benchmark's studies in small."""

from __future__ import annotations

import json

import pytest
from benchmarks.intervals import OF_FEW_PEOPLE, RESULTS, STUDIES, run


@pytest.mark.long
@pytest.mark.parametrize("name", OF_FEW_PEOPLE)
def test_intervals_hold(name: str) -> None:
    """Of 200 collections less than 87 % would hold with a chance below 1e-5 if 95 % did."""
    for row in run(STUDIES[name](), 200, seed=5):
        assert row["coverage"] >= 0.87, row


def test_the_kept_figures_hold() -> None:
    """Of 2,000 collections less than 92.5 % would hold with a chance of 1e-6 if 95 % did."""
    kept = json.loads(RESULTS.read_text(encoding="utf-8"))
    for name in OF_FEW_PEOPLE:
        assert kept[name]["runs"] >= 2000
        assert min(row["coverage"] for row in kept[name]["rows"]) > 0.925, name
