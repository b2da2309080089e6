"""Which mechanism to collect with: the predicted error of each, the best, and where one overtakes another."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import combinations
from typing import Any

from noisette import _validate
from noisette.core import Mechanism
from noisette.domains import Attributes, Box, Domain, Interval, Selection
from noisette.mechanisms import from_spec
from noisette.mechanisms._base import BaseMechanism
from noisette.mechanisms.vector.attributes import SampledAttributes
from noisette.mechanisms.vector.sampled import Sampled
from noisette.prediction.combining import combination
from noisette.prediction.curves import Known, crossing, curve
from noisette.prediction.model import populations
from noisette.prediction.model.populations import Population
from noisette.prediction.model.records import Group, groups, record_curve
from noisette.prediction.model.responses import entry_domain, scalar_domain
from noisette.prediction.offers import Offer, Setting, best_report, report_rules
from noisette.prediction.targets import (
    DOUBTFUL,
    check_targets,
    power,
    signal_of,
    users_for_error,
    users_for_power,
    verdict,
)

_MOST_DIMS = 10_000_000  # of a plan: its arrays would fill the memory beyond
_NEARLY_BEST = 1.07  # times the least error, up to which a mechanism with short reports is taken
Knowledge = Population | list[Group] | None  # of one dimension or many alike, or of each attribute of a record


@dataclass(frozen=True)
class Candidate:
    """A mechanism and its predicted error, averaged over the dimensions or categories.

    ``report`` is how many dimensions each user reports, None for a mechanism that reports the whole vector at once;
    ``reports`` the expected number of reports about each dimension; ``range``, where no distribution was given, the
    least and the largest mean squared error over all of them, and then ``mse`` is the largest; ``unbiased`` says
    whether the average is unbiased whatever the true values are; ``bulky`` whether its reports are long or slow to
    decode. ``verdict`` judges the error against the signal, see
    `noisette.prediction.verdict`; ``needed`` holds the populations that the plan's targets take, None where no number
    of users reaches; ``power`` is the chance that these users see the effect, None for a biased average.
    """

    mechanism: str
    report: int | None
    mse: float
    bias: float
    std: float
    reports: float
    range: tuple[float, float] | None
    unbiased: bool
    spec: dict[str, Any]
    bulky: bool = False
    verdict: str = ""
    needed: dict[str, int | None] = field(default_factory=dict)
    power: float | None = None

    def build(self) -> Any:
        """Return the mechanism, ready to privatise."""
        return from_spec(self.spec)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON description."""
        return {own.name: getattr(self, own.name) for own in fields(self)}


@dataclass(frozen=True)
class BreakEven:
    """Mechanism ``a`` has the smaller error below ``population`` users, ``b`` above."""

    a: str
    b: str
    population: float


@dataclass(frozen=True)
class Plan:
    """Candidates in order of their predicted error, and the populations at which one overtakes another.

    ``rules`` are the usual ways to choose the number of dimensions to report; each candidate has the best of its own.
    """

    users: int
    dims: int
    epsilon: float
    delta: float
    candidates: tuple[Candidate, ...]
    break_even: tuple[BreakEven, ...]
    rules: dict[str, int]
    signal: float
    targets: dict[str, float] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """Whether the best candidate is more precise than a guess, see `noisette.prediction.verdict`.

        A biased average that is doubtful is little else than the guess: then the best unbiased one decides.
        """
        fallback = self.best_unbiased
        if self.best.verdict == DOUBTFUL and not self.best.unbiased and fallback is not None:
            return fallback.verdict
        return self.best.verdict

    @property
    def best(self) -> Candidate:
        """The candidate of least mean squared error."""
        return self.candidates[0]

    @property
    def best_unbiased(self) -> Candidate | None:
        """The best candidate whose plain average is unbiased, whatever the true values are."""
        return next((c for c in self.candidates if c.unbiased), None)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON description."""
        unbiased = self.best_unbiased
        return {
            "users": self.users,
            "dims": self.dims,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "candidates": [candidate.to_dict() for candidate in self.candidates],
            "best": self.best.mechanism,
            "best_unbiased": None if unbiased is None else unbiased.mechanism,
            "break_even": [vars(point).copy() for point in self.break_even],
            "rules": self.rules,
            "signal": self.signal,
            "verdict": self.verdict,
            "targets": self.targets,
            "left_out": self.left_out,
        }


def handy(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return the unbiased candidates in their order, without bulky ones where another is at most 7 % above the best."""
    found = [one for one in candidates if one.unbiased]
    light = [one for one in found if not one.bulky]
    return light if light and light[0].mse <= _NEARLY_BEST * found[0].mse else found


