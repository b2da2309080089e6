"""The tools that write tables into pages: random changes of the code, the slowest tests, and the lines of src."""

from __future__ import annotations

import ast
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = '''"""Words are left alone: 1 < 2."""
LIMIT = 0.5
def check(x, strict=True):
    """Return whether 1 < x."""
    if not strict and x.any():
        return -x + 2
    if x < LIMIT:
        raise ValueError("x < 1")
    y = x.reshape(-1, 5)
    return max(x, 3)
'''
CHANGES = {
    "LIMIT = 0.625",
    "strict=False",
    "if (strict) and x.any():",
    "if not strict or x.any():",
    "if not strict and x.all():",
    "return (x) + 2",
    "return -x - 2",
    "return -x + 3",
    "if x <= LIMIT:",
    "    pass\n    y",
    "y = x.reshape((1), 5)",
    "y = x.reshape(-1, 6)",
    "return min(x, 3)",
    "return max(x, 4)",
}


@pytest.fixture(scope="module")
def mutate() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "scripts" / "mutate.py"))


def test_every_kind_of_change_is_made_and_no_other(mutate: dict[str, Any]) -> None:
    finder = mutate["_Sites"]("file.py", SOURCE.encode())
    finder.visit(ast.parse(SOURCE))
    made = [change.apply(SOURCE.encode()).decode() for change in finder.found]
    assert len(set(made)) == len(made) == len(CHANGES)
    for text in made:
        ast.parse(text)
        assert [part for part in CHANGES if part in text and part not in SOURCE], text
    for part in CHANGES:
        assert any(part in text for text in made), part
    guards = [change.apply(SOURCE.encode()).decode() for change in finder.found if change.guard]
    assert len(guards) == 2
    assert all("if x <= LIMIT:" in text or "    pass\n    y" in text for text in guards)


def test_the_tests_of_a_module_come_first(mutate: dict[str, Any]) -> None:
    module = "src/noisette/mechanisms/tensor/gaussian/_normal.py"
    own, folder, others = mutate["tests_of"](module, "tensor, vector and graded")
    assert "tests/mechanisms/tensor/test_normal.py" in own
    assert "tests/mechanisms/tensor/test_release.py" in folder
    assert "tests/attacks/test_box_sensitivity.py" in others
    own, _, _ = mutate["tests_of"]("src/noisette/mechanisms/categorical/texts/search.py", "scalar and categorical")
    assert "tests/mechanisms/test_held.py" in own  # from noisette.mechanisms.categorical.texts import ..., search
    _, _, others = mutate["tests_of"]("src/noisette/survey/survey.py", "services")
    assert "tests/planner/test_surveys.py" in others  # wherever a test is
    assert len({*own, *folder, *others}) == len([*own, *folder, *others])


def test_a_compiled_loop_is_known_by_the_name_that_others_import(mutate: dict[str, Any]) -> None:
    source = "def _fill(x):\n    return x\n\n\nfill = compiled(_fill, nogil=True)\nboth = (fill, 3)\nother = 4\n"
    assert mutate["aliases"]({"_fill"}, source) == {"_fill", "fill", "both"}
    assert mutate["is_compiled"]("_fill", source)
    assert not mutate["is_compiled"]("fill", source)
    copy = SimpleNamespace(folder=ROOT, names={"change": {"_turned", "turned"}})
    calls = mutate["Copy"].calls
    assert calls(copy, "tests/mechanisms/geometric/test_scans.py", "change")
    assert not calls(copy, "tests/test_house.py", "change")
    assert not calls(copy, "tests/mechanisms/geometric/test_scans.py", "another change")


def test_areas_are_there(mutate: dict[str, Any]) -> None:
    for area, (_, tests) in mutate["AREAS"].items():
        assert mutate["files"](area)
        assert all((ROOT / test).exists() for test in tests)


