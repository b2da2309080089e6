"""The shuffler itself: it takes sealed packets, forgets who sent them, and lets them go when enough are there.

Everything that must survive is in one SQLite file, and each step is one transaction of it. A packet that was accepted
is on the disk without its sender, under a random key; a wave is forwarded in the order of those keys, which is a
uniformly random order, the same one after a restart.
"""

from __future__ import annotations

import hashlib
import math
import os
import secrets
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from noisette import _validate
from noisette.shuffler._database import PacketDatabase
from noisette.shuffler.wire import Frame, Round, record_bytes

LARGEST_STORE = 16 * 2**30
FORWARD_BYTES = 2**20

_APPLICATION = 0x4E5A5301
_SCHEMA = """
CREATE TABLE rounds (
    id INTEGER PRIMARY KEY,
    context TEXT NOT NULL,
    number INTEGER NOT NULL,
    blocks INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    UNIQUE (context, number, blocks, bytes)
);
CREATE TABLE posts (
    client TEXT NOT NULL,
    post TEXT NOT NULL,
    digest BLOB NOT NULL,
    PRIMARY KEY (client, post)
) WITHOUT ROWID;
CREATE TABLE seen (
    round INTEGER NOT NULL REFERENCES rounds (id),
    client TEXT NOT NULL,
    bits BLOB NOT NULL,
    PRIMARY KEY (round, client)
) WITHOUT ROWID;
CREATE TABLE waves (
    id INTEGER PRIMARY KEY,
    round INTEGER NOT NULL REFERENCES rounds (id),
    name TEXT NOT NULL,
    counts BLOB NOT NULL,
    reached REAL,
    released INTEGER NOT NULL DEFAULT 0,
    per_batch INTEGER NOT NULL DEFAULT 0,
    total INTEGER NOT NULL DEFAULT 0,
    sent INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX one_open ON waves (round) WHERE released = 0;
CREATE TABLE packets (
    wave INTEGER NOT NULL REFERENCES waves (id),
    key BLOB NOT NULL,
    block INTEGER NOT NULL,
    sealed BLOB NOT NULL,
    PRIMARY KEY (wave, key)
) WITHOUT ROWID
"""


class PostRefused(Exception):
    """A post that is not accepted: why in one word, in a sentence, and for which blocks."""

    def __init__(self, reason: str, detail: str, blocks: list[int]) -> None:
        super().__init__(detail)
        self.reason, self.blocks = reason, blocks


@dataclass(frozen=True)
class PostAccepted:
    """How many packets of a post were new, and how many had been accepted before in the same post."""

    accepted: int
    repeated: int


@dataclass(frozen=True)
class WavePart:
    """A part of a wave, as it is forwarded: the same content under the same name however often it is tried."""

    wave: int
    name: str
    sequence: int
    total: int
    frame: Frame
    last: bytes

    @property
    def post(self) -> str:
        """The number under which the server knows this batch."""
        return f"{self.name}.{self.sequence}.{self.total}"


