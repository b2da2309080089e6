"""The page of a campaign in a real browser, through a real collector: a person answers, sees her report, sends it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Route, expect
from tests.collector.helpers import KEYS, SECRET, auth, entry, known_keys, running

from noisette.certificates import certify
from noisette.collector import Store, create_app
from noisette.collector.web.forms import obstacle
from noisette.device.blind import new_code
from noisette.domains import Categorical, Interval, Selection, Texts
from noisette.mechanisms.build import build
from noisette.mechanisms.graded.levelled import LevelledResponse
from noisette.mechanisms.graded.optimal import OptimalGraded
from noisette.survey.campaigns import Campaign

pytestmark = pytest.mark.slow


def kept(page: Page, path: str) -> None:
    """Wait until a page may be used offline; asked from outside, since its rules forbid eval."""
    while not page.evaluate("path => caches.match(path).then(Boolean)", path):
        page.wait_for_timeout(50)


COMMUTE: dict[str, Any] = {
    "id": "commute",
    "title": "How people get to work",
    "epsilon": 2.0,
    "users": 1000,
    "attributes": [
        {"name": "minutes", "range": [0, 120]},
        {"name": "by", "categories": ["car", "bike", "bus", "foot"]},
        {"name": "smokes", "categories": ["yes", "no"], "optional": True},
    ],
    "mechanism": {"minutes": "piecewise", "by": "grr", "smokes": "grr"},
    "report": 1,
    "form": {
        "by": "the works council of Example Ltd",
        "about": "We plan stands for bicycles.",
        "questions": {
            "minutes": {"ask": "How long is your way to work?", "unit": "minutes"},
            "by": {"ask": "How do you come?"},
            "smokes": {"ask": "Do you smoke?"},
        },
    },
}
CLINIC = {"id": "clinic", "epsilon": 1.0, "users": 100, "tokens": "blind", "mechanism": "oue"} | {
    "attributes": [{"name": "slept well", "categories": ["yes", "no"]}]
}
DAILY = {"id": "daily", "epsilon": 1.0, "users": 100, "period": "day", "answers": "fresh"} | {
    "attributes": [{"name": "mood", "range": [1, 10]}]
}
RICH: dict[str, Any] = {
    "id": "rich",
    "title": "Life at work",
    "epsilon": 2.0,
    "users": 5000,
    "attributes": [
        {"name": "minutes", "range": [0, 120]},
        {"name": "by", "categories": ["car", "bike"]},
        {"name": "devices", "options": ["phone", "tablet", "watch", "ring"], "most": 2},
        {"name": "site", "text": 12},
        {"name": "income", "levels": [[0, 50, 2.0], [50, 100, 1.0]]},
        {"name": "hours", "range": [0, 80], "want": "quantiles"},
        {"name": "born", "range": ["1950-01-01", "2010-12-31"]},
        {"name": "rises", "range": ["04:00", "12:00"], "want": "variance"},
        {"name": "smokes", "categories": ["yes", "no"], "optional": True},
    ],
    "mechanism": {"minutes": "piecewise", "by": "grr", "devices": "privset", "site": "pem", "income": "levelled"}
    | {"hours": "auto", "born": "piecewise", "rises": "auto", "smokes": "grr"},
}
SITES = {
    "id": "sites",
    "epsilon": 2.0,
    "users": 100,
    "groups": {"site": ["north", "south"]},
    "mechanism": "piecewise",
} | {"questions": [{"name": "born", "range": ["1950-01-01", "2010-12-31"]}]}
LEFT_OUT: dict[str, Any] = {"id": "left-out", "epsilon": 2.0, "users": 1000} | {
    "attributes": [
        {"name": "has", "options": ["tv", "car", "cat"], "most": 2, "optional": True},
        {"name": "site", "text": 8, "optional": True},
    ]
}
CAMPAIGNS = {one["id"]: Campaign.from_dict(one) for one in (COMMUTE, CLINIC, DAILY, RICH, SITES, LEFT_OUT)}
MECHANISMS = {
    "range": ["duchi", "piecewise", "hybrid", "sliding-half", "square-wave", "laplace"],
    "categories": ["grr", "oue", "sue", "olh", "subset-selection", "hadamard", "pgr"],
}
LABELS = ["a", "b", "c", "d", "e"]


class Place:
    """A collector, its store, and browsers that open its pages and note what they ask for."""

    def __init__(self, url: str, store: Store, browser: Browser, campaigns: dict[str, Campaign] = CAMPAIGNS) -> None:
        self.url, self.store, self.campaigns = url, store, campaigns
        self._browser, self.asked, self.said, self.contexts = browser, [], [], []
        self._before = {name: self._stored(name) for name in campaigns}

    def open(self, path: str = "/c/commute", *, offline: bool = False, **options: Any) -> Page:
        """Open a page on a phone; the worker that keeps it for offline use is loaded where that is asked for."""
        given = {"viewport": {"width": 360, "height": 740}, "locale": "en-GB"} | options
        given["service_workers"] = "allow" if offline else "block"
        self.contexts.append(self._browser.new_context(**given))
        page = self.contexts[-1].new_page()
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.goto(self.url + path)
        page.locator("form, #stopped, #report, #turn").first.wait_for()
        return page

    def users(self, campaign: str = "commute") -> int:
        """How many reports this test has stored."""
        return self._stored(campaign) - self._before[campaign]

    def has(self, campaign: str, report: Any) -> bool:
        """Tell whether a report is stored, to the bit."""
        rows = self.campaigns[campaign].rows([report])
        return any(np.array_equal(batch.rows, rows) for batch in self.store.batches(self.campaigns[campaign], "once"))

    def _stored(self, campaign: str) -> int:
        return sum(self.store.periods(self.campaigns[campaign]).values())


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Store]]:
    """One collector for all tests; each counts what it has sent itself."""
    store = Store(f"sqlite:///{tmp_path_factory.mktemp('form') / 'reports.db'}")
    with running(create_app(CAMPAIGNS.values(), store, known_keys())) as url:
        yield url, store


@pytest.fixture
def place(collector: tuple[str, Store], browser: Browser) -> Iterator[Place]:
    made = Place(*collector, browser)
    yield made
    for context in made.contexts:
        context.close()
    assert all(one.startswith(made.url) for one in made.asked)  # nothing is loaded from elsewhere
    expected = ("status of", "ERR_INTERNET", "blocked by Playwright")
    assert not [text for text in made.said if not any(words in text for words in expected)]


def fill(page: Page) -> None:
    """Answer all questions."""
    page.get_by_label("How long is your way to work?", exact=True).fill("30")
    page.get_by_role("radio", name="bike").check()
    page.get_by_role("radio", name="yes").check()


def made(page: Page) -> None:
    """Answer, and have the report made."""
    fill(page)
    page.get_by_role("button", name="Make my report").click()
    page.locator("#report").wait_for()


def serious(page: Page) -> list[str]:
    """Return what axe finds that keeps somebody out."""
    found = Axe().run(page).response["violations"]
    return [f"{one['id']}: {one['nodes'][0]['html']}" for one in found if one["impact"] in ("serious", "critical")]


@pytest.mark.long
def test_what_is_shown_is_what_leaves(place: Place) -> None:
    page = place.open()
    expect(page.locator("h1")).to_have_text("How people get to work")
    expect(page.locator("#by")).to_contain_text("the works council of Example Ltd")
    expect(page.locator("#promise")).to_contain_text("7.39 to 1 (88.1 %)")  # exp(2), and its share, rounded up
    posted: list[str] = []
    page.on("request", lambda one: posted.append(one.post_data or "") if one.method == "POST" else None)
    made(page)
    assert place.users() == 0
    assert posted == []
    expect(page.locator(".said tbody tr").first).to_contain_text("30 minutes")
    assert page.locator(".said td.sent").count() == 1  # one of three questions is drawn
    page.locator("#body summary").click()
    shown = page.locator("#body pre").inner_text()
    page.locator("#how summary").click()
    bars = [float(one) for one in page.locator(".weights em").all_inner_texts()]
    assert max(bars) == 1
    assert min(bars) >= 0.13  # exp(-2), printed with two digits
    page.get_by_role("button", name="Do not send").click()
    expect(page.get_by_role("status")).to_contain_text("Nothing was sent")
    page.reload()
    page.locator("#body summary").click()
    expect(page.locator("#body pre")).to_have_text(shown)  # no second draw
    page.get_by_role("button", name="Send this report").click()
    expect(page.locator("#outcome")).to_contain_text("has arrived")
    assert posted == [shown]
    assert place.users() == 1
    assert place.has("commute", json.loads(shown)["report"])


@pytest.mark.long
def test_whatever_a_survey_asks_is_answered_here(place: Place) -> None:
    page = place.open("/c/rich")
    page.get_by_role("button", name="Make my report").click()
    expect(page.locator("#q3-wrong")).to_contain_text("1 to 12 letters")
    for box in ("phone", "tablet", "watch"):
        page.get_by_role("checkbox", name=box).check()
    page.get_by_role("button", name="Make my report").click()
    expect(page.locator("#q2-wrong")).to_contain_text("at most 2")
    page.get_by_role("checkbox", name="tablet").uncheck()
    given = {"minutes": "35", "site": "noisette.org", "income": "49.5", "hours": "37", "born": "1987-05-04"}
    for name, value in (given | {"rises": "06:45"}).items():
        page.get_by_label(name, exact=True).fill(value)
    page.get_by_role("radio", name="bike").check()
    page.get_by_role("radio", name="No answer").check()
    page.locator("#language").select_option("de")  # what was given stays
    page.get_by_role("button", name="Meinen Bericht erstellen").click()
    page.locator("#report").wait_for()
    told = page.locator(".said tbody tr td:nth-child(2)").all_inner_texts()
    last = ["noisette.org", "49,5", "37", "04.05.1987", "06:45", "Keine Antwort"]
    assert told == ["35", "bike", "phone und watch", *last]
    assert page.locator(".said td.sent").count() >= 1
    page.locator("#body summary").click()
    shown = json.loads(page.locator("#body pre").inner_text())["report"]
    page.get_by_role("button", name="Diesen Bericht senden").click()
    page.locator("#outcome.good").wait_for()
    assert place.users("rich") == 1
    assert place.has("rich", shown)
    page.locator("#how summary").click()
    law = certify(place.campaigns["rich"].survey).law_sha256  # the page found it by itself
    expect(page.locator("#how")).to_contain_text(law)
    assert httpx.get(f"{place.url}/c/rich/certificate").json()["law_sha256"] == law


@pytest.mark.long
def test_options_and_texts_may_be_left_out(place: Place) -> None:
    """No answer takes the ticks off the options and they take its own off; a form without ticks is an answer."""
    told = []
    for ticks, site in ((["tv", "No answer"], ""), (["No answer", "car"], "abc"), ([], "")):
        page = place.open("/c/left-out")
        for name in ticks:
            page.get_by_role("checkbox", name=name).check()
        page.get_by_label("site", exact=True).fill(site)
        page.get_by_role("button", name="Make my report").click()
        page.locator("#report").wait_for()
        told.append(page.locator(".said tbody tr td:nth-child(2)").all_inner_texts())
        page.get_by_role("button", name="Send this report").click()
        page.locator("#outcome.good").wait_for()
    assert told == [["No answer", "No answer"], ["car", "abc"], ["none of them", "No answer"]]
    assert place.users("left-out") == 3


@pytest.mark.long
def test_twice_counts_once(place: Place) -> None:
    page = place.open()
    made(page)
    page.get_by_role("button", name="Send this report").click()
    expect(page.locator("#outcome")).to_contain_text("has arrived")
    page.reload()
    expect(page.locator("#outcome")).to_contain_text("already answered")
    second = page.context.new_page()
    second.goto(f"{place.url}/c/commute")
    expect(second.locator("#outcome")).to_contain_text("counts once")
    assert place.users() == 1
    stored = json.loads(page.evaluate("localStorage['noisette:c:commute']"))
    assert "bike" not in json.dumps({name: one for name, one in stored.items() if name != "campaigns"})


@pytest.mark.long
def test_wrong_answers_are_told_and_cost_nothing(place: Place) -> None:
    page = place.open()
    page.get_by_role("button", name="Make my report").click()
    expect(page.get_by_role("alert").first).to_have_text("Please give a value from 0 to 120.")
    assert page.evaluate("document.activeElement.name") == "q0"
    expect(page.get_by_role("alert").nth(1)).to_have_text("Please choose one.")
    fill(page)
    page.get_by_label("How long is your way to work?", exact=True).fill("500")
    page.get_by_role("button", name="Make my report").click()
    expect(page.get_by_role("alert").first).to_have_text("Please give a value from 0 to 120.")
    assert page.locator("#report").count() == 0


@pytest.mark.long
def test_the_keyboard_is_enough(place: Place) -> None:
    page = place.open()
    page.locator("#language").focus()
    keys = page.keyboard
    keys.press("Tab")
    keys.type("30")
    for key in ("Tab", "Tab", "Space", "ArrowDown", "Tab", "Space", "Tab", "Enter"):
        keys.press(key)
    page.locator("#report").wait_for()
    expect(page.locator(".said tbody tr").nth(1).locator("td").first).to_have_text("bike")
    for key in ("Tab", "Enter", "Tab", "Tab", "Tab", "Enter"):  # past the link to the certificate
        keys.press(key)
    expect(page.locator("#outcome")).to_contain_text("has arrived")
    assert place.users() == 1


@pytest.mark.long
def test_everyone_can_read_it(place: Place) -> None:
    page = place.open()

    def look() -> None:
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            assert serious(page) == [], scheme
        assert page.evaluate("document.documentElement.scrollWidth") <= 360

    look()
    made(page)
    for name in ("#how", "#body"):
        page.locator(f"{name} summary").click()
    look()


@pytest.mark.long
def test_without_a_network_it_waits(place: Place) -> None:
    page = place.open(offline=True)
    page.evaluate("navigator.serviceWorker.ready")
    kept(page, "/c/commute")
    context = page.context
    context.set_offline(True)
    page.reload()
    made(page)
    page.get_by_role("button", name="Send this report").click()
    expect(page.locator("#outcome")).to_contain_text("waits on this device", timeout=60_000)
    assert place.users() == 0
    context.set_offline(False)
    expect(page.locator("#outcome")).to_contain_text("has arrived", timeout=60_000)
    assert place.users() == 1


@pytest.mark.long
@pytest.mark.parametrize(("locale", "button"), [("de-AT", "Meinen Bericht erstellen"), ("zh-CN", "生成我的报告")])
def test_it_speaks_several_languages(place: Place, locale: str, button: str) -> None:
    page = place.open(locale=locale)
    expect(page.get_by_role("button", name=button)).to_be_visible()
    page.get_by_label("How long is your way to work?", exact=True).fill("30")
    page.locator("#language").select_option("fr")
    expect(page.get_by_role("button", name="Créer mon rapport")).to_be_visible()
    assert page.get_by_label("How long is your way to work?", exact=True).input_value() == "30"
    assert page.evaluate("document.documentElement.lang") == "fr"


@pytest.mark.long
def test_a_text_that_a_language_lacks_is_english(place: Place) -> None:
    def without(route: Route) -> None:
        text = route.fetch().text().replace("make:", "other:")
        route.fulfill(body=text, content_type="text/javascript")

    page = place.open("/c/daily")
    page.route("**/words-es.js", without)
    page.locator("#language").select_option("es")
    expect(page.get_by_role("button", name="Make my report")).to_be_visible()
    expect(page.locator("#promise h2")).to_have_text("Qué ocurre con sus respuestas")


@pytest.mark.long
def test_every_language_has_every_text(page: Page) -> None:
    load = "async one => Object.keys((await import(`/static/words-${one}.js`)).default).sort().join()"
    assert len({page.evaluate(load, one) for one in ("en", "de", "fr", "es", "zh")}) == 1


@pytest.mark.long
def test_it_weighs_little(place: Place) -> None:
    """With every kind of question, each of which brings its law."""
    page = place.open("/c/rich", offline=True)
    page.evaluate("navigator.serviceWorker.ready")  # it loads all languages
    kept(page, "/static/words-zh.js")
    total = 0
    for url in {url for url in place.asked if "/tokens" not in url} | {
        f"{place.url}/static/words-{one}.js" for one in ("de", "fr", "es", "zh")
    }:
        with httpx.stream("GET", url, headers={"Accept-Encoding": "gzip"}) as answer:
            total += sum(len(part) for part in answer.iter_raw())
    assert 10_000 < total <= 60_000


@pytest.mark.long
def test_a_law_that_breaks_its_promise_is_not_answered(place: Place) -> None:
    def cheaper(route: Route) -> None:
        found = route.fetch().json()
        route.fulfill(json=found | {"epsilon": found["epsilon"] / 2})

    page = place.open()
    page.route("**/c/commute/table", cheaper)
    page.reload()
    expect(page.locator("#stopped")).to_contain_text("does not keep its promise")
    expect(place.open("/c/nothing").locator("#stopped")).to_contain_text("There is no such survey here")


@pytest.mark.long
def test_a_page_that_cannot_be_answered_says_why(place: Place) -> None:
    """Closed, not open yet, or on a page without https: in words, and none of them taken for another."""
    page = place.open()
    life: dict[str, Any] = {"keep": "34560000 seconds"}

    def living(route: Route) -> None:
        found = route.fetch().json()
        route.fulfill(json=found | {"life": found["life"] | life})

    page.route("**/c/commute/table", living)
    page.reload()
    expect(page.locator("#promise")).to_contain_text("deleted 407 days after")  # a week for reports that come late
    ways = {"is closed": {"state": "closed"}, "not open yet": {"opens": "2999-01-01T00:00:00+00:00"}}
    for told, change in (*ways.items(), ("is closed", {"closes": "2020-01-01T00:00:00+00:00"})):
        life.clear()
        life.update(change)
        page.reload()
        expect(page.locator("#stopped")).to_contain_text(told)
    life.clear()
    page.add_init_script("Object.defineProperty(crypto, 'subtle', { value: undefined })")
    page.reload()
    expect(page.locator("#stopped")).to_contain_text("served over https")
    expect(page.locator("#stopped")).not_to_contain_text("closed")


REFUSALS = {
    ("campaign-closed", 410): "Diese Umfrage ist beendet",
    ("too-late", 410): "Die Zeit für diese Antwort ist vorbei",
    ("out-of-support", 422): "passt er nicht zu dieser Umfrage (out-of-support)",
    ("too-early", 425): "nimmt Ihren Bericht noch nicht an",
}


def _refuse(status: int, said: dict[str, str], route: Route) -> None:
    route.fulfill(status=status, json=said)


@pytest.mark.long
def test_why_a_report_is_refused_is_said_in_every_language(place: Place) -> None:
    """The collector's own words are English; a report that it does not take yet does not wait for the network."""
    for (reason, status), told in REFUSALS.items():
        page = place.open("/c/daily", locale="de-DE")
        said = {"reason": reason, "detail": "English, for programmers."}
        page.route("**/c/daily/reports", partial(_refuse, status, said))
        page.get_by_label("mood", exact=True).fill("7")
        page.get_by_role("button", name="Meinen Bericht erstellen").click()
        page.get_by_role("button", name="Diesen Bericht senden").click()
        expect(page.locator("#outcome")).to_contain_text(told)
        expect(page.locator("#outcome")).not_to_contain_text("English")
    assert place.users("daily") == 0


