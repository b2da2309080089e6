"""Products of matrices, a tile of the result at a time in a core's registers.

The library that torch calls for them uses half of the width of some processors' registers, and none that it calls takes
a gradient apart by examples without copies. Here each tile is one loop over the rows of both factors, whose sums are
never written before its end, in machine code for the processor at hand. An entry is a sum of n products in one chain,
each product rounded with its addition or before it, so that it errs by at most n u / (1 - n u) of the sum of the
absolute products, u the unit roundoff (Higham 2002, section 3.1), as any order of summing does.

`quick_product` is the one sum over examples in single precision: see `clipping` for what its two chains err by.

Tiles that would stick out at an end begin earlier, and compute some entries once more.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from llvmlite import ir  # type: ignore[import-untyped]
from llvmlite.binding import get_host_cpu_features  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic
from torch import Tensor

from noisette.mechanisms._compiled import compiled
from noisette.mechanisms._team import Loop, in_parts

_WIDE = bool(get_host_cpu_features().get("avx512f", False))
_REGISTER = 64 if _WIDE else 32  # bytes
ROWS = 8 if _WIDE else 4  # of a tile: its sums, and what they are made of, fit the registers
VECTORS = 3  # registers of a row of a tile, at most
COLUMNS = VECTORS * _REGISTER // 8  # of a tile in double precision
SINGLE = _REGISTER // 4  # numbers of single precision in a register
_QUICK_COLUMNS = VECTORS * SINGLE
CHAIN = 32  # rows in one chain of a sum in single precision
PER_NUMBER = 16  # products that a tile takes in the time of a number that a loop reads


def _tile(vectors: int, single: bool, *, apart: bool = False) -> Any:
    """Return a function that fills a tile with a sum of outer products, of rows that are not next to each other.

    With ``apart`` every line has a chain of its own, and one more adds up their sums. Arguments are addresses and
    distances in bytes: left, right, out; lines and rows in a line; from a row of the left to the next, from one of its
    entries to the next, and from the last row of a line to the next line; the same of the right, whose entries are next
    to each other; from a row of the result to the next.
    """
    size, kind = (4, ir.FloatType()) if single else (8, ir.DoubleType())
    lanes = _REGISTER // size
    name = f"llvm.fmuladd.v{lanes}f{8 * size}"  # one instruction where the processor has it

    def typed(
        _: Any,
        left: Any,
        right: Any,
        out: Any,
        lines: Any,
        count: Any,
        left_step: Any,
        left_apart: Any,
        left_jump: Any,
        right_step: Any,
        right_jump: Any,
        out_step: Any,
    ) -> Any:
        def written(context: Any, builder: Any, __: Any, args: Any) -> Any:
            left, right, out, lines, count, left_step, left_apart, left_jump, right_step, right_jump, out_step = args
            whole = ir.IntType(64)
            vector = ir.VectorType(kind, lanes)
            known = builder.module.globals.get(name)
            add = known or ir.Function(builder.module, ir.FunctionType(vector, [vector] * 3), name)
            places = ir.Constant(ir.VectorType(ir.IntType(32), lanes), None)
            zero, one = ir.Constant(whole, 0), ir.Constant(whole, 1)
            zeros = [ir.Constant(vector, None)] * (ROWS * vectors)

            def phis(starts: list[Any], block: Any) -> list[Any]:
                made = [builder.phi(start.type) for start in starts]
                for phi, start in zip(made, starts, strict=True):
                    phi.add_incoming(start, block)
                return made

            away = [builder.mul(left_apart, ir.Constant(whole, row)) for row in range(ROWS)]
            start = builder.block
            outer, inner, body, behind, end = (
                builder.append_basic_block(f"tile.{part}") for part in ("outer", "inner", "body", "behind", "end")
            )
            builder.branch(outer)
            builder.position_at_end(outer)
            line, left_line, right_line, *kept = lines_now = phis([zero, left, right, *zeros], start)
            builder.cbranch(builder.icmp_signed("<", line, lines), inner, end)
            builder.position_at_end(inner)
            place, here, there, *sums = now = phis([zero, left_line, right_line, *(zeros if apart else kept)], outer)
            builder.cbranch(builder.icmp_signed("<", place, count), body, behind)
            builder.position_at_end(body)
            beside = [
                builder.load(
                    builder.inttoptr(builder.add(there, ir.Constant(whole, v * _REGISTER)), vector.as_pointer()),
                    align=size,
                )
                for v in range(vectors)
            ]
            added = []
            for row in range(ROWS):
                factor = builder.load(builder.inttoptr(builder.add(here, away[row]), kind.as_pointer()), align=size)
                empty = ir.Constant(vector, ir.Undefined)
                spread = builder.insert_element(empty, factor, ir.Constant(ir.IntType(32), 0))
                spread = builder.shuffle_vector(spread, empty, places)
                added += [
                    builder.call(add, [spread, numbers, sums[row * vectors + v]]) for v, numbers in enumerate(beside)
                ]
            then = [builder.add(place, one), builder.add(here, left_step), builder.add(there, right_step), *added]
            for phi, value in zip(now, then, strict=True):
                phi.add_incoming(value, body)
            builder.branch(inner)
            builder.position_at_end(behind)
            if apart:
                sums = [builder.fadd(before, own) for before, own in zip(kept, sums, strict=True)]
            then = [builder.add(line, one), builder.add(here, left_jump), builder.add(there, right_jump), *sums]
            for phi, value in zip(lines_now, then, strict=True):
                phi.add_incoming(value, behind)
            builder.branch(outer)
            builder.position_at_end(end)
            for row in range(ROWS):
                first = builder.add(out, builder.mul(out_step, ir.Constant(whole, row)))
                for v in range(vectors):
                    to = builder.add(first, ir.Constant(whole, v * _REGISTER))
                    builder.store(kept[row * vectors + v], builder.inttoptr(to, vector.as_pointer()), align=size)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 11), written

    typed.__name__ = f"tile_{vectors}_{'single' if single else 'double'}{'_apart' if apart else ''}"
    return intrinsic(typed)


_single_3, _single_2, _single_1 = (_tile(vectors, True) for vectors in (3, 2, 1))
_double_3, _double_2, _double_1 = (_tile(vectors, False) for vectors in (3, 2, 1))
_single_apart = _tile(VECTORS, True, apart=True)


def _fill_one(size: int, vectors: int, left: int, right: int, out: int, lines: int, count: int, steps: Any) -> None:
    """Fill a tile of numbers of ``size`` bytes, of so many registers a row; ``steps`` are distances, as in `_tile`."""
    a, b, c, d, e, f = steps
    if size == 4:
        if vectors == 3:
            _single_3(left, right, out, lines, count, a, b, c, d, e, f)
        elif vectors == 2:
            _single_2(left, right, out, lines, count, a, b, c, d, e, f)
        else:
            _single_1(left, right, out, lines, count, a, b, c, d, e, f)
    elif vectors == 3:
        _double_3(left, right, out, lines, count, a, b, c, d, e, f)
    elif vectors == 2:
        _double_2(left, right, out, lines, count, a, b, c, d, e, f)
    else:
        _double_1(left, right, out, lines, count, a, b, c, d, e, f)


_one = compiled(_fill_one)


def _fill_tiles(
    size: int,
    vectors: int,
    left: int,
    right: int,
    out: int,
    lines: int,
    count: int,
    steps: Any,
    height: int,
    width: int,
) -> None:
    """Fill a product (height, width) of at least one tile."""
    across = vectors * _REGISTER // size
    for row in range(0, height, ROWS):
        first = min(row, height - ROWS)
        for column in range(0, width, across):
            place = min(column, width - across) * size
            _one(
                size,
                vectors,
                left + first * steps[1],
                right + place,
                out + first * steps[5] + place,
                lines,
                count,
                steps,
            )


tiles = compiled(_fill_tiles)


def vectors_of(height: int, width: int, size: int) -> int:
    """Return how many registers a row of a tile has that covers a product best, 0 where none fits."""
    lanes = _REGISTER // size
    fitting = [vectors for vectors in (3, 2, 1) if vectors * lanes <= width and height >= ROWS]
    return min(fitting, key=lambda vectors: -(-width // (vectors * lanes)) * vectors, default=0)


def _fill_each(vectors: int, left: Any, right: Any, out: Any, low: int, high: int) -> None:
    """Fill every example's product; factors are (examples, rows, columns)."""
    size, count = left.itemsize, left.shape[1]
    height, width = left.shape[2], right.shape[2]
    steps = (height * size, size, 0, width * size, 0, width * size)
    for example in range(low, high):
        one, other, to = left[example].ctypes.data, right[example].ctypes.data, out[example].ctypes.data
        tiles(size, vectors, one, other, to, 1, count, steps, height, width)


