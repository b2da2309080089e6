"""A trusted server: correlated noise, exact sums, sampling, accounting, and the wrapped strategies on Flower."""

from __future__ import annotations

import math
import threading

import numpy as np
import pytest
from flwr.app import ConfigRecord, Error, Message
from flwr.serverapp.strategy import Bulyan, FedAdam, FedAvg, FedProx, FedXgbBagging, FedXgbCyclic, QFedAvg
from tests.federated.flower import DIMS, LocalGrid, model, moving_app

from noisette.accounting import sampled_gaussian
from noisette.federated import AdaptiveNorm, CentralPlan, CentralPrivacy, ModelLayout, Norm, PrivateRounds
from noisette.federated.central.correlated import DENOMINATOR, BandedStrategy, _error

ALMOST_EXACT = {"target_epsilon": 1e5, "target_delta": 1e-6, "clients": 6, "clients_per_round": 6}


def dense_error(strategy, rounds):
    """Mean squared error of the prefix sums, by matrices."""
    matrix = sum(np.diag(np.full(rounds - k, number / DENOMINATOR), -k) for k, number in enumerate(strategy.numerators))
    sums = np.tril(np.ones((rounds, rounds))) @ np.linalg.inv(matrix)
    return float((sums**2).sum() / rounds * (matrix**2).sum(axis=0).max())


@pytest.mark.parametrize(("rounds", "bands"), [(1, 1), (7, 1), (20, 4), (50, 50), (64, 8)])
def test_the_error_of_a_strategy_is_that_of_its_matrices(rounds, bands):
    strategy = BandedStrategy.optimal(rounds, bands)
    assert strategy.error(rounds) == pytest.approx(dense_error(strategy, rounds), rel=1e-3)


def test_the_gradient_of_the_error_is_right():
    column, step = np.asarray([1.0, 0.4, 0.3, 0.1]), 1e-6
    gradient = _error(column, 30)[1]
    for k in range(4):
        moved = [column + sign * step * np.eye(4)[k] for sign in (1, -1)]
        assert gradient[k] == pytest.approx((_error(moved[0], 30)[0] - _error(moved[1], 30)[0]) / (2 * step), rel=1e-5)


def test_no_strategy_nearby_is_better():
    """The optimum is one: columns moved at random are worse."""
    best, rng = BandedStrategy.optimal(64, 8), np.random.default_rng(1)
    for _ in range(50):
        moved = best.column + rng.normal(0, 0.02, 8)
        assert _error(moved, 64)[0] / 64 > best.error(64)


def test_many_bands_come_near_the_square_root():
    """The square root factorisation has an error of about ln(n)/pi + 0.53 in each step (Fichtenberger et al. 2023)."""
    rounds = 256
    assert BandedStrategy.optimal(rounds, rounds).error(rounds) < (1 + math.log(rounds) / math.pi) ** 2
    assert BandedStrategy.independent().error(rounds) == (rounds + 1) / 2


def test_the_length_of_a_column_is_never_below_the_truth():
    for bands in (1, 3, 16):
        strategy = BandedStrategy.optimal(100, bands)
        square = sum(number**2 for number in strategy.numerators)
        assert (strategy.norm * DENOMINATOR) ** 2 >= square * (1 - 2**-51)
        assert strategy.norm == pytest.approx(math.sqrt(square) / DENOMINATOR, rel=1e-12)


def test_plans_meet_their_target_and_no_less_noise_would():
    plan = CentralPlan(epsilon=2.0, delta=1e-6, rounds=60, clients=1000, clients_per_round=50, bands=4)
    blocks, chance = 15, 0.2
    assert plan.sampling_prob == pytest.approx(chance)
    exactly = {"delta": 1e-6, "releases": blocks, "sampling_prob": chance}
    assert sampled_gaussian(plan.multiplier, **exactly).epsilon <= 2.0
    assert sampled_gaussian(plan.multiplier * 0.99, **exactly).epsilon > 2.0
    assert plan.spent(60).epsilon <= 2.0
    assert plan.spent(4).epsilon < plan.spent(5).epsilon
    assert plan.spent(0).epsilon == 0
    assert str(plan.guarantee) == "(2, 1e-06)-DP, unit record, model central, relation add-remove"


def test_a_whole_group_is_asked_with_certainty():
    """23 / 9 is rounded up, so that nine groups of that size are more than 23 clients by a rounding."""
    plan = CentralPlan(epsilon=2.0, delta=1e-6, rounds=18, clients=23, clients_per_round=2.555555555555556, bands=9)
    assert 2.555555555555556 * 9 / 23 > 1
    assert plan.sampling_prob == 1.0


