"""Change the code at random and see whether the tests notice.

make mutate                                   13 changes in each of six areas
make mutate ARGS="--area accounting --sample 30 --seed 5"
make mutate ARGS="--only src/noisette/mechanisms/tensor/gaussian/_loops.py:41"      every change of one line
make mutate ARGS="--list --seed 5"            which changes a seed draws; none is made
make mutate ARGS="--guards --area services"   changes of conditions behind which an error is raised, and guards dropped
make mutate ARGS="--guards --only src/noisette/shuffler"     all of them in a folder

Each change is one that a tired person might make: a comparison that is off by its edge, a guard dropped, a sign, a
constant off by one, `.all` for `.any`, a default switched. It is made in a copy of the repository, kept in
.venv/mutants with what was compiled there, one for each area.

Tests are collected once. Before anything is changed the quick ones run, file by file and the nearest files first, with
a probe at every line that is going to be changed: so it is known which tests execute it, and what each takes. A change
inside a function is then made in a fork of that process, by giving the function other code, and the tests that execute
it run, the nearest and quickest first; then others of their files, then quick ones of any other file that speaks of the
package, and at last slow ones. A change that is read at import, or that is in a compiled loop, and a change that
nothing noticed, is tried in a process that imports the module anew.

A change that breaks nothing is printed: either a test is missing, or the change means nothing. Only a person can tell;
who finds one of the second kind adds it with the reason to scripts/equivalent.toml, and it is drawn no more. The seed
decides the sample, so a result can be repeated: other code moves no change in or out of it; a new seed draws new ones.

Tests that drive a browser are left out, so the score errs on the low side.

A test that takes five times as much processor time as it took without a change, and ten seconds more, has noticed it:
the change has made an endless loop. So has a run that takes twenty minutes. The result goes to .venv/mutants.json, and
with --write into the table of CONTRIBUTING.md, beside those of other areas that the same seed has given there.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import fcntl
import functools
import gc
import hashlib
import importlib
import io
import json
import os
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
LONGEST = 40.0  # seconds of tests of one kind: what would come after them is not run
REST = 20.0  # the same of tests that execute another line, or that have run before
TABLES = ("tests/test_defaults.py", "tests/test_limits.py")  # they read modules and execute none
UNKNOWN = 6.0  # seconds that a test may take which has not been recorded
HIT = "__noisette_hit__"  # what a probe calls
APART = -1  # a probe's number for a process that a test starts, which may execute anything
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
_PRECISION = {"tolerance", "absolute"}  # to how many digits a search goes on

# Tests about mechanisms of every kind.
WHOLE_CATALOGUE = tuple(
    f"tests/mechanisms/test_{name}.py"
    for name in (
        "array_edges",
        "catalogue_specs",
        "catalogue_bounds",
        "edges",
        "exact_moments",
        "many_values",
        "one_entry",
        "refusals",
        "margins",
        "said",
        "units",
    )
)

# What each area is made of, and which tests are about it.
AREAS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "scalar and categorical": (
        ("mechanisms/scalar", "mechanisms/categorical", "mechanisms/_base.py", "core.py", "cells.py", "_random.py"),
        (
            "tests/mechanisms/scalar",
            "tests/mechanisms/categorical",
            *WHOLE_CATALOGUE,
            "tests/mechanisms/test_held.py",
            "tests/test_core.py",
            "tests/test_random.py",
            "tests/test_testing.py",
        ),
    ),
    "services": (
        ("collector", "device", "survey", "shuffler", "_service.py"),
        ("tests/collector", "tests/device", "tests/survey", "tests/shuffler"),
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
            *WHOLE_CATALOGUE,
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
    guard: bool = False  # whether it is in a condition behind which nothing but an error is raised

    def apply(self, source: bytes) -> bytes:
        """Return the changed source."""
        return source[: self.start] + self.new.encode() + source[self.end :]


class _Sites(ast.NodeVisitor):
    """Finds the places of a file where a change is possible."""

    def __init__(self, path: str, source: bytes) -> None:
        self.path, self.source, self.found = path, source, list[Change]()
        self.statement: ast.stmt | None = None
        self.spared = frozenset[int]()  # numbers that say nothing
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
        if id(node) in self.spared:
            return
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
        # in reshape(-2, 3) as in reshape(-1, 3) the negative size is the one that is left over: its number says nothing
        parts = {id(one.operand) for one in ast.walk(node) if name == "reshape" and isinstance(one, ast.UnaryOp)}
        outer, self.spared = self.spared, self.spared | parts
        self.generic_visit(node)
        self.spared = outer

    def visit_keyword(self, node: ast.keyword) -> None:
        number = node.value.value if isinstance(node.value, ast.Constant) else None
        spared = node.arg == "copy" and number is False  # a copy too many costs time alone
        # a search that ends a quarter of a billionth earlier or later finds the same to all digits that are compared
        spared |= node.arg in _PRECISION and isinstance(number, float) and number <= 1e-8
        if node.arg not in _FORMAL and not spared:
            self.visit(node.value)

    def visit_If(self, node: ast.If) -> None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        before = len(self.found)
        self.visit(node.test)
        if not node.orelse and all(isinstance(part, ast.Raise) for part in node.body):
            self.add(node, "pass", f"dropped the guard {self.text(node.test)[:60]!r}")
            self.found[before:] = [replace(change, guard=True) for change in self.found[before:]]
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
        """Leave the list of public names alone, and a constant of which its line says: so much at a time."""
        line = self.source[self.offsets[node.lineno - 1] : self.offsets[node.lineno]].decode()
        spared = not self.inside and isinstance(node.targets[0], ast.Name) and re.search(r"#.*\bat a time\b", line)
        if not spared and ast.unparse(node.targets[0]) != "__all__":
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

    First those that name it and its own doctests, then those of its folder and the attacks on it, then all others
    that speak of its package, or of the mechanism.
    """
    path = Path(module)
    dotted = ".".join(path.with_suffix("").parts[1:]).removesuffix(".__init__")
    own, folders = path.stem.lstrip("_"), set(dotted.split(".")) - {"noisette", "mechanisms"}
    parent, _, last = map(re.escape, dotted.rpartition("."))
    imported = rf"\b{re.escape(dotted)}\b|\bfrom {parent} import (\([^)]*|[^\n]*)\b{last}\b"
    attack = rf"noisette(\.| import .*\b)({'|'.join(sorted(folders))})\b"
    tests = [
        test
        for start in (*AREAS[area][1], "tests/attacks", "tests/test_safe_sides.py")
        for test in ([ROOT / start] if (ROOT / start).is_file() else sorted((ROOT / start).rglob("test_*.py")))
    ]
    groups: list[list[str]] = [[module] if ">>> " in (ROOT / module).read_text(encoding="utf-8") else [], [], []]
    groups[0] += [test for test in TABLES if (ROOT / test).is_file()]
    for test in tests:
        text = test.read_text(encoding="utf-8")
        named = own in test.stem or re.search(imported, text)
        name = str(test.relative_to(ROOT))
        if named or folders & set(Path(name).parts) or name in AREAS[area][1] or re.search(attack, text):
            groups[0 if named else 1].append(name)
    package, *_ = dotted.split(".")[1:] if "mechanisms" not in dotted else [own or path.parent.name]
    word, known = r"(?i)\b" + re.sub(r"(?<=\w)_", ".?", package) + r"\b", {*groups[0], *groups[1]}
    texts = {test: test.read_text(encoding="utf-8") for test in sorted((ROOT / "tests").rglob("test_*.py"))}
    groups[2] = [str(test.relative_to(ROOT)) for test, text in texts.items() if re.search(word, text)]
    groups[2] = [name for name in groups[2] if name not in known]
    return groups


