"""Yang et al. 2021: what holds of each noise, formula against measurement, ours below the published at one truth."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from experiments.tensor import descent, errors, features, learning
from experiments.tensor.ways import DELTA, OURS, ways
from scipy.integrate import quad
from scipy.stats import norm
from torch.utils.data import TensorDataset

from experiments import tensor

pytestmark = pytest.mark.long

PAPER = tensor


def test_what_is_committed_has_both_epsilons(committed):
    """Claims that hold have a smaller true epsilon, the misprint a far larger one; ours is as it says."""
    for name in ("type-2", "type-3"):
        rows = committed[name]["rows"]
        assert {row[0] for row in rows} == {"MNIST", "CIFAR-10", "IMDB"}
        for _, label, claimed, batch, person, *_, score in rows:
            assert 0 <= score <= 1
            if label in ("Gaussian", "MVG", "UDN", "IDN"):
                assert person <= batch < claimed
            elif label == "IDN as printed":
                assert batch > person > 100 * claimed
            elif label in OURS:
                assert (batch if label == OURS[0] else person) == pytest.approx(claimed, rel=1e-6)
    for row in committed["type-1"]["rows"]:
        if row[1] != "no noise":
            assert row[3] <= row[2] * (1 + 1e-9)


def test_the_matrix_mechanism_is_where_the_paper_has_it(committed):
    """With every element for workload it is the Gaussian mechanism; each claim has a row of it."""
    places = {(name, row[0], row[2]) for name in ("type-1", "type-2", "type-3") for row in committed[name]["rows"]}
    for name, data in (("type-1", "Adult"), ("type-2", "IMDB"), ("type-3", "IMDB")):
        rows = [row for row in committed[name]["rows"] if row[0] == data]
        matrix = {row[2]: row for row in rows if row[1] == "MM"}
        assert set(matrix) == {claimed for own, found, claimed in places if (own, found) == (name, data)} - {None}
        if name == "type-2":
            plain = {row[2]: row for row in rows if row[1] == "Gaussian"}
            assert all(matrix[claimed][3:6] == pytest.approx(plain[claimed][3:6]) for claimed in matrix)


def _delta(way, relation):
    """Integrate the excess of one normal density over another, at the epsilon that is said to hold."""
    epsilon = way.epsilon(relation)
    sigma, entries = way.mechanism.sigma * way.factor, way.mechanism.domain.dims
    distance = 2 * math.sqrt(math.prod(entries) if relation == "any-pair" else math.prod(entries[1:])) / sigma
    threshold = distance / 2 + epsilon / distance  # where the density ratio is exp(epsilon)

    def excess(x):
        return norm.pdf(x - distance) - math.exp(epsilon + norm.logpdf(x))

    return quad(excess, threshold, threshold + 40, points=[max(threshold, distance)], limit=400, epsabs=1e-14)[0]


@pytest.mark.parametrize("relation", ["any-pair", "slice:0"])
@pytest.mark.parametrize("label", ["IDN", "UDN", *OURS])
def test_the_true_epsilon_is_that_of_an_independent_integral(label, relation):
    way = next(own for own in ways(200.0, (8, 2, 3)) if own.label == label)
    assert _delta(way, relation) == pytest.approx(DELTA, rel=1e-4)


def test_ours_has_the_least_noise_at_one_guarantee():
    """Noise of each published way, against ours calibrated for what truly holds of it."""
    for way in ways(10.0, (16, 4, 4)):
        true = way.epsilon("any-pair")
        if true < 1e-3:
            continue
        own = next(other for other in ways(true, (16, 4, 4)) if other.label == OURS[0])
        assert own.std <= way.std * (1 + 1e-6), way.label
        if way.label in ("MVG", "UDN", "IDN"):  # and for what it claims ours needs far less
            assert next(other for other in ways(10.0, (16, 4, 4)) if other.label == OURS[0]).std < way.std / 3


def test_table_iv_agrees_and_its_orders_are_those_of_the_spec(run, committed):
    own, full = run("table-iv"), committed["table-iv"]
    assert own["columns"] == full["columns"]
    for rows in (own["rows"], full["rows"]):
        assert all(row[5] for row in rows)
        sizes = sorted({row[2] for row in rows})
        orders = {}
        for label in ("Gaussian", "IDN", OURS[0]):
            ends = [
                next(row[3] for row in rows if row[0] == label and row[2] == size) for size in (sizes[0], sizes[-1])
            ]
            orders[label] = math.log(ends[1] / ends[0]) / math.log(sizes[-1] / sizes[0])
        assert orders["ours, batch"] == pytest.approx(2, abs=0.01)
        assert orders["IDN"] == pytest.approx(3, abs=0.25)
        assert orders["Gaussian"] == pytest.approx(3, abs=0.15)
        optimized = [row[6] for row in rows if row[0] == "Optimized"]
        assert len(optimized) == len(sizes)
        assert all(ratio == pytest.approx(1.69, abs=0.01) for ratio in optimized)  # the slack of the classical formula


def test_a_wrong_formula_is_told_apart_in_table_iv(monkeypatch, run):
    """The twin: noise with a fifth more power than the formula says."""
    true = errors.ways

    def wrong(*args):
        return (replace(way, factor=1.1) for way in true(*args))

    monkeypatch.setattr(errors, "ways", wrong)
    assert not any(row[5] for row in run("table-iv")["rows"] if row[0] != "Optimized")  # which is not among them


@pytest.mark.needs_data
def test_covariance_of_ctg(run, committed):
    table = errors.cardiotocograms()
    assert table.shape == (2126, 21)
    assert np.abs(table).max() == 1
    for record in (run("ctg"), committed["ctg"]):
        by = {(row[0], row[1]): row for row in record["rows"]}
        for (label, claimed), row in by.items():
            if label in ("MVG", "UDN", "IDN"):
                assert row[2] < claimed
                assert row[4] > 20 * by["ours", claimed][4]
        assert all(by["ours", c][4] > by["ours, add-remove", c][4] for label, c in by if label == "ours")
        assert all(by["MM", c][3] == pytest.approx(by["Gaussian", c][3]) for label, c in by if label == "MM")
        assert all(by["IDN", c][4] < by["UDN", c][4] < by["MM", c][4] for label, c in by if label == "MM")


def test_steps_compose_to_what_is_claimed():
    """The budget of a lot, composed by the optimal theorem, is the claim; a tenth more is beyond it."""
    own, delta = descent.step_epsilon(2.0, 60, 0.1)
    sampled = math.log1p(0.1 * math.expm1(own))
    assert descent.randomized_response_epsilon(sampled, 60, DELTA / 2) <= 2.0
    assert descent.randomized_response_epsilon(1.1 * sampled, 60, DELTA / 2) > 2.0
    assert 60 * 0.1 * delta == pytest.approx(DELTA / 2)


@pytest.mark.needs_data
def test_private_descent_on_adult():
    """Published noise is far more than its claim needs, and its true epsilon far less."""
    adult = descent.descents(False)[2]
    ours = descent.Budget.for_target(8.0, DELTA, steps=adult.steps, sampling_prob=adult.sampling_prob)
    noise = {label: descent.published_noise(adult, label, 8.0) for label in ("udn", "idn")}
    multipliers = {label: descent.multiplier(adult, own) for label, own in noise.items()}
    assert multipliers["udn"] > multipliers["idn"] > 3 * ours.multiplier
    spent = descent.Budget(multipliers["idn"], adult.sampling_prob, DELTA).spent(adult.steps).epsilon
    assert 0 < spent < 1
    assert descent.judged(adult, descent.descend(adult, dict.fromkeys(noise["idn"], 0.0), 1)) > 0.55
    optimized = descent.optimized_noise(adult, 8.0)
    assert ours.multiplier < descent.multiplier(adult, optimized) < multipliers["idn"]
    entries = sum(own.numel() for own in adult.build().parameters())
    matrix = descent.multiplier(adult, descent.matrix_noise(adult, 8.0))
    assert matrix == pytest.approx(math.sqrt(entries) * descent.multiplier(adult, optimized))


def test_the_sketch_as_its_authors_print_it():
    """By the moments of Wishart draws; its promise holds, and with a two-thousandth of the ridge it does not."""
    table = np.random.default_rng(1).uniform(-1, 1, (300, 4))
    w = 16 * math.sqrt(4 * math.log(2e5)) / 50 * math.log(64e5)
    assert errors.printed_ridge(4, 50.0) == pytest.approx(w)
    drawn = [errors.printed_sketch(table, 50.0, np.random.default_rng(k)) for k in range(4000)]
    spread = table.T @ table + 4 * w**2 * np.eye(4)
    expected = np.sqrt((spread**2 + np.outer(np.diag(spread), np.diag(spread))) / 4) / 300
    assert np.abs(np.mean(drawn, axis=0) - table.T @ table / 300).max() < 6 * expected.max() / math.sqrt(4000)
    assert np.std(drawn, axis=0) == pytest.approx(expected, rel=0.1)
    assert errors.printed_sketch_epsilon(21, 1.0) == 0  # the laws with and without a row differ by less than delta
    assert 0.5 < errors.printed_sketch_epsilon(21, 1e3) < 1
    assert errors.jl_delta(21, 1 / (1 + errors.printed_ridge(21, 1.0) ** 2), 1.0) < DELTA
    assert errors.jl_delta(21, 1 / (1 + (errors.printed_ridge(21, 1.0) / 2000) ** 2), 1.0) > DELTA


@pytest.mark.needs_data
def test_runs_side_by_side_end_as_each_alone():
    """The weights are those of the recorder's clipped sums, run by run; another noise ends elsewhere."""
    adult = descent.descents(False)[2]
    noises = [descent.published_noise(adult, "idn", 8.0), descent.optimized_noise(adult, 8.0)]
    together = descent.descend_together(adult, noises, 3)
    for place, model in enumerate(together):
        alone, other = (descent.descend(adult, noises[own], 3) for own in (place, 1 - place))
        for own, same, another in zip(model.parameters(), alone.parameters(), other.parameters(), strict=True):
            assert torch.allclose(own, same, atol=1e-5)
            assert not torch.allclose(own, another, atol=1e-4)


