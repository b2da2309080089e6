"""The page of all papers: no item of the texts is forgotten, and what is committed is written from the results.

`papers.json` beside this file lists every algorithm, theorem, lemma, corollary, figure and table that the texts name.
It is extracted from the texts, which are not part of the repository, by `extract` below: by what they mention, so that
an item without a caption counts too. Where the texts are there, the list is extracted again.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from experiments import frame, made, page

ITEMS = json.loads((Path(__file__).parent / "papers.json").read_text("utf-8"))
TEXTS = {
    "yuan2025local": "000_*.txt",
    "hao2023hierarchical": "001_*.txt",
    "yang2021differential": "002_*.txt",
    "sun2021ldpfl": "003_*.txt",
    "duan2024benchmarking": "004_*.txt",
}
MENTION = re.compile(
    r"\b(Algorithm|Theorem|Lemma|Corollary|Figure|Fig\.|Table|TABLE)s?[ \n~*]{0,3}([0-9]+(?:\.[0-9]+)?|[IVX]+)\b"
)


def extract(text: str) -> list[str]:
    """Return all items that a text mentions before its references."""
    body = text[: max(text.rfind(head) for head in ("\nReferences", "\nREFERENCES", "# References", "Bibliography"))]
    names = {"Fig.": "Figure", "TABLE": "Table"}
    return sorted({f"{names.get(kind, kind)} {number}" for kind, number in MENTION.findall(body)})


def texts() -> Path:
    """Return the folder of the texts, beside that of the data."""
    return Path(os.environ.get("NOISETTE_DATA", "/nowhere")).resolve().parent / "papers"


@pytest.fixture(scope="module")
def lines():
    results = page.Results()
    return {key: page.lines(key, results) for key in page.PAPERS}


@pytest.mark.needs_data
@pytest.mark.parametrize("key", TEXTS)
def test_the_list_is_what_the_text_mentions(key):
    found = list(texts().glob(TEXTS[key])) if texts().is_dir() else []
    if not found:
        pytest.skip("the texts of the papers are not here")
    assert ITEMS[key] == extract(found[0].read_text("utf-8"))


def test_what_is_extracted_is_no_less_than_what_is_mentioned():
    text = (
        "By Theorem 3 and Fig. 2, TABLE IV\nshows Lemma\n7. Theorems 4 hold. Theorem proving.\nReferences\nTheorem 99"
    )
    assert extract(text) == ["Figure 2", "Lemma 7", "Table IV", "Theorem 3", "Theorem 4"]


@pytest.mark.parametrize("key", TEXTS)
def test_every_item_of_the_paper_has_a_line_and_no_line_is_about_nothing(key, lines):
    assert {page.label(line.item) for line in lines[key]} == set(ITEMS[key])
    assert [len(ITEMS[key]) for key in TEXTS] == [13, 12, 19, 15, 58]


def test_a_line_says_where_it_is_and_ends_with_five_words_at_most(lines):
    from noisette.cli.evidence.reproduce import PAPERS, _find

    for line in (line for own in lines.values() for line in own):
        assert 1 <= len(line.verdict.split()) <= 5, line
        assert line.claimed, line
        if not line.where:  # notation and diagrams alone are nowhere
            assert line.setting in ("notation", "diagram"), line
            continue
        assert line.obtained or line.setting, line
        paper, study = line.where.split(" ")
        assert paper in PAPERS, line
        assert study in frame.studies(_find(paper)[0]), line


def test_what_is_committed_is_written_from_the_results():
    assert page.PAGE.read_text("utf-8") == page.write()


def test_lines_come_from_the_results(tmp_path):
    """The twin: another number in the results is another line."""
    for path in page.ROOT.rglob("results.json"):
        own = tmp_path / path.relative_to(page.ROOT)
        own.parent.mkdir(parents=True, exist_ok=True)
        own.write_text(path.read_text("utf-8"), encoding="utf-8")
    path = tmp_path / "federated" / "ldpfl" / "results.json"
    record = json.loads(path.read_text("utf-8"))
    fig_5 = next(study for study in record["studies"] if study["name"] == "fig-5")
    fig_5["rows"][0][fig_5["columns"].index("LDP-FL %")] = 12.34
    path.write_text(json.dumps(record), encoding="utf-8")
    changed = page.lines("sun2021ldpfl", page.Results(tmp_path))
    assert "92.5, 12.3 at ε" in next(line.obtained for line in changed if line.item == "Figure 5")


def test_a_small_setting_has_no_verdict(tmp_path):
    """Whatever a paper's folder says of its numbers: a study that is not full is too small to judge."""
    copied = {}
    for path in page.ROOT.rglob("results.json"):
        record = json.loads(path.read_text("utf-8"))
        for study in record["studies"]:
            study["full"] = False
        own = tmp_path / path.relative_to(page.ROOT)
        own.parent.mkdir(parents=True, exist_ok=True)
        own.write_text(json.dumps(record), encoding="utf-8")
        copied |= {(record["paper"], study["name"]): study for study in record["studies"]}
    small = page.Results(tmp_path)
    seen = 0
    for key in page.PAPERS:
        for line, whole in zip(page.lines(key, small), page.lines(key, page.Results()), strict=True):
            paper, _, study = line.where.partition(" ")
            if paper in ("", "readings") or copied[paper, study].get("sizeless"):
                continue
            assert line.verdict == "Too small to judge", line
            assert "small setting" in line.setting or not line.setting.startswith(("the paper's", "reduced")), line
            seen += whole.verdict != line.verdict
    assert seen > 30
    full = page.Results()("hierarchical", "fig-2").study
    text = frame.readme("A paper", {"studies": [full | {"full": False}]})
    assert frame.TOO_SMALL in text


