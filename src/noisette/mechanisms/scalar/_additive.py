"""Additive noise on a lattice: the value is rounded to the lattice without bias and exact integer noise is added."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import product
from typing import Any, ClassVar, Protocol

import numpy as np

from noisette import _random
from noisette._special import xlog1py, xlogy
from noisette._validate import FloatArray
from noisette.cells import Cells, up
from noisette.core import Capabilities, Moments, Readout, Tail
from noisette.domains import Grid
from noisette.mechanisms._base import Lattice, ScalarMechanism, check_step, coarseness, power_of_two


class Noise(Protocol):
    """Symmetric noise on the integers, or on the half-integers where ``half`` is 1/2; lengths in steps.

    Its mass never rises with the distance from zero. Beyond the last breakpoint the log mass falls on a straight line
    from one ``period`` to the next, or on a parabola where ``parabolic``.
    """

    half: ClassVar[float] = 0.0
    parabolic: ClassVar[bool] = False

    @property
    def period(self) -> int:
        """Steps after which the tail repeats itself, lower."""
        return 1

    @property
    def tail_span(self) -> int:
        """Periods over which the slope of a tail shows clearly."""

    def ratio_above(self, steps: int) -> float:
        """Return an upper limit of the log ratio of the masses of noises ``steps`` apart, in exact arithmetic."""

    @property
    def absolute(self) -> tuple[float, float, float]:
        """First, second and third absolute moment."""

    @property
    def tail(self) -> Tail:
        """Sub-gamma bound."""

    @property
    def breakpoints(self) -> FloatArray:
        """Distances at which the log mass changes its form."""

    def written(self) -> dict[str, Any]:
        """Return the numbers by which it is drawn, as a certificate states them."""

    def sample(self, rng: np.random.Generator, size: int) -> FloatArray:
        """Draw the noise less ``half``: integers."""

    def log_mass(self, noise: FloatArray) -> FloatArray:
        """Return the log probability of a noise."""


class AdditiveMechanism(ScalarMechanism):
    """Round to a lattice without bias, add integer noise calibrated to the lattice's own diameter.

    The ends of the domain are rounded outward, so the cost of rounding is inside the stated epsilon.
    """

    capabilities: ClassVar[Capabilities] = replace(ScalarMechanism.capabilities, unbounded=True)
    fine: ClassVar[bool] = True  # report a density: the lattice stands for the real line

    @property
    @abstractmethod
    def _noise(self) -> Noise:
        """Noise calibrated to ``_steps``."""

    @property
    @abstractmethod
    def _spread(self) -> float:
        """Order of magnitude of the noise, in units of the domain."""

    @cached_property
    def _step(self) -> float:
        """Length of a step: a power of two far below the noise, unless the domain is itself a grid."""
        if isinstance(self.domain, Grid):
            return self.domain.step
        largest = max(abs(self.domain.low), abs(self.domain.high))
        spread, diameter = power_of_two(self._spread), power_of_two(self.domain.diameter)
        # far below the noise, and below the domain so that rounding its ends outward costs little
        step = max(min(spread / 2**24, max(diameter / 2**16, spread / 2**40)), diameter / 2**30)
        resolution = power_of_two(largest) / 2**46
        return step if step >= resolution else check_step(resolution, self.domain)

    @cached_property
    def _origin(self) -> float:
        """A point of the lattice near the middle of the domain."""
        if isinstance(self.domain, Grid):
            return self.domain.low
        return self._step * round((self.domain.low + self.domain.high) / 2 / self._step)

    @cached_property
    def _steps(self) -> int:
        """Diameter of the rounded domain, in steps."""
        if isinstance(self.domain, Grid):
            return self.domain.size - 1
        low, high = ((end - self._origin) / self._step for end in (self.domain.low, self.domain.high))
        return math.ceil(high) - math.floor(low)

    def written_law(self) -> dict[str, Any]:
        """Return the lattice, how far values lie apart on it, and the noise."""
        lattice = {"origin": self._origin, "step": self._step, "steps": self._steps}
        return {"kind": "added-noise"} | lattice | {"noise": self._noise.written()}

    @cached_property
    def support(self) -> Lattice:
        """All points of the lattice."""
        return Lattice(self._origin + self._noise.half * self._step, self._step)

    @cached_property
    def readout(self) -> Readout:
        """The plain mean of the reports."""
        tail, step = self._noise.tail, self._step
        radius = self.domain.diameter / 2
        return Readout(
            offset=self.support.origin,
            scale=step,
            low=self.domain.low,
            high=self.domain.high,
            tail=Tail(float(tail.variance) * step**2 + (radius + step) ** 2, float(tail.scale) * step),
            coarse=coarseness(max(math.sqrt(self._noise.absolute[1]), self._steps / 2)),
            noise=self._noise.absolute[1] * step**2,
        )

    def _position(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the lattice point below each value and the distance to it, in steps."""
        position = x - self._origin
        position /= self._step
        if isinstance(self.domain, Grid):
            return np.rint(position), np.zeros_like(position)
        below = np.floor(position)
        position -= below
        return below, position

    def _perturb(self, x: FloatArray, rng: np.random.Generator) -> FloatArray:
        index, rest = self._position(x)
        if not isinstance(self.domain, Grid):
            index += rng.random(x.size) < rest
        index += self._noise.sample(rng, x.size)
        index *= self._step
        index += self.support.origin
        return index

    def moments(self, x: Any) -> Moments:
        """Return the exact moments, the unbiased rounding included."""
        _, rest = self._position(self._inputs(x))
        return self._noisy(self._noise, rest)

    def _noisy(self, noise: Noise, rest: FloatArray) -> Moments:
        """Return the moments of noise added to values that lie ``rest`` of a step above a lattice point."""
        first, second, third = noise.absolute
        step, half = self._step, noise.half
        other = 1 - rest
        # the report is off by noise + c, c = -rest or other; noise is symmetric, so E|noise + c|^3 is
        # E|noise|^3 + 3 c^2 E|noise| + P(|noise| = half) max(|c| - half, 0)^3
        p_half = (1 if half == 0 else 2) * math.exp(float(noise.log_mass(np.asarray(half))))
        squared = rest * other
        cubed = other * np.maximum(rest - half, 0.0) ** 3 + rest * np.maximum(other - half, 0.0) ** 3
        third = third + 3 * first * squared + p_half * cubed
        return Moments(np.zeros_like(rest), step**2 * (second + squared), step**3 * third)

    def worst_variance(self) -> float:
        """Return the largest variance of a report: half-way between two points of the lattice rounding adds most."""
        return self._step**2 * (self._noise.absolute[1] + (0.0 if isinstance(self.domain, Grid) else 0.25))

    def log_prob(self, report: Any, x: Any) -> FloatArray:
        """Return the exact log mass of a report, per unit of length where the lattice stands for the real line."""
        reports, values = np.broadcast_arrays(np.asarray(report, dtype=float), self._inputs(x))
        below, rest = self._position(values)
        noise = self.support.index(reports) + self._noise.half - below
        mass = np.logaddexp(
            xlog1py(1.0, -rest) + self._noise.log_mass(noise), xlogy(1.0, rest) + self._noise.log_mass(noise - 1)
        )
        if self.fine:
            return np.asarray(mass - math.log(self._step))
        return np.where(self.support.contains(reports), mass, -np.inf)

    def witnesses(self) -> tuple[FloatArray, FloatArray]:
        """Return the ends of the domain, and reports around every breakpoint of the noise centred on them."""
        inputs = np.asarray([self.domain.low, self.domain.high])
        below, rest = self._position(inputs)
        centres = np.concatenate([below, below + (rest > 0)])
        offsets = np.concatenate([self._noise.breakpoints, -self._noise.breakpoints])
        around = np.add.outer(np.add.outer(centres, offsets), np.arange(-2.0, 3.0))
        return inputs, self.support.value(np.unique(np.rint(around)))

    def dissect(self) -> Iterator[Cells]:
        """Cut the lattice at the breakpoints of the noise, for inputs as far apart as the domain lets them be.

        No pair is worse. The mass f falls with the distance from zero, so f(k) - E f(k - d), E >= 1, is positive for
        k < d only, where f(k - d) falls as the distance d grows: each positive term grows with d, and so does each
        ratio above 1. Between two lattice points the law is a mixture of theirs, in which both divergences are convex:
        the largest is at lattice points or at an end of the domain.
        """
        ends = np.asarray([self.domain.low, self.domain.high])
        below, rest = self._position(ends)
        inner = np.where(rest > 0, self._origin + self._step * (below + np.asarray([1, 0])), ends)
        for pair in product(np.unique([ends[0], inner[0]]), np.unique([ends[1], inner[1]])):
            if pair[0] < pair[1]:
                yield self._cells(np.asarray(pair))

    def cut(self, first: Any, second: Any) -> Cells | None:
        """Cut the lattice for any two values."""
        pair = np.sort(np.asarray([float(first), float(second)]))
        return self._cells(pair) if pair[0] < pair[1] else None

    def _cells(self, pair: FloatArray) -> Cells:
        """Return runs between breakpoints, and the tails on both sides, a run for each stretch of a period."""
        noise, period = self._noise, float(self._noise.period)
        below, rest = self._position(pair)
        centres = np.concatenate([below, below + (rest > 0)])
        cuts = np.unique(np.add.outer(centres, np.concatenate([noise.breakpoints, -noise.breakpoints])))
        cuts = cuts[:1] if noise.parabolic else cuts
        lengths = np.diff(cuts)
        stretches = np.unique((cuts - cuts[0]) % period)
        shares = np.diff(stretches, append=period)
        right, left = cuts[-1] + (stretches + cuts[0] - cuts[-1]) % period, cuts[0] - period + stretches
        tails = np.full(2 * stretches.size, math.inf)
        span = np.concatenate([np.maximum(lengths - 1, 1), np.full(tails.size, float(noise.tail_span))])
        move = span * np.repeat([1.0, period, -period], [lengths.size, stretches.size, stretches.size])
        move[: lengths.size] *= lengths > 1
        starts = np.concatenate([cuts[:-1], right, left])
        volume = math.log(self._step) if self.fine else 0.0
        return Cells(
            pair=(pair[0], pair[1]),
            nodes=tuple(self.support.value(starts + n * move) for n in range(3 if noise.parabolic else 2)),
            log_weight=np.log(np.concatenate([np.ones(lengths.size), shares, shares])) + volume,
            places=np.concatenate([lengths, tails]),
            span=span,
            tilt=np.zeros(span.size),
            bound=None if np.any(rest > 0) else noise.ratio_above(int(below[1] - below[0])),
        )


