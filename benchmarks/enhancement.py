"""What enhancement costs with a million dimensions, and a plan from the shell to its answer.

`python benchmarks/enhancement.py` times the NPMLE at d = 1,000,000 on three kinds of data, and the whole process of
`noisette plan` for d = 5,000 and fifteen mechanisms, best of five. `--small` is for the tests. Both the time of the
processor and that of the clock are printed: on a busy machine they differ.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import noisette as nz

NAMES = (
    "duchi", "hybrid", "piecewise-optimal", "piecewise", "privunit", "privunit-g", "duchi-box", "staircase", "scdf",
    "laplace", "square-wave", "gaussian", "adaptive-duchi", "tensor-gaussian", "retain-or-noise",
)  # fmt: skip
_Problem = tuple[str, np.ndarray, np.ndarray]


def problems(dims: int) -> Iterator[_Problem]:
    """Yield names, truths and standard errors."""
    rng = np.random.default_rng(0)
    yield "one in twenty is 0.8, noise 0.3", np.where(rng.random(dims) < 0.05, 0.8, 0.0), np.full(dims, 0.3)
    yield "spread evenly, noise 0.01", rng.uniform(-1, 1, dims), np.full(dims, 0.01)
    yield "normal, noise 0.01 to 1", rng.normal(0, 0.3, dims).clip(-1, 1), 10 ** rng.uniform(-2, 0, dims)


def npmle(dims: int) -> None:
    """Print a row for each kind of data: seconds, and the error over the raw one."""
    print("| truths | processor, s | clock, s | error to raw | peak, MB |\n| --- | ---: | ---: | ---: | ---: |")
    for name, truth, noise in problems(dims):
        value = truth + noise * np.random.default_rng(1).standard_normal(dims)
        raw = nz.Estimate(value, noise, np.full(dims, 1_000), low=-1.0, high=1.0)
        clock, start = time.perf_counter(), time.process_time()
        found = nz.enhance(raw, "npmle")
        spent = time.process_time() - start, time.perf_counter() - clock
        ratio = float(np.mean((found.value - truth) ** 2) / np.mean((value - truth) ** 2))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"| {name} | {spent[0]:.2f} | {spent[1]:.2f} | {ratio:.3f} | {peak:,.0f} |", flush=True)


def plan(repeats: int) -> tuple[float, float]:
    """Return the least processor and clock seconds of the whole process of a plan."""
    command = [str(Path(sys.executable).with_name("noisette")), "plan", "--users", "200000", "--dims", "5000"]
    command += ["--epsilon", "1", "--delta", "1e-6", "--json"]
    command += [word for name in NAMES for word in ("--mechanism", name)]
    found = []
    for _ in range(repeats):
        before, clock = os.times(), time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        after = os.times()
        processor = after.children_user + after.children_system - before.children_user - before.children_system
        found.append((processor, time.perf_counter() - clock))
    return min(own[0] for own in found), min(own[1] for own in found)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="ten thousand dimensions and one plan")
    options = parser.parse_args()
    npmle(10_000 if options.small else 1_000_000)
    processor, clock = plan(1 if options.small else 5)
    print(f"\nnoisette plan, 5,000 dimensions, {len(NAMES)} mechanisms: {processor:.2f} s, {clock:.2f} s by the clock")


if __name__ == "__main__":
    main()
