"""What is released: the law of the noise, kinds of tensors, chunks, symmetries, reshaping, aggregates."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtri

import noisette as nz
from noisette.mechanisms.tensor.gaussian import _noise
from noisette.mechanisms.tensor.gaussian.modes import Mode, dense, multiply

FALSE_ALARM = 1e-6


def spd(size: int, seed: int) -> np.ndarray:
    """Return a random covariance."""
    root = np.random.default_rng(seed).normal(size=(size, size))
    return root @ root.T + 0.3 * np.eye(size)


def covariance_scores(reports: np.ndarray, x: np.ndarray, covariance: np.ndarray) -> float:
    """Return the largest deviation, in standard errors, of means and covariances from what is stated."""
    noise = (reports - x).reshape(len(reports), -1)
    n = len(noise)
    found = noise.T @ noise / n
    error = np.sqrt((np.outer(np.diag(covariance), np.diag(covariance)) + covariance**2) / n)
    means = np.abs(noise.mean(axis=0)) / np.sqrt(np.diag(covariance) / n)
    return float(max((np.abs(found - covariance) / error).max(), means.max()))


@pytest.mark.parametrize(
    "covariances",
    [None, (None, [1.0, 4.0, 0.5]), (spd(2, 0), None), (spd(2, 0), spd(3, 1)), ([2.0, 1.0], spd(3, 1))],
    ids=["iid", "diagonal", "rows", "full", "mixed"],
)
def test_noise_has_the_kronecker_covariance(covariances: Any) -> None:
    m = nz.TensorGaussian(nz.TensorDomain((2, 3)), 1.0, 1e-5, covariances=covariances)
    x = np.linspace(-1, 1, 6).reshape(2, 3)
    full = [
        np.eye(n) if c is None else np.diag(c) if np.ndim(c) == 1 else c
        for n, c in zip((2, 3), covariances or (None, None), strict=True)
    ]
    covariance = m.sigma**2 * np.kron(*full)
    reports = m.privatize(np.broadcast_to(x, (100_000, 2, 3)), rng=5)
    limit = -ndtri(FALSE_ALARM / 2 / 42)
    assert covariance_scores(reports, x, covariance) < limit
    assert covariance_scores(reports, x, covariance * 1.05) > limit  # a twin
    assert m.moments(x).variance == pytest.approx(np.diag(covariance).reshape(2, 3))
    assert np.all(m.support.contains(reports))
    assert not np.any(m.support.contains(reports * (1 + 2.0**-40)))


@pytest.mark.long
def test_check_mechanism_with_options() -> None:
    for m in (
        nz.TensorGaussian(
            nz.TensorDomain((2, 2), 3, 5), 0.7, 1e-4, covariances=(spd(2, 0), [1.0, 3.0]), relation="slice:0"
        ),
        nz.TensorGaussian(nz.TensorBall((2, 2), 2.0), 2.0, 1e-4, covariances=(None, spd(2, 3))),
        nz.TensorGaussian(nz.TensorDomain((2, 2)), 1.0, 1e-4, subspaces=([[1.0, 2.0]], None), relation="fibre:0"),
    ):
        nz.testing.check_mechanism(m, samples=20_000)


@pytest.mark.parametrize("shape", [(7,), (4, 5), (3, 4, 5), (2, 3, 2, 3, 2)])
def test_products_along_modes(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    modes = [Mode.read(n, [None, rng.uniform(1, 2, n), spd(n, n)][k % 3], k) for k, n in enumerate(shape)]
    x = rng.normal(size=(6, *shape))
    got = x.copy()
    multiply(got, [None if mode.covariance is None else mode.root for mode in modes])
    kron = np.eye(1)
    for mode in modes:
        kron = np.kron(kron, mode.root if mode.full else np.diag(mode.root))
    assert got == pytest.approx((x.reshape(6, -1) @ kron.T).reshape(x.shape))
    multiply(got, [None if mode.covariance is None else mode.whitener for mode in modes])
    assert got == pytest.approx(x)


@pytest.mark.long
@pytest.mark.parametrize("shape", [(300, 70), (3, 200, 100), (40, 30, 1)])
def test_large_products_take_the_triangular_path(shape: tuple[int, ...]) -> None:
    modes = [Mode.read(n, spd(n, k), k) for k, n in enumerate(shape)]
    x = np.random.default_rng(0).normal(size=shape)
    got = x.copy()
    multiply(got, [mode.root for mode in modes])
    assert got == pytest.approx(dense(x, [mode.root for mode in modes]), rel=1e-9)


def test_input_is_left_alone_and_seeds_repeat() -> None:
    m = nz.TensorGaussian(nz.TensorDomain((3, 4)), 1.0, covariances=(spd(3, 0), None))
    x = np.random.default_rng(0).uniform(-1, 1, (5, 3, 4))
    before = x.copy()
    assert np.array_equal(m.privatize(x, rng=3), m.privatize(x, rng=np.random.default_rng(3)))
    assert not np.array_equal(m.privatize(x), m.privatize(x))
    assert np.array_equal(x, before)
    assert np.array_equal(m.privatize(x.transpose(0, 2, 1).copy().transpose(0, 2, 1), rng=3), m.privatize(x, rng=3))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8"])
@pytest.mark.parametrize("covariances", [None, (spd(3, 0), None)])
def test_arrays_keep_their_type(dtype: str, covariances: Any) -> None:
    m = nz.TensorGaussian(nz.TensorDomain((3, 4)), 1.0, covariances=covariances)
    reports = m.privatize(np.ones((3, 4), dtype=dtype), rng=3)
    assert reports.dtype == (np.float64 if dtype == "int8" else dtype)
    assert reports == pytest.approx(m.privatize(np.ones((3, 4)), rng=3), rel=2e-3)
    if dtype == "float32":
        assert m.aggregate(reports).users == 1


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_torch_tensors_come_back_as_torch_tensors(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    m = nz.TensorGaussian(nz.TensorDomain((3, 4)), 1.0, covariances=(None, spd(4, 0)))
    x = torch.ones((2, 3, 4), dtype=getattr(torch, dtype), requires_grad=True)
    reports = m.privatize(x, rng=3)
    assert isinstance(reports, torch.Tensor)
    assert (reports.dtype, reports.device, reports.shape) == (x.dtype, x.device, x.shape)
    assert not reports.requires_grad
    assert reports.double().numpy() == pytest.approx(m.privatize(np.ones((2, 3, 4)), rng=3), rel=1e-2)
    out = torch.empty((2, 3, 4))
    assert m.privatize(x, out=out, rng=3) is out
    with pytest.raises(TypeError, match="Expected out to be a float32 or float64 torch tensor"):
        m.privatize(x, out=np.empty((2, 3, 4)))


def test_out_takes_the_reports_in_place_and_on_disk(tmp_path: Any) -> None:
    m = nz.TensorGaussian(nz.TensorDomain((3, 4)), 1.0, covariances=(spd(3, 0), None))
    x = np.random.default_rng(0).uniform(-1, 1, (5, 3, 4))
    expected = m.privatize(x, rng=1)
    own = x.copy()
    assert m.privatize(own, out=own, rng=1) is own
    assert np.array_equal(own, expected)
    disk = np.memmap(tmp_path / "reports", dtype=np.float64, mode="w+", shape=x.shape)
    m.privatize(x, out=disk, rng=1)
    assert np.array_equal(disk, expected)
    with pytest.raises(ValueError, match=r"Expected out of shape \(5, 3, 4\), like x, got \(5, 4, 3\)"):
        m.privatize(x, out=np.empty((5, 4, 3)))
    with pytest.raises(TypeError, match="writeable, contiguous"):
        m.privatize(x, out=np.empty((5, 4, 3)).transpose(0, 2, 1))


MIDDLE = nz.TensorDomain((300, 40, 100))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("domain", "covariances", "kind"),
    [
        (nz.TensorDomain((6_000, 200)), None, np.float32),
        (nz.TensorDomain((6_000, 200)), (None, spd(200, 0)), np.float32),
        (nz.TensorDomain((6_000, 200)), (np.ones(6_000), None), np.float32),
        (nz.TensorDomain((200, 6_000)), (spd(200, 0), None), np.float32),
        (MIDDLE, (None, spd(40, 0), None), np.float32),
        (MIDDLE, (spd(300, 0), spd(40, 1), spd(100, 2)), np.float64),
        (nz.TensorBall((200, 6_000)), (spd(200, 0), None), np.float32),
        (MIDDLE, (spd(300, 0), spd(40, 1), spd(100, 2)), np.float32),
        (nz.TensorDomain((5, 6_000, 40)), (spd(5, 0), None, spd(40, 2)), np.float32),
    ],
)
def test_extra_memory_is_a_block(domain: Any, covariances: Any, kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import tracemalloc

    monkeypatch.setattr(_noise, "SLICES", _noise._UNIT)

    m = nz.TensorGaussian(domain, 1.0, covariances=covariances)
    values = np.zeros(domain.dims, dtype=kind)
    out = np.empty_like(values)
    m.privatize(values, out=out, rng=1)
    tracemalloc.start()
    m.privatize(values, out=out, rng=1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6 * _noise._UNIT * 8  # six blocks, however large the tensor
    assert out.std() == pytest.approx(math.sqrt(m.expected_error() / out.size), rel=0.02)


def test_cut_along_its_last_modes_a_tensor_has_the_same_law() -> None:
    """Blocks of columns of a float32 tensor: covariances between rows as declared, none between columns."""
    covariance = spd(3, 4)
    m = nz.TensorGaussian(nz.TensorBall((3, 400_000)), 1.0, covariances=(covariance, None))
    report = m.privatize(np.zeros((3, 400_000), dtype=np.float32), rng=5).astype(np.float64)
    white = np.linalg.solve(np.linalg.cholesky(covariance), report) / m.sigma
    spread = white @ white.T / white.shape[1]
    # Means of products of standard normal variables: deviations of 1, and sqrt(2) on the diagonal, over sqrt(n).
    limit = ndtri(1 - 1e-6 / 18) * math.sqrt(2 / white.shape[1])
    assert np.abs(spread - np.eye(3)).max() < limit
    assert abs(np.mean(white[:, 1:] * white[:, :-1])) < ndtri(1 - 1e-6 / 2) / math.sqrt(white.size)
    assert np.abs(np.cov(report / m.sigma) - np.eye(3)).max() > 10 * limit  # the twin: rows are correlated


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dims", "covariances"),
    [
        ((20, 30, 40), (spd(20, 1), spd(30, 2), spd(40, 3))),
        ((20, 3, 400), (spd(20, 1), np.array([1.0, 4.0, 9.0]), np.linspace(1, 2, 400))),
        ((20, 400, 3), (spd(20, 1), None, spd(3, 2))),
    ],
)
@pytest.mark.parametrize("in_place", [False, True])
def test_cut_into_slices_a_tensor_has_the_same_law(
    dims: Any, covariances: Any, in_place: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slices along the longest mode: the report less the input is white after whitening, about the input."""
    monkeypatch.setattr(_noise, "SLICES", 2_500)
    m = nz.TensorGaussian(nz.TensorDomain(dims, 3.0, 5.0), 30.0, covariances=covariances)
    x = np.random.default_rng(1).uniform(2, 6, (20, *dims)).astype(np.float32)
    inside = np.clip(x, 3, 5).astype(np.float64)
    report = m.privatize(x, clip=True, out=x if in_place else None, rng=2)
    assert report.dtype == np.float32
    assert m.support.contains(report).all()

    z = (report - inside) / m.sigma
    multiply(z, [None if mode.covariance is None else mode.whitener for mode in m.modes])
    limit = ndtri(1 - 1e-6 / 30) / math.sqrt(z.size)
    assert abs(z.mean()) < limit
    assert abs(np.mean(z**2) - 1) < limit * math.sqrt(2)
    for axis in range(1, 4):
        ahead, behind = (np.take(z, range(*ends), axis=axis) for ends in ((1, z.shape[axis]), (0, z.shape[axis] - 1)))
        assert abs(np.mean(ahead * behind)) < ndtri(1 - 1e-6 / 30) / math.sqrt(ahead.size)
    assert abs(np.mean((1.05 * z) ** 2) - 1) > 2 * limit  # the twin: a twentieth too much noise


