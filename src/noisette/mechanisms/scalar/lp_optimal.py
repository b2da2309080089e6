"""LpOptimal: the least worst-case variance that any unbiased mechanism can have."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from noisette._validate import FloatArray
from noisette.cells import Cells
from noisette.core import Capabilities, Moments, Readout
from noisette.domains import Interval
from noisette.mechanisms._base import Lattice, Points, ScalarLaw, TableMechanism, check_step, power_of_two
from noisette.mechanisms.scalar import _lp_table
from noisette.mechanisms.scalar._lp_table import WindowTable
from noisette.mechanisms.scalar._window import Window, bounded_readout
from noisette.mechanisms.scalar.piecewise import PiecewiseOptimal, log_worst_variance, optimal_log_t

_WITNESSES = 257


@dataclass(frozen=True)
class Rungs(Lattice):
    """The points of a lattice that lie ``inner`` steps or more from its origin."""

    inner: int = 0

    def __str__(self) -> str:
        hole = f" with |k| >= {self.inner}" if self.inner else ""
        return super().__str__() + hole

    def exact_index(self, reports: FloatArray) -> FloatArray | None:
        """Return the integers k if every report is one of the points."""
        return self.index(reports) if np.all(self.contains(reports)) else None

    def value(self, index: Any) -> FloatArray:
        """Return the point of an integer k, NaN for those too near the origin."""
        return np.where(np.abs(index) >= self.inner, super().value(index), np.nan)


@dataclass(frozen=True)
class Outputs(ScalarLaw):
    """The table of positions that outputs own, and the outputs on the domain."""

    table: WindowTable
    rungs: Rungs

    @property
    def total(self) -> int:
        """Sum of the weights of all outputs."""
        return self.table.total

    def written(self) -> dict[str, Any]:
        outputs = {"codes": self.table.codes.tolist(), "counts": self.table.counts.tolist(), "rungs": vars(self.rungs)}
        return {
            "kind": "window-over-all",
            "positions": _lp_table.POSITIONS,
            "width": self.table.width,
            "inside": int(self.table.p_window * (1 << 53)),
            "outputs": hashlib.sha256(json.dumps(outputs, sort_keys=True).encode()).hexdigest(),
        }

    def kinds(self, place: Any) -> tuple[tuple[int, int], ...]:
        """Return the weight of each output."""
        return tuple((1, weight) for weight in self.table.weights(int(place)))

    def sample(self, place: FloatArray, rng: np.random.Generator) -> FloatArray:
        report = self.table.sample(place, rng).astype(np.float64)
        report *= self.rungs.step
        report += self.rungs.origin
        return report


@dataclass(frozen=True)
class LpOptimal(TableMechanism):
    """Report from the table of probabilities that a linear programme makes best for the worst value.

    Formula, on [-1, 1] with E = exp(e): minimise tau subject to m_y <= p(y|x) <= E m_y, sum_y p(y|x) = 1,
    sum_y y p(y|x) = x, sum_y y^2 p(y|x) - x^2 <= tau, for every x of the interval and 401 outputs y. Up to e = 0.75 the
    solution is known: outputs +-exp(s)/sinh(T), s uniform on [-T, T], T = tanh(e/2), variance coth(T)/T - 1. From 8 to
    20 the outputs are a sin(s), s uniform. The table of 20 serves until PiecewiseOptimal's is better, at 20.4: larger
    ones would fill the memory.

    *Guarantee*: epsilon-LDP for one value, exactly: the law is an integer table, of budget `table_epsilon`.
    *Utility*: unbiased; nearly the same variance at every value. No unbiased epsilon-LDP mechanism has a lower worst
    case by more than 0.03 % (certified at e = 0.5, 1, 2) or 0.11 % (at 4, 6); PiecewiseOptimal's is a quarter higher
    from 1 to 20. Where they are at their best others beat it: Duchi at the ends of the interval, Piecewise at its
    middle from 1 on. The first use of a budget between 0.75 and 8 takes some seconds; the solution is kept in
    $NOISETTE_CACHE, or in the user's cache directory.
    The programme is that of Kairouz, Oh, Viswanath 2016 with the variance for utility; how it is solved is ours.

    >>> m = LpOptimal(epsilon=0.5)
    >>> round(float(m.moments(0.0).variance), 3), round(float(m.moments(1.0).variance), 3)
    (16.003, 16.003)
    >>> 0.5 - 1e-12 < m.table_epsilon <= 0.5
    True
    """

    epsilon: float
    _: KW_ONLY
    domain: Interval = Interval()  # noqa: RUF009
    name: ClassVar[str] = "lp-optimal"
    capabilities: ClassVar[Capabilities] = replace(TableMechanism.capabilities, slow_start=True)
    citation: ClassVar[str] = "kairouz2016extremal"

    @cached_property
    def _wide(self) -> PiecewiseOptimal | None:
        """PiecewiseOptimal, where its variance is below that of the largest table."""
        if self.epsilon <= _lp_table.LARGEST:
            return None
        variance = math.exp(log_worst_variance(optimal_log_t(self.epsilon), self.epsilon))
        if variance > _lp_table.table(_lp_table.LARGEST).worst_variance:
            return None
        return PiecewiseOptimal(epsilon=self.epsilon, domain=self.domain)

    @property
    def slow_start(self) -> bool:
        """Whether the first use of this budget waits some seconds for the programme: plans leave it out then."""
        return _lp_table.PROGRAMME_ABOVE < self.epsilon <= _lp_table.PROGRAMME_BELOW

    @cached_property
    def _table(self) -> WindowTable:
        return _lp_table.table(min(self.epsilon, _lp_table.LARGEST))

    @cached_property
    def _rungs(self) -> Rungs:
        """The outputs on the domain, multiples of a grain so coarse that float64 holds each of them exactly."""
        half, last = self.domain.diameter / 2, int(self._table.codes[-1])
        middle = self.domain.low + half
        grain = power_of_two(abs(middle) + 2 * half * self._table.step * last) / 2**51
        check_step(grain / self._table.step, self.domain)
        origin = grain * round(middle / grain)
        needed = max(self.domain.high - origin, origin - self.domain.low)
        step = grain * math.ceil(needed * self._table.step / grain)
        inner = int(self._table.codes[self._table.codes > 0][0]) if 0 not in self._table.codes else 0
        return Rungs(origin, step, origin - step * last, origin + step * last, inner)

    @property
    def table_epsilon(self) -> float:
        """Budget that the integer table really spends: at most ``epsilon``, and less only by rounding."""
        if self._wide is None:
            return self._table.epsilon
        inputs, reports = self._wide.witnesses()
        return float(np.ptp(self._wide.log_prob(reports[:, None], inputs), axis=1).max())

    @property
    def support(self) -> Lattice | Points:
        """The outputs of the table."""
        return self._rungs if self._wide is None else self._wide.support

    def _place(self, x: FloatArray) -> FloatArray:
        return self._table.place((x - self._rungs.origin) / self._rungs.step)

    def _placed(self, x: FloatArray) -> FloatArray:
        return self._place(x) if self._wide is None else self._wide._placed(x)

    def law(self) -> Outputs | Window:
        """Return the integer table, or that of PiecewiseOptimal."""
        return Outputs(self._table, self._rungs) if self._wide is None else self._wide.law()

    def moments(self, x: Any) -> Moments:
        if self._wide is not None:
            return self._wide.moments(x)
        values, step = self._inputs(x), self._rungs.step
        mean, variance, third = self._table.moments(self._place(values))
        return Moments(mean * step - (values - self._rungs.origin), variance * step**2, third * step**3)

    def log_prob(self, report: Any, x: Any) -> FloatArray:
        """Return the exact log mass of a report; above epsilon 20.4 per unit of length, as PiecewiseOptimal does."""
        if self._wide is not None:
            return self._wide.log_prob(report, x)
        reports, values = np.broadcast_arrays(np.asarray(report, dtype=float), self._inputs(x))
        known = self._rungs.contains(reports)
        codes = np.where(known, self._rungs.index(np.where(known, reports, self._rungs.origin)), np.nan)
        with np.errstate(divide="ignore"):
            return np.log(self._table.mass(codes, self._place(values)))

    def worst_variance(self) -> float:
        """Return the largest variance of a report, from that of the table on [-1, 1]."""
        if self._wide is not None:
            return self._wide.worst_variance()
        return self._table.worst_variance * (self._rungs.step / self._table.step) ** 2

    def witnesses(self) -> tuple[FloatArray, FloatArray]:
        """Return ends and middle of the domain, and reports from end to end: the windows of the ends do not overlap."""
        if self._wide is not None:
            return self._wide.witnesses()
        codes = self._table.codes
        some = np.unique(np.linspace(0, codes.size - 1, min(codes.size, _WITNESSES)).round().astype(np.int64))
        inputs = np.asarray([self.domain.low, (self.domain.low + self.domain.high) / 2, self.domain.high])
        return inputs, self._rungs.value(codes[some])

    def dissect(self) -> Iterator[Cells]:
        """Return all outputs, for the few pairs of inputs among which the worst one is: see `WindowTable.farthest`."""
        if self._wide is not None:
            yield from self._wide.dissect()
            return
        ends = self._place(np.asarray([self.domain.low, self.domain.high])).tolist()
        known = dict(zip(ends, (self.domain.low, self.domain.high), strict=True))
        outputs, weights = self._rungs.value(self._table.codes), np.zeros(self._table.codes.size)
        for pair in self._table.farthest(*ends):
            first, second = (known[place] if place in known else self._value(place) for place in pair)
            yield Cells.constant((first, second), outputs, weights, self._table.ratio_above)

    def _value(self, place: float) -> float:
        """Return the input that has its window at a place."""
        return float(self.domain.clip(self._rungs.origin + self._rungs.step * self._table.mean(place)))

    @cached_property
    def readout(self) -> Readout:
        """The plain mean of the reports."""
        if self._wide is not None:
            return self._wide.readout
        return bounded_readout(self._rungs, self.domain, variance=self.worst_variance())
