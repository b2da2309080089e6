"""Distribution functions by hand: cells, quantiles, shares between values, and least squares with a constraint."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import noisette as nz
from noisette.survey import choosing
from noisette.survey.choosing import _PLACED, _populations
from noisette.survey.estimation.hierarchy import (
    _SURE,
    CdfEstimate,
    CellLevels,
    Spread,
    _cell_scores,
    _even_variance,
    _matrix,
    agreed,
    tree,
)
from noisette.survey.estimation.ratios import CellShares, Supports

Z = NormalDist().inv_cdf(0.975)
SUPPORTS = Supports(0.0, 1.0, 1, 1)


def estimate(whole: bool = False, error: float = 0.02) -> CdfEstimate:
    """Four cells of a number from 0 to 8, or of whole numbers from 0 to 7, and a known function at their ends."""
    number = nz.Number("n", 0, 7 if whole else 8, want="quantiles", whole=whole)
    cdf = np.asarray([0.0, 0.1, 0.4, 0.9, 1.0])
    spread = np.diag([0.0, error**2, 4 * error**2, error**2, 0.0])
    spread[1, 2] = spread[2, 1] = error**2 / 2
    return CdfEstimate.of(number, np.asarray([0.0, 2.0, 4.0, 6.0, 8.0]), cdf, spread, 500, None)


def test_levels_of_a_tree_are_powers_of_four() -> None:
    assert [tree(4), tree(16), tree(64)] == [(4,), (4, 16), (4, 16, 64)]


def test_quantiles_are_read_along_lines() -> None:
    found = estimate()
    assert found.quantile(0.1) == pytest.approx(2.0, abs=1e-9)
    assert found.quantile(0.25) == pytest.approx(3.0, abs=1e-9)
    assert found.quantile(0.65) == pytest.approx(5.0, abs=1e-9)
    assert np.allclose(found.value, [1.0, 3.0, 4.4, 5.4, 7.0], atol=1e-8)
    assert found.count.tolist() == [500] * 5
    assert np.allclose(found.error, [0, 0.02, 0.04, 0.02, 0])
    whole = estimate(whole=True)
    assert [whole.quantile(chance) for chance in (0.06, 0.26, 0.5, 0.76, 0.96)] == [1, 3, 4, 5, 7]
    unordered = replace(found, cdf=np.asarray([0.0, 0.4, 0.1, 1.2, 1.0]))
    assert unordered.rising.tolist() == [0.0, 0.1, 0.4, 1.0, 1.0]
    mixed = found.again(found.covariance, 7, (found, unordered), np.asarray([0.75, 0.25]), np.zeros(5))
    assert mixed.cdf == pytest.approx(0.75 * found.cdf + 0.25 * unordered.cdf)
    assert mixed.count.tolist() == [7] * 5


@pytest.mark.parametrize("start", [0, 10**7])
def test_quantiles_of_whole_numbers_are_those_of_numpy(start: int) -> None:
    """20 people in four cells of two numbers each, where the function meets many chances, far from zero too."""
    people = start + np.asarray([0] + [1] + [2, 3] * 3 + [4, 5] * 5 + [6, 7])
    number = nz.Number("n", start, start + 7, want="quantiles", whole=True)
    edges = start + np.asarray([0.0, 2.0, 4.0, 6.0, 8.0])
    cdf = np.asarray([0.0, 0.1, 0.4, 0.9, 1.0])
    found = CdfEstimate.of(number, edges, cdf, np.zeros((5, 5)), 20, None)
    for share in range(1, 100):  # of which every fifth is met
        wanted = np.quantile(people, share / 100, method="inverted_cdf")
        assert found.quantile(share / 100) == wanted, share
    assert found.quantile(0.0) == start
    assert found.quantile(1.0) == start + 7


def test_intervals_keep_the_cells_that_are_not_rejected() -> None:
    """F(s) - z sd(s) < chance <= F(t) + z sd(t): written out for the median and for a chance beside an end.

    No cell that matters is so small that z is above 1.7.
    """
    found = estimate()
    assert found.quantile_interval(0.5, 0.95) == (4.0, 6.0)  # F(4) = 0.4 is 2.5 errors below
    assert found.quantile_interval(0.45, 0.95) == (2.0, 6.0)  # and only 1.25 errors here
    assert found.quantile_interval(0.12, 0.95) == (0.0, 4.0)
    assert estimate(whole=True).quantile_interval(0.45, 0.95) == (2.0, 5.0)  # whole numbers end before the next cell
    low, high = found.interval(0.95)
    assert (low[2], high[2]) == (4.0, 6.0)
    for wrong in (0.0, 1.0):
        with pytest.raises(ValueError, match="level="):
            found.interval(wrong)
    blind = estimate(error=math.inf)
    assert np.isnan(blind.value).all()
    assert np.isinf(blind.std_error).all()
    assert blind.quantile_interval(0.5, 0.95) == (0.0, 8.0)
    # the standard error is half of the interval of 68 %
    ends = [found.quantile_interval(0.5, 0.6827)]
    assert found.std_error[2] == (ends[0][1] - ends[0][0]) / 2


@pytest.mark.long
def test_a_quantile_is_missed_as_seldom_as_stated() -> None:
    """Normal estimates at both ends of its cell, of all correlations, shares and places: 5 % at most. Twin: without
    taking anything off an estimated share it is more. 200,000 draws: false alarm below 1e-6 at 5.3 % for 24 cases."""
    one, two = np.random.default_rng(3).standard_normal((2, 200_000))
    grid = np.linspace(0, 12, 2001)
    scores = _cell_scores(grid, np.ones(grid.size), 0.95)

    def missed(sure: float) -> float:
        found = []
        for alike in (0.5, 0.9, 0.98, 0.995):
            other = alike * one + math.sqrt(1 - alike**2) * two
            for share, below in [(0.0, 0.0), (0.3, 0.0), (1.0, 0.0), (1.0, 0.5), (3.0, 0.0), (3.0, 1.0)]:
                told = share + other - one - sure * math.sqrt(2 - 2 * alike)
                score = np.interp(np.maximum(told, 0.0), grid, scores)
                found.append(((one - below * share > score) | (other + (1 - below) * share < -score)).mean())
        return float(max(found))

    assert missed(_SURE) < 0.053 < missed(0.0)


def test_what_speaks_against_each_cell() -> None:
    low, high, score = estimate().quantile_cells(0.5)
    assert low.tolist() == [0.0, 2.0, 4.0, 6.0]
    assert high.tolist() == [2.0, 4.0, 6.0, 8.0]
    # cell by cell the worse of (F(s) - 0.5) / sd(s) and (0.5 - F(t)) / sd(t)
    assert score == pytest.approx([20.0, 2.5, 0.0, 20.0])
    assert estimate(whole=True).quantile_cells(0.5)[1].tolist() == [1.0, 3.0, 5.0, 7.0]


def test_bins_of_a_range() -> None:
    assert estimate().bins(4).tolist() == [0, 2, 4, 6, 8]
    assert estimate().bins(3).tolist() == pytest.approx([0, 8 / 3, 16 / 3, 8])
    assert estimate(whole=True).bins(4).tolist() == [0, 2, 4, 6, 8]
    assert estimate(whole=True).bins(2).tolist() == [0, 4, 8]
    assert estimate(whole=True).bins(9).tolist() == [0, 2, 4, 6, 8]


def test_the_share_of_people_between_two_values() -> None:
    found = estimate()
    value, low, high = found.between(2.0, 4.0, 0.95)
    error = math.sqrt(0.02**2 + 0.04**2 - 0.02**2)  # variances less twice the covariance
    assert (value, low, high) == pytest.approx((0.3, 0.3 - Z * error, 0.3 + Z * error))
    value, low, high = found.between(1.0, 5.0, 0.95)  # both ends cut a cell
    assert value == pytest.approx(0.65 - 0.05)
    assert low == pytest.approx(0.3 - Z * error)  # the whole cells within
    assert high == pytest.approx(0.9 + Z * 0.02)  # all that is touched
    assert found.between(2.5, 3.5, 0.95)[1] == 0.0
    assert found.between(0.0, 8.0, 0.95) == pytest.approx((1.0, 1.0, 1.0))
    assert found.between(-5.0, 20.0, 0.95) == pytest.approx((1.0, 1.0, 1.0))
    assert estimate(error=math.inf).between(2.0, 4.0, 0.95)[1:] == (0.0, 1.0)
    for low_end, high_end in ((4.0, 4.0), (5.0, 4.0)):
        with pytest.raises(ValueError, match="Expected low"):
            found.between(low_end, high_end, 0.95)


def mechanism(own: float, other: float) -> Any:
    """What a level weighs by: the variances of a report about one's own cell and about another."""
    return SimpleNamespace(moments=lambda x: SimpleNamespace(variance=np.asarray([own, other, other])))


