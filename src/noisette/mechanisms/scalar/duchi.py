"""Duchi's mechanism: one bit that says which of two numbers is reported."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from noisette import _random
from noisette._validate import FloatArray
from noisette.cells import Cells, largest_ratio
from noisette.core import Moments, Readout, Tail
from noisette.domains import Interval
from noisette.mechanisms._base import Lattice, Points, ScalarLaw, TableMechanism, check_step, power_of_two

_UNIT = 1 << 53


@dataclass(frozen=True)
class TwoPoint(ScalarLaw):
    """Reports ``low`` or ``high``, the latter with probability (x - low) / (high - low)."""

    low: float
    high: float

    @classmethod
    def build(cls, domain: Interval, epsilon: float, lattice: Lattice | None = None) -> TwoPoint:
        """Return the two reports nearest the domain, on a lattice, whose ratio is at most exp(epsilon)."""
        largest = max(abs(domain.low), abs(domain.high))
        # at huge epsilon the rarer report keeps a chance that float64 resolves on this domain
        p_floor = max(2.0**-48, power_of_two(largest) / 2**48 / domain.diameter)
        p_least = max(1 / (1 + math.exp(min(epsilon, 700.0))), p_floor) + 4 * _random.ULP
        beyond = domain.diameter * p_least / (1 - 2 * p_least)
        # in exact arithmetic: a report that is rounded toward the domain would cost epsilon
        low, high = Fraction(domain.low) - Fraction(beyond), Fraction(domain.high) + Fraction(beyond)
        if lattice is not None:
            step = Fraction(lattice.step)
            up = max(0, math.floor((low - Fraction(lattice.low)) / step))
            down = max(0, math.floor((Fraction(lattice.high) - high) / step))
            return cls(lattice.low + up * lattice.step, lattice.high - down * lattice.step)
        grain = check_step(power_of_two(largest + beyond) / 2**51, domain)
        return cls(math.floor(low / Fraction(grain)) * grain, math.ceil(high / Fraction(grain)) * grain)

    def p_high(self, x: FloatArray) -> FloatArray:
        """Return the probability of the higher report."""
        probability = np.subtract(x, self.low, out=np.empty_like(x))
        probability *= 1 / (self.high - self.low)
        return probability

    def masses(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the probabilities that the sampler gives the lower and the higher report: multiples of 2^-53."""
        p_high = _random.bernoulli_threshold(self.p_high(x))
        return 1 - p_high, p_high

    def exact_masses(self, pair: tuple[float, float]) -> list[tuple[Fraction, Fraction]]:
        """Return the probabilities of the lower and of the higher report under two inputs, as fractions."""
        high = [Fraction(float(p)) for p in self.masses(np.asarray(pair))[1]]
        return [(1 - high[0], 1 - high[1]), (high[0], high[1])]

    @property
    def total(self) -> int:
        """Draws in all."""
        return _UNIT

    def written(self) -> dict[str, Any]:
        return {"kind": "two-point", "low": self.low, "high": self.high}

    def kinds(self, place: Any) -> tuple[tuple[int, int], ...]:
        """Return how many of 2^53 draws give the lower and the higher report."""
        high = int(float(self.masses(np.asarray(place, dtype=float))[1]) * _UNIT)
        return (1, _UNIT - high), (1, high)

    def table(self) -> dict[str, Any]:
        """Return the two reports."""
        return {"kind": "two-point", "low": self.low, "high": self.high}

    def sample(self, x: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Draw one report for each value."""
        report = (rng.random(x.size) < self.p_high(x)).astype(np.float64)
        report *= self.high - self.low
        report += self.low
        return report


@dataclass(frozen=True)
class Duchi(TableMechanism):
    """Report one of two numbers outside the domain, the nearer one more often.

    Formula: report +-c on [-1, 1], c = (exp(e) + 1) / (exp(e) - 1), P(+c) = (1 + x/c) / 2.

    *Guarantee*: epsilon-LDP for one value, exactly.
    *Utility*: unbiased; variance c^2 - x^2, never below 1 - x^2: the best there is for small epsilon, poor above 2.
    Duchi, Jordan, Wainwright 2018, section 4.1. Harmony (Nguyen et al. 2016) is the same on one value.

    >>> m = Duchi(epsilon=1.0)
    >>> m.support.values[1], float(m.moments(0.0).variance)
    (2.1639534137, 4.6826943768)
    """

    epsilon: float
    _: KW_ONLY
    domain: Interval = Interval()  # noqa: RUF009
    name: ClassVar[str] = "duchi"
    citation: ClassVar[str] = "duchi2018minimax"

    @cached_property
    def _pair(self) -> TwoPoint:
        return TwoPoint.build(self.domain, self.epsilon)

    @property
    def support(self) -> Points:
        """The two reports."""
        return Points((self._pair.low, self._pair.high))

    def law(self) -> TwoPoint:
        """Return the two reports; their weights are those of 2^53 draws below a chance that is affine in the value."""
        return self._pair

    def _placed(self, x: FloatArray) -> FloatArray:
        return x

    def table(self) -> dict[str, Any]:
        """Return the two reports."""
        return self._pair.table()

    def moments(self, x: Any) -> Moments:
        """Return the exact moments: variance (high - x)(x - low)."""
        values = self._inputs(x)
        p_low, p_high = self._pair.masses(values)
        span = self._pair.high - self._pair.low
        variance = span**2 * p_low * p_high
        return Moments(np.zeros_like(values), variance, span * variance * (p_low**2 + p_high**2))

    def log_prob(self, report: Any, x: Any) -> FloatArray:
        """Return the log mass, -inf for other numbers than the two."""
        reports, values = np.broadcast_arrays(np.asarray(report, dtype=float), self._inputs(x))
        p_low, p_high = self._pair.masses(values)
        mass = np.where(reports == self._pair.high, np.log(p_high), np.log(p_low))
        return np.where(self.support.contains(reports), mass, -np.inf)

    def witnesses(self) -> tuple[FloatArray, FloatArray]:
        """Return the ends of the domain and both reports."""
        return np.asarray([self.domain.low, self.domain.high]), np.asarray(self.support.values)

    def dissect(self) -> Iterator[Cells]:
        """Return both reports, for the ends of the domain: between them either chance is monotone."""
        pair = (self.domain.low, self.domain.high)
        reports = np.asarray(self.support.values)
        yield Cells.constant(pair, reports, np.zeros(2), largest_ratio(self._pair.exact_masses(pair)))

    @property
    def readout(self) -> Readout:
        """The plain mean of the reports, from the count of high ones."""
        span = self._pair.high - self._pair.low
        return Readout(
            offset=self._pair.low,
            scale=span,
            low=self.domain.low,
            high=self.domain.high,
            tail=Tail(span**2 / 4, 0.0),  # Hoeffding: bounded reports are sub-Gaussian with span^2 / 4
        )