@pytest.mark.needs_data
def test_features_of_imdb():
    """Without noise and with the misprint answers are the same; with sound noise for the batch they are guesses."""
    made = [features.testing_scores(False, (1e4,), (2, seed)) for seed in (1, 2)]
    rows = features.rows_of("IMDB", made, lambda claimed: features.testing_ways(False, 2, claimed))
    scores = {row[1]: row[-1] for row in rows}
    assert scores["IDN as printed"] == pytest.approx(scores["no noise"], abs=0.03)
    assert scores["no noise"] > 0.6
    assert abs(scores["MVG"] - 0.5) < 0.1
    assert scores[OURS[1]] > scores["MVG"]
    assert [row[1] for row in rows] == ["no noise", "Gaussian", "MM", "MVG", "UDN", "IDN", "IDN as printed", *OURS]


def test_models_that_train_side_by_side_end_as_each_alone():
    """Against the loop that trains one model; other inputs end elsewhere."""
    rng = torch.Generator().manual_seed(1)
    inputs = [torch.randn(300, 12, generator=rng) for _ in range(3)]
    labels = torch.randint(0, 4, (300,), generator=rng)

    def build():
        return torch.nn.Sequential(torch.nn.Linear(12, 7), torch.nn.Tanh(), torch.nn.Linear(7, 4))

    together = [learning.seeded(build, seed) for seed in range(3)]
    learning.train_together(together, inputs, labels, epochs=3, rate=1e-2, batch=32, seed=5)
    for seed, model in enumerate(together):
        alone, other = learning.seeded(build, seed), learning.seeded(build, seed)
        learning.train(alone, TensorDataset(inputs[seed], labels), epochs=3, rate=1e-2, batch=32, seed=5)
        learning.train(other, TensorDataset(inputs[seed - 1], labels), epochs=3, rate=1e-2, batch=32, seed=5)
        for own, same, another in zip(model.parameters(), alone.parameters(), other.parameters(), strict=True):
            assert torch.allclose(own, same, atol=1e-5)
            assert not torch.allclose(own, another, atol=1e-3)


