"""How long the small things take to start, as multiples of `import numpy`: the best of several runs, taken in turn.

python benchmarks/starting.py [REPEATS]      ends with code 1 where a promise is not kept

Each is a fresh interpreter whose bytecode is written already. The best run is the one that was disturbed least, so the
ratio of two best runs is that of a quiet machine, if there are quiet moments. Processor time is shown beside it.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time

_CLI = "from noisette.cli import main; main()"
NUMPY = ("-c", "import numpy")
PROMISES: dict[str, tuple[tuple[str, ...], float]] = {
    "import noisette": (("-c", "import noisette"), 1.8),
    "noisette --help": (("-c", _CLI, "--help"), 2.3),
    "noisette mechanisms": (("-c", _CLI, "mechanisms"), 3.5),
}


def measure(arguments: tuple[str, ...]) -> tuple[float, float]:
    """Return seconds by the clock and of the processor that one run of Python takes."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True, env=kept)
    spent, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measure and print the table."""
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    jobs = {"import numpy": NUMPY} | {name: arguments for name, (arguments, _) in PROMISES.items()}
    for arguments in jobs.values():
        measure(arguments)
    runs = [{name: measure(arguments) for name, arguments in jobs.items()} for _ in range(repeats)]
    clock, processor = ({name: min(run[name][place] for run in runs) for name in jobs} for place in (0, 1))
    print(f"{'best of ' + str(repeats):22} {'clock':>8} {'ratio':>6} {'processor':>10} {'ratio':>6}   promised")
    kept = True
    for name in jobs:
        ratios = clock[name] / clock["import numpy"], processor[name] / processor["import numpy"]
        promise = PROMISES.get(name, ((), 1.0))[1]
        kept &= ratios[0] <= promise
        print(f"{name:22} {clock[name]:6.3f} s {ratios[0]:6.2f} {processor[name]:8.3f} s {ratios[1]:6.2f}   {promise}")
    sys.exit(not kept)


if __name__ == "__main__":
    main()
