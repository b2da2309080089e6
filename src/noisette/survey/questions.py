"""What a survey may ask: numbers, dates, one or several choices, texts, vectors, tensors, graded numbers.

A question says which values it takes (`domain`), which quantities are estimated from the answers (`quantities`), how
an answer or a whole column of answers is read (`code`, `column`), how it is asked (`item`), and how it is written in a
file. A new kind of question is a new class here. Where its answer is what a mechanism takes, the mechanism is found by
its domain; where it has to be coded first, it has an item of its own, see `noisette.survey.coding.items`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from noisette import _validate
from noisette._validate import FloatArray
from noisette.domains import Box, Categorical, Domain, Interval, Selection, Sphere, TensorDomain, Texts
from noisette.domains.categories import Labels, prefixed
from noisette.survey.coding.axes import axis_of, number_of, shown
from noisette.survey.coding.items import Direct, Item, Topic
from noisette.survey.coding.joints import OptionalChoice, OptionalNumber, ResponseRate, rate_name
from noisette.survey.estimation.hierarchy import CELLS, ITEMS, quantile_names

if TYPE_CHECKING:
    from noisette.survey.coding.columns import Columns

LONGEST_NAME = 200
SEPARATOR = ";"  # between the options that one person chose, in a text
WANTS = ("mean", "distribution", "quantiles", "variance")
_MOST_ENTRIES = 1_000_000
_NARROWEST, _WIDEST = 1e-90, 1e90  # ranges of a number, of which squares are taken
_CLIPPING = "Pass clip=True (--clip) to move such numbers to the nearer end, or widen the range of the question."


@dataclass(frozen=True)
class Question(Topic):
    """One thing that is asked of a person.

    ``plain`` questions have one number or one choice as answer: they are sampled and planned together. ``words`` maps
    the fields that such a question has in a file, beside its name, to arguments of the class; a range gives low and
    high. ``more`` are fields that it may have besides. Where the answer is optional, whether there is one is private
    too.
    """

    plain: ClassVar[bool] = False
    words: ClassVar[Mapping[str, str]]
    more: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        text(self.name, "name of a question")
        _ = self.domain  # is checked here
        _flag(self.optional, self.name, "optional")

    @property
    def optional(self) -> bool:
        """Whether a person may give no answer."""
        return False

    @classmethod
    def from_entry(cls, entry: Mapping[str, Any]) -> Self:
        """Return the question that these fields describe."""
        given = {cls.words.get(word, word): value for word, value in entry.items() if word != "range"}
        if "range" in entry:
            given["low"], given["high"] = _span(entry)
        return cls(**given)

    @abstractmethod
    def written(self) -> dict[str, Any]:
        """Return the fields that describe the question in a file."""

    @property
    def item(self) -> Item:
        """How it is asked: as it is, unless the answer has to be coded before a mechanism takes it."""
        return Direct(self)

    @property
    def unit(self) -> Domain:
        """The domain with its range scaled to one, in which plain questions are weighed against each other."""
        own: Domain = self.domain
        return own

    def code(self, value: Any, *, clip: bool = False) -> npt.NDArray[Any]:
        """Return one person's answer as the mechanism takes it."""
        domain: Any = self.domain
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

    def column(self, columns: Columns, *, clip: bool = False) -> npt.NDArray[Any]:
        """Return the answers of many people as the mechanism takes them."""
        domain: Any = self.domain
        if domain.shape:
            found = columns.arrays(self.name, domain.shape)
        else:
            found = columns.numbers(self.name, missing=self.optional)
        inside = np.asarray(domain.contains(found)) | (np.isnan(found) if self.optional else False)
        if inside.all():
            return found
        if clip:
            return np.asarray(domain.clip(found))
        row = int(np.argmin(inside))
        shown_value = "the vector" if domain.shape else f"{found[row]:g}"
        if self.shown(0.0) != 0:  # a date or a time of day
            shown_value, domain = self.shown(found[row]), f"{self.shown(domain.low)} to {self.shown(domain.high)}"
        raise ValueError(f"{columns.place(row, self.name)}: {shown_value} is outside {domain}. {_CLIPPING}")

    def shown(self, value: float) -> Any:
        """Return a value as its axis shows it."""
        return value