def plan(
    *,
    users: int,
    epsilon: float,
    delta: float = 0.0,
    dims: int = 1,
    domain: Domain | None = None,
    report: int | None = None,
    mechanisms: Sequence[str] | None = None,
    values: Any = None,
    probs: Any = None,
    distribution: str | None = None,
    target_mse: float | None = None,
    target_power: float | None = None,
    effect: float | None = None,
    significance: float = 0.05,
) -> Plan:
    """Predict the error of every applicable mechanism of the catalogue for a collection, best first.

    One dimension goes through a scalar mechanism. Of several, each user reports ``report`` with the budget split, by
    `Sampled`; None takes for each mechanism the number with the least predicted error. Mechanisms on whole vectors
    stand beside them. A domain of vectors or tensors, such as `L2Ball`, is planned for as it is, without ``dims``; the
    true values are then those of its entries. A `Categorical` domain compares the mechanisms for frequencies; of
    several dimensions it stands for as many attributes, and an `Attributes` domain for unlike ones, by
    `SampledAttributes`: there the best mechanism for each attribute is a candidate of its own. Mechanisms without a
    pure guarantee take part when ``delta`` > 0, ones that would take seconds at this budget when they are named.

    ``target_mse`` and ``target_power`` (with ``effect`` and ``significance``, see `noisette.prediction.power`) ask each
    candidate how many users it needs, at the number of dimensions to report that is best for ``users``.

    The true values are given as for `deviation`, on ``domain`` ([-1, 1] by default), the same in every dimension; or
    as a table of users by dimensions; or not at all: then mechanisms are compared by their worst case.

    *Utility*: of plain averages of reports, see `deviation`.

    >>> small = plan(users=10_000, dims=100, epsilon=1.0)
    >>> small.best.report, small.rules
    (1, {'minimax': 1, 'wang-2019': 1})
    """
    users = _validate.integer(users, "users", low=1)
    dims = _validate.integer(dims, "dims", low=1, high=_MOST_DIMS)
    epsilon, delta = _validate.epsilon(epsilon), _validate.delta(delta)
    check_targets(target_mse, target_power, effect, significance)
    given = Interval() if domain is None else domain
    if isinstance(given, Attributes):
        dims = given.dims
    vector = None
    if given.shape and not isinstance(given, Attributes | Selection):
        if dims not in (1, whole := math.prod(given.shape)):
            raise ValueError(f"Expected dims={dims} to be that of the domain, {whole}. Leave dims out.")
        dims, vector = whole, None if isinstance(given, Box) else given
        given = entry_domain(given)
    if report is not None:
        report = _validate.integer(report, "report", low=1, high=dims)
    setting = Setting(users, dims, epsilon, delta, report, given, vector)
    record = setting.record
    known: Knowledge
    if record is None:
        known = populations.known(values, probs, distribution, setting.domain, dims=dims)
    else:
        known = groups(record, values, probs, distribution)
    offers = _offers(setting, mechanisms)
    entries, left_out = [], {}
    for offer in offers:
        try:
            entries.append(_entry(offer, setting, known))
        except (ArithmeticError, MemoryError, ValueError) as error:
            if mechanisms is not None:  # a mechanism that was named is listed with the reason
                raise
            left_out[offer.name] = str(error)
    if record is not None and _combines(mechanisms):
        entries.append(_combined(setting, record, known, [offer.name for offer in offers] if mechanisms else None))
    signal = signal_of(record or setting.domain, known)
    goals = {"mse": target_mse, "power": target_power, "effect": effect}
    targets = {name: float(goal) for name, goal in goals.items() if goal is not None}
    if "effect" in targets:
        targets["significance"] = float(significance)
    judged = [(_judged(candidate, errors, signal, targets), errors) for candidate, errors in entries]
    return Plan(
        users,
        dims,
        epsilon,
        delta,
        tuple(candidate for candidate, _ in sorted(judged, key=lambda entry: entry[0].mse)),
        tuple(_break_evens(judged)),
        report_rules(epsilon, dims),
        signal,
        targets,
        left_out,
    )


def _combines(mechanisms: Sequence[str] | None) -> bool:
    """Tell whether the best mechanism of each attribute is asked for."""
    return mechanisms is None or SampledAttributes.name in mechanisms


