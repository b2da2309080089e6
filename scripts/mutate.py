"""Change the code at random and see whether the tests notice.

make mutate                                   13 changes in each of six areas
make mutate ARGS="--area accounting --sample 30 --seed 5"
make mutate ARGS="--only src/noisette/mechanisms/tensor/gaussian/_loops.py:41"      every change of one line
make mutate ARGS="--bare --sample 3"          record nothing: quicker where few changes are made

Each change is one that a tired person might make: a comparison that is off by its edge, a guard dropped, a sign, a
constant off by one, `.all` for `.any`, a default switched. It is made in a copy of the repository, where the tests run
that execute the changed line. Which do is recorded once for each file of tests, with coverage, and kept in
.venv/mutants until that file or the changed module is another. If none of them fails, the tests run that execute
anything else of the module: coverage does not see compiled loops, and a constant is read at import. Every run is a fork
of this process, which has imported the large packages, so that most changes cost seconds. With --bare nothing is
recorded: the files of tests that name the module run whole, then those of its folder and the attacks on it.

A change that breaks nothing is printed: either a test is missing, or the change means nothing. Only a person can tell;
who finds one of the second kind adds it with the reason to scripts/equivalent.toml, and it is drawn no more. The seed
decides the sample, so a result can be repeated; a new seed draws new changes.

A test that takes five times as much processor time as it took without a change, and ten seconds more, has noticed it:
the change has made an endless loop. So has a run that takes twenty minutes. The result goes to .venv/mutants.json, and
with --write into the table of CONTRIBUTING.md, beside those of other areas that the same seed has given there.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import importlib
import io
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import traceback
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "CONTRIBUTING.md"
EQUIVALENT = ROOT / "scripts" / "equivalent.toml"
KEPT = ROOT / ".venv" / "mutants"
BEGIN, END = "<!-- mutants: begin -->", "<!-- mutants: end -->"
PATIENCE = 5.0  # a test may take this many times the processor time that it takes without a change, and ten seconds
WAIT = 1200.0  # seconds by the clock that a run may take, be the machine as busy as it is
LONGEST = 90.0  # seconds of tests that execute a changed line; what would come after them is not run
REST = 20.0  # seconds of tests that execute another line of the module
DEFAULTS = "tests/test_defaults.py"  # reads every module and executes none
UNKNOWN = 6.0  # seconds that a test may take which has not been recorded
_CORE = "src/noisette/"

# Imported once, before the forks. Nothing of Noisette, and nothing that starts threads.
_LARGE = """
    numpy scipy.stats scipy.special scipy.optimize scipy.integrate scipy.linalg scipy.sparse scipy.signal numba torch
    hypothesis.extra.numpy rich.console click.testing fastapi.testclient httpx sqlalchemy cryptography.fernet uvicorn
    pandas sklearn.linear_model dp_accounting mpmath yaml
