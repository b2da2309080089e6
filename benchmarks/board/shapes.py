"""The distribution of a number, rebuilt from reports."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import numpy as np

import noisette as nz
from benchmarks.board import evidence, numbers
from benchmarks.board.frame import AUTO, Cell, Outcome, method, repeated

TASK = "distributions"
MEASURE = "distance to the true distribution (Wasserstein), percent of the range"
BINS = 64
_RANGES = {"ACS age": (0, 99), "ACS income": (0, 200_000), "Adult hours a week": (0, 100), "DPBench MEDCOST": (0, 4095)}


def cells() -> list[Cell]:
    """Four data sets."""
    found = []
    for name, (low, high) in _RANGES.items():
        for epsilon in (1.0, 4.0) if name == "ACS age" else (2.0,):
            load = partial(numbers.people, name)
            about = {"low": float(low), "high": float(high)}
            found.append(Cell(TASK, name, name.split()[0], epsilon, load, MEASURE, about=about))
    return found


def _measured(cell: Cell, told: Any, subject: Any, chosen: str = "", sent: float = 8.0) -> Outcome:
    """``told`` returns estimated shares of equal bins from values and a generator."""
    values = cell.load()[:20_000]
    edges = np.linspace(cell.about["low"], cell.about["high"], BINS + 1)
    truth = np.cumsum(np.histogram(values, edges)[0]) / len(values)

    def once(rng: np.random.Generator) -> Any:
        shares = told(values, rng, edges)
        return 100 * np.mean(np.abs(np.cumsum(shares) - truth))

    error, spread, repeats, seconds = repeated(cell, once, least=4, longest=6.0)
    why = evidence.of(subject)
    return Outcome(error, spread, repeats, len(values), sent, 1e6 * seconds / len(values), why, chosen)


def _survey(cell: Cell, mechanism: str, want: str = "distribution") -> Outcome:
    question = nz.Number("x", cell.about["low"], cell.about["high"], want=want)
    survey = nz.Survey([question], epsilon=cell.epsilon, mechanism=mechanism)

    def told(values: Any, rng: np.random.Generator, edges: Any) -> Any:
        answer = survey.estimate(survey.privatize({"x": values}, rng=rng))["x"]
        if want == "quantiles":
            return [_between(answer, low, high) for low, high in itertools.pairwise(edges)]
        return answer.histogram(bins=BINS)["share"].to_numpy()

    return _measured(cell, told, survey, survey.randomizer.name)


def _between(answer: Any, low: float, high: float) -> float:
    found = answer.share_between(low, high)
    return float(np.ravel(np.asarray(found))[0])


method(TASK, AUTO)(partial(_survey, mechanism="auto"))
method(TASK, "quantiles by a tree")(partial(_survey, mechanism="auto", want="quantiles"))
for _name in ("piecewise", "piecewise-optimal", "hybrid", "laplace", "staircase"):
    method(TASK, f"{_name}, then EM")(partial(_survey, mechanism=_name))


def _square(cell: Cell, smooth: bool) -> Outcome:
    """The square wave with its own reconstruction (Li et al. 2020)."""
    mechanism = nz.SquareWave(cell.epsilon, domain=nz.Interval(cell.about["low"], cell.about["high"]))

    def told(values: Any, rng: np.random.Generator, edges: Any) -> Any:
        from noisette.enhancement import reconstruct

        reports = mechanism.privatize(values, rng=rng)
        found = reconstruct(mechanism, reports, smoothing=smooth, bins=BINS)
        return found.probabilities

    return _measured(cell, told, mechanism)


method(TASK, "square-wave, then EMS")(partial(_square, smooth=True))
method(TASK, "square-wave, then EM")(partial(_square, smooth=False))


def _binned(cell: Cell, name: str) -> Outcome:
    """Shares of 64 bins by a frequency oracle, projected on what shares can be."""
    mechanism = nz.CATALOGUE[name](cell.epsilon, nz.Categorical(BINS))

    def told(values: Any, rng: np.random.Generator, edges: Any) -> Any:
        codes = np.clip(np.digitize(values, edges) - 1, 0, BINS - 1)
        estimate = mechanism.aggregate(mechanism.privatize(codes, rng=rng)).estimate()
        return nz.enhance(estimate, method="simplex").value

    return _measured(cell, told, mechanism)


for _name in ("subset-selection", "oue"):
    method(TASK, f"{_name} of {BINS} bins, then simplex")(partial(_binned, name=_name))
