"""What the noise does to training: predicted and measured errors agree, and Theorem 6 is what happened."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import ndtri
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from noisette import sgd
from noisette.sgd.theory.steps import predicted

NAMES = ("direction", "cosine", "magnitude", "gradient")
DRAWS = 1000
# a false alarm in 1e6 over all comparisons here; squares have longer tails than normal errors, hence the 1e-3
LEVEL = float(ndtri(1 - 1e-6 * 1e-3 / (2 * 6 * 3 * 7)))
EXAMPLES = 60

PERTURBATIONS = {
    "gaussian": ("gaussian", 0.5),
    "quantile": ("gaussian", "quantile"),
    "layered": ("layered", "per-layer"),
    "tensor": (sgd.TensorPerturbation({"0.weight": (np.diag([1.0, 2, 3]) + 0.5, np.array([1.0, 4, 2, 1]))}), 0.5),
    "variances": (sgd.TensorPerturbation({"0.weight": (None, np.array([1.0, 4, 2, 1]))}), 0.5),
    "geodp of angles": (sgd.Geo(0.5, "angles"), 0.5),
    "geodp of the gradient": (sgd.Geo(0.02, "gradient"), 0.5),
}


def start(perturb="gaussian", clip=0.5, *, batch=EXAMPLES, lr=0.5, epochs=3, rng=3, **options):
    torch.manual_seed(1)
    dataset = TensorDataset(torch.randn(EXAMPLES, 4), torch.randint(0, 2, (EXAMPLES,)))
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    loader = DataLoader(dataset, batch_size=batch)
    options = {"target": (50.0, 1e-5)} | options
    return sgd.make_private(model, optimizer, loader, epochs=epochs, clip=clip, perturb=perturb, rng=rng, **options)


def best():
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))


def train(private, epochs=3):
    for _ in range(epochs):
        for inputs, targets in private.loader:
            private.optimizer.zero_grad()
            functional.cross_entropy(private.model(inputs), targets).backward()
            private.optimizer.step()


def flat(parameters):
    return torch.cat([parameter.detach().flatten() for parameter in parameters]).double().numpy()


def off(said, comparison):
    """Return how many standard errors predictions are off what was measured."""
    found = comparison.measured
    errors = np.hypot(found.standard_errors, said.standard_errors or (0.0,) * len(NAMES))
    return {
        name: abs(getattr(found, name) - getattr(said, name)) / error
        for name, error in zip(NAMES, errors, strict=True)
        if not math.isnan(getattr(said, name))
    }


@pytest.mark.long
@pytest.mark.parametrize("kind", PERTURBATIONS)
def test_what_is_predicted_is_what_is_measured(kind):
    perturb, clip = PERTURBATIONS[kind]
    private = start(perturb, clip)
    observer = sgd.Observer(private, optimum=best(), draws=DRAWS, rng=5)
    train(private)
    assert [comparison.step for comparison in observer.comparisons] == [1, 2, 3]
    for comparison in observer.comparisons:
        scores = off(comparison.predicted, comparison)
        assert max(scores.values()) < LEVEL, scores
        assert len(scores) == 4
        for name, error in zip(("item_a", "item_b"), comparison.efficiency_errors, strict=True):
            gap = abs(getattr(comparison.efficiency, name) - getattr(comparison.expected, name))
            assert gap < LEVEL * error, (name, gap / error)


@pytest.mark.long
@pytest.mark.parametrize("kind", PERTURBATIONS)
def test_a_wrong_prediction_is_seen(kind, monkeypatch):
    """The twin: the law of noise that is half as large again."""
    perturb, clip = PERTURBATIONS[kind]
    private = start(perturb, clip, epochs=1, target=(3.0, 1e-5))
    used = private.optimizer.perturb
    law = used.law
    monkeypatch.setattr(
        type(used), "law", lambda self, sums, rule, multiplier, expected: law(sums, rule, 1.5 * multiplier, expected)
    )
    observer = sgd.Observer(private, draws=DRAWS, rng=5)
    train(private, 1)
    assert max(off(observer.comparisons[0].predicted, observer.comparisons[0]).values()) > LEVEL


@pytest.mark.long
def test_efficiency_is_that_of_the_step_that_was_made():
    private = start(sgd.GaussianPerturbation(), 0.5)
    optimum = flat(best().parameters())
    observer = sgd.Observer(private, optimum=best(), rng=5)
    inputs, targets = private.loader.dataset.tensors
    for place in range(3):
        before = flat(private.model.parameters())
        plain = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
        plain.load_state_dict(private.model.state_dict())
        clean = np.zeros_like(before)
        for example, label in zip(inputs, targets, strict=True):
            plain.zero_grad()
            functional.cross_entropy(plain(example[None]), label[None]).backward()
            gradient = flat(parameter.grad for parameter in plain.parameters())
            clean += gradient * min(1.0, 0.5 / np.linalg.norm(gradient)) / EXAMPLES
        train(private, 1)
        after = flat(private.model.parameters())
        gap = np.sum((optimum - after) ** 2) - np.sum((optimum - before + 0.5 * clean) ** 2)
        assert observer.steps[place].made.total == pytest.approx(gap, rel=1e-3)
    assert [step.step for step in observer.steps] == [1, 2, 3]


@pytest.mark.long
@pytest.mark.parametrize("kind", PERTURBATIONS)
def test_watching_changes_nothing(kind):
    perturb, clip = PERTURBATIONS[kind]
    runs = [start(perturb, clip, batch=20, physical_batch=7, epochs=2) for _ in range(2)]
    observer = sgd.Observer(runs[1], draws=3, every=4, rng=9)
    for run in runs:
        train(run, 2)
    assert np.array_equal(*(flat(run.model.parameters()) for run in runs))
    assert runs[0].optimizer.clip.bound == runs[1].optimizer.clip.bound
    assert [comparison.step for comparison in observer.comparisons] == [1, 5]
    assert len(observer.steps) == 6
    observer.remove()
    assert runs[1].optimizer.watcher is None


def test_without_an_optimum_item_b_is_not_known_and_json_says_so():
    private = start(epochs=1)
    observer = sgd.Observer(private, draws=3)
    train(private, 1)
    record = json.loads(json.dumps(observer.record(), allow_nan=False))
    assert record["private"] is False
    assert record["steps"][0]["made"]["item_b"] is None
    assert record["steps"][0]["made"]["item_a"] != 0
    assert record["comparisons"][0]["measured"]["cosine"] == observer.comparisons[0].measured.cosine


def test_a_learning_rate_of_zero_makes_no_difference():
    private = start(epochs=1, lr=0.0)
    observer = sgd.Observer(private, optimum=best(), draws=3)
    train(private, 1)
    assert observer.steps[0].made.total == observer.steps[0].expected.total == 0


def test_corollary_1_at_the_optimum_only_the_length_of_the_noise_harms():
    private = start(epochs=1)
    observer = sgd.Observer(private, optimum=private.model, draws=3)
    train(private, 1)
    assert observer.steps[0].made.item_b == 0
    assert observer.steps[0].expected.item_a > 0
    law = private.optimizer.perturb.law({}, private.optimizer.clip, 1.0, 60.0)
    wider = replace(law, std=2 * law.std)
    gradient = np.ones(23)
    assert predicted(wider, gradient).cosine < predicted(law, gradient).cosine


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optimum": nn.Linear(4, 3)}, "optimum to be a model like the one in training; it has no such '0.weight'"),
        ({"every": 0}, "every=0"),
        ({"draws": 1}, "draws=1"),
    ],
    ids=["optimum", "every", "draws"],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        sgd.Observer(start(), **options)
