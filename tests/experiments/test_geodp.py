"""The experiments of GeoDP in their small setting: what they find can be false."""

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from experiments.frame import studies
from experiments.geodp import attacks, directions, training
from scipy import stats
from torch.nn import functional

from experiments import frame, geodp
from noisette import sgd
from noisette.sgd import zoo

pytestmark = pytest.mark.long

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


def test_the_guarantees_of_the_tables_are_what_the_accountant_says(committed):
    """Of plain DP-SGD, whose noise multiplier is printed; with little noise sampling was once left out of account."""
    for name, examples in (("table-5-2", 60_000), ("table-5-3", 50_000)):
        (study,) = [own for own in committed["studies"] if own["name"] == name]
        rows = [dict(zip(study["columns"], row, strict=True)) for row in study["rows"]]
        plain = [row for row in rows if row["method"] == "DP"]
        assert len(plain) >= 3
        for row in plain:
            steps = 400 if name == "table-5-3" else {8192: 146, 16384: 73}[row["B"]]
            spent = sgd.Budget(row["σ"], row["B"] / examples, 1e-5).spent(steps)
            assert row["ε claimed"] == pytest.approx(spent.epsilon, rel=1e-6)
            assert row["ε that holds"] == row["ε claimed"]
