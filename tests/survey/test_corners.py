"""Corners of surveys: one report in a batch, one wrong name among good ones, ranges that are not one unit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from click.testing import CliRunner
from scipy.stats import chi2
from tests.survey.test_batches import PLAIN, ROWS, TOKENS

import noisette as nz
from noisette.cli import verbs
from noisette.survey.batches import MalformedBatch, pack, unpack
from noisette.survey.campaigns import Campaign
from noisette.survey.coding.joints import OptionalNumber, joint_item

DAILY: dict[str, Any] = {
    "id": "ages",
    "epsilon": 1.0,
    "users": 100,
    "attributes": [{"name": "age", "range": [0, 100]}],
    "answers": "tracked",
    "tokens": "drawn",
    "period": "day",
    "periods": 30,
}


def test_a_batch_holds_one_report_or_as_many_as_are_allowed() -> None:
    for count in (1, 2, 3):
        body = pack(PLAIN, "once", TOKENS[: 32 * count], ROWS[:count])
        assert len(unpack(PLAIN, body, most=3)) == len(unpack(PLAIN, body, most=count)) == count
        with pytest.raises(MalformedBatch, match=f"Expected 1 to {count - 1} reports"):
            unpack(PLAIN, body, most=count - 1)


@pytest.mark.slow
def test_what_a_tracked_campaign_needs() -> None:
    made = Campaign.from_dict(DAILY | {"begins": "2026-11-01"})
    assert (made.periods, made.begins) == (30, "2026-11-01")
    for wrong in ({"period": "once"}, {"tokens": "open"}, {"tokens": "blind"}):
        with pytest.raises(ValueError, match="answers='tracked' with a period of day"):
            Campaign.from_dict(DAILY | wrong)
    for wrong in (1, 0):
        with pytest.raises(ValueError, match="periods"):
            Campaign.from_dict(DAILY | {"periods": wrong})
    assert Campaign.from_dict(DAILY | {"periods": 2}).periods == 2
    for left in ("begins", "periods"):
        with pytest.raises(ValueError, match="only with answers='tracked'"):
            Campaign.from_dict(
                DAILY | {"answers": "fresh", "begins": "2026-11-01"} | {left: DAILY.get(left, "2026-11-01")}
            )


def test_a_campaign_of_another_law_is_not_answered() -> None:
    wire = PLAIN.to_wire()
    assert Campaign.from_wire(wire).law_sha256 == PLAIN.law_sha256
    with pytest.raises(ValueError, match="cannot be answered or read here"):
        Campaign.from_wire(wire | {"guarantee": wire["guarantee"] | {"law_sha256": "0" * 64}})
    older = {name: value for name, value in wire["guarantee"].items() if name != "law_sha256"}
    assert Campaign.from_wire(wire | {"guarantee": older}).id == PLAIN.id


def test_one_wrong_name_among_good_ones_breaks_nothing_down() -> None:
    asked = [nz.Choice("diet", ["a", "b"]), nz.Choice("town", ["n", "s"]), nz.Number("hours", 0, 8)]
    for names in (["diet", "hours"], ["diet", "nobody"], ["diet", "diet"], ["nobody", "town"]):
        with pytest.raises(ValueError, match="breakdown"):
            nz.Survey(asked, epsilon=2.0, breakdown=names)


@pytest.mark.parametrize(("first", "second"), [((0, 10), (0, 4)), ((-1, 1), (0, 200)), ((5, 5.5), (1, 2))])
def test_a_covariance_is_measured_in_the_product_of_both_units(first: Any, second: Any) -> None:
    """No covariance of numbers on two ranges is farther from zero than the product of half of each."""
    item = joint_item(nz.Number("a", *first), nz.Number("b", *second), set())
    told = item.questions[-1]
    limit = (first[1] - first[0]) / 2 * (second[1] - second[0]) / 2
    assert told.signals.tolist() == pytest.approx([1.0, limit])


def test_the_shares_that_a_number_is_planned_for_add_up() -> None:
    shares = OptionalNumber((nz.Number("a", 0, 1),), nz.Number("a", 0, 1)).shares
    assert shares.sum() == pytest.approx(1)
    assert shares[0] == shares[1] > shares[2] > 0


def test_one_number_of_a_row_that_is_not_finite_is_named() -> None:
    survey = nz.Survey([nz.Vector("v", 3, low=-1.0, high=1.0)], epsilon=1.0)
    rows = np.full((5, 3), 0.1)
    survey.privatize({"v": rows}, rng=1)
    for place in ((0, 0), (3, 2), (4, 1)):
        wrong = rows.copy()
        wrong[place] = np.nan
        with pytest.raises(ValueError, match=f"{place[0] + 1}.*finite"):
            survey.privatize({"v": wrong}, rng=1)


def test_as_many_options_as_there_are_may_be_chosen_where_nothing_is_said() -> None:
    entry = {"name": "devices", "options": ["phone", "tablet", "watch"]}
    (asked,) = nz.Survey.from_dict({"questions": [entry], "epsilon": 1.0}).questions
    assert asked.most == nz.Choices("devices", ["phone", "tablet", "watch"]).most == 3  # type: ignore[attr-defined]
    (asked,) = nz.Survey.from_dict({"questions": [entry | {"most": 2}], "epsilon": 1.0}).questions
    assert asked.most == 2  # type: ignore[attr-defined]


def test_a_budget_that_tells_nothing_is_refused() -> None:
    for epsilon in (1e-7, 1e-200, 5e-324):  # the square of the second is zero
        with pytest.raises(ValueError, match=">= 1e-06: below, no number of people tells anything"):
            nz.Survey([nz.Choice("c", ["a", "b"])], epsilon=epsilon)
    assert nz.Survey([nz.Choice("c", ["a", "b"])], epsilon=1e-6).epsilon == 1e-6


@pytest.mark.slow
def test_texts_are_found_at_a_budget_whose_exponential_is_infinite() -> None:
    survey = nz.Survey([nz.Text("t", 8)], epsilon=1000.0)
    found = survey.estimate(survey.privatize({"t": ["tea"] * 300}, rng=1))["t"].top()
    assert found["text"].tolist() == ["tea"]


@pytest.mark.slow
def test_a_plan_of_tracked_answers_is_that_of_a_period(tmp_path: Path) -> None:
    """Errors of a period's shares about all people, 300 times, within chi-square bounds of the plan at a false-alarm
    rate of 1e-6; those of a survey of everybody in every period are not."""
    asked = {"questions": [{"name": "c", "categories": ["a", "b", "d"]}], "epsilon": 4.0, "users": 6000}
    campaign = Campaign.from_dict({name: own for name, own in DAILY.items() if name != "attributes"} | asked)
    rng = np.random.default_rng(4)
    gaps = []
    for _ in range(300):
        codes = rng.integers(0, 3, 6000)
        own = rng.integers(0, 30, 6000) == 3
        (found,) = campaign.layout.tally(campaign.privatize_coded({"c": codes[own]}, rng=rng)).by_question().values()
        gaps.append(found.value - np.bincount(codes, minlength=3) / 6000)
    planned = campaign.predict() ** 2
    assert planned == pytest.approx([row.std_error**2 for row in campaign.plan().rows])
    ratio = float(np.mean(np.square(gaps)) / planned.mean())
    low, high = chi2.ppf([5e-7, 1 - 5e-7], 600) / 600  # shares add up to about one: two of three are free
    assert low < ratio < high
    assert float(np.mean(np.square(gaps)) / campaign.survey.predict(6000).mean() ** 2) > 20
    assert (campaign.users, campaign.wanted) == (6000, 200)
    path = tmp_path / "daily.yaml"
    path.write_text(yaml.safe_dump({name: own for name, own in DAILY.items() if name != "attributes"} | asked))
    told = CliRunner().invoke(verbs, ["plan", str(path), "--json"])
    rows = json.loads(told.output)["rows"]
    assert [row["std_error"] for row in rows] == pytest.approx(np.sqrt(planned).tolist())
    assert "one of 30" in CliRunner().invoke(verbs, ["plan", str(path), "--users", "3000"]).output
    assert (
        "plans no periods" in CliRunner().invoke(verbs, ["plan", str(path), "--html", str(tmp_path / "p.html")]).output
    )


@pytest.mark.slow
def test_dates_and_times_are_printed_as_such(tmp_path: Path) -> None:
    asked = [nz.Number("born", "1950-01-01", "2009-12-31", want="quantiles"), nz.Number("up", "05:00", "12:00")]
    survey = nz.Survey(asked, epsilon=8.0)
    survey.privatize({"born": ["1980-05-05"] * 400, "up": ["08:30"] * 400}, rng=1).save(tmp_path / "r.parquet")
    told = " ".join(CliRunner().invoke(verbs, ["estimate", str(tmp_path / "r.parquet")]).output.split())
    answers = survey.estimate(tmp_path / "r.parquet")
    low, high = answers["born"].quantile_interval(0.5)
    assert f"{answers['born'].quantile(0.5)}" in told
    assert f"days {low} {high}" in told
    assert f"up mean all {answers['up'].mean}" in told
    assert f"min {answers['up'].interval()[0]}" in told
    few = survey.privatize({"born": ["1980-05-05"], "up": ["08:30"]}, rng=1)
    few.save(tmp_path / "one.parquet")
    assert "born median all -" in " ".join(
        CliRunner().invoke(verbs, ["estimate", str(tmp_path / "one.parquet")]).output.split()
    )