@pytest.mark.parametrize("used", [16, 11])
def test_levels_agree_by_least_squares_under_one_constraint(used: int) -> None:
    """The same by Lagrange's equations: cells that add up to one, from four and sixteen estimated shares."""
    rng = np.random.default_rng(1)
    levels = []
    for size, users, variances in ((4, 300, (2.0, 1.0)), (16, 700, (3.0, 2.0))):
        shares = rng.dirichlet(np.ones(size)) + rng.normal(0, 0.02, size)
        levels.append((mechanism(*variances), CellShares(users, shares, np.full(size, 0.001), -0.1, 0.05, SUPPORTS)))
    value, spread, _ = agreed(levels, used)
    design = np.concatenate([np.repeat(np.eye(4), 4, axis=1), np.eye(16)])[:, :used]
    weights = np.concatenate([np.full(4, 300 / (2 / 4 + 1 * 3 / 4)), np.full(16, 700 / (3 / 16 + 2 * 15 / 16))])
    assert _even_variance(levels[0][0], 4) == pytest.approx(2 / 4 + 3 / 4)
    seen = np.concatenate([own.value for _, own in levels])
    left = np.zeros((used + 1, used + 1))
    left[:used, :used] = design.T @ (weights[:, None] * design)
    left[used, :used] = left[:used, used] = 1
    solved = np.linalg.solve(left, np.append(design.T @ (weights * seen), 1.0))[:used]
    assert solved.sum() == pytest.approx(1)
    assert np.allclose(value[:used], np.concatenate([[0.0], np.cumsum(solved)[:-1]]), atol=1e-9)
    assert np.all(value[used:] == 1)
    assert not spread[used:].any()
    covariance = np.zeros((20, 20))
    covariance[:4, :4], covariance[4:, 4:] = _matrix(levels[0][1]), _matrix(levels[1][1])
    linear = np.linalg.inv(left)[:used, :used] @ (design.T * weights)
    sums = np.tril(np.ones((used, used))) @ linear
    assert np.allclose(spread[1:used, 1:used], (sums @ covariance @ sums.T)[:-1, :-1], atol=1e-9)
    few = [
        (
            levels[0][0],
            CellShares(1, *(getattr(levels[0][1], n) for n in ("value", "variance", "mixed", "others", "supports"))),
        )
    ]
    flat, unknown, _ = agreed([*few, levels[1]], used)
    assert np.allclose(flat, np.linspace(0, 1, 17))
    assert np.isinf(unknown).all()


