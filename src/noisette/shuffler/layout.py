"""How a vector is cut into blocks, each sealed and shuffled as one packet, and what holds for such blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from noisette import _validate

if TYPE_CHECKING:
    from noisette.core import Mechanism
    from noisette.guarantees import Guarantee

KINDS: dict[str, np.dtype[Any]] = {
    "float64": np.dtype("<f8"),
    "int32": np.dtype("<i4"),
    "int16": np.dtype("<i2"),
    "int8": np.dtype("i1"),
    "bit": np.dtype("u1"),
}


@dataclass(frozen=True)
class PacketLayout:
    """The public partition of ``dims`` positions into blocks of ``batch``: block b holds positions b * batch and on.

    All clients use the same partition, so that packets of one block are alike but for their values. The values of a
    block stay together: whoever opens a packet knows that they come from one client. Every packet has the same size;
    the last block is filled up with zeros, which are cut off again. ``kind`` is how a number travels: as "float64", as
    "int32", "int16" or "int8", or as a "bit", of which a byte holds eight.

    >>> layout = PacketLayout(dims=5, batch=2)
    >>> layout.blocks, layout.packet_bytes
    (3, 16)
    >>> payloads = layout.split([0.0, 1.0, 2.0, 3.0, 4.0])
    >>> layout.join([payloads[2]], block=2)
    array([[4.]])
    >>> PacketLayout(dims=5, batch=2, kind="bit").packet_bytes
    1
    """

    dims: int
    batch: int
    kind: str = "float64"

    def __post_init__(self) -> None:
        _validate.integer(self.dims, "dims", low=1)
        _validate.integer(self.batch, "batch", low=1)
        if self.kind not in KINDS:
            raise ValueError(f"Expected kind={self.kind!r} to be one of {', '.join(KINDS)}.")

    @property
    def blocks(self) -> int:
        """Number of packets that one client sends in a round."""
        return math.ceil(self.dims / self.batch)

    @property
    def packet_bytes(self) -> int:
        """Size of a packet before it is sealed."""
        return math.ceil(self.batch / 8) if self.kind == "bit" else self.batch * KINDS[self.kind].itemsize

    def start(self, block: int) -> int:
        """Return the first position of a block."""
        return block * self.batch

    def width(self, block: int) -> int:
        """Return how many positions a block has."""
        return min(self.batch, self.dims - self.start(block))

    def split(self, values: Any) -> list[bytes]:
        """Return the packets of one client's values, block after block."""
        array = _validate.reals(values, "values") if self.kind == "float64" else np.asarray(values)
        if array.shape != (self.dims,):
            raise ValueError(f"Expected values of shape ({self.dims},), got {array.shape}.")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ValueError("Expected finite values: a mechanism sends no other. Privatise before you send.")
        if array.dtype != KINDS[self.kind] or (self.kind == "bit" and array.max() > 1):
            raise ValueError(f"Expected values of kind {self.kind!r}, got numbers of {array.dtype}.")
        rows = np.zeros((self.blocks, self.batch), dtype=KINDS[self.kind])
        rows.reshape(-1)[: self.dims] = array
        return [row.tobytes() for row in (np.packbits(rows, axis=1) if self.kind == "bit" else rows)]

    def join(self, payloads: list[bytes], *, block: int) -> npt.NDArray[Any]:
        """Return the values of several packets of one block, a row a packet, in the type that they travel in."""
        found = np.frombuffer(b"".join(payloads), dtype=KINDS[self.kind])
        rows = found.reshape(len(payloads), self.packet_bytes // found.itemsize)
        if self.kind == "bit":
            rows = np.unpackbits(rows, axis=1, count=self.batch)
        return rows[:, : self.width(block)].astype(rows.dtype.newbyteorder("="))


def shuffled_blocks(
    fragment: Mechanism | Guarantee, layout: PacketLayout, *, clients: int, delta: float, rounds: int = 1
) -> Guarantee:
    """Return what the server can learn about one client from shuffled packets of linked fragments.

    ``fragment`` is the mechanism of one position, or its pure local guarantee. The fragments of a block stay together,
    so one block is one report of epsilon = batch * fragment.epsilon; ``clients`` such reports of every block are
    shuffled, and all blocks of all rounds compose. ``clients`` is the size of the smallest batch, at least the
    shuffler's minimum, less those who collude with the server.

    *Guarantee*: (epsilon, delta) in the shuffled model for a client's whole vector over all rounds, relation replace;
    never more than what holds without a shuffler. With batch = 1 it is that of shuffled single fragments, with
    batch = dims that of shuffled whole vectors. The last block is counted as if it were full.
    Feldman, McMillan, Talwar 2021, section 3 (`noisette.accounting.shuffled`).

    >>> from noisette.guarantees import Guarantee
    >>> for batch in (10, 100, 1000):
    ...     found = shuffled_blocks(Guarantee(epsilon=0.01), PacketLayout(1000, batch), clients=1000, delta=1e-6)
    ...     print(batch, round(found.epsilon, 2))
    10 0.12
    100 0.62
    1000 1.37
    """
    from noisette.accounting import compose, shuffled
    from noisette.guarantees import Guarantee

    _validate.integer(rounds, "rounds", low=1)
    linked: Mechanism | Guarantee = fragment
    if layout.batch > 1:
        one = fragment if isinstance(fragment, Guarantee) else fragment.guarantee
        linked = replace(one, epsilon=one.epsilon * layout.batch)
    found = shuffled(linked, clients, delta, times=layout.blocks * rounds)
    alone = compose(fragment, layout.dims * rounds, delta=delta)
    return replace(found, epsilon=min(found.epsilon, alone.epsilon))
