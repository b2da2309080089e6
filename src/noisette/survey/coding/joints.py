"""Answers that are coded into one cell before a mechanism takes it: two questions together, and optional ones.

Several private facts of a person are randomised once, as the cell of all of them, at the whole budget: splitting the
budget among them costs 2 to 45 times the variance. A number is a cell after it was rounded to one end of its range, to
the upper one with the chance that makes the average right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from noisette._validate import FloatArray, IntArray
from noisette.core import Aggregate, Estimate
from noisette.domains import Attributes, Categorical, Interval
from noisette.mechanisms.categorical._base import CountingMechanism
from noisette.survey.coding.items import PLANNED, Answers, Item, Topic, expected
from noisette.survey.estimation.ratios import CellShares, CorrelationEstimate

if TYPE_CHECKING:
    from noisette.survey.choosing import Allowance
    from noisette.survey.questions import Choice, Number, Question

MOST_CELLS = 4096  # of two choices together
ANSWER = 0.8  # the share of people who answer an optional question, where its error is predicted
_CLEAR = 3.0  # standard errors, below which a variance is taken for zero


@dataclass(frozen=True)
class Joint(Topic):
    """What two questions say together: it is read from the reports, and nobody is asked for it by itself."""

    pair: tuple[str, str]
    cells: tuple[str, ...]
    low: float = 0.0
    high: float = 1.0
    sizes: tuple[float, ...] = (1.0,)  # how large a quantity must be to differ from nothing: all, or of each quantity
    shares: bool = False

    @property
    def kind(self) -> str:  # type: ignore[override]
        """Joint answers."""
        return "joint"

    @property
    def tells(self) -> str:  # type: ignore[override]
        """Shares of all pairs of labels, or means."""
        return "shares" if self.shares else "mean"

    @cached_property
    def domain(self) -> Interval:
        """Where the quantities lie."""
        return Interval(self.low, self.high)

    @property
    def estimated(self) -> tuple[str, ...]:
        """The cells, or what is estimated of them."""
        return self.cells

    @property
    def quantities(self) -> tuple[str, ...]:
        """The same with the names of both questions."""
        return tuple(f"{self.name}: {one}" for one in self.cells)

    @property
    def signals(self) -> FloatArray:
        """How large each quantity has to be, to be distinguished from zero."""
        return np.broadcast_to(np.asarray(self.sizes), (len(self.cells),))

    @property
    def spans(self) -> FloatArray:
        """How far each quantity can go: that of numbers is twice the signal."""
        return np.ones(len(self.cells)) if self.shares else 2 * self.signals


@dataclass(frozen=True)
class ResponseRate(Topic):
    """The share of people who answered an optional question."""

    kind: ClassVar[str] = "rate"

    @cached_property
    def domain(self) -> Interval:
        """A share."""
        return Interval(0, 1)

    @property
    def estimated(self) -> tuple[str, ...]:
        """The rate."""
        return ("response rate",)


def rate_name(question: str) -> str:
    """Return what the response rate of a question is called."""
    return f"{question} answered"


def joint_name(pair: Sequence[str]) -> str:
    """Return what two questions together are called."""
    return " × ".join(pair)


class PairItem(Item):
    """Two questions that are asked together: among what is read is a `Joint` of them."""

    @property
    def _joint(self) -> Joint:
        return next(one for one in self.questions if isinstance(one, Joint))

    @property
    def name(self) -> str:
        """What both are called together."""
        return self._joint.name

    @property
    def asked(self) -> tuple[str, ...]:
        """Names of both."""
        return self._joint.pair


@dataclass(frozen=True)
class Coded(Item):
    """Cells that one report supports or not; ``questions`` are read from their shares."""

    questions: tuple[Topic, ...]

    @property
    def shares(self) -> FloatArray:
        """Shares of the cells for which errors are predicted."""
        raise NotImplementedError

    @cached_property
    def domain(self) -> Any:
        """The cells."""
        return Categorical(self.shares.size)

    @property
    def cells(self) -> tuple[str, ...]:
        """A number for each cell."""
        return tuple(f"{self.name}#{place}" for place in range(self.shares.size))

    def suits(self, mechanism: Any) -> bool:
        """Tell whether it is known how the estimates of two cells vary together."""
        return covarying(mechanism)

    def predict(self, mechanism: Any, users: int) -> FloatArray:
        """Return the errors of the expected sums of very many people, scaled to ``users``."""
        found = self.read(mechanism, expected(mechanism, self.shares), None)
        return np.asarray(np.concatenate([one.std_error for one in found]) * math.sqrt(PLANNED / users))


def covarying(mechanism: Any) -> bool:
    """Tell whether reports support categories, and it is known how the estimates of two of them vary together."""
    return isinstance(mechanism, CountingMechanism) and mechanism.covariances is not None


def signs(values: npt.NDArray[Any], domain: Interval, rng: np.random.Generator) -> IntArray:
    """Round each number to an end of its range, 1 for the upper one, so that the average stays what it is."""
    chance = (values - domain.low) / (domain.high - domain.low)
    return np.asarray(rng.random(values.shape) < chance, dtype=np.int64)


def _rows(*groups: npt.ArrayLike) -> FloatArray:
    """Return rows of weights."""
    return np.stack([np.asarray(one, dtype=np.float64) for one in groups])


@dataclass(frozen=True)
class Crosstab(PairItem, Coded):
    """Two choices: the cell of both labels."""

    first: Choice
    second: Choice

    @property
    def _sizes(self) -> tuple[int, int]:
        return len(self.first.labels), len(self.second.labels)

    @cached_property
    def shares(self) -> FloatArray:
        """Even shares."""
        size = math.prod(self._sizes)
        return np.full(size, 1 / size)

    def coded(self, answers: Answers, rng: np.random.Generator) -> npt.NDArray[Any]:
        """Return the place of the pair."""
        return np.asarray(answers[self.first.name] * self._sizes[1] + answers[self.second.name])

    def read(self, mechanism: Any, sums: IntArray, made: Estimate | None) -> tuple[Estimate, ...]:
        """Return shares of the labels of each choice, as sums over the other, and of all pairs."""
        cells, (rows, columns) = CellShares.of(mechanism, sums), self._sizes
        weights = {
            self.first.name: np.repeat(np.eye(rows), columns, axis=1),
            self.second.name: np.tile(np.eye(columns), (1, rows)),
        }
        found = []
        for one in self.questions:
            if one.name in weights:
                found.append(cells.linear(weights[one.name], one.quantities))
            else:
                found.append(cells.single(one.quantities))
        return tuple(found)


@dataclass(frozen=True)
class Within(PairItem, Coded):
    """A choice and a number: the label, and the end of the range to which the number is rounded."""

    choice: Choice
    number: Number

    @cached_property
    def shares(self) -> FloatArray:
        """Even shares, and a mean in the middle of the range."""
        size = 2 * len(self.choice.labels)
        return np.full(size, 1 / size)

    def coded(self, answers: Answers, rng: np.random.Generator) -> npt.NDArray[Any]:
        """Return the place of label and end."""
        rounded = signs(answers[self.number.name], self.number.domain, rng)
        return np.asarray(2 * answers[self.choice.name].astype(np.int64) + rounded)

    def differences(self, mechanism: Any, sums: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return the difference b - a of the means within any two labels, and its standard error.

        Formula: the delta method, on the shares of cells that both means are made of.
        """
        cells, size = CellShares.of(mechanism, sums), len(self.choice.labels)
        within = np.repeat(np.eye(size), 2, axis=1)
        ends = np.tile([self.number.domain.low, self.number.domain.high], size)
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = cells.sums(within * ends) / cells.sums(within)
            slope = (within * ends - mean[:, None] * within) / cells.sums(within)[:, None]
            both = slope[None] - slope[:, None]
            return mean - mean[:, None], np.sqrt(np.maximum(cells.covariance(both, both), 0.0))

    def read(self, mechanism: Any, sums: IntArray, made: Estimate | None) -> tuple[Estimate, ...]:
        """Return shares of the labels, the mean of the number, and its mean within each label."""
        cells, size = CellShares.of(mechanism, sums), len(self.choice.labels)
        low, high = self.number.domain.low, self.number.domain.high
        within, ends = np.repeat(np.eye(size), 2, axis=1), np.tile([low, high], size)
        found: list[Estimate] = []
        for one in self.questions:
            if one.name == self.choice.name:
                found.append(cells.linear(within, one.quantities))
            elif one.name == self.number.name:
                found.append(cells.linear(ends[None], one.quantities, low, high))
            else:
                found.append(cells.ratio(within * ends, within, one.quantities, low, high))
        return tuple(found)


