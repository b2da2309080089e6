"""What the collector keeps: campaigns, reports and running sums, in SQLite or PostgreSQL.

A report, the digests that make it unique and the sums that it adds to are one transaction. When `Store.accept` returns,
that transaction is on the disk; when it raises, nothing of it is.
"""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import sqlalchemy as sa

from noisette.collector.storage import seen, tables
from noisette.collector.storage.fresh import Fresh
from noisette.collector.storage.migrations import migrate
from noisette.device.batches import Block
from noisette.survey.campaigns import Campaign, Rows
from noisette.survey.sums import Layout, Sums

_PLACE = sa.and_(*(tables.sums.c[name] == sa.bindparam(f"{name}_") for name in ("campaign", "period", "group")))
_NEW: dict[str, Any] = {name: sa.bindparam(f"{name}_") for name in ("layout", "users", "vector")}
_SELECT_SUMS = sa.select(tables.sums.c.users, tables.sums.c.vector).where(_PLACE)
_UPDATE_SUMS = sa.update(tables.sums).where(_PLACE).values(_NEW)
_INSERT_SUMS = sa.insert(tables.sums).values(
    {name: sa.bindparam(f"{name}_") for name in ("campaign", "period", "group")} | _NEW
)
_INSERT_BLOCK = sa.insert(tables.blocks).inline()


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


@dataclass(frozen=True, eq=False)
class Submission:
    """A batch for one campaign, stored all or none; its reports are possible, whether they are new is still to see."""

    campaign: Campaign
    blocks: tuple[Block, ...]


