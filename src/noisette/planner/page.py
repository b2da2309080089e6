"""The planner page: laws of the mechanisms, what is known of the true values, and a script that joins the two."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from importlib.resources import files
from string import Template
from typing import Any

import numpy as np

from noisette import _validate
from noisette._look import style
from noisette._terminal import HALF_WIDTH_95
from noisette.domains import Domain, Interval
from noisette.planner.tables import law, others
from noisette.prediction.model import populations
from noisette.prediction.model.populations import Population
from noisette.prediction.offers import compared

LEAST, LARGEST = 1e-3, 20.0  # budgets that a page can be made for
_SLIDER = 0.05  # lowest budget on the slider, unless the plan is for a lower one
_DIMS = 10_000  # most dimensions on the slider, unless the plan is for more


def page(
    *,
    users: int,
    epsilon: float,
    delta: float = 0.0,
    dims: int = 1,
    domain: Domain | None = None,
    report: int | None = None,
    mechanisms: Sequence[str] | None = None,
    values: Any = None,
    probs: Any = None,
    distribution: str | None = None,
    target_mse: float | None = None,
    on_progress: Callable[[float], None] = lambda share: None,
) -> str:
    """Return a web page on which users, dimensions, budget, reports, mechanisms and population can be changed.

    The arguments are those of `noisette.prediction.plan`, where the page starts; without ``target_mse`` the error
    wanted is a fiftieth of the range. It shows mechanisms with a pure guarantee for numbers, those on whole vectors at
    ``dims`` dimensions only, and names those that it leaves out.

    *Utility*: the page computes what `plan` does, from polynomials in the log of the budget that are fitted to the
    exact moments of one report. Their error is measured for each mechanism and printed on the page: at most 1e-9,
    relative, but for mechanisms that are rougher than that themselves or take long to build.

    >>> text = page(users=1000, epsilon=1.0, mechanisms=["laplace", "duchi"])
    >>> text.startswith("<!doctype html>"), "http:" in text, "https:" in text
    (True, False, False)
    """
    users, dims = _validate.integer(users, "users", low=1), _validate.integer(dims, "dims", low=1)
    epsilon, delta = _validate.epsilon(epsilon), _validate.delta(delta)
    if target_mse is not None:
        target_mse = _validate.positive(target_mse, "target_mse")
    if report is not None:
        report = _validate.integer(report, "report", low=1, high=dims)
    if not LEAST <= epsilon <= LARGEST:
        raise ValueError(f"Expected epsilon={epsilon:g} from {LEAST:g} to {LARGEST:g} for a page. Plan without one.")
    interval = Interval() if domain is None else domain
    if not isinstance(interval, Interval):
        raise ValueError(f"Expected numbers on an interval for a page, got {interval}. Plan frequencies without one.")
    own = populations.known(values, probs, distribution, interval, dims=dims)
    most = max(dims, _DIMS)
    names = compared() if mechanisms is None else list(dict.fromkeys(mechanisms))
    found = []
    for done, name in enumerate(names):
        on_progress(done / len(names))
        fitted = law(name, low=min(epsilon, _SLIDER), high=LARGEST, dims=dims, most=most, domain=interval)
        if fitted is not None:
            found.append(fitted)
        elif mechanisms is not None:
            raise ValueError(
                f"Mechanism {name!r} cannot be on the page: it shows those for dims={dims} numbers with a pure "
                "guarantee. Plan without a page."
            )
    shown = {fitted.name for fitted in found}
    absent = [] if mechanisms is not None else others(shown, dims=dims, delta=delta, domain=interval)
    data = {
        "start": {
            "users": users,
            "dims": dims,
            "report": report,
            "epsilon": epsilon,
            "population": "worst" if own is None else "own",
            "target": interval.diameter / 50 if target_mse is None else HALF_WIDTH_95 * math.sqrt(target_mse),
        },
        "limits": {"epsilon": [min(epsilon, _SLIDER), LARGEST], "dims": [1, most]},
        "domain": {"low": interval.low, "high": interval.high},
        "others": absent,
        "laws": [fitted.to_dict() for fitted in found],
        "populations": _populations(own, interval, distribution),
    }
    parts = {name: _asset(name) for name in ("planner.css", "model.js", "page.js")}
    return Template(_asset("template.html")).substitute(
        style=style() + parts["planner.css"],
        script=parts["model.js"] + parts["page.js"],
        data=json.dumps(data, allow_nan=False).replace("<", "\\u003c"),
    )


def _asset(name: str) -> str:
    return files("noisette.planner").joinpath(name).read_text(encoding="utf-8")


def _populations(own: Population | None, domain: Interval, distribution: str | None) -> list[dict[str, Any]]:
    """Describe what the true values may be like, by what an error depends on; ``option`` is for the command line."""
    unit = Interval()
    common, rare = (_summary(populations.named(f"gaussian:{mean},0.0625", unit), unit) for mean in (0.0, 0.9))
    counts = [_summary(populations.named("poisson", unit, dims=dims), unit) for dims in range(1, 100)]
    uniform, beta = (_summary(populations.named(name, unit), unit) for name in ("uniform", "beta"))
    described: list[dict[str, Any]] = [
        {"name": "worst", "label": "Unknown: worst case", "hint": "Holds whatever the values are."},
        {"name": "uniform", "label": "Uniform", "hint": "Every value of the range alike.", "fixed": uniform},
        {
            "name": "gaussian",
            "label": "Gaussian",
            "hint": "Near the middle of the range; every tenth number near its upper end.",
            "fixed": common,
            "tenth": rare,
        },
        {
            "name": "poisson",
            "label": "Poisson",
            "hint": "Counts with rates from 1 to 99; the range ends at the count that one in a million exceeds.",
            "rows": counts,
        },
        {"name": "beta", "label": "Beta(2, 5)", "hint": "Mostly low, with a long tail of high values.", "fixed": beta},
    ]
    if own is not None:
        label = "your values" if distribution is None else distribution
        option = "--values ..." if distribution is None else f"--distribution {distribution}"
        hint = "What was given when the page was made."
        entry = {"name": "own", "label": f"Given: {label}", "hint": hint, "option": option}
        described.insert(1, entry | {"fixed": _summary(own, domain)})
    return described


def _summary(population: Population, domain: Interval) -> list[float]:
    """Return mean, squared mean and mean square on [-1, 1], averaged over the dimensions."""
    points = np.clip(domain.to_canonical(population.points), -1, 1)
    means, squares = population.weights @ points, population.weights @ points**2
    return [float(population.shares @ average) for average in (means, means**2, squares)]
