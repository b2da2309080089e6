"""The small parts: who is asked, replies as they come, and what is on the disk."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from tests.federated.flower import LocalGrid, model, moving_app

from noisette.federated import ModelLayout, Norm, Terms
from noisette.federated.server.history import History
from noisette.federated.server.sampling import draw, rounds_of_one
from noisette.federated.server.streaming import StreamingGrid


def test_all_clients_are_asked_equally_often():
    taken = {}
    for _ in range(30):
        for node in draw(range(10), taken, number=3, most=9):
            taken[node] = taken.get(node, 0) + 1
    assert sorted(taken.values()) == [9] * 10
    assert draw(range(10), taken, number=3, most=9) == []
    assert rounds_of_one(30, 3, 10) == 9
    assert rounds_of_one(5, 100, 10) == 5


def test_who_was_never_asked_comes_before_who_was_asked_once():
    for seed in range(20):
        assert draw([1, 2, 3], {1: 1, 2: 1}, number=1, most=3, rng=seed) == [3]
        assert sorted(draw([1, 2, 3], {1: 2, 2: 1}, number=2, most=3, rng=seed)) == [2, 3]
    assert draw([1, 2, 3], {1: 2, 2: 1}, number=9, most=2, rng=1)[-1] == 2
    assert draw([1], {}, number=1, most=1) == [1]
    with pytest.raises(ValueError, match="most=0"):
        draw([1], {}, number=1, most=0)
    assert rounds_of_one(10, 1, 10) == 1
    assert rounds_of_one(11, 1, 10) == 2


def test_who_is_asked_is_random():
    first = {tuple(sorted(draw(range(20), {}, number=3, most=1, rng=seed))) for seed in range(30)}
    assert len(first) > 20
    with pytest.raises(ValueError, match="number=0"):
        draw([1], {}, number=0, most=1)


def test_replies_are_waited_for_until_the_time_is_up():
    from flwr.app import Message, RecordDict

    now = [0.0]
    grid = LocalGrid(moving_app([]), [1, 2], lambda reply, node: None if node == 2 and now[0] < 3 else reply)
    messages = [Message(RecordDict({"arrays": model()}), node, "train") for node in (1, 2)]

    def sleep(seconds):
        now[0] += seconds

    streaming = StreamingGrid(grid, 5, clock=lambda: now[0], sleep=sleep)
    assert [reply.metadata.src_node_id for reply in streaming.send_and_receive(messages, timeout=10)] == [1, 2]
    now[0] = 0.0
    short = StreamingGrid(grid, 5, clock=lambda: now[0], sleep=sleep)
    assert [reply.metadata.src_node_id for reply in short.send_and_receive(messages, timeout=1)] == [1]


@pytest.mark.parametrize(("quiet", "most"), [(0.0, 16), (2.0, 32), (5.0, 64), (20.0, 64)])
def test_more_are_asked_at_a_time_while_nobody_answers(quiet, most):
    """Quick clients get sixteen messages at a time, slow ones up to the limit; all are asked."""
    from flwr.app import Message, RecordDict

    now = [0.0]
    grid = LocalGrid(moving_app([]), range(1, 101), lambda reply, node: reply if now[0] >= quiet else None)
    messages = [Message(RecordDict({"arrays": model()}), node, "train") for node in grid.nodes]

    def sleep(seconds):
        now[0] += seconds

    replies = StreamingGrid(grid, 64, clock=lambda: now[0], sleep=sleep).send_and_receive(messages, timeout=100)
    assert sorted(reply.metadata.src_node_id for reply in replies) == grid.nodes
    assert grid.most_waiting == most


def test_a_history_comes_back_whole(tmp_path):
    layout = ModelLayout.of({"a": np.zeros((2, 2)), "b": np.zeros(3)})
    terms = Terms("run", "privunit-g", epsilon=1.0, clip=Norm(1.0), rounds=3, options={})
    stored = History(terms, layout, [{"round": 1, "counted": 5, "released": True}], {7: 1}, np.arange(7.0), [7])
    stored.save(tmp_path / "new" / "run.npz")
    again = History.load(tmp_path / "new" / "run.npz")
    assert (again.terms, again.layout, again.rounds) == (terms, layout, stored.rounds)
    assert (again.taken_part, again.pending, again.done) == ({7: 1}, [7], 1)
    assert (again.largest_part, again.smallest_round) == (1, 5)
    assert np.array_equal(again.weights, stored.weights)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["run.npz"]


@pytest.mark.long
@pytest.mark.parametrize(("module", "chosen", "switch"), [("simulation", None, "0"), ("mod", "1", "1")])
def test_nobody_is_told_of_a_run_unless_somebody_says_so(module, chosen, switch):
    """Flower reads its switch when it is imported: setting it later did nothing, and runs were reported."""
    names = ("FLWR_TELEMETRY_ENABLED", "RAY_USAGE_STATS_ENABLED")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    environment |= {} if chosen is None else dict.fromkeys(names, chosen)
    code = (
        f"import os, noisette.federated.{module}, flwr.supercore.telemetry as flower;"
        "print(flower.FLWR_TELEMETRY_ENABLED, os.environ['RAY_USAGE_STATS_ENABLED'])"
    )
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.split() == [switch, switch]
