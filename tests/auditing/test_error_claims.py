"""Duan 2024, Theorem 4, against an exact case, an independent computation and a case in which it holds."""

from __future__ import annotations

import numpy as np
import pytest
from experiments.claims import lower_error
from scipy import stats
from scipy.integrate import quad


def test_the_case_in_which_the_promise_fails() -> None:
    """It promises a lower error with probability 0.348 at least; of 4,000 collections none has one."""
    found = lower_error()
    assert found.promised == pytest.approx(1 - (2 * stats.norm.cdf(1 / 0.35) - 1) ** 100, rel=1e-12)
    assert round(found.promised, 3) == 0.348
    assert (found.improved, found.collections) == (0, 4000)
    assert not found.holds
    # were the promise true, none of 4,000 would improve once in 10^743 runs
    assert stats.binom.logpmf(0, 4000, found.promised) / np.log(10) < -743


@pytest.mark.slow
def test_the_bound_by_another_integration() -> None:
    """Chernoff's bound at the weight of 95 %, with the soft threshold written out and scipy's quadrature."""
    weight = stats.norm.ppf(0.975) * 0.35

    def moved(x: float) -> float:
        return float(np.sign(0.9 + x) * max(abs(0.9 + x) - weight, 0.0))

    def mean(tilt: float) -> float:
        def tilted(x: float) -> float:
            return float(np.exp(tilt * (x**2 - (moved(x) - 0.9) ** 2)) * stats.norm.pdf(x, 0, 0.35))

        return float(quad(tilted, -4.2, 4.2, points=[weight - 0.9, -weight - 0.9], limit=200)[0])

    other = min(mean(tilt) for tilt in np.linspace(1.8, 2.4, 13)) ** 100
    assert lower_error(collections=1).chance_at_most == pytest.approx(other, rel=0.05)
    assert other < 1e-16


def test_no_larger_weight_helps() -> None:
    """A weight above every estimate sets all means to 0: the error falls where a chi-square of 100 is above 661."""
    assert stats.chi2.sf(100 * 0.9**2 / 0.35**2, 100) < 1e-80


def test_where_the_means_are_zero_the_promise_holds() -> None:
    """The twin: the examination does not refute what is true."""
    found = lower_error(mean=0.0, collections=200)
    assert found.improved == 200
    assert found.holds
