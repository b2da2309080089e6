"""The Walsh-Hadamard transform of integers, in place, and counting for it; numba is imported with this module."""

from __future__ import annotations

from typing import Any

from noisette.mechanisms._compiled import compiled

_CACHED = 1 << 12  # numbers that stay in a core's first cache


def _transform(values: Any, block: int) -> None:
    """Add and subtract at all distances, those within blocks first: a block stays in the cache meanwhile."""
    for start in range(0, values.size, block):
        half = 1
        while half < block:
            for place in range(start, start + block, 2 * half):
                first, second = values[place : place + half], values[place + half : place + 2 * half]
                for i in range(half):
                    a, b = first[i], second[i]
                    first[i] = a + b
                    second[i] = a - b
            half *= 2
    half = block
    while half < values.size:
        for place in range(0, values.size, 2 * half):
            first, second = values[place : place + half], values[place + half : place + 2 * half]
            for i in range(half):
                a, b = first[i], second[i]
                first[i] = a + b
                second[i] = a - b
        half *= 2


def _count(found: Any, places: Any, values: Any) -> None:
    """Add one at the place of each value."""
    for i in range(values.size):
        found[places[values[i]]] += 1


_inner, count = compiled(_transform), compiled(_count)


def transform(values: Any) -> None:
    """Replace values by their sums with signs (-1)^(number of bits that both places have); their number is 2^n."""
    _inner(values, min(_CACHED, values.size))
