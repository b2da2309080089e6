"""What the commands print about a survey: its plan, its reports, its results."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from noisette._terminal import HALF_WIDTH_95, console, describe, literal, number, progress, table, to_json

_TERMINAL_ROWS = 60  # of a table on a terminal; JSON has all


def plan_survey(
    path: Path, users: int | None, *, as_json: bool, epsilon: float | None = None, html: Path | None = None
) -> None:
    """Print what a survey will tell from this many users, at its own budget or another; write the planner's page."""
    from noisette.planner.surveys import at_budget
    from noisette.survey.campaigns import Campaign
    from noisette.survey.survey import Survey, named_errors, read_fields

    fields = named_errors(path, lambda: read_fields(path))
    campaign = Campaign.read(path) if isinstance(fields, dict) and fields.get("answers") == "tracked" else None
    survey = Survey.read(path) if campaign is None else campaign.survey
    if epsilon is not None:
        survey = at_budget(survey, epsilon)
    if campaign is None:
        made = survey.plan(users)
    elif html is not None:
        raise ValueError("Expected no --html for answers that are tracked: the page plans no periods.")
    else:
        made = replace(campaign, survey=survey).plan(users)
    if html is not None:
        write_survey_page(html, survey, users, shlex.join(["noisette", "plan", str(path)]))
    if as_json:
        click.echo(to_json(made.to_dict()))
        return
    out = console()
    out.print(f"[bold]{literal(path)}[/]: {made.users:,} users, {len(made.survey.questions)} questions")
    if campaign is not None:
        out.print(f"Errors are those of a period: each user reports in one of {campaign.periods}.")
    out.print(f"Guarantee: {describe(made.guarantee)}")
    used = made.to_dict()["mechanisms"]
    out.print(literal("Mechanisms: " + ", ".join(f"{name} by {own}" for name, own in used.items())))
    shown = table("question", "quantity", "group", ">±", "verdict")
    for row in made.rows[:_TERMINAL_ROWS]:
        cells = map(literal, (row.question, row.quantity, row.group))
        shown.add_row(*cells, number(HALF_WIDTH_95 * row.std_error, row.std_error), row.verdict)
    out.print(shown)
    _more(out, len(made.rows))
    out.print(literal(f"Verdict: {made.verdict}"))
    out.print("± is half of a 95 % interval, for the distribution of answers that is worst on average.", style="dim")


def write_survey_page(html: Path, survey: Any, users: int | None, command: str) -> None:
    """Write the planner's page of a survey."""
    from noisette.planner import survey_page

    with progress("making the page") as advance:
        text = survey_page(survey, users, command=command, on_progress=advance)
    html.write_text(text, encoding="utf-8")
    click.echo(f"Wrote {html}: open it in a browser.", err=True)


def privatize_survey(path: Path, survey: Path, output: Path, *, clip: bool, seed: int | None, as_json: bool) -> None:
    """Turn a file of answers into a file of reports, and say what was done."""
    from noisette.survey.estimation.distributions import mechanisms
    from noisette.survey.survey import Survey

    asked = Survey.read(survey)
    with progress(f"Privatising {path.name}") as advance:
        users = asked.privatize_file(path, output, clip=clip, rng=seed, on_progress=advance)
    if as_json:
        record = {
            "output": str(output),
            "users": users,
            "bytes": output.stat().st_size,
            "questions": [one.name for one in asked.questions],
            "mechanisms": mechanisms(asked),
            "guarantee": asked.guarantee.spec(),
            "seeded": seed is not None,
        }
        click.echo(to_json(record))
        return
    out = console()
    out.print(f"[bold]{literal(output)}[/]: {users:,} reports, {output.stat().st_size / 1e6:,.2f} MB")
    out.print(literal("Questions: " + ", ".join(f"{name} by {own}" for name, own in mechanisms(asked).items())))
    out.print(f"Guarantee: {describe(asked.guarantee)}; a record is one row")
    out.print(f"Next: noisette estimate {literal(output)}", style="dim")


def estimate_survey(
    files: Sequence[str],
    method: str,
    level: float,
    *,
    shape: bool,
    as_json: bool,
    compare: str | None = None,
    weights: Path | None = None,
) -> None:
    """Print what files of reports of one survey say, weighted or not, or how it differs between groups or files."""
    from noisette.survey.reports import ReportsFile

    asked = ReportsFile.open(files[0]).survey
    if len(set(map(_place, files))) < len(files):
        raise ValueError("A file is given twice: its users would count twice. Name each file once.")
    if compare == "files" and compare not in asked.groups:
        stems = [Path(file).stem for file in files]
        labels = stems if len(set(stems)) == len(stems) else files
        made = (ReportsFile.open(file).survey.estimate(file, enhance=method, level=level) for file in files)
        arms = dict(zip(labels, made, strict=True))
        show_differences(arms, compare, level, as_json=as_json)
        return
    results = asked.estimate(list(files), enhance=method, level=level)
    if compare is not None:
        show_differences({"": results}, compare, level, as_json=as_json)
        return
    effects = {}
    if weights is not None:
        results = results.weighted(_margins(weights))
        found = results.design_effect().itertuples(index=False)
        effects = {(question, quantity): effect for question, quantity, effect in found}
    names = dict(zip(_pairs(asked), (name for one in asked.topics for name in one.quantities), strict=True))
    rows = results.table().to_dict("records")
    for row in rows if effects else ():
        row["design_effect"] = effects[row["question"], row["quantity"]]
    if as_json:
        record = {
            "users": results.users,
            "guarantee": asked.guarantee.spec(),
            "level": level,
            "enhance": method,
            "dimensions": [{"name": _name(names, row["question"], row["quantity"])} | row for row in rows],
        }
        click.echo(to_json(record | ({"distributions": _distributions(results)} if shape else {})))
        return
    out = console()
    out.print(f"[bold]{results.users:,} reports[/] on {len(asked.questions)} questions")
    out.print(f"Guarantee: {describe(asked.guarantee)}")
    if effects:
        out.print(literal(f"Weighted to the margins in {weights}; the design effect is in the intervals"))
    headers = (
        "question",
        "quantity",
        "group",
        ">estimate",
        ">std. error",
        f">{100 * level:.4g} % from",
        ">to",
        ">reports",
    )
    shown = table(*headers, *([">design effect"] if effects else []))
    dated = {one.name: one for one in asked.questions if getattr(one, "axis", "number") != "number"}
    for row in rows[:_TERMINAL_ROWS]:
        numbers = _numbers(row, dated.get(row["question"]) if row["quantity"] != "variance" else None)
        cells = (literal(row[key]) for key in ("question", "quantity", "group"))
        more = [f"{row['design_effect']:.3g}"] if effects else []
        shown.add_row(*cells, *numbers, f"{row['reports']:,}", *more)
    out.print(shown)
    _more(out, len(rows))
    for name, found in (_distributions(results) if shape else {}).items():
        each = found["quantiles"].items()
        ends = ", ".join(
            f"{chance:g}: {at:.4g}" if isinstance(at, float) else f"{chance:g}: {at}" for chance, at in each
        )
        out.print(literal(f"{name}, quantiles {ends}"))
        out.print(literal(found["note"]), style="dim")
    out.print("An interval holds for its quantity by itself, not for all together.", style="dim")


