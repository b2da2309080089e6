"""Attacks on the calibration of discrete Gaussian noise at budgets where the noise is far below the domain's width."""

from __future__ import annotations

import math
from typing import Any

import pytest

import noisette as nz
from noisette.mechanisms.scalar import gaussian

pytestmark = pytest.mark.slow


def delta_of(sigma: float, steps: int, epsilon: float) -> float:
    """Add up P(k) (1 - exp(e) P(k - K) / P(k))_+ around zero, by ratios, so that nothing cancels."""
    reach = max(30, math.ceil(40 * sigma))
    masses = {k: math.exp(-0.5 * (k / sigma) ** 2) for k in range(-reach, reach + 1)}
    total = math.fsum(masses.values())
    losses = {k: (steps**2 - 2 * k * steps) / (2 * sigma**2) for k in masses}
    return math.fsum(p / total * -math.expm1(epsilon - losses[k]) for k, p in masses.items() if losses[k] > epsilon)


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [1.0, 100.0, 2200.0, 2300.0, 2500.0, 1e4, 1e6])
@pytest.mark.parametrize("steps", [1, 7, 999])
def test_attack_budgets_at_which_the_search_never_ended(steps: int, epsilon: float, monkeypatch: Any) -> None:
    """On 1,000 points no scale was found from epsilon = 2,300 on: the sum missed all of the noise's mass."""
    calls = 0
    honest = gaussian.lattice_delta

    def counted(*given: Any) -> float:
        nonlocal calls
        calls += 1
        assert calls < 200, "the search does not end"
        return honest(*given)

    monkeypatch.setattr(gaussian, "lattice_delta", counted)
    gaussian.lattice_sigma.cache_clear()
    m = nz.DiscreteGaussian(epsilon, 1e-6, domain=nz.Grid(0, float(steps)))
    sigma = m.sigma
    assert delta_of(sigma, steps, epsilon) <= 1e-6  # enough noise
    assert delta_of(sigma * (1 - 1e-6), steps, epsilon) > 1e-6 * (1 - 1e-4)  # and no more than that
    assert m.privatize([0.0, float(steps)], rng=1).shape == (2,)


@pytest.mark.parametrize("delta", [1e-15, 1e-9, 1e-3, 0.3])
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 30.0, 900.0])
@pytest.mark.parametrize("steps", [1, 3, 50, 400])
def test_attack_on_the_last_digits_of_delta(steps: int, epsilon: float, delta: float) -> None:
    """What float64 may err is added to delta: by an independent sum the noise is never too small."""
    sigma = gaussian.lattice_sigma(steps, epsilon, delta)
    assert sigma > 2**10 or delta_of(sigma, steps, epsilon) <= delta
