"""The command line: what it prints, what it writes, and how it fails."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click import Context, Group
from click.testing import CliRunner, Result
from scipy.special import ndtri

import noisette as nz
from noisette.aggregation import ReportFile, Table, aggregate_files, write_reports
from noisette.cli import _COMMANDS, verbs
from noisette.cli.evidence.mechanisms import STORED, describe

USERS = 3000
RNG = np.random.default_rng(5)
AGES = RNG.normal(45, 15, USERS).clip(0, 100).round(2)
INCOMES = RNG.gamma(2, 20_000, USERS).clip(0, 200_000).round(0)
SCORES = RNG.uniform(-1, 1, USERS).round(6)
COLOURS = RNG.choice(["red", "green", "blue"], USERS, p=[0.5, 0.3, 0.2])
COUNTS = RNG.integers(0, 11, USERS)


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "people.csv"
    rows = zip(AGES, INCOMES, SCORES, -SCORES, COLOURS, COUNTS, strict=True)
    lines = ["age,income,score,mirror,colour,count", *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


def _run(*arguments: Any) -> Result:
    return CliRunner().invoke(verbs, [str(argument) for argument in arguments])


def _json(*arguments: Any) -> Any:
    result = _run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def _fails(code: int, message: str, *arguments: Any) -> None:
    result = _run(*arguments)
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert message in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr


# what there is


@pytest.mark.parametrize("command", [[], *([name] for name in sorted(_COMMANDS))])
def test_help(command: list[str]) -> None:
    result = _run(*command, "--help")
    assert result.exit_code == 0
    assert "Usage: " in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
    found = verbs.get_command(Context(verbs), command[0]) if command else None
    if isinstance(found, Group) and "--json" not in result.stdout:  # its commands print
        for name in found.commands:
            assert "--json" in _run(*command, name, "--help").stdout, name
    else:
        assert not command or "--json" in result.stdout


def test_mechanisms() -> None:
    listed = {entry["name"]: entry for entry in _json("mechanisms")["mechanisms"]}
    assert set(listed) == set(nz.CATALOGUE)
    for name, entry in listed.items():
        assert entry["kind"] == nz.CATALOGUE[name].kind
        assert set(entry["guarantee"]) >= {"epsilon", "delta", "unit", "model", "relation"}
        assert set(entry["published"]) == {"epsilon", "delta", "unit", "source", "holds", "proved"}
    assert listed["laplace"]["published"]["holds"]
    broken = listed["duchi-box"]
    assert not broken["published"]["holds"]
    assert broken["published"]["proved"]["epsilon"] == pytest.approx(np.log(1 + np.e))
    assert broken["guarantee"]["epsilon"] == 1.0
    shown = _run("mechanisms").stdout
    assert all(name in shown for name in nz.CATALOGUE)
    assert "no: 1.31" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_the_stored_list_of_mechanisms_is_the_computed_one() -> None:
    """`noisette mechanisms` reads a file: it says what the mechanisms of this very commit say."""
    stored, computed = json.loads(STORED.read_text(encoding="utf-8")), json.loads(describe())
    assert _close(stored, computed), "Write the list anew: make catalogue."


def test_a_list_that_is_out_of_date_would_be_seen() -> None:
    """The twin: a budget that is wrong in one place, a name that is missing."""
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    other = json.loads(STORED.read_text(encoding="utf-8"))
    other["mechanisms"][3]["guarantee"]["epsilon"] *= 1 + 1e-6
    assert not _close(stored, other)
    assert not _close(stored, stored | {"mechanisms": stored["mechanisms"][:-1]})


def _close(one: Any, other: Any) -> bool:
    """Tell whether two JSON values agree, numbers up to the last digits of another machine's arithmetic."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_close(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_close, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return one == pytest.approx(other, rel=1e-9)
    return bool(one == other)


# from a table to an estimate


