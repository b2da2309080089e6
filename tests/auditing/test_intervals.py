"""Limits on rates: never more wrong than they say, by exact sums, and as tight as that allows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import beta, binom, norm

from noisette.auditing.intervals import lower_bounds, promised_bounds, rate_above, rate_below


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


def test_bounds_come_from_the_event_or_from_its_complement() -> None:
    share, size = 0.0005, 1000
    low, high = float(rate_below(600, size, share)), float(rate_above(200, size, share))
    epsilon, mu = lower_bounds(600, 200, size, delta=0.01, confidence=0.999)
    assert epsilon == pytest.approx(math.log((low - 0.01) / high), rel=1e-12)
    assert mu == pytest.approx(norm.ppf(low) - norm.ppf(high), rel=1e-9)
    low, high = float(rate_below(995, size, share)), float(rate_above(700, size, share))
    epsilon, _ = lower_bounds(995, 700, size, delta=0.01, confidence=0.999)
    assert epsilon == pytest.approx(math.log((1 - high - 0.01) / (1 - low)), rel=1e-12)


@pytest.mark.parametrize("hits", [(0, 0), (0, 1000), (1000, 1000), (5, 5)])
def test_an_event_that_tells_nothing_bounds_nothing(hits: tuple[int, int]) -> None:
    epsilon, mu = lower_bounds(*hits, 1000, delta=0.0, confidence=0.999)
    assert (epsilon, mu) == (0, 0)


def test_promises_are_near_the_bounds() -> None:
    hits, others = np.meshgrid([0, 1, 50, 3000, 9990, 10_000], [0, 1, 40, 2000, 9900, 10_000])
    exact = lower_bounds(hits, others, 10_000, delta=1e-4, confidence=1 - 2 * norm.sf(3.0))
    quick = promised_bounds(hits, others, 10_000, delta=1e-4, deviations=3.0)
    for bound, promise in zip(exact, quick, strict=True):
        assert np.all(np.abs(bound - promise) <= 0.25 + 0.05 * bound)
