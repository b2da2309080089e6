"""Noise that is correlated over rounds, so that the sum of all steps has less of it: banded Toeplitz strategies.

Let s_t be the sum of the clipped updates of round t. The server releases y = C s + z with independent noise z, C a
lower triangular Toeplitz matrix of few bands, and trains with x = C^-1 y = s + C^-1 z. A model is a prefix sum of x, so
its noise is that of A C^-1 z, A the matrix of ones below the diagonal: the error that C is chosen for
(Kairouz et al. 2021; Choquette-Choo et al. 2023, "(Amplified) Banded Matrix Factorization").

A client whose rounds are at least as far apart as there are bands changes other entries of C s each time, and each time
by no more than |c|, the length of a column. Privacy rests on that length, which is computed exactly: the coefficients
are multiples of 2^-12.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from noisette import _validate
from noisette._validate import FloatArray

DENOMINATOR = 1 << 12  # of the coefficients: coarser ones would cost accuracy, finer ones bits of the lattice


@dataclass(frozen=True)
class BandedStrategy:
    """The first column of C, in multiples of 2^-12; one band is independent noise.

    >>> BandedStrategy.independent().norm
    1.0
    >>> strategy = BandedStrategy.optimal(rounds=100, bands=10)
    >>> round(strategy.error(100) / BandedStrategy.independent().error(100), 3)
    0.172
    """

    numerators: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.numerators or self.numerators[0] <= 0:
            raise ValueError(f"Expected numerators={self.numerators} that begin above 0: C has an inverse only then.")

    @classmethod
    def independent(cls) -> BandedStrategy:
        """Return the strategy of independent noise: C is the unit matrix."""
        return cls((DENOMINATOR,))

    @classmethod
    def optimal(cls, rounds: int, bands: int) -> BandedStrategy:
        """Return the Toeplitz matrix of this many bands whose prefix sums have the least mean squared error."""
        rounds = _validate.integer(rounds, "rounds", low=1)
        bands = _validate.integer(bands, "bands", low=1)
        return _optimal(rounds, min(bands, rounds))

    @property
    def bands(self) -> int:
        """Number of bands."""
        return len(self.numerators)

    @cached_property
    def column(self) -> FloatArray:
        """The first column of C."""
        return np.asarray(self.numerators, dtype=np.float64) / DENOMINATOR

    @cached_property
    def norm(self) -> float:
        """Euclidean length of a column, never below the truth."""
        square = sum(number * number for number in self.numerators)
        root = math.isqrt(square)
        if root * root == square:
            return root / DENOMINATOR
        return math.nextafter(math.sqrt(square), math.inf) / DENOMINATOR

    def filtered(self, rounds: int) -> FloatArray:
        """Return the first column of C^-1."""
        return _reciprocal(self.column, rounds)

    def error(self, rounds: int) -> float:
        """Return the mean squared error of the models, in units of the variance of independent noise of one round.

        Formula: |c|^2 sum_j (n - j) b_j^2 / n, b the first column of A C^-1; it is (n + 1) / 2 without correlation.
        """
        return _error(self.column, rounds)[0] / rounds


def _reciprocal(column: FloatArray, rounds: int) -> FloatArray:
    """Return the first coefficients of one over a power series."""
    from scipy.signal import lfilter

    impulse = np.zeros(rounds)
    impulse[0] = 1.0
    return np.asarray(lfilter([1.0], column, impulse))


def _error(column: FloatArray, rounds: int) -> tuple[float, FloatArray]:
    """Return |c|^2 sum_j (n - j) b_j^2 and its gradient in c."""
    from scipy.signal import fftconvolve

    inverse = _reciprocal(column, rounds)
    prefix, weights = np.cumsum(inverse), np.arange(rounds, 0, -1.0)
    total, square = float(weights @ prefix**2), float(column @ column)
    # d inverse_m / d c_k = -(inverse * inverse)_(m - k)
    by_inverse = np.cumsum((2 * weights * prefix)[::-1])[::-1]
    twice = fftconvolve(inverse, inverse)[:rounds]
    by_column = -np.asarray([by_inverse[k:] @ twice[: rounds - k] for k in range(len(column))])
    return square * total, 2 * column * total + square * by_column


@lru_cache(maxsize=64)
def _optimal(rounds: int, bands: int) -> BandedStrategy:
    from scipy.optimize import minimize

    if bands == 1:
        return BandedStrategy.independent()
    # the square root of A, which is near the optimum for as many bands as rounds (Fichtenberger et al. 2023)
    start = np.cumprod(np.concatenate([[1.0], (2 * np.arange(1, bands) - 1) / (2 * np.arange(1, bands))]))

    def height(tail: FloatArray) -> tuple[float, FloatArray]:
        column = np.concatenate([[1.0], tail])
        error, gradient = _error(column, rounds)
        return math.log(error), gradient[1:] / error

    found = minimize(height, start[1:], jac=True, method="L-BFGS-B", options={"maxiter": 500})
    column = np.concatenate([[1.0], found.x])
    column /= np.linalg.norm(column)
    return BandedStrategy(tuple(round(float(value) * DENOMINATOR) for value in column))
