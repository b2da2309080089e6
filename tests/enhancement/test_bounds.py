"""The flat prior against quadrature in many digits, and its promise never to lose to raw."""

import mpmath
import numpy as np
import pytest
from scipy.integrate import quad

from noisette.enhancement.bounds import box, flat_posterior, uniform_prior


@pytest.mark.parametrize("y", [0.0, 0.3, 0.999, 1.0, 1.7, 5.0, -40.0])
@pytest.mark.parametrize("s", [1e-3, 0.05, 0.3, 1.0, 7.0, 1e4])
def test_flat_posterior_against_mpmath(y, s):
    mean, variance, log_density = (float(part[0]) for part in flat_posterior(np.array([y]), np.array([s])))
    with mpmath.workdps(60):
        a, b = (mpmath.mpf(-1) - y) / s, (mpmath.mpf(1) - y) / s
        mass = (mpmath.erf(b / mpmath.sqrt(2)) - mpmath.erf(a / mpmath.sqrt(2))) / 2
        if mass == 0:  # too far for erf: count from the other tail
            mass = (mpmath.erfc(abs(b) / mpmath.sqrt(2)) - mpmath.erfc(abs(a) / mpmath.sqrt(2))) / 2
            mass = abs(mass)
        shift = (mpmath.npdf(a) - mpmath.npdf(b)) / mass
        spread = 1 + (a * mpmath.npdf(a) - b * mpmath.npdf(b)) / mass - shift**2
        expected = float(y + s * shift), float(s**2 * spread), float(mpmath.log(mass / 2))
    assert mean == pytest.approx(expected[0], abs=1e-9, rel=1e-9)
    assert variance == pytest.approx(expected[1], rel=1e-6)
    assert log_density == pytest.approx(expected[2], rel=1e-9, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("s", [0.05, 0.3, 1.0, 3.0])
def test_uniform_prior_is_never_above_raw(s):
    """Hartigan's theorem, by quadrature over the noise."""
    noise = np.linspace(-9, 9, 6_001)
    weight = np.exp(-(noise**2) / 2)
    weight /= weight.sum()
    for truth in np.linspace(-1, 1, 21):
        y = truth + s * noise
        risk = np.sum(weight * (uniform_prior(y, np.full_like(y, s)).value - truth) ** 2)
        assert risk <= s**2 * (1 + 1e-6)


def test_a_prior_on_half_of_the_domain_is_above_raw_somewhere():
    """The twin: a prior that leaves out a part of the domain breaks the promise."""
    noise = np.linspace(-9, 9, 6_001)
    weight = np.exp(-(noise**2) / 2)
    weight /= weight.sum()
    y = 1.0 + 0.3 * noise
    half = flat_posterior(2 * y, np.full_like(y, 0.6))[0] / 2  # flat on [-1/2, 1/2]
    assert np.sum(weight * (half - 1.0) ** 2) > 2 * 0.3**2


def test_uniform_prior_against_quad():
    y, s = 0.8, 0.4

    def density(t):
        return np.exp(-((y - t) ** 2) / (2 * s**2))

    mass = quad(density, -1, 1)[0]
    mean = quad(lambda t: t * density(t), -1, 1)[0] / mass
    found = uniform_prior(np.array([y]), np.array([s]))
    assert found.value[0] == pytest.approx(mean, rel=1e-9)
    second = quad(lambda t: (t - mean) ** 2 * density(t), -1, 1)[0] / mass
    assert found.std_error[0] == pytest.approx(np.sqrt(second), rel=1e-8)


def test_box_is_the_projection():
    result = box(np.array([-3.0, 0.25, 1.5]), np.array([1.0, 0.1, 0.2]))
    assert result.value.tolist() == [-1.0, 0.25, 1.0]
    assert result.risk == pytest.approx([4 - 1, 0.01, 0.25 - 0.04])


def test_of_what_nobody_reported_the_flat_prior_says_what_it_is():
    found = uniform_prior(np.zeros(1), np.ones(1))
    assert found.blank_value == 0.0
    assert found.blank_error == pytest.approx(np.sqrt(quad(lambda t: t**2 / 2, -1, 1)[0]))
