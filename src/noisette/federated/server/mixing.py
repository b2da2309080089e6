"""Where mixed reports come from: a receipt of packets from a real shuffler, or one inside a simulation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from noisette.federated.channel import Channel
from noisette.shuffler import InProcess, PacketLayout, Receipt, ServerKey
from noisette.shuffler.receipt import Fragments


class Mixer(Protocol):
    """What brings the reports of a round without their senders."""

    def offer(
        self, node: int, payload: Any, channel: Channel, packets: PacketLayout, context: str, number: int
    ) -> None:
        """Take what a client sent to the server itself."""

    def collect(self, packets: PacketLayout, context: str, number: int, *, timeout: float) -> Iterator[Fragments]:
        """Yield the mixed reports of a round, block after block; nothing if too few clients sent."""


@dataclass(frozen=True)
class FromShuffler:
    """Reads what a shuffler forwarded to this server; clients send nothing but an acknowledgement."""

    receipt: Receipt
    key: ServerKey

    def offer(
        self, node: int, payload: Any, channel: Channel, packets: PacketLayout, context: str, number: int
    ) -> None:
        """Check that the acknowledgement holds nothing."""
        if payload.size:
            raise ValueError("it sent its report to the server, not to the shuffler: configure the client's shuffler")

    def collect(self, packets: PacketLayout, context: str, number: int, *, timeout: float) -> Iterator[Fragments]:
        """Wait for a whole batch, and open it."""
        if self.receipt.wait(context, number, timeout=timeout):
            yield from self.receipt.read(context, number, packets, self.key)
            self.receipt.forget(context, number)


@dataclass(frozen=True)
class Simulated:
    """A shuffler in the server's process, for simulations: the same code, and nobody really protected by it."""

    minimum: int
    process: InProcess = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "process", InProcess(minimum=self.minimum))

    def offer(
        self, node: int, payload: Any, channel: Channel, packets: PacketLayout, context: str, number: int
    ) -> None:
        """Seal a report as its client would, and post it to the shuffler."""
        channel.unpack(payload)  # refuses what no client can have sent
        self.process.sender(str(node)).send(channel.codes(payload), packets, context=context, number=number)

    def collect(self, packets: PacketLayout, context: str, number: int, *, timeout: float) -> Iterator[Fragments]:
        """Mix and open what was posted."""
        self.process.deliver()
        yield from self.process.receipt.read(context, number, packets, self.process.key)
        self.process.receipt.forget(context, number + 1)
