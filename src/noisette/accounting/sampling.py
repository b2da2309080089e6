"""Sums with Gaussian noise over Poisson samples: their epsilon at any delta down to 1e-300, never below the truth.

In units of the noise, an observer of one release distinguishes P = (1 - q) N(0, 1) + q N(m, 1) from Q = N(0, 1), either
way (add-remove), or from Q = (1 - q) N(0, 1) + q N(-m, 1) (replace), m = 1 / noise_multiplier. No other pair of
neighbours is further apart.
For replace: the divergence is the integral of (q p_x - c p_0 - e^eps q p_x')_+, c = (e^eps - 1)(1 - q), where x and x'
are the shifts of the two examples. Its derivative in the angle between them has the sign of a normal variable's mean
above a threshold, so opposite shifts are worst. Then the integrand is positive on a half-line, on which longer shifts
have more mass of p_x and less of p_x'.

Three bounds are known, and the least one counts. One release has a closed form. Of many, the law of the loss is put on
a lattice, both laws' masses of every piece kept (Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022, Algorithm 1),
tilted so that the epsilon sought is where its mass is, and convolved (`_sums`).
With very little noise, or hardly any sample, one counts how often an example is drawn: see `counted`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np

from noisette._validate import FloatArray, IntArray
from noisette.accounting._numbers import binomial_window, least_above, log_binomial
from noisette.accounting._sums import MOST_POINTS, ULP, LossSum, LossTimes, saddle
from noisette.accounting.conversions import gdp_epsilon
from noisette.guarantees import gaussian_delta

SampledRelation = Literal["add-remove", "replace"]

LEAST_DELTA = 1e-300  # below, floats run out

_REACH = 40.0  # standard deviations that are cut up: outside lies less than exp(-800)
_PIECES = 60.0  # pieces a standard deviation
_MOST_PIECES = 2.0**15
_STEPS = 20.0, 2000.0  # lattice steps in the standard deviation of one loss, of many releases and of few
_POINTS = 2.0**17  # of the lattice that a sum is convolved on, wanted
_LEAST_CONVOLVED_NOISE = 1 / 400  # with less noise than this only inclusions are counted
_MOST_COUNTED_NOISE = 0.3  # with more noise than this counting inclusions gains nothing
_HARDLY_EVER = 1e-3  # times that an example is drawn: of fewer, what this many cost is a bound
_LEAST_CHANCE = 1e-100  # of a sample
_ROUNDED_DOWN = 1 - 1e-9  # of delta, for the rounding of closed forms

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(5)


def sampled_epsilon(
    multiplier: float, delta: float, releases: int, sampling_prob: float, relation: SampledRelation
) -> float:
    """Return the least epsilon that is known to hold at delta."""
    reach = (1.0 if relation == "add-remove" else 2.0) / multiplier
    # what holds without sampling holds with it
    whole = gdp_epsilon(reach * math.sqrt(releases), delta * _ROUNDED_DOWN) * (1 + 1e-12)
    if sampling_prob == 1:
        return whole
    # a larger chance to be drawn never costs less, and floats run out below
    return min(whole, _amplified(multiplier, delta, releases, max(sampling_prob, _LEAST_CHANCE), relation))


@lru_cache(maxsize=256)
def _amplified(
    multiplier: float, delta: float, releases: int, sampling_prob: float, relation: SampledRelation
) -> float:
    """Return the least epsilon that sampling gives."""
    if releases == 1:
        return Pair(1 / multiplier, sampling_prob, relation).epsilon(delta)
    # a larger chance never costs less, see sampled_epsilon: with a tiny one the lattice would be too coarse
    pair = Pair(1 / multiplier, max(sampling_prob, _HARDLY_EVER / releases), relation)
    found = [math.inf]
    if multiplier < _MOST_COUNTED_NOISE or releases * sampling_prob < _HARDLY_EVER:
        found.append(counted(multiplier, delta, releases, sampling_prob, relation))
    if multiplier >= _LEAST_CONVOLVED_NOISE:
        worst = 0.0
        for law in pair.laws:
            worst = max(worst, law.epsilon(releases, delta, enough=worst))
        found.append(worst)
    return min(found)


def counted(
    multiplier: float, delta: float, releases: int, sampling_prob: float, relation: SampledRelation = "add-remove"
) -> float:
    """Return an epsilon at delta by counting how often the example in question is drawn.

    Formula: delta(e) <= sum_k P(Bin(releases, q) = k) delta_k(e), delta_k that of k releases without sampling.
    *Guarantee*: holds for add, remove and replace. Which releases draw the example does not depend on the data: an
    observer who also learns it learns it with the same chance under both, and then sees k releases with the example.

    >>> round(counted(0.001, 1e-5, 1000, 0.01) / 1e6, 2), round(gdp_epsilon(math.sqrt(1000) / 0.001, 1e-5) / 1e6)
    (13.0, 500)
    """
    reach = (1.0 if relation == "add-remove" else 2.0) / multiplier
    low, high = binomial_window(releases, sampling_prob)
    k = np.arange(float(low), high + 1.0)
    logs = log_binomial(k, releases, sampling_prob, 1 - sampling_prob) + 1e-9
    kept = (logs > math.log(delta) - 30) & (k > 0)
    rest = float(np.exp(logs[~kept & (k > 0)]).sum())  # at most exp(-30) of delta for each count
    mu, chances = reach * np.sqrt(k[kept]), np.exp(logs[kept])
    target = delta * _ROUNDED_DOWN - rest

    def holds(epsilon: float) -> bool:
        return float((chances * gaussian_delta(mu, epsilon)).sum()) <= target

    if mu.size == 0 or holds(0.0):
        return 0.0
    top = float(mu[-1])
    highest = top * top / 2 + top * math.sqrt(2 * math.log(1 / delta) + 2) + 1e-9
    return least_above(holds, 0.0, highest, tolerance=1e-9) * (1 + 1e-12)


@dataclass(frozen=True)
class Pair:
    """The two laws between which an observer of one release has to decide, in units of the noise."""

    shift: float
    sampling_prob: float
    relation: SampledRelation

    def delta(self, epsilon: float) -> float:
        """Return the delta of one release, exactly but for the rounding of `gaussian_delta`."""
        m, q = self.shift, self.sampling_prob
        if self.relation == "replace":
            return self._replaced(epsilon)
        inner = math.log1p(math.expm1(epsilon) / q) if epsilon < 30 else _log_above(epsilon, q)
        removed = q * float(gaussian_delta(m, inner))
        if epsilon + math.log1p(-q) >= 0:  # no loss is that large when an example is added
            return removed
        rest = -math.expm1(epsilon + math.log1p(-q))  # 1 - (1 - q) exp(epsilon)
        return max(removed, rest * float(gaussian_delta(m, epsilon + math.log(q) - math.log(rest))))

    def _replaced(self, epsilon: float) -> float:
        """Return q ((1 - w) D(m, m t - m^2 / 2) + w D(2 m, 2 m t)), D Gaussian noise's delta, t where the loss is
        epsilon, w = exp(epsilon - 2 m t): a sum of what would otherwise cancel.

        q sinh(m t - epsilon / 2) = (1 - q) exp(m^2 / 2) sinh(epsilon / 2): m t is a sum of numbers above 0, and good to
        its last digits even where it is tiny.
        """
        m, q = self.shift, self.sampling_prob
        sinh = epsilon / 2 - math.log(2) + math.log(-math.expm1(-epsilon)) if epsilon > 0 else -math.inf  # its log
        height = sinh + math.log1p(-q) - math.log(q) + m * m / 2
        beyond = math.asinh(math.exp(height)) if height < 30 else height + math.log(2)
        place = epsilon / 2 + beyond
        near = float(gaussian_delta(m, place - m * m / 2))
        far = float(gaussian_delta(2 * m, 2 * place))
        return q * (-math.expm1(-2 * beyond) * near + math.exp(-2 * beyond) * far)

    def epsilon(self, delta: float) -> float:
        """Return the least epsilon of one release, from above."""
        reach = self.shift if self.relation == "add-remove" else 2 * self.shift
        high = reach * reach / 2 + reach * math.sqrt(2 * math.log(1 / delta) + 2) + 1e-9
        target = delta * _ROUNDED_DOWN
        return least_above(lambda e: self.delta(e) <= target, 0.0, high, tolerance=1e-12) * (1 + 1e-12)

    @property
    def laws(self) -> list[Losses]:
        """The losses of one release, either way where that makes a difference."""
        pieces = self._pieces
        return [Losses(pieces, 1)] if self.relation == "replace" else [Losses(pieces, 1), Losses(pieces, -1)]

    @cached_property
    def _pieces(self) -> Pieces:
        """Cut up the line into pieces on which the loss rises."""
        m, q = self.shift, self.sampling_prob
        length = 2 * _REACH + m
        width = max(length / _MOST_PIECES, 1 / (_PIECES * max(1.0, m)))
        edges = np.linspace(-_REACH, _REACH + m, math.ceil(length / width) + 1)
        half = np.diff(edges) / 2
        places = (edges[:-1] + half)[:, None] + half[:, None] * _NODES
        up, down = _log_mixture(places, m, q), _log_mixture(-places, m, q)
        loss = up - down if self.relation == "replace" else up
        ends = _log_mixture(edges, m, q)
        if self.relation == "replace":
            ends = ends - _log_mixture(-edges, m, q)
        density = up - places**2 / 2 - math.log(2 * math.pi) / 2 + np.log(half)[:, None] + np.log(_WEIGHTS)
        return Pieces(ends[:-1], ends[1:], loss, density, 8 * ULP * (2 * _REACH + m) ** 2)


@dataclass(frozen=True, eq=False)
class Pieces:
    """Pieces of the line: the loss at their ends and at a few nodes, and the log mass of the first law at each node."""

    low: FloatArray
    high: FloatArray
    loss: FloatArray
    density: FloatArray
    error: float  # of a mass, relatively

    @cached_property
    def log_mass(self) -> FloatArray:
        """Log mass of each piece under the first law."""
        return _log_sum(self.density)

    @cached_property
    def middle(self) -> FloatArray:
        """A loss of each piece."""
        return np.asarray(self.loss[:, _NODES.size // 2])

    def on_lattice(self, step: float) -> tuple[IntArray, FloatArray]:
        """Return lattice points and their log masses under the first law, of a pair that is at least as far apart.

        A piece goes to the lattice points below and above all of it, both laws' masses kept: divergences are convex in
        the likelihood ratio, so they can only grow. What is rounded moves toward the point above.
        """
        first, last = np.floor(self.low / step), np.ceil(self.high / step)
        last = np.maximum(last, first + 1)
        gain = -np.expm1(np.minimum(first[:, None] * step - self.loss, 0.0))
        with np.errstate(divide="ignore"):
            share = np.exp(_log_sum(self.density + np.log(gain)) - self.log_mass) / -np.expm1((first - last) * step)
            share = np.clip(share * (1 + 1e-9) + 1e-12, 0.0, 1.0)
            masses = np.concatenate([self.log_mass + np.log1p(-share), self.log_mass + np.log(share)])
        points = np.concatenate([first, last])
        kept = masses > -np.inf
        return points[kept].astype(np.int64), masses[kept]


@dataclass(frozen=True, eq=False)
class Losses:
    """The privacy loss of one release, seen from the first law (way 1) or from the second (way -1)."""

    pieces: Pieces
    way: int

    def epsilon(self, releases: int, delta: float, *, enough: float = 0.0) -> float:
        """Return an epsilon of this many releases at delta, from above; infinity where the lattice does not reach it.

        Once a bound is not above ``enough``, no better one is looked for.
        """
        pieces, target = self.pieces, math.log(delta)
        largest = float(pieces.high[-1]) if self.way > 0 else -float(pieces.low[0]) * (1 + 1e-12)
        if releases * largest <= enough:
            return releases * largest
        loss = self.way * pieces.middle
        mass = pieces.log_mass if self.way > 0 else pieces.log_mass - pieces.middle
        tilt, spread = saddle([(loss, mass, releases)], target)
        steps = min(max(_POINTS / (20 * math.sqrt(releases)), _STEPS[0]), _STEPS[1])
        step = max(spread / steps, float(np.abs(loss).max()) * 4 * ULP)
        while True:
            points, logs = pieces.on_lattice(step)
            if self.way < 0:
                points, logs = -points, logs - points * step
            lattice = LossSum((LossTimes(points, logs, releases, pieces.error),), step, tilt)
            if lattice.bound(target) <= enough:
                return lattice.bound(target)
            if lattice.size <= MOST_POINTS:
                return lattice.epsilon(target)
            step *= 1.1 * lattice.size / MOST_POINTS


def _log_mixture(places: FloatArray, shift: float, share: float) -> FloatArray:
    """Return ln of the density of (1 - share) N(0, 1) + share N(shift, 1) over that of N(0, 1)."""
    power = shift * places - shift * shift / 2
    near = np.log1p(share * np.expm1(np.minimum(power, 30.0)))
    far = power + math.log(share) + np.log1p((1 - share) / share * np.exp(-np.maximum(power, 30.0)))
    return np.where(power < 30, near, far)


def _log_sum(logs: FloatArray) -> FloatArray:
    """Return ln of the sum of exponentials along each row."""
    top = np.maximum(logs.max(axis=1), -1e300)
    with np.errstate(divide="ignore"):
        return np.asarray(top + np.log(np.exp(logs - top[:, None]).sum(axis=1)))


def _log_above(epsilon: float, q: float) -> float:
    """Return ln((exp(epsilon) - 1 + q) / q) for a large epsilon."""
    return epsilon - math.log(q) + math.log1p(-(1 - q) * math.exp(-epsilon))
