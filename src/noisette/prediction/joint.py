"""The Gaussian model of all estimated quantities together, and the chance that all of them lie in a box."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri

from noisette import _validate
from noisette._search import narrowed
from noisette._special import gauss_legendre
from noisette._validate import FloatArray
from noisette.core import Mechanism
from noisette.prediction.model.correlations import covariance
from noisette.prediction.model.deviations import Deviation, deviation

_POINTS = 8192
_SHIFTS = 4  # random shifts of the lattice, whose results are averaged
_RIDGE = 1e-10
_NODES = 400  # of the integral over a scale of the squared length


@dataclass(frozen=True, eq=False)
class JointDeviation:
    """Estimates minus truths, approximately N(bias, covariance) jointly.

    ``marginal`` is the `Deviation` of each quantity. ``correlation`` is None where the quantities are independent, or
    where only bounds of their dependence are known: see ``exact``.
    """

    marginal: Deviation
    correlation: FloatArray | None
    exact: bool

    @property
    def bias(self) -> FloatArray:
        """Mean deviation of each quantity."""
        return np.atleast_1d(self.marginal.bias)

    @property
    def std(self) -> FloatArray:
        """Standard deviation of each quantity."""
        return np.atleast_1d(self.marginal.std)

    @cached_property
    def covariance(self) -> FloatArray:
        """Covariance matrix."""
        if self.correlation is None:
            return np.diag(self.std**2)
        return np.asarray(self.correlation * np.outer(self.std, self.std))

    @property
    def mse(self) -> float:
        """Mean squared error averaged over the quantities (Duan 2024, equation 4.10)."""
        return float(np.mean(self.bias**2 + self.std**2))

    def probability_within(self, xi: Any) -> float:
        """Return the probability that every deviation is at most its ``xi`` in absolute value.

        Of independent quantities it is the product of their probabilities (Duan 2024, Theorem 1). Else the multivariate
        normal integral is computed by separation of variables, on 8,192 points of a lattice: it errs by some 1e-3 at
        most. Where the dependence is unknown the product is returned, a lower bound for unbiased quantities (Sidak
        1967).
        """
        radius = np.asarray(xi, dtype=float)
        if not np.all(radius >= 0):
            raise ValueError(f"Expected xi={xi!r} >= 0: it bounds absolute deviations.")
        if self.correlation is None:
            kinds = self._distinct if radius.ndim == 0 else (self.bias, self.std, np.ones(self.bias.size))
            return float(np.exp(_log_product(radius, *kinds)))
        low, high = (-radius - self.bias) / self.std, (radius - self.bias) / self.std
        return box_probability(low, high, self.correlation)

    @cached_property
    def _distinct(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Bias and standard deviation of quantities that differ, and how many there are of each."""
        pairs, counts = np.unique(np.stack([self.bias, self.std], axis=1), axis=0, return_counts=True)
        return pairs[:, 0], pairs[:, 1], counts.astype(np.float64)

    def supremum(self, level: float = 0.95) -> float:
        """Return the bound that all absolute deviations keep together with probability ``level``."""
        if not 0 < level < 1:
            raise ValueError(f"Expected level={level!r} in (0, 1), e.g. 0.95.")
        low = float(np.max(self.marginal.supremum(level)))
        each = 1 - (1 - level) / self.bias.size
        high = float(np.max(self.marginal.supremum(each)))  # Bonferroni
        return narrowed(lambda radius: self.probability_within(radius) < level, low, high, tolerance=1e-9)[1]

    @property
    def expected_supremum(self) -> float:
        """Mean of the largest absolute deviation: the integral of the chance that it is exceeded."""
        edge = float(np.max(np.abs(self.bias) + 9 * self.std)) + float(self.std.max())
        middle = float(np.max(np.abs(self.bias)))
        nodes, weights = gauss_legendre(48)
        total = 0.0
        spread = float(self.std.max())
        cuts = sorted({0.0, middle, min(edge, middle + 3 * spread), min(edge, middle + 6 * spread), edge})
        for low, high in pairwise(cuts):
            half = (high - low) / 2
            for node, weight in zip(low + half * (nodes + 1), weights, strict=True):
                total += half * weight * (1 - self.probability_within(float(node)))
        return total

    @property
    def expected_l2(self) -> float:
        """Mean Euclidean length of the deviation.

        E sqrt(Q) = (1 / (2 sqrt(pi))) int_0^inf (1 - E exp(-s Q)) s^(-3/2) ds for the squared length Q, whose Laplace
        transform is a product over the eigenvalues of the covariance.
        """
        if self.correlation is None:
            bias, std, counts = self._distinct
            spectrum, shift = std**2, bias**2
        else:
            spectrum, vectors = np.linalg.eigh(self.covariance)
            spectrum, shift, counts = np.maximum(spectrum, 0.0), (vectors.T @ self.bias) ** 2, np.ones(spectrum.size)
        total = float(counts @ (spectrum + shift))
        if total == 0:
            return 0.0
        logs = np.linspace(-34.0, 34.0, _NODES)
        scale = np.exp(logs) / total
        decay = np.asarray(
            [-counts @ (0.5 * np.log1p(2 * s * spectrum) + s * shift / (1 + 2 * s * spectrum)) for s in scale]
        )
        integrand = -np.expm1(decay) / np.sqrt(scale)
        area = float(np.sum((integrand[1:] + integrand[:-1]) / 2) * (logs[1] - logs[0]))
        # below the first node 1 - E exp(-s Q) = s E Q, beyond the last one it is 1
        return (area + 2 * total * math.sqrt(scale[0]) + 2 / math.sqrt(scale[-1])) / (2 * math.sqrt(math.pi))