def test_the_page_is_linked():
    root = page.PAGE.parent.parent
    assert "[The papers, line by line](docs/papers.md)" in (root / "README.md").read_text("utf-8")
    assert "papers.md" in (root / "docs" / "index.md").read_text("utf-8")
    assert "The papers, line by line: papers.md" in (root / "mkdocs.yml").read_text("utf-8")


def test_contributing_says_how_to_go_on_with_every_fraction():
    from noisette.cli.evidence.reproduce import PAPERS, _find

    text = (page.PAGE.parent.parent / "CONTRIBUTING.md").read_text("utf-8")
    told = re.findall(r"^\| `(\w+) --only ([\w-]+)` \| (.*?) \|", text, re.MULTILINE)
    assert len(told) == len(set(told)) > 5
    for paper, study, _ in told:
        assert study in frame.studies(_find(paper)[0])
    there = {(paper, study): now for paper, study, now in told}
    for paper, place in PAPERS.items():
        record = json.loads(page.ROOT.joinpath(*place.split("."), "results.json").read_text("utf-8"))
        for study in record["studies"]:
            if study.get("fraction"):
                assert there[paper, study["name"]] == study["fraction"]


def test_what_goes_on_has_its_parts_and_what_has_none_is_said_to_begin_anew():
    """Parts of other code would be put aside, and hours with them, without a word beforehand."""
    from noisette.cli.evidence.reproduce import PAPERS, _find

    text = (page.PAGE.parent.parent / "CONTRIBUTING.md").read_text("utf-8")
    anew = set(re.findall(r"^\| `(\w+) --only ([\w-]+)` .*begins anew", text, re.MULTILINE))
    seen = set()
    for paper, place in PAPERS.items():
        folder = page.ROOT.joinpath(*place.split("."))
        for study in json.loads((folder / "results.json").read_text("utf-8"))["studies"]:
            if not study.get("partial"):
                continue
            parts = folder / frame.UNFINISHED / f"{study['name']}-full.jsonl"
            code = made.digest(frame.studies(_find(paper)[0])[study["name"]])
            kept = parts.exists() and json.loads(parts.read_text("utf-8").splitlines()[0]) == code
            assert kept == ((paper, study["name"]) not in anew), (paper, study["name"])
            seen.add((paper, study["name"]))
    assert anew <= seen


def test_every_result_is_of_todays_code_or_says_that_it_is_older():
    """Whoever runs a paper with --resume computes again what is of an older code, hours of it perhaps."""
    from noisette.cli.evidence.reproduce import PAPERS, _find

    for paper, place in PAPERS.items():
        known, folder = frame.studies(_find(paper)[0]), page.ROOT.joinpath(*place.split("."))
        for study in json.loads((folder / "results.json").read_text("utf-8"))["studies"]:
            same = study.get("code") == made.digest(known[study["name"]])
            assert same != bool(study.get("older")), (paper, study["name"])
            assert study.get("older", "") in (folder / "README.md").read_text("utf-8")


@pytest.mark.parametrize("item", ["Definition 1", "theorem 2", "Figure"])
def test_a_line_about_no_item_is_refused(item):
    with pytest.raises(ValueError, match="Expected a line to begin with"):
        page.label(item)
