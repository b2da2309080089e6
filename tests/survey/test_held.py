"""What a survey says of given sums, digit by digit: tables, tests, weights, intervals, pictures and plans.

The sums of reports are kept too, so that nothing here is drawn. python -m tests.survey.test_held writes all anew.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.held import Held

import noisette as nz
from noisette.survey.estimation.comparing import boundaries
from noisette.survey.estimation.distributions import Shapes
from noisette.survey.results import SurveyAggregate
from noisette.survey.sums import Sums

HELD = Held(__file__)
SUMS = Path(__file__).with_name("held_sums.json")
GROUPS = {"g": ["s", "t"], "h": ["f", "m", "d"]}
ABC = ["a", "b", "c"]
FEW_PEOPLE, NOBODY = " of few", " of nobody"

SURVEYS: dict[str, Callable[[], nz.Survey]] = {
    "plain": lambda: nz.Survey([nz.Number("x", -2, 10), nz.Choice("c", ABC)], epsilon=3.0, groups=GROUPS),
    "quantiles": lambda: nz.Survey(
        [nz.Number("q", 2, 6, want="quantiles"), nz.Number("w", 17, 90, want="quantiles", whole=True)],
        epsilon=8.0,
        groups=GROUPS,
    ),
    "spread": lambda: nz.Survey(
        [
            nz.Number("v", -1, 5, want="variance"),
            nz.Choice("o", ABC, optional=True),
            nz.Number("n", 1, 4, optional=True),
        ],
        epsilon=9.0,
        groups={"g": ["s", "t"]},
    ),
    "distribution": lambda: nz.Survey([nz.Number("z", 0, 8, want="distribution")], epsilon=3.0),
    "crosstab": lambda: nz.Survey(
        [nz.Choice("c", ABC), nz.Choice("d", ["y", "n"]), nz.Number("x", -2, 10)],
        epsilon=5.0,
        joint=[("c", "d"), ("c", "x")],
    ),
    "numbers": lambda: nz.Survey([nz.Number("x", 0, 2), nz.Number("y", -3, 1)], epsilon=6.0, joint=[("x", "y")]),
    "chosen": lambda: nz.Survey(
        [nz.Choice("c", ["a", "b"]), nz.Choices("m", ABC, most=2)], epsilon=4.0, joint=[("c", "m")]
    ),
    "several": lambda: nz.Survey(
        [nz.Choices("m", ABC, most=2), nz.Choices("k", ["u", "v"])], epsilon=5.0, joint=[("m", "k")]
    ),
    "number of chosen": lambda: nz.Survey(
        [nz.Number("x", 2, 5), nz.Choices("m", ABC, most=2)], epsilon=4.0, joint=[("x", "m")]
    ),
    "vectors": lambda: nz.Survey(
        [nz.Vector("p", 3, -1, 1), nz.Tensor("t", (2, 2), 0, 4), nz.Graded("l", [(0, 1, 2.0), (1, 4, 1.0)])],
        epsilon=9.0,
    ),
    "dates": lambda: nz.Survey(
        [nz.Number("born", "1950-01-01", "2009-12-31", want="quantiles"), nz.Number("rises", "05:00", "10:00")],
        epsilon=6.0,
    ),
}


FEW = [name for name in SURVEYS if name != "distribution"]  # which takes a while, few or many


@cache
def asked(name: str) -> nz.Survey:
    return SURVEYS[name]()


@cache
def results(name: str, how: str = "") -> nz.Results:
    survey = asked(name)
    kept = json.loads(SUMS.read_text(encoding="utf-8"))[name + how]
    cells = {int(cell): Sums(survey.layout, users, np.asarray(vector)) for cell, (users, vector) in kept.items()}
    return SurveyAggregate(survey, cells).results()


def compared() -> dict[str, Any]:
    found = {}
    for name in ("plain", "quantiles", "spread"):
        for correct in ("holm", "bh", "none"):
            table = results(name).compare("g", correct=correct)
            found[f"{name} {correct}"] = {"table": table, "note": table.attrs["note"]}
        found[f"{name} looks"] = results(name).compare("g", looks=[0.2, 0.5, 0.6], level=0.9)
    found["three"] = results("plain").compare("h")
    found["within"] = results("crosstab").compare("c")
    return found


def weighted() -> dict[str, Any]:
    one = {"g": {"s": 0.7, "t": 0.3}}
    both = one | {"h": {"f": 0.5, "m": 0.4, "d": 0.1}}
    found: dict[str, Any] = {}
    for name, margins in (("plain", one), ("plain", both), ("quantiles", both), ("spread", one)):
        made = results(name).weighted(margins)
        found[f"{name} {len(margins)}"] = {"table": made.table(level=0.8), "effect": made.design_effect()}
    made = results("crosstab").weighted({"c": {"a": 0.2, "b": 0.3, "c": 0.5}})
    found["private"] = {"table": made.table(), "effect": made.design_effect()}
    made = results("crosstab").weighted({"d": {"y": 0.35, "n": 0.65}})
    return found | {"second": made.table()}


def quantiles() -> dict[str, Any]:
    found = {}
    for name, own in (("quantiles", "q"), ("quantiles", "w"), ("dates", "born")):
        answer = results(name)[own]
        estimate: Any = answer.estimate
        low, high = float(estimate.low), float(estimate.high)
        ends = [low + (high - low) * share for share in (-0.1, 0.0, 0.1234, 0.5, 0.77, 1.0, 1.2)]
        found[own] = {
            "value": [answer.quantile(chance) for chance in (0.0, 0.1, 0.5, 0.9, 1.0)],
            "interval": [answer.quantile_interval(chance, level) for chance in (0.1, 0.5) for level in (0.5, 0.99)],
            "all": answer.interval(0.8),
            "between": [estimate.between(a, b, 0.9) for a in ends for b in ends if a < b],
            "cells": [one[::7] for one in estimate.quantile_cells(0.4)],
            "bars": {bins: answer.histogram(bins=bins) for bins in (1, 5, 16)},
            "cdf": [estimate.cdf[::5], estimate.error[::5], estimate.rising[::5]],
            "shown": [answer.mean if own == "x" else answer.reports],
        }
    smooth = results("distribution")["z"]
    found["z"] = {
        "value": [round(smooth.quantile(chance), 4) for chance in (0.05, 0.5, 0.9)],
        "interval": [smooth.quantile_interval(chance, level) for chance in (0.1, 0.6) for level in (0.5, 0.99)],
        "bars": smooth.histogram(bins=3).round(4),
    }
    return found


def dashboard() -> dict[str, Any]:
    shapes = Shapes()
    names = [name for name in SURVEYS if name not in ("distribution", "vectors")]
    return {name: shapes.attributes(name, results(name).sums, 0.9) for name in names}


def pictures() -> dict[str, Any]:
    pytest.importorskip("plotly")
    figures = {name: results(name).plot() for name in ("plain", "quantiles", "dates")}
    figures |= {f"{name}/{own}": results(name)[own].plot() for name, own in (("plain", "x"), ("quantiles", "q"))}
    found: dict[str, Any] = {}
    for name, figure in figures.items():
        layout = figure.layout.to_plotly_json()
        layout.pop("template")
        found[name] = {"data": [_drawn(trace) for trace in figure.data], "layout": layout}
    return found


def _drawn(trace: Any) -> dict[str, Any]:
    """Return what a trace shows: plotly packs arrays."""
    bars = trace.error_y
    return {
        "x": list(trace.x),
        "y": list(trace.y),
        "width": None if trace.type != "bar" or trace.width is None else list(trace.width),
        "up": None if bars.array is None else list(bars.array),
        "down": None if bars.arrayminus is None else list(bars.arrayminus),
        "kind": [trace.type, bars.symmetric],
    }


def planned() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in SURVEYS:
        survey = asked(name)
        found[name] = survey.plan(2500).to_dict()
        found[f"{name} few"] = survey.plan(7).verdict
    shares = {"g": {"s": 0.9, "t": 0.1}}
    plan = asked("plain").plan(3000, shares=shares)
    found["shares"] = plan.table()
    found["compare"] = plan.compare("g", 0.25)
    found["compare some"] = plan.compare("h", {"x": 0.5}, alpha=0.1, power=0.5, spread={"x": 2.0})
    return found


def few() -> dict[str, Any]:
    """Return tables of seven people and of nobody: the ends of what may be are near, and show."""
    found: dict[str, Any] = {}
    for name in FEW:
        found[name] = [results(name, FEW_PEOPLE).table(level=level) for level in (0.5, 0.999)]
        for one in asked(name).questions:
            estimate = results(name, FEW_PEOPLE)[one.name].estimate
            found[name] += [estimate.interval(0.9), estimate.low, estimate.high]
        found[f"{name} nobody"] = results(name, NOBODY).table()
    return found


def foreseen() -> dict[str, Any]:
    """Return the errors of one user, of a few and of many."""
    return {name: [asked(name).predict(users) for users in (1, 50, 9000)] for name in SURVEYS}


STORIES: dict[str, Callable[[], Any]] = {
    "tables": lambda: {name: results(name).table() for name in SURVEYS},
    "enhanced": lambda: {
        method: results("plain").aggregate.results(enhance=method, level=0.5).table() for method in ("simplex", "box")
    },
    "notes": lambda: {name: results(name).table().attrs["note"] for name in SURVEYS},
    "by": lambda: [results("plain").by("h").table(), results("crosstab").by("c").table()],
    "crosstab": lambda: {
        f"{first}{second} {what}": results("crosstab").crosstab(first, second, what)
        for first, second in (("c", "d"), ("d", "c"))
        for what in ("share", "std_error", "low", "high")
    },
    "compared": compared,
    "weighted": weighted,
    "quantiles": quantiles,
    "dashboard": dashboard,
    "pictures": pictures,
    "planned": planned,
    "few": few,
    "boundaries": lambda: [
        boundaries(times, alpha) for times in ((0.1, 0.4, 1.0), (0.5, 0.6)) for alpha in (0.05, 0.2)
    ],
    "foreseen": foreseen,
    "pages": lambda: [results("plain")._repr_html_(), asked("plain").plan(100)._repr_html_()],
}


LONGER = ("compared", "tables", "quantiles", "dashboard", "few", "foreseen")


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in LONGER else []) for n in STORIES])
def test_digits_are_the_ones_that_were_kept(name: str) -> None:
    HELD.check(name, STORIES[name]())


def test_another_digit_would_show() -> None:
    """The twin: an error that is off by a millionth is told, with its place."""
    tables = [results("plain").by("h").table(), results("crosstab").by("c").table()]
    HELD.check("by", tables)
    tables[0].loc[2, "std_error"] *= 1 + 1e-6
    with pytest.raises(AssertionError, match="by/0/std_error/2"):
        HELD.check("by", tables)


def people(name: str, count: int) -> dict[str, Any]:
    """Draw people, to write the file of sums anew."""
    rng = np.random.default_rng(sum(name.encode()))
    found: dict[str, Any] = {}
    for one in asked(name).questions:
        low, high = float(getattr(one, "low", 0) or 0), float(getattr(one, "high", 4) or 4)
        values = low + (high - low) * rng.beta(2, 4, count)
        if one.kind == "number":
            found[one.name] = np.rint(values) if getattr(one, "whole", False) or one.axis != "number" else values
            if one.optional:
                found[one.name][rng.random(count) < 0.2] = np.nan
        elif one.kind == "category":
            found[one.name] = rng.choice(len(one.labels) + one.optional, count)
        elif one.kind == "choices":
            drawn = rng.integers(-1, len(one.labels), (count, one.domain.most))
            rows = [sorted({*row.tolist()} - {-1}) for row in drawn]
            found[one.name] = np.asarray([row + [-1] * (one.domain.most - len(row)) for row in rows])
        elif one.kind == "graded":
            found[one.name] = 4 * rng.beta(2, 4, count)
        else:
            size = (count, *np.shape(np.zeros(one.shape))) if one.kind == "tensor" else (count, one.dims)
            found[one.name] = one.low + (one.high - one.low) * rng.beta(2, 4, size)
    return found


def write() -> None:
    """Write both files anew."""
    drawn = {}
    for name in SURVEYS:
        survey = asked(name)
        rows = survey.privatize_coded(people(name, 1200), rng=5)
        cells = np.random.default_rng(1).choice(survey.cells, 1200).astype(np.uint16) if survey.groups else None
        for how, count in (("", 1200), (FEW_PEOPLE, 7), (NOBODY, 0)):
            by_cell = survey.layout.by_cell(rows[:count], None if cells is None else cells[:count])
            drawn[name + how] = {cell: (sums.users, sums.vector.tolist()) for cell, sums in by_cell.items()}
    lines = [f"{json.dumps(name)}: {json.dumps(told)}" for name, told in drawn.items()]
    SUMS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    HELD.write({name: story() for name, story in STORIES.items()})


if __name__ == "__main__":
    write()
