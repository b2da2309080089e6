"""A private step of training beside Opacus and beside plain SGD: examples a second and peak memory, in one run.

python benchmarks/sgd.py             five models; writes the tables into docs/benchmarks-sgd.md
python benchmarks/sgd.py --before PATH  with a table of steps beside those of another checkout, see sgd_before.py
python benchmarks/sgd.py --small     what the tests run: one model, few steps, prints the tables

Every job does the same: forward and backward pass of one batch, gradients of each example clipped to norm 1, noise, and
a step of SGD. Opacus runs in each of its modes and counts with its fastest, or with the one that takes least memory.
Jobs take turns, medians are compared. Memory is what a model, a batch and three steps add at the peak to a process of
their own that has trained on two examples before.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from opacus import PrivacyEngine
from opacus.layers import DPLSTM
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from noisette import sgd
from noisette.mechanisms.geometric.spherical import from_spherical, to_spherical
from noisette.sgd import zoo
from sgd_before import CLOCKS, compare
from sgd_memory import large_step, peak_of
from sgd_models import MODELS, Last

PAGE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks-sgd.md"
OPACUS = ("hooks", "functorch", "ew", "ghost")


@dataclass(frozen=True)
class Row:
    """Examples a second of each way to train one model."""

    model: str
    parameters: int
    plain: float
    ours: float
    opacus: dict[str, float]
    memory: dict[str, int]  # bytes that a step adds, by way

    @property
    def best(self) -> str:
        """Opacus's fastest mode."""
        return max(self.opacus, key=lambda mode: self.opacus[mode])

    @property
    def ratio(self) -> float:
        """Ours over Opacus's best."""
        return self.ours / self.opacus[self.best]

    @property
    def least(self) -> str:
        """Opacus's mode that takes least memory."""
        return min(self.opacus, key=lambda mode: self.memory[mode])


def job_of(name: str, way: str, batch: int | None = None) -> Callable[[], None] | None:
    """Build a model, a batch and a step: plain, ours, or a mode of Opacus."""
    build, draw, usual = MODELS[name]
    batch = batch or usual
    torch.manual_seed(1)
    inputs, targets = draw(batch), torch.randint(0, 2, (batch,))
    if way == "plain":
        return plain(build(), inputs, targets)
    return ours(build(), inputs, targets) if way == "ours" else opacus(build, way, inputs, targets)


def memory(name: str, threads: int, repeats: int) -> dict[str, int]:
    """Return the bytes that a step adds at its peak, the median of some processes, in every way that trains it."""

    def build(way: str, batch: int | None = None) -> Callable[[], None] | None:
        torch.set_num_threads(threads)
        return job_of(name, way, batch)

    made = {}
    for way in ("plain", "ours", *OPACUS):
        peaks = [peak_of(partial(build, way), small=partial(build, way, 2)) for _ in range(repeats)]
        found = [peak[0] for peak in peaks if peak is not None]
        if found:
            made[way] = int(statistics.median(found))
    return made


def measure(name: str, repeats: int, clock: str, memory: dict[str, int]) -> Row:
    """Time one model in every way, in turn."""
    build, _, batch = MODELS[name]
    made = {way: job_of(name, way) for way in memory}
    times = in_turn({way: job for way, job in made.items() if job is not None}, repeats, clock)
    speed = {way: batch / seconds for way, seconds in times.items()}
    size = sum(parameter.numel() for parameter in build().parameters())
    return Row(name, size, speed.pop("plain"), speed.pop("ours"), speed, memory)


def in_turn(jobs: dict[str, Callable[[], None]], repeats: int, clock: str) -> dict[str, float]:
    """Run jobs in turn and return the median seconds of each."""
    now = CLOCKS[clock]
    times: dict[str, list[float]] = {key: [] for key in jobs}
    for job in jobs.values():
        job()
    for _ in range(repeats):
        for key, job in jobs.items():
            start = now()
            job()
            times[key].append(now() - start)
    return {key: statistics.median(values) for key, values in times.items()}


