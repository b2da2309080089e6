"""The best and the worst distribution of the true values for a mechanism."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from noisette._validate import FloatArray, IntArray
from noisette.core import Mechanism
from noisette.domains import Interval, Sphere
from noisette.mechanisms.vector.sampled import Sampled
from noisette.prediction.model import populations
from noisette.prediction.model.responses import Response, respond, scalar_domain

_QUADRATIC = 1e-6  # relative distance from a parabola that rounding to a lattice explains
_FINE = 1025


def trial_points(mechanism: Mechanism, count: int = 33) -> FloatArray:
    """Return values of one dimension between which the worst and the best distribution are sought.

    An evenly spaced grid has the extremes of a variance that is quadratic in the value, as most are: they lie at the
    ends and in the middle. Where the variance has kinks or jumps a finer grid is searched, and the neighbourhoods of
    its least and largest point once more, until the points there are a billionth of the domain apart.
    """
    domain = scalar_domain(mechanism)
    if isinstance(mechanism.domain, Sphere):  # vectors whose entries are all alike have one length only
        return np.asarray([domain.low, domain.high])  # type: ignore[attr-defined]
    points = populations.candidates(domain, count)
    if not isinstance(domain, Interval) or (mechanism.domain.shape != () and not isinstance(mechanism, Sampled)):
        return points
    variance = respond(mechanism, points).variance
    place = (points - points[0]) / domain.diameter
    fitted = np.polyval(np.polyfit(place, variance, 2), place)
    if np.abs(fitted - variance).max() <= _QUADRATIC * variance.max():
        return points
    fine = populations.candidates(domain, _FINE)
    found = [points, fine[:: (_FINE - 1) // 128]]
    for pick in (np.argmin, np.argmax):
        near, width = fine, domain.diameter / (_FINE - 1)
        for _ in range(5):
            best = near[int(pick(respond(mechanism, near).variance))]
            near = np.unique(np.clip(np.linspace(best - width, best + width, 65), domain.low, domain.high))
            width /= 32
        found.append(near[[int(pick(respond(mechanism, near).variance))]])
    return np.unique(np.concatenate(found))


def extreme_weights(response: Response, users: float) -> tuple[FloatArray, FloatArray]:
    """Return the weights of the true values of least and of largest mean squared error, for each quantity.

    The error of an unbiased average over all users is linear in the distribution: both extremes are single values.
    Else it is linear at a given mean, when the bias is affine in the value, as it is for every mechanism of ours: both
    extremes lie on two values, where the error is a quadratic of the weight.
    """
    if response.variance.ndim == 1:
        return _two_values(response, users)
    if response.share == 1 and response.unbiased:
        values = np.arange(len(response.variance))[:, None]
        least, worst = np.argmin(response.variance, axis=0), np.argmax(response.variance, axis=0)
        return (values == least).astype(np.float64), (values == worst).astype(np.float64)
    pairs = [_two_values(response.column(c), users) for c in range(response.variance.shape[1])]
    return np.stack([pair[0] for pair in pairs], axis=1), np.stack([pair[1] for pair in pairs], axis=1)


def largest_error(response: Response, users: float) -> float:
    """Return the largest mean squared error over all distributions of one quantity."""
    return float(_errors(response, users)[-1].max())


def _two_values(response: Response, users: float) -> tuple[FloatArray, FloatArray]:
    """Return the weights of the best and of the worst pair of values."""
    first, second, tried, errors = _errors(response, users)
    found = []
    for index in (np.argmin(errors), np.argmax(errors)):
        choice, pair = np.unravel_index(int(index), errors.shape)
        weights = np.zeros(len(response.bias))
        weights[first[pair]] += 1 - tried[choice, pair]
        weights[second[pair]] += tried[choice, pair]
        found.append(weights)
    return found[0], found[1]


@lru_cache(maxsize=8)
def _pairs(size: int) -> tuple[IntArray, IntArray]:
    """Return the positions of all pairs out of ``size``."""
    first, second = np.triu_indices(size)
    return first.astype(np.int64), second.astype(np.int64)


def _errors(response: Response, users: float) -> tuple[IntArray, IntArray, FloatArray, FloatArray]:
    """Return all pairs of values, three weights of the second one, and the errors: the extremes are among them."""
    mean, bias, variance = response.centred, response.bias, response.variance
    reports, missing = users * response.share, 1 - response.share
    first, second = _pairs(mean.size)
    d_mean, d_bias = mean[second] - mean[first], bias[second] - bias[first]
    # weight w on the second value: error = c0 + c1 w + c2 w^2
    spread = variance[second] - variance[first] + missing * d_mean**2
    c0 = variance[first] / reports + bias[first] ** 2
    c1 = spread / reports + 2 * bias[first] * d_bias
    c2 = d_bias**2 - missing * d_mean**2 / reports
    with np.errstate(divide="ignore", invalid="ignore"):
        inner = np.nan_to_num(np.clip(-c1 / (2 * c2), 0.0, 1.0))
    tried = np.stack([np.zeros_like(inner), inner, np.ones_like(inner)])
    return first, second, tried, np.asarray(c0 + tried * (c1 + tried * c2))
