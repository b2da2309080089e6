"""What every experiment shares: studies with a claim, a table and charts; written as README, JSON and PNG.

A paper's folder lists its studies, functions of ``full`` and of a function to call with the share that is done:

    STUDIES = (fig_4_3, table_4_2)

    def fig_4_3(full: bool, advance: Advance) -> Study: ...

A study is called by its function's name, here fig-4-3 and table-4-2. The folder's docstring opens the README. A study
that is run again replaces itself in the folder's results and leaves the others as they are.

A study that takes long computes its parts through `remember`: a run that was interrupted and goes on has them already.
Parts that are alike, such as seeds, come from `several`, which stops when the time given is over. A study that is
smaller than the paper's says of what it has how much: ``Study.fraction``.
"""

from __future__ import annotations

import json
import math
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Any, TextIO

from experiments import made
from noisette._files import posix_module, whole_file
from noisette._terminal import number, to_json

Advance = Callable[[float], None]
Cell = str | float | int | None
_COLOURS = (
    "#5b3a1e", "#c0563f", "#3f7d58", "#4b6a9b", "#b9824a", "#8d5b8f", "#3d8d91", "#7a7a3a", "#1c1c1c", "#d487a9",
    "#77b3e0", "#9c9c9c",
)  # fmt: skip
_MARKS = "os^DvPX*h<>d"
UNFINISHED = "unfinished"  # folder beside the results where an interrupted study leaves its parts
TOO_SMALL = "Too small to judge: this setting only shows that the study runs."


@dataclass(frozen=True)
class Series:
    """A line of a chart; ``low`` and ``high`` are the ends of its intervals, ``predicted`` draws it dashed."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    predicted: bool = False


@dataclass(frozen=True)
class Chart:
    """A figure: lines over labelled axes, with their units."""

    name: str
    title: str
    x: str
    y: str
    series: Sequence[Series]
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True)
class Study:
    """One figure or table of a paper: what it claims, what is obtained, and what that means."""

    title: str
    claim: str
    finding: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    setting: Mapping[str, Any] = field(default_factory=dict)
    charts: Sequence[Chart] = ()
    fraction: str = ""  # how much of the paper's size this is, e.g. "3 of 10 seeds"; nothing said: all of it
    sizeless: bool = False  # computed, not run: there is one setting


class Parts:
    """What a study has computed so far: a file of lines [key, value, seconds] that grows by one with every part.

    Its first line is the digest of the study's code. Parts of another code, or of one that cannot be read, are not of
    this study: they are kept beside, in a file that ends in ``.old``. Lines that an interruption or a full disk has cut
    off are computed again, the others stay.
    """

    def __init__(self, path: Path, code: str) -> None:
        self._path, self._code = path, code
        self._known: dict[str, Any] = {}
        self.complete = True  # no part was left out for want of time
        self.spent = 0.0  # seconds that an earlier run has given to the parts that are there
        if not path.exists():
            return
        *whole, rest = path.read_bytes().split(b"\n")
        if not whole or _read(whole[0]) != code:
            put_aside(path)
            return
        good = [line for line in whole[1:] if isinstance(part := _read(line), list) and len(part) == 3]
        if rest or len(good) < len(whole) - 1:
            with whole_file(path) as file:  # a kill meanwhile leaves the parts as they were
                file.write(b"".join(line + b"\n" for line in (whole[0], *good)))
        for key, value, seconds in map(_read, good):
            self._known[key] = value
            self.spent += seconds

    def remember(self, key: str, compute: Callable[[], Any]) -> Any:
        """Return the part of that key, computed now if the file has it not."""
        if key not in self._known:
            started = time.perf_counter()
            value = compute()
            line = json.dumps([key, value, round(time.perf_counter() - started, 3)], default=lambda own: own.tolist())
            head = "" if self._path.exists() else f"{json.dumps(self._code)}\n"
            with _appending(self._path) as file:
                file.write(f"{head}{line}\n")
            self._known[key] = json.loads(line)[1]  # the same types as after an interruption
        return self._known[key]

    def __contains__(self, key: str) -> bool:
        return key in self._known


def _read(line: bytes) -> Any:
    """Return what a line of JSON says, or none if it is damaged."""
    try:
        return json.loads(line)
    except ValueError:
        return None


def _appending(path: Path) -> TextIO:
    """Open a file to append to, in a folder that a run beside this one may just take away as it is empty."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            return path.open("a", encoding="utf-8")


