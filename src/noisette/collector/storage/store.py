"""What the collector keeps: campaigns, reports and running sums, in SQLite or PostgreSQL.

A report, the digests that make it unique and the sums that it adds to are one transaction. When `Store.accept` returns,
that transaction is on the disk; when it raises, nothing of it is.
"""

from __future__ import annotations

import json
import secrets
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import sqlalchemy as sa

from noisette.collector.storage import tables
from noisette.collector.storage.database import INSERT_BLOCK, AddedSums, new_number, open_database
from noisette.collector.storage.migrations import migrate
from noisette.collector.storage.registry import Registry
from noisette.survey.batches import Batch, identities, joined, pieces
from noisette.survey.campaigns import Campaign, Rows
from noisette.survey.sums import Layout, Sums

_MIXED_BLOCKS = 200  # that are mixed in one transaction
_MIXED_REPORTS = 10_000  # in one block of them
_TRIES = 8  # of a transaction that others come before with the same tokens


class _Known(Exception):
    """A digest that should be new is there already."""


@dataclass(frozen=True)
class Refusal:
    """Which report of a batch was refused, why in one word, and in a sentence."""

    index: int
    reason: str
    detail: str


class Refused(Exception):
    """Reports were refused, and with them the whole batch: nothing was stored."""

    def __init__(self, refusals: Sequence[Refusal]) -> None:
        super().__init__(refusals[0].detail)
        self.refusals = tuple(refusals)


@dataclass(frozen=True)
class Accepted:
    """How many reports of a batch were new, and how many had been stored before."""

    accepted: int
    repeated: int


