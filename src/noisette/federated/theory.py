"""What private reports do to a round of federated learning: the noise of the mean, and how far one step ends up.

Duan 2024, chapter 6, mended. Its Lemma 8 puts one mean weight in place of all: true for equal weights only, since the
variance of a weighted sum is the sum of p_k^2 sigma^2. Its Theorem 13 forgets the rate in the terms that are linear in
the noise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from noisette import _validate
from noisette._validate import FloatArray
from noisette.core import Mechanism
from noisette.domains import Interval, L2Ball, TensorBall

__all__ = ["AggregatedNoise", "Prospect", "RoundCost", "aggregated_noise", "benchmark_round"]

# noise over reach: the local rows of benchmarks/trust.py have 17.6 % of ten digits right at 1.8 and at 8.9, 30 % at 2.3
# and 48 % at 1.3; 68 % at 0.47 and 73 % at 0.26, where 81 % is had without noise
_HOPELESS, _HELPFUL = 1.5, 0.5

_BERRY_ESSEEN = 0.5606  # for independent terms that need not have the same law


@dataclass(frozen=True, eq=False)
class AggregatedNoise:
    """Noise of the weighted mean of private updates, approximately N(mean, variance) in each weight of the model.

    ``distance`` bounds how far the distribution function of any entry is from the normal one (Berry and Esseen).
    """

    mean: FloatArray
    variance: FloatArray
    distance: float

    def difference(self, rate: float, *, before: Any = None, optimum: Any = None) -> float:
        """Return E|w* - optimum|^2 - E|w - optimum|^2, w the model after the round without noise and w* with it.

        Formula: -2 rate <before - optimum, mean> + rate^2 (|mean|^2 + sum of variances), ``before`` the model that the
        round would lead to without noise. Without both it is the limit of Corollary 3, where ``before`` has reached the
        optimum and the first term is gone.
        Duan 2024, Theorem 13 and Corollary 3.
        """
        rate = _validate.positive(rate, "rate")
        square = rate**2 * float(self.mean @ self.mean + self.variance.sum())
        if (before is None) != (optimum is None):
            raise ValueError("Expected both before and optimum, or neither: their difference counts.")
        if before is None:
            return square
        gap = _validate.reals(before, "before") - _validate.reals(optimum, "optimum")
        if gap.shape != self.mean.shape:
            raise ValueError(f"Expected models of {self.mean.size} weights, got shape {gap.shape}.")
        return square - 2 * rate * float(gap @ self.mean)


def aggregated_noise(
    mechanism: Mechanism, weights: Any, *, dims: int, clip_norm: float, updates: Any = None
) -> AggregatedNoise:
    """Return the noise of the mean of updates clipped to a norm C, reported by a mechanism with weights p_k.

    Formula: mean scale sum_k p_k mu_k, variance scale^2 sum_k p_k^2 sigma_k^2, with mu_k, sigma_k^2 the moments of a
    report and the weights divided by their sum. A mechanism for one number, or for a box, is asked about each entry in
    [-C / sqrt(d), C / sqrt(d)]; one for a ball about the whole. ``updates``, a row for each client, are the updates on
    the domain of the mechanism; zero unless given.
    Duan 2024, Theorem 12, for unequal weights.

    >>> from noisette import Laplace
    >>> equal = aggregated_noise(Laplace(epsilon=1.0), np.ones(100), dims=4, clip_norm=2.0)
    >>> unequal = aggregated_noise(Laplace(epsilon=1.0), [100.0] + [1.0] * 99, dims=4, clip_norm=2.0)
    >>> equal.variance.round(3).tolist(), unequal.variance.round(3).tolist()
    ([0.08, 0.08, 0.08, 0.08], [2.04, 2.04, 2.04, 2.04])
    """
    given = _validate.reals(weights, "weights").reshape(-1)
    dims = _validate.integer(dims, "dims", low=1)
    if not (np.isfinite(given).all() and (given >= 0).all() and given.sum() > 0):
        raise ValueError("Expected weights that are finite, not negative and not all zero.")
    shares = given / given.sum()
    scale = _scale(mechanism, dims, _validate.positive(clip_norm, "clip_norm"))
    inside = np.zeros((1, dims)) if updates is None else np.atleast_2d(_validate.reals(updates, "updates"))
    if inside.shape[1] != dims or len(inside) not in (1, shares.size):
        raise ValueError(f"Expected updates of shape ({shares.size}, {dims}), got {inside.shape}.")
    moments = mechanism.moments(inside)
    rows = (shares.size, dims)
    bias, variance, third = (np.broadcast_to(m, rows) for m in (moments.bias, moments.variance, moments.third))
    total = shares**2 @ variance
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(total > 0, (shares**3 @ third) / total**1.5, 0.0)
    return AggregatedNoise(scale * (shares @ bias), scale**2 * total, float(min(1.0, _BERRY_ESSEEN * ratio.max())))


@dataclass(frozen=True)
class RoundCost:
    """What one round with a mechanism costs: `AggregatedNoise.difference` in the limit, and as Duan 2024 prints it."""

    mechanism: str
    difference: float
    published: float


def benchmark_round(
    mechanisms: Mapping[str, Mechanism], weights: Any, *, dims: int, clip_norm: float, rate: float
) -> list[RoundCost]:
    """Return the cost of a round with each mechanism, the least first, without training anything.

    ``published`` has the mean weight of Lemma 8 in place of the weights: the same if they are equal.

    >>> from noisette import Laplace, Piecewise
    >>> both = {"laplace": Laplace(epsilon=4.0), "piecewise": Piecewise(epsilon=4.0)}
    >>> [c.mechanism for c in benchmark_round(both, np.ones(500), dims=785, clip_norm=1.8, rate=0.1)]
    ['piecewise', 'laplace']
    """
    found = []
    for name, mechanism in mechanisms.items():
        terms = {"dims": dims, "clip_norm": clip_norm}
        own = aggregated_noise(mechanism, weights, **terms)  # type: ignore[arg-type]  # ints and floats by name
        mean = aggregated_noise(mechanism, np.ones(np.size(weights)), **terms)  # type: ignore[arg-type]  # as above
        found.append(RoundCost(name, own.difference(rate), mean.difference(rate)))
    return sorted(found, key=lambda cost: cost.difference)


@dataclass(frozen=True)
class Prospect:
    """Whether a run can learn at all: the noise in its last model over the farthest that updates can have moved it.

    >>> Prospect.of(0.01, dims=500, reach=1.0, rounds=10).verdict
    'worth training'
    >>> Prospect.of(1.0, dims=7850, reach=1.0, rounds=10).verdict
    'not worth training: the noise in the last model is 28 times as long as all updates together can be'
    """

    ratio: float

    @classmethod
    def of(cls, noise: float | FloatArray, *, dims: int, reach: float, rounds: int) -> Prospect:
        """Return the prospect of rounds whose mean has so much noise a weight and a length of at most ``reach``."""
        length = math.sqrt(float(np.sum(np.square(np.broadcast_to(noise, (dims,))))))
        return cls(length / (math.sqrt(rounds) * reach))

    @property
    def hopeless(self) -> bool:
        """Whether nothing can be learnt."""
        return self.ratio > _HOPELESS

    @property
    def verdict(self) -> str:
        """The prospect in words."""
        if self.ratio <= _HELPFUL:
            return "worth training"
        word = "not worth training" if self.hopeless else "hardly worth training"
        return f"{word}: the noise in the last model is {self.ratio:.2g} times as long as all updates together can be"


def _scale(mechanism: Mechanism, dims: int, clip_norm: float) -> float:
    """Return what one unit of the mechanism's domain is in an update."""
    domain: Any = mechanism.domain
    if isinstance(domain, L2Ball | TensorBall):
        if math.prod(domain.shape) != dims:
            raise ValueError(f"Expected a mechanism for {dims} weights, got one for {domain}.")
        return clip_norm / domain.radius
    low, high = (domain.low, domain.high) if isinstance(domain, Interval) else (np.min(domain.low), np.max(domain.high))
    if low != -high:
        raise ValueError(f"Expected a domain about zero, got {domain}. Give e.g. Interval(-1, 1).")
    return clip_norm / (math.sqrt(dims) * float(high))
