"""TLDP as its authors print it: the scale of the noise and the chance to keep an entry, in both readings."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from noisette._validate import FloatArray
from noisette.mechanisms.tensor.retain.laws import AddedNoise, RoundedGaussian, RoundedLaplace

_HALF_LINE = math.sqrt(2 / math.pi)


@dataclass(frozen=True)
class RealLaplace(AddedNoise):
    """Continuous Laplace noise; `log_mass` is a log density per step."""

    rate: float

    @property
    def absolute(self) -> tuple[float, float, float]:
        return 1 / self.rate, 2 / self.rate**2, 6 / self.rate**3

    def log_mass(self, noise: FloatArray) -> FloatArray:
        """Return ln(rate / 2) - rate |z|."""
        return np.asarray(math.log(self.rate / 2) - self.rate * np.abs(noise))

    def sample(self, rng: np.random.Generator, size: int) -> FloatArray:
        """Draw the noise from a floating-point generator."""
        return rng.laplace(scale=1 / self.rate, size=size)


@dataclass(frozen=True)
class RealGaussian(AddedNoise):
    """Continuous normal noise; `log_mass` is a log density per step."""

    sigma: float

    @property
    def absolute(self) -> tuple[float, float, float]:
        return _HALF_LINE * self.sigma, self.sigma**2, 2 * _HALF_LINE * self.sigma**3

    def log_mass(self, noise: FloatArray) -> FloatArray:
        """Return -z^2 / (2 sigma^2) less the log normaliser."""
        return np.asarray(-0.5 * (noise / self.sigma) ** 2 - math.log(self.sigma * math.sqrt(2 * math.pi)))

    def sample(self, rng: np.random.Generator, size: int) -> FloatArray:
        """Draw the noise from a floating-point generator."""
        return rng.normal(scale=self.sigma, size=size)


PublishedNoise = RealLaplace | RealGaussian | RoundedLaplace | RoundedGaussian


@dataclass(frozen=True)
class Published:
    """The paper's noise in steps of the grid, and its chance to keep an entry of weight zero."""

    noise: PublishedNoise
    p_keep: float


def published_law(
    noise: str, retention: str, *, epsilon: float, levels: int, size: int, rounded: bool = False
) -> Published:
    """Return what Algorithm 1, or Algorithm 2 and the proofs, print for whole numbers 0, ..., Delta - 1.

    Laplace: b = Delta / e, p = q / (2b + q), q = exp(e - D/b), D = Delta in Algorithm 1 and I Delta in the proofs.
    Gaussian: s^2 = Delta^2 / (2e), p = q / (s sqrt(2 pi) + q), q = exp(-Delta^2 / (2 s^2)) in Algorithm 1 and
    exp(e - I Delta^2 / (2 s^2)) in the proofs. With the noise put in, q is 1, exp(-e) or exp(e - I e).
    Yuan, Tang, Huang, Wu, Wang 2025, Algorithms 1 and 2.

    >>> law = published_law("laplace", "algorithm-1", epsilon=1.0, levels=256, size=784)
    >>> round(1 / law.p_keep)
    513
    """
    in_proofs = math.exp(epsilon - size * epsilon)
    if noise == "laplace":
        rate = epsilon / levels
        q = 1.0 if retention == "algorithm-1" else in_proofs
        width = 2 / rate
        return Published(RoundedLaplace(rate) if rounded else RealLaplace(rate), q / (width + q))
    sigma = levels / math.sqrt(2 * epsilon)
    q = math.exp(-epsilon) if retention == "algorithm-1" else in_proofs
    width = sigma * math.sqrt(2 * math.pi)
    return Published(RoundedGaussian(sigma) if rounded else RealGaussian(sigma), q / (width + q))