class _OneNumber(Question):
    """A question whose answer is one number."""

    def code(self, value: Any, *, clip: bool = False) -> npt.NDArray[Any]:
        """Return one person's number."""
        domain: Any = self.domain
        if self.optional and value is None:
            return np.asarray(math.nan)
        number = _validate.number(value, self.name)
        if math.isnan(number):
            raise ValueError(f"Expected a number for {self.name}, got nan. Leave the question unanswered instead.")
        if clip:
            return np.asarray(float(min(max(number, domain.low), domain.high)))
        if not domain.low <= number <= domain.high:
            if self.shown(0.0) != 0:  # a date or a time of day
                value, domain = str(self.shown(number)), f"{self.shown(domain.low)} to {self.shown(domain.high)}"
            raise ValueError(f"Expected {self.name}={value!r} in {domain}. Pass clip=True to move it inside.")
        return np.asarray(number)


@dataclass(frozen=True)
class Number(_OneNumber):
    """A number of a public range, and what is wanted of it.

    ``want`` is "mean"; "distribution" for a picture of it, smoothed; "quantiles" for the median, tails and shares of
    ranges with intervals that hold; "variance" for mean and variance. ``whole`` numbers are integers. A range of dates
    or of times of day, also written as "1990-12-31" and "08:30", is one of days since 1970 or seconds since midnight,
    and quantiles and means are shown as dates and times again. For quantiles the range is cut into ``cells``, 64 unless
    16 or 256 are asked for; no interval is narrower than one cell.

    >>> Number("age", 18, 99).quantities
    ('age',)
    >>> Number("born", "1950-01-01", "2010-12-31", want="quantiles").estimated
    ('quantile 0.05', 'quantile 0.25', 'median', 'quantile 0.75', 'quantile 0.95')
    """

    low: Any
    high: Any
    want: str = "mean"
    _: KW_ONLY
    optional: bool = False
    whole: bool = False
    cells: int = 64
    axis: str = field(default="number", init=False)
    kind: ClassVar[str] = "number"
    words: ClassVar[Mapping[str, str]] = {"range": "low, high"}
    more: ClassVar[frozenset[str]] = frozenset({"want", "whole", "cells", "optional"})

    def __post_init__(self) -> None:
        axes = {axis_of(self.low), axis_of(self.high)}
        if len(axes) > 1:
            raise ValueError(f"Expected both ends of {self.name!r} to be numbers, dates or times of day.")
        object.__setattr__(self, "axis", axes.pop())
        for name in ("low", "high"):
            object.__setattr__(self, name, number_of(getattr(self, name), self.axis, f"range of {self.name}"))
        object.__setattr__(self, "whole", _flag(self.whole, self.name, "whole") or self.axis == "date")
        super().__post_init__()
        if not _NARROWEST <= self.domain.diameter <= _WIDEST:
            wanted = f"{_NARROWEST:g} to {_WIDEST:g} wide, got {self.low:g} to {self.high:g}"
            raise ValueError(f"Expected the range of {self.name!r} to be {wanted}: rescale the values first.")
        if self.want not in WANTS:
            raise ValueError(f"Expected want={self.want!r} of {self.name!r} to be one of {', '.join(WANTS)}.")
        object.__setattr__(self, "cells", _validate.integer(self.cells, f"cells of {self.name}", low=CELLS[0]))
        if self.cells not in CELLS:
            raise ValueError(f"Expected cells={self.cells} of {self.name!r} to be one of {', '.join(map(str, CELLS))}.")
        if self.cells != Number.cells and self.want != "quantiles":
            raise ValueError(f"Expected want='quantiles' of {self.name!r}, which has cells, got {self.want!r}.")
        if self.whole and not all(float(end).is_integer() for end in (self.low, self.high)):
            raise ValueError(f"Expected whole numbers as ends of {self.name!r}, got {self.low:g} and {self.high:g}.")
        if self.optional and self.want != "mean":
            raise ValueError(
                f"Expected want='mean' of {self.name!r}, which is optional, got {self.want!r}. For its distribution "
                "among those who answer, ask for a choice of ranges that is optional."
            )
        for name in ("low", "high"):
            object.__setattr__(self, name, getattr(self.domain, name))

    @cached_property
    def domain(self) -> Interval:
        """The range."""
        return _interval(self.name, self.low, self.high, self.shown)

    @property
    def unit(self) -> Domain:
        """The range scaled to one."""
        return Interval(0, 1)

    @property
    def wants_distribution(self) -> bool:
        """Whether quantiles and a histogram are wanted."""
        return self.want in ("distribution", "quantiles")

    @property
    def plain(self) -> bool:  # type: ignore[override]
        """Whether it is asked as it is, or rounded."""
        return self.want not in ITEMS

    @property
    def item(self) -> Item:
        """The number, or the end of the range that it is rounded to, or none, or what is wanted instead."""
        if self.want in ITEMS:
            return ITEMS[self.want](self)
        return OptionalNumber((self, ResponseRate(rate_name(self.name))), self) if self.optional else Direct(self)

    @property
    def estimated(self) -> tuple[str, ...]:
        """What is wanted."""
        return {"quantiles": quantile_names(), "variance": ("mean", "variance")}.get(self.want, ("mean",))

    @property
    def quantities(self) -> tuple[str, ...]:
        """The same with the name; the mean is called as the number."""
        return tuple(self.name if one == "mean" else f"{self.name}: {one}" for one in self.estimated)

    @property
    def signals(self) -> FloatArray:
        """Half of the range, and for a variance the square of that."""
        half = (self.high - self.low) / 2
        return np.asarray([half**2 if one == "variance" else half for one in self.estimated])

    @property
    def spans(self) -> FloatArray:
        """The range, and for a variance the largest there can be."""
        half = (self.high - self.low) / 2
        return np.asarray([half**2 if one == "variance" else 2 * half for one in self.estimated])

    def code(self, value: Any, *, clip: bool = False) -> npt.NDArray[Any]:
        """Return one person's number, date or time as a number."""
        if self.axis != "number" and not (self.optional and value is None):
            value = number_of(value, self.axis, self.name)
        found = super().code(value, clip=clip)
        if self.whole and not (np.isnan(found) or float(found).is_integer()):
            raise ValueError(f"Expected {self.name}={value!r} to be a whole number.")
        return found

    def column(self, columns: Columns, *, clip: bool = False) -> npt.NDArray[Any]:
        """Return a column of numbers, dates or times as numbers."""
        found = super().column(columns.on_axis(self.name, self.axis), clip=clip)
        if self.whole and np.any(broken := (found % 1 != 0) & ~np.isnan(found)):
            row = int(np.argmax(broken))
            raise ValueError(f"{columns.place(row, self.name)}: expected a whole number, got {found[row]:g}.")
        return found

    def shown(self, value: float) -> Any:
        """Return a value as its axis shows it: a date, a time of day, a whole number."""
        return shown(value, self.axis, self.whole)

    def written(self) -> dict[str, Any]:
        wanted = {"want": self.want} if self.want != "mean" else {}
        dated = self.axis != "number"
        ends = [self.shown(end).isoformat() if dated else end for end in (self.low, self.high)]
        whole = {"whole": True} if self.whole and not dated else {}
        cells = {"cells": self.cells} if self.cells != Number.cells else {}
        return {"name": self.name, "range": ends} | wanted | whole | cells | _written_flag(self.optional)


