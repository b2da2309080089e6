"""An SQLite file whose transactions are on the disk when they end."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from noisette import _sqlite

_PAGE = 4096


class Full(OSError):
    """The file has reached the size it may have; nothing was stored."""


class PacketDatabase:
    """One connection that threads take in turns; ``path`` may be ``":memory:"`` for simulations.

    ``largest`` is the size in bytes that the file may reach. What is deleted is overwritten.
    """

    def __init__(self, path: str | os.PathLike[str], schema: str, application: int, *, largest: int) -> None:
        self._turn = threading.RLock()
        self._connection = _sqlite.connect(path, any_thread=True)
        for setting in ("journal_mode = WAL", "secure_delete = ON"):
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
                    raise Full("The store has reached the size that it may have.") from error
                raise
