"""Change the code at random and see whether the tests notice.

make mutate                                   13 changes in each of six areas
make mutate ARGS="--area accounting --sample 30 --seed 5"
make mutate ARGS="--only src/noisette/mechanisms/tensor/gaussian/_loops.py:41"      every change of one line

Each change is one that a tired person might make: a comparison that is off by its edge, a guard dropped, a sign, a
constant off by one, `.all` for `.any`, a default switched. It is made in a copy of the repository, and the tests that
concern the module run first, then those of its area. A change that breaks nothing is printed: either a test is missing,
or the change means nothing (then it is equivalent, which only a person can tell). The seed decides the sample, so a
result can be repeated; a new seed draws new changes.

A run of the tests that takes more than five times as long as without a change counts as noticed: the change has made
an endless loop. The result goes to .venv/mutants.json, and with --write into the table of CONTRIBUTING.md.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "CONTRIBUTING.md"
BEGIN, END = "<!-- mutants: begin -->", "<!-- mutants: end -->"
PATIENCE = 5.0  # times the run without a change, and a minute for what every run does once
_CORE = "src/noisette/"

# What each area is made of, and which tests are about it.
AREAS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "scalar and categorical": (
        ("mechanisms/scalar", "mechanisms/categorical", "mechanisms/_base.py", "core.py", "cells.py", "_random.py"),
        ("tests/mechanisms/scalar", "tests/mechanisms/categorical", "tests/test_core.py", "tests/test_random.py"),
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
            "tests/mechanisms/tensor",
            "tests/mechanisms/vector",
            "tests/mechanisms/graded",
            "tests/mechanisms/geometric",
            "tests/aggregation",
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

    def apply(self, source: bytes) -> bytes:
        """Return the changed source."""
        return source[: self.start] + self.new.encode() + source[self.end :]


class _Sites(ast.NodeVisitor):
    """Finds the places of a file where a change is possible."""

    def __init__(self, path: str, source: bytes) -> None:
        self.path, self.source, self.found = path, source, list[Change]()
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
        start, end = self.span(node)
        self.found.append(Change(self.path, node.lineno, start, end, new, what))

    def between(self, left: ast.expr, right: ast.expr, new: str, node: ast.expr) -> None:
        """Note a change of the operator between two operands."""
        start, end = self.span(left)[1], self.span(right)[0]
        gap = self.source[start:end].decode()
        old = gap.strip("() \n\\")
        if old and "#" not in gap:
            at = start + len(gap[: gap.index(old)].encode())
            what = f"{old} -> {new} in {self.text(node)[:60]!r}"
            self.found.append(Change(self.path, node.lineno, at, at + len(old.encode()), new, what))

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
            self.found.append(
                Change(
                    self.path, node.lineno, end - len(name), end, new, f"{name} -> {new} in {self.text(node)[:60]!r}"
                )
            )
        self.generic_visit(node)

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
        for part in node.body:
            self.visit(part)

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
    return sorted(path for start in found for path in (start.rglob("*.py") if start.is_dir() else [start]))


def tests_of(module: str, area: str) -> list[str]:
    """Return the tests of an area, those that concern a module first: by their name, or since they import it."""
    path = Path(module)
    dotted = ".".join(path.with_suffix("").parts[1:]).removesuffix(".__init__")
    own = path.stem.lstrip("_")
    folder = dotted.split(".")[-2] if path.stem != "__init__" else dotted.split(".")[-1]
    candidates = [
        str(test.relative_to(ROOT))
        for start in AREAS[area][1]
        for test in ([ROOT / start] if (ROOT / start).is_file() else sorted((ROOT / start).rglob("test_*.py")))
    ]
    attacks = [str(test.relative_to(ROOT)) for test in sorted((ROOT / "tests" / "attacks").glob("test_*.py"))]

    def nearness(test: str) -> int:
        text = (ROOT / test).read_text(encoding="utf-8")
        named = own in Path(test).stem or bool(re.search(rf"\b{re.escape(dotted)}\b", text))
        return 0 if named else 1 if f"/{folder}/" in test else 2

    relevant = [
        test
        for test in attacks
        if re.search(rf"\b({re.escape(dotted)}|{re.escape(folder)})\b", (ROOT / test).read_text())
    ]
    return [module, *sorted(candidates, key=nearness), *relevant]


class Copy:
    """A copy of the repository in which changes are made."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        told = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for name in told.splitlines():
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)
        self.environment = os.environ | {
            "PYTHONPATH": str(folder / "src"),
            "OMP_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "NUMBA_CACHE_DIR": str(folder / "numba"),
        }
        self.quiet: dict[str, float] = {}

    def run(self, test: str, limit: float | None) -> tuple[bool, float]:
        """Run one file of tests and tell whether it passes, and how long it took."""
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-x",
            "-q",
            "--no-header",
            "-p",
            "no:cacheprovider",
            "--tier=test",
            test,
        ]
        start = time.monotonic()
        try:
            done = subprocess.run(
                command, cwd=self.folder, env=self.environment, capture_output=True, timeout=limit, check=False
            )
        except subprocess.TimeoutExpired:
            return False, time.monotonic() - start
        return done.returncode in (0, 5), time.monotonic() - start  # 5: there is nothing to run in it

    def unchanged(self, test: str) -> float:
        """Return how long a file of tests takes without a change; infinity where it fails, so that it is left out."""
        if test not in self.quiet:
            passes, spent = self.run(test, None)
            self.quiet[test] = spent if passes else float("inf")
        return self.quiet[test]

    def noticed(self, change: Change, area: str) -> str | None:
        """Return the first file of tests that fails under a change, or None."""
        target = self.folder / change.path
        original = target.read_bytes()
        for test in tests_of(change.path, area):
            usual = self.unchanged(test)
            if usual == float("inf"):
                continue
            target.write_bytes(change.apply(original))
            try:
                passes, _ = self.run(test, 60 + PATIENCE * usual)
            finally:
                target.write_bytes(original)
            if not passes:
                return test
        return None


