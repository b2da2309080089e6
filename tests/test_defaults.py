"""Defaults are promises: what every exported function and class does when it is not told otherwise, in one table.

A default that changes changes what people run, so it is changed here too: python tests/test_defaults.py writes the
table anew. Names that are not there any more, or not yet, are left alone.
"""

from __future__ import annotations

import ast
import json
import re
from collections import defaultdict
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "noisette"
TABLE = Path(__file__).with_name("defaults.json")


def exported() -> set[str]:
    """Return all names that some package shows."""
    texts = [
        path.read_text(encoding="utf-8") for path in SOURCE.rglob("__init__.py*") if path.suffix in (".py", ".pyi")
    ]
    return {name for text in texts for name in re.findall(r"\b[A-Za-z]\w+", text)}


def defaults() -> dict[str, str]:
    """Return the plain defaults of exported functions, and of fields and methods of exported classes."""
    found: dict[str, set[str]] = defaultdict(set)
    shown = exported()

    def note(name: str, value: ast.expr | None) -> None:
        sign = isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub)
        if isinstance(value.operand if sign else value, ast.Constant):
            found[name].add(ast.unparse(value))

    def function(node: ast.FunctionDef | ast.AsyncFunctionDef, owner: str = "") -> None:
        given = node.args.posonlyargs + node.args.args
        pairs = list(zip(given[len(given) - len(node.args.defaults) :], node.args.defaults, strict=True))
        pairs += zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
        for argument, value in pairs:
            note(f"{owner}{node.name}({argument.arg})", value)

    for path in SOURCE.rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in shown:
                function(node)
            elif isinstance(node, ast.ClassDef) and node.name in shown:
                for part in node.body:
                    if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                        note(f"{node.name}.{part.target.id}", part.value)
                    elif isinstance(part, ast.FunctionDef) and (part.name == "__init__" or part.name[0] != "_"):
                        function(part, f"{node.name}.")
    return {name: ", ".join(sorted(values)) for name, values in sorted(found.items())}


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
    kinds = {type(ast.literal_eval(value)) for value in promised.values()}
    assert {bool, int, float, str, type(None)} <= kinds


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