@pytest.mark.slow
def test_file_equals_memory(people: Path, tmp_path: Path) -> None:
    output = tmp_path / "r.parquet"
    ranges = ("--range", "age=0,100", "--range", "income=0,200000")
    told = _json(
        "privatize",
        people,
        "-m",
        "hybrid",
        "-e",
        3,
        "--columns",
        "age,income,score",
        *ranges,
        "--seed",
        7,
        "-o",
        output,
    )
    mechanism = nz.Sampled("hybrid", epsilon=3.0, dims=3, domain=nz.Box(3, (0, 0, -1), (100, 200_000, 1)))
    assert told["mechanism"] == json.loads(json.dumps(mechanism.spec()))
    assert told["users"] == USERS
    assert told["columns"] == ["age", "income", "score"]
    assert told["guarantee"]["epsilon"] == 3.0
    assert told["bytes"] == output.stat().st_size
    expected = mechanism.aggregate(mechanism.privatize(np.column_stack([AGES, INCOMES, SCORES]), rng=7)).estimate()
    found = _json("estimate", output)
    low, high = expected.interval(0.95)
    assert [entry["name"] for entry in found["dimensions"]] == ["age", "income", "score"]
    for key, values in (("value", expected.value), ("std_error", expected.std_error), ("low", low), ("high", high)):
        assert [entry[key] for entry in found["dimensions"]] == values.tolist()
    assert found["users"] == USERS
    assert found["mechanism"] == told["mechanism"]
    assert found["guarantee"]["model"] == "local"


INPUTS: dict[str, tuple[list[str], Any]] = {
    "levels": (["--columns", "age", "--range", "0,100"], [AGES.mean()]),
    "interval": (["--columns", "age,score", "--range", "age=0,100"], [AGES.mean(), SCORES.mean()]),
    "grid": (["--columns", "count", "--range", "0,10"], [COUNTS.mean()]),
    "categorical": (["--columns", "colour", "--categories", "red,green,blue"], [0.5, 0.3, 0.2]),
    "box": (["--columns", "age,score", "--range", "age=0,100"], [AGES.mean(), SCORES.mean()]),
    "sphere": (["--columns", "score,mirror"], [SCORES.mean(), -SCORES.mean()]),
    "tensor": (["--columns", "score,mirror"], [SCORES.mean(), -SCORES.mean()]),
}


DIRECTIONS = {name for name, cls in nz.CATALOGUE.items() if cls.kind == "direction"}
SURVEYED = {name for name, cls in nz.CATALOGUE.items() if cls.kind in ("texts", "selection")}  # asked by a survey
CURATORS = {name for name, cls in nz.CATALOGUE.items() if cls.capabilities.model == "central"}


@pytest.mark.parametrize("name", sorted(CURATORS))
def test_what_needs_a_curator_is_not_asked_of_rows(name: str, people: Path, tmp_path: Path) -> None:
    options = ("--delta", 1e-6, "--columns", "score,mirror", "-o", tmp_path / "r.parquet")
    _fails(2, "answers for a curator who holds the whole table", "privatize", people, "-m", name, "-e", 2, *options)


@pytest.mark.parametrize("name", sorted(DIRECTIONS))
def test_what_answers_with_angles_is_not_asked_of_columns(name: str, people: Path, tmp_path: Path) -> None:
    delta = ("--delta", 1e-6) if nz.CATALOGUE[name].example(2.0).guarantee.delta else ()
    options = (*delta, "--columns", "score,mirror", "-o", tmp_path / "r.parquet")
    _fails(2, "answers with a magnitude and angles", "privatize", people, "-m", name, "-e", 2, *options)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", sorted(set(nz.CATALOGUE) - CURATORS - DIRECTIONS - SURVEYED - {"sampled", "sampled-attributes"})
)
def test_every_mechanism_estimates_the_truth(name: str, people: Path, tmp_path: Path) -> None:
    """Twenty-odd mechanisms, at most three dimensions each: one false alarm in a million runs of all."""
    example = nz.CATALOGUE[name].example(2.0)
    options, truth = INPUTS["levels" if hasattr(example, "fitted") else example.domain.kind]
    if example.domain.kind == "categorical":
        truth = [float(np.mean(colour == COLOURS)) for colour in ("red", "green", "blue")]
    delta = ["--delta", "1e-6"] if example.guarantee.delta > 0 else []
    output = tmp_path / "r.parquet"
    _json("privatize", people, "-m", name, "-e", 2, *options, *delta, "--seed", 1, "-o", output)
    found = _json("estimate", output)
    level = float(ndtri(1 - 1e-6 / 2 / 100))
    for entry, true in zip(found["dimensions"], truth, strict=True):
        assert abs(entry["value"] - true) < level * entry["std_error"], entry
    shown = _run("estimate", output).stdout
    assert max(map(len, shown.splitlines())) <= 80
    assert all(entry["name"] in shown for entry in found["dimensions"])


