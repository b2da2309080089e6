"""Shares of noise under secure aggregation: the law of their sum, the integers, and Flower's own protocol."""

from __future__ import annotations

import copy
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from noisette._random import discrete_gaussian
from noisette.accounting import zcdp_epsilon, zcdp_rho
from noisette.federated import Norm, Ranges
from noisette.federated.distributed.noise import DistributedPlan

PLAN = {"epsilon": 4.0, "delta": 1e-6, "rounds": 5, "survivors": 20, "dims": 30, "clip": Norm(2.0)}


def law_of_sum(share, clients):
    """The law of a sum of discrete Gaussian variables, by convolution."""
    reach = int(14 * share)
    one = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * share**2))
    one /= one.sum()
    total = one
    for _ in range(clients - 1):
        total = np.convolve(total, one)
    return total


@pytest.mark.parametrize(("share", "clients"), [(1.0, 5), (2.0, 3), (4.0, 8)])
def test_sums_of_shares_are_as_concentrated_as_the_theorem_says(share, clients):
    """Renyi divergences of the true law of the sum, moved by whole numbers, against rho = epsilon^2 / 2."""
    law = law_of_sum(share, clients)
    places = np.arange(law.size) - law.size // 2
    keep = abs(places) <= 20 * share * math.sqrt(clients)  # the sums below have their mass within eight deviations
    tau = 10 * sum(math.exp(-2 * math.pi**2 * share**2 * k / (k + 1)) for k in range(1, clients))
    for moved in (1, 2, 3):
        bound = moved / (math.sqrt(clients) * share) + tau
        for order in (1.5, 3.0, 5.0):
            p, q = law[keep][moved:], law[keep][:-moved]
            divergence = math.log(float(np.sum(np.exp(order * np.log(p) + (1 - order) * np.log(q))))) / (order - 1)
            assert divergence <= order * bound**2 / 2 * (1 + 1e-9) + 1e-12
            # the twin: with a tenth less noise the bound would be broken
            assert divergence > order * (0.9 * bound) ** 2 / 2 or tau > 1e-3


def test_a_plan_spends_what_was_asked_and_no_less():
    plan = DistributedPlan(**PLAN)
    assert plan.spent <= 4.0
    assert plan.spent > 3.99
    moved = 2 * plan.length / (math.sqrt(20) * plan.share)
    assert plan.spent == pytest.approx(zcdp_epsilon(5 * moved**2 / 2, 1e-6), rel=1e-9)


@pytest.mark.parametrize("scale", [1e-300, 0.1, 1.0, 1e150])
def test_whole_numbers_are_never_longer_than_the_plan_says(scale, monkeypatch):
    plan = DistributedPlan(**PLAN)
    monkeypatch.setattr("noisette._random.discrete_gaussian", lambda rng, sigma, size: np.zeros(size))
    for seed in range(50):
        numbers = plan.encode(np.random.default_rng(seed).normal(0, scale, 30), rng=seed)
        assert sum(int(number) ** 2 for number in numbers) <= plan.length**2


@pytest.mark.parametrize(("survivors", "rounds", "dims"), [(1, 1, 1), (80, 20, 1000), (10**6, 3, 10**9)])
def test_margins_of_a_plan_are_kept_to_the_digit(survivors, rounds, dims):
    """2^-40 of delta, of the distance and of the length are left to rounding, and more than t of the theorem."""
    plan = DistributedPlan(epsilon=4.0, delta=1e-6, rounds=rounds, survivors=survivors, dims=dims, clip=Norm(1.0))
    distance = math.sqrt(2 * zcdp_rho(4.0, 1e-6 * (1 - 2.0**-40)) / rounds * survivors) * (1 - 2.0**-40)
    assert plan._distance == pytest.approx(distance, rel=2e-15)
    assert plan.share == 2.0 ** math.ceil(math.log2(max(64.0, 2 * 4096 / distance)))
    assert plan.length == int(Fraction(plan._distance) * Fraction(plan.share) / 2 * Fraction(1 - 2.0**-40))
    with mpmath.workdps(30):
        t = 10 * survivors * mpmath.exp(-(mpmath.pi**2) * mpmath.mpf(plan.share) ** 2) * mpmath.sqrt(dims)
        moved = 2 * plan.length / (mpmath.sqrt(survivors) * mpmath.mpf(plan.share)) + t
        assert moved < mpmath.sqrt(2 * mpmath.mpf(zcdp_rho(4.0, 1e-6)) / rounds)
        assert t < mpmath.mpf(10) ** -17000
    assert plan.spent <= 4.0


