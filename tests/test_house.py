"""The house: its drawing is true, and what the project does in one place only is done there."""

from __future__ import annotations

import ast
import re
import sqlite3
import stat
import tomllib
from itertools import islice
from pathlib import Path

import pytest

import noisette
from noisette._files import whole_file
from noisette._retry import decided, pauses
from noisette._sqlite import connect, transaction

SOURCE = Path(noisette.__file__).parent
ROOT = Path(__file__).parents[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("written", "homes"),
    [
        (r"os\.replace\(|\b(?:partial|draft|part)\.replace\(|O_TMPFILE|mkstemp", {"_files.py"}),
        (r"sqlite3\.connect\(", {"_sqlite.py"}),
        (r"BEGIN IMMEDIATE", {"_sqlite.py", "collector/storage/sqlite.py"}),  # SQLAlchemy begins its own
        (r"\b408, |random\.uniform\(0\.5, 1", {"_retry.py"}),
    ],
)
def test_one_place(written: str, homes: set[str]) -> None:
    found = {str(file.relative_to(SOURCE)) for file in SOURCE.rglob("*.py") if re.search(written, file.read_text())}
    assert found == homes


def test_pauses() -> None:
    assert list(pauses(0)) == []
    for _ in range(100):
        first, *later = list(pauses(12))
        assert first == 0
        for longest, pause in zip([0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0, 30.0], later, strict=True):
            assert longest / 2 <= pause <= longest
    assert 15 <= list(islice(pauses(), 5000))[-1] <= 30  # for ever, and no number grows too large
    assert [status for status in (200, 201, 400, 404, 408, 409, 425, 429, 500, 503) if not decided(status)] == [
        408,
        425,
        429,
        500,
        503,
    ]


