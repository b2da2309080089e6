"""What a mechanism protects: a budget with its unit, its trust model and its neighbouring relation."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from noisette import _validate
from noisette._random import Rng, is_secret
from noisette._search import narrowed
from noisette._special import erfcx, ndtr
from noisette._validate import FloatArray

Unit = Literal["element", "record", "example"]
Model = Literal["local", "central", "shuffled", "distributed"]
Relation = Literal["any-pair", "replace", "add-remove"]

# Each model with those that it implies: they trust the same parties and more. A shuffler and a secure aggregation are
# not compared: reports that are private when mixed need not be private when added, nor the other way round.
_TRUST: dict[Model, tuple[Model, ...]] = {
    "local": ("local", "shuffled", "distributed", "central"),
    "shuffled": ("shuffled", "central"),
    "distributed": ("distributed", "central"),
    "central": ("central",),
}
_IMPLIED: tuple[tuple[Relation, Relation], ...] = (("any-pair", "replace"), ("add-remove", "replace"))

_ROUNDED = 2.0**-50  # by which a delta near one may err
_SERIES_BELOW = 5e-3  # half a mu below which a difference of Mills' ratios would cancel more than a series truncates


class PrivacyWarning(UserWarning):
    """A privacy claim does not hold for what was built or done."""


@dataclass(frozen=True)
class Claim:
    """What a paper states of a method with the same parameters.

    ``reading`` says how the paper was read where it leaves a choice, and what holds in the reading kindest to it.
    """

    epsilon: float
    delta: float = 0.0
    unit: Unit = "record"
    source: str = ""
    reading: str = ""


@dataclass(frozen=True)
class Guarantee:
    """(epsilon, delta)-differential privacy for a unit, in a model, under a relation.

    ``epsilon`` and ``delta`` are what is proved, ``claim`` is what was published. ``matrix[i][j]``, where present, is
    the graded guarantee: the epsilon, at the same delta, that the reports of an input of level i have against those of
    an input of level j. It need not be symmetric; ``epsilon`` is its largest entry.

    >>> print(Guarantee(1.0))
    1-DP, unit record, model local, relation any-pair
    """

    epsilon: float
    delta: float = 0.0
    unit: Unit = "record"
    model: Model = "local"
    relation: Relation = "any-pair"
    claim: Claim | None = None
    matrix: tuple[tuple[float, ...], ...] | None = None

    def __post_init__(self) -> None:
        if not self.epsilon >= 0:
            raise ValueError(f"Expected epsilon={self.epsilon!r} >= 0.")
        if not 0 <= self.delta <= 1:
            raise ValueError(f"Expected delta={self.delta!r} in [0, 1].")
        for name, allowed in (("unit", Unit), ("model", Model), ("relation", Relation)):
            if getattr(self, name) not in get_args(allowed):
                raise ValueError(f"Expected {name}={getattr(self, name)!r} to be one of {get_args(allowed)}.")

    def __str__(self) -> str:
        budget = f"{self.epsilon:g}-DP" if self.delta == 0 else f"({self.epsilon:g}, {self.delta:g})-DP"
        return f"{budget}, unit {self.unit}, model {self.model}, relation {self.relation}"

    @property
    def claim_holds(self) -> bool:
        """Tell whether what was published is true; where nothing was claimed, it is."""
        if self.claim is None:
            return True
        same_unit = self.claim.unit == self.unit
        return (
            same_unit
            and self.epsilon <= self.claim.epsilon * (1 + 1e-9)
            and self.delta <= self.claim.delta * (1 + 1e-9)
        )

    def repeat(self, times: int) -> Guarantee:
        """Return the guarantee of ``times`` independent answers about one unit, by basic composition."""
        times = _validate.integer(times, "times", low=1)
        matrix = None if self.matrix is None else tuple(tuple(times * e for e in row) for row in self.matrix)
        return replace(
            self, epsilon=times * self.epsilon, delta=min(1.0, times * self.delta), claim=None, matrix=matrix
        )

    def implied(self, *, unit: Unit, model: Model, relation: Relation) -> Guarantee:
        """Return what this guarantee implies under other terms, by a conversion that is proved, or raise ValueError.

        Of the model: what a user sends is private in spite of whoever shuffles, adds up or keeps it, so local implies
        shuffled and distributed, and each of these central, at the same cost. Of the relation: any-pair includes
        replace. Replacing a record is removing one and adding another, so add-remove implies replace at 2 epsilon and
        (1 + exp(epsilon)) delta (group privacy: Dwork, Roth 2014, Theorem 2.2). Nothing else is implied, and units are
        never converted.

        >>> print(Guarantee(1.0).implied(unit="record", model="shuffled", relation="replace"))
        1-DP, unit record, model shuffled, relation replace
        """
        why = ""
        if unit != self.unit:
            why = f"units are not converted, a record of d elements may cost d times as much: count per {self.unit}"
        elif model not in _TRUST[self.model]:
            why = (
                f"the {self.model} model trusts somebody whom the {model} model does not: count in the {self.model} one"
            )
        elif relation != self.relation and (self.relation, relation) not in _IMPLIED:
            why = f"{self.relation} does not imply {relation}: count it where the relation is {self.relation}"
        if why:
            raise ValueError(
                f"This guarantee is {self}, and cannot be counted as unit {unit}, model {model}, relation {relation}: "
                f"{why}."
            )
        if changes(self.relation, relation) == 1:
            return replace(self, model=model, relation=relation)
        grown = math.inf if self.epsilon > 700 else 1 + math.exp(self.epsilon)
        delta = min(1.0, grown * self.delta * (1 + 2.0**-50)) if self.delta > 0 else 0.0
        return Guarantee(2 * self.epsilon, delta, unit=unit, model=model, relation=relation)

    def zcdp(self) -> float:
        """Return rho = epsilon^2 / 2 of the concentrated guarantee that a pure one implies (Bun, Steinke 2016, 1.4)."""
        if self.delta > 0:
            raise ValueError(
                f"Expected a pure guarantee, got delta={self.delta}. Ask the mechanism's own event instead."
            )
        return self.epsilon**2 / 2

    def spec(self) -> dict[str, Any]:
        """Return a JSON description."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "unit": self.unit,
            "model": self.model,
            "relation": self.relation,
            "claim": None if self.claim is None else vars(self.claim).copy(),
            "claim_holds": self.claim_holds,
        } | ({} if self.matrix is None else {"matrix": [list(row) for row in self.matrix]})


