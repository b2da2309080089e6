"""A feature batch, a covariance matrix, a data tensor: one call each."""

from __future__ import annotations

import math

import numpy as np
import pytest

import noisette as nz
from noisette.guarantees import gaussian_mu
from noisette.mechanisms.tensor.gaussian.jl import rss


def test_a_person_s_tensor() -> None:
    domain = nz.TensorDomain((28, 28), 0, 1)
    release = nz.release_data(np.full((28, 28), 0.5), domain, 1.0, 1e-5, rng=1)
    assert release.value.shape == (28, 28)
    assert (release.guarantee.unit, release.guarantee.model) == ("record", "local")
    assert release.std == pytest.approx(28 * 3.7306, rel=1e-3)
    space = np.diag(np.linspace(0.1, 2, 28))
    directed = nz.release_data(np.full((28, 28), 0.5), domain, 1.0, 1e-5, subspaces=(space, None), rng=1)
    plain = release.std**2 * 28 * np.square(space).sum()
    assert directed.mechanism.expected_error() < plain


def test_a_batch_of_features_costs_one_person() -> None:
    domain = nz.TensorDomain((256, 16, 5, 5))
    release = nz.release_features(np.zeros(domain.dims), domain, 1.0, 1e-5, rng=1)
    assert (release.guarantee.unit, release.guarantee.model, release.guarantee.relation) == (
        "record",
        "central",
        "replace",
    )
    assert release.std == pytest.approx(2 * 20 / gaussian_mu(1.0, 1e-5), rel=1e-6)
    whole = nz.TensorGaussian(domain, 1.0, 1e-5)
    assert whole.sigma / release.std == pytest.approx(16, rel=1e-6)  # sqrt(256)
    torch = pytest.importorskip("torch")
    features = torch.tanh(torch.zeros(domain.dims))
    assert nz.release_features(features, domain, 1.0, 1e-5, rng=1).value.dtype == torch.float32


def test_the_sensitivity_of_a_second_moment_is_attained() -> None:
    bound = 3.0
    rng = np.random.default_rng(0)
    pairs = rng.normal(size=(20_000, 2, 4))
    pairs *= bound / np.linalg.norm(pairs, axis=2, keepdims=True)
    gaps = np.einsum("ni,nj->nij", pairs[:, 0], pairs[:, 0]) - np.einsum("ni,nj->nij", pairs[:, 1], pairs[:, 1])
    largest = np.linalg.norm(gaps, axis=(1, 2)).max()
    assert largest <= math.sqrt(2) * bound**2 * (1 + 1e-12)
    assert largest > 0.999 * math.sqrt(2) * bound**2


@pytest.mark.long
@pytest.mark.parametrize("method", ["gaussian", "jl"])
def test_covariances(method: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (5000, 4)) * [1.0, 0.5, 0.2, 0.1]
    domain = nz.TensorDomain(x.shape)
    release = nz.release_covariance(x, domain, 2.0, 1e-5, method=method, rng=1)
    truth = x.T @ x / 5000
    assert np.array_equal(release.value, release.value.T)
    assert release.guarantee.relation == ("replace" if method == "gaussian" else "add-remove")
    assert rss(release.value, truth) < 1e-3
    reports = [nz.release_covariance(x, domain, 2.0, 1e-5, method=method, rng=seed).value for seed in range(200)]
    spread = np.std(reports, axis=0)
    variance = release.mechanism.variances if method == "gaussian" else release.mechanism.moments(x).variance
    assert np.all(np.abs(spread / np.sqrt(variance) - 1) < 5.0 / math.sqrt(400))
    if method == "gaussian":
        assert variance[0, 1] == pytest.approx(variance[0, 0] / 2)
        assert math.sqrt(variance[0, 0]) == pytest.approx(math.sqrt(2) * 4 / 5000 / gaussian_mu(2.0, 1e-5), rel=1e-6)
        assert math.isfinite(release.std)
    else:
        with pytest.raises(ValueError, match="depends on the data"):
            _ = release.std


@pytest.mark.long
def test_gaussian_noise_beats_the_sketch() -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (2126, 21))
    domain, truth = nz.TensorDomain(x.shape), x.T @ x / 2126
    errors = {
        method: np.mean(
            [rss(nz.release_covariance(x, domain, 1.0, 1e-5, method=method, rng=s).value, truth) for s in range(20)]
        )
        for method in ("gaussian", "jl")
    }
    replaced = nz.TensorGaussian(
        nz.TensorBall((21, 21), 21.0), 1.0, 1e-5, relation=f"l2:{21 / 2126}", symmetry=((0, 1),)
    )
    same = np.mean([rss(replaced.privatize(truth, rng=s), truth) for s in range(20)])  # the sketch's relation
    assert same < errors["jl"] * 1.2


def test_torch_tables_and_bounds_on_rows() -> None:
    torch = pytest.importorskip("torch")
    x = torch.rand((50, 3), generator=torch.Generator().manual_seed(0))
    release = nz.release_covariance(x, nz.TensorBall((50, 3), math.sqrt(3), mode=0), 1.0, 1e-5, rng=1)
    assert isinstance(release.value, torch.Tensor)
    assert release.value.dtype == torch.float32
    box = nz.release_covariance(x, nz.TensorDomain((50, 3), 0, 1), 1.0, 1e-5, rng=1)
    assert box.mechanism == release.mechanism


@pytest.mark.parametrize(
    ("x", "domain", "message"),
    [
        (np.zeros((5, 2)), nz.TensorDomain((4, 2)), r"Expected a table of shape \(4, 2\)"),
        (np.full((4, 2), 3.0), nz.TensorDomain((4, 2)), "its largest entry is 3"),
        (np.full((4, 2), np.nan), nz.TensorDomain((4, 2)), "Expected finite values, got nan"),
        (np.zeros((4, 2, 2)), nz.TensorDomain((4, 2, 2)), "Expected a table with people as rows"),
        (np.zeros((4, 2)), nz.TensorBall((4, 2), 1.0), "Expected a bound on each row"),
    ],
)
def test_bad_tables(x: np.ndarray, domain: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        nz.release_covariance(x, domain, 1.0)
    if message.startswith("its largest"):
        assert nz.release_covariance(x, domain, 1.0, clip=True).value.shape == (2, 2)
    with pytest.raises(ValueError, match="Expected method='svd'"):
        nz.release_covariance(x, domain, 1.0, method="svd")
