"""What is really asked of a person: an item codes answers into what a mechanism takes, and reads sums of reports back.

Most questions are asked as they are. Others are coded first: several answers into one cell of all their combinations, a
number into one of two signs, a value into one level of a hierarchy. Code that carries reports in a file, over HTTP or
in a database needs to know nothing of this: it sees a mechanism, a row of numbers, and a vector of integers that adds
up.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from noisette._validate import FloatArray, IntArray
from noisette.core import Estimate
from noisette.domains import Categorical, Interval, L2Ball

if TYPE_CHECKING:
    from noisette.survey.choosing import Allowance
    from noisette.survey.questions import Question


@dataclass(frozen=True)
class Topic(ABC):
    """A topic of the results: a question that people were asked, or what follows from several.

    ``tells`` names what is estimated: "mean", "shares" or "texts".
    """

    name: str
    kind: ClassVar[str]
    tells: ClassVar[str] = "mean"

    @cached_property
    @abstractmethod
    def domain(self) -> Any:
        """Where answers, or the quantities that are estimated, lie."""

    @property
    def wants_distribution(self) -> bool:
        """Whether more than a mean or shares is wanted: quantiles, a histogram."""
        return False

    @property
    def estimated(self) -> tuple[str, ...]:
        """What is estimated, within the question."""
        places = np.ndindex(*self.domain.shape)
        return tuple(f"mean[{','.join(map(str, place))}]" if place else "mean" for place in places)

    @property
    def quantities(self) -> tuple[str, ...]:
        """What is estimated, with the name of the question."""
        places = np.ndindex(*self.domain.shape)
        return tuple(f"{self.name}[{','.join(map(str, place))}]" if place else self.name for place in places)

    @property
    def signal(self) -> float:
        """How far a quantity can be from what one would say without asking, as root mean square."""
        return float(np.max(np.subtract(self.domain.high, self.domain.low))) / 2

    @property
    def signals(self) -> FloatArray:
        """The signal of each quantity."""
        return np.full(len(self.quantities), self.signal)

    @property
    def spans(self) -> FloatArray:
        """How far each quantity can go."""
        domain = self.domain
        wide = 2 * domain.radius if isinstance(domain, L2Ball) else None
        span = 1.0 if self.tells in ("shares", "texts") else wide or float(np.max(np.subtract(domain.high, domain.low)))
        return np.full(len(self.quantities), span)


Answers = Mapping[str, npt.NDArray[Any]]  # of each question by its name, coded, with people along the first axis


class Item(ABC):
    """One thing that is asked through a mechanism.

    ``questions`` are what is read from it. Items that are ``plain``, a number or a category, are sampled and planned
    together in one record; every other item is a section of its own. Reports add up to a count, a total and a sum of
    squares for each of the mechanism's quantities, unless ``counted`` is False: then the item has ``size`` sums of its
    own, made by ``tally``.
    """

    questions: tuple[Topic, ...]
    counted: ClassVar[bool] = True

    @property
    @abstractmethod
    def domain(self) -> Any:
        """What the mechanism is asked about."""

    @abstractmethod
    def coded(self, answers: Answers, rng: np.random.Generator) -> npt.NDArray[Any]:
        """Return the values that the mechanism takes, people along the first axis; a coding may draw at random."""

    @abstractmethod
    def read(self, mechanism: Any, sums: IntArray, made: Estimate | None) -> tuple[Estimate, ...]:
        """Return an estimate for each of the questions.

        ``sums`` has rows of counts, totals and squares, and ``made`` is the mechanism's own estimate, enhanced if that
        was asked for. An item with sums of its own gets these, and None for ``made``.
        """

    @property
    def plain(self) -> bool:
        """Whether the item is a number or a category, which a record takes."""
        return isinstance(self.domain, Interval | Categorical)

    @property
    def unit(self) -> Any:
        """The domain with its range scaled to one, in which plain items are weighed against each other."""
        return self.domain

    @property
    def name(self) -> str:
        """What the item is called in messages and in records."""
        return self.questions[0].name

    @property
    def asked(self) -> tuple[str, ...]:
        """Names of the questions whose answers it holds."""
        return (self.questions[0].name,)

    @property
    def weight(self) -> int:
        """How many answers of a person it holds; its share of the people, or of the budget, is in proportion."""
        return len(self.asked)

    @property
    def wants_distribution(self) -> bool:
        """Whether the mechanism has to estimate more than a mean."""
        return False

    @property
    def cells(self) -> tuple[str, ...]:
        """Names of what the mechanism itself estimates."""
        return tuple(name for one in self.questions for name in one.quantities)

    @property
    def width(self) -> int:
        """How many `cells` there are."""
        return len(self.cells)

    def suits(self, mechanism: Any) -> bool:
        """Tell whether sums of this mechanism's reports can be read."""
        return True

    def choose(self, budget: Allowance, asked: str, report: int | None) -> Any:
        """Return the mechanism of an item that is not plain: the one that was asked for, or the best one."""
        raise NotImplementedError

    def size(self, mechanism: Any) -> int:
        """Return how many sums the item has."""
        weights = mechanism.readout.weights
        return 3 * (self.width if weights is None else int(weights.size))

    def tally(self, mechanism: Any, reports: Any) -> IntArray:
        """Sum reports, refusing those that the mechanism cannot have sent; of a counted item only to check them."""
        made = mechanism.aggregate(reports)
        return np.stack([made.count, made.total, made.squares]).ravel()

    def planned_name(self, mechanism: Any, users: int, quantity: str) -> str:
        """Return what a plan calls a quantity when ``users`` people answer this item."""
        return quantity

    def predict(self, mechanism: Any, users: int) -> FloatArray:
        """Return the standard error of each quantity of the questions, if ``users`` people answer this item."""
        from noisette.prediction import deviation

        std = np.asarray(deviation(mechanism, users=users).std, dtype=np.float64)
        return np.broadcast_to(std, (sum(len(one.quantities) for one in self.questions),))


