"""`noisette privatize`: a table of raw data in, a file of reports out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from noisette._terminal import console, describe, inner_name, literal, progress, to_json
from noisette.cli._options import (
    build,
    build_record,
    parse_column_categories,
    parse_levels,
    parse_ranges,
    split_list,
    warn_of_seed,
)
from noisette.cli.surveys._survey import only_survey, privatize_survey, required
from noisette.domains import Categorical

_OTHERS = frozenset({".csv", ".json", ".tsv", ".txt", ".xlsx"})  # a name that would say something untrue


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--mechanism",
    "-m",
    "names",
    multiple=True,
    metavar="NAME",
    help="See `noisette mechanisms`. Two of them for rows that hold numbers and categories.",
)
@click.option("--survey", type=click.Path(path_type=Path), help="YAML: questions and budget, in place of --mechanism.")
@click.option("--epsilon", "-e", type=float, help="Budget of one row, over all its columns.")
@click.option("--delta", type=float, default=0.0, help="Only for Gaussian noise, e.g. 1e-6.")
@click.option("--report", type=int, help="Columns each row reports, the budget split; the best number by default.")
@click.option("--columns", metavar="A,B,...", help="Columns to use; all by default.")
@click.option(
    "--range",
    "ranges",
    multiple=True,
    metavar="LOW,HIGH",
    help="Public range of the numbers, -1,1 by default; COLUMN=LOW,HIGH for one column. May be repeated.",
)
@click.option(
    "--categories",
    multiple=True,
    metavar="[COLUMN=]A,B,...",
    help="Public list of categories; @FILE has one a line; a number K means 0 to K-1. May be repeated.",
)
@click.option("--levels", metavar="A,B,...", help="Edges of the levels of a graded mechanism, from end to end.")
@click.option("--budgets", metavar="A,B,...", help="Budget of each level; scaled so that --epsilon holds in total.")
@click.option("--clip", is_flag=True, help="Move numbers outside the range to its nearer end.")
@click.option("--no-header", is_flag=True, help="The CSV has no header line; its columns are f0, f1, ...")
@click.option("--seed", type=int, help="For tests only: noise from a known seed protects nobody.")
@click.option("--output", "-o", type=click.Path(path_type=Path), required=True, help="Report file to write (Parquet).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def privatize(
    file: Path,
    names: tuple[str, ...],
    survey: Path | None,
    epsilon: float | None,
    delta: float,
    report: int | None,
    columns: str | None,
    ranges: tuple[str, ...],
    categories: tuple[str, ...],
    levels: str | None,
    budgets: str | None,
    clip: bool,
    no_header: bool,
    seed: int | None,
    output: Path,
    as_json: bool,
) -> None:
    """Privatise the rows of FILE (CSV or Parquet), each one person, into a file of reports.

    A mechanism for numbers reports every column of a row, or a few where that is better; one for vectors takes the row
    as a whole; one for categories takes the columns that have --categories. For numbers and categories together name
    two: --mechanism oue --mechanism hybrid. The guarantee covers a whole row. Files of any size are read in constant
    memory; the report file appears whole or not at all. With --survey the columns have the names of its questions and
    public groups.
    """
    if output.suffix.lower() in _OTHERS and output.resolve() != file.resolve():  # which is refused for another reason
        raise ValueError(f"Reports are written as Parquet. Call the file {output.with_suffix('.parquet')}.")
    if survey is not None:
        only_survey(click.get_current_context(), {"file", "survey", "clip", "seed", "output", "as_json"})
        privatize_survey(file, survey, output, clip=clip, seed=seed, as_json=as_json)
        warn_of_seed(seed)
        return
    epsilon = required(epsilon, "--epsilon")
    required(names or None, "--mechanism")
    from noisette.aggregation import Table
    from noisette.aggregation.inputs import PUBLIC, privatize_table

    table = Table.open(file, None if columns is None else split_list(columns), header=not no_header)
    if output.exists() and output.resolve() == file.resolve():
        raise ValueError(f"The output {output} is the input: it would replace the raw data. Name another file.")
    mechanism = _mechanism(
        names,
        table.columns,
        parse_column_categories(categories, table.columns),
        parse_levels(levels, budgets),
        epsilon=epsilon,
        delta=delta,
        report=report,
        ranges=parse_ranges(ranges, table.columns, why=PUBLIC),
    )
    with progress(f"Privatising {file.name}") as advance:
        users = privatize_table(table, mechanism, output, clip=clip, ranged=bool(ranges), rng=seed, on_progress=advance)
    if as_json:
        payload = {
            "output": str(output),
            "users": users,
            "bytes": output.stat().st_size,
            "columns": table.columns,
            "mechanism": mechanism.spec(),
            "guarantee": mechanism.guarantee.spec(),
            "seeded": seed is not None,
        }
        click.echo(to_json(payload))
    else:
        _show(output, users, table.columns, mechanism)
    warn_of_seed(seed)


def _mechanism(
    names: Sequence[str],
    columns: Sequence[str],
    categories: Mapping[str, Categorical],
    levels: tuple[list[float], list[float]] | None,
    **options: Any,
) -> Any:
    """Return the mechanism for the columns: one for all of them, or one for each kind where some hold categories."""
    if categories and len(columns) > 1:
        if levels is not None:
            raise ValueError("Levels are those of one number: choose a column with --columns.")
        return build_record(names, columns, categories=categories, **options)
    if len(names) > 1:
        raise ValueError(
            f"Expected one --mechanism for the columns, got {' and '.join(names)}. Two are for rows that hold numbers "
            "and categories: give --categories COLUMN=A,B,... for the latter."
        )
    return build(names[0], columns, categories=categories.get(columns[0]), levels=levels, **options)


def _show(output: Path, users: int, columns: tuple[str, ...], mechanism: Any) -> None:
    out = console()
    size = output.stat().st_size
    out.print(f"[bold]{literal(output)}[/]: {users:,} reports, {size / 1e6:,.2f} MB")
    what = f"{inner_name(mechanism)} on "
    if len(columns) == 1:
        what += literal(columns[0])
    elif mechanism.capabilities.composite:
        what += f"{mechanism.report:,} of {len(columns):,} columns a row"
    else:
        what += f"all {len(columns):,} columns together"
    out.print(f"Mechanism: {what}")
    out.print(f"Guarantee: {describe(mechanism.guarantee)}; a record is one row")
    out.print(f"Next: noisette estimate {literal(output)}", style="dim")
