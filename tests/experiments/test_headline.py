"""The headline of GeoDP's page: features that no data have shaped, and a linear model that pays for all it learns."""

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from experiments.geodp import accuracy, features, linear
from scipy import stats
from scipy.special import ndtr
from torch.nn import functional

from experiments import geodp

FALSE_ALARM = 1e-6


def test_the_committed_headline_keeps_what_it_promises():
    made = json.loads((Path(geodp.__file__).parent / "results.json").read_text("utf-8"))["studies"][0]
    assert made["full"]
    assert made["setting"]["runs of each"] == len(accuracy.SEEDS)
    rows = [dict(zip(made["columns"], row, strict=True)) for row in made["rows"]]
    assert {(row["data"], row["ε"]) for row in rows} == set(itertools.product(accuracy.TITLES.values(), accuracy.RATES))
    for row in rows:
        assert row["ε composed"] == pytest.approx(row["ε"], rel=1e-6)
        assert row["lowest"] <= row["test accuracy, %"] <= row["highest"]


def blobs(examples=300, dims=12):
    rng = np.random.default_rng(3)
    labels = rng.integers(0, linear.CLASSES, examples)
    points = rng.normal(size=(linear.CLASSES, dims))[labels] + rng.normal(size=(examples, dims))
    return functional.normalize(torch.from_numpy(points).float(), dim=1), torch.from_numpy(labels)


def test_clipped_gradients_of_a_linear_model_are_those_of_autograd():
    inputs, labels = blobs(20)
    weights = torch.from_numpy(np.random.default_rng(4).normal(size=(12, 10))).float().requires_grad_()
    expected, whole = torch.zeros_like(weights), torch.zeros_like(weights)
    for x, label in zip(inputs, labels, strict=True):
        (gradient,) = torch.autograd.grad(functional.cross_entropy((x @ weights)[None], label[None]), weights)
        whole += gradient
        expected += gradient * min(1.0, 0.3 / float(gradient.norm()))
    made = linear.residuals(weights.detach(), inputs, labels, 0.3)
    each = torch.einsum("ni,no->nio", inputs, made[:, 0]).flatten(1)
    assert float(each.norm(dim=1).max()) <= 0.3
    found = inputs.T @ made[:, 0]
    assert torch.allclose(found, expected, rtol=1e-3, atol=1e-4)
    assert not torch.allclose(found, whole, rtol=1e-3, atol=1e-4)  # the twin: nothing clipped


def test_a_step_is_noise_that_the_plan_pays_for_on_the_clipped_gradient_of_whitened_features():
    inputs, labels = blobs()
    plan = linear.Plan(3.0, 1e-5, 1.0, steps=1)
    models = linear.train(inputs, labels, plan, range(40))
    shapes = linear.shaped(inputs, models[0].centre, models[0].white)
    made = linear.residuals(torch.zeros(12, 10), shapes, labels, plan.clip)[:, 0]
    noise = torch.stack([-model.weights * plan.clip * len(inputs) - shapes.T @ made for model in models]).numpy()
    whole = noise.ravel() / (plan.multiplier * plan.clip)  # weights are -rate / (clip n) (gradient + noise)
    assert stats.kstest(whole, "norm").pvalue > FALSE_ALARM
    assert stats.kstest(whole * 1.2, "norm").pvalue < FALSE_ALARM  # the twin


def test_no_example_moves_the_mean_or_the_moment_further_than_one():
    rng = np.random.default_rng(7)
    for dims in (1, 2, 5):
        rows = torch.from_numpy(rng.normal(size=(30, dims)) * rng.choice([0.1, 1, 50], size=(30, 1))).float()
        inputs = linear.bounded(rows)
        assert float(inputs.norm(dim=1).max()) <= 1
        assert torch.equal(inputs[inputs.norm(dim=1) < 0.9], rows[rows.norm(dim=1) < 0.9])
        whole = (linear.noisy_moment(inputs, 1e6), 30 * linear.noisy_mean(rows, 1e6))
        for left in range(30):
            without = [row for row in range(30) if row != left]
            moved = (
                whole[0] - linear.noisy_moment(inputs[without], 1e6),
                whole[1] - 29 * linear.noisy_mean(rows[without], 1e6),
            )
            assert all(float(move.norm()) <= 1 + 1e-4 for move in moved)
            norm = float(inputs[left].norm())
            assert float(moved[0].norm()) == pytest.approx(norm**2, abs=1e-4)
    long = torch.full((1, 4), 3.0)
    assert float((long.T @ long).norm()) > 30  # the twin: what a row moves that nothing bounds
    assert float(linear.noisy_moment(linear.bounded(long), 1e6).norm()) <= 1 + 1e-4


def test_noise_of_the_moment_is_symmetric_and_of_the_scale_that_is_paid_for():
    inputs, mu = torch.zeros(5, 300), 0.25
    noise = linear.noisy_moment(inputs, mu, seed=5)
    assert torch.equal(noise, noise.T)
    off = noise[tuple(torch.triu_indices(300, 300, 1))].numpy() * mu * math.sqrt(2)  # mean of two entries
    on = noise.diagonal().numpy() * mu
    assert stats.kstest(off, "norm").pvalue > FALSE_ALARM
    assert stats.kstest(on, "norm").pvalue > FALSE_ALARM
    assert stats.kstest(off / math.sqrt(2), "norm").pvalue < FALSE_ALARM  # the twin: half the noise
    norm = float(torch.linalg.matrix_norm(noise, 2))
    assert linear.moment_noise(300, mu) == pytest.approx(norm, rel=0.05)


