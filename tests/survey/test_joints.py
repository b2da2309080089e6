"""Answers asked together and optional answers: against independent formulas, simulated collections, and every door."""

from __future__ import annotations

import json
import math
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from scipy.special import ndtri
from scipy.stats import binom

import noisette as nz
from noisette.cli import verbs
from noisette.collector.results.estimates import Query, estimates
from noisette.mechanisms.categorical.grr import GeneralizedRandomizedResponse
from noisette.mechanisms.categorical.subset import SubsetSelection
from noisette.survey.campaigns import Campaign
from noisette.survey.coding.joints import signs
from noisette.survey.estimation.distributions import Shapes
from noisette.survey.estimation.ratios import CellShares, CorrelationEstimate, fieller
from noisette.survey.reports import SurveyReports

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "intervals.py"
coverage = SimpleNamespace(**runpy.run_path(str(SCRIPT)))
FALSE_ALARM = 1e-6
RUNS = 60
DIET, SITE = nz.Choice("diet", ["none", "vegan", "halal"]), nz.Choice("site", ["home", "work"])
AGE, HOURS = nz.Number("age", 0, 100), nz.Number("hours", 0, 80)


def _choices(size: int, name: str) -> nz.Choice:
    return nz.Choice(name, [f"{name}{place}" for place in range(size)])


# --- the numbers of the specification


@pytest.mark.parametrize(("rows", "columns", "variance"), [(2, 2, 1.60), (3, 4, 2.93), (10, 10, 3.59)])
def test_the_variance_of_a_cell_of_two_choices(rows: int, columns: int, variance: float) -> None:
    """The specification's numbers are those of an empty cell; the plan's are of even shares, and of new people."""
    survey = nz.Survey([_choices(rows, "a"), _choices(columns, "b")], epsilon=1.0, joint=[("a", "b")])
    error = dict(zip(survey.quantities, survey.predict(10_000), strict=True))["a × b: a0, b0"]
    own, empty = survey.sections[0].mechanism.moments(0).variance[:2]
    assert empty == pytest.approx(variance, abs=0.01)
    share = 1 / (rows * columns)
    assert error**2 * 10_000 == pytest.approx(share * own + (1 - share) * empty + share * (1 - share))


@pytest.mark.parametrize(
    ("labels", "variances"), [(2, (22.1, 5.3, 2.3)), (4, (103, 20.3, 5.3)), (10, (701, 139, 18.9))]
)
def test_the_variance_of_a_mean_within_a_choice(labels: int, variances: tuple[float, ...]) -> None:
    for epsilon, variance in zip((1.0, 2.0, 4.0), variances, strict=True):
        survey = nz.Survey([_choices(labels, "c"), nz.Number("x", -1, 1)], epsilon=epsilon, joint=[("c", "x")])
        error = survey.predict(10_000)[-1]
        assert error**2 * 10_000 == pytest.approx(variance, rel=0.02)


@pytest.mark.parametrize(
    ("epsilon", "variances"), [(1.0, (18.3, 8.43, 6.43)), (2.0, (4.78, 2.56, 2.06)), (4.0, (2.27, 1.38, 1.16))]
)
def test_the_variance_of_a_mean_among_those_who_answered(epsilon: float, variances: tuple[float, ...]) -> None:
    survey = nz.Survey([nz.Number("x", -1, 1, optional=True)], epsilon=epsilon)
    mechanism, item = survey.sections[0].mechanism, survey.items[0]
    keep, other = mechanism.p_own, mechanism.p_other
    for rate, variance in zip((0.5, 0.8, 0.95), variances, strict=True):
        shares = np.asarray([rate / 2, rate / 2, 1 - rate])
        total = np.rint(1e9 * (other + (keep - other) * shares)).astype(np.int64)
        mean, answered = item.read(mechanism, np.stack([np.full(3, 10**9), total, total]), None)
        assert float(mean.std_error[0]) ** 2 * 1e9 == pytest.approx(variance, rel=0.005)
        if epsilon == 1.0 and rate == 0.8:
            seen = other + (keep - other) * (1 - rate)
            assert float(answered.std_error[0]) ** 2 * 1e9 == pytest.approx(seen * (1 - seen) / (keep - other) ** 2)
            assert seen * (1 - seen) / (keep - other) ** 2 == pytest.approx(1.54, abs=0.01)


