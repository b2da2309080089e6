"""Flower's mod and strategy with a shuffler between them: what clients send there is what the server averages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.federated.conftest import flower_identity  # noqa: F401  # a fixture
from tests.federated.flower import DIMS, LocalGrid, model, moving_app

from noisette.federated import Norm, Ranges
from noisette.federated.client.mod import LocalPrivacy
from noisette.federated.server.mixing import FromShuffler
from noisette.federated.server.strategy import PrivateFedAvg
from noisette.shuffler import InProcess

NODES = 3


@dataclass(frozen=True)
class Delivering(FromShuffler):
    """The server's side, with a shuffler that forwards when the server looks."""

    process: InProcess

    def collect(self, *arguments: Any, **options: Any) -> Iterator[Any]:
        self.process.deliver()
        yield from super().collect(*arguments, **options)


def _federate(
    tmp_path: Path, process: InProcess, mechanism: str, clip: Any, timeout: float = 600.0, **terms: Any
) -> Any:
    private = LocalPrivacy(
        1e6,
        1e-3,
        ledger=tmp_path / "budget.db",
        model="shuffled",
        minimum_set=NODES,
        shuffler=lambda context: process.sender(str(context.node_id)),
    )
    strategy = PrivateFedAvg(
        mechanism,
        target_epsilon=1e5,
        target_delta=1e-6,
        clip=clip,
        model="shuffled",
        minimum=NODES,
        enhance="none",
        mixer=Delivering(process.receipt, process.key, process),
        **terms,
    )
    sent = []

    def look(reply: Any, node: int) -> Any:
        sent.append(reply.content["arrays"]["report"].numpy().size)
        return reply

    grid = LocalGrid(moving_app([private]), range(1, NODES + 1), look)
    result = strategy.start(grid, model(), num_rounds=2, timeout=timeout)
    assert set(sent) == {0}  # nothing came to the server but an acknowledgement
    return strategy, result


@pytest.mark.parametrize("batch", [1, 4, DIMS, 100])
def test_a_value_a_weight(tmp_path: Path, batch: int) -> None:
    with InProcess(minimum=NODES) as process:
        strategy, result = _federate(tmp_path, process, "laplace", Ranges(0.0, 0.1), batch=batch)
    assert [entry["counted"] for entry in strategy.run.rounds] == [NODES] * 2
    moved = np.concatenate([array.numpy().reshape(-1) for array in result.arrays.values()])
    assert moved == pytest.approx(np.full(DIMS, 0.1), abs=2e-3)


@pytest.mark.parametrize("mechanism", ["privunit", "privunit-g"])
def test_a_report_about_the_whole_update(tmp_path: Path, mechanism: str) -> None:
    """It travels in one packet, whatever the batch says: cut in pieces it would be no report."""
    with InProcess(minimum=NODES) as process:
        strategy, _ = _federate(tmp_path, process, mechanism, Norm(1.0))
    assert [(entry["counted"], entry["released"]) for entry in strategy.run.rounds] == [(NODES, True)] * 2


@pytest.mark.long
def test_below_the_minimum_the_model_stays(tmp_path: Path) -> None:
    with InProcess(minimum=NODES + 1) as process:
        strategy, _ = _federate(tmp_path, process, "laplace", Ranges(0.0, 0.1), timeout=0.5)
    assert [entry["released"] for entry in strategy.run.rounds] == [False] * 2
    assert strategy.run.weights == pytest.approx(np.zeros(DIMS))