@pytest.mark.slow
def test_sums_of_slices_are_exact_to_the_places_of_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """With next to no noise the report is the input, whose whitening and colouring cancel."""
    monkeypatch.setattr(_noise, "SLICES", 500)
    m = nz.TensorGaussian(nz.TensorDomain((30, 40)), 1e9, 1e-5, covariances=(spd(30, 1), spd(40, 2)))
    x = np.random.default_rng(1).uniform(-1, 1, (30, 40)).astype(np.float32)
    assert np.abs(m.privatize(x, rng=1) - x).max() < 8 * math.sqrt(m.variances.max()) + 1e-5


def test_clipping_a_ball_takes_no_copy_and_leaves_float32_inside() -> None:
    ball = nz.TensorBall((1_000, 300), radius=2.0, mode=0)
    x = np.random.default_rng(1).normal(size=(1_000, 300)).astype(np.float32)
    x[:500] *= 1e-3
    own = np.empty_like(x)
    assert ball.clip(x, out=own) is own
    assert np.array_equal(own[:500], x[:500])
    assert ball.norms(own).max() <= 2.0
    assert np.allclose(own, ball.clip(x), rtol=1e-6, atol=0)
    nearest = ball.clip(x).astype(np.float32)
    assert ball.norms(nearest).max() > 2.0  # the twin: rounded as they are, some slices are too long
    tiny = nz.TensorBall((1_000, 300), radius=1e-40)
    assert tiny.clip(x, out=own).dtype == np.float64


