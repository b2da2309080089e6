"""Speed of Noisette beside the machine's floor and beside other libraries: one run, ratios, medians.

make bench                   the full setting: 10 million values, peers in .venv-peers; writes docs/benchmarks.md
python benchmarks/run.py --small --no-peers      what the tests run
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import statistics
import subprocess
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import noisette as nz

ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / ".venv-peers" / "bin" / "python"

# Uniforms that each mechanism draws for a report: rounding, coin, position, sign, as its _perturb does.
UNIFORMS = {
    "duchi": 1,
    "piecewise": 3,
    "piecewise-optimal": 3,
    "square-wave": 3,
    "hybrid": 5,
    "laplace": 3,
    "staircase": 5,
    "scdf": 5,
    "gaussian": 4,
}
BOUNDED = ("duchi", "piecewise", "piecewise-optimal", "hybrid", "square-wave")


@dataclass(frozen=True)
class Row:
    """One measured ratio and the ratio that was promised."""

    section: str
    job: str
    nanoseconds: float
    against: str
    ratio: float
    promise: str
    kept: bool


def interleaved(jobs: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Return the median time of each job, all of them run in turn so that a noisy machine disturbs all alike."""
    for job in jobs.values():
        job()
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(repeats):
        for name, job in jobs.items():
            start = time.perf_counter()
            job()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def scalars(size: int, repeats: int) -> list[Row]:
    """Time privatisation against the draw of the uniforms it consumes plus one copy."""
    x = np.random.default_rng(0).uniform(-1, 1, size)
    rng = np.random.default_rng(1)
    jobs: dict[str, Callable[[], Any]] = {"uniform": lambda: rng.random(size), "copy": x.copy}
    for name in UNIFORMS:
        mechanism = nz.CATALOGUE[name](epsilon=1.0)
        jobs[name] = lambda mechanism=mechanism: mechanism.privatize(x, rng=rng)
    jobs["piecewise, rng=None"] = lambda: nz.Piecewise(epsilon=1.0).privatize(x)
    jobs["laplace, rng=None"] = lambda: nz.Laplace(epsilon=1.0).privatize(x)
    times = interleaved(jobs, repeats)
    rows = []
    for job, spent in list(times.items())[2:]:
        name = job.split(",")[0]
        floor = UNIFORMS[name] * times["uniform"] + times["copy"]
        limit = 4 if name in BOUNDED else 15
        ratio = spent / floor
        against = f"{UNIFORMS[name]} uniform{'s' * (UNIFORMS[name] > 1)} and a copy"
        rows.append(Row("privatize", job, spent / size * 1e9, against, ratio, f"at most {limit}", ratio <= limit))
    return rows


def exact_noise(size: int, repeats: int, peers: dict[str, float]) -> list[Row]:
    """Time the exact mechanisms on a lattice against OpenDP's and diffprivlib's on the same vector."""
    x = np.random.default_rng(0).uniform(-1, 1, size)
    grid = nz.DiscreteLaplace(epsilon=1.0).domain.clip(x)
    jobs = {
        "laplace": lambda: nz.Laplace(epsilon=1.0).privatize(x),
        "discrete-laplace": lambda: nz.DiscreteLaplace(epsilon=1.0).privatize(grid),
        "gaussian": lambda: nz.Gaussian(epsilon=1.0).privatize(x),
        "discrete-gaussian": lambda: nz.DiscreteGaussian(epsilon=1.0).privatize(grid),
    }
    times = interleaved(jobs, repeats)
    rows = []
    for name, spent in times.items():
        kind = "laplace" if "laplace" in name else "gaussian"
        ratio = peers[f"opendp {kind}"] / (spent / size)
        rows.append(
            Row("exact noise", name, spent / size * 1e9, f"OpenDP make_{kind}", ratio, "at least 100", ratio >= 100)
        )
    ratio = peers["diffprivlib laplace"] / (times["laplace"] / size)
    rows.append(Row("exact noise", "laplace", times["laplace"] / size * 1e9, "diffprivlib Laplace", ratio, "", True))
    return rows


def frequencies(size: int, categories: int, repeats: int, peers: dict[str, float]) -> list[Row]:
    """Time the frequency oracles, privatising and aggregating, against the peers'."""
    codes = np.random.default_rng(0).integers(0, categories, size)
    domain = nz.Categorical(categories)
    rows = []
    for name in ("grr", "oue", "olh"):
        mechanism = nz.CATALOGUE[name](epsilon=1.0, domain=domain)
        job = {name: lambda mechanism=mechanism: mechanism.aggregate(mechanism.privatize(codes)).estimate()}
        spent = interleaved(job, repeats)[name] / size
        for peer in ("multi-freq-ldpy", "pure-ldp"):
            ratio = peers[f"{peer} {name}"] / spent
            rows.append(Row("frequencies", name, spent * 1e9, peer, ratio, "at least 50", ratio >= 50))
    return rows