class Store:
    """Campaigns, reports and sums in the database at a URL: ``sqlite:///file`` or ``postgresql://host/name``.

    Safe for several threads and processes; a commit waits for the disk. ``database`` does what differs between the two.
    """

    def __init__(self, url: str) -> None:
        self.database = open_database(url)
        self.registry = Registry(self.database)
        try:
            with self.writing() as connection:
                migrate(self.database, connection)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close all connections."""
        self.database.close()

    def reading(self) -> AbstractContextManager[sa.Connection]:
        """Give a connection to read with."""
        return self.database.reading()

    def writing(self) -> AbstractContextManager[sa.Connection]:
        """Give a transaction that commits at the end and rolls back on an error."""
        return self.database.writing()

    def ping(self) -> None:
        """Raise unless the database has our tables and something can be written to it."""
        self.database.check_room()
        with self.writing() as connection:
            connection.execute(sa.update(tables.meta).values(version=tables.meta.c.version))

    def layout(self, campaign: Campaign) -> Layout:
        """Return where each sum of a campaign lies in the vector; it is computed once."""
        found: Layout = campaign.layout
        return found

    def register(self, campaign: Campaign, life: Mapping[str, Any] | None = None) -> Campaign:
        """Store a campaign, or return the stored one if its terms are the same.

        What was stored wins: the mechanism was chosen once, whatever a later version of the planner would choose. Title
        and target are no terms that a device relies on, and are part of the campaign's life.
        """
        with self.reading() as connection:
            query = sa.select(tables.campaigns.c.definition).where(tables.campaigns.c.id == campaign.id)
            stored = connection.execute(query).scalar_one_or_none()
        if stored is None:
            self.registry.add(campaign, life or {}, "file")
            return campaign
        known = Campaign.from_wire(json.loads(stored))
        with self.writing() as connection:
            self._sum_anew(connection, known)
        now, before = campaign.terms(), known.terms()
        changed = sorted(key for key, value in before.items() if now[key] != value and key not in ("title", "users"))
        if changed:
            raise ValueError(
                f"Campaign {campaign.id!r} is in this database with another {', '.join(changed)}. "
                "Devices may have answered it: ask something else under another id."
            )
        return known

    def _sum_anew(self, connection: sa.Connection, campaign: Campaign) -> None:
        """Sum the stored reports again where another program laid the sums out in another way."""
        layout, table = self.layout(campaign), tables.sums
        other = (table.c.campaign == campaign.id) & (table.c.layout != layout.name)
        for period in connection.execute(sa.select(table.c.period).where(other).distinct()).scalars().all():
            totals: dict[int, Sums] = {}
            for batch in stored_batches(connection, campaign, period):
                for group, added in batch.sums().items():
                    totals[group] = totals.get(group, layout.nothing()) + added
            connection.execute(sa.delete(table).where((table.c.campaign == campaign.id) & (table.c.period == period)))
            rows = [{"campaign": campaign.id, "period": period, "group": group, "writer": 0} for group in totals]
            stored = [row | totals[row["group"]].stored() for row in rows]
            if stored:
                connection.execute(sa.insert(table), stored)

    def add(self, batches: Sequence[Batch]) -> bool:
        """Store batches and add them to the sums in one transaction; if one of their reports is known, store nothing.

        `accept` finds out which one it is.
        """
        whole = joined(batches)
        if not whole:
            return True
        sums, digests = self._sums_of(whole), identities(whole)
        try:
            with self.writing() as connection:
                self._write(connection, whole, sums, digests)
        except _Known:
            return False
        return True

    def accept(self, bodies: Sequence[Sequence[Batch]]) -> list[Accepted | Refused]:
        """Look every report up, store those that are new in one transaction, and tell how each body fared.

        A token or key that was stored with the same report changes nothing. A body with one that came with another
        report is refused as a whole, and does not hinder the others. What another process stored meanwhile is looked up
        again: no process locks what another one writes. Digests are written in order, so that two never wait for each
        other.
        """
        every = [batch for body in bodies for batch in body]
        for _ in range(_TRIES - 1):
            with suppress(_Known), self.writing() as connection:
                return self._write_new(connection, bodies, every)
        with self.writing() as connection:
            return self._write_new(connection, bodies, every)

    def _write_new(
        self, connection: sa.Connection, bodies: Sequence[Sequence[Batch]], every: list[Batch]
    ) -> list[Accepted | Refused]:
        known = self.database.find_digests(connection, pieces(identities(every)[0]))
        outcomes, news = _sift(bodies, known)
        if batches := joined(news):
            self._write(connection, batches, self._sums_of(batches), identities(batches))
        return outcomes

    def _sums_of(self, batches: Sequence[Batch]) -> list[dict[int, Sums]]:
        return [batch.sums() for batch in batches]

    def _write(
        self, connection: sa.Connection, batches: list[Batch], sums: list[dict[int, Sums]], digests: tuple[Any, Any]
    ) -> None:
        """Write batches and add to the sums of their periods, or raise `_Known` if a digest is there already."""
        # always in one order, so that two threads never wait for each other
        pairs = sorted(zip(batches, sums, strict=True), key=lambda pair: (pair[0].campaign.id, pair[0].period))
        blocks = [{"number": new_number(), "mixed": 0} | mixed(batch).columns for batch, _ in pairs]
        gains: dict[tuple[str, str, int], AddedSums] = {}
        for batch, added in pairs:
            for group, more in sorted(added.items()):
                own = batch.campaign.id, batch.period, group
                total = gains[own].more + more if own in gains else more
                gains[own] = AddedSums(batch.campaign, batch.period, group, total)
        if not self.database.write(connection, *digests, blocks, list(gains.values())):
            raise _Known

    def _load(self, campaign: Campaign, row: Any) -> Sums:
        """Return stored sums."""
        return Sums(self.layout(campaign), row.users, np.frombuffer(row.vector, dtype="<i8").astype(np.int64))

    def sums(self, campaign: Campaign, within: sa.Connection | None = None) -> dict[str, dict[int, Sums]]:
        """Return the sums of each period and public group, in order; ``within`` a transaction, as that sees them."""
        query = sa.select(tables.sums).where(tables.sums.c.campaign == campaign.id)
        found: dict[str, dict[int, Sums]] = defaultdict(dict)
        with self.reading() if within is None else nullcontext(within) as connection:
            for row in connection.execute(query.order_by(tables.sums.c.period, tables.sums.c.group)):
                own = self._load(campaign, row)
                found[row.period][row.group] = found[row.period].get(row.group, self.layout(campaign).nothing()) + own
        return dict(found)

    def aggregate(self, campaign: Campaign, period: str) -> Sums:
        """Return the sums of a period over all groups; of zero users if nothing came."""
        total = self.layout(campaign).nothing()
        for one in self.sums(campaign).get(period, {}).values():
            total += one
        return total

    def periods(self, campaign: Campaign) -> dict[str, int]:
        """Return the periods that have reports, in order, and how many users answered in each."""
        period, users = tables.sums.c.period, sa.func.sum(tables.sums.c.users)
        query = sa.select(period, users).where(tables.sums.c.campaign == campaign.id).group_by(period).order_by(period)
        with self.reading() as connection:
            return {name: int(count) for name, count in connection.execute(query)}

    def batches(self, campaign: Campaign, period: str) -> Iterator[Batch]:
        """Yield the stored reports of a period, in no order, without holding them all."""
        with self.reading() as connection:
            yield from stored_batches(connection, campaign, period)

    def mix(self) -> int:
        """Put blocks of few reports together and mix them, so that they tell no order; return how many blocks went.

        Each transaction takes some blocks out and puts the same reports back: a kill loses and doubles nothing.
        SQLite's log of digests, which has an order too, goes into its index.
        """
        gone = 0
        for campaign, _ in self.registry.campaigns().values():
            for period in self.periods(campaign):
                while done := self._mix(campaign, period):
                    gone += done
        self.database.settle()
        return gone

    def _mix(self, campaign: Campaign, period: str) -> int:
        """Mix some blocks of a period; return how many, none where there are no two."""
        block = tables.blocks.c
        own = (block.campaign == campaign.id) & (block.period == period) & (block.mixed == 0)
        query = sa.select(tables.blocks).where(own).limit(_MIXED_BLOCKS).with_for_update(skip_locked=True)
        with self.writing() as connection:
            rows = connection.execute(query).all()
            if len(rows) < 2:
                return 0
            [whole] = joined([_stored_batch(campaign, row) for row in rows])
            whole = mixed(whole)
            for start in range(0, len(whole), _MIXED_REPORTS):
                some = whole.take(np.arange(start, min(start + _MIXED_REPORTS, len(whole))))
                connection.execute(INSERT_BLOCK, {"number": new_number(), "mixed": 1} | some.columns)
            numbers = [row.number for row in rows]
            connection.execute(sa.delete(tables.blocks).where(block.number.in_(numbers)))
        return len(rows)

    def rows(self, campaign: Campaign, period: str) -> Rows:
        """Return all stored reports of a period; for checks, it holds them all."""
        found = [batch.rows for batch in self.batches(campaign, period)]
        return np.concatenate(found) if found else np.zeros(0, dtype=campaign.row)

    def signing_keys(self, campaign: Campaign, period: str) -> list[bytes]:
        """Return the keys that sign the tokens of a period, the newest first; none where nobody asked for one."""
        own = tables.signing.c
        query = sa.select(own.pem).where(own.campaign == campaign.id, own.period == period)
        with self.reading() as connection:
            return [bytes(pem) for pem in connection.execute(query.order_by(own.number.desc())).scalars()]

    def add_signing_key(self, campaign: Campaign, period: str, after: int, pem: bytes) -> None:
        """Add a key to a period that has this many, unless another process was faster."""
        row = {"campaign": campaign.id, "period": period, "number": after, "pem": pem}
        with self.writing() as connection:
            self.database.insert_new(connection, tables.signing, row)

    def issue(self, users: Sequence[bytes], older: bytes, blinded: bytes) -> bytes:
        """Note the digest of the blinded token that a user shows, and return that of the first one she has shown.

        ``users`` are digests of her, one for each enrolment secret that is valid; ``older`` is only looked up.
        """
        own = tables.issued.c
        query = sa.select(own.blinded).where(own.digest.in_([*users, older]))
        with self.writing() as connection:
            first = connection.execute(query).scalars().first() or blinded
            for digest in sorted(users):
                self.database.insert_new(connection, tables.issued, {"digest": digest, "blinded": first})
            return bytes(connection.execute(query.order_by(own.digest)).scalars().first() or first)


def mixed(batch: Batch) -> Batch:
    """Return the reports of a batch in a random order."""
    return batch if len(batch) < 2 else batch.take(np.random.default_rng(secrets.randbits(128)).permutation(len(batch)))


def stored_batches(connection: sa.Connection, campaign: Campaign, period: str) -> Iterator[Batch]:
    """Yield the batches of a period as they are stored, one at a time."""
    table = tables.blocks
    query = sa.select(table).where(table.c.campaign == campaign.id, table.c.period == period)
    for row in connection.execute(query.order_by(table.c.number), execution_options={"yield_per": 1}):
        yield _stored_batch(campaign, row)


def _stored_batch(campaign: Campaign, row: Any) -> Batch:
    """Return a row of the table of blocks as a batch."""
    tokens = np.frombuffer(row.tokens, dtype=np.uint8).reshape(row.users, -1)
    groups = np.frombuffer(row.groups or bytes(2 * row.users), dtype="<u2").astype(np.uint16)
    rows = np.frombuffer(row.rows, dtype=campaign.row)
    return Batch(campaign, row.period, tokens, None, groups, rows, np.arange(row.users))


def _sift(bodies: Sequence[Sequence[Batch]], known: dict[bytes, int]) -> tuple[list[Accepted | Refused], list[Batch]]:
    """Look at every report, and return how each body fares and the reports that are new."""
    outcomes: list[Accepted | Refused] = []
    news: list[Batch] = []
    for body in bodies:
        here: dict[bytes, int] = {}  # what this body adds; it counts only if nothing in it is refused
        refusals: list[Refusal] = []
        chosen = [_unknown(batch, known, here, refusals) for batch in body]
        if refusals:
            outcomes.append(Refused(sorted(refusals, key=lambda refusal: refusal.index)))
            continue
        known |= here
        accepted = sum(int(one.sum()) for one in chosen)
        outcomes.append(Accepted(accepted, sum(map(len, body)) - accepted))
        news += [batch.take(one) for batch, one in zip(body, chosen, strict=True)]
    return outcomes, news


def _unknown(batch: Batch, known: dict[bytes, int], here: dict[bytes, int], refusals: list[Refusal]) -> Any:
    """Tell which reports of a batch are new, and note those that contradict what is known."""
    tokens, marks = pieces(batch.token_digests), batch.marks.tolist()
    keys = [None] * len(tokens) if batch.keys is None else pieces(batch.keys)
    key_marks = marks if batch.keys is None else batch.key_marks.tolist()
    new = np.zeros(len(tokens), dtype=bool)
    for place, (token, mark, key, key_mark) in enumerate(zip(tokens, marks, keys, key_marks, strict=True)):
        index = int(batch.index[place])
        key_before = None if key is None else here.get(key, known.get(key))
        before = here.get(token, known.get(token))
        if key_before is not None and key_before != key_mark:
            detail = "This key came before with another report. Give each report a key of its own."
            refusals.append(Refusal(index, "key-reused", detail))
        elif before is not None and (before != mark or (key is not None and key_before is None)):
            detail = f"This user has already answered in period {batch.period}. Answer again in the next one."
            refusals.append(Refusal(index, "already-answered", detail))
        elif before is None and key_before is None:
            new[place] = True
            here[token] = mark
            if key is not None:
                here[key] = key_mark
    return new
