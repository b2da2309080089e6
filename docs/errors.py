"""The index of errors: every message that Noisette raises, read from its source while mkdocs builds the site."""

import ast
import re
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src" / "noisette"

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
    "collector": "The collector",
    "shuffler": "The shuffler",
    "cli": "The command line",
}


def said(node: ast.expr) -> str | None:
    """Return the text of a message, with … where a value stands, or None where it is put together elsewhere."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(one.value if isinstance(one, ast.Constant) else _value(one) for one in node.values)  # type: ignore[misc]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = said(node.left), said(node.right)
        return None if None in parts else "".join(parts)  # type: ignore[arg-type]
    return None


def _value(part: ast.expr) -> str:
    """Return what stands for a value: the name of an argument where it is no more than that."""
    inner = ast.unparse(part.value) if isinstance(part, ast.FormattedValue) else ""
    return "NAME" if inner == "name" else "…"


@cache
def messages() -> dict[str, dict[str, str]]:
    """Return for each room its messages, and the error that each belongs to."""
    found: dict[str, dict[str, str]] = {room: {} for room in ROOMS}
    for path in sorted(SOURCE.rglob("*.py")):
        room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
                text = said(node.exc.args[0])
                if text and re.search(r"[a-z]{3}", text):
                    found.setdefault(room, {})[text] = ast.unparse(node.exc.func).rpartition(".")[2]
    return {room: texts for room, texts in found.items() if texts}


def halves(text: str) -> tuple[str, str]:
    """Return what a message says and what it advises, which is what follows its first sentence."""
    first, *rest = re.split(r"(?<=\.)(?<!e\.g\.) ", re.sub(r"\s+", " ", text).strip(), maxsplit=1)
    return first, "".join(rest)


def tables() -> str:
    """Return all messages, a table for each room."""
    lines = []
    for room, texts in messages().items():
        title = ROOMS.get(room, f"`noisette.{room}`")
        lines += [f"## {title}", "", "| message | remedy | error |", "| --- | --- | --- |"]
        for text in sorted(texts, key=lambda one: one.lstrip("…'`\"( ").lower()):
            what, remedy = (half.replace("|", "\\|").replace("<", "&lt;") for half in halves(text))
            lines.append(f"| {_escaped(what)} | {_escaped(remedy)} | `{texts[text]}` |")
        lines.append("")
    return "\n".join(lines)


def _escaped(text: str) -> str:
    """Return a text that Markdown shows as it is."""
    return re.sub(r"([*_`\[\]#])", r"\\\1", text)
