"""The collector's tables: the same in every database, except where SQLite is named."""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import UUID

import sqlalchemy as sa

SCHEMA = 9


class Digest(sa.types.TypeDecorator[bytes]):
    """Sixteen bytes. A database with a type of that length for UUIDs names it in ``own``, by SQLAlchemy's dialect."""

    impl = sa.LargeBinary(16)
    cache_ok = True
    own: ClassVar[dict[type[sa.Dialect], sa.types.TypeEngine[UUID]]] = {}

    def load_dialect_impl(self, dialect: sa.Dialect) -> Any:
        """Return the type of a database."""
        return dialect.type_descriptor(self.own.get(type(dialect), sa.LargeBinary(16)))

    def process_bind_param(self, value: bytes | None, dialect: sa.Dialect) -> Any:
        """Return what the database takes."""
        return UUID(bytes=value) if value is not None and type(dialect) in self.own else value

    def process_result_value(self, value: Any, _: sa.Dialect) -> bytes | None:
        """Return the bytes."""
        return value.bytes if isinstance(value, UUID) else value


def _campaign_and_period(**kind: bool) -> tuple[sa.Column[str], sa.Column[str]]:
    """Return the columns that say which campaign and period a row belongs to."""
    campaign = sa.Column("campaign", sa.String(63), sa.ForeignKey("campaigns.id"), **kind)  # type: ignore[arg-type]
    return campaign, sa.Column("period", sa.String(16), **kind)  # type: ignore[arg-type]


metadata = sa.MetaData()
meta = sa.Table("noisette_collector", metadata, sa.Column("version", sa.Integer, primary_key=True))
campaigns = sa.Table(
    "campaigns",
    metadata,
    sa.Column("id", sa.String(63), primary_key=True),
    sa.Column("definition", sa.Text, nullable=False),
    sa.Column("life", sa.Text, nullable=False, server_default="{}"),
)
# What was accepted: a digest of each token in its period, and of each key that came with one. ``mark`` tells a report
# that is sent again from another one under the same token or key. PostgreSQL has tables that inherit from it.
seen = sa.Table(
    "seen",
    metadata,
    sa.Column("digest", Digest, primary_key=True),
    sa.Column("mark", sa.BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
# Digests on their way into ``seen``, in SQLite alone: those of one transaction a row, and the turn when they came.
digest_log = sa.Table(
    "digest_log",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("turn", sa.BigInteger, nullable=False),
    sa.Column("digests", sa.LargeBinary, nullable=False),
    sa.Column("marks", sa.LargeBinary, nullable=False),
    sqlite_autoincrement=True,
)
# The reports themselves, as many to a row as were committed together, in an order that says nothing: rows are mixed,
# and numbers are drawn at random. ``mixed`` marks the blocks that hold the reports of many others, mixed once more.
blocks = sa.Table(
    "blocks",
    metadata,
    sa.Column("number", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=False),
    *_campaign_and_period(nullable=False),
    sa.Column("users", sa.Integer, nullable=False),
    sa.Column("mixed", sa.Integer, nullable=False, server_default="0"),
    sa.Column("tokens", sa.LargeBinary, nullable=False),
    sa.Column("groups", sa.LargeBinary, nullable=False),
    sa.Column("rows", sa.LargeBinary, nullable=False),
    sa.Index("blocks_of", "campaign", "period"),
)
# Each process adds to sums of its own, ``writer``, so that none waits for another; they are added when they are read.
sums = sa.Table(
    "sums",
    metadata,
    *_campaign_and_period(primary_key=True),
    sa.Column("group", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("writer", sa.Integer, primary_key=True, autoincrement=False, server_default="0"),
    sa.Column("layout", sa.String(16), nullable=False),
    sa.Column("users", sa.BigInteger, nullable=False),
    sa.Column("vector", sa.LargeBinary, nullable=False),
)

# How errors shrank: after this many users the standard error of each quantity that the dashboard shows.
tracks = sa.Table(
    "tracks",
    metadata,
    *_campaign_and_period(primary_key=True),
    sa.Column("users", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("errors", sa.LargeBinary, nullable=False),
)
# How many users there were at some moments, in seconds of the epoch: one row at most in each span of ``width`` seconds.
arrivals = sa.Table(
    "arrivals",
    metadata,
    *_campaign_and_period(primary_key=True),
    sa.Column("width", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("place", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("moment", sa.BigInteger, nullable=False),
    sa.Column("users", sa.BigInteger, nullable=False),
)
# Signing keys of blind tokens, the newest of which signs while all verify, and which code has had its token: a digest
# of the code, and of what was signed.
signing = sa.Table(
    "signing",
    metadata,
    *_campaign_and_period(primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False, server_default="0"),
    sa.Column("pem", sa.LargeBinary, nullable=False),
)
issued = sa.Table(
    "issued",
    metadata,
    sa.Column("digest", sa.LargeBinary(16), primary_key=True),
    sa.Column("blinded", sa.LargeBinary(16), nullable=False),
)
# What a shuffler brings: parts of a batch until it is whole, still sealed; and of every batch what became of it.
mixed = sa.Table(
    "mixed",
    metadata,
    sa.Column("name", sa.String(32), primary_key=True),
    *_campaign_and_period(nullable=False),
    sa.Column("total", sa.Integer, nullable=False),
    sa.Column("state", sa.String(8), nullable=False),  # coming, held, released or refused
    sa.Column("packets", sa.Integer, nullable=False),
    sa.Column("accepted", sa.Integer, nullable=False),
    sa.Index("mixed_of", "campaign", "period", "state"),
)
mixed_parts = sa.Table(
    "mixed_parts",
    metadata,
    sa.Column("name", sa.String(32), sa.ForeignKey("mixed.name"), primary_key=True),
    sa.Column("sequence", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("frame", sa.LargeBinary, nullable=False),
)
# API keys that were given out by name: a digest of each, and when it ends.
keys = sa.Table(
    "keys",
    metadata,
    sa.Column("name", sa.String(64), primary_key=True),
    sa.Column("role", sa.String(80), nullable=False),  # that of a link has the campaign's id in it
    sa.Column("digest", sa.LargeBinary(32), nullable=False),
    sa.Column("ends", sa.String(32)),
)
# Who changed what; by its last number every process sees whether anything has changed.
audit = sa.Table(
    "audit",
    metadata,
    sa.Column("number", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
    sa.Column("moment", sa.String(32), nullable=False),
    sa.Column("who", sa.String(64), nullable=False),
    sa.Column("action", sa.String(32), nullable=False),
    sa.Column("subject", sa.String(64), nullable=False),
    sa.Column("detail", sa.Text, nullable=False),
    sqlite_autoincrement=True,
)
# Periods whose reports were deleted by age; their sums stay.
expired = sa.Table(
    "expired",
    metadata,
    *_campaign_and_period(primary_key=True),
)
