"""SlidingHalf: sixteen outputs, of which eight neighbours are likely; which eight slides with the value."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from typing import Any, ClassVar

import numpy as np

from noisette import _random
from noisette._validate import FloatArray, IntArray
from noisette.cells import Cells, largest_ratio
from noisette.core import Moments, Readout, Tail
from noisette.domains import Interval
from noisette.mechanisms._base import Points, ScalarLaw, TableMechanism, check_step, coarseness, power_of_two

_HALF = 8  # likely outputs, and as many others: with 16 the variance at epsilon 1 would be 0.2 % lower
_UNIT = 1 << 53
_LARGEST_CODE = 1 << 10  # outputs are whole numbers up to this, in steps of a lattice


@dataclass(frozen=True)
class CodedPoints(Points):
    """Finitely many reports ``origin + step code``, which are added up by their codes."""

    origin: float
    step: float
    codes: tuple[int, ...]

    def index(self, reports: Any) -> FloatArray:
        """Return the code of the nearest point at or above each report."""
        places = np.minimum(np.searchsorted(self.values, reports), len(self.values) - 1)
        codes: FloatArray = np.asarray(self.codes, dtype=np.float64)[places]
        return codes

    def value(self, index: Any) -> FloatArray:
        """Return the report of a code, NaN where no report has it."""
        known = np.isin(index, self.codes)
        return np.where(known, self.origin + self.step * np.asarray(index, dtype=np.float64), np.nan)


@dataclass(frozen=True, eq=False)
class SlidingRows(ScalarLaw):
    """A row of weights for each point: a value is moved to one of the two points around it, and its row is drawn from.

    Row j has ``likely`` of 2^53 draws for each of the outputs j, ..., j + 7 and ``rare`` for the others.
    """

    support: CodedPoints
    likely: int
    rare: int

    @classmethod
    def build(cls, domain: Interval, epsilon: float) -> SlidingRows:
        """Return the rows whose points hold the domain, at a ratio of weights of at most exp(epsilon)."""
        # expm1 errs by less than a relative 2^-51; beyond epsilon 34 the rarer weight is one draw
        excess = Fraction(math.expm1(min(epsilon, 700.0))) * (1 - Fraction(1, 1 << 50))
        share = _UNIT // _HALF
        rare = math.ceil(share / (2 + excess))
        likely, slope = share - rare, math.tanh(epsilon / 2)
        # places in the middle of eight parts of the curve exp(s), |s| <= tanh(epsilon / 2)
        curve = np.exp(slope * ((2 * np.arange(_HALF) + 1) / _HALF - 1))
        rounded, order = np.rint(curve * (_LARGEST_CODE / curve[-1])).astype(np.int64), np.arange(_HALF)
        # at small budgets the curve is flat: each output stays one step or more below the next
        codes = (np.minimum.accumulate((rounded - order)[::-1])[::-1] + order).tolist()
        reach = Fraction((likely - rare) * sum(codes), _UNIT)  # mean of the last row, in steps
        half = domain.diameter / 2
        middle = domain.low + half
        grain = power_of_two(abs(middle) + 2 * half * _LARGEST_CODE / float(reach)) / 2**51
        check_step(grain * _LARGEST_CODE, domain)
        origin = grain * round(middle / grain)
        needed = max(Fraction(domain.high) - Fraction(origin), Fraction(origin) - Fraction(domain.low))
        step = grain * math.ceil(needed / reach / Fraction(grain))
        outputs = (*(-code for code in reversed(codes)), *codes)
        values = tuple(origin + step * code for code in outputs)
        return cls(CodedPoints(values, origin, step, outputs), likely, rare)

    @cached_property
    def counts(self) -> IntArray:
        """How many of 2^53 draws give each output (column), at each point (row)."""
        found = np.full((_HALF + 1, 2 * _HALF), self.rare, dtype=np.int64)
        for row in range(_HALF + 1):
            found[row, row : row + _HALF] = self.likely
        return found

    @cached_property
    def points(self) -> FloatArray:
        """The mean of each row: the values that are not moved."""
        sums = self.counts.astype(object) @ np.asarray(self.support.codes, dtype=object)
        step, origin = Fraction(self.support.step), Fraction(self.support.origin)
        return np.asarray([float(origin + step * Fraction(total, _UNIT)) for total in sums])

    @cached_property
    def _ends(self) -> IntArray:
        """Where the draws of each output end, row after row."""
        rows = np.arange(_HALF + 1, dtype=np.int64)[:, None] << 53
        return np.asarray((np.cumsum(self.counts, axis=1) + rows).reshape(-1))

    def around(self, x: FloatArray) -> tuple[IntArray, FloatArray]:
        """Return the row below each value, and the chance of the next one: a multiple of 2^-53."""
        row = np.clip(np.searchsorted(self.points, x, side="right") - 1, 0, _HALF - 1)
        below = self.points[row]
        return row, _random.bernoulli_threshold((x - below) / (self.points[row + 1] - below))

    def chances(self, x: FloatArray) -> FloatArray:
        """Return the chances of all outputs, along the last axis."""
        row, share = self.around(x)
        first, second = (self.counts[one] * _random.ULP for one in (row, row + 1))
        return np.asarray(first + share[..., None] * (second - first))

    def weights(self, x: float) -> list[int]:
        """Return how many of 2^106 draws give each output."""
        row, share = self.around(np.asarray(x, dtype=float))
        often = int(float(share) * _UNIT)
        first, second = (self.counts[int(one)].tolist() for one in (row, row + 1))
        return [(_UNIT - often) * low + often * high for low, high in zip(first, second, strict=True)]

    @property
    def total(self) -> int:
        """Sum of the weights of all outputs."""
        return _UNIT**2

    def kinds(self, place: Any) -> tuple[tuple[int, int], ...]:
        """Return the weight of each output."""
        return tuple((1, weight) for weight in self.weights(float(place)))

    def written(self) -> dict[str, Any]:
        levels = [0] * (_HALF + 1)
        return {"kind": "table", "levels": levels, "outputs": str(self.support), "rows": self.counts.tolist()}

    def table(self) -> dict[str, Any]:
        """Return the rows, their points and the outputs."""
        law = self.written()
        rows = {"points": self.points.tolist(), "levels": law["levels"], "rows": law["rows"]}
        return {"kind": "rows"} | rows | {"outputs": list(self.support.values), "named": law["outputs"]}

    def sample(self, x: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Draw one report for each value."""
        row, share = self.around(x)
        row = row + (rng.random(x.size) < share)
        draw = _random.words(rng, _UNIT, x.size)
        draw += row << 53
        place = np.searchsorted(self._ends, draw, side="right") - row * (2 * _HALF)
        reports: FloatArray = np.asarray(self.support.values)[place]
        return reports


