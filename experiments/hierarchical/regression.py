"""Fig 3: linear regression of income by private gradients, as published and at the same graded matrix."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from experiments.frame import Advance, Chart, Series, Study
from experiments.hierarchical.regression_data import TARGET, design, people
from noisette import LevelledResponse, PrivacyWarning
from noisette.regression import Training, coding_for
from noisette.regression.graded import FIVE_LEVELS, ChosenLevelLaplace, ChosenLevelOptimal

_FOLDS = 5
_EDGES = (*(round(low, 9) for low, _, _ in FIVE_LEVELS), 1.0)
_PUBLISHED, _SAME = "published", "same matrix"


def fig_3(full: bool, advance: Advance) -> Study:
    """Return the errors of every method, over repeated cross-validation."""
    budgets = (0.1, 0.2, 0.4, 0.8) if full else (0.2, 0.8)
    users, repeats = (60_000, 10) if full else (10_000, 1)
    rows, income = people()
    income = TARGET.to_canonical(np.clip(income, TARGET.low, TARGET.high))
    errors: dict[tuple[str, str], dict[float, list[float]]] = {}
    plain: list[tuple[float, float]] = []
    done, total = 0, len(budgets) * repeats * _FOLDS
    for repeat in range(repeats):
        chosen = np.random.default_rng(repeat).permutation(len(rows))[:users]
        for train, test in _folds(chosen):
            plain.append(_without_noise(rows, income, train, test))
            for budget in budgets:
                for key, training in _methods(budget).items():
                    model = training.run([(rows[train], TARGET.from_canonical(income[train]))], clip=True, rng=repeat)
                    predicted = training.design.encode(rows[test], outside="clip") @ model.average
                    error = float(np.mean(np.square(predicted - income[test])))
                    errors.setdefault(key, {}).setdefault(budget, []).append(error)
                done += 1
                advance(done / total)
    return _study(errors, budgets, plain, {"users": users, "repeats": repeats, "folds": _FOLDS})


def _methods(e: float) -> dict[tuple[str, str], Training]:
    """Return the trainings to compare at budgets 5e, 4e, 3e, 2e, e."""
    signed = design("signed")
    budgets = tuple(e * share for _, _, share in FIVE_LEVELS)
    levelled = LevelledResponse(_EDGES, budgets, personalised=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)  # that is the point of the column
        laplace = ChosenLevelLaplace(_EDGES, budgets, as_published=True)
    matrix = levelled.guarantee.matrix
    assert matrix is not None
    least = min(map(min, matrix))
    batch = math.ceil(signed.width * math.log(signed.width) / e**2)
    published: dict[str, Any] = {"step": 1.0, "average": False, "batch": batch}
    return {
        (_PUBLISHED, "Harmony"): Training(signed, TARGET, e, mechanism="harmony", **published),
        (_PUBLISHED, "PM"): Training(signed, TARGET, e, mechanism="piecewise", **published),
        (_PUBLISHED, "HM"): Training(signed, TARGET, e, mechanism="hybrid", **published),
        (_PUBLISHED, "graded Laplace"): Training(signed, TARGET, e, mechanism=laplace, **published),
        (_PUBLISHED, "LHP"): Training(signed, TARGET, e, mechanism=levelled, **published),
        (_SAME, "LHP, our steps"): Training(signed, TARGET, least, mechanism=levelled),
        (_SAME, "Harmony, our steps"): Training(signed, TARGET, least, mechanism="harmony"),
        (_SAME, "PM, our steps"): Training(signed, TARGET, least, mechanism="piecewise"),
        (_SAME, "HM, our steps"): Training(signed, TARGET, least, mechanism="hybrid"),
        (_SAME, "OptimalGraded"): Training(signed, TARGET, least, mechanism=ChosenLevelOptimal(_EDGES, matrix)),
        (_SAME, "ours: auto"): Training(design(coding_for(least)), TARGET, least),
    }


def _folds(chosen: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the users to train on and those to test on."""
    parts = np.array_split(chosen, _FOLDS)
    for place in range(_FOLDS):
        yield np.concatenate([part for other, part in enumerate(parts) if other != place]), parts[place]


def _without_noise(rows: Any, income: Any, train: Any, test: Any) -> tuple[float, float]:
    """Return the errors of least squares and of the mean income, without privacy."""
    columns = design("unit")
    weights = np.linalg.lstsq(columns.encode(rows[train], outside="clip"), income[train])[0]
    predicted = columns.encode(rows[test], outside="clip") @ weights
    return (
        float(np.mean(np.square(predicted - income[test]))),
        float(np.mean(np.square(income[train].mean() - income[test]))),
    )


