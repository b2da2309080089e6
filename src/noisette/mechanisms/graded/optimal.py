"""OptimalGraded: the unbiased channel of least variance under a matrix of budgets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any, ClassVar

import numpy as np

from noisette import _random, _validate
from noisette._random import Rng
from noisette._validate import FloatArray, IntArray
from noisette.cells import Cells
from noisette.core import Capabilities, Moments, Readout, Tail, Tally
from noisette.domains import Interval
from noisette.guarantees import Guarantee
from noisette.mechanisms._base import BaseMechanism, Points, admit, blocks
from noisette.mechanisms.graded import _levels, _table
from noisette.mechanisms.graded._levels import Levels, Matrix
from noisette.mechanisms.graded._table import CountTable

RULES: dict[str, Callable[[float, float], float]] = {"min": min, "max": max, "mean": lambda a, b: (a + b) / 2}
_LEAST, _LARGEST = 0.01, 20.0  # budgets at which the linear programme is well-conditioned
_MOST_POINTS = 256
_SLOW = 24  # points from which on solving takes more than a second


@dataclass(frozen=True)
class OptimalGraded(BaseMechanism):
    """Report from the table of chances that a linear programme makes best under a budget for every two levels.

    Formula, for points x of the levels and outputs y: minimise max_x sum_y y^2 P(y|x) - x^2, or with
    objective="average" the mean over the points, subject to sum_y P(y|x) = 1, sum_y y P(y|x) = x and
    P(y|x) <= exp(r[t, t']) P(y|x') for x of level t and x' of level t'. A value between two points of its level is
    moved to one of them without bias.

    *Guarantee*: ``guarantee.matrix``, exactly and never above the r asked for: the law is a table of integers.
    *Utility*: unbiased. No channel with these points and outputs has a lower objective than the table's by more than
    the share `gap`, which duality proves: some 1e-13. The outputs are refined while that is quick; with ever finer
    ones we gained less than a hundredth. Solving takes seconds, for 64 points less than a minute; solutions are kept in
    $NOISETTE_CACHE, or in the user's cache directory.
    The programme is that of Kairouz, Oh, Viswanath 2016 with the variance for utility, under the budgets between inputs
    of Gu, Li, Xiong, Cao 2020 (input-discriminative LDP); how it is solved is ours.

    Give ``edges`` with ``epsilons``, from which ``rule`` makes r: "min", "max", "mean" or any function of two budgets.
    Or give r itself as ``matrix``, one row a level. ``points`` is how many of them the levels share; a list of numbers
    are the inputs themselves, each a level of its own, and then ``edges`` is left out.

    >>> m = OptimalGraded(edges=[-1, -0.5, 0.5, 1], epsilons=[1.0, 2.0, 1.0], rule="max", points=8, objective="average")
    >>> [[round(r, 6) for r in row] for row in m.guarantee.matrix]
    [[1.0, 2.0, 1.0], [2.0, 2.0, 2.0], [1.0, 2.0, 1.0]]
    >>> m.gap < 1e-9, m.moments([0.0, 1.0]).variance.round(2).tolist()
    (True, [1.32, 4.33])
    >>> OptimalGraded(points=[0, 1, 5], matrix=[[0, 2, 1], [2, 0, 1], [1, 1, 0]]).privatize([5, 0, 1], rng=7).shape
    (3,)
    """

    edges: tuple[float, ...] | None = None
    epsilons: tuple[float, ...] | None = None
    _: KW_ONLY
    matrix: Matrix | None = None
    rule: str | Callable[[float, float], float] = "min"
    points: int | tuple[float, ...] = 32
    objective: str = "worst"
    name: ClassVar[str] = "optimal-graded"
    kind: ClassVar[str] = "mean"
    capabilities: ClassVar[Capabilities] = Capabilities((Interval,), levels=True, slow_start=True)
    citation: ClassVar[str] = "gu2020providing"

    def __post_init__(self) -> None:
        if isinstance(self.points, int | np.integer):
            if self.edges is None:
                raise ValueError("Expected edges=[...] of the levels, or points=[...], the inputs themselves.")
            levels = Levels.build(self.edges)
            points = _validate.integer(self.points, "points", low=2 * levels.size, high=_MOST_POINTS)
            object.__setattr__(self, "points", points)
            object.__setattr__(self, "edges", levels.edges)
            size = levels.size
        else:
            if self.edges is not None:
                raise ValueError("Expected a number of points with edges: a list of points is a level each.")
            inputs = Levels.build(self.points).edges
            if len(inputs) > _MOST_POINTS:
                raise ValueError(f"Expected at most {_MOST_POINTS} points, got {len(inputs)}.")
            object.__setattr__(self, "points", inputs)
            size = len(inputs)
        self._settle_budgets(size)
        if self.objective not in ("worst", "average"):
            raise ValueError(f"Expected objective={self.objective!r} to be 'worst' or 'average'.")

    def _settle_budgets(self, size: int) -> None:
        """Check the budgets; a rule that is a function becomes the matrix it gives, which JSON can hold."""
        if (self.epsilons is None) == (self.matrix is None):
            raise ValueError("Expected either epsilons=, a budget for each level, or matrix=, one for each two.")
        if self.matrix is not None:
            object.__setattr__(self, "matrix", _levels.square(self.matrix, size))
        else:
            object.__setattr__(self, "epsilons", _levels.budgets(self.epsilons, size))
            if callable(self.rule):
                object.__setattr__(self, "matrix", _levels.square(self._ruled(self.rule), size))
                object.__setattr__(self, "epsilons", None)
                object.__setattr__(self, "rule", "min")
        if self.rule not in RULES:
            raise ValueError(f"Expected rule={self.rule!r} to be a function or one of {', '.join(RULES)}.")
        apart = self._positions[:, None] != self._positions
        least = np.asarray(self.asked)[np.ix_(self._owners, self._owners)][apart].min()
        if not least >= _LEAST:
            raise ValueError(
                f"Expected budgets of at least {_LEAST:g} between different values, got {least:g}. Raise it, or use "
                "LevelledResponse, whose budgets may be smaller."
            )

    def _ruled(self, rule: Callable[[float, float], float]) -> list[list[float]]:
        assert self.epsilons is not None
        return [[rule(own, other) for other in self.epsilons] for own in self.epsilons]

    @classmethod
    def example(cls, epsilon: float) -> OptimalGraded:
        """Return three levels whose outer ones have half the budget of the middle one, which has ``epsilon``."""
        epsilons = (epsilon / 2, epsilon, epsilon / 2)
        return cls((-1.0, -0.5, 0.5, 1.0), epsilons, rule="max", points=8, objective="average")

    @classmethod
    def by_level(cls, epsilon: float, levels: Iterable[Sequence[float]]) -> Any:
        """Return the channel for values of any level under the matrix that `LevelledResponse.by_level` keeps."""
        from noisette.mechanisms.graded.chosen import ChosenLevelOptimal
        from noisette.mechanisms.graded.levelled import LevelledResponse

        same = LevelledResponse.by_level(epsilon, levels)
        matrix = np.asarray(same.guarantee.matrix)
        if matrix.min() < _LEAST:
            raise ValueError(
                f"Expected budgets of at least {_LEAST:g} between levels, got {matrix.min():g} at epsilon={epsilon:g}. "
                "Raise epsilon, or use levelled, whose budgets may be smaller."
            )
        return ChosenLevelOptimal(same.edges, tuple(map(tuple, np.minimum(matrix, _LARGEST).tolist())))

    def fitted(self, *, domain: Interval, epsilon: float) -> OptimalGraded:
        """Stretch the levels to another interval, and scale the budgets so that ``epsilon`` is the largest."""
        if self.edges is None:
            own = Levels(self._inputs_given).stretched(domain)
            return replace(self, points=own).calibrate(total=epsilon)
        return replace(self, edges=Levels(self.edges).stretched(domain)).calibrate(total=epsilon)

    def calibrate(self, *, total: float | None = None, matrix: Any = None) -> OptimalGraded:
        """Scale all budgets by the largest factor at which none is above what is asked."""
        target = np.asarray(_levels.one_target(total, matrix, len(self.asked)))
        own = np.asarray(self.asked)
        bounded = (own > 0) & np.isfinite(own)
        factor = float((target[bounded] / own[bounded]).min(initial=np.inf))
        if not 0 < factor < np.inf:
            raise ValueError("Expected positive, finite entries to calibrate to.")
        if self.epsilons is not None:
            return replace(self, epsilons=tuple(factor * epsilon for epsilon in self.epsilons))
        scaled = np.minimum(factor * own, target)  # where nothing was asked, what is asked now
        return replace(self, matrix=tuple(tuple(row) for row in scaled.tolist()))

    @property
    def asked(self) -> Matrix:
        """The budgets r that are asked for."""
        if self.matrix is not None:
            return self.matrix
        assert isinstance(self.rule, str)
        return tuple(tuple(row) for row in self._ruled(RULES[self.rule]))

    @property
    def _inputs_given(self) -> tuple[float, ...]:
        assert not isinstance(self.points, int)
        return self.points

    @cached_property
    def _rows(self) -> tuple[FloatArray, IntArray]:
        """Position and level of each row of the table; an edge between two levels has a row in each."""
        if self.edges is None:
            positions = np.asarray(self._inputs_given)
            return positions, np.arange(positions.size)
        assert isinstance(self.points, int)
        widths = np.diff(self.edges)
        counts = np.maximum(2, np.rint(self.points * widths / widths.sum())).astype(np.int64)
        parts = [np.linspace(self.edges[t], self.edges[t + 1], n) for t, n in enumerate(counts.tolist())]
        return np.concatenate(parts), np.repeat(np.arange(counts.size), counts)

    @property
    def _positions(self) -> FloatArray:
        return self._rows[0]

    @property
    def _owners(self) -> IntArray:
        return self._rows[1]

    @property
    def _programme(self) -> tuple[FloatArray, IntArray, FloatArray, FloatArray | None]:
        """What is solved: points of [-1, 1], their levels, budgets that matter, weights of the points."""
        points = np.clip(self.domain.to_canonical(self._positions), -1.0, 1.0)
        weights = np.full(points.size, 1 / points.size) if self.objective == "average" else None
        return points, self._owners, np.minimum(np.asarray(self.asked), _LARGEST), weights

    @cached_property
    def _solved(self) -> CountTable:
        return _table.solved(*self._programme)

    @property
    def slow_start(self) -> bool:
        """Whether the first use waits some seconds for the programme: plans leave it out then."""
        return self._positions.size > _SLOW and not _table.is_stored(*self._programme)

    @property
    def gap(self) -> float:
        """By what share the table's objective is above what any channel with its outputs can have."""
        from noisette.mechanisms.graded import _programme

        points, _, _, weights = self._programme
        table = self._solved
        value = _programme.objective(np.asarray(table.counts * _random.ULP), points, table.outputs, weights)
        return value / table.bound - 1

    @property
    def domain(self) -> Interval:
        """The interval from the least to the largest value."""
        return Interval(float(self._positions[0]), float(self._positions[-1]))

    @property
    def epsilon(self) -> float:  # type: ignore[override]
        """Exact epsilon between any two values: the largest entry of the matrix."""
        return self.guarantee.epsilon

    @cached_property
    def guarantee(self) -> Guarantee:
        """Return the exact graded guarantee of one report."""
        matrix = self._solved.matrix
        return Guarantee(max(map(max, matrix)), matrix=matrix)

    def written_law(self) -> dict[str, Any]:
        """Return how many of 2^53 draws give each output at each point; between points rows are mixed."""
        rows, levels = self._solved.counts.tolist(), self._owners.tolist()
        return {"kind": "table", "levels": levels, "outputs": str(self.support), "rows": rows}

    def table(self) -> dict[str, Any] | None:
        """Return the points with their levels, the outputs, and the counts; None where the points are the inputs."""
        if self.edges is None:
            return None
        rows = {
            "points": self._positions.tolist(),
            "levels": self._owners.tolist(),
            "rows": self._solved.counts.tolist(),
        }
        return {"kind": "rows"} | rows | {"outputs": list(self.support.values), "named": str(self.support)}

    @property
    def atoms(self) -> tuple[FloatArray, IntArray, FloatArray]:
        """Values, levels and chances of all outputs of the inputs whose laws every other law is a mixture of."""
        return self._positions, self._owners, np.asarray(self._solved.counts * _random.ULP)

    @cached_property
    def support(self) -> Points:
        """The outputs."""
        half = self.domain.diameter / 2
        return Points(tuple((self.domain.low + half + half * self._solved.outputs).tolist()))

    def _place(self, x: FloatArray) -> tuple[IntArray, IntArray, FloatArray]:
        """Return the rows below and above each value, and the share of the upper one: a multiple of 2^-53."""
        positions = self._positions
        low = np.searchsorted(positions, x, side="right") - 1
        high = np.minimum(low + 1, positions.size - 1)
        width = positions[high] - positions[low]
        share = np.divide(x - positions[low], width, out=np.zeros_like(x), where=width > 0)
        return low, high, _random.bernoulli_threshold(share)

    def _admit(self, x: FloatArray, *, clip: bool = False) -> FloatArray:
        """Return admissible values: of the interval, or among the points."""
        values = admit(x, self.domain, clip=clip)
        if self.edges is not None:
            return values
        low, high, share = self._place(values)
        if clip:
            return np.asarray(self._positions[np.where(share < 0.5, low, high)])
        if np.any(share > 0):
            bad = float(values[share > 0].flat[0])
            raise ValueError(
                f"Expected one of the {self._positions.size} points, got {bad}. Pass clip=True to move it."
            )
        return values

    def _answer(self, x: Any, *, clip: bool, rng: Rng) -> Any:
        values = _validate.numbers(x)
        source = _random.generator(rng)
        flat = values.reshape(-1)
        reports = np.empty(flat.size)
        outputs = np.asarray(self.support.values)
        for piece in blocks(flat.size):
            block = self._admit(np.asarray(flat[piece], dtype=np.float64), clip=clip)
            low, high, share = self._place(block)
            row = np.where(source.random(block.size) < share, high, low)
            reports[piece] = outputs[self._solved.sample(row, source)]
        return reports.reshape(values.shape)[()]

    def moments(self, x: Any) -> Moments:
        values = self._admit(_validate.reals(x))
        chances = self._solved.chances(*self._place(values))
        away = np.asarray(self.support.values) - values[..., None]
        bias = (chances * away).sum(axis=-1)
        away = np.abs(away - bias[..., None])
        return Moments(bias, (chances * away**2).sum(axis=-1), (chances * away**3).sum(axis=-1))

    def log_prob(self, report: Any, x: Any) -> FloatArray:
        """Return the exact log mass of a report, -inf for other numbers than the outputs."""
        reports, values = np.broadcast_arrays(np.asarray(report, dtype=float), self._admit(_validate.reals(x)))
        outputs = np.asarray(self.support.values)
        index = np.minimum(np.searchsorted(outputs, reports), outputs.size - 1)
        low, high, share = self._place(values)
        first, second = (self._solved.counts[row, index] * _random.ULP for row in (low, high))
        return np.where(outputs[index] == reports, np.log(first + share * (second - first)), -np.inf)

    def witnesses(self) -> tuple[FloatArray, FloatArray]:
        """Return the ends of the interval, two inputs with the largest ratio, and all outputs."""
        logs, last = np.log(self._solved.counts), self._positions.size - 1
        worst = [int(np.argmax(np.max(logs[row] - logs, axis=1))) for row in range(last + 1)]
        row = int(np.argmax([np.max(logs[row] - logs[other]) for row, other in enumerate(worst)]))
        return np.unique(self._inner[[0, row, worst[row], last]]), np.asarray(self.support.values)

    @property
    def _inner(self) -> FloatArray:
        """A value of each row's law: its position, or for the upper end of a level the value just below."""
        positions = self._positions
        shared = np.append(positions[1:] == positions[:-1], False)  # with the first row of the next level
        return np.where(shared, np.nextafter(positions, -np.inf), positions)

    def dissect(self) -> Iterator[Cells]:
        """Return all outputs, for every two points: between points of a level the law is a mixture of theirs."""
        outputs, inputs = np.asarray(self.support.values), self._inner
        for i, j in combinations(range(inputs.size), 2):
            bound = self._solved.laws.ratio_above([(i, j), (j, i)])
            yield Cells.constant((inputs[i], inputs[j]), outputs, np.zeros(outputs.size), bound)

    @cached_property
    def readout(self) -> Readout:
        """The plain mean of the reports, from how often each output was sent."""
        middle = self.domain.low + self.domain.diameter / 2
        weights = np.asarray(self.support.values) - middle
        worst = float(self.moments(np.unique(self._inner)).variance.max())
        return Readout(
            offset=middle,
            scale=1.0,
            low=self.domain.low,
            high=self.domain.high,
            tail=Tail(worst + self.domain.diameter**2 / 2, float(np.ptp(weights)) / 3),
            weights=weights,
        )

    def tally(self, reports: Any) -> Tally:
        """Count each output."""
        flat = _validate.reals(reports, "reports").reshape(-1)
        outputs = np.asarray(self.support.values)
        counts = np.zeros(outputs.size, dtype=np.int64)
        for block in blocks(flat.size):
            index = np.minimum(np.searchsorted(outputs, flat[block]), outputs.size - 1)
            if not np.array_equal(outputs[index], flat[block]):
                self.check_support(flat[block])
            counts += np.bincount(index, minlength=outputs.size)
        return Tally(flat.size, np.full(outputs.size, flat.size, dtype=np.int64), counts, counts)
