"""What mechanisms for tensors compute and draw, digit by digit: laws, margins for rounding, reports of a known seed.

Laws and samplers have independent tests of their own; here nothing may move.
python -m tests.mechanisms.tensor.test_held writes anew.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from tests.held import Held
from tests.mechanisms.arrays import whole

import noisette as nz

HELD = Held(__file__)
BOX, BALL = nz.TensorDomain((2, 3), -1, 2), nz.TensorBall((4, 3), 2.0, mode=0)
ROOT = np.asarray([[2.0, 0.5, 0.1], [0.5, 1.0, -0.2], [0.1, -0.2, 3.0]])
SUBSPACE = np.asarray([[1.0, 2.0, 0.0], [0.5, -1.0, 0.1]])
SMALL = nz.TensorDomain((2, 2), 0, 3)


def gaussian(domain: Any = BOX, epsilon: float = 1.3, **options: Any) -> Callable[[], Any]:
    return partial(nz.TensorGaussian, domain, epsilon, 1e-5, **options)


def retain(epsilon: float, delta: float = 0.0, **options: Any) -> Callable[[], Any]:
    return partial(nz.RetainOrNoise, epsilon, delta, **{"domain": SMALL, "levels": 4} | options)


def matrix(domain: Any, workload: Any, **options: Any) -> Callable[[], Any]:
    return partial(nz.MatrixMechanism, 1.3, 1e-5, domain=domain, workload=workload, **options)


def sketch(domain: Any, epsilon: float, delta: float, projections: int) -> Callable[[], Any]:
    return partial(nz.JohnsonLindenstrauss, domain, epsilon, delta, projections=projections)


BUILD: dict[str, Callable[[], Any]] = {
    "gaussian": gaussian(),
    "gaussian of low budget": gaussian(epsilon=0.01),
    "gaussian of slices": gaussian(relation="slice:0", covariances=(None, ROOT)),
    "gaussian of fibres": gaussian(relation="fibre:1", covariances=([1.0, 4.0], ROOT)),
    "gaussian of entries": gaussian(relation="element", covariances=([1.0, 4.0], None)),
    "gaussian in a norm": gaussian(relation="l2:0.7", covariances=(None, ROOT)),
    "gaussian in a box": gaussian(relation="box:0.3", covariances=(None, [1.0, 2.0, 5.0])),
    "gaussian in subspaces": gaussian(subspaces=(None, SUBSPACE)),
    "gaussian tvg": gaussian(subspaces=(None, SUBSPACE), calibration="tvg"),
    "gaussian udn": gaussian(covariances=(None, ROOT), calibration="udn"),
    "gaussian idn": gaussian(covariances=(None, [1.0, 2.0, 5.0]), calibration="idn"),
    "gaussian mvg": gaussian(subspaces=(None, SUBSPACE), calibration="mvg"),
    "gaussian classical": gaussian(epsilon=0.9, calibration="classical"),
    "gaussian of rows": gaussian(BALL, covariances=(None, ROOT)),
    "gaussian of one ball": gaussian(nz.TensorBall((4, 3), 2.0)),
    "gaussian of equals": gaussian(nz.TensorDomain((3, 3), 0, 1), symmetry=((0, 1),)),
    "gaussian of columns": gaussian(nz.TensorBall((3, 4), 0.5, mode=1), covariances=(ROOT, None)),
    "gaussian far from zero": gaussian(nz.TensorDomain((2, 3), 100, 100.5)),
    "gaussian of equals by weights": gaussian(
        nz.TensorDomain((3, 3), 0, 1), symmetry=((0, 1),), covariances=(ROOT, ROOT)
    ),
    "gaussian of fibres in a ball": gaussian(BALL, relation="l2:0.5", covariances=([1.0, 2.0, 3.0, 4.0], ROOT)),
    "gaussian of three modes": gaussian(nz.TensorDomain((2, 3, 2), 0, 1), covariances=([1.0, 2.0], ROOT, None)),
    "sketch of fewer than columns": sketch(BALL, 2.0, 1e-3, 2),
    "sketch of one": sketch(nz.TensorBall((5, 2), 1.0, mode=0), 1.0, 1e-3, 1),
    "matrix of marginals": matrix(nz.TensorDomain((2, 3), 0, 9), "marginal-1"),
    "matrix of marginals replaced": matrix(nz.TensorDomain((2, 3, 2), 0, 9), "marginal-2", relation="replace"),
    "retain an entry by gaussian noise": retain(2.0, 1e-3, noise="gaussian", unit="element"),
    "retain many levels": retain(5.0, levels=200),
    "retain an entry as published": retain(4.0, as_published=True, noise="gaussian"),
    "retain as published on the grid": retain(4.0, as_published=True, rounded=True),
    "sketch": sketch(BALL, 1.0, 1e-4, 7),
    "long sketch": sketch(BALL, 3.0, 1e-3, 40),
    "matrix of prefixes": matrix(nz.TensorDomain((6,), 0, 100), "prefix"),
    "matrix of ranges": matrix(nz.TensorDomain((5,), 0, 100), "range", relation="replace"),
    "matrix of any pair": matrix(nz.TensorDomain((3,), 0, 1), "prefix", relation="any-pair"),
    "matrix of two modes": matrix(nz.TensorDomain((3, 4), 0, 9), ("prefix", "identity")),
    "matrix of given queries": matrix(nz.TensorDomain((3,), 0, 9), [[1, 1, 0], [0, 1, 1]]),
    "matrix of one by one": matrix(nz.TensorDomain((4,), 0, 9), "range", strategy="identity"),
    "retain": retain(30.0),
    "retain at a low budget": retain(0.7),
    "retain an entry": retain(6.0, unit="element"),
    "retain by gaussian noise": retain(2.0, 1e-4, noise="gaussian"),
    "retain with a delta": retain(9.0, 1e-5),
    "retain by weights": retain(20.0, domain=nz.TensorDomain((2, 2)), weights=[0.0, 0.5], weights_epsilon=0.0),
    "retain as published": retain(2.0, as_published=True),
    "retain by the proof": retain(2.0, as_published=True, retention="proof", noise="gaussian", rounded=True),
}


def inputs(made: Any) -> Any:
    """Return three tensors of a domain."""
    domain = made.domain
    shape = (3, *domain.dims)
    share = np.modf(np.arange(1.0, 1 + np.prod(shape)) * 0.618034)[0].reshape(shape)
    if isinstance(domain, nz.TensorBall):
        return (share - 0.5) * domain.radius / np.sqrt(np.prod(domain.dims))
    if isinstance(made, nz.MatrixMechanism) and made.relation == "any-pair":
        return np.eye(3)
    if made.name == "tensor-gaussian" and made.symmetry:
        share = (share + share.swapaxes(1, 2)) / 2
    return domain.low + (domain.high - domain.low) * share


def story(name: str) -> list[Any]:
    return whole(BUILD[name], inputs(BUILD[name]()))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", BUILD)
def test_digits_are_the_ones_that_were_kept(name: str) -> None:
    HELD.check(name, story(name))


if __name__ == "__main__":
    HELD.write({name: story(name) for name in BUILD})
