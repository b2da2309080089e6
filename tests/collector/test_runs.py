"""PostgreSQL's digests in runs: whatever was seen is known, in the young table and in every run, to every process."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from psycopg.pq import ExecStatus
from tests.collector.helpers import accept, arrived, entries, reconcile
from tests.collector.postgres import Postgres

from noisette.collector import Store
from noisette.collector.storage import postgres as storage
from noisette.collector.storage.filters import DigestFilter
from noisette.collector.storage.store import Accepted, Refused
from noisette.survey.batches import Digests
from noisette.survey.campaigns import Campaign

pytestmark = pytest.mark.slow


def drawn(count: int) -> Digests:
    return np.frombuffer(secrets.token_bytes(16 * count), np.uint8).reshape(-1, 16)


def tables_of(store: Store) -> dict[str, int]:
    """Return the tables that digests are in, and how many are in each."""
    with store.reading() as connection:
        names = [name for _, name in connection.exec_driver_sql(storage._RUNS)]
        return {name: connection.exec_driver_sql(f'SELECT count(*) FROM ONLY "{name}"').scalar_one() for name in names}


def covered(store: Store) -> None:
    """Wait until the filter covers every run."""
    database: Any = store.database
    database._cover()
    database._reader.join()


@pytest.fixture
def two(postgres: Postgres, campaign: Campaign, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Store, Store]]:
    """Two processes, as far as the database can tell, whose young table is soon full."""
    monkeypatch.setattr(storage, "_FULL", 20_000)  # bytes: some 300 digests
    monkeypatch.setattr(storage, "_PAUSE", 0.0)
    url = postgres.new_database()
    one, other = Store(url), Store(url)
    one.register(campaign)
    yield one, other
    for store in (one, other):
        store.close()


def test_the_filter_forgets_nothing() -> None:
    """Beyond its first level too; of what was never added it suspects few. Chance of a false alarm below 1e-6."""
    added, made = drawn(1_200_000), DigestFilter()
    for part in np.array_split(added, 7):
        made.add(part)
    assert made.suspects(added).all()
    assert not made.suspects(drawn(0)).size
    assert made.suspects(drawn(100_000)).mean() < 0.01
    assert not DigestFilter().suspects(drawn(10)).any()


@pytest.mark.long
def test_what_was_seen_stays_known_in_every_run(two: tuple[Store, Store], campaign: Campaign) -> None:
    """By the process that wrote it, by another one, and by one that has just begun: with its filter and without."""
    one, other = two
    sent = entries(campaign, 1000)
    for start in range(0, 1000, 100):
        assert accept(one, campaign, *sent[start : start + 100]) == Accepted(100, 0)
    sizes = tables_of(one)
    assert len(sizes) > 4  # the parent, the young one, and runs
    assert sum(sizes.values()) == 2000  # a token and a key each
    assert sizes["seen"] == 0
    again = Store(one.database.engine.url.render_as_string(hide_password=False))
    for store in (one, other, again):
        for _ in range(2):
            assert accept(store, campaign, *sent[::7]) == Accepted(0, len(sent[::7]))
            with pytest.raises(Refused, match="already answered"):
                accept(store, campaign, entries(campaign, 1)[0] | {"token": sent[3]["token"]})
            assert not store.add(arrived(campaign, sent[500]))  # as new reports are tried
            covered(store)
    again.close()
    assert reconcile(other, campaign) == 1000


@pytest.mark.long
def test_nobody_counts_twice_while_runs_are_made(two: tuple[Store, Store], campaign: Campaign) -> None:
    """Two processes get the same reports at the same time, while each makes runs: every one is accepted by one."""
    sent = entries(campaign, 1500)
    parts = [sent[start : start + 30] for start in range(0, 1500, 30)]

    def send(store: Store) -> int:
        return sum(accept(store, campaign, *part).accepted for part in parts)

    with ThreadPoolExecutor(2) as pool:
        counts = list(pool.map(send, two))
    assert sum(counts) == 1500
    assert len(tables_of(two[0])) > 4
    assert reconcile(two[0], campaign) == 1500


def test_who_reads_for_long_stops_nobody(two: tuple[Store, Store], campaign: Campaign) -> None:
    """A backup has every table in use: no run is made meanwhile, reports are stored, and a run is made afterwards."""
    one, other = two
    with other.database.snapshot() as connection:
        connection.exec_driver_sql("SELECT count(*) FROM seen")
        for _ in range(5):
            assert accept(one, campaign, *entries(campaign, 100)) == Accepted(100, 0)
        assert tables_of(one) == {"seen": 0, "seen_young": 1000}
    accept(one, campaign, *entries(campaign, 1))
    assert tables_of(one)["seen_young"] == 0


def test_digests_of_the_sixth_version_stay_known(two: tuple[Store, Store], campaign: Campaign) -> None:
    """They are in the table itself, from which the others inherit now."""
    one, _ = two
    sent = entries(campaign, 100)
    accept(one, campaign, *sent)
    for store in two:
        covered(store)  # nobody reads the table that is dropped now
    with one.writing() as connection:
        connection.exec_driver_sql("INSERT INTO seen SELECT * FROM seen_young")
        connection.exec_driver_sql("DROP TABLE seen_young")
        connection.exec_driver_sql("UPDATE noisette_collector SET version = 6")
    again = Store(one.database.engine.url.render_as_string(hide_password=False))
    assert tables_of(again) == {"seen": 200, "seen_young": 0}
    for _ in range(2):
        assert accept(again, campaign, *sent, *entries(campaign, 5)) == Accepted(5, 100)
        covered(again)
    assert reconcile(again, campaign) == 110
    again.close()


def test_rows_lose_their_order(two: tuple[Store, Store], campaign: Campaign) -> None:
    """The young table and every run lie in the order of digests once house was kept, which tells no time."""
    one, _ = two
    for _ in range(7):
        accept(one, campaign, *entries(campaign, 61))
    one.mix()
    with one.reading() as connection:
        for name in tables_of(one):
            order = connection.exec_driver_sql(f'SELECT digest FROM ONLY "{name}" ORDER BY ctid').scalars().all()
            assert order == sorted(order)
    assert reconcile(one, campaign) == 427


@pytest.mark.parametrize(
    ("closed", "seconds", "answer", "kept"),
    [
        (False, None, "COMMAND_OK", True),  # it was never given back
        (False, None, "FATAL_ERROR", True),
        (False, 1.0, "FATAL_ERROR", True),  # used a moment ago: nobody asks
        (False, 1.001, "FATAL_ERROR", False),
        (False, 1.001, "EMPTY_QUERY", True),
        (True, 0.0, "EMPTY_QUERY", False),
    ],
)
def test_a_connection_that_was_idle_is_tried(
    closed: bool, seconds: float | None, answer: str, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a server that went away has left is replaced, what works is used again."""
    now = [100.0]
    monkeypatch.setattr(storage, "time", SimpleNamespace(monotonic=lambda: now[0]))
    status = getattr(ExecStatus, answer)
    raw = SimpleNamespace(closed=closed, pgconn=SimpleNamespace(exec_=lambda _: SimpleNamespace(status=status)))
    record = SimpleNamespace(info={})
    if seconds is not None:
        storage._note_use(raw, record)
        now[0] += seconds
    if kept:
        storage._try_idle(raw, record, None)
    else:
        with pytest.raises(sa.exc.DisconnectionError):
            storage._try_idle(raw, record, None)
