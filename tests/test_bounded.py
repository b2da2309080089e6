"""Intervals of means of bounded reports: against exact binomial laws, scipy's intervals and Dirichlet weights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr, ndtri
from scipy.stats import binom, binomtest

import noisette as nz
from noisette._bounded import (
    added,
    bounded_interval,
    inverted,
    jump_of_sum,
    moves_of,
    noisy_interval,
    score_of,
    touching,
)
from noisette.core import Aggregate, Estimate
from noisette.survey.estimation.weighting import MixedEstimate

Z = score_of(0.95)


def _coverage(mechanism: Any, people: int, share: float, method: str = "bounded") -> float:
    """Return how often the interval of the first category holds its share: all counts, each with its exact chance."""
    chance = mechanism.p_other + share * (mechanism.p_own - mechanism.p_other)
    total = np.arange(people + 1)
    count = np.full(people + 1, people)
    # an aggregate of n + 1 quantities: each possible count is one
    made = Aggregate(mechanism, people, count, total, total).estimate()
    with np.errstate(invalid="ignore"):
        low, high = made.interval(0.95, method=method)
    return float(binom.pmf(total, people, chance)[(low <= share) & (share <= high)].sum())


BUDGETS = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0, 12.0)


@pytest.mark.parametrize(
    "epsilon", [pytest.param(e, marks=() if e in (0.5, 4.0) else pytest.mark.slow) for e in BUDGETS]
)
@pytest.mark.parametrize("size", [2, 3, 50])
@pytest.mark.parametrize("kind", [nz.GeneralizedRandomizedResponse, nz.SubsetSelection, nz.UnaryEncoding])
def test_the_interval_of_a_share_holds_by_enumeration(kind: Any, size: int, epsilon: float) -> None:
    """At least 95 % where up to 20 reports vary, at least 94.3 % everywhere, and at most 96 % where 50 or more vary."""
    mechanism = kind(epsilon=epsilon, domain=nz.Categorical(size))
    for people in (1, 2, 3, 5, 10, 30, 100, 300, 1000, 10_000):
        for share in (0.0, 1e-3, 0.02, 0.3, 0.5, 0.97, 1.0):
            held = _coverage(mechanism, people, share)
            chance = mechanism.p_other + share * (mechanism.p_own - mechanism.p_other)
            vary = people * chance * (1 - chance)
            assert held >= (0.95 - 1e-12 if vary < 20 else 0.943), (people, share)
            if vary > 50:
                assert held < (0.96 if vary < 200 else 0.954), (people, share)


def test_the_normal_interval_does_not_hold() -> None:
    """The twin: what was there before, 300 people who all have the first of three labels."""
    shares = {
        epsilon: _coverage(nz.GeneralizedRandomizedResponse(epsilon, nz.Categorical(3)), 300, 0.0, "normal")
        for epsilon in (1.0, 4.0, 8.0)
    }
    assert 0.94 < shares[1.0] < 0.96
    assert shares[4.0] < 0.94
    assert shares[8.0] < 0.2


@pytest.mark.parametrize("people", [1, 2, 7, 60])
@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.999])
def test_reports_of_two_values_have_clopper_and_pearsons_interval(people: int, level: float) -> None:
    total = np.arange(people + 1)
    share = total / people
    error = np.sqrt(share * (1 - share) / max(people - 1, 1)) if people > 1 else np.full(2, math.inf)
    low, high = bounded_interval(3 + 4 * share, 4 * error, people, 3.0, 7.0, score_of(level))
    for place, one in enumerate(total.tolist()):
        exact = binomtest(one, people).proportion_ci(level, method="exact")
        assert low[place] == pytest.approx(3 + 4 * exact.low, abs=1e-9)
        assert high[place] == pytest.approx(3 + 4 * exact.high, abs=1e-9)


@pytest.mark.parametrize("score", [1.0, Z, 5.0])
def test_many_reports_have_the_same_interval_by_a_series(score: float) -> None:
    """Beside scipy's quantiles of the beta law, to a ten-thousandth of a standard error."""
    from scipy.stats import beta

    for total, people in ((1500, 10_000), (3000, 10**6), (10**6, 2 * 10**6)):
        share = total / people
        error = math.sqrt(share * (1 - share) / (people - 1))
        low, high = bounded_interval(share, error, people, 0.0, 1.0, score)
        exact = beta.ppf([ndtr(-score), ndtr(score)], total + 0.5, people - total + 0.5)  # Jeffreys'
        assert np.abs(np.subtract((low, high), exact)).max() < 1e-4 * error


