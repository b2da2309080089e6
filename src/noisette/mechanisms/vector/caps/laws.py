"""Caps of a sphere, and half-spaces under the normal law: their mass, their mean, and draws from both sides.

T = <u, v> is the component of a random vector u along a fixed unit vector v. A cap is {T >= gamma}. All that a
mechanism that prefers the cap needs to know about u follows from the law of T and from the law of one coordinate
orthogonal to v.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np

from noisette._random import ULP
from noisette._search import narrowed
from noisette._special import betainc, betaincc, erf, gauss_legendre, log_ndtr
from noisette._validate import FloatArray
from noisette.cells import up
from noisette.mechanisms.vector._vectors import log_half_beta
from noisette.mechanisms.vector.caps.draws import NormalTail, Proposal, sphere_proposal
from noisette.mechanisms.vector.caps.masses import normal_mass, sphere_mass

Pair = tuple[FloatArray, FloatArray]

_LEAST_SINE = 2.0**-10  # of the smallest cap: its height stays far above the step of the lattice
_LEAST_PLAIN = 2.0**-36  # chance of a report without a preferred direction: the noise stays above 2^-18 of the signal
_BITS, _ODDS_ERROR = (
    256,
    2.0**-128,
)  # of the odds; more than rounding them, and the law of up to 2^60 normal draws, can cost
_NEGLIGIBLE = 60.0  # integrals stop where the log density has fallen by this much


class Projection(Protocol):
    """The law of T, and of what is orthogonal to v."""

    @property
    def limit(self) -> float:
        """Largest gamma in use."""

    @property
    def bound(self) -> float:
        """Largest size of a coordinate of u."""

    @property
    def proxy(self) -> float:
        """Variance of a normal law that bounds both T, on either side of a cap, and one orthogonal coordinate."""

    def base(self, correlation: float) -> float:
        """Return E[u_i^2] at v_i = 0, where ``correlation`` is gamma E[T]."""

    def log_mass(self, gamma: float) -> float:
        """Return ln P(T >= gamma)."""

    def log_part(self, gamma: float) -> float:
        """Return ln E[T; T >= gamma]."""

    def mass_within(self, gamma: float) -> tuple[Any, Any]:
        """Return proved limits of P(T >= gamma), as numbers of mpmath."""

    def proposal(self, gamma: float) -> Proposal:
        """Return how to draw T given T >= gamma, without rounding."""

    def nodes(self, gamma: float, above: bool) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return values of T on one side, the length left, and weights that sum to one: a rule of integration."""

    def cubed(self, shift: FloatArray, scale: FloatArray) -> FloatArray:
        """Return E|shift + scale w|^3, w one coordinate of a direction orthogonal to v."""


