"""From one way of stating privacy to another: pure, zCDP, RDP, Gaussian, and (epsilon, delta).

Each function returns what is implied, never more: where a bound is optimised numerically, any point of the search is
valid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import ndtri_exp

from noisette import _validate
from noisette._search import narrowed
from noisette._validate import FloatArray
from noisette.accounting._numbers import largest_below, least_above
from noisette.guarantees import gaussian_delta, gaussian_epsilon, gaussian_mu


def zcdp_from_pure(epsilon: float) -> float:
    """Return rho = epsilon tanh(epsilon / 2), the least for which every epsilon-DP mechanism is rho-zCDP.

    It is the Kullback-Leibler divergence of randomised response, and below the epsilon^2 / 2 of Bun, Steinke 2016.
    Harrison, Manurangsi 2025.

    >>> round(zcdp_from_pure(1.0), 6), round(zcdp_from_pure(4.0), 6)
    (0.462117, 3.85611)
    """
    epsilon = _validate.epsilon(epsilon)
    return max(epsilon * math.tanh(epsilon / 2) * (1 + 2.0**-50), math.ulp(0.0))  # of tiny budgets it underflows


def zcdp_delta(rho: float, epsilon: float) -> float:
    """Return a delta for which rho-zCDP implies (epsilon, delta)-DP.

    Formula: the least over a > 1 of exp((a - 1)(a rho - epsilon)) (1 - 1/a)^a / (a - 1).
    Canonne, Kamath, Steinke 2020, Corollary 13.

    >>> f"{zcdp_delta(0.1, 2.0):.3e}"
    '4.325e-06'
    """
    rho, epsilon = _validate.positive(rho, "rho"), _validate.positive(epsilon, "epsilon")
    return min(1.0, math.exp(min(0.0, _log_zcdp_delta(rho, epsilon))))


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Return the epsilon for which rho-zCDP implies (epsilon, delta)-DP; see `zcdp_delta`.

    Bun and Steinke's rho + 2 sqrt(rho ln(1/delta)) is never below it.

    >>> round(zcdp_epsilon(0.1, 1e-6), 4)
    2.1419
    """
    rho, delta = _validate.positive(rho, "rho"), _validate.delta(delta, positive=True)
    high = rho + 2 * math.sqrt(rho * math.log(1 / delta))
    return least_above(lambda e: _log_zcdp_delta(rho, e) <= math.log(delta), 0.0, high, tolerance=1e-12)


def zcdp_rho(epsilon: float, delta: float) -> float:
    """Return the largest rho for which rho-zCDP implies (epsilon, delta)-DP.

    >>> round(zcdp_epsilon(zcdp_rho(2.0, 1e-6), 1e-6), 9)
    2.0
    """
    epsilon, delta = _validate.epsilon(epsilon), _validate.delta(delta, positive=True)
    return largest_below(lambda rho: _log_zcdp_delta(rho, epsilon) <= math.log(delta), 0.0, epsilon, tolerance=1e-12)


def _log_zcdp_delta(rho: float, epsilon: float) -> float:
    """Return ln delta at the best order: the exponent is convex in it, so bisect its derivative."""
    if rho == 0:
        return -math.inf

    def falls(less: float) -> bool:
        return (2 * less + 1) * rho - epsilon + math.log(less) - math.log1p(less) <= 0

    ends = narrowed(falls, 0.0, (epsilon + 1) / rho + 2)  # of the order less one
    less = max(sum(ends) / 2, 1e-300)
    return less * ((less + 1) * rho - epsilon) + less * math.log(less) - (less + 1) * math.log1p(less)


def gdp_from_pure(epsilon: float) -> float:
    """Return mu = 2 Phi^-1(E / (1 + E)), the least for which every epsilon-DP mechanism is mu-GDP, E = exp(epsilon).

    The trade-off function of randomised response consists of two chords of any convex one through its corner.
    Dong, Roth, Su 2022, section 2, for the two trade-off functions.

    >>> round(gdp_from_pure(1.0), 4)
    1.232
    """
    epsilon = _validate.epsilon(epsilon)
    return float(-2 * ndtri_exp(-np.logaddexp(0.0, epsilon))) * (1 + 1e-12)


def gdp_delta(mu: float, epsilon: float) -> float:
    """Return the delta for which mu-GDP is (epsilon, delta)-DP, exactly; the rounding errs by less than 1e-12 of it.

    >>> f"{gdp_delta(1.0, 1.0):.6f}"
    '0.126937'
    """
    mu, epsilon = _validate.positive(mu, "mu"), _validate.number(epsilon, "epsilon")
    if not epsilon >= 0:
        raise ValueError(f"Expected epsilon={epsilon!r} >= 0.")
    return min(1.0, float(gaussian_delta(mu, epsilon)))


def gdp_epsilon(mu: float, delta: float) -> float:
    """Return the least epsilon for which mu-GDP is (epsilon, delta)-DP, from above.

    >>> round(gdp_epsilon(1.0, 1e-6), 4)
    4.887
    """
    return gaussian_epsilon(_validate.positive(mu, "mu"), _validate.delta(delta, positive=True))


def gdp_mu(epsilon: float, delta: float) -> float:
    """Return the largest mu for which mu-GDP is (epsilon, delta)-DP.

    >>> round(gdp_mu(1.0, 1e-6), 4)
    0.2366
    """
    return gaussian_mu(_validate.epsilon(epsilon), _validate.delta(delta, positive=True))


def rdp_epsilon(orders: Sequence[float] | FloatArray, divergences: Sequence[float] | FloatArray, delta: float) -> float:
    """Return the epsilon that Renyi divergences at these orders imply together with delta, by dp-accounting.

    >>> round(rdp_epsilon([2.0, 8.0, 32.0], [0.1, 0.4, 1.6], 1e-6), 4)
    1.9021
    """
    from dp_accounting.rdp.rdp_privacy_accountant import compute_epsilon

    delta = _validate.delta(delta, positive=True)
    first, second = np.atleast_1d(np.asarray(orders, dtype=float)), np.atleast_1d(np.asarray(divergences, dtype=float))
    if first.shape != second.shape or first.ndim != 1:
        raise ValueError(f"Expected one divergence for each order, got shapes {first.shape} and {second.shape}.")
    if not (np.all(first > 1) and np.all(second >= 0)):
        raise ValueError("Expected orders above 1 and divergences of 0 or more.")
    return float(compute_epsilon(list(first), list(second), delta)[0])
