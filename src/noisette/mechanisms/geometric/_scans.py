"""The loops of spherical coordinates: running sums and products, and the turns between them, several at a time.

Numpy computes arc tangents, sines and cosines one function and one array at a time. Here a block is read and written
once, and loops without branches let the compiler work on as many numbers as fit a register. The polynomials interpolate
at Chebyshev nodes, computed with fifty digits; `tests/mechanisms/geometric/test_scans.py` holds them against mpmath.
"""

from __future__ import annotations

import math

import numpy as np

from noisette._validate import FloatArray
from noisette.mechanisms._compiled import compiled

LARGEST = 1e5  # angles up to this size are reduced by multiples of pi/2 without loss
LEAST, MOST = 1e-200, 1e200  # sums of squares between these have lost nothing

_QUARTER, _HALF = math.pi / 4, math.pi / 2
_EIGHTH = math.tan(math.pi / 8)
_HALF_1, _HALF_2, _HALF_3 = 1.5707963267341256, 6.07710049817245e-11, 8.333742918520879e-20  # pi/2, 30 bits at a time


def _turns(x: FloatArray, behind: float, out: FloatArray) -> None:
    """Write the angle at each entry, atan2(root of the sum of squares behind it, entry), given that behind the last."""
    for place in range(x.size - 1, -1, -1):
        out[place] = behind
        behind += x[place] * x[place]
    for place in range(x.size):
        entry, rest = x[place], math.sqrt(out[place])
        size = abs(entry)
        steep = rest > size
        low, high = (size, rest) if steep else (rest, size)
        middling = low > _EIGHTH * high  # beyond pi/8: take pi/4 off
        above, below = (low - high, low + high) if middling else (low, high)
        ratio = above / (below if below > 0 else 1.0)
        z = ratio * ratio
        angle = 0.056883492268090106 + z * (-0.04348052215716462 + z * 0.021135373157693246)
        angle = -0.09090773074808414 + z * (0.07689953496306857 + z * (-0.06640233930429408 + z * angle))
        angle = -0.14285714180976467 + z * (0.11111106180455946 + z * angle)
        angle = ratio * (1.0 + z * (-0.3333333333332844 + z * (0.1999999999885511 + z * angle)))
        angle = angle + _QUARTER if middling else angle
        angle = _HALF - angle if steep else angle
        out[place] = math.pi - angle if math.copysign(1.0, entry) < 0 else angle  # of -0.0 as of atan2


def _turned(angles: FloatArray, out: FloatArray) -> float:
    """Write each cosine times the sines before it; return the product of all sines. Angles are at most `LARGEST`."""
    sines = np.empty(angles.size)
    for place in range(angles.size):
        angle = angles[place]
        count = np.rint(angle / _HALF)
        r = ((angle - count * _HALF_1) - count * _HALF_2) - count * _HALF_3
        z = r * r
        sine = -0.0001984126983657571 + z * (
            2.755731600817155e-06 + z * (-2.5051112272573243e-08 + z * 1.5916726193889336e-10)
        )
        sine = r + r * z * (-0.16666666666666666 + z * (0.008333333333330827 + z * sine))
        cosine = 2.4801587298651292e-05 + z * (
            -2.755731721268659e-07 + z * (2.0876134024090145e-09 + z * -1.1381754653662937e-11)
        )
        cosine = 1.0 - 0.5 * z + z * z * (0.041666666666666664 + z * (-0.0013888888888887322 + z * cosine))
        turn = count - 4.0 * np.floor(count * 0.25)  # quarters of a circle: 0, 1, 2 or 3
        odd = (turn == 1.0) | (turn == 3.0)
        one, other = (cosine, -sine) if odd else (sine, cosine)
        back = turn >= 2.0
        sines[place] = -one if back else one
        out[place] = -other if back else other
    # four running products at a time: one would wait for itself
    quarter = angles.size // 4
    first = second = third = fourth = 1.0
    for one in range(quarter):
        two, three, four = one + quarter, one + 2 * quarter, one + 3 * quarter
        out[one] *= first
        out[two] *= second
        out[three] *= third
        out[four] *= fourth
        first *= sines[one]
        second *= sines[two]
        third *= sines[three]
        fourth *= sines[four]
    second *= first
    third *= second
    fourth *= third
    for one in range(quarter):
        out[one + quarter] *= first
        out[one + 2 * quarter] *= second
        out[one + 3 * quarter] *= third
    for place in range(4 * quarter, angles.size):
        out[place] *= fourth
        fourth *= sines[place]
    return fourth


_LOOSE = {"contract", "nnan", "ninf"}  # fused products; order and signs of zeros stay
turns = compiled(_turns, fastmath=_LOOSE)
turned = compiled(_turned, fastmath=_LOOSE)


def _squares(x: FloatArray) -> float:
    """Return the sum of squares."""
    total = 0.0
    for place in range(x.size):
        total += x[place] * x[place]
    return total


squares = compiled(_squares, fastmath={"contract", "reassoc"})


def _whole(x: FloatArray, total: float, out: FloatArray) -> float:
    """Write all angles of one vector and return its magnitude, given its sum of squares."""
    last = x.size - 1
    turns(x[:last], x[last] * x[last], out)
    if last:
        out[last - 1] = math.atan2(x[last], x[last - 1])
    return math.sqrt(total)


whole = compiled(_whole)


def _rows_to(rows: FloatArray, magnitudes: FloatArray, angles: FloatArray) -> int:
    """Write magnitudes and angles of vectors in rows; return the place of one that is not finite, or -1.

    A vector whose squares would overflow or vanish is scaled by a power of two, which is exact.
    """
    scaled = np.empty(rows.shape[1])
    for row in range(rows.shape[0]):
        total = squares(rows[row])
        if LEAST < total < MOST:
            magnitudes[row] = whole(rows[row], total, angles[row])
            continue
        largest = 0.0
        for place in range(scaled.size):
            size = abs(rows[row, place])
            if not size < np.inf:
                return row
            largest = max(largest, size)
        unit = math.ldexp(1.0, math.frexp(largest)[1] - 1) if largest else 1.0
        for place in range(scaled.size):
            scaled[place] = rows[row, place] / unit
        magnitudes[row] = unit * whole(scaled, squares(scaled), angles[row])
        if not largest:
            angles[row] = 0.0
    return -1


def _rows_from(sizes: FloatArray, angles: FloatArray, out: FloatArray) -> None:
    """Write the vectors of magnitudes and angles in rows. Angles are at most `LARGEST`."""
    last = angles.shape[1]
    for row in range(sizes.size):
        product = turned(angles[row], out[row, :last])
        for place in range(last):
            out[row, place] *= sizes[row]
        out[row, last] = sizes[row] * product


rows_to, rows_from = compiled(_rows_to), compiled(_rows_from)
