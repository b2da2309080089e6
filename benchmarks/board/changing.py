"""Shares of a value that changes, told every period: what all reports of a person tell is bounded together."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np

import noisette as nz
from benchmarks.board import alone, categories, data, evidence
from benchmarks.board.frame import AUTO, Cell, Evidence, Outcome, method, repeated
from noisette.mechanisms.categorical import memoised

TASK = "longitudinal"
PERIODS = 6
MEASURE = f"root mean square error of a share in each of {PERIODS} periods, percent"
_COLUMNS = {"Adult occupation": ("adult", "occupation"), "ACS state": ("acs", "STATE")}


def people(name: str) -> tuple[Any, int]:
    """Return a row of values for each person: the value of the table, and from time to time another person's."""
    found, size = data.codes(*_COLUMNS[name])
    first = data.sample(found, 10_000)
    rng = np.random.default_rng(data.SEED)
    rows = np.repeat(first[:, None], PERIODS, axis=1)
    for period in range(1, PERIODS):
        moved = rng.random(len(rows)) < 0.1
        rows[:, period] = np.where(moved, rng.permutation(first), rows[:, period - 1])
    return rows, size


def cells() -> list[Cell]:
    """Two data sets at two budgets of a person's whole life."""
    return [
        Cell(TASK, name, name.split()[0], epsilon, partial(people, name), MEASURE)
        for name in _COLUMNS
        for epsilon in (2.0, 4.0)
    ]


def _truth(rows: Any, size: int) -> Any:
    return np.stack([np.bincount(column, minlength=size) / len(rows) for column in rows.T])


def fresh(cell: Cell, mechanism: Any, chance: float, why: Evidence, chosen: str = "") -> Outcome:
    """Each period a person reports with some chance, drawn before; every report has the mechanism's budget."""
    rows, size = cell.load()
    truth, reported = _truth(rows, size), max(1, round(chance * PERIODS))

    def once(rng: np.random.Generator) -> Any:
        order = np.argsort(rng.random(rows.shape), axis=1)[:, :reported]
        told = np.zeros(rows.shape, dtype=bool)
        np.put_along_axis(told, order, True, axis=1)
        found = [
            mechanism.aggregate(mechanism.privatize(rows[told[:, t], t], rng=rng)).estimate().value
            for t in range(PERIODS)
        ]
        return 100 * (np.stack(found) - truth)

    error, spread, repeats, seconds = repeated(cell, once)
    sent = reported * categories._bytes(mechanism, mechanism.privatize(rows[:100, 0], rng=1), 100)
    return Outcome(error, spread, repeats, len(rows), sent, 1e6 * seconds / len(rows), why, chosen)


@method(TASK, AUTO)
def auto(cell: Cell) -> Outcome:
    """One period of each person, drawn by lot, answered with the whole budget, by what a survey takes by itself."""
    survey = nz.Survey([nz.Choice("x", [str(code) for code in range(cell.load()[1])])], epsilon=cell.epsilon)
    return fresh(cell, survey.randomizer, 1 / PERIODS, evidence.of(survey), survey.randomizer.name)


def _split(cell: Cell, name: str, share: float) -> Outcome:
    reported = max(1, round(share * PERIODS))
    mechanism = nz.CATALOGUE[name](epsilon=cell.epsilon / reported, domain=nz.Categorical(cell.load()[1]))
    return fresh(cell, mechanism, share, evidence.of(mechanism))


for _name in ("grr", "oue", "subset-selection", "pgr", "hadamard"):
    method(TASK, f"{_name}, one period each")(partial(_split, name=_name, share=1 / PERIODS))
for _name in ("subset-selection", "oue"):
    method(TASK, f"{_name}, the budget split over periods")(partial(_split, name=_name, share=1.0))


def _linked(claimed: float, linked: float, cell: Cell) -> Evidence:
    """Return what kept answers are worth to whoever links them: the guarantee of this cell is for a whole life."""
    words = f"claims {claimed:.4g} for a whole life; {PERIODS} linked reports tell {linked:.4g} or more"
    return Evidence("refuted" if linked > cell.epsilon else "audited", words, linked)


def _kept(cell: Cell, cls: Any) -> Outcome:
    """A protocol that keeps answers, at the claim that it has for a whole life."""
    rows, size = cell.load()
    once_kept = cell.epsilon if cls is memoised.DBitFlip else cell.epsilon / 2  # it has no fresh noise
    options = {"epsilon": cell.epsilon, "once": once_kept}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = cls(size=size, periods=PERIODS, **options)
        linked = made.linked_epsilon()
    truth = _truth(rows, size)

    def once(rng: np.random.Generator) -> Any:
        return 100 * (made.frequencies(made.privatize(rows, rng=rng)).reshape(truth.shape) - truth)

    error, spread, repeats, seconds = repeated(cell, once, least=2, longest=5.0)
    why = _linked(made.claimed, linked, cell)
    return Outcome(error, spread, repeats, len(rows), float(PERIODS), 1e6 * seconds / len(rows), why)


for _class in vars(memoised).values():
    if isinstance(_class, type) and issubclass(_class, memoised.Memoised) and getattr(_class, "citation", ""):
        method(TASK, f"{_class.name} as published", "papers")(partial(_kept, cls=_class))


def _peer(cell: Cell, name: str) -> Outcome:
    """The library's protocol in each period as if it were the first, at its claim for a whole life."""
    rows, size = cell.load()
    truth, found, told = _truth(rows, size), [], {}
    for period in range(2):
        options = {"size": size, "kept": cell.epsilon, "once": cell.epsilon / 2, "most": 6}
        estimates, told = alone.ask(f"changing multi-freq-ldpy {name}", rows[:, period], options)
        found.append(np.mean(np.square(100 * (estimates - truth[period])), axis=1))
    squares = np.concatenate(found)
    spread = float(squares.std(ddof=1) / len(squares) ** 0.5 / squares.mean() / 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same = memoised.LongitudinalOsue(size=size, periods=PERIODS, epsilon=cell.epsilon, once=cell.epsilon / 2)
    why = (
        _linked(same.claimed, same.linked_epsilon(), cell)
        if name == "L_OSUE"
        else Evidence(
            "refuted",
            f"claims {size * cell.epsilon:.4g} for all {size} values a person may ever hold",
            size * cell.epsilon,
        )
    )
    sent = PERIODS * told["bytes"]
    return Outcome(
        float(np.sqrt(squares.mean())), spread, len(squares), len(rows), sent, 1e6 * PERIODS * told["seconds"], why
    )


for _name in ("L_GRR", "L_OSUE", "L_SUE", "L_OUE", "L_SOUE"):
    method(TASK, f"multi-freq-ldpy {_name}", "multi-freq-ldpy")(partial(_peer, name=_name))
