"""Write the table of the slowest tests into CONTRIBUTING.md, from pytest's --junitxml: scripts/slowest.py FILE."""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

PAGE = Path(__file__).resolve().parents[1] / "CONTRIBUTING.md"
BEGIN, END = "<!-- slowest tests: begin -->", "<!-- slowest tests: end -->"
SHOWN = 20


def read(path: Path) -> dict[str, float]:
    """Return seconds by test; the cases of a parametrised test are added up."""
    seconds: dict[str, float] = defaultdict(float)
    for case in ElementTree.parse(path).iter("testcase"):
        name = case.get("name", "").partition("[")[0]
        seconds[f"{case.get('classname', '').replace('.', '/')}::{name}"] += float(case.get("time", "0"))
    return seconds


def table(seconds: dict[str, float]) -> str:
    """Return the slowest tests as Markdown."""
    total = sum(seconds.values())
    slowest = sorted(seconds.items(), key=lambda entry: -entry[1])[:SHOWN]
    rows = [f"| `{name}` | {spent:.1f} | {100 * spent / total:.1f} |" for name, spent in slowest]
    head = f"{len(seconds)} tests took {total:.0f} s by the clock of their processes, the slowest {SHOWN} of them:"
    return "\n".join([head, "", "| test, all its cases | seconds | % |", "| --- | ---: | ---: |", *rows])


def main() -> None:
    """Replace what stands between the marks."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n{table(read(Path(sys.argv[1])))}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
