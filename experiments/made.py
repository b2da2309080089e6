"""What a study was made by: a digest of its own code, settings included, that wording and other studies leave alone.

A study that is finished stays when a run goes on, unless its setting was changed since. Settings are numbers in the
code, so the code is compared: the study's function and all that it names, here and in other modules of the experiments,
without docstrings and prose. What the library computes is not part of it: its own tests hold that.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[1]
_FRAME = "experiments.frame"  # how studies are written down is no setting
_WHOLE = "*"  # all of a module


def digest(study: Callable[..., Any]) -> str:
    """Return the digest of a study's code."""
    own = inspect.unwrap(study)
    seen: dict[tuple[Path, str], str] = {}
    _follow(Path(inspect.getfile(own)).resolve(), own.__name__, seen)
    found = "\n".join(f"{path.stem}.{name}: {code}" for (path, name), code in sorted(seen.items()))
    return hashlib.sha256(found.encode()).hexdigest()[:16]


def _follow(path: Path, name: str, seen: dict[tuple[Path, str], str]) -> None:
    """Note the code of a name in a file, and of all that it names in turn."""
    if (path, name) in seen:
        return
    known = _names(path)
    nodes = [node for every in known.values() for node in every] if name == _WHOLE else known.get(name, [])
    seen[path, name] = "\n".join(_code(node) for node in nodes if not isinstance(node, ast.ImportFrom | ast.Import))
    for node in nodes:
        if isinstance(node, ast.ImportFrom | ast.Import):
            for other, wanted in _elsewhere(node, name):
                _follow(other, wanted, seen)
        else:
            for used in {own.id for own in ast.walk(node) if isinstance(own, ast.Name)} & known.keys():
                _follow(path, used, seen)


@cache
def _names(path: Path) -> dict[str, list[ast.stmt]]:
    """Return the statements of a module that give a name its meaning."""
    known: dict[str, list[ast.stmt]] = {}
    for node in ast.parse(path.read_text("utf-8")).body:
        for name in _given(node):
            known.setdefault(name, []).append(node)
    return known


def _given(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement gives."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from ((alias.asname or alias.name).partition(".")[0] for alias in node.names)
    else:
        for own in ast.walk(node):
            if isinstance(own, ast.Name) and isinstance(own.ctx, ast.Store):
                yield own.id


def _elsewhere(node: ast.ImportFrom | ast.Import, name: str) -> Iterator[tuple[Path, str]]:
    """Yield the files of the experiments that an import reads, and which name of each is wanted."""
    for alias in node.names:
        if name not in (_WHOLE, (alias.asname or alias.name).partition(".")[0]):
            continue
        module = node.module or "" if isinstance(node, ast.ImportFrom) else alias.name
        if not module.startswith("experiments") or module == _FRAME:
            continue
        if isinstance(node, ast.ImportFrom) and (inner := _file(f"{module}.{alias.name}")):
            if f"{module}.{alias.name}" != _FRAME:
                yield inner, _WHOLE
        elif outer := _file(module):
            yield outer, alias.name if isinstance(node, ast.ImportFrom) else _WHOLE


def _file(module: str) -> Path | None:
    place = _ROOT.joinpath(*module.split("."))
    return next((path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()), None)


class _Quiet(ast.NodeTransformer):
    """Takes prose out of code: docstrings, texts of several words, the words around a sentence's numbers."""

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        prose = isinstance(node.value, str) and len(node.value.split()) > 2
        return ast.Constant("") if prose else node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        """Keep the numbers that are written into a sentence, and not how."""
        words = " ".join(str(part.value) for part in node.values if isinstance(part, ast.Constant)).split()
        if len(words) <= 2:
            return self.generic_visit(node)
        told = [self.visit(part.value) for part in node.values if isinstance(part, ast.FormattedValue)]
        return ast.Tuple(told, ast.Load())


def _code(node: ast.stmt) -> str:
    quiet = _Quiet().visit(ast.parse(ast.unparse(node)))
    for own in ast.walk(quiet):
        if (
            isinstance(own, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef)
            and ast.get_docstring(own) is not None
        ):
            own.body = own.body[1:] or [ast.Pass()]
    return ast.unparse(ast.fix_missing_locations(quiet))
