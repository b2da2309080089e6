"""Exact noise beside numpy's own float draws, and subset selection, on one core: processor time, the least of several.

python benchmarks/draws.py
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import noisette as nz
from noisette import _random

SIZE, RUNS = 1_000_000, 7
USERS = 200_000
RATE = 2.0**-24  # of a noise of 2^24 steps, as the mechanisms draw it


def nanoseconds(jobs: dict[str, Callable[[], Any]], size: int) -> dict[str, float]:
    """Return the least processor time a value, all jobs in turn."""
    for job in jobs.values():
        job()
    best = dict.fromkeys(jobs, float("inf"))
    for _ in range(RUNS):
        for name, job in jobs.items():
            start = time.process_time()
            job()
            best[name] = min(best[name], (time.process_time() - start) / size * 1e9)
    return best


def main() -> None:
    """Print two tables."""
    rng = _random.generator(None)
    codes = np.random.default_rng(1).integers(0, 100, USERS)
    found = nanoseconds(
        {
            "numpy normal": lambda: rng.standard_normal(SIZE),
            "exact Gaussian": lambda: _random.discrete_gaussian(rng, 1 / RATE, SIZE),
            "numpy Laplace": lambda: rng.laplace(size=SIZE),
            "exact Laplace": lambda: _random.discrete_laplace(rng, RATE, SIZE),
        },
        SIZE,
    )
    for kind, own, limit in (("normal", "exact Gaussian", 1.8), ("Laplace", "exact Laplace", 1.3)):
        ratio = found[own] / found[f"numpy {kind}"]
        told = f"{own}: {found[own]:.1f} ns, numpy {kind} from the same generator {found[f'numpy {kind}']:.1f}"
        print(f"{told}: {ratio:.2f} times (at most {limit} promised)")
    names = {"subset-selection": (0.25, 0.5, 1.0, 2.0, 3.0, 4.0), "grr": (1.0,), "olh": (1.0,)}
    jobs: dict[str, Callable[[], Any]] = {}
    for name, epsilons in names.items():
        for epsilon in epsilons:
            made = nz.build(name, nz.Categorical(100), epsilon=epsilon)
            jobs[f"{name}, 100 categories, epsilon {epsilon:g}"] = lambda made=made: made.privatize(codes)
    for name, own in nanoseconds(jobs, USERS).items():
        print(f"{name}: {own:.0f} ns a user")


if __name__ == "__main__":
    main()
