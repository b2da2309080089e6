"""Spherical coordinates of vectors in any dimension: a magnitude and d - 1 angles, there and back, in O(d).

theta_z = atan2(sqrt(x_{z+1}^2 + ... + x_d^2), x_z) lies in [0, pi] for z <= d - 2, and theta_{d-1} =
atan2(x_d, x_{d-1}) in (-pi, pi] (Duan 2024, eq. 5.14 and 5.15, whose index is misprinted). The way back is a running
product of sines.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np

from noisette._validate import FloatArray

_BLOCK = 1 << 14  # entries at a time: what they need stays in a core's cache
_SHARED = 1 << 17  # numbers that are worth the work of all cores


def to_spherical(x: Any) -> tuple[Any, Any]:
    """Return the magnitudes and angles of vectors along the last axis, for numpy arrays and for torch tensors.

    For vectors of one entry the magnitude is |x| and the sign is lost. Entries are scaled first, so that no square
    overflows or vanishes.

    >>> magnitude, angles = to_spherical([3.0, 0.0, 4.0])
    >>> round(float(magnitude), 6), angles.round(6).tolist()
    (5.0, [0.927295, 1.570796])
    """
    if _is_torch(x):
        return _to_torch(x)
    vectors = np.asarray(x, dtype=np.float64)
    if vectors.ndim == 0 or vectors.shape[-1] == 0:
        raise ValueError(f"Expected vectors along the last axis, got an array of shape {vectors.shape}.")
    rows = np.require(vectors.reshape(-1, vectors.shape[-1]), requirements=["C", "W"])  # as loops are compiled for
    magnitudes, angles = np.empty(len(rows)), np.empty((len(rows), rows.shape[1] - 1))
    if rows.shape[1] < _SHARED:
        _to_many(rows, magnitudes, angles)
    else:
        for row, vector in enumerate(rows):
            magnitudes[row] = _to(vector, angles[row])
    return magnitudes.reshape(vectors.shape[:-1])[()], angles.reshape(*vectors.shape[:-1], vectors.shape[-1] - 1)


def from_spherical(magnitude: Any, angles: Any) -> Any:
    """Return the vectors that magnitudes and angles describe; angles may be any real numbers.

    >>> from_spherical(5.0, [0.9272952180016122, 1.5707963267948966]).round(6).tolist()
    [3.0, 0.0, 4.0]
    """
    if _is_torch(angles):
        return _from_torch(magnitude, angles)
    turns, sizes = np.asarray(angles, dtype=np.float64), np.asarray(magnitude, dtype=np.float64)
    if turns.ndim == 0 or turns.shape[:-1] != sizes.shape:
        raise ValueError(
            f"Expected one magnitude for each row of angles, got shapes {sizes.shape} and {turns.shape}. "
            "Angles lie along the last axis."
        )
    rows = np.ascontiguousarray(turns.reshape(sizes.size, turns.shape[-1]))
    vectors = np.empty((len(rows), turns.shape[-1] + 1))
    if rows.shape[1] < _SHARED:
        _from_many(np.ascontiguousarray(sizes.reshape(-1)), rows, vectors)
    else:
        for row, (size, turn) in enumerate(zip(sizes.reshape(-1), rows, strict=True)):
            _from(float(size), turn, vectors[row])
    return vectors.reshape(*sizes.shape, vectors.shape[1])


def _to(x: FloatArray, angles: FloatArray) -> float:
    """Write the angles of one vector and return its magnitude."""
    from noisette.mechanisms.geometric._scans import LEAST, MOST, turns

    last = x.size - 1
    parts = _blocks(last)
    scaled, unit, inner = x, 1.0, _inner(x, parts)
    if not LEAST < float(inner.sum()) + float(x[last]) * float(x[last]) < MOST:
        scale = float(np.abs(x).max())
        if not np.isfinite(scale):
            raise ValueError(f"Expected finite numbers, got a vector whose largest entry is {scale}.")
        if scale == 0:
            angles[:] = 0.0
            return 0.0
        unit = float(np.ldexp(1.0, np.frexp(scale)[1] - 1))  # a power of two: scaling is exact
        scaled = x / unit
        inner = _inner(scaled, parts)
    behind = np.append(np.cumsum(inner[::-1])[::-1], 0.0)[1:] + scaled[last] ** 2

    def work(place: int) -> None:
        turns(scaled[parts[place]], behind[place], angles[parts[place]])

    share(work, len(parts), x.size)
    if last:
        angles[-1] = np.arctan2(scaled[last], scaled[last - 1])
    return unit * float(np.sqrt(inner.sum() + scaled[last] ** 2))


def _from(size: float, angles: FloatArray, out: FloatArray) -> None:
    """Write the vector of one magnitude and its angles."""
    from noisette.mechanisms.geometric._scans import turned

    parts = _blocks(angles.size)
    products = np.empty(len(parts))

    def work(place: int) -> None:
        products[place] = turned(_reduced(angles[parts[place]]), out[parts[place]])

    share(work, len(parts), angles.size)
    for block, product in zip(parts, products, strict=True):
        out[block] *= size
        size *= float(product)
    out[-1] = size


def _inner(x: FloatArray, parts: list[slice]) -> FloatArray:
    """Return the sum of squares of each part."""
    from noisette.mechanisms.geometric._scans import squares

    sums = np.empty(len(parts))

    def work(place: int) -> None:
        sums[place] = squares(x[parts[place]])

    share(work, len(parts), x.size)
    return sums


def _to_many(rows: FloatArray, magnitudes: FloatArray, angles: FloatArray) -> None:
    """Write magnitudes and angles of many vectors."""
    from noisette.mechanisms.geometric._scans import rows_to

    parts = _blocks(len(rows), max(1, _BLOCK // rows.shape[1]))
    bad = np.full(len(parts), -1)

    def work(place: int) -> None:
        block = parts[place]
        bad[place] = rows_to(rows[block], magnitudes[block], angles[block])

    share(work, len(parts), rows.size)
    for place in np.flatnonzero(bad >= 0)[:1]:
        largest = np.abs(rows[parts[place]][bad[place]]).max()
        raise ValueError(f"Expected finite numbers, got a vector whose largest entry is {largest}.")


def _from_many(sizes: FloatArray, rows: FloatArray, vectors: FloatArray) -> None:
    """Write the vectors of many magnitudes and their angles."""
    from noisette.mechanisms.geometric._scans import rows_from

    parts = _blocks(len(rows), max(1, _BLOCK // vectors.shape[1]))

    def work(place: int) -> None:
        block = parts[place]
        rows_from(sizes[block], _reduced(rows[block]), vectors[block])

    share(work, len(parts), vectors.size)


def _reduced(angles: FloatArray) -> FloatArray:
    """Return angles that are small enough for polynomials, or an error for those that are none."""
    from noisette.mechanisms.geometric._scans import LARGEST

    if not angles.size or max(-float(angles.min()), float(angles.max())) <= LARGEST:
        return angles
    if not np.isfinite(angles).all():
        raise ValueError(f"Expected finite angles, got {angles[~np.isfinite(angles)][0]}.")
    return np.arctan2(np.sin(angles), np.cos(angles))


def _blocks(size: int, length: int = _BLOCK) -> list[slice]:
    return [slice(start, min(start + length, size)) for start in range(0, size, length)]


def share(work: Callable[[int], None], count: int, size: int) -> None:
    """Do the work of each block, with all cores where there is enough of it."""
    cores = os.cpu_count() or 1
    if size < _SHARED or cores == 1:
        for place in range(count):
            work(place)
        return

    def several(places: Sequence[int]) -> None:
        for place in places:
            work(place)

    others = [_pool(cores - 1).submit(several, range(first, count, cores)) for first in range(1, cores)]
    several(range(0, count, cores))
    for other in others:
        other.result()


@cache
def _pool(size: int) -> ThreadPoolExecutor:
    """Return threads that are kept: starting them takes as long as a tenth of the work."""
    return ThreadPoolExecutor(size, thread_name_prefix="noisette")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a child has none of its parent's threads


def _is_torch(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "torch"


def _by_numpy(*tensors: Any) -> bool:
    """Tell whether tensors can be lent to numpy: on the processor, of a type it has, and no gradient to keep."""
    return all(
        t.device.type == "cpu" and str(t.dtype) in ("torch.float32", "torch.float64") and not t.requires_grad
        for t in tensors
    )


def _to_torch(x: Any) -> tuple[Any, Any]:
    import torch

    if x.ndim == 0 or x.shape[-1] == 0:
        raise ValueError(f"Expected vectors along the last axis, got a tensor of shape {tuple(x.shape)}.")
    if _by_numpy(x):
        magnitude, turns = to_spherical(x.numpy())
        return torch.as_tensor(magnitude, dtype=x.dtype), torch.from_numpy(turns).to(x.dtype)
    scale = x.abs().amax(-1, keepdim=True)
    scaled = torch.where(scale > 0, x / scale, x)
    squares = scaled.square().flip(-1).cumsum(-1).flip(-1)
    angles = torch.atan2(squares[..., 1:].sqrt(), scaled[..., :-1])
    if x.shape[-1] > 1:
        angles = torch.cat([angles[..., :-1], torch.atan2(scaled[..., -1:], scaled[..., -2:-1])], -1)
    return scale[..., 0] * squares[..., 0].sqrt(), angles


def _from_torch(magnitude: Any, angles: Any) -> Any:
    import torch

    size = torch.as_tensor(magnitude, dtype=angles.dtype, device=angles.device)
    if angles.ndim == 0 or size.shape != angles.shape[:-1]:
        raise ValueError(
            f"Expected one magnitude for each row of angles, got shapes {tuple(size.shape)} and {tuple(angles.shape)}. "
            "Angles lie along the last axis."
        )
    if _by_numpy(size, angles):
        return torch.from_numpy(from_spherical(size.numpy(), angles.numpy())).to(angles.dtype)
    products = torch.cat([size[..., None], size[..., None] * torch.cumprod(torch.sin(angles), -1)], -1)
    return torch.cat([products[..., :-1] * torch.cos(angles), products[..., -1:]], -1)
