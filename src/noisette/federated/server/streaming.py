"""A Flower grid that hands out replies as they come, a bounded number of them under way at a time."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid

_SHORTEST, _LONGEST = 0.02, 1.0  # seconds between looks for replies
_FIRST_MESSAGES = 16  # messages under way at first
_log = logging.getLogger("flwr")


class StreamingGrid(Grid):
    """Wraps a grid so that memory does not grow with the number of clients.

    Flower's own `send_and_receive` sends all messages and returns all replies at once. This one keeps at most
    ``in_flight`` messages under way and yields each reply as it comes; whoever iterates may forget it then. It begins
    with sixteen and doubles them when a second passes without a reply: clients that are quick, as simulated ones, need
    no more, and Flower's simulation looks through all that are under way for every client, again and again.
    ``timeout`` is for all of them together: what has not come by then is not waited for any longer.
    """

    def __init__(
        self, grid: Grid, in_flight: int, *, clock: Callable[[], float] = time.monotonic, sleep: Any = time.sleep
    ) -> None:
        self.grid = grid
        self.in_flight = in_flight
        self._clock, self._sleep = clock, sleep

    def set_run(self, run: Any) -> None:
        """Set the run of the grid."""
        self.grid.set_run(run)

    @property
    def run(self) -> Any:
        """The run of the grid."""
        return self.grid.run

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        """Create a message."""
        return self.grid.create_message(*args, **kwargs)

    def get_node_ids(self) -> Iterable[int]:
        """Return the clients that are there."""
        return self.grid.get_node_ids()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages."""
        return self.grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies that are there."""
        return self.grid.pull_messages(message_ids)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterator[Message]:
        """Yield replies as they come."""
        waiting = iter(messages)
        deadline = None if timeout is None else self._clock() + timeout
        under_way: set[str] = set()
        pause, most = _SHORTEST, min(_FIRST_MESSAGES, self.in_flight)
        while True:
            started = list(islice(waiting, most - len(under_way)))
            if started:
                under_way.update(number for number in self.grid.push_messages(started) if number)
            if not under_way:
                return
            came = 0
            for reply in self.grid.pull_messages(under_way):
                under_way.discard(reply.metadata.reply_to_message_id)
                came += 1
                yield reply
            if came:
                pause = _SHORTEST
                continue
            if deadline is not None and self._clock() > deadline:
                _log.warning("noisette: %d clients had not answered when the time was up", len(under_way))
                return
            self._sleep(pause)
            if pause == _LONGEST:
                most = min(2 * most, self.in_flight)
            pause = min(2 * pause, _LONGEST)
