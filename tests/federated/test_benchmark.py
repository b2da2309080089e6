"""The benchmark of rounds: its ways run, its peer has our noise, and its tables say what was measured."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.federated.flower import LocalGrid

from noisette.federated import Channel, ModelLayout, Norm

pytestmark = pytest.mark.long

_SPEC = importlib.util.spec_from_file_location(
    "benchmarks_federated", Path(__file__).resolve().parents[2] / "benchmarks" / "federated.py"
)
federated = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(federated)

NODES, WEIGHTS, STEP = 4, 20_000, 1e-3


def one_round(way, tmp_path):
    """Return the mean update of a round of a way, without Ray, in an app that serves all ways in turn."""
    made = {each: federated.parts(each, WEIGHTS, 2, tmp_path / f"{each}.db") for each in federated.WAYS}
    app = federated.app_with([federated.by_turns({each: mods for each, (mods, _) in made.items()})])
    grid, start, strategy = LocalGrid(app, range(1, NODES + 1)), federated.model(WEIGHTS), made[way][1]
    if way in federated.OURS:
        start = strategy.begin(start, 2)
    arrays = federated.one_round(way, strategy, grid, 1, start)
    return np.concatenate([array.numpy().reshape(-1) for array in arrays.values()])


@pytest.mark.parametrize("way", federated.OURS)
def test_each_way_of_ours_runs(way, tmp_path):
    assert one_round(way, tmp_path).shape == (WEIGHTS,)


def test_without_privacy_the_mean_is_exact(tmp_path):
    assert one_round(federated.NONE, tmp_path) == pytest.approx(np.full(WEIGHTS, STEP))


def test_the_peer_has_our_noise(tmp_path):
    """Flower's mod draws without a seed: the deviation of 20,000 normal numbers is off by ten of its own once in 1e23.

    The twin is the noise of a run of one round.
    """
    found = np.std(one_round(federated.PEER, tmp_path)) * np.sqrt(NODES)
    layout = ModelLayout.of(np.zeros(WEIGHTS))
    whole = federated.nz.accounting.gdp_mu(federated.EPSILON, federated.DELTA)
    ours, once = (Channel("tensor-gaussian", layout, Norm(1.0), mu=whole / np.sqrt(k)).whole.sigma for k in (2, 1))
    within = 10 / np.sqrt(2 * WEIGHTS)
    assert found == pytest.approx(ours, rel=within)
    assert found != pytest.approx(once, rel=within)


def test_the_small_setting_prints_the_page(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["federated.py", "--small"])
    federated.main()
    shown = capsys.readouterr().out
    for row in ("| adaptive-duchi | ", "| privunit-g | ", "| 10 | ", "| 20 | "):
        assert row in shown


def test_rows_are_medians_against_no_privacy_and_the_peer():
    peer, ours = [[22, 42]] * 3, [[12.1, 10.5]] * 3
    rounds = {federated.NONE: [[10, 20], [30, 40], [11, 21]], federated.PEER: peer, "ours": ours}
    none, peer, ours = federated.rows_of(rounds)
    assert none == "| no privacy | 11.0 | +0 % | 0.50 | 21.0 | +0 % |"
    assert peer == "| LocalDpMod | 22.0 | +100 % | 1.00 | 42.0 | +100 % |"
    assert ours == "| ours | 12.1 | +10 % | 0.55 | 10.5 | -50 % |"
