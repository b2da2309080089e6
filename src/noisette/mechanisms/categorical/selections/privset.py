"""PrivSet: a set of options that more often than not meets the set that was chosen."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from noisette import _validate
from noisette._random import ULP
from noisette._special import gammaln
from noisette._validate import FloatArray, IntArray
from noisette.cells import Cells, largest_ratio
from noisette.core import Law
from noisette.domains import Selection
from noisette.mechanisms.categorical._base import UNIT, just_below, keep_weight, log_fraction, log_mass
from noisette.mechanisms.categorical._subsets import fill_subsets
from noisette.mechanisms.categorical.selections._base import SelectionMechanism
from noisette.mechanisms.categorical.subset import Subsets

_MOST_OPTIONS = 1 << 16


@dataclass(frozen=True)
class MeetingSets(Law):
    """Sets of ``length`` of ``size`` items: ``meeting`` of 2^53 draws give one that meets ``most`` own items."""

    size: int
    most: int
    length: int
    meeting: int

    def written(self) -> dict[str, Any]:
        law = {"kind": "meeting-sets", "items": self.size, "most": self.most}
        return law | {"length": self.length, "meeting": self.meeting}

    @property
    def apart(self) -> Fraction:
        """The share of all sets that meet no own item."""
        return apart(self.size, self.most, self.length)

    @property
    def total(self) -> int:
        """Sum of the weights of all sets."""
        (first, weight), (second, other) = self.kinds(None)
        return first * weight + second * other

    def kinds(self, place: Any) -> tuple[tuple[int, int], ...]:
        """Return the weights of sets that meet the own items, and of the others."""
        every, without = math.comb(self.size, self.length), math.comb(self.size - self.most, self.length)
        return (every - without, self.meeting * without), (without, (UNIT - self.meeting) * (every - without))

    def sample(self, own: IntArray, reports: npt.NDArray[Any], rng: np.random.Generator) -> None:
        """Write one set for each row of own items, which are increasing.

        A set that meets them is one own item and others; where it has several own items it would be drawn from each of
        them, so that it is kept with a chance of one over their number only.
        """
        meets = rng.random(len(own)) < self.meeting * ULP
        self._fill_apart(own, np.flatnonzero(~meets), reports, rng)
        pending = np.flatnonzero(meets)
        while pending.size:
            first = own[pending, rng.integers(0, self.most, pending.size)]
            rows = np.empty((pending.size, self.length), dtype=np.int64)
            fill_subsets(rng, first, np.ones(pending.size, dtype=bool), self.size, rows)
            reports[pending] = rows
            common = np.zeros(pending.size, dtype=np.int64)
            for item in own[pending].T:
                common += (rows == item[:, None]).any(axis=1)
            pending = pending[rng.integers(0, common) > 0]

    def _fill_apart(self, own: IntArray, places: IntArray, reports: Any, rng: np.random.Generator) -> None:
        """Write sets of other items: own items are skipped, the least first."""
        if not places.size:
            return
        rest = self.size - self.most
        rows = np.empty((places.size, self.length), dtype=np.int64)
        fill_subsets(rng, np.full(places.size, rest), np.zeros(places.size, dtype=bool), rest + 1, rows)
        for item in own[places].T:
            rows += rows >= item[:, None]
        reports[places] = rows


def apart(size: int, most: int, length: int) -> Fraction:
    """Return the share of sets of ``length`` items that have none of ``most``.

    >>> apart(5, 2, 1)
    Fraction(3, 5)
    """
    few = min(most, length)
    return Fraction(math.perm(size - max(most, length), few), math.perm(size, few))


@dataclass(frozen=True)
class PrivSet(SelectionMechanism):
    """Report a set of l items, one that meets what was chosen with the larger chance.

    Formula: a selection of fewer than m of d options is filled up with different dummies, m of D = d + m items then. A
    set of l items that meets them has E times the chance of one that does not, E = exp(e). With a = l / D, o the share
    of sets that meet none of m items, b = o l / (D - m) and O = E (1 - o) + o, an option that was chosen is in the set
    with probability E a / O, any other one with (E (a - b) + b) / O; l is the one of least variance.

    *Guarantee*: epsilon-LDP for the whole selection, exactly.
    *Utility*: unbiased shares, and the mean number of options. Better than one answer an option at any budget split,
    and than padding and sampling; one option drawn at random is better where most options may be chosen at a small
    epsilon. With m = 1 it is subset selection.
    Wang, Huang, Nie, Wang, Xu, Yang 2018 (PrivSet).

    >>> m = PrivSet(epsilon=1.0, domain=Selection(10, 3))
    >>> m.length, round(m.spread[0], 2)
    (1, 5.81)
    >>> m.privatize([[0, 4, -1], [-1, -1, -1]], rng=7).shape
    (2, 1)
    """

    epsilon: float
    domain: Selection
    name: ClassVar[str] = "privset"
    citation: ClassVar[str] = "wang2018privset"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.domain.size > _MOST_OPTIONS:
            raise ValueError(f"Expected at most {_MOST_OPTIONS:,} options for {self.name}, got {self.domain.size:,}.")

    @property
    def items(self) -> int:
        """Number of options and dummies."""
        return self.domain.size + self.domain.most

    @cached_property
    def length(self) -> int:
        """Number of items in a report."""
        every, most = self.items, self.domain.most
        lengths = np.arange(1, every - most + 1, dtype=np.float64)
        without = np.exp(
            gammaln(every - most + 1)
            + gammaln(every - lengths + 1)
            - gammaln(every - most - lengths + 1)
            - gammaln(every + 1)
        )
        ratio = math.exp(min(self.epsilon, 500.0))
        total = ratio * (1 - without) + without
        inside, beside = lengths / every, without * lengths / (every - most)
        own, other = ratio * inside / total, (ratio * (inside - beside) + beside) / total
        with np.errstate(divide="ignore", invalid="ignore"):
            variance = np.where(own > other, other * (1 - other) / (own - other) ** 2, np.inf)
        return int(lengths[int(np.argmin(variance))])

    @cached_property
    def _law(self) -> MeetingSets:
        without = apart(self.items, self.domain.most, self.length)
        meeting = keep_weight(just_below(self.epsilon) + log_fraction((1 - without) / without))
        return MeetingSets(self.items, self.domain.most, self.length, meeting)

    def law(self) -> MeetingSets:
        """Return the numbers of items, and the weight of sets that meet the own ones."""
        return self._law

    def table(self) -> dict[str, Any]:
        """Return the same numbers."""
        return self._law.written()

    @cached_property
    def _support_law(self) -> tuple[Fraction, Fraction]:
        (meets, misses), items, most, length = self._weights, self.items, self.domain.most, self.length
        inside, beside = Fraction(length, items), self._law.apart * Fraction(length, items - most)
        return meets * inside, meets * (inside - beside) + misses * beside

    @cached_property
    def _joint_law(self) -> tuple[Fraction, Fraction]:
        (meets, misses), items, most, length = self._weights, self.items, self.domain.most, self.length
        inside = Fraction(length * (length - 1), items * (items - 1))
        rest = (items - most) * (items - most - 1)
        beside = self._law.apart * Fraction(length * (length - 1), rest) if rest else Fraction(0)
        return meets * inside, meets * (inside - beside) + misses * beside

    @cached_property
    def _weights(self) -> tuple[Fraction, Fraction]:
        """The weight of a set that meets the own items, and of one that does not, relative to an even law."""
        chance, without = Fraction(self._law.meeting, UNIT), self._law.apart
        return chance / (1 - without), (1 - chance) / without

    def _number(self, chosen: int) -> tuple[float, float]:
        """Return the second and third absolute moment of the number that a report says, if so many are chosen.

        They are sums over how many items of a set are options: of all sets, and of the sets that meet nothing own.
        """
        size, most, length = self.domain.size, self.domain.most, self.length
        found = np.arange(max(0, length - most), length + 1, dtype=np.float64)  # beyond the options without weight
        whole = _log_comb(self.items, length)
        every = np.exp(_log_comb(size, found) + _log_comb(most, length - found) - whole)
        apart_too = np.exp(_log_comb(size - chosen, found) + _log_comb(chosen, length - found) - whole)
        meets, misses = (float(weight) for weight in self._weights)
        chance = meets * every + (misses - meets) * apart_too
        strays = np.abs(found - float(chance @ found)) / (self.p_own - self.p_other)
        return float(chance @ strays**2), float(chance @ strays**3)

    @property
    def _most_supported(self) -> int:
        return self.length

    @property
    def report_shape(self) -> tuple[int, ...]:
        """The items of the set, in order."""
        return (self.length,)

    @property
    def support(self) -> Subsets:
        """All sets of that length; items from the number of options on are dummies."""
        return Subsets(self.items, self.length)

    def _fill(self, rows: IntArray, reports: npt.NDArray[Any], rng: np.random.Generator) -> None:
        self._law.sample(self._padded(rows), reports, rng)

    def _padded(self, rows: IntArray) -> IntArray:
        """Return rows of own items, increasing: place j of a row that holds no option holds dummy j."""
        own = np.where(rows < 0, self.domain.size + np.arange(self.domain.most), rows)
        own.sort(axis=-1)
        return own

    def _sums(self, reports: npt.NDArray[Any]) -> tuple[IntArray, IntArray, int]:
        size = self.domain.size
        total = np.bincount(reports.reshape(-1), minlength=self.items)[:size]
        number = (reports < size).sum(axis=1)
        return np.full(size, len(reports)), total, int(number @ number)

    def log_prob(self, report: Any, x: Any) -> FloatArray:
        reports, own = np.asarray(report), self._padded(self._inputs(x))
        _validate.trailing(reports, self.report_shape, "report")
        meets = np.zeros(np.broadcast_shapes(reports.shape[:-1], own.shape[:-1]), dtype=bool)
        for place in range(self.domain.most):
            meets = meets | (reports == own[..., place, None]).any(axis=-1)
        change = np.where(meets, *(log_fraction(weight) for weight in self._weights))
        uniform = np.asarray(-_log_comb(self.items, self.length))
        return np.where(self.support.contains(reports), log_mass(uniform, change, self.epsilon), -np.inf)

    def dissect(self) -> Iterator[Cells]:
        """Sort reports by whether they meet the first m options, and the dummies, which are as far apart as can be."""
        size, most, items, length = self.domain.size, self.domain.most, self.items, self.length
        every, without, neither = (math.comb(items - less, length) for less in (0, most, 2 * most))
        first, others, dummies = np.arange(most), np.arange(most, size), np.arange(size, items)
        sorts = [
            (every - 2 * without + neither, [0, size, *first[1:], *others, *dummies[1:]], True, True),
            (without - neither, [*first, *others], True, False),
            (without - neither, [*dummies, *others], False, True),
            (neither, list(others), False, False),
        ]
        reports, weights, masses = [], [], []
        for many, row, one, two in sorts:
            if many:
                reports.append(sorted(int(item) for item in row[:length]))
                weights.append(math.log(many))
                masses.append(tuple(self._weights[0 if met else 1] for met in (one, two)))
        pair = first, np.full(most, -1)
        yield Cells.constant(pair, np.asarray(reports), weights, largest_ratio(masses))  # type: ignore[arg-type]  # pairs

    def witnesses(self) -> tuple[IntArray, IntArray]:
        """Return the first m options and no option, and sets that meet one of them only."""
        (cells,) = self.dissect()
        return np.stack(cells.pair), np.asarray(cells.nodes[0])


def _log_comb(many: int, few: Any) -> Any:
    """Return the log of the number of subsets, minus infinity where there are none."""
    few = np.asarray(few, dtype=np.float64)
    inside = (few >= 0) & (few <= many)
    some = np.where(inside, few, 0.0)
    return np.where(inside, gammaln(many + 1) - gammaln(some + 1) - gammaln(many - some + 1), -np.inf)
