"""Attacks on the accountant by another accountant: a lower limit on delta that shares nothing with it.

Losses of one release are cut up and rounded down to a lattice, and self-convolved by doubling, as sums of positive
numbers and without a Fourier transform: each digit is good, however small the delta. Rounding down loses loss, so what
comes out is below the true delta. An epsilon at which it exceeds the stated delta would be unsound.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtr

from noisette.accounting.sampling import SampledRelation, sampled_epsilon

_PLACES = 4096  # of the lattice; it is made coarser by two at each doubling


def log_mixture(x: np.ndarray, shift: float, chance: float) -> np.ndarray:
    """Return the log density of (1 - chance) N(0, 1) + chance N(shift, 1), up to a constant."""
    return np.logaddexp(math.log1p(-chance) - x**2 / 2, math.log(chance) - (x - shift) ** 2 / 2)


def mass(edges: np.ndarray, centre: float) -> np.ndarray:
    """Return the mass of N(centre, 1) between edges, to the last digits on both sides of its centre."""
    z = edges - centre
    across = 1 - ndtr(z[:-1]) - ndtr(-z[1:])
    return np.where(z[1:] <= 0, np.diff(ndtr(z)), np.where(z[:-1] >= 0, -np.diff(ndtr(-z)), across))


def lower_delta(noise: float, chance: float, releases: int, relation: SampledRelation, epsilon: float) -> float:
    """Return a limit below the delta of so many releases, a power of two."""
    shift = 1 / noise
    edges = np.linspace(-shift - 14, shift + 14, 100_001)
    mixed, plain = log_mixture(edges, shift, chance), -(edges**2) / 2
    with_example = (1 - chance) * mass(edges, 0.0) + chance * mass(edges, shift)
    if relation == "replace":
        pairs = [(mixed - log_mixture(edges, -shift, chance), with_example)]
    else:
        pairs = [(mixed - plain, with_example), (plain - mixed, mass(edges, 0.0))]
    found = 0.0
    for losses, masses in pairs:
        least = np.minimum(losses[:-1], losses[1:])
        start, step = float(least.min()), float(np.ptp(least)) / _PLACES * (1 + 1e-9)
        law = np.bincount(np.floor((least - start) / step).astype(np.int64), masses, minlength=_PLACES)
        for _ in range(releases.bit_length() - 1):
            law, start = np.convolve(law, law), 2 * start
            law, step = np.append(law, np.zeros(law.size % 2)).reshape(-1, 2).sum(axis=1), 2 * step
        total = start + step * np.arange(law.size)
        above = total > epsilon
        found = max(found, float((law[above] * -np.expm1(epsilon - total[above])).sum()))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(24))
def test_no_stated_epsilon_has_a_larger_delta(seed: int) -> None:
    rng = np.random.default_rng(seed)
    noise = float(np.exp(rng.uniform(math.log(0.2), math.log(80))))
    chance = float((10 ** rng.uniform(-7, -1), rng.uniform(0.1, 0.9), 1 - 10 ** rng.uniform(-6, -1))[seed % 3])
    releases, delta = 2 ** int(rng.integers(1, 9)), 10 ** float(rng.uniform(-30, -4))
    relation: SampledRelation = "replace" if rng.integers(2) else "add-remove"
    epsilon = sampled_epsilon(noise, delta, releases, chance, relation)
    assert lower_delta(noise, chance, releases, relation, epsilon) <= delta


@pytest.mark.parametrize("relation", ["add-remove", "replace"])
@pytest.mark.parametrize("delta", [1e-15, 1e-25])
def test_the_twin_a_smaller_epsilon_is_caught(relation: SampledRelation, delta: float) -> None:
    epsilon = sampled_epsilon(1.0, delta, 4, 0.7, relation)
    assert lower_delta(1.0, 0.7, 4, relation, epsilon) > 0.5 * delta
    assert lower_delta(1.0, 0.7, 4, relation, 0.98 * epsilon) > delta


@pytest.mark.parametrize("chance", [1e-300, 1e-200, 1e-120])
@pytest.mark.parametrize(
    ("multiplier", "releases"), [(30.0, 1000), pytest.param(1e5, 10**6, marks=pytest.mark.slow), (1.0, 1000)]
)
def test_a_sample_that_hardly_ever_comes_has_an_epsilon(multiplier: float, releases: int, chance: float) -> None:
    """It raised "math domain error". It costs no more than a larger chance."""
    found, larger = (sampled_epsilon(multiplier, 1e-15, releases, q, "add-remove") for q in (chance, 1e-90))
    assert 0 <= found <= larger
