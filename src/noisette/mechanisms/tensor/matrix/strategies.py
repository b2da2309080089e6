"""Strategies: the queries that are really asked, chosen so that a workload's answers have the least noise."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from noisette._random import ULP
from noisette._validate import FloatArray
from noisette.mechanisms.tensor.gaussian.modes import dense
from noisette.mechanisms.tensor.matrix.optimum import GAP, Optimum, named_optimum, optimum, symmetric
from noisette.mechanisms.tensor.matrix.workloads import Workload, workload_of

BITS = 28  # of an entry of x: whole numbers to a hundred million, and halves of them
_UNSUPPORTED = 1e-8  # relative part of a workload that a strategy may miss by rounding

Cells = tuple[tuple[int, ...], tuple[int, ...]]


class Strategy(Protocol):
    """A matrix A over the cells of a tensor, and the workload W that it supports: W = W A^+ A."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the answers to the strategy."""

    @property
    def rank(self) -> int:
        """Rank of A."""

    @property
    def bound(self) -> float:
        """What no strategy's error can be below."""

    def ask(self, x: FloatArray) -> FloatArray:
        """Return A x for each tensor along the last axes."""

    def reconstruct(self, y: FloatArray) -> FloatArray:
        """Return A^+ y, the cells that explain the answers best."""

    def answer(self, x: FloatArray) -> FloatArray:
        """Return the workload's answers, flat, from cells along the last axes."""

    def answer_variances(self) -> FloatArray:
        """Return the variance of each answer under noise of variance 1."""

    def total_variance(self) -> float:
        """Return the sum of the answers' variances under noise of variance 1."""

    def cell_variances(self) -> FloatArray:
        """Return the variance of each reconstructed cell under noise of variance 1."""

    def change(self, *, replaced: bool) -> tuple[float, Cells]:
        """Return how far A x moves at most when one record comes or goes, or is replaced, and the cells concerned."""

    def slip(self, largest: float) -> float:
        """Return by how much float64 may miss an entry of A x, for entries of x of ``BITS`` bits up to ``largest``."""


def error_of(strategy: Strategy) -> float:
    """Return the sum of the variances of all answers, at noise of variance 1 and a change of 1 by a record."""
    return strategy.total_variance() * strategy.change(replaced=False)[0] ** 2


