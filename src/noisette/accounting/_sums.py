"""Sums of many independent privacy losses on a lattice: their epsilon at any delta, from above.

The law of the sum is tilted so that the epsilon sought is where its mass is, and convolved by a Fourier transform: what
is far down in the tail is then computed to the same digits as what is likely. Rounding, aliasing and truncation are
bounded and added.
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

MOST_POINTS = 2.0**21  # of a lattice that a sum is convolved on
ULP = 2.0**-52
_NEGLIGIBLE_EXPONENT = 60.0  # terms below exp(-60) of the first are bounded, not added


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
        count = min(size, math.ceil(_NEGLIGIBLE_EXPONENT / (self.tilt * self.step)) if self.tilt > 0 else size)
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
