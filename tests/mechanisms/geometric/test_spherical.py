"""Spherical coordinates: there, back, and against the definition."""

import math
import threading
import time

import numpy as np
import pytest
import torch

from noisette.mechanisms.geometric import spherical
from noisette.mechanisms.geometric.spherical import from_spherical, share, to_spherical

KINDS = [np.asarray, torch.as_tensor]


def definition(x):
    """Return magnitude and angles entry by entry."""
    angles = [math.atan2(math.hypot(*x[z + 1 :]), x[z]) for z in range(len(x) - 2)]
    return math.hypot(*x), [*angles, math.atan2(x[-1], x[-2])]


@pytest.mark.parametrize("kind", KINDS, ids=["numpy", "torch"])
@pytest.mark.parametrize(
    "x",
    [
        [1.0, math.sqrt(3)],
        [-1.0, -2.0],
        [3.0, -4.0, 12.0],
        [0.0, 0.0, 5.0],
        [-2.0, 0.0, 0.0],
        [0.0, -1.0, 0.0, 0.0],
        [1e-200, 2e-200, -3e-200],
        [1e200, -2e200, 3e200],
        [1.0, 1e-12, -1e-30],
        [0.3, -0.1, 0.0, 0.7, -0.2],
    ],
    ids=str,
)
def test_angles_are_those_of_the_definition_and_lead_back(kind, x):
    magnitude, angles = to_spherical(kind(np.array(x)))
    size, turns = definition(x)
    assert float(magnitude) == pytest.approx(size, rel=1e-14)
    np.testing.assert_allclose(np.asarray(angles), turns, rtol=1e-14, atol=1e-15)
    back = np.asarray(from_spherical(magnitude, angles))
    np.testing.assert_allclose(back, x, rtol=0, atol=1e-14 * size)


@pytest.mark.parametrize("kind", KINDS, ids=["numpy", "torch"])
@pytest.mark.parametrize("dims", [1, 2, 3, 1000, 100_000, 1_000_000])
def test_the_way_back_is_exact_to_ten_digits(kind, dims):
    rng = np.random.default_rng(dims)
    x = rng.normal(size=dims) * rng.lognormal(0, 3, size=dims) * (rng.random(dims) < 0.7)
    x[0] = abs(x[0]) + 1.0  # one entry has no angle to keep its sign in
    back = np.asarray(from_spherical(*to_spherical(kind(x))))
    assert np.max(np.abs(back - x)) <= 1e-10 * np.max(np.abs(x))


def test_a_wrong_index_would_be_seen():
    x = np.array([3.0, -4.0, 12.0, 1.0])
    magnitude, angles = to_spherical(x)
    assert np.max(np.abs(from_spherical(magnitude, angles[::-1].copy()) - x)) > 0.1


@pytest.mark.parametrize("kind", KINDS, ids=["numpy", "torch"])
def test_batches_keep_their_axes(kind):
    x = np.random.default_rng(1).normal(size=(2, 3, 7))
    magnitude, angles = to_spherical(kind(x))
    assert tuple(magnitude.shape) == (2, 3)
    assert tuple(angles.shape) == (2, 3, 6)
    one = to_spherical(kind(x[1, 2]))
    np.testing.assert_array_equal(np.asarray(angles[1, 2]), np.asarray(one[1]))
    np.testing.assert_allclose(np.asarray(from_spherical(magnitude, angles)), x, atol=1e-14)


@pytest.mark.parametrize("kind", KINDS, ids=["numpy", "torch"])
def test_the_zero_vector_comes_back_as_zero(kind):
    magnitude, angles = to_spherical(kind(np.zeros((2, 5))))
    assert not np.asarray(magnitude).any()
    assert not np.asarray(from_spherical(magnitude, angles)).any()


def test_torch_keeps_its_type():
    magnitude, angles = to_spherical(torch.randn(5, 4, dtype=torch.float32))
    assert magnitude.dtype == angles.dtype == from_spherical(magnitude, angles).dtype == torch.float32


