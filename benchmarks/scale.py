"""Sums of report files on a Ray cluster beside one process: seconds and memory from a million to 100 million reports.

python benchmarks/scale.py --page        10^6, 10^7 and 10^8 reports, into the tables and the figure of docs/scale.md

The files, 1.3 GB at most, are made in --folder and deleted. They repeat blocks of 2^20 reports, so what they add up to
is known: each result is compared with it, bit for bit.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}

import numpy as np

import noisette as nz
from noisette.aggregation import aggregate_partitions, load, split_files, write_reports
from noisette.core import Aggregate
from noisette.scale import aggregate_on_ray

ROOT = Path(__file__).resolve().parent.parent
PAGE, FIGURE = ROOT / "docs" / "scale.md", ROOT / "docs" / "figures" / "scale.svg"
_BEGIN, _END = "<!-- measured by benchmarks/scale.py -->", "<!-- end -->"
BLOCK = 1 << 20
A_FILE = 10 * BLOCK  # reports in a file: whole blocks, so that files together repeat them as one would
CORES = 2
JOBS: dict[str, tuple[Any, Any]] = {  # mechanism, and how many of what the values are drawn from
    "sampled": (nz.Sampled("piecewise", epsilon=2.0, dims=10, report=2), None),
    "hashing": (nz.LocalHashing(1.0, nz.Categorical(128)), 128),
}
WHAT = {
    "sampled": "two numbers of ten, piecewise mechanism (light: reading is most of the work)",
    "hashing": "one category of 128, local hashing (heavy: 128 hashes a report)",
}


@dataclass(frozen=True)
class Block:
    """Reports that are repeated, and what a number of them adds up to."""

    mechanism: Any
    reports: Any

    @classmethod
    def of(cls, job: str, size: int) -> Block:
        """Draw and privatise values."""
        mechanism, categories = JOBS[job]
        rng = np.random.default_rng(1)
        x = rng.uniform(-1, 1, (size, mechanism.dims)) if categories is None else rng.integers(0, categories, size)
        return cls(mechanism, mechanism.privatize(x, rng=2))

    def batches(self, users: int) -> Iterator[Any]:
        """Yield so many reports."""
        for start in range(0, users, len(self.reports)):
            yield self.reports[: min(len(self.reports), users - start)]

    def expected(self, users: int) -> Aggregate:
        """Return what they add up to: the block's own sums, as often as it is repeated."""
        times, rest = divmod(users, len(self.reports))
        whole = self.mechanism.aggregate(self.reports)
        sums = {name: times * getattr(whole, name) for name in ("count", "total", "squares")}
        repeated = Aggregate(self.mechanism, times * whole.users, **sums)
        return repeated + self.mechanism.aggregate(self.reports[:rest]) if rest else repeated


def write(folder: Path, block: Block, users: int) -> list[Path]:
    """Write files of at most `A_FILE` reports."""
    paths = []
    for start in range(0, users, A_FILE):
        paths.append(folder / f"{len(paths):03}.parquet")
        write_reports(paths[-1], block.mechanism, block.batches(min(A_FILE, users - start)))
    return paths


def measure(where: str, paths: list[str]) -> dict[str, Any]:
    """Sum files in this process, or on a cluster of two cores, and say how long it took and how much memory."""
    begun = time.perf_counter()
    reports = split_files(paths)
    if where == "here":
        sums = aggregate_partitions(reports)
        found = {"seconds": time.perf_counter() - begun, "start": 0.0, "worker": 0.0, "cpu": time.process_time()}
    else:
        import ray

        ray.init(
            address="local",
            num_cpus=CORES,
            include_dashboard=False,
            object_store_memory=200_000_000,
            log_to_driver=False,
            logging_level="ERROR",
        )
        ready = time.perf_counter()
        sums = aggregate_on_ray(reports, address=None)
        found = {"seconds": time.perf_counter() - ready, "start": ready - begun}
        below = _below(os.getpid())
        found["worker"] = max(
            _peak(pid) for pid, title in below.items() if title.startswith((b"ray::IDLE", b"ray::_t"))
        )
        found["cpu"] = time.process_time() + sum(map(_spent, below))
        ray.shutdown()
    return found | {"partitions": len(reports.partitions), "driver": _peak(os.getpid()), "sums": sums.to_json()}


def _below(pid: int) -> dict[int, bytes]:
    """Return the processes that a process has started, and theirs, with their titles."""
    found = {}
    for path in Path("/proc").glob(f"{pid}/task/*/children"):
        for child in map(int, path.read_text(encoding="ascii").split()):
            found |= {child: Path(f"/proc/{child}/cmdline").read_bytes()} | _below(child)
    return found


def _spent(pid: int) -> float:
    """Return the seconds of a core that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _peak(pid: int) -> float:
    """Return the largest memory that a process has had, in MB."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) / 1000


