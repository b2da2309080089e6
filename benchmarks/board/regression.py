"""Linear regression where each person reports once."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import numpy as np

import noisette as nz
from benchmarks.board import alone, data, evidence
from benchmarks.board.frame import AUTO, Cell, Evidence, Outcome, method, repeated
from noisette.regression import Design, OneShot, Training, coding_for

TASK = "regression"
MEASURE = "root mean square error on other people, target from -1 to 1"
_ATTRIBUTES = {
    "ACS income": ("acs", {"AGEP": (0, 100), "SCHL": (0, 24), "WKHP": (0, 99)}, "PINCP", (0, 200_000)),
    "Adult hours": ("adult", {"age": (17, 90), "education_num": (1, 16)}, "hours_per_week", (0, 100)),
    "CTG rate": ("ctg", {"AC": (0, 0.02), "ASTV": (0, 100), "Mean": (70, 190)}, "LB", (60, 200)),
}


@lru_cache(maxsize=4)
def people(name: str) -> tuple[Any, Any, Any]:
    """Return rows and targets, most of them to learn from and the rest to judge by, and the columns' ranges."""
    from noisette import datasets

    table, columns, target, (low, high) = _ATTRIBUTES[name]
    found = datasets.table(table, [*columns, target]).to_pandas().dropna()
    found = found.sample(min(len(found), 60_000), random_state=data.SEED)
    rows = np.stack([np.clip(found[one].to_numpy(float), *ends) for one, ends in columns.items()], axis=1)
    return rows, np.clip(found[target].to_numpy(float), low, high), (tuple(columns.values()), (low, high))


def cells() -> list[Cell]:
    """Three regressions."""
    return [
        Cell(TASK, name, name.split()[0], epsilon, partial(people, name), MEASURE)
        for name in _ATTRIBUTES
        for epsilon in ((1.0, 4.0) if name[1] != "T" else (4.0,))
    ]


def _run(cell: Cell, make: Any, chosen: str = "") -> Outcome:
    rows, target, (columns, (low, high)) = cell.load()
    cut = len(rows) * 4 // 5
    scale = nz.Interval(low, high)
    attributes = tuple(nz.Interval(*ends) for ends in columns)
    learner = make(attributes, scale)
    truth = scale.to_canonical(target[cut:])

    def once(rng: np.random.Generator) -> Any:
        order = rng.permutation(cut)
        model = learner.run([(rows[order], target[order])], rng=int(rng.integers(1 << 60)))
        return np.clip(scale.to_canonical(learner.predict(model, rows[cut:])), -1, 1) - truth

    error, spread, repeats, seconds = repeated(cell, once, least=3, longest=4.0)
    inner = learner.channel.mechanism if hasattr(learner.channel, "mechanism") else None
    why = evidence.of(inner) if inner is not None else Evidence("accounted", "the channel states its guarantee")
    return Outcome(error, spread, repeats, cut, 16.0, 1e6 * seconds / cut, why, chosen or getattr(inner, "name", ""))


def _training(cell: Cell, mechanism: str, **options: Any) -> Outcome:
    def make(attributes: Any, scale: Any) -> Any:
        coding = coding_for(cell.epsilon)
        return Training(Design(attributes, coding=coding), scale, cell.epsilon, mechanism=mechanism, **options)

    return _run(cell, make)


def _shot(cell: Cell, mechanism: str) -> Outcome:
    return _run(cell, lambda attributes, scale: OneShot(Design(attributes), scale, cell.epsilon, mechanism=mechanism))


method(TASK, AUTO)(partial(_training, mechanism="auto"))
for _name in ("piecewise", "hybrid", "privunit", "privunit-g"):
    method(TASK, f"gradients by {_name}")(partial(_training, mechanism=_name))
method(TASK, "harmony (Nguyen et al. 2016)", "papers")(partial(_training, mechanism="harmony", step=1.0, average=False))
method(TASK, "second moments, once")(partial(_shot, mechanism="auto"))


@method(TASK, "diffprivlib LinearRegression (central)", "diffprivlib")
def peer(cell: Cell) -> Outcome:
    """The functional mechanism by a server that is trusted with the rows: another, weaker trust model."""
    rows, target, (columns, (low, high)) = cell.load()
    ends = np.asarray(columns, dtype=float)
    scaled = 2 * (rows - ends[:, 0]) / (ends[:, 1] - ends[:, 0]) - 1
    joined = np.column_stack([scaled, nz.Interval(low, high).to_canonical(target)])
    cut = len(rows) * 4 // 5
    options = {"epsilon": cell.epsilon, "train": cut, "low": -1.0, "high": 1.0, "most": 5}
    found, told = alone.ask("central diffprivlib LinearRegression", joined, options)
    why = Evidence("stated", "stated by its authors for a trusted server; no audit of ours was run")
    return Outcome(float(np.sqrt(found.mean())), 0.0, len(found), cut, 0.0, 1e6 * told["seconds"], why)