def test_the_covariance_of_two_numbers_at_worst() -> None:
    """kappa^2 = ((E + 3) / (E - 1))^2 for numbers in the middle of their ranges: 11.07 at epsilon 1."""
    survey = nz.Survey([nz.Number("x", -1, 1), nz.Number("y", -1, 1)], epsilon=1.0, joint=[("x", "y")])
    (item,), mechanism = survey.items, survey.sections[0].mechanism.inner_mechanisms[0]
    cells = CellShares.of(mechanism, np.tile([[10**8], [25 * 10**6], [25 * 10**6]], (1, 4)))
    *_, joint = item._told(cells, np.ones(2), np.zeros(2), 10**8)  # type: ignore[attr-defined]
    assert float(joint.std_error[1]) ** 2 * 1e8 == pytest.approx(11.07, abs=0.01)


# --- how cells vary together, against an independent computation


@pytest.mark.parametrize("build", [GeneralizedRandomizedResponse, SubsetSelection])
def test_covariances_are_those_of_the_reports(build: Any) -> None:
    """Shares of 12 cells from 40,000 reports: the covariance matrix of what single reports estimate is computed from
    the reports themselves; the formula, which sees counts alone, agrees, and one of independent cells does not."""
    rng = np.random.default_rng(3)
    mechanism = build(epsilon=1.5, domain=nz.Categorical(12))
    codes = rng.choice(12, 40_000, p=np.arange(1, 13) / 78)
    reports = mechanism.privatize(codes, rng=rng)
    kept = np.zeros((40_000, 12))
    np.put_along_axis(kept, np.asarray(reports).reshape(40_000, -1), 1.0, axis=1)
    scores = (kept - mechanism.p_other) / (mechanism.p_own - mechanism.p_other)
    made = mechanism.aggregate(reports)
    cells = CellShares.of(mechanism, np.stack([made.count, made.total, made.squares]))
    weights = rng.normal(size=(5, 12))
    other = rng.normal(size=(5, 12))
    truth = np.einsum("qi,ij,qj->q", weights, np.cov(scores.T) / 40_000, other)
    found = cells.covariance(weights, other)
    limit = 6 * np.sqrt(
        np.var((scores - scores.mean(0)) @ weights.T * ((scores - scores.mean(0)) @ other.T), axis=0) / 40_000**3
    )
    assert np.all(np.abs(found - truth) < limit)
    wrong = np.einsum("qi,i,qi->q", weights, cells.variance, other)
    assert np.any(np.abs(wrong - truth) > limit)


def test_rounding_keeps_the_average() -> None:
    rng = np.random.default_rng(1)
    domain = nz.Interval(10, 20)
    for value, share in ((10.0, 0.0), (12.5, 0.25), (20.0, 1.0)):
        ups = int(signs(np.full(100_000, value), domain, rng).sum())
        low, high = binom.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], 100_000, share)
        assert low <= ups <= high


def test_fieller_is_the_set_that_a_test_does_not_reject() -> None:
    top, bottom, spread = 1.0, 0.5, (0.01, 0.002, 0.004)
    low, high = fieller(top, bottom, spread, 0.95)
    means = np.linspace(-10, 10, 200_001)
    kept = np.abs(top - means * bottom) <= ndtri(0.975) * np.sqrt(
        spread[0] - 2 * means * spread[1] + means**2 * spread[2]
    )
    assert float(low) == pytest.approx(means[kept].min(), abs=1e-3)
    assert float(high) == pytest.approx(means[kept].max(), abs=1e-3)
    low, high = fieller(1.0, 0.1, (0.01, 0.0, 0.01), 0.95)
    assert (low, high) == (-math.inf, math.inf)


