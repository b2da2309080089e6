"""What a run, a client and a server refuse to begin with, each with the reason."""

from __future__ import annotations

import math
import threading
import time

import numpy as np
import pytest

import noisette as nz
from noisette.accounting import AlreadyDebited
from noisette.federated import AdaptiveNorm, CentralPlan, Channel, ModelLayout, Norm, PrivateRounds, Ranges, Terms
from noisette.federated.channel import channel_from
from noisette.federated.client.budget import NodeBudget, RoundLog
from noisette.federated.client.mod import LocalPrivacy
from noisette.federated.clipping import clip_from
from noisette.federated.runs.task import Task
from noisette.federated.server.history import History
from noisette.federated.server.mixing import FromShuffler, Simulated
from noisette.federated.server.strategy import PrivateFedAvg
from noisette.federated.theory import AggregatedNoise, aggregated_noise

LAYOUT, CLIP = ModelLayout.of(np.zeros(3)), Ranges(0.0, 1.0)
TERMS = {"run": "run", "mechanism": "laplace", "epsilon": 1.0, "clip": Ranges(0.0, 1.0), "rounds": 2}
RUN = {"clip": Norm(1.0), "target_epsilon": 1.0, "target_delta": 1e-6}

REFUSED = {
    "a centre that is not finite": (lambda: Ranges((0.0, math.inf), (1.0, 1.0)), "finite"),
    "a centre without a radius": (lambda: Ranges((0.0, 1.0), (1.0,)), "as many centres as radii"),
    "two layers of one name": (lambda: ModelLayout(("a", "a"), ((1,), (2,))), "different names"),
    "a layer without a shape": (lambda: ModelLayout(("a", "b"), ((1,),)), "different names"),
    "no weights": (lambda: ModelLayout(("a", "b"), ((0,), (2, 0))), "at least one weight"),
    "words for weights": (lambda: LAYOUT.flatten(np.asarray(["a", "b", "c"])), "real numbers"),
    "complex weights": (lambda: LAYOUT.flatten(np.zeros(3, dtype=complex)), "real numbers"),
    "a vector of another length": (lambda: LAYOUT.unflatten(np.zeros(4)), "a vector of 3 weights"),
    "a matrix of weights": (lambda: LAYOUT.unflatten(np.zeros((3, 1))), "a vector of 3 weights"),
    "an unknown clip": (lambda: clip_from({"clip": "none", "norm": 1.0}), "clip='none' to be 'norm', 'length' or"),
    "a clip without a name": (lambda: clip_from({"norm": 1.0}), "clip=None to be"),
    "an unknown network": (lambda: Task(network="none"), "network='none' to be one of softmax, cnn"),
    "a class too many": (lambda: Task(classes=11), "classes=11"),
    "models of another length": (
        lambda: AggregatedNoise(np.zeros(3), np.ones(3), 0.1).difference(0.1, before=np.zeros(2), optimum=np.zeros(2)),
        r"models of 3 weights, got shape \(2,\)",
    ),
    "a domain that is not about zero": (
        lambda: aggregated_noise(nz.Laplace(1.0, domain=nz.Interval(0, 1)), [1.0], dims=2, clip_norm=1.0),
        "a domain about zero",
    ),
    "a run without a name": (lambda: Terms(**(TERMS | {"run": ""})), "plain characters"),
    "a name that is too long": (lambda: Terms(**(TERMS | {"run": "r" * 10_000})), "plain characters"),
    "a name with other letters": (lambda: Terms(**(TERMS | {"run": "r\u00fcn"})), "plain characters"),
    "an unknown unit": (lambda: Terms(**TERMS, unit="example"), "unit='example'"),
    "an unknown model": (lambda: Terms(**TERMS, model="central"), "model='central'"),
    "unknown contents": (lambda: Terms(**TERMS, sends="data"), "sends='data'"),
    "an unknown placement": (lambda: Terms(**TERMS, placement="never"), "placement='never'"),
    "a budget in an unknown model": (lambda: NodeBudget("ledger", 1.0, model="central"), "model='central'"),
    "a shuffled budget for one": (lambda: NodeBudget("ledger", 1.0, model="shuffled"), "Expected 2 <= minimum_set"),
    "a budget of mixed reports of nobody": (
        lambda: NodeBudget("ledger", 1.0, minimum_set=0),
        "Expected 1 <= minimum_set",
    ),
    "a mod of unknown placement": (lambda: LocalPrivacy(1.0, ledger="ledger", placement="never"), "placement='never'"),
    "a mod without a shuffler": (
        lambda: LocalPrivacy(1.0, ledger="ledger", model="shuffled", minimum_set=9),
        "Expected shuffler",
    ),
    "weights of mixed reports": (
        lambda: PrivateFedAvg("privunit-g", **RUN, model="shuffled", mixer=Simulated(2), weighted=True),
        "no sender, hence no weight",
    ),
    "a quantile that is none": (lambda: AdaptiveNorm(1.0, quantile=1.0), "quantile=1.0 between 0 and 1"),
    "a quantile of nobody": (lambda: AdaptiveNorm(1.0, quantile=0.0), "quantile=0.0 between 0 and 1"),
    "all of the budget for a count": (lambda: AdaptiveNorm(1.0, count_share=1.0), "count_share=1.0"),
    "nothing of the budget for a count": (lambda: AdaptiveNorm(1.0, count_share=0.0), "count_share=0.0"),
    "less noise than a lattice can hold": (
        lambda: PrivateRounds(
            CentralPlan(epsilon=1e14, delta=1e-6, rounds=1, clients=9, clients_per_round=9, bands=1), LAYOUT, Norm(1.0)
        ),
        "beyond the lattice",
    ),
    "a report beside the shuffler": (
        lambda: FromShuffler(None, None).offer(1, np.zeros(1), None, None, "run", 1),
        "not to the shuffler",
    ),
}