@pytest.mark.slow
def test_auto_bands_has_the_least_predicted_error():
    asked = {"epsilon": 4.0, "delta": 1e-6, "rounds": 100, "clients": 10_000, "clients_per_round": 200}
    found = {}
    for bands in (1, 2, 4, 8, 16, 32):
        plan = CentralPlan(**asked, bands=bands)
        found[bands] = plan.multiplier**2 * plan.strategy.error(100)
    assert CentralPlan(**asked).strategy.bands == min(found, key=found.get)
    assert min(found.values()) < 0.6 * found[1]  # correlated noise is worth it here


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"clients_per_round": 20}, "clients_per_round=20 to be at most clients=10"),
        ({"bands": 6}, "bands=6 to be at most 5"),
        ({"epsilon": -1.0}, "epsilon=-1.0 > 0"),
        ({"delta": 0.0}, "delta=0.0"),
        ({"rounds": 0}, "rounds=0"),
    ],
)
def test_plans_that_cannot_be_kept(wrong, message):
    with pytest.raises(ValueError, match=message):
        CentralPlan(**({"epsilon": 1.0, "delta": 1e-6, "rounds": 9, "clients": 10, "clients_per_round": 2} | wrong))


@pytest.mark.long
def test_clients_are_sampled_with_their_chance_in_rounds_far_apart():
    plan = CentralPlan(epsilon=2.0, delta=1e-6, rounds=400, clients=1000, clients_per_round=100, bands=4)
    rng, taken = np.random.default_rng(7), {client: [] for client in range(1000)}
    for number in range(1, 401):
        for client in plan.sample(range(1000), number, rng=rng):
            taken[client].append(number)
    total = sum(map(len, taken.values()))
    assert abs(total - 40_000) < 5 * math.sqrt(40_000)  # false alarm below 1e-6
    gaps = np.concatenate([np.diff(numbers) for numbers in taken.values()])
    assert gaps.min() >= 4
    assert set(gaps % 4) == {0}


@pytest.mark.parametrize("bands", [1, 4])
def test_what_one_client_adds_is_never_longer_than_the_noise_allows(bands):
    """The exact integers that two neighbouring sums differ by, against the sensitivity that the noise is for."""
    plan = CentralPlan(epsilon=3.0, delta=1e-6, rounds=8, clients=40, clients_per_round=4, bands=bands)
    rng, layout = np.random.default_rng(3), ModelLayout.of(np.zeros(50))
    for clip in (Norm(0.5), AdaptiveNorm(0.5)):
        for scale in (1e-300, 0.01, 1.0, 1e200):
            rounds = PrivateRounds(plan, layout, clip, rng=1)
            rounds.add(rng.normal(0, scale, 50))
            whole = [int(number) for number in rounds._sums[-1]]
            length = sum(number**2 for number in whole) * sum(n**2 for n in plan.strategy.numerators)
            assert math.sqrt(length) / 2**36 <= 1 / plan.multiplier
            if scale >= 1:
                assert math.sqrt(length) / 2**36 > (1 - 1e-6) / plan.multiplier


@pytest.mark.slow
def test_means_are_unbiased_and_as_noisy_as_predicted():
    """Releases over many rounds with correlated noise: sums have less of it than independent noise would give."""
    rounds, dims = 16, 4000
    plan = CentralPlan(epsilon=8.0, delta=1e-6, rounds=rounds, clients=40, clients_per_round=10, bands=4)
    server = PrivateRounds(plan, ModelLayout.of(np.zeros(dims)), Norm(1.0), rng=11)
    truth = np.full(dims, 0.5 / math.sqrt(dims))
    total, seen = np.zeros(dims), []
    for number in range(rounds):
        for _ in range(10):
            server.add(truth)
        mean = server.release()
        total += mean
        seen.append(((total - (number + 1) * truth) ** 2).mean())
    wanted = plan.strategy.error(rounds) * (plan.multiplier / 10) ** 2
    assert np.mean(seen) == pytest.approx(wanted, rel=0.15)  # 16 correlated rounds of 4,000 entries
    assert np.mean(seen) < 0.8 * (rounds + 1) / 2 * (plan.multiplier / 10) ** 2
    assert (total - rounds * truth).mean() == pytest.approx(0, abs=5 * math.sqrt(seen[-1] / dims))


def test_an_update_that_is_not_finite_adds_nothing_and_rounds_end():
    plan = CentralPlan(epsilon=1e4, delta=1e-6, rounds=1, clients=2, clients_per_round=2)
    server = PrivateRounds(plan, ModelLayout.of(np.zeros(2)), Norm(1.0), rng=5)
    server.add(np.asarray([math.nan, 1.0]))
    server.add(np.asarray([math.inf, 1.0]))
    assert not server._sums[-1].any()
    with pytest.raises(ValueError, match="2 weights"):
        server.add(np.zeros(3))
    server.release()
    with pytest.raises(RuntimeError, match="All 1 rounds"):
        server.release()


def test_the_norm_follows_the_quantile():
    plan = CentralPlan(epsilon=50.0, delta=1e-6, rounds=60, clients=100, clients_per_round=100, bands=1)
    server = PrivateRounds(plan, ModelLayout.of(np.zeros(1)), AdaptiveNorm(10.0, quantile=0.5), rng=2)
    for _ in range(60):
        for length in np.linspace(0.01, 1.0, 100):
            server.add(np.asarray([length]))
        server.release()
    assert server.norm == pytest.approx(0.5, rel=0.25)


