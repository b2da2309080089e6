"""Unary encoding: a bit for each category, all of them noisy."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from functools import cached_property
from itertools import product
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from noisette import _validate
from noisette._validate import FloatArray, IntArray
from noisette.domains import BoolArray, Categorical
from noisette.mechanisms._base import BLOCK, blocks
from noisette.mechanisms.categorical._base import CategoryLaw, CountingMechanism, just_below, log_fraction, log_mass
from noisette.mechanisms.categorical._bits import BITS, FINE, IndependentBits

_LANE = 255  # zeros and ones that a byte can add up


@dataclass(frozen=True)
class Bits:
    """Vectors of zeros and ones."""

    length: int

    def __str__(self) -> str:
        return f"vectors of {self.length} zeros and ones"

    def contains(self, reports: npt.NDArray[Any]) -> BoolArray:
        """Tell which rows hold nothing but zeros and ones."""
        if reports.dtype.kind in "bu" and reports.max() <= 1:
            return np.ones(reports.shape[:-1], dtype=bool)
        return np.asarray(((reports == 0) | (reports == 1)).all(axis=-1))


@dataclass(frozen=True)
class NoisyBits(CategoryLaw):
    """A bit for each of ``size`` categories: on by the law ``others``; the own one is off by the law ``turned``."""

    size: int
    others: IndependentBits
    turned: IndependentBits

    @property
    def total(self) -> int:
        """Sum of the weights of all vectors."""
        return 1 << (FINE * self.size)

    def written(self) -> dict[str, Any]:
        return {"kind": "bits", "size": self.size, "others": self.others.weight, "turned": self.turned.weight}

    def kinds(self, place: Any) -> tuple[tuple[int, int], ...]:
        """Return the weights by the own bit and the number of others that are on."""
        on, off, last = self.others.weight, (1 << FINE) - self.others.weight, self.size - 1
        own = ((1 << FINE) - self.turned.weight, self.turned.weight)
        return tuple(
            (math.comb(last, ones), weight * on**ones * off ** (last - ones))
            for weight in own
            for ones in range(self.size)
        )

    def sample(self, codes: IntArray, reports: npt.NDArray[Any], rng: np.random.Generator) -> None:
        """Write one vector for each category."""
        size = self.size
        users = min(codes.size, max(1, 32 * BLOCK // size // BITS * BITS))  # of which eight fill whole words
        starts = np.arange(0, users * size, size)
        turned = np.empty(codes.size, dtype=np.uint8)
        scratch = np.empty(users * size // BITS + 1, dtype=np.intp)  # made once: fresh memory costs more than the draws
        for block in blocks(codes.size, BITS * scratch.size):
            self.turned.fill(turned[block], scratch, rng)
        for block in blocks(codes.size, users):
            rows = reports[block].reshape(-1)
            self.others.fill(rows, scratch, rng)
            rows[starts[: block.stop - block.start] + codes[block]] = turned[block] ^ 1


@dataclass(frozen=True)
class UnaryEncoding(CountingMechanism):
    """Report a bit for each category, on with one chance for the own category and with a smaller one for the others.

    Formula: own bit on with probability 1/2, each other bit with 1 / (E + 1), E = exp(e). With ``optimized=False`` this
    builds the symmetric encoding: s / (s + 1) and 1 / (s + 1), s = exp(e/2).

    *Guarantee*: epsilon-LDP for one category, exactly: chances are multiples of 2^-61.
    *Utility*: unbiased; the variance of a rare category's frequency is 4E / (E - 1)^2 whatever k, as for local hashing,
    which sends a few bytes instead of k bits. Subset selection is a little better; GRR is better below k = 3E + 2.
    Wang, Blocki, Li, Jha 2017, section 4.3 (OUE), with the variance of Theorem 2.

    >>> m = UnaryEncoding(epsilon=2.0, domain=Categorical(100))
    >>> round(float(m.moments(0).variance.sum()), 1)
    73.4
    >>> m.privatize([0, 3], rng=7).shape
    (2, 100)
    """

    epsilon: float
    domain: Categorical
    _: KW_ONLY
    optimized: bool = True
    name: ClassVar[str] = "oue"
    citation: ClassVar[str] = "wang2017locally"

    def __new__(cls, *args: Any, optimized: bool = True, **options: Any) -> Self:
        """Return the symmetric encoding, which has a name of its own, where it is asked for."""
        chosen: Any = SymmetricUnaryEncoding if cls is UnaryEncoding and optimized is False else cls
        built: Self = super().__new__(chosen)
        return built

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.optimized is not type(self).optimized:
            raise ValueError(f"Expected optimized={self.optimized!r} to be {type(self).optimized} for {self.name!r}.")

    @cached_property
    def _others(self) -> IndependentBits:
        """Law of the bits of other categories."""
        return IndependentBits(_rare_weight(just_below(self.epsilon)))

    @cached_property
    def _turned(self) -> IndependentBits:
        """Law of whether the own bit is turned off."""
        return IndependentBits(1 << (FINE - 1))

    @cached_property
    def _support_law(self) -> tuple[Fraction, Fraction]:
        return 1 - self._turned.p_on, self._others.p_on

    @property
    def _joint_law(self) -> tuple[Fraction, Fraction]:
        own, other = self._support_law
        return own * other, other * other

    @property
    def report_shape(self) -> tuple[int, ...]:
        """One number for each category."""
        return (self.domain.size,)

    @property
    def report_dtype(self) -> npt.DTypeLike:
        """A byte for each bit."""
        return np.uint8

    @property
    def support(self) -> Bits:
        """All vectors of zeros and ones."""
        return Bits(self.domain.size)

    def law(self) -> NoisyBits:
        """Return the chances of the bits."""
        return NoisyBits(self.domain.size, self._others, self._turned)

    def table(self) -> dict[str, Any]:
        """Return the chances of the bits in units of 2^-61, as texts: they are too long for a float64."""
        weights = {"others": str(self._others.weight), "turned": str(self._turned.weight)}
        return {"kind": "bits", "size": self.domain.size} | weights

    def _count(self, reports: npt.NDArray[Any]) -> IntArray:
        rows = reports.astype(np.uint8, copy=False)
        # add 255 rows byte by byte, many rows apart so that the inner loops are long
        depth = len(rows) // _LANE
        deep = rows[: depth * _LANE].reshape(_LANE, depth, self.domain.size)
        lanes = np.add.reduce(deep, axis=0, dtype=np.uint8)
        rest = np.add.reduce(rows[depth * _LANE :], axis=0, dtype=np.uint8)
        return np.asarray(lanes.sum(axis=0, dtype=np.int64) + rest)

    def log_prob(self, report: Any, x: Any) -> FloatArray:
        reports, codes = np.asarray(report), self._inputs(x)
        _validate.trailing(reports, self.report_shape, "report")
        possible = self.support.contains(reports)
        ones = np.where(possible, reports.sum(axis=-1), 0)
        p_own, p_other = self._support_law
        common = ones * log_fraction(p_other) + (self.domain.size - ones) * log_fraction(1 - p_other)
        shape = np.broadcast_shapes(possible.shape, codes.shape)
        column = np.broadcast_to(codes, shape)[..., None]
        own = np.take_along_axis(np.broadcast_to(reports, (*shape, self.domain.size)), column, axis=-1)[..., 0] == 1
        change = np.where(own, log_fraction(p_own / p_other), log_fraction((1 - p_own) / (1 - p_other)))
        return np.where(possible, log_mass(common, change, self.epsilon), -np.inf)

    def _alike(self) -> list[tuple[Any, float, Fraction, Fraction]]:
        """Sort reports by the bits of categories 0 and 1; what the other bits weigh is relative to all of them off."""
        size = self.domain.size
        (own_off, own_on), (other_off, other_on) = ((1 - p, p) for p in self._support_law)
        others = -(size - 2) * log_fraction(other_off)
        sorts = []
        for first, second in product((False, True), repeat=2):
            report = np.zeros(size, dtype=np.uint8)
            report[:2] = first, second
            own = [own_on if bit else own_off for bit in (first, second)]
            other = [other_on if bit else other_off for bit in (first, second)]
            sorts.append((report, others, own[0] * other[1], other[0] * own[1]))
        return sorts

    def witnesses(self) -> tuple[IntArray, npt.NDArray[Any]]:
        """Return two categories and the reports that have only one of their bits on."""
        return np.arange(2), np.eye(2, self.domain.size, dtype=np.uint8)


@dataclass(frozen=True)
class SymmetricUnaryEncoding(UnaryEncoding):
    """Report a bit for each category, each of them turned with the same chance.

    Formula: own bit on with probability s / (s + 1), each other bit with 1 / (s + 1), s = exp(e/2).

    *Guarantee*: epsilon-LDP for one category, exactly: chances are multiples of 2^-61.
    *Utility*: unbiased; variance s / (s - 1)^2 whatever the category and k. The optimised encoding has less for
    rare categories, and more for those that s / (s + 1)^2 of the users, a quarter at most, have in common.
    Erlingsson, Pihur, Korolova 2014 (basic one-time RAPPOR); variance in Wang, Blocki, Li, Jha 2017, Theorem 2.

    >>> m = SymmetricUnaryEncoding(epsilon=2.0, domain=Categorical(100))
    >>> round(m.p_own + m.p_other, 12)
    1.0
    """

    _: KW_ONLY
    optimized: bool = False
    name: ClassVar[str] = "sue"
    citation: ClassVar[str] = "erlingsson2014rappor"

    @cached_property
    def _others(self) -> IndependentBits:
        return IndependentBits(_rare_weight(just_below(self.epsilon) / 2))

    @property
    def _turned(self) -> IndependentBits:
        return self._others


def _rare_weight(log_odds: float) -> int:
    """Return the chance 1 / (exp(log_odds) + 1) in units of 2^-61, rounded up; at least 2^-53, or 1 less it were 1."""
    small = math.exp(-log_odds)
    return max(1 << (FINE - 53), math.ceil((1 << FINE) * (small / (1 + small))))