# -- symmetries and reshaping


def test_symmetric_tensors_stay_symmetric_and_get_less_noise() -> None:
    m = nz.TensorGaussian(nz.TensorDomain((3, 3, 2, 3)), 1.0, 1e-5, symmetry=((0, 1, 3),))
    x = np.zeros((20_000, 3, 3, 2, 3))
    reports = m.privatize(x, rng=2)
    assert np.array_equal(reports, reports.transpose(0, 2, 1, 3, 4))
    assert np.array_equal(reports, reports.transpose(0, 4, 1, 3, 2))
    variance = m.moments(x[0]).variance
    orbit = np.asarray(
        [
            [
                [
                    [len({(i, j, k), (i, k, j), (j, i, k), (j, k, i), (k, i, j), (k, j, i)}) for k in range(3)]
                    for _ in range(2)
                ]
                for j in range(3)
            ]
            for i in range(3)
        ]
    )
    assert variance == pytest.approx(m.sigma**2 / orbit)
    error = -ndtri(FALSE_ALARM / 2 / 54) * math.sqrt(2 / 20_000)
    assert np.abs(reports.var(axis=0) / variance - 1).max() < error
    assert np.abs(reports.var(axis=0) / m.sigma**2 - 1).max() > error
    with pytest.raises(ValueError, match="Symmetrise it first"):
        m.privatize(np.arange(54.0).reshape(3, 3, 2, 3) / 54)


