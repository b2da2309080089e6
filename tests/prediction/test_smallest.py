"""The smallest collections: one user, one dimension, one report. They are planned as others are, and nothing below."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import noisette as nz
from noisette.enhancement import relative_gain
from noisette.planner.page import page
from noisette.prediction import combine, compare, joint, plan
from noisette.prediction.graded import plan_levels, simulated
from noisette.prediction.model.deviations import deviation
from noisette.prediction.offers import best_report
from noisette.prediction.sweeps import break_even_curve

LEVELS: Any = {"edges": [-1, 0, 1], "epsilons": [2.0, 1.0]}
PAIR = nz.Attributes((nz.Categorical(2), nz.Interval()))


def first(aggregate: Any) -> float:
    return float(aggregate.estimate().value[0])


# what is asked for, by the number that is as small as it may be
SMALLEST: dict[str, Callable[[int], Any]] = {
    "plan users": lambda n: plan(users=n, epsilon=1.0),
    "plan dims": lambda n: plan(users=10, dims=n, epsilon=1.0),
    "plan report": lambda n: plan(users=10, dims=3, report=n, epsilon=1.0, mechanisms=["duchi"]),
    "combine users": lambda n: combine(PAIR, users=n, epsilon=1.0),
    "combine report": lambda n: combine(PAIR, users=10, report=n, epsilon=1.0),
    "compare users": lambda n: compare([nz.Duchi(1.0)], users=n),
    "joint users": lambda n: joint(nz.Sampled("duchi", 1.0, 3, report=1), users=n),
    "deviation users": lambda n: deviation(nz.Duchi(1.0), users=n),
    "curve users": lambda n: break_even_curve("duchi", "laplace", over="epsilon", points=[1.0], users=n),
    "curve dims": lambda n: break_even_curve("duchi", "laplace", over="epsilon", points=[1.0], users=5, dims=n),
    "curve report": lambda n: break_even_curve("duchi", "laplace", over="report", points=[n], users=5, dims=3),
    "levels users": lambda n: plan_levels(users=n, **LEVELS),
    "page users": lambda n: page(users=n, epsilon=1.0, mechanisms=["duchi"]),
    "page dims": lambda n: page(users=9, dims=n, epsilon=1.0, mechanisms=["duchi"]),
    "page report": lambda n: page(users=9, dims=3, report=n, epsilon=1.0, mechanisms=["duchi"]),
    "personalised dims": lambda n: nz.prediction.Personalised.of("duchi", epsilons=[1.0, 2.0], dims=n),
    "simulated users": lambda n: simulated(nz.LevelledResponse(**LEVELS), first, users=n, values=[0.5]),
    "simulated draws": lambda n: simulated(nz.LevelledResponse(**LEVELS), first, users=9, values=[0.5], draws=n + 1),
}


@pytest.mark.parametrize("name", SMALLEST)
def test_one_is_enough_and_none_is_refused(name: str) -> None:
    assert SMALLEST[name](1) is not None
    with pytest.raises(ValueError, match=name.split()[1]):
        SMALLEST[name](0)


def test_one_user_leaves_the_error_of_one_report() -> None:
    for x in (-1.0, 0.3, 1.0):
        found = deviation(nz.Duchi(1.0), users=1, values=[x])
        assert found.std == pytest.approx(math.sqrt(float(nz.Duchi(1.0).moments(x).variance)), rel=1e-12)


def test_a_reading_that_is_off_has_that_bias() -> None:
    """Direct estimates are unbiased about what is held; one that adds 0.3 is off by it, and twice one by the mean."""
    mechanism = nz.LevelledResponse(**LEVELS)
    known: Any = {"users": 400, "values": [0.5, -0.25], "probs": [0.75, 0.25], "draws": 400, "rng": 3}
    bias, std = simulated(mechanism, first, **known)
    assert abs(bias) < 5 * std / 20
    shifted = simulated(mechanism, lambda counted: first(counted) + 0.3, **known)
    assert shifted == pytest.approx((bias + 0.3, std), rel=1e-9)
    twice = simulated(mechanism, lambda counted: 2 * first(counted), **known)
    assert twice == pytest.approx((2 * bias + 0.3125, 2 * std), rel=1e-9)


def test_the_gain_is_a_share_of_what_the_raw_estimate_would_leave() -> None:
    errors = np.asarray([0.1, 0.3, np.inf])
    raw = nz.Estimate(np.asarray([0.0, 1.0, np.nan]), errors, np.asarray([5, 5, 0]))
    known, unknown = (nz.Estimate(raw.value, errors, raw.count, expected_gain=gain) for gain in (0.02, None))
    assert relative_gain(raw, known) == pytest.approx(0.02 / 0.05)
    assert relative_gain(raw, unknown) == 0.0
    nothing = nz.Estimate(raw.value[2:], errors[2:], raw.count[2:])
    assert relative_gain(nothing, known) == 0.0


def test_dimensions_hang_together_as_they_do_where_the_box_is_moved() -> None:
    """How reports about a whole vector vary together does not depend on where zero is."""
    rows, probs = np.asarray([[0.5, -0.8, 0.1], [-1.0, 0.9, 0.4]]), [0.3, 0.7]
    plain = joint(nz.DuchiBox(1.0, domain=nz.Box(3)), users=50, values=rows, probs=probs)
    shift = np.asarray([10.0, -3.0, 0.25])
    moved = nz.DuchiBox(1.0, domain=nz.Box(3, -1 + shift, 1 + shift))
    found = joint(moved, users=50, values=rows + shift, probs=probs)
    np.testing.assert_allclose(found.covariance, plain.covariance, rtol=1e-9, atol=1e-12)
    assert np.abs(plain.covariance - np.diag(np.diag(plain.covariance))).max() > 1e-3


def test_the_third_moment_of_unknown_selections_covers_every_selection() -> None:
    mechanism: Any = nz.CATALOGUE["privset"].example(1.0)
    domain = mechanism.domain
    found = deviation(mechanism, users=10)
    options = range(domain.size)
    chosen = [one for size in range(domain.most + 1) for one in itertools.combinations(options, size)]
    rows = np.asarray([[*one, *[-1] * (domain.most - len(one))] for one in chosen])
    third = mechanism.moments(rows).third
    assert found.third.shape == (domain.size + 1,)
    assert np.all(found.third * (1 + 1e-12) >= third.max(axis=0))
    full = mechanism.moments(rows[-1]).third  # the most that may be chosen
    assert found.third[0] == pytest.approx(full[:-1].max(), rel=1e-12)
    assert found.third[-1] == pytest.approx(third[:, -1].max(), rel=1e-12)


def test_a_value_beside_an_edge_keeps_its_level() -> None:
    """On both sides of an edge the law is another: a value that is moved to a grid would have the wrong one."""
    mechanism = nz.LevelledResponse([-1, 0.1, 1], [3.0, 0.5])
    for x in (0.1 - 1e-6, 0.1 + 1e-6):
        _, std = simulated(mechanism, first, users=1000, values=[x], draws=4000)
        assert std == pytest.approx(math.sqrt(float(mechanism.moments(x).variance) / 1000), rel=0.06)
    near = [math.sqrt(float(mechanism.moments(x).variance)) for x in (0.1 - 1e-6, 0.1 + 1e-6)]
    assert abs(near[0] / near[1] - 1) > 0.15


SCALES = [1e-9, 1e9]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", ["square-wave", "piecewise", "laplace", "duchi", "hybrid", "sliding-half"])
def test_a_plan_on_a_range_of_another_size(name: str, scale: float) -> None:
    """Errors on a range a billion times as long are a billion times as large, whether values are known or not."""
    unit, other = nz.Interval(-1, 1), nz.Interval(-scale, scale)
    for known in ({}, {"values": np.asarray([0.1, 0.4, 1.0])}):
        here = plan(users=300, epsilon=1.0, domain=unit, mechanisms=[name], **known).best
        there = {key: value * scale for key, value in known.items()}
        found = plan(users=300, epsilon=1.0, domain=other, mechanisms=[name], **there).best
        assert found.mse == pytest.approx(scale**2 * here.mse, rel=1e-6)
        assert found.std == pytest.approx(scale * here.std, rel=1e-6)
        bias = scale * abs(here.bias)  # the worst values may be at either end
        assert abs(found.bias) == pytest.approx(bias, rel=1e-6, abs=1e-9 * scale)


@pytest.mark.parametrize("scale", SCALES)
def test_records_on_a_range_of_another_size(scale: float) -> None:
    values = np.asarray([[0.1, 0.3], [0.9, -0.5]])
    found = [
        combine(
            nz.Attributes((nz.Interval(-size, size), nz.Interval(-size, size))),
            users=300, epsilon=1.0, mechanisms=["square-wave"], values=size * values,
        )
        for size in (1.0, scale)
    ]  # fmt: skip
    assert found[1].mse == pytest.approx(scale**2 * found[0].mse, rel=1e-6)


def test_the_best_number_of_dimensions_is_found_wherever_it_is() -> None:
    for dims in (1, 2, 3, 10, 97):
        for best in range(1, dims + 1):
            assert best_report(lambda m, best=best: abs(m - best), dims) == best
