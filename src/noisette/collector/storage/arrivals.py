"""When users came: how many there were at some moments, from which a dashboard guesses when there will be enough.

These are counts alone. Nothing shows which report came when: blocks of reports have no order and no time.
"""

from __future__ import annotations

from collections.abc import Iterable

import sqlalchemy as sa

from noisette.collector.storage import tables
from noisette.collector.storage.store import Store
from noisette.survey.campaigns import Campaign

KEPT = {10: 1800, 3600: 28 * 86400}  # one row in each span of this many seconds, and for how many seconds it is kept


def note_arrivals(store: Store, campaign: Campaign, period: str, seen: Iterable[tuple[float, int]]) -> None:
    """Keep how many users there were at some moments, and forget those of long ago; the first of a span stays."""
    table, last = tables.arrivals, 0.0
    own = (table.c.campaign == campaign.id) & (table.c.period == period)
    with store.writing() as connection:
        for moment, users in seen:
            last = max(last, moment)
            for width in KEPT if users >= 0 else ():
                row = {"campaign": campaign.id, "period": period, "width": width, "place": int(moment // width)}
                store.database.insert_new(connection, table, row | {"moment": int(moment), "users": users})
        for width, kept in KEPT.items():
            connection.execute(sa.delete(table).where(own, table.c.width == width, table.c.moment < last - kept))


def arrivals(store: Store, campaign: Campaign, period: str) -> list[tuple[float, int]]:
    """Return moments, in seconds of the epoch, and how many users of a period there were then, in order."""
    table = tables.arrivals
    own = (table.c.campaign == campaign.id) & (table.c.period == period)
    with store.reading() as connection:
        rows = connection.execute(sa.select(table.c.moment, table.c.users).where(own)).all()
    return sorted({(float(moment), int(users)) for moment, users in rows})
