"""Uniform subsets that contain one item or leave it out, by Floyd's algorithm: as many steps as the subset has items.

Step j of n draws an integer below N - n + j + 1; one that was drawn before is replaced by the largest that this step
allows. An integer is drawn from 16 or 32 random bits, and again from spare ones where these are in the uneven rest
(Lemire 2019); a row that has none to spare is drawn anew, whole.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from noisette._validate import IntArray
from noisette.domains import BoolArray
from noisette.mechanisms._base import BLOCK, blocks

LARGEST = 1 << 31  # number of items
_WORD = 64  # bits
_DE_BRUIJN = 0x03F79D71B4CB0A89  # 64 bits in which each six in a row occur once
_COMPILED_FROM = 2048  # numbers, from which on machine code is worth its start
_SIXTEEN_BITS_SUFFICE = 1 << 12  # product of size and length, up to which 16 bits are enough but for one row in 16
_SELDOM = 1 << 26  # and up to which 32 bits are enough but for one in 64


def bits_and_draws(size: int, length: int) -> tuple[int, int]:
    """Return how many bits an integer is drawn from, and how many draws a row has at least, with some to spare.

    >>> bits_and_draws(100, 27), bits_and_draws(100, 50), bits_and_draws(1_000_000, 500_000)
    ((16, 27), (32, 50), (32, 500241))
    """
    product = size * length
    if product <= _SIXTEEN_BITS_SUFFICE:
        return 16, length
    return 32, length + (0 if product <= _SELDOM else 8 + math.ceil(product / 2**31))


def fill_subsets(rng: np.random.Generator, items: IntArray, own: BoolArray, size: int, out: npt.NDArray[Any]) -> None:
    """Write a uniform subset of the integers below ``size`` in each row, increasing, with the row's item where ``own``.

    All subsets of a row's length that contain its item, or leave it out, are equally likely.
    """
    length = out.shape[1]
    fill = _compiled() if out.size >= _COMPILED_FROM else _fill_few
    exact = np.empty(len(items), dtype=bool)
    for part in blocks(len(items), max(1, 4 * BLOCK // length)):
        exact[part] = _filled(fill, rng, items[part], own[part], size, out[part])
    again = np.flatnonzero(~exact)
    while again.size:
        rows = np.empty((again.size, length), dtype=np.int64)
        enough = _filled(fill, rng, items[again], own[again], size, rows)
        out[again] = rows
        again = again[~enough]


def _filled(fill: Any, rng: np.random.Generator, items: IntArray, own: BoolArray, size: int, rows: Any) -> BoolArray:
    """Fill rows, and tell which of them had bits enough."""
    bits, draws = bits_and_draws(size, rows.shape[1])
    words = rng.integers(0, 2**64 - 1, (len(rows), -(-draws * bits // 64)), dtype=np.uint64, endpoint=True)
    drawn = words.view(f"<u{bits // 8}")
    exact = np.ones(len(rows), dtype=bool)
    fill(drawn, bits, items, own, size, rows, exact)
    return exact


def _fill_few(
    drawn: npt.NDArray[Any], bits: int, items: IntArray, own: BoolArray, size: int, rows: IntArray, exact: BoolArray
) -> None:
    """Fill few rows, all of them step by step."""
    length, unit = rows.shape[1], 1 << bits
    spare = np.full(len(rows), length)  # the next draw of each row that no step has
    for step in range(length):
        bound = size - length + step + own.astype(np.int64)  # the own item, if it is in, takes the last place
        product = drawn[:, step] * bound
        uneven = (product & (unit - 1)) < unit % bound
        pending = np.flatnonzero(uneven & ~own if step == length - 1 else uneven)
        while pending.size:
            exact[pending[spare[pending] == drawn.shape[1]]] = False
            pending = pending[exact[pending]]
            product[pending] = drawn[pending, spare[pending]] * bound[pending]
            spare[pending] += 1
            pending = pending[(product[pending] & (unit - 1)) < unit % bound[pending]]
        values = product >> bits
        top = bound - 1
        values, top = (numbers + (numbers >= items) for numbers in (values, top))
        values = np.where((rows[:, :step] == values[:, None]).any(axis=1), top, values)
        rows[:, step] = np.where(own & (step == length - 1), items, values)
    rows.sort(axis=1)


@cache
def _compiled() -> Any:
    """Return the same for many rows, as machine code."""
    from noisette.mechanisms._compiled import compiled

    inner, short = compiled(_fill_many), compiled(_fill_short)

    def fill(drawn: Any, bits: int, items: Any, own: Any, size: int, rows: Any, exact: Any) -> None:
        if size <= 2 * _WORD:
            short(drawn, bits, items, own, size, rows, exact, _places())
            return
        scan = size <= 16 * rows.shape[1]  # then looking at all items is quicker than sorting
        inner(drawn, bits, items, own, size, rows, exact, np.zeros(size, dtype=np.uint32), scan)
        if not scan:
            rows.sort(axis=1)

    return fill


@cache
def _places() -> IntArray:
    """Return for each power of two, by the top six bits of its product with a de Bruijn number, its exponent."""
    found = np.zeros(_WORD, dtype=np.int64)
    for place in range(_WORD):
        found[((_DE_BRUIJN << place) & (2**_WORD - 1)) >> (_WORD - 6)] = place
    return found


def _fill_short(
    drawn: Any, bits: int, items: Any, own: Any, size: int, rows: Any, exact: Any, places: IntArray
) -> None:
    """Fill rows of up to 128 items as `_fill_many` does; what a row has are the bits of two words."""
    length, unit, enough = rows.shape[1], np.int64(1) << bits, drawn.shape[1]
    one, number = np.uint64(1), np.uint64(_DE_BRUIJN)
    for row in range(rows.shape[0]):
        item, spare = items[row], length
        low = high = np.uint64(0)
        count = length - np.int64(own[row])
        for step in range(count):
            bound = np.int64(size - count + step)
            product = np.int64(drawn[row, step]) * bound
            if product & (unit - 1) < bound:  # seldom
                while product & (unit - 1) < unit % bound and exact[row]:
                    exact[row] = spare < enough
                    product = np.int64(drawn[row, min(spare, enough - 1)]) * bound
                    spare += 1
            value, top = product >> bits, bound - 1
            value += np.int64(value >= item)
            top += np.int64(top >= item)
            word = low ^ ((low ^ high) & np.uint64(-(value >> 6)))  # the one that has the value's bit
            value += np.int64((word >> np.uint64(value & 63)) & one) * (top - value)
            bit, upper = one << np.uint64(value & 63), np.uint64(-(value >> 6))
            high |= bit & upper
            low |= bit & ~upper
        if count < length:
            bit, upper = one << np.uint64(item & 63), np.uint64(-(item >> 6))
            high |= bit & upper
            low |= bit & ~upper
        found = 0
        for half in range(2):
            word = high if half else low
            while word:
                bit = word & (~word + one)
                rows[row, found] = 64 * half + places[(bit * number) >> np.uint64(58)]
                found += 1
                word ^= bit


def _fill_many(
    drawn: Any, bits: int, items: Any, own: Any, size: int, rows: Any, exact: Any, seen: Any, scan: bool
) -> None:
    """Fill rows one after the other; ``seen`` holds for each item the last row that has it."""
    length, unit, enough = rows.shape[1], np.int64(1) << bits, drawn.shape[1]
    for row in range(rows.shape[0]):
        item, mark, spare = items[row], np.uint32(row + 1), length
        count = length - np.int64(own[row])
        for step in range(count):
            bound = np.int64(size - count + step)
            product = np.int64(drawn[row, step]) * bound
            if product & (unit - 1) < bound:  # seldom
                while product & (unit - 1) < unit % bound and exact[row]:
                    exact[row] = spare < enough
                    product = np.int64(drawn[row, min(spare, enough - 1)]) * bound
                    spare += 1
            value, top = product >> bits, bound - 1
            value += np.int64(value >= item)
            top += np.int64(top >= item)
            value += np.int64(seen[value] == mark) * (top - value)  # no branch: a processor cannot foresee it
            seen[value] = mark
            rows[row, step] = value
        if count < length:
            seen[item] = mark
            rows[row, count] = item
        if scan:
            found, look = np.int64(0), 0
            while found < length:
                rows[row, found] = look
                found += np.int64(seen[look] == mark)
                look += 1
