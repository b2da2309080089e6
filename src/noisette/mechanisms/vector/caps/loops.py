"""The loops over entries of PrivUnit and PrivUnitG, as machine code; numba is imported with this module only."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from noisette._validate import FloatArray
from noisette.mechanisms._compiled import compiled
from noisette.mechanisms.vector.caps.exact import RUN


def _added(total: float, carry: float, term: float) -> tuple[float, float]:
    """Add a part to a total, and what rounding loses to ``carry`` (Neumaier 1974)."""
    result = total + term
    if abs(total) >= abs(term):
        return result, carry + ((total - result) + term)
    return result, carry + ((term - result) + total)


def _sums(normals: FloatArray, rows: FloatArray, lift: FloatArray, across: bool, result: FloatArray) -> None:
    """Put |w|^2, <g, w>, |g|^2 and |g - <g, w>/|w|^2 w|^2 of each row into ``result``, the last if it is asked for.

    w is a row and, where it is lifted, one entry more. The terms of a run are added one after the other. The sums of
    runs are added with compensation for rounding, so that errors do not grow with the length of the rows.
    """
    dims, ambient = rows.shape[1], normals.shape[1]
    for row in range(rows.shape[0]):
        hidden, normal = 0.0, 0.0
        if ambient > dims:
            hidden, normal = lift[row], normals[row, dims]
        own, product, square = hidden * hidden, hidden * normal, normal * normal
        own_carry = product_carry = square_carry = 0.0
        for start in range(0, dims, RUN):
            own_part = product_part = square_part = 0.0
            for column in range(start, min(start + RUN, dims)):
                w, g = rows[row, column], normals[row, column]
                own_part += w * w
                product_part += g * w
                square_part += g * g
            own, own_carry = added(own, own_carry, own_part)
            product, product_carry = added(product, product_carry, product_part)
            square, square_carry = added(square, square_carry, square_part)
        own, product, square = own + own_carry, product + product_carry, square + square_carry
        result[row, 0], result[row, 1], result[row, 2] = own, product, square
        if across:
            factor = product / own
            rest = (normal - factor * hidden) ** 2
            rest_carry = 0.0
            for start in range(0, dims, RUN):
                rest_part = 0.0
                for column in range(start, min(start + RUN, dims)):
                    gap = normals[row, column] - factor * rows[row, column]
                    rest_part += gap * gap
                rest, rest_carry = added(rest, rest_carry, rest_part)
            result[row, 3] = rest + rest_carry


def _finish(
    normals: FloatArray,
    rows: FloatArray,
    own: FloatArray,
    others: FloatArray,
    share: FloatArray,
    most: FloatArray,
    reach: FloatArray,
    slope: FloatArray,
    uniform: FloatArray,
    step: float,
    reports: FloatArray,
    open_rows: npt.NDArray[np.bool_],
) -> None:
    """Round own g + others w + uniform down to whole numbers, and mark the rows in which float64 may round otherwise.

    The error of an entry is at most ``share`` times its part across w, plus ``slope`` times the entry of w, plus the
    roundings made here. The part across w is at most ``most``; the part along w is at most ``reach`` times w.
    """
    for row in range(rows.shape[0]):
        a, c, shift = own[row], others[row], uniform[row]
        least = 2.0**-50 + abs(a) * 2.0**-67
        left_open = False
        for column in range(rows.shape[1]):
            g, w = a * normals[row, column], rows[row, column]
            own_part = c * w
            value = g + own_part + shift
            whole = math.floor(value)
            fraction = value - whole
            across = min(most[row], abs(value) + 1 + reach[row] * abs(w))
            off = share[row] * across + slope[row] * abs(w) + 2.0**-50 * (abs(g) + abs(own_part)) + least
            left_open |= not (fraction > off and 1 - fraction > off)  # a NaN leaves it open
            reports[row, column] = whole * step
        open_rows[row] = left_open


added = compiled(_added, inline="always")
sums = compiled(_sums)
finish = compiled(_finish)
