"""The seam of the storage: what the collector asks of a database, which SQLite and PostgreSQL do each in its own way.

Whatever differs between the two is in `noisette.collector.storage.sqlite` and `noisette.collector.storage.postgres`.
All else here speaks SQLAlchemy's common language about the tables of `noisette.collector.storage.tables`, and nothing
outside this folder speaks it.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from noisette.collector.storage import tables
from noisette.survey.batches import Digests
from noisette.survey.campaigns import Campaign
from noisette.survey.sums import Sums

DatabaseFailure = SQLAlchemyError  # what any of them raises when it does not answer, or fails

Marks = npt.NDArray[np.int64]

_DIGESTS_AT_ONCE = 500  # digests looked up in one query
_KEYS = ("campaign", "period", "group", "writer")
_PLACE = sa.and_(*(tables.sums.c[name] == sa.bindparam(f"{name}_") for name in _KEYS))
_NEW: dict[str, Any] = {name: sa.bindparam(f"{name}_") for name in ("layout", "users", "vector")}
_SELECT_SUMS = sa.select(tables.sums.c.users, tables.sums.c.vector).where(_PLACE)
_UPDATE_SUMS = sa.update(tables.sums).where(_PLACE).values(_NEW)
INSERT_BLOCK = sa.insert(tables.blocks).inline()


def new_number() -> int:
    """Return a number for a block of reports, drawn at random so that it says nothing about the time."""
    return secrets.randbits(62)


@dataclass(frozen=True)
class AddedSums:
    """What reports add to the sums of a public group in a period."""

    campaign: Campaign
    period: str
    group: int
    more: Sums

    @property
    def place(self) -> dict[str, Any]:
        """The key of the row of sums, without the number of its writer."""
        return {"campaign": self.campaign.id, "period": self.period, "group": self.group}

    @property
    def nothing(self) -> Sums:
        """The sums of a row that is new."""
        return self.more.layout.nothing()

    def onto(self, users: int, vector: bytes) -> Sums:
        """Return the sums of a row that has these columns, and of this, or raise `OverflowError`."""
        return Sums(self.more.layout, users, np.frombuffer(vector, dtype="<i8").astype(np.int64)) + self.more


class Database(ABC):
    """A database whose commits wait for the disk; safe for several threads and processes."""

    insert: Callable[[sa.Table], Any]  # SQLAlchemy's INSERT that can ignore what is there

    @classmethod
    @abstractmethod
    def located(cls, url: sa.URL) -> sa.URL:
        """Return a URL that means the same in any folder, or raise if there can be no such database."""

    @abstractmethod
    def __init__(self, url: sa.URL) -> None:
        self.engine: sa.Engine

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """Give a connection to read with."""
        with self.engine.connect() as connection:
            yield connection

    @abstractmethod
    def snapshot(self) -> AbstractContextManager[sa.Connection]:
        """Give a connection that sees one state of the database for as long as it is open."""

    @abstractmethod
    def writing(self) -> AbstractContextManager[sa.Connection]:
        """Give a transaction that commits at the end and rolls back on an error."""

    @abstractmethod
    def lock_tables(self, connection: sa.Connection) -> None:
        """Wait for others who look at the version of the tables, until the transaction ends."""

    @property
    @abstractmethod
    def writer_number(self) -> int:
        """Which sums this process adds to: a number of its own, as far as one is free."""

    @abstractmethod
    def check_room(self) -> None:
        """Raise where the disk has no room left for reports, as far as can be seen from here."""

    def settle(self) -> None:  # noqa: B027  # only one has a log
        """Put digests that are kept in the order of their arrival into another order."""

    def prepare(self, connection: sa.Connection) -> None:  # noqa: B027  # only one has tables of its own
        """Create the tables that only one kind of database has."""

    @abstractmethod
    def shrink_digests(self, connection: sa.Connection) -> None:
        """Turn digests of an older schema into the database's type of 16 bytes, where it has one."""

    @abstractmethod
    def widen(self, connection: sa.Connection, column: sa.Column[str]) -> None:
        """Let a column of an older schema take texts as long as it does now."""

    def write(
        self,
        connection: sa.Connection,
        digests: Digests,
        marks: Marks,
        blocks: list[dict[str, Any]],
        gains: list[AddedSums],
    ) -> bool:
        """Write blocks of reports, their digests in order of bytes and what they add to the sums.

        Return False if a digest is known: the transaction must then end.
        """
        if not self.add_digests(connection, digests, marks):
            return False
        connection.execute(INSERT_BLOCK, blocks)
        for gain in gains:
            row = gain.place | {"writer": self.writer_number}
            place = {f"{name}_": own for name, own in row.items()}
            before = connection.execute(_SELECT_SUMS, place).one_or_none()
            if before is None:
                connection.execute(sa.insert(tables.sums).values(**row, **gain.more.stored()))
            else:
                total = gain.onto(*before).stored()
                connection.execute(_UPDATE_SUMS, place | {f"{name}_": own for name, own in total.items()})
        return True

    @abstractmethod
    def add_digests(self, connection: sa.Connection, digests: Digests, marks: Marks) -> bool:
        """Write digests in order of their bytes, or return False if one is known: the transaction must then end."""

    def find_digests(self, connection: sa.Connection, digests: Sequence[bytes]) -> dict[bytes, int]:
        """Return the marks of those digests that are known."""
        found: dict[bytes, int] = {}
        for start in range(0, len(digests), _DIGESTS_AT_ONCE):
            query = sa.select(tables.seen).where(tables.seen.c.digest.in_(digests[start : start + _DIGESTS_AT_ONCE]))
            found.update((bytes(digest), mark) for digest, mark in connection.execute(query))
        return found

    def restore_digests(self, connection: sa.Connection, rows: Sequence[Any]) -> None:
        """Write rows of ``seen`` from a backup."""
        connection.execute(sa.insert(tables.seen), rows)

    def insert_new(self, connection: sa.Connection, table: sa.Table, row: dict[str, Any]) -> None:
        """Insert a row unless one with its key is there."""
        connection.execute(type(self).insert(table).values(**row).on_conflict_do_nothing())