def _offers(setting: Setting, mechanisms: Sequence[str] | None) -> list[Offer]:
    """Return the mechanisms to compare; one for each attribute is no offer of the catalogue."""
    if setting.record is None:
        return setting.offers(mechanisms)
    if mechanisms is not None:
        others = [name for name in mechanisms if name != SampledAttributes.name]
        return setting.offers(others) if others or not mechanisms else []
    mixed = len({attribute.kind for attribute in setting.record.parts}) > 1
    return [] if mixed else setting.offers(None)


def _combined(setting: Setting, record: Attributes, known: Any, names: list[str] | None) -> tuple[Candidate, Any]:
    """Return the best mechanism for each attribute, as one candidate."""
    made = combination(record, setting.users, setting.epsilon, setting.delta, setting.report, names or None, known)
    errors = record_curve(made.mechanism, known)
    return candidate_of(SampledAttributes.name, made.mechanism, errors, setting.users), errors


def _judged(candidate: Candidate, errors: Any, signal: float, targets: dict[str, float]) -> Candidate:
    """Add the verdict, and what the targets take."""
    needed: dict[str, int | None] = {}
    chance = None
    if "mse" in targets:
        needed["mse"] = users_for_error(errors, targets["mse"])
    if "effect" in targets:
        level = targets["significance"]
        chance = power(candidate.std, targets["effect"], level) if candidate.unbiased else None
        if "power" in targets:
            needed["power"] = users_for_power(errors, targets["power"], targets["effect"], level)
    return replace(candidate, verdict=verdict(candidate.mse, signal), needed=needed, power=chance)


def compare(
    mechanisms: Iterable[Mechanism],
    *,
    users: int,
    values: Any = None,
    probs: Any = None,
    distribution: str | None = None,
) -> tuple[Candidate, ...]:
    """Return mechanisms of your own making in order of their predicted error, best first.

    >>> from noisette import Duchi, Laplace
    >>> " before ".join(c.mechanism for c in compare([Laplace(epsilon=1.0), Duchi(epsilon=1.0)], users=1000))
    'duchi before laplace'
    """
    users = _validate.integer(users, "users", low=1)
    candidates = []
    for mechanism in mechanisms:
        known: Knowledge
        if isinstance(mechanism, SampledAttributes):
            domain: Any = mechanism.domain
            known = groups(domain, values, probs, distribution)
        else:
            domain, dims = scalar_domain(mechanism), math.prod(mechanism.domain.shape)
            known = populations.known(values, probs, distribution, domain, dims=dims)
        errors = errors_of(mechanism, known)
        one = candidate_of(mechanism.name, mechanism, errors, users)
        candidates.append(_judged(one, errors, signal_of(domain, known), {}))
    return tuple(sorted(candidates, key=lambda candidate: candidate.mse))


def errors_of(mechanism: Any, known: Knowledge) -> Any:
    """Return the error of a mechanism against the number of users."""
    return record_curve(mechanism, known) if isinstance(known, list) else curve(mechanism, known)


def _entry(offer: Offer, setting: Setting, known: Knowledge) -> tuple[Candidate, Any]:
    """Build an offer with its best number of dimensions to report, and predict its error."""
    report = setting.report if offer.samples else None
    if offer.samples and report is None:
        if offer.fixed:
            report = setting.usual_report
        else:
            report = best_report(lambda m: errors_of(offer.build(m), known).at(setting.users), setting.dims)
    mechanism = offer.build(report or 1)
    errors = errors_of(mechanism, known)
    return candidate_of(offer.name, mechanism, errors, setting.users), errors


def candidate_of(name: str, mechanism: Any, errors: Any, users: int) -> Candidate:
    """Describe a mechanism by its predicted error."""
    bulky = isinstance(mechanism, BaseMechanism) and mechanism.bulky
    report, share = 1 if mechanism.domain.shape == () else None, 1.0
    if isinstance(mechanism, Sampled | SampledAttributes):
        report = mechanism.report
        share = (report or 0) / mechanism.dims
    if isinstance(errors, Known):
        mse, bias, std, span = errors.at(users), errors.bias, math.sqrt(errors.noise / users), None
    else:
        bias, std, least = errors.describe(users)
        mse = bias**2 + std**2
        span = least, mse
    return Candidate(name, report, mse, bias, std, users * share, span, errors.unbiased, mechanism.spec(), bulky)


def _break_evens(entries: list[tuple[Candidate, Any]]) -> Iterator[BreakEven]:
    """Return the pairs that cross, named so that ``a`` wins below and ``b`` above."""
    for (first, one), (second, other) in combinations(entries, 2):
        population = crossing(one, other)
        if population is not None:
            below = one.at(population / 2) < other.at(population / 2)
            a, b = (first, second) if below else (second, first)
            yield BreakEven(a.mechanism, b.mechanism, population)