class _OfLabels(Question):
    """A question whose answers are labels; the share of each label is estimated."""

    labels: Sequence[str]
    tells: ClassVar[str] = "shares"

    @property
    def estimated(self) -> Sequence[str]:  # type: ignore[override]  # as good as a tuple
        """The labels, whose shares are estimated."""
        return self.labels

    @cached_property
    def quantities(self) -> Sequence[str]:  # type: ignore[override]  # as good as a tuple
        """The labels with the name of the question."""
        return prefixed(f"{self.name}=", self.labels)


@dataclass(frozen=True)
class Choice(_OfLabels):
    """One of a list of labels; the share of each label is estimated.

    >>> Choice("diet", ["none", "vegan"]).quantities
    ('diet=none', 'diet=vegan')
    """

    labels: Sequence[str]
    _: KW_ONLY
    optional: bool = False
    kind: ClassVar[str] = "category"
    plain: ClassVar[bool] = True
    words: ClassVar[Mapping[str, str]] = {"categories": "labels"}
    more: ClassVar[frozenset[str]] = frozenset({"optional"})

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", _labels(self.labels, f"categories of {self.name!r}"))
        super().__post_init__()

    @cached_property
    def domain(self) -> Categorical:
        """The labels."""
        return Categorical(labels=Labels.of(self.labels))

    def written(self) -> dict[str, Any]:
        return {"name": self.name, "categories": list(self.labels)} | _written_flag(self.optional)

    @property
    def item(self) -> Item:
        """The label, or none."""
        return OptionalChoice((self, ResponseRate(rate_name(self.name))), self) if self.optional else Direct(self)

    @property
    def signal(self) -> float:
        """How far shares can be from equal ones, as root mean square."""
        return math.sqrt((self.domain.size - 1) / self.domain.size**2)

    def code(self, value: Any, *, clip: bool = False) -> npt.NDArray[Any]:
        """Return the code of one person's label."""
        if self.optional and value is None:
            return np.asarray(len(self.labels))
        place = int(Labels.of(self.labels).find([value])[0]) if isinstance(value, str) else -1
        if place < 0:
            raise ValueError(f"Expected {self.name}={value!r} to be one of {_validate.few(self.labels)}.")
        return np.asarray(place)

    def column(self, columns: Columns, *, clip: bool = False) -> npt.NDArray[Any]:
        """Return the codes of a column of labels."""
        return columns.codes(self.name, self.labels, missing=self.optional)


