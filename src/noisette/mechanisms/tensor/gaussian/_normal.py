"""Real Gaussian noise rounded down to a fine lattice: exact, and as quick as a generator of normal variables.

floor(n + N) = n + floor(N) for an integer n: adding floor(N) to lattice points is post-processing of adding a real
normal variable N, so it is exactly as private, with no allowance for the lattice. The area under the density is cut
into strips of width 1/16 on either side of zero, each a rectangle with a wedge on top, and a tail beyond 8. One word of
64 bits chooses among them by the alias method, with a table of 256 bits, and gives the position within a rectangle; a
wedge is sampled by rejection. What float64 cannot decide, about 1 in 10^7 draws, is decided with more digits. The law
of a draw is within 2^-240 of the stated one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from noisette._random import bits64
from noisette._validate import FloatArray

STEPS = 2.0**36  # of the lattice in a standard deviation
_POSITION = 32  # bits of the position within a strip: 2^32 steps are 1/16
_STRIPS = 128  # on each side of zero
_EDGE = 8  # where the tail begins
_COLUMNS = 512
_BITS = 256
_SHOWN = 22  # bits of a threshold that a word is compared with first
BLOCK = 1 << 14  # entries that are given noise by one thread, with words that a core's cache holds
_AT_A_TIME = 4  # blocks whose words are drawn in one go, and that threads share
FARTHEST = 2.0**62  # steps: what is farther from zero is moved there, so that integers of 64 bits hold all

Words = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class AliasTable:
    """Alias table: column c is its own part below ``thresholds[c]``, else part ``alias[c]``."""

    thresholds: tuple[int, ...]  # of 2^(256 - 9)
    alias: npt.NDArray[np.int64]
    shown: npt.NDArray[np.int64]  # the first 22 bits of the thresholds


def add_noise(values: FloatArray, rng: np.random.Generator, *, sigma: float = 1.0, unit: float = 1.0) -> None:
    """Round values to the lattice of 2^-36 sigma, add normal noise of that deviation, and divide by ``unit``, in place.

    ``values`` is flat and contiguous; what is more than 2^26 sigma from zero is moved there.
    """
    add_noise_to_all([values], rng, sigma=sigma, unit=unit)


def add_noise_to_all(
    rows: Sequence[npt.NDArray[Any]],
    rng: np.random.Generator,
    *,
    sigma: float,
    unit: float,
    step: float = 0.0,
    threads: int = 1,
) -> None:
    """Do as `add_noise` to some rows; where ``step`` is given, each result is rounded to a multiple of it.

    A row in single precision gets what it would get in double precision, rounded at the end. Several threads share the
    blocks of long rows: the words of each block are drawn before, by this thread and in the order of the entries, so
    that no two blocks share one, and what an entry gets does not depend on how many threads there are.
    """
    from noisette.mechanisms.tensor.gaussian._loops import add_blocks

    table, scale, multiple = build_table(), STEPS / sigma, sigma / STEPS / unit
    pending, open_draws, counts, kept = _room()
    for pieces in _packed(rows):
        drawn, start = bits64(rng, sum(map(_words_of_row, pieces)), kept), 0
        for piece in pieces:
            size, blocks = _words_of_row(piece), max(-(-piece.size // BLOCK), 1)
            words = drawn[start : start + size]
            start += size
            given = piece, scale, multiple, step, words, pending, open_draws, counts
            add_blocks(*given, places=blocks, threads=threads)
            for block in range(blocks):
                first_word, place_of = block * words_of(BLOCK), block * BLOCK
                for at, part, first, second in pending[block, : counts[block]].tolist():
                    word, place = int(words[first_word + at]), place_of + at
                    cell = _settle(rng, table, word, part, first, second)
                    noise = -cell - 1 if word >> 41 & 1 else cell
                    whole = round(min(max(float(piece[place]) * scale, -FARTHEST), FARTHEST))
                    made = (whole + (noise + 0.5)) * multiple  # rounded as in the loop: else it shows who came here
                    piece[place] = round(made) * step if step > 0 else made


def words_of(size: int) -> int:
    """Return how many words are drawn for a block of values: one for each, and spare ones for wedges."""
    return size + size // 4 + 64


def _words_of_row(row: npt.NDArray[Any]) -> int:
    """Return how many words are drawn for the blocks of a row; one block of none where it is empty."""
    whole, rest = divmod(row.size, BLOCK)
    return whole * words_of(BLOCK) + (words_of(rest) if rest or not whole else 0)


def _packed(rows: Sequence[npt.NDArray[Any]]) -> Iterator[list[npt.NDArray[Any]]]:
    """Yield parts that stay in a cache with their random words: short rows together, long rows in blocks."""
    found: list[npt.NDArray[Any]] = []
    room = BLOCK
    for row in rows:
        if row.size > BLOCK:
            if found:
                yield found
                found, room = [], BLOCK
            for start in range(0, row.size, _AT_A_TIME * BLOCK):
                yield [row[start : start + _AT_A_TIME * BLOCK]]
            continue
        if row.size > room:
            yield found
            found, room = [], BLOCK
        found.append(row)
        room -= row.size
    if found:
        yield found


_own = threading.local()


def _room() -> tuple[Words, npt.NDArray[np.uint8], npt.NDArray[np.int64], Words]:
    """Return memory that this thread keeps, for open draws and for random words: new memory each time is slow."""
    if not hasattr(_own, "room"):
        _own.room = (
            np.empty((_AT_A_TIME, BLOCK + 1, 4), dtype=np.uint64),
            np.empty((_AT_A_TIME, BLOCK + 1), dtype=np.uint8),
            np.empty(_AT_A_TIME, dtype=np.int64),
            np.empty(_AT_A_TIME * words_of(BLOCK) + 2, dtype=np.uint64),
        )
    room: tuple[Words, npt.NDArray[np.uint8], npt.NDArray[np.int64], Words] = _own.room
    return room


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
    """Return the cell of a draw that the quick path left open: in a rectangle, in a wedge or in the tail.

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
    """Draw an integer of this many bits."""
    whole = 0
    for word in bits64(rng, -(-bits // 64)).tolist():
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
