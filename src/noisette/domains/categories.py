"""Categories and selections of several of them, with names if one likes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from noisette import _validate
from noisette._validate import IntArray
from noisette.domains._base import BoolArray, Described


class Labels(tuple[str, ...]):
    """Different texts. A domain that is given them takes their word: of millions of labels this saves seconds."""

    __slots__ = ()

    @classmethod
    def of(cls, values: Iterable[Any]) -> Labels:
        """Return values as texts, or say which one is there twice."""
        if isinstance(values, Labels):
            return values
        found = cls(map(str, values))
        if len(set(found)) != len(found):
            raise ValueError(f"Expected distinct labels, got {Counter(found).most_common(1)[0][0]!r} twice.")
        return found


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
            labels = Labels.of(self.labels)
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
            raise ValueError("Expected labels to encode by name; this domain has none. Build it with labels=[...].")
        codes = {label: code for code, label in enumerate(self.labels)}
        names, inverse = np.unique(np.asarray(values).astype(str), return_inverse=True)
        unknown = [name for name in names.tolist() if name not in codes]
        if unknown:
            few = _validate.few(self.labels, quoted=True)
            raise ValueError(f"Unknown category {unknown[0]!r}; expected one of {few}.")
        return np.asarray([codes[name] for name in names.tolist()], dtype=np.int64)[inverse]


@dataclass(frozen=True)
class Selection(Described):
    """Up to ``most`` of the options 0, 1, ..., size - 1, as many as there are if it is 0.

    A value is a row of ``most`` codes in any order; -1 stands for no option and fills what is left of the row.

    >>> Selection(most=2, labels=("phone", "tablet", "watch")).encode([["watch", "phone"], ["tablet"], []])
    array([[ 0,  2],
           [ 1, -1],
           [-1, -1]])
    """

    size: int = 0
    most: int = 0
    labels: tuple[str, ...] | None = None
    kind: ClassVar[str] = "selection"

    def __post_init__(self) -> None:
        one = Categorical(self.size, self.labels)
        object.__setattr__(self, "labels", one.labels)
        object.__setattr__(self, "size", one.size)
        most = _validate.integer(self.most, "most", low=0, high=one.size)
        object.__setattr__(self, "most", most or one.size)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one element: a row of codes."""
        return (self.most,)

    @property
    def diameter(self) -> float:
        """Largest distance of two selections seen as vectors of zeros and ones."""
        return math.sqrt(min(2 * self.most, self.size))

    def contains(self, x: Any) -> BoolArray:
        """Tell which rows name no option twice and none that there is not."""
        codes = _validate.integers(x)
        _validate.trailing(codes, self.shape, "x")
        inside = (codes >= -1) & (codes < self.size)
        ordered = np.sort(codes, axis=-1)
        twice = (ordered[..., 1:] == ordered[..., :-1]) & (ordered[..., 1:] >= 0)
        return np.asarray(inside.all(axis=-1) & ~twice.any(axis=-1))

    def clip(self, x: Any) -> npt.NDArray[Any]:
        """Refuse: there is no nearest selection."""
        if np.all(self.contains(x)):
            return _validate.integers(x)
        raise ValueError(
            "Selections cannot be clipped: an option that is not in the list has no nearest one. "
            "Add an option such as 'other', and let each be chosen once."
        )

    def encode(self, values: Any) -> IntArray:
        """Turn lists of labels into rows of codes, in the order of the labels."""
        rows = [[one] if isinstance(one, str) else list(one) for one in values]
        sizes = np.asarray([len(row) for row in rows], dtype=np.int64)
        if sizes.size and sizes.max() > self.most:
            raise ValueError(f"Expected at most {self.most} options, got {rows[int(np.argmax(sizes))]}.")
        found = np.full((len(rows), self.most), self.size, dtype=np.int64)
        if sizes.sum():
            flat = np.asarray([str(label) for row in rows for label in row])
            found[np.arange(self.most) < sizes[:, None]] = Categorical(self.size, self.labels).encode(flat)
        found.sort(axis=-1)
        twice = ((found[:, 1:] == found[:, :-1]) & (found[:, 1:] < self.size)).any(axis=-1)
        if twice.any():
            raise ValueError(f"Expected each option once, got {rows[int(np.argmax(twice))]}.")
        found[found == self.size] = -1
        return found

    def members(self, x: Any) -> BoolArray:
        """Tell for each row which options it has, along a last axis of ``size``."""
        codes = _validate.integers(x)
        _validate.trailing(codes, self.shape, "x")
        found = np.zeros((codes.size // self.most, self.size + 1), dtype=bool)
        np.put_along_axis(found, np.where(codes < 0, self.size, codes).reshape(-1, self.most), True, axis=1)
        return found[:, :-1].reshape(*codes.shape[:-1], self.size)
