"""How the errors of a campaign shrank: a few points for each period, kept with the reports."""

from __future__ import annotations

from typing import Any

import numpy as np
import sqlalchemy as sa

from noisette.collector import tables
from noisette.collector.campaigns import Campaign
from noisette.collector.store import Store

_GROWTH = 1.02  # of the users between two points
_LONGEST = 500


def follow(store: Store, campaign: Campaign, found: dict[str, Any], *, grow: bool) -> list[dict[str, Any]]:
    """Return the track of a period; with ``grow`` these estimates are added, where they have enough new users.

    Every process that serves the campaign adds to the same track. One that becomes too long loses every other point.
    """
    table, period, users = tables.tracks, found["period"], found["users"]
    own = (table.c.campaign == campaign.id) & (table.c.period == period)
    with store.reading() as connection:
        rows = connection.execute(sa.select(table.c.users, table.c.errors).where(own).order_by(table.c.users)).all()
    points = [(count, np.frombuffer(errors, dtype="<f8").tolist()) for count, errors in rows]
    errors = [row["std_error"] for row in found["dimensions"]]
    if grow and users and (not points or users > points[-1][0] * _GROWTH):
        row = {"campaign": campaign.id, "period": period, "users": users}
        with store.writing() as connection:
            tables.insert_new(connection, table, row | {"errors": np.asarray(errors, dtype="<f8").tobytes()})
            if len(points) >= _LONGEST:
                left_out = [count for count, _ in points[1::2]]
                connection.execute(sa.delete(table).where(own, table.c.users.in_(left_out)))
                points = points[::2]
        points.append((users, errors))
    # another version may have shown other quantities
    return [{"users": count, "std_errors": shown} for count, shown in points if len(shown) == len(errors)]
