"""Change the code at random and see whether the tests notice.

make mutate                                   13 changes in each of six areas
make mutate ARGS="--area accounting --sample 30 --seed 5"
make mutate ARGS="--only src/noisette/mechanisms/tensor/gaussian/_loops.py:41"      every change of one line
make mutate ARGS="--bare --sample 3"          record nothing: quicker where few changes are made

Each change is one that a tired person might make: a comparison that is off by its edge, a guard dropped, a sign, a
constant off by one, `.all` for `.any`, a default switched. It is made in a copy of the repository, kept in
.venv/mutants with what was compiled there, one for each area.

Tests are collected once. A change inside a function is made in a fork of that process, by giving the function other
code: first the quick tests run whose files name the module, then those that execute the changed line, wherever in the
area they are, and at last slow ones. Which tests execute a line is recorded with coverage when it is first asked, for
each file of tests, and kept until that file is another. A change that is read at import, or that is in a compiled loop,
and a change that nothing noticed, is tried in processes that import the module anew. With --bare nothing is recorded:
the files of tests that name the module run whole, then those of its folder and the attacks on it.

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
import fcntl
import gc
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
import time
import tomllib
import traceback
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import asdict, dataclass, replace
from difflib import SequenceMatcher
from itertools import islice
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "CONTRIBUTING.md"
EQUIVALENT = ROOT / "scripts" / "equivalent.toml"
KEPT = (ROOT / ".venv").resolve() / "mutants"
BEGIN, END = "<!-- mutants: begin -->", "<!-- mutants: end -->"
PATIENCE = 5.0  # a test may take this many times the processor time that it takes without a change, and ten seconds
WAIT = 1200.0  # seconds by the clock that a run may take, be the machine as busy as it is
LONGEST = 40.0  # seconds of tests that execute a changed line; what would come after them is not run
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
    inside: str = ""  # the function or method that it is in
    at_import: bool = False  # whether the statement is executed at import

    def apply(self, source: bytes) -> bytes:
        """Return the changed source."""
        return source[: self.start] + self.new.encode() + source[self.end :]


class _Sites(ast.NodeVisitor):
    """Finds the places of a file where a change is possible."""

    def __init__(self, path: str, source: bytes) -> None:
        self.path, self.source, self.found = path, source, list[Change]()
        self.statement: ast.stmt | None = None
        self.inside = list[str]()
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
        inside = self.inside[0] if self.inside else ""
        self.found.append(
            Change(self.path, statement.lineno, start, end, new, what, code, last, inside, at_import=not inside)
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
        self.inside.append(node.name)
        for part in node.body:
            self.visit(part)
        self.inside.pop()

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
        for start in (*AREAS[area][1], "tests/attacks", "tests/test_safe_sides.py")
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
    """A plugin of pytest: tells which test failed, what each took, and gives up on one that takes too long.

    With a task it runs nothing itself: the task gets the session when all is collected. Without, it runs the given
    tests, the quickest file first, or all.
    """

    def __init__(
        self,
        told: Path,
        usual: dict[str, float] | None = None,
        *,
        task: Callable[[Any], None] | None = None,
    ) -> None:
        self.told, self.usual, self.task = told, usual, task
        self.spent, self.bad = dict[str, float](), set[str]()
        self.enter: Callable[[str], None] | None = None

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        if self.usual is not None:
            items[:] = ordered([item for item in items if item.nodeid in self.usual], self.usual)

    def pytest_runtestloop(self, session: Any) -> bool | None:
        if self.task is None:
            return None
        self.task(session)
        return True

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

    def run(self, session: Any, items: list[Any]) -> None:
        """Run collected tests, until one fails unless all are recorded; only in a fork."""
        end = time.process_time() + LONGEST
        for item, following in zip(items, [*items[1:], None], strict=False):
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.enter is None and (self.told.exists() or time.process_time() > end):
                break
        with suppress(BaseException):
            session._setupstate.teardown_exact(None)  # servers that fixtures have started end

    def note(self, text: str) -> None:
        """Tell the parent which test failed."""
        if not self.told.exists():
            self.told.write_text(text, encoding="utf-8")

    def give_up(self, nodeid: str) -> None:
        """End the process in the middle of a test."""
        self.note(f"{nodeid} (took too long)")
        os._exit(1)


def ordered(items: list[Any], usual: dict[str, float]) -> list[Any]:
    """Return tests file by file, the quickest file first and in it the quickest test."""
    spent: dict[str, float] = defaultdict(float)
    for item in items:
        spent[item.nodeid.partition("::")[0]] += usual[item.nodeid]

    def key(item: Any) -> tuple[float, str, float]:
        path = item.nodeid.partition("::")[0]
        return spent[path], path, usual[item.nodeid]

    return sorted(items, key=key)


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
    status, pause = None, 0.002
    while status is None and time.monotonic() < end:
        done, code = os.waitpid(child, os.WNOHANG)
        status = os.waitstatus_to_exitcode(code) if done else None
        if not done:
            time.sleep(pause)
            pause = min(0.05, 1.5 * pause)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)  # what it left running too
    if status is None:
        os.waitpid(child, 0)
    return status


def codes(code: CodeType) -> Iterator[tuple[tuple[str, int], CodeType]]:
    """Yield the code of every function of a module, by its name and which of that name it is."""
    many: dict[str, int] = defaultdict(int)
    waiting = [code]
    while waiting:
        part = waiting.pop()
        many[part.co_qualname] += 1
        yield (part.co_qualname, many[part.co_qualname]), part
        waiting += [inner for inner in reversed(part.co_consts) if isinstance(inner, CodeType)]


def users(names: set[str], source: str) -> set[int]:
    """Return the lines inside functions at which a source mentions one of some names, or what is made of them."""
    tree = ast.parse(source)

    def said(node: ast.AST) -> set[str]:
        parts = list(ast.walk(node))
        words = {part.id for part in parts if isinstance(part, ast.Name)}
        words |= {part.attr for part in parts if isinstance(part, ast.Attribute)}
        return words | {part.name for part in parts if isinstance(part, ast.alias)}

    plain = [part for part in ast.walk(tree) if isinstance(part, ast.Assign) and part.col_offset in (0, 4)]
    for part in plain + plain:  # fill = njit(_fill)
        if part.col_offset == 0 or isinstance(part.value, ast.Call):
            names = names | (set().union(*map(said, part.targets)) if names & said(part.value) else set())
    inside = [part for part in ast.walk(tree) if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)]
    statements = [line for part in inside for line in ast.walk(part) if isinstance(line, ast.stmt) and line is not part]
    heads = [
        (line, [getattr(line, "test", None) or getattr(line, "iter", None)] if hasattr(line, "body") else [line])
        for line in statements
    ]
    return {line.lineno for line, parts in heads if any(names & said(part) for part in parts if part)}


class Copy:
    """A copy of the repository in which changes are made; it is kept, with what was compiled and recorded there."""

    def __init__(self, area: str, *, bare: bool = False) -> None:
        self.area, self.bare, self.work = area, bare, KEPT / area.replace(" ", "-").replace(",", "")
        self.folder, self.numba = self.work / "copy", self.work / "numba"
        self.work.mkdir(parents=True, exist_ok=True)
        self.lock = (self.work / "lock").open("w")
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        told = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        names = {name for name in told.splitlines() if (ROOT / name).is_file()}
        for path in [path for path in self.folder.rglob("*") if path.suffix in (".py", ".pyi") and path.is_file()]:
            if str(path.relative_to(self.folder)) not in names:
                path.unlink()
        for name in names:
            source, target = ROOT / name, self.folder / name
            if not target.is_file() or target.read_bytes() != source.read_bytes():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)
        # tests look for the real data beside the repository
        data = self.work / "shared"
        if (ROOT.parent / "shared").exists() and not data.exists():
            data.symlink_to((ROOT.parent / "shared").resolve())
        self.records = dict[str, dict[str, Any]]()
        self.changes = 0
        self.known = dict[str, bool]()
        self.session: Any = None
        self.runner: _Runner | None = None

    def pytest(self, runner: _Runner, paths: Iterable[str], numba: Path) -> int:
        """Run files of tests; only in a fork."""
        import pytest

        os.chdir(self.folder)
        sys.path.insert(0, str(self.folder / "src"))
        sys.dont_write_bytecode = False
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ |= {"PYTHONPATH": str(self.folder / "src"), "NUMBA_CACHE_DIR": str(numba), "OMP_NUM_THREADS": "1"}
        if "numba" in sys.modules:
            importlib.import_module("numba").config.reload_config()
        options = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # hypothesis has been imported
        options += ["-x"] if runner.task is None else ["--continue-on-collection-errors"]
        options += ["-q", "--no-header", "-p", "no:cacheprovider", "-p", "no:xdist", "--tier=test", "--tb=short", "-s"]
        return int(pytest.main([*options, *paths], plugins=[runner]))

    def noticed(self, changes: list[Change]) -> Iterator[tuple[Change, str | None, float]]:
        """Yield each change, the test that fails under it, or None, and the seconds that it took.

        Tests are collected once. A change inside a function is made there, in a fork, by other code for that function;
        what is executed at import or compiled, and at last what is left, is tried in processes that import it anew.
        """
        told = dict[Change, tuple[str | None, float]]()
        for change in changes:
            start = time.monotonic()
            by = self.at_once(change) if self.bare or self.is_early(change) else None
            told[change] = by, time.monotonic() - start
        left = [change for change in changes if told[change][0] is None]
        if left and not self.bare:
            found = self.work / "noticed.json"
            found.write_text("", encoding="utf-8")
            groups = [group for change in left for group in tests_of(change.path, self.area)]
            paths = sorted({test for group in groups for test in group})
            runner = _Runner(self.work / "failed", task=lambda session: self.serve(session, runner, left, found))
            forked(lambda: self.pytest(runner, paths, self.numba), self.work / "log-server", 100 * WAIT)
            lines = found.read_text(encoding="utf-8").splitlines()
            if len(lines) < len(left):
                sys.exit((self.work / "log-server").read_text(encoding="utf-8")[-4000:])
            for change, (by, spent) in zip(left, map(json.loads, lines), strict=True):
                told[change] = by, told[change][1] + spent
        for change in changes:
            by, spent = told[change]
            start = time.monotonic()
            if by is None and not self.bare:
                by = self.anew(change)
            yield change, by, spent + time.monotonic() - start

    def is_early(self, change: Change) -> bool:
        """Tell whether a change is made before a function is called: at import, or when a loop is compiled."""
        return change.at_import or self.compiled(change)

    def at_once(self, change: Change) -> str | None:
        """Return the test that fails under a change, of whole files: those that name its module, then its folder's."""
        near, folder, _ = tests_of(change.path, self.area)
        if DEFAULTS in near and (by := self.fails(change, None, [DEFAULTS])):
            return by
        groups = [[test for test in near if test != DEFAULTS], folder if self.bare else []]
        found = (self.fails(change, None, tests) for tests in groups if tests)
        return next((by for by in found if by and self.sound(change, by)), None)

    def serve(self, session: Any, runner: _Runner, changes: list[Change], found: Path) -> None:
        """Try each change in forks of a session that has collected all tests; write down what fails."""
        self.session, self.runner = session, runner
        self.items = {item.nodeid: item for item in session.items}
        gc.unfreeze()
        self.functions: dict[str, list[FunctionType]] = defaultdict(list)
        for thing in gc.get_objects():
            if type(thing) is FunctionType and _CORE in thing.__code__.co_filename:
                self.functions[thing.__code__.co_filename].append(thing)
        gc.freeze()
        for change in changes:
            start = time.monotonic()
            by = None if self.is_early(change) else self.by_name(change)
            if by is None:
                for stage in self.stages(change):  # records what a change at import needs, too
                    if not self.is_early(change) and (by := self.fails(change, stage, [])):
                        break
            with found.open("a", encoding="utf-8") as out:
                print(json.dumps((by, time.monotonic() - start)), file=out)

    def by_name(self, change: Change) -> str | None:
        """Return the test that fails under a change, of the quick ones in the files that name its module."""
        near = set(tests_of(change.path, self.area)[0])
        items = [item for item in self.session.items if item.nodeid.partition("::")[0] in near]
        tests = {item.nodeid: UNKNOWN for item in items if not item.get_closest_marker("slow")}
        by = self.fails(change, tests, []) if tests else None
        return by if by and self.sound(change, by) else None

    def anew(self, change: Change) -> str | None:
        """Return the test that fails under a change, in processes that import the changed module anew."""
        for stage in self.stages(change):
            tests = stage if self.is_early(change) else quickest(stage, REST)
            if by := self.fails(change, tests, sorted({name.partition("::")[0] for name in tests})):
                return by
        return None

    def compiled(self, change: Change) -> bool:
        """Tell whether a change is in a loop that is compiled."""
        source = (self.folder / change.path).read_text(encoding="utf-8")
        return bool(re.search(rf"(compiled|njit\(.*\))\({re.escape(change.inside)}\b", source)) or bool(
            re.search(rf"@(compiled|njit).*\n(async )?def {re.escape(change.inside)}\b", source)
        )

    def record(self, test: str) -> dict[str, Any]:
        """Return how long each test of a file takes, and which of them execute each line of each module.

        A record is kept until the tests are others. Where a module has changed since, its lines are found again.
        """
        kept = self.work / "records" / f"{test.replace('/', '+')}.json"
        own = hashlib.sha256((self.folder / test).read_bytes()).hexdigest()
        if test not in self.records:
            with suppress(OSError, ValueError):
                self.records[test] = json.loads(kept.read_text(encoding="utf-8"))
        found = self.records.get(test)
        if found and found["hash"] == own:
            return found
        if self.session is None:
            return {"spent": {}, "slow": [], "lines": {}}
        kept.unlink(missing_ok=True)
        kept.parent.mkdir(exist_ok=True)
        forked(lambda: self.trace(test, own, kept), self.work / "log", WAIT)
        if not kept.exists():
            sys.exit(f"could not record {test}: {(self.work / 'log').read_text(encoding='utf-8')[-4000:]}")
        self.records[test] = json.loads(kept.read_text(encoding="utf-8"))
        return self.records[test]

    def trace(self, test: str, own: str, kept: Path) -> int:
        """Run a file of tests under coverage and write down what each test executes; only in a fork."""
        import coverage

        settings = self.work / "coveragerc"
        lines = {"source": f"{self.folder}/{_CORE}", "data_file": f"{self.work}/coverage/data"}
        lines |= {"core": "ctrace", "parallel": "true", "sigterm": "true", "context": "${NOISETTE_TEST-}"}
        lines |= {"disable_warnings": "no-data-collected, module-not-imported, module-not-measured"}
        settings.write_text("\n".join(["[run]", *(f"{key} = {value}" for key, value in lines.items())]))
        shutil.rmtree(self.work / "coverage", ignore_errors=True)
        (self.work / "coverage").mkdir()
        os.environ["COVERAGE_PROCESS_START"] = str(settings)  # the processes that a test starts are traced too
        tracer = coverage.Coverage(config_file=str(settings))
        runner = self.runner
        assert runner is not None

        def enter(nodeid: str) -> None:
            tracer.switch_context(nodeid)
            os.environ["NOISETTE_TEST"] = nodeid

        runner.enter = enter
        tracer.start()
        own_items = [item for item in self.session.items if item.nodeid.partition("::")[0] == test]
        slow = {item.nodeid for item in own_items if item.get_closest_marker("slow")}
        runner.run(self.session, [item for item in own_items if item.nodeid not in slow])
        tracer.stop()
        tracer.save()
        os.environ.pop("COVERAGE_PROCESS_START")
        with suppress(coverage.exceptions.NoDataError):
            tracer.combine()
        data = tracer.get_data()
        good = {name: seconds for name, seconds in runner.spent.items() if name not in runner.bad}
        number = {name: place for place, name in enumerate(good)}
        executed: dict[str, dict[int, list[int]]] = {}
        texts = dict[str, str]()
        for path in data.measured_files():
            name = str(Path(path).relative_to(self.folder))
            by_line = {
                line: [number[context] for context in contexts if context in number]
                for line, contexts in data.contexts_by_lineno(path).items()
            }
            executed[name] = {line: names for line, names in by_line.items() if names}
            text = Path(path).read_bytes()
            texts[name] = hashlib.sha256(text).hexdigest()
            (self.work / "records" / texts[name]).write_bytes(text)
        record = {"hash": own, "spent": good, "slow": sorted(slow), "lines": executed, "texts": texts}
        kept.write_text(json.dumps(record), encoding="utf-8")
        return 0  # tests that fail even without a change are left out

    def executing(self, test: str, path: str, lines: set[int] | None) -> dict[str, float]:
        """Return the tests of a file that execute some lines of a module, or any, with the seconds that each takes."""
        found = self.record(test)
        by_line = found["lines"].get(path, {})
        if not by_line:
            return {}
        now = (self.folder / path).read_bytes()
        if lines is not None and found["texts"][path] != hashlib.sha256(now).hexdigest():
            old = (self.work / "records" / found["texts"][path]).read_bytes().splitlines()
            matcher = SequenceMatcher(None, old, now.splitlines(), autojunk=False)
            # a line that was changed is taken for all those that stood where it is
            lines = {
                old_line
                for _, i, j, k, end in matcher.get_opcodes()
                for line in range(k + 1, end + 1)
                if line in lines
                for old_line in ([i + line - k] if j - i == end - k else range(i + 1, j + 1))
            }
        names = list(found["spent"])
        places = {place for line, tests in by_line.items() if lines is None or int(line) in lines for place in tests}
        return {names[place]: found["spent"][names[place]] for place in places}

    def lines(self, change: Change) -> dict[str, set[int]]:
        """Return the lines that tests of a change execute, by module: its own, or those that use what it defines."""
        own = set(range(change.line, change.last + 1))
        if change.inside and not change.at_import and not self.compiled(change):
            return {change.path: own}
        source = (self.folder / change.path).read_text(encoding="utf-8")
        names, body = set[str](), set[int]()
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (
                node.lineno == change.line or node.name == change.inside
            ):
                names |= {node.name}
                body |= set(range(node.body[0].lineno, (node.end_lineno or node.lineno) + 1))
            elif isinstance(node, ast.Assign | ast.AnnAssign) and node.lineno == change.line and node.col_offset <= 4:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names |= {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}
        found = {change.path: body | users(names, source) if names else body}
        word = Path(change.path).stem if Path(change.path).stem != "__init__" else Path(change.path).parent.name
        for path in (self.folder / _CORE).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            if re.search(rf"\b{word}\b", text) and any(name in text for name in names) and str(path) != change.path:
                name = str(path.relative_to(self.folder))
                found[name] = found.get(name, set()) | users(names, text)
        return found

    def stages(self, change: Change) -> Iterator[dict[str, float]]:
        """Yield tests that execute a change: first those of the nearest files, then those of its folder, then others.

        Where none does, those follow that execute anything else of the module; at last the slow tests of these files,
        which are not recorded.
        """
        lines = self.lines(change)
        near, folder, others = tests_of(change.path, self.area)
        seen, slow = set[str](), dict[str, float]()
        for tests in (near, folder, others):
            if tests is others and seen:
                break
            stage = dict[str, float]()
            for test in tests:
                own = dict[str, float]()
                for path, places in lines.items():
                    own |= self.executing(test, path, places)
                if own or test in near:
                    slow |= dict.fromkeys(self.record(test)["slow"], UNKNOWN)
                stage |= own
            stage = {name: seconds for name, seconds in stage.items() if name not in seen}
            seen |= stage.keys()
            if stage:
                yield quickest(stage, LONGEST)
        if not seen or change.at_import or self.compiled(change):
            stage = {}
            for test in near + folder:
                stage |= self.executing(test, change.path, None)
            if stage := {name: seconds for name, seconds in stage.items() if name not in seen}:
                yield quickest(stage, REST)
        if slow:
            yield quickest(slow, LONGEST)

    def sound(self, change: Change, by: str) -> bool:
        """Tell whether a test that fails under a change passes without it."""
        name = by.partition(" (")[0]
        path = name.partition("::")[0]
        if name not in self.known and (self.folder / path).is_file():
            nothing = replace(change, start=0, end=0, new="")
            here = self.session is not None
            tests = {name: UNKNOWN} if "::" in name else None
            self.known[name] = self.fails(nothing, tests, [] if here else [path]) is None
        return self.known.get(name, True)

    def fails(self, change: Change, tests: dict[str, float] | None, paths: list[str]) -> str | None:
        """Return the test that fails under a change, or None; of some files all tests, or the given ones.

        Without files, the given tests run in a fork of the session that has collected them.
        """
        target, told = self.folder / change.path, self.work / "failed"
        original, usual = target.read_bytes(), target.stat()
        told.unlink(missing_ok=True)
        self.changes += 1
        numba = self.work / "numba-changed" if re.search(rb"compiled\(|njit", original) else self.numba
        try:
            target.write_bytes(change.apply(original))
            os.utime(target, (usual.st_atime, usual.st_mtime + self.changes))
            if numba != self.numba:
                self.forget(change, numba)
            task = lambda: self.pytest(_Runner(told, tests), paths, numba)  # noqa: E731
            if not paths:
                task = lambda: self.inside(change, original, tests or {}, numba)  # noqa: E731
            status = forked(task, self.work / "log", WAIT)
        finally:
            target.write_bytes(original)
            os.utime(target, (usual.st_atime, usual.st_mtime))
        if status not in (0, 5):  # 5: there is nothing to run in the file
            return told.read_text(encoding="utf-8") if told.exists() else f"a run that ended with {status}"
        return None

    def inside(self, change: Change, original: bytes, tests: dict[str, float], numba: Path) -> int:
        """Give functions their changed code and run tests; only in a fork of the session that has collected them."""
        path = str(self.folder / change.path)
        old = {code: key for key, code in codes(compile(original, path, "exec"))}
        new = dict(codes(compile(change.apply(original), path, "exec")))
        for function in self.functions[path]:
            key = old.get(function.__code__)
            if key in new and new[key] != function.__code__:
                try:
                    function.__code__ = new[key]
                except ValueError:  # a guard was all that used a name of the function around: tried anew
                    return 0
        os.environ["NUMBA_CACHE_DIR"] = str(numba)  # for the processes that tests start
        runner = self.runner
        assert runner is not None
        runner.usual = tests
        runner.run(self.session, ordered([self.items[name] for name in tests if name in self.items], tests))
        return int(self.runner.told.exists())

    def forget(self, change: Change, numba: Path) -> None:
        """Copy what is compiled, without the loops of a module and of those that name it."""
        shutil.rmtree(numba, ignore_errors=True)
        if self.numba.exists():
            shutil.copytree(self.numba, numba, copy_function=os.link)
        word = Path(change.path).stem
        stems = {word} | {
            path.stem
            for path in (self.folder / _CORE).rglob("*.py")
            if re.search(rf"\b{word}\b", path.read_text(encoding="utf-8"))
        }
        for path in numba.rglob("*.nbi"):
            if path.name.partition(".")[0] in stems:
                path.unlink()


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
    drawn: dict[str, list[Change]] = defaultdict(list)
    for area, change in draw(arguments):
        drawn[area].append(change)
    if not arguments.list:
        preload()
    for area, changes in drawn.items():
        found = ((change, None, 0.0) for change in changes)
        for change, by, spent in found if arguments.list else Copy(area, bare=arguments.bare).noticed(changes):
            where = f"{change.path}:{change.line}: {change.what}"
            if not arguments.list:
                where = "   ".join([f"noticed by {by}" if by else "NOT NOTICED", f"{spent:.1f} s", where])
                results.append({"area": area, "by": by} | asdict(change))
            print(where, flush=True)
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
