"""`noisette train FILE --model linear` and `--model logistic`: a private model of one column from others."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from noisette import _validate
from noisette.cli._options import parse_column_categories, parse_ranges, split_list
from noisette.domains import Categorical, Interval

_PUBLIC = "It must be known beforehand, from what the numbers mean, not read off the data."
_ROWS = 30


@click.command("train")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--model", type=click.Choice(["linear", "logistic"]), required=True, help="Numbers, or two classes.")
@click.option("--target", required=True, metavar="COLUMN", help="Column to predict.")
@click.option("--features", metavar="A,B,...", help="Columns to predict from; all others by default.")
@click.option("--epsilon", "-e", type=float, required=True, help="Budget of one row, target included.")
@click.option("--mechanism", "-m", default="auto", metavar="NAME", help="How gradients are reported; auto is the best.")
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
    help="Other categories than one's own as 0 or as -1; by the budget.",
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
    no_header: bool,
    seed: int | None,
    as_json: bool,
) -> None:
    """Train on the rows of FILE (CSV or Parquet), each one person who reports once.

    Every person's device computes a gradient at the public model from her row and reports it with noise; the file is
    read once, in constant memory. The guarantee is that of a whole row, target included. Columns are numbers in a
    public range, [-1, 1] by default, or categories.
    """
    from noisette._random import generator
    from noisette._terminal import progress, to_json
    from noisette.aggregation import Table
    from noisette.regression import BadValue, Design, Inference, OneShot, Training, coding_for
    from noisette.regression.rows import DesignRows

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
    if coding == "auto":
        coding = "unit" if one_shot or error_bars or planned is not None else coding_for(_validate.epsilon(epsilon))
    design = Design(tuple(kinds.get(name, Interval()) for name in chosen), names=tuple(chosen), coding=coding)
    goal: Any = kinds.get(target, Interval())
    options: dict[str, Any] = {"mechanism": mechanism, "ridge": ridge}
    own: dict[str, Any] = {"batch": batch, "step": step, "levels": tuple(map(_level, levels)) or None}
    given = {name: value for name, value in own.items() if value is not None} | ({"average": False} if last else {})
    if one_shot and (given or model == "logistic"):
        raise ValueError(
            "--one-shot is for linear models and has no rounds: leave --batch, --step, --level and --last out."
        )
    if error_bars and (given or one_shot):
        raise ValueError("--error-bars has no steps: leave --one-shot, --batch, --step, --level and --last out.")
    if planned is not None:
        _show_plan(Inference(design, goal, epsilon, mechanism=mechanism).expected(planned), planned, as_json=as_json)
        return
    trainer: Any
    if error_bars:
        trainer = Inference(design, goal, epsilon, mechanism=mechanism)
    else:
        trainer = (OneShot if one_shot else Training)(design, goal, epsilon, **options, **given)
    declared = dict(zip(chosen, design.attributes, strict=True)) | {target: goal}
    source = DesignRows(file, tuple(chosen), target, declared, header)
    started = time.monotonic()
    with progress(f"Training on {file.name}") as advance:

        def stream() -> Iterator[tuple[Any, Any]]:
            for rows, values, share in source.batches():
                yield rows, values
                advance(share)
                source.done += len(values)

        try:
            if error_bars:
                rows, values = map(
                    np.concatenate, zip(*((rows, values) for rows, values, _ in source.batches()), strict=True)
                )
                result = trainer.run(rows, values, clip=clip, rng=generator(seed))
            else:
                result = trainer.run(stream(), clip=clip, rng=generator(seed))
        except BadValue as error:
            row = f"{file}, row {source.done + error.row + 1:,}"
            reason = error.text.replace("[row]", row).replace("'target'", repr(target))
            raise ValueError(f"{reason} Use --range or --categories, or --clip. {_PUBLIC}") from None
    seconds = time.monotonic() - started
    fitted = result.model if one_shot or error_bars else result
    protocol = trainer.protocol if one_shot or error_bars else trainer
    slopes, intercept = protocol.coefficients(fitted)
    record = {
        "model": model,
        "target": target,
        "users": fitted.users,
        "rounds": fitted.rounds,
        "intercept": intercept,
        "coefficients": result.table()[1:]
        if error_bars
        else [{"name": name, "value": value} for name, value in zip(design.columns[1:], slopes.tolist(), strict=True)],
        "intercept_error": result.table()[0] if error_bars else None,
        "verdict": result.verdict() if error_bars else None,
        "mechanism": trainer.channel.spec(),
        "guarantee": trainer.guarantee.spec(),
        "training": protocol.spec() | {"one_shot": one_shot},
        "seed": seed,
        "seconds": seconds,
        "test": None if test is None else replace(source, path=test).errors(protocol, fitted, clip=clip),
    }
    if as_json:
        click.echo(to_json(record))
    else:
        _show(record, trainer.guarantee)
    if seed is not None:
        click.echo("Warning: --seed makes the noise predictable. Use it for tests only.", err=True)


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
        low, high, budget = (float(part) for part in split_list(text))
    except ValueError:
        raise ValueError(f"Expected --level LOW,HIGH,E, got {text!r}. Write e.g. --level -1,0,2.") from None
    return low, high, budget


def _show(record: Mapping[str, Any], guarantee: Any) -> None:
    from noisette._terminal import console, describe, literal, number, table

    out = console()
    kind, rounds = record["mechanism"]["mechanism"], record["rounds"]
    kind = record["mechanism"].get("inner", kind)
    exact = record["verdict"] is not None
    how = "one report of second moments" if record["training"]["one_shot"] else f"{rounds:,} steps"
    out.print(
        f"[bold]{record['model'].capitalize()} model[/] of {literal(record['target'])}: {record['users']:,} users, "
        f"{how}, {kind}"
    )
    out.print(f"Guarantee: {describe(guarantee)}; a record is one row")
    rest = (">standard error", ">95 % from", ">to", "verdict") if exact else ()
    shown = table("column", ">coefficient", *rest)
    first = record["intercept_error"] if exact else {"name": "(intercept)", "value": record["intercept"]}
    for entry in [first, *record["coefficients"][:_ROWS]]:
        errors = [number(entry[key]) for key in ("std_error", "low", "high")] + [entry["verdict"]] if exact else []
        shown.add_row(literal(entry["name"]), number(entry["value"]), *errors)
    out.print(shown)
    if exact:
        out.print(literal(record["verdict"]))
    if len(record["coefficients"]) > _ROWS:
        out.print(f"... and {len(record['coefficients']) - _ROWS:,} more: --json prints all.", style="dim")
    if record["test"] is not None:
        test = dict(record["test"])
        name, rows, _ = test.pop("file"), test.pop("rows"), test.pop("private")
        verdict = test.pop("verdict")
        figures = ", ".join(f"{key} {number(value)}" for key, value in test.items())
        out.print(f"On {rows:,} rows of {literal(name)}, without noise: {figures}; {verdict}")


def _show_plan(rows: Sequence[Mapping[str, Any]], users: int, *, as_json: bool) -> None:
    """Print what error bars so many users would give."""
    from noisette._terminal import console, literal, number, table, to_json

    if as_json:
        click.echo(to_json({"users": users, "coefficients": rows}))
        return
    shown = table("column", ">standard error", ">least effect told from zero")
    for row in rows:
        shown.add_row(literal(row["name"]), number(row["std_error"]), number(row["told"]))
    console().print(shown)
    console().print("Of columns that are spread evenly and independent; found four times in five, at 95 %.")
