"""Sums of many independent terms on a lattice, by Fourier transforms: the epsilon of losses, and a mean positive part.

The law of a term is tilted so that what is sought is where its mass is: what is far down in the tail is then computed
to the same digits as what is likely. Rounding, aliasing and truncation are bounded and added.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from noisette._search import narrowed
from noisette._validate import FloatArray, IntArray
from noisette.accounting._numbers import log_binomial

MOST_POINTS = 2.0**21  # of a lattice that a sum is convolved on
ULP = 2.0**-52
_NEGLIGIBLE_EXPONENT = 60.0  # terms below exp(-60) of the first are bounded, not added
_STEPS = 100.0, 4000.0  # lattice steps in the root mean square of a term, for many users and for few
_POINTS = 2.0**16, 2.0**19  # lattice points of the sum, wanted and at most
_DEVIATIONS = 9.0  # of the sum that are kept: outside lies less than exp(-40) of it
_FEW_TERMS = 50.0  # terms that are not zero, below which the chance of none is split off
_ROUNDED_UP = 1 + 1e-7  # covers the rounding of the transforms


@dataclass(frozen=True, eq=False)
class LossTimes:
    """A loss that is added up ``times`` times: its lattice points, and their log masses, with their relative error."""

    points: IntArray
    logs: FloatArray
    times: int
    error: float = 0.0

    def losses(self, step: float) -> FloatArray:
        """Return the losses."""
        return np.asarray(self.points * step, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class LossSum:
    """Losses on a lattice, of which many are added up under an exponential tilt."""

    parts: tuple[LossTimes, ...]
    step: float
    tilt: float

    @classmethod
    def repeated(
        cls, points: IntArray, logs: FloatArray, step: float, tilt: float, times: int, error: float
    ) -> LossSum:
        """Return the sum of one loss many times."""
        return cls((LossTimes(points, logs, times, error),), step, tilt)

    @cached_property
    def _number(self) -> int:
        return sum(part.times for part in self.parts)

    @cached_property
    def _cumulants(self) -> tuple[float, float, float]:
        log_mean, mean, variance = self._moments(self.tilt)
        return log_mean, mean, max(variance, self._number * self.step**2)  # losses may be all but constant

    def _moments(self, tilt: float) -> tuple[float, float, float]:
        """Return the cumulants of the sum at a tilt."""
        return summed([(part.losses(self.step), part.logs, part.times) for part in self.parts], tilt)

    @cached_property
    def _mistake(self) -> float:
        """Relative error of all masses together, tilted or not: of the parts, and of the exponents' last digits."""
        total = 0.0
        for part in self.parts:
            logs = part.logs + self.tilt * self.step * part.points
            seen = logs > logs.max() - 60
            largest = float(np.abs(part.logs[seen]).max() + np.abs(logs[seen]).max())
            total += part.times * (part.error + 16 * ULP * (1 + largest))
        return total

    def _sure(self, target: float) -> float:
        """Return ln delta less what masses may err by."""
        return target - 1e-9 - self._mistake

    def bound(self, target: float) -> float:
        """Return an epsilon by Chernoff's bound alone: Canonne, Kamath, Steinke 2020, Proposition 12."""
        t = self.tilt
        most = t * math.log(t) - (1 + t) * math.log1p(t)  # ln of the largest exp(-t x) (1 - exp(-x))
        return (self._cumulants[0] + most - self._sure(target)) / t

    @cached_property
    def _tail(self) -> float:
        """A chance, under the tilt, that is small beside what is summed up."""
        spread = math.sqrt(self._cumulants[2])
        return 1e-10 * min(1.0, spread) / (1 + 3 * spread * self.tilt * (1 + self.tilt))

    @cached_property
    def _window(self) -> tuple[int, int]:
        """First and last point of the sum but for tails of that chance, by Chernoff's bound."""
        log_mean, mean, variance = self._cumulants
        reach = []
        for sign in (-1, 1):
            rates = sign * np.geomspace(0.1, 100, 13) / math.sqrt(variance)
            moments = np.asarray([self._moments(self.tilt + rate)[0] for rate in rates])
            bounds = (moments - log_mean - rates * mean - math.log(self._tail)) / np.abs(rates)
            reach.append(float(bounds.min()) / self.step)
        centre = mean / self.step
        return math.floor(centre - reach[0]) - 1, math.ceil(centre + reach[1]) + 1

    @property
    def size(self) -> int:
        """Points of the window."""
        return self._window[1] - self._window[0] + 1

    def _spectra(self, size: int) -> tuple[FloatArray, float]:
        """Return the tilted masses of the window, and by how much each may err.

        Each value of a transform errs by a few ulps a stage of the sum of all entries; a power has n times that.
        """
        from scipy import fft

        sums: Any = np.ones(size // 2 + 1, dtype=complex)
        errors = np.zeros(size // 2 + 1)
        for part in self.parts:
            log_mean = cumulants(part.losses(self.step), part.logs, self.tilt)[0]
            logs = part.logs + self.tilt * self.step * part.points - log_mean
            spectrum = fft.rfft(np.bincount(part.points % size, np.exp(logs), size))
            power = spectrum**part.times
            errors = errors * np.abs(power) + (part.times + 2) * np.abs(sums) * np.abs(spectrum) ** (part.times - 1)
            sums = sums * power
        masses = np.roll(np.maximum(fft.irfft(sums, size), 0.0), -self._window[0] % size)
        return masses, 16 * ULP * math.log2(size + 2) * float(errors.sum()) * 2 / size

    def epsilon(self, target: float) -> float:
        """Return the least epsilon at which ln delta is at most the target, from above."""
        from scipy import fft

        log_mean, first = self._cumulants[0], self._window[0]
        size = fft.next_fast_len(self.size, real=True)
        masses, rounding = self._spectra(size)
        count = min(size, math.ceil(_NEGLIGIBLE_EXPONENT / (self.tilt * self.step)))
        k = np.arange(1.0, count + 1) * self.step
        weights = np.exp(-self.tilt * k) * -np.expm1(-k)
        lost = rounding * float(weights.sum()) + self._tail + math.exp(-_NEGLIGIBLE_EXPONENT) * (count < size)
        sure = self._sure(target)

        def log_delta(index: int) -> float:
            some = masses[index + 1 : index + 1 + count]
            total = float(some @ weights[: some.size]) + lost
            return log_mean - self.tilt * (first + index) * self.step + math.log(total)

        low, high = max(-first, 0), size - 1
        if low >= size or log_delta(low) <= sure:
            return max(first, 0) * self.step
        if log_delta(high) > sure:
            return math.inf
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if log_delta(middle) <= sure else (middle, high)
        above, below = (math.exp(min(log_delta(index) - sure, 700.0)) for index in (low, high))
        part = (above - 1) / (above - below)  # delta is linear in exp(epsilon) between lattice points
        with np.errstate(divide="ignore"):
            beyond = float(np.logaddexp(np.log1p(-part), np.log(part) + self.step))
        return ((first + low) * self.step + beyond) * (1 + 1e-12)


def cumulants(losses: FloatArray, logs: FloatArray, tilt: float) -> tuple[float, float, float]:
    """Return the log moment generating function at a tilt, and its first two derivatives."""
    power = logs + tilt * losses
    top = float(power.max())
    masses = np.exp(power - top)
    total = float(masses.sum())
    mean = float(masses @ losses) / total
    return top + math.log(total), mean, float(masses @ (losses - mean) ** 2) / total


def summed(laws: Sequence[tuple[FloatArray, FloatArray, int]], tilt: float) -> tuple[float, float, float]:
    """Return the cumulants of a sum of losses: each with its log masses, and how many there are."""
    each = [(times, cumulants(losses, logs, tilt)) for losses, logs, times in laws]
    log_mean, mean, variance = (sum(times * found[place] for times, found in each) for place in range(3))
    return log_mean, mean, variance


def saddle(laws: Sequence[tuple[FloatArray, FloatArray, int]], target: float) -> tuple[float, float]:
    """Return the tilt under which the sum lies where ln delta is about the target, and the spread of one loss then."""
    kept = [(losses[logs > -2000], logs[logs > -2000], times) for losses, logs, times in laws]

    def height(tilt: float) -> float:
        log_mean, mean, variance = summed(kept, tilt)
        spread = math.sqrt(variance)
        first = math.log(min(spread, 1.0) + 1e-300) - math.log1p(3 * spread * tilt * (1 + tilt))
        return log_mean - tilt * mean + first

    low, high = -35.0, 0.0
    while height(math.exp(high)) > target and high < 60:
        low, high = high, high + 3
    tilt = math.exp(narrowed(lambda log_tilt: height(math.exp(log_tilt)) > target, low, high, absolute=0.02)[0])
    return tilt, math.sqrt(summed(kept, tilt)[2] / sum(times for _, _, times in kept))


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
