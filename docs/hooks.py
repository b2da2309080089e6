"""Write pages for mechanisms and kinds of questions, the board and the index of errors while mkdocs builds the site.

A page shows what the class itself says (its docstring), what its guarantee states and the exact calculator finds, and
how its error depends on the budget and on the value. Nothing on it is typed by hand, so nothing can go stale.

A page that would make its reader's browser ask another machine for anything is reported, which fails a strict build.
"""

import ast
import dataclasses
import inspect
import io
import logging
import re
import runpy
import sys
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import griffe
import matplotlib
import numpy as np
from matplotlib.figure import Figure
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import noisette as nz

SOURCE = Path(__file__).resolve().parent.parent / "src" / "noisette"
FENCE = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BUDGETS = (0.5, 1.0, 2.0, 4.0)
FOLDER = "mechanisms"
BOARD = "the-board.html"
REQUEST = re.compile(r'<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)="(?:https?:)?//[^"]*"')
KINDS = {"mean": "Numbers", "frequency": "Categories", "vector-mean": "Vectors", "attributes": "Records"}

matplotlib.rcParams["svg.hashsalt"] = "noisette"  # the same figure is the same file on every build


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the generated pages where the navigation says `mechanisms/` and `kinds/`."""
    pages: list[Any] = [f"{FOLDER}/index.md"]
    for kind, classes in _by_kind().items():
        pages.append({KINDS.get(kind, kind.capitalize()): [{name: f"{FOLDER}/{name}.md"} for name in classes]})
    _place(config.nav or [], f"{FOLDER}/", pages)
    asked = _beside("kinds.py")
    titles = [{kind.title: f"{asked['FOLDER']}/{name}.md"} for name, kind in asked["KINDS"].items()]
    _place(config.nav or [], f"{asked['FOLDER']}/", [f"{asked['FOLDER']}/index.md", *titles])
    return config


def _place(entries: list[Any], folder: str, pages: list[Any]) -> None:
    """Replace the entry of a folder, wherever it stands in the navigation."""
    for entry in entries:
        for title, target in entry.items() if isinstance(entry, dict) else ():
            if target == folder:
                entry[title] = pages
            elif isinstance(target, list):
                _place(target, folder, pages)


def _beside(name: str) -> dict[str, Any]:
    """Run a program beside this one, which writes some of the pages."""
    return runpy.run_path(str(Path(__file__).with_name(name)))


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the index, the pages and their figures to the site."""
    files.append(File.generated(config, f"{FOLDER}/index.md", content=index_page()))
    for name, cls in nz.CATALOGUE.items():
        files.append(File.generated(config, f"{FOLDER}/{name}.md", content=mechanism_page(name, cls)))
        files.append(File.generated(config, f"{FOLDER}/{name}.svg", content=error_figure(cls)))
    asked = _beside("kinds.py")
    for name, _, text in asked["pages"]():
        files.append(File.generated(config, f"{asked['FOLDER']}/{name}.md", content=text))
    files.append(File.generated(config, BOARD, content=board_page()))
    return files


def board_page() -> str:
    """Return the board, from the results that are committed."""
    root = str(Path(__file__).resolve().parent.parent)
    if root not in sys.path:
        sys.path.insert(0, root)
    from benchmarks.board.page import page

    return page()


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put the tables of messages into the page of errors, from the source."""
    if page.file.src_uri != "errors.md":
        return markdown
    return markdown.replace("<!-- every message -->", _beside("errors.py")["tables"]())


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Report whatever the page would load from elsewhere."""
    for request in REQUEST.findall(output):
        logging.getLogger("mkdocs.plugins").warning("%s loads from another machine: %s", page.file.src_uri, request)
    return output


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let a touch of a picture show it by itself: on a phone a page shows it too small to read."""
    return re.sub(r'<img\b[^>]*?\bsrc="([^"]+)"[^>]*>', r'<a href="\1">\g<0></a>', html)


class Docstrings(griffe.Extension):
    """Gives the reference the same reading of docstrings as the pages of the mechanisms, and leads to examples."""

    def on_module(self, *, mod: griffe.Module, **_: Any) -> None:
        """Show what the stub of a package names: whatever it names is public."""
        stub = mod.filepath.with_suffix(".pyi") if isinstance(mod.filepath, Path) else None
        if stub is not None and stub.exists():
            words = stub.read_text(encoding="utf-8")
            mod.exports = list(re.findall(r"^from \S+ import \w+ as (\w+)$", words, re.MULTILINE))

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of whatever was found in the source."""
        if obj.docstring:
            led = examples().get(obj.name, "") if obj.parent and obj.parent.is_module else ""
            obj.docstring.value = _markdown(obj.docstring.value) + (f"\n\n{led}" if led else "")