@pytest.mark.parametrize(("made", "words"), REFUSED.values(), ids=REFUSED)
def test_refused(made, words):
    with pytest.raises((ValueError, TypeError), match=words):
        made()


def test_the_least_sets_that_a_node_may_name():
    assert NodeBudget("ledger", 1.0, model="shuffled", minimum_set=2).minimum_set == 2
    assert NodeBudget("ledger", 1.0, minimum_set=1).minimum_set == 1


def test_an_acknowledgement_holds_nothing():
    FromShuffler(None, None).offer(1, np.zeros(0), None, None, "run", 1)


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_one_weight_that_is_not_finite_is_named_by_its_layer(place, value):
    layout = ModelLayout(("first", "last"), ((2,), (1,)))
    weights = np.ones(3)
    weights[place] = value
    with pytest.raises(ValueError, match=f"in layer '{'last' if place == 2 else 'first'}'"):
        layout.flatten({"first": weights[:2], "last": weights[2:]})
    large = {"first": np.full(2, 1.7e308), "last": np.ones(1)}  # their sum overflows, and they are finite
    assert layout.flatten(large).tolist() == [1.7e308, 1.7e308, 1.0]


def test_a_budget_does_not_begin_a_run_that_promises_nothing(tmp_path):
    budget = NodeBudget(tmp_path / "ledger", 1e6, 1e-3)
    nothing = Terms(**TERMS, placement="last-step", delta=1e-6)
    with pytest.raises(ValueError, match="promise nothing"):
        budget.begin("one", nothing, LAYOUT, "run", RoundLog(tmp_path / "log"))
    assert not (tmp_path / "ledger").exists()
    budget.begin("one", Terms(**TERMS, delta=1e-6), LAYOUT, "run", RoundLog(tmp_path / "log"))


@pytest.mark.parametrize("options", [{"relation": "element"}, {"relation": "add-remove"}])
def test_options_that_protect_less_than_the_whole_update_are_refused(options):
    with pytest.raises((ValueError, TypeError), match="Expected"):
        Channel("tensor-gaussian", LAYOUT, Norm(1.0), mu=1.0, options=options)


def test_a_file_of_another_format_is_not_resumed(tmp_path):
    path = tmp_path / "run.npz"
    with pytest.raises(FileNotFoundError):
        History.load(path)
    head = np.frombuffer(b'{"format": 999}', dtype=np.uint8)
    np.savez(path, head=head, weights=np.zeros(3))
    with pytest.raises(ValueError, match="its format is 999"):
        History.load(path)


def test_a_deadline_is_kept_whatever_the_app_does(tmp_path, monkeypatch):
    """The reply comes at the deadline, not before it and not when the app is ready: its time tells nothing."""
    mod = LocalPrivacy(1.0, ledger=tmp_path / "ledger", deadline=0.2)
    ready, release, sleep = threading.Event(), threading.Event(), time.sleep
    with monkeypatch.context() as patch:
        # however busy the machine is, the app has finished before the deadline
        patch.setattr(time, "sleep", lambda seconds: (ready.wait(600), sleep(seconds)))
        began = time.monotonic()
        assert mod._in_time(lambda: ready.set() or "learnt") == "learnt"
        assert time.monotonic() - began >= 0.2
    assert mod._in_time(lambda: release.wait(600)) is None
    release.set()
    assert LocalPrivacy(1.0, ledger=tmp_path / "ledger")._in_time(lambda: "learnt") == "learnt"