class Store:
    """Campaigns, reports and sums in the database at a URL: ``sqlite:///file`` or ``postgresql://host/name``.

    Safe for several threads and processes. SQLite writes ahead and waits for the disk (``synchronous=FULL``);
    PostgreSQL commits synchronously.
    """

    def __init__(self, url: str) -> None:
        self._engine = tables.open_engine(url)
        # SQLite has one writer, and its own way of waiting is a sleep: threads of this process queue here instead.
        embedded = self._engine.dialect.name == "sqlite"
        self._writer = tables.open_engine(url, writes=True) if embedded else self._engine
        self._turn: Any = threading.Lock() if embedded else nullcontext()
        self._seen: Any = Fresh() if embedded else seen  # which digests are known, and how to add some
        try:
            with self.writing() as connection:
                migrate(connection)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close all connections."""
        for engine in (self._engine, self._writer):
            engine.dispose()

    def ping(self) -> None:
        """Raise unless the database answers and has our tables."""
        with self.reading() as connection:
            connection.execute(sa.select(tables.meta.c.version)).one()

    def layout(self, campaign: Campaign) -> Layout:
        """Return where the sums of a campaign lie, which is found once."""
        found: Layout = campaign.layout
        return found

    def register(self, campaign: Campaign) -> Campaign:
        """Store a campaign, or return the stored one if its terms are the same.

        What was stored wins: the mechanism was chosen once, whatever a later version of the planner would choose.
        """
        with self.writing() as connection:
            connection.execute(sa.select(tables.meta.c.version).with_for_update()).one()
            query = sa.select(tables.campaigns.c.definition).where(tables.campaigns.c.id == campaign.id)
            stored = connection.execute(query).scalar_one_or_none()
            if stored is None:
                text = json.dumps(campaign.to_wire())
                connection.execute(sa.insert(tables.campaigns).values(id=campaign.id, definition=text))
                return campaign
            known = Campaign.from_wire(json.loads(stored))
            self._sum_anew(connection, known)
        if known.terms() != campaign.terms():
            changed = sorted(key for key, value in known.terms().items() if campaign.terms()[key] != value)
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
            for block in _stored_blocks(connection, campaign, period):
                for group, added in self._tally(campaign, block).items():
                    totals[group] = totals.get(group, layout.nothing()) + added
            connection.execute(sa.delete(table).where((table.c.campaign == campaign.id) & (table.c.period == period)))
            rows = [{"campaign": campaign.id, "period": period, "group": group} for group in totals]
            stored = [row | totals[row["group"]].stored() for row in rows]
            connection.execute(sa.insert(table), stored)

    def accept(self, submissions: Sequence[Submission]) -> list[Accepted | Refused]:
        """Store all that is new and add it to the sums in one transaction, and tell how each submission fared.

        A token or key that was stored with the same report is no news. A submission with one that came with another
        report is refused as a whole, and does not hinder the others. Most often everything is new: that is tried first.
        """
        every = _together([(one.campaign, block) for one in submissions for block in one.blocks])
        try:
            self._commit(submissions, every)
        except _Known:
            return self._accept_new(submissions)
        return [Accepted(sum(map(len, one.blocks)), 0) for one in submissions]

    def _commit(self, submissions: Sequence[Submission], blocks: list[tuple[Campaign, Block]]) -> None:
        """Write blocks in one transaction, or raise `_Known` and write nothing if a digest is there already."""
        sums = [self._tally(campaign, block) for campaign, block in blocks]
        identities = _identities(blocks)
        with self.writing() as connection:
            self._lock(connection, submissions)
            self._write_all(connection, blocks, sums, identities)

    def _accept_new(self, submissions: Sequence[Submission]) -> list[Accepted | Refused]:
        """Look every report up, and store those that are new."""
        with self.writing() as connection:
            self._lock(connection, submissions)
            outcomes, news = _sift(submissions, self._known(connection, submissions))
            blocks = _together(news)
            if blocks:
                sums = [self._tally(campaign, block) for campaign, block in blocks]
                self._write_all(connection, blocks, sums, _identities(blocks))
        return outcomes

    def _known(self, connection: sa.Connection, submissions: Sequence[Submission]) -> dict[bytes, int]:
        """Return the marks of those digests of submissions that are stored."""
        every = [(one.campaign, block) for one in submissions for block in one.blocks]
        found: dict[bytes, int] = self._seen.lookup(connection, seen.pieces(_identities(every)[0]))
        return found

    def _write_all(
        self, connection: sa.Connection, blocks: list[tuple[Campaign, Block]], sums: list[Any], identities: Any
    ) -> None:
        if not self._seen.insert(connection, *identities):
            raise _Known
        for (campaign, block), added in zip(blocks, sums, strict=True):
            self._write(connection, campaign, block, added)

    def _tally(self, campaign: Campaign, block: Block) -> dict[int, Sums]:
        """Sum the reports of each public group."""
        layout = self.layout(campaign)
        if campaign.public_group is None:
            return {0: layout.tally(block.rows)}
        return {group: layout.tally(block.rows[block.groups == group]) for group in np.unique(block.groups).tolist()}

    def _lock(self, connection: sa.Connection, submissions: Sequence[Submission]) -> None:
        """Wait for other processes that write to these campaigns, always in one order; SQLite has a single writer."""
        if connection.dialect.name == "postgresql":
            names = sorted({one.campaign.id for one in submissions})
            connection.exec_driver_sql("SELECT id FROM campaigns WHERE id = ANY(%s) ORDER BY id FOR UPDATE", (names,))

    def _write(self, connection: sa.Connection, campaign: Campaign, block: Block, added: dict[int, Sums]) -> None:
        """Write the reports of a block, and add to the sums of its period."""
        connection.execute(_INSERT_BLOCK, block.stored(campaign))
        for group, sums in added.items():
            place = {"campaign_": campaign.id, "period_": block.period, "group_": group}
            row = connection.execute(_SELECT_SUMS, place).one_or_none()
            total = sums if row is None else self._load(campaign, row) + sums
            new = place | {f"{name}_": value for name, value in total.stored().items()}
            connection.execute(_INSERT_SUMS if row is None else _UPDATE_SUMS, new)

    def _load(self, campaign: Campaign, row: Any) -> Sums:
        """Return stored sums."""
        return Sums(self.layout(campaign), row.users, np.frombuffer(row.vector, dtype="<i8").astype(np.int64))

    def sums(self, campaign: Campaign) -> dict[str, dict[int, Sums]]:
        """Return the sums of each period, in order, and public group."""
        query = sa.select(tables.sums).where(tables.sums.c.campaign == campaign.id)
        found: dict[str, dict[int, Sums]] = defaultdict(dict)
        with self.reading() as connection:
            for row in connection.execute(query.order_by(tables.sums.c.period, tables.sums.c.group)):
                found[row.period][row.group] = self._load(campaign, row)
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

    def blocks(self, campaign: Campaign, period: str) -> Iterator[Block]:
        """Yield the stored reports of a period in the order in which they came, without holding them all."""
        with self.reading() as connection:
            yield from _stored_blocks(connection, campaign, period)

    def rows(self, campaign: Campaign, period: str) -> Rows:
        """Return all stored reports of a period; for checks, it holds them all."""
        found = [block.rows for block in self.blocks(campaign, period)]
        return np.concatenate(found) if found else np.zeros(0, dtype=campaign.row)

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """Give a connection to read with."""
        with self._engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """Give a transaction that commits at the end and rolls back on an error."""
        with self._turn, self._writer.connect() as connection, connection.begin():
            yield connection


def _stored_blocks(connection: sa.Connection, campaign: Campaign, period: str) -> Iterator[Block]:
    """Yield the blocks of a period as they are stored, one at a time."""
    table = tables.blocks
    query = sa.select(table).where(table.c.campaign == campaign.id, table.c.period == period)
    for row in connection.execute(query.order_by(table.c.number), execution_options={"yield_per": 1}):
        tokens = np.frombuffer(row.tokens, dtype=np.uint8).reshape(row.users, -1)
        groups = np.frombuffer(row.groups or bytes(2 * row.users), dtype="<u2").astype(np.uint16)
        rows = np.frombuffer(row.rows, dtype=campaign.row)
        yield Block(period, tokens, None, groups, rows, np.arange(row.users))


def _together(blocks: list[tuple[Campaign, Block]]) -> list[tuple[Campaign, Block]]:
    """Join the blocks of each campaign and period, those with keys apart from those without."""
    joined: dict[tuple[str, str, bool], list[tuple[Campaign, Block]]] = defaultdict(list)
    for campaign, block in blocks:
        if len(block):
            joined[campaign.id, block.period, block.keys is None].append((campaign, block))
    return [(same[0][0], _joined([block for _, block in same])) for same in joined.values()]


def _joined(blocks: list[Block]) -> Block:
    first = blocks[0]
    if len(blocks) == 1:
        return first
    keys = None if first.keys is None else np.concatenate([one.keys for one in blocks if one.keys is not None])
    tokens, groups, rows = (
        np.concatenate([getattr(one, name) for one in blocks]) for name in ("tokens", "groups", "rows")
    )
    return Block(first.period, tokens, keys, groups, rows, np.arange(len(rows)))


def _identities(blocks: list[tuple[Campaign, Block]]) -> tuple[Any, Any]:
    """Return all digests of tokens and keys with their marks, in order of their bytes, which a tree takes faster."""
    digests, marks = [], []
    for campaign, block in blocks:
        own = block.marks
        digests.append(seen.token_digests(campaign.id, block.period, block.tokens))
        marks.append(own)
        if block.keys is not None:
            digests.append(block.keys)
            marks.append(block.key_marks)
    every, all_marks = np.concatenate(digests), np.concatenate(marks)
    words = every.view(">u8").astype(np.uint64)
    order = np.lexsort((words[:, 1], words[:, 0]))
    return every[order], all_marks[order]


def _sift(
    submissions: Sequence[Submission], known: dict[bytes, int]
) -> tuple[list[Accepted | Refused], list[tuple[Campaign, Block]]]:
    """Look at every report, and return how each submission fares and the reports that are new."""
    outcomes: list[Accepted | Refused] = []
    news: list[tuple[Campaign, Block]] = []
    for one in submissions:
        here: dict[bytes, int] = {}  # what this submission adds; it counts only if nothing in it is refused
        refusals: list[Refusal] = []
        fresh = [(block, _fresh(one.campaign, block, known, here, refusals)) for block in one.blocks]
        if refusals:
            outcomes.append(Refused(sorted(refusals, key=lambda refusal: refusal.index)))
            continue
        known |= here
        accepted = sum(int(chosen.sum()) for _, chosen in fresh)
        outcomes.append(Accepted(accepted, sum(map(len, one.blocks)) - accepted))
        news += [(one.campaign, block.take(chosen)) for block, chosen in fresh]
    return outcomes, news


def _fresh(
    campaign: Campaign, block: Block, known: dict[bytes, int], here: dict[bytes, int], refusals: list[Refusal]
) -> Any:
    """Tell which reports of a block are new, and note those that contradict what is known."""
    tokens = seen.pieces(seen.token_digests(campaign.id, block.period, block.tokens))
    marks = block.marks.tolist()
    keys = [None] * len(tokens) if block.keys is None else seen.pieces(block.keys)
    key_marks = marks if block.keys is None else block.key_marks.tolist()
    fresh = np.zeros(len(tokens), dtype=bool)
    for place, (token, mark, key, key_mark) in enumerate(zip(tokens, marks, keys, key_marks, strict=True)):
        index = int(block.index[place])
        key_before = None if key is None else here.get(key, known.get(key))
        before = here.get(token, known.get(token))
        if key_before is not None and key_before != key_mark:
            detail = "This key came before with another report. Give each report a key of its own."
            refusals.append(Refusal(index, "key-reused", detail))
        elif before is not None and (before != mark or (key is not None and key_before is None)):
            detail = f"This user has already answered in period {block.period}."
            refusals.append(Refusal(index, "already-answered", detail))
        elif before is None and key_before is None:
            fresh[place] = True
            here[token] = mark
            if key is not None:
                here[key] = key_mark
    return fresh
