"""Aggregates merge to the same bits in any order, refuse what does not fit, and become estimates."""

from __future__ import annotations

import functools
import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import noisette as nz
from noisette.aggregation import load
from noisette.core import Mechanism, Readout, Tail, decode_array

NAMES = [name for name, cls in nz.CATALOGUE.items() if ".scalar." in cls.__module__ and name != "lp-optimal"]


@functools.cache
def collected(name: str, epsilon: float = 1.0) -> tuple[Any, Any]:
    mechanism = nz.CATALOGUE[name](epsilon)
    x = np.clip(np.rint(np.random.default_rng(1).uniform(-64, 64, 50_000)) / 64, -1, 1)
    return mechanism, mechanism.privatize(x, rng=2)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=15)
@given(cuts=st.lists(st.integers(1, 49_999), min_size=1, max_size=6, unique=True), seed=st.integers(0, 2**32))
def test_any_sharding_and_order_gives_the_same_bits(name: str, cuts: list[int], seed: int) -> None:
    mechanism, reports = collected(name)
    rng = np.random.default_rng(seed)
    shards = np.split(rng.permutation(reports), sorted(cuts))
    parts = [mechanism.aggregate(shard) for shard in shards]
    merged = functools.reduce(lambda one, other: one + other, [parts[i] for i in rng.permutation(len(parts))])
    whole = mechanism.aggregate(reports)
    assert merged == whole
    assert merged.to_json() == whole.to_json()
    for part in ("value", "std_error", "count"):
        assert getattr(merged.estimate(), part).tobytes() == getattr(whole.estimate(), part).tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 30.0, 1000.0])