@cache
def examples() -> dict[str, str]:
    """Return for each class or function without an example of its own where to find one: who returns it, which page."""
    makers: dict[str, list[str]] = {}
    lacking: set[str] = set()
    for path in sorted(SOURCE.rglob("*.py")):
        module = ".".join(["noisette", *path.relative_to(SOURCE).with_suffix("").parts]).removesuffix(".__init__")
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if not isinstance(node, ast.ClassDef | ast.FunctionDef) or node.name.startswith("_"):
                continue
            functions = [one for one in getattr(node, "body", []) if isinstance(one, ast.FunctionDef)]
            shown = ">>>" in "".join(ast.get_docstring(one) or "" for one in (node, *functions))
            lacking |= set() if shown else {node.name}
            for one in (functions if isinstance(node, ast.ClassDef) else [node]) if shown else []:
                for name in re.findall(r"\w+", ast.unparse(one.returns)) if one.returns else ():
                    makers.setdefault(name, []).append(_linked(module, node.name))
    pages = {path.name: path.read_text(encoding="utf-8") for path in sorted(Path(__file__).parent.glob("*.md"))}
    code = {name: " ".join(FENCE.findall(text)) for name, text in pages.items() if name != "reference.md"}
    found = {}
    for name in lacking:
        used = [f"[{_title(pages[page])}]({page})" for page, text in code.items() if re.search(rf"\b{name}\b", text)]
        if made := sorted(set(makers.get(name, [])))[:2] + used[:2]:
            found[name] = f"Example: {', '.join(made)}."
    return found


def _linked(module: str, name: str) -> str:
    """Return a name with a link to its description, if it stands on the reference or has a page of its own."""
    for entry, cls in nz.CATALOGUE.items():
        if cls.__name__ == name:
            return f"[`{name}`]({FOLDER}/{entry}.md)"
    reference = Path(__file__).with_name("reference.md").read_text(encoding="utf-8")
    return f"[`{name}`][{module}.{name}]" if f"::: {module}\n" in reference else f"`{name}`"


def _title(page: str) -> str:
    return page.partition("\n")[0].removeprefix("# ")


def index_page() -> str:
    """Return the table of the whole catalogue, in sections by kind."""
    lines = [
        "# Mechanisms",
        "",
        "Every entry of `nz.CATALOGUE`, on its example domain: `[-1, 1]`, a few categories, a short vector.",
        "The guarantee is for one record at ε = 1, in the model named. *Claim* says whether the published one holds,",
        "or what does instead. Bias and variance are those of one report, for the worst input.",
        "",
    ]
    for kind, classes in _by_kind().items():
        lines += [
            f"## {KINDS.get(kind, kind.capitalize())}",
            "",
            "| name | what it does | guarantee | model | claim | bias | variance |",
            "| --- | --- | --- | --- | --- | ---: | ---: |",
        ]
        for name, cls in classes.items():
            mechanism = cls.example(1.0)
            bias, _, variance = _errors(mechanism)
            what = _summary(cls).rstrip(".")
            budget, claim = _budget(mechanism.guarantee), _verdict(_as_published(mechanism))
            model = mechanism.guarantee.model
            lines.append(
                f"| [{name}]({name}.md) | {what} | {budget} | {model} | {claim} | {bias:.2g} | {variance:.4g} |"
            )
        lines.append("")
    return "\n".join(lines)


def mechanism_page(name: str, cls: type[Any]) -> str:
    """Return the page of one mechanism."""
    citation = cls.citation
    return "\n".join(
        [
            f"# {cls.__name__}",
            "",
            f"`nz.{cls.__name__}` · catalogue name `{name}` · [source of the idea](../bibliography.md#{citation})",
            "",
            "```python",
            _signature(cls),
            "```",
            "",
            _markdown(cls.__doc__ or ""),
            "",
            "## Guarantee",
            "",
            _guarantee_table(cls),
            "",
            "## Error",
            "",
            f"![{cls.__name__}: error of one report]({name}.svg)",
            "",
            _error_table(cls),
            "",
        ]
    )


def error_figure(cls: type[Any]) -> bytes:
    """Draw the variance against the budget, and bias and variance against the value where it is a number."""
    budgets = np.geomspace(0.1, 10, 25)
    _, least, worst = np.transpose([_errors(cls.example(float(epsilon))) for epsilon in budgets])
    scalar = _is_scalar(cls)
    figure = Figure(figsize=(5, 6.4) if scalar else (5, 3.4), layout="constrained")  # as wide as a phone can show
    panels = figure.subplots(2 if scalar else 1, 1, squeeze=False)[:, 0]
    panels[0].fill_between(budgets, least, worst, alpha=0.25, label="range over inputs")
    panels[0].plot(budgets, worst, label="worst input")
    panels[0].set(xscale="log", yscale="log", xlabel="ε, the budget of one report", ylabel="variance of one report")
    panels[0].legend()
    if scalar:
        for epsilon in BUDGETS:
            mechanism = cls.example(epsilon)
            x = _inputs(mechanism)
            moments = mechanism.moments(x)
            panels[1].plot(x, moments.variance + moments.bias**2, label=f"ε = {epsilon:g}")
        panels[1].set(yscale="log", xlabel="x, the true value", ylabel="mean squared error of one report")
        panels[1].locator_params(axis="x", nbins=5)
        panels[1].legend(loc="center left", bbox_to_anchor=(1, 0.5))
    for panel in panels:
        panel.grid(alpha=0.3)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def _by_kind() -> dict[str, dict[str, type[Any]]]:
    """Return the catalogue in sections, in its own order."""
    kinds: dict[str, dict[str, type[Any]]] = {}
    for name, cls in nz.CATALOGUE.items():
        kinds.setdefault(cls.kind, {})[name] = cls
    return kinds


