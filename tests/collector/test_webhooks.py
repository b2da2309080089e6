"""Calls to the owner's address: what makes them, what they say, that they are tried again, whom they never reach."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from fastapi import FastAPI, Request, Response
from tests.collector.helpers import KEYS, OPERATOR, accept, auth, entry, known_keys, running

from noisette.collector import Store, create_app
from noisette.collector.campaigns.roster import Roster
from noisette.collector.storage import tables
from noisette.collector.storage.tracks import note_arrivals
from noisette.collector.web import webhooks
from noisette.collector.web.webhooks import check_address, post, resolved
from noisette.survey.campaigns import Campaign

COINS = Campaign.from_dict(
    {"id": "coins", "epsilon": 1.0, "users": 3, "attributes": [{"name": "side", "categories": ["heads", "tails"]}]}
    | {"mechanism": "grr"}
)

OWNER = {"Authorization": f"Bearer {OPERATOR}"}


class Receiver:
    """A machine of the owner's that takes calls, after it was busy for some."""

    def __init__(self, busy: int) -> None:
        self.calls: list[dict[str, Any]] = []
        self.busy = busy
        self.app = FastAPI(openapi_url=None)
        self.app.post("/hook")(self._take)

    async def _take(self, request: Request) -> Response:
        if self.busy:
            self.busy -= 1
            return Response(status_code=503)
        self.calls.append(await request.json())
        return Response(status_code=204)

    def events(self) -> list[str]:
        return [one["event"] for one in self.calls]


