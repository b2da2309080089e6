"""Sections of a survey: the items that one mechanism answers together, and the reports about them.

All numbers and categories form one section, a record; every other item is a section of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from noisette import _validate
from noisette._random import Rng, generator
from noisette._validate import FloatArray, IntArray
from noisette.core import Aggregate, Estimate, PubliclyDrawn
from noisette.domains import Attributes, Box, Categorical, TensorDomain
from noisette.guarantees import Guarantee
from noisette.mechanisms import from_spec
from noisette.mechanisms.vector.attributes import record_law
from noisette.mechanisms.vector.sampled import Reports, Sampled, total_of
from noisette.survey.coding.items import Answers, Item, Topic


@dataclass(frozen=True, eq=False)
class Section:
    """Some items and the mechanism that answers them together; its reports are arrays of one shape and type.

    A report of `Sampled` becomes rows of a dimension and its value. A tensor may be collected as a long vector.
    """

    items: tuple[Item, ...]
    mechanism: Any

    def __post_init__(self) -> None:
        wanted, domain = self.domain, self.mechanism.domain
        if domain.spec() != wanted.spec() and domain.spec() != self._flat_spec:
            raise ValueError(f"Expected a mechanism for {wanted}, got one for {domain}.")

    @property
    def domain(self) -> Any:
        """What the mechanism is asked about: the one item, or the record of all."""
        return domain_of(self.items)

    @property
    def _flat_spec(self) -> Any:
        first = self.items[0].domain
        return flat(first).spec() if isinstance(first, TensorDomain) else None

    @property
    def questions(self) -> tuple[Topic, ...]:
        """What is read from the section's reports."""
        return tuple(one for item in self.items for one in item.questions)

    @property
    def quantities(self) -> tuple[str, ...]:
        """Names of what is estimated."""
        return tuple(name for one in self.questions for name in one.quantities)

    @property
    def weight(self) -> int:
        """How many answers of a person the section holds."""
        return sum(item.weight for item in self.items)

    def inner(self, place: int) -> Any:
        """Return the mechanism of one item: that of the section, or its own in a record."""
        return self.mechanism.inner_mechanisms[place] if len(self.items) > 1 else self.mechanism

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

    def draw(self, users: int, rng: Any) -> IntArray | None:
        """Draw the public part of the reports of ``users`` people; None where reports have no public part."""
        return self.mechanism.draw(users, rng) if isinstance(self.mechanism, PubliclyDrawn) else None

    def privatize(self, answers: Answers, *, rng: Rng = None, drawn: IntArray | None = None) -> npt.NDArray[Any]:
        """Return a report for each user from the coded answers to all questions; ``drawn`` is public where given."""
        source = generator(rng)
        coded = [item.coded(answers, source) for item in self.items]
        alone = len(coded) == 1
        values = coded[0].reshape(-1, *self.mechanism.domain.shape) if alone else np.stack(coded, axis=1)
        if drawn is None:
            sent = self.mechanism.privatize(values, rng=source)
        else:
            sent = self.mechanism.privatize_drawn(values, drawn, rng=source)
        if isinstance(sent, Reports):
            sent = np.stack([sent.indices, sent.values], axis=-1)
        return np.asarray(sent)

    def reports(self, rows: npt.NDArray[Any]) -> Any:
        """Return rows as the mechanism's own reports."""
        if not isinstance(self.mechanism, Sampled):
            return np.ascontiguousarray(rows).astype(rows.dtype.newbyteorder("="), copy=False)
        index = rows[..., 0]
        if not np.all((index == np.floor(index)) & (np.abs(index) < 2**31)):
            raise ValueError(
                f"Report is outside the support: {self.mechanism.support}. Give reports of this very survey."
            )
        return Reports(index.astype(np.int32), np.ascontiguousarray(rows[..., 1]))

    @property
    def counted(self) -> bool:
        """Whether reports add up to count, total and squares of what the mechanism estimates."""
        return self.items[0].counted

    @property
    def size(self) -> int:
        """How many sums the section has."""
        return sum(item.size(self.inner(place)) for place, item in enumerate(self.items))

    def tally(self, rows: npt.NDArray[Any], each: Callable[[int, npt.NDArray[Any]], None] | None = None) -> IntArray:
        """Sum reports, refusing those that the mechanism cannot have sent.

        Of a record ``each`` is called with the place of each item and the reports about it.
        """
        if each is not None:
            made = self.mechanism.tally(self.reports(rows), each)
            return np.stack([made.count, made.total, made.squares]).ravel()
        return self.items[0].tally(self.mechanism, self.reports(rows))  # of a record all items are counted alike

    def aggregate(self, sums: IntArray, users: int) -> Aggregate:
        """Return the mechanism's own aggregate from the sums of a section that is counted."""
        alone = len(self.items) == 1  # names of millions of labels are made once
        names = self.items[0].cells if alone else tuple(name for item in self.items for name in item.cells)
        count, total, squares = sums.reshape(3, -1)
        return Aggregate(self.mechanism, users, count, total, squares, names)

    def read(self, sums: IntArray, users: int, method: str) -> list[Estimate]:
        """Return an estimate for each of the questions, enhanced by ``method`` where the mechanism's own is."""
        from noisette.enhancement import enhance

        if not self.counted:
            return list(self.items[0].read(self.mechanism, sums, None))
        made = self.aggregate(sums, users).estimate()
        if method != "none" and users:
            made = enhance(made, method=method)
        if len(self.items) == 1:
            return list(self.items[0].read(self.mechanism, sums.reshape(3, -1), made))
        found: list[Estimate] = []
        start = 0
        for place, item in enumerate(self.items):
            own = slice(start, start + item.width)
            # the gain is that of the whole section: its first estimate states it
            cut = replace(piece(made, own), expected_gain=None if place else made.expected_gain)
            found += item.read(self.inner(place), sums.reshape(3, -1)[:, own], cut)
            start = own.stop
        return found

    def predict(self, users: int) -> FloatArray:
        """Return the standard error of each quantity if ``users`` people answer the section."""
        from noisette.prediction import deviation, share_error

        share = self.mechanism.report / self.mechanism.dims if len(self.items) > 1 else 1.0
        std = np.asarray(deviation(self.mechanism, users=users).std if share < 1 else [], dtype=np.float64)
        found, start = [], 0
        for place, item in enumerate(self.items):
            own, inner = slice(start, start + item.width), self.inner(place)
            direct = len(item.questions) == 1 and item.cells == item.questions[0].quantities
            if direct and isinstance(item.domain, Categorical):
                found.append(np.full(item.width, share_error(inner, users, share)))
            else:
                sampled = direct and share < 1  # then whoever happens to report an answer adds to its error
                found.append(std[own] if sampled else item.predict(inner, max(1, round(users * share))))
            start = own.stop
        return np.concatenate(found)