def test_the_matrix_of_a_level_is_that_of_its_cells() -> None:
    cells = CellShares(40, np.asarray([0.5, 0.3, 0.2]), np.asarray([0.01, 0.02, 0.03]), -0.2, 0.15, SUPPORTS)
    eye = np.eye(3)
    wanted = [[float(cells.covariance(eye[i], eye[j])) for j in range(3)] for i in range(3)]
    assert np.allclose(_matrix(cells), wanted, rtol=1e-12)


def test_cells_of_numbers_and_of_whole_numbers() -> None:
    plain = CellLevels(nz.Number("n", 0, 8, want="quantiles"))
    assert np.allclose(plain.edges, np.linspace(0, 8, 65))
    assert plain.used == 64
    coded = plain.coded({"n": np.asarray([0.0, 0.125, 7.99, 8.0, 3.0])}, np.random.default_rng(1))
    assert coded.tolist() == [[0, 0, 0], [0, 0, 1], [3, 15, 63], [3, 15, 63], [1, 6, 24]]
    whole = CellLevels(nz.Number("n", 0, 9, whole=True, want="quantiles"))
    assert np.array_equal(whole.edges, np.arange(17.0))  # ten numbers: sixteen cells, of which ten are used
    assert whole.used == 10
    many = CellLevels(nz.Number("n", 1, 100, whole=True, want="quantiles"))
    assert np.array_equal(many.edges, 1 + 2 * np.arange(65.0))  # two numbers a cell
    assert many.used == 50
    few = CellLevels(nz.Number("n", 0, 3, whole=True, want="quantiles"))
    assert np.array_equal(few.edges, np.arange(5.0))
    assert few.used == 4
    fine = CellLevels(nz.Number("n", 0, 8, want="quantiles", cells=256))
    assert np.allclose(fine.edges, np.linspace(0, 8, 257))
    assert fine.coded({"n": np.asarray([0.04, 8.0])}, np.random.default_rng(1)).tolist() == [
        [0, 0, 0, 1],
        [3, 15, 63, 255],
    ]
    assert CellLevels(nz.Number("n", 0, 99, whole=True, want="quantiles", cells=16)).edges.tolist() == [
        *range(0, 113, 7)
    ]
    assert few.cells == ("n#4.0", "n#4.1", "n#4.2", "n#4.3")


