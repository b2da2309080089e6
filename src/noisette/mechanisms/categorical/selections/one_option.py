"""One drawn option: whether the user chose an option that was drawn for her, by randomised response."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from noisette import _random, _validate
from noisette._random import ULP, Rng
from noisette._validate import FloatArray, IntArray
from noisette.cells import Cells, largest_ratio
from noisette.core import Law, PubliclyDrawn
from noisette.domains import Selection
from noisette.mechanisms.categorical._base import UNIT, Codes, just_below, keep_weight
from noisette.mechanisms.categorical.selections._base import SelectionMechanism


@dataclass(frozen=True)
class DrawnAnswers(Law):
    """Twice the number of an option, and one more for yes: ``true`` of 2^53 draws give the true answer."""

    size: int
    true: int

    def written(self) -> dict[str, Any]:
        return {"kind": "drawn-answers", "options": self.size, "true": self.true}

    @property
    def total(self) -> int:
        return UNIT * self.size

    def kinds(self, place: Any) -> tuple[tuple[int, int], ...]:
        """Return the weights of true and of false answers, one of each for an option."""
        return (self.size, self.true), (self.size, UNIT - self.true)

    def sample(self, rows: IntArray, reports: npt.NDArray[Any], rng: np.random.Generator) -> None:
        """Write one report for each row of options."""
        self.answer(rows, rng.integers(0, self.size, len(rows)), reports, rng)

    def answer(self, rows: IntArray, drawn: IntArray, reports: npt.NDArray[Any], rng: np.random.Generator) -> None:
        """Write one report for each row of options, about the one that was drawn."""
        answers = (rows == drawn[:, None]).any(axis=1)
        answers ^= rng.random(len(rows)) >= self.true * ULP
        reports[...] = 2 * drawn + answers


@dataclass(frozen=True)
class DrawnOption(SelectionMechanism, PubliclyDrawn):
    """Draw one option for each user, without looking at her choice, and report by randomised response if she chose it.

    Formula: the report is (j, y) with j uniform on the d options; y is the truth with probability E / (E + 1), E =
    exp(e). It is one integer, 2 j + y.

    *Guarantee*: epsilon-LDP for the whole selection, exactly.
    *Utility*: unbiased; the variance of a share is d E / (E - 1)^2 where nobody chose the option, however many options
    a user may choose. So it is the best for short lists of which any may be chosen at a small epsilon; else PrivSet is.
    Warner 1965; Nguyên, Xiao, Yang, Hui, Shin, Shin 2016, section IV-B, for one dimension of many.

    >>> m = DrawnOption(epsilon=1.0, domain=Selection(10))
    >>> round(m.spread[0], 2)
    9.21
    >>> m.privatize([list(range(10))] * 3, rng=7).shape
    (3,)
    """

    epsilon: float
    domain: Selection
    name: ClassVar[str] = "drawn-option"
    citation: ClassVar[str] = "warner1965randomized"

    @cached_property
    def _law(self) -> DrawnAnswers:
        return DrawnAnswers(self.domain.size, keep_weight(just_below(self.epsilon)))

    def law(self) -> DrawnAnswers:
        """Return the number of options and the weight of the truth."""
        return self._law

    def table(self) -> dict[str, Any]:
        """Return the same numbers."""
        return self._law.written()

    @cached_property
    def _support_law(self) -> tuple[Fraction, Fraction]:
        true = Fraction(self._law.true, UNIT)
        return true, 1 - true

    @property
    def share(self) -> float:
        """One report in d is about an option."""
        return 1 / self.domain.size

    def _number(self, chosen: int) -> tuple[float, float]:
        size, gap = self.domain.size, self.p_own - self.p_other
        chance = (chosen * self.p_own + (size - chosen) * self.p_other) / size
        spread = chance * (1 - chance)
        scale = size / gap
        return spread * scale**2, spread * (chance**2 + (1 - chance) ** 2) * scale**3

    @property
    def _most_supported(self) -> int:
        return 1

    @property
    def support(self) -> Codes:
        """Two answers for each option."""
        return Codes(2 * self.domain.size)

    def _fill(self, rows: IntArray, reports: npt.NDArray[Any], rng: np.random.Generator) -> None:
        self._law.sample(rows, reports, rng)

    def draw(self, users: int, rng: np.random.Generator) -> IntArray:
        """Draw an option for each user."""
        return np.asarray(rng.integers(0, self.domain.size, users))

    def drawn(self, reports: Any) -> IntArray:
        """Return the option of each report."""
        return self._reports(reports) // 2

    def privatize_drawn(self, x: Any, drawn: IntArray, *, rng: Rng = None) -> Any:
        """Return one report for each selection, about this option."""
        rows = self._inputs(_validate.people(x, self.domain.shape)).reshape(-1, self.domain.most)
        reports = np.empty(len(rows), dtype=np.int64)
        self._law.answer(rows, drawn, reports, _random.generator(rng))
        return reports

    def _sums(self, reports: npt.NDArray[Any]) -> tuple[IntArray, IntArray, int]:
        counts = np.bincount(reports, minlength=2 * self.domain.size).reshape(-1, 2)
        return counts.sum(axis=1), counts[:, 1], int(counts[:, 1].sum())

    def log_prob(self, report: Any, x: Any) -> FloatArray:
        rows = self._inputs(x)
        reports = np.asarray(report)
        possible = self.support.contains(reports)
        option, answer = np.divmod(np.where(possible, reports, 0).astype(np.int64), 2)
        true = (rows == option[..., None]).any(axis=-1) == (answer == 1)
        mass = np.where(true, math.log(self.p_own), math.log(self.p_other)) - math.log(self.domain.size)
        return np.where(possible, mass, -np.inf)

    def dissect(self) -> Iterator[Cells]:
        """Sort reports about options that the first of two selections has, that the second has, and that neither has.

        The two have as many options as can be, and none in common unless they must.
        """
        size, most = self.domain.size, self.domain.most
        own, other = self._support_law
        second = np.arange(most, min(2 * most, size))
        sorts = [(1, most, own, other), (0, most, other, own)]
        if second.size:
            sorts += [(2 * most + 1, second.size, other, own), (2 * most, second.size, own, other)]
        if rest := size - most - second.size:
            sorts += [(2 * size - 1, rest, other, other), (2 * size - 2, rest, own, own)]
        reports, many, *masses = zip(*sorts, strict=True)
        pair = np.arange(most), np.pad(second, (0, most - second.size), constant_values=-1)
        yield Cells.constant(pair, np.asarray(reports), np.log(many), largest_ratio(zip(*masses, strict=True)))

    def witnesses(self) -> tuple[IntArray, IntArray]:
        """Return the first m options and no option, and both answers about the first."""
        return np.stack([np.arange(self.domain.most), np.full(self.domain.most, -1)]), np.asarray([0, 1])
