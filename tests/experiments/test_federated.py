"""Papers 003 and 004, chapter 6: accuracies beside the guarantee that holds."""

import json
from pathlib import Path

import numpy as np
import pytest
from experiments.federated import headline, ldpfl, ldpvec
from experiments.federated.ldpvec.descent import Descent, descend
from experiments.federated.simulation import clients

import noisette as nz
from experiments import frame

PAPERS = (ldpfl, ldpvec)


def run(paper, name, tmp_path):
    return frame.run(paper, [name], False, tmp_path, lambda _: None)["studies"][0]


@pytest.mark.parametrize("paper", PAPERS, ids=["ldpfl", "ldpvec"])
def test_the_page_is_what_the_code_writes_from_the_numbers(paper):
    folder = Path(paper.__file__).parent
    if not (folder / "results.json").exists():
        pytest.skip("no study has been run at its larger size")
    committed = json.loads((folder / "results.json").read_text("utf-8"))
    assert (folder / "README.md").read_text("utf-8") == frame.readme(paper.__doc__, committed)
    assert {own["name"] for own in committed["studies"]} <= set(frame.studies(paper))
    assert all(own["full"] for own in committed["studies"])


@pytest.mark.needs_data
def test_what_the_paper_calls_one_is_thousands(tmp_path):
    own = run(ldpfl, "fig-4", tmp_path)
    assert all(row[3] > 1000 for row in own["rows"])
    assert all(row[4] < row[3] for row in own["rows"])


@pytest.mark.needs_data
def test_a_gradient_of_each_user_teaches_and_half_of_the_noise_teaches_more(tmp_path):
    rows = {row[1]: row for row in run(ldpfl, "headline", tmp_path)["rows"]}
    local, mixed = rows["8 local"], rows["(1.0, 1e-06) shuffled"]
    assert mixed[5] < local[5] < local[8]
    assert local[5] > 30  # a tenth are right by chance; 1,000 test images
    assert 0 < mixed[2] < mixed[3] < 8


def test_features_look_at_one_image_only():
    images = np.random.default_rng(1).integers(0, 256, (7, 28, 28)).astype(np.uint8)
    found = headline.features(images, 7, 8)
    assert found.shape == (7, 128)
    assert np.linalg.norm(found, axis=1) == pytest.approx(1)
    assert headline.features(images[3:4], 7, 8)[0] == pytest.approx(found[3])


def test_the_budget_behind_a_shuffler_is_the_largest_that_holds():
    budget = headline._local_budget(10, 900)
    held = [nz.accounting.shuffled(nz.PrivUnitG(e, 10), 900, 1e-6).epsilon for e in (budget, 1.05 * budget)]
    assert held[0] <= 1 < held[1]


@pytest.mark.needs_data
def test_devices_hold_two_digits_and_nothing_twice():
    people = clients("mnist", 30, examples=3000, tests=10, seed=1, classes=2)
    held = [set(people.labels[own].tolist()) for own in people.owned]
    assert max(map(len, held)) <= 4  # a run may end one digit and begin the next
    places = np.concatenate([own.numpy() for own in people.owned])
    assert len(np.unique(places)) == len(places) == 3000


class Bowl:
    """Five devices, each with a quadratic bowl of its own."""

    middles = np.arange(10.0).reshape(5, 2)

    def start(self, seed):
        return np.zeros(2)

    def gradients(self, weights, rng):
        return np.broadcast_to(weights, (5, 2)) - self.middles

    def score(self, weights):
        return float(np.abs(weights - self.middles.mean(axis=0)).max())


def test_descent_finds_the_mean_and_clipping_counts():
    plan = Descent(60, 3, 0.5, gradient=100.0, update=100.0)
    exact = lambda rows, rng: rows.mean(axis=0)  # noqa: E731
    for tell, whole in ((None, True), (exact, True), (exact, False)):
        assert descend(Bowl(), plan, tell, whole=whole, seed=1)[-1] < 1e-3
    short = Descent(60, 3, 0.5, gradient=0.01, update=0.01)
    assert descend(Bowl(), short, exact, whole=True, seed=1)[-1] > 1
