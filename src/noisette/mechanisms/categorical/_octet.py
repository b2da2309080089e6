"""Eight random bits at a time: the law of a byte as a table of integers, sampled exactly from 16 random bits or so."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import numpy.typing as npt

from noisette._validate import IntArray

BITS = 8
_TOTAL = 1 << 64
_SHORT, _LONG = 16, 48  # random bits that decide nearly always, and those that settle the rest


@dataclass(frozen=True)
class Octet:
    """Eight bits, alike in law: ``weights[j]`` is the integer weight of every pattern with j bits on.

    Nearly independent bits: each weight is the least integer that keeps weights[j + 1] / weights[j] from falling below
    the odds of one bit, weights[1] / weights[0]. What is proved from the odds alone is then true of the table.
    """

    weights: tuple[int, ...]

    @classmethod
    def build(cls, log_odds: float) -> Octet:
        """Return the table of bits that are on with odds exp(log_odds) <= 1, or a hair more."""
        odds = Fraction(math.exp(log_odds))
        none = math.floor(_TOTAL * (1 - 2.0**-40) * math.exp(-BITS * math.log1p(float(odds))))
        weights = [none, max(1, math.ceil(odds * none))]
        while len(weights) <= BITS:
            weights.append(-(-weights[1] * weights[-1] // none))
        return cls(tuple(weights))

    @cached_property
    def total(self) -> int:
        """Sum of the weights of all 256 patterns, a little below 2^64."""
        return sum(math.comb(BITS, ones) * weight for ones, weight in enumerate(self.weights))

    def marginal(self, bits: int) -> tuple[int, ...]:
        """Return the weights of the patterns of ``bits`` of the eight bits, by the number that are on."""
        rest = BITS - bits
        return tuple(
            sum(math.comb(rest, more) * self.weights[ones + more] for more in range(rest + 1))
            for ones in range(bits + 1)
        )

    @cached_property
    def p_on(self) -> Fraction:
        """Exact probability that one bit is on."""
        return Fraction(self.marginal(1)[1], self.total)

    @cached_property
    def _patterns(self) -> npt.NDArray[np.uint64]:
        """The zeros and ones of each pattern, as eight bytes in a word, and a word for no pattern."""
        patterns = np.arange(1 << BITS, dtype=np.uint8)
        return np.append(np.unpackbits(patterns[:, None], axis=1).view(np.uint64), np.uint64(0))

    @cached_property
    def _split(self) -> tuple[npt.NDArray[np.uint64], IntArray]:
        """Return the words that 16 bits decide on, and the running sums of the weights that they leave, times 2^-48."""
        ones = np.bitwise_count(np.arange(1 << BITS, dtype=np.uint8))
        whole, left = np.asarray([divmod(weight, 1 << _LONG) for weight in self.weights]).T
        return np.repeat(self._patterns[:-1], whole[ones]), np.cumsum(left[ones])

    def sample(self, words: npt.NDArray[np.uint64], scratch: npt.NDArray[np.intp], rng: np.random.Generator) -> None:
        """Fill ``words`` with patterns, eight zeros and ones in the bytes of a word; ``scratch`` is as long."""
        decided, sums = self._split
        short = rng.integers(0, 2**64 - 1, -(-words.size // 4), dtype=np.uint64, endpoint=True).view(np.uint16)
        np.copyto(scratch, short[: words.size])
        np.take(decided, scratch, out=words, mode="clip")
        late = np.flatnonzero(short[: words.size] >= decided.size)
        index = np.searchsorted(sums, rng.integers(0, ((1 << _SHORT) - decided.size) << _LONG, late.size), side="right")
        words[late] = self._patterns[index]
        again = late[index == sums.size]  # draws between the total and 2^64, one in 2^40
        if again.size:
            redrawn = np.empty(again.size, dtype=np.uint64)
            self.sample(redrawn, np.empty(again.size, dtype=np.intp), rng)
            words[again] = redrawn
