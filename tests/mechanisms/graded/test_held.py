"""What mechanisms for graded numbers compute and draw, digit by digit: laws, margins, reports of a known seed.

Laws and samplers have independent tests of their own; here nothing may move.
python -m tests.mechanisms.graded.test_held writes anew.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from tests.held import Held
from tests.mechanisms.arrays import whole

import noisette as nz

HELD = Held(__file__)
EDGES, BUDGETS = (-1.0, 0.0, 0.4, 1.0, 3.0), (2.0, 1.0, 0.5, 1.5)
BUILD: dict[str, Callable[[], Any]] = {
    **{
        f"{make.name} {name}": partial(make, EDGES, BUDGETS, **options)
        for make in (nz.LevelledResponse, nz.GradedLaplace)
        for name, options in (("plain", {}), ("as published", {"as_published": True}))
    },
    "levelled for persons": partial(nz.LevelledResponse, EDGES, BUDGETS, personalised=True),
    "levelled at low budgets": partial(nz.LevelledResponse, (0, 20, 70, 100), (0.01, 0.02, 0.005)),
    "levelled of one": partial(nz.LevelledResponse, (0, 1), (1.0,)),
    "graded-laplace at low budgets": partial(nz.GradedLaplace, (0, 20, 70, 100), (0.1, 0.2, 0.05)),
    "graded-laplace of a small delta": partial(nz.GradedLaplace, EDGES, BUDGETS, delta=1e-9),
    **{
        f"{make.name} {rule} as published": partial(make, EDGES, BUDGETS, rule=rule, as_published=True)
        for make in (nz.LevelledResponse, nz.GradedLaplace)
        for rule in ("min", "mean", "max")
        if "rule" in make.__dataclass_fields__
    },
    "levelled for persons as published": partial(
        nz.LevelledResponse, EDGES, BUDGETS, personalised=True, as_published=True
    ),
    "graded-laplace at high budgets": partial(nz.GradedLaplace, (0, 20, 70, 100), (9.0, 12.0, 30.0)),
    "levelled at high budgets": partial(nz.LevelledResponse, (0, 20, 70, 100), (9.0, 12.0, 30.0)),
    **{
        f"optimal-graded {rule} {objective}": partial(
            nz.OptimalGraded, EDGES, BUDGETS, rule=rule, objective=objective, points=8
        )
        for rule, objective in (("min", "worst"), ("mean", "worst"), ("max", "average"))
    },
}


def inputs(made: Any) -> Any:
    """Return numbers of every level, edges included."""
    edges = np.asarray(made.edges, dtype=float)
    found = np.concatenate([edges, edges[:-1] + 0.3 * np.diff(edges)])
    if getattr(made, "personalised", False):
        return np.stack([found, np.arange(found.size) % len(made.epsilons)], axis=-1)
    return found


def story(name: str) -> list[Any]:
    return whole(BUILD[name], inputs(BUILD[name]()))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", BUILD)
def test_digits_are_the_ones_that_were_kept(name: str) -> None:
    HELD.check(name, story(name), exact="optimal" not in name)


if __name__ == "__main__":
    HELD.write({name: story(name) for name in BUILD})
