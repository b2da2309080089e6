"""Correlations, spreads and distribution functions of several parts: each interval again by plain loops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import noisette as nz
from noisette._bounded import bounded_interval
from noisette.core import Estimate
from noisette.survey.coding.joints import Joint
from noisette.survey.estimation.hierarchy import CdfEstimate, CdfSlopes, CellLevels, Spread, SpreadEstimate
from noisette.survey.estimation.ratios import (
    BoundedEstimate,
    CellShares,
    CorrelationEstimate,
    RatioEstimate,
    Supports,
    fieller,
)

SIGNS = np.asarray([[-1.0, -1, 1, 1], [-1, 1, -1, 1]])
CELLS = CellShares(
    400,
    np.asarray([0.4, 0.1, 0.2, 0.3]),
    np.asarray([0.0011, 0.0007, 0.0009, 0.001]),
    -0.11,
    0.04,
    Supports(-0.3, 1.6, 1, 2),
)
SLOPES = np.asarray([[0.9, -1.1, -0.8, 1.0], [0.3, -0.2, 0.1, 0.4], [-0.5, 0.2, 0.1, -0.3]])
SQUARES = Estimate(
    np.asarray([0.4, 0.1, 0.2, 0.3, 0.6, 0.5]), np.asarray([0.0] * 4 + [0.03, 0.05]), np.full(6, 350), 0.0, 1.0
)
MATRIX = np.asarray([[0.0020, 0.0003, -0.0002], [0.0003, 0.0030, 0.0001], [-0.0002, 0.0001, 0.0025]])


def correlation(**changes: Any) -> CorrelationEstimate:
    told: dict[str, Any] = {"moments": np.asarray([0.2, 0.5, 0.4]), "spread": MATRIX, "size": 3.0} | changes
    ends = np.asarray([1.0, 3.0])
    return CorrelationEstimate(np.asarray([0.4, 0.6]), np.asarray([0.1, 0.2]), np.full(2, 400), -ends, ends, **told)


def test_fewer_than_two_people_have_no_covariance() -> None:
    """The formula in people n: divided by n - 1, and unknown for one."""
    weights = np.asarray([[1.0, 0, 0, 0], [1.0, 2.0, -1.0, 0.5]])
    for users in (2, 3, 400):
        cells = CellShares(
            users, *(getattr(CELLS, name) for name in ("value", "variance", "mixed", "others", "supports"))
        )
        found = cells.covariance(weights, weights[::-1])
        for row, (first, second) in enumerate(zip(weights, weights[::-1], strict=True)):
            wanted = 0.0
            for i in range(4):
                for j in range(4):
                    f, g = cells.value[i], cells.value[j]
                    pair = (cells.others + (cells.mixed - cells.others) * (f + g) - f * g) / (users - 1)
                    wanted += first[i] * second[j] * (cells.variance[i] if i == j else pair)
            assert found[row] == pytest.approx(wanted)
    one = CellShares(1, *(getattr(CELLS, name) for name in ("value", "variance", "mixed", "others", "supports")))
    assert one.covariance(weights, weights).tolist() == [math.inf, math.inf]
    assert one.covariance(weights[0], weights[1]).shape == ()
    assert np.isinf(one.among(1, ("a", "b", "c")).spread[1]).all()


def test_the_distance_of_a_correlation_is_the_least_over_variances() -> None:
    found = correlation()
    inverse = np.linalg.inv(MATRIX)
    steps = [-4.5 + 0.2 * place for place in range(46)]
    variances = [
        [max(0.0, moment + math.sqrt(MATRIX[place, place]) * step) for step in steps]
        for place, moment in ((1, 0.5), (2, 0.4))
    ]
    distances = found._distances(MATRIX)
    assert distances.shape == (401,)
    for number in (0, 37, 200, 290, 400):
        r = -1 + number / 200
        least = math.inf
        for s in variances[0]:
            for t in variances[1]:
                gap = np.asarray([r * math.sqrt(s * t) - 0.2, s - 0.5, t - 0.4])
                least = min(least, float(gap @ inverse @ gap))
        assert distances[number] == pytest.approx(least, rel=1e-9)


def test_errors_are_as_wide_as_the_ends_of_all_parts_say() -> None:
    """Distances of ends of the cells' sums, of mean squares and of products of means add up as squares."""
    error = np.sqrt(np.diag(MATRIX))
    radius, spread = correlation()._widened(1.7)
    assert radius == pytest.approx(1.7 * error[0])
    assert spread.tolist() == MATRIX.tolist()
    for lacking in ({"cells": CELLS}, {"squares": SQUARES}):
        assert correlation(**lacking, slopes=SLOPES)._widened(1.7)[0] == pytest.approx(1.7 * error[0])
    for score in (0.4, 1.7, 3.0):
        radius, spread = correlation(cells=CELLS, squares=SQUARES, slopes=SLOPES)._widened(score)
        linear = CELLS.linear(SLOPES, ())
        low, high = linear.ends_at(score)
        reach = [max(high[k] - linear.value[k], linear.value[k] - low[k]) for k in range(3)]
        least, most = SQUARES.ends_at(score)
        other = [0.0] + [max(most[k] - SQUARES.value[k], SQUARES.value[k] - least[k]) for k in (4, 5)]
        means = CELLS.linear(SIGNS, ())
        ends = means.ends_at(score)
        u, v = (max(abs(end[k] - means.value[k]) for end in ends) for k in (0, 1))
        whole = [math.sqrt(a**2 + b**2 + c**2) for a, b, c in zip(reach, other, (u * v, u * u, v * v), strict=True)]
        assert radius == pytest.approx(whole[0])
        wide = [max(one / score, own) for one, own in zip(whole, error, strict=True)]
        for i in range(3):
            for j in range(3):
                assert spread[i, j] == pytest.approx(MATRIX[i, j] / error[i] / error[j] * wide[i] * wide[j])
    flat = np.diag([0.002, 0.0, 0.0025])
    _, spread = correlation(cells=CELLS, squares=SQUARES, slopes=SLOPES, spread=flat)._widened(1.7)
    assert np.isfinite(spread).all()
    assert spread[0, 1] == 0
    assert spread[1, 1] > 0