PLANNED = 10_000_000  # people for whom errors are predicted, before they are scaled


def expected(mechanism: Any, shares: FloatArray) -> IntArray:
    """Return the sums of as many reports about categories of these shares: rows of counts, totals and squares."""
    total = np.rint(PLANNED * (shares - mechanism.readout.offset) / mechanism.readout.scale).astype(np.int64)
    return np.stack([np.full(total.size, PLANNED), total, total])


@dataclass(frozen=True)
class Direct(Item):
    """A question that is asked as it is: its answer is what the mechanism takes."""

    question: Question

    @property
    def questions(self) -> tuple[Question, ...]:  # type: ignore[override]  # a property is as good
        """The question."""
        return (self.question,)

    @property
    def domain(self) -> Any:
        """The domain of the question."""
        return self.question.domain

    @property
    def cells(self) -> tuple[str, ...]:
        """The quantities of all that is read: those of the question itself where that is all."""
        return super().cells if len(self.questions) > 1 else self.question.quantities

    @property
    def width(self) -> int:
        """How many of them there are, without naming them all."""
        return sum(len(one.estimated) for one in self.questions)

    @property
    def plain(self) -> bool:
        """Whether the question is plain: a graded number is not, though it is one."""
        return self.question.plain

    @property
    def unit(self) -> Any:
        """The unit of the question."""
        return self.question.unit

    def choose(self, budget: Allowance, asked: str, report: int | None) -> Any:
        """Return the mechanism that the domain has."""
        from noisette.survey.choosing import whole

        return whole(self.question, budget, asked, report)

    @property
    def wants_distribution(self) -> bool:
        """Whether the question wants a distribution."""
        return self.question.wants_distribution and self.question.kind == "number"

    def coded(self, answers: Answers, rng: np.random.Generator) -> npt.NDArray[Any]:
        """Return the answers."""
        return answers[self.question.name]

    def read(self, mechanism: Any, sums: IntArray, made: Estimate | None) -> tuple[Estimate, ...]:
        """Return the mechanism's own estimate."""
        assert made is not None  # the item is counted
        return (replace(made, names=self.question.quantities, count=np.broadcast_to(made.count, made.value.shape)),)
