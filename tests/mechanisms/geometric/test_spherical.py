"""Spherical coordinates: there, back, and against the definition."""

import math

import numpy as np
import pytest
import torch

from noisette.mechanisms.geometric.spherical import from_spherical, to_spherical

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


def test_torch_keeps_its_gradients():
    """Tensors with gradients take torch's own way, which agrees."""
    x = torch.randn(3, 2000, dtype=torch.float64, requires_grad=True)
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


def test_many_short_vectors_are_converted_as_one_by_one():
    rng = np.random.default_rng(4)
    rows = rng.standard_normal((500, 7)) * 10.0 ** rng.integers(-300, 300, (500, 1))
    rows[rng.random(rows.shape) < 0.3] = 0.0
    rows[rng.random(rows.shape) < 0.2] *= -1.0  # zeros of both signs
    rows[:3] = 0.0
    magnitudes, angles = to_spherical(rows)
    for row, magnitude, turns in zip(rows, magnitudes, angles, strict=True):
        size, alone = to_spherical(row)
        assert magnitude == pytest.approx(float(size), rel=1e-14, abs=0.0)
        assert turns == pytest.approx(alone, abs=1e-14)
    back = from_spherical(magnitudes, angles)
    largest = np.maximum(np.abs(rows).max(axis=1), 1e-305)
    assert np.abs(back - rows).max(axis=1) / largest == pytest.approx(0.0, abs=1e-14)
    with pytest.raises(ValueError, match=r"finite.*inf"):
        to_spherical([[1.0, 2.0], [math.inf, 1.0]])
    with pytest.raises(ValueError, match=r"finite.*nan"):
        to_spherical([math.nan, 1.0])