def start(strategy, *, rounds=3, nodes=6, tamper=None, app=None):
    grid = LocalGrid(app or moving_app([]), range(1, nodes + 1), tamper)
    return strategy.start(grid, model(), num_rounds=rounds)


def flat(arrays):
    return np.concatenate([array.numpy().reshape(-1) for array in arrays.values()])


@pytest.mark.parametrize("inner", [FedAvg, lambda: FedProx(proximal_mu=0.1)])
def test_a_wrapped_strategy_moves_by_the_noisy_mean(inner):
    strategy = CentralPrivacy(inner(), clip=Norm(1.0), **ALMOST_EXACT)
    result = start(strategy)
    assert flat(result.arrays) == pytest.approx(np.full(DIMS, 0.15), abs=5e-3)
    assert strategy.guarantee().epsilon <= 1e5
    assert not result.train_metrics_clientapp  # the loss on clients is private data
    assert not result.evaluate_metrics_clientapp


def test_fedadam_takes_its_own_step_from_the_noisy_mean():
    private = start(CentralPrivacy(FedAdam(eta=0.1), clip=Norm(1.0), **ALMOST_EXACT))
    assert flat(private.arrays) == pytest.approx(flat(start(FedAdam(eta=0.1)).arrays), rel=0.05)


def test_clients_that_fail_or_send_nonsense_add_nothing():
    def tamper(reply, node):
        if node == 1:
            return Message(Error(1, "broken"), reply_to=reply)
        if node == 2:
            reply.content["arrays"] = model(math.nan)
        if node == 3:
            reply.content["second"] = model(1.0)
        return reply

    result = start(CentralPrivacy(FedAvg(), clip=Norm(1.0), **ALMOST_EXACT), rounds=1, tamper=tamper)
    assert flat(result.arrays) == pytest.approx(np.full(DIMS, 0.05 * 3 / 6), abs=5e-3)


def test_replies_of_clients_that_were_not_drawn_or_come_twice_add_nothing():
    strategy = CentralPrivacy(FedAvg(), clip=Norm(1.0), **ALMOST_EXACT)
    grid = LocalGrid(moving_app([]), range(1, 7))
    strategy.begin(model(), 2)
    strategy.begin(model(), 1)  # nothing is released so far: a run may be planned anew
    replies = grid.send_and_receive(strategy.configure_train(1, model(), ConfigRecord(), grid))
    strategy._asked -= {1, 2}  # as if they had not been drawn
    arrays, _ = strategy.aggregate_train(1, [*replies, *replies])
    assert flat(arrays) == pytest.approx(np.full(DIMS, 0.05 * 4 / 6), abs=5e-3)


def test_a_strategy_that_leaves_drawn_clients_out_is_refused():
    class Half(FedAvg):
        def configure_train(self, *args):
            return list(super().configure_train(*args))[:3]

    with pytest.raises(ValueError, match="Half asked 3 of the 6 clients"):
        start(CentralPrivacy(Half(), clip=Norm(1.0), **ALMOST_EXACT))


@pytest.mark.parametrize(
    ("inner", "why"),
    [
        (lambda: Bulyan(num_malicious_nodes=1), "Bulyan cannot take its step from one reply.*no model"),
        (lambda: QFedAvg(client_learning_rate=0.1), "QFedAvg cannot take its step.*train_loss"),
        (FedXgbBagging, "FedXgbBagging cannot take its step"),
        (FedXgbCyclic, "FedXgbCyclic asked 1 of the 2"),
    ],
    ids=["no model", "a loss", "trees", "one client"],
)
def test_a_strategy_that_needs_more_than_a_mean_is_refused_before_anybody_is_asked(inner, why):
    """Bulyan's model never moved, and the budget was spent."""
    asked = []
    strategy = CentralPrivacy(inner(), clip=Norm(1.0), **ALMOST_EXACT)
    with pytest.raises(ValueError, match=why):
        start(strategy, tamper=lambda reply, node: asked.append(node))
    assert not asked


def test_a_strategy_that_cannot_be_copied_is_tried_by_its_first_round():
    class Locked(FedAvg):
        def __init__(self):
            super().__init__()
            self.lock = threading.Lock()

    result = start(CentralPrivacy(Locked(), clip=Norm(1.0), **ALMOST_EXACT), rounds=1)
    assert flat(result.arrays) == pytest.approx(np.full(DIMS, 0.05), abs=5e-3)


def test_a_round_that_draws_nobody_is_released_all_the_same():
    strategy = CentralPrivacy(
        FedAvg(), clip=Norm(1.0), target_epsilon=1.0, target_delta=1e-6, clients=10**6, clients_per_round=1, rng=4
    )
    result = start(strategy, rounds=2)
    assert np.isfinite(flat(result.arrays)).all()
    assert flat(result.arrays).any()
    assert strategy.rounds.done == 2
