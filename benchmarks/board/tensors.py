"""The mean of a tensor that each person holds, with a delta."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np

import noisette as nz
from benchmarks.board import alone, data, evidence, vectors
from benchmarks.board.frame import AUTO, Cell, Outcome, method
from noisette.auditing.claims import published_form

TASK = "tensors"
SIDE = 8
USERS = 2000
_SOURCES = {"MNIST pictures": "mnist", "Fashion-MNIST pictures": "fashion-mnist", "CIFAR-10 pictures": "cifar10"}


def people(name: str) -> Any:
    """Return pictures of 8 x 8 averages, in three colours where there are, from 0 to 1."""
    rows = data.images(_SOURCES[name], USERS)
    colours = 3 if "CIFAR" in name else 1
    side = round((rows.shape[1] / colours) ** 0.5)
    crop = side // SIDE * SIDE
    pictures = rows.reshape(-1, side, side, colours)[:, :crop, :crop]
    found = pictures.reshape(-1, SIDE, crop // SIDE, SIDE, crop // SIDE, colours).mean(axis=(2, 4))
    return found if colours == 3 else found[..., 0]


def cells() -> list[Cell]:
    """Three sets of pictures."""
    measure = "root mean square error of an entry's mean, percent of its range"
    return [
        Cell(TASK, name, name.split()[0], epsilon, partial(people, name), measure, delta=1e-6)
        for name in _SOURCES
        for epsilon in ((1.0, 4.0) if name[0] == "M" else (4.0,))
    ]


def _domain(cell: Cell) -> Any:
    return nz.TensorDomain(cell.load().shape[1:], 0.0, 1.0)


def _collect(cell: Cell, mechanism: Any, subject: Any, chosen: str = "", flat: bool = False) -> Outcome:
    rows = cell.load()
    given = Cell(
        cell.task,
        "flat",
        cell.source,
        cell.epsilon,
        lambda: rows.reshape(len(rows), -1) if flat else rows,
        cell.measure,
    )
    outcome = vectors.collect(given, mechanism, evidence.of(subject), chosen)
    return Outcome(**{**vars(outcome), "error": 2 * outcome.error})  # entries have range 1, not 2


@method(TASK, AUTO)
def auto(cell: Cell) -> Outcome:
    """What a survey takes by itself."""
    survey = nz.Survey([nz.Tensor("x", cell.load().shape[1:], 0, 1)], epsilon=cell.epsilon, delta=cell.delta)
    flat = len(survey.randomizer.domain.shape) == 1
    return _collect(cell, survey.randomizer, survey, survey.randomizer.name, flat=flat)


def _ours(cell: Cell, name: str, **options: Any) -> Outcome:
    delta = cell.delta if name != "retain-or-noise" else 0.0
    mechanism = nz.build(name, _domain(cell), epsilon=cell.epsilon, delta=delta, **options)
    return _collect(cell, mechanism, mechanism)


method(TASK, "tensor-gaussian")(partial(_ours, name="tensor-gaussian"))
method(TASK, "retain-or-noise")(partial(_ours, name="retain-or-noise"))


def _flat(cell: Cell, name: str) -> Outcome:
    dims = int(np.prod(cell.load().shape[1:]))
    mechanism = nz.build(name, nz.Box(dims, 0.0, 1.0), epsilon=cell.epsilon)
    return _collect(cell, mechanism, mechanism, flat=True)


for _name in ("duchi", "hybrid", "duchi-box"):
    method(TASK, f"{_name}, entries as a vector")(partial(_flat, name=_name))


@method(TASK, "retain-or-noise as published", "papers")
def published(cell: Cell) -> Outcome:
    """TLDP as it was printed, at its claim."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mechanism = published_form(nz.build("retain-or-noise", _domain(cell), epsilon=cell.epsilon))
        return _collect(cell, mechanism, mechanism)


@method(TASK, "opendp make_gaussian", "opendp")
def peer(cell: Cell) -> Outcome:
    """Noise of OpenDP on all entries."""
    rows = cell.load().reshape(USERS, -1)[:300]
    far = {"l1": float(rows.shape[1]), "l2": rows.shape[1] ** 0.5}
    options = {"epsilon": cell.epsilon, "delta": cell.delta} | far
    reports, told = alone.ask("vector opendp make_gaussian", rows, options)
    off = 100 * (reports - rows)
    error = float(np.sqrt(np.mean(np.square(off)) / USERS))
    why = evidence.of_peer("opendp make_gaussian")
    spread = off.size**-0.5
    return Outcome(error, spread, 1, USERS, told["bytes"], 1e6 * told["seconds"], why)
