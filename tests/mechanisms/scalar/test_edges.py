"""Edges of mechanisms for numbers: worst windows against a fine grid, lattices far from zero, tiny and huge budgets."""

from __future__ import annotations

import math

import numpy as np
import pytest

import noisette as nz
from noisette.mechanisms._base import power_of_two
from noisette.mechanisms.scalar import _lp_solve


def windows(outputs: np.ndarray, masses: np.ndarray, ratio: float) -> tuple[np.ndarray, np.ndarray]:
    """Return means and variances under many windows: each weighs a stretch of the masses by E, the others by one."""
    atoms, weights = np.concatenate([-outputs[::-1], outputs]), np.concatenate([masses[::-1], masses])
    ends = np.concatenate([[0.0], np.cumsum(weights)])
    width = min((1 - ends[-1]) / (ratio - 1), ends[-1])
    starts = np.linspace((ends[-1] - width) / 2, ends[-1] - width, 2001)[:, None]
    parts = np.clip(np.minimum(ends[1:], starts + width) - np.maximum(ends[:-1], starts), 0, None)
    laws = weights + (ratio - 1) * parts
    means = laws @ atoms
    return means, laws @ atoms**2 - means**2


@pytest.mark.parametrize("farthest", [0.999, 1.0001, 1.4, 3.0])
@pytest.mark.parametrize("seed", range(6))
def test_the_worst_window_is_that_of_a_fine_grid(seed: int, farthest: float) -> None:
    """Outputs are scaled so that the last window's mean is as given: below 1 no mechanism is unbiased."""
    rng = np.random.default_rng(seed)
    ratio, outputs, masses = rng.uniform(2, 9), np.sort(rng.uniform(0.05, 3.0, 6)), rng.uniform(0, 1, 6) ** 3
    masses *= rng.uniform(1.2, 0.9 * ratio) / (2 * ratio) / masses.sum()
    outputs *= farthest / windows(outputs, masses, ratio)[0][-1]
    found = _lp_solve.respond(outputs, masses, ratio).worst
    means, variances = windows(outputs, masses, ratio)
    assert math.isfinite(found) == (farthest > 1)
    if farthest > 1:
        worst = float(variances[means <= 1].max())
        assert worst <= found * (1 + 1e-12)
        assert worst >= found * (1 - 5e-3)


@pytest.mark.parametrize("name", ["laplace", "staircase", "scdf", "gaussian", "piecewise", "hybrid", "sliding-half"])
@pytest.mark.parametrize("power", [0, 10, 20, 30])
def test_lattices_far_from_zero_are_held_exactly(name: str, power: int) -> None:
    """Each point is a float64: steps are at least 2^-46 of the largest number; and no longer than they must be."""
    options = {"delta": 1e-6} if name == "gaussian" else {}
    domain = nz.Interval(2.0**power, 2.0**power + 1)
    mechanism = nz.build(name, domain, epsilon=1.0, **options)
    support = mechanism.support
    index = support.index(np.asarray(mechanism.privatize(np.full(300, domain.low), rng=1)))
    points = support.value(index)
    assert np.array_equal(support.index(points), index)
    assert np.unique(np.diff(np.sort(np.unique(points))) % support.step).tolist() == [0.0]
    assert support.step <= 2.0**-9
    if name in ("laplace", "staircase", "scdf", "gaussian"):
        assert support.step >= power_of_two(domain.high) / 2**46
        assert power < 30 or support.step == power_of_two(domain.high) / 2**46


@pytest.mark.parametrize("name", ["piecewise", "piecewise-optimal", "square-wave", "hybrid", "duchi", "laplace"])
def test_tiny_budgets_need_no_other_domain(name: str) -> None:
    """Reports then lie far out, and steps are long beside the domain: no fault of where it is."""
    mechanism = nz.CATALOGUE[name](1e-7)
    assert np.all(np.isfinite(mechanism.privatize([-1.0, 0.0, 1.0], rng=1)))
    assert 0 < nz.exact_epsilon(mechanism) <= 1e-7
    with pytest.raises(ValueError, match="epsilon=9e-08 in"):
        nz.CATALOGUE[name](9e-8)


@pytest.mark.parametrize(
    "name", ["piecewise", "piecewise-optimal", "square-wave", "hybrid", "duchi", "laplace", "scdf"]
)
def test_huge_budgets_leave_almost_nothing_out(name: str) -> None:
    mechanism = nz.CATALOGUE[name](1e6)
    reports = mechanism.privatize([-1.0, 0.25, 1.0], rng=1)
    if name != "duchi":
        assert reports == pytest.approx([-1.0, 0.25, 1.0], abs=1e-4)
    with pytest.raises(ValueError, match=r"epsilon=1000001\.0 in"):
        nz.CATALOGUE[name](1e6 + 1)
