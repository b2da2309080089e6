"""Web pages behind a shuffler: they seal in a real browser, and the collector never learns whose report is whose."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Error
from tests.collector.helpers import (
    COMMUTE,
    KEYS,
    PERSON,
    SECRET,
    Both,
    auth,
    behind_a_shuffler,
    known_keys,
    reconcile,
    running,
    until,
)
from tests.collector.web import Shop, losing
from tests.shuffler.processes import shuffler

from noisette.collector import Store, create_app
from noisette.collector.intake.shuffled import Shuffled
from noisette.device import ShuffledClient
from noisette.device.blind import new_code
from noisette.shuffler import Clients, ServerKey, new_secret
from noisette.survey.campaigns import Campaign


def through(both: Both, name: str) -> dict[str, str]:
    """Return what a page is told of the shuffler."""
    key = both.shuffled.key.public.text
    return {"url": both.shuffler, "client": name, "secret": both.secret_of[name], "publicKey": key}


@pytest.fixture
def both(tmp_path: Path, campaign: Campaign, sites: list[str]) -> Iterator[Both]:
    with behind_a_shuffler(tmp_path, campaign, 2, origins=sites[:1]) as made:
        yield made


@pytest.fixture
def shop(browser: Browser, both: Both, sites: list[str]) -> Iterator[Shop]:
    context = browser.new_context()
    yield Shop(context.new_page(), both.collector, sites[0])
    context.close()


@contextmanager
def shuffler_process(folder: Path, secret_of: dict[str, str], own: str, collector: str, site: str) -> Iterator[str]:
    """Run `noisette federate shuffler` in a process of its own, and give its address."""
    (folder / "clients.json").write_text(json.dumps(secret_of), encoding="utf-8")
    (folder / "shuffler.json").write_text(json.dumps({"shuffler": own}), encoding="utf-8")
    process = shuffler(folder, collector, "--minimum", str(len(secret_of)), "--allow-origin", site)
    try:
        yield process.start()
    finally:
        process.stop()


@pytest.mark.long
def test_pages_and_devices_are_mixed(browser: Browser, tmp_path: Path, sites: list[str]) -> None:
    """Two pages and Python's client, tokens signed unseen, a shuffler of its own process: one batch, each counted."""
    campaign = Campaign.from_dict(COMMUTE | {"tokens": "blind"})
    own, secret_of = new_secret(), {name: new_secret() for name in ("anna", "ben", "python")}
    store, key = Store(f"sqlite:///{tmp_path / 'reports.db'}"), ServerKey.generate()
    shuffled = Shuffled(key, Clients({"shuffler": own}), minimum=3)
    app = create_app([campaign], store, known_keys(), shuffled=shuffled, origins=sites[:1])
    with running(app) as url, shuffler_process(tmp_path, secret_of, own, url, sites[0]) as mixing:
        both = Both(url, mixing, store, shuffled, secret_of, own)
        for number, name in enumerate(("anna", "ben")):
            context = browser.new_context()
            shop = Shop(context.new_page(), url, sites[0])
            shop.open(code=new_code(SECRET, number), shuffler=through(both, name))
            assert shop.answer()
            assert shop.send() == shop.send() == {"sent": 1, "refused": 0, "waiting": 0}
            context.close()
        assert not store.periods(campaign)  # two have no company yet
        options: dict[str, Any] = {"credentials": ("python", secret_of["python"]), "public_key": key.public.text}
        options |= {"api_key": KEYS["device"], "epsilon": 2.0, "code": new_code(SECRET, 2), "state": tmp_path / "own"}
        with ShuffledClient(url, shuffler=mixing, **options) as client:
            client.answer("commute", PERSON)
            assert client.send().sent == 1
        until(lambda: store.periods(campaign) == {"once": 3})
        assert "noisette_reports_rejected_total{" not in httpx.get(f"{url}/metrics", headers=auth("auditor")).text
        assert reconcile(store, campaign) == 3
    store.close()


@pytest.mark.long
def test_an_answer_of_the_shuffler_that_was_lost(shop: Shop, both: Both, campaign: Campaign) -> None:
    """What the shuffler has is not sent twice, in whatever post it comes; nothing of it can be read on the way."""
    posted: list[str] = []
    shop.open(shuffler=through(both, "device-0"))
    shop.answer()
    shop.page.route("**/posts", losing(posted))
    assert shop.send() == {"sent": 0, "refused": 0, "waiting": 1}
    shop.page.unroute("**/posts")
    assert shop.send() == {"sent": 1, "refused": 0, "waiting": 0}
    assert len(posted) == 2
    assert len(set(posted)) == 1
    kept = shop.page.evaluate("JSON.parse(localStorage.getItem('noisette:device'))")
    assert kept["queue"][0]["key"] not in posted[0]
    assert "report" not in posted[0]
    shop.page.evaluate("localStorage.clear()")  # another device
    shop.open(shuffler=through(both, "device-1"))
    shop.answer()
    assert shop.send()["sent"] == 1
    until(lambda: both.store.periods(campaign) == {"once": 2})


@pytest.mark.long
def test_what_is_wrong_is_told_before_anything_is_spent(shop: Shop, both: Both) -> None:
    good = through(both, "device-0")
    shop.open()
    with pytest.raises(Error, match=r"reports from its shuffler alone: open the client with \{ shuffler"):
        shop.answer()
    assert shop.left == 2
    for wrong, said in (
        ({"client": "no name"}, "client='no name'"),
        ({"secret": "short"}, "64 hexadecimal digits"),
        ({"publicKey": "short"}, "44 letters"),
        ({"publicKey": "A" * 43 + "="}, "cannot seal for this key"),  # of small order: everybody could open it
    ):
        with pytest.raises(Error, match=said):
            shop.open(shuffler=good | wrong)
    shop.open(shuffler=good)
    assert shop.left == 2


@pytest.mark.long
def test_a_secret_that_the_shuffler_does_not_know(shop: Shop, both: Both) -> None:
    shop.open(shuffler=through(both, "device-0") | {"secret": new_secret()})
    shop.answer()
    assert shop.send() == {"sent": 0, "refused": 0, "waiting": 1}  # it may be enrolled yet
    kept = shop.page.evaluate("JSON.parse(localStorage.getItem('noisette:device'))")
    assert "an enrolled client has signed" in kept["queue"][0]["reason"]
    shop.open(shuffler=through(both, "device-0"))
    assert shop.send() == {"sent": 1, "refused": 0, "waiting": 0}


@pytest.mark.long
def test_pages_of_other_sites_do_not_reach_the_shuffler(shop: Shop, both: Both, sites: list[str]) -> None:
    shop.site = sites[1]
    shop.page.route(
        "**/campaigns/commute/table",
        lambda route: route.fulfill(response=route.fetch(), headers={"Access-Control-Allow-Origin": sites[1]}),
    )
    shop.open(shuffler=through(both, "device-0"))
    shop.answer()
    assert shop.send() == {"sent": 0, "refused": 0, "waiting": 1}


def test_a_collector_without_a_shuffler(browser: Browser, store: Store, campaign: Campaign, sites: list[str]) -> None:
    """The page does not believe itself hidden where nobody hides it."""
    context = browser.new_context()
    with running(create_app([campaign], store, known_keys(), origins=sites[:1])) as url:
        shop = Shop(context.new_page(), url, sites[0])
        key = ServerKey.generate().public.text
        shop.open(shuffler={"url": url, "client": "a", "secret": new_secret(), "publicKey": key})
        with pytest.raises(Error, match="has no shuffler in front of it"):
            shop.answer()
        assert shop.left == 2
    context.close()