@dataclass(frozen=True)
class LaplaceNoise(Noise):
    """P(k) proportional to exp(-rate |k|)."""

    rate: float

    @property
    def absolute(self) -> tuple[float, float, float]:
        half_sinh = math.sinh(self.rate / 2) if self.rate < 1400 else math.inf
        second = 1 / (2 * half_sinh**2) if half_sinh < 1e150 else 0.0
        first = 1 / math.sinh(self.rate) if self.rate < 700 else 0.0
        a = math.exp(-self.rate)
        third = 2 * a * (1 + 4 * a + a * a) / ((1 + a) * (-math.expm1(-self.rate)) ** 3)
        return first, second, third

    @property
    def tail(self) -> Tail:
        """-ln(1 - (t/rate)^2) bounds the log moment generating function, as for continuous Laplace noise."""
        return Tail(2 / self.rate**2, 1 / self.rate)

    @property
    def breakpoints(self) -> FloatArray:
        """The log mass bends at zero only."""
        return np.asarray([0.0])

    @property
    def tail_span(self) -> int:
        """Steps over which the mass falls by exp(-32)."""
        return math.ceil(32 / self.rate)

    def ratio_above(self, steps: int) -> float:
        """Return rate * steps, rounded up."""
        return up(Fraction(self.rate) * steps)

    def written(self) -> dict[str, Any]:
        return {"kind": "laplace", "rate": self.rate}

    def sample(self, rng: np.random.Generator, size: int) -> FloatArray:
        return _random.discrete_laplace(rng, self.rate, size)

    def log_mass(self, noise: FloatArray) -> FloatArray:
        """Return ln tanh(rate/2) - rate |k|."""
        return np.asarray(math.log(math.tanh(self.rate / 2)) - self.rate * np.abs(noise))


