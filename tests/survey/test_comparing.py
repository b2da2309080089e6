"""Differences between groups, periods and arms: their level, their power, and what many looks cost."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import binom, chi2, norm

import noisette as nz
from noisette.survey.estimation.comparing import (
    QuantileDifference,
    _radius,
    benjamini_hochberg,
    boundaries,
    repeated_p_value,
    spent,
)

FALSE_ALARM = 1e-6
YES = nz.Choice("c", ["yes", "no"])


@pytest.mark.long
def test_arms_of_different_budgets_have_the_right_level() -> None:
    """Arms at epsilon 1 and 2 and one share of 0.2, 20,000 people each: of 300 tests 5 % reject. The twin tests the raw
    reports, whose share depends on the budget, and always rejects (spec: 100 %)."""
    from noisette.survey.results import SurveyAggregate

    rng = np.random.default_rng(1)
    surveys = [nz.Survey([YES], epsilon=epsilon) for epsilon in (1.0, 2.0)]
    rejected = raw = 0
    for _ in range(300):
        arms = []
        for survey in surveys:
            codes = (rng.random(20_000) >= 0.2).astype(np.int64)
            arms.append(survey.layout.tally(survey.privatize_coded({"c": codes}, rng=rng)))
        made = [SurveyAggregate(one, {0: sums}).results() for one, sums in zip(surveys, arms, strict=True)]
        table = made[0].compare(made[1], correct="none")
        rejected += bool(table["p_value"].iloc[0] < 0.05)
        ups = [int(sums.aggregates[0].total[0]) / 20_000 for sums in arms]
        raw += abs(ups[0] - ups[1]) > 1.96 * math.sqrt(2 * 0.25 / 20_000)
    assert rejected <= binom.ppf(1 - FALSE_ALARM, 300, 0.055)
    assert rejected >= binom.ppf(FALSE_ALARM, 300, 0.045)
    assert raw == 300


@pytest.mark.long
def test_results_by_name_are_periods() -> None:
    survey = nz.Survey([nz.Number("x", 0, 1), YES], epsilon=4.0)
    people = {"x": np.full(3000, 0.5), "c": ["yes"] * 3000}
    weeks = {f"week {week}": survey.estimate(survey.privatize(people, rng=week)) for week in range(3)}
    table = weeks["week 0"].compare(weeks)
    assert len(table) == 3 * 3
    pairs = set(zip(table["a"], table["b"], strict=True))
    assert pairs == {("week 0", "week 1"), ("week 0", "week 2"), ("week 1", "week 2")}
    assert np.all((table["low"] < 0) & (table["high"] > 0))
    wide = weeks["week 0"].compare(weeks, correct="none")
    assert np.all(wide["high"] - wide["low"] < table["high"] - table["low"])
    assert np.allclose(wide["adjusted"], wide["p_value"])
    with pytest.raises(TypeError, match="other results"):
        weeks["week 0"].compare({"a": 3})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="holm, bh, none"):
        weeks["week 0"].compare(weeks, correct="tukey")
    other = nz.Survey([nz.Number("y", 0, 1)], epsilon=4.0)
    with pytest.raises(ValueError, match="a quantity that all"):
        weeks["week 0"].compare(other.estimate(other.privatize({"y": [0.5] * 10}, rng=1)))


def test_private_groups_have_the_error_of_the_specification() -> None:
    """Variance of the difference of the means within two private labels: 44.3, 10.6, 4.6 at epsilon 1, 2, 4."""
    for epsilon, variance in ((1.0, 44.3), (2.0, 10.6), (4.0, 4.6)):
        survey = nz.Survey([nz.Choice("c", ["a", "b"]), nz.Number("x", -1, 1)], epsilon=epsilon, joint=[("c", "x")])
        item: Any = survey.items[0]
        mechanism = survey.sections[0].mechanism
        sums = np.tile([[10**8], [round(1e8 * (mechanism.p_own + 3 * mechanism.p_other) / 4)]], (1, 4))
        _, error = item.differences(mechanism, np.concatenate([sums, sums[1:]]))
        assert error[0, 1] ** 2 * 1e8 == pytest.approx(variance, rel=0.01)


# --- quantiles


def _quantiles(x: Any, groups: list[str], **asked: Any) -> nz.Results:
    question = nz.Number("x", **({"low": 0, "high": 1, "want": "quantiles"} | asked))
    survey = nz.Survey([question], epsilon=4.0, groups={"g": ["s", "t", "u"]})
    return survey.estimate(survey.privatize({"x": x, "g": groups}, rng=3))


@pytest.mark.slow
def test_a_difference_of_quantiles_is_that_of_cells_which_are_not_rejected_together() -> None:
    """The interval by a loop over pairs of cells, and the p-value as the level at which it reaches zero."""
    rng = np.random.default_rng(2)
    groups = ["s"] * 3000 + ["t"] * 3000
    results = _quantiles(np.concatenate([rng.beta(2, 5, 3000), rng.beta(3, 4, 3000)]), groups)
    one, two = (results.by("g")[label]["x"].estimate for label in "st")
    table = results.compare("g", correct="none")
    assert "quantiles are made of whole cells and hold more often" in table.attrs["note"]
    table = table[(table["a"] == "s") & (table["b"] == "t")].set_index("quantity")
    assert list(table.index) == ["quantile 0.05", "quantile 0.25", "median", "quantile 0.75", "quantile 0.95"]
    limit = _radius(0.05)

    def far(made: Any, chance: float, cell: int) -> float:
        ends = [(made.cdf[cell] - chance, made.error[cell]), (chance - made.cdf[cell + 1], made.error[cell + 1])]
        return max(0.0, *(gap / error if error else math.copysign(math.inf, gap) for gap, error in ends))

    for quantity, chance in (("median", 0.5), ("quantile 0.95", 0.95)):
        kept = [
            (b - a - 1, b - a + 1)
            for a in range(64)
            for b in range(64)
            if far(one, chance, a) ** 2 + far(two, chance, b) ** 2 <= limit**2
        ]
        row = table.loc[quantity]
        assert row["low"] == pytest.approx(min(low for low, _ in kept) / 64)
        assert row["high"] == pytest.approx(max(high for _, high in kept) / 64)
        assert row["difference"] == pytest.approx(two.quantile(chance) - one.quantile(chance))
        own = QuantileDifference.of(one, two, chance)
        assert own.interval(row["p_value"] * 1.001, ())[0] > 0
        assert own.interval(row["p_value"] * 0.999, ())[0] <= 0
        # at the second of two looks: two intervals, each at half the error
        ends = []
        for made in (one, two):
            least, most = made.band(boundaries((0.5, 1.0), 0.025)[-1])
            cells = np.flatnonzero((least[:-1] < chance) & (chance <= most[1:]))
            ends.append((cells[0] / 64, (cells[-1] + 1) / 64))
        (low_a, high_a), (low_b, high_b) = ends
        assert own.interval(0.05, (0.5, 1.0)) == pytest.approx((low_b - high_a, high_b - low_a))


def test_the_chance_of_missing_a_difference_of_quantiles() -> None:
    """Two one-sided normal scores are beyond the radius with half of alpha, a quarter of the time both count; the twin
    is the radius of one score, which is too small."""
    for alpha in (0.3, 0.05, 1e-6):
        square = _radius(alpha) ** 2
        assert chi2.sf(square, 1) + chi2.sf(square, 2) / 2 == pytest.approx(alpha, rel=1e-9)
    scores = np.maximum(np.random.default_rng(1).normal(size=(2, 1_000_000)), 0)
    beyond = np.hypot(*scores)
    low, high = binom.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], 1_000_000, 0.025)
    assert low <= np.sum(beyond > _radius(0.05)) <= high
    assert np.sum(beyond > norm.isf(0.025)) > high


def test_quantiles_that_are_sure_or_unknown() -> None:
    """Everybody has one value: the cells are those of it, and no p-value is below one; a group without people says
    nothing."""
    results = _quantiles([3] * 4000, ["s", "t"] * 2000, low=0, high=9, whole=True)
    table = results.compare("g").set_index(["quantity", "a", "b"])
    row = table.loc[("median", "s", "t")]
    assert (row["difference"], row["low"], row["high"], row["p_value"]) == (0.0, 0.0, 0.0, 1.0)
    assert np.isnan(table.loc[("median", "s", "u")]["low"])
    assert len(table) == 15


# --- before collecting


def test_sample_sizes_of_the_specification() -> None:
    """80 % power at 5 %: a mean on [-1, 1] that differs by 0.05 takes 104,700, 26,900, 6,550 and 1,380 people an arm at
    epsilon 0.5, 1, 2 and 4, noise alone; a share of 0.3 that differs by 0.02 44,400 at epsilon 1."""
    for epsilon, people in ((0.5, 104_700), (1.0, 26_900), (2.0, 6_550), (4.0, 1_380)):
        survey = nz.Survey([nz.Number("x", -1, 1)], epsilon=epsilon, groups={"arm": ["a", "b"]}, mechanism="hybrid")
        table = survey.plan(20_000).compare("arm", {"x": 0.05}, spread={"x": 0.0})
        assert table["users"].iloc[0] / 2 == pytest.approx(people, rel=0.01)
    survey = nz.Survey([YES], epsilon=1.0, groups={"arm": ["a", "b"]})
    table = survey.plan(20_000).compare("arm", {"c": 0.02}, spread={"c": math.sqrt(0.21)})
    assert table["users"].iloc[0] / 2 == pytest.approx(44_400, rel=0.01)


@pytest.mark.long
def test_power_is_what_is_seen() -> None:
    """At the planned size the z test finds the difference as often as planned: 400 experiments."""
    survey = nz.Survey([YES], epsilon=2.0, groups={"arm": ["a", "b"]})
    planned = survey.plan(8000).compare("arm", {"c": 0.06}, spread={"c": math.sqrt(0.33 * 0.67)}).iloc[0]
    rng = np.random.default_rng(3)
    seen = 0
    for _ in range(400):
        cells = np.repeat([0, 1], 4000).astype(np.uint16)
        codes = (rng.random(8000) >= np.where(cells == 0, 0.3, 0.36)).astype(np.int64)
        rows = survey.privatize_coded({"c": codes}, rng=rng)
        from noisette.survey.results import SurveyAggregate

        results = SurveyAggregate(survey, survey.layout.by_cell(rows, cells)).results()
        seen += bool(results.compare("arm", correct="none")["p_value"].iloc[0] < 0.05)
    low, high = binom.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], 400, planned["power"])
    assert low <= seen <= high
    assert not low <= 400 * 0.05 <= high


@pytest.mark.parametrize("name", ["alpha", "power"])
def test_a_level_and_a_power_are_chances(name: str) -> None:
    plan = nz.Survey([nz.Number("x", 0, 1)], epsilon=1.0, groups={"arm": ["a", "b"]}).plan(100)
    for wrong in (0, -0.1, 1, 1.5, 2, math.nan):
        with pytest.raises(ValueError, match=rf"{name}={wrong!r} in \(0, 1\)"):
            plan.compare("arm", 0.5, **{name: wrong})
    assert len(plan.compare("arm", 0.5, **{name: 0.999})) > 0


# --- many tests and many looks


def test_benjamini_hochberg_against_its_definition() -> None:
    chances = np.asarray([0.01, np.nan, 0.02, 0.9, 0.03])
    adjusted = benjamini_hochberg(chances)
    assert adjusted[[0, 2, 4, 3]] == pytest.approx([0.04, 0.04, 0.04, 0.9])
    assert np.isnan(adjusted[1])


def test_boundaries_are_those_of_tables() -> None:
    """O'Brien and Fleming's spending at five equal looks and 0.05, two-sided: 4.88, 3.36, 2.68, 2.29, 2.03 (Lan and
    DeMets, as in the package gsDesign); one look is a plain test."""
    assert boundaries((1.0,), 0.05)[0] == pytest.approx(norm.isf(0.025), abs=1e-6)
    found = boundaries((0.2, 0.4, 0.6, 0.8, 1.0), 0.05)
    assert found == pytest.approx((4.877, 3.357, 2.680, 2.290, 2.031), abs=0.005)


@pytest.mark.long
def test_thirty_looks_alarm_as_often_as_one() -> None:
    """Brownian motion looked at thirty times crosses the boundaries in 5 % of 40,000 walks, and 1.96 in far more."""
    times = tuple((np.arange(30) + 1) / 30)
    limits = np.asarray(boundaries(times, 0.05))
    steps = np.random.default_rng(2).normal(size=(40_000, 30))
    scores = np.abs(np.cumsum(steps, axis=1)) / np.sqrt(np.arange(30) + 1)
    crossed = int((scores > limits).any(axis=1).sum())
    low, high = binom.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], 40_000, 0.05)
    assert low < crossed < high
    assert (scores > 1.96).any(axis=1).mean() > 0.2
    assert spent(1.0, 0.05) == pytest.approx(0.05)
    chances = repeated_p_value(np.asarray([limits[-1], 0.0, 8.0]), times)
    assert chances[0] == pytest.approx(0.05, rel=0.02)
    assert chances[1] > 0.9
    assert chances[2] < 1e-7


def test_looks_are_checked_and_widen_intervals() -> None:
    survey = nz.Survey([YES], epsilon=2.0, groups={"arm": ["a", "b"]})
    people = {"c": ["yes", "no"] * 500, "arm": ["a"] * 500 + ["b"] * 500}
    results = survey.estimate(survey.privatize(people, rng=3))
    once, often = results.compare("arm"), results.compare("arm", looks=[0.1, 0.2, 0.5])
    assert np.all(often["high"] - often["low"] > once["high"] - once["low"])
    assert np.all(often["p_value"] >= once["p_value"])
    assert "at all 3 looks" in often.attrs["note"]
    for bad in ([], [0.5, 0.2], [0.0, 1.0], [0.5, 1.5]):
        with pytest.raises(ValueError, match="looks"):
            results.compare("arm", looks=bad)
    assert float(ndtri(0.975)) < 2
