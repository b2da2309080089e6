"""delta of Gaussian noise on a lattice, against sums in many digits and against dp_accounting."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_mechanism

import noisette as nz
from noisette.guarantees import gaussian_mu
from noisette.mechanisms.scalar.gaussian import lattice_delta, lattice_sigma


def summed_delta(sigma: float, steps: int, epsilon: float) -> Any:
    """Return sum_k max(P(k) - exp(epsilon) P(k + steps), 0), term by term in many digits."""
    with mpmath.workprec(200):
        half = 1 / (2 * mpmath.mpf(sigma) ** 2)
        grow = mpmath.mpf(epsilon)
        if sigma > 30:  # theta function: the sum is the integral to exp(-2 pi^2 sigma^2)
            normaliser = mpmath.mpf(sigma) * mpmath.sqrt(2 * mpmath.pi)
        else:
            normaliser = mpmath.nsum(lambda k: mpmath.exp(-half * k * k), [-mpmath.inf, mpmath.inf], method="d")
        start = math.floor(epsilon * sigma**2 / steps - steps / 2) - 2
        total = mpmath.mpf(0)
        for k in range(start, start + 100_000):
            term = mpmath.exp(-half * k * k) - mpmath.exp(grow - half * (k + steps) ** 2)
            total += max(term, mpmath.mpf(0))
            if k > start + 40 and term < total * mpmath.mpf(10) ** -18:
                break
        return total / normaliser


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sigma", "steps", "epsilon"),
    [
        (0.3, 1, 0.5),
        (0.7, 1, 1.0),
        (1.0, 4, 3.0),
        (3.0, 1, 0.1),
        (3.0, 7, 20.0),
        (10.0, 10, 1e-6),
        (10.0, 1, 3.6),
        (100.0, 30, 4.0),
        (100.0, 4400, 1000.0),
        (1020.0, 300, 1.0),
    ],
)
def test_summed_delta(sigma: float, steps: int, epsilon: float) -> None:
    exact = summed_delta(sigma, steps, epsilon)
    assert abs(lattice_delta(sigma, steps, epsilon) / exact - 1) < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sigma", "steps", "epsilon"),
    [(1030.0, 300, 1.0), (1030.0, 28, 1.0), (1030.0, 1, 0.035), (1500.0, 4000, 12.0), (1100.0, 44_000, 1000.0)],
)
def test_integral_bounds_the_sum(sigma: float, steps: int, epsilon: float) -> None:
    """Above sigma 2^10 the integral stands for the sum, on the safe side and by less than 2000 / sigma^2."""
    exact = summed_delta(sigma, steps, epsilon)
    ratio = lattice_delta(sigma, steps, epsilon) / exact
    assert 1 <= ratio < 1 + 2000 / sigma**2


@pytest.mark.slow
@pytest.mark.parametrize(("steps", "summed"), [(1, 15), (10, 14), (128, 12)])
def test_calibration_meets_delta_and_wastes_nothing(steps: int, summed: int) -> None:
    """Where few enough terms are summed one by one; for larger sigma the integral was held against the sum above."""
    found = 0
    for epsilon, delta in product((1e-6, 0.01, 1.0, 10.0, 1000.0), (1e-300, 1e-30, 1e-6, 0.1)):
        sigma = lattice_sigma(steps, epsilon, delta)
        if sigma < 1000:
            found += 1
            assert summed_delta(sigma, steps, epsilon) <= delta * (1 + 1e-9), (epsilon, delta)
            assert summed_delta(sigma * (1 - 1e-6), steps, epsilon) > delta, (epsilon, delta)
    assert found == summed


@pytest.mark.parametrize(("sigma", "steps", "epsilon"), [(2.0, 1, 0.5), (5.0, 3, 1.0), (20.0, 2, 0.2), (3.0, 10, 8.0)])
def test_summed_delta_agrees_with_dp_accounting(sigma: float, steps: int, epsilon: float) -> None:
    peer = privacy_loss_mechanism.DiscreteGaussianPrivacyLoss(sigma, sensitivity=steps)
    assert math.isclose(lattice_delta(sigma, steps, epsilon), peer.get_delta_for_epsilon(epsilon), rel_tol=1e-6)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-5), (1.0, 1e-6), (1.0, 1e-12), (8.0, 1e-6), (50.0, 1e-9)])
def test_scale_agrees_with_dp_accounting(epsilon: float, delta: float) -> None:
    for width in (2.0, 0.1):
        mechanism = nz.Gaussian(epsilon, delta, domain=nz.Interval(5, 5 + width))
        peer = privacy_loss_mechanism.GaussianPrivacyLoss(mechanism.sigma, sensitivity=width)
        assert peer.get_delta_for_epsilon(epsilon) <= delta * (1 + 1e-6)
        tight = privacy_loss_mechanism.GaussianPrivacyLoss(mechanism.sigma * (1 - 1e-4), sensitivity=width)
        assert tight.get_delta_for_epsilon(epsilon) > delta


@pytest.mark.parametrize("delta", [1e-300, 1e-6, 0.5])
@pytest.mark.parametrize("epsilon", [1e-6, 1.0, 1000.0])
def test_extremes_run(epsilon: float, delta: float) -> None:
    mechanism = nz.Gaussian(epsilon, delta)
    reports = mechanism.privatize(np.linspace(-1, 1, 2000), rng=1)
    assert np.isfinite(reports).all()
    assert mechanism.guarantee.epsilon == epsilon
    assert mechanism.guarantee.delta == delta
    # the spread of the reports is that of the noise, to within 5.5 standard errors of its square
    spread = np.var(reports - np.linspace(-1, 1, 2000)) / mechanism.sigma**2
    assert abs(spread - 1) < 5.5 * math.sqrt(2 / 2000)


def test_no_pure_guarantee() -> None:
    assert nz.exact_epsilon(nz.Gaussian(1.0)) == math.inf
    with pytest.raises(ValueError, match=r"Expected delta=0.* > 0: Gaussian noise has no pure guarantee.*Laplace"):
        nz.Gaussian(1.0, 0.0)


@pytest.mark.parametrize("steps", [4000, 10**6])
def test_where_noise_is_wide_the_closed_form_proves_it(steps: int) -> None:
    """Real noise of deviation s that is rounded with a spread of two steps: s^2 + 4."""
    real = steps / float(gaussian_mu(1.0, 1e-6))
    assert real > 1000
    assert lattice_sigma(steps, 1.0, 1e-6) == pytest.approx(math.sqrt(real**2 + 4), rel=2e-12)
    assert lattice_sigma(steps, 1.0, 1e-6) > math.sqrt(real**2 + 4)