def test_a_correlation_s_interval_is_the_set_that_a_test_does_not_reject() -> None:
    """Against a general optimiser over the variances, at the ends and beside them; with variances that are known it is
    the interval of the covariance, scaled."""
    from scipy.optimize import minimize

    moments = np.asarray([0.1, 0.2, 0.15])
    spread = np.asarray([[0.0016, 0.0002, 0.0001], [0.0002, 0.0025, 0.0003], [0.0001, 0.0003, 0.0009]])

    def estimate(matrix: Any) -> CorrelationEstimate:
        ends = np.asarray([1.0, 1.0])
        return CorrelationEstimate(ends, ends, np.ones(2), -ends, ends, moments=moments, spread=matrix)

    def distance(r: float) -> float:
        def squares(logs: Any) -> float:
            s, t = np.exp(logs)
            gap = np.asarray([r * math.sqrt(s * t), s, t]) - moments
            return float(gap @ np.linalg.solve(spread, gap))

        return float(minimize(squares, np.log(moments[1:]), method="Nelder-Mead").fun)

    low, high = (float(end[0]) for end in estimate(spread).interval(0.95))
    for end, outward in ((low, -0.01), (high, 0.01)):
        assert distance(end) <= ndtri(0.975) ** 2 * 1.01
        assert abs(end) == 1 or distance(end + outward) > ndtri(0.975) ** 2
    known = estimate(np.diag([0.0016, 1e-14, 1e-14])).interval(0.95)
    scaled = (0.1 + ndtri(0.975) * np.asarray([-0.04, 0.04])) / math.sqrt(0.2 * 0.15)
    assert np.ravel([end[0] for end in known]) == pytest.approx(np.clip(scaled, -1, 1), abs=0.006)


# --- coverage


@pytest.mark.long
@pytest.mark.parametrize("name", coverage.STUDIES)
def test_intervals_hold_as_often_as_they_say(name: str) -> None:
    """60 collections here, which notice what holds in 70 % of them; benchmarks/intervals.json has 2,000."""
    study = coverage.STUDIES[name]()
    for row in coverage.run(study, RUNS, seed=5):
        assert row["coverage"] * RUNS >= binom.ppf(FALSE_ALARM, RUNS, coverage.LEVEL), row


@pytest.mark.long
def test_a_correlation_of_numbers_that_hardly_vary() -> None:
    """100 collections, in many of which no value is told: the interval holds as often as it says, and some of those
    that would be the whole range by the delta method leave something out."""
    survey = nz.Survey([nz.Number("x", 0, 1), nz.Number("y", 0, 1)], epsilon=1.0, joint=[("x", "y")])
    rng = np.random.default_rng(1)
    held, untold, shorter = 0, 0, 0
    for _ in range(100):
        first, second = rng.beta(4, 4, (2, 3000))
        people = {"x": first, "y": np.where(rng.random(3000) < 0.8, first, second)}
        told: Any = list(survey.layout.tally(survey.privatize_coded(people, rng=rng)).by_question().values())[-1]
        low, high = (float(end[0]) for end in told.interval(0.95))
        held += low <= 0.8 <= high
        untold += math.isnan(told.value[0])
        shorter += math.isnan(told.value[0]) and high - low < 1.9
    least, most = binom.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], 100, 0.95)
    assert least <= held <= most
    assert untold > 20
    assert shorter > untold / 5


def test_the_committed_coverage_is_what_is_said() -> None:
    """At least 94 % of 2,000 collections, and with thousands of people at most 96 %.

    Intervals hold more often where there are few people, or hardly any in a group, and those of quantiles. That no
    text is shown which nobody has is promised in 95 % at least.
    """
    told = json.loads(SCRIPT.with_suffix(".json").read_text(encoding="utf-8"))
    assert set(told) == set(coverage.STUDIES)
    for name, study in told.items():
        assert study["runs"] >= 2000
        careful = "rare" in name or "answer" in name or "quantile" in name or study["people"] < 1000
        for row in study["rows"]:
            assert row["coverage"] >= 0.94, (name, row)
            assert careful or row["quantity"] == "no false text" or row["coverage"] <= 0.96, (name, row)


# --- from the table to every door


@pytest.fixture(scope="module")
def survey() -> nz.Survey:
    questions = [
        DIET,
        SITE,
        AGE,
        HOURS,
        nz.Number("income", 0, 9, optional=True),
        nz.Choice("mood", ["+", "-"], optional=True),
    ]
    return nz.Survey(questions, epsilon=6.0, joint=[("diet", "site"), ("age", "diet"), ("age", "hours")])


