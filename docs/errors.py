"""The index of errors: every message that Noisette shows, read from its source while mkdocs builds the site."""

import ast
import builtins
import itertools
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "noisette"
SCRIPTS = ROOT / "clients" / "js" / "src"

# The rooms of src/noisette, in the order in which people meet them; what is not named here follows under its own name.
ROOMS = {
    "_validate": "Arguments",
    "domains": "Domains and values",
    "survey": "Surveys: questions, answers, reports, results",
    "mechanisms": "Mechanisms",
    "aggregation": "Files and tables",
    "prediction": "Plans",
    "enhancement": "Enhancement",
    "accounting": "Accounting and the ledger",
    "auditing": "Audits",
    "certificates": "Certificates",
    "sgd": "Private training",
    "federated": "Federation",
    "regression": "Regression",
    "device": "Devices",
    "web page": "The client for web pages",
    "collector": "The collector",
    "shuffler": "The shuffler",
    "_service": "Every service",
    "cli": "The command line",
    "demo": "The demo",
    "planner": "The planner page",
    "scale": "Clusters",
    "datasets": "Data sets of the papers",
    "core": "Aggregates and estimates",
    "guarantees": "What guarantees say",
    "testing": "The checker of mechanisms",
    "_bounded": "Intervals",
    "_random": "Randomness",
    "_secret": "Secret randomness",
    "_files": "Reading files",
    "_moved": "Names that changed",
}
# Not errors by their base, but shown to people as such: a report that the collector refuses, a warning, click's own.
SHOWN = {"Refusal", "warn", "ClickException", "UsageError", "BadParameter"}
VERBS = "add|answer|ask|build|call|choose|configure|give|leave|lower|name|open|pip|raise|rescale|seal|state|subtract"
VERBS += "|evaluate|take|tell|train|use"
ADVICE = re.compile(rf"(.*)(?:: (?=(?:{VERBS})\b)|; (?=(?:expected|its options|the [a-z ]+ are)\b))(.*)")
STATED = re.compile(r"(?:.*: e|E)xpected |Give ")  # a message that says itself what to give
# An error of these kinds that advises nothing is one that no input can cause.
INTERNAL = {"RuntimeError", "ArithmeticError", "AssertionError"}
WITHIN = re.compile(r".*(?:: |, but )…+\.?")  # the reason stands in the message, and is one of these messages itself
REASON = "The end of the message is a message of its own: look for that one."
PART = "It is a part of a longer message, which says what to do."
REPORT = "This is a fault of the program, not of your input: report it as an issue, with the message."
THROWN = re.compile(r"throw new (\w+)\(")


class Words:
    """The texts that expressions of one function stand for, with … where a value stands."""

    def __init__(self, constants: dict[str, list[str]], function: ast.AST | None = None) -> None:
        self.constants = constants
        self.since = 0  # the line of the error before this one: what was named before it was for that one
        self.local: dict[str, list[ast.expr]] = {}
        for node in ast.walk(function) if function else ():
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self.local.setdefault(node.targets[0].id, []).append(node.value)

    def of(self, node: ast.expr) -> list[str]:
        """Return each text that an expression can be; none where it comes from elsewhere."""
        match node:
            case ast.Constant(value=str(text)):
                return [text]
            case ast.JoinedStr(values=values):
                return ["".join(parts) for parts in itertools.product(*map(self._part, values))]
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return [one + other for one in self.of(left) for other in self.of(right) or ["…"]]
            case ast.IfExp(body=body, orelse=other):
                return [*self.of(body), *self.of(other)]
            case ast.Name(id=name):
                named = [value for value in self.local.get(name, []) if value.lineno <= node.lineno]
                recent = [value for value in named if value.lineno > self.since] or named
                inner = [value for value in recent if not _mentions(value, name)]
                return [text for value in inner for text in self.of(value)] or self.constants.get(name, [])
            case ast.Call(func=ast.Attribute(value=text, attr="format")):
                return [re.sub(r"\{.*?\}", "…", one) for one in self.of(text)]
            case ast.Call(func=ast.Attribute(value=text, attr="rstrip" | "removesuffix")):
                return self.of(text)
            case ast.Call(func=ast.Name(id="_join"), args=[text, *_]):
                return self.of(text)
        return []

    def _part(self, part: ast.expr) -> list[str]:
        """Return what stands for a value: the name of an argument or a constant where it is no more than that."""
        if not isinstance(part, ast.FormattedValue):
            return self.of(part)
        inner = part.value.id if isinstance(part.value, ast.Name) else ""
        return ["NAME"] if inner == "name" else self.constants.get(inner, ["…"]) if inner.isupper() else ["…"]


def _mentions(value: ast.expr, name: str) -> bool:
    return any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(value))


