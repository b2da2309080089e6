"""Rows of numbers, one for each example: their squared norms from above, and their weighted sums in double precision.

Every pass converts a number to double precision before anything is done with it, so that a product of two numbers in
single precision is exact. Sums of n terms err by at most n 2^-53 / (1 - n 2^-53) of the sum of the absolute terms, in
any order (Higham 2002, section 4.2). Large sums of outer products can be asked for in single precision; `clipping` says
by how much they err. A row whose weight is 0 is not read: it may hold infinities.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from noisette._validate import FloatArray
from noisette.mechanisms._compiled import compiled
from noisette.mechanisms._team import Loop, in_parts
from noisette.sgd.recording import _tiles

UNIT = 2.0**-53  # rounding of double precision
QUICK_UNIT = 2.0**-24  # and of single precision
_QUICK_SIZE = 2.0**24  # of factors of products in single precision, so that nothing overflows and little is lost
_SMALLEST = 1e-300  # what a product of two squared norms may lose by underflow
_SPARE = 2.0**-40  # of a squared norm, so that what is lost below `_lost` is added in quadrature
_BLOCK = 1024  # columns whose sums stay in the nearest cache
WIDE = 80  # columns of both factors from which a product of matrices by tiles is quicker than the loop
_PANEL = 64  # columns that a core takes at least, so that none of its vectors is cut
_SHARED = 1 << 16  # numbers read that are worth the work of several cores
_SOME = 1 << 20  # numbers that are converted at a time where no loop is compiled


def _add_squares(rows: Any, above: float, beside: float, out: FloatArray, low: int, high: int) -> None:
    """Add the squares of each row, ``above`` times their sum and ``beside`` more."""
    for place in range(low, high):
        row, total = rows[place], 0.0
        for column in range(row.size):
            total += np.float64(row[column]) * np.float64(row[column])
        out[place] += total * above + beside


def _fill_outer_squares(
    left: Any, right: Any, margins: Any, others: Any, own: float, out: FloatArray, low: int, high: int
) -> None:
    """Fill, for each row, the product of the two sums of squares, each with its margins and the second with ``own``."""
    for place in range(low, high):
        one, other, long, wide = left[place], right[place], 0.0, 0.0
        for column in range(one.size):
            long += np.float64(one[column]) * np.float64(one[column])
        for column in range(other.size):
            wide += np.float64(other[column]) * np.float64(other[column])
        out[place] = (wide * others[0] + others[1] + own) * (long * margins[0] + margins[1]) + _SMALLEST


def _add_weighted(rows: Any, weights: FloatArray, out: FloatArray, start: int, stop: int) -> None:
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


def _add_clamped(rows: Any, weights: FloatArray, limit: float, out: FloatArray, start: int, stop: int) -> None:
    """Add some columns of all rows, with a weight each, and every number at most ``limit`` in size."""
    for low in range(start, stop, _BLOCK):
        high = min(low + _BLOCK, stop)
        sums = out[low:high]
        for place in range(rows.shape[0]):
            weight, row = weights[place], rows[place, low:high]
            if weight != 0.0:
                for column in range(sums.size):
                    sums[column] += min(max(weight * row[column], -limit), limit)


def _add_outer(left: Any, right: Any, weights: FloatArray, out: FloatArray, start: int, stop: int) -> None:
    """Add some columns of left^T right, with a weight for each row: two rows of sums and four of right at a time."""
    count, pairs = left.shape[0], left.shape[1] // 2 * 2
    for low in range(start, stop, _BLOCK):
        high = min(low + _BLOCK, stop)
        for one in range(0, pairs, 2):
            sums, others = out[one, low:high], out[one + 1, low:high]
            for place in range(0, count // 4 * 4, 4):
                a, b = right[place, low:high], right[place + 1, low:high]
                c, d = right[place + 2, low:high], right[place + 3, low:high]
                h, i, j, k = weights[place], weights[place + 1], weights[place + 2], weights[place + 3]
                p, q = h * left[place, one], i * left[place + 1, one]
                r, s = j * left[place + 2, one], k * left[place + 3, one]
                t, u = h * left[place, one + 1], i * left[place + 1, one + 1]
                v, w = j * left[place + 2, one + 1], k * left[place + 3, one + 1]
                for column in range(sums.size):
                    x, y = np.float64(a[column]), np.float64(b[column])
                    z, last = np.float64(c[column]), np.float64(d[column])
                    sums[column] += (p * x + q * y) + (r * z + s * last)
                    others[column] += (t * x + u * y) + (v * z + w * last)
            for place in range(count // 4 * 4, count):
                row, h = right[place, low:high], weights[place]
                p, q = h * left[place, one], h * left[place, one + 1]
                for column in range(sums.size):
                    sums[column] += p * row[column]
                    others[column] += q * row[column]
        for one in range(pairs, left.shape[1]):
            sums = out[one, low:high]
            for place in range(count):
                row, p = right[place, low:high], weights[place] * left[place, one]
                for column in range(sums.size):
                    sums[column] += p * row[column]


def _add_moments(entered: Any, gradient: Any, out: FloatArray, low: int, high: int) -> None:
    """Fill, for each row, the sums of x, of x^2, of g and of g x."""
    for place in range(low, high):
        row, other = entered[place], gradient[place]
        plain, square, sloped, product = 0.0, 0.0, 0.0, 0.0
        for column in range(row.size):
            x, g = np.float64(row[column]), np.float64(other[column])
            plain += x
            square += x * x
            sloped += g
            product += g * x
        out[place, 0], out[place, 1], out[place, 2], out[place, 3] = plain, square, sloped, product


def _add_normalised(entered: Any, gradient: Any, eps: float, out: FloatArray, low: int, high: int) -> None:
    """Add, for each example, g z and g over its positions, with z what normalising makes of a position."""
    count, size = entered.shape[1], entered.shape[2]
    for place in range(low, high):
        scale, shift = out[place, 0], out[place, 1]
        for position in range(count):
            row, slope = entered[place, position], gradient[place, position]
            total = 0.0
            for column in range(size):
                total += row[column]
            mean, square = total / size, 0.0
            for column in range(size):
                apart = row[column] - mean
                square += apart * apart
            over = 1.0 / np.sqrt(square / size + eps)
            for column in range(size):
                scale[column] += slope[column] * ((row[column] - mean) * over)
                shift[column] += slope[column]


_normalised = compiled(_add_normalised, fastmath={"reassoc", "contract"})
_moments = compiled(_add_moments, fastmath={"reassoc", "contract"})
_squared = compiled(_add_squares, fastmath={"reassoc", "contract"})
_outer_squared = compiled(_fill_outer_squares, fastmath={"reassoc", "contract"})
_weighted = compiled(_add_weighted, fastmath={"contract"})
_clamped = compiled(_add_clamped)
_outer = compiled(_add_outer, fastmath={"reassoc", "contract"})
_normalising = Loop(_normalised, compiled(lambda given, team: in_parts(_normalised, given, team)))
_summing = Loop(_moments, compiled(lambda given, team: in_parts(_moments, given, team)))
_squaring = Loop(_squared, compiled(lambda given, team: in_parts(_squared, given, team)))
_squaring_both = Loop(_outer_squared, compiled(lambda given, team: in_parts(_outer_squared, given, team)))
_weighing = Loop(_weighted, compiled(lambda given, team: in_parts(_weighted, given, team)))
_clamping = Loop(_clamped, compiled(lambda given, team: in_parts(_clamped, given, team)))
_multiplying = Loop(_outer, compiled(lambda given, team: in_parts(_outer, given, team)))


def flat(tensor: Tensor) -> Tensor:
    """Return what lies behind the first axis as one row, of one number where there is no other axis."""
    return tensor.flatten(1) if tensor.ndim > 1 else tensor[:, None]


def squares(*tensors: Tensor) -> Tensor:
    """Return an upper bound of the squared norm of each row, in double precision; not finite where a number is not.

    What lies behind the first axis, in all tensors, is one row. The bound is within 2^-39 of the truth for tensors of
    up to 2^13 numbers a row, but for numbers so small that they, or their squares, may be flushed to zero.
    """
    found = np.zeros(len(tensors[0]))
    for tensor in tensors:
        rows = flat(tensor).contiguous()
        if not compilable(rows):
            return torch.stack([_squares_elsewhere(flat(tensor)) for tensor in tensors]).sum(0)
        _add_all_squares(rows.numpy(), *_margins(rows.shape[1], rows.dtype), found)
    return torch.from_numpy(found)


def outer_squares(left: Tensor, right: Tensor, *, own: bool) -> Tensor:
    """Return upper bounds of the squared norms of each example's outer product; with ``own`` of ``left`` beside it."""
    if not (compilable(left) and compilable(right)):
        return squares(left) * (squares(right) + float(own)) + _SMALLEST
    made = torch.empty(len(left), dtype=torch.float64)
    one, other, out = left.contiguous().numpy(), right.contiguous().numpy(), made.numpy()
    margins, others = _margins(left.shape[1], left.dtype), _margins(right.shape[1], right.dtype)
    size = (one.size + other.size) // 2
    shared(_squaring_both, one, other, margins, others, float(own), out, places=len(out), size=size)
    return made


