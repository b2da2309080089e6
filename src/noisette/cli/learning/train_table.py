"""`noisette train FILE --model linear` and `--model logistic`: a private model of one column from others."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from noisette._terminal import console, describe, literal, number, progress, table, to_json
from noisette.cli._options import parse_column_categories, parse_ranges, split_list, warn_of_seed
from noisette.domains import Categorical, Interval

_PUBLIC = "It must be known beforehand, from what the numbers mean, not read off the data."
_TERMINAL_ROWS = 30


@click.command("train")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--model", type=click.Choice(["linear", "logistic"]), required=True, help="Numbers, or two classes.")
@click.option("--target", required=True, metavar="COLUMN", help="Column to predict.")
@click.option("--features", metavar="A,B,...", help="Columns to predict from; all others by default.")
@click.option("--epsilon", "-e", type=float, required=True, help="Budget of one row, target included.")
@click.option(
    "--mechanism",
    "-m",
    default="auto",
    metavar="NAME",
    help="How gradients are reported; auto is the best. Logistic: pairs, for few people or a small budget.",
)
@click.option(
    "--range",
    "ranges",
    multiple=True,
    metavar="COLUMN=LOW,HIGH",
    help="Public range of a column; LOW,HIGH for all others. May be repeated.",
)
@click.option(
    "--categories",
    multiple=True,
    metavar="COLUMN=A,B,...",
    help="Public categories of a column; @FILE has one a line; a number K means 0 to K-1. May be repeated.",
)
@click.option(
    "--coding",
    type=click.Choice(["auto", "unit", "signed"]),
    default="auto",
    show_default=True,
    help="A row's own category is 1, the others 0 (unit) or -1 (signed).",
)
@click.option("--classes", default="0,1", show_default=True, metavar="A,B", help="Logistic: both classes.")
@click.option(
    "--level",
    "levels",
    multiple=True,
    metavar="LOW,HIGH,E",
    help="Graded mechanisms: a level on [-1, 1] and its relative budget; five by default. May be repeated.",
)
@click.option("--one-shot", is_flag=True, help="Linear: report second moments once, without rounds.")
@click.option("--error-bars", is_flag=True, help="Standard errors, intervals and verdicts; for a few columns.")
@click.option("--plan", "planned", type=int, metavar="USERS", help="Print the error bars to expect; train nothing.")
@click.option("--ridge", type=float, default=1e-4, show_default=True, help="Weight of the ridge term.")
@click.option("--batch", type=int, help="Users of a step; from budget and columns by default.")
@click.option("--step", type=float, help="Step t is STEP / sqrt(t); from the noise by default.")
@click.option("--last", is_flag=True, help="Keep the last model, not the average.")
@click.option("--clip", is_flag=True, help="Move numbers outside their range to its nearer end.")
@click.option("--test", type=click.Path(path_type=Path), help="File to test the model on; its errors are not private.")
@click.option(
    "--judge",
    type=float,
    metavar="SHARE",
    help="Logistic: people who do not teach the model but report, privately, whether it is right; 0.1 without --test.",
)
@click.option("--no-header", is_flag=True, help="The CSV has no header line; its columns are f0, f1, ...")
@click.option("--seed", type=int, help="For tests only: noise from a known seed protects nobody.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    file: Path,
    model: str,
    target: str,
    features: str | None,
    epsilon: float,
    mechanism: str,
    ranges: tuple[str, ...],
    categories: tuple[str, ...],
    coding: Any,
    classes: str,
    levels: tuple[str, ...],
    one_shot: bool,
    error_bars: bool,
    planned: int | None,
    ridge: float,
    batch: int | None,
    step: float | None,
    last: bool,
    clip: bool,
    test: Path | None,
    judge: float | None,
    no_header: bool,
    seed: int | None,
    as_json: bool,
) -> None:
    """Train on the rows of FILE (CSV or Parquet), each one person who reports once.

    Every person's device computes a gradient at the public model from her row and reports it with noise; the file is
    read once, in constant memory. The guarantee is that of a whole row, target included. Columns are numbers in a
    public range, [-1, 1] by default, or categories.
    """
    from noisette.aggregation import Table
    from noisette.regression.files import USUAL_JUDGES, BadRow, FileTraining

    header = not no_header
    known = Table.open(file, header=header).columns
    chosen = [name for name in known if name != target] if features is None else split_list(features)
    if target in chosen:
        raise ValueError(f"The target {target!r} is among the features: leave it out of --features.")
    wanted = Table.open(file, [*chosen, target], header=header).columns  # names what is not there
    kinds = _domains(wanted, ranges, categories)
    if model == "logistic":
        if target in kinds:
            raise ValueError(f"The target of a logistic model has classes: give --classes, not a range of {target!r}.")
        kinds[target] = _classes(classes)
    elif isinstance(kinds.get(target), Categorical):
        raise ValueError(f"The target of a linear model is a number: give --range {target}=LOW,HIGH. {_PUBLIC}")
    own: dict[str, Any] = {"batch": batch, "step": step, "levels": tuple(map(_level, levels)) or None}
    given = {name: value for name, value in own.items() if value is not None} | ({"average": False} if last else {})
    training = FileTraining(
        file,
        tuple(chosen),
        target,
        kinds,
        epsilon,
        mechanism=mechanism,
        coding=coding,
        ridge=ridge,
        one_shot=one_shot,
        error_bars=error_bars or planned is not None,
        given=given,
        judges=_judges(judge, model == "logistic", USUAL_JUDGES if test is None else 0.0),
        clip=clip,
        header=header,
    )
    if training.pairs and (model == "linear" or training.error_bars):
        raise ValueError("--mechanism pairs is for --model logistic: leave --error-bars and --plan out.")
    if one_shot and (given or model == "logistic"):
        raise ValueError(
            "--one-shot is for linear models and has no rounds: leave --batch, --step, --level and --last out."
        )
    if (error_bars or training.pairs) and (given or one_shot):
        what = "--error-bars" if error_bars else "--mechanism pairs"
        raise ValueError(f"{what} has no steps: leave --one-shot, --batch, --step, --level and --last out.")
    if planned is not None:
        _show_plan(training.expected_errors(planned), planned, as_json=as_json)
        return
    try:
        with progress(f"Training on {file.name}") as advance:
            record, guarantee = training.run(test=test, rng=seed, on_progress=advance)
    except BadRow as error:
        raise ValueError(f"{error} Use --range or --categories, or --clip. {_PUBLIC}") from None
    record["seed"] = seed
    if as_json:
        click.echo(to_json(record))
    else:
        _show(record, guarantee)
    warn_of_seed(seed)


def _judges(asked: float | None, logistic: bool, usual: float) -> float:
    """Return the share of people who judge the model."""
    if asked is None:
        return usual if logistic else 0.0
    if not logistic:
        raise ValueError("--judge is for --model logistic. A linear model has --error-bars.")
    if not 0 <= asked < 1:
        raise ValueError(f"Expected --judge {asked:g} to be at least 0 and below 1, e.g. 0.1.")
    return asked


def _domains(columns: Sequence[str], ranges: Sequence[str], categories: Sequence[str]) -> dict[str, Any]:
    """Return what is declared of each column."""
    result: dict[str, Any] = dict(parse_column_categories(categories, columns))
    numbers = [name for name in columns if name not in result]
    for name, ends in parse_ranges(ranges, numbers, why=_PUBLIC).items():
        result[name] = Interval(*ends)
    return result


def _classes(text: str) -> Categorical:
    names = split_list(text)
    if len(names) != 2 or len(set(names)) != 2:
        raise ValueError(f"Expected two classes, got --classes {text!r}. Write e.g. --classes no,yes.")
    return Categorical(labels=tuple(names))


def _level(text: str) -> tuple[float, float, float]:
    try:
        low, high, budget = (float(word) for word in split_list(text))
    except ValueError:
        raise ValueError(f"Expected --level LOW,HIGH,E, got {text!r}. Write e.g. --level -1,0,2.") from None
    return low, high, budget


def _show(record: Mapping[str, Any], guarantee: Any) -> None:
    out = console()
    kind, rounds = record["mechanism"]["mechanism"], record["rounds"]
    kind = record["mechanism"].get("inner", kind)
    exact = record["verdict"] is not None
    how = "one report of second moments" if record["training"]["one_shot"] else f"{rounds:,} steps"
    how = "one report of each" if kind == "pairs" else how
    out.print(
        f"[bold]{record['model'].capitalize()} model[/] of {literal(record['target'])}: {record['users']:,} users, "
        f"{how}, {kind}"
    )
    out.print(f"Guarantee: {describe(guarantee)}; a record is one row")
    rest = (">standard error", ">95 % from", ">to", "verdict") if exact else ()
    shown = table("column", ">coefficient", *rest)
    first = record["intercept_error"] if exact else {"name": "(intercept)", "value": record["intercept"]}
    for entry in [first, *record["coefficients"][:_TERMINAL_ROWS]]:
        errors = [number(entry[key]) for key in ("std_error", "low", "high")] + [entry["verdict"]] if exact else []
        shown.add_row(literal(entry["name"]), number(entry["value"]), *errors)
    out.print(shown)
    if exact:
        out.print(literal(record["verdict"]))
    if len(record["coefficients"]) > _TERMINAL_ROWS:
        out.print(f"... and {len(record['coefficients']) - _TERMINAL_ROWS:,} more: --json prints all.", style="dim")
    if record["judgement"] is not None:
        found = record["judgement"]
        out.print(
            f"By {found['users']:,} others, who reported privately too: accuracy {number(found['accuracy'])}, "
            f"{found['verdict']} (gain {number(found['low'])} to {number(found['high'])} at 95 %)"
        )
    if record["test"] is not None:
        test = dict(record["test"])
        name, rows, _ = test.pop("file"), test.pop("rows"), test.pop("private")
        verdict = test.pop("verdict")
        figures = ", ".join(f"{key} {number(value)}" for key, value in test.items())
        out.print(f"On {rows:,} rows of {literal(name)}, without noise: {figures}; {verdict}")


def _show_plan(rows: Sequence[Mapping[str, Any]], users: int, *, as_json: bool) -> None:
    """Print what error bars this many users would give."""
    from noisette.regression.inference import BLIND

    if as_json:
        click.echo(to_json({"users": users, "coefficients": rows}))
        return
    shown = table("column", ">standard error", ">least effect that shows")
    for row in rows:
        shown.add_row(literal(row["name"]), number(row["std_error"]), number(row["least_effect"]))
    console().print(shown)
    if math.isinf(rows[0]["std_error"]):
        console().print(BLIND)
    console().print("Columns are taken to be independent and spread evenly: others tell less.")
    console().print("An effect that shows is found four times in five, at 95 %.")
