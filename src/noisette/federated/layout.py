"""A model as one vector: which weights belong to which layer, and back."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from noisette import _validate
from noisette._validate import FloatArray

Arrays = Mapping[str, Any] | Sequence[Any] | npt.NDArray[Any]


@dataclass(frozen=True)
class ModelLayout:
    """Names and shapes of the layers of a model, in the order in which one vector holds their weights.

    >>> layout = ModelLayout.of({"weight": np.zeros((2, 3)), "bias": np.zeros(2)})
    >>> layout.dims, layout.flatten({"weight": np.ones((2, 3)), "bias": np.zeros(2)}).tolist()
    (8, [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0])
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if len(self.names) != len(self.shapes) or len(set(self.names)) != len(self.names):
            raise ValueError(f"Expected one shape for each of different names, got {self.names} and {self.shapes}.")
        if self.dims == 0:
            raise ValueError(f"Expected at least one weight, got layers of shapes {self.shapes}.")

    @classmethod
    def of(cls, arrays: Arrays) -> ModelLayout:
        """Return the layout of a model: arrays by name, a sequence of arrays, or one vector."""
        named = _named(arrays)
        return cls(tuple(named), tuple(tuple(int(size) for size in np.shape(array)) for array in named.values()))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Weights of each layer."""
        return tuple(math.prod(shape) for shape in self.shapes)

    @cached_property
    def dims(self) -> int:
        """Weights of the model."""
        return sum(self.sizes)

    def parts(self) -> Iterator[tuple[str, slice]]:
        """Yield the name of each layer and where its weights are."""
        start = 0
        for name, size in zip(self.names, self.sizes, strict=True):
            yield name, slice(start, start + size)
            start += size

    def flatten(self, arrays: Arrays) -> FloatArray:
        """Return the weights as one new vector, refusing other shapes and values that are no finite numbers."""
        named = _named(arrays)
        if tuple(named) != self.names:
            raise ValueError(f"Expected the layers {', '.join(self.names)}, got {', '.join(named) or 'none'}.")
        vector = np.empty(self.dims)
        for (name, entries), shape in zip(self.parts(), self.shapes, strict=True):
            array = np.asarray(named[name])
            if array.dtype.kind not in "iuf":
                raise TypeError(f"Expected layer {name!r} to hold real numbers, got dtype {array.dtype}.")
            if array.shape != shape:
                raise ValueError(f"Expected layer {name!r} of shape {shape}, got {array.shape}.")
            vector[entries] = array.reshape(-1)
        with np.errstate(all="ignore"):
            quick = float(vector.sum())
        if not math.isfinite(quick):  # the sum of finite weights may overflow
            bad = np.flatnonzero(~np.isfinite(vector))
            if bad.size:
                name = next(name for name, entries in self.parts() if bad[0] < entries.stop)
                raise ValueError(f"Expected finite weights, got {vector[bad[0]]} in layer {name!r}.")
        return vector

    def unflatten(self, vector: Any, *, dtype: npt.DTypeLike = np.float64) -> dict[str, npt.NDArray[Any]]:
        """Return the layers that a vector holds."""
        flat = _validate.reals(vector, "vector")
        if flat.shape != (self.dims,):
            raise ValueError(f"Expected a vector of {self.dims} weights, got shape {flat.shape}.")
        shaped = zip(self.parts(), self.shapes, strict=True)
        return {name: flat[entries].reshape(shape).astype(dtype) for (name, entries), shape in shaped}

    def spread(self, numbers: Sequence[float] | FloatArray) -> FloatArray:
        """Return one number of each layer at each of its weights."""
        return np.repeat(np.asarray(numbers, dtype=float), self.sizes)


def as_dtype(layer: npt.NDArray[Any], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return a layer in a type; whole numbers, as a counter of batches, are rounded and kept within its ends."""
    if np.dtype(dtype).kind not in "iu":
        return layer.astype(dtype)
    ends = np.iinfo(np.dtype(dtype))
    return np.asarray(np.clip(np.rint(layer), ends.min, ends.max)).astype(dtype)


def _named(arrays: Arrays) -> dict[str, Any]:
    """Return arrays by name; a sequence is numbered, and a single array is called "update"."""
    if isinstance(arrays, Mapping):
        return dict(arrays)
    if isinstance(arrays, np.ndarray):
        return {"update": arrays}
    return {str(number): array for number, array in enumerate(arrays)}
