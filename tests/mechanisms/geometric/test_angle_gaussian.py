"""GeoDP's perturbation of one vector: its noise, its sensitivity by search, and the claim that does not hold."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import kstest

import noisette as nz
from noisette.guarantees import gaussian_delta, gaussian_epsilon, gaussian_mu
from noisette.mechanisms.geometric.spherical import to_spherical

ALARM = 1e-6


def published(**options: Any) -> nz.AngleGaussian:
    with pytest.warns(nz.PrivacyWarning, match="does not hold"):
        return nz.AngleGaussian(as_published=True, **options)


@pytest.mark.slow
@pytest.mark.parametrize(("dims", "beta"), [(2, 1.0), (3, 0.5), (7, 0.1), (50, 1.0)])
def test_no_two_vectors_are_farther_apart_than_the_diameter_and_the_witnesses_are_as_far(
    dims: int, beta: float
) -> None:
    m = nz.AngleGaussian(1.0, dims, beta=beta)
    rng = np.random.default_rng(dims)
    x = m.domain.clip(rng.standard_normal((4000, dims)) * np.exp(rng.normal(0, 4, (4000, dims))))
    targets = m.target(x)
    apart = np.linalg.norm(targets[::2, 1:] - targets[1::2, 1:], axis=1)
    assert apart.max() <= m.diameter * (1 + 1e-12)
    first, second = m.target(m.witnesses()[0])
    assert np.linalg.norm(first[1:] - second[1:]) == pytest.approx(math.sqrt(dims + 2) * beta * math.pi, rel=1e-12)
    assert abs(first[0] - second[0]) == pytest.approx(1.0)
    # the twin: all d - 1 angles in a range of beta pi would give sqrt(d - 1) beta pi
    assert np.linalg.norm(first[1:] - second[1:]) > 1.01 * math.sqrt(dims - 1) * beta * math.pi


@pytest.mark.parametrize("batch", [1, 100])
def test_the_two_releases_share_the_squared_mu(batch: int) -> None:
    m = nz.AngleGaussian(2.0, domain=nz.L2Ball(5, 0.1), delta=1e-5, beta=0.3, batch=batch)
    parts = 0.1 / batch / m.sigmas[0], m.diameter / m.sigmas[1]
    assert parts[0] == pytest.approx(parts[1], rel=1e-9)
    assert math.hypot(*parts) == pytest.approx(gaussian_mu(2.0, 1e-5), rel=1e-9)
    assert m.mu <= gaussian_mu(2.0, 1e-5) * (1 + 1e-9)
    assert m.rho == m.mu**2 / 2
    assert nz.exact_delta(m, 2.0) == pytest.approx(1e-5, rel=1e-6)
    assert nz.exact_delta(m, 0.5) == pytest.approx(float(gaussian_delta(m.mu, 0.5)), rel=1e-6)
    guarantee = m.guarantee
    wanted = ("record", "local", "any-pair") if batch == 1 else ("example", "central", "add-remove")
    assert (guarantee.unit, guarantee.model, guarantee.relation) == wanted


@pytest.mark.parametrize("dims", [2, 3, 5])
def test_on_a_sphere_the_angles_alone_tell_inputs_apart(dims: int) -> None:
    """The witnesses are vectors of the one length, and the noise on the length is for nothing: less than stated."""
    m = nz.AngleGaussian(2.0, domain=nz.Sphere(dims, 0.3), delta=1e-5, beta=0.8)
    inputs, reports = m.witnesses()
    assert np.linalg.norm(inputs, axis=1) == pytest.approx(0.3, rel=1e-12)
    assert m.support.contains(reports).all()
    mu = math.sqrt(dims + 2) * 0.8 * math.pi / m.sigmas[1]
    assert nz.exact_delta(m, 0.5) == pytest.approx(float(gaussian_delta(mu, 0.5)), rel=1e-6)
    assert nz.exact_delta(m, gaussian_epsilon(mu, 1e-5)) == pytest.approx(1e-5, rel=1e-6)
    assert gaussian_epsilon(mu, 1e-5) < 0.75 * m.guarantee.epsilon


def test_the_published_noise_is_divided_by_the_batch_and_what_holds_is_far_more() -> None:
    m = published(epsilon=1.0, domain=nz.L2Ball(3, 0.1), delta=1e-5, beta=0.1, batch=100)
    sigma = 1 / gaussian_mu(1.0, 1e-5)
    assert m.sigmas[0] == pytest.approx(0.1 * sigma / 100)
    assert m.sigmas[1] == pytest.approx(math.sqrt(5) * 0.1 * math.pi * sigma / 100)
    assert m.mu == pytest.approx(math.sqrt(1 + 100**2) / sigma, rel=1e-6)
    assert m.guarantee.epsilon == gaussian_epsilon(m.mu, 1e-5)
    assert m.guarantee.claim is not None
    assert (m.guarantee.claim.epsilon, m.guarantee.claim.unit) == (1.0, "example")
    assert nz.exact_epsilon(m, delta=1e-5) == pytest.approx(m.guarantee.epsilon, rel=1e-6)
    assert m.guarantee.epsilon > 300
    assert gaussian_delta(math.hypot(1, 100) / sigma, 1.0) > 0.9 + 1e-5  # Lemma 7 concedes 1 - beta = 0.9: too little
    assert "0.9 here. Read with that much the claim fails, too" in m.guarantee.claim.reading
    few = published(epsilon=1.0, domain=nz.L2Ball(3, 0.1), delta=1e-5, beta=0.1, batch=2).guarantee.claim
    assert few is not None
    assert "not refuted" in few.reading  # the twin


def test_one_of_a_hundred_examples_turns_the_mean_around() -> None:
    """The spec's counter-example: the claim allows the last angle 0.0702, replacing one example moves it by pi."""
    rng = np.random.default_rng(0)
    half = rng.standard_normal((49, 3))
    examples = np.concatenate([half, -half, [[0.0, -1.0, 1e-9], [0.0, 0.0, 0.0]]])
    neighbour = examples.copy()
    neighbour[-1] = [0.0, 2.0, 0.0]
    angles = [to_spherical(batch.mean(axis=0))[1] for batch in (examples, neighbour)]
    assert abs(angles[0][-1] - angles[1][-1]) == pytest.approx(math.pi, abs=1e-6)
    assert math.sqrt(5) * math.pi / 100 == pytest.approx(0.0702, abs=1e-4)


