"""What is refused, with the value and the remedy in the message."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import noisette as nz

BOX = nz.TensorDomain((2, 3))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"epsilon": -1.0}, ValueError, r"Expected epsilon=-1\.0 > 0"),
        ({"epsilon": float("nan")}, ValueError, "Expected epsilon=nan > 0"),
        ({"delta": 0.0}, ValueError, r"Expected delta=0\.0 > 0: Gaussian noise has no pure guarantee"),
        ({"delta": 1.0}, ValueError, r"Expected delta=1\.0 in \[0, 1\)"),
        ({"domain": nz.Box(3)}, TypeError, "to be a TensorDomain or a TensorBall"),
        ({"calibration": "best"}, ValueError, "Expected calibration='best' to be one of exact, tvg"),
        ({"relation": "rows"}, ValueError, "Expected relation='rows' to be 'any-pair', 'slice:MODE'"),
        ({"relation": "slice:2"}, ValueError, "to end in a mode from 0 to 1"),
        ({"relation": "slice:x"}, ValueError, "to end in a mode from 0 to 1"),
        ({"relation": "l2:-1"}, ValueError, "to end in a number above 0"),
        ({"relation": "box"}, ValueError, "to end in a number above 0"),
        ({"relation": 3}, TypeError, "Expected relation=3 to be a text"),
        ({"covariances": (None,)}, ValueError, "Expected covariances for 2 modes, got 1"),
        ({"covariances": np.eye(2)}, TypeError, "Expected covariances to be a list with an entry for each"),
        (
            {"covariances": (np.eye(3), None)},
            ValueError,
            r"of shape \(2,\) or \(2, 2\) for a mode of size 2, got \(3, 3\)",
        ),
        ({"covariances": (np.ones((2, 2)), None)}, ValueError, "positive definite: noise that misses a direction"),
        ({"covariances": (np.diag([1.0, -1.0]), None)}, ValueError, "positive definite"),
        ({"covariances": (np.diag([1.0, 1e-15]), None)}, ValueError, "positive definite"),
        (
            {"covariances": ([[1.0, 0.5], [0.2, 1.0]], None)},
            ValueError,
            r"symmetric, got 0.5 at \(0, 1\) and 0.2 at \(1, 0\)",
        ),
        ({"covariances": ([1.0, 0.0], None)}, ValueError, r"Expected variances > 0 in covariances\[0\], got 0.0"),
        ({"covariances": ([1.0, np.inf], None)}, ValueError, r"Expected finite numbers in covariances\[0\], got inf"),
        ({"covariances": ("wide", None)}, ValueError, "to be None, variances or a matrix"),
        ({"subspaces": (np.ones((4, 3)), None)}, ValueError, r"subspaces\[0\] of shape \(any, 2\) .* got \(4, 3\)"),
        ({"subspaces": (np.zeros((4, 2)), None)}, ValueError, "not all of them zero"),
        ({"subspaces": ([[1.0, 1.0]], None), "covariances": ([1.0, 1.0], None)}, ValueError, "got both"),
        ({"covariances": ([1.0, 2.0], [1.0, 2.0, 3.0]), "calibration": "udn"}, ValueError, r"got modes \[0, 1\]"),
        ({"covariances": ([[1.0, 0.5], [0.5, 1.0]], None), "calibration": "idn"}, ValueError, "Expected a diagonal"),
        ({"relation": "slice:0", "calibration": "idn"}, ValueError, "entries of one range"),
        ({"domain": nz.TensorBall((2, 3)), "calibration": "idn"}, ValueError, "entries of one range"),
        ({"domain": nz.TensorDomain((6,)), "calibration": "mvg"}, ValueError, "got a vector"),
        ({"symmetry": ((0, 1),)}, ValueError, "of one size and one covariance"),
        ({"symmetry": ((0,),)}, ValueError, "groups of two modes or more"),
        ({"domain": nz.TensorDomain((2, 2)), "symmetry": ((0, 1), (1, 0))}, ValueError, "no mode twice"),
        (
            {"domain": nz.TensorDomain((2, 2)), "symmetry": ((0, 1),), "relation": "element"},
            ValueError,
            "cannot change alone",
        ),
        ({"domain": nz.TensorDomain((2,), 1e12, 1e12 + 1e-3)}, ValueError, "too far from zero"),
        ({"domain": nz.TensorDomain((2,), 0, 1e12), "relation": "l2:1e-3"}, ValueError, "2\\^26 standard deviations"),
        ({"domain": nz.TensorDomain((10**6,)), "epsilon": 1e-7, "delta": 1e-15}, ValueError, "to be larger for"),
    ],
)
def test_options(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        nz.TensorGaussian(**{"domain": BOX, "epsilon": 1.0, "delta": 1e-5} | options)


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        (np.zeros((3, 2)), ValueError, r"Expected x of shape \(\.\.\., 2, 3\), got \(3, 2\)"),
        (np.zeros((0, 2, 3)), ValueError, "Expected at least one value in x"),
        (np.full((2, 3), 2.0), ValueError, r"Expected entries in \[-1, 1\], got 2.0 at \(0, 0\)"),
        (np.full((2, 3), np.nan), ValueError, "Expected finite values, got nan"),
        (np.full((2, 3), np.inf), ValueError, "Expected finite values, got inf"),
        (np.full((2, 3), "a"), TypeError, "Expected x to hold real numbers"),
        (0.5, ValueError, r"Expected x of shape \(\.\.\., 2, 3\)"),
    ],
)
def test_data(x: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        nz.TensorGaussian(BOX, 1.0).privatize(x, rng=1)


def test_balls_refuse_what_is_too_long() -> None:
    whole, rows = nz.TensorBall((2, 3), 1.0), nz.TensorBall((2, 3), 1.0, mode=0)
    x = np.full((2, 3), 0.5)
    with pytest.raises(ValueError, match=r"Expected tensors of norm at most 1, got 1\.22"):
        nz.TensorGaussian(whole, 1.0).privatize(x)
    nz.TensorGaussian(rows, 1.0).privatize(x)
    with pytest.raises(ValueError, match="Expected slices along mode 0 of norm at most 1"):
        nz.TensorGaussian(rows, 1.0).privatize(2 * x)
    with pytest.raises(ValueError, match="Expected finite values"):
        nz.TensorGaussian(rows, 1.0).privatize(np.nan * x)
    assert np.linalg.norm(whole.clip(x)) == pytest.approx(1.0)


def test_clipping_is_asked_for() -> None:
    m = nz.TensorGaussian(BOX, 1.0)
    wide, narrow = np.full((2, 3), 7.0), np.ones((2, 3))
    assert np.array_equal(m.privatize(wide, clip=True, rng=1), m.privatize(narrow, rng=1))
    for bad in (np.nan, np.inf):
        with pytest.raises(ValueError, match="Expected finite values"):
            m.privatize(np.full((2, 3), bad), clip=True)
    ball = nz.TensorGaussian(nz.TensorBall((2, 3), 1.0), 1.0)
    for bad in (np.nan, np.inf):
        with pytest.raises(ValueError, match=r"Expected finite values, got (nan|inf) at \(0, 0\)"):
            ball.privatize(np.full((2, 3), bad), clip=True)
    huge = np.full((2, 3), 1e300)
    assert np.array_equal(ball.privatize(huge, clip=True, rng=1), ball.privatize(ball.domain.clip(huge), rng=1))
    assert np.array_equal(ball.privatize(wide, clip=True, rng=1), ball.privatize(ball.domain.clip(wide), rng=1))


def test_reports_of_others_are_refused() -> None:
    m = nz.TensorGaussian(BOX, 1.0)
    with pytest.raises(ValueError, match="outside the support of tensor-gaussian"):
        m.aggregate(np.full((1, 2, 3), 0.1234567891234))
    with pytest.raises(ValueError, match="Expected reports of shape"):
        m.aggregate(np.zeros((1, 3, 2)))
