"""Why intervals of quantiles hold more often than 95 %: none that holds whatever the distribution is much shorter.

An interval that holds at every distribution tests each value x at 5 %: x is left out with the power of that test, which
is at most that of the best test of one distribution with the quantile x against the true one (Neyman, Pearson). So its
mean length is at least the sum, over the cells that x may lie in, of their width times one less that power (Pratt
1961). Of normal estimates with a known covariance matrix both are known: the power is Phi(d - z) at the distance d.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import pytest
from scipy.optimize import nnls
from scipy.stats import beta, norm

import noisette as nz
from noisette._validate import FloatArray
from noisette.survey.coding.items import PLANNED, expected
from noisette.survey.estimation.comparing import QuantileDifference
from noisette.survey.estimation.hierarchy import CdfEstimate, CellLevels, agreed, tree
from noisette.survey.estimation.ratios import CellShares

ONE_SIDED = NormalDist().inv_cdf(0.95)
POPULATIONS: dict[str, Callable[[FloatArray], FloatArray]] = {
    "normal": lambda x: norm.cdf((x - 0.5) / 0.15),
    "moved": lambda x: norm.cdf((x - 0.55) / 0.15),
    "beta": lambda x: beta.cdf(x, 2, 5),
    "bimodal": lambda x: 0.5 * norm.cdf((x - 0.25) / 0.05) + 0.5 * norm.cdf((x - 0.7) / 0.1),
}


@dataclass(frozen=True)
class Known:
    """What a survey of so many people estimates: the true distribution function, and its covariance matrix."""

    number: nz.Number
    edges: FloatArray
    cdf: FloatArray
    spread: FloatArray
    users: int

    @classmethod
    def of(cls, population: str, epsilon: float, users: int, cells: int) -> Known:
        number = nz.Number("x", 0, 1, want="quantiles", cells=cells)
        (section,) = nz.Survey([number], epsilon=epsilon).sections
        (item,) = section.items
        assert isinstance(item, CellLevels)
        cdf = POPULATIONS[population](item.edges)
        cdf[[0, -1]] = 0.0, 1.0
        shares = np.diff(cdf)
        levels = [
            (one, CellShares.of(one, expected(one, shares.reshape(size, -1).sum(axis=1))))
            for one, size in zip(section.mechanism.inner_mechanisms, tree(cells), strict=True)
        ]
        _, spread, _ = agreed(levels, cells)
        return cls(number, item.edges, cdf, spread * (len(levels) * PLANNED / users), users)

    def collections(self, runs: int, seed: int) -> list[CdfEstimate]:
        """Draw what collections estimate."""
        inner = self.spread[1:-1, 1:-1]
        noise = np.random.default_rng(seed).multivariate_normal(np.zeros(len(inner)), inner, runs, method="cholesky")
        found = np.tile(self.cdf, (runs, 1))
        found[:, 1:-1] += noise
        return [CdfEstimate.of(self.number, self.edges, one, self.spread, self.users, None) for one in found]

    def distances(self, chance: float) -> FloatArray:
        """Return for each cell how far away a distribution is whose quantile lies in it: 0 in the true cell."""
        cells = self.edges.size - 1
        own = int(np.searchsorted(self.cdf, chance)) - 1
        ends = [cell + 1 if cell < own else cell for cell in range(cells)]
        return np.asarray([0.0 if cell == own else self._distance(end, chance) for cell, end in enumerate(ends)])

    def _distance(self, end: int, chance: float) -> float:
        """Formula: the least (F - F0)' S^-1 (F - F0) over distributions F0 with F0(end) = chance."""
        cells = self.edges.size - 1
        root = np.linalg.cholesky(np.linalg.inv(self.spread[1:-1, 1:-1])).T
        summed = np.tril(np.ones((cells - 1, cells)))
        heavy = 1e4 * np.abs(root).max()  # so that its shares add up to 1, and to the chance before the end
        rows = [root @ summed, heavy * np.ones((1, cells)), heavy * (np.arange(cells) < end)[None].astype(float)]
        wanted = np.concatenate([root @ self.cdf[1:-1], [heavy, heavy * chance]])
        shares, _ = nnls(np.concatenate(rows), wanted, maxiter=50 * cells)
        assert abs(shares.sum() - 1) < 1e-5
        assert abs(shares[:end].sum() - chance) < 1e-5
        return float(np.linalg.norm(root @ (summed @ shares - self.cdf[1:-1])))