RECORD = ("--columns", "colour,age,count", "--range", "age=0,100", "--categories", "colour=red,green,blue")


def test_records_of_numbers_and_categories(people: Path, tmp_path: Path) -> None:
    """Fifteen quantities of one row, each within what one false alarm in a million allows."""
    output = tmp_path / "r.parquet"
    options = (*RECORD, "--categories", "count=11", "-m", "oue", "-m", "hybrid", "-e", 6, "--seed", 3)
    told = _json("privatize", people, *options, "-o", output)
    domain = nz.Attributes(
        (nz.Categorical(labels=("red", "green", "blue")), nz.Interval(0, 100), 11), names=("colour", "age", "count")
    )
    mechanism = nz.SampledAttributes(("oue", "hybrid", "oue"), epsilon=6.0, domain=domain)
    assert told["mechanism"] == json.loads(json.dumps(mechanism.spec()))
    codes = np.asarray([("red", "green", "blue").index(colour) for colour in COLOURS])
    sent = mechanism.privatize(np.column_stack([codes, AGES, COUNTS]), rng=3)
    expected = mechanism.aggregate(sent).estimate()
    found = _json("estimate", output)
    assert [entry["name"] for entry in found["dimensions"]] == list(domain.quantities)
    assert [entry["value"] for entry in found["dimensions"]] == expected.value.tolist()
    truth = [*(np.mean(codes == k) for k in range(3)), AGES.mean(), *(np.mean(k == COUNTS) for k in range(11))]
    level = float(ndtri(1 - 1e-6 / 2 / len(truth)))
    for entry, true in zip(found["dimensions"], truth, strict=True):
        assert abs(entry["value"] - true) < level * entry["std_error"], entry
    shown = _run("estimate", output, "--enhance", "auto").stdout
    assert shown.startswith("Means and frequencies of 3,000 users, oue and hybrid\n")
    wrong = nz.SampledAttributes(("hybrid", "oue", "oue"), epsilon=6.0, domain=nz.Attributes((nz.Interval(), 3, 11)))
    assert told["mechanism"] != json.loads(json.dumps(wrong.spec()))


def test_records_of_categories_alone(people: Path, tmp_path: Path) -> None:
    output = tmp_path / "r.parquet"
    told = _run(
        *("privatize", people, "--columns", "colour,count", "--categories", "colour=red,green,blue"),
        *("--categories", "count=11", "-m", "grr", "-e", 2, "--report", 1, "-o", output),
    )
    assert "grr on 1 of 2 columns a row" in told.stdout
    assert _run("estimate", output).stdout.startswith("Frequencies of 3,000 users, grr\n")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-m", "oue"], "Column 'age' holds numbers, which oue does not take"),
        (["-m", "oue", "-m", "grr", "-m", "hybrid"], "oue and grr are both for categories"),
        (["-m", "oue", "-m", "privunit"], "privunit does not go with columns of categories and numbers"),
        (["-m", "oue", "-m", "levelled"], "levelled does not go with"),
        (["-m", "oue", "-m", "hybrid", "--range", "colour=0,1"], "'colour' has --categories and a --range"),
        (["-m", "oue", "-m", "hybrid", "--delta", "1e-6"], "oue has a pure guarantee"),
        (["-m", "oue", "-m", "gaussian"], "Expected delta > 0 for 'gaussian'"),
        (["-m", "oue", "-m", "hybrid", "--levels", "0,1", "--budgets", "1"], "Levels are those of one number"),
        (["-m", "oue", "-m", "hybrid", "--categories", "count=5"], "is not among the categories 0, 1, 2, 3, 4"),
        (["-m", "oue", "-m", "hybrid", "--categories", "size=2,3"], "names none of the columns colour, age, count"),
    ],
)
def test_records_that_cannot_be_built(options: list[str], message: str, people: Path, tmp_path: Path) -> None:
    _fails(2, message, "privatize", people, *RECORD, *options, "-e", 2, "-o", tmp_path / "r.parquet")


