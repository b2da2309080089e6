"""Projective geometry response: noise on the integers modulo K, decoded by one correlation, for lists of any length."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from noisette._validate import FloatArray, IntArray
from noisette.core import Tally
from noisette.domains import Categorical
from noisette.mechanisms._base import BLOCK, blocks
from noisette.mechanisms.categorical._base import UNIT, CategoryLaw, Codes, CountingMechanism, just_below
from noisette.mechanisms.categorical._singer import Singer, points, prime_powers

MOST_CATEGORIES = 1 << 25
_LARGEST_ORDER = 1 << 24  # of a design, or four times the categories
_NEARLY_LEAST = 1.01  # variance in units of the least, for which a smaller design is taken


@dataclass(frozen=True)
class CyclicNoise(CategoryLaw):
    """Integers modulo the order of a design: those that added to the category are in it weigh ``own``, else ``other``.

    What is added to the negative category is drawn without looking at it.
    """

    design: Singer
    own: int
    other: int

    @classmethod
    def build(cls, design: Singer, epsilon: float) -> CyclicNoise:
        """Return weights, at most 2^53 in all, for which own / other is near exp(epsilon) from below."""
        order, block = design.order, design.block
        excess = math.expm1(min(just_below(epsilon), 40.0))  # exp(40) is above 2^53
        other = max(1, math.floor(UNIT / (order + excess * block)))
        more = min(math.floor(other * excess), (UNIT - order * other) // block)
        if more < 1:
            raise ValueError(
                f"Expected a larger epsilon than {epsilon!r} for so many categories: not one of 2^53 draws would tell "
                "the true one. Raise epsilon or merge categories."
            )
        return cls(design, other + more, other)

    @property
    def total(self) -> int:
        return self.own * self.design.block + self.other * (self.design.order - self.design.block)

    def written(self) -> dict[str, Any]:
        sizes = {"order": self.design.order, "block": self.design.block}
        return {"kind": "cyclic", **sizes, "own": self.own, "other": self.other}

    def kinds(self, place: Any) -> tuple[tuple[int, int], ...]:
        """Return the weights of reports that support the category, and of the others."""
        return (self.design.block, self.own), (self.design.order - self.design.block, self.other)

    def sample(self, codes: IntArray, reports: npt.NDArray[Any], rng: np.random.Generator) -> None:
        members, order, more = self.design.members, self.design.order, self.own - self.other
        first = more * self.design.block  # draws that give a member of the set; the rest gives any integer
        for block in blocks(codes.size):
            draws = rng.random(block.stop - block.start)
            draws *= UNIT
            while draws.max() >= self.total:
                again = np.flatnonzero(draws >= self.total)
                draws[again] = rng.random(again.size) * UNIT
            # quotients of integers below 2^53 are rounded by less than their distance to the next integer above
            inside = np.flatnonzero(draws < first)
            chosen = members[(draws[inside] / more).astype(np.int64)]
            draws -= first
            draws /= self.other
            noise = draws.astype(np.int64)
            noise[inside] = chosen
            noise -= codes[block]
            noise += (noise >> 63) & order  # where it is negative
            reports[block] = noise


@dataclass(frozen=True)
class ProjectiveGeometryResponse(CountingMechanism):
    """Report (m - x) modulo K, m drawn with a larger chance from a difference set, without looking at the category x.

    Formula: the points of a hyperplane of the projective geometry PG(t - 1, q) are a set D of c of K = (q^t - 1) /
    (q - 1) integers, two shifts of which share l (Singer 1938). A report r supports x if r + x is in D modulo K; such
    reports have E times the chance of the others, E = exp(e). The own category is supported with probability p =
    E c / (E c + K - c), each other one with (E l + c - l) / (E c + K - c). q, a power of a prime, and t are those with
    the least K among those within 1 % of the least variance.

    *Guarantee*: epsilon-LDP for one category, exactly.
    *Utility*: unbiased; near the variance of subset selection where k exceeds E by far: within 1.003 of it at k =
    22,000, and at most 1.05 where subset selection needs sets of more than 16. One integer a report, drawn in constant
    time; n reports are decoded in n + K log K steps. Subset selection is better for short lists at a large epsilon.
    Feldman, Nelson, Nguyen, Talwar 2022, section 4, in the cyclic form of the same design.

    >>> m = ProjectiveGeometryResponse(epsilon=5.0, domain=Categorical(22_000))
    >>> m.design.field, m.design.dims, m.design.order
    (149, 3, 22351)
    >>> m.privatize([0, 3, 21_999], rng=7).shape
    (3,)
    """

    epsilon: float
    domain: Categorical
    name: ClassVar[str] = "pgr"
    citation: ClassVar[str] = "feldman2022private"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.domain.size > MOST_CATEGORIES:
            raise ValueError(
                f"Expected at most {MOST_CATEGORIES:,} categories for {self.name}, got {self.domain.size:,}. "
                "Merge categories, or hash them to this many first."
            )

    @cached_property
    def design(self) -> Singer:
        """The difference set."""
        return _design(*_best(self.domain.size, self.epsilon))

    @cached_property
    def _law(self) -> CyclicNoise:
        return CyclicNoise.build(self.design, self.epsilon)

    def law(self) -> CyclicNoise:
        """Return the design and the two weights."""
        return self._law

    def table(self) -> dict[str, Any]:
        """Return what the difference set is built from, and the weights of supporting and other reports."""
        design = self.design
        built = {"order": design.order, "prime": design.prime, "power": design.power, "taps": list(design.taps)}
        return {"kind": "cyclic", **built, "own": self._law.own, "other": self._law.other}

    @cached_property
    def _support_law(self) -> tuple[Fraction, Fraction]:
        law, block, shared = self._law, self.design.block, self.design.shared
        own = Fraction(law.own * block, law.total)
        return own, Fraction(law.own * shared + law.other * (block - shared), law.total)

    @property
    def support(self) -> Codes:
        """The integers modulo K."""
        return Codes(self.design.order)

    def tally(self, reports: Any) -> Tally:
        """Reduce a batch of reports to integer sums, decoding them all at once."""
        flat, size = self._reports(reports).astype(np.int64, copy=False), self.domain.size
        for block in blocks(len(flat), 32 * BLOCK):
            self.check_support(flat[block])
        total = self._count(flat)
        return Tally(len(flat), np.full(size, len(flat), dtype=np.int64), total, total)

    def _count(self, reports: npt.NDArray[Any]) -> IntArray:
        return self.design.count(reports, self.domain.size)

    def log_prob(self, report: Any, x: Any) -> FloatArray:
        reports, codes = np.broadcast_arrays(np.asarray(report), self._inputs(x))
        possible = self.support.contains(reports)
        sums = (np.where(possible, reports, 0).astype(np.int64) + codes) % self.design.order
        own, other = (math.log(weight) - math.log(self._law.total) for weight in (self._law.own, self._law.other))
        return np.where(possible, np.where(self.design.contains(sums), own, other), -np.inf)

    def _alike(self) -> list[tuple[Any, float, Fraction, Fraction]]:
        """Sort reports by whether they support categories 0 and 1."""
        order, block, shared = self.design.order, self.design.block, self.design.shared
        members = self.design.members.astype(np.int64)
        gaps = np.diff(members, append=members[0] + order)
        weights = {True: Fraction(self._law.own), False: Fraction(self._law.other)}
        sorts = [
            (members[gaps == 1][0], shared, True, True),
            (members[gaps > 1][0], block - shared, True, False),
            ((members + gaps - 1)[gaps > 1][0] % order, block - shared, False, True),
            (members[gaps > 2][0] + 1, order - 2 * block + shared, False, False),
        ]
        return [(int(report), math.log(many), weights[a], weights[b]) for report, many, a, b in sorts]

    def witnesses(self) -> tuple[IntArray, IntArray]:
        """Return categories 0 and 1, and a report that supports but one of them, for each."""
        return np.arange(2), np.asarray([report for report, _, first, second in self._alike() if first != second])


_design = lru_cache(maxsize=4)(Singer)  # designs keep what they computed


@lru_cache(maxsize=64)
def _designs(size: int) -> tuple[tuple[tuple[int, int, int], ...], FloatArray]:
    """Return prime, power and dimension of all designs for so many categories, and their orders, fields and blocks."""
    largest = max(_LARGEST_ORDER, 4 * size)
    found = []
    for field, prime, power in prime_powers(math.isqrt(largest)):
        dims = 3
        while (order := points(field, dims)) <= largest:
            if order >= size:
                sizes = order, points(field, dims - 1), points(field, dims - 2)
                found.append(((prime, power, dims), sizes))
            dims += 1
    names, sizes = zip(*found, strict=True)
    return names, np.asarray(sizes, dtype=np.float64).T


def _best(size: int, epsilon: float) -> tuple[int, int, int]:
    """Return prime, power and dimension of the smallest design within 1 % of the least summed variance."""
    names, (order, block, shared) = _designs(size)
    ratio = math.exp(min(epsilon, 40.0))
    total = ratio * block + order - block
    own, other = ratio * block / total, (ratio * shared + block - shared) / total
    variance = (own * (1 - own) + (size - 1) * other * (1 - other)) / (own - other) ** 2
    near = np.flatnonzero(variance <= _NEARLY_LEAST * variance.min())
    return names[int(near[np.argmin(order[near])])]