def geometry(repeats: int, clock: str) -> dict[str, float]:
    """Return the seconds of a step of the CNN with plain noise and with GeoDP's, in its sound forms."""
    _, draw, batch = MODELS["cnn"]
    torch.manual_seed(1)
    inputs, targets = draw(batch), torch.randint(0, 2, (batch,))
    kinds: dict[str, str | sgd.Perturbation] = {
        "gaussian": "gaussian",
        "geodp, average=gradient": sgd.Geo(average="gradient"),
        "geodp, average=angles": sgd.Geo(average="angles"),
        "geodp, average=angles, beta=1": sgd.Geo(1.0, "angles"),  # no angle can be passed over
    }
    return in_turn({name: ours(zoo.cnn(), inputs, targets, kind) for name, kind in kinds.items()}, repeats, clock)


def conversion(repeats: int, clock: str) -> dict[str, float]:
    """Return the seconds of a copy of a million numbers and of their spherical coordinates, there and back."""
    vector = np.random.default_rng(1).normal(size=10**6)
    tensor = torch.from_numpy(vector.copy())
    made, made_torch = to_spherical(vector), to_spherical(tensor)
    rows = vector.reshape(1000, 1000)
    made_rows = to_spherical(rows)
    jobs: dict[str, Callable[[], Any]] = {
        "copy": vector.copy,
        "to_spherical, numpy": lambda: to_spherical(vector),
        "from_spherical, numpy": lambda: from_spherical(*made),
        "to_spherical, torch": lambda: to_spherical(tensor),
        "from_spherical, torch": lambda: from_spherical(*made_torch),
        "to_spherical, 1,000 vectors": lambda: to_spherical(rows),
        "from_spherical, 1,000 vectors": lambda: from_spherical(*made_rows),
    }
    return in_turn(jobs, repeats, clock)


