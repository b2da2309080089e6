"""Gaussian noise with the analytic calibration, on a fine lattice or on a grid of your own."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np

from noisette import _validate
from noisette._search import narrowed
from noisette.core import Capabilities, ConcentratedEvent, EventDeclared, GaussianEvent
from noisette.domains import Grid, Interval
from noisette.guarantees import Claim, Guarantee, gaussian_delta, gaussian_mu
from noisette.mechanisms.scalar._additive import AdditiveMechanism, GaussianNoise

_WIDER = 1 + 2.0**-40  # more than float64 errs in delta, and what the verifier's enclosures need
_CLOSED = 1000.0  # from this sigma on, in steps, the closed form of real noise is taken; verifiers sum up to 1,024
_SUMMED = 2.0**10  # up to this sigma, in steps, delta is summed; above, the integral errs by less than 1000 / sigma^2


class _GaussianMechanism(AdditiveMechanism, EventDeclared):
    """Calibration and guarantee that both Gaussian mechanisms share."""

    delta: float
    capabilities: ClassVar[Capabilities] = Capabilities((Interval,), delta="needed", unbounded=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "delta", _validate.delta(self.delta, positive=True))

    @property
    def guarantee(self) -> Guarantee:
        """Return the (epsilon, delta) guarantee: no pure one holds."""
        return Guarantee(self.epsilon, self.delta, claim=Claim(self.epsilon, self.delta, source=self.citation))

    @cached_property
    def _spread(self) -> float:
        return self.domain.diameter / gaussian_mu(self.epsilon, self.delta)

    @cached_property
    def _noise(self) -> GaussianNoise:
        return GaussianNoise(lattice_sigma(self._steps, self.epsilon, self.delta))

    @property
    def sigma(self) -> float:
        """Scale of the noise, in units of the domain."""
        return self._noise.sigma * self._step

    @property
    def rho(self) -> float:
        """One report is rho-zCDP, rounding included (Canonne, Kamath, Steinke 2020, Theorem 4)."""
        return (self._steps / self._noise.sigma) ** 2 / 2

    def privacy_event(self) -> GaussianEvent | ConcentratedEvent:
        """Return what accounting composes: on a grid the noise is concentrated, and not quite normal."""
        return ConcentratedEvent(self.rho)


@dataclass(frozen=True)
class Gaussian(_GaussianMechanism):
    """Add Gaussian noise of the least scale that meets (epsilon, delta).

    Formula: report = x + N(0, s^2) with Phi(m/2 - e/m) - exp(e) Phi(-m/2 - e/m) = delta, m = (high - low) / s.

    *Guarantee*: (epsilon, delta)-LDP for one value, rounding included; no pure epsilon holds.
    *Utility*: unbiased; variance s^2 at every value.
    Balle, Wang 2018, Theorem 8; exact sampling by Canonne, Kamath, Steinke 2020.

    >>> m = Gaussian(epsilon=1.0, delta=1e-5, domain=Interval(0, 1))
    >>> round(m.sigma, 3)
    3.731
    """

    epsilon: float
    delta: float = 1e-6
    _: KW_ONLY
    domain: Interval = Interval()  # noqa: RUF009
    name: ClassVar[str] = "gaussian"
    capabilities: ClassVar[Capabilities] = replace(_GaussianMechanism.capabilities, gaussian=True)
    citation: ClassVar[str] = "balle2018improving"

    @property
    def mu(self) -> float:
        """One report is mu-GDP, rounding included; on a lattice this fine to within a relative 1e-9."""
        return self._steps / self._noise.sigma * (1 + 1e-9)

    def privacy_event(self) -> GaussianEvent:
        """Return what accounting composes."""
        return GaussianEvent(self.mu)


@dataclass(frozen=True)
class DiscreteGaussian(_GaussianMechanism):
    """Add exact discrete Gaussian noise to values of a grid.

    Formula: P(k) proportional to exp(-k^2 / (2 s^2)), k in steps of the grid, s the least with
    sum_k (P(k) - exp(e) P(k - K))_+ <= delta, K the diameter in steps.

    *Guarantee*: (epsilon, delta)-LDP for one value; no pure epsilon holds.
    *Utility*: unbiased; variance at most s^2 squared steps.
    Canonne, Kamath, Steinke 2020, Theorem 7.

    >>> m = DiscreteGaussian(epsilon=1.0, domain=Grid(0, 10))
    >>> bool((m.privatize([3, 10], rng=7) % 1 == 0).all())
    True
    """

    epsilon: float
    delta: float = 1e-6
    _: KW_ONLY
    domain: Grid = Grid(-1.0, 1.0, 2.0**-6)  # noqa: RUF009
    name: ClassVar[str] = "discrete-gaussian"
    citation: ClassVar[str] = "canonne2020discrete"
    capabilities: ClassVar[Capabilities] = replace(_GaussianMechanism.capabilities, domains=(Grid,))
    fine: ClassVar[bool] = False


def lattice_delta(sigma: float, steps: int, epsilon: float) -> float:
    """Return delta(epsilon) of discrete Gaussian noise between values ``steps`` apart, with what float64 may err."""
    if sigma > _SUMMED:
        return float(gaussian_delta(steps / sigma, epsilon)) * (1 + 1000 / sigma**2)
    # P(k) > exp(e) P(k - K) exactly for k < K/2 - e s^2 / K; here the signs of k are turned around
    reach = max(200, math.ceil(40 * sigma))  # beyond, all mass together is below exp(-790)
    first = max(math.ceil(epsilon * sigma**2 / steps - steps / 2), -reach)
    k = np.arange(float(first), max(first, 0) + reach)
    normaliser = math.log(np.exp(-0.5 * (np.arange(-reach, reach + 1.0) / sigma) ** 2).sum())
    near, far = (-0.5 * (shifted / sigma) ** 2 - normaliser for shifted in (k, k + steps))
    mass = np.exp(near)
    excess = np.maximum(mass - np.exp(np.minimum(far + epsilon, near)), 0.0)
    rounding = 2.0**-53 * mass * (64 + 4 * (np.abs(near) + np.minimum(np.abs(far), epsilon - near)))
    return float((excess + rounding).sum())


@lru_cache(maxsize=256)
def lattice_sigma(steps: int, epsilon: float, delta: float) -> float:
    """Return a sigma, in steps, that is (epsilon, delta)-DP between values ``steps`` apart.

    Up to 1,000 it is the least, by bisection. Beyond, it is the root of s^2 + 4, s that of real noise: real noise that
    is rounded to whole steps at random, with a spread of 2 steps, has this law but for one part in 2^100 (Peikert 2010,
    Theorem 3.1). So the closed form of real noise proves it, and proves several answers together.
    """
    real = steps / (gaussian_mu(epsilon, delta) * (1 - 1e-12))
    if real > _CLOSED:
        return math.sqrt(real**2 + 4) * _WIDER
    high = 2 * real
    low = high / 4
    while lattice_delta(low, steps, epsilon) <= delta:
        low, high = low / 2, low
    while lattice_delta(high, steps, epsilon) > delta:
        low, high = high, high * 2
    least = narrowed(lambda sigma: lattice_delta(sigma, steps, epsilon) > delta, low, high, tolerance=1e-14)[1]
    return least * _WIDER
