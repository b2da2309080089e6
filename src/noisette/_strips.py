"""The discrete Gaussian law cut into strips: one word of 64 bits a draw, without a rounding that could be seen.

P(k) is proportional to f(k) = exp(-k^2 / (2 sigma^2)). The integers from 0 on are cut into strips of w = 2^j, between
sigma / 32 and sigma / 16, up to eight sigma. Over each strip lie a rectangle, as high as f is at the strip's end, and a
wedge up to where it begins; a tail follows. Heights are whole numbers, in units of 1 / S, so that Walker's alias table
of all parts is exact. A draw from a rectangle is a draw from the law; one from a wedge or the tail is kept with the
chance that f leaves it, and else begun anew. What float64 cannot decide there, about one draw in 10^12, is settled in
many digits by `noisette._random`. numba is imported with this module, where many values are first drawn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from noisette._validate import FloatArray

LARGEST = 2.0**31  # sigma up to which the position in a strip, the sign and the part fit in a word
_EDGE = 8.0  # standard deviations up to which strips go
_UNSURE = 2.0**-44  # float64 errs by less than 2^-46 in f, whose exponent is at most 33
_COLUMN_BITS, _CHANCE_BITS = 10, 26  # of a word: the column of the table, and what its threshold is compared with
_TOTAL = 1 << (_COLUMN_BITS + _CHANCE_BITS)
_POSITION_BITS = 64 - 1 - _COLUMN_BITS - _CHANCE_BITS
_DIGITS = 300  # bits of the heights, before they are rounded


@dataclass(frozen=True, eq=False)
class Strips:
    """Strips of 2^shift integers: heights and alias table of their rectangles, their wedges and the tail."""

    sigma: float
    scale: int  # the whole number S
    shift: int
    low: FloatArray  # heights of rectangles
    gap: FloatArray  # heights of wedges
    tail: int  # mass of the tail's proposal, in units of 2^shift / S
    tail_rate: float  # of the geometric law that it proposes
    thresholds: npt.NDArray[np.int64]
    alias: npt.NDArray[np.int64]

    @property
    def edge(self) -> int:
        """Where the tail begins."""
        return self.low.size << self.shift

    def left_by_wedge(self, mp: Any, strip: int, k: int) -> Any:
        """Return the chance that a draw k from a wedge is kept, without rounding."""
        return (self.scale * self._height(mp, k) - int(self.low[strip])) / int(self.gap[strip])

    def left_by_tail(self, mp: Any, beyond: int) -> Any:
        """Return the chance that a draw of the tail, so far beyond its beginning, is kept."""
        rate = mp.mpf(self.tail_rate)
        proposed = self.tail * mp.mpf(1 << self.shift) * -mp.expm1(-rate) * mp.exp(-rate * beyond)
        return self.scale * self._height(mp, self.edge + beyond) / proposed

    def _height(self, mp: Any, k: int) -> Any:
        return mp.exp(-(mp.mpf(k) ** 2) / (2 * mp.mpf(self.sigma) ** 2))


@lru_cache(maxsize=16)
def strips(sigma: float, edge: float = _EDGE) -> Strips:
    """Return the strips of a law, up to this many standard deviations."""
    import mpmath

    shift = max(0, math.frexp(sigma)[1] - 5)
    width = 1 << shift
    many = max(1, math.ceil(edge * sigma / width))
    rate = many * width / sigma**2 * (1 - 2.0**-40)  # from below: f falls faster than the tail's proposal
    with mpmath.workprec(_DIGITS):
        variance = 2 * mpmath.mpf(sigma) ** 2
        begin = [mpmath.exp(-(mpmath.mpf(i * width) ** 2) / variance) for i in range(many + 1)]
        end = [mpmath.exp(-(mpmath.mpf((i + 1) * width - 1) ** 2) / variance) for i in range(many)]
        beyond = begin[-1] / (width * -mpmath.expm1(-mpmath.mpf(rate)))
        scale = int((_TOTAL - many - 2) / (mpmath.fsum(begin[:-1]) + beyond))
        low = [int(mpmath.floor(scale * height)) for height in end]
        high = [int(mpmath.floor(scale * height)) + 1 for height in begin[:-1]]
        tail = int(mpmath.floor(scale * beyond)) + 1
    gap = [b - a for a, b in zip(low, high, strict=True)]
    masses = [*low, *gap, tail]
    masses += [_TOTAL - sum(masses)] + [0] * ((1 << _COLUMN_BITS) - len(masses) - 1)  # the rest is drawn anew
    thresholds, alias = alias_table(masses)
    floors, wedges = (np.asarray(array, dtype=np.float64) for array in (low, gap))
    shown, other = (np.asarray(array, dtype=np.int64) for array in (thresholds, alias))
    return Strips(sigma, scale, shift, floors, wedges, tail, rate, shown, other)


def alias_table(masses: list[int]) -> tuple[list[int], list[int]]:
    """Fill equal columns with two parts each, exactly: the thresholds below which a column is its own part, and others.

    The masses add up to a multiple of their number (Walker 1977).

    >>> alias_table([1, 5])
    ([1, 3], [1, 1])
    """
    capacity = sum(masses) // len(masses)
    rest, alias = list(masses), list(range(len(masses)))
    small = [i for i, mass in enumerate(rest) if mass < capacity]
    large = [i for i, mass in enumerate(rest) if mass >= capacity]
    thresholds = [capacity] * len(masses)
    while small and large:
        column, donor = small.pop(), large[-1]
        thresholds[column], alias[column] = rest[column], donor
        rest[donor] -= capacity - rest[column]
        if rest[donor] < capacity:
            small.append(large.pop())
    return thresholds, alias


def _fill(
    out: FloatArray,
    words: npt.NDArray[np.uint64],
    law: tuple[int, float, float],
    low: FloatArray,
    gap: FloatArray,
    thresholds: npt.NDArray[np.int64],
    alias: npt.NDArray[np.int64],
    pending: FloatArray,
) -> tuple[int, int]:
    """Write draws until they or the words are used up; return how many were written, and how many are ``pending``.

    Of a pending one the place, the strip (minus one for the tail), k, the uniform and the sign are written down. Of a
    word the bits are: 27 the position, 1 the sign, 10 the column, 26 to compare with the threshold.
    """
    shift, scale, precision = law
    many, mask = low.size, (1 << shift) - 1
    filled = left = place = 0
    while filled < out.size and place + 1 < words.size and left < len(pending):
        word = words[place]
        place += 1
        column = np.int64((word >> np.uint64(28)) & np.uint64(1023))
        own = np.int64(np.int64(word >> np.uint64(38)) < thresholds[column])
        part = alias[column] + own * (column - alias[column])  # no branch: a processor cannot foresee it
        sign = np.int64((word >> np.uint64(27)) & np.uint64(1))
        position = np.int64(word & np.uint64(0x7FFFFFF)) & mask
        strip = part
        if part >= many:
            if part > 2 * many:
                continue
            strip = part - many
        k = np.float64((strip << shift) + position)
        if sign and k == 0:  # zero has one sign, not two
            continue
        if part >= many:
            uniform = np.float64(words[place] >> np.uint64(11)) * 2.0**-53
            place += 1
            doubt = part == 2 * many
            if not doubt:
                spare = scale * math.exp(-k * k * precision) - low[strip] - uniform * gap[strip]
                if spare < -_UNSURE * scale:
                    continue
                doubt = spare <= _UNSURE * scale
            if doubt:
                pending[left, 0], pending[left, 1] = filled, (-1 if part == 2 * many else strip)
                pending[left, 2], pending[left, 3], pending[left, 4] = k, uniform, sign
                left += 1
        out[filled] = (1 - 2 * sign) * k
        filled += 1
    return filled, left


try:
    fill = njit(cache=True, nogil=True)(_fill)
except RuntimeError:  # no directory can be written
    fill = njit(nogil=True)(_fill)