@dataclass(frozen=True)
class GaussianNoise(Noise):
    """P(k) proportional to exp(-k^2 / (2 sigma^2))."""

    sigma: float
    parabolic: ClassVar[bool] = True

    @cached_property
    def _normaliser(self) -> float:
        """Sum of exp(-k^2 / (2 sigma^2)): sigma sqrt(2 pi) to double precision from sigma = 4 on."""
        if self.sigma >= 4:
            return self.sigma * math.sqrt(2 * math.pi)
        return float(np.exp(-0.5 * (np.arange(-200.0, 201.0) / self.sigma) ** 2).sum())

    @cached_property
    def absolute(self) -> tuple[float, float, float]:
        if self.sigma > 2**10:  # sums and integrals of k^p exp(-k^2/2 sigma^2) agree to O(sigma^-2) and better
            first = math.sqrt(2 / math.pi) * self.sigma - 1 / (6 * self._normaliser)
            return first, self.sigma**2, 2 * math.sqrt(2 / math.pi) * self.sigma**3
        k = np.arange(0.0, max(200.0, math.ceil(40 * self.sigma)))
        mass = 2 * np.exp(-0.5 * (k / self.sigma) ** 2) / self._normaliser
        first, second, third = (float((k**power * mass).sum()) for power in (1, 2, 3))
        return first, second, third

    @property
    def tail(self) -> Tail:
        """Discrete Gaussian noise is sub-Gaussian with its own sigma (Canonne, Kamath, Steinke 2020, Fact 18)."""
        return Tail(self.sigma**2, 0.0)

    @property
    def breakpoints(self) -> FloatArray:
        """The log mass is smooth; ratios grow without end."""
        return np.asarray([0.0])

    @property
    def tail_span(self) -> int:
        """Eight standard deviations."""
        return math.ceil(8 * self.sigma)

    def ratio_above(self, steps: int) -> float:
        """Return infinity: the ratio grows with the noise."""
        return math.inf

    def written(self) -> dict[str, Any]:
        return {"kind": "gaussian", "sigma": self.sigma}

    def sample(self, rng: np.random.Generator, size: int) -> FloatArray:
        """Draw the noise."""
        return _random.discrete_gaussian(rng, self.sigma, size)

    def log_mass(self, noise: FloatArray) -> FloatArray:
        """Return -k^2 / (2 sigma^2) less the log normaliser."""
        return np.asarray(-0.5 * (noise / self.sigma) ** 2 - math.log(self._normaliser))