@dataclass(frozen=True)
class SphereProjection(Projection):
    """u uniform on the unit sphere of ``dims`` dimensions: T^2 is Beta(1/2, (dims - 1)/2)."""

    dims: int
    bound: ClassVar[float] = 1.0

    @property
    def _half(self) -> float:
        return (self.dims - 1) / 2

    @property
    def limit(self) -> float:
        return math.sqrt(1 - _LEAST_SINE**2)

    @property
    def proxy(self) -> float:
        """From dimension 4 on the log density of T curves by dims - 3 or more, cut or not (Bakry, Emery 1985)."""
        return 1 / (self.dims - 3) if self.dims > 3 else 1.0

    def base(self, correlation: float) -> float:
        """Return (1 - gamma E[T]) / dims: the length is one, so the other coordinates shrink as T grows."""
        return (1 - correlation) / self.dims

    def log_mass(self, gamma: float) -> float:
        """Return ln(I_{1 - gamma^2}((d-1)/2, 1/2) / 2)."""
        if self.dims == 1:
            return -math.log(2)
        # either form of the same number, from the one of gamma^2 and 1 - gamma^2 that is not near one
        if gamma**2 < 0.5:
            mass = float(betaincc(0.5, self._half, gamma**2))
        else:
            mass = float(betainc(self._half, 0.5, (1 - gamma) * (1 + gamma)))
        return math.log(mass / 2) if mass > 1e-250 else self._log_tail(gamma)

    def _log_tail(self, gamma: float) -> float:
        """Return the same for small caps: x = (1 - gamma^2) exp(-t/a) turns the integral into one against exp(-t)."""
        a = self._half
        log_s = math.log1p(-gamma) + math.log1p(gamma)
        t, weight = np.polynomial.laguerre.laggauss(40)
        integral = float((weight / np.sqrt(-np.expm1(log_s - t / a))).sum())
        return a * log_s - math.log(2 * a) - log_half_beta(a) + math.log(integral)

    def log_part(self, gamma: float) -> float:
        """Return ln((1 - gamma^2)^((d-1)/2) / ((d-1) B(1/2, (d-1)/2)))."""
        if self.dims == 1:
            return -math.log(2)
        a = self._half
        return a * (math.log1p(-gamma) + math.log1p(gamma)) - math.log(2 * a) - log_half_beta(a)

    def mass_within(self, gamma: float) -> tuple[Any, Any]:
        return sphere_mass(self.dims, gamma, self.log_mass(gamma))

    def proposal(self, gamma: float) -> Proposal:
        mean = math.exp(self.log_part(gamma) - self.log_mass(gamma)) if self.dims > 1 else 1.0
        return sphere_proposal(self.dims, gamma, min(mean, (1 + gamma) / 2))

    def nodes(self, gamma: float, above: bool) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Integrate over the angle from v, whose density sin^(d-2) is smooth."""
        if self.dims == 1:
            return np.asarray([1.0 if above else -1.0]), np.zeros(1), np.ones(1)
        sine = math.sqrt((1 - gamma) * (1 + gamma))
        edge = math.atan2(sine, gamma)
        fall = 0.0 if self.dims == 2 else math.exp(-_NEGLIGIBLE / (self.dims - 2))
        if above:
            angle, weight = panels(math.asin(sine * fall), edge)
        else:
            angle, weight = panels(edge, math.pi - math.asin(fall))
        log_density = (self.dims - 2) * np.log(np.sin(angle))
        weight *= np.exp(log_density - log_density.max())
        return np.cos(angle), np.sin(angle), weight / weight.sum()

    def cubed(self, shift: FloatArray, scale: FloatArray) -> FloatArray:
        """Return E|shift + scale w|^3, w a coordinate of the sphere of dims - 1 dimensions, from its partial moments.

        With k = |shift| / scale: E[k^3 + 3 k w^2; |w| < k] + E[|w|^3 + 3 k^2 |w|; |w| > k].
        """
        size, others = np.abs(shift), max(self.dims - 1, 1)
        outer = size**3 + 3 * size * scale**2 / others
        k = np.minimum(np.divide(size, scale, out=np.ones_like(outer), where=scale > 0), 1.0)
        if others == 1:
            return np.where(k < 1, scale**3 * (1 + 3 * k**2), outer)
        b = (others - 1) / 2
        inside = k**3 * betainc(0.5, b, k**2) + 3 * k / others * betainc(1.5, b, k**2)
        edge = np.exp(b * np.log1p(-(np.where(k < 1, k, 0.0) ** 2)) - math.log(b) - log_half_beta(b))
        beyond = edge * (1 - (1 - k**2) * b / (b + 1) + 3 * k**2)
        return np.where(k < 1, scale**3 * (inside + beyond), outer)


@dataclass(frozen=True)
class NormalProjection(Projection):
    """u standard normal in any number of dimensions: T is a standard normal variable, like every other part of u."""

    limit: ClassVar[float] = 2.0**20
    bound: ClassVar[float] = math.inf

    @property
    def proxy(self) -> float:
        """The log density of a normal law, cut or not, curves by 1 (Bakry, Emery 1985)."""
        return 1.0

    def base(self, correlation: float) -> float:
        """Return 1: other coordinates do not depend on T."""
        return 1.0

    def log_mass(self, gamma: float) -> float:
        """Return ln(1 - Phi(gamma))."""
        return float(log_ndtr(-gamma))

    def log_part(self, gamma: float) -> float:
        """Return ln phi(gamma)."""
        return -(gamma**2) / 2 - math.log(2 * math.pi) / 2

    def mass_within(self, gamma: float) -> tuple[Any, Any]:
        return normal_mass(gamma)

    def proposal(self, gamma: float) -> Proposal:
        return NormalTail(gamma, math.exp(self.log_part(gamma) - self.log_mass(gamma)))

    def nodes(self, gamma: float, above: bool) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Integrate over T."""
        reach = math.sqrt(2 * _NEGLIGIBLE)
        t, weight = panels(gamma, math.hypot(gamma, reach)) if above else panels(-reach, min(gamma, reach))
        log_density = -(t**2) / 2
        weight *= np.exp(log_density - log_density.max())
        return t, np.ones_like(t), weight / weight.sum()

    def cubed(self, shift: FloatArray, scale: FloatArray) -> FloatArray:
        """Return E|shift + scale w|^3 for a standard normal w."""
        size = np.abs(shift)
        k = np.divide(size, scale, out=np.full(np.broadcast(size, scale).shape, np.inf), where=scale > 0)
        density = np.exp(-(k**2) / 2) / math.sqrt(2 * math.pi)
        return np.asarray(
            (size**3 + 3 * size * scale**2) * erf(k / math.sqrt(2)) + 2 * scale * (size**2 + 2 * scale**2) * density
        )