"""

# Arguments that say nothing which a test could ask: how to word a warning, how much to remember, that two lists which
# are equally long by construction are.
_FORMAL = {"stacklevel", "maxsize", "strict"}

# What each area is made of, and which tests are about it.
AREAS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "scalar and categorical": (
        ("mechanisms/scalar", "mechanisms/categorical", "mechanisms/_base.py", "core.py", "cells.py", "_random.py"),
        (
            "tests/mechanisms/scalar",
            "tests/mechanisms/categorical",
            "tests/mechanisms/test_catalogue_specs.py",
            "tests/test_core.py",
            "tests/test_random.py",
            "tests/test_testing.py",
        ),
    ),
    "services": (
        ("collector", "device", "survey", "shuffler", "_service.py"),
        ("tests/collector", "tests/survey", "tests/shuffler"),
    ),
    "prediction and enhancement": (
        ("prediction", "enhancement", "planner"),
        ("tests/prediction", "tests/enhancement", "tests/planner"),
    ),
    "accounting and auditing": (
        ("accounting", "auditing", "guarantees.py"),
        ("tests/accounting", "tests/auditing", "tests/test_guarantees.py"),
    ),
    "tensor, vector and graded": (
        ("mechanisms/tensor", "mechanisms/vector", "mechanisms/graded", "mechanisms/geometric", "aggregation"),
        (
            "tests/mechanisms/test_catalogue_specs.py",
            "tests/mechanisms/tensor",
            "tests/mechanisms/vector",
            "tests/mechanisms/graded",
            "tests/mechanisms/geometric",
            "tests/aggregation",
            "tests/test_testing.py",
        ),
    ),
    "sgd and federated": (
        ("sgd", "federated", "regression"),
        ("tests/sgd", "tests/federated", "tests/regression"),
    ),
}

_COMPARE = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
_ARITHMETIC = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "/", ast.Pow: "*"}
_NAMES = {"all": "any", "any": "all", "min": "max", "max": "min", "floor": "ceil", "ceil": "floor"}
_NAMES |= {"minimum": "maximum", "maximum": "minimum", "log1p": "log", "expm1": "exp"}


@dataclass(frozen=True)
class Change:
    """Replace the text between two places of a file."""

    path: str
    line: int
    start: int
    end: int
    new: str
    what: str
    code: str = ""  # the line's text, by which a change is known as equivalent
    last: int = 0  # the last line of the statement's head
    at_import: bool = False  # whether the statement is executed at import

    def apply(self, source: bytes) -> bytes:
        """Return the changed source."""
        return source[: self.start] + self.new.encode() + source[self.end :]


class _Sites(ast.NodeVisitor):
    """Finds the places of a file where a change is possible."""

    def __init__(self, path: str, source: bytes) -> None:
        self.path, self.source, self.found = path, source, list[Change]()
        self.statement: ast.stmt | None = None
        self.inside = 0
        self.offsets = [0]
        for line in source.splitlines(keepends=True):
            self.offsets.append(self.offsets[-1] + len(line))

    def place(self, line: int, column: int) -> int:
        """Return where a line and column are, in bytes."""
        return self.offsets[line - 1] + column

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Return where a node begins and ends, in bytes."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.place(node.lineno, node.col_offset), self.place(node.end_lineno, node.end_col_offset)

    def text(self, node: ast.expr | ast.stmt) -> str:
        """Return a node's own source."""
        return self.source[slice(*self.span(node))].decode()

    def add(self, node: ast.expr | ast.stmt, new: str, what: str) -> None:
        """Note a change of a whole node."""
        self.note(node, *self.span(node), new, what)

    def note(self, node: ast.expr | ast.stmt, start: int, end: int, new: str, what: str) -> None:
        """Note a change, with the lines of the statement that it is in."""
        statement = self.statement or node
        body = getattr(statement, "body", None)
        last = max(statement.lineno, body[0].lineno - 1) if isinstance(body, list) else statement.end_lineno
        assert last is not None
        code = self.source[self.offsets[node.lineno - 1] : self.offsets[node.lineno]].decode().strip()
        self.found.append(
            Change(self.path, statement.lineno, start, end, new, what, code, last, at_import=not self.inside)
        )

    def visit(self, node: ast.AST) -> None:
        """Visit a node, knowing the statement that it is in."""
        outer = self.statement
        if isinstance(node, ast.stmt):
            self.statement = node
        super().visit(node)
        self.statement = outer

    def between(self, left: ast.expr, right: ast.expr, new: str, node: ast.expr) -> None:
        """Note a change of the operator between two operands."""
        start, end = self.span(left)[1], self.span(right)[0]
        gap = self.source[start:end].decode()
        old = gap.strip("() \n\\")
        if old and "#" not in gap:
            at = start + len(gap[: gap.index(old)].encode())
            what = f"{old} -> {new} in {self.text(node)[:60]!r}"
            self.note(node, at, at + len(old.encode()), new, what)

    def visit_Compare(self, node: ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        for place, operator in enumerate(node.ops):
            self.between(operands[place], operands[place + 1], _COMPARE[type(operator)], node)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for left, right in zip(node.values, node.values[1:], strict=False):
            self.between(left, right, "or" if isinstance(node.op, ast.And) else "and", node)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if type(node.op) in _ARITHMETIC and not any(
            (isinstance(side, ast.Constant) and isinstance(side.value, str)) or isinstance(side, ast.JoinedStr)
            for side in (node.left, node.right)
        ):
            self.between(node.left, node.right, _ARITHMETIC[type(node.op)], node)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not | ast.USub):
            self.add(node, f"({self.text(node.operand)})", f"dropped the sign of {self.text(node)[:60]!r}")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self.add(node, str(not node.value), f"{node.value} -> {not node.value}")
        elif isinstance(node.value, int):
            self.add(node, str(node.value + 1), f"{node.value} -> {node.value + 1}")
        elif isinstance(node.value, float):
            self.add(node, repr(node.value * 1.25 or 0.25), f"{node.value} -> {node.value * 1.25 or 0.25}")

    def visit_Call(self, node: ast.Call) -> None:
        called = node.func
        name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
        if name in _NAMES:
            end = self.span(called)[1]
            new = _NAMES[name]
            self.note(node, end - len(name), end, new, f"{name} -> {new} in {self.text(node)[:60]!r}")
        self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg not in _FORMAL:
            self.visit(node.value)

    def visit_If(self, node: ast.If) -> None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        self.visit(node.test)
        if not node.orelse and all(isinstance(part, ast.Raise) for part in node.body):
            self.add(node, "pass", f"dropped the guard {self.text(node.test)[:60]!r}")
            return
        for part in node.body + node.orelse:
            self.visit(part)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for default in [*node.args.defaults, *filter(None, node.args.kw_defaults)]:
            self.visit(default)
        self.inside += 1
        for part in node.body:
            self.visit(part)
        self.inside -= 1

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for part in node.body:
            self.visit(part)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Raise(self, node: ast.Raise) -> None:
        """Leave the words of an error alone."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Leave text alone."""

    def visit_Assign(self, node: ast.Assign) -> None:
        if not any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets):
            self.generic_visit(node)


