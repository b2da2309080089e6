"""Tensors: every entry in a range, or a norm that is bounded."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from noisette import _validate
from noisette._validate import FloatArray
from noisette.domains._base import BoolArray, Described, bounds


@dataclass(frozen=True)
class TensorDomain(Described):
    """Tensors of one shape with every entry in [low, high]."""

    dims: tuple[int, ...]
    low: float = -1.0
    high: float = 1.0
    kind: ClassVar[str] = "tensor"

    def __post_init__(self) -> None:
        shape = _shape(self.dims)
        low, high = bounds(self.low, self.high)
        for name, value in (("dims", shape), ("low", low), ("high", high)):
            object.__setattr__(self, name, value)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.dims

    @property
    def diameter(self) -> float:
        """Largest Frobenius distance."""
        return float((self.high - self.low) * np.sqrt(np.prod(np.asarray(self.dims, dtype=float))))

    def contains(self, x: Any) -> BoolArray:
        """Tell which tensors lie inside."""
        values = self._elements(x)
        axes = tuple(range(values.ndim - len(self.dims), values.ndim))
        inside: BoolArray = np.asarray(((values >= self.low) & (values <= self.high)).all(axis=axes))
        return inside

    def clip(self, x: Any) -> FloatArray:
        """Move entries outside to the nearer bound."""
        values = self._elements(x)
        return np.clip(values, self.low, self.high)


@dataclass(frozen=True)
class TensorBall(Described):
    """Tensors of one shape whose Frobenius norm is at most ``radius``; with ``mode``, that of each slice along it is.

    >>> TensorBall((4, 3), radius=1.0, mode=0).diameter  # four rows, each of length 1 at most
    4.0
    """

    dims: tuple[int, ...]
    radius: float = 1.0
    mode: int | None = None
    kind: ClassVar[str] = "tensor-ball"

    def __post_init__(self) -> None:
        object.__setattr__(self, "dims", _shape(self.dims))
        object.__setattr__(self, "radius", _validate.positive(self.radius, "radius"))
        if self.mode is not None:
            object.__setattr__(self, "mode", _validate.integer(self.mode, "mode", low=0, high=len(self.dims) - 1))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.dims

    @property
    def diameter(self) -> float:
        """Largest Frobenius distance."""
        return 2 * self.radius * math.sqrt(1 if self.mode is None else self.dims[self.mode])

    def contains(self, x: Any) -> BoolArray:
        """Tell which tensors are short enough, up to rounding of the last bits."""
        norms = self.norms(x)
        return np.asarray((norms <= self.radius * (1 + 1e-12)).all(axis=tuple(range(-len(self.dims), 0))))

    def clip(self, x: Any, *, out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
        """Shorten what is too long, into ``out`` if its type can hold the result.

        There it is made shorter by two places of the type than the radius, so that rounding leaves it short enough.
        """
        values = _validate.numbers(x)
        norms = self.norms(values)
        if np.isinf(norms).any():  # squares overflowed: shrink first, by a power of two
            values = np.where(np.isinf(norms), values * 2.0**-600, values)
            norms = np.where(np.isinf(norms), np.maximum(self.norms(values), np.nextafter(self.radius, np.inf)), norms)
        scale = np.where(norms > self.radius, self.radius / np.maximum(norms, self.radius), 1.0)
        if out is None or np.finfo(out.dtype).tiny * math.sqrt(math.prod(self.dims)) > self.radius:
            return np.asarray(values * scale)
        if out.dtype != np.float64:
            scale = np.where(scale < 1, scale * (1 - 2 * float(np.finfo(out.dtype).eps)), 1.0)
        np.multiply(values, scale, out=out, casting="same_kind")
        return out

    def norms(self, x: Any) -> FloatArray:
        """Return the norm of each tensor, or of each of its slices, with axes of length one for what is summed."""
        values = _validate.numbers(x)
        _validate.trailing(values, self.dims, "x")
        lead = values.shape[: values.ndim - len(self.dims)]
        if self.mode is None:
            flat, kept = values.reshape(*lead, 1, -1), [1] * len(self.dims)
            squares = np.einsum("...ib,...ib->...i", flat, flat, dtype=np.float64)
        else:
            kept = [size if axis == self.mode else 1 for axis, size in enumerate(self.dims)]
            flat = values.reshape(*lead, math.prod(self.dims[: self.mode]), self.dims[self.mode], -1)
            squares = np.einsum("...aib,...aib->...i", flat, flat, dtype=np.float64)
        return np.asarray(np.sqrt(squares).reshape(*lead, *kept))


def _shape(dims: Any) -> tuple[int, ...]:
    """Check the sizes of the modes of a tensor."""
    if isinstance(dims, int | np.integer):
        raise TypeError(f"Expected dims={dims!r} to be a tuple, e.g. dims=({dims},).")
    shape = tuple(_validate.integer(size, "dims", low=1) for size in dims)
    if not shape:
        raise ValueError("Expected at least one mode in dims=(). Use Interval for a single number.")
    return shape
