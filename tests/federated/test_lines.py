"""The three lines against enumeration at small sizes, the spec's numbers, and calibration that meets its target."""

from __future__ import annotations

import importlib
import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest

from noisette.accounting import compose, gdp_epsilon, gdp_mu, shuffled
from noisette.federated import Channel, ModelLayout, Norm, Ranges, Terms, calibrate, lines
from noisette.shuffler import PacketLayout, shuffled_blocks

BOX = Ranges(0.0, 1.0)


def layout(dims):
    return ModelLayout.of(np.zeros(dims))


def enumerated_local_delta(dims, rounds, budget, epsilon):
    """Return delta over all bit strings of the answers of two opposite corners."""
    p_high = 1 / (1 + math.exp(-budget))
    delta = 0.0
    for bits in itertools.product([0, 1], repeat=dims * rounds):
        high = sum(bits)
        low = dims * rounds - high
        first, second = p_high**high * (1 - p_high) ** low, p_high**low * (1 - p_high) ** high
        delta += max(0.0, first - math.exp(epsilon) * second)
    return delta


def enumerated_shuffled_delta(dims, clients, budget, epsilon):
    """Return delta over the counts of high answers in each position, the other clients as the worst case has them."""
    p_high = 1 / (1 + math.exp(-budget))
    worst = 0.0
    for others in itertools.product([0, 1], repeat=clients - 1):
        laws = []
        for own in (0, 1):
            counts = np.ones(1)
            for client in (own, *others):
                p = p_high if client else 1 - p_high
                counts = np.convolve(counts, [1 - p, p])
            laws.append(counts)
        joint = []
        for law in laws:
            whole = np.ones(1)
            for _ in range(dims):
                whole = np.outer(whole, law).reshape(-1)
            joint.append(whole)
        for first, second in (joint, joint[::-1]):
            worst = max(worst, float(np.maximum(first - math.exp(epsilon) * second, 0).sum()))
    return worst


@pytest.mark.parametrize(
    ("dims", "rounds", "budget", "delta"), [(3, 2, 0.7, 1e-3), (5, 2, 0.3, 1e-2), (1, 1, 1.0, 0.1)]
)
def test_the_local_line_is_the_enumerated_one(dims, rounds, budget, delta):
    found = lines(
        Channel("adaptive-duchi", layout(dims), BOX, epsilon=budget), rounds=rounds, clients=5, delta=delta
    ).local
    assert enumerated_local_delta(dims, rounds, budget, found.epsilon) <= delta * (1 + 1e-9)
    assert enumerated_local_delta(dims, rounds, budget, found.epsilon * 0.99) > delta  # and not a looser one
    assert (found.unit, found.model) == ("record", "local")


@pytest.mark.parametrize(
    ("dims", "clients", "budget", "delta"), [(1, 6, 1.0, 0.01), (2, 5, 0.8, 0.02), (3, 4, 0.5, 0.05)]
)
def test_the_shuffled_line_holds_for_the_enumerated_bags(dims, clients, budget, delta):
    channel = Channel("adaptive-duchi", layout(dims), BOX, epsilon=budget)
    found = lines(channel, rounds=1, clients=clients, delta=delta)
    assert enumerated_shuffled_delta(dims, clients, budget, found.shuffled.epsilon) <= delta
    assert found.shuffled.epsilon <= found.local.epsilon
    assert enumerated_shuffled_delta(dims, clients, budget, found.shuffled.epsilon / 3) > delta


def test_one_weight_over_the_rounds_is_another_unit():
    found = lines(
        Channel("adaptive-duchi", layout(50), BOX, epsilon=0.5), rounds=4, clients=10, delta=0.0, unit="element"
    )
    assert (found.local.epsilon, found.local.unit) == (pytest.approx(2.0), "element")


