"""A private step of training beside Opacus and beside plain SGD: time, peak memory, curves, and what takes the time.

python benchmarks/sgd.py                          every part; keeps it in sgd.json and writes docs/benchmarks-sgd.md
python benchmarks/sgd.py --parts speed memory     some parts: memory, speed, curves, profile, geometry
python benchmarks/sgd.py --models cnn lenet       some models; keeps and writes nothing unless all are named
python benchmarks/sgd.py --small                  what the tests run: one model, few steps; keeps and writes nothing

Every job does the same: forward and backward pass of one batch, gradients of each example clipped to norm 1, noise, and
a step of SGD. Batches are drawn before the clock starts, by all alike. Opacus runs in each of its modes and counts with
its fastest, or with the one that takes least memory.
Each job has a process of its own, they take turns, and medians are compared (`sgd_turns.py` says why); a mode of Opacus
that takes twice as long as another in its first turns is left out. Memory is what a model, a batch and three steps add
at the peak to a process of their own that has trained on two examples before.
A new run of a part replaces what the page had of it. The page says of each part which version of the code was measured.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import subprocess
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from noisette import sgd
from noisette.mechanisms.geometric.spherical import from_spherical, to_spherical
from noisette.sgd import zoo
from sgd_memory import import_all, large_step, peak_of
from sgd_models import MODELS, Last, mlp
from sgd_turns import CLOCKS, FIRST, TURN, Contender, in_turns, medians

PAGE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks-sgd.md"
RECORD = Path(__file__).resolve().parent / "sgd.json"
PARTS = ("memory", "speed", "curves", "profile", "geometry")  # all but the last fork, before torch works here
SHOWN = ("speed", "memory", "curves", "profile", "geometry")
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
CLOCK_NAMES = {"wall": "by the clock", "cpu": "processor time"}
OPACUS = ("hooks", "functorch", "ew", "ghost")


@dataclass(frozen=True)
class Job:
    """A step, and what comes before it and is not timed."""

    step: Callable[[], Any]
    prepare: Callable[[], Any] = lambda: None
    run: Any = None  # of ours: what it is made of

    def __call__(self) -> None:
        self.prepare()
        self.step()


def job_of(name: str, way: str, batch: int | None = None) -> Job | None:
    """Build a model, a batch and a step: plain, ours, or a mode of Opacus."""
    build, draw, usual = MODELS[name]
    return step_of(build, draw, batch or usual, way)


def step_of(build: Callable[[], nn.Module], draw: Callable[[int], Tensor], batch: int, way: str) -> Job | None:
    """Do as `job_of` for any model and any batch."""
    torch.manual_seed(1)
    inputs, targets = draw(batch), torch.randint(0, 2, (batch,))
    if way == "plain":
        return plain(build(), inputs, targets)
    return ours(build(), inputs, targets) if way == "ours" else opacus(build, way, inputs, targets)


def memory(name: str, threads: int, repeats: int) -> dict[str, int]:
    """Return the bytes that a step adds at its peak, the median of some processes, in every way that trains it."""

    def build(way: str, batch: int | None = None) -> Job | None:
        torch.set_num_threads(threads)
        return job_of(name, way, batch)

    made = {}
    for way in ("plain", "ours", *OPACUS):
        peaks = [peak_of(partial(build, way), small=partial(build, way, 2)) for _ in range(repeats)]
        found = [peak[0] for peak in peaks if peak is not None]
        if found:
            made[way] = int(statistics.median(found))
    return made


def speed(build: Callable[[str], Job | None], repeats: int, threads: int, clock: str) -> dict[str, float]:
    """Return the seconds of a step in every way, in turn; modes of Opacus that are far behind are left out."""
    builds = {way: partial(build, way) for way in ("plain", "ours", *OPACUS)}
    return medians(in_turns(builds, repeats, threads=threads, clock=clock, rivals=OPACUS))


def curves(repeats: int, threads: int, clock: str) -> dict[str, dict[str, dict[str, float]]]:
    """Return the seconds of a step of the CNN by batch, and of an MLP by its width, in every way."""
    batches = {
        str(batch): speed(partial(job_of, "cnn", batch=batch), repeats, threads, clock) for batch in (16, 64, 256, 1024)
    }
    sizes = {}
    for width in (64, 256, 1024, 2048):
        build, draw, batch = partial(mlp, width), *MODELS["mlp"][1:]
        sizes[str(size_of(build))] = speed(partial(step_of, build, draw, batch), repeats, threads, clock)
    return {"batch": batches, "parameters": sizes}


def size_of(build: Callable[[], nn.Module]) -> int:
    """Return how many parameters a model has, without a number in them."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in build().parameters())


