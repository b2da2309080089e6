"""Stein's unbiased risk estimate: what an enhancement is worth, from the data alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from noisette._validate import FloatArray


@dataclass(frozen=True)
class Enhanced:
    """A repaired vector with its errors, on the scale where the domain is [-1, 1].

    ``slope`` is the derivative of each value by its own observation. ``risk`` estimates each squared error without
    bias; one entry is noisy and may be negative, sums are what it is for. ``blank_value`` and ``blank_error`` are what
    the method says of a coordinate that nobody reported: the same of each, or one entry for each in their order.
    """

    value: FloatArray
    std_error: FloatArray
    slope: FloatArray
    risk: FloatArray
    blank_value: float | FloatArray = 0.0
    blank_error: float | FloatArray = math.inf
    name: str = ""


def unbiased_risk(observed: FloatArray, std_error: FloatArray, value: FloatArray, slope: FloatArray) -> FloatArray:
    """Return Stein's estimate of the squared error of each coordinate of ``value``.

    For y ~ N(theta, s^2) and a weakly differentiable h: E (h(y) - theta)^2 = E[(h - y)^2 - s^2 + 2 s^2 dh/dy].

    Stein 1981, Estimation of the mean of a multivariate normal distribution, theorem 1.

    >>> unbiased_risk(np.array([2.0]), np.array([1.0]), np.array([0.0]), np.array([0.0]))
    array([3.])
    """
    variance = std_error**2
    return np.asarray((value - observed) ** 2 + variance * (2 * slope - 1))


def clipped(observed: FloatArray, std_error: FloatArray, result: Enhanced) -> Enhanced:
    """Project a result on [-1, 1]: no value moves away from a truth inside."""
    inside = np.abs(result.value) <= 1
    if np.all(inside):
        return result
    value, slope = np.clip(result.value, -1.0, 1.0), np.where(inside, result.slope, 0.0)
    risk = np.where(inside, result.risk, unbiased_risk(observed, std_error, value, slope))
    return replace(result, value=value, slope=slope, risk=risk)


def pooled_square(observed: FloatArray, std_error: FloatArray) -> float:
    """Return the mean square of the truths behind noisy values, plus one standard error of it.

    The mean of y^2 - s^2 is unbiased but may fall below zero by chance; the standard error covers that.
    """
    if observed.size == 0:
        return 0.0
    variance = std_error**2
    signal = observed**2 - variance
    noise = np.sum(2 * variance**2 + 4 * variance * np.maximum(signal, 0.0))
    return max(0.0, float(np.mean(signal))) + math.sqrt(noise) / observed.size
