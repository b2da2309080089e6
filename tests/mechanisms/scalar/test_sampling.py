"""What privatize sends: the published law, in the shape of the input, without touching it, in little memory."""

from __future__ import annotations

import itertools
import math
import tracemalloc
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats
from tests.mechanisms.scalar.helpers import BUILD

import noisette as nz
from noisette.mechanisms.scalar._additive import GaussianNoise, LaplaceNoise
from noisette.mechanisms.scalar._window import Window
from noisette.mechanisms.scalar.staircase import StaircaseNoise

FALSE_ALARM = 1e-6
ALL = {**BUILD, "discrete-laplace": nz.DiscreteLaplace, "discrete-gaussian": nz.DiscreteGaussian}


def fit(reports: npt.NDArray[np.float64], law: Any, cells: int = 25) -> float:
    """Return the p-value of reports against a published law, by chi-square in cells of some equal chance."""
    edges = np.unique(np.quantile(reports, np.linspace(0, 1, cells + 1)[1:-1], method="lower"))
    edges = edges + 1e-7 * np.maximum(1, np.abs(edges))  # far above a step: a report on an edge lies inside its cell
    bounds = [-math.inf, *edges.tolist(), math.inf]
    expected = np.asarray([law.expect(lambda y: 1.0, low, high) for low, high in itertools.pairwise(bounds)])
    observed = np.bincount(np.searchsorted(edges, reports), minlength=edges.size + 1)
    kept = expected > 1e-12
    if observed[~kept].any():
        return 0.0
    expected = expected[kept] / expected[kept].sum() * reports.size
    return float(stats.chisquare(observed[kept], expected).pvalue)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("name", BUILD)
def test_reports_follow_the_published_law(name: str, epsilon: float, published: Any) -> None:
    mechanism = BUILD[name](epsilon)
    for x, seed in ((0.3, 1), (-1.0, 2)):
        reports = mechanism.privatize(np.full(40_000, x), rng=seed)
        assert fit(reports, published(name, x, epsilon)) > FALSE_ALARM


@pytest.mark.parametrize("name", BUILD)
def test_another_input_or_budget_is_told_apart(name: str, published: Any) -> None:
    """The twin: the same comparison rejects the law of another input, and of a budget 15 % larger."""
    reports = BUILD[name](1.0).privatize(np.full(40_000, 0.9), rng=3)
    assert fit(reports, published(name, 0.9, 1.0)) > FALSE_ALARM
    assert fit(reports, published(name, 0.2, 1.0)) < FALSE_ALARM
    assert fit(reports, published(name, 0.9, 1.15)) < FALSE_ALARM


def counted(draws: npt.NDArray[np.float64], support: npt.NDArray[np.float64], mass: npt.NDArray[np.float64]) -> float:
    """Return the p-value of draws against masses on a few points, by chi-square; rare points are pooled."""
    expected = mass * draws.size
    observed = np.asarray([(draws == point).sum() for point in support], dtype=float)
    common = expected > 20
    pooled = [*observed[common], draws.size - observed[common].sum()], [*expected[common], expected[~common].sum()]
    last = None if pooled[1][-1] > 5 else -1
    return float(stats.chisquare(pooled[0][:last], pooled[1][:last], sum_check=False).pvalue)


@pytest.mark.parametrize(
    ("width", "moves", "place"), [(1, 1, 0), (1, 1, 1), (3, 4, 0), (3, 4, 2), (3, 4, 4), (8, 2, 1)]
)
def test_small_windows_draw_their_table(width: int, moves: int, place: int) -> None:
    """A table small enough that each report is counted: an off-by-one cannot hide."""
    window = Window(nz.Interval(), step=0.25, first=-1.0, width=width, moves=moves, p_window=0.625)
    reports = window.sample(np.full(50_000, float(place)), np.random.default_rng(9))
    support = window.first + window.step * np.arange(width + moves)
    assert np.isin(reports, support).all()
    mass = np.exp(window.log_mass(support, np.full(support.shape, float(place))))
    assert counted(reports, support, mass) > FALSE_ALARM
    other = np.exp(window.log_mass(support, np.full(support.shape, float(place + 1 if place == 0 else place - 1))))
    assert counted(reports, support, other) < FALSE_ALARM


