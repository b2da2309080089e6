"""What a campaign may ask: numbers, categories, vectors, tensors, and numbers of graded sensitivity."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from noisette import _validate
from noisette.domains import Box, Categorical, Domain, Interval, Sphere, TensorDomain

LONGEST_NAME = 200
_MOST_ENTRIES = 1_000_000
_FORMS = {
    "number": ({"name", "range"},),
    "category": ({"name", "categories"},),
    "vector": ({"name", "vector", "range"}, {"name", "vector", "length"}),
    "tensor": ({"name", "tensor", "range"},),
    "graded": ({"name", "levels"},),
}


@dataclass(frozen=True)
class Attribute:
    """One thing that is asked: its name, the values it may take, and for graded numbers the levels with their budgets.

    >>> Attribute.read({"name": "income", "levels": [[0, 50, 2.0], [50, 100, 1.0]]}).kind
    'graded'
    """

    name: str
    kind: str
    domain: Domain
    levels: tuple[tuple[float, float, float], ...] | None = None

    @classmethod
    def read(cls, entry: Any) -> Attribute:
        """Check an attribute as an analyst wrote it."""
        fields = set(entry) if isinstance(entry, Mapping) else set()
        kind = next((kind for kind, forms in _FORMS.items() if fields in forms), None)
        if kind is None:
            raise ValueError(
                "Expected an attribute with a name and a range or categories, or a vector with a range or a length, "
                f"or a tensor with a range, or levels, got {entry!r}."
            )
        name = text(entry["name"], "name of an attribute")
        if kind == "graded":
            levels = _levels(entry["levels"], name)
            return cls(name, kind, Interval(levels[0][0], levels[-1][1]), levels)
        return cls(name, kind, _DOMAINS[kind](entry, name))

    def written(self) -> dict[str, Any]:
        """Return the attribute as it is written in a file."""
        named: dict[str, Any] = {"name": self.name}
        domain: Any = self.domain
        if self.kind == "category":
            return named | {"categories": list(domain.labels)}
        if self.kind == "graded":
            return named | {"levels": [list(level) for level in self.levels or ()]}
        if self.kind == "vector" and isinstance(domain, Sphere):
            return named | {"vector": domain.dims, "length": domain.radius}
        span = {"range": [_limit(domain.low), _limit(domain.high)]}
        if self.kind == "number":
            return named | span
        return named | {self.kind: domain.dims if self.kind == "vector" else list(domain.dims)} | span

    @property
    def plain(self) -> bool:
        """Whether this is one number or one category, which are sampled and planned together."""
        return self.kind in ("number", "category")

    @property
    def quantities(self) -> tuple[str, ...]:
        """Names of what is estimated: a mean, a mean for each entry, or a frequency for each category."""
        domain: Any = self.domain
        if self.kind == "category":
            return tuple(f"{self.name}={label}" for label in domain.labels)
        places = np.ndindex(*domain.shape)
        return tuple(f"{self.name}[{','.join(map(str, place))}]" if place else self.name for place in places)

    def code(self, value: Any, *, clip: bool = False) -> npt.NDArray[Any]:
        """Return one user's value as the mechanism takes it: a code, a number, or an array of numbers."""
        domain: Any = self.domain
        if self.kind == "category":
            if not isinstance(value, str) or value not in domain.labels:
                raise ValueError(f"Expected {self.name}={value!r} to be one of {', '.join(domain.labels)}.")
            return np.asarray(domain.labels.index(value))
        if domain.shape == ():
            return np.asarray(self._number(value, clip=clip))
        numbers = _validate.reals(value, self.name)
        if numbers.shape != domain.shape:
            raise ValueError(f"Expected {self.name} of shape {domain.shape}, got {numbers.shape}.")
        if not np.isfinite(numbers).all():
            raise ValueError(f"Expected finite numbers in {self.name}. Leave the question unanswered instead.")
        if clip:
            return np.asarray(domain.clip(numbers))
        if not np.all(domain.contains(numbers)):
            raise ValueError(f"Expected {self.name} in {domain}. Pass clip=True to move it inside.")
        return numbers

    def _number(self, value: Any, *, clip: bool) -> float:
        domain: Any = self.domain
        number = _validate.number(value, self.name)
        if math.isnan(number):
            raise ValueError(f"Expected a number for {self.name}, got nan. Leave the question unanswered instead.")
        if clip:
            return float(min(max(number, domain.low), domain.high))
        if not domain.low <= number <= domain.high:
            raise ValueError(f"Expected {self.name}={value!r} in {domain}. Pass clip=True to move it inside.")
        return number


