"""Peak memory of private training, each job in a process of its own.

python benchmarks/sgd_memory.py                      one step at B = 16,384 of the CNN, and its peak
python benchmarks/sgd_memory.py --physical 1024 16384     and the same in one piece
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import multiprocessing
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from noisette import sgd
from noisette.sgd import zoo

SELF = Path("/proc/self")


Build = Callable[[], Callable[[], Any] | None]


def peak_of(build: Build, steps: int = 3, *, small: Build | None = None) -> tuple[int, int] | None:
    """Build a job in a process of its own, run it, and return what both add to memory at the peak, and the peak.

    Bytes. None for a job that cannot be built. A ``small`` one that does the same runs before, so that code which is
    loaded late does not count; what it has freed goes back to the system, so that nothing is taken from there unseen.
    Fork before torch has worked: its threads do not survive.
    """
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_measured, args=(build, small, steps, sender))
    process.start()
    sender.close()
    try:
        found: tuple[int, int] | None = receiver.recv()
    except EOFError:
        raise RuntimeError("The process that was measured ended early; see what it printed.") from None
    finally:
        process.join()
    return found


def _measured(build: Build, small: Build | None, steps: int, sender: Any) -> None:
    tried = None if small is None else small()
    if tried is not None:
        tried()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    (SELF / "clear_refs").write_text("5", encoding="utf-8")  # the peak starts anew
    before = _resident("VmRSS")
    job = build()
    if job is None:
        sender.send(None)
        return
    for _ in range(steps):
        job()
    peak = _resident("VmHWM")
    sender.send((peak - before, peak))


def _resident(what: str) -> int:
    """Return the bytes that are resident: now, VmRSS, or at the peak, VmHWM."""
    lines = (SELF / "status").read_text(encoding="utf-8").splitlines()
    return int(next(line for line in lines if line.startswith(what)).split()[1]) * 1024


def import_all() -> None:
    """Import what a private run imports late, so that the processes that are measured need not, one after another."""
    sgd.Budget.for_target(3.0, 1e-5, steps=10, sampling_prob=0.5)
    torch.optim.SGD([torch.zeros(1, requires_grad=True)])  # imports a good deal of torch


def large_step(batch: int, physical: int, examples: int) -> Callable[[], None]:
    """Return one private step of the CNN on a Poisson sample of ``batch`` expected images."""
    torch.manual_seed(1)
    model = zoo.cnn()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(torch.randn(examples, 1, 28, 28), torch.randint(0, 10, (examples,)))
    private = sgd.make_private(
        model,
        optimizer,
        DataLoader(data, batch_size=batch),
        target=(3.0, 1e-5),
        epochs=1,
        physical_batch=physical,
        rng=1,
    )

    def step() -> None:
        for inputs, targets in private.loader:
            private.optimizer.zero_grad()
            functional.cross_entropy(model(inputs), targets).backward()
            private.optimizer.step()
            if private.optimizer.stepped:
                return

    return step


def main() -> None:
    """Make one step of each kind and print its peak."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=16_384)
    parser.add_argument("--physical", type=int, nargs="+", default=[1024], help="examples in a piece; a run for each")
    parser.add_argument("--examples", type=int, default=60_000)
    options = parser.parse_args()
    import_all()
    for physical in options.physical:
        found = peak_of(partial(large_step, options.batch, physical, options.examples), steps=1)
        assert found is not None
        print(
            f"B = {options.batch:,} in pieces of {physical:,}: peak {found[1] / 2**30:.2f} GiB resident, "
            f"of which the step {found[0] / 2**30:.2f} GiB"
        )


if __name__ == "__main__":
    main()
