"""What the domain alone gives: the projection on it, and the mean under a flat prior on it."""

from __future__ import annotations

import math

import numpy as np

from noisette._validate import FloatArray
from noisette.enhancement.stein import Enhanced, clipped, unbiased_risk

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)
_BLOCK = 1 << 11


def box(observed: FloatArray, std_error: FloatArray) -> Enhanced:
    """Project on [-1, 1].

    *Utility.* Never farther from a truth inside, whatever the noise, because the projection on a convex set is a
    contraction. The standard error is the raw one, or the farthest that a truth inside can be.

    >>> box(np.array([1.4, 0.2]), np.array([0.5, 0.5])).value
    array([1. , 0.2])
    """
    raw = Enhanced(observed, std_error, np.ones_like(observed), std_error**2, 0.0, 1.0)
    return clipped(observed, std_error, raw)


def uniform_prior(observed: FloatArray, std_error: FloatArray) -> Enhanced:
    """Return posterior means and deviations under a flat prior on [-1, 1].

    E[theta | y] = int t exp(-(y - t)^2 / 2 s^2) dt / int exp(-(y - t)^2 / 2 s^2) dt, over [-1, 1].

    *Utility.* For normal noise, mean squared error at most that of the raw estimate at every truth inside, in any
    number of dimensions (Hartigan 2004, Uniform priors on convex sets improve risk, theorem 1). Better than the
    projection but for truths near the ends.

    >>> uniform_prior(np.array([3.0]), np.array([1e6])).value.round(6)
    array([0.])
    """
    value, variance = np.empty_like(observed), np.empty_like(observed)
    for start in range(0, observed.size, _BLOCK):
        block = slice(start, start + _BLOCK)
        value[block], variance[block], _ = flat_posterior(observed[block], std_error[block])
    slope = variance / std_error**2
    risk = unbiased_risk(observed, std_error, value, slope)
    return Enhanced(value, np.sqrt(variance), slope, risk, 0.0, 1 / math.sqrt(3))


def flat_posterior(observed: FloatArray, std_error: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return posterior mean, posterior variance and log marginal density under the flat prior on [-1, 1].

    By quadrature over the stretch that carries the mass: stable for any deviation and any distance from the domain.
    """
    mode = np.clip(observed, -1.0, 1.0)
    beyond = mode - observed
    # Past an end the density falls like exp(-beyond * distance / s^2): forty such lengths, or ten deviations.
    reach = std_error * np.minimum(10.0, 40 * std_error / np.maximum(np.abs(beyond), std_error))
    low, high = np.maximum(mode - reach, -1.0), np.minimum(mode + reach, 1.0)
    half = (high - low) / 2
    offset = half[:, None] * (_NODES + 1) + (low - mode)[:, None]
    unit = std_error[:, None]
    density = _WEIGHTS * np.exp(-(offset / unit) * ((offset / 2 + beyond[:, None]) / unit))
    mass = density.sum(axis=1)
    density /= mass[:, None]
    mean = np.sum(density * offset, axis=1)
    variance = np.sum(density * (offset - mean[:, None]) ** 2, axis=1)
    height = -((beyond / std_error) ** 2) / 2 - np.log(std_error) - math.log(2 * math.sqrt(2 * math.pi))
    # Far outside with hardly any noise the stretch is too short for float64; the height alone then decides.
    return mode + mean, variance, height + np.log(np.maximum(half * mass, np.finfo(np.float64).tiny))