def test_transaction(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with transaction(path) as database:
        database.execute("CREATE TABLE t (x INTEGER)")
        database.execute("INSERT INTO t VALUES (1)")
    with pytest.raises(sqlite3.ProgrammingError, match="bindings"), transaction(path) as database:
        database.executemany("INSERT INTO t VALUES (?)", [(2,), ()])
    held, other = connect(path), connect(path, timeout=0.0)
    with transaction(held):
        assert held.execute("PRAGMA synchronous").fetchone() == (2,)
        with pytest.raises(sqlite3.OperationalError, match="locked"), transaction(other):
            pass
        held.execute("INSERT INTO t VALUES (3)")
    assert other.execute("SELECT x FROM t").fetchall() == [(1,), (3,)]
    held.close()
    other.close()
    (tmp_path / "no.db").write_bytes(b"not a database at all, but long enough to be looked at" * 100)
    with pytest.raises(sqlite3.DatabaseError), transaction(tmp_path / "no.db"):
        pass


def test_whole_file_of_its_owner(tmp_path: Path) -> None:
    target = tmp_path / "secret"
    with whole_file(target, mode=0o600) as stream:
        stream.write(b"one")
    with pytest.raises(TypeError), whole_file(target, mode=0o600) as stream:
        stream.writelines([b"two", None])  # type: ignore[list-item]
    assert (target.read_bytes(), stat.S_IMODE(target.stat().st_mode)) == (b"one", 0o600)
    assert list(tmp_path.iterdir()) == [target]


def test_what_a_mechanism_can_do_is_declared_and_not_guessed() -> None:
    """Only checkers of foreign mechanisms look at the attributes that these happen to have."""
    guess = re.compile(r'(?:getattr|hasattr)\((?:self\.)?(?:mechanism|inner|support|released)(?:\.\w+)?, "')
    found = {str(file.relative_to(SOURCE)) for file in SOURCE.rglob("*.py") if guess.search(file.read_text())}
    assert found <= {"auditing/goodness.py", "auditing/pairs.py", "testing.py"}
    assert guess.search('size = getattr(mechanism.support, "size", None)'), "the search itself is broken"


def _named(file: Path) -> set[str]:
    """Return the mechanisms that a module names in texts of its code."""
    constants = (
        node.value for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(node, ast.Constant)
    )
    return {value for value in constants if isinstance(value, str) and value in noisette.CATALOGUE}


@pytest.mark.slow
def test_no_application_holds_a_list_of_mechanisms() -> None:
    """A published method may name the one mechanism that it uses; whoever chooses among several asks the catalogue."""
    for package in ("prediction", "planner", "survey", "collector", "federated", "regression"):
        for file in (SOURCE / package).rglob("*.py"):
            assert len(_named(file)) <= 1, file
    assert len(_named(SOURCE / "mechanisms/geometric/angle_noise.py")) > 1, "the search itself is broken"


def test_a_limit_is_named_by_what_it_limits() -> None:
    vague = re.compile(r"^_?(?:FEW|MANY|SHY|BOLD)\b", re.MULTILINE)
    ours = [
        file for folder in ("src", "experiments", "benchmarks", "scripts") for file in (ROOT / folder).rglob("*.py")
    ]
    assert [str(file) for file in ours if vague.search(file.read_text(encoding="utf-8"))] == []
    assert vague.search("_FEW = 8"), "the search itself is broken"


@pytest.mark.slow
def test_no_paper_is_cited_by_a_private_number() -> None:
    """What is cited has a key in the bibliography; nobody outside knows our numbers of papers."""
    private = re.compile(r"\b(?:[Pp]aper|[Tt]hesis) 00\d\b|\bldptube\.md\b")
    texts = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
    for folder in ("src", "docs", "experiments", "benchmarks", "examples"):
        texts += [file for kind in ("py", "md", "ipynb") for file in (ROOT / folder).rglob(f"*.{kind}")]
    assert [str(file) for file in texts if private.search(file.read_text(encoding="utf-8"))] == []


def test_every_file_says_its_job_in_its_first_line() -> None:
    for file in SOURCE.rglob("*.py"):
        first = file.read_text(encoding="utf-8").partition("\n")[0]
        assert re.match(r'"""\S.{15,}', first), file


def test_one_seam_before_the_databases() -> None:
    """SQLAlchemy is spoken in the storage alone, and there only two modules know which database it is."""
    storage = "collector/storage/"
    imports = re.compile(r"^\s*(?:import|from) sqlalchemy", re.MULTILINE)
    speak = {str(file.relative_to(SOURCE)) for file in SOURCE.rglob("*.py") if imports.search(file.read_text())}
    assert all(name.startswith(storage) for name in speak), speak
    asks = re.compile(r"dialect\.name|dialects|psycopg|PRAGMA|exec_driver_sql|isolation_level")
    know = {name.removeprefix(storage) for name in speak if asks.search((SOURCE / name).read_text())}
    assert know == {"sqlite.py", "postgres.py"}


def test_commands_compute_nothing() -> None:
    """What a command would do with arrays lives below it: no module of the command line imports numpy."""
    imports = re.compile(r"^\s*(?:import|from) (?:numpy|scipy|torch)", re.MULTILINE)
    found = {file.name for file in (SOURCE / "cli").rglob("*.py") if imports.search(file.read_text(encoding="utf-8"))}
    assert found == set()
    assert imports.search("    import numpy as np"), "the search itself is broken"


def _drawing() -> list[tuple[list[str], set[str]]]:
    """Return the lines of the drawings in CONTRIBUTING.md: modules, and the rooms that are named beside them."""
    chapter = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## The house")[2].partition("\n## ")[0]
    lines = [re.fullmatch(r"    (\S+(?: \S+)*)  +(\S.*)", line) for line in chapter.splitlines()]
    return [(line[1].split(), set(re.findall(r"(\w+)/[:, ]", line[2] + " "))) for line in lines if line]


def test_the_drawing_is_the_layers_contract() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contract = settings["tool"]["importlinter"]["contracts"][0]
    layers = [[name.strip(" ()") for name in layer.split("|")] for layer in reversed(contract["layers"])]
    drawn = [[name.rstrip("/") for name in names] for names, _ in _drawing()]
    assert [sorted(names) for names in drawn[: len(layers)]] == [sorted(names) for names in layers]


def test_the_drawing_is_the_folders() -> None:
    folders = {
        path.name: {room.name for room in path.iterdir() if _is_package(room)}
        for path in SOURCE.iterdir()
        if _is_package(path)
    }
    modules = {path.stem for path in SOURCE.glob("*.py")} - {"__init__"}
    names = {name for line, _ in _drawing() for name in line}
    assert names == modules | {f"{name}/" for name in folders}
    rooms: dict[str, set[str]] = {name: set() for name in folders}
    for line, shown in _drawing():
        if len(line) == 1 and line[0].endswith("/"):
            rooms[line[0].rstrip("/")] |= shown
    assert rooms == folders


def _is_package(path: Path) -> bool:
    return path.is_dir() and (path / "__init__.py").exists()
