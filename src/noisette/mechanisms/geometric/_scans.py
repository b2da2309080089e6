"""The two loops of spherical coordinates that numpy cannot vectorise; numba keeps what it compiles on disk."""

from __future__ import annotations

from noisette._validate import FloatArray
from noisette.mechanisms._compiled import compiled


def _squares_behind(x: FloatArray, behind: float, out: FloatArray) -> float:
    """Write the sum of squares behind each entry, given that behind the last; return the sum with all of them."""
    for place in range(x.size - 1, -1, -1):
        out[place] = behind
        behind += x[place] * x[place]
    return behind


def _products_before(factors: FloatArray, before: float, out: FloatArray) -> float:
    """Multiply each entry of ``out`` by the product of the factors before it; return the product of all."""
    for place in range(factors.size):
        out[place] *= before
        before *= factors[place]
    return before


squares_behind = compiled(_squares_behind)
products_before = compiled(_products_before)
