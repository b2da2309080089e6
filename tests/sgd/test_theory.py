"""What noise does to a gradient: closed forms and integrals against simulation, and Theorem 6 against its meaning."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy.integrate import dblquad, quad
from scipy.special import ndtri

import noisette as nz
from noisette.guarantees import gaussian_mu
from noisette.mechanisms.geometric.spherical import from_spherical, to_spherical
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

ALARM = 1e-6
NAMES = ("direction", "cosine", "magnitude", "gradient")
DIMS, STDS = (2, 3, 6, 40, 300), (0.01, 0.3, 3.0)
# errors of 8,000 draws are not quite normal: squares have longer tails, so the threshold is that of a level 1e-3 lower
LEVEL = float(ndtri(1 - ALARM * 1e-3 / (2 * len(NAMES) * len(DIMS) * len(STDS) * 3)))


def unit(dims: int) -> np.ndarray:
    g = np.random.default_rng(dims).normal(size=dims)
    return g / np.linalg.norm(g)


def scores(noise: Any, wrong: Any, gradient: np.ndarray) -> np.ndarray:
    """Return how many standard errors a prediction is off a sample of the noise."""
    found, said = measured(noise.draw(gradient, 8000, rng=1), gradient), predicted(wrong, gradient)
    assert found.standard_errors is not None
    return np.asarray(
        [
            (getattr(found, name) - getattr(said, name)) / max(error, 1e-15)
            for name, error in zip(NAMES, found.standard_errors, strict=True)
        ]
    )


@pytest.mark.long
@pytest.mark.parametrize("std", STDS)
@pytest.mark.parametrize("dims", DIMS)
def test_predicted_errors_are_those_of_a_simulation(dims: int, std: float) -> None:
    g = unit(dims)
    for noise in (VectorNoise(std), SphericalNoise(std, std), SphericalNoise(0.3, std, beta=0.3)):
        assert np.all(np.abs(scores(noise, noise, g)) < LEVEL), noise


@pytest.mark.slow
def test_wrong_predictions_are_rejected() -> None:
    g = unit(40)
    assert np.all(np.abs(scores(VectorNoise(0.3), VectorNoise(0.33), g)) > LEVEL)
    noise = SphericalNoise(0.3, 0.3)
    assert np.all(np.abs(scores(noise, SphericalNoise(0.3, 0.27), g))[[0, 3]] > LEVEL)
    assert abs(scores(noise, SphericalNoise(0.36, 0.3), g)[2]) > LEVEL
    assert abs(scores(noise, replace(noise, beta=0.5), g)[0]) > LEVEL
    # folding back counts: without it an angle's error would be t^2
    wide = SphericalNoise(0.3, 3.0)
    found = measured(wide.draw(g, 2000, rng=2), g)
    assert found.standard_errors is not None
    assert abs(found.direction - 9.0) > LEVEL * found.standard_errors[0]


@pytest.mark.parametrize("std", [1e-3, 0.19, 0.21, 1.0, 5.0])
def test_folded_and_wrapped_angles_are_those_of_an_integral(std: float) -> None:
    for angle in (0.0, 0.1, 1.3, 3.0, math.pi):
        first, square, sign = (float(moment[0]) for moment in folded(np.asarray([angle]), std))

        def mean(f: Any, centre: float = angle) -> float:
            points = np.arange(-40, 41) * math.pi
            low, high = centre - 10 * std, centre + 10 * std
            inside = points[(points > low) & (points < high)]
            density = lambda v: math.exp(-(((v - centre) / std) ** 2) / 2) / (std * math.sqrt(2 * math.pi))  # noqa: E731
            edges = np.unique(np.concatenate([[low, centre, high], inside]))
            return sum(quad(lambda v: f(v) * density(v), a, b, epsabs=1e-13)[0] for a, b in pairwise(edges))

        assert first == pytest.approx(mean(lambda v: math.acos(max(-1.0, min(1.0, math.cos(v))))), abs=1e-7)
        assert square == pytest.approx(mean(lambda v: math.acos(max(-1.0, min(1.0, math.cos(v)))) ** 2), abs=1e-7)
        assert sign == pytest.approx(mean(lambda v: math.copysign(1.0, math.sin(v))), abs=1e-9)
        turned = mean(lambda v: ((v + math.pi) % (2 * math.pi) - math.pi) ** 2)
        assert float(wrapped(angle, std)) == pytest.approx(turned, abs=1e-7)


@pytest.mark.slow
def test_the_quadrature_is_fine_enough() -> None:
    """Without any gradient all directions are alike."""
    turns = normal_turns(np.full(500, 1e-12), np.ones(500))
    assert turns[-1] == pytest.approx(math.pi**2 / 3, rel=1e-9)  # uniform on the circle
    k = 3.0  # the first of many angles of a random direction has variance near 1 / (d - 2)
    spread = quad(lambda u: (u - math.pi / 2) ** 2 * math.sin(u) ** 498, 0, math.pi)[0]
    spread /= quad(lambda u: math.sin(u) ** 498, 0, math.pi)[0]
    clean = math.atan2(math.sqrt(499), 1.0)
    assert turns[0] == pytest.approx(spread + (clean - math.pi / 2) ** 2, rel=1e-8)
    assert turns[0] != pytest.approx(k / 500, rel=0.1)


@pytest.mark.long
def test_angles_of_noise_that_differs_are_those_of_integrals_and_simulations(monkeypatch: pytest.MonkeyPatch) -> None:
    for x, y, s, t in ((0.3, -0.8, 1.0, 0.2), (2.0, 0.1, 0.01, 3.0), (-0.5, 0.0, 0.7, 0.7)):

        def turned(v: float, u: float, x: float = x, y: float = y, s: float = s, t: float = t) -> float:
            apart = math.atan2(y + t * v, x + s * u) - math.atan2(y, x)
            return ((apart + math.pi) % (2 * math.pi) - math.pi) ** 2 * math.exp(-(u * u + v * v) / 2) / (2 * math.pi)

        cuts = [(-9.0, min(max(at, -9.0), 9.0), 9.0) for at in (-x / s, -y / t)]  # the origin has no angle
        whole = math.fsum(
            dblquad(turned, *wide, *high, epsabs=1e-9)[0] for wide in pairwise(cuts[0]) for high in pairwise(cuts[1])
        )
        assert normal_turns(np.asarray([x, y]), np.asarray([s, t]) ** 2)[0] == pytest.approx(whole, rel=1e-5)
    rng = np.random.default_rng(8)
    draws, worst = 100_000, 0.0
    level = float(ndtri(1 - ALARM * 1e-3 / (2 * 100)))
    for dims in (3, 8, 20):
        g, variances = unit(dims), 10 ** rng.uniform(-4, 1, dims)
        noisy = to_spherical(g + np.sqrt(variances) * rng.standard_normal((draws, dims)))[1]
        apart = np.square((noisy - to_spherical(g)[1] + math.pi) % (2 * math.pi) - math.pi)
        found, error = apart.mean(axis=0), apart.std(axis=0) / math.sqrt(draws)
        assert np.all(np.abs(normal_turns(g, variances) - found) < level * error)
        worst = max(worst, np.max(np.abs(normal_turns(g, variances[::-1]) - found) / error))
    assert worst > 10 * level  # the twin: whose noise is whose counts
    g, variances = unit(500), np.repeat(rng.uniform(0.1, 1.0, 5), 100)
    usual = normal_turns(g, variances)
    monkeypatch.setattr(turning, "_OTHER_NODES", 16)
    assert normal_turns(g, variances) == pytest.approx(usual, rel=1e-6)  # nodes enough
    single = normal_turns(g, variances * rng.uniform(1 - 1e-9, 1 + 1e-9, 500))  # no stretches at all
    assert single == pytest.approx(usual, rel=1e-5)


@pytest.mark.slow
def test_lengths_and_cosines_are_those_of_integrals_over_the_plane() -> None:
    length, cosine = length_and_cosine(np.full(500, 1e-12), np.ones(500))
    assert cosine == pytest.approx(0.0, abs=1e-9)
    assert length == pytest.approx(math.sqrt(2) * math.exp(math.lgamma(250.5) - math.lgamma(250.0)), rel=1e-12)
    for g, variances in (([0.3, -0.8], [1.0, 0.2]), ([2.0, 0.0], [0.01, 4.0]), ([0.1, 0.1], [1e-4, 1e-4])):
        x, y, (s, t) = *g, np.sqrt(variances)

        def mean(f: Any, x: float = x, y: float = y, s: float = s, t: float = t) -> float:
            density = lambda v, u: math.exp(-(u * u + v * v) / 2) / (2 * math.pi)  # noqa: E731
            return dblquad(lambda v, u: f(x + s * u, y + t * v) * density(v, u), -9, 9, -9, 9, epsabs=1e-9)[0]

        length, cosine = length_and_cosine(np.asarray(g), np.asarray(variances))
        assert length == pytest.approx(mean(math.hypot), rel=1e-6)
        facing = mean(lambda a, b, x=x, y=y: (a * x + b * y) / (math.hypot(a, b) * math.hypot(x, y)))
        assert cosine == pytest.approx(facing, rel=1e-5)


@pytest.mark.long
def test_noise_of_several_sizes_and_directions_is_predicted() -> None:
    g = unit(40)
    rng = np.random.default_rng(6)
    variances = rng.uniform(0.001, 0.2, 40)
    basis = np.linalg.qr(rng.normal(size=(40, 40)))[0]
    draws = rng.standard_normal((8000, 40)) * np.sqrt(variances)
    laws = {
        "apart": (EntryNoise(variances), draws),
        "turned": (EntryNoise(variances, Turn(basis.__rmatmul__, basis.T.__rmatmul__)), draws @ basis.T),
        "not turned": (EntryNoise(variances, Turn(np.copy, np.copy)), draws),
    }
    for law, noise in laws.values():
        found, said = measured(g + noise, g), predicted(law, g)
        assert found.standard_errors is not None
        errors = np.hypot(found.standard_errors, said.standard_errors or (0.0,) * len(NAMES))
        for name, error in zip(NAMES, errors, strict=True):
            assert abs(getattr(found, name) - getattr(said, name)) < LEVEL * error, name
    straight, same = (predicted(laws[kind][0], g) for kind in ("apart", "not turned"))
    assert same.standard_errors is not None
    assert abs(same.direction - straight.direction) < LEVEL * same.standard_errors[0]  # draws against integrals
    turned = measured(g + laws["turned"][1], g)
    assert turned.standard_errors is not None
    assert abs(turned.cosine - straight.cosine) > 1e-3  # the twins: the basis counts
    assert abs(turned.direction - straight.direction) > 5 * turned.standard_errors[0]


@pytest.mark.slow
def test_noise_around_another_centre_is_predicted() -> None:
    g = unit(12)
    rng = np.random.default_rng(7)
    size, angles = 0.6, to_spherical(g)[1] + rng.uniform(-0.3, 0.3, 11)
    law = SphericalNoise(0.1, 0.2, centre=(size, angles))
    drawn = from_spherical(size + 0.1 * rng.standard_normal(8000), angles + 0.2 * rng.standard_normal((8000, 11)))
    found, said = measured(drawn, g), predicted(law, g)
    assert found.standard_errors is not None
    for name, error in zip(NAMES, found.standard_errors, strict=True):
        assert abs(getattr(found, name) - getattr(said, name)) < LEVEL * error, name
    assert abs(found.direction - predicted(replace(law, centre=None), g).direction) > LEVEL * found.standard_errors[0]


def test_theorem_6_is_the_difference_of_squared_distances() -> None:
    rng = np.random.default_rng(3)
    g, w, best, n = rng.normal(size=(4, 50))
    eta, clip, batch = 0.3, 0.7, 16
    noisy = g + clip * n / batch
    step = efficiency_difference(noisy, g, w, best, learning_rate=eta)
    after = np.sum((w - eta * noisy - best) ** 2) - np.sum((w - eta * g - best) ** 2)
    assert step.total == pytest.approx(after, rel=1e-9)
    assert step.item_a == pytest.approx(eta**2 * (2 * clip / batch * n @ g + clip**2 / batch**2 * n @ n), rel=1e-9)
    assert step.item_b == pytest.approx(2 * eta * clip / batch * n @ (best - w), rel=1e-9)
    # Corollary 1: at the optimum item B is gone, item A is not
    there = efficiency_difference(noisy, g, best, best, learning_rate=eta)
    assert there.item_b == 0
    assert there.item_a == step.item_a


@pytest.mark.long
@pytest.mark.parametrize("noise", [VectorNoise(0.2), SphericalNoise(0.1, 0.4), SphericalNoise(0.1, 0.4, 0.3)], ids=str)
def test_the_expected_difference_is_that_of_a_simulation(noise: Any) -> None:
    rng = np.random.default_rng(4)
    g, w, best = rng.normal(size=(3, 12)) / 3
    said = expected_efficiency_difference(noise, g, w, best, learning_rate=0.5)
    steps = [efficiency_difference(one, g, w, best, learning_rate=0.5) for one in noise.draw(g, 20_000, rng=5)]
    for name in ("item_a", "item_b"):
        values = np.asarray([getattr(step, name) for step in steps])
        error = values.std() / math.sqrt(values.size) * float(ndtri(1 - ALARM / 12))
        assert abs(values.mean() - getattr(said, name)) < error
        assert abs(values.mean() - getattr(said, name) - 0.1 * values.std()) > error  # the twin
    if isinstance(noise, VectorNoise):
        assert (said.item_a, said.item_b) == (pytest.approx(0.25 * 12 * 0.04), 0.0)
    else:
        assert said.item_b != 0  # the thesis calls the noise on angles unbiased; as a gradient it is not


@pytest.mark.slow
def test_the_spread_of_item_b_follows_clipping_and_learning_rate() -> None:
    """Corollary 2 says that neither can lower it. Both do: it is 2 eta s |w* - w|."""
    g, w, best = np.random.default_rng(6).normal(size=(3, 30))
    for eta, std in ((0.5, 0.2), (0.25, 0.2), (0.5, 0.1)):
        draws = VectorNoise(std).draw(g, 4000, rng=7)
        items = [efficiency_difference(one, g, w, best, learning_rate=eta).item_b for one in draws]
        assert np.std(items) == pytest.approx(2 * eta * std * np.linalg.norm(best - w), rel=0.06)


def test_tensors_of_torch_are_taken_as_they_are() -> None:
    torch = pytest.importorskip("torch")
    g = torch.arange(6.0).reshape(2, 3).requires_grad_()
    step = efficiency_difference(g + 0.1, g, torch.zeros(2, 3), torch.ones(2, 3), learning_rate=0.1)
    plain = efficiency_difference(*(np.asarray(v.detach()) for v in (g + 0.1, g, 0 * g, 0 * g + 1)), learning_rate=0.1)
    assert step.total == pytest.approx(plain.total)
    assert predicted(VectorNoise(0.1), g).cosine == predicted(VectorNoise(0.1), np.arange(6.0)).cosine


@pytest.mark.slow
def test_the_sound_mechanism_has_the_predicted_errors() -> None:
    m = nz.AngleGaussian(20.0, domain=nz.L2Ball(3), delta=1e-5, beta=1.0)
    g = np.asarray([-0.3, 0.5, 0.4])
    reports = m.privatize(np.tile(g, (8000, 1)), rng=8)
    from noisette.mechanisms.geometric.spherical import from_spherical

    found = measured(from_spherical(reports[:, 0], reports[:, 1:]), g)
    said = predicted(SphericalNoise(float(m.sigmas[0]), float(m.sigmas[1])), g)
    assert found.standard_errors is not None
    for name, error in zip(NAMES, found.standard_errors, strict=True):
        assert abs(getattr(found, name) - getattr(said, name)) < LEVEL * error


@pytest.mark.long
@pytest.mark.parametrize("dims", [2, 10, 100])
@pytest.mark.parametrize("epsilon", [1.0, 8.0, 50.0])
def test_at_one_true_guarantee_plain_noise_keeps_the_direction_better(dims: int, epsilon: float) -> None:
    """Theorem 10 says the opposite; it compares at the same multiplier, not at the same guarantee."""
    mu = gaussian_mu(epsilon, 1e-5)
    directions = np.random.default_rng(dims).normal(size=(5, dims))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    plain = np.mean([predicted(VectorNoise(2 / mu), g).cosine for g in directions])
    for beta in (1.0, 0.5, 0.1):
        sigmas = nz.AngleGaussian(epsilon, dims, delta=1e-5, beta=beta).sigmas
        geo = SphericalNoise(float(sigmas[0]), float(sigmas[1]), beta)
        assert np.mean([predicted(geo, g).cosine for g in directions]) < plain


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: VectorNoise(0.0), "std=0.0 > 0"),
        (lambda: SphericalNoise(1.0, -1.0), "angle_std=-1.0 > 0"),
        (lambda: SphericalNoise(1.0, 1.0, 0.0), "beta=0.0"),
        (lambda: predicted(VectorNoise(1.0), [1.0]), "no direction"),
        (lambda: predicted(SphericalNoise(1.0, 1.0), [1.0]), "two entries or more"),
        (lambda: predicted(VectorNoise(1.0), [1.0, math.nan]), "gradient to be finite, got nan"),
        (lambda: predicted(VectorNoise(1.0), []), "at least one value"),
        (lambda: measured([[1.0, 2.0, 3.0]], [1.0, 2.0]), "shape"),
        (lambda: efficiency_difference([1.0], [1.0], [1.0, 2.0], [1.0], learning_rate=1.0), "one shape"),
        (lambda: efficiency_difference([1.0], [1.0], [1.0], [1.0], learning_rate=0.0), "learning_rate=0.0"),
    ],
)
def test_bad_input_is_refused(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_a_zero_gradient_and_extreme_noise_give_numbers() -> None:
    for noise in (VectorNoise(1e-9), VectorNoise(1e9), SphericalNoise(1e-9, 1e-9), SphericalNoise(1e9, 1e3)):
        for g in (np.zeros(5), np.full(5, 1e-3), np.asarray([0.0, -0.0, 0.0, 0.0, 1e-200])):
            found = predicted(noise, g)
            assert all(math.isfinite(getattr(found, name)) for name in NAMES)
