"""The privacy curve of one release: delta as a function of epsilon, and the pair of laws that has it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np

from noisette import _validate
from noisette._search import narrowed
from noisette._validate import FloatArray
from noisette.accounting._runs import PairLosses, pair_losses
from noisette.core import EventDeclared, Mechanism, PrivacyEvent, RepeatedEvent
from noisette.guarantees import Guarantee

DOTS = 1000  # of a curve that is not known in closed form
_LARGEST_EPSILON = 30.0  # above this epsilon only the worst case is looked at
_ROUNDED_UP = 1 + 1e-9  # covers the rounding of sums
_LOST = 1e-13  # that sums of masses may lose, which is more than that of the deltas of a tiny budget
_FLOATS = 700.0  # losses up to which exp of one is a float
_SMALLEST_DELTA = 1e-18  # where a curve that never ends is cut off


@runtime_checkable
class Released(Protocol):
    """Whatever states its guarantee."""

    @property
    def guarantee(self) -> Guarantee: ...


@dataclass(frozen=True, eq=False)
class Curve:
    """An upper bound on delta(epsilon) of one release, by dots at epsilon = 0, interval, 2 interval, ...

    Between dots it is linear in exp(epsilon), which is an upper bound too: delta is convex in exp(epsilon). Behind the
    last one it is constant. Inputs are exchangeable, so delta(-e) = 1 - exp(-e)(1 - delta(e)).
    Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022, Algorithm 1 ("connect the dots").

    >>> float(Curve.randomized_response(1.0).delta(0.0).round(6))
    0.462117
    """

    interval: float
    deltas: FloatArray

    @classmethod
    def randomized_response(cls, epsilon: float, delta: float = 0.0) -> Curve:
        """Return the worst that (epsilon, delta) allows: Kairouz, Oh, Viswanath 2015, proof of Theorem 3.3."""
        if epsilon == 0:
            return cls(1.0, np.asarray([delta, delta]))
        return cls(epsilon, np.asarray([delta + (1 - delta) * math.tanh(epsilon / 2), delta]))

    @classmethod
    def three_point(cls, epsilon: float, total_variation: float) -> Curve:
        """Return the worst that a pure epsilon and a total variation distance allow: losses epsilon, 0 and -epsilon."""
        return cls(epsilon, np.asarray([min(total_variation, math.tanh(epsilon / 2)), 0.0]))

    @classmethod
    def through(cls, interval: float, deltas: FloatArray) -> Curve:
        """Return the largest convex curve at or below the dots, each of which bounds delta from above."""
        x = interval * np.arange(float(deltas.size))
        hull: list[int] = []
        for i in range(deltas.size):
            while len(hull) > 1 and _above(x, deltas, hull[-2], hull[-1], i):
                hull.pop()
            hull.append(i)
        corners = np.asarray(hull)
        return cls(interval, _interpolate(x, x[corners], deltas[corners]))

    @property
    def epsilons(self) -> FloatArray:
        """Where the dots are."""
        return self.interval * np.arange(float(self.deltas.size))

    def delta(self, epsilon: Any) -> FloatArray:
        """Return delta at any epsilon >= 0."""
        return _interpolate(np.asarray(epsilon, dtype=float), self.epsilons, self.deltas)

    def spaced(self, interval: float) -> Curve:
        """Return a curve above this one with dots at multiples of another interval."""
        if interval == self.interval:
            return self
        count = math.ceil(self.epsilons[-1] / interval * (1 - 1e-12))
        return Curve(interval, self.delta(interval * np.arange(count + 1)))

    @cached_property
    def losses(self) -> tuple[FloatArray, FloatArray, float]:
        """Losses, rising, their probabilities, and the probability of an infinite loss."""
        shrunk = math.exp(-self.interval)
        steps = np.diff(self.deltas)
        above = np.maximum((np.append(steps[1:] * shrunk, 0.0) - steps) / -math.expm1(-self.interval), 0.0)
        below = above * np.exp(-self.epsilons[1:])
        infinite = float(self.deltas[-1])
        same = max(0.0, 1 - infinite - float(above.sum()) - float(below.sum()))
        values = np.concatenate([-self.epsilons[:0:-1], self.epsilons])
        return values, np.concatenate([below[::-1], [same], above]), infinite

    def distribution(self) -> Any:
        """Return dp-accounting's privacy loss distribution of the pair of laws that has this curve."""
        from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

        _, masses, infinite = self.losses
        count = self.deltas.size - 1
        held = {int(i) - count: float(masses[i]) for i in np.flatnonzero(masses > 0)}
        return PrivacyLossDistribution.create_from_rounded_probability(held, infinite, self.interval)


