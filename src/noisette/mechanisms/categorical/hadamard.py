"""Hadamard response: a column of a Hadamard matrix in which the category's row is more often than not +1."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from noisette._random import ULP
from noisette._validate import FloatArray, IntArray
from noisette.domains import BoolArray, Categorical
from noisette.mechanisms._base import blocks
from noisette.mechanisms.categorical._base import UNIT, CategoryLaw, Codes, CountingMechanism, just_below, keep_weight


@dataclass(frozen=True)
class SylvesterColumns(CategoryLaw):
    """Columns of Sylvester's matrix of ``order``: ``own`` of 2^53 draws give one in which the category's row is +1."""

    order: int
    own: int

    @property
    def total(self) -> int:
        """Sum of the weights of all columns."""
        return UNIT * (self.order // 2)

    def written(self) -> dict[str, Any]:
        return {"kind": "columns", "order": self.order, "own": self.own}

    def kinds(self, place: Any) -> tuple[tuple[int, int], ...]:
        """Return the weights of columns in which the row is +1, and -1: half of them each."""
        return (self.order // 2, self.own), (self.order // 2, UNIT - self.own)

    def sample(self, codes: IntArray, reports: npt.NDArray[Any], rng: np.random.Generator) -> None:
        """Write one column for each category."""
        for block in blocks(codes.size):
            rows = codes[block] + 1
            columns = (rng.random(rows.size) * self.order).astype(np.int64)
            wanted = rng.random(rows.size) < self.own * ULP
            # turning a bit that the row has, too, pairs the columns of either sign with each other
            reports[block] = np.where(_positive(rows, columns) == wanted, columns, columns ^ (rows & -rows))


@dataclass(frozen=True)
class HadamardResponse(CountingMechanism):
    """Report a column of a Hadamard matrix, one in which the category's own row is +1 with the larger chance.

    Formula: K is the first power of two above k and category x has row x + 1 of Sylvester's K x K matrix; the report
    is a uniform column where that row is +1 with probability E / (E + 1), E = exp(e), else one where it is -1. A
    column supports the categories whose rows are +1 in it: every other one with probability exactly 1/2, since rows
    are orthogonal.

    *Guarantee*: epsilon-LDP for one category, exactly.
    *Utility*: unbiased; the variance of a rare category's frequency is ((E + 1) / (E - 1))^2. Close to the best for
    epsilon below 1, but never below 1: above that OUE and local hashing are better. One integer a report, and the
    server decodes n reports in n + K log K steps.
    Acharya, Sun, Zhang 2019, the scheme for high privacy.

    >>> m = HadamardResponse(epsilon=1.0, domain=Categorical(100))
    >>> m.order, round(m.p_own, 6), m.p_other
    (128, 0.731059, 0.5)
    >>> m.privatize([0, 3, 99], rng=7).shape
    (3,)
    """

    epsilon: float
    domain: Categorical
    name: ClassVar[str] = "hadamard"
    citation: ClassVar[str] = "acharya2019hadamard"

    @property
    def order(self) -> int:
        """Number of rows and columns of the matrix; row 0, which is all +1, serves no category."""
        return 1 << self.domain.size.bit_length()

    @cached_property
    def _support_law(self) -> tuple[Fraction, Fraction]:
        return Fraction(keep_weight(just_below(self.epsilon)), UNIT), Fraction(1, 2)

    @property
    def support(self) -> Codes:
        """The columns."""
        return Codes(self.order)

    def law(self) -> SylvesterColumns:
        """Return the order of the matrix and the weight of columns with the own row +1."""
        return SylvesterColumns(self.order, int(self._support_law[0] * UNIT))

    def table(self) -> dict[str, Any]:
        """Return the order of the matrix and the weight of columns with the own row +1, of 2^53 in all."""
        return {"kind": "hadamard", "order": self.order, "own": self.law().own}

    def _count(self, reports: npt.NDArray[Any]) -> IntArray:
        columns = np.bincount(reports, minlength=self.order).astype(np.int64, copy=False)
        return (len(reports) + walsh_hadamard(columns)[1 : self.domain.size + 1]) // 2

    def log_prob(self, report: Any, x: Any) -> FloatArray:
        reports, codes = np.broadcast_arrays(np.asarray(report), self._inputs(x))
        possible = self.support.contains(reports)
        positive = _positive(codes + 1, np.where(possible, reports, 0).astype(np.int64))
        p_own = self._support_law[0]
        mass = np.where(positive, math.log(p_own), math.log(1 - p_own)) - math.log(self.order // 2)
        return np.where(possible, mass, -np.inf)

    def _alike(self) -> list[tuple[Any, float, Fraction, Fraction]]:
        """Sort columns by their last two bits, which are those of rows 1 and 2."""
        p_own = self._support_law[0]
        signs = {True: p_own, False: 1 - p_own}
        quarter = math.log(self.order // 4)
        return [(column, quarter, signs[not column & 1], signs[not column & 2]) for column in range(4)]

    def witnesses(self) -> tuple[IntArray, IntArray]:
        """Return the first two categories and the columns in which the row of only one of them is +1."""
        return np.arange(2), np.asarray([1, 2])


def walsh_hadamard(values: IntArray) -> IntArray:
    """Multiply Sylvester's Hadamard matrix with a vector, in integers and without the matrix."""
    half = 1
    while half < values.size:
        pairs = values.reshape(-1, 2, half)
        values = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).reshape(-1)
        half *= 2
    return values


def _positive(rows: IntArray, columns: IntArray) -> BoolArray:
    """Tell where Sylvester's matrix holds +1: an even number of bits in common."""
    return np.asarray(np.bitwise_count(rows & columns) & 1 == 0)