@pytest.mark.parametrize(
    "noise",
    [
        LaplaceNoise(0.4),
        LaplaceNoise(3.0),
        GaussianNoise(0.6),
        GaussianNoise(3.0),
        StaircaseNoise(0.5, 5, 2),
        StaircaseNoise(1.0, 1, 1),
        StaircaseNoise(2.0, 3, 3),
        StaircaseNoise(4.0, 6, 1),
    ],
)
def test_noise_draws_its_masses(noise: Any) -> None:
    draws = noise.sample(np.random.default_rng(10), 50_000) + noise.half
    support = np.arange(-80.0, 80.0) + noise.half
    assert counted(draws, support, np.exp(noise.log_mass(support))) > FALSE_ALARM
    assert counted(draws, support, np.exp(noise.log_mass(support + 1))) < FALSE_ALARM


class CoarseLaplace(nz.Laplace):
    """Laplace on a lattice coarse enough to count its points."""

    _step = 0.25


class CoarseStaircase(nz.Staircase):
    """Staircase on a lattice coarse enough to count its points."""

    _step = 0.25


@pytest.mark.parametrize("build", [CoarseLaplace, CoarseStaircase])
def test_rounding_to_the_lattice_is_part_of_the_law(build: Any) -> None:
    mechanism = build(2.0)
    support = mechanism.support.value(np.arange(-60.0, 61.0))
    for x in (-0.95, 0.1, 0.25):
        reports = mechanism.privatize(np.full(50_000, x), rng=11)
        assert counted(reports, support, np.exp(mechanism.log_prob(support, x)) * 0.25) > FALSE_ALARM
        nearest = np.rint(4 * x) / 4 if x != 0.25 else 0.0
        assert counted(reports, support, np.exp(mechanism.log_prob(support, nearest)) * 0.25) < FALSE_ALARM


def deviations(mechanism: Any, x: float, *, scale: float = 1.0) -> tuple[float, float]:
    """Return how many standard errors mean and mean square of reports are off, were the variance ``scale`` times."""
    reports = mechanism.privatize(np.full(50_000, x), rng=4)
    moments = mechanism.moments(x)
    mean, variance = x + float(moments.bias), scale * float(moments.variance)
    error = math.sqrt(variance / reports.size)
    squares = (reports - mean) ** 2
    return (reports.mean() - mean) / error, (squares.mean() - variance) * math.sqrt(reports.size) / squares.std()


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 6.0])
@pytest.mark.parametrize("name", ALL)
def test_sample_moments(name: str, epsilon: float) -> None:
    """Mean and variance of reports lie within 5.3 standard errors of ``moments`` (false alarm 1e-7 each)."""
    for x in (-1.0, 0.25):
        assert max(map(abs, deviations(ALL[name](epsilon), x))) < 5.3


@pytest.mark.parametrize("name", ALL)
def test_wrong_variance_is_told_apart(name: str) -> None:
    assert abs(deviations(ALL[name](1.0), 0.25, scale=1.1)[1]) > 5.3


@pytest.mark.parametrize("name", ALL)
def test_shapes_types_and_seeds(name: str) -> None:
    mechanism = ALL[name](1.0)
    x = np.asarray([-1.0, 0.25, 1.0, 0.5, -0.75, 0.0])
    kept = x.copy()
    reports = mechanism.privatize(x, rng=5)
    assert np.array_equal(x, kept)
    assert reports.shape == x.shape
    assert reports.dtype == np.float64
    assert np.array_equal(reports, mechanism.privatize(x, rng=5))
    assert not np.array_equal(reports, mechanism.privatize(x, rng=6))
    assert np.array_equal(reports, mechanism.privatize(x.tolist(), rng=5))
    assert np.array_equal(reports, mechanism.privatize(x.astype(np.float32), rng=5))
    assert np.array_equal(reports, mechanism.privatize(np.asfortranarray(np.stack([x, x], axis=1))[:, 0], rng=5))
    assert np.array_equal(reports, mechanism.privatize(np.repeat(x, 2)[::2], rng=5))
    scalar = mechanism.privatize(0.25, rng=5)
    assert isinstance(scalar, float)
    assert scalar == mechanism.privatize(np.asarray(0.25), rng=5)
    assert mechanism.privatize([0, 1], rng=5).shape == (2,)  # integers are numbers


@pytest.mark.parametrize("name", ALL)
def test_read_only_input_is_fine(name: str) -> None:
    x = np.zeros(5)
    x.flags.writeable = False
    assert ALL[name](1.0).privatize(x, rng=1).shape == (5,)