def open_database(url: str) -> Database:
    """Open ``sqlite:///file`` or ``postgresql://host/name``."""
    kind, parsed = _kind(url)
    return kind(parsed)


def located(url: str) -> str:
    """Return a URL that means the same in any folder; a file of SQLite that is not there is an error."""
    kind, parsed = _kind(url)
    return kind.located(parsed).render_as_string(hide_password=False)


@contextmanager
def snapshot(url: str) -> Iterator[sa.Connection]:
    """Open a database for one transaction that reads, and say what is wrong in words."""
    database = open_database(url)
    try:
        with database.snapshot() as connection:
            yield connection
    except SQLAlchemyError as error:
        reason = str(getattr(error, "orig", None) or error).splitlines()[0].rstrip(".")
        shown = database.engine.url.render_as_string(hide_password=True)
        raise ValueError(f"{shown} cannot be read as a collector's database: {reason}. Restore a backup.") from error
    finally:
        database.close()


def _kind(url: str) -> tuple[type[Database], sa.URL]:
    """Return which database a URL names."""
    try:
        parsed = sa.make_url(url)
        backend = parsed.get_backend_name()
        if backend == "postgresql":
            from noisette.collector.storage.postgres import PostgresDatabase

            return PostgresDatabase, parsed
        if backend == "sqlite" and parsed.database:
            from noisette.collector.storage.sqlite import SqliteDatabase

            return SqliteDatabase, parsed
        raise ArgumentError("unknown")
    except (ArgumentError, NoSuchModuleError) as error:
        raise ValueError(
            "Expected the database to be sqlite:///FILE or postgresql://USER@HOST/NAME, got another URL."
        ) from error
