"""The strategy and the mod together, on real Flower messages: right means, faults, sampling, restart."""

from __future__ import annotations

import json
import logging
import math

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from tests.federated.flower import DIMS, LocalGrid, model, moving_app

from noisette.cli.learning.federate import _show as show
from noisette.federated import Length, Norm, Ranges
from noisette.federated.client.mod import NOT_AFFORDED, LocalPrivacy
from noisette.federated.runs.run import record_of
from noisette.federated.server.mixing import Simulated
from noisette.federated.server.strategy import PrivateFedAvg

NEARLY_EXACT = {"target_epsilon": 1e5, "target_delta": 1e-6, "clip": Ranges(0.0, 0.1), "enhance": "none"}


def mod(tmp_path, **terms):
    return LocalPrivacy(**({"epsilon": 1e6, "delta": 1e-3, "ledger": tmp_path / "budget.db"} | terms))


def federate(tmp_path, *, nodes=4, rounds=2, tamper=None, app=None, timeout=600.0, mechanism="laplace", **terms):
    strategy = PrivateFedAvg(mechanism, **(NEARLY_EXACT | terms))
    grid = LocalGrid(app or moving_app([mod(tmp_path)]), range(1, nodes + 1), tamper)
    result = strategy.start(grid, model(), num_rounds=rounds, timeout=timeout)
    return strategy, grid, result


def flat(arrays):
    return np.concatenate([array.numpy().reshape(-1) for array in arrays.values()])


def test_the_model_moves_by_the_mean_of_the_updates(tmp_path):
    strategy, _, result = federate(tmp_path)
    assert flat(result.arrays) == pytest.approx(np.full(DIMS, 0.1), abs=2e-3)
    assert [entry["counted"] for entry in strategy.run.rounds] == [4, 4]
    assert result.arrays["bias"].numpy().dtype == np.float32


def test_a_round_counts_who_is_there_after_the_wait(tmp_path):
    """A node that connects while the server waits for the least number of nodes is asked in that very round."""

    class Slow(LocalGrid):
        asked = 0

        def get_node_ids(self):
            self.asked += 1
            return self.nodes[: 2 if self.asked == 1 else 3]

    strategy = PrivateFedAvg("laplace", **NEARLY_EXACT, minimum=3, min_available_nodes=3)
    strategy.start(Slow(moving_app([mod(tmp_path)]), range(1, 4)), model(), num_rounds=1, timeout=600.0)
    assert [(entry["asked"], entry["counted"]) for entry in strategy.run.rounds] == [(3, 3)]


def test_a_model_with_counters_keeps_shapes_and_types(tmp_path):
    """Batch normalisation counts its batches in a whole number without shape, which noise reaches as well."""
    layers = {"weight": np.full((3, 4), 0.1, np.float16), "batches": np.asarray(5), "small": np.asarray([1], np.uint8)}
    start = ArrayRecord({name: Array(layer) for name, layer in layers.items()})
    app = ClientApp(mods=[mod(tmp_path)])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        moved = {name: np.asarray(array.numpy() + array.numpy().dtype.type(1)) for name, array in start.items()}
        content = RecordDict({"arrays": ArrayRecord({name: Array(layer) for name, layer in moved.items()})})
        return Message(content, reply_to=message)

    strategy = PrivateFedAvg("laplace", **(NEARLY_EXACT | {"clip": Ranges(0.0, 2.0)}))
    found = strategy.start(LocalGrid(app, range(1, 4)), start, num_rounds=1).arrays
    assert {name: (layer.numpy().shape, layer.numpy().dtype) for name, layer in found.items()} == {
        name: (layer.shape, layer.dtype) for name, layer in layers.items()
    }
    assert (found["batches"].numpy(), found["small"].numpy()[0]) == (6, 2)
    noisy = with_layers(strategy, {"batches": -1e30, "small": 300.0})
    assert (noisy["batches"].numpy(), noisy["small"].numpy()[0]) == (np.iinfo(np.int64).min, 255)


def with_layers(strategy, values):
    """Return the model that the strategy would send if some layers held these numbers."""
    vector = strategy.run.weights.copy()
    for name, part in strategy.run.layout.parts():
        vector[part] = values.get(name, 0.0)
    return strategy._record(vector)