def text(value: Any, what: str) -> str:
    """Return a text of one to 200 characters that can be printed, or say that it is none."""
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_NAME or not value.isprintable():
        raise ValueError(
            f"Expected {what} {value!r} to be a text of one line, of at most {LONGEST_NAME} characters. "
            "YAML reads yes, no and 1 as something else: put them in quotes."
        )
    return value


def labels(values: Any, what: str) -> tuple[str, ...]:
    """Return a list of texts, or say what is wrong with it."""
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError(
            f"Expected {what}={values!r} to be texts. YAML reads yes, no and 1 as something else: "
            'put them in quotes, as in ["yes", "no"].'
        )
    return tuple(text(value, f"each of {what}") for value in values)


def _limit(limit: Any) -> Any:
    """Return a bound as one number."""
    return float(np.asarray(limit).flat[0])


def _span(entry: Mapping[str, Any], name: str) -> tuple[float, float]:
    limits = entry["range"]
    if not isinstance(limits, list) or len(limits) != 2:
        raise ValueError(f"Expected range={limits!r} of {name!r} to be two numbers, e.g. [0, 120].")
    low, high = (_validate.number(limit, f"range of {name}") for limit in limits)
    inside = Interval(low, high)
    return inside.low, inside.high


def _number(entry: Mapping[str, Any], name: str) -> Domain:
    return Interval(*_span(entry, name))


def _category(entry: Mapping[str, Any], name: str) -> Domain:
    return Categorical(labels=labels(entry["categories"], f"categories of {name!r}"))


def _vector(entry: Mapping[str, Any], name: str) -> Domain:
    dims = _validate.integer(entry["vector"], f"vector of {name}", low=2, high=_MOST_ENTRIES)
    if "length" in entry:
        return Sphere(dims, _validate.positive(entry["length"], f"length of {name}"))
    return Box(dims, *_span(entry, name))


def _tensor(entry: Mapping[str, Any], name: str) -> Domain:
    dims = entry["tensor"]
    if not isinstance(dims, list) or len(dims) < 2:
        raise ValueError(f"Expected tensor={dims!r} of {name!r} to be at least two sizes, e.g. [28, 28].")
    sizes = tuple(_validate.integer(size, f"tensor of {name}", low=1, high=_MOST_ENTRIES) for size in dims)
    if not 1 < math.prod(sizes) <= _MOST_ENTRIES:
        raise ValueError(f"Expected tensor={dims!r} of {name!r} to have 2 to {_MOST_ENTRIES:,} entries.")
    return TensorDomain(sizes, *_span(entry, name))


_DOMAINS = {"number": _number, "category": _category, "vector": _vector, "tensor": _tensor}


def _levels(entries: Any, name: str) -> tuple[tuple[float, float, float], ...]:
    """Return the levels of a graded number in order, each (low, high, budget)."""
    from noisette.mechanisms.graded.levelled import LevelledResponse

    if not isinstance(entries, list) or not all(isinstance(entry, list) and len(entry) == 3 for entry in entries):
        raise ValueError(
            f"Expected levels={entries!r} of {name!r} to be lists of low, high and budget, "
            "e.g. [[0, 50, 2.0], [50, 100, 1.0]]."
        )
    made = LevelledResponse.from_levels(
        [[_validate.number(number, f"levels of {name}") for number in entry] for entry in entries]
    )
    return tuple(zip(made.edges[:-1], made.edges[1:], made.epsilons, strict=True))
