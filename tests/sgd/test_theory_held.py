"""What theory says of noisy gradients, digit by digit: angles, lengths, cosines, errors and steps.

python -m tests.sgd.test_theory_held writes the digits anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.held import Held

from noisette.sgd.theory import turns as turning
from noisette.sgd.theory.angles import folded, wrapped
from noisette.sgd.theory.lengths import length_and_cosine
from noisette.sgd.theory.steps import (
    EntryNoise,
    SphericalNoise,
    Turn,
    VectorNoise,
    efficiency_difference,
    expected_efficiency_difference,
    measured,
    predicted,
)
from noisette.sgd.theory.turns import normal_turns

HELD = Held(__file__)


def vector(dims: int, *, tilt: float = 0.7) -> np.ndarray:
    """Return a vector without a random number in it."""
    return np.sin(tilt * np.arange(1, dims + 1)) + 0.3 * np.cos(3.1 * np.arange(dims))


def turned() -> dict[str, Any]:
    found = {}
    for dims in (2, 3, 7, 64, 66, 130):
        g = vector(dims)
        for std in (1e-4, 0.3, 4.0):
            found[f"{dims} {std}"] = normal_turns(g, np.full(dims, std**2))[:: max(1, dims // 8)]
    g = vector(140)
    layers = np.repeat([0.01, 2.0, 0.3, 0.5], [30, 1, 40, 69])
    found["layers"] = normal_turns(g, layers)[::9]
    found["apart"] = normal_turns(vector(9), np.linspace(1e-6, 3, 9))
    found["nothing"] = normal_turns(np.zeros(4), np.asarray([1.0, 0.5, 0.1, 2.0]))
    found["sure"] = normal_turns(np.asarray([1.0, -2.0, 0.5]), np.asarray([0.0, 1e-4, 0.0]))
    long = normal_turns(vector(1300), np.full(1300, 0.04))  # blocks of a stretch
    return found | {"long": [long[:3], long[998:1003], long[1234:1238], long[-3:]]}


def law(noise: Any, dims: int) -> Any:
    return predicted(noise, vector(dims))


BASIS = np.asarray([[0.6, 0.8, 0.0], [-0.8, 0.6, 0.0], [0.0, 0.0, 1.0]])

STORIES: dict[str, Callable[[], Any]] = {
    "turned": turned,
    "folded": lambda: {
        str(std): folded(np.asarray([0.0, 0.2, 1.3, math.pi / 2, 1.7, 3.0, math.pi]), std)
        for std in (0.01, 0.19, 0.21, 0.9, 4.0)
    },
    "wrapped": lambda: {
        str(std): wrapped(np.asarray([-7.0, -3.1, -0.4, 0.0, 1.0, 3.0, 3.3]), std) for std in (0.05, 0.19, 0.3, 2.0)
    },
    "lengths": lambda: [
        length_and_cosine(vector(dims), np.resize(variances, dims))
        for dims in (2, 5, 300)
        for variances in ([0.01], [4.0], [1e-3, 0.2, 7.0])
    ],
    "vector": lambda: {f"{dims} {std}": law(VectorNoise(std), dims) for dims in (2, 5, 40) for std in (0.1, 2.0)},
    "entries": lambda: law(EntryNoise(np.asarray([0.1, 0.2, 0.0, 1.5])), 4),
    "turned entries": lambda: law(
        EntryNoise(np.asarray([0.1, 0.4, 2.0]), Turn(BASIS.__rmatmul__, BASIS.T.__rmatmul__)), 3
    ),
    "spherical": lambda: {
        f"{size} {angle} {beta}": law(SphericalNoise(size, angle, beta), 6)
        for size, angle, beta in ((0.1, 0.05, 1.0), (3.0, 0.5, 0.7), (0.2, 2.0, 0.4))
    },
    "another centre": lambda: law(SphericalNoise(0.3, 0.2, 0.9, centre=(1.2, np.asarray([1.0, 2.0, 0.4]))), 4),
    "measured": lambda: measured(vector(12, tilt=0.2).reshape(4, 3) + vector(3), vector(3)),
    "step": lambda: [
        efficiency_difference(vector(5, tilt=0.2), vector(5), vector(5, tilt=0.9), np.ones(5), learning_rate=0.3),
        *(
            expected_efficiency_difference(noise, vector(5), vector(5, tilt=0.9), np.ones(5), learning_rate=0.3)
            for noise in (VectorNoise(0.7), SphericalNoise(0.2, 0.4, 0.8), EntryNoise(np.arange(5) / 3))
        ),
    ],
}


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n == "turned" else []) for n in STORIES])
def test_digits_are_the_ones_that_were_kept(name: str) -> None:
    HELD.check(name, STORIES[name]())


def test_the_drawn_noise_is_that_of_its_law() -> None:
    """Copies less the gradient are the standard normal draws of the generator, times the deviation."""
    draws = np.random.default_rng(3).standard_normal((4, 5))
    assert VectorNoise(0.3).draw(vector(5), 4, rng=np.random.default_rng(3)) == pytest.approx(vector(5) + 0.3 * draws)


def test_nodes_keep_the_moments_of_what_they_stand_for() -> None:
    """Few nodes for roots of sums of squares have the first moments of many, and chi-square nodes have the law's."""
    rng = np.random.default_rng(1)
    squares, weights = rng.uniform(0.1, 4.0, (2, 90)), rng.random((2, 90))
    weights /= weights.sum(axis=1, keepdims=True)
    nodes, shares = turning._fewer(squares, weights, 6)
    for power in range(2 * 6):
        wanted = np.sum(weights * np.sqrt(squares) ** power, axis=1)
        assert np.sum(shares * np.sqrt(nodes) ** power, axis=1) == pytest.approx(wanted, rel=1e-9)
    nodes, shares = turning._chi_squares(np.asarray([1, 4, 90]), 8)
    for degrees, own, mass in zip((1, 4, 90), nodes, shares, strict=True):
        for power in range(16):
            moment = 2.0**power * math.exp(math.lgamma(degrees / 2 + power) - math.lgamma(degrees / 2))
            assert mass @ own**power == pytest.approx(moment, rel=1e-9)
    nodes, shares = turning._hermite(12)
    assert [shares @ nodes**power for power in (0, 1, 2, 4, 6)] == pytest.approx([1, 0, 1, 3, 15], abs=1e-9)


if __name__ == "__main__":
    HELD.write({name: story() for name, story in STORIES.items()})
