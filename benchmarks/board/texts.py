"""The most frequent texts, of a list that nobody has."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

import noisette as nz
from benchmarks.board import alone, data, evidence
from benchmarks.board.frame import AUTO, Cell, Evidence, Outcome, method, repeated

TASK = "heavy hitters"
TOP = 10
LONGEST = 10
LETTERS = "abcdefghijklmnopqrstuvwxyz"
MEASURE = f"of the {TOP} most frequent texts, percent that are not among the first {TOP} found"
_COLUMNS = {"Adult occupation as text": ("adult", "occupation"), "Adult country as text": ("adult", "native_country")}


def people(name: str) -> Any:
    """Return one text of each person."""
    if name in _COLUMNS:
        found = data.column(*_COLUMNS[name]).astype(str)
        return np.asarray(["".join(c for c in one.lower() if c in LETTERS)[:LONGEST] or "nothing" for one in found])
    return np.asarray(data.words(50_000))


def cells() -> list[Cell]:
    """Words of reviews, and two columns as if nobody had listed their values."""
    return [
        Cell(TASK, name, name.split()[0], epsilon, partial(people, name), MEASURE)
        for name, epsilon in (("Adult occupation as text", 4.0), ("Adult country as text", 4.0), ("IMDB words", 6.0))
    ]


def _missed(values: Any, found: list[str]) -> float:
    texts, counts = np.unique(values, return_counts=True)
    top = set(texts[np.argsort(-counts, kind="stable")[:TOP]])
    return 100 * len(top - set(found[:TOP])) / TOP


@method(TASK, AUTO)
def auto(cell: Cell) -> Outcome:
    """What a survey does with a text."""
    survey = nz.Survey([nz.Text("x", longest=LONGEST, alphabet=LETTERS)], epsilon=cell.epsilon)
    values = cell.load()

    def once(rng: np.random.Generator) -> Any:
        answer = survey.estimate(survey.privatize({"x": values}, rng=rng))["x"]
        return _missed(values, answer.top(TOP)["text"].tolist())

    error, spread, repeats, seconds = repeated(cell, once, least=3, longest=10.0)
    return Outcome(error, spread, repeats, len(values), 6.0, 1e6 * seconds / len(values), evidence.of(survey), "pem")


def _listed(cell: Cell, name: str) -> Outcome:
    """A frequency oracle, as if the list of all texts were public."""
    texts, codes = np.unique(cell.load(), return_inverse=True)
    mechanism = nz.CATALOGUE[name](cell.epsilon, nz.Categorical(len(texts)))

    def once(rng: np.random.Generator) -> Any:
        estimate = mechanism.aggregate(mechanism.privatize(codes, rng=rng)).estimate().value
        return _missed(cell.load(), texts[np.argsort(-estimate, kind="stable")[:TOP]].tolist())

    error, spread, repeats, seconds = repeated(cell, once, longest=5.0)
    why = evidence.of(mechanism)
    why = Evidence(why.verdict, f"{why.words}; needs a public list of all texts, so it is not compared with auto")
    return Outcome(error, spread, repeats, len(codes), 4.0, 1e6 * seconds / len(codes), why)


for _name in ("grr", "pgr", "hadamard"):
    method(TASK, f"{_name} with a public list", "noisette, other task")(partial(_listed, name=_name))


@method(TASK, "pure-ldp PEM", "pure-ldp")
def peer(cell: Cell) -> Outcome:
    """The library's own search, once: it takes minutes."""
    values = cell.load()[:20_000]
    options = {"epsilon": cell.epsilon, "longest": LONGEST, "texts": TOP}
    found, told = alone.ask("texts pure-ldp PEM", values, options)
    why = evidence.of_peer("pure-ldp 1.2.0 FLH")
    missed = _missed(cell.load(), [str(one) for one in found])
    return Outcome(missed, 0.0, 1, len(values), told["bytes"], 1e6 * told["seconds"], why)
