"""What lies can do, and what honest people cannot: each bound and each p-value computed again by hand."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

import noisette as nz
from noisette.collector.results import liars
from noisette.collector.results.liars import FALSE_ALARM, chance_of, intervals, suspicions
from noisette.core import Tail


@pytest.mark.parametrize("scale", [0.0, 0.7])
@pytest.mark.parametrize("count", [1, 50])
def test_the_chance_of_a_distance_solves_its_formula(scale: float, count: int) -> None:
    """away = sqrt(2 v x / n) + c x / n, chance exp(-x)."""
    for x in (0.1, 1.0, 20.0):
        away = math.sqrt(2 * 1.5 * x / count) + scale * x / count
        found = chance_of(Tail(1.5, scale), np.asarray([away]), np.asarray([count]))
        assert found[0] == pytest.approx(math.exp(-x), rel=1e-9)


def sums(*aggregates: Any, users: int) -> Any:
    return SimpleNamespace(aggregates=aggregates, users=users, layout=SimpleNamespace(numbers=()))


def test_a_mean_may_be_moved_by_the_liars_share_and_no_farther() -> None:
    """[(L - l s_max) / (1 - l), (U - l s_min) / (1 - l)] with l = share users / n, cut to the range."""
    mechanism = nz.Duchi(1.0, domain=nz.Interval(0, 10))
    aggregate = mechanism.aggregate(np.asarray(mechanism.privatize(np.full(2000, 4.0), rng=1)))
    named = type(aggregate)(**{**aggregate.__dict__, "names": ("hours",)})
    low, high = (float(end[0]) for end in named.estimate().interval(0.9))
    least, largest = float(mechanism.support.values[0]), float(mechanism.support.values[-1])
    for users in (2000, 4000):
        lying = 0.02 * users / 2000
        wanted = (low - lying * largest) / (1 - lying), (high - lying * least) / (1 - lying)
        found = intervals(sums(named, users=users), 0.9, 0.02)["hours"]
        assert found == pytest.approx((max(wanted[0], 0.0), min(wanted[1], 10.0)), rel=1e-6)
    assert intervals(sums(named, users=2000), 0.9, 1.0)["hours"] == (0.0, 10.0)
    assert intervals(sums(aggregate, users=2000), 0.9, 0.02) == {}


def counted(total: list[int], users: int) -> Any:
    mechanism = nz.GeneralizedRandomizedResponse(1.0, domain=nz.Categorical(len(total)))
    counts = np.full(len(total), users)
    one: Any = mechanism.aggregate(np.zeros(1, dtype=int))
    names = tuple(f"label {place}" for place in range(len(total)))
    return type(one)(**{**one.__dict__, "users": users, "count": counts, "total": np.asarray(total), "names": names})


def test_categories_are_supported_as_often_as_honest_people_could() -> None:
    """Exact binomial tails: at most so many if nobody held it, at least so many if everybody did."""
    made = counted([40, 400, 260], 700)
    mechanism = made.mechanism
    found = {(one["about"], one["test"]): one["p_value"] for one in liars._tests(sums(made, users=700))}
    for place, total in enumerate((40, 400, 260)):
        rare = binom.cdf(total, 700, mechanism.p_other)
        often = binom.sf(total - 1, 700, mechanism.p_own)
        assert found[f"label {place}", "supported too rarely"] == pytest.approx(rare, rel=1e-9)
        assert found[f"label {place}", "supported too often"] == pytest.approx(often, rel=1e-9)
    told = suspicions(sums(made, users=700))
    assert told["false_alarm"] == FALSE_ALARM
    assert told["tests"] == len(found)
    worst = min(found.values())
    assert told["failed"][0]["p_value"] == worst
    assert told["failed"][0]["adjusted"] == pytest.approx(min(1.0, worst * len(found)))
    assert all(one["adjusted"] < FALSE_ALARM for one in told["failed"])


def test_nobody_is_suspected_of_what_chance_explains() -> None:
    honest = counted([200, 300, 200], 700)
    assert suspicions(sums(honest, users=700))["failed"] == []
    assert suspicions(sums(honest, users=0)) == {"false_alarm": FALSE_ALARM, "tests": 0, "failed": []}


def test_a_mean_beyond_its_range_is_as_unlikely_as_its_tail_says() -> None:
    mechanism = nz.Piecewise(1.0)
    one: Any = mechanism.aggregate(np.asarray(mechanism.privatize(np.zeros(1), rng=1)))
    read = mechanism.readout
    for value in (1.5, -1.5, 0.5):
        total = np.asarray([round(float((value - read.offset) / read.scale * 100))])
        made = type(one)(**{**one.__dict__, "users": 100, "count": np.asarray([100]), "total": total, "names": ("x",)})
        (found,) = liars._tests(sums(made, users=100))
        away = max(abs(value) - 1, 0.0)
        assert found["p_value"] == pytest.approx(
            float(chance_of(read.tail, np.asarray(away), np.asarray(100))), rel=1e-4
        )
    assert found["p_value"] == 1.0
