"""Rows of numbers, one for each example: their squared norms from above, and their weighted sums in double precision.

Every pass converts a number to double precision before anything is done with it, so that a product of two numbers in
single precision is exact. Sums of n terms err by at most n 2^-53 / (1 - n 2^-53) of the sum of the absolute terms, in
any order (Higham 2002, section 4.2). A row whose weight is 0 is not read: it may hold infinities.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from noisette._validate import FloatArray
from noisette.mechanisms._compiled import compiled
from noisette.mechanisms.geometric.spherical import share

UNIT = 2.0**-53  # rounding of double precision
_SPARE = 2.0**-40  # of a squared norm, so that what is lost below `_lost` is added in quadrature
_BLOCK = 1024  # columns whose sums stay in the nearest cache
_SHARED = 1 << 18  # numbers that are worth the work of several cores
_SOME = 1 << 20  # numbers that are converted at a time where no loop is compiled


def _add_squares(rows: Any, out: FloatArray) -> None:
    """Add the squares of each row."""
    for place in range(rows.shape[0]):
        row, total = rows[place], 0.0
        for column in range(row.size):
            total += np.float64(row[column]) * np.float64(row[column])
        out[place] += total


def _add_weighted(rows: Any, weights: FloatArray, start: int, stop: int, out: FloatArray) -> None:
    """Add some columns of all rows, with a weight each: four at a time, for fewer visits to the sums."""
    for low in range(start, stop, _BLOCK):
        high = min(low + _BLOCK, stop)
        sums = out[low:high]
        place, count = 0, rows.shape[0]
        while place < count:
            first = weights[place]
            if place + 4 <= count:
                second, third, fourth = weights[place + 1], weights[place + 2], weights[place + 3]
                if first != 0.0 and second != 0.0 and third != 0.0 and fourth != 0.0:
                    a, b = rows[place, low:high], rows[place + 1, low:high]
                    c, d = rows[place + 2, low:high], rows[place + 3, low:high]
                    for column in range(sums.size):
                        added = (first * a[column] + second * b[column]) + (third * c[column] + fourth * d[column])
                        sums[column] += added
                    place += 4
                    continue
            if first != 0.0:
                row = rows[place, low:high]
                for column in range(sums.size):
                    sums[column] += first * row[column]
            place += 1


def _add_clamped(rows: Any, weights: FloatArray, limit: float, start: int, stop: int, out: FloatArray) -> None:
    """Add some columns of all rows, with a weight each, and every number at most ``limit`` in size."""
    for low in range(start, stop, _BLOCK):
        high = min(low + _BLOCK, stop)
        sums = out[low:high]
        for place in range(rows.shape[0]):
            weight, row = weights[place], rows[place, low:high]
            if weight != 0.0:
                for column in range(sums.size):
                    sums[column] += min(max(weight * row[column], -limit), limit)


def _add_outer(left: FloatArray, right: Any, start: int, stop: int, out: FloatArray) -> None:
    """Add some columns of left^T right: two rows of sums and four of each factor at a time."""
    count, pairs = left.shape[0], left.shape[1] // 2 * 2
    for low in range(start, stop, _BLOCK):
        high = min(low + _BLOCK, stop)
        for one in range(0, pairs, 2):
            sums, others = out[one, low:high], out[one + 1, low:high]
            for place in range(0, count // 4 * 4, 4):
                a, b = right[place, low:high], right[place + 1, low:high]
                c, d = right[place + 2, low:high], right[place + 3, low:high]
                p, q, r, s = left[place, one], left[place + 1, one], left[place + 2, one], left[place + 3, one]
                t, u, v = left[place, one + 1], left[place + 1, one + 1], left[place + 2, one + 1]
                w = left[place + 3, one + 1]
                for column in range(sums.size):
                    x, y = np.float64(a[column]), np.float64(b[column])
                    z, last = np.float64(c[column]), np.float64(d[column])
                    sums[column] += (p * x + q * y) + (r * z + s * last)
                    others[column] += (t * x + u * y) + (v * z + w * last)
            for place in range(count // 4 * 4, count):
                row, p, q = right[place, low:high], left[place, one], left[place, one + 1]
                for column in range(sums.size):
                    sums[column] += p * row[column]
                    others[column] += q * row[column]
        for one in range(pairs, left.shape[1]):
            sums = out[one, low:high]
            for place in range(count):
                row, p = right[place, low:high], left[place, one]
                for column in range(sums.size):
                    sums[column] += p * row[column]


_squared = compiled(_add_squares, fastmath={"reassoc", "contract"})
_weighted = compiled(_add_weighted, fastmath={"contract"})
_clamped = compiled(_add_clamped)
_outer = compiled(_add_outer, fastmath={"contract"})


def squares(rows: Tensor) -> Tensor:
    """Return an upper bound of the squared norm of each row, in double precision; not finite where a number is not.

    What lies behind the first axis is one row. The bound is within 2^-39 of the truth for rows of up to 2^13 numbers,
    but for numbers so small that they, or their squares, may be flushed to zero.
    """
    rows = rows.flatten(1).contiguous()
    columns = rows.shape[1]
    above, beside = 1 + _SPARE + 2 * columns * UNIT, columns * _lost(rows.dtype)
    if not _compilable(rows):
        pieces = torch.split(rows, max(_SOME // max(columns, 1), 1))
        return torch.cat([piece.double().square().sum(1) for piece in pieces]) * above + beside
    found, array = np.zeros(len(rows)), rows.numpy()
    _shared(lambda first, last: _squared(array[first:last], found[first:last]), len(rows), rows.numel())
    found *= above
    found += beside
    return torch.from_numpy(found)


@lru_cache
def _lost(dtype: torch.dtype) -> float:
    """Return what one number may add to a squared norm though its square was computed as 0.

    With a = the norm that was seen and b = the norm of what was flushed, (a + b)^2 <= (1 + s) a^2 + (1 + 1/s) b^2.
    """
    flushed = 2.0**-511 if dtype == torch.float64 else torch.finfo(dtype).tiny
    return 2 * flushed**2 / _SPARE


def weighted(rows: Tensor, weights: Tensor, total: Tensor | None = None) -> Tensor:
    """Return the sum of rows with a weight each, in double precision, as one row; added to ``total`` if it is given."""
    rows = rows.flatten(1).contiguous()
    made = _zeros(rows) if total is None else total
    if _compilable(rows):
        array, factors, out = rows.numpy(), weights.numpy(), made.numpy()
        _shared(lambda low, high: _weighted(array, factors, low, high, out), rows.shape[1], rows.numel())
        return made
    for piece, factors in _pieces(rows, weights):
        made += factors @ piece
    return made


def outer(left: Tensor, right: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted sum over examples of the outer products of two rows, in double precision."""
    if not bool(weights.all()):
        kept = weights != 0
        left, right, weights = left[kept], right[kept], weights[kept]
    if not (_compilable(left) and _compilable(right)):
        return (left * weights[:, None]).T @ right.double()
    if left.shape[1] > right.shape[1]:  # the compiled loop runs along the longer row
        return outer(right, left, weights).T
    made = torch.zeros(left.shape[1], right.shape[1], dtype=torch.float64)
    scaled, array, out = (left * weights[:, None]).numpy(), right.contiguous().numpy(), made.numpy()
    _shared(lambda low, high: _outer(scaled, array, low, high, out), right.shape[1], made.numel() * len(left))
    return made


