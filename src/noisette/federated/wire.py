"""How reports travel: eight weights a byte where a report holds two numbers, two bytes a weight where noise allows it.

A projected vector travels as its seed, four bytes, and a byte for each row.

Noise hides the last digits of a report. Rounding it once more, to a public lattice that is coarser and yet far below
the noise, is post-processing and costs no privacy; 16 bits then hold what float64 did. The lattice and the type follow
from the mechanism alone, so that reports of one channel all have the same type and length, whatever they are about.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from noisette._validate import FloatArray
from noisette.mechanisms._base import Lattice, power_of_two
from noisette.mechanisms.tensor._tensors import TensorLattice
from noisette.mechanisms.vector.fast_projunit import Seeded
from noisette.mechanisms.vector.privunit import Shell

_SHORT_FINENESS = 2.0**8  # least number of steps of a lattice of 16-bit integers in a standard deviation of the noise
_FINENESS = 2.0**11  # of a lattice of 32-bit integers, or up to twice as many
_ALONG = 5.0  # root mean squares of an entry that a vector may have along an axis, for 8 bits to hold it and its noise
_REACH = 30.0  # deviations that an entry never goes beyond: by double exponential noise with a chance of 1e-18


def coarse(support: Any, deviation: float, dims: int) -> tuple[Any, np.dtype[Any]]:
    """Return the support of reports rounded to travel and their type, or the support as it is and float64.

    Points of the coarse lattice belong to that of the mechanism, whose ends, if it has any, would be in the way.
    """
    as_it_is = support, np.dtype(np.float64)
    if isinstance(support, Seeded):
        return _seeded(support, deviation)
    kind: np.dtype[Any] = np.dtype(np.int16)
    farthest = 3 + _REACH * deviation  # of inputs in [-1, 1]; noise in stairs has steps as long as that interval
    step = 2 * power_of_two(farthest / np.iinfo(kind).max)
    if step > deviation / _SHORT_FINENESS:
        kind, step = np.dtype(np.int32), power_of_two(deviation) / _FINENESS
    if farthest > step * np.iinfo(kind).max:
        return as_it_is
    if not isinstance(support, Shell | Lattice | TensorLattice) or step <= support.step:
        return as_it_is
    if math.frexp(support.step)[0] != 0.5:  # no power of two
        return as_it_is
    if isinstance(support, Shell):
        return _widened(support, step, dims), kind
    bounded = isinstance(support, Lattice) and math.isfinite(support.high)
    return as_it_is if support.origin != 0 or bounded else (replace(support, step=step), kind)


def _seeded(support: Seeded, deviation: float) -> tuple[Seeded, np.dtype[Any]]:
    """Return the support of projected vectors rounded to travel and their type: 8 bits, or 16 where noise is small.

    All have one length, hence entries of a known size, of which the noise is nearly all unless the budget is large.
    What a vector has along an axis is then the root of the rest.
    """
    if support.drawn is None:
        return support, np.dtype(np.int16)
    size, longest = math.sqrt(support.numbers), support.drawn.longest
    along = math.sqrt(max(0.0, 1 - (deviation * size / longest) ** 2)) * size
    kind, parts = (np.dtype(np.int8), 2.0**3) if along <= _ALONG else (np.dtype(np.int16), 2.0**11)
    step = power_of_two(longest / size) / parts
    if step <= support.drawn.step:
        return support, np.dtype(np.float64)
    return replace(support, drawn=_widened(support.drawn, step, support.numbers)), kind


def _widened(shell: Shell, step: float, dims: int) -> Shell:
    """Return the shell of vectors that were rounded to multiples of a larger step."""
    slack = step * math.sqrt(dims)
    return replace(shell, step=step, shortest=max(0.0, shell.shortest - slack), longest=shell.longest + slack)


def seeded(report: FloatArray, support: Seeded, kind: Any, rng: np.random.Generator) -> npt.NDArray[Any]:
    """Return a seed and what was drawn under it as numbers of one type, the seed's bytes first."""
    if kind.kind == "f":
        return np.asarray(report)
    drawn = report[1:] if support.drawn is None else rounded(report[1:].copy(), support.drawn.step, rng)
    return np.concatenate([np.asarray(report[:1], dtype="<u4").view(kind), packed(drawn.copy(), kind)])


def from_seeded(payload: npt.NDArray[Any], support: Seeded) -> FloatArray:
    """Return the reports that rows of such numbers stand for."""
    if payload.dtype.kind == "f":
        return np.asarray(payload, dtype=np.float64)
    first = seed_numbers(payload.dtype)
    seeds = np.ascontiguousarray(payload[..., :first]).view("<u4").astype(np.float64)
    step = 1.0 if support.drawn is None else support.drawn.step
    return np.concatenate([seeds, payload[..., first:] * step], axis=-1)


def seed_numbers(kind: Any) -> int:
    """Return how many numbers of a type hold a seed: one as it is, or its four bytes."""
    return 1 if kind.kind == "f" else 4 // int(kind.itemsize)


def rounded(report: FloatArray, step: float, rng: np.random.Generator) -> FloatArray:
    """Turn a report into integers, in place: multiples of ``step``, each rounded up with the chance of its remainder.

    One uniform for all of them makes none biased, and adds at most a quarter of a squared step to the variance.
    """
    report *= 1 / step
    report += rng.random()
    return np.floor(report, out=report)


def packed(integers: FloatArray, kind: Any) -> npt.NDArray[Any]:
    """Return integers in their type; one that is farther than noise ever goes is moved to the type's end."""
    end = np.iinfo(kind).max
    return np.clip(integers, -end, end, out=integers).astype(kind)


def possible(report: FloatArray, support: Any) -> bool:
    """Tell whether multiples of the step that integers hold are a report of the support: their length may be wrong."""
    return not isinstance(support, Shell) or bool(support.spans(report))


def bits(report: FloatArray, ends: Sequence[float]) -> npt.NDArray[np.uint8]:
    """Return a report of two numbers, eight weights a byte."""
    return np.packbits(report > ends[0])


def from_bits(payload: npt.NDArray[np.uint8], ends: tuple[float, float], dims: int) -> FloatArray:
    """Return the report of two numbers that bytes stand for."""
    return np.asarray(_bytes(ends).take(payload, axis=0).reshape(-1)[:dims])


@lru_cache(maxsize=16)
def _bytes(ends: tuple[float, float]) -> FloatArray:
    """What each byte stands for: eight numbers."""
    return np.asarray(ends).take(np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1))
