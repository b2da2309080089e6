"""What the tests of a paper's experiments share; a module names its paper as PAPER."""

import json
from functools import lru_cache
from pathlib import Path

import pytest

from experiments import frame
from noisette import datasets

_read_once = lru_cache(datasets.images)


@pytest.fixture(autouse=True)
def pictures_are_read_once(monkeypatch):
    """Decoding CIFAR-10 takes five seconds of a core, and most papers have it; other tests read for themselves."""
    monkeypatch.setattr(datasets, "images", _read_once)


def read(paper):
    """Return the committed studies of a paper by their names."""
    record = json.loads((Path(paper.__file__).parent / "results.json").read_text("utf-8"))
    return {study["name"]: study for study in record["studies"]}


@pytest.fixture(scope="module")
def committed(request):
    return read(request.module.PAPER)


@pytest.fixture
def run(request, tmp_path):
    """Run a study in its small setting."""
    return lambda name: frame.run(request.module.PAPER, [name], False, tmp_path, lambda _: None)["studies"][0]
