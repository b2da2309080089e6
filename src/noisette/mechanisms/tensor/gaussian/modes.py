"""One mode of a tensor and the covariance of the noise along it; products along modes, in place."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from noisette import _validate
from noisette._validate import FloatArray
from noisette.mechanisms.tensor.gaussian._signs import Reach, dominating, largest_form

_ASYMMETRY = 1e-9  # of the largest entry
_SINGULAR = 1e-12  # of the largest eigenvalue
_SCALES = (1e-100, 1e100)  # of variances: squares of what is computed from them are normal numbers
_WORTHWHILE = 1 << 14  # entries from which one call of a triangular product pays
_CHUNK = 1 << 16  # entries that are copied at a time


@dataclass(frozen=True, eq=False)
class Mode:
    """The covariance Sigma = U U' along one mode, up to the scale of the whole: identity, diagonal or full.

    ``covariance`` is None, the variances, or a matrix. ``whitener`` is U^-1 as float64 computes it: privacy depends on
    it alone, and U comes after the noise.
    """

    size: int
    covariance: FloatArray | None = None
    eigenvalues: FloatArray | None = None  # of a full covariance, where they are known

    @classmethod
    def read(cls, size: int, given: Any, number: int) -> Mode:
        """Check a covariance that a user gave for the mode of this number."""
        if given is None or isinstance(given, str):
            if given not in (None, "identity"):
                raise ValueError(f"Expected covariances[{number}]={given!r} to be None, variances or a matrix.")
            return cls(size)
        if isinstance(given, Mode):
            return given
        matrix = np.array(_validate.reals(given, f"covariances[{number}]"), dtype=np.float64)
        if matrix.ndim not in (1, 2) or matrix.shape != (size,) * matrix.ndim:
            raise ValueError(
                f"Expected covariances[{number}] of shape ({size},) or ({size}, {size}) for a mode of size {size}, "
                f"got {matrix.shape}."
            )
        if not np.isfinite(matrix).all():
            raise ValueError(
                f"Expected finite numbers in covariances[{number}], got {matrix[~np.isfinite(matrix)][0]}."
            )
        if matrix.ndim == 1:
            if not (matrix > 0).all():
                raise ValueError(
                    f"Expected variances > 0 in covariances[{number}], got {matrix.min()}: an entry without noise has "
                    "no privacy."
                )
        else:
            matrix = _positive_definite(matrix, number)
        variances = matrix if matrix.ndim == 1 else np.diagonal(matrix)
        if variances.min() < _SCALES[0] or variances.max() > _SCALES[1]:
            raise ValueError(
                f"Expected variances from {_SCALES[0]:g} to {_SCALES[1]:g} in covariances[{number}], got "
                f"{variances.min():g} to {variances.max():g}. Rescale the matrix: only its shape counts."
            )
        matrix.flags.writeable = False
        return cls(size, matrix)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mode):
            return NotImplemented
        if self.covariance is None or other.covariance is None:
            return self.size == other.size and self.covariance is other.covariance
        return np.array_equal(self.covariance, other.covariance)

    def __hash__(self) -> int:
        return hash((self.size, None if self.covariance is None else self.covariance.tobytes()))

    def spec(self) -> Any:
        """Return plain numbers for JSON."""
        return None if self.covariance is None else self.covariance.tolist()

    @property
    def full(self) -> bool:
        """Whether entries of the mode are correlated."""
        return self.covariance is not None and self.covariance.ndim == 2

    @cached_property
    def root(self) -> FloatArray:
        """U: standard deviations, or the lower Cholesky factor in Fortran order."""
        if self.covariance is None:
            return np.ones(self.size)
        if not self.full:
            return np.sqrt(self.covariance)
        return np.asfortranarray(np.linalg.cholesky(self.covariance))

    @cached_property
    def whitener(self) -> FloatArray:
        """U^-1, diagonal or lower triangular."""
        if not self.full:
            return np.asarray(1 / self.root)
        from scipy.linalg.lapack import dtrtri

        return np.asfortranarray(dtrtri(self.root, lower=1)[0])

    @cached_property
    def precision(self) -> FloatArray:
        """Sigma^-1: its diagonal, or the matrix."""
        return np.asarray(self.whitener.T @ self.whitener if self.full else self.whitener**2)

    @property
    def variances(self) -> FloatArray:
        """Diagonal of Sigma."""
        return np.asarray(np.square(self.root).sum(axis=1) if self.full else self.root**2)

    @property
    def trace(self) -> float:
        """Return tr(Sigma^-1) = |U^-1|_F^2."""
        return float(np.square(self.whitener).sum())

    @cached_property
    def spectral(self) -> float:
        """Return |Sigma^-1|_2, the largest eigenvalue, from above."""
        if not self.full:
            return self.largest
        guess = None if self.eigenvalues is None else float(1 / self.eigenvalues.min())
        return dominating(self.precision, np.ones(self.size), guess) / self.size

    @cached_property
    def reach(self) -> Reach:
        """Return the largest s' Sigma^-1 s over signs."""
        if self.full:
            return largest_form(self.precision)
        upper = self.trace * (1 + self._rounded)
        return Reach(upper, self.trace, np.ones(self.size), upper)

    @property
    def largest(self) -> float:
        """Return the largest entry of the diagonal of Sigma^-1, from above."""
        largest = float((np.square(self.whitener).sum(axis=0) if self.full else self.precision).max())
        return largest * (1 + self._rounded)

    @property
    def _rounded(self) -> float:
        """Return a bound on the relative error of a sum of squares along the mode."""
        return (self.size + 2) * 2.0**-52

    @property
    def frobenius(self) -> float:
        """Return |Sigma^-1|_F, the l2 norm of its eigenvalues."""
        if self.eigenvalues is not None:
            return float(np.linalg.norm(1 / self.eigenvalues))
        return float(np.linalg.norm(self.precision))

    @property
    def rounding(self) -> float:
        """Return a bound on the norm of |U^-1|, entries without sign: what float64 errors are multiples of."""
        if not self.full:
            return float(self.whitener.max())
        sizes = np.abs(self.whitener)
        return math.sqrt(float(sizes.sum(axis=0).max()) * float(sizes.sum(axis=1).max()))

    @property
    def row_sum(self) -> float:
        """Return the largest sum of absolute entries in a row of U^-1."""
        return float(np.abs(self.whitener).sum(axis=1).max() if self.full else self.whitener.max())

    @property
    def log_det(self) -> float:
        """Return ln det U."""
        return float(np.log(np.diagonal(self.root) if self.full else self.root).sum())

    def between(self, axis: int, other: int, order: int) -> FloatArray:
        """Return Sigma with its rows along one axis of an array and its columns along another, or its diagonal."""
        shape = [1] * order
        shape[axis] = shape[other] = self.size
        if axis == other:
            return self.variances.reshape(shape)
        matrix = self.root @ self.root.T if self.full else np.diag(self.root**2)
        return np.asarray(matrix.reshape(shape))

    def weighted(self, subspace: FloatArray | None) -> float:
        """Return tr(W Sigma W'), the power of the noise that W sees."""
        if subspace is None:
            return float(self.variances.sum())
        seen = subspace @ self.root if self.full else subspace * self.root
        return float(np.square(seen).sum())


