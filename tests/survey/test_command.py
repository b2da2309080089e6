"""The commands with a survey: plan, privatise, estimate; each as a table and as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result

import noisette as nz
from noisette.cli import verbs
from noisette.survey.campaigns import Campaign


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a survey and people who answer it."""
    survey = nz.Survey(
        [nz.Number("hours", 0, 100, want="distribution"), nz.Choice("diet", ["none", "vegan"])],
        epsilon=4.0,
        groups={"region": ["north", "south"]},
    )
    survey.save(tmp_path / "survey.yaml")
    rng = np.random.default_rng(1)
    people = {
        "id": np.arange(3000),
        "hours": 100 * rng.beta(2, 5, 3000),
        "diet": rng.choice(["none", "vegan"], 3000, p=[0.7, 0.3]),
        "region": rng.choice(["north", "south"], 3000),
    }
    pd.DataFrame(people).to_csv(tmp_path / "people.csv", index=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _run(*arguments: Any, code: int = 0) -> Result:
    found = CliRunner().invoke(verbs, [*map(str, arguments)])
    assert found.exit_code == code, found.output
    return found


def _json(*arguments: Any) -> Any:
    return json.loads(_run(*arguments, "--json").stdout)


@pytest.mark.long
def test_from_plan_to_results(folder: Path) -> None:
    plan = _json("plan", "survey.yaml", "--users", 3000)
    made = nz.Survey.read(folder / "survey.yaml").plan(users=3000)
    assert plan["rows"] == [vars(row) for row in made.rows]
    assert plan["verdict"] == made.verdict
    assert plan["mechanisms"]["hours"] == "piecewise"
    assert "ε = 4 per record" in _run("plan", "survey.yaml", "--users", 3000).stdout
    assert "ε = 1 per record" in _run("plan", "survey.yaml", "--users", 3000, "--epsilon", 1).stdout
    told = _json("privatize", "people.csv", "--survey", "survey.yaml", "-o", "reports.parquet")
    assert told["users"] == 3000
    assert told["guarantee"]["epsilon"] <= 4.0
    found = _json("estimate", "reports.parquet", "--distribution")
    results = nz.Survey.read("survey.yaml").estimate("reports.parquet")
    assert [row["value"] for row in found["dimensions"]] == results.table()["value"].tolist()
    assert [row["name"] for row in found["dimensions"][:3]] == ["hours", "diet=none", "diet=vegan"]
    assert set(found["dimensions"][0]) >= {"name", "value", "std_error", "low", "high", "group"}
    assert found["distributions"]["hours"]["quantiles"]["0.5"] == results["hours"].quantile(0.5)


def test_tables_for_people(folder: Path) -> None:
    shown = _run("plan", "survey.yaml", "--users", 3000).stdout
    assert "Verdict: Worth collecting" in shown
    assert "region=south" in shown
    shown = _run("privatize", "people.csv", "--survey", "survey.yaml", "-o", "r.parquet").stdout
    assert "3,000 reports" in shown
    shown = _run("estimate", "r.parquet", "--distribution", "--level", 0.9).stdout
    assert "quantiles 0.05" in shown
    assert "90 % from" in shown
    assert "diet" in shown


def test_what_does_not_go_with_a_survey(folder: Path) -> None:
    assert "leave --mechanism out" in _run("plan", "survey.yaml", "--users", 9, "-m", "duchi", code=2).output
    wrong = ("privatize", "people.csv", "--survey", "survey.yaml", "-m", "duchi", "-o", "r.parquet")
    assert "leave --mechanism out" in _run(*wrong, code=2).output
    assert "Missing option '--epsilon'" in _run("plan", "--users", 9, code=2).output
    assert "how many users will answer" in _run("plan", "survey.yaml", code=2).output
    assert "survey.yml" in _run("plan", "survey.yml", "--users", 9, code=2).output
    _run("privatize", "people.csv", "--survey", "survey.yaml", "-o", "r.parquet")
    assert "given twice" in _run("estimate", "r.parquet", "./r.parquet", code=2).output
    _run("privatize", "people.csv", "-m", "duchi", "-e", 1, "--columns", "hours", "--range", "0,100", "-o", "m.parquet")
    assert "Estimate them apart" in _run("estimate", "r.parquet", "m.parquet", code=2).output
    (folder / "bad.csv").write_text("hours,diet,region\n5,none,north\n6,pizza,south\n", encoding="utf-8")
    told = _run("privatize", "bad.csv", "--survey", "survey.yaml", "-o", "bad.parquet", code=2).output
    assert "bad.csv, row 2, column 'diet': 'pizza' is not among the labels" in told
    assert not (folder / "bad.parquet").exists()


def test_a_survey_can_be_served(folder: Path) -> None:
    """Its campaign has the name of the file and the survey's mechanisms."""
    campaign = Campaign.read(folder / "survey.yaml")
    assert (campaign.id, campaign.title, campaign.period) == ("survey", "survey", "once")
    assert campaign.survey == nz.Survey.read(folder / "survey.yaml")
    told = _json("serve", "survey.yaml", "--plan")
    assert list(told["campaigns"][0]["predicted"]) == list(campaign.quantities)
    again = Campaign.from_wire(json.loads(json.dumps(campaign.to_wire()))).survey
    assert again.randomizer.spec() == campaign.survey.randomizer.spec()
    two = nz.Survey([nz.Number("x", 0, 1)], epsilon=1.0, groups={"a": ["1", "2"], "b": ["3", "4"]})
    two.save(folder / "two.yaml")
    with pytest.raises(ValueError, match="at most one public group in a campaign"):
        Campaign.read(folder / "two.yaml")


def test_a_survey_reads_a_campaign(folder: Path) -> None:
    path = folder / "campaign.yaml"
    path.write_text(
        "id: a\nepsilon: 1\nusers: 100\nperiod: week\nattributes:\n  - {name: x, range: [0, 1]}\n"
        "public_group: {name: town, values: [north, south]}\n",
        encoding="utf-8",
    )
    survey = nz.Survey.read(path)
    assert dict(survey.groups) == {"town": ("north", "south")}
    assert survey == Campaign.read(path).survey
    assert survey.plan().users == 100


def test_groups_are_compared(folder: Path) -> None:
    """The table of `compare`; what is no survey's has no groups."""
    _run("privatize", "people.csv", "--survey", "survey.yaml", "-o", "reports.parquet", "--seed", 1)
    told = _json("estimate", "reports.parquet", "--compare", "region")
    expected = nz.Survey.read("survey.yaml").estimate("reports.parquet").compare("region")
    assert [row["difference"] for row in told["differences"]] == pytest.approx(expected["difference"].tolist())
    assert told["note"] == expected.attrs["note"]
    assert "south - north" in " ".join(_run("estimate", "reports.parquet", "--compare", "region").stdout.split())
    assert "No public group 'town'" in _run("estimate", "reports.parquet", "--compare", "town", code=1).stderr
    Path("x.csv").write_text("x\n0.5\n0.1\n", encoding="utf-8")
    _run("privatize", "x.csv", "-m", "laplace", "-e", 1, "--range", "0,1", "-o", "x.parquet")
    assert "report files of a survey" in _run("estimate", "x.parquet", "--compare", "region", code=2).stderr
    assert "report files of a survey" in _run("estimate", "x.parquet", "--weights", "people.csv", code=2).stderr


def test_files_of_two_periods_are_compared(folder: Path) -> None:
    """Each file is an arm, at its own budget; a group that is called files is a group."""
    survey = nz.Survey.read("survey.yaml")
    people = pd.read_csv("people.csv")
    survey.privatize(people[:1500], rng=1).save("may.parquet")
    later = nz.Survey([nz.Choice("diet", ["none", "vegan"])], epsilon=2.0)
    later.privatize(people[1500:], rng=2).save("june.parquet")
    told = _json("estimate", "may.parquet", "june.parquet", "--compare", "files")
    arms = {"may": survey.estimate("may.parquet"), "june": later.estimate("june.parquet")}
    expected = arms["may"].compare(arms)
    assert {row["question"] for row in told["differences"]} == {"diet"}
    assert [row["difference"] for row in told["differences"]] == pytest.approx(expected["difference"].tolist())
    assert [row["adjusted"] for row in told["differences"]] == pytest.approx(expected["adjusted"].tolist())
    assert told["users"] == 3000
    shown = _run("estimate", "may.parquet", "june.parquet", "--compare", "files").stdout
    assert "june - may" in " ".join(shown.split())
    assert "at least two files" in _run("estimate", "may.parquet", "--compare", "files", code=2).stderr


def test_known_margins_weigh_results(folder: Path) -> None:
    """What `weighted` says, with the design effect beside it."""
    _run("privatize", "people.csv", "--survey", "survey.yaml", "-o", "reports.parquet", "--seed", 1)
    Path("margins.yaml").write_text("region: {north: 0.9, south: 0.1}\n", encoding="utf-8")
    told = _json("estimate", "reports.parquet", "--weights", "margins.yaml")
    results = nz.Survey.read("survey.yaml").estimate("reports.parquet")
    expected = results.weighted({"region": {"north": 0.9, "south": 0.1}})
    assert [row["value"] for row in told["dimensions"]] == pytest.approx(expected.table()["value"].tolist())
    assert [row["std_error"] for row in told["dimensions"]] == pytest.approx(expected.table()["std_error"].tolist())
    effects = expected.design_effect()["design_effect"].tolist()
    assert [row["design_effect"] for row in told["dimensions"]] == pytest.approx(effects)
    assert min(effects) > 1.2
    assert "design effect" in _run("estimate", "reports.parquet", "--weights", "margins.yaml").stdout
    Path("margins.yaml").write_text("region: {north: 0.9}\n", encoding="utf-8")
    assert "a share for each value" in _run("estimate", "reports.parquet", "--weights", "margins.yaml", code=2).stderr
    Path("margins.yaml").write_text("region: [", encoding="utf-8")
    assert "neither YAML nor JSON" in _run("estimate", "reports.parquet", "--weights", "margins.yaml", code=2).stderr
    both = ("estimate", "reports.parquet", "--weights", "margins.yaml", "--compare", "region")
    assert "Leave out --compare" in _run(*both, code=2).stderr


@pytest.mark.long
def test_texts_that_are_found_have_names(folder: Path) -> None:
    nz.Survey([nz.Text("t", 3, alphabet="abc")], epsilon=4.0).save("texts.yaml")
    Path("t.csv").write_text("\n".join(["t", *["ab", "c"] * 2000]), encoding="utf-8")
    _run("privatize", "t.csv", "--survey", "texts.yaml", "-o", "t.parquet", "--seed", 1)
    assert {row["name"] for row in _json("estimate", "t.parquet")["dimensions"]} == {"t=ab", "t=c"}