def aggregation(users: int, repeats: int) -> list[Row]:
    """Time the aggregation of sampled reports against numpy's weighted bincount of the same ones."""
    rng = np.random.default_rng(0)
    dims, report = 5000, 50
    rows = []
    for name in ("duchi", "piecewise", "hybrid", "laplace"):
        collection = nz.Sampled(name, epsilon=1.0, dims=dims, report=report)
        indices = np.sort(
            rng.integers(0, dims // report, (users, report)) + np.arange(report) * (dims // report), axis=1
        )
        told = collection.inner_mechanism.privatize(rng.uniform(-1, 1, users * report), rng=rng)
        values = told.reshape(users, report)
        reports = nz.Reports(indices.astype(np.int32), values)
        flat, weights = indices.reshape(-1), values.reshape(-1)
        times = interleaved(
            {
                "ours": lambda reports=reports, collection=collection: collection.aggregate(reports),
                "bincount": lambda flat=flat, weights=weights: np.bincount(flat, weights, minlength=dims),
            },
            repeats,
        )
        ratio = times["ours"] / times["bincount"]
        job = f"sampled {name}"
        spent = times["ours"] / flat.size * 1e9
        rows.append(Row("aggregate", job, spent, "np.bincount with weights", ratio, "at most 3", ratio <= 3))
    return rows


def memory(size: int) -> list[Row]:
    """Measure the peak of what privatize allocates, as a multiple of its input."""
    x = np.random.default_rng(0).uniform(-1, 1, size)
    rows = []
    for name in UNIFORMS:
        mechanism = nz.CATALOGUE[name](epsilon=1.0)
        mechanism.privatize(x[:10], rng=1)
        tracemalloc.start()
        mechanism.privatize(x, rng=1)
        peak = tracemalloc.get_traced_memory()[1] / x.nbytes
        tracemalloc.stop()
        rows.append(Row("memory", name, 0.0, "the input's bytes", peak, "below 4", peak < 4))
    return rows


def peer_times(setting: dict[str, Any]) -> dict[str, float]:
    """Run the peers in their own environment."""
    command = [str(PEERS), str(ROOT / "benchmarks" / "peers.py")]
    done = subprocess.run(command, input=json.dumps(setting), capture_output=True, text=True, check=True)
    times: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return times


def table(rows: list[Row]) -> str:
    """Return the rows as Markdown, one table a section."""
    parts = []
    for section in dict.fromkeys(row.section for row in rows):
        lines = [f"## {section.capitalize()}", "", "| job | ns a value | against | ratio | promised | kept |"]
        lines.append("| --- | ---: | --- | ---: | --- | --- |")
        for row in (row for row in rows if row.section == section):
            spent = f"{row.nanoseconds:.1f}" if row.nanoseconds else ""
            kept = ("yes" if row.kept else "**no**") if row.promise else ""
            lines.append(f"| {row.job} | {spent} | {row.against} | {row.ratio:.2f} | {row.promise} | {kept} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def others() -> str:
    """Return how to run the benchmarks that take longer or need more, each with a page of its own, and what each is."""
    scripts = (path for path in sorted((ROOT / "benchmarks").glob("*.py")) if path.name not in ("run.py", "peers.py"))
    about = {path.name: ast.get_docstring(ast.parse(path.read_text())) or "" for path in scripts}
    return "\n".join(f"python benchmarks/{name}: {text.splitlines()[0]}" for name, text in about.items())


def main() -> None:
    """Measure, print the table, and write it where the options say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="a setting for the tests: seconds, not minutes")
    parser.add_argument("--no-peers", action="store_true", help="leave out what needs .venv-peers")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "benchmarks.md", help="Markdown file to write")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    options = parser.parse_args()
    size, repeats = (200_000, 3) if options.small else (10_000_000, 7)
    rows = scalars(size, repeats) + aggregation(size // 50, repeats) + memory(size)
    if not options.no_peers:
        setting = {"reals": size // 100, "codes": size // 2000, "size": 100, "epsilon": 1.0, "repeats": 3}
        peers = peer_times(setting)
        rows += exact_noise(setting["reals"], repeats, peers) + frequencies(size // 100, 100, repeats, peers)
    body = table(rows)
    print(json.dumps([asdict(row) for row in rows]) if options.json else f"{body}\n\nNot run here:\n{others()}")
    if not options.small:
        before = options.output.read_text() if options.output.exists() else ""
        mark = "\n## Prediction\n"  # measured by prediction.py, kept as it is
        options.output.write_text(HEAD + body + "\n" + "".join(before.partition(mark)[1:]))


HEAD = """# Benchmarks

Written by `make bench`: medians of seven runs on one core, all jobs of a table taken in turn, 10 million float64 values
(fewer for the peers, which work a value at a time). A ratio against the machine's floor says how many times longer than
numpy needs to draw the same number of uniforms and to copy the array once. A ratio against a peer says how many times
faster Noisette is on the same values.

"""


if __name__ == "__main__":
    main()
