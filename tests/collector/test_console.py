"""The owner from the empty console to a closed campaign with results, in a real browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from click.testing import CliRunner
from playwright.sync_api import Browser, expect
from tests.collector.helpers import KEYS, OPERATOR, entry, known_keys, running

from noisette.cli import verbs
from noisette.collector import Store, create_app
from noisette.collector.web.console import once_key, qr_code
from noisette.collector.web.planpage import plan_page
from noisette.survey.campaigns import Campaign

pytestmark = pytest.mark.slow

LUNCH: dict[str, Any] = {"name": "what-do-you-eat", "categories": ["meat", "fish", "vegan"]}


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """An empty collector, and the key that opens its console once."""
    store = Store(f"sqlite:///{tmp_path / 'empty.db'}")
    key = once_key(store.registry)
    with running(create_app([], store, known_keys())) as url:
        yield url, key


@pytest.mark.long
def test_from_the_empty_console_to_a_closed_survey(empty: tuple[str, str], browser: Browser) -> None:
    url, key = empty
    context: Any = browser.new_context(viewport={"width": 390, "height": 800})
    page = context.new_page()
    said: list[str] = []
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(f"{url}/console#key={key}")
    expect(page.locator("#campaigns")).to_contain_text("None yet")
    assert key not in page.url
    page.get_by_label("Title").fill("Lunch at work")
    page.get_by_label("Who asks").fill("the kitchen")
    page.get_by_label("Question", exact=True).fill("What do you eat?")
    page.get_by_label("Answers, one a line").fill("meat\nfish\nvegan")
    expect(page.locator("#plan tbody tr")).to_have_count(1)  # three shares that are told equally well
    expect(page.locator("#plan tbody")).to_contain_text("each of 3 shares")
    expect(page.locator("#plan")).to_contain_text("Worth collecting")
    needed = page.locator("#plan p").first.inner_text().split("About ")[1].split()[0]
    error = Campaign.from_dict({"id": "a", "users": 1000, "epsilon": 2.0, "attributes": [LUNCH]}).predict().max()
    assert abs(int(needed.replace(",", "")) - 1000 * (1.96 * error / 0.05) ** 2) < 5
    expect(page.locator("#plan tbody")).to_contain_text("fine enough")
    page.get_by_label("People you hope for").fill("3")
    expect(page.locator("#plan tbody")).to_contain_text("little better than a guess")
    expect(page.locator("#plan p").first).to_contain_text("the answers to “What do you eat?” will be hardly better")
    page.get_by_label("People you hope for").fill("300")
    expect(page.locator("#plan tbody")).to_contain_text("coarser than wanted")
    page.get_by_label("Wanted ±").fill("10")  # the verdict follows what is wanted
    expect(page.locator("#plan tbody")).to_contain_text("fine enough")
    expect(page.locator("#plan")).to_contain_text("Worth collecting")
    found = Axe().run(page).response["violations"]
    assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.get_by_role("button", name="Add a question").click()
    second = page.locator(".question").nth(1)
    second.get_by_label("Question", exact=True).fill("How long is your break?")
    second.get_by_label("Kind").select_option("number")
    second.get_by_label("From", exact=True).fill("0")
    second.get_by_label("To", exact=True).fill("60")
    second.get_by_label("Unit").fill("minutes")
    expect(page.locator("#plan tbody")).to_contain_text("minutes")
    page.get_by_text("Compare groups").click()
    page.get_by_label("A group that people state openly").fill("Küche")
    page.get_by_label("Its values, one a line").fill("north\nsouth")
    expect(page.locator("#plan tbody")).to_contain_text("each of 3 shares, each Küche")
    fits = "document.querySelector('#plan .wide').scrollWidth <= document.querySelector('#plan .wide').clientWidth"
    page.set_viewport_size({"width": 1280, "height": 900})
    assert page.evaluate(fits)  # the verdict was cut off beside a column of groups
    page.set_viewport_size({"width": 390, "height": 800})
    page.get_by_label("A group that people state openly").fill("")
    page.get_by_label("Its values, one a line").fill("")
    page.get_by_text("Look at two questions together").click()
    page.get_by_role("button", name="Add a pair").click()
    page.locator("#joint select").nth(0).select_option("What do you eat?")
    page.locator("#joint select").nth(1).select_option("How long is your break?")
    expect(page.locator("#plan tbody")).to_contain_text("What do you eat? × How long is your break?")
    page.get_by_role("button", name="Remove this pair").click()
    second.get_by_role("button", name="Remove question 2").click()
    expect(page.locator("#plan tbody tr")).to_have_count(1)
    with context.expect_page() as opened:
        page.get_by_role("button", name="See the form").click()
    form = opened.value  # a form that keeps nothing and sends nothing
    form.get_by_role("radio", name="fish").check()
    form.get_by_role("button", name="Make my report").click()
    form.get_by_role("button", name="Send this report").click()
    expect(form.get_by_role("status")).to_have_text("This is a preview: nothing is sent.")
    form.close()
    page.get_by_role("button", name="Open this survey").click()
    expect(page.locator(".one")).to_contain_text("Lunch at work (open)")
    assert (
        page.evaluate("async () => (await fetch('/c/lunch-at-work/qr.svg')).headers.get('content-type')")
        == "image/svg+xml"
    )
    person = browser.new_context().new_page()
    person.goto(f"{url}/c/lunch-at-work")
    expect(person.locator("#by")).to_contain_text("the kitchen")
    person.get_by_role("radio", name="fish").check()
    person.get_by_role("button", name="Make my report").click()
    person.get_by_role("button", name="Send this report").click()
    expect(person.locator("#outcome")).to_contain_text("has arrived")
    page.locator(".edit summary").click()
    page.locator(".edit").get_by_label("Title").fill("Lunch")
    page.locator(".edit").get_by_label("People you hope for").fill("50")
    page.get_by_role("button", name="Save: Lunch at work").click()
    expect(page.locator(".one h3")).to_have_text("Lunch (open)")
    page.get_by_role("button", name="Link to the results: Lunch").click()
    expect(page.locator("#state")).to_contain_text("/dashboard#lunch-at-work?key=")
    link = str(page.locator("#state a").get_attribute("href"))
    guest = browser.new_context().new_page()
    guest.goto(link)
    expect(guest.locator("#head h2")).to_have_text("Lunch")
    assert "key=" not in guest.url
    guest.get_by_role("button", name="Estimates", exact=True).click()
    expect(guest.locator("#promise")).not_to_be_visible()
    guest.reload()  # the address is that of the tab
    expect(guest.locator("#estimates")).to_be_visible()
    expect(guest.locator("#promise")).not_to_be_visible()
    guest.context.close()
    page.get_by_role("button", name="Close: Lunch").click()
    expect(page.locator(".one")).to_contain_text("(closed)")
    late = browser.new_context().new_page()
    late.goto(f"{url}/c/lunch-at-work")
    expect(late.locator("#stopped")).to_contain_text("This survey is closed")
    page.get_by_role("link", name="Results").click()
    expect(page.locator("#head dd").first).to_contain_text("1")
    expect(page.locator("#known li")).to_contain_text("What do you eat?")
    for one in (context, person.context, late.context):
        one.close()
    assert said == []


KINDS: list[dict[str, str]] = [
    {"ask": "How do you come?", "kind": "choice", "labels": "car\nbus"},
    {"ask": "What do you carry?", "kind": "choices", "labels": "phone\nwatch\ntablet", "most": "2"},
    {"ask": "How long is your way?", "kind": "number", "low": "0", "high": "120", "unit": "minutes"},
    {"ask": "When were you born?", "kind": "date", "low": "1950-01-01", "high": "2010-12-31"},
    {"ask": "When do you get up?", "kind": "time", "low": "03:00", "high": "12:00"},
    {"ask": "Where do you eat?", "kind": "text", "longest": "12"},
    {"ask": "What do you drink?", "kind": "graded", "levels": "0, 50, 2\n50, 100, 1"},
    {"ask": "What do you earn?", "kind": "number", "low": "1000", "high": "9000", "want": "quantiles"},
]


def write(page: Any, place: int, question: dict[str, str]) -> Any:
    """Write a question, a new one where it is not the first."""
    if place:
        page.get_by_role("button", name="Add a question").click()
    box = page.locator(".question").nth(place)
    for name, value in question.items():
        field = box.locator(f'[name="{name}"]')
        if name in ("kind", "want"):
            field.select_option(value)
        else:
            field.fill(value)
    return box


@pytest.mark.long
def test_every_kind_of_question_is_written_by_hand(empty: tuple[str, str], browser: Browser) -> None:
    """On a narrow phone, through a reload, with things left out: what is missing is said in the words of the survey."""
    url, key = empty
    with browser.new_context(viewport={"width": 360, "height": 780}) as context:
        page = context.new_page()
        page.goto(f"{url}/console#key={key}")
        told = page.locator("#plan p").first
        page.locator("#write").get_by_label("Title").fill("午餐")
        box = write(page, 0, {"ask": "How do you come?", "labels": "car"})
        expect(told).to_have_text("“How do you come?” needs two answers at least, one a line.")
        box.locator('[name="labels"]').fill("car\nbus\ncar")
        expect(told).to_have_text("“How do you come?” has the answer “car” twice.")
        page.get_by_role("button", name="Open this survey").click()
        expect(page.locator("#write .bad")).to_contain_text("twice")
        for place, question in enumerate(KINDS):
            write(page, place, question) if place else box.locator('[name="labels"]').fill("car\nbus")
        last = page.locator(".question").nth(len(KINDS) - 1)
        expect(last.get_by_label("May be left out")).to_be_hidden()  # only a mean is told of those who answered
        page.get_by_text("Compare groups").click()
        page.get_by_label("A group that people state openly").fill("site")
        expect(told).to_have_text("The group “site” needs two values at least, one a line.")
        page.get_by_label("Its values, one a line").fill("north\nsouth")
        expect(page.locator("#plan tbody")).to_contain_text("50 % are below, each site")
        shown = page.locator("#plan").inner_text()
        for word in ("what-do", "when-were", "quantile", "site=north"):
            assert word not in shown
        for wanted in ("± ", " days", " minutes", "how many, on average"):
            assert wanted in shown
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        found = Axe().run(page).response["violations"]
        assert [one["id"] for one in found] == []
        page.reload()  # what was written is still there
        expect(page.locator(".question")).to_have_count(len(KINDS))
        expect(page.locator(".question").nth(4).locator('[name="low"]')).to_have_value("03:00")
        expect(page.locator("#plan tbody")).to_contain_text("50 % are below, each site")
        page.get_by_role("button", name="Open this survey").click()
        expect(page.locator(".one h3")).to_have_text("午餐 (open)")
        page.locator("#write").get_by_label("Title").fill("晚餐")  # no letters of an address either
        write(page, 0, KINDS[0])
        write(page, 1, KINDS[0])  # the same words twice are two questions
        page.get_by_role("button", name="Open this survey").click()
        expect(page.locator(".one")).to_have_count(2)
        assert {one.get_attribute("data-id") for one in page.locator(".one").all()} == {"survey", "survey-2"}


@pytest.mark.long
def test_what_was_said_is_shown_to_who_edits_it(empty: tuple[str, str], browser: Browser) -> None:
    url, key = empty
    asked = {"id": "a", "title": "Lunch", "epsilon": 1.0, "questions": [LUNCH], "users": 50, "closes": "2099-12-31"}
    operator = {"Authorization": f"Bearer {OPERATOR}"}
    asked |= {"wanted": 7, "webhook": "https://example.org/noisette?secret=1"}
    assert httpx.post(f"{url}/campaigns", json=asked, headers=operator).status_code == 201
    analyst = {"Authorization": f"Bearer {KEYS['analyst']}"}
    (listed,) = httpx.get(f"{url}/campaigns", headers=analyst).json()["campaigns"]
    assert (listed["wanted"], listed["users"]) == (7, 50)
    assert "webhook" not in listed  # an address may have a secret in it, which is the operator's
    with browser.new_context(viewport={"width": 390, "height": 780}) as context:
        page = context.new_page()
        page.goto(f"{url}/console#key={key}")
        edit = page.locator(".edit")
        edit.locator("summary").click()
        shown = {
            name: edit.locator(f'[name="{name}"]').input_value() for name in ("users", "wanted", "closes", "webhook")
        }
        assert shown == {"users": "50", "wanted": "7", "closes": "2099-12-31", "webhook": asked["webhook"]}
        page.get_by_role("button", name="Save: Lunch").click()
        expect(page.locator("#state")).to_have_text("Nothing was changed.")
        edit.locator("summary").click()
        edit.locator('[name="webhook"]').fill("")
        edit.locator('[name="wanted"]').fill("3")
        page.get_by_role("button", name="Save: Lunch").click()
        expect(page.locator("#state")).to_have_text("Saved.")
        (changed,) = httpx.get(f"{url}/campaigns", headers=operator).json()["campaigns"]
        assert (changed["webhook"], changed["wanted"], changed["closes"]) == (None, 3, "2100-01-01T00:00:00+00:00")
        expect(page.get_by_role("button", name="Delete: Lunch")).to_have_count(0)  # an open survey is closed first
        page.get_by_role("button", name="Close: Lunch").click()
        page.get_by_role("button", name="Archive: Lunch").click()
        expect(page.locator(".one h3")).to_have_text("Lunch (archived)")
        page.on("dialog", lambda dialog: dialog.accept())
        page.get_by_role("button", name="Delete: Lunch").click()
        expect(page.locator("#campaigns")).to_contain_text("None yet")
        page.get_by_label("Name", exact=True).fill("Anna Müller")
        page.get_by_role("button", name="Give a key").click()
        expect(page.locator("#given")).to_contain_text("letters a to z")
        page.get_by_label("Name", exact=True).fill("anna")
        page.get_by_label("Days").fill("7")
        page.get_by_role("button", name="Give a key").click()
        expect(page.locator("#given")).to_contain_text("shown once")
        expect(page.locator("#keys tr", has_text="anna")).to_contain_text("analyst")
        given = page.locator("#given").inner_text().split(": ")[1]
        assert httpx.get(f"{url}/campaigns", headers={"Authorization": f"Bearer {given}"}).status_code == 200
        page.get_by_role("button", name="End anna").click()
        expect(page.locator("#keys tr", has_text="anna")).to_have_count(0)
        assert httpx.get(f"{url}/campaigns", headers={"Authorization": f"Bearer {given}"}).status_code == 401


@pytest.mark.long
def test_an_operator_who_comes_back_reads_the_results(empty: tuple[str, str], browser: Browser) -> None:
    """Her key opens the console and no results: the console makes her an analyst's key, which ends."""
    url, _ = empty
    asked = {"id": "a", "title": "Lunch", "epsilon": 1.0, "questions": [LUNCH], "users": 50}
    operator = {"Authorization": f"Bearer {OPERATOR}"}
    assert httpx.post(f"{url}/campaigns", json=asked, headers=operator).status_code == 201
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(f"{url}/console")
        page.get_by_label("Operator's key").fill(OPERATOR)
        page.get_by_role("button", name="Open", exact=True).click()
        page.get_by_role("link", name="Results").click()
        expect(page.locator("#head h2")).to_have_text("Lunch")
    keys = httpx.get(f"{url}/keys", headers=operator).json()["keys"]
    assert [one["ends"] is not None for one in keys if one["role"] == "analyst"] == [True]


