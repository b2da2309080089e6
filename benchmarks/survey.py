"""How much slower a survey is than its mechanisms alone: a million rows of five mixed questions, ratios in one run.

    python benchmarks/survey.py [--rows N] [--json]

The mechanisms' own time is that of each question's mechanism on its coded column, one after the other, and of each
section's mechanism as a whole; a survey also reads labels, checks ranges, builds rows and counts bins.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import noisette as nz

ALLOWED = {"privatize": 3.0, "estimate": 2.0}
TURNS = 7  # the least of so many times, as a busy machine disturbs some


def people(rows: int) -> pd.DataFrame:
    """Return a table of answers."""
    rng = np.random.default_rng(1)
    return pd.DataFrame(
        {
            "age": rng.integers(18, 99, rows),
            "hours": 100 * rng.beta(2, 5, rows),
            "diet": rng.choice(["none", "vegan", "halal"], rows),
            "town": rng.choice([f"town {number}" for number in range(20)], rows),
            "income": rng.uniform(0, 200_000, rows),
        }
    )


def survey() -> nz.Survey:
    """Return five mixed questions."""
    return nz.Survey(
        [
            nz.Number("age", 18, 99),
            nz.Number("hours", 0, 100, want="distribution"),
            nz.Choice("diet", ["none", "vegan", "halal"]),
            nz.Choice("town", [f"town {number}" for number in range(20)]),
            nz.Number("income", 0, 200_000),
        ],
        epsilon=4.0,
    )


def quickest(run: Callable[[], Any]) -> float:
    """Return the least processor time of a few turns: the clock's depends on who else is at work."""
    found = []
    for _ in range(TURNS):
        started = time.process_time()
        run()
        found.append(time.process_time() - started)
    return min(found)


def measure(rows: int) -> dict[str, Any]:
    """Return times and their ratios."""
    asked, table = survey(), people(rows)
    [section] = asked.sections
    mechanism = section.mechanism
    small = table.head(1000)
    asked.estimate(asked.privatize(small)).table()  # what is compiled or imported once
    coded = np.column_stack([_coded(one, table) for one in asked.questions])
    reports = asked.privatize(table)
    whole = np.ascontiguousarray(reports.rows["part0"])
    each = list(zip(mechanism.inner_mechanisms, coded.T, strict=True))
    columns = [(inner, column.astype(np.int64) if inner.kind == "frequency" else column) for inner, column in each]
    sent = [(inner, inner.privatize(column)) for inner, column in columns]
    told = {
        "rows": rows,
        "report": mechanism.report,
        "mechanisms": [inner.name for inner, _ in columns],
        "privatize": quickest(lambda: asked.privatize(table)),
        "estimate": quickest(lambda: asked.estimate(reports).table()),
        "section privatize": quickest(lambda: mechanism.privatize(coded)),
        "section estimate": quickest(lambda: mechanism.aggregate(whole).estimate()),
        "questions privatize": sum(quickest(lambda i=i, c=c: i.privatize(c)) for i, c in columns),
        "questions estimate": sum(quickest(lambda i=i, s=s: i.aggregate(s).estimate()) for i, s in sent),
    }
    for name in ALLOWED:
        told[f"{name} ratio"] = told[name] / told[f"section {name}"]
        told[f"{name} ratio to questions"] = told[name] / told[f"questions {name}"]
    return told


def _coded(question: Any, table: pd.DataFrame) -> Any:
    from noisette.survey.coding.columns import columns_of

    return question.column(columns_of(table, [question], []))


def peak(rows: int, folder: Path) -> float:
    """Return the peak memory in MB of a process that privatises a file of so many rows and estimates."""
    path = folder / f"{rows}.parquet"
    people(rows).to_parquet(path, row_group_size=100_000)
    asked = folder / "survey.yaml"
    survey().save(asked)
    code = (
        "import resource, sys, noisette as nz\n"
        f"s = nz.Survey.read({str(asked)!r})\n"
        f"s.privatize_file({str(path)!r}, {str(folder / 'r.parquet')!r})\n"
        f"s.estimate({str(folder / 'r.parquet')!r}).table()\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
    )
    return float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)


def main() -> None:
    """Print the ratios, and how memory grows with a file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    told = measure(arguments.rows)
    with tempfile.TemporaryDirectory() as name:
        told["MB"] = {rows: peak(rows, Path(name)) for rows in (arguments.rows // 4, arguments.rows)}
    told["own MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if arguments.json:
        print(json.dumps(told, indent=2))
        return
    print(f"{told['rows']:,} rows, {told['report']} of 5 questions reported, by {', '.join(told['mechanisms'])}")
    for name, allowed in ALLOWED.items():
        print(
            f"{name}: {told[name]:.2f} s, {told[f'{name} ratio']:.2f} times the section's mechanism, "
            f"{told[f'{name} ratio to questions']:.2f} times those of all questions (at most {allowed:g})"
        )
    print("memory of a file: " + ", ".join(f"{rows:,} rows {size:.0f} MB" for rows, size in told["MB"].items()))


if __name__ == "__main__":
    main()
