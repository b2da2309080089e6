"""GradedLaplace: delta against integration and sums, the limit of calibration, and what bad input meets."""

from __future__ import annotations

import math
from decimal import Decimal, getcontext
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad

import noisette as nz
from noisette.mechanisms.graded.laplace import hockey_stick


def continuous(own: float, other: float, distance: float, epsilon: float) -> float:
    """delta(epsilon) of Laplace densities of these scales, by quadrature between all kinks."""

    def excess(y: float) -> float:
        p = math.exp(-abs(y) / own) / (2 * own)
        q = math.exp(-abs(y - distance) / other) / (2 * other)
        return max(p - math.exp(epsilon) * q, 0.0)

    near = own * np.geomspace(1e-8, 1, 60)  # at the centre of p the excess may be a narrow peak
    cuts = np.unique([*np.linspace(-40 * own, distance + 40 * own, 400), *near, *-near, 0.0, distance]).tolist()
    return math.fsum(quad(excess, a, b, epsabs=1e-16)[0] for a, b in pairwise(cuts))


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 3.0])
@pytest.mark.parametrize(
    ("own", "other", "distance"), [(2.0, 1.0, 1.3), (1.0, 2.0, 1.3), (1.0, 1.0, 0.7), (1.0, 4.0, 0.0)]
)
def test_divergence_is_the_integral(own: float, other: float, distance: float, epsilon: float) -> None:
    fine = 2.0**-14
    found = hockey_stick(fine / own, fine / other, round(distance / fine), epsilon)
    assert found == pytest.approx(continuous(own, other, distance, epsilon), rel=2e-4, abs=2e-6)
    assert hockey_stick(fine / own, fine / other, round(distance / fine), epsilon + 0.1) <= found


@pytest.mark.parametrize(("own", "other", "distance"), [(0.3, 0.2, 5), (0.2, 0.3, 5), (0.25, 0.25, 0), (1.0, 0.1, 3)])
def test_divergence_is_the_sum(own: float, other: float, distance: int) -> None:
    k = np.arange(-2000.0, 2001.0)
    p = math.tanh(own / 2) * np.exp(-own * np.abs(k))
    q = math.tanh(other / 2) * np.exp(-other * np.abs(k - distance))
    for epsilon in (0.0, 0.5, 2.0):
        exact = float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())
        assert hockey_stick(own, other, distance, epsilon) == pytest.approx(exact, rel=1e-9, abs=1e-13)


def test_no_epsilon_holds_without_delta() -> None:
    mechanism = nz.GradedLaplace([-1, 0, 1], [2.0, 1.0])
    assert nz.exact_epsilon(mechanism) == math.inf
    pure = np.asarray(nz.GradedLaplace([-1, 0, 1], [2.0, 1.0], delta=0.0).guarantee.matrix)
    # far out the wider noise is ever more likely, the narrower one at its centre b_1 / b_0 e^(2 / b_1) times
    assert pure == pytest.approx(np.asarray([[1.0, math.log(2) + 1], [math.inf, 0.5]]), rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-9])
def test_stated_matrix_is_exact(delta: float) -> None:
    mechanism = nz.GradedLaplace([-1, -0.6, 0, 1], [3.0, 2.0, 1.0], delta=delta)
    stated = mechanism.guarantee
    assert stated.delta == delta
    assert nz.exact_epsilon(mechanism, delta=delta) == pytest.approx(stated.epsilon, rel=1e-6)
    assert nz.exact_delta(mechanism, stated.epsilon) <= delta * (1 + 1e-9)
    scales, ends = [2 / 3, 1.0, 2.0], [(-1, -0.6), (-0.6, 0), (0, 1)]
    for i in range(3):
        for j in range(3):
            far = max(abs(ends[i][1] - ends[j][0]), abs(ends[j][1] - ends[i][0]))
            below, above = (stated.matrix[i][j] * (1 + sign * 1e-5) for sign in (-1, 1))  # rounding to the lattice
            assert continuous(scales[i], scales[j], far, above) < delta < continuous(scales[i], scales[j], far, below)
    # the twin: the paper's pure max(e_t) leaves far more than delta
    assert nz.exact_delta(mechanism, 3.0) > 1e-2


