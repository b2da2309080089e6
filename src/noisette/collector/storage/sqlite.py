"""SQLite behind the seam: one file with one writer, and a log before its index of digests.

Digests of tokens are random: each that goes into the tree of the index changes a page of its own, and a commit writes
whole pages. Many digests that lie next to each other are far quicker. So a transaction appends its digests to a log, in
one row, and moves the next parts of the key space from the log into the tree: all digests that have gathered there
since those parts' last turn. What is in the log and not yet in the tree is in memory too, sorted. It is read from the
log, never from what this process believes to have written.
"""

from __future__ import annotations

import errno
import json
import shutil
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import OperationalError

from noisette.collector.storage.database import Database, Marks
from noisette.survey.batches import DIGEST_BYTES, Digests

_LOCKED = 30  # seconds that one waits for another process's transaction
MOST_DIGESTS = 1 << 20  # digests that wait for their turn: 24 bytes of memory each
_GULP = 1 / 64  # of them go at once when they are too many, so that a small transaction seldom has to
_UNSORTED_DIGESTS = 1 << 14  # digests that are sorted by themselves before they are put among the others
_BUSY_DIGESTS = (
    1 << 17
)  # digests in the log of a service whose transactions hold so many reports that their order says little
_BITS = 12
_PARTS = 1 << _BITS  # of the key space, by its first bits
_SHIFT = np.uint64(64 - _BITS)
_STARTS = np.arange(_PARTS, dtype=np.uint64) << _SHIFT

_INSERT = "INSERT INTO digest_log (turn, digests, marks) VALUES (?, ?, ?)"
_SINCE = "SELECT number, turn, digests, marks FROM digest_log WHERE number > ? ORDER BY number"
_UNTIL = "DELETE FROM digest_log WHERE number <= ?"
# One statement for all rows: between two rows Python would take its lock and give it back.
_INSERT_IN_TREE = (
    "INSERT OR IGNORE INTO seen (digest, mark) "
    f"SELECT substr(?, key * {DIGEST_BYTES} + 1, {DIGEST_BYTES}), value FROM json_each(?)"
)
_ANY_IN_TREE = (
    "SELECT 1 FROM json_each(?) AS place CROSS JOIN seen "
    f"WHERE seen.digest = substr(?, place.key * {DIGEST_BYTES} + 1, {DIGEST_BYTES}) LIMIT 1"
)
_SETTINGS = ("page_size = 4096", "journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON", "secure_delete = ON")
_FREE_DISK_BYTES = 1 << 24  # bytes of disk below which reports are not taken
_TO_WRITE = ("cache_size = -65536", "wal_autocheckpoint = 16384")  # in KiB; in pages

Words = npt.NDArray[np.uint64]


class _Sorted:
    """Digests in order of their bytes, as two numbers each, with their marks."""

    def __init__(self) -> None:
        self.high: Words = np.zeros(0, dtype=np.uint64)
        self.low: Words = np.zeros(0, dtype=np.uint64)
        self.marks: Marks = np.zeros(0, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.high)

    def find(self, high: Words, low: Words) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """Return where digests are, or belong, and which are there."""
        first, end = (np.searchsorted(self.high, high, side) for side in ("left", "right"))
        stop = end.copy()
        while (undecided := np.flatnonzero(first < end)).size:  # others begin with the same 64 bits
            middle = (first[undecided] + end[undecided]) // 2
            below = self.low[middle] < low[undecided]
            first[undecided[below]], end[undecided[~below]] = middle[below] + 1, middle[~below]
        known = np.zeros(len(high), dtype=bool)
        alike = np.flatnonzero(first < stop)
        known[alike] = self.low[first[alike]] == low[alike]
        return first, known

    def add(self, high: Words, low: Words, marks: Marks) -> None:
        """Insert digests that are sorted and not there yet."""
        places, _ = self.find(high, low)
        words = np.insert(self.high, places, high), np.insert(self.low, places, low)
        (self.high, self.low), self.marks = words, np.insert(self.marks, places, marks)  # all or, if one fails, none

    def take(self, turn: slice) -> None:
        """Take some of them out."""
        words = np.delete(self.high, turn), np.delete(self.low, turn)
        (self.high, self.low), self.marks = words, np.delete(self.marks, turn)

    def of_parts(self, turn: int, until: int) -> list[slice]:
        """Return where the parts lie whose turn it is: one slice, two where they start over, the later first."""
        first = turn % _PARTS
        end = first + min(until - turn, _PARTS)
        ends = [(first, end)] if end <= _PARTS else [(first, _PARTS), (0, end - _PARTS)]
        bounds = np.append(_STARTS, 0)[np.asarray(ends)]
        places = np.searchsorted(self.high, bounds)
        places[np.asarray(ends) == _PARTS] = len(self)
        return [slice(int(start), int(stop)) for start, stop in places]


