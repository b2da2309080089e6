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
_JUDGES = 0.1  # of the people, who judge a model of two classes


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
    from noisette._random import generator
    from noisette._terminal import progress, to_json
    from noisette.aggregation import Table
    from noisette.regression import BadValue, ClassPairs, Design, Inference, OneShot, Training, coding_for
    from noisette.regression.pairs import PAIRS
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
    pairs = mechanism == PAIRS
    if pairs and (model == "linear" or error_bars or planned is not None):
        raise ValueError("--mechanism pairs is for --model logistic, without --error-bars and --plan.")
    judged = _share(judge, model == "logistic", test is None)
    if coding == "auto" or pairs:
        coding = (
            "unit" if pairs or one_shot or error_bars or planned is not None else coding_for(_validate.epsilon(epsilon))
        )
    design = Design(tuple(kinds.get(name, Interval()) for name in chosen), names=tuple(chosen), coding=coding)
    goal: Any = kinds.get(target, Interval())
    options: dict[str, Any] = {"mechanism": mechanism, "ridge": ridge}
    own: dict[str, Any] = {"batch": batch, "step": step, "levels": tuple(map(_level, levels)) or None}
    given = {name: value for name, value in own.items() if value is not None} | ({"average": False} if last else {})
    if one_shot and (given or model == "logistic"):
        raise ValueError(
            "--one-shot is for linear models and has no rounds: leave --batch, --step, --level and --last out."
        )
    if (error_bars or pairs) and (given or one_shot):
        what = "--error-bars" if error_bars else "--mechanism pairs"
        raise ValueError(f"{what} has no steps: leave --one-shot, --batch, --step, --level and --last out.")
    if planned is not None:
        _show_plan(Inference(design, goal, epsilon, mechanism=mechanism).expected(planned), planned, as_json=as_json)
        return
    trainer: Any
    if error_bars:
        trainer = Inference(design, goal, epsilon, mechanism=mechanism)
    elif pairs:
        trainer = ClassPairs(design, epsilon)
    else:
        trainer = (OneShot if one_shot else Training)(design, goal, epsilon, **options, **given)
    declared = dict(zip(chosen, design.attributes, strict=True)) | {target: goal}
    source = DesignRows(file, tuple(chosen), target, declared, header)
    started = time.monotonic()
    randomness = generator(seed)
    parts = _Parts(source, judged, int(randomness.integers(2**63)))  # who is asked to judge is no secret
    protocol = trainer.protocol if one_shot or error_bars else trainer
    protocol = Training(design, goal, epsilon) if pairs else protocol
    judgement = None
    try:
        with progress(f"Training on {file.name}") as advance:
            if error_bars or pairs:
                rows, values = parts.whole(advance)
                values = protocol.encode_target(values, clip=clip) if pairs else values
                result = trainer.run(rows, values, clip=clip, rng=randomness)
            else:
                result = trainer.run(parts.stream(advance), clip=clip, rng=randomness)
        fitted = result.model if one_shot or error_bars else result
        if judged:
            judgement = parts.judgement(protocol, fitted, clip=clip, rng=randomness)
    except BadValue as error:
        row = f"{file}, row {parts.number(error.row):,}"
        reason = error.text.replace("[row]", row).replace("'target'", repr(target))
        raise ValueError(f"{reason} Use --range or --categories, or --clip. {_PUBLIC}") from None
    seconds = time.monotonic() - started
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
        "mechanism": {"mechanism": PAIRS} if pairs else trainer.channel.spec(),
        "guarantee": trainer.guarantee.spec(),
        "training": protocol.spec() | {"one_shot": one_shot},
        "seed": seed,
        "seconds": seconds,
        "judgement": judgement,
        "test": None if test is None else replace(source, path=test).errors(protocol, fitted, clip=clip),
    }
    if as_json:
        click.echo(to_json(record))
    else:
        _show(record, trainer.guarantee)
    if seed is not None:
        click.echo("Warning: --seed makes the noise predictable. Use it for tests only.", err=True)


def _share(asked: float | None, logistic: bool, untested: bool) -> float:
    """Return the share of people who judge the model."""
    if asked is None:
        return _JUDGES if logistic and untested else 0.0
    if not logistic:
        raise ValueError("--judge is for --model logistic. A linear model has --error-bars.")
    if not 0 <= asked < 1:
        raise ValueError(f"Expected --judge {asked:g} to be at least 0 and below 1, e.g. 0.1.")
    return asked


class _Parts:
    """The rows of a file in two parts, by a coin for each: those that teach a model, and those that judge it."""

    def __init__(self, source: Any, share: float, coins: int) -> None:
        self.source, self.share, self.coins = source, share, coins
        self.places: list[Any] = []  # in the file, of the rows that are at work

    def number(self, row: int) -> int:
        """Return where in the file a row is, counted from 1."""
        return int(np.concatenate(self.places)[row]) + 1

    def batches(self, *, judging: bool) -> Iterator[tuple[Any, Any, float]]:
        """Yield rows, values and the share of the file that was read."""
        tosses, done = np.random.default_rng(self.coins), 0
        for rows, values, read in self.source.batches():
            kept = np.flatnonzero((tosses.random(len(values)) < self.share) == judging)
            self.places = [done + kept]
            done += len(values)
            if len(kept):
                yield rows[kept], values[kept], read

    def stream(self, advance: Any) -> Iterator[tuple[Any, Any]]:
        """Yield the rows that teach."""
        for rows, values, read in self.batches(judging=False):
            yield rows, values
            advance(read)

    def whole(self, advance: Any) -> tuple[Any, Any]:
        """Return all rows that teach."""
        found, places = [], []
        for one in self.stream(advance):
            found.append(one)
            places += self.places
        if not found:
            raise ValueError("Expected at least one user to learn from, got an empty stream.")
        self.places = places
        rows, values = map(np.concatenate, zip(*found, strict=True))
        return rows, values

    def judgement(self, protocol: Any, model: Any, *, clip: bool, rng: Any) -> dict[str, Any] | None:
        """Return what the people who did not teach the model say of it."""
        from dataclasses import asdict

        from noisette.regression.judging import judge

        named, own = [], []
        for rows, values, _ in self.batches(judging=True):
            own.append(protocol.encode_target(values, clip=clip))
            _ = protocol.design.encode(rows, outside="clip" if clip else "refuse")
            named.append(protocol.predict(model, rows) > 0.5)
        if not own:
            return None
        found = judge(np.concatenate(named), np.concatenate(own), protocol.epsilon, rng=rng)
        return asdict(found) | {"verdict": found.verdict}


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
    how = "one report of each" if kind == "pairs" else how
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
    """Print what error bars so many users would give."""
    from noisette._terminal import console, literal, number, table, to_json

    if as_json:
        click.echo(to_json({"users": users, "coefficients": rows}))
        return
    shown = table("column", ">standard error", ">least effect that shows")
    for row in rows:
        shown.add_row(literal(row["name"]), number(row["std_error"]), number(row["told"]))
    console().print(shown)
    console().print("Of columns that are spread evenly and independent; found four times in five, at 95 %.")