@pytest.mark.long
def test_the_link_works_once(empty: tuple[str, str]) -> None:
    url, key = empty
    given = {"Authorization": f"Bearer {key}"}
    made = httpx.post(f"{url}/console/keys", headers=given)
    assert made.status_code == 201
    assert httpx.post(f"{url}/console/keys", headers=given).status_code == 401
    operator = {"Authorization": f"Bearer {made.json()['operator']}"}
    assert httpx.post(f"{url}/console/keys", headers=operator).status_code == 403
    asked = {"id": "a", "epsilon": 1, "questions": [{"name": "x", "range": [0, 1]}], "users": 50}
    assert httpx.post(f"{url}/plan", json=asked, headers=operator).json()["users"] == 50
    assert httpx.post(f"{url}/plan", json=asked | {"epsilon": -1}, headers=operator).status_code == 422
    assert httpx.post(f"{url}/plan", json=asked).status_code == 401
    assert httpx.post(f"{url}/plan", json=asked, headers=operator).json()["obstacle"] is None
    vector = asked | {"questions": [{"name": "v", "vector": 3, "range": [0, 1]}]}
    assert "which no form can ask for" in httpx.post(f"{url}/plan", json=vector, headers=operator).json()["obstacle"]
    assert httpx.post(f"{url}/preview", json=vector, headers=operator).status_code == 422
    assert httpx.post(f"{url}/preview", json=asked, headers=operator).json()["table"]["kind"] == "rows"  # sliding-half


