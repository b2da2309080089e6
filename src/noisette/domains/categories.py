"""Categories, and selections of several of them; names are optional."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import eq
from typing import Any, ClassVar, overload

import numpy as np
import numpy.typing as npt

from noisette import _validate
from noisette._validate import IntArray
from noisette.domains._base import BoolArray, Described

MANY_LABELS = 1 << 16  # above which the memory of labels counts


class Labels(tuple[str, ...]):
    """Distinct texts, checked once: a domain does not check them again, which saves seconds with millions of labels."""

    @classmethod
    def of(cls, values: Iterable[Any]) -> Labels:
        """Return values as texts, or say which one is there twice."""
        if isinstance(values, Labels):
            return values
        found = cls(map(str, values))
        if not found._all_hashes_differ and len(set(found)) != len(found):
            raise ValueError(f"Expected distinct labels, got {Counter(found).most_common(1)[0][0]!r} twice.")
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave out what is computed: the hashes of another process are different ones."""
        return type(self), (tuple(self),)

    def find(self, texts: Sequence[str]) -> npt.NDArray[np.int64]:
        """Return the place of each text, -1 where it is no label."""
        if not self._all_hashes_differ:
            return np.asarray([self._places.get(text, -1) for text in texts], dtype=np.int64)
        hashes, order = self._sorted_hashes
        wanted = np.fromiter(map(hash, texts), dtype=np.int64, count=len(texts))
        found = order[np.minimum(np.searchsorted(hashes, wanted), len(self) - 1)].astype(np.int64)
        same = [self[place] == text for place, text in zip(found.tolist(), texts, strict=True)]
        return np.where(np.asarray(same, dtype=bool), found, -1)

    @cached_property
    def _places(self) -> dict[str, int]:
        """The place of each label, made once: a file is read in many pieces."""
        return {label: place for place, label in enumerate(self)}

    @cached_property
    def _sorted_hashes(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        """The hashes of all labels in order, and the place of each: a fifth of the memory of a dictionary."""
        hashes = np.fromiter(map(hash, self), dtype=np.int64, count=len(self))
        order = np.argsort(hashes).astype(np.int32)
        return hashes[order], order

    @cached_property
    def _all_hashes_differ(self) -> bool:
        """Whether there are so many labels that hashes are used, and no two have the same."""
        return len(self) > MANY_LABELS and bool(np.all(np.diff(self._sorted_hashes[0]) != 0))


@dataclass(frozen=True, eq=False)
class PrefixedLabels(Sequence[str]):
    """Labels with the same text before each, made when one is asked for: millions of texts are not held twice."""

    prefix: str
    labels: Sequence[str]

    def __len__(self) -> int:
        return len(self.labels)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[str]: ...
    def __getitem__(self, place: int | slice) -> str | Sequence[str]:
        if isinstance(place, slice):
            return PrefixedLabels(self.prefix, self.labels[place])
        return f"{self.prefix}{self.labels[place]}"

    def __iter__(self) -> Iterator[str]:
        return (f"{self.prefix}{label}" for label in self.labels)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PrefixedLabels):
            return self.prefix == other.prefix and self.labels == other.labels
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]  # equal by content


def prefixed(prefix: str, labels: Sequence[str]) -> Sequence[str]:
    """Return labels with the same text before each: a tuple, unless there are very many."""
    if len(labels) > MANY_LABELS:
        return PrefixedLabels(prefix, labels)
    return tuple(f"{prefix}{label}" for label in labels)


@dataclass(frozen=True)
class Categorical(Described):
    """The categories 0, 1, ..., size - 1, optionally with names.

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
        names, inverse = np.unique(np.asarray(values).astype(str), return_inverse=True)
        found = Labels.of(self.labels).find(names.tolist())
        if found.size and found.min() < 0:
            few = _validate.few(self.labels, quoted=True)
            raise ValueError(f"Unknown category {names[np.argmin(found)].item()!r}; expected one of {few}.")
        return found[inverse]


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
        """Tell which rows hold known options only, and none of them twice."""
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