@pytest.mark.long
@pytest.mark.parametrize(
    ("mechanism", "clip"),
    [
        ("piecewise", Ranges(0.0, 0.1)),
        ("gaussian", Ranges(0.0, 0.1)),
        ("adaptive-duchi", Ranges(0.0, 0.1)),
        ("retain-or-noise", Ranges(0.0, 0.1)),
        ("privunit", Norm(1.0)),
        ("privunit-g", Norm(1.0)),
        ("tensor-gaussian", Norm(1.0)),
        ("angle-noise", Length(1.0)),
    ],
)
def test_every_listed_mechanism_federates_within_its_target(tmp_path, mechanism, clip):
    strategy, _, _ = federate(tmp_path, mechanism=mechanism, clip=clip, target_epsilon=8.0, rounds=1, nodes=2)
    lines = strategy.guarantee()
    assert 7.5 < lines.local.epsilon <= 8
    assert strategy.run.rounds[0]["lines"]["local"]["epsilon"] == lines.local.epsilon


def test_nothing_but_the_report_leaves_the_client(tmp_path):
    seen = []

    def look(reply, node):
        seen.append(reply.content)
        return reply

    federate(tmp_path, tamper=look, rounds=1)
    for content in seen:
        assert list(content.array_records) == ["arrays"]
        assert list(content["arrays"]) == ["report"]
        assert dict(content["metrics"]) == {}
        assert set(content["noisette"]) == {"round", "run"}


def test_weights_that_clients_publish_weight_the_mean(tmp_path):
    private = mod(tmp_path, public_metrics=lambda node: {"num-examples": 3 if node["partition-id"] == 1 else 1})
    steps = {1: 0.02, 2: 0.08}
    apps = {node: moving_app([private], step, {"num-examples": 10}) for node, step in steps.items()}
    strategy, _, result = federate(tmp_path, nodes=2, app=_by_node(apps), weighted=True, rounds=1)
    assert flat(result.arrays) == pytest.approx(np.full(DIMS, (3 * 0.02 + 0.08) / 4), abs=2e-3)
    strategy, _, _ = federate(tmp_path, nodes=2, weighted=True, rounds=1)
    assert all("has no weight" in one["reason"] for one in strategy.run.rounds[0]["rejected"])


def _by_node(apps):
    return lambda message, context: apps[context.node_id](message, context)