@dataclass(frozen=True)
class Choices(_OfLabels):
    """Up to ``most`` of a list of labels, any number if it is 0; the share of each is wanted, and the mean number.

    An answer is a list of labels, in files also a text in which they are separated by semicolons. Where it is optional,
    an empty list is an answer and None is no answer; in files an empty field is no answer.

    >>> Choices("devices", ["phone", "tablet", "watch"], most=2).quantities
    ('devices=phone', 'devices=tablet', 'devices=watch')
    """

    labels: Sequence[str]
    most: int = 0
    _: KW_ONLY
    optional: bool = False
    kind: ClassVar[str] = "choices"
    words: ClassVar[Mapping[str, str]] = {"options": "labels"}
    more: ClassVar[frozenset[str]] = frozenset({"most", "optional"})

    def __post_init__(self) -> None:
        labels = _labels(self.labels, f"options of {self.name!r}")
        if bad := [label for label in labels if SEPARATOR in label]:
            raise ValueError(
                f"Expected options of {self.name!r} without {SEPARATOR!r}, got {bad[0]!r}: "
                "in a file the options that one person chose are separated by it."
            )
        object.__setattr__(self, "labels", labels)
        most = _validate.integer(self.most, f"most of {self.name!r}", low=0, high=len(labels))
        object.__setattr__(self, "most", most or len(labels))
        super().__post_init__()

    @cached_property
    def domain(self) -> Selection:
        """The labels, and how many may be chosen."""
        return Selection(most=self.most, labels=Labels.of(self.labels))

    def written(self) -> dict[str, Any]:
        return {"name": self.name, "options": list(self.labels), "most": self.most} | _written_flag(self.optional)

    @property
    def item(self) -> Item:
        """How it is asked; the number of options is estimated beside the shares."""
        from noisette.survey.coding.choices import ChoicesItem, ChosenNumber, OptionalChoices, number_name

        if not self.optional:
            return ChoicesItem(self)
        number = ChosenNumber(number_name(self.name), self.most)
        return OptionalChoices((self, ResponseRate(rate_name(self.name)), number), self)

    @property
    def signal(self) -> float:
        """How far shares can be from equal ones if everybody chose the most options allowed, as root mean square."""
        share = min(self.domain.most / self.domain.size, 0.5)
        return math.sqrt(share * (1 - share))

    def code(self, value: Any, *, clip: bool = False) -> npt.NDArray[Any]:
        """Return the codes of one person's labels, that of no answer being the one after all of them."""
        if self.optional and value is None:
            return np.asarray([len(self.labels)] + [-1] * (self.most - 1))
        chosen = [part.strip() for part in value.split(SEPARATOR) if part.strip()] if isinstance(value, str) else value
        if not isinstance(chosen, list | tuple) or not all(isinstance(label, str) for label in chosen):
            raise ValueError(f"Expected {self.name}={value!r:.80} to be a list of labels, empty for none.")
        if unknown := [label for label in chosen if label not in self.labels]:
            raise ValueError(f"Expected {self.name}: {unknown[0]!r} to be one of {_validate.few(self.labels)}.")
        try:
            return np.asarray(self.domain.encode([chosen])[0])
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}") from None

    def column(self, columns: Columns, *, clip: bool = False) -> npt.NDArray[Any]:
        """Return the codes of a column of lists, or of texts with the labels separated by semicolons."""
        return columns.selections(self.name, self.labels, self.domain.most, missing=self.optional)