def clamped(rows: Tensor, weights: Tensor, limit: float) -> Tensor:
    """Return the sum of rows with a weight each, every number at most ``limit`` in size, as one row."""
    rows = rows.flatten(1).contiguous()
    made = _zeros(rows)
    if _compilable(rows):
        array, factors, out = rows.numpy(), weights.numpy(), made.numpy()
        _shared(lambda low, high: _clamped(array, factors, limit, low, high, out), rows.shape[1], rows.numel())
        return made
    for piece, factors in _pieces(rows, weights):
        made += (piece * factors[:, None]).clamp(-limit, limit).sum(0)
    return made


def widened(rows: Tensor, weights: Tensor) -> Tensor:
    """Return rows in double precision, of zeros where the weight is 0."""
    made = rows.double()
    if bool(weights.all()):
        return made
    made = made.clone() if made is rows else made
    made[weights == 0] = 0.0
    return made


def gamma(terms: int, unit: float) -> float:
    """Return by how much of the absolute terms a sum of products can err, in any order; infinite where no bound is."""
    return terms * unit / (1 - terms * unit) if terms * unit < 0.5 else math.inf


def _zeros(rows: Tensor) -> Tensor:
    return torch.zeros(rows.shape[1], dtype=torch.float64, device=rows.device)


def _pieces(rows: Tensor, weights: Tensor) -> Any:
    """Yield rows in double precision with their weights, some at a time."""
    some = max(_SOME // max(rows.shape[1], 1), 1)
    for piece, factors in zip(torch.split(rows, some), torch.split(weights, some), strict=True):
        yield widened(piece, factors), factors


def _compilable(rows: Tensor) -> bool:
    return rows.device.type == "cpu" and rows.dtype in (torch.float32, torch.float64)


def _shared(work: Callable[[int, int], None], length: int, size: int) -> None:
    """Do the work from 0 to ``length``, in parts where there is much of it, on as many cores as torch uses."""
    threads = torch.get_num_threads()
    if threads == 1 or size < _SHARED:
        work(0, length)
        return
    some = -(-length // (2 * threads))
    share(lambda place: work(place * some, min((place + 1) * some, length)), -(-length // some), size)
