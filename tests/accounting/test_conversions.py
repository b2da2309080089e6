"""Conversions: against high precision, tight where they claim to be, and refused when a little less is claimed."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from scipy.special import ndtr

import noisette as nz
from noisette.accounting import (
    gdp_delta,
    gdp_epsilon,
    gdp_from_pure,
    gdp_mu,
    randomized_response_delta,
    rdp,
    rdp_epsilon,
    zcdp,
    zcdp_delta,
    zcdp_epsilon,
    zcdp_from_pure,
    zcdp_rho,
)

EPSILONS = (1e-3, 0.1, 1.0, 4.0, 12.0)
ORDERS = 1 + np.geomspace(1e-4, 1e4, 400)


def _renyi(epsilon: float, order: float) -> float:
    """Renyi divergence of binary randomised response with forty digits."""
    with mpmath.workdps(40):
        e, a = mpmath.mpf(epsilon), mpmath.mpf(order)
        p = 1 / (1 + mpmath.exp(-e))
        q = 1 - p
        return float(mpmath.log(p**a * q ** (1 - a) + q**a * p ** (1 - a)) / (a - 1))


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_pure_to_concentrated_holds_at_every_order(epsilon: float) -> None:
    rho = zcdp_from_pure(epsilon)
    assert rho <= epsilon**2 / 2
    for order in ORDERS[::10]:
        assert _renyi(epsilon, order) <= rho * order * (1 + 1e-12)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_a_smaller_rho_is_violated_by_randomized_response(epsilon: float) -> None:
    """The twin: one thousandth less is too little."""
    rho = 0.999 * zcdp_from_pure(epsilon)
    assert any(_renyi(epsilon, order) > rho * order for order in ORDERS[:40])


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_renyi_divergences_of_randomized_response(epsilon: float) -> None:
    orders = [1.5, 2.0, 8.0, 64.0]
    found = rdp(nz.Guarantee(epsilon), orders)
    assert found == pytest.approx([_renyi(epsilon, order) for order in orders], rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_laplace_has_its_known_divergences(epsilon: float) -> None:
    """Mironov 2017, Proposition 6, and rho = e + exp(-e) - 1 of Harrison and Manurangsi 2025."""
    orders = np.asarray([1.5, 2.0, 8.0, 64.0])
    exact = np.log(
        orders / (2 * orders - 1) * np.exp(epsilon * (orders - 1))
        + (orders - 1) / (2 * orders - 1) * np.exp(-epsilon * orders)
    ) / (orders - 1)
    found = rdp(nz.Laplace(epsilon=epsilon), orders)
    assert np.all(found >= exact * (1 - 1e-12))
    assert found == pytest.approx(exact, rel=1e-4)
    rho = epsilon + math.exp(-epsilon) - 1
    assert rho * (1 - 1e-9) <= zcdp(nz.Laplace(epsilon=epsilon)) <= rho * 1.003


def test_gaussian_noise_is_concentrated_by_its_variance() -> None:
    mechanism = nz.Gaussian(epsilon=1.0, delta=1e-6)
    assert zcdp(mechanism) == pytest.approx(2 / mechanism.sigma**2, rel=1e-6)
    assert rdp(mechanism, [3.0])[0] == pytest.approx(3 * 2 / mechanism.sigma**2, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("rho", "epsilon"), [(0.001, 0.3), (0.1, 2.0), (0.5, 6.0), (10.0, 40.0)])
def test_concentrated_to_approximate_is_the_best_order(rho: float, epsilon: float) -> None:
    """Minimise Canonne, Kamath and Steinke's bound over the orders with thirty digits, by another method."""
    with mpmath.workdps(30):

        def exponent(less: mpmath.mpf) -> mpmath.mpf:
            a = 1 + less
            return less * (a * mpmath.mpf(rho) - mpmath.mpf(epsilon)) + a * mpmath.log(less / a) - mpmath.log(less)

        grid = [mpmath.mpf(10) ** (mpmath.mpf(i) / 500) for i in range(-1500, 2500)]
        best = min(exponent(less) for less in grid)
        expected = float(mpmath.exp(best))
    found = zcdp_delta(rho, epsilon)
    assert found <= expected * (1 + 1e-12)
    assert found == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-12])
@pytest.mark.parametrize("rho", [1e-4, 0.1, 5.0])
def test_concentrated_both_ways(rho: float, delta: float) -> None:
    epsilon = zcdp_epsilon(rho, delta)
    assert zcdp_delta(rho, epsilon) <= delta * (1 + 1e-9)
    assert zcdp_delta(rho, epsilon * (1 - 1e-6)) > delta
    assert zcdp_rho(epsilon, delta) == pytest.approx(rho, rel=1e-9)
    assert epsilon <= rho + 2 * math.sqrt(rho * math.log(1 / delta))
    # Gaussian noise of that rho is known exactly, and must be below
    assert gdp_epsilon(math.sqrt(2 * rho), delta) <= epsilon


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_pure_to_gaussian_is_tight(epsilon: float) -> None:
    """Randomised response stays below the Gaussian curve and touches it; a thousandth less is violated."""
    mu = gdp_from_pure(epsilon)
    at = np.linspace(0, epsilon, 200)
    response = np.asarray([randomized_response_delta(epsilon, 1, float(e)) for e in at])
    gaussian = np.asarray([gdp_delta(mu, float(e)) for e in at])
    assert np.all(response <= gaussian * (1 + 1e-9))
    smaller = np.asarray([gdp_delta(0.999 * mu, float(e)) for e in at])
    assert np.any(response > smaller)


@pytest.mark.parametrize("mu", [0.01, 1.0, 6.0])
@pytest.mark.parametrize("delta", [1e-2, 1e-6, 1e-15])
def test_gaussian_both_ways(mu: float, delta: float) -> None:
    epsilon = gdp_epsilon(mu, delta)
    exact = ndtr(mu / 2) - ndtr(-mu / 2)
    if exact <= delta:
        assert epsilon == 0
        return
    assert gdp_delta(mu, epsilon) <= delta
    assert gdp_delta(mu, epsilon * (1 - 1e-9)) > delta * (1 - 1e-12)
    assert gdp_mu(epsilon, delta) == pytest.approx(mu, rel=1e-8)


def test_renyi_to_approximate() -> None:
    """Canonne, Kamath, Steinke 2020, Proposition 12, at a single order."""
    order, divergence, delta = 8.0, 0.4, 1e-6
    expected = divergence + math.log1p(-1 / order) - math.log(delta * order) / (order - 1)
    assert rdp_epsilon([order], [divergence], delta) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: zcdp_from_pure(-1.0), r"epsilon=-1\.0"),
        (lambda: zcdp_epsilon(0.0, 1e-6), r"rho=0\.0"),
        (lambda: zcdp_epsilon(0.1, 0.0), r"delta=0\.0"),
        (lambda: gdp_epsilon(1.0, 1.0), r"delta=1\.0"),
        (lambda: gdp_delta(1.0, -0.1), r"epsilon=-0\.1"),
        (lambda: rdp_epsilon([1.0], [0.1], 1e-6), "orders above 1"),
        (lambda: rdp_epsilon([2.0, 3.0], [0.1], 1e-6), "one divergence for each order"),
        (lambda: rdp(nz.Guarantee(1.0), [0.5]), r"orders above 1, got 0\.5"),
        (lambda: zcdp(nz.Guarantee(1.0, 1e-6)), "zCDP allows no delta"),
    ],
)
def test_bad_arguments(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