@dataclass(frozen=True)
class Vector(Question):
    """A vector of ``dims`` numbers of a public range, or of a public Euclidean length; its mean is wanted.

    >>> Vector("hours by weekday", 7, 0, 24).quantities[:2]
    ('hours by weekday[0]', 'hours by weekday[1]')
    """

    dims: int
    low: float | None = None
    high: float | None = None
    length: float | None = None
    kind: ClassVar[str] = "vector"
    words: ClassVar[Mapping[str, str]] = {"vector": "dims"}
    more: ClassVar[frozenset[str]] = frozenset({"range", "length"})  # one of both

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.length is None:
            for name in ("low", "high"):
                object.__setattr__(self, name, getattr(self.domain, name))

    @cached_property
    def domain(self) -> Box | Sphere:
        """The box of the range, or the sphere of the length."""
        dims = _validate.integer(self.dims, f"vector of {self.name}", low=2, high=_MOST_ENTRIES)
        if (self.length is None) == (self.low is None or self.high is None):
            raise ValueError(f"Expected a range, low and high, or a length of the vector {self.name!r}.")
        if self.length is not None:
            return Sphere(dims, _validate.positive(self.length, f"length of {self.name}"))
        inside = _interval(self.name, self.low, self.high)
        return Box(dims, inside.low, inside.high)

    def written(self) -> dict[str, Any]:
        domain = self.domain
        limits = {"length": domain.radius} if isinstance(domain, Sphere) else {"range": [domain.low, domain.high]}
        return {"name": self.name, "vector": domain.dims} | limits

    @property
    def signal(self) -> float:
        """How far an entry can be from the middle, as root mean square."""
        domain = self.domain
        return domain.radius / math.sqrt(domain.dims) if isinstance(domain, Sphere) else super().signal


@dataclass(frozen=True)
class Tensor(Question):
    """A tensor of numbers of a public range, such as an image; its mean is wanted.

    >>> len(Tensor("photo", (28, 28), 0, 1).quantities)
    784
    """

    shape: Sequence[int]
    low: float
    high: float
    kind: ClassVar[str] = "tensor"
    words: ClassVar[Mapping[str, str]] = {"tensor": "shape", "range": "low, high"}

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in (("shape", self.domain.dims), ("low", self.domain.low), ("high", self.domain.high)):
            object.__setattr__(self, name, value)

    @cached_property
    def domain(self) -> TensorDomain:
        """The tensors of this shape."""
        dims: Any = self.shape
        if not isinstance(dims, list | tuple) or len(dims) < 2:
            raise ValueError(f"Expected tensor={dims!r} of {self.name!r} to be at least two sizes, e.g. [28, 28].")
        sizes = tuple(_validate.integer(size, f"tensor of {self.name}", low=1, high=_MOST_ENTRIES) for size in dims)
        if not 1 < math.prod(sizes) <= _MOST_ENTRIES:
            raise ValueError(f"Expected tensor={dims!r} of {self.name!r} to have 2 to {_MOST_ENTRIES:,} entries.")
        inside = _interval(self.name, self.low, self.high)
        return TensorDomain(sizes, inside.low, inside.high)

    def written(self) -> dict[str, Any]:
        return {"name": self.name, "tensor": list(self.shape), "range": [self.low, self.high]}


