"""CIFAR-10 by size: features that synthetic images decide alone, and a moment of the first features."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from experiments.geodp import garments, linear, priors, sizes
from torch.nn import functional

from experiments import geodp


@pytest.fixture(scope="module")
def known():
    return priors.prior(16, 60, 20)


@pytest.fixture(scope="module")
def images():
    return torch.from_numpy(np.random.default_rng(1).random((4, 3, 32, 32))).float()


def test_an_image_and_its_mirror_have_the_same_features(known, images):
    found, upside = known(images), known(images.flip(2))
    assert found.shape == (4, 60)
    assert torch.allclose(found, known(images.flip(3)), atol=0.02)
    assert not torch.allclose(found, upside, atol=0.02)  # the twin


def test_features_of_an_image_do_not_depend_on_the_others(known, images):
    together = known(images)
    for place in range(4):
        assert torch.allclose(known(images[place : place + 1])[0], together[place], atol=1e-5)


def test_maps_of_an_image_are_its_windows_against_the_atoms_one_by_one(images):
    atoms = torch.from_numpy(np.random.default_rng(2).normal(size=(108, 4))).bfloat16()
    found = priors.pooled(images[:1], atoms, 2)
    cut = images[0].unfold(1, 6, 2).unfold(2, 6, 2)  # channels, rows, columns, 6, 6
    expected = torch.zeros(9, 8)
    for row in range(14):
        for column in range(14):
            window = cut[:, row, column].flatten()
            window = (window - window.mean()) / (window.var(correction=0) + 0.01).sqrt()
            told = atoms.float().T @ window.bfloat16().float()
            for cell, share in enumerate(priors._cells(14)[:, 14 * row + column]):
                for place, value in enumerate(told.tolist()):
                    mirrored = 3 * (cell // 3) + 2 - cell % 3 if place >= 2 else cell
                    for sign in (0, 1):
                        strength = max((1 - 2 * sign) * value - 1, 0)
                        expected[mirrored, 2 * sign + place % 2] += float(share) * strength / 2
    assert found.shape == (1, 9, 4)
    halves = torch.cat([expected[:, :2], expected[:, 2:4]], 1)
    assert torch.allclose(found[0], halves, rtol=0.03, atol=2e-3)


def test_cells_share_out_all_places_alike():
    for side in (11, 14):
        share = priors._cells(side) * side**2
        assert share.shape == (9, side**2)
        assert torch.allclose(share, share.round(), atol=1e-6)
        assert set(share.round().flatten().tolist()) == {0.0, 1.0}
        assert float(share.round().sum(0).min()) >= 1  # every place is seen
        grid = share.unflatten(1, (side, side))
        assert torch.equal(grid.flip(2), grid.unflatten(0, (3, 3)).flip(1).flatten(0, 1))


def test_directions_are_orthonormal_and_sorted_by_how_much_leaves_vary(known):
    for scale in known.scales:
        for axes in scale.among_maps:
            assert torch.allclose(axes.T @ axes, torch.eye(axes.shape[1]), atol=1e-4)
    spread = torch.cat([known(some) for some in priors._leaves(20).split(10)]).var(0)
    assert float(spread[:20].mean()) > 2 * float(spread[-20:].mean())


def test_a_moment_of_the_first_features_whitens_them_alone():
    rng = np.random.default_rng(5)
    inputs = functional.normalize(torch.from_numpy(rng.normal(size=(400, 9))).float(), dim=1)
    labels = torch.from_numpy(rng.integers(0, 10, 400))
    plan = linear.Plan(8.0, 1e-5, 1.0, steps=1, axes=4)
    (model,) = linear.train(inputs, labels, plan, [3])
    moved = linear.centred(inputs, model.centre)
    moment = linear.noisy_moment(moved[:, :4], plan.moment_mu, seed=3)
    floor = plan.floor * linear.moment_noise(4, plan.moment_mu)
    assert torch.allclose(model.white, linear.whitening(moment, floor))
    left = max(400 - float(moment.trace()), 0.0) / 5
    assert model.tail == pytest.approx(1 / math.sqrt(left + floor))
    shaped = linear.shaped(inputs, model.centre, model.white, model.tail)
    whole = torch.cat([moved[:, :4] @ model.white, moved[:, 4:] * model.tail], 1)
    assert torch.allclose(shaped, functional.normalize(whole, dim=1), atol=1e-6)
    assert float(shaped.norm(dim=1).max()) <= 1 + 1e-6
    assert not torch.allclose(shaped, linear.shaped(inputs, model.centre, model.white), atol=1e-3)  # the twin


def test_coarse_scores_leave_every_gradient_within_its_bound():
    rng = np.random.default_rng(7)
    inputs = functional.normalize(torch.from_numpy(rng.normal(size=(50, 9))).float(), dim=1)
    labels, weights = torch.from_numpy(rng.integers(0, 10, 50)), torch.from_numpy(rng.normal(size=(9, 20))).float()
    fine = linear.residuals(weights, inputs, labels, 0.3)
    coarse = linear.residuals(weights, inputs, labels, 0.3, inputs.bfloat16())
    assert torch.allclose(fine, coarse, atol=0.02)
    assert not torch.equal(fine, coarse)
    assert float((coarse.norm(dim=2) * inputs.norm(dim=1)[:, None]).max()) <= 0.3
    raw = (inputs @ weights).unflatten(1, (2, 10)).softmax(2) - functional.one_hot(labels, 10)[:, None]
    assert float((raw.norm(dim=2) * inputs.norm(dim=1)[:, None]).max()) > 0.3  # the twin: nothing clipped


@pytest.mark.needs_data
def test_garments_are_the_same_each_time_and_have_the_labels_of_fashion_mnist():
    first, labels, others, answers = garments.garments(20, 10)
    assert first.shape == (20, 32, 32, 3)
    assert others.shape == (10, 32, 32, 3)
    assert np.array_equal(first, garments.garments(20, 10)[0])
    data = garments.datasets.images("fashion-mnist")
    assert np.array_equal(labels, data.train_labels[:20])
    assert np.array_equal(answers, data.test_labels[:10])
    assert first.std(axis=(1, 2)).min() > 1  # no image is flat


def test_the_committed_sizes_keep_what_they_promise():
    record = json.loads((Path(geodp.__file__).parent / "results.json").read_text("utf-8"))
    (made,) = [study for study in record["studies"] if study["name"] == "cifar10-sizes"]
    assert made["full"]
    assert made["setting"]["runs of each"] == len(sizes.SEEDS)
    rows = [dict(zip(made["columns"], row, strict=True)) for row in made["rows"]]
    assert {(row["filters"], row["features"]) for row in rows} == set(sizes.SIZES)
    for row in rows:
        if row["ε"] is not None:
            assert row["ε composed"] == pytest.approx(row["ε"], rel=1e-6)
            assert row["lowest"] <= row["test accuracy, %"] <= row["highest"]
