"""`noisette privatize`: a table of raw data in, a file of reports out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt

from noisette import _validate
from noisette._validate import FloatArray, IntArray
from noisette.cli._options import build, build_record, parse_column_categories, parse_levels, parse_ranges, split_list
from noisette.cli._survey import only_survey, privatize_survey, required
from noisette.domains import Categorical

_OTHERS = frozenset({".csv", ".json", ".tsv", ".txt", ".xlsx"})  # a name that would say something untrue
_PUBLIC = (
    "A range must be known beforehand, from what the numbers mean: one that is read off the data tells something "
    "about the people in it."
)


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
        _warn_of_seed(seed)
        return
    epsilon = required(epsilon, "--epsilon")
    required(names or None, "--mechanism")
    from noisette._random import generator
    from noisette._terminal import progress, to_json
    from noisette.aggregation import Table, write_reports

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
        ranges=parse_ranges(ranges, table.columns, why=_PUBLIC),
    )
    source = _Source(table, mechanism, clip=clip, asked=bool(ranges))
    rng = generator(seed)
    with progress(f"Privatising {file.name}") as advance:

        def reports() -> Iterator[Any]:
            for batch in source.batches():
                yield mechanism.privatize(batch, clip=clip, rng=rng)
                advance(table.share_read)

        labels = {"frequency": "labels", "attributes": "quantities"}.get(mechanism.kind)
        named = table.columns if labels is None else getattr(mechanism.domain, labels)
        users = write_reports(output, mechanism, reports(), names=named)
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
    _warn_of_seed(seed)


def _warn_of_seed(seed: int | None) -> None:
    if seed is not None:
        click.echo("Warning: --seed makes the noise predictable. Use it for tests only.", err=True)


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


@dataclass(frozen=True)
class _Source:
    """Batches of a table in the form that a mechanism takes, each value checked against the public domain."""

    table: Any
    mechanism: Any
    clip: bool
    asked: bool

    def batches(self) -> Iterator[Any]:
        """Yield what `privatize` takes."""
        domain = self.mechanism.domain
        if domain.kind == "categorical":
            for labels in self.table.labels():
                yield self._coded(labels, domain, 0)
            return
        if domain.kind == "attributes":
            yield from self._records(domain.parts)
            return
        for batch in self.table.numbers():
            if domain.kind == "box":
                self._check(batch, domain.lows, domain.highs)
            elif domain.kind == "tensor":
                self._check(batch, *(np.full(batch.shape[1], end) for end in (domain.low, domain.high)))
            elif domain.kind == "grid":
                self._check(batch, np.full(1, domain.low), np.full(1, domain.high))
                self._check_whole(batch)
            yield batch if domain.shape else batch[:, 0]

    def _records(self, parts: Sequence[Any]) -> Iterator[FloatArray]:
        """Yield rows of numbers and category codes."""
        coded = {place: part for place, part in enumerate(parts) if part.kind == "categorical"}
        lows = np.asarray([0.0 if place in coded else part.low for place, part in enumerate(parts)])
        highs = np.asarray([part.size - 1 if place in coded else part.high for place, part in enumerate(parts)])
        for batch, labels in self.table.records([self.table.columns[place] for place in coded]):
            for place, part in coded.items():
                batch[:, place] = self._coded(labels[self.table.columns[place]], part, place)
            self._check(batch, lows, highs)
            yield batch

    def _coded(self, values: npt.NDArray[np.str_], domain: Any, column: int) -> IntArray:
        """Return category codes, naming the row of a value that is no category."""
        labels = [str(code) for code in range(domain.size)] if domain.labels is None else list(domain.labels)
        codes = {label: code for code, label in enumerate(labels)}
        names, inverse = np.unique(values, return_inverse=True)
        known = np.asarray([codes.get(name, -1) for name in names.tolist()], dtype=np.int64)[inverse]
        if known.min() < 0:
            row = int(np.argmin(known))
            few = _validate.few(labels)
            raise ValueError(
                f"{self._place(row, column)}: {str(values[row])!r} is not among the categories {few}. "
                "Add it to --categories, or map it to one such as 'other' first."
            )
        return known

    def _check(self, batch: FloatArray, lows: FloatArray, highs: FloatArray) -> None:
        """Refuse the first value outside its public range, unless values are to be clipped."""
        outside = (batch < lows) | (batch > highs)
        if self.clip or not outside.any():
            return
        row, column = np.argwhere(outside)[0].tolist()
        name = self.table.columns[column]
        raise ValueError(
            f"{self._place(row, column)}: {batch[row, column]:g} is outside the "
            f"{'' if self.asked else 'default '}range [{lows[column]:g}, {highs[column]:g}]. "
            f"Give the public range of the numbers, --range {name}=LOW,HIGH, or --clip to move such "
            f"numbers to the nearer end. {_PUBLIC}"
        )

    def _check_whole(self, batch: FloatArray) -> None:
        """Refuse the first value between two points of the grid, unless values are to be moved."""
        whole = self.mechanism.domain.contains(batch)
        if not self.clip and not whole.all():
            row = int(np.argmin(whole))
            raise ValueError(
                f"{self._place(row, 0)}: {batch[row, 0]:g} is not a whole number, which {self.mechanism.name} takes. "
                "Use --clip to round such numbers, or a mechanism for numbers between."
            )

    def _place(self, row: int, column: int) -> str:
        name = self.table.columns[column]
        return f"{self.table.path}, row {self.table.rows_read + row + 1:,}, column {name!r}"


def _show(output: Path, users: int, columns: tuple[str, ...], mechanism: Any) -> None:
    from noisette._terminal import console, describe, inner_name, literal

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