def test_two_mechanisms_are_for_two_kinds(people: Path, tmp_path: Path) -> None:
    common = ("privatize", people, "-e", 2, "-o", tmp_path / "r.parquet")
    _fails(2, "Expected one --mechanism", *common, "-m", "hybrid", "-m", "duchi", "--columns", "age,score")
    _fails(2, "give --categories COLUMN=A,B,... for each", *common, "-m", "sampled-attributes", "--columns", "age")


def test_tensors_share_one_range(people: Path, tmp_path: Path) -> None:
    common = ("privatize", people, "-m", "retain-or-noise", "-e", 1, "-o", tmp_path / "r.parquet")
    _fails(2, "give one range LOW,HIGH for all of them", *common, "--columns", "age,score", "--range", "age=0,100")
    _fails(2, "outside the range [0, 50]", *common, "--columns", "age", "--range", "0,50")


@pytest.mark.slow
def test_parquet_shards_and_a_wider_level(people: Path, tmp_path: Path) -> None:
    table = pa.table({"age": AGES, "score": SCORES})
    outputs = []
    for shard, rows in enumerate((slice(0, 1000), slice(1000, 3000))):
        pq.write_table(table.slice(rows.start, rows.stop - rows.start), tmp_path / f"{shard}.parquet")
        outputs.append(tmp_path / f"r{shard}.parquet")
        _json(
            "privatize",
            tmp_path / f"{shard}.parquet",
            "-m",
            "duchi",
            "-e",
            2,
            "--range",
            "age=0,100",
            "-o",
            outputs[-1],
        )
    found = _json("estimate", *outputs)
    assert found == _json("estimate", *reversed(outputs))
    assert found["users"] == USERS
    wider = _json("estimate", *outputs, "--level", 0.99)
    ratio = ndtri(0.995) / ndtri(0.975)
    for narrow, wide in zip(found["dimensions"], wider["dimensions"], strict=True):
        assert wide["high"] - wide["low"] == pytest.approx(ratio * (narrow["high"] - narrow["low"]), rel=0.01)


def test_noise_is_fresh_unless_seeded(people: Path, tmp_path: Path) -> None:
    def report(*options: Any) -> tuple[bytes, str]:
        result = _run(
            "privatize", people, "-m", "laplace", "-e", 1, "--columns", "score", "-o", tmp_path / "r", *options
        )
        assert result.exit_code == 0
        return next(ReportFile.open(tmp_path / "r").batches()).values.tobytes(), result.stderr

    assert report("--seed", 3) == report("--seed", 3)
    assert "tests only" in report("--seed", 3)[1]
    assert report()[0] != report()[0]
    assert report()[1] == ""


def test_enhance(people: Path, tmp_path: Path) -> None:
    output = tmp_path / "r.parquet"
    _json("privatize", people, "-m", "laplace", "-e", 0.01, "--columns", "score", "-o", output, "--seed", 2)
    raw, boxed = (_json("estimate", output, *options) for options in ([], ["--enhance", "box"]))
    assert abs(raw["dimensions"][0]["value"]) > 1, "the noise should lead outside for this test"
    assert abs(boxed["dimensions"][0]["value"]) == 1
    assert (raw["enhance"], boxed["enhance"]) == ("none", "box")
    assert "Enhanced by auto" in _run("estimate", output, "--enhance", "auto").stdout
    _fails(2, "Unknown method 'magic'", "estimate", output, "--enhance", "magic")


