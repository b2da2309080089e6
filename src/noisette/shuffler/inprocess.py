"""Clients, shuffler and server in one process, for simulations: the same code but for the network and the disk."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

from noisette.shuffler.forwarding import forward
from noisette.shuffler.receipt import Receipt
from noisette.shuffler.sealing import ServerKey
from noisette.shuffler.sender import Sender
from noisette.shuffler.store import Shuffler


@dataclass(frozen=True)
class _Direct:
    """Brings the posts of one client to a shuffler of this process."""

    shuffler: Shuffler
    client: str

    def post(self, number: str, body: bytes, *, minimum: int) -> None:
        """Deliver a post."""
        self.shuffler.accept(self.client, number, body, minimum=minimum)

    def close(self) -> None:
        """Leave the shuffler open: it is shared."""


@dataclass(frozen=True)
class InProcess:
    """A shuffler and a server in memory.

    >>> import numpy as np
    >>> from noisette.shuffler import PacketLayout
    >>> layout = PacketLayout(dims=3, batch=2)
    >>> with InProcess(minimum=2) as simulated:
    ...     for client in ("anna", "ben"):
    ...         _ = simulated.sender(client).send([1.0, 2.0, 3.0], layout, context="run", number=1)
    ...     simulated.deliver()
    ...     for one in simulated.receipt.read("run", 1, layout, simulated.key):
    ...         print(one.position, one.values.tolist())
    4
    0 [[1.0, 2.0], [1.0, 2.0]]
    2 [[3.0], [3.0]]
    """

    minimum: int
    key: ServerKey = field(default_factory=ServerKey.generate)
    shuffler: Shuffler = field(init=False)
    receipt: Receipt = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shuffler", Shuffler(":memory:", minimum=self.minimum))
        object.__setattr__(self, "receipt", Receipt(":memory:"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shuffler.close()
        self.receipt.close()

    def sender(self, client: str) -> Sender:
        """Return the sender of a client."""
        return Sender(_Direct(self.shuffler, client), self.key.public)

    def deliver(self) -> int:
        """Release and forward the batches that hold enough packets; return the number of packets."""
        return forward(self.shuffler, lambda part: self.receipt.accept(part.post, part.frame.encode()))