def test_the_interval_of_a_correlation_and_of_a_covariance() -> None:
    found = correlation()
    for score in (0.5, 1.96, np.asarray([1.0, 2.5])):
        first, second = np.broadcast_to(score, (2,)).tolist()
        low, high = found.ends_at(score)
        kept = [-1 + k / 200 for k, one in enumerate(found._distances(MATRIX)) if one <= first**2]
        assert (low[0], high[0]) == pytest.approx((min(kept), max(kept)))
        half = second * math.sqrt(MATRIX[0, 0])
        assert (low[1], high[1]) == pytest.approx((3.0 * (0.2 - half), 3.0 * (0.2 + half)))
    broken = MATRIX.copy()
    broken[1, 2] = np.inf
    for unknown in (broken, np.full((3, 3), np.nan)):
        low, high = correlation(spread=unknown).ends_at(1.96)
        assert (low.tolist(), high.tolist()) == ([-1, -3], [1, 3])
    far = correlation(moments=np.asarray([0.2, -3.0, -3.0]))
    assert [end[0] for end in far.ends_at(0.1)] == [-1.0, 1.0]  # no correlation is kept: all are


def test_what_is_bounded_is_cut_to_its_range() -> None:
    told: dict[str, Any] = {"ends": (np.full(3, -9.0), np.full(3, 9.0))}
    value, error = np.asarray([0.1, 0.5, 0.5]), np.asarray([0.2, 0.1, np.inf])
    found = BoundedEstimate(
        value, error, np.full(3, 50), np.asarray([0.0, -0.5, -1.0]), np.asarray([1.0, 0.55, 2.0]), **told
    )
    low, high = found.ends_at(2.0)
    plain = Estimate(
        value[:2], error[:2], np.full(2, 50), None, None, ends=(np.full(2, -9.0), np.full(2, 9.0))
    ).ends_at(2.0)
    assert low[0] == 0.0
    assert low[1] == pytest.approx(plain[0][1])
    assert high[0] == pytest.approx(plain[1][0])
    assert high[1] == 0.55
    assert (low[2], high[2]) == (-1.0, 2.0)


