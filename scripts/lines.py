"""Write the lines of `src` into docs/architecture.md, by kind, folder and capability: lines.py [--since COMMIT].

Beside each folder stands how many lines it had at a commit: by default when every module had got its room, before the
later capabilities.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import tarfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- lines of src: begin -->", "<!-- lines of src: end -->"
ROOMS_BUILT = "b2b96fcf"  # 17 November 2026, 02:26
_KINDS = ("code", "docstrings", "blank", "imports", "comments")
# What the library can do, and where each capability lives: the first that a file's name begins with.
CAPABILITIES = {
    "private training in PyTorch": ("sgd/", "cli/learning/train_images"),
    "federation": ("federated/", "cli/learning/federate"),
    "the shuffler": ("shuffler/", "cli/services/shuffler"),
    "the collector and its pages": ("collector/", "cli/services/", "_service"),
    "devices": ("device/",),
    "regression": ("regression/", "cli/learning/train"),
    "texts that nobody listed": (
        "mechanisms/categorical/texts",
        "domains/texts",
        "survey/coding/texts",
        "prediction/texts",
    ),
    "several choices of one list": (
        "mechanisms/categorical/selections",
        "survey/coding/choices",
        "survey/coding/chosen_pairs",
    ),
    "graded and personal protection": ("mechanisms/graded", "prediction/graded", "prediction/personalised"),
    "tensors and covariances": ("mechanisms/tensor",),
    "whole vectors and directions": (
        "mechanisms/vector/adaptive",
        "mechanisms/vector/caps",
        "mechanisms/vector/duchi",
        "mechanisms/vector/fast",
        "mechanisms/vector/privunit",
        "mechanisms/vector/projections",
        "mechanisms/geometric",
    ),
    "one number": ("mechanisms/scalar",),
    "one category": ("mechanisms/categorical",),
    "surveys": ("survey/", "cli/surveys"),
    "audits, checks and certificates": ("auditing/", "testing.py", "certificates/", "cli/evidence"),
    "accounting": ("accounting/",),
    "predictions and plans": ("prediction/", "planner/"),
    "enhancement": ("enhancement/",),
    "demonstration, real data, clusters": ("demo/", "datasets", "scale/"),
    "what all of them stand on": ("",),
}


def kinds(source: str) -> Counter[str]:
    """Return how many lines of a module are of which kind; a blank line inside of a docstring is one of it."""
    lines = source.splitlines()
    kind = ["blank" if not line.strip() else "comments" if line.lstrip()[0] == "#" else "code" for line in lines]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            found, name = node, "imports"
        elif isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and (
            ast.get_docstring(node) is not None
        ):
            found, name = node.body[0], "docstrings"
        else:
            continue
        end = found.end_lineno or found.lineno
        kind[found.lineno - 1 : end] = [name] * (end - found.lineno + 1)
    return Counter(kind)


def source_at(commit: str) -> dict[str, str]:
    """Return the files below `src/noisette` at a commit, as text."""
    archive = subprocess.run(["git", "archive", commit, "src/noisette"], cwd=ROOT, check=True, capture_output=True)
    found = {}
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        for member in files:
            stream = files.extractfile(member)
            if stream is not None:
                found[member.name.removeprefix("src/noisette/")] = stream.read().decode()
    return found


def folders(files: dict[str, str]) -> Counter[str]:
    """Return how many lines each folder has; modules that stand alone count together."""
    counted: Counter[str] = Counter()
    for name, text in files.items():
        counted[f"`{name.partition('/')[0]}`" if "/" in name else "single modules"] += len(text.splitlines())
    return counted


def capabilities(files: dict[str, str]) -> Counter[str]:
    """Return how many lines each capability has."""
    counted: Counter[str] = Counter()
    for name, text in files.items():
        counted[next(one for one, starts in CAPABILITIES.items() if name.startswith(starts))] += len(text.splitlines())
    return counted


def table(now: dict[str, str], then: dict[str, str]) -> str:
    """Return a sentence about kinds, the folders and the capabilities as Markdown."""
    python = {name: text for name, text in now.items() if name.endswith(".py")}
    found = sum((kinds(text) for text in python.values()), Counter())
    after, before = folders(now), folders(then)
    rest = after.total() - found.total()
    said = ", ".join(f"{found[kind]:,} of {kind}" if kind != "blank" else f"{found[kind]:,} blank" for kind in _KINDS)
    rows = [f"| {name} | {count:,} | {count - before[name]:+,} |" for name, count in after.most_common()]
    head = [
        f"{after.total():,} lines in {len(now)} files: {found.total():,} of Python ({said}), and {rest:,} of pages, "
        "scripts and styles for browsers, type stubs and data.",
        "",
        "| folder | lines | more than when the rooms were built |",
        "| --- | ---: | ---: |",
    ]
    rows.append(f"| all | {after.total():,} | {after.total() - before.total():+,} |")
    needs = [f"| {name} | {count:,} |" for name, count in capabilities(now).most_common()]
    return "\n".join([*head, *rows, "", "| capability | lines |", "| --- | ---: |", *needs])


def main() -> None:
    """Replace what stands between the marks, from the last commit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--since", default=ROOMS_BUILT, metavar="COMMIT", help="What to compare with.")
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    text = table(source_at("HEAD"), source_at(parser.parse_args().since))
    PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
