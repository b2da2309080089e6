"""Staircase noise: the least variance and the least magnitude that additive noise can have at a pure epsilon."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from noisette import _random
from noisette._validate import FloatArray
from noisette.cells import up
from noisette.core import Tail
from noisette.domains import Interval
from noisette.mechanisms.scalar._additive import AdditiveMechanism, Noise

_ROUNDED_DOWN = 1 - 2.0**-50  # keeps rounding of probabilities on the private side


@dataclass(frozen=True)
class StaircaseNoise(Noise):
    """Noise on the half-integers: mass falls by exp(-rate) after ``first`` steps, then after every ``width``."""

    rate: float
    width: int
    first: int
    half: ClassVar[float] = 0.5

    @cached_property
    def p_first(self) -> float:
        """Chance of the first stair: a multiple of 2^-53, rounded so that no stair is too steep."""
        odds = self.first / self.width * math.expm1(min(self.rate, 700.0))
        if odds < 1:
            return math.floor(_ROUNDED_DOWN / (1 + 1 / odds) * 2**53) * _random.ULP
        return 1 - max(1, math.ceil((2 - _ROUNDED_DOWN) / (1 + odds) * 2**53)) * _random.ULP

    @cached_property
    def absolute(self) -> tuple[float, float, float]:
        """First, second and third absolute moment: stair l after the first has weight (1 - a) a^l, a = exp(-rate)."""
        mean = math.exp(-self.rate) / -math.expm1(-self.rate)
        stairs = (1.0, mean, mean * (1 + 2 * mean), mean * (1 + 6 * mean + 6 * mean**2))  # E[l^i]
        start = self.first / self.width

        def shifted(power: int) -> float:
            """E[(l + start)^power]."""
            return math.fsum(math.comb(power, i) * start ** (power - i) * stairs[i] for i in range(power + 1))

        def spread(power: int) -> float:
            """E|X|^power were X uniform along each stair."""
            inner = math.fsum(math.comb(power, j) * shifted(power - j) / (j + 1) for j in range(power + 1))
            first, width = float(self.first), float(self.width)
            return self.p_first * first**power / (power + 1) + (1 - self.p_first) * width**power * inner

        first, second, third = spread(1), spread(2), spread(3)
        return first, second - 1 / 12, third - first / 4  # X sits in the middle of each step

    @property
    def tail(self) -> Tail:
        """The mass is below C times a Laplace density of scale b = width / rate, so E|X|^p <= C p! b^p."""
        scale = self.width / self.rate
        constant = self.p_first / self.first * scale * math.exp(self.rate * self.first / self.width) * (1 + 1e-9)
        return Tail(2 * constant * scale**2, scale)

    @property
    def breakpoints(self) -> FloatArray:
        """Where the first stairs end."""
        return np.asarray([0.0, self.first, self.first + self.width, self.first + 2.0 * self.width])

    @property
    def period(self) -> int:
        """A stair."""
        return self.width

    @property
    def tail_span(self) -> int:
        """Stairs over which the mass falls by exp(-32)."""
        return math.ceil(32 / self.rate)

    def ratio_above(self, steps: int) -> float:
        """Return the higher of the first stair and of the others, rounded up; so far apart noises differ by one."""
        import mpmath

        p_first = Fraction(self.p_first)
        odds = p_first / (1 - p_first) * Fraction(self.width, self.first)
        with mpmath.workprec(160):
            top = mpmath.mpf(odds.numerator) / odds.denominator / -mpmath.expm1(-mpmath.mpf(self.rate))
            return max(self.rate, up(mpmath.log(top) * (1 + mpmath.mpf(2) ** -150)))

    def written(self) -> dict[str, Any]:
        inside = int(self.p_first * (1 << 53))
        return {"kind": "staircase", "rate": self.rate, "width": self.width, "first": self.first, "inside": inside}

    def sample(self, rng: np.random.Generator, size: int) -> FloatArray:
        """Draw the noise less one half."""
        later = rng.random(size) >= self.p_first
        low, along = _random.one_of_two(rng, self.first, self.width, size)
        high = _random.geometric(rng, self.rate, size)
        high *= self.width
        high += along
        high += self.first
        high -= low
        high *= later
        low += high
        negative = rng.random(size) < 0.5
        low *= 1 - 2 * negative.view(np.int8)
        low -= negative
        return low

    def log_mass(self, noise: FloatArray) -> FloatArray:
        """Return the log probability, constant along each stair."""
        beyond = np.floor((np.abs(noise) - 0.5 - self.first) / self.width)
        top = math.log(self.p_first / (2 * self.first))
        next_one = math.log((1 - self.p_first) / (2 * self.width)) + math.log(-math.expm1(-self.rate))
        return np.where(np.abs(noise) < self.first, top, next_one - self.rate * np.maximum(beyond, 0.0))


class _StaircaseMechanism(AdditiveMechanism):
    """Noise of a given first stair, as a share of the diameter."""

    @property
    @abstractmethod
    def gamma(self) -> float:
        """Width of the first stair as a share of the diameter."""

    @cached_property
    def _spread(self) -> float:
        unit = 2**30  # scale-free: any large lattice gives the spread as a share of the diameter
        noise = StaircaseNoise(self.epsilon, unit, max(1, round(self.gamma * unit)))
        return self.domain.diameter * math.sqrt(noise.absolute[1]) / unit

    @cached_property
    def _noise(self) -> StaircaseNoise:
        return StaircaseNoise(self.epsilon * _ROUNDED_DOWN, self._steps, max(1, round(self.gamma * self._steps)))


@dataclass(frozen=True)
class Staircase(_StaircaseMechanism):
    """Add staircase noise, which has the least variance of all additive noise.

    Formula: density falls by exp(-e) at g D, (1+g) D, (2+g) D, ..., D = high - low,
    g = ((b (1+b) / 2)^(1/3) - b) / (1 - b), b = exp(-e).

    *Guarantee*: epsilon-LDP for one value, exactly, rounding included.
    *Utility*: unbiased; variance 7.67 at epsilon 1 on [-1, 1] (Laplace 8), 0.26 at epsilon 4 (Laplace 0.5).
    Geng, Kairouz, Oh, Viswanath 2015, Theorem 4; the g = 1 / (1 + exp(e/2)) often quoted is for least magnitude.

    >>> round(float(Staircase(epsilon=1.0).moments(0.0).variance), 2)
    7.67
    """

    epsilon: float
    _: KW_ONLY
    domain: Interval = Interval()  # noqa: RUF009
    name: ClassVar[str] = "staircase"
    citation: ClassVar[str] = "geng2015staircase"

    @property
    def gamma(self) -> float:
        """Width of the first stair that minimises the variance."""
        b = math.exp(-self.epsilon)
        return (math.cbrt(b * (1 + b) / 2) - b) / -math.expm1(-self.epsilon)


@dataclass(frozen=True)
class Scdf(_StaircaseMechanism):
    """Add the piecewise-constant noise of Soria-Comas and Domingo-Ferrer.

    Formula: a staircase whose first stair is g = 1/e - b / (1 - b) of the diameter, b = exp(-e).

    *Guarantee*: epsilon-LDP for one value, exactly, rounding included.
    *Utility*: unbiased; variance a little above Staircase's.
    Soria-Comas, Domingo-Ferrer 2013, Theorem 4.

    >>> Scdf(epsilon=1.0).moments(0.0).variance > Staircase(epsilon=1.0).moments(0.0).variance
    np.True_
    """

    epsilon: float
    _: KW_ONLY
    domain: Interval = Interval()  # noqa: RUF009
    name: ClassVar[str] = "scdf"
    citation: ClassVar[str] = "soriacomas2013optimal"

    @property
    def gamma(self) -> float:
        inverse = 1 / math.expm1(self.epsilon) if self.epsilon < 700 else 0.0
        return 1 / self.epsilon - inverse