@pytest.mark.long
def test_distribution(tmp_path: Path) -> None:
    """The means of the reconstructed distributions lie near the true ones, and all mass is somewhere."""
    pq.write_table(pa.table({"low": np.full(20_000, 20.0), "high": np.full(20_000, 80.0)}), tmp_path / "p.parquet")
    output = tmp_path / "r.parquet"
    options = ("--report", 1, "--range", "0,100", "--seed", 1)
    _json("privatize", tmp_path / "p.parquet", "-m", "square-wave", "-e", 4, *options, "-o", output)
    found = _json("estimate", output, "--distribution")
    assert "distribution" not in found
    for entry, true in zip(found["dimensions"], (20, 80), strict=True):
        edges, shares = (np.asarray(entry["distribution"][key]) for key in ("edges", "probabilities"))
        assert edges.size == shares.size + 1
        assert (edges[0], edges[-1]) == (0, 100)
        assert shares.sum() == pytest.approx(1)
        assert shares @ (edges[1:] + edges[:-1]) / 2 == pytest.approx(true, abs=3)
    _json(
        "privatize",
        tmp_path / "p.parquet",
        "-m",
        "discrete-laplace",
        "-e",
        4,
        "--columns",
        "low",
        "--range",
        "0,100",
        "-o",
        output,
    )
    single = _json("estimate", output, "--distribution")
    assert single["distribution"] == single["dimensions"][0]["distribution"]
    assert single["distribution"]["edges"][:2] == [-0.5, 0.5]
    assert "█" in _run("estimate", output, "--distribution").stdout


def test_distribution_needs_single_numbers(people: Path, tmp_path: Path) -> None:
    output = tmp_path / "r.parquet"
    _json("privatize", people, "-m", "oue", "-e", 1, *INPUTS["categorical"][0], "-o", output)
    _fails(2, "enhance them by simplex", "estimate", output, "--distribution")
    _json("privatize", people, "-m", "duchi-box", "-e", 1, *INPUTS["box"][0], "-o", output)
    _fails(2, "mixes all dimensions", "estimate", output, "--distribution")


def test_dimensions_without_reports_are_null(tmp_path: Path) -> None:
    mechanism = nz.Sampled("duchi", epsilon=1.0, dims=100, report=1)
    write_reports(tmp_path / "r.parquet", mechanism, [mechanism.privatize(np.zeros((2, 100)), rng=1)])
    entries = _json("estimate", tmp_path / "r.parquet")["dimensions"]
    empty = [entry for entry in entries if entry["reports"] == 0]
    assert len(empty) >= 98
    assert all(entry["value"] is None and entry["std_error"] is None and entry["low"] is None for entry in empty)
    assert [entry["name"] for entry in entries[:3]] == ["0", "1", "2"]
    assert "and 50 more" in _run("estimate", tmp_path / "r.parquet").stdout


def test_categories_of_all_kinds(people: Path, tmp_path: Path) -> None:
    (tmp_path / "colours.txt").write_text("red\ngreen\n\nblue\nother, unknown\n")
    output = tmp_path / "r.parquet"
    common = ("privatize", people, "-m", "grr", "-e", 2, "-o", output, "--columns")
    told = _json(*common, "colour", "--categories", f"@{tmp_path / 'colours.txt'}")
    assert told["mechanism"]["domain"]["labels"] == ["red", "green", "blue", "other, unknown"]
    told = _json(*common, "count", "--categories", 11)
    assert told["mechanism"]["domain"] == {"kind": "categorical", "size": 11, "labels": None}
    assert [entry["name"] for entry in _json("estimate", output)["dimensions"]] == list(map(str, range(11)))
    _fails(2, "row 1, column 'colour'", *common, "colour", "--categories", "red,pink")
    _fails(2, "is not among the categories 0, 1, 2", *common, "count", "--categories", 3)
    _fails(2, "Expected at least two categories", *common, "colour", "--categories", "red")
    _fails(2, "Expected distinct labels", *common, "colour", "--categories", "red,red")
    _fails(2, "a public list of categories", *common, "colour")
    _fails(2, "names none of the columns colour, count", *common, "colour,count", "--categories", 3)


def test_clip_and_no_header(tmp_path: Path) -> None:
    path = tmp_path / "raw.csv"
    path.write_text("0.5,7\n-9,0.25\n")
    output = tmp_path / "r.parquet"
    common = ("privatize", path, "--no-header", "-m", "duchi", "-e", 1, "-o", output)
    _fails(2, "row 1, column 'f1': 7 is outside the default range [-1, 1]", *common)
    assert not output.exists()
    assert _json(*common, "--clip")["columns"] == ["f0", "f1"]
    _fails(2, "starts with numbers", "privatize", path, "-m", "duchi", "-e", 1, "-o", output)
    grid = (*common[:3], "-m", "discrete-laplace", "-e", 1, "-o", output, "--columns", "f0", "--range", "-10,10")
    _fails(2, "0.5 is not a whole number", *grid)
    assert _json(*grid, "--clip")["users"] == 2


