"""Large problems beside something that everybody knows, in one run: how many times as long do they take?

python benchmarks/sizes.py      ends with code 1 where a promise is not kept

Processor time, the best of three, the yardstick measured in between.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np

from noisette.enhancement.npmle import npmle
from noisette.mechanisms.tensor.matrix.optimum import optimum
from noisette.mechanisms.tensor.matrix.workloads import workload_of
from noisette.prediction import plan

SIZE = 1_000_000


def spent(job: Callable[[], object]) -> float:
    """Return the processor time of a job."""
    start = time.process_time()
    job()
    return time.process_time() - start


def main() -> None:
    """Print the table."""
    rng = np.random.default_rng(9)
    truth = np.where(rng.random(SIZE) < 0.05, 0.8, 0.0)
    noisy = truth + 0.3 * rng.standard_normal(SIZE)
    square = rng.standard_normal((1024, 1024))
    jobs: dict[str, tuple[Callable[[], object], str, Callable[[], object], float]] = {
        "npmle of a million": (lambda: npmle(noisy, np.full(SIZE, 0.3)), "sort", lambda: np.sort(noisy), 150),
        "matrix of 1,024 prefix sums": (
            lambda: optimum(workload_of("prefix", 1024).root),
            "SVD of that size",
            lambda: np.linalg.svd(square),
            150,
        ),
        "plan for 5,000 dimensions": (
            lambda: plan(users=200_000, dims=5000, report=50, epsilon=1.0, delta=1e-6),
            "sort of a million",
            lambda: np.sort(noisy),
            20,
        ),
    }
    kept = True
    for name, (job, against, yardstick, promise) in jobs.items():
        runs = [(spent(job), spent(yardstick)) for _ in range(3)]
        ratio = min(run[0] for run in runs) / min(run[1] for run in runs)
        kept &= ratio <= promise
        print(f"{name:30} {ratio:7.1f} times {against:20} promised at most {promise}")
    sys.exit(not kept)


if __name__ == "__main__":
    main()