def put_aside(path: Path) -> None:
    """Give a file that is not read any more a free name that ends in ``.old``: another one may be there already."""
    names = (path.with_suffix(f".{number}.old" if number else ".old") for number in count())
    path.rename(next(name for name in names if not name.exists()))


_PARTS: ContextVar[Parts | None] = ContextVar("parts", default=None)
_END: ContextVar[float] = ContextVar("end", default=math.inf)  # of the time given to the run


def remember(key: Any, compute: Callable[[], Any]) -> Any:
    """Return ``compute()``, or what an interrupted run of the study has kept of it; ``key`` names the part.

    What is computed is JSON: numbers, texts, lists.
    """
    parts = _PARTS.get()
    return compute() if parts is None else parts.remember(str(key), compute)


def several(keys: Sequence[Any], compute: Callable[[Any], Any], *, least: int = 1) -> list[Any]:
    """Return ``compute(key)`` of the keys in their order, as many as the run has time for and the ``least`` number.

    Parts that an interrupted run has kept cost no time.
    """
    parts, found = _PARTS.get(), []
    for key in keys:
        kept = parts is not None and str(key) in parts
        if parts is not None and len(found) >= least and not kept and time.monotonic() > _END.get():
            parts.complete = False
            break
        found.append(remember(key, partial(compute, key)))
    return found


@contextmanager
def _keeping(path: Path, resume: bool, code: str) -> Iterator[Parts]:
    """Let `remember` keep its parts in ``path`` until the study is done; parts that are not taken up are put aside."""
    if not resume and path.exists():  # hours of work, perhaps: whoever forgot to ask for them finds them beside
        put_aside(path)
    parts = Parts(path, code)
    token = _PARTS.set(parts)
    try:
        yield parts
    finally:
        _PARTS.reset(token)
    if not parts.complete:
        return
    path.unlink(missing_ok=True)
    if path.parent.exists() and not any(path.parent.iterdir()):
        with suppress(OSError):  # a run beside this one has begun a part
            path.parent.rmdir()


def studies(paper: Any) -> dict[str, Callable[[bool, Advance], Study]]:
    """Return the studies of a paper by their names, in their order."""
    return {study.__name__.replace("_", "-"): study for study in paper.STUDIES}


