"""Attacks on the published angle noise: options at which it raised an error about a delta that nobody had given."""

from __future__ import annotations

import math

import numpy as np
import pytest

import noisette as nz
from noisette.guarantees import PrivacyWarning, gaussian_delta, gaussian_mu

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("beta", [0.01, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("epsilon", [0.5, 8.0, 50.0])
@pytest.mark.parametrize("dims", [2, 6, 40])
def test_attack_narrow_angles_at_large_budgets(dims: int, epsilon: float, beta: float) -> None:
    """At d = 6, beta = 0.1, epsilon = 8 it raised "delta=2.1"; on a sphere it keeps mu / beta, on a ball nothing."""
    asked = gaussian_mu(epsilon, 1e-5)
    options = {"noise": "gaussian", "delta": 1e-5, "beta": beta, "as_published": True}
    with pytest.warns(PrivacyWarning):
        ball = nz.AngleNoise(epsilon, dims, **options)
    assert ball.guarantee.epsilon == math.inf
    if beta == 1:
        sphere = nz.AngleNoise(epsilon, domain=nz.Sphere(dims), **options)
    else:
        with pytest.warns(PrivacyWarning):
            sphere = nz.AngleNoise(epsilon, domain=nz.Sphere(dims), **options)
    true = sphere.guarantee
    assert true.delta == 1e-5
    assert gaussian_delta(asked / beta, true.epsilon) <= 1e-5 * (1 + 1e-6)
    assert gaussian_delta(asked / beta, true.epsilon * (1 - 1e-6)) > 1e-5 * (1 - 1e-3)
    # noise of an angle: that of a number in [-1, 1] of mu each, times half of beta sqrt(d + 2) pi
    assert sphere.channel.sigma == pytest.approx(beta * math.sqrt(dims + 2) / asked, rel=1e-4)
    unit = np.eye(dims)[:1]
    assert sphere.decode(sphere.privatize(unit, rng=1)).shape == (1, dims)
