"""One thread that writes: whatever has arrived while it waited for the disk goes into the next transaction."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Sequence
from typing import Any

from noisette.collector.intake.reading import outside
from noisette.collector.storage.store import Accepted, Refusal, Refused, Store
from noisette.survey.batches import Batch

_MOST = 20_000  # reports in one transaction, unless a single batch has more

Outcome = Accepted | Refused | BaseException


class Writer:
    """Stores the batches of bodies, many bodies to a transaction, and answers when they are on the disk."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._queue: queue.SimpleQueue[tuple[Sequence[Batch], asyncio.Future[Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="noisette-writer", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Write what has been submitted, and end."""
        self._queue.put(None)
        self._thread.join()

    async def write(self, body: Sequence[Batch]) -> Accepted:
        """Return when all of a body is on the disk; raise `Refused`, or what went wrong, when nothing is."""
        waiting: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._queue.put((body, waiting))
        outcome: Accepted | BaseException = await waiting
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            taken, size, ended = [first], sum(map(len, first[0])), False
            while size < _MOST and not ended:
                try:
                    more = self._queue.get_nowait()
                except queue.Empty:
                    break
                if more is None:
                    ended = True
                else:
                    taken.append(more)
                    size += sum(map(len, more[0]))
            outcomes = store_all(self._store, [body for body, _ in taken])
            loops: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Outcome]]] = {}
            for (_, waiting), outcome in zip(taken, outcomes, strict=True):
                loops.setdefault(waiting.get_loop(), []).append((waiting, outcome))
            for loop, answers in loops.items():
                loop.call_soon_threadsafe(_answer, answers)
            if ended:
                return


def _answer(answers: list[tuple[asyncio.Future[Any], Outcome]]) -> None:
    for waiting, outcome in answers:
        if not waiting.done():  # whoever asked may have gone
            waiting.set_result(outcome)


def store_all(store: Store, bodies: Sequence[Sequence[Batch]]) -> list[Outcome]:
    """Store bodies together and tell for each how it fared; one that cannot be summed is found by trying each alone."""
    try:
        return list(store.accept(bodies))
    except (TypeError, ValueError, OverflowError):
        if len(bodies) > 1:
            return [outcome for one in bodies for outcome in store_all(store, [one])]
        full = Refusal(0, "overflow", "The sums of this campaign no longer fit 64 bits. Ask again under another id.")
        return [Refused(outside(bodies[0]) or [full])]
    except Exception as error:  # the database: whoever asked is told, and the thread goes on
        return [error] * len(bodies)
