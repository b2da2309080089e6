"""Exact log ratios between a few laws over the same few reports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from noisette._validate import FloatArray
from noisette.cells import log_above
from noisette.mechanisms.graded._levels import Matrix

_TIES = 1e-11  # of a log ratio; those nearer to the largest are compared as fractions


@dataclass(frozen=True, eq=False)
class Laws:
    """The chance of every report (column) under extreme inputs (rows), none of them zero."""

    masses: Sequence[Sequence[Fraction]]

    @cached_property
    def _logs(self) -> FloatArray:
        return np.log(np.asarray(self.masses, dtype=np.float64))

    def ratio_above(self, pairs: Iterable[tuple[int, int]]) -> float:
        """Return the largest log ratio of the first law's chances to the second's over these pairs, rounded up."""
        found = [(self._logs[i] - self._logs[j], i, j) for i, j in pairs]
        limit = max(float(gap.max()) for gap, _, _ in found) - _TIES
        near = ((i, j, c) for gap, i, j in found for c in np.flatnonzero(gap >= limit).tolist())
        return log_above(max(self.masses[i][c] / self.masses[j][c] for i, j, c in near))

    def matrix(self, groups: Sequence[Sequence[int]]) -> Matrix:
        """Return the largest log ratio between the laws of each two groups."""
        return tuple(tuple(self.ratio_above((i, j) for i in own for j in other) for other in groups) for own in groups)
