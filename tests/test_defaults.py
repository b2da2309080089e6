"""Defaults are promises: what every function and class does when it is not told otherwise, in one table.

A default that changes changes what people run, so it is changed here too: python tests/test_defaults.py writes the
table anew. Names that are not there any more, or not yet, are left alone; so are names that begin with an underscore,
but for classes of whose methods a public one inherits.
"""

from __future__ import annotations

import ast
import json
from collections import defaultdict
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "noisette"
TABLE = Path(__file__).with_name("defaults.json")


def is_plain(value: ast.expr) -> bool:
    """Tell whether a default says what it is where it stands: a constant, or numbers such as 4 * 2**20 in a call."""
    parts = list(ast.walk(value))
    numbers = [part.value for part in parts if isinstance(part, ast.Constant) and not isinstance(part.value, str)]
    return isinstance(value, ast.Constant) or bool(numbers)


def defaults() -> dict[str, str]:
    """Return the plain defaults of functions, and of fields and methods of classes."""
    found: dict[str, set[str]] = defaultdict(set)

    def note(name: str, value: ast.expr | None) -> None:
        if value is not None and is_plain(value):
            found[name].add(ast.unparse(value))

    def function(node: ast.FunctionDef | ast.AsyncFunctionDef, owner: str = "") -> None:
        given = node.args.posonlyargs + node.args.args
        pairs = list(zip(given[len(given) - len(node.args.defaults) :], node.args.defaults, strict=True))
        pairs += zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
        for argument, value in pairs:
            note(f"{owner}{node.name}({argument.arg})", value)

    for path in SOURCE.rglob("*.py"):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        public = [node for node in body if isinstance(node, ast.ClassDef) and node.name[0] != "_"]
        bases = {ast.unparse(base) for node in public for base in node.bases}  # what they inherit is public too
        for node in body:
            if (name := getattr(node, "name", "_"))[0] == "_" and name not in bases:
                continue
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                function(node)
            elif isinstance(node, ast.ClassDef):
                for part in node.body:
                    if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                        note(f"{node.name}.{part.target.id}", part.value)
                    elif isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) and (
                        part.name == "__init__" or part.name[0] != "_"
                    ):
                        function(part, f"{node.name}.")
    return {name: ", ".join(sorted(values)) for name, values in sorted(found.items())}


def test_what_a_public_class_inherits_is_public() -> None:
    """The twin: how a client of a shuffler is built, and how a number is coded, is in the table by its private base."""
    promised = json.loads(TABLE.read_text(encoding="utf-8"))
    assert promised["_ThroughShuffler.__init__(minimum)"] == "0"
    assert promised["_OneNumber.code(clip)"] == "False"


@pytest.mark.long
def test_defaults_are_the_ones_in_the_table() -> None:
    promised, now = json.loads(TABLE.read_text(encoding="utf-8")), defaults()
    changed = {
        name: (promised[name], now[name]) for name in promised.keys() & now.keys() if promised[name] != now[name]
    }
    assert not changed, f"{changed}: if that is meant, say so in a changelog fragment and write the table anew"
    assert len(promised.keys() & now.keys()) > 300


def test_a_switched_default_would_show() -> None:
    """The twin: defaults of every kind are in the table."""
    promised = json.loads(TABLE.read_text(encoding="utf-8"))
    values = [ast.parse(value, mode="eval").body for value in promised.values()]
    kinds = {type(value.value) for value in values if isinstance(value, ast.Constant)}
    assert {bool, int, float, str, type(None)} <= kinds
    assert {ast.BinOp, ast.Call} <= {type(value) for value in values}


@pytest.mark.slow
def test_private_fields_are_no_arguments() -> None:
    """What a dataclass keeps for itself cannot be given, and its constructor shows none of it."""
    seen, given = 0, []
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and any("dataclass" in ast.unparse(one) for one in node.decorator_list):
                fields = [part for part in node.body if isinstance(part, ast.AnnAssign)]
                own = [part for part in fields if ast.unparse(part.target)[0] == "_" != ast.unparse(part.target)]
                own = [part for part in own if "ClassVar" not in ast.unparse(part.annotation)]
                seen += len(own)
                given += [f"{node.name}: {text}" for part in own if "init=False" not in (text := ast.unparse(part))]
    assert seen > 5
    assert not given


if __name__ == "__main__":
    TABLE.write_text(json.dumps(defaults(), indent=0) + "\n", encoding="utf-8")
