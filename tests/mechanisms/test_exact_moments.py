"""Moments are sums over the law: bias, variance and third moment, each report by its chance, to nine digits.

A mechanism states its law by `log_prob` and its moments by closed forms, written apart from each other. Whatever can be
listed is listed here: a slip in either shows, at values between the points of a lattice too.
"""

from __future__ import annotations

import itertools
import math
from functools import cache
from typing import Any

import numpy as np
import pytest

import noisette as nz
from noisette.mechanisms.graded import laplace as graded_laplace
from noisette.mechanisms.graded.chosen import ChosenLevelLaplace, ChosenLevelOptimal
from noisette.mechanisms.tensor.retain.mechanism import RetainOrNoise

GRID = nz.TensorDomain((1,), -1.0, 3.0)


def moments(values: Any, chances: Any, truth: Any) -> tuple[Any, Any, Any]:
    """Return bias, variance and third absolute central moment of each entry, of values (reports, ...) and chances."""
    values = np.asarray(values, dtype=float)
    weights = np.asarray(chances).reshape(-1, *(1,) * (values.ndim - 1))
    mean = (weights * values).sum(axis=0)
    away = np.abs(values - mean)
    return mean - truth, (weights * away**2).sum(axis=0), (weights * away**3).sum(axis=0)


def same(found: nz.core.Moments, values: Any, chances: Any, truth: Any, close: float = 1e-9) -> None:
    assert float(np.sum(chances)) == pytest.approx(1, rel=1e-9)
    bias, variance, third = moments(values, chances, truth)
    scale = float(np.sqrt(np.max(variance)))
    assert np.allclose(found.bias, bias, rtol=close, atol=1e-9 * scale)
    assert np.allclose(found.variance, variance, rtol=close, atol=close * scale**2)
    assert np.allclose(found.third, third, rtol=close, atol=close * scale**3)


RETAIN = {
    "laplace that keeps": {"epsilon": 6.0, "levels": 5},
    "laplace alone": {"epsilon": 1.0, "levels": 5},
    "gaussian": {"epsilon": 2.0, "delta": 1e-3, "noise": "gaussian", "levels": 4},
    "gaussian that keeps": {"epsilon": 9.0, "delta": 1e-2, "noise": "gaussian", "levels": 3},
}


@pytest.mark.parametrize("options", RETAIN.values(), ids=RETAIN)
@pytest.mark.parametrize("x", [-1.0, 3.0, 1.0, 0.3, 2.71])
def test_entries_that_are_kept_or_noised(options: dict[str, Any], x: float) -> None:
    mechanism = RetainOrNoise(domain=GRID, unit="element", **options)
    step = 4 / (options["levels"] - 1)
    index = np.arange(-400, 400)
    reports = -1.0 + step * index[:, None]
    logs = mechanism.log_prob(reports, np.full((1, 1), x))
    same(mechanism.moments(np.full((1, 1), x)), reports[:, 0], np.exp(logs), x)
    if "noise" not in options:
        assert bool(np.any(mechanism.p_keep > 0)) == (options["epsilon"] > 5)


def test_the_law_of_an_entry_is_the_formula() -> None:
    """p [y = x] + (1 - p) c a^|y - x| on the grid, a = exp(-1/b), c = (1 - a) / (1 + a); half-way, half of each."""
    mechanism = RetainOrNoise(6.0, domain=GRID, unit="element", levels=5)
    rate, p = mechanism._noise.rate, float(mechanism.p_keep)  # type: ignore[attr-defined]
    a = math.exp(-rate)
    c = (1 - a) / (1 + a)
    law = {k: p * (k == 0) + (1 - p) * c * a ** abs(k) for k in range(-9, 10)}
    at_grid = np.exp(mechanism.log_prob(1.0 + np.arange(-9.0, 10.0)[:, None], np.full((1, 1), 1.0)))
    assert np.allclose(at_grid, [law[k] for k in range(-9, 10)], rtol=1e-9)
    between = np.exp(mechanism.log_prob(1.0 + np.arange(-8.0, 9.0)[:, None], np.full((1, 1), 1.25)))
    assert np.allclose(between, [0.75 * law[k] + 0.25 * law[k - 1] for k in range(-8, 9)], rtol=1e-9)
    # the epsilon of an entry: K / b + ln(1 + p / ((1 - p) c))
    assert 4 * rate + math.log1p(p / ((1 - p) * c)) == pytest.approx(6.0, rel=1e-9)
    assert 4 * rate + math.log1p(p / ((1 - p) * c)) <= 6.0 + 1e-12