def test_the_command_line_does_what_the_console_does(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path / 'own.db'}"
    terms = {"id": "lunch", "title": "Lunch", "epsilon": 2.0, "users": 50, "questions": [LUNCH]}
    terms |= {"form": {"by": "the kitchen", "questions": {LUNCH["name"]: {"ask": "What do you eat?"}}}}
    file = tmp_path / "lunch.yaml"
    file.write_text(json.dumps(terms), encoding="utf-8")

    def said(*words: str, code: int = 0, kept: bool = True) -> str:
        run = CliRunner().invoke(verbs, ["collector", *words, *(["--database", database] if kept else [])])
        assert run.exit_code == code, run.output
        return run.output

    shown = said("preview", str(file), kept=False)
    assert "What do you eat?" in shown
    assert "one of meat, fish, vegan" in shown
    assert "7.39" in shown
    key = {"Authorization": f"Bearer {KEYS['analyst']}"}
    with running(create_app([], Store(f"sqlite:///{tmp_path / 'other.db'}"), known_keys())) as url:
        asked = httpx.post(f"{url}/preview", json=terms, headers=key).json()
    assert json.loads(said("preview", str(file), "--json", kept=False)) == asked
    said("open", str(file))
    drawn = said("qr", "lunch", "--url", "https://surveys.example.org/")
    assert "https://surveys.example.org/c/lunch" in drawn
    assert len([line for line in drawn.splitlines() if "█" in line]) > 10
    said("qr", "lunch", "-o", str(tmp_path / "code.svg"))
    assert (tmp_path / "code.svg").read_bytes() == qr_code("http://127.0.0.1:8000/c/lunch", "svg")
    said("qr", "lunch", "-o", str(tmp_path / "code.gif"), code=2)
    campaign, store = Campaign.read(file), Store(database)
    with running(create_app([], store, known_keys())) as url:
        reports = [entry(campaign.privatize({LUNCH["name"]: "fish"}, rng=seed)) for seed in range(50)]
        device = {"Authorization": f"Bearer {KEYS['device']}"}
        body = {"version": 1, "reports": reports}
        httpx.post(f"{url}/campaigns/lunch/reports", json=body, headers=device).raise_for_status()
        analyst = {"Authorization": f"Bearer {KEYS['analyst']}"}
        told = httpx.get(f"{url}/campaigns/lunch/estimates", params={"format": "csv"}, headers=analyst)
        known = httpx.get(f"{url}/dashboard/campaigns/lunch", headers=analyst).json()["known"]
    printed = said("results", "lunch", "-o", str(tmp_path / "lunch.csv"))
    assert "done" in printed
    assert (tmp_path / "lunch.csv").read_bytes() == told.content
    rows = json.loads(said("results", "lunch", "--json"))["rows"]
    assert [row["known so far"] for row in rows] == [one["sentence"] for one in known]
    said("results", "lunch", "-o", str(tmp_path / "lunch.xls"), code=2)


