"""Predictions for records: attributes of one kind together, so that thousands cost no more than a few."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from noisette import _validate
from noisette._validate import FloatArray, IntArray
from noisette.domains import Attributes, Categorical
from noisette.prediction.curves import ErrorCurve, Known, WorstCase
from noisette.prediction.model import populations
from noisette.prediction.model.deviations import Deviation, describe
from noisette.prediction.model.extremes import extreme_weights
from noisette.prediction.model.populations import Population
from noisette.prediction.model.responses import ROUNDING, Response, respond


@dataclass(frozen=True, eq=False)
class Errors:
    """noise / users + bias^2 for each of several attributes, averaged over its quantities; ``bias`` is their mean."""

    noise: FloatArray
    square: FloatArray
    bias: FloatArray
    unbiased: bool

    def at(self, users: float) -> FloatArray:
        """Return the mean squared errors."""
        return np.asarray(self.noise / users + self.square)

    def average(self) -> Known:
        """Return the error averaged over the attributes."""
        return Known(float(self.noise.mean()), float(self.square.mean()), float(self.bias.mean()), self.unbiased)


@dataclass(frozen=True, eq=False)
class Group:
    """Attributes of one domain, and the distribution of each over points that all share, if it is known."""

    domain: Any
    members: IntArray
    points: FloatArray
    weights: FloatArray | None

    @property
    def size(self) -> int:
        """Quantities that an estimate has for each attribute."""
        return self.domain.size if isinstance(self.domain, Categorical) else 1

    def only(self, places: IntArray) -> Group:
        """Return some members of the group."""
        return replace(
            self, members=self.members[places], weights=None if self.weights is None else self.weights[places]
        )

    def respond(self, inner: Any, share: float) -> Response:
        """Return the response of an inner mechanism when ``share`` of the users report the attribute."""
        return replace(respond(inner, self.points), share=share)

    def curves(self, inner: Any, share: float) -> Errors | WorstCase:
        """Return the errors of all attributes against the number of users; the worst one is the same for all."""
        response = self.respond(inner, share)
        if self.weights is None:
            return WorstCase(response)
        if response.variance.ndim == 2 and response.codes is None:
            rows = (Population(self.points, row[None], np.ones(1)) for row in self.weights)
            each = [Known.of(response, row) for row in rows]
            noise, square, bias = np.asarray([(one.noise, one.square, one.bias) for one in each]).T
            return Errors(noise, square, bias, response.unbiased)
        if response.variance.ndim == 2:
            size = self.weights.shape[1]
            sampling_variance = (1 - share) * (1 - (self.weights**2).sum(axis=1)) / size
            none = np.zeros(self.members.size)
            return Errors((response.pure_variances()[0] + sampling_variance) / share, none, none, True)
        bias, mean = self.weights @ response.bias, response.centred
        spread = np.maximum(self.weights @ mean**2 - (self.weights @ mean) ** 2, 0.0)
        noise = np.maximum(self.weights @ response.variance + (1 - share) * spread, 0.0) / share
        bias = np.where(np.abs(bias) > ROUNDING * response.scale, bias, 0.0)
        return Errors(noise, bias**2, bias, response.unbiased)

    def deviations(self, inner: Any, share: float, users: int) -> list[Deviation]:
        """Return the deviation of each attribute's quantities."""
        response = self.respond(inner, share)
        if self.weights is not None:
            return [describe(response, response.weigh(row), users) for row in self.weights]
        least, worst = (describe(response, weights, users) for weights in extreme_weights(response, users))
        return [replace(worst, range=(least.mse, worst.mse))] * self.members.size


@dataclass(frozen=True, eq=False)
class Averaged:
    """The average of several curves with weights."""

    curves: Sequence[tuple[float, ErrorCurve]]

    @property
    def unbiased(self) -> bool:
        """Whether the error falls to zero as users are added."""
        return all(curve.unbiased for _, curve in self.curves)

    def at(self, users: float) -> float:
        """Return the mean squared error."""
        return sum(weight * curve.at(users) for weight, curve in self.curves)

    def describe(self, users: float) -> tuple[float, float, float]:
        """Return the root of the mean square of bias and deviation at the worst distribution, and the least error."""
        bias, variance, least = np.zeros(3)
        for weight, curve in self.curves:
            own: Any = curve
            b, std, low = own.describe(users)
            bias, variance, least = bias + weight * b**2, variance + weight * std**2, least + weight * low
        return float(np.sqrt(bias)), float(np.sqrt(variance)), float(least)


