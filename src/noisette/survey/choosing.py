"""The mechanism of each section of a survey: the one asked for, or the unbiased one of least predicted error."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from noisette.domains import Attributes, Box, Interval, Selection, Sphere, TensorDomain
from noisette.enhancement.channel import chances_at
from noisette.mechanisms import by_name, from_spec
from noisette.mechanisms.build import build, collecting, fits
from noisette.mechanisms.vector.attributes import SampledAttributes
from noisette.mechanisms.vector.sampled import Sampled, part_of
from noisette.prediction import Plan, combine, compare, plan
from noisette.prediction.planning import Candidate, handy
from noisette.survey.coding.items import Direct, Item
from noisette.survey.coding.joints import covarying
from noisette.survey.coding.sections import Section, Together, domain_of, flat, grouped
from noisette.survey.questions import Graded, Question
from noisette.survey.sums import BINS, edges_of

_SHORT_REPORT = 64  # numbers of a report about several options, above which a shorter one is preferred
_NEARLY_BEST = 1.1  # variance in units of the least, up to which it is
_POINTS = 16  # of the table of a graded mechanism, few enough to be solved on a device within a second
_BIASED = "Expected mechanism={!r} to be unbiased: its intervals would not cover the truth. Name another one, or auto."
_WAVES, _PLACES = 4, 64  # of a distribution whose shape is wanted; points at which reports are looked at
_PLACED = (np.arange(_PLACES) + 0.5) / _PLACES  # them, in shares of the range


@dataclass(frozen=True)
class Allowance:
    """What one user may spend in one period, and how many users are hoped for."""

    epsilon: float
    delta: float
    users: int

    def share(self, own: int, of: int) -> Allowance:
        """Return the budget of some of the questions, rounded down: all shares together spend no more than is there."""
        share = Fraction(own, of)
        return Allowance(part_of(self.epsilon, share), part_of(self.delta, share), self.users)

    @property
    def spent(self) -> dict[str, Any]:
        """Epsilon and delta by name."""
        return {"epsilon": self.epsilon, "delta": self.delta}


def choose(
    items: Sequence[Item],
    budget: Allowance,
    asked: str | Mapping[str, str],
    report: int | None,
) -> Together:
    """Return the sections of a survey with their mechanisms.

    Where there are several, a person either answers all of them, each with a share of the budget in proportion to its
    answers, or one that is drawn for her, with the whole budget. The way with the smaller predicted error is taken;
    each question's error counts relative to what one could say without asking. ``asked`` is "auto", one name for all
    questions that it fits, or a name for each question.
    """
    names = dict.fromkeys(name for item in items for name in item.asked)
    if isinstance(asked, Mapping) and set(asked) != set(names):
        raise ValueError(f"Expected a mechanism for each of {', '.join(names)}, got {sorted(asked)}.")
    groups, whole_weight = grouped(items), sum(item.weight for item in items)
    weights = tuple(sum(item.weight for item in own) for own in groups)

    def built(drawn: bool) -> Together:
        shares = (budget if drawn else budget.share(weight, whole_weight) for weight in weights)
        made = [_section(own, share, asked, report) for own, share in zip(groups, shares, strict=True)]
        return Together(tuple(made), weights if drawn else ())

    if len(groups) == 1:
        return built(drawn=False)
    return min((built(drawn) for drawn in (False, True)), key=lambda made: _risk(made, budget.users))


def _risk(made: Together, users: int) -> float:
    """Return the mean over questions of the predicted squared error relative to the square of the question's signal."""
    asked = [one for own in made.sections for one in own.questions]
    ends = np.cumsum([len(one.quantities) for one in asked])[:-1]
    each = np.split(made.predict(users) ** 2, ends)
    return float(np.mean([np.mean(errors / one.signals**2) for errors, one in zip(each, asked, strict=True)]))


def _section(own: tuple[Item, ...], budget: Allowance, asked: str | Mapping[str, str], report: int | None) -> Section:
    """Return a section with its mechanism."""
    if own[0].plain:
        made = Section(own, _plain(own, budget, asked, report))
    else:
        made = Section(own, own[0].choose(budget, _wanted(own[0], asked), report))
    for place, one in enumerate(own):
        inner = made.inner(place)
        if one.wants_distribution and edges_of(inner) is None:
            raise ValueError(
                f"Expected a mechanism that tells the distribution of {one.name!r}: reports of {inner.name!r} tell its "
                "mean alone. Take 'auto' or 'piecewise', or ask for want='mean'."
            )
        if not one.suits(inner):
            raise ValueError(f"Expected another mechanism than {inner.name!r} for {one.name!r}. Take 'auto'.")
    return made


