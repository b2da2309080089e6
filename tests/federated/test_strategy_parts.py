"""The strategy's own decisions by hand: whom it asks, what it counts, when it releases, how far the model moves."""

from __future__ import annotations

import logging
import math
from types import SimpleNamespace

import numpy as np
import pytest
from flwr.app import ConfigRecord, Error, Message
from tests.federated.flower import DIMS, LocalGrid, model, moving_app

from noisette.federated import Norm, Ranges
from noisette.federated.client.mod import LocalPrivacy
from noisette.federated.server import strategy as module
from noisette.federated.server.strategy import PrivateFedAvg, _weight
from noisette.federated.theory import Prospect

SURE = {"target_epsilon": 1e5, "target_delta": 1e-6, "clip": Ranges(0.0, 0.1), "enhance": "none"}


def begun(rounds=3, **terms):
    strategy = PrivateFedAvg("laplace", **(SURE | terms))
    strategy.begin(model(), rounds)
    return strategy


def grid_of(tmp_path, nodes, step=0.05):
    private = LocalPrivacy(epsilon=1e6, delta=1e-3, ledger=tmp_path / "budget.db")
    return LocalGrid(moving_app([private], step), range(1, nodes + 1))


def asked(strategy, grid, number=1):
    return list(strategy.configure_train(number, model(), ConfigRecord(), grid))