@dataclass(frozen=True, eq=False)
class Kronecker:
    """One strategy a mode: A = A_1 x ... x A_N, never formed.

    The product of the best strategies is the best one for a product of workloads: its weights are a fixed point of
    the whole problem, whose dual bound is the product of theirs.
    """

    workloads: tuple[Workload, ...]
    matrices: tuple[FloatArray, ...]
    bound: float

    @classmethod
    def best(cls, entries: tuple[Any, ...], dims: tuple[int, ...]) -> Kronecker:
        """Return the optimum for a workload along each mode."""
        workloads = tuple(workload_of(entry, size) for entry, size in zip(entries, dims, strict=True))
        found = cls._optima(entries, workloads)
        return cls(workloads, tuple(one.strategy for one in found), math.prod(one.bound for one in found))

    @classmethod
    def given(cls, entries: tuple[Any, ...], strategies: tuple[Any, ...], dims: tuple[int, ...]) -> Kronecker:
        """Return a strategy of your own, which must support the workload."""
        best = cls.best(entries, dims)
        matrices = tuple(
            _normal(symmetric(workload_of(entry, size).root)) for entry, size in zip(strategies, dims, strict=True)
        )
        for mode, (workload, matrix) in enumerate(zip(best.workloads, matrices, strict=True)):
            root = workload.root
            missed = root - root @ np.linalg.pinv(matrix) @ matrix
            if np.abs(missed).max() > _UNSUPPORTED * np.abs(root).max():
                raise ValueError(
                    f"Expected strategy[{mode}] to support the workload: it is singular, of rank "
                    f"{np.linalg.matrix_rank(matrix)} with {matrix.shape[1]} cells, and leaves a query without an "
                    "answer. Add rows to it, e.g. the identity, or leave strategy out for the best one."
                )
        return cls(best.workloads, matrices, best.bound)

    @staticmethod
    def _optima(entries: tuple[Any, ...], workloads: tuple[Workload, ...]) -> list[Optimum]:
        # errors and bounds multiply, so the modes share the allowed gap, and the rounding of the product has its share
        gap = (0.9 if len(entries) > 1 else 1.0) * GAP / len(entries)
        return [
            named_optimum(entry, workload.size, gap) if isinstance(entry, str) else optimum(workload.root, gap=gap)
            for entry, workload in zip(entries, workloads, strict=True)
        ]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the answers to the strategy."""
        return tuple(len(matrix) for matrix in self.matrices)

    @cached_property
    def rank(self) -> int:
        """Product of the modes' ranks."""
        return math.prod(int(np.linalg.matrix_rank(matrix)) for matrix in self.matrices)

    @cached_property
    def _inverses(self) -> tuple[FloatArray, ...]:
        return tuple(np.asarray(np.linalg.pinv(matrix), dtype=np.float64) for matrix in self.matrices)

    @cached_property
    def _covariances(self) -> tuple[FloatArray, ...]:
        """Covariance of the reconstructed cells along each mode."""
        return tuple(inverse @ inverse.T for inverse in self._inverses)

    @cached_property
    def _grams(self) -> tuple[FloatArray, ...]:
        return tuple(matrix.T @ matrix for matrix in self.matrices)

    @cached_property
    def _split(self) -> tuple[FloatArray, FloatArray]:
        """A single mode's matrix as leading bits, whose sums with entries of ``BITS`` bits are exact, and the rest."""
        (matrix,) = self.matrices
        unit = 2.0 ** -(53 - BITS - matrix.shape[1].bit_length())
        leading = np.rint(matrix / unit) * unit
        return leading, matrix - leading

    def ask(self, x: FloatArray) -> FloatArray:
        """Return A x, mode by mode."""
        if len(self.matrices) == 1:
            leading, rest = self._split
            return np.asarray(x @ leading.T + x @ rest.T)
        return dense(x, self.matrices)

    def reconstruct(self, y: FloatArray) -> FloatArray:
        """Return A^+ y, mode by mode."""
        return dense(y, self._inverses)

    def answer(self, x: FloatArray) -> FloatArray:
        """Return W x, mode by mode, queries in row-major order."""
        order, result = len(self.workloads), x
        for mode, workload in enumerate(self.workloads):
            result = workload.answer(result, x.ndim - order + mode)
        return result.reshape(*x.shape[: x.ndim - order], -1)

    @cached_property
    def _variances(self) -> list[FloatArray]:
        """Variances of the answers along each mode."""
        pairs = zip(self.workloads, self._covariances, strict=True)
        return [workload.variances(covariance) for workload, covariance in pairs]

    def answer_variances(self) -> FloatArray:
        """Return the outer product of the modes' variances."""
        return _outer(self._variances).reshape(-1)

    def total_variance(self) -> float:
        """Return the product of the modes' sums, however many queries there are."""
        return math.prod(float(variances.sum()) for variances in self._variances)

    def cell_variances(self) -> FloatArray:
        """Return the outer product of the modes' variances."""
        return _outer([np.diagonal(covariance) for covariance in self._covariances])

    def change(self, *, replaced: bool) -> tuple[float, Cells]:
        """Return the length of the longest column of A, or a bound on the distance of two, exact for equal lengths.

        |A (e_i - e_j)|^2 = prod X_ii + prod X_jj - 2 prod X_ij over the modes, X = A'A: the first two are bounded by
        the largest, the third is the least product of an entry from each mode. Along a single mode it is exact.
        """
        tops = [int(np.argmax(np.diagonal(gram))) for gram in self._grams]
        longest = math.prod(float(gram[top, top]) for gram, top in zip(self._grams, tops, strict=True))
        if not replaced:
            return math.sqrt(longest), (tuple(tops), tuple(tops))
        if len(self._grams) == 1:
            gram = self._grams[0]
            distance = np.add.outer(np.diagonal(gram), np.diagonal(gram)) - 2 * gram
            one, other = (int(k) for k in np.unravel_index(int(distance.argmax()), gram.shape))
            return math.sqrt(float(distance[one, other])), ((one,), (other,))
        ends = [(1.0, (), ()), (1.0, (), ())]
        for gram in self._grams:
            picks = [np.unravel_index(int(place), gram.shape) for place in (gram.argmin(), gram.argmax())]
            grown: list[Any] = [
                (value * float(gram[i, j]), (*first, int(i)), (*second, int(j)))
                for (value, first, second), (i, j) in itertools.product(ends, picks)
            ]
            ends = [min(grown), max(grown)]
        least, one_cell, other_cell = ends[0]
        return math.sqrt(max(2 * longest - 2 * least, 0.0)), (one_cell, other_cell)

    def slip(self, largest: float) -> float:
        """Return the usual bound for sums of products, along a single mode for the rest of the matrix only."""
        result = largest * math.prod(_row_sum(matrix) for matrix in self.matrices)
        if len(self.matrices) == 1:
            (matrix,) = self.matrices
            return float(ULP * (2 * result + (matrix.shape[1] + 2) * largest * _row_sum(self._split[1])))
        return float(ULP * result * sum(matrix.shape[1] + 2 for matrix in self.matrices))


