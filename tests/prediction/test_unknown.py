"""No knowledge at all: the worst case and the range over all distributions, for every mechanism that estimates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import noisette as nz
from noisette.prediction import compare, deviation
from noisette.prediction.model.extremes import _errors
from noisette.prediction.model.responses import Response

USERS = 40
NUMBERS = sorted(name for name, cls in nz.CATALOGUE.items() if cls.kind == "mean")
WHOLE = sorted(name for name, cls in nz.CATALOGUE.items() if cls.kind == "vector-mean")
CATEGORIES = sorted(name for name, cls in nz.CATALOGUE.items() if cls.kind == "frequency")


def points(domain: Any, count: int, rng: np.random.Generator) -> np.ndarray:
    """Draw values, the ends of the domain among them more often than chance would have it."""
    drawn = rng.uniform(domain.low, domain.high, count)
    drawn = np.where(rng.random(count) < 0.3, rng.choice([domain.low, domain.high], count), drawn)
    return domain.clip(drawn)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.5, 3.0])
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers(name: str, epsilon: float) -> None:
    """Sparse random distributions and all single values of a fine grid stay in the range, and come near both ends."""
    mechanism = nz.CATALOGUE[name].example(epsilon)
    unknown = deviation(mechanism, users=USERS)
    rng = np.random.default_rng(5)
    grid = mechanism.domain.clip(np.linspace(mechanism.domain.low, mechanism.domain.high, 401))
    moments = mechanism.moments(grid)
    single = moments.variance / USERS + moments.bias**2
    mixed = []
    for _ in range(200):
        values = points(mechanism.domain, int(rng.integers(2, 6)), rng)
        mixed.append(
            deviation(mechanism, users=USERS, values=values, probs=rng.dirichlet(np.full(values.size, 0.5))).mse
        )
    errors = np.concatenate([single, mixed])
    # kinks of a variance are found to a billionth of the domain, jumps by their nearer side
    slack = 1e-4 if name in ("lp-optimal", "optimal-graded", "levelled", "graded-laplace") else 1e-6
    assert errors.min() >= unknown.range[0] * (1 - slack)
    assert errors.max() <= unknown.range[1] * (1 + slack)
    assert unknown.mse == unknown.range[1]
    assert errors.max() >= unknown.range[1] * (1 - 0.02)
    pairs = [[grid[i], grid[-1 - i]] for i in range(0, 201, 5)]  # a bias may cancel between two values
    least = min(errors.min(), *(deviation(mechanism, users=USERS, values=pair).mse for pair in pairs))
    assert least <= unknown.range[0] * (1 + 0.02)


@pytest.mark.parametrize("name", CATEGORIES)
def test_categories(name: str) -> None:
    """Of each frequency, and of their average, which is never at its worst in all of them."""
    mechanism = nz.CATALOGUE[name].example(1.0)
    unknown, average = deviation(mechanism, users=USERS), compare([mechanism], users=USERS)[0]
    rng = np.random.default_rng(6)
    for _ in range(100):
        weights = rng.dirichlet(np.full(mechanism.domain.size, 0.3))
        error = deviation(mechanism, users=USERS, values=np.arange(mechanism.domain.size), probs=weights).mse
        assert np.all(error >= unknown.range[0] * (1 - 1e-9))
        assert np.all(error <= unknown.range[1] * (1 + 1e-9))
        assert average.range[0] * (1 - 1e-9) <= error.mean() <= average.range[1] * (1 + 1e-9)
    pure = deviation(mechanism, users=USERS, values=[0]).mse
    assert unknown.range[1][0] == pytest.approx(max(pure[0], pure[1]), rel=1e-9)
    assert unknown.range[0][0] == pytest.approx(min(pure[0], pure[1]), rel=1e-9)


@pytest.mark.parametrize("name", WHOLE)
def test_vectors(name: str) -> None:
    """The error averaged over the entries of random populations of vectors stays in the range."""
    mechanism = nz.CATALOGUE[name].example(2.0)
    average = compare([mechanism], users=USERS)[0]
    rng = np.random.default_rng(7)
    shape = mechanism.domain.shape
    errors = []
    for _ in range(60):
        rows = rng.uniform(-1, 1, (int(rng.integers(1, 5)), *shape))
        rows = np.where(rng.random(rows.shape) < 0.4, np.sign(rows), rows)
        errors.append(deviation(mechanism, users=USERS, values=mechanism.domain.clip(rows)).mse.mean())
    assert min(errors) >= average.range[0] * (1 - 1e-6)
    assert max(errors) <= average.range[1] * (1 + 1e-6)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("share", [1.0, 0.25])
def test_errors_of_two_values_are_those_of_sampling_theory(share: float, biased: bool) -> None:
    """Reports about a sample of the users: their noise, and how far the sample's mean is from that of all."""
    truth = np.linspace(-1, 1, 5)
    bias, variance = biased * 0.1 * truth, 2 + truth**2
    users, reports = 100.0, 100.0 * share
    response = Response(truth, bias, variance, np.ones(5), share, 2.0)
    first, second, weights, errors = _errors(response, users)
    low, high = response.centred[first], response.centred[second]
    for weight, error in zip(weights, errors, strict=True):
        mean, square = (1 - weight) * low + weight * high, (1 - weight) * low**2 + weight * high**2
        noise = (1 - weight) * variance[first] + weight * variance[second]
        off = (1 - weight) * bias[first] + weight * bias[second]
        assert error == pytest.approx(noise / reports + (1 - share) * (square - mean**2) / reports + off**2)
