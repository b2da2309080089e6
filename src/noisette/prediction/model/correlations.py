"""The correlation between the deviations of two estimated quantities."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from noisette import _validate
from noisette._validate import FloatArray
from noisette.core import Mechanism
from noisette.domains import Box
from noisette.mechanisms.categorical._base import CategoricalMechanism
from noisette.mechanisms.vector._vectors import VectorMechanism
from noisette.mechanisms.vector.attributes import SampledAttributes
from noisette.mechanisms.vector.sampled import Sampled
from noisette.prediction.model import populations
from noisette.prediction.model.responses import respond, scalar_domain

MOST_QUANTITIES = 4096  # quantities up to which covariances are computed


def covariance(
    mechanism: Mechanism, users: int, values: Any, probs: Any, distribution: str | None
) -> tuple[FloatArray | None, bool]:
    """Return the covariances of the deviations (the diagonal is not meant), and whether they are exact.

    None stands for independence where that is exact, and for a dependence that is unknown or left out elsewhere.
    """
    if isinstance(mechanism, SampledAttributes):
        return _records(mechanism, users, values, probs)
    if mechanism.domain.shape == ():
        return _categories(mechanism, users, values, probs, distribution)
    dims = math.prod(mechanism.domain.shape)
    if dims > MOST_QUANTITIES:
        return None, False
    if isinstance(mechanism, Sampled):
        if np.ndim(values) != 2:
            return None, True
        rows, weights = _table(mechanism, values, probs)
        factor = -(dims - mechanism.report) / (max(1, dims - 1) * mechanism.report * users)
        return factor * _spread(respond(mechanism, rows).centred, weights), True
    coupling = mechanism.coupling if isinstance(mechanism, VectorMechanism) else None
    if coupling is None:
        return None, False
    middle = (mechanism.domain.lows + mechanism.domain.highs) / 2 if isinstance(mechanism.domain, Box) else 0.0
    if np.ndim(values) == 2:
        rows, weights = _table(mechanism, values, probs)
        centred = rows - middle
        return coupling / users * (centred * weights[:, None]).T @ centred, True
    population = populations.known(values, probs, distribution, scalar_domain(mechanism), dims=dims)
    assert population is not None  # the caller knows something
    mean = np.full(dims, float(population.pooled @ population.points)) - middle
    return coupling / users * np.outer(mean, mean), True


def _table(mechanism: Any, values: Any, probs: Any) -> tuple[FloatArray, FloatArray]:
    rows = _validate.reals(values, "values")
    return rows, populations.probabilities(probs, len(rows))


def _spread(rows: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the weighted covariance matrix of rows."""
    centred = rows - weights @ rows
    return np.asarray((centred * weights[:, None]).T @ centred)


def _categories(
    mechanism: Any, users: int, values: Any, probs: Any, distribution: str | None
) -> tuple[FloatArray | None, bool]:
    """Return the covariances of the frequencies of one attribute."""
    if mechanism.kind != "frequency":
        return None, True
    pair = mechanism.covariances if isinstance(mechanism, CategoricalMechanism) else None
    if pair is None or mechanism.domain.size > MOST_QUANTITIES:
        return None, False
    population = populations.known(values, probs, distribution, mechanism.domain)
    assert population is not None  # the caller knows something
    return _among_categories(population.pooled, pair) / users, True


def _among_categories(frequency: FloatArray, pair: tuple[float, float]) -> FloatArray:
    """Average the covariances of one report over users: some hold one of the two categories, most hold neither."""
    mixed, others = pair
    return np.asarray(others + (frequency[:, None] + frequency) * (mixed - others))


def _records(mechanism: Any, users: int, values: Any, probs: Any) -> tuple[FloatArray | None, bool]:
    """Return the covariances within attributes, and those between attributes, which differ in who reports them."""
    groups: tuple[int, ...] = mechanism.groups
    if sum(groups) > MOST_QUANTITIES or np.ndim(values) != 2:
        return None, False
    rows, weights = _table(mechanism, values, probs)
    dims, report = mechanism.dims, mechanism.report
    spread = _spread(mechanism.domain.expand(rows) + mechanism.moments(rows).bias, weights)
    matrix = -(dims - report) / (max(1, dims - 1) * report * users) * spread
    starts = np.cumsum([0, *groups])
    frequency = weights @ mechanism.domain.expand(rows)
    for inner, start, stop in zip(mechanism.inner_mechanisms, starts[:-1], starts[1:], strict=True):
        own = slice(int(start), int(stop))
        among = (1 - report / dims) * spread[own, own]
        if inner.kind == "frequency":
            pair = inner.covariances if isinstance(inner, CategoricalMechanism) else None
            if pair is None:
                return None, False
            among = among + _among_categories(frequency[own], pair)
        matrix[own, own] = among / (users * report / dims)
    return matrix, True
