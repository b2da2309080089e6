"""Independent random bits, eight at a time: most patterns are decided by 16 random bits, and all of them exactly."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import numpy.typing as npt

from noisette._validate import IntArray

BITS = 8
FINE = 61  # chances are multiples of 2^-61
_FIRST_BITS, _NEXT_BITS = 16, 48  # random bits that decide nearly always, and those that nearly always settle the rest
_EXACT = FINE * BITS - _FIRST_BITS  # chances of patterns are multiples of 2^-488: so many bits more than the short ones
_REST = _EXACT - _NEXT_BITS


@dataclass(frozen=True)
class IndependentBits:
    """Bits that are on with probability ``weight`` / 2^61, each on its own."""

    weight: int

    @property
    def p_on(self) -> Fraction:
        """Probability that a bit is on."""
        return Fraction(self.weight, 1 << FINE)

    @cached_property
    def _patterns(self) -> npt.NDArray[np.uint64]:
        """The zeros and ones of all patterns of eight bits, as bytes of a word."""
        return np.unpackbits(np.arange(1 << BITS, dtype=np.uint8)[:, None], axis=1).view(np.uint64)[:, 0]

    @cached_property
    def _shares(self) -> tuple[npt.NDArray[np.uint64], tuple[int, ...]]:
        """Return the pattern of each short draw that decides, and the running sums of what the others decide on.

        A pattern owns the short draws that fit in its chance whole. The rest of its chance, less than one short draw,
        lies in the draws left over, in units of 2^-488.
        """
        off = (1 << FINE) - self.weight
        chances = [self.weight**ones * off ** (BITS - ones) for ones in range(BITS + 1)]
        counts = [pattern.bit_count() for pattern in range(1 << BITS)]
        decided = np.repeat(self._patterns, [chances[ones] >> _EXACT for ones in counts])
        sums, running = [], 0
        for ones in counts:
            running += chances[ones] & ((1 << _EXACT) - 1)
            sums.append(running)
        return decided, tuple(sums)

    @cached_property
    def _edges(self) -> IntArray:
        """The running sums in units of 2^-64, rounded down."""
        return np.asarray([total >> _REST for total in self._shares[1]])

    def fill(self, out: npt.NDArray[np.uint8], scratch: npt.NDArray[np.intp], rng: np.random.Generator) -> None:
        """Fill a contiguous vector with zeros and ones; ``scratch`` is an eighth as long, or a little more."""
        words, rest = divmod(out.size, BITS)
        self._fill_words(out[: words * BITS].view(np.uint64), scratch[:words], rng)
        if rest:
            last = np.empty(1, dtype=np.uint64)
            self._fill_words(last, scratch[:1], rng)
            out[-rest:] = last.view(np.uint8)[:rest]

    def _fill_words(
        self, words: npt.NDArray[np.uint64], scratch: npt.NDArray[np.intp], rng: np.random.Generator
    ) -> None:
        """Fill words with patterns."""
        decided = self._shares[0]
        short = rng.integers(0, 2**64 - 1, -(-words.size // 4), dtype=np.uint64, endpoint=True).view(np.uint16)
        np.copyto(scratch, short[: words.size])
        np.take(decided, scratch, out=words, mode="clip")
        late = np.flatnonzero(short[: words.size] >= decided.size)
        if late.size:
            draws = rng.integers(0, ((1 << _FIRST_BITS) - decided.size) << _NEXT_BITS, late.size)
            words[late] = self._patterns[self._settle(draws, rng)]

    def _settle(self, draws: IntArray, rng: np.random.Generator) -> IntArray:
        """Return the patterns that own late draws, which 48 bits place among the running sums."""
        index = np.searchsorted(self._edges, draws)
        for place in np.flatnonzero(self._edges[index] == draws).tolist():  # one in 2^40: the next bits decide
            rest = int.from_bytes(rng.bytes(_REST // 8), "little")
            index[place] = bisect_right(self._shares[1], (int(draws[place]) << _REST) | rest)
        return index
