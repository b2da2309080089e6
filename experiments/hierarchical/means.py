"""Fig 1 and Fig 2: the mean of a value whose range decides its budget, as published and at the same graded matrix."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any

import numpy as np

import noisette as nz
from experiments.frame import Advance, Chart, Series, Study, remember, several
from noisette import datasets
from noisette.core import Aggregate
from noisette.mechanisms._base import Points
from noisette.mechanisms.graded.estimation import hiera, maximum_likelihood
from noisette.mechanisms.graded.levelled import Pairs
from noisette.prediction.graded import Reused, duchi_within

_EDGES = tuple(float(edge) for edge in np.linspace(-1, 1, 6))
_SHARES = (5, 4, 3, 2, 1)
_DATA = {"uniform": "uniform", "normal": "normal (0.3, 0.2)", "exponential": "exponential", "age": "age (ACS)"}
_FROM_0 = "exponential from 0"  # the paper does not say where in [-1, 1] its exponential values begin
_RIVALS = ("Harmony", "PM", "graded Laplace")
_AXIS = "smallest budget e; budgets 5e, 4e, 3e, 2e, e"
_PUBLISHED, _SAME = "as published", "same matrix"
_SUMS = ("count", "total", "squares")
_MAE = math.sqrt(2 / math.pi)  # mean absolute value of a standard Gaussian variable


def fig_1(full: bool, advance: Advance) -> Study:
    """Return the error of HierA against the number of times that each report is used."""
    users, runs = (1_500_000, 400) if full else (10_000, 100)
    budgets = (0.1, 0.2, 0.5, 1.0) if full else (0.2, 1.0)
    x = values("age", users)
    rows, lines = [], []
    worse, better, largest = 0, 0, 0.0
    for place, e in enumerate(budgets):
        mechanism = levelled(e)
        errors = np.empty((runs, 6))
        for run in range(runs):
            errors[run] = remember((e, run), partial(_reused, mechanism, x, (1, place, run)))
            advance((place + (run + 1) / runs) / len(budgets))
        means, first = errors.mean(axis=0), errors[:, 0]
        exact = [_MAE * nz.deviation(Reused(mechanism, mu), users=users, values=x).std for mu in range(1, 6)]
        for mu in range(1, 6):
            gap, half = _paired(errors[:, mu - 1] - first)
            worse, better = worse + (gap - half > 0), better + (gap + half < 0)
            largest = max(largest, exact[mu - 1] / exact[0] - 1)
            interval = None if mu == 1 else f"{gap - half:+.2e} to {gap + half:+.2e}"
            rows.append([e, mu, "falls with mu", float(means[mu - 1]), interval, exact[mu - 1], float(means[5])])
        low, high = zip(*(_ratio_interval(errors[:, mu - 1], first) for mu in range(1, 6)), strict=True)
        ratio = [float(mean / means[0]) for mean in means[:5]]
        lines.append(Series(f"e = {e:g}", list(range(1, 6)), ratio, list(low), list(high)))
        lines.append(Series(f"e = {e:g}, exact", list(range(1, 6)), [s / exact[0] for s in exact], predicted=True))
    cases = 4 * len(budgets)
    return Study(
        title="Fig 1: each report used mu times",
        claim="The larger mu, the more data each level has, and the smaller the error of the mean.",
        finding=(
            f"No. Of {cases} comparisons with mu = 1, {worse} have a larger error and {better} a smaller, with 95 % "
            "confidence each. Exactly, without clipping, each mu > 1 has a larger error, by up to "
            f"{largest:.0%}: a converted report is a noisier copy of one already used. Maximum likelihood, which reads "
            "the same reports, level and sign together, has "
            f"{_span([row[6] / row[3] for row in rows if row[1] == 1])} times the error of mu = 1."
        ),
        columns=["e", "mu", "paper's trend", "HierA", "its excess, 95 %", "exact, unclipped", "ours: likelihood"],
        rows=rows,
        setting={
            "users": users,
            "T": runs,
            "data": "age of ACS 2024 persons, for IPUMS US 2010; five equal levels",
            "numbers": "mean absolute errors; the excess is that over mu = 1, over pairs of runs",
        },
        charts=[
            Chart(
                "fig-1",
                "Fig 1: error of HierA against reuse",
                "mu, times each report is used",
                "MAE relative to mu = 1",
                lines,
            )
        ],
    )


def _reused(mechanism: nz.LevelledResponse, x: Any, seed: tuple[int, ...]) -> list[float]:
    """Return the errors of HierA with mu from 1 to 5, and of maximum likelihood, on the reports of one collection."""
    rng = np.random.default_rng(seed)
    counted = mechanism.aggregate(mechanism.privatize(x, rng=rng))
    found = [float(hiera(counted, reuse=mu, rng=rng).value[0]) for mu in range(1, 6)]
    return [abs(mean - float(x.mean())) for mean in (*found, maximum_likelihood(counted).mean)]


def fig_2(full: bool, advance: Advance) -> Study:
    """Return the error of every method on four data sets."""
    users, runs = (1_500_000, 100) if full else (10_000, 10)
    budgets = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0) if full else (0.2, 1.0)
    points = [(data, e) for data in _DATA for e in budgets]

    def collections(run: int) -> list[list[float]]:
        advance(run / runs)
        return [_errors(data, users, e, (2, place, run)) for place, (data, e) in enumerate(points)]

    each = np.asarray(several(range(runs), collections))  # runs, points, methods
    advance(1.0)
    found: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    for place, (data, e) in enumerate(points):
        for way, (column, name) in enumerate(methods(e)):
            errors = each[:, place, way]
            found.setdefault((data, column, name), []).append((float(errors.mean()), _half(errors)))
    rows = [[_DATA[data], column, name, *(mean for mean, _ in cells)] for (data, column, name), cells in found.items()]
    charts = [_chart(data, budgets, found) for data in _DATA]
    return Study(
        title="Fig 2: the mean by every method",
        claim="HierA (mu = 2) is more accurate than Harmony, PM and graded Laplace on every data set, most at small e.",
        finding=_finding(found, max(levelled(e).guarantee.epsilon / e for e in budgets)),
        columns=["data", "column", "method", *(f"MAE at e = {e:g}" for e in budgets)],
        rows=rows,
        setting={
            "users": users,
            "T": len(each),
            _PUBLISHED: "Harmony and PM with e for everybody, graded Laplace and HierA with 5e to e",
            _SAME: "all keep the exact matrix that LHP has at budgets 5e to e, Harmony at the largest epsilon it can",
            "drawn": "values of one kind together, their reports' counts by the exact multinomial law, where a report "
            "is one of finitely many; PM and graded Laplace report by report. Synthetic values have three decimals",
            "intervals": "95 %",
        },
        charts=charts,
        fraction=f"{len(each)} of {runs} runs of the paper" if full and len(each) < runs else "",
    )


def fig_2_size(full: bool, advance: Advance) -> Study:
    """Return the error of the methods at the paper's number of users, computed from their exact deviations."""
    users, drawn = (1_500_000, 150_000) if full else (1_500_000, 2_000)
    budgets = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0) if full else (0.2, 1.0)
    placed = {data: values(data, drawn) for data in _DATA}
    placed[_FROM_0] = (placed["exponential"] + 1).clip(-1, 1)
    points = [(data, e) for data in placed for e in budgets]
    found: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    for place, (data, e) in enumerate(points):
        x = placed[data]
        for (column, name), (mechanism, read) in methods(e).items():
            if read is _likely:
                continue
            law = Reused(mechanism, 2) if read is _hiera else mechanism
            error = _MAE * float(nz.deviation(law, users=users, values=x).std)
            found.setdefault((data, column, name), []).append((error, 0.0))
        advance((place + 1) / len(points))
    hier = (_PUBLISHED, "HierA, mu 2")
    wins = [ratio > 1 for name in _RIVALS for ratio in _ratios(found, (_PUBLISHED, name), hier)]
    moved = [
        other[0] > own[0]
        for name in _RIVALS
        for other, own in zip(found[_FROM_0, _PUBLISHED, name], found[_FROM_0, *hier], strict=True)
    ]
    ours = _ratios(found, (_SAME, "ours: OptimalGraded"), hier)
    return Study(
        title="Fig 2 at the paper's number of users, computed",
        claim="HierA (mu = 2) is more accurate than Harmony, PM and graded Laplace on every data set, most at small e.",
        finding=(
            f"At {users:,} users deviations are normal, and their exact size is known without a run: HierA, unclipped, "
            f"has the smaller error in {sum(wins)} of {len(wins)} comparisons, and OptimalGraded at LHP's own matrix "
            f"{_span(ours)} of HierA's. More users make all errors smaller by one factor, the root of their number, so "
            "that the order is that of the runs above. There exponential values begin at -1, where budgets are "
            "largest and graded Laplace gains most; the paper does not say where its own begin. From 0 on HierA has "
            f"the smaller error in {sum(moved)} of {len(moved)} comparisons."
        ),
        columns=["data", "column", "method", *(f"MAE at e = {e:g}" for e in budgets)],
        rows=[
            [_DATA.get(data, data), column, name, *(mean for mean, _ in own)]
            for (data, column, name), own in found.items()
        ],
        setting={"users": users, "values": f"variances are means over {drawn:,} values of each data set"},
    )


