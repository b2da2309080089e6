"""The mean of a number that each person reports once."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

import noisette as nz
from benchmarks.board import alone, data, evidence
from benchmarks.board.frame import AUTO, Cell, Evidence, Outcome, method

TASK = "mean of a number"
DELTA = 1e-6
REPORTS = 400_000  # drawn in all, which tells an error to half a percent
_COLUMNS = {
    "ACS age": ("acs", "AGEP", 0, 99),
    "ACS income": ("acs", "PINCP", 0, 200_000),
    "Adult hours a week": ("adult", "hours_per_week", 0, 100),
    "CTG heart rate": ("ctg", "LB", 60, 200),
    "card payments": ("credit-fraud", "Amount", 0, 500),
    "darknet window bytes": ("darknet", "FWD.Init.Win.Bytes", 0, 65_535),
    "IMDB rating": ("imdb", "rating", 1, 10),
}


def people(name: str) -> Any:
    """Return numbers within their range."""
    if name in _COLUMNS:
        table, own, low, high = _COLUMNS[name]
        return np.clip(data.sample(data.column(table, own).astype(float), 50_000), low, high)
    if name.startswith("DPBench"):
        return data.binned(f"d1_{name.split()[1]}", 50_000).astype(float)
    return data.images(name.split()[0].lower(), 10_000).mean(axis=1)


def cells() -> list[Cell]:
    """Three data sets at four budgets, the others at one."""
    found = []
    ranges = {name: (low, high) for name, (*_, low, high) in _COLUMNS.items()}
    ranges |= {"DPBench MEDCOST": (0, 4095), "DPBench INCOME": (0, 4095)}
    ranges |= {"MNIST brightness": (0, 1), "Fashion-MNIST brightness": (0, 1)}
    for name, (low, high) in ranges.items():
        many = name in ("ACS age", "ACS income", "Adult hours a week")
        for epsilon in (0.5, 1.0, 2.0, 4.0) if many else (1.0,):
            about = {"low": float(low), "high": float(high)}
            source = name.split()[0] if name[0].isupper() else "credit fraud" if name[0] == "c" else "darknet"
            measure = "standard error of the mean, percent of the range"
            found.append(Cell(TASK, name, source, epsilon, partial(people, name), measure, about=about))
    return found


def judged(
    cell: Cell, values: Any, reports: Any, sent: float, seconds: float, why: Evidence, chosen: str = ""
) -> Outcome:
    """Return the error of the mean of all people from the deviations of single reports, which are independent."""
    low, high = cell.about["low"], cell.about["high"]
    off = (np.asarray(reports, dtype=float) - values) / (high - low)
    users, drawn = len(cell.load()), len(off)
    noise, bias = float(np.var(off)), float(np.mean(off))
    lasting = bias if abs(bias) > 4 * (noise / drawn) ** 0.5 else 0.0  # what more people do not average out
    error = 100 * (noise / users + lasting**2) ** 0.5
    spread = float(np.std(np.square(off - bias))) / noise / drawn**0.5 / 2
    return Outcome(error, spread, drawn // users, users, sent, 1e6 * seconds, why, chosen, lasting != 0)


def collect(cell: Cell, mechanism: Any, why: Evidence, chosen: str = "") -> Outcome:
    """Privatise everybody as often as it takes."""
    values = np.tile(cell.load(), -(-REPORTS // len(cell.load())))
    values = mechanism.domain.clip(values)
    began = time.process_time()
    reports = mechanism.privatize(values, rng=cell.rng(0))
    seconds = (time.process_time() - began) / len(values)
    outcome = judged(cell, values, reports, _bytes(mechanism, reports), seconds, why, chosen)
    # a bias that cancels in one column by luck is one all the same
    return outcome if mechanism.capabilities.unbiased else replace(outcome, biased=True)


def _bytes(mechanism: Any, reports: Any) -> float:
    """Return the bytes of a report: one for each eight bits of how many different ones were seen, eight at most."""
    return float(-(-max(1, int(np.ceil(np.log2(len(np.unique(reports[:100_000])))))) // 8))


def _ours(cell: Cell, name: str) -> Outcome:
    domain = nz.Interval(cell.about["low"], cell.about["high"])
    able = nz.CATALOGUE[name].capabilities
    if not able.takes(domain):
        step = (domain.high - domain.low) / 100
        domain = nz.Grid(domain.low, domain.high, step)
    delta = {"delta": DELTA} if able.delta == "needed" else {}
    mechanism = nz.CATALOGUE[name](epsilon=cell.epsilon, domain=domain, **delta)
    return collect(cell, mechanism, evidence.of(mechanism))


for _name, _class in nz.CATALOGUE.items():
    if _class.kind == "mean" and not _class.capabilities.levels:
        method(TASK, _name)(partial(_ours, name=_name))


@method(TASK, AUTO)
def auto(cell: Cell) -> Outcome:
    """What a survey takes by itself."""
    survey = nz.Survey([nz.Number("x", cell.about["low"], cell.about["high"])], epsilon=cell.epsilon)
    return collect(cell, survey.randomizer, evidence.of(survey), survey.randomizer.name)


def _peer(cell: Cell, library: str, name: str, audit: str, delta: float = 0.0) -> Outcome:
    values = np.resize(cell.load(), 6000)
    job = {"epsilon": cell.epsilon, "delta": delta, "low": cell.about["low"], "high": cell.about["high"]}
    reports, told = alone.ask(f"number {library} {name}", values, job)
    return judged(cell, values[: len(reports)], reports, 8.0, told["seconds"], evidence.of_peer(audit))


for _library, _name, _audit, _delta in (
    ("opendp", "make_laplace", "opendp make_laplace", 0.0),
    ("opendp", "make_gaussian", "opendp make_gaussian", DELTA),
    ("diffprivlib", "Laplace", "diffprivlib Laplace", 0.0),
    ("diffprivlib", "LaplaceTruncated", "diffprivlib LaplaceTruncated", 0.0),
    ("diffprivlib", "LaplaceBoundedDomain", "diffprivlib LaplaceBoundedDomain", 0.0),
    ("diffprivlib", "Staircase", "diffprivlib Staircase", 0.0),
    ("diffprivlib", "Snapping", "diffprivlib Snapping", 0.0),
    ("diffprivlib", "GaussianAnalytic", "diffprivlib GaussianAnalytic", DELTA),
):
    method(TASK, f"{_library} {_name}", _library)(
        partial(_peer, library=_library, name=_name, audit=_audit, delta=_delta)
    )
