"""What one run gives away: each canary took part by the toss of a coin, and somebody guesses which did.

Right guesses within one run depend on each other, so no binomial law holds for them as it stands. Two bounds hold
whatever the dependence. Steinke, Nasr, Jagielski (2023) compare them with randomised response, which is exact where
delta is 0. Mahloujifar, Melis, Chaudhuri (2025) start from the whole curve of errors that a guarantee allows, which is
better where that curve is Gaussian, or delta is not 0. Both bound the same chance, so the smaller one counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import binom

from noisette import _validate
from noisette._search import narrowed
from noisette.guarantees import gaussian_epsilon

_SHARES = (0.05, 0.2, 0.5, 1.0)  # of the canaries, that are guessed
_ROUNDING = 1e-9  # that sums of up to a million terms may be off by, relatively
_LARGEST_BUDGET = 64.0  # epsilon or mu that is looked for


@dataclass(frozen=True)
class OneRun:
    """Lower bounds from one run: on epsilon at ``delta``, and on mu if what the run adds is Gaussian noise.

    ``correct`` of ``guesses`` guesses were right, those whose bound on epsilon is the largest.
    """

    epsilon: float
    mu: float
    delta: float
    confidence: float
    canaries: int
    guesses: int
    correct: int

    @property
    def gaussian_epsilon(self) -> float:
        """The epsilon that Gaussian noise with this mu has at ``delta``; infinite where delta is 0 and mu is not."""
        if self.mu == 0:
            return 0.0
        return gaussian_epsilon(self.mu, self.delta) if self.delta > 0 else math.inf

    def words(self, claimed: float | None = None) -> str:
        """Say what was measured, what follows, and what does not."""
        at = f" at delta {self.delta:g}" if self.delta else ""
        said = [
            f"{self.canaries:,} canaries, each of which took part in one run by the toss of a coin. Of the "
            f"{self.guesses:,} guesses that were surest, {self.correct:,} were right; {self.guesses / 2:,.0f} would be "
            "by tossing a coin.",
            f"So the run has an epsilon of at least {self.epsilon:.2f}{at}, with confidence {self.confidence:.4g}, "
            "whatever it does and however the guesses depend on each other."
            if self.epsilon > 0
            else f"That is no more than chance explains at confidence {self.confidence:.4g}: no bound follows.",
        ]
        if self.delta and self.mu > 0:
            said.append(
                f"If what it adds is Gaussian noise, mu is at least {self.mu:.2f}, which is epsilon "
                f"{self.gaussian_epsilon:.2f}{at}."
            )
        return " ".join([*said, against(self.epsilon, claimed)])


def against(bound: float, claimed: float | None, condition: str = "") -> str:
    """Say how a lower bound, which holds on a condition, stands to what is claimed."""
    if claimed is not None and bound > claimed:
        return f"Claimed is epsilon {claimed:g}: {condition}THE CLAIM IS FALSE."
    said = "" if claimed is None else f"Claimed is epsilon {claimed:g}, and nothing here contradicts it. "
    return f"{said}An attack that finds little proves little: a better one may find more."


def one_run_epsilon(
    correct: int, guesses: int, canaries: int, *, delta: float = 0.0, confidence: float = 0.95
) -> float:
    """Return a lower bound on epsilon from one training run in which each canary took part by the flip of a coin.

    ``correct`` of ``guesses`` were right, about ``canaries`` in all (the others were passed over). For an (epsilon,
    delta)-private run the chance of this many is at most beta + 2 m delta max_i (P[B >= v - i] - beta) / i, with B
    binomial(r, E / (1 + E)) and beta = P[B >= v] (Steinke, Nasr, Jagielski 2023, Theorem 5.2), and at most what
    `refuted_by_curve` allows.

    >>> round(one_run_epsilon(95, 100, 1000), 2)
    2.17
    """
    counts = _counts(correct, guesses, canaries)
    risk = _risk(confidence)

    def refuted(epsilon: float) -> bool:
        if _chance(*counts, epsilon, delta) <= risk:
            return True
        return delta > 0 and refuted_by_curve(*counts, risk, lambda power: _least_error(power, epsilon, delta))

    return _largest(refuted, 1e-9)


def one_run_mu(correct: int, guesses: int, canaries: int, *, confidence: float = 0.95) -> float:
    """Return a lower bound on mu from one run: no mu-Gaussian private run with a smaller one is as easily guessed.

    *Guarantee*: if the errors of every test of one canary are at least those of N(0, 1) against N(mu, 1), the bound is
    above mu with probability at most 1 - confidence (Mahloujifar, Melis, Chaudhuri 2025).

    >>> round(one_run_mu(95, 100, 1000), 2)
    0.79
    """
    counts, risk = _counts(correct, guesses, canaries), _risk(confidence)

    def refuted(mu: float) -> bool:
        return refuted_by_curve(*counts, risk, lambda power: float(ndtr(ndtri(power) - mu)))

    return _largest(refuted, 1e-4)


def refuted_by_curve(
    correct: int, guesses: int, canaries: int, risk: float, least_error: Callable[[float], float]
) -> bool:
    """Tell whether ``correct`` right guesses or more have a chance below ``risk``, by the errors that a run allows.

    ``least_error(x)`` is the least chance of an event without a canary whose chance with it is x: convex, increasing.

    Let p_t be the chance of t right guesses of c, r_i = sum over t >= i of p_t t / m, and h_i = sum over t >= i of
    p_t (c - t) / m: for a canary drawn at random, the chances that its guess is right, or wrong, and t >= i. "This
    guess, and at least i right ones among the others" is an event that one canary's coin changes from right to wrong.
    So h_i >= least_error(r_(i + 1)), by convexity for the mean over canaries too. Moving chance from t to t - 1 keeps
    all of these true. So the least total chance of any law with P[T >= v] = risk has all of it at v, and below it the
    least p_t that the inequalities allow; if that total is above 1, there is no such law.

    Mahloujifar, Melis, Chaudhuri (2025); the argument is our own.
    """
    if correct == 0:
        return False
    right, wrong = risk * correct / canaries, risk * (guesses - correct) / canaries
    all_guesses = guesses / canaries * (1 + _ROUNDING)
    for count in range(correct - 1, -1, -1):
        more = max(least_error(right) - wrong, 0.0)
        wrong += more
        right += more * count / (guesses - count)
        if right + wrong > all_guesses:
            return True
    return False


def one_run_bounds(
    scores: Any, inside: Any, *, delta: float = 0.0, confidence: float = 0.95, guesses: int | None = None
) -> OneRun:
    """Return lower bounds on epsilon and mu of one run, from each canary's score and whether it took part.

    The highest and the lowest scores are guessed, ``guesses`` in all. By default several numbers are tried, and each
    gets an equal share of the risk.

    >>> rng = np.random.default_rng(1)
    >>> inside = rng.random(1000) < 0.5
    >>> found = one_run_bounds(inside + rng.normal(0, 0.5, 1000), inside, delta=1e-5)  # mu = 2
    >>> 1 < found.mu < 2
    True
    """
    tried = _tried(scores, inside, guesses)
    share = 1 - _risk(confidence) / len(tried)
    bounds = [one_run_epsilon(*counts, delta=delta, confidence=share) for counts in tried]
    best = int(np.argmax(bounds))
    correct, guessed, canaries = tried[best]
    mu = max(one_run_mu(*counts, confidence=share) for counts in tried)
    return OneRun(bounds[best], mu, delta, confidence, canaries, guessed, correct)


def one_run(
    scores: Any, inside: Any, *, delta: float = 0.0, confidence: float = 0.95, guesses: int | None = None
) -> float:
    """Return the lower bound on epsilon of `one_run_bounds`."""
    tried = _tried(scores, inside, guesses)
    share = 1 - _risk(confidence) / len(tried)
    return max(one_run_epsilon(*counts, delta=delta, confidence=share) for counts in tried)


def _tried(scores: Any, inside: Any, guesses: int | None) -> list[tuple[int, int, int]]:
    """Return how many guesses are right, of how many, about how many canaries, for each number that is tried."""
    values, truth = _validate.reals(scores, "scores"), np.asarray(inside, dtype=bool)
    if values.ndim != 1 or not np.isfinite(values).all():
        raise ValueError(f"Expected scores as one row of finite numbers, got shape {values.shape}.")
    if truth.shape != values.shape or len(values) < 2:
        raise ValueError(f"Expected one flag for each score, and two or more, got {values.shape} and {truth.shape}.")
    size = len(values)
    # equal scores in an order of their own: that of a table may tell who took part
    order = np.lexsort((np.random.default_rng(size).permutation(size), values))
    default = {min(max(round(size * share / 2), 1), size // 2) for share in _SHARES}
    each = sorted(default) if guesses is None else [_validate.integer(guesses, "guesses", low=0, high=size) // 2]
    rights = [int(truth[order[size - one :]].sum() + (~truth[order[:one]]).sum()) for one in each]
    return [(right, 2 * one, size) for right, one in zip(rights, each, strict=True)]


def _counts(correct: int, guesses: int, canaries: int) -> tuple[int, int, int]:
    guesses = _validate.integer(guesses, "guesses", low=0, high=canaries)
    return _validate.integer(correct, "correct", low=0, high=guesses), guesses, canaries


def _risk(confidence: float) -> float:
    confidence = _validate.number(confidence, "confidence")
    if not 0 < confidence < 1:
        raise ValueError(f"Expected confidence={confidence!r} between 0 and 1.")
    return 1 - confidence


def _largest(refuted: Callable[[float], bool], precision: float) -> float:
    """Return the largest number that is refuted, rounded down; 0 if none is."""
    if not refuted(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while refuted(high) and high < _LARGEST_BUDGET:
        low, high = high, 2 * high
    return narrowed(refuted, low, high, tolerance=precision)[0]


def _chance(correct: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    """Return the bound on the chance of this many right guesses by randomised response."""
    right = 1 / (1 + math.exp(-epsilon))
    base = float(binom.sf(correct - 1, guesses, right))
    if delta == 0 or correct == 0:
        return base
    steps = np.arange(1, correct + 1)
    gains = (binom.sf(correct - steps - 1, guesses, right) - base) / steps
    return min(base + 2 * canaries * delta * float(gains.max()), 1.0)


def _least_error(power: float, epsilon: float, delta: float) -> float:
    """Return the least chance without a canary of what has chance ``power`` with it, under (epsilon, delta)."""
    factor = math.exp(-epsilon)
    return max((power - delta) * factor, 1 - delta - (1 - power) / factor, 0.0)
