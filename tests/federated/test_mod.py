"""The node's side: its budget, its ledger, what it refuses, and a black-box audit of what leaves it."""

from __future__ import annotations

import pickle
import re
import time

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from tests.federated.flower import DIMS, LocalGrid, model, moving_app

import noisette as nz
from noisette.accounting import Ledger
from noisette.federated import ModelLayout, Norm, Ranges
from noisette.federated.client.mod import (
    ANSWERED,
    BEFORE_LAST_STEP,
    NOT_AFFORDED,
    NOT_AGREED,
    NOT_READY,
    NOT_SENT,
    NOT_TRAINING,
    NOT_UNDERSTOOD,
    REFUSALS,
    LocalPrivacy,
)
from noisette.federated.families import family
from noisette.federated.server.strategy import PrivateFedAvg
from noisette.federated.terms import Terms

LAYOUT = ModelLayout.of({name: array.numpy() for name, array in model().items()})


def terms(*, budget=2.0, **changes):
    own = {"run": "run", "mechanism": "privunit-g", "clip": Norm(1.0), "rounds": 3}
    own |= changes
    return Terms(**own, **{family(own["mechanism"]).price: budget})


def ask(
    mod,
    asked,
    number=1,
    *,
    node=1,
    step=0.05,
    message_type=MessageType.TRAIN,
    config=None,
    calls=None,
    extra=None,
    own=(),
):
    """Send one message to a client that runs the mod, and return its reply; ``own`` is in the node's config."""
    grid = LocalGrid(moving_app([mod], step, calls=calls, extra=extra), [node])
    grid.contexts[node].node_config |= dict(own)
    plain = {"server-round": number, "noisette": asked.to_json()} if config is None else config
    content = RecordDict({"arrays": model(), "config": ConfigRecord(plain)})
    (reply,) = grid.send_and_receive([Message(content, node, message_type)])
    return reply


def reason(reply):
    """Return which of the fixed reasons a client gives."""
    assert reply.has_error()
    assert not reply.has_content()
    (found,) = (one for one in REFUSALS if reply.error.reason == f"noisette: {one}")
    return found


def test_a_run_is_debited_whole_and_once_and_rounds_are_counted(tmp_path, caplog):
    mod = LocalPrivacy(7.0, ledger=tmp_path / "budget.db")
    for number in (1, 2, 3):
        assert not ask(mod, terms(), number).has_error()
    with Ledger(tmp_path / "budget.db") as ledger:
        assert float(ledger.balance("node-1").left["epsilon"]) == pytest.approx(1.0)
    assert reason(ask(mod, terms(), 4)) == ANSWERED  # a fourth release of three
    assert "All 3 rounds" in caplog.text  # details stay in the node's log
    assert reason(ask(mod, terms(run="another"), 1)) == NOT_AFFORDED
    assert "asks for epsilon=6" in caplog.text
    assert not ask(mod, terms(run="small", budget=0.9, rounds=1), 1).has_error()


def test_a_node_names_its_own_ledger_and_can_only_lower_what_the_app_allows(tmp_path, caplog):
    """The app, which comes with the run, would give away 7; the node has its file and says less."""
    mod, own = LocalPrivacy(7.0, 1e-6, ledger=tmp_path / "app.db"), str(tmp_path / "node.db")
    assert reason(ask(mod, terms(), own={"ledger": own, "epsilon": 5})) == NOT_AFFORDED
    assert not (tmp_path / "app.db").exists()
    assert not ask(mod, terms(), own={"ledger": str(tmp_path / "other.db"), "epsilon": 50.0, "delta": 0.5}).has_error()
    with Ledger(tmp_path / "other.db") as ledger:
        account = ledger.balance("node-1")
    assert float(account.left["epsilon"]) == pytest.approx(1.0)  # of 7
    assert float(account.left["delta"]) == pytest.approx(1e-6)
    for wrong, words in (
        ({"epsilon": float("nan")}, "epsilon=nan"),
        ({"epsilon": "much"}, "epsilon of the node='much'"),
    ):
        assert reason(ask(mod, terms(run="new"), own={"ledger": own} | wrong)) == NOT_READY
        assert words in caplog.text


