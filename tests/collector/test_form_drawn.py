"""Campaigns whose tokens draw, on their pages: signed first, and what the signature draws is all that is drawn."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, Route, expect
from tests.collector.helpers import SECRET, known_keys, running
from tests.collector.test_form import Place, serious

from noisette.collector import Store, create_app
from noisette.device.blind import new_code
from noisette.survey.campaigns import Campaign
from noisette.survey.periods import period_at

pytestmark = [pytest.mark.slow, pytest.mark.long]

MIXED: dict[str, Any] = {
    "id": "mixed",
    "title": "Of drinks and work",
    "epsilon": 2.0,
    "users": 5000,
    "tokens": "drawn",
    "attributes": [
        {"name": "drink", "text": 6},
        {"name": "age", "range": [0, 99]},
        {"name": "has", "options": ["phone", "tablet", "watch"], "most": 2},
    ],
    "mechanism": {"drink": "pem", "age": "piecewise", "has": "wheel"},
}
NOW = datetime.now(UTC)
BEFORE = NOW - timedelta(days=1)
DIET: dict[str, Any] = {
    "id": "diet",
    "title": "What people eat",
    "epsilon": 2.0,
    "users": 5000,
    "tokens": "drawn",
    "answers": "tracked",
    "period": "day",
    "attributes": [{"name": "diet", "categories": ["none", "vegan", "halal"]}],
}
LATE = DIET | {"id": "late", "begins": period_at("day", BEFORE), "periods": 2}
SOON = DIET | {"id": "soon", "begins": period_at("day", NOW), "periods": 2}
CAMPAIGNS = {one["id"]: Campaign.from_dict(one) for one in (MIXED, LATE, SOON)}


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Store]]:
    store = Store(f"sqlite:///{tmp_path_factory.mktemp('drawn') / 'reports.db'}")
    with running(create_app(CAMPAIGNS.values(), store, known_keys())) as url:
        yield url, store


@pytest.fixture
def place(collector: tuple[str, Store], browser: Browser) -> Iterator[Place]:
    made = Place(*collector, browser, CAMPAIGNS)
    yield made
    for context in made.contexts:
        context.close()
    assert all(one.startswith(made.url) for one in made.asked)
    expected = ("status of", "ERR_FAILED", "blocked by Playwright")
    assert not [text for text in made.said if not any(words in text for words in expected)]


def posts(page: Page) -> list[tuple[str, dict[str, Any]]]:
    """Note what a page posts from now on: the last part of the path, and the body."""
    found: list[tuple[str, dict[str, Any]]] = []

    def note(request: Any) -> None:
        if request.method == "POST":
            found.append((request.url.rpartition("/")[2], json.loads(request.post_data or "{}")))

    page.on("request", note)
    return found


def state(page: Page, campaign: str) -> dict[str, Any]:
    """Return what the browser keeps for a campaign."""
    found: dict[str, Any] = json.loads(page.evaluate(f"localStorage['noisette:c:{campaign}']"))
    return found


def enrolled(page: Page, code: str) -> Page:
    """Give the code, and wait until the token is signed."""
    page.get_by_label("Your code").fill(code)
    page.get_by_role("button", name="Continue").click()
    page.locator("form:not(#admission), #turn").first.wait_for()
    return page


def of_turn(place: Place, path: str, wanted: str, first: int, clock: datetime | None = None) -> Page:
    """Open the page for one user after the other, until the period that is drawn for one is the wanted one."""
    for number in range(first, first + 40):  # all of 40 draw the other of two periods once in 10^12
        page = place.open(f"{path}#code={new_code(SECRET, number)}")
        if clock is not None:
            page.clock.set_fixed_time(clock)
            page.reload()
        enrolled(page, new_code(SECRET, number))
        campaign = place.campaigns[path.rpartition("/")[2]]
        (token,) = state(page, campaign.id)["tokens"].values()
        if campaign.drawn_period(base64.b64decode(token["signature"])) == wanted:
            return page
        page.context.close()
    raise AssertionError("Nobody drew this period.")


def test_what_a_page_sends_follows_from_a_token_that_was_signed_before(place: Place) -> None:
    page = place.open("/c/mixed")
    posted = posts(page)
    assert page.locator("[data-question]").count() == 0  # nothing is asked before
    page.get_by_role("button", name="Continue").click()
    expect(page.locator("#code-wrong")).to_have_text("Please give your code.")
    assert posted == []
    page.get_by_label("Your code").fill("nobody-has-this-code")
    page.get_by_role("button", name="Continue").click()
    expect(page.locator("#code-wrong")).to_contain_text("not known here")
    posted.clear()
    code = new_code(SECRET, 1)
    enrolled(page, code)
    ((where, asked),) = posted
    assert (where, set(asked), asked["code"]) == ("tokens", {"code", "period", "blinded"}, code)
    page.get_by_label("drink", exact=True).fill("tea")
    page.get_by_label("age", exact=True).fill("30")
    page.get_by_role("checkbox", name="phone").check()
    page.get_by_role("button", name="Make my report").click()
    page.locator("#report").wait_for()
    assert len(posted) == 1
    page.locator("#body summary").click()
    shown = page.locator("#body pre").inner_text()
    page.get_by_role("button", name="Send this report").click()
    expect(page.locator("#outcome")).to_contain_text("has arrived")
    sent = json.loads(shown)
    assert posted[1:] == [("reports", sent)]
    campaign, signature = place.campaigns["mixed"], base64.b64decode(sent["signature"])
    assert campaign.survey.follows(campaign.rows([sent["report"]]), signature)
    assert place.has("mixed", sent["report"])
    # the collector never saw token or signature when it signed, and it can tell neither from what it saw
    seen = base64.b64decode(asked["blinded"])
    assert sent["token"] not in json.dumps(asked)
    assert seen != signature
    kept = {name: one for name, one in state(page, "mixed").items() if name != "campaigns"}
    assert "tea" not in json.dumps(kept)
    other = place.open(f"/c/mixed#code={code}")  # in another browser, which would be another draw
    other.get_by_role("button", name="Continue").click()
    expect(other.locator("#code-wrong")).to_contain_text("already been used")
    assert place.users("mixed") == 1


def test_a_report_that_does_not_follow_is_refused(place: Place) -> None:
    """The twin: a page that draws the part of the survey by itself is found out in most cases."""
    refused = 0
    for number in range(100, 106):
        page = enrolled(place.open("/c/mixed"), new_code(SECRET, number))
        page.get_by_label("drink", exact=True).fill("tea")
        page.get_by_label("age", exact=True).fill("30")
        page.get_by_role("button", name="Make my report").click()
        page.locator("#report").wait_for()
        kept = state(page, "mixed")
        (question,) = kept["answers"]
        survey = place.campaigns["mixed"].survey
        kept["answers"][question] = json.dumps(survey.answer({"drink": "tea", "age": 30, "has": []}, rng=number))
        page.evaluate("text => localStorage.setItem('noisette:c:mixed', text)", json.dumps(kept))
        answer = []
        page.on("response", lambda one, found=answer: found.append(one) if one.url.endswith("reports") else None)
        page.get_by_role("button", name="Send this report").click()
        page.locator("#outcome").wait_for()
        refused += answer[0].status >= 400 and "not-drawn" in answer[0].text()
    assert refused >= 4  # by chance another part, group or map would fit less than once in ten


def test_a_tracked_person_is_asked_in_her_period_alone(place: Place) -> None:
    """She comes a day too early, is told so, and answers the next day in the same browser without her code."""
    page = of_turn(place, "/c/late", period_at("day", NOW), 1, BEFORE)
    posted = posts(page)
    expect(page.locator("#turn")).to_contain_text("not your turn yet")
    expect(page.locator("#turn")).to_contain_text(f"{NOW:%B} {NOW.day}, {NOW.year}")
    expect(page.locator("#promise")).to_contain_text("2 periods of one day each")
    kept = state(page, "late")
    assert (kept["spent"], kept["answers"], kept["queue"]) == (0, {}, [])
    page.reload()
    expect(page.locator("#turn")).to_contain_text("not your turn yet")
    page.clock.set_fixed_time(NOW)
    page.reload()
    page.get_by_role("radio", name="vegan").check()
    page.get_by_role("button", name="Make my report").click()
    page.get_by_role("button", name="Send this report").click()
    expect(page.locator("#outcome")).to_contain_text("has arrived")
    ((where, sent),) = posted  # the token was signed the day before
    assert (where, sent["period"]) == ("reports", period_at("day", NOW))
    assert place.users("late") == 1
    assert state(page, "late")["spent"] == 2e12
    for day in (NOW, NOW + timedelta(days=30)):
        page.clock.set_fixed_time(day)
        page.reload()
        expect(page.locator("#outcome")).to_contain_text("already answered")
    assert len(posted) == 1


def test_a_turn_that_is_over_is_over(place: Place) -> None:
    page = of_turn(place, "/c/late", period_at("day", BEFORE), 100)
    expect(page.locator("#turn")).to_contain_text("Your turn is over")
    page.locator("#language").select_option("de")
    expect(page.locator("#turn")).to_contain_text("Ihr Zeitraum ist vorbei")
    assert place.users("late") == 0
    assert state(page, "late")["spent"] == 0


def _changed(change: dict[str, Any], route: Route) -> None:
    route.fulfill(json=route.fetch().json() | change)


def test_what_is_drawn_cannot_be_drawn_again(place: Place) -> None:
    """A collector that changes when periods begin, how many there are, or its key, is not answered."""
    page = of_turn(place, "/c/soon", period_at("day", NOW), 1)
    for change in ({"periods": 3}, {"begins": period_at("day", BEFORE)}):
        page.route("**/c/soon/table", partial(_changed, change))
        page.reload()
        expect(page.locator("#stopped")).to_contain_text("asks something else than before")
        page.unroute("**/c/soon/table")
    page.reload()
    page.get_by_role("radio", name="vegan").check()
    unsigned = place.open("/c/soon")
    unsigned.route("**/c/soon/tokens", lambda route: route.abort())
    unsigned.get_by_label("Your code").fill(new_code(SECRET, 400))
    unsigned.get_by_role("button", name="Continue").click()
    expect(unsigned.locator("#code-wrong")).to_contain_text("does not answer", timeout=60_000)
    assert len(state(unsigned, "soon")["tokens"]) == 1  # it was blinded, and is shown again as it is

    def another(route: Route) -> None:
        modulus = httpx.get(f"{place.url}/c/mixed/tokens/once").json()["modulus"]
        route.fulfill(json={"modulus": modulus})

    unsigned.route("**/c/soon/tokens/*", another)
    unsigned.get_by_role("button", name="Continue").click()
    expect(unsigned.locator("#stopped")).to_contain_text("another key than before")


def test_everyone_can_read_it_on_a_phone(place: Place) -> None:
    """The three pages that only such campaigns have, in five languages, at 390 pixels."""
    narrow: dict[str, Any] = {"width": 390, "height": 844}
    for number, language in enumerate(("en", "de", "fr", "es", "zh")):
        page = place.open(f"/c/late?lang={language}", viewport=narrow)
        page.locator("#code").fill(new_code(SECRET, 500 + number))
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert serious(page) == []
        page.locator("#admission button").click()
        page.locator("form:not(#admission), #turn").first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert serious(page) == []