def test_a_seed_draws_the_same_from_other_code(mutate: dict[str, Any]) -> None:
    """A line that comes or goes moves no other change in or out of a sample."""

    def drawn(text: str, seed: int) -> list[str]:
        finder = mutate["_Sites"]("file.py", text.encode())
        finder.visit(ast.parse(text))
        return [f"{change.code} {change.what}" for change in mutate["shuffled"](finder.found, seed)]

    text = "def f(x):\n" + "".join(f"    x += {number} * x\n" for number in range(9))
    before, after = drawn(text, 5), drawn(text.replace("    x += 4 * x\n", "    x -= 70 * x\n    x += 0 * x\n"), 5)
    kept = [change for change in before if " 4 * x" not in change]
    assert [change for change in after if change in kept and after.count(change) == 1] == [
        change for change in kept if after.count(change) == 1
    ]
    assert before != drawn(text, 6) != kept
    assert len(set(drawn(text, 5)[:5])) == 5


THING = """
LIMIT = 4

def double(x):
    if x > LIMIT:
        return 0
    return 2 * x
"""
TEST = """
import subprocess, sys
from noisette.sgd.thing import double

def test_double():
    assert double(3) == 6

def test_in_a_process_of_its_own():
    code = "from noisette.sgd.thing import double; print(double(5))"
    assert subprocess.check_output([sys.executable, "-c", code]) == b"0\\n"
"""


@pytest.mark.long
def test_a_change_is_noticed_or_not(tmp_path: Path) -> None:
    """A change of a branch that only another process takes is noticed; that of an edge which no test tries is not."""
    for name in ("scripts/mutate.py", "conftest.py", "pyproject.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    tool = tmp_path / "scripts" / "mutate.py"  # without torch and others, which nothing here imports
    tool.write_text(re.sub('_LARGE = """[^"]*"""', '_LARGE = ""', tool.read_text(encoding="utf-8")), encoding="utf-8")
    for name, text in {"src/noisette/sgd/thing.py": THING, "tests/sgd/test_thing.py": TEST}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "src/noisette/__init__.py").touch()
    known = '[[equivalent]]\nfile = "src/noisette/sgd/thing.py"\ncode = "return 2 * x"\nchange = "2 -> 3"\nwhy = "-"\n'
    (tmp_path / "scripts/equivalent.toml").write_text(known, encoding="utf-8")
    for command in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    done = subprocess.run(
        [sys.executable, "scripts/mutate.py", "--area", "sgd", "--sample", "9"],
        cwd=tmp_path,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # hypothesis and others are slow to load
        capture_output=True,
        text=True,
        check=True,
    )
    found = {line.rpartition(": ")[2]: line.partition(" src/")[0] for line in done.stdout.splitlines() if " s " in line}
    assert found.keys() == {"> -> >= in 'x > LIMIT'", "4 -> 5", "0 -> 1", "* -> / in '2 * x'"}, done
    assert "NOT NOTICED" in found["> -> >= in 'x > LIMIT'"]
    assert "test_in_a_process_of_its_own" in found["0 -> 1"]
    assert "test_in_a_process_of_its_own" in found["4 -> 5"]
    assert "test_double" in found["* -> / in '2 * x'"]
    assert "| sgd and federated | 4 | 3 | 75 |" in done.stdout


def test_the_table_of_the_slowest(tmp_path: Path) -> None:
    slowest = runpy.run_path(str(ROOT / "scripts" / "slowest.py"))
    cases = [("tests.a", "test_x[1]", 1.5), ("tests.a", "test_x[2]", 2.5), ("tests.b", "test_y", 1.0)]
    text = "".join(f'<testcase classname="{c}" name="{n}" time="{t}"/>' for c, n, t in cases)
    (tmp_path / "durations.xml").write_text(f"<testsuites><testsuite>{text}</testsuite></testsuites>")
    found = slowest["table"](slowest["read"](tmp_path / "durations.xml"))
    assert "| `tests/a::test_x` | 4.0 | 80.0 |\n| `tests/b::test_y` | 1.0 | 20.0 |" in found
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert all(mark in page for mark in (slowest["BEGIN"], slowest["END"]))


