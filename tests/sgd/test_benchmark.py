"""Memory follows the pieces of a batch, and the benchmark beside Opacus runs."""

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def run(name, *arguments):
    command = [sys.executable, str(BENCHMARKS / name), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout


def peak(*arguments):
    """Return GiB at the peak of a step, and of them those of the step alone."""
    words = run("sgd_memory.py", "--examples", "20000", *arguments).split()
    found = [float(word) for word, unit in pairwise(words) if unit == "GiB"]
    assert len(found) == 2
    return found


def test_a_batch_of_16384_fits_in_four_gibibytes_and_memory_follows_its_pieces():
    whole, step = peak()
    assert whole < 4
    _, together = peak("--physical", "16384")  # the same batch at once
    assert step < 0.75 * together


def test_the_benchmark_prints_its_tables():
    shown = run("sgd.py", "--small", "--threads", "1")
    for heading in ("Examples a second", "Memory, MiB", "GeoDP on the CNN", "Spherical coordinates"):
        assert heading in shown
    assert "| logistic | 7,850 |" in shown


def test_two_checkouts_are_put_side_by_side():
    shown = run("sgd_before.py", "--threads", "1", "--repeats", "1", "--models", "transformer")  # beside itself
    assert "| model | there, ms | here, ms | here / there |" in shown
    assert "| transformer |" in shown
