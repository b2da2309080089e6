"""Graded collection before any report: every way to read levelled reports, and what else keeps the same matrix."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any, ClassVar

import numpy as np

from noisette import _random, _validate
from noisette._moved import with_old_arguments
from noisette._random import Rng
from noisette._search import narrowed
from noisette._validate import FloatArray
from noisette.core import Aggregate, Moments
from noisette.domains import Interval
from noisette.mechanisms.graded.estimation import hiera, maximum_likelihood
from noisette.mechanisms.graded.levelled import LevelledResponse, Pairs
from noisette.mechanisms.graded.optimal import OptimalGraded
from noisette.mechanisms.scalar.duchi import Duchi
from noisette.prediction.curves import curve
from noisette.prediction.model import populations
from noisette.prediction.model.populations import Population
from noisette.prediction.offers import report_rules
from noisette.prediction.planning import Candidate, Plan, candidate_of
from noisette.prediction.targets import signal_of, verdict

_DRAWS = 400  # collections that a simulated error averages over
_POINTS = 512  # values that stand for a population in a simulation
_MOST_FLIPS = 12  # conversions of a report up to which their outcomes are enumerated
_LEAST_OPTIMAL = 0.01  # smaller budgets OptimalGraded refuses


@with_old_arguments(mu="reuse")
@dataclass(frozen=True)
class Reused:
    """HierA without clipping as something that `deviation` and `compare` take: its moments for one user.

    Every report of level i says s / (2 p_i - 1) directly; averaged with its ``reuse`` - 1 conversions it says the same
    on average, with the variance of the second flips on top.
    """

    mechanism: LevelledResponse
    reuse: int
    kind: ClassVar[str] = "mean"

    def __post_init__(self) -> None:
        _validate.integer(self.reuse, "reuse", low=1, high=len(self.mechanism.epsilons))

    @property
    def name(self) -> str:
        """The mechanism, and how its reports are read."""
        return f"{self.mechanism.name}, hiera mu {self.reuse}"

    @property
    def domain(self) -> Any:
        """That of the mechanism."""
        return self.mechanism.domain

    def spec(self) -> dict[str, Any]:
        """Return the description of the mechanism."""
        return self.mechanism.spec()

    @cached_property
    def _says(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """What a report of each kind can come to say, how likely each is given the kind, and the kind."""
        order = np.argsort(-np.asarray(self.mechanism.epsilons), kind="stable").tolist()
        lean = 2 * self.mechanism.p_keep - 1
        readout = self.mechanism.readout
        half = self.domain.diameter / 2
        says, chances, kinds = [], [], []
        for place, level in enumerate(order):
            others = order[place + 1 : place + self.reuse]
            if len(others) > _MOST_FLIPS:
                raise ValueError(f"Expected reuse <= {_MOST_FLIPS + 1} to predict the error, got {self.reuse}.")
            kept = [(lean[other] / lean[level] + 1) / 2 for other in others]
            for flips in product((1, -1), repeat=len(others)):
                chance = math.prod(q if flip == 1 else 1 - q for q, flip in zip(kept, flips, strict=True))
                own = (self.reuse - len(others)) / lean[level]
                total = own + sum(flip / lean[other] for flip, other in zip(flips, others, strict=True))
                for sign in (-1, 1):
                    says.append(readout.offset + half * sign * total / self.reuse)
                    chances.append(chance)
                    kinds.append(2 * level + (sign > 0))
        return np.asarray(says), np.asarray(chances), np.asarray(kinds)

    def moments(self, x: Any) -> Moments:
        """Return bias, variance and third absolute central moment of what one user's reports say."""
        values = _validate.reals(x)
        says, chances, kinds = self._says
        law = np.exp(self.mechanism.log_prob(self.mechanism.support.all, values[..., None]))
        mass, away = law[..., kinds] * chances, np.abs(says - values[..., None])
        variance, third = ((mass * away**power).sum(axis=-1) for power in (2, 3))
        return Moments(np.zeros(values.shape), variance, third)