def test_whitening_makes_strong_axes_alike_and_spares_weak_ones():
    rng = np.random.default_rng(8)
    turn = torch.linalg.qr(torch.from_numpy(rng.normal(size=(4, 4))))[0]
    sizes = torch.tensor([400.0, 100.0, 1.0, -3.0], dtype=torch.float64)
    moment = turn * sizes @ turn.T
    white = linear.whitening(moment, 5.0)
    expected = turn.T @ torch.linalg.inv(turn * (sizes.clamp(min=0) + 5.0) @ turn.T) @ turn
    assert torch.allclose(turn.T @ (white @ white.T) @ turn, expected, atol=1e-9)
    variances = torch.linalg.eigvalsh(white.T @ moment @ white)
    assert torch.allclose(variances, torch.tensor([-0.6, 1 / 6, 100 / 105, 400 / 405], dtype=torch.float64))
    assert not torch.allclose(white @ white.T, torch.linalg.inv(moment))  # the twin: no floor


def test_whitened_descent_learns_what_plain_descent_is_too_slow_for():
    rng = np.random.default_rng(9)
    labels = torch.from_numpy(rng.integers(0, 10, 3000))
    wide = rng.normal(size=(3000, 3)) * 10
    means = rng.normal(size=(10, 6))
    points = torch.from_numpy(np.concatenate([wide, means[labels] + 0.2 * rng.normal(size=(3000, 6))], 1)).float()
    inputs = linear.bounded(points / 40)
    plan = linear.Plan(8.0, 1e-5, 20.0, steps=20)
    (own,) = linear.train(inputs, labels, plan, [1])
    (plain,) = linear.train(inputs, labels, replace(plan, floor=1e9), [1])
    assert own.accuracy(inputs, labels) > plain.accuracy(inputs, labels) + 0.05


def delta_of(mu, epsilon):
    return ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0, 8.0])
def test_mean_moment_and_steps_together_cost_what_the_plan_says(epsilon):
    plan = linear.Plan(epsilon, 1e-5, 1.0)
    steps = plan.steps / plan.multiplier**2
    assert delta_of(math.sqrt(steps + plan.mean_mu**2 + plan.moment_mu**2), epsilon) <= 1e-5 * (1 + 1e-6)
    assert plan.spent() == pytest.approx(epsilon, rel=1e-6)
    assert plan.moment_mu**2 / (steps + plan.mean_mu**2 + plan.moment_mu**2) == pytest.approx(plan.share)
    for mean, moment in ((2, 1), (1, 2)):  # the twins: a second mean, a second moment
        more = steps + mean * plan.mean_mu**2 + moment * plan.moment_mu**2
        assert delta_of(math.sqrt(more), epsilon) > 1e-5 * (1 + 1e-6)


@pytest.mark.parametrize("wrong", [{"mean_mu": 1.0}, {"share": 1.0}])
def test_a_mean_or_a_moment_that_takes_all_is_refused(wrong):
    with pytest.raises(ValueError, match="to leave something"):
        _ = linear.Plan(0.1, 1e-5, 1.0, **wrong).multiplier


def test_seeds_side_by_side_are_what_they_are_alone():
    inputs, labels = blobs()
    plan = linear.Plan(8.0, 1e-5, 20.0, steps=5)
    both, again = linear.train(inputs, labels, plan, (1, 2)), linear.train(inputs, labels, plan, (1, 3))
    (alone,) = linear.train(inputs, labels, plan, (1,))
    assert torch.allclose(both[0].weights, alone.weights, rtol=1e-4, atol=1e-4)
    assert torch.allclose(again[0].weights, alone.weights, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(both[1].weights, again[1].weights, rtol=1e-2, atol=1e-2)


def test_the_mean_of_features_is_noisy():
    many = functional.normalize(torch.ones(50, 4000), dim=1)
    noise = (linear.noisy_mean(many, 0.04) - linear.bounded(many).mean(0)).numpy() * 50 * 0.04
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


def test_prepared_features_have_norm_one():
    raw = torch.rand(5, 12)
    made = features.prepared(raw, torch.full((3,), 2.0))
    assert torch.allclose(made.norm(dim=1), torch.ones(5), atol=1e-6)
    assert torch.allclose(made[0] ** 2 / raw[0], (made[0, 0] ** 2 / raw[0, 0]).expand(12), rtol=1e-4)


@pytest.mark.long
def test_directions_are_orthonormal_and_hold_most_of_what_varies():
    known = features.leaves("scattering", 1, 28, 40)
    axes = features.directions(known, 300)
    assert axes.shape == (81 * 49, 300)
    assert torch.allclose(axes.T @ axes, torch.eye(300), atol=1e-4)
    flat = features.prepared(known.flatten(1), features.sizes(known))
    flat = functional.normalize(flat - flat.mean(0), dim=1)
    other = torch.linalg.qr(torch.from_numpy(np.random.default_rng(1).normal(size=(81 * 49, 300))).float())[0]
    held, chance = (float((flat @ own).square().sum() / len(flat)) for own in (axes, other))
    assert held > 0.6
    assert chance < 0.2  # the twin: directions drawn at random
    fewer = features.directions(known, 50)
    assert torch.equal(fewer, axes[:, :50])
