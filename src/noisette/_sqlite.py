"""One way to write to an SQLite file: a transaction is on the disk when it ends, or nothing of it is."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress


def connect(path: str | os.PathLike[str], *, timeout: float = 30.0, any_thread: bool = False) -> sqlite3.Connection:
    """Open a file whose commits wait for the disk; transactions begin where `transaction` says so, and nowhere else."""
    connection = sqlite3.connect(path, timeout=timeout, isolation_level=None, check_same_thread=not any_thread)
    try:
        for setting in ("synchronous = FULL", "foreign_keys = ON"):
            connection.execute(f"PRAGMA {setting}")
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def transaction(database: sqlite3.Connection | str | os.PathLike[str]) -> Iterator[sqlite3.Connection]:
    """Give a connection that nobody else writes beside; a file is opened for this one transaction."""
    if not isinstance(database, sqlite3.Connection):
        with closing(connect(database)) as opened, transaction(opened):
            yield opened
        return
    database.execute("BEGIN IMMEDIATE")
    try:
        yield database
        database.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # a full disk has ended it already
            database.execute("ROLLBACK")
        raise