def draw(arguments: argparse.Namespace) -> Iterator[tuple[str, Change]]:
    """Yield areas and changes of the sample."""
    if arguments.only:
        name, _, line = arguments.only.partition(":")
        area = next(area for area in AREAS if ROOT / name in files(area))
        chosen = [change for change in sites(ROOT / name) if not line or change.line == int(line)]
        yield from ((area, change) for change in chosen if is_program(change))
        return
    areas = [area for area in AREAS if not arguments.area or arguments.area in area]
    for area in areas:
        every = [change for path in files(area) for change in sites(path)]
        random.Random(arguments.seed).shuffle(every)
        yield from ((area, change) for change in islice(filter(is_program, every), arguments.sample))


def page(results: list[dict[str, object]], seed: int) -> str:
    """Return the result as Markdown."""
    lines = ["| area | changes | noticed | % |", "| --- | ---: | ---: | ---: |"]
    for area in AREAS:
        own = [result for result in results if result["area"] == area]
        seen = sum(result["by"] is not None for result in own)
        if own:
            lines.append(f"| {area} | {len(own)} | {seen} | {100 * seen / len(own):.0f} |")
    left = [f"- `{r['path']}:{r['line']}`: {r['what']}" for r in results if r["by"] is None]
    return "\n".join(
        [f"Seed {seed}.", "", *lines, "", *(["Unnoticed, equivalent ones included:", "", *left] if left else [])]
    )


def main() -> None:
    """Draw changes, make them one by one, and say what was noticed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--area", help="part of an area's name; all areas by default")
    parser.add_argument("--sample", type=int, default=13, help="changes in each area")
    parser.add_argument("--seed", type=int, default=17, help="of the sample")
    parser.add_argument("--only", metavar="FILE[:LINE]", help="every change of a file, or of one line of it")
    parser.add_argument("--list", action="store_true", help="print the changes and make none")
    parser.add_argument("--write", action="store_true", help="write the table into CONTRIBUTING.md")
    arguments = parser.parse_args()
    results: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory(prefix="noisette-mutants-") as folder:
        copy = None if arguments.list else Copy(Path(folder))
        for area, change in draw(arguments):
            where = f"{change.path}:{change.line}: {change.what}"
            if copy is None:
                print(where)
                continue
            by = copy.noticed(change, area)
            print("noticed by " + by if by else "NOT NOTICED", where, sep="   ", flush=True)
            results.append({"area": area, "by": by} | asdict(change))
    if results:
        Path(ROOT / ".venv").mkdir(exist_ok=True)
        (ROOT / ".venv" / "mutants.json").write_text(json.dumps(results, indent=1), encoding="utf-8")
        print(page(results, arguments.seed))
    if results and arguments.write:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        text = f"{before}{BEGIN}\n{page(results, arguments.seed)}\n{END}{rest.partition(END)[2]}"
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
