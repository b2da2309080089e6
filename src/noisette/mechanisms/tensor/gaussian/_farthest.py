"""A search for the neighbours that are farthest apart in units of the noise, in the domain itself.

Calibration bounds the distance of neighbours from above (`Neighbours.white`). This search knows the domain, the
relation and the noise alone, and shares no code with those bounds. The exact calculator takes the larger of the two
distances, so a bound that is too small is noticed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from noisette._validate import FloatArray
from noisette.domains import TensorBall, TensorDomain
from noisette.mechanisms.tensor._tensors import average

_ENUMERATED = 14  # entries up to which all vectors of signs are tried
_STARTS = 24  # random places that the search starts from
_ROUNDS = 60
_BLOCKS = 64  # places of the entries that may differ, beyond which some are drawn
_ENTRIES = 1 << 20  # numbers held at a time


def farthest(
    domain: TensorDomain | TensorBall,
    relation: str,
    whiteners: Sequence[FloatArray | None],
    symmetry: Sequence[tuple[int, ...]] = (),
) -> tuple[FloatArray, float]:
    """Return a difference of two neighbours and its length once whitened, the longest that the search finds.

    Where up to 14 entries may differ, all signs are tried, which finds the longest. Beyond that the search steps to the
    corner of the box, or the direction in the ball, that the gradient points to, until it no longer moves: a convex
    function is largest at such a place.
    """
    rng = np.random.default_rng(0)
    best, longest = np.zeros(domain.dims), -1.0
    for block in _places(domain, relation, rng):
        gap, length = _search(domain, relation, block, whiteners, symmetry, rng)
        if length > longest:
            best, longest = gap, length
    return best, longest


def _places(domain: Any, relation: str, rng: np.random.Generator) -> list[tuple[Any, ...]]:
    """Return the parts of a tensor in which neighbours may differ, as indices: all of them, or some."""
    word, _, detail = relation.partition(":")
    order = len(domain.dims)
    if word in ("any-pair", "l2", "box"):
        return [(slice(None),) * order]
    if word == "element":
        fixed = set(range(order))
    else:
        fixed = {int(detail)} if word == "slice" else set(range(order)) - {int(detail)}
    sizes = [domain.dims[k] if k in fixed else 1 for k in range(order)]
    if math.prod(sizes) <= _BLOCKS:
        chosen = list(product(*map(range, sizes)))
    else:
        chosen = list({tuple(int(rng.integers(size)) for size in sizes) for _ in range(_BLOCKS)})
        chosen += [(0,) * order, tuple(size - 1 for size in sizes)]
    return [tuple(index if k in fixed else slice(None) for k, index in enumerate(place)) for place in chosen]


def _search(
    domain: Any,
    relation: str,
    block: tuple[Any, ...],
    whiteners: Sequence[FloatArray | None],
    symmetry: Sequence[tuple[int, ...]],
    rng: np.random.Generator,
) -> tuple[FloatArray, float]:
    """Return the longest difference within one part of the tensor."""
    order = len(domain.dims)
    inside = np.zeros(domain.dims, dtype=bool)
    inside[block] = True
    entries = int(inside.sum())
    word, _, detail = relation.partition(":")
    width = float(detail) if word == "box" else domain.high - domain.low if isinstance(domain, TensorDomain) else None
    width = None if word == "l2" else width
    distance = float(detail) if word == "l2" else None

    def kept(rows: FloatArray) -> FloatArray:
        """Return the admissible difference that goes farthest in each direction."""
        if symmetry:
            average(rows, symmetry, order)
        if width is not None:
            return np.where(inside, width * np.where(rows < 0, -1.0, 1.0), 0.0)
        flat = np.where(inside, rows, 0.0)
        if distance is not None or domain.mode is None:
            norms = _norm(flat, range(1, order + 1))
            reach = 2 * domain.radius if distance is None else distance
        else:  # each slice has a length of its own
            norms = _norm(flat, [k + 1 for k in range(order) if k != domain.mode])
            reach = 2 * domain.radius
        return np.asarray(flat * (reach / np.where(norms > 0, norms, 1.0)))

    if width is not None and entries <= _ENUMERATED and not symmetry:
        signs = 1.0 - 2.0 * ((np.arange(1 << (entries - 1))[:, None] >> np.arange(entries)) & 1)
        rows = np.zeros((len(signs), *domain.dims))
        rows[:, inside] = width * signs
        rounds = 0
    else:
        rows = rng.standard_normal((max(1, min(_STARTS, _ENTRIES // math.prod(domain.dims))), *domain.dims))
        rows[0] = 1.0
        rows, rounds = kept(rows), _ROUNDS
    for _ in range(rounds):
        moved = kept(_along(_along(rows, whiteners), whiteners, transposed=True))
        if np.allclose(moved, rows, rtol=1e-13, atol=0.0):
            break
        rows = moved
    lengths = _norm(_along(rows, whiteners), range(1, order + 1)).reshape(-1)
    longest = int(np.argmax(lengths))
    return rows[longest], float(lengths[longest])


def _along(rows: FloatArray, whiteners: Sequence[FloatArray | None], *, transposed: bool = False) -> FloatArray:
    """Multiply each mode of tensors by its whitener, or by the transpose of its whitener."""
    result = rows
    for mode, whitener in enumerate(whiteners):
        if whitener is None:
            continue
        if whitener.ndim == 1:
            result = result * whitener.reshape(-1, *(1,) * (len(whiteners) - mode - 1))
            continue
        matrix = whitener.T if transposed else whitener
        result = np.moveaxis(np.tensordot(result, matrix, axes=(mode + 1, 1)), -1, mode + 1)
    return np.asarray(result)


def _norm(rows: FloatArray, axes: Any) -> FloatArray:
    """Return lengths along some axes, which are kept."""
    return np.asarray(np.sqrt(np.square(rows).sum(axis=tuple(axes), keepdims=True)))
