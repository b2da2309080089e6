"""A server that wants one client's numbers out of a secure aggregation, with a share of the noise on them."""

from __future__ import annotations

import copy
import hashlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra federated")

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common import Code, FitIns, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, Key, Stage
from flwr.compat.common import recorddict_compat as compat

from noisette.accounting import Ledger
from noisette.federated import Norm
from noisette.federated.distributed import flower
from noisette.federated.distributed.noise import DistributedPlan

pytestmark = pytest.mark.slow

NODES = range(1, 7)
PLAN = DistributedPlan(epsilon=4.0, delta=1e-6, rounds=2, survivors=3, dims=15, clip=Norm(1.0))


@pytest.fixture(autouse=True)
def flower_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    from flwr.supercore.task_identity import TaskIdentity

    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


class Federation:
    """Six clients of an app in Flower's newer style, and a server that sends them what it likes."""

    def __init__(self, folder: Any, plan: DistributedPlan = PLAN, node: dict[str, Any] | None = None) -> None:
        self.trained: list[int] = []
        self.plan = plan
        privacy = flower.DistributedPrivacy(plan, ledger=folder / "budget.db", colluding=1)
        self.app = ClientApp(mods=[privacy])

        @self.app.train()
        @self.app.evaluate()
        @self.app.query()
        def train(message: Message, context: Context) -> Message:
            self.trained.append(context.node_id)
            fit = compat.recorddict_to_fitins(message.content, keep_input=True)
            moved = [array + 0.1 for array in parameters_to_ndarrays(fit.parameters)]
            sent = FitRes(Status(Code.OK, ""), ndarrays_to_parameters(moved), 17, {})
            return Message(compat.fitres_to_recorddict(sent, keep_input=False), reply_to=message)

        self.contexts = {
            number: Context(
                run_id=1,
                node_id=number,
                node_config={"partition-id": number, **(node or {})},
                state=RecordDict(),
                run_config={},
            )
            for number in NODES
        }

    def send(self, node: int, config: dict[str, Any] | None, *, fit: bool = False, kind: str = "train") -> Any:
        start = FitIns(ndarrays_to_parameters([np.zeros(self.plan.dims)]), {})
        content = compat.fitins_to_recorddict(start, True) if fit else RecordDict()
        if config is not None:
            content.config_records[RECORD_KEY_CONFIGS] = ConfigRecord(copy.deepcopy(config))
        message = Message(content, dst_node_id=node, message_type=kind, group_id="1")
        return self.app(message, self.contexts[node])

    def up_to_keys(self, **changed: Any) -> dict[int, SimpleNamespace]:
        """Let all clients agree on keys, and return what each would be sent next."""
        reach = self.plan.reach
        setup = {
            Key.STAGE: Stage.SETUP,
            Key.SAMPLE_NUMBER: len(NODES),
            Key.SHARE_NUMBER: len(NODES),
            Key.THRESHOLD: 4,
            Key.CLIPPING_RANGE: float(reach),
            Key.TARGET_RANGE: 2 * reach,
            Key.MOD_RANGE: 1 << 32,
            Key.MAX_WEIGHT: 1000.0,
        } | changed
        keys = {}
        for node in NODES:
            found = self.send(node, setup).content.config_records[RECORD_KEY_CONFIGS]
            keys[str(node)] = [found[Key.PUBLIC_KEY_1], found[Key.PUBLIC_KEY_2]]
        inbox = {node: SimpleNamespace(sources=[], texts=[]) for node in NODES}
        for node in NODES:
            reply = self.send(node, {Key.STAGE: Stage.SHARE_KEYS} | keys).content.config_records[RECORD_KEY_CONFIGS]
            for to, text in zip(reply[Key.DESTINATION_LIST], reply[Key.CIPHERTEXT_LIST], strict=True):
                inbox[to].sources.append(node)
                inbox[to].texts.append(text)
        return inbox

    def collect(self, node: int, sources: list[int], texts: list[bytes]) -> Any:
        asked = {Key.STAGE: Stage.COLLECT_MASKED_VECTORS, Key.CIPHERTEXT_LIST: texts, Key.SOURCE_LIST: sources}
        return self.send(node, asked, fit=True)

    def unmask(self, node: int, active: list[int], dead: list[int]) -> Any:
        lists = {Key.ACTIVE_NODE_ID_LIST: active, Key.DEAD_NODE_ID_LIST: dead}
        return self.send(node, {Key.STAGE: Stage.UNMASK} | lists)


def refused(reply: Any, reason: str = flower.NOT_UNDER_AGGREGATION) -> bool:
    return bool(reply.has_error()) and reply.error.reason == f"noisette: {reason}"


@pytest.mark.parametrize("kind", ["train.default", "evaluate", "query"])
def test_training_beside_the_aggregation(tmp_path: Any, kind: str) -> None:
    """Flower's mod lets all but "train" pass. "train.default" is the same app: its numbers came unmasked."""
    federation = Federation(tmp_path)
    federation.up_to_keys()
    assert refused(federation.send(1, None, fit=True, kind=kind))
    assert not federation.trained
    assert not (tmp_path / "budget.db").exists()


def test_an_honest_aggregation_goes_through(tmp_path: Any) -> None:
    federation = Federation(tmp_path)
    for node, own in federation.up_to_keys().items():
        assert not federation.collect(node, own.sources, own.texts).has_error()
    for node in NODES:
        assert not federation.unmask(node, list(NODES), []).has_error()
    assert sorted(federation.trained) == list(NODES)


