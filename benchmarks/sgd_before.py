"""A private step of this checkout beside the same step of another one, an earlier commit for example.

git worktree add ../before d881052
python benchmarks/sgd_before.py ../before             prints the table

Each checkout has a process of its own, and they take turns. Ratios are of neighbouring turns, and the median is shown.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import torch

from sgd_models import MODELS
from sgd_turns import CLOCKS, TURN

HERE = Path(__file__).resolve().parent.parent


def jobs(threads: int, names: Sequence[str]) -> dict[str, Any]:
    """Return a private step of some models of `sgd_models.py`."""
    import sgd as benchmark

    torch.set_num_threads(threads)
    made = {name: benchmark.job_of(name, "ours") for name in names}
    return {name: job for name, job in made.items() if job is not None}


def work(threads: int, clock: str, names: Sequence[str]) -> None:
    """Answer each model's name and number of steps with the seconds of a step, until there are no more."""
    import noisette

    warnings.simplefilter("ignore")
    made, now = jobs(threads, names), CLOCKS[clock]
    print(noisette.__file__, *made, flush=True)
    for line in sys.stdin:
        name, steps = line.split()
        spent = 0.0
        for _ in range(int(steps)):
            made[name].prepare()
            start = now()
            made[name].step()
            spent += now() - start
        print(spent / int(steps), flush=True)


class Worker:
    """A process with the package of one checkout."""

    def __init__(self, checkout: Path, threads: int, clock: str, names: Sequence[str]) -> None:
        source = checkout.resolve() / "src"
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--work", "--threads", str(threads), "--clock", clock, "--models", *names],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(source)},
        )
        place, *self.names = self._said().split()
        if source not in Path(place).parents:
            raise RuntimeError(f"Expected the package of {source}, and found {place}.")

    def _said(self) -> str:
        stream: IO[str] | None = self._process.stdout
        line = "" if stream is None else stream.readline()
        if not line:
            raise RuntimeError("The process of a checkout ended early; see what it printed.")
        return line

    def seconds(self, name: str, steps: int) -> float:
        """Return the mean seconds of some steps."""
        assert self._process.stdin is not None
        print(name, steps, file=self._process.stdin, flush=True)
        return float(self._said())

    def end(self) -> None:
        """Let the process end."""
        self._process.communicate()


def compare(checkout: Path, *, threads: int, repeats: int, clock: str, names: Sequence[str] = tuple(MODELS)) -> str:
    """Time the steps of both checkouts in turn, and write them as Markdown."""
    here, there = workers = Worker(HERE, threads, clock, names), Worker(checkout, threads, clock, names)
    lines = ["| model | there, ms | here, ms | here / there |", "| :-- | --: | --: | --: |"]
    for name in here.names:
        alone = max(worker.seconds(name, 3) for worker in workers)
        steps = max(round(TURN / alone), 1)
        turns = [(there.seconds(name, steps), here.seconds(name, steps)) for _ in range(repeats)]
        before, now = (1e3 * statistics.median(times) for times in zip(*turns, strict=True))
        ratio = statistics.median(mine / theirs for theirs, mine in turns)
        lines.append(f"| {name} | {before:.2f} | {now:.2f} | {ratio:.2f} |")
    for worker in workers:
        worker.end()
    return "\n".join(lines)


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path, nargs="?", default=HERE, help="path of the other checkout")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=41)
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu, with one thread, for a machine in use")
    parser.add_argument("--models", nargs="*", choices=MODELS, default=list(MODELS))
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.threads, options.clock, options.models)
    else:
        settings = {"threads": options.threads, "repeats": options.repeats, "clock": options.clock}
        print(compare(options.checkout, **settings, names=options.models))


if __name__ == "__main__":
    main()