def wait_for(true: Callable[[], bool]) -> None:
    """Wait for a condition, for long where the machine is busy."""
    end = time.monotonic() + 600
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks and pauses of a moment, and reports that count as stopped at once."""
    made = webhooks.Webhooks.__init__

    def quick(self: Any, service: Any, *, local: bool = False) -> None:
        made(self, service, local=local, every=0.02, quiet=timedelta(seconds=0))

    monkeypatch.setattr(webhooks.Webhooks, "__init__", quick)
    monkeypatch.setattr(webhooks, "_PAUSES", (0.0, 0.01, 0.01, 0.01))


@pytest.mark.long
def test_a_call_for_each_event_once(tmp_path: Path, hasty: None) -> None:
    receiver = Receiver(busy=2)
    database = f"sqlite:///{tmp_path / 'r.db'}"
    with running(receiver.app) as hook:
        with running(create_app([COINS], Store(database), known_keys(), local_webhooks=True)) as url:
            device = {"Authorization": f"Bearer {KEYS['device']}"}

            def answer(side: str, seed: int) -> None:
                report = {"version": 1} | entry(COINS.privatize({"side": side}, rng=seed))
                httpx.post(f"{url}/campaigns/coins/reports", json=report, headers=device).raise_for_status()

            changed = httpx.patch(f"{url}/campaigns/coins", json={"webhook": f"{hook}/hook"}, headers=OWNER)
            assert changed.json()["life"]["webhook"] == f"{hook}/hook"
            shown = httpx.get(f"{url}/campaigns/coins", headers=device).json()
            assert "webhook" not in shown["life"], "devices are not told where the owner's machine is"
            answer("heads", 1)
            wait_for(lambda: receiver.events() == ["reports-stopped"])  # the third attempt
            assert receiver.busy == 0
            answer("heads", 2)
            answer("tails", 3)
            wait_for(lambda: "target-reached" in receiver.events())
            told = receiver.calls[-1]
            assert (told["campaign"], told["users"], told["target_users"]) == ("coins", 3, 3)
        before = len(receiver.calls)
        with running(create_app([], Store(database), known_keys(), local_webhooks=True)):
            time.sleep(0.5)  # many looks; nothing marks that nothing happens
        assert len(receiver.calls) == before, "a restart tells nothing again"


def test_private_addresses_are_not_called() -> None:
    for address in ("http://example.org/x", "https://", "ftp://example.org", "https://me@example.org/", 7, "x"):
        with pytest.raises(ValueError, match="such as https"):
            check_address(address)
    assert check_address("https://example.org/x") == "https://example.org/x"
    for host in ("127.0.0.1", "localhost", "10.0.0.1", "169.254.169.254", "::1", "0.0.0.0"):
        with pytest.raises(ValueError, match="no public address"):
            resolved(host, 443, local=False)
    with pytest.raises(ValueError, match="no public address"):
        post("https://127.0.0.1:1/hook", b"{}", local=False)
    assert resolved("127.0.0.1", 80, local=True) == "127.0.0.1"
    ways = ("[::ffff:169.254.169.254]", "[64:ff9b::a9fe:a9fe]", "[2002:a9fe:a9fe::1]", "[2001:0::1]", "224.0.0.1")
    for host in (*ways, "169.254.169.254", "[::1]", "0.0.0.0"):
        with pytest.raises(ValueError, match="no public address"):
            check_address(f"https://{host}/latest/meta-data")
    assert check_address("https://93.184.215.14/x") == "https://93.184.215.14/x"


def test_an_address_that_is_never_called_is_refused_when_it_is_given(tmp_path: Path) -> None:
    """An owner once learned nothing: the address was taken, and every call failed in the log."""
    terms = {"id": "b", "epsilon": 1.0, "users": 9, "questions": [{"name": "x", "range": [0, 1]}]}
    with running(create_app([COINS], Store(f"sqlite:///{tmp_path / 'r.db'}"), known_keys())) as url:
        for address in ("http://example.org/x", "https://10.0.0.1/x", "https://[::ffff:127.0.0.1]/x"):
            changed = httpx.patch(f"{url}/campaigns/coins", json={"webhook": address}, headers=OWNER)
            opened = httpx.post(f"{url}/campaigns", json=terms | {"webhook": address}, headers=OWNER)
            assert (changed.status_code, opened.status_code) == (422, 422)
        fine = {"webhook": "https://example.org/x"}
        assert httpx.patch(f"{url}/campaigns/coins", json=fine, headers=OWNER).status_code == 200
        assert httpx.post(f"{url}/campaigns", json=terms | fine, headers=OWNER).status_code == 201


def test_a_restart_does_not_begin_the_day_without_reports_anew(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path / 'r.db'}")
    store.register(COINS)
    accept(store, COINS, entry(COINS.privatize({"side": "heads"}, rng=1)))
    roster = Roster(store)
    roster.change("coins", {"webhook": "https://example.org/x"}, "test")
    hooks = webhooks.Webhooks(SimpleNamespace(store=store, roster=roster))  # type: ignore[arg-type]  # what it looks at
    for ago, events in ((3600, []), (90_000, ["reports-stopped"])):
        with store.writing() as connection:
            connection.execute(sa.delete(tables.arrivals))
        note_arrivals(store, COINS, "once", [(time.time() - ago, 1)])
        hooks._seen["coins", "once"] = (1, time.monotonic())  # this process has just begun to look
        assert [event for event, _ in hooks._happened(COINS)] == events
    store.close()


@pytest.mark.slow
def test_redirects_are_not_followed(hasty: None) -> None:
    app, reached = FastAPI(openapi_url=None), []
    app.post("/hook")(lambda: Response(status_code=307, headers={"Location": "/inner"}))
    app.post("/inner")(lambda: reached.append(1))
    with running(app) as url:
        assert post(f"{url}/hook", b"{}", local=True) == 307
    assert reached == []


@pytest.mark.long
def test_liars_are_told_of(tmp_path: Path, hasty: None) -> None:
    receiver = Receiver(busy=0)
    campaign = Campaign.from_dict(
        {"id": "lies", "epsilon": 1.0, "users": 10_000, "attributes": [{"name": "x", "categories": list("abcdefgh")}]}
        | {"mechanism": "oue"}
    )
    store = Store(f"sqlite:///{tmp_path / 'r.db'}")
    with (
        running(receiver.app) as hook,
        running(create_app([campaign], store, known_keys(), local_webhooks=True)) as url,
    ):
        device = {"Authorization": f"Bearer {KEYS['device']}"}
        for _ in range(60):  # no honest user nearly always sends all bits
            report = {"version": 1} | entry([1] * 8)
            httpx.post(f"{url}/campaigns/lies/reports", json=report, headers=device).raise_for_status()
        httpx.patch(f"{url}/campaigns/lies", json={"webhook": f"{hook}/hook"}, headers=OWNER)
        wait_for(lambda: "liars-suspected" in receiver.events())


def test_a_link_shows_one_campaign_and_changes_nothing(tmp_path: Path) -> None:
    other = Campaign.from_dict(
        {"id": "other", "epsilon": 1.0, "users": 9, "attributes": [{"name": "x", "range": [0, 1]}]}
    )
    store = Store(f"sqlite:///{tmp_path / 'r.db'}")
    with running(create_app([COINS, other], store, known_keys())) as url:
        made = httpx.post(f"{url}/campaigns/coins/links", json={"days": 2}, headers=OWNER)
        assert made.status_code == 201
        assert made.json()["link"].startswith(f"{url}/dashboard#coins?key=")
        key = {"Authorization": f"Bearer {made.json()['link'].partition('key=')[2]}"}
        listed = httpx.get(f"{url}/dashboard/overview", headers=key).json()["campaigns"]
        assert [one["id"] for one in listed] == ["coins"]
        assert httpx.get(f"{url}/dashboard/overview", headers=key).json()["rejected"] is None  # those of all campaigns
        assert httpx.get(f"{url}/dashboard/overview", headers=auth("analyst")).json()["rejected"] == {}
        assert httpx.get(f"{url}/campaigns/coins/certificate", headers=key).status_code == 200
        assert httpx.get(f"{url}/dashboard/campaigns/coins", headers=key).is_success
        assert httpx.get(f"{url}/campaigns/coins/estimates", params={"format": "csv"}, headers=key).is_success
        for path in (
            "/dashboard/campaigns/other",
            "/campaigns/other/estimates",
            "/keys",
            "/audit",
            "/metrics",
            "/campaigns",
        ):
            assert httpx.get(f"{url}{path}", headers=key).status_code == 403, path
        for path in ("close", "links", "archive"):
            assert httpx.post(f"{url}/campaigns/coins/{path}", json={}, headers=key).status_code == 403, path
        assert httpx.post(f"{url}/campaigns/coins/reports", json={}, headers=key).status_code == 403
        assert httpx.post(f"{url}/campaigns/coins/links", json={}, headers=auth("analyst")).status_code == 403
        httpx.delete(f"{url}/keys/{made.json()['name']}", headers=OWNER).raise_for_status()
        assert httpx.get(f"{url}/dashboard/overview", headers=key).status_code == 401


class Clock:
    """A time that the test sets."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now + 5_000_000.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    own = Clock()
    monkeypatch.setattr(webhooks, "time", own)
    return own


