"""From a user's attributes to the row of numbers that a linear model weighs, by public rules only."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from noisette import _validate, domains
from noisette._validate import FloatArray, IntArray
from noisette.domains import Categorical, Interval

Attribute = Interval | Categorical
Coding = Literal["unit", "signed"]
Outside = Literal["refuse", "clip", "keep"]
_WHOLE_ROWS = 1.5  # budget from which on PrivUnit beats Duchi on a sample of entries
Lookup = Callable[[npt.NDArray[Any]], tuple[IntArray, npt.NDArray[np.bool_]]]


class BadValue(ValueError):
    """A value that a design refuses, and the row it stands in; ``[row]`` in the text is where to say so."""

    def __init__(self, text: str, row: int) -> None:
        super().__init__(text.replace("[row]", f"row {row}"))
        self.text, self.row = text, row

    def __reduce__(self) -> tuple[type[BadValue], tuple[str, int]]:
        return type(self), (self.text, self.row)

    def moved(self, rows: int) -> BadValue:
        """Return the same complaint about a row farther down."""
        return BadValue(self.text, self.row + rows)


@dataclass(frozen=True)
class Design:
    """The columns of a linear model: a constant, a column for each number, a column for each category.

    A number is mapped from its public interval on [-1, 1]. A category becomes as many columns as there are categories:
    1 for the user's own and 0 for the others (``coding="unit"``), or 1 and -1 (``"signed"``, as Wang et al. 2019 and
    their followers do). Unit coding keeps rows short: a categorical attribute adds 1 to the squared length, not the
    number of its categories, and noise for whole vectors grows with the length. `coding_for` says which to take.

    >>> design = Design((Interval(0, 100), Categorical(labels=("no", "yes"))), names=("age", "smokes"))
    >>> design.columns
    ('constant', 'age', 'smokes=no', 'smokes=yes')
    >>> design.encode([[75, "yes"]])
    array([[1. , 0.5, 0. , 1. ]])
    """

    attributes: tuple[Attribute, ...]
    _: KW_ONLY
    names: tuple[str, ...] | None = None
    coding: Coding = "unit"

    def __post_init__(self) -> None:
        attributes = tuple(self.attributes)
        if not attributes:
            raise ValueError("Expected at least one attribute to learn from, got none.")
        for place, attribute in enumerate(attributes):
            if not isinstance(attribute, Interval | Categorical):
                raise TypeError(
                    f"Expected attribute {place} to be an Interval or a Categorical, got {attribute!r}. "
                    "Declare what values are possible, e.g. Interval(0, 100)."
                )
        if self.coding not in get_args(Coding):
            raise ValueError(f"Expected coding={self.coding!r} to be one of {get_args(Coding)}.")
        names = tuple(f"x{n}" for n in range(len(attributes))) if self.names is None else tuple(map(str, self.names))
        if len(names) != len(attributes):
            raise ValueError(f"Expected {len(attributes)} names, one for each attribute, got {len(names)}.")
        object.__setattr__(self, "attributes", attributes)
        object.__setattr__(self, "names", names)

    @cached_property
    def owners(self) -> IntArray:
        """The attribute that each column belongs to; -1 for the constant."""
        sizes = [a.size if isinstance(a, Categorical) else 1 for a in self.attributes]
        return np.concatenate([[-1], np.repeat(np.arange(len(sizes)), sizes)])

    @property
    def most_products(self) -> int:
        """How many products of two columns, or of a column and the target, are not zero: one of each two attributes.

        The constant column counts as an attribute. A product is at most 1, so this bounds their squared length.
        """
        attributes = 1 + len(self.attributes)
        numbers = sum(isinstance(attribute, Interval) for attribute in self.attributes)
        return attributes * (attributes - 1) // 2 + numbers + attributes

    @property
    def width(self) -> int:
        """Number of columns."""
        return int(self.owners.size)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        assert self.names is not None  # __post_init__ made them up
        result = ["constant"]
        for name, attribute in zip(self.names, self.attributes, strict=True):
            if isinstance(attribute, Categorical):
                labels = range(attribute.size) if attribute.labels is None else attribute.labels
                result += [f"{name}={label}" for label in labels]
            else:
                result.append(name)
        return tuple(result)

    @property
    def radius(self) -> float:
        """Largest Euclidean length of a row."""
        return math.sqrt(self.width if self.coding == "signed" else 1 + len(self.attributes))

    @property
    def _low(self) -> float:
        """What a category that is not the user's is written as."""
        return -1.0 if self.coding == "signed" else 0.0

    @cached_property
    def categorical(self) -> npt.NDArray[np.bool_]:
        """The columns that stand for a category."""
        kinds = np.asarray([False, *(isinstance(a, Categorical) for a in self.attributes)])
        return np.asarray(kinds[self.owners + 1])

    def encode(self, rows: Any, *, outside: Outside = "refuse") -> FloatArray:
        """Return the design row of each user.

        A number outside its interval is an error, is moved to the nearer end (``outside="clip"``), or goes on along
        the line (``"keep"``, for predictions).
        """
        table = self._table(rows)
        result = np.full((len(table), self.width), self._low)
        result[:, 0] = 1.0
        start = 1
        for place, attribute in enumerate(self.attributes):
            column = table[:, place]
            if isinstance(attribute, Categorical):
                codes = self._codes(place, column)
                result[np.arange(len(codes)), start + codes] = 1.0
                start += attribute.size
            elif len(column):
                values = attribute.to_canonical(self._admitted(place, column, outside))
                # the division may round past an end
                result[:, start] = values if outside == "keep" else np.clip(values, -1.0, 1.0)
                start += 1
        return result

    def levels(self, rows: FloatArray, target: FloatArray) -> FloatArray:
        """Return what decides the level of each column's gradient: its attribute's value on [-1, 1].

        A category is at -1 where it is not the user's and at 1 where it is. The constant's gradient is about the
        target, so its level is that of the target.
        """
        result = np.where(self.categorical, 1.0 - 2.0 * (rows < 0.5), rows)
        result[:, 0] = target
        return result

    def plain(self, weights: FloatArray) -> tuple[FloatArray, float]:
        """Return the coefficients and the intercept for attributes in their own units, categories as 0 and 1."""
        if self.coding == "signed":
            scale, shift = np.where(self.categorical, 2.0, 1.0), np.where(self.categorical, -1.0, 0.0)
        else:
            scale, shift = np.ones(self.width), np.zeros(self.width)
        for place, attribute in enumerate(self.attributes):
            if isinstance(attribute, Interval):
                start = int(np.flatnonzero(self.owners == place)[0])
                half = attribute.diameter / 2
                scale[start], shift[start] = 1 / half, -(attribute.low + half) / half
        return (weights * scale)[1:], float(weights[0] + (weights * shift)[1:].sum())

    def spec(self) -> dict[str, Any]:
        """Return a JSON description that `from_spec` reads back."""
        return {
            "attributes": [attribute.spec() for attribute in self.attributes],
            "names": list(self.names or ()),
            "coding": self.coding,
        }

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> Design:
        """Rebuild a design from its JSON description."""
        attributes = tuple(domains.from_spec(attribute) for attribute in spec["attributes"])
        return cls(attributes, names=tuple(spec["names"]), coding=spec["coding"])

    def _table(self, rows: Any) -> npt.NDArray[Any]:
        """Return ``rows`` as an array with a column for each attribute."""
        if isinstance(rows, np.ma.MaskedArray) and np.ma.is_masked(rows):
            raise ValueError("Expected rows without masked values. Remove or impute missing values first.")
        table = np.asarray(rows) if hasattr(rows, "dtype") else np.asarray(rows, dtype=object)
        if table.ndim != 2 or table.shape[1] != len(self.attributes):
            raise ValueError(
                f"Expected rows of shape (users, {len(self.attributes)}), one column for each attribute, "
                f"got {table.shape}."
            )
        return table

    def _finite(self, place: int, column: npt.NDArray[Any]) -> FloatArray:
        """Return a column as finite numbers."""
        try:
            values = np.asarray(column, dtype=np.float64)
        except (TypeError, ValueError) as error:
            bad = next(value for value in column.tolist() if not _is_number(value))
            raise type(error)(f"Expected a number in {self._name(place)}, got {bad!r}: {error}.") from None
        finite = np.isfinite(values)
        if not finite.all():
            row = int(np.argmin(finite))
            raise BadValue(
                f"Expected a finite number in {self._name(place)}, got {values[row]} in [row]. "
                "Remove or impute missing values before training.",
                row,
            )
        return values

    def _admitted(self, place: int, column: npt.NDArray[Any], outside: Outside) -> FloatArray:
        """Return a column of numbers, in their interval unless they may go on."""
        attribute, values = self.attributes[place], self._finite(place, column)
        assert isinstance(attribute, Interval)
        beyond = (values < attribute.low) | (values > attribute.high)
        if outside == "keep" or not beyond.any():
            return values
        if outside == "clip":
            return np.clip(values, attribute.low, attribute.high)
        row = int(np.argmax(beyond))
        ends = f"[{attribute.low:g}, {attribute.high:g}]"
        raise BadValue(
            f"Expected {self._name(place)} in {ends}, got {values[row]:g} in [row]. "
            "Declare the public range, or clip to move such values to the nearer end.",
            row,
        )

    def _codes(self, place: int, column: npt.NDArray[Any]) -> IntArray:
        """Return the position of each value among the attribute's categories."""
        codes, known = self._lookups[place](column)
        if not known.all():
            row = int(np.argmin(known))
            labels = self.columns[1:]
            own = [label for label, owner in zip(labels, self.owners[1:].tolist(), strict=True) if owner == place]
            few = _validate.few([label.partition("=")[2] for label in own])
            raise BadValue(
                f"{column.tolist()[row]!r} in [row] is not among the categories of {self._name(place)}: {few}. "
                "Declare it, or map it to a category such as 'other' first.",
                row,
            )
        return codes

    @cached_property
    def _lookups(self) -> dict[int, Lookup]:
        """For each categorical attribute, the function from values to codes and to whether they are categories."""
        return {place: _lookup(a) for place, a in enumerate(self.attributes) if isinstance(a, Categorical)}

    def _name(self, place: int) -> str:
        assert self.names is not None  # __post_init__ made them up
        return f"attribute {self.names[place]!r}"