def _wanted(item: Item, asked: str | Mapping[str, str]) -> str:
    """Return the mechanism that is asked for one item: that of all its questions."""
    if isinstance(asked, str):
        return asked
    names = {asked[name] for name in item.asked}
    if len(names) > 1:
        together = ", ".join(item.asked)
        raise ValueError(f"Expected one mechanism for {together}, which are asked together, got {sorted(names)}.")
    return names.pop()


def _plain(own: tuple[Item, ...], budget: Allowance, asked: str | Mapping[str, str], report: int | None) -> Any:
    """Choose for numbers and choices.

    The plan is made with every range scaled to one unit, so that no question counts for more because its numbers are
    large, and it takes only mechanisms whose averages are unbiased: at tiny budgets a biased one has the least error,
    but its intervals would not cover the truth.
    """
    domain = domain_of(own)
    if isinstance(asked, Mapping):
        inner = tuple(_wanted(one, asked) for one in own)
        if len(own) > 1:
            for name in inner:
                _refuse_biased(name)
            return SampledAttributes(inner, domain=domain, report=report, **budget.spent)  # type: ignore[arg-type]  # None chooses
        asked = inner[0]
    unit: Any = Attributes(tuple(one.unit for one in own), names=domain.names) if len(own) > 1 else own[0].unit
    if asked == "auto" and len(own) > 1:
        quick = [_fitting(one, budget) for one in own]
        spec = combine(unit, users=budget.users, report=report, mechanisms=quick, **budget.spent).mechanism.spec()
    else:
        wanted = None if asked == "auto" else [str(asked)]
        if wanted is None and not (isinstance(own[0], Direct) and not own[0].wants_distribution):
            wanted = _fitting(own[0], budget)
        made = plan(users=budget.users, domain=unit, report=report, mechanisms=wanted, **budget.spent)
        ready = made.candidates if asked != "auto" else _ready(made.candidates)
        if not (found := handy(ready)):
            raise ValueError(_BIASED.format(asked))
        spec = fairest(bounded(found)).spec
    return from_spec(spec | {"domain": domain.spec()})


def unit_plan(question: Question, epsilon: float, delta: float, users: int) -> Plan:
    """Compare all mechanisms for one plain question, a number's range scaled to one unit."""
    return plan(users=users, domain=question.unit, epsilon=epsilon, delta=delta)


def _fitting(item: Item, budget: Allowance) -> list[str]:
    """Return the mechanisms for a plain item whose averages are unbiased and which are quick to build, best first.

    Where a distribution is wanted, the one that estimates it best comes first.
    """
    if item.wants_distribution:
        found = _least_blurred(item.unit, budget)
        if not found:
            raise ValueError(f"No mechanism tells the distribution of {item.name!r}. Ask for its mean.")
        return list(found)
    return [one.mechanism for one in handy(c for c in _unbiased(item.unit, budget) if item.suits(c.build()))]


@lru_cache(maxsize=64)
def _least_blurred(unit: Any, budget: Allowance) -> tuple[str, ...]:
    """Return the mechanism that estimates the distribution of a number best, None where no mechanism can."""
    telling = [one for one in _unbiased(unit, budget) if edges_of(one.build()) is not None]
    return (min(telling, key=lambda one: blur(one.build())).mechanism,) if telling else ()


@lru_cache(maxsize=64)
def _unbiased(unit: Any, budget: Allowance) -> tuple[Candidate, ...]:
    """Return the mechanisms for one unit whose averages are unbiased and which are quick to build, best first."""
    made = plan(users=budget.users, domain=unit, **budget.spent).candidates
    return bounded([one for one in _ready(made) if one.unbiased])