def apart(where: str, paths: list[Path]) -> dict[str, Any]:
    """Measure in a process of its own."""
    command = [sys.executable, __file__, "--measure", where, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def study(job: str, users: int, folder: Path, block: Block) -> dict[str, Any]:
    """Measure one size both ways, and compare the sums with what is known of them."""
    inside = Path(tempfile.mkdtemp(dir=folder, prefix="noisette-scale-"))
    try:
        paths = write(inside, block, users)
        size = sum(path.stat().st_size for path in paths)
        row: dict[str, Any] = {"job": job, "users": users, "bytes": size, "load": os.getloadavg()[0]}
        expected = block.expected(users)
        for where in ("here", "ray"):
            found = apart(where, paths)
            if load(found.pop("sums")) != expected:
                raise RuntimeError(f"{job}, {users:,} reports, {where}: other sums than those of the blocks")
            row[where] = found
    finally:
        shutil.rmtree(inside)
    return row


def tables(rows: list[dict[str, Any]]) -> str:
    """Return what was measured as Markdown."""
    lines = [*_worth(rows)]
    for job, what in WHAT.items():
        own = [row for row in rows if row["job"] == job]
        if not own:
            continue
        lines += [f"**{what[0].upper()}{what[1:]}**", ""]
        heads = ["reports", "MB on disk", "one process", "its CPU", "Ray on 2 cores", "start of Ray", "CPU of Ray"]
        heads += ["MB: process", "driver", "worker", "load"]
        lines += [f"| {' | '.join(heads)} |", f"|{' ---: |' * len(heads)}"]
        for row in own:
            here, ray = row["here"], row["ray"]
            seconds = [here["seconds"], here["cpu"], ray["seconds"], ray["start"], ray["cpu"]]
            cells = [f"{row['users']:,}", f"{row['bytes'] / 1e6:,.0f}", *(f"{spent:.1f} s" for spent in seconds)]
            cells += [f"{size:.0f}" for size in (here["driver"], ray["driver"], ray["worker"], row["load"])]
            lines.append(f"| {' | '.join(cells)} |")
        lines += ["", *_on_paper(own)]
    return "\n".join(lines)


def _worth(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Say where Ray was faster on the clock, its start included, and what it cost in seconds of a core."""
    for row in rows:
        here, ray = row["here"], row["ray"]
        clock = ray["seconds"] + ray["start"]
        won = "Ray was faster" if clock < here["seconds"] else "one process was faster"
        yield (
            f"- {row['job']}, {row['users']:,} reports: {won} on the clock, {clock:.1f} s with Ray's start against "
            f"{here['seconds']:.1f} s; Ray took {ray['cpu'] / here['cpu']:.1f} times the seconds of a core."
        )
    yield ""


def _on_paper(rows: list[dict[str, Any]]) -> list[str]:
    """Say what a billion reports would cost, by the cost of a report between the two largest sizes."""
    if len(rows) < 2:
        return []
    *_, small, large = sorted(rows, key=lambda row: int(row["users"]))
    more = large["users"] - small["users"]
    each = {where: (large[where]["cpu"] - small[where]["cpu"]) / more for where in ("here", "ray")}
    more_on_disk = large["bytes"] / large["users"]
    paper = {where: large[where]["cpu"] + cost * (10**9 - large["users"]) for where, cost in each.items()}
    return [
        f"From {small['users']:,} to {large['users']:,} a report costs {1e9 * each['here']:.0f} ns of a core in one "
        f"process and {1e9 * each['ray']:.0f} ns on Ray. On paper, a billion reports are {more_on_disk:.1f} GB and "
        f"{paper['here']:.0f} s of a core in one process, {paper['ray']:.0f} s on Ray, its start included and to be "
        "divided by the cores.",
        "",
    ]


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw seconds of a core and seconds on the clock against reports."""
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.rcParams["svg.hashsalt"] = "noisette"  # the same figure is the same file
    figure = Figure(figsize=(9, 4), layout="constrained")
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    for axes, what in zip(panels, ("of a core, all processes", "on the clock, with Ray's start"), strict=True):
        for colour, job in zip(("tab:brown", "tab:blue"), WHAT, strict=True):
            own = sorted((row for row in rows if row["job"] == job), key=lambda row: int(row["users"]))
            users = [row["users"] for row in own]
            for where, line in (("here", "o-"), ("ray", "s--")):
                found = [row[where] for row in own]
                clock = axes is panels[1]
                seconds = [one["seconds"] + one["start"] if clock else one["cpu"] for one in found]
                name = "one process" if where == "here" else "Ray, 2 cores"
                axes.plot(users, seconds, line, color=colour, label=f"{job}, {name}")
        axes.set(xscale="log", yscale="log", xlabel="reports", ylabel=f"seconds {what}")
        axes.grid(alpha=0.3)
    panels[0].legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="svg", metadata={"Date": None})


def main() -> None:
    """Measure, print, and put tables and figure into the documentation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", nargs="*", choices=list(JOBS), default=list(JOBS))
    parser.add_argument("--users", nargs="*", type=int, default=[10**6, 10**7, 10**8])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where the files go")
    parser.add_argument("--results", type=Path, help="JSON file to which this run's rows are added")
    parser.add_argument("--page", action="store_true", help="write docs/scale.md's tables and figure")
    parser.add_argument("--measure", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure[0], options.measure[1:])))
        return
    known = options.results is not None and options.results.exists()
    rows = json.loads(options.results.read_text(encoding="utf-8")) if known else []
    blocks = {job: Block.of(job, BLOCK) for job in options.jobs}
    for users in options.users:
        for job, block in blocks.items():
            rows.append(study(job, users, options.folder, block))
            if options.results is not None:
                options.results.write_text(json.dumps(rows), encoding="utf-8")
    if options.page:
        page = PAGE.read_text(encoding="utf-8")
        before, _, rest = page.partition(_BEGIN)
        PAGE.write_text(f"{before}{_BEGIN}\n\n{tables(rows)}\n{_END}{rest.partition(_END)[2]}", encoding="utf-8")
        draw(rows, FIGURE)
    print(tables(rows))


if __name__ == "__main__":
    main()
