"""Noise for tensors: time beside numpy's and torch's normal variables and beside dense products along the modes.

python benchmarks/tensor.py             tensors of three sizes of Yang et al. 2021, in some minutes; writes the table
python benchmarks/tensor.py --small     what the tests run: prints the table, writes nothing

Every job runs in one thread, jobs take turns, and medians of the time the processor spent are compared. numpy's normal
variables come from the same cryptographic generator as ours. "Products" multiplies the tensor by a dense matrix along
each mode, by the quicker of tensordot and matmul. With a full covariance along every mode, noise is drawn and then
multiplied along each; a release also whitens its input, which is as many products again. Memory is measured in one
process for each tensor of 1e8 entries: the largest resident size after a release in place, less that before it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

import noisette as nz
from noisette import _random
from noisette.mechanisms.tensor.gaussian._normal import add_noise
from noisette.mechanisms.tensor.gaussian.modes import dense, multiply

PAGE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks-tensor.md"
FULL = ((256, 16, 5, 5), (3136, 512), (32, 512, 64, 64))
SMALL = ((32, 16, 5, 5), (196, 64))


@dataclass(frozen=True)
class Row:
    """Seconds of each job for one tensor."""

    shape: tuple[int, ...]
    seconds: dict[str, float]

    def ratio(self, job: str, against: str) -> float:
        """Return how many times as long one job takes as another."""
        return self.seconds[job] / self.seconds[against]


def covariance(size: int, seed: int) -> np.ndarray:
    """Return a covariance that is far from diagonal."""
    root = np.random.default_rng(seed).normal(size=(size, size))
    return root @ root.T / size + 0.5 * np.eye(size)


def by_matmul(x: np.ndarray, matrices: list[np.ndarray]) -> np.ndarray:
    """Multiply along each mode, as a stack of matrices."""
    for mode, matrix in enumerate(matrices):
        view = x.reshape(int(np.prod(x.shape[:mode])), x.shape[mode], -1)
        x = (view[..., 0] @ matrix.T if view.shape[2] == 1 else np.matmul(matrix, view)).reshape(x.shape)
    return x


def coloured(out: np.ndarray, mechanism: nz.TensorGaussian, rng: np.random.Generator) -> None:
    """Draw the noise of a mechanism."""
    out.fill(0.0)
    add_noise(out.reshape(-1), rng, sigma=mechanism.sigma)
    multiply(out, [mode.root for mode in mechanism.modes])


def measure(shape: tuple[int, ...], repeats: int) -> Row:
    """Time all jobs for one shape."""
    size = int(np.prod(shape))
    rng = _random.generator(None)
    domain = nz.TensorBall(shape, 1.0)
    covariances = tuple(covariance(n, k) for k, n in enumerate(shape))
    plain, full = nz.TensorGaussian(domain, 1.0), nz.TensorGaussian(domain, 1.0, covariances=covariances)
    dense_roots = [np.ascontiguousarray(mode.root) for mode in full.modes]
    x, out = np.zeros(shape), np.empty(shape)
    noise = np.random.default_rng(0).normal(size=shape)
    subspace = np.random.default_rng(1).normal(size=(10, shape[0]))

    def mvg() -> Any:
        spaces = (subspace, *(None,) * (len(shape) - 1))
        return nz.TensorGaussian(domain, 1.0, subspaces=spaces, calibration="mvg").privatize(x, out=out, rng=rng)

    jobs: dict[str, Callable[[], Any]] = {
        "ours, identity": lambda: plain.privatize(x, out=out, rng=rng),
        "noise, all modes": lambda: coloured(out, full, rng),
        "ours, all modes": lambda: full.privatize(x, out=out, rng=rng),
        "mvg with set-up": mvg,
        "numpy normal": lambda: rng.standard_normal(size),
        "torch normal, float64": lambda: torch.randn(size, dtype=torch.float64),
        "torch normal, float32": lambda: torch.randn(size),
        "tensordot": lambda: dense(noise, dense_roots),
        "matmul": lambda: by_matmul(noise, dense_roots),
    }
    seconds = interleaved(jobs, repeats)
    seconds["products"] = min(seconds.pop("tensordot"), seconds.pop("matmul"))
    return Row(shape, seconds)


def interleaved(jobs: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Return the median processor time of each job, run in turn."""
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for repeat in range(repeats + 1):
        for name, job in jobs.items():
            start = time.process_time()
            job()
            if repeat:  # the first one warms up
                times[name].append(time.process_time() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def table(rows: list[Row]) -> str:
    """Return the ratios as markdown."""
    lines = [
        "| tensor | identity: ns an entry | to numpy's normal | to torch's, float64 | to torch's, float32 "
        "| all modes: noise to the products | release to the products | release to its own products | products, s "
        "| mvg with set-up, s |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    own, normals = "ours, identity", ("numpy normal", "torch normal, float64", "torch normal, float32")
    for row in rows:
        cells = [
            "x".join(map(str, row.shape)),
            f"{row.seconds[own] / np.prod(row.shape) * 1e9:.1f}",
            *(f"{row.ratio(own, other):.2f}" for other in normals),
            *(f"{row.ratio(job, 'products'):.2f}" for job in ("noise, all modes", "ours, all modes")),
            f"{row.ratio('ours, all modes', 'products') / 2:.2f}",
            *(f"{row.seconds[job]:.3g}" for job in ("products", "mvg with set-up")),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


MEMORY = {
    "float64, identity": ((10_000, 10_000), np.float64, ()),
    "float64, all modes": ((1_000, 400, 250), np.float64, (0, 1, 2)),
    "float32, identity": ((10_000, 10_000), np.float32, ()),
    "float32, first mode": ((1_000, 100_000), np.float32, (0,)),
    "float32, last mode": ((100_000, 1_000), np.float32, (1,)),
    "float32, middle mode": ((1_000, 100, 1_000), np.float32, (1,)),
    "float32, all modes": ((1_000, 400, 250), np.float32, (0, 1, 2)),
}


def resident() -> float:
    """Return the largest resident size of this program so far, in megabytes; getrusage adds that of who started it."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def memory_of(name: str) -> tuple[float, float, float]:
    """Return the megabytes of a tensor, and the largest resident size before and after it is released in place."""
    shape, kind, full = MEMORY[name]
    covariances = tuple(covariance(size, mode) if mode in full else None for mode, size in enumerate(shape))
    mechanism = nz.TensorGaussian(nz.TensorBall(shape, 1.0), 1.0, covariances=covariances if full else None)
    small = nz.TensorGaussian(nz.TensorBall((4, 4), 1.0), 1.0, covariances=(covariance(4, 0), None))
    small.privatize(np.zeros((4, 4)))  # compiles and imports what is used
    x = np.ones(shape, dtype=kind)
    before = resident()
    mechanism.privatize(x, clip=True, out=x)
    return x.nbytes / 2**20, before, resident()


def memory_table() -> str:
    """Measure each tensor of 1e8 entries in a process of its own."""
    lines = ["| tensor of 1e8 entries | shape | input, MB | peak before, MB | peak after, MB | extra, MB |"]
    lines.append("| --- | --- | ---: | ---: | ---: | ---: |")
    for name, (shape, _, _) in MEMORY.items():
        told = subprocess.run([sys.executable, __file__, "--memory", name], capture_output=True, text=True, check=True)
        size, before, after = map(float, told.stdout.split())
        cells = "x".join(map(str, shape)), *(f"{value:,.0f}" for value in (size, before, after, after - before))
        lines.append(f"| {name} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


TEXT = """
Ours is `TensorGaussian.privatize` into a given array: it checks the range, rounds to a lattice, adds exact noise from a
cryptographic generator and puts the report on a public lattice. numpy's normal variables come from the same generator.
torch's are quicker as float32, but not safe as noise: their last bits tell the input.

With a full covariance along every mode, "noise" is drawing it and colouring it: sampling. A release whitens its input
as well, which is as many products again, so its own products are two sets; beside those it is
the noise, the checks and the lattice that cost. Both multiply by triangles, which take half the
operations of the dense products that they are compared with.

The last column builds the published `mvg` mechanism from a utility subspace of ten directions of the first mode and
uses it once: singular vectors, the covariance, its Cholesky factor and its inverse, the noise. A mechanism pays for its
set-up once, not for each tensor.
"""


MEMORY_TEXT = """
## Memory

Released in place, in a process of its own: the largest resident size before and after. Modes that are named have a full
covariance. What is too long is clipped. A float32 tensor is cut along its first or last modes of identity covariance;
with a covariance along both the first and the last mode, slices along the longest mode are worked on some at a time.
"""


def page(rows: list[Row], memory: str) -> str:
    """Return the page of the documentation."""
    head = "`python benchmarks/tensor.py` writes this page. One thread; medians of processor time, jobs in turn."
    return f"# Noise for tensors: speed and memory\n\n{head}\n\n{table(rows)}\n{TEXT}{MEMORY_TEXT}\n{memory}\n"


def main() -> None:
    """Measure, print, and write the page unless small."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="small tensors; print only")
    parser.add_argument("--memory", choices=tuple(MEMORY), help="print a tensor's megabytes and the peaks; no table")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.memory:
        print(*memory_of(options.memory))
        return
    shapes = SMALL if options.small else FULL
    rows = []
    for shape in shapes:
        print(f"measuring {shape} ...", flush=True)
        rows.append(measure(shape, 2 if np.prod(shape) > 1e7 else 5))
        print(table(rows[-1:]), flush=True)
    if not options.small:
        PAGE.write_text(page(rows, memory_table()), encoding="utf-8")


if __name__ == "__main__":
    main()
