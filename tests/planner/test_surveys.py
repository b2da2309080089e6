"""The planner page of a survey: what it computes in the browser is what `Survey.plan` says."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from playwright.sync_api import Browser, expect

from noisette.cli import verbs
from noisette.planner import survey_page
from noisette.planner.surveys import at_budget
from noisette.survey.survey import Survey

pytestmark = pytest.mark.long

MIXED: dict[str, Any] = {
    "questions": [{"name": "minutes", "range": [0, 120]}, {"name": "by", "categories": ["car", "bike", "bus"]}],
    "mechanism": {"minutes": "piecewise", "by": "grr"},
    "epsilon": 2.0,
    "users": 5000,
    "groups": {"region": ["north", "south"]},
}


def test_the_page_says_what_the_plan_says(tmp_path: Path, browser: Browser) -> None:
    survey, file = Survey.from_dict(MIXED), tmp_path / "page.html"
    file.write_text(survey_page(survey), encoding="utf-8")
    context = browser.new_context(viewport={"width": 390, "height": 800})
    page = context.new_page()
    asked: list[str] = []
    page.on("request", lambda one: asked.append(one.url))
    page.goto(file.as_uri())
    assert asked == [file.as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for users, epsilon in ((5000, 2.0), (80_000, 2.0), (20_000, 1.0)):
        found = page.evaluate("state => noisette.planned(state)", {"users": users, "epsilon": epsilon, "wanted": 5})
        made = at_budget(survey, epsilon).plan(users)
        assert [row["group"] for row in found] == [row.group for row in made.rows]
        for row, own in zip(found, made.rows, strict=True):
            assert row["half"] == pytest.approx(1.959964 * own.std_error, rel=2e-3), own
            needed = at_budget(survey, epsilon).plan(max(row["needed"], 1000)).rows if users == 5000 else ()
            if needed and row["needed"] >= 1000:
                again = next(
                    one
                    for one in needed
                    if (one.question, one.quantity, one.group) == (own.question, own.quantity, own.group)
                )
                assert 1.959964 * again.std_error <= 0.0502 * row["span"], own
    page.locator("#users").fill("100000")
    expect(page.locator("#verdict-tag")).to_have_text("enough people")
    page.locator("#wanted").fill("0.01")
    expect(page.locator("#verdict-tag")).to_have_text("too few people")
    page.locator("#epsilon").select_option("1")
    expect(page.locator("#command")).to_have_text("noisette plan survey.yaml --users 100000 --epsilon 1")
    context.close()


def test_a_choice_and_a_survey_from_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    result = CliRunner().invoke(
        verbs, ["plan", "--users", "2000", "-e", "1", "--categories", "a,b,c", "-m", "grr", "--html", str(file)]
    )
    assert result.exit_code == 0, result.output
    assert "noisette plan --categories a,b,c --mechanism grr" in file.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "given", [["--categories", "a b,c"], ["my survey.yaml"], ["--categories", "4", "--categories", "x,y", "-m", "grr"]]
)
def test_the_command_that_the_page_shows_runs(tmp_path: Path, browser: Browser, given: list[str]) -> None:
    """It once left out the budget, without which there is no plan, and broke at names with a space."""
    terms = {"questions": [{"name": "minutes", "range": [0, 120]}], "epsilon": 1.5}
    (tmp_path / "my survey.yaml").write_text(json.dumps(terms), encoding="utf-8")
    given = [str(tmp_path / one) if one.endswith(".yaml") else one for one in given]
    file = tmp_path / "page.html"
    made = CliRunner().invoke(verbs, ["plan", *given, "--users", "2000", "-e", "1", "--html", str(file)])
    assert made.exit_code == 0, made.output
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(file.as_uri())
        command = page.locator("#command").inner_text()
        shown = page.locator("#errors tbody tr").first.locator("td").nth(1).inner_text()
    again = CliRunner().invoke(verbs, [*shlex.split(command)[1:], "--json"])
    assert again.exit_code == 0, again.output
    told = json.loads(again.output)
    errors = [row["std_error"] for row in told["rows"]] if "rows" in told else [told["candidates"][0]["mse"] ** 0.5]
    if "%" not in shown:
        assert float(shown) == pytest.approx(1.959964 * errors[0], rel=0.01)


def test_rows_that_say_the_same_are_one(tmp_path: Path, browser: Browser) -> None:
    terms = MIXED | {"questions": [*MIXED["questions"], {"name": "born", "range": ["1950-01-01", "2010-12-31"]}]}
    file = tmp_path / "page.html"
    file.write_text(survey_page(Survey.from_dict(terms | {"mechanism": "auto"})), encoding="utf-8")
    with browser.new_context(viewport={"width": 360, "height": 800}) as context:
        page = context.new_page()
        page.goto(file.as_uri())
        rows = page.locator("#errors tbody tr")
        expect(rows).to_have_count(6)  # three questions, of everybody and of each region
        expect(rows.filter(has_text="by: each of 3 shares, each region")).to_have_count(1)
        expect(rows.filter(has_text="born: mean, everybody")).to_contain_text("days")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
