"""The demonstration, small: what it claims is what it found, and its report loads nothing."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.special import bdtr, chdtri

import noisette as nz
from noisette.cli import verbs
from noisette.demo import charts, population
from noisette.demo.collection import LEVEL, SHARDS, collect, covered
from noisette.demo.page import page

USERS = 20_000


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo") / "report.html"


@pytest.fixture(scope="module")
def found(output: Path) -> Any:
    result = CliRunner().invoke(verbs, ["demo", "--users", str(USERS), "--seed", "3", "-o", str(output), "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_it_uses_the_best_mechanism_of_the_plan(found: Any) -> None:
    for part in ("numbers", "sport"):
        plan, used = found[part]["plan"], found[part]["mechanism"]
        assert used == next(c for c in plan["candidates"] if c["unbiased"])["spec"]
        assert plan["best_unbiased"] in (used["mechanism"], used.get("inner"))
    assert len(found["numbers"]["plan"]["candidates"]) >= 10


def test_budgets_add_up(found: Any) -> None:
    parts = found["guarantee"]["parts"]
    assert found["guarantee"]["epsilon"] == parts["numbers"]["epsilon"] + parts["sport"]["epsilon"] == 4.0
    assert (found["guarantee"]["unit"], found["guarantee"]["model"]) == ("record", "local")
    for part in ("numbers", "sport"):
        mechanism = nz.from_spec(found[part]["mechanism"])
        assert mechanism.guarantee.epsilon == parts[part]["epsilon"]


def test_shards_merge_to_the_same_bits(found: Any) -> None:
    assert found["numbers"]["same_bits_in_any_order"]
    assert found["sport"]["same_bits_in_any_order"]


def test_estimates_are_as_good_as_predicted(found: Any) -> None:
    """Squared errors over their prediction add up to a chi-square of 64 degrees: one false alarm in a million."""
    part = found["numbers"]
    total = 64 * (part["measured_rmse"] / part["predicted_rmse"]) ** 2
    assert chdtri(64, 1 - 5e-7) < total < chdtri(64, 5e-7)
    for name in ("numbers", "sport"):
        assert found[name]["enhanced_rmse"] < 1.5 * found[name]["measured_rmse"]


def test_intervals_cover(found: Any) -> None:
    """Intervals that hold the truth with their stated probability would be fewer in one run of a million.

    The twelve frequencies of a shard hang together, so that twelve of their intervals count as three.
    """
    part = found["sport"]
    assert part["shard_intervals"] == SHARDS * len(population.SPORTS)
    hits = round(part["shard_coverage"] * part["shard_intervals"])
    assert bdtr(hits // 4, part["shard_intervals"] // 4, LEVEL) > 1e-6
    inside = [entry["low"] <= entry["truth"] <= entry["high"] for entry in found["numbers"]["dimensions"]]
    assert np.mean(inside) == pytest.approx(found["numbers"]["coverage"])
    assert bdtr(sum(inside), 64, LEVEL) > 1e-6
    assert bdtr(round(0.7 * 64), 64, LEVEL) < 1e-6, "the twin: intervals too short by half would be seen"


def test_covered_counts_what_it_says() -> None:
    """The twin: an estimate far from the truth is not covered."""
    estimate = nz.Estimate(np.asarray([0.0, 0.0]), np.asarray([1.0, 1.0]), np.asarray([9, 9]))
    assert covered(estimate, np.asarray([1.9, 2.0])).tolist() == [True, False]
    assert LEVEL == 0.95


def test_population_stays_in_its_public_ranges() -> None:
    shard = population.simulate(1000, np.random.default_rng(1))
    assert shard.numbers.shape == (1000, 64)
    assert np.abs(shard.numbers).max() <= 1
    assert len({attribute.name for attribute in population.ATTRIBUTES}) == 64
    assert sum(population.SPORTS.values()) == pytest.approx(1)
    assert set(shard.sports.tolist()) == set(range(12))


class _Requests(HTMLParser):
    """Collects whatever a browser would load for a page, and the text outside scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.inside: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.inside.append(tag)
        named = dict(attributes)
        self.loads += [str(named[key]) for key in ("src", "srcset", "data", "poster") if key in named]
        if tag == "link":
            self.loads.append(str(named.get("href")))

    def handle_endtag(self, tag: str) -> None:
        while self.inside and self.inside.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self.inside):
            self.text += data
        elif "style" in self.inside:
            self.loads += re.findall(r"@import[^;]*|url\([^)]*\)", data)


def _parsed(text: str) -> _Requests:
    parser = _Requests()
    parser.feed(text)
    return parser


def test_report_is_whole_and_loads_nothing(found: Any, output: Path) -> None:
    assert found["report"] == str(output)
    text = output.read_text(encoding="utf-8")
    assert text.rstrip().endswith("</html>")
    parsed = _parsed(text)
    assert parsed.loads == []
    assert text.count("Plotly.newPlot(") == 7
    assert "plotly.js v" in text
    assert "$" not in parsed.text, "a placeholder of the template was left"
    for attribute in population.ATTRIBUTES:
        assert attribute.name in parsed.text
    for words in ("budgets add up", "20,000", "ε = 4", "is not hidden"):
        assert words in parsed.text


def test_a_page_that_loads_something_would_be_seen() -> None:
    """The twin."""
    assert _parsed('<script src="https://cdn.example/x.js"></script>').loads == ["https://cdn.example/x.js"]
    assert _parsed('<link rel="stylesheet" href="x.css">').loads == ["x.css"]
    assert _parsed("<style>@import 'x.css';</style>").loads == ["@import 'x.css'"]


def test_axes_are_labelled(monkeypatch: pytest.MonkeyPatch) -> None:
    figures: list[Any] = []
    monkeypatch.setattr(charts, "_html", lambda figure, **_: figures.append(figure) or "")
    page(collect(2000, 1.0, 3))
    assert len(figures) == 7
    for figure in figures:
        axes = [*figure.select_xaxes(), *figure.select_yaxes()]
        names = {axis.title.text for axis in axes if axis.type != "category"}
        assert all(axis.title.text for axis in figure.select_xaxes())
        assert len(axes) == 4 or all(names), "the two plans have mechanisms on their other axis, which name themselves"


def test_story_fits_a_terminal(tmp_path: Path) -> None:
    result = CliRunner().invoke(verbs, ["demo", "--users", "2000", "-e", "1", "-o", str(tmp_path / "r.html")])
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    place = next(line for line in lines if "r.html" in line)
    assert str(tmp_path / "r.html") in place
    assert max(len(line) for line in lines if line is not place) <= 80
    for words in ("Plan", "Collect", "Estimate", "Enhance", "guaranteed", "budgets add up", "same bits"):
        assert words in result.stdout


def test_bad_options(tmp_path: Path) -> None:
    for options, message in (
        (["--users", "10"], "10 is not in the range"),
        (["-e", "-1"], "Expected epsilon=-0.75 > 0"),
        (["-o", str(tmp_path / "no" / "r.html")], "does not exist. Create it first"),
    ):
        result = CliRunner().invoke(verbs, ["demo", *options])
        assert result.exit_code == 2
        assert message in result.stderr
