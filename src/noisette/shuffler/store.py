"""The shuffler itself: it takes sealed packets, forgets who sent them, and releases them once there are enough.

Everything that must survive is in one SQLite file, and each step is one transaction of it. A packet that was accepted
is on the disk without its sender, under a key that a secret of its batch makes from its content; a batch is forwarded
in the order of those keys, which is a uniformly random order, the same one after a restart. That a client has sent a
block is noted under a name that its mark makes, and the mark is not on the disk (`noisette.shuffler.clients`).
"""

from __future__ import annotations

import hashlib
import hmac
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
KEPT_DAYS = 400.0

_APPLICATION = 0x4E5A5302
_DAY = 86_400.0
_TRIES_OF_A_FAULT = 20  # attempts that end in a fault of the server before a batch is set aside: some ten minutes
_LONGEST_PAUSE = 60.0
_SCHEMA = """
CREATE TABLE rounds (
    id INTEGER PRIMARY KEY,
    context TEXT NOT NULL,
    number INTEGER NOT NULL,
    blocks INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    day INTEGER NOT NULL,
    over INTEGER NOT NULL DEFAULT 0,
    UNIQUE (context, number, blocks, bytes)
);
CREATE TABLE posts (
    name BLOB PRIMARY KEY,
    covers BLOB NOT NULL,
    round INTEGER NOT NULL REFERENCES rounds (id)
) WITHOUT ROWID;
CREATE TABLE seen (
    round INTEGER NOT NULL REFERENCES rounds (id),
    name BLOB NOT NULL,
    bits BLOB NOT NULL,
    PRIMARY KEY (round, name)
) WITHOUT ROWID;
CREATE TABLE batches (
    id INTEGER PRIMARY KEY,
    round INTEGER NOT NULL REFERENCES rounds (id),
    minimum INTEGER NOT NULL,
    name TEXT NOT NULL UNIQUE,
    secret BLOB NOT NULL,
    counts BLOB NOT NULL,
    reached REAL,
    released INTEGER NOT NULL DEFAULT 0,
    per_part INTEGER NOT NULL DEFAULT 0,
    total INTEGER NOT NULL DEFAULT 0,
    sent INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0,
    due REAL NOT NULL DEFAULT 0,
    aside INTEGER NOT NULL DEFAULT 0,
    reason TEXT NOT NULL DEFAULT ''
);
CREATE UNIQUE INDEX one_open ON batches (round, minimum) WHERE released = 0;
CREATE TABLE packets (
    batch INTEGER NOT NULL REFERENCES batches (id),
    key BLOB NOT NULL,
    block INTEGER NOT NULL,
    sealed BLOB NOT NULL,
    PRIMARY KEY (batch, key)
) WITHOUT ROWID;
CREATE TABLE probe (
    id INTEGER PRIMARY KEY,
    filling BLOB NOT NULL
);
CREATE TABLE changes (
    id INTEGER PRIMARY KEY,
    time REAL NOT NULL,
    operator TEXT NOT NULL,
    change TEXT NOT NULL
)
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
class BatchPart:
    """A part of a batch, as it is forwarded: the same content under the same name however often it is tried."""

    batch: int
    name: str
    sequence: int
    total: int
    frame: Frame
    last: bytes

    @property
    def post(self) -> str:
        """The number under which the server knows this part."""
        return f"{self.name}.{self.sequence}.{self.total}"


class Shuffler:
    """Packets that wait until enough clients have sent theirs, in the file ``path``; ``":memory:"`` for simulations.

    The packets of a round are released together, as a batch, once each block has come from at least ``minimum``
    different clients, or as many as they ask for if that is more, and ``patience`` seconds later. What comes after that
    waits for a batch of its own. A client sends each block of a round once; what it sends again is refused, and so is a
    copy of a packet that waits. Only ``forward_bytes`` of packets are in memory at a time, and the file grows to at
    most ``largest`` bytes. A round to which nothing came for ``keep`` days is over: who sent to it is forgotten, and
    whatever still comes is refused.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        minimum: int,
        patience: float = 0.0,
        forward_bytes: int = FORWARD_BYTES,
        largest: int = LARGEST_STORE,
        keep: float = KEPT_DAYS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.minimum = _validate.integer(minimum, "minimum", low=2)
        self.patience = _validate.number(patience, "patience")
        if not 0 <= self.patience < math.inf:
            raise ValueError(f"Expected patience={patience!r} >= 0 and finite.")
        self.keep = _validate.number(keep, "keep")
        if not self.keep >= 1:
            raise ValueError(f"Expected keep={keep!r} >= 1 day.")
        self._forward_bytes = _validate.integer(forward_bytes, "forward_bytes", low=1)
        self._clock = clock
        self._database = PacketDatabase(path, _SCHEMA, _APPLICATION, largest=largest, journal="TRUNCATE")

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def ping(self) -> None:
        """Raise unless packets can be stored: it stores something of two pages, and erases it."""
        with self._database.transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO probe VALUES (1, zeroblob(8000))")
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM probe")

    def accept(self, client: str, post: str, body: bytes, *, minimum: int = 0) -> PostAccepted:
        """Store the packets of a post; when this returns they are on the disk, when it raises none is.

        ``client`` is the mark of the client, or any other name that a thief of the file cannot know. The same post
        again changes nothing. Raises `noisette.shuffler.wire.Malformed`, or `PostRefused` if a post comes again about
        something else, brings a block that this client has sent before in this round, or a copy of a packet that waits.
        """
        frame = Frame.decode(body)
        blocks = np.array([block for block, _ in frame.packets])
        own = frame.round.label(0) + frame.packet_bytes.to_bytes(4, "big")
        name, covers = _name(client, b"post " + post.encode()), _name("", own + blocks.tobytes())
        with self._database.transaction() as connection:
            known = connection.execute("SELECT covers FROM posts WHERE name = ?", (name,))
            if (row := known.fetchone()) is not None:
                if row[0] != covers:
                    raise PostRefused("post-reused", "This post came before about something else. Number it anew.", [])
                return PostAccepted(0, len(frame.packets))
            number = self._round_number(connection, frame)
            _mark_seen(connection, number, _name(client, b"round " + own), blocks, frame.round.blocks)
            connection.execute("INSERT INTO posts VALUES (?, ?, ?)", (name, covers, number))
            self._add(connection, number, frame, blocks, max(self.minimum, minimum))
        return PostAccepted(len(frame.packets), 0)

    def _round_number(self, connection: sqlite3.Connection, frame: Frame) -> int:
        """Return the row of a round; frames of another shape are of another round, and wait for others like them."""
        own = (frame.round.context, frame.round.number, frame.round.blocks, frame.packet_bytes)
        query = "SELECT id, day, over FROM rounds WHERE context = ? AND number = ? AND blocks = ? AND bytes = ?"
        row, today = connection.execute(query, own).fetchone(), int(self._clock() // _DAY)
        if row is None:
            made = "INSERT INTO rounds (context, number, blocks, bytes, day) VALUES (?, ?, ?, ?, ?) RETURNING id"
            return int(connection.execute(made, (*own, today)).fetchone()[0])
        if row[2]:
            raise PostRefused(
                "round-over", "This round is over, and nothing more of it is forwarded. Send in the next one.", []
            )
        if row[1] != today:
            connection.execute("UPDATE rounds SET day = ? WHERE id = ?", (today, row[0]))
        return int(row[0])

    def _add(
        self, connection: sqlite3.Connection, number: int, frame: Frame, blocks: npt.NDArray[Any], minimum: int
    ) -> None:
        """Put packets into the open batch of their round, and note when each block holds enough packets."""
        query = "SELECT id, counts, reached, secret FROM batches WHERE round = ? AND minimum = ? AND released = 0"
        row = connection.execute(query, (number, minimum)).fetchone()
        if row is None:
            counts, reached, secret = np.zeros(frame.round.blocks, dtype="<u4"), None, secrets.token_bytes(32)
            made = "INSERT INTO batches (round, minimum, name, secret, counts) VALUES (?, ?, ?, ?, ?)"
            terms = (number, minimum, secrets.token_hex(16), secret, counts.tobytes())
            batch = connection.execute(made, terms).lastrowid
        else:
            batch, reached, secret = row[0], row[2], row[3]
            counts = np.frombuffer(row[1], dtype="<u4").copy()
        try:
            connection.executemany(
                "INSERT INTO packets VALUES (?, ?, ?, ?)",
                ((batch, _place(secret, block, sealed), block, sealed) for block, sealed in frame.packets),
            )
        except sqlite3.IntegrityError as error:
            raise PostRefused("copied", "A packet of this post is here already: seal your own.", []) from error
        counts[blocks] += 1  # no block comes twice in a post
        if reached is None and counts.min() >= minimum:
            reached = self._clock()
        step = "UPDATE batches SET counts = ?, reached = ? WHERE id = ?"
        connection.execute(step, (counts.tobytes(), reached, batch))

    def release(self) -> list[tuple[Round, int]]:
        """Release every batch that has reached its minimum and has waited long enough; return rounds and least sets."""
        due = (
            "SELECT batches.id, counts, context, number, blocks, bytes FROM batches"
            " JOIN rounds ON rounds.id = batches.round WHERE released = 0 AND reached + ? <= ?"
        )
        freed = []
        with self._database.transaction() as connection:
            for batch, stored, context, number, blocks, size in connection.execute(
                due, (self.patience, self._clock())
            ).fetchall():
                counts = np.frombuffer(stored, dtype="<u4")
                if counts.min() < self.minimum:  # a restart has raised it
                    continue
                per_part = max(1, self._forward_bytes // record_bytes(size))
                total = math.ceil(int(counts.sum(dtype=np.int64)) / per_part)
                step = "UPDATE batches SET released = 1, per_part = ?, total = ? WHERE id = ?"
                connection.execute(step, (per_part, total, batch))
                freed.append((Round(context, number, blocks), int(counts.min())))
        return freed

    def next_part(self) -> BatchPart | None:
        """Return the next part of the oldest batch that is to be forwarded now, or None."""
        query = (
            "SELECT batches.id, name, sent, total, per_part, context, number, blocks FROM batches"
            " JOIN rounds ON rounds.id = batches.round"
            " WHERE released = 1 AND aside = 0 AND due <= ? ORDER BY due, batches.id LIMIT 1"
        )
        packets = "SELECT key, block, sealed FROM packets WHERE batch = ? ORDER BY key LIMIT ?"
        with self._database.transaction() as connection:
            row = connection.execute(query, (self._clock(),)).fetchone()
            if row is None:
                return None
            batch, name, sent, total, per_part, *own = row
            rows = connection.execute(packets, (batch, per_part)).fetchall()
        frame = Frame(Round(*own), [(block, sealed) for _, block, sealed in rows])
        return BatchPart(batch, name, sent, total, frame, rows[-1][0])

    def done(self, part: BatchPart) -> None:
        """Erase a part that the server has acknowledged."""
        with self._database.transaction() as connection:
            step = "UPDATE batches SET sent = sent + 1, attempts = 0, reason = '' WHERE id = ? AND sent = ?"
            if connection.execute(step, (part.batch, part.sequence)).rowcount:
                connection.execute("DELETE FROM packets WHERE batch = ? AND key <= ?", (part.batch, part.last))
                connection.execute("DELETE FROM batches WHERE id = ? AND sent = total", (part.batch,))

    def failed(self, part: BatchPart, reason: str, *, final: bool, fault: bool) -> None:
        """Note that a part was not taken: its batch is set aside if that is final, and else tried again later.

        ``fault`` is True where the server failed over this part, False where it was away: after 20 such attempts the
        batch is set aside too. The others go on.
        """
        with self._database.transaction() as connection:
            row = connection.execute("SELECT attempts FROM batches WHERE id = ?", (part.batch,)).fetchone()
            if row is None:
                return
            attempts = row[0] + 1 if fault else 0
            aside = final or attempts >= _TRIES_OF_A_FAULT
            pause = min(_LONGEST_PAUSE, 0.2 * 2.0 ** min(attempts, 20)) if fault else 0.0
            step = "UPDATE batches SET attempts = ?, due = ?, aside = ?, reason = ? WHERE id = ?"
            connection.execute(step, (attempts, self._clock() + pause, int(aside), reason, part.batch))

    def batches(self) -> list[dict[str, Any]]:
        """Return every batch that is here: its round, how many packets it has, its state, and why it is not taken."""
        query = (
            "SELECT name, context, number, minimum, counts, released, aside, sent * per_part, reason FROM batches"
            " JOIN rounds ON rounds.id = batches.round ORDER BY batches.id"
        )
        with self._database.transaction() as connection:
            rows = connection.execute(query).fetchall()
        found = []
        for name, context, number, minimum, stored, released, aside, gone, reason in rows:
            counts = np.frombuffer(stored, dtype="<u4")
            state = "aside" if aside else "released" if released else "waiting"
            own = {"name": name, "context": context, "round": number, "state": state, "minimum": minimum}
            smallest, packets = int(counts.min()), int(counts.sum(dtype=np.int64)) - gone
            found.append(own | {"smallest_set": smallest, "packets": packets, "reason": reason})
        return found

    def waiting(self) -> dict[str, int]:
        """Return how many packets wait for those of others, how many to be forwarded, and how many are set aside."""
        found = {"waiting": 0, "released": 0, "aside": 0}
        for one in self.batches():
            found[one["state"]] += one["packets"]
        return found

    def operate(self, name: str, action: str) -> None:
        """Drop a batch with all its packets, set it aside ("skip"), or try it again ("retry").

        A batch below the minimum can be dropped and nothing else: nothing of it leaves, whoever asks.
        Those who sent what is dropped cannot send it again.
        """
        with self._database.transaction() as connection:
            row = connection.execute("SELECT id, released FROM batches WHERE name = ?", (name,)).fetchone()
            if row is None:
                raise LookupError(
                    f"There is no batch {name!r} here. `noisette shuffler status` lists those that there are."
                )
            batch, released = row
            if action == "drop":
                connection.execute("DELETE FROM packets WHERE batch = ?", (batch,))
                connection.execute("DELETE FROM batches WHERE id = ?", (batch,))
            elif not released:
                raise ValueError(
                    f"Batch {name!r} has not reached its minimum, so it cannot be forwarded. "
                    "Wait for more senders, or drop it."
                )
            elif action == "skip":
                step = "UPDATE batches SET aside = 1, reason = 'set aside by an operator' WHERE id = ?"
                connection.execute(step, (batch,))
            else:
                step = "UPDATE batches SET aside = 0, due = 0, attempts = 0, reason = '' WHERE id = ?"
                connection.execute(step, (batch,))

    def forget(self) -> int:
        """End the rounds to which nothing came for ``keep`` days, and forget who sent to them; return how many."""
        over = "SELECT id FROM rounds WHERE over = 0 AND day < ? AND id NOT IN (SELECT round FROM batches)"
        with self._database.transaction() as connection:
            ended = connection.execute(over, (self._clock() / _DAY - self.keep,)).fetchall()
            for table in ("posts", "seen"):
                connection.executemany(f"DELETE FROM {table} WHERE round = ?", ended)
            connection.executemany("UPDATE rounds SET over = 1 WHERE id = ?", ended)
        return len(ended)

    def note(self, operator: str, change: str) -> None:
        """Write down who changed what."""
        with self._database.transaction() as connection:
            row = (self._clock(), operator, change)
            connection.execute("INSERT INTO changes (time, operator, change) VALUES (?, ?, ?)", row)

    def changes(self) -> list[dict[str, Any]]:
        """Return who changed what, and when."""
        with self._database.transaction() as connection:
            rows = connection.execute("SELECT time, operator, change FROM changes ORDER BY id").fetchall()
        return [dict(zip(("time", "operator", "change"), row, strict=True)) for row in rows]


def _name(client: str, what: bytes) -> bytes:
    """Return what something is called here that only its client could name."""
    return hmac.new(client.encode("utf-8", "surrogatepass"), what, hashlib.sha256).digest()[:16]


def _place(secret: bytes, block: int, sealed: bytes) -> bytes:
    """Return where a packet stands in its batch: nobody can choose it, and a copy has the same place."""
    return hmac.new(secret, block.to_bytes(4, "big") + sealed, hashlib.sha256).digest()[:16]


def _mark_seen(connection: sqlite3.Connection, number: int, name: bytes, blocks: npt.NDArray[Any], total: int) -> None:
    """Note which blocks a client has sent in a round, or raise `PostRefused` if one of them comes again."""
    row = connection.execute("SELECT bits FROM seen WHERE round = ? AND name = ?", (number, name)).fetchone()
    stored = np.zeros((total + 7) // 8, dtype=np.uint8) if row is None else np.frombuffer(row[0], dtype=np.uint8)
    bits = np.unpackbits(stored, count=total)
    again = np.bincount(blocks, minlength=total)[blocks] + bits[blocks] > 1
    if again.any():
        found = sorted(set(blocks[again].tolist()))
        raise PostRefused(
            "already-sent", f"{len(found)} of these blocks came before from this client. Send the others alone.", found
        )
    bits[blocks] = 1
    connection.execute("INSERT OR REPLACE INTO seen VALUES (?, ?, ?)", (number, name, np.packbits(bits).tobytes()))
