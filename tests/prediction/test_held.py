"""What predictions compute, digit by digit: deviations, joint ones, plans, targets, and the parts of each.

tests/prediction holds them to simulations and closed forms, which leave room for a slip; here nothing may move.
python -m tests.prediction.test_held writes anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from tests.held import Held

import noisette as nz
from noisette.mechanisms.graded.levelled import LevelledResponse
from noisette.planner import tables
from noisette.prediction import combining, curves, graded, offers, planning, sweeps, targets, texts
from noisette.prediction.joint import JointDeviation, _primes, box_probability, joint
from noisette.prediction.model import deviations, extremes, populations, records, responses
from noisette.prediction.model.correlations import covariance
from noisette.prediction.model.deviations import Deviation
from noisette.prediction.personalised import Personalised

HELD = Held(__file__)
UNIT = nz.Interval(-1, 1)
WIDE = nz.Interval(2, 12)
RECORD = nz.Attributes((nz.Categorical(3), nz.Interval(2, 9), nz.Categorical(3), nz.Interval(2, 9)))
ROWS = np.column_stack([np.arange(8) % 3, 2 + np.arange(8) * 0.8, np.arange(8) % 2, 9 - np.arange(8) * 0.3])
PROBS = np.asarray([0.05, 0.1, 0.2, 0.15, 0.1, 0.1, 0.25, 0.05])


MADE: dict[str, Callable[[], Any]] = {
    "laplace": lambda: nz.Laplace(0.7, domain=WIDE),
    "wave": lambda: nz.SquareWave(1.0),
    "piecewise": lambda: nz.Piecewise(1.3, domain=WIDE),
    "duchi": lambda: nz.Duchi(0.9),
    "staircase": lambda: nz.Staircase(2.5),
    "counts": lambda: nz.DiscreteLaplace(0.8, domain=nz.Grid(0, 12)),
    "response": lambda: nz.GeneralizedRandomizedResponse(1.1, nz.Categorical(4)),
    "unary": lambda: nz.UnaryEncoding(1.1, nz.Categorical(4)),
    "sampled": lambda: nz.Sampled("piecewise", epsilon=3.0, dims=5, report=2),
    "sampled wave": lambda: nz.Sampled("square-wave", epsilon=3.0, dims=4, report=2),
    "record": lambda: nz.SampledAttributes(("grr", "piecewise", "grr", "duchi"), 3.0, RECORD, report=2),
}


def values_of(made: Any) -> Any:
    """Return values of one dimension, unevenly."""
    domain: Any = responses.scalar_domain(made)
    if isinstance(domain, nz.Categorical):
        return [0, 1, 1, 3, 2, 1]
    share = np.asarray([0.0, 0.1, 0.15, 0.6, 1.0])
    values = domain.low + share * (domain.high - domain.low)
    return np.rint(values) if isinstance(domain, nz.Grid) else values


def told(one: Deviation) -> list[Any]:
    return [one.bias, one.std, one.third, one.reports, one.range, one.mse, one.berry_esseen]


def deviation_of(name: str) -> list[Any]:
    made = MADE[name]()
    found: list[Any] = []
    if name == "record":
        for given in ({}, {"values": ROWS}, {"values": ROWS, "probs": PROBS}):
            found.append(told(deviations.deviation(made, users=70, **given)))
        known = records.groups(RECORD, ROWS, PROBS, None)
        curve: Any = records.record_curve(made, known)
        found += [vars(curve), records.record_curve(made, records.groups(RECORD, None, None, None)).at(70)]
        found.append(targets.signal_of(RECORD, known))
        found.append(targets.population_needed(made, mse=0.01, values=ROWS))
        return found
    for given in ({}, {"values": values_of(made)}):
        one = deviations.deviation(made, users=70, **given)
        found.append(told(one))
        found.append([one.pdf(0.1), one.cdf(0.1), one.probability_within(0.2), one.supremum(0.8)])
    if not isinstance(responses.scalar_domain(made), nz.Categorical):
        for kind in ("uniform", "gaussian:0.3,0.2", "beta:2,3", "poisson:4"):
            found.append(told(deviations.deviation(made, users=70, distribution=kind)))
    points = extremes.trial_points(made)
    found += [points.size, points[:: max(1, points.size // 9)], extremes.trial_points(made, 5)[:9]]
    answer = responses.respond(made, points)
    found += [answer.share, answer.scale, answer.unbiased, answer.bias.sum(), answer.variance.sum(), answer.third.sum()]
    if answer.variance.ndim == 2:
        found += [answer.error_range(), answer.pure_variances(), answer.weigh(np.full(points.size, 1 / points.size))]
    least, worst = extremes.extreme_weights(answer, 30.0)
    found += [np.argmax(least), np.argmax(worst), least.max(), worst.max()]
    error: Any = curves.curve(made, None)
    found += [error.at(9.0), error.describe(9.0), error.unbiased]
    found += [targets.population_needed(made, mse=1e-3), targets.population_needed(made, power=0.7, effect=0.2)]
    return found


def together(name: str) -> list[Any]:
    made = MADE[name]()
    found: list[Any] = []
    cases: list[dict[str, Any]] = [{}, {"values": values_of(made) if name != "record" else ROWS}]
    if name in ("sampled", "sampled wave"):
        table = np.sin(np.arange(6 * made.dims)).reshape(6, made.dims)
        cases = [{}, {"values": table}, {"distribution": "uniform"}]
    for given in cases:
        one = joint(made, users=300, **given)
        found += [one.bias, one.std, one.correlation, one.exact, one.mse, one.covariance]
        radius = 2 * float(one.std.max())
        found += [one.probability_within(radius), one.expected_l2, one._distinct]
        found.append(covariance(made, 300, given.get("values"), None, given.get("distribution"))[1] if given else None)
    if name in ("sampled", "response"):
        found += [one.supremum(0.9), one.expected_supremum if name == "sampled" else 0]
    return found


def plainly_joint() -> list[Any]:
    own = Deviation(np.asarray([0.1, -0.3, 0.0]), np.asarray([0.5, 0.2, 1.0]), np.ones(3), 50.0, (0.0, 1.0))
    matrix = np.asarray([[1.0, 0.4, -0.2], [0.4, 1.0, 0.1], [-0.2, 0.1, 1.0]])
    found: list[Any] = []
    for correlation in (None, matrix):
        one = JointDeviation(own, correlation, True)
        found += [one.mse, one.covariance, one.expected_l2, one.probability_within(0.7)]
        found.append(one.probability_within(np.asarray([0.3, 0.9, 2.0])))
    found.append(JointDeviation(own, None, True).expected_supremum)
    found.append(JointDeviation(own, None, True).supremum(0.8))
    found += [box_probability(np.asarray([-1.0, -np.inf, 0.2]), np.asarray([0.5, 1.0, 2.0]), matrix), _primes(40)]
    return found


def people() -> list[Any]:
    found: list[Any] = []
    for kind in ("uniform", "gaussian", "gaussian:0.95,0.1", "gaussian:9,0.1", "beta", "beta:1,4", "poisson:3"):
        for domain in (UNIT, WIDE, nz.Grid(0, 9)):
            one = populations.named(kind, domain, dims=23)
            found.append([one.points.size, one.shares, one.pooled @ one.points, one.pooled @ one.points**3, one.spread])
            found.append([one.points[:4], one.weights[0, :4]])
    spread = populations.named("poisson", UNIT, dims=3)
    found += [spread.weights.shape, spread.pooled @ spread.points**2, spread.coarsened(9).weights[0]]
    table = populations.table(np.sin(np.arange(12.0)).reshape(6, 2), [0.1, 0.2, 0.3, 0.1, 0.2, 0.1], UNIT, dims=2)
    found += [table.pooled @ table.points, table.spread, table.weights[0].nonzero()[0], table.coarsened(5).weights]
    found += [vars(populations.histogram([1, 1, 3], [0.2, 0.3, 0.5], nz.Categorical(5)))]
    for domain in (nz.Categorical(4), nz.Grid(0, 99), nz.Grid(0, 4), UNIT):
        found.append(populations.candidates(domain, 7))
    found.append(populations._neighbours(np.asarray([-1.0, -0.97, 0.13, 1.0]), UNIT, 9))
    found.append(vars(populations.Population(np.ones(9), np.full((1, 9), 1 / 9), np.ones(1)).coarsened(3)))
    return found


def planned(name: str) -> list[Any]:
    given: dict[str, Any] = {
        "one": {"users": 500, "epsilon": 1.0, "target_mse": 0.01, "target_power": 0.8, "effect": 0.1},
        "several": {
            "users": 3000,
            "epsilon": 6.0,
            "dims": 9,
            "delta": 1e-6,
            "mechanisms": ["duchi", "piecewise", "square-wave", "gaussian"],
        },
        "known": {
            "users": 300,
            "epsilon": 2.0,
            "domain": WIDE,
            "values": [3.0, 3.5, 9.0],
            "mechanisms": ["laplace", "square-wave", "piecewise"],
        },
        "categories": {"users": 900, "epsilon": 1.0, "domain": nz.Categorical(7)},
        "attributes": {"users": 900, "epsilon": 3.0, "domain": RECORD, "values": ROWS},
        "biased attributes": {
            "users": 90,
            "epsilon": 3.0,
            "domain": nz.Attributes((UNIT, WIDE)),
            "mechanisms": ["square-wave"],
        },
        "selection": {"users": 900, "epsilon": 2.0, "domain": nz.Selection(6, most=2)},
        "several categories": {"users": 900, "epsilon": 2.0, "domain": nz.Categorical(4), "dims": 3},
    }[name]
    made = planning.plan(**given)
    rows = [
        [
            c.mechanism,
            c.report,
            c.mse,
            c.bias,
            c.std,
            c.reports,
            c.range,
            c.unbiased,
            c.verdict,
            c.needed,
            c.power,
            c.bulky,
        ]
        for c in made.candidates
    ]
    light = [c.mechanism for c in planning.handy(made.candidates)]
    crossed = [vars(one) for one in made.break_even]
    return [rows, light, crossed, made.rules, made.signal, made.verdict, made.targets, sorted(made.left_out)]


def asked() -> list[Any]:
    found: list[Any] = [[targets.verdict(mse, 1.0) for mse in (0.0, 0.2, 0.25, 0.26, 1.0, 1.1)]]
    found += [[targets.power(s, 0.3, level) for s in (0.0, 0.1, 0.5)] for level in (0.05, 0.2)]
    found += [[targets.needed_ratio(t, level) for t in (0.3, 0.8, 0.99)] for level in (0.05, 0.2)]
    known = curves.Known(3.0, 0.01, 0.1, False)
    found += [[targets.users_for_error(known, t) for t in (0.005, 0.01, 0.02, 1.0, 50.0)]]
    found += [targets.users_for_power(known, 0.8, 0.1, 0.05)]
    for name in ("wave", "laplace"):
        own: Any = curves.curve(MADE[name](), None)
        found.append([targets.users_for_error(own, t) for t in (1e-30, 1e-3, 0.3, 9e9)])
    for domain in (nz.Categorical(5), nz.Selection(9, most=2), nz.Selection(9, most=8), WIDE, nz.Grid(1, 8)):
        found.append(targets.signal_of(domain, None))
    found.append(targets.signal_of(WIDE, populations.named("beta", WIDE)))
    pairs = [curves.Known(1.0, 0.2, 0.4, False), curves.Known(4.0, 0.0, 0.0, True), curves.Known(9.0, 0.1, 0.3, False)]
    found += [curves.crossing(a, b) for a in pairs for b in pairs]
    wave, piece = curves.curve(nz.SquareWave(1.0), None), curves.curve(nz.Piecewise(1.0), None)
    found += [curves.crossing(wave, piece), curves.crossing(piece, wave), curves.crossing(wave, pairs[1])]
    for epsilon in (0.5, 2.4, 2.6, 5.1, 9.0, 40.0):
        found.append([offers.report_rules(epsilon, dims) for dims in (1, 3, 50)])
    found += [offers.best_report(lambda m, top=top: (m - top) ** 2, 200) for top in (1, 2, 7, 60, 163, 200)]
    swept = sweeps.break_even_curve(
        "square-wave", "piecewise", over="epsilon", points=[0.5, 2, 4], users=20, values=[-0.3, 0.2]
    )
    found.append(vars(swept))
    swept = sweeps.break_even_curve(
        "square-wave", "piecewise", over="report", points=[1, 3], users=200, epsilon=3.0, dims=4
    )
    found.append(vars(swept))
    return found


def chosen() -> list[Any]:
    found: list[Any] = []
    for given in ({"report": None}, {"report": 2}, {"report": 4}):
        made = combining.combine(
            RECORD,
            users=500,
            epsilon=3.0,
            values=ROWS,
            mechanisms=["grr", "subset-selection", "duchi", "piecewise", "laplace"],
            **given,
        )
        found.append([made.names, made.report, made.mse, made.errors, made.mechanism.spec()])
    return found


def graded_levels() -> list[Any]:
    own = LevelledResponse((-1.0, -0.2, 0.5, 2.0), (3.0, 1.0, 2.0))
    found: list[Any] = []
    for reuse in (1, 2, 3):
        read = graded.Reused(own, reuse)
        says = read._says
        found += [*says, [vars(read.moments(x)) for x in (-1.0, 0.1, 1.9)], read.name]
        found.append(graded.predicted_hiera(own, reuse, users=40, clip=False, values=[-0.5, 1.0]))
    found.append(graded.predicted_hiera(own, 2, users=40, values=[-0.5, 1.0], rng=3))
    found.append(
        graded.simulated(
            own,
            lambda a: float(a.estimate().value[0]),
            users=31,
            values=[-0.5, 0.0, 1.0],
            probs=[0.2, 0.5, 0.3],
            draws=9,
            rng=2,
        )
    )
    made = graded.plan_levels(
        users=90, edges=[-1, 0.3, 1], epsilons=[2.0, 1.0], values=[-0.4, 0.1, 0.5], optimal_points=6
    )
    found += [[c.mechanism, c.mse, c.bias, c.std, c.verdict] for c in made.candidates]
    found += [made.epsilon, made.signal, graded.duchi_within([-1, 0, 2], [[1.0, 2.0], [2.0, 0.4]]).epsilon]
    many = populations.Population(np.linspace(-1, 2, 600), np.full((1, 600), 1 / 600), np.ones(1))
    points, shares = graded._grouped(own.edges, many)
    found += [points.size, points[:5], shares[:5], points @ shares]
    return found


def personal() -> list[Any]:
    regions = [nz.Interval(-1, 0), nz.Interval(0, 3)]
    own = Personalised.of("piecewise", epsilons=[0.5, 4.0], regions=regions)
    found: list[Any] = []
    for kind in ("plain", "inverse-variance"):
        found.append(own.weights([30, 9, 0, 50], kind))  # type: ignore[arg-type]
        for given in ({}, {"distribution": "uniform"}, {"values": [[-0.5, -0.1], [0.2], [-1.0], [0.1, 2.9, 3.0]]}):
            found.append(told(own.deviation([30, 9, 0, 50], weights=kind, **given)))  # type: ignore[arg-type]
    found += [own._one_user, own.weights([0, 9, 0, 50])]
    wave = Personalised.of("square-wave", epsilons=[0.5, 2.0], regions=[nz.Interval(1, 2)])
    found.append(told(wave.deviation([3, 40])))
    several = Personalised.of("duchi", epsilons=[1.0, 3.0], dims=3, report=2)
    found += [several.weights([5, 6]), told(several.deviation([50, 60]))]
    x, choice = np.asarray([-0.5, 0.5, 2.0, -0.1, 1.0, 0.3]), np.asarray([0, 1, 3, 2, 3, 1])
    reports = own.privatize(x, choice, rng=4)
    found.append(vars(own.aggregate(reports).estimate("plain")))
    merged = own.aggregate(reports) + own.aggregate(own.privatize(x[:2], choice[:2], rng=5))
    found += [merged.users, vars(merged.estimate())]
    return found


def searched() -> list[Any]:
    found: list[Any] = []
    few = nz.Texts(1, alphabet="abcdef")  # all of which everybody reports about
    for epsilon, users, domain in (
        (4.0, 1e6, nz.Texts(8)),
        (1.0, 1e5, nz.Texts(8)),
        (2.0, 50.0, nz.Texts(8)),
        (2.0, 1e4, few),
    ):
        one = texts.TextPrediction(nz.PrefixExtending(epsilon=epsilon, domain=domain), users=users, texts=5)
        found += [one.threshold, one.std_error(), one.std_error(0.2, 3), one.findable(), one.findable(0.5), one._steps]
        found.append(
            one.recall(
                {"a": 0.03, "d": 0.01} if domain == few else {"abc": 0.02, "abd": 0.01, "x": 0.3, "longer": 0.001}
            )
        )
    return found


def laws() -> list[Any]:
    found: list[Any] = []
    for name in ("laplace", "duchi", "square-wave", "piecewise"):
        law = tables.law(name, low=0.5, high=4.0, dims=1, most=2)
        found.append(
            None if law is None else [law.at(e) for e in (0.3, 0.7, 2.0, 4.0)] + [law.dims, law.fixed, len(law.panels)]
        )
    found.append(tables.law("grr", low=0.5, high=4.0, dims=1, most=2))
    found.append(tables.others(["laplace", "duchi"], dims=3, delta=0.0))
    found.append(tables.others(["laplace", "duchi"], dims=3, delta=1e-6))
    effort = tables.Effort(1e-6, 12)

    def bent(x: float) -> np.ndarray:
        return np.asarray([math.log(x), abs(math.log(x / 3)) if x > 2 else math.log(1.5), 0.1 * x, 1e-9])

    found += [[p.low, p.high, p.rows[:, :3], p.error] for p in tables.fit(bent, 0.5, 9.0, effort)][:6]
    found += [list(tables._cut(*ends)) for ends in ((1.0, 32.0), (1.0, 33.0), (0.01, 100.0))]
    found.append(tables._edge(lambda x: x > 0.7, 0.5, 1.0))
    return found


def spoken() -> list[Any]:
    own = nz.Selection(6, most=2)
    made: Any = planning.plan(users=90, epsilon=2.0, domain=own).best.build()
    found: list[Any] = [deviations.selected_variance(made, s) for s in (0.0, 0.2, 1.0)]
    found += [
        told(deviations.deviation(made, users=40)),
        told(deviations.deviation(made, users=40, values=[[0, 1], [2, -1], [-1, -1]])),
    ]
    found.append(vars(curves.SelectedErrors.of(made)))
    return found


STORIES: dict[str, Callable[[], Any]] = {
    **{f"deviation {name}": partial(deviation_of, name) for name in MADE},
    **{
        f"joint {name}": partial(together, name)
        for name in ("laplace", "response", "unary", "sampled", "sampled wave", "record")
    },
    "joint": plainly_joint,
    "people": people,
    **{
        f"plan {name}": partial(planned, name)
        for name in (
            "one",
            "several",
            "known",
            "categories",
            "attributes",
            "biased attributes",
            "selection",
            "several categories",
        )
    },
    "asked": asked,
    "chosen": chosen,
    "graded": graded_levels,
    "personal": personal,
    "searched": searched,
    "laws": laws,
    "spoken": spoken,
}


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n == "graded" else []) for n in STORIES])
def test_digits_are_the_ones_that_were_kept(name: str) -> None:
    HELD.check(name, STORIES[name]())


if __name__ == "__main__":
    HELD.write({name: story() for name, story in STORIES.items()})
