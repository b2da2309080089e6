"""What privatize sends: the published law, in the shape of the input, without touching it, in little memory."""

from __future__ import annotations

import itertools
import math
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

import noisette as nz

FALSE_ALARM = 1e-6
BUILD: dict[str, Callable[..., Any]] = {
    "laplace": nz.Laplace,
    "gaussian": nz.Gaussian,
    "staircase": nz.Staircase,
    "scdf": nz.Scdf,
    "duchi": nz.Duchi,
    "piecewise": nz.Piecewise,
    "piecewise-optimal": nz.PiecewiseOptimal,
    "hybrid": nz.Hybrid,
    "square-wave": nz.SquareWave,
    "square-wave-debiased": lambda epsilon, **options: nz.SquareWave(epsilon, debiased=True, **options),
}
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
    x = np.asarray([[-1.0, 0.25, 1.0], [0.5, -0.75, 0.0]])
    kept = x.copy()
    reports = mechanism.privatize(x, rng=5)
    assert np.array_equal(x, kept)
    assert reports.shape == x.shape
    assert reports.dtype == np.float64
    assert np.array_equal(reports, mechanism.privatize(x, rng=5))
    assert not np.array_equal(reports, mechanism.privatize(x, rng=6))
    assert np.array_equal(reports, mechanism.privatize(x.tolist(), rng=5))
    assert np.array_equal(reports, mechanism.privatize(x.astype(np.float32), rng=5))
    assert np.array_equal(reports, mechanism.privatize(np.asfortranarray(x), rng=5))
    assert np.array_equal(reports, mechanism.privatize(np.repeat(x, 2, axis=1)[:, ::2], rng=5))
    assert mechanism.privatize(np.zeros((2, 3, 4)), rng=5).shape == (2, 3, 4)
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
