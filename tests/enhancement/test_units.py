"""Enhancing and predicting do not care for units: eight times the values and errors give eight times the answer.

Nor for the order of dimensions, nor, where there is no domain and no point to shrink to, for where zero is. A sum that
is a product, a square that is doubled or an index that is off by one breaks one of the three.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import noisette as nz
from noisette.enhancement import METHODS
from noisette.prediction import break_even, deviation

FACTOR = 8.0
MEANS = sorted(set(METHODS) - {"simplex", "norm-sub", "base-cut"})
LEARNT = {"auto", "bayes", "npmle"}  # a prior is fitted by steps that end near its optimum
TENTHS = np.linspace(0.1, 1.0, 10)


def estimate(size: int = 60) -> nz.Estimate:
    """Return means of which some are near zero and some near the ends, with unequal errors."""
    rng = np.random.default_rng(1)
    truth = np.where(np.arange(size) % 3 == 0, rng.uniform(-0.9, 0.9, size), 0.05)
    errors = rng.uniform(0.05, 0.5, size)
    return nz.Estimate(truth + errors * rng.standard_normal(size), errors, np.full(size, 1000), low=-1.0, high=1.0)


def scaled(raw: nz.Estimate, factor: float) -> nz.Estimate:
    low, high = raw.low, raw.high
    return dataclasses.replace(
        raw, value=factor * raw.value, std_error=factor * raw.std_error, low=factor * low, high=factor * high
    )


@pytest.mark.parametrize("method", MEANS)
def test_an_enhanced_estimate_in_another_unit(method: str) -> None:
    raw = estimate()
    small, large = nz.enhance(raw, method), nz.enhance(scaled(raw, FACTOR), method)
    np.testing.assert_allclose(large.value, FACTOR * small.value, rtol=1e-5, atol=1e-6 * FACTOR)
    np.testing.assert_allclose(large.std_error, FACTOR * small.std_error, rtol=1e-5, atol=1e-6 * FACTOR)
    assert large.expected_gain == pytest.approx(FACTOR**2 * small.expected_gain, rel=1e-4, abs=1e-9)


@pytest.mark.parametrize("method", MEANS)
def test_the_mirror_image_and_another_order(method: str) -> None:
    raw = estimate()
    order = np.random.default_rng(2).permutation(raw.value.size)
    found = nz.enhance(raw, method)
    mirrored = nz.enhance(dataclasses.replace(raw, value=-raw.value), method)
    mixed = nz.enhance(dataclasses.replace(raw, value=raw.value[order], std_error=raw.std_error[order]), method)
    off = 1e-2 if method in LEARNT else 1e-6
    np.testing.assert_allclose(mirrored.value, -found.value, rtol=1e-5, atol=off)
    np.testing.assert_allclose(mirrored.std_error, found.std_error, rtol=1e-5, atol=off)
    np.testing.assert_allclose(mixed.value, found.value[order], rtol=1e-5, atol=off)
    np.testing.assert_allclose(mixed.std_error, found.std_error[order], rtol=1e-5, atol=off)


@pytest.mark.parametrize("cls", [nz.Laplace, nz.Duchi, nz.Piecewise, nz.Hybrid, nz.SquareWave, nz.Staircase])
def test_a_predicted_deviation_in_another_unit(cls: type) -> None:
    wide = nz.Interval(-FACTOR, FACTOR)
    small = deviation(cls(1.0), users=1000, values=TENTHS)
    large = deviation(cls(1.0, domain=wide), users=1000, values=FACTOR * TENTHS)
    assert large.bias == pytest.approx(FACTOR * small.bias, rel=1e-6, abs=1e-9)
    assert large.std == pytest.approx(FACTOR * small.std, rel=1e-6)
    assert large.mse == pytest.approx(FACTOR**2 * small.mse, rel=1e-6)
    assert large.berry_esseen == pytest.approx(small.berry_esseen, rel=1e-6)
    assert large.supremum(0.9) == pytest.approx(FACTOR * small.supremum(0.9), rel=1e-6)
    for xi in (0.01, 0.1, 0.5):
        assert large.probability_within(FACTOR * xi) == pytest.approx(small.probability_within(xi), rel=1e-6)
        assert large.cdf(FACTOR * xi) == pytest.approx(small.cdf(xi), rel=1e-6)
        assert FACTOR * large.pdf(FACTOR * xi) == pytest.approx(small.pdf(xi), rel=1e-6)
    level = small.probability_within(small.supremum(0.9))
    assert level == pytest.approx(0.9, abs=1e-6)


def test_curves_cross_at_the_same_number_of_users_in_any_unit() -> None:
    wide = nz.Interval(-FACTOR, FACTOR)
    small = break_even(nz.SquareWave(1.0), nz.Piecewise(1.0), values=TENTHS)
    large = break_even(nz.SquareWave(1.0, domain=wide), nz.Piecewise(1.0, domain=wide), values=FACTOR * TENTHS)
    assert small is not None
    assert large == pytest.approx(small, rel=1e-5)
    wave = nz.SquareWave(1.0)
    assert break_even(wave, wave, values=TENTHS) is None  # one curve twice: no gap to divide by
