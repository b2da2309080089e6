"""How a campaign went on: a few points of its errors for each period, and how many users there were at some moments.

Nothing shows which report came when: blocks of reports have no order and no time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import sqlalchemy as sa

from noisette.collector.repeated import Repeated
from noisette.collector.storage import tables
from noisette.collector.storage.store import Store
from noisette.survey.campaigns import Campaign
from noisette.survey.periods import period_at

QUANTITIES = 50  # of one attribute that are followed, and drawn
_SECONDS_BETWEEN = 5.0  # seconds between two looks
_GROWTH = 1.02  # of the users between two points
_MOST_POINTS = 500


def follow(store: Store, campaign: Campaign, found: dict[str, Any], *, grow: bool) -> list[dict[str, Any]]:
    """Return the track of a period; with ``grow`` a point for these estimates is added if enough users are new.

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
            store.database.insert_new(connection, table, row | {"errors": np.asarray(errors, dtype="<f8").tobytes()})
            if len(points) >= _MOST_POINTS:
                left_out = [count for count, _ in points[1::2]]
                connection.execute(sa.delete(table).where(own, table.c.users.in_(left_out)))
                points = points[::2]
        points.append((users, errors))
    # another version may have shown other quantities
    return [{"users": count, "std_errors": shown} for count, shown in points if len(shown) == len(errors)]


class Tracker(Repeated):
    """Looks at campaigns every few seconds, so that their errors are followed even when nobody watches."""

    def __init__(self, store: Store, campaigns: Callable[[], Iterable[Campaign]]) -> None:
        super().__init__("tracking", _SECONDS_BETWEEN)
        self._store, self._campaigns = store, campaigns
        self._known: dict[tuple[str, str], int] = {}  # users at the last look that was kept
        self._before: dict[tuple[str, str], tuple[float, int]] = {}  # moment and users of the last look

    def look(self) -> None:
        """Look at every campaign, whatever becomes of another."""
        for campaign in self._campaigns():
            self._try(self.look_at, campaign)

    def look_at(self, campaign: Campaign) -> None:
        """Add a point for the current period, if enough users came since the last one."""
        period = period_at(campaign.period)
        users, now = self._store.periods(campaign).get(period, 0), time.time()
        before = self._before.get((campaign.id, period), (now, -1))
        if users != before[1]:
            note_arrivals(self._store, campaign, period, [before, (now, users)])
        self._before[campaign.id, period] = (now, users)
        if users <= self._known.get((campaign.id, period), 0) * _GROWTH:
            return
        sums = self._store.aggregate(campaign, period)
        errors = np.concatenate([one.std_error for one in sums.by_question().values()])[_followed(campaign)]
        rows = [{"std_error": error} for error in errors.tolist()]
        follow(self._store, campaign, {"period": period, "users": sums.users, "dimensions": rows}, grow=True)
        self._known[campaign.id, period] = sums.users


def _followed(campaign: Campaign) -> list[int]:
    """Return the places of the first quantities of each attribute among all."""
    sizes = [len(one.quantities) for section in campaign.sections for one in section.questions]
    starts = np.cumsum([0, *sizes])[:-1].tolist()
    return [start + place for start, size in zip(starts, sizes, strict=True) for place in range(min(size, QUANTITIES))]


KEPT = {10: 1800, 3600: 28 * 86400}  # one row in each span of this many seconds, and for how many seconds it is kept


def note_arrivals(store: Store, campaign: Campaign, period: str, seen: Iterable[tuple[float, int]]) -> None:
    """Keep how many users there were at some moments, the first of each span, and forget spans of long ago."""
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
