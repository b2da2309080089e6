"""An SQLite file whose transactions are on the disk when they end, and that its owner alone can read."""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from noisette import _sqlite

_PAGE = 4096


class Full(OSError):
    """The file has reached the size it may have, or its disk is full; nothing was stored."""


class PacketDatabase:
    """One connection that threads take in turns; ``path`` may be ``":memory:"`` for simulations.

    ``largest`` is the size in bytes that the file may reach. What is deleted is overwritten. A ``journal`` of
    "TRUNCATE" leaves no trace of a transaction that has ended; "WAL" lets another process read meanwhile, and leaves
    the last transactions in a file beside it, one after the other.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        schema: str,
        application: int,
        *,
        largest: int,
        journal: Literal["TRUNCATE", "WAL"] = "WAL",
    ) -> None:
        self._turn = threading.RLock()
        if str(path) != ":memory:":
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # SQLite gives its other files the same mode
            if stat.S_IMODE(os.stat(path).st_mode) & 0o077:
                os.chmod(path, 0o600)
        self._connection = _sqlite.connect(path, any_thread=True)
        for setting in (f"journal_mode = {journal}", "secure_delete = ON"):
            self._connection.execute(f"PRAGMA {setting}").fetchall()
        self._connection.execute(f"PRAGMA max_page_count = {max(1, largest // _PAGE)}").fetchall()
        with self.transaction() as connection:
            found = connection.execute("PRAGMA application_id").fetchone()[0]
            if found == 0 and connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
                for statement in schema.split(";\n"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {application}")
            elif found != application:
                raise ValueError(f"{path} is a database of something else, or of another version. Take another path.")

    def close(self) -> None:
        """Close the file."""
        with self._turn:
            self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Give the connection; what is done with it is on the disk at the end, or undone."""
        with self._turn:
            try:
                with _sqlite.transaction(self._connection) as connection:
                    yield connection
            except sqlite3.OperationalError as error:
                if "full" in str(error):
                    raise Full(
                        "The store has reached the size that it may have, or its disk is full. "
                        "Raise --max-store, or make room."
                    ) from error
                raise