@dataclass(frozen=True, eq=False)
class Marginals:
    """All marginal tables of ``order`` modes, and their best strategy, in closed form.

    Cells are alike under permutations of the values of a mode, so all weights are equal and X is proportional to
    (W'W)^1/2. Both are sums of projections: on tensors that vary in exactly the modes of a set T and sum to zero along
    each of them. W'W has the eigenvalue sum over the tables S that contain T of prod_{k not in S} n_k.
    """

    dims: tuple[int, ...]
    order: int

    @cached_property
    def tables(self) -> tuple[tuple[int, ...], ...]:
        """The modes of each table."""
        return tuple(itertools.combinations(range(len(self.dims)), self.order))

    @cached_property
    def _scales(self) -> dict[tuple[int, ...], float]:
        """Eigenvalue of A on each set of modes, so that columns of A have length 1; 0 where nothing is asked."""
        roots = {}
        for count in range(self.order + 1):
            for varying in itertools.combinations(range(len(self.dims)), count):
                asked = sum(self._cells_outside(table) for table in self.tables if set(varying) <= set(table))
                roots[varying] = math.sqrt(asked)
        length = sum(root * self._diagonal(varying) for varying, root in roots.items())
        return {varying: math.sqrt(root / length) for varying, root in roots.items()}

    def _cells_outside(self, table: tuple[int, ...]) -> int:
        return math.prod(size for mode, size in enumerate(self.dims) if mode not in table)

    def _diagonal(self, varying: tuple[int, ...], *, differ: tuple[int, ...] = ()) -> float:
        """Return the entry of a set's projection between cells that differ in some modes."""
        entry = 1.0
        for mode, size in enumerate(self.dims):
            inside = -1 / size if mode in differ else 1 - 1 / size
            entry *= inside if mode in varying else 1 / size
        return entry

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the answers to the strategy."""
        return self.dims

    @property
    def rank(self) -> int:
        """Dimensions of the sets that are asked for."""
        return sum(math.prod(self.dims[mode] - 1 for mode in varying) for varying in self._scales)

    @property
    def bound(self) -> float:
        """The error itself: tr(V^1/2)^2 / n is the dual bound at equal weights."""
        return self.total_variance()

    def _spectral(self, x: FloatArray, *, power: int) -> FloatArray:
        """Return A^power x, from the means of x over sets of modes."""
        first = x.ndim - len(self.dims)
        result = np.zeros_like(x)
        for varying, scale in self._scales.items():
            others = tuple(first + mode for mode in range(len(self.dims)) if mode not in varying)
            component = x.mean(axis=others, keepdims=True)
            for mode in varying:
                component = component - component.mean(axis=first + mode, keepdims=True)
            result += scale**power * component
        return result

    def ask(self, x: FloatArray) -> FloatArray:
        """Return A x."""
        return self._spectral(x, power=1)

    def reconstruct(self, y: FloatArray) -> FloatArray:
        """Return A^+ y."""
        return self._spectral(y, power=-1)

    def answer(self, x: FloatArray) -> FloatArray:
        """Return all tables, one after the other, cells in row-major order."""
        first = x.ndim - len(self.dims)
        parts = []
        for table in self.tables:
            others = tuple(first + mode for mode in range(len(self.dims)) if mode not in table)
            parts.append(x.sum(axis=others).reshape(*x.shape[:first], -1))
        return np.concatenate(parts, axis=-1)

    def answer_variances(self) -> FloatArray:
        """Return the variances, the same for all cells of a table."""
        parts = []
        for table in self.tables:
            outside, inside = self._cells_outside(table), math.prod(self.dims[mode] for mode in table)
            # summing to a table multiplies what varies within the table by the cells outside, and removes the rest
            one = sum(
                self._diagonal(varying) * outside**2 / scale**2
                for varying, scale in self._scales.items()
                if set(varying) <= set(table)
            )
            parts.append(np.full(inside, one))
        return np.concatenate(parts)

    def total_variance(self) -> float:
        """Return the sum over all tables."""
        return float(self.answer_variances().sum())

    def cell_variances(self) -> FloatArray:
        """Return the variance that all cells share."""
        one = sum(self._diagonal(varying) / scale**2 for varying, scale in self._scales.items())
        return np.full(self.dims, one)

    def change(self, *, replaced: bool) -> tuple[float, Cells]:
        """Return 1, the length of every column, or the largest distance of two of them."""
        origin = (0,) * len(self.dims)
        if not replaced:
            return 1.0, (origin, origin)
        modes = [mode for mode, size in enumerate(self.dims) if size > 1]
        sets = [differ for count in range(len(modes) + 1) for differ in itertools.combinations(modes, count)]
        least, differ = min((self._between(differ), differ) for differ in sets)
        other = tuple(int(mode in differ) for mode in range(len(self.dims)))
        return math.sqrt(max(2 - 2 * least, 0.0)), (origin, other)

    def _between(self, differ: tuple[int, ...]) -> float:
        """Return the entry of X = A'A between cells that differ in some modes."""
        return sum(scale**2 * self._diagonal(varying, differ=differ) for varying, scale in self._scales.items())

    def slip(self, largest: float) -> float:
        """Return a bound from the means: each errs by less than its terms' number of roundings, scaled by A."""
        roundings = len(self._scales) * (2 * len(self.dims) + math.prod(self.dims) + 2)
        return float(ULP * largest * roundings * max(self._scales.values()) * 2 ** len(self.dims))


def _normal(matrix: FloatArray) -> FloatArray:
    """Return a strategy with columns of length at most 1."""
    return np.asarray(matrix / np.sqrt(np.square(matrix).sum(axis=0).max()))


def _row_sum(matrix: FloatArray) -> float:
    """Return the largest sum of absolute values of a row."""
    return float(np.abs(matrix).sum(axis=1).max())


def _outer(vectors: list[FloatArray]) -> FloatArray:
    """Return the outer product of vectors, an axis for each."""
    result = np.ones(())
    for vector in vectors:
        result = np.multiply.outer(result, vector)
    return np.asarray(result)
