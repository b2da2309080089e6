"""The tables of docs/benchmarks-collector.md, from what collector.py and collector_faults.py have recorded."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE, RESULTS = ROOT / "docs" / "benchmarks-collector.md", ROOT / "benchmarks" / "collector.json"
BEGIN, END = "<!-- measured by benchmarks/collector.py -->", "<!-- end -->"
WANTED = 50_000  # reports a second in batches
NAMES = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}

Results = dict[str, dict[str, Any]]  # by kind and database: the command, the machine's load, the runs


def record(kind: str, database: str, command: str, load: float, runs: list[dict[str, Any]]) -> None:
    """Put runs of one kind and database in the place of those before, and write the page."""
    found: Results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    found[f"{kind} {database}".strip()] = {"command": command, "load": round(load, 1), "runs": runs}
    RESULTS.write_text(json.dumps(dict(sorted(found.items())), indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), found), encoding="utf-8")


def written(page: str, results: Results) -> str:
    """Return a page with the tables of these results."""
    before, _, rest = page.partition(BEGIN)
    body = "\n\n".join([*batches(results), *singles(results), *workers(results), *faults(results)])
    return f"{before}{BEGIN}\n\n{body}\n\n{END}{rest.partition(END)[2]}"


def batches(results: Results) -> Iterator[str]:
    """Yield what is said of reports in batches."""
    for name, title in NAMES.items():
        if not (found := results.get(f"batches {name}")):
            continue
        runs = found["runs"]
        total = sum(run["reports"] for run in runs)
        rate, slowest = total / sum(run["reports"] / run["rate"] for run in runs), min(run["rate"] for run in runs)
        reached = "kept" if slowest >= WANTED else "reached over all" if rate >= WANTED else "not reached"
        held = ", ".join(f"{run['memory_after']:.0f}" for run in runs)
        yield (
            f"**Batches, {title}** (`{found['command']}`, load {found['load']}): {total:,} reports at {rate:,.0f} a "
            f"second, the slowest part at {slowest:,.0f}: {WANTED:,} a second are {reached}. Memory in MB after "
            f"each part: {held}."
        )
        lines = [
            "| reports before | reports | a second | p50 of a batch | p99 | memory | CPU a report | PostgreSQL's |"
        ]
        lines.append("|" + " ---: |" * 8)
        before = 0
        for run in runs:
            times = f"{run['p50_ms']:,.0f} ms | {run['p99_ms']:,.0f} ms"
            used = f"{run['memory_after']:.0f} MB | {run['cpu_us']:.1f} µs | {_own(run, 1)}"
            lines.append(f"| {before:,} | {run['reports']:,} | {run['rate']:,.0f} | {times} | {used} |")
            before += run["reports"]
        yield "\n".join(lines)


def singles(results: Results) -> Iterator[str]:
    """Yield what is said of reports that come one by one, beside the bare endpoint."""
    for name, title in NAMES.items():
        if not (found := results.get(f"single {name}")):
            continue
        ours, bare = ([run for run in found["runs"] if run["what"] == what] for what in ("single", "bare"))
        share = statistics.median(run["rate"] for run in ours) / statistics.median(run["rate"] for run in bare)
        spent = statistics.median(run["cpu_us"] for run in bare) / statistics.median(run["cpu_us"] for run in ours)
        worst = max(run["p99_ms"] for run in ours)
        yield (
            f"**Single reports, {title}** (`{found['command']}`, load {found['load']}): the medians are at {share:.0%} "
            f"of the bare endpoint by the clock and at {spent:.0%} by processor time, with a p99 of at most "
            f"{worst:,.0f} ms."
        )
        lines = ["| turn | bare, a second | collector, a second | bare, CPU a request | collector, CPU a request |"]
        lines.append("|" + " ---: |" * 5)
        for turn, (one, other) in enumerate(zip(bare, ours, strict=True), 1):
            rates, used = (
                f"{one['rate']:,.0f} | {other['rate']:,.0f}",
                f"{one['cpu_us']:.0f} µs | {other['cpu_us']:.0f} µs",
            )
            lines.append(f"| {turn} | {rates} | {used} |")
        yield "\n".join(lines)


def workers(results: Results) -> Iterator[str]:
    """Yield what is said of one process and of two on one database."""
    if not (found := results.get("workers postgresql")):
        return
    one, two = ([run for run in found["runs"] if run["what"] == f"workers {count}"] for count in (1, 2))
    total = sum(run["reports"] for run in found["runs"])
    waits = sum(run["waits"] for run in found["runs"])
    yield (
        f"**One process and two, PostgreSQL** (`{found['command']}`, load {found['load']}): in {total:,} single "
        f"reports somebody waited {waits} times for a lock for a millisecond or more. The sender and PostgreSQL take "
        "their part of the two cores, so two processes have no core each: read the CPU a report."
    )
    lines = [
        "| turn | one process, a second | two, a second | one, CPU a report | PostgreSQL's | two, CPU a report | "
        "PostgreSQL's | waits for a lock |"
    ]
    lines.append("|" + " ---: |" * 8)
    for turn, (alone, both) in enumerate(zip(one, two, strict=True), 1):
        rates = f"{alone['rate']:,.0f} | {both['rate']:,.0f}"
        spent = " | ".join(f"{run['cpu_us']:.0f} µs | {_own(run, 0)}" for run in (alone, both))
        lines.append(f"| {turn} | {rates} | {spent} | {alone['waits'] + both['waits']} |")
    yield "\n".join(lines)


def _own(run: dict[str, Any], digits: int) -> str:
    """Return what PostgreSQL took for a report, where it was measured."""
    return f"{run['postgres_us']:.{digits}f} µs" if run.get("postgres_us") else ""


def faults(results: Results) -> Iterator[str]:
    """Yield what is said of kills under load."""
    if not (found := results.get("faults")):
        return
    rows = found["runs"]
    wrong = sum(row["lost"] + row["invented"] for row in rows)
    yield (
        f"**Faults** (`{found['command']}`): {sum(row['kills'] for row in rows)} kills at random moments under load, "
        f"all counts compared after each. Reports that were lost, or counted and never sent: {wrong}."
    )
    lines = ["| killed | kills | reports sent and acknowledged | stored | lost | invented | stored, answer cut off |"]
    lines.append("| --- |" + " ---: |" * 6)
    for row in rows:
        kept = (
            f"{row['acknowledged']:,} | {row['stored']:,} | {row['lost']} | {row['invented']} | {row['unanswered']:,}"
        )
        lines.append(f"| {row['what']} | {row['kills']} | {kept} |")
    yield "\n".join(lines)
