"""The finite-sample interval rests on a bound of the moment generating function: hold it against the true one."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import noisette as nz
from noisette.core import Tail
from noisette.mechanisms.scalar._additive import GaussianNoise, LaplaceNoise
from noisette.mechanisms.scalar.staircase import StaircaseNoise

SHARES = np.asarray([0.01, 0.1, 0.3, 0.6, 0.9, 0.99])


def arguments(tail: Tail) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return t from near zero to near the pole 1 / c of the bound, or over three standard deviations without one."""
    end = 1 / float(tail.scale) if float(tail.scale) > 0 else 3 / math.sqrt(float(tail.variance))
    return SHARES * end


def bound(tail: Tail, t: float) -> float:
    return float(tail.variance) * t * t / (2 * (1 - float(tail.scale) * abs(t)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "noise",
    [
        LaplaceNoise(0.02),
        LaplaceNoise(1.0),
        LaplaceNoise(6.0),
        GaussianNoise(0.4),
        GaussianNoise(2.0),
        GaussianNoise(200.0),
        StaircaseNoise(0.3, 12, 5),
        StaircaseNoise(1.0, 40, 17),
        StaircaseNoise(6.0, 40, 3),
        StaircaseNoise(20.0, 1000, 1),
    ],
)
def test_noise_is_sub_gamma(noise: Any) -> None:
    support = np.arange(-400_000.0, 400_001.0) + noise.half
    log_mass = noise.log_mass(support)
    for t in arguments(noise.tail):
        exponent = log_mass + t * support
        top = exponent.max()
        assert top + math.log(np.exp(exponent - top).sum()) <= bound(noise.tail, t) * (1 + 1e-9)


def test_a_smaller_bound_is_caught() -> None:
    """The twin: half the variance does not bound Laplace noise."""
    noise = LaplaceNoise(0.02)
    support = np.arange(-20_000.0, 20_001.0)
    small = Tail(float(noise.tail.variance) / 2, 0.0)
    t = 0.3 * 0.02
    assert math.log(np.exp(noise.log_mass(support) + t * support).sum()) > bound(small, t)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
@pytest.mark.parametrize(
    "name", ["duchi", "piecewise", "piecewise-optimal", "hybrid", "square-wave", "laplace", "gaussian", "staircase"]
)
def test_reports_of_a_population_are_sub_gamma(name: str, epsilon: float, published: Any) -> None:
    """Values included: half of the users at one end and half at the other, all at an end, or all in the middle."""
    mechanism = nz.CATALOGUE[name](epsilon)
    bias = mechanism.moments([-1.0, 1.0]).bias
    slope = 1 + float(bias[1] - bias[0]) / 2
    laws = {x: published(name, x, epsilon) for x in (-1.0, 0.0, 1.0)}
    if name not in ("laplace", "gaussian"):  # exponentials need finer pieces than constants
        laws = {x: replace(law, rule=published("laplace", 0.0, 1.0).rule) for x, law in laws.items()}
    tail = mechanism.readout.tail
    for population in ((-1.0, 1.0), (-1.0,), (0.0,)):
        mean = np.mean([laws[x].expect(lambda y: y) for x in population])
        for t in (*arguments(tail)[:5], *-arguments(tail)[:5]):
            generating = np.mean(
                [laws[x].expect(lambda y, t=t, mean=mean: math.exp(t * (y - mean) / slope)) for x in population]
            )
            assert math.log(generating) <= bound(tail, t) * (1 + 1e-6)