def run(
    paper: Any,
    names: Sequence[str],
    full: bool,
    folder: Path,
    advance: Advance,
    *,
    resume: bool = False,
    minutes: float = math.inf,
) -> dict[str, Any]:
    """Run studies of a paper, write what they give into ``folder`` and return the record of all that is there.

    With ``resume`` what is there of the same size and setting is not computed again: finished studies stay as they are,
    and one that was interrupted goes on with the parts that it has. A study whose code was changed since begins anew
    (`made.digest`), and so does one of which that is not known; the record of such a study says under ``older`` what
    its code was. After so many ``minutes`` no further part of `several`
    begins: a study shows what it has, says what fraction that is, and goes on with ``resume``.
    """
    known = studies(paper)
    _END.set(time.monotonic() + 60 * minutes)
    kept = _kept(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for place, name in enumerate(names):
        begun = folder / UNFINISHED / f"{name}{'-full' if full else ''}.jsonl"
        code = made.digest(known[name])
        finished = name in kept and kept[name]["full"] == full and not kept[name].get("partial")
        finished = finished and kept[name].get("code") == code
        if resume and finished and not begun.exists():  # parts that are there belong to a newer run
            continue
        started = time.perf_counter()
        with _keeping(begun, resume, code) as parts:
            result = known[name](full, lambda share, place=place: advance((place + min(share, 1.0)) / len(names)))
            about: dict[str, Any] = {"name": name, "full": full, "partial": not parts.complete, "code": code}
            about |= {"seconds": round(parts.spent + time.perf_counter() - started, 1)}
            own = json.loads(to_json(about | asdict(result)))
            for chart in own["charts"]:
                draw(chart, folder / f"{chart['name']}.png")
            with _alone(folder):  # beside another run of the paper's studies
                kept = _kept(folder) | {name: own}
                _write(folder, paper, kept)
    advance(1.0)
    return _record(paper, kept)


def _kept(folder: Path) -> dict[str, Any]:
    """Return the studies whose results are in a folder, by their names; a damaged file is put aside."""
    path = folder / "results.json"
    if not path.exists():
        return {}
    record = _read(path.read_bytes())
    if record is None:
        put_aside(path)
        warnings.warn(f"{path} is damaged; it is {path.with_suffix('.old').name} now.", stacklevel=2)
        return {}
    return {study["name"]: study for study in record["studies"]}


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other runs from writing results into a folder; where there are no locks, nothing keeps them."""
    try:
        locks = posix_module("fcntl", "A lock")
    except ImportError:
        yield
        return
    place = os.open(folder, os.O_RDONLY)
    try:
        locks.flock(place, locks.LOCK_EX)
        yield
    finally:
        os.close(place)


def _record(paper: Any, kept: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "paper": paper.__name__.rpartition(".")[2],
        "versions": {package: version(package) for package in ("noisette", "numpy", "scipy")},
        "studies": [kept[name] for name in studies(paper) if name in kept],
    }


def _write(folder: Path, paper: Any, kept: Mapping[str, Any]) -> None:
    record = _record(paper, kept)
    pages = {"README.md": readme(paper.__doc__ or "", record), "results.json": to_json(record) + "\n"}
    for name, text in pages.items():  # the results last: a run that is killed before is not taken for finished
        with whole_file(folder / name) as file:
            file.write(text.encode())


def draw(chart: Mapping[str, Any], path: Path) -> None:
    """Draw a chart of the record as PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.8, 4.2), layout="constrained")
    axes = figure.add_subplot()
    for place, line in enumerate(chart["series"]):
        colour, mark = _COLOURS[place % len(_COLOURS)], _MARKS[place % len(_MARKS)]
        style = {"color": colour, "linestyle": "--"} if line["predicted"] else {"color": colour, "marker": mark}
        axes.plot(line["x"], line["y"], label=line["label"], linewidth=1.4, markersize=4.5, **style)
        if line["low"] is not None and line["high"] is not None:
            axes.fill_between(line["x"], line["low"], line["high"], color=colour, alpha=0.15, linewidth=0)
    axes.set(
        title=chart["title"],
        xlabel=chart["x"],
        ylabel=chart["y"],
        xscale="log" if chart["log_x"] else "linear",
        yscale="log" if chart["log_y"] else "linear",
    )
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right upper", frameon=False, fontsize=8)  # beside the lines, which it would hide
    FigureCanvasAgg(figure)
    figure.savefig(path, dpi=110, metadata={"Software": ""})


def readme(introduction: str, record: Mapping[str, Any]) -> str:
    """Write the page of a paper's experiments."""
    head, _, rest = introduction.strip().partition("\n")
    parts = [f"# {head.rstrip('.')}", rest.strip()] if rest.strip() else [f"# {head.rstrip('.')}"]
    for study in record["studies"]:
        size = "full setting" if study["full"] else "small setting"
        size = "computed" if study.get("sizeless") else size
        size += f" ({study['fraction']})" if study.get("fraction") else ""
        setting = "; ".join(f"{key} {value}" for key, value in study["setting"].items())
        parts += [
            f"## {study['title']}",
            f"**Claimed.** {study['claim']}",
            f"**Obtained.** {finding(study)}",
            _table(study["columns"], study["rows"]),
            *(f"![{chart['title']}]({chart['name']}.png)" for chart in study["charts"]),
            f"*{size[0].upper()}{size[1:]}, {study['seconds']:g} s{': ' + setting if setting else ''}.*",
            *([f"*Of an older code: {study['older']}*"] if study.get("older") else []),
        ]
    return "\n\n".join(parts) + "\n"


def finding(study: Mapping[str, Any]) -> str:
    """Return what a study found; what the small setting gives is no verdict about the paper."""
    judged = study["full"] or study.get("sizeless")
    return str(study["finding"]) if judged else f"{TOO_SMALL} {study['finding']}"


def _table(columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    right = [all(not isinstance(row[place], str) for row in rows) for place in range(len(columns))]
    shown = ([show(cell).replace("|", "\\|") for cell in row] for row in rows)
    lines = [columns, ["--:" if flag else ":--" for flag in right], *shown]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def show(cell: Cell) -> str:
    """Write a cell of a table."""
    if cell is None:
        return "-"
    if isinstance(cell, bool | str):
        return str(cell)
    return f"{cell:,}" if isinstance(cell, int) else number(cell)