_each = compiled(_fill_each)
_filling = Loop(_each, compiled(lambda given, team: in_parts(_each, given, team)))


def each_product(left: Tensor, right: Tensor, share: Any) -> Tensor:
    """Return left^T right for every example, of factors (examples, rows, columns); ``share`` divides the examples.

    Both are on the processor, in single or double precision, and the product has at least one tile.
    """
    height, width = left.shape[2], right.shape[2]
    vectors = vectors_of(height, width, left.element_size())
    made = left.new_empty(len(left), height, width)
    one, other, out = left.contiguous().numpy(), right.contiguous().numpy(), made.numpy()
    size = one.size * width // PER_NUMBER
    share(_filling, vectors, one, other, out, places=len(one), size=size)
    return made


def _fill_products(left: Any, right: Any, out: Any, low: int, high: int) -> None:
    """Fill the columns of some panels of the right: panels are (panel, example, entry of a tile)."""
    tile = np.empty((ROWS, COLUMNS))
    count, apart = left.shape[1], out.shape[1] * 8
    inside, outside = (
        (ROWS * 8, 8, 0, COLUMNS * 8, 0, apart),
        (ROWS * 8, 8, 0, COLUMNS * 8, 0, COLUMNS * 8),
    )
    for column in range(low, high):
        first = column * COLUMNS
        width = min(COLUMNS, out.shape[1] - first)
        for panel in range(left.shape[0]):
            height = min(ROWS, out.shape[0] - panel * ROWS)
            one, other = left[panel].ctypes.data, right[column].ctypes.data
            if width == COLUMNS and height == ROWS:
                to = out[panel * ROWS, first:].ctypes.data
                _one(8, VECTORS, one, other, to, 1, count, inside)
                continue
            _one(8, VECTORS, one, other, tile.ctypes.data, 1, count, outside)
            for row in range(height):
                for place in range(width):
                    out[panel * ROWS + row, first + place] = tile[row, place]