class _Runner:
    """A plugin of pytest: tells which test failed, what each took, and gives up on one that takes too long.

    With a task it runs nothing itself: the task gets the session when all is collected. Without, it runs the given
    tests, the quickest file first, until one fails or they have taken long enough.
    """

    def __init__(self, told: Path, usual: dict[str, float], *, task: Callable[[Any], None] | None = None) -> None:
        self.told, self.usual, self.task = told, usual, task
        self.end = time.process_time() + 2 * LONGEST + REST
        # while tests are recorded: the probes that were reached by this test, by what its file keeps, and by each test
        self.hits: set[int] | None = None
        self.kept, self.executed = set[int](), dict[str, tuple[float, list[int]]]()

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        if self.usual:
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
        self.began, self.bad = sum(os.times()[:4]), False
        if self.hits is not None:
            self.hits.clear()
            return
        signal.signal(signal.SIGPROF, lambda *_: self.give_up(nodeid))
        signal.setitimer(signal.ITIMER_PROF, 10 + PATIENCE * self.usual.get(nodeid, UNKNOWN))

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.bad |= report.outcome != "passed"
        if report.failed:
            self.note(report.nodeid)
        if report.when == "setup" and self.hits:  # a fixture may serve the whole file
            self.kept |= self.hits

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        if self.hits is not None:
            if not self.bad:  # processor time: on a busy machine a test is as quick as on a quiet one
                self.executed[nodeid] = sum(os.times()[:4]) - self.began, sorted(self.hits | self.kept)
        elif time.process_time() > self.end and self.task is None and not self.told.exists():
            os._exit(0)

    def run(self, session: Any, items: list[Any]) -> None:
        """Run collected tests, until one fails unless all are recorded; only in a fork."""
        end, late = time.process_time() + LONGEST, time.monotonic() + 10 * LONGEST
        for item, following in zip(items, [*items[1:], None], strict=False):
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.hits is None and (self.told.exists() or time.process_time() > end or time.monotonic() > late):
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


