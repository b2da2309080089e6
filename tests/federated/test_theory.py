"""Theorems 12 and 13 and Corollary 3 against simulation, with weights that are not equal."""

from __future__ import annotations

import math

import numpy as np
import pytest
from experiments.federated.ldpvec.case_study import case_study
from scipy.stats import chi2

import noisette as nz
from noisette.federated import CentralPlan, ModelLayout, Norm, Ranges, calibrate
from noisette.federated.theory import Prospect, aggregated_noise, benchmark_round

WEIGHTS = np.asarray([10.0, 5.0, 1.0, 1.0, 1.0, 1.0, 0.5, 0.5])
DIMS, CLIP = 5, 2.0
ROUNDS = 4000
FALSE_ALARM = 1e-6


def simulated(mechanism, updates, seed=7):
    """Return the noise of many rounds: weighted means of reports minus weighted means of updates."""
    shares = WEIGHTS / WEIGHTS.sum()
    repeated = np.broadcast_to(updates, (ROUNDS, *updates.shape))
    reports = mechanism.privatize(repeated.reshape(-1), rng=seed).reshape(repeated.shape)
    return np.einsum("k,rkd->rd", shares, reports - updates) * CLIP / np.sqrt(DIMS)


def allowed_ratio():
    """Return the interval of sample variance over variance, for normal noise, over all entries."""
    degrees = (ROUNDS - 1) * DIMS
    return chi2.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], degrees) / degrees


@pytest.mark.parametrize("mechanism", [nz.Laplace(epsilon=2.0), nz.Piecewise(epsilon=1.0), nz.Duchi(epsilon=1.0)])
def test_the_variance_is_that_of_unequal_weights(mechanism):
    updates = np.random.default_rng(3).uniform(-1, 1, (WEIGHTS.size, DIMS))
    noise = simulated(mechanism, updates)
    found = aggregated_noise(mechanism, WEIGHTS, dims=DIMS, clip_norm=CLIP, updates=updates)
    low, high = allowed_ratio()
    slack = 1.05 if mechanism.name == "laplace" else 1.0  # its tails are heavier than normal ones
    ratio = float(np.mean(noise.var(axis=0) / found.variance))
    assert low / slack < ratio < high * slack
    published = aggregated_noise(mechanism, np.ones(WEIGHTS.size), dims=DIMS, clip_norm=CLIP, updates=updates)
    assert float(np.mean(noise.var(axis=0) / published.variance)) > 2 * high  # Lemma 8 would be rejected


def test_the_step_with_noise_ends_up_as_far_as_predicted():
    mechanism = nz.SquareWave(epsilon=1.0)  # biased as published: the linear term counts
    rng = np.random.default_rng(5)
    updates = rng.uniform(-1, 1, (WEIGHTS.size, DIMS))
    found = aggregated_noise(mechanism, WEIGHTS, dims=DIMS, clip_norm=CLIP, updates=updates)
    before, optimum, rate = rng.normal(size=DIMS), rng.normal(size=DIMS), 0.2
    noise = simulated(mechanism, updates)
    measured = np.sum((before - rate * noise - optimum) ** 2, axis=1) - np.sum((before - optimum) ** 2)
    error = measured.std() / np.sqrt(ROUNDS)
    assert found.difference(rate, before=before, optimum=optimum) == pytest.approx(measured.mean(), abs=4.9 * error)
    linear = -2 * float((before - optimum) @ found.mean)  # as printed, without the rate
    printed = found.difference(rate) + linear
    assert abs(printed - measured.mean()) > 20 * error
    assert found.difference(rate) == pytest.approx(
        found.difference(rate, before=optimum, optimum=optimum)
    )  # Corollary 3


def test_the_normal_model_is_as_near_as_stated():
    from scipy.special import ndtr

    mechanism = nz.Duchi(epsilon=0.5)
    found = aggregated_noise(mechanism, WEIGHTS, dims=DIMS, clip_norm=CLIP)
    noise = np.sort(simulated(mechanism, np.zeros((WEIGHTS.size, DIMS)))[:, 0])
    empirical = np.arange(1, ROUNDS + 1) / ROUNDS
    gap = np.max(np.abs(empirical - ndtr(noise / np.sqrt(found.variance[0]))))
    assert gap < found.distance + np.sqrt(np.log(2 / FALSE_ALARM) / (2 * ROUNDS))  # Dvoretzky, Kiefer, Wolfowitz


def test_whole_vectors_are_scaled_by_the_clip():
    whole = nz.PrivUnitG(epsilon=4.0, domain=nz.L2Ball(DIMS))
    found = aggregated_noise(whole, np.ones(10), dims=DIMS, clip_norm=CLIP)
    assert found.variance == pytest.approx(CLIP**2 * whole.moments(np.zeros(DIMS)).variance / 10)


@pytest.mark.parametrize("reach", [0.25, 4.0])
def test_a_mechanism_on_a_larger_domain_costs_a_round_the_same(reach):
    """The clip is what counts: updates are scaled to whatever domain the mechanism has."""
    pairs = [
        (nz.Laplace(epsilon=1.0), nz.Laplace(epsilon=1.0, domain=nz.Interval(-reach, reach))),
        (
            nz.PrivUnitG(epsilon=4.0, domain=nz.L2Ball(DIMS)),
            nz.PrivUnitG(epsilon=4.0, domain=nz.L2Ball(DIMS, radius=reach)),
        ),
        (
            nz.TensorGaussian(nz.TensorBall((DIMS,)), 4.0, 1e-6),
            nz.TensorGaussian(nz.TensorBall((DIMS,), radius=reach), 4.0, 1e-6),
        ),
    ]
    for plain, other in pairs:
        expected, found = (aggregated_noise(one, WEIGHTS, dims=DIMS, clip_norm=CLIP) for one in (plain, other))
        assert found.variance == pytest.approx(expected.variance, rel=1e-6)
        assert found.difference(0.3) == pytest.approx(expected.difference(0.3), rel=1e-6)


