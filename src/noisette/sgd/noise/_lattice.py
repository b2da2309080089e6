"""Gaussian noise on sums that is exact to the last bit, and why.

Let x and x' be the sums over two data sets that differ in one example, of d entries in all, in units of the noise:
divided by its standard deviation, and turned where it is correlated. In real numbers |x - x'| <= 1 / z.

1. x is computed in double precision. What that may add to |x - x'| is less than ``room`` / z; see `clipping` for the
   sums themselves.
2. Entries are moved within +-2^26 (by `add_noise`), which brings no two of them farther apart, and rounded to multiples
   of h = 2^-36, which adds at most h to the difference of each: sqrt(d) h in all.
3. k steps of h become k + floor(N / h) steps, N a real normal variable of deviation one, drawn exactly
   (`mechanisms.tensor._normal`). That is floor((k h + N) / h), a function of k h + N: as private as real noise.

So the release is as private as real noise of multiplier z where |x - x'| + sqrt(d) h <= 1 / z, and `widened` says
which multiplier the sums are divided by to get there. What is done with k afterwards, to turn the noise back, divide by
the expected batch size, round to the public lattice and to the precision of a parameter, looks at k alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from noisette._validate import FloatArray
from noisette.mechanisms._base import power_of_two
from noisette.mechanisms.tensor.gaussian._normal import STEPS, add_noise, add_noise_to_all

_FINENESS = 2.0**-20  # of the noise: the step of the lattice that is seen


def widened(multiplier: float, entries: int, room: float = 0.0) -> float:
    """Return the noise multiplier with which noise on the lattice is as private as real noise of ``multiplier``."""
    lattice = multiplier * math.sqrt(entries) / STEPS
    if lattice > 0.5:
        raise ValueError(
            f"A noise multiplier of {multiplier:g} on {entries:,} entries is beyond the lattice of the noise: rounding "
            "would use up half of the budget. Ask for a larger epsilon, or train fewer parameters."
        )
    return multiplier * (1 + room) / (1 - lattice) * (1 + 2.0**-50)


def add_exactly(white: FloatArray, rng: np.random.Generator) -> None:
    """Round flat, contiguous float64 numbers to the lattice and add normal noise of deviation one, in place."""
    add_noise(white, rng)


def on_lattice(noisy: FloatArray, size: float, least: float = 1.0) -> FloatArray:
    """Multiply what `add_exactly` made by ``size``, in place, and round it to a power of two 2^20 below the noise.

    In units of ``size`` the noise has a deviation of ``least`` in the entry where it is smallest. Single precision
    keeps all on that lattice: what it rounds, it rounds to multiples of a larger power of two.
    """
    step = power_of_two(size * least) * _FINENESS
    noisy *= size / step
    np.rint(noisy, out=noisy)
    noisy *= step
    return noisy


def make_noisy_means(sums: Sequence[npt.NDArray[Any]], size: float, expected: float, rng: np.random.Generator) -> None:
    """Do as `add_exactly` and `on_lattice` in one pass: add noise of ``size`` and divide by ``expected``, in place."""
    step = power_of_two(size / expected) * _FINENESS
    add_noise_to_all(sums, rng, sigma=size, unit=expected * step, step=step, threads=torch.get_num_threads())


def noisy_count(count: float, reach: float, multiplier: float, rng: np.random.Generator) -> float:
    """Return a count that one example changes by at most ``reach``, with noise of ``multiplier`` times that."""
    size = reach * widened(multiplier, 1, 2.0**-20)
    white = np.array([count / size])
    add_exactly(white, rng)
    return float(on_lattice(white, size)[0])