def test_features_of_the_small_mobilenet_are_in_range():
    model = learning.seeded(lambda: learning.mobile(3)).eval()
    made = learning.outputs(model[:-1], 5 * torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(1)))
    assert made.shape == (4, 160)
    assert float(made.abs().max()) <= 1


def test_scores():
    labels = torch.tensor([0, 0, 1, 1, 1, 2])
    scores = torch.eye(3)[torch.tensor([0, 1, 1, 1, 0, 0])]
    # classes: F1 of 0 is 2/5, of 1 is 4/6, of 2 is 0; sizes 2, 3, 1
    assert learning.weighted_f1(scores, labels) == pytest.approx((2 * 0.4 + 3 * 4 / 6) / 6)
    two = torch.stack([torch.zeros(4), torch.tensor([0.1, 0.4, 0.35, 0.8])], dim=1)
    assert learning.area_under_curve(two, torch.tensor([0, 0, 1, 1])) == pytest.approx(0.75)
    assert learning.accuracy(scores, labels) == pytest.approx(0.5)


@pytest.mark.needs_data
def test_parts_share_nobody():
    parts = learning.pictures("mnist", (50, 60, 20))
    assert [len(part) for part in parts] == [50, 60, 20]
    seen = {tuple(image.flatten().tolist()) for part in parts[:2] for image in part.tensors[0]}
    assert len(seen) == 110
    assert float(parts[0].tensors[0].abs().max()) == 1