def test_the_lines_of_src_by_kind_and_folder() -> None:
    lines = runpy.run_path(str(ROOT / "scripts" / "lines.py"))
    source = '"""What it does.\n\nMore of it.\n"""\n\nimport math\n\n\n'
    source += 'def area(r):\n    """Return it."""\n    # round\n    return math.pi * r**2\n'
    assert lines["kinds"](source) == {"docstrings": 5, "blank": 3, "imports": 1, "code": 2, "comments": 1}
    now = {"a/one.py": source, "a/look.css": "p {}\n", "two.py": "x = 1\n"}
    found = lines["table"](now, {"a/one.py": "x = 1\n"})
    assert found.startswith(
        "14 lines in 3 files: 13 of Python (3 of code, 5 of docstrings, 3 blank, 1 of imports, 1 of"
    )
    assert "| `a` | 13 | +12 |\n| single modules | 1 | +1 |\n| all | 14 | +13 |" in found
    assert found.endswith("| capability | lines |\n| --- | ---: |\n| what all of them stand on | 14 |")
    named = {"sgd/a.py": "x\n", "mechanisms/categorical/texts/b.py": "x\ny\n", "mechanisms/categorical/c.py": "x\n"}
    ways = {"private training in PyTorch": 1, "texts that nobody listed": 2, "one category": 1}
    assert lines["capabilities"](named) == ways
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert all(mark in page for mark in (lines["BEGIN"], lines["END"]))


def test_a_step_of_the_last_look_that_shows_nothing_has_failed() -> None:
    last = runpy.run_path(str(ROOT / "scripts" / "release_check.py"))
    step = last["Step"]("form", "The form", "pytest", must=(r"passed",))
    assert last["shows"](step, "26 passed in 25.72s")
    assert not last["shows"](step, "")
    assert not last["shows"](step, "no tests ran in 0.01s")
    assert not last["shows"](step, "25 passed, 1 skipped in 25.72s")
    assert not last["shows"](step, "1 failed, 25 passed in 25.72s")
    steps = {one.name: one for one in last["STEPS"]}
    assert last["shows"](steps["check"], "8650 passed, 259 skipped in 59.03s")  # what needs an extra
    assert not last["shows"](steps["check"], "1 failed, 8649 passed, 259 skipped in 59.03s")
    assert not last["shows"](
        steps["verify"], "PROVED: epsilon 3.9, delta 1e-5: ...\nPROVED: epsilon 1, delta 1e-5: ..."
    )


def test_parts_of_the_last_look_are_put_into_its_page() -> None:
    last = runpy.run_path(str(ROOT / "scripts" / "release_check.py"))
    first, second, *_ = (step.title for step in last["STEPS"])
    page = f"# The last look\n\nSeen.\n\n## {first}\n\n57 s.\n\n## What is no step any more\n\n3 s.\n"
    made = last["placed"](page, {second: f"## {second}\n\n89 s.\n"}, "abc1234")
    assert made == f"# The last look\n\nSeen.\n\n## {first}\n\n57 s.\n\n## {second}\n\n89 s. At abc1234.\n"


@pytest.mark.needs("playwright")
@pytest.mark.slow
def test_what_sticks_out_of_a_phone_is_seen(tmp_path: Path) -> None:
    if shutil.which("chromium") is None:
        pytest.skip("needs chromium: scripts/browser.sh installs it")
    table = "<table style='width:900px'><tr><td>x</td></tr></table>"
    start = "<!doctype html><meta name='viewport' content='width=device-width'><main>"
    look = [sys.executable, str(ROOT / "scripts" / "phone.py"), str(tmp_path)]
    (tmp_path / "good.html").write_text(f"{start}<div style='overflow-x:auto'>{table}</div></main>", encoding="utf-8")
    done = subprocess.run(look, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "1 pages at 390 pixels: 0 with something beyond the screen\n")
    (tmp_path / "wide.html").write_text(f"{start}{table}</main>", encoding="utf-8")
    (tmp_path / "torn.html").write_text(f"{start}<img src='none.png'></main>", encoding="utf-8")
    done = subprocess.run(look, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "900px" in done.stdout
    assert "no picture" in done.stdout
    assert done.stdout.endswith("3 pages at 390 pixels: 2 with something beyond the screen\n")
