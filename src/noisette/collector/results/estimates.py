"""What the sums of a campaign say: estimates with intervals, distributions, groups, and change over time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import chdtrc, ndtr

from noisette._bounded import score_of
from noisette._validate import FloatArray
from noisette.collector.results.liars import intervals, suspicions
from noisette.core import Estimate
from noisette.survey.campaigns import Campaign
from noisette.survey.estimation.distributions import Shapes
from noisette.survey.results import within
from noisette.survey.sums import Layout, Sums

_LEVEL = 0.95  # of the intervals that are drawn for each period
_DRIFTING = 64  # periods that are compared, the last ones
_FIELDS = ("name", "value", "std_error", "low", "high", "reports", "predicted_std_error")


@dataclass(frozen=True)
class Query:
    """What is asked of results: the period, the confidence of intervals, the enhancement, the fewest reports to show.

    ``liars`` is the share of users that may have made their reports up without an interval failing to hold.
    """

    period: str
    level: float = 0.95
    method: str = "none"
    least: int = 1
    liars: float = 0.0


def estimates(
    campaign: Campaign, layout: Layout, sums: dict[str, dict[int, Sums]], query: Query, shapes: Shapes
) -> dict[str, Any]:
    """Return all that is known about a period, as JSON, and how it changed from period to period."""
    here = sums.get(query.period, {})
    whole = total(layout, here.values())
    users, withheld = whole.users, 0 < whole.users < query.least
    if withheld:
        here, whole = {}, layout.nothing()
    enough = {name: groups for name, groups in sums.items() if total(layout, groups.values()).users >= query.least}
    rows, method, gain = dimensions(campaign, whole, query)
    return {
        "campaign": campaign.id,
        "title": campaign.title,
        "period": query.period,
        "periods": {name: total(layout, groups.values()).users for name, groups in sums.items()},
        "users": users,
        "withheld": withheld,
        "least": query.least,
        "target_users": campaign.wanted,
        "level": query.level,
        "liars": query.liars,
        "suspicions": suspicions(whole),
        "enhance": method,
        "expected_gain": gain,
        "guarantee": campaign.mechanism.guarantee.spec(),
        "dimensions": rows,
        "attributes": shapes.attributes(campaign.id, whole, query.level),
        "groups": _groups(campaign, layout, here, whole, query),
        "drift": drift(campaign, layout, dict(list(enough.items())[-_DRIFTING:])),
    }


def total(layout: Layout, parts: Iterable[Sums]) -> Sums:
    """Return the sums of all groups together."""
    return sum(parts, start=layout.nothing())


def dimensions(campaign: Campaign, sums: Sums, query: Query) -> tuple[list[dict[str, Any]], str, float | None]:
    """Return one row for each quantity, the enhancement that was used, and what it is expected to gain."""
    expected = campaign.survey.predict(sums.users) if sums.users else np.full(len(campaign.quantities), np.nan)
    found = list(sums.by_question(query.method).values())
    rows = []
    wider = intervals(sums, query.level, query.liars) if query.liars and sums.users else {}
    for one in found:
        with np.errstate(invalid="ignore"):  # at no confidence at all an interval of infinite error has no ends
            low, high = one.interval(query.level)
        if wider:  # a quantity without such an interval has none
            ends = np.asarray([wider.get(name, (np.nan, np.nan)) for name in one.names or ()]).reshape(-1, 2)
            low, high = ends[:, 0], ends[:, 1]
        rows += list(zip(one.names or (), one.value, one.std_error, low, high, _each(one), strict=True))
    described = [dict(zip(_FIELDS, (*row, error), strict=True)) for row, error in zip(rows, expected, strict=True)]
    gains = [one.expected_gain for one in found if one.expected_gain is not None]
    return described, ", ".join(dict.fromkeys(one.method for one in found)), sum(gains) if gains else None


def _each(one: Estimate) -> list[int]:
    counts: list[int] = np.broadcast_to(one.count, one.value.shape).tolist()
    return counts


def _groups(
    campaign: Campaign, layout: Layout, here: dict[int, Sums], whole: Sums, query: Query
) -> list[dict[str, Any]]:
    """Return the estimates within each public group, and the means within each private one."""
    found: list[dict[str, Any]] = []
    public = campaign.public_group
    if public is not None:
        values = []
        for code, label in enumerate(public.values):
            sums = here.get(code, layout.nothing())
            users = sums.users
            shown = sums if users >= query.least else layout.nothing()
            values.append({"value": label, "users": users, "dimensions": dimensions(campaign, shown, query)[0]})
        found.append(
            {"name": public.name, "private": False, "values": values, "tests": _differ(campaign, values, query.level)}
        )
    return found + list(_within(campaign, whole, query))


def _differ(campaign: Campaign, values: list[dict[str, Any]], level: float) -> dict[str, dict[str, Any]]:
    """Return for each quantity the test that all groups have one value; ``adjusted`` is for all quantities together.

    The error of each is the larger distance of an end of its interval, in units of the normal quantile.
    """
    found = {}
    for place, name in enumerate(campaign.quantities):
        rows = [one["dimensions"][place] for one in values]
        numbers = [[np.nan if row[key] is None else row[key] for row in rows] for key in ("value", "low", "high")]
        each, low, high = (np.asarray(one, dtype=np.float64) for one in numbers)
        statistic, degrees, chance = homogeneity(each, np.maximum(high - each, each - low) / score_of(level))
        adjusted = None if chance is None else min(1.0, chance * len(campaign.quantities))
        found[name] = {"statistic": statistic, "degrees": degrees, "p_value": chance, "adjusted": adjusted}
    return found


def _pairs_differ(item: Any, whole: Sums) -> dict[str, Any]:
    """Return the test that means within no two labels differ: the least p-value of all pairs, times their number."""
    if not whole.users:
        return {"p_value": None, "adjusted": None}
    gap, error = item.differences(*whole.piece(item))
    found = whole.by_question()[item.name]
    (low, high), value = found.interval(_LEVEL), found.value
    own = np.maximum(high - value, value - low) / score_of(_LEVEL)
    pairs = np.triu_indices(len(gap), 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        far = np.abs(gap[pairs] / np.fmax(error, np.hypot(own, own[:, None]))[pairs])
    chances = 2 * ndtr(-far[np.isfinite(far)])
    least = float(chances.min()) if chances.size else None
    return {"p_value": least, "adjusted": None if least is None else min(1.0, least * chances.size)}


def _within(campaign: Campaign, whole: Sums, query: Query) -> Iterator[dict[str, Any]]:
    """Yield the means of numbers within each label of a private choice that they are asked together with."""
    by_name = whole.by_question()
    for choice in (one for one in campaign.attributes if within(campaign.survey, one.name)):
        shares = by_name[choice.name].value if whole.users else [None] * len(choice.labels)
        rows: list[dict[str, Any]] = [
            {"value": label, "share": share, "dimensions": []}
            for label, share in zip(choice.labels, shares, strict=True)
        ]
        for item in within(campaign.survey, choice.name):
            found = by_name[item.name]
            ends = found.interval(query.level)
            each = zip(rows, found.value, found.std_error, *ends, _each(found), strict=True)
            for row, *numbers, count in each:
                known = [float(one) if np.isfinite(one) else None for one in numbers] if count else [None] * 4
                named = dict(zip(("value", "std_error", "low", "high"), known, strict=True))
                row["dimensions"].append({"name": item.number.name} | named | {"reports": count})
        tests = {item.number.name: _pairs_differ(item, whole) for item in within(campaign.survey, choice.name)}
        yield {"name": choice.name, "private": True, "values": rows, "tests": tests}


def drift(campaign: Campaign, layout: Layout, sums: dict[str, dict[int, Sums]]) -> dict[str, Any]:
    """Return the estimates of every period, and for each quantity a test that it has not changed.

    Formula: with estimates v_i of errors s_i, the distance of the farther end of an interval in units of the normal
    quantile, and their weighted mean m, the sum of ((v_i - m) / s_i)^2 follows
    chi-square with one degree of freedom less than there are periods, if nothing changed. ``adjusted`` is the p-value
    times the number of quantities: below 0.05 somewhere means a change, at a false-alarm rate of 0.05 for all together.
    It supposes that reports of different periods are independent; permanent answers are not, and there it is careful.
    """
    names = list(sums)
    each = [total(layout, groups.values()) for groups in sums.values()]
    found = [_joined(tuple(one.by_question().values())) for one in each]
    values, errors, lows, highs = (
        np.asarray([one[at] for one in found]).reshape(len(names), len(campaign.quantities)) for at in range(4)
    )
    with np.errstate(invalid="ignore"):
        radii = np.maximum(highs - values, values - lows) / score_of(_LEVEL)
    rows = []
    for place, name in enumerate(campaign.quantities):
        statistic, degrees, chance = homogeneity(values[:, place], radii[:, place])
        adjusted = min(1.0, chance * len(campaign.quantities)) if chance is not None else None
        test = {"statistic": statistic, "degrees": degrees, "p_value": chance, "adjusted": adjusted}
        columns = {"values": values, "std_errors": errors, "lows": lows, "highs": highs}
        rows.append({"name": name} | {key: one[:, place] for key, one in columns.items()} | test)
    return {"periods": names, "users": [one.users for one in each], "quantities": rows}


def _joined(parts: tuple[Estimate, ...]) -> tuple[FloatArray, ...]:
    """Return values, errors and both ends of intervals of all quantities."""
    each = [(one.value, one.std_error, *one.interval(_LEVEL)) for one in parts]
    return tuple(np.concatenate(column) for column in zip(*each, strict=True))


def homogeneity(values: FloatArray, errors: FloatArray) -> tuple[float | None, int, float | None]:
    """Return statistic, degrees of freedom and p-value of the test that all values estimate one number.

    >>> statistic, degrees, chance = homogeneity(np.asarray([1.0, 1.0, 4.0]), np.ones(3))
    >>> round(statistic, 6), degrees, round(chance, 6)
    (6.0, 2, 0.049787)
    """
    known = np.isfinite(values) & np.isfinite(errors) & (errors > 0)
    degrees = int(known.sum()) - 1
    if degrees < 1:
        return None, max(degrees, 0), None
    weights = errors[known] ** -2.0
    mean = float(weights @ values[known] / weights.sum())
    statistic = float(weights @ (values[known] - mean) ** 2)
    chance = float(chdtrc(degrees, statistic))
    return (statistic, degrees, chance) if math.isfinite(statistic) else (None, degrees, None)