def test_masks_towards_one_client_alone(tmp_path: Any) -> None:
    """Flower counts the ciphertexts: one of a client in league, five times, and its mask was all that hid a vector."""
    federation = Federation(tmp_path)
    own = federation.up_to_keys()[1]
    assert refused(federation.collect(1, own.sources[:1] * 5, own.texts[:1] * 5))
    assert refused(federation.collect(1, [*own.sources[:-1], 1], own.texts))
    assert not federation.trained


@pytest.mark.parametrize(
    ("active", "dead"),
    [
        ([1, 1, 1, 1], [2, 3, 4, 5, 6]),
        ([1, 2, 3, 4], [1]),
        ([1, 2, 3, 4, 5, 6], [2, 2]),
        ([1, 2, 3, 4], [5]),  # nobody said what became of the sixth, whose mask is on the vector
        ([1, 2, 3, 4, 5, 6], [7]),
    ],
)
def test_both_halves_of_a_clients_keys(tmp_path: Any, active: list[int], dead: list[int]) -> None:
    """Flower counts names: one that stands there four times was a threshold, and one could be active and dead."""
    federation = Federation(tmp_path)
    for node, own in federation.up_to_keys().items():
        federation.collect(node, own.sources, own.texts)
    for node in NODES:
        assert refused(federation.unmask(node, active, dead))


def test_a_client_that_answers_is_not_dead(tmp_path: Any) -> None:
    """It sent its vector and is asked for shares: a server that calls it dead lies to it."""
    federation = Federation(tmp_path)
    for node, own in federation.up_to_keys().items():
        federation.collect(node, own.sources, own.texts)
    assert refused(federation.unmask(6, [1, 2, 3, 4, 5], [6]))
    assert not federation.unmask(5, [1, 2, 3, 4, 5], [6]).has_error()


def test_two_openings_at_once(tmp_path: Any) -> None:
    """Two requests that come together see the same state; the second one asked for the other half."""
    federation = Federation(tmp_path)
    own = federation.up_to_keys()[2]
    federation.collect(2, own.sources, own.texts)
    before = copy.deepcopy(federation.contexts[2])
    assert not federation.unmask(2, [1, 2, 3, 4], [5, 6]).has_error()
    federation.contexts[2] = before
    assert refused(federation.unmask(2, [2, 4, 5, 6], [1, 3]), flower.NOT_AFFORDED)


def test_a_threshold_that_two_sets_can_reach(tmp_path: Any) -> None:
    """With a threshold of three of six, one half opens the vector of a client and the other half its masks."""
    plan = DistributedPlan(epsilon=4.0, delta=1e-6, rounds=2, survivors=2, dims=15, clip=Norm(1.0))
    for threshold, agreed in ((3, False), (4, True)):
        folder = tmp_path / f"{threshold}"
        folder.mkdir()
        federation = Federation(folder, plan)
        own = federation.up_to_keys(**{Key.THRESHOLD: threshold})[1]
        assert refused(federation.collect(1, own.sources, own.texts)) != agreed


def test_masks_have_more_than_32_bits_of_seed() -> None:
    """Flower folds a key to 32 bits: keys of the same fold gave the same mask, and all 2^32 masks can be tried."""
    from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen

    one, two = bytes(32), bytes([7, 1, 9, 3] * 8)  # the eight words of the second cancel
    shapes = [(3,), (2, 2), ()]
    theirs = [pseudo_rand_gen(seed, 1 << 32, shapes) for seed in (one, two)]
    assert all((a == b).all() for a, b in zip(*theirs, strict=True))
    ours = [flower.masks(seed, 1 << 32, shapes) for seed in (one, two)]
    assert [mask.shape for mask in ours[0]] == shapes
    assert not any((a == b).all() for a, b in zip(*ours, strict=True))
    words = np.frombuffer(hashlib.shake_128(one).digest(12), dtype="<u4")
    assert (ours[0][0] == words).all()
    for module in (flower._CLIENT, flower._SERVER):
        assert module.pseudo_rand_gen is flower.masks
    with pytest.raises(ValueError, match=r"modulo 2\^32"):
        flower.masks(one, 1 << 24, shapes)


def test_who_operates_a_node_has_the_last_word(tmp_path: Any) -> None:
    """The limit was the plan's, which comes with the app from whoever starts the run."""
    federation = Federation(tmp_path, node={"ledger": str(tmp_path / "own.db"), "epsilon": 3.9, "delta": 1e-6})
    own = federation.up_to_keys()[1]
    assert refused(federation.collect(1, own.sources, own.texts), flower.NOT_AFFORDED)
    assert not federation.trained
    assert not (tmp_path / "budget.db").exists()
    federation = Federation(tmp_path, node={"ledger": str(tmp_path / "own.db"), "epsilon": "much", "delta": 1e-6})
    own = federation.up_to_keys()[2]
    assert refused(federation.collect(2, own.sources, own.texts), flower.NOT_READY)
    federation = Federation(tmp_path, node={"ledger": str(tmp_path / "own.db"), "epsilon": 9.0, "delta": 1e-5})
    own = federation.up_to_keys()[3]
    assert not federation.collect(3, own.sources, own.texts).has_error()
    with Ledger(tmp_path / "own.db") as ledger:
        assert float(ledger.balance("node-3").left["epsilon"]) == 5.0
