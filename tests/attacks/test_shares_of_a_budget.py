"""Attacks on a budget that is split: parts that add up to a little more than the whole."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import noisette as nz

pytestmark = pytest.mark.slow

RECORD = nz.Attributes((2, 5, nz.Interval(0, 100), 3))


def spent(mechanism: Any) -> Fraction:
    """Add up in exact fractions what the attributes' mechanisms promise."""
    return sum((Fraction(inner.guarantee.epsilon) for inner in mechanism.inner_mechanisms), Fraction(0))


def test_attack_shares_a_little_above_one() -> None:
    """Shares of 1 + 9e-10 in all were accepted, and spent 9e-10 more than epsilon."""
    shares = np.asarray([0.1, 0.2, 0.3, 0.4]) * (1 + 9e-10)
    m = nz.SampledAttributes(("grr", "oue", "duchi", "grr"), 8.0, domain=RECORD, shares=tuple(shares))
    assert spent(m) <= Fraction(8.0)
    assert spent(m) >= Fraction(8.0) * (1 - Fraction(1, 10**14))  # made smaller, not cut
    assert Fraction(m.guarantee.epsilon) >= spent(m)
    assert nz.from_spec(m.spec()) == m
    with pytest.raises(ValueError, match="shares > 0 that add up to 1"):
        nz.SampledAttributes("grr", 1.0, domain=nz.Attributes((2, 5)), shares=(0.5, 0.6))


@pytest.mark.long
def test_attack_with_thousands_of_random_splits() -> None:
    """No split, even or not, of any budget adds up to more than the budget, in exact arithmetic."""
    rng = np.random.default_rng(1)
    domain = nz.Attributes((2, 3, 2))
    for _ in range(2000):
        epsilon = float(np.exp(rng.uniform(-4, 3)))
        shares = rng.dirichlet(np.ones(3)) * (1 + rng.uniform(-9e-10, 9e-10))
        m = nz.SampledAttributes("grr", epsilon, domain=domain, shares=tuple(shares.tolist()))
        assert spent(m) <= Fraction(epsilon)
        assert spent(m) <= Fraction(m.guarantee.epsilon) <= Fraction(epsilon)


@pytest.mark.parametrize("report", [1, 2, 3, 5, 7, 10, 49, 103])
def test_attack_on_even_parts(report: int) -> None:
    """Five times the float nearest to 1/5 is more than 1; five parts of a budget are not."""
    rng = np.random.default_rng(2)
    for epsilon in (1.0, 0.1, *np.exp(rng.uniform(-3, 3, 10)).tolist()):
        numbers = nz.Sampled("duchi", epsilon, dims=103, report=report)
        assert report * Fraction(numbers.inner_mechanism.epsilon) <= Fraction(epsilon)
        assert report * Fraction(numbers.inner_mechanism.epsilon) <= Fraction(numbers.guarantee.epsilon)
        record = nz.SampledAttributes("grr", epsilon, domain=nz.Attributes((2,) * 103), report=report)
        assert report * Fraction(record.distinct[0].epsilon) <= Fraction(epsilon)
        assert report * Fraction(record.distinct[0].epsilon) <= Fraction(record.guarantee.epsilon)
    noisy = nz.Sampled("gaussian", 1.0, dims=103, report=report, delta=1e-6)
    assert report * Fraction(noisy.inner_mechanism.guarantee.delta) <= Fraction(1e-6)
    assert report * Fraction(noisy.inner_mechanism.guarantee.delta) <= Fraction(noisy.guarantee.delta)