def in_turn(jobs: dict[str, Job], repeats: int, clock: str) -> dict[str, float]:
    """Run jobs in turn and return the median seconds of each."""
    now = CLOCKS[clock]
    times: dict[str, list[float]] = {key: [] for key in jobs}
    for job in jobs.values():
        job()
    for _ in range(repeats):
        for key, job in jobs.items():
            job.prepare()
            start = now()
            job.step()
            times[key].append(now() - start)
    return {key: statistics.median(values) for key, values in times.items()}


STAGES = ("forward", "backward", "norms", "sums", "noise", "optimiser", "rest")


class Staged:
    """A private step whose stages are timed; a turn of it returns the seconds of each, not of the whole."""

    def __init__(self, name: str, clock: str, spent: Any) -> None:
        self._job, self._now, self.spent = job_of(name, "ours"), CLOCKS[clock], spent
        job: Any = self._job
        private, model, inputs, targets = job.run
        self._step = partial(self._timed, private.optimizer, model, inputs, targets)
        self._wrap(private.optimizer.clip, "_factors", "norms")
        self._wrap(private.optimizer.perturb, "release", "noise")
        self._wrap(private.optimizer.inner, "step", "optimiser")
        sums = private.optimizer._some_sums
        private.optimizer._some_sums = lambda *given: self._each(sums(*given))

    def _each(self, groups: Any) -> Any:
        while True:
            norms, start = self.spent[STAGES.index("norms")], self._now()
            sums = next(groups, None)
            taken = self._now() - start - (self.spent[STAGES.index("norms")] - norms)
            self.spent[STAGES.index("sums")] += taken
            if sums is None:
                return
            yield sums

    def _wrap(self, holder: Any, name: str, stage: str) -> None:
        inner, place = getattr(holder, name), STAGES.index(stage)

        def timed(*given: Any, **named: Any) -> Any:
            start = self._now()
            made = inner(*given, **named)
            self.spent[place] += self._now() - start
            return made

        object.__setattr__(holder, name, timed)

    def _timed(self, optimizer: Any, model: nn.Module, inputs: Tensor, targets: Tensor) -> None:
        times = [self._now()]
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(inputs), targets)
        times.append(self._now())
        loss.backward()
        times.append(self._now())
        known = sum(self.spent[2:6])
        optimizer.step()
        self.spent[0] += times[1] - times[0]
        self.spent[1] += times[2] - times[1]
        self.spent[6] += self._now() - times[2] - (sum(self.spent[2:6]) - known)

    def step(self) -> None:
        """Make a step, and add up what its stages took."""
        self._step()

    def prepare(self) -> None:
        """Draw a batch."""
        assert self._job is not None
        self._job.prepare()

    def __call__(self) -> None:
        self.prepare()
        self.step()


