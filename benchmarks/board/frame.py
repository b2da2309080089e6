"""Cells, methods and outcomes, and the loop that runs what has no result yet.

A cell is one task on one data set at one budget. A method is a function of a cell that repeats the collection and
returns an `Outcome`. Results are kept in one file a task, a line for each cell and method, so that the
board is made in pieces: what is in a file is not run again unless it is asked for.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).resolve().parent / "results"
TASKS = ("numbers", "categories", "vectors", "shapes", "texts", "changing", "tensors", "regression", "learning")
PRECISION = 0.01  # relative standard error of an error at which repeating ends
MOST_REPEATS = 4000
MOST_SECONDS = 4.0  # of repeating, for what is slow; the interval tells how precise the error is then
AUTO = "auto"


@dataclass(frozen=True)
class Cell:
    """One task on one data set at one budget: ``load`` returns what the people hold, ``about`` what is public."""

    task: str
    data: str
    source: str
    epsilon: float
    load: Callable[[], Any]
    measure: str
    delta: float = 0.0
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """How results name the cell."""
        return f"{self.data}, ε = {self.epsilon:g}" + (f", δ = {self.delta:g}" if self.delta else "")

    def rng(self, repeat: int) -> np.random.Generator:
        """Return the generator of one repeat: the same for all methods, so that the same law gives the same reports."""
        return np.random.default_rng([zlib.crc32(f"{self.task} {self.key}".encode()), repeat])


@dataclass(frozen=True)
class Evidence:
    """What stands behind a guarantee: "certified", "audited", "accounted", "stated" or "refuted", and how."""

    verdict: str
    words: str
    shown: float | None = None


@dataclass(frozen=True)
class Outcome:
    """The error of a method in a cell, relative standard error beside it; bytes and CPU microseconds of one user.

    It is ``biased`` where more people would not average its error out: no interval around it covers the truth.
    """

    error: float
    spread: float
    repeats: int
    users: int
    bytes: float
    microseconds: float
    evidence: Evidence
    chosen: str = ""
    biased: bool = False


@dataclass(frozen=True)
class Method:
    """One method of a task: who made it, and the function that runs it."""

    task: str
    name: str
    by: str
    run: Callable[[Cell], Outcome]
    fits: Callable[[Cell], bool]


_METHODS: dict[tuple[str, str], Method] = {}


def method(
    task: str, name: str, by: str = "noisette", fits: Callable[[Cell], bool] = lambda cell: True
) -> Callable[[Callable[[Cell], Outcome]], Callable[[Cell], Outcome]]:
    """Enter a function as a method of a task."""

    def entered(run: Callable[[Cell], Outcome]) -> Callable[[Cell], Outcome]:
        if (task, name) in _METHODS:
            raise ValueError(f"{task} has a method {name!r} already.")
        _METHODS[task, name] = Method(task, name, by, run, fits)
        return run

    return entered


def repeated(
    cell: Cell, once: Callable[[np.random.Generator], Any], least: int = 8, longest: float = MOST_SECONDS
) -> tuple[float, float, int, float]:
    """Return the root mean square of the errors that ``once`` gives, its relative standard error, repeats, CPU seconds.

    ``once`` returns the errors of one collection, of one quantity or several. Repeating ends at a precision, so that a
    law that is run twice stops at the same place.
    """
    squares: list[float] = []
    began = time.process_time()
    while len(squares) < MOST_REPEATS:
        squares.append(float(np.mean(np.square(once(cell.rng(len(squares)))))))
        count = len(squares)
        looked = (count >= least and count & (count - 1) == 0) or count % 256 == 0
        if looked and (_spread(squares) < PRECISION or time.process_time() - began > longest):
            break
    spent = (time.process_time() - began) / len(squares)
    return float(np.sqrt(np.mean(squares))), _spread(squares), len(squares), spent


def _spread(squares: list[float]) -> float:
    mean = float(np.mean(squares))
    if mean == 0 or len(squares) < 2:
        return 0.0
    return float(np.std(squares, ddof=1)) / len(squares) ** 0.5 / mean / 2  # of the root


def tasks(only: str = "") -> dict[str, list[Cell]]:
    """Return the cells of every task, by the name of its file."""
    found = {}
    for name in TASKS:
        if not only or name == only:
            found[name] = import_module(f"benchmarks.board.{name}").cells()
    return found


def methods(task: str) -> list[Method]:
    """Return the methods of a task."""
    return [one for (own, _), one in _METHODS.items() if own == task]


def stored(name: str, folder: Path = RESULTS) -> dict[str, dict[str, Any]]:
    """Return the results of a task, by cell and method."""
    path = folder / f"{name}.json"
    rows = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    return {f"{row['cell']} | {row['method']}": row for row in rows}


def store(name: str, rows: dict[str, dict[str, Any]], folder: Path = RESULTS) -> None:
    """Write the results of a task, a line each."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(rows[key], sort_keys=True, ensure_ascii=False) for key in sorted(rows)]
    (folder / f"{name}.json").write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


def wanted(only: tuple[str, ...], small: bool) -> Iterator[tuple[str, Cell, Method]]:
    """Return what is to be run: each of ``only`` is a task, or task/part of a cell's or method's name."""
    for name in TASKS:
        own = [one.partition("/")[2] for one in only if one.partition("/")[0] == name]
        if only and not own:
            continue
        cells = import_module(f"benchmarks.board.{name}").cells()
        for cell in cells[:1] if small else cells:
            for one in methods(cell.task):
                if one.fits(cell) and (not own or any(part in f"{cell.key} | {one.name}" for part in own)):
                    yield name, cell, one


def row_of(cell: Cell, one: Method, outcome: Outcome) -> dict[str, Any]:
    """Return a result as it is kept."""
    numbers = {key: value for key, value in asdict(outcome).items() if key != "evidence"}
    rounded = {key: float(f"{value:.5g}") if isinstance(value, float) else value for key, value in numbers.items()}
    about = {"task": cell.task, "cell": cell.key, "data": cell.data, "source": cell.source, "measure": cell.measure}
    about |= {"epsilon": cell.epsilon, "delta": cell.delta, "method": one.name, "by": one.by}
    return about | rounded | {key: value for key, value in asdict(outcome.evidence).items() if value is not None}


def run(
    only: tuple[str, ...] = (),
    *,
    small: bool = False,
    again: bool = False,
    folder: Path = RESULTS,
    tell: Callable[[str], Any] = print,
) -> list[str]:
    """Run what is asked for and has no result, keep each result at once, and return what failed."""
    failed = []
    for name, cell, one in wanted(only, small):
        rows = stored(name, folder)
        if f"{cell.key} | {one.name}" in rows and not again:
            continue
        began = time.process_time()
        try:
            outcome = one.run(cell)
        except Unavailable as error:
            tell(f"{name}: {cell.key}: {one.name}: left out: {error}")
            continue
        except Exception as error:
            failed.append(f"{name}: {cell.key}: {one.name}: {type(error).__name__}: {error}")
            tell(failed[-1])
            continue
        rows = stored(name, folder) | {f"{cell.key} | {one.name}": row_of(cell, one, outcome)}
        store(name, rows, folder)
        spent = time.process_time() - began
        tell(f"{name}: {cell.key}: {one.name}: {outcome.error:.4g} ({outcome.evidence.verdict}, {spent:.1f} s)")
    return failed


class Unavailable(RuntimeError):
    """A library or data set that is not here: the others are run."""
