"""How reports travel: eight weights a byte where a report holds two numbers, two bytes a weight where noise allows it.

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
from noisette.mechanisms.vector.privunit import Shell

_SHORT_FINENESS = 2.0**8  # least number of steps of a lattice of 16-bit integers in a standard deviation of the noise
_FINENESS = 2.0**11  # of a lattice of 32-bit integers, or up to twice as many
_REACH = 30.0  # deviations that an entry never goes beyond: by double exponential noise with a chance of 1e-18


def coarse(support: Any, deviation: float, dims: int) -> tuple[Any, np.dtype[Any]]:
    """Return the support of reports rounded to travel and their type, or the support as it is and float64.

    Points of the coarse lattice belong to that of the mechanism, whose ends, if it has any, would be in the way.
    """
    as_it_is = support, np.dtype(np.float64)
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
        slack = step * math.sqrt(dims)
        return Shell(step, max(0.0, support.shortest - slack), support.longest + slack), kind
    bounded = isinstance(support, Lattice) and math.isfinite(support.high)
    return as_it_is if support.origin != 0 or bounded else (replace(support, step=step), kind)


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
