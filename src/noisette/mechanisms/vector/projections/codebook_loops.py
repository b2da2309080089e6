"""The words of a codebook and their products with a direction, as machine code, without keeping the words."""

from __future__ import annotations

from typing import Any

import numpy as np

from noisette._validate import FloatArray
from noisette.mechanisms._compiled import compiled


def _normal(seed: Any, place: int, ends: FloatArray) -> float:
    """Return the number at a place of a seed's list: 16 bits choose a cell of the normal law, 48 the point in it."""
    word = seed * np.uint64(0xD1342543DE82EF95) + np.uint64(0x9E3779B97F4A7C15)
    word = (word ^ (word >> np.uint64(32))) + np.uint64(place) * np.uint64(0x9E3779B97F4A7C15)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    word = word ^ (word >> np.uint64(31))
    cell = np.int64(word >> np.uint64(48))
    share = float(np.int64(word & np.uint64(0xFFFFFFFFFFFF))) * 2.0**-48
    return float(ends[cell] + share * (ends[cell + 1] - ends[cell]))


def _products(seed: Any, direction: FloatArray, ends: FloatArray, found: FloatArray) -> None:
    """Put the product of each word with a direction into ``found``."""
    dims = direction.size
    for number in range(found.size):
        total = 0.0
        for place in range(dims):
            total += normal(seed, number * dims + place, ends) * direction[place]
        found[number] = total


def _write(seed: Any, number: int, ends: FloatArray, row: FloatArray) -> None:
    """Put one word into a row."""
    for place in range(row.size):
        row[place] = normal(seed, number * row.size + place, ends)


normal = compiled(_normal, inline="always")
products = compiled(_products)
write = compiled(_write)
