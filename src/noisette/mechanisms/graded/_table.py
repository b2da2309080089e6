"""A solved channel in integers: chances are multiples of 2^-53, and no two of them break their budget."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from noisette import _random
from noisette._validate import FloatArray, IntArray
from noisette.mechanisms.graded._levels import Laws, Matrix

_UNIT = 1 << 53
_LEAST_SHARE, _LARGEST_SHARE = 2.0**-46, 2.0**-8
_VERSION = 1


@dataclass(frozen=True, eq=False)
class CountTable:
    """Outputs on [-1, 1]'s scale and, for each point (row), how many of 2^53 draws give each of them (column).

    No channel with these outputs, before they were rounded, has an objective below ``bound``.
    """

    outputs: FloatArray
    counts: IntArray
    levels: IntArray
    bound: float

    @classmethod
    def build(
        cls, outputs: FloatArray, chances: FloatArray, levels: IntArray, matrix: FloatArray, bound: float
    ) -> CountTable:
        """Round chances that keep the matrix nearly to integers that keep it exactly.

        A small share of one law for all points is mixed in, the smallest that leaves room for rounding; the outputs
        are then moved apart so that means stay.
        """
        kept = chances.max(axis=0) > 2.0**-50
        outputs, chances = outputs[kept], chances[:, kept]
        common = (chances.mean(axis=0) + 1 / outputs.size) / 2
        common /= common.sum()
        share = _LEAST_SHARE
        while share <= _LARGEST_SHARE:
            mixed = (1 - share) * chances + share * common
            counts = np.floor(mixed / mixed.sum(axis=1, keepdims=True) * _UNIT).astype(np.int64)
            counts[:, np.argmax(common)] += _UNIT - counts.sum(axis=1)
            if counts.min() > 0 and _keeps(counts, levels, matrix):
                return cls((outputs - share * float(common @ outputs)) / (1 - share), counts, levels, bound)
            share *= 4
        raise RuntimeError("The solved channel breaks its matrix by more than rounding. Please report this matrix.")

    @cached_property
    def matrix(self) -> Matrix:
        """The exact log ratios between levels."""
        groups = [np.flatnonzero(self.levels == level).tolist() for level in range(int(self.levels.max()) + 1)]
        return self.laws.matrix(groups)

    @cached_property
    def laws(self) -> Laws:
        """The chances as fractions."""
        return Laws([[Fraction(count, _UNIT) for count in row] for row in self.counts.tolist()])

    @cached_property
    def _ends(self) -> IntArray:
        """Where the draws of each output end, row after row."""
        rows = np.arange(len(self.counts), dtype=np.int64)[:, None] << 53
        return np.asarray((np.cumsum(self.counts, axis=1) + rows).reshape(-1))

    def sample(self, row: IntArray, rng: np.random.Generator) -> IntArray:
        """Draw the number of an output for each row."""
        draw = _random.words(rng, _UNIT, row.size)
        draw += row << 53
        return np.searchsorted(self._ends, draw, side="right") - row * self.outputs.size

    def chances(self, low: IntArray, high: IntArray, share: FloatArray) -> FloatArray:
        """Return the chances of all outputs (last axis) when one of two rows is taken, the higher with ``share``."""
        first, second = (self.counts[row] * _random.ULP for row in (low, high))
        return np.asarray(first + share[..., None] * (second - first))


def solved(points: FloatArray, levels: IntArray, matrix: FloatArray, weights: FloatArray | None) -> CountTable:
    """Return the table of the programme on [-1, 1], from the cache if it was solved before."""
    from noisette.mechanisms import _solved
    from noisette.mechanisms.graded import _programme

    key = cache_key(points, levels, matrix, weights)
    stored = _solved.read(key)
    if stored is not None:
        bound, count = float(stored[0]), (stored.size - 1) // (1 + points.size)
        if stored.size == 1 + count * (1 + points.size):
            outputs, chances = stored[1 : 1 + count], stored[1 + count :].reshape(points.size, count)
            return CountTable.build(outputs, chances, levels, matrix, bound)
    found = _programme.best(points, levels, matrix, weights)
    _solved.store(key, np.concatenate([[found.bound], found.outputs, found.chances.reshape(-1)]))
    return CountTable.build(found.outputs, found.chances, levels, matrix, found.bound)


def is_stored(points: FloatArray, levels: IntArray, matrix: FloatArray, weights: FloatArray | None) -> bool:
    """Tell whether the programme was solved before."""
    from noisette.mechanisms import _solved

    return _solved.read(cache_key(points, levels, matrix, weights)) is not None


def cache_key(points: FloatArray, levels: IntArray, matrix: FloatArray, weights: FloatArray | None) -> str:
    """Return what was solved, as text."""
    goal = "worst" if weights is None else weights.tolist()
    return json.dumps(["graded", _VERSION, points.tolist(), levels.tolist(), matrix.tolist(), goal])


def _keeps(counts: IntArray, levels: IntArray, matrix: FloatArray) -> bool:
    """Tell, in exact arithmetic, whether no output is more than exp(matrix[i, j]) times as likely at i as at j."""
    kinds = range(len(matrix))
    most = [counts[levels == kind].max(axis=0).astype(object) for kind in kinds]
    least = [counts[levels == kind].min(axis=0).astype(object) for kind in kinds]
    for i in kinds:
        for j in kinds:
            # exp errs by less than a relative 2^-52
            ratio = Fraction(math.exp(matrix[i, j])) * (1 - Fraction(1, 1 << 50))
            if i == j and np.count_nonzero(levels == i) == 1:
                continue
            if np.any(most[i] * ratio.denominator > least[j] * ratio.numerator):
                return False
    return True
