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


def number(chances: Any, epsilon: float = 0.8, bins: int = 3, **guarantee: Any) -> Any:
    """What a question of binned reports is to the tests: a channel of chances and a promise."""
    promise = SimpleNamespace(**({"epsilon": epsilon, "delta": 0.0, "matrix": None} | guarantee))
    return SimpleNamespace(
        mechanism=SimpleNamespace(guarantee=promise),
        channel=SimpleNamespace(matrix=np.asarray(chances)),
        bins=bins,
        question=SimpleNamespace(name="x"),
    )


CHANCES = [[0.2, 0.1, 0.15], [0.5, 0.8, 0.55], [0.3, 0.1, 0.3]]  # of each bin by input


def test_bins_have_chances_within_what_the_budget_allows() -> None:
    """Of each bin the least chance of any input is the largest known divided by e^epsilon, and the other way round."""
    counts = np.asarray([3, 90, 0])
    held: Any = SimpleNamespace(histogram=lambda _: counts)
    found = list(liars._bins(number(CHANCES), held))
    assert len(found) == 6
    grows = math.exp(0.8)
    for place, (total, row) in enumerate(zip(counts.tolist(), CHANCES, strict=True)):
        few, many = found[2 * place : 2 * place + 2]
        assert few["test"] == f"too few reports in bin {place + 1}"
        assert many["test"] == f"too many reports in bin {place + 1}"
        assert few["about"] == many["about"] == "x"
        low, high = max(row) / grows * (1 - 1e-9), min(1.0, min(row) * grows * (1 + 1e-9))
        assert few["p_value"] == pytest.approx(binom.cdf(total, 93, low), rel=1e-7)
        often = binom.sf(total - 1, 93, high) if total and high < 1 else 1.0
        assert many["p_value"] == pytest.approx(often, rel=1e-7)
    assert found[3]["p_value"] == 1.0  # 0.5 e^0.8 is more than a chance can be
    for silent in (
        number(CHANCES, delta=1e-9),
        number(CHANCES, matrix=np.eye(2)),
        number(CHANCES[:2]),
        number(CHANCES, bins=0),
    ):
        assert list(liars._bins(silent, held)) == []
    assert list(liars._bins(number(CHANCES), SimpleNamespace(histogram=lambda _: np.zeros(3)))) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("chances", "adjusted"),
    [
        ([1e-9, 1e-8, 1.0, 0.4], [4e-9, 3e-8]),
        ([1e-8, 1e-9, 1.0, 1.0], [4e-9, 3e-8]),  # those of one count as tests, too
        ([2.4e-5, 3e-5, 0.5, 0.5], [9.6e-5, 9e-5]),
        ([2.6e-5, 1e-5, 0.5, 0.5], [4e-5, 7.8e-5]),
        ([2.5e-5, 1e-9, 3e-9, 0.5], [4e-9, 9e-9, 5e-5]),
        ([2.500001e-5, 0.5, 0.5, 0.5], []),  # the first that is no alarm ends it
        ([0.5, 0.5, 0.9, 1.0], []),
    ],
)
def test_chances_are_adjusted_by_holm(
    monkeypatch: pytest.MonkeyPatch, chances: list[float], adjusted: list[float]
) -> None:
    monkeypatch.setattr(liars, "_tests", lambda _: iter([{"p_value": chance} for chance in chances]))
    told = suspicions(sums(users=1))
    assert told["tests"] == 4
    assert [one["adjusted"] for one in told["failed"]] == pytest.approx(adjusted)
    assert suspicions(sums(users=0))["tests"] == 0


def test_parts_of_a_record_lie_one_after_the_other() -> None:
    mechanism = SimpleNamespace(kind="attributes", inner_mechanisms=("a", "b", "c"), groups=(2, 1, 4))
    one: Any = SimpleNamespace(mechanism=mechanism, count=np.zeros(7))
    assert list(liars._parts(one)) == [("a", slice(0, 2)), ("b", slice(2, 3)), ("c", slice(3, 7))]
    single = SimpleNamespace(kind="mean")
    one = SimpleNamespace(mechanism=single, count=np.zeros(5))
    assert list(liars._parts(one)) == [(single, slice(0, 5))]


def test_shares_that_are_independent_add_up_to_one() -> None:
    """Tails add up: their variances, and the largest scale; on both sides, so that the chance is doubled."""
    readout = SimpleNamespace(
        offset=-0.5, scale=2.0, tail=Tail(np.asarray([0.3, 0.4, 0.5]), np.asarray([0.1, 0.9, 0.2]))
    )
    mechanism = SimpleNamespace(readout=readout)
    count = np.asarray([100, 100, 100])
    for total in ([30, 60, 80], [20, 20, 20], [41, 42, 42]):
        value = sum(-0.5 + 2.0 * one / 100 for one in total)
        found = liars._shares(mechanism, ("p", "q", "r"), count, np.asarray(total))
        chance = float(chance_of(Tail(1.2, 0.9), np.asarray([abs(value - 1)]), np.asarray([100]))[0])
        assert found["p_value"] == pytest.approx(min(1.0, 2 * chance))
        assert found["test"] == f"shares add up to {value:.3f}"
        assert found["about"] == "p and 2 others"
    assert liars._shares(mechanism, ("p",), count, np.asarray([30, 60, 80]))["about"] == "p"


def test_means_on_both_sides_of_their_range() -> None:
    readout = SimpleNamespace(offset=1.0, scale=0.5, low=-2.0, high=3.0, tail=Tail(0.7, 0.2))
    mechanism = SimpleNamespace(readout=readout)
    count, total = np.asarray([50, 50, 50, 50]), np.asarray([-400, -300, 200, 260])
    found = [one["p_value"] for one in liars._means(mechanism, "abcd", count, total)]
    away = [max(value - 3.0, -2.0 - value, 0.0) for value in (1.0 + 0.5 * total / 50).tolist()]
    assert away == pytest.approx([1.0, 0.0, 0.0, 0.6])
    assert found == pytest.approx(chance_of(Tail(0.7, 0.2), np.asarray(away), count).tolist())


def test_a_label_that_nobody_supports_is_rare_and_never_too_often() -> None:
    found = list(liars._tests(sums(counted([0, 350, 350], 700), users=700)))
    assert next(one["p_value"] for one in found if one["test"].endswith("often")) == 1.0
    missing = counted([10, 20, 30], 60)
    object.__setattr__(missing, "count", np.asarray([60, 0, 60]))
    assert list(liars._tests(sums(missing, users=60))) == []  # nobody has said anything of one


def test_names_that_do_not_fit_have_no_intervals() -> None:
    made = counted([40, 400, 260], 700)
    assert list(intervals(sums(made, users=700), 0.9, 0.01)) == ["label 0", "label 1", "label 2"]
    object.__setattr__(made, "names", ("one", "two"))
    assert intervals(sums(made, users=700), 0.9, 0.01) == {}