def joint(
    mechanism: Mechanism, *, users: int, values: Any = None, probs: Any = None, distribution: str | None = None
) -> JointDeviation:
    """Predict the deviations of all dimensions or frequencies together.

    Formula: N(delta, Sigma); the diagonal as for `deviation`. A user who reports m of d dimensions leaves others out:
    Sigma_jk = -C_jk (d - m) / ((d - 1) m n), C the covariance of the mean reports among users. A report about a whole
    vector has Sigma_jk = c E[x_j x_k] / n with the mechanism's own c, and one about a category the covariances of its
    supported categories. Duan 2024 takes all of them for zero.

    The true values are given as for `deviation`. Rows that are whole vectors, or records, show how dimensions depend on
    each other; with one distribution for all of them dimensions are taken for independent; without values each is at
    its worst. Above 4,096 quantities dependence is left out: it is at most 1 / (d - 1) between two of them.

    *Utility*: of plain averages of reports, see `deviation`.
    Duan 2024, Theorem 1.

    >>> from noisette import Sampled
    >>> together = joint(Sampled("piecewise", epsilon=4.0, dims=50, report=2), users=10_000, distribution="uniform")
    >>> round(together.supremum(0.95) / float(together.marginal.supremum(0.95)[0]), 2)
    1.68
    """
    users = _validate.integer(users, "users", low=1)
    marginal = deviation(mechanism, users=users, values=values, probs=probs, distribution=distribution)
    size = math.prod(mechanism.domain.shape)
    if np.ndim(marginal.std) == 0 and size > 1:
        marginal = _repeated(marginal, size)
    known = values is not None or distribution is not None
    matrix, exact = covariance(mechanism, users, values, probs, distribution) if known else (None, False)
    spread = np.atleast_1d(marginal.std)
    if matrix is None:
        return JointDeviation(marginal, None, exact)
    with np.errstate(divide="ignore", invalid="ignore"):
        correlation = np.nan_to_num(matrix / np.outer(spread, spread))
    np.fill_diagonal(correlation, 1.0)
    return JointDeviation(marginal, correlation, exact)


def _log_product(radius: FloatArray, bias: FloatArray, std: FloatArray, counts: FloatArray) -> float:
    """Return the sum of the logs of the probabilities of all quantities."""
    near, far = (radius - np.abs(bias)) / std, (-radius - np.abs(bias)) / std
    with np.errstate(divide="ignore"):
        # where the interval is far from the mean, both tails are small and so is their difference
        inside = log_ndtr(near) + np.log1p(-np.exp(np.minimum(log_ndtr(far) - log_ndtr(near), 0.0)))
    return float(counts @ inside)


def _repeated(one: Deviation, size: int) -> Deviation:
    """Return the prediction of one dimension for ``size`` dimensions alike."""
    bias, std, third = (np.full(size, number) for number in (one.bias, one.std, one.third))
    return Deviation(bias, std, third, one.reports, one.range)


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
            sieve[number * number :: number] = False
    return np.flatnonzero(sieve)[:count].astype(np.float64)