def is_quick(item: Any) -> bool:
    """Tell whether a collected test is marked neither slow nor long."""
    return not (item.get_closest_marker("slow") or item.get_closest_marker("long"))


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


def aliases(names: set[str], source: str) -> set[str]:
    """Return names with those that a module gives to what is made of them: fill = njit(_fill)."""
    found = set(names)
    for _ in range(3):
        for part in ast.parse(source).body:
            if isinstance(part, ast.Assign) and any(
                isinstance(inner, ast.Name) and inner.id in found for inner in ast.walk(part.value)
            ):
                found |= {inner.id for one in part.targets for inner in ast.walk(one) if isinstance(inner, ast.Name)}
    return found


def is_compiled(name: str, source: str) -> bool:
    """Tell whether a function of a source is a loop that is compiled."""
    word = re.escape(name)
    return bool(name) and bool(
        re.search(rf"(compiled|njit\(.*\))\({word}\b|@(compiled|njit).*\n(async )?def {word}\b", source)
    )


class _Probes(ast.NodeTransformer):
    """Puts a call before statements inside functions, unless these are compiled, and tells which it could not reach."""

    def __init__(self, source: str, places: dict[int, set[int]]) -> None:
        self.source, self.places, self.depth = source, places, 0

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if not is_compiled(node.name, self.source):
            self.depth += 1
            self.generic_visit(node)
            self.depth -= 1
        return node

    visit_AsyncFunctionDef = visit_FunctionDef

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for field in ("body", "orelse", "finalbody") if self.depth else ():
            lines = getattr(node, field, None)
            if isinstance(lines, list):
                setattr(node, field, [new for line in lines for new in self.with_probe(line)])
        return node

    def with_probe(self, line: ast.stmt) -> list[ast.stmt]:
        """Return a statement, after its probe if it has one."""
        numbers = self.places.get(line.lineno)
        if not numbers:
            return [line]
        probe = ast.parse(f"{HIT}({sorted(numbers)})").body[0]
        for part in ast.walk(probe):
            if isinstance(part, ast.stmt | ast.expr):
                part.lineno = part.end_lineno = line.lineno
                part.col_offset = part.end_col_offset = line.col_offset
        return [probe, line]


