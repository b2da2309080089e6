"""Several options of one list: the share of each, and how many a person chooses on average."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from noisette._validate import IntArray
from noisette.core import Estimate
from noisette.domains import Interval
from noisette.survey.coding.items import Direct, Topic

if TYPE_CHECKING:
    from noisette.survey.questions import Choices


@dataclass(frozen=True)
class ChosenNumber(Topic):
    """How many options people choose, on average."""

    most: int
    kind: ClassVar[str] = "number of choices"

    @cached_property
    def domain(self) -> Interval:
        """From none to as many as may be chosen."""
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
        return self.question, ChosenNumber(number_name(self.name), self.question.domain.most)

    @property
    def name(self) -> str:
        """The name of the question."""
        return self.question.name

    def read(self, mechanism: Any, sums: IntArray, made: Estimate | None) -> tuple[Estimate, ...]:
        """Return the shares, and the number, which the mechanism estimates last."""
        from noisette.survey.coding.sections import piece

        assert made is not None  # the item is counted
        size = self.question.domain.size
        made = replace(made, names=self.cells, count=np.broadcast_to(made.count, made.value.shape))
        shares, number = piece(made, slice(0, size)), piece(made, slice(size, size + 1))
        return shares, replace(number, expected_gain=None)
