"""Gradients whose entries are protected by the levels of the attributes that they belong to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from noisette import _random, _validate
from noisette._random import Rng
from noisette._validate import FloatArray, IntArray
from noisette.core import Moments, Readout, Tail, Tally
from noisette.guarantees import Guarantee
from noisette.mechanisms.graded import _table
from noisette.mechanisms.graded._levels import Levels, Matrix, sorted_levels
from noisette.mechanisms.graded._table import CountTable
from noisette.mechanisms.graded.laplace import GradedLaplace
from noisette.mechanisms.graded.levelled import LevelledResponse
from noisette.mechanisms.graded.optimal import OptimalGraded

# Five equal levels with budgets 5e, 4e, 3e, 2e, e: Hao, Wu, Wan 2023, section 6.
FIVE_LEVELS = tuple((-1 + 0.4 * t, -1 + 0.4 * (t + 1), 5.0 - t) for t in range(5))

_POINTS = np.linspace(-1.0, 1.0, 5)
_LEAST, _LARGEST = 0.01, 20.0  # budgets at which the linear programme is well-conditioned


@dataclass(frozen=True)
class ChosenLevelLaplace(GradedLaplace):
    """GradedLaplace for values whose level is not their own: inputs are rows (value, level)."""

    def privatize(self, x: Any, *, clip: bool = False, rng: Rng = None) -> Any:
        """Return one report for each row."""
        rows = _validate.reals(_validate.people(x, (2,))).reshape(-1, 2)
        source = _random.generator(rng)
        index, rest = self._position(self._admit(rows[:, 0], clip=clip))
        index += source.random(len(rows)) < rest
        for own, noise in enumerate(self._noises):
            here = np.flatnonzero(rows[:, 1] == own)
            index[here] += noise.sample(source, here.size)
        return np.asarray(self.support.value(index))

    def moments(self, x: Any) -> Moments:
        """Return the exact moments for rows (value, level)."""
        rows = _validate.reals(x).reshape(-1, 2)
        _, rest = self._position(rows[:, 0])
        each = [self._noisy(noise, rest) for noise in self._noises]
        level = rows[:, 1].astype(np.intp)
        variance, third = (np.choose(level, [getattr(m, name) for m in each]) for name in ("variance", "third"))
        return Moments(np.zeros(len(rows)), variance, third)

    def _farthest(self, i: int, j: int) -> int:
        """Any value may have any level."""
        return self._steps


@dataclass(frozen=True)
class ChosenLevelOptimal:
    """OptimalGraded for values whose level is not their own: inputs are rows (value, level).

    The programme has five points of [-1, 1] in each level, and the average variance over all of them is least.
    *Guarantee*: ``guarantee.matrix``, exactly and never above ``matrix``.

    >>> m = ChosenLevelOptimal((-1.0, 0.0, 1.0), ((2.0, 1.0), (1.0, 1.0)))
    >>> [[round(r, 6) for r in row] for row in m.guarantee.matrix]  # more between two values of level 0 is no help
    [[1.0, 1.0], [1.0, 1.0]]
    """

    edges: tuple[float, ...]
    matrix: Matrix

    @cached_property
    def _rows(self) -> tuple[FloatArray, IntArray]:
        size = len(self.edges) - 1
        return np.tile(_POINTS, size), np.repeat(np.arange(size), _POINTS.size)

    @cached_property
    def _solved(self) -> CountTable:
        points, levels = self._rows
        return _table.solved(points, levels, np.asarray(self.matrix), np.full(points.size, 1 / points.size))

    @cached_property
    def guarantee(self) -> Guarantee:
        """The exact graded guarantee of one report."""
        matrix = self._solved.matrix
        return Guarantee(max(map(max, matrix)), matrix=matrix)

    def _place(self, rows: FloatArray) -> tuple[IntArray, IntArray, FloatArray]:
        """Return the table's rows below and above each value, and the share of the upper one: a multiple of 2^-53."""
        low = np.clip(np.searchsorted(_POINTS, rows[:, 0], side="right") - 1, 0, _POINTS.size - 2)
        share = (rows[:, 0] - _POINTS[low]) / (_POINTS[low + 1] - _POINTS[low])
        low = low + _POINTS.size * rows[:, 1].astype(np.int64)
        return low, low + 1, _random.bernoulli_threshold(share)

    def privatize(self, x: Any, *, rng: Rng = None) -> FloatArray:
        """Return one report for each row."""
        source = _random.generator(rng)
        low, high, share = self._place(_validate.reals(x))
        row = np.where(source.random(low.size) < share, high, low)
        return self._solved.outputs[self._solved.sample(row, source)]

    def moments(self, x: Any) -> Moments:
        """Return the exact moments for rows (value, level)."""
        rows = _validate.reals(x)
        chances = self._solved.chances(*self._place(rows))
        away = self._solved.outputs - rows[:, :1]
        bias = (chances * away).sum(axis=1)
        away = np.abs(away - bias[:, None])
        return Moments(bias, (chances * away**2).sum(axis=1), (chances * away**3).sum(axis=1))

    @cached_property
    def readout(self) -> Readout:
        """The plain mean of the reports, from how often each output was sent."""
        outputs = self._solved.outputs
        reach = float(np.abs(outputs).max())
        return Readout(offset=0.0, scale=1.0, low=-1.0, high=1.0, tail=Tail(reach**2, 0.0), weights=outputs)

    def tally(self, reports: Any) -> Tally:
        """Count each output."""
        flat, outputs = _validate.reals(reports, "reports").reshape(-1), self._solved.outputs
        index = np.minimum(np.searchsorted(outputs, flat), outputs.size - 1)
        if not np.array_equal(outputs[index], flat):
            bad = flat[outputs[index] != flat][0]
            raise ValueError(f"Report {bad} is outside the support of optimal-graded: {outputs.round(4).tolist()}.")
        counts = np.bincount(index, minlength=outputs.size)
        return Tally(flat.size, np.full(counts.size, flat.size, dtype=np.int64), counts, counts)

    def spec(self) -> dict[str, Any]:
        """Return a JSON description."""
        return {
            "mechanism": OptimalGraded.name,
            "edges": list(self.edges),
            "matrix": [list(row) for row in self.matrix],
        }