class SqliteDatabase(Database):
    """A file of SQLite, which writes ahead and waits for the disk.

    Its one writer has a connection of its own, whose transactions have the right to write from their beginning. The
    cache of that connection stays: SQLite drops all pages that a connection holds when it sees that another one has
    written. SQLite's own way of waiting is a sleep, so threads of this process queue at a lock instead.
    """

    insert = staticmethod(sqlite.insert)

    @classmethod
    def located(cls, url: sa.URL) -> sa.URL:
        """Return the URL with the whole path; SQLite is not to make a file that is not there."""
        path = Path(str(url.database)).resolve()
        if not path.is_file():
            raise FileNotFoundError(f"There is no file {path}. Check the name and the folder.")
        return url.set(database=str(path))

    def __init__(self, url: sa.URL) -> None:
        _private(Path(str(url.database)))
        self.engine = _engine(url, _SETTINGS, "BEGIN")
        self.writer = _engine(url, _SETTINGS + _TO_WRITE, "BEGIN IMMEDIATE", pool_size=1, max_overflow=0)
        self.digests = DigestLog(super().find_digests)
        self._turn = threading.Lock()

    def close(self) -> None:
        self.writer.dispose()
        super().close()

    def snapshot(self) -> Any:
        """Give a connection to read with: a transaction of SQLite sees one state anyhow."""
        return self.reading()

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """Give the only transaction that writes."""
        with self._turn, self.writer.begin() as connection:
            yield connection

    def lock_tables(self, connection: sa.Connection) -> None:
        """Do nothing: there is one writer."""

    @property
    def writer_number(self) -> int:
        """All processes take turns: they share one row of sums."""
        return 0

    def check_room(self) -> None:
        """Raise where the disk is nearly full."""
        path = Path(str(self.engine.url.database))
        left = shutil.disk_usage(path.parent).free
        if left < _FREE_DISK_BYTES:
            raise OperationalError(
                f"{left} bytes are left on the disk of {path}. Make room there.", None, OSError(errno.ENOSPC, "full")
            )

    def settle(self) -> None:
        """Take what waits in the log into the tree, where the order of arrival is lost, unless very much waits."""
        while True:
            with self.writing() as connection:
                if not self.digests.drain(connection):
                    return

    def shrink_digests(self, connection: sa.Connection) -> None:
        """Leave byte strings as they are: there is no shorter type."""

    def widen(self, connection: sa.Connection, column: sa.Column[str]) -> None:
        """Leave columns as they are: they take texts of any length."""

    def add_digests(self, connection: sa.Connection, digests: Digests, marks: Marks) -> bool:
        """Write digests to the log, and some that wait there into the tree."""
        return self.digests.insert(connection, digests, marks)

    def find_digests(self, connection: sa.Connection, digests: Sequence[bytes]) -> dict[bytes, int]:
        """Return the marks of those digests that are in the tree or in the log."""
        return self.digests.lookup(connection, digests)


def _private(path: Path) -> None:
    """Let nobody but the owner read the database, which holds signing keys; SQLite gives its log the same mode."""
    if str(path) != ":memory:" and path.parent.is_dir():
        with suppress(OSError):  # of somebody else, who decides, or on a disk that cannot be written to
            path.touch(mode=0o600)
            path.chmod(path.stat().st_mode & ~0o077)


def _engine(url: sa.URL, settings: Sequence[str], begin: str, **options: Any) -> sa.Engine:
    """Return an engine whose connections are so set up, and whose transactions are ours to begin."""
    engine = sa.create_engine(url, connect_args={"timeout": _LOCKED}, **options)

    def prepare(connection: Any, _: Any) -> None:
        connection.isolation_level = None
        for setting in settings:
            connection.execute(f"PRAGMA {setting}")

    sa.event.listen(engine, "connect", prepare)
    sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))
    return engine


