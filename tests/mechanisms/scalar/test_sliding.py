"""SlidingHalf: golden variances, the exact law, and what it is chosen for."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import noisette as nz

DOMAINS = (nz.Interval(), nz.Interval(0, 100), nz.Interval(5, 5.1), nz.Interval(-1e9, 1e9), nz.Interval(1e6, 1e6 + 1))


def by_hand(epsilon: float, size: int = 8) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Outputs, points and second moments from the formula, in floating point, on [-1, 1]."""
    likely, rare = math.exp(epsilon) / (size * (1 + math.exp(epsilon))), 1 / (size * (1 + math.exp(epsilon)))
    parts = [math.tanh(epsilon / 2) * ((2 * k + 1) / size - 1) for k in range(size)]
    outputs = np.asarray([-math.exp(part) for part in reversed(parts)] + [math.exp(part) for part in parts])
    rows = np.full((size + 1, 2 * size), rare)
    for row in range(size + 1):
        rows[row, row : row + size] = likely
    outputs = outputs / (rows[-1] @ outputs)
    return outputs, rows @ outputs, rows @ outputs**2


@pytest.mark.parametrize(("epsilon", "variance"), [(0.1, 400.0105), (0.5, 16.0136), (1.0, 4.0232), (1.5, 1.8166)])
def test_the_worst_variance(epsilon: float, variance: float) -> None:
    """Computed apart: between two points the second moment is linear, so the variance is a parabola."""
    _, points, squares = by_hand(epsilon)
    slopes = np.diff(squares) / np.diff(points)
    where = np.clip(slopes / 2, points[:-1], points[1:])
    assert max(squares[:-1] + slopes * (where - points[:-1]) - where**2) == pytest.approx(variance, abs=1e-4)
    x = np.linspace(-1, 1, 4001)
    assert nz.SlidingHalf(epsilon).moments(x).variance.max() == pytest.approx(variance, rel=2e-4)


def test_it_is_near_the_least_possible_and_below_others() -> None:
    """LpOptimal at 0.5 is the closed form of which this is sixteen parts; Hybrid and Duchi are above."""
    x = np.linspace(-1, 1, 401)
    worst = {name: nz.build(name, nz.Interval(), epsilon=0.5).moments(x).variance.max() for name in ("duchi", "hybrid")}
    own = nz.SlidingHalf(0.5).moments(x).variance.max()
    assert own < 1.001 * nz.LpOptimal(0.5).moments(x).variance.max()
    assert own < 0.97 * min(worst.values())


@pytest.mark.parametrize("domain", DOMAINS, ids=str)
@pytest.mark.parametrize("epsilon", [1e-7, 0.01, 1.0, 5.0, 40.0])
def test_the_law_is_exact(domain: nz.Interval, epsilon: float) -> None:
    """Each row adds up, no ratio is above exp(epsilon) though little below, and the points hold the domain."""
    law = nz.SlidingHalf(epsilon, domain=domain).law()
    assert {sum(row) for row in law.counts.tolist()} == {2**53}
    ratio = Fraction(law.likely, law.rare)
    assert math.log1p(float(ratio - 1)) <= epsilon
    if epsilon <= 30:
        assert math.log1p(float(ratio - 1)) > epsilon * (1 - 1e-6)
    assert law.points[0] <= domain.low < domain.high <= law.points[-1]
    outputs = [Fraction(value) for value in law.support.values]
    for row, point in zip(law.counts.tolist(), law.points.tolist(), strict=True):
        mean = sum(Fraction(count, 2**53) * output for count, output in zip(row, outputs, strict=True))
        assert float(mean) == point


def test_a_value_is_moved_to_a_point_without_bias() -> None:
    mechanism = nz.SlidingHalf(1.0, domain=nz.Interval(0, 10))
    x = np.linspace(0, 10, 1001)
    assert np.abs(mechanism.moments(x).bias).max() < 1e-13


def test_chances_of_the_formula() -> None:
    outputs, points, _ = by_hand(1.0)
    mechanism = nz.SlidingHalf(1.0)
    np.testing.assert_allclose(mechanism.support.values, outputs, rtol=1e-3)  # outputs are on a lattice
    np.testing.assert_allclose(mechanism.law().points, points, rtol=2e-3, atol=2e-3)
    middle = np.exp(mechanism.log_prob(np.asarray(mechanism.support.values), 0.0))
    np.testing.assert_allclose(middle[4:12], math.e / (8 * (1 + math.e)), rtol=1e-12)
    np.testing.assert_allclose(middle[:4], 1 / (8 * (1 + math.e)), rtol=1e-12)
    assert mechanism.log_prob(0.123, 0.0) == -np.inf


@pytest.mark.parametrize("epsilon", [0.3, 0.5, 1.0])
def test_a_survey_takes_it_for_a_mean_at_small_budgets(epsilon: float) -> None:
    """It is never far from the best: whatever people's numbers are like, at most 1.06 times the error of any other."""
    survey = nz.Survey([nz.Number("age", 0, 100)], epsilon=epsilon)
    assert survey.randomizer.name == "sliding-half"
    x = np.linspace(0, 100, 101)
    others = [nz.build(name, nz.Interval(0, 100), epsilon=epsilon) for name in ("duchi", "piecewise", "hybrid")]
    own = survey.randomizer.moments(x).variance
    for mean in (3.0, 10.0, 20.0, 35.0, 50.0):
        people = np.exp(-0.5 * ((x - mean) / 10) ** 2)
        errors = [float(one.moments(x).variance @ people) for one in others]
        assert (float(own @ people) / min(errors)) ** 0.5 < 1.06


@pytest.mark.parametrize("epsilon", [0.3, 2.0])
def test_moments_are_those_of_the_law(epsilon: float) -> None:
    """Enumerated: sixteen outputs with their integer weights, between two points and on one."""
    mechanism = nz.SlidingHalf(epsilon, domain=nz.Interval(-2, 6))
    values = np.asarray([-2.0, -0.7, float(mechanism.law().points[3]), 5.9])
    outputs, found = np.asarray(mechanism.support.values), mechanism.moments(values)
    for place, x in enumerate(values.tolist()):
        chances = np.asarray([weight / mechanism.law().total for weight in mechanism.law().weights(x)])
        mean = chances @ outputs
        assert mean == pytest.approx(x, abs=1e-9)
        assert found.variance[place] == pytest.approx(chances @ (outputs - mean) ** 2, rel=1e-9)
        assert found.third[place] == pytest.approx(chances @ np.abs(outputs - mean) ** 3, rel=1e-9)