FAULTS = {
    "wrong shape": (lambda p: np.append(p, p), "report of 15"),
    "not a number": (lambda p: np.where(np.arange(p.size) == 2, np.nan, p), "of float64"),
    "far away": (lambda p: p * 0 + 2**30, "farther than noise"),
    "another type": (lambda p: p.astype(np.int64), "of int64"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_report_is_left_out_and_the_rest_is_right(tmp_path, caplog, fault):
    spoil, words = FAULTS[fault]

    def tamper(reply, node):
        if node == 2:
            report = reply.content["arrays"]["report"].numpy()
            reply.content["arrays"] = ArrayRecord({"report": Array(spoil(report))})
        return reply

    with caplog.at_level(logging.INFO, logger="flwr"):
        strategy, _, result = federate(tmp_path, tamper=tamper, rounds=1)
    (entry,) = strategy.run.rounds
    assert (entry["counted"], entry["released"]) == (3, True)
    assert [one["client"] for one in entry["rejected"]] == [2]
    assert words in entry["rejected"][0]["reason"]
    assert "report of client 2 left out" in caplog.text
    assert flat(result.arrays) == pytest.approx(np.full(DIMS, 0.05), abs=2e-3)


def test_raw_weights_of_a_client_without_the_mod_are_never_added(tmp_path):
    bare = moving_app([])
    apps = {1: bare} | {node: moving_app([mod(tmp_path)]) for node in (2, 3)}
    strategy, _, result = federate(tmp_path, nodes=3, app=_by_node(apps), rounds=1)
    assert "no private report" in strategy.run.rounds[0]["rejected"][0]["reason"]
    assert flat(result.arrays) == pytest.approx(np.full(DIMS, 0.05), abs=2e-3)


def test_a_second_reply_and_one_of_another_round_do_not_count(tmp_path, caplog):
    strategy = PrivateFedAvg("laplace", **NEARLY_EXACT)
    grid = LocalGrid(moving_app([mod(tmp_path)]), [1, 2, 3])
    arrays = strategy.begin(model(), 2)
    first = grid.send_and_receive(strategy.configure_train(1, arrays, ConfigRecord(), grid))
    arrays, _ = strategy.aggregate_train(1, [*first, first[0]])
    assert "already" in strategy.run.rounds[0]["rejected"][0]["reason"]
    assert strategy.run.rounds[0]["counted"] == 3
    second = grid.send_and_receive(strategy.configure_train(2, arrays, ConfigRecord(), grid))
    arrays, _ = strategy.aggregate_train(2, [first[1], *second])
    assert "belongs to round 1" in strategy.run.rounds[1]["rejected"][0]["reason"]
    assert flat(arrays) == pytest.approx(np.full(DIMS, 0.1), abs=2e-3)


def test_a_client_that_never_answers_is_waited_for_and_then_left_out(tmp_path, caplog):
    with caplog.at_level(logging.INFO, logger="flwr"):
        strategy, _, result = federate(
            tmp_path, tamper=lambda reply, node: None if node == 3 else reply, rounds=1, timeout=0.2
        )
    (entry,) = strategy.run.rounds
    assert (entry["counted"], entry["missing"], entry["released"]) == (3, 1, True)
    assert "never answered" in caplog.text
    assert flat(result.arrays) == pytest.approx(np.full(DIMS, 0.05), abs=2e-3)


def test_a_round_below_the_minimum_is_not_released(tmp_path, caplog):
    strategy, _, result = federate(
        tmp_path, tamper=lambda reply, node: reply if node == 1 else None, rounds=1, minimum=2, timeout=0.2
    )
    (entry,) = strategy.run.rounds
    assert not entry["released"]
    assert not result.arrays  # Flower keeps the model it had
    assert np.array_equal(strategy.run.weights, np.zeros(DIMS))
    assert "not released: 1 reports came, and 2" in caplog.text


def test_clients_that_cannot_afford_the_run_send_nothing(tmp_path, caplog):
    poor = mod(tmp_path, epsilon=5.0, account="poor", ledger=tmp_path / "poor.db")
    rich = mod(tmp_path, epsilon=20.0, ledger=tmp_path / "rich.db")
    apps = {1: moving_app([poor])} | {node: moving_app([rich]) for node in (2, 3)}
    cheap = {"mechanism": "privunit-g", "clip": Norm(1.0), "target_epsilon": 8.0}
    strategy, _, _ = federate(tmp_path, nodes=3, app=_by_node(apps), rounds=1, **cheap)
    (entry,) = strategy.run.rounds
    assert (entry["failed"], entry["counted"]) == (1, 2)
    assert "has epsilon=5" in caplog.text
    assert entry["reasons"] == [f"noisette: {NOT_AFFORDED}"]  # how much a client has left is not told


def test_the_command_shows_why_a_round_was_not_released(tmp_path, capsys):
    """Three clients say the same, once is enough; a round that was released is not mentioned."""
    poor = moving_app([mod(tmp_path, epsilon=5.0, account="poor")])
    cheap = {"mechanism": "privunit-g", "clip": Norm(1.0), "target_epsilon": 8.0}
    strategy, _, _ = federate(tmp_path, nodes=3, app=poor, rounds=1, **cheap)
    asked = {"mechanism": "privunit-g", "rounds": 1, "certificate": None}
    show(record_of(asked, strategy, [], 0.0))
    shown = capsys.readouterr().out
    assert "Round 1 was not released: 0 of 3 reports counted." in shown
    assert shown.count(NOT_AFFORDED) == 1
    strategy.run.rounds[0]["released"] = True
    show(record_of(asked, strategy, [], 0.0))
    assert "not released" not in capsys.readouterr().out


def test_k_of_n_clients_take_part_equally_often_and_no_more_than_promised(tmp_path):
    strategy, _, _ = federate(tmp_path, nodes=6, rounds=4, clients_per_round=3, rounds_per_client=2)
    assert sorted(strategy.run.taken_part.values()) == [2] * 6
    assert strategy.guarantee().rounds == 2
    assert all(entry["asked"] == 3 for entry in strategy.run.rounds)


@pytest.mark.long
def test_ranges_follow_the_noisy_model_and_reach_the_clients(tmp_path):
    strategy, _, _ = federate(
        tmp_path,
        mechanism="adaptive-duchi",
        target_epsilon=50.0,
        sends="weights",
        adapt_ranges=True,
        range_margin=2.0,
        widest=0.5,
        rounds=3,
        nodes=10,
    )
    clips = [entry["clip"] for entry in strategy.run.rounds]
    assert clips[0]["radius"] == [0.1]
    assert len(clips[1]["radius"]) == 2  # one for each layer
    assert clips[1] != clips[2]
    assert len({entry["lines"]["local"]["epsilon"] for entry in strategy.run.rounds}) == 3  # rounds add up


def test_a_restarted_server_goes_on_where_it_stopped(tmp_path):
    state = tmp_path / "run.npz"
    federate(tmp_path, rounds=4, state=state, tamper=None)
    whole = np.load(state)["weights"]
    calls = []
    half = tmp_path / "half.npz"

    class Killed(RuntimeError):
        pass

    def die(reply, node):
        if len(calls) >= 10:
            raise Killed
        return reply

    app = moving_app([mod(tmp_path, ledger=tmp_path / "second.db")], calls=calls)
    with pytest.raises(Killed):
        federate(tmp_path, rounds=4, state=half, app=app, tamper=die)
    made = list(calls)
    strategy, _, result = federate(tmp_path, rounds=4, state=half, app=app)
    assert [entry["round"] for entry in strategy.run.rounds] == [1, 2, 3, 4]
    assert all(entry["counted"] == 4 for entry in strategy.run.rounds)
    assert len(calls) == 16  # a report that was made before the crash was sent again, not made again
    assert made == calls[:10]
    assert flat(result.arrays) == pytest.approx(whole, abs=4e-3)
    strategy, _, result = federate(tmp_path, rounds=4, state=half, app=app)
    assert len(calls) == 16  # all rounds are done
    assert flat(result.arrays) == pytest.approx(whole, abs=4e-3)


def test_a_state_of_other_terms_is_refused(tmp_path):
    state = tmp_path / "run.npz"
    federate(tmp_path, rounds=1, state=state)
    with pytest.raises(ValueError, match="other terms"):
        federate(tmp_path, rounds=1, state=state, target_epsilon=3.0)
    state.write_bytes(b"spoiled")
    with pytest.raises(ValueError, match="no run that can be resumed"):
        federate(tmp_path, rounds=1, state=state)


def test_no_more_messages_than_allowed_are_under_way(tmp_path):
    _, grid, _ = federate(tmp_path, nodes=20, rounds=1, in_flight=3)
    assert grid.most_waiting <= 3


def mixed(tmp_path, *, nodes, minimum, **terms):
    """Federate with a shuffler inside the server that mixes four reports or more."""
    shuffled = {
        "mechanism": "adaptive-duchi",
        "model": "shuffled",
        "target_epsilon": 1e3,
        "mixer": Simulated(minimum=4),
    }
    return federate(tmp_path, nodes=nodes, minimum=minimum, **(shuffled | terms))


def test_mixed_reports_come_without_senders(tmp_path):
    strategy, _, result = mixed(tmp_path, nodes=5, minimum=4, rounds=2, batch=4)
    assert [entry["counted"] for entry in strategy.run.rounds] == [5, 5]
    assert np.all(np.abs(flat(result.arrays)) < 0.3)
    lines = strategy.guarantee()
    assert lines.shuffled.epsilon <= lines.local.epsilon
    with strategy.mixer.process.receipt._database.transaction() as connection:  # what was read is not kept
        assert connection.execute("SELECT count(*) FROM packets").fetchone() == (0,)


def test_a_seed_and_what_it_projects_are_mixed_as_one_packet(tmp_path):
    """At so large a budget little is added to the update, all of whose length a direction has."""
    terms = {"mechanism": "fast-projunit", "clip": Length(0.2), "target_epsilon": 1e3}
    strategy, _, result = mixed(tmp_path, nodes=5, minimum=4, rounds=1, **terms)
    run = strategy.run
    packets = run.terms.channel(run.layout).packets(64)
    assert (packets.blocks, packets.kind) == (1, "int8")
    assert [(entry["counted"], entry["released"]) for entry in run.rounds] == [(5, True)]
    assert np.linalg.norm(flat(result.arrays) - 0.2 / math.sqrt(DIMS)) < 0.05


def test_fewer_reports_than_the_shuffler_mixes_are_not_released(tmp_path):
    strategy, _, _ = mixed(tmp_path, nodes=3, minimum=3, rounds=1)
    assert not strategy.run.rounds[0]["released"]


def test_history_is_json(tmp_path):
    strategy, _, _ = federate(tmp_path, rounds=1)
    assert json.loads(json.dumps(strategy.run.rounds))[0]["round"] == 1


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ({"adapt_ranges": True, "clip": Norm(1.0)}, "to be Ranges"),
        ({"model": "shuffled"}, "a mixer with model"),
        ({"minimum": 0}, "minimum=0"),
        ({"server_rate": -1.0}, "server_rate"),
        ({"enhance": "shrink"}, "enhance='shrink' to be one of auto, none, hdr4me-l1"),
        ({"enhance": "simplex"}, "enhance='simplex'"),
        ({"minimum": 5, "clients_per_round": 4}, "minimum=5 to be at most clients_per_round=4"),
    ],
)
def test_bad_terms_are_refused(terms, words):
    with pytest.raises(ValueError, match=words):
        PrivateFedAvg("laplace", **(NEARLY_EXACT | terms))