@dataclass(frozen=True)
class Graded(_OneNumber):
    """A number whose range has levels of their own sensitivity, each (low, high, budget).

    Only the ratios of the budgets count: they are scaled to what the survey spends.

    >>> Graded("income", [(0, 50, 2.0), (50, 100, 1.0)]).domain
    Interval(low=0.0, high=100.0)
    """

    levels: Sequence[tuple[float, float, float]]
    kind: ClassVar[str] = "graded"
    words: ClassVar[Mapping[str, str]] = {"levels": "levels"}

    def __post_init__(self) -> None:
        from noisette.mechanisms.graded.levelled import LevelledResponse

        entries: Any = self.levels
        if not isinstance(entries, list | tuple) or not all(
            isinstance(entry, list | tuple) and len(entry) == 3 for entry in entries
        ):
            raise ValueError(
                f"Expected levels={entries!r} of {self.name!r} to be lists of low, high and budget, "
                "e.g. [[0, 50, 2.0], [50, 100, 1.0]]."
            )
        rows = [[_validate.number(number, f"levels of {self.name}") for number in entry] for entry in entries]
        made = LevelledResponse.from_levels(rows)
        object.__setattr__(self, "levels", tuple(zip(made.edges[:-1], made.edges[1:], made.epsilons, strict=True)))
        super().__post_init__()

    @cached_property
    def domain(self) -> Interval:
        """The range of all levels."""
        return Interval(self.levels[0][0], self.levels[-1][1])

    @property
    def wants_distribution(self) -> bool:
        """Whether a distribution is wanted: always, as every graded mechanism estimates one."""
        return True

    def written(self) -> dict[str, Any]:
        return {"name": self.name, "levels": [list(level) for level in self.levels]}


@dataclass(frozen=True)
class Text(Question):
    """A text that nobody listed beforehand; the most frequent texts are found, with their shares.

    A text has at most ``longest`` bytes of UTF-8 and no control characters. Spaces at its ends are taken off and it is
    brought to Unicode's normal form C; case is left alone. Where only the characters of an ``alphabet`` occur, rarer
    texts are found. Where it is optional, the device sends a space in place of no answer; no text is a single space.

    >>> Text("site", longest=24).domain
    Texts(longest=24, alphabet=None)
    """

    longest: int = 24
    alphabet: str | None = None
    _: KW_ONLY
    optional: bool = False
    kind: ClassVar[str] = "text"
    tells: ClassVar[str] = "texts"
    words: ClassVar[Mapping[str, str]] = {"text": "longest"}
    more: ClassVar[frozenset[str]] = frozenset({"alphabet", "optional"})

    @cached_property
    def domain(self) -> Texts:
        """The texts."""
        return Texts(_validate.integer(self.longest, f"longest text of {self.name}", low=1, high=32), self.alphabet)

    @property
    def item(self) -> Item:
        """Its reports are counted and searched."""
        from noisette.survey.coding.texts import OptionalText, TextItem

        return OptionalText(self) if self.optional else TextItem(self)

    def written(self) -> dict[str, Any]:
        letters = {} if self.alphabet is None else {"alphabet": self.alphabet}
        return {"name": self.name, "text": self.longest} | letters | _written_flag(self.optional)

    @property
    def estimated(self) -> tuple[str, ...]:
        """What is known before the search: that a text has a share."""
        return ("share of a text",)

    @property
    def signal(self) -> float:
        """Twice the error at which a text that a tenth of people have is found: a share is worth asking for there."""
        return 0.04

    def code(self, value: Any, *, clip: bool = False) -> npt.NDArray[Any]:
        """Return one person's text, a space for no answer."""
        from noisette.survey.coding.texts import NO_TEXT

        if self.optional and value is None:
            return np.asarray(NO_TEXT)
        value = value.strip() if isinstance(value, str) else value
        fault = self.domain.fault(value)
        if fault is not None:
            raise ValueError(f"Expected {self.name}={value!r:.80} to be one of {self.domain}: {fault}")
        return np.asarray(value)

    def column(self, columns: Columns, *, clip: bool = False) -> npt.NDArray[Any]:
        """Return a column of texts, a space for each that is missing."""
        from noisette.survey.coding.texts import NO_TEXT

        found = columns.texts(self.name, missing=self.optional)
        given = [one for one in found if one is not None]
        try:
            if given:
                self.domain.symbols(given)
        except ValueError:
            row = next(row for row, one in enumerate(found) if one is not None and self.domain.fault(one))
            raise ValueError(
                f"{columns.place(row, self.name)}: {found[row]!r:.80}: {self.domain.fault(found[row])}"
            ) from None
        return np.asarray([NO_TEXT if one is None else one for one in found])


