"""`noisette estimate`: report files in, estimates with intervals out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from noisette._terminal import console, describe, inner_name, literal, number, sparks, table, to_json
from noisette.cli.surveys._sources import (
    Distributions,
    aggregate_campaign,
    aggregate_here,
    aggregate_on_cluster,
    results_by_period,
)
from noisette.core import Aggregate, Estimate

_TERMINAL_ROWS = 50  # of a table on a terminal; JSON has all


@click.command()
@click.argument("files", nargs=-1, required=True)
@click.option("--campaign", metavar="ID", help="Read this campaign of a collector; FILES is its database's URL.")
@click.option("--period", help="Period of the campaign, if several have reports.")
@click.option("--ray", metavar="ADDRESS", help="Sum on a Ray cluster: HOST:PORT, ray://HOST:PORT, auto or local.")
@click.option("--enhance", "method", default="none", metavar="METHOD", help="Free post-processing, e.g. auto.")
@click.option("--distribution", "shape", is_flag=True, help="Reconstruct how the true numbers are distributed.")
@click.option(
    "--compare",
    metavar="WHAT",
    help="Of a survey: differences, tested, between the values of a public group, between 'files' (periods, or arms of "
    "an experiment), or between the 'periods' of a campaign.",
)
@click.option(
    "--weights",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Of a survey: a YAML or JSON file with the known shares of groups, as in region: {north: 0.3, south: 0.7}.",
)
@click.option("--level", type=float, default=0.95, show_default=True, help="Confidence of the intervals.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with every dimension.")
def estimate(
    files: tuple[str, ...],
    campaign: str | None,
    period: str | None,
    ray: str | None,
    method: str,
    shape: bool,
    compare: str | None,
    weights: Path | None,
    level: float,
    as_json: bool,
) -> None:
    """Estimate means or frequencies from report FILES of one mechanism or one survey.

    Any number of files of any size, in constant memory. Intervals rest on the central limit theorem and hold for each
    dimension by itself. Methods for --enhance: auto, none, box, hdr4me-l1, hdr4me-l2, hdr4me-star, james-stein, sure,
    npmle, and for frequencies simplex and base-cut.
    """
    if not 0 < level < 1:
        raise ValueError(f"Expected --level {level:g} between 0 and 1, e.g. 0.95.")
    if campaign is None and (period is not None or any("://" in file for file in files)):
        raise ValueError("A database has reports of several campaigns. Name one: --campaign ID.")
    if shape and (campaign or ray):
        raise ValueError("--distribution reads report files in this process. Leave out --ray and --campaign.")
    if weights is not None and (compare is not None or shape):
        raise ValueError(
            "--weights is about the means and shares of everybody. Leave out --compare and --distribution."
        )
    if campaign is None and ray is None and _of_survey(files):
        from noisette.cli.surveys._survey import estimate_survey

        estimate_survey(files, method, level, shape=shape, as_json=as_json, compare=compare, weights=weights)
        return
    if compare == "periods" and campaign is not None and period is None:
        from noisette.cli.surveys._survey import show_differences

        show_differences(results_by_period(files, campaign, ray, method, level), compare, level, as_json=as_json)
        return
    if compare is not None or weights is not None:
        option = "--compare" if weights is None else "--weights"
        raise ValueError(
            f"{option} needs report files of a survey, which know the groups of their people. "
            "Make them by `noisette privatize --survey`."
        )
    found: Distributions = ()
    if campaign is not None:
        aggregates = aggregate_campaign(files, campaign, period, ray)
    elif ray is not None:
        aggregates = (aggregate_on_cluster(files, ray),)
    else:
        aggregate, found = aggregate_here(files, shape)
        aggregates = (aggregate,)
    payloads = []
    for aggregate in aggregates:
        raw = result = aggregate.estimate()
        if method != "none":
            from noisette.enhancement import enhance

            result = enhance(raw, method=method)
        if as_json:
            payloads.append(_payload(aggregate, result, found, level))
        else:
            _show(aggregate, raw, result, found, level)
    if as_json:
        click.echo(to_json(payloads[0] if len(payloads) == 1 else {"parts": payloads}))


def _of_survey(files: tuple[str, ...]) -> bool:
    """Tell whether files hold reports of a survey, refusing a mixture."""
    from noisette.survey.reports import is_survey_file

    kinds = {is_survey_file(file) for file in files}
    if len(kinds) > 1:
        raise ValueError("Some files hold reports of a survey and some of one mechanism. Estimate them apart.")
    return kinds == {True}


def _payload(aggregate: Aggregate, result: Estimate, found: Distributions, level: float) -> dict[str, Any]:
    low, high = result.interval(level)
    rows = zip(_names(result), result.value, result.std_error, low, high, result.count, strict=True)
    keys = ("name", "value", "std_error", "low", "high", "reports")
    dimensions: list[dict[str, Any]] = [dict(zip(keys, row, strict=True)) for row in rows]
    for entry, (edges, probabilities) in zip(dimensions, found, strict=bool(found)):
        entry["distribution"] = {"edges": edges, "probabilities": probabilities}
    payload = {
        "users": aggregate.users,
        "mechanism": aggregate.mechanism.spec(),
        "guarantee": aggregate.mechanism.guarantee.spec(),
        "level": level,
        "enhance": result.method,
        "expected_gain": result.expected_gain,
        "dimensions": dimensions,
    }
    return payload | ({"distribution": dimensions[0]["distribution"]} if len(found) == 1 else {})


def _names(result: Estimate) -> list[str]:
    return list(map(str, range(result.value.size) if result.names is None else result.names))


def _show(aggregate: Aggregate, raw: Estimate, result: Estimate, found: Distributions, level: float) -> None:
    from noisette.enhancement import relative_gain

    out = console()
    mechanism: Any = aggregate.mechanism
    out.print(f"[bold]{_what(mechanism)}[/] of {aggregate.users:,} users, {inner_name(mechanism)}")
    out.print(f"Guarantee: {describe(mechanism.guarantee)}")
    if result.method != "none":
        gain = relative_gain(raw, result)
        fall = f": mean squared error expected to fall by {gain:.0%}" if gain >= 0.01 else ""
        out.print(f"Enhanced by {result.method}{fall}")
    low, high = result.interval(level)
    headers = ("dimension", ">estimate", ">std. error", f">{100 * level:g}% from", ">to", ">reports")
    shown = table(*headers, *(["distribution"] if found else []))
    names = _names(result)
    for row in range(min(_TERMINAL_ROWS, result.value.size)):
        error = float(result.std_error[row])
        numbers = (number(float(v[row]), error) for v in (result.value, result.std_error, low, high))
        drawn = [sparks(found[row][1])] if found else []
        shown.add_row(literal(names[row]), *numbers, f"{int(result.count[row]):,}", *drawn)
    out.print(shown)
    if result.value.size > _TERMINAL_ROWS:
        out.print(f"... and {result.value.size - _TERMINAL_ROWS:,} more: --json prints all.", style="dim")


def _what(mechanism: Any) -> str:
    """Say what is estimated."""
    if mechanism.kind == "attributes":
        kinds = {attribute.kind for attribute in mechanism.domain.parts}
        return "Frequencies" if kinds == {"categorical"} else "Means and frequencies" if len(kinds) > 1 else "Means"
    return "Frequencies" if mechanism.kind == "frequency" else "Means"
