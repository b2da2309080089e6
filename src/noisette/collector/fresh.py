"""Digests on their way into the index of SQLite, which takes many of one place at once far faster than one of each.

Tokens are random. Put into the tree as they come, each changes a page of its own, and a commit writes whole pages. So a
transaction appends its digests to a log, one row for all, and takes into the tree those of the next part of the key
space, which have gathered there since that part's last turn. What is in the log and not yet in the tree is in memory
too, sorted; it is read from the log, never from what this process believes to have written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from noisette.collector import seen, tables
from noisette.collector.batches import DIGEST_BYTES, Digests

MOST = 1 << 20  # digests that wait for their turn: 24 bytes of memory each
_PARTS = 1 << 12  # of the key space, by its first bits
_SHIFT = np.uint64(64 - 12)

_INSERT = sa.insert(tables.fresh).inline()
_SINCE = sa.select(tables.fresh).where(tables.fresh.c.number > sa.bindparam("last")).order_by(tables.fresh.c.number)
_UNTIL = sa.delete(tables.fresh).where(tables.fresh.c.number < sa.bindparam("first"))

Words = npt.NDArray[np.uint64]
Marks = npt.NDArray[np.int64]


class Fresh:
    """The digests of a database of SQLite: those in its tree, and those in the log before it.

    Use it in transactions that write, one at a time: what other processes did is then read from the log.
    """

    def __init__(self) -> None:
        self._turn = 0  # how many parts have had theirs, over all time
        self._rows: deque[tuple[int, int]] = deque()  # number in the log, and the turn when it was written
        self._high: Words = np.zeros(0, dtype=np.uint64)
        self._low: Words = np.zeros(0, dtype=np.uint64)
        self._marks: Marks = np.zeros(0, dtype=np.int64)

    def insert(self, connection: sa.Connection, digests: Digests, marks: Marks) -> bool:
        """Write digests in order of their bytes, or return False and write nothing if one of them is known."""
        self._replay(connection)
        high, low = _words(digests)
        twice = (high[1:] == high[:-1]) & (low[1:] == low[:-1])
        if twice.any() or self._places(high, low)[1].any() or seen.any_in_tree(connection, digests):
            return False
        turn = self._settle(connection, len(digests))
        row = {"turn": turn, "digests": digests.tobytes(), "marks": marks.astype("<i8").tobytes()}
        connection.execute(_INSERT, row)
        return True

    def lookup(self, connection: sa.Connection, digests: Sequence[bytes]) -> dict[bytes, int]:
        """Return the marks of those digests that are known."""
        self._replay(connection)
        found = seen.lookup(connection, digests)
        if digests:
            places, known = self._places(*_words(np.frombuffer(b"".join(digests), np.uint8).reshape(len(digests), -1)))
            for which in np.flatnonzero(known).tolist():
                found[digests[which]] = int(self._marks[places[which]])
        return found

    def _replay(self, connection: sa.Connection) -> None:
        """Do in memory what the log says has happened since the last look at it."""
        last = self._rows[-1][0] if self._rows else -1
        for row in connection.execute(_SINCE, {"last": last}):
            self._forget(row.turn)
            high, low = _words(np.frombuffer(row.digests, np.uint8).reshape(-1, DIGEST_BYTES))
            places, _ = self._places(high, low)
            self._high, self._low = np.insert(self._high, places, high), np.insert(self._low, places, low)
            self._marks = np.insert(self._marks, places, np.frombuffer(row.marks, "<i8"))
            self._rows.append((row.number, row.turn))

    def _forget(self, turn: int) -> None:
        """Drop those parts that have had their turn since: they are in the tree."""
        for part in self._due(turn):
            self._high, self._low = np.delete(self._high, part), np.delete(self._low, part)
            self._marks = np.delete(self._marks, part)
        while self._rows and self._rows[0][1] + _PARTS <= turn:
            self._rows.popleft()
        self._turn = turn

    def _settle(self, connection: sa.Connection, more: int) -> int:
        """Take parts into the tree, one after the other, until there is room for more; return whose turn is next."""
        room = MOST - more
        bounds = np.searchsorted(self._high, np.arange(_PARTS, dtype=np.uint64) << _SHIFT)
        sizes = np.diff(np.append(bounds, len(self._high)))
        left = len(self._high) - np.cumsum(np.roll(sizes, -(self._turn % _PARTS)))
        parts = 0 if len(self._high) <= room else 1 + int(np.searchsorted(-left, -room))
        turn = self._turn + min(parts, _PARTS)
        for part in self._due(turn):
            digests = np.column_stack([self._high[part], self._low[part]]).astype(">u8").view(np.uint8)
            seen.insert(connection, digests, self._marks[part])
        done = [number for number, written in self._rows if written + _PARTS <= turn]
        if done:
            connection.execute(_UNTIL, {"first": done[-1] + 1})
        return turn

    def _due(self, turn: int) -> list[slice]:
        """Return where the digests lie whose parts come before a turn: one slice, two where it starts over."""
        if turn - self._turn >= _PARTS:
            return [slice(0, len(self._high))]
        first = self._turn % _PARTS
        end = first + turn - self._turn
        parts = [(first, end)] if end <= _PARTS else [(first, _PARTS), (0, end - _PARTS)]  # the later first
        return [slice(self._start(one), self._start(other)) for one, other in parts]

    def _start(self, part: int) -> int:
        if part == _PARTS:
            return len(self._high)
        return int(np.searchsorted(self._high, np.uint64(part) << _SHIFT))

    def _places(self, high: Words, low: Words) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """Return where digests are, or belong, among those in memory, and which are there."""
        first, end = (np.searchsorted(self._high, high, side) for side in ("left", "right"))
        stop = end.copy()
        while (open_ := np.flatnonzero(first < end)).size:  # others begin with the same 64 bits: by chance, never
            middle = (first[open_] + end[open_]) // 2
            below = self._low[middle] < low[open_]
            first[open_[below]], end[open_[~below]] = middle[below] + 1, middle[~below]
        known = np.zeros(len(high), dtype=bool)
        alike = np.flatnonzero(first < stop)
        known[alike] = self._low[first[alike]] == low[alike]
        return first, known


def _words(digests: Digests) -> tuple[Words, Words]:
    """Return digests as two numbers each, whose order is that of the bytes."""
    words = np.ascontiguousarray(digests).view(">u8").astype(np.uint64)
    return words[:, 0], words[:, 1]
