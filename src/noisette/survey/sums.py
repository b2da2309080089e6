"""What reports add up to: one vector of integers, the same bits in any order of summing.

The vector holds for each section what its items count, most often count, total and sum of squares of every quantity,
and for each number whose distribution can be found how many reports fell into each bin.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from noisette._validate import FloatArray, IntArray
from noisette.core import Aggregate, Estimate, add_sums
from noisette.enhancement.channel import BinnedChannel, places_of, report_edges
from noisette.survey.coding.items import Direct, Item
from noisette.survey.questions import Question
from noisette.survey.survey import Rows, Survey

BINS = 64  # of a number's range
_LEAST_BINS = 3  # reports of fewer kinds tell a mean and no more


@dataclass(frozen=True, eq=False)
class Binned:
    """A number, asked alone or in a record, and the bins in which its reports are counted.

    ``place`` is that of its section, ``column`` its own among the section's items, None where it is alone.
    """

    question: Question
    place: int
    column: int | None
    mechanism: Any
    edges: FloatArray | None

    @cached_property
    def channel(self) -> BinnedChannel:
        """How the number's bins and those of its reports go together; takes up to a second when first used."""
        return BinnedChannel.of(self.mechanism, bins=BINS)

    @property
    def bins(self) -> int:
        """How many bins there are; none where the reports say nothing of the distribution."""
        return 0 if self.edges is None else self.edges.size - 1


class Layout:
    """Where each sum of a survey lies in the vector."""

    def __init__(self, survey: Survey) -> None:
        self.survey = survey
        self.numbers = tuple(self._numbers())
        self._end = 0
        self.sections = [self._take((section.size,)) for section in survey.sections]
        self.histograms = [self._take((number.bins,)) for number in self.numbers]
        self.size = self._end

    @cached_property
    def name(self) -> str:
        """A name that changes with what the sums mean: if a later program counts in other bins, it sums anew."""
        edges = [number.edges.tobytes() for number in self.numbers if number.edges is not None]
        text = f"{self.sections} {self.histograms}".encode()
        return hashlib.sha256(text + b"".join(edges)).hexdigest()[:16]

    def _take(self, shape: tuple[int, ...]) -> tuple[slice, tuple[int, ...]]:
        start, self._end = self._end, self._end + int(np.prod(shape))
        return slice(start, self._end), shape

    def _numbers(self) -> Iterator[Binned]:
        for place, section in enumerate(self.survey.sections):
            for column, item in enumerate(section.items):
                if isinstance(item, Direct) and item.question.kind == "number":
                    inner = section.inner(column)
                    alone = len(section.items) == 1
                    yield Binned(item.question, place, None if alone else column, inner, edges_of(inner))

    def tally(self, rows: Rows) -> Sums:
        """Sum rows, refusing those that the mechanisms cannot have sent."""
        vector = np.zeros(self.size, dtype=np.int64)
        binned = {(number.place, number.column): place for place, number in enumerate(self.numbers)}

        def count(place: int, column: int | None, reports: npt.NDArray[Any]) -> None:
            """Count the reports about a number in bins."""
            found = binned.get((place, column))
            if found is not None and (edges := self.numbers[found].edges) is not None:
                own, (bins,) = self.histograms[found]
                vector[own] = np.bincount(places_of(edges, reports.ravel()), minlength=bins)

        parts = zip(self.survey.sections, self.sections, self.survey.parts(rows), strict=True)
        for place, (section, (own, _), sent) in enumerate(parts):
            if not len(sent):
                continue
            if len(section.items) > 1:
                vector[own] = section.tally(sent, partial(count, place))
            else:
                vector[own] = section.tally(sent)
                count(place, None, sent)
        return Sums(self, len(rows), vector)

    def by_cell(self, rows: Rows, cells: npt.NDArray[Any] | None) -> dict[int, Sums]:
        """Sum the rows of each combination of public groups; all are of cell 0 where there are no groups."""
        if cells is None:
            return {0: self.tally(rows)}
        order = np.argsort(cells, kind="stable")
        ends = np.searchsorted(cells[order], np.arange(self.survey.cells + 1))
        pairs = ((cell, slice(ends[cell], ends[cell + 1])) for cell in range(self.survey.cells))
        return {cell: self.tally(rows.take(order[own])) for cell, own in pairs if own.start < own.stop}

    def nothing(self) -> Sums:
        """Return the sums of no report."""
        return Sums(self, 0, np.zeros(self.size, dtype=np.int64))


