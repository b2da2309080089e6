"""Reports on their way from the door to the sums, and the binary batch in which a gateway sends many at once.

A binary batch, all numbers little-endian:

    4 bytes   NZRB
    2 bytes   version of the format, 2; version 1 has no hash of a law
    2 bytes   length of the campaign's id
    2 bytes   length of the period's name
    2 bytes   length of a signature, 0 where the campaign's tokens are open
    4 bytes   number of reports n
    4 bytes   length of a report
    then      the campaign's id and the period's name in ASCII
    32 bytes  SHA-256 of the law that the reports were drawn by
    n times   32 bytes: the token
    n times   2 bytes: the number of the public group, only where the campaign has one
    n times   the signature of the token
    n times   the report: the numbers of each part, row by row, in the mechanism's own type
    4 bytes   CRC-32 of all that comes before

There is no key: the token is the key. A batch that is sent again is recognised by its tokens.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from noisette.mechanisms.written import other_law
from noisette.survey.campaigns import Campaign, Rows
from noisette.survey.sums import Sums

MAGIC = b"NZRB"
VERSION = 2
TOKEN_BYTES = 32
LAW_BYTES = 32
DIGEST_BYTES = 16  # of a token or a key, that the database keeps to recognise it
MEDIA_TYPE = "application/vnd.noisette.reports"

_HEAD = struct.Struct("<4sHHHHII")
_TAIL = struct.Struct("<I")
_MIXER = np.uint64(0x9E3779B97F4A7C15)  # 2^64 divided by the golden ratio

Digests = npt.NDArray[np.uint8]  # of shape (reports, 16)


class MalformedBatch(ValueError):
    """Bytes that are no batch."""

    reason = "malformed"


class WrongCampaign(MalformedBatch):
    """A batch for another campaign than the one that it was sent to."""

    reason = "wrong-campaign"


class WrongLaw(MalformedBatch):
    """A batch whose reports were drawn by another law than the campaign's."""

    reason = "wrong-law"


