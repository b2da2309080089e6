"""What privacy rests on is rounded to the safe side: each margin against rationals, where to nearest would not do.

A factor such as 1 - 2^-40 is seen by no simulation. Each is met here at a number where floats are exact, so that the
margin is all there is, and where its sign decides whether a bound holds.
"""

from __future__ import annotations

import math
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import mpmath
import numpy as np
import pytest

import noisette as nz
from noisette import _random
from noisette.accounting._sums import LossSum
from noisette.federated.central import rounds as central
from noisette.federated.central.rounds import AdaptiveNorm, CentralPlan, PrivateRounds
from noisette.federated.clipping import Norm
from noisette.federated.distributed.noise import DistributedPlan
from noisette.federated.layout import ModelLayout
from noisette.mechanisms.scalar.duchi import TwoPoint
from noisette.mechanisms.tensor.gaussian._signs import _enumerated
from noisette.mechanisms.tensor.gaussian.neighbours import Neighbours
from noisette.sgd.noise._lattice import widened

PLAN = CentralPlan(epsilon=4.0, delta=1e-6, rounds=4, clients=100, clients_per_round=10, bands=1)
SHARED = {"epsilon": 4.0, "delta": 1e-6, "rounds": 20, "survivors": 64, "dims": 4, "clip": Norm(1.0)}


def above(bound: float | Fraction, truth: Fraction, margin: float, most: float) -> None:
    """A bound is above the truth by a share of its margin at the least, and by no more than it may cost."""
    assert truth * (1 + Fraction(margin) / 2) < Fraction(bound) < truth * (1 + Fraction(most))


@pytest.mark.parametrize("how", [{"width": 2.0}, {"distance": 4.0}])
@pytest.mark.parametrize("shape", [(4,), (2, 8), (2, 2, 4)])
def test_neighbours_are_no_farther_apart_than_their_bound(how: dict[str, float], shape: tuple[int, ...]) -> None:
    neighbours = Neighbours(shape, **how)
    modes = nz.TensorGaussian(epsilon=1.0, delta=1e-6, domain=nz.TensorDomain(shape)).modes
    bound, _ = neighbours.white(modes)
    squared = Fraction(how["distance"]) ** 2 if "distance" in how else Fraction(how["width"]) ** 2 * math.prod(shape)
    above(Fraction(bound) ** 2, squared, 2.0**-47 * (len(shape) + 2), 1e-9)


@pytest.mark.parametrize(
    ("reach", "step", "points"),
    [(1.5, 1.0, 1.5), (1.5, 0.5, 1.5), (8.0, 1.0, 2.0), (8.0, 0.5, 1.5), (1.0, 1.0, 1.0), (1.25, 0.25, 1.25)],
)
def test_two_reports_are_never_nearer_than_their_budget_allows(reach: float, step: float, points: float) -> None:
    """At epsilon 3 they have to be at 1.1 or beyond: the next numbers of a lattice outward, or its ends."""
    lattice: Any = SimpleNamespace(low=-reach, high=reach, step=step)
    found = TwoPoint.build(nz.Interval(-1.0, 1.0), 3.0, lattice)
    assert (found.low, found.high) == (-points, points)
    uneven: Any = SimpleNamespace(low=-1.5, high=8.0, step=0.5)
    assert TwoPoint.build(nz.Interval(-1.0, 1.0), 3.0, uneven) == TwoPoint(-1.5, 1.5)


@pytest.mark.parametrize("half", [1 / 3, 0.7])
def test_inputs_within_an_uneven_domain_are_cut_as_well(half: float) -> None:
    """Where an end is no number of the lattice, the next ones inside may be farther apart in law than the ends."""
    mechanism = nz.Laplace(epsilon=1.0, domain=nz.Interval(-half, half))
    inputs = [np.asarray(cells.pair, dtype=float) for cells in mechanism.dissect()]
    step = float(mechanism.support.step)
    lows, highs = {float(pair.min()) for pair in inputs}, {float(pair.max()) for pair in inputs}
    assert len(inputs) == 4
    assert min(lows) == -half
    assert max(highs) == half
    assert 0 < max(lows) + half < step
    assert 0 < half - min(highs) < step


@pytest.mark.parametrize("size", [1, 2, 5])
def test_the_largest_form_over_signs_is_rounded_up(size: int) -> None:
    above(_enumerated(np.eye(size))[1], Fraction(size), 2.0**-40, 1e-9)


@pytest.mark.parametrize("entries", [1, 4, 1 << 20])
@pytest.mark.parametrize("room", [0.0, 2.0**-20])
def test_noise_on_a_lattice_is_wider_than_real_noise(entries: int, room: float) -> None:
    from noisette.mechanisms.tensor.gaussian._normal import STEPS

    lattice = Fraction(3) * math.isqrt(entries) / int(STEPS)
    above(widened(3.0, entries, room), 3 * (1 + Fraction(room)) / (1 - lattice), 2.0**-51, 2.0**-49)


@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 30.0])
def test_a_delta_of_two_neighbours_is_rounded_up(epsilon: float) -> None:
    import mpmath

    own = nz.Guarantee(epsilon, 2.0**-60, unit="record", model="central", relation="add-remove")
    implied = own.implied(unit="record", model="central", relation="replace")
    with mpmath.workdps(50):
        truth = (1 + mpmath.exp(mpmath.mpf(epsilon))) * mpmath.mpf(2) ** -60
        assert truth < mpmath.mpf(implied.delta) < truth * (1 + mpmath.mpf(2) ** -48)
    assert implied.epsilon == 2 * epsilon


