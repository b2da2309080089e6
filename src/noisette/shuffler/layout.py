"""How a vector is cut into blocks, each of which is sealed and shuffled as one packet."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from noisette import _validate
from noisette._validate import FloatArray

_VALUE = np.dtype("<f8")


@dataclass(frozen=True)
class PacketLayout:
    """The public partition of ``dims`` positions into blocks of ``batch``: block b holds positions b * batch and on.

    All clients use the same partition, so that packets of one block are alike but for their values. The values of a
    block stay together: whoever opens a packet knows that they come from one client. Every packet has the same size;
    the last block is filled up with zeros, which are cut off again.

    >>> layout = PacketLayout(dims=5, batch=2)
    >>> layout.blocks, layout.packet_bytes
    (3, 16)
    >>> payloads = layout.split([0.0, 1.0, 2.0, 3.0, 4.0])
    >>> layout.join([payloads[2]], block=2)
    array([[4.]])
    """

    dims: int
    batch: int

    def __post_init__(self) -> None:
        _validate.integer(self.dims, "dims", low=1)
        _validate.integer(self.batch, "batch", low=1)

    @property
    def blocks(self) -> int:
        """Number of packets that one client sends in a round."""
        return math.ceil(self.dims / self.batch)

    @property
    def packet_bytes(self) -> int:
        """Size of a packet before it is sealed."""
        return self.batch * _VALUE.itemsize

    def start(self, block: int) -> int:
        """Return the first position of a block."""
        return block * self.batch

    def width(self, block: int) -> int:
        """Return how many positions a block has."""
        return min(self.batch, self.dims - self.start(block))

    def split(self, values: Any) -> list[bytes]:
        """Return the packets of one client's values, block after block."""
        array = _validate.reals(values, "values")
        if array.shape != (self.dims,):
            raise ValueError(f"Expected values of shape ({self.dims},), got {array.shape}.")
        if not np.isfinite(array).all():
            raise ValueError("Expected finite values: a mechanism sends no other. Privatise before you send.")
        filled = np.zeros(self.blocks * self.batch, dtype=_VALUE)
        filled[: self.dims] = array
        return [row.tobytes() for row in filled.reshape(self.blocks, self.batch)]

    def join(self, payloads: list[bytes], *, block: int) -> FloatArray:
        """Return the values of several packets of one block, a row a packet."""
        rows = np.frombuffer(b"".join(payloads), dtype=_VALUE).reshape(len(payloads), self.batch)
        return rows[:, : self.width(block)].astype(np.float64)