@pytest.mark.slow
def test_other_reports_have_nearly_gaffkes_interval() -> None:
    """Quantiles of means weighted by Dirichlet(1, ..., 1), an end of the range beside what was reported."""
    rng = np.random.default_rng(1)
    for seen in (rng.uniform(0, 1, 12), np.append(np.zeros(30), [0.4, 1.0]), rng.beta(0.3, 0.9, 40)):
        size = seen.size
        weights = rng.dirichlet(np.ones(size + 1), 100_000)
        wanted = [np.quantile(weights @ np.append(seen, end), chance) for end, chance in ((0.0, 0.025), (1.0, 0.975))]
        found = bounded_interval(seen.mean(), seen.std(ddof=1) / math.sqrt(size), size, 0.0, 1.0, Z)
        assert np.allclose(found, wanted, atol=0.08 * (wanted[1] - wanted[0]))


def test_odd_inputs_of_a_bounded_interval() -> None:
    low, high = bounded_interval([math.nan, 0.5, 2.0, 0.0], [math.inf, math.inf, 0.1, 0.0], [0, 1, 9, 5], 0.0, 1.0, Z)
    assert math.isnan(low[0])
    assert math.isnan(high[0])
    assert 0 < low[1] < 0.5 < high[1] < 1  # one report in the middle
    assert low[2] < 2.0 == high[2]  # beyond the range: the range is made wider
    assert low[3] == 0.0 < high[3] < 1.0
    same = bounded_interval(np.full(3, 0.25), np.full(3, 0.01), 10, 0.25, 0.25, Z)
    assert np.array_equal(same, np.full((2, 3), 0.25))  # a report can say nothing else


def test_many_quantities_give_what_each_gives() -> None:
    """Those that are alike are computed once, and blocks do not matter."""
    rng = np.random.default_rng(2)
    total = rng.integers(0, 40, 150_000)
    share = total / 500
    error = np.sqrt(share * (1 - share) / 499)
    low, high = bounded_interval(share, error, 500, 0.0, 1.0, Z)
    for place in (0, 70_000, 149_999):
        one = bounded_interval(share[place], error[place], 500, 0.0, 1.0, Z)
        assert (low[place], high[place]) == pytest.approx((float(one[0]), float(one[1])), rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["laplace", "discrete-gaussian", "staircase", "gaussian"])
@pytest.mark.parametrize("people", [1, 2, 5, 40, 400])
def test_added_noise(name: str, people: int) -> None:
    """5,000 collections: intervals hold at least 95 % at both ends of the range and in its middle.

    Less than 93.5 % would be seen with a chance below 1e-6 if 95 % held."""
    delta = {"delta": 1e-6} if "gaussian" in name else {}
    grid = nz.Grid(0, 20) if name == "discrete-gaussian" else nz.Interval(0, 20)
    rng = np.random.default_rng(7)
    for epsilon in (0.3, 3.0):
        mechanism: Any = nz.build(name, grid, epsilon=epsilon, **delta)
        readout = mechanism.readout
        for value in (0, 10, 20):
            reports = mechanism.privatize(np.full(5_000 * people, value), rng=rng).reshape(-1, people)
            mean = reports.mean(axis=1)
            error = reports.std(axis=1, ddof=1) / math.sqrt(people) if people > 1 else np.full(5_000, math.inf)
            low, high = noisy_interval(mean, error, people, 0.0, 20.0, readout.noise, Z)
            held = np.mean((low <= value) & (value <= high))
            assert held > 0.935, (epsilon, value, held)
            if people == 400 and epsilon == 0.3:
                assert held < 0.966


