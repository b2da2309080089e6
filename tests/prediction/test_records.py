"""Prediction for records of many attributes, and the best mechanism for each of them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize_scalar

import noisette as nz
from noisette.prediction import Deviation, break_even, combine, compare, deviation, plan

FALSE_ALARM = 1e-6
SIZES = (2, 5, 3)
RECORD = nz.Attributes(SIZES)
ORACLES = ("grr", "oue", "sue", "olh", "subset-selection", "hadamard", "histogram", "pgr")


def people(users: int) -> np.ndarray:
    rng = np.random.default_rng(11)
    return np.column_stack([np.minimum(rng.geometric(0.5, users) - 1, size - 1) for size in SIZES])


def agrees(found: np.ndarray, predicted: Deviation, j: int, *, tests: int) -> bool:
    """Kolmogorov-Smirnov within the Berry-Esseen bound, and a normal test of the variance."""
    bias, std, bound = (np.asarray(a)[j] for a in (predicted.bias, predicted.std, predicted.berry_esseen))
    column = found[:, j]
    chance = math.sqrt(math.log(4 * tests / FALSE_ALARM) / (2 * len(column)))
    squares = (column - column.mean()) ** 2
    limit = -stats.norm.ppf(FALSE_ALARM / 4 / tests)
    near = abs(squares.mean() - std**2) <= limit * squares.std() / math.sqrt(len(column))
    return bool(near and stats.kstest(column, stats.norm(bias, std).cdf).statistic <= bound + chance)


@pytest.mark.long
@pytest.mark.parametrize("inner", [*ORACLES, ("grr", "oue", "olh")])
def test_prediction_against_collections(inner: Any) -> None:
    """3,000 users report one of three attributes, 1,000 reports each; the twin forgets who happens to report."""
    rows = people(3000)
    mechanism = nz.SampledAttributes(inner, epsilon=4.0, domain=RECORD, report=1)
    predicted = deviation(mechanism, users=3000, values=rows)
    truth = RECORD.expand(rows).mean(axis=0)
    rng = np.random.default_rng(12)
    found = np.asarray(
        [mechanism.aggregate(mechanism.privatize(rows, rng=rng)).estimate().value - truth for _ in range(300)]
    )
    assert predicted.reports == 1000
    for j in range(10):
        assert agrees(found, predicted, j, tests=80)
    if inner == "grr":
        alone = [inner.moments(rows[:, j]).variance.mean(axis=0) for j, inner in enumerate(mechanism.inner_mechanisms)]
        wrong = replace(predicted, std=np.sqrt(np.concatenate(alone) / 1000))
        assert not all(agrees(found, wrong, j, tests=80) for j in range(10))


@pytest.mark.parametrize("inner", ORACLES)
def test_rows_and_histograms_say_the_same(inner: str) -> None:
    """By whole records, by attribute groups, and by the formula (E var + (1 - m/d) f (1 - f)) / r."""
    rows = people(400)
    mechanism = nz.SampledAttributes(inner, epsilon=2.0, domain=RECORD, report=2)
    dev = deviation(mechanism, users=400, values=rows)
    starts = np.cumsum([0, *SIZES])
    reports = 400 * 2 / 3
    for j, inner_mechanism in enumerate(mechanism.inner_mechanisms):
        own = slice(starts[j], starts[j + 1])
        frequency = np.bincount(rows[:, j], minlength=SIZES[j]) / 400
        noise = inner_mechanism.moments(rows[:, j]).variance.mean(axis=0)
        assert dev.std[own] ** 2 == pytest.approx((noise + frequency * (1 - frequency) / 3) / reports, rel=1e-9)
    candidate = compare([mechanism], users=400, values=rows)[0]
    assert candidate.mse == pytest.approx(float(dev.mse.mean()), rel=1e-9)
    assert candidate.report == 2


def test_no_distribution_leaves_the_range() -> None:
    mechanism = nz.SampledAttributes("subset-selection", epsilon=3.0, domain=RECORD, report=1)
    unknown, candidate = deviation(mechanism, users=50), compare([mechanism], users=50)[0]
    rng = np.random.default_rng(13)
    for _ in range(100):
        rows = np.column_stack([rng.choice(size, 40, p=rng.dirichlet(np.full(size, 0.4))) for size in SIZES])
        dev = deviation(mechanism, users=50, values=rows)
        assert np.all(dev.mse <= unknown.range[1] * (1 + 1e-9))
        assert np.all(dev.mse >= unknown.range[0] * (1 - 1e-9))
        assert candidate.range[0] * (1 - 1e-9) <= dev.mse.mean() <= candidate.range[1] * (1 + 1e-9)
    even = np.column_stack([np.arange(30) % size for size in SIZES])
    pure = np.zeros((5, 3), dtype=int)
    found = [deviation(mechanism, users=50, values=rows).mse.mean() for rows in (pure, even)]
    assert candidate.range == pytest.approx(found, rel=1e-9)


def test_mixed_records() -> None:
    """A number and categories: each as its own mechanism says."""
    domain = nz.Attributes((nz.Interval(0, 10), 4))
    mechanism = nz.SampledAttributes(("piecewise", "grr"), epsilon=2.0, domain=domain, report=2)
    rows = np.column_stack([np.linspace(1, 9, 60), np.arange(60) % 4])
    dev = deviation(mechanism, users=60, values=rows)
    number = deviation(nz.Piecewise(1.0, domain=nz.Interval(0, 10)), users=60, values=rows[:, 0])
    categories = deviation(nz.GeneralizedRandomizedResponse(1.0, nz.Categorical(4)), users=60, values=np.arange(4))
    assert dev.std[0] == pytest.approx(number.std, rel=1e-9)
    assert dev.std[1:] == pytest.approx(categories.std, rel=1e-9)
    same = deviation(mechanism, users=60, values=[1, 2, 3])
    assert same.std.shape == (5,)


def test_one_list_of_values_stands_for_every_attribute() -> None:
    mechanism = nz.SampledAttributes("oue", epsilon=1.0, domain=nz.Attributes((4, 4)), report=1)
    one = deviation(mechanism, users=10, values=[0, 1, 1, 3])
    rows = deviation(mechanism, users=10, values=[[0, 0], [1, 1], [1, 1], [3, 3]])
    assert one.std == pytest.approx(rows.std, rel=1e-12)


@pytest.mark.slow
def test_plans_of_categories() -> None:
    made = plan(users=10_000, dims=6, epsilon=2.0, domain=nz.Categorical(9))
    assert {c.mechanism for c in made.candidates} == {*ORACLES, "sampled-attributes"}
    assert made.best.mse == pytest.approx(min(c.mse for c in made.candidates))
    for candidate in made.candidates:
        built = candidate.build()
        assert built.guarantee.epsilon == pytest.approx(2.0)
        assert compare([built], users=10_000)[0].mse == pytest.approx(candidate.mse, rel=1e-9)
        each = [
            compare([nz.SampledAttributes(built.inner, 2.0, built.domain, report=m)], users=10_000)[0].mse
            for m in range(1, 7)
        ]
        assert candidate.mse <= min(each) * (1 + 1e-9)
    uneven = plan(users=10_000, epsilon=2.0, domain=nz.Attributes((2, 300)), values=[[0, 5], [1, 299], [1, 7]])
    assert uneven.dims == 2
    assert uneven.best.build().domain.groups == (2, 300)


def test_break_even_of_records_is_none_without_bias() -> None:
    one, two = (nz.SampledAttributes(name, epsilon=1.0, domain=RECORD, report=1) for name in ("grr", "oue"))
    assert break_even(one, two, values=people(30)) is None


def test_the_best_mechanism_for_each_attribute() -> None:
    """Randomised response for few categories, unary encoding for many; together better than either."""
    domain = nz.Attributes((2, 2, 200))
    best = combine(domain, users=1000, epsilon=1.0, report=1, mechanisms=["grr", "oue"])
    assert best.names == ("grr", "grr", "oue")
    singles = [
        compare([nz.SampledAttributes(name, 1.0, domain, report=1)], users=1000)[0].mse for name in ("grr", "oue")
    ]
    assert best.mse < min(singles)
    assert compare([best.mechanism], users=1000)[0].mse == pytest.approx(best.mse, rel=1e-9)
    sizes = np.asarray(domain.groups)
    assert best.mse == pytest.approx(sizes @ best.errors / sizes.sum(), rel=1e-9)
    every = [
        compare([nz.SampledAttributes(names, 1.0, domain, report=1)], users=1000)[0].mse
        for names in ((a, b, c) for a in ("grr", "oue") for b in ("grr", "oue") for c in ("grr", "oue"))
    ]
    assert best.mse == pytest.approx(min(every), rel=1e-9)


def test_numbers_that_differ_get_mechanisms_that_differ() -> None:
    """A dimension at the middle suits Piecewise, one at an end Duchi: by each dimension's own error."""
    domain = nz.Attributes((nz.Interval(), nz.Interval()))
    rows = np.column_stack([np.full(50, 0.0), np.full(50, 1.0)])
    best = combine(domain, users=500, epsilon=2.0, report=1, mechanisms=["duchi", "piecewise"], values=rows)
    assert best.names == ("piecewise", "duchi")
    for name, value, error in zip(best.names, (0.0, 1.0), best.errors, strict=True):
        assert error == pytest.approx(deviation(nz.CATALOGUE[name](2.0), users=250, values=[value]).mse, rel=1e-6)