def test_terms_that_change_during_a_run_are_another_run(tmp_path):
    mod = LocalPrivacy(7.0, ledger=tmp_path / "budget.db")
    assert not ask(mod, terms(), 1).has_error()
    assert reason(ask(mod, terms(budget=200.0), 2)) == NOT_AFFORDED
    assert not ask(mod, terms(clip=Norm(0.1)), 2).has_error()  # a clip may change: it costs nothing


def test_asked_again_a_client_sends_the_same_report_without_training(tmp_path):
    mod, calls = LocalPrivacy(100.0, ledger=tmp_path / "budget.db"), []
    first = ask(mod, terms(), 1, calls=calls).content["arrays"]["report"].numpy()
    again = ask(pickle.loads(pickle.dumps(mod)), terms(), 1, step=0.9, calls=calls)
    assert np.array_equal(again.content["arrays"]["report"].numpy(), first)
    assert len(calls) == 1
    assert not ask(mod, terms(), 2).has_error()
    assert reason(ask(mod, terms(), 1)) == ANSWERED  # a round before the last one


def test_a_client_whose_report_was_lost_answers_with_a_report_about_nothing(tmp_path):
    """A second report about the update would be a second release. One of a zero update is none, and is kept in turn."""
    mod, calls = LocalPrivacy(1e6, 1e-3, ledger=tmp_path / "budget.db"), []
    exact = terms(mechanism="laplace", clip=Ranges(0.0, 0.1), budget=1e4, rounds=1)
    assert sent(ask(mod, exact, 1, calls=calls), exact) == pytest.approx(np.full(DIMS, 0.05), abs=1e-3)
    [kept] = (tmp_path / "budget.db-reports").glob("*.npy")
    kept.unlink()
    again = [ask(mod, exact, 1, calls=calls) for _ in range(2)]
    assert sent(again[0], exact) == pytest.approx(np.zeros(DIMS), abs=1e-3)
    assert np.array_equal(sent(again[0], exact), sent(again[1], exact))
    assert len(calls) == 1


def test_evaluation_and_other_questions_are_not_answered(tmp_path):
    mod = LocalPrivacy(7.0, ledger=tmp_path / "budget.db")
    assert reason(ask(mod, terms(), message_type=MessageType.EVALUATE)) == NOT_TRAINING


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"server-round": 1}, "no terms"),
        ({"noisette": terms().to_json()}, "no terms"),
        ({"server-round": 1, "noisette": "{}"}, "cannot be read"),
        ({"server-round": 1, "noisette": "[1"}, "cannot be read"),
        ({"server-round": 1, "noisette": terms().to_json().replace("privunit-g", "grr")}, "mechanism='grr'"),
        ({"server-round": 1, "noisette": terms().to_json().replace('"rounds": 3', '"rounds": -3')}, "rounds=-3"),
        ({"server-round": 1, "noisette": terms().to_json().replace('"epsilon": 2.0', '"epsilon": NaN')}, "epsilon=nan"),
        (
            {"server-round": 1, "noisette": terms().to_json().replace('"run": "run"', '"run": ["run"]')},
            r"run=\['run'\]",
        ),
        ({"server-round": 1, "noisette": terms().to_json(), "noisette-spread": float("nan")}, "delays"),
        ({"server-round": 1, "noisette": terms().to_json(), "noisette-spread": -0.5}, "delays"),
        ({"server-round": 1, "noisette": terms().to_json(), "noisette-slowest": float("inf")}, "delays"),
        ({"server-round": 0, "noisette": terms().to_json()}, "no terms"),
        ({"server-round": True, "noisette": terms().to_json()}, "no terms"),
        ({"server-round": 1.0, "noisette": terms().to_json()}, "no terms"),
        ({"server-round": 1, "noisette": 7}, "no terms"),
    ],
)
def test_a_server_that_asks_wrongly_gets_a_reason_and_nothing_else(tmp_path, caplog, config, words):
    mod, calls = LocalPrivacy(7.0, ledger=tmp_path / "budget.db"), []
    assert reason(ask(mod, terms(), config=config, calls=calls)) == NOT_UNDERSTOOD
    assert re.search(words, caplog.text)
    assert not calls


