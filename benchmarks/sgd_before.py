"""A private step of this checkout beside the same step of another one, an earlier commit for example.

git worktree add ../before d881052
python benchmarks/sgd_before.py ../before             prints the table

Each model of each checkout has a process of its own, and they take turns (`sgd_turns.py` says why). Ratios are of
neighbouring turns, and the median is shown.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from sgd_turns import CLOCKS, in_turns, medians

HERE = Path(__file__).resolve().parent.parent
NAMES = ("logistic", "cnn", "lenet", "resnet", "resnet20", "bilstm", "transformer", "mlp")  # of `sgd_models.MODELS`


def job_of(checkout: Path, name: str) -> Any:
    """Return a private step of a model, with the package of a checkout; in a process that has loaded none yet."""
    source = checkout.resolve() / "src"
    sys.path.insert(0, str(source))
    import noisette

    place = Path(noisette.__file__)
    if source not in place.parents:
        raise RuntimeError(f"Expected the package of {source}, and found {place}.")
    import sgd as benchmark

    return benchmark.job_of(name, "ours")


def compare(checkout: Path, *, threads: int, repeats: int, clock: str, names: Sequence[str] = NAMES) -> str:
    """Time the steps of both checkouts in turn, and write them as Markdown."""
    lines = ["| model | there, ms | here, ms | here / there |", "| :-- | --: | --: | --: |"]
    for name in names:
        builds = {"there": partial(job_of, checkout, name), "here": partial(job_of, HERE, name)}
        turns = in_turns(builds, repeats, threads=threads, clock=clock)
        ratio = statistics.median(mine / theirs for theirs, mine in zip(turns["there"], turns["here"], strict=True))
        before, now = (1e3 * seconds for seconds in medians(turns).values())
        lines.append(f"| {name} | {before:.2f} | {now:.2f} | {ratio:.2f} |")
    return "\n".join(lines)


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path, nargs="?", default=HERE, help="path of the other checkout")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=41)
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu, with one thread, for a machine in use")
    parser.add_argument("--models", nargs="*", choices=NAMES, default=list(NAMES))
    options = parser.parse_args()
    settings = {"threads": options.threads, "repeats": options.repeats, "clock": options.clock}
    print(compare(options.checkout, **settings, names=options.models))


if __name__ == "__main__":
    main()
