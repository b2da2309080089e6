"""Real Gaussian noise rounded down to a fine lattice: exact, and as quick as a generator of normal variables.

floor(n + N) = n + floor(N) for an integer n: adding floor(N) to lattice points is post-processing of adding a real
normal variable N, so it is exactly as private, with no allowance for the lattice. The law is cut into strips of width
1/16 under the density on either side of zero: a rectangle and a wedge on top of it each, and a tail beyond 8. One word
of 64 bits chooses among them by the alias method, with a table of 256 bits, and is the position within a rectangle; a
wedge takes rejection. What float64 cannot decide, some 1 in 10^7, is settled in many digits. The law of a draw is
within 2^-240 of the stated one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from noisette._random import is_secret
from noisette._validate import FloatArray

STEPS = 2.0**36  # of the lattice in a standard deviation
_POSITION = 32  # bits of the position within a strip: 2^32 steps are 1/16
_STRIPS = 128  # on each side of zero
_EDGE = 8  # where the tail begins
_COLUMNS = 512
_BITS = 256
_SHOWN = 22  # bits of a threshold that a word is compared with first
_BLOCK = 1 << 14

Words = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class AliasTable:
    """Alias table: column c is its own part below ``thresholds[c]``, else part ``alias[c]``."""

    thresholds: tuple[int, ...]  # of 2^(256 - 9)
    alias: npt.NDArray[np.int64]
    shown: npt.NDArray[np.int64]  # the first 22 bits of the thresholds


def add_noise(values: FloatArray, rng: np.random.Generator, *, sigma: float = 1.0, unit: float = 1.0) -> None:
    """Round values to the lattice of 2^-36 sigma, add normal noise of that deviation, and divide by ``unit``, in place.

    ``values`` is flat and contiguous, of entries below 2^26 sigma.
    """
    from noisette.mechanisms.tensor.gaussian._loops import add

    table, scale, step = build_table(), STEPS / sigma, sigma / STEPS / unit
    pending = np.empty((min(values.size, _BLOCK), 4), dtype=np.uint64)
    for start in range(0, values.size, _BLOCK):
        block = values[start : start + _BLOCK]
        drawn = _words(rng, block.size + block.size // 4 + 64)
        words, spare = drawn[: block.size], drawn[block.size :]
        count = add(block, scale, step, words, spare, table.shown, table.alias, pending)
        for place, part, first, second in pending[:count].tolist():
            word = int(words[place])
            cell = _settle(rng, table, word, part, first, second)
            noise = -cell - 1 if word >> 41 & 1 else cell
            block[place] = (round(float(block[place]) * scale) + noise + 0.5) * step


def _words(rng: np.random.Generator, size: int) -> Words:
    bits: Any = rng.bit_generator
    return bits.words(size) if is_secret(rng) else rng.integers(0, 2**64, size, dtype=np.uint64)


@lru_cache(maxsize=1)
def build_table() -> AliasTable:
    """Return the alias table of the strips' rectangles, their wedges and the tail."""
    import mpmath

    with mpmath.workprec(_BITS + 64):
        edges = [mpmath.mpf(i) / 16 for i in range(_STRIPS + 1)]
        heights = [mpmath.sqrt(2 / mpmath.pi) * mpmath.exp(-z * z / 2) for z in edges]
        beyond = [mpmath.erfc(z / mpmath.sqrt(2)) for z in edges]
        rectangles = [height / 16 for height in heights[1:]]
        wedges = [beyond[i] - beyond[i + 1] - rectangles[i] for i in range(_STRIPS)]
        masses = [int(mpmath.floor(mpmath.ldexp(mass, _BITS))) for mass in [*rectangles, *wedges, beyond[-1]]]
    masses[0] += (1 << _BITS) - sum(masses)
    return _alias(masses + [0] * (_COLUMNS - len(masses)))


def _alias(masses: list[int]) -> AliasTable:
    """Return the alias table of whole masses, exactly."""
    from noisette._strips import alias_table

    thresholds, alias = alias_table(masses)
    capacity = sum(masses) // len(masses)
    shown = [threshold >> (capacity.bit_length() - 1 - _SHOWN) for threshold in thresholds]
    return AliasTable(tuple(thresholds), np.asarray(alias, dtype=np.int64), np.asarray(shown, dtype=np.int64))


def _settle(rng: np.random.Generator, table: AliasTable, word: int, part: int, first: int, second: int) -> int:
    """Return the cell of a draw that the quick path left open: which part, which point of a wedge, or the tail.

    ``part`` is 512 where the threshold is a tie. A wedge comes with the words it was tried with, or with zeros.
    """
    if part == _COLUMNS:
        column = word >> _POSITION & (_COLUMNS - 1)
        more = _BITS - (_COLUMNS - 1).bit_length() - _SHOWN
        low = table.thresholds[column] & ((1 << more) - 1)
        part = column if _integer(rng, more) < low else int(table.alias[column])
    if part < _STRIPS:
        return (part << _POSITION) + (word & ((1 << _POSITION) - 1))
    if part == 2 * _STRIPS:
        return _tail(rng)
    return _wedge(rng, part - _STRIPS, first, second)


def _integer(rng: np.random.Generator, bits: int) -> int:
    """Draw an integer of so many bits."""
    whole = 0
    for word in _words(rng, -(-bits // 64)).tolist():
        whole = whole << 64 | word
    return whole >> (-bits % 64)


def _wedge(rng: np.random.Generator, strip: int, first: int, second: int) -> int:
    """Draw a cell of a wedge by rejection; the words, if any, are the first digits of position and height."""
    import mpmath

    with mpmath.workprec(_BITS + 64):
        low, high = mpmath.mpf(strip) / 16, mpmath.mpf(strip + 1) / 16
        top = mpmath.expm1((high**2 - low**2) / 2)
        while True:
            known = first or second
            position, height = (
                mpmath.ldexp((word << 192 | _integer(rng, 192)) if known else _integer(rng, 256), -256)
                for word in (first, second)
            )
            z = low + position / 16
            if height * top < mpmath.expm1((high**2 - z**2) / 2):
                return (strip << _POSITION) + int(mpmath.floor(mpmath.ldexp(position, _POSITION)))
            first = second = 0


def _tail(rng: np.random.Generator) -> int:
    """Draw a cell beyond the last strip by rejection from an exponential variable (Marsaglia 1964)."""
    import mpmath

    with mpmath.workprec(_BITS + 64):
        while True:
            along, height = (-mpmath.log(mpmath.ldexp(_integer(rng, 256) + 1, -256)) for _ in range(2))
            along /= _EDGE
            if 2 * height > along**2:
                return int(mpmath.floor((_EDGE + along) * mpmath.mpf(STEPS)))
