"""What mechanisms, aggregates and seeds refuse, each with the reason."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import noisette as nz
from noisette.core import add_sums
from noisette.mechanisms.geometric.spherical import from_spherical

REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a negative seed": (lambda: nz.Laplace(1.0).privatize(0.0, rng=-1), "rng=-1 >= 0"),
    "an interval as wide as all numbers": (lambda: nz.Laplace(1.0, domain=nz.Interval(-1e305, 1e305)), "rescale"),
    "an interval of no width to speak of": (lambda: nz.Laplace(1.0, domain=nz.Interval(0, 1e-305)), "rescale"),
    "categories from an interval": (
        lambda: nz.GeneralizedRandomizedResponse(1.0, domain=nz.Interval()),
        "to be Categorical",
    ),
    "a ball for a box": (lambda: nz.DuchiBox(1.0, domain=nz.L2Ball(3)), "to be a"),
    "a huge ball": (lambda: nz.PrivUnitG(1.0, domain=nz.L2Ball(3, radius=1e120)), r"radius=1e\+120 in"),
    "a tiny ball": (lambda: nz.PrivUnitG(1.0, domain=nz.L2Ball(3, radius=1e-120)), "radius=1e-120 in"),
    "angles in a huge ball": (lambda: nz.AngleNoise(1.0, domain=nz.L2Ball(3, radius=1e120)), r"radius=1e\+120 in"),
    "angles in a tiny ball": (lambda: nz.AngleNoise(1.0, domain=nz.L2Ball(3, radius=1e-120)), "radius=1e-120 in"),
    "an angle that is not finite": (lambda: from_spherical(1.0, [0.5, math.nan]), "finite angles"),
    "sums of other lengths": (lambda: add_sums(np.zeros(2, int), np.zeros(3, int)), "sums of shape"),
    "sums that overflow": (lambda: add_sums(np.array([2**62]), np.array([2**62])), "no longer fit 64 bits"),
    "sums that overflow downwards": (lambda: add_sums(np.array([-(2**63)]), np.array([-1])), "no longer fit 64 bits"),
}


@pytest.mark.parametrize(("made", "words"), REFUSED.values(), ids=REFUSED)
def test_refused(made: Callable[[], Any], words: str) -> None:
    with pytest.raises((ValueError, TypeError, OverflowError), match=words):
        made()


def test_sums_just_within_64_bits_are_added() -> None:
    assert add_sums(np.array([2**62, -(2**62)]), np.array([2**62 - 1, -(2**62)])).tolist() == [2**63 - 1, -(2**63)]


def test_aggregates_that_do_not_belong_together() -> None:
    one = nz.Laplace(1.0).aggregate(np.asarray(nz.Laplace(1.0).privatize(np.zeros(4), rng=1)))
    with pytest.raises(TypeError, match="Expected an Aggregate"):
        one.merge(3)
    with pytest.raises(ValueError, match="same dimension names"):
        one.merge(dataclasses.replace(one, names=("age",)))
    other = nz.Laplace(2.0).aggregate(np.asarray(nz.Laplace(2.0).privatize(np.zeros(4), rng=1)))
    with pytest.raises(ValueError, match="Expected"):
        one.merge(other)


GRADED: dict[str, tuple[Callable[[], Any], str]] = {
    "an unknown rule": (lambda: nz.OptimalGraded((0, 0.5, 1), (1.0, 2.0), rule="worst"), "rule='worst'"),
    "a budget too small for the programme": (lambda: nz.OptimalGraded((0, 0.5, 1), (1e-6, 2.0)), "of at least"),
    "too many levels": (lambda: nz.LevelledResponse(np.linspace(0, 1, 3000), [1.0] * 2999), "at most"),
    "levels as wide as all numbers": (lambda: nz.LevelledResponse((-1e305, 0, 1e305), (1.0, 2.0)), "rescale"),
    "a negative budget": (lambda: nz.LevelledResponse((0, 0.5, 1), (1.0, -2.0)), "epsilon"),
}


@pytest.mark.parametrize(("made", "words"), GRADED.values(), ids=GRADED)
def test_levels_that_are_refused(made: Callable[[], Any], words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        made()


@pytest.mark.parametrize("level", [-1.0, 2.0, 0.5, math.nan])
def test_a_level_that_is_none_is_refused_among_others(level: float) -> None:
    mechanism = nz.LevelledResponse((0, 0.5, 1), (1.0, 2.0), personalised=True)
    rows = np.asarray([[0.2, 0.0], [0.9, 1.0], [0.4, 1.0]])
    mechanism.privatize(rows, rng=1)
    rows[1, 1] = level
    with pytest.raises(ValueError, match="Expected"):
        mechanism.privatize(rows, rng=1)