@dataclass(frozen=True)
class Cap:
    """u without a preferred direction with probability ``plain``, else from the cap {T >= gamma}; ``mean`` is E[T].

    The density of u relative to its law without a preferred direction is ``plain`` outside the cap and
    plain + (1 - plain)/q inside, q the cap's mass, which is the same for every v. ``plain`` is a multiple of 2^-53, so
    a comparison with 53 random bits draws it exactly.
    """

    projection: Projection
    gamma: float
    log_mass: float
    plain: float
    mean: float

    @classmethod
    def build(cls, projection: Projection, epsilon: float) -> Cap:
        """Return the cap of largest E[T] whose density ratio is at most exp(epsilon).

        E[T] = m(gamma) = c / (1/(E-1) + q) has a derivative of the sign of m - gamma, so m is largest where it equals
        gamma, and bisection finds the only such point. Privacy does not depend on which gamma is found: it rests on
        ``plain`` being at least 1/(1 + q (E-1)), for the gamma that is used and the lower limit of its q.
        """
        import mpmath

        log_floor = -epsilon - math.log(-math.expm1(-epsilon))  # ln 1/(E - 1)

        def rises(gamma: float) -> bool:
            log_mean = projection.log_part(gamma) - float(np.logaddexp(log_floor, projection.log_mass(gamma)))
            return log_mean > math.log(gamma)

        gamma, _ = narrowed(rises, 0.0, projection.limit, absolute=2.0**-100 * projection.limit)
        log_mass = projection.log_mass(gamma)
        with mpmath.workprec(_BITS):
            slack = mpmath.mpf(_ODDS_ERROR)
            odds = projection.mass_within(gamma)[0] * mpmath.expm1(mpmath.mpf(epsilon) - slack)
            count = mpmath.ceil(mpmath.ldexp((1 + slack) / (1 + odds), 53))
        plain = max(float(count) * ULP, _LEAST_PLAIN)
        mean = math.exp(projection.log_part(gamma) - log_mass) * (1 - plain)
        if not mean > 0:
            raise ValueError(f"Expected epsilon={epsilon} >= 1e-14: float64 cannot hold smaller odds.")
        return cls(projection, gamma, log_mass, plain, mean)

    @cached_property
    def proposal(self) -> Proposal:
        """How to draw T in the cap."""
        return self.projection.proposal(self.gamma)

    @property
    def p_cap(self) -> float:
        """Probability that u is in the cap."""
        return 1 - self.plain * -math.expm1(self.log_mass)

    @property
    def log_weights(self) -> tuple[float, float]:
        """Log density inside and outside the cap, relative to the law of u itself."""
        outside = math.log(self.plain)
        return float(np.logaddexp(outside, math.log1p(-self.plain) - self.log_mass)), outside

    @property
    def ratio_above(self) -> float:
        """A proved upper limit of the log ratio of the two densities, and of any two likelihoods of a report."""
        import mpmath

        with mpmath.workprec(_BITS):
            plain, mass = mpmath.mpf(self.plain), self.projection.mass_within(self.gamma)[0]
            return up(mpmath.log1p((1 - plain) / (plain * mass)) + mpmath.mpf(_ODDS_ERROR))

    @property
    def base(self) -> float:
        """E[u_i^2] = base + gamma mean v_i^2: its first term."""
        return self.projection.base(self.gamma * self.mean)

    @property
    def least_variance(self) -> float:
        """The variance of u_i, base + (gamma - mean) mean v_i^2, at the v where it is least."""
        return self.base + min(0.0, (self.gamma - self.mean) * self.mean)

    @property
    def proxy(self) -> float:
        """Variance of a normal law whose moment generating function bounds that of u_i - E[u_i], at any v.

        Given the side of the cap, T has the proxy ``projection.proxy`` about its mean there. Which side it is adds a
        two-point variable, bounded as by Kearns and Saul 1998. Hoeffding's bound for |u_i| <= ``projection.bound`` may
        be lower.
        """
        gap = math.exp(self.projection.log_part(self.gamma) - self.log_mass) / -math.expm1(self.log_mass)
        odds = math.log(self.p_cap) - math.log(self.plain) - math.log(-math.expm1(self.log_mass))
        kearns_saul = (2 * self.p_cap - 1) / (2 * odds) if abs(odds) > 1e-6 else 0.25
        return min(self.projection.proxy + gap**2 * kearns_saul, self.projection.bound**2)

    @cached_property
    def third(self) -> np.polynomial.Chebyshev:
        """E|u_i - E[u_i]|^3 as a function of the angle asin|v_i|."""
        sides = (self.projection.nodes(self.gamma, True), self.projection.nodes(self.gamma, False))
        t, length = (np.concatenate([side[i] for side in sides]) for i in range(2))
        weight = np.concatenate([self.p_cap * sides[0][2], (1 - self.p_cap) * sides[1][2]])

        def integrate(angle: FloatArray) -> FloatArray:
            sine, cosine = np.sin(angle)[:, None], np.cos(angle)[:, None]
            return np.asarray(self.projection.cubed((t - self.mean) * sine, length * cosine) @ weight)

        return np.polynomial.Chebyshev.interpolate(integrate, 128, domain=[0, math.pi / 2])


def panels(low: float, high: float, count: int = 32) -> Pair:
    """Return nodes and weights of Gauss and Legendre's rule with 16 points in each of ``count`` equal parts."""
    node, weight = gauss_legendre(16)
    width = (high - low) / count
    starts = low + width * np.arange(count)[:, None]
    return (starts + width * (node + 1) / 2).reshape(-1), np.tile(weight * width / 2, count)
