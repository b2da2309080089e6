"""One thread that writes: whatever has arrived while it waited for the disk goes into the next transaction."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Sequence
from typing import Any

from noisette.collector.intake import reading as intake
from noisette.collector.intake.reading import Arrived
from noisette.collector.storage.store import Accepted, Refusal, Refused, Store, Submission

_MOST = 20_000  # reports in one transaction, unless a single batch has more

Outcome = Accepted | Refused | BaseException


class Writer:
    """Stores what is submitted, many submissions to a transaction, and answers when they are on the disk."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._queue: queue.SimpleQueue[tuple[Arrived, asyncio.Future[Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="noisette-writer", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Write what has been submitted, and end."""
        self._queue.put(None)
        self._thread.join()

    async def write(self, arrived: Arrived) -> Accepted:
        """Return when all is on the disk; raise `Refused`, or what went wrong, when nothing is."""
        waiting: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._queue.put((arrived, waiting))
        outcome: Accepted | BaseException = await waiting
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            taken, size, ended = [first], first[0].size, False
            while size < _MOST and not ended:
                try:
                    more = self._queue.get_nowait()
                except queue.Empty:
                    break
                if more is None:
                    ended = True
                else:
                    taken.append(more)
                    size += more[0].size
            outcomes = store_all(self._store, [arrived for arrived, _ in taken])
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


def store_all(store: Store, arrived: Sequence[Arrived]) -> list[Outcome]:
    """Store what is sound of all that arrived, and tell for each how it fared."""
    settled = intake.settle(arrived)
    sound = {place: one for place, one in enumerate(settled) if isinstance(one, Submission)}
    outcomes: list[Any] = list(settled)
    for place, outcome in zip(sound, _stored(store, list(sound.values())), strict=True):
        outcomes[place] = outcome
    return outcomes


def _stored(store: Store, submissions: list[Submission]) -> list[Outcome]:
    """Store submissions together; one that cannot be summed is found by trying each by itself."""
    if not submissions:
        return []
    try:
        return list(store.accept(submissions))
    except (TypeError, ValueError, OverflowError):
        if len(submissions) > 1:
            return [outcome for one in submissions for outcome in _stored(store, [one])]
        full = Refusal(0, "overflow", "The sums of this campaign no longer fit 64 bits. Ask again under another id.")
        return [Refused(intake.outside(submissions[0]) or [full])]
    except Exception as error:  # the database: whoever asked is told, and the thread goes on
        return [error] * len(submissions)
