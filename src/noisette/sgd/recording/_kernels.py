"""Every example's gradient of a convolution's kernel: sums over positions of gradient times what the kernel saw there.

Two ways, chosen by cost. `windows` copies what the kernel sees, once for each of its entries, and a product of matrices
follows. Where an image is large beside its channels that copy takes longer than the product; `direct` then needs none:
with rows of the gradient as far apart as those of the image, the sum over all positions is one long product of two
vectors, the second of which begins one pixel later for the next entry of the kernel.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from noisette.mechanisms._compiled import compiled
from noisette.sgd.recording import _rows

_CACHED = 1 << 18  # numbers that stay in a core's cache
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


def _each(entered: Any, gradient: Any, above: int, before: int, rows: int, pitch: int, apart: Any, out: Any) -> None:
    """Fill every example's gradient (channels out, channels in, height, width of the kernel).

    Images (channels, height, width) are laid among zeros, ``above`` and ``before`` them, in ``rows`` of ``pitch``.
    """
    leaving, high, wide = gradient.shape[1:]
    channels, height, width = out.shape[2:]
    down, step = apart
    padded = np.zeros((channels, rows * pitch), dtype=entered.dtype)
    spread = np.zeros((-(-leaving // 4) * 4, (high - 1) * pitch + wide), dtype=gradient.dtype)
    made = np.empty((spread.shape[0], channels * height * width), dtype=gradient.dtype)
    for example in range(entered.shape[0]):
        for channel in range(channels):
            for row in range(entered.shape[2]):
                start = (above + row) * pitch + before
                padded[channel, start : start + entered.shape[3]] = entered[example, channel, row]
        for channel in range(leaving):
            for row in range(high):
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


def each_kernel(layer: Any, entered: Tensor, gradient: Tensor, *, direct: bool) -> Tensor:
    """Return every example's gradient of a convolution's weights, without groups, as (examples, fan out, fan in).

    Those of the direct way are in the order of the weights, others as `placed` expects them.
    """
    if direct:
        return _direct(layer, entered, gradient)
    outputs = gradient.flatten(2)
    made = outputs.new_empty(*outputs.shape[:2], math.prod(layer.weight.shape[1:]))
    some = max(_CACHED // max(outputs.shape[2] * made.shape[2], 1), 1)
    for start in range(0, len(made), some):  # windows are many times the image: make them where a cache holds them
        part = slice(start, start + some)
        torch.bmm(outputs[part], windows(layer, entered[part]).transpose(1, 2), out=made[part])
    return made


def placed(layer: Any, weight: Tensor) -> Tensor:
    """Bring (..., fan in) into the weights' shape: `windows` lays the kernel's last axis before the others."""
    channels, *kernel = layer.weight.shape[1:]
    return weight.reshape(*weight.shape[:-1], channels, kernel[-1], *kernel[:-1]).movedim(-len(kernel), -1)


def is_direct(layer: Any, entered: Tensor) -> bool:
    """Tell whether a long product for each entry of the kernel is the quicker way, and can be taken."""
    return (
        len(layer.kernel_size) <= 2
        and math.prod(entered.shape[2:]) >= _LONG
        and all(stride == 1 for stride in layer.stride)
        and _rows.compilable(entered)
    )


def _direct(layer: Any, entered: Tensor, gradient: Tensor) -> Tensor:
    if layer.padding_mode != "zeros":
        entered = functional.pad(entered, layer._reversed_padding_repeated_twice, mode=layer.padding_mode)
        before, after, above, below = 0, 0, 0, 0
    else:
        before, after, above, below = (*layer._reversed_padding_repeated_twice, 0, 0)[:4]
    if entered.ndim == 3:  # a line is an image of one row
        entered, gradient = entered[:, :, None], gradient[:, :, None]
    rows, pitch = entered.shape[2] + above + below, entered.shape[3] + before + after
    made = entered.new_empty(len(gradient), *layer.weight.shape)
    images = made if layer.weight.ndim == 4 else made[:, :, :, None]
    apart = (1, *layer.dilation)[-2:]
    given, back, out = entered.contiguous().numpy(), gradient.to(entered).contiguous().numpy(), images.numpy()
    _rows.shared(
        lambda low, high: _fill_each(given[low:high], back[low:high], above, before, rows, pitch, apart, out[low:high]),
        len(given),
        made.numel() * back[0, 0].size if len(given) else 0,
    )
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
