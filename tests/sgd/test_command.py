"""`noisette train --data mnist --model cnn`: a record with curve, seed and guarantee; saving and going on."""

import json
import math

import numpy as np
import pytest
from click.testing import CliRunner

from noisette import datasets
from noisette.cli import verbs
from noisette.sgd import zoo


@pytest.fixture(autouse=True)
def images(monkeypatch):
    """Ten kinds of small images that a linear model can tell apart."""
    rng = np.random.default_rng(1)
    shapes = rng.integers(0, 256, (10, 28, 28))

    def draw(count):
        labels = rng.integers(0, 10, count).astype(np.uint8)
        return np.clip(shapes[labels] + rng.normal(0, 20, (count, 28, 28)), 0, 255).astype(np.uint8), labels

    made = datasets.Images(*draw(600), *draw(200))
    monkeypatch.setattr(datasets, "images", lambda name: made)


def run(*arguments):
    given = ["train", "--data", "mnist", "--model", "softmax", "--epsilon", "8", "--batch", "60", "--lr", "0.1"]
    return CliRunner().invoke(verbs, [*given, *arguments])


def record(*arguments):
    result = run("--json", *arguments)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_run_learns_and_says_what_it_spent(tmp_path):
    made = record("--epochs", "3", "--seed", "1", "-o", str(tmp_path / "run.json"))
    assert made["accuracy"] > 0.8
    assert [row["epoch"] for row in made["curve"]] == [1, 2, 3]
    assert [row["steps"] for row in made["curve"]] == [10, 20, 30]
    assert 7.9 < made["spent"]["epsilon"] <= 8.0
    assert made["guarantee"] == {**made["guarantee"], "epsilon": 8.0, "delta": 1e-5, "unit": "example"}
    assert made["seed"] == 1
    assert made["parameters"] == 7850
    assert json.loads((tmp_path / "run.json").read_text("utf-8")) == made


def test_a_table_fits_a_terminal():
    result = run("--epochs", "1", "--seed", "1")
    assert "Test accuracy" in result.stdout
    assert "ε = 8, δ = 1e-05 per example, central model, relation add-remove" in " ".join(result.stdout.split())
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "protects nobody" not in result.stdout
    assert "--seed makes the noise predictable" in result.stderr


def test_a_stopped_run_goes_on_to_the_same_end(tmp_path, monkeypatch):
    from noisette.sgd import training

    whole = record("--epochs", "3", "--seed", "2")
    plain = training.fit

    def interrupted(private, test, *, each, **options):
        def stop(epoch):
            each(epoch)
            if epoch.epoch == 2:
                raise KeyboardInterrupt

        return plain(private, test, each=stop, **options)

    monkeypatch.setattr(training, "fit", interrupted)
    file = str(tmp_path / "run.pt")
    assert run("--epochs", "3", "--seed", "2", "--checkpoint", file).exit_code != 0
    monkeypatch.setattr(training, "fit", plain)
    resumed = record("--epochs", "3", "--seed", "2", "--checkpoint", file)
    assert resumed["curve"] == whole["curve"]
    assert resumed["spent"] == whole["spent"]


def test_an_advised_norm_is_in_the_record_and_in_the_budget(tmp_path):
    file = str(tmp_path / "run.pt")
    made = record("--epochs", "2", "--seed", "1", "--clip", "advised", "--checkpoint", file)
    assert made["advice"]["steps"] == 1
    assert made["advice"]["l2_clip_norm"] == made["advice"]["quantiles"]["0.5"] > 0
    assert made["curve"][-1]["steps"] == 21
    assert 7.9 < made["spent"]["epsilon"] <= 8.0
    again = record("--epochs", "2", "--seed", "1", "--clip", "advised", "--checkpoint", file)
    assert again["advice"] == made["advice"]  # of a run that is over: nothing is asked again
    assert again["spent"] == made["spent"]
    shown = run("--epochs", "1", "--seed", "1", "--clip", "advised").stdout
    assert "paid for as a step" in " ".join(shown.split())