@dataclass(frozen=True, eq=False)
class Sums:
    """How many users reported, and what their reports add up to."""

    layout: Layout
    users: int
    vector: IntArray

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sums):
            return NotImplemented
        same = self.layout.survey.randomizer.spec() == other.layout.survey.randomizer.spec()
        return same and self.users == other.users and np.array_equal(self.vector, other.vector)

    __hash__ = None  # type: ignore[assignment]  # equal by content, and an array has no hash

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.layout, self.users + other.users, add_sums(self.vector, other.vector))

    def _read(self, where: tuple[slice, tuple[int, ...]]) -> IntArray:
        return self.vector[where[0]].reshape(where[1])

    @cached_property
    def aggregates(self) -> tuple[Aggregate, ...]:
        """The aggregate of each section that is counted by its mechanism's quantities."""
        each = zip(self.layout.survey.sections, self.layout.sections, strict=True)
        return tuple(own.aggregate(self._read(where), self.users) for own, where in each if own.counted)

    def estimates(self) -> tuple[Estimate, ...]:
        """Return what the mechanism of each such section estimates."""
        return tuple(replace(one.estimate(), names=one.names) for one in self.aggregates)

    def by_question(self, method: str = "none") -> dict[str, Estimate]:
        """Return the estimate of each question by its name, enhanced where asked, in the order of the quantities."""
        found: dict[str, Estimate] = {}
        for section, where in zip(self.layout.survey.sections, self.layout.sections, strict=True):
            made = section.read(self._read(where), self.users, method)
            found |= zip((one.name for one in section.questions), made, strict=True)
        return found

    def about(self, name: str) -> tuple[Any, IntArray]:
        """Return the section that a question is in, and its sums."""
        for section, where in zip(self.layout.survey.sections, self.layout.sections, strict=True):
            if any(one.name == name for one in section.questions):
                return section, self._read(where)
        raise KeyError(f"No question {name!r}: take one of the survey that was asked.")

    def piece(self, item: Item) -> tuple[Any, IntArray]:
        """Return the mechanism of a counted item, and its rows of counts, totals and squares."""
        for section, where in zip(self.layout.survey.sections, self.layout.sections, strict=True):
            start = 0
            for place, one in enumerate(section.items):
                if type(one) is type(item) and one.name == item.name:  # of a survey read anew they are other objects
                    return section.inner(place), self._read(where).reshape(3, -1)[:, start : start + one.width]
                start += one.width
        raise KeyError(f"No item {item.name!r} in this survey: take one of its own.")

    def histogram(self, number: Binned) -> IntArray:
        """Return how many reports about a number fell into each of its bins."""
        return self._read(self.layout.histograms[self.layout.numbers.index(number)])

    def stored(self) -> dict[str, Any]:
        """Return the columns of the table of sums."""
        return {"layout": self.layout.name, "users": self.users, "vector": self.to_bytes()}

    def to_bytes(self) -> bytes:
        """Return the vector as the database keeps it."""
        return np.ascontiguousarray(self.vector, dtype="<i8").tobytes()


def edges_of(mechanism: Any) -> FloatArray | None:
    """Return the bins of a mechanism's reports, None where there are too few for more than a mean."""
    edges = report_edges(mechanism, bins=BINS)
    return edges if edges is not None and edges.size > _LEAST_BINS else None