def _numbers(row: Mapping[str, Any], dated: Any) -> list[str]:
    """Return value, error and ends of an interval as they are shown: dates and times of day as such."""
    value, error, *ends = (row[key] for key in ("value", "std_error", "low", "high"))
    if dated is None or not all(map(math.isfinite, (value, *ends))):
        return [number(one, error) for one in (value, error, *ends)]
    unit, width = ("days", error) if dated.axis == "date" else ("min", error / 60)
    told = [str(dated.shown(min(max(one, dated.low), dated.high))) for one in (value, *ends)]
    return [told[0], f"{number(width, width)} {unit}", *told[1:]]


def _name(names: Mapping[tuple[str, str], str], question: str, quantity: str) -> str:
    """Return what a quantity is called; a text that was found is named as a label is."""
    return names.get((question, quantity), f"{question}={quantity}")


def _margins(path: Path) -> Any:
    """Read known shares of groups."""
    import yaml

    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is neither YAML nor JSON: {error}. Correct that line.") from error


def show_differences(arms: Mapping[str, Any], what: str, level: float, *, as_json: bool) -> None:
    """Print the differences between several results by name, or between the values of a group of one, with a test."""
    results, *others = arms.values()
    if len(arms) == 1 and what in ("files", "periods"):
        raise ValueError(f"Expected at least two {what} to compare, got {len(arms)}.")
    found = results.compare(arms if others else what, level=level)
    note, rows = found.attrs["note"], found.to_dict("records")
    guarantee = max((one.survey.guarantee for one in arms.values()), key=lambda own: own.epsilon)
    users = sum(one.users for one in arms.values())
    if as_json:
        record = {"users": users, "guarantee": guarantee.spec(), "level": level, "note": note}
        click.echo(to_json(record | {"differences": rows}))
        return
    out = console()
    out.print(f"[bold]{users:,} reports[/], compared by {literal(what)}")
    out.print(f"Guarantee: {describe(guarantee)}")
    shown = table("question", "quantity", "b - a", ">difference", f">{100 * level:.4g} % from", ">to", ">adjusted p")
    for row in rows[:_TERMINAL_ROWS]:
        cells = (literal(cell) for cell in (row["question"], row["quantity"], f"{row['b']} - {row['a']}"))
        numbers = (number(row[key], row["std_error"]) for key in ("difference", "low", "high"))
        shown.add_row(*cells, *numbers, f"{row['adjusted']:.2g}")
    out.print(shown)
    _more(out, len(rows))
    out.print(literal(note), style="dim")


def _distributions(results: Any) -> dict[str, Any]:
    """Return the distributions that the questions ask for."""
    from noisette.survey.estimation.hierarchy import QUANTILES

    found = {}
    for name, answer in results.items():
        if answer.question.wants_distribution:
            bars = answer.histogram(bins=32)
            held = {f"{end}": bars[f"share_{end}"].tolist() for end in ("low", "high") if f"share_{end}" in bars}
            found[name] = {
                "edges": [*bars["low"], bars["high"].iloc[-1]],
                "probabilities": bars["share"].tolist(),
                "quantiles": {chance: answer.quantile(chance) for chance in QUANTILES},
                "note": bars.attrs["note"],
            } | held
    return found


def _pairs(asked: Any) -> list[tuple[str, str]]:
    return [(one.name, quantity) for one in asked.topics for quantity in one.estimated]


def _place(file: str) -> Path:
    return Path(file).resolve()


def _more(out: Any, rows: int) -> None:
    if rows > _TERMINAL_ROWS:
        out.print(f"... and {rows - _TERMINAL_ROWS:,} more: --json prints all.", style="dim")


def required(value: Any, name: str) -> Any:
    """Return an option that is needed unless a survey is given."""
    if value is None:
        raise click.UsageError(f"Missing option '{name}': give it, or the file of a survey.")
    return value


def only_survey(context: click.Context, allowed: set[str]) -> None:
    """Refuse options that a survey answers by itself."""
    for name in context.params:
        if name not in allowed and context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            option = next(one.opts[0] for one in context.command.params if one.name == name)
            raise click.UsageError(f"The survey says all but --users: leave {option} out.")