def privacy_curve(released: Mechanism | Guarantee | Curve, *, dots: int = DOTS) -> Curve:
    """Return the tightest curve that is known to bound what one release gives away.

    Reports of an inner mechanism are composed; a mechanism with `dissect` has its likelihoods summed over all reports,
    for the worst pairs of inputs; of any other the guarantee alone counts, and randomised response is the worst that it
    allows.

    *Guarantee*: an upper bound at every epsilon; what sums lose in float64, at most 1e-9 of the total variation
    distance or 1e-13, is added.

    >>> from noisette import Categorical, GeneralizedRandomizedResponse
    >>> m = GeneralizedRandomizedResponse(epsilon=1.0, domain=Categorical(100))
    >>> float(privacy_curve(m).delta(0.0).round(5)), float(privacy_curve(m.guarantee).delta(0.0).round(5))
    (0.01689, 0.46212)
    """
    if isinstance(released, Curve):
        return released
    if isinstance(released, Guarantee):
        return Curve.randomized_response(released.epsilon, released.delta)
    if not isinstance(released, Released):
        raise TypeError(f"Expected a mechanism or a Guarantee, got {type(released).__name__}.")
    dots = _validate.integer(dots, "dots", low=2)
    stated = released.guarantee
    worst = Curve.randomized_response(stated.epsilon, stated.delta)
    if stated.epsilon > _LARGEST_EPSILON:
        return worst
    happened = declared(released)
    if isinstance(happened, RepeatedEvent):
        return _repeated(happened, worst, dots)
    found = pair_losses(released)
    return worst if found is None else _integrated(found, stated, worst, dots)


def stated_by(released: Any) -> Guarantee:
    """Return the guarantee of a release. A curve has none: it says nothing of its unit, model and relation."""
    stated = released.guarantee if isinstance(released, Released) else released
    if not isinstance(stated, Guarantee):
        raise TypeError(f"Expected mechanisms or Guarantees to compose, got {type(released).__name__}.")
    return stated


def declared(released: Any) -> PrivacyEvent | None:
    """Return the event that a mechanism declares by inheriting from `noisette.core.EventDeclared`, None if it does not.

    Nothing is read off attributes: a reuse count, a mean or a learning rate may be called ``mu`` too.
    """
    return released.privacy_event() if isinstance(released, EventDeclared) else None


