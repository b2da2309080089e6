"""The mechanism of each section of a survey: the one asked for, or the unbiased one of least predicted error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from noisette.domains import Attributes, Box, Interval, Sphere, TensorDomain
from noisette.enhancement.channel import chances_at
from noisette.mechanisms import CATALOGUE, by_name, from_spec
from noisette.mechanisms.graded.levelled import LevelledResponse
from noisette.mechanisms.graded.optimal import OptimalGraded
from noisette.mechanisms.vector.attributes import SampledAttributes
from noisette.prediction import Plan, combine, compare, plan
from noisette.prediction.planning import Candidate
from noisette.survey.questions import Graded, Question
from noisette.survey.sections import Section, domain_of, flat, grouped
from noisette.survey.sums import BINS, edges_of

_POINTS = 16  # of the table of a graded mechanism, few enough to be solved on a device within a second
_GRADED = ("levelled", "optimal-graded")
_WAVES, _PLACES = 4, 64  # of a distribution whose shape is wanted; points at which reports are looked at


@dataclass(frozen=True)
class Allowance:
    """What one user may spend in one period, and how many users are hoped for."""

    epsilon: float
    delta: float
    users: int

    def share(self, own: int, of: int) -> Allowance:
        """Return the budget of some of the questions; of all it is the budget itself."""
        return Allowance(self.epsilon * own / of, self.delta * own / of, self.users)

    @property
    def spent(self) -> dict[str, Any]:
        """Epsilon and delta by name."""
        return {"epsilon": self.epsilon, "delta": self.delta}


def choose(
    questions: Sequence[Question],
    budget: Allowance,
    asked: str | Mapping[str, str],
    report: int | None,
    breakdown: Sequence[str],
) -> tuple[Section, ...]:
    """Return the sections of a survey with their mechanisms.

    Each section gets the share of the budget that its questions are of all. ``asked`` is "auto", one name for all
    questions that it fits, or a name for each question; ``breakdown`` names choices that others are broken down by,
    which must be reported together with them.
    """
    names = {one.name for one in questions}
    if isinstance(asked, Mapping) and set(asked) != names:
        raise ValueError(
            f"Expected a mechanism for each of {', '.join(one.name for one in questions)}, got {sorted(asked)}."
        )
    made = []
    for own in grouped(questions):
        share = budget.share(len(own), len(questions))
        if own[0].plain:
            mechanism = _plain(own, share, asked, report, [name for name in breakdown if name in names])
        else:
            wanted = asked if isinstance(asked, str) else asked[own[0].name]
            mechanism = _whole(own[0], share, wanted, report)
        made.append(Section(own, mechanism))
        for place, one in enumerate(own):
            if one.kind == "number" and one.wants_distribution and edges_of(made[-1].inner(place)) is None:
                name = made[-1].inner(place).name
                raise ValueError(
                    f"Expected a mechanism that tells the distribution of {one.name!r}: reports of {name!r} tell its "
                    "mean alone. Take 'auto' or 'piecewise', or ask for want='mean'."
                )
    return tuple(made)


def _plain(
    own: tuple[Question, ...], budget: Allowance, asked: str | Mapping[str, str], report: int | None, by: Sequence[str]
) -> Any:
    """Choose for numbers and choices.

    The plan is made with every range scaled to one unit, so that no question counts for more because its numbers are
    large, and it takes only mechanisms whose averages are unbiased: at tiny budgets a biased one has the least error,
    but its intervals would not cover the truth.
    """
    domain = domain_of(own)
    if by:
        asked, report = _reported_together(own, asked, report, by, budget)
    if isinstance(asked, Mapping):
        inner = tuple(asked[one.name] for one in own)
        if len(own) > 1:
            return SampledAttributes(inner, domain=domain, report=report, **budget.spent)  # type: ignore[arg-type]  # None chooses
        asked = inner[0]
    unit: Any = Attributes(tuple(one.unit for one in own), names=domain.names) if len(own) > 1 else own[0].unit
    if asked == "auto" and len(own) > 1:
        kinds = {(one.unit, one.wants_distribution): one for one in own}
        fitting = {kind: _fitting(one, budget) for kind, one in kinds.items()}
        quick = [fitting[one.unit, one.wants_distribution] for one in own]
        spec = combine(unit, users=budget.users, report=report, mechanisms=quick, **budget.spent).mechanism.spec()
    else:
        wanted = None if asked == "auto" else [str(asked)]
        if wanted is None and own[0].wants_distribution:
            wanted = _fitting(own[0], budget)
        made = plan(users=budget.users, domain=unit, report=report, mechanisms=wanted, **budget.spent)
        if made.best_unbiased is None:
            raise ValueError(
                f"Expected mechanism={asked!r} to be unbiased: its intervals would not cover the truth. "
                "Name another one, or auto."
            )
        spec = made.best_unbiased.spec
    return from_spec(spec | {"domain": domain.spec()})


def _reported_together(
    own: tuple[Question, ...], asked: str | Mapping[str, str], report: int | None, by: Sequence[str], budget: Allowance
) -> tuple[dict[str, str], int]:
    """Return a mechanism for each question, randomised response for those that others are broken down by.

    A breakdown needs both answers of one user, so every question is answered, unless at least two are asked for.
    """
    report = len(own) if report is None else report
    if report < 2:
        raise ValueError(f"Expected report={report} >= 2: a breakdown needs two answers of one user.")
    chosen = {}
    for one in own:
        wanted = asked if isinstance(asked, str) else asked[one.name]
        if one.name in by:
            if wanted not in ("auto", "grr"):
                raise ValueError(f"Expected mechanism 'grr' for {one.name!r}, by which others are broken down.")
            wanted = "grr"
        elif wanted == "auto":
            wanted = _fitting(one, budget.share(1, report))[0]
        chosen[one.name] = wanted
    return chosen, report


def unit_plan(question: Question, epsilon: float, delta: float, users: int) -> Plan:
    """Compare all mechanisms for one plain question, a number's range scaled to one unit."""
    return plan(users=users, domain=question.unit, epsilon=epsilon, delta=delta)


