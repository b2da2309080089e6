"""Numbered steps from the tables of an older collector to those of this one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import sqlalchemy as sa

from noisette.collector.storage import tables
from noisette.collector.storage.database import Database, new_number
from noisette.survey.batches import Batch, identities, key_digests
from noisette.survey.campaigns import Campaign

_ROWS_AT_ONCE = 10_000


def migrate(database: Database, connection: sa.Connection) -> None:
    """Bring the tables of this database to the version of this program, all in one transaction.

    An empty database gets new tables; one of a later version is refused.
    """
    database.lock_tables(connection)
    tables.meta.create(connection, checkfirst=True)
    found = connection.execute(sa.select(tables.meta.c.version)).scalars().all()
    version = found[0] if found else tables.SCHEMA
    if len(found) > 1 or not 1 <= version <= tables.SCHEMA:
        raise ValueError(
            f"This database has version {found} of the collector's tables, this noisette knows 1 to {tables.SCHEMA}. "
            "Run the version that wrote it, or a later one."
        )
    tables.metadata.create_all(connection)
    database.prepare(connection)
    for step in sorted(_STEPS.keys() & range(version, tables.SCHEMA)):
        _STEPS[step](database, connection)
    if version != tables.SCHEMA or not found:
        connection.execute(sa.delete(tables.meta))
        connection.execute(sa.insert(tables.meta).values(version=tables.SCHEMA))


def _pack_reports(database: Database, connection: sa.Connection) -> None:
    """From 1 to 2: one row of text a report becomes blocks of rows, digests of what was seen, and wider sums."""
    rows = sa.text(
        "SELECT number, key, token, report FROM reports "
        "WHERE campaign = :campaign AND period = :period AND number > :last ORDER BY number LIMIT :most"
    )
    own = tables.campaigns.c
    for name, definition in connection.execute(sa.select(own.id, own.definition)).all():
        campaign = Campaign.from_wire(json.loads(definition))
        layout = campaign.layout
        query = sa.text("SELECT DISTINCT period FROM reports WHERE campaign = :campaign")
        for period in connection.execute(query, {"campaign": name}).scalars().all():
            total, last = layout.nothing(), -1
            while found := connection.execute(
                rows, {"campaign": name, "period": period, "last": last, "most": _ROWS_AT_ONCE}
            ).all():
                last = found[-1].number
                batch = _batch(campaign, period, found)
                total += layout.tally(batch.rows)
                if not database.add_digests(connection, *identities([batch])):
                    raise ValueError(
                        f"The old tables of campaign {name!r} hold a token or a key twice. Restore a backup."
                    )
                connection.execute(sa.insert(tables.blocks).values(number=new_number(), **batch.columns))
            place = {"campaign": name, "period": period, "group": 0, "writer": 0}
            connection.execute(sa.insert(tables.sums).values(**place, **total.stored()))
    for old in ("reports", "aggregates"):
        connection.execute(sa.text(f"DROP TABLE {old}"))


def _batch(campaign: Campaign, period: str, rows: Any) -> Batch:
    """Return rows of the old table as a batch."""
    tokens = np.frombuffer(bytes.fromhex("".join(row.token[:32] for row in rows)), dtype=np.uint8).reshape(-1, 16)
    keys = key_digests(campaign.id, [row.key for row in rows])
    reports = campaign.decode([json.loads(row.report) for row in rows])
    return Batch(campaign, period, tokens, keys, np.zeros(len(rows), dtype=np.uint16), reports, np.arange(len(rows)))


def _add_lives(_: Database, connection: sa.Connection) -> None:
    """From 4 to 5: lives of campaigns, sums of each process, blocks without an order, several signing keys.

    Rows of an older database are copied; tables that an earlier step has just made are complete.
    """
    texts = ((tables.campaigns, "life", "TEXT DEFAULT '{}'"), (tables.blocks, "mixed", "INTEGER DEFAULT 0"))
    for table, name, kind in texts:
        if name not in _columns(connection, table):
            connection.execute(sa.text(f"ALTER TABLE {table.name} ADD COLUMN {name} {kind} NOT NULL"))
    for table, added in ((tables.sums, "writer"), (tables.signing, "number")):
        present = _columns(connection, table)
        if added in present:
            continue
        names = ", ".join(f'"{one}"' for one in present)
        connection.execute(sa.text(f"CREATE TABLE {table.name}_before AS SELECT * FROM {table.name}"))
        table.drop(connection)
        table.create(connection)
        connection.execute(sa.text(f"INSERT INTO {table.name} ({names}) SELECT {names} FROM {table.name}_before"))
        connection.execute(sa.text(f"DROP TABLE {table.name}_before"))


def _rename_digest_log(_: Database, connection: sa.Connection) -> None:
    """From 8 to 9: the table `fresh` becomes `digest_log`; one that an earlier step has just made has that name."""
    if sa.inspect(connection).has_table("fresh"):
        connection.execute(sa.text("INSERT INTO digest_log SELECT number, turn, digests, marks FROM fresh"))
        connection.execute(sa.text("DROP TABLE fresh"))


def _columns(connection: sa.Connection, table: sa.Table) -> list[str]:
    return [one["name"] for one in sa.inspect(connection).get_columns(table.name)]


# By the version from which a step leads to the next. Tables that a version adds are made before, empty, so that 2 (how
# errors shrank), 3 (the log of digests) and 6 (the young digests of PostgreSQL) have no step.
_STEPS: dict[int, Callable[[Database, sa.Connection], None]] = {
    1: _pack_reports,
    4: _add_lives,
    5: lambda database, connection: database.shrink_digests(connection),
    7: lambda database, connection: database.widen(connection, tables.keys.c.role),  # links' roles are longer
    8: _rename_digest_log,
}
