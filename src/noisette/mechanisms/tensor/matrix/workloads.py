"""Linear queries that a matrix mechanism answers: prefixes, ranges, totals, your own, along each mode of a tensor."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from noisette import _validate
from noisette._validate import FloatArray

NAMES = ("identity", "prefix", "range", "total")
_NULL = 1e-12  # of the largest singular value: a smaller one belongs to no query


class Workload(Protocol):
    """Queries along one mode: a matrix W with ``rows`` rows and ``size`` columns, which need not be formed."""

    @property
    def size(self) -> int:
        """Cells of the mode."""

    @property
    def rows(self) -> int:
        """Number of queries."""

    @property
    def root(self) -> FloatArray:
        """A matrix R of full row rank with R'R = W'W."""

    def answer(self, cells: FloatArray, axis: int) -> FloatArray:
        """Return W times the cells along an axis."""

    def variances(self, covariance: FloatArray) -> FloatArray:
        """Return the diagonal of W C W'."""


@dataclass(frozen=True)
class _OneACell:
    """As many queries as there are cells."""

    size: int

    @property
    def rows(self) -> int:
        """Number of queries."""
        return self.size


@dataclass(frozen=True)
class Identity(_OneACell):
    """Every cell."""

    @property
    def root(self) -> FloatArray:
        """The identity."""
        return np.eye(self.size)

    def answer(self, cells: FloatArray, axis: int) -> FloatArray:
        """Return the cells."""
        return cells

    def variances(self, covariance: FloatArray) -> FloatArray:
        """Return the diagonal."""
        return np.diagonal(covariance).copy()


@dataclass(frozen=True)
class Total:
    """The sum of all cells."""

    size: int
    rows: int = 1

    @property
    def root(self) -> FloatArray:
        """A row of ones."""
        return np.ones((1, self.size))

    def answer(self, cells: FloatArray, axis: int) -> FloatArray:
        """Return the sums, the axis kept."""
        return np.asarray(cells.sum(axis=axis, keepdims=True))

    def variances(self, covariance: FloatArray) -> FloatArray:
        """Return the sum of all covariances."""
        return np.asarray([covariance.sum()])


@dataclass(frozen=True)
class Prefix(_OneACell):
    """The sums of the first 1, 2, ..., n cells."""

    @property
    def root(self) -> FloatArray:
        """A lower triangle of ones."""
        return np.tri(self.size)

    def answer(self, cells: FloatArray, axis: int) -> FloatArray:
        """Return the running sums."""
        return np.asarray(np.cumsum(cells, axis=axis))

    def variances(self, covariance: FloatArray) -> FloatArray:
        """Return the variances of the running sums."""
        return np.diagonal(np.cumsum(np.cumsum(covariance, axis=0), axis=1)).copy()


@dataclass(frozen=True)
class Range:
    """The sums of cells i to j for all i <= j, by i and then by j."""

    size: int

    @property
    def rows(self) -> int:
        """Number of queries."""
        return self.size * (self.size + 1) // 2

    @property
    def root(self) -> FloatArray:
        """A root of the Gram matrix: cells a and b are together in min(a, b) (n + 1 - max(a, b)) ranges."""
        place = np.arange(1.0, self.size + 1)
        gram = np.minimum.outer(place, place) * (self.size + 1 - np.maximum.outer(place, place))
        return np.asarray(np.linalg.cholesky(gram).T)

    @cached_property
    def _ends(self) -> tuple[Any, Any]:
        """Place before the first and behind the last cell of each range."""
        first, last = np.triu_indices(self.size)
        return first, last + 1

    def answer(self, cells: FloatArray, axis: int) -> FloatArray:
        """Return differences of running sums."""
        padded = np.insert(np.cumsum(cells, axis=axis), 0, 0.0, axis=axis)
        before, behind = self._ends
        return np.asarray(np.take(padded, behind, axis=axis) - np.take(padded, before, axis=axis))

    def variances(self, covariance: FloatArray) -> FloatArray:
        """Return sums over squares of the covariance, from its running sums along both axes."""
        table = np.pad(np.cumsum(np.cumsum(covariance, axis=0), axis=1), ((1, 0), (1, 0)))
        before, behind = self._ends
        return np.asarray(table[behind, behind] - 2 * table[before, behind] + table[before, before])


