"""Binomial laws to the last digits, and searches that never end on the wrong side."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import gammaln

from noisette.accounting._numbers import binomial_window, largest_below, least_above, least_meeting, log_binomial


def _reference(k: int, n: int, p: float) -> float:
    """The binomial log mass with fifty digits."""
    with mpmath.workdps(50):
        exact = mpmath.mpf(p)
        ways = mpmath.loggamma(n + 1) - mpmath.loggamma(k + 1) - mpmath.loggamma(n - k + 1)
        return float(ways + k * mpmath.log(exact) + (n - k) * mpmath.log(1 - exact))


CASES = [
    (k, n, p)
    for n in (1, 2, 5, 40, 1000, 10**6, 10**9)
    for p in (2.0**-20, 0.25, 0.5, 0.75, 1 - 2.0**-20)  # p and 1 - p are both exact
    for k in sorted({0, 1, n // 3, n // 2, int(n * p), n - 1, n})
]


def test_log_binomial_agrees_with_fifty_digits() -> None:
    for k, n, p in CASES:
        expected = _reference(k, n, p)
        assert float(log_binomial(k, n, p, 1 - p)) == pytest.approx(expected, rel=2e-13, abs=2e-13), (k, n, p)


@pytest.mark.parametrize("q", [2.0**-1000, 2.0**-1030, 2.0**-1074])
def test_log_binomial_of_chances_whose_inverse_overflows(q: float) -> None:
    for k, n in ((0, 3), (1, 3), (2, 7), (3, 10**6), (9, 10)):
        expected = _reference(n - k, n, q)
        assert float(log_binomial(k, n, 1.0, q)) == pytest.approx(expected, rel=2e-13)
    assert float(log_binomial(2, 7, 1.0, 0.0)) == -math.inf


def test_log_gamma_would_not_do() -> None:
    """The twin: the usual formula loses eight digits at a billion trials."""
    k, n, p = 250_000_000, 10**9, 0.25
    usual = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1) + k * math.log(p) + (n - k) * math.log1p(-p)
    assert abs(usual - _reference(k, n, p)) > 1e-8


def test_no_trials_and_impossible_counts() -> None:
    assert float(log_binomial(0, 0, 0.3, 0.7)) == 0
    assert float(log_binomial(3, 2, 0.3, 0.7)) == -math.inf
    assert float(log_binomial(-1, 2, 0.3, 0.7)) == -math.inf


@pytest.mark.parametrize(("n", "p"), [(10, 0.5), (1000, 0.01), (10**6, 0.3)])
def test_window_holds_all_but_what_it_says(n: int, p: float) -> None:
    deviations = 5.0
    low, high = binomial_window(n, p, deviations=deviations)
    inside = np.exp(log_binomial(np.arange(low, high + 1), n, p, 1 - p)).sum()
    assert 1 - inside <= 2 * math.exp(-(deviations**2) / 2)


@pytest.mark.slow
@given(st.floats(1e-6, 0.999), st.sampled_from([1e-3, 1e-9]), st.floats(1e-4, 2.0))
def test_searches_end_on_the_safe_side(root: float, tolerance: float, guess: float) -> None:
    above = least_above(lambda x: x >= root, 0.0, 1.0, tolerance=tolerance)
    guessed = least_above(lambda x: x >= root, 0.0, 1.0, tolerance=tolerance, guess=guess)
    below = largest_below(lambda x: x <= root, 0.0, 1.0, tolerance=tolerance)
    for found in (above, guessed):
        assert root <= found <= root * (1 + 1.01 * tolerance)
    assert root * (1 - 1.01 * tolerance) <= below <= root


def test_a_search_sees_that_the_ends_already_hold() -> None:
    assert least_above(lambda x: True, 0.0, 1.0) == 0.0
    assert least_above(lambda x: True, 0.0, 1.0, guess=0.5) == 0.0
    assert largest_below(lambda x: True, 0.0, 1.0) == 1.0


@pytest.mark.slow
@given(st.floats(0.05, 500.0), st.floats(1.0, 8.0), st.floats(1e-3, 1e3), st.sampled_from([1e-2, 1e-3, 1e-6]))
def test_secants_end_on_the_safe_side_and_soon(root: float, power: float, guess: float, tolerance: float) -> None:
    """Of a falling function, infinite far below its root and zero far above it, as an epsilon is."""
    places = []

    def function(x: float) -> float:
        places.append(x)
        if x < root / 3:
            return math.inf
        return 0.0 if x > 30 * root else 2.0 * (root / x) ** power * (1 + 0.1 * math.tanh(root / x - 1))

    found = least_meeting(function, 2.0, 1e3, guess=guess, tolerance=tolerance)
    assert found == 1e3 or function(found) <= 2.0
    assert root * (1 - 1e-12) <= found <= root * (1 + 2 * tolerance)
    assert len(places) <= 80
    if root / 1.5 < guess < 1.5 * root:
        assert len(places) <= 12
