"""The page: one file, with its data, style and script inside, that loads nothing."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from benchmarks.board import curves, evidence
from benchmarks.board.frame import AUTO, RESULTS, TASKS, stored
from noisette._look import style

NEAR = 1.05
_HERE = Path(__file__).resolve().parent


def rows(folder: Path = RESULTS) -> list[dict[str, Any]]:
    """Return all results, with what audits say of other libraries now."""
    return [evidence.renewed(row) for name in TASKS for row in stored(name, folder).values()]


def comparable(row: dict[str, Any]) -> bool:
    """Tell whether auto is compared with a row: certified, for the same task, and unbiased as auto has to be."""
    other = row["by"] == "noisette, other task" or row["method"].startswith(f"{AUTO}, ")  # auto's own, bettered
    return row["verdict"] == "certified" and not other and not row.get("biased", False)


def automatic(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return for each cell how auto compares with the best certified method there, the worst first."""
    cells: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in found:
        cells[row["task"], row["cell"]].append(row)
    told = []
    for (task, cell), own in cells.items():
        auto = next((row for row in own if row["method"] == AUTO), None)
        best = min((row for row in own if comparable(row)), key=lambda row: row["error"], default=None)
        if auto is None or best is None:
            continue
        ratio = auto["error"] / best["error"] if best["error"] else 1.0 if auto["error"] == 0 else float("inf")
        told.append({"task": task, "cell": cell, "chosen": auto["chosen"], "best": best["method"], "ratio": ratio})
    return sorted(told, key=lambda one: -one["ratio"])


def summary(folder: Path = RESULTS) -> dict[str, Any]:
    """Return the counts that the page begins with."""
    found = rows(folder)
    told = automatic(found)
    near = [one for one in told if one["ratio"] <= NEAR]
    ranked = [row for row in found if row["verdict"] != "refuted"]
    return {
        "methods": len({(row["task"], row["method"]) for row in found}),
        "results": len(found),
        "data_sets": sorted({row["source"] for row in found}),
        "tasks": sorted({row["task"] for row in found}),
        "cells": len({(row["task"], row["cell"]) for row in found}),
        "certified": sum(row["verdict"] == "certified" for row in ranked),
        "refuted": len(found) - len(ranked),
        "auto_cells": len(told),
        "auto_near": len(near),
        "auto_share": len(near) / len(told) if told else 0.0,
        "auto_far": [one for one in told if one["ratio"] > NEAR],
    }


def page(folder: Path = RESULTS) -> str:
    """Return the HTML."""
    told = summary(folder)
    keep = "task cell measure epsilon method by chosen error spread users bytes microseconds verdict words biased"
    data = {
        "rows": [{key: row.get(key) for key in keep.split()} for row in rows(folder)],
        "curves": curves.stored(folder),
        "axes": {name: {"axis": axis, "about": about} for name, (axis, about) in curves.AXES.items()},
        "near": NEAR,
    }
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    far = "".join(
        f"<tr><td>{_safe(one['task'])}: {_safe(one['cell'])}</td><td>{_safe(one['chosen'])}</td>"
        f"<td>{_safe(one['best'])}</td><td>{one['ratio']:.3f}</td></tr>"
        for one in told["auto_far"]
    )
    numbers = {
        "methods and variants": f"{told['methods']}",
        "cells (task, data, budget)": f"{told['cells']}",
        "data sets": f"{len(told['data_sets'])}",
        "results": f"{told['results']}",
        "refuted, below the line": f"{told['refuted']}",
        f"auto within {NEAR:g} of the best": f"{told['auto_near']} of {told['auto_cells']}",
    }
    counts = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in numbers.items())
    return (
        (_HERE / "page.html")
        .read_text(encoding="utf-8")
        .replace("{style}", style() + (_HERE / "page.css").read_text(encoding="utf-8"))
        .replace("{counts}", counts)
        .replace("{sources}", _safe(", ".join(told["data_sets"])))
        .replace("{far}", far or '<tr><td colspan="4">none</td></tr>')
        .replace("{script}", (_HERE / "page.js").read_text(encoding="utf-8"))
        .replace("{data}", text)
    )


def _safe(text: str) -> str:
    return str(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
