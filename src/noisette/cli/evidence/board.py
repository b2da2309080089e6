"""`noisette board`: methods by task on real data, at one true guarantee, and the page that shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from noisette._terminal import console, literal, table, to_json
from noisette.cli._options import from_checkout


@click.command()
@click.option("--only", multiple=True, metavar="TASK[/PART]", help="A task, or those of its cells and methods.")
@click.option("--again", is_flag=True, help="Run what has a result as well.")
@click.option("--small", is_flag=True, help="One cell of each task, two points of each curve.")
@click.option("--no-run", is_flag=True, help="Only write the page, from the results there are.")
@click.option("--results", type=click.Path(path_type=Path, file_okay=False), help="Folder of results.")
@click.option("--page", type=click.Path(path_type=Path, dir_okay=False), help="HTML file to write.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
@click.pass_context
def board(
    context: click.Context,
    only: tuple[str, ...],
    again: bool,
    small: bool,
    no_run: bool,
    results: Path | None,
    page: Path | None,
    as_json: bool,
) -> None:
    """Run methods by task on real data and write one page.

    What has a result is not run again, so the board is made in pieces and goes on where it was stopped. TASK is one of
    numbers, categories, vectors, shapes, texts, changing, tensors, regression, learning and curves; PART is part of a
    cell's or a method's name. Data are read from the folder in NOISETTE_DATA; other libraries run in an environment of
    their own (`make peers`), and are left out where there is none.
    """
    frame, curves, pages = (
        from_checkout(f"benchmarks.board.{name}", "The board is") for name in ("frame", "curves", "page")
    )
    folder = results or frame.RESULTS
    unknown = {one.partition("/")[0] for one in only} - {*frame.TASKS, "curves"}
    if unknown:
        raise ValueError(f"Unknown task {min(unknown)!r}. Expected one of {', '.join((*frame.TASKS, 'curves'))}.")
    failed: list[str] = []
    if not no_run:
        options: dict[str, Any] = {"small": small, "again": again, "folder": folder, "tell": _tell}
        if not only or any(one.partition("/")[0] in frame.TASKS for one in only):
            failed += frame.run(only, **options)
        if not only or any(one.partition("/")[0] == "curves" for one in only):
            failed += curves.run(only, **options)
    summary = pages.summary(folder)
    if page is not None:
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(pages.page(folder), encoding="utf-8")
    if as_json:
        click.echo(to_json(summary | {"failed": failed}))
    else:
        _show(summary, page)
    context.exit(1 if failed else 0)


def _tell(line: str) -> None:
    click.echo(line, err=True)


def _show(summary: dict[str, Any], page: Path | None) -> None:
    """Print the counts and the cells where auto is not near the best."""
    out = console()
    counts = (
        f"{summary['methods']} methods and variants, {summary['cells']} cells, {len(summary['data_sets'])} data sets"
    )
    out.print(literal(f"{counts}, {summary['results']} results: {summary['refuted']} refuted."))
    near = (
        f"auto is within 1.05 of the best certified method in {summary['auto_near']} of {summary['auto_cells']} cells"
    )
    out.print(literal(near + (f" ({100 * summary['auto_share']:.1f} %)." if summary["auto_cells"] else ".")))
    if summary["auto_far"]:
        elsewhere = table("elsewhere", "auto took", "best certified", ">ratio")
        for one in summary["auto_far"]:
            named = (f"{one['task']}: {one['cell']}", one["chosen"], one["best"])
            elsewhere.add_row(*map(literal, named), f"{one['ratio']:.3f}")
        out.print(elsewhere)
    if page is not None:
        out.print(literal(f"Written to {page}."))
