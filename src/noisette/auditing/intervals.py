"""Limits that hold at any number of samples: on rates, and on what they say about epsilon and mu."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import betaincinv, ndtr, ndtri, ndtri_exp

from noisette._search import narrowed
from noisette._validate import FloatArray

_SHARES = 800  # ways to share the risk between two limits that are looked at
_ROUGH_SHARES = 40  # of them to compare weights by
_WEIGHTS = (0.5, 0.3, 0.15, 0.7, 0.85)


def rate_below(hits: Any, size: int, share: Any) -> FloatArray:
    """Return the limit that a rate is below with probability at most ``share`` (Clopper, Pearson 1934)."""
    count = np.asarray(hits)
    return np.where(count > 0, betaincinv(np.maximum(count, 1), size - count + 1, share), 0.0)


def rate_above(hits: Any, size: int, share: Any) -> FloatArray:
    """Return the limit that a rate is above with probability at most ``share``."""
    return 1 - rate_below(size - np.asarray(hits), size, share)


def lower_bounds(
    hits: int,
    others: int,
    size: int,
    *,
    delta: float,
    confidence: float,
    weight: float = 0.5,
    shares: int = _SHARES,
) -> tuple[float, float]:
    """Return lower bounds on epsilon and on mu from an event's count under each of two inputs.

    With p and q the event's rates, ln((p - delta) / q) and ln((1 - q - delta) / (1 - p)) are at most epsilon, and
    Phi^-1(p) - Phi^-1(q) at most mu. U = P(a count >= hits | p) and V = P(a count <= others | q) are independent and at
    least uniform, so w ln U + (1 - w) ln V >= -t with probability ``confidence`` for a t that two exponential variables
    give (Fisher 1932, with weights). The bounds are the least values over all rates for which that is so: U = u gives
    the lower limit of p at share u, and V what is left for the upper limit of q. The weight w of the first rate must
    not depend on the counts. A limit of each rate at half of the risk would cost up to 1.4 times as much. The more
    ``shares`` are looked at, the larger the bounds; they hold with any number.
    """
    limit = _exponential_limit(weight, 1 - confidence)
    farthest = float(-ndtri_exp(-limit / weight))
    share = np.concatenate([ndtr(-np.linspace(farthest, -6.0, shares)), [1.0]])
    rest = np.exp(np.minimum(-(limit + weight * np.log(share)) / (1 - weight), 0.0))
    # between two shares both limits rise with u: the lower one of p and the upper one of q bound what is between
    low, high = rate_below(hits, size, share[:-1]), rate_above(others, size, rest[1:])
    epsilon, mu = _bounds((low, 1 - low), (high, 1 - high), delta)
    return float(epsilon.min()), float(mu.min())


def _exponential_limit(weight: float, risk: float) -> float:
    """Return the t that w X + (1 - w) Y, two exponential variables, exceeds with probability ``risk``, rounded up."""

    def tail(t: float) -> float:
        if weight == 0.5:
            return math.exp(-2 * t) * (1 + 2 * t)
        return (weight * math.exp(-t / weight) - (1 - weight) * math.exp(-t / (1 - weight))) / (2 * weight - 1)

    high = 1.0
    while tail(high) > risk:
        high *= 2
    return narrowed(lambda t: tail(t) > risk, 0.0, high, tolerance=1e-12)[1]


def best_weight(rates: tuple[float, float], size: int, *, delta: float, confidence: float, quantity: int) -> float:
    """Return the weight with which `lower_bounds` promises most, of epsilon (0) or mu (1), if these are the rates."""
    hits, others = (round(rate * size) for rate in rates)
    given: dict[str, Any] = {"delta": delta, "confidence": confidence, "shares": _ROUGH_SHARES}
    return max(_WEIGHTS, key=lambda w: lower_bounds(hits, others, size, weight=w, **given)[quantity])


def promised_bounds(
    hits: Any, others: Any, size: int, *, delta: float, deviations: float
) -> tuple[FloatArray, FloatArray]:
    """Return about what `lower_bounds` would, at this many standard deviations, at a hundredth of the time.

    The square root of a count has a standard deviation of sqrt(1 - rate) / 2 (Anscombe 1948).
    """
    ones, twos = np.asarray(hits), np.asarray(others)

    def upper(count: Any) -> FloatArray:
        root = np.sqrt(count + 1) + deviations / 2 * np.sqrt(1 - count / size)
        return np.asarray(np.minimum(root**2 / size, 1.0))

    # 1 - an upper limit of misses is below the lower limit of hits that the same roots would give
    missed, seen = upper(size - ones), upper(twos)
    return _bounds((1 - missed, missed), (seen, 1 - seen), delta)


def _bounds(
    own: tuple[FloatArray, FloatArray], other: tuple[FloatArray, FloatArray], delta: float
) -> tuple[FloatArray, FloatArray]:
    """Return what limits of p and 1 - p, and of q and 1 - q, say about epsilon and mu; zero is always true."""
    with np.errstate(divide="ignore", invalid="ignore"):
        event = np.log(np.maximum(own[0] - delta, 0.0)) - np.log(other[0])
        complement = np.log(np.maximum(other[1] - delta, 0.0)) - np.log(own[1])
        mu = ndtri(own[0]) - ndtri(other[0])
    return np.fmax(np.fmax(event, complement), 0.0), np.fmax(mu, 0.0)
