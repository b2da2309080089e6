"""Several options of one list: the share of each, and how many a person chooses on average."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from noisette._validate import FloatArray, IntArray
from noisette.core import Aggregate, Estimate
from noisette.domains import Interval, Selection
from noisette.survey.coding.items import PLANNED, Answers, Direct, Item, Topic
from noisette.survey.coding.joints import ANSWER, answered
from noisette.survey.estimation.ratios import CellShares, DrawnSupports, Supports

if TYPE_CHECKING:
    from noisette.survey.choosing import Allowance
    from noisette.survey.questions import Choices


@dataclass(frozen=True)
class ChosenNumber(Topic):
    """How many options people choose, on average."""

    most: int
    kind: ClassVar[str] = "number of choices"

    @cached_property
    def domain(self) -> Interval:
        """From 0 to the most options that may be chosen."""
        return Interval(0, self.most)

    @property
    def estimated(self) -> tuple[str, ...]:
        """The mean."""
        return ("mean number",)


def number_name(question: str) -> str:
    """Return what the number of options that people chose is called."""
    return f"{question} chosen"


@dataclass(frozen=True)
class ChoicesItem(Direct):
    """A question of several options, from whose reports the mean number of options is read too."""

    question: Choices

    @property
    def questions(self) -> tuple[Topic, ...]:  # type: ignore[override]  # a property is as good
        """The question, and the number of options."""
        return self.question, ChosenNumber(number_name(self.question.name), self.question.domain.most)

    def read(self, mechanism: Any, sums: IntArray, made: Estimate | None) -> tuple[Estimate, ...]:
        """Return the shares, and the number, which the mechanism estimates last."""
        from noisette.survey.coding.sections import piece

        assert made is not None  # the item is counted
        size = self.question.domain.size
        made = replace(made, names=self.cells, count=np.broadcast_to(made.count, made.value.shape))
        shares, number = piece(made, slice(0, size)), piece(made, slice(size, size + 1))
        return shares, replace(number, expected_gain=None)


@dataclass(frozen=True)
class OptionalChoices(Item):
    """Several options that may be left out: no answer is one more option, which nobody chooses with another one."""

    questions: tuple[Topic, ...]
    question: Choices

    @cached_property
    def domain(self) -> Selection:
        """The options, and last no answer."""
        return Selection(len(self.question.labels) + 1, self.question.most)

    @property
    def cells(self) -> tuple[str, ...]:
        """A number for each option, and how many a person has."""
        return tuple(f"{self.name}#{place}" for place in range(self.domain.size + 1))

    def suits(self, mechanism: Any) -> bool:
        """Tell whether it is known how the estimates of two options vary together."""
        return mechanism.covariances is not None or mechanism.share < 1

    def choose(self, budget: Allowance, asked: str, report: int | None) -> Any:
        """Return the mechanism that was asked for, or the one of least variance for which that is known."""
        from noisette.survey.choosing import of_options

        return of_options(self.domain, budget, asked, self.suits, self._share)

    @property
    def _share(self) -> float:
        """The share of people who choose an option, if most answer and choose the most they may, or half of all."""
        return ANSWER * min(self.question.most / len(self.question.labels), 0.5)

    def coded(self, answers: Answers, rng: np.random.Generator) -> npt.NDArray[Any]:
        """Return the codes of the options, or of no answer."""
        return answers[self.name]

    def read(self, mechanism: Any, sums: IntArray, made: Estimate | None) -> tuple[Estimate, ...]:
        """Return the shares among those who answered, how many options these chose, and how many people they are."""
        users, shares = int(sums[0, -1]), slice(self.domain.size)
        found = Aggregate(mechanism, users, *sums).estimate()
        offset, scale = (float(np.ravel(one)[0]) for one in (mechanism.readout.offset, mechanism.readout.scale))
        if mechanism.share < 1:
            supports: Supports = DrawnSupports(offset, scale, 0, self.domain.size)
            covariances = (0.0, 0.0)
        else:
            supports, covariances = Supports(offset, scale, 0, mechanism.supported[1]), mechanism.covariances
        cells = CellShares(users, found.value[shares], found.std_error[shares] ** 2, *covariances, supports)
        number = float(found.value[-1]), float(found.std_error[-1]) ** 2
        own, rate, chosen = self.questions
        share, many = cells.outside(number, float(self.question.most))
        rates = replace(answered(cells, rate), count=found.count[shares][-1:])
        return replace(share, names=own.quantities), rates, replace(many, names=chosen.quantities)

    def predict(self, mechanism: Any, users: int) -> FloatArray:
        """Return the errors if most people answer and choose the most options they may, or half of all."""
        shares = np.append(np.full(self.domain.size - 1, self._share), 1 - ANSWER)
        found = self.read(mechanism, expected_selections(mechanism, shares), None)
        return np.asarray(np.concatenate([one.std_error for one in found]) * math.sqrt(PLANNED / users))


def expected_selections(mechanism: Any, shares: FloatArray) -> IntArray:
    """Return the sums of very many reports about selections of options of these shares, as `expected` does."""
    people = np.append(np.full(shares.size, round(PLANNED * mechanism.share)), PLANNED)
    readout = mechanism.readout
    said = (np.append(shares, shares.sum()) - readout.offset) / readout.scale
    total = np.rint(people * said).astype(np.int64)
    squares = total.copy()
    scale = float(np.ravel(readout.scale)[-1])
    squares[-1] = round(PLANNED * (mechanism.number_variance() / scale**2 + said[-1] ** 2))
    return np.stack([people, total, squares])