@pytest.mark.parametrize("mean", [0.5, -0.1])
def test_mean_and_variance_from_the_ends_of_both(mean: float) -> None:
    """In units of half the range: distances of E[u^2] and of E[u]^2 add up as squares, then both are scaled."""
    item = Spread(nz.Number("n", -2, 6, want="variance"))
    ends = (np.asarray([-2.0, -1.0]), np.asarray([2.0, 2.0]))
    made = Estimate(np.asarray([mean, 0.4]), np.asarray([0.1, 0.05]), np.asarray([60, 80]), None, None, ends=ends)
    found = item._told(made.value, made.std_error**2, np.asarray([60, 80]), made)
    assert isinstance(found, SpreadEstimate)
    for first, second in ((1.0, 1.0), (0.7, 2.0)):
        low, high = found._ends_at(np.asarray([first, second]), None)
        one, two = made.ends_at(first), made.ends_at(second)
        assert (low[0], high[0]) == pytest.approx(tuple((end[0] + 1) * 4 - 2 for end in one))
        squares = [two[0][0] ** 2, two[1][0] ** 2]
        least = 0.0 if two[0][0] < 0 < two[1][0] else min(squares)
        down = math.hypot(0.4 - two[0][1], max(squares) - mean**2) * 16
        up = math.hypot(two[1][1] - 0.4, mean**2 - least) * 16
        raw = (0.4 - mean**2) * 16
        value = float(found.value[1])
        assert value == pytest.approx(raw + 0.1**2 * 16)
        assert low[1] == pytest.approx(min(raw, value) - down)
        assert high[1] == pytest.approx(max(raw, value) + up)
    whole = found.ends_at(1.96)
    assert 0.0 <= whole[0][1] <= whole[1][1] <= 16.0
    plain = item._told(made.value, made.std_error**2, np.asarray([60, 80]))
    assert np.asarray(plain.ends_at(1.0)).shape == (2, 2)
    beyond = item._told(np.asarray([0.0, 9.0]), made.std_error**2, np.asarray([60, 80]), made)
    told = SpreadEstimate(
        beyond.value,
        beyond.std_error,
        beyond.count,
        beyond.low,
        beyond.high,
        made=Estimate(np.asarray([0.0, 9.0]), np.asarray([0.01, 0.01]), np.asarray([60, 80]), None, None, ends=ends),
    )
    low, high = told._ends_at(1.0, None)
    assert (low[1], high[1]) == (0.0, 16.0)  # noise alone goes that far


@pytest.mark.slow
def test_errors_before_anybody_is_asked() -> None:
    item = Spread(nz.Number("n", -2, 6, want="variance"))
    mechanism = nz.Survey([nz.Number("n", -2, 6, want="variance")], epsilon=3.0).sections[0].mechanism
    from noisette.prediction import deviation

    for users in (500, 2000):
        one, two = np.asarray(deviation(mechanism, users=users).std).tolist()
        found = item.predict(mechanism, users)
        assert found[0] == pytest.approx(4 * one)
        assert found[1] == pytest.approx(16 * math.sqrt(two**2 + 4 * 0.25 * one**2 + 2 * one**4))


def cdf(shift: float, users: int, reach: CdfSlopes | None = None) -> CdfEstimate:
    number = nz.Number("n", 0, 8, want="quantiles")
    values = np.asarray([0.0, 0.1 + shift, 0.4 + shift, 0.9 - shift, 1.0])
    spread = np.diag([0.0, 0.0004, 0.0016, 0.0004, 0.0])
    spread[1, 2] = spread[2, 1] = 0.0002
    return CdfEstimate.of(number, np.asarray([0.0, 2.0, 4.0, 6.0, 8.0]), values, spread, users, reach)


def test_a_share_of_several_parts_has_the_distances_of_all() -> None:
    first, second = cdf(0.0, 500), cdf(0.03, 300)
    weights, scatter = np.asarray([0.7, 0.3]), np.asarray([0.0, 0.001, 0.002, 0.003, 0.0])
    mixed = first.again(first.covariance, 800, (first, second), weights, scatter)
    starts, stops = np.asarray([0, 1, 1]), np.asarray([2, 2, 3])
    low, high = mixed.contrast(starts, stops, 1.5)
    for place, (a, b) in enumerate(zip(starts, stops, strict=True)):
        value, down, up = 0.0, 0.0, 0.0
        for one, weight in ((first, 0.7), (second, 0.3)):
            own = one.cdf[b] - one.cdf[a]
            ends = one.contrast(np.asarray([a]), np.asarray([b]), 1.5)
            value += weight * own
            down += (weight * (own - ends[0][0])) ** 2
            up += (weight * (ends[1][0] - own)) ** 2
        known = 1.5**2 * (scatter[a] + scatter[b])
        assert low[place] == pytest.approx(value - math.sqrt(down + known))
        assert high[place] == pytest.approx(value + math.sqrt(up + known))


