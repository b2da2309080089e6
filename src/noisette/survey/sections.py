"""Sections of a survey: the questions that one mechanism answers together, and the reports about them.

All numbers and choices are one section; each vector, tensor and graded number is one by itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from noisette._random import Rng
from noisette.core import Aggregate
from noisette.domains import Attributes, Box, TensorDomain
from noisette.guarantees import Guarantee
from noisette.mechanisms import from_spec
from noisette.mechanisms.vector.attributes import SampledAttributes
from noisette.mechanisms.vector.sampled import Reports, Sampled
from noisette.survey.questions import Question


@dataclass(frozen=True, eq=False)
class Section:
    """Some questions and the mechanism that answers them together; its reports are arrays of one shape and type.

    A report of `Sampled` becomes rows of a dimension and its value. A tensor may be collected as a long vector.
    """

    questions: tuple[Question, ...]
    mechanism: Any

    def __post_init__(self) -> None:
        wanted, domain = self.domain, self.mechanism.domain
        if domain.spec() != wanted.spec() and domain.spec() != self._flat_spec:
            raise ValueError(f"Expected a mechanism for {wanted}, got one for {domain}.")

    @property
    def domain(self) -> Any:
        """What the mechanism is asked about: the one question, or the record of all."""
        return domain_of(self.questions)

    @property
    def _flat_spec(self) -> Any:
        first = self.questions[0].domain
        return flat(first).spec() if isinstance(first, TensorDomain) else None

    @property
    def quantities(self) -> tuple[str, ...]:
        """Names of what is estimated."""
        return tuple(name for one in self.questions for name in one.quantities)

    def inner(self, place: int) -> Any:
        """Return the mechanism of one question: that of the section, or its own in a record."""
        own = self.mechanism
        return own.inner_mechanisms[place] if isinstance(own, SampledAttributes) else own

    @property
    def _layout(self) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Shape and type of one report: of `Sampled` rows of a dimension and its value."""
        mechanism = self.mechanism
        if isinstance(mechanism, Sampled):
            return (mechanism.report or 0, 2), np.dtype("<f8")
        return tuple(mechanism.report_shape), np.dtype(mechanism.report_dtype).newbyteorder("<")

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one report."""
        return self._layout[0]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the numbers in a report, little-endian."""
        return self._layout[1]

    def privatize(self, coded: Sequence[npt.NDArray[Any]], *, rng: Rng = None) -> npt.NDArray[Any]:
        """Return a report for each user; each question has its coded values along a first axis."""
        users = len(coded[0])
        alone = len(self.questions) == 1
        values = coded[0].reshape(users, *self.mechanism.domain.shape) if alone else np.stack(coded, axis=1)
        sent = self.mechanism.privatize(values, rng=rng)
        if isinstance(sent, Reports):
            sent = np.stack([sent.indices, sent.values], axis=-1)
        return np.asarray(sent)

    def reports(self, rows: npt.NDArray[Any]) -> Any:
        """Return rows as the mechanism's own reports."""
        if not isinstance(self.mechanism, Sampled):
            return np.ascontiguousarray(rows).astype(rows.dtype.newbyteorder("="), copy=False)
        index = rows[..., 0]
        if not np.all((index == np.floor(index)) & (np.abs(index) < 2**31)):
            raise ValueError(f"Report is outside the support: {self.mechanism.support}.")
        return Reports(index.astype(np.int32), np.ascontiguousarray(rows[..., 1]))

    def aggregate(self, rows: npt.NDArray[Any]) -> Aggregate:
        """Sum reports, refusing those that the mechanism cannot have sent."""
        made: Aggregate = self.mechanism.aggregate(self.reports(rows))
        return made

    @property
    def sums(self) -> int:
        """How many sums of each kind an aggregate has: one for each quantity, or for each kind of report."""
        weights = self.mechanism.readout.weights
        return len(self.quantities) if weights is None else int(weights.size)


@dataclass(frozen=True, eq=False)
class Together:
    """Several sections that every user answers, each with a budget of its own; the budgets add up."""

    sections: tuple[Section, ...]

    name = "together"

    @property
    def guarantee(self) -> Guarantee:
        """Return the guarantee of one user's whole answer, by composition."""
        each = [own.mechanism.guarantee for own in self.sections]
        return Guarantee(math.fsum(one.epsilon for one in each), math.fsum(one.delta for one in each))

    def spec(self) -> dict[str, Any]:
        """Return a JSON description."""
        return {"mechanism": self.name, "parts": [own.mechanism.spec() for own in self.sections]}


def grouped(questions: Sequence[Question]) -> list[tuple[Question, ...]]:
    """Return the questions that share a mechanism: all plain ones first, then each other one by itself."""
    plain = tuple(one for one in questions if one.plain)
    return ([plain] if plain else []) + [(one,) for one in questions if not one.plain]


def read_sections(questions: Sequence[Question], spec: Any) -> tuple[Section, ...]:
    """Build the sections again from the description of their mechanisms."""
    asked = grouped(questions)
    specs = spec.get("parts") if isinstance(spec, Mapping) and spec.get("mechanism") == Together.name else [spec]
    if not isinstance(specs, list) or len(specs) != len(asked):
        raise ValueError(f"Expected the mechanisms of {len(asked)} sections, got another number.")
    return tuple(Section(own, from_spec(one)) for own, one in zip(asked, specs, strict=True))


def domain_of(questions: tuple[Question, ...]) -> Any:
    """Return the domain of one question, or of the record of several."""
    if len(questions) == 1:
        return questions[0].domain
    return Attributes(tuple(one.domain for one in questions), names=tuple(one.name for one in questions))


def flat(domain: TensorDomain) -> Box:
    """Return tensors as vectors of their entries, row by row."""
    return Box(math.prod(domain.dims), domain.low, domain.high)
