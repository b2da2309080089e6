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


def test_memory_follows_the_pieces_of_a_batch():
    """So a batch of 16,384 in pieces fits in four gibibytes, as the page says: that many take the test too long."""
    sizes = ("--examples", "10000", "--batch", "8192", "--physical", "256", "8192")
    words = run("sgd_memory.py", *sizes).split()
    whole, step, _, together = (float(word) for word, unit in pairwise(words) if unit == "GiB")
    assert whole < 1
    assert step < 0.75 * together  # the same batch at once; the first step adds some 0.2 GiB however large it is


def test_the_benchmark_prints_its_tables():
    shown = run("sgd.py", "--small", "--threads", "1")
    for heading in ("Time of a step", "Memory, MiB", "Where the time", "GeoDP on the CNN", "Spherical coordinates"):
        assert heading in shown
    assert "| logistic | 7,850 |" in shown


def test_two_checkouts_are_put_side_by_side():
    root = BENCHMARKS.parent
    shown = run("sgd_before.py", str(root), "--threads", "1", "--repeats", "1", "--models", "logistic")  # beside itself
    assert "| model | there, ms | here, ms | here / there |" in shown
    assert "| logistic |" in shown
