"""The loop that adds noise, as machine code; numba is imported with this module only, when noise is first drawn."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from numba import njit

from noisette._validate import FloatArray

_UNSURE = 2.0**-40  # float64 errs by less than 2^-44 in the comparison of a wedge


def _add(
    values: FloatArray,
    scale: float,
    unit: float,
    words: npt.NDArray[np.uint64],
    spare: npt.NDArray[np.uint64],
    shown: npt.NDArray[np.int64],
    alias: npt.NDArray[np.int64],
    pending: npt.NDArray[np.uint64],
) -> int:
    """Round ``scale`` times the values to whole numbers, add rounded normal noise, and multiply by ``unit``.

    Returns how many draws are left ``pending``: place, part, two words.
    Of a word the bits are: 32 the position, 9 the column, 1 the sign, 22 to compare with the threshold.
    """
    left, next_spare = 0, 0
    for place in range(values.size):
        word = words[place]
        position = np.int64(word & np.uint64(0xFFFFFFFF))
        column = np.int64((word >> np.uint64(32)) & np.uint64(511))
        sign = np.int64((word >> np.uint64(41)) & np.uint64(1))
        chance = np.int64(word >> np.uint64(42))
        own = np.int64(chance < shown[column])
        part = alias[column] + own * (column - alias[column])  # no branch: a processor cannot foresee it
        if part >= 128 or chance == shown[column]:
            first = second = np.uint64(0)
            position = np.int64(-1)
            if chance == shown[column]:
                part = np.int64(512)
            elif part < 256:
                low, high = (part - 128) / 16, (part - 127) / 16
                top = math.expm1((high * high - low * low) / 2)
                while position < 0 and next_spare + 1 < spare.size:
                    first, second = spare[next_spare], spare[next_spare + 1]
                    next_spare += 2
                    z = low + np.float64(first >> np.uint64(11)) * 2.0**-57
                    gap = math.expm1((high * high - z * z) / 2) / top - np.float64(second >> np.uint64(11)) * 2.0**-53
                    if gap > _UNSURE:
                        position = np.int64(first >> np.uint64(32))
                    elif gap > -_UNSURE:
                        break
                    else:
                        first = second = np.uint64(0)
            if position < 0:
                pending[left, 0], pending[left, 1], pending[left, 2], pending[left, 3] = place, part, first, second
                left += 1
                continue
        cell = ((part & 127) << 32) + position
        noise = cell ^ -sign  # -cell - 1 for a negative one
        values[place] = (np.int64(np.rint(values[place] * scale)) + noise + 0.5) * unit
    return left


try:
    add = njit(cache=True, nogil=True)(_add)
except RuntimeError:  # no directory can be written
    add = njit(nogil=True)(_add)