def _repeated(split: RepeatedEvent, worst: Curve, dots: int) -> Curve:
    """Return the curve of several reports of the inner mechanism."""
    inner = privacy_curve(split.mechanism, dots=max(2, dots // split.times))
    if split.times == 1:
        return inner
    _, masses, infinite = inner.losses
    deltas = _deltas(_power(masses, split.times), inner.interval) * _ROUNDED_UP
    deltas += -math.expm1(split.times * math.log1p(-infinite)) if infinite < 1 else 1.0
    grid = inner.interval * np.arange(float(deltas.size))
    if worst.deltas[-1] == 0:
        deltas[-1] = 0.0
    return Curve.through(inner.interval, np.minimum(deltas, worst.delta(grid)))


def _power(masses: FloatArray, times: int) -> FloatArray:
    """Return the law of a sum of equal losses, without a transform: sums of positive products keep small masses."""
    if times == 1:
        return masses
    half = _power(masses, times // 2)
    whole = np.convolve(half, half)
    return np.convolve(whole, masses) if times % 2 else whole


def _deltas(masses: FloatArray, interval: float) -> FloatArray:
    """Return delta at 0, interval, 2 interval, ... of losses that are as often below 0 as above."""
    middle = masses.size // 2
    above = np.cumsum(masses[:middle:-1])[::-1]
    deltas, shrunk, rest = np.zeros(middle + 1), math.exp(-interval), -math.expm1(-interval)
    for place in range(middle - 1, -1, -1):
        deltas[place] = shrunk * deltas[place + 1] + rest * above[place]
    return deltas


def _integrated(found: list[PairLosses], stated: Guarantee, worst: Curve, dots: int) -> Curve:
    """Return the largest delta over pairs of inputs, both ways, at each dot."""
    near = [losses.below(_FLOATS) for pair in found for losses in (pair, pair.swapped())]
    if any(missing > _SMALLEST_DELTA / 2 for _, missing in near):  # else what is added to delta covers it
        return worst
    atoms = [losses.atoms() for losses, _ in near]
    if stated.delta == 0:
        largest = max(float(losses.max()) for losses, _ in atoms)
        if largest > stated.epsilon * (1 + 1e-6) + 1e-12:
            raise ValueError(
                f"Its own likelihoods give away epsilon={largest!r}, above the {stated.epsilon!r} that the guarantee "
                "states. Audit the mechanism before you account for it."
            )
        if all(_is_three_valued(losses, stated.epsilon) for losses, _ in atoms):
            variation = max(_delta(a, np.zeros(1))[0] for a in atoms)
            return Curve.three_point(stated.epsilon, _raised(variation, variation))
        interval = stated.epsilon / dots
    else:
        interval = _reach(atoms) / dots
    grid = interval * np.arange(dots + 1.0)
    deltas = np.max([_delta(a, grid) for a in atoms], axis=0)
    deltas[:-1] = _raised(deltas[:-1], float(deltas[0]))
    if stated.delta == 0:
        deltas = np.minimum(deltas, worst.delta(grid))
        deltas[-1] = 0.0
    else:
        deltas[-1] *= _ROUNDED_UP
        deltas += _SMALLEST_DELTA
    return Curve.through(interval, deltas)


def _raised(deltas: Any, variation: float) -> Any:
    """Return deltas of which the first is ``variation``, raised by what the sums of masses may have lost."""
    return deltas * _ROUNDED_UP + max(_LOST - (_ROUNDED_UP - 1) * variation, 0.0)


def _delta(atoms: tuple[FloatArray, FloatArray], epsilons: FloatArray) -> FloatArray:
    """Return the sum of (R0 - exp(e) R1)_+ at each epsilon, from sums over the losses above it."""
    losses, chances = atoms
    order = np.argsort(losses)[::-1]
    losses, chances = losses[order], chances[order]
    masses = np.cumsum(chances * np.exp(losses)), np.cumsum(chances)
    count = np.searchsorted(-losses, -epsilons, side="left")
    upper, lower = (np.concatenate([[0.0], mass])[count] for mass in masses)
    return np.asarray(np.maximum(upper - np.exp(epsilons) * lower, 0.0))


def _is_three_valued(losses: FloatArray, epsilon: float) -> bool:
    """Tell whether all losses are epsilon, 0 or -epsilon but for rounding."""
    size = np.abs(losses)
    return bool(np.all((size < 1e-6 * epsilon) | (size > epsilon * (1 - 1e-6))))


def _reach(atoms: list[tuple[FloatArray, FloatArray]]) -> float:
    """Return an epsilon at which delta is negligible."""

    def large(epsilon: float) -> bool:
        return any(float(_delta(a, np.asarray([epsilon]))[0]) >= _SMALLEST_DELTA for a in atoms)

    return narrowed(large, 0.0, max(float(losses.max()) for losses, _ in atoms), tolerance=1e-2)[1]


def _interpolate(at: FloatArray, epsilons: FloatArray, deltas: FloatArray) -> FloatArray:
    """Join dots by lines in exp(epsilon), without overflow."""
    right = np.clip(np.searchsorted(epsilons, at, side="left"), 1, epsilons.size - 1)
    left = right - 1
    share = np.expm1(np.minimum(at, epsilons[right]) - epsilons[right]) / np.expm1(epsilons[left] - epsilons[right])
    return np.asarray(deltas[right] + np.clip(share, 0.0, 1.0) * (deltas[left] - deltas[right]))


def _above(x: FloatArray, y: FloatArray, first: int, middle: int, last: int) -> bool:
    """Tell whether the middle dot lies on or above the line, in exp(x), through the other two."""
    share = math.expm1(x[middle] - x[last]) / math.expm1(x[first] - x[last])
    return bool(y[middle] >= y[last] + share * (y[first] - y[last]))
