"""PostgreSQL behind the seam: a server that several processes write to, which takes digests by COPY."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from noisette.collector.storage.database import Database, Marks
from noisette.survey.batches import DIGEST_BYTES, Digests

_LOCK = 0x4E5A434F  # taken by whoever looks at the version of the tables
_COPY_HEAD = b"PGCOPY\n\xff\r\n\x00" + bytes(8)
_COPY_TAIL = b"\xff\xff"
# a row of PostgreSQL's binary COPY: number of fields, then length and bytes of each, big-endian
_COPY_ROW = np.dtype(
    [("fields", ">i2"), ("size", ">i4"), ("digest", "u1", DIGEST_BYTES), ("eight", ">i4"), ("mark", ">i8")]
)


class PostgresDatabase(Database):
    """A database of PostgreSQL, which commits synchronously whatever its own settings are."""

    insert = staticmethod(postgresql.insert)

    @classmethod
    def located(cls, url: sa.URL) -> sa.URL:
        """Return the URL as it is: it names a host."""
        return url

    def __init__(self, url: sa.URL) -> None:
        options: dict[str, Any] = {"connect_args": {"options": "-c synchronous_commit=on"}, "pool_pre_ping": True}
        self.engine = sa.create_engine(url.set(drivername="postgresql+psycopg"), **options)

    @contextmanager
    def snapshot(self) -> Iterator[sa.Connection]:
        """Give a connection in one transaction of repeatable reads."""
        with self.engine.connect() as connection:
            connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """Give a transaction; others go on beside it."""
        with self.engine.begin() as connection:
            yield connection

    def lock_tables(self, connection: sa.Connection) -> None:
        """Take an advisory lock."""
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})

    def lock_campaigns(self, connection: sa.Connection, names: Sequence[str]) -> None:
        """Lock the campaigns' rows, always in one order."""
        query = "SELECT id FROM campaigns WHERE id = ANY(%s) ORDER BY id FOR UPDATE"
        connection.exec_driver_sql(query, (sorted(set(names)),))

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
