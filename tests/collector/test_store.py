"""The store: accepted once, never twice, all of a batch or nothing, in SQLite and in PostgreSQL."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from tests.collector.helpers import COMMUTE, PERSON, entry
from tests.collector.postgres import Postgres, found

from noisette.collector import Campaign, Store
from noisette.collector.store import Accepted, Received, Refused


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    if not found():
        pytest.skip("no PostgreSQL server is installed here")
    with Postgres() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'reports.db'}"
    return str(request.getfixturevalue("postgres").new_database())


@pytest.fixture
def both(url: str, campaign: Campaign) -> Iterator[Store]:
    made = Store(url)
    made.register(campaign)
    yield made
    made.close()


def _received(campaign: Campaign, count: int, seed: int = 1) -> list[Received]:
    rng = np.random.default_rng(seed)
    return [Received(**entry(campaign.privatize(PERSON, rng=rng))) for _ in range(count)]


def _reconciled(store: Store, campaign: Campaign) -> int:
    """Check that the sums are those of the stored reports, and return how many there are."""
    stored = list(store.reports(campaign, "once"))
    sums = store.aggregate(campaign, "once")
    assert sums.users == len(stored)
    if stored:
        assert sums == campaign.aggregate(campaign.decode([one.report for one in stored]))
    return len(stored)


def test_reports_add_up_whatever_the_batches(both: Store, campaign: Campaign) -> None:
    sent = _received(campaign, 1300)
    assert both.accept(campaign, sent[:1]) == Accepted(1, 0)
    assert both.accept(campaign, sent[1:1250]) == Accepted(1249, 0)
    assert both.accept(campaign, sent[1200:]) == Accepted(50, 50)
    assert both.accept(campaign, sent) == Accepted(0, 1300)
    assert _reconciled(both, campaign) == 1300
    assert both.aggregate(campaign, "once") == campaign.aggregate(campaign.decode([one.report for one in sent]))
    assert both.periods(campaign) == {"once": 1300}


def test_contradictions_store_nothing(both: Store, campaign: Campaign) -> None:
    first, second, third = _received(campaign, 3)
    both.accept(campaign, [first])
    other = replace(second, key=first.key)
    with pytest.raises(Refused) as error:
        both.accept(campaign, [third, other])
    assert [(one.index, one.reason) for one in error.value.refusals] == [(1, "key-reused")]
    again = replace(second, token=first.token)
    with pytest.raises(Refused) as error:
        both.accept(campaign, [third, again, third])
    assert [(one.index, one.reason) for one in error.value.refusals] == [(1, "already-answered")]
    assert list(both.reports(campaign, "once")) == [first]
    assert _reconciled(both, campaign) == 1


def test_contradictions_within_a_batch(both: Store, campaign: Campaign) -> None:
    first, second = _received(campaign, 2)
    assert both.accept(campaign, [first, first]) == Accepted(1, 1)
    with pytest.raises(Refused, match="another report"):
        both.accept(campaign, [second, replace(second, token=first.token[::-1])])
    assert _reconciled(both, campaign) == 1


def test_an_error_in_the_middle_leaves_nothing(
    both: Store, campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise OSError("the machine fell over")

    with monkeypatch.context() as patch:
        patch.setattr(both, "_add", fails)  # the rows are inserted by then
        with pytest.raises(OSError, match="fell over"):
            both.accept(campaign, _received(campaign, 3))
    assert _reconciled(both, campaign) == 0


def test_many_threads_with_the_same_reports(both: Store, campaign: Campaign) -> None:
    sent = _received(campaign, 60)
    parts = [sent[start : start + 20] for start in range(0, 50, 5)] * 2
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda part: both.accept(campaign, part), parts))
    assert sum(one.accepted for one in done) == 60
    assert _reconciled(both, campaign) == 60


def test_postgresql_crashes_under_load(postgres: Postgres, campaign: Campaign) -> None:
    """What was acknowledged before the crash is there after recovery, and sending everything again doubles nothing."""
    store = Store(postgres.new_database())
    store.register(campaign)
    sent = _received(campaign, 50)
    batches = [[replace(one, **{k: entry(0)[k] for k in ("key", "token")}) for one in sent] for _ in range(200)]
    acknowledged: list[str] = []

    def send(batch: list[Received]) -> None:
        try:
            store.accept(campaign, batch)
        except sa.exc.OperationalError:
            return
        acknowledged.extend(one.key for one in batch)

    with ThreadPoolExecutor(3) as pool:
        done = pool.map(send, batches)
        deadline = time.monotonic() + 30
        while len(acknowledged) < 500 and time.monotonic() < deadline:
            time.sleep(0.005)
        postgres.crash()
        list(done)
    postgres.start()
    assert 500 <= len(acknowledged) < 10_000, "the crash came when nothing was under way"
    assert set(acknowledged) <= {one.key for one in store.reports(campaign, "once")}
    assert _reconciled(store, campaign) >= len(acknowledged)
    for batch in batches[:60]:
        store.accept(campaign, batch)
    known = set(acknowledged) | {one.key for batch in batches[:60] for one in batch}
    assert known <= {one.key for one in store.reports(campaign, "once")}
    _reconciled(store, campaign)
    store.close()


def test_a_campaign_is_kept_as_it_was(both: Store, url: str, campaign: Campaign) -> None:
    both.accept(campaign, _received(campaign, 5))
    other = Store(url)
    assert other.register(Campaign.from_dict(COMMUTE)).mechanism.spec() == campaign.mechanism.spec()
    with pytest.raises(ValueError, match=r"with another epsilon, users\. Devices may have answered"):
        other.register(Campaign.from_dict(COMMUTE | {"epsilon": 3.0, "users": 5}))
    assert _reconciled(other, campaign) == 5
    other.close()


def test_periods_are_apart(both: Store) -> None:
    weekly = both.register(Campaign.from_dict(COMMUTE | {"id": "weekly", "period": "week"}))
    one = replace(_received(weekly, 1)[0], period="2026-W01")
    next_week = replace(one, key=one.key[::-1] + "x", period="2026-W02")
    assert both.accept(weekly, [one, next_week]) == Accepted(2, 0)
    assert both.periods(weekly) == {"2026-W01": 1, "2026-W02": 1}
    assert both.aggregate(weekly, "2026-W03").users == 0


def test_labels_are_only_text(both: Store) -> None:
    name = "x'); DROP TABLE reports; --"
    odd = both.register(Campaign.from_dict(COMMUTE | {"id": "odd", "title": name, "mechanism": "auto", "report": None}))
    assert odd.title == name
    renamed = [{"name": name, "categories": ["<b>", '"; --']}]
    odd = both.register(Campaign.from_dict(COMMUTE | {"id": "odder", "attributes": renamed, "mechanism": "grr"}))
    reports = [Received(**entry(odd.privatize({name: '"; --'}, rng=seed))) for seed in range(3)]
    assert both.accept(odd, reports).accepted == 3


def test_sqlite_waits_for_the_disk(store: Store, tmp_path: Path) -> None:
    with store._writing() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2  # FULL
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"


def test_what_is_no_database_of_ours(tmp_path: Path) -> None:
    for wrong in ("mysql://host/name", "sqlite://", "reports.db", "", "oracle://x"):
        with pytest.raises(ValueError, match="sqlite:///FILE or postgresql"):
            Store(wrong)
    path = tmp_path / "new.db"
    Store(f"sqlite:///{path}").close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE noisette_collector SET version = 9")
    connection.close()
    with pytest.raises(ValueError, match="version"):
        Store(f"sqlite:///{path}")
    path = tmp_path / "text.db"
    path.write_text("no database, but a file that is long enough to be seen as one" * 100, encoding="utf-8")
    with pytest.raises(sa.exc.DatabaseError):
        Store(f"sqlite:///{path}")