def _people(count: int, seed: int = 1) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    diet = rng.choice(3, count, p=[0.5, 0.3, 0.2])
    age = np.asarray([10.0, 50.0, 90.0])[diet] + rng.uniform(-10, 10, count)
    return pd.DataFrame(
        {
            "diet": np.asarray(DIET.labels)[diet],
            "site": np.where(rng.random(count) < np.asarray([0.2, 0.5, 0.8])[diet], "home", "work"),
            "age": age,
            "hours": 0.8 * (100 - age) * (rng.random(count) < 0.7),
            "income": np.where(rng.random(count) < 0.6, rng.choice([1.0, 8.0], count), np.nan),
            "mood": rng.choice(["+", "-", None], count, p=[0.5, 0.25, 0.25]),
        }
    )


@pytest.mark.long
def test_results_are_near_the_truth(survey: nz.Survey, tmp_path: Path) -> None:
    people = _people(60_000)
    reports = survey.privatize(people, rng=3)
    reports.save(tmp_path / "r.parquet")
    assert SurveyReports.read(tmp_path / "r.parquet") == reports
    results = survey.estimate(tmp_path / "r.parquet")
    limit = -ndtri(FALSE_ALARM / 100)
    truth = pd.crosstab(people["diet"], people["site"], normalize=True)
    table = results.crosstab("diet", "site")
    assert list(table.index) == list(DIET.labels)
    assert np.all(np.abs(table - truth.loc[table.index]) < limit * results.crosstab("diet", "site", "std_error"))
    assert results.crosstab("site", "diet").equals(table.T)
    assert np.all(results.crosstab("diet", "site", "low") < table)
    within = results.by("diet").table().set_index("group")
    for label, mean in people.groupby("diet")["age"].mean().items():
        row = within.loc[f"diet={label}"]
        assert abs(row["value"] - mean) < limit * row["std_error"]
    found = results.joint("hours", "age").estimate
    assert abs(found.value[0] - people["age"].corr(people["hours"])) < limit * found.std_error[0]
    assert abs(found.value[1] - people["age"].cov(people["hours"])) < limit * found.std_error[1]
    assert abs(results["income"].mean - people["income"].mean()) < limit * results["income"].std_error
    assert abs(results["income"].response_rate - 0.6) < limit * results["income answered"].std_error
    assert results["age"].response_rate == 1.0
    assert abs(results["mood"].shares["+"] - 2 / 3) < limit * results["mood"].std_error["+"]
    assert set(survey.plan(1000).table()["question"]) == set(results.table()["question"])
    margins = results["diet"].shares
    assert np.allclose(margins, table.sum(axis=1))
    with pytest.raises(KeyError, match="did not ask 'site' and 'age' together; it asked diet × site"):
        results.crosstab("site", "age")
    with pytest.raises(ValueError, match="not both choices"):
        results.crosstab("age", "diet")
    with pytest.raises(ValueError, match="share, std_error, low or high"):
        results.crosstab("diet", "site", "median")


def test_a_pair_has_errors_and_intervals_by_name() -> None:
    survey = nz.Survey([DIET, AGE, HOURS, SITE], epsilon=6.0, joint=[("diet", "age"), ("site", "hours")])
    people = {"diet": ["none"] * 50, "age": [30] * 50, "hours": [8] * 50, "site": ["home"] * 50}
    results = survey.estimate(survey.privatize(people, rng=1))
    for name in ("diet × age", "site × hours"):
        answer, rows = results[name], results[name].table().set_index("quantity")
        assert answer.std_error.to_dict() == rows["std_error"].to_dict()
        assert answer.interval().to_dict() == rows[["low", "high"]].to_dict()
        with pytest.raises(AttributeError, match=r"is no choice: take a table\(\)"):
            _ = answer.shares


def test_a_survey_with_pairs_is_written_and_read(survey: nz.Survey, tmp_path: Path) -> None:
    survey.save(tmp_path / "s.yaml")
    assert nz.Survey.read(tmp_path / "s.yaml") == survey
    assert nz.Survey.from_spec(json.loads(json.dumps(survey.spec()))) == survey
    one = survey.answer({"diet": "vegan", "site": "home", "age": 3, "hours": 4, "mood": None}, rng=3)
    assert survey.decode([json.loads(json.dumps(one))]).shape == (1,)
    with pytest.raises(ValueError, match="Expected a value for each of"):
        survey.answer({"diet": "vegan", "site": "home", "hours": 4})
    with pytest.raises(TypeError, match="age=None"):
        survey.answer({"diet": "vegan", "site": "home", "age": None, "hours": 4})


