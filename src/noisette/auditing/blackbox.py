"""A lower bound on epsilon from samples alone: no density, any callable, anybody's code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from noisette import _random, _validate
from noisette._random import Rng
from noisette._validate import FloatArray
from noisette.auditing.features import Scorer, scorers, table
from noisette.auditing.intervals import best_weight, lower_bounds, promised_bounds
from noisette.core import Mechanism
from noisette.guarantees import Claim, Guarantee
from noisette.mechanisms._base import BaseMechanism

Sampler = Callable[[Any, int, np.random.Generator], Any]

_TRAINING = 0.2  # of the reports choose the event, the others test it
_PROBE = 64  # reports that tell how wide one is
_ENTRIES = 1 << 24  # numbers held at a time
_PILOT = 20_000  # reports about each input that the choice of the pair looks at
_LEVELS = 1000  # thresholds tried on a score
# standard deviations taken off what an event promises about epsilon and mu: of thousands, some look good by chance
_CAUTION = ((3.0, 1.5, 0.5), (4.0, 2.0, 0.5))


@dataclass(frozen=True)
class Audit:
    """What the samples show.

    ``lower_bound`` is below the true epsilon (at ``delta``) with probability at least ``confidence``, and
    ``mu_lower_bound`` below the mu of the tightest Gaussian guarantee with the same. ``verdict`` is "violated" when
    the bound on epsilon is above what is claimed. ``samples`` reports were drawn about each input; ``pair`` names the
    two inputs that were compared, ``event_rates`` how often the chosen event happened under each.
    """

    lower_bound: float
    claimed: float
    delta: float
    confidence: float
    samples: int
    pair: tuple[Any, Any]
    event_rates: tuple[float, float]
    mu_lower_bound: float

    @property
    def verdict(self) -> str:
        """``"violated"`` if the samples contradict the claim, else ``"holds"``."""
        return "violated" if self.lower_bound > self.claimed else "holds"


@dataclass(frozen=True)
class _Event:
    """Reports that score ``threshold`` or more, the bound that they promise, and their rates under both inputs."""

    scorer: Scorer
    threshold: float
    promise: float
    rates: tuple[float, float]


def audit(
    target: Mechanism | Sampler,
    *,
    inputs: Sequence[Any] | None = None,
    claimed: float | None = None,
    delta: float | None = None,
    samples: int = 200_000,
    confidence: float = 0.999,
    rng: Rng = None,
) -> Audit:
    """Bound the epsilon of a mechanism from below by looking at its reports only.

    A fifth of the reports chooses the pair of inputs and the event, the others test it: with event rates TPR and FPR
    on fresh samples, epsilon >= ln((TPR_low - delta) / FPR_high), and the same for the complement; the limits are
    Clopper-Pearson's, for every way to share the risk between the two that Fisher's combination allows.

    *Guarantee*: the bound exceeds the true epsilon with probability at most 1 - ``confidence``, whatever the target.
    *Utility*: 0.95 of the exact epsilon and more for GRR, Duchi, Piecewise and Laplace at a million samples.
    Jagielski, Ullman, Oprea 2020 bound epsilon so; DP-Sniper (Bichsel, Steffen, Bogunovic, Vechev 2021) learns the
    event from samples, too.

    ``target`` is a mechanism, or any ``f(x, n, rng)`` that returns n reports about x; then ``inputs`` and ``claimed``
    say which inputs to try and what epsilon is claimed. Of a mechanism the published claim is tested, where there is
    one for its unit, else what it states. ``samples`` counts the reports about each input.

    >>> from noisette import Duchi
    >>> audit(Duchi(epsilon=1.0), samples=20_000, rng=7).verdict
    'holds'
    >>> audit(lambda x, n, rng: x + rng.laplace(scale=1.0, size=n), inputs=(-1.0, 1.0), claimed=1.0, rng=7).verdict
    'violated'
    """
    samples = _validate.integer(samples, "samples", low=1000)
    if not 0 < _validate.number(confidence, "confidence") < 1:
        raise ValueError(f"Expected confidence={confidence!r} in (0, 1), e.g. 0.999.")
    source = _random.generator(rng)
    sampler, tried, budget, slack = _subject(target, inputs, claimed, delta)
    width = max(table(sampler(x, _PROBE, source)).shape[1] for x in tried)
    block = max(_ENTRIES // width, 1000)
    rows = min(int(_TRAINING * samples), block)
    training = [_draw(sampler, x, rows, width, source) for x in tried]
    pair = max(
        combinations(range(len(tried)), 2),  # an event and its complement tell in either direction
        key=lambda p: _choose(training[p[0]][:_PILOT], training[p[1]][:_PILOT], slack)[0].promise,
    )
    events = _choose(training[pair[0]], training[pair[1]], slack)
    tested = samples - rows
    hits = np.zeros((2, 2), dtype=np.int64)
    for row, index in enumerate(pair):
        for start in range(0, tested, block):
            reports = _draw(sampler, tried[index], min(block, tested - start), width, source)
            hits[:, row] += [np.count_nonzero(event.scorer(reports) >= event.threshold) for event in events]
    bounds = []
    for quantity, (event, (first, second)) in enumerate(zip(events, hits.tolist(), strict=True)):
        weight = best_weight(event.rates, tested, delta=slack, confidence=confidence, quantity=quantity)
        limits = lower_bounds(first, second, tested, delta=slack, confidence=confidence, weight=weight)
        bounds.append(limits[quantity])
    rates = (float(hits[0, 0] / tested), float(hits[0, 1] / tested))
    named = (tried[pair[0]], tried[pair[1]])
    return Audit(bounds[0], budget, slack, confidence, samples, named, rates, bounds[1])


def _subject(
    target: Mechanism | Sampler, inputs: Sequence[Any] | None, claimed: float | None, delta: float | None
) -> tuple[Sampler, list[Any], float, float]:
    """Return the sampler, the inputs to try and what is claimed."""
    if isinstance(target, Mechanism):
        claim = claim_of(target)
        tried = _distinct(target.witnesses()[0] if inputs is None else inputs)
        budget, slack = claim.epsilon if claimed is None else claimed, claim.delta if delta is None else delta
        sampler = _sampler(target, tried)
    else:
        if not callable(target):
            raise TypeError(f"Expected a mechanism or a function f(x, n, rng), got {type(target).__name__}.")
        if inputs is None or claimed is None:
            raise ValueError("Expected inputs=(x, other, ...) and claimed=epsilon to audit a function.")
        sampler, tried, budget, slack = target, _distinct(inputs), claimed, 0.0 if delta is None else delta
    return sampler, tried, _validate.epsilon(budget, "claimed"), _validate.delta(slack)


def claim_of(mechanism: Mechanism) -> Guarantee | Claim:
    """Return what is claimed of a mechanism: what was published, if for the same unit, else what it states."""
    stated = mechanism.guarantee
    return stated if stated.claim is None or stated.claim.unit != stated.unit else stated.claim


def _sampler(mechanism: Mechanism, tried: list[Any]) -> Sampler:
    """Return the function that draws reports, or what they say about the categories to be distinguished."""

    def sampler(x: Any, size: int, rng: np.random.Generator) -> Any:
        reports = mechanism.privatize(np.broadcast_to(x, (size, *np.shape(x))).copy(), rng=rng)
        return mechanism.readable(reports, np.asarray(tried)) if isinstance(mechanism, BaseMechanism) else reports

    return sampler


def _distinct(inputs: Iterable[Any]) -> list[Any]:
    """Refuse fewer than two different inputs."""
    kept: list[Any] = []
    for x in inputs:
        if not any(np.array_equal(x, other) for other in kept):
            kept.append(x)
    if len(kept) < 2:
        raise ValueError(f"Expected at least two different inputs to tell apart, got {inputs!r}.")
    return kept


def _draw(sampler: Sampler, x: Any, size: int, width: int, rng: np.random.Generator) -> FloatArray:
    """Return ``size`` reports about x as a matrix of ``width`` columns; what a shorter report lacks is missing."""
    rows = table(sampler(x, size, rng))
    if len(rows) != size:
        raise ValueError(f"Expected {size} reports about {x!r}, got {len(rows)}. f(x, n, rng) must return n of them.")
    missing = width - rows.shape[1]
    return np.pad(rows, ((0, 0), (0, missing)), constant_values=np.nan) if missing > 0 else rows[:, :width]


def _choose(first: FloatArray, second: FloatArray, delta: float) -> tuple[_Event, _Event]:
    """Learn scores from half of the rows; choose on the other half the events that promise most, for epsilon and mu."""
    cut = len(first) // 2
    size = len(first) - cut
    best: dict[tuple[int, float], _Event] = {}
    for scorer in scorers(first[:cut], second[:cut]):
        scores = [scorer(rows[cut:]) for rows in (first, second)]
        levels = np.quantile(np.concatenate(scores), np.linspace(0, 1, _LEVELS), method="inverted_cdf")
        hits, others = (score.size - np.searchsorted(np.sort(score), levels) for score in scores)
        for quantity, caution in enumerate(_CAUTION):
            for deviations in caution:
                bound = promised_bounds(hits, others, size, delta=delta, deviations=deviations)[quantity]
                top = int(np.argmax(bound))
                rates = (float(hits[top] / size), float(others[top] / size))
                event = _Event(scorer, float(levels[top]), float(bound[top]), rates)
                known = best.setdefault((quantity, deviations), event)
                if event.promise > known.promise:
                    best[quantity, deviations] = event
    epsilon, mu = (_surest([best[quantity, deviations] for deviations in _CAUTION[quantity]]) for quantity in (0, 1))
    return epsilon, mu


def _surest(events: list[_Event]) -> _Event:
    """Return the event that was chosen with the most caution and still promises something."""
    return next((event for event in events if event.promise > 0), events[-1])