KINDS: tuple[type[Question], ...] = (Number, Choice, Choices, Vector, Tensor, Graded, Text)


def read_question(entry: Any) -> Question:
    """Check a question as an analyst wrote it.

    >>> read_question({"name": "income", "levels": [[0, 50, 2.0], [50, 100, 1.0]]}).kind
    'graded'
    """
    fields = frozenset(entry) if isinstance(entry, Mapping) else frozenset()
    for kind in KINDS:
        needed = {"name", *kind.words}
        if needed <= fields <= needed | kind.more:
            return kind.from_entry(entry)
        if needed <= fields <= needed | kind.more | {"optional"}:
            raise ValueError(
                f"Expected no 'optional' in {entry!r}: numbers, choices and texts may be optional. "
                "Ask for each number as one that is optional."
            )
    raise ValueError(
        "Expected a question with a name and a range, categories or options, or a vector with a range or a length, "
        f"or a tensor with a range, or levels, or a text, got {entry!r}."
    )


def text(value: Any, what: str) -> str:
    """Return a printable text of one to 200 characters, or raise."""
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_NAME or not value.isprintable():
        raise ValueError(
            f"Expected {what} {value!r} to be a text of one line, of at most {LONGEST_NAME} characters. "
            "YAML reads yes, no and 1 as something else: put them in quotes."
        )
    return value


def _labels(values: Any, what: str) -> Labels:
    """Return at least two different texts, or say what is wrong with them."""
    found = texts(values, what)
    if len(found) < 2:
        raise ValueError(f"Expected at least two {what}, got {list(found)}: one answer alone tells nothing.")
    try:
        return Labels.of(found)
    except ValueError as error:
        raise ValueError(str(error).replace("distinct labels", f"distinct labels as {what}")) from None


def _all_fine(values: Sequence[Any]) -> bool:
    """Tell whether `text` takes all values; it looks at millions of them in a second."""
    if set(map(type, values)) != {str} or not "".join(values).isprintable():
        return False
    bounds = "\n".join(values)  # the only space that is printable is the plain one
    if " \n" in bounds or "\n " in bounds or bounds.strip(" ") != bounds:
        return False
    return min(map(len, values)) > 0 and max(map(len, values)) <= LONGEST_NAME


def texts(values: Any, what: str) -> tuple[str, ...]:
    """Return a list of texts, or say what is wrong with it."""
    values = values.tolist() if hasattr(values, "tolist") else values  # an array, or a Series of pandas
    if isinstance(values, list | tuple) and _all_fine(values):
        return values if isinstance(values, Labels) else tuple(values)
    if not isinstance(values, list | tuple) or not all(isinstance(value, str) for value in values):
        raise ValueError(
            f"Expected {what}={values!r:.200} to be texts. YAML reads yes, no and 1 as something else: "
            'put them in quotes, as in ["yes", "no"].'
        )
    for value in values:
        if text(value, f"each of {what}") != value.strip():
            raise ValueError(f"Expected {value!r} of {what} without spaces at its ends: in answers they are taken off.")
    return tuple(values)


def _flag(value: Any, name: str, what: str) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"Expected {what}={value!r} of {name!r} to be true or false.")
    return value


def _written_flag(optional: bool) -> dict[str, Any]:
    return {"optional": True} if optional else {}


def _span(entry: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the two ends of a range."""
    limits = entry["range"]
    if not isinstance(limits, list) or len(limits) != 2:
        raise ValueError(f"Expected range={limits!r} of {entry['name']!r} to be two numbers, e.g. [0, 120].")
    return limits[0], limits[1]


def _interval(name: str, low: Any, high: Any, shown: Callable[[float], Any] = float) -> Interval:
    """Return a public range; ``shown`` writes its ends in messages."""
    ends = [_validate.number(limit, f"range of {name}") for limit in (low, high)]
    if not (math.isfinite(ends[0]) and math.isfinite(ends[1]) and ends[0] < ends[1]):
        ends_shown = " to ".join(f"{one:g}" if isinstance(one := shown(end), float) else str(one) for end in ends)
        raise ValueError(f"Expected the range of {name!r} to be finite, low < high, got {ends_shown}.")
    return Interval(*ends)
