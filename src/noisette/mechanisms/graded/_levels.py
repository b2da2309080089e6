"""Levels, the parts of an interval that have a budget each, and the exact log ratios between laws of their reports."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from noisette import _validate
from noisette._search import narrowed
from noisette._validate import FloatArray
from noisette.cells import log_above
from noisette.domains import Interval
from noisette.mechanisms._base import check_width

TIES = 1e-11  # of a log ratio; those nearer to the largest, or to what is allowed, are compared as fractions
Matrix = tuple[tuple[float, ...], ...]

BUDGETS = (1e-7, 1e6)
_MOST_LEVELS = 1 << 10
_COMPARED = 16  # levels up to which comparing with every edge is faster than a search


@dataclass(frozen=True)
class Levels:
    """Level t holds the values from ``edges[t]`` up to, but not with, ``edges[t + 1]``; the last one holds its end."""

    edges: tuple[float, ...]

    @classmethod
    def build(cls, edges: Any) -> Levels:
        """Check that the edges cut an interval into levels that neither overlap nor leave gaps."""
        numbers = [_validate.number(edge, "edge") for edge in _listed(edges, "edges")]
        if len(numbers) < 2:
            raise ValueError(f"Expected at least two edges, got edges={edges!r}. Write e.g. edges=[-1, -0.6, 0, 1].")
        for low, high in pairwise(numbers):
            if not (math.isfinite(low) and math.isfinite(high) and low < high):
                raise ValueError(
                    f"Expected finite edges in rising order, got {high:g} after {low:g}: levels must neither overlap "
                    "nor be empty. Give the ends of the interval and the cuts between them, each once."
                )
        if len(numbers) > _MOST_LEVELS + 1:
            raise ValueError(f"Expected at most {_MOST_LEVELS} levels, got {len(numbers) - 1}.")
        levels = cls(tuple(numbers))
        check_width(levels.domain)
        return levels

    @property
    def size(self) -> int:
        """Number of levels."""
        return len(self.edges) - 1

    @property
    def domain(self) -> Interval:
        """The whole interval."""
        return Interval(self.edges[0], self.edges[-1])

    @property
    def ends(self) -> FloatArray:
        """Least and largest value of each level, ends[t] = (low, high)."""
        low, high = np.asarray(self.edges[:-1]), np.nextafter(np.asarray(self.edges[1:]), -math.inf)
        high[-1] = self.edges[-1]
        return np.stack([low, high], axis=1)

    def stretched(self, domain: Interval) -> tuple[float, ...]:
        """Return the edges after an affine map of the interval to ``domain``, whose ends it meets exactly."""
        shares = (np.asarray(self.edges[1:-1]) - self.edges[0]) / self.domain.diameter
        return (domain.low, *(domain.low + shares * domain.diameter).tolist(), domain.high)

    def of(self, x: FloatArray) -> npt.NDArray[np.intp]:
        """Return the level of each value, which lies in the domain."""
        if self.size > _COMPARED:
            return np.searchsorted(self.edges[1:-1], x, side="right")
        level = np.zeros(x.shape, dtype=np.intp)
        for edge in self.edges[1:-1]:
            level += x >= edge
        return level


def sorted_levels(levels: Iterable[Sequence[float]]) -> tuple[list[float], list[float]]:
    """Return edges and budgets of (low, high, epsilon) in any order, refusing overlaps and gaps."""
    rows = sorted(tuple(_validate.number(number, "level") for number in row) for row in levels)
    if not rows or any(len(row) != 3 for row in rows):
        raise ValueError(
            f"Expected levels as (low, high, epsilon), got {rows}. Write e.g. [(-1, 0, 2.0), (0, 1, 1.0)]."
        )
    for (low, high, _), (start, end, _) in pairwise(rows):
        if start != high:
            fault = "overlap" if start < high else "leave a gap"
            raise ValueError(
                f"The levels [{low:g}, {high:g}) and [{start:g}, {end:g}) {fault}. Let each begin where the last ends."
            )
    return [*(row[0] for row in rows), rows[-1][1]], [row[2] for row in rows]


def budgets(epsilons: Any, size: int) -> tuple[float, ...]:
    """Return one budget for each of ``size`` levels, in any order of size."""
    values = [
        _validate.epsilon(value, f"epsilons[{place}]") for place, value in enumerate(_listed(epsilons, "epsilons"))
    ]
    if len(values) != size:
        raise ValueError(f"Expected one budget for each of {size} levels, got {len(values)}: epsilons={epsilons!r}.")
    for value in values:
        if not BUDGETS[0] <= value <= BUDGETS[1]:
            raise ValueError(f"Expected budgets in [{BUDGETS[0]:g}, {BUDGETS[1]:g}], got {value:g}.")
    return tuple(values)


def square(matrix: Any, size: int, name: str = "matrix") -> Matrix:
    """Return a matrix of budgets between levels: ``size`` rows of as many numbers, none negative."""
    array = _validate.reals(matrix, name)
    if array.shape != (size, size):
        raise ValueError(f"Expected {name} of shape ({size}, {size}), one row a level, got {array.shape}.")
    if not np.all(array >= 0):
        raise ValueError(f"Expected budgets >= 0 in {name}, got {array[~(array >= 0)][0]}.")
    return tuple(tuple(row) for row in array.tolist())


def largest_scale(epsilons: Sequence[float], holds: Callable[[tuple[float, ...]], bool]) -> tuple[float, ...]:
    """Scale budgets by a factor that holds, the largest where smaller ones hold too: by doubling, then by bisection."""

    def scaled(factor: float) -> tuple[float, ...]:
        return tuple(factor * epsilon for epsilon in epsilons)

    least, most = BUDGETS[0] / min(epsilons) * (1 + 1e-9), BUDGETS[1] / max(epsilons) * (1 - 1e-9)
    low = min(max(1.0, least), most)
    while not holds(scaled(low)):
        if low == least:
            raise ValueError("No factor of the budgets meets what is asked, however small. Ask for larger entries.")
        low = max(low / 2, least)
    high = low
    while holds(scaled(high)):
        if high == most:
            return scaled(most)
        low, high = high, min(2 * high, most)
    return scaled(narrowed(lambda factor: holds(scaled(factor)), low, high, tolerance=1e-13)[0])


def within(matrix: Matrix, target: Matrix) -> bool:
    """Tell whether no entry of a matrix is above that of the target."""
    return bool(np.all(np.asarray(matrix) <= np.asarray(target)))


def one_target(total: float | None, matrix: Any, size: int) -> Matrix:
    """Return the matrix that is asked for: one of the two must be given."""
    if (total is None) == (matrix is None):
        raise ValueError("Expected either total=, one epsilon for every pair of levels, or matrix=, one for each.")
    if matrix is not None:
        return square(matrix, size)
    return tuple((_validate.epsilon(total, "total"),) * size for _ in range(size))  # type: ignore[arg-type]


def _listed(values: Any, name: str) -> list[Any]:
    """Return a sequence as a list."""
    try:
        if isinstance(values, str):
            raise TypeError
        return list(values.tolist() if isinstance(values, np.ndarray) else values)
    except TypeError:
        raise TypeError(f"Expected {name} to be a list of numbers, got {values!r}.") from None


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
        limit = max(float(gap.max()) for gap, _, _ in found) - TIES
        near = ((i, j, c) for gap, i, j in found for c in np.flatnonzero(gap >= limit).tolist())
        return log_above(max(self.masses[i][c] / self.masses[j][c] for i, j, c in near))

    def matrix(self, groups: Sequence[Sequence[int]]) -> Matrix:
        """Return the largest log ratio between the laws of each two groups."""
        return tuple(tuple(self.ratio_above((i, j) for i in own for j in other) for other in groups) for own in groups)