def levelled(e: float) -> nz.LevelledResponse:
    """Return LHP with the paper's five levels."""
    return nz.LevelledResponse(_EDGES, tuple(share * e for share in _SHARES))


Method = tuple[Any, Callable[[Any, np.random.Generator], float]]  # a mechanism, and how its reports are read


@lru_cache(maxsize=8)
def methods(e: float) -> dict[tuple[str, str], Method]:
    """Return the ways to estimate a mean at budgets 5e to e, as published and at LHP's exact matrix."""
    lhp = levelled(e)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nz.PrivacyWarning)  # that is the point of the column
        laplace = nz.GradedLaplace(_EDGES, lhp.epsilons, as_published=True)
    optimal, harmony = optimal_graded(e), duchi_within(_EDGES, lhp.guarantee.matrix)
    return {
        (_PUBLISHED, "Harmony"): (nz.Duchi(e), _direct),
        (_PUBLISHED, "PM"): (nz.Piecewise(e), _direct),
        (_PUBLISHED, "graded Laplace"): (laplace, _direct),
        (_PUBLISHED, "HierA, mu 2"): (lhp, _hiera),
        (_SAME, "LHP, direct"): (lhp, _direct),
        (_SAME, "LHP, maximum likelihood"): (lhp, _likely),
        (_SAME, "Harmony"): (harmony, _direct),
        (_SAME, "ours: OptimalGraded"): (optimal, _direct),
        (_SAME, "ours: OptimalGraded, maximum likelihood"): (optimal, _likely),
    }


