"""The server's side: what the shuffler forwarded, on the disk once, and opened when a whole batch is there."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from noisette import _validate
from noisette.shuffler._database import PacketDatabase
from noisette.shuffler.layout import PacketLayout
from noisette.shuffler.sealing import OVERHEAD, CannotOpen, ServerKey
from noisette.shuffler.store import LARGEST_STORE, PostAccepted
from noisette.shuffler.wire import Frame, Malformed, Round

_APPLICATION = 0x4E5A5202
_SCHEMA = """
CREATE TABLE batches (
    name TEXT PRIMARY KEY,
    context TEXT NOT NULL,
    number INTEGER NOT NULL,
    blocks INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    total INTEGER NOT NULL,
    got INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE parts (
    batch TEXT NOT NULL REFERENCES batches (name),
    sequence INTEGER NOT NULL,
    PRIMARY KEY (batch, sequence)
) WITHOUT ROWID;
CREATE TABLE packets (
    context TEXT NOT NULL,
    number INTEGER NOT NULL,
    block INTEGER NOT NULL,
    digest BLOB NOT NULL,
    batch TEXT NOT NULL REFERENCES batches (name),
    sealed BLOB NOT NULL,
    PRIMARY KEY (context, number, block, digest)
) WITHOUT ROWID
"""
_POST = re.compile(r"([0-9a-f]{32})\.(\d{1,9})\.(\d{1,9})")
_ROWS_BYTES = 2**22  # packets that are opened at a time


@dataclass(frozen=True)
class Fragments:
    """Values of one block of positions, a row a client in random order, and how many packets could not be opened.

    Values are in the type that they travel in.
    """

    block: int
    position: int
    values: npt.NDArray[Any]
    rejected: int


class Receipt:
    """Forwarded packets in the file ``path``, still sealed; they are opened as they are read.

    Safe for several processes: one may receive while another one reads. A part that comes again changes nothing, and
    the same sealed packet counts once in its round, whoever sent a copy of it.
    """

    def __init__(self, path: str | os.PathLike[str], *, largest: int = LARGEST_STORE) -> None:
        self._database = PacketDatabase(path, _SCHEMA, _APPLICATION, largest=largest)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def accept(self, post: str, body: bytes) -> PostAccepted:
        """Store a part of a batch under the number that the shuffler gave it; when this returns it is on the disk."""
        batch, sequence, total = part_of(post)
        frame = Frame.decode(body)
        own = (frame.round.context, frame.round.number)
        rows = ((*own, block, hashlib.sha256(sealed).digest(), batch, sealed) for block, sealed in frame.packets)
        with self._database.transaction() as connection:
            terms = (batch, *own, frame.round.blocks, frame.packet_bytes, total)
            connection.execute("INSERT OR IGNORE INTO batches VALUES (?, ?, ?, ?, ?, ?, 0)", terms)
            stored = connection.execute("SELECT * FROM batches WHERE name = ?", (batch,)).fetchone()
            if stored[:-1] != terms:
                raise Malformed("This batch began with another round, size or total. Send it under another name.")
            taken = "INSERT OR IGNORE INTO parts VALUES (?, ?)"
            if not connection.execute(taken, (batch, sequence)).rowcount:
                return PostAccepted(0, len(frame.packets))
            connection.executemany("INSERT OR IGNORE INTO packets VALUES (?, ?, ?, ?, ?, ?)", rows)
            connection.execute("UPDATE batches SET got = got + 1 WHERE name = ?", (batch,))
        return PostAccepted(len(frame.packets), 0)

    def batches(self, context: str, number: int) -> int:
        """Return how many batches of a round are here as a whole."""
        query = "SELECT count(*) FROM batches WHERE context = ? AND number = ? AND got = total"
        with self._database.transaction() as connection:
            return int(connection.execute(query, (context, number)).fetchone()[0])

    def wait(self, context: str, number: int, *, timeout: float, sleep: Callable[[float], None] = time.sleep) -> bool:
        """Wait until a whole batch of a round is here; return whether one came within ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        while not self.batches(context, number):
            if time.monotonic() > deadline:
                return False
            sleep(0.05)
        return True

    def read(self, context: str, number: int, layout: PacketLayout, key: ServerKey) -> Iterator[Fragments]:
        """Open a round block after block, never more than some megabytes at a time.

        Packets of batches that are not here as a whole, or were cut in another way than ``layout``, are passed over.
        """
        found = Round(context, number, layout.blocks)
        size = layout.packet_bytes + OVERHEAD
        per_read = max(1, _ROWS_BYTES // size)
        query = (
            "SELECT digest, sealed FROM packets JOIN batches ON batches.name = packets.batch"
            " WHERE packets.context = ? AND packets.number = ? AND block = ? AND digest > ?"
            " AND got = total AND blocks = ? AND bytes = ? ORDER BY digest LIMIT ?"
        )
        for block in range(layout.blocks):
            last, label = b"", found.label(block)
            while True:
                with self._database.transaction() as connection:
                    terms = (context, number, block, last, layout.blocks, size, per_read)
                    rows = connection.execute(query, terms).fetchall()
                if not rows:
                    break
                last = rows[-1][0]
                opened = [payload for _, sealed in rows if (payload := _opened(key, sealed, label)) is not None]
                values = layout.join(opened, block=block)
                yield Fragments(block, layout.start(block), values, len(rows) - len(opened))

    def forget(self, context: str, before: int) -> None:
        """Erase the packets of a run's rounds below ``before``; that they came is remembered."""
        _validate.integer(before, "before", low=0)
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM packets WHERE context = ? AND number < ?", (context, before))


def part_of(post: str) -> tuple[str, int, int]:
    """Read the batch, the place and the number of parts from the number of a part, or raise `Malformed`."""
    named = _POST.fullmatch(post)
    if named is None:
        raise Malformed("Expected the number of a part as BATCH.SEQUENCE.TOTAL.")
    if int(named[2]) >= int(named[3]):
        raise Malformed(f"Expected a sequence below {named[3]}, got {named[2]}.")
    return named[1], int(named[2]), int(named[3])


def _opened(key: ServerKey, sealed: bytes, label: bytes) -> bytes | None:
    """Return what a packet holds, or None if someone sealed something else."""
    try:
        return key.open(sealed, label)
    except CannotOpen:
        return None