@pytest.mark.parametrize("name", NAMES)
def test_sums_are_exact_at_extreme_budgets(name: str, epsilon: float) -> None:
    """Against sums of Python's unbounded integers."""
    mechanism, reports = collected(name, epsilon)
    support, coarse = mechanism.support, int(mechanism.readout.coarse)
    codes = [int(code) for code in support.index(reports).tolist()]
    aggregate = mechanism.aggregate(reports)
    assert aggregate.users == int(aggregate.count[0]) == reports.size
    assert int(aggregate.total[0]) == sum(codes)
    # each square is rounded to a whole number of coarse^2, on either side at a tie
    exact = sum(code * code for code in codes) / coarse**2
    assert abs(int(aggregate.squares[0]) - exact) <= (0.5 * reports.size if coarse > 1 else 0)
    value = mechanism.readout.offset + mechanism.readout.scale * sum(codes) / len(codes)
    assert math.isclose(float(aggregate.estimate().value[0]), value, rel_tol=1e-12, abs_tol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_estimate_is_the_mean_of_reports(name: str) -> None:
    """numpy's own mean and standard error; the square wave's published bias is undone."""
    mechanism, reports = collected(name)
    estimate = mechanism.aggregate(reports).estimate()
    mean, error = reports.mean(), reports.std(ddof=1) / math.sqrt(reports.size)
    if name == "square-wave":
        bias = mechanism.moments([-1.0, 1.0]).bias
        slope = 1 + (bias[1] - bias[0]) / 2
        mean, error = (mean + 1 - bias[0]) / slope - 1, error / slope
    assert math.isclose(float(estimate.value[0]), mean, abs_tol=1e-7)
    assert math.isclose(float(estimate.std_error[0]), error, rel_tol=1e-3)
    assert estimate.count[0] == reports.size
    low, high = estimate.interval(0.95, method="normal")
    assert math.isclose(float(high[0] - low[0]), 2 * 1.959964 * float(estimate.std_error[0]), rel_tol=1e-6)
    least, most = estimate.interval(0.95)  # is about as wide, from the known variance of added noise or a little more
    assert 0.97 < float((most[0] - least[0]) / (high[0] - low[0])) < 1.25


@pytest.mark.parametrize("name", NAMES)
def test_standard_error_of_two_reports(name: str) -> None:
    """The sample variance divides by n - 1: with two reports that is a factor of two."""
    mechanism, _ = collected(name)
    reports = np.unique(mechanism.privatize(np.full(50, 0.25), rng=3))[[0, -1]]
    error = float(mechanism.aggregate(reports).estimate().std_error[0])
    bias = mechanism.moments([-1.0, 1.0]).bias
    slope = 1 + (bias[1] - bias[0]) / 2
    assert math.isclose(error, abs(reports[1] - reports[0]) / 2 / slope, rel_tol=1e-2)


def test_json_round_trip() -> None:
    for name in NAMES:
        mechanism, reports = collected(name)
        aggregate = mechanism.aggregate(reports[:1000])
        again = load(aggregate.to_json())
        assert again == aggregate
        assert again.mechanism == mechanism
        assert load(again.to_json()) + aggregate == aggregate + aggregate


def test_json_is_plain() -> None:
    mechanism, reports = collected("duchi")
    fields = json.loads(mechanism.aggregate(reports).to_json())
    assert fields["format"] == "noisette-aggregate"
    assert fields["version"] == 1
    assert fields["users"] == 50_000
    assert decode_array(fields["count"]).tolist() == [50_000]


def test_aggregates_compare_by_value() -> None:
    mechanism, reports = collected("duchi")
    one, other = mechanism.aggregate(reports[:10]), mechanism.aggregate(reports[:11])
    assert one == mechanism.aggregate(reports[:10])
    assert one != other
    assert one != "aggregate"
    named = nz.Aggregate(one.mechanism, one.users, one.count, one.total, one.squares, names=("age",))
    assert named != one


def test_merge_refuses_strangers() -> None:
    mechanism, reports = collected("duchi")
    aggregate = mechanism.aggregate(reports[:10])
    other, _ = collected("duchi", 1e-3)
    with pytest.raises(ValueError, match=r"Expected aggregates of one mechanism, got .*'epsilon': 1\.0.*0\.001"):
        aggregate + other.aggregate(other.privatize([0.1], rng=1))
    with pytest.raises(TypeError, match="Expected an Aggregate to merge, got int"):
        aggregate.merge(3)
    named = nz.Aggregate(mechanism, 10, aggregate.count, aggregate.total, aggregate.squares, names=("age",))
    with pytest.raises(ValueError, match="Expected the same dimension names, got None and"):
        aggregate + named
    wide = nz.Aggregate(mechanism, 10, *(np.tile(a, 2) for a in (aggregate.count, aggregate.total, aggregate.squares)))
    with pytest.raises(ValueError, match=r"Expected sums of shape \(1,\), got \(2,\)"):
        aggregate + wide


@pytest.mark.parametrize("sign", [1, -1])
def test_overflow_is_an_error(sign: int) -> None:
    mechanism, reports = collected("duchi")
    count = mechanism.aggregate(reports[:2]).count
    huge = nz.Aggregate(mechanism, 2, count, np.asarray([sign * 2**62]), np.asarray([2**61]))
    nearly = nz.Aggregate(mechanism, 2, count, np.asarray([sign * (2**62 - 1)]), np.asarray([2**61]))
    assert int((huge + nearly).total[0]) == sign * (2**63 - 1)
    with pytest.raises(OverflowError, match=r"The sums no longer fit 64 bits\. Estimate these shards apart"):
        huge + huge + huge


def test_large_shards_add_up() -> None:
    """A thousand million reports of 64 merged shards still fit."""
    mechanism, reports = collected("laplace", 1e-6)
    total = mechanism.aggregate(reports)
    for _ in range(15):
        total = total + total
    assert total.users == 50_000 * 2**15
    assert total.estimate().value.tolist() == mechanism.aggregate(reports).estimate().value.tolist()


def test_estimates_of_nothing_and_of_one() -> None:
    mechanism, reports = collected("piecewise")
    zero = np.zeros(1, dtype=np.int64)
    nothing = nz.Aggregate(mechanism, 0, zero, zero, zero).estimate()
    assert np.isnan(nothing.value).all()
    assert np.isinf(nothing.std_error).all()
    one = mechanism.aggregate(reports[:1]).estimate()
    assert math.isclose(one.value[0], reports[0], rel_tol=1e-9)
    assert np.isinf(one.std_error).all()
    low, high = one.interval(0.95, method="finite")
    assert np.isfinite(low).all()
    assert np.isfinite(high).all()


@pytest.mark.parametrize("level", [0, 1, -0.5, 95, math.nan])
def test_levels(level: float) -> None:
    mechanism, reports = collected("duchi")
    with pytest.raises(ValueError, match=r"Expected level=.* in \(0, 1\), e\.g\. 0\.95"):
        mechanism.aggregate(reports).estimate().interval(level)


def test_methods_of_interval() -> None:
    mechanism, reports = collected("duchi")
    estimate = mechanism.aggregate(reports).estimate()
    with pytest.raises(ValueError, match="Expected method='exact' to be 'bounded', 'normal' or 'finite'"):
        estimate.interval(0.9, method="exact")
    enhanced = nz.Estimate(estimate.value, estimate.std_error, estimate.count, method="box")
    with pytest.raises(ValueError, match=r"No finite-sample interval after enhancement 'box'\. Ask the raw estimate"):
        enhanced.interval(method="finite")


def test_tail_is_the_sub_gamma_bound() -> None:
    radius = Tail(2.0, 0.5).radius(np.asarray([10.0]), 0.9)
    exponent = math.log(2 / 0.1)
    assert math.isclose(radius[0], math.sqrt(2 * 2 * exponent / 10) + 0.5 * exponent / 10, rel_tol=1e-12)
    assert np.isinf(Tail(2.0, 0.5).radius(np.asarray([0.0]), 0.9)).all()


@pytest.mark.parametrize("name", NAMES)
def test_mechanisms_keep_the_protocol(name: str) -> None:
    mechanism, reports = collected(name)
    assert isinstance(mechanism, Mechanism)
    assert isinstance(mechanism.readout, Readout)
    tally = mechanism.tally(reports[:7])
    assert (tally.users, tally.count.tolist()) == (7, [7])
    assert tally.total.dtype == tally.squares.dtype == np.int64


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0, 8.0])
@pytest.mark.parametrize("name", [name for name, cls in nz.CATALOGUE.items() if ".scalar." in cls.__module__])
def test_finite_intervals_allow_for_the_largest_variance_of_reports(name: str, epsilon: float) -> None:
    """Of one value, and of people half of whom are at either end."""
    mechanism = nz.CATALOGUE[name].example(epsilon)
    x = np.linspace(mechanism.domain.low, mechanism.domain.high, 17)
    moments = mechanism.moments(x)
    means, variances = x + moments.bias, np.broadcast_to(moments.variance, x.shape)
    mixed = (variances[0] + variances[-1]) / 2 + ((means[-1] - means[0]) / 2) ** 2
    assert mechanism.readout.tail.variance >= max(variances.max(), mixed) * (1 - 1e-7)