def plain(model: nn.Module, inputs: Tensor, targets: Tensor) -> Callable[[], None]:
    """Return a step of SGD."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()

    return step


def ours(
    model: nn.Module, inputs: Tensor, targets: Tensor, perturb: str | sgd.Perturbation = "gaussian"
) -> Callable[[], None]:
    """Return a private step of ours."""
    model = sgd.with_open_recurrence(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(TensorDataset(inputs, targets), batch_size=len(inputs))
    private = sgd.make_private(model, optimizer, loader, target=(1e3, 1e-5), epochs=10**6, perturb=perturb)

    def step() -> None:
        private.optimizer.zero_grad()
        functional.cross_entropy(model(inputs), targets).backward()
        private.optimizer.step()

    return step


def opacus(build: Callable[[], nn.Module], mode: str, inputs: Tensor, targets: Tensor) -> Callable[[], None] | None:
    """Return a private step of Opacus in one of its modes, None where the mode does not take the model."""
    model = build()
    if isinstance(model, Last):
        model = Last(DPLSTM(32, 32, batch_first=True, bidirectional=True))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(TensorDataset(inputs, targets), batch_size=len(inputs))
    options: dict[str, Any] = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "poisson_sampling": False}
    if mode == "ghost":
        options["criterion"] = nn.CrossEntropyLoss()
    try:
        made = PrivacyEngine().make_private(
            module=model, optimizer=optimizer, data_loader=loader, grad_sample_mode=mode, **options
        )
        private, private_optimizer = made[0], made[1]
        criterion = made[2] if mode == "ghost" else nn.CrossEntropyLoss()

        def step() -> None:
            private_optimizer.zero_grad()
            criterion(private(inputs), targets).backward()
            private_optimizer.step()

        step()
    except Exception as error:  # a mode that cannot train this model is no competitor
        print(f"opacus {mode} does not train this model: {type(error).__name__}: {str(error)[:90]}")
        return None
    return step


def table(rows: list[Row]) -> str:
    """Write the rows as Markdown."""
    lines = [
        "| model | parameters | plain SGD | Noisette | Opacus's best | mode | Noisette / Opacus | plain / Noisette |"
    ]
    lines.append("| :-- | --: | --: | --: | --: | :-- | --: | --: |")
    for row in rows:
        lines.append(
            f"| {row.model} | {row.parameters:,} | {row.plain:,.0f} | {row.ours:,.0f} | {row.opacus[row.best]:,.0f} | "
            f"{row.best} | {row.ratio:.2f} | {row.plain / row.ours:.2f} |"
        )
    return "\n".join(lines)


def memory_table(rows: list[Row]) -> str:
    """Write the memory of a step as Markdown, in MiB."""
    lines = ["| model | plain SGD | Noisette | Opacus's least | mode | Opacus's fastest | mode | Noisette / least |"]
    lines.append("| :-- | --: | --: | --: | :-- | --: | :-- | --: |")
    for row in rows:
        own, least, best = row.memory["ours"], row.memory[row.least], row.memory[row.best]
        lines.append(
            f"| {row.model} | {row.memory['plain'] / 2**20:,.1f} | {own / 2**20:,.1f} | "
            f"{least / 2**20:,.1f} | {row.least} | {best / 2**20:,.1f} | {row.best} | {own / least:.2f} |"
        )
    return "\n".join(lines)


def times_table(times: dict[str, float], what: str, versus: str) -> str:
    """Write seconds as Markdown, beside the first of them."""
    first = next(iter(times.values()))
    lines = [f"| {what} | ms | {versus} |", "| :-- | --: | --: |"]
    lines += [f"| {name} | {1e3 * seconds:.2f} | {seconds / first:.2f} |" for name, seconds in times.items()]
    return "\n".join(lines)


def tables(
    rows: list[Row], repeats: int, clock: str, large: tuple[int, int] | None, before: Path | None, threads: int
) -> dict[str, str]:
    """Return every table by its heading, measuring what is not in the rows."""
    whole = (
        ""
        if large is None
        else (
            "\n\nOne step of the CNN on 16,384 expected images in pieces of 1,024 has its peak at "
            f"{large[1] / 2**30:.2f} GiB\nresident, Python, PyTorch and 60,000 images included "
            "(`python benchmarks/sgd_memory.py`)."
        )
    )
    made = {
        "Examples a second": table(rows),
        "Memory, MiB that a step adds at its peak": memory_table(rows) + whole,
        "GeoDP on the CNN, batch 256": times_table(geometry(repeats, clock), "noise", "over plain noise"),
        "Spherical coordinates of 1,000,000 numbers": times_table(conversion(repeats, clock), "job", "over a copy"),
    }
    if before is not None:
        commit = subprocess.run(
            ["git", "-C", str(before), "rev-parse", "--short", "HEAD"], check=True, capture_output=True, text=True
        ).stdout.strip()
        made["A private step beside an earlier commit"] = (
            f"There: a checkout of {commit}. Here: this version. The transformer has two blocks of width 64 and sees\n"
            "64 texts of 40 words. By `python benchmarks/sgd_before.py PATH`, with the path of the other checkout and\n"
            "the options above.\n\n" + compare(before, threads=threads, repeats=repeats, clock=clock)
        )
    return made


def page(made: dict[str, str], options: argparse.Namespace) -> str:
    """Write the page of the documentation."""
    return (
        "# Speed and memory of private training\n\n"
        "One training step: forward and backward pass, gradients of each example clipped to norm 1, noise, and a\n"
        "step of SGD. Opacus 1.6 counts with the fastest of its modes, or with the one that takes least memory.\n"
        f"Medians of {options.repeats} steps in turn, {options.clock} time, by `python benchmarks/sgd.py "
        f"--threads {options.threads} --clock\n{options.clock} --repeats {options.repeats}`.\n\n"
        + "\n\n".join(f"## {heading}\n\n{text}" for heading, text in made.items())
        + "\n"
    )


def main() -> None:
    """Measure and print, and write the page in the full setting."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="one model, few steps; writes nothing")
    parser.add_argument("--models", nargs="*", choices=MODELS, help="only these; writes nothing")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=41)
    parser.add_argument("--before", type=Path, help="path of another checkout, for a table of steps beside its own")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu, with one thread, for a machine in use")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    names = options.models or (["logistic"] if options.small else list(MODELS))
    repeats = 3 if options.small else options.repeats
    sgd.Budget.for_target(3.0, 1e-5, steps=10, sampling_prob=0.5)  # imports what the first run would
    peaks = {
        name: memory(name, options.threads, 1 if options.small else 3) for name in names
    }  # forks, so before torch works here
    large = peak_of(partial(large_step, 16_384, 1024, 60_000), steps=1) if not options.small else None
    torch.set_num_threads(options.threads)
    rows = [measure(name, repeats, options.clock, peaks[name]) for name in names]
    made = tables(rows, repeats, options.clock, large, options.before, options.threads)
    print("\n\n".join(f"{heading}\n\n{text}" for heading, text in made.items()))
    if not (options.small or options.models):
        PAGE.write_text(page(made, options), encoding="utf-8")


if __name__ == "__main__":
    main()
