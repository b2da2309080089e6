"""Every notebook of examples/ runs from top to bottom in a kernel, as it stands."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytestmark = [pytest.mark.long, pytest.mark.needs("nbclient", "ipykernel")]

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
LARGEST = 60_000  # bytes: results belong into a notebook, pictures by the megabyte do not


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    """One kernel for all notebooks, since most of the time is its start and its imports; each finds no names in it."""
    import nbformat
    from nbclient import NotebookClient

    folder = tmp_path_factory.mktemp("kernel")
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT / "verifier")])
    client = NotebookClient(nbformat.v4.new_notebook(), timeout=1800)
    with client.setup_kernel(
        cwd=str(folder), env=os.environ | {"PYTHONPATH": paths, "IPYTHONDIR": str(folder / "ipython")}
    ):
        yield client


def run(kernel, path: Path, folder: Path) -> None:
    """Run a notebook in a folder; an error of a cell is an error of this test."""
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    forget = f"%reset -f\n%cd -q {folder}"
    notebook.cells.insert(0, nbformat.v4.new_code_cell(forget))
    kernel.nb = notebook
    kernel.reset_execution_trackers()
    for place, cell in enumerate(notebook.cells):
        kernel.execute_cell(cell, place)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(kernel, path, tmp_path):
    run(kernel, path, tmp_path)


def test_a_broken_notebook_is_noticed(kernel, tmp_path):
    """The twin: a cell that fails, and one that needs a name of the notebook before."""
    import nbformat
    from nbclient.exceptions import CellExecutionError

    for code, error in (("name = 1\nassert name == 2", "AssertionError"), ("name", "NameError")):
        broken = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
        nbformat.write(broken, tmp_path / "broken.ipynb")
        with pytest.raises(CellExecutionError, match=error):
            run(kernel, tmp_path / "broken.ipynb", tmp_path)


def test_notebooks_show_their_results():
    names = {path.stem for path in NOTEBOOKS}
    assert names == {"auditing", "federation", "planning", "private_sgd", "survey"}
    for path in NOTEBOOKS:
        text = path.read_text(encoding="utf-8")
        assert len(text) < LARGEST, path.name
        assert '"output_type"' in text, f"{path.name} has no results: make notebooks"
        assert "/tmp/" not in text, path.name
