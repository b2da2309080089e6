"""Numbered steps from the tables of an older collector to those of this one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import sqlalchemy as sa

from noisette.collector.storage import seen, tables
from noisette.device.batches import Block
from noisette.survey.campaigns import Campaign

_LOCK = 0x4E5A434F  # of PostgreSQL, taken by whoever looks at the version
_AT_ONCE = 10_000


def migrate(connection: sa.Connection) -> None:
    """Bring the tables of this database to the version of this program, all in one transaction.

    An empty database gets new tables; one of a later version is refused.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
    tables.meta.create(connection, checkfirst=True)
    found = connection.execute(sa.select(tables.meta.c.version)).scalars().all()
    version = found[0] if found else tables.SCHEMA
    if len(found) > 1 or not 1 <= version <= tables.SCHEMA:
        raise ValueError(
            f"This database has version {found} of the collector's tables, this noisette knows 1 to {tables.SCHEMA}. "
            "Run the version that wrote it, or a later one."
        )
    tables.metadata.create_all(connection)
    for step in range(version, tables.SCHEMA):
        _STEPS[step](connection)
    if version != tables.SCHEMA or not found:
        connection.execute(sa.delete(tables.meta))
        connection.execute(sa.insert(tables.meta).values(version=tables.SCHEMA))


def _pack_reports(connection: sa.Connection) -> None:
    """From 1 to 2: one row of text a report becomes blocks of rows, digests of what was seen, and wider sums."""
    rows = sa.text(
        "SELECT number, key, token, report FROM reports "
        "WHERE campaign = :campaign AND period = :period AND number > :last ORDER BY number LIMIT :most"
    )
    for name, definition in connection.execute(sa.select(tables.campaigns)).all():
        campaign = Campaign.from_wire(json.loads(definition))
        layout = campaign.layout
        query = sa.text("SELECT DISTINCT period FROM reports WHERE campaign = :campaign")
        for period in connection.execute(query, {"campaign": name}).scalars().all():
            total, last = layout.nothing(), -1
            while part := connection.execute(
                rows, {"campaign": name, "period": period, "last": last, "most": _AT_ONCE}
            ).all():
                last = part[-1].number
                block = _block(campaign, period, part)
                total += layout.tally(block.rows)
                _store(connection, campaign, block)
            place = {"campaign": name, "period": period, "group": 0}
            connection.execute(sa.insert(tables.sums).values(**place, **total.stored()))
    for old in ("reports", "aggregates"):
        connection.execute(sa.text(f"DROP TABLE {old}"))


def _block(campaign: Campaign, period: str, part: Any) -> Block:
    """Return rows of the old table as a block."""
    tokens = np.frombuffer(bytes.fromhex("".join(row.token[:32] for row in part)), dtype=np.uint8).reshape(-1, 16)
    keys = seen.key_digests(campaign.id, [row.key for row in part])
    reports = campaign.decode([json.loads(row.report) for row in part])
    return Block(period, tokens, keys, np.zeros(len(part), dtype=np.uint16), reports, np.arange(len(part)))


def _store(connection: sa.Connection, campaign: Campaign, block: Block) -> None:
    """Write a block and its digests."""
    digests = seen.token_digests(campaign.id, block.period, block.tokens)
    for own, marks in ((digests, block.marks), (block.keys, block.key_marks)):
        assert own is not None  # the old table had a key for each report
        if not seen.insert(connection, own, marks):
            raise ValueError(f"The old tables of campaign {campaign.id!r} hold a token or a key twice.")
    connection.execute(sa.insert(tables.blocks).values(**block.stored(campaign)))


def _add_tracks(connection: sa.Connection) -> None:
    """From 2 to 3: a table for how errors shrank, empty at first."""
    tables.tracks.create(connection, checkfirst=True)


def _add_fresh(connection: sa.Connection) -> None:
    """From 3 to 4: a log before the index of SQLite, empty at first; what was seen stays where it is."""
    tables.fresh.create(connection, checkfirst=True)


_STEPS: dict[int, Callable[[sa.Connection], None]] = {1: _pack_reports, 2: _add_tracks, 3: _add_fresh}