class DigestLog:
    """The digests of a database of SQLite: those in its tree, which ``in_tree`` looks up, and those in the log before.

    Use it in transactions that write, one at a time: what other processes did is then read from the log.
    """

    def __init__(self, in_tree: Callable[[sa.Connection, Sequence[bytes]], dict[bytes, int]]) -> None:
        self._in_tree = in_tree
        self._turn = 0  # how many parts have had theirs, over all time
        self._rows: deque[tuple[int, int]] = deque()  # number in the log, and the turn when it was written
        self._many, self._few = _Sorted(), _Sorted()

    def insert(self, connection: sa.Connection, digests: Digests, marks: Marks) -> bool:
        """Write digests in order of their bytes, or return False and write nothing if one of them is known."""
        self._replay(connection)
        high, low = _words(digests)
        twice = (high[1:] == high[:-1]) & (low[1:] == low[:-1])
        if twice.any() or any(one.find(high, low)[1].any() for one in (self._many, self._few)):
            return False
        places = f"[{','.join('0' * len(digests))}]"
        if connection.exec_driver_sql(_ANY_IN_TREE, (places, digests.tobytes())).first() is not None:
            return False
        turn = self._settle(connection, len(digests))
        connection.exec_driver_sql(_INSERT, (turn, digests.tobytes(), marks.astype("<i8").tobytes()))
        return True

    def lookup(self, connection: sa.Connection, digests: Sequence[bytes]) -> dict[bytes, int]:
        """Return the marks of those digests that are known."""
        self._replay(connection)
        found = self._in_tree(connection, digests)
        words = _words(np.frombuffer(b"".join(digests), np.uint8).reshape(-1, DIGEST_BYTES))
        for one in (self._many, self._few):
            places, known = one.find(*words)
            marks = one.marks[places[known]].tolist()
            found |= {digests[which]: mark for which, mark in zip(np.flatnonzero(known).tolist(), marks, strict=True)}
        return found

    def _replay(self, connection: sa.Connection) -> None:
        """Do in memory what the log says has happened since the last look at it."""
        last = self._rows[-1][0] if self._rows else 0
        for number, turn, digests, marks in connection.exec_driver_sql(_SINCE, (last,)):
            if turn > self._turn:  # these parts are in the tree since
                for one in (self._many, self._few):
                    for part in one.of_parts(self._turn, turn):
                        one.take(part)
                self._turn = turn
            words = _words(np.frombuffer(digests, np.uint8).reshape(-1, DIGEST_BYTES))
            self._few.add(*words, np.frombuffer(marks, "<i8"))
            if len(self._few) > _UNSORTED_DIGESTS:
                self._many.add(self._few.high, self._few.low, self._few.marks)
                self._few = _Sorted()
            self._rows.append((number, turn))  # at last: what fails before is read again
        while self._rows and self._rows[0][1] + _PARTS <= self._turn:
            self._rows.popleft()

    def drain(self, connection: sa.Connection) -> bool:
        """Move some digests that wait into the tree and tell whether some are left; those of a busy service stay."""
        self._replay(connection)
        held = len(self._many) + len(self._few)
        if not held or held > _BUSY_DIGESTS:
            return False
        turn = self._advance(connection, max(0, held - _UNSORTED_DIGESTS))
        connection.exec_driver_sql(_INSERT, (turn, b"", b""))
        self._replay(connection)
        return True

    def _settle(self, connection: sa.Connection, more: int) -> int:
        """Take parts into the tree, one after the other, if more would be too many; return whose turn is next."""
        if len(self._many) + len(self._few) + more <= MOST_DIGESTS:
            return self._turn
        return self._advance(connection, int(MOST_DIGESTS * (1 - _GULP)) - more)

    def _advance(self, connection: sa.Connection, room: int) -> int:
        """Take parts into the tree until this many are left; return whose turn is next."""
        held = len(self._many) + len(self._few)
        bounds = sum(np.append(np.searchsorted(one.high, _STARTS), len(one)) for one in (self._many, self._few))
        left = held - np.cumsum(np.roll(np.diff(bounds), -(self._turn % _PARTS)))
        turn = self._turn + (min(_PARTS, 1 + int(np.searchsorted(-left, -room))) if room > 0 else _PARTS)
        for one in (self._many, self._few):
            for part in one.of_parts(self._turn, turn):
                digests = np.column_stack([one.high[part], one.low[part]]).astype(">u8").view(np.uint8)
                insert_in_tree(connection, digests, one.marks[part])
        done = [number for number, written in self._rows if written + _PARTS <= turn]
        if done:
            connection.exec_driver_sql(_UNTIL, (done[-1],))
        return turn


def insert_in_tree(connection: sa.Connection, digests: Digests, marks: Marks) -> bool:
    """Write digests into the tree itself; tell whether all were new."""
    written = connection.exec_driver_sql(_INSERT_IN_TREE, (digests.tobytes(), json.dumps(marks.tolist())))
    return bool(written.rowcount == len(digests))


def _words(digests: Digests) -> tuple[Words, Words]:
    """Return digests as two numbers each, whose order is that of the bytes."""
    words = np.ascontiguousarray(digests).view(">u8").astype(np.uint64)
    return words[:, 0], words[:, 1]
