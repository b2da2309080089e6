"""What travels: a frame of sealed packets of one round, in a compact binary form with a version."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from noisette import _validate

VERSION = 2  # of frames, and of what a seal is bound to; 1 sealed with another cipher
LARGEST_BLOCKS = 2**20
MEDIA_TYPE = "application/vnd.noisette.packets"

_MAGIC = b"NZSH"
_HEAD = struct.Struct(">4sBBIIII")  # magic, version, length of context; round, blocks, size of a packet, packets
_BLOCK_NUMBER = struct.Struct(">I")
_LABEL = struct.Struct(">BIII")
_LONGEST_CONTEXT = 200


class Malformed(ValueError):
    """Bytes that are not a frame."""


@dataclass(frozen=True)
class Round:
    """A round of a run or campaign (``context``), of which every client sends ``blocks`` packets.

    >>> Round("run-7", 3, blocks=2).label(1).hex()
    '6e6f6973657474652d73687566666c65720205000000030000000200000001...'
    """

    context: str
    number: int
    blocks: int

    def __post_init__(self) -> None:
        if not isinstance(self.context, str) or not 0 < len(self.context.encode()) <= _LONGEST_CONTEXT:
            raise ValueError(f"Expected context={self.context!r} to be a text of 1 to {_LONGEST_CONTEXT} bytes.")
        _validate.integer(self.number, "number", low=0, high=2**32 - 1)
        _validate.integer(self.blocks, "blocks", low=1, high=LARGEST_BLOCKS)

    def label(self, block: int) -> bytes:
        """Return what a seal is bound to: a packet opens in this context, round and block and in no other."""
        name = self.context.encode()
        numbers = (self.number, self.blocks, block)
        return b"noisette-shuffler" + bytes([VERSION]) + _LABEL.pack(len(name), *numbers) + name


@dataclass(frozen=True)
class Frame:
    """Sealed packets of one round, each with the number of its block; all have one size."""

    round: Round
    packets: Sequence[tuple[int, bytes]]

    @property
    def packet_bytes(self) -> int:
        """Size of each sealed packet."""
        return len(self.packets[0][1])

    def encode(self) -> bytes:
        """Return the frame as bytes."""
        name = self.round.context.encode()
        sizes = (self.round.number, self.round.blocks, self.packet_bytes, len(self.packets))
        parts = [_HEAD.pack(_MAGIC, VERSION, len(name), *sizes), name]
        for block, sealed in self.packets:
            parts += (_BLOCK_NUMBER.pack(block), sealed)
        return b"".join(parts)

    @classmethod
    def decode(cls, body: bytes) -> Frame:
        """Read back `encode`, or raise `Malformed`."""
        if len(body) < _HEAD.size:
            raise Malformed(f"Expected a frame of at least {_HEAD.size} bytes, got {len(body)}.")
        magic, version, letters, number, blocks, size, count = _HEAD.unpack_from(body)
        if magic != _MAGIC or version != VERSION:
            raise Malformed(f"Expected a frame of version {VERSION}. Update noisette on the older side.")
        start, step = _HEAD.size + letters, _BLOCK_NUMBER.size + size
        if not count or not size or len(body) != start + count * step:
            raise Malformed(f"Expected {count} packets of {size} bytes each, at least one, and nothing else.")
        try:
            found = Round(body[_HEAD.size : start].decode(), number, blocks)
        except ValueError as error:
            raise Malformed(f"Expected a context in UTF-8 and 1 to {LARGEST_BLOCKS} blocks.") from error
        packets = []
        for at in range(start, len(body), step):
            (block,) = _BLOCK_NUMBER.unpack_from(body, at)
            if block >= blocks:
                raise Malformed(f"Expected blocks below {blocks}, got {block}.")
            packets.append((block, body[at + _BLOCK_NUMBER.size : at + step]))
        return cls(found, packets)


def record_bytes(sealed_bytes: int) -> int:
    """Return how much of a frame one packet takes."""
    return _BLOCK_NUMBER.size + sealed_bytes
