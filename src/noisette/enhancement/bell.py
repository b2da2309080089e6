"""Normal distributions of the truths: fitted to the data, fitted in units of the noise, and the one of HDR4ME L2."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from noisette._validate import FloatArray
from noisette.enhancement.prior import FOLDS, Posterior, by_fold
from noisette.enhancement.shrinkage import truth_spread

_L2 = float(ndtri(0.975))  # HDR4ME's confidence of 0.95


@dataclass(frozen=True)
class Ridge:
    """N(origin, s_j / 1.96), whose posterior mean y / (1 + 1.96 s) is HDR4ME L2; ``noise`` is the mean s_j.

    In heavy noise the variance stays at one, the largest that truths on [-1, 1] can have.
    """

    origin: float
    noise: float

    @property
    def moments(self) -> tuple[float, float]:
        """Mean and variance of a truth about which nothing was reported."""
        return self.origin, min(self.noise / _L2, 1.0)

    def slack(self, std_error: FloatArray) -> FloatArray:
        """Return zero: nothing is fitted."""
        return np.zeros_like(std_error)

    def posterior(self, observed: FloatArray, std_error: FloatArray) -> Posterior:
        """Return posteriors."""
        return _normal_posterior(observed, std_error, self.origin, np.minimum(std_error / _L2, 1.0))

    def held_out(self, observed: FloatArray, std_error: FloatArray) -> Posterior:
        """Return posteriors: no observation shaped the distribution."""
        return self.posterior(observed, std_error)


@dataclass(frozen=True)
class Bell:
    """A normal distribution fitted to all observations, and to those outside of each fold.

    Each of ``parts`` is mean, the variance of that mean as an estimate, and spread; the first one is of all. With
    ``tied`` the quotients of truth and noise follow the distribution, not the truths; ``noise`` holds the mean standard
    error and its mean square.
    """

    parts: tuple[tuple[float, float, float], ...]
    origin: float
    tied: bool
    noise: tuple[float, float]

    @classmethod
    def fit(cls, observed: FloatArray, std_error: FloatArray, *, origin: float = 0.0, tied: bool = False) -> Bell:
        """Fit to all, and without every fifth coordinate from each start."""
        distance = observed - origin
        y, variance = (distance / std_error, np.ones_like(distance)) if tied else (distance, std_error**2)
        parts = [_fitted(y, variance)]
        for fold in range(FOLDS):
            rest = np.ones(y.size, dtype=bool)
            rest[fold::FOLDS] = y.size <= 1
            parts.append(_fitted(y[rest], variance[rest]))
        return cls(tuple(parts), origin, tied, (float(np.mean(std_error)), float(np.mean(std_error**2))))

    @property
    def moments(self) -> tuple[float, float]:
        """Mean and variance of a truth about which nothing was reported."""
        mean, doubt, spread = self.parts[0]
        if not self.tied:
            return self.origin + mean, spread + doubt
        level, square = self.noise
        return self.origin + mean * level, (spread + doubt) * square + mean**2 * (square - level**2)

    def slack(self, std_error: FloatArray) -> FloatArray:
        """Return what the standard error of the spread adds to the squared error of each value."""
        _, _, spread = self.parts[0]
        unit = std_error if self.tied else np.ones_like(std_error)
        total = (std_error / unit) ** 2 + spread
        keep = spread / total
        return np.asarray((unit * (1 - keep)) ** 2 * math.sqrt(2 / float(np.sum(total**-2.0))))

    def posterior(self, observed: FloatArray, std_error: FloatArray) -> Posterior:
        """Return posteriors under the fit to everyone."""
        return self._posterior(observed, std_error, self.parts[0])

    def held_out(self, observed: FloatArray, std_error: FloatArray) -> Posterior:
        """Return posteriors under fits that did not see the observation."""
        return by_fold(
            observed.size, lambda fold, own: self._posterior(observed[own], std_error[own], self.parts[1 + fold])
        )

    def _posterior(self, observed: FloatArray, std_error: FloatArray, prior: tuple[float, float, float]) -> Posterior:
        mean, doubt, spread = prior
        unit = std_error if self.tied else np.ones_like(std_error)
        y, noise = (observed - self.origin) / unit, (std_error / unit) ** 2
        answer = _normal_posterior(y, np.sqrt(noise), mean, spread, doubt)
        return Posterior(self.origin + unit * answer.mean, unit**2 * answer.variance, answer.log_density - np.log(unit))


def _normal_posterior(
    observed: FloatArray, std_error: FloatArray, mean: float, spread: float | FloatArray, doubt: float = 0.0
) -> Posterior:
    """Return posteriors under N(mean, spread), the mean itself being uncertain with variance ``doubt``."""
    noise = std_error**2
    keep = spread / (noise + spread)
    total = noise + spread + doubt
    return Posterior(
        mean + keep * (observed - mean),
        keep * noise + (1 - keep) ** 2 * doubt,
        -((observed - mean) ** 2) / (2 * total) - np.log(2 * math.pi * total) / 2,
    )


def _fitted(observed: FloatArray, variance: FloatArray) -> tuple[float, float, float]:
    """Mean, its variance as an estimate, and spread."""
    spread = truth_spread(observed, variance)
    precision = 1 / (variance + spread)
    return float(np.sum(precision * observed) / np.sum(precision)), float(1 / np.sum(precision)), spread