def coding_for(epsilon: float) -> Coding:
    """Return the coding of categories that measured best at a budget.

    Small budgets are spent on single entries, which signed coding fills with signal; larger ones on whole rows, which
    unit coding keeps short. The two meet where the mechanisms do, near 1.5.
    """
    return "signed" if epsilon < _WHOLE_ROWS else "unit"


def _lookup(domain: Categorical) -> Lookup:
    """Return the function that finds categories: by number where all labels are numbers, by text otherwise."""
    labels = list(map(str, range(domain.size))) if domain.labels is None else list(domain.labels)
    by_text = {label: code for code, label in enumerate(labels)}
    numbers = np.asarray([float(label) for label in labels]) if all(map(_is_number, labels)) else None

    def find(column: npt.NDArray[Any]) -> tuple[IntArray, npt.NDArray[np.bool_]]:
        if numbers is not None:
            try:
                values = np.asarray(column, dtype=np.float64)
            except (TypeError, ValueError):
                pass
            else:
                order = np.argsort(numbers)
                codes = order[np.minimum(np.searchsorted(numbers, values, sorter=order), numbers.size - 1)]
                return codes, numbers[codes] == values
        names, inverse = np.unique(column.astype(str), return_inverse=True)
        found = np.asarray([by_text.get(name, -1) for name in names.tolist()], dtype=np.int64)[inverse]
        return found, found >= 0

    return find


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True