@dataclass(frozen=True, eq=False)
class EntryReports:
    """Each user's report: which entry, and what the mechanism says of it."""

    indices: npt.NDArray[np.int64]
    reports: npt.NDArray[Any]

    def __len__(self) -> int:
        return len(self.indices)


@dataclass(frozen=True, eq=False)
class EntrySums:
    """For each entry how many reported it, and the sums of what they said: integers, which merge in any order."""

    users: int
    count: IntArray
    total: IntArray

    def merge(self, other: EntrySums) -> EntrySums:
        """Return the sums of both batches."""
        return EntrySums(self.users + other.users, self.count + other.count, self.total + other.total)


@dataclass(frozen=True)
class OneEntry:
    """One entry of a vector, drawn at random, by a mechanism for values with a level.

    *Guarantee*: ``matrix[i][j]`` is the mechanism's, for an entry of level i against level j. The entry is drawn
    without looking at the record, so of two records the ratio is at most the largest over their entries.
    """

    mechanism: Any
    levels: Levels
    dims: int
    bound: float

    @property
    def guarantee(self) -> Guarantee:
        """What the mechanism protects."""
        guarantee: Guarantee = self.mechanism.guarantee
        return guarantee

    @cached_property
    def noise(self) -> float:
        """Expected squared length of the error of one user's vector, levels being equally frequent."""
        inputs = np.asarray([(x, t) for t in range(self.levels.size) for x in (-1.0, 0.0, 1.0)])
        moments = self.mechanism.moments(inputs)
        second = (moments.variance + (inputs[:, 0] + moments.bias) ** 2).reshape(-1, 3).max(axis=1)
        return float(second.mean() * self.dims**2 * self.bound**2)

    def privatize(self, vectors: FloatArray, levels: FloatArray, *, rng: Rng = None) -> EntryReports:
        """Return one report for each user; ``levels`` are the attributes' values on [-1, 1]."""
        source = _random.generator(rng)
        chosen = source.integers(0, self.dims, len(vectors))
        rows = np.arange(len(vectors))
        value = np.clip(vectors[rows, chosen] / self.bound, -1.0, 1.0)
        level = self.levels.of(levels[rows, chosen])
        return EntryReports(chosen, self.mechanism.privatize(np.stack([value, level], axis=1), rng=source))

    def gather(self, reports: EntryReports) -> EntrySums:
        """Refuse reports that the mechanism cannot have sent, and sum the others by entry."""
        if not isinstance(reports, EntryReports) or len(reports) == 0:
            raise ValueError(f"Expected the EntryReports of at least one user, got {type(reports).__name__}.")
        if reports.indices.min() < 0 or reports.indices.max() >= self.dims:
            raise ValueError(f"Expected entries from 0 to {self.dims - 1}, got {reports.indices.tolist()[:8]}.")
        order = np.argsort(reports.indices, kind="stable")
        ends = np.searchsorted(reports.indices[order], np.arange(self.dims + 1))
        count = np.diff(ends)
        total = np.zeros((self.dims, self._kinds), dtype=np.int64)
        for entry in np.flatnonzero(count).tolist():
            total[entry] = self.mechanism.tally(reports.reports[order[ends[entry] : ends[entry + 1]]]).total
        return EntrySums(len(reports), count, total)

    @property
    def _kinds(self) -> int:
        """How many sums a tally has."""
        weights = self.mechanism.readout.weights
        return 1 if weights is None else len(weights)

    def mean(self, gathered: EntrySums) -> FloatArray:
        """Return the unbiased mean: what is reported of an entry, divided by the chance that it is."""
        readout = self.mechanism.readout
        weights = np.ones(1) if readout.weights is None else readout.weights
        total = readout.offset * gathered.count + readout.scale * (gathered.total @ weights)
        return np.asarray(total * (self.bound * self.dims / gathered.users))

    def spec(self) -> dict[str, Any]:
        """Return the JSON description of the mechanism."""
        spec: dict[str, Any] = self.mechanism.spec()
        return spec