def test_a_share_of_noise_counts_a_client_that_reaches_a_whole_number_as_longer() -> None:
    plan = DistributedPlan(**SHARED)
    vars(plan)["_distance"] = 2 * 5000 / plan.share
    assert plan.length == 4999
    vars(plan).pop("length")
    vars(plan)["_distance"] = 2 * 5000.5 / plan.share
    assert plan.length == 5000


def test_a_share_of_noise_spends_less_than_it_may() -> None:
    plan = DistributedPlan(**SHARED)
    assert plan.spent < plan.epsilon
    moved = Fraction(2 * plan.length) ** 2 / (plan.survivors * Fraction(plan.share) ** 2)
    assert moved < Fraction(plan._distance) ** 2 / plan.survivors


def test_the_longest_update_is_rounded_inward(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = DistributedPlan(**SHARED)
    monkeypatch.setattr(_random, "discrete_gaussian", lambda rng, share, size: np.zeros(size))
    for sign in (1.0, -1.0):
        sent = plan.encode(np.asarray([sign, 0.0, 0.0, 0.0]), rng=1)
        assert plan.length - 2 <= abs(int(sent[0])) < plan.length
    monkeypatch.setattr(_random, "discrete_gaussian", lambda rng, share, size: np.full(size, 1e12))
    assert set(plan.encode(np.zeros(4), rng=1)) == {plan.reach}
    assert plan.reach == plan.length + math.ceil(40 * plan.share)


@pytest.mark.parametrize("share", [0.01, 0.25, 0.5])
def test_update_and_count_share_a_ball(share: float) -> None:
    rounds = PrivateRounds(PLAN, ModelLayout.of(np.zeros(4)), AdaptiveNorm(1.0, count_share=share), rng=1)
    both = Fraction(rounds._update) ** 2 + Fraction(rounds._count) ** 2
    assert 1 - Fraction(2) ** -45 < both < 1 - Fraction(2) ** -52
    above(rounds._unit, Fraction(PLAN.multiplier) * Fraction(PLAN.strategy.norm), 2.0**-51, 2.0**-49)
    rounds._unit = rounds._count = rounds._update = 1.0
    rounds.add(np.asarray([1.0, 0.0, 0.0, 0.0]))
    fine = int(central._FINE)
    told = rounds._sums[-1]
    assert fine - 64 < told[0] < fine
    assert fine - 64 < -told[-1] < fine  # as long as the norm, to the last digit: it may have been longer
    before = int(told[0])
    rounds.add(np.asarray([0.5, 0.0, 0.0, 0.0]))
    assert fine // 2 - 64 < told[0] - before < fine // 2
    assert told[-1] == 0  # one that was clipped, one that was not


@pytest.mark.parametrize("chance", [0.25, 0.5, 1.0])
def test_a_client_is_asked_with_no_more_than_its_chance(chance: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the 2^53 numbers that random() gives, at most chance x 2^53 are heads: the last of them is not."""
    plan = CentralPlan(epsilon=4.0, delta=1e-6, rounds=4, clients=100, clients_per_round=100 * chance, bands=1)
    assert plan.sampling_prob == chance

    def asked(drawn: float) -> int:
        fixed: Any = SimpleNamespace(random=lambda size: np.full(size, drawn))
        monkeypatch.setattr(_random, "generator", lambda rng: fixed)
        return len(plan.sample(range(10), 1))

    last = chance - 2.0**-53
    assert asked(chance - 2.0**-52) == 10
    assert asked(last) == (10 if chance == 1 else 0)


def test_squared_norms_of_layers_are_rounded_up() -> None:
    torch = pytest.importorskip("torch")
    from noisette.sgd.clipping import _layer_squares

    parts: Any = {"layer": SimpleNamespace(squares=lambda: torch.ones(3, dtype=torch.float64))}
    squares, finite = _layer_squares(parts, 0.5)
    assert finite
    for square in squares.flatten().tolist():
        above(square, Fraction(1, 4), 2.0**-40, 2.0**-38)


@pytest.mark.parametrize("delta", [0.25, 0.01])
@pytest.mark.parametrize("loss", [1.0, 4.0, 16.0])
def test_an_epsilon_that_was_added_up_is_never_below_the_truth(loss: float, delta: float) -> None:
    """Of one randomised response, whose epsilon is loss + ln(1 - delta / p), without the larger margins of delta."""

    class Bare(LossSum):
        _tail = 1e-25  # type: ignore[assignment]

        def _sure(self, target: float) -> float:
            return target

    with mpmath.workdps(40):
        p = 1 / (1 + mpmath.exp(-loss))
        logs = np.asarray([float(mpmath.log(1 - p)), float(mpmath.log(p))])
        found = Bare.repeated(np.asarray([-1, 1]), logs, loss, 1.0, 1, 0.0).epsilon(math.log(delta))
        truth = loss + mpmath.log(1 - mpmath.mpf(delta) / p)
        assert 5e-13 < (found - truth) / truth < 2e-12