def _errors(data: str, users: int, e: float, seed: tuple[int, ...]) -> list[float]:
    """Return every method's absolute error in one collection; methods of one mechanism read the same reports."""
    x, *grouped = _held(data, users)
    told: dict[int, tuple[Any, np.random.Generator]] = {}
    found = []
    for mechanism, read in methods(e).values():
        if id(mechanism) not in told:
            rng = np.random.default_rng(seed)
            told[id(mechanism)] = collected(mechanism, x, rng, *grouped), rng
        found.append(abs(read(*told[id(mechanism)]) - float(x.mean())))
    return found


@lru_cache(maxsize=8)
def _held(data: str, users: int) -> tuple[Any, Any, Any]:
    """Return the users' values, ages or numbers with three decimals, those that there are, and how many hold each."""
    x = values(data, users) if data == "age" else np.round(values(data, users), 3)
    return x, *np.unique(x, return_counts=True)


def collected(mechanism: Any, x: Any, rng: np.random.Generator, points: Any, held: Any) -> Aggregate:
    """Return the sums of one report of each user of ``x``; ``held`` of them have each of the ``points``.

    Where a report is one of finitely many, users of one value are drawn together: how many of them give each report
    has a multinomial law, whose chances are the mechanism's own.
    """
    support = mechanism.support
    if not isinstance(support, Pairs | Points):
        counted: Aggregate = mechanism.aggregate(mechanism.privatize(x, rng=rng))
        return counted
    kinds = support.all if isinstance(support, Pairs) else np.asarray(support.values)
    law = np.exp(mechanism.log_prob(kinds, points[:, None]))
    counts = rng.multinomial(held, law / law.sum(axis=1, keepdims=True)).sum(axis=0)
    each = [mechanism.aggregate(kinds[place : place + 1]) for place in range(len(kinds))]
    sums = (sum(count * getattr(own, name) for count, own in zip(counts, each, strict=True)) for name in _SUMS)
    return Aggregate(mechanism, len(x), *sums)


@lru_cache(maxsize=16)
def optimal_graded(e: float) -> nz.OptimalGraded:
    """Return the best channel under LHP's exact matrix; solved once, kept on disk."""
    return nz.OptimalGraded(_EDGES, matrix=levelled(e).guarantee.matrix, points=24, objective="average")


