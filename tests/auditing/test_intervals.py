"""Limits on rates: never more wrong than they say, by exact sums, and as tight as that allows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import beta, binom, norm

from noisette.auditing.intervals import _exponential_limit, lower_bounds, promised_bounds, rate_above, rate_below


@pytest.mark.parametrize("share", [0.1, 0.0005])
@pytest.mark.parametrize("size", [1, 7, 60])
def test_limits_miss_no_more_often_than_they_say(size: int, share: float) -> None:
    hits = np.arange(size + 1)
    below, above = rate_below(hits, size, share), rate_above(hits, size, share)
    for rate in np.linspace(0, 1, 201):
        chance = binom.pmf(hits, size, rate)
        assert chance[below > rate].sum() <= share * (1 + 1e-9)
        assert chance[above < rate].sum() <= share * (1 + 1e-9)


def test_limits_are_those_of_clopper_and_pearson() -> None:
    hits = np.asarray([1, 30, 99])
    assert rate_below(hits, 100, 0.01) == pytest.approx(beta.ppf(0.01, hits, 101 - hits), rel=1e-9)
    assert rate_above(hits, 100, 0.01) == pytest.approx(beta.ppf(0.99, hits + 1, 100 - hits), rel=1e-9)
    assert rate_below(0, 100, 0.01) == 0
    assert rate_above(100, 100, 0.01) == 1


def test_normal_limits_would_miss_more_often() -> None:
    """The twin: the usual approximation fails the first test."""
    size, share = 60, 0.0005
    hits = np.arange(size + 1)
    rate = hits / size
    below = rate - norm.isf(share) * np.sqrt(rate * (1 - rate) / size)
    missed = [binom.pmf(hits, size, p)[below > p].sum() for p in np.linspace(0.001, 0.999, 201)]
    assert max(missed) > share


@pytest.mark.long
@pytest.mark.parametrize("delta", [0.0, 0.05])
def test_bounds_exceed_the_truth_no_more_often_than_they_say(delta: float) -> None:
    """By sums over all pairs of counts, for rates whose true epsilon and mu are known."""
    size, risk = 12, 0.1
    counts = np.arange(size + 1)
    bounds = np.asarray(
        [[lower_bounds(one, two, size, delta=delta, confidence=1 - risk) for two in counts] for one in counts]
    )
    missed = []
    for p in np.linspace(0.02, 0.98, 25):
        for q in np.linspace(0.02, 0.98, 25):
            chance = np.outer(binom.pmf(counts, size, p), binom.pmf(counts, size, q))
            with np.errstate(divide="ignore"):
                event, complement = np.log(max(p - delta, 0) / q), np.log(max(1 - q - delta, 0) / (1 - p))
            true = max(event, complement, 0.0), max(norm.ppf(p) - norm.ppf(q), 0.0)
            missed.append([chance[bounds[:, :, i] > true[i] + 1e-12].sum() for i in range(2)])
    assert np.max(missed) <= risk
    assert np.max(missed) > risk / 10, "far from what is allowed: the bound could be tighter"


def test_sharing_the_risk_is_worth_it() -> None:
    """The twin: the usual bound, a limit at half of the risk for each rate, is lower."""
    share, size = 0.0005, 100_000
    for hits, others in ((50_000, 18_000), (40_000, 15_000), (10_000, 5_000), (99_000, 90_000)):
        low, high = float(rate_below(hits, size, share)), float(rate_above(others, size, share))
        usual = max(math.log(low / high), math.log((1 - high) / (1 - low)))
        epsilon, mu = lower_bounds(hits, others, size, delta=0.0, confidence=0.999)
        assert usual < epsilon < max(math.log(hits / others), math.log((size - others) / (size - hits)))
        assert norm.ppf(low) - norm.ppf(high) < mu < norm.ppf(hits / size) - norm.ppf(others / size)


@pytest.mark.slow
def test_risk_that_is_shared_too_freely_would_show() -> None:
    """The twin of the sums: limits of each rate at three times the risk fail them."""
    size, risk = 12, 0.1
    counts = np.arange(size + 1)
    with np.errstate(divide="ignore"):
        low, high = np.log(rate_below(counts, size, 3 * risk)), np.log(rate_above(counts, size, 3 * risk))
    bounds = np.subtract.outer(low, high)
    missed = [
        np.outer(binom.pmf(counts, size, p), binom.pmf(counts, size, q))[bounds > np.log(p / q)].sum()
        for p in np.linspace(0.02, 0.98, 49)
        for q in np.linspace(0.02, 0.98, 49)
    ]
    assert max(missed) > risk


@pytest.mark.parametrize("hits", [(0, 0), (0, 1000), (1000, 1000), (5, 5)])
def test_an_event_that_tells_nothing_bounds_nothing(hits: tuple[int, int]) -> None:
    epsilon, mu = lower_bounds(*hits, 1000, delta=0.0, confidence=0.999)
    assert (epsilon, mu) == (0, 0)


def test_promises_are_near_the_bounds() -> None:
    hits, others = np.meshgrid([0, 1, 50, 3000, 9990, 10_000], [0, 1, 40, 2000, 9900, 10_000])
    quick = promised_bounds(hits, others, 10_000, delta=1e-4, deviations=2.5)
    for place in np.ndindex(hits.shape):
        exact = lower_bounds(int(hits[place]), int(others[place]), 10_000, delta=1e-4, confidence=0.999)
        for bound, promises in zip(exact, quick, strict=True):
            assert abs(bound - promises[place]) <= 0.5 + 0.1 * bound


@pytest.mark.parametrize("risk", [0.3, 1e-3, 1e-9])
@pytest.mark.parametrize("weight", [0.1, 0.4, 0.5, 0.75])
def test_two_weighted_exponentials_exceed_the_limit_as_often_as_stated(weight: float, risk: float) -> None:
    """P(w X + (1 - w) Y > t), integrated over X; the limit is rounded up."""
    limit = _exponential_limit(weight, risk)
    beyond, _ = quad(
        lambda x: math.exp(-x - (limit - weight * x) / (1 - weight)), 0, limit / weight, epsabs=0, limit=200
    )
    assert beyond + math.exp(-limit / weight) == pytest.approx(risk, rel=1e-6)