@pytest.mark.long
def test_symmetric_noise_of_correlated_modes() -> None:
    covariance = spd(2, 1)
    m = nz.TensorGaussian(nz.TensorDomain((2, 2)), 1.0, 1e-5, covariances=(covariance, covariance), symmetry=((0, 1),))
    swap = np.eye(4)[[0, 2, 1, 3]]
    mean = (np.eye(4) + swap) / 2
    expected = m.sigma**2 * mean @ np.kron(covariance, covariance) @ mean.T
    assert m.moments(np.zeros((2, 2))).variance.reshape(-1) == pytest.approx(np.diag(expected))
    nz.testing.check_mechanism(m, samples=20_000)


@pytest.mark.parametrize(
    ("shape", "other", "covariances"),
    [
        ((2, 2, 2), (8,), None),
        ((2, 2, 2), (2, 4), (None, spd(2, 1), [1.0, 2.0])),
        ((6, 2), (2, 3, 2), (None, spd(2, 1))),
        ((3, 4), (12,), (spd(3, 0), spd(4, 1))),
    ],
)
def test_reshaping_changes_nothing(shape: Any, other: Any, covariances: Any) -> None:
    m = nz.TensorGaussian(nz.TensorDomain(shape), 1.0, 1e-5, covariances=covariances)
    new = m.reshape(other)
    x = np.linspace(-1, 1, math.prod(shape)).reshape(shape)
    assert new.domain.dims == other
    assert new.expected_error() == pytest.approx(m.expected_error(), rel=0.7)
    report = m.privatize(x, rng=4)
    scale = new.sigma / m.sigma  # a merged box may be bounded otherwise
    assert new.log_prob(report.reshape(other), x.reshape(other)) * 0 == 0
    noise = new.privatize(x.reshape(other), rng=4).reshape(shape) - x
    assert noise == pytest.approx(scale * (report - x), abs=1e-3 * m.sigma)
    if new.sensitivity[1] and m.sensitivity[1]:
        assert scale == pytest.approx(1.0)


