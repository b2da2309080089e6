"""What the command line says when something is wrong: one sentence, no class name, no number of the system."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from noisette import prediction
from noisette.cli import verbs
from noisette.mechanisms import CATALOGUE
from noisette.prediction import planning

ONE = ["plan", "--users", "1000", "--epsilon", "1"]


def said(*arguments: Any) -> str:
    """Run a command that fails, and return what it says."""
    found = CliRunner().invoke(verbs, [str(one) for one in arguments])
    assert found.exit_code in (1, 2), found.output
    return found.output.strip()


def test_all_mechanisms_are_listed() -> None:
    told = said("audit", "zzzzzzzz", "--epsilon", "1")
    assert all(name in told for name in CATALOGUE)


def test_a_range_beside_categories_is_refused() -> None:
    assert "not both" in said(*ONE, "--categories", "a,b", "--range", "0,100")


def test_too_many_dimensions_are_named() -> None:
    told = said(*ONE, "--dims", "100000000")
    assert "dims=100000000" in told
    assert "10000000" in told.replace(",", "").replace("dims=100000000", "")
    assert "epsilon" not in told


def test_a_page_of_categories_is_written(tmp_path: Path) -> None:
    path = tmp_path / "x.html"
    found = CliRunner().invoke(verbs, [*ONE, "--categories", "a,b", "--mechanism", "grr", "--html", str(path)])
    assert found.exit_code == 0, found.output
    assert "noisette plan --categories a,b --mechanism grr" in path.read_text(encoding="utf-8")


def test_a_page_of_levels_is_refused_before_anything_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "x.html"
    told = said(*ONE, "--levels", "0,50,100", "--budgets", "2,1", "--html", path)
    assert told == ("Error: A plan of levels is about one number: give it --users, --epsilon and its values only.")
    assert not path.exists()


@pytest.mark.slow
def test_a_mechanism_that_fails_is_left_out_of_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    real = planning._entry

    def fails(offer: Any, *given: Any) -> Any:
        if offer.name == "laplace":
            raise ValueError("Expected more than this.")
        return real(offer, *given)

    monkeypatch.setattr(planning, "_entry", fails)
    made = prediction.plan(users=1000, epsilon=1.0)
    assert made.left_out == {"laplace": "Expected more than this."} == made.to_dict()["left_out"]
    assert "laplace" not in [one.mechanism for one in made.candidates]
    assert "Left out: laplace. Expected more" in CliRunner().invoke(verbs, ONE).output
    with pytest.raises(ValueError, match="Expected more"):
        prediction.plan(users=1000, epsilon=1.0, mechanisms=["laplace"])


def test_reports_are_not_called_csv(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("x\n1\n")
    told = said("privatize", tmp_path / "p.csv", "-m", "laplace", "-e", "1", "-o", tmp_path / "r.csv")
    assert "Call the file" in told
    assert "r.parquet" in told
    assert not (tmp_path / "r.csv").exists()


@pytest.mark.needs("fastapi")
@pytest.mark.parametrize("command", [("serve",), ("plan", "--users", "9")])
def test_a_missing_file_is_named(command: tuple[str, ...]) -> None:
    assert said(*command, "nothere.yaml") == "Error: nothere.yaml: No such file or directory."


@pytest.mark.slow
@pytest.mark.needs("fastapi")
def test_nobody_at_the_address_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("x\n1\n")
    (tmp_path / "device.key").write_text("a-key-of-many-letters")
    given = ["--campaign", "http://127.0.0.1:1/campaigns/x", "--epsilon", "1", "--key-file", tmp_path / "device.key"]
    told = said("report", tmp_path / "p.csv", *given)
    assert told.startswith("Error: Connection refused. Set")
    assert ".." not in told


@pytest.mark.slow
@pytest.mark.needs("fastapi")
def test_the_plan_of_a_campaign_has_a_verdict(tmp_path: Path) -> None:
    file = tmp_path / "few.yaml"
    file.write_text("id: few\nepsilon: 0.5\nusers: 10\nattributes: [{name: x, range: [0, 10]}]\n")
    found = CliRunner().invoke(verbs, ["serve", str(file), "--plan"])
    assert "doubtful" in found.output or "not worth collecting" in found.output


def test_it_runs_as_a_module_too() -> None:
    """Where the program is not on the path, `python -m noisette` is the same, its own name included."""
    done = subprocess.run([sys.executable, "-m", "noisette", "plan"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Usage: noisette plan" in done.stderr
