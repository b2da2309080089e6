"""Shrinkage that knows how much to shrink: James-Stein for unequal variances, and SureShrink."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from noisette._validate import FloatArray
from noisette.enhancement.stein import Enhanced, pooled_square, unbiased_risk

Target = Literal["grand-mean", "zero"]
_STEPS = 200


def james_stein(observed: FloatArray, std_error: FloatArray, *, target: Target = "grand-mean") -> Enhanced:
    """Pull all values toward their common mean, or toward zero, by as much as the data warrant.

    value = m + (1 - c a_j / sum_i a_i^2 (y_i - m)^2)_+ (y_j - m), with weights a_j > 0 of `_pull`, m the mean with
    weights v_j proportional to a_j / s_j^2, and c = sum_j s_j^2 a_j (1 - v_j) - 2 max_j s_j^2 a_j; no shrinkage when
    c <= 0. With target "zero", m = 0 and v = 0. With equal variances this is the classical positive-part rule, with
    constant d - 3, or d - 2 toward zero.

    *Utility.* For fixed weights, mean squared error at most the raw one at every truth: Stein's identity gives a risk
    of sum s^2 - c (2 c' - c) E[1 / sum a^2 (y - m)^2] with c' >= c, because s_j^2 v_j is proportional to a_j. The
    weights use the estimated spread of the truths, which costs a vanishing share. The standard error is that of a
    linear rule: k^2 s^2 + (1 - k)^2 (spread of the truths, with its own error, and error of m).

    James and Stein 1961; Tan 2015, Improved minimax estimation of a multivariate normal mean under
    heteroscedasticity, section 3.

    >>> james_stein(np.array([0.4, 0.5, 0.6, 0.5]), np.full(4, 1.0)).value
    array([0.5, 0.5, 0.5, 0.5])
    """
    if target not in ("grand-mean", "zero"):
        raise ValueError(f"Expected target={target!r} to be 'grand-mean' or 'zero'.")
    variance = std_error**2
    spread = truth_spread(observed, variance, target=target)
    pull = _pull(variance, spread)
    weight = pull / variance
    weight = weight / np.sum(weight) if target == "grand-mean" else np.zeros_like(weight)
    middle = float(np.sum(weight * observed))
    residual = observed - middle
    size = float(np.sum((pull * residual) ** 2))
    capped = variance * pull
    constant = max(0.0, float(np.sum(capped * (1 - weight)) - 2 * np.max(capped, initial=0.0)))
    share = constant / size if size > 0 else (math.inf if constant > 0 else 0.0)
    keep = np.maximum(1 - np.minimum(share, 1e300) * pull, 0.0)
    value = middle + keep * residual
    slope = weight + (1 - weight) * keep
    if size > 0 and constant > 0:
        tilt = pull**2 * residual - weight * np.sum(pull**2 * residual)
        slope = slope + np.where(keep > 0, 2 * constant * pull * residual * tilt / size**2, 0.0)
    scatter = spread + _spread_error(variance, spread) + _mean_error(variance, spread, target)
    error = np.sqrt(keep**2 * variance + (1 - keep) ** 2 * scatter)
    risk = unbiased_risk(observed, std_error, value, slope)
    return Enhanced(value, error, slope, risk, middle, math.sqrt(scatter) if observed.size > 1 else math.inf)


def truth_spread(observed: FloatArray, variance: FloatArray, *, target: Target = "grand-mean") -> float:
    """Return the variance g of the truths that makes sum (y - m)^2 / (s^2 + g) equal to its expectation.

    m is the mean with weights 1 / (s^2 + g), and the expectation d - 1; toward zero m = 0 and it is d. Zero when the
    data scatter less than their noise (Paule and Mandel 1982).

    >>> round(truth_spread(np.array([-3.0, 0.0, 3.0]), np.ones(3)), 6)
    8.0
    """
    free = observed.size - (target == "grand-mean")
    if free < 1:
        return 0.0
    scatter = float(np.var(observed) if target == "grand-mean" else np.mean(observed**2))
    spread = max(0.0, scatter - float(np.mean(variance)))
    # The equation's left side is convex and falling in g: from its left Newton's steps stay on the left.
    for _ in range(_STEPS):
        precision = 1 / (variance + spread)
        middle = np.sum(precision * observed) / np.sum(precision) if target == "grand-mean" else 0.0
        squares = precision * (observed - middle) ** 2
        excess = float(np.sum(squares)) - free
        fall = float(np.sum(precision * squares))
        if fall == 0:
            return 0.0
        following = max(0.0, spread + excess / fall)
        if abs(following - spread) <= 1e-12 * following:
            break
        spread = following
    return spread


def sure(observed: FloatArray, std_error: FloatArray) -> Enhanced:
    """Soft threshold at the multiple of the standard error that has the least estimated risk.

    value = sign(y) (|y| - l s)_+ with l minimising SURE(l) = sum s^2 (1 - 2 [|y| <= l s] + min(y^2 / s^2, l^2)),
    which is attained at 0 or at one of the |y| / s.

    *Utility.* Good when most truths are zero and a few are large; the estimated risk is slightly optimistic because
    its least value was picked. The standard error is sqrt(1 + l^2) s for values that are kept, and for those set to
    zero the size that their squares have together beyond noise.

    Donoho and Johnstone 1995, Adapting to unknown smoothness via wavelet shrinkage, section 2.

    >>> sure(np.array([5.0, 0.3, -0.2, 0.1]), np.ones(4)).value
    array([4.7, 0. , 0. , 0. ])
    """
    size = np.abs(observed) / std_error
    threshold = _least_risk(size, std_error**2)
    kept = size > threshold
    value = np.where(kept, observed - np.sign(observed) * threshold * std_error, 0.0)
    slope = np.where(kept, 1.0, 0.0)
    square = pooled_square(observed[~kept], std_error[~kept])
    error = np.where(kept, std_error * math.sqrt(1 + threshold**2), math.sqrt(square))
    return Enhanced(value, error, slope, unbiased_risk(observed, std_error, value, slope), 0.0, 1.0)


def _least_risk(size: FloatArray, variance: FloatArray) -> float:
    """Minimise SURE over the thresholds 0 and |y| / s."""
    order = np.argsort(size, kind="stable")
    steps, weight = size[order], variance[order]
    below = np.cumsum(weight)
    total = below[-1] if size.size else 0.0
    risk = total - 2 * below + np.cumsum(weight * steps**2) + (total - below) * steps**2
    best = int(np.argmin(risk)) if size.size else 0
    return float(steps[best]) if size.size and risk[best] < total else 0.0


def _pull(variance: FloatArray, spread: float) -> FloatArray:
    """Weights a_j that shrink noisy coordinates more, as far as safety allows.

    s_j^2 a_j = min(s_j^4 / (s_j^2 + g), M): Bayes weights for truths of variance g, cut at the M that maximises
    (sum s^2 a - 2 max s^2 a)^2 / sum a^2 (s^2 + g), the guaranteed gain. With k weights cut,
    M = (k - 2) / sum of (s^2 + g) / s^4 over them.
    """
    bayes = variance**2 / (variance + spread)
    if variance.size < 3:
        return np.asarray(bayes / variance)
    falling = np.sort(bayes)[::-1]
    cut = np.arange(1, variance.size + 1) - 2.0
    level = cut / np.cumsum(1 / falling)
    following = np.append(falling[1:], 0.0)
    first = int(np.argmax((cut > 0) & (level >= following)))
    return np.asarray(np.minimum(bayes, level[first]) / variance)


def _spread_error(variance: FloatArray, spread: float) -> float:
    """Standard error of the estimated spread of the truths."""
    precision = 1 / (variance + spread)
    return float(np.sqrt(2 / np.sum(precision**2))) if variance.size else 0.0


def _mean_error(variance: FloatArray, spread: float, target: Target) -> float:
    """Variance of the estimated common mean."""
    return float(1 / np.sum(1 / (variance + spread))) if target == "grand-mean" and variance.size else 0.0