def test_means_are_right_and_as_noisy_as_predicted():
    plan, clients = DistributedPlan(**(PLAN | {"dims": 400})), 60
    truth = np.full(400, 0.05)
    total = sum(plan.encode(truth, rng=client) for client in range(clients))
    errors = plan.mean(total, clients) - truth
    assert errors.std() == pytest.approx(plan.noise(clients), rel=0.2)  # 400 entries: false alarm below 1e-6
    assert abs(errors.mean()) < 5 * plan.noise(clients) / 20 + plan.clip.norm / plan.length


def test_noise_comes_from_the_exact_sampler():
    plan = DistributedPlan(**PLAN)
    rng, twin = np.random.default_rng(3), np.random.default_rng(3)
    assert (plan.encode(np.zeros(30), rng=rng) == discrete_gaussian(twin, plan.share, 30)).all()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"epsilon": 0.0}, "epsilon=0.0 > 0"),
        ({"delta": 0.0}, "delta=0.0"),
        ({"survivors": 0}, "survivors=0"),
        ({"clip": Ranges(0.0, 1.0)}, r"to be Norm\(...\)"),
    ],
)
def test_plans_that_cannot_be_kept(wrong, message):
    with pytest.raises(ValueError, match=message):
        DistributedPlan(**(PLAN | wrong))


def test_more_clients_than_a_sum_can_hold_are_refused():
    plan = DistributedPlan(**PLAN)
    plan.check(100)
    with pytest.raises(ValueError, match="does not fit into 32 bits"):
        plan.check(10**6)