@pytest.mark.long
@pytest.mark.parametrize("perturb", ["gaussian", "geodp"])
def test_an_analysis_is_recorded_on_request(perturb):
    options = ("--epochs", "1", "--seed", "1", "--limit", "200", "--perturb", perturb)
    made, plain = record(*options, "--analyse"), record(*options)
    assert made["accuracy"] == plain["accuracy"]
    assert plain["analysis"] is None
    analysis = made["analysis"]
    assert analysis["private"] is False
    assert [step["step"] for step in analysis["steps"]] == [1, 2, 3]
    for comparison in analysis["comparisons"]:
        said, found = comparison["predicted"], comparison["measured"]
        assert (said["direction"] is None) == (perturb == "geodp")  # its last entries are below any float
        for place, name in enumerate(("direction", "cosine", "magnitude", "gradient")):
            if said[name] is not None:  # six deviations of 30 draws
                assert abs(said[name] - found[name]) < 6 * found["standard_errors"][place], name
    assert all(math.isfinite(step["made"]["item_b"]) for step in analysis["steps"])


@pytest.mark.long
def test_an_analysis_fits_a_terminal():
    shown = run("--epochs", "1", "--seed", "1", "--limit", "200", "--analyse").stdout
    assert "Efficiency difference, B, of all steps" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_an_attack_is_recorded_on_request():
    made = record("--epochs", "1", "--seed", "1", "--attack")
    assert (len(made["attack"]["members"]), len(made["attack"]["others"])) == (600, 200)


def test_a_trained_model_is_attacked_from_its_record(tmp_path):
    file = str(tmp_path / "run.json")
    record("--epochs", "1", "--seed", "1", "--attack", "-o", file)
    result = CliRunner().invoke(verbs, ["audit", "--model", file, "--json"])
    found = json.loads(result.stdout)
    assert found["verdict"] == "holds"
    assert result.exit_code == 0
    assert found["auc"]["low"] <= 0.5 + 0.1
    assert 0 <= found["lower_bound"] <= found["accountant"] <= found["claimed"] == 8.0
    shown = CliRunner().invoke(verbs, ["audit", "--model", file]).stdout
    assert "area under the curve" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_a_model_that_remembers_is_found_out(tmp_path):
    """Losses as of a model that knows its members by heart."""
    made = record("--epochs", "1", "--seed", "1", "--attack")
    rng = np.random.default_rng(1)
    made["attack"] |= {"members": rng.uniform(0, 1, 5000).tolist(), "others": rng.uniform(1, 9, 5000).tolist()}
    made["spent"]["epsilon"] = 3.0
    (tmp_path / "run.json").write_text(json.dumps(made), encoding="utf-8")
    result = CliRunner().invoke(verbs, ["audit", "--model", str(tmp_path / "run.json"), "--json"])
    assert json.loads(result.stdout)["verdict"] == "violated"
    assert result.exit_code == 1


def test_a_record_without_an_attack_says_what_to_do(tmp_path):
    file = str(tmp_path / "run.json")
    record("--epochs", "1", "--seed", "1", "-o", file)
    result = CliRunner().invoke(verbs, ["audit", "--model", file])
    assert result.exit_code == 2
    assert "Train again with --attack" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--clip", "l4"], "Unknown clip='l4'"),
        (["--perturb", "cauchy"], "Unknown perturb='cauchy'"),
        (["--limit", "0"], "--limit 0"),
        (["--limit", "30"], "batches of 60 from 30 examples"),
        (["--delta", "0"], "delta"),
    ],
)
def test_bad_options_end_with_a_reason(arguments, message):
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.output


@pytest.mark.parametrize(("channels", "side"), [(1, 28), (3, 32)])
@pytest.mark.parametrize("name", zoo.ZOO)
def test_models_take_both_kinds_of_images(name, channels, side):
    import torch

    model = zoo.ZOO[name](channels, side)
    assert model(torch.zeros(2, channels, side, side)).shape == (2, 10)
    block = {(16, 16): 4704, (16, 32): 14_560, (32, 64): 57_792}  # two kernels of 3 x 3, the way around, two norms
    published = {"softmax": 784 * 10 + 10, "cnn": 21_840, "lenet": 61_706, "resnet": 192 + sum(block.values()) + 650}
    if side == 28:
        assert sum(parameter.numel() for parameter in model.parameters()) == published[name]
