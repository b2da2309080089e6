"""How reports travel: eight weights a byte where a report holds two numbers, two bytes a weight where noise allows it.

Noise hides the last digits of a report. Rounding it once more, to a public lattice that is coarser and yet far below
the noise, is post-processing and costs no privacy; 16 bits then hold what float32 or float64 did.
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

_FINENESS = 2.0**11  # steps of the coarse lattice in a standard deviation of the noise, or up to twice as many
_WIDEST = 2**15 - 1  # largest integer that is sent in 16 bits: eight deviations or more


def coarse(support: Any, deviation: float, dims: int) -> Any:
    """Return the support of reports rounded to 2^-11 of their noise, or None where they travel as they are.

    Its points belong to the lattice of the mechanism, whose ends, if it has any, would be in the way.
    """
    step = power_of_two(deviation) / _FINENESS
    if not isinstance(support, Shell | Lattice | TensorLattice) or step <= support.step:
        return None
    if math.frexp(support.step)[0] != 0.5:  # no power of two
        return None
    if isinstance(support, Shell):
        slack = step * math.sqrt(dims)
        return Shell(step, max(0.0, support.shortest - slack), support.longest + slack)
    bounded = isinstance(support, Lattice) and math.isfinite(support.high)
    return None if support.origin != 0 or bounded else replace(support, step=step)


def rounded(report: FloatArray, step: float, rng: np.random.Generator) -> FloatArray:
    """Turn a report into integers, in place: multiples of ``step``, each rounded up with the chance of its remainder.

    One uniform for all of them makes none biased, and adds at most a quarter of a squared step to the variance.
    """
    report *= 1 / step
    report += rng.random()
    return np.floor(report, out=report)


def packed(integers: FloatArray, step: float) -> npt.NDArray[Any]:
    """Return integers of 16 bits, or the multiples of ``step`` where they are too large."""
    if max(-float(integers.min()), float(integers.max())) <= _WIDEST:
        return integers.astype(np.int16)
    integers *= step
    return narrowed(integers)


def narrowed(report: FloatArray) -> npt.NDArray[Any]:
    """Return a report as float32 where that loses nothing, else as it is."""
    narrow = report.astype(np.float32)
    return narrow if np.array_equal(narrow, report) else report


def widened(payload: npt.NDArray[Any], step: float) -> FloatArray:
    """Return the multiples of ``step`` that integers stand for; floats are what they are."""
    return np.asarray(payload * step if payload.dtype.kind == "i" else payload, dtype=np.float64)


def possible(report: FloatArray, support: Any) -> bool:
    """Tell whether multiples of the step that 16 bits hold are a report of the support: their length may be wrong."""
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
