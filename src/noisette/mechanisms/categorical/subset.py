"""Subset selection: a set of categories that more often than not contains the own one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import product
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from noisette import _validate
from noisette._random import ULP
from noisette._special import gammaln
from noisette._validate import FloatArray, IntArray
from noisette.domains import BoolArray, Categorical
from noisette.mechanisms.categorical._base import (
    UNIT,
    CategoryLaw,
    CountingMechanism,
    just_below,
    keep_weight,
    log_fraction,
    log_mass,
    whole,
)
from noisette.mechanisms.categorical._subsets import LARGEST, fill_subsets


@dataclass(frozen=True)
class Subsets:
    """Increasing sequences of ``length`` of the integers below ``size``."""

    size: int
    length: int

    def __str__(self) -> str:
        return f"increasing sequences of {self.length} of the integers 0 ... {self.size - 1}"

    def contains(self, reports: npt.NDArray[Any]) -> BoolArray:
        """Tell which rows are such sequences."""
        inside = (reports[..., 0] >= 0) & (reports[..., -1] < self.size)
        return np.asarray(inside & (reports[..., 1:] > reports[..., :-1]).all(axis=-1) & whole(reports).all(axis=-1))


@dataclass(frozen=True)
class Sets(CategoryLaw):
    """Sets of ``length`` categories: ``own`` of 2^53 draws give one with the own category, and all of those alike."""

    size: int
    length: int
    own: int

    @property
    def total(self) -> int:
        """Sum of the weights of all sets."""
        return UNIT * math.comb(self.size - 1, self.length - 1) * math.comb(self.size - 1, self.length)

    def written(self) -> dict[str, Any]:
        return {"kind": "subset", "size": self.size, "length": self.length, "own": self.own}

    def kinds(self, place: Any) -> tuple[tuple[int, int], ...]:
        """Return the weights of sets with the own category and without."""
        with_own, without = (math.comb(self.size - 1, self.length - inside) for inside in (1, 0))
        return (with_own, self.own * without), (without, (UNIT - self.own) * with_own)

    def sample(self, codes: IntArray, reports: npt.NDArray[Any], rng: np.random.Generator) -> None:
        """Write one set for each category."""
        fill_subsets(rng, codes, rng.random(codes.size) < self.own * ULP, self.size, reports)


@dataclass(frozen=True)
class SubsetSelection(CountingMechanism):
    """Report a set of w categories that contains the own one with one chance and is otherwise uniform.

    Formula: the own category is in the set with probability p = wE / (wE + k - w), each other one with
    (w - p) / (k - 1), E = exp(e); w is the integer beside k / (E + 1) with the lower variance.

    *Guarantee*: epsilon-LDP for one category, exactly.
    *Utility*: unbiased; summed over the categories its variance is the least of all mechanisms here: GRR where w = 1,
    a little below OUE at large k. The report is w integers, which for small epsilon is half of the categories, and
    takes as many steps to draw.
    Ye, Barg 2018; Wang, Huang, Wang, Nie, Xu, Yang, Li, Qiao 2016 (k-subset mechanism).

    >>> m = SubsetSelection(epsilon=2.0, domain=Categorical(100))
    >>> m.length, round(float(m.moments(0).variance.sum()), 1)
    (12, 70.0)
    >>> m.privatize([0, 3], rng=7).shape
    (2, 12)
    """

    epsilon: float
    domain: Categorical
    name: ClassVar[str] = "subset-selection"
    citation: ClassVar[str] = "ye2018optimal"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.domain.size > LARGEST:
            raise ValueError(f"Expected at most {LARGEST:,} categories for {self.name}, got {self.domain.size:,}.")

    @cached_property
    def length(self) -> int:
        """Number of categories in a report."""
        size = self.domain.size
        ideal = size / (math.exp(min(self.epsilon, 700.0)) + 1)
        near = sorted({min(max(math.floor(ideal) + extra, 1), size - 1) for extra in (0, 1)})
        return min(near, key=lambda length: _summed_variance(size, *self._law(length)))

    def _law(self, length: int) -> tuple[Fraction, Fraction]:
        """Return the chances that the own and another category are in a set of ``length``."""
        size = self.domain.size
        own = Fraction(keep_weight(just_below(self.epsilon) + math.log(length / (size - length))), UNIT)
        return own, (length - own) / (size - 1)

    @cached_property
    def _support_law(self) -> tuple[Fraction, Fraction]:
        return self._law(self.length)

    @property
    def supported(self) -> tuple[int, int]:
        """All reports have the same length."""
        return self.length, self.length

    @property
    def _joint_law(self) -> tuple[Fraction, Fraction]:
        """Beside the own category, or without it, all sets of the others are equally likely."""
        size, length, own = self.domain.size, self.length, self._support_law[0]
        mixed = own * Fraction(length - 1, size - 1)
        pairs = max(1, (size - 1) * (size - 2))  # two categories have no two others
        return mixed, (own * (length - 1) * (length - 2) + (1 - own) * length * (length - 1)) / pairs

    @property
    def report_shape(self) -> tuple[int, ...]:
        """The categories of the set, in order."""
        return (self.length,)

    @property
    def support(self) -> Subsets:
        """All sets of that length."""
        return Subsets(self.domain.size, self.length)

    def law(self) -> Sets:
        """Return size and length, and the weight of sets with the own category."""
        return Sets(self.domain.size, self.length, int(self._support_law[0] * UNIT))

    def table(self) -> dict[str, Any]:
        """Return the length of a set and the weight of those with the own category, of 2^53 in all."""
        return {"kind": "subset", "size": self.domain.size, "length": self.length, "own": self.law().own}

    def _count(self, reports: npt.NDArray[Any]) -> IntArray:
        return np.bincount(reports.reshape(-1), minlength=self.domain.size).astype(np.int64, copy=False)

    def log_prob(self, report: Any, x: Any) -> FloatArray:
        reports, codes = np.asarray(report), self._inputs(x)
        _validate.trailing(reports, self.report_shape, "report")
        size, length, p_own = self.domain.size, self.length, self._support_law[0]
        inside = (reports == codes[..., None]).any(axis=-1)
        change = np.where(
            inside, log_fraction(p_own * size / length), log_fraction((1 - p_own) * size / (size - length))
        )
        uniform = np.asarray(gammaln(length + 1) + gammaln(size - length + 1) - gammaln(size + 1))
        return np.where(self.support.contains(reports), log_mass(uniform, change, self.epsilon), -np.inf)

    def _alike(self) -> list[tuple[Any, float, Fraction, Fraction]]:
        """Sort reports by whether they contain categories 0 and 1."""
        size, length, p_own = self.domain.size, self.length, self._support_law[0]
        masses = {True: p_own * (size - length), False: (1 - p_own) * length}
        sorts = []
        for first, second in product((False, True), repeat=2):
            rest = length - first - second
            if 0 <= rest <= size - 2:
                report = [*([0] * first), *([1] * second), *range(2, 2 + rest)]
                count = gammaln(size - 1) - gammaln(rest + 1) - gammaln(size - 1 - rest)
                sorts.append((report, float(count), masses[first], masses[second]))
        return sorts

    def witnesses(self) -> tuple[IntArray, IntArray]:
        """Return the first and the last category, and the sets of the first and of the last ones."""
        size, length = self.domain.size, self.length
        return np.asarray([0, size - 1]), np.stack([np.arange(length), np.arange(size - length, size)])


def _summed_variance(size: int, p_own: Fraction, p_other: Fraction) -> Fraction:
    """Return the variance of one report's estimate, summed over the categories."""
    return (p_own * (1 - p_own) + (size - 1) * p_other * (1 - p_other)) / (p_own - p_other) ** 2
