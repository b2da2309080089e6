"""Run the notebooks of examples/ and keep what their cells print: make notebooks."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
KEPT = ("text/plain", "text/html")  # plots are drawn anew by whoever runs the notebook


def shown(output: Any) -> Any:
    """Return an output without what a repository should not carry."""
    if "data" in output:
        output["data"] = {kind: text for kind, text in output["data"].items() if kind in KEPT}
    return output


def main(names: list[str]) -> None:
    """Run the named notebooks, or all of them."""
    for path in sorted(EXAMPLES.glob("*.ipynb")):
        if names and path.stem not in names:
            continue
        notebook = nbformat.read(path, as_version=4)
        with tempfile.TemporaryDirectory() as folder:
            NotebookClient(notebook, timeout=1800, resources={"metadata": {"path": folder}}).execute()
        for cell in notebook.cells:
            cell.metadata.clear()  # times of a machine
            if cell.cell_type == "code":
                cell.outputs = [shown(one) for one in cell.outputs if one.get("name") != "stderr"]
        notebook.metadata["language_info"] = {"name": "python"}
        nbformat.write(notebook, path)
        print(f"{path.name}: {sum(cell.cell_type == 'code' for cell in notebook.cells)} cells ran")


if __name__ == "__main__":
    main(sys.argv[1:])
