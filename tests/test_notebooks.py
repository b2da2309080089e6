"""Every notebook of examples/ runs from top to bottom in a kernel of its own, as it stands."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytestmark = [pytest.mark.long, pytest.mark.needs("nbclient", "ipykernel")]

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
LARGEST = 60_000  # bytes: results belong into a notebook, pictures by the megabyte do not


def run(path: Path, folder: Path) -> None:
    """Run a notebook in a folder; an error of a cell is an error of this test."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    NotebookClient(notebook, timeout=1800, resources={"metadata": {"path": str(folder)}}).execute()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), str(ROOT / "verifier")]))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    run(path, tmp_path)


def test_a_broken_notebook_is_noticed(tmp_path):
    import nbformat
    from nbclient.exceptions import CellExecutionError

    broken = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("assert 1 == 2")])
    nbformat.write(broken, tmp_path / "broken.ipynb")
    with pytest.raises(CellExecutionError, match="AssertionError"):
        run(tmp_path / "broken.ipynb", tmp_path)


def test_notebooks_show_their_results():
    names = {path.stem for path in NOTEBOOKS}
    assert names == {"auditing", "federation", "planning", "private_sgd", "survey"}
    for path in NOTEBOOKS:
        text = path.read_text(encoding="utf-8")
        assert len(text) < LARGEST, path.name
        assert '"output_type"' in text, f"{path.name} has no results: make notebooks"
        assert "/tmp/" not in text, path.name
