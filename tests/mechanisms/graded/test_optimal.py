"""OptimalGraded: optimality against another programme and by duality, the exact matrix, the cache, and bad input."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.special import ndtri
from scipy.stats import chi2

import noisette as nz
from noisette.aggregation import load
from noisette.mechanisms import _solved
from noisette.mechanisms.graded import _programme, _table

LEVELS = {"edges": [-1, -0.5, 0.5, 1], "epsilons": [0.6, 1.8, 1.0]}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOISETTE_CACHE", str(tmp_path_factory.getbasetemp() / "graded"))


def plain_optimum(points: Any, levels: Any, matrix: Any, outputs: Any, worst: bool) -> float:
    """The same programme written out: a variable for each chance, a row for each two points, solved by the simplex."""
    k, m = len(points), len(outputs)
    rows = []
    for i in range(k):
        for j in range(k):
            for y in range(m):
                row = np.zeros(k * m + 1)
                row[i * m + y] += 1
                row[j * m + y] -= math.exp(matrix[levels[i]][levels[j]])
                rows += [row] if i != j else []
    equal, right = [], []
    for i in range(k):
        for values, total in ((np.ones(m), 1.0), (outputs, points[i])):
            row = np.zeros(k * m + 1)
            row[i * m : (i + 1) * m] = values
            equal.append(row)
            right.append(total)
        if worst:
            row = np.zeros(k * m + 1)
            row[i * m : (i + 1) * m], row[-1] = np.square(outputs), -1
            rows.append(row)
    limits = np.zeros(len(rows))
    if worst:
        limits = np.asarray([0.0 if row[-1] == 0 else points[int(np.flatnonzero(row)[0]) // m] ** 2 for row in rows])
        cost = np.append(np.zeros(k * m), 1.0)
    else:
        cost = np.append(np.tile(np.square(outputs), k) / k, 0.0)
    found = linprog(cost, np.asarray(rows), limits, np.asarray(equal), right, bounds=(0, None), method="highs-ds")
    return float(found.fun) - (0.0 if worst else float(np.mean(np.square(points))))


@pytest.mark.parametrize("worst", [True, False])
@pytest.mark.parametrize("levels", [[0, 0, 1, 1, 2, 2], [0, 1, 2, 3, 4, 5]])
def test_solution_is_the_optimum_of_another_programme(levels: list[int], worst: bool) -> None:
    points = np.asarray([-1, -0.4, -0.4, 0.3, 0.3, 1.0]) if levels[1] == 0 else np.linspace(-1, 1, 6)
    size = max(levels) + 1
    matrix = np.random.default_rng(size).uniform(0.5, 2.5, (size, size))
    outputs = np.linspace(-5, 5, 15)
    weights = None if worst else np.full(6, 1 / 6)
    found = _programme.solve(points, np.asarray(levels), matrix, outputs, weights)
    exact = plain_optimum(points, levels, matrix, outputs, worst)
    assert found.value == pytest.approx(exact, rel=1e-8)
    assert found.bound <= exact * (1 + 1e-9)
    assert found.value / found.bound - 1 < 1e-9
    # the twin: the optimum under budgets a tenth larger is another one, and beats the bound
    assert _programme.solve(points, np.asarray(levels), 1.1 * matrix, outputs, weights).value < found.bound * 0.99


@pytest.mark.slow
def test_one_budget_for_all_is_lp_optimal() -> None:
    """At one epsilon the best channel known, of 401 outputs and with a certificate, is met to a percent."""
    mechanism = nz.OptimalGraded(points=np.linspace(-1, 1, 9), matrix=np.full((9, 9), 0.5))
    worst = float(mechanism.moments(np.linspace(-1, 1, 9)).variance.max())
    assert worst == pytest.approx(float(nz.LpOptimal(0.5).moments(0.0).variance), rel=0.01)
    assert worst < float(nz.Duchi(0.5).moments(0.0).variance)


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["min", "max", "mean"])
@pytest.mark.parametrize("objective", ["worst", "average"])
def test_matrix_is_exact_and_within_what_was_asked(rule: str, objective: str) -> None:
    mechanism = nz.OptimalGraded(**LEVELS, rule=rule, points=10, objective=objective)
    asked = {"min": np.minimum, "max": np.maximum, "mean": lambda a, b: (a + b) / 2}[rule]
    target = np.asarray([[asked(a, b) for b in LEVELS["epsilons"]] for a in LEVELS["epsilons"]])
    stated = np.asarray(mechanism.guarantee.matrix)
    assert np.all(stated <= target)
    assert stated.max() > 0.99 * target.min()
    x = np.unique(np.concatenate([np.linspace(-1, 1, 201), [np.nextafter(-0.5, -1), np.nextafter(0.5, -1)]]))
    level = np.searchsorted([-0.5, 0.5], x, side="right")
    logs = mechanism.log_prob(np.asarray(mechanism.support.values), x[:, None])
    assert np.exp(logs).sum(axis=1) == pytest.approx(1, abs=1e-12)
    ratio = (logs[:, None] - logs).max(axis=2)
    found = np.asarray([[ratio[level == i][:, level == j].max() for j in range(3)] for i in range(3)])
    assert found == pytest.approx(stated, abs=1e-9)
    assert nz.exact_epsilon(mechanism) == pytest.approx(stated.max(), rel=1e-9)
    assert 0 <= mechanism.gap < 1e-6


@pytest.mark.slow
def test_average_objective_is_lower_on_average_and_worst_in_the_worst_case() -> None:
    points = np.linspace(-1, 1, 101)
    worst, average = (
        nz.OptimalGraded(**LEVELS, rule="max", points=10, objective=o).moments(points).variance
        for o in ("worst", "average")
    )
    assert average.mean() < worst.mean()
    assert worst.max() < average.max() * (1 + 1e-3)


@pytest.mark.slow
def test_unbiased_with_the_stated_variance() -> None:
    mechanism = nz.OptimalGraded(edges=[0, 10, 90, 100], epsilons=[0.6, 1.8, 0.6], rule="max", points=10)
    x = np.random.default_rng(1).uniform(0, 100, 200_000)
    moments = mechanism.moments(x)
    assert np.abs(moments.bias).max() < 1e-8
    estimate = mechanism.aggregate(mechanism.privatize(x, rng=2)).estimate()
    spread = math.sqrt(float(moments.variance.sum())) / x.size
    threshold = float(ndtri(1 - 1e-6 / 2)) * spread
    assert abs(float(estimate.value[0]) - x.mean()) < threshold
    # the twin: outputs stretched by 5 % are biased
    assert abs((float(estimate.value[0]) - 50) * 1.05 + 50 - (x.mean() + 5)) > threshold
    assert load(mechanism.aggregate(mechanism.privatize(x[:50], rng=2)).to_json()).users == 50


def test_input_discriminative_budgets() -> None:
    matrix = [[0, 2, 1], [2, 0, 1], [1, 1, 0]]
    mechanism = nz.OptimalGraded(points=[0, 1, 5], matrix=matrix)
    assert np.all(np.asarray(mechanism.guarantee.matrix) <= np.asarray(matrix))
    assert nz.exact_epsilon(mechanism) == mechanism.guarantee.epsilon
    assert mechanism.moments([0, 1, 5]).bias == pytest.approx(0, abs=1e-12)
    counts = mechanism.aggregate(mechanism.privatize(np.full(100_000, 5.0), rng=3)).total
    law = np.exp(mechanism.log_prob(np.asarray(mechanism.support.values), 5.0))
    assert ((counts - 1e5 * law) ** 2 / (1e5 * law)).sum() < chi2.isf(1e-6, law.size - 1)
    with pytest.raises(ValueError, match=r"Expected one of the 3 points, got 0\.5"):
        mechanism.privatize(0.5)
    assert np.array_equal(mechanism.privatize([0.4] * 9, clip=True, rng=1), mechanism.privatize([0.0] * 9, rng=1))


def test_a_rule_of_ones_own() -> None:
    mechanism = nz.OptimalGraded(**LEVELS, rule=lambda a, b: math.sqrt(a * b), points=8)
    assert mechanism.asked[0][1] == pytest.approx(math.sqrt(0.6 * 1.8))
    assert nz.from_spec(json.dumps(mechanism.spec())) == mechanism


@pytest.mark.long
def test_sixty_four_points() -> None:
    mechanism = nz.OptimalGraded(edges=[-1, -0.5, 0.5, 1], epsilons=[1.0, 2.0, 1.5], points=64)
    assert mechanism.slow_start or _table.is_stored(*mechanism._programme)
    assert mechanism.gap < 1e-6
    assert not mechanism.slow_start
    assert 4 * mechanism._positions.size > 250


class TestCache:
    """Solutions on disk."""

    @pytest.mark.slow
    def test_a_solution_is_solved_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("NOISETTE_CACHE", str(tmp_path))
        first = nz.OptimalGraded(**LEVELS, points=6).support
        (file,) = tmp_path.iterdir()
        monkeypatch.setattr(_programme, "best", lambda *_: pytest.fail("solved again"))
        assert nz.OptimalGraded(**LEVELS, points=6).support == first
        scaled = nz.OptimalGraded(edges=[0, 2.5, 7.5, 10], epsilons=LEVELS["epsilons"], points=6)
        assert scaled.support.high == pytest.approx(5 + 5 * first.high)  # the same programme on another interval
        assert len(list(tmp_path.iterdir())) == 1
        assert file.stat().st_size < 1 << 16

    @pytest.mark.slow
    @pytest.mark.parametrize("content", [b"", b"short", os.urandom(4000)])
    def test_a_damaged_one_is_solved_again(
        self, content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("NOISETTE_CACHE", str(tmp_path))
        first = nz.OptimalGraded(**LEVELS, points=6).support
        (file,) = tmp_path.iterdir()
        file.write_bytes(content)
        assert nz.OptimalGraded(**LEVELS, points=6).support == first

    def test_a_forged_one_that_breaks_the_matrix_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("NOISETTE_CACHE", str(tmp_path))
        mechanism = nz.OptimalGraded(**LEVELS, points=6)
        outputs, chances = np.asarray([-1.0, 0.0, 1.0]), np.eye(3)[np.arange(mechanism._positions.size) % 3]
        _solved.store(_table.cache_key(*mechanism._programme), np.concatenate([[1.0], outputs, chances.reshape(-1)]))
        with pytest.raises(RuntimeError, match="breaks its matrix"):
            _ = mechanism.guarantee


@pytest.mark.slow
def test_rounding_refuses_chances_that_break_the_matrix() -> None:
    """The twin of the exact check: one chance a hundredth of a percent too large is caught."""
    mechanism = nz.OptimalGraded(**LEVELS, points=6)
    table, (_, levels, matrix, _) = mechanism._solved, mechanism._programme
    assert _table._keeps(table.counts, levels, matrix)
    logs = np.log(table.counts)
    row, other = 0, int(np.argmax((logs[0] - logs).max(axis=1) >= matrix[0, levels].min() - 1e-6))
    column = int(np.argmax(logs[row] - logs[other]))
    broken = table.counts.copy()
    broken[row, column] += broken[row, column] // 10_000
    assert not _table._keeps(broken, levels, matrix)


def test_calibrate_scales_what_is_asked() -> None:
    mechanism = nz.OptimalGraded(**LEVELS, rule="max", points=8)
    total = mechanism.calibrate(total=0.9)
    assert total.epsilons == pytest.approx([0.3, 0.9, 0.5])
    graded = mechanism.calibrate(matrix=[[1.0, 3, 3], [3, 3, 3], [3, 3, 3]])
    assert graded.epsilons == pytest.approx([1.0, 3.0, 1.0 / 0.6])
    own = nz.OptimalGraded(edges=LEVELS["edges"], matrix=mechanism.asked, points=8).calibrate(total=0.9)
    assert np.asarray(own.asked) == pytest.approx(np.asarray(total.asked))
    assert np.all(np.asarray(own.guarantee.matrix) <= np.asarray(own.asked))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "Expected edges="),
        ({"edges": [0, 1]}, "Expected either epsilons="),
        ({"edges": [0, 1], "epsilons": [1.0], "matrix": [[1.0]]}, "Expected either epsilons="),
        ({"edges": [0, 1, 2], "matrix": [[1.0]]}, r"Expected matrix of shape \(2, 2\)"),
        ({"edges": [0, 1], "matrix": [[-1.0]]}, "Expected budgets >= 0 in matrix, got -1.0"),
        ({"edges": [0, 1], "epsilons": [1.0], "points": 1}, "Expected 2 <= points"),
        ({"edges": [0, 1], "epsilons": [1.0], "points": 1000}, "points <= 256"),
        ({"edges": [0, 1], "epsilons": [1e-6]}, "at least 0.01 between different values, got 1e-06"),
        ({"points": [0, 1], "matrix": [[0, 0], [1, 0]]}, "at least 0.01"),
        ({"edges": [0, 1], "epsilons": [1.0], "rule": "sum"}, "to be a function or one of min, max, mean"),
        ({"edges": [0, 1], "epsilons": [1.0], "objective": "best"}, "'worst' or 'average'"),
        ({"edges": [0, 1], "points": [0, 1], "epsilons": [1.0]}, "a list of points is a level each"),
        ({"points": [1, 0], "epsilons": [1.0, 1.0]}, "rising order"),
        ({"edges": [0, 2, 1], "epsilons": [1.0, 1.0]}, "rising order"),
    ],
)
def test_bad_input(options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        nz.OptimalGraded(**options)


@pytest.mark.slow
def test_pairs_without_a_bound() -> None:
    """An infinite entry asks for nothing; what is left must still hold."""
    mechanism = nz.OptimalGraded(edges=[-1, 0, 1], matrix=[[1.0, math.inf], [math.inf, 1.0]], points=np.int64(8))
    assert mechanism.calibrate(total=0.5).asked == ((0.5, 0.5), (0.5, 0.5))
    stated = np.asarray(mechanism.guarantee.matrix)
    assert np.all(np.diag(stated) <= 1)
    assert stated.max() > 1
    assert nz.from_spec(json.dumps(mechanism.spec())) == mechanism
    with pytest.raises(ValueError, match="positive, finite entries"):
        mechanism.calibrate(matrix=np.full((2, 2), math.inf))


def test_foreign_reports_and_values() -> None:
    mechanism = nz.OptimalGraded(**LEVELS, points=6)
    with pytest.raises(ValueError, match="outside the support of optimal-graded"):
        mechanism.aggregate([0.123])
    with pytest.raises(ValueError, match="Expected values in"):
        mechanism.privatize(3.0)
    with pytest.raises(ValueError, match="Expected finite values"):
        mechanism.privatize([math.nan])
    assert mechanism.log_prob(0.123, 0.0) == -math.inf


@pytest.mark.slow
def test_large_budgets_are_met_by_the_table_of_twenty() -> None:
    mechanism = nz.OptimalGraded(edges=[-1, 0, 1], epsilons=[1e3, 1e3], points=6)
    assert mechanism.guarantee.epsilon <= 20
    assert float(mechanism.moments(-1.0).variance) < 1e-3
