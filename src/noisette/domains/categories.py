"""Categories, with names if one likes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from noisette import _validate
from noisette.domains._base import BoolArray, Described


@dataclass(frozen=True)
class Categorical(Described):
    """The categories 0, 1, ..., size - 1, with names if you like.

    >>> Categorical(labels=("no", "yes")).encode(["yes", "no"])
    array([1, 0])
    """

    size: int = 0
    labels: tuple[str, ...] | None = None
    kind: ClassVar[str] = "categorical"

    def __post_init__(self) -> None:
        if self.labels is not None:
            labels = tuple(map(str, self.labels))
            if len(set(labels)) != len(labels):
                raise ValueError(f"Expected distinct labels, got {labels}.")
            if self.size not in (0, len(labels)):
                raise ValueError(f"Expected size={self.size} to equal the number of labels, {len(labels)}.")
            object.__setattr__(self, "labels", labels)
            object.__setattr__(self, "size", len(labels))
        object.__setattr__(self, "size", _validate.integer(self.size, "size", low=2))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one element."""
        return ()

    @property
    def diameter(self) -> float:
        """Distance of two different categories seen as unit vectors."""
        return math.sqrt(2)

    def contains(self, x: Any) -> BoolArray:
        """Tell which codes name a category."""
        codes = _validate.integers(x)
        return (codes >= 0) & (codes < self.size)

    def clip(self, x: Any) -> npt.NDArray[Any]:
        """Refuse: there is no nearest category."""
        if np.all(self.contains(x)):
            return _validate.integers(x)
        raise ValueError(
            "Categories cannot be clipped: there is no nearest one. "
            "Map unknown values to a category of their own, such as 'other'."
        )

    def encode(self, values: Any) -> npt.NDArray[np.int64]:
        """Turn labels into codes."""
        if self.labels is None:
            raise ValueError(
                "Expected labels to encode by name; this domain has none. Build it as Categorical(labels=[...])."
            )
        codes = {label: code for code, label in enumerate(self.labels)}
        names, inverse = np.unique(np.asarray(values).astype(str), return_inverse=True)
        unknown = [name for name in names.tolist() if name not in codes]
        if unknown:
            raise ValueError(f"Unknown category {unknown[0]!r}; expected one of {list(self.labels)}.")
        return np.asarray([codes[name] for name in names.tolist()], dtype=np.int64)[inverse]
