"""The mean of a vector that each person holds: of bounded entries, or of bounded length."""

from __future__ import annotations

import dataclasses
import warnings
from functools import partial
from typing import Any

import numpy as np

import noisette as nz
from benchmarks.board import alone, data, evidence
from benchmarks.board.frame import AUTO, Cell, Evidence, Outcome, method, repeated
from noisette.domains import Sphere

TASK = "vectors"
DELTA = 1e-6
USERS = 2000
MEASURE = "root mean square error of an entry's mean, percent of its range"


def people(name: str) -> Any:
    """Return rows within [-1, 1], or of length one."""
    if name.endswith("images"):
        rows = data.images(name.split()[0].lower(), USERS)
        return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
    table, names = {
        "CTG": (
            "ctg",
            [
                "LB",
                "AC",
                "FM",
                "UC",
                "DL",
                "ASTV",
                "MSTV",
                "ALTV",
                "MLTV",
                "Width",
                "Min",
                "Max",
                "Nmax",
                "Mode",
                "Mean",
                "Median",
                "Variance",
            ],
        ),
        "card": ("credit-fraud", [f"V{number}" for number in range(1, 29)]),
        "Adult": ("adult", ["age", "education_num", "hours_per_week", "capital_gain"]),
    }[name.split()[0]]
    rows = data.sample(np.stack([data.column(table, one).astype(float) for one in names], axis=1), USERS)
    low, high = np.quantile(rows, 0.01, axis=0), np.quantile(rows, 0.99, axis=0)
    return np.clip(2 * (rows - low) / np.maximum(high - low, 1e-9) - 1, -1, 1)


def cells() -> list[Cell]:
    """Three boxes and two balls."""
    budgets = {"Adult numbers": (1.0, 4.0), "CTG features": (0.5, 1.0, 4.0), "card features": (1.0, 4.0)}
    budgets |= {"MNIST images": (1.0, 4.0, 8.0), "Fashion-MNIST images": (4.0,)}
    return [
        Cell(TASK, name, "credit fraud" if name[0] == "c" else name.split()[0], epsilon, partial(people, name), MEASURE)
        for name, own in budgets.items()
        for epsilon in own
    ]


def domain_of(cell: Cell) -> Any:
    """Return a ball for images and a box for what is measured."""
    dims = cell.load().shape[1]
    return Sphere(dims) if cell.data.endswith("images") else nz.Box(dims, -1.0, 1.0)


def _ball(cell: Cell) -> bool:
    return cell.data.endswith("images")


def _scale(cell: Cell) -> float:
    return 100.0 if _ball(cell) else 50.0


def collect(cell: Cell, mechanism: Any, why: Evidence, chosen: str = "") -> Outcome:
    """Repeat collections."""
    rows = cell.load()
    truth, sent = rows.mean(axis=0), []

    def once(rng: np.random.Generator) -> Any:
        reports = mechanism.privatize(rows, rng=rng)
        if not sent:
            sent.append(_bytes(reports, len(rows)))
        return _scale(cell) * (mechanism.aggregate(reports).estimate().value.reshape(-1) - truth.reshape(-1))

    error, spread, repeats, seconds = repeated(cell, once, least=4, longest=5.0)
    return Outcome(error, spread, repeats, len(rows), sent[0], 1e6 * seconds / len(rows), why, chosen)


def _bytes(reports: Any, users: int) -> float:
    """Return the bytes of a report: signs as bits, sampled entries with their places, else eight for a number."""
    if hasattr(reports, "values"):
        return float(reports.values.size / users * 8 + reports.indices.size / users * 4)
    found = np.asarray(reports)
    return found.size / users * (1 / 8 if found.dtype == np.int8 else found.dtype.itemsize)


def _ours(cell: Cell, name: str, delta: float = 0.0) -> Outcome:
    domain = domain_of(cell)
    if delta and _ball(cell):
        domain = nz.L2Ball(domain.dims, 1.0)
    mechanism = nz.build(name, domain, epsilon=cell.epsilon, delta=delta)
    return collect(cell, mechanism, evidence.of(mechanism))


for _name in ("privunit", "privunit-g"):
    method(TASK, _name)(partial(_ours, name=_name))
for _name in ("duchi-box", "adaptive-duchi"):
    method(TASK, _name, fits=lambda cell: not _ball(cell))(partial(_ours, name=_name))
for _name in ("duchi", "piecewise", "piecewise-optimal", "hybrid", "sliding-half", "laplace", "staircase"):
    method(TASK, f"sampled {_name}", fits=lambda cell: not _ball(cell))(partial(_ours, name=_name))
method(TASK, "tensor-gaussian")(partial(_ours, name="tensor-gaussian", delta=DELTA))


def _published(cell: Cell, name: str) -> Outcome:
    """The form that was printed, at its claim."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mechanism = dataclasses.replace(nz.build(name, domain_of(cell), epsilon=cell.epsilon), as_published=True)
        return collect(cell, mechanism, evidence.of(mechanism))


for _name in ("duchi-box", "adaptive-duchi"):
    method(TASK, f"{_name} as published", "papers", fits=lambda cell: not _ball(cell))(partial(_published, name=_name))


@method(TASK, AUTO)
def auto(cell: Cell) -> Outcome:
    """What a survey takes by itself."""
    domain = domain_of(cell)
    asked = nz.Vector("x", domain.dims, length=1.0) if _ball(cell) else nz.Vector("x", domain.dims, -1, 1)
    survey = nz.Survey([asked], epsilon=cell.epsilon)
    return collect(cell, survey.randomizer, evidence.of(survey), survey.randomizer.name)


def _peer(cell: Cell, kind: str) -> Outcome:
    rows = cell.load()[:500]
    ball, dims = _ball(cell), rows.shape[1]
    far = {"l1": 2 * dims**0.5, "l2": 2.0} if ball else {"l1": 2.0 * dims, "l2": 2 * dims**0.5}
    reports, told = alone.ask(f"vector opendp make_{kind}", rows, {"epsilon": cell.epsilon, "delta": DELTA} | far)
    off = _scale(cell) * (reports - rows)
    error = float(np.sqrt(np.mean(np.square(off)) / len(cell.load())))  # noise alone, which is independent
    spread = float(np.std(np.square(off)) / np.mean(np.square(off)) / off.size**0.5 / 2)
    why = evidence.of_peer(f"opendp make_{kind}")
    return Outcome(error, spread, 1, len(cell.load()), told["bytes"], 1e6 * told["seconds"], why)


for _kind in ("laplace", "gaussian"):
    method(TASK, f"opendp make_{_kind}", "opendp")(partial(_peer, kind=_kind))
