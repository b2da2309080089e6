"""The lattice that released gradients lie on: its step, its range, and what rounding to it costs."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from noisette.accounting import gdp_epsilon
from noisette.sgd.noise import _lattice
from noisette.sgd.noise._lattice import add_exactly, make_noisy_means, noisy_count, on_lattice, widened

STEPS = 2**36  # of the finer lattice, on which noise is drawn, in a standard deviation


@pytest.mark.parametrize("least", [1.0, 0.3, 2.0**-7])
@pytest.mark.parametrize("size", [3e-5, 1.0, 700.0])
def test_the_step_is_a_power_of_two_far_below_the_smallest_noise(size, least):
    white = np.random.default_rng(0).normal(size=1000)
    exact = white * size
    made = on_lattice(white.copy(), size, least)
    steps = {2.0**k for k in range(-60, 20) if 2.0**-21 < 2.0**k / (size * least) <= 2.0**-20}
    (step,) = steps
    codes = made / step
    assert np.array_equal(codes, np.rint(codes))
    assert math.gcd(*(int(code) for code in codes)) == 1  # and no coarser one
    assert np.abs(made - exact).max() <= step / 2 * (1 + 1e-9)
    assert np.abs(made - exact).max() > step / 3


@pytest.mark.parametrize("entries", [1, 1000, 10**8])
@pytest.mark.parametrize("room", [0.0, 2.0**-20])
def test_noise_on_the_lattice_is_as_private_as_real_noise(entries, room):
    """Rounding moves a record by at most sqrt(entries) / 2 steps, twice: the noise makes up for it, and for no more."""
    multiplier = 1.3
    found = widened(multiplier, entries, room)
    moved = (1 + found * math.sqrt(entries) / STEPS) / found  # sensitivity over noise, both in units of the clip
    assert moved <= 1 / multiplier
    assert gdp_epsilon(moved, 1e-6) <= gdp_epsilon(1 / multiplier, 1e-6)
    assert found <= multiplier * (1 + room) * (1 + 1.01 * multiplier * math.sqrt(entries) / STEPS + 1e-14)
    assert Fraction(found) >= Fraction(multiplier) * (1 + Fraction(room))


def test_noise_beyond_the_lattice_is_refused():
    assert widened(2.0**20, 2**30, 0.0) == pytest.approx(2.0**20 * 2, rel=1e-9)  # half of a step for each entry
    with pytest.raises(ValueError, match="half of the budget"):
        widened(2.0**20, 2**30 + 2**16)


def test_far_numbers_are_cut_before_the_noise_and_others_are_not():
    far = 2.0**26
    white = np.array([1e300, -1e300, math.inf, -math.inf, far / 2, -far / 2])
    add_exactly(white, np.random.default_rng(1))
    expected = [far, -far, far, -far, far / 2, -far / 2]
    assert np.abs(white - expected).max() < 7  # a normal variable, six of them: once in 1e11
    assert np.abs(white - expected).min() > 0
    codes = white * STEPS
    assert np.array_equal(codes, np.rint(codes))


@pytest.mark.parametrize(("reach", "multiplier"), [(1.0, 2.0), (0.01, 30.0)])
def test_a_noisy_count_has_the_noise_that_it_promises(reach, multiplier):
    """Over 2,000 counts the mean and the deviation lie within 5.5 standard errors: false alarm below 1e-7."""
    rng = np.random.default_rng(2)
    sigma = reach * multiplier
    errors = np.array([noisy_count(5 * sigma, reach, multiplier, rng) for _ in range(2000)]) / sigma - 5
    assert abs(errors.mean()) < 5.5 / math.sqrt(2000)
    assert abs(errors.std() - 1) < 5.5 / math.sqrt(4000)


@pytest.mark.parametrize("multiplier", [0.7, 2.0**20])
def test_a_count_is_divided_by_noise_that_makes_up_for_its_lattice(monkeypatch, multiplier):
    """One entry is rounded by one step at most, and 2^-20 is left to double precision: 3 is 3 times what it changes."""
    seen = []
    monkeypatch.setattr(_lattice, "add_exactly", lambda white, rng: seen.append(white[0]))
    noisy_count(1.5, 0.5, multiplier, np.random.default_rng(1))
    assert 3 / seen[0] == pytest.approx(multiplier * (1 + 1 / 1048576) / (1 - multiplier / STEPS), rel=1e-13)


@pytest.mark.parametrize(("size", "expected"), [(3e-3, 256.0), (40.0, 17.3)])
def test_one_pass_makes_the_same_mean_as_its_steps(size, expected):
    total = np.random.default_rng(3).normal(size=40_000) * 5 * size
    white = total / size
    add_exactly(white, np.random.default_rng(4))
    on_lattice(white, size / expected)
    make_noisy_means([total], size, expected, np.random.default_rng(4))
    # a sum in units of its noise is rounded once more on the long way: a step of 2^36, of which 2^16 are one here
    assert np.mean(total == white) > 0.999
    step = 2.0 ** math.floor(math.log2(size / expected)) * 2.0**-20
    assert np.abs(total - white).max() <= step
