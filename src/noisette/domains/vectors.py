"""Vectors: a box, a ball, a sphere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from noisette import _validate
from noisette._validate import FloatArray
from noisette.domains._base import BoolArray, Described, from_canonical, to_canonical


@dataclass(frozen=True)
class Box(Described):
    """Vectors whose entries lie in intervals of their own.

    >>> Box(3).diameter == 2 * 3**0.5
    True
    """

    dims: int
    low: float | tuple[float, ...] = -1.0
    high: float | tuple[float, ...] = 1.0
    kind: ClassVar[str] = "box"

    def __post_init__(self) -> None:
        dims = _validate.integer(self.dims, "dims", low=1)
        low, high = (self._side(side, dims) for side in (self.low, self.high))
        if not (np.all(np.isfinite(low)) and np.all(np.isfinite(high)) and np.all(low < high)):
            raise ValueError(f"Expected finite low < high in every dimension, got low={self.low}, high={self.high}.")
        object.__setattr__(self, "dims", dims)
        for name, side in (("low", self.low), ("high", self.high)):
            values = np.asarray(side, dtype=float)
            plain = float(values) if values.ndim == 0 else tuple(values.tolist())
            object.__setattr__(self, name, plain)

    @staticmethod
    def _side(side: Any, dims: int) -> FloatArray:
        """Return one bound as a scalar or a vector of ``dims`` numbers."""
        values = _validate.reals(side, "bound")
        if values.ndim > 1 or values.size not in (1, dims):
            raise ValueError(f"Expected one bound or {dims} of them, got {values.size}.")
        return values

    @property
    def lows(self) -> FloatArray:
        """Lower bound of each dimension."""
        return np.broadcast_to(np.asarray(self.low), (self.dims,))

    @property
    def highs(self) -> FloatArray:
        """Upper bound of each dimension."""
        return np.broadcast_to(np.asarray(self.high), (self.dims,))

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.dims,)

    @property
    def diameter(self) -> float:
        """Length of the diagonal."""
        widths = self.highs / 2 - self.lows / 2
        largest = float(widths.max())
        return 2 * largest * float(np.linalg.norm(widths / largest))  # squares of the widths may overflow

    def contains(self, x: Any) -> BoolArray:
        """Tell which vectors lie inside."""
        values = self._elements(x)
        return np.asarray(((values >= self.low) & (values <= self.high)).all(axis=-1))

    def clip(self, x: Any) -> FloatArray:
        """Move entries outside to the nearer bound."""
        values = self._elements(x)
        return np.clip(values, self.low, self.high)

    def to_canonical(self, x: Any) -> FloatArray:
        """Map every dimension on [-1, 1]."""
        return to_canonical(_validate.reals(x), np.asarray(self.low), np.asarray(self.high))

    def from_canonical(self, x: Any) -> FloatArray:
        """Map [-1, 1] back on every dimension."""
        return from_canonical(_validate.reals(x), np.asarray(self.low), np.asarray(self.high))


@dataclass(frozen=True)
class L2Ball(Described):
    """Vectors of Euclidean length at most ``radius``."""

    dims: int
    radius: float = 1.0
    kind: ClassVar[str] = "l2-ball"

    def __post_init__(self) -> None:
        object.__setattr__(self, "dims", _validate.integer(self.dims, "dims", low=1))
        object.__setattr__(self, "radius", _validate.positive(self.radius, "radius"))

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.dims,)

    @property
    def diameter(self) -> float:
        """Twice the radius."""
        return 2 * self.radius

    def contains(self, x: Any) -> BoolArray:
        """Tell which vectors are short enough, up to rounding of the last bits."""
        values = self._elements(x)
        length = np.sqrt(np.einsum("...i,...i->...", values, values))  # as numpy's norm, without copies of the vectors
        return np.asarray(length <= self.radius * (1 + 1e-12))

    def clip(self, x: Any) -> FloatArray:
        """Shorten vectors that are too long."""
        values = self._elements(x)
        largest = np.maximum(np.abs(values).max(axis=-1, keepdims=True), np.finfo(float).tiny)
        scaled = values / largest  # so that no square overflows
        norm = np.maximum(np.linalg.norm(scaled, axis=-1, keepdims=True), np.finfo(float).tiny)
        fits = norm <= self.radius / largest
        return np.where(fits, values, scaled * (self.radius / norm))


@dataclass(frozen=True)
class Sphere(L2Ball):
    """Vectors of Euclidean length exactly ``radius``."""

    kind: ClassVar[str] = "sphere"

    def contains(self, x: Any) -> BoolArray:
        """Tell which vectors have the right length, up to a relative 1e-6."""
        values = self._elements(x)
        return np.asarray(np.abs(np.linalg.norm(values, axis=-1) - self.radius) <= 1e-6 * self.radius)

    def clip(self, x: Any) -> FloatArray:
        """Rescale vectors to the right length; the zero vector has no direction and is refused."""
        values = self._elements(x)
        norm = np.linalg.norm(values, axis=-1, keepdims=True)
        if not np.all(norm > 0):
            raise ValueError(
                "Expected vectors of length > 0: a zero vector has no direction. "
                "Use an L2Ball domain for lengths below the radius."
            )
        return np.asarray(values * (self.radius / norm))