def test_a_round_is_answered_once_and_no_more_rounds_than_were_paid_for(tmp_path):
    budget = NodeBudget(tmp_path / "ledger", 100.0, 1e-3)
    desk = budget.desk("one", Terms(**(TERMS | {"rounds": 3}), delta=1e-6), LAYOUT)
    assert desk.spend(1)
    assert not desk.spend(1)  # the same report is sent again
    assert desk.spend(11)
    with pytest.raises(AlreadyDebited, match=r"Round 1 .* others after it"):
        desk.spend(1)
    assert not desk.spend(11)
    assert desk.spend(2)
    with pytest.raises(AlreadyDebited, match="All 3 rounds"):
        desk.spend(4)
    again = budget.desk("one", Terms(**(TERMS | {"rounds": 3}), delta=1e-6), LAYOUT)  # what was noted is on the disk
    with pytest.raises(AlreadyDebited, match="Round 11"):
        again.spend(11)
    assert not again.spend(2)
    other = budget.desk("two", Terms(**(TERMS | {"rounds": 3}), delta=1e-6), LAYOUT)
    assert other.spend(1)  # another account has its own rounds


def test_a_kept_report_is_that_of_its_round(tmp_path):
    desk = NodeBudget(tmp_path / "ledger", 100.0, 1e-3).desk("one", Terms(**TERMS, delta=1e-6), LAYOUT)
    assert desk.kept(1) is None
    desk.keep(1, np.arange(3.0))
    assert desk.kept(1).tolist() == [0.0, 1.0, 2.0]
    assert desk.kept(2) is None
    desk.keep(2, np.arange(4.0))
    assert desk.kept(1) is None
    assert desk.kept(2).size == 4


def test_nothing_is_known_of_a_run_that_has_not_begun():
    with pytest.raises(RuntimeError, match="The run has not begun"):
        _ = PrivateFedAvg("privunit-g", **RUN).run


def test_epsilon_and_mu_are_kept_apart():
    for made in (Channel("tensor-gaussian", LAYOUT, Norm(1.0), mu=0.5), Channel("laplace", LAYOUT, CLIP, epsilon=0.5)):
        assert channel_from(made.spec(), LAYOUT).spent == made.spent
        assert ("mu" in made.spec()) != ("epsilon" in made.spec())
    for wrong, what in (
        ({"mechanism": "tensor-gaussian", "clip": Norm(1.0), "epsilon": 0.5}, "Expected mu, .* got epsilon=0.5"),
        ({"mechanism": "laplace", "clip": CLIP, "mu": 0.5}, "Expected epsilon, .* got mu=0.5"),
        ({"mechanism": "laplace", "clip": CLIP, "epsilon": 0.5, "mu": 0.5}, "Expected epsilon, .* got mu=0.5"),
        ({"mechanism": "laplace", "clip": CLIP}, "Expected epsilon, .* got nothing"),
    ):
        with pytest.raises(ValueError, match=what):
            Channel(layout=LAYOUT, **wrong)
        with pytest.raises(ValueError, match=what):
            Terms(run="run", rounds=1, **wrong)


def test_the_old_name_of_epsilon_and_mu_still_works():
    with pytest.warns(DeprecationWarning, match="budget is now mu"):
        gaussian = Channel("tensor-gaussian", LAYOUT, Norm(1.0), 0.5, {})
    with pytest.warns(DeprecationWarning, match="budget is now epsilon"):
        laplace = Channel("laplace", LAYOUT, CLIP, budget=0.25)
    assert (gaussian.spent, laplace.spent) == ({"mu": 0.5}, {"epsilon": 0.25})
    with pytest.warns(DeprecationWarning, match="budget is now epsilon"):
        old = Terms("run", "laplace", 0.25, CLIP, 2, 7)
    assert old == Terms("run", "laplace", epsilon=0.25, clip=CLIP, rounds=2, clients=7)
    with pytest.warns(DeprecationWarning, match="budget is now epsilon"):
        assert Terms.read(old.to_json().replace("epsilon", "budget")) == old  # from a server of the release before
    with pytest.warns(DeprecationWarning, match="budget is now mu"):
        assert gaussian.budget == 0.5
    with pytest.warns(DeprecationWarning, match="budget is now epsilon"):
        assert old.budget == 0.25


def test_a_module_has_no_names_that_it_does_not_list():
    from noisette import federated

    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = federated.Nothing