@pytest.mark.long
def test_what_hinders_a_page_is_said_in_every_language(place: Place) -> None:
    page = place.open("/c/daily", locale="fr-FR")
    refused = "{ get() { throw new DOMException('No.', 'SecurityError'); } }"  # as browsers do that keep no cookies
    page.add_init_script(f"Object.defineProperty(window, 'localStorage', {refused})")
    page.reload()
    expect(page.locator("#stopped")).to_contain_text("ne laisse rien enregistrer")
    page.locator("#language").select_option("es")
    expect(page.locator("#stopped")).to_contain_text("no deja guardar nada")


@pytest.mark.long
def test_a_number_among_other_kinds_is_shown_as_it_is_sent(place: Place) -> None:
    """And not as the answers that fit it best, where a survey has several laws; dates are as people write them."""
    page = place.open("/c/rich", locale="en-GB")
    expect(page.locator("#q6-hint")).to_contain_text("From Jan 1, 1950 to Dec 31, 2010")
    expect(page.locator("#q7-hint")).to_contain_text("From 04:00 to 12:00")
    told = page.evaluate(
        """async () => {
          const { check, row } = await import("/static/noisette.js"), { encode } = await import("/static/laws.js");
          const campaign = await (await fetch("/c/rich/table")).json(), law = check(campaign, "rich");
          const given = { minutes: "35", by: "bike", devices: [], site: "a", income: "1", hours: "3" };
          const inputs = row(campaign, { ...given, born: "1987-05-04", rises: "06:45", smokes: null });
          for (;;) {
            const report = encode(law.draw(inputs)), [section, own] = JSON.parse(report);
            if (section === 0 && own[0][0] === 0) return [report, own[0][1]];
          }
        }"""
    )
    state = json.loads(page.evaluate("localStorage['noisette:c:rich']"))
    entry_of = {"campaign": "rich", "period": "once", "question": "q", "group": None, "key": "0" * 32}
    state |= {"answers": {"q": told[0]}, "queue": [entry_of | {"state": "held", "asked": True, "reason": ""}]}
    page.evaluate("text => localStorage.setItem('noisette:c:rich', text)", json.dumps(state))
    page.reload()
    expect(page.locator(".said td.sent")).to_have_text(page.evaluate("x => x.toPrecision(6) * 1 + ''", told[1]))