def levelled(epsilon: float, levels: Iterable[Sequence[float]]) -> LevelledResponse:
    """Return LevelledResponse for values of any level, its budgets scaled so that ``epsilon`` holds in total."""
    edges, epsilons = sorted_levels(levels)
    return LevelledResponse(tuple(edges), tuple(epsilons), personalised=True).calibrate(total=epsilon)


def laplace(epsilon: float, levels: Iterable[Sequence[float]]) -> GradedLaplace:
    """Return GradedLaplace for values of any level, its budgets drawn together so that (epsilon, 1e-6) holds."""
    edges, epsilons = sorted_levels(levels)
    graded = ChosenLevelLaplace(tuple(edges), tuple(epsilons))
    return graded.fitted(domain=graded.domain, epsilon=epsilon, delta=graded.delta)


def optimal(epsilon: float, levels: Iterable[Sequence[float]]) -> ChosenLevelOptimal:
    """Return the channel of least variance that keeps the matrix that `levelled` keeps at the same total epsilon."""
    same = levelled(epsilon, levels)
    matrix = np.asarray(same.guarantee.matrix)
    if matrix.min() < _LEAST:
        raise ValueError(
            f"Expected budgets of at least {_LEAST:g} between levels, got {matrix.min():g} at epsilon={epsilon:g}. "
            "Raise epsilon, or use levelled, whose budgets may be smaller."
        )
    return ChosenLevelOptimal(same.edges, tuple(map(tuple, np.minimum(matrix, _LARGEST).tolist())))


# how each mechanism with levels is made for values of any level
MADE: dict[type[Any], Callable[[float, Iterable[Sequence[float]]], Any]] = {
    LevelledResponse: levelled,
    GradedLaplace: laplace,
    OptimalGraded: optimal,
}