@dataclass(frozen=True, eq=False)
class Batch:
    """Reports of one campaign and one period: what makes each unique, its public group, and what was sent.

    It is the one form of reports from the door to the sums: a body is read into it, the writer hands it on, the
    database keeps its columns and `noisette.survey.sums` counts its rows. ``keys`` is None where the token itself is
    the key. ``index`` is the place of each report in the body. ``signed`` has each report's whole token and signature,
    where tokens are signed.
    """

    campaign: Campaign
    period: str
    tokens: Digests
    keys: Digests | None
    groups: npt.NDArray[np.uint16]
    rows: Rows
    index: npt.NDArray[np.int64]
    signed: tuple[tuple[bytes, bytes], ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, chosen: npt.NDArray[Any]) -> Batch:
        """Return some of the reports, whose signatures have been checked."""
        columns = {name: getattr(self, name)[chosen] for name in ("tokens", "groups", "rows", "index")}
        keys = None if self.keys is None else self.keys[chosen]
        return Batch(self.campaign, self.period, keys=keys, **columns)

    @cached_property
    def marks(self) -> npt.NDArray[np.int64]:
        """A number for each report and group, by which a repeated report is recognised."""
        raw = np.frombuffer(np.ascontiguousarray(self.rows).tobytes(), dtype=np.uint8).reshape(len(self.rows), -1)
        padded = np.zeros((len(raw), -(-raw.shape[1] // 8) * 8), dtype=np.uint8)
        padded[:, : raw.shape[1]] = raw
        words = padded.view("<u8").astype(np.uint64)
        state = self.groups.astype(np.uint64) + np.uint64(len(self.period))
        for column in range(words.shape[1]):
            state = (state ^ words[:, column]) * _MIXER
            state ^= state >> np.uint64(29)
        return state.view(np.int64)

    @property
    def key_marks(self) -> npt.NDArray[np.int64]:
        """What each key stands for: the report, and the token that it came with."""
        return np.asarray(self.marks ^ self.tokens[:, :8].copy().view("<i8")[:, 0])

    @property
    def token_digests(self) -> Digests:
        """The tokens, so masked that equal ones differ between campaigns and periods."""
        mask = hashlib.sha256(f"token\n{self.campaign.id}\n{self.period}".encode()).digest()[:DIGEST_BYTES]
        return self.tokens ^ np.frombuffer(mask, dtype=np.uint8)

    def sums(self) -> dict[int, Sums]:
        """Sum the reports of each public group, refusing those that the mechanisms cannot have sent."""
        cells = None if self.campaign.public_group is None else self.groups
        found: dict[int, Sums] = self.campaign.layout.by_cell(self.rows, cells)
        return found

    @property
    def columns(self) -> dict[str, Any]:
        """The row of the table of blocks."""
        return {
            "campaign": self.campaign.id,
            "period": self.period,
            "users": len(self),
            "tokens": self.tokens.tobytes(),
            "groups": b"" if self.campaign.public_group is None else self.groups.astype("<u2").tobytes(),
            "rows": np.ascontiguousarray(self.rows).tobytes(),
        }


def joined(batches: Iterable[Batch]) -> list[Batch]:
    """Join the batches of each campaign and period, those with keys apart from those without."""
    alike: dict[tuple[str, str, bool], list[Batch]] = {}
    for batch in batches:
        if len(batch):
            alike.setdefault((batch.campaign.id, batch.period, batch.keys is None), []).append(batch)
    return [same[0] if len(same) == 1 else _concatenated(same) for same in alike.values()]


def _concatenated(batches: list[Batch]) -> Batch:
    first = batches[0]
    keys = None if first.keys is None else np.concatenate([one.keys for one in batches if one.keys is not None])
    tokens, groups, rows = (
        np.concatenate([getattr(one, name) for one in batches]) for name in ("tokens", "groups", "rows")
    )
    return Batch(first.campaign, first.period, tokens, keys, groups, rows, np.arange(len(rows)))


def identities(batches: Iterable[Batch]) -> tuple[Digests, npt.NDArray[np.int64]]:
    """Return all digests of tokens and keys with their marks, in order of their bytes, which a tree takes faster."""
    digests, marks = [], []
    for batch in batches:
        digests.append(batch.token_digests)
        marks.append(batch.marks)
        if batch.keys is not None:
            digests.append(batch.keys)
            marks.append(batch.key_marks)
    every, all_marks = np.concatenate(digests), np.concatenate(marks)
    words = every.view(">u8").astype(np.uint64)
    order = np.lexsort((words[:, 1], words[:, 0]))
    return every[order], all_marks[order]


def key_digests(campaign: str, keys: Sequence[str]) -> Digests:
    """Return a digest of each key of a campaign."""
    found = [hashlib.sha256(f"key\n{campaign}\n{key}".encode()).digest()[:DIGEST_BYTES] for key in keys]
    return np.frombuffer(b"".join(found), dtype=np.uint8).reshape(len(found), DIGEST_BYTES)


def pieces(digests: Digests) -> list[bytes]:
    """Return each digest as bytes."""
    whole = digests.tobytes()
    return [whole[start : start + DIGEST_BYTES] for start in range(0, len(whole), DIGEST_BYTES)]


def pack(
    campaign: Campaign,
    period: str,
    tokens: bytes,
    rows: Rows,
    *,
    groups: npt.ArrayLike | None = None,
    signatures: bytes = b"",
) -> bytes:
    """Return a binary batch of reports drawn by the campaign's law; ``tokens`` are 32 bytes a report, in a row."""
    count = len(rows)
    if len(tokens) != count * TOKEN_BYTES:
        raise ValueError(f"Expected {count} tokens of {TOKEN_BYTES} bytes, got {len(tokens)} bytes.")
    name, when = campaign.id.encode("ascii"), period.encode("ascii")
    signed = len(signatures) // count if count else 0
    head = _HEAD.pack(MAGIC, VERSION, len(name), len(when), signed, count, campaign.row.itemsize)
    group = b"" if campaign.public_group is None else np.asarray(groups, dtype="<u2").tobytes()
    law = bytes.fromhex(campaign.law_sha256)
    body = b"".join([head, name, when, law, tokens, group, signatures, np.ascontiguousarray(rows).tobytes()])
    return body + _TAIL.pack(zlib.crc32(body))


def unpack(campaign: Campaign, body: bytes, *, most: int) -> Batch:
    """Read a binary batch for a campaign; the reports' support is still to be checked."""
    if len(body) < _HEAD.size + _TAIL.size or body[:4] != MAGIC:
        raise MalformedBatch("Expected a binary batch that begins with NZRB.")
    _, version, id_size, period_size, signed, count, width = _HEAD.unpack_from(body)
    if version not in (1, VERSION):
        raise MalformedBatch(f"Expected version {VERSION} of a binary batch, got {version}.")
    hashed = LAW_BYTES if version == VERSION else 0
    if _TAIL.unpack_from(body, len(body) - _TAIL.size)[0] != zlib.crc32(memoryview(body)[: -_TAIL.size]):
        raise MalformedBatch("The checksum does not match: the batch was cut or changed on its way. Send it again.")
    if not 0 < count <= most:
        raise MalformedBatch(f"Expected 1 to {most:,} reports in a batch, got {count:,}.")
    grouped = 2 if campaign.public_group is not None else 0
    wanted = _HEAD.size + id_size + period_size + hashed + count * (TOKEN_BYTES + grouped + signed + width) + _TAIL.size
    if len(body) != wanted:
        raise MalformedBatch(f"Expected {wanted} bytes for {count} reports, got {len(body)}.")
    start = _HEAD.size + id_size
    try:
        name, period = body[_HEAD.size : start].decode("ascii"), body[start : start + period_size].decode("ascii")
    except UnicodeDecodeError as error:
        raise MalformedBatch("Expected the campaign's id and the period in ASCII.") from error
    if name != campaign.id:
        raise WrongCampaign(f"This batch is for another campaign than {campaign.id!r}. Send it there.")
    if width != campaign.row.itemsize:
        raise MalformedBatch(f"Expected reports of {campaign.row.itemsize} bytes, got {width}.")
    start += period_size
    stated = body[start : start + hashed].hex() or None
    if why := other_law(campaign.law_sha256, stated):
        raise WrongLaw(f"This batch cannot be taken. {why}")
    start += hashed
    whole = np.frombuffer(body, dtype=np.uint8, count=count * TOKEN_BYTES, offset=start).reshape(count, TOKEN_BYTES)
    start += count * TOKEN_BYTES
    groups = np.zeros(count, dtype=np.uint16)
    if grouped:
        groups = np.frombuffer(body, dtype="<u2", count=count, offset=start).astype(np.uint16)
        start += 2 * count
    pairs: tuple[tuple[bytes, bytes], ...] = ()
    if signed:
        signatures = [body[start + signed * place : start + signed * (place + 1)] for place in range(count)]
        pairs = tuple(zip((one.tobytes() for one in whole), signatures, strict=True))
        start += signed * count
    rows = np.frombuffer(body, dtype=campaign.row, count=count, offset=start)
    tokens = np.ascontiguousarray(whole[:, :DIGEST_BYTES])
    return Batch(campaign, period, tokens, None, groups, rows, np.arange(count), pairs)
