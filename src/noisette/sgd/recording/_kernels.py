"""Every example's gradient of a convolution's kernel: sums over positions of gradient times what the kernel saw there.

Three ways, chosen by cost. With channels enough an image is copied once, with channels next to each other, among zeros:
what a row of the kernel sees is then one row of numbers, and the next position's begins one pixel later, so that tiles
of the product are summed up in registers without a copy of the windows (`_tiles`). With few channels and many pixels
rows of the gradient are laid as far apart as those of the image, and the sum over all positions is one long product of
two vectors, the second of which begins one pixel later for the next entry of the kernel. Else `windows` copies what the
kernel sees, once for each of its entries, and a product of matrices follows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from noisette.mechanisms._compiled import compiled
from noisette.mechanisms._team import Loop, in_parts
from noisette.sgd.recording import _rows, _tiles

_CACHED = 1 << 18  # numbers that stay in a core's cache
Way = Literal["tiles", "direct", "windows"]
_LONG = 512  # pixels from which one long product is quicker than a copy: below, its ends take as long as the rest


def _twelve(gradient: Any, first: int, one: Any, two: Any, three: Any, out: Any, place: int) -> None:
    """Fill the products of four rows of the gradient with what three entries of the kernel see."""
    g, h, i, j = gradient[first], gradient[first + 1], gradient[first + 2], gradient[first + 3]
    a = b = c = d = e = f = p = q = r = s = t = u = gradient.dtype.type(0)
    for position in range(g.size):
        x, y, z = one[position], two[position], three[position]
        a += g[position] * x
        b += g[position] * y
        c += g[position] * z
        d += h[position] * x
        e += h[position] * y
        f += h[position] * z
        p += i[position] * x
        q += i[position] * y
        r += i[position] * z
        s += j[position] * x
        t += j[position] * y
        u += j[position] * z
    out[first, place], out[first, place + 1], out[first, place + 2] = a, b, c
    out[first + 1, place], out[first + 1, place + 1], out[first + 1, place + 2] = d, e, f
    out[first + 2, place], out[first + 2, place + 1], out[first + 2, place + 2] = p, q, r
    out[first + 3, place], out[first + 3, place + 1], out[first + 3, place + 2] = s, t, u


def _four(gradient: Any, first: int, seen: Any, out: Any, place: int) -> None:
    """Fill the products of four rows of the gradient with what one entry of the kernel sees."""
    g, h, i, j = gradient[first], gradient[first + 1], gradient[first + 2], gradient[first + 3]
    a = b = c = d = gradient.dtype.type(0)
    for position in range(g.size):
        a += g[position] * seen[position]
        b += h[position] * seen[position]
        c += i[position] * seen[position]
        d += j[position] * seen[position]
    out[first, place], out[first + 1, place], out[first + 2, place], out[first + 3, place] = a, b, c, d


_fill_twelve = compiled(_twelve, fastmath={"reassoc", "contract"})
_fill_four = compiled(_four, fastmath={"reassoc", "contract"})


def _each(
    entered: Any,
    gradient: Any,
    above: int,
    before: int,
    rows: int,
    pitch: int,
    apart: Any,
    out: Any,
    low: int,
    high: int,
) -> None:
    """Fill every example's gradient (channels out, channels in, height, width of the kernel).

    Images (channels, height, width) are laid among zeros, ``above`` and ``before`` them, in ``rows`` of ``pitch``.
    """
    leaving, lines, wide = gradient.shape[1:]
    channels, height, width = out.shape[2:]
    down, step = apart
    padded = np.zeros((channels, rows * pitch), dtype=entered.dtype)
    spread = np.zeros((-(-leaving // 4) * 4, (lines - 1) * pitch + wide), dtype=gradient.dtype)
    made = np.empty((spread.shape[0], channels * height * width), dtype=gradient.dtype)
    for example in range(low, high):
        for channel in range(channels):
            for row in range(entered.shape[2]):
                start = (above + row) * pitch + before
                padded[channel, start : start + entered.shape[3]] = entered[example, channel, row]
        for channel in range(leaving):
            for row in range(lines):
                spread[channel, row * pitch : row * pitch + wide] = gradient[example, channel, row]
        for first in range(0, spread.shape[0], 4):
            for channel in range(channels):
                for row in range(height):
                    seen = padded[channel, row * down * pitch :]
                    place, column = (channel * height + row) * width, 0
                    while column + 3 <= width:
                        one, two, three = (
                            seen[column * step :],
                            seen[(column + 1) * step :],
                            seen[(column + 2) * step :],
                        )
                        _fill_twelve(spread, first, one, two, three, made, place + column)
                        column += 3
                    while column < width:
                        _fill_four(spread, first, seen[column * step :], made, place + column)
                        column += 1
        out[example] = made[:leaving].reshape(out.shape[1:])


_fill_each = compiled(_each)
_filling = Loop(_fill_each, compiled(lambda given, team: in_parts(_fill_each, given, team)))


def _each_by_tiles(
    entered: Any,
    gradient: Any,
    above: int,
    before: int,
    rows: int,
    columns: int,
    apart: Any,
    strides: Any,
    vectors: int,
    out: Any,
    low: int,
    high: int,
) -> None:
    """Fill every example's gradient (channels out, height, width of the kernel, channels in).

    Images are laid among zeros, ``above`` and ``before`` them, in ``rows`` of ``columns``.
    """
    size, channels = entered.itemsize, entered.shape[1]
    leaving, lines, wide = gradient.shape[1:]
    height, width = out.shape[2], out.shape[3]
    padded = np.zeros((rows, columns, channels), dtype=entered.dtype)
    once = apart[1] == 1  # then entries of a row of the kernel see one row of numbers
    length, parts = (width * channels, 1) if once else (channels, width)
    pixel, line = channels * size, columns * channels * size
    steps = (
        size,
        lines * wide * size,
        0,
        strides[1] * pixel,
        strides[0] * line - wide * strides[1] * pixel,
        height * width * pixel,
    )
    for example in range(low, high):
        for row in range(entered.shape[2]):
            for channel in range(channels):
                for column in range(entered.shape[3]):
                    padded[above + row, before + column, channel] = entered[example, channel, row, column]
        one, other, to = gradient[example].ctypes.data, padded.ctypes.data, out[example].ctypes.data
        for row in range(height):
            for part in range(parts):
                _tiles.tiles(
                    size,
                    vectors,
                    one,
                    other + row * apart[0] * line + part * apart[1] * pixel,
                    to + (row * width + part) * pixel,
                    lines,
                    wide,
                    steps,
                    leaving,
                    length,
                )


_fill_by_tiles = compiled(_each_by_tiles)
_filling_by_tiles = Loop(_fill_by_tiles, compiled(lambda given, team: in_parts(_fill_by_tiles, given, team)))


def each_kernel(layer: Any, entered: Tensor, gradient: Tensor, way: Way) -> Tensor:
    """Return every example's gradient of a convolution's weights, without groups, as (examples, fan out, fan in).

    `placed` brings it into the order of the weights.
    """
    if way == "tiles":
        return _by_tiles(layer, entered, gradient)
    if way == "direct":
        return _direct(layer, entered, gradient)
    outputs = gradient.flatten(2)
    made = outputs.new_empty(*outputs.shape[:2], math.prod(layer.weight.shape[1:]))
    some = max(_CACHED // max(outputs.shape[2] * made.shape[2], 1), 1)
    for start in range(0, len(made), some):  # windows are many times the image: make them where a cache holds them
        part = slice(start, start + some)
        torch.bmm(outputs[part], windows(layer, entered[part]).transpose(1, 2), out=made[part])
    return made


def placed(layer: Any, weight: Tensor, way: Way = "windows") -> Tensor:
    """Bring (..., fan in) into the weights' shape.

    `windows` lays the kernel's last axis before the others, tiles the channels behind them.
    """
    channels, *kernel = layer.weight.shape[1:]
    if way == "direct":
        return weight.reshape(*weight.shape[:-1], channels, *kernel)
    if way == "tiles":
        return weight.reshape(*weight.shape[:-1], *kernel, channels).movedim(-1, -len(kernel) - 1)
    return weight.reshape(*weight.shape[:-1], channels, kernel[-1], *kernel[:-1]).movedim(-len(kernel), -1)


def way_of(layer: Any, entered: Sequence[Tensor]) -> Way:
    """Return the quickest way that can be taken for all uses of a layer."""
    if len(layer.kernel_size) > 2 or not all(map(_rows.compilable, entered)):
        return "windows"
    if _registers(layer, entered[0]):
        return "tiles"
    long = all(math.prod(one.shape[2:]) >= _LONG for one in entered)
    return "direct" if long and all(stride == 1 for stride in layer.stride) else "windows"


def _registers(layer: Any, entered: Tensor) -> int:
    """Return how many registers a row of a tile has, 0 where none fits a row of the kernel."""
    fan_out, channels, *kernel = layer.weight.shape
    length = channels * (kernel[-1] if layer.dilation[-1] == 1 else 1)
    return _tiles.vectors_of(fan_out, length, entered.element_size())


def _by_tiles(layer: Any, entered: Tensor, gradient: Tensor) -> Tensor:
    entered, (before, after, above, below) = _bordered(layer, entered)
    gradient = gradient.to(entered)
    if entered.ndim == 3:
        entered, gradient = entered[:, :, None], gradient[:, :, None]
    fan_out, channels, *kernel = layer.weight.shape
    made = entered.new_empty(len(gradient), fan_out, *(1, *kernel)[-2:], channels)
    rows, columns = entered.shape[2] + above + below, entered.shape[3] + before + after
    given, back, out = entered.contiguous().numpy(), gradient.contiguous().numpy(), made.numpy()
    apart, strides, vectors = (1, *layer.dilation)[-2:], (1, *layer.stride)[-2:], _registers(layer, entered)
    size = made.numel() * back[0, 0].size // _tiles.PER_NUMBER if len(given) else 0
    laid = above, before, rows, columns, apart, strides, vectors
    _rows.shared(_filling_by_tiles, given, back, *laid, out, places=len(given), size=size)
    return made.flatten(2)


def _bordered(layer: Any, entered: Tensor) -> tuple[Tensor, tuple[int, int, int, int]]:
    """Return an image and how many zeros belong before, after, above and below it; other borders are laid around it."""
    if layer.padding_mode != "zeros":
        return functional.pad(entered, layer._reversed_padding_repeated_twice, mode=layer.padding_mode), (0, 0, 0, 0)
    before, after, above, below = (*layer._reversed_padding_repeated_twice, 0, 0)[:4]
    return entered, (before, after, above, below)


def _direct(layer: Any, entered: Tensor, gradient: Tensor) -> Tensor:
    entered, (before, after, above, below) = _bordered(layer, entered)
    if entered.ndim == 3:  # a line is an image of one row
        entered, gradient = entered[:, :, None], gradient[:, :, None]
    rows, pitch = entered.shape[2] + above + below, entered.shape[3] + before + after
    made = entered.new_empty(len(gradient), *layer.weight.shape)
    images = made if layer.weight.ndim == 4 else made[:, :, :, None]
    apart = (1, *layer.dilation)[-2:]
    given, back, out = entered.contiguous().numpy(), gradient.to(entered).contiguous().numpy(), images.numpy()
    size = made.numel() * back[0, 0].size // _tiles.PER_NUMBER if len(given) else 0
    _rows.shared(_filling, given, back, above, before, rows, pitch, apart, out, places=len(given), size=size)
    return made.flatten(2)


def windows(layer: Any, entered: Tensor) -> Tensor:
    """Return what the kernel sees, as (examples, channels x kernel, positions).

    Two copies: first along the last axis, then along the others, in runs as long as the output is wide or longer.
    """
    around = layer._reversed_padding_repeated_twice
    if any(around):
        mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
        entered = functional.pad(entered, around, mode=mode)
    rules = list(zip(layer.kernel_size, layer.dilation, layer.stride, strict=True))
    counts = [(n - d * (k - 1) - 1) // s + 1 for n, (k, d, s) in zip(entered.shape[2:], rules, strict=True)]
    (width, apart, stride), step = rules[-1], entered.stride()
    rows = entered.as_strided(
        (*entered.shape[:2], width, *entered.shape[2:-1], counts[-1]),
        (*step[:2], apart * step[-1], *step[2:-1], stride * step[-1]),
        entered.storage_offset(),
    ).contiguous()
    step = rows.stride()
    made = rows.as_strided(
        (*rows.shape[:3], *(k for k, _, _ in rules[:-1]), *counts),
        (
            *step[:3],
            *(d * along for along, (_, d, _) in zip(step[3:], rules[:-1], strict=False)),
            *(s * along for along, (_, _, s) in zip(step[3:], rules[:-1], strict=False)),
            step[-1],
        ),
    )
    return made.flatten(-len(counts)).flatten(1, -2)