@pytest.mark.parametrize(
    ("mechanism", "clip", "options"),
    [
        ("tensor-gaussian", Norm(1.0), {"relation": "l2:0.001"}),
        ("tensor-gaussian", Ranges(0.0, 1.0), {"relation": "element"}),
        ("tensor-gaussian", Norm(1.0), {"calibration": "classical"}),
        ("angle-noise", Norm(1.0), {"as_published": True, "noise": "laplace"}),
        ("retain-or-noise", Ranges(0.0, 1.0), {"rounded": True}),
        ("duchi-box", Ranges(0.0, 1.0), {"as_published": True}),
        ("laplace", Ranges(0.0, 1.0), {"domain": [0, 1e-9]}),
        ("adaptive-duchi", Ranges(0.0, 1.0), {"seed": 7}),
    ],
)
def test_a_server_does_not_choose_what_the_guarantee_rests_on(tmp_path, mechanism, clip, options):
    asked = terms(mechanism=mechanism, clip=clip, options=options, budget=0.1, delta=1e-6)
    mod, calls = LocalPrivacy(7.0, 1e-5, ledger=tmp_path / "budget.db"), []
    assert reason(ask(mod, asked, calls=calls)) == NOT_AGREED
    assert not calls


def test_harmless_options_are_the_servers(tmp_path):
    mod = LocalPrivacy(7.0, 1e-5, ledger=tmp_path / "budget.db")
    asked = terms(mechanism="retain-or-noise", clip=Ranges(0.0, 1.0), options={"levels": 16}, budget=0.1)
    assert not ask(mod, asked).has_error()


def sent(reply, asked):
    """Return the estimate that a reply gives of the client's update."""
    return asked.channel(LAYOUT).estimate(reply.content["arrays"]["report"].numpy())


@pytest.mark.parametrize(
    ("step", "extra"),
    [(np.nan, None), (np.inf, None), (0.05, {"more": ArrayRecord({"x": Array(np.zeros(3))})})],
)
def test_a_wrong_or_spoiled_model_of_the_app_is_reported_as_no_update(tmp_path, caplog, step, extra):
    mod = LocalPrivacy(1e6, 1e-3, ledger=tmp_path / "budget.db")
    exact = terms(mechanism="laplace", clip=Ranges(0.0, 0.1), budget=1e4, rounds=1)
    assert sent(ask(mod, exact, step=step, extra=extra), exact) == pytest.approx(np.zeros(DIMS), abs=1e-3)
    assert "the app gave no update that can be reported" in caplog.text  # who operates the node can find out
    with Ledger(tmp_path / "budget.db") as ledger:
        assert float(ledger.balance("node-1").epsilon) > 1e5  # and pays as for any other report


@pytest.mark.parametrize(
    ("metrics", "error", "words"),
    [(["num-examples"], TypeError, "numbers by name"), ({"num-examples": "many"}, TypeError, "'many' to be a number")],
)
def test_public_metrics_are_numbers_and_not_names(tmp_path, metrics, error, words):
    with pytest.raises(error, match=words):
        LocalPrivacy(1.0, ledger=tmp_path / "budget.db", public_metrics=metrics)


def test_public_metrics_are_fixed_before_the_request(tmp_path):
    """They come from the node's config; what the app returns under the same name is taken off."""
    mod = LocalPrivacy(7.0, ledger=tmp_path / "budget.db", public_metrics=lambda node: {"num-examples": node["own"]})
    assert dict(ask(mod, terms(), own={"own": 600}).content["metrics"]) == {"num-examples": 600}
    assert reason(ask(mod, terms(), 2)) == NOT_READY


