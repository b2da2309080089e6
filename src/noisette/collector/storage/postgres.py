"""PostgreSQL behind the seam: a server that several processes write to, which takes digests by COPY."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

from noisette.collector.storage import tables
from noisette.collector.storage.database import Database, Marks
from noisette.survey.batches import DIGEST_BYTES, Digests

_LOCK = 0x4E5A434F  # taken by whoever looks at the version of the tables
_WRITERS = 256  # processes with sums of their own
# commits wait for the disk; nobody waits for a database that hangs, nor a database for us
_SETTINGS = (
    "-c synchronous_commit=on -c statement_timeout=60s -c lock_timeout=20s -c idle_in_transaction_session_timeout=60s"
)
_COPY_HEAD = b"PGCOPY\n\xff\r\n\x00" + bytes(8)
_COPY_TAIL = b"\xff\xff"
# a row of PostgreSQL's binary COPY: number of fields, then length and bytes of each, big-endian
_COPY_ROW = np.dtype(
    [("fields", ">i2"), ("size", ">i4"), ("digest", "u1", DIGEST_BYTES), ("eight", ">i4"), ("mark", ">i8")]
)

# the index of these is a fifth smaller than that of byte strings
tables.Digest.own[PGDialect_psycopg] = postgresql.UUID()


class PostgresDatabase(Database):
    """A database of PostgreSQL, which commits synchronously whatever its own settings are."""

    insert = staticmethod(postgresql.insert)

    @classmethod
    def located(cls, url: sa.URL) -> sa.URL:
        """Return the URL as it is: it names a host."""
        return url

    def __init__(self, url: sa.URL) -> None:
        options: dict[str, Any] = {
            "connect_args": {"options": _SETTINGS, "connect_timeout": 10, "tcp_user_timeout": 30_000},
            "pool_pre_ping": True,
            "pool_timeout": 30,
        }
        self.engine = sa.create_engine(url.set(drivername="postgresql+psycopg"), **options)
        self._claim: sa.Connection | None = None
        self._claiming, self._number = threading.Lock(), 0

    def close(self) -> None:
        """Close all connections."""
        if self._claim is not None:
            self._claim.close()
        super().close()

    def shrink_digests(self, connection: sa.Connection) -> None:
        """Turn byte strings into UUIDs."""
        present = {one["name"]: one["type"] for one in sa.inspect(connection).get_columns(tables.seen.name)}
        if not isinstance(present["digest"], sa.Uuid):  # a table that was just made has it
            kind = "uuid USING encode(digest, 'hex')::uuid"
            connection.execute(sa.text(f"ALTER TABLE seen ALTER COLUMN digest TYPE {kind}"))

    @property
    def writer_number(self) -> int:
        """The first number that no other process holds.

        It is claimed once, by a lock that ends with its connection. If that breaks, two processes may share sums: they
        then wait for each other, and nothing is lost.
        """
        with self._claiming:
            if self._claim is None:
                self._claim = self.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
                query = sa.text("SELECT pg_try_advisory_lock(:key, :number)")
                tried = (
                    number
                    for number in range(_WRITERS)
                    if self._claim.execute(query, {"key": _LOCK, "number": number}).scalar()
                )
                self._number = next(tried, secrets.randbelow(_WRITERS))
            return self._number

    def check_room(self) -> None:
        """Do nothing: the disk is the server's, which says so when it is asked to write."""

    @contextmanager
    def snapshot(self) -> Iterator[sa.Connection]:
        """Give a connection in one transaction of repeatable reads."""
        with self.engine.connect() as connection:
            connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            connection.execute(sa.text("SET LOCAL statement_timeout = 0"))
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """Give a transaction; others go on beside it."""
        with self.engine.begin() as connection:
            yield connection

    def lock_tables(self, connection: sa.Connection) -> None:
        """Take an advisory lock."""
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})

    def add_digests(self, connection: sa.Connection, digests: Digests, marks: Marks) -> bool:
        """Copy digests into the table; one that is there aborts the transaction."""
        import psycopg

        rows = np.empty(len(digests), dtype=_COPY_ROW)
        rows["fields"], rows["size"], rows["eight"] = 2, DIGEST_BYTES, 8
        rows["digest"], rows["mark"] = digests, marks
        cursor: Any = connection.connection.cursor()
        try:
            with cursor.copy("COPY seen (digest, mark) FROM STDIN WITH (FORMAT BINARY)") as copy:
                copy.write(_COPY_HEAD + rows.tobytes() + _COPY_TAIL)
        except psycopg.errors.UniqueViolation:
            return False
        finally:
            cursor.close()
        return True
