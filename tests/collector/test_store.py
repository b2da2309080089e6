"""The store: accepted once, never twice, all of a batch or nothing, in SQLite and in PostgreSQL."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from tests.collector.helpers import COMMUTE, accept, arrived, entries, entry, reconcile, tally
from tests.collector.postgres import Postgres

from noisette.collector import Store
from noisette.collector.intake.reception import store_all
from noisette.collector.storage import tables
from noisette.collector.storage.database import open_database
from noisette.collector.storage.sqlite import SqliteDatabase, insert_in_tree
from noisette.collector.storage.store import Accepted, Refused
from noisette.survey.batches import identities
from noisette.survey.campaigns import Campaign


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


def test_reports_add_up_whatever_the_batches(both: Store, campaign: Campaign) -> None:
    sent = entries(campaign, 1300)
    assert accept(both, campaign, *sent[:1]) == Accepted(1, 0)
    assert accept(both, campaign, *sent[1:1250]) == Accepted(1249, 0)
    assert accept(both, campaign, *sent[1200:]) == Accepted(50, 50)
    assert accept(both, campaign, *sent) == Accepted(0, 1300)
    assert reconcile(both, campaign) == 1300
    assert both.aggregate(campaign, "once") == tally(campaign, [one["report"] for one in sent])
    assert both.periods(campaign) == {"once": 1300}


def test_digests_and_marks_are_kept_to_the_bit(both: Store) -> None:
    """The extremes of 64 bits, and digests that are text to a careless eye; one that is there is told."""
    marks = np.asarray([-(2**63), 2**63 - 1, 0, -1, 2**53 + 1], dtype=np.int64)
    texts = [bytes(15) + b"\x01", b"\xff" * 15 + b"\xfe", b"'; --" + bytes(11), b"a" * 15 + b"b", b"\x00\xff" * 8]
    database = both.database
    in_tree = insert_in_tree if isinstance(database, SqliteDatabase) else database.add_digests
    for insert, of in ((database.add_digests, texts), (in_tree, [text[::-1] for text in texts])):
        order = np.argsort([text.hex() for text in of])
        digests = np.frombuffer(b"".join(sorted(of)), np.uint8).reshape(-1, 16)
        with both.writing() as connection:
            assert insert(connection, digests, marks[order])
        with both.writing() as connection:
            assert database.find_digests(connection, of) == dict(zip(of, marks.tolist(), strict=True))
            assert not insert(connection, digests[3:], marks[3:])


def test_contradictions_store_nothing(both: Store, campaign: Campaign) -> None:
    first, second, third = entries(campaign, 3)
    accept(both, campaign, first)
    with pytest.raises(Refused) as error:
        accept(both, campaign, third, second | {"key": first["key"]})
    assert [(one.index, one.reason) for one in error.value.refusals] == [(1, "key-reused")]
    with pytest.raises(Refused) as error:
        accept(both, campaign, third, second | {"token": first["token"]}, third)
    assert [(one.index, one.reason) for one in error.value.refusals] == [(1, "already-answered")]
    with pytest.raises(Refused) as error:  # the same report under another key: a second answer all the same
        accept(both, campaign, first | {"key": third["key"]})
    assert [one.reason for one in error.value.refusals] == ["already-answered"]
    assert np.array_equal(both.rows(campaign, "once"), campaign.decode([first["report"]]))
    assert reconcile(both, campaign) == 1


def test_contradictions_within_a_batch(both: Store, campaign: Campaign) -> None:
    first, second = entries(campaign, 2)
    assert accept(both, campaign, first, first) == Accepted(1, 1)
    with pytest.raises(Refused, match="another report"):
        accept(both, campaign, second, second | {"token": first["token"][::-1]})
    assert reconcile(both, campaign) == 1


def test_one_bad_batch_does_not_hinder_those_beside_it(both: Store, campaign: Campaign) -> None:
    """Batches that are committed together fare each by itself."""
    sent = entries(campaign, 6)
    accept(both, campaign, sent[0])
    bodies = [
        arrived(campaign, sent[1], sent[2]),
        arrived(campaign, sent[3], sent[4] | {"token": sent[0]["token"]}),
        arrived(campaign, sent[5] | {"report": [[0, 1e9]]}),
        arrived(campaign, sent[0], sent[1]),
    ]
    done = store_all(both, bodies)
    assert (done[0], done[3]) == (Accepted(2, 0), Accepted(0, 2))
    wrong = [one.refusals[0].reason for one in done if isinstance(one, Refused)]
    assert wrong == ["already-answered", "out-of-support"]
    assert reconcile(both, campaign) == 3


def test_an_error_in_the_middle_leaves_nothing(
    both: Store, campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise OSError("the machine fell over")

    with monkeypatch.context() as patch:
        patch.setattr(both, "_write", fails)  # the digests are inserted by then
        with pytest.raises(OSError, match="fell over"):
            accept(both, campaign, *entries(campaign, 3))
    assert reconcile(both, campaign) == 0
    assert accept(both, campaign, *entries(campaign, 3)) == Accepted(3, 0)


def test_many_threads_with_the_same_reports(both: Store, url: str, campaign: Campaign) -> None:
    """Two stores, as two processes would have, and threads of both: each report counts once."""
    sent = entries(campaign, 60)
    other = Store(url)
    parts = [(store, sent[start : start + 20]) for start in range(0, 50, 5) for store in (both, other)]
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda part: accept(part[0], campaign, *part[1]), parts))
    assert sum(one.accepted for one in done) == 60
    assert reconcile(both, campaign) == 60
    other.close()


@pytest.mark.long
def test_postgresql_crashes_under_load(postgres: Postgres, campaign: Campaign) -> None:
    """What was acknowledged before the crash is there after recovery, and sending everything again doubles nothing."""
    store = Store(postgres.new_database())
    store.register(campaign)
    sent = entries(campaign, 50)
    batches = [[one | {k: entry(0)[k] for k in ("key", "token")} for one in sent] for _ in range(60)]
    acknowledged: list[int] = []

    def send(number: int) -> None:
        try:
            accept(store, campaign, *batches[number])
        except sa.exc.OperationalError:
            return
        acknowledged.append(number)

    with ThreadPoolExecutor(3) as pool:
        done = pool.map(send, range(len(batches)))
        deadline = time.monotonic() + 300
        while len(acknowledged) < 10 and time.monotonic() < deadline:
            time.sleep(0.005)
        postgres.crash()
        list(done)
    postgres.start()
    assert 10 <= len(acknowledged) < 60, "the crash came when nothing was under way"
    assert reconcile(store, campaign) >= 50 * len(acknowledged)
    for number in acknowledged:
        assert accept(store, campaign, *batches[number]) == Accepted(0, 50)
    for batch in batches:
        accept(store, campaign, *batch)
    assert reconcile(store, campaign) == 3000
    store.close()


def test_a_campaign_is_kept_as_it_was(both: Store, url: str, campaign: Campaign) -> None:
    accept(both, campaign, *entries(campaign, 5))
    other = Store(url)
    assert other.register(Campaign.from_dict(COMMUTE)).mechanism.spec() == campaign.mechanism.spec()
    with pytest.raises(ValueError, match=r"with another epsilon\. Devices may have answered"):
        other.register(Campaign.from_dict(COMMUTE | {"epsilon": 3.0, "users": 5}))
    assert reconcile(other, campaign) == 5
    other.close()


def test_sums_of_another_layout_are_made_anew(
    both: Store, url: str, campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that counts in other bins finds sums that it cannot read, and sums the stored reports again."""
    from noisette.survey import sums

    sent = entries(campaign, 40)
    for one in sent:
        accept(both, campaign, one)
    before = both.aggregate(campaign, "once")
    monkeypatch.setattr(sums, "BINS", 7)
    other = Store(url)
    known = other.register(campaign)
    after = other.aggregate(known, "once")
    assert after == tally(known, [one["report"] for one in sent])
    assert after.vector.size != before.vector.size
    assert reconcile(other, known) == 40
    other.close()


