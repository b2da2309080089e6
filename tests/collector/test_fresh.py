"""The log before SQLite's index: whatever happens, a digest is known from its commit on, and exactly once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa
from tests.collector.helpers import digests

from noisette.collector import Store
from noisette.collector.storage import sqlite, tables
from noisette.collector.storage.sqlite import DigestLog
from noisette.survey.batches import Digests, pieces


class Undone(Exception):
    """Raised to roll a transaction back."""


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """Let so few digests wait that many go on in every transaction."""
    monkeypatch.setattr(sqlite, "MOST_DIGESTS", 200)
    monkeypatch.setattr(sqlite, "_UNSORTED_DIGESTS", 60)
    return 200


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[Store, Store]]:
    """Two stores on one file, as two processes have it."""
    stores = tuple(Store(f"sqlite:///{tmp_path / 'reports.db'}") for _ in range(2))
    yield stores[0], stores[1]
    for store in stores:
        store.close()


def _drawn(rng: np.random.Generator, count: int) -> Digests:
    """Return digests in order of their bytes: some begin alike, for 64 bits or for 12."""
    made = rng.integers(0, 256, (count, 16), dtype=np.uint8)
    made[rng.random(count) < 0.1, :8] = 7
    made[rng.random(count) < 0.1, :2] = 255
    unique = np.unique(made, axis=0)
    return unique


def _play(stores: tuple[Store, Store], steps: int) -> tuple[dict[bytes, int], int]:
    """Insert at random through both stores, some of it twice, some of it rolled back; return what must be known."""
    rng = np.random.default_rng(3)
    model: dict[bytes, int] = {}
    refused = 0
    for step in range(steps):
        store = stores[int(rng.integers(2))] if step % 40 > 20 else stores[0]
        part = _drawn(rng, int(rng.integers(1, 120)))
        if model and rng.random() < 0.3:
            old = list(model)[int(rng.integers(len(model)))]
            part = np.unique(np.vstack([part, np.frombuffer(old, np.uint8)]), axis=0)
        marks = rng.integers(-(2**63), 2**63 - 1, len(part))
        names = pieces(part)
        try:
            with store.writing() as connection:
                known = store.database.find_digests(connection, names)
                assert known == {name: model[name] for name in names if name in model}
                done = store.database.add_digests(connection, part, marks)
                assert done == (not known)
                if not done or rng.random() < 0.2:
                    raise Undone
        except Undone:
            refused += not done
            continue
        model |= dict(zip(names, marks.tolist(), strict=True))
    return model, refused


@pytest.mark.long
def test_digests_are_known_from_their_commit_on(two: tuple[Store, Store], few: int) -> None:
    """Against a dictionary: two processes in turns, rollbacks, digests that begin alike, many rounds of all parts."""
    model, refused = _play(two, 300)
    assert refused > 30
    assert digests(two[0]) == model
    with two[0].reading() as connection:
        waiting = connection.execute(sa.select(tables.digest_log)).all()
        settled = connection.exec_driver_sql("SELECT count(*) FROM seen").scalar_one()
    assert settled >= len(model) - few, "more waits than may"
    assert waiting[-1].turn > 10 * sqlite._PARTS
    assert sum(len(row.digests) for row in waiting) < 16 * 4 * few, "rows of the log are not taken away"


def test_one_who_does_not_read_the_log_is_seen(
    two: tuple[Store, Store], few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin: an index that believes what it has written itself forgets others, and what was rolled back."""
    monkeypatch.setattr(DigestLog, "_replay", lambda *_: None)
    with pytest.raises(AssertionError):
        _play(two, 300)


def test_a_digest_twice_in_one_batch(two: tuple[Store, Store]) -> None:
    part = np.zeros((3, 16), dtype=np.uint8)
    part[2, 15] = 1
    with two[0].writing() as connection:
        assert not two[0].database.add_digests(connection, part, np.arange(3))
        assert two[0].database.add_digests(connection, part[1:], np.arange(2))
    assert len(digests(two[1])) == 2


def test_a_batch_larger_than_may_wait(two: tuple[Store, Store], few: int) -> None:
    rng = np.random.default_rng(5)
    for _ in range(3):
        part = _drawn(rng, 5 * few)
        with two[0].writing() as connection:
            assert two[0].database.add_digests(connection, part, np.arange(len(part)))
        with two[1].writing() as connection:
            assert not two[1].database.add_digests(connection, part[-1:], np.arange(1))
            assert len(two[1].database.find_digests(connection, pieces(part))) == len(part)
