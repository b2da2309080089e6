"""Steps of several contenders in turn, each of them in a process of its own.

What a step takes depends on the memory that its process has: the C library keeps what some tensors freed, gives back
others, and moves its own limits by the sizes that it sees. Two contenders in one process change each other's times by
that, up and down. A user's process has one of them. So each one has a process here, which lives until all turns are
over: it is built, makes steps until those that look at a batch are rare, and then works when it is its turn, while the
others sleep. A turn begins with a step that is not timed, as others have had the caches.
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
TURN = 0.1  # seconds of steps in a turn, so that what a clock and a switch cost is little
FIRST = 9  # steps before the first turn: of the first eight batches four are looked at


class Contender:
    """A job in a process of its own. Fork before torch has worked: its threads do not survive."""

    def __init__(self, build: Callable[[], Any], threads: int, clock: str) -> None:
        context = multiprocessing.get_context("fork")
        self._line, other = context.Pipe()
        self._process = context.Process(target=_work, args=(build, threads, clock, other), daemon=True)
        self._process.start()
        other.close()
        self.works = bool(self._said())

    def _said(self) -> Any:
        try:
            return self._line.recv()
        except EOFError:
            raise RuntimeError("The process of a contender ended early; see what it printed.") from None

    def turn(self, steps: int) -> float:
        """Return the mean seconds of some steps."""
        self._line.send(steps)
        return float(self._said())

    def end(self) -> None:
        """Let the process end."""
        if self.works:
            self._line.send(0)
        self._process.join()


def _work(build: Callable[[], Any], threads: int, clock: str, line: Any) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(threads)
    job, now = build(), CLOCKS[clock]
    line.send(job is not None)
    while job is not None and (steps := line.recv()):
        job()
        spent = 0.0
        for _ in range(steps):
            job.prepare()
            start = now()
            job.step()
            spent += now() - start
        line.send(spent / steps)


def in_turns(
    builds: dict[str, Callable[[], Any]], repeats: int, *, threads: int, clock: str, rivals: tuple[str, ...] = ()
) -> dict[str, list[float]]:
    """Return the seconds of a step in each turn, for every job that can be built.

    Of the rivals those that take twice as long as another one of them, in two turns, are left out.
    """
    made: dict[str, Contender] = {}
    for name, build in builds.items():
        made[name] = Contender(build, threads, clock)
        if not made[name].works:
            made.pop(name).end()
    alone = {name: [contender.turn(FIRST), contender.turn(1)][1] for name, contender in made.items()}
    steps = {name: max(round(TURN / seconds), 1) for name, seconds in alone.items()}
    found = {name: min(made[name].turn(steps[name]) for _ in range(2)) for name in made if name in rivals}
    for name, seconds in found.items():
        if seconds > 2 * min(found.values()):
            made.pop(name).end()
    times: dict[str, list[float]] = {name: [] for name in made}
    for _ in range(repeats):
        for name, contender in made.items():
            times[name].append(contender.turn(steps[name]))
    for contender in made.values():
        contender.end()
    return times


def medians(times: dict[str, list[float]]) -> dict[str, float]:
    """Return the median of each."""
    return {name: statistics.median(seconds) for name, seconds in times.items()}