@pytest.mark.parametrize(("reach", "most"), [(1, (2**32 - 1) // 3), (2, (2**32 - 1) // 5), (65536, 32767)])
def test_as_many_clients_as_a_sum_can_hold_are_taken(monkeypatch, reach, most):
    """Each sends one of 2 reach + 1 numbers: the sums of so many are told apart modulo 2^32."""
    monkeypatch.setattr(DistributedPlan, "reach", property(lambda _: reach))
    plan = DistributedPlan(**PLAN)
    plan.check(most)
    with pytest.raises(ValueError, match=f"The sum of {most + 1} clients, of up to {reach} each"):
        plan.check(most + 1)


def test_an_update_that_is_not_finite_counts_as_zero():
    plan = DistributedPlan(**PLAN)
    assert (plan.encode(np.full(30, math.nan), rng=1) == plan.encode(np.zeros(30), rng=1)).all()


class TestFlower:
    """Flower's own mod and workflow, in this process: real keys, masks and shares."""

    pytestmark = pytest.mark.slow

    @pytest.fixture
    def plan(self):
        return DistributedPlan(epsilon=1e4, delta=1e-6, rounds=2, survivors=3, dims=15, clip=Norm(1.0))

    def app(self, plan, tmp_path, *, step=0.05, colluding=1, fail=()):
        from flwr.client import NumPyClient
        from flwr.clientapp import ClientApp

        from noisette.federated.distributed.flower import DistributedPrivacy

        class Client(NumPyClient):
            def __init__(self, node):
                self.node = node

            def fit(self, parameters, config):
                if self.node in fail:
                    raise RuntimeError(f"secret of {self.node}")
                return [array + np.float32(step) for array in parameters], 17, {"loss": 0.5}

        privacy = DistributedPrivacy(plan, ledger=tmp_path / "budget.db", colluding=colluding)
        return ClientApp(
            client_fn=lambda context: Client(context.node_config["partition-id"]).to_client(),
            mods=[privacy],
        )

    def run(self, plan, app, *, nodes=6, rounds=2, tamper=None, workflow=None):
        import warnings

        from flwr.app import Error, Message
        from flwr.server import LegacyContext, ServerConfig, SimpleClientManager
        from tests.federated.flower import LocalGrid

        from noisette.federated.distributed import flower

        start = [np.zeros((4, 3), np.float32), np.zeros(3, np.float32)]
        strategy = flower.DistributedFedAvg(plan, start, clients_per_round=nodes)

        class Copying(LocalGrid):
            """Gives every node its own copy of a message, as a network does."""

            def push_messages(self, messages):
                return super().push_messages([copy.deepcopy(message) for message in messages])

        def guarded(message, context):
            """Answer as Flower's runtime does for an app, or a mod, that raises."""
            try:
                return app(message, context)
            except ValueError as error:
                return Message(Error(1, str(error)), reply_to=message)

        grid = Copying(guarded, range(1, nodes + 1), tamper)
        context = next(iter(grid.contexts.values()))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Flower's own, about its older interface
            legacy = LegacyContext(
                context=context,
                config=ServerConfig(num_rounds=rounds),
                strategy=strategy,
                client_manager=SimpleClientManager(),
            )
            (workflow or flower.workflow(plan, colluding=1))(grid, legacy)
        return strategy

    def near(self, weights, expected, plan, *, clients=6, rounds=1):
        """Fail once in ten million runs where all weights are expected to have moved so far; a third more is seen."""
        size = plan.noise(clients) * math.sqrt(rounds)
        assert np.abs(weights - expected).max() < 6 * size
        assert abs(weights.mean() - expected) < 6 * size / math.sqrt(weights.size)

    def test_the_model_moves_by_the_mean(self, plan, tmp_path):
        strategy = self.run(plan, self.app(plan, tmp_path))
        self.near(strategy.weights, 0.1, plan, rounds=2)

    def test_an_app_that_fails_adds_zero_and_tells_nothing(self, plan, tmp_path):
        said = []

        def tamper(reply, node):
            said.append(str(reply.error) if reply.has_error() else str(reply.content))
            return reply

        strategy = self.run(plan, self.app(plan, tmp_path, fail=(2, 3, 4)), rounds=1, tamper=tamper)
        self.near(strategy.weights, 0.025, plan)
        assert not any("secret" in text or "loss" in text for text in said)

    def test_clients_that_drop_out_are_covered(self, plan, tmp_path):
        """Two of six never send: four shares of noise are left, and four were asked for."""
        from flwr.app import Error, Message

        asked = {}

        def tamper(reply, node):
            asked[node] = asked.get(node, 0) + 1
            return Message(Error(1, "gone"), reply_to=reply) if node <= 2 and asked[node] >= 3 else reply

        strategy = self.run(plan, self.app(plan, tmp_path), rounds=1, tamper=tamper)
        self.near(strategy.weights, 0.05, plan, clients=4)

    @pytest.mark.parametrize("stage", [1, 2, 3, 4])
    def test_clients_may_leave_at_every_stage(self, plan, tmp_path, stage):
        """Flower asked for shares of keys of clients that never gave any: one that left early ended the round."""
        from flwr.app import Error, Message

        asked = {}

        def tamper(reply, node):
            asked[node] = asked.get(node, 0) + 1
            gone = asked[node] >= {1: stage, 2: 3}.get(node, 9)
            return Message(Error(1, "gone"), reply_to=reply) if gone else reply

        strategy = self.run(plan, self.app(plan, tmp_path), rounds=1, tamper=tamper)
        self.near(strategy.weights, 0.05, plan, clients=4 if stage < 4 else 5)

    @pytest.mark.parametrize(
        ("stage", "key", "value"),
        [
            (1, "PUBLIC_KEY_1", b"no key"),
            (1, "PUBLIC_KEY_1", None),
            (1, "PUBLIC_KEY_2", 7),
            (1, "PUBLIC_KEY_2", "of the first"),
            (2, "DESTINATION_LIST", [99]),
            (2, "CIPHERTEXT_LIST", None),
            (3, "MASKED_PARAMETERS", [b"no array"]),
            (3, "MASKED_PARAMETERS", [np.zeros(3, np.int64)]),
            (3, "MASKED_PARAMETERS", [np.zeros(1), np.full(15, np.nan)]),
            (3, "MASKED_PARAMETERS", [np.zeros(1, np.int64), np.full(15, -1)]),
            (3, "MASKED_PARAMETERS", None),
            (4, "SHARE_LIST", [b"no share"]),
            (4, "SHARE_LIST", None),
            (4, "NODE_ID_LIST", [777]),
        ],
    )
    def test_what_is_no_reply_counts_as_none(self, plan, tmp_path, stage, key, value):
        """A client that sent such a thing ended the run of all others by an error of the server."""
        from flwr.app import ConfigRecord
        from flwr.common import ndarray_to_bytes
        from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, Key

        asked = {}

        def tamper(reply, node):
            asked[node] = asked.get(node, 0) + 1
            if node == 1 and asked[node] == stage:
                name, own = getattr(Key, key), dict(reply.content.config_records[RECORD_KEY_CONFIGS])
                given = {name: value}
                if value == "of the first":
                    given = {name: own[Key.PUBLIC_KEY_1]}
                elif isinstance(value, list) and isinstance(value[0], np.ndarray):
                    given = {name: [ndarray_to_bytes(array) for array in value]}
                own.pop(name)
                reply.content.config_records[RECORD_KEY_CONFIGS] = ConfigRecord(
                    own | {name: one for name, one in given.items() if one is not None}
                )
            return reply

        strategy = self.run(plan, self.app(plan, tmp_path), rounds=1, tamper=tamper)
        self.near(strategy.weights, 0.05, plan, clients=6 if stage == 4 else 5)

    def test_shares_that_make_no_key_lose_the_round_and_not_the_run(self, plan, tmp_path):
        from flwr.app import ConfigRecord
        from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, Key

        asked = {}

        def tamper(reply, node):
            asked[node] = asked.get(node, 0) + 1
            if node == 1 and asked[node] == 4:
                own = dict(reply.content.config_records[RECORD_KEY_CONFIGS])
                own[Key.SHARE_LIST] = [share[:-1] + bytes([share[-1] ^ 1]) for share in own[Key.SHARE_LIST]]
                reply.content.config_records[RECORD_KEY_CONFIGS] = ConfigRecord(own)
            return reply

        strategy = self.run(plan, self.app(plan, tmp_path), rounds=2, tamper=tamper)
        self.near(strategy.weights, 0.05, plan, clients=6)  # of the second round alone

    @pytest.mark.parametrize("wrong", [0.5, math.nan, math.inf, 1e12])
    def test_a_sum_that_cannot_be_one_moves_no_model(self, plan, wrong):
        """A wrong share of a mask's seed may make a seed all the same, and the mask is then not taken off."""
        from types import SimpleNamespace

        from flwr.common import ndarrays_to_parameters

        from noisette.federated.distributed.flower import DistributedFedAvg

        strategy = DistributedFedAvg(plan, [np.zeros((4, 3), np.float32), np.zeros(3, np.float32)], clients_per_round=6)
        sound, other = np.full(15, 300 / 6), np.full(15, 300 / 6)
        other[3] += wrong / 6
        for found, moves in ((sound, True), (other, False)):
            before = strategy.weights.copy()
            results = [(None, SimpleNamespace(parameters=ndarrays_to_parameters([found])))] * 6
            made, _ = strategy.aggregate_fit(1, results, [])
            assert (made is not None) == moves == bool((strategy.weights != before).any())

    @pytest.mark.long
    def test_no_more_rounds_than_were_paid_for(self, plan, tmp_path):
        strategy = self.run(plan, self.app(plan, tmp_path), rounds=3)
        self.near(strategy.weights, 0.1, plan, rounds=2)  # the third moved nothing

    @pytest.mark.long
    def test_weaker_aggregations_are_refused(self, plan, tmp_path):
        from flwr.server.workflow import DefaultWorkflow

        from noisette.federated.distributed.flower import _SERVER

        agreed = {
            "num_shares": 1.0,
            "reconstruction_threshold": 4,
            "clipping_range": float(plan.reach),
            "quantization_range": 2 * plan.reach,
        }
        for weaker in (
            {"reconstruction_threshold": 3},
            {"num_shares": 5},
            {"clipping_range": 1.0},
            {"quantization_range": 2 * plan.reach + 2},
            {"max_weight": 500.0},
        ):
            fit = _SERVER.SecAggPlusWorkflow(**(agreed | weaker))
            folder = tmp_path / next(iter(weaker))
            folder.mkdir()
            strategy = self.run(plan, self.app(plan, folder), rounds=1, workflow=DefaultWorkflow(fit_workflow=fit))
            assert not strategy.weights.any()
            assert not (folder / "budget.db").exists()  # refused before anything was spent

    def test_a_request_outside_of_an_aggregation_is_refused(self, plan, tmp_path):
        from flwr.app import Context, Message, RecordDict
        from flwr.common import FitIns, ndarrays_to_parameters
        from flwr.compat.common import recorddict_compat

        from noisette.federated.distributed.flower import NOT_UNDER_AGGREGATION, DistributedPrivacy

        start = ndarrays_to_parameters([np.zeros((4, 3), np.float32), np.zeros(3, np.float32)])
        request = Message(
            recorddict_compat.fitins_to_recorddict(FitIns(start, {}), True), dst_node_id=1, message_type="train"
        )
        context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config={})
        privacy = DistributedPrivacy(plan, ledger=tmp_path / "budget.db", colluding=0)
        reply = privacy(request, context, lambda message, context: pytest.fail("the app was asked"))
        assert reply.error.reason == f"noisette: {NOT_UNDER_AGGREGATION}"
