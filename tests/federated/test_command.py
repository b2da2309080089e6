"""`noisette federate run`: budgets from a target, the three lines, and a run of each model on Flower's simulation."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from noisette.accounting import Ledger
from noisette.cli import verbs


def federate(*args):
    return CliRunner().invoke(verbs, ["federate", *args])


@pytest.mark.long
@pytest.mark.needs_data
def test_a_plan_shows_the_budget_and_three_lines():
    done = federate(
        "--target-epsilon", "8", "--target-delta", "1e-6", "--plan", "--mechanism", "adaptive-duchi", "--json"
    )
    assert done.exit_code == 0, done.output
    record = json.loads(done.stdout)
    assert record["weights"] == record["answers"] == 7850
    assert record["planned"]["claimed"]["epsilon"] == pytest.approx(record["answer"]["epsilon"])
    assert 7.9 < record["planned"]["local"]["epsilon"] <= 8
    assert record["planned"]["shuffled"]["epsilon"] < record["planned"]["local"]["epsilon"]
    assert not record["planned"]["claim_holds"]
    assert [line.split()[0] for line in record["lines"]] == ["claimed", "local", "shuffled"]


@pytest.mark.needs_data
def test_sampling_few_of_many_clients_leaves_each_more_budget():
    def budget(*args):
        done = federate("-e", "8", "--target-delta", "0", "--plan", "--json", "--rounds", "10", *args)
        return json.loads(done.stdout)["answer"]["epsilon"]

    assert budget("--clients-per-round", "10") == pytest.approx(8.0, rel=1e-3)  # one round of ten each
    assert budget() == pytest.approx(0.8, rel=1e-3)


def simulated(tmp_path, *terms):
    """Run the command on Flower's simulation; return its record and its three lines."""
    command = [Path(sys.executable).parent / "noisette", "federate", *terms, "--output", tmp_path / "run.json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()[-3:]
    assert [line.split()[0] for line in lines] == ["claimed", "local", "shuffled"]
    return json.loads((tmp_path / "run.json").read_text()), lines


@pytest.mark.long
@pytest.mark.needs_data
def test_a_federation_on_flowers_simulation_within_its_target(tmp_path):
    terms = ["-e", "50", "--clients", "6", "--per-client", "60", "--rounds", "2", "--clip", "0.5", "--enhance", "none"]
    record, _ = simulated(tmp_path, *terms, "--workers", "1", "--ledger", tmp_path / "budget.db")
    assert [entry["round"] for entry in record["curve"]] == [0, 1, 2]
    assert [entry["counted"] for entry in record["rounds"]] == [6, 6]
    assert record["guarantee"]["local"]["epsilon"] <= 50
    assert record["guarantee"]["rounds"] == 2
    with Ledger(tmp_path / "budget.db") as ledger:
        spent = {one.key: float(one.epsilon) for one in ledger.accounts()}
    assert list(spent) == [f"node-{number}" for number in range(6)]
    assert all(49.9 < epsilon <= 50 for epsilon in spent.values())


@pytest.mark.long
@pytest.mark.needs_data
def test_a_shuffled_federation_on_flowers_simulation(tmp_path):
    """Reports are mixed on their way: the target is met behind the shuffler, and not without it."""
    terms = ["--model", "shuffled", "-e", "0.5", "--target-delta", "1e-3", "--clients", "12", "--per-client", "10"]
    record, lines = simulated(tmp_path, *terms, "--rounds", "1", "--workers", "1")
    (told,) = record["rounds"]
    assert (told["asked"], told["counted"], told["rejected_mixed"], told["released"]) == (12, 12, 0, True)
    assert record["guarantee"]["shuffled"]["epsilon"] <= 0.5 < record["guarantee"]["local"]["epsilon"]
    assert "reports of 12 clients a round mixed" in lines[-1]


@pytest.mark.long
@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["run"], "--target-epsilon"),
        (["-e", "-1", "--plan"], "target_epsilon=-1.0"),
        (["-e", "1", "--mechanism", "grr", "--plan"], "mechanism='grr'"),
        (["-e", "1", "--mechanism", "privunit-g", "--adapt-ranges", "--plan"], "no ranges"),
        (["-e", "1", "--model", "central"], "local"),
        (
            ["-e", "1", "--clients", "9", "--clients-per-round", "10", "--plan"],
            "per-round 10 to be at most 9",
        ),
        (["-e", "1", "--clients", "9", "--minimum", "10", "--plan"], "--minimum 10 to be at most 9"),
        (["-e", "1", "--enhance", "shrink", "--plan"], "enhance='shrink'"),
    ],
)
@pytest.mark.needs_data
def test_bad_options_say_what_to_do(args, words):
    done = federate(*args)
    assert done.exit_code == 2
    assert words in done.output
