"""Break-even populations along a parameter, and the command that prints them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import noisette as nz
from noisette.cli import verbs
from noisette.prediction import break_even, break_even_curve, plan

TENTHS = [i / 10 for i in range(1, 11)]
VALUES = ",".join(map(str, TENTHS))


def run(*arguments: Any, code: int = 0) -> str:
    done = CliRunner().invoke(verbs, ["plan", *map(str, arguments)])
    assert done.exit_code == code, done.output
    return done.output


def test_each_point_is_a_break_even() -> None:
    budgets = [0.5, 1.0, 2.0, 4.0]
    curve = break_even_curve("square-wave", "piecewise", over="epsilon", points=budgets, users=50, values=TENTHS)
    pairs = [(nz.SquareWave(e), nz.Piecewise(e)) for e in budgets]
    expected = [break_even(a, b, values=TENTHS) for a, b in pairs]
    assert expected[-1] is None
    assert curve.populations == pytest.approx(expected)
    assert curve.populations[1] == pytest.approx(30.38, abs=0.005)  # Duan 2024, section 4.1, third reading
    assert curve.winners == tuple("square-wave" if n is not None and n > 50 else "piecewise" for n in expected)


def test_along_reports_and_dimensions() -> None:
    options: dict[str, Any] = {"users": 1000, "epsilon": 4.0, "values": TENTHS}
    reports = break_even_curve("square-wave", "piecewise", over="report", points=[1, 2, 4], dims=8, **options)
    for report, population in zip((1, 2, 4), reports.populations, strict=True):
        pair = [nz.Sampled(name, epsilon=4.0, dims=8, report=report) for name in ("square-wave", "piecewise")]
        assert population == pytest.approx(break_even(*pair, values=TENTHS))
    dims = break_even_curve("square-wave", "piecewise", over="dims", points=[4, 16], report=4, **options)
    # n' = r' d / m, up to the spread of those who report, which hardly counts at this budget
    assert dims.populations[1] == pytest.approx(4 * dims.populations[0], rel=0.05)


BAD = [
    ({"over": "users"}, "over='users'"),
    ({"points": []}, "at least one point"),
    ({"points": [-1.0]}, r"epsilon=-1\.0 > 0"),
    ({"over": "report", "points": [1.5]}, "whole numbers for report"),
    ({"over": "report", "points": [3], "dims": 2}, "report <= 2"),
    ({"a": "grr"}, "cannot be planned"),
]


@pytest.mark.parametrize(("options", "message"), BAD)
def test_bad_curves(options: dict[str, Any], message: str) -> None:
    given = {"a": "duchi", "b": "laplace", "over": "epsilon", "points": [1.0], "users": 10} | options
    with pytest.raises(ValueError, match=message):
        break_even_curve(**given)


@pytest.mark.slow
def test_command_prints_curves_and_targets() -> None:
    common = ("--users", 10_000, "-e", 1, "--values", VALUES, "-m", "piecewise", "-m", "square-wave")
    made = json.loads(run(*common, "--curve", "epsilon=1,4", "--target-mse", 0.001, "--json"))
    assert made["curve"]["populations"] == [pytest.approx(30.38, abs=0.005), None]
    assert made["candidates"][0]["needed"] == {"mse": 4276}  # 4.2755786 / 0.001
    assert made["candidates"][1]["needed"] == {"mse": None}
    assert made["verdict"] == "worth collecting"
    shown = run(*common, "--curve", "epsilon=1,4", "--target-power", 0.8, "--effect", 0.05)
    assert "never" in shown
    assert "30.4" in shown
    assert "Verdict: worth collecting" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert "Name two with" in run("--users", 10, "-e", 1, "--curve", "epsilon=1", code=2)
    assert "an effect beside" in run("--users", 10, "-e", 1, "--target-power", 0.8, code=2)


@pytest.mark.slow
def test_command_says_what_is_not_worth_collecting() -> None:
    shown = run("--users", 100, "--dims", 1000, "-e", 0.5)
    assert "Verdict: not worth collecting" in shown
    assert "noise" in shown
    assert "piecewise-optimal" in shown  # no name is cut
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.slow
def test_command_plans_records(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    lines = ["job,sex", *(f"{a},{b}" for a, b in zip(rng.choice(list("xyz"), 50), rng.integers(0, 2, 50), strict=True))]
    (tmp_path / "people.csv").write_text("\n".join(lines), encoding="utf-8")
    known = ("--data", tmp_path / "people.csv", "--categories", "x,y,z", "--categories", 2)
    made = json.loads(run("--users", 500, "-e", 2, *known, "--json"))
    assert made["dims"] == 2
    assert {"grr", "oue", "olh", "subset-selection", "histogram"} <= {c["mechanism"] for c in made["candidates"]}
    rows = np.asarray([["xyz".index(line[0]), int(line[2])] for line in lines[1:]])
    direct = plan(
        users=500, epsilon=2.0, domain=nz.Attributes((nz.Categorical(labels=("x", "y", "z")), 2)), values=rows
    )
    assert [c["mse"] for c in made["candidates"]] == pytest.approx([c.mse for c in direct.candidates])
    same = json.loads(run("--users", 500, "-e", 2, "--dims", 3, "--categories", 4, "--json"))
    assert same["candidates"][0]["spec"]["domain"]["parts"][2]["size"] == 4
    assert "as many --categories as columns" in run("--users", 5, "-e", 2, *known, "--columns", "job", code=2)


@pytest.mark.slow
def test_every_mechanism_for_many_dimensions() -> None:
    """d = 5,000 and every mechanism there is; how long the whole command takes is measured in benchmarks/sizes.py."""
    options = "--users 200000 --dims 5000 --report 50 --epsilon 1 --delta 1e-6 --json"
    assert len(json.loads(run(*options.split(" ")))["candidates"]) >= 12
