"""LDPVec's perturbation: budgets that add up, and what Algorithm 6 keeps of its claim."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtri

import noisette as nz
from noisette.guarantees import gaussian_epsilon, gaussian_mu

ALARM = 1e-6


def published(**options: Any) -> nz.AngleNoise:
    with pytest.warns(nz.PrivacyWarning, match="does not hold"):
        return nz.AngleNoise(as_published=True, **options)


@pytest.mark.long
@pytest.mark.parametrize("noise", ["laplace", "piecewise", "duchi", "hybrid"])
@pytest.mark.parametrize("domain", [nz.L2Ball(3), nz.Sphere(4, 2.0)])
def test_budgets_add_up_and_the_calculator_agrees(noise: str, domain: Any) -> None:
    m = nz.AngleNoise(2.0, domain=domain, noise=noise, beta=0.4)
    parts = 3  # three coordinates of the ball, three angles of the sphere
    assert m.channel.epsilon == pytest.approx(2.0 / parts)
    assert nz.exact_epsilon(m) == pytest.approx(2.0, rel=1e-9)
    nz.testing.check_mechanism(m, samples=10_000)


def test_gaussian_parts_share_the_squared_mu() -> None:
    m = nz.AngleNoise(3.0, 6, noise="gaussian", delta=1e-5)
    assert m.channel.mu * math.sqrt(6) == pytest.approx(gaussian_mu(3.0, 1e-5), rel=1e-6)
    assert m.channel.mu * math.sqrt(6) <= gaussian_mu(3.0, 1e-5)
    assert m.guarantee.delta == 1e-5
    assert nz.exact_epsilon(m) == math.inf  # no pure epsilon holds


@pytest.mark.parametrize("noise", ["laplace", "piecewise", "gaussian"])
def test_a_magnitude_without_noise_tells_inputs_apart(noise: str) -> None:
    m = published(epsilon=1.0, dims=3, noise=noise, delta=1e-6 if noise == "gaussian" else 0.0)
    assert m.guarantee.epsilon == math.inf
    assert m.guarantee.claim is not None
    assert m.guarantee.claim.epsilon == 1.0
    short, long = np.asarray([0.1, 0.0, 0.0]), np.asarray([0.2, 0.0, 0.0])
    reports = m.privatize(np.tile(short, (100, 1)), rng=1)
    assert np.all(reports[:, 0] == pytest.approx(0.1, abs=1e-11))
    assert np.isfinite(m.log_prob(reports, short)).all()
    assert np.all(m.log_prob(reports, long) == -math.inf)
    assert nz.exact_epsilon(m) == math.inf


@pytest.mark.parametrize("beta", [1.0, 0.25])
def test_on_a_sphere_laplace_keeps_epsilon_over_beta(beta: float) -> None:
    options: dict[str, Any] = {"epsilon": 2.0, "domain": nz.Sphere(5), "noise": "laplace", "beta": beta}
    m = published(**options) if beta < 1 else nz.AngleNoise(as_published=True, **options)
    assert m.guarantee.epsilon == pytest.approx(2.0 / beta)
    assert nz.exact_epsilon(m) == pytest.approx(2.0 / beta, rel=1e-9)
    # the printed noise: Laplace of scale beta d pi / epsilon on every angle
    assert m.moments([[0.6, 0.0, 0.0, 0.0, 0.8]]).variance[0, 1:] == pytest.approx(
        2 * (beta * 5 * math.pi / 2.0) ** 2, rel=1e-6
    )


def test_on_a_sphere_gaussian_noise_keeps_mu_over_beta_and_piecewise_nothing() -> None:
    m = published(epsilon=2.0, domain=nz.Sphere(5), noise="gaussian", delta=1e-5, beta=0.5)
    mu = gaussian_mu(2.0, 1e-5)
    assert m.guarantee.epsilon == pytest.approx(gaussian_epsilon(2 * mu, 1e-5))
    variance = m.moments([[0.6, 0.0, 0.0, 0.0, 0.8]]).variance[0, 1:]
    assert variance == pytest.approx(7 * (0.5 * math.pi / mu) ** 2, rel=1e-6)
    assert published(epsilon=2.0, domain=nz.Sphere(5)).guarantee.epsilon == math.inf
    assert nz.AngleNoise(2.0, domain=nz.Sphere(2), as_published=True).guarantee.claim_holds  # one angle, of its range


def test_published_piecewise_moves_with_the_angle_so_some_reports_betray_it() -> None:
    m = published(epsilon=1.0, domain=nz.Sphere(3))
    low, high = m.witnesses()[0]
    reports = m.privatize(np.tile(low, (20_000, 1)), rng=2)
    assert np.isfinite(m.log_prob(reports, low)).all()
    assert np.any(m.log_prob(reports, high) == -math.inf)
    sound = nz.AngleNoise(1.0, domain=nz.Sphere(3))
    reports = sound.privatize(np.tile(low, (20_000, 1)), rng=2)
    assert np.isfinite(sound.log_prob(reports, high)).all()


@pytest.mark.parametrize("noise", ["laplace", "piecewise"])
def test_the_published_estimate_is_unbiased_for_the_unclipped_angles(noise: str) -> None:
    m = published(epsilon=4.0, dims=3, noise=noise, beta=0.5)
    x = np.asarray([0.3, -0.5, 0.2])
    estimate = m.aggregate(m.privatize(np.tile(x, (40_000, 1)), rng=3)).estimate()
    error = ndtri(1 - ALARM / 4) * np.sqrt(m.moments(x).variance / 40_000) + 1e-11
    assert np.all(np.abs(estimate.value - m.target(x)) <= error)
    assert np.any(np.abs(estimate.value - np.clip(m.target(x), *m._ends)) > error)  # the twin: angles are not clipped


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noise": "nothing"}, "Unknown mechanism 'nothing'"),
        ({"noise": "grr"}, "one real number"),
        ({"noise": "gaussian"}, "delta > 0"),
        ({"noise": "laplace", "delta": 1e-6}, "only 'gaussian'"),
        ({"noise": "duchi", "as_published": True}, "not published"),
        ({"beta": 2.0}, "beta=2.0"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        nz.AngleNoise(1.0, 3, **options)


def test_what_is_no_report_is_refused() -> None:
    m = nz.AngleNoise(3.0, domain=nz.Sphere(3), noise="duchi")
    report = m.privatize([0.0, 0.6, 0.8], rng=1)
    m.aggregate([report])
    for place, wrong in ((0, 0.9), (1, 0.0), (2, math.nan)):
        other = report.copy()
        other[place] = wrong
        with pytest.raises(ValueError, match="outside the support"):
            m.aggregate([other])
    with pytest.raises(ValueError, match=r"length 0.5"):
        m.privatize([0.0, 0.3, 0.4])
    assert np.linalg.norm(m.decode(report)) == pytest.approx(1.0)


def test_finite_intervals_of_published_angles_allow_for_all_of_their_range() -> None:
    """Hoeffding: a variable between two ends has a variance of at most the square of half their distance."""
    m = published(epsilon=4.0, dims=4)
    half = (m.support.most - m.support.least) / 2
    assert np.all(half[1:] > 0)
    assert m.readout.tail.variance[1:] == pytest.approx(half[1:] ** 2)


@pytest.mark.parametrize("noise", ["duchi", "hybrid", "piecewise", "laplace"])
def test_reports_are_their_own_however_their_coordinates_are_rounded(noise: str) -> None:
    """A coordinate is mapped to its range and back, which rounds twice; a neighbour of its place is none of its."""
    for epsilon in (0.7, 4.0, 9.0):
        for beta in (0.4, 1.0):
            for domain in (nz.L2Ball(3, 2.0), nz.Sphere(3)):
                made = nz.AngleNoise(epsilon, domain=domain, noise=noise, beta=beta)
                x = np.tile(np.eye(domain.dims)[0] * domain.radius, (20, 1))
                reports = made.privatize(x, rng=1)
                assert made.support.contains(reports).all()
                assert np.isfinite(made.log_prob(reports, x)).all()
                assert np.isfinite(made.aggregate(reports).estimate().value).all()
