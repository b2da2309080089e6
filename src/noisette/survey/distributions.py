"""The whole distribution of a number or a category, and its quantiles, from counts of reports."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from noisette._validate import FloatArray, IntArray
from noisette.core import Aggregate
from noisette.enhancement import enhance, expectation_maximization
from noisette.enhancement.channel import Channel
from noisette.mechanisms.graded.estimation import maximum_likelihood
from noisette.survey.campaigns import Campaign
from noisette.survey.parts import Part
from noisette.survey.questions import Attribute
from noisette.survey.sums import BINS, Number, Sums

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_AGAIN = 60  # resamples behind an interval
_KEPT = 256  # answers that are remembered
_FEW = "Reports of this mechanism are of two kinds: they tell the mean and no more. Take piecewise, say."
_NONE = "Nothing has been reported yet."


class Shapes:
    """Distributions, computed once for the same counts; the tables of the mechanisms are built when first used."""

    def __init__(self) -> None:
        self._channels: dict[Number, Channel] = {}
        self._known: dict[Any, list[dict[str, Any]]] = {}
        self._lock = threading.Lock()

    def attributes(self, campaign: Campaign, sums: Sums, level: float) -> list[dict[str, Any]]:
        """Return for each attribute what it is, where its quantities are, and its distribution and quantiles."""
        with self._lock:
            key = (campaign.id, sums.users, sums.to_bytes(), level)
            if key not in self._known:
                if len(self._known) >= _KEPT:
                    self._known.pop(next(iter(self._known)))
                self._known[key] = list(self._attributes(campaign, sums, level))
            return self._known[key]

    def _attributes(self, campaign: Campaign, sums: Sums, level: float) -> Any:
        start = 0
        for place, part in enumerate(campaign.parts):
            for column, attribute in enumerate(part.attributes):
                size = len(attribute.quantities)
                told = {
                    "name": attribute.name,
                    "kind": attribute.kind,
                    "mechanism": _named(part, column),
                    "first": start,
                    "size": size,
                    "distribution": None,
                    "quantiles": None,
                    "reason": None,
                }
                start += size
                if sums.users == 0:
                    yield told | {"reason": _NONE}
                elif attribute.kind == "number":
                    yield told | self._number(sums, _numbered(sums, attribute), level)
                elif attribute.kind == "graded":
                    yield told | _graded(sums.aggregates[place], level)
                elif attribute.kind == "category":
                    yield told | _category(sums, place, part, column)
                else:
                    yield told | {"reason": "Only the mean of each entry is estimated."}

    def _number(self, sums: Sums, number: Number, level: float) -> dict[str, Any]:
        if number.edges is None:
            return {"reason": _FEW}
        counts = sums.histogram(number)
        if counts.sum() == 0:
            return {"reason": _NONE}
        channel = self._channels.get(number)
        if channel is None:
            channel = self._channels[number] = Channel.of(number.mechanism, bins=BINS)
        table = channel.matrix

        def shares(seen: IntArray) -> FloatArray:
            return expectation_maximization(table, seen.astype(np.float64), smoothing=True).probabilities

        return _told(channel.inputs, counts, shares, level)


def _numbered(sums: Sums, attribute: Attribute) -> Number:
    return next(number for number in sums.layout.numbers if number.attribute is attribute)


def _named(part: Part, column: int) -> str:
    inner = getattr(part.mechanism, "inner_mechanisms", None)
    return str((part.mechanism if inner is None else inner[column]).name)


def _category(sums: Sums, place: int, part: Part, column: int) -> dict[str, Any]:
    """Return the nearest frequencies that are a distribution."""
    estimate = sums.estimates()[place]
    starts = np.concatenate([[0], np.cumsum([len(one.quantities) for one in part.attributes])])
    own = slice(int(starts[column]), int(starts[column + 1]))
    alone = replace(
        estimate,
        value=estimate.value[own],
        std_error=estimate.std_error[own],
        count=np.broadcast_to(estimate.count, estimate.value.shape)[own],
        names=None,
        low=0.0,
        high=1.0,
        tail=None,
        kind="frequency",
        groups=None,
    )
    if not np.all(np.isfinite(alone.value) & np.isfinite(alone.std_error)):
        return {"reason": _NONE}
    domain: Any = part.attributes[column].domain
    return {"distribution": {"labels": list(domain.labels), "probabilities": enhance(alone, method="simplex").value}}


def _graded(aggregate: Aggregate, level: float) -> dict[str, Any]:
    """Return the most likely distribution over the levels, drawn as flat as it may be within each."""
    edges, _ = maximum_likelihood(aggregate).probabilities(BINS)

    def shares(seen: IntArray) -> FloatArray:
        return maximum_likelihood(replace(aggregate, total=seen)).probabilities(BINS)[1]

    return _told(edges, aggregate.total, shares, level)


def _told(
    edges: FloatArray, counts: IntArray, shares: Callable[[IntArray], FloatArray], level: float
) -> dict[str, Any]:
    """Return a distribution and its quantiles, with intervals from counts that are drawn again.

    The intervals show how noise scatters the result. They do not know what smoothing and bins of finite width add.
    """
    found = shares(counts)
    rng = np.random.default_rng(0)  # the same counts have the same intervals
    drawn = rng.multinomial(int(counts.sum()), counts / counts.sum(), size=_AGAIN)
    again = np.stack([shares(one) for one in drawn])
    tails = ((1 - level) / 2, (1 + level) / 2)
    low, high = np.quantile(again, tails, axis=0)
    values = quantiles(edges, found, QUANTILES)
    least, most = np.quantile(np.stack([quantiles(edges, one, QUANTILES) for one in again]), tails, axis=0)
    rows = zip(QUANTILES, values, least, most, strict=True)
    return {
        "distribution": {"edges": edges, "probabilities": found, "low": low, "high": high},
        "quantiles": [dict(zip(("probability", "value", "low", "high"), row, strict=True)) for row in rows],
    }


def quantiles(edges: FloatArray, shares: FloatArray, chances: tuple[float, ...]) -> FloatArray:
    """Return the values below which the distribution has these shares; within a bin it is taken to be even.

    >>> quantiles(np.asarray([0.0, 1.0, 3.0]), np.asarray([0.5, 0.5]), (0.25, 0.5, 0.75)).tolist()
    [0.5, 1.0, 2.0]
    """
    ends = np.concatenate([[0.0], np.cumsum(shares / shares.sum())])
    rising = np.maximum.accumulate(ends + 1e-12 * np.arange(ends.size))  # interpolation needs it to rise
    return np.asarray(np.interp(chances, rising, edges))