def test_mean_and_variance_from_a_number_and_its_square() -> None:
    """In units of half the range about the middle, with the noise of the squared mean taken off."""
    item = Spread(nz.Number("n", 10, 30, want="variance"))
    coded = item.coded({"n": np.asarray([10.0, 20.0, 25.0, 30.0])}, np.random.default_rng(1))
    assert coded.tolist() == [[-1, 1], [0, 0], [0.5, 0.25], [1, 1]]
    found = item._told(np.asarray([0.5, 0.4]), np.asarray([0.01, 0.02]), np.asarray([40, 60]))
    assert found.value == pytest.approx([20 + 10 * 0.5, 100 * (0.4 - 0.25 + 0.01)])
    assert found.std_error[0] == pytest.approx(10 * 0.1)
    assert found.std_error[1] == pytest.approx(100 * math.sqrt(0.02 + 4 * 0.25 * 0.01 + 2 * 0.0001))
    assert found.count.tolist() == [40, 100]
    assert np.asarray(found.low).tolist() == [10, 0]
    assert np.asarray(found.high).tolist() == [30, 100]
    unknown = item._told(np.asarray([0.5, 0.4]), np.asarray([np.nan, 0.02]), np.asarray([1, 1]))
    assert np.isinf(unknown.std_error).all()


def test_populations_are_beta_laws() -> None:
    """Means and sizes: the mean of each row of shares is near that of its law, and rows add up to one."""
    people = _populations()
    assert people.shape == (15, _PLACED.size)
    assert np.allclose(people.sum(axis=1), 1)
    means = people @ _PLACED
    wanted = np.repeat([0.03, 0.1, 0.2, 0.35, 0.5], 3)
    assert np.allclose(means[6:], wanted[6:], atol=0.03)
    spread = people @ _PLACED**2 - means**2
    sizes = np.tile([2.0, 8.0, 30.0], 5)
    assert np.allclose(spread[6:], (wanted * (1 - wanted) / (sizes + 1))[6:], rtol=0.1)


def test_the_fairest_candidate_is_never_far_from_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each the largest ratio to the least error over all populations: written out for three curves."""
    even, ends = np.full(_PLACED.size, 2.0), np.where(_PLACED < 0.2, 8.0, 1.0)
    middle = np.where(_PLACED < 0.2, 1.5, 3.2)
    curves = {"even": (even, 1.0), "ends": (ends, 1.0), "middle": (middle, 1.0)}
    monkeypatch.setattr(choosing, "_curve", lambda one: curves[one])
    errors = np.asarray([_populations() @ curve for curve, _ in curves.values()])
    worst = (errors / errors.min(axis=0)).max(axis=1)
    names: Any = list(curves)
    fairest: Any = choosing.fairest
    assert fairest(names) == names[int(np.argmin(worst))] == "even"
    assert worst[1] > worst[0] < worst[2]
    # a mechanism by which one person in four reports has four times the error, and the spread of the truths three times
    curves["ends"] = (ends / 100, 4.0)
    spread = _populations() @ _PLACED**2 - (_populations() @ _PLACED) ** 2
    errors[1] = 4 * (_populations() @ ends / 100) + 3 * spread
    worst = (errors / errors.min(axis=0)).max(axis=1)
    assert fairest(names) == names[int(np.argmin(worst))]
    assert fairest(names[:1]) == "even"
    curves["ends"] = None  # type: ignore[assignment]
    assert fairest(names) == "even"  # what does not depend on such laws keeps its order