def test_periods_are_apart(both: Store) -> None:
    weekly = both.register(Campaign.from_dict(COMMUTE | {"id": "weekly", "period": "week"}))
    one = entries(weekly, 1)[0] | {"period": "2026-W01"}
    next_week = one | {"key": one["key"][::-1] + "x", "period": "2026-W02"}
    assert accept(both, weekly, one, next_week) == Accepted(2, 0)
    with pytest.raises(Refused) as error:
        accept(both, weekly, next_week | {"key": "k" * 20, "report": [[0, 0.0]]}, one)
    assert [(refusal.index, refusal.reason) for refusal in error.value.refusals] == [(0, "already-answered")]
    assert both.periods(weekly) == {"2026-W01": 1, "2026-W02": 1}
    assert both.aggregate(weekly, "2026-W03").users == 0


def test_labels_are_only_text(both: Store) -> None:
    name = "x'); DROP TABLE reports; --"
    odd = both.register(Campaign.from_dict(COMMUTE | {"id": "odd", "title": name, "mechanism": "auto", "report": None}))
    assert odd.title == name
    renamed = [{"name": name, "categories": ["<b>", '"; --']}]
    odd = both.register(Campaign.from_dict(COMMUTE | {"id": "odder", "attributes": renamed, "mechanism": "grr"}))
    reports = [entry(odd.privatize({name: '"; --'}, rng=seed)) for seed in range(3)]
    assert accept(both, odd, *reports).accepted == 3


