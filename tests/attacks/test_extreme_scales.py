"""What people have tried with very small and very large numbers: noise must follow the scale, or be refused.

Values between -1e-163 and 3e-163 had neighbours at a distance whose square is zero in float64, so that noise for them
was 10^15 times too small. Sixteen outputs of SlidingHalf were two at epsilon = 1e-6, and its likelihood knew of 16.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import noisette as nz

SCALES = [10.0**power for power in (-308, -250, -200, -163, -162, -150, -100, -92, -80, -20, 0, 20, 80, 92, 150, 300)]


def tensor(scale: float, relation: str) -> nz.TensorGaussian:
    return nz.TensorGaussian(nz.TensorDomain((2, 3), -scale, 3 * scale), 1e-6, 1e-30, relation=relation)


def ball(scale: float, relation: str) -> nz.TensorGaussian:
    return nz.TensorGaussian(nz.TensorBall((2, 3), scale, 0), 1e-6, 1e-30, relation=relation)


def built(make: Any) -> Any:
    """Return a mechanism, or None where it is refused in the right words."""
    try:
        return make()
    except ValueError as refused:
        if "escale the" not in str(refused):
            raise
        return None


@pytest.mark.parametrize("make", [tensor, ball])
@pytest.mark.parametrize("relation", ["any-pair", "slice:0", "element"])
def test_noise_follows_the_scale_of_a_tensor_or_is_refused(make: Any, relation: str) -> None:
    wanted = make(1.0, relation).sigma
    found = {scale: built(lambda scale=scale: make(scale, relation)) for scale in SCALES}
    made = {scale: mechanism.sigma / scale for scale, mechanism in found.items() if mechanism is not None}
    assert list(made.values()) == pytest.approx([wanted] * len(made), rel=1e-9)
    assert len(made) >= 5


@pytest.mark.parametrize("power", [-100, -60, -20, 20, 60, 100])
@pytest.mark.parametrize("width", [1e-80, 1.0, 1e80])
def test_noise_does_not_follow_the_scale_of_a_covariance(power: int, width: float) -> None:
    """Along four modes: variances of 1e-100 each have a product that float64 does not hold."""
    domain, shape = nz.TensorDomain((2, 2, 2, 2), 0, width), np.diag([1.0, 2.0])
    wanted = nz.TensorGaussian(domain, 1.0, 1e-6, covariances=(shape,) * 4).sigma
    covariances = (10.0**power * shape,) * 4
    mechanism = built(lambda: nz.TensorGaussian(domain, 1.0, 1e-6, covariances=covariances))
    assert mechanism is None or mechanism.sigma * 10.0 ** (2 * power) == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("scale", [1e-320, 1e-200, 1e160, 1e300])
@pytest.mark.parametrize(
    "make",
    [
        lambda s: nz.JohnsonLindenstrauss(nz.TensorBall((4, 2), s, 0), 1.0, 1e-6, projections=12),
        lambda s: nz.RetainOrNoise(1.0, domain=nz.TensorDomain((2, 2), -s, s), levels=5),
        lambda s: nz.AdaptiveDuchi(1.0, domain=nz.Box(3, -s, s)),
        lambda s: nz.Laplace(1.0, domain=nz.Interval(-s, s)),
        lambda s: nz.PrivUnitG(1.0, domain=nz.Sphere(3, s)),
    ],
    ids=["jl", "retain-or-noise", "adaptive-duchi", "laplace", "privunit-g"],
)
def test_what_float64_does_not_hold_is_refused_in_words(make: Any, scale: float) -> None:
    with pytest.raises(ValueError, match=r"[Rr]escale the"):
        make(scale)


@pytest.mark.parametrize("name", ["duchi", "laplace", "piecewise", "sliding-half", "lp-optimal"])
def test_an_interval_far_from_zero_is_refused_in_words(name: str) -> None:
    with pytest.raises(ValueError, match="too far from zero for its width"):
        nz.CATALOGUE[name](0.5, domain=nz.Interval(1e15, 1e15 + 4))


@pytest.mark.parametrize("epsilon", [1e-7, 1e-6, 1e-3, 0.01, 0.3, 30.0])
def test_sixteen_outputs_are_sixteen(epsilon: float) -> None:
    mechanism = nz.SlidingHalf(epsilon)
    values = np.asarray(mechanism.support.values)
    assert np.unique(values).size == 16
    masses = np.exp(mechanism.log_prob(values[:, None], np.linspace(-1, 1, 7)))
    assert masses.sum(axis=0) == pytest.approx(np.ones(7), abs=1e-12)
    best = 1 / np.tanh(np.tanh(epsilon / 2)) / np.tanh(epsilon / 2) - 1
    assert mechanism.worst_variance() <= 1.2 * best + 1e-9
    if epsilon <= 0.01:
        assert mechanism.worst_variance() == pytest.approx(best, rel=0.01)
    assert nz.exact_epsilon(mechanism) <= epsilon


# sound mechanisms at the ends of what they take: false alarms of check_mechanism that people have met
AT_THE_ENDS = [
    nz.SlidingHalf(1e-6),  # its likelihood was wrong
    nz.Staircase(300.0),  # rounding to the lattice is a part of the largest variance
    nz.LpOptimal(9.0, domain=nz.Interval(123.456, 123.457)),  # the largest variance is in no end and not in the middle
    nz.Hybrid(0.7, domain=nz.Interval(1e9, 1e9 + 1e-3)),  # bias below what float64 holds there
    nz.Duchi(0.7, domain=nz.Interval(0, 1e-80)),
    nz.SquareWave(9.0, domain=nz.Interval(-1e-80, 1e-80)),  # squares of cubes of its noise are zero
    nz.Gaussian(300.0, 1e-300),
    nz.CATALOGUE["privset"].example(300.0),  # a variance of 1e-30 that is rounding
    nz.PrivUnit(0.5, dims=1),  # likelihoods that are relative to another law
    nz.PrivUnitG(30.0, dims=1),
    nz.TensorGaussian(nz.TensorDomain((2,), 0, 1e-80), 300.0, 1e-30),
    nz.TensorGaussian(nz.TensorBall((1,), 1e80), 1e-6, 0.4),
    nz.GeneralizedRandomizedResponse(40.0, nz.Categorical(1000)),
]


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", AT_THE_ENDS, ids=lambda m: f"{m.name}-{m.guarantee.epsilon:g}-{m.domain.shape}")
def test_sound_mechanisms_pass_at_the_ends_of_what_they_take(mechanism: Any) -> None:
    nz.testing.check_mechanism(mechanism, samples=4000)
