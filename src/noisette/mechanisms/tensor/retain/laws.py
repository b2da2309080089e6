"""The law of one entry that is kept or gets noise, on a grid of whole steps: epsilon, delta, Renyi divergence."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from noisette._random import ULP
from noisette._special import log_ndtr
from noisette._validate import FloatArray
from noisette.mechanisms.scalar._additive import GaussianNoise, LaplaceNoise
from noisette.mechanisms.scalar.gaussian import lattice_delta

LARGEST_KEPT = 1 - ULP  # an entry that is never noised could not be hidden at all


def chance(log_odds: float) -> float:
    """Return a little less than the chance of given log odds: a multiple of 2^-53, as samplers have it."""
    lowered = min(max(log_odds - 2.0**-40 * max(1.0, abs(log_odds)), -700.0), 700.0)
    if lowered < 0:
        return math.floor(2**53 / (1 + math.exp(-lowered))) * ULP
    return min(1 - math.ceil(2**53 / (1 + math.exp(lowered))) * ULP, LARGEST_KEPT)


class AddedNoise(Protocol):
    """Symmetric integer noise of an entry that is not kept."""

    @property
    def absolute(self) -> tuple[float, float, float]:
        """First, second and third absolute moment."""

    def log_mass(self, noise: FloatArray) -> FloatArray:
        """Return the log probability of a noise."""

    def sample(self, rng: np.random.Generator, size: int) -> FloatArray:
        """Draw the noise."""


@dataclass(frozen=True)
class RoundedLaplace(AddedNoise):
    """Continuous Laplace noise of scale 1 / rate, rounded to whole steps: the published noise on a grid."""

    rate: float

    @property
    def absolute(self) -> tuple[float, float, float]:
        """First, second and third absolute moment: those of the geometric law, whose weight at k is sinh(rate/2)."""
        first, second, third = LaplaceNoise(self.rate).absolute
        grown = math.sinh(self.rate / 2) / math.tanh(self.rate / 2)
        return grown * first, grown * second, grown * third

    def log_mass(self, noise: FloatArray) -> FloatArray:
        """Return the log chance that the noise rounds to k: sinh(rate/2) exp(-rate |k|), 1 - exp(-rate/2) at 0."""
        away = math.log(math.sinh(self.rate / 2)) - self.rate * np.abs(noise)
        return np.where(noise == 0, math.log(-math.expm1(-self.rate / 2)), away)

    def sample(self, rng: np.random.Generator, size: int) -> FloatArray:
        """Draw the noise as published, from a floating-point generator, and round it."""
        return np.rint(rng.laplace(scale=1 / self.rate, size=size))


@dataclass(frozen=True)
class RoundedGaussian(AddedNoise):
    """Continuous normal noise rounded to whole steps: the published noise on a grid."""

    sigma: float

    @property
    def absolute(self) -> tuple[float, float, float]:
        """First, second and third absolute moment, summed over the grid."""
        k = np.arange(0.0, math.ceil(40 * self.sigma) + 40)
        mass = 2 * np.exp(self.log_mass(k))
        first, second, third = (float((k**power * mass).sum()) for power in (1, 2, 3))
        return first, second, third

    def log_mass(self, noise: FloatArray) -> FloatArray:
        """Return the log chance that the noise rounds to k, from the tail so that nothing cancels."""
        near, far = ((np.abs(noise) + shift) / self.sigma for shift in (-0.5, 0.5))
        upper, lower = log_ndtr(-near), log_ndtr(-far)
        return np.asarray(upper + np.log1p(-np.exp(lower - upper)))

    def sample(self, rng: np.random.Generator, size: int) -> FloatArray:
        """Draw the noise as published, from a floating-point generator, and round it."""
        return np.rint(rng.normal(scale=self.sigma, size=size))


@dataclass(frozen=True)
class KeptLaplace:
    """Keep, or add discrete Laplace noise: P(y | x) = p [y = x] + (1-p) c a^|y-x|, a = exp(-rate), c = (1-a)/(1+a).

    Two values of the grid are at most ``steps`` apart.
    """

    rate: float
    steps: int
    parabolic: ClassVar[bool] = False

    @property
    def noise(self) -> LaplaceNoise:
        """The noise of an entry that is not kept."""
        return LaplaceNoise(self.rate)

    @property
    def centre(self) -> float:
        """c, the chance that the noise is zero."""
        return math.tanh(self.rate / 2)

    def epsilon(self, p_keep: FloatArray) -> FloatArray:
        """Return the exact epsilon of an entry: K rate + ln(1 + p / ((1-p) c)), attained at y = x."""
        return np.asarray(self.steps * self.rate + np.log1p(p_keep / ((1 - p_keep) * self.centre)))

    def largest_kept(self, epsilon: float) -> float:
        """Return the largest p at which an entry has this epsilon, 0 where the noise alone takes all of it."""
        spare = epsilon - self.steps * self.rate
        if spare <= 0:
            return 0.0
        # p = q / (1 + q), q = c (exp(spare) - 1)
        return chance(math.log(self.centre) + (math.log(math.expm1(spare)) if spare < 700 else spare))

    def renyi(self, orders: FloatArray, p_keep: FloatArray) -> FloatArray:
        """Return the Renyi divergences between the ends of the grid: tails and the stretch between are geometric."""
        above, log_a = orders - 1, -self.rate
        log_noise = np.log1p(-p_keep) + math.log(self.centre)
        tail = log_noise + log_a - math.log(-math.expm1(log_a))
        shift = self.steps * self.rate * above
        terms = [tail + shift, tail - self.steps * self.rate - shift]
        if self.steps > 1:
            ratio = -self.rate * (1 + 2 * above)  # log of the ratio of neighbouring terms between the ends
            count = self.steps - 1
            series = ratio + np.log(np.expm1(count * ratio) / np.expm1(ratio))
            terms.append(log_noise + shift + series)
        spike, far = _spike(p_keep, self.centre), log_noise - self.steps * self.rate
        terms += [orders * spike - above * far, orders * far - above * spike]
        return np.asarray(np.logaddexp.reduce(np.stack(np.broadcast_arrays(*terms))) / above)


@dataclass(frozen=True)
class KeptGaussian:
    """Keep, or add discrete Gaussian noise: P(y | x) = p [y = x] + (1-p) g(y - x)."""

    sigma: float
    steps: int
    parabolic: ClassVar[bool] = True

    @property
    def noise(self) -> GaussianNoise:
        """The noise of an entry that is not kept."""
        return GaussianNoise(self.sigma)

    def delta(self, epsilon: float, p_keep: float) -> float:
        """Return the exact delta of an entry: sum over y of (P(y | 0) - exp(epsilon) P(y | K))_+."""
        free, gap = self._parts(epsilon)
        # the spike turns g(0) - E g(K) into p + (1-p)(g(0) - E g(K)); the other terms shrink by 1-p
        return (1 - p_keep) * free + max(p_keep + (1 - p_keep) * gap, 0.0)

    def largest_kept(self, epsilon: float, delta: float) -> float | None:
        """Return the largest p at which an entry is (epsilon, delta)-DP, None where no p is.

        delta is convex in p: it falls until the spike is no longer hidden behind E g(K), then rises on a straight line.
        """
        free, gap = self._parts(epsilon)
        least = free / (1 - gap) if gap < 0 else free + gap  # at p = -gap / (1 - gap), or at p = 0
        if least > delta:
            return None
        # (1-p) (free + gap) + p = delta
        return chance(math.log((delta - free - gap) / (1 - delta))) if delta > free + gap else 0.0

    def _parts(self, epsilon: float) -> tuple[float, float]:
        """Return the sum of positive (g(y) - E g(y-K)) over y != 0, and g(0) - E g(K)."""
        own, other = (float(self.noise.log_mass(np.asarray(y))) for y in (0.0, float(self.steps)))
        gap = math.exp(own) - math.exp(min(other + epsilon, 700.0))
        return max(lattice_delta(self.sigma, self.steps, epsilon) - max(gap, 0.0), 0.0), gap

    def renyi(self, orders: FloatArray, p_keep: FloatArray) -> FloatArray:
        """Return upper bounds of the Renyi divergences between the ends of the grid.

        Without spikes the sum is at most exp(a (a-1) K^2 / (2 s^2)) (Canonne, Kamath, Steinke 2020, Proposition 5).
        """
        above, log_noise = orders - 1, np.log1p(-p_keep)
        whole = log_noise + orders * above * (self.steps / self.sigma) ** 2 / 2
        centre, end = (float(self.noise.log_mass(np.asarray(y))) for y in (0.0, float(self.steps)))
        own, far, spike = log_noise + centre, log_noise + end, _spike(p_keep, math.exp(centre))
        more = [orders * spike - above * far, orders * far - above * spike]
        less = [orders * own - above * far, orders * far - above * own]
        total = np.logaddexp.reduce(np.stack(np.broadcast_arrays(whole, *more)))
        fewer = np.logaddexp.reduce(np.stack(np.broadcast_arrays(*less)))
        with np.errstate(divide="ignore"):
            return np.asarray((total + np.log1p(-np.exp(np.minimum(fewer - total, -1e-17)))) / above)


def _spike(p_keep: FloatArray, centre: float) -> FloatArray:
    """Return ln(p + (1-p) c)."""
    return np.asarray(np.log(p_keep + (1 - p_keep) * centre))
