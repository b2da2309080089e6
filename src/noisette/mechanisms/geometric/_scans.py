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


def _turned(tangents: FloatArray, out: FloatArray) -> float:
    """Write each cosine times the sines before it, from tangents of half the angles; return the product of sines."""
    before = 1.0
    for place in range(tangents.size):
        tangent = tangents[place]
        square = tangent * tangent
        whole = 1 / (1 + square)
        out[place] = before * ((1 - square) * whole)
        before *= 2 * tangent * whole
    return before


squares_behind = compiled(_squares_behind)
turned = compiled(_turned)
