"""The demonstration as it is told on a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from noisette._terminal import console, describe, literal, number, table
from noisette.demo.charts import percent
from noisette.demo.collection import LEVEL, PILOT, REPEATS, SHARDS, Outcome, Part, covered, root_mean_square
from noisette.demo.population import ATTRIBUTES, SPORTS

if TYPE_CHECKING:
    from rich.console import Console

_SHOWN = 6  # mechanisms of a plan
_SAMPLE = (0, 5, 22, 30, 38, 43, 50, 63)  # attributes of the table of estimates


def opening(users: int, epsilon: float) -> None:
    """Say what is going to happen."""
    out = console()
    out.print()
    out.rule("[bold]Noisette[/]: a private collection, start to end", align="left")
    out.print(
        f"\n{users:,} simulated wearables hold {len(ATTRIBUTES)} numbers each (sixteen signals, four parts of the day) "
        f"and one category (a favourite sport). We want the means and the frequencies, and no device's data. Each "
        f"device adds noise before anything leaves it; its whole answer is ε = {epsilon:g} locally private."
    )


def tell(outcome: Outcome) -> None:
    """Print plan, collection, estimates, enhancement and guarantee."""
    out = console()
    _plans(out, outcome)
    _collection(out, outcome)
    _numbers(out, outcome.numbers)
    _sport(out, outcome.sport)
    _enhancement(out, outcome)
    _guarantee(out, outcome)


def closing(output: Path, seconds: float) -> None:
    """Say where the report is."""
    out = console()
    _chapter(out, "Report")
    out.print(
        f"Interactive charts, in one file that loads nothing: [bold]{literal(output.resolve())}[/]", soft_wrap=True
    )
    out.print(f"Done in {seconds:.1f} s.\n")


def _chapter(out: Console, title: str) -> None:
    out.print()
    out.rule(f"[bold]{title}[/]", align="left", style="dim")


def _plans(out: Console, outcome: Outcome) -> None:
    _chapter(out, "1. Plan: the error of every mechanism, before anything is collected")
    out.print(f"From a pilot of {PILOT:,} volunteers. Error: root mean square, in % of an attribute's range.")
    numbers, sport = outcome.numbers, outcome.sport
    shown = table(
        f"{len(ATTRIBUTES)} numbers, ε = {numbers.plan.epsilon:g}", ">a device sends", ">error", "",
        f"sport, ε = {sport.plan.epsilon:g}", ">error", "",
    )  # fmt: skip
    rows = max(min(_SHOWN, len(part.plan.candidates)) for part in (numbers, sport))
    for place in range(rows):
        cells: list[str] = []
        for part in (numbers, sport):
            candidate = part.plan.candidates[place]
            taken = candidate is part.chosen
            name = f"[bold green]{candidate.mechanism}[/]" if taken else candidate.mechanism
            sent = "all" if candidate.report is None else f"{candidate.report} of {len(ATTRIBUTES)}"
            error = f"{percent(part, candidate.mse**0.5):.2f} %"
            cells += [name, *([sent] if part is numbers else []), error, "[green]<[/]" if taken else ""]
        shown.add_row(*cells)
    out.print(shown)
    hidden = len(numbers.plan.candidates) - rows
    worst = numbers.plan.candidates[-1]
    out.print(
        f"Of {hidden} more, {worst.mechanism} comes last with {percent(numbers, worst.mse**0.5):.1f} %"
        + ("" if worst.unbiased else ": its plain average is biased")
        + ".",
        style="dim",
    )


def _collection(out: Console, outcome: Outcome) -> None:
    _chapter(out, "2. Collect: privatise on the device, aggregate in shards, merge")
    seconds, values = outcome.seconds, outcome.users * (len(ATTRIBUTES) + 1)
    out.print(
        f"{outcome.users:,} devices, which hold {values:,} values, answer in {seconds['privatise']:.2f} s; {SHARDS} "
        f"shards of reports are aggregated in {seconds['aggregate']:.2f} s."
    )
    shown = table("merged", "numbers", "sport")
    for order, first, second in zip(
        ("first to last", "last to first", "shuffled"), outcome.numbers.digests, outcome.sport.digests, strict=True
    ):
        shown.add_row(order, first, second)
    out.print(shown)
    same = all(len(set(part.digests)) == 1 for part in (outcome.numbers, outcome.sport))
    verdict = "The same bits in any order" if same else "[red]DIFFERENT BITS[/]"
    out.print(f"{verdict}: sums are integers, so any number of servers agree.", style="dim")


def _numbers(out: Console, part: Part) -> None:
    _chapter(out, "3. Estimate: means with their intervals, against the truth")
    low, high = part.raw.interval(LEVEL)
    shown = table("attribute", "unit", ">truth", ">estimate", f">{LEVEL:.0%} from", ">to", "holds")
    inside = covered(part.raw, part.truth)
    for place in _SAMPLE:
        attribute = ATTRIBUTES[place]
        error = attribute.from_length(float(part.raw.std_error[place]))
        cells = [
            number(float(attribute.from_canonical(v[place])), error) for v in (part.truth, part.raw.value, low, high)
        ]
        shown.add_row(attribute.name, attribute.unit, *cells, _tick(bool(inside[place])))
    out.print(shown)
    out.print(f"{len(_SAMPLE)} of {len(ATTRIBUTES)}; all are in the report.", style="dim")
    out.print(part.coverage)
    measured = percent(part, root_mean_square(part.raw.value - part.truth))
    out.print(f"Predicted error {percent(part, part.chosen.mse**0.5):.2f} % of the range, measured {measured:.2f} %.")


def _sport(out: Console, part: Part) -> None:
    _chapter(out, "4. Estimate: frequencies of the category")
    low, high = part.raw.interval(LEVEL)
    shown = table("sport", ">truth", ">estimate", f">{LEVEL:.0%} from", ">to", "holds", ">enhanced")
    inside = covered(part.raw, part.truth)
    for place, name in enumerate(SPORTS):
        cells = [f"{100 * float(v[place]):.2f} %" for v in (part.truth, part.raw.value, low, high)]
        shown.add_row(name, *cells, _tick(bool(inside[place])), f"{100 * float(part.enhanced.value[place]):.2f} %")
    out.print(shown)
    out.print(part.coverage)
    lost = [name for name, value in zip(SPORTS, low, strict=True) if value <= 0]
    if lost:
        out.print(f"Too rare to tell from zero at this budget: {', '.join(lost)}.", style="yellow")
    else:
        out.print(
            f"A sport below {100 * 1.96 * float(np.median(part.raw.std_error)):.1f} % could not be told from zero."
        )


def _enhancement(out: Console, outcome: Outcome) -> None:
    _chapter(out, "5. Enhance: a better estimate from the same reports, at no cost in privacy")
    shown = table(">budget ε", "best mechanism", ">error", ">enhanced", ">change", "")
    part = outcome.numbers
    raw, enhanced = (root_mean_square(estimate.value - part.truth) for estimate in (part.raw, part.enhanced))
    rows = [(a.epsilon, a.mechanism, a.raw, a.enhanced, "") for a in outcome.alternatives]
    rows.append((outcome.epsilon, part.chosen.mechanism, raw, enhanced, "this collection"))
    for epsilon, name, before, after, note in sorted(rows):
        cells = (f"{percent(part, before):.2f} %", f"{percent(part, after):.2f} %", f"{after / before - 1:+.0%}")
        shown.add_row(f"{epsilon:g}", name, *cells, f"[green]{note}[/]")
    out.print(shown)
    out.print(
        f"Each row is the same collection of numbers with another budget, the others {REPEATS} times over. Enhancing "
        "pays where noise is large beside the differences between attributes; elsewhere it changes little.",
        style="dim",
    )


def _guarantee(out: Console, outcome: Outcome) -> None:
    _chapter(out, "6. What is guaranteed")
    parts = [outcome.numbers.mechanism.guarantee, outcome.sport.mechanism.guarantee]
    shown = table("answer", "guarantee")
    shown.add_row("numbers", describe(parts[0]))
    shown.add_row("sport", describe(parts[1]))
    total = sum(part.epsilon for part in parts)
    shown.add_row(
        "[bold]a device, in all[/]", f"[bold]ε = {total:g}[/]: the two answers are about one person, so budgets add up"
    )
    out.print(shown)
    odds = np.exp(total)
    out.print(
        f"Whatever a device holds, any answer it sends is at most e^{total:g} = {odds:.0f} times as likely as from any "
        "other device: no server has to be trusted. The guarantee is for one collection: asking again every day adds "
        "ε every day. A record is all that a device holds. That it takes part is not hidden."
    )


def _tick(holds: bool) -> str:
    return "[green]yes[/]" if holds else "[red]no[/]"