@pytest.mark.long
def test_all_that_leaves_is_in_the_table_and_no_date_is_broken(place: Place) -> None:
    """The open group is a part of the report, and 03.02.1980 was once 03.02.198 and a nought below it."""
    page = place.open("/c/sites", locale="de-DE")
    page.get_by_label("born").fill("1980-02-03")
    page.get_by_role("radio", name="south").check()
    page.get_by_role("button", name=re.compile("Bericht")).click()
    rows = page.locator(".said tbody tr")
    expect(rows).to_have_count(2)
    assert rows.nth(1).locator("td").all_inner_texts() == ["south", "south"]
    assert rows.nth(0).locator("td").first.inner_text() == "03.02.1980"
    lines = """() => { const range = document.createRange();
      range.selectNodeContents(document.querySelector(".said td"));
      return range.getClientRects().length; }"""
    assert page.evaluate(lines) == 1
    page.reload()  # her answers are kept nowhere, the report is
    expect(rows).to_have_count(2)
    assert rows.nth(1).locator("td").all_inner_texts() == ["south"]


@pytest.mark.long
def test_a_day_is_answered_once_and_adds_up(place: Place) -> None:
    page = place.open("/c/daily")
    expect(page.locator("#promise")).to_contain_text("after 2 answers the bound is 7.39 to 1")
    page.get_by_label("mood", exact=True).fill("7")
    page.get_by_role("button", name="Make my report").click()
    page.get_by_role("button", name="Send this report").click()
    expect(page.locator("#outcome")).to_contain_text("has arrived")
    page.reload()
    expect(page.locator("#outcome")).to_contain_text("answered this day")
    assert place.users("daily") == 1


