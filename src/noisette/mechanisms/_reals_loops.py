"""The loop that draws normal variables with their digits, as machine code; numba is imported with this module only."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from noisette._validate import FloatArray
from noisette.mechanisms._compiled import compiled

_UNSURE = 2.0**-40  # float64, and the digits not yet drawn, move the comparison of a wedge by less than 2^-44

Words = npt.NDArray[np.uint64]


def _draw(
    words: Words,
    halves: Words,
    spare: Words,
    shown: npt.NDArray[np.int64],
    alias: npt.NDArray[np.int64],
    near: FloatArray,
    parts: npt.NDArray[np.uint8],
    positions: Words,
    pending: npt.NDArray[np.int64],
) -> int:
    """Draw a strip, the first 64 digits of a position in it, and a sign.

    Of a word the bits are: 32 the position, 9 the column, 1 the sign, 22 to compare with the threshold; half a word
    holds 32 digits more of the position. Returns how many draws are left ``pending``: place, part, and where the words
    are that a wedge was tried with, -1 if nowhere.
    """
    left, next_spare = 0, 0
    for place in range(words.size):
        word = words[place]
        more = halves[place >> 1]
        more = more >> np.uint64(32) if place & 1 else more & np.uint64(0xFFFFFFFF)
        column = np.int64((word >> np.uint64(32)) & np.uint64(511))
        chance = np.int64(word >> np.uint64(42))
        own = np.int64(chance < shown[column])
        part = alias[column] + own * (column - alias[column])  # no branch: a processor cannot foresee it
        position = ((word & np.uint64(0xFFFFFFFF)) << np.uint64(32)) | more
        if part >= 128 or chance == shown[column]:
            tried, kept = -1, False
            if chance == shown[column]:
                part = np.int64(512)
            elif part < 256:
                low, high = (part - 128) / 16, (part - 127) / 16
                top = math.expm1((high * high - low * low) / 2)
                while not kept and next_spare + 1 < spare.size:
                    tried = next_spare
                    next_spare += 2
                    position, height = spare[tried], spare[tried + 1]
                    z = low + np.float64(position >> np.uint64(11)) * 2.0**-57
                    gap = math.expm1((high * high - z * z) / 2) / top - np.float64(height >> np.uint64(11)) * 2.0**-53
                    kept = bool(gap > _UNSURE)
                    if not kept and gap > -_UNSURE:
                        break
                    if not kept:
                        tried = -1
            if not kept:
                pending[left, 0], pending[left, 1], pending[left, 2] = place, part, tried
                left += 1
                parts[place] = 255
                positions[place] = 0
                near[place] = 0.0
                continue
            part -= 128
        size = (np.float64(part) + np.float64(position) * 2.0**-64) * 0.0625
        near[place] = -size if word & np.uint64(0x20000000000) else size
        parts[place] = part
        positions[place] = position
    return left


draw = compiled(_draw)