@dataclass(frozen=True)
class OptionalNumber(Coded):
    """A number that may be left out: the end to which it is rounded, or none."""

    number: Number

    @cached_property
    def shares(self) -> FloatArray:
        """Most people answer, and the mean is in the middle of the range."""
        return np.asarray([ANSWER / 2, ANSWER / 2, 1 - ANSWER])

    def coded(self, answers: Answers, rng: np.random.Generator) -> npt.NDArray[Any]:
        """Return the end, 2 where there is no answer."""
        values = answers[self.number.name]
        silent = np.isnan(values)
        return np.where(silent, 2, signs(np.where(silent, self.number.low, values), self.number.domain, rng))

    def read(self, mechanism: Any, sums: IntArray, made: Estimate | None) -> tuple[Estimate, ...]:
        """Return the mean among those who answered, and how many they are."""
        cells, (low, high) = CellShares.of(mechanism, sums), (self.number.low, self.number.high)
        mean, rate = self.questions
        found = cells.ratio(_rows([low, high, 0]), _rows([1, 1, 0]), mean.quantities, low, high)
        return found, answered(cells, rate)


@dataclass(frozen=True)
class OptionalChoice(Coded):
    """A choice that may be left out: no answer is one more label."""

    choice: Choice

    @cached_property
    def shares(self) -> FloatArray:
        """Most people answer, and all labels are as frequent."""
        size = len(self.choice.labels)
        return np.asarray([ANSWER / size] * size + [1 - ANSWER])

    def coded(self, answers: Answers, rng: np.random.Generator) -> npt.NDArray[Any]:
        """Return the code of the label, or the one after all labels."""
        return answers[self.choice.name]

    def read(self, mechanism: Any, sums: IntArray, made: Estimate | None) -> tuple[Estimate, ...]:
        """Return the shares among those who answered, and how many they are."""
        cells = CellShares.of(mechanism, sums)
        shares, rate = self.questions
        return cells.among(1, shares.quantities), answered(cells, rate)


