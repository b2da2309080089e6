"""`noisette plan`: the error of every mechanism, before anything is collected."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click

from noisette._terminal import HALF_WIDTH_95, console, literal, number, progress, table, to_json
from noisette.cli._options import find, parse_categories, parse_levels, parse_numbers, parse_range, split_list
from noisette.cli.surveys._survey import only_survey, plan_survey, required, write_survey_page

_TERMINAL_ROWS = 10  # break-even populations on a terminal; JSON has all
_GOALS = (("mse", "MSE"), ("power", "power"))
_NOTES = {"doubtful": "[yellow]doubtful[/]", "not worth collecting": "[red]noise[/]"}


@click.command()
@click.argument("survey", required=False, type=click.Path(path_type=Path), metavar="[SURVEY.yaml]")
@click.option("--users", type=int, help="People who will report; a survey's own by default.")
@click.option("--dims", type=int, help="Numbers each person holds; 1, or the columns of --data, by default.")
@click.option("--report", type=int, help="Dimensions each person reports; the best for each mechanism by default.")
@click.option("--epsilon", "-e", type=float, help="Budget of a person, over all dimensions.")
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
    "--categories",
    multiple=True,
    metavar="A,B,...",
    help="Plan frequencies of these categories; a number K means 0 to K-1. Repeat it for one attribute after another.",
)
@click.option("--levels", metavar="A,B,...", help="Plan graded protection: the edges of the levels, from end to end.")
@click.option("--budgets", metavar="A,B,...", help="Budget of each level; scaled so that --epsilon holds in total.")
@click.option("--target-mse", type=float, help="Say how many users this mean squared error takes.")
@click.option("--target-power", type=float, help="Say how many users see --effect with this chance, e.g. 0.8.")
@click.option("--effect", type=float, help="Distance from a supposed mean or frequency that a test should see.")
@click.option("--significance", type=float, default=0.05, show_default=True, help="False alarms of that test.")
@click.option(
    "--curve",
    metavar="NAME=A,B,...",
    help="Break-even of two --mechanism along epsilon, report or dims, e.g. epsilon=0.5,1,2.",
)
@click.option("--html", type=click.Path(path_type=Path), help="Also write a page on which all this can be changed.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def plan(
    survey: Path | None,
    users: int | None,
    dims: int | None,
    report: int | None,
    epsilon: float | None,
    delta: float,
    names: tuple[str, ...],
    values: str | None,
    data: Path | None,
    columns: str | None,
    distribution: str | None,
    limits: str | None,
    categories: tuple[str, ...],
    levels: str | None,
    budgets: str | None,
    target_mse: float | None,
    target_power: float | None,
    effect: float | None,
    significance: float,
    curve: str | None,
    html: Path | None,
    as_json: bool,
) -> None:
    """Predict the error of every mechanism for a collection, best first, without an experiment.

    With a SURVEY it shows the error of every quantity in every group, and whether it is worth asking. Of the options
    below only --users, --epsilon, --html and --json go with it.

    Without --values, --data or --distribution mechanisms are compared by their worst case. Values for a plan should be
    public or made up: a plan made from the people's own data is not private.
    """
    if survey is not None:
        only_survey(click.get_current_context(), {"survey", "users", "epsilon", "html", "as_json"})
        plan_survey(survey, users, as_json=as_json, epsilon=epsilon, html=html)
        return
    users, epsilon = required(users, "--users"), required(epsilon, "--epsilon")
    from noisette.prediction import plan as predict

    if sum(given is not None for given in (values, data, distribution)) > 1:
        raise ValueError("Give one of --values, --data and --distribution.")
    for name in names:
        find(name)
    graded = parse_levels(levels, budgets)
    if graded is not None:
        others = (dims, report, limits, categories, names, target_mse, effect, curve, html)
        if any(given not in (None, (), 1) for given in others):
            raise ValueError("A plan of levels is about one number: give it --users, --epsilon and its values only.")
    domain = _domain(categories, limits if graded is None else f"{graded[0][0]!r},{graded[0][-1]!r}")
    sample: Any = None if values is None else parse_numbers(values, "--values")
    if data is not None:
        from noisette.aggregation.inputs import sample_of

        sample = sample_of(data, None if columns is None else split_list(columns), domain)
        dims = (1 if sample.ndim == 1 else sample.shape[1]) if dims is None else dims
    elif domain.kind == "categorical" and sample is not None:
        sample = [int(value) for value in sample]
    setting: dict[str, Any] = {
        "users": users,
        "dims": 1 if dims is None else dims,
        "epsilon": epsilon,
        "delta": delta,
        "domain": domain,
        "report": report,
        "values": sample,
        "distribution": distribution,
    }
    targets: dict[str, Any] = {"target_power": target_power, "effect": effect, "significance": significance}
    if graded is not None:
        from noisette.prediction import plan_levels

        known = {"values": sample, "distribution": distribution}
        made = plan_levels(users=users, edges=graded[0], epsilons=graded[1], total=epsilon, **known)
    else:
        made = predict(**setting, mechanisms=names or None, target_mse=target_mse, **targets)
    swept = None if curve is None else _sweep(curve, names, setting)
    if as_json:
        result = made.to_dict() | ({} if swept is None else {"curve": swept.to_dict()})
        click.echo(to_json(result))
    else:
        _show(made, worst=sample is None and distribution is None)
        if swept is not None:
            _show_curve(swept)
    if html is not None and categories:
        _write_choices(html, domain, users, epsilon, names, categories)
    elif html is not None:
        _write(html, **setting, mechanisms=names or None, target_mse=target_mse)


def _domain(categories: tuple[str, ...], limits: str | None) -> Any:
    """Return the domain: a range, the categories of one attribute, or attributes."""
    from noisette.domains import Attributes, Interval

    if categories and limits is not None:
        raise ValueError("Give --range for numbers or --categories for choices, not both; a survey file takes both.")
    parts = [parse_categories(text) for text in categories]
    if len(parts) > 1:
        return Attributes(tuple(parts))
    if parts:
        return parts[0]
    return Interval() if limits is None else Interval(*parse_range(limits))


def _sweep(text: str, names: tuple[str, ...], setting: dict[str, Any]) -> Any:
    """Return the break-even populations of two mechanisms along a parameter."""
    from noisette.prediction import break_even_curve

    over, mark, points = text.partition("=")
    if not mark:
        raise ValueError(f"Expected a name and numbers, got --curve {text!r}. Write e.g. --curve epsilon=0.5,1,2.")
    if len(names) != 2:
        raise ValueError(f"--curve compares two mechanisms, got {len(names)}. Name two with --mechanism.")
    chosen: Any = over.strip()
    return break_even_curve(*names, over=chosen, points=parse_numbers(points, "--curve"), **setting)


def _write(path: Path, **setting: Any) -> None:
    """Write the planner page."""
    from noisette.planner import page

    with progress("making the page") as advance:
        text = page(**setting, on_progress=advance)
    path.write_text(text, encoding="utf-8")
    click.echo(f"Wrote {path}: open it in a browser.", err=True)


def _write_choices(
    path: Path, domain: Any, users: int, epsilon: float, names: tuple[str, ...], categories: tuple[str, ...]
) -> None:
    """Write the planner page of one choice, or of several."""
    from noisette.survey.questions import Choice
    from noisette.survey.survey import Survey

    parts = domain.parts if domain.kind == "attributes" else (domain,)
    asked = [
        Choice(f"choice {place}", tuple(attribute.labels or map(str, range(attribute.size))))
        for place, attribute in enumerate(parts, 1)
    ]
    survey = Survey(asked, epsilon=epsilon, users=users, mechanism=names[0] if len(names) == 1 else "auto")
    given = [word for one in categories for word in ("--categories", one)]
    given += [word for one in names for word in ("--mechanism", one)]
    write_survey_page(path, survey, users, shlex.join(["noisette", "plan", *given]))


def _show_candidates(made: Any, out: Any) -> None:
    """Print the candidates: their errors, or what the targets take."""
    goals = [(name, f">users for {text}") for name, text in _GOALS if name in made.targets]
    columns = [">±", ">bias", ">std"]
    if made.targets:
        columns = [">±", *([">power"] if "effect" in made.targets else []), *(text for _, text in goals)]
    shown = table("mechanism", ">reports", *columns, "")
    for candidate in made.candidates:
        share = "all" if candidate.report in (None, made.dims) else f"{candidate.report:,} of {made.dims:,}"
        cells = [number(HALF_WIDTH_95 * candidate.mse**0.5)]
        if made.targets:
            if "effect" in made.targets:
                cells.append("-" if candidate.power is None else f"{candidate.power:.3f}")
            needed = (candidate.needed[name] for name, _ in goals)
            cells += ["never" if users is None else f"{users:,}" for users in needed]
        else:
            cells += [number(value) for value in (candidate.bias, candidate.std)]
        notes = ["[green]best[/]"] if candidate is made.best else []
        notes += ["biased"] if not candidate.unbiased else []
        notes += [_NOTES[candidate.verdict]] if candidate.verdict in _NOTES else []
        shown.add_row(candidate.mechanism, share, *cells, " ".join(notes))
    out.print(shown)
    out.print("± is half of a 95 % interval: 1.96 roots of the mean squared error.", style="dim")
    for name, reason in made.left_out.items():
        out.print(literal(f"Left out: {name}. {reason}"), style="dim", soft_wrap=True)


def _show_curve(swept: Any) -> None:
    """Print break-even populations along a parameter."""
    out = console()
    out.print(f"[bold]Break-even[/] of {swept.a} and {swept.b} along {swept.over}")
    shown = table(f">{swept.over}", ">population", "better for these users")
    for point, population, winner in zip(swept.points, swept.populations, swept.winners, strict=True):
        shown.add_row(f"{point:g}", "none" if population is None else f"{population:,.1f}", winner)
    out.print(shown)


def _show(made: Any, *, worst: bool) -> None:
    out = console()
    across = f"{made.dims:,} dimensions" if made.dims > 1 else "one value"
    out.print(f"[bold]Predicted error[/]: {made.users:,} users, {across} each, ε = {made.epsilon:g}")
    out.print("Worst case over all true values." if worst else "For the values you described.", style="dim")
    _show_candidates(made, out)
    ratio = made.signal / made.best.mse**0.5 if made.best.mse > 0 else float("inf")
    colour = {"worth collecting": "green", "doubtful": "yellow"}.get(made.verdict, "red")
    out.print(
        f"[bold]Verdict[/]: [{colour}]{made.verdict}[/]. The signal is at most {number(made.signal)}, "
        f"{number(ratio)} times the root mean square error of {made.best.mechanism}."
    )
    if made.break_even:
        out.print("[bold]Break-even[/]: the first is better below, the second above")
        for point in made.break_even[:_TERMINAL_ROWS]:
            out.print(f"  {point.a} and {point.b}: {point.population:,.0f} users")
        if len(made.break_even) > _TERMINAL_ROWS:
            out.print(f"  ... and {len(made.break_even) - _TERMINAL_ROWS:,} more: --json prints all.", style="dim")
