"""The whole distribution of a number or a category, and its quantiles, from counts of reports."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from noisette._validate import FloatArray, IntArray
from noisette.core import Estimate
from noisette.enhancement import enhance
from noisette.enhancement.channel import chances_at
from noisette.enhancement.reconstruction import smoothed_as_needed
from noisette.mechanisms.graded.estimation import maximum_likelihood
from noisette.survey.coding.items import Topic
from noisette.survey.estimation.hierarchy import QUANTILES, CdfEstimate
from noisette.survey.sums import BINS, Binned, Sums
from noisette.survey.survey import Survey

_BARS = 16  # of a distribution with intervals
NO_INTERVAL = "This picture is smoothed, and no interval holds for it. Ask with want='quantiles' to have intervals."
_KEPT = 256  # answers that are remembered
_TWO_KINDS = (
    "Reports of this mechanism are of two kinds: they tell the mean and no more. "
    'Ask for want="distribution", or take piecewise, say.'
)
_MEAN_ALONE = (
    "It is asked together with other answers, is optional, or its variance is wanted: its reports tell no more. "
    'Ask for want="quantiles" or "distribution".'
)
_NO_REPORTS = "Nothing has been reported yet."
_NO_INTERVAL = (
    "The reports about {name} give no interval of a quantile that holds, since they are counted by level. "
    "Ask with want='quantiles' for one."
)
_POINTS = 5  # of a bin of values
_TRIALS = 60  # times that a confidence band is doubled until some distribution lies in it


@dataclass(frozen=True, eq=False)
class Shape:
    """A distribution in bins: how many reports there are of each kind, and the shares of the bins that follow."""

    question: Topic
    edges: FloatArray
    counts: IntArray
    shares_from: Callable[[IntArray], FloatArray]
    binned: Binned | None = None

    def shares(self) -> FloatArray:
        """Return the share of each bin."""
        return self.shares_from(self.counts)

    def quantile_interval(self, chance: float, level: float) -> tuple[float, float]:
        """Return an interval that holds the quantile with probability ``level`` at least, whatever the distribution.

        Formula: with probability level the distribution function of the reports lies everywhere within d = sqrt(log(2 /
        (1 - level)) / (2 n)) of what was seen (Massart 1990). Of all distributions of true values that allow this,
        linear programs find the extreme shares below each end of a bin; a value within a bin is taken to have the
        reports of one of several points of the bin. Larger values make larger reports, so the ends of a bin are the
        extremes, except for mechanisms made of tables. No smoothness is assumed, so the interval is wider than a smooth
        distribution needs.
        """
        if self.binned is None or self.binned.edges is None:
            raise ValueError(_NO_INTERVAL.format(name=repr(self.question.name)))
        seen = np.cumsum(self.counts)[:-1] / self.counts.sum()
        inputs = np.linspace(self.edges[:-1], self.edges[1:], _POINTS, axis=1)
        ends = np.cumsum(chances_at(self.binned.mechanism, inputs.ravel(), bins=BINS), axis=0)[:-1]
        each = ends.reshape(-1, *inputs.shape)
        least, most = each.min(axis=2), each.max(axis=2)
        radius = math.sqrt(math.log(2 / (1 - level)) / (2 * float(self.counts.sum())))
        for _ in range(_TRIALS):
            bounds = _Bounds(least, most, seen - radius, seen + radius)
            if bounds.extreme(BINS, 1.0) is not None:
                break
            radius *= 2
        lower = bounds.first(lambda place: bounds.extreme(place, -1.0), chance)
        upper = bounds.first(lambda place: bounds.extreme(place, 1.0), chance)
        return float(self.edges[max(lower - 1, 0)]), float(self.edges[upper])


@dataclass(frozen=True, eq=False)
class _Bounds:
    """Shares of bins whose reports stay within a band."""

    least: FloatArray
    most: FloatArray
    low: FloatArray
    high: FloatArray

    def extreme(self, place: int, sign: float) -> float | None:
        """Return the least (sign 1) or largest (sign -1) share of the first bins, None where nothing is in the band."""
        from scipy.optimize import linprog

        size = self.least.shape[1]
        goal = sign * (np.arange(size) < place)
        found = linprog(
            goal,
            A_ub=np.concatenate([self.least, -self.most]),
            b_ub=np.concatenate([self.high, -self.low]),
            A_eq=np.ones((1, size)),
            b_eq=np.ones(1),
            bounds=(0, 1),
        )
        return sign * float(found.fun) if found.success else None

    def first(self, share: Callable[[int], float | None], chance: float) -> int:
        """Return the first end of a bin below which the share, which grows with it, reaches a chance."""
        low, high = 0, self.least.shape[1]
        while low < high:
            middle = (low + high) // 2
            found = share(middle)
            low, high = (low, middle) if found is not None and found >= chance - 1e-9 else (middle + 1, high)
        return low


def shape_of(sums: Sums, question: Topic) -> Shape | str:
    """Return the distribution of a number, or why it cannot be estimated from the reports."""
    if sums.users == 0:
        return _NO_REPORTS
    if question.kind == "graded":
        return _graded(sums, question)
    if question.kind != "number":
        stated = {"shares": "It is a choice: it has shares.", "texts": "It asks for texts: it has top()."}
        return stated.get(question.tells, "Only the mean of each entry is estimated.")
    number = next((one for one in sums.layout.numbers if one.question.name == question.name), None)
    if number is None:
        return _MEAN_ALONE
    if number.edges is None:
        return _TWO_KINDS
    counts = sums.histogram(number)
    if counts.sum() == 0:
        return _NO_REPORTS
    channel = number.channel

    def shares(seen: IntArray) -> FloatArray:
        return smoothed_as_needed(channel.matrix, seen.astype(np.float64)).probabilities

    return Shape(question, channel.inputs, counts, shares, number)


def _graded(sums: Sums, question: Topic) -> Shape:
    """Return the most likely distribution over the levels, as flat as possible within each level."""
    section, own = sums.about(question.name)
    aggregate = section.aggregate(own, sums.users)

    def shares(seen: IntArray) -> FloatArray:
        return maximum_likelihood(replace(aggregate, total=seen)).probabilities(BINS)[1]

    return Shape(question, maximum_likelihood(aggregate).probabilities(BINS)[0], aggregate.total, shares)


def consistent_shares(estimate: Estimate) -> FloatArray | None:
    """Return the nearest frequencies that are a distribution, None where some are unknown."""
    alone = replace(estimate, names=None, low=0.0, high=1.0, tail=None, kind="frequency", groups=None)
    if not np.all(np.isfinite(alone.value) & np.isfinite(alone.std_error)):
        return None
    return enhance(alone, method="simplex").value


class Shapes:
    """Distributions as the dashboard shows them, computed once for the same counts."""

    def __init__(self) -> None:
        self._known: dict[Any, list[dict[str, Any]]] = {}
        self._lock = threading.Lock()

    def attributes(self, owner: str, sums: Sums, level: float) -> list[dict[str, Any]]:
        """Return for each question what it is, where its quantities are, and its distribution and quantiles."""
        with self._lock:
            key = (owner, sums.users, sums.to_bytes(), level)
            if key not in self._known:
                if len(self._known) >= _KEPT:
                    self._known.pop(next(iter(self._known)))
                self._known[key] = list(_attributes(sums, level))
            return self._known[key]


def _attributes(sums: Sums, level: float) -> Iterator[dict[str, Any]]:
    first, survey = 0, sums.layout.survey
    found, answered = sums.by_question(), mechanisms(survey)
    for question in (one for section in survey.sections for one in section.questions):
        size = len(question.quantities)
        stated = {
            "name": question.name,
            "kind": question.kind,
            "mechanism": answered[question.name],
            "first": first,
            "size": size,
            "distribution": None,
            "quantiles": None,
            "reason": None,
            "note": None,
        }
        if question.tells == "shares" and sums.users:
            shares = consistent_shares(found[question.name])
            labels = {"labels": list(question.estimated), "probabilities": shares}
            yield stated | ({"reason": _NO_REPORTS} if shares is None else {"distribution": labels})
        else:
            own = found[question.name]
            if isinstance(own, CdfEstimate) and sums.users:
                yield stated | _described_cdf(own, level)
            else:
                shape = shape_of(sums, question)
                yield stated | ({"reason": shape} if isinstance(shape, str) else _described(shape))
        first += size


def mechanisms(survey: Survey) -> dict[str, str]:
    """Return the name of the mechanism of each question."""
    return {
        one.name: str(section.inner(place).name)
        for section in survey.sections
        for place, item in enumerate(section.items)
        for one in item.questions
    }


def _described(shape: Shape) -> dict[str, Any]:
    """Return a distribution, smoothed, and its quantiles: an interval would hold for smooth distributions only."""
    values = quantiles(shape.edges, shape.shares(), QUANTILES)
    rows = zip(QUANTILES, values, strict=True)
    return {
        "distribution": {"edges": shape.edges, "probabilities": shape.shares(), "low": None, "high": None},
        "quantiles": [{"probability": chance, "value": value, "low": None, "high": None} for chance, value in rows],
        "note": NO_INTERVAL,
    }


def _described_cdf(found: CdfEstimate, level: float) -> dict[str, Any]:
    """Return shares of a quarter as many bins as there are cells, and quantiles, with intervals that hold."""
    edges = found.edges[:: max(1, (found.edges.size - 1) // _BARS)]
    rows = [found.between(low, high, level) for low, high in pairwise(edges.tolist())]
    share, low, high = (np.asarray(column) for column in zip(*rows, strict=True))
    ends = zip(QUANTILES, found.value, *found.interval(level), strict=True)
    return {
        "distribution": {"edges": edges, "probabilities": share, "low": low, "high": high},
        "quantiles": [dict(zip(("probability", "value", "low", "high"), row, strict=True)) for row in ends],
        "note": "Intervals hold at any distribution.",
    }


def quantiles(edges: FloatArray, shares: FloatArray, chances: tuple[float, ...]) -> FloatArray:
    """Return the values below which the distribution has these shares; within a bin it is taken to be even.

    >>> quantiles(np.asarray([0.0, 1.0, 3.0]), np.asarray([0.5, 0.5]), (0.25, 0.5, 0.75)).tolist()
    [0.5, 1.0, 2.0]
    """
    ends = np.concatenate([[0.0], np.cumsum(shares / shares.sum())])
    rising = np.maximum.accumulate(ends + 1e-12 * np.arange(ends.size))  # interpolation needs it to rise
    return np.asarray(np.interp(chances, rising, edges))
