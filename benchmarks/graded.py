"""Speed of graded collection: LHP beside generalised randomised response and Duchi, and HierA on a stream.

python benchmarks/graded.py              10 million users; writes docs/benchmarks-graded.md
python benchmarks/graded.py --small      what the tests run
"""

from __future__ import annotations

import argparse
import json
import os
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import noisette as nz
from noisette.aggregation import aggregate_stream
from noisette.mechanisms.graded.estimation import hiera, maximum_likelihood

ROOT = Path(__file__).resolve().parent.parent
EDGES, EPSILONS = np.linspace(-1, 1, 6), (2.5, 2.0, 1.5, 1.0, 0.5)


def privatising(users: int, repeats: int) -> dict[str, float]:
    """Return the least seconds of the processor of LHP, GRR and Duchi in turn: other processes hardly disturb that."""
    x = np.random.default_rng(0).uniform(-1, 1, users)
    levels = np.searchsorted(EDGES[1:-1], x, side="right")
    rng = np.random.default_rng(1)
    grr, duchi = nz.GeneralizedRandomizedResponse(1.0, nz.Categorical(5)), nz.Duchi(1.0)
    lhp = nz.LevelledResponse(EDGES, EPSILONS)
    jobs: dict[str, Callable[[], Any]] = {
        "lhp": lambda: lhp.privatize(x, rng=rng),
        "grr": lambda: grr.privatize(levels, rng=rng),
        "duchi": lambda: duchi.privatize(x, rng=rng),
    }
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(repeats + 1):
        for name, job in jobs.items():
            start = time.process_time()
            job()
            times[name].append(time.process_time() - start)
    return {name: min(values[1:]) for name, values in times.items()}


def streaming(users: int, batch: int) -> dict[str, float]:
    """Return the seconds and the peak of memory, in bytes, of estimating from a stream of reports."""
    lhp = nz.LevelledResponse(EDGES, EPSILONS)
    reports = lhp.privatize(np.random.default_rng(0).uniform(-1, 1, batch), rng=1)
    lhp.aggregate(reports[:10])
    start = time.perf_counter()
    counted = aggregate_stream(lhp, (reports for _ in range(users // batch)))
    for mu in (1, 5):
        hiera(counted, reuse=mu, rng=2)
    maximum_likelihood(counted)
    spent = time.perf_counter() - start
    tracemalloc.start()
    counted = aggregate_stream(lhp, (reports for _ in range(users // batch)))
    hiera(counted, reuse=5, rng=2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {"seconds": spent, "peak": float(peak)}


def page(found: dict[str, Any]) -> str:
    """Return what was measured as Markdown."""
    times, users = found["privatising"], found["users"]
    ratio = times["lhp"] / (times["grr"] + times["duchi"])
    one, ten = found["streaming"], found["streaming, ten times as long"]
    return "\n".join(
        [
            "# Speed of graded collection",
            "",
            f"One run of `python benchmarks/graded.py`, {users:,} users, five levels, one core.",
            "",
            "| job | ns a user |",
            "| --- | ---: |",
            *(f"| {name} | {1e9 * spent / users:.1f} |" for name, spent in times.items()),
            "",
            f"LHP takes {ratio:.2f} times as long as GRR and Duchi together; 5 times were promised.",
            "",
            f"Aggregating a stream of {users:,} reports, HierA at mu = 1 and 5 and maximum likelihood together take "
            f"{one['seconds']:.2f} s. The peak of memory is {one['peak'] / 1e6:.2f} MB beside the batch in hand, and "
            f"{ten['peak'] / 1e6:.2f} MB for a stream ten times as long: it does not grow.",
            "",
        ]
    )


def main() -> None:
    """Measure, print, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="a setting for the tests: seconds, not a minute")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "benchmarks-graded.md", help="page to write")
    parser.add_argument("--json", action="store_true", help="print the measurements as JSON")
    options = parser.parse_args()
    users, repeats = (200_000, 3) if options.small else (10_000_000, 5)
    found = {
        "users": users,
        "privatising": privatising(users, repeats),
        "streaming": streaming(users, users // 10),
        "streaming, ten times as long": streaming(10 * users, users // 10),
    }
    options.output.write_text(page(found), encoding="utf-8")
    print(json.dumps(found) if options.json else page(found))


if __name__ == "__main__":
    main()