@dataclass(frozen=True, eq=False)
class Given:
    """The rows of a matrix of your own."""

    matrix: FloatArray

    @property
    def size(self) -> int:
        """Cells of the mode."""
        return int(self.matrix.shape[1])

    @property
    def rows(self) -> int:
        """Number of queries."""
        return int(self.matrix.shape[0])

    @cached_property
    def root(self) -> FloatArray:
        """The singular values that are not zero, times their right singular vectors."""
        _, values, right = np.linalg.svd(self.matrix, full_matrices=False)
        kept = values > _NULL * values[0]
        return np.asarray(values[kept, None] * right[kept])

    def answer(self, cells: FloatArray, axis: int) -> FloatArray:
        """Return the product along the axis."""
        return np.moveaxis(np.tensordot(self.matrix, cells, axes=(1, axis)), 0, axis)

    def variances(self, covariance: FloatArray) -> FloatArray:
        """Return the diagonal of W C W'."""
        return np.asarray(np.einsum("ij,ij->i", self.matrix @ covariance, self.matrix))


_CLASSES: dict[str, Any] = {"identity": Identity, "prefix": Prefix, "range": Range, "total": Total}


def read_modes(given: Any, dims: tuple[int, ...], name: str) -> tuple[Any, ...]:
    """Return one entry a mode, a name or nested tuples, from a name, a matrix or a list of these.

    >>> read_modes("prefix", (4, 2), "workload")
    ('prefix', 'prefix')
    """
    if isinstance(given, str):
        entries: tuple[Any, ...] = (given,) * len(dims)
    elif _depth(given) == 2:
        entries = (given,)
    elif isinstance(given, tuple | list):
        entries = tuple(given)
    else:
        raise TypeError(
            f"Expected {name}={given!r:.60} to be one of {NAMES}, a matrix, or a list of these with one for each mode."
        )
    if len(entries) != len(dims):
        raise ValueError(f"Expected {name} for the {len(dims)} modes of {dims}, got {len(entries)} of them.")
    pairs = enumerate(zip(entries, dims, strict=True))
    return tuple(_read(entry, size, f"{name}[{mode}]") for mode, (entry, size) in pairs)


def workload_of(entry: Any, size: int) -> Workload:
    """Return the queries that a checked entry stands for."""
    found: Workload = _CLASSES[entry](size) if isinstance(entry, str) else Given(np.asarray(entry, dtype=float))
    return found


def _read(entry: Any, size: int, name: str) -> Any:
    """Check one mode's entry."""
    if isinstance(entry, str):
        if entry not in NAMES:
            raise ValueError(f"Expected {name}={entry!r} to be one of {NAMES}, or a matrix with {size} columns.")
        return entry
    matrix = _validate.reals(entry, name)
    if matrix.ndim != 2 or matrix.shape[1] != size:
        raise ValueError(f"Expected {name} to be a matrix with {size} columns, one a cell, got shape {matrix.shape}.")
    if not np.isfinite(matrix).all():
        raise ValueError(f"Expected finite numbers in {name}, got {matrix[~np.isfinite(matrix)][0]}.")
    if not np.any(matrix):
        raise ValueError(f"Expected {name} to ask for something: all of its entries are 0.")
    return tuple(map(tuple, matrix.tolist()))


def _depth(given: Any) -> int:
    """Return how many levels of lists, tuples or axes there are above a number; 0 for anything else."""
    if isinstance(given, np.ndarray):
        return given.ndim
    if isinstance(given, tuple | list) and given:
        inner = _depth(given[0])
        return inner + 1 if inner or isinstance(given[0], int | float | np.number) else 0
    return 0
