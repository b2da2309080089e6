"""Defaults and named numbers are promises: what functions and classes do when they are not told otherwise.

So are limits, slacks and tolerances, on which bounds rest: the capital names of a module, and which way each function
rounds, e.g. ``1 + 2.0**-40``. One that changes changes what people run and shows in few results, so it is changed
in the table too: python tests/test_defaults.py writes it anew. Names that are not there any more, or not yet, are left
alone.
"""

from __future__ import annotations

import ast
import json
import re
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src" / "noisette"
TABLE = Path(__file__).with_name("defaults.json")


def slacks(node: ast.AST) -> str:
    """Return the sums and products with a tiny number that a function or a class has, in their order."""

    def is_tiny(one: ast.expr) -> bool:
        power = isinstance(one, ast.BinOp) and isinstance(one.op, ast.Pow) and isinstance(one.right, ast.UnaryOp)
        named = ast.unparse(one).rpartition(".")[2] if isinstance(one, ast.Name | ast.Attribute) else ""
        number = isinstance(one, ast.Constant) and isinstance(one.value, float) and 0 < one.value < 1e-5
        return power or number or (named.isupper() and re.search("SLACK|ROUND|ULP|UNIT|ERROR|SPARE", named) is not None)

    sums = (part for part in ast.walk(node) if isinstance(part, ast.BinOp) and not isinstance(part.op, ast.Pow))
    return "; ".join(ast.unparse(part) for part in sums if is_tiny(part.left) or is_tiny(part.right))


def defaults() -> dict[str, str]:
    """Return the named numbers, the slacks, and the plain defaults of functions, fields and methods."""
    found: dict[str, set[str]] = defaultdict(set)

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
            if isinstance(node, ast.Assign) and all(isinstance(target, ast.Name) for target in node.targets):
                names = "".join(target.id for target in node.targets)
                numbers = [part for part in ast.walk(node.value) if isinstance(part, ast.Constant)]
                if names.isupper() and any(isinstance(part.value, int | float) for part in numbers):
                    found[f"{path.relative_to(SOURCE).as_posix()}: {names}"].add(ast.unparse(node.value))
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and (rounded := slacks(node)):
                found[f"{path.relative_to(SOURCE).as_posix()}: {node.name} rounds"].add(rounded)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                function(node)
            elif isinstance(node, ast.ClassDef):
                for part in node.body:
                    if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                        note(f"{node.name}.{part.target.id}", part.value)
                    elif isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
                        function(part, f"{node.name}.")
    return {name: ", ".join(sorted(values)) for name, values in sorted(found.items())}


def test_defaults_are_the_ones_in_the_table() -> None:
    promised, now = json.loads(TABLE.read_text(encoding="utf-8")), defaults()
    changed = {
        name: (promised[name], now[name]) for name in promised.keys() & now.keys() if promised[name] != now[name]
    }
    assert not changed, f"{changed}: if that is meant, say so in a changelog fragment and write the table anew"
    assert len(promised.keys() & now.keys()) > 300


def test_a_switched_default_would_show() -> None:
    """The twin: defaults of every kind are in the table, and the slack of a bound."""
    promised = json.loads(TABLE.read_text(encoding="utf-8"))
    assert promised["auditing/claims.py: _SUMMED"] == "1e-06"
    assert slacks(ast.parse("def f(x): return x * (1 + 2.0**-40)")) == "1 + 2.0 ** (-40)"
    assert slacks(ast.parse("def f(x): return x * (1 - 1e-9) + y")) == "1 - 1e-09"
    assert slacks(ast.parse("def f(x): return x - _SLACK * y")) == "_SLACK * y"
    kinds = {type(ast.literal_eval(value)) for name, value in promised.items() if ": " not in name}
    assert {bool, int, float, str, type(None)} <= kinds


if __name__ == "__main__":
    TABLE.write_text(json.dumps(defaults(), indent=0) + "\n", encoding="utf-8")
