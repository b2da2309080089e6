"""The central model: clients that want to be noticed, and servers that ask once too often."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra federated")

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg
from tests.federated.flower import DIMS, LocalGrid, model, moving_app

from noisette.federated import CentralPrivacy, Norm

pytestmark = pytest.mark.slow

ALMOST_EXACT = {"target_epsilon": 1e5, "target_delta": 1e-6, "clients": 6, "clients_per_round": 6}


@pytest.fixture(autouse=True)
def flower_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    from flwr.supercore.task_identity import TaskIdentity

    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


def arrays(**given: Any) -> RecordDict:
    return RecordDict({"arrays": ArrayRecord({name: Array(value) for name, value in given.items()})})


def torn() -> RecordDict:
    found = model(1.0)
    whole = found["weight"]
    found["weight"] = Array(dtype=whole.dtype, shape=whole.shape, stype=whole.stype, data=whole.data[:7])
    return RecordDict({"arrays": found})


REPLIES = {
    "other layers": lambda: arrays(weight=np.zeros((4, 3), np.float32), other=np.zeros(3, np.float32)),
    "other shapes": lambda: arrays(weight=np.zeros((3, 4), np.float32), bias=np.zeros(3, np.float32)),
    "a layer less": lambda: arrays(weight=np.zeros((4, 3), np.float32)),
    "texts": lambda: arrays(weight=np.full((4, 3), "x"), bias=np.zeros(3, np.float32)),
    "complex numbers": lambda: arrays(weight=np.full((4, 3), 1j), bias=np.zeros(3, np.float32)),
    "half an array": torn,
    "no arrays": lambda: RecordDict({"metrics": MetricRecord({"loss": 1.0})}),
    "nothing": RecordDict,
    "the largest numbers": lambda: arrays(weight=np.full((4, 3), 1e308), bias=np.full(3, -1e308)),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
@pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES)
def test_no_reply_of_a_client_stops_a_run(reply: Any) -> None:
    """A run that ends because of one reply tells that its client was there: each counts as an update of zero."""

    def tamper(given: Message, node: int) -> Message:
        return Message(reply(), reply_to=given) if node == 1 else given

    strategy = CentralPrivacy(FedAvg(), clip=Norm(1.0), **ALMOST_EXACT)
    found = strategy.start(LocalGrid(moving_app([]), range(1, 7), tamper), model(), num_rounds=2)
    flat = np.concatenate([array.numpy().reshape(-1) for array in found.arrays.values()])
    assert flat.size == DIMS
    assert np.isfinite(flat).all()
    assert strategy.rounds.done == 2


def test_a_second_run_on_the_same_budget() -> None:
    """A second start began a new account in silence, and the strategy stated half of what was spent."""
    strategy = CentralPrivacy(FedAvg(), clip=Norm(1.0), **ALMOST_EXACT)
    grid = LocalGrid(moving_app([]), range(1, 7))
    strategy.start(grid, model(), num_rounds=1)
    with pytest.raises(RuntimeError, match=r"has released 1 rounds under .* build another strategy"):
        strategy.start(grid, model(), num_rounds=1)


def test_one_group_in_two_rounds_that_follow() -> None:
    """Correlated noise counts on rounds between two visits to a client. Whoever said "round 1" twice had none."""
    strategy = CentralPrivacy(FedAvg(), clip=Norm(1.0), bands=2, **(ALMOST_EXACT | {"clients_per_round": 3}))
    grid = LocalGrid(moving_app([]), range(1, 7))
    strategy.begin(model(), 4)
    asked = []
    for _ in range(4):
        messages = list(strategy.configure_train(1, model(), ConfigRecord(), grid))
        asked.append({message.metadata.dst_node_id for message in messages})
        strategy.aggregate_train(1, grid.send_and_receive(messages))
    assert not asked[0] & asked[1]
    assert asked[0] == asked[2]
    assert asked[0] | asked[1] == set(range(1, 7))