def _ready(candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Return the candidates that start at once and that the web client can sample from too.

    What is left out is `LpOptimal`, whose errors are at most 0.4 % below those of `SlidingHalf`, which is taken then.
    """
    return tuple(one for one in candidates if not by_name(one.mechanism).capabilities.slow_start)


def bounded(candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Return the candidates whose reports are bounded, or all of them where no candidate's are.

    The smaller the largest report, the less one liar can move an average.
    """
    kept = tuple(one for one in candidates if not by_name(one.mechanism).capabilities.unbounded)
    return kept or tuple(candidates)


def fairest(candidates: Sequence[Candidate]) -> Candidate:
    """Return the candidate that is never far from the best one, whatever people's numbers are like.

    Formula: for each candidate take the ratio of its variance to the smallest variance of any candidate, and of these
    ratios the largest over beta populations, wide and narrow, from one end of the range to its middle. The candidate
    with the smallest such number is taken. Comparing by the worst value alone would prefer a mechanism that is as bad
    for every population as for the worst one. Frequencies, which do not depend on such laws, keep their order.
    """
    curves = [_curve(one) for one in candidates] if len(candidates) > 1 else []
    if not curves or any(curve is None for curve in curves):
        return candidates[0]
    people, errors = _populations(), []
    for curve, times in curves:
        # where one person in ``times`` reports an entry, those who do may differ from the others
        errors.append(times * (people @ curve) + (times - 1) * (people @ _PLACED**2 - (people @ _PLACED) ** 2))
    found = np.asarray(errors)
    return candidates[int(np.argmin((found / found.min(axis=0)).max(axis=1)))]


def _curve(candidate: Candidate) -> Any:
    """Return the variance of a report at each place, in squared ranges, and how many people one speaks for.

    None for categories.
    """
    mechanism = candidate.build()
    if isinstance(mechanism, Sampled):
        inner = mechanism.inner_mechanism.moments(2 * _PLACED - 1).variance / 4
        return inner, mechanism.dims / mechanism._count
    if not isinstance(mechanism.domain, Interval):
        flat = np.full(_PLACES, candidate.mse * candidate.reports)
        return None if not isinstance(mechanism.domain, Box) else (flat, 1.0)
    width = mechanism.domain.high - mechanism.domain.low
    return mechanism.moments(mechanism.domain.low + _PLACED * width).variance / width**2, 1.0


@lru_cache(maxsize=1)
def _populations() -> Any:
    """Return the shares of people at each place, a row for each population; curves are the same at both ends."""
    rows = []
    for mean in (0.03, 0.1, 0.2, 0.35, 0.5):
        for size in (2.0, 8.0, 30.0):
            log = (mean * size - 1) * np.log(_PLACED) + ((1 - mean) * size - 1) * np.log1p(-_PLACED)
            mass = np.exp(log - log.max())
            rows.append(mass / mass.sum())
    return np.asarray(rows)


def blur(mechanism: Any) -> float:
    """Return how much a mechanism blurs the shape of a distribution; less is better.

    Formula: for a nearly even distribution, the sum, over the first waves cos(pi k x), of the least variance with which
    one report can estimate the size of the wave: the inverse of its Fisher information.
    """
    domain: Any = mechanism.domain
    chances = chances_at(mechanism, domain.low + _PLACED * (domain.high - domain.low), bins=BINS)
    even = chances.mean(axis=1)
    seen = even > 0
    waves = np.cos(np.pi * np.arange(1, _WAVES + 1) * _PLACED[:, None])
    information = ((chances[seen] @ waves / _PLACES) ** 2 / even[seen, None]).sum(axis=0)
    with np.errstate(divide="ignore"):
        return float((1 / information).sum())


def one_of(domain: Attributes, budget: Allowance, asked: str) -> Any:
    """Choose the mechanisms of a record: each person reports one attribute, at the whole budget."""
    if asked != "auto":
        raise ValueError(f"Expected mechanism='auto' for what is asked in several ways, got {asked!r}.")
    names = [
        [one.mechanism for one in _unbiased(attribute, budget) if _sums_of_counts(attribute, one)]
        for attribute in domain.parts
    ]
    return combine(domain, users=budget.users, report=1, mechanisms=names, **budget.spent).mechanism


def _sums_of_counts(attribute: Any, candidate: Candidate) -> bool:
    """Tell whether the covariance of a mechanism's frequencies is known, where it estimates frequencies."""
    return isinstance(attribute, Interval) or covarying(candidate.build())


def whole(question: Question, budget: Allowance, asked: str, report: int | None) -> Any:
    """Choose for a vector, a tensor or a graded number."""
    if isinstance(question, Graded):
        return _graded(question, budget, asked)
    domain: Any = question.domain
    if isinstance(domain, Selection) and asked == "auto":
        return _selecting(domain, budget)
    if isinstance(domain, Sphere | Selection):
        names = _made_for(domain, budget) if asked == "auto" else [asked]
        return _best([_built(name, domain, budget) for name in names], budget)
    if isinstance(domain, TensorDomain):
        if asked != "auto" and by_name(asked).capabilities.takes(domain):
            return _built(asked, domain, budget)
        domain = flat(domain)
    assert isinstance(domain, Box)  # the schema knows no other
    wanted = None if asked == "auto" else [asked]
    low, high = (float(limit) for limit in (domain.low, domain.high))  # type: ignore[arg-type]  # one for all entries
    one = Interval(low, high)
    asked_for: dict[str, Any] = {"users": budget.users, "dims": domain.dims, "domain": one, "mechanisms": wanted}
    made = plan(**asked_for, report=report, **budget.spent).candidates
    fitting = bounded([c for c in made if c.unbiased and c.spec["domain"] == domain.spec()])
    if not fitting:
        if any(c.unbiased for c in made):  # in a larger domain, the ball around the range
            raise ValueError(
                f"Expected a mechanism for {domain}, got {asked!r}, which takes vectors by their length. Ask for the "
                "vector with length=... in place of its range, or name another mechanism, or auto."
            )
        raise ValueError(f"Expected mechanism={asked!r} to be unbiased on {domain}. Name another one, or auto.")
    most = max((c.spec.get("report") or 0 for c in fitting), default=0)
    if asked == "auto" and report is None:  # the plan's number of entries is best for the widest population
        fewer = [plan(**asked_for, report=count, **budget.spent).candidates for count in _fewer(most)]
        fitting += bounded([c for own in fewer for c in own if c.unbiased and c.spec.get("report")])
    return fairest(fitting).build()


def _fewer(most: int) -> list[int]:
    """Return numbers of entries below one: 1, 2, 4 and so on."""
    return [1 << power for power in range(most.bit_length()) if 1 << power < most]


def of_options(domain: Selection, budget: Allowance, asked: str, suits: Callable[[Any], bool], share: float) -> Any:
    """Choose for several options, each chosen by this ``share``: of what suits, the mechanism of least variance."""
    if asked != "auto":
        return _built(asked, domain, budget)
    made = _buildable(domain, budget)
    return min(
        [one for one in made if suits(one)] or made, key=lambda one: (1 - share) * one.spread[0] + share * one.spread[1]
    )


def _buildable(domain: Selection, budget: Allowance) -> list[Any]:
    """Return the mechanisms for several options of one list."""
    made = []
    for name in _made_for(domain, budget):
        try:
            made.append(_built(name, domain, budget))
        except ValueError:  # too long a list for it, too many chosen, or too small a budget
            continue
    return made


def _selecting(domain: Selection, budget: Allowance) -> Any:
    """Choose for several options: the least variance, or for long lists short reports that are nearly as good."""
    made = _buildable(domain, budget)
    least = min(one.spread[0] for one in made)
    short = [
        one for one in made if one.spread[0] <= _NEARLY_BEST * least and np.prod(one.report_shape) <= _SHORT_REPORT
    ]
    return _best(short or made, budget)


def _made_for(domain: Any, budget: Allowance) -> list[str]:
    """Return the mechanisms made for a domain whose averages are unbiased and which are quick to build."""
    found = [one for one in fits(domain, delta=budget.delta) if one and one.usual]
    return [one.name for one in found if one.able.unbiased and not one.able.slow_start]


def _built(name: str, domain: Any, budget: Allowance) -> Any:
    """Build a named mechanism for whole vectors or tensors."""
    found = collecting(name, domain, delta=budget.delta)
    if found.obstacle:
        raise ValueError(f"Expected a local mechanism for means of {domain}, got {name!r}: {found.obstacle}")
    _refuse_biased(name)
    delta = budget.delta if found.able.delta == "needed" else 0.0
    return build(name, domain, epsilon=budget.epsilon, delta=delta)


def _refuse_biased(name: str) -> None:
    """Refuse a mechanism whose plain average is biased, which no plan of a survey takes into account."""
    if not by_name(name).declared().unbiased:
        raise ValueError(_BIASED.format(name))


def _graded(question: Graded, budget: Allowance, asked: str) -> Any:
    """Scale the levels' budgets, whose ratios are given, until together they spend the share of the section."""
    levels = question.levels
    edges = (levels[0][0], *(high for _, high, _ in levels))
    given: dict[str, Any] = {"edges": edges, "epsilons": tuple(epsilon for *_, epsilon in levels)}
    domain = Interval(edges[0], edges[-1])
    graded = {one.name: one.able for one in fits(domain) if one and one.able.levels}
    if asked not in ("auto", *graded):
        raise ValueError(f"Expected mechanism={asked!r} for {question.name!r} to be {' or '.join(graded)}.")
    made = []
    for name in graded if asked == "auto" else (asked,):
        few = {"points": max(_POINTS, 2 * len(levels))} if graded[name].slow_start else {}
        try:
            made.append(build(name, domain, epsilon=budget.epsilon, **given | few))
        except ValueError:
            if asked != "auto":  # budgets may be too small for one of several
                raise
    return _best(made, budget)


def _best(made: list[Any], budget: Allowance) -> Any:
    """Return the mechanism of least predicted error."""
    least = compare(made, users=budget.users)[0].mechanism
    return next(one for one in made if one.name == least)
