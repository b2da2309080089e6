"""What is drawn for a user, from the signature of her token: the device draws it, and the server draws it again.

A signature of RFC 9474 without a salt is one number for each token, which nobody knows before the server has signed,
and the server signs one token for each user and period. So neither can choose what follows from it.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np

from noisette._validate import FloatArray, IntArray


class PublicDraws:
    """The part of a numpy generator that draws what is public, from hashes of a signature, a purpose and a counter.

    >>> draws = PublicDraws(b"a signature", "period")
    >>> draws.integers(0, 30, 3).tolist() == PublicDraws(b"a signature", "period").integers(0, 30, 3).tolist()
    True
    """

    def __init__(self, signature: bytes, purpose: str) -> None:
        self._start = b"noisette draw\n" + purpose.encode() + b"\n" + signature
        self._count = 0

    def _number(self) -> int:
        """Return the next number of 256 bits: a remainder of it is uniform up to 2^-190."""
        self._count += 1
        return int.from_bytes(hashlib.sha256(self._start + self._count.to_bytes(8, "big")).digest(), "big")

    def _many(self, size: Any, of: Any, dtype: Any) -> Any:
        shape = (size,) if isinstance(size, int) else tuple(size)
        return np.asarray([of(self._number()) for _ in range(math.prod(shape))], dtype=dtype).reshape(shape)

    def integers(self, low: int, high: int, size: Any) -> IntArray:
        """Draw integers from low to high - 1."""
        found: IntArray = self._many(size, lambda number: low + number % (high - low), np.int64)
        return found

    def random(self, size: Any) -> FloatArray:
        """Draw multiples of 2^-53 below 1."""
        found: FloatArray = self._many(size, lambda number: (number >> 203) / 2**53, np.float64)
        return found
