"""What `auto` promises, where only some dimensions are reported: the thesis's other way to collect."""

from __future__ import annotations

from typing import Any

import numpy as np

import noisette as nz
from experiments.frame import Advance, Study, remember
from experiments.ldptube import tables
from experiments.ldptube.enhancement import COLLECTIONS, Model, promises
from experiments.ldptube.tables import Table

_COLUMNS = ("data", "mechanism", "epsilon", "d", "m", "raw", "L1", "L2", "HDR4ME*", "auto")
_MECHANISMS = ("laplace", "piecewise", "hybrid")
_REAL = {"users": 4_000, "dims": 40, "report": 4, "epsilon": 4.0}


def sampled_dimensions(full: bool, advance: Advance) -> Study:
    """One or ten dimensions a user on the tables of figure 4.6, and the setting of figure 4.3."""
    if full:
        data = [tables.gaussian(100_000, 100), tables.poisson(150_000, 300), tables.uniform(120_000, 500)]
        data += [tables.acs(), tables.mnist()]
    else:
        data = [tables.gaussian(20_000, 100)]
    cases = [
        (table, name, epsilon, report)
        for table in data
        for name in _MECHANISMS
        for epsilon in (0.8, 3.2)
        for report in (1, 10)
    ]
    if full:
        wide = tables.uniform(200_000, 5_000)
        cases += [(wide, name, 1.0, 50) for name in _MECHANISMS]
    repeats = COLLECTIONS if full else 3
    rows = []
    for place, case in enumerate(cases):
        rows.append(_point(*case, repeats, [480 + place]))
        advance((place + 1) / (len(cases) + 1))
    return Study(
        "Sampled dimensions: mean squared error when users report m of d",
        "Nothing: the thesis enhances collections of all dimensions only.",
        f"Beside HDR4ME L1, L2 and star: {promises(rows, 5)} {_agreement(COLLECTIONS if full else 20)}",
        _COLUMNS,
        rows,
        {"collections": repeats, "users": {table.name: table.users for table in data} | _wide(full), "seed": 480},
    )


def _wide(full: bool) -> dict[str, int]:
    return {"Uniform with d = 5,000": 200_000} if full else {}


def _point(table: Table, name: str, epsilon: float, report: int, repeats: int, seed: list[int]) -> tuple[Any, ...]:
    model = Model.of(table, nz.CATALOGUE[name](epsilon=epsilon / report), report=report)
    case = (table.name, name, epsilon, table.dims, report)
    return (*case, *remember(case, lambda: model.errors(repeats, seed)))


def _agreement(repeats: int) -> str:
    """Set real collections, whose standard errors are estimated too, beside those drawn from the model."""
    table = tables.gaussian(_REAL["users"], _REAL["dims"])
    values = table.columns(range(table.dims))
    parts = []
    for name in _MECHANISMS:
        collector = nz.Sampled(name, epsilon=_REAL["epsilon"], dims=table.dims, report=_REAL["report"])
        model = Model.of(table, nz.CATALOGUE[name](epsilon=_REAL["epsilon"] / _REAL["report"]), report=_REAL["report"])
        rng = np.random.default_rng(490)
        real = []
        for _ in range(repeats):
            raw = collector.aggregate(collector.privatize(values, rng=rng)).estimate()
            real.append([model.error(raw), model.error(nz.enhance(raw))])
        drawn = model.errors(repeats, [491])
        ratios = np.mean(real, axis=0) / (drawn[0], drawn[-1])
        parts.append(f"{name} {ratios[0]:.3f} and {ratios[1]:.3f}")
    return (
        f"Real collections, {repeats} of them from {_REAL['users']:,} users of the Gaussian table who report "
        f"{_REAL['report']} of {_REAL['dims']} dimensions with epsilon {_REAL['epsilon']:g}, have errors, raw and "
        f"after `auto`, of so many times the model's: {'; '.join(parts)}."
    )