def sites(path: Path) -> list[Change]:
    """Return the changes that can be made in a file."""
    source = path.read_bytes()
    finder = _Sites(str(path.relative_to(ROOT)), source)
    finder.visit(ast.parse(source))
    return finder.found


def is_program(change: Change) -> bool:
    """Tell whether a file is still a program after a change."""
    try:
        ast.parse(change.apply((ROOT / change.path).read_bytes()))
    except SyntaxError:
        return False
    return True


def files(area: str) -> list[Path]:
    """Return the modules of an area."""
    found = [ROOT / _CORE / name for name in AREAS[area][0]]
    return sorted(
        path for start in found for path in (start.rglob("*.py") if start.is_dir() else [start]) if path.is_file()
    )


def tests_of(module: str, area: str) -> list[list[str]]:
    """Return the files of tests of an area by how near they are to a module.

    First those that name it and its own doctests, then those of its folder and the attacks on it, then the others.
    """
    path = Path(module)
    dotted = ".".join(path.with_suffix("").parts[1:]).removesuffix(".__init__")
    own, folders = path.stem.lstrip("_"), set(dotted.split(".")) - {"noisette", "mechanisms"}
    attack = rf"noisette(\.| import .*\b)({'|'.join(sorted(folders))})\b"
    tests = [
        test
        for start in (*AREAS[area][1], "tests/attacks")
        for test in ([ROOT / start] if (ROOT / start).is_file() else sorted((ROOT / start).rglob("test_*.py")))
    ]
    groups: list[list[str]] = [[module] if ">>> " in (ROOT / module).read_text(encoding="utf-8") else [], [], []]
    groups[0] += [test for test in (DEFAULTS,) if (ROOT / test).is_file()]
    for test in tests:
        text = test.read_text(encoding="utf-8")
        named = own in test.stem or re.search(rf"\b{re.escape(dotted)}\b", text)
        folder = folders & set(test.relative_to(ROOT).parts) or re.search(attack, text)
        groups[0 if named else 1 if folder else 2].append(str(test.relative_to(ROOT)))
    return groups


class _Runner:
    """A plugin of pytest: runs chosen tests, the quickest file first, and gives up on one that takes too long."""

    def __init__(
        self,
        told: Path,
        usual: dict[str, float] | None = None,
        *,
        enter: Callable[[str], None] | None = None,
    ) -> None:
        self.told, self.usual, self.enter = told, usual, enter
        self.spent, self.bad = dict[str, float](), set[str]()

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        if self.usual is not None:
            spent: dict[str, float] = defaultdict(float)
            for name, seconds in self.usual.items():
                spent[name.partition("::")[0]] += seconds
            items[:] = [item for item in items if item.nodeid in self.usual]
            items.sort(key=lambda item: (spent[item.nodeid.partition("::")[0]], self.usual[item.nodeid]))

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.note(f"{report.nodeid} (not collected)")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        if self.enter is not None:
            self.enter(nodeid)
            return
        usual = UNKNOWN if self.usual is None else self.usual[nodeid]
        signal.signal(signal.SIGPROF, lambda *_: self.give_up(nodeid))
        signal.setitimer(signal.ITIMER_PROF, 10 + PATIENCE * usual)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.spent[report.nodeid] = self.spent.get(report.nodeid, 0.0) + report.duration
        if report.outcome != "passed":
            self.bad.add(report.nodeid)
        if report.failed:
            self.note(report.nodeid)

    def pytest_runtest_logfinish(self) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)

    def note(self, text: str) -> None:
        """Tell the parent which test failed."""
        if not self.told.exists():
            self.told.write_text(text, encoding="utf-8")

    def give_up(self, nodeid: str) -> None:
        """End the process in the middle of a test."""
        self.note(f"{nodeid} (took too long)")
        os._exit(1)