def multiply(values: FloatArray, factors: Sequence[FloatArray | None]) -> None:
    """Multiply each tensor along the last axes by a matrix along every mode, in place.

    A factor is None, a diagonal, or lower triangular in Fortran order. No Kronecker product is formed. ``values`` are
    contiguous float64; besides them no more than 2^16 entries are held.
    """
    order = len(factors)
    for number, factor in enumerate(factors):
        if factor is None:
            continue
        axis = values.ndim - order + number
        before, size = math.prod(values.shape[:axis]), values.shape[axis]
        view = values.reshape(before, size, -1)
        if factor.ndim == 1:
            view *= factor[None, :, None]
        else:
            _triangular(view, factor)


def _triangular(view: FloatArray, factor: FloatArray) -> None:
    """Multiply along the middle axis by a lower triangle, with half the operations of a full matrix where it pays."""
    from scipy.linalg.blas import dtrmm

    before, size, after = view.shape
    if after == 1:
        rows = view.reshape(before, size)
        step = max(1, _CHUNK // size)
        for start in range(0, before, step):
            dtrmm(1.0, factor, rows[start : start + step].T, lower=1, overwrite_b=1)
    elif size * after >= _WORTHWHILE:
        for block in view:
            dtrmm(1.0, factor, block.T, side=1, lower=1, trans_a=1, overwrite_b=1)
    else:
        step = max(1, _CHUNK // (size * after))
        for start in range(0, before, step):
            view[start : start + step] = np.matmul(factor, view[start : start + step])


def dense(values: FloatArray, matrices: Sequence[npt.NDArray[Any] | None]) -> FloatArray:
    """Return each tensor along the last axes multiplied by a matrix of any shape along every mode."""
    result = values
    for number, matrix in enumerate(matrices):
        if matrix is not None:
            axis = values.ndim - len(matrices) + number
            result = np.moveaxis(np.tensordot(matrix, result, axes=(1, axis)), 0, axis)
    return result


def per_mode(given: Any, order: int, name: str) -> tuple[Any, ...]:
    """Return one entry for each mode."""
    if given is None:
        return (None,) * order
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise TypeError(
            f"Expected {name} to be a list with an entry for each of the {order} modes, None where there is nothing to "
            f"say, got {type(given).__name__}."
        )
    if len(given) != order:
        raise ValueError(f"Expected {name} for {order} modes, got {len(given)} of them.")
    return tuple(given)


def _positive_definite(matrix: FloatArray, number: int) -> FloatArray:
    """Check that a matrix is a covariance that can be inverted."""
    gap = np.abs(matrix - matrix.T)
    if gap.max() > _ASYMMETRY * np.abs(matrix).max():
        row, column = np.unravel_index(int(gap.argmax()), gap.shape)
        raise ValueError(
            f"Expected covariances[{number}] to be symmetric, got {matrix[row, column]} at ({row}, {column}) and "
            f"{matrix[column, row]} at ({column}, {row}). Take (S + S.T) / 2 if that is what is meant."
        )
    matrix = (matrix + matrix.T) / 2
    complaint = (
        f"Expected covariances[{number}] to be positive definite: noise that misses a direction hides nothing there. "
        "Add a little of the identity to it."
    )
    try:
        root = np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        raise ValueError(complaint) from None
    if np.square(np.diagonal(root)).min() < _SINGULAR * np.diagonal(matrix).max():
        raise ValueError(complaint)
    return matrix