@pytest.mark.parametrize("name", ALL)
def test_generators_advance_and_none_is_fresh(name: str) -> None:
    mechanism = ALL[name](1.0)
    x = np.full(50, 0.25)
    rng = np.random.default_rng(7)
    first, second = mechanism.privatize(x, rng=rng), mechanism.privatize(x, rng=rng)
    assert not np.array_equal(first, second)
    assert np.array_equal(first, mechanism.privatize(x, rng=np.random.default_rng(7)))
    assert not np.array_equal(mechanism.privatize(x), mechanism.privatize(x))


@pytest.mark.parametrize("name", ["laplace", "piecewise", "duchi"])
def test_global_generator_is_not_used(name: str) -> None:
    np.random.seed(0)  # noqa: NPY002
    first = ALL[name](1.0).privatize(np.zeros(20))
    np.random.seed(0)  # noqa: NPY002
    assert not np.array_equal(first, ALL[name](1.0).privatize(np.zeros(20)))


@pytest.mark.parametrize("name", ALL)
def test_clipping_is_asked_for(name: str) -> None:
    mechanism = ALL[name](1.0)
    x = np.asarray([-7.0, 0.25, 1.5])
    with pytest.raises(ValueError, match=r"got -7\.0\. Pass clip=True"):
        mechanism.privatize(x, rng=1)
    clipped = mechanism.privatize(x, clip=True, rng=1)
    assert np.array_equal(clipped, mechanism.privatize(np.clip(x, -1, 1), rng=1))
    assert x.tolist() == [-7.0, 0.25, 1.5]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("name", ALL)
def test_peak_memory(name: str, kind: type) -> None:
    """Below four times the input for a million values, whatever its width."""
    mechanism = ALL[name](1.0)
    x = np.zeros(1_000_000, dtype=kind)
    mechanism.privatize(x[:100], rng=1)  # tables are made once
    tracemalloc.start()
    mechanism.privatize(x, rng=1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * x.nbytes


@pytest.mark.parametrize("name", BUILD)
def test_reports_lie_in_the_support(name: str) -> None:
    for epsilon in (1e-6, 0.01, 1.0, 35.0, 1000.0):
        for low, high in ((-1.0, 1.0), (5.0, 5.1), (1e6, 1e6 + 1), (-1e9, 1e9)):
            mechanism = BUILD[name](epsilon, domain=nz.Interval(low, high))
            x = np.clip(np.linspace(low, high, 3000), low, high)
            reports = mechanism.privatize(x, rng=8)
            assert mechanism.support.contains(reports).all()
            assert np.isfinite(mechanism.log_prob(reports, x)).all()


def test_far_narrow_domains_are_refused_with_a_remedy() -> None:
    for name in BUILD:
        with pytest.raises(ValueError, match="too far from zero for its width: subtract a public offset"):
            BUILD[name](1.0, domain=nz.Interval(1e15, 1e15 + 1)).privatize([1e15], rng=1)


class _Edge:
    """A generator whose uniforms are one number."""

    def __init__(self, uniform: float) -> None:
        self.uniform, self.integers = uniform, np.random.default_rng(5).integers

    def random(self, size: int) -> Any:
        return np.full(size, self.uniform)


@pytest.mark.parametrize("mechanism", [nz.Piecewise(1.0), nz.PiecewiseOptimal(2.0), nz.SquareWave(1.0)])
def test_a_uniform_on_the_edge_is_outside_the_window(mechanism: Any) -> None:
    """Of 2^53 uniforms p_window 2^53 are inside, as the table says: not one more."""
    window, place = mechanism._window, np.full(50, 3.0)
    below, edge, above = (window.sample(place, _Edge(window.p_window + step * 2.0**-53)) for step in (-1, 0, 1))
    assert np.array_equal(edge, above)
    assert not np.any(edge == below)


@pytest.mark.parametrize("epsilon", [0.5, math.nextafter(2.0, 0.0), 2.0, 3.0])
def test_below_a_budget_of_two_the_odds_are_those_of_whole_outputs(epsilon: float) -> None:
    """From there on those of the window's share, which both hold within a billionth of each other."""
    made = Window.build(nz.Interval(-1, 1), epsilon, 1.0, 2.0)
    margin = 1 + (1 + epsilon) * 2.0**-50

    def other(log_odds: float) -> float:
        return math.ceil(margin / (1 + math.exp(log_odds)) * 2**53) * 2.0**-53

    of_outputs, of_share = other(epsilon + math.log(made.width / made.moves)), other(epsilon - 1.0)
    assert of_outputs != of_share
    assert of_outputs == pytest.approx(of_share, rel=1e-9)
    assert 1 - made.p_window == (of_outputs if epsilon < 2 else of_share)
