"""What the collector keeps: campaigns, reports and running sums, in SQLite or PostgreSQL.

A report, the keys that make it unique and the sums that it adds to are one transaction. When `Store.accept` returns,
that transaction is on the disk; when it raises, nothing of it is.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from noisette._validate import IntArray
from noisette.aggregation.streams import quantities
from noisette.collector.campaigns import Campaign
from noisette.core import Aggregate

SCHEMA = 1
_WRITES = "noisette_writes"  # the execution option of a transaction that will write
_AT_ONCE = 500  # keys looked up in one query
_SUMS = ("count", "total", "squares")

metadata = sa.MetaData()
_meta = sa.Table("noisette_collector", metadata, sa.Column("version", sa.Integer, primary_key=True))
_campaigns = sa.Table(
    "campaigns",
    metadata,
    sa.Column("id", sa.String(63), primary_key=True),
    sa.Column("definition", sa.Text, nullable=False),
)
_reports = sa.Table(
    "reports",
    metadata,
    sa.Column("number", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
    sa.Column("campaign", sa.String(63), sa.ForeignKey("campaigns.id"), nullable=False),
    sa.Column("key", sa.String(64), nullable=False),
    sa.Column("period", sa.String(16), nullable=False),
    sa.Column("token", sa.String(64), nullable=False),
    sa.Column("report", sa.Text, nullable=False),
    sa.UniqueConstraint("campaign", "key", name="once_a_key"),
    sa.UniqueConstraint("campaign", "period", "token", name="once_a_period"),
)
_aggregates = sa.Table(
    "aggregates",
    metadata,
    sa.Column("campaign", sa.String(63), sa.ForeignKey("campaigns.id"), primary_key=True),
    sa.Column("period", sa.String(16), primary_key=True),
    sa.Column("users", sa.BigInteger, nullable=False),
    *(sa.Column(name, sa.LargeBinary, nullable=False) for name in _SUMS),
)


@dataclass(frozen=True)
class Received:
    """One report as it came, with the key of its sending and the user's token of the period."""

    key: str
    period: str
    token: str
    report: Any


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

    Safe for several threads and processes. SQLite writes ahead and waits for the disk (``synchronous=FULL``);
    PostgreSQL commits synchronously.
    """

    def __init__(self, url: str) -> None:
        try:
            parsed = sa.make_url(url)
            backend = parsed.get_backend_name()
            if backend not in ("sqlite", "postgresql") or (backend == "sqlite" and not parsed.database):
                raise ArgumentError("unknown")
            options = {"timeout": 30} if backend == "sqlite" else {"options": "-c synchronous_commit=on"}
            self._engine = sa.create_engine(parsed, connect_args=options, pool_pre_ping=backend != "sqlite")
        except (ArgumentError, NoSuchModuleError) as error:
            raise ValueError(
                "Expected the database to be sqlite:///FILE or postgresql://USER@HOST/NAME, got another URL."
            ) from error
        # SQLite has one writer, and its own way of waiting is a sleep: threads of this process queue here instead.
        self._turn: Any = threading.Lock() if backend == "sqlite" else nullcontext()
        if backend == "sqlite":
            sa.event.listen(self._engine, "connect", _prepare)
            sa.event.listen(self._engine, "begin", _begin)
        self._create()

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def ping(self) -> None:
        """Raise unless the database answers and has our tables."""
        with self._reading() as connection:
            connection.execute(sa.select(_meta.c.version)).one()

    def register(self, campaign: Campaign) -> Campaign:
        """Store a campaign, or return the stored one if its terms are the same.

        What was stored wins: the mechanism was chosen once, whatever a later version of the planner would choose.
        """
        with self._writing() as connection:
            self._lock_all(connection)
            stored = self._definition(connection, campaign.id)
            if stored is None:
                text = json.dumps(campaign.to_wire())
                connection.execute(sa.insert(_campaigns).values(id=campaign.id, definition=text))
                return campaign
        known = Campaign.from_wire(json.loads(stored))
        if known.terms() != campaign.terms():
            changed = sorted(key for key, value in known.terms().items() if campaign.terms()[key] != value)
            raise ValueError(
                f"Campaign {campaign.id!r} is in this database with another {', '.join(changed)}. "
                "Devices may have answered it: ask something else under another id."
            )
        return known

    def accept(self, campaign: Campaign, batch: Sequence[Received]) -> Accepted:
        """Store the reports of a batch that are new and add them to the sums, all in one transaction.

        A key that was stored with the same report is no news. Raises `Refused`, and stores nothing, if a key comes
        with another report or a token has another report in the same period.
        """
        with self._writing() as connection:
            connection.execute(sa.select(_campaigns.c.id).where(_campaigns.c.id == campaign.id).with_for_update()).one()
            new = self._news(connection, campaign, batch)
            by_period: dict[str, list[Received]] = {}
            for one in new:
                by_period.setdefault(one.period, []).append(one)
            for period, members in by_period.items():
                rows = [_row(campaign, one) for one in members]
                connection.execute(sa.insert(_reports), rows)
                added = campaign.aggregate(campaign.decode([one.report for one in members]))
                self._add(connection, campaign, period, added)
        return Accepted(len(new), len(batch) - len(new))

    def _news(self, connection: sa.Connection, campaign: Campaign, batch: Sequence[Received]) -> list[Received]:
        """Return the reports that are not stored yet, or raise with all that contradict what is."""
        columns = (_reports.c.key, _reports.c.period, _reports.c.token, _reports.c.report)
        keys: dict[str, tuple[str, str, str]] = {}
        used: set[tuple[str, str]] = set()
        for start in range(0, len(batch), _AT_ONCE):
            part = batch[start : start + _AT_ONCE]
            same_key = _reports.c.key.in_([one.key for one in part])
            same_token = _reports.c.token.in_([one.token for one in part])
            query = sa.select(*columns).where(_reports.c.campaign == campaign.id, sa.or_(same_key, same_token))
            for key, period, token, report in connection.execute(query):
                keys[key] = (period, token, report)
                used.add((period, token))
        new, refusals = [], []
        for index, one in enumerate(batch):
            own = (one.period, one.token, _text(one.report))
            if one.key in keys:
                if keys[one.key] != own:
                    detail = "This key came before with another report. Give each report a key of its own."
                    refusals.append(Refusal(index, "key-reused", detail))
            elif (one.period, one.token) in used:
                detail = f"This user has already answered in period {one.period}."
                refusals.append(Refusal(index, "already-answered", detail))
            else:
                keys[one.key] = own
                used.add((one.period, one.token))
                new.append(one)
        if refusals:
            raise Refused(refusals)
        return new

    def _add(self, connection: sa.Connection, campaign: Campaign, period: str, added: Aggregate) -> None:
        """Add to the sums of a period."""
        place = (_aggregates.c.campaign == campaign.id) & (_aggregates.c.period == period)
        row = connection.execute(sa.select(_aggregates).where(place)).mappings().one_or_none()
        merged = added if row is None else _load(campaign, row).merge(added)
        sums = {name: np.ascontiguousarray(getattr(merged, name), dtype="<i8").tobytes() for name in _SUMS}
        if row is None:
            connection.execute(
                sa.insert(_aggregates).values(campaign=campaign.id, period=period, users=merged.users, **sums)
            )
        else:
            connection.execute(sa.update(_aggregates).where(place).values(users=merged.users, **sums))

    def periods(self, campaign: Campaign) -> dict[str, int]:
        """Return the periods that have reports, in order, and how many users answered in each."""
        query = sa.select(_aggregates.c.period, _aggregates.c.users).where(_aggregates.c.campaign == campaign.id)
        with self._reading() as connection:
            return {row.period: row.users for row in connection.execute(query.order_by(_aggregates.c.period))}

    def aggregate(self, campaign: Campaign, period: str) -> Aggregate:
        """Return the sums of a period; of zero users if nothing came."""
        place = (_aggregates.c.campaign == campaign.id) & (_aggregates.c.period == period)
        with self._reading() as connection:
            row = connection.execute(sa.select(_aggregates).where(place)).mappings().one_or_none()
        if row is not None:
            return _load(campaign, row)
        weights = campaign.mechanism.readout.weights
        nothing = np.zeros(quantities(campaign.domain) if weights is None else weights.size, dtype=np.int64)
        return Aggregate(campaign.mechanism, 0, nothing, nothing, nothing, campaign.quantities)

    def reports(self, campaign: Campaign, period: str) -> Iterator[Received]:
        """Yield the stored reports of a period in the order in which they came, without holding them all."""
        columns = (_reports.c.key, _reports.c.period, _reports.c.token, _reports.c.report)
        query = sa.select(*columns).where(_reports.c.campaign == campaign.id, _reports.c.period == period)
        with self._reading() as connection:
            for row in connection.execute(query.order_by(_reports.c.number).execution_options(yield_per=1000)):
                yield Received(row[0], row[1], row[2], json.loads(row[3]))

    def _definition(self, connection: sa.Connection, name: str) -> str | None:
        query = sa.select(_campaigns.c.definition).where(_campaigns.c.id == name)
        return connection.execute(query).scalar_one_or_none()

    def _create(self) -> None:
        """Make the tables if there are none, and refuse those of another version."""
        with self._writing() as connection:
            if self._engine.dialect.name == "postgresql":
                connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": 0x4E5A434F})
            metadata.create_all(connection)
            versions = connection.execute(sa.select(_meta.c.version)).scalars().all()
            if not versions:
                connection.execute(sa.insert(_meta).values(version=SCHEMA))
            elif versions != [SCHEMA]:
                raise ValueError(f"This database has version {versions} of the collector's tables, expected {SCHEMA}.")

    def _lock_all(self, connection: sa.Connection) -> None:
        """Wait for whoever registers a campaign at the same time."""
        connection.execute(sa.select(_meta.c.version).with_for_update()).one()

    @contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        with self._engine.connect() as connection:
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        """Give a transaction that commits at the end and rolls back on an error."""
        with self._turn, self._engine.connect().execution_options(**{_WRITES: True}) as connection, connection.begin():
            yield connection


def _prepare(connection: Any, _: Any) -> None:
    """Set up one SQLite connection: transactions are ours to begin, and a commit waits for the disk."""
    connection.isolation_level = None
    for setting in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {setting}")


def _begin(connection: sa.Connection) -> None:
    """Begin a transaction of SQLite, with the right to write where it is wanted."""
    writes = connection.get_execution_options().get(_WRITES)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _text(report: Any) -> str:
    """Return the one way in which a report is written."""
    return json.dumps(report, separators=(",", ":"), allow_nan=False)


def _row(campaign: Campaign, one: Received) -> dict[str, Any]:
    return {
        "campaign": campaign.id,
        "key": one.key,
        "period": one.period,
        "token": one.token,
        "report": _text(one.report),
    }


def _load(campaign: Campaign, row: Mapping[Any, Any]) -> Aggregate:
    """Return stored sums as an aggregate."""
    count, total, squares = (_integers(row[name]) for name in _SUMS)
    return Aggregate(campaign.mechanism, row["users"], count, total, squares, campaign.quantities)


def _integers(stored: bytes) -> IntArray:
    return np.frombuffer(stored, dtype="<i8").astype(np.int64)
