"""What counts of graded reports say: HierA as published, and maximum likelihood over the levels.

Both need the counts of an aggregate only, so they work on streams of any length in constant memory, and on merged
aggregates. The default, `Aggregate.estimate`, is the direct unbiased mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from noisette import _random, _validate
from noisette._moved import with_old_arguments
from noisette._random import Rng
from noisette._search import narrowed
from noisette._validate import FloatArray, IntArray
from noisette.core import Aggregate, Estimate
from noisette.mechanisms.graded.levelled import LevelledResponse
from noisette.mechanisms.graded.optimal import OptimalGraded

_TOLERANCE = 1e-10  # of the log-likelihood of one report, by which the optimum may be missed
_STEPS = 200


def convert_signs(counts: Any, p_from: float, p_to: float, *, rng: Rng = None) -> IntArray:
    """Flip signs again so that they look as if they had been kept with ``p_to`` instead of ``p_from`` (PLC).

    Formula: each of the (minus, plus) signs counted is kept with probability q = (p_from + p_to - 1) / (2 p_from - 1).

    *Guarantee*: post-processing: the privacy of the reports is untouched.
    *Utility*: none: the result is a noisier copy of what is known.
    Hao, Wu, Wan 2023, Algorithm 4; of counts, whose law is the same as that of flipping sign by sign.

    >>> convert_signs([400, 600], 0.75, 0.75).tolist()
    [400, 600]
    """
    pair = _validate.integers(counts, "counts")
    if pair.shape[-1:] != (2,) or pair.min(initial=0) < 0:
        raise ValueError(f"Expected counts=(minus, plus), both >= 0, got {counts!r}.")
    if not 0.5 < p_to <= p_from <= 1:
        raise ValueError(
            f"Expected 0.5 < p_to <= p_from <= 1, got p_from={p_from!r}, p_to={p_to!r}: signs only become noisier."
        )
    kept = (p_from + p_to - 1) / (2 * p_from - 1)
    stay = np.asarray(_random.generator(rng).binomial(pair, kept), dtype=np.int64)
    return stay + (pair - stay)[..., ::-1]


def pool_signs(counts: Any, p_keep: FloatArray, reuse: int, *, clip: bool = True, rng: Rng = None) -> FloatArray:
    """Return the sum of the true signs of each level, by steps 3 to 6 of HierA, of one collection or many at once.

    ``counts`` has (minus, plus) along its last axis and levels of falling budgets, kept with ``p_keep``, along the one
    before; other axes are collections of their own. Each report counts ``reuse`` times.
    """
    own = _validate.integers(counts, "counts")
    size, source = len(p_keep), _random.generator(rng)
    pools = np.zeros_like(own)
    for level in range(size):
        last = min(size, level + reuse) - 1
        pools[..., level, :] += (reuse - (last - level)) * own[..., level, :]
        for other in range(level + 1, last + 1):
            pools[..., other, :] += convert_signs(own[..., level, :], p_keep[level], p_keep[other], rng=source)
    signs = pools.sum(axis=-1, keepdims=True)
    true = (p_keep[:, None] * signs - pools[..., ::-1]) / (2 * p_keep[:, None] - 1)
    if clip:
        true = np.clip(true, 0, signs)
    return np.asarray(true[..., 1] - true[..., 0])


@with_old_arguments(mu="reuse")
def hiera(aggregate: Aggregate, *, reuse: int = 1, clip: bool = True, rng: Rng = None) -> Estimate:
    """Estimate the mean from levelled reports by hierarchical aggregation, as published.

    Formula, with mu for ``reuse``: the reports of a level are converted to each of the mu - 1 levels of next smaller
    budgets; at the last levels a report stands in for the conversions that are missing, so that each counts mu times.
    In level j, with N_j signs of which n are plus, n+ = (p_j N_j - (N_j - n)) / (2 p_j - 1) clipped to [0, N_j], and n-
    alike; the mean is the sum of n+ - n- over mu times the number of users.

    *Guarantee*: post-processing: the privacy of the reports is untouched.
    *Utility*: mu = 1 without clipping is `Aggregate.estimate`. A larger mu only adds the noise of the second flips;
    clipping makes small collections biased. The standard error is that without clipping.
    Hao, Wu, Wan 2023, Algorithm 5.

    >>> m = LevelledResponse(edges=[-1, 0, 1], epsilons=[2.0, 1.0])
    >>> counted = m.aggregate(m.privatize(np.full(10_000, 0.5), rng=1))
    >>> [round(float(hiera(counted, reuse=reuse, rng=2).value[0]), 2) for reuse in (1, 2)]
    [0.53, 0.53]
    """
    mechanism = _levelled(aggregate)
    counts = aggregate.total.reshape(-1, 2)
    order = np.argsort(-np.asarray(mechanism.epsilons), kind="stable")
    size, p_keep = order.size, mechanism.p_keep[order]
    mu = _validate.integer(reuse, "reuse", low=1, high=size)
    lean = 2 * p_keep - 1
    # what flipping again adds to the mean square of what a report of each level says
    added = np.asarray([(lean[t : t + mu] ** -2.0 - lean[t] ** -2.0).sum() for t in range(size)]) / mu**2
    users = aggregate.users
    mean = float(pool_signs(counts[order], p_keep, mu, clip=clip, rng=rng).sum()) / (mu * users)
    direct = (counts[order, 1] - counts[order, 0]) @ (1 / lean) / users
    square = counts[order].sum(axis=1) @ (1 / lean**2 + added) / users
    error = math.sqrt(max(square - direct**2, 0.0) / (users - 1)) if users > 1 else math.inf
    readout = aggregate.mechanism.readout
    half = (float(readout.high) - float(readout.low)) / 2
    return Estimate(
        value=np.asarray([readout.offset + half * mean]),
        std_error=np.asarray([half * error]),
        count=aggregate.count[:1],
        low=readout.low,
        high=readout.high,
        names=aggregate.names,
        method=f"hiera, mu {mu}",
    )


@dataclass(frozen=True, eq=False)
class Histogram:
    """The distribution that makes graded reports most likely: shares of the levels, and the mean within each.

    Levelled reports tell no more about a level than these two, so within one the distribution is drawn as flat as its
    mean allows: an exponential slope (the law of largest entropy).
    """

    edges: FloatArray
    shares: FloatArray
    means: FloatArray
    log_likelihood: float
    count: int

    @property
    def mean(self) -> float:
        """The most likely mean."""
        return float(self.shares @ self.means)

    @cached_property
    def _slopes(self) -> list[float]:
        return [
            _slope((mean - low) / (high - low)) if high > low else 0.0
            for mean, low, high in zip(self.means, self.edges[:-1], self.edges[1:], strict=True)
        ]

    def cdf(self, x: Any) -> FloatArray:
        """Return the share of values at or below each ``x``."""
        values = _validate.reals(x)
        total = np.zeros(values.shape)
        for share, slope, low, high in zip(self.shares, self._slopes, self.edges[:-1], self.edges[1:], strict=True):
            total += share * _part(np.clip((values - low) / (high - low), 0.0, 1.0), slope)
        return np.minimum(total, 1.0)

    def quantile(self, probability: Any) -> FloatArray:
        """Return the value that the distribution stays below with each ``probability``."""
        wanted = _validate.reals(probability, "probability")
        if not np.all((wanted >= 0) & (wanted <= 1)):
            raise ValueError(f"Expected probabilities in [0, 1], got {probability!r}.")
        low, high = np.full(wanted.shape, self.edges[0]), np.full(wanted.shape, self.edges[-1])
        for _ in range(60):
            middle = (low + high) / 2
            short = self.cdf(middle) < wanted
            low, high = np.where(short, middle, low), np.where(short, high, middle)
        return high

    def probabilities(self, bins: int = 64) -> tuple[FloatArray, FloatArray]:
        """Return the ends of equal bins, and the share of the values in each."""
        ends = np.linspace(self.edges[0], self.edges[-1], _validate.integer(bins, "bins", low=1) + 1)
        return ends, np.diff(self.cdf(ends), prepend=0.0)[1:]


def maximum_likelihood(aggregate: Aggregate) -> Histogram:
    """Return the distribution of the values that makes the counts of graded reports most likely.

    Formula: maximise sum over kinds of report r of c_r ln(sum over atoms a of w_a P(r|a)), w >= 0 of sum 1. Laws of
    values are mixtures of those of the atoms, the ends of the levels or the points of the table, so nothing is lost.

    *Guarantee*: post-processing: the privacy of the reports is untouched.
    *Utility*: uses level and sign together: the mean of a level must lie in it. Slightly biased. In the experiments its
    mean absolute error was 0.58 to 1.00 times that of the direct estimate, least at small budgets.

    >>> m = LevelledResponse(edges=[0, 50, 100], epsilons=[2.0, 1.0])
    >>> found = maximum_likelihood(m.aggregate(m.privatize(np.full(20_000, 60.0), rng=1)))
    >>> round(found.mean), found.shares.round(2).tolist()
    (60, [0.0, 1.0])
    """
    mechanism: Any = aggregate.mechanism
    chosen = isinstance(mechanism, LevelledResponse) and mechanism.personalised
    if chosen or not isinstance(mechanism, LevelledResponse | OptimalGraded):
        raise TypeError(
            f"Expected counts of levelled or optimal-graded reports about values, got those of {mechanism.name}. "
            "Use noisette.enhancement.reconstruct for other mechanisms."
        )
    values, levels, chances = mechanism.atoms
    weights, likelihood = mixture(chances.T, aggregate.total)
    shares, sums = (np.bincount(levels, each).astype(np.float64) for each in (weights, weights * values))
    low, high = (np.asarray([pick(values[levels == t]) for t in range(shares.size)]) for pick in (np.min, np.max))
    means = np.clip(np.divide(sums, shares, out=(low + high) / 2, where=shares > 0), low, high)
    edges: Any = mechanism.edges
    if edges is None:  # separate inputs: a level around each
        edges = np.concatenate([low[:1], (low[1:] + low[:-1]) / 2, low[-1:]])
    return Histogram(np.asarray(edges), shares, means, likelihood, aggregate.users)


def mixture(chances: FloatArray, counts: IntArray) -> tuple[FloatArray, float]:
    """Return the weights of the columns of ``chances`` that make ``counts`` most likely, and the log-likelihood.

    Newton's method: each step solves the quadratic model under weights >= 0, which is a least-squares problem, and
    goes as far along it as the likelihood rises. It ends when the gradient proves the optimum to be near.
    """
    from scipy.optimize import nnls

    total = counts.sum()
    seen = counts / total
    weights = np.full(chances.shape[1], 1 / chances.shape[1])
    fitted = chances @ weights

    def loss(fit: FloatArray) -> float:
        return float(fit.sum() - seen[seen > 0] @ np.log(fit[seen > 0]))

    for _ in range(_STEPS):
        if float((chances.T @ (seen / fitted)).max()) <= 1 + _TOLERANCE:
            break
        # with h = A w the model is sum of c h^2 / (2 g^2) - (2 c / g - 1) h about the fit g; unseen kinds weigh little
        root = np.sqrt(np.maximum(seen, 1e-9)) / fitted
        trial, _ = nnls(chances * root[:, None], (2 * seen / fitted - 1) / root)
        step, goal = 1.0, chances @ trial
        while step > 1e-9 and not loss(fitted + step * (goal - fitted)) < loss(fitted):
            step /= 2
        if step <= 1e-9:
            break
        weights = weights + step * (trial - weights)
        fitted = chances @ weights
    weights = weights / weights.sum()
    fitted = chances @ weights
    return weights, float(counts[counts > 0] @ np.log(fitted[counts > 0]))


def _levelled(aggregate: Aggregate) -> LevelledResponse:
    mechanism: Any = aggregate.mechanism
    if not isinstance(mechanism, LevelledResponse):
        raise TypeError(f"Expected counts of levelled reports, got those of {mechanism.name}.")
    if aggregate.users == 0:
        raise ValueError("Expected at least one report, got none.")
    return mechanism


def _part(place: FloatArray, slope: float) -> FloatArray:
    """Return the share of an exponential law on [0, 1] up to each place."""
    if abs(slope) < 1e-6:
        return place
    if slope > 0:  # from the other end, so that nothing overflows
        return np.asarray(1 - _part(1 - place, -slope))
    return np.asarray(np.expm1(slope * place) / math.expm1(slope))


def _slope(mean: float) -> float:
    """Return the slope at which an exponential law on [0, 1] has this mean: 1 / (1 - exp(-s)) - 1 / s."""
    if mean > 0.5:
        return -_slope(1 - mean)

    def short(slope: float) -> bool:
        found = 0.5 + slope / 12 if abs(slope) < 1e-4 else 1 / -math.expm1(-max(slope, -700.0)) - 1 / slope
        return found < mean

    return narrowed(short, -1e9, 0.0, absolute=1e-50)[1]
