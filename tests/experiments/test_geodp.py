"""The experiments of GeoDP in their small setting: what they find can be false."""

import json
import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from experiments.frame import studies
from experiments.geodp import attacks, directions, features, linear, training
from scipy import stats
from scipy.special import ndtr
from torch.nn import functional

from experiments import frame, geodp
from noisette import sgd
from noisette.sgd import zoo

needs_data = pytest.mark.skipif(not os.environ.get("NOISETTE_DATA"), reason="NOISETTE_DATA names no folder")
FALSE_ALARM = 1e-6
FOLDER = Path(geodp.__file__).parent


@pytest.fixture(scope="module")
def committed():
    return json.loads((FOLDER / "results.json").read_text("utf-8"))


def test_the_page_is_what_the_code_writes_from_the_numbers(committed):
    assert (FOLDER / "README.md").read_text("utf-8") == frame.readme(geodp.__doc__, committed)
    there = [own["name"] for own in committed["studies"]]
    assert there == [name for name in studies(geodp) if name in there]
    assert there[0] == "headline"
    for chart in (chart["name"] for own in committed["studies"] for chart in own["charts"]):
        assert (FOLDER / f"{chart}.png").read_bytes().startswith(b"\x89PNG")


def test_the_committed_headline_keeps_what_it_promises(committed):
    made = committed["studies"][0]
    assert made["full"]
    place = {name: number for number, name in enumerate(made["columns"])}
    assert {(row[place["data"]], row[place["ε"]]) for row in made["rows"]} == {
        (data, epsilon) for data in ("MNIST", "Fashion-MNIST", "CIFAR-10") for epsilon in (1.0, 3.0, 8.0)
    }
    for row in made["rows"]:
        assert row[place["ε composed"]] == pytest.approx(row[place["ε"]], rel=1e-6)


@needs_data
@pytest.mark.parametrize("name", studies(geodp))
def test_every_study_runs(name):
    shares = []
    made = studies(geodp)[name](False, shares.append)
    assert all(len(row) == len(made.columns) for row in made.rows)
    assert shares[-1] == pytest.approx(1.0)


@pytest.fixture(scope="module")
def mean():
    return directions.means(*directions.SMALL)[300, 64]


@needs_data
def test_noise_of_dp_on_gradients_is_what_its_formula_says(mean):
    found = directions.errors(mean, 1.0, 64, 1.0, 50, np.random.default_rng(1))
    variance = (directions.CLIP / 64) ** 2
    low, high = stats.chi2.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], 50 * 300) / (50 * 300)
    assert low < found["DP gradient"] / variance < high
    assert not low < found["DP gradient"] / (2 * variance) < high  # the twin


@needs_data
def test_sound_noise_on_angles_is_what_printed_noise_leaves_out(mean):
    found = directions.errors(mean, 1e-4, 64, 1.0, 20, np.random.default_rng(2))
    assert found["sound angle"] / found["printed angle"] == pytest.approx(2 * 64**2, rel=0.1)


def blobs(examples=300, dims=12):
    rng = np.random.default_rng(3)
    labels = rng.integers(0, linear.CLASSES, examples)
    points = rng.normal(size=(linear.CLASSES, dims))[labels] + rng.normal(size=(examples, dims))
    return functional.normalize(torch.from_numpy(points).float(), dim=1), torch.from_numpy(labels)


def test_clipped_gradients_of_a_linear_model_are_those_of_autograd():
    inputs, labels = blobs(20)
    inputs = linear.centred(inputs, inputs.mean(0))
    weights = torch.from_numpy(np.random.default_rng(4).normal(size=(13, 10))).float().requires_grad_()
    expected, whole = torch.zeros_like(weights), torch.zeros_like(weights)
    for x, label in zip(inputs, labels, strict=True):
        (gradient,) = torch.autograd.grad(functional.cross_entropy((x @ weights)[None], label[None]), weights)
        whole += gradient
        expected += gradient * min(1.0, 0.3 / float(gradient.norm()))
    made = linear.residuals(weights.detach(), inputs, labels, torch.tensor([0.3]))
    each = torch.einsum("ni,no->nio", inputs, made[:, 0]).flatten(1)
    assert float(each.norm(dim=1).max()) <= 0.3
    found = inputs.T @ made[:, 0]
    assert torch.allclose(found, expected, rtol=1e-3, atol=1e-4)
    assert not torch.allclose(found, whole, rtol=1e-3, atol=1e-4)  # the twin: nothing clipped


def test_noise_of_a_step_is_what_the_plan_pays_for():
    inputs, labels = blobs()
    plans = [linear.Plan(3.0, 1e-5, 1.0, seed, steps=1) for seed in (1, 2)]
    first, second = (model.weights for model in linear.train(inputs, labels, plans, torch.zeros(12)))
    noise = ((first - second) * len(inputs)).numpy().ravel()  # the rate is 1: z1 - z2 times the multiplier
    scale = plans[0].multiplier * math.sqrt(2)
    assert stats.kstest(noise / scale, "norm").pvalue > FALSE_ALARM
    assert stats.kstest(noise / scale * 3, "norm").pvalue < FALSE_ALARM


def delta_of(mu, epsilon):
    return ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0, 8.0])