@pytest.mark.long
def test_numbers_of_the_spec():
    small = Channel("adaptive-duchi", layout(1000), BOX, epsilon=1.0)
    assert lines(small, rounds=1, clients=1000, delta=1e-6).shuffled.epsilon == pytest.approx(6.37, abs=0.01)
    large = Channel("adaptive-duchi", layout(100_000), BOX, epsilon=1.0)
    found = lines(large, rounds=10, clients=1000, delta=1e-6)
    assert found.shuffled.epsilon == pytest.approx(983, abs=1)
    assert found.claimed.epsilon == 1.0
    assert "not what holds" in str(found)
    assert not found.claim_holds


def test_gaussian_noise_composes_exactly_over_rounds():
    channel = Channel("tensor-gaussian", layout(30), Norm(1.0), mu=0.4)
    found = lines(channel, rounds=9, clients=100, delta=1e-5)
    assert found.local.epsilon == pytest.approx(gdp_epsilon(1.2, 1e-5), rel=1e-6)
    assert found.shuffled.epsilon == found.local.epsilon
    assert "adds nothing" in str(found)
    assert found.claim_holds  # its source claims for one report


def test_noise_on_the_last_step_only_leaves_nothing():
    channel = Channel("laplace", layout(4), BOX, epsilon=0.1)
    found = lines(channel, rounds=1, clients=10, delta=1e-6, last_step=True)
    assert found.local.epsilon == found.shuffled.epsilon == math.inf
    assert found.claimed.epsilon == pytest.approx(0.4, rel=0.05)
    assert "not what holds" in str(found)


CASES = [
    ("adaptive-duchi", BOX, 200),
    ("laplace", BOX, 20),
    ("piecewise", BOX, 20),
    ("gaussian", BOX, 20),
    ("retain-or-noise", BOX, 20),
    ("privunit-g", Norm(1.0), 20),
    ("tensor-gaussian", Norm(1.0), 20),
    ("angle-noise", Norm(1.0), 3),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "clip", "dims"), CASES)
def test_calibration_meets_the_local_target_and_hardly_more(name, clip, dims):
    target = 4.0
    channel = calibrate(name, layout(dims), clip, target_epsilon=target, target_delta=1e-5, rounds=3, clients=10)
    epsilon = lines(channel, rounds=3, clients=1, delta=1e-5).local.epsilon
    assert target * 0.99 < epsilon <= target


@pytest.mark.long
@pytest.mark.parametrize(("name", "clip", "dims"), [("adaptive-duchi", BOX, 1), CASES[5]])
def test_calibration_meets_the_shuffled_target(name, clip, dims):
    terms = {"rounds": 1, "clients": 2000}
    channel = calibrate(name, layout(dims), clip, target_epsilon=1.0, target_delta=1e-6, model="shuffled", **terms)
    found = lines(channel, delta=1e-6, **terms)
    assert 0.98 < found.shuffled.epsilon <= 1.0 < found.local.epsilon


def test_gaussian_noise_is_calibrated_with_a_millionth_left_to_its_lattice():
    channel = calibrate("tensor-gaussian", layout(30), Norm(1.0), target_epsilon=4.0, target_delta=1e-5, rounds=9)
    assert channel.mu == pytest.approx(gdp_mu(4.0, 1e-5) / 3 * (1 - 1 / 10**6), rel=1e-9)


def test_a_pure_target_is_split_among_weights_and_rounds():
    channel = calibrate("adaptive-duchi", layout(10), BOX, target_epsilon=5.0, rounds=2)
    assert channel.epsilon == pytest.approx(0.25, rel=1e-3)
    assert channel.epsilon <= 0.25 * (1 + 1e-9)


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ({"target_epsilon": -1.0}, "target_epsilon=-1.0 > 0"),
        ({"target_epsilon": 1.0, "model": "central"}, "model='central'"),
        ({"target_epsilon": 1.0, "unit": "example"}, "unit='example'"),
        ({"target_epsilon": 1.0, "rounds": 0}, "rounds=0"),
        ({"target_epsilon": 1.0, "model": "shuffled", "clients": 10}, "delta=0.0 > 0"),
    ],
)
def test_targets_that_cannot_be_are_refused(terms, words):
    with pytest.raises(ValueError, match=words):
        calibrate("adaptive-duchi", layout(3), BOX, **terms)