def forked(task: Callable[[], int], log: Path, limit: float) -> int | None:
    """Run a task in a fork and return its exit status, or None if it had to be ended."""
    sys.stdout.flush()
    child = os.fork()
    if not child:
        status = 70
        try:
            os.setsid()
            out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(out, 1)
            os.dup2(out, 2)
            sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
            status = int(task())
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    end = time.monotonic() + limit
    status = None
    while status is None and time.monotonic() < end:
        done, code = os.waitpid(child, os.WNOHANG)
        status = os.waitstatus_to_exitcode(code) if done else None
        if not done:
            time.sleep(0.02)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)  # what it left running too
    if status is None:
        os.waitpid(child, 0)
    return status


class Copy:
    """A copy of the repository in which changes are made."""

    def __init__(self, folder: Path, *, bare: bool = False) -> None:
        self.folder, self.work, self.bare = folder / "copy", folder, bare
        told = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for name in told.splitlines():
            if (ROOT / name).is_file():
                (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.folder / name)
        self.records = dict[str, dict[str, Any]]()
        self.changes = 0
        self.hashes = dict[str, str]()
        self.known = dict[str, bool]()

    def pytest(self, runner: _Runner, paths: Iterable[str], numba: Path) -> int:
        """Run files of tests; only in a fork."""
        import pytest

        os.chdir(self.folder)
        sys.path.insert(0, str(self.folder / "src"))
        os.environ |= {"PYTHONPATH": str(self.folder / "src"), "NUMBA_CACHE_DIR": str(numba), "OMP_NUM_THREADS": "1"}
        options = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # hypothesis has been imported
        options += ["-x"] if runner.enter is None else []
        options += ["-q", "--no-header", "-p", "no:cacheprovider", "-p", "no:xdist", "--tier=test", "--tb=short"]
        return int(pytest.main([*options, *paths], plugins=[runner]))

    def record(self, test: str, path: str) -> dict[str, Any]:
        """Return how long each test of a file takes, and which of them execute each line of a module."""
        kept = KEPT / f"{test.replace('/', '+')}.json"
        if test not in self.records:
            with suppress(OSError, ValueError):
                self.records[test] = json.loads(kept.read_text(encoding="utf-8"))
        found = self.records.get(test)
        if found and all(found["hashes"].get(name) in (None, self.hash(name)) for name in (test, path)):
            return found
        kept.unlink(missing_ok=True)
        forked(lambda: self.trace(test, kept), self.work / "log", WAIT)
        if not kept.exists():
            print(f"could not record {test}: {(self.work / 'log').read_text(encoding='utf-8')[-2000:]}")
            self.records[test] = {"hashes": {}, "spent": {}, "lines": {}}
        else:
            self.records[test] = json.loads(kept.read_text(encoding="utf-8"))
        return self.records[test]

    def hash(self, name: str) -> str:
        """Return what a file of the copy is known by."""
        if name not in self.hashes:
            self.hashes[name] = hashlib.sha256((self.folder / name).read_bytes()).hexdigest()
        return self.hashes[name]

    def trace(self, test: str, kept: Path) -> int:
        """Run a file of tests under coverage and write down what each test executes; only in a fork."""
        import coverage

        settings = self.work / "coveragerc"
        lines = {"source": f"{self.folder}/{_CORE}", "data_file": f"{self.work}/coverage/data"}
        lines |= {"core": "ctrace", "parallel": "true", "sigterm": "true", "context": "${NOISETTE_TEST-}"}
        lines |= {"disable_warnings": "no-data-collected, module-not-imported"}
        settings.write_text("\n".join(["[run]", *(f"{key} = {value}" for key, value in lines.items())]))
        shutil.rmtree(self.work / "coverage", ignore_errors=True)
        (self.work / "coverage").mkdir()
        os.environ["COVERAGE_PROCESS_START"] = str(settings)  # the processes that a test starts are traced too
        tracer = coverage.Coverage(config_file=str(settings))

        def enter(nodeid: str) -> None:
            tracer.switch_context(nodeid)
            os.environ["NOISETTE_TEST"] = nodeid

        runner = _Runner(self.work / "failed", enter=enter)
        tracer.start()
        status = self.pytest(runner, [test], self.work / "numba")
        tracer.stop()
        tracer.save()
        os.environ.pop("COVERAGE_PROCESS_START")
        with suppress(coverage.exceptions.NoDataError):
            tracer.combine()
        data = tracer.get_data()
        good = {name: seconds for name, seconds in runner.spent.items() if name not in runner.bad}
        executed: dict[str, dict[int, list[str]]] = {}
        for path in data.measured_files():
            name = str(Path(path).relative_to(self.folder))
            by_line = {
                line: sorted(context for context in contexts if context in good)
                for line, contexts in data.contexts_by_lineno(path).items()
            }
            if by_line:
                executed[name] = by_line
        kept.parent.mkdir(parents=True, exist_ok=True)
        hashes = {name: self.hash(name) for name in (test, *executed)}
        kept.write_text(json.dumps({"hashes": hashes, "spent": good, "lines": executed}), encoding="utf-8")
        return status  # 1 where some fail even without a change; they are left out

    def chosen(self, change: Change, tests: list[str]) -> Iterator[dict[str, float]]:
        """Yield the tests that execute a change's line, then those that execute another line of its module.

        What is executed at import may have been imported by an earlier test, and compiled loops are not recorded; then
        all tests of a file that executes anything of the module follow.
        """
        at, near, around = dict[str, float](), dict[str, float](), dict[str, float]()
        for test in tests:
            found = self.record(test, change.path)
            lines = found["lines"].get(change.path)
            if lines is None:
                continue
            for line, names in lines.items():
                into = at if change.line <= int(line) <= change.last else near
                into |= {name: found["spent"][name] for name in names}
            around |= found["spent"]
        near = {name: seconds for name, seconds in near.items() if name not in at}
        around = {name: seconds for name, seconds in around.items() if name not in at and name not in near}
        yield quickest(at, LONGEST)
        yield quickest(near, REST)
        if change.at_import or not at:
            yield quickest(around, REST)

    def noticed(self, change: Change, area: str) -> str | None:
        """Return the test that fails under a change, or None; tests of other folders run if none nearer executes it."""
        near, folder, others = tests_of(change.path, area)
        if DEFAULTS in near and (by := self.fails(change, None, [DEFAULTS])):
            return by
        near = [test for test in near if test != DEFAULTS]
        if self.bare:
            found = (self.fails(change, None, tests) for tests in (near, folder) if tests)
            return next((by for by in found if by and self.sound(change, by)), None)
        executed = False
        for tests in (near, folder, others):
            if tests is others and executed:
                break
            at, *rest = self.chosen(change, tests)
            executed |= bool(at)
            for stage in filter(None, (at, *rest)):
                if by := self.fails(change, stage, sorted({name.partition("::")[0] for name in stage})):
                    return by
        return None

    def sound(self, change: Change, by: str) -> bool:
        """Tell whether a test that fails under a change passes without it."""
        name = by.partition(" (")[0]
        path = name.partition("::")[0]
        if name not in self.known and (self.folder / path).is_file():
            nothing = replace(change, start=0, end=0, new="")
            self.known[name] = self.fails(nothing, {name: UNKNOWN} if "::" in name else None, [path]) is None
        return self.known.get(name, True)

    def fails(self, change: Change, tests: dict[str, float] | None, paths: list[str]) -> str | None:
        """Return the test that fails under a change, or None; of some files all tests, or the given ones."""
        target, told = self.folder / change.path, self.work / "failed"
        original, usual = target.read_bytes(), target.stat()
        told.unlink(missing_ok=True)
        self.changes += 1
        loops = b"compiled(" in original or b"njit" in original
        # a loop that calls a changed one is not compiled again by itself
        numba = self.work / (f"numba{self.changes}" if loops else "numba")
        try:
            target.write_bytes(change.apply(original))
            os.utime(target, (usual.st_atime, usual.st_mtime + self.changes))
            status = forked(
                lambda: self.pytest(_Runner(told, tests), paths, numba),
                self.work / "log",
                WAIT,
            )
        finally:
            target.write_bytes(original)
            os.utime(target, (usual.st_atime, usual.st_mtime))
        if status not in (0, 5):  # 5: there is nothing to run in the file
            return told.read_text(encoding="utf-8") if told.exists() else f"a run that ended with {status}"
        return None


