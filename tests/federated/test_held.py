"""What federated runs compute, digit by digit: clips, payloads of a known seed, plans, lines, correlated noise.

Each has an independent test of its own; here nothing may move. python -m tests.federated.test_held writes anew.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from tests.held import Held
from tests.mechanisms.arrays import brief, facts, summary

import noisette as nz
from noisette.federated import channel as channels
from noisette.federated import theory, wire
from noisette.federated.central.correlated import BandedStrategy
from noisette.federated.central.rounds import AdaptiveNorm, CentralPlan, PrivateRounds
from noisette.federated.clipping import Length, Norm, Ranges, clip_from
from noisette.federated.distributed.noise import DistributedPlan
from noisette.federated.layout import ModelLayout
from noisette.federated.lines import calibrate, lines

HELD = Held(__file__)
LAYOUT = ModelLayout.of({"weight": np.zeros((3, 5)), "bias": np.zeros(4), "last": np.zeros(2)})
UPDATE = np.sin(np.arange(1.0, LAYOUT.dims + 1))
RANGES = Ranges((0.1, -0.2, 0.0), (0.5, 0.25, 2.0))
CHANNELS: dict[str, Callable[[], Any]] = {
    name: partial(channels.Channel, mechanism, LAYOUT, clip, **options)
    for name, mechanism, clip, options in (
        ("two numbers", "adaptive-duchi", Ranges(0.0, 0.1), {"epsilon": 1.0}),
        ("two numbers of layers", "adaptive-duchi", RANGES, {"epsilon": 3.0}),
        ("noise", "laplace", Ranges(0.0, 0.1, 1.0), {"epsilon": 2.0}),
        ("little noise", "laplace", RANGES, {"epsilon": 900.0}),
        ("a piece", "piecewise", RANGES, {"epsilon": 2.0}),
        ("normal noise", "gaussian", Ranges(0.0, 0.1), {"mu": 0.3}),
        ("a direction", "privunit-g", Norm(2.0), {"epsilon": 4.0}),
        ("a direction of a length", "privunit", Length(2.0), {"epsilon": 4.0}),
        ("a projection", "fast-projunit", Length(2.0), {"epsilon": 4.0, "options": {"rows": 64}}),
        ("a word", "fast-projunit", Norm(2.0), {"epsilon": 4.0, "options": {"rows": 64, "bits": 4}}),
    )
}


def through(name: str) -> list[Any]:
    """Return what a channel says of itself, and what arrives of an update."""
    made = CHANNELS[name]()
    told: list[Any] = [made._variance, made.deviation, made.length, made.answers, made.spent, str(made.support)]
    told += [made.noise(), brief(made.spec()), str(made.packets(3)), str(made.packets(900))]
    for seed in (1, 2):
        release = made.release(UPDATE.copy(), rng=seed)
        payload = np.asarray(release.payload)
        told.append([release.clipped, str(payload.dtype), summary(payload), summary(made.estimate(payload))])
        told += [summary(made.unpack(payload)), summary(made.codes(payload)), summary(made.values(made.codes(payload)))]
    for rounds, clients, unit, batch in ((1, 500, "record", 1), (3, 500, "record", 4), (2, 1, "element", 1)):
        if name in ("two numbers", "two numbers of layers", "normal noise"):
            found = lines(made, rounds=rounds, clients=clients, delta=1e-5, unit=unit, batch=batch)  # type: ignore[arg-type]
            told += [found.local.epsilon, found.shuffled.epsilon, str(found), found.claim_holds, brief(found.spec())]
    return told


def clipped() -> list[Any]:
    told: list[Any] = []
    rules = (Norm(0.5), Norm(50.0), Length(2.0), RANGES, Ranges(0.0, 0.3, 1.0), Ranges.around_zero(norm=2.0, dims=21))
    for rule in rules:
        told += [rule.scale(LAYOUT), rule.reach(LAYOUT), str(rule.domain(LAYOUT)), rule.spec()]
        told.append(str(clip_from(rule.spec())) == str(rule))
        for vector in (UPDATE, 0 * UPDATE, 1e200 * UPDATE, 1e-200 * UPDATE, np.where(UPDATE > 0.9, np.inf, UPDATE)):
            own = vector.copy()
            taken = rule.inward(own, LAYOUT)
            told.append([taken, summary(own), summary(rule.outward(own.copy(), LAYOUT))])
    for margin, widest in ((1.0, None), (1.5, 0.7)):
        told.append(str(Ranges.adapted(LAYOUT, UPDATE, RANGES, margin=margin, widest=widest)))
    flat = UPDATE.copy()
    flat[:15] = 0.3
    told.append(str(Ranges.adapted(LAYOUT, flat, RANGES)))
    return told


def calibrated() -> list[Any]:
    told: list[Any] = []
    clip = Ranges(0.0, 0.1)
    for options in (
        {"target_delta": 1e-6},
        {"target_delta": 1e-6, "rounds": 3},
        {"target_delta": 1e-6, "unit": "element", "rounds": 3},
        {"target_epsilon": 3.0},
    ):
        found = calibrate("adaptive-duchi", LAYOUT, clip, **{"target_epsilon": 8.0} | options)  # type: ignore[arg-type]
        told.append(found.epsilon)
    for rounds, unit in ((1, "record"), (5, "record"), (5, "element")):
        found = calibrate(
            "gaussian",
            LAYOUT,
            clip,
            target_epsilon=2.0,
            target_delta=1e-6,
            rounds=rounds,
            unit=unit,  # type: ignore[arg-type]
        )
        told.append(found.mu)
    return told


def wired() -> list[Any]:
    told: list[Any] = []
    for deviation in (0.01, 0.4, 3.0, 200.0, 1e6):
        for made in (nz.Laplace(1.0), nz.Gaussian(1.0, 1e-5), nz.Piecewise(1.0), nz.Laplace(1e3)):
            support, kind = wire.coarse(made.support, deviation, 9)
            told.append([str(kind), getattr(support, "step", None)])
        for dims in (4, 400):
            shell = nz.PrivUnit(4.0, domain=nz.Sphere(dims)).support
            support, kind = wire.coarse(shell, deviation, dims)
            told.append([str(kind), brief(support)])
        for rows in (64, 256):
            seeded = nz.FastProjUnit(4.0, domain=nz.Sphere(40), rows=rows).support
            support, kind = wire.coarse(seeded, deviation, rows)
            told.append([str(kind), brief(support), wire.seed_numbers(kind)])
    told.append(wire.rounded(np.linspace(-2, 2, 9), 0.25, np.random.default_rng(3)))
    told.append(wire.packed(np.asarray([-4e4, -3.0, 0.0, 4e4]), np.dtype(np.int16)))
    told.append(wire.from_bits(wire.bits(np.asarray([1.0, -1.0] * 5), (-1.0, 1.0)), (-1.0, 1.0), 10))
    return told


def distributed() -> list[Any]:
    told: list[Any] = []
    for epsilon, rounds, survivors, dims in ((4.0, 20, 80, 21), (0.5, 1, 3, 21), (12.0, 200, 1000, 21)):
        plan = DistributedPlan(epsilon, 1e-6, rounds, survivors, dims, Norm(1.0))
        told += [facts(plan), plan.noise(survivors), [plan.length, plan.reach]]
        numbers = plan.encode(UPDATE, rng=5)
        told += [summary(numbers), summary(plan.mean(numbers, 1)), summary(plan.encode(np.inf * UPDATE, rng=5))]
    return told


def central() -> list[Any]:
    told: list[Any] = []
    for rounds, bands in ((1, 1), (10, 1), (10, 4), (30, 30), (64, 8)):
        own = BandedStrategy.optimal(rounds, bands)
        told.append([own.bands, own.norm, summary(own.column), summary(own.filtered(rounds)), own.error(rounds)])
    told.append([BandedStrategy.independent().error(7), BandedStrategy.independent().norm])
    for clients, a_round, bands in ((1000, 50, 2), (300, 300, 1), (1000, 50, "auto"), (90, 30, "auto")):
        plan = CentralPlan(4.0, 1e-6, 12, clients, a_round, bands)  # type: ignore[arg-type]
        told += [plan.strategy.bands, plan.multiplier, plan.sampling_prob, plan.noise(0.7), plan._most_bands]
        told += [[plan.spent(n).epsilon for n in (0, 1, 5, 12, 40)], brief(plan.prospect(9)), plan.prospect(9).verdict]
        told.append([plan.group(client) for client in range(9)])
        told.append(plan.sample(range(60), 3, rng=4))
        for clip in (Norm(0.5), AdaptiveNorm(0.5)):
            run = PrivateRounds(plan, LAYOUT, clip, rng=7)
            for part in range(3):
                for client in range(4):
                    run.add(np.roll(UPDATE, client + part))
                told.append(summary(run.release()))
    return told


def told_before() -> list[Any]:
    told: list[Any] = []
    for made in (nz.Laplace(1.0), nz.Piecewise(2.0), nz.DuchiBox(2.0, 3), nz.PrivUnitG(2.0, domain=nz.L2Ball(3, 1.0))):
        for weights in ([1.0, 1.0], [3.0, 1.0, 0.0]):
            own = theory.aggregated_noise(made, weights, dims=3, clip_norm=1.8)
            told += [brief(own), own.difference(0.1), own.difference(0.1, before=np.ones(3), optimum=np.zeros(3))]
    both = {"laplace": nz.Laplace(4.0), "piecewise": nz.Piecewise(4.0)}
    told.append([str(one) for one in theory.benchmark_round(both, [1, 2, 3], dims=5, clip_norm=1.8, rate=0.1)])
    for noise in (0.001, 0.3, np.linspace(0.1, 9.0, 8)):
        own_prospect = theory.Prospect.of(noise, dims=8, reach=1.5, rounds=20)
        told += [brief(own_prospect), own_prospect.hopeless, own_prospect.verdict]
    return told


STORIES: dict[str, Callable[[], Any]] = {
    **{f"through {name}": partial(through, name) for name in CHANNELS},
    "clipped": clipped,
    "calibrated": calibrated,
    "wired": wired,
    "distributed": distributed,
    "central": central,
    "told before": told_before,
}
WEIGHTY = {"central", "calibrated", "through a direction", "through two numbers"}


@pytest.mark.filterwarnings("ignore")  # of squares of what is not finite
@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in WEIGHTY else []) for n in STORIES])
def test_digits_are_the_ones_that_were_kept(name: str) -> None:
    HELD.check(name, STORIES[name]())


if __name__ == "__main__":
    HELD.write({name: story() for name, story in STORIES.items()})