def test_weights_keep_entries_less_often() -> None:
    mechanism = RetainOrNoise(
        60.0, domain=nz.TensorDomain((2, 2)), levels=3, unit="element", weights=[0.2, 0.6], weights_epsilon=0.0
    )
    kept = mechanism.p_keep
    assert kept.shape == (4,)
    assert kept[0] == kept[1] == mechanism.choice.p_keep
    assert kept[2] == kept[3] == pytest.approx(0.5 * kept[0], rel=1e-12)
    assert kept[2] <= 0.5 * kept[0]
    assert mechanism.p_any_kept == pytest.approx(1 - np.prod(1 - kept), rel=1e-9)
    weighted: dict[str, Any] = {"domain": nz.TensorDomain((2, 2)), "levels": 3, "weights": [0.2, 0.6]}
    paid = RetainOrNoise(60.0, unit="element", weights_epsilon=20.0, **weighted)
    assert paid.choice == RetainOrNoise(40.0, unit="element", weights_epsilon=0.0, **weighted).choice
    assert paid.guarantee.epsilon == 60.0


def test_gaussian_noise_of_a_record_is_composed_by_its_entries() -> None:
    """Discrete Gaussian noise of deviation s steps on an entry that moves by K of them: rho = (K / s)^2 / 2 each."""
    for unit, many in (("record", 6), ("element", 1)):
        mechanism = RetainOrNoise(1.0, 1e-6, domain=nz.TensorDomain((2, 3)), levels=256, noise="gaussian", unit=unit)
        event = mechanism.privacy_event()
        assert event is not None
        sigma = mechanism._noise.sigma  # type: ignore[attr-defined]
        assert event.rho == pytest.approx(many * (255 / sigma) ** 2 / 2, rel=1e-12)
    assert RetainOrNoise(1.0, domain=GRID).privacy_event() is None
    keeping = RetainOrNoise(9.0, 1e-2, domain=GRID, levels=3, noise="gaussian", unit="element")
    assert keeping.privacy_event() is None


def test_the_error_of_a_choice_is_its_law() -> None:
    for epsilon in (1.0, 6.0):
        mechanism = RetainOrNoise(epsilon, domain=GRID, unit="element", levels=5)
        on_grid = mechanism.moments(np.full((1, 1), 1.0)).variance
        assert mechanism.choice.helps == (epsilon > 5)
        half = mechanism.moments(np.full((1, 1), 1.5)).variance
        assert half == pytest.approx(on_grid + 0.25, rel=1e-9)  # rounding half a step adds a quarter of its square
        assert mechanism.worst_variance() == pytest.approx(float(half.item()), rel=1e-9)


LEVELS = (-1.0, -0.2, 0.5, 2.0)
LEVELLED = {
    "own levels": nz.LevelledResponse(LEVELS, (3.0, 1.0, 2.0)),
    "chosen levels": nz.LevelledResponse(LEVELS, (3.0, 1.0, 2.0), personalised=True),
}


@pytest.mark.parametrize("value", [-1.0, -0.6, -0.2, 0.1, 1.9, 2.0])
@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("name", LEVELLED)
def test_levels_and_signs(name: str, value: float, level: int) -> None:
    mechanism = LEVELLED[name]
    x: Any = np.asarray([[value, float(level)]]) if mechanism.personalised else np.asarray([value])
    every = mechanism.support.all
    chances = np.exp(mechanism.log_prob(every, x))
    same(mechanism.moments(x), mechanism.decode(every), chances, value)
    own = level if mechanism.personalised else int(np.searchsorted(LEVELS[1:-1], value, side="right"))
    by_level = chances.reshape(3, 2).sum(axis=1)
    assert np.argmax(by_level) == own
    others = [chance for place, chance in enumerate(by_level) if place != own]
    assert others[0] == pytest.approx(others[1], rel=1e-9)


def test_signs_of_a_level_are_kept_as_its_budget_says() -> None:
    """P / (P + 1): the numbers that two signs stand for are that far apart."""
    mechanism = LEVELLED["own levels"]
    low, high = mechanism._points
    assert np.allclose(mechanism.p_keep, 0.5 + 3.0 / (2 * (high - low)), rtol=1e-12)
    values = np.asarray([[level, sign] for level in range(3) for sign in (-1, 1)])
    assert np.allclose(mechanism.decode(values).reshape(3, 2), np.stack([low, high], axis=1), rtol=1e-12)
    counted = mechanism.tally(np.asarray([[0, 1], [0, 1], [2, -1], [1, 1]], dtype=np.int8))
    assert counted.total.tolist() == [0, 2, 0, 1, 1, 0]


@cache
def table() -> ChosenLevelOptimal:
    return ChosenLevelOptimal((-1.0, 0.0, 1.0), ((2.0, 1.5), (1.5, 1.0)))