def test_the_split_of_a_budget_is_near_the_optimum() -> None:
    """Two numbers, one ten times as wide, by Laplace: minimise 100 / s^2 + 1 / (1 - s)^2 over the share s."""
    domain = nz.Attributes((nz.Interval(-10, 10), nz.Interval(-1, 1)))
    best = combine(domain, users=1000, epsilon=1.0, report=2, mechanisms=["laplace"])
    truth = minimize_scalar(lambda s: 100 / s**2 + 1 / (1 - s) ** 2, bounds=(0.1, 0.99), method="bounded")
    assert best.mechanism.shares is not None
    assert best.mechanism.shares[0] == pytest.approx(truth.x, rel=0.1)
    optimum = truth.fun * 8 / 1000 / 2
    assert optimum * (1 - 1e-6) <= best.mse <= 1.03 * optimum
    even = compare([nz.SampledAttributes("laplace", 1.0, domain, report=2)], users=1000)[0].mse
    assert best.mse < 0.5 * even
    assert nz.exact_epsilon(best.mechanism) <= 1.0


def test_no_mechanism_fits() -> None:
    with pytest.raises(ValueError, match="No mechanism for"):
        combine(nz.Attributes((2, nz.Interval())), users=10, epsilon=1.0, mechanisms=["grr"])
    with pytest.raises(ValueError, match="takes numbers of an interval, got an attribute of"):
        plan(users=10, epsilon=1.0, domain=RECORD, mechanisms=["laplace"])
    with pytest.raises(ValueError, match="Expected values in"):
        plan(users=10, epsilon=1.0, domain=RECORD, values=[[0, 9, 0]])