def answered(cells: CellShares, rate: Topic) -> Estimate:
    """Return the share of people who are not in the last cell, and so answered."""
    low, high = cells.single(()).ends or (0.0, 1.0)
    stated: dict[str, Any] = {"names": rate.quantities, "ends": (1 - high, 1 - low)}
    error, count = np.sqrt(cells.variance[-1:]), np.asarray([cells.users])
    return Estimate(1 - cells.value[-1:], error, count, 0.0, 1.0, **stated)


@dataclass(frozen=True)
class Correlated(PairItem):
    """Two numbers: some people report the cell of both rounded to ends of their ranges, others a square.

    In units of half its range about the middle, a person's numbers are u and v. The means of u, v and u v follow from
    the cells. One third of the people report the cell, one third u^2 and one third v^2.
    """

    questions: tuple[Topic, ...]
    first: Number
    second: Number

    @cached_property
    def domain(self) -> Any:
        """A cell and two squares; a person reports one of the three."""
        return Attributes((4, Interval(0, 1), Interval(0, 1)), names=("cell", "first", "second"))

    @property
    def cells(self) -> tuple[str, ...]:
        """Six quantities."""
        return tuple(f"{self.name}#{place}" for place in range(6))

    def coded(self, answers: Answers, rng: np.random.Generator) -> npt.NDArray[Any]:
        """Return the cell and both squares."""
        pair = [(answers[one.name], one.domain) for one in (self.first, self.second)]
        above, right = (signs(values, domain, rng) for values, domain in pair)
        squares = [((2 * x - domain.low - domain.high) / (domain.high - domain.low)) ** 2 for x, domain in pair]
        return np.stack([2.0 * above + right, *(np.clip(one, 0, 1) for one in squares)], axis=-1)

    def choose(self, budget: Allowance, asked: str, report: int | None) -> Any:
        """Return the mechanisms of least error; each person answers through one of them."""
        from noisette.survey.choosing import one_of

        return one_of(self.domain, budget, asked)

    def predict(self, mechanism: Any, users: int) -> FloatArray:
        """Return the errors for numbers that are uncorrelated and evenly spread, from expected sums."""
        from noisette.prediction import deviation

        first, *squares = mechanism.inner_mechanisms
        cells = CellShares.of(first, expected(first, np.full(4, 0.25)))
        values = np.linspace(0, 1, 65) ** 2
        errors = [float(deviation(one, users=PLANNED, values=values).std) for one in squares]
        found = self._told(cells, np.full(2, 1 / 3), np.square(errors), PLANNED)
        return np.asarray(np.concatenate([one.std_error for one in found]) * math.sqrt(3 * PLANNED / users))

    def read(self, mechanism: Any, sums: IntArray, made: Estimate | None) -> tuple[Estimate, ...]:
        """Return both means, the correlation and the covariance."""
        count = int(sums[0, :1].sum() + sums[0, 4:].sum())
        cells = CellShares.of(mechanism.inner_mechanisms[0], sums[:, :4])
        squares = Aggregate(mechanism, count, *sums).estimate()
        return self._told(cells, squares.value[4:], squares.std_error[4:] ** 2, count, squares)

    def _told(
        self, cells: CellShares, squares: FloatArray, errors: FloatArray, count: int, made: Estimate | None = None
    ) -> tuple[Estimate, ...]:
        """Return the estimates from the cells, and the mean squares with their variances.

        Formula: with c = E[uv] - E[u]E[v] and s_u = E[u^2] - E[u]^2, both corrected for the noise that products of
        estimates have, the correlation is c / sqrt(s_u s_v); errors by the delta method. Where a variance s is not
        three standard errors above zero no correlation is stated, but its interval is, see `CorrelationEstimate`.
        """
        above, right = np.asarray([-1.0, -1, 1, 1]), np.asarray([-1.0, 1, -1, 1])
        u, v, uv = cells.sums(_rows(above, right, above * right))
        own = cells.covariance(_rows(above, right), _rows(above, right))
        both = float(cells.covariance(above, right))
        spread = squares - np.asarray([u, v]) ** 2 + own
        covariance = uv - u * v + both
        half = [(one.domain.high - one.domain.low) / 2 for one in (self.first, self.second)]
        middle = [(one.domain.high + one.domain.low) / 2 for one in (self.first, self.second)]
        slopes = _rows(above * right - v * above - u * right, -2 * u * above, -2 * v * right)
        first, second = np.repeat(slopes, 3, axis=0), np.tile(slopes, (3, 1))
        matrix = cells.covariance(first, second).reshape(3, 3) + np.diag([0.0, *errors])
        with np.errstate(divide="ignore", invalid="ignore"):
            scale = math.sqrt(spread[0] * spread[1]) if np.all(spread > 0) else math.nan
            correlation = covariance / scale
            bend = np.asarray([1 / scale, *(-correlation / (2 * spread))])
            variance = bend @ matrix @ bend
            unclear = np.any(spread <= _CLEAR * np.sqrt(np.diag(matrix)[1:]))
        if unclear or not math.isfinite(variance):
            correlation, variance = math.nan, math.inf
        moments = np.asarray([covariance, *spread])
        size = half[0] * half[1]
        found: list[Estimate] = []
        for one in self.questions:
            for place, number in enumerate((self.first, self.second)):
                if one.name == number.name:
                    weights = (middle[place] + half[place] * (above, right)[place])[None]
                    found.append(cells.linear(weights, one.quantities, number.low, number.high))
            if one.name not in (self.first.name, self.second.name):
                value = np.asarray([correlation, covariance * size if math.isfinite(both) else math.nan])
                error = np.sqrt(np.maximum([variance, matrix[0, 0] * size**2], 0.0))
                counts, ends = np.asarray([count, cells.users]), np.asarray([1.0, size])
                stated: dict[str, Any] = {"names": one.quantities, "moments": moments, "spread": matrix}
                if made is not None:
                    stated |= {"cells": cells, "slopes": slopes, "squares": made, "size": size}
                found.append(CorrelationEstimate(value, error, counts, -ends, ends, **stated))
        return tuple(found)


