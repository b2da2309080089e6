"""Edges of predictions: what is just refused and just taken, groups of many values, and parts of plans."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from tests.held import Held, refusal

import noisette as nz
from noisette.core import Moments
from noisette.mechanisms.graded.levelled import LevelledResponse
from noisette.planner import tables
from noisette.prediction import curves, graded, sweeps, targets
from noisette.prediction.joint import joint
from noisette.prediction.model import correlations, deviations, populations, records, responses
from noisette.prediction.personalised import Personalised

HELD = Held(__file__)
UNIT = nz.Interval()
LAPLACE = nz.Laplace(1.0)
ONE = deviations.deviation(LAPLACE, users=70)
SEVERAL = joint(nz.Sampled("laplace", epsilon=1.0, dims=2, report=1), users=70)
GROUPS = Personalised.of("duchi", epsilons=[1.0, 2.0])
RECORD = nz.Attributes((nz.Categorical(3), nz.Interval(2, 9)))


def three(*numbers: float) -> Callable[[Any], Any]:
    return lambda last: populations.probabilities([*numbers, last], len(numbers) + 1)


# What is asked with a value that is just refused, and with one that is just taken.
EDGES: dict[str, tuple[Callable[[Any], Any], Any, Any]] = {
    "a distance of one": (ONE.probability_within, -1e-300, 0.0),
    "a distance of several": (SEVERAL.probability_within, -1e-300, 0.0),
    "distances of several": (SEVERAL.probability_within, [0.5, -1e-300], [0.5, 0.0]),
    "a level of one from below": (ONE.supremum, 0.0, 1e-9),
    "a level of one from above": (ONE.supremum, 1.0, 1 - 1e-9),
    "a level of several from below": (SEVERAL.supremum, 0.0, 1e-6),
    "a level of several from above": (SEVERAL.supremum, 1.0, 1 - 1e-6),
    "a chance": (three(0.5, 0.5), -1e-12, 0.0),
    "chances in all, too many": (three(0.5, 0.25), 0.25 + 1.1e-6, 0.25 + 0.9e-6),
    "chances in all, too few": (three(0.5, 0.25), 0.25 - 1.1e-6, 0.25 - 0.9e-6),
    "a significance from below": (lambda s: targets.check_targets(None, 0.8, 0.1, s), 0.0, 1e-12),
    "a significance from above": (lambda s: targets.check_targets(None, None, None, s), 1.0, 1 - 1e-12),
    "a power from below": (lambda p: targets.check_targets(None, p, 0.1, 0.05), 0.05, 0.0501),
    "a power from above": (lambda p: targets.check_targets(None, p, 0.1, 0.05), 1.0, 0.9999),
    "a power without an effect": (lambda e: targets.check_targets(None, 0.8, e, 0.05), None, 0.1),
    "an effect": (lambda e: targets.check_targets(None, None, e, 0.05), 0.0, 1e-300),
    "a target": (lambda e: targets.check_targets(e, None, None, 0.05), 0.0, 1e-300),
    "neither target": (lambda e: targets.population_needed(LAPLACE, mse=e), None, 1.0),
    "both targets": (lambda e: targets.population_needed(LAPLACE, mse=1.0, power=e, effect=0.1), 0.8, None),
    "values beside a distribution": (lambda v: populations.known(v, None, "uniform", UNIT), [0.5], None),
    "probabilities beside a distribution": (lambda p: populations.known(None, p, "uniform", UNIT), [1.0], None),
    "probabilities of nothing": (lambda p: populations.known(None, p, None, UNIT), [1.0], None),
    "a table for one dimension": (lambda v: populations.histogram(v, None, UNIT), [[0.5, 0.2]], [0.5, 0.2]),
    "a table of categories": (lambda d: populations.table([[0.5, 0.2]], None, d, dims=2), nz.Categorical(3), UNIT),
    "a name": (lambda n: populations.named(n, UNIT), "normal", "gaussian"),
    "too many parameters": (lambda n: populations.named(n, UNIT), "beta:1,2,3", "beta:1,2"),
    "too few parameters": (lambda n: populations.named(n, UNIT), "beta:1", "beta:1,1"),
    "a parameter that is no number": (lambda n: populations.named(n, UNIT), "beta:1,inf", "beta:1,9"),
    "a distribution of categories": (lambda d: populations.named("uniform", d), nz.Categorical(3), nz.Grid(0, 3)),
    "one weight too few": (lambda p: populations.probabilities(p, 2), [1.0], [0.5, 0.5]),
    "no group": (lambda m: Personalised(m), (), (LAPLACE,)),
    "a group of categories": (
        lambda m: Personalised((LAPLACE, m)),
        nz.GeneralizedRandomizedResponse(1.0, nz.Categorical(3)),
        LAPLACE,
    ),
    "groups of other dimensions": (
        lambda m: Personalised((nz.DuchiBox(1.0, dims=3), m)),
        nz.DuchiBox(1.0, dims=2),
        nz.DuchiBox(2.0, dims=3),
    ),
    "a choice too few": (lambda c: GROUPS.privatize([0.1, 0.2], c, rng=1), [1], [1, 0]),
    "a choice from below": (lambda c: GROUPS.privatize([0.1, 0.2], c, rng=1), [-1, 0], [0, 0]),
    "a choice from above": (lambda c: GROUPS.privatize([0.1, 0.2], c, rng=1), [1, 2], [1, 1]),
    "reports of a group too few": (GROUPS.aggregate, [[0.1]], [None, None]),
    "a kind of weights": (lambda k: GROUPS.weights([1, 2], k), "variance", "inverse-variance"),
    "users of a group too few": (GROUPS.weights, [3], [3, 4]),
    "users of a group below none": (GROUPS.weights, [3, -1], [3, 0]),
    "no users": (GROUPS.weights, [0, 0], [0, 1]),
    "values of a group too few": (lambda v: GROUPS.deviation([1, 2], values=v), [[0.1]], [[0.1], [0.2]]),
    "another's aggregate": (
        lambda other: GROUPS.aggregate([None, None]).merge(other),
        Personalised.of("duchi", epsilons=[1.0, 2.0, 3.0]).aggregate([None] * 3),
        GROUPS.aggregate([None, None]),
    ),
    "no aggregate": (lambda other: GROUPS.aggregate([None, None]).merge(other), 3, GROUPS.aggregate([None, None])),
    "a box of unlike bounds": (responses.entry_domain, nz.Box(2, (0, 0), (1, 2)), nz.Box(2, (0, 0), (1, 1))),
    "a box of unlike lower bounds": (responses.entry_domain, nz.Box(2, (0, 0.5), (1, 1)), nz.Box(2, (0, 0), (1, 1))),
    "a record's entry": (responses.entry_domain, RECORD, UNIT),
    "no mechanism": (lambda m: nz.plan(users=9, epsilon=1.0, mechanisms=m), [], ["laplace"]),
    "dimensions beside those of the domain": (
        lambda d: nz.plan(users=9, epsilon=1.0, dims=d, domain=nz.Box(3), mechanisms=["duchi"]),
        2,
        3,
    ),
    "more reports than dimensions": (
        lambda r: nz.plan(users=9, epsilon=1.0, dims=3, report=r, mechanisms=["duchi"]),
        4,
        3,
    ),
    "a curve over something": (
        lambda over: sweeps.break_even_curve("square-wave", "piecewise", over=over, points=[1], users=9, dims=2),
        "users",
        "dims",
    ),
    "a curve of no points": (
        lambda p: sweeps.break_even_curve("square-wave", "piecewise", over="epsilon", points=p, users=9),
        [],
        [1.0],
    ),
    "half a dimension": (
        lambda p: sweeps.break_even_curve("square-wave", "piecewise", over="report", points=p, users=9, dims=3),
        [1.5],
        [2.0],
    ),
    "more flips than are listed": (
        lambda r: graded.Reused(LevelledResponse(np.linspace(0, 1, 17), [1.0] * 16), r)._says,
        graded._MOST_FLIPS + 2,
        graded._MOST_FLIPS + 1,
    ),
    "no values for an error that depends on them": (
        lambda v: graded.simulated(
            LevelledResponse((0, 1), (1.0,)), lambda a: float(a.estimate().value[0]), users=5, values=v, draws=2, rng=1
        ),
        None,
        [0.5],
    ),
    "one draw": (
        lambda n: graded.simulated(
            LevelledResponse((0, 1), (1.0,)), lambda a: 0.0, users=5, values=[0.5], draws=n, rng=1
        ),
        1,
        2,
    ),
}


@pytest.mark.parametrize("name", EDGES)
def test_what_is_just_refused_and_just_taken(name: str) -> None:
    asked, refused, taken = EDGES[name]
    HELD.check(name, refusal(lambda: asked(refused)))
    asked(taken)


def test_values_of_many_people_are_grouped_near_by_and_across_no_edge() -> None:
    """Each group's share and mean by hand: the values between two neighbouring cuts."""
    edges = (-1.0, 0.301, 2.0)
    points = np.sort(np.random.default_rng(1).uniform(-1, 2, 3000))
    points[0], points[-1] = -1.0, 2.0
    weights = np.arange(1.0, 3001.0)
    people = populations.Population(points, weights[None] / weights.sum(), np.ones(1))
    found, shares = graded._grouped(edges, people)
    cuts = np.unique([*np.linspace(-1, 2, graded._POINTS // 2), *edges])
    wanted = []
    for low, high in zip(cuts, [*cuts[1:-1], math.inf], strict=False):
        inside = (points >= low) & (points < high)
        if inside.any():
            own = weights[inside]
            wanted.append((own @ points[inside] / own.sum(), own.sum() / weights.sum()))
    assert np.allclose(np.column_stack([found, shares]), wanted, rtol=1e-12)
    few = populations.Population(points[: graded._POINTS], np.full((1, graded._POINTS), 1.0), np.ones(1))
    assert np.array_equal(graded._grouped(edges, few)[0], few.points)


@pytest.mark.parametrize(("low", "high"), [(1, 3.4), (-9, -8.9)])
def test_the_end_of_a_range_is_the_end_of_the_inner_one(low: float, high: float) -> None:
    """Rounding takes these ends beyond 1, where the inner mechanism takes nothing."""
    made = nz.Sampled("duchi", epsilon=1.0, domain=nz.Box(2, low, high), report=2)
    ends = deviations.deviation(made, users=9, values=[low, high])
    assert ends.std == pytest.approx(math.sqrt(made.inner_mechanism.moments([1.0]).variance[0] / 9) * (high - low) / 2)


@pytest.mark.parametrize(
    ("made", "values", "quantities"),
    [
        (nz.Sampled("duchi", epsilon=1.0, dims=3, report=2), [[0.1, 0.2, -0.3], [0.5, 0.1, 0.4]], 3),
        (nz.GeneralizedRandomizedResponse(1.0, nz.Categorical(3)), [0, 1, 1], 3),
        (nz.SampledAttributes(("grr", "duchi"), 1.0, RECORD, report=1), [[0, 3.0], [2, 4.0]], 4),
    ],
)
def test_up_to_how_many_quantities_are_seen_together(
    made: Any, values: Any, quantities: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for most, together in ((quantities, True), (quantities - 1, False)):
        monkeypatch.setattr(correlations, "MOST_QUANTITIES", most)
        found = joint(made, users=50, values=values)
        assert (found.correlation is not None) == together
        assert found.exact is together


def test_a_choice_that_is_none_is_named() -> None:
    with pytest.raises(ValueError, match="got 2"):
        GROUPS.privatize([0.1, 0.2, 0.3], [1, 0, 2], rng=1)


def test_a_population_of_just_the_largest_size_is_out_of_reach() -> None:
    noise = targets._LARGEST_POPULATION * targets._ROUNDING
    assert targets.users_for_error(curves.Known(noise, 0.0, 0.0, True), 1.0) is None
    assert targets.users_for_error(curves.Known(noise * (1 - 1e-12), 0.0, 0.0, True), 1.0) is not None


def test_codes_of_categories_may_be_read_as_floats() -> None:
    codes = records._codes([0.0, 2.0], nz.Categorical(3))
    assert codes.dtype == np.int64
    assert records._codes([0.5, 2.0], nz.Categorical(3)).dtype == np.float64
    assert records._codes([0.0, 2.0], UNIT) == [0.0, 2.0]
    assert records._codes(None, nz.Categorical(3)) is None
    rows = np.asarray([[0.0, 2.5], [2.0, 7.0], [1.0, 7.0]])
    known = records.groups(RECORD, rows, None, None)
    assert known[0].points.tolist() == [0, 1, 2]


def test_a_combination_takes_none_but_the_mechanisms_that_are_named() -> None:
    record = nz.Attributes((nz.Categorical(3), nz.Categorical(40)))
    for named in (["oue", "sue", "sampled-attributes"], None):
        plan = nz.plan(users=900, epsilon=1.0, domain=record, mechanisms=named)
        made: Any = next(one for one in plan.candidates if one.mechanism == "sampled-attributes").build()
        assert set(made.inner) <= {"oue", "sue"} if named else not set(made.inner) & {"oue", "sue"}


@pytest.mark.parametrize(("odd", "alike"), [(None, True), (0, False), (1, False), (8, False)])
def test_categories_that_differ_are_not_taken_for_alike(odd: int | None, alike: bool) -> None:
    """The first, the second and the last are looked at, each by its own report and by that of others."""

    class Made:
        domain = nz.Categorical(9)

        def moments(self, codes: Any) -> Moments:
            own = np.asarray(codes)[:, None] == np.arange(9)
            variance = np.where(own, 2.0, 1.0)
            if odd is not None:
                variance[np.asarray(codes) == odd] += 0.25
            return Moments(np.zeros(own.shape), variance, 3 * variance)

    found: Any = responses._alike(Made())
    assert (found is not None) == alike
    if alike:
        assert found.variance.tolist() == [[1.0] * 9, [2.0] * 9]


@pytest.mark.parametrize("count", [14, 30])
def test_a_panel_asks_at_different_budgets_both_ends_among_them(count: int) -> None:
    asked = []

    def function(budget: float) -> np.ndarray:
        asked.append(budget)
        return np.asarray([math.log(budget), 1.0, 0.5, 0.0])

    tables._panel(function, 0.5, 8.0, count)
    assert len(set(asked)) == count
    assert (max(asked), min(asked)) == pytest.approx((8.0, 0.5), rel=1e-12)
    assert max(asked) <= 8.0
    assert min(asked) >= 0.5
    logs = np.log(np.asarray(asked) / 2) / math.log(4)
    assert logs == pytest.approx(np.cos(np.pi * np.arange(count) / (count - 1)), abs=1e-12)


if __name__ == "__main__":
    HELD.write({name: refusal(partial(asked, refused)) for name, (asked, refused, _) in EDGES.items()})
