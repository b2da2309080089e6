"""Weights: against independent computations, and by collections from people who are no fair sample."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

import noisette as nz
from noisette.survey.estimation.weighting import raked
from noisette.survey.results import SurveyAggregate

FALSE_ALARM = 1e-6
GROUPS = {"region": ["north", "south"], "sex": ["f", "m"]}


def test_raking_meets_all_margins_and_keeps_odds() -> None:
    counts = np.asarray([[10.0, 40.0], [30.0, 20.0]])
    found = raked(counts, [(0, np.asarray([0.7, 0.3])), (1, np.asarray([0.5, 0.5]))])
    assert found.sum(axis=1) == pytest.approx([0.7, 0.3])
    assert found.sum(axis=0) == pytest.approx([0.5, 0.5])
    odds = [table[0, 0] * table[1, 1] / (table[0, 1] * table[1, 0]) for table in (found, counts)]
    assert odds[0] == pytest.approx(odds[1])
    with pytest.raises(ValueError, match="somebody in every group"):
        raked(np.asarray([[0.0, 0.0], [3.0, 4.0]]), [(0, np.asarray([0.5, 0.5]))])


def test_one_margin_is_post_stratification() -> None:
    """The weighted mean and error of two groups, by hand."""
    survey = nz.Survey([nz.Number("x", 0, 1), nz.Choice("c", ["a", "b"])], epsilon=4.0, groups={"g": ["s", "t"]})
    rng = np.random.default_rng(2)
    people = {"x": rng.random(3000), "c": rng.choice(["a", "b"], 3000), "g": ["s"] * 500 + ["t"] * 2500}
    results = survey.estimate(survey.privatize(people, rng=3))
    found, by = results.weighted({"g": {"s": 0.6, "t": 0.4}}), results.by("g")
    for name in ("x", "c"):
        one, two = by["s"][name].estimate, by["t"][name].estimate
        assert found[name].estimate.value == pytest.approx(0.6 * one.value + 0.4 * two.value)
        assert found[name].estimate.std_error == pytest.approx(
            np.sqrt((0.6 * one.std_error) ** 2 + (0.4 * two.std_error) ** 2)
        )
    effect = found.design_effect()
    assert effect["design_effect"].between(1.5, 4).all()  # Kish: 3000 (0.36 / 500 + 0.16 / 2500) = 2.35
    assert list(found.table()["group"].unique()) == ["all"]
    note = "Intervals of 90% hold for each quantity by itself. Weighted to known shares of g."
    assert found.table(level=0.9).attrs["note"] == note
    assert "Weighted to known shares of g." in found._repr_html_()  # a notebook shows it
    with pytest.raises(ValueError, match="whole population"):
        found.by("g")


@pytest.mark.long
@pytest.mark.parametrize("groups", [("region",), ("region", "sex")])
def test_weighted_intervals_hold_and_others_do_not(groups: tuple[str, ...]) -> None:
    """Too many southerners and women answer. 40 collections: weighted intervals of a mean, of shares among those who
    answered, and of a median's share hold the population's values as often as they say; those without weights do not.
    """
    survey = nz.Survey(
        [nz.Number("x", 0, 1), nz.Choice("c", ["a", "b"], optional=True), nz.Number("q", 0, 1, want="quantiles")],
        epsilon=6.0,
        groups=GROUPS,
    )
    population = np.asarray([[0.3, 0.3], [0.2, 0.2]])
    sampled = population * np.asarray([[1.0, 1.0], [3.0, 3.0]] if groups == ("region",) else [[2.0, 0.5], [4.0, 1.5]])
    sampled = (sampled / sampled.sum()).ravel()
    mean = np.asarray([[0.2, 0.3], [0.6, 0.9]]).ravel()
    rng = np.random.default_rng(7)
    names = list(GROUPS)
    margins = {
        name: dict(zip(GROUPS[name], population.sum(axis=1 - names.index(name)), strict=True)) for name in groups
    }
    held, plain = np.zeros(3), 0
    for _ in range(40):
        cells = rng.choice(4, 4000, p=sampled).astype(np.uint16)
        x = (rng.random(4000) < mean[cells]).astype(np.float64)
        answered = rng.random(4000) < 0.8
        people = {"x": x, "c": np.where(answered, x.astype(np.int64), 2), "q": 0.5 * x + 0.25}
        rows = survey.privatize_coded(people, rng=rng)
        results = SurveyAggregate(survey, survey.layout.by_cell(rows, cells)).results()
        found = results.weighted(margins)
        truth = float(population.ravel() @ mean)
        low, high = found["x"].interval()
        held[0] += low <= truth <= high
        ends = found["c"].interval()
        held[1] += ends["low"].iloc[1] <= truth <= ends["high"].iloc[1]
        _, low, high = found["q"].share_between(0.5, 1.0)
        held[2] += low <= truth <= high
        low, high = results["x"].interval()
        plain += bool(low <= truth <= high)
    assert np.all(held >= binom.ppf(FALSE_ALARM, 40, 0.95))
    assert plain < 20


@pytest.mark.long
def test_a_private_choice_of_known_shares() -> None:
    """Vegans answer more often. Their share in the population is known, who they are is private: 100 collections."""
    survey = nz.Survey(
        [nz.Choice("d", ["v", "o"]), nz.Number("x", 0, 1), nz.Choice("c", ["a", "b"])],
        epsilon=3.0,
        joint=[("d", "x"), ("d", "c")],
    )
    rng = np.random.default_rng(3)
    held = plain = shares = 0
    for _ in range(100):
        d = (rng.random(4000) >= 0.6).astype(np.int64)
        x = (rng.random(4000) < np.where(d == 0, 0.3, 0.7)).astype(np.float64)
        rows = survey.privatize_coded({"d": d, "x": x, "c": 1 - x.astype(np.int64)}, rng=rng)
        results = SurveyAggregate(survey, {0: survey.layout.tally(rows)}).results()
        found = results.weighted({"d": {"v": 0.1, "o": 0.9}})
        truth = 0.1 * 0.3 + 0.9 * 0.7
        low, high = found["x"].interval()
        held += bool(low <= truth <= high)
        ends = found["c"].interval().loc["a"]
        shares += bool(ends["low"] <= truth <= ends["high"])
        low, high = results["x"].interval()
        plain += bool(low <= truth <= high)
    low, high = binom.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], 100, 0.95)
    assert low <= held <= high
    assert low <= shares <= high
    assert plain < 10


@pytest.mark.parametrize(
    ("margins", "message"),
    [
        ({}, "known shares"),
        ({"region": {"north": 1.0}}, "a share for each value of 'region'"),
        ({"region": {"north": 0.9, "south": 0.3}}, "add up to 1"),
        ({"region": {"north": math.nan, "south": 0.5}}, "add up to 1, got .*nan"),
        ({"town": {"a": 1.0}}, "to be a public group"),
        ({"d": {"v": 0.5, "o": 0.5}, "region": {"north": 0.5, "south": 0.5}}, "'d' alone"),
    ],
)
def test_wrong_margins_are_named(margins: dict[str, dict[str, float]], message: str) -> None:
    survey = nz.Survey(
        [nz.Choice("d", ["v", "o"]), nz.Number("x", 0, 1)], epsilon=2.0, groups=GROUPS, joint=[("d", "x")]
    )
    people = {"d": ["v", "o"], "x": [0.1, 0.2], "region": ["north", "south"], "sex": ["f", "m"]}
    results = survey.estimate(survey.privatize(people, rng=3))
    with pytest.raises((TypeError, ValueError), match=message):
        results.weighted(margins)


def test_a_weighted_variance_or_correlation_has_no_interval_of_its_first_group() -> None:
    """Those of a mixture do not follow from its parts: no value, and the whole range."""
    asked = [nz.Number("v", 0, 2, want="variance"), nz.Number("x", 0, 1), nz.Number("y", 0, 1)]
    survey = nz.Survey(asked, epsilon=8.0, joint=[("x", "y")], groups={"g": ["s", "t"]})
    rng = np.random.default_rng(1)
    people = {"v": 2 * rng.random(900), "x": rng.random(900), "y": rng.random(900), "g": rng.choice(["s", "t"], 900)}
    table = survey.estimate(survey.privatize(people, rng=2)).weighted({"g": {"s": 0.3, "t": 0.7}}).table()
    for quantity, low, high in (("variance", 0.0, 1.0), ("correlation", -1.0, 1.0)):
        row = table[table["quantity"] == quantity].iloc[0]
        assert np.isnan(row["value"])
        assert (row["low"], row["high"]) == (low, high)


def test_texts_have_no_weighted_answer_and_it_is_said() -> None:
    survey = nz.Survey([nz.Text("word"), nz.Number("age", 0, 100)], epsilon=4.0, groups={"region": ["n", "s"]})
    people = {"word": ["yes"] * 40, "age": [30.0] * 40, "region": ["n", "s"] * 20}
    found = survey.estimate(survey.privatize(people, rng=3)).weighted({"region": {"n": 0.3, "s": 0.7}})
    assert list(found) == ["age"]
    with pytest.raises(KeyError, match=r"no weighted answer to 'word'.*without weights"):
        found["word"]
    with pytest.raises(KeyError, match="the questions are word, age"):
        found["else"]