def simulated(
    mechanism: Any,
    read: Callable[[Aggregate], float],
    *,
    users: int,
    values: Any = None,
    probs: Any = None,
    distribution: str | None = None,
    draws: int = _DRAWS,
    rng: Rng = 0,
) -> tuple[float, float]:
    """Return bias and standard deviation of any reading of counted reports, from draws of the counts.

    The law of the counts is exact, multinomial; only ``draws`` of them are taken, so the result has a relative error of
    about 1 / sqrt(2 draws).

    >>> m = LevelledResponse([-1, 0, 1], [2.0, 1.0])
    >>> bias, std = simulated(m, lambda a: float(a.estimate().value[0]), users=1000, values=[0.5])
    >>> round(std / math.sqrt(float(m.moments(0.5).variance) / 1000), 1)
    1.0
    """
    users, draws = _validate.integer(users, "users", low=1), _validate.integer(draws, "draws", low=2)
    population = _population(values, probs, distribution, mechanism.domain)
    if population is None:
        raise ValueError("Expected values or a distribution: this error depends on the true values.")
    return _simulated(mechanism, read, users, population, draws, rng)


def plan_levels(
    *,
    users: int,
    edges: Any,
    epsilons: Any,
    total: float | None = None,
    values: Any = None,
    probs: Any = None,
    distribution: str | None = None,
    optimal_points: int = 24,
) -> Plan:
    """Predict the error of a graded collection: levelled reports read in every way, and others at the same matrix.

    The levels are those of `LevelledResponse`; with ``total`` their budgets are scaled so that it is the epsilon of the
    pair. Beside it stand OptimalGraded under the exact matrix that results, and Duchi at the largest epsilon at which
    it keeps that matrix. The true values are given as for `deviation`; unknown, maximum likelihood is left out, whose
    error depends on them.

    *Utility*: direct and HierA's errors are exact, without clipping; that of maximum likelihood is simulated.

    >>> made = plan_levels(users=10_000, edges=[-1, 0, 1], epsilons=[2.0, 1.0], values=[-0.4, 0.1, 0.3])
    >>> sorted(c.mechanism for c in made.candidates)[:3]
    ['duchi', 'levelled', 'levelled, hiera mu 2']
    """
    users = _validate.integer(users, "users", low=1)
    levelled = LevelledResponse(edges, epsilons)
    levelled = levelled if total is None else levelled.calibrate(total=total)
    domain, matrix = Interval(levelled.edges[0], levelled.edges[-1]), np.asarray(levelled.guarantee.matrix)
    population = _population(values, probs, distribution, domain)
    readings: list[Any] = [levelled, *(Reused(levelled, mu) for mu in range(2, len(levelled.epsilons) + 1))]
    rivals: list[Any] = [duchi_within(levelled.edges, matrix)]
    if matrix.min() >= _LEAST_OPTIMAL:
        points = max(optimal_points, 2 * len(levelled.epsilons))
        goal = "worst" if population is None else "average"
        rivals.append(OptimalGraded(levelled.edges, matrix=levelled.guarantee.matrix, points=points, objective=goal))
    signal = signal_of(domain, population)
    candidates = [candidate_of(m.name, m, curve(m, population), users) for m in [*readings, *rivals]]
    if population is not None:
        bias, std = _simulated(levelled, lambda a: maximum_likelihood(a).mean, users, population, _DRAWS, 0)
        name = f"{levelled.name}, maximum likelihood"
        error = bias**2 + std**2
        candidates.append(Candidate(name, 1, error, bias, std, float(users), None, False, levelled.spec()))
    judged = (replace(c, verdict=verdict(c.mse, signal)) for c in candidates)
    ordered = tuple(sorted(judged, key=lambda candidate: candidate.mse))
    return Plan(users, 1, levelled.guarantee.epsilon, 0.0, ordered, (), report_rules(levelled.epsilon, 1), signal)


