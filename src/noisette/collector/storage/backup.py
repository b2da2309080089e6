"""A whole database in one file and back, and whether sums and reports of a database agree.

A backup is a database of SQLite with the same tables, whatever the original is, read in one transaction while the
service goes on. What is acknowledged after that moment is not in it: `unknown` names the periods of which that is so.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import sqlalchemy as sa

from noisette._files import whole_file
from noisette.collector.storage import tables
from noisette.collector.storage.database import located, snapshot
from noisette.collector.storage.store import Store, stored_batches
from noisette.survey.batches import DIGEST_BYTES, pieces
from noisette.survey.campaigns import Campaign
from noisette.survey.sums import Sums

_DIGESTS_AT_ONCE = 5000
_BACKUP = "backup"


@dataclass(frozen=True)
class Verified:
    """One period of a campaign: users in the sums, stored reports, and what is wrong, if anything is."""

    campaign: str
    period: str
    users: int
    reports: int
    wrong: str


def verify(url: str) -> Iterator[Verified]:
    """Sum every stored report again, compare bits, and look every token up, except where reports have expired."""
    with closing(Store(located(url))) as store:
        for name, (campaign, _) in store.registry.campaigns().items():
            gone = store.registry.expired(name)
            for period in store.periods(campaign):
                yield _verified(store, campaign, period, expired=period in gone)


def _verified(store: Store, campaign: Campaign, period: str, *, expired: bool) -> Verified:
    kept: dict[int, Sums] = {}
    tokens: set[bytes] = set()
    reports = 0
    with store.database.snapshot() as connection:
        known = store.sums(campaign, connection).get(period, {})
        for batch in stored_batches(connection, campaign, period):
            reports += len(batch)
            for group, more in batch.sums().items():
                kept[group] = kept[group] + more if group in kept else more
            digests = pieces(batch.token_digests)
            tokens.update(digests)
    users = sum(one.users for one in known.values())
    if expired:
        return Verified(campaign.id, period, users, reports, "")
    with store.writing() as connection:  # SQLite's log is looked through by its writer alone
        missing = len(tokens) - len(store.database.find_digests(connection, sorted(tokens)))
    wrong = []
    if kept != {group: one for group, one in known.items() if one.users}:
        wrong.append(f"the sums have {users:,} users, the {reports:,} stored reports add up to others")
    if len(tokens) < reports:
        wrong.append(f"{reports - len(tokens):,} tokens are there twice")
    if missing:
        wrong.append(f"{missing:,} tokens are not known, and could be spent again")
    return Verified(campaign.id, period, users, reports, "; ".join(wrong))


def backup(url: str, path: Path) -> dict[str, Any]:
    """Write a database to a new file that its owner alone may read; it appears whole or not at all."""
    if path.exists():
        raise FileExistsError(f"{path} is there already. Choose another name for the backup.")
    moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    with TemporaryDirectory(dir=path.parent, prefix=".noisette-") as folder, snapshot(located(url)) as source:
        with closing(Store(f"sqlite:///{folder}/backup.db")) as target:
            counts = _copy(source, target)
            row = {"moment": moment, "who": _BACKUP, "action": _BACKUP, "subject": "database", "detail": "{}"}
            with target.writing() as connection:
                connection.execute(sa.insert(tables.audit).values(**row))
        with Path(folder, "backup.db").open("rb") as made, whole_file(path, mode=0o600) as stream:
            shutil.copyfileobj(made, stream)
    return {"moment": moment, "file": str(path), "rows": counts}


def restore(path: Path, url: str, taking: Callable[..., Iterable[str]]) -> dict[str, Any]:
    """Fill an empty database from a backup, and tell which periods may have tokens that are not known.

    ``taking`` yields the periods of a campaign that took reports between two moments, given the campaign, its life and
    these. Reports of them may have been acknowledged after the backup was made: they are lost, and their tokens could
    be spent again.
    """
    with snapshot(located(f"sqlite:///{path}")) as source:
        query = sa.select(tables.audit.c.moment).where(tables.audit.c.action == _BACKUP)
        moments = list(source.execute(query.order_by(tables.audit.c.number)).scalars())
        if not moments:
            raise ValueError(f"{path} is no backup. Make one by `noisette collector backup`.")
        with closing(Store(url)) as target:
            if target.registry.changes() or target.registry.campaigns():
                raise ValueError("Expected an empty database to restore to.")
            counts = _copy(source, target)
            since, until = datetime.fromisoformat(moments[-1]), datetime.now(UTC)
            lives = target.registry.campaigns().items()
            unknown = [f"{name}/{period}" for name, own in lives for period in taking(*own, since, until)]
            record = {"moment": moments[-1], "unknown": unknown}
            with target.writing() as connection:
                row = {"moment": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), "who": "restore"}
                row |= {"action": "restore", "subject": "database", "detail": json.dumps(record)}
                connection.execute(sa.insert(tables.audit).values(**row))
    return record | {"rows": counts}


def _copy(source: sa.Connection, target: Store) -> dict[str, int]:
    """Copy all tables but SQLite's log of digests, whose digests go where all others are."""
    counts: dict[str, int] = {}
    for table in tables.metadata.sorted_tables:
        if table in (tables.meta, tables.digest_log):
            continue
        counts[table.name] = 0
        columns = [one for one in table.c if one is not tables.audit.c.number]  # its lines are numbered anew, in order
        query = sa.select(*columns).order_by(*table.primary_key).execution_options(yield_per=_DIGESTS_AT_ONCE)
        for found in source.execute(query).mappings().partitions(_DIGESTS_AT_ONCE if table is tables.seen else 50):
            with target.writing() as connection:
                rows = [dict(row) for row in found]
                if table is tables.seen:
                    target.database.restore_digests(connection, rows)
                else:
                    connection.execute(sa.insert(table), rows)
            counts[table.name] += len(found)
    for row in source.execute(sa.select(tables.digest_log)):
        digests = np.frombuffer(row.digests, dtype=np.uint8).reshape(-1, DIGEST_BYTES)
        pairs = zip(pieces(digests), np.frombuffer(row.marks, dtype="<i8").tolist(), strict=True)
        with target.writing() as connection:
            for digest, mark in pairs:  # some are in the table as well, and stay as they are
                target.database.insert_new(connection, tables.seen, {"digest": digest, "mark": mark})
        counts["seen"] += len(digests)
    return counts
