"""What is committed of a paper's experiments is what the code writes from the numbers."""

import json
from pathlib import Path

import pytest

from experiments import frame, ldptube, tensor, tldp

PAPERS = [pytest.param(paper, id=paper.__name__.rpartition(".")[2]) for paper in (ldptube, tensor, tldp)]


@pytest.mark.parametrize("paper", PAPERS)
def test_the_page_is_what_the_code_writes_from_the_numbers(paper):
    folder = Path(paper.__file__).parent
    record = json.loads((folder / "results.json").read_text("utf-8"))
    assert (folder / "README.md").read_text("utf-8") == frame.readme(paper.__doc__, record)
    assert [own["name"] for own in record["studies"]] == list(frame.studies(paper))
    assert all(own["full"] for own in record["studies"])


@pytest.mark.parametrize("paper", PAPERS)
def test_every_figure_is_there_and_small(paper):
    folder = Path(paper.__file__).parent
    record = json.loads((folder / "results.json").read_text("utf-8"))
    charts = [chart["name"] for own in record["studies"] for chart in own["charts"]]
    assert len(charts) == len(set(charts)) >= 20
    for name in charts:
        image = (folder / f"{name}.png").read_bytes()
        assert image.startswith(b"\x89PNG")
        assert len(image) < 100_000
