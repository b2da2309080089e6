"""Batches of a shuffler on their way into the store: whole or not at all, and nothing of one that is too small."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from noisette.collector.storage import tables
from noisette.collector.storage.store import Store
from noisette.survey.campaigns import Campaign

_T, _P = tables.mixed, tables.mixed_parts


class OtherTerms(ValueError):
    """A part that says something else about its batch than the parts before it."""


@dataclass(frozen=True)
class MixedBatch:
    """A batch of a shuffler: its name, of how many parts, what became of it, and how many reports it has."""

    name: str
    campaign: str
    period: str
    total: int
    state: str
    packets: int
    accepted: int


class MixedBatches:
    """The batches that shufflers have brought to a store, in its own database: any process may take a part."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def add(self, campaign: Campaign, period: str, name: str, sequence: int, total: int, frame: bytes) -> MixedBatch:
        """Keep a part of a batch, once, and return the batch as it is then."""
        insert = self._store.database.insert_new
        row = {"name": name, "campaign": campaign.id, "period": period, "total": total, "state": "coming"}
        with self._store.writing() as connection:
            insert(connection, _T, row | {"packets": 0, "accepted": 0})
            found = self._find(connection, name)
            if (found.campaign, found.period, found.total) != (campaign.id, period, total):
                raise OtherTerms(
                    "This batch began with another campaign, period or total. Send it under another number."
                )
            if found.state == "coming":
                insert(connection, _P, {"name": name, "sequence": sequence, "frame": frame})
        return found

    def _find(self, connection: sa.Connection, name: str) -> MixedBatch:
        return MixedBatch(**connection.execute(sa.select(_T).where(_T.c.name == name)).one()._mapping)

    def whole(self, batch: MixedBatch) -> bool:
        """Tell whether all parts of a batch are here."""
        query = sa.select(sa.func.count()).select_from(_P).where(_P.c.name == batch.name)
        with self._store.reading() as connection:
            return int(connection.execute(query).scalar_one()) == batch.total

    def frame(self, name: str, sequence: int) -> bytes | None:
        """Return a part of a batch; None if another process has stored and erased it."""
        query = sa.select(_P.c.frame).where(_P.c.name == name, _P.c.sequence == sequence)
        with self._store.reading() as connection:
            found = connection.execute(query).scalar_one_or_none()
        return None if found is None else bytes(found)

    def held(self, batch: MixedBatch) -> list[MixedBatch]:
        """Return the batches of the same campaign and period that wait for more reports."""
        own = (_T.c.campaign == batch.campaign) & (_T.c.period == batch.period) & (_T.c.state == "held")
        with self._store.reading() as connection:
            return [MixedBatch(**row._mapping) for row in connection.execute(sa.select(_T).where(own))]

    def settle(self, batch: MixedBatch, state: str, packets: int, accepted: int, held: Sequence[MixedBatch]) -> None:
        """Write down what becomes of a batch, and of those that were held, before any of their reports is stored."""
        with self._store.writing() as connection:
            counted = sa.update(_T).where(_T.c.name == batch.name, _T.c.state == "coming")
            connection.execute(counted.values(state=state, packets=packets, accepted=accepted))
            if state == "released" and held:
                connection.execute(sa.update(_T).where(_T.c.name.in_([one.name for one in held])).values(state=state))
            if state == "refused":
                connection.execute(sa.delete(_P).where(_P.c.name == batch.name))

    def unfinished(self, batch: MixedBatch) -> list[MixedBatch]:
        """Return the batches of the same campaign and period that are released and not yet stored as a whole."""
        own = (_T.c.campaign == batch.campaign) & (_T.c.period == batch.period) & (_T.c.state == "released")
        query = sa.select(_T).where(own, _T.c.name.in_(sa.select(_P.c.name)))
        with self._store.reading() as connection:
            return [MixedBatch(**row._mapping) for row in connection.execute(query)]

    def erase(self, name: str) -> None:
        """Erase the parts of a batch that is stored."""
        with self._store.writing() as connection:
            connection.execute(sa.delete(_P).where(_P.c.name == name))

    def released(self, campaign: Campaign) -> list[MixedBatch]:
        """Return the batches of a campaign whose reports were stored."""
        own = (_T.c.campaign == campaign.id) & (_T.c.state == "released")
        with self._store.reading() as connection:
            return [MixedBatch(**row._mapping) for row in connection.execute(sa.select(_T).where(own))]

    def new(self, digests: Sequence[Sequence[bytes]]) -> list[bool]:
        """Tell which of these reports, each by the digests of its token and key, has none that came before it."""
        every = [digest for own in digests for digest in own]
        with self._store.reading() as connection:
            known: set[Any] = set(self._store.database.find_digests(connection, every))
        found = []
        for own in digests:
            found.append(known.isdisjoint(own))
            known.update(own)
        return found