class Kept:
    """A store of which the test says who has reported and what is in the log."""

    def __init__(self) -> None:
        self.users, self.noted, self.lines = 0, list[tuple[str, ...]](), list[dict[str, Any]]()
        self.registry = self

    def periods(self, campaign: Campaign) -> dict[str, int]:
        return {"once": self.users} if self.users else {}

    def note(self, *line: str) -> None:
        self.noted.append(line)

    def log(self, after: int) -> list[dict[str, Any]]:
        return [one for one in self.lines if one["number"] > after][:3]


def looking(monkeypatch: pytest.MonkeyPatch, kept: Kept, failed: int = 0, state: str = "open", **given: Any) -> Any:
    told = [{"about": f"q{place}", "test": "sums"} for place in range(failed)]

    def estimates(*asked: Any) -> Any:
        assert asked[1:] == ("once", 0.95, "none")
        return {"suspicions": {"failed": told}}

    life = SimpleNamespace(webhook="https://example.org/x", state=state)
    roster = SimpleNamespace(campaigns={"coins": COINS}, life=lambda _: life)
    monkeypatch.setattr(webhooks, "arrivals", lambda *_: [])
    service: Any = SimpleNamespace(store=kept, roster=roster, estimates=estimates)
    return webhooks.Webhooks(service, **given)


