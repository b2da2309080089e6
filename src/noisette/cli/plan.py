"""`noisette plan`: the error of every mechanism, before anything is collected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np

from noisette.cli._options import find, parse_categories, parse_numbers, parse_range, split_list

_ROWS = 10  # break-even populations on a terminal; JSON has all


@click.command()
@click.option("--users", type=int, required=True, help="People who will report.")
@click.option("--dims", type=int, help="Numbers each person holds; 1, or the columns of --data, by default.")
@click.option("--report", type=int, help="Dimensions each person reports; the best for each mechanism by default.")
@click.option("--epsilon", "-e", type=float, required=True, help="Budget of a person, over all dimensions.")
@click.option("--delta", type=float, default=0.0, help="Lets Gaussian noise take part, e.g. 1e-6.")
@click.option("--mechanism", "-m", "names", multiple=True, metavar="NAME", help="Compare only these. May be repeated.")
@click.option("--values", metavar="A,B,...", help="What the numbers will be like: a sample.")
@click.option("--data", type=click.Path(path_type=Path), help="The same, from a CSV or Parquet file.")
@click.option("--columns", metavar="A,B,...", help="Columns of --data; all by default.")
@click.option(
    "--distribution", metavar="NAME", help="The same, as a family: uniform, gaussian:0.2,0.1, beta:2,5, poisson:3."
)
@click.option("--range", "limits", metavar="LOW,HIGH", help="Public range of the numbers; -1,1 by default.")
@click.option(
    "--categories", metavar="A,B,...", help="Plan frequencies of these categories; a number K means 0 to K-1."
)
@click.option("--html", type=click.Path(path_type=Path), help="Also write a page on which all this can be changed.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def plan(
    users: int,
    dims: int | None,
    report: int | None,
    epsilon: float,
    delta: float,
    names: tuple[str, ...],
    values: str | None,
    data: Path | None,
    columns: str | None,
    distribution: str | None,
    limits: str | None,
    categories: str | None,
    html: Path | None,
    as_json: bool,
) -> None:
    """Predict the error of every mechanism for a collection, best first, without an experiment.

    Without --values, --data or --distribution mechanisms are compared by their worst case. Values for a plan should be
    public or made up: a plan made from the people's own data is not private.
    """
    from noisette._terminal import to_json
    from noisette.domains import Interval
    from noisette.utility import plan as predict

    if sum(given is not None for given in (values, data, distribution)) > 1:
        raise ValueError("Give one of --values, --data and --distribution.")
    for name in names:
        find(name)
    domain: Any = parse_categories(categories)
    if domain is None:
        domain = Interval() if limits is None else Interval(*parse_range(limits))
    sample: Any = None if values is None else np.asarray(parse_numbers(values, "--values"))
    if data is not None:
        sample = _read(data, columns, domain)
        dims = (1 if sample.ndim == 1 else sample.shape[1]) if dims is None else dims
    elif domain.kind == "categorical" and sample is not None:
        sample = sample.astype(np.int64)
    made = predict(
        users=users,
        dims=1 if dims is None else dims,
        epsilon=epsilon,
        delta=delta,
        domain=domain,
        report=report,
        mechanisms=names or None,
        values=sample,
        distribution=distribution,
    )
    if as_json:
        click.echo(to_json(made.to_dict()))
    else:
        _show(made, worst=sample is None and distribution is None)
    if html is not None:
        _write(
            html,
            users=users,
            dims=1 if dims is None else dims,
            epsilon=epsilon,
            delta=delta,
            domain=domain,
            report=report,
            mechanisms=names or None,
            values=sample,
            distribution=distribution,
        )


def _write(path: Path, **setting: Any) -> None:
    """Write the planner page."""
    from noisette._terminal import progress
    from noisette.planner import page

    with progress("making the page") as advance:
        text = page(**setting, on_progress=advance)
    path.write_text(text, encoding="utf-8")
    click.echo(f"Wrote {path}: open it in a browser.", err=True)


def _read(path: Path, columns: str | None, domain: Any) -> Any:
    """Return a file's numbers or category codes; one column as a list."""
    from noisette.aggregation import Table

    table = Table.open(path, None if columns is None else split_list(columns))
    if domain.kind == "categorical":
        labels = np.concatenate(list(table.labels()))
        return labels.astype(np.int64) if domain.labels is None else domain.encode(labels)
    rows = np.concatenate(list(table.numbers()))
    return rows[:, 0] if rows.shape[1] == 1 else rows


def _show(made: Any, *, worst: bool) -> None:
    from noisette._terminal import console, number, table

    out = console()
    across = f"{made.dims:,} dimensions" if made.dims > 1 else "one value"
    out.print(f"[bold]Predicted error[/]: {made.users:,} users, {across} each, ε = {made.epsilon:g}")
    out.print("Worst case over all true values." if worst else "For the values you described.", style="dim")
    shown = table("mechanism", ">reports", ">RMSE", ">MSE", ">bias", ">std", "")
    for candidate in made.candidates:
        share = "all" if candidate.report in (None, made.dims) else f"{candidate.report:,} of {made.dims:,}"
        root = candidate.mse**0.5
        note = "[green]best[/]" if candidate is made.best else ""
        if not candidate.unbiased:
            note = f"{note} biased".strip()
        numbers = (number(v) for v in (root, candidate.mse, candidate.bias, candidate.std))
        shown.add_row(candidate.mechanism, share, *numbers, note)
    out.print(shown)
    if made.break_even:
        out.print("[bold]Break-even[/]: the first is better below, the second above")
        for point in made.break_even[:_ROWS]:
            out.print(f"  {point.a} and {point.b}: {point.population:,.0f} users")
        if len(made.break_even) > _ROWS:
            out.print(f"  ... and {len(made.break_even) - _ROWS:,} more: --json prints all.", style="dim")
