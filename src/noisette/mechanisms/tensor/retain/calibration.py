"""How much noise, and how often to keep an entry, so that the budget holds and the mean squared error is least."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from noisette._search import golden_section, narrowed
from noisette._validate import FloatArray
from noisette.mechanisms.scalar.gaussian import lattice_sigma
from noisette.mechanisms.tensor.retain.laws import KeptGaussian, KeptLaplace, chance

Law = KeptLaplace | KeptGaussian

_ORDERS = 1 + np.geomspace(1e-3, 1e5, 97)  # of Renyi divergences that are composed
_CALIBRATED = 64  # levels to which weights are rounded, toward more keeping, while the budget is shared out
_SCANNED, _WIDEST = 43, 64.0  # scales tried, from half to this many times that of noise alone, which is one of them
_LEAST_RATE = 2.0**-44  # finer noise leaves the integers that float64 holds
SMOOTH = (
    64.0  # sigma, in steps, from which a variance of 4 more makes the sum as private as real noise, see lattice_sigma
)
_FINE = 2.0  # sigma, in steps, from which a sum of discrete Gaussians is one to 1e-15
_WORTHWHILE = 1e-6  # of the error; less would only use up what rounding left over
_ROUNDED_DOWN = 1 - 2.0**-40  # keeps rounding on the private side


@dataclass(frozen=True)
class NoiseChoice:
    """Noise, the chance to keep an entry of the least weight, and mean squared errors an entry, in squared steps.

    ``plain`` is the error of noise alone at the same guarantee.
    """

    law: Law
    p_keep: float
    error: float
    plain: float

    @property
    def helps(self) -> bool:
        """Tell whether keeping entries lowers the error at all."""
        return self.p_keep > 0


@dataclass(frozen=True)
class Request:
    """What is to be protected: entries that move by up to ``steps``, of which one or all ``size`` change.

    ``shares[i]`` of the chance to keep, rounded up, belongs to ``counts[i]`` entries.
    """

    noise: str
    steps: int
    epsilon: float
    delta: float
    whole: bool
    shares: tuple[float, ...]
    counts: tuple[int, ...]

    @property
    def size(self) -> int:
        """Entries of a tensor."""
        return sum(self.counts)

    def kept(self, law: Law) -> float | None:
        """Return the largest chance to keep an entry of share 1 at this noise, None where the budget is missed."""
        if not self.whole:
            if isinstance(law, KeptLaplace):
                return law.largest_kept(self.epsilon)
            return law.largest_kept(self.epsilon, self.delta)
        if self.delta == 0 and isinstance(law, KeptLaplace) and len(self.shares) == 1:
            return law.largest_kept(self.epsilon / self.size)
        return self._largest(lambda p_keep: self.spent(law, p_keep) <= self.epsilon)

    def spent(self, law: Law, p_keep: float) -> float:
        """Return the epsilon of a whole tensor: a sum, or at a delta the least that composed divergences give.

        The conversion is that of Canonne, Kamath, Steinke 2020, Proposition 12.
        """
        kept, counts = p_keep * np.asarray(self.shares), np.asarray(self.counts, dtype=float)
        if self.delta == 0:
            assert isinstance(law, KeptLaplace)
            return float(counts @ law.epsilon(kept))
        composed = counts @ law.renyi(_ORDERS, kept[:, None])
        slack = np.log1p(-1 / _ORDERS) - (math.log(self.delta) + np.log(_ORDERS)) / (_ORDERS - 1)
        return float(np.min(composed + slack))

    def error(self, law: Law, p_keep: float) -> float:
        """Return the mean squared error of an entry."""
        kept = p_keep * np.asarray(self.shares)
        return float((1 - kept) @ np.asarray(self.counts, dtype=float)) / self.size * law.noise.absolute[1]

    @staticmethod
    def _largest(holds: Callable[[float], bool]) -> float | None:
        """Return the largest chance that holds, by bisection on its log odds."""
        if not holds(0.0):
            return None
        return chance(narrowed(lambda odds: holds(chance(odds)), -745.0, 37.0, absolute=1e-7)[0])


@lru_cache(maxsize=256)
def choose(request: Request) -> NoiseChoice:
    """Return the noise of least mean squared error, with as much keeping as the budget leaves room for."""
    plain = _plain(request)
    best = plain_choice = NoiseChoice(plain, 0.0, request.error(plain, 0.0), request.error(plain, 0.0))
    for scale in np.geomspace(0.5, _WIDEST, _SCANNED):
        best = min(best, _at(request, plain, float(scale), plain_choice), key=lambda choice: choice.error)
    if best.helps:
        best = _refined(request, plain, best, plain_choice)
    return best if best.error < plain_choice.error * (1 - _WORTHWHILE) else plain_choice


def group(weights: FloatArray | None, size: int) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Return what share of the largest chance to keep each group of entries has, and how large the groups are."""
    if weights is None or float(weights.min()) == 1:
        return (1.0,), (size,)
    shares = np.ceil((1 - weights) / (1 - weights.min()) * _CALIBRATED) / _CALIBRATED
    values, counts = np.unique(shares, return_counts=True)
    return tuple(values.tolist()), tuple(counts.tolist())