def quickest(tests: dict[str, float], limit: float) -> dict[str, float]:
    """Return the quickest tests that take a limited time together."""
    kept, total = dict[str, float](), 0.0
    for name, seconds in sorted(tests.items(), key=lambda test: test[1]):
        total += seconds
        if total <= limit or not kept:
            kept[name] = seconds
    return kept


def preload() -> None:
    """Import the large packages, and pytest with its plugins, which every fork then has."""
    import pytest

    with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        for name in _LARGE.split():
            with suppress(ImportError):
                importlib.import_module(name)
        pytest.main(["--version"])
    assert "noisette" not in sys.modules


def equivalent() -> set[tuple[str, str, str]]:
    """Return the changes that mean nothing: file, line of code, change."""
    if not EQUIVALENT.is_file():
        return set()
    found = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8"))["equivalent"]
    return {(entry["file"], entry["code"], entry["change"]) for entry in found}


def draw(arguments: argparse.Namespace) -> Iterator[tuple[str, Change]]:
    """Yield areas and changes of the sample."""
    if arguments.only:
        name, _, line = arguments.only.partition(":")
        area = next(area for area in AREAS if ROOT / name in files(area))
        chosen = [change for change in sites(ROOT / name) if not line or change.line == int(line)]
        yield from ((area, change) for change in chosen if is_program(change))
        return
    areas = [area for area in AREAS if not arguments.area or arguments.area in area]
    known = equivalent()
    for area in areas:
        every = [change for path in files(area) for change in sites(path)]
        every = [change for change in every if (change.path, change.code, change.what) not in known]
        random.Random(arguments.seed).shuffle(every)
        yield from ((area, change) for change in islice(filter(is_program, every), arguments.sample))