def duchi_within(edges: Any, matrix: Any) -> Duchi:
    """Return Duchi's mechanism at the largest epsilon at which it keeps a matrix between levels.

    >>> round(duchi_within([-1, 0, 1], [[1.0, 1.0], [1.0, 1.0]]).epsilon, 6)
    1.0
    """
    levels = LevelledResponse(edges, (1.0,) * (len(edges) - 1))
    ends = levels.witnesses()[0].reshape(-1, 2)
    target = np.asarray(matrix)

    def keeps(epsilon: float) -> bool:
        duchi = Duchi(epsilon, domain=Interval(levels.edges[0], levels.edges[-1]))
        logs = duchi.log_prob(np.asarray(duchi.support.values), ends[..., None])  # level, end, report
        ratio = logs[:, :, None, None] - logs
        return bool(np.all(ratio.max(axis=(1, 3, 4)) <= target + 1e-12))

    if not keeps(1e-6):
        raise ValueError("No epsilon of at least 1e-6 keeps this matrix. Raise its smallest entries.")
    largest, _ = narrowed(keeps, 1e-6, 50.0, tolerance=1e-12)
    return Duchi(largest, domain=Interval(levels.edges[0], levels.edges[-1]))


@with_old_arguments(mu="reuse")
def predicted_hiera(
    mechanism: LevelledResponse, reuse: int, *, users: int, clip: bool = True, rng: Rng = 0, **known: Any
) -> tuple[float, float]:
    """Return bias and standard deviation of HierA's mean: exact without clipping, simulated with it."""
    if clip:
        source = _random.generator(rng)

        def read(counted: Aggregate) -> float:
            return float(hiera(counted, reuse=reuse, rng=source).value[0])

        return simulated(mechanism, read, users=users, rng=source, **known)
    population = _population(known.get("values"), known.get("probs"), known.get("distribution"), mechanism.domain)
    errors: Any = curve(Reused(mechanism, reuse), population)  # type: ignore[arg-type]
    return 0.0, math.sqrt(errors.at(users))


def _simulated(
    mechanism: Any, read: Callable[[Aggregate], float], users: int, population: Population, draws: int, rng: Rng
) -> tuple[float, float]:
    """Return bias and standard deviation over draws of the counts, for users who hold these values in these shares."""
    points, weights = _grouped(mechanism.edges, population)
    # whole users for each value: those that rounding down leaves go where it took most
    held = np.floor(users * weights).astype(np.int64)
    rest = np.argsort(held - users * weights, kind="stable")[: users - held.sum()]
    held[rest] += 1
    support = mechanism.support
    kinds = support.all if isinstance(support, Pairs) else np.asarray(support.values)
    law = np.exp(mechanism.log_prob(kinds, points[:, None]))
    law /= law.sum(axis=1, keepdims=True)
    source = _random.generator(rng)
    size = np.full(law.shape[1], users, dtype=np.int64)
    found = []
    for _ in range(draws):
        counts = source.multinomial(held, law).sum(axis=0)
        found.append(read(Aggregate(mechanism, users, size, counts, counts)))
    return float(np.mean(found) - held @ points / users), float(np.std(found, ddof=1))


def _grouped(edges: Any, population: Population) -> tuple[FloatArray, FloatArray]:
    """Return values and shares: many values are gathered into a few hundred means, none across an edge of levels."""
    weights = np.maximum(population.pooled, 0.0)
    points, weights = population.points, weights / weights.sum()
    if points.size <= _POINTS:
        return points, weights
    cuts = np.unique([*np.linspace(edges[0], edges[-1], _POINTS // 2), *edges])
    place = np.clip(np.searchsorted(cuts, points, side="right") - 1, 0, cuts.size - 2)
    shares, sums = (np.bincount(place, each).astype(np.float64) for each in (weights, weights * points))
    held = shares > 0
    return sums[held] / shares[held], shares[held]


def _population(values: Any, probs: Any, distribution: str | None, domain: Any) -> Population | None:
    """Return what is known of the values, each where it is: moved to a grid it might change its level."""
    if values is None or distribution is not None or np.ndim(values) != 1:
        return populations.known(values, probs, distribution, domain)
    points = _validate.reals(values, "values")
    populations.check_inside(points, domain)
    return Population(points, populations.probabilities(probs, points.size)[None], np.ones(1))
