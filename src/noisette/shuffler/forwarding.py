"""From the shuffler to the server: release what is due, deliver it, erase it; in a thread or step by step."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable
from typing import Any

from noisette._retry import pauses
from noisette.shuffler.sender import Http
from noisette.shuffler.store import PostRefused, Shuffler, WavePart

log = logging.getLogger("noisette.shuffler")

_TICK = 0.2  # seconds between two looks at what is due


def forward(
    shuffler: Shuffler, deliver: Callable[[WavePart], Any], *, stopped: Callable[[], bool] = lambda: False
) -> int:
    """Release what is due and deliver all that is released; return the number of packets delivered.

    A batch is erased after ``deliver`` has returned. If that fails or the process dies in between, the same batch is
    delivered again under the same number.
    """
    for released, smallest in shuffler.release():
        told = {"context": released.context, "round": released.number, "smallest_set": smallest}
        log.info("released", extra={"told": told})
    packets = 0
    while not stopped() and (batch := shuffler.next_batch()) is not None:
        deliver(batch)
        shuffler.done(batch)
        packets += len(batch.frame.packets)
    return packets


class Forwarder(threading.Thread):
    """Forwards to the server while the service runs, and tries again for ever when the server does not answer."""

    def __init__(self, shuffler: Shuffler, server: Http, *, forwarded: Any = None, failed: Any = None) -> None:
        super().__init__(name="forwarder", daemon=True)
        self._shuffler, self._server = shuffler, server
        self._forwarded, self._failed = forwarded, failed
        self._halt, self._news = threading.Event(), threading.Event()

    def wake(self) -> None:
        """Look at once: something was accepted."""
        self._news.set()

    def stop(self) -> None:
        """End after the batch that is under way."""
        self._halt.set()
        self._news.set()
        self.join()
        self._server.close()

    def run(self) -> None:
        """Forward until told to stop."""
        waits = pauses()
        while not self._halt.is_set():
            try:
                forward(self._shuffler, self._deliver, stopped=self._halt.is_set)
                waits = pauses()
            except (PostRefused, OSError, sqlite3.Error) as error:
                log.error("not forwarded", extra={"told": {"detail": str(error)}})
                if self._failed is not None:
                    self._failed.inc()
                self._halt.wait(next(waits))
            self._news.wait(_TICK)
            self._news.clear()

    def _deliver(self, batch: WavePart) -> None:
        self._server.post(batch.post, batch.frame.encode())
        if self._forwarded is not None:
            self._forwarded.inc(len(batch.frame.packets))
