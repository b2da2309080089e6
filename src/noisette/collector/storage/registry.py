"""What operators change: campaigns and their lives, named keys, and the log of who changed what.

Every change and its line in the log are one transaction. By the last number of the log other processes see that
something has changed: they look once a second and read anew.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from noisette.collector.storage import tables
from noisette.survey.campaigns import Campaign

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noisette.collector.storage.database import Database

_DELETED = "delete-campaign"
_LOG_LINES = 1000  # lines of the log at once


class Registry:
    """Campaigns, keys and the log of a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @contextmanager
    def _changing(self, who: str, action: str, subject: str, detail: Mapping[str, Any]) -> Iterator[sa.Connection]:
        """Give a transaction for a change, one at a time, and note it."""
        with self._database.writing() as connection:
            connection.execute(sa.select(tables.meta.c.version).with_for_update()).one()
            yield connection
            moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            row = {"moment": moment, "who": who, "action": action, "subject": subject, "detail": json.dumps(detail)}
            connection.execute(sa.insert(tables.audit).values(**row))

    def note(self, who: str, action: str, subject: str) -> None:
        """Note a change that is made elsewhere, before it is made."""
        with self._changing(who, action, subject, {}):
            pass

    def changes(self) -> int:
        """Return a number that grows with every change."""
        with self._database.reading() as connection:
            return int(connection.execute(sa.select(sa.func.max(tables.audit.c.number))).scalar() or 0)

    def log(self, after: int = 0) -> list[dict[str, Any]]:
        """Return who changed what, the first thousand lines after a number."""
        query = sa.select(tables.audit).where(tables.audit.c.number > after).order_by(tables.audit.c.number)
        with self._database.reading() as connection:
            rows = connection.execute(query.limit(_LOG_LINES)).mappings().all()
        return [dict(row) | {"detail": json.loads(row["detail"])} for row in rows]

    def campaigns(self) -> dict[str, tuple[Campaign, dict[str, Any]]]:
        """Return every campaign, and its life as it was written."""
        own = tables.campaigns.c
        with self._database.reading() as connection:
            rows = connection.execute(sa.select(own.id, own.definition, own.life).order_by(own.id)).all()
        return {name: (Campaign.from_wire(json.loads(text)), json.loads(life)) for name, text, life in rows}

    def add(self, campaign: Campaign, life: Mapping[str, Any], who: str) -> None:
        """Add a campaign under an id that no other has or has had: devices know what they answered by its id."""
        with self._changing(who, "open-campaign", campaign.id, {"life": life}) as connection:
            stored, gone = tables.campaigns.c.id == campaign.id, tables.audit.c
            past = (gone.action == _DELETED) & (gone.subject == campaign.id)
            if connection.execute(sa.select(tables.campaigns.c.id).where(stored)).first() is not None:
                raise ValueError(f"There is a campaign {campaign.id!r} already. Ask something else under another id.")
            if connection.execute(sa.select(gone.number).where(past)).first() is not None:
                raise ValueError(f"There was a campaign {campaign.id!r}, which was deleted. Choose another id.")
            row = {"id": campaign.id, "definition": json.dumps(campaign.to_wire()), "life": json.dumps(life)}
            connection.execute(sa.insert(tables.campaigns).values(**row))

    def change(self, name: str, life: Mapping[str, Any], who: str, action: str, detail: Mapping[str, Any]) -> None:
        """Store another life of a campaign."""
        with self._changing(who, action, name, detail) as connection:
            table = tables.campaigns
            connection.execute(sa.update(table).where(table.c.id == name).values(life=json.dumps(life)))

    def delete(self, name: str, who: str) -> None:
        """Delete a campaign with its reports, sums and signing keys; digests of random tokens stay and tell nothing."""
        with self._changing(who, _DELETED, name, {}) as connection:
            brought = sa.select(tables.mixed.c.name).where(tables.mixed.c.campaign == name)
            connection.execute(sa.delete(tables.mixed_parts).where(tables.mixed_parts.c.name.in_(brought)))
            kept = (tables.blocks, tables.sums, tables.tracks, tables.arrivals, tables.signing, tables.expired)
            for table in (tables.mixed, *kept):
                connection.execute(sa.delete(table).where(table.c.campaign == name))
            connection.execute(sa.delete(tables.campaigns).where(tables.campaigns.c.id == name))

    def expire(self, campaign: str, period: str, who: str) -> int:
        """Delete the reports of a period, whose sums stay, and return how many there were."""
        block, place = tables.blocks.c, {"campaign": campaign, "period": period}
        with self._changing(who, "expire-reports", campaign, {"period": period}) as connection:
            own = (block.campaign == campaign) & (block.period == period)
            users = connection.execute(sa.select(sa.func.sum(block.users)).where(own)).scalar()
            connection.execute(sa.delete(tables.blocks).where(own))
            signing = tables.signing.c
            connection.execute(sa.delete(tables.signing).where(signing.campaign == campaign, signing.period == period))
            self._database.insert_new(connection, tables.expired, place)
        return int(users or 0)

    def expired(self, campaign: str) -> set[str]:
        """Return the periods whose reports were deleted."""
        query = sa.select(tables.expired.c.period).where(tables.expired.c.campaign == campaign)
        with self._database.reading() as connection:
            return set(connection.execute(query).scalars())

    def api_keys(self) -> list[dict[str, Any]]:
        """Return the keys that were given out by name."""
        with self._database.reading() as connection:
            return [dict(row) for row in connection.execute(sa.select(tables.keys).order_by("name")).mappings()]

    def add_key(self, name: str, role: str, digest: bytes, ends: str | None, who: str) -> None:
        """Add a key under a name of its own."""
        with self._changing(who, "add-key", name, {"role": role, "ends": ends}) as connection:
            if connection.execute(sa.select(tables.keys.c.name).where(tables.keys.c.name == name)).first() is not None:
                raise ValueError(f"There is a key {name!r} already. End it first, or choose another name.")
            row = {"name": name, "role": role, "digest": digest, "ends": ends}
            connection.execute(sa.insert(tables.keys).values(**row))

    def end_key(self, name: str, who: str) -> None:
        """End a key."""
        with self._changing(who, "end-key", name, {}) as connection:
            if not connection.execute(sa.delete(tables.keys).where(tables.keys.c.name == name)).rowcount:
                raise ValueError(f"There is no key {name!r}. `noisette collector keys` lists them.")
