"""Cases that larger ones hide: two dimensions, tails beyond float64, budgets near zero, categories that are unlike."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tests.prediction.test_responses import Uneven

import noisette as nz
from noisette.planner import tables
from noisette.prediction import combine, joint
from noisette.prediction.curves import Known, curve
from noisette.prediction.graded import plan_levels
from noisette.prediction.joint import box_probability
from noisette.prediction.model.populations import Population
from noisette.prediction.model.records import Errors, Group
from noisette.prediction.model.responses import entry_domain

ROWS = np.random.default_rng(1).uniform(-1, 1, (50, 3))
FAR = math.inf


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("inner", ["duchi", "square-wave"])
def test_a_record_of_numbers_varies_as_the_vector_does(dims: int, inner: str) -> None:
    """Who reports one attribute leaves the others out: the same law, by two formulas."""
    box: Any = nz.Sampled(inner, epsilon=3.0, dims=dims, report=1)
    record: Any = nz.SampledAttributes(inner, epsilon=3.0, domain=nz.Attributes((nz.Interval(),) * dims), report=1)
    found, wanted = (joint(one, users=50, values=ROWS[:, :dims]) for one in (record, box))
    assert found.covariance == pytest.approx(wanted.covariance, rel=1e-9, abs=1e-15)
    assert found.bias == pytest.approx(wanted.bias, rel=1e-9, abs=1e-15)


@pytest.mark.parametrize(
    ("low", "high"), [([9, 9], [FAR, FAR]), ([-FAR, -FAR], [-40, -40]), ([9, -40], [FAR, -39]), ([-FAR, 9], [FAR, FAR])]
)
def test_where_next_to_nothing_is_left_the_chance_is_a_number(low: list[float], high: list[float]) -> None:
    """Of 9 deviations and more float64 knows a chance of one below; of -40, of zero."""
    chance = box_probability(np.asarray(low, float), np.asarray(high, float), np.asarray([[1.0, 0.5], [0.5, 1.0]]))
    assert 0 <= chance < 1e-15


def test_the_domain_of_one_entry_is_where_all_entries_may_be_at_once() -> None:
    assert entry_domain(nz.L2Ball(4, 2.0)) == nz.Interval(-1, 1)
    assert entry_domain(nz.TensorBall((2, 8), radius=2.0)) == nz.Interval(-0.5, 0.5)
    assert entry_domain(nz.TensorDomain((2, 3), -1, 3)) == nz.Interval(-1, 3)
    assert entry_domain(nz.Box(2, -1, 3)) == nz.Interval(-1, 3)
    assert entry_domain(nz.Categorical(3)) == nz.Categorical(3)
    rows = entry_domain(nz.TensorBall((4, 3), radius=1.0, mode=0))
    assert isinstance(rows, nz.Interval)
    assert (rows.low, rows.high) == pytest.approx((-1 / math.sqrt(3), 1 / math.sqrt(3)))


def test_a_sample_of_the_only_dimension_is_its_mechanism_at_every_value() -> None:
    """Forty values are no fewer for a sample; a whole vector is evaluated at nine that stand for them."""
    rng = np.random.default_rng(2)
    people = Population(np.sort(rng.uniform(-1, 1, 40)), rng.dirichlet(np.ones(40))[None], np.ones(1))
    alone: Any = nz.SquareWave(1.0)
    sample: Any = nz.Sampled("square-wave", epsilon=1.0, dims=1, report=1)
    found, wanted = curve(sample, people), curve(alone, people)
    assert isinstance(found, Known)
    assert isinstance(wanted, Known)
    assert (found.noise, found.square) == pytest.approx((wanted.noise, wanted.square), rel=1e-12)
    moments = alone.moments(people.points)  # a biased report adds no noise: all users are known
    assert wanted.noise == pytest.approx(float(people.weights[0] @ moments.variance), rel=1e-9)


def test_attributes_of_unlike_categories_err_as_each_population_says() -> None:
    """No mechanism of the catalogue tells categories apart; one that is registered may."""
    codes, weights = np.arange(4.0), np.asarray([[0.1, 0.2, 0.3, 0.4], [0.7, 0.1, 0.1, 0.1]])
    group = Group(nz.Categorical(4), np.arange(2), codes, weights)
    found = group.curves(Uneven(), 1.0)
    assert isinstance(found, Errors)
    variance = np.where(np.eye(4, dtype=bool), 2.0, 1.0) + np.arange(4)[:, None] / 8
    bias = 0.125 * weights  # of the own category alone
    wanted = (weights @ variance).mean(axis=1) / 100 + (bias**2).mean(axis=1)
    assert found.at(100) == pytest.approx(wanted)
    assert found.average().at(100) == pytest.approx(wanted.mean())
    assert found.average().bias == pytest.approx(bias.mean())


@pytest.mark.slow
def test_no_attribute_gets_a_budget_that_no_mechanism_takes() -> None:
    """A thousandth of the budget or a millionth, whichever is more: of a small budget it is the millionth."""
    unlike = nz.Attributes((nz.Interval(0, 1e-3), nz.Interval(0, 1000)))
    for epsilon, least in ((1e-4, 1e-6), (1e-3, 1e-6), (1.0, 1e-3)):
        made = combine(unlike, users=1000, epsilon=epsilon)
        budgets = [one.epsilon for one in made.mechanism.inner_mechanisms]
        assert least <= min(budgets) < 1.3 * least
        assert sum(budgets) == pytest.approx(epsilon)


def test_a_plan_of_levels_spends_no_delta() -> None:
    made = plan_levels(users=1000, edges=[-1, 0, 1], epsilons=[1e-3, 1e-3])
    assert (made.delta, made.dims, made.users, made.break_even) == (0.0, 1, 1000, ())


def test_a_mechanism_whose_budget_is_no_field_is_built_at_any() -> None:
    for epsilon in (0.5, 2.0):
        assert tables._AnyBudget("levelled", 1).build(epsilon).guarantee.epsilon == pytest.approx(epsilon)
        assert tables._AnyBudget("laplace", 1).build(epsilon).epsilon == epsilon


def test_budgets_that_are_slow_here_and_there_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = [(1.5, 2.0), (3.0, 4.0), (7.0, 20.0)]
    name = next(one for one, kind in nz.CATALOGUE.items() if kind.capabilities.slow_start and tables._offer(one, 1))
    monkeypatch.setattr(tables._AnyBudget, "_is_slow", lambda self, e: any(a <= e <= b for a, b in slow))
    found = list(tables._AnyBudget(name, 1).quick_ranges(1.0, 10.0))
    assert np.allclose(found, [(1.0, 1.5), (2.0, 3.0), (4.0, 7.0)], rtol=1e-12)