def test_likelihood_is_the_noise_of_the_level() -> None:
    mechanism = nz.GradedLaplace([-1, 0, 1], [4.0, 1.0])
    reports = mechanism.support.value(np.asarray([-3e6, 0.0, 2e6, 3e7]))
    for x, scale in ((-0.5, 0.5), (0.5, 2.0)):
        density = np.exp(-np.abs(reports - x) / scale) / (2 * scale)
        assert np.exp(mechanism.log_prob(reports, x)) == pytest.approx(density, rel=1e-5)
        assert float(mechanism.moments(x).variance) == pytest.approx(2 * scale**2, rel=1e-6)


@pytest.mark.long
def test_unordered_budgets() -> None:
    mechanism = nz.GradedLaplace([0, 1, 2, 3], [0.5, 2.0, 1.0])
    nz.testing.check_mechanism(mechanism, samples=40_000)
    assert np.argmax(mechanism.guarantee.matrix) == 1  # from the widest noise to the narrowest


def test_calibration() -> None:
    near = nz.GradedLaplace([-1, 0, 1], [1.0, 1.05])
    total = near.calibrate(total=2.0)
    assert 2.0 * (1 - 1e-9) < total.guarantee.epsilon <= 2.0 * (1 + 1e-12)
    target = [[1.0, 3.0], [2.0, 1.0]]
    graded = near.calibrate(matrix=target)
    assert np.all(np.asarray(graded.guarantee.matrix) <= np.asarray(target) * (1 + 1e-12))
    with pytest.raises(ValueError, match="noises too unlike each other"):
        nz.GradedLaplace([-1, 0, 1], [1.0, 2.0]).calibrate(total=1.0)
    fitted = nz.GradedLaplace([-1, 0, 1], [1.0, 2.0]).fitted(domain=nz.Interval(0, 10), epsilon=1.0, delta=1e-9)
    assert fitted.edges == (0.0, 5.0, 10.0)
    assert fitted.guarantee.epsilon <= 1.0 + 1e-12


def test_the_published_claim_is_false_and_says_so() -> None:
    with pytest.warns(nz.PrivacyWarning, match="published claim of epsilon=2 per record does not hold"):
        published = nz.GradedLaplace([-1, 0, 1], [2.0, 1.0], as_published=True)
    assert published.guarantee.epsilon == math.inf


@pytest.mark.parametrize(
    ("edges", "epsilons", "options", "message"),
    [
        ([1, 0], [1.0], {}, "rising order"),
        ([0, 1], [1.0, 2.0], {}, "one budget for each of 1 levels"),
        ([0, 1], [1.0], {"delta": 2.0}, "Expected delta=2.0"),
        ([0, 1], [-1.0], {}, r"epsilons\[0\]=-1.0 > 0"),
    ],
)
def test_bad_input(edges: Any, epsilons: Any, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        nz.GradedLaplace(edges, epsilons, **options)


def test_values_outside() -> None:
    with pytest.raises(ValueError, match=r"Expected values in Interval\(low=0.0, high=1.0\), got 2.0"):
        nz.GradedLaplace([0, 1], [1.0]).privatize(2.0)


def exact_delta(rate: float, distance: int, epsilon: float) -> Decimal:
    """Return P(K >= first) - exp(epsilon) P(K >= first + distance) with 60 digits, the first where p is more."""
    getcontext().prec = 60
    own, growth = Decimal(rate), Decimal(epsilon).exp()

    def tail(first: int) -> Decimal:
        return 1 - tail(1 - first) if first < 1 else (-own * first).exp() / (1 + (-own).exp())

    first = math.ceil(Fraction(epsilon) / (2 * Fraction(rate)) - Fraction(distance, 2))
    return tail(first) - growth * tail(first + distance)


@pytest.mark.parametrize("distance", [131_072, 524_288])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-9])
def test_a_delta_is_rounded_up(distance: int, delta: float) -> None:
    """Two chances near a half that differ by a millionth: float64 alone was too small by 2e-9 of the difference."""
    rate = 4.223094286765397e-08
    low, high = 0.0, rate * distance
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if hockey_stick(rate, rate, distance, middle) > delta else (low, middle)
    assert 0.999 * delta < exact_delta(rate, distance, high) <= delta