class Shuffler:
    """Packets that wait for company, in the file ``path``; ``":memory:"`` for simulations.

    The packets of a round are let go together, as a wave, once each block has come from at least ``minimum`` different
    clients, and ``patience`` seconds later. What comes after that waits for a wave of its own. A client sends each
    block of a round once; what it sends again is refused. Only ``forward_bytes`` of packets are in memory at a time,
    and the file grows to at most ``largest`` bytes.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        minimum: int,
        patience: float = 0.0,
        forward_bytes: int = FORWARD_BYTES,
        largest: int = LARGEST_STORE,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.minimum = _validate.integer(minimum, "minimum", low=2)
        self.patience = _validate.number(patience, "patience")
        if not 0 <= self.patience < math.inf:
            raise ValueError(f"Expected patience={patience!r} >= 0 and finite.")
        self._forward_bytes = _validate.integer(forward_bytes, "forward_bytes", low=1)
        self._clock = clock
        self._database = PacketDatabase(path, _SCHEMA, _APPLICATION, largest=largest)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def ping(self) -> None:
        """Raise unless packets can be stored."""
        with self._database.transaction() as connection:
            connection.execute("SELECT count(*) FROM waves").fetchone()

    def accept(self, client: str, post: str, body: bytes) -> PostAccepted:
        """Store the packets of a post; when this returns they are on the disk, when it raises none is.

        The same post again is no news. Raises `noisette.shuffler.wire.Malformed`, or `PostRefused` if a post comes
        again with another content or brings a block that this client has sent before in this round.
        """
        frame = Frame.decode(body)
        blocks = np.array([block for block, _ in frame.packets])
        digest = hashlib.sha256(body).digest()
        with self._database.transaction() as connection:
            known = connection.execute("SELECT digest FROM posts WHERE client = ? AND post = ?", (client, post))
            if (row := known.fetchone()) is not None:
                if row[0] != digest:
                    raise PostRefused(
                        "post-reused", "This post came before with another content. Number posts anew.", []
                    )
                return PostAccepted(0, len(frame.packets))
            number = _round_number(connection, frame)
            _mark_seen(connection, number, client, blocks, frame.round.blocks)
            connection.execute("INSERT INTO posts VALUES (?, ?, ?)", (client, post, digest))
            self._add(connection, number, frame, blocks)
        return PostAccepted(len(frame.packets), 0)

    def _add(self, connection: sqlite3.Connection, number: int, frame: Frame, blocks: npt.NDArray[Any]) -> None:
        """Put packets into the open wave of their round, and note when each block holds enough packets."""
        row = connection.execute(
            "SELECT id, counts, reached FROM waves WHERE round = ? AND released = 0", (number,)
        ).fetchone()
        if row is None:
            counts, reached = np.zeros(frame.round.blocks, dtype="<u4"), None
            made = "INSERT INTO waves (round, name, counts) VALUES (?, ?, ?)"
            wave = connection.execute(made, (number, secrets.token_hex(16), counts.tobytes())).lastrowid
        else:
            wave, reached = row[0], row[2]
            counts = np.frombuffer(row[1], dtype="<u4").copy()
        connection.executemany(
            "INSERT INTO packets VALUES (?, ?, ?, ?)",
            ((wave, secrets.token_bytes(16), block, sealed) for block, sealed in frame.packets),
        )
        counts[blocks] += 1  # no block comes twice in a post
        if reached is None and counts.min() >= self.minimum:
            reached = self._clock()
        connection.execute("UPDATE waves SET counts = ?, reached = ? WHERE id = ?", (counts.tobytes(), reached, wave))

    def release(self) -> list[tuple[Round, int]]:
        """Release waves that hold enough packets and have waited long enough; return their rounds and smallest sets."""
        due = (
            "SELECT waves.id, counts, context, number, blocks, bytes FROM waves JOIN rounds ON rounds.id = waves.round"
            " WHERE released = 0 AND reached + ? <= ?"
        )
        freed = []
        with self._database.transaction() as connection:
            for wave, stored, context, number, blocks, size in connection.execute(
                due, (self.patience, self._clock())
            ).fetchall():
                counts = np.frombuffer(stored, dtype="<u4")
                per_batch = max(1, self._forward_bytes // record_bytes(size))
                total = math.ceil(int(counts.sum(dtype=np.int64)) / per_batch)
                connection.execute(
                    "UPDATE waves SET released = 1, per_batch = ?, total = ? WHERE id = ?", (per_batch, total, wave)
                )
                freed.append((Round(context, number, blocks), int(counts.min())))
        return freed

    def next_batch(self) -> WavePart | None:
        """Return the next part of the oldest wave that is to be forwarded, or None."""
        query = (
            "SELECT waves.id, name, sent, total, per_batch, context, number, blocks FROM waves"
            " JOIN rounds ON rounds.id = waves.round WHERE released = 1 ORDER BY waves.id LIMIT 1"
        )
        packets = "SELECT key, block, sealed FROM packets WHERE wave = ? ORDER BY key LIMIT ?"
        with self._database.transaction() as connection:
            row = connection.execute(query).fetchone()
            if row is None:
                return None
            wave, name, sent, total, per_batch, *own = row
            rows = connection.execute(packets, (wave, per_batch)).fetchall()
        frame = Frame(Round(*own), [(block, sealed) for _, block, sealed in rows])
        return WavePart(wave, name, sent, total, frame, rows[-1][0])

    def done(self, batch: WavePart) -> None:
        """Erase a batch that the server has acknowledged."""
        with self._database.transaction() as connection:
            step = "UPDATE waves SET sent = sent + 1 WHERE id = ? AND sent = ?"
            if connection.execute(step, (batch.wave, batch.sequence)).rowcount:
                connection.execute("DELETE FROM packets WHERE wave = ? AND key <= ?", (batch.wave, batch.last))
                connection.execute("DELETE FROM waves WHERE id = ? AND sent = total", (batch.wave,))

    def waiting(self) -> dict[str, int]:
        """Return how many packets wait for company and how many to be forwarded."""
        found = {"waiting": 0, "released": 0}
        with self._database.transaction() as connection:
            rows = connection.execute("SELECT released, counts, sent * per_batch FROM waves").fetchall()
        for released, counts, gone in rows:
            all_packets = int(np.frombuffer(counts, dtype="<u4").sum(dtype=np.int64))
            found["released" if released else "waiting"] += all_packets - gone
        return found


def _round_number(connection: sqlite3.Connection, frame: Frame) -> int:
    """Return the row of a round; frames of another shape are of another round, and wait for company of their own."""
    own = (frame.round.context, frame.round.number, frame.round.blocks, frame.packet_bytes)
    query = "SELECT id FROM rounds WHERE context = ? AND number = ? AND blocks = ? AND bytes = ?"
    row = connection.execute(query, own).fetchone()
    if row is None:
        made = "INSERT INTO rounds (context, number, blocks, bytes) VALUES (?, ?, ?, ?) RETURNING id"
        row = connection.execute(made, own).fetchone()
    return int(row[0])


def _mark_seen(connection: sqlite3.Connection, number: int, client: str, blocks: npt.NDArray[Any], total: int) -> None:
    """Note which blocks a client has sent in a round, or raise `PostRefused` if one of them comes again."""
    row = connection.execute("SELECT bits FROM seen WHERE round = ? AND client = ?", (number, client)).fetchone()
    stored = np.zeros((total + 7) // 8, dtype=np.uint8) if row is None else np.frombuffer(row[0], dtype=np.uint8)
    bits = np.unpackbits(stored, count=total)
    again = np.bincount(blocks, minlength=total)[blocks] + bits[blocks] > 1
    if again.any():
        found = sorted(set(blocks[again].tolist()))
        raise PostRefused("already-sent", f"{len(found)} of these blocks came before from this client.", found)
    bits[blocks] = 1
    connection.execute("INSERT OR REPLACE INTO seen VALUES (?, ?, ?)", (number, client, np.packbits(bits).tobytes()))
