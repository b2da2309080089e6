"""Limits that hold at any number of samples: on rates, and on what they say about epsilon and mu."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import betaincinv, ndtri

from noisette._validate import FloatArray


def rate_below(hits: Any, size: int, share: float) -> FloatArray:
    """Return the limit that a rate is below with probability at most ``share`` (Clopper, Pearson 1934)."""
    count = np.asarray(hits)
    return np.where(count > 0, betaincinv(np.maximum(count, 1), size - count + 1, share), 0.0)


def rate_above(hits: Any, size: int, share: float) -> FloatArray:
    """Return the limit that a rate is above with probability at most ``share``."""
    return 1 - rate_below(size - np.asarray(hits), size, share)


def lower_bounds(
    hits: Any, others: Any, size: int, *, delta: float, confidence: float
) -> tuple[FloatArray, FloatArray]:
    """Return lower bounds on epsilon and on mu from an event's count under each of two inputs.

    With p and q the event's rates, ln((p - delta) / q) and ln((1 - q - delta) / (1 - p)) are at most epsilon, and
    Phi^-1(p) - Phi^-1(q) at most mu; a lower limit of p and an upper one of q hold together at ``confidence``.
    """
    share = (1 - confidence) / 2
    low, high = rate_below(hits, size, share), rate_above(others, size, share)
    return _bounds((low, 1 - low), (high, 1 - high), delta)


def promised_bounds(
    hits: Any, others: Any, size: int, *, delta: float, deviations: float
) -> tuple[FloatArray, FloatArray]:
    """Return about what `lower_bounds` would, at so many standard deviations, at a hundredth of the time.

    The square root of a count has a standard deviation of sqrt(1 - rate) / 2 (Anscombe 1948).
    """
    ones, twos = np.asarray(hits), np.asarray(others)

    def lower(count: Any) -> FloatArray:
        root = np.sqrt(count) - deviations / 2 * np.sqrt(1 - count / size)
        return np.asarray(np.maximum(root, 0.0) ** 2 / size)

    def upper(count: Any) -> FloatArray:
        root = np.sqrt(count + 1) + deviations / 2 * np.sqrt(1 - count / size)
        return np.asarray(np.minimum(root**2 / size, 1.0))

    most, least = upper(size - ones), np.minimum(lower(size - twos), 1 - upper(twos))
    return _bounds((np.minimum(lower(ones), 1 - most), most), (upper(twos), least), delta)


def _bounds(
    own: tuple[FloatArray, FloatArray], other: tuple[FloatArray, FloatArray], delta: float
) -> tuple[FloatArray, FloatArray]:
    """Return what limits of p and 1 - p, and of q and 1 - q, say about epsilon and mu."""
    with np.errstate(divide="ignore", invalid="ignore"):
        event = np.log(np.maximum(own[0] - delta, 0.0)) - np.log(other[0])
        complement = np.log(np.maximum(other[1] - delta, 0.0)) - np.log(own[1])
        mu = ndtri(own[0]) - ndtri(other[0])
    return np.fmax(np.fmax(event, complement), 0.0), np.fmax(mu, 0.0)
