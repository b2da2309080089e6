"""The Walsh-Hadamard transform as machine code, and counting for it; numba is imported with this module only."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from noisette.mechanisms._compiled import compiled

_BLOCK = 1 << 12  # numbers that stay in a core's cache while they are transformed


def _stages(line: npt.NDArray[Any], start: int, stop: int, half: int) -> None:
    """Do the stages from distance ``half`` on of a stretch of a line, two at a time."""
    while 4 * half <= stop - start:
        for first in range(start, stop, 4 * half):
            one, two = line[first : first + half], line[first + half : first + 2 * half]
            three, four = line[first + 2 * half : first + 3 * half], line[first + 3 * half : first + 4 * half]
            for place in range(half):
                a, b, c, d = one[place], two[place], three[place], four[place]
                one[place], two[place] = (a + b) + (c + d), (a - b) + (c - d)
                three[place], four[place] = (a + b) - (c + d), (a - b) - (c - d)
        half *= 4
    if half < stop - start:
        for place in range(start, start + half):
            a, b = line[place], line[place + half]
            line[place], line[place + half] = a + b, a - b


def _walsh(rows: npt.NDArray[Any]) -> None:
    """Transform each row: stretches that fit the cache first, then across them."""
    size = rows.shape[1]
    block = min(size, _BLOCK)
    for row in range(rows.shape[0]):
        for start in range(0, size, block):
            stages(rows[row], start, start + block, 1)
        stages(rows[row], 0, size, block)


def _count(found: npt.NDArray[Any], places: npt.NDArray[Any], values: npt.NDArray[Any]) -> None:
    """Add one at the place of each value."""
    for i in range(values.size):
        found[places[values[i]]] += 1


stages, count = compiled(_stages), compiled(_count)
walsh = compiled(_walsh)