def joint_item(first: Question, second: Question, left: set[str]) -> Item:
    """Return how two questions are asked together; those in ``left`` have no other estimate so far."""
    pair, kinds = (first, second), {first.kind, second.kind}
    for one in pair:
        fit = one.kind in ("category", "choices") or (one.kind == "number" and getattr(one, "want", "") == "mean")
        if not fit or one.optional:
            raise ValueError(
                f"Expected joint={[one.name for one in pair]} to be choices, and numbers with want='mean', that are "
                f"not optional: {one.name!r} is not. Give a choice a label such as 'no answer' in place of optional."
            )
    if first.kind != second.kind and first.kind == "number":
        first, second = second, first
    name = joint_name([one.name for one in pair])
    names = (pair[0].name, pair[1].name)
    mine = tuple(one for one in pair if one.name in left)
    if "choices" in kinds:
        from noisette.survey.coding.chosen_pairs import chosen_pairs

        return chosen_pairs(pair, mine, name)
    a: Any = first
    b: Any = second
    if kinds == {"category"}:
        size = len(a.labels) * len(b.labels)
        if size > MOST_CELLS:
            raise ValueError(
                f"Expected at most {MOST_CELLS:,} pairs of {a.name!r} and {b.name!r}, got {size:,}. Merge labels."
            )
        cells = tuple(f"{one}, {two}" for one in a.labels for two in b.labels)
        return Crosstab((*mine, Joint(name, names, cells, sizes=(1 / size,), shares=True)), a, b)
    if kinds == {"number"}:
        scale = (a.high - a.low) * (b.high - b.low) / 4
        cells = ("correlation", "covariance")
        return Correlated((*mine, Joint(name, names, cells, -1.0, 1.0, (1.0, scale))), a, b)
    cells = tuple(f"mean where {a.name}={label}" for label in a.labels)
    return Within((*mine, Joint(name, names, cells, b.low, b.high, ((b.high - b.low) / 2,))), a, b)
