"""`noisette reproduce`: a paper's experiments, what it claims beside what is obtained."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from noisette._terminal import console, literal, progress, table, to_json
from noisette.cli._options import ROOT, from_checkout

# where the experiments of each paper are, below experiments/
PAPERS = {
    "geodp": "geodp",
    "hierarchical": "hierarchical",
    "ldpfl": "federated.ldpfl",
    "ldptube": "ldptube",
    "ldpvec": "federated.ldpvec",
    "readings": "readings",
    "tensor": "tensor",
    "tldp": "tldp",
}


@click.command()
@click.argument("paper", required=False)
@click.option("--full", is_flag=True, help="The published sizes as far as one machine allows; minutes to hours.")
@click.option("--only", multiple=True, metavar="STUDY", help="One study, e.g. fig-4-3; again for another.")
@click.option("--resume", is_flag=True, help="Go on where an interrupted run of the same size and setting stopped.")
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, min_open=True),
    default=math.inf,
    help="Begin no further seed or repetition after so long; what is there is shown with its fraction.",
)
@click.option("--page", is_flag=True, help="Write docs/papers.md, the papers line by line, from the committed results.")
@click.option("--output", "-o", type=click.Path(path_type=Path, file_okay=False), help="Folder for the results.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def reproduce(
    paper: str | None,
    full: bool,
    only: tuple[str, ...],
    resume: bool,
    minutes: float,
    page: bool,
    output: Path | None,
    as_json: bool,
) -> None:
    """Run the experiments of PAPER and write tables, figures and their numbers.

    PAPER is one of geodp, hierarchical, ldpfl, ldptube, ldpvec, readings (the theorems), tensor and tldp. Without
    --full a small setting runs, of seconds to a minute. Results go to reproduced/PAPER: README.md, results.json and a
    PNG for each figure. A run that is interrupted keeps what it has computed, and --resume goes on. Real data are read
    from the folder in NOISETTE_DATA.
    """
    if page:
        _write_page()
        return
    if paper is None:
        raise click.UsageError("Missing argument 'PAPER'. Name one of those that --help lists, or give --page.")
    module, frame = _find(paper)
    studies = frame.studies(module)
    for name in only:
        if name not in studies:
            raise ValueError(f"{paper} has no study {name!r}. Expected one of {', '.join(studies)}.")
    chosen = [name for name in studies if name in only or not only]
    folder = output or Path("reproduced") / paper
    try:
        with progress(f"Reproducing {paper}") as advance:
            record = frame.run(module, chosen, full, folder, advance, resume=resume, minutes=minutes)
    except (KeyboardInterrupt, SystemExit):
        if any((folder / frame.UNFINISHED).glob("*.jsonl")):
            click.echo(f"What is computed so far is in {folder / frame.UNFINISHED}: --resume goes on.", err=True)
        raise
    if as_json:
        click.echo(to_json(record))
    else:
        _show(record, frame, folder)


def _write_page() -> None:
    """Write the page of all papers from the committed results."""
    page = from_checkout("experiments.page", "The page of the papers is")
    page.PAGE.write_text(page.write(), encoding="utf-8")
    click.echo(f"{page.PAGE} has every algorithm, theorem, figure and table.")


def _find(paper: str) -> tuple[Any, Any]:
    """Return the folder of a paper's experiments, as a module, and the frame they share."""
    folders = {name: ROOT.joinpath("experiments", *place.split(".")) for name, place in PAPERS.items()}
    present = [name for name, folder in folders.items() if (folder / "__init__.py").is_file()]
    if paper not in PAPERS:
        raise ValueError(f"Unknown paper {paper!r}. Expected one of {', '.join(present or PAPERS)}.")
    return from_checkout(f"experiments.{PAPERS[paper]}", f"The experiments of {paper!r} are"), from_checkout(
        "experiments.frame", "The experiments are"
    )


_BETWEEN = 2  # spaces between two columns


def _widths(cells: Sequence[Sequence[str]], screen: int) -> list[int]:
    """Return how wide columns are that wrap between words only: together as the screen, or wider than it if need be."""
    columns = list(zip(*cells, strict=True))
    widths = [max(len(word) for cell in column for word in cell.split() or [""]) for column in columns]
    whole = [max(map(len, column)) for column in columns]
    for _ in range(screen - sum(widths) - _BETWEEN * len(widths)):  # to the column that wraps into the most lines
        most = max(range(len(widths)), key=lambda place: whole[place] / max(widths[place], 1))
        if widths[most] >= whole[most]:
            break
        widths[most] += 1
    return widths


def _show(record: Mapping[str, Any], frame: Any, folder: Path) -> None:
    """Print each study: the claim, the table, the finding."""
    out = console()
    for study in record["studies"]:
        out.print(literal(study["title"]), style="bold")
        out.print(f"Claimed: {literal(study['claim'])}", style="dim")
        rows = study["rows"]
        right = [all(not isinstance(row[place], str) for row in rows) for place in range(len(study["columns"]))]
        shown = table(*(">" * flag + name for name, flag in zip(study["columns"], right, strict=True)))
        cells = [[frame.show(cell) for cell in row] for row in rows]
        widths = _widths([study["columns"], *cells], out.width)
        for column, width in zip(shown.columns, widths, strict=True):
            column.no_wrap, column.width = False, width
        for row in cells:
            shown.add_row(*map(literal, row))
        screen, out.width = out.width, max(out.width, sum(widths) + _BETWEEN * len(widths))
        out.print(shown)
        out.width = screen
        out.print(f"Obtained: {literal(frame.finding(study))}\n")
    out.print(f"README.md, results.json and figures are in {literal(folder)}.", style="dim")