@pytest.mark.parametrize("shape", [(3, 2000), (5,), (2, 3, 4), (2, 1)])
def test_torch_keeps_its_gradients(shape):
    """Tensors with gradients take torch's own way, which agrees."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(*shape, dtype=torch.float64, generator=generator, requires_grad=True)
    magnitude, angles = to_spherical(x)
    plain = to_spherical(x.detach())
    torch.testing.assert_close(angles, plain[1], rtol=0, atol=1e-14)
    torch.testing.assert_close(from_spherical(magnitude, angles), x, rtol=0, atol=1e-13)
    from_spherical(magnitude, angles).sum().backward()
    torch.testing.assert_close(x.grad, torch.ones_like(x), rtol=0, atol=1e-8)


def test_the_input_is_left_alone():
    x = np.array([1e-200, 3.0, 2.0])
    before = x.copy()
    to_spherical(x)
    np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: to_spherical(3.0), r"vectors along the last axis, got an array of shape \(\)"),
        (lambda: to_spherical(np.zeros((3, 0))), "vectors along the last axis"),
        (lambda: to_spherical(torch.zeros(())), "vectors along the last axis, got a tensor"),
        (lambda: to_spherical([1.0, math.nan]), "nan"),
        (lambda: from_spherical([1.0, 2.0], [0.5]), "one magnitude for each row"),
        (lambda: from_spherical(torch.ones(2), torch.ones(3, 1)), "one magnitude for each row of angles, got"),
    ],
    ids=["number", "nothing", "torch number", "nan", "shapes", "torch shapes"],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.long
@pytest.mark.parametrize(("count", "dims"), [(500, 7), (20_000, 8), (40, 5000), (2, 140_000)])
def test_many_vectors_have_the_angles_of_the_definition(count, dims):
    """Of every length and with zeros of both signs, for which atan2 has angles of their own."""
    rng = np.random.default_rng(dims)
    rows = rng.standard_normal((count, dims)) * 10.0 ** rng.integers(-300, 300, (count, 1))
    rows[rng.random(rows.shape) < 0.3] = 0.0
    rows[rng.random(rows.shape) < 0.2] *= -1.0
    rows[0] = 0.0
    rows[1, 2:] = np.where(np.arange(dims - 2) % 2, 0.0, -0.0)
    rows.setflags(write=False)
    magnitudes, angles = to_spherical(rows)
    largest = np.abs(rows).max(1, keepdims=True)
    scaled = rows / np.where(largest > 0, largest, 1.0)
    squares = np.cumsum(np.square(scaled[:, ::-1]), axis=1)[:, ::-1]
    expected = np.arctan2(np.sqrt(squares[:, 1:]), scaled[:, :-1])
    expected[:, -1] = np.arctan2(scaled[:, -1], scaled[:, -2])
    expected[largest[:, 0] == 0] = 0.0
    np.testing.assert_allclose(angles, expected, rtol=0, atol=1e-13)
    np.testing.assert_allclose(magnitudes, largest[:, 0] * np.sqrt(squares[:, 0]), rtol=1e-13)
    back = from_spherical(magnitudes, angles)
    np.testing.assert_allclose(back / np.where(largest > 0, largest, 1.0), scaled, rtol=0, atol=1e-12)
    beyond = from_spherical(magnitudes, angles + 2 * math.pi * rng.integers(-(2**20), 2**20, angles.shape))
    np.testing.assert_allclose(beyond / np.where(largest > 0, largest, 1.0), scaled, rtol=0, atol=1e-6)


def test_one_bad_vector_among_many_is_named():
    rows = np.ones((30_000, 8))
    rows[25_000, 3] = -math.inf
    with pytest.raises(ValueError, match="largest entry is inf"):
        to_spherical(rows)
    angles = np.ones((30_000, 8))
    angles[29_999, 0] = math.nan
    with pytest.raises(ValueError, match="Expected finite angles, got nan"):
        from_spherical(np.ones(30_000), angles)


@pytest.mark.parametrize("shape", [(0, 5), (2, 0, 4), (3, 1), (0, 1)], ids=str)
def test_no_vectors_and_vectors_of_one_entry_keep_their_shape(shape):
    magnitudes, angles = to_spherical(np.ones(shape))
    assert angles.shape == (*shape[:-1], shape[-1] - 1)
    np.testing.assert_array_equal(from_spherical(magnitudes, angles), np.ones(shape))


def test_other_layouts_are_read_as_they_are():
    rows = np.random.default_rng(3).normal(size=(9, 40))
    plain = to_spherical(rows)[1]
    np.testing.assert_array_equal(to_spherical(np.asfortranarray(rows))[1], plain)
    np.testing.assert_array_equal(to_spherical(rows.repeat(2, 0)[::2])[1], plain)


LONG = np.random.default_rng(5).normal(size=40_000)  # three blocks


@pytest.mark.parametrize(
    "x",
    [
        [0.0, 0.0, 0.0],
        [0.0, -0.0],
        [3.0, -4.0, 0.0, 12.0],
        [1e200, -1e200, 1e-200],
        [3e-200, 4e-200],
        [5e-324, 0.0, -5e-324],
        [-7.0],
        LONG,
        1e180 * LONG,
        1e-180 * LONG,
        np.zeros(40_000),
        np.eye(1, 40_000, 20_000)[0],
    ],
    ids=lambda x: f"{len(x)} of {max(map(abs, x)):.2g}",
)
def test_the_way_of_long_vectors_is_that_of_many(x):
    """Vectors that all cores share, and those that each core takes one of, have the same numbers there and back."""
    vector = np.asarray(x, dtype=np.float64)
    angles = np.empty(vector.size - 1)
    magnitude = spherical._to(vector.copy(), angles)
    usual, others = to_spherical(vector)
    assert magnitude == pytest.approx(float(usual), rel=1e-12, abs=0.0)
    np.testing.assert_allclose(angles, others, rtol=1e-9, atol=1e-12)
    back = np.empty(vector.size)
    spherical._from(magnitude, angles, back)
    np.testing.assert_allclose(back, from_spherical(usual, others), rtol=1e-9, atol=1e-12 * magnitude)


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_one_bad_entry_of_a_long_vector_is_named(bad):
    vector = LONG.copy()
    vector[31_000] = bad
    with pytest.raises(ValueError, match="Expected finite numbers"):
        spherical._to(vector, np.empty(vector.size - 1))


@pytest.mark.parametrize(("cores", "size", "threads"), [(1, 1 << 17, 1), (3, 1 << 17, 3), (3, (1 << 17) - 1, 1)])
def test_work_is_shared_where_there_is_enough_and_a_core_for_it(
    cores: int, size: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[int, int]] = []

    def work(place: int) -> None:
        time.sleep(0.002)  # so that no thread does all
        done.append((place, threading.get_ident()))

    monkeypatch.setattr("noisette.mechanisms.geometric.spherical.os.cpu_count", lambda: cores)
    share(work, 12, size)
    assert sorted(place for place, _ in done) == list(range(12))
    assert len({thread for _, thread in done}) <= threads
    own = {place for place, thread in done if thread == threading.get_ident()}
    assert own == set(range(0, 12, threads))
