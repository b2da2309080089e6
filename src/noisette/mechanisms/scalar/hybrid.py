"""Hybrid: Piecewise most of the time, Duchi otherwise."""

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
from noisette.cells import Cells, CutAnywhere, largest_ratio
from noisette.core import Moments, Readout
from noisette.domains import Interval
from noisette.mechanisms._base import Lattice, Points, ScalarLaw, TableMechanism
from noisette.mechanisms.scalar._window import Window, bounded_readout
from noisette.mechanisms.scalar.duchi import Duchi, TwoPoint
from noisette.mechanisms.scalar.piecewise import unbiased_travel

_DUCHI_ALONE = 0.61  # below it mixing in Piecewise raises the worst-case variance


@dataclass(frozen=True)
class Mixture(ScalarLaw):
    """A report by the window with chance ``share``, a multiple of 2^-53, else one of two."""

    share: float
    window: Window
    pair: TwoPoint

    @property
    def total(self) -> int:
        """Sum of the weights of all outputs."""
        return (1 << 53) * self.window.total * self.pair.total

    def written(self) -> dict[str, Any]:
        return {
            "kind": "mixture",
            "share": int(self.share * (1 << 53)),
            "parts": [self.window.written(), self.pair.written()],
        }

    def kinds(self, place: Any) -> tuple[tuple[int, int], ...]:
        """Return the weights of outputs inside the window and outside, and of Duchi's two, which are such outputs."""
        window, share = self.window, int(self.share * (1 << 53))
        start = int(window.place(np.asarray(place, dtype=float), window.unbiased_map))
        (width, inside), (moves, outside) = window.kinds(start)
        counts, found = {True: width, False: moves}, []
        for value, (_, weight) in zip((self.pair.low, self.pair.high), self.pair.kinds(place), strict=True):
            within = start <= round((value - window.first) / window.step) < start + window.width
            counts[within] -= 1
            both = share * (inside if within else outside) * self.pair.total
            found.append((1, both + ((1 << 53) - share) * weight * window.total))
        found += [(counts[True], share * inside * self.pair.total), (counts[False], share * outside * self.pair.total)]
        return tuple(found)

    def sample(self, place: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Draw one report for each value."""
        report = self.pair.sample(place, rng)
        window = self.window.sample(self.window.place(place, self.window.unbiased_map), rng)
        window -= report
        window *= rng.random(place.size) < self.share
        report += window
        return report


@dataclass(frozen=True)
class Hybrid(TableMechanism):
    """Report by Piecewise with probability 1 - exp(-e/2), by Duchi otherwise; by Duchi alone up to epsilon 0.61.

    Formula: the mixture; on [-1, 1] with s = exp(e/2), E = exp(e), c = (E+1)/(E-1), the variance is
    (s+3)/(3s(s-1)) + c^2/s.

    *Guarantee*: epsilon-LDP for one value, exactly: both parts are.
    *Utility*: unbiased; the same variance at every value above 0.61, and a lower worst case than either part.
    Wang et al. 2019, section 3.3, equation 8.

    >>> round(float(Hybrid(epsilon=1.0).moments(0.3).variance), 6)
    4.288993
    """

    epsilon: float
    _: KW_ONLY
    domain: Interval = Interval()  # noqa: RUF009
    name: ClassVar[str] = "hybrid"
    citation: ClassVar[str] = "wang2019collecting"

    @cached_property
    def p_piecewise(self) -> float:
        """Share of reports made by Piecewise."""
        return float(_random.bernoulli_threshold(-math.expm1(-self.epsilon / 2))) if self._alone is None else 0.0

    @cached_property
    def _alone(self) -> Duchi | None:
        """Duchi's mechanism where it is the better one by itself."""
        return Duchi(epsilon=self.epsilon, domain=self.domain) if self.epsilon <= _DUCHI_ALONE else None

    @cached_property
    def _window(self) -> Window:
        log_t = self.epsilon / 2
        return Window.build(self.domain, self.epsilon, log_t, unbiased_travel(self.epsilon, log_t))

    @cached_property
    def _pair(self) -> TwoPoint:
        return TwoPoint.build(self.domain, self.epsilon, self._window.lattice)

    @property
    def support(self) -> Lattice | Points:
        """The lattice of Piecewise, which holds Duchi's two reports, or these alone."""
        return self._window.lattice if self._alone is None else self._alone.support

    def law(self) -> Mixture | TwoPoint:
        """Return both tables and the share of the window, or Duchi's table."""
        return Mixture(self.p_piecewise, self._window, self._pair) if self._alone is None else self._alone.law()

    def _placed(self, x: FloatArray) -> FloatArray:
        return x

    def table(self) -> dict[str, Any]:
        """Return both parts and the share of Piecewise, or Duchi's two reports."""
        if self._alone is not None:
            return self._alone.table()
        window = self._window.table(self._window.unbiased_map)
        return {"kind": "mixture", "share": self.p_piecewise, "window": window, "pair": self._pair.table()}

    def moments(self, x: Any) -> Moments:
        """Return the exact moments of the mixture."""
        if self._alone is not None:
            return self._alone.moments(x)
        values = self._inputs(x)
        place = self._window.place(values, self._window.unbiased_map)
        share, (p_low, p_high) = self.p_piecewise, self._pair.masses(values)
        mean = share * self._window.mean(place) + (1 - share) * values

        def absolute(power: int) -> FloatArray:
            two = p_high * np.abs(self._pair.high - mean) ** power + p_low * np.abs(mean - self._pair.low) ** power
            return np.asarray(share * self._window.absolute(place, mean, power) + (1 - share) * two)

        return Moments(mean - values, absolute(2), absolute(3))

    def log_prob(self, report: Any, x: Any) -> FloatArray:
        """Return the exact log mass per unit of length, where Duchi's two reports stand out; Duchi's mass if alone."""
        if self._alone is not None:
            return self._alone.log_prob(report, x)
        reports, values = np.broadcast_arrays(np.asarray(report, dtype=float), self._inputs(x))
        p_low, p_high = self._pair.masses(values)
        nearest = self.support.value(self.support.index(reports))
        two = np.where(nearest == self._pair.high, p_high, np.where(nearest == self._pair.low, p_low, 0.0))
        place = self._window.place(values, self._window.unbiased_map)
        mass = (1 - self.p_piecewise) * two + self.p_piecewise * np.exp(self._window.log_mass(reports, place))
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(mass) - math.log(self._window.step))

    def witnesses(self) -> tuple[FloatArray, FloatArray]:
        """Return ends and middle of the domain, every edge of the windows there, and Duchi's reports."""
        if self._alone is not None:
            return self._alone.witnesses()
        inputs = np.asarray([self.domain.low, (self.domain.low + self.domain.high) / 2, self.domain.high])
        edges = self._window.edges(self._window.place(inputs, self._window.unbiased_map))
        return inputs, np.union1d(edges, [self._pair.low, self._pair.high])

    def dissect(self) -> Iterator[Cells]:
        """Cut the outputs at the edges of the windows of both ends of the domain, and set Duchi's reports apart.

        No pair is worse: the ends are the worst pair of each part, and there both parts favour the same input at every
        report, so that their divergences add up.
        """
        if self._alone is not None:
            yield from self._alone.dissect()
            return
        yield self._cells((self.domain.low, self.domain.high))

    def cut(self, first: Any, second: Any) -> Cells | None:
        """Cut the outputs for any two inputs."""
        if self._alone is None:
            return self._cells((float(first), float(second)))
        return self._alone.cut(first, second) if isinstance(self._alone, CutAnywhere) else None

    def _cells(self, pair: tuple[float, float]) -> Cells:
        """Cut the outputs at the edges of both windows, and set Duchi's reports apart."""
        window = self._window
        place = window.place(np.asarray(pair), window.unbiased_map)
        points = np.rint((np.asarray([self._pair.low, self._pair.high]) - window.first) / window.step)
        cuts = np.unique(np.concatenate([window.cuts(place), points, points + 1]))
        chances = dict(zip(points.tolist(), self._pair.exact_masses(pair), strict=True))
        share = Fraction(self.p_piecewise)

        def mass(cut: float, end: int) -> Fraction:
            two = chances[cut][end] if cut in chances else Fraction(0)
            return share * window.exact_mass(cut, float(place[end])) + (1 - share) * two

        masses = ((mass(cut, 0), mass(cut, 1)) for cut in cuts[:-1].tolist())
        volume = np.log(np.diff(cuts) * window.step)
        return Cells.constant(pair, window.first + window.step * cuts[:-1], volume, largest_ratio(masses))

    @cached_property
    def readout(self) -> Readout:
        """The plain mean of the reports."""
        if self._alone is not None:
            return self._alone.readout
        ends = np.linspace(self.domain.low, self.domain.high, 3)
        return bounded_readout(self._window.lattice, self.domain, variance=float(self.moments(ends).variance.max()))