def test_missing_answers_are_missing_in_every_form(tmp_path: Path) -> None:
    survey = nz.Survey([nz.Number("x", 0, 1, optional=True), nz.Choice("c", ["a", "b"], optional=True)], epsilon=2.0)
    people = pd.DataFrame({"x": [0.5, np.nan, 1.0, np.nan], "c": ["a", None, "b", "a"]})
    people.to_csv(tmp_path / "p.csv", index=False)
    made = survey.privatize(people, rng=3)
    for form in (
        people.astype({"c": "category"}),
        people.to_dict("list"),
        people.astype(object).where(people.notna(), None).to_dict("records"),
    ):
        assert survey.privatize(form, rng=3) == made
    survey.privatize_file(tmp_path / "p.csv", tmp_path / "r.parquet", rng=3)
    assert SurveyReports.read(tmp_path / "r.parquet") == made
    assert len(survey.privatize({"x": [None, None], "c": [None, None]}, rng=3)) == 2
    for bad, message in (({"x": 2.0}, "2 is outside"), ({"x": math.inf}, "finite"), ({"c": "z"}, "'z' is not among")):
        rows: list[dict[str, Any]] = [{"x": None, "c": None}, {"x": 0.5, "c": "a"} | bad]
        with pytest.raises(ValueError, match=f"row 2.*{message}"):
            survey.privatize(rows)


def test_whether_somebody_answered_changes_nothing_that_is_seen() -> None:
    """A report of somebody who does not answer is one that every other answer may give as well."""
    survey = nz.Survey([nz.Number("x", 0, 1, optional=True)], epsilon=1.0)
    law = survey.sections[0].mechanism
    assert law.guarantee.epsilon <= 1.0
    chances = np.exp([[float(law.log_prob(report, value)) for report in range(3)] for value in range(3)])
    assert chances.min() > 0
    assert np.log(chances.max(axis=0) / chances.min(axis=0)).max() <= 1.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"joint": [("diet", "diet")]}, "two questions, and once"),
        ({"joint": [("diet", "site"), ("site", "diet")]}, "two questions, and once"),
        ({"joint": [("diet", "pizza")]}, "names of two questions, of diet, site"),
        ({"joint": ["diet"]}, "names of two questions"),
        ({"joint": "diet"}, "a list of pairs"),
        ({"joint": [("diet", "spread")]}, "'spread' is not"),
        ({"joint": [("diet", "maybe")]}, "'maybe' is not"),
        ({"joint": [("diet", "week")]}, "'week' is not"),
        ({"joint": [("wide", "wider")]}, "at most 4,096 pairs"),
        ({"joint": [("diet", "site")], "mechanism": "olh"}, "another mechanism than 'olh'"),
    ],
)
def test_wrong_pairs_are_named(changes: dict[str, Any], message: str) -> None:
    questions = [
        DIET,
        SITE,
        nz.Number("spread", 0, 1, want="distribution"),
        nz.Number("maybe", 0, 1, optional=True),
        nz.Vector("week", 7, 0, 24),
        _choices(80, "wide"),
        _choices(70, "wider"),
    ]
    with pytest.raises((TypeError, ValueError), match=message):
        nz.Survey(questions[:2] if "olh" in changes.values() else questions, epsilon=1.0, **changes)


def test_optional_is_true_or_false() -> None:
    for made in (lambda: nz.Number("x", 0, 1, optional="yes"), lambda: nz.Choice("c", ["a", "b"], optional=1)):  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="to be true or false"):
            made()
    with pytest.raises(ValueError, match="which is optional"):
        nz.Number("x", 0, 1, want="distribution", optional=True)
    with pytest.raises(ValueError, match="numbers, choices and texts may be optional"):
        nz.Survey.from_dict(
            {"epsilon": 1, "questions": [{"name": "v", "vector": 3, "range": [0, 1], "optional": True}]}
        )


