"""The dashboard in a real browser: it follows what arrives, keeps the key to itself, and serves people as they are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect
from tests.collector.helpers import KEYS, auth, entry, known_keys, running
from tests.contrast import CONTRAST

from noisette.collector import Store, create_app
from noisette.collector.campaigns.life import Life
from noisette.collector.web.access import Keys
from noisette.survey.campaigns import Campaign
from noisette.survey.periods import period_at

EVIL = '<img src=x onerror="window.hacked=1">\'; DROP TABLE reports;--'
TODAY, YESTERDAY = (period_at("day", datetime.now(UTC) - timedelta(days=back)) for back in (0, 1))
COMMUTE = {
    "id": "commute",
    "title": f"How people get to work {EVIL}",
    "epsilon": 4.0,
    "users": 2000,
    "period": "day",
    "answers": "fresh",
    "attributes": [
        {"name": "minutes", "range": [0, 120]},
        {"name": f"by {EVIL}", "categories": ["car", "bike", EVIL]},
    ],
    "mechanism": "auto",
    "public_group": {"name": "town", "values": ["north", EVIL]},
}
SCREEN = {"id": "screen", "title": "Screen time", "epsilon": 1.0, "users": 500, "mechanism": "duchi"} | {
    "attributes": [{"name": "hours", "range": [0, 10]}]
}
NAMES = """() => [...document.querySelectorAll("button, input, select, [role=img], progress")]
  .filter(one => one.checkVisibility())
  .filter(one => !(one.getAttribute("aria-label") || one.labels?.[0]?.textContent || one.textContent).trim())
  .map(one => one.outerHTML)"""

SMALL = """() => [...document.querySelectorAll("button, input, select")]
  .filter(one => one.checkVisibility() && one.offsetHeight < 36).map(one => one.outerHTML)"""


class Site:
    """A collector with two campaigns, and a hand that reports to it."""

    def __init__(self, url: str, campaigns: list[Campaign]) -> None:
        self.url, self.campaigns = url, campaigns
        self._rng = np.random.default_rng(5)

    def report(self, users: int, period: str) -> None:
        """Let users answer the first campaign."""
        campaign = self.campaigns[0]
        numbers, codes = self._rng.gamma(4, 8, users).clip(0, 120), self._rng.integers(0, 3, users)
        names = [one.name for one in campaign.attributes]
        rows = campaign.privatize_coded(dict(zip(names, (numbers, codes), strict=True)), rng=self._rng)
        towns = ("north", EVIL)
        sent = [entry(row["part0"].tolist(), period=period, group=towns[place % 2]) for place, row in enumerate(rows)]
        path = f"{self.url}/campaigns/commute/reports"
        answer = httpx.post(path, json={"version": 1, "reports": sent}, headers=auth("device"), timeout=300)
        assert answer.status_code == 201, answer.text


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    campaigns = [Campaign.from_dict(COMMUTE), Campaign.from_dict(SCREEN)]
    store = Store(f"sqlite:///{tmp_path_factory.mktemp('site') / 'reports.db'}")
    app = create_app(campaigns, store, Keys({role: [key] for role, key in KEYS.items()}))
    with running(app) as url:
        made = Site(url, campaigns)
        made.report(300, YESTERDAY)
        made.report(200, TODAY)
        yield made


@pytest.fixture
def show(browser: Browser, site: Site) -> Iterator[Any]:
    """Open the dashboard; it may ask its own collector alone, without the key in an address, and may not complain."""
    contexts, asked, said = [], [], []

    def opened(*, key: str | None = KEYS["analyst"], **options: Any) -> Page:
        context = browser.new_context(**({"viewport": {"width": 1280, "height": 900}} | options))
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(site.url)
        if key is not None:
            page.get_by_label("key").fill(key)
            page.get_by_role("button", name="Open").click()
            page.locator("#errors svg").first.wait_for()
        return page

    yield opened
    for context in contexts:
        context.close()
    assert {urlsplit(url).netloc for url in asked} == {urlsplit(site.url).netloc}
    assert not [url for url in asked if any(key in url for key in KEYS.values())]
    assert not [text for text in said if "401" not in text and "403" not in text]


@pytest.mark.long
def test_the_key_opens_it_and_is_forgotten(show: Any) -> None:
    page = show(key=None)
    expect(page.locator("#campaigns")).to_be_hidden()
    page.get_by_label("key").fill("a-key-that-nobody-has")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("does not know this key")
    page.get_by_label("key").fill(KEYS["device"])
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("role of analyst or auditor")
    page.get_by_label("key").fill(KEYS["auditor"])
    page.keyboard.press("Enter")
    expect(page.locator("#head h2")).to_contain_text("How people get to work")
    assert page.get_by_label("key").input_value() == ""
    page.reload()
    expect(page.locator("#head h2")).to_contain_text("How people get to work")
    page.get_by_role("button", name="Forget the key").click()
    expect(page.locator("#content")).to_be_hidden()
    assert page.evaluate("JSON.stringify({ ...sessionStorage, ...localStorage, cookie: document.cookie })") == (
        '{"cookie":""}'
    )


@pytest.mark.long
def test_it_follows_what_arrives(show: Any, site: Site) -> None:
    page = show()
    users = page.locator("#head dd").first
    expect(users).to_contain_text("200")
    before = page.locator("#errors .hint").inner_text()
    site.report(800, TODAY)
    expect(users).to_contain_text("1,000", timeout=120_000)
    expect(page.locator("#campaigns li").first).to_contain_text("1,000 of 2,000 users")
    after = page.locator("#errors .hint").inner_text()
    errors = [float(text.split("± ")[1].split()[0].rstrip(",")) for text in (before, after)]
    assert 1.5 < errors[0] / errors[1] < 3.2  # five times the users: the error falls by about 2.24
    assert len(page.locator("#errors .seen").first.get_attribute("points").split()) >= 2
    page.get_by_role("button", name="Pause updates").click()
    site.report(100, TODAY)
    page.wait_for_timeout(2500)  # longer than it takes to ask again
    expect(users).to_contain_text("1,000")
    page.get_by_role("button", name="Resume updates").click()
    expect(users).to_contain_text("1,100", timeout=120_000)


@pytest.mark.long
def test_numbers_are_those_of_the_service(show: Any, site: Site) -> None:
    page = show()
    query = {"params": {"period": YESTERDAY}, "headers": auth("analyst")}
    found = httpx.get(f"{site.url}/campaigns/commute/estimates", **query).json()
    page.get_by_label("Period", exact=True).select_option(YESTERDAY)
    expect(page.locator("#head dd").first).to_contain_text("300")
    shown = page.locator(".rows .figure").all_inner_texts()
    assert len(shown) == len(found["dimensions"]) == 4
    for text, row in zip(shown, found["dimensions"], strict=True):
        size = 100 if " % ± " in text else 1  # shares are in percent
        value, radius = (float(part) / size for part in text.replace(" %", "").split(" ± "))
        assert abs(value - row["value"]) <= 0.06 * row["std_error"]
        assert abs(radius - (row["high"] - row["low"]) / 2) <= 0.06 * row["std_error"]
    assert page.locator("#comparison .band").count() == 4 * (2 + 2)  # two periods, two groups, for each quantity
    page.get_by_label("Error chart of", exact=True).select_option("by " + EVIL + ": bike")
    expect(page.locator("#errors .hint")).to_contain_text(": bike")
    page.get_by_label("Estimates", exact=True).select_option("auto")
    expect(page.locator("#estimates .hint").first).to_contain_text("after")


@pytest.mark.long
def test_budget_audit_and_refusals(show: Any, site: Site) -> None:
    for body in (b"x", json.dumps({"version": 1}).encode()):
        httpx.post(f"{site.url}/campaigns/commute/reports", content=body, headers=auth("device"))
    page = show()
    facts = page.locator("#promise dl")
    expect(facts).to_contain_text("holds", timeout=120_000)
    expect(facts).to_contain_text("promised 4")
    expect(facts).to_contain_text("ε = 8")  # two periods of fresh answers
    exact = float(page.locator("#promise dd").nth(2).inner_text().split("\n")[0])
    assert 3.9 < exact <= 4.0
    row = page.locator("#refused tr", has_text="malformed")
    assert int(row.locator("td").last.inner_text()) >= 2
    page.locator("#campaigns li button").nth(1).click()
    expect(page.locator("#head h2")).to_have_text("Screen time")
    expect(page.locator("#errors .hint")).to_contain_text("nothing to estimate from yet")


@pytest.mark.long
def test_names_are_inert(show: Any) -> None:
    page = show()
    expect(page.locator("#head h2")).to_have_text(COMMUTE["title"])
    assert page.locator("img").count() == 0
    assert page.evaluate("window.hacked") is None
    expect(page.locator(".rows .name").nth(3)).to_have_text(EVIL)


@pytest.mark.long
def test_it_fits_a_phone(show: Any) -> None:
    page = show(viewport={"width": 320, "height": 800}, has_touch=True, is_mobile=True)

    def fits() -> None:
        for width in (390, 320):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert page.evaluate(SMALL) == []

    fits()
    page.locator("#campaigns li button").nth(1).tap()
    expect(page.locator("#head h2")).to_have_text("Screen time")
    fits()


@pytest.mark.long
def test_everyone_can_read_it(show: Any) -> None:
    page = show()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate(CONTRAST) == [], scheme
    assert page.evaluate(NAMES) == []
    assert all(page.evaluate("[...document.querySelectorAll('svg[role=img]')].map(one => one.ariaLabel)"))
    assert page.evaluate("document.documentElement.lang") == "en"
    duration = "getComputedStyle(document.querySelector('.mark')).transitionDuration"
    assert page.evaluate(duration) != "0s"
    page.emulate_media(reduced_motion="reduce")  # nothing moves for who asked for that
    assert page.evaluate(duration) == "0s"


@pytest.mark.long
def test_the_keyboard_is_enough(show: Any) -> None:
    page = show()
    page.locator("#campaigns li button").nth(1).focus()
    page.keyboard.press("Enter")
    expect(page.locator("#head h2")).to_have_text("Screen time")
    expect(page.locator("#campaigns li button").nth(1)).to_have_attribute("aria-current", "true")
    expect(page.locator("#content")).to_be_focused()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "enhance"  # what is asked once has no period to choose


def test_pages_are_guarded(site: Site) -> None:
    for path in ("/dashboard", "/static/dashboard.js", "/static/dashboard.css"):
        answer = httpx.get(site.url + path)
        assert answer.status_code == 200
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
    for path in ("/dashboard/overview", "/dashboard/campaigns/commute", "/campaigns/commute/table"):
        assert httpx.get(site.url + path).status_code == 401
    for name in ("..%2fpages.py", "%2e%2e/pages.py", "nothing.js", "pages.py", ".js"):
        assert httpx.get(f"{site.url}/static/{name}").status_code == 404
    found = httpx.get(f"{site.url}/dashboard/campaigns/commute?period=never", headers=auth("analyst"))
    assert found.status_code == 422


@pytest.mark.long
def test_what_is_known_has_an_address_and_a_file(show: Any, site: Site) -> None:
    page = show()
    expect(page.locator("#known li")).to_have_count(2)
    expect(page.locator("#known li").first).to_contain_text("on average")
    expect(page.locator("#known li small").first).to_contain_text("more users")
    assert page.locator(".ticks").first.inner_text().split() == ["0", "30", "60", "90", "120"]
    for shape, first in (("csv", b"campaign,"), ("parquet", b"PAR1")):
        with page.expect_download() as coming:
            page.locator(f"[data-format={shape}]").click()
        assert coming.value.path().read_bytes().startswith(first)
        assert coming.value.suggested_filename == f"commute.{shape}"
    page.get_by_label("Period", exact=True).select_option(YESTERDAY)
    expect(page.locator("#head dd").first).to_contain_text("300")
    expect(page).to_have_url(re.compile("#.*period="))  # a condition in JavaScript would need eval, which pages forbid
    page.reload()
    expect(page.locator("#head dd").first).to_contain_text("300")
    page.locator("#campaigns li button").nth(1).click()
    expect(page).to_have_url(re.compile("#screen$"))
    page.reload()
    expect(page.locator("#head h2")).to_have_text("Screen time")


@pytest.mark.long
def test_made_up_reports_and_the_share_of_liars_are_shown(show: Any, site: Site) -> None:
    """What the service says about liars is on the page; that it says so is tested elsewhere."""
    failed = [{"about": "by=bike", "test": "supported too rarely"}]
    page = show()
    hint = page.locator("#estimates .hint").first
    assert "made up" not in hint.inner_text()

    def told(route: Any) -> None:
        answer = route.fetch()
        body = answer.json()
        body["estimates"] |= {"suspicions": {"failed": failed}, "liars": 0.02}
        route.fulfill(response=answer, json=body)

    page.route("**/dashboard/campaigns/**", told)
    page.locator("#period").select_option(index=1)
    page.locator("#estimates .hint", has_text="made up").wait_for()
    assert "hold if at most 2 % of the reports are made up" in hint.inner_text()
    assert "no honest users send such (by=bike: supported too rarely)" in hint.inner_text()


def test_the_certificate_is_verified_in_the_browser(show: Any, site: Site) -> None:
    page = show()
    expect(page.locator("#proof")).to_contain_text("Verified in your browser", timeout=60_000)
    served = httpx.get(f"{site.url}/campaigns/commute/certificate", headers=auth("analyst"), timeout=60)
    assert served.json()["law_sha256"][:16] in str(page.locator("#proof").text_content())


@pytest.mark.long
def test_a_forged_certificate_is_refused_in_the_browser(show: Any, site: Site) -> None:
    served = httpx.get(f"{site.url}/campaigns/commute/certificate", headers=auth("analyst"), timeout=60).text
    page = show()
    forged = served.replace('"record"', '"element"')
    page.route(
        "**/campaigns/commute/certificate", lambda route: route.fulfill(body=forged, content_type="application/json")
    )
    page.reload()
    expect(page.locator("#proof")).to_contain_text("Refused by your browser", timeout=60_000)


KINDS: dict[str, Any] = {
    "id": "kinds",
    "title": "Life at the works",
    "epsilon": 4.0,
    "users": 5000,
    "wanted": 30,
    "questions": [
        {"name": "come", "categories": ["car", "bus"], "optional": True},
        {"name": "carry", "options": ["phone", "tablet", "watch"], "most": 2},
        {"name": "way", "range": [0, 120], "want": "distribution"},
        {"name": "born", "range": ["1950-01-01", "2010-12-31"]},
        {"name": "up", "range": ["03:00", "12:00"]},
        {"name": "eat", "text": 4},
        {"name": "drink", "levels": [[0, 50, 4], [50, 100, 2]]},
        {"name": "pay", "range": [1000, 9000], "want": "quantiles"},
    ],
    "groups": {"site": ["north", "south"]},
    "form": {
        "questions": {
            "come": {"ask": "How do you come?"},
            "carry": {"ask": "What do you carry?"},
            "way": {"ask": "How long is your way?", "unit": "minutes"},
            "born": {"ask": "When were you born?"},
            "up": {"ask": "When do you get up?"},
            "eat": {"ask": "Where do you eat?"},
            "drink": {"ask": "What do you drink?", "unit": "units"},
            "pay": {"ask": "What do you earn?", "unit": "€"},
        }
    },
}
OVERLAPPING = """() => {
  const found = [];
  for (const box of document.querySelectorAll(".ticks, svg[role=img]")) {
    const texts = [...box.querySelectorAll(box.matches(".ticks") ? "span" : "text")]
      .map(one => [one.textContent, one.getBoundingClientRect()]);
    for (const [at, [a, one]] of texts.entries()) for (const [b, other] of texts.slice(at + 1)) {
      const wide = Math.min(one.right, other.right) - Math.max(one.left, other.left);
      const high = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
      if (wide > 1 && high > 3) found.push([a, b]);
    }
  }
  return found;
}"""


@pytest.mark.long
def test_every_kind_of_answer_is_drawn_as_people_read_it(tmp_path: Path, browser: Browser) -> None:
    """On phones and wide screens, before anybody has answered, with one report, and with many.

    Ticks once ran into each other, dates were days since 1970, and shares were beyond 100 %. A text beside a graded
    number left no dashboard at all.
    """
    campaign, life = Campaign.from_dict(KINDS), Life.read(KINDS)
    store = Store(f"sqlite:///{tmp_path / 'reports.db'}")
    person = {"come": "car", "carry": ["phone"], "way": 35.0, "born": "1977-05-03", "up": "06:30"}
    person |= {"eat": "desk", "drink": 10.0, "pay": 3000.0}
    with running(create_app([(campaign, life)], store, known_keys())) as url, browser.new_context() as context:
        page = context.new_page()
        said: list[str] = []
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(f"{url}/dashboard#kinds?key={KEYS['analyst']}")
        sent = 0
        for users in (0, 1, 400):
            rng = np.random.default_rng(users)
            rows = [
                entry(campaign.privatize(person, rng=rng), group=["north", "south"][k % 2]) for k in range(sent, users)
            ]
            if rows:
                body = {"version": 1, "reports": rows}
                httpx.post(f"{url}/campaigns/kinds/reports", json=body, headers=auth("device")).raise_for_status()
            sent = users
            expect(page.locator("#head dd").first).to_contain_text(f"{users:,}")
            for width in (360, 390, 1280):
                page.set_viewport_size({"width": width, "height": 800})
                page.wait_for_timeout(100)  # a resize draws anew
                assert page.evaluate("document.documentElement.scrollWidth") <= width
                assert page.evaluate(OVERLAPPING) == [], (users, width)
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme)
                found = Axe().run(page).response["violations"]
                assert [one["id"] for one in found] == []
        shown = page.locator("#content").inner_text()
        assert re.search(r"When were you born\? \d{4}-\d\d-\d\d ± [\d,]+ days on average", shown)
        assert re.search(r"When do you get up\? \d\d:\d\d ± \d+ min on average", shown)
        assert "What do you earn? half are below" in shown
        figures = page.locator(".rows .figure").all_inner_texts()
        shares = [float(one.split(" %")[0]) for one in figures if " % ±" in one]
        assert all(0 <= one <= 100 for one in shares)
        assert {"units", "minutes", "€", "days", "min"} <= {one.split()[-1] for one in figures}
        for name in ("quantile", "-01-01", "answered:", "chosen"):
            assert name not in page.locator("#estimates").inner_text()
        expect(page.locator("#known .hint")).to_contain_text("Done means ± 30 % of the range")
        first = figures[0].split("± ")[1]  # ± is the same in the sentence, beside the strip and on the chart of errors
        assert first in page.locator("#known li").first.inner_text()
        expect(page.locator("#errors .hint")).to_contain_text(f"± {first} % now")
        expect(page.locator("#errors svg .value").first).to_contain_text(f"± {first}")
        assert said == []
        for tab in ("known", "estimates", "comparison", "errors", "promise"):
            page.locator(f"[data-tab={tab}]").click()
            page.reload()
            expect(page.locator(f"#{tab}")).to_be_visible()
            expect(page.locator("#content > section:visible")).to_have_count(2)  # the head, and the chosen part