def profile(name: str, repeats: int, threads: int, clock: str) -> dict[str, float]:
    """Return the seconds of the stages of a private step: the medians of the means of some turns."""
    spent: Any = multiprocessing.get_context("fork").RawArray("d", len(STAGES))
    contender = Contender(partial(Staged, name, clock, spent), threads, clock)
    contender.turn(FIRST)
    steps = max(round(TURN / contender.turn(1)), 1)
    turns = []
    for _ in range(repeats):
        before = list(spent)
        contender.turn(steps)  # and one more step, which is not timed there
        turns.append([(now - then) / (steps + 1) for then, now in zip(before, spent, strict=True)])
    contender.end()
    return {stage: statistics.median(row) for stage, row in zip(STAGES, zip(*turns, strict=True), strict=True)}


def profile_table(found: dict[str, dict[str, float]]) -> str:
    """Write the milliseconds of the stages as Markdown."""
    lines = [f"| stage, ms | {' | '.join(found)} |", "| :-- |" + " --: |" * len(found)]
    words = {
        "forward": "forward pass and loss",
        "backward": "backward pass, with gradients of positions and kernels formed in it",
        "norms": "norms and weights",
        "sums": "sums of clipped gradients",
        "noise": "exact noise",
        "optimiser": "torch's optimiser",
        "rest": "checks, and parts of layers",
    }
    for stage in STAGES:
        lines.append(f"| {words[stage]} | {' | '.join(f'{1e3 * times[stage]:.2f}' for times in found.values())} |")
    return "\n".join(lines)


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
    jobs = {
        "copy": Job(vector.copy),
        "to_spherical, numpy": Job(lambda: to_spherical(vector)),
        "from_spherical, numpy": Job(lambda: from_spherical(*made)),
        "to_spherical, torch": Job(lambda: to_spherical(tensor)),
        "from_spherical, torch": Job(lambda: from_spherical(*made_torch)),
        "to_spherical, 1,000 vectors": Job(lambda: to_spherical(rows)),
        "from_spherical, 1,000 vectors": Job(lambda: from_spherical(*made_rows)),
    }
    return in_turn(jobs, repeats, clock)


def plain(model: nn.Module, inputs: Tensor, targets: Tensor) -> Job:
    """Return a step of SGD."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()

    return Job(step, drawing(DataLoader(TensorDataset(inputs, targets), batch_size=len(inputs))))


def drawing(loader: Iterable[Any]) -> Callable[[], Any]:
    """Return a function that draws the next batch of a loader."""
    batches = chain.from_iterable(repeat(loader))
    return lambda: next(batches)


def ours(model: nn.Module, inputs: Tensor, targets: Tensor, perturb: str | sgd.Perturbation = "gaussian") -> Job:
    """Return a private step of ours; the loader, which draws every example, gives the batch that the step is on."""
    model = sgd.with_open_recurrence(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(TensorDataset(inputs, targets), batch_size=len(inputs))
    private = sgd.make_private(model, optimizer, loader, target=(1e3, 1e-5), epochs=10**6, perturb=perturb)

    def step() -> None:
        private.optimizer.zero_grad()
        functional.cross_entropy(model(inputs), targets).backward()
        private.optimizer.step()

    return Job(step, drawing(private.loader), (private, model, inputs, targets))


def opacus(build: Callable[[], nn.Module], mode: str, inputs: Tensor, targets: Tensor) -> Job | None:
    """Return a private step of Opacus in one of its modes, None where the mode does not take the model."""
    from opacus import PrivacyEngine
    from opacus.layers import DPLSTM

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
    return Job(step, drawing(loader))


def best_of(times: dict[str, float]) -> str:
    """Return Opacus's mode with the smallest number."""
    return min((way for way in times if way in OPACUS), key=lambda way: times[way])


def speed_table(found: dict[str, dict[str, float]]) -> str:
    """Write the milliseconds of a step as Markdown."""
    lines = [
        "| model | parameters | batch | plain SGD, ms | Noisette, ms | Opacus's best, ms | mode | Opacus / Noisette | "
        "Noisette / plain |",
        "| :-- | --: | --: | --: | --: | --: | :-- | --: | --: |",
    ]
    for name, times in found.items():
        build, _, batch = MODELS[name]
        mode = best_of(times)
        lines.append(
            f"| {name} | {size_of(build):,} | {batch} | {1e3 * times['plain']:.2f} | {1e3 * times['ours']:.2f} | "
            f"{1e3 * times[mode]:.2f} | {mode} | {times[mode] / times['ours']:.2f} | "
            f"{times['ours'] / times['plain']:.2f} |"
        )
    return "\n".join(lines)


