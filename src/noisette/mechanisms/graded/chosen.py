"""Mechanisms with levels for values whose level is not their own, such as entries of a gradient."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from noisette import _random, _validate
from noisette._random import Rng
from noisette._validate import FloatArray, IntArray
from noisette.core import Moments, Readout, Tail, Tally
from noisette.guarantees import Guarantee
from noisette.mechanisms.graded import _table
from noisette.mechanisms.graded._levels import Matrix
from noisette.mechanisms.graded._table import CountTable
from noisette.mechanisms.graded.laplace import GradedLaplace
from noisette.mechanisms.graded.optimal import OptimalGraded

_POINTS = np.linspace(-1.0, 1.0, 5)


@dataclass(frozen=True)
class ChosenLevelLaplace(GradedLaplace):
    """GradedLaplace for values whose level is not their own: inputs are rows (value, level)."""

    def privatize(self, x: Any, *, clip: bool = False, rng: Rng = None) -> Any:
        """Return one report for each row."""
        rows = _validate.reals(_validate.people(x, (2,))).reshape(-1, 2)
        return self._drawn(self._admit(rows[:, 0], clip=clip), rows[:, 1], _random.generator(rng))

    def moments(self, x: Any) -> Moments:
        """Return the exact moments for rows (value, level)."""
        rows = _validate.reals(x).reshape(-1, 2)
        return self._moments_at(rows[:, 0], rows[:, 1].astype(np.intp))

    def written_law(self) -> None:  # type: ignore[override]
        """Return nothing: a written law has the levels of values, which are not those of the rows here."""

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
            raise ValueError(
                f"Report {bad} is outside the support of optimal-graded: {outputs.round(4).tolist()}. "
                "Give reports of this very mechanism."
            )
        counts = np.bincount(index, minlength=outputs.size)
        return Tally(flat.size, np.full(counts.size, flat.size, dtype=np.int64), counts, counts)

    def spec(self) -> dict[str, Any]:
        """Return a JSON description."""
        return {
            "mechanism": OptimalGraded.name,
            "edges": list(self.edges),
            "matrix": [list(row) for row in self.matrix],
        }
