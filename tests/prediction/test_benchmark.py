"""The benchmark of predictions runs, and what it predicts is what it simulates."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

pytestmark = pytest.mark.long

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "prediction.py"
DIMS = 200


def test_small_setting() -> None:
    """Sixteen root mean squared errors over 200 dimensions: within chi-square bounds, once in a million runs not.

    The bounds allow the dimensions a little dependence and reports that are not Gaussian: half as many degrees of
    freedom. The twin is a prediction off by half.
    """
    done = subprocess.run([sys.executable, SCRIPT, "--small", "--json"], capture_output=True, text=True, check=True)
    made = json.loads(done.stdout)
    assert (made["users"], made["dims"], made["report"]) == (4000, DIMS, 5)
    assert len(made["mechanisms"]) == 16
    assert made["ratio"] > 0.5  # the small collection is over in a moment; the promise is about the large one
    low, high = (np.sqrt(stats.chi2(DIMS // 2).ppf(p) / (DIMS // 2)) for p in (1e-6 / 32, 1 - 1e-6 / 32))
    for row in made["mechanisms"]:
        if row["mechanism"] == "square-wave":  # nearly all of it is bias, which the spread of the values hides
            assert row["simulated"] == pytest.approx(row["predicted"], rel=0.2)
            continue
        assert low < row["simulated"] / row["predicted"] < high, row
        assert not low < row["simulated"] / row["predicted"] * 2 < high


def test_enhancement_and_plan_in_the_small_setting() -> None:
    """Three kinds of data whose error falls or stays, and one plan of fifteen; their seconds are for the full run."""
    script = SCRIPT.with_name("enhancement.py")
    done = subprocess.run([sys.executable, script, "--small"], capture_output=True, text=True, check=True)
    rows = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith("| ") and "noise" in line]
    ratios = [float(row[3]) for row in rows]
    assert len(ratios) == 3
    assert ratios[0] < 0.3
    assert ratios[1] < 1.05
    assert ratios[2] < 0.5
    assert "5,000 dimensions, 15 mechanisms" in done.stdout