def _plain(request: Request) -> Law:
    """Return the least noise that meets the budget without keeping anything."""
    if request.noise == "laplace":
        rate = request.epsilon / request.steps / (request.size if request.whole else 1)
        if request.whole and request.delta > 0:
            composed = _most_rate(request, rate)
            rate = max(rate, composed)
        if rate < _LEAST_RATE:
            raise ValueError(
                f"Expected epsilon={request.epsilon} to leave each entry a rate above {_LEAST_RATE:g} a step, "
                f"got {rate:g}. Give a larger epsilon, fewer levels, or unit='element'."
            )
        return KeptLaplace(rate * _ROUNDED_DOWN, request.steps)
    if not request.whole:
        return KeptGaussian(lattice_sigma(request.steps, request.epsilon, request.delta), request.steps)
    sigma = lattice_sigma(request.size * request.steps, request.epsilon, request.delta) / math.sqrt(request.size)
    if sigma >= SMOOTH:
        return KeptGaussian(math.sqrt(sigma**2 + 4) / _ROUNDED_DOWN, request.steps)
    if sigma >= _FINE:
        return KeptGaussian(sigma / _ROUNDED_DOWN, request.steps)
    return KeptGaussian(_least_sigma(request, sigma), request.steps)


def _most_rate(request: Request, pure: float) -> float:
    """Return the largest rate of Laplace noise whose divergences compose to the budget."""
    low, high = pure / 2, pure * request.size
    for _ in range(60):
        middle = math.sqrt(low * high)
        fits = request.spent(KeptLaplace(middle, request.steps), 0.0) <= request.epsilon
        low, high = (middle, high) if fits else (low, middle)
    return low


def _least_sigma(request: Request, start: float) -> float:
    """Return the least sigma of Gaussian noise whose divergences compose to the budget."""
    low, high = start / 2, 2 * start
    while request.spent(KeptGaussian(high, request.steps), 0.0) > request.epsilon:
        low, high = high, 2 * high
    for _ in range(60):
        middle = math.sqrt(low * high)
        fits = request.spent(KeptGaussian(middle, request.steps), 0.0) <= request.epsilon
        low, high = (low, middle) if fits else (middle, high)
    return high


def _at(request: Request, plain: Law, scale: float, fallback: NoiseChoice) -> NoiseChoice:
    """Return the choice at noise ``scale`` times the plain one, or the fallback if that breaks the budget."""
    law: Law
    if isinstance(plain, KeptLaplace):
        law = KeptLaplace(max(plain.rate / scale, _LEAST_RATE), plain.steps)
    else:
        law = KeptGaussian(plain.sigma * scale, plain.steps)
    kept = request.kept(law)
    if not kept:
        return fallback
    return NoiseChoice(law, kept, request.error(law, kept), fallback.plain)


def _refined(request: Request, plain: Law, best: NoiseChoice, fallback: NoiseChoice) -> NoiseChoice:
    """Return the best choice near one that was scanned."""
    own, reference = (law.sigma if isinstance(law, KeptGaussian) else 1 / law.rate for law in (best.law, plain))
    width = (2 * _WIDEST) ** (1 / (_SCANNED - 1))
    scale = golden_section(
        lambda scale: _at(request, plain, scale, fallback).error,
        own / reference / width,
        own / reference * width,
        tolerance=1e-6,
    )
    return min(best, _at(request, plain, scale, fallback), key=lambda choice: choice.error)