def average(curves: Sequence[tuple[float, Errors | WorstCase]]) -> Known | Averaged:
    """Average curves; curves whose distributions are known become one."""
    known = [(weight, curve.average()) for weight, curve in curves if isinstance(curve, Errors)]
    if len(known) < len(curves):
        return Averaged([(weight, curve) for weight, curve in curves if isinstance(curve, WorstCase)])
    return Known(
        sum(weight * curve.noise for weight, curve in known),
        sum(weight * curve.square for weight, curve in known),
        sum(weight * curve.bias for weight, curve in known),
        all(curve.unbiased for _, curve in known),
    )


def groups(domain: Attributes, values: Any, probs: Any, distribution: str | None) -> list[Group]:
    """Sort attributes by their domains, with what is known about each.

    ``values`` is a table of records, or a list of values that every attribute has alike.
    """
    distinct, owner = domain.distinct
    table = np.ndim(values) == 2
    if table:
        rows = _validate.reals(values, "values")
        _validate.trailing(rows, domain.shape, "values")
        populations.check_inside(rows, domain)
    found = []
    for place, own in enumerate(distinct):
        index = np.flatnonzero(owner == place)
        if table:
            population = _columns(rows[:, index], probs, own)
        else:
            known = populations.known(_codes(values, own), probs, distribution, own)
            if known is None:
                found.append(Group(own, index, populations.candidates(own), None))
                continue
            population = Population(known.points, np.repeat(known.pooled[None], index.size, axis=0), np.ones(1))
        found.append(Group(own, index, population.points, population.weights))
    return found


def _codes(values: Any, domain: Any) -> Any:
    """Return a list of values as whole numbers where they stand for categories."""
    if values is None or not isinstance(domain, Categorical):
        return values
    array = np.asarray(values)
    return array.astype(np.int64) if array.dtype.kind == "f" and np.all(array == np.floor(array)) else array


def _columns(rows: FloatArray, probs: Any, domain: Any) -> Population:
    """Return the distributions of some columns of a table."""
    if not isinstance(domain, Categorical):
        return populations.table(rows, probs, domain, dims=rows.shape[1])
    weights = populations.probabilities(probs, len(rows))
    cells = rows.astype(np.int64) + domain.size * np.arange(rows.shape[1])
    share = np.broadcast_to(weights[:, None], rows.shape)
    counts: FloatArray = np.bincount(cells.ravel(), share.ravel(), minlength=domain.size * rows.shape[1]).astype(float)
    return Population(np.arange(float(domain.size)), counts.reshape(-1, domain.size), np.ones(1))


def record_curve(mechanism: Any, known: list[Group]) -> Known | Averaged:
    """Return the error of a mechanism on records, averaged over all quantities."""
    share, total = mechanism.report / mechanism.dims, sum(mechanism.groups)
    parts = [
        (group.size * own.members.size / total, own.curves(inner, share))
        for group in known
        for inner, own in _owners(mechanism, group)
    ]
    return average(parts)


def record_deviation(mechanism: Any, users: int, known: list[Group]) -> Deviation:
    """Return the deviation of all quantities of a mechanism on records."""
    share = mechanism.report / mechanism.dims
    found: list[Any] = [None] * mechanism.dims
    for group in known:
        for inner, own in _owners(mechanism, group):
            for j, one in zip(own.members.tolist(), own.deviations(inner, share, users), strict=True):
                found[j] = one

    def joined(get: Any) -> FloatArray:
        return np.concatenate(
            [np.broadcast_to(get(one), (size,)) for one, size in zip(found, mechanism.groups, strict=True)]
        )

    columns = (joined(lambda one: one.bias), joined(lambda one: one.std), joined(lambda one: one.third))
    limits = joined(lambda one: one.range[0]), joined(lambda one: one.range[1])
    return Deviation(*columns, found[0].reports, limits)


def _owners(mechanism: Any, group: Group) -> list[tuple[Any, Group]]:
    """Cut a group by the mechanisms that its members go through."""
    owners = mechanism.owners[group.members]
    cuts = [np.flatnonzero(owners == owner) for owner in np.unique(owners).tolist()]
    return [(mechanism.inner_mechanisms[int(group.members[cut[0]])], group.only(cut)) for cut in cuts]