def _study(errors: Any, budgets: tuple[float, ...], plain: Any, setting: dict[str, Any]) -> Study:
    """Put means and intervals into a table and two charts."""
    rows, lines = [], {_PUBLISHED: [], _SAME: []}  # type: ignore[var-annotated]
    means = {key: [float(np.mean(found[e])) for e in budgets] for key, found in errors.items()}
    for (column, name), found in errors.items():
        half = [1.96 * float(np.std(found[e], ddof=1) / math.sqrt(len(found[e]))) for e in budgets]
        mean = means[column, name]
        rows.append([column, name, *mean])
        low, high = ([m + sign * h for m, h in zip(mean, half, strict=True)] for sign in (-1, 1))
        lines[column].append(Series(name, list(budgets), mean, low, high))
    exact, middle = (float(np.mean(values)) for values in zip(*plain, strict=True))
    rows += [["no privacy", "least squares", *[exact] * len(budgets)], ["no privacy", "mean", *[middle] * len(budgets)]]
    axis = "smallest budget e; budgets 5e, 4e, 3e, 2e, e"
    error = "mean squared error of income on [-1, 1]"
    charts = [
        Chart(name, title, axis, error, lines[column], log_x=True, log_y=True)
        for name, title, column in (
            ("fig-3-published", "Fig 3, as published", _PUBLISHED),
            ("fig-3-same-matrix", "Fig 3, at LHP's own graded matrix", _SAME),
        )
    ]
    return Study(
        title="Fig 3: linear regression of income on the American Community Survey",
        claim=(
            "Graded Laplace and HierA predict better than Harmony and PM at the smallest budget, and HierA is the best "
            "of the four."
        ),
        finding=_finding(means, budgets, exact, middle),
        columns=["column", "method", *(f"MSE at e = {e:g}" for e in budgets)],
        rows=rows,
        setting=setting
        | {
            "data": "ACS 2024 persons who state an income, for IPUMS US 2010",
            "published": "batches of d ln(d) / e^2, steps 1/sqrt(t), ridge 1e-4, last model, categories as 1 and -1",
            "same matrix": "every mechanism keeps the exact matrix that LHP has at budgets 5e..e",
            "LHP's mean": "the direct unbiased one, each report used once (mu = 1)",
            "clipping": "the residual to [-1, 1], which bounds every entry",
            "intervals": "95 %, over the folds",
        },
        charts=charts,
    )


def _finding(means: Any, budgets: tuple[float, ...], exact: float, middle: float) -> str:
    """Say what the numbers say."""
    published = [means[key] for key in means if key[0] == _PUBLISHED]
    ours = means[_SAME, "ours: auto"]
    points = len(published) * len(budgets)

    def at(column: str, name: str) -> str:
        return " / ".join(f"{mean:.3g}" for mean in means[column, name])

    def wins(first: tuple[str, str], second: tuple[str, str]) -> int:
        return sum(a < b for a, b in zip(means[first], means[second], strict=True))

    over = sum(mean > middle for row in published for mean in row)
    beaten = sum(our < mean for row in published for our, mean in zip(ours, row, strict=True))
    return (
        f"At e = {' / '.join(f'{e:g}' for e in budgets)}, as published: Harmony {at(_PUBLISHED, 'Harmony')}, "
        f"PM {at(_PUBLISHED, 'PM')}, graded Laplace {at(_PUBLISHED, 'graded Laplace')}, LHP {at(_PUBLISHED, 'LHP')}. "
        f"LHP is below Harmony at {wins((_PUBLISHED, 'LHP'), (_PUBLISHED, 'Harmony'))} of {len(budgets)} budgets, "
        f"below graded Laplace at {wins((_PUBLISHED, 'LHP'), (_PUBLISHED, 'graded Laplace'))}. But it has up to 5e where "
        "Harmony and PM have e, its pair of level and sign costs more than 5e, and graded Laplace keeps no epsilon at "
        f"all. {over} of {points} published errors are above {middle:.3g}, what predicting the mean income costs: "
        "steps of 1/sqrt(t) on so noisy gradients do harm. At LHP's own matrix, with our steps: LHP "
        f"{at(_SAME, 'LHP, our steps')}, Harmony {at(_SAME, 'Harmony, our steps')}, OptimalGraded "
        f"{at(_SAME, 'OptimalGraded')}, what auto takes {at(_SAME, 'ours: auto')}, which is below "
        f"the published errors at {beaten} of {points} points. Least squares without privacy has {exact:.3g}."
    )
