"""The board: pieces that go on where they stopped, a page that loads nothing, and what the committed results say."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.board import evidence, frame, learning, numbers, page
from click.testing import CliRunner

import noisette as nz
from noisette.auditing.claims import published_form
from noisette.cli import verbs

ROOT = Path(__file__).resolve().parents[2]


def toy(epsilon: float = 1.0) -> frame.Cell:
    """A cell whose people are made up."""
    load = partial(np.linspace, 0.0, 10.0, 2000)
    return frame.Cell(numbers.TASK, "toy", "made up", epsilon, load, "error", about={"low": 0.0, "high": 10.0})


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Only the toy cell, with three of our methods and few reports."""
    monkeypatch.setattr(frame, "TASKS", ("numbers",))
    monkeypatch.setattr(page, "TASKS", ("numbers",))
    monkeypatch.setattr(numbers, "cells", lambda: [toy()])
    monkeypatch.setattr(numbers, "REPORTS", 20_000)
    known = {key: one for key, one in frame._METHODS.items() if key[1] in ("duchi", "laplace", "auto")}
    monkeypatch.setattr(frame, "_METHODS", known)
    return tmp_path


@pytest.mark.slow
def test_a_run_goes_on_where_it_stopped(few: Path) -> None:
    told: list[str] = []
    assert frame.run(("numbers/laplace",), folder=few, tell=told.append) == []
    assert [line.split(": ")[2] for line in told] == ["laplace"]
    told.clear()
    assert frame.run(folder=few, tell=told.append) == []
    assert sorted(line.split(": ")[2] for line in told) == ["auto", "duchi"]
    told.clear()
    assert frame.run(folder=few, tell=told.append) == [] == told
    first = frame.stored("numbers", few)
    frame.run(folder=few, again=True, tell=told.append)
    assert len(told) == 3
    timeless = [{key: row[key] for key in row if key != "microseconds"} for row in first.values()]
    assert timeless == [
        {key: row[key] for key in row if key != "microseconds"} for row in frame.stored("numbers", few).values()
    ]


@pytest.mark.slow
def test_errors_are_those_of_the_law(few: Path) -> None:
    frame.run(folder=few, tell=lambda line: None)
    rows = frame.stored("numbers", few)
    x = np.linspace(0.0, 10.0, 2000)
    for name in ("duchi", "laplace"):
        mechanism = nz.CATALOGUE[name](epsilon=1.0, domain=nz.Interval(0, 10))
        expected = 100 * np.sqrt(np.mean(mechanism.moments(x).variance) / len(x)) / 10
        row = rows[f"toy, ε = 1 | {name}"]
        assert row["error"] == pytest.approx(expected, rel=6 * row["spread"])
        assert row["error"] != pytest.approx(1.2 * expected, rel=6 * row["spread"])
        assert row["verdict"] == "certified"


@pytest.mark.slow
def test_a_failure_is_told_and_the_others_run(few: Path) -> None:
    def broken(cell: frame.Cell) -> Any:
        raise ZeroDivisionError("of its own")

    frame.method(numbers.TASK, "broken")(broken)
    failed = frame.run(folder=few, tell=lambda line: None)
    assert len(failed) == 1
    assert "ZeroDivisionError: of its own" in failed[0]
    assert len(frame.stored("numbers", few)) == 3


def test_a_refuted_method_is_not_ranked(few: Path) -> None:
    published = published_form(nz.DuchiBox(epsilon=0.5, dims=4))
    found = evidence.of(published)
    assert found.verdict == "refuted"
    assert found.shown == pytest.approx(0.974, abs=1e-3)
    rows = [
        {"task": "t", "cell": "c", "method": "a", "by": "noisette", "error": 1.0, "verdict": "certified", "chosen": ""},
        {"task": "t", "cell": "c", "method": "false", "by": "p", "error": 0.1, "verdict": "refuted", "chosen": ""},
        {"task": "t", "cell": "c", "method": "auto", "by": "n", "error": 1.2, "verdict": "certified", "chosen": "b"},
    ]
    (told,) = page.automatic(rows)
    assert told["ratio"] == pytest.approx(1.2)
    assert told["best"] == "a"


@pytest.mark.slow
def test_the_page_holds_all_and_loads_nothing(few: Path) -> None:
    frame.run(folder=few, tell=lambda line: None)
    text = page.page(few)
    assert not re.search(r'(src|href)\s*=\s*["\']|url\(|@import|https?://(?!www\.w3\.org)', text)
    inner = re.search(r'id="data">(.*?)</script>', text, re.DOTALL)
    assert inner is not None
    data = json.loads(inner[1])
    assert {row["method"] for row in data["rows"]} == {"duchi", "laplace", "auto"}


def test_ten_lines_add_a_method(few: Path) -> None:
    text = (ROOT / "docs" / "board.md").read_text(encoding="utf-8")
    code = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert code is not None
    assert len([line for line in code[1].splitlines() if line]) <= 10
    exec(compile(code[1], "docs/board.md", "exec"), {})
    assert frame.run(("numbers/half the budget",), folder=few, tell=lambda line: None) == []
    (row,) = frame.stored("numbers", few).values()
    assert row["verdict"] == "certified"
    assert row["error"] > 0


