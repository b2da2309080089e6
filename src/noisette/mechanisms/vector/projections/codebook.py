"""A public list of normal vectors: a user reports the number of one, more often of one that is near her own vector."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from noisette._special import gauss_legendre
from noisette._validate import FloatArray, IntArray
from noisette.mechanisms.categorical._base import UNIT, just_below

_CELLS = 1 << 16  # of the normal law, in which numbers are uniform
_FAR = 9.0  # standard deviations, beyond which the normal law has no mass worth integrating
_FINENESS = 2.0**16  # lattice steps a standard deviation of an entry


@dataclass(frozen=True)
class Codebook:
    """``size`` words of ``dims`` normal numbers: the ``near`` nearest weigh ``own``, the others ``other``.

    Formula: word j is reported with chance own / (near own + (size - near) other) where <g_j, u> is among the ``near``
    largest, else with other / (...). The estimate of u is g_j / m, m = (own - other) s / (near own + (size - near)
    other), s the sum of the expected ``near`` largest of ``size`` normal numbers. However float64 rounds the products,
    ``near`` words have the weight ``own`` and all others the weight ``other``, so epsilon is ln(own / other).
    """

    dims: int
    size: int
    near: int
    own: int
    other: int

    @classmethod
    def build(cls, dims: int, bits: int, epsilon: float) -> Codebook:
        """Return the codebook whose number of near words makes m largest, with own / other below exp(epsilon)."""
        size = 1 << bits
        excess = math.expm1(min(just_below(epsilon), 30.0))
        low, high = 1, size - 1

        def mean(near: int) -> float:
            return excess * top_sums(size, near)[0] / (near * excess + size)

        while low < high:  # the mean rises to its largest value and falls after it
            middle = (low + high) // 2
            low, high = (middle + 1, high) if mean(middle + 1) > mean(middle) else (low, middle)
        other = max(1, math.floor(UNIT / (size + excess * low)))
        more = min(math.floor(other * excess), (UNIT - size * other) // low)
        if more < 1:
            raise ValueError(f"Expected a larger epsilon than {epsilon!r}: not one of 2^53 draws would favour a word.")
        return cls(dims, size, low, other + more, other)

    @property
    def total(self) -> int:
        """Sum of all weights."""
        return self.near * self.own + (self.size - self.near) * self.other

    @property
    def preferred(self) -> float:
        """The chance that a near word is drawn for being near."""
        return (self.own - self.other) * self.near / self.total

    @cached_property
    def mean(self) -> float:
        """E<g, u> of the reported word."""
        return (self.own - self.other) * top_sums(self.size, self.near)[0] / self.total

    @cached_property
    def square(self) -> float:
        """E<g, u>^2 of the reported word."""
        return ((self.own - self.other) * top_sums(self.size, self.near)[1] + self.other * self.size) / self.total

    @property
    def proxy(self) -> float:
        """Variance of a normal law whose moment generating function bounds that of an entry of g about its mean.

        For a near word, and for any word, it is at most 1, as their densities relative to the normal one are
        log-concave. Which of the two is drawn adds a two-point variable.
        """
        return 1 + (self.mean / self.preferred) ** 2 / 4

    def nearest(self, seed: int, direction: FloatArray) -> IntArray:
        """Return the words from the nearest to the farthest; those at one distance in the order of their numbers."""
        from noisette.mechanisms.vector.projections.codebook_loops import products

        found = np.empty(self.size)
        products(np.uint64(seed), direction, quantiles(), found)
        return np.argsort(-found, kind="stable")

    def draw(self, seeds: IntArray, directions: FloatArray, rng: np.random.Generator) -> IntArray:
        """Draw one word for each direction, from the list of its seed."""
        draws = rng.random(len(seeds)) * UNIT
        while draws.max() >= self.total:
            again = np.flatnonzero(draws >= self.total)
            draws[again] = rng.random(again.size) * UNIT
        more, found = self.own - self.other, np.empty(len(seeds), dtype=np.int64)
        for number, (seed, direction) in enumerate(zip(seeds.tolist(), directions, strict=True)):
            order, draw = self.nearest(seed, direction), int(draws[number])
            preferred, first = draw < more * self.near, draw // more
            found[number] = order[first] if preferred else (draw - more * self.near) // self.other
        return found

    def words(self, seeds: IntArray, numbers: IntArray) -> FloatArray:
        """Return the vectors that stand for words."""
        from noisette.mechanisms.vector.projections.codebook_loops import write

        rows = np.empty((len(seeds), self.dims))
        for row, seed, number in zip(rows, seeds.tolist(), numbers.tolist(), strict=True):
            write(np.uint64(seed), number, quantiles(), row)
        return rows


@lru_cache(maxsize=4096)
def top_sums(size: int, near: int) -> tuple[float, float]:
    """Return the expected sum of the ``near`` largest of ``size`` normal numbers, and that of their squares."""
    from scipy.special import bdtr, ndtr

    x, weight = gauss_legendre(400)
    x, weight = x * _FAR, weight * _FAR * size
    weight *= np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi) * bdtr(near - 1, size - 1, ndtr(-x))
    return float(weight @ x), float(weight @ x**2)


@lru_cache(maxsize=1)
def quantiles() -> FloatArray:
    """Return the ends of cells of the normal law, the outermost such that the variance is one."""
    from scipy.special import ndtri

    inner = ndtri(np.arange(1, _CELLS) / _CELLS)
    squares = float(((inner[1:] ** 2 + inner[1:] * inner[:-1] + inner[:-1] ** 2) / 3).sum())
    rest, near = 3 * (_CELLS - squares) / 2, float(inner[-1])
    far = (-near + math.sqrt(4 * rest - 3 * near**2)) / 2
    return np.concatenate([[-far], inner, [far]])


def lattice(mean: float) -> float:
    """Return the step of the lattice on which entries of the estimate g / m are added up."""
    return float(2.0 ** math.floor(math.log2(1 / mean)) / _FINENESS)