def _add_all_squares(rows: Any, above: float, beside: float, out: FloatArray) -> None:
    """Add the squares of each row, on several cores where there are many."""
    shared(_squaring, rows, above, beside, out, places=len(rows), size=rows.size // 2)


def _squares_elsewhere(rows: Tensor) -> Tensor:
    """Do as `squares` where no loop is compiled, for one tensor."""
    above, beside = _margins(rows.shape[1], rows.dtype)
    pieces = torch.split(rows, max(_SOME // max(rows.shape[1], 1), 1))
    return torch.cat([piece.double().square().sum(1) for piece in pieces]) * above + beside


@lru_cache
def _margins(columns: int, dtype: torch.dtype) -> tuple[float, float]:
    """Return by what a computed squared norm is multiplied, and what is added, to be above the true one.

    The second is what numbers may add though their squares were computed as 0. With a = the norm that was seen and b =
    the norm of what was flushed, (a + b)^2 <= (1 + s) a^2 + (1 + 1/s) b^2.
    """
    flushed = 2.0**-511 if dtype == torch.float64 else torch.finfo(dtype).tiny
    return 1 + _SPARE + 2 * columns * UNIT, columns * 2 * flushed**2 / _SPARE


def weighted(rows: Tensor, weights: Tensor, total: Tensor | None = None) -> Tensor:
    """Return the sum of rows with a weight each, in double precision, as one row; added to ``total`` if it is given."""
    rows = flat(rows).contiguous()
    made = _zeros(rows) if total is None else total
    if compilable(rows):
        array, factors, out = rows.numpy(), weights.numpy(), made.numpy()
        shared(_weighing, array, factors, out, places=rows.shape[1], size=rows.numel(), least=_PANEL)
        return made
    for piece, factors in _pieces(rows, weights):
        made += factors @ piece
    return made


def quick_roundings(examples: int) -> int:
    """Return twice the units of single precision by which a sum of outer products errs, in norms of an example.

    See `clipping` for the argument.
    """
    return _tiles.CHAIN + -(-examples // _tiles.CHAIN) + 8


def outer(left: Tensor, right: Tensor, weights: Tensor, *, quick: bool = False) -> Tensor:
    """Return the weighted sum over examples of the outer products of two rows, in double precision.

    Each product is rounded twice, and the sum of n of them errs as any sum of n does. With ``quick`` large products of
    factors in single precision, and in the range where it loses little, are summed in single precision.
    """
    if not weights.numpy(force=True).all():
        kept = weights != 0
        left, right, weights = left[kept], right[kept], weights[kept]
    if not (compilable(left) and compilable(right)):
        return (left * weights[:, None]).T @ right.double()
    if min(left.shape[1], right.shape[1]) >= WIDE:
        if quick and _loses_little(left, right, weights):
            return _tiles.quick_product(left, right, weights, shared)
        return _tiles.product(left, right, weights, shared)
    if left.shape[1] > right.shape[1]:  # the compiled loop runs along the longer row
        return outer(right, left, weights).T
    made = torch.zeros(left.shape[1], right.shape[1], dtype=torch.float64)  # torch aligns it, which is quicker
    one, other, factors, out = left.contiguous().numpy(), right.contiguous().numpy(), weights.numpy(), made.numpy()
    shared(_multiplying, one, other, factors, out, places=other.shape[1], size=out.size * len(one) // 8, least=_PANEL)
    return made


def _loses_little(left: Tensor, right: Tensor, weights: Tensor) -> bool:
    """Tell whether factors are in single precision, and in range there, with the weights on the left."""
    if left.dtype != torch.float32 or right.dtype != torch.float32 or not len(left):
        return False
    one, other = (max(-float(low), float(high)) for low, high in (left.aminmax(), right.aminmax()))
    return one * float(weights.abs().max()) <= _QUICK_SIZE and other <= _QUICK_SIZE


def each_product(left: Tensor, right: Tensor) -> Tensor:
    """Return left^T right for every example, of factors (examples, rows, columns), in their own precision."""
    fits = left.shape[1] and _tiles.vectors_of(left.shape[2], right.shape[2], left.element_size())
    if fits and compilable(left) and left.dtype == right.dtype:
        return _tiles.each_product(left, right, shared)
    return torch.bmm(left.transpose(1, 2), right)


def moments(entered: Tensor, gradient: Tensor) -> tuple[Tensor, ...]:
    """Return the sums of x, x^2, g and g x over all but the first two axes, in double precision."""
    shape = math.prod(entered.shape[:2]), math.prod(entered.shape[2:])
    x, g = entered.reshape(shape).contiguous(), gradient.reshape(shape).contiguous()
    if compilable(x) and compilable(g):
        made = torch.empty(len(x), 4, dtype=torch.float64)
        one, other, out = x.numpy(), g.numpy(), made.numpy()
        shared(_summing, one, other, out, places=len(one), size=one.size)
    else:
        x, g = x.double(), g.double()
        made = torch.stack([x.sum(1), x.square().sum(1), g.sum(1), (g * x).sum(1)], 1)
    return made.reshape(*entered.shape[:2], 4).unbind(2)


def normalised(entered: Tensor, gradient: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return, for each example, the sums over positions of g z and of g, with z the entered numbers, normalised.

    Both are (examples, positions, numbers), in single or double precision, on the processor.
    """
    made = torch.zeros(len(entered), 2, entered.shape[2], dtype=torch.float64)
    one, other, out = entered.contiguous().numpy(), gradient.contiguous().numpy(), made.numpy()
    shared(_normalising, one, other, eps, out, places=len(one), size=one.size)
    return made[:, 0].to(gradient.dtype), made[:, 1].to(gradient.dtype)


def clamped(rows: Tensor, weights: Tensor, limit: float) -> Tensor:
    """Return the sum of rows with a weight each, every number at most ``limit`` in size, as one row."""
    rows = flat(rows).contiguous()
    made = _zeros(rows)
    if compilable(rows):
        array, factors, out = rows.numpy(), weights.numpy(), made.numpy()
        shared(_clamping, array, factors, limit, out, places=rows.shape[1], size=rows.numel(), least=_PANEL)
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


def compilable(rows: Tensor) -> bool:
    """Tell whether the loops of machine code take these numbers."""
    return rows.is_cpu and (rows.dtype == torch.float32 or rows.dtype == torch.float64)


def shared(loop: Loop, *given: Any, places: int, size: int, least: int = 1) -> None:
    """Do the work of all places, on as many cores as torch uses where there is much of it.

    ``size`` is how many numbers a loop would read in the time that the work takes.
    """
    loop(*given, places=places, threads=1 if size < _SHARED else torch.get_num_threads(), least=least)