def test_the_command(few: Path, tmp_path: Path) -> None:
    made = tmp_path / "board.html"
    arguments = ["board", "--only", "numbers/duchi", "--results", str(few), "--page", str(made), "--json"]
    done = CliRunner().invoke(verbs, arguments)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["results"] == 1
    assert "<h1>The board</h1>" in made.read_text(encoding="utf-8")
    wrong = CliRunner().invoke(verbs, ["board", "--only", "nonsense"])
    assert wrong.exit_code == 2
    assert "Expected one of numbers" in wrong.output


@pytest.mark.needs_data
@pytest.mark.long
def test_a_cell_of_real_data_is_rebuilt(tmp_path: Path) -> None:
    """What CI rebuilds in small: an error that is committed is found again."""
    assert frame.run(("numbers/ACS age, ε = 1 | hybrid",), folder=tmp_path, tell=lambda line: None) == []
    (again,) = frame.stored("numbers", tmp_path).values()
    before = frame.stored("numbers")["ACS age, ε = 1 | hybrid"]
    assert again["error"] == pytest.approx(before["error"], rel=6 * before["spread"])


def test_the_committed_results_cover_what_was_asked() -> None:
    told = page.summary()
    assert told["methods"] >= 60
    assert len(told["data_sets"]) >= 10
    asked = {"mean of a number", "frequencies", "vectors", "distributions", "longitudinal", "tensors", "regression"}
    assert asked <= set(told["tasks"])
    found = page.rows()
    libraries = {row["by"] for row in found}
    assert {"noisette", "papers", "opendp", "diffprivlib", "multi-freq-ldpy", "pure-ldp"} <= libraries
    assert all(row.get("shown", 1) > 0 and row["words"] for row in found if row["verdict"] == "refuted")
    near = {(one["task"], one["cell"]) for one in told["auto_far"]}
    assert len(near) == told["auto_cells"] - told["auto_near"]  # each cell where auto is farther is listed
    assert told["auto_share"] >= 0.95


@pytest.mark.long
def test_the_page_sorts_and_fits_a_phone(browser: Any, tmp_path: Path) -> None:
    made = tmp_path / "board.html"
    made.write_text(page.page(), encoding="utf-8")
    asked: list[str] = []
    shown = browser.new_context(viewport={"width": 390, "height": 800}).new_page()
    shown.on("request", lambda request: asked.append(request.url))
    said: list[str] = []
    shown.on("pageerror", lambda error: said.append(str(error)))
    shown.goto(made.as_uri())
    assert shown.evaluate("document.documentElement.scrollWidth") <= 390
    marks = shown.locator(".plot svg").first.locator("text").all_text_contents()
    assert {"0.5", "1", "2", "4"} <= set(marks)  # every budget of the first data set
    first = shown.locator("#ranked tr td:first-child").first.text_content()
    shown.get_by_role("button", name="µs a user").click()
    times = [float(one) for one in shown.locator("#ranked tr td:nth-child(5)").all_text_contents()]
    assert times == sorted(times)
    shown.get_by_role("button", name="error").click()
    assert shown.locator("#ranked tr td:first-child").first.text_content() == first
    shown.get_by_label("Task").select_option("vectors")
    assert "refuted" in str(shown.locator("#refuted").text_content())
    assert asked == [made.as_uri()]
    assert not said
    shown.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["adaptive-duchi", "privunit"])
def test_a_federated_row_spends_the_budget_of_its_cell(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Methods that answer a weight at a time share it among all weights: one had as many times too much."""
    rng = np.random.default_rng(1)
    rows, labels = rng.uniform(0, 0.5, (40, 3)), rng.integers(0, 2, 40)
    cell = learning._cell(learning.FEDERATED, "Adult income", 8.0)
    cell = replace(cell, load=lambda: (rows, labels, rows, labels))
    spent = []
    monkeypatch.setattr(learning, "CLIENTS", 5)
    monkeypatch.setattr(learning.evidence, "of", lambda whole: spent.append(whole) or frame.Evidence("certified", ""))
    outcome = learning._channel(cell, name, rounds=4)
    assert 4 * spent[0].guarantee.epsilon == pytest.approx(8.0)
    assert outcome.users == 5


def test_what_nobody_audited_is_not_called_audited() -> None:
    """Results that were measured before the audit get its word: subsets that give themselves away are refuted."""
    assert not [row for row in page.rows() if row["verdict"] == "audited" and "no audit" in row["words"]]
    found = {row["verdict"]: row for row in page.rows() if row["method"] == "multi-freq-ldpy SS"}
    assert set(found) == {"refuted"}
    assert "at least 7.789" in found["refuted"]["words"]
    unseen = {"method": "diffprivlib Sketch", "verdict": "audited", "words": f"stated; {evidence.UNSEEN}"}
    assert evidence.renewed(unseen) == unseen | {"verdict": "stated"}
    known = {row["method"] for row in page.rows() if row["by"] in ("multi-freq-ldpy", "pure-ldp", "opendp")}
    assert {evidence.case_of(name) for name in known if " L_" not in name and "PEM" not in name} <= set(
        evidence.audits()
    )


def test_the_page_about_the_board_names_every_cell_that_auto_misses() -> None:
    text = (ROOT / "docs" / "board.md").read_text(encoding="utf-8")
    told = page.summary()
    assert f"of {told['auto_cells']} cells:" in text
    for one in told["auto_far"]:
        name = f"- *{one['task']}, {one['cell'].split(', δ')[0]}*:"
        assert name.lower() in text.lower(), name
