"""E(sum of L_i)_+ over a random number of independent terms: what the blanket bound asks for."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from noisette._search import narrowed
from noisette._validate import FloatArray
from noisette.accounting._numbers import log_binomial

_STEPS = 100.0, 4000.0  # lattice steps in the root mean square of a term, for many users and for few
_POINTS = 2.0**16, 2.0**19  # lattice points of the sum, wanted and at most
_DEVIATIONS = 9.0  # of the sum that are kept: outside lies less than exp(-40) of it
_FEW_TERMS = 50.0  # terms that are not zero, below which the chance of none is split off
_ROUNDED_UP = 1 + 1e-7  # covers the rounding of the transforms


def expected_excess(values: FloatArray, weights: FloatArray, share: float, users: int) -> float:
    """Return E(L_1 + ... + L_M)_+ from above, M ~ Bin(users, share), L_i = values[j] with chance weights[j].

    A value is put on the two lattice points beside it so that its mean stays: a sum of terms that spread more has
    the larger positive part, since that is convex. The law is tilted so that the sum is near zero before it is
    convolved by Fourier transforms: small results keep their digits.
    """
    if not values.max() > 0:
        return 0.0
    size = math.sqrt(float((weights * values**2).sum()))
    reach = 2 * _DEVIATIONS * math.sqrt(share * users)
    steps = min(max(_POINTS[0] / reach, _STEPS[0]), _STEPS[1], _POINTS[1] / reach)
    step = max(size / steps, float(np.ptp(values)) / _POINTS[0])
    term = _Term.build(values, weights, share, step)
    half = term.reach(users)
    if half > _POINTS[1]:  # a few large values among many small ones: no lattice is fine for both
        step *= half / _POINTS[1]
        term = _Term.build(values, weights, share, step)
        half = term.reach(users)
    mass = _convolved(term, users, half)
    s = np.arange(1.0, half + 1)
    tail = float((np.maximum(mass, 0.0) * np.exp(-term.tilt * s) * s).sum()) * step
    # one term alone is known, and is nearly all there is where few users share the blanket
    alone = users * share * math.exp((users - 1) * math.log1p(-share)) * float((weights * np.maximum(values, 0)).sum())
    return max(math.exp(users * term.log_mean) * tail, alone) * _ROUNDED_UP


@dataclass(frozen=True)
class _Term:
    """One term on the lattice, exponentially tilted to mean zero: masses from the lattice point ``first`` on."""

    first: int
    tilted: FloatArray
    still: float  # part of the mass at zero that is due to users outside the blanket
    tilt: float
    log_mean: float

    @classmethod
    def build(cls, values: FloatArray, weights: FloatArray, share: float, step: float) -> _Term:
        """Put the values on a lattice and tilt their law."""
        first, law = _on_lattice(values / step, weights, share)
        k = np.arange(first, first + law.size, dtype=float)
        with np.errstate(divide="ignore"):
            logs = np.log(law)
        tilt = _tilt(k, logs)
        power = logs + tilt * k
        log_mean = float(power.max() + math.log(np.exp(power - power.max()).sum()))
        return cls(first, np.exp(power - log_mean), (1 - share) * math.exp(-log_mean), tilt, log_mean)

    def reach(self, users: int) -> int:
        """Return how far from zero the sum may be, but for a chance below 2 exp(-40)."""
        k = np.arange(self.first, self.first + self.tilted.size, dtype=float)
        farthest = max(-k[0], k[-1])
        spread = _DEVIATIONS * math.sqrt(users * float((self.tilted * k * k).sum())) + _DEVIATIONS**2 * farthest
        moving = min(1 - float(self.tilted[-self.first]), 0.5)  # chance that a term is not zero
        counts = np.arange(min(users, 100) + 1)
        rare = log_binomial(counts, users, moving, 1 - moving) < -(_DEVIATIONS**2) / 2
        few = np.flatnonzero(rare & (counts > users * moving + 1))
        most = float(counts[few[0]]) if few.size else float(users)
        half: int = math.ceil(min(spread, most * farthest)) + 1
        return half


def _on_lattice(position: FloatArray, weights: FloatArray, share: float) -> tuple[int, FloatArray]:
    """Return the first lattice point and the masses of one term, which is zero for users outside the blanket."""
    below = np.floor(position)
    rest = position - below
    first = int(min(below.min(), 0))
    index = (below - first).astype(np.int64)
    size = int(max(index.max() + 2, 1 - first))
    law = np.bincount(index, share * weights * (1 - rest), size) + np.bincount(index + 1, share * weights * rest, size)
    law[-first] += 1 - share
    return first, np.asarray(law, dtype=np.float64)


def _tilt(k: FloatArray, logs: FloatArray) -> float:
    """Return the rate at which the exponentially tilted term has mean zero, or zero if it has none above that."""

    def mean(rate: float) -> float:
        power = logs + rate * k
        return float((np.exp(power - power.max()) * k).sum())

    if mean(0.0) >= 0:
        return 0.0
    high = 1 / float(k[-1])
    while mean(high) < 0:
        high *= 2
    return sum(narrowed(lambda rate: mean(rate) < 0, 0.0, high, tolerance=2.0**-60)) / 2


def _convolved(term: _Term, users: int, half: int) -> FloatArray:
    """Return the masses of 1, 2, ..., half of the sum of ``users`` terms.

    Where the terms are zero most of the time, their sum is taken apart from the chance that all of them are: otherwise
    what is left would drown in the rounding of the transform.
    """
    from scipy import fft

    size = fft.next_fast_len(max(2 * half + 1, term.tilted.size), real=True)
    wrapped = np.zeros(size)
    np.add.at(wrapped, np.arange(term.first, term.first + term.tilted.size) % size, term.tilted)
    if users * (1 - term.still) > _FEW_TERMS:
        return np.asarray(fft.irfft(fft.rfft(wrapped) ** users, size)[1 : half + 1])
    wrapped[0] = max(wrapped[0] - term.still, 0.0)
    spectrum = np.expm1(users * np.log1p(fft.rfft(wrapped) / term.still))
    return np.asarray(term.still**users * fft.irfft(spectrum, size)[1 : half + 1])
