"""From the shuffler to the server: release what is due, deliver it, erase it; in a thread, in steps, in memory."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

from noisette._retry import decided, pauses
from noisette.shuffler.receipt import Receipt
from noisette.shuffler.sealing import ServerKey
from noisette.shuffler.sender import Http, NotSent, Sender
from noisette.shuffler.store import BatchPart, PostRefused, Shuffler

log = logging.getLogger("noisette.shuffler")

_TICK = 0.2  # seconds between two looks at what is due
_FORGET_EVERY = 3600.0
_OF_THE_KEY = frozenset({401, 403})  # about the shuffler's own key, which an operator may be changing


class Undelivered(Exception):
    """The server did not take a part: ``final`` if it never will, ``fault`` if it failed over this very part."""

    def __init__(self, reason: str, *, final: bool = False, fault: bool = False) -> None:
        super().__init__(reason)
        self.final, self.fault = final, fault


def forward(
    shuffler: Shuffler, deliver: Callable[[BatchPart], Any], *, stopped: Callable[[], bool] = lambda: False
) -> int:
    """Release what is due and deliver all that is released; return the number of packets delivered.

    A part is erased after ``deliver`` has returned. If that fails or the process dies in between, the same part is
    delivered again under the same number. A batch that the server refuses for good is set aside, and one over which it
    fails waits by itself; `Undelivered` that is neither ends the work: the server is away.
    """
    for released, smallest in shuffler.release():
        fields = {"context": released.context, "round": released.number, "smallest_set": smallest}
        log.info("released", extra={"fields": fields})
    packets = 0
    while not stopped() and (part := shuffler.next_part()) is not None:
        try:
            deliver(part)
        except Undelivered as error:
            shuffler.failed(part, str(error), final=error.final, fault=error.fault)
            own = {"batch": part.name, "context": part.frame.round.context, "detail": str(error)}
            log.error("set aside" if error.final else "not taken", extra={"fields": own})
            if error.final or error.fault:
                continue
            raise
        shuffler.done(part)
        packets += len(part.frame.packets)
    return packets


class Forwarder(threading.Thread):
    """Forwards to the server while the service runs, and tries again for ever when the server does not answer.

    ``trouble`` says why nothing can be forwarded at all, and is empty otherwise.
    """

    def __init__(self, shuffler: Shuffler, server: Http, *, forwarded: Any = None, failed: Any = None) -> None:
        super().__init__(name="forwarder", daemon=True)
        self._shuffler, self._server = shuffler, server
        self._forwarded, self._failed = forwarded, failed
        self._halt, self._news = threading.Event(), threading.Event()
        self.trouble = ""

    def wake(self) -> None:
        """Look at once: something was accepted."""
        self._news.set()

    def stop(self) -> None:
        """End after the part that is under way."""
        self._halt.set()
        self._news.set()
        self.join()
        self._server.close()

    def run(self) -> None:
        """Forward until `stop` is called."""
        waits, ticks = pauses(), 0.0
        while not self._halt.is_set():
            try:
                if ticks <= 0:
                    self._shuffler.forget()
                    ticks = _FORGET_EVERY / _TICK
                forward(self._shuffler, self._deliver, stopped=self._halt.is_set)
                waits, self.trouble = pauses(), ""
            except (Undelivered, OSError, sqlite3.Error) as error:
                self.trouble = str(error)
                log.error("not forwarded", extra={"fields": {"detail": str(error)}})
                self._halt.wait(next(waits))
            self._news.wait(_TICK)
            self._news.clear()
            ticks -= 1

    def _deliver(self, part: BatchPart) -> None:
        try:
            self._server.post(part.post, part.frame.encode())
        except (NotSent, PostRefused) as error:
            if self._failed is not None:
                self._failed.inc()
            status = error.status if isinstance(error, NotSent) else 409
            final = status is not None and decided(status) and status not in _OF_THE_KEY
            raise Undelivered(str(error), final=final, fault=status == 500) from error
        if self._forwarded is not None:
            self._forwarded.inc(len(part.frame.packets))


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