OLD = (
    "CREATE TABLE noisette_collector (version INTEGER PRIMARY KEY)",
    "CREATE TABLE campaigns (id VARCHAR(63) PRIMARY KEY, definition TEXT NOT NULL)",
    "CREATE TABLE reports (number INTEGER PRIMARY KEY, campaign VARCHAR(63) NOT NULL REFERENCES campaigns (id), "
    "key VARCHAR(64) NOT NULL, period VARCHAR(16) NOT NULL, token VARCHAR(64) NOT NULL, report TEXT NOT NULL, "
    "UNIQUE (campaign, key), UNIQUE (campaign, period, token))",
    "CREATE TABLE aggregates (campaign VARCHAR(63) NOT NULL REFERENCES campaigns (id), period VARCHAR(16) NOT NULL, "
    "users BIGINT NOT NULL, PRIMARY KEY (campaign, period))",
    "INSERT INTO noisette_collector VALUES (1)",
)


def _old_database(url: str, campaign: Campaign, sent: list[dict[str, Any]]) -> None:
    """Make a database as the first version of the collector left it."""
    database = open_database(url)
    with database.writing() as connection:
        for statement in OLD:
            connection.exec_driver_sql(statement)
        wire = campaign.to_wire()
        for unknown in ("public_group", "joint", "tokens"):
            del wire[unknown]
        connection.execute(sa.insert(tables.campaigns).values(id=campaign.id, definition=json.dumps(wire)))
        insert = sa.text("INSERT INTO reports VALUES (:number, :campaign, :key, :period, :token, :report)")
        for number, one in enumerate(sent):
            row = one | {"number": number, "campaign": campaign.id, "report": json.dumps(one["report"])}
            connection.execute(insert, row)
    database.close()