@pytest.mark.long
def test_a_code_counts_once(place: Place) -> None:
    def answer(page: Page) -> None:
        page.get_by_role("radio", name="yes").check()
        page.get_by_role("button", name="Make my report").click()

    def send(page: Page) -> None:
        page.get_by_role("button", name="Send this report").click()

    code = new_code(SECRET, 1)
    page = place.open("/c/clinic")
    answer(page)
    send(page)
    expect(page.locator("#code-wrong")).to_have_text("Please give your code.")
    page.get_by_label("Your code").fill("nobody-has-this-code")
    send(page)
    expect(page.locator("#code-wrong")).to_contain_text("not known here")
    page.get_by_label("Your code").fill(code)
    send(page)
    expect(page.locator("#outcome")).to_contain_text("has arrived", timeout=60_000)
    other = place.open(f"/c/clinic#code={code}")  # the link of an invitation, in another browser
    answer(other)
    assert other.get_by_label("Your code").input_value() == code
    send(other)
    expect(other.locator("#outcome")).to_contain_text("already been used", timeout=60_000)
    assert place.users("clinic") == 1


def test_the_door_is_for_the_page_alone(place: Place, tmp_path: Path) -> None:
    campaign = place.campaigns["commute"]
    sent = {"version": 1} | entry(campaign.privatize({"minutes": 3, "by": "bus", "smokes": None}))
    path = f"{place.url}/c/commute/reports"
    assert httpx.post(path, json=sent, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert httpx.post(path, content=b"x" * 70_000).status_code == 413
    assert httpx.post(path, content=iter([b"{}"])).status_code == 413  # of no stated length
    assert httpx.post(f"{place.url}/campaigns/commute/reports", json=sent).status_code == 401
    for name in ("estimates", "plan"):
        assert httpx.get(f"{place.url}/c/commute/{name}").status_code == 404
    assert httpx.post(path, json=sent).status_code == 201
    assert httpx.post(path, json=sent).json() == {"accepted": 0, "repeated": 1}
    other = {"version": 1} | entry(campaign.privatize({"minutes": 3, "by": "bus", "smokes": None}), token=sent["token"])
    assert httpx.post(path, json=other).json()["reason"] == "already-answered"
    assert place.users() == 1
    closed = create_app([campaign], Store(f"sqlite:///{tmp_path / 'closed.db'}"), known_keys(), forms=False)
    with running(closed) as url:
        assert httpx.get(f"{url}/c/commute").status_code == 404
        assert httpx.post(f"{url}/c/commute/reports", json=sent).status_code == 404
        assert httpx.get(f"{url}/campaigns/commute", headers={"Authorization": f"Bearer {KEYS['device']}"}).is_success


@pytest.fixture(scope="module")
def page(collector: tuple[str, Store], browser: Browser) -> Iterator[Page]:
    """A page of the collector, in which its modules are called."""
    context = browser.new_context(service_workers="block")
    shown = context.new_page()
    shown.goto(f"{collector[0]}/c/commute")
    yield shown
    context.close()


WEIGH = """async ([table, attribute, reports, values]) => {
  const { readLaw } = await import("/static/laws.js"), law = readLaw(table, [attribute]);
  return reports.map(report => values.map(x => law.weigh(report)[0][1](x)));
}"""


def test_bars_of_selections_texts_and_levels(page: Page) -> None:
    options = {"options": LABELS, "most": 2}
    levels = {"edges": [0.0, 40.0, 120.0], "epsilons": [2.0, 1.0]}
    graded: list[Any] = [LevelledResponse(**levels), OptimalGraded(**levels, points=4)]
    cases: list[tuple[dict[str, Any], Any, list[Any], list[Any]]] = [
        (options, build(name, Selection(5, 2), epsilon=1.5), [[0, 3], [1, -1], [-1, -1]], [[0, 3], [1], []])
        for name in ("privset", "drawn-option", "wheel")
    ]
    words = ["a", "bé", "noix"]
    cases.append(({"text": 6}, build("pem", Texts(6), epsilon=1.5), words, words))
    cases += [({"range": [0, 120]}, one, [0.0, 39.0, 40.0, 120.0], [0.0, 39.0, 40.0, 120.0]) for one in graded]
    for fields, mechanism, inputs, values in cases:
        reports = mechanism.privatize(np.asarray(inputs * 8), rng=4)
        sent = [np.asarray(one).tolist() for one in reports]
        found = np.asarray(page.evaluate(WEIGH, [mechanism.table(), {"name": "x"} | fields, sent, values]))
        truth = np.asarray(
            [[float(np.squeeze(mechanism.log_prob(one, np.asarray(x)))) for x in inputs] for one in reports]
        )
        assert np.allclose(found - found[:, :1], truth - truth[:, :1], atol=1e-9), mechanism.name
        assert np.ptp(found, axis=1).max() > 0.5, mechanism.name  # reports tell something


def test_a_list_of_any_length_is_asked_here(page: Page) -> None:
    """Of long lists `auto` takes the wheel: the page draws by its law, whose epsilon it computes itself."""
    options = [f"town {number}" for number in range(600)]
    asked = {"attributes": [{"name": "towns", "options": options, "most": 2}]}
    campaign = Campaign.from_dict({"id": "one", "epsilon": 1.0, "users": 1000} | asked)
    assert [one.mechanism.name for one in campaign.sections] == ["wheel"]
    assert obstacle(campaign) is None
    shown = campaign.to_wire() | {"table": campaign.mechanism.table(), "sealed": False}
    epsilon, text = page.evaluate(MANY, [shown, {"towns": ["town 7", "town 599"]}, 3000])
    assert 0.99 < epsilon <= 1.0
    estimate = campaign.layout.tally(campaign.decode(json.loads(text))).by_question()["towns"]
    off = (estimate.value[:600] - np.isin(np.arange(600), (7, 599))) / estimate.std_error[:600]
    assert np.abs(off).max() < 6.5  # by chance once in 10^8 for 600 options
    assert estimate.value[[7, 599]].min() > 6 * estimate.std_error[:600].max(), (
        "the twin: nobody's town would be found out"
    )


def test_bars_are_the_chances_of_the_mechanism(page: Page) -> None:
    for kind, name in [(kind, name) for kind, names in MECHANISMS.items() for name in names]:
        attribute = {"name": "x", kind: [0, 120] if kind == "range" else LABELS}
        domain = Interval(0, 120) if kind == "range" else Categorical(labels=tuple(LABELS))
        mechanism: Any = build(name, domain, epsilon=1.5)
        values = [0.0, 17.3, 60.0, 120.0] if kind == "range" else list(range(5))
        reports = mechanism.privatize(np.asarray(values * 3), rng=4)
        sent = [[str(one[0]), int(one[1])] if name == "olh" else np.asarray(one).tolist() for one in reports]
        found = np.asarray(page.evaluate(WEIGH, [mechanism.table(), attribute, sent, values]))
        truth = np.asarray([[float(mechanism.log_prob(one, np.asarray(x))) for x in values] for one in reports])
        assert np.allclose(found - found[:, :1], truth - truth[:, :1], atol=1e-9), name
        assert np.ptp(found, axis=1).max() > 0.5, name  # reports tell something


SURVEYS: dict[str, dict[str, Any]] = {
    "optional": {
        "attributes": [
            {"name": "x", "range": [0, 10], "optional": True},
            {"name": "c", "categories": ["a", "b"], "optional": True},
        ]
    },
    "crosstab": {
        "attributes": [{"name": "c", "categories": ["a", "b"]}, {"name": "d", "categories": ["u", "v", "w"]}],
        "joint": [["c", "d"]],
    },
    "within": {
        "attributes": [{"name": "x", "range": [0, 10]}, {"name": "c", "categories": ["a", "b"]}],
        "joint": [["x", "c"]],
    },
    "correlation": {
        "attributes": [
            {"name": "x", "range": [0, 10]},
            {"name": "y", "range": [0, 4]},
            {"name": "c", "categories": ["a", "b"]},
        ],
        "joint": [["x", "y"]],
    },
}
ANSWERS = {"x": 8.0, "y": 1.0, "c": "b", "d": "w"}
MANY = """async ([campaign, values, count]) => {
  const { check, row } = await import("/static/noisette.js"), { encode } = await import("/static/laws.js");
  const law = check(campaign, campaign.id), inputs = row(campaign, values);
  return [law.epsilon, `[${Array.from({ length: count }, () => encode(law.draw(inputs))).join()}]`];
}"""


@pytest.mark.long
def test_what_is_coded_first_is_estimated(page: Page) -> None:
    for name, asked in SURVEYS.items():
        campaign = Campaign.from_dict({"id": "one", "epsilon": 3.0, "users": 1000} | asked)
        shown = campaign.to_wire() | {"table": campaign.mechanism.table(), "sealed": False}
        values = {one.name: ANSWERS[one.name] for one in campaign.attributes}
        epsilon, text = page.evaluate(MANY, [shown, values, 3000])
        assert campaign.mechanism.guarantee.epsilon * 0.98 < epsilon <= 3.0, name
        sums = campaign.layout.tally(campaign.decode(json.loads(text)))
        for told, estimate in sums.by_question().items():
            for label, value, error in zip(estimate.names or (), estimate.value, estimate.std_error, strict=True):
                wanted = expected(told, label, values)
                if wanted is not None and math.isfinite(error):
                    assert abs(value - wanted) < 6 * error + 1e-9, label  # by chance once in 10^8


def expected(question: str, quantity: str, values: dict[str, Any]) -> float | None:
    """Return what everybody's same answer makes of a quantity."""
    if question.endswith(" answered"):
        return 1.0
    if question in values:
        own = values[question]
        return float(quantity == f"{question}={own}") if isinstance(own, str) else own
    return None


def test_a_wrong_login_is_no_refused_report(place: Place) -> None:
    def rejected() -> dict[str, int]:
        found: dict[str, int] = httpx.get(f"{place.url}/dashboard/overview", headers=auth("analyst")).json()["rejected"]
        return found

    before, wrong = rejected(), {"Authorization": "Bearer a-key-that-nobody-has"}
    assert httpx.get(f"{place.url}/dashboard/overview", headers=wrong).status_code == 401
    assert httpx.get(f"{place.url}/static/nothing.js").status_code == 404
    assert rejected() == before
    assert httpx.post(f"{place.url}/campaigns/commute/reports", headers=wrong, json={}).status_code == 401
    assert rejected() == before | {"unauthorised": before.get("unauthorised", 0) + 1}