def left_out(distance: FloatArray) -> FloatArray:
    """Return with which chance an interval that holds leaves a value out, at most."""
    return np.asarray(norm.cdf(distance - ONE_SIDED))


@pytest.mark.parametrize(
    ("population", "epsilon", "users", "cells", "chance"),
    [
        ("normal", 2.0, 2_000, 64, 0.25),
        ("normal", 2.0, 20_000, 64, 0.49),
        ("normal", 8.0, 100_000, 64, 0.25),
        ("normal", 2.0, 5_000, 16, 0.25),
        ("beta", 1.0, 6_000, 64, 0.05),
        ("bimodal", 1.0, 6_000, 64, 0.25),
    ],
)
@pytest.mark.long
def test_no_interval_of_a_quantile_that_holds_is_much_shorter(
    population: str, epsilon: float, users: int, cells: int, chance: float
) -> None:
    """Ours is at most 1.3 times as long as any could be. Twin: at a level of 50 % it is shorter than that, and fails.

    300 collections: an interval that held in 99 % of them would hold in 95 % or fewer by chance once in 10^5, with a
    fixed seed.
    """
    known = Known.of(population, epsilon, users, cells)
    least = float((1 - left_out(known.distances(chance))).sum() / cells)
    own = int(np.searchsorted(known.cdf, chance)) - 1
    found = known.collections(300, 5)
    intervals, short = (np.asarray([one.quantile_interval(chance, level) for one in found]) for level in (0.95, 0.5))

    def held(ends: FloatArray) -> float:
        return float(((ends[:, 0] <= known.edges[own]) & (known.edges[own + 1] <= ends[:, 1])).mean())

    length = float(np.diff(intervals).mean())
    assert least * 0.999 < length < 1.3 * least
    assert held(intervals) > 0.95
    if math.isclose(length, 1 / cells):  # one cell alone: reports are the same wherever in it the quantile is
        assert least == pytest.approx(0.95 / cells)
    if least > 3 / cells:  # of many cells
        assert float(np.diff(short).mean()) < least
        assert held(short) < 0.93


def test_reports_do_not_tell_where_in_a_cell_people_are() -> None:
    """So whatever is made of them holds for both of two values or misses both alike, but by its own length."""
    survey = nz.Survey([nz.Number("x", 0, 1, want="quantiles")], epsilon=1.0)
    left, right = 32 / 64, np.nextafter(33 / 64, 0)
    both = [survey.privatize({"x": np.full(500, value)}, rng=3).rows for value in (left, right)]
    assert np.array_equal(both[0], both[1])
    assert not np.array_equal(both[0], survey.privatize({"x": np.full(500, 33 / 64)}, rng=3).rows)


@pytest.mark.parametrize(("epsilon", "users", "cells", "most"), [(2.0, 20_000, 64, 1.25), (1.0, 3_000, 16, 1.25)])
@pytest.mark.long
def test_no_interval_of_a_difference_of_medians_that_holds_is_much_shorter(
    epsilon: float, users: int, cells: int, most: float
) -> None:
    """The distance of a difference is that of the nearest pair of cells which allows it; 200 collections."""
    arms = [Known.of(name, epsilon, users, cells) for name in ("normal", "moved")]
    first, second = (one.distances(0.5) for one in arms)
    far = np.hypot(first[:, None], second)
    least, step = 0.0, 0.1
    for gap in np.arange(step / 2 - cells, cells, step):  # in cells
        nearest = min(np.diagonal(far, math.floor(gap) + more).min(initial=math.inf) for more in (0, 1))
        least += step / cells * float(1 - left_out(np.asarray(nearest)))
    pairs = zip(*(one.collections(200, 7 + place) for place, one in enumerate(arms)), strict=True)
    ends = np.asarray([QuantileDifference.of(one, two, 0.5).interval(0.05, ()) for one, two in pairs])
    assert least < float(np.diff(ends).mean()) < most * least
    assert ((ends[:, 0] <= 0.05) & (ends[:, 1] >= 0.05)).mean() > 0.97
