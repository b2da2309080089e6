"""The tools that write tables into CONTRIBUTING.md: random changes of the code, and the slowest tests."""

from __future__ import annotations

import ast
import runpy
from pathlib import Path
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
    "    pass\n    return max",
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


def test_the_tests_of_a_module_come_first(mutate: dict[str, Any]) -> None:
    tests = mutate["tests_of"]("src/noisette/mechanisms/tensor/gaussian/_normal.py", "tensor, vector and graded")
    assert tests[:2] == ["src/noisette/mechanisms/tensor/gaussian/_normal.py", "tests/mechanisms/tensor/test_normal.py"]
    assert "tests/aggregation/test_files.py" in tests
    assert len(tests) == len(set(tests))


def test_areas_are_there(mutate: dict[str, Any]) -> None:
    for area, (_, tests) in mutate["AREAS"].items():
        assert mutate["files"](area)
        assert all((ROOT / test).exists() for test in tests)


def test_the_table_of_the_slowest(tmp_path: Path) -> None:
    slowest = runpy.run_path(str(ROOT / "scripts" / "slowest.py"))
    cases = [("tests.a", "test_x[1]", 1.5), ("tests.a", "test_x[2]", 2.5), ("tests.b", "test_y", 1.0)]
    text = "".join(f'<testcase classname="{c}" name="{n}" time="{t}"/>' for c, n, t in cases)
    (tmp_path / "durations.xml").write_text(f"<testsuites><testsuite>{text}</testsuite></testsuites>")
    found = slowest["table"](slowest["read"](tmp_path / "durations.xml"))
    assert "| `tests/a::test_x` | 4.0 | 80.0 |\n| `tests/b::test_y` | 1.0 | 20.0 |" in found
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert all(mark in page for mark in (slowest["BEGIN"], slowest["END"]))