def test_what_one_report_can_do_to_a_share() -> None:
    """Each level's reports stand for all people: the least and the largest over both levels."""
    rng = np.random.default_rng(4)
    slopes, offset = rng.normal(size=(5, 6)), rng.normal(size=5)
    supports = (Supports(-0.2, 1.5, 1, 1), Supports(0.1, 0.8, 1, 2))
    told = CdfSlopes(slopes, offset, ((300, 2, supports[0]), (200, 4, supports[1])))
    low, high = told.ends(np.asarray([1]), np.asarray([3]))
    slope, fixed = slopes[3] - slopes[1], offset[3] - offset[1]
    said = []
    for (people, part), own in zip(((300, slope[:2]), (200, slope[2:])), supports, strict=True):
        bottom, top = own.ends(part[None])
        said += [fixed + 500 / people * float(bottom[0]), fixed + 500 / people * float(top[0])]
    assert (float(low[0]), float(high[0])) == pytest.approx((min(said[0], said[2]), max(said[1], said[3])))
    found = cdf(0.0, 500, told)
    bounds = found.contrast(np.asarray([1]), np.asarray([3]), 1.2)
    error = math.sqrt(0.0004 + 0.0004)
    wanted = bounded_interval(0.8, error, 500, low, high, 1.2)
    assert (bounds[0][0], bounds[1][0]) == pytest.approx((float(wanted[0][0]), float(wanted[1][0])))


def test_errors_of_quantiles_follow_the_people() -> None:
    number = nz.Number("n", 10, 26, want="quantiles")
    mechanism = nz.Survey([number], epsilon=3.0).sections[0].mechanism
    item = CellLevels(number)
    few, many = item.predict(mechanism, 1000), item.predict(mechanism, 4000)
    assert few == pytest.approx(2 * many, rel=1e-12)
    wide = CellLevels(nz.Number("n", 10, 42, want="quantiles")).predict(mechanism, 1000)
    assert wide == pytest.approx(2 * few, rel=1e-12)
    assert few[0] == pytest.approx(few[-1], rel=1e-3)  # the same at both ends


def test_ends_of_fiellers_interval() -> None:
    """Bounded where the denominator is told from zero; just at the edge it is not."""
    z = 1.959963984540054
    for under, bounded in ((z * 0.1 * 1.0001, True), (z * 0.1 * 0.9999, False), (-z * 0.1 * 1.0001, True)):
        low, high = fieller(0.3, under, (0.0, 0.0, 0.01), 0.95)
        assert bool(np.isfinite(low) and np.isfinite(high)) is bounded
    ratio = RatioEstimate.of(
        np.asarray([0.2]), np.asarray([0.5]), np.asarray([[1e-4], [2e-5], [3e-4]]), np.asarray([90]), ("r",), 0.0, 0.4
    )
    variance = (1e-4 - 2 * 0.4 * 2e-5 + 0.16 * 3e-4) / 0.25
    assert (ratio.value[0], ratio.std_error[0]) == pytest.approx((0.4, math.sqrt(variance)))
    low, high = ratio.interval(0.9, method="normal")
    ends = fieller(0.2, 0.5, (1e-4, 2e-5, 3e-4), 0.9)
    assert low[0] == pytest.approx(float(ends[0]))
    assert high[0] == 0.4  # cut
    with pytest.raises(ValueError, match="'bounded' or 'normal'"):
        ratio.interval(0.9, method="exact")
    none = RatioEstimate.of(np.asarray([0.2]), np.zeros(1), np.zeros((3, 1)), np.asarray([90]), ("r",), 0.0, 1.0)
    assert (np.isnan(none.value[0]), none.std_error[0]) == (True, np.inf)
    assert Joint("j", ("a", "b"), ("x", "y"), -1.0, 1.0, (1.0, 3.0)).spans.tolist() == [2.0, 6.0]
    assert Joint("j", ("a", "b"), ("x", "y"), shares=True).spans.tolist() == [1.0, 1.0]