def test_gaussian_noise_needs_a_delta():
    with pytest.raises(ValueError, match=r"delta=0\.0 > 0"):
        calibrate("tensor-gaussian", layout(3), Norm(1.0), target_epsilon=1.0)


def test_lines_are_json():
    found = lines(Channel("adaptive-duchi", layout(3), BOX, epsilon=0.1), rounds=1, clients=10, delta=1e-6)
    assert found.spec()["local"]["epsilon"] == found.local.epsilon
    assert found.spec()["claimed"]["source"] == "sun2021ldpfl"


def accounted(answer, answers, dims, *, unit, model, rounds, clients, batch, delta, gaussian=False):
    """Return the epsilon of a run straight from the accountant, by the definition of unit, model and packets."""
    asked = rounds * (answers if unit == "record" else 1)
    if model == "local" or gaussian:
        return compose(answer, asked, delta=delta).epsilon
    if unit == "record" and batch > 1 and answers > 1:  # what travels in one packet stays linked
        packets = PacketLayout(dims, min(batch, dims))
        return shuffled_blocks(answer, packets, clients=clients, delta=delta, rounds=rounds).epsilon
    return shuffled(answer, clients, delta, times=asked).epsilon


RUNS = [
    ("adaptive-duchi", BOX, "record", "local", 1),
    ("adaptive-duchi", BOX, "element", "local", 3),
    ("adaptive-duchi", BOX, "record", "shuffled", 1),
    ("adaptive-duchi", BOX, "record", "shuffled", 3),
    ("adaptive-duchi", BOX, "record", "shuffled", 100),
    ("adaptive-duchi", BOX, "element", "shuffled", 3),
    ("privunit-g", Norm(1.0), "record", "local", 1),
    ("privunit-g", Norm(1.0), "record", "shuffled", 3),
    ("gaussian", BOX, "record", "local", 1),
    ("gaussian", BOX, "record", "shuffled", 3),
    ("gaussian", BOX, "element", "shuffled", 3),
]
SIZE = {"rounds": 2, "clients": 60}


@pytest.mark.long
@pytest.mark.parametrize(("name", "clip", "unit", "model", "batch"), RUNS)
def test_every_calibration_meets_its_target_in_the_accountants_eyes(name, clip, unit, model, batch):
    """By every way to a budget: `calibrate`, the terms of a run, and what a client computes from them."""
    target, delta, dims = 2.0, 1e-3, 6
    wanted = {"target_epsilon": target, "target_delta": delta}
    how = {"unit": unit, "model": model, "batch": batch} | SIZE
    channel = calibrate(name, layout(dims), clip, **wanted, **how)
    terms = Terms.for_target("run", name, layout(dims), clip=clip, **wanted, **how)
    assert (terms.epsilon, terms.mu) == (channel.epsilon, channel.mu)
    own = {"delta": delta, "gaussian": channel.family.able.gaussian}
    epsilon = accounted(channel.answer, channel.answers, dims, **how, **own)
    assert target * 0.95 < epsilon <= target * (1 + 1e-9)
    found = terms.lines(layout(dims))
    stated = found.shuffled if model == "shuffled" else found.local
    assert (stated.epsilon, stated.unit) == (pytest.approx(epsilon, rel=1e-9), unit)
    for trusted in ("local", "shuffled"):  # a client counts everything that it says, whatever unit the server names
        whole = how | {"unit": "record", "model": trusted, "clients": 40}
        promised = terms.promise(layout(dims), model=trusted, clients=40)
        assert promised.epsilon == pytest.approx(accounted(channel.answer, channel.answers, dims, **whole, **own))


