"""The chance that a correlated Gaussian vector lies in a box."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr, ndtri

from noisette._validate import FloatArray

_POINTS = 8192
_SHIFTS = 4  # of the lattice, against bad luck
_RIDGE = 1e-10


def box_probability(low: FloatArray, high: FloatArray, correlation: FloatArray) -> float:
    """Return P(low <= Z <= high) for Z ~ N(0, correlation), by separation of variables on a lattice.

    One variable after the other is drawn inside its interval given those before, the narrowest first; the product of
    the chances of the intervals is averaged over points i sqrt(p_j) mod 1, p_j the primes, folded in the middle.

    Genz 1992, Numerical computation of multivariate normal probabilities; the lattice is Richtmyer's.

    >>> round(box_probability(np.zeros(2), np.full(2, np.inf), np.array([[1.0, 0.5], [0.5, 1.0]])), 4)
    0.3333
    """
    order = np.argsort(ndtr(high) - ndtr(low), kind="stable")
    low, high = low[order], high[order]
    matrix = correlation[np.ix_(order, order)]
    factor = np.linalg.cholesky(matrix + _RIDGE * np.eye(low.size))
    steps = np.sqrt(_primes(low.size))
    index = np.arange(1, _POINTS // _SHIFTS + 1)[:, None]
    shifts = np.random.default_rng(0).random((_SHIFTS, 1, low.size))
    points = np.concatenate([np.abs(2 * ((index * steps + shift) % 1.0) - 1) for shift in shifts])
    chance = np.ones(len(points))
    drawn = np.zeros((len(points), low.size))
    for j in range(low.size):
        centre = drawn[:, :j] @ factor[j, :j]
        below, above = ndtr((low[j] - centre) / factor[j, j]), ndtr((high[j] - centre) / factor[j, j])
        width = above - below
        chance *= width
        inside = np.clip(below + points[:, j] * width, 1e-300, 1 - 1e-16)
        drawn[:, j] = ndtri(inside)
    return float(np.clip(chance.mean(), 0.0, 1.0))


def _primes(count: int) -> FloatArray:
    """Return the first primes."""
    limit = max(16, int(count * (np.log(count + 2) + np.log(np.log(count + 2) + 1) + 1)) + 10)
    sieve = np.ones(limit + 1, dtype=bool)
    sieve[:2] = False
    for number in range(2, int(limit**0.5) + 1):
        if sieve[number]:
            sieve[number**2 :: number] = False
    return np.flatnonzero(sieve)[:count].astype(np.float64)