def test_names_with_brackets_are_shown_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "[red].csv"
    path.write_text("[bold]age,x[/]\n0.5,0.5\n0.1,0.2\n")
    output = tmp_path / "[dim]r.parquet"
    told = _run("privatize", path, "-m", "duchi", "-e", 1, "-o", output)
    assert told.exit_code == 0, told.output
    assert "[dim]r.parquet" in "".join(told.stdout.split())
    shown = _run("estimate", output)
    assert shown.exit_code == 0, shown.output
    assert "[bold]age" in shown.stdout
    assert "x[/]" in shown.stdout


# how it fails


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-m", "hybird", "-e", "1"], "Unknown mechanism 'hybird'. Did you mean hybrid?"),
        (["-m", "zzz", "-e", "1"], "Expected one of laplace, staircase"),
        (["-m", "duchi", "-e", "0"], "Expected epsilon=0.0 > 0"),
        (["-m", "duchi", "-e", "-1"], "Expected epsilon=-1.0 > 0"),
        (["-m", "duchi", "-e", "nan"], "Expected epsilon=nan > 0"),
        (["-m", "duchi", "-e", "many"], "'many' is not a valid float"),
        (["-m", "duchi"], "Missing option '--epsilon'"),
        (["-m", "duchi", "-e", "1", "--columns", "aeg"], "no column 'aeg'. Did you mean 'age'?"),
        (["-m", "duchi", "-e", "1", "--columns", "colour"], "column 'colour': "),
        (["-m", "duchi", "-e", "1", "--columns", "age"], "is outside the default range [-1, 1]. Give the public range"),
        (["-m", "duchi", "-e", "1", "--columns", "age", "--range", "age=90,95"], "is outside the range [90, 95]"),
        (["-m", "duchi", "-e", "1", "--columns", "age", "--range", "auto"], "read off the data tells something"),
        (["-m", "duchi", "-e", "1", "--columns", "age", "--range", "5,1"], "LOW < HIGH, got --range '5,1'"),
        (["-m", "duchi", "-e", "1", "--columns", "age", "--range", "size=0,1"], "a column that is not used"),
        (["-m", "duchi", "-e", "1", "--columns", "score", "--report", "2"], "Expected 1 <= report <= 1"),
        (["-m", "duchi", "-e", "1", "--columns", "score", "--delta", "0.1"], "has a pure guarantee"),
        (["-m", "duchi", "-e", "1", "--columns", "score", "--categories", "a,b"], "takes numbers"),
        (["-m", "gaussian", "-e", "1", "--columns", "score"], "give a delta"),
        (["-m", "gaussian", "-e", "1", "--columns", "score", "--delta", "2"], "Expected delta=2.0 in [0, 1)"),
        (["-m", "grr", "-e", "1", "--columns", "colour", "--categories", "2", "--range", "0,1"], "leave --range out"),
        (["-m", "oue", "-e", "1", "--columns", "colour", "--categories", "2", "--report", "1"], "leave --report 1 out"),
        (["-m", "privunit", "-e", "1", "--columns", "age", "--range", "0,100"], "one range -R,R for all entries"),
        (["-m", "discrete-laplace", "-e", "1", "--columns", "count"], "give --range LOW,HIGH"),
        (["-m", "sampled", "-e", "1", "--columns", "score"], "is built from a mechanism for one value: name that one"),
        (["-m", "duchi", "-e", "1", "--columns", "score", "--seed", "-1"], "Expected rng=-1 >= 0"),
    ],
)
def test_bad_options(options: list[str], message: str, people: Path, tmp_path: Path) -> None:
    _fails(2, message, "privatize", people, *options, "-o", tmp_path / "r.parquet")
    assert list(tmp_path.iterdir()) == []