@lru_cache(maxsize=8)
def values(data: str, users: int) -> Any:
    """Return the users' values on [-1, 1], drawn once."""
    rng = np.random.default_rng(5)
    if data == "uniform":
        return rng.uniform(-1, 1, users)
    if data == "normal":
        return rng.normal(0.3, 0.2, users).clip(-1, 1)
    if data == "exponential":
        return (rng.exponential(0.3, users) - 1).clip(-1, 1)
    ages = np.asarray(datasets.table("acs", ["AGEP"])["AGEP"], dtype=np.float64)
    return rng.choice(ages, users, replace=False) / 48 - 1  # ages go from 0 to 96


def _direct(counted: Any, rng: np.random.Generator) -> float:
    return float(counted.estimate().value[0])


def _hiera(counted: Any, rng: np.random.Generator) -> float:
    return float(hiera(counted, reuse=2, rng=rng).value[0])


def _likely(counted: Any, rng: np.random.Generator) -> float:
    return maximum_likelihood(counted).mean


def _half(errors: Any) -> float:
    """Return half the 95 % interval of a mean."""
    return 1.96 * float(errors.std(ddof=1)) / math.sqrt(errors.size)


def _paired(gaps: Any) -> tuple[float, float]:
    return float(gaps.mean()), _half(gaps)


def _ratio_interval(errors: Any, first: Any) -> tuple[float, float]:
    """Return the 95 % interval of a ratio of two means of paired errors."""
    ratio = errors.mean() / first.mean()
    half = _half((errors - ratio * first) / first.mean())
    return float(ratio - half), float(ratio + half)


def _span(ratios: Any) -> str:
    return f"{min(ratios):.2f} to {max(ratios):.2f}"


def _ratios(found: Mapping[Any, Any], way: tuple[str, str], to: tuple[str, str]) -> list[float]:
    """Return the errors of one way over those of another, on all data sets and budgets."""
    return [
        cell[0] / other[0] for data in _DATA for cell, other in zip(found[data, *way], found[data, *to], strict=True)
    ]


def _chart(data: str, budgets: tuple[float, ...], found: Mapping[Any, Any]) -> Chart:
    """Draw all methods on one data set."""
    lines = []
    for (own, column, name), cells in found.items():
        if own == data and name != "LHP, direct":  # all but on HierA's line
            mean = [cell[0] for cell in cells]
            low, high = ([m + sign * half for m, half in cells] for sign in (-1, 1))
            label = f"{name} ({column})"
            lines.append(Series(label, list(budgets), mean, low, high))
    return Chart(f"fig-2-{data}", f"Fig 2: mean of {_DATA[data]} values", _AXIS, "MAE of the mean", lines, log_y=True)


def _finding(found: Mapping[Any, Any], cost: float) -> str:
    """Say what the numbers say."""

    def ratios(column: str, name: str, to: tuple[str, str]) -> list[float]:
        return _ratios(found, (column, name), to)

    hier = (_PUBLISHED, "HierA, mu 2")
    wins = [ratio > 1 for name in _RIVALS for ratio in ratios(_PUBLISHED, name, hier)]
    steep = [
        other[0] < own[0]
        for other, own in zip(
            found["exponential", _PUBLISHED, "graded Laplace"], found["exponential", *hier], strict=True
        )
    ]
    return (
        f"As published, HierA has the smaller error in {sum(wins)} of {len(wins)} comparisons; on exponential values, "
        f"which begin at -1 here, that of graded Laplace is smaller at {sum(steep)} of {len(steep)} budgets. HierA "
        f"keeps a weaker promise: the pair of level and sign costs up to {cost:.2f} e, and graded Laplace has no "
        "epsilon at all. At "
        f"LHP's own exact matrix, relative to HierA: LHP read directly {_span(ratios(_SAME, 'LHP, direct', hier))}, by "
        f"maximum likelihood {_span(ratios(_SAME, 'LHP, maximum likelihood', hier))}, Harmony "
        f"{_span(ratios(_SAME, 'Harmony', hier))}, OptimalGraded {_span(ratios(_SAME, 'ours: OptimalGraded', hier))}, "
        f"and by maximum likelihood {_span(ratios(_SAME, 'ours: OptimalGraded, maximum likelihood', hier))}."
    )