def test_noise_on_the_last_step_warns_and_must_be_wanted_by_both_sides(tmp_path):
    with pytest.warns(nz.PrivacyWarning, match="no finite epsilon holds"):
        mod = LocalPrivacy(7.0, ledger=tmp_path / "budget.db", placement="last-step")
    extra = {BEFORE_LAST_STEP: model(0.03)}
    exact = terms(placement="last-step", mechanism="laplace", clip=Ranges(0.0, 0.1), budget=1e4)
    report = ask(mod, exact, extra=extra).content["arrays"]["report"].numpy()
    assert report == pytest.approx(np.full(DIMS, 0.05), abs=2e-3)  # 0.03 in the clear, 0.02 with little noise
    assert ask(mod, exact, 2).content["arrays"]["report"].numpy() == pytest.approx(np.zeros(DIMS), abs=2e-3)
    assert reason(ask(mod, terms(), extra=extra)) == NOT_AGREED
    sound = LocalPrivacy(7.0, ledger=tmp_path / "budget.db")
    assert reason(ask(sound, terms(placement="last-step"), extra=extra)) == NOT_AGREED


@pytest.mark.filterwarnings("ignore::noisette.PrivacyWarning")
def test_the_strategy_says_that_noise_on_the_last_step_keeps_nothing(tmp_path):
    mod = LocalPrivacy(7.0, ledger=tmp_path / "budget.db", placement="last-step")
    app = moving_app([mod], extra={BEFORE_LAST_STEP: model(0.03)})
    exact = {"target_epsilon": 1e5, "clip": Ranges(0.0, 0.1), "enhance": "none"}
    strategy = PrivateFedAvg("laplace", placement="last-step", **exact)
    result = strategy.start(LocalGrid(app, [1, 2, 3]), model(), num_rounds=1)
    assert result.arrays["bias"].numpy() == pytest.approx(np.full(3, 0.05), abs=2e-3)
    assert strategy.guarantee().local.epsilon == np.inf
    assert "not what holds" in str(strategy.guarantee())


def test_a_client_that_trusts_a_shuffler_needs_one(tmp_path):
    with pytest.raises(ValueError, match="Expected shuffler with model='shuffled'"):
        LocalPrivacy(1.0, 1e-6, ledger=tmp_path / "budget.db", model="shuffled", minimum_set=100)
    with pytest.raises(ValueError, match="epsilon=-1"):
        LocalPrivacy(-1.0, ledger=tmp_path / "budget.db")


def test_a_shuffler_that_mixes_too_few_or_does_not_answer_gets_no_report_out(tmp_path, caplog):
    """Why it failed stays in the node's log; asked again, the client posts the same report."""

    def down(context):
        raise OSError("no route to the shuffler")

    options = {"model": "shuffled", "minimum_set": 100, "shuffler": down}
    mod, calls = LocalPrivacy(7.0, 1e-3, ledger=tmp_path / "budget.db", **options), []
    few = terms(model="shuffled", clients=99, delta=1e-6)
    assert reason(ask(mod, few, calls=calls)) == NOT_AGREED
    assert not calls
    for _ in range(2):
        assert reason(ask(mod, terms(model="shuffled", clients=100, delta=1e-6), calls=calls)) == NOT_SENT
    assert len(calls) == 1
    assert "no route to the shuffler" in caplog.text


class Post:
    """Takes reports for a shuffler, and keeps them with what was said about them."""

    def __init__(self, context):
        self.context, self.sent = context, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def send(self, codes, packets, **said):
        self.sent.append((codes, packets, said))


def test_a_report_goes_to_the_shuffler_and_the_server_gets_an_empty_receipt(tmp_path):
    posts = []
    options = {
        "model": "shuffled",
        "minimum_set": 100,
        "shuffler": lambda context: posts.append(Post(context)) or posts[-1],
    }
    mod = LocalPrivacy(1e6, 1e-3, ledger=tmp_path / "budget.db", **options)
    asked = terms(
        mechanism="laplace", clip=Ranges(0.0, 0.1), budget=1e3, model="shuffled", clients=100, delta=1e-6, batch=4
    )
    config = {"server-round": 2, "noisette": asked.to_json(), "noisette-spread": 3.0, "noisette-slowest": 9.0}
    began = time.monotonic()
    reply = ask(mod, asked, config=config, node=5)
    took = time.monotonic() - began
    assert reply.content["arrays"]["report"].numpy().tolist() == []
    assert dict(reply.content["metrics"]) == {}
    [(codes, packets, said)] = posts[0].sent
    channel = asked.channel(LAYOUT)
    assert channel.values(codes) / 10 == pytest.approx(np.full(DIMS, 0.05), abs=1e-2)
    assert (packets, packets.dims) == (channel.packets(4), DIMS)
    assert posts[0].context.node_id == 5
    assert 0 <= said.pop("elapsed") <= took
    assert said == {
        "context": asked.key(LAYOUT),
        "number": 2,
        "spread": 3.0,
        "slowest": 9.0,
        "minimum": 100,
    }
    local = terms(run="local", mechanism="laplace", clip=Ranges(0.0, 0.1), budget=1.0)  # asks less of the client
    assert not ask(mod, local).has_error()
    assert len(posts) == 2


