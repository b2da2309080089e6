"""What every domain offers, and how one is described in JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from noisette import _validate
from noisette._validate import FloatArray

BoolArray = npt.NDArray[np.bool_]


@runtime_checkable
class Domain(Protocol):
    """A public set of admissible inputs."""

    kind: ClassVar[str]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one element: () for a scalar."""

    @property
    def diameter(self) -> float:
        """Largest Euclidean distance of two elements."""

    def contains(self, x: Any) -> BoolArray:
        """Tell, for each element along the leading axes, whether it belongs."""

    def clip(self, x: Any) -> npt.NDArray[Any]:
        """Return the nearest elements of the domain."""

    def spec(self) -> dict[str, Any]:
        """Return a JSON description that `from_spec` reads back."""


class Described:
    """What domains share: the JSON description, of the kind and the dataclass's own fields, and a check of shapes."""

    kind: ClassVar[str]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one element."""
        return ()

    def _elements(self, x: Any) -> FloatArray:
        """Return ``x`` as numbers whose last axes are those of an element."""
        values = _validate.reals(x)
        _validate.trailing(values, self.shape, "x")
        return values

    def spec(self) -> dict[str, Any]:
        """Return a JSON description that `from_spec` reads back."""
        return {"kind": self.kind} | {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]  # who inherits is a dataclass


def read(spec: Mapping[str, Any], kinds: Mapping[str, type[Any]]) -> Any:
    """Rebuild a domain of one of some kinds from its JSON description."""
    options = dict(spec)
    kind = options.pop("kind", None)
    if kind not in kinds:
        raise ValueError(f"Unknown domain kind {kind!r}; expected one of {sorted(kinds)}.")
    names = {f.name for f in fields(kinds[kind])}
    if not set(options) <= names:
        raise ValueError(
            f"Unknown fields {sorted(set(options) - names)} for domain {kind!r}; expected {sorted(names)}."
        )
    return kinds[kind](**{k: tuple(v) if isinstance(v, list) else v for k, v in options.items()})


def bounds(low: float, high: float) -> tuple[float, float]:
    """Check the ends of a range and return them as floats."""
    ends = _validate.number(low, "low"), _validate.number(high, "high")
    if not (ends[0] < ends[1] and math.isfinite(ends[1] - ends[0])):
        raise ValueError(f"Expected finite low < high, got low={low!r}, high={high!r}.")
    return ends


def to_canonical(values: FloatArray, low: Any, high: Any) -> FloatArray:
    """Map the range on [-1, 1]."""
    half = (high - low) / 2
    return np.asarray((values - (low + half)) / half)


def from_canonical(values: FloatArray, low: Any, high: Any) -> FloatArray:
    """Map [-1, 1] on the range."""
    half = (high - low) / 2
    return np.asarray((low + half) + half * values)