@dataclass(frozen=True)
class SlidingHalf(TableMechanism):
    """Report one of sixteen numbers, of which the eight neighbours that the value has chosen are likely.

    Formula, on [-1, 1] with T = tanh(e/2): outputs +-c exp(s), s in the middle of eight equal parts of [-T, T]. Point j
    of nine, the mean when the outputs j, ..., j + 7 have the chance E/(8 (E+1)) each and the others 1/(8 (E+1)), is
    moved to from both sides without bias; c makes the last point 1.

    *Guarantee*: epsilon-LDP for one value, exactly: the law is a table of integers with two different ones.
    *Utility*: unbiased; nearly the same variance at every value: 4.023 at epsilon 1, where `LpOptimal`, the least that
    is possible, has 3.991 and Hybrid 4.289; 16.014 against 16.003 and 16.671 at epsilon 0.5. Above 1.9 others are
    better. A report has four bits, nothing has to be solved, and a web page draws it.
    The law is that of `LpOptimal` for small budgets, cut into sixteen equal parts.

    >>> m = SlidingHalf(epsilon=1.0)
    >>> m.moments([0.0, 0.3, 1.0]).variance.round(3).tolist()
    [4.007, 4.018, 4.006]
    """

    epsilon: float
    _: KW_ONLY
    domain: Interval = Interval()  # noqa: RUF009
    name: ClassVar[str] = "sliding-half"
    citation: ClassVar[str] = "kairouz2016extremal"

    @cached_property
    def _rows(self) -> SlidingRows:
        return SlidingRows.build(self.domain, self.epsilon)

    @property
    def support(self) -> CodedPoints:
        """The sixteen outputs."""
        return self._rows.support

    def law(self) -> SlidingRows:
        """Return the rows of weights."""
        return self._rows

    def _placed(self, x: FloatArray) -> FloatArray:
        return x

    def table(self) -> dict[str, Any]:
        """Return the rows, their points and the outputs."""
        return self._rows.table()

    def moments(self, x: Any) -> Moments:
        values = self._inputs(x)
        chances = self._rows.chances(values)
        away = np.asarray(self.support.values) - values[..., None]
        bias = (chances * away).sum(axis=-1)
        away = np.abs(away - bias[..., None])
        return Moments(bias, (chances * away**2).sum(axis=-1), (chances * away**3).sum(axis=-1))

    def log_prob(self, report: Any, x: Any) -> FloatArray:
        """Return the exact log mass of a report, -inf for other numbers than the outputs."""
        reports, values = np.broadcast_arrays(np.asarray(report, dtype=float), self._inputs(x))
        place = np.minimum(np.searchsorted(self.support.values, reports), 2 * _HALF - 1)
        row, share = self._rows.around(values)
        first, second = (self._rows.counts[one, place] * _random.ULP for one in (row, row + 1))
        known = np.asarray(self.support.values)[place] == reports
        return np.where(known, np.log(first + share * (second - first)), -np.inf)

    @cached_property
    def _corners(self) -> list[float]:
        """The points within the domain and its ends: every law is a mixture of theirs."""
        return [self.domain.low, *self._rows.points[1:-1].tolist(), self.domain.high]

    def witnesses(self) -> tuple[FloatArray, FloatArray]:
        """Return the ends of the domain, the points and all outputs."""
        return np.asarray(self._corners), np.asarray(self.support.values)

    def dissect(self) -> Iterator[Cells]:
        """Return all outputs, for every two of the points and ends: delta is convex in either law."""
        outputs = np.asarray(self.support.values)
        laws = {x: [Fraction(weight, self._rows.total) for weight in self._rows.weights(x)] for x in self._corners}
        for first, second in combinations(self._corners, 2):
            bound = largest_ratio(zip(laws[first], laws[second], strict=True))
            yield Cells.constant((first, second), outputs, np.zeros(outputs.size), bound)

    def worst_variance(self) -> float:
        """Return the largest variance: between two points the second moment is linear, so it is a parabola's."""
        corners = np.asarray(self._corners)
        centred = corners - self.support.origin
        squares = self.moments(corners).variance + centred**2
        slopes = np.diff(squares) / np.diff(centred)
        tops = np.clip(slopes / 2, centred[:-1], centred[1:])
        return float(np.max(squares[:-1] + slopes * (tops - centred[:-1]) - tops**2)) * (1 + 1e-12)

    @cached_property
    def readout(self) -> Readout:
        """The plain mean of the reports, from the sum of their codes."""
        support, codes = self.support, self.support.codes
        span = support.high - support.low
        return Readout(
            offset=support.origin,
            scale=support.step,
            low=self.domain.low,
            high=self.domain.high,
            tail=Tail(self.worst_variance() + (self.domain.diameter / 2) ** 2, span / 3),
            coarse=coarseness((codes[-1] - codes[0]) / 2**6),
        )
