"""The planner page of a survey: what it computes in the browser is what `Survey.plan` says."""

from __future__ import annotations

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
