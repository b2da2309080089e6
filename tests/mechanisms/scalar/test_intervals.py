"""Confidence intervals cover as often as they say, and finite-sample ones at any number of reports."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

import noisette as nz

FALSE_ALARM = 1e-6
GRID = nz.Grid(0, 4)
BUILD: dict[str, Callable[[], Any]] = {
    "laplace": lambda: nz.Laplace(1.0, domain=nz.Interval(0, 4)),
    "gaussian": lambda: nz.Gaussian(1.0, domain=nz.Interval(0, 4)),
    "staircase": lambda: nz.Staircase(1.0, domain=nz.Interval(0, 4)),
    "scdf": lambda: nz.Scdf(1.0, domain=nz.Interval(0, 4)),
    "duchi": lambda: nz.Duchi(1.0, domain=nz.Interval(0, 4)),
    "piecewise": lambda: nz.Piecewise(1.0, domain=nz.Interval(0, 4)),
    "piecewise-optimal": lambda: nz.PiecewiseOptimal(3.0, domain=nz.Interval(0, 4)),
    "hybrid": lambda: nz.Hybrid(1.0, domain=nz.Interval(0, 4)),
    "hybrid-as-duchi": lambda: nz.Hybrid(0.5, domain=nz.Interval(0, 4)),
    "square-wave": lambda: nz.SquareWave(1.0, domain=nz.Interval(0, 4)),
    "square-wave-debiased": lambda: nz.SquareWave(1.0, domain=nz.Interval(0, 4), debiased=True),
    "discrete-laplace": lambda: nz.DiscreteLaplace(1.0, domain=GRID),
    "discrete-gaussian": lambda: nz.DiscreteGaussian(1.0, domain=GRID),
}
TRIALS, FEWER = 1200, 400  # collections for the normal and for the finite interval


def covered(mechanism: Any, users: int, *, method: str, seed: int, shrink: float = 1.0) -> tuple[int, int]:
    """Return in how many of so many collections the 95 % interval holds the population's mean.

    The population has a fifth of 0, half of 1 and three tenths of 4: its mean is 1.7.
    """
    rng = np.random.default_rng(seed)
    trials = TRIALS if users > 100 else FEWER
    values = rng.choice([0.0, 1.0, 4.0], p=[0.2, 0.5, 0.3], size=(trials, users))
    reports = mechanism.privatize(values.reshape(-1), rng=rng).reshape(values.shape)
    count = 0
    for row in reports:
        estimate = mechanism.aggregate(row).estimate()
        low, high = estimate.interval(0.95, method=method)
        middle, radius = (low + high) / 2, shrink * (high - low) / 2
        count += int(abs(middle[0] - 1.7) <= radius[0])
    return count, trials


def between(coverage: tuple[int, int], low: float, high: float) -> bool:
    """Tell whether a count agrees with a coverage in [low, high], at the false-alarm rate."""
    count, trials = coverage
    below = stats.binom.cdf(count, trials, low) < FALSE_ALARM / 2
    above = stats.binom.sf(count - 1, trials, high) < FALSE_ALARM / 2
    return not (below or above)


@pytest.mark.slow
@pytest.mark.parametrize("name", BUILD)
def test_normal_intervals_cover(name: str) -> None:
    """With 1,000 reports the central limit theorem errs by less than half a point here."""
    assert between(covered(BUILD[name](), 1000, method="normal", seed=1), 0.945, 0.955)


@pytest.mark.slow
def test_short_intervals_are_caught() -> None:
    """The twin: intervals a fifth too short, or two fifths too long, do not pass."""
    for name in ("laplace", "piecewise"):
        for shrink in (0.8, 1.4):
            coverage = covered(BUILD[name](), 1000, method="normal", seed=1, shrink=shrink)
            assert not between(coverage, 0.945, 0.955)


@pytest.mark.slow
@pytest.mark.parametrize("users", [1, 2, 10])
@pytest.mark.parametrize("name", BUILD)
def test_finite_intervals_cover_at_any_size(name: str, users: int) -> None:
    assert between(covered(BUILD[name](), users, method="finite", seed=2), 0.95, 1.0)


def test_normal_intervals_fail_with_two_reports() -> None:
    """The twin: what the finite interval is for."""
    assert not between(covered(BUILD["laplace"](), 2, method="normal", seed=2), 0.95, 1.0)


def test_tiny_finite_intervals_are_caught() -> None:
    assert not between(covered(BUILD["duchi"](), 10, method="finite", seed=2, shrink=0.4), 0.95, 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("name", BUILD)
def test_standard_error_is_the_spread_of_estimates(name: str) -> None:
    """Root mean square of std_error against the spread of the estimates themselves, and against ``moments``."""
    mechanism = BUILD[name]()
    rng = np.random.default_rng(3)
    population, chances = np.asarray([0.0, 1.0, 4.0]), np.asarray([0.2, 0.5, 0.3])
    values = rng.choice(population, p=chances, size=(FEWER, 300))
    reports = mechanism.privatize(values.reshape(-1), rng=rng).reshape(values.shape)
    estimates = [mechanism.aggregate(row).estimate() for row in reports]
    value = np.asarray([estimate.value[0] for estimate in estimates])
    stated = math.sqrt(np.mean([estimate.std_error[0] ** 2 for estimate in estimates]))
    assert abs(value.mean() - 1.7) < 5.3 * stated / math.sqrt(FEWER)
    # a sample variance of 400 near-normal estimates errs by sqrt(2/400); 5.3 times that
    assert abs((value.std() / stated) ** 2 - 1) < 5.3 * math.sqrt(2 / FEWER)
    moments = mechanism.moments(population)
    slope = 1 + (moments.bias[2] - moments.bias[0]) / 4
    spread = (chances * moments.variance).sum() + slope**2 * ((chances * population**2).sum() - 1.7**2)
    assert abs((math.sqrt(spread / 300) / slope / stated) - 1) < 0.02  # of 400 * 300 squares


@pytest.mark.parametrize("name", BUILD)
def test_finite_interval_is_the_wider_one(name: str) -> None:
    mechanism = BUILD[name]()
    estimate = mechanism.aggregate(mechanism.privatize(np.full(5000, 1.0), rng=4)).estimate()
    normal, finite = (np.subtract(*estimate.interval(0.95, method=method)) for method in ("normal", "finite"))
    assert -finite > -normal
    assert -finite < -12 * normal  # and of use
    narrow, wide = (np.subtract(*estimate.interval(level, method="finite")) for level in (0.5, 0.999))
    assert -wide > -narrow


@pytest.mark.parametrize("name", ["piecewise", "hybrid", "duchi", "square-wave", "staircase"])
@pytest.mark.parametrize("epsilon", [1e-3, 20.0, 60.0, 1000.0])
def test_estimates_at_extreme_budgets(name: str, epsilon: float) -> None:
    """All users hold one value: the estimate finds it, within its own error bars."""
    mechanism = nz.CATALOGUE[name](epsilon, domain=nz.Interval(5, 5.1))
    x = 5.0625
    estimate = mechanism.aggregate(mechanism.privatize(np.full(20_000, x), rng=5)).estimate()
    assert np.isfinite(estimate.std_error).all()
    assert estimate.std_error[0] > 0
    assert abs(estimate.value[0] - x) < 5.3 * estimate.std_error[0] + 1e-9
