"""Several choices asked together with another question: one selection of pairs, at the whole budget.

A person who chose label i and the options S reports a selection of pairs: (i, j) for each j of S, and (i, any), which
says that she has the label. So the share of each pair, of each label and of each option is read from one report.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from noisette._validate import FloatArray, IntArray
from noisette.core import Aggregate, Estimate
from noisette.domains import Selection
from noisette.survey.coding.choices import ChosenNumber, expected_selections, number_name
from noisette.survey.coding.items import PLANNED, Answers, Topic
from noisette.survey.coding.joints import Joint, PairItem, signs
from noisette.survey.estimation.ratios import CellShares, RatioEstimate, Supports

if TYPE_CHECKING:
    from noisette.survey.choosing import Allowance
    from noisette.survey.questions import Choices, Question

MOST_PAIRS = 1 << 14  # of labels and options


@dataclass(frozen=True)
class ChosenPairs(PairItem):
    """The options that a person chose of a list, each paired with her answer to ``first``.

    ``first`` has rows: the labels of a choice, the options of other several choices, or the two ends of the range of a
    number to which it is rounded. Pairs are numbered row by row; last in each row stands the pair with any option, and
    where a person may be in several rows there is a last row of pairs with any row.
    """

    questions: tuple[Topic, ...]
    first: Any
    second: Choices

    @property
    def _several(self) -> bool:
        """Whether a person may be in several rows."""
        return bool(self.first.kind == "choices")

    @property
    def _rows(self) -> int:
        return 2 if self.first.kind == "number" else len(self.first.labels) + self._several

    @property
    def _columns(self) -> int:
        return len(self.second.labels) + 1

    @cached_property
    def domain(self) -> Selection:
        """All pairs except "any with any", which says nothing and comes last where it exists."""
        most = (self.first.domain.most + 1 if self._several else 1) * (self.second.domain.most + 1)
        return Selection(self._rows * self._columns - self._several, most - self._several)

    @property
    def cells(self) -> tuple[str, ...]:
        """A number for each pair, and how many a person has."""
        return tuple(f"{self.name}#{place}" for place in range(self.domain.size + 1))

    def suits(self, mechanism: Any) -> bool:
        """Tell whether it is known how the estimates of two pairs vary together."""
        return mechanism.covariances is not None

    def choose(self, budget: Allowance, asked: str, report: int | None) -> Any:
        """Return the first mechanism for selections whose sums over pairs have a known variance."""
        from noisette.mechanisms.build import build, fits

        names = [one.name for one in fits(self.domain) if one and one.usual] if asked == "auto" else [asked]
        made = [build(name, self.domain, epsilon=budget.epsilon) for name in names]
        return next(filter(self.suits, made), made[0])

    def coded(self, answers: Answers, rng: np.random.Generator) -> npt.NDArray[Any]:
        """Return the pairs of each person, filled up with -1."""
        options = _with_any(answers[self.second.name], self._columns - 1)
        given = answers[self.first.name]
        if self._several:
            rows = _with_any(given, self._rows - 1)
        else:
            own = signs(given, self.first.domain, rng) if self.first.kind == "number" else given.astype(np.int64)
            rows = own[:, None]
        pairs = rows[:, :, None] * self._columns + options[:, None, :]
        pairs = np.where((rows < 0)[:, :, None] | (options < 0)[:, None, :], -1, pairs).reshape(len(rows), -1)
        pairs[pairs == self.domain.size] = -1  # any with any
        pairs[::-1].sort(axis=1)
        return pairs[:, ::-1][:, : self.domain.most]

    def predict(self, mechanism: Any, users: int) -> FloatArray:
        """Return the errors where rows are as frequent, and half of what may be chosen is."""
        rows = np.full(self._rows, 1 / self._rows)
        if self._several:
            rows = np.append(np.full(self._rows - 1, self.first.domain.most / 2 / len(self.first.labels)), 1.0)
        options = np.append(np.full(self._columns - 1, self.second.domain.most / 2 / len(self.second.labels)), 1.0)
        shares = np.outer(rows, options).ravel()[: self.domain.size]
        found = self.read(mechanism, expected_selections(mechanism, shares), None)
        return np.asarray(np.concatenate([one.std_error for one in found]) * math.sqrt(PLANNED / users))

    def read(self, mechanism: Any, sums: IntArray, made: Estimate | None) -> tuple[Estimate, ...]:
        """Return the estimates of each question, and of both together."""
        users = int(sums[0, 0])
        found = Aggregate(mechanism, users, *sums).estimate()
        supports = Supports(mechanism.readout.offset[0], mechanism.readout.scale[0], 0, mechanism.supported[1])
        places = np.arange(self._rows * self._columns).reshape(self._rows, -1)
        table = _Table(found, users, mechanism.covariances, supports, places)
        return tuple(self._told(one, table) for one in self.questions)

    def _told(self, one: Topic, table: _Table) -> Estimate:
        """Return what the table says of one question."""
        places, first = table.places, self.first.domain
        if isinstance(one, ChosenNumber):
            if self._several:
                own = places[:-1, -1] if one.name == number_name(self.first.name) else places[-1, :-1]
                return table.bounded_sum(own, one)
            return table.number(one)
        if isinstance(one, Joint):
            if self.first.kind == "number":
                return table.means(places[:, :-1], np.asarray([first.low, first.high]), one)
            own = places[: self._rows - self._several, :-1]
            return table.single((own if one.pair[0] == self.first.name else own.T).ravel(), one)
        if one.name == self.second.name:
            return table.single(places[-1, :-1], one) if self._several else table.sums(places[:, :-1], one)
        if self.first.kind == "number":
            return table.between(int(places[1, -1]), first.low, first.high, one)
        return table.single(places[: self._rows - self._several, -1], one)


@dataclass(frozen=True, eq=False)
class _Table:
    """Estimated shares of pairs, and where each row and column of them stands."""

    found: Estimate
    users: int
    covariances: tuple[float, float]
    supports: Supports
    places: IntArray

    def single(self, own: IntArray, one: Topic) -> Estimate:
        """Return the shares of some pairs as they are."""
        stated: dict[str, Any] = {"names": one.quantities, "ends": self._ends(own)}
        return Estimate(self.found.value[own], self.found.std_error[own], self._counts(own.size), **stated)

    def _ends(self, own: Any) -> tuple[FloatArray, FloatArray]:
        """Return the least and the largest that one report says of some pairs."""
        low, high = self.found.ends or (np.zeros(0), np.zeros(0))
        return low[own], high[own]

    def _cells(self, own: IntArray) -> CellShares:
        """Return the shares of pairs that exclude each other: a person has at most one of them."""
        value, variance = self.found.value[own], self.found.std_error[own] ** 2
        return CellShares(self.users, value, variance, *self.covariances, self.supports)

    def _counts(self, many: int) -> IntArray:
        return np.full(many, self.users, dtype=np.int64)

    def sums(self, places: IntArray, one: Topic) -> Estimate:
        """Return the sum of each column: a person is in one row."""
        each = [self._cells(column).linear(np.ones((1, column.size)), ()) for column in places.T]
        value, error = (np.concatenate([getattr(own, name) for own in each]) for name in ("value", "std_error"))
        low, high = (np.concatenate(side) for side in zip(*(own.ends or () for own in each), strict=True))
        return Estimate(value, error, self._counts(value.size), names=one.quantities, ends=(low, high))

    def means(self, places: IntArray, ends: FloatArray, one: Topic) -> Estimate:
        """Return the mean of a number among those who are in each column, its rows being the ends of the range."""
        each = [self._cells(column).ratio(ends[None], np.ones((1, 2)), ()) for column in places.T]
        over, under = (np.concatenate([getattr(own, name) for own in each]) for name in ("numerator", "denominator"))
        spread = np.concatenate([own.spread for own in each], axis=1)
        low, high = ends.tolist()
        said = each[0].said
        return RatioEstimate.of(over, under, spread, self._counts(over.size), one.quantities, low, high, said)

    def between(self, upper: int, low: float, high: float, one: Topic) -> Estimate:
        """Return the mean of a number from the share of those who were rounded to the upper end."""
        value, error = (array[[upper]] * (high - low) for array in (self.found.value, self.found.std_error))
        said = tuple(low + (high - low) * end for end in self._ends([upper]))
        return Estimate(low + value, error, self._counts(1), low, high, names=one.quantities, ends=(said[0], said[1]))

    def number(self, one: Topic) -> Estimate:
        """Return how many options a person chose: all her pairs but the one with any option."""
        value, error = self.found.value[-1:] - 1, self.found.std_error[-1:]
        low, high = self._ends(slice(-1, None))
        stated: dict[str, Any] = {"names": one.quantities, "ends": (low - 1, high - 1)}
        return Estimate(value, error, self._counts(1), 0.0, one.domain.high, **stated)

    def bounded_sum(self, own: IntArray, one: Topic) -> Estimate:
        """Return a sum over pairs that a person may have several of; its error is at most the sum of their errors."""
        value, error = (array[own].sum(keepdims=True) for array in (self.found.value, self.found.std_error))
        low, high = self.supports.ends(np.ones((1, own.size)))
        stated: dict[str, Any] = {"names": one.quantities, "ends": (low, high)}
        return Estimate(value, error, self._counts(1), 0.0, one.domain.high, **stated)


def _with_any(codes: IntArray, place: int) -> IntArray:
    """Return rows of codes with that of any option at their ends."""
    return np.concatenate([codes, np.full((len(codes), 1), place)], axis=1)


def chosen_pairs(pair: tuple[Question, Question], mine: tuple[Topic, ...], name: str) -> ChosenPairs:
    """Return how several choices are asked together with another question; no other item asks what ``mine`` asks."""
    first, second = pair if pair[1].kind == "choices" else pair[::-1]
    a: Any = first
    b: Any = second
    cells = tuple(f"{one}, {two}" for one in getattr(pair[0], "labels", ()) for two in getattr(pair[1], "labels", ()))
    names = (pair[0].name, pair[1].name)
    if first.kind == "number":
        cells = tuple(f"mean where {b.name} has {label}" for label in b.labels)
        joint = Joint(name, names, cells, a.low, a.high, ((a.high - a.low) / 2,))
    else:
        rows = a.domain.most / 2 / len(a.labels) if a.kind == "choices" else 1 / len(a.labels)
        joint = Joint(name, names, cells, sizes=(rows * b.domain.most / 2 / len(b.labels),), shares=True)
    numbers = tuple(ChosenNumber(number_name(one.name), one.domain.most) for one in mine if one.kind == "choices")
    found = ChosenPairs((*mine, joint, *numbers), a, b)
    if found.domain.size > MOST_PAIRS:
        raise ValueError(
            f"Expected at most {MOST_PAIRS:,} pairs of {a.name!r} and {b.name!r}, got {found.domain.size:,}. "
            "Merge labels."
        )
    return found
