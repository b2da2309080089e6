"""What the README and the documentation show is what happens: their examples run here."""

import ast
import dataclasses
import doctest
import inspect
import re
import runpy
import shlex
import tomllib
import unicodedata
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import click
import numpy as np
import pytest
from click.testing import CliRunner

import noisette as nz
from noisette import guarantees
from noisette.cli import verbs

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
AROUND = [ROOT / "clients" / "js" / "README.md", *(one for one in sorted(ROOT.glob("*.md")) if one.name != "README.md")]
FENCE = re.compile(r"^```(?:python|pycon)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
FRONTS = ["sgd", "device", "certificates", "federated", "regression", "collector", "shuffler", "survey"]
FRONTS += ["domains", "prediction", "enhancement", "accounting", "auditing", "aggregation", "scale", "planner"]
FRONTS += ["testing", "datasets", "auditing.membership", "auditing.one_run"]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def _examples(text: str) -> str:
    """Return the interactive examples of a page, its other lines blanked so that line numbers stay."""
    kept = [""] * len(text.splitlines())
    for match in FENCE.finditer(text):
        first = text.count("\n", 0, match.start("code"))
        for offset, line in enumerate(match["code"].splitlines()):
            kept[first + offset] = line
    return "\n".join(kept)


class _Runner(doctest.DocTestRunner):
    """Lets the lack of a package out, for which a test is skipped where it is an extra's."""

    def report_unexpected_exception(self, out: Any, test: Any, example: Any, exc_info: Any) -> None:
        error = exc_info[1]
        while error is not None and not isinstance(error, ModuleNotFoundError):
            error = error.__cause__ or error.__context__
        if error is not None:
            raise error
        super().report_unexpected_exception(out, test, example, exc_info)


def _failures(text: str, name: str) -> list[str]:
    """Run the examples of a page in one namespace and return what went wrong."""
    test = doctest.DocTestParser().get_doctest(_examples(text), {}, name, name, 0)
    output: list[str] = []
    _Runner(optionflags=FLAGS, verbose=False).run(test, out=output.append)
    return output


def _ascii(path: Path) -> str:
    """Return a text on one line, without accents."""
    letters = unicodedata.normalize("NFKD", path.read_text(encoding="utf-8"))
    return " ".join(letters.encode("ascii", "ignore").decode().split())


def _work(text: str) -> set[str]:
    """Return the surnames and the year of a citation."""
    return set(re.findall(r"[A-Z][A-Za-z-]+|\d{4}", text))


@pytest.mark.long
@pytest.mark.parametrize("path", PAGES, ids=[path.stem for path in PAGES])
def test_examples(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    failures = _failures(path.read_text(encoding="utf-8"), path.name)
    assert not failures, "".join(failures)


def test_the_documentation_begins_as_the_readme_does() -> None:
    """One first screen: a sentence, the picture, how to install, ten lines with their output, three links."""
    first = (ROOT / "README.md").read_text(encoding="utf-8").partition("## For whom")[0]
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert index.startswith(first.replace("](docs/", "]("))
    assert first.count("\n>>> ") == 10
    assert first.count("**[") == 3
    assert "![" in first
    assert "pip install" in first


@pytest.mark.long
def test_commands_of_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The console lines run one after the other, on a table of the kind they name."""
    rows = np.random.default_rng(1).uniform(-1, 1, (500, 8)).round(6)
    lines = [",".join(f"q{column}" for column in range(8)), *(",".join(map(str, row)) for row in rows)]
    (tmp_path / "people.csv").write_text("\n".join(lines), encoding="utf-8")
    commands = re.findall(r"^\$ noisette (.*)$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(commands) >= 4
    monkeypatch.chdir(tmp_path)
    for command in commands:
        done = CliRunner().invoke(verbs, shlex.split(command))
        status = int("--as-published" in command)  # the audit of a claim that is false says so by its status, too
        assert done.exit_code == status, f"noisette {command}: {done.output}"
        assert done.stdout


def _commands() -> dict[tuple[str, ...], set[str]]:
    """Return every command with its options; those of `train` are another's, by the model."""
    found: dict[tuple[str, ...], set[str]] = {}
    waiting: list[tuple[tuple[str, ...], Any]] = [((), verbs)]
    while waiting:
        path, command = waiting.pop()
        options = (word for one in command.params for word in [*one.opts, *one.secondary_opts])
        found[path] = {*options, "--help", "--json"}
        context = click.Context(command)
        names = command.list_commands(context) if isinstance(command, click.Group) else []
        waiting += [((*path, name), command.get_command(context, name)) for name in names]
    for module in ("train_images", "train_table"):
        found[("train",)] |= {
            word for one in import_module(f"noisette.cli.learning.{module}").command.params for word in one.opts
        }
    return found


def _options(text: str, commands: dict[tuple[str, ...], set[str]]) -> set[tuple[tuple[str, ...], str]]:
    """Return each option that a text names, with the command that it stands behind."""
    found = set()
    for line in re.findall(r"noisette ([a-z-]+(?: [^`\n|]*)?)", text.replace("\\\n", " ")):
        words, name = line.split(" #")[0].split(), ()
        while words and (*name, words[0]) in commands:
            name = (*name, words.pop(0))
        found |= {(name, word) for word in re.findall(r"(?:^|\s)(--?[a-z][a-z-]*)", " ".join(words)) if name}
    return found


def test_options_that_pages_name_exist() -> None:
    """Of every command that a page shows, on a console or within a sentence; an option that is none is seen."""
    commands = _commands()
    named = {(path.name, *one) for path in [*PAGES, *AROUND] for one in _options(path.read_text("utf-8"), commands)}
    assert len(named) > 100
    assert not [one for one in named if one[2] not in commands[one[1]]]
    assert _options("write `noisette plan x.yaml --people 3`", commands) == {(("plan",), "--people")}
    assert "--people" not in commands[("plan",)]


@pytest.mark.parametrize("path", [*PAGES, *AROUND], ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(path: Path) -> None:
    """Relative links of a page name files of this repository, or pages that are generated, and headings of either."""
    text = path.read_text(encoding="utf-8")
    targets = re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?[^)]*\)", FENCE.sub("", text))
    made = ("kinds/", "mechanisms/", "the-board.html")
    missing = [t for t, _ in targets if not (path.parent / t).exists() and not t.startswith(made)]
    assert not missing
    written = {t for t, _ in targets if t.endswith(".md") and not t.endswith("errors.md")}  # whose headings are made
    pages = {t: path.parent / t if t else path for t in {"", *written}}
    places = {t: _places(page.read_text(encoding="utf-8")) for t, page in pages.items() if page.exists()}
    assert not [(t, place) for t, place in targets if place and t in places and place not in places[t]]


def _places(text: str) -> set[str]:
    """Return what links to a page may name: its ids, and its headings as they become ids."""
    words = [re.sub(r"\[([^]]*)\]\([^)]*\)|`", r"\1", one) for one in re.findall(r"^#+ (.*)$", text, re.MULTILINE)]
    plain = [unicodedata.normalize("NFKD", one).encode("ascii", "ignore").decode() for one in words]
    slugs = {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", one).strip().lower()) for one in plain}
    return slugs | set(re.findall(r'id="([\w-]+)"', text))


def _lost_items(text: str) -> list[str]:
    """Return the marks of list items that Markdown takes for words of a paragraph."""
    import markdown

    html = markdown.markdown(text, extensions=["tables", "pymdownx.superfences"])
    paragraphs = re.findall(r"<p>(.*?)</p>", html, re.DOTALL)
    return [mark for one in paragraphs for mark in re.findall(r"\n(\d+\. |[-*] )", one)]


@pytest.mark.needs("mkdocs")
@pytest.mark.parametrize("path", PAGES, ids=[path.stem for path in PAGES])
def test_items_of_lists_are_not_lost_in_paragraphs(path: Path) -> None:
    assert not _lost_items(path.read_text(encoding="utf-8"))


@pytest.mark.needs("mkdocs")
def test_an_item_that_is_lost_is_seen() -> None:
    """The twin: three spaces do not continue an item, so what follows is no list any more."""
    assert _lost_items("1. one\n\n   more\n2. two\n") == ["2. "]
    assert not _lost_items("1. one\n\n    more\n\n2. two\n")


def test_every_word_of_a_guarantee_is_in_the_glossary() -> None:
    """Every field and every value has an entry; the table on top and the page of guarantees lead there."""
    values = [one for kind in (guarantees.Unit, guarantees.Model, guarantees.Relation) for one in get_args(kind)]
    words = [*values, *(field.name for field in dataclasses.fields(nz.Guarantee))]
    glossary = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    entries = re.findall(r'^\*\*.+\*\* <a id="([\w-]+)"></a> ', glossary, re.MULTILINE)
    assert len(entries) == len(set(entries)) == glossary.count("<a id=")
    assert {*words} <= set(entries)
    assert {*re.findall(r"\]\(#([\w-]+)\)", glossary)} <= set(entries)
    table = glossary.partition("**accountant**")[0]
    assert not [word for word in words if f"](#{word})" not in table]
    page = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    assert not [one for one in values if f"[`{one}`](glossary.md#{one})" not in page]


def _public(module: Any) -> list[str]:
    """Return the public names of a package or module: those that it lists, else those that it defines."""
    own = [name for name, thing in vars(module).items() if getattr(thing, "__module__", "") == module.__name__]
    return list(getattr(module, "__all__", [name for name in own if not name.startswith("_")]))


@pytest.fixture(scope="module")
def shown(hooks: Any) -> set[str]:
    """The names that the reference shows, as mkdocs reads the source: those of each module that the page names."""
    import griffe

    page = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    house = griffe.load("noisette", search_paths=[ROOT / "src"], extensions=griffe.Extensions(hooks["Docstrings"]()))
    named = [house[path.partition(".")[2]] for path in re.findall(r"^::: (\S+)$", page, re.MULTILINE)]
    members = {name for one in named if one.is_module for name, member in one.members.items() if member.is_public}
    return members | {one.name for one in named if not one.is_module}


@pytest.mark.needs("fastapi", "torch", "flwr", "sklearn", "mkdocs")
@pytest.mark.long
@pytest.mark.parametrize("package", ["", *FRONTS])
def test_the_reference_has_every_public_name(package: str, shown: set[str]) -> None:
    """Under a heading of its own, or in an example where it is a constant; a mechanism has a page of its own."""
    front = import_module(f"noisette.{package}".rstrip("."))
    page = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    lacking = []
    for name in _public(front):
        thing = getattr(front, name)
        constant = not callable(thing) or not getattr(thing, "__module__", "").startswith("noisette.")
        elsewhere = inspect.ismodule(thing) or (inspect.isclass(thing) and thing in nz.CATALOGUE.values())
        if not (elsewhere or name in shown or (constant and re.search(rf"\b{name}\b", page))):
            lacking.append(name)
    assert not lacking


@pytest.mark.needs("fastapi", "torch", "flwr", "sklearn", "mkdocs")
@pytest.mark.long
@pytest.mark.parametrize("package", ["", *FRONTS])
def test_every_public_name_has_an_example(package: str, hooks: Any) -> None:
    """In its docstring or a method's, in the reference, or where the reference leads to."""
    front = import_module(f"noisette.{package}".rstrip("."))
    code = " ".join(FENCE.findall((ROOT / "docs" / "reference.md").read_text(encoding="utf-8")))
    lacking = []
    for name in _public(front):
        thing = getattr(front, name)
        parts = [thing, *(vars(thing).values() if isinstance(thing, type) else ())]
        own = any(">>>" in (getattr(part, "__doc__", None) or "") for part in parts)
        shown = own or name in hooks["examples"]() or re.search(rf"\b{name}\b", code)
        if not shown and not inspect.ismodule(thing):
            lacking.append(name)
    assert not lacking


def test_the_pictures_and_the_table_of_epsilon_are_those_of_the_formula() -> None:
    odds = runpy.run_path(str(ROOT / "docs" / "odds.py"))
    assert odds["table"]() in (ROOT / "docs" / "what-epsilon.md").read_text(encoding="utf-8")
    for name, picture in odds["PICTURES"].items():
        assert (ROOT / "docs" / "figures" / name).read_text(encoding="utf-8") == picture


def test_bibliography_holds_every_citation() -> None:
    entries = re.findall(r'<a id="(\w+)">', (ROOT / "docs" / "bibliography.md").read_text(encoding="utf-8"))
    assert len(entries) == len(set(entries))
    assert {cls.citation for cls in nz.CATALOGUE.values()} <= set(entries)


@pytest.mark.slow
def test_bibliography_holds_every_name_and_year() -> None:
    """Whatever a docstring cites by names and year is the one entry with all those names and that year."""
    page = _ascii(ROOT / "docs" / "bibliography.md")
    entries = [_work(match[1]) for match in re.finditer(r"\*\*([^*]+)\.\*\*", page)]
    name = r"[A-Z][A-Za-z-]+"
    citation = re.compile(rf"{name}(?:(?:, (?:and )?| and ){name})*(?: et al\.)? (?:19|20)\d\d\b")
    cited = {match[0] for path in (ROOT / "src").rglob("*.py") for match in citation.finditer(_ascii(path))}
    assert len(cited) > 30
    missing = {text for text in cited if not any(_work(text) <= entry for entry in entries)}
    assert not missing


@pytest.fixture(scope="module")
def hooks() -> Any:
    """What `make docs` runs, with the least and the largest of its budgets: those between walk the same code."""
    found = runpy.run_path(str(ROOT / "docs" / "hooks.py"))
    own = found["mechanism_page"].__globals__
    own["BUDGETS"] = own["BUDGETS"][0], own["BUDGETS"][-1]
    return own


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(nz.CATALOGUE))
def test_every_mechanism_has_a_page(hooks: Any, name: str) -> None:
    """`make docs` can write it: what the class says, and for each budget what holds and what it costs."""
    page = hooks["mechanism_page"](name, nz.CATALOGUE[name])
    assert page.startswith(f"# {nz.CATALOGUE[name].__name__}\n")
    for heading in ("*Guarantee*", "*Utility*", "```pycon", "## Guarantee", "## Error"):
        assert heading in page
    assert all(page.count(f"\n| {epsilon:g} |") == 2 for epsilon in hooks["BUDGETS"])


@pytest.mark.long
def test_the_index_of_mechanisms_names_every_model(hooks: Any) -> None:
    """A row for each, with the model of trust that its guarantee is in; every one is about a record."""
    lines = {match[1]: match[0] for match in re.finditer(r"^\| \[([\w-]+)\].*$", hooks["index_page"](), re.MULTILINE)}
    assert {*lines} == {*nz.CATALOGUE}
    stated = {name: cls.example(1.0).guarantee for name, cls in nz.CATALOGUE.items()}
    assert all(f" | {stated[name].model} | " in line for name, line in lines.items())
    assert {one.unit for one in stated.values()} == {"record"}
    assert {one.model for one in stated.values()} == {"local", "central"}


@pytest.mark.long
def test_every_message_is_in_the_index_of_errors() -> None:
    """The page of errors has the messages of every room, each with what follows its first sentence as the remedy."""
    index = runpy.run_path(str(ROOT / "docs" / "errors.py"))
    found, tables = index["messages"](), index["tables"]()
    assert set(index["ROOMS"]) <= set(found)
    assert tables.count("` |\n") + tables.endswith("` |") == sum(map(len, found.values())) > 900

    # each says what to do, or what it expects; a message that does neither is seen
    whole = [(text, error) for texts in found.values() for text, error in texts.items()]
    assert not [one for one in whole if not index["remedy"](*one) and not index["STATED"].match(one[0])]
    assert sum(index["remedy"](*one) in (index["REASON"], index["REPORT"], index["PART"]) for one in whole) < 40
    assert not index["remedy"]("This link has been used.", "401 unauthorised")
    assert not index["STATED"].match("This link has been used.")
    assert "| Unknown category …. | Expected one of …. | `ValueError` |" in tables
    assert index["halves"]("piecewise has a pure guarantee: leave delta out.")[1] == "Leave delta out."
    assert (
        "| …: the list is missing. | Remove the row or impute the value before privatising. | `ValueError` |" in tables
    )
    assert "| Too many requests. | Wait … s. | `429 too-many` |" in tables
    assert "Expected … to be a text of 1 to … bytes…." in found["web page"]
    assert index["halves"]("Expected dims, e.g. dims=(3,). Take a tuple.") == (
        "Expected dims, e.g. dims=(3,).",
        "Take a tuple.",
    )

    # read from the source another way: each run of words within a raise statement stands on the page
    listed = " ".join(text for texts in found.values() for text in texts)
    raised = [
        (path, node)
        for path in (ROOT / "src").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Raise) and node.exc
    ]
    words = {
        (path.name, part.lineno, part.value)
        for path, node in raised
        for part in ast.walk(node.exc)  # type: ignore[arg-type]
        if isinstance(part, ast.Constant) and isinstance(part.value, str) and len(part.value.split()) > 3
    }
    assert len(words) > 1000
    assert not {one for one in words if one[2] not in listed}


def test_a_wrong_example_is_seen() -> None:
    """The twin: a page whose example prints something else fails."""
    assert not _failures("text\n```pycon\n>>> 1 + 1\n2\n```\n", "right")
    assert _failures("text\n```pycon\n>>> 1 + 1\n3\n```\n", "wrong")


def test_the_last_look_was_at_this_version_and_saw_no_failure() -> None:
    page = (ROOT / "docs" / "release-check.md").read_text(encoding="utf-8")
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert page.startswith(f"# The last look at {version}\n")
    steps = runpy.run_path(str(ROOT / "scripts" / "release_check.py"))["STEPS"]
    for step in steps:
        assert f"## {step.title}\n\n```console\n$ {step.command}\n" in page, step.name
    assert page.count("\n## ") == len(steps)
    assert "It failed" not in page