def test_the_target_is_reached_and_not_before(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    kept = Kept()
    hooks = looking(monkeypatch, kept)
    for users, events in ((0, []), (2, []), (3, ["target-reached"]), (4, ["target-reached"])):
        kept.users = users
        assert [event for event, _ in hooks._happened(COINS)] == events
    assert next(hooks._happened(COINS))[1] == {"period": "once", "users": 4, "target_users": 3}


def test_reports_stop_after_a_day(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    kept = Kept()
    hooks = looking(monkeypatch, kept)
    day = 24 * 3600.0
    for moment, users, events in (
        (0.0, 0, []),
        (2 * day, 0, []),  # nobody has begun
        (2 * day + 5, 1, []),
        (3 * day + 4, 1, []),
        (3 * day + 5, 1, ["reports-stopped"]),
        (3 * day + 6, 2, []),  # another one
        (4 * day + 5, 2, []),
        (4 * day + 6, 2, ["reports-stopped"]),
    ):
        clock.now, kept.users = 1000.0 + moment, users
        assert [event for event, _ in hooks._happened(COINS)] == events


def test_what_an_earlier_process_saw_counts(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    hooks = looking(monkeypatch, Kept())
    for came, here, seconds in (
        ([], 7.0, 7.0),
        ([(clock.time() - 50.0, 1), (clock.time() - 20.0, 2)], 7.0, 20.0),
        ([(clock.time() - 50.0, 1), (clock.time() - 20.0, 2)], 30.0, 30.0),
        ([(clock.time() - 50.0, 2), (clock.time() - 20.0, 3)], 7.0, 7.0),  # others have come since
    ):
        monkeypatch.setattr(webhooks, "arrivals", lambda *_, came=came: came)
        assert hooks._quiet_for(COINS, "once", 2, here) == seconds


@pytest.mark.parametrize(("failed", "told"), [(0, 0), (1, 1), (4, 3)])
def test_liars_are_looked_for_when_somebody_has_come(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, failed: int, told: int
) -> None:
    kept = Kept()
    hooks = looking(monkeypatch, kept, failed)
    assert list(hooks._happened(COINS)) == []  # nobody: nothing to look at
    kept.users = 1
    found = list(hooks._happened(COINS))
    assert [event for event, _ in found] == ["liars-suspected"] * bool(failed)
    for _, facts in found:
        assert facts["failed"] == [f"q{place}: sums" for place in range(told)]
    assert list(hooks._happened(COINS)) == []  # nobody since


def test_one_user_at_the_first_look_is_looked_at(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    kept = Kept()
    kept.users = 1
    found = list(looking(monkeypatch, kept, 1)._happened(COINS))
    assert [event for event, _ in found] == ["liars-suspected"]


def test_a_call_is_tried_four_times(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    kept, asked = Kept(), list[tuple[float, bool]]()
    kept.users = 3
    hooks = looking(monkeypatch, kept, local=True)

    def refused(address: str, body: bytes, *, local: bool) -> int:
        asked.append((clock.now - 1000.0, local))
        return 503

    monkeypatch.setattr(webhooks, "post", refused)
    for moment in (0.0, 1.9, 2.0, 11.9, 12.0, 71.9, 72.0, 1e6):
        clock.now = 1000.0 + moment
        hooks.look()
        assert bool(kept.noted) is (moment >= 72.0)
    assert asked == [(0.0, True), (2.0, True), (12.0, True), (72.0, True)]
    assert kept.noted == [("webhook:coins", "told-webhook", "target-reached/once")]
    told: list[Any] = [vars(one)["fields"] for one in caplog.records if one.message == "webhook"]
    assert [one["attempt"] for one in told] == [1, 2, 3, 4]
    assert {(one["event"], one["campaign"]) for one in told} == {("target-reached", "coins")}


def test_what_was_taken_or_told_before_is_not_told_again(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    kept, asked = Kept(), list[Any]()
    kept.users = 3
    monkeypatch.setattr(webhooks, "post", lambda *given, **_: asked.append(given) or 204)
    hooks = looking(monkeypatch, kept)
    for _ in range(3):
        hooks.look()
    assert len(asked) == len(kept.noted) == 1
    assert asked[0][0] == "https://example.org/x"
    lines = [("other", "told-webhook"), *[("coins", "opened")] * 4, ("coins", "told-webhook"), ("coins", "closed")]
    kept.lines = [
        {"number": 10 * place + 10, "who": f"webhook:{who}", "action": action, "subject": "target-reached/once"}
        for place, (who, action) in enumerate(lines)
    ]
    looking(monkeypatch, kept).look()  # another process, with a log of three pages
    assert len(asked) == 1
    kept.lines = kept.lines[:5]
    looking(monkeypatch, kept).look()
    assert len(asked) == 2
    kept.lines = []
    looking(monkeypatch, kept, state="closed").look()
    assert len(asked) == 2
    hooks = looking(monkeypatch, kept)
    hooks._ended.set()
    hooks.look()
    assert len(asked) == 2


def test_what_counts_as_taken() -> None:
    told = {status: webhooks.attempted(lambda: status) for status in (199, 200, 299, 300)}  # noqa: B023 - called at once
    assert told == {199: "status 199", 200: "taken", 299: "taken", 300: "status 300"}

    def fails(error: Exception) -> Callable[[], int]:
        def call() -> int:
            raise error

        return call

    for error in (httpx.ConnectTimeout("x"), OSError("x"), ValueError("x")):
        assert webhooks.attempted(fails(error)) == type(error).__name__
    with pytest.raises(KeyError):
        webhooks.attempted(fails(KeyError("x")))


def test_a_name_with_one_private_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(*numbers: str) -> Callable[..., Any]:
        return lambda host, port, type: [(None, type, 6, "", (number, port)) for number in numbers]

    monkeypatch.setattr(webhooks.socket, "getaddrinfo", found("93.184.215.14", "93.184.215.15"))
    assert resolved("example.org", 443, local=False) == "93.184.215.14"
    for numbers in (("93.184.215.14", "10.0.0.1"), ("fe80::1%eth0", "93.184.215.14")):
        monkeypatch.setattr(webhooks.socket, "getaddrinfo", found(*numbers))
        with pytest.raises(ValueError, match="no public address"):
            resolved("example.org", 443, local=False)
        assert resolved("example.org", 443, local=True) == numbers[0]
    assert check_address("http://10.0.0.1/x", local=True) == "http://10.0.0.1/x"
    with pytest.raises(ValueError, match="such as https"):
        check_address("ftp://10.0.0.1/x", local=True)


@pytest.mark.parametrize(
    ("address", "port"),
    [("https://a.example/x", 443), ("http://a.example/x", 80), ("https://a.example:8443/x", 8443)],
)
def test_the_port_of_an_address(monkeypatch: pytest.MonkeyPatch, address: str, port: int) -> None:
    asked = list[tuple[str, int, bool]]()

    def resolving(host: str, number: int, *, local: bool) -> str:
        asked.append((host, number, local))
        raise OSError("that is enough")

    monkeypatch.setattr(webhooks, "resolved", resolving)
    with pytest.raises(OSError, match="enough"):
        post(address, b"{}", local=True)
    assert asked == [("a.example", port, True)]