def _is_scalar(cls: type[Any]) -> bool:
    return isinstance(cls.example(1.0).domain, nz.Interval | nz.Grid)


def _inputs(mechanism: Any) -> Any:
    """Return inputs that show the range of a mechanism's error: a fine grid of an interval, else its witnesses."""
    domain = mechanism.domain
    if isinstance(domain, nz.Interval):
        return np.linspace(domain.low, domain.high, 101)
    if isinstance(domain, nz.Grid):
        return domain.low + domain.step * np.arange(domain.size)
    return mechanism.witnesses()[0]


def _errors(mechanism: Any) -> tuple[float, float, float]:
    """Return the largest absolute bias, the least and the largest variance of one report."""
    moments = mechanism.moments(_inputs(mechanism))
    return float(np.max(np.abs(moments.bias))), float(np.min(moments.variance)), float(np.max(moments.variance))


def _summary(cls: type[Any]) -> str:
    return _prose(inspect.cleandoc(cls.__doc__ or "").partition("\n\n")[0].replace("\n", " "))


def _signature(cls: type[Any]) -> str:
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for name, parameter in inspect.signature(cls).parameters.items()
        if not name.startswith("_")
    ]
    return f"nz.{cls.__name__}{inspect.Signature(parameters)}".replace("<factory>", "...")


def _markdown(docstring: str) -> str:
    """Return a docstring as Markdown: fenced formulas and examples, a paragraph for each heading in italics."""
    paragraphs = []
    for paragraph in re.split(r"\n{2,}", inspect.cleandoc(docstring)):
        if paragraph.startswith(">>>"):
            paragraphs.append(f"```pycon\n{paragraph}\n```")
        elif paragraph.startswith("Formula"):
            head, _, formula = paragraph.partition(": ")
            paragraphs.append(f"*{head}*:\n\n```text\n{formula.replace('`', '')}\n```")
        else:
            # a new thought in the same paragraph: *Guarantee*: ..., *Utility*: ..., or a citation with its year
            parts = re.split(r"\n(?=\*\w+\*:)|(?<=\.)\n(?=\S[^\n]*\b(?:19|20)\d\d\b)", paragraph)
            paragraphs.append(_prose("\n\n".join(parts)))
    return "\n\n".join(paragraphs)


def _prose(text: str) -> str:
    """Return text of a docstring as Markdown, in which <z, v> outside of code would be taken for a tag."""
    pieces = text.replace("``", "`").split("`")
    pieces[::2] = [piece.replace("<", "&lt;") for piece in pieces[::2]]
    return "`".join(pieces)


def _budget(guarantee: Any) -> str:
    return f"{guarantee.epsilon:g}" if guarantee.delta == 0 else f"({guarantee.epsilon:g}, {guarantee.delta:g})"


def _as_published(mechanism: Any) -> Any:
    """Return the mechanism in its published form, which is its own form where the published claim holds."""
    if "as_published" not in {field.name for field in dataclasses.fields(mechanism)}:
        return mechanism
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nz.PrivacyWarning)  # the page says what the warning says
        return dataclasses.replace(mechanism, as_published=True)


def _verdict(published: Any) -> str:
    return "holds" if published.guarantee.claim_holds else f"**false**: {_budget(published.guarantee)}"


def _exact(mechanism: Any) -> str:
    return f"{nz.exact_epsilon(mechanism, delta=mechanism.guarantee.delta):.6g}"


def _guarantee_table(cls: type[Any]) -> str:
    guarantee = cls.example(1.0).guarantee
    lines = [
        f"Unit [`{guarantee.unit}`](../glossary.md#{guarantee.unit}), model [`{guarantee.model}`](../glossary.md"
        f"#{guarantee.model}), relation [`{guarantee.relation}`](../glossary.md#{guarantee.relation}).",
        "The exact ε is computed from `log_prob`" + (", at the stated δ." if guarantee.delta else "."),
        "",
        "| ε asked | stated | exact ε | published claim | exact ε as published | claim |",
        "| ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for epsilon in BUDGETS:
        mechanism = cls.example(epsilon)
        published = _as_published(mechanism)
        claim = published.guarantee.claim
        claimed = "none" if claim is None else f"{_budget(claim)} per {claim.unit}"
        cells = (f"{epsilon:g}", _budget(mechanism.guarantee), _exact(mechanism), claimed, _exact(published))
        lines.append(f"| {' | '.join(cells)} | {_verdict(published)} |")
    return "\n".join(lines)


def _error_table(cls: type[Any]) -> str:
    lines = ["| ε | largest absolute bias | least variance | largest variance |", "| ---: | ---: | ---: | ---: |"]
    for epsilon in BUDGETS:
        bias, low, high = _errors(cls.example(epsilon))
        lines.append(f"| {epsilon:g} | {bias:.2g} | {low:.4g} | {high:.4g} |")
    return "\n".join(lines)
