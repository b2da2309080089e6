"""Which mechanism to collect with: the predicted error of each, the best, and where one overtakes another."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from noisette import _validate
from noisette.core import Mechanism
from noisette.domains import Domain, Interval
from noisette.mechanisms import from_spec
from noisette.utility import populations
from noisette.utility.curves import Known, WorstCase, crossing, curve
from noisette.utility.offers import Offer, Setting
from noisette.utility.populations import Population
from noisette.utility.reporting import best_report, report_rules
from noisette.utility.responses import Sampling, scalar_domain


@dataclass(frozen=True)
class Candidate:
    """A mechanism and its predicted error, averaged over the dimensions or categories.

    ``report`` is how many dimensions each user reports, None for a mechanism that reports the whole vector at once;
    ``reports`` the expected number of reports about each dimension; ``range``, where no distribution was given, the
    least and the largest mean squared error over all of them, and then ``mse`` is the largest; ``unbiased`` tells
    whether the average is unbiased whatever the true values are.
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

    def build(self) -> Any:
        """Return the mechanism, ready to privatise."""
        return from_spec(self.spec)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON description."""
        names = ("mechanism", "report", "mse", "bias", "std", "reports", "range", "unbiased", "spec")
        return {name: getattr(self, name) for name in names}


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

    @property
    def best(self) -> Candidate:
        """The candidate of least mean squared error."""
        return self.candidates[0]

    @property
    def best_unbiased(self) -> Candidate | None:
        """The best candidate whose plain average is unbiased: it needs no luck with the true values."""
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
        }


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
) -> Plan:
    """Predict the error of every applicable mechanism of the catalogue for a collection, best first.

    One dimension goes through a scalar mechanism. Of several, each user reports ``report`` with the budget split, by
    `Sampled`; None takes for each mechanism the number with the least predicted error. Mechanisms on whole vectors
    stand beside them. A `Categorical` domain compares the mechanisms for frequencies. Mechanisms without a pure
    guarantee take part when ``delta`` > 0, ones that would take seconds at this budget when they are named.

    The true values are given as for `deviation`, on ``domain`` ([-1, 1] unless told), the same in every dimension; or
    as a table of users by dimensions; or not at all: then mechanisms are compared by their worst case.

    *Utility*: of plain averages of reports, see `deviation`.

    >>> small = plan(users=10_000, dims=100, epsilon=1.0)
    >>> small.best.report, small.rules
    (1, {'minimax': 1, 'wang-2019': 1})
    """
    users = _validate.integer(users, "users", low=1)
    dims = _validate.integer(dims, "dims", low=1)
    epsilon, delta = _validate.epsilon(epsilon), _validate.delta(delta)
    if report is not None:
        report = _validate.integer(report, "report", low=1, high=dims)
    setting = Setting(users, dims, epsilon, delta, report, Interval() if domain is None else domain)
    population = populations.known(values, probs, distribution, setting.domain, dims=dims)
    entries = [_entry(offer, setting, population) for offer in setting.offers(mechanisms)]
    return Plan(
        users,
        dims,
        epsilon,
        delta,
        tuple(candidate for candidate, _ in sorted(entries, key=lambda entry: entry[0].mse)),
        tuple(_break_evens(entries)),
        report_rules(epsilon, dims),
    )


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
        dims = math.prod(mechanism.domain.shape)
        population = populations.known(values, probs, distribution, scalar_domain(mechanism), dims=dims)
        candidates.append(_candidate(mechanism.name, mechanism, curve(mechanism, population), users))
    return tuple(sorted(candidates, key=lambda candidate: candidate.mse))


def _entry(offer: Offer, setting: Setting, population: Population | None) -> tuple[Candidate, Known | WorstCase]:
    """Build an offer with its best number of dimensions to report, and predict its error."""
    report = setting.report if offer.samples else None
    if offer.samples and report is None:
        if offer.fixed:
            report = setting.usual_report
        else:
            report = best_report(lambda m: curve(offer.build(m), population).at(setting.users), setting.dims)
    mechanism = offer.build(report or 1)
    errors = curve(mechanism, population)
    return _candidate(offer.name, mechanism, errors, setting.users), errors


def _candidate(name: str, mechanism: Mechanism, errors: Known | WorstCase, users: int) -> Candidate:
    """Describe a mechanism by its predicted error."""
    report, share = 1 if mechanism.domain.shape == () else None, 1.0
    if isinstance(mechanism, Sampling):
        report, share = mechanism.report, mechanism.report / mechanism.dims
    if isinstance(errors, Known):
        mse, bias, std, span = errors.at(users), errors.bias, math.sqrt(errors.noise / users), None
    else:
        bias, std, least = errors.describe(users)
        mse = bias**2 + std**2
        span = least, mse
    return Candidate(name, report, mse, bias, std, users * share, span, errors.unbiased, mechanism.spec())


def _break_evens(entries: list[tuple[Candidate, Known | WorstCase]]) -> Iterator[BreakEven]:
    """Return the pairs that cross, named so that ``a`` wins below and ``b`` above."""
    for (first, one), (second, other) in combinations(entries, 2):
        population = crossing(one, other)
        if population is not None:
            below = one.at(population / 2) < other.at(population / 2)
            a, b = (first, second) if below else (second, first)
            yield BreakEven(a.mechanism, b.mechanism, population)