def memory_table(found: dict[str, dict[str, int]]) -> str:
    """Write the memory of a step as Markdown, in MiB."""
    lines = ["| model | plain SGD | Noisette | Opacus's least | mode | Noisette / least |"]
    lines.append("| :-- | --: | --: | --: | :-- | --: |")
    for name, peaks in found.items():
        own, mode = peaks["ours"], best_of(dict(peaks))
        lines.append(
            f"| {name} | {peaks['plain'] / 2**20:,.1f} | {own / 2**20:,.1f} | {peaks[mode] / 2**20:,.1f} | {mode} | "
            f"{own / peaks[mode]:.2f} |"
        )
    return "\n".join(lines)


def curve_table(found: dict[str, dict[str, float]], what: str) -> str:
    """Write the seconds of a step by the size of a batch or of a model as Markdown, in ms."""
    lines = [f"| {what} | plain SGD, ms | Noisette, ms | Opacus's best, ms | mode | Opacus / Noisette |"]
    lines.append("| --: | --: | --: | --: | :-- | --: |")
    for size, times in found.items():
        mode = best_of(times)
        lines.append(
            f"| {int(size):,} | {1e3 * times['plain']:.2f} | {1e3 * times['ours']:.2f} | {1e3 * times[mode]:.2f} | "
            f"{mode} | {times[mode] / times['ours']:.2f} |"
        )
    return "\n".join(lines)


