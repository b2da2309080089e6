"""The best and the worst population against all mixtures of a fine mesh."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import noisette as nz
from noisette.prediction.model.extremes import _errors, extreme_weights, largest_error, trial_points
from noisette.prediction.model.responses import respond


@pytest.mark.parametrize("name", ["square-wave", "piecewise", "laplace"])
@pytest.mark.parametrize("users", [10.0, 10_000.0])
def test_no_mixture_of_two_values_is_better_or_worse(name: str, users: float) -> None:
    mechanism: Any = nz.CATALOGUE[name](1.0)
    points = np.linspace(mechanism.domain.low, mechanism.domain.high, 9)
    response = respond(mechanism, points)
    moments = mechanism.moments(points)

    def error(weights: Any) -> float:
        return float(weights @ moments.variance) / users + float(weights @ moments.bias) ** 2

    best, worst = extreme_weights(response, users)
    for weights in (best, worst):
        assert weights.sum() == pytest.approx(1)
        assert np.count_nonzero(weights) <= 2
    for first, second in itertools.combinations_with_replacement(range(9), 2):
        for share in np.linspace(0, 1, 21):
            weights = np.zeros(9)
            weights[first] += 1 - share
            weights[second] += share
            assert error(best) * (1 - 1e-9) <= error(weights) + 1e-15
            assert error(weights) <= error(worst) * (1 + 1e-9) + 1e-15
    assert largest_error(response, users) == pytest.approx(error(worst), rel=1e-9)


def test_errors_of_pairs_are_those_of_their_mixtures() -> None:
    """With a share of dimensions that are not reported the spread of the truths counts too."""
    mechanism: Any = nz.Sampled("square-wave", epsilon=1.0, dims=4, report=1, options={})
    points = np.linspace(-1, 1, 5)
    response = respond(mechanism, points)
    first, second, tried, errors = _errors(response, 50.0)
    assert response.share == 0.25
    for column in range(first.size):
        for row in range(3):
            w = tried[row, column]
            a, b = first[column], second[column]
            bias = (1 - w) * response.bias[a] + w * response.bias[b]
            mean = (1 - w) * response.centred[a] + w * response.centred[b]
            square = (1 - w) * response.centred[a] ** 2 + w * response.centred[b] ** 2
            variance = (1 - w) * response.variance[a] + w * response.variance[b] + 0.75 * (square - mean**2)
            assert errors[row, column] == pytest.approx(variance / 12.5 + bias**2, rel=1e-9)
        assert np.all(tried[[0, 2], column] == [0, 1])


def test_a_variance_with_a_kink_is_searched_more_finely() -> None:
    quadratic = trial_points(nz.Piecewise(1.0))
    assert quadratic.size == 33
    assert quadratic[[0, -1]].tolist() == [-1.0, 1.0]
    kinked: Any = nz.LevelledResponse((-1.0, 0.3, 1.0), (3.0, 1.0))
    points = trial_points(kinked)
    assert points.size > 100
    assert np.isin(np.linspace(-1, 1, 129), points).all()
    assert points.size == 130  # and the kink
    assert np.abs(points - 0.3).min() < 2e-9, "the kink, to a billionth of the domain"
    variance = kinked.moments(np.linspace(-1, 1, 20_001)).variance
    found = kinked.moments(points).variance
    assert found.max() >= variance.max() * (1 - 1e-6)
    assert found.min() <= variance.min() * (1 + 1e-6)
    ends = trial_points(nz.PrivUnitG(1.0, dims=3))
    assert ends.size == 2


@pytest.mark.parametrize("length", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("kinked", [True, False])
def test_where_a_variance_is_looked_at_does_not_depend_on_the_unit(kinked: bool, length: float) -> None:
    """Kinks are told from rounding by the size of the variance, be it a millionth of a millionth."""

    def made(end: float) -> Any:
        if kinked:
            return nz.LevelledResponse((-end, 0.3 * end, end), (3.0, 1.0))
        return nz.Piecewise(6.0, domain=nz.Interval(-end, end))

    unit, scaled = trial_points(made(1.0)), trial_points(made(length))
    assert scaled.size == unit.size
    assert scaled / length == pytest.approx(unit, abs=1e-6)
