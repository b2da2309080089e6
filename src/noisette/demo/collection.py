"""The whole way of the data, from the plan to the enhanced estimate, and the truth to hold it against."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, reduce
from operator import add
from typing import Any

import numpy as np

from noisette import _random
from noisette._validate import FloatArray
from noisette.core import Aggregate, Estimate
from noisette.demo import population
from noisette.demo.population import ATTRIBUTES, SPORTS
from noisette.domains import BoolArray, Categorical
from noisette.enhancement import enhance, reconstruct
from noisette.enhancement.channel import Channel
from noisette.utility import Candidate, Plan, plan

LEVEL = 0.95
SHARDS = 20
PILOT = 1000
BUDGETS = (0.1, 0.25, 0.5, 1.0, 2.0)  # at which the same collection is simulated again
REPEATS = 5  # collections for each of those, as what enhancing gains is itself a matter of chance
PORTRAIT, BINS = 14, 32  # the attribute whose distribution is reconstructed, and in how many bins
_SHARE = 0.75  # of the budget goes to the numbers, the rest to the category


@dataclass(frozen=True)
class Part:
    """One of the two questions of the collection: its plan, what came back, and the truth."""

    plan: Plan
    chosen: Candidate
    mechanism: Any
    names: tuple[str, ...]
    shards: list[Aggregate] = field(repr=False)
    shard_truths: list[FloatArray] = field(repr=False)
    truth: FloatArray = field(repr=False)
    raw: Estimate = field(repr=False)
    enhanced: Estimate = field(repr=False)
    digests: tuple[str, ...]

    @property
    def shard_coverage(self) -> tuple[int, int]:
        """How many of the shards' own intervals hold the shards' own truths, and how many there are."""
        hits = total = 0
        for shard, truth in zip(self.shards, self.shard_truths, strict=True):
            estimate = shard.estimate()
            reported = np.isfinite(estimate.std_error)  # a small shard may have no report about an attribute
            hits += int(covered(estimate, truth)[reported].sum())
            total += int(reported.sum())
        return hits, total

    @property
    def coverage(self) -> str:
        """Say how many intervals hold the truth: of the whole collection, and of the shards as collections."""
        inside, (hits, total) = covered(self.raw, self.truth), self.shard_coverage
        chance = 1.96 * float(np.sqrt(LEVEL * (1 - LEVEL) / total))
        return (
            f"{int(inside.sum())} of {inside.size} intervals hold the truth. So do {hits:,} of the {total:,} that "
            f"{SHARDS} shards give by themselves: {hits / total:.1%}, where {LEVEL:.0%} ± {chance:.1%} is expected."
        )


@dataclass(frozen=True)
class Alternative:
    """The numbers, collected with another budget: the best mechanism, and the error before and after enhancing.

    Errors are root mean squares over `REPEATS` collections.
    """

    epsilon: float
    mechanism: str
    raw: float
    enhanced: float


@dataclass(frozen=True)
class Portrait:
    """The distribution of one attribute: bins on [-1, 1], the true shares and the reconstructed ones."""

    edges: FloatArray
    truth: FloatArray
    found: FloatArray
    reports: int


@dataclass(frozen=True)
class Outcome:
    """Everything that the story and the report tell."""

    users: int
    epsilon: float
    seed: int
    numbers: Part
    sport: Part
    portrait: Portrait | None
    alternatives: list[Alternative]
    seconds: dict[str, float]


def covered(estimate: Estimate, truth: FloatArray) -> BoolArray:
    """Tell which intervals hold the truth."""
    low, high = estimate.interval(LEVEL)
    return np.asarray((low <= truth) & (truth <= high))


def root_mean_square(errors: FloatArray) -> float:
    """Return the size of errors."""
    return float(np.sqrt(np.mean(np.square(errors))))


def collect(
    users: int, epsilon: float, seed: int, *, on_progress: Callable[[float], None] = lambda share: None
) -> Outcome:
    """Simulate the collection; ``on_progress`` is told the share of the devices that have reported."""
    world, noise = np.random.default_rng(seed), _random.generator(seed + 1)
    pilot = population.simulate(PILOT, world)
    watch = _Watch()
    sports = Categorical(labels=tuple(SPORTS))
    numbers = _Question(_plan_numbers(users, epsilon, pilot), tuple(a.name for a in ATTRIBUTES))
    sport = _Question(
        plan(users=users, epsilon=(1 - _SHARE) * epsilon, domain=sports, values=pilot.sports), tuple(SPORTS)
    )
    others = [
        [_Question(made, numbers.names) for _ in range(REPEATS)]
        for made in (_plan_numbers(users, budget, pilot) for budget in BUDGETS)
    ]
    watch.stop("plan")
    portrait = _Painter(numbers.mechanism)
    done = 0
    for shard in population.shards(users, -(-users // SHARDS), world):
        means = shard.numbers.mean(axis=0)
        frequencies = np.bincount(shard.sports, minlength=len(SPORTS)) / len(shard.sports)
        portrait.see(shard.numbers)
        watch.stop("simulate")
        answers = [
            numbers.mechanism.privatize(shard.numbers, rng=noise),
            sport.mechanism.privatize(shard.sports, rng=noise),
        ]
        watch.stop("privatise")
        numbers.add(answers[0], means)
        sport.add(answers[1], frequencies)
        watch.stop("aggregate")
        portrait.count(answers[0])
        for other in (question for questions in others for question in questions):
            other.add(other.mechanism.privatize(shard.numbers, rng=noise), means)
        watch.stop("alternatives")
        done += len(shard.numbers)
        on_progress(done / users)
    outcome = Outcome(
        users,
        epsilon,
        seed,
        numbers.close(world),
        sport.close(world),
        portrait.finish(),
        [_alternative(budget, other, world) for budget, other in zip(BUDGETS, others, strict=True)],
        watch.seconds,
    )
    watch.stop("estimate")
    return outcome


def _plan_numbers(users: int, epsilon: float, pilot: population.Shard) -> Plan:
    return plan(users=users, dims=len(ATTRIBUTES), epsilon=_SHARE * epsilon, values=pilot.numbers)


@dataclass
class _Question:
    """A part of the collection while shards come in."""

    plan: Plan
    names: tuple[str, ...]
    shards: list[Aggregate] = field(default_factory=list)
    truths: list[FloatArray] = field(default_factory=list)

    @cached_property
    def chosen(self) -> Candidate:
        """The best mechanism whose average needs no luck."""
        return self.plan.best_unbiased or self.plan.best

    @cached_property
    def mechanism(self) -> Any:
        """The mechanism that every device runs."""
        return self.chosen.build()

    def add(self, reports: Any, truth: FloatArray) -> None:
        """Aggregate a shard; what it held is kept to be compared with."""
        self.shards.append(self.mechanism.aggregate(reports))
        self.truths.append(truth)

    def close(self, rng: np.random.Generator) -> Part:
        """Merge the shards in three orders, estimate and enhance."""
        count = len(self.shards)
        orders = [np.arange(count), np.arange(count)[::-1], rng.permutation(count)]
        merged = [reduce(add, (self.shards[place] for place in order.tolist())) for order in orders]
        digests = tuple(hashlib.sha256(a.to_json().encode()).hexdigest()[:16] for a in merged)
        weights = np.asarray([shard.users for shard in self.shards]) / merged[0].users
        truth = np.asarray(weights @ np.asarray(self.truths))
        raw = merged[0].estimate()
        own = (self.plan, self.chosen, self.mechanism, self.names, self.shards, self.truths)
        return Part(*own, truth, raw, enhance(raw), digests)


def _alternative(epsilon: float, questions: list[_Question], rng: np.random.Generator) -> Alternative:
    """Close the collections of one budget and average their squared errors."""
    parts = [question.close(rng) for question in questions]
    raw, enhanced = (
        root_mean_square(np.asarray([getattr(part, name).value - part.truth for part in parts]))
        for name in ("raw", "enhanced")
    )
    return Alternative(epsilon, parts[0].chosen.mechanism, raw, enhanced)


class _Painter:
    """Counts the true values and the reports of one attribute by bin, as shards come in."""

    def __init__(self, mechanism: Any) -> None:
        self._sampled = hasattr(mechanism, "inner_mechanism")
        self._channel = Channel.of(mechanism.inner_mechanism, bins=BINS) if self._sampled else None
        self._truth = np.zeros(BINS)
        self._counts = np.zeros(0 if self._channel is None else self._channel.matrix.shape[0])

    def see(self, numbers: FloatArray) -> None:
        """Count the true values."""
        self._truth += np.histogram(numbers[:, PORTRAIT], BINS, (-1.0, 1.0))[0]

    def count(self, reports: Any) -> None:
        """Count the reports about the attribute."""
        if self._channel is not None:
            about = reports.values[reports.indices == PORTRAIT]
            self._counts += self._channel.count(about)

    def finish(self) -> Portrait | None:
        """Reconstruct the distribution; a mechanism that mixes all attributes in a report gives none."""
        if self._channel is None or not self._counts.any():
            return None
        found = reconstruct(self._channel.mechanism, counts=self._counts, bins=BINS)
        edges = np.linspace(-1.0, 1.0, BINS + 1)
        return Portrait(edges, self._truth / self._truth.sum(), found.probabilities, int(self._counts.sum()))


class _Watch:
    """Adds up the seconds of each kind of work."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def stop(self, work: str) -> None:
        """Book the time since the last stop."""
        now = time.perf_counter()
        self.seconds[work] = self.seconds.get(work, 0.0) + now - self._last
        self._last = now