def test_the_node_learns_how_much_clipping_took(tmp_path, caplog):
    caplog.set_level("INFO", logger="flwr")
    mod = LocalPrivacy(1e6, ledger=tmp_path / "budget.db")
    for number, step in enumerate((0.05, 0.2), start=1):
        ask(mod, terms(mechanism="laplace", clip=Ranges(0.0, 0.1), budget=1.0), number, step=step)
    assert "clipping took 50.0 % of the update of round 2" in caplog.text
    assert "round 1" not in caplog.text


def test_one_weight_that_overflows_is_no_update(tmp_path, caplog):
    """The model and what the app makes of it are finite, and their difference is not, in one of two weights."""
    app = ClientApp(mods=[LocalPrivacy(1e6, ledger=tmp_path / "budget.db")])

    @app.train()
    def train(message, context):
        arrays = ArrayRecord({"weight": Array(np.asarray([0.0, 1.7e308]))})
        return Message(RecordDict({"arrays": arrays}), reply_to=message)

    asked = terms(mechanism="laplace", clip=Ranges(0.0, 0.1), budget=1e4, rounds=1)
    start = ArrayRecord({"weight": Array(np.asarray([0.0, -1.7e308]))})
    config = ConfigRecord({"server-round": 1, "noisette": asked.to_json()})
    message = Message(RecordDict({"arrays": start, "config": config}), 1, MessageType.TRAIN)
    (reply,) = LocalGrid(app, [1]).send_and_receive([message])
    layout = ModelLayout.of({"weight": np.zeros(2)})
    estimate = asked.channel(layout).estimate(reply.content["arrays"]["report"].numpy())
    assert estimate == pytest.approx(np.zeros(2), abs=1e-3)
    assert "an update of finite numbers" in caplog.text


def leaving(tmp_path, mechanism, budget):
    """Return f(x, n, rng): the n numbers that leave a client whose n weights all moved by x.

    Each weight is answered on its own, so one message holds n samples of one answer. Randomness is the client's own,
    not ``rng``'s.
    """
    runs = iter(range(100))

    def reports(x, n, rng):
        mod = LocalPrivacy(1e6, 0.5, ledger=tmp_path / "budget.db")
        asked = terms(mechanism=mechanism, budget=budget, clip=Ranges(0.0, 0.1), rounds=1, run=f"{next(runs)}")
        start = ArrayRecord({"weight": Array(np.zeros(n, np.float32))})
        config = ConfigRecord({"server-round": 1, "noisette": asked.to_json()})
        message = Message(RecordDict({"arrays": start, "config": config}), 1, MessageType.TRAIN)
        (reply,) = LocalGrid(moving_app([mod], x), [1]).send_and_receive([message])
        return asked.channel(ModelLayout.of(np.zeros(n))).unpack(reply.content["arrays"]["report"].numpy())

    return reports


@pytest.mark.long
@pytest.mark.parametrize("mechanism", ["adaptive-duchi", "laplace"])
def test_black_box_audit_of_what_leaves_the_client(tmp_path, mechanism):
    pair = {"inputs": (-0.1, 0.1), "claimed": 0.5, "samples": 100_000, "confidence": 1 - 1e-6, "rng": 7}
    sound = nz.audit(leaving(tmp_path, mechanism, 0.5), **pair)
    assert sound.verdict == "holds"
    assert sound.lower_bound > 0.4  # the audit sees nearly all there is
    # at 0.7 three of 2,000 audits chose an event in a tail, too rare to show more than 0.5
    broken = nz.audit(leaving(tmp_path, mechanism, 1.0), **pair)
    assert broken.verdict == "violated", broken
