"""Margins for what float64 rounds, in units of its last place: samplers are exact because errors stay within them.

A bound that is a little too small passes every test by simulation. Each is held to more digits in the tests of its
folder; here none of them may move. python -m tests.mechanisms.test_margins writes anew.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from tests.held import Held

import noisette as nz
from noisette.mechanisms._reals import NormalBlock, draw_normals, interval_arithmetic
from noisette.mechanisms.tensor.gaussian import _sketches
from noisette.mechanisms.vector.caps.draws import LowSphere, Near, NormalTail, OnePoint, Proposal, Reaches, SphereTail

HELD = Held(__file__)
LAST = 2.0**53
UNIFORM = np.asarray([2.0**-53, 1e-9, 0.003, 0.2, 0.77, 1 - 2.0**-53])
PROPOSALS: dict[str, Proposal] = {
    "normal": NormalTail(1.3, 1.9),
    "sphere of 4": SphereTail(0.3, 2.0, 4),
    "sphere of 400": SphereTail(0.1, 60.0, 400),
    "circle": LowSphere(0.2, 2),
    "sphere of 3": LowSphere(0.4, 3),
    "point": OnePoint(),
}
MECHANISMS: dict[str, Callable[[], Any]] = {
    f"{cls.name} in {domain}": partial(cls, 2.0, domain=domain)
    for cls in (nz.PrivUnit, nz.PrivUnitG)
    for domain in (nz.Sphere(1), nz.Sphere(3), nz.Sphere(40, 2.5), nz.L2Ball(5, 2.0))
}


def last_places(values: Any) -> Any:
    """Return numbers in units of the last place of 1."""
    return np.asarray(values, dtype=float) * LAST


def proposed(name: str) -> list[Any]:
    """Return the errors of draws, of such a draw's chance, and of the chances of draws that are known badly."""
    own = PROPOSALS[name]
    with np.errstate(divide="ignore", invalid="ignore"):
        near = own.near(UNIFORM)
        found = [last_places(near.t_error), last_places(near.rest_error), last_places(own.log_chance(near)[1])]
        for error in (1e-3, 0.04):
            wide = Near(
                np.asarray([0.45, 0.7, 2.2]), np.full(3, error), np.asarray([0.8, 0.5, -3.8]), np.full(3, error)
            )
            found += list(own.log_chance(wide))
            if hasattr(own, "_rest"):
                found += list(own._rest(np.asarray([0.01, 0.3]), np.full(2, error)))
    return found


def mixed(name: str) -> list[Any]:
    """Return the factors of a report's two parts and what bounds the errors of its entries."""
    made = MECHANISMS[name]()
    totals = np.asarray([[1.0, 0.3, 5.0, 4.9], [4.0, -1.2, 44.0, 43.0], [1.0, 0.3, 1e-22, 1e-23]])
    reaches = Reaches(
        np.asarray([0.7, 0.3, 0.5]),
        np.asarray([3.0, 9.0, 1.0]) / LAST,
        np.asarray([0.51, 0.91, 0.75]),
        np.asarray([5.0, 2.0, 1e15]) / LAST,
        made.cap.proposal,
        np.asarray([0.2, 0.4, 0.6]),
        np.random.default_rng(1),
    )
    found: list[Any] = [last_places(made._rounding), made._size(totals[:, 2])]
    for plain in (np.zeros(3, dtype=bool), np.ones(3, dtype=bool)):
        own, others, share, most, reach, slope = made._mix(totals, reaches, plain)
        found += [own, others, last_places(share), most, reach, last_places(slope)]
    return found


def sketched() -> list[Any]:
    """Return the errors of factors, of roots of chi-square variables and of triangles."""
    found: list[Any] = []
    for matrix in ([[4]], [[9, 3], [3, 30]], [[10**9, 7, 5], [7, 10**8, -3], [5, -3, 44]]):
        value, error = _sketches.Factor(matrix).near()
        found += [value, last_places(error)]
    for degrees in (1, 2, 9, 400):
        roots = _sketches.Roots.draw(np.random.default_rng(3), 9, degrees)
        found += [roots.near, last_places(roots.error)]
    for columns, projections in ((3, 2), (2, 2), (3, 7)):
        drawn = _sketches.Triangles.draw(np.random.default_rng(4), 2, columns, projections)
        found += [drawn.near, last_places(drawn.error)]
    return found


def normals() -> list[Any]:
    """Return normal variables, and limits of their sizes with as many digits as are asked for."""
    block: NormalBlock = draw_normals(np.random.default_rng(5), 3, 4)
    found: list[Any] = [block.near]
    for row, precision in ((0, 128), (1, 192), (2, 320)):
        low, high, bits = block.row(row).sizes(interval_arithmetic(precision))
        found.append([[b - a for a, b in zip(low, high, strict=True)], bits])
    return found


STORIES: dict[str, Callable[[], Any]] = {
    **{f"proposed: {name}": partial(proposed, name) for name in PROPOSALS},
    **{f"mixed: {name}": partial(mixed, name) for name in MECHANISMS},
    "sketched": sketched,
    "normals": normals,
}


@pytest.mark.parametrize("name", STORIES)
def test_margins_are_the_ones_that_were_kept(name: str) -> None:
    HELD.check(name, STORIES[name]())


if __name__ == "__main__":
    HELD.write({name: story() for name, story in STORIES.items()})
