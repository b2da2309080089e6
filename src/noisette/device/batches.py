"""Reports on their way into the database, and the binary batch in which a gateway sends many at once.

A binary batch, all numbers little-endian:

    4 bytes   NZRB
    2 bytes   version of the format, 1
    2 bytes   length of the campaign's id
    2 bytes   length of the period's name
    2 bytes   length of a signature, 0 where the campaign's tokens are open
    4 bytes   number of reports n
    4 bytes   length of a report
    then      the campaign's id and the period's name in ASCII
    n times   32 bytes: the token
    n times   2 bytes: the number of the public group, only where the campaign has one
    n times   the signature of the token
    n times   the report: the numbers of each part, row by row, in the mechanism's own type
    4 bytes   CRC-32 of all that comes before

There is no key: the token is the key. A batch that is sent again is recognised by its tokens.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from noisette.survey.campaigns import Campaign, Rows

MAGIC = b"NZRB"
VERSION = 1
TOKEN_BYTES = 32
DIGEST_BYTES = 16  # of a token or a key, that the database keeps to recognise it
MEDIA_TYPE = "application/vnd.noisette.reports"

_HEAD = struct.Struct("<4sHHHHII")
_TAIL = struct.Struct("<I")
_MIXER = np.uint64(0x9E3779B97F4A7C15)  # 2^64 divided by the golden ratio

Digests = npt.NDArray[np.uint8]  # of shape (reports, 16)


class Malformed(ValueError):
    """Bytes that are no batch."""


class WrongCampaign(ValueError):
    """A batch for another campaign than the one that it was sent to."""


@dataclass(frozen=True, eq=False)
class Block:
    """Reports of one campaign and one period: what makes each unique, its public group, and what was sent.

    ``keys`` is None where the token is the key; ``index`` tells the place of each report in what arrived.
    """

    period: str
    tokens: Digests
    keys: Digests | None
    groups: npt.NDArray[np.uint16]
    rows: Rows
    index: npt.NDArray[np.int64]
    signatures: tuple[tuple[bytes, bytes], ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, chosen: npt.NDArray[Any]) -> Block:
        """Return some of the reports."""
        keys = None if self.keys is None else self.keys[chosen]
        return Block(self.period, self.tokens[chosen], keys, self.groups[chosen], self.rows[chosen], self.index[chosen])

    @property
    def marks(self) -> npt.NDArray[np.int64]:
        """A number for each report and group, by which a repeated report is told from another one."""
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

    def stored(self, campaign: Campaign) -> dict[str, Any]:
        """Return the row of the table of blocks."""
        return {
            "campaign": campaign.id,
            "period": self.period,
            "users": len(self),
            "tokens": self.tokens.tobytes(),
            "groups": b"" if campaign.public_group is None else self.groups.astype("<u2").tobytes(),
            "rows": np.ascontiguousarray(self.rows).tobytes(),
        }


def pack(
    campaign: Campaign,
    period: str,
    tokens: bytes,
    rows: Rows,
    *,
    groups: npt.ArrayLike | None = None,
    signatures: bytes = b"",
) -> bytes:
    """Return a binary batch; ``tokens`` are 32 bytes a report, one after the other."""
    count = len(rows)
    if len(tokens) != count * TOKEN_BYTES:
        raise ValueError(f"Expected {count} tokens of {TOKEN_BYTES} bytes, got {len(tokens)} bytes.")
    name, when = campaign.id.encode("ascii"), period.encode("ascii")
    signed = len(signatures) // count if count else 0
    head = _HEAD.pack(MAGIC, VERSION, len(name), len(when), signed, count, campaign.row.itemsize)
    group = b"" if campaign.public_group is None else np.asarray(groups, dtype="<u2").tobytes()
    body = b"".join([head, name, when, tokens, group, signatures, np.ascontiguousarray(rows).tobytes()])
    return body + _TAIL.pack(zlib.crc32(body))


def unpack(campaign: Campaign, body: bytes, *, most: int) -> Block:
    """Read a binary batch for a campaign; the reports' support is still to be checked."""
    if len(body) < _HEAD.size + _TAIL.size or body[:4] != MAGIC:
        raise Malformed("Expected a binary batch that begins with NZRB.")
    _, version, id_size, period_size, signed, count, width = _HEAD.unpack_from(body)
    if version != VERSION:
        raise Malformed(f"Expected version {VERSION} of a binary batch, got {version}.")
    if _TAIL.unpack_from(body, len(body) - _TAIL.size)[0] != zlib.crc32(memoryview(body)[: -_TAIL.size]):
        raise Malformed("The checksum does not match: the batch was cut or changed on its way. Send it again.")
    if not 0 < count <= most:
        raise Malformed(f"Expected 1 to {most:,} reports in a batch, got {count:,}.")
    grouped = 2 if campaign.public_group is not None else 0
    wanted = _HEAD.size + id_size + period_size + count * (TOKEN_BYTES + grouped + signed + width) + _TAIL.size
    if len(body) != wanted:
        raise Malformed(f"Expected {wanted} bytes for {count} reports, got {len(body)}.")
    start = _HEAD.size + id_size
    try:
        name, period = body[_HEAD.size : start].decode("ascii"), body[start : start + period_size].decode("ascii")
    except UnicodeDecodeError as error:
        raise Malformed("Expected the campaign's id and the period in ASCII.") from error
    if name != campaign.id:
        raise WrongCampaign(f"This batch is for another campaign than {campaign.id!r}. Send it there.")
    if width != campaign.row.itemsize:
        raise Malformed(f"Expected reports of {campaign.row.itemsize} bytes, got {width}.")
    start += period_size
    whole = np.frombuffer(body, dtype=np.uint8, count=count * TOKEN_BYTES, offset=start).reshape(count, TOKEN_BYTES)
    start += count * TOKEN_BYTES
    groups = np.zeros(count, dtype=np.uint16)
    if grouped:
        groups = np.frombuffer(body, dtype="<u2", count=count, offset=start).astype(np.uint16)
        start += 2 * count
    signatures: tuple[tuple[bytes, bytes], ...] = ()
    if signed:
        pieces = [body[start + signed * place : start + signed * (place + 1)] for place in range(count)]
        signatures = tuple(zip((one.tobytes() for one in whole), pieces, strict=True))
        start += signed * count
    rows = np.frombuffer(body, dtype=campaign.row, count=count, offset=start)
    tokens = np.ascontiguousarray(whole[:, :DIGEST_BYTES])
    return Block(period, tokens, None, groups, rows, np.arange(count), signatures)