@pytest.mark.long
def test_packets_calibrated_as_if_unlinked_are_noticed():
    """The twin of the test above: 16 weights linked in one packet spend far more than 16 mixed ones."""
    how = {"unit": "record", "model": "shuffled"} | SIZE
    wanted = {"target_epsilon": 2.0, "target_delta": 1e-3}
    apart = calibrate("adaptive-duchi", layout(16), BOX, **wanted, **how, batch=1)
    linked = calibrate("adaptive-duchi", layout(16), BOX, **wanted, **how, batch=16)
    assert linked.epsilon < apart.epsilon / 1.5
    assert accounted(apart.answer, 16, 16, **how, batch=16, delta=1e-3) > 3.0
    found = lines(apart, delta=1e-3, batch=16, **SIZE)
    assert found.shuffled.epsilon > 3.0
    assert lines(apart, delta=1e-3, batch=16, unit="element", **SIZE).shuffled.epsilon <= 2.0


@pytest.mark.parametrize(
    ("target", "limit", "found"), [(2.0, 0.0, 0.1), (2.0, 9.0, 2.0), (100.0, 99.0, 30.0), (2.0, 0.7, 0.7)]
)
def test_linked_packets_take_the_largest_budget_that_holds(monkeypatch, target, limit, found):
    """Between what plain composition allows, which always holds, and the target, or 30: more would hide nothing."""
    module, asked = importlib.import_module("noisette.federated.lines"), []

    def told(channel, **how):
        asked.append((channel.epsilon, how))
        epsilon = target if channel.epsilon <= limit else target * 1.001
        return SimpleNamespace(shuffled=SimpleNamespace(epsilon=epsilon))

    monkeypatch.setattr(module, "lines", told)
    wanted = {"target_epsilon": target, "target_delta": 1e-6, "model": "shuffled"}
    channel = calibrate("adaptive-duchi", layout(10), BOX, **wanted, rounds=2, clients=50, batch=4)
    if limit == 0.0:
        assert channel.epsilon == pytest.approx(target / 20 * (1 - 1 / 10**9), rel=1e-12)
    assert found * 0.985 < channel.epsilon <= found
    assert min(epsilon for epsilon, _ in asked) > target / 20
    assert max(epsilon for epsilon, _ in asked) < min(target, 30.0)
    assert all(how == {"rounds": 2, "clients": 50, "delta": 1e-6, "batch": 4} for _, how in asked)


@pytest.mark.parametrize(
    ("dims", "batch", "unit", "model", "linked"),
    [
        (2, 2, "record", "shuffled", True),
        (1, 2, "record", "shuffled", False),  # one weight is alone in its packet
        (2, 1, "record", "shuffled", False),
        (2, 2, "element", "shuffled", False),
        (2, 2, "record", "local", False),
    ],
)
def test_two_weights_in_one_packet_are_linked(monkeypatch, dims, batch, unit, model, linked):
    module, asked = importlib.import_module("noisette.federated.lines"), []
    monkeypatch.setattr(module, "_calibrated_by_packets", lambda probe, *terms: asked.append(terms) or probe)
    monkeypatch.setattr(module, "calibrate_answer", lambda *_, **given: SimpleNamespace(epsilon=0.25, **given))
    wanted = {"target_epsilon": 2.0, "target_delta": 1e-6, "unit": unit, "model": model}
    found = calibrate("adaptive-duchi", layout(dims), BOX, **wanted, rounds=3, clients=50, batch=batch)
    assert asked == ([(2.0, 1e-6, 3, 50, batch)] if linked else [])
    assert found.epsilon == (1.0 if linked else 0.25)


def test_a_target_for_one_weight_is_split_among_rounds_alone():
    wanted = {"target_epsilon": 5.0, "unit": "element"}
    for rounds in (1, 2):
        found = calibrate("adaptive-duchi", layout(10), BOX, **wanted, rounds=rounds).epsilon
        assert found == pytest.approx(5.0 / rounds, rel=1e-3)
        assert found <= 5.0 / rounds * (1 + 1e-9)
