"""The loop that adds noise, as machine code; numba is imported with this module only, when noise is first drawn."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from noisette.mechanisms._compiled import compiled
from noisette.mechanisms._team import Loop, in_parts
from noisette.mechanisms.tensor.gaussian._normal import BLOCK, FARTHEST, build_table, words_of

_UNSURE = 2.0**-40  # float64 errs by less than 2^-44 in the comparison of a wedge
_SPANS = np.array([(2 * strip + 1) / 512 for strip in range(128)])  # half of what z^2 gains in a strip
_TOPS = np.expm1(_SPANS)
# a constant of the machine code, so that its reads need not wait for the writes: thresholds before aliases
_TABLE = build_table().shown << 16 | build_table().alias


def _add(
    values: npt.NDArray[Any],
    scale: float,
    unit: float,
    step: float,
    words: npt.NDArray[np.uint64],
    spare: npt.NDArray[np.uint64],
    pending: npt.NDArray[np.uint64],
    open_draws: npt.NDArray[np.uint8],
) -> int:
    """Round ``scale`` times the values to whole numbers, add rounded normal noise, and multiply by ``unit``, in place.

    Where ``step`` is above 0, the product is rounded to a whole number of steps. The function returns how many draws
    are left ``pending``, each as place, part and two words; the values there are unchanged. ``pending`` and
    ``open_draws`` have one row more than there are values. Values in single precision are read exactly and computed
    with in double precision; what is written is rounded, after the noise.

    A word has 32 bits for the position, 9 for the column, 1 for the sign, and 22 to compare with the threshold. All
    draws are made as if they fell into a rectangle, several at a time in the processor's vectors. The 1 in 40 that do
    not fall into one are listed, keep their value and are drawn afterwards. Sums of whole numbers, here and below, may
    be rounded: what is released is a function of the exact sum, which is private.
    """
    for place in range(values.size):
        word = words[place]
        column = np.int64((word >> np.uint64(32)) & np.uint64(511))
        entry = _TABLE[column]
        chance, limit, other = np.int64(word >> np.uint64(42)), entry >> 16, entry & 65535
        part = column if chance < limit else other
        cell = ((part & 127) << 32) + np.int64(word & np.uint64(0xFFFFFFFF))
        value: Any = np.float64(values[place])
        whole = value * scale
        whole = FARTHEST if whole > FARTHEST else whole
        whole = np.rint(-FARTHEST if whole < -FARTHEST else whole)
        made = (whole + (np.float64(cell ^ -np.int64((word >> np.uint64(41)) & np.uint64(1))) + 0.5)) * unit
        made = np.rint(made) * step + 0.0 if step > 0 else made
        is_open = (part >= 128) | (chance == limit)
        values[place] = value if is_open else made
        open_draws[place] = is_open
    count = np.int64(0)
    for place in range(values.size):
        pending[count, 0] = place
        count += open_draws[place]
    left, next_spare = 0, 0
    for which in range(count):
        at = np.int64(pending[which, 0])
        value = np.float64(values[at])
        word = words[at]
        column = np.int64((word >> np.uint64(32)) & np.uint64(511))
        chance, limit = np.int64(word >> np.uint64(42)), _TABLE[column] >> 16
        part = column if chance < limit else _TABLE[column] & 65535
        first = second = np.uint64(0)
        position = np.int64(-1)
        if chance == limit:
            part = np.int64(512)
        elif part < 256:
            low, high = (part - 128) / 16, (part - 127) / 16
            span, top = _SPANS[part - 128], _TOPS[part - 128]
            while position < 0 and next_spare + 1 < spare.size:
                first, second = spare[next_spare], spare[next_spare + 1]
                next_spare += 2
                z = low + np.float64(first >> np.uint64(11)) * 2.0**-57
                height = np.float64(second >> np.uint64(11)) * 2.0**-53
                under = (high * high - z * z) / 2
                gap = under / top - height  # expm1 lies above its argument
                if gap <= _UNSURE:
                    gap = under / span - height  # and below its chord
                    if gap >= -_UNSURE:
                        gap = math.expm1(under) / top - height
                if gap > _UNSURE:
                    position = np.int64(first >> np.uint64(32))
                elif gap > -_UNSURE:
                    break
                else:
                    first = second = np.uint64(0)
        if position < 0:
            pending[left, 0], pending[left, 1], pending[left, 2], pending[left, 3] = at, part, first, second
            left += 1
            continue
        cell = ((part & 127) << 32) + position
        whole = value * scale
        whole = FARTHEST if whole > FARTHEST else whole
        whole = np.rint(-FARTHEST if whole < -FARTHEST else whole)
        made = (whole + (np.float64(cell ^ -np.int64((word >> np.uint64(41)) & np.uint64(1))) + 0.5)) * unit
        values[at] = np.rint(made) * step + 0.0 if step > 0 else made
    return left


add = compiled(_add)
_words_of = compiled(words_of)


def _add_blocks(
    values: npt.NDArray[Any],
    scale: float,
    unit: float,
    step: float,
    words: npt.NDArray[np.uint64],
    pending: npt.NDArray[np.uint64],
    open_draws: npt.NDArray[np.uint8],
    counts: npt.NDArray[np.int64],
    low: int,
    high: int,
) -> None:
    """Do as `_add` to some blocks of values, each with words and room of its own; fill how many draws are open."""
    whole = _words_of(BLOCK)
    for block in range(low, high):
        first = block * BLOCK
        size = min(BLOCK, values.size - first)
        own = words[block * whole : block * whole + _words_of(size)]
        piece = values[first : first + size]
        counts[block] = add(piece, scale, unit, step, own[:size], own[size:], pending[block], open_draws[block])


_blocks = compiled(_add_blocks)
add_blocks = Loop(_blocks, compiled(lambda given, team: in_parts(_blocks, given, team)))