@cache
def messages() -> dict[str, dict[str, str]]:
    """Return for each room its messages, and the error that each belongs to."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(SOURCE.rglob("*.py"))}
    errors = SHOWN | _errors(list(trees.values()))
    shared = {name: texts for tree in trees.values() for name, texts in _constants(tree).items()}
    found: dict[str, dict[str, str]] = {room: {} for room in ROOMS}
    for path, tree in trees.items():
        room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        for error, text in _told(tree, errors, {**shared, **_constants(tree)}):
            found.setdefault(room, {})[text] = error
    for path in sorted(SCRIPTS.glob("*.js")):
        script = path.read_text(encoding="utf-8")
        for match in THROWN.finditer(script):
            found["web page"].update(dict.fromkeys(_thrown(script, match.end()), match[1]))
    return {room: texts for room, texts in found.items() if texts}


def _thrown(script: str, at: int) -> list[str]:
    """Return the texts of JavaScript from a place to the bracket that closes it."""
    texts, glued, depth = [""], True, 1
    while depth:
        letter = script[at]
        at += 1
        if letter in '`"':
            said, at = _literal(script, at, letter)
            texts = [*texts[:-1], texts[-1] + said] if glued else [*texts, said]
            glued = False
        glued = glued or letter == "+"
        depth += (letter == "(") - (letter == ")")
    return _sentences(texts)


def _literal(script: str, at: int, quote: str) -> tuple[str, int]:
    """Return a text of JavaScript, with … for each value, and where it ends."""
    said = ""
    while script[at] != quote:
        if quote == "`" and script.startswith("${", at):
            inner = 1
            at += 2
            while inner:
                inner += (script[at] == "{") - (script[at] == "}")
                at += 1
            said += "…"
        else:
            said, at = said + script[at], at + 1
    return said, at + 1


def _errors(trees: list[ast.Module]) -> set[str]:
    """Return the names of all errors: Python's, and the classes that are made from them."""
    errors = {name for name, one in vars(builtins).items() if isinstance(one, type) and issubclass(one, Exception)}
    classes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    while new := {one.name for one in classes if {_last(base) for base in one.bases} & (errors | SHOWN)} - errors:
        errors |= new
    return errors


def _constants(tree: ast.Module) -> dict[str, list[str]]:
    """Return the texts that a module names."""
    found: dict[str, list[str]] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = Words(found).of(node.value)
    return {name: texts for name, texts in found.items() if texts}


def _told(tree: ast.Module, errors: set[str], constants: dict[str, list[str]]) -> Iterator[tuple[str, str]]:
    """Name each error that a module makes, with its text."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    raised = {id(node.exc) for node in ast.walk(tree) if isinstance(node, ast.Raise)}
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name in errors]
    owners = {id(function): one.name for one in classes for function in one.body}
    for function in [None, *functions]:
        words = Words(constants, function)
        calls = [node for node in ast.walk(function or tree) if isinstance(node, ast.Call)]
        for call in sorted(calls, key=lambda one: one.lineno):
            name = _last(call.func)
            own = owners.get(id(function)) if name == "__init__" else None
            if own or name in errors or id(call) in raised:
                texts = next(filter(None, map(_sentences, map(words.of, call.args))), [])
                yield from ((own or _named(name, call), text) for text in texts)
                words.since = call.lineno if texts else words.since


def _sentences(texts: list[str]) -> list[str]:
    """Return the texts that are for people, not the codes of a service."""
    return [text for text in texts if re.search(r"[a-z]{3}", text) and " " in text.strip()]


def _last(node: ast.expr) -> str:
    return ast.unparse(node).rpartition(".")[2] if isinstance(node, ast.Name | ast.Attribute) else ""


def _named(name: str, call: ast.Call) -> str:
    """Return what people see beside the message: of a service its status and its word, of a warning its kind."""
    if name == "warn":
        return ast.unparse(call.args[1])
    if name in {"Problem", "Refusal", "PostRefused"}:
        said = [str(one.value) for one in call.args if isinstance(one, ast.Constant) and " " not in str(one.value)]
        return " ".join(said[name == "Refusal" and len(said) > 1 :]) or name
    return name


def halves(text: str) -> tuple[str, str]:
    """Return what a message says and what it advises: what follows its first sentence, or a colon and a verb."""
    ends = r"(?:(?<=\.)(?<!e\.g\.)|(?<=…)) (?=[A-Z`\"(…])"
    first, *rest = re.split(ends, re.sub(r"\s+", " ", text).strip(), maxsplit=1)
    if not rest and (found := ADVICE.fullmatch(first)):
        return f"{found[1]}.", found[2] if found[2].startswith("pip") else found[2][0].upper() + found[2][1:]
    return first, "".join(rest)


def remedy(text: str, error: str) -> str:
    """Return what to do about a message, "" where it says nothing but what is expected."""
    if advice := halves(text)[1]:
        return advice
    if STATED.match(text):
        return ""
    if WITHIN.fullmatch(text):
        return REASON
    return PART if error == "_damaged" else REPORT if error in INTERNAL else ""


def tables() -> str:
    """Return all messages, for each room those with a remedy and those that say themselves what to give."""
    lines = []
    for room, texts in messages().items():
        ordered = sorted(texts, key=lambda one: one.lstrip("…'`\"( ").lower())
        told = [one for one in ordered if remedy(one, texts[one])]
        stated = [one for one in ordered if one not in set(told)]
        lines += [f"## {ROOMS.get(room, f'`noisette.{room}`')}", ""]
        if told:
            rows = [(halves(one)[0], remedy(one, texts[one]), texts[one]) for one in told]
            lines += ["| message | remedy | error |", "| --- | --- | --- |"]
            lines += [f"| {_escaped(what)} | {_escaped(what_to_do)} | `{error}` |" for what, what_to_do, error in rows]
            lines.append("")
        if stated:
            lines += ["| give what the message expects | error |", "| --- | --- |"]
            lines += [f"| {_escaped(' '.join(one.split()))} | `{texts[one]}` |" for one in stated]
            lines.append("")
    return "\n".join(lines)


def _escaped(text: str) -> str:
    """Return a text that a table of Markdown shows as it is."""
    return re.sub(r"([*_`\[\]#|])", r"\\\1", text).replace("<", "&lt;")
