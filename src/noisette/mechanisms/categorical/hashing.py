"""Local hashing: the category is hashed to a few buckets, and the bucket is reported by randomised response."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from noisette import _random, _validate
from noisette._random import Rng
from noisette._validate import FloatArray, IntArray
from noisette.core import PubliclyDrawn
from noisette.domains import BoolArray, Categorical
from noisette.mechanisms._base import BLOCK, blocks
from noisette.mechanisms.categorical._base import CategoryLaw, CountingMechanism, KeepOrReplace, whole

PRIME = 2**31 - 1
_MOST_BUCKETS = 1 << 20
_CATEGORIES_ALL_HASHED = 64  # categories, up to which hashing all of them for every user is quick


@dataclass(frozen=True)
class AffineHash:
    """All maps x -> floor(buckets * ((a x + b) mod prime) / prime); seed a * prime + b names one.

    For x != x' below ``prime`` and a uniform seed the pair (a x + b, a x' + b) mod prime is uniform on all pairs. So
    every two categories collide with the same probability, the sum of the squared shares of the buckets: 1 / buckets
    if ``buckets`` divided the prime, and in fact a known fraction above it.
    """

    prime: int
    buckets: int

    @property
    def seeds(self) -> int:
        """Number of maps."""
        return self.prime**2

    @property
    def collision(self) -> Fraction:
        """Exact probability that two different categories share a bucket."""
        least, longer = divmod(self.prime, self.buckets)  # this many buckets hold one number more than the others
        return Fraction(longer * (least + 1) ** 2 + (self.buckets - longer) * least**2, self.prime**2)

    def bucket(self, seeds: IntArray, codes: IntArray) -> IntArray:
        """Return the buckets of categories under the maps that ``seeds`` name."""
        slope, shift = np.divmod(seeds, self.prime)
        return np.asarray((slope * codes + shift) % self.prime * self.buckets // self.prime)

    def count(self, seeds: IntArray, values: IntArray, size: int) -> IntArray:
        """Count for each category below ``size`` the pairs of a map and a bucket that put it there."""
        total = np.zeros(size, dtype=np.int64)
        for block in blocks(len(seeds), 2 * BLOCK):
            self._count_block(seeds[block], values[block], total)
        return total

    def _count_block(self, seeds: IntArray, values: IntArray, total: IntArray) -> None:
        """Add one block of users to ``total``, several categories at a time if the users are few.

        The image of v + rows is that of v plus rows * a: an addition modulo the prime instead of a product.
        """
        rows = min(total.size, max(1, BLOCK // len(seeds)))
        slope, shift = np.divmod(seeds, self.prime)
        first = -(-values * self.prime // self.buckets)  # the numbers below the prime that fall in the bucket
        length = (-(-(values + 1) * self.prime // self.buckets) - first).astype(np.uint32)
        low = first.astype(np.uint32)
        step = (slope * rows % self.prime).astype(np.uint32)
        image = ((np.arange(rows)[:, None] * slope + shift) % self.prime).astype(np.uint32)
        scratch, inside = np.empty_like(image), np.empty(image.shape, dtype=bool)
        for start in range(0, total.size, rows):
            np.subtract(image, low, out=scratch)  # wraps around where the image lies below the bucket
            np.less(scratch, length, out=inside)
            total[start : start + rows] += _row_counts(inside)[: total.size - start]
            image += step
            np.subtract(image, np.uint32(self.prime), out=scratch)  # wraps around where there is nothing to take off
            np.minimum(image, scratch, out=image)


def _row_counts(inside: BoolArray) -> IntArray:
    """Count what is True in each row."""
    if len(inside) == 1:  # five times as fast without an axis
        return np.asarray([np.count_nonzero(inside)])
    return np.asarray(np.count_nonzero(inside, axis=1))


@dataclass(frozen=True)
class Hashed(CategoryLaw):
    """A map drawn at random, and the bucket of the category under it, kept or replaced."""

    maps: AffineHash
    response: KeepOrReplace

    @property
    def total(self) -> int:
        """Sum of the weights of all pairs of a map and a bucket."""
        return self.maps.seeds * self.response.total

    def written(self) -> dict[str, Any]:
        return {"kind": "hashed", "maps": self.maps.seeds, "response": self.response.written()}

    def kinds(self, place: Any) -> tuple[tuple[int, int], ...]:
        """Return the weights of own buckets and of others, one and the rest for each map."""
        return tuple((self.maps.seeds * count, weight) for count, weight in self.response.kinds(place))

    def sample(self, codes: IntArray, reports: npt.NDArray[Any], rng: np.random.Generator) -> None:
        """Write one seed and one bucket for each category."""
        for block in blocks(codes.size):
            reports[block, 0] = rng.integers(0, self.maps.seeds, block.stop - block.start)
            self.respond(codes[block], reports[block], rng)

    def respond(self, codes: IntArray, reports: npt.NDArray[Any], rng: np.random.Generator) -> None:
        """Write one bucket for each category, by the seed that stands before it."""
        self.response.sample(self.maps.bucket(reports[:, 0], codes), reports[:, 1], rng)


@dataclass(frozen=True)
class SeededBuckets:
    """Pairs of a seed and a bucket."""

    seeds: int
    buckets: int

    def __str__(self) -> str:
        return f"pairs of a seed below {self.seeds} and a bucket below {self.buckets}"

    def contains(self, reports: npt.NDArray[Any]) -> BoolArray:
        """Tell which rows are such pairs."""
        return np.asarray(((reports >= 0) & (reports < [self.seeds, self.buckets]) & whole(reports)).all(axis=-1))


@dataclass(frozen=True)
class LocalHashing(CountingMechanism, PubliclyDrawn):
    """Hash the category to a few buckets by a map drawn at random, and report the map and a noisy bucket.

    Formula: g = round(E) + 1 buckets, at most 2^20; the own bucket is reported with probability E / (E + g - 1), E =
    exp(e). The report supports every category that its map sends to its bucket: the own one with that probability p,
    any other one with c p + (1 - c)(1 - p) / (g - 1), where c is the chance that two categories share a bucket. For
    our maps c is known exactly and the same for all pairs, within 2^-60 g of 1/g: nothing rests on a hash that
    merely looks random.

    *Guarantee*: epsilon-LDP for one category, exactly; the map is drawn before the category is looked at.
    *Utility*: unbiased; the variance of a rare category's frequency is 4E / (E - 1)^2 whatever k, as for OUE, in 16
    bytes. The server pays one hash for each user and category. GRR is better below k = 3E + 2.
    Wang, Blocki, Li, Jha 2017, section 4.4 (OLH), with the variance of Theorem 2; the maps are class H1 of Carter,
    Wegman 1979 with the slope 0 allowed, which makes pairs of images independent.

    >>> m = LocalHashing(epsilon=1.0, domain=Categorical(1000))
    >>> m.buckets, round(m.p_other, 9)
    (4, 0.25)
    >>> m.privatize([0, 3, 999], rng=7).shape
    (3, 2)
    """

    epsilon: float
    domain: Categorical
    name: ClassVar[str] = "olh"
    citation: ClassVar[str] = "wang2017locally"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.domain.size > PRIME:
            raise ValueError(f"Expected at most {PRIME} categories to hash, got size={self.domain.size}.")

    @property
    def bulky(self) -> bool:
        """Whether the list is long: the server hashes every category for every user."""
        return self.domain.size > _CATEGORIES_ALL_HASHED

    @property
    def buckets(self) -> int:
        """Number of buckets: the one of least variance."""
        return min(round(math.exp(min(self.epsilon, 40.0))) + 1, _MOST_BUCKETS)

    @cached_property
    def _hash(self) -> AffineHash:
        return AffineHash(PRIME, self.buckets)

    @cached_property
    def _response(self) -> KeepOrReplace:
        return KeepOrReplace.build(self.buckets, self.epsilon)

    @cached_property
    def _support_law(self) -> tuple[Fraction, Fraction]:
        same, different, collision = self._response.p_same, self._response.p_different, self._hash.collision
        return same, collision * same + (1 - collision) * different

    @property
    def report_shape(self) -> tuple[int, ...]:
        """The seed of the map and the bucket."""
        return (2,)

    @property
    def support(self) -> SeededBuckets:
        """All pairs of a seed and a bucket."""
        return SeededBuckets(self._hash.seeds, self.buckets)

    def law(self) -> Hashed:
        """Return the maps, and the weights of the own bucket and of the others."""
        return Hashed(self._hash, self._response)

    def table(self) -> dict[str, Any]:
        """Return the prime of the maps and the weights of the buckets."""
        return {"kind": "hash", "prime": self._hash.prime, "response": self._response.table()}

    def _count(self, reports: npt.NDArray[Any]) -> IntArray:
        seeds, values = reports.astype(np.int64, copy=False).T
        return self._hash.count(seeds, values, self.domain.size)

    def supports(self, reports: Any, categories: Any) -> BoolArray:
        """Tell for each report which of ``categories`` it supports: what a pair of a seed and a bucket says."""
        seeds, values = self._reports(reports).astype(np.int64, copy=False).T
        return np.asarray(self._hash.bucket(seeds[:, None], self._inputs(categories)) == values[:, None])

    def draw(self, users: int, rng: np.random.Generator) -> IntArray:
        """Draw a seed for each user."""
        return np.asarray(rng.integers(0, self._hash.seeds, users))

    def drawn(self, reports: Any) -> IntArray:
        """Return the seed of each report."""
        return self._reports(reports)[:, 0].astype(np.int64)

    def privatize_drawn(self, x: Any, drawn: IntArray, *, rng: Rng = None) -> Any:
        """Return one report for each category, with this seed."""
        codes = self._inputs(_validate.people(x, ())).reshape(-1)
        reports = np.stack([drawn, np.zeros_like(drawn)], axis=1)
        self.law().respond(codes, reports, _random.generator(rng))
        return reports

    def readable(self, reports: Any, inputs: Any) -> BoolArray:
        """Return which of the inputs each report supports."""
        return self.supports(reports, inputs)

    def log_prob(self, report: Any, x: Any) -> FloatArray:
        """Return the exact log mass of a report: that of its seed, and of its bucket given the seed."""
        reports, codes = np.asarray(report), self._inputs(x)
        _validate.trailing(reports, self.report_shape, "report")
        possible = self.support.contains(reports)
        seeds, values = np.moveaxis(np.where(possible[..., None], reports, 0).astype(np.int64), -1, 0)
        own = values == self._hash.bucket(seeds, codes)
        uniform = -math.log(self._hash.seeds)
        mass = np.where(own, math.log(self._response.p_same), math.log(self._response.p_different))
        return np.where(possible, uniform + mass, -np.inf)

    def _alike(self) -> list[tuple[Any, float, Fraction, Fraction]]:
        """Sort reports by whether the map sends categories 0 and 1 to one bucket, and by which bucket it is."""
        same, different = self._response.p_same, self._response.p_different
        seeds, buckets, together = self._hash.seeds, self.buckets, self._hash.collision
        apart, last = self._apart
        sorts = [
            ((0, 0), together, same, same),  # slope 0 sends all to the first bucket
            ((0, 1), together * (buckets - 1), different, different),
            ((apart, 0), 1 - together, same, different),
            ((apart, last), 1 - together, different, same),
            ((apart, 1), (1 - together) * (buckets - 2), different, different),
        ]
        return [(report, math.log(share * seeds), first, second) for report, share, first, second in sorts if share]

    def witnesses(self) -> tuple[IntArray, IntArray]:
        """Return categories 0 and 1, a map that sends them apart, and their buckets."""
        seed, last = self._apart
        return np.arange(2), np.asarray([[seed, 0], [seed, last]])

    @property
    def _apart(self) -> tuple[int, int]:
        """Return a map that sends 0 to the first bucket and 1 as far as can be, and that bucket."""
        seed = (self._hash.prime - 1) * self._hash.prime
        return seed, int(self._hash.bucket(np.asarray(seed), np.asarray(1)))