def test_every_kind_of_question_is_planned_beside_the_others(tmp_path: Path) -> None:
    """A survey with a text had no plan at all: how far its shares can go was asked of the letters."""
    asked: list[dict[str, Any]] = [
        {"name": "come", "categories": ["car", "train", "on foot"], "optional": True},
        {"name": "devices", "options": ["phone", "tablet", "watch"], "most": 2},
        {"name": "hours", "range": [0, 80], "want": "distribution"},
        {"name": "born", "range": ["1950-01-01", "2010-12-31"]},
        {"name": "up", "range": ["04:00", "11:00"]},
        {"name": "site", "text": 16},
        {"name": "pay", "levels": [[0, 5000, 3], [5000, 20000, 2]]},
    ]
    survey = {"id": "a", "epsilon": 2, "users": 500, "groups": {"place": ["north", "south"]}, "questions": asked}
    with running(create_app([], Store(f"sqlite:///{tmp_path / 'a.db'}"), known_keys())) as url:
        made = httpx.post(f"{url}/plan", json=survey, headers={"Authorization": f"Bearer {OPERATOR}"}, timeout=60)
    assert made.status_code == 200
    spans = {
        row["question"]: (row["tells"], row["span"]) for row in made.json()["rows"] if row["group"] == "place=south"
    }
    assert spans["site"] == ("texts", 1.0)
    assert spans["come"] == spans["devices"] == ("shares", 1.0)
    assert spans["hours"] == ("mean", 80.0)
    assert spans["up"] == ("mean", 7 * 3600)
    assert spans["pay"] == ("mean", 20_000.0)
    assert "site" in plan_page(Campaign.from_dict(survey))
