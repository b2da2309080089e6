"""The page of figures is what was measured, and says what follows from it."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.long

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "collector_page.py"))
PAGE, RESULTS, written = (SCRIPT[name] for name in ("PAGE", "RESULTS", "written"))


def test_the_page_is_what_was_measured() -> None:
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    page = PAGE.read_text(encoding="utf-8")
    measured = {f"{kind} {database}" for kind in ("batches", "single") for database in ("sqlite", "postgresql")}
    assert measured | {"faults", "workers postgresql"} == results.keys()
    assert written(page, results) == page
    results["batches sqlite"]["runs"][0]["rate"] *= 1.01
    assert written(page, results) != page


@pytest.mark.parametrize(
    ("rates", "said"),
    [([60_000, 50_000], "are kept"), ([90_000, 49_999], "are reached over all"), ([60_000, 30_000], "are not reached")],
)
def test_what_follows_is_reckoned(rates: list[float], said: str) -> None:
    run: dict[str, Any] = {"reports": 1_000_000, "p50_ms": 1.0, "p99_ms": 2.0, "memory_after": 200.0, "cpu_us": 3.0}
    found = {"batches sqlite": {"command": "c", "load": 1.0, "runs": [run | {"rate": rate} for rate in rates]}}
    assert said in written("", found)