def test_a_part_of_a_sum_is_as_careful_as_the_sum() -> None:
    """One report moves each of nine parts by a fifth of its error, and their sum by a fifteenth: so Jeffreys' interval
    for every part, where each by itself has one between his and Clopper and Pearson's."""
    from scipy.stats import beta

    people, total = 100, 50
    error = 0.5 / math.sqrt(people - 1)
    part = Estimate(np.asarray([0.5]), np.asarray([error]), np.asarray([people]), ends=(0.0, 1.0))
    assert part.jump.tolist() == [1 / people]
    weights = np.full(9, 1 / 9)
    sums: dict[str, Any] = {"parts": (part,) * 9, "weights": weights, "scatter": np.zeros(1)}
    mixed = MixedEstimate(np.asarray([0.5]), np.asarray([error / 3]), np.asarray([900]), **sums)
    assert mixed.jump == pytest.approx([1 / 900])
    assert moves_of(mixed.std_error, mixed.jump) == pytest.approx([300 * error])
    low, high = mixed.ends_at(Z)
    jeffreys = beta.ppf([0.025, 0.975], total + 0.5, people - total + 0.5)
    assert (float(low[0]), float(high[0])) == pytest.approx(0.5 + (jeffreys - 0.5) / 3)
    exact = binomtest(total, people).proportion_ci(0.95, method="exact")
    alone = part.interval(0.95)
    assert exact.low < alone[0][0] < jeffreys[0] < jeffreys[1] < alone[1][0] < exact.high
    assert moves_of([math.inf, 1.0, 0.0], [1.0, 0.0, 0.0]).tolist() == [0.0, math.inf, 0.0]


def test_how_far_one_report_moves_a_sum() -> None:
    """Among thousands whose reports matter little, three people who say the same still count; unknown errors too."""
    assert jump_of_sum([[0.1], [0.2]], [[1.0], [2.0]]) == pytest.approx((0.1 * 1.01 + 0.2 * 4.04) / 5.05)
    assert jump_of_sum([[0.001], [0.1]], [[0.02], [0.0]])[0] > 0.09
    assert jump_of_sum([[0.1, 0.3], [0.2, 0.0]], [[1.0, math.inf], [math.inf, 1.0]]).tolist() == [0.2, 0.3]
    assert jump_of_sum(np.zeros((2, 1)), np.zeros((2, 1))).tolist() == [0.0]


def test_independent_estimates_add_up() -> None:
    """Normal intervals add up to the normal one; a weight below zero turns ends around."""
    values, errors = np.asarray([[1.0], [4.0], [2.0]]), np.asarray([[0.3], [0.4], [0.5]])
    weights = np.asarray([1.0, -2.0, 0.5])
    low, high = added(values, values - errors, values + errors, weights, known=0.25)
    spread = math.sqrt(0.09 + 0.64 + 0.0625 + 0.25)
    assert (low[0], high[0]) == pytest.approx((-6.0 - spread, -6.0 + spread))
    two, down, up = values[:2], np.asarray([[0.1], [0.2]]), np.asarray([[0.3], [0.4]])
    low, high = added(two, two - down, two + up, np.asarray([-1.0, 1.0]))
    assert (low[0], high[0]) == pytest.approx((3 - math.hypot(0.3, 0.2), 3 + math.hypot(0.1, 0.4)))


def test_the_score_at_which_an_interval_reaches_a_number() -> None:
    value, error = np.asarray([0.30, 0.02, 0.5, 0.5, math.nan]), np.asarray([0.04, 0.004, 0.02, 0.0, 0.1])
    target = np.asarray([0.2, 0.1, 0.5, 0.4, 0.0])

    def ends_at(score: Any) -> Any:
        return bounded_interval(value, error, 100, 0.0, 1.0, score)

    score = touching(ends_at, value, error, target)
    assert score[2] == 0.0
    assert math.isnan(score[4])
    low, high = ends_at(score)
    assert low[0] == pytest.approx(0.2, abs=1e-4)
    assert high[1] == pytest.approx(0.1, abs=1e-3)
    plain = touching(lambda z: (value - z * error, value + z * error), value, error, target)
    assert plain[:2] == pytest.approx([2.5, 20.0])


def test_what_a_test_keeps() -> None:
    """The ends of a set of numbers, narrow, wide, at an end of the range or empty."""
    least, most = np.asarray([0.2, 0.501, -1.0, 0.7, 2.0]), np.asarray([0.6, 0.5021, 0.3, 9.0, 3.0])
    value = np.asarray([0.4, 0.5017, 0.1, 0.9, 0.25])
    low, high = inverted(lambda tried: (tried >= least) & (tried <= most), value, 0.0, 1.0)
    assert low == pytest.approx([0.2, 0.501, 0.0, 0.7, 0.25], abs=1e-6)
    assert high == pytest.approx([0.6, 0.5021, 0.3, 1.0, 0.25], abs=1e-6)


def test_a_level_that_is_none() -> None:
    with pytest.raises(ValueError, match=r"Expected level=1 in \(0, 1\)"):
        score_of(1)
    assert score_of(0.95) == pytest.approx(ndtri(0.975))
