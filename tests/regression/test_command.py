"""`noisette train` on tables: what it learns, what it records, and how it fails."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from noisette.cli import verbs
from noisette.cli.learning.train import MODELS

USERS = 20_000
RNG = np.random.default_rng(0)
AGE, SEX, CODE = RNG.uniform(18, 90, USERS).round(1), RNG.choice(["f", "m"], USERS), RNG.choice([1, 2, 9], USERS)
INCOME = np.clip(20_000 + 600 * AGE + 9000 * (SEX == "m") - 9000 * (CODE == 9) + RNG.normal(0, 5000, USERS), 0, 1.5e5)
RICH = np.where(INCOME > 55_000, "yes", "no")
COLUMNS = {"age": AGE, "sex": SEX, "code": CODE, "income": INCOME.round(), "rich": RICH}
DECLARED = ["--range", "age=0,100", "--categories", "sex=f,m", "--categories", "code=1,2,9"]
LINEAR = ["--model", "linear", "--target", "income", "--features", "age,sex,code", "--range", "income=0,150000"]


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "people.csv"
    rows = zip(*(values.tolist() for values in COLUMNS.values()), strict=True)
    path.write_text("\n".join([",".join(COLUMNS), *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def _run(*arguments: Any) -> Result:
    return CliRunner().invoke(verbs, ["train", *map(str, arguments)])


def _json(*arguments: Any) -> Any:
    result = _run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def _fails(message: str, *arguments: Any) -> None:
    result = _run(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert message in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr


@pytest.mark.slow
def test_linear(people: Path) -> None:
    record = _json(people, *LINEAR, *DECLARED, "-e", 8, "--seed", 1, "--test", people)
    found = {entry["name"]: entry["value"] for entry in record["coefficients"]}
    assert set(found) == {"age", "sex=f", "sex=m", "code=1", "code=2", "code=9"}
    assert found["age"] == pytest.approx(520, abs=120)  # 600 in the data; noise in the columns shrinks it, more or less
    assert found["sex=m"] - found["sex=f"] == pytest.approx(9000, abs=2500)
    assert record["test"]["r2"] > 0.85
    assert record["test"]["private"] is False
    assert (record["users"], record["seed"]) == (USERS, 1)
    assert record["guarantee"]["epsilon"] == 8
    assert (record["guarantee"]["unit"], record["guarantee"]["model"]) == ("record", "local")


@pytest.mark.slow
def test_logistic(people: Path) -> None:
    record = _json(
        people, "--model=logistic", "--target", "rich", "--classes", "no,yes", "--features", "age,sex,code",
        *DECLARED, "-e", 8, "--seed", 1, "--test", people,
    )  # fmt: skip
    assert record["test"]["accuracy"] > max(0.85, record["test"]["largest_class"])


@pytest.mark.slow
def test_people_who_do_not_teach_say_privately_whether_the_model_is_right(people: Path) -> None:
    base = [people, "--model=logistic", "--target", "rich", "--classes", "no,yes", "-e", 8, "--seed", 1]
    features = ["--features", "age,sex,code", *DECLARED]
    found = _json(*base, *features)
    told = found["judgement"]
    assert told["users"] + found["users"] == USERS
    assert told["users"] == pytest.approx(USERS / 10, abs=6 * (USERS * 0.09) ** 0.5)
    assert told["accuracy"] > 0.8
    assert told["verdict"] == "better than always the larger class"
    assert _json(*base, *features, "--judge", 0)["judgement"] is None
    shown = " ".join(_run(*base, "-e", 0.05, "--features", "sex", *DECLARED[2:4], "--judge", 0.3).stdout.split())
    assert "no better than always the larger class" in shown
    assert "who reported privately too" in shown


@pytest.mark.slow
def test_pairs_from_the_command_line(people: Path) -> None:
    logistic = ["--model=logistic", "--target", "rich", "--classes", "no,yes", "--features", "age,sex", *DECLARED[:4]]
    found = _json(people, *logistic, "-e", 2, "--seed", 1, "--mechanism", "pairs", "--test", people)
    assert (found["mechanism"], found["guarantee"]["epsilon"], found["rounds"]) == ({"mechanism": "pairs"}, 2.0, 1)
    slopes = {entry["name"]: entry["value"] for entry in found["coefficients"]}
    assert slopes["age"] > 0
    assert slopes["sex=m"] > slopes["sex=f"]
    assert found["users"] == USERS
    shown = _run(people, *logistic, "-e", 2, "--seed", 1, "--mechanism", "pairs")
    assert "one report of each, pairs" in " ".join(shown.stdout.split()), shown.output


@pytest.mark.slow
def test_parquet_is_read_as_csv_is(people: Path, tmp_path: Path) -> None:
    """Blocks end elsewhere, so the draws differ; what is learnt does not."""
    path = tmp_path / "people.parquet"
    pq.write_table(pa.table(COLUMNS), path, row_group_size=3000)
    record = _json(path, *LINEAR, *DECLARED, "-e", 8, "--seed", 4, "--test", people)
    assert record["users"] == record["test"]["rows"] == USERS
    assert record["test"]["r2"] > 0.85


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["harmony", "piecewise", "hybrid", "privunit-g", "levelled", "optimal-graded"])
def test_every_mechanism(people: Path, mechanism: str) -> None:
    record = _json(people, *LINEAR, *DECLARED, "-e", 2, "--seed", 1, "--mechanism", mechanism, "--batch", 2000)
    assert 1.8 < record["guarantee"]["epsilon"] <= 2 * (1 + 1e-9)
    assert ("matrix" in record["guarantee"]) == (mechanism in ("levelled", "optimal-graded"))


def test_levels_and_published_steps(people: Path) -> None:
    record = _json(
        people, *LINEAR, *DECLARED, "-e", 2, "--mechanism", "levelled", "--level=-1,0,2", "--level=0,1,1",
        "--step", 1, "--last", "--batch", 5000, "--seed", 1,
    )  # fmt: skip
    assert len(record["guarantee"]["matrix"]) == 2
    assert record["rounds"] == 4
    assert record["training"]["average"] is False


@pytest.mark.long
def test_one_shot(people: Path) -> None:
    options = ["--model", "linear", "--target", "income", "--features", "age", "--range", "income=0,150000"]
    record = _json(people, *options, "--range", "age=0,100", "-e", 8, "--seed", 1, "--one-shot", "--test", people)
    assert record["rounds"] == 1
    assert record["test"]["r2"] > 0.5


@pytest.mark.slow
def test_without_seed_the_noise_is_new(people: Path) -> None:
    first, second = (_json(people, *LINEAR, *DECLARED, "-e", 1) for _ in range(2))
    assert first["seed"] is None
    assert first["intercept"] != second["intercept"]


@pytest.mark.slow
def test_table_for_people(people: Path) -> None:
    result = _run(people, *LINEAR, *DECLARED, "-e", 2, "--seed", 1, "--test", people)
    assert result.exit_code == 0
    assert "Linear model of income: 20,000 users" in result.stdout
    assert "ε = 2 per record, local model" in result.stdout
    assert "--seed makes the noise predictable" in result.stderr
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_help_lists_the_models() -> None:
    result = _run("--help")
    assert result.exit_code == 0
    assert all(name in result.stdout for name in MODELS)
    for name in MODELS:
        assert "--epsilon" in _run("--model", name, "--help").stdout


@pytest.mark.slow
def test_bad_input(people: Path, tmp_path: Path) -> None:
    base = [people, "--model", "linear", "--target", "income", "-e", 1]
    _fails("Unknown model 'tree'. Expected one of linear", people, "--model", "tree")
    _fails("Missing option '--model'", people)
    _fails("There is no file", tmp_path / "none.csv", *LINEAR, "-e", 1)
    _fails("has no column 'wage'. Did you mean", people, "--model", "linear", "--target", "wage", "-e", 1)
    _fails("is among the features", *base, "--features", "age,income")
    _fails("--mechanism pairs is for --model logistic", *base, "--features", "age", "--mechanism", "pairs")
    _fails("--judge is for --model logistic", *base, "--features", "age", "--judge", 0.1)
    logistic = [people, "--model", "logistic", "--target", "rich", "--classes", "no,yes", "-e", 1, "--features", "age"]
    _fails("Expected --judge 1 to be at least 0 and below 1", *logistic, "--judge", 1)
    _fails("--mechanism pairs has no steps", *logistic, "--mechanism", "pairs", "--batch", 9)
    _fails("row 1, column 'sex': ", *base)
    declared = ["--features", "age", "--range", "age=0,100", "--range", "income=0,150000"]
    _fails("Expected epsilon=-1.0 > 0", *base[:-1], -1, *declared)
    _fails("Unknown mechanism 'nothing'", *base, *declared, "--mechanism", "nothing")
    _fails("in [0, 10], got", *base, "--features", "age", "--range", "age=0,10")
    _fails("'income' in [-1, 1], got", *base, "--features", "age", "--range", "age=0,100")
    _fails("not among the categories of attribute 'code': 1, 2", *base, *declared[2:], "--features", "age,code",
           "--categories", "code=1,2")  # fmt: skip
    _fails("write COLUMN=A,B,...", *base, *declared, "--categories", "1,2")
    _fails("two classes, got --classes", people, "--model", "logistic", "--target", "rich", "--features", "age",
           "-e", 1, "--classes", "no")  # fmt: skip
    _fails("--level LOW,HIGH,E", *base, *declared, "--mechanism", "levelled", "--level", "1,2")
    _fails("--one-shot is for linear models", *base, *declared, "--one-shot", "--batch", 10)
    _fails("The target of a linear model is a number", *base, "--features", "age", "--categories", "income=3")


@pytest.mark.slow
def test_the_file_s_own_row_is_named(tmp_path: Path) -> None:
    """Far down, past blocks and batches."""
    path = tmp_path / "long.csv"
    ages = np.full(40_000, 50.0)
    ages[35_677] = 150
    path.write_text("age,income\n" + "".join(f"{age},0.5\n" for age in ages))
    _fails("got 150 in", path, "--model", "linear", "--target", "income", "--range", "age=0,100", "-e", 1)
    _fails("long.csv, row 35,678", path, "--model", "linear", "--target", "income", "--range", "age=0,100", "-e", 1)
