"""Draws of T = <u, v> within a cap, T >= gamma: real numbers, by rejection.

A proposal is an explicit function of one uniform number U, and so is the chance with which it is kept. Both are
computed in float64 with a bound on the error, which includes the digits of U that are not drawn yet. Where the bound is
too wide to decide whether a proposal is kept, or what a later computation gives, more digits of the same U are drawn.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from noisette._random import ULP
from noisette._validate import FloatArray
from noisette.cells import up
from noisette.mechanisms._reals import Digits, decided, interval_arithmetic, log_of, precisions

_ERROR = 2.0**-49  # numpy's log and exp err by less, relatively: see tests/test_random.py


@dataclass
class Near:
    """T and H = 1 - T^2, the square of the length left on the unit sphere, with bounds on the errors of both."""

    t: FloatArray
    t_error: FloatArray
    rest: FloatArray
    rest_error: FloatArray


@dataclass
class Reaches(Near):
    """Draws of T, and the uniform numbers that they are functions of."""

    proposal: Proposal
    uniform: FloatArray
    rng: np.random.Generator
    rare: dict[int, Digits] = field(default_factory=dict)

    def digits(self, number: int) -> Digits:
        """Return the uniform number behind a draw."""
        return self.rare.get(number) or Digits.of_float(self.rng, float(self.uniform[number]))


class Proposal(ABC):
    """A function of a uniform number, and the chance with which its value is kept."""

    @abstractmethod
    def near(self, uniform: FloatArray) -> Near:
        """Return T for numbers that begin with these 53 digits."""

    @abstractmethod
    def log_chance(self, near: Near) -> tuple[FloatArray, FloatArray]:
        """Return the log of the chance to keep T, and a bound on its error."""

    @abstractmethod
    def within(self, context: Any, uniform: Any) -> tuple[Any, Any]:
        """Return intervals of T and of 1 - T^2 for an interval of uniform numbers."""

    @abstractmethod
    def log_chance_within(self, context: Any, t: Any, rest: Any) -> Any:
        """Return an interval of the log chance; 1 - T^2 is above zero where it matters."""

    @property
    def bounded(self) -> bool:
        """Whether T is a coordinate of the unit sphere: a proposal beyond 1 is dropped."""
        return True

    def draw(self, rng: np.random.Generator, size: int) -> Reaches:
        """Draw until all are kept; nothing here depends on a private value."""
        t, t_error, rest, rest_error, chosen = np.empty((5, size))
        every = Reaches(t, t_error, rest, rest_error, self, chosen, rng)
        pending = np.arange(size)
        while pending.size:
            uniform, height = rng.random(pending.size), rng.random(pending.size)
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                near = self.near(uniform)
                log_chance, error = self.log_chance(near)
                low = np.exp(log_chance - error) * (1 - _ERROR)
                high = np.exp(log_chance + error) * (1 + _ERROR)
                kept = height + ULP <= low
                dropped = height >= high
            for place in np.flatnonzero(~(kept | dropped)).tolist():  # NaN is neither
                digits = Digits.of_float(rng, float(uniform[place]))
                kept[place] = self._kept(digits, Digits.of_float(rng, float(height[place])))
                if kept[place]:
                    every.rare[int(pending[place])] = digits
            own = pending[kept]
            every.uniform[own] = uniform[kept]
            for name in ("t", "t_error", "rest", "rest_error"):
                getattr(every, name)[own] = getattr(near, name)[kept]
            pending = pending[~kept]
        return every

    def _kept(self, uniform: Digits, height: Digits) -> bool:
        """Decide, drawing further digits until the decision is certain."""
        for precision in precisions():
            for number in (uniform, height):
                number.reach(precision - 64)
            if not (uniform.digits and height.digits):
                continue
            context = interval_arithmetic(precision)
            t, rest = self.within(context, uniform.within(context))
            positive = decided(rest) if self.bounded else True
            if positive is False:
                return False
            if positive is None:
                continue
            kept = decided(self.log_chance_within(context, t, rest) - log_of(context, height.within(context)))
            if kept is not None:
                return kept
        raise AssertionError  # precisions never end


@dataclass(frozen=True)
class Exponential(Proposal):
    """T = gamma - ln(U)/rate, kept with chance exp(h(T) + rate T - top): h the log density, top a limit of the rest.

    Where h is concave, few proposals are dropped if ``rate`` is the slope at which h falls at the mean of the cap.
    """

    gamma: float
    rate: float

    def near(self, uniform: FloatArray) -> Near:
        exponent = -np.log(uniform + ULP / 2)
        excess = exponent / self.rate
        error = (exponent * _ERROR + ULP / uniform) / self.rate + 4 * ULP * excess
        t = self.gamma + excess
        return Near(t, error + 2 * ULP * t, *self._rest(excess, error))

    def within(self, context: Any, uniform: Any) -> tuple[Any, Any]:
        t = self.gamma - log_of(context, uniform) / self.rate
        return t, 1 - t * t

    @abstractmethod
    def _rest(self, excess: FloatArray, error: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return 1 - T^2 and its error."""


