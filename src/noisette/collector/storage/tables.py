"""The collector's tables, and how a database is opened so that what is committed is on the disk."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

SCHEMA = 4

_SETTINGS = ("page_size = 4096", "journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON")
_TO_WRITE = ("cache_size = -65536", "wal_autocheckpoint = 16384")  # in KiB; in pages

metadata = sa.MetaData()
meta = sa.Table("noisette_collector", metadata, sa.Column("version", sa.Integer, primary_key=True))
campaigns = sa.Table(
    "campaigns",
    metadata,
    sa.Column("id", sa.String(63), primary_key=True),
    sa.Column("definition", sa.Text, nullable=False),
)
# What was accepted: a digest of each token in its period, and of each key that came with one. ``mark`` tells a report
# that is sent again from another one under the same token or key.
seen = sa.Table(
    "seen",
    metadata,
    sa.Column("digest", sa.LargeBinary(16), primary_key=True),
    sa.Column("mark", sa.BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
# Digests on their way into ``seen``, in SQLite alone: those of one transaction a row, and the turn when they came.
fresh = sa.Table(
    "fresh",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("turn", sa.BigInteger, nullable=False),
    sa.Column("digests", sa.LargeBinary, nullable=False),
    sa.Column("marks", sa.LargeBinary, nullable=False),
    sqlite_autoincrement=True,
)
# The reports themselves, as many to a row as were committed together, in the order of their arrival.
blocks = sa.Table(
    "blocks",
    metadata,
    sa.Column("number", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
    sa.Column("campaign", sa.String(63), sa.ForeignKey("campaigns.id"), nullable=False),
    sa.Column("period", sa.String(16), nullable=False),
    sa.Column("users", sa.Integer, nullable=False),
    sa.Column("tokens", sa.LargeBinary, nullable=False),
    sa.Column("groups", sa.LargeBinary, nullable=False),
    sa.Column("rows", sa.LargeBinary, nullable=False),
    sa.Index("blocks_of", "campaign", "period"),
)
sums = sa.Table(
    "sums",
    metadata,
    sa.Column("campaign", sa.String(63), sa.ForeignKey("campaigns.id"), primary_key=True),
    sa.Column("period", sa.String(16), primary_key=True),
    sa.Column("group", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("layout", sa.String(16), nullable=False),
    sa.Column("users", sa.BigInteger, nullable=False),
    sa.Column("vector", sa.LargeBinary, nullable=False),
)

# How errors shrank: after so many users the standard error of each quantity that the dashboard shows.
tracks = sa.Table(
    "tracks",
    metadata,
    sa.Column("campaign", sa.String(63), sa.ForeignKey("campaigns.id"), primary_key=True),
    sa.Column("period", sa.String(16), primary_key=True),
    sa.Column("users", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("errors", sa.LargeBinary, nullable=False),
)
# Signing keys of blind tokens, and which code has had its token: a digest of the code, and of what was signed.
signing = sa.Table(
    "signing",
    metadata,
    sa.Column("campaign", sa.String(63), sa.ForeignKey("campaigns.id"), primary_key=True),
    sa.Column("period", sa.String(16), primary_key=True),
    sa.Column("pem", sa.LargeBinary, nullable=False),
)
issued = sa.Table(
    "issued",
    metadata,
    sa.Column("digest", sa.LargeBinary(16), primary_key=True),
    sa.Column("blinded", sa.LargeBinary(16), nullable=False),
)


def insert_new(connection: sa.Connection, table: sa.Table, row: dict[str, Any]) -> None:
    """Insert a row unless one with its key is there."""
    dialect: Any = postgresql if connection.dialect.name == "postgresql" else sqlite
    connection.execute(dialect.insert(table).values(**row).on_conflict_do_nothing())


def open_engine(url: str, *, writes: bool = False) -> sa.Engine:
    """Open ``sqlite:///file`` or ``postgresql://host/name``, whose commits wait for the disk.

    With ``writes`` SQLite has one connection, whose transactions have the right to write from their beginning. Its
    cache stays: a connection of SQLite drops all pages that it holds when it sees that another one has written.
    """
    try:
        parsed = sa.make_url(url)
        backend = parsed.get_backend_name()
        if backend not in ("sqlite", "postgresql") or (backend == "sqlite" and not parsed.database):
            raise ArgumentError("unknown")
        if backend == "postgresql":
            options: dict[str, Any] = {"connect_args": {"options": "-c synchronous_commit=on"}, "pool_pre_ping": True}
            return sa.create_engine(parsed.set(drivername="postgresql+psycopg"), **options)
        alone = {"pool_size": 1, "max_overflow": 0} if writes else {}
        engine = sa.create_engine(parsed, connect_args={"timeout": 30}, **alone)
    except (ArgumentError, NoSuchModuleError) as error:
        raise ValueError(
            "Expected the database to be sqlite:///FILE or postgresql://USER@HOST/NAME, got another URL."
        ) from error
    sa.event.listen(engine, "connect", _prepare_to_write if writes else _prepare)
    sa.event.listen(engine, "begin", lambda found: found.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN"))
    return engine


def _prepare(connection: Any, _: Any) -> None:
    """Set up one SQLite connection: transactions are ours to begin, and a commit waits for the disk."""
    connection.isolation_level = None
    for setting in _SETTINGS:
        connection.execute(f"PRAGMA {setting}")


def _prepare_to_write(connection: Any, record: Any) -> None:
    """Set up the connection that writes."""
    _prepare(connection, record)
    for setting in _TO_WRITE:
        connection.execute(f"PRAGMA {setting}")
