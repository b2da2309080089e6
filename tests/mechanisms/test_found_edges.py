"""Guards that compare what is computed from several arguments: where each begins to refuse, and what it compares there.

The edge is looked for by bisection, so that neither a factor nor a term of the comparison may be another one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import noisette as nz
from noisette.guarantees import gaussian_mu
from noisette.mechanisms.geometric import angle_gaussian
from noisette.mechanisms.tensor.gaussian import mechanism as tensor_gaussian
from noisette.mechanisms.vector import duchi_box

SQUARE = nz.TensorDomain((300, 300))
WIDE = nz.TensorDomain((3, 2), 0, 1)
STEPS = 2.0**20  # of the lattice in a standard deviation, here: fewer than there are, or budgets would be tiny


def _mu(epsilon: float) -> float:
    return float(gaussian_mu(epsilon, 1e-9))


def _gaussian(**given: Any) -> Any:
    return nz.TensorGaussian(**{"domain": WIDE, "epsilon": 1.0, "delta": 1e-9} | given)


def _reaching(high: float) -> Any:
    """Noise for a distance of 1 in a box that begins at 1/4 of its width."""
    return _gaussian(domain=nz.TensorDomain((3, 2), high / 4, high), relation="l2:1")


def _prefer(weight: float) -> Any:
    """One query that hardly tells two cells apart."""
    rows = [[1.0, 1.0 + weight]]
    domain = nz.TensorDomain((2,), 0, 9)
    return nz.MatrixMechanism(1.0, 1e-5, domain=domain, workload=rows, strategy=rows, relation="replace")


# What is made, an argument that is refused and one that is taken, and what is 1 at the edge.
FOUND: dict[str, tuple[Callable[[float], Any], float, float, Callable[[float], float]]] = {
    "a lattice of angles": (
        lambda epsilon: nz.AngleGaussian(epsilon, dims=10_000, delta=1e-9),
        1e-6,
        1.0,
        lambda epsilon: _mu(epsilon) / (2 * math.sqrt(10_000) / STEPS),
    ),
    "a lattice of tensors": (
        lambda epsilon: nz.TensorGaussian(SQUARE, epsilon, 1e-9),
        1e-6,
        1.0,
        lambda epsilon: _mu(epsilon) / (2 * 300 / STEPS),
    ),
    "a lattice of a slice": (
        lambda epsilon: nz.TensorGaussian(SQUARE, epsilon, 1e-9, relation="slice:0"),
        1e-7,
        1.0,
        lambda epsilon: _mu(epsilon) / (2 * math.sqrt(300) / STEPS),
    ),
    "a box far wider than its noise": (
        _reaching,
        1e12,
        1.0,
        lambda high: 0.375 * high * _mu(1.0) / 2.0**26,
    ),
    "neighbours far apart": (
        lambda far: _gaussian(relation=f"l2:{far!r}", calibration="exact"),
        1e200,
        1.0,
        lambda x: x / 1e100,
    ),
    "a query that hardly moves": (_prefer, 1e-9, 1.0, lambda weight: weight / (1 + weight) / 1e-6),
    "a rate of kept entries": (
        lambda epsilon: nz.RetainOrNoise(epsilon, domain=nz.TensorDomain((3, 2)), levels=4, noise="laplace"),
        1e-12,
        1.0,
        lambda epsilon: epsilon / 3 / 6 / 2.0**-44,
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_it_is_refused_up_to_what_is_said(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made, refused, taken, compared = FOUND[name]
    for module in (angle_gaussian, tensor_gaussian):
        monkeypatch.setattr(module, "STEPS", STEPS)
    with pytest.raises(ValueError, match=r"Expected|nothing to protect"):
        made(refused)
    made(taken)
    while abs(math.log(taken / refused)) > 1e-5:
        middle = math.sqrt(taken * refused)
        try:
            made(middle)
        except ValueError:
            refused = middle
        else:
            taken = middle
    assert compared(taken) == pytest.approx(1.0, rel=1e-4)


def test_likelihoods_inside_a_box_of_the_last_dimensions_that_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duchi_box, "_CONVOLVED", 4)
    assert math.isfinite(
        nz.DuchiBox(1.0, dims=4).log_prob(nz.DuchiBox(1.0, dims=4).privatize(np.full(4, 0.25), rng=1), np.full(4, 0.25))
    )
    with pytest.raises(ValueError, match="dims=5 <= 4"):
        nz.DuchiBox(1.0, dims=5).log_prob(np.full(5, 1.0), np.full(5, 0.25))


def test_a_tensor_may_be_a_millionth_off_its_symmetry() -> None:
    """Of its largest norm and its offset."""
    domain = nz.TensorDomain((2, 2), 1.0, 3.0)
    m = nz.TensorGaussian(domain, 1.0, 1e-5, symmetry=((0, 1),), relation="l2:1")
    scale = 1.0 * 2 + 2.0  # half the diameter of the box, and its middle
    for off, taken in ((0.999, True), (1.001, False)):
        x = np.asarray([[2.0, 2.0 + off * 2e-6 * scale], [2.0, 2.0]])  # half of it is off either way
        if taken:
            m.privatize(x, rng=1)
        else:
            with pytest.raises(ValueError, match="stay the same when modes"):
                m.privatize(x, rng=1)
