"""The device of web pages, in a real browser and from another site: one answer, a budget, a queue, retries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.sync_api import Browser, Error, Route
from tests.collector.helpers import COMMUTE, KEYS, PERSON, SECRET, known_keys, running
from tests.collector.web import Shop, losing

from noisette.collector import Store, create_app
from noisette.device.blind import new_code
from noisette.survey.campaigns import Campaign
from noisette.survey.periods import period_at

DAILY = COMMUTE | {"id": "daily", "period": "day", "attributes": COMMUTE["attributes"][:1], "mechanism": "piecewise"}
CAMPAIGNS = [
    COMMUTE,
    DAILY | {"report": None},
    DAILY | {"id": "fresh", "answers": "fresh", "report": None},
    COMMUTE | {"id": "towns", "public_group": {"name": "town", "values": ["north", "south"]}},
    DAILY | {"id": "strange", "mechanism": "staircase", "report": None},
    DAILY | {"id": "admitted", "tokens": "blind", "report": None},
]
ASK_OFTEN = """async values => {
  const all = await Promise.all(Array.from({ length: 5 }, () => client.answer("commute", values)));
  return all.filter(Boolean).length;
}"""
Stored = Callable[[], dict[str, int]]
QUEUE = "() => JSON.parse(localStorage.getItem('noisette:device'))"


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory, sites: list[str]) -> Iterator[tuple[str, Store]]:
    """One collector for all tests; each counts what it has sent itself."""
    store = Store(f"sqlite:///{tmp_path_factory.mktemp('web') / 'reports.db'}")
    app = create_app([Campaign.from_dict(one) for one in CAMPAIGNS], store, known_keys(), origins=sites[:1])
    with running(app) as url:
        yield url, store
    store.close()


@pytest.fixture
def shop(browser: Browser, collector: tuple[str, Store], sites: list[str]) -> Iterator[Shop]:
    context = browser.new_context()
    yield Shop(context.new_page(), collector[0], sites[0])
    context.close()


@pytest.fixture
def stored(collector: tuple[str, Store]) -> Callable[[], dict[str, int]]:
    """How many reports of each campaign this test has stored."""
    campaigns = [Campaign.from_dict(one) for one in CAMPAIGNS]

    def now() -> dict[str, int]:
        return {one.id: sum(collector[1].periods(one).values()) for one in campaigns}

    before = now()
    return lambda: {name: count - before[name] for name, count in now().items() if count > before[name]}


@pytest.mark.long
def test_one_answer_however_often_it_is_asked(shop: Shop, stored: Stored) -> None:
    shop.open()
    assert shop.answer()
    assert not shop.answer(values=PERSON | {"minutes": 99})
    assert shop.left == 0
    assert shop.send() == shop.send() == {"sent": 1, "refused": 0, "waiting": 0}
    shop.open()  # the page is loaded again: the same device
    assert not shop.answer()
    assert shop.send() == {"sent": 1, "refused": 0, "waiting": 0}
    assert stored() == {"commute": 1}


@pytest.mark.long
def test_tabs_at_the_same_time_are_one_device(shop: Shop, stored: Stored) -> None:
    shop.open()
    other = Shop(shop.page.context.new_page(), shop.url, shop.site)
    other.open()
    assert [one.page.evaluate(ASK_OFTEN, PERSON) for one in (shop, other)] == [1, 0]
    assert shop.send()["sent"] == other.send()["sent"] == 1
    assert stored() == {"commute": 1}


@pytest.mark.long
def test_an_answer_that_was_lost_counts_once(shop: Shop, stored: Stored) -> None:
    posted: list[str] = []
    shop.open()
    shop.answer()
    shop.page.route("**/reports", losing(posted))
    assert shop.send() == {"sent": 0, "refused": 0, "waiting": 1}
    assert len(posted) == 2
    assert len(set(posted)) == 1  # the same bytes, key included
    shop.page.unroute("**/reports")
    assert shop.send() == {"sent": 1, "refused": 0, "waiting": 0}
    assert stored() == {"commute": 1}


@pytest.mark.long
def test_without_a_collector_it_queues(shop: Shop, stored: Stored) -> None:
    shop.open()
    shop.page.evaluate("client.campaign('commute')")
    shop.page.context.set_offline(True)
    assert shop.answer()
    with pytest.raises(Error, match="was never seen"):
        shop.answer("daily", {"minutes": 3})
    assert shop.send()["waiting"] == 1
    shop.page.context.set_offline(False)
    assert shop.send()["sent"] == 1
    assert stored() == {"commute": 1}


@pytest.mark.long
def test_what_the_budget_does_not_allow(shop: Shop) -> None:
    shop.open(epsilon=1.9)
    with pytest.raises(Error, match=r"has epsilon=1\.9 left, campaign 'commute' costs 2"):
        shop.answer()
    assert shop.send() == {"sent": 0, "refused": 0, "waiting": 0}
    with pytest.raises(Error, match=r"has a budget of epsilon=1\.9, not 5"):
        shop.open(epsilon=5)


@pytest.mark.long
@pytest.mark.parametrize(("name", "left"), [("daily", 2), ("fresh", 0)])
def test_over_the_days(shop: Shop, name: str, left: float) -> None:
    """A permanent answer is the same every day and is paid once; fresh ones are paid daily until nothing is left."""
    before, yesterday, today = (str(datetime.now(UTC).date() - timedelta(days=ago)) for ago in (2, 1, 0))
    shop.page.clock.install(time=f"{before}T00:00:00Z")
    shop.open(epsilon=4)
    reports = []
    for day in (before, yesterday):
        shop.page.clock.set_fixed_time(f"{day}T00:00:00Z")
        shop.answer(name, {"minutes": 35})
        state = shop.page.evaluate(QUEUE)
        assert state["queue"][-1]["period"] == day
        reports.append(state["answers"][state["queue"][-1]["question"]])
    assert shop.left == left
    assert (reports[0] == reports[1]) == (name == "daily")
    shop.page.clock.set_fixed_time(f"{today}T00:00:00Z")
    if name == "fresh":
        with pytest.raises(Error, match="has epsilon=0 left"):
            shop.answer(name, {"minutes": 35})
    else:
        assert not shop.answer(name, {"minutes": 35})
    assert shop.send() == {"sent": 3 if name == "daily" else 2, "refused": 0, "waiting": 0}


@pytest.mark.long
def test_periods_are_those_of_python(shop: Shop) -> None:
    shop.open()
    shop.page.evaluate(
        "url => import(url).then(found => { globalThis.periodAt = found.periodAt; })", shop.url + "/static/noisette.js"
    )
    days = [datetime(2019, 12, 20, 23, 59, tzinfo=UTC) + timedelta(days=step) for step in range(0, 2600, 3)]
    for kind in ("day", "week", "month", "once"):
        asked = [kind, [day.isoformat() for day in days]]
        found = shop.page.evaluate("([kind, days]) => days.map(day => periodAt(kind, new Date(day)))", asked)
        assert found == [period_at(kind, day) for day in days]


def test_wrong_values_cost_nothing(shop: Shop) -> None:
    shop.open()
    wrong = [
        PERSON | {"minutes": 500},
        PERSON | {"minutes": "35m"},
        PERSON | {"by": "plane"},
        {},
        PERSON | {"more": 1},
    ]
    for values in wrong:
        with pytest.raises(Error, match="Expected"):
            shop.answer(values=values)
    assert shop.left == 2


def test_a_public_group_is_sent_openly(shop: Shop, collector: tuple[str, Store]) -> None:
    shop.open()
    for group in ("{}", "{ group: 'west' }"):
        with pytest.raises(Error, match="to be north, south"):
            shop.page.evaluate(f"values => client.answer('towns', values, {group})", PERSON)
    assert shop.left == 2
    shop.page.evaluate("values => client.answer('towns', values, { group: 'south' })", PERSON)
    assert shop.send() == {"sent": 1, "refused": 0, "waiting": 0}
    campaign = Campaign.from_dict(next(one for one in CAMPAIGNS if one["id"] == "towns"))
    assert {code: sums.users for code, sums in collector[1].sums(campaign)["once"].items()} == {1: 1}


def test_a_mechanism_that_it_lacks_is_refused(shop: Shop) -> None:
    shop.open()
    with pytest.raises(Error, match=r"cannot answer with mechanism 'staircase'\..*hybrid"):
        shop.answer("strange", {"minutes": 35})


def test_a_table_that_spends_too_much_is_refused(shop: Shop) -> None:
    """The page reckons the epsilon itself: it does not believe a collector that promises 2 and asks for more."""
    shop.open()

    def forge(route: Route) -> None:
        told = route.fetch().json()
        told["table"]["p_window"] = 0.9999
        route.fulfill(json=told, headers={"Access-Control-Allow-Origin": shop.site})

    shop.page.route("**/campaigns/daily/table", forge)
    with pytest.raises(Error, match=r"promises epsilon=2, but its mechanism spends \d+"):
        shop.answer("daily", {"minutes": 35})
    assert shop.left == 2


@pytest.mark.long
def test_a_question_that_changes_is_not_answered(shop: Shop) -> None:
    """A collector that tries one range after the other, to learn from the silence where the value is not, gets none."""
    shop.open(epsilon=100.0)
    asked: dict[str, Any] = {}

    def forge(route: Route) -> None:
        told = route.fetch().json() | asked
        if asked:
            del told["guarantee"]["law_sha256"]  # a liar does not state the law that the page would miss
        route.fulfill(json=told, headers={"Access-Control-Allow-Origin": shop.site})

    shop.page.route("**/campaigns/daily/table", forge)
    assert shop.page.evaluate("client.campaign('daily')")["attributes"] == [{"name": "minutes", "range": [0, 120]}]
    pair = {"kind": "two-point", "low": -1000.0, "high": 2000.0}
    for change in (
        {"attributes": [{"name": "minutes", "range": [30.0, 40.0]}], "table": pair},
        {"epsilon": 50.0},
        {"period": "month"},
        {"answers": "fresh"},
        {"public_group": {"name": "home", "values": ["a", "b"]}},
    ):
        asked |= change
        with pytest.raises(Error, match="asks something else than before"):
            shop.answer("daily", {"minutes": 35})
        asked.clear()
    assert shop.left == 100
    assert shop.answer("daily", {"minutes": 35})


@pytest.mark.long
def test_what_the_collector_refuses_is_told(shop: Shop) -> None:
    shop.open(key=KEYS["analyst"])
    shop.answer()
    assert shop.send() == {"sent": 0, "refused": 0, "waiting": 1}  # the key may be mended
    kept = shop.page.evaluate("JSON.parse(localStorage.getItem('noisette:device'))")
    assert kept["queue"][0]["reason"] == "This key does not have the role of device. Ask an operator for one that has."
    shop.open()
    assert shop.send() == {"sent": 1, "refused": 0, "waiting": 0}


@pytest.mark.long
def test_other_sites_are_not_let_in(shop: Shop, sites: list[str]) -> None:
    shop.site = sites[1]
    shop.open()
    with pytest.raises(Error, match="does not answer"):
        shop.answer()


@pytest.mark.long
def test_a_code_answers_once(shop: Shop, stored: Stored) -> None:
    """The token is signed unseen: the same blinded one however often an answer is lost, and one for each code."""
    asked: list[str] = []
    shop.open()
    with pytest.raises(Error, match="admits users by enrolment code"):
        shop.answer("admitted", {"minutes": 35})
    assert shop.left == 2
    shop.open(code=new_code(SECRET, 7))
    assert shop.answer("admitted", {"minutes": 35})
    shop.page.route("**/tokens", losing(asked))
    assert shop.send() == {"sent": 0, "refused": 0, "waiting": 1}
    shop.page.unroute("**/tokens")
    shop.page.route("**/reports", losing(asked))
    assert shop.send() == {"sent": 0, "refused": 0, "waiting": 1}
    shop.page.unroute("**/reports")
    shop.open(code=new_code(SECRET, 7))
    assert shop.send() == shop.send() == {"sent": 1, "refused": 0, "waiting": 0}
    blinded, reports = asked[:2], asked[2:]
    assert (len(set(blinded)), len(set(reports))) == (1, 1)
    (token,) = shop.page.evaluate(QUEUE)["tokens"].values()
    assert token["token"] in reports[0]
    assert token["token"] not in blinded[0]
    assert stored() == {"admitted": 1}


@pytest.mark.long
def test_codes_that_admit_nobody(shop: Shop) -> None:
    shop.open(code=new_code(SECRET, 8))
    shop.answer("admitted", {"minutes": 35})
    shop.send()
    for code, said in ((new_code(SECRET, 8), "has had its token"), ("8.0000", "none that was given")):
        shop.page.evaluate("localStorage.clear()")  # another device
        shop.open(code=code)
        shop.answer("admitted", {"minutes": 3})
        assert shop.send() == {"sent": 0, "refused": 1, "waiting": 0}
        assert said in shop.page.evaluate("client.refusals")[0][2]


@pytest.mark.long
def test_a_collector_that_would_mark_users_is_found_out(shop: Shop) -> None:
    """Another key for this user, or a signature of something else: the page stops, and the report stays."""
    shop.open(code=new_code(SECRET, 9))
    shop.answer("admitted", {"minutes": 35})

    def forge(path: str, field: str, value: str) -> None:
        headers = {"Access-Control-Allow-Origin": shop.site}
        shop.page.route(path, lambda route: route.fulfill(json=route.fetch().json() | {field: value}, headers=headers))

    forge("**/tokens", "signed", "AA" * 100)
    with pytest.raises(Error, match="Expected a signature of the blinded token"):
        shop.send()
    forge("**/tokens/*", "modulus", "f" * 512)
    with pytest.raises(Error, match="another key than before"):
        shop.send()
    forge("**/tokens/*", "modulus", "f" * 100)
    with pytest.raises(Error, match="odd modulus of 2048 bits"):
        shop.send()
    shop.page.unroute("**/tokens/*")
    shop.page.unroute("**/tokens")
    assert shop.send() == {"sent": 1, "refused": 0, "waiting": 0}