@dataclass(frozen=True)
class SectionValues:
    """What the sections of a survey are asked about, side by side."""

    parts: tuple[Any, ...]

    def spec(self) -> dict[str, Any]:
        """Return a JSON description."""
        return {"kind": "record", "parts": [attribute.spec() for attribute in self.parts]}


@dataclass(frozen=True, eq=False)
class Together:
    """Several sections: every user answers all, each with a budget of its own, or one of them with the whole budget.

    ``draw`` has a whole number for each section where one is drawn: its chance is that number divided by their sum.
    Which one it is does not depend on what she would answer.
    """

    sections: tuple[Section, ...]
    draw: tuple[int, ...] = ()

    name = "together"

    def total(self, each: Sequence[float]) -> float:
        """Return what sections spend together: the sum of what each spends, rounded up, or the most of a draw."""
        return max(each) if self.draw else total_of(each)

    @property
    def guarantee(self) -> Guarantee:
        """Return the guarantee of one user's whole answer, by composition."""
        each = [own.mechanism.guarantee for own in self.sections]
        return Guarantee(self.total([one.epsilon for one in each]), self.total([one.delta for one in each]))

    def spec(self) -> dict[str, Any]:
        """Return a JSON description."""
        parts = [own.mechanism.spec() for own in self.sections]
        return {"mechanism": self.name, "parts": parts} | ({"draw": list(self.draw)} if self.draw else {})

    def table(self) -> dict[str, Any] | None:
        """Return the tables of all sections for a device in another language, None where one has none."""
        tables = [own.mechanism.table() for own in self.sections]
        return None if None in tables else {"kind": self.name, "draw": list(self.draw), "sections": tables}

    @property
    def domain(self) -> SectionValues:
        """The values of all sections."""
        return SectionValues(tuple(own.mechanism.domain for own in self.sections))

    def written_law(self) -> dict[str, Any] | None:
        """Return the law of all sections, or of the one that is drawn, as a certificate states it."""
        parts = [own.mechanism.written_law() for own in self.sections]
        return record_law(parts, 1 if self.draw else len(parts))

    @property
    def uncertified(self) -> str:
        """Why there is no certificate, where there is none."""
        lacking = [own.mechanism for own in self.sections if own.mechanism.written_law() is None]
        return "; ".join(f"of {one.name}, {one.uncertified}" for one in lacking)

    def predict(self, users: int, periods: int = 1) -> FloatArray:
        """Return the standard error of each quantity if each of ``users`` people answers in one of the ``periods``.

        Where one section or period is drawn for each person, fewer people answer each, and a sample of people adds its
        own scatter: its variance is taken to be at most the square of the question's ``signal``.
        """
        if not self.draw and periods == 1:
            return np.concatenate([own.predict(users) for own in self.sections])
        found, drawn = [], bool(self.draw)
        for own, weight in zip(self.sections, self.draw or (1,) * len(self.sections), strict=True):
            share = (weight / sum(self.draw) if drawn else 1.0) / periods
            signal = np.concatenate([one.signals for one in own.questions])
            scatter = signal**2 * (1 / share - 1) / users
            found.append(np.sqrt(own.predict(max(1, round(users * share))) ** 2 + scatter))
        return np.concatenate(found)

    def planned_name(self, question: Topic, quantity: str, users: int) -> str:
        """Return what a plan for ``users`` people calls a quantity."""
        for place, own in enumerate(self.sections):
            for item in own.items:
                if question in item.questions and len(own.items) == 1:
                    share = self.draw[place] / sum(self.draw) if self.draw else 1.0
                    return item.planned_name(own.mechanism, max(1, round(users * share)), quantity)
        return quantity

    def drawn(self, tickets: IntArray) -> IntArray:
        """Return the section of each ticket, a whole number below the sum of ``draw``."""
        return np.searchsorted(np.cumsum(self.draw), tickets, side="right")


