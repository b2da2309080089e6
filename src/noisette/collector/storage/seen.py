"""Which reports have been accepted before: digests of tokens and keys in a table, written many at a time."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from noisette.collector.storage import tables
from noisette.device.batches import DIGEST_BYTES, Digests

_AT_ONCE = 500  # digests looked up in one query
# One statement for all rows: between two rows Python would take its lock and give it back.
_INSERT = (
    "INSERT OR IGNORE INTO seen (digest, mark) "
    f"SELECT substr(?, key * {DIGEST_BYTES} + 1, {DIGEST_BYTES}), value FROM json_each(?)"
)
_ANY = (
    "SELECT 1 FROM json_each(?) AS place CROSS JOIN seen "
    f"WHERE seen.digest = substr(?, place.key * {DIGEST_BYTES} + 1, {DIGEST_BYTES}) LIMIT 1"
)
_COPY_HEAD = b"PGCOPY\n\xff\r\n\x00" + bytes(8)
_COPY_TAIL = b"\xff\xff"
# a row of PostgreSQL's binary COPY: number of fields, then length and bytes of each, big-endian
_COPY_ROW = np.dtype(
    [("fields", ">i2"), ("size", ">i4"), ("digest", "u1", DIGEST_BYTES), ("eight", ">i4"), ("mark", ">i8")]
)


def token_digests(campaign: str, period: str, tokens: Digests) -> Digests:
    """Return digests that differ between campaigns and periods for tokens that are the same."""
    mask = hashlib.sha256(f"token\n{campaign}\n{period}".encode()).digest()[:DIGEST_BYTES]
    return tokens ^ np.frombuffer(mask, dtype=np.uint8)


def key_digests(campaign: str, keys: Sequence[str]) -> Digests:
    """Return a digest of each key of a campaign."""
    found = [hashlib.sha256(f"key\n{campaign}\n{key}".encode()).digest()[:DIGEST_BYTES] for key in keys]
    return np.frombuffer(b"".join(found), dtype=np.uint8).reshape(len(found), DIGEST_BYTES)


def pieces(digests: Digests) -> list[bytes]:
    """Return each digest as bytes."""
    whole = digests.tobytes()
    return [whole[start : start + DIGEST_BYTES] for start in range(0, len(whole), DIGEST_BYTES)]


def insert(connection: sa.Connection, digests: Digests, marks: npt.NDArray[np.int64]) -> bool:
    """Write digests, or return False if one of them is there already: the transaction must then be rolled back."""
    cursor: Any = connection.connection.cursor()
    try:
        if connection.dialect.name == "postgresql":
            return _copy(cursor, digests, marks)
        cursor.execute(_INSERT, (digests.tobytes(), json.dumps(marks.tolist())))
        return bool(cursor.rowcount == len(digests))
    finally:
        cursor.close()


def any_in_tree(connection: sa.Connection, digests: Digests) -> bool:
    """Tell whether the table of a database of SQLite has one of these digests."""
    places = f"[{','.join('0' * len(digests))}]"
    return connection.exec_driver_sql(_ANY, (places, digests.tobytes())).first() is not None


def _copy(cursor: Any, digests: Digests, marks: npt.NDArray[np.int64]) -> bool:
    import psycopg

    rows = np.empty(len(digests), dtype=_COPY_ROW)
    rows["fields"], rows["size"], rows["eight"] = 2, DIGEST_BYTES, 8
    rows["digest"], rows["mark"] = digests, marks
    try:
        with cursor.copy("COPY seen (digest, mark) FROM STDIN WITH (FORMAT BINARY)") as copy:
            copy.write(_COPY_HEAD + rows.tobytes() + _COPY_TAIL)
    except psycopg.errors.UniqueViolation:
        return False
    return True


def lookup(connection: sa.Connection, digests: Sequence[bytes]) -> dict[bytes, int]:
    """Return the marks of those digests that are there."""
    found: dict[bytes, int] = {}
    for part in _slices(digests):
        query = sa.select(tables.seen).where(tables.seen.c.digest.in_(part))
        found.update((bytes(digest), mark) for digest, mark in connection.execute(query))
    return found


def _slices(digests: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    for start in range(0, len(digests), _AT_ONCE):
        yield digests[start : start + _AT_ONCE]