def test_what_it_is_before_it_begins():
    strategy = PrivateFedAvg("laplace", **SURE)
    assert (strategy.timeout, strategy.in_flight, strategy.minimum, strategy.fraction_evaluate) == (3600.0, 64, 2, 0.0)
    assert strategy.delays == {"noisette-spread": 0.0, "noisette-slowest": 0.0}
    assert (strategy.weighted, strategy.adapt_ranges, strategy.state, strategy.history) == (False, False, None, None)
    with pytest.raises(RuntimeError, match="not begun"):
        strategy.guarantee()
    both = PrivateFedAvg("laplace", **SURE, minimum=4, clients_per_round=4)  # every client has to answer
    assert both.minimum == both.clients_per_round
    with pytest.raises(ValueError, match="Mixed reports have no sender"):
        PrivateFedAvg("laplace", **SURE, model="shuffled", mixer=SimpleNamespace(), weighted=True)
    with pytest.raises(ValueError, match="a mixer with model"):
        PrivateFedAvg("laplace", **SURE, mixer=SimpleNamespace())
    for wrong in ({"batch": 0}, {"in_flight": 0}, {"range_margin": 0.0}, {"server_rate": 0.0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            PrivateFedAvg("laplace", **SURE, **wrong)
    one = PrivateFedAvg("laplace", **SURE, batch=1, in_flight=1, minimum=1)
    assert (one.asked_terms["batch"], one.in_flight, one.minimum) == (1, 1, 1)


def test_rounds_of_the_promise_are_those_of_one_client():
    assert begun(5).run.terms.rounds == 5
    assert begun(5, rounds_per_client=2).run.terms.rounds == 2
    assert begun(2, rounds_per_client=5).run.terms.rounds == 2
    planned, run = begun(5).guarantee(), begun(5).run
    assert planned.local.epsilon == run.terms.lines(run.layout).local.epsilon


@pytest.mark.parametrize(("clients", "counted"), [(None, 3), (7, 7)])
def test_what_a_shuffler_would_add_follows_from_the_clients(monkeypatch, clients, counted):
    seen = []
    usual = module.Terms.for_target
    monkeypatch.setattr(
        module.Terms, "for_target", lambda *given, **more: seen.append(more["clients"]) or usual(*given, **more)
    )
    begun(minimum=3, clients_per_round=clients)
    assert seen == [counted]


def test_a_prospect_needs_the_clients_of_a_round():
    terms = {"mechanism": "privunit-g", "clip": Norm(2.0), "target_epsilon": 4.0, "target_delta": 0.0}
    assert begun().prospect(3) is None
    for sends, steps in (("update", 3), ("weights", 1)):
        strategy = PrivateFedAvg(**(SURE | terms), clients_per_round=9, sends=sends)
        strategy.begin(model(), 3)
        run = strategy.run
        noise = run.layout.spread(run.terms.channel(run.layout).noise()) / 3.0
        wanted = Prospect.of(noise, dims=DIMS, reach=2.0, rounds=steps)
        assert strategy.prospect(3) == wanted


def test_whom_a_round_asks(tmp_path, caplog):
    grid = grid_of(tmp_path, 10)
    with caplog.at_level(logging.INFO, logger="flwr"):
        assert len(asked(begun(fraction_train=0.35), grid)) == 3  # of 3.5
        assert len(asked(begun(fraction_train=0.04), grid)) == 1  # one at least
        assert len(asked(begun(clients_per_round=4), grid)) == 4
        assert "the most that was promised" not in caplog.text
        few = begun(1, clients_per_round=7)
        assert (len(asked(few, grid)), len(asked(few, grid, 2))) == (7, 7)  # interrupted: the same again
        assert set(few.run.taken_part.values()) == {1}
        few.run.pending = []
        assert len(asked(few, grid, 2)) == 3  # the others have done their part
        assert "asks 3 clients, not 7" in caplog.text
        assert sorted(few.run.taken_part.values()) == [1] * 10


def test_what_the_clients_are_told(tmp_path):
    strategy = begun(spread=2.0, slowest=5.0)
    strategy._offset = 6
    config = ConfigRecord()
    messages = list(strategy.configure_train(1, model(), config, grid_of(tmp_path, 2)))
    assert len(messages) == 2
    assert config["server-round"] == 7
    assert (config["noisette-spread"], config["noisette-slowest"]) == (2.0, 5.0)
    assert config[module.TERMS] == strategy.run.terms.to_json()


def failing(message, reason):
    return Message(Error(code=1, reason=reason), reply_to=message)


@pytest.mark.parametrize(("answering", "released"), [(3, True), (2, False)])
def test_what_a_round_counts(tmp_path, caplog, answering, released):
    """Four different reasons, one of them twice: the first three are told, each once."""
    grid, strategy = grid_of(tmp_path, 10), begun(minimum=3)
    messages = asked(strategy, grid)
    good = grid.send_and_receive(messages[:answering])
    bad = [failing(one, reason) for one, reason in zip(messages[answering:], "abacd", strict=False)]
    missing = 10 - answering - 5
    with caplog.at_level(logging.INFO, logger="flwr"):
        arrays, metrics = strategy.aggregate_train(1, [*good, *bad])
    (entry,) = strategy.run.rounds
    assert (entry["asked"], entry["counted"], entry["failed"], entry["missing"]) == (10, answering, 5, missing)
    assert entry["reasons"] == ["a", "b", "c"]
    assert entry["rejected"] == []
    assert entry["rejected_mixed"] == 0
    assert entry["released"] is released
    assert (arrays is not None) is released
    assert dict(metrics) == {"reports": answering, "rejected": 0}
    assert f"{missing} clients never answered" in caplog.text
    assert strategy.run.pending == []


def test_nobody_is_missing_where_all_have_answered(tmp_path, caplog):
    grid, strategy = grid_of(tmp_path, 3), begun()
    messages = asked(strategy, grid)
    with caplog.at_level(logging.INFO, logger="flwr"):
        _, metrics = strategy.aggregate_train(1, grid.send_and_receive(messages))
    assert strategy.run.rounds[0]["missing"] == 0
    assert "never answered" not in caplog.text
    assert dict(metrics) == {"reports": 3, "rejected": 0}
    strategy._asked = [1, 2]
    strategy._offset = 1
    again = grid.send_and_receive(asked(strategy, grid, 1))
    strategy._asked = [1, 2]
    _, metrics = strategy.aggregate_train(1, again)
    assert [one["reason"] for one in strategy.run.rounds[1]["rejected"]] == [
        "it was not asked in this round: leave it out"
    ]
    assert dict(metrics) == {"reports": 2, "rejected": 1}


@pytest.mark.parametrize(("sends", "rate", "moved"), [("update", 1.0, 0.05), ("update", 0.4, 0.02)])
def test_how_far_the_model_moves(tmp_path, sends, rate, moved):
    grid, strategy = grid_of(tmp_path, 4), begun(sends=sends, server_rate=rate)
    strategy.run.weights = np.full(DIMS, 0.03)
    strategy.aggregate_train(1, grid.send_and_receive(asked(strategy, grid)))
    assert strategy.run.weights == pytest.approx(np.full(DIMS, 0.03 + moved), abs=2e-3)


def test_weights_that_are_sent_replace_the_model(tmp_path):
    grid, strategy = grid_of(tmp_path, 4), begun(sends="weights", server_rate=0.5)
    strategy.run.weights = np.full(DIMS, 0.01)
    strategy.aggregate_train(1, grid.send_and_receive(asked(strategy, grid)))  # clients say 0.05
    assert strategy.run.weights == pytest.approx(np.full(DIMS, 0.03), abs=2e-3)


def test_a_report_is_of_one_round_of_one_run(tmp_path):
    grid = grid_of(tmp_path, 3)
    for changed in ("round", "run"):
        strategy = begun()
        replies = grid.send_and_receive(asked(strategy, grid))
        replies[1].content["noisette"][changed] = 9 if changed == "round" else "another"
        strategy.aggregate_train(1, replies)
        (entry,) = strategy.run.rounds
        assert [one["client"] for one in entry["rejected"]] == [replies[1].metadata.src_node_id]
        assert "it belongs to round" in entry["rejected"][0]["reason"]


def test_a_weight_is_published_and_positive():
    assert _weight({"num-examples": 3, "other": 5}, "num-examples") == 3
    with pytest.raises(module.RejectedReport, match="no weight"):
        _weight({"other": 5}, "num-examples")
    for wrong in (0, -1.0, math.inf):
        with pytest.raises(ValueError, match="num-examples"):
            _weight({"num-examples": wrong}, "num-examples")


def test_packets_that_nobody_can_have_sent_are_added_up(caplog):
    """Two of one block and one of the next, beside what the layout itself refuses."""
    strategy = begun()
    blocks = [SimpleNamespace(rejected=2, position=0, values="a"), SimpleNamespace(rejected=0, position=1, values="b")]
    taken = []

    class Mixes:
        def collect(self, packets, context, number, *, timeout):
            assert (context, number, timeout) == (strategy._context, 4, 3600.0)
            return iter(blocks)

    class Adds:
        def add_block(self, position, values):
            taken.append((position, values))
            return 1 if position else 0

    assert strategy._mixed(4, Adds()) == 0
    strategy.mixer = Mixes()
    assert strategy._mixed(4, Adds()) == 3
    assert taken == [(0, "a"), (1, "b")]
    assert "3 packets from the shuffler left out" in caplog.text


def test_a_layer_of_unknown_type_is_single():
    strategy = begun()
    strategy._dtypes.pop("bias")
    assert strategy._record(np.zeros(DIMS))["bias"].numpy().dtype == np.float32