def test_bad_files(people: Path, tmp_path: Path) -> None:
    output = tmp_path / "r.parquet"
    common = ("-m", "duchi", "-e", 1, "--columns", "score")
    _fails(2, "There is no file", "privatize", tmp_path / "missing.csv", *common, "-o", output)
    _fails(2, "does not exist. Create it first", "privatize", people, *common, "-o", tmp_path / "no" / "r.parquet")
    _fails(2, "is a folder", "privatize", people, *common, "-o", tmp_path)
    before = people.read_bytes()
    _fails(2, "it would replace the raw data", "privatize", people, *common, "-o", people)
    assert people.read_bytes() == before
    (tmp_path / "nan.csv").write_text("score\n0.5\nnan\n")
    _fails(2, "row 2, column 'score'", "privatize", tmp_path / "nan.csv", *common, "-o", output)
    assert not output.exists()
    _fails(2, "There is no file", "estimate", tmp_path / "missing.parquet")
    _fails(2, "people.csv is damaged, truncated or not Parquet", "estimate", people)
    _fails(2, "Missing argument", "estimate")
    _json("privatize", people, *common, "-o", output)
    _fails(2, "Expected --level 1.5 between 0 and 1", "estimate", output, "--level", 1.5)
    _fails(2, "is given twice", "estimate", output, output)
    other = tmp_path / "other.parquet"
    _json("privatize", people, "-m", "duchi", "-e", 2, "--columns", "score", "-o", other)
    _fails(2, "differ in mechanism: epsilon 2.0 and 1.0", "estimate", output, other)
    output.write_bytes(output.read_bytes()[:-10])
    _fails(2, "r.parquet is damaged", "estimate", output)


