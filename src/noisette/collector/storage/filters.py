"""A filter in memory that recognises nearly every new digest as new, so that no index is searched for it."""

from __future__ import annotations

import secrets

import numpy as np
import numpy.typing as npt

from noisette.survey.batches import Digests

_FIRST_LEVEL = 1 << 20  # digests of the first level; each level has room for twice as many as the one before
_EACH = 24  # bits of memory for a digest
_SET = 5  # bits that a digest sets, all in one word of 64

Words = npt.NDArray[np.uint64]


class DigestFilter:
    """A Bloom filter in levels that double: it suspects all digests that were added, and about one in 300 of others.

    Where a digest goes depends on numbers that this process has drawn: nobody can choose tokens that crowd one place.
    Bits are only ever set, so that one thread may add while others ask.
    """

    def __init__(self) -> None:
        self._factors = [np.uint64(secrets.randbits(64) | 1) for _ in range(2)]
        self._levels: list[Words] = []
        self._room = 0  # digests for which the last level has room

    def add(self, digests: Digests) -> None:
        """Suspect these from now on."""
        while len(digests):
            if not self._room:
                self._room = _FIRST_LEVEL << len(self._levels)
                self._levels.append(np.zeros(self._room * _EACH // 64, dtype=np.uint64))
            first, digests = digests[: self._room], digests[self._room :]
            self._room -= len(first)
            where, bits = self._hashed(first)
            np.bitwise_or.at(self._levels[-1], self._places(where, self._levels[-1]), bits)

    def suspects(self, digests: Digests) -> npt.NDArray[np.bool_]:
        """Tell which of these may have been added."""
        where, bits = self._hashed(digests)
        found = np.zeros(len(digests), dtype=bool)
        for level in self._levels:
            found |= (level[self._places(where, level)] & bits) == bits
        return found

    def _hashed(self, digests: Digests) -> tuple[Words, Words]:
        words = np.ascontiguousarray(digests).view("<u8").astype(np.uint64)
        mixed = (words[:, 0] ^ (words[:, 1] >> np.uint64(32))) * self._factors[0]
        mixed ^= mixed >> np.uint64(32)
        other = (mixed ^ words[:, 1]) * self._factors[1]
        bits = np.zeros(len(words), dtype=np.uint64)
        for number in range(_SET):
            bits |= np.uint64(1) << ((other >> np.uint64(64 - 6 * (number + 1))) & np.uint64(63))
        return mixed * self._factors[1], bits

    @staticmethod
    def _places(where: Words, level: Words) -> Words:
        return (where >> np.uint64(32)) * np.uint64(len(level)) >> np.uint64(32)