def weakest(models: set[Model]) -> Model:
    """Return the model of least trust that all of these imply.

    >>> weakest({"local", "shuffled"}), weakest({"shuffled", "distributed"})
    ('shuffled', 'central')
    """
    return next(one for one in _TRUST if all(one in _TRUST[model] for model in models))


def changes(stated: Relation, wanted: Relation) -> int:
    """Return how many changes under the stated relation make up one under the wanted one, which it implies."""
    return 2 if (stated, wanted) == ("add-remove", "replace") else 1


def warn_unsound(name: str, guarantee: Guarantee) -> None:
    """Warn that ``name`` was built as published although its claim is false."""
    claim = guarantee.claim
    stated = (
        "its published claim" if claim is None else f"its published claim of epsilon={claim.epsilon:g} per {claim.unit}"
    )
    warnings.warn(
        f"{name}: {stated} does not hold; what holds is {guarantee}. Leave as_published out for the sound form.",
        PrivacyWarning,
        stacklevel=4,
    )


def warn_known_noise(rng: Rng) -> None:
    """Warn of a release whose noise somebody can draw again; generators of ``rng=None`` are known to nobody."""
    if rng is not None and not (isinstance(rng, np.random.Generator) and is_secret(rng)):
        warnings.warn(
            "Noise from a known seed or generator protects nobody from those who know it. For a release leave it out: "
            "noise then comes from a cryptographic generator.",
            PrivacyWarning,
            stacklevel=3,
        )


def gaussian_delta(mu: float | FloatArray, epsilon: float) -> Any:
    """Return the exact delta(epsilon) of Gaussian noise: mu = sensitivity / sigma.

    delta = Phi(mu/2 - e/mu) - exp(e) Phi(-mu/2 - e/mu)  (Balle, Wang 2018, Theorem 8)
          = phi(e/mu - mu/2) (M(e/mu - mu/2) - M(e/mu + mu/2)), M Mills' ratio: what cancels in delta divides out.
    """
    half = np.asarray(mu, dtype=float) / 2
    with np.errstate(divide="ignore", over="ignore"):
        centre = np.minimum(np.divide(epsilon, 2 * half), half + 40)  # beyond, delta is below the smallest float
    near, far = centre - half, centre + half
    density = np.exp(-(np.maximum(near, -40.0) ** 2) / 2) / math.sqrt(2 * math.pi)
    series = _mills_gap(np.clip(centre, -6.0, 41.0), np.minimum(half, _SERIES_BELOW))
    gap = np.where(half < _SERIES_BELOW, series, _mills(np.maximum(near, -5.0)) - _mills(far))
    # far below the mean Mills' ratio overflows; exp(e) Phi(-far) must not be computed as such: e may have no digit left
    return np.where(near < -5, ndtr(-near) - density * _mills(far), density * gap)[()]


def _mills(x: FloatArray) -> FloatArray:
    """Return M(x) = (1 - Phi(x)) / phi(x)."""
    return np.asarray(math.sqrt(math.pi / 2) * erfcx(x / math.sqrt(2)))


def _mills_gap(centre: FloatArray, half: FloatArray) -> FloatArray:
    """Return M(centre - half) - M(centre + half) by the series in a small half, from M' = x M - 1."""
    ratio = _mills(centre)
    first = centre * ratio - 1
    second = ratio + centre * first
    third = 2 * first + centre * second
    fifth = 4 * third + centre * (3 * second + centre * third)
    return np.asarray(-2 * half * (first + half**2 / 6 * (third + half**2 / 20 * fifth)))


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest mu = sensitivity / sigma that is (epsilon, delta)-DP, by bisection on `gaussian_delta`."""
    high = math.log(2 * math.sqrt(2 * epsilon) + 100.0)
    allowed = delta if delta < 0.5 else delta - _ROUNDED  # callers leave room for a relative error, not for this one

    def holds(log_mu: float) -> bool:
        return float(gaussian_delta(math.exp(log_mu), epsilon)) <= allowed

    return math.exp(narrowed(holds, -700.0, high, tolerance=1e-15, absolute=1e-15)[0])


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the least epsilon at which mu-GDP has this delta, from above, by bisection."""
    if float(gaussian_delta(mu, 0.0)) <= delta:
        return 0.0
    high = mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta)) + 1e-9
    return narrowed(lambda e: float(gaussian_delta(mu, e)) > delta, 0.0, high, tolerance=1e-12)[1]