def joined(results: list[dict[str, object]], seed: int) -> list[dict[str, object]]:
    """Keep results, and return them with those of other areas that were measured before with the same seed."""
    kept = ROOT / ".venv" / "mutants.json"
    before = json.loads(kept.read_text(encoding="utf-8")) if kept.is_file() else {}
    own = {result["area"] for result in results}
    results = [result for result in before.get(str(seed), []) if result["area"] not in own] + results
    kept.parent.mkdir(exist_ok=True)
    kept.write_text(json.dumps({str(seed): results}, indent=1), encoding="utf-8")
    return results


def page(results: list[dict[str, object]], seed: int) -> str:
    """Return the result as Markdown."""
    lines = ["| area | changes | noticed | % |", "| --- | ---: | ---: | ---: |"]
    for area in AREAS:
        own = [result for result in results if result["area"] == area]
        seen = sum(result["by"] is not None for result in own)
        if own:
            lines.append(f"| {area} | {len(own)} | {seen} | {100 * seen / len(own):.0f} |")
    left = [f"- `{r['path']}:{r['line']}`: {r['what']}" for r in results if r["by"] is None]
    return "\n".join([f"Seed {seed}.", "", *lines, "", *(["Unnoticed:", "", *left] if left else [])])


def main() -> None:
    """Draw changes, make them one by one, and say what was noticed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--area", help="part of an area's name; all areas by default")
    parser.add_argument("--sample", type=int, default=13, help="changes in each area")
    parser.add_argument("--seed", type=int, default=17, help="of the sample")
    parser.add_argument("--only", metavar="FILE[:LINE]", help="every change of a file, or of one line of it")
    parser.add_argument("--bare", action="store_true", help="record nothing: whole files, quicker for a few changes")
    parser.add_argument("--list", action="store_true", help="print the changes and make none")
    parser.add_argument("--write", action="store_true", help="write the table into CONTRIBUTING.md")
    arguments = parser.parse_args()
    results: list[dict[str, object]] = []
    if not arguments.list:
        preload()
    with tempfile.TemporaryDirectory(prefix="noisette-mutants-") as folder:
        copy = None if arguments.list else Copy(Path(folder), bare=arguments.bare)
        for area, change in draw(arguments):
            where = f"{change.path}:{change.line}: {change.what}"
            if copy is None:
                print(where)
                continue
            start = time.monotonic()
            by = copy.noticed(change, area)
            spent = f"{time.monotonic() - start:.1f} s"
            print(f"noticed by {by}" if by else "NOT NOTICED", spent, where, sep="   ", flush=True)
            results.append({"area": area, "by": by} | asdict(change))
    if results and not arguments.only:
        results = joined(results, arguments.seed)
    if results:
        print(page(results, arguments.seed))
    if results and arguments.write:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        text = f"{before}{BEGIN}\n{page(results, arguments.seed)}\n{END}{rest.partition(END)[2]}"
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
