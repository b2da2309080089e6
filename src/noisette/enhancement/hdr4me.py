"""HDR4ME, the re-calibration of Duan 2024: soft threshold, ridge, and the mixture of Algorithm 4.

Kept as printed, to be compared: all three shrink toward zero by rules that do not look at the data, and lose to the
raw estimate where that is good. Duan 2024, section 4.2.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr, ndtri

from noisette._validate import FloatArray
from noisette.domains import BoolArray
from noisette.enhancement.stein import Enhanced, pooled_square, unbiased_risk

_BISECTIONS = 60


def supremum(std_error: FloatArray, bias: FloatArray, *, confidence: float = 0.95) -> FloatArray:
    """Return the least xi with P(|N(bias, std_error^2)| <= xi) >= confidence.

    >>> supremum(np.array([1.0]), np.array([0.0])).round(4)
    array([1.96])
    """
    if not 0 < confidence < 1:
        raise ValueError(f"Expected confidence={confidence!r} in (0, 1), e.g. 0.95.")
    shift = np.abs(bias)
    high = shift + std_error * ndtri((1 + confidence) / 2)
    if not np.any(shift):
        return np.asarray(high)
    low = np.zeros_like(high)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        short = _mass_within(middle, std_error, shift) < confidence
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    return np.asarray(high)


def l1(
    observed: FloatArray, std_error: FloatArray, *, bias: FloatArray | float = 0.0, confidence: float = 0.95
) -> Enhanced:
    """Move every value toward zero by the likely size of its error (equation 4.52).

    theta* = sign(y) (|y| - lambda)_+, lambda = sup |y - theta| at the confidence level (lemma 4).

    *Utility.* Strong where almost all means are zero, worse than raw where they are not: for truths spread over
    [-1, 1] and s = 0.3 it doubles the error. The standard error is sqrt(s^2 + lambda^2) for a value that is kept, and
    for those set to zero the root of the mean square that they have together beyond noise.

    >>> l1(np.array([3.0, 1.0]), np.array([1.0, 1.0])).value.round(2)
    array([1.04, 0.  ])
    """
    shift = np.broadcast_to(np.asarray(bias, dtype=np.float64), observed.shape)
    threshold = supremum(std_error, shift, confidence=confidence)
    kept = np.abs(observed) > threshold
    value = np.where(kept, observed - np.sign(observed) * threshold, 0.0)
    return _summary(observed, std_error, shift, value, np.where(kept, 1.0, 0.0), kept)


def l2(
    observed: FloatArray, std_error: FloatArray, *, bias: FloatArray | float = 0.0, confidence: float = 0.95
) -> Enhanced:
    """Divide every value by one plus the likely size of its error (equation 4.60).

    theta* = y / (2 lambda + 1), lambda = sup |y - theta| / (2 bound), bound = 1: the domain's radius. Duan 2024
    divides by the unknown truth in place of its bound (lemma 5).

    *Utility.* A bounded error under any noise; loses to raw where the noise is small. The standard error counts the
    bias of a typical value.

    >>> l2(np.array([2.96]), np.array([1.0])).value.round(2)
    array([1.])
    """
    shift = np.broadcast_to(np.asarray(bias, dtype=np.float64), observed.shape)
    slope = 1 / (supremum(std_error, shift, confidence=confidence) + 1)
    return _summary(observed, std_error, shift, observed * slope, slope, np.zeros(observed.shape, dtype=bool))


def star(
    observed: FloatArray, std_error: FloatArray, *, bias: FloatArray | float = 0.0, confidence: float = 0.95
) -> Enhanced:
    """Average raw, L1 and L2 by the chances that the error is at most 1, in (1, 2], or above (Algorithm 4).

    *Utility.* Dominated: wherever P(|error| <= 1) is not negligible it keeps that share of the raw error. Shipped for
    comparison.

    >>> star(np.array([0.5]), np.array([0.01])).value
    array([0.5])
    """
    shift = np.broadcast_to(np.asarray(bias, dtype=np.float64), observed.shape)
    soft, ridge = (method(observed, std_error, bias=shift, confidence=confidence) for method in (l1, l2))
    p_none = _mass_within(np.ones_like(observed), std_error, shift)
    p_soft = _mass_within(np.full_like(observed, 2.0), std_error, shift) - p_none
    p_ridge = 1 - p_none - p_soft
    value = p_none * observed + p_soft * soft.value + p_ridge * ridge.value
    slope = p_none + p_soft * soft.slope + p_ridge * ridge.slope
    return _summary(observed, std_error, shift, value, slope, soft.slope > 0)


def _mass_within(radius: FloatArray, std_error: FloatArray, bias: FloatArray) -> FloatArray:
    """P(|N(bias, std_error^2)| <= radius)."""
    return np.asarray(ndtr((radius - bias) / std_error) - ndtr((-radius - bias) / std_error))


def _summary(
    observed: FloatArray, std_error: FloatArray, bias: FloatArray, value: FloatArray, slope: FloatArray, kept: BoolArray
) -> Enhanced:
    """Attach the risk, and a standard error that counts the shrinkage's own bias."""
    centred = observed - bias
    # A value shrunk in proportion has bias (1 - slope) theta: pool theta^2 over those that were not kept.
    square = pooled_square(centred[~kept], std_error[~kept])
    shift = np.where(kept, (value - centred) ** 2, (1 - slope) ** 2 * square)
    error = np.sqrt((slope * std_error) ** 2 + shift)
    return Enhanced(value, error, slope, unbiased_risk(centred, std_error, value, slope), 0.0, 1.0)
