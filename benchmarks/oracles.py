"""Decoding shares of long lists: projective geometry response beside the C++ of its authors, in one run.

    git clone https://github.com/minilek/private_frequency_oracles /tmp/reference
    python benchmarks/oracles.py --reference /tmp/reference
    python benchmarks/oracles.py --peers .venv-peers/bin/python      multi-freq-ldpy and pure-ldp, 100 categories

The first needs g++ and Boost's headers (Debian: g++ libboost-dev). Their code stays where it is: a driver of ours is
compiled against it in a temporary folder. Times are the CPU seconds of one core, the least of several runs; set-up is
apart.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import noisette as nz

JOBS = (
    (22_000, 5.0, 10_000, 149),
    (22_000, 2.0, 10_000, 11),
    (22_000, 1.0, 10_000, 5),
    (22_000, 0.5, 10_000, 3),
    (22_000, 3.0, 10_000, 23),
    (3_300_000, 5.0, 1_000_000, 149),
)
DRIVER = """
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include "projective_geometry.h"
int main(int, char **given) {
  int size = atoi(given[1]), users = atoi(given[3]), field = atoi(given[4]), runs = atoi(given[5]);
  ProjectiveGeometryResponse oracle(size, atof(given[2]), field);
  std::vector<Message> messages;
  for (int user = 0; user < users; ++user) messages.push_back(oracle.local_randomizer(user % size));
  double best = 1e9;
  for (int run = 0; run < runs; ++run) {
    clock_t start = clock();
    std::vector<double> found = oracle.estimate_all_freqs(messages);
    best = std::min(best, double(clock() - start) / CLOCKS_PER_SEC);
    if (found.empty()) return 1;
  }
  printf("%.6f", best);
}
"""


PEERS = """
import json, sys, time
sys.path.insert(0, sys.argv[1])
import peers
def seconds(job, repeats):
    job()  # compiles
    start = time.process_time()
    job()
    return time.process_time() - start
peers.seconds = seconds
told = json.load(sys.stdin)
print(json.dumps({**peers.multi_freq(*told), **peers.pure_ldp(*told)}))
"""


def beside(python: str, users: int = 5000, size: int = 100, epsilon: float = 1.0) -> None:
    """Print how long answering and estimating take a user, by ours and by other libraries, in one run."""
    codes = np.random.default_rng(1).integers(0, size, users)
    told = json.dumps([codes.tolist(), size, epsilon, 1])
    command = [python, "-c", PEERS, str(Path(__file__).parent)]
    theirs = json.loads(subprocess.run(command, input=told, check=True, capture_output=True, text=True).stdout)
    many = np.tile(codes, 200)  # so that ours takes long enough to be timed
    for name in ("grr", "oue", "olh", "subset-selection", "pgr"):
        made = nz.build(name, nz.Categorical(size), epsilon=epsilon)
        own = least(lambda made=made: made.aggregate(made.privatize(many)).estimate(), 3) / many.size
        others = {who: took for who, took in theirs.items() if who.endswith(f" {name}")}
        shown = "".join(f"; {who} {took * 1e6:,.1f} us, {took / own:,.0f} times" for who, took in others.items())
        print(f"{name}: {own * 1e6:.3f} us a user{shown}", flush=True)


def compiled(reference: Path, folder: Path) -> Path:
    """Compile the driver with their sources, as their Makefile does."""
    (folder / "driver.cc").write_text(DRIVER, encoding="utf-8")
    sources = [*(reference / "oracles").glob("*.cc"), *(reference / "oracles" / "util").glob("*.cc")]
    program = folder / "driver"
    command = ["g++", "-std=c++14", "-O2", f"-I{reference / 'oracles'}", str(folder / "driver.cc"), *map(str, sources)]
    subprocess.run([*command, "-o", str(program)], check=True)
    return program


def least(work: Callable[[], object], runs: int) -> float:
    """Return the least CPU seconds of several runs."""
    found = []
    for _ in range(runs):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found)


def main() -> None:
    """Print a row for each job."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--reference", type=Path, help="a clone of minilek/private_frequency_oracles")
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--peers", help="a Python that has multi-freq-ldpy and pure-ldp")
    given = options.parse_args()
    if given.peers:
        return beside(given.peers)
    print(
        f"{'categories':>11} {'epsilon':>7} {'reports':>10} {'set-up s':>9} {'decode s':>9} {'C++ s':>9} {'times':>6}"
    )
    with tempfile.TemporaryDirectory() as folder:
        program = compiled(given.reference, Path(folder)) if given.reference else None
        for size, epsilon, users, field in (*JOBS, (3_300_000, 5.0, 10_000_000, 0)):
            mechanism = nz.ProjectiveGeometryResponse(epsilon, nz.Categorical(size))
            codes = np.random.default_rng(1).integers(0, size, users)
            start = time.process_time()
            mechanism.privatize(codes[:1], rng=1)
            reports = mechanism.privatize(codes, rng=1)
            setup = time.process_time() - start
            start = time.process_time()
            mechanism.aggregate(reports)
            first = time.process_time() - start
            own = least(partial(mechanism.aggregate, reports), max(3, given.runs))
            setup += first - own - least(partial(mechanism.privatize, codes, rng=1), 1)
            theirs = ""
            if program is not None and field:
                told = [str(one) for one in (size, epsilon, users, field, given.runs)]
                theirs = subprocess.run([str(program), *told], check=True, capture_output=True, text=True).stdout
            ratio = f"{float(theirs) / own:6.0f}" if theirs else ""
            print(f"{size:11,} {epsilon:7} {users:10,} {setup:9.3f} {own:9.4f} {theirs:>9} {ratio:>6}", flush=True)


if __name__ == "__main__":
    main()