def test_breakdown_is_an_old_word_for_pairs() -> None:
    with pytest.warns(DeprecationWarning, match=r"is now joint=\[\['diet', 'age'\], \['diet', 'hours'\]\]"):
        old = nz.Survey([DIET, AGE, HOURS], epsilon=2.0, breakdown=["diet"])
    assert old == nz.Survey([DIET, AGE, HOURS], epsilon=2.0, joint=[("diet", "age"), ("diet", "hours")])


def test_a_pair_costs_less_than_a_split() -> None:
    """The mean within a choice: two halves of the budget have at least twice the variance (spec: 295 against 22.1)."""
    joint = nz.Survey([nz.Choice("c", ["a", "b"]), nz.Number("x", -1, 1)], epsilon=1.0, joint=[("c", "x")]).predict(1)
    half = math.exp(0.5)
    keep, number = half / (half + 1), (half + 1) / (half - 1)
    gap = 2 * keep - 1
    # of w = ([code] - q) / (p - q) and the number's report y: E[w y] / share, with both independent noise
    split = (number**2 * (0.5 * keep + 0.5 * (1 - keep) - (1 - keep) + (1 - keep) ** 2) / gap**2) / 0.25
    assert split / joint[-1] ** 2 > 10


@pytest.mark.slow
def test_the_collector_tells_pairs_and_rates(survey: nz.Survey) -> None:
    campaign = Campaign.from_dict(survey.terms() | {"id": "c", "users": 1000, "groups": {}})
    assert Campaign.from_wire(json.loads(json.dumps(campaign.to_wire()))).to_wire() == campaign.to_wire()
    people = {one.name: one.column(_columns(_people(20_000)), clip=False) for one in survey.questions}
    sums = campaign.layout.tally(campaign.privatize_coded(people, rng=4))
    told = estimates(campaign, campaign.layout, {"once": {0: sums}}, Query("once"), Shapes())
    names = [row["name"] for row in told["dimensions"]]
    assert names == list(campaign.quantities)
    assert {"income answered", "diet × site: none, home", "age × hours: correlation"} <= set(names)
    (group,) = told["groups"]
    assert (group["name"], group["private"]) == ("diet", True)
    assert [row["value"] for row in group["values"]] == list(DIET.labels)
    for row, mean in zip(group["values"], (10, 50, 90), strict=True):
        (age,) = row["dimensions"]
        assert age["low"] < mean < age["high"] or abs(age["value"] - mean) < 6 * age["std_error"]
    empty = estimates(campaign, campaign.layout, {}, Query("once"), Shapes())
    assert [one["dimensions"][0]["value"] for one in empty["groups"][0]["values"]] == [None] * 3
    kinds = {one["name"]: one["kind"] for one in told["attributes"]}
    assert (kinds["diet × site"], kinds["income answered"], kinds["diet"]) == ("joint", "rate", "category")


def _columns(frame: pd.DataFrame) -> Any:
    from noisette.survey.coding.columns import Columns

    return Columns({name: frame[name] for name in frame}, len(frame))


@pytest.mark.long
def test_pairs_on_the_command_line_and_in_pictures(survey: nz.Survey, tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    survey.save(tmp_path / "s.yaml")
    _people(3000).to_csv(tmp_path / "p.csv", index=False)
    run = CliRunner()
    plan = run.invoke(verbs, ["plan", str(tmp_path / "s.yaml"), "--users", "3000", "--json"])
    assert plan.exit_code == 0, plan.output
    assert "age × hours" in {row["question"] for row in json.loads(plan.output)["rows"]}
    made = run.invoke(
        verbs,
        [
            "privatize",
            str(tmp_path / "p.csv"),
            "--survey",
            str(tmp_path / "s.yaml"),
            "-o",
            str(tmp_path / "r.parquet"),
            "--json",
        ],
    )
    assert made.exit_code == 0, made.output
    found = run.invoke(verbs, ["estimate", str(tmp_path / "r.parquet"), "--json"])
    assert found.exit_code == 0, found.output
    assert "diet × site: none, home" in {row["name"] for row in json.loads(found.output)["dimensions"]}
    figure = survey.estimate(tmp_path / "r.parquet").plot()
    assert "diet × site" in [one.text for one in figure.layout.annotations]
    assert survey.estimate(tmp_path / "r.parquet").joint("diet", "site").plot().data