def _fill_panels(matrix: Any, weights: Any, out: Any, low: int, high: int) -> None:
    """Fill panels (panel, row, column) with a matrix whose rows have a weight each, and zeros behind its columns."""
    rows, columns = matrix.shape
    width = out.shape[2]
    for panel in range(low, high):
        first = panel * width
        some = min(width, columns - first)
        for row in range(rows):
            for column in range(some):
                out[panel, row, column] = np.float64(matrix[row, first + column]) * weights[row]
            for column in range(some, width):
                out[panel, row, column] = 0.0


_products, _panels = compiled(_fill_products), compiled(_fill_panels)
_multiplying = Loop(_products, compiled(lambda given, team: in_parts(_products, given, team)))
_panelling = Loop(_panels, compiled(lambda given, team: in_parts(_panels, given, team)))


def product(left: Tensor, right: Tensor, weights: Tensor, share: Any) -> Tensor:
    """Return left^T right in double precision, with a weight for each row; ``share`` divides columns among cores."""
    made = torch.empty(left.shape[1], right.shape[1], dtype=torch.float64)
    one, other = _packed(left, weights, ROWS, share), _packed(right, torch.ones_like(weights), COLUMNS, share)
    out = made.numpy()
    share(_multiplying, one, other, out, places=len(other), size=out.size * len(left) // PER_NUMBER)
    return made


def _packed(matrix: Tensor, weights: Tensor, width: int, share: Any) -> Any:
    """Return a matrix in double precision, cut into panels of columns."""
    made = torch.empty(-(-matrix.shape[1] // width), len(matrix), width, dtype=torch.float64).numpy()
    share(_panelling, matrix.contiguous().numpy(), weights.numpy(), made, places=len(made), size=made.size)
    return made


def _fill_quick_products(left: Any, right: Any, lines: int, out: Any, low: int, high: int) -> None:
    """Fill the columns of some panels of the right, in single precision, with ``lines`` chains for each entry."""
    count = left.shape[1] // lines
    height, width = out.shape
    for column in range(low, high):
        place = min(column * _QUICK_COLUMNS, width - _QUICK_COLUMNS)
        other = right[column].ctypes.data
        for panel in range(left.shape[0]):
            to = out[min(panel * ROWS, height - ROWS), place:].ctypes.data
            one = left[panel].ctypes.data
            _single_apart(one, other, to, lines, count, ROWS * 4, 4, 0, _QUICK_COLUMNS * 4, 0, width * 4)


def _fill_weighted_panels(matrix: Any, weights: Any, out: Any, low: int, high: int) -> None:
    """Fill panels of `ROWS` columns with a matrix whose rows have a weight each, rounded once, and rows of zeros."""
    rows, columns = matrix.shape
    for row in range(rows):
        line, weight = matrix[row], weights[row]
        for panel in range(low, high):
            first = min(panel * ROWS, columns - ROWS)
            for column in range(ROWS):
                out[panel, row, column] = np.float64(line[first + column]) * weight
    out[low:high, rows:] = 0.0


def _fill_plain_panels(matrix: Any, out: Any, low: int, high: int) -> None:
    """Fill panels of `_QUICK_COLUMNS` columns with a matrix, and rows of zeros behind it."""
    rows, columns = matrix.shape
    for panel in range(low, high):
        first = min(panel * _QUICK_COLUMNS, columns - _QUICK_COLUMNS)
        for row in range(rows):
            out[panel, row, :] = matrix[row, first : first + _QUICK_COLUMNS]
    out[low:high, rows:] = 0.0


_quick_products = compiled(_fill_quick_products)
_weighted_panels, _plain_panels = compiled(_fill_weighted_panels), compiled(_fill_plain_panels)
_multiplying_quickly = Loop(_quick_products, compiled(lambda given, team: in_parts(_quick_products, given, team)))
_weighing = Loop(_weighted_panels, compiled(lambda given, team: in_parts(_weighted_panels, given, team)))
_laying = Loop(_plain_panels, compiled(lambda given, team: in_parts(_plain_panels, given, team)))


def quick_product(left: Tensor, right: Tensor, weights: Tensor, share: Any) -> Tensor:
    """Do as `product` in single precision, with at most `CHAIN` rows in one chain; ``share`` divides columns.

    Both factors are in single precision, with as many columns as a tile at least, and there is a row.
    """
    height, width, rows = left.shape[1], right.shape[1], len(left)
    lines = -(-rows // CHAIN)
    padded = -(-rows // lines) * lines
    made = left.new_empty(height, width)
    one, other = (
        left.new_empty(-(-matrix.shape[1] // columns), padded, columns).numpy()
        for matrix, columns in ((left, ROWS), (right, _QUICK_COLUMNS))
    )
    share(_weighing, left.contiguous().numpy(), weights.numpy(), one, places=len(one), size=one.size)
    share(_laying, right.contiguous().numpy(), other, places=len(other), size=other.size)
    out = made.numpy()
    size = out.size * rows // PER_NUMBER
    share(_multiplying_quickly, one, other, lines, out, places=len(other), size=size)
    return made
