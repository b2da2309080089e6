"""The demonstration, small: what it claims is what it found, its report loads nothing, it leaves nothing running."""

import json
import os
import re
import signal
import subprocess
import sys
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from click.testing import CliRunner
from playwright.sync_api import Browser
from scipy.special import bdtr, ndtri

from noisette.cli import verbs
from noisette.demo import population
from noisette.demo.devices import Reported
from noisette.demo.outcome import LEVEL, Outcome, chosen, plans
from noisette.demo.page import page
from noisette.survey.campaigns import Campaign

pytestmark = pytest.mark.slow

USERS = 2000
COUNT, SPORTS = len(population.SIGNALS), len(population.SPORTS)
NOISETTE = [sys.executable, "-c", "from noisette.cli import main; main()"]


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo") / "report.html"


@pytest.fixture(scope="module")
def found(output: Path) -> Any:
    result = CliRunner().invoke(verbs, ["demo", "--users", str(USERS), "--seed", "3", "-o", str(output), "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.long
def test_every_device_counts_once_and_the_collector_stops(found: Any) -> None:
    assert found["accepted"] == found["users"] == USERS
    assert found["stopped_cleanly"]
    assert found["guarantee"]["epsilon"] == pytest.approx(4.0)
    assert (found["guarantee"]["unit"], found["guarantee"]["model"]) == ("record", "local")


@pytest.fixture(scope="module")
def campaign() -> Campaign:
    return Campaign.from_dict(population.campaign(USERS, 4.0))


@pytest.mark.long
def test_it_uses_what_the_planner_takes(found: Any, campaign: Campaign) -> None:
    own = {"numbers": chosen(campaign, "stress"), "sport": chosen(campaign, "sport")}
    assert found["mechanisms"] == own
    number, sport = plans(campaign)
    assert {candidate.mechanism for candidate in number.candidates} >= {own["numbers"], "laplace"}
    assert {candidate.mechanism for candidate in sport.candidates} >= {own["sport"], "oue"}


def test_estimates_are_those_of_the_truth(found: Any) -> None:
    """Of twenty quantities none is farther from the truth than a run in a million allows; the twin's all are."""
    rows = found["dimensions"]
    assert len(rows) == COUNT + SPORTS
    far = -ndtri(1e-6 / 2 / len(rows))
    away = [abs(row["value"] - row["truth"]) / row["std_error"] for row in rows]
    assert max(away) < far
    turned = [abs(row["value"] - other["truth"]) / row["std_error"] for row, other in pairwise(rows)]
    assert max(turned) > far
    truth = population.simulate(USERS, np.random.default_rng(3)).truth
    assert [row["truth"] for row in rows] == pytest.approx(truth.tolist())


def test_intervals_cover(found: Any) -> None:
    """Intervals that hold the truth with their stated probability would be fewer in one run of a million."""
    inside = [row["low"] <= row["truth"] <= row["high"] for row in found["dimensions"]]
    assert sum(inside) == found["covered"]
    assert bdtr(sum(inside), len(inside), LEVEL) > 1e-6
    assert bdtr(round(0.5 * len(inside)), len(inside), LEVEL) < 1e-6, "the twin: intervals that are far too short"


def test_population_stays_in_its_public_ranges() -> None:
    devices = population.simulate(1000, np.random.default_rng(1))
    assert devices.numbers.shape == (1000, COUNT)
    for place, one in enumerate(population.SIGNALS):
        assert one.low <= devices.numbers[:, place].min() <= devices.numbers[:, place].max() <= one.high
    assert sum(population.SPORTS.values()) == pytest.approx(1)
    assert set(devices.sports.tolist()) == set(range(SPORTS))
    assert len(devices.truth) == COUNT + SPORTS


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
    assert output.stat().st_size < 1_500_000
    assert "<script" not in text, "nothing is to be run either"
    assert "$" not in parsed.text, "a placeholder of the template was left"
    for one in population.SIGNALS:
        assert one.name in parsed.text
    for words in ("2,000", "ε = 4", "is not hidden", "hold the truth"):
        assert words in parsed.text


def test_a_page_that_loads_something_would_be_seen() -> None:
    """The twin."""
    assert _parsed('<script src="https://cdn.example/x.js"></script>').loads == ["https://cdn.example/x.js"]
    assert _parsed('<link rel="stylesheet" href="x.css">').loads == ["x.css"]
    assert _parsed("<style>@import 'x.css';</style>").loads == ["@import 'x.css'"]


def test_what_was_planned_and_what_is_seen_are_one_quantity(found: Any, output: Path) -> None:
    """Half of a 95 % interval of a mean, in % of its range: the two agree, and both are printed."""
    planned, seen = found["planned_half_width"], found["seen_half_width"]
    assert planned == pytest.approx(seen, rel=0.1)
    errors = np.asarray([row["std_error"] for row in found["dimensions"][:COUNT]])
    widths = np.asarray([one.width for one in population.SIGNALS])
    assert seen == pytest.approx(1.96 * 100 * np.sqrt(np.mean((errors / widths) ** 2)), rel=1e-3)
    worst = np.asarray([row["predicted_std_error"] for row in found["dimensions"][:COUNT]])
    assert 196 * np.sqrt(np.mean((worst / widths) ** 2)) > 1.5 * seen, (
        "the twin: the plan for the worst people is another"
    )
    text = output.read_text(encoding="utf-8")
    assert f"± {planned:.2f} %" in text
    assert f"± {seen:.2f} %" in text


@pytest.mark.parametrize(("tells", "drawn"), [(True, 2), (False, 1)])
def test_axes_are_labelled(campaign: Campaign, tells: bool, drawn: int) -> None:
    """Where reports tell no distribution the page says so instead of drawing one."""
    text = page(_outcome(campaign, tells=tells), plans(campaign))
    assert ("they tell the mean and no distribution" in text) == (not tells)
    assert text.count('class="chart"') == drawn
    assert "devices that have reported</text>" in text
    assert ("screen time, min</text>" in text) == tells


@pytest.mark.long
def test_the_report_is_readable_on_a_phone(output: Path, found: Any, browser: Browser) -> None:
    shown = browser.new_context(viewport={"width": 390, "height": 800}).new_page()
    shown.goto(output.as_uri())
    assert shown.evaluate("document.documentElement.scrollWidth") <= 390
    sizes = shown.evaluate(
        """[...document.querySelectorAll(".chart text")].map(one => one.getBoundingClientRect().height)"""
    )
    assert min(sizes) >= 10
    shown.context.close()


def _outcome(campaign: Campaign, *, tells: bool) -> Outcome:
    """Return an outcome whose estimates are the truth."""
    devices = population.simulate(1000, np.random.default_rng(1))
    fields = ("value", "low", "high", "std_error", "predicted_std_error")
    rows = [
        {"name": name} | dict(zip(fields, (truth, truth - 1, truth + 1, 0.5, 0.6), strict=True))
        for name, truth in zip(campaign.quantities, devices.truth, strict=True)
    ]
    shape = {"edges": np.linspace(0, 360, 5), "probabilities": np.full(4, 0.25)} if tells else None
    told = {"users": 1000, "enhance": "none", "dimensions": rows}
    told |= {"attributes": [{"name": "screen time", "distribution": shape}]}
    return Outcome(campaign, devices, 1, Reported(1000, [told], 1.0), told, told, clean=True)


@pytest.mark.long
def test_story_fits_a_terminal_and_keep_keeps(tmp_path: Path) -> None:
    """With --keep the dashboard is there until Ctrl-C, and not after it."""
    command = [*NOISETTE, "demo", "--users", "1000", "-e", "1", "--keep", "-o", "r.html"]
    environment = os.environ | {"PYTHONUNBUFFERED": "1", "COLUMNS": "80"}
    lines: list[str] = []
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=environment,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job in the background ignores it
    ) as running:
        try:
            url = ""
            for line in running.stdout or ():
                lines.append(line.rstrip("\n"))
                if match := re.search(r"stays up at (http://\S+/dashboard)", line):
                    url = match[1]
                    break
            assert httpx.get(url, timeout=300).status_code == 200
        finally:
            running.send_signal(signal.SIGINT)
            lines += (running.stdout.read() if running.stdout else "").splitlines()
    assert running.returncode == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(url)
    story = "\n".join(lines)
    assert max(len(line) for line in lines if "r.html" not in line and "http" not in line) <= 80
    for words in (
        "Plan",
        "Collect",
        "/c/wearables",
        "/dashboard#wearables?key=",
        "Estimate",
        "truth",
        "guaranteed",
        "has stopped",
    ):
        assert words in story
    assert "The collector counts 1,000." in story
    assert (tmp_path / "r.html").stat().st_size > 10_000


def test_bad_options(tmp_path: Path) -> None:
    for options, message in (
        (["--users", "10"], "10 is not in the range"),
        (["-o", str(tmp_path / "no" / "r.html")], "does not exist. Create it first"),
    ):
        result = CliRunner().invoke(verbs, ["demo", *options])
        assert result.exit_code == 2
        assert message in result.stderr
    result = CliRunner().invoke(verbs, ["demo", "-e", "-1", "-o", str(tmp_path / "r.html")])
    assert result.exit_code == 2
    assert "Expected epsilon=-1.0 > 0" in result.stderr