def test_mean_and_steps_together_cost_what_the_plan_says(epsilon):
    plan = linear.Plan(epsilon, 1e-5, 1.0, 0)
    steps = plan.steps / plan.multiplier**2
    assert delta_of(math.sqrt(steps + plan.mean_mu**2), epsilon) <= 1e-5 * (1 + 1e-6)
    assert plan.spent() == pytest.approx(epsilon, rel=1e-6)
    assert delta_of(math.sqrt(steps + 2 * plan.mean_mu**2), epsilon) > 1e-5 * (1 + 1e-6)  # the twin: a second mean


def test_a_mean_that_takes_all_is_refused():
    with pytest.raises(ValueError, match="to leave something"):
        _ = linear.Plan(0.1, 1e-5, 1.0, 0, mean_mu=1.0).multiplier


def test_plans_side_by_side_are_what_they_are_alone():
    inputs, labels = blobs()
    plans = [linear.Plan(epsilon, 1e-5, 20.0, 1, steps=5) for epsilon in (1.0, 8.0)]
    both = linear.train(inputs, labels, plans, torch.zeros(12))
    alone = linear.train(inputs, labels, plans[1:], torch.zeros(12))
    assert torch.allclose(both[1].weights, alone[0].weights, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="same steps"):
        linear.train(inputs, labels, [plans[0], replace(plans[0], steps=6)], torch.zeros(12))


def test_the_mean_of_features_is_bounded_and_noisy():
    inputs, _ = blobs()
    assert float(inputs.norm(dim=1).max()) <= 1 + 1e-6
    many = functional.normalize(torch.ones(50, 4000), dim=1)
    noise = (linear.noisy_mean(many, 0.04) - many.mean(0)).numpy() * 50 * 0.04
    assert stats.kstest(noise, "norm").pvalue > FALSE_ALARM
    assert stats.kstest(noise * 1.3, "norm").pvalue < FALSE_ALARM


def test_wavelets_see_no_constant_and_turn_with_the_image():
    for scale in (0, 1):
        for direction in range(features.DIRECTIONS):
            assert abs(features.morlet(scale, direction).sum()) < 1e-12
    flat = features.scattering(torch.full((1, 1, 28, 28), 0.5))
    assert flat.shape == (1, 81, 7, 7)
    assert torch.allclose(flat[:, 0], torch.tensor(0.5), atol=1e-5)
    assert float(flat[:, 1:].abs().max()) < 1e-5
    stripes = torch.cos(0.75 * math.pi * torch.arange(28.0)).repeat(28, 1)
    lying, standing = (features.scattering(image[None, None])[0, 1:9].mean((1, 2)) for image in (stripes, stripes.T))
    assert int(lying.argmax()) == 0
    assert int(standing.argmax()) == features.DIRECTIONS // 2


def test_scattering_moves_with_the_image():
    image = torch.from_numpy(np.random.default_rng(5).random((1, 1, 48, 48))).float()
    here, there = features.scattering(image), features.scattering(image.roll(4, 3))
    assert torch.allclose(here[..., 5:-6], there[..., 6:-5], atol=1e-4)
    assert not torch.allclose(here[..., 5:-6], there[..., 5:-6], atol=1e-2)


def test_patches_know_no_left_nor_brightness():
    image = features.dead_leaves(2, 20, 3, np.random.default_rng(6))
    found = features.patches(image)
    assert found.shape == (2, features.ATOMS, 3, 3)
    assert torch.allclose(found, features.patches(image.flip(3)), atol=1e-4)
    assert torch.allclose(found, features.patches(image + 0.3), atol=1e-3)
    assert not torch.allclose(found, features.patches(image.flip(2)), atol=1e-2)


def test_prepared_features_have_norm_one():
    raw = torch.rand(5, 12)
    made = features.prepared(raw, torch.full((3,), 2.0))
    assert torch.allclose(made.norm(dim=1), torch.ones(5), atol=1e-6)
    assert torch.allclose(made[0] ** 2 / raw[0], (made[0, 0] ** 2 / raw[0, 0]).expand(12), rtol=1e-4)


@needs_data
def test_what_holds_of_the_printed_form_is_far_from_its_claim():
    data, test = training.images("mnist", 200, 100)
    task = training.Task(zoo.softmax, data, test, 3)
    row = training.Row("GeoDP", 1.0, 100, 0.1, sgd.Geo(0.1, "gradient", as_published=True))
    run = training.trained(row, task)[1]
    assert run.holds > 1000 * run.claimed
    sound = training.trained(replace(row, perturb=sgd.Geo(0.1, "gradient")), task)[1]
    assert sound.holds == sound.claimed == run.claimed


@needs_data
def test_the_attack_finds_members_of_a_model_that_knows_them_by_heart():
    whole, _ = training.images("fashion-mnist", 400, 10)
    members, others = (
        torch.utils.data.TensorDataset(*(t[part] for t in whole.tensors)) for part in (slice(200), slice(200, 400))
    )
    model = attacks.overfit(members, 40)
    shown = attacks.white_box(model, members)
    assert shown.shape == (200, 10 + 500 + 10 + 1 + 10)
    first = members.tensors[0][:1], members.tensors[1][:1]
    model.zero_grad()
    functional.cross_entropy(model(first[0]), first[1]).backward()
    assert np.allclose(shown[0, 10:510], model[-1].weight.grad.flatten().numpy(), atol=1e-6)
    learned, threshold = attacks.attacked(model, members, others)
    assert threshold.auc.low > 0.5
    assert 0 <= learned.auc.value <= 1
    stranger = attacks.attacked(zoo.cnn(), members, others)[1]
    assert stranger.auc.low < 0.5 < stranger.auc.high  # the twin: a model that has seen none
