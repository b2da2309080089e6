"""The shares of 2 to 10 million categories, of which each person holds one."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

import noisette as nz
from benchmarks.board import alone, data, evidence
from benchmarks.board.frame import AUTO, Cell, Evidence, Outcome, method, repeated
from noisette.prediction.planning import handy

TASK = "frequencies"
MEASURE = "root mean square error of a share, percent"
USERS = 10_000  # of a short list, so that libraries that work a person at a time can take part
SHORT_LIST = 100  # categories up to which they do
_COLUMNS = {
    "Adult sex": ("adult", "sex"),
    "Adult education": ("adult", "education"),
    "Adult country": ("adult", "native_country"),
    "darknet application": ("darknet", "app_label"),
    "ACS age": ("acs", "AGEP"),
}


def people(name: str) -> tuple[Any, int]:
    """Return codes and the number of categories."""
    if name in _COLUMNS:
        found, size = data.codes(*_COLUMNS[name])
        return data.sample(found, USERS), size
    if name.startswith("DPBench"):
        two = name.endswith("2D")
        return data.binned(
            f"d2_{name.split()[1]}_2D_256_256" if two else f"d1_{name.split()[1]}", 50_000
        ), 65_536 if two else 4096
    found, size = data.profiles(int(name.split()[2].replace(",", "")))
    return data.sample(found, 1_000_000), size


def cells() -> list[Cell]:
    """Short lists at four budgets, long ones at two."""
    budgets = {name: (0.5, 1.0, 2.0, 4.0) if "Adult" in name else (1.0, 4.0) for name in _COLUMNS}
    budgets |= dict.fromkeys(("DPBench HEPTH", "DPBench SEARCHLOGS", "DPBench Adult 2D"), (1.0, 4.0))
    budgets |= {"ACS profiles 500,000": (1.0, 4.0), "ACS profiles 5,000,000": (4.0,), "ACS profiles 26,000,000": (4.0,)}
    found = []
    for name, own in budgets.items():
        source = "darknet" if name[0] == "d" else name.split()[0]
        for epsilon in own:
            found.append(Cell(TASK, name, source, epsilon, partial(people, name), MEASURE))
    return found


def size_of(cell: Cell) -> int:
    """Return the number of categories."""
    return int(cell.load()[1])


def collect(cell: Cell, mechanism: Any, why: Evidence, chosen: str = "", better: str = "") -> Outcome:
    """Repeat collections; ``better`` is how the estimate is enhanced."""
    codes, size = cell.load()
    truth = np.bincount(codes, minlength=size) / len(codes)
    sent = []

    def once(rng: np.random.Generator) -> Any:
        reports = mechanism.privatize(codes, rng=rng)
        if not sent:
            sent.append(_bytes(mechanism, reports, len(codes)))
        estimate = mechanism.aggregate(reports).estimate()
        if better:
            estimate = nz.enhance(estimate, method=better)
        return 100 * (estimate.value - truth)

    large = size > 1000 or len(codes) > 100_000
    error, spread, repeats, seconds = repeated(cell, once, least=2 if large else 8)
    return Outcome(error, spread, repeats, len(codes), sent[0], 1e6 * seconds / len(codes), why, chosen)


def _bytes(mechanism: Any, reports: Any, users: int) -> float:
    """Return the bytes of a report: bits where it is bits, else what its numbers need."""
    reports = np.asarray(reports)
    most = max(2, int(np.abs(reports).max()) + 1) if reports.dtype.kind in "iu" else 0
    each = 64 if not most else 1 if most == 2 else 8 * -(-int(np.ceil(np.log2(most))) // 8)
    return reports.size / users * each / 8


def _fits(cell: Cell, name: str) -> bool:
    size = size_of(cell)
    if name in ("grr", "hadamard", "pgr"):
        return True
    if name == "subset-selection":
        return size <= 5000
    return size <= (100_000 if name == "olh" else SHORT_LIST)


def _ours(cell: Cell, name: str, better: str = "") -> Outcome:
    mechanism = nz.CATALOGUE[name](epsilon=cell.epsilon, domain=nz.Categorical(size_of(cell)))
    return collect(cell, mechanism, evidence.of(mechanism), better=better)


for _name, _class in nz.CATALOGUE.items():
    if _class.kind == "frequency":
        method(TASK, _name, fits=partial(_fits, name=_name))(partial(_ours, name=_name))


def automatic(cell: Cell) -> Any:
    """Return what a survey takes by itself; its questions have labels, so very long lists are planned by their size."""
    size = size_of(cell)
    if size <= 10_000:
        return nz.Survey([nz.Choice("x", [str(code) for code in range(size)])], epsilon=cell.epsilon)
    users = len(cell.load()[0])
    found = nz.plan(users=users, domain=nz.Categorical(size), epsilon=cell.epsilon).candidates
    return handy(found)[0].build()


@method(TASK, AUTO)
def auto(cell: Cell) -> Outcome:
    """What a survey, or a plan, takes by itself."""
    found = automatic(cell)
    mechanism = getattr(found, "randomizer", found)
    return collect(cell, mechanism, evidence.of(found), mechanism.name)


@method(TASK, "auto, then simplex", fits=lambda cell: size_of(cell) <= 5000)
def enhanced(cell: Cell) -> Outcome:
    """The same, projected on what shares can be."""
    found = automatic(cell)
    return collect(cell, found.randomizer, evidence.of(found), found.randomizer.name, better="simplex")


def _peer(cell: Cell, library: str, name: str) -> Outcome:
    codes, size = cell.load()
    truth = np.bincount(codes, minlength=size) / len(codes)
    found, told = alone.ask(f"shares {library} {name}", codes, {"epsilon": cell.epsilon, "size": size, "most": 40})
    squares = np.mean(np.square(100 * (found - truth)), axis=1)
    error = float(np.sqrt(squares.mean()))
    spread = float(squares.std(ddof=1) / len(squares) ** 0.5 / squares.mean() / 2)
    why = evidence.of_peer(evidence.case_of(f"{library} {name}"))
    return Outcome(error, spread, len(found), len(codes), told["bytes"], 1e6 * told["seconds"], why)


def _peer_fits(cell: Cell, name: str) -> bool:
    often = name in ("GRR", "OUE", "SS", "DE", "make_randomized_response")
    whole = cell.epsilon == 1.0 and cell.data in ("Adult sex", "Adult education", "ACS age")
    return size_of(cell) <= SHORT_LIST and (whole or (often and cell.epsilon in (1.0, 4.0)))


for _library, _names in (
    ("multi-freq-ldpy", ("GRR", "SUE", "OUE", "OLH", "BLH", "SS", "THE", "ADP")),
    ("pure-ldp", ("DE", "SUE", "OUE", "OLH", "BLH", "FLH", "THE", "HR", "HM")),
    ("opendp", ("make_randomized_response",)),
):
    for _name in _names:
        method(TASK, f"{_library} {_name}", _library, fits=partial(_peer_fits, name=_name))(
            partial(_peer, library=_library, name=_name)
        )
