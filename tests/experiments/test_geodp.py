"""The experiments of GeoDP in their small setting: what they find can be false."""

import numpy as np
import pytest
from experiments.frame import studies
from experiments.geodp import directions

from experiments import geodp

pytestmark = pytest.mark.needs_data


def test_noise_of_dp_on_gradients_is_what_its_formula_says():
    mean = directions.gradients(64, 300).mean(0)
    found = directions.errors(mean, 1.0, 64, 1.0, 50, np.random.default_rng(1))
    variance = (directions.CLIP / 64) ** 2
    assert found["DP gradient"] == pytest.approx(variance, rel=5 * np.sqrt(2 / (50 * 300)))


def test_sound_noise_on_angles_is_what_printed_noise_leaves_out():
    mean = directions.gradients(64, 300).mean(0)
    found = directions.errors(mean, 1e-4, 64, 1.0, 20, np.random.default_rng(2))
    assert found["sound angle"] / found["printed angle"] == pytest.approx(2 * 64**2, rel=0.1)


@pytest.mark.parametrize("name", studies(geodp))
def test_every_study_runs(name):
    shares = []
    study = studies(geodp)[name](False, shares.append)
    assert all(len(row) == len(study.columns) for row in study.rows)
    assert shares[-1] == pytest.approx(1.0)


def test_what_holds_of_the_printed_form_is_far_from_its_claim():
    study = studies(geodp)["table-5-2"](False, lambda _: None)
    place = {name: number for number, name in enumerate(study.columns)}
    for row in study.rows:
        claimed, holds = row[place["ε claimed"]], row[place["ε that holds"]]
        assert holds > 1000 * claimed if "printed" in row[0] else holds == claimed