def _fitting(question: Question, budget: Allowance) -> list[str]:
    """Return the mechanisms for a plain question whose averages are unbiased and which are quick to build, best first.

    Where a distribution is wanted it is the one that tells it best.
    """
    unit: Any = question.unit
    found = _unbiased(unit, budget)
    if question.wants_distribution:
        telling = [one for one in found if edges_of(one.build()) is not None]
        if not telling:
            raise ValueError(f"No mechanism tells the distribution of {question.name!r}. Ask for its mean.")
        found = (min(telling, key=lambda one: blur(one.build())),)
    return [one.mechanism for one in found]


@lru_cache(maxsize=64)
def _unbiased(unit: Any, budget: Allowance) -> tuple[Candidate, ...]:
    """Return the mechanisms for one unit whose averages are unbiased and which are quick to build, best first."""
    made = plan(users=budget.users, domain=unit, **budget.spent).candidates
    return tuple(one for one in made if one.unbiased and not getattr(by_name(one.mechanism), "slow_start", False))


def blur(mechanism: Any) -> float:
    """Return how badly the reports of a mechanism tell the shape of a distribution.

    Formula: of a distribution that is nearly even, sum over the first waves cos(pi k x) of the least variance with
    which one report tells the wave's size, the inverse of its Fisher information.
    """
    domain: Any = mechanism.domain
    places = (np.arange(_PLACES) + 0.5) / _PLACES
    chances = chances_at(mechanism, domain.low + places * (domain.high - domain.low), bins=BINS)
    even = chances.mean(axis=1)
    seen = even > 0
    waves = np.cos(np.pi * np.arange(1, _WAVES + 1) * places[:, None])
    information = ((chances[seen] @ waves / _PLACES) ** 2 / even[seen, None]).sum(axis=0)
    with np.errstate(divide="ignore"):
        return float((1 / information).sum())


def _whole(question: Question, budget: Allowance, asked: str, report: int | None) -> Any:
    """Choose for a vector, a tensor or a graded number."""
    if isinstance(question, Graded):
        return _graded(question, budget, asked)
    domain: Any = question.domain
    if isinstance(domain, Sphere):
        names = ["privunit", "privunit-g"] if asked == "auto" else [asked]
        return _best([_built(name, domain, budget) for name in names], budget)
    if isinstance(domain, TensorDomain):
        if asked != "auto" and by_name(asked).example(1.0).domain.kind == domain.kind:
            return _built(asked, domain, budget)
        domain = flat(domain)
    assert isinstance(domain, Box)  # the schema knows no other
    wanted = None if asked == "auto" else [asked]
    low, high = (float(limit) for limit in (domain.low, domain.high))  # type: ignore[arg-type]  # one for all entries
    one = Interval(low, high)
    made = plan(users=budget.users, dims=domain.dims, domain=one, report=report, mechanisms=wanted, **budget.spent)
    fitting = [c for c in made.candidates if c.unbiased and c.spec["domain"] == domain.spec()]
    if not fitting:
        raise ValueError(f"Expected mechanism={asked!r} to be unbiased on {domain}. Name another one, or auto.")
    return fitting[0].build()


def _built(name: str, domain: Any, budget: Allowance) -> Any:
    """Build a named mechanism for whole vectors or tensors."""
    cls: Any = by_name(name)
    if name not in CATALOGUE or cls.kind != "vector-mean" or cls.example(1.0).guarantee.model != "local":
        raise ValueError(f"Expected a local mechanism for means of {domain}, got {name!r}.")
    pure = cls.example(1.0).guarantee.delta == 0
    if not pure and budget.delta == 0:
        raise ValueError(f"Mechanism {name!r} has no pure guarantee. Give the survey a delta, e.g. 1e-6.")
    spent = {"epsilon": budget.epsilon} if pure else budget.spent
    return cls(**spent, domain=domain, **({"dims": domain.dims} if isinstance(domain, Sphere) else {}))


def _graded(question: Graded, budget: Allowance, asked: str) -> Any:
    """Scale the levels' budgets until the whole spends its share: what is given is how they compare."""
    if asked not in ("auto", *_GRADED):
        raise ValueError(f"Expected mechanism={asked!r} for {question.name!r} to be {' or '.join(_GRADED)}.")
    levels = question.levels
    edges = (levels[0][0], *(high for _, high, _ in levels))
    epsilons = tuple(epsilon for *_, epsilon in levels)
    levelled = LevelledResponse(edges, epsilons).calibrate(total=budget.epsilon)
    if asked == "levelled":
        return levelled
    try:
        optimal = OptimalGraded(edges, epsilons, points=max(_POINTS, 2 * len(epsilons))).calibrate(total=budget.epsilon)
    except ValueError:
        if asked == "auto":  # its budgets may not be as small
            return levelled
        raise
    return optimal if asked == "optimal-graded" else _best([levelled, optimal], budget)


def _best(made: list[Any], budget: Allowance) -> Any:
    """Return the mechanism of least predicted error."""
    least = compare(made, users=budget.users)[0].mechanism
    return next(one for one in made if one.name == least)