def test_mechanisms_are_compared_without_training():
    budget = {"epsilon": 8.0}
    rivals = {
        "laplace": nz.Laplace(epsilon=8.0 / 100),
        "privunit-g": nz.PrivUnitG(**budget, domain=nz.L2Ball(100)),
        "gaussian": nz.TensorGaussian(nz.TensorBall((100,)), 8.0, 1e-6),
    }
    order = [cost.mechanism for cost in benchmark_round(rivals, np.ones(50), dims=100, clip_norm=1.0, rate=0.1)]
    assert order[-1] == "laplace"
    unequal = benchmark_round(rivals, [100.0] + [1.0] * 49, dims=100, clip_norm=1.0, rate=0.1)
    assert all(cost.difference > 5 * cost.published for cost in unequal)


def test_the_case_study_recomputed():
    rows = {row.mechanism: row for row in case_study()}
    assert rows["laplace"].variance == pytest.approx(800, rel=1e-6)  # printed 400
    assert rows["laplace"].difference == pytest.approx(0.1**2 * 1.8**2 * 800 / 500, rel=1e-6)
    assert rows["laplace"].by_its_formula == pytest.approx(157**2 * 0.01 / 500 * 785 * 400)
    for row in rows.values():
        assert not 0.5 < row.printed_difference / row.by_its_formula < 2  # printed numbers follow from no printed C
    small = {row.mechanism: row for row in case_study(0.1)}
    assert small["laplace"].difference == pytest.approx(rows["laplace"].difference / 18**2)
    assert rows["gaussian"].difference > rows["piecewise"].difference  # at epsilon 0.1 an entry Gaussian noise loses


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"weights": [1.0, -1.0]}, "not negative"),
        ({"weights": [0.0]}, "not all zero"),
        ({"dims": 0}, "dims=0"),
        ({"clip_norm": 0.0}, "clip_norm=0.0"),
        ({"updates": np.zeros((3, 4))}, "updates of shape"),
        ({"mechanism": nz.Laplace(epsilon=1.0, domain=nz.Interval(0, 1))}, "about zero"),
        ({"mechanism": nz.PrivUnitG(epsilon=1.0, domain=nz.L2Ball(3))}, "for 5 weights"),
    ],
)
def test_bad_input_is_refused(change, words):
    terms = {"mechanism": nz.Laplace(epsilon=1.0), "weights": np.ones(2), "dims": 5, "clip_norm": 1.0} | change
    with pytest.raises(ValueError, match=words):
        aggregated_noise(terms.pop("mechanism"), terms.pop("weights"), **terms)


def test_a_difference_needs_both_ends():
    noise = aggregated_noise(nz.Laplace(epsilon=1.0), np.ones(2), dims=2, clip_norm=1.0)
    with pytest.raises(ValueError, match="neither"):
        noise.difference(0.1, before=np.zeros(2))
    with pytest.raises(ValueError, match="models of 2 weights"):
        noise.difference(0.1, before=np.zeros(3), optimum=np.zeros(3))


@pytest.mark.parametrize(("clients", "word"), [(2, "not worth"), (20, "hardly worth"), (10_000, "worth")])
def test_a_run_says_whether_it_can_learn(clients, word):
    """The ratio by hand: noise of one report over sqrt(clients), each weight; ten rounds of updates of length one."""
    layout = ModelLayout.of(np.zeros(1000))
    channel = calibrate("privunit-g", layout, Norm(1.0), target_epsilon=8.0, target_delta=1e-6, rounds=1)
    noise = channel.noise()[0] / math.sqrt(clients)
    prospect = Prospect.of(noise, dims=1000, reach=Norm(1.0).reach(layout), rounds=10)
    assert prospect.ratio == pytest.approx(math.sqrt(10 * 1000) * noise / 10)
    assert prospect.verdict.startswith(word)
    assert prospect.hopeless == (word == "not worth")


def test_how_far_updates_can_reach():
    layout = ModelLayout.of({"weight": np.zeros((2, 3)), "bias": np.zeros(2)})
    assert Norm(2.0).reach(layout) == 2.0
    assert Ranges(0.0, 0.5).reach(layout) == pytest.approx(0.5 * math.sqrt(8))
    assert Ranges((0.0, 0.0), (0.5, 1.0)).reach(layout) == pytest.approx(math.sqrt(6 * 0.25 + 2))
    assert Ranges.around_zero(norm=2.0, dims=8).reach(layout) == pytest.approx(2.0)


def test_correlated_noise_has_the_better_prospect():
    asked = {"epsilon": 4.0, "delta": 1e-6, "rounds": 100, "clients": 10_000, "clients_per_round": 200}
    alone, banded = (CentralPlan(**asked, bands=bands).prospect(10_000) for bands in (1, 8))
    plan = CentralPlan(**asked, bands=1)
    assert alone.ratio == pytest.approx(plan.multiplier / 200 * math.sqrt(100 * 10_000) / 100)
    assert banded.ratio < alone.ratio