class Copy:
    """A copy of the repository in which changes are made; it is kept, with what was compiled there."""

    def __init__(self, area: str) -> None:
        self.area, self.work = area, KEPT / area.replace(" ", "-").replace(",", "")
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
        self.recorded = dict[str, dict[str, tuple[float, list[int]]]]()  # by file and test
        self.probes = dict[str, dict[int, set[int]]]()  # by module and line
        self.tried = 0
        self.known = dict[str, bool]()
        self.names = dict[Change, set[str]]()  # what an early change is used by
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
        options += ["-q", "--no-header", "-p", "no:cacheprovider", "-p", "no:xdist", "--tier=all", "--tb=short", "-s"]
        return int(pytest.main([*options, *paths], plugins=[runner]))

    def noticed(self, changes: list[Change]) -> Iterator[tuple[Change, str | None, float]]:
        """Yield each change, the test that fails under it, or None, and the seconds that it took.

        Tests are collected once. A change inside a function is made there, in a fork, by other code for that function;
        what is executed at import or compiled, and at last what is left, is tried in processes that import it anew.
        """
        found = self.work / "noticed.json"
        found.write_text("", encoding="utf-8")
        start = time.monotonic()
        tables = [test for test in TABLES if (ROOT / test).is_file()]
        for change in [change for change in changes if change.at_import and tables]:
            own = (by for test in tables if (by := self.fails(change, {}, [test])) and self.sound(change, by))
            if by := next(own, None):
                yield change, by, time.monotonic() - start
                changes = [other for other in changes if other != change]
            start = time.monotonic()
        groups = [group for change in changes for group in tests_of(change.path, self.area)]
        paths = sorted({test for group in groups for test in group})
        runner = _Runner(self.work / "failed", {}, task=lambda session: self.serve(session, runner, changes, found))
        forked(lambda: self.pytest(runner, paths, self.numba), self.work / "log-server", 100 * WAIT)
        lines = found.read_text(encoding="utf-8").splitlines()
        if len(lines) < len(changes):
            sys.exit((self.work / "log-server").read_text(encoding="utf-8")[-4000:])
        for change, (by, tests, spent) in zip(changes, map(json.loads, lines), strict=True):
            start = time.monotonic()
            if by is None:
                by = self.anew(change, tests)
            yield change, by, spent + time.monotonic() - start

    def is_early(self, change: Change) -> bool:
        """Tell whether a change is made before a function is called: at import, or when a loop is compiled."""
        return change.at_import or self.compiled(change)

    def compiled(self, change: Change) -> bool:
        """Tell whether a change is in a loop that is compiled."""
        return is_compiled(change.inside, (self.folder / change.path).read_text(encoding="utf-8"))

    def serve(self, session: Any, runner: _Runner, changes: list[Change], found: Path) -> None:
        """Try each change in forks of a session that has collected all tests; write down what fails, or what to try."""
        # in a fork a browser's driver does not start, and a test would wait for it to the end of its patience
        session.items[:] = [item for item in session.items if "browser" not in getattr(item, "fixturenames", ())]
        self.session, self.runner = session, runner
        self.items = {item.nodeid: item for item in session.items}
        for number, change in enumerate(changes):
            for path, lines in self.lines(change).items():
                for line in lines:
                    self.probes.setdefault(path, {}).setdefault(line, set()).add(number)
        for path in self.probes:  # many are imported by what uses them alone
            with suppress(Exception):
                importlib.import_module(".".join(Path(path).with_suffix("").parts[1:]).removesuffix(".__init__"))
        gc.unfreeze()
        self.functions: dict[str, list[FunctionType]] = defaultdict(list)
        things = gc.get_objects()
        for thing in things:
            if type(thing) is FunctionType and _CORE in thing.__code__.co_filename:
                self.functions[thing.__code__.co_filename].append(thing)
        # what was kept while tests were collected would hide a change of how it is found
        caches = [thing for thing in things if type(thing) is functools._lru_cache_wrapper]
        self.caches = [cache for cache in caches if cache.__module__.startswith("noisette")]
        gc.freeze()
        for number, change in enumerate(changes):
            start = time.monotonic()
            by, tried = None, list[dict[str, float]]()
            for stage in self.stages(number, change):
                tried.append(stage)
                if not self.is_early(change) and (by := self.fails(change, stage, [])) and self.sound(change, by):
                    break
                by = None
            tests = {name: seconds for stage in reversed(tried) for name, seconds in stage.items()}
            with found.open("a", encoding="utf-8") as out:
                print(json.dumps((by, tests, time.monotonic() - start)), file=out)

    def anew(self, change: Change, tests: dict[str, float]) -> str | None:
        """Return the test that fails under a change, in processes that import the changed module anew."""
        tests = tests if self.is_early(change) else quickest(tests, REST)
        by = self.fails(change, tests, sorted({name.partition("::")[0] for name in tests})) if tests else None
        return by if by and self.sound(change, by) else None

    def record(self, test: str) -> dict[str, tuple[float, list[int]]]:
        """Return how long each quick test of a file takes, and which changes it executes; those that fail are out."""
        if test not in self.recorded:
            kept = self.work / "recorded.json"
            kept.unlink(missing_ok=True)
            forked(lambda: self.trace(test, kept), self.work / "log", WAIT)
            self.recorded[test] = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
            self.known |= dict.fromkeys(self.recorded[test], True)
        return self.recorded[test]

    def trace(self, test: str, kept: Path) -> int:
        """Run the quick tests of a file with probes and write down which each has reached; only in a fork."""
        runner, hits = self.runner, set[int]()
        assert runner is not None
        starts = {"subprocess.Popen", "os.fork", "os.posix_spawn"}
        setattr(builtins, HIT, hits.update)
        self.forget_results()
        for name, places in self.probes.items():
            original = (self.folder / name).read_text(encoding="utf-8")
            tree = _Probes(original, places).visit(ast.parse(original))
            self.give(name, original, tree)
        sys.addaudithook(lambda event, _: hits.add(APART) if event in starts else None)
        runner.hits = hits
        own = [item for item in self.session.items if item.nodeid.partition("::")[0] == test]
        runner.run(self.session, [item for item in own if is_quick(item)])
        kept.write_text(json.dumps(runner.executed), encoding="utf-8")
        return 0

    def give(self, name: str, original: str | bytes, changed: bytes | ast.Module) -> bool:
        """Give the functions of a module other code; tell whether that was possible. Only in a fork."""
        path = str(self.folder / name)
        old = {code: key for key, code in codes(compile(original, path, "exec", dont_inherit=True))}
        new = dict(codes(compile(changed, path, "exec", dont_inherit=True)))
        for function in self.functions[path]:
            key = old.get(function.__code__)
            if key in new and new[key] != function.__code__:
                try:
                    function.__code__ = new[key]
                except ValueError:  # a guard was all that used a name of the function around: tried anew
                    return False
        return True

    def forget_results(self) -> None:
        """Empty what functions keep of earlier calls. Only in a fork."""
        for cache in self.caches:
            cache.cache_clear()

    def lines(self, change: Change) -> dict[str, set[int]]:
        """Return the lines that tests of a change execute, by module: its own, or those that use what it defines."""
        if not self.is_early(change):
            return {change.path: {change.line}}
        source = (self.folder / change.path).read_text(encoding="utf-8")
        names, body = set[str](), set[int]()
        functions = [
            node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        for node in functions:
            if node.lineno == change.line or node.name == change.inside:
                names |= {node.name}
                body |= {node.body[-1].lineno}
        for part in ast.walk(ast.parse(source)):
            if isinstance(part, ast.Assign | ast.AnnAssign) and part.lineno == change.line and part.col_offset <= 4:
                targets = part.targets if isinstance(part, ast.Assign) else [part.target]
                names |= {inner.id for target in targets for inner in ast.walk(target) if isinstance(inner, ast.Name)}
        if not names:  # it may be used by anything
            return {change.path: {node.body[-1].lineno for node in functions}}
        names = aliases(names, source)
        self.names[change] = names
        found = {change.path: body}
        sources = {
            str(path.relative_to(self.folder)): path.read_text(encoding="utf-8")
            for path in (self.folder / _CORE).rglob("*.py")
        }
        own = Path(change.path)
        words = {own.stem if own.stem != "__init__" else own.parent.name}
        for _ in range(3):  # what is used by a compiled loop is used by what uses that
            more = set[str]()
            for name, text in sources.items():
                if any(re.search(rf"\b{word}\b", name + text) for word in words) and any(n in text for n in names):
                    used = users(names, text)
                    found[name] = found.get(name, set()) | used
                    for node in ast.walk(ast.parse(text)) if used else ():
                        if isinstance(node, ast.FunctionDef) and is_compiled(node.name, text):
                            inside = range(node.lineno, (node.end_lineno or node.lineno) + 1)
                            more |= aliases({node.name}, text) if used & set(inside) else set()
            words = words | {Path(name).stem for name, text in sources.items() if any(n in text for n in more)}
            if more <= names:
                break
            names = names | more
            self.names[change] = names
        return found

    def calls(self, test: str, change: Change) -> bool:
        """Tell whether a file of tests names what a change is early in: no probe sees it call a compiled loop."""
        names = self.names.get(change)
        return bool(names) and bool(
            re.search(rf"\b({'|'.join(map(re.escape, sorted(names)))})\b", (self.folder / test).read_text("utf-8"))
        )

    def stages(self, number: int, change: Change) -> Iterator[dict[str, float]]:
        """Yield tests that execute a change: first those of the nearest files, then those of its folder.

        Then follow the quick tests of those files that start processes or may use what another test has left, those of
        other files, and at last the slow ones, which are not recorded.
        """
        near, folder, others = tests_of(change.path, self.area)
        seen = set[str]()
        touched = list[str]()
        for tests in (near, folder):
            left = LONGEST
            for test in tests:  # file by file: what is noticed early needs no record of the others
                own = {name: spent for name, (spent, hits) in self.record(test).items() if number in hits}
                seen |= own.keys()
                touched += [test] if own else []
                if own and left > 0:
                    stage = quickest(own, left)
                    left -= sum(stage.values())
                    yield stage
        touched += [test for test in near if test not in touched and test not in TABLES]
        rest = {
            name: spent
            for test in touched
            for name, (spent, hits) in self.record(test).items()
            if name not in seen
            and (APART in hits or any(other in seen for other in self.record(test)) or self.calls(test, change))
        }
        if rest:
            yield quickest(rest, REST)
        if not (seen and self.is_early(change)):
            far = {
                name: spent for test in others for name, (spent, hits) in self.record(test).items() if number in hits
            }
            if far:
                yield quickest(far, LONGEST)
        slow = [item for item in self.session.items if not is_quick(item)]
        for tests in (near, [test for test in touched if test not in near]):
            items = [item for item in slow if item.nodeid.partition("::")[0] in {*tests} - {*TABLES}]
            for long in (False, True):
                if stage := {item.nodeid: UNKNOWN for item in items if bool(item.get_closest_marker("long")) == long}:
                    yield stage

    def sound(self, change: Change, by: str) -> bool:
        """Tell whether a test that fails under a change passes without it."""
        name = by.partition(" (")[0]
        path = name.partition("::")[0]
        if name not in self.known and (self.folder / path).is_file():
            nothing = replace(change, start=0, end=0, new="")
            here = self.session is not None
            self.known[name] = self.fails(nothing, {name: UNKNOWN}, [] if here else [path]) is None
        return self.known.get(name, True)

    def fails(self, change: Change, tests: dict[str, float], paths: list[str]) -> str | None:
        """Return the test that fails under a change, or None; of some files the given tests, or all if none is given.

        Without files, the given tests run in a fork of the session that has collected them.
        """
        target, told = self.folder / change.path, self.work / "failed"
        original, usual = target.read_bytes(), target.stat()
        told.unlink(missing_ok=True)
        self.tried += 1
        numba = self.work / "numba-changed" if re.search(rb"compiled\(|njit", original) else self.numba
        try:
            target.write_bytes(change.apply(original))
            os.utime(target, (usual.st_atime, usual.st_mtime + self.tried))
            if numba != self.numba:
                self.forget(change, numba)
            task = lambda: self.pytest(_Runner(told, tests), paths, numba)  # noqa: E731
            if not paths:
                task = lambda: self.inside(change, original, tests, numba)  # noqa: E731
            status = forked(task, self.work / "log", WAIT)
        finally:
            target.write_bytes(original)
            os.utime(target, (usual.st_atime, usual.st_mtime))
        if status not in (0, 5):  # 5: there is nothing to run in the file
            return told.read_text(encoding="utf-8") if told.exists() else f"a run that ended with {status}"
        return None

    def inside(self, change: Change, original: bytes, tests: dict[str, float], numba: Path) -> int:
        """Give functions their changed code and run tests; only in a fork of the session that has collected them."""
        if not self.give(change.path, original, change.apply(original)):
            return 0
        self.forget_results()
        os.environ["NUMBA_CACHE_DIR"] = str(numba)  # for the processes that tests start
        runner = self.runner
        assert runner is not None
        runner.usual = tests
        runner.run(self.session, ordered([self.items[name] for name in tests if name in self.items], tests))
        return int(runner.told.exists())

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


def shuffled(changes: list[Change], seed: int) -> list[Change]:
    """Return changes in the order of a seed; where one stands does not depend on what other lines say."""
    many: dict[tuple[str, ...], int] = defaultdict(int)
    places = list[tuple[str, Change]]()
    for change in changes:
        key = str(seed), change.path, change.code, change.what
        many[key] += 1
        places.append((hashlib.sha256(repr((key, many[key])).encode()).hexdigest(), change))
    return [change for _, change in sorted(places, key=lambda pair: pair[0])]


def draw(arguments: argparse.Namespace) -> Iterator[tuple[str, Change]]:
    """Yield areas and changes of the sample."""
    known = equivalent()

    def wanted(change: Change) -> bool:
        key = change.path, change.code, change.what
        return (change.guard or not arguments.guards) and key not in known

    if arguments.only:
        name, _, line = arguments.only.partition(":")
        for area in AREAS:
            own = [change for path in files(area) if path.is_relative_to(ROOT / name) for change in sites(path)]
            own = [change for change in own if (not line or change.line == int(line)) and wanted(change)]
            yield from ((area, change) for change in own if is_program(change))
        return
    areas = [area for area in AREAS if not arguments.area or arguments.area in area]
    for area in areas:
        every = [change for path in files(area) for change in sites(path) if wanted(change)]
        chosen = filter(is_program, shuffled(every, arguments.seed))
        yield from ((area, change) for change in islice(chosen, arguments.sample))


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
        told = f"{len(own)} | {seen} | {100 * seen / len(own):.0f}" if own else "0 | | not measured"
        lines.append(f"| {area} | {told} |")
    left = [f"- `{r['path']}:{r['line']}`: {r['what']}" for r in results if r["by"] is None]
    return "\n".join([f"Seed {seed}.", "", *lines, "", *(["Unnoticed:", "", *left] if left else [])])


def main() -> None:
    """Draw changes, make them one by one, and say what was noticed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--area", help="part of an area's name; all areas by default")
    parser.add_argument("--sample", type=int, default=13, help="changes in each area")
    parser.add_argument("--seed", type=int, default=17, help="of the sample")
    parser.add_argument("--only", metavar="PATH[:LINE]", help="every change of a file or folder, or of one line")
    parser.add_argument("--guards", action="store_true", help="only changes of guards: conditions of errors")
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
        for change, by, spent in found if arguments.list else Copy(area).noticed(changes):
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