@pytest.mark.long
def test_a_database_of_the_first_version_is_brought_along(
    url: str, campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is lost, nothing counts twice afterwards, and a step that fails leaves the old tables as they were."""
    from noisette.collector.storage import migrations

    sent = entries(campaign, 57)
    _old_database(url, campaign, sent)
    with monkeypatch.context() as patch:
        patch.setattr(migrations, "_ROWS_AT_ONCE", 10)
        patch.setattr(migrations.Batch, "columns", property(lambda _: 1 / 0))
        with pytest.raises(ZeroDivisionError):
            Store(url)
    monkeypatch.setattr(migrations, "_ROWS_AT_ONCE", 10)
    store = Store(url)
    assert store.register(campaign).mechanism.spec() == campaign.mechanism.spec()
    assert reconcile(store, campaign) == 57
    assert store.aggregate(campaign, "once") == tally(campaign, [one["report"] for one in sent])
    assert accept(store, campaign, *sent) == Accepted(0, 57)
    with pytest.raises(Refused, match="another report"):
        accept(store, campaign, entries(campaign, 1)[0] | {"key": sent[5]["key"]})
    assert not {"reports", "aggregates"} & set(sa.inspect(store.database.engine).get_table_names())
    store.close()
    Store(url).close()  # and once more finds nothing to do


def test_a_database_of_the_third_version_is_brought_along(both: Store, url: str, campaign: Campaign) -> None:
    """It had no log before the index: all that it has seen is known, and new reports go on."""
    sent = entries(campaign, 30)
    accept(both, campaign, *sent)
    with both.writing() as connection:
        for row in connection.execute(sa.select(tables.digest_log)).all():
            digests = np.frombuffer(row.digests, np.uint8).reshape(-1, 16)
            assert insert_in_tree(connection, digests, np.frombuffer(row.marks, "<i8"))
        connection.exec_driver_sql("DROP TABLE digest_log")
        connection.exec_driver_sql("UPDATE noisette_collector SET version = 3")
    store = Store(url)
    assert store.register(campaign).mechanism.spec() == campaign.mechanism.spec()
    assert accept(store, campaign, *sent, *entries(campaign, 5)) == Accepted(5, 30)
    assert reconcile(store, campaign) == 35
    store.close()


def test_a_database_of_the_fifth_version_is_brought_along(both: Store, url: str, campaign: Campaign) -> None:
    """PostgreSQL kept digests as strings of bytes: what was seen stays known, and the index takes less room."""
    sent = entries(campaign, 30)
    accept(both, campaign, *sent)
    kind = {one["name"]: one["type"] for one in sa.inspect(both.database.engine).get_columns("seen")}["digest"]
    with both.writing() as connection:
        if url.startswith("postgresql"):
            assert isinstance(kind, sa.Uuid)
            older = "bytea USING decode(replace(digest::text, '-', ''), 'hex')"
            connection.exec_driver_sql(f"ALTER TABLE seen ALTER COLUMN digest TYPE {older}")
        connection.exec_driver_sql("UPDATE noisette_collector SET version = 5")
    store = Store(url)
    assert accept(store, campaign, *sent, *entries(campaign, 5)) == Accepted(5, 30)
    assert reconcile(store, campaign) == 35
    after = {one["name"]: one["type"] for one in sa.inspect(store.database.engine).get_columns("seen")}["digest"]
    assert type(after) is type(kind)
    store.close()


def test_a_database_of_the_eighth_version_is_brought_along(both: Store, url: str, campaign: Campaign) -> None:
    """Its log of digests had another name: what stands in it alone is known as well."""
    sent = entries(campaign, 30)
    accept(both, campaign, *sent)
    with both.writing() as connection:
        connection.exec_driver_sql("ALTER TABLE digest_log RENAME TO fresh")
        connection.exec_driver_sql("UPDATE noisette_collector SET version = 8")
    store = Store(url)
    assert accept(store, campaign, *sent, *entries(campaign, 5)) == Accepted(5, 30)
    assert reconcile(store, campaign) == 35
    assert "fresh" not in sa.inspect(store.database.engine).get_table_names()
    store.close()


def _write(store: Store, connection: sa.Connection, campaign: Campaign, count: int) -> None:
    """Write reports in a transaction that goes on; whoever waits for a lock is told so."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("SET LOCAL lock_timeout = '200ms'")
    batches = list(arrived(campaign, *entries(campaign, count)))
    store._write(connection, batches, store._sums_of(batches), identities(batches))


def test_two_processes_wait_for_no_lock(postgres: Postgres, campaign: Campaign) -> None:
    """One has added to its sums and not committed; the other adds to its own meanwhile, and both are added up."""
    url = postgres.new_database()
    one, other = Store(url), Store(url)
    one.register(campaign)
    for store in (one, other):
        accept(store, campaign, *entries(campaign, 3))
    assert one.database.writer_number != other.database.writer_number
    with one.writing() as first, other.writing() as second:
        _write(one, first, campaign, 5)
        _write(other, second, campaign, 4)
    assert reconcile(other, campaign) == 15
    other.database._number = one.database.writer_number  # type: ignore[attr-defined]  # the twin: one row for both
    with pytest.raises(sa.exc.OperationalError), one.writing() as first, other.writing() as second:  # noqa: PT012
        _write(one, first, campaign, 1)
        _write(other, second, campaign, 1)
    for store in (one, other):
        store.close()


def test_a_connection_that_breaks_is_told_as_any_failure(postgres: Postgres, campaign: Campaign) -> None:
    """Whenever it breaks, before the first statement too: the service answers 503 to what the database raises."""
    store = Store(postgres.new_database())
    store.register(campaign)
    accept(store, campaign, *entries(campaign, 2))
    for writes_first in (False, True):
        with store.reading() as other, pytest.raises(sa.exc.OperationalError), store.writing() as connection:  # noqa: PT012
            pid = connection.connection.driver_connection.info.backend_pid  # type: ignore[union-attr]
            if writes_first:
                _write(store, connection, campaign, 1)
            other.exec_driver_sql(f"SELECT pg_terminate_backend({pid}, 5000)")
            batches = list(arrived(campaign, *entries(campaign, 1)))
            store._write(connection, batches, store._sums_of(batches), identities(batches))
    assert accept(store, campaign, *entries(campaign, 3)) == Accepted(3, 0)
    assert reconcile(store, campaign) == 5
    store.close()


def test_sqlite_waits_for_the_disk(store: Store, tmp_path: Path) -> None:
    with store.writing() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2  # FULL
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"


def test_sqlite_writes_through_one_connection(store: Store, campaign: Campaign) -> None:
    """Readers come and go, also while something is written: the connection that writes keeps its pages."""
    store.register(campaign)
    used = set()
    for one in entries(campaign, 5):
        with store.reading() as first, store.reading() as second:
            first.exec_driver_sql("SELECT count(*) FROM seen")
            second.exec_driver_sql("SELECT count(*) FROM seen")
            accept(store, campaign, one)
        with store.writing() as connection:
            used.add(id(connection.connection.dbapi_connection))
            assert connection.exec_driver_sql("PRAGMA cache_size").scalar() == -65536
    assert len(used) == 1
    assert reconcile(store, campaign) == 5


def test_what_is_no_database_of_ours(tmp_path: Path) -> None:
    for wrong in ("mysql://host/name", "sqlite://", "reports.db", "", "oracle://x"):
        with pytest.raises(ValueError, match="sqlite:///FILE or postgresql"):
            Store(wrong)
    path = tmp_path / "new.db"
    Store(f"sqlite:///{path}").close()
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE noisette_collector SET version = {tables.SCHEMA + 1}")
    connection.close()
    with pytest.raises(ValueError, match="version"):
        Store(f"sqlite:///{path}")
    path = tmp_path / "text.db"
    path.write_text("no database, but a file that is long enough to be seen as one" * 100, encoding="utf-8")
    with pytest.raises(sa.exc.DatabaseError):
        Store(f"sqlite:///{path}")
