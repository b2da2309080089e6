"""Real random numbers whose digits are drawn as they are needed.

A real number that is computed from real random numbers and rounded to a lattice has the law of the real number itself,
rounded: what is proved of the real law holds for the report. To get there the first digits of each random number are
drawn, the result is computed in float64 with a bound on what that arithmetic and the digits not yet drawn may change,
and where the bound leaves open to which point it is rounded, more digits are drawn and intervals computed with them
until one point is left.

Digits that no decision looked at stay uniform and independent: the numbers here keep exactly those that were looked at.

Standard normal variables come from the strips of `noisette.mechanisms.tensor.gaussian._normal`: chances of 256 bits
choose a rectangle, a wedge or the tail, and within each the position is a real number. The least of these parts has a
mass above 2^-58, so the density of what is drawn is within a factor of 1 +- 2^-196 of the normal one, everywhere.
`SLACK` is a bound on what that may add to a log ratio of likelihoods, for one variable.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from noisette._validate import FloatArray
from noisette.mechanisms.tensor.gaussian._normal import AliasTable, build_table

SLACK = 2.0**-194
_BITS = 64  # of a position that are drawn at first
_COLUMNS, _STRIPS = 512, 128
_SHOWN, _TABLE_BITS = 22, 256 - 9
_FIRST_PRECISION = 192

Words = npt.NDArray[np.uint64]


def interval_arithmetic(precision: int) -> Any:
    """Return mpmath's interval arithmetic with this many bits, for the caller alone."""
    from mpmath.ctx_iv import MPIntervalContext

    context = MPIntervalContext()
    context.prec = precision
    return context


def log_of(context: Any, x: Any) -> Any:
    """Return an interval that holds the logarithms of another, wider by far than what mpmath's log may err by."""
    result = context.log(x)
    error = (abs(result) + context.mpf(1)) * context.mpf(2) ** (8 - context.prec)
    return result + context.mpf([-1, 1]) * error


def exp_of(context: Any, x: Any) -> Any:
    """Return an interval that holds the exponentials of another, with the same allowance for mpmath's exp."""
    result = context.exp(x)
    return result * (1 + context.mpf([-1, 1]) * context.mpf(2) ** (8 - context.prec))


def ends(x: Any) -> tuple[Any, Any]:
    """Return the ends of an interval as mpmath's plain numbers, with all their digits whatever its precision is."""
    import mpmath

    low, high = x._mpi_
    return mpmath.mp.make_mpf(low), mpmath.mp.make_mpf(high)


def floors(x: Any) -> tuple[int, int]:
    """Return the floors of both ends of an interval."""
    from mpmath.libmp import round_floor, to_int

    low, high = x._mpi_
    return int(to_int(low, round_floor)), int(to_int(high, round_floor))


def decided(x: Any) -> bool | None:
    """Tell whether all of an interval is above zero, or below; None if it holds zero."""
    low, high = ends(x)
    return True if low > 0 else False if high < 0 else None


def precisions() -> Iterator[int]:
    """Yield more and more bits to compute with."""
    precision = _FIRST_PRECISION
    while True:
        yield precision
        precision *= 2


class Digits:
    """A real number uniform on [0, 1), of which ``count`` binary digits are known."""

    def __init__(self, rng: np.random.Generator, digits: int = 0, count: int = 0) -> None:
        self._rng, self.digits, self.count = rng, digits, count

    @classmethod
    def of_float(cls, rng: np.random.Generator, uniform: float) -> Digits:
        """Return the number whose first 53 digits are those of ``rng.random()``."""
        return cls(rng, int(uniform * 2**53), 53)

    def reach(self, count: int) -> None:
        """Draw digits until this many are known."""
        while self.count < count:
            self.digits = self.digits << 64 | int(self._rng.integers(0, 2**64, dtype=np.uint64))
            self.count += 64

    def within(self, context: Any) -> Any:
        """Return the interval of what is known."""
        return context.mpf([self.digits, self.digits + 1]) * context.mpf(2) ** -self.count


class Beyond:
    """Size of a normal variable in its tail: 8 - ln(U)/8, by rejection (Marsaglia 1964)."""

    def __init__(self, rng: np.random.Generator) -> None:
        while True:
            self._uniform, height = Digits(rng), Digits(rng)
            if self._kept(height):
                return

    def _kept(self, height: Digits) -> bool:
        for precision in precisions():
            for number in (self._uniform, height):
                number.reach(precision - 64)
            if not (self._uniform.digits and height.digits):
                continue
            context = interval_arithmetic(precision)
            along = log_of(context, self._uniform.within(context)) / 8
            kept = decided(-2 * log_of(context, height.within(context)) - along * along)
            if kept is not None:
                return kept
        raise AssertionError  # precisions never end

    def within(self, context: Any) -> Any:
        """Return an interval that holds the size."""
        self._uniform.reach(context.prec - 64)
        while not self._uniform.digits:
            self._uniform.reach(self._uniform.count + 64)
        return 8 - log_of(context, self._uniform.within(context)) / 8


class Inside:
    """Size of a normal variable in one of the strips: its left end and a position."""

    def __init__(self, strip: int, position: Digits) -> None:
        self._strip, self._position = strip, position

    def within(self, context: Any) -> Any:
        """Return an interval that holds the size."""
        self._position.reach(context.prec - 64)
        return (self._position.within(context) + self._strip) / 16


