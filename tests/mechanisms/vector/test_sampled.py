"""Sampled: m of d dimensions, budget split, compact reports."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

import noisette as nz
from noisette.mechanisms.vector import _sums
from noisette.mechanisms.vector.sampled import best_report, choose

FALSE_ALARM = 1e-6


@pytest.mark.parametrize(("dims", "count"), [(5, 2), (5, 4), (6, 1), (7, 7), (9, 3)])
def test_subsets_are_uniform(dims: int, count: int) -> None:
    users = 40_000
    chosen = choose(np.random.default_rng(3), users, dims, count)
    assert (np.diff(chosen, axis=1) > 0).all()
    codes = (1 << chosen).sum(axis=1)
    seen = np.unique(codes, return_counts=True)[1]
    assert seen.size == math.comb(dims, count)
    if seen.size > 1:
        assert stats.chisquare(seen).pvalue > FALSE_ALARM


def test_a_biased_choice_would_be_seen() -> None:
    chosen = choose(np.random.default_rng(3), 40_000, 5, 2)
    chosen[: 40_000 // 20] = (0, 1)
    seen = np.unique((1 << chosen).sum(axis=1), return_counts=True)[1]
    assert stats.chisquare(seen).pvalue < FALSE_ALARM


@pytest.mark.slow
def test_many_dimensions_and_few_reports_stay_small() -> None:
    collection = nz.Sampled("duchi", epsilon=1.0, dims=1_000_000, report=3)
    reports = collection.privatize(np.zeros((2, 1_000_000)), rng=1)
    assert reports.indices.shape == reports.values.shape == (2, 3)
    assert collection.aggregate(reports).estimate().value.shape == (1_000_000,)


@pytest.mark.parametrize("inner", ["laplace", "duchi", "piecewise", "hybrid", "staircase", "square-wave"])
@pytest.mark.parametrize("report", [1, 2, 3])
def test_exact_epsilon_is_the_whole_budget(inner: str, report: int) -> None:
    collection = nz.Sampled(inner, epsilon=1.5, dims=3, report=report)
    assert nz.exact_epsilon(collection) == pytest.approx(1.5, rel=1e-8)
    assert nz.exact_epsilon(collection) <= 1.5 * (1 + 1e-12)


def test_a_budget_that_is_not_split_would_be_seen() -> None:
    whole = nz.Sampled("duchi", epsilon=3.0, dims=3, report=2)
    assert nz.exact_epsilon(whole) > 1.5 * (1 + 1e-9)


def test_estimates_are_unbiased_on_unequal_boxes_and_cover_the_truth() -> None:
    rng = np.random.default_rng(5)
    box = nz.Box(4, low=(0, -5, 10, 0), high=(1, 5, 1000, 1e-3))
    x = box.from_canonical(rng.uniform(-1, 1, (60_000, 4)) * np.asarray([1, 0.5, 0.2, 0.1]))
    collection = nz.Sampled("piecewise", epsilon=2.0, dims=4, report=2, domain=box)
    estimate = collection.aggregate(collection.privatize(x, rng=rng)).estimate()
    z = (estimate.value - x.mean(axis=0)) / estimate.std_error
    assert np.all(np.abs(z) < stats.norm.isf(FALSE_ALARM / 8))
    low, high = estimate.interval(0.95, method="finite")
    assert np.all((low <= x.mean(axis=0)) & (x.mean(axis=0) <= high))
    assert estimate.count.sum() == 2 * 60_000


@pytest.mark.slow
def test_coverage_of_the_normal_interval() -> None:
    rng = np.random.default_rng(6)
    dims, users = 2000, 4000
    truth = rng.uniform(-0.9, 0.9, dims)
    x = np.where(rng.random((users, dims)) < (1 + truth) / 2, 1.0, -1.0)
    collection = nz.Sampled("hybrid", epsilon=4.0, dims=dims, report=200)
    low, high = collection.aggregate(collection.privatize(x, rng=rng)).estimate().interval(0.95)
    covered = int(((low <= truth) & (truth <= high)).sum())
    assert stats.binom(dims, 0.95).ppf(FALSE_ALARM) <= covered <= stats.binom(dims, 0.95).isf(FALSE_ALARM)


def test_moments_are_in_the_units_of_each_dimension() -> None:
    box = nz.Box(2, low=(0, -1), high=(100, 1))
    collection = nz.Sampled("duchi", epsilon=2.0, dims=2, report=1, domain=box)
    moments = collection.moments([50.0, 0.0])
    scalar = nz.Duchi(epsilon=2.0, domain=nz.Interval(0, 100)).moments(50.0)
    assert moments.variance[0] == pytest.approx(float(scalar.variance), rel=1e-9)
    assert moments.variance[0] == pytest.approx(2500 * moments.variance[1], rel=1e-12)
    assert moments.third[0] == pytest.approx(50**3 * moments.third[1], rel=1e-12)


def test_the_number_of_reports_minimises_the_second_moment() -> None:
    for epsilon in (0.5, 2.0, 4.0, 8.0, 20.0):
        cost = {m: ((math.exp(epsilon / m) + 1) / (math.exp(epsilon / m) - 1)) ** 2 / m for m in range(1, 101)}
        assert nz.Sampled("duchi", epsilon=epsilon, dims=100).report == min(cost, key=lambda m: cost[m])
    assert best_report(1, lambda m: nz.Duchi(epsilon=9.0 / m)) == 1
    assert nz.Sampled("duchi", epsilon=1000.0, dims=7).report == 7


def test_gaussian_budget_includes_delta() -> None:
    collection = nz.Sampled("gaussian", epsilon=1.0, dims=4, report=2, delta=1e-6)
    assert collection.inner_mechanism.delta == pytest.approx(5e-7)
    assert collection.guarantee.delta == pytest.approx(1e-6)
    with pytest.raises(ValueError, match="no pure guarantee"):
        nz.Sampled("gaussian", epsilon=1.0, dims=4)


def test_options_reach_the_inner_mechanism_and_survive_json() -> None:
    collection = nz.Sampled("square-wave", epsilon=1.0, dims=3, report=1, options={"debiased": True})
    assert collection.inner_mechanism.debiased
    assert nz.from_spec(collection.spec()) == collection


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.full((3, 4), np.nan), "finite"),
        (np.full((3, 4), np.inf), "finite"),
        (np.full((3, 4), 1.5), r"in \[-1, 1\] in dimension 0, got 1.5"),
        (np.zeros((3, 5)), "of shape"),
        (np.zeros((0, 4)), "at least one"),
        (np.full((3, 4), "a"), "real numbers"),
    ],
    ids=["nan", "infinite", "outside", "shape", "empty", "dtype"],
)
def test_bad_input_names_the_value(bad: np.ndarray, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        nz.Sampled("duchi", epsilon=1.0, dims=4, report=2).privatize(bad)


def test_clip_moves_values_in() -> None:
    collection = nz.Sampled("duchi", epsilon=50.0, dims=2, report=2)
    clipped = collection.privatize(np.full((10, 2), 7.0), clip=True, rng=1)
    assert np.array_equal(clipped.values, collection.privatize(np.ones((10, 2)), rng=1).values)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda i, v: (i + 4, v), "from 0 to 3; user 0 reports"),
        (lambda i, v: (i - 4, v), "from 0 to 3; user 0 reports"),
        (lambda i, v: (np.zeros_like(i), v), "increasing"),
        (lambda i, v: (i[:, ::-1], v), "increasing"),
        (lambda i, v: (i, v + 0.001), "outside the support"),
        (lambda i, v: (i, v * np.nan), "outside the support"),
        (lambda i, v: (i[:, :1], v[:, :1]), "2 reports a user"),
    ],
    ids=["above", "below", "twice", "unordered", "off-lattice", "nan", "too-few"],
)
def test_foreign_reports_are_refused(change: object, message: str) -> None:
    collection = nz.Sampled("duchi", epsilon=1.0, dims=4, report=2)
    reports = collection.privatize(np.zeros((6, 4)), rng=2)
    indices, values = change(reports.indices, reports.values)
    with pytest.raises(ValueError, match=message):
        collection.aggregate(nz.Reports(indices, values))


def test_wrong_arguments() -> None:
    for options, message in (
        ({"inner": "grr"}, "one real number"),
        ({"inner": "nothing"}, "Unknown mechanism"),
        ({"report": 0}, "report"),
        ({"report": 5}, "report"),
        ({"dims": 0}, "dims"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"domain": nz.Box(3)}, "Box of dims=4"),
        ({"domain": nz.Interval()}, "Box of dims=4"),
    ):
        with pytest.raises(ValueError, match=message):
            nz.Sampled(**({"inner": "duchi", "epsilon": 1.0, "dims": 4} | options))


@pytest.mark.parametrize("add", [_sums._add, _sums.add], ids=["python", "compiled"])
@pytest.mark.parametrize(
    ("indices", "bad"),
    [([0, 1, 2], -1), ([0, 1, 3], 1), ([0, 1, 4], 1), ([0, 1, 1], 1), ([0, 2, 1], 1), ([-1, 1, 2], 1)],
)
def test_a_user_whose_dimensions_do_not_exist_is_found_before_any_sum(add: Any, indices: list[int], bad: int) -> None:
    """The first that does not exist is as bad as any beyond: what lies there is other memory."""
    rows = np.asarray([[0, 1, 2], indices, [0, 1, 2]], dtype=np.int32)
    sums = np.zeros((3, 3), dtype=np.int64)
    assert add(rows, np.full(rows.shape, 2.0), 1.0, sums) == bad
    if bad < 0:
        assert sums.tolist() == [[3, 6, 12]] * 3