@dataclass(frozen=True)
class NormalTail(Exponential):
    """The normal law beyond gamma: h = -T^2/2, top = rate^2/2."""

    @property
    def bounded(self) -> bool:
        """A normal variable has no end."""
        return False

    def _rest(self, excess: FloatArray, error: FloatArray) -> tuple[FloatArray, FloatArray]:
        return np.ones_like(excess), np.zeros_like(excess)

    def log_chance(self, near: Near) -> tuple[FloatArray, FloatArray]:
        """Return -(T - rate)^2 / 2 and its error."""
        gap = np.abs(near.t - self.rate)
        error = near.t_error + 2 * ULP * gap
        return -(gap**2) / 2, (gap + error) * error + 4 * ULP * gap**2

    def log_chance_within(self, context: Any, t: Any, rest: Any) -> Any:
        return -((t - self.rate) * (t - self.rate)) / 2


@dataclass(frozen=True)
class SphereTail(Exponential):
    """One coordinate of the sphere of at least 4 dimensions beyond gamma: h = (d-3)/2 ln(1 - T^2)."""

    dims: int

    @property
    def _power(self) -> float:
        return (self.dims - 3) / 2

    @cached_property
    def top(self) -> float:
        """A float64 no less than any h(t) + rate t: the largest is where t = (sqrt(b^2 + rate^2) - b)/rate."""
        import mpmath

        with mpmath.workprec(256):
            power, rate = mpmath.mpf(self._power), mpmath.mpf(self.rate)
            at = rate / (mpmath.sqrt(power**2 + rate**2) + power)
            most = power * mpmath.log((1 - at) * (1 + at)) + rate * at
            return up(most + mpmath.ldexp(1 + abs(most), -100))

    def _rest(self, excess: FloatArray, error: FloatArray) -> tuple[FloatArray, FloatArray]:
        """1 - T^2 = (1 - gamma^2) - excess (2 gamma + excess), without cancellation where the cap is small."""
        whole, less = (1 - self.gamma) * (1 + self.gamma), excess * (2 * self.gamma + excess)
        return whole - less, 8 * ULP * (whole + less) + 2 * (self.gamma + excess + error) * error

    def log_chance(self, near: Near) -> tuple[FloatArray, FloatArray]:
        """Return h(T) + rate T - top, and its error: 0 where T is beyond 1, infinite where that is not decided."""
        log = self._power * np.log(near.rest)
        far = self.rate * near.t
        inside = near.rest > 2 * near.rest_error
        error = self._power * near.rest_error / (near.rest - near.rest_error) + self.rate * near.t_error
        error += _ERROR * (np.abs(log) + far + abs(self.top))
        beyond = near.rest < -near.rest_error
        return np.where(beyond, -np.inf, log + far - self.top), np.where(beyond, 0.0, np.where(inside, error, np.inf))

    def log_chance_within(self, context: Any, t: Any, rest: Any) -> Any:
        return self._power * log_of(context, rest) + self.rate * t - self.top


@dataclass(frozen=True)
class LowSphere(Proposal):
    """In 2 and 3 dimensions 1 - T = (1 - gamma) U^2 and (1 - gamma) U, kept with chance sqrt((1 + gamma)/(1 + T)) in 2.

    With r = sqrt((1 - T)/2) the density of the cap is proportional to r^(d-2) (1 - r^2)^((d-3)/2).
    """

    gamma: float
    dims: int

    def near(self, uniform: FloatArray) -> Near:
        power, height = 4 - self.dims, 1 - self.gamma
        gap = height * (uniform + ULP / 2) ** power
        error = gap * (8 * ULP + power * ULP / uniform)
        rest = gap * (2 - gap)
        return Near(1 - gap, error + ULP, rest, 2 * error + 4 * ULP * rest)

    def log_chance(self, near: Near) -> tuple[FloatArray, FloatArray]:
        """Return half of ln((1 + gamma)/(1 + T)), or zero, and its error."""
        if self.dims == 3:
            return np.zeros_like(near.t), np.zeros_like(near.t)
        return np.log((1 + self.gamma) / (1 + near.t)) / 2, near.t_error + 16 * ULP

    def within(self, context: Any, uniform: Any) -> tuple[Any, Any]:
        gap = (1 - context.mpf(self.gamma)) * (uniform * uniform if self.dims == 2 else uniform)
        return 1 - gap, gap * (2 - gap)

    def log_chance_within(self, context: Any, t: Any, rest: Any) -> Any:
        if self.dims == 3:
            return context.mpf(0)
        return log_of(context, (1 + context.mpf(self.gamma)) / (1 + t)) / 2


@dataclass(frozen=True)
class OnePoint(Proposal):
    """In one dimension the cap is the point T = 1."""

    def near(self, uniform: FloatArray) -> Near:
        """Return 1."""
        none = np.zeros_like(uniform)
        return Near(none + 1, none, none, none)

    def log_chance(self, near: Near) -> tuple[FloatArray, FloatArray]:
        """Keep it always."""
        return near.rest + 1.0, near.rest

    def within(self, context: Any, uniform: Any) -> tuple[Any, Any]:
        """Return 1, and nothing left."""
        return context.mpf(1), context.mpf(0)

    def log_chance_within(self, context: Any, t: Any, rest: Any) -> Any:
        """Keep it always."""
        return context.mpf(1)


def sphere_proposal(dims: int, gamma: float, mean: float) -> Proposal:
    """Return how to draw from a cap of the sphere in which T is ``mean`` on average."""
    if dims == 1:
        return OnePoint()
    if dims <= 3:
        return LowSphere(gamma, dims)
    return SphereTail(gamma, (dims - 3) * mean / ((1 - mean) * (1 + mean)), dims)