@dataclass
class NormalBlock:
    """Standard normal variables: near values, and the digits known of each size.

    ``near`` is off by at most 2^-52 of itself and 2^-68. ``parts`` holds the strip of each, or 255 where ``rare`` has
    the number itself.
    """

    rng: np.random.Generator
    near: FloatArray
    parts: npt.NDArray[np.uint8]
    positions: Words
    rare: dict[int, Inside | Beyond] = field(default_factory=dict)

    def row(self, number: int) -> NormalRow:
        """Return the variables of one row, whose digits can be continued."""
        columns = self.near.shape[1]
        places = slice(number * columns, (number + 1) * columns)
        rare = {place - places.start: self.rare[place] for place in self.rare if places.start <= place < places.stop}
        signs = np.where(np.signbit(self.near[number]), -1, 1).tolist()
        known = [
            int(part) << _BITS | position
            for part, position in zip(self.parts[number].tolist(), self.positions[number].tolist(), strict=True)
        ]
        return NormalRow(self.rng, signs, known, rare)


@dataclass
class NormalRow:
    """Some standard normal variables, all known to the same number of digits, but for rare ones."""

    rng: np.random.Generator
    signs: list[int]
    known: list[int]  # sizes in units of 2^-(bits + 4)
    rare: dict[int, Inside | Beyond]
    bits: int = _BITS

    def reach(self, bits: int) -> None:
        """Draw digits of every position until this many are known."""
        while self.bits < bits:
            more = self.rng.integers(0, 2**64, len(self.known), dtype=np.uint64).tolist()
            self.known = [old << 64 | new for old, new in zip(self.known, more, strict=True)]
            self.bits += 64

    def sizes(self, context: Any) -> tuple[list[int], list[int], int]:
        """Return limits below and above the sizes as integers, and how many binary digits are behind the point."""
        self.reach(context.prec - 64)
        low, high = self.known.copy(), [one + 1 for one in self.known]
        for place, number in self.rare.items():
            low[place], high[place] = floors(number.within(context) * context.mpf(2) ** (self.bits + 4))
            high[place] += 1
        return low, high, self.bits + 4


def draw_normals(rng: np.random.Generator, rows: int, columns: int) -> NormalBlock:
    """Draw standard normal variables, real numbers each."""
    from noisette.mechanisms._reals_loops import draw

    table, size = build_table(), rows * columns
    near, parts = np.empty(size), np.empty(size, dtype=np.uint8)
    positions, pending = np.empty(size, dtype=np.uint64), np.empty((size, 3), dtype=np.int64)
    words = rng.integers(0, 2**64, size + (size + 1) // 2, dtype=np.uint64)
    spare = rng.integers(0, 2**64, size // 6 + 64, dtype=np.uint64)
    first, second = words[:size], words[size:]
    count = draw(first, second, spare, table.shown, table.alias, near, parts, positions, pending)
    block = NormalBlock(
        rng, near.reshape(rows, columns), parts.reshape(rows, columns), positions.reshape(rows, columns)
    )
    for place, part, used in pending[:count].tolist():
        _settle(block, table, place, part, int(first[place]), spare[used : used + 2].tolist() if used >= 0 else [])
    return block


def _settle(block: NormalBlock, table: AliasTable, place: int, part: int, word: int, tried: list[int]) -> None:
    """Draw a variable that the loop left open: which part, which point of a wedge, or the tail.

    ``part`` is 512 where the threshold is a tie. ``tried`` are the words that a wedge was tried with last.
    """
    rng = block.rng
    row, column = divmod(place, block.near.shape[1])
    if part == _COLUMNS:
        own = word >> 32 & (_COLUMNS - 1)
        more = _TABLE_BITS - _SHOWN
        chance = Digits(rng)
        chance.reach(more)
        below = chance.digits >> (chance.count - more) < table.thresholds[own] & ((1 << more) - 1)
        part = own if below else int(table.alias[own])
    number: Inside | Beyond
    if part < _STRIPS:
        number = Inside(part, Digits(rng, word & 0xFFFFFFFF, 32))
    elif part < 2 * _STRIPS:
        number = Inside(part - _STRIPS, _wedge(rng, part - _STRIPS, tried))
    else:
        number = Beyond(rng)
    context = interval_arithmetic(_FIRST_PRECISION)
    size = float(ends(number.within(context))[0])
    block.near[row, column] = -size if word >> 41 & 1 else size
    block.rare[place] = number


def _wedge(rng: np.random.Generator, strip: int, tried: list[int]) -> Digits:
    """Draw the position within a wedge by rejection; the words, if any, are the first digits of position and height."""
    position, height = (Digits(rng, word, 64) for word in tried) if tried else (Digits(rng), Digits(rng))
    while True:
        for precision in precisions():
            for number in (position, height):
                number.reach(precision - 64)
            context = interval_arithmetic(precision)
            low, high = context.mpf(strip) / 16, context.mpf(strip + 1) / 16
            z = low + position.within(context) / 16
            top = exp_of(context, (high * high - low * low) / 2) - 1
            kept = decided(exp_of(context, (high * high - z * z) / 2) - 1 - height.within(context) * top)
            if kept is not None:
                break
        if kept:
            return position
        position, height = Digits(rng), Digits(rng)