def grouped(items: Sequence[Item]) -> list[tuple[Item, ...]]:
    """Return the items that share a mechanism: all plain ones together and first, then every other one alone."""
    plain = tuple(one for one in items if one.plain)
    return ([plain] if plain else []) + [(one,) for one in items if not one.plain]


def read_sections(items: Sequence[Item], spec: Any) -> Together:
    """Build the sections again from the description of their mechanisms."""
    asked = grouped(items)
    together = isinstance(spec, Mapping) and spec.get("mechanism") == Together.name
    specs, draw = (spec.get("parts"), spec.get("draw", [])) if together else ([spec], [])
    if not isinstance(specs, list) or len(specs) != len(asked):
        raise ValueError(f"Expected the mechanisms of {len(asked)} sections, got another number.")
    if not isinstance(draw, list) or (draw and len(draw) != len(asked)):
        raise ValueError(f"Expected draw={draw!r} to have a whole number for each of {len(asked)} sections.")
    chances = tuple(_validate.integer(one, "draw", low=1, high=2**31) for one in draw)
    return Together(tuple(Section(own, from_spec(one)) for own, one in zip(asked, specs, strict=True)), chances)


def domain_of(items: tuple[Item, ...]) -> Any:
    """Return the domain of one item, or of the record of several."""
    if len(items) == 1:
        return items[0].domain
    return Attributes(tuple(one.domain for one in items), names=tuple(one.name for one in items))


def flat(domain: TensorDomain) -> Box:
    """Return tensors as vectors of their entries, row by row."""
    return Box(math.prod(domain.dims), domain.low, domain.high)


def piece(estimate: Estimate, own: slice) -> Estimate:
    """Return some consecutive quantities of an estimate."""

    def cut(of: Any) -> Any:
        return of[own] if np.ndim(of) else of

    return replace(
        estimate,
        value=estimate.value[own],
        std_error=estimate.std_error[own],
        count=np.broadcast_to(estimate.count, estimate.value.shape)[own],
        names=None if estimate.names is None else estimate.names[own],
        low=cut(estimate.low),
        high=cut(estimate.high),
        tail=None,
        groups=None,
        ends=None if estimate.ends is None else (cut(estimate.ends[0]), cut(estimate.ends[1])),
        noise=cut(estimate.noise),
    )
