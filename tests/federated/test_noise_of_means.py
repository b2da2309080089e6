"""The noise of a weighted mean of reports, entry by entry."""

from __future__ import annotations

import math

import numpy as np
import pytest

import noisette as nz
from noisette.federated.theory import aggregated_noise


def test_the_noise_of_a_weighted_mean_is_that_of_its_reports():
    """Means add up with the weights, variances with their squares, third moments with their cubes (Esseen 1942)."""
    mechanism = nz.Piecewise(1.0)
    weights, dims, norm = np.asarray([3.0, 1.0, 4.0]), 2, 2.0
    updates = np.asarray([[0.1, -0.5], [0.9, 0.0], [-1.0, 0.4]])
    moments = mechanism.moments(updates)
    shares = weights / 8
    scale = norm / math.sqrt(dims)
    found = aggregated_noise(mechanism, weights, dims=dims, clip_norm=norm, updates=updates)
    assert found.mean == pytest.approx(scale * (shares @ moments.bias), abs=1e-12)
    assert found.variance == pytest.approx(scale**2 * (shares**2 @ moments.variance), rel=1e-12)
    many = np.full(4000, 1 / 4000)
    equal = aggregated_noise(mechanism, np.ones(4000), dims=dims, clip_norm=norm)
    zero = mechanism.moments(np.zeros((1, dims)))
    ratio = float((many**3).sum() * zero.third[0, 0] / ((many**2).sum() * zero.variance[0, 0]) ** 1.5)
    assert equal.distance == pytest.approx(0.5606 * ratio, rel=1e-9)
    assert found.distance <= 1.0
    for wrong in (np.zeros(3), np.asarray([1.0, -1.0, 3.0]), np.asarray([1.0, np.inf, 1.0])):
        with pytest.raises(ValueError, match="weights that are finite"):
            aggregated_noise(mechanism, wrong, dims=dims, clip_norm=norm)
    for shape in ((3, 3), (2, 2)):
        with pytest.raises(ValueError, match="updates of shape"):
            aggregated_noise(mechanism, weights, dims=dims, clip_norm=norm, updates=np.zeros(shape))


def test_what_a_round_costs_is_mean_and_variance():
    """-2 rate <before - optimum, mean> + rate^2 (|mean|^2 + sum of variances)."""
    from noisette.federated.theory import AggregatedNoise

    noise = AggregatedNoise(np.asarray([0.5, -1.0]), np.asarray([2.0, 3.0]), 0.1)
    assert noise.difference(0.1) == pytest.approx(0.01 * (0.25 + 1.0 + 5.0))
    wanted = 0.01 * 6.25 - 2 * 0.1 * (1.0 * 0.5 + 2.0 * -1.0)
    assert noise.difference(0.1, before=[2.0, 3.0], optimum=[1.0, 1.0]) == pytest.approx(wanted)
    with pytest.raises(ValueError, match="both before and optimum"):
        noise.difference(0.1, before=[2.0, 3.0])
    with pytest.raises(ValueError, match="models of 2 weights"):
        noise.difference(0.1, before=[2.0], optimum=[1.0])
