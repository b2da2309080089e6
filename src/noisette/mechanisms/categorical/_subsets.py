"""Uniform subsets that contain one item or leave it out.

By Floyd's algorithm, in as many steps as the subset has items: step j of n draws an integer below N - n + j + 1; one
that was drawn before is replaced by the largest that this step allows. An integer is drawn from 16 or 32 random bits,
and again from spare ones where these are in the uneven rest (Lemire 2019); a row that has none to spare is drawn anew,
whole.

Many long subsets of up to 128 items are quicker by masks: each item is in with about the chance that is wanted,
independently, by a few random words; then items drawn at random are added, or taken out, until as many are in as there
should be. No step treats two items differently, so all subsets of that number are equally likely.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from noisette import _random
from noisette._validate import IntArray
from noisette.domains import BoolArray
from noisette.mechanisms._base import BLOCK, blocks

LARGEST = 1 << 31  # number of items
_WORD = 64  # bits
_MASK = 2 * _WORD  # items of a subset that is drawn by masks, at most
_FEW_TRIES = 3  # words of them for a subset, up to which masks are quicker
_SIXTEENTHS = 16  # in which the chance of an item is rounded: four random words for 64 items
_TRIES = 8  # of adding an item, from one word
_DE_BRUIJN = 0x03F79D71B4CB0A89  # 64 bits in which each six in a row occur once
_COMPILED_FROM = 2048  # numbers, from which on machine code is worth its start
_SIXTEEN_BITS_SUFFICE = 1 << 12  # product of size and length, up to which 16 bits are enough but for one row in 16
_THIRTY_TWO_BITS_SUFFICE = 1 << 26  # and up to which 32 bits are enough but for one in 64


def bits_and_draws(size: int, length: int) -> tuple[int, int]:
    """Return how many bits an integer is drawn from, and how many draws a row has at least, with some to spare.

    >>> bits_and_draws(100, 27), bits_and_draws(100, 50), bits_and_draws(1_000_000, 500_000)
    ((16, 27), (32, 50), (32, 500241))
    """
    product = size * length
    if product <= _SIXTEEN_BITS_SUFFICE:
        return 16, length
    return 32, length + (0 if product <= _THIRTY_TWO_BITS_SUFFICE else 8 + math.ceil(product / 2**31))


def fill_subsets(rng: np.random.Generator, items: IntArray, own: BoolArray, size: int, out: npt.NDArray[Any]) -> None:
    """Write a uniform subset of the integers below ``size`` in each row, increasing, with the row's item where ``own``.

    All subsets of a row's length that contain its item, or leave it out, are equally likely.
    """
    length = out.shape[1]
    fill = _compiled() if out.size >= _COMPILED_FROM else _fill_few
    exact = np.empty(len(items), dtype=bool)
    for block in blocks(len(items), max(1, 4 * BLOCK // length)):
        exact[block] = _filled(fill, rng, items[block], own[block], size, out[block])
    again = np.flatnonzero(~exact)
    while again.size:
        rows = np.zeros((again.size, length), dtype=np.int64)
        enough = _filled(fill, rng, items[again], own[again], size, rows)
        out[again] = rows
        again = again[~enough]


def _filled(fill: Any, rng: np.random.Generator, items: IntArray, own: BoolArray, size: int, rows: Any) -> BoolArray:
    """Fill rows, and tell which of them had bits enough."""
    exact = np.ones(len(rows), dtype=bool)
    bits, chance, spare = mask_words(size, rows.shape[1])
    if fill is not _fill_few and spare <= _FEW_TRIES:
        words = _random.bits64(rng, len(rows) * (2 * bits + spare))
        masks, tries = words[: 2 * bits * len(rows)].reshape(len(rows), -1), words[2 * bits * len(rows) :]
        _compiled_masks()(masks, chance, tries.view(np.uint8), items, own, size, rows, exact, _places())
        return exact
    bits, draws = bits_and_draws(size, rows.shape[1])
    words = _random.bits64(rng, len(rows) * -(-draws * bits // 64))
    fill(words.reshape(len(rows), -1).view(f"<u{bits // 8}"), bits, items, own, size, rows, exact)
    return exact


@cache
def mask_words(size: int, length: int) -> tuple[int, int, int]:
    """Return how a subset is drawn by masks: of a chance c / 2^b of an item b and c, and words for tries to mend it.

    Least is the expected number of tries: an item that is to be added, or taken out, is one of 128 drawn at random.

    >>> mask_words(100, 27), mask_words(100, 50)
    ((2, 1, 2), (1, 1, 2))
    """
    if size > _MASK:
        return 0, 0, size  # there is no such mask
    found = []
    for chance in range(1, _SIXTEENTHS):
        share = chance / _SIXTEENTHS
        mass = np.asarray([math.comb(size, many) * share**many * (1 - share) ** (size - many) for many in range(size)])
        gap = length - np.arange(size)
        tries = np.where(gap > 0, gap / max(size - length, 1), -gap / length) * _MASK
        shift = (chance & -chance).bit_length() - 1
        found.append((float(mass @ tries), _SIXTEENTHS.bit_length() - 1 - shift, chance >> shift))
    expected, bits, chance = min(found, key=lambda one: one[0] + 2 * one[1])
    return bits, chance, math.ceil(1.25 * expected / _TRIES)


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

    inner = compiled(_fill_many)

    def fill(drawn: Any, bits: int, items: Any, own: Any, size: int, rows: Any, exact: Any) -> None:
        scan = size <= 16 * rows.shape[1]  # then looking at all items is quicker than sorting
        inner(drawn, bits, items, own, size, rows, exact, np.zeros(size, dtype=np.uint32), scan)
        if not scan:
            rows.sort(axis=1)

    return fill


@cache
def _compiled_masks() -> Any:
    from noisette.mechanisms._compiled import compiled

    return compiled(_fill_masks)


@cache
def _places() -> IntArray:
    """Return for each power of two, by the top six bits of its product with a de Bruijn number, its exponent."""
    found = np.zeros(_WORD, dtype=np.int64)
    for place in range(_WORD):
        found[((_DE_BRUIJN << place) & (2**_WORD - 1)) >> (_WORD - 6)] = place
    return found


def _fill_masks(
    masks: Any, chance: int, tries: Any, items: Any, own: Any, size: int, rows: Any, exact: Any, places: IntArray
) -> None:
    """Fill rows of up to 128 items: what a row has are the bits of two words. All rows share the tries."""
    length, next_try = rows.shape[1], 0
    none, one, number = np.uint64(0), np.uint64(1), np.uint64(_DE_BRUIJN)
    all_low = ~none if size >= _WORD else (one << np.uint64(size)) - one
    all_high = none if size <= _WORD else ~none >> np.uint64(2 * _WORD - size)
    for row in range(rows.shape[0]):
        item = items[row]
        bit, upper = one << np.uint64(item & 63), np.uint64(-(item >> 6))
        item_low, item_high = bit & ~upper, bit & upper
        may_low, may_high = all_low & ~item_low, all_high & ~item_high
        low = high = none
        for place in range(masks.shape[1] // 2):  # each turns a chance c into c / 2 or (1 + c) / 2
            if (chance >> place) & 1:
                low, high = low | masks[row, 2 * place], high | masks[row, 2 * place + 1]
            else:
                low, high = low & masks[row, 2 * place], high & masks[row, 2 * place + 1]
        low, high = low & may_low, high & may_high
        gap = length - np.int64(own[row])
        for word in (low, high):  # less the number of its bits
            word = word - ((word >> one) & np.uint64(0x5555555555555555))
            word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
            word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
            gap -= np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))
        turned = ~none if gap < 0 else none  # too many: items are added to those that are out
        low, high, gap = low ^ (turned & may_low), high ^ (turned & may_high), abs(gap)
        while gap > 0 and next_try < tries.size:
            drawn = np.int64(tries[next_try])
            next_try += 1
            bit, upper = one << np.uint64(drawn & 63), np.uint64(-((drawn >> 6) & 1))
            new_low, new_high = bit & ~upper & may_low & ~low, bit & upper & may_high & ~high
            low, high = low | new_low, high | new_high
            gap -= np.int64((new_low | new_high) != none)
        exact[row] = gap == 0
        if gap:
            continue
        low, high = low ^ (turned & may_low), high ^ (turned & may_high)
        if own[row]:
            low, high = low | item_low, high | item_high
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