@pytest.mark.parametrize("value", [-1.0, -0.8, -0.5, 0.1, 0.75, 0.99, 1.0])
@pytest.mark.parametrize("level", [0, 1])
def test_a_table_between_its_points(value: float, level: int) -> None:
    """Between two of its five points a value has the law of one or the other, in proportion."""
    solved = table()._solved
    points = np.linspace(-1, 1, 5)
    below = min(int((value + 1) / 0.5), 3)
    share = (value - points[below]) / 0.5
    rows = [5 * level + below, 5 * level + below + 1]
    laws = solved.chances(np.asarray(rows), np.asarray(rows), np.zeros(2))
    chances = (1 - share) * laws[0] + share * laws[1]
    found = table().moments(np.asarray([[value, float(level)]]))
    same(found, solved.outputs, chances, value, close=1e-7)


@pytest.mark.parametrize("dims", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_corners_of_a_box(dims: int, epsilon: float) -> None:
    """All 2^d vectors of signs, at a corner and inside."""
    mechanism = nz.DuchiBox(epsilon, domain=nz.Box(dims, 0.0, 4.0))
    corners = np.asarray(list(itertools.product((-1.0, 1.0), repeat=dims)))
    rng = np.random.default_rng(dims)
    for x in (np.full(dims, 4.0), np.full(dims, 2.0), rng.uniform(0, 4, dims)):
        logs = mechanism.log_prob(corners, x)
        read = mechanism.readout
        estimates = np.asarray(read.offset) + np.asarray(read.scale) * corners
        same(mechanism.moments(x), estimates, np.exp(logs), x)


@pytest.mark.parametrize("x", [-1.0, -0.31, 0.2, 0.77, 1.0])
def test_graded_laplace_noise_is_its_law(x: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a lattice coarse enough to list."""
    mechanism: Any = nz.CATALOGUE["graded-laplace"]((-1.0, 0.0, 1.0), (4.0, 2.0))
    step = mechanism.support.step
    spread = float(np.sqrt(mechanism.moments(np.asarray([x])).variance.item()))
    index = np.rint(np.linspace(x - 40 * spread, x + 40 * spread, 400_001) / step)
    index = np.unique(index)
    values = mechanism.support.value(index)
    density = np.exp(mechanism.log_prob(values, np.asarray([x])))
    gaps = np.gradient(index)
    chances = density * gaps
    chances = chances if chances.sum() < 2 else chances * step
    assert chances.sum() == pytest.approx(1, rel=1e-3)
    _, variance, third = moments(values, chances / chances.sum(), x)
    found = mechanism.moments(np.asarray([x]))
    assert found.variance.item() == pytest.approx(float(variance), rel=1e-3)
    assert found.third.item() == pytest.approx(float(third), rel=2e-3)


def test_a_chosen_level_has_the_noise_of_that_level() -> None:
    plain: Any = nz.CATALOGUE["graded-laplace"]((-1.0, 0.0, 1.0), (4.0, 2.0))
    chosen = ChosenLevelLaplace(*(getattr(plain, name) for name in ("edges", "epsilons")))
    assert issubclass(ChosenLevelLaplace, graded_laplace.GradedLaplace)
    rows = np.asarray([[-0.5, 0.0], [-0.5, 1.0], [0.5, 0.0], [0.5, 1.0]])
    found = chosen.moments(rows).variance
    assert found[0] == pytest.approx(found[2], rel=1e-6)
    assert found[1] == pytest.approx(found[3], rel=1e-6)
    assert found[1] > found[0]


def test_the_mean_of_two_budgets_is_one_of_the_rules() -> None:
    from noisette.mechanisms.graded.optimal import RULES

    assert {name: rule(1.0, 3.0) for name, rule in RULES.items()} == {"min": 1.0, "max": 3.0, "mean": 2.0}


@pytest.mark.parametrize("dims", [2, 3, 4, 5])
def test_entries_of_a_box_vary_together_as_stated(dims: int) -> None:
    """The covariance of two entries of the estimate is c x_j x_k, with and without ties."""
    mechanism = nz.DuchiBox(2.0, dims=dims)
    corners = np.asarray(list(itertools.product((-1.0, 1.0), repeat=dims)))
    x = np.linspace(-0.9, 0.7, dims)
    chances = np.exp(mechanism.log_prob(corners, x))
    estimates = np.asarray(mechanism.readout.scale) * corners
    covariance = np.einsum("r,ri,rj->ij", chances, estimates - x, estimates - x)
    for i, j in itertools.combinations(range(dims), 2):
        assert covariance[i, j] == pytest.approx(mechanism.coupling * x[i] * x[j], rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("value", [0.0, 0.3, 0.5, 0.77, 1.0])
def test_an_optimal_table_has_the_moments_of_its_law(value: float) -> None:
    mechanism = _optimal()
    outputs = np.asarray(mechanism.support.values)
    chances = np.exp(mechanism.log_prob(outputs, value))
    found = mechanism.moments(np.asarray([value, 0.5]))
    same(nz.core.Moments(found.bias[:1], found.variance[:1], found.third[:1]), outputs, chances, value)
    assert mechanism.log_prob(float(outputs[0]) - 1e-6, value) == -np.inf
    assert mechanism.log_prob(1e9, value) == -np.inf


@cache
def _optimal() -> Any:
    return nz.OptimalGraded((0.0, 0.5, 1.0), (2.0, 1.0), points=4)


def test_normal_noise_has_normal_moments() -> None:
    """E|z|^3 of a normal variable of variance v is 2 sqrt(2 / pi) v^(3/2)."""
    mechanism = nz.TensorGaussian(nz.TensorDomain((2,)), 2.0, covariances=(np.asarray([1.0, 9.0]),))
    found = mechanism.moments(np.zeros(2))
    v = np.asarray(found.variance)
    assert v[1] == pytest.approx(9 * v[0], rel=1e-9)
    assert np.allclose(found.third, 2 * math.sqrt(2 / math.pi) * v**1.5, rtol=1e-12)


def test_codebooks_have_one_bit_to_twelve() -> None:
    made = nz.CATALOGUE["fast-projunit"]
    for bits in (1, 12):
        assert made(4.0, dims=100, rows=64, bits=bits).support.words == 2**bits
    for bits in (0, 13):
        with pytest.raises(ValueError, match="bits"):
            made(4.0, dims=100, rows=64, bits=bits)
    with pytest.raises(ValueError, match="a larger epsilon than 1e-16"):
        made(1e-16, dims=100, rows=64, bits=4)
    seeds = made(4.0, dims=100, rows=64).draw(20_000, np.random.default_rng(1))
    assert 0 <= seeds.min() < 2**32 / 1000
    assert 2**32 * (1 - 1 / 1000) < seeds.max() < 2**32


AVERAGED = [
    "laplace",
    "staircase",
    "scdf",
    "duchi",
    "piecewise",
    "piecewise-optimal",
    "hybrid",
    "gaussian",
    "lp-optimal",
    "sliding-half",
    "discrete-laplace",
    "discrete-gaussian",
    "histogram",
    "duchi-box",
    "privunit",
    "privunit-g",
    "fast-projunit",
    "tensor-gaussian",
    "jl",
    "matrix",
    "retain-or-noise",
    "levelled",
    "graded-laplace",
    "optimal-graded",
    "adaptive-duchi",
]


@pytest.mark.parametrize("name", AVERAGED)
def test_an_estimate_is_the_mean_of_what_reports_say(name: str) -> None:
    """Its error is their deviation over the root of their number, but for the rounding of squares before the sums."""
    mechanism: Any = nz.CATALOGUE[name].example(2.0)
    inputs = np.asarray(mechanism.witnesses()[0])
    reports = mechanism.privatize(np.concatenate([inputs] * 32)[:60], rng=1)
    said = np.asarray(mechanism.decode(reports) if hasattr(mechanism, "decode") else reports, dtype=float)
    said = said.reshape(60, -1)
    found = mechanism.aggregate(reports).estimate()
    scale = np.abs(said).max()
    unit = 1e-6 if name == "matrix" else 1e-9  # answers of a workload are rounded before they are summed
    assert np.allclose(found.value, said.mean(axis=0), rtol=unit, atol=unit * scale)
    deviation = said.std(axis=0, ddof=1) / math.sqrt(60)
    assert np.allclose(found.std_error, deviation, rtol=0.02 if name == "matrix" else 5e-4, atol=1e-12 * scale)
    assert np.all(found.count == 60)
    twice = mechanism.aggregate(reports[:25]) + mechanism.aggregate(reports[25:])
    assert twice == mechanism.aggregate(reports)


def test_a_wave_is_straightened_by_its_slope() -> None:
    """Square-wave reports lean toward the middle: the estimate is the line that takes their mean back to the input."""
    mechanism = nz.CATALOGUE["square-wave"](2.0)
    ends = np.asarray([mechanism.domain.low, mechanism.domain.high])
    read = mechanism.readout
    reports = mechanism.privatize(np.tile(ends, 30), rng=1)
    found = mechanism.aggregate(reports).estimate()
    codes = mechanism.codes(np.asarray(reports))
    assert found.value[0] == pytest.approx(float(read.offset + read.scale * codes.mean()), rel=1e-9)