def test_correlated_modes_are_not_split() -> None:
    m = nz.TensorGaussian(nz.TensorDomain((4, 2)), 1.0, covariances=(spd(4, 0), None))
    with pytest.raises(ValueError, match="only modes of identity covariance are split"):
        m.reshape((2, 2, 2))
    with pytest.raises(ValueError, match="Expected a shape of 8 entries"):
        m.reshape((3, 3))
    with pytest.raises(ValueError, match="names a mode"):
        replace(m, relation="slice:0").reshape((8,))


# -- aggregates and descriptions


def test_many_users_average() -> None:
    m = nz.TensorGaussian(nz.TensorDomain((2, 3), 0, 10), 1.0, covariances=(None, [1.0, 100.0, 1e4]))
    x = np.arange(6.0).reshape(2, 3)
    estimate = m.aggregate(m.privatize(np.broadcast_to(x, (40_000, 2, 3)), rng=1)).estimate()
    expected = np.sqrt(m.moments(x).variance.reshape(-1) / 40_000)
    assert np.all(np.abs(estimate.value - x.reshape(-1)) < 5.5 * expected)
    assert estimate.std_error == pytest.approx(expected, rel=0.03)


def test_descriptions_keep_covariances_and_subspaces() -> None:
    import json

    m = nz.TensorGaussian(
        nz.TensorBall((2, 3, 2), 2.0, mode=1),
        0.5,
        1e-7,
        relation="slice:1",
        covariances=(spd(2, 0), None, None),
        subspaces=(None, None, [[1.0, 3.0]]),
    )
    again = nz.from_spec(json.dumps(m.spec()))
    assert again == m
    assert hash(again) == hash(m)
    assert again != replace(m, covariances=(spd(2, 5), None, None))
    assert again != replace(m, epsilon=0.6)
    x = np.full((2, 3, 2), 0.1)
    assert np.array_equal(again.privatize(x, rng=1), m.privatize(x, rng=1))
    tied = nz.TensorGaussian(nz.TensorDomain((2, 2)), 1.0, symmetry=((0, 1),))
    assert nz.from_spec(json.dumps(tied.spec())) == tied
