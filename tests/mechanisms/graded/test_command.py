"""Graded mechanisms on the command line: listed, audited, planned, privatised and estimated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import noisette as nz
from noisette.cli import verbs


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOISETTE_CACHE", str(tmp_path_factory.getbasetemp() / "graded"))


def run(*words: str, status: int = 0) -> Any:
    """Run a command and return its JSON, or the message it ends with."""
    done = CliRunner().invoke(verbs, [*words, "--json"])
    return json.loads(done.stdout) if done.exit_code == status else " ".join((done.stdout + done.stderr).split())


def test_they_are_listed_with_what_became_of_the_claim() -> None:
    entries = {entry["name"]: entry for entry in run("mechanisms")["mechanisms"]}
    assert not entries["levelled"]["published"]["holds"]
    assert not entries["graded-laplace"]["published"]["holds"]
    assert len(entries["levelled"]["guarantee"]["matrix"]) == 3


@pytest.mark.long
def test_audit_of_given_levels() -> None:
    found = run("audit", "levelled", "--epsilon", "1", "--param", "edges=[-1,-0.6,-0.2,0.2,0.6,1]", "--param",
                "epsilons=[2.5,2,1.5,1,0.5]", "--samples", "20000")  # fmt: skip
    assert found["exact_epsilon"] == pytest.approx(3.9475, abs=5e-5)
    assert found["verdict"] == "holds"
    published = run("audit", "levelled", "--epsilon", "1", "--as-published", "--samples", "20000", status=1)
    assert published["verdict"] == "violated"
    assert "has no option 'low'" in run("audit", "levelled", "--epsilon", "1", "--param", "low=0")


@pytest.mark.long
def test_plan_of_levels() -> None:
    made = run("plan", "--users", "10000", "--epsilon", "4", "--levels=-1,-0.5,0.5,1", "--budgets", "1,2,1", "--values",
               "0.1,-0.3,0.9")  # fmt: skip
    assert made["epsilon"] == pytest.approx(4.0)
    assert {"levelled", "levelled, hiera mu 2", "levelled, maximum likelihood", "optimal-graded"} <= {
        candidate["mechanism"] for candidate in made["candidates"]
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--levels=-1,0,1"], "--levels and --budgets together"),
        (["--levels=-1,0,1", "--budgets", "1,2", "--dims", "3"], "about one number"),
        (["--levels=-1,1,0", "--budgets", "1,2"], "rising order"),
        (["--levels=-1,0,1", "--budgets", "1"], "one budget for each of 2 levels"),
    ],
)
def test_bad_plans_of_levels(options: list[str], message: str) -> None:
    assert message in run("plan", "--users", "10", "--epsilon", "1", *options)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["levelled", "optimal-graded"])
def test_from_a_table_to_an_estimate(name: str, tmp_path: Path) -> None:
    ages = np.random.default_rng(1).normal(40, 15, 20_000).clip(0, 100)
    table, reports = tmp_path / "people.csv", tmp_path / "reports.parquet"
    table.write_text("\n".join(["age", *(f"{age:.3f}" for age in ages)]), encoding="utf-8")
    made = run("privatize", str(table), "-m", name, "-e", "4", "--range", "0,100", "--seed", "1", "-o", str(reports))
    assert made["users"] == 20_000
    assert np.max(made["guarantee"]["matrix"]) <= 4
    (age,) = run("estimate", str(reports))["dimensions"]
    assert abs(age["value"] - ages.mean()) < 5 * age["std_error"]
    assert age["std_error"] < 2
    assert "levels of one number" in run("privatize", str(table), "-m", name, "-e", "4", "--report", "1", "-o", "x")


@pytest.mark.long
def test_levels_of_ones_own_from_a_table(tmp_path: Path) -> None:
    table = tmp_path / "people.csv"
    table.write_text("\n".join(["income", *map(str, range(0, 100_000, 100))]), encoding="utf-8")
    common = ("privatize", str(table), "-e", "3", "--seed", "1", "-o", str(tmp_path / "r.parquet"))
    levels = ("--levels", "0,20000,90000,250000", "--budgets", "0.5,2,0.5")
    for name in ("levelled", "optimal-graded"):
        made = run(*common, "-m", name, *levels)
        assert made["mechanism"]["edges"] == [0, 20_000, 90_000, 250_000]
        assert made["guarantee"]["epsilon"] <= 3
        assert made["mechanism"]["epsilons"][1] / made["mechanism"]["epsilons"][0] == pytest.approx(4)
    assert "duchi has no levels" in run(*common, "-m", "duchi", *levels)
    assert "leave --range out" in run(*common, "-m", "levelled", *levels, "--range", "0,1")
    assert "--levels and --budgets together" in run(*common, "-m", "levelled", *levels[:2])
    assert "one budget for each of 3 levels" in run(*common, "-m", "levelled", *levels[:3], "1,2")


@pytest.mark.slow
def test_distribution_from_levelled_reports(tmp_path: Path) -> None:
    table, reports = tmp_path / "people.csv", tmp_path / "reports.parquet"
    ages = np.random.default_rng(1).normal(30, 5, 20_000).clip(0, 100)
    table.write_text("\n".join(["age", *(f"{age:.3f}" for age in ages)]), encoding="utf-8")
    run("privatize", str(table), "-m", "levelled", "-e", "6", "--range", "0,100", "--seed", "1", "-o", str(reports))
    (age,) = run("estimate", str(reports), "--distribution")["dimensions"]
    edges, shares = np.asarray(age["distribution"]["edges"]), np.asarray(age["distribution"]["probabilities"])
    assert shares.sum() == pytest.approx(1)
    assert (edges[1:] + edges[:-1]) / 2 @ shares == pytest.approx(ages.mean(), abs=5)  # smoothed


def test_levels_are_not_sampled() -> None:
    with pytest.raises(ValueError, match="Expected a mechanism with one budget, got 'graded-laplace'"):
        nz.Sampled("graded-laplace", epsilon=1.0, dims=3)
    with pytest.raises(ValueError, match="Expected a mechanism for one real number, got 'levelled'"):
        nz.Sampled("levelled", epsilon=1.0, dims=3)
