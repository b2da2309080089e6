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


def lower_bounds(hits: Any, others: Any, size: int, *, delta: float, confidence: float) -> tuple[Any, Any]:
    """Return lower bounds on epsilon and on mu from an event's count under each of two inputs.

    With p and q the event's rates, ln((p - delta) / q) and ln((1 - q - delta) / (1 - p)) are at most epsilon, and
    Phi^-1(p) - Phi^-1(q) at most mu; a lower limit of p and an upper one of q hold together at ``confidence``.
    """
    share = (1 - confidence) / 2
    low, high = rate_below(hits, size, share), rate_above(others, size, share)
    with np.errstate(divide="ignore", invalid="ignore"):
        event = np.log(np.maximum(low - delta, 0.0)) - np.log(high)
        complement = np.log(np.maximum(1 - high - delta, 0.0)) - np.log(1 - low)
        mu = ndtri(low) - ndtri(high)
    return np.maximum(np.maximum(event, complement), 0.0), np.maximum(mu, 0.0)
