"""Bias, variance and third moment against integrals of the published densities and against sums over small lattices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tests.mechanisms.scalar.helpers import BUILD

import noisette as nz
from noisette.mechanisms.scalar._additive import AdditiveMechanism, GaussianNoise, LaplaceNoise
from noisette.mechanisms.scalar._window import Window
from noisette.mechanisms.scalar.staircase import StaircaseNoise

BIAS = 2.0**-28  # windows move in whole steps: half of one, in units of the domain's half-width
INPUTS = (-1.0, -0.7, 0.0, 0.3, 1.0)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 5.0])
@pytest.mark.parametrize("name", BUILD)
def test_published_laws_have_mass_one(name: str, epsilon: float, published: Any) -> None:
    for x in INPUTS:
        assert math.isclose(published(name, x, epsilon).expect(lambda y: 1.0), 1, rel_tol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 2.0, 4.0, 8.0])
@pytest.mark.parametrize("name", BUILD)
def test_moments_are_integrals_of_the_published_density(name: str, epsilon: float, published: Any) -> None:
    moments = BUILD[name](epsilon).moments(INPUTS)
    expected = np.asarray([published(name, x, epsilon).moments(x) for x in INPUTS])
    np.testing.assert_allclose(moments.bias, expected[:, 0], atol=BIAS)
    np.testing.assert_allclose(moments.variance, expected[:, 1], rtol=1e-7)
    np.testing.assert_allclose(moments.third, expected[:, 2], rtol=1e-7)


@pytest.mark.parametrize(("low", "high"), [(0.0, 100.0), (5.0, 5.1), (-1e9, 1e9), (1e6, 1e6 + 1)])
@pytest.mark.parametrize("name", BUILD)
def test_moments_scale_with_the_domain(name: str, low: float, high: float) -> None:
    half, x = (high - low) / 2, np.asarray(INPUTS)
    unit = BUILD[name](1.5).moments(x)
    # the ends of the input are rounded to float64 around 1e6: ask about the inputs that were really given
    inputs = np.clip(low + half * (x + 1), low, high)
    moments = BUILD[name](1.5, domain=nz.Interval(low, high)).moments(inputs)
    np.testing.assert_allclose(moments.bias / half, unit.bias, atol=2 * BIAS)
    # additive mechanisms round the ends outward, which may cost a 2^-22nd of the width
    np.testing.assert_allclose(moments.variance / half**2, unit.variance, rtol=5e-7)
    np.testing.assert_allclose(moments.third / half**3, unit.third, rtol=1e-6)


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 20.0, 60.0, 1000.0])
@pytest.mark.parametrize("name", BUILD)
def test_moments_are_sound_at_extreme_budgets(name: str, epsilon: float) -> None:
    for domain in (nz.Interval(), nz.Interval(5, 5.1), nz.Interval(1e6, 1e6 + 1)):
        x = np.linspace(domain.low, domain.high, 5)
        moments = BUILD[name](epsilon, domain=domain).moments(x)
        assert np.isfinite(moments.bias).all()
        assert np.isfinite(moments.variance).all()
        assert (moments.variance >= 0).all()
        # Lyapunov: (E|X|^2)^3 <= (E|X|^3)^2
        assert (moments.variance**1.5 <= moments.third * (1 + 1e-6) + 1e-300).all()
        if name != "square-wave":
            np.testing.assert_allclose(moments.bias / domain.diameter, 0, atol=BIAS)


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 20.0, 30.0])
def test_closed_forms_at_extreme_budgets(epsilon: float) -> None:
    s, e = math.expm1(epsilon / 2), math.expm1(epsilon)
    x = np.asarray([0.0, 0.4, 1.0])
    np.testing.assert_allclose(nz.Laplace(epsilon).moments(x).variance, 8 / epsilon**2, rtol=1e-4)
    np.testing.assert_allclose(nz.Duchi(epsilon).moments(0.4).variance, (1 + 2 / e) ** 2 - 0.16, rtol=1e-7)
    np.testing.assert_allclose(nz.Piecewise(epsilon).moments(x).variance, x**2 / s + (s + 4) / (3 * s * s), rtol=1e-6)
    b = nz.Gaussian(epsilon).sigma
    np.testing.assert_allclose(nz.Gaussian(epsilon).moments(x).variance, b * b, rtol=1e-7)


def wrong_variances(epsilon: float, x: float) -> dict[str, float]:
    """Return formulas that are in print or in use, and wrong."""
    e, s = math.exp(epsilon), math.exp(epsilon / 2)
    c = (e + 1) / (e - 1)
    return {
        "piecewise": x / (s - 1) + (s + 3) / (3 * (s - 1) ** 2),  # t instead of t^2
        "piecewise-optimal": x**2 / (s - 1) + (s + 3) / (3 * (s - 1) ** 2),  # Piecewise itself
        "duchi": c * c,  # second moment, not variance
        "hybrid": (1 - 1 / s) * (c * c - x * x) + (x**2 / (s - 1) + (s + 3) / (3 * (s - 1) ** 2)) / s,  # shares swapped
        "laplace": 2 / epsilon**2,  # sensitivity 1 instead of 2
        "gaussian": 8 * math.log(1.25e6) / epsilon**2,  # the classic calibration
    }


@pytest.mark.parametrize("name", wrong_variances(1.0, 0.3))
def test_wrong_formulas_are_told_apart(name: str) -> None:
    variance = float(BUILD[name](1.0).moments(0.3).variance)
    assert abs(wrong_variances(1.0, 0.3)[name] / variance - 1) > 1e-3


def test_wrong_stairs_are_told_apart(stairs_law: Any) -> None:
    """g = 1 / (1 + exp(e/2)) has the least magnitude, not the least variance; the integral sees the difference."""
    right = float(nz.Staircase(2.0).moments(0.3).variance)
    other = stairs_law(0.3, 2.0, 1 / (1 + math.e)).moments(0.3)[1]
    assert other > right * (1 + 1e-3)
    assert float(nz.Scdf(2.0).moments(0.3).variance) > right * (1 + 1e-4)


def test_third_moment_of_laplace_noise() -> None:
    """6 lambda^3; the paper takes 3."""
    assert math.isclose(float(nz.Laplace(1.0).moments(0.2).third), 6 * 2.0**3, rel_tol=1e-7)


@pytest.mark.parametrize(("width", "moves"), [(1, 1), (1, 6), (3, 4), (8, 2)])
def test_window_moments_by_enumeration(width: int, moves: int) -> None:
    window = Window(nz.Interval(), step=0.25, first=-1.0, width=width, moves=moves, p_window=0.625)
    reports = window.first + window.step * np.arange(width + moves)
    for place in np.arange(moves + 1.0):
        mass = np.exp(window.log_mass(reports, np.full(reports.shape, place)))
        assert math.isclose(mass.sum(), 1, rel_tol=1e-12)
        mean = float((mass * reports).sum())
        where = np.asarray([place])
        assert math.isclose(window.mean(where)[0], mean, rel_tol=1e-12, abs_tol=1e-12)
        second = float((mass * (reports - mean) ** 2).sum())
        assert math.isclose(window.absolute(where, np.asarray([mean]), 2)[0], second, rel_tol=1e-9, abs_tol=1e-12)
    offset, slope = window.unbiased_map
    for place in np.arange(moves + 1.0):  # the map undoes the mean
        x = float(window.mean(np.asarray([place]))[0])
        assert math.isclose(offset + slope * x, place, rel_tol=1e-9, abs_tol=1e-9)


class CoarseLaplace(nz.Laplace):
    """Laplace on a lattice coarse enough to enumerate."""

    _step = 0.25


class CoarseStaircase(nz.Staircase):
    """Staircase on a lattice coarse enough to enumerate."""

    _step = 0.25


class CoarseGaussian(nz.Gaussian):
    """Gaussian on a lattice coarse enough to enumerate."""

    _step = 0.25


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 6.0])
@pytest.mark.parametrize("build", [CoarseLaplace, CoarseStaircase, CoarseGaussian])
def test_additive_moments_by_enumeration(build: type[AdditiveMechanism], epsilon: float) -> None:
    """The unbiased rounding to the lattice is inside the moments, and the law has mass one."""
    mechanism: Any = build(epsilon)
    reports = mechanism.support.value(np.arange(-6000.0, 6001.0))
    for x in (-1.0, -0.99, -0.5, 0.0, 0.01, 0.125, 0.3, 1.0):
        mass = np.exp(mechanism.log_prob(reports, x)) * 0.25
        assert math.isclose(mass.sum(), 1, rel_tol=1e-10)
        moments = mechanism.moments(x)
        assert math.isclose(float((mass * (reports - x)).sum()), 0, abs_tol=1e-9)
        assert math.isclose(float((mass * (reports - x) ** 2).sum()), float(moments.variance), rel_tol=1e-9)
        assert math.isclose(float((mass * np.abs(reports - x) ** 3).sum()), float(moments.third), rel_tol=1e-9)


@pytest.mark.parametrize(
    "noise",
    [
        LaplaceNoise(0.05),
        LaplaceNoise(3.0),
        LaplaceNoise(40.0),
        GaussianNoise(0.2),
        GaussianNoise(1.3),
        GaussianNoise(300.0),
        GaussianNoise(1500.0),
        StaircaseNoise(0.5, 10, 3),
        StaircaseNoise(0.7, 1, 1),
        StaircaseNoise(3.0, 7, 7),
    ],
)
def test_noise_moments_by_enumeration(noise: Any) -> None:
    support = np.arange(-60_000.0, 60_001.0) + noise.half
    mass = np.exp(noise.log_mass(support))
    assert math.isclose(mass.sum(), 1, rel_tol=1e-12)
    for power, value in zip((1, 2, 3), noise.absolute, strict=True):
        assert math.isclose(float((mass * np.abs(support) ** power).sum()), value, rel_tol=1e-9, abs_tol=1e-15)


@pytest.mark.parametrize("name", ["discrete-laplace", "discrete-gaussian"])
def test_grid_moments_by_enumeration(name: str) -> None:
    mechanism = nz.CATALOGUE[name](1.0, domain=nz.Grid(-3, 9, 1.5))
    reports = mechanism.support.value(np.arange(-3000.0, 3001.0))
    for x in (-3.0, 0.0, 9.0):
        mass = np.exp(mechanism.log_prob(reports, x))
        assert math.isclose(mass.sum(), 1, rel_tol=1e-12)
        moments = mechanism.moments(x)
        assert float(moments.bias) == 0
        assert math.isclose(float((mass * (reports - x) ** 2).sum()), float(moments.variance), rel_tol=1e-9)
        assert math.isclose(float((mass * np.abs(reports - x) ** 3).sum()), float(moments.third), rel_tol=1e-9)
    ratio = math.exp(-1 / 8)
    if name == "discrete-laplace":
        assert math.isclose(
            float(mechanism.moments(0.0).variance), 1.5**2 * 2 * ratio / (1 - ratio) ** 2, rel_tol=1e-12
        )


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 1.0])
def test_the_lattice_costs_little_however_much_noise_there_is(epsilon: float) -> None:
    """The domain's ends are rounded outward to it: steps that grew with the noise would widen the domain."""
    mechanism = nz.Laplace(epsilon, domain=nz.Interval(0.1, 1.1))
    assert mechanism.moments(0.5).variance == pytest.approx(2 / epsilon**2, rel=1e-4)