def test_an_existing_file_is_replaced_whole_or_not_at_all(people: Path, tmp_path: Path) -> None:
    output = tmp_path / "r.parquet"
    common = ("privatize", people, "-m", "duchi", "-o", output, "-e")
    _json(*common, 1, "--columns", "score")
    before = output.read_bytes()
    _fails(2, "is outside the default range", *common, 2, "--columns", "score,age")
    assert output.read_bytes() == before
    _json(*common, 2, "--columns", "score")
    assert ReportFile.open(output).mechanism.epsilon == 2.0
    assert list(tmp_path.iterdir()) == [output]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (RuntimeError("boom"), "RuntimeError: boom. Set NOISETTE_DEBUG=1"),
        (OSError(28, "No space left"), "No space left"),
    ],
)
def test_a_failure_of_ours_is_exit_code_1(
    error: Exception, message: str, people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(Table, "numbers", fail)
    arguments = ("privatize", people, "-m", "duchi", "-e", 1, "--columns", "score", "-o", tmp_path / "r.parquet")
    _fails(1, message, *arguments)
    monkeypatch.setenv("NOISETTE_DEBUG", "1")
    assert _run(*arguments).exception is error


# the real program


def _program(*arguments: Any) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", "from noisette.cli import main; main()", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.long
def test_the_program(people: Path, tmp_path: Path) -> None:
    output = tmp_path / "r.parquet"
    good = _program("privatize", people, "-m", "hybrid", "-e", 2, "--columns", "score", "-o", output)
    assert (good.returncode, good.stderr) == (0, "")
    assert "ε = 2 per record, local model, relation any-pair" in good.stdout
    bad = _program("estimate", people)
    assert (bad.returncode, bad.stdout) == (2, "")
    assert bad.stderr.startswith("Error: ")
    assert "Traceback" not in bad.stderr
    assert _program("nonsense").returncode == 2
    assert json.loads(_program("estimate", output, "--json").stdout)["users"] == USERS


@pytest.mark.long
@pytest.mark.parametrize("kill", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_program_leaves_nothing(kill: signal.Signals, tmp_path: Path) -> None:
    pq.write_table(pa.table({f"c{i}": np.zeros(400_000) for i in range(30)}), tmp_path / "large.parquet")
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "r.parquet").write_text("what was there")
    options = ["-m", "gaussian", "-e", "1", "--delta", "1e-6", "--report", "30", "-o", str(folder / "r.parquet")]
    command = [sys.executable, "-c", "from noisette.cli import main; main()", "privatize"]
    process = subprocess.Popen(
        [*command, str(tmp_path / "large.parquet"), *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job in the background ignores it
    )
    deadline = time.monotonic() + 300
    while not _is_writing(process.pid, folder):
        assert process.poll() is None, "it should still be at work"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(kill)
    assert process.wait(600) != 0
    assert [path.name for path in folder.iterdir()] == ["r.parquet"]
    assert (folder / "r.parquet").read_text() == "what was there"


def _is_writing(process: int, folder: Path) -> bool:
    """Tell whether a process has an open file in a folder, and something in it."""
    for link in Path(f"/proc/{process}/fd").iterdir():
        try:
            if os.readlink(link).startswith(str(folder)) and link.stat().st_size > 0:
                return True
        except FileNotFoundError:
            pass  # closed meanwhile
    return False


# plans


@pytest.mark.slow
def test_plan() -> None:
    made = _json("plan", "--users", 10_000, "--epsilon", 1)
    assert set(made) >= {"candidates", "best", "break_even"}
    errors = [candidate["mse"] for candidate in made["candidates"]]
    assert errors == sorted(errors)
    assert made["best"] == made["candidates"][0]["mechanism"]
    assert all(set(c) >= {"mechanism", "mse", "bias", "std"} for c in made["candidates"])
    assert all(set(point) == {"a", "b", "population"} for point in made["break_even"])
    duchi = next(c for c in made["candidates"] if c["mechanism"] == "duchi")
    assert duchi["mse"] == pytest.approx(4.6826944 / 10_000, rel=1e-6)  # Duan 2024, chapter 4: worst case at e = 1
    shown = _run("plan", "--users", 10_000, "--epsilon", 1).stdout
    assert "best" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_plan_of_the_case_study() -> None:
    """Duan 2024, section 4.1: both on [-1, 1], e = 1, values 0.1 to 1: break-even at 30.38 users."""
    values = ",".join(f"{i / 10:g}" for i in range(1, 11))
    options = ("--users", 10_000, "-e", 1, "--values", values, "-m", "piecewise", "-m", "square-wave")
    made = _json("plan", *options)
    found = {candidate["mechanism"]: candidate for candidate in made["candidates"]}
    assert found["piecewise"]["mse"] == pytest.approx(4.275579e-4, rel=1e-6)
    assert found["square-wave"]["mse"] == pytest.approx(0.1209322, rel=1e-6)
    assert made["break_even"] == [{"a": "square-wave", "b": "piecewise", "population": pytest.approx(30.38, abs=0.005)}]


@pytest.mark.slow
def test_plan_from_data(people: Path) -> None:
    table = _json("plan", "--users", 1000, "-e", 4, "--data", people, "--columns", "score,mirror")
    assert table["dims"] == 2
    column = _json("plan", "--users", 1000, "-e", 4, "--data", people, "--columns", "age", "--range", "0,100")
    assert column["dims"] == 1
    categories = ("--data", people, "--columns", "colour", "--categories", "red,green,blue")
    assert _json("plan", "--users", 1000, "-e", 4, *categories)["best"] in nz.CATALOGUE
    assert (
        _json("plan", "--users", 1000, "-e", 4, "--dims", 10, "--report", 2, "--distribution", "beta:2,5")["dims"] == 10
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--users", "0", "-e", "1"], "users=0"),
        (["--users", "10", "-e", "-1"], "Expected epsilon=-1.0 > 0"),
        (["--users", "10", "-e", "1", "-m", "duchy"], "Did you mean duchi"),
        (["--users", "10", "-e", "1", "-m", "nothere"], ", ".join(list(nz.CATALOGUE)[-2:])),  # all are listed
        (["--users", "10", "-e", "1", "--values", "1,x"], "Expected numbers separated by commas"),
        (["--users", "10", "-e", "1", "--values", "3"], "Expected values in"),
        (["--users", "10", "-e", "1", "--values", "0.3", "--distribution", "uniform"], "Give one of --values"),
        (["--users", "10", "-e", "1", "--distribution", "cauchy"], "Unknown distribution 'cauchy'"),
    ],
)
def test_bad_plans(options: list[str], message: str) -> None:
    _fails(2, message, "plan", *options)


def test_a_wrong_estimate_would_be_seen(people: Path, tmp_path: Path) -> None:
    """The twin of the round trips: reports of other values give another aggregate."""
    output = tmp_path / "r.parquet"
    common = ("privatize", people, "-m", "duchi", "-e", 2, "--seed", 7, "-o", output, "--columns")
    _json(*common, "score")
    first = aggregate_files([output])
    _json(*common, "mirror")
    second = aggregate_files([output])
    assert first.total.tolist() != second.total.tolist()