def draw_curves(found: dict[str, dict[str, dict[str, float]]], path: Path) -> None:
    """Draw the cost of a step by batch and by model size."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    for axes, (what, rows) in zip(figure.subplots(1, 2), found.items(), strict=True):
        sizes = [int(size) for size in rows]
        for label, pick in (
            ("plain SGD", lambda times: times["plain"]),
            ("Noisette", lambda times: times["ours"]),
            ("Opacus's best", lambda times: times[best_of(times)]),
        ):
            axes.plot(sizes, [1e3 * pick(times) for times in rows.values()], marker="o", label=label)
        axes.set(
            xscale="log",
            yscale="log",
            ylabel="ms a step",
            xlabel="batch" if what == "batch" else "parameters",
            title="CNN" if what == "batch" else "MLP, batch 256",
        )
        axes.legend()
    figure.savefig(path, dpi=110)


def times_table(times: dict[str, float], what: str, versus: str) -> str:
    """Write seconds as Markdown, beside the first of them."""
    first = next(iter(times.values()))
    lines = [f"| {what} | ms | {versus} |", "| :-- | --: | --: |"]
    lines += [f"| {name} | {1e3 * seconds:.2f} | {seconds / first:.2f} |" for name, seconds in times.items()]
    return "\n".join(lines)


def measured(part: str, names: list[str], options: argparse.Namespace) -> Any:
    """Measure one part."""
    repeats, clock, threads = options.repeats, options.clock, options.threads
    if part == "memory":
        peaks = {name: memory(name, threads, options.processes) for name in names}
        large = None if options.small else peak_of(partial(large_step, 16_384, 1024, 60_000), steps=1)
        return {"models": peaks, "large": large and large[1]}
    if part == "speed":
        return {name: speed(partial(job_of, name), repeats, threads, clock) for name in names}
    if part == "curves":
        return curves(max(repeats // 2, 3), threads, clock)
    if part == "profile":
        return {name: profile(name, repeats, threads, clock) for name in names}
    torch.set_num_threads(threads)
    return {"geometry": geometry(repeats, clock), "conversion": conversion(repeats, clock)}


def written(part: str, found: Any) -> dict[str, str]:
    """Return the tables of one part by their headings."""
    if part == "speed":
        return {"Time of a step": speed_table(found)}
    if part == "memory":
        large = found["large"]
        whole = (
            ""
            if large is None
            else (
                "\n\nOne step of the CNN on 16,384 expected images in pieces of 1,024 has its peak at "
                f"{large / 2**30:.2f} GiB resident, Python, PyTorch and 60,000 images included "
                "(`python benchmarks/sgd_memory.py`)."
            )
        )
        return {"Memory, MiB that a step adds at its peak": memory_table(found["models"]) + whole}
    if part == "curves":
        return {
            "A step of the CNN by the size of its batch": curve_table(found["batch"], "batch"),
            "A step of an MLP by the size of the model": curve_table(found["parameters"], "parameters"),
        }
    if part == "profile":
        return {"Where the time of a private step goes": profile_table(found)}
    return {
        "GeoDP on the CNN, batch 256": times_table(found["geometry"], "noise", "over plain noise"),
        "Spherical coordinates of 1,000,000 numbers": times_table(found["conversion"], "job", "over a copy"),
    }


def page(record: dict[str, Any]) -> str:
    """Write the page of the documentation: the words that are there, and the tables of the record between marks."""
    text = []
    for part in SHOWN:
        if part not in record:
            continue
        kept = record[part]
        tables = [f"## {heading}\n\n{table}" for heading, table in written(part, kept["found"]).items()]
        tables[0] = tables[0].replace("\n\n", f"\n\n*{kept['how']}*\n\n", 1)
        text += tables
        if part == "curves":
            text.append("![The cost of a step by batch and by model size](images/sgd-step.png)")
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return before + BEGIN + "\n\n" + "\n\n".join(text) + "\n\n" + END + rest.partition(END)[2]


def version() -> str:
    """Return the commit that is measured, and whether files differ from it."""
    said = subprocess.run(
        ["git", "-C", str(PAGE.parent), "describe", "--always", "--dirty", "--exclude=*"],
        check=False,
        capture_output=True,
        text=True,
    )
    return said.stdout.strip() or "unknown"


def main() -> None:
    """Measure and print, and write the page in the full setting."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="one model, few steps; keeps and writes nothing")
    parser.add_argument("--parts", nargs="*", choices=PARTS, help="only these")
    parser.add_argument("--models", nargs="*", choices=MODELS, help="only these; writes nothing unless all")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=41)
    parser.add_argument("--processes", type=int, default=3, help="of which the median peak of memory is taken")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu, with one thread, for a machine in use")
    parser.add_argument("--note", default="", help="what else the machine did, for the page")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.small:
        options.repeats, options.processes = 3, 1
    names = options.models or (["logistic"] if options.small else list(MODELS))
    parts = [part for part in PARTS if part in (options.parts or PARTS)]
    if options.small and not options.parts:
        parts.remove("curves")
    import_all()
    import opacus  # noqa: F401

    record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    commit = version()
    for part in parts:
        load = os.getloadavg()[0]
        found = measured(part, names, options)
        print("\n\n".join(f"{heading}\n\n{text}" for heading, text in written(part, found).items()), flush=True)
        how = f"Version {commit}; {CLOCK_NAMES[options.clock]}, {options.threads} threads"
        how += f", medians of {options.repeats} turns, load before the first of them {load:.1f}."
        if part == "memory":
            how = f"Version {commit}; {options.threads} threads, medians of {options.processes} processes."
        record[part] = {"how": f"{how} {options.note}".strip(), "found": found}
        if not options.small and set(names) == set(MODELS):
            RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
            PAGE.write_text(page(record), encoding="utf-8")
            if part == "curves":
                draw_curves(found, PAGE.parent / "images" / "sgd-step.png")


if __name__ == "__main__":
    main()
