"""Records of several attributes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from noisette import _validate
from noisette._validate import FloatArray
from noisette.domains._base import BoolArray, Described, read
from noisette.domains.categories import Categorical
from noisette.domains.scalars import Interval


@dataclass(frozen=True)
class Attributes(Described):
    """Records of several attributes, each a number of an `Interval` or a code of a `Categorical`, in one row.

    A whole number stands for this many categories. ``names`` are those of the attributes.

    >>> people = Attributes((Interval(0, 120), 2, Categorical(labels=("red", "green"))), names=("age", "sex", "colour"))
    >>> people.quantities
    ('age', 'sex=0', 'sex=1', 'colour=red', 'colour=green')
    """

    parts: tuple[Any, ...]
    names: tuple[str, ...] | None = None
    kind: ClassVar[str] = "attributes"

    def __post_init__(self) -> None:
        parts = tuple(self._part(attribute) for attribute in self.parts)
        if not parts:
            raise ValueError("Expected at least one attribute, got none.")
        object.__setattr__(self, "parts", parts)
        if self.names is not None:
            names = tuple(map(str, self.names))
            if len(set(names)) != len(parts):
                raise ValueError(f"Expected {len(parts)} distinct names of attributes, got {names}.")
            object.__setattr__(self, "names", names)

    @staticmethod
    def _part(attribute: Any) -> Interval | Categorical:
        """Return one attribute's domain."""
        if isinstance(attribute, Mapping):
            attribute = read(attribute, {cls.kind: cls for cls in (Interval, Categorical)})
        elif isinstance(attribute, int | np.integer) and not isinstance(attribute, bool):
            attribute = Categorical(int(attribute))
        if not isinstance(attribute, Interval | Categorical):
            raise TypeError(f"Expected each attribute to be an Interval, a Categorical or a size, got {attribute!r}.")
        return attribute

    def spec(self) -> dict[str, Any]:
        return {"kind": self.kind, "parts": [attribute.spec() for attribute in self.parts], "names": self.names}

    @property
    def dims(self) -> int:
        """Number of attributes."""
        return len(self.parts)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.dims,)

    @property
    def diameter(self) -> float:
        """Largest distance of two records, a category seen as a unit vector."""
        return math.sqrt(sum(attribute.diameter**2 for attribute in self.parts))

    @cached_property
    def groups(self) -> tuple[int, ...]:
        """How many quantities an estimate has for each attribute: 1 for a mean, else one for each category."""
        return tuple(attribute.size if isinstance(attribute, Categorical) else 1 for attribute in self.parts)

    @cached_property
    def distinct(self) -> tuple[tuple[Any, ...], npt.NDArray[np.int64]]:
        """Domains without repetition, and which of them each attribute has."""
        places: dict[Any, int] = {}
        index = [places.setdefault(attribute, len(places)) for attribute in self.parts]
        return tuple(places), np.asarray(index, dtype=np.int64)

    @cached_property
    def quantities(self) -> tuple[str, ...]:
        """Names of the means and frequencies that are estimated."""
        names = map(str, range(self.dims)) if self.names is None else self.names
        found: list[str] = []
        for name, attribute in zip(names, self.parts, strict=True):
            labels = [name] if isinstance(attribute, Interval) else map(str, attribute.labels or range(attribute.size))
            found += labels if isinstance(attribute, Interval) else (f"{name}={label}" for label in labels)
        return tuple(found)

    @cached_property
    def categorical(self) -> BoolArray:
        """Tell which attributes are categories."""
        return np.asarray([isinstance(attribute, Categorical) for attribute in self.parts])

    @cached_property
    def bounds(self) -> tuple[FloatArray, FloatArray]:
        """Least and largest number, or code, of each attribute."""
        ends = [(0.0, one.size - 1.0) if isinstance(one, Categorical) else (one.low, one.high) for one in self.parts]
        low, high = np.asarray(ends).T
        return low, high

    def outside(self, x: Any) -> BoolArray:
        """Tell which entries are no number of their interval and no code of a category."""
        values = self._elements(x)
        low, high = self.bounds
        inside = (values >= low) & (values <= high)
        if self.categorical.any():
            inside &= ~self.categorical | (values == np.floor(values))
        return np.asarray(~inside)

    def contains(self, x: Any) -> BoolArray:
        """Tell which records are admissible."""
        return np.asarray(~self.outside(x).any(axis=-1))

    def clip(self, x: Any) -> FloatArray:
        """Move numbers to the nearer end; there is no nearest category, so an unknown code is refused."""
        values = _validate.reals(x)
        outside = self.outside(values) & self.categorical
        if outside.any():
            place = tuple(np.argwhere(outside)[0])
            raise ValueError(
                f"Expected a code of a category in attribute {place[-1]}, got {values[place]}. "
                "Map unknown values to a category of their own, such as 'other'."
            )
        return np.clip(values, *self.bounds)

    def expand(self, x: Any) -> FloatArray:
        """Return numbers as they are and categories as vectors of zeros and a one: what an estimate is about."""
        values = self._elements(x)
        columns = [
            values[..., j, None] == np.arange(one.size) if isinstance(one, Categorical) else values[..., j, None]
            for j, one in enumerate(self.parts)
        ]
        return np.concatenate(columns, axis=-1, dtype=np.float64)
