"""When a campaign takes reports, what an operator may change, and what is noted of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.collector.helpers import COMMUTE, KEYS, PERSON, accept, auth, entries, entry, reconcile, running, until

from noisette.collector import Store, create_app
from noisette.collector.campaigns.life import EARLY, LATE, OVER, Life, Untimely, span
from noisette.collector.campaigns.roster import Roster
from noisette.collector.storage import sqlite
from noisette.collector.storage.database import DatabaseFailure
from noisette.collector.web.access import Keys
from noisette.survey.campaigns import Campaign

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
DAILY = Campaign.from_dict(COMMUTE | {"id": "daily", "period": "day", "answers": "fresh"})
OPERATOR = {"Authorization": "Bearer key-of-the-operator-in-tests"}


@pytest.mark.parametrize(
    ("period", "now", "reason"),
    [
        ("2026-03-10", NOON, None),
        ("2026-03-11", NOON, EARLY),
        ("2026-03-11", datetime(2026, 3, 10, 23, 50, tzinfo=UTC), None),  # a clock that is ten minutes ahead
        ("2026-03-11", datetime(2026, 3, 10, 23, 49, tzinfo=UTC), EARLY),
        ("2026-03-03", NOON, None),  # its end was seven days ago at midnight, and late reports have seven days
        ("2026-03-03", datetime(2026, 3, 11, tzinfo=UTC), LATE),
        ("2026-03-02", NOON, LATE),
        ("1000-01-01", NOON, LATE),
        ("9999-12-30", NOON, EARLY),
    ],
)
def test_a_period_takes_reports_for_a_stated_time(period: str, now: datetime, reason: str | None) -> None:
    if reason is None:
        Life().check(DAILY, period, now)
        return
    with pytest.raises(Untimely) as caught:
        Life().check(DAILY, period, now)
    assert caught.value.reason == reason


def test_a_campaign_opens_and_closes() -> None:
    once = Campaign.from_dict(COMMUTE)
    life = Life.read({"opens": "2026-03-10", "closes": "2026-03-20", "late": "1 day", "skew": "0 seconds"})
    moments = {
        datetime(2026, 3, 9, 23, 59, tzinfo=UTC): EARLY,
        datetime(2026, 3, 10, tzinfo=UTC): None,
        datetime(2026, 3, 21, 23, 59, tzinfo=UTC): None,  # the day of closing counts, and a day for late reports
        datetime(2026, 3, 22, tzinfo=UTC): OVER,
    }
    for now, reason in moments.items():
        if reason is None:
            life.check(once, "once", now)
        else:
            with pytest.raises(Untimely) as caught:
                life.check(once, "once", now)
            assert caught.value.reason == reason
    with pytest.raises(Untimely, match="closed"):
        life.changed({"state": "closed"}).check(once, "once", NOON)
    # a day after the closing is no period of the campaign, whenever it is sent
    with pytest.raises(Untimely):
        life.check(DAILY, "2026-03-21", datetime(2026, 3, 21, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"late": "soon"}, "late='soon' to be a length of time, e.g. 7 days"),
        ({"late": 7}, "late=7 to be a length"),
        ({"late": "99999999999 days"}, "to be a length of time"),
        ({"closes": "tomorrow"}, "closes='tomorrow' to be a day or a moment"),
        ({"opens": "2026-03-02", "closes": "2026-03-01"}, "to be after opens"),
        ({"least": 0}, "least"),
        ({"liars": 0.5}, r"liars=0.5 to be a share in \[0, 0.5\)"),
        ({"epsilon": 3.0}, "Cannot change 'epsilon' of a campaign"),
        ({"state": "gone"}, "state='gone' to be one of open, closed, archived"),
    ],
)
def test_what_is_wrong_is_said(told: dict[str, Any], why: str) -> None:
    with pytest.raises((ValueError, TypeError), match=why):
        Life().changed(told)


def test_a_life_is_read_back() -> None:
    life = Life(title="Other", closes=NOON, keep=timedelta(days=30), liars=0.02, least=50, state="closed")
    assert Life().changed(json.loads(json.dumps(life.written()))) == life


def test_periods_have_ends() -> None:
    assert span("week", "2026-W01") == (datetime(2025, 12, 29, tzinfo=UTC), datetime(2026, 1, 5, tzinfo=UTC))
    for kind, name in (("day", "2026-02-30"), ("week", "2026-W54"), ("month", "2026-13"), ("day", "2026-3-1")):
        with pytest.raises(ValueError, match=f"to name a {kind}"):
            span(kind, name)


def test_reports_go_when_they_are_old_and_sums_stay(store: Store) -> None:
    store.register(DAILY, Life.read({"keep": "30 days"}).written())
    roster = Roster(store)
    accept(store, DAILY, *[one | {"period": "2026-03-10"} for one in entries(DAILY, 5)])
    before = store.aggregate(DAILY, "2026-03-10")
    assert roster.expire(datetime(2026, 4, 16, tzinfo=UTC)) == 0
    assert roster.expire(datetime(2026, 4, 17, 1, tzinfo=UTC)) == 5
    assert roster.expire(datetime(2026, 4, 18, tzinfo=UTC)) == 0
    assert store.aggregate(DAILY, "2026-03-10") == before
    assert not list(store.batches(DAILY, "2026-03-10"))
    assert [one["action"] for one in store.registry.log()] == ["open-campaign", "expire-reports"]


def test_mixing_keeps_every_report(store: Store, campaign: Campaign) -> None:
    store.register(campaign)
    sent = entries(campaign, 40)
    for one in sent:
        accept(store, campaign, one)
    with store.reading() as connection:
        before = connection.exec_driver_sql("SELECT count(*) FROM digest_log").scalar()
    assert before == 40
    assert store.mix() == 40
    assert store.mix() == 0
    assert reconcile(store, campaign) == 40
    assert len(list(store.batches(campaign, "once"))) == 1
    with store.reading() as connection:
        assert not connection.exec_driver_sql("SELECT count(*) FROM digest_log WHERE length(digests) > 0").scalar()
    # what was stored before is known after
    assert accept(store, campaign, *sent).repeated == 40


@pytest.fixture
def live(store: Store, campaign: Campaign, tmp_path: Path) -> Iterator[httpx.Client]:
    """A service whose keys are in a file."""
    path = tmp_path / "keys.yaml"
    keys = {role: [key] for role, key in KEYS.items()} | {"operator": [OPERATOR["Authorization"][7:]]}
    path.write_text(json.dumps(keys), encoding="utf-8")
    with running(create_app([campaign], store, Keys.read(path))) as url, httpx.Client(base_url=url, timeout=60) as own:
        yield own


def _send(client: httpx.Client, campaign: Campaign) -> httpx.Response:
    body = {"version": 1} | entry(campaign.privatize(PERSON, rng=1))
    return client.post(f"/campaigns/{campaign.id}/reports", json=body, headers=auth("device"))


def test_a_campaign_lives_without_a_restart(live: httpx.Client) -> None:
    fields = COMMUTE | {"id": "second", "closes": "2999-12-31", "late": "2 days"}
    opened = live.post("/campaigns", json=fields, headers=OPERATOR)
    assert opened.status_code == 201, opened.text
    assert opened.json()["life"]["late"] == "172800 seconds"
    second = Campaign.from_wire(live.get("/campaigns/second", headers=auth("device")).json())
    assert _send(live, second).status_code == 201
    changed = live.patch("/campaigns/second", json={"title": "Another", "users": 5000}, headers=OPERATOR)
    assert changed.status_code == 200, changed.text
    shown = live.get("/campaigns/second", headers=auth("analyst")).json()
    assert (shown["title"], shown["users"]) == ("Another", 5000)
    assert live.post("/campaigns/second/close", headers=OPERATOR).status_code == 200
    refused = _send(live, second)
    assert (refused.status_code, refused.json()["reason"]) == (410, OVER)
    assert live.delete("/campaigns/commute", headers=OPERATOR).json()["reason"] == "bad-change"  # it is open
    assert live.delete("/campaigns/second", headers=OPERATOR).status_code == 204
    assert _send(live, second).status_code == 404
    again = live.post("/campaigns", json=fields, headers=OPERATOR)
    assert "which was deleted. Choose another id" in again.json()["detail"]
    log = live.get("/audit", headers=auth("auditor")).json()["changes"]
    assert [(one["who"], one["action"], one["subject"]) for one in log] == [
        ("file", "open-campaign", "commute"),
        ("file/operator-1", "open-campaign", "second"),
        ("file/operator-1", "edit-campaign", "second"),
        ("file/operator-1", "close-campaign", "second"),
        ("file/operator-1", "delete-campaign", "second"),
    ]


def test_only_operators_change_anything(live: httpx.Client) -> None:
    for role in ("device", "analyst", "auditor"):
        for method, path in (
            ("POST", "/campaigns"),
            ("PATCH", "/campaigns/commute"),
            ("POST", "/campaigns/commute/close"),
            ("POST", "/campaigns/commute/archive"),
            ("DELETE", "/campaigns/commute"),
            ("POST", "/keys"),
            ("DELETE", "/keys/one"),
        ):
            assert live.request(method, path, headers=auth(role), json={}).status_code == 403, (role, path)
            assert live.request(method, path, json={}).status_code == 401
    wrong = live.patch("/campaigns/commute", json={"epsilon": 9.0}, headers=OPERATOR)
    assert (wrong.status_code, wrong.json()["reason"]) == (422, "bad-query")
    wrong = live.patch("/campaigns/commute", json={"late": "soon"}, headers=OPERATOR)
    assert (wrong.status_code, wrong.json()["reason"]) == (422, "bad-change")


def test_keys_are_named_given_out_and_ended(live: httpx.Client, campaign: Campaign) -> None:
    made = live.post("/keys", json={"name": "phones-2027", "role": "device", "days": 30}, headers=OPERATOR)
    assert made.status_code == 201
    own = {"Authorization": f"Bearer {made.json()['key']}"}
    assert live.get("/campaigns/commute", headers=own).status_code == 200
    assert live.get("/campaigns/commute", headers=auth("device")).status_code == 200  # the other is valid as well
    assert live.get("/audit", headers=own).status_code == 403
    listed = live.get("/keys", headers=OPERATOR).json()["keys"]
    assert [one["name"] for one in listed] == ["phones-2027"]
    assert made.json()["key"] not in json.dumps(listed)
    assert live.post("/keys", json={"name": "phones-2027", "role": "device"}, headers=OPERATOR).status_code == 422
    assert live.delete("/keys/phones-2027", headers=OPERATOR).status_code == 204
    assert live.get("/campaigns/commute", headers=own).status_code == 401


@pytest.mark.slow
def test_a_file_of_keys_is_read_again(live: httpx.Client, tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    own = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(own | {"device": ["the-next-key-of-the-devices", *own["device"]]}), encoding="utf-8")
    new = {"Authorization": "Bearer the-next-key-of-the-devices"}
    until(lambda: live.get("/campaigns/commute", headers=new).status_code == 200)
    assert live.get("/campaigns/commute", headers=auth("device")).status_code == 200
    path.write_text("device: [short]", encoding="utf-8")  # an error leaves all as it was
    assert live.get("/campaigns/commute", headers=new).status_code == 200


@pytest.mark.long
def test_another_process_sees_a_change(live: httpx.Client, store: Store) -> None:
    Roster(store).change("commute", {"title": "Elsewhere"}, "command line")
    until(lambda: live.get("/campaigns/commute", headers=auth("analyst")).json()["title"] == "Elsewhere")


def test_nothing_is_shown_of_fewer_than_the_least(live: httpx.Client, campaign: Campaign) -> None:
    live.patch("/campaigns/commute", json={"least": 3}, headers=OPERATOR)
    for users in (1, 2, 3):
        assert _send(live, campaign).status_code == 201
        found = live.get("/campaigns/commute/estimates", headers=auth("analyst")).json()
        assert (found["users"], found["withheld"]) == (users, users < 3)
        known = [row["value"] is not None for row in found["dimensions"]]
        assert any(known) is (users == 3)
        assert found["drift"]["users"] == ([3] if users == 3 else [])


def test_a_database_is_the_owners_alone(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path / 'new.db'}")
    store.register(DAILY)
    for path in tmp_path.iterdir():
        assert path.stat().st_mode & 0o077 == 0, path
    store.close()
    (tmp_path / "old.db").touch(mode=0o644)
    Store(f"sqlite:///{tmp_path / 'old.db'}").close()
    assert (tmp_path / "old.db").stat().st_mode & 0o077 == 0


def test_ready_is_false_when_reports_would_be_refused(live: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    assert live.get("/ready").status_code == 200
    with monkeypatch.context() as patch:
        patch.setattr(sqlite, "_FREE_DISK_BYTES", 1 << 62)  # the disk is full
        assert live.get("/ready").status_code == 503
    assert live.get("/ready").status_code == 200


def test_a_database_that_cannot_be_written_to_is_not_ready(store: Store, campaign: Campaign) -> None:
    store.register(campaign)
    with store.database.writer.connect() as connection:
        connection.exec_driver_sql("PRAGMA query_only = ON")
    with pytest.raises(DatabaseFailure, match="readonly"):
        store.ping()


@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [
        ("wanted", [0.01, 0.5, 100, None], [0, -1.0, 100.1]),
        ("liars", [0, 0.0, 0.49], [0.5, -0.01, "0.1"]),
        ("least", [1, 5], [0, -3]),
        ("state", ["open", "closed", "archived"], ["ended"]),
        ("webhook", ["https://a", "http://a", None], ["ftp://a", "a"]),
    ],
)
def test_ends_of_what_an_owner_may_say(field: str, good: list[Any], bad: list[Any]) -> None:
    for value in good:
        assert getattr(Life(**{field: value}), field) == value
    for value in bad:
        with pytest.raises(ValueError, match=field):
            Life(**{field: value})


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1 second", 1),
        ("90 seconds", 90),
        (" 10 minutes ", 600),
        ("2 hours", 7200),
        ("7 days", 7 * 86400),
        ("3 weeks", 21 * 86400),
        ("0 days", 0),
        ("36500 days", 36500 * 86400),
        ("36501 days", None),
        ("3153600000 seconds", 36500 * 86400),
        ("3153600001 seconds", None),
        ("9" * 5000 + " weeks", None),
        ("0000000007 days", 7 * 86400),
        ("00000000007 days", None),
        ("day", None),
        ("-1 days", None),
        ("1.5 days", None),
        ("1 year", None),
        (7, None),
        (None, None),
    ],
)
def test_lengths_of_time_as_they_are_written(text: Any, seconds: int | None) -> None:
    if seconds is None:
        with pytest.raises(ValueError, match="late="):
            Life.read({"late": text})
    else:
        assert Life.read({"late": text}).late == timedelta(seconds=seconds)
        assert Life.read(Life.read({"late": text}).written()).late == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-03-10", datetime(2026, 3, 10, tzinfo=UTC)),
        ("2026-03-10T05:00", datetime(2026, 3, 10, 5, tzinfo=UTC)),
        ("2026-03-10T05:00:00+02:00", datetime(2026, 3, 10, 3, tzinfo=UTC)),
        (datetime(2026, 3, 10, 5), datetime(2026, 3, 10, 5, tzinfo=UTC)),  # of a file without a zone
    ],
)
def test_moments_as_they_are_written(text: Any, moment: datetime) -> None:
    """The day of an end is included."""
    assert Life.read({"opens": text}).opens == moment
    whole_day = isinstance(text, str) and len(text) == 10
    assert Life.read({"closes": text}).closes == moment + timedelta(days=1 if whole_day else 0)
    for wrong in ("2026-13-01", "soon", 5, "9999-12-31"):
        if wrong != "9999-12-31":
            with pytest.raises(ValueError, match="opens="):
                Life.read({"opens": wrong})
        else:
            with pytest.raises(ValueError, match="closes="):
                Life.read({"closes": wrong})