@pytest.mark.slow
def test_the_noise_is_normal_and_decoding_gives_vectors() -> None:
    m = nz.AngleGaussian(4.0, 4, beta=0.7)
    x = np.asarray([-0.2, 0.3, 0.1, -0.4])
    y = m.privatize(np.tile(x, (40_000, 1)), rng=5)
    white = (y - m.target(x)) / m.sigmas
    for column in white.T:
        assert kstest(column, "norm").pvalue > ALARM / 4
        assert kstest(1.1 * column, "norm").pvalue < ALARM / 4  # the twin: a tenth more noise is seen
    correlation = np.corrcoef(white.T) - np.eye(4)
    assert np.abs(correlation).max() < ndtri(1 - ALARM / 12) / math.sqrt(40_000)
    vectors = m.decode(y)
    assert np.all(np.linalg.norm(vectors, axis=1) <= 1 + 1e-12)
    back = m.target(vectors[np.linalg.norm(vectors, axis=1) > 0.01])
    kept = np.clip(y[np.linalg.norm(vectors, axis=1) > 0.01], *m._ends)
    inner = (np.abs(np.sin(kept[:, 1:-1])) > 1e-6).all(axis=1)
    assert back[inner] == pytest.approx(kept[inner], abs=1e-6)


def test_the_published_report_is_decoded_as_it_is() -> None:
    m = published(epsilon=1.0, dims=3)
    wild = np.asarray([-0.5, 4.0, -7.0])
    turned = m.decode(wild)
    assert turned == pytest.approx(-0.5 * np.asarray([np.cos(4), np.sin(4) * np.cos(-7), np.sin(4) * np.sin(-7)]))
    assert np.linalg.norm(nz.AngleGaussian(1.0, 3).decode(wild)) == 0


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"epsilon": 0.0, "dims": 3}, ValueError, "epsilon=0.0 > 0"),
        ({"epsilon": 1.0, "dims": 1}, ValueError, "no direction"),
        ({"epsilon": 1.0, "dims": 3, "beta": 0.0}, ValueError, "beta=0.0"),
        ({"epsilon": 1.0, "dims": 3, "beta": math.nan}, ValueError, "beta=nan"),
        ({"epsilon": 1.0, "dims": 3, "delta": 0.0}, ValueError, "no pure guarantee"),
        ({"epsilon": 1.0, "dims": 3, "batch": 0}, ValueError, "batch"),
        ({"epsilon": 1.0}, TypeError, "dims or domain"),
        ({"epsilon": 1.0, "domain": nz.Box(3)}, TypeError, "L2Ball"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        nz.AngleGaussian(**options)


def test_vectors_outside_and_what_is_no_report_are_refused() -> None:
    m = nz.AngleGaussian(1.0, domain=nz.L2Ball(3, 0.1))
    with pytest.raises(ValueError, match=r"length 5.*clip=True"):
        m.privatize([3.0, 0.0, 4.0])
    assert m.support.contains(m.privatize([3.0, 0.0, 4.0], clip=True))
    with pytest.raises(ValueError, match="finite"):
        m.privatize([math.nan, 0.0, 0.0])
    with pytest.raises(ValueError, match="outside the support"):
        m.aggregate([[0.1, math.pi, 1e-13]])
    with pytest.raises(ValueError, match="shape"):
        m.decode([1.0, 2.0])


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "dims"), [(1e-6, 2), (1e3, 2), (1.0, 1_000_000), (1e3, 1_000_000)])
def test_extremes_work(epsilon: float, dims: int) -> None:
    m = nz.AngleGaussian(epsilon, dims)
    x = np.zeros(dims)
    x[-1] = -0.5
    y = m.privatize(x, rng=1)
    assert np.isfinite(y).all()
    assert m.support.contains(y)
    assert np.linalg.norm(m.decode(y)) <= 1 + 1e-9
    assert np.isfinite(m.privatize(np.zeros(dims), rng=1)).all()  # a zero vector has angles of zero
