"""The demonstration on a terminal: what is printed at each step."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from noisette._terminal import HALF_WIDTH_95, console, describe, literal, number, table
from noisette.demo.outcome import LEVEL, Outcome, chosen, planned_half_width, root_mean_square
from noisette.demo.population import SIGNALS, SPORT, SPORTS
from noisette.prediction import Plan

if TYPE_CHECKING:
    from rich.console import Console

    from noisette.demo.devices import Collector
    from noisette.survey.campaigns import Campaign

_SHOWN_MECHANISMS = 6  # mechanisms of a plan
_LIVE = (0, 4, 7, 8, 10)  # quantities that are shown while reports arrive


@dataclass(frozen=True)
class Story:
    """Tells what happens, unless it is to be quiet."""

    quiet: bool

    @property
    def _out(self) -> Console:
        out = console()
        out.quiet = self.quiet
        return out

    def _chapter(self, title: str) -> None:
        self._out.print()
        self._out.rule(f"[bold]{title}[/]", align="left", style="dim")

    def opening(self, users: int, epsilon: float) -> None:
        """Say what is going to happen."""
        self._out.print()
        self._out.rule("[bold]Noisette[/]: a private collection, start to end", align="left")
        self._out.print(
            f"\n{users:,} simulated wearables hold {len(SIGNALS)} numbers of last evening and a favourite sport. We "
            f"want the means and the shares, and no device's data. Each device adds noise before anything leaves it: "
            f"its answer is ε = {epsilon:g} locally private."
        )

    def plan(self, campaign: Campaign, planned: tuple[Plan, Plan]) -> None:
        """Show the errors of the mechanisms before anything is collected."""
        self._chapter("1. Plan: the error of every mechanism, before anything is collected")
        own = (chosen(campaign, SIGNALS[0].name), chosen(campaign, SPORT))
        shown = table("mechanism for a number", ">±", "", "for the sport", ">±", "")
        for place in range(_SHOWN_MECHANISMS):
            cells: list[str] = []
            for made, name, scale in zip(planned, own, (50, 100), strict=True):
                candidate = made.candidates[place]
                taken = candidate.mechanism == name
                label = f"[bold green]{candidate.mechanism}[/]" if taken else candidate.mechanism
                error = HALF_WIDTH_95 * scale * candidate.mse**0.5
                cells += [label, f"± {error:.2f} %", "[green]<[/]" if taken else "" if candidate.unbiased else "biased"]
            shown.add_row(*cells)
        self._out.print(shown)
        mechanism = campaign.mechanism
        self._out.print(
            f"± is half of a 95 % interval, in % of the range. Every device reports {mechanism.report} "
            f"of {mechanism.dims} attributes. Marked: what the planner took, for all attributes together.",
            style="dim",
        )
        self._out.print(campaign.survey.plan(campaign.users).verdict)

    def address(self, collector: Collector, campaign: Campaign) -> None:
        """Say where the collector and its dashboard are."""
        self._chapter("2. Collect: devices report to a collector, which is up now")
        self._out.print(literal(f"Answer it yourself  {collector.url}/c/{campaign.id}"), soft_wrap=True)
        address = f"{collector.url}/dashboard#{campaign.id}?key={collector.keys['analyst']}"
        self._out.print(literal(f"Watch the results   {address}"), soft_wrap=True)
        self._out.print(
            "Each report is one request and is on the collector's disk before it is acknowledged.", style="dim"
        )

    @contextmanager
    def live(self, campaign: Campaign) -> Iterator[Callable[[dict[str, Any], float], None]]:
        """Give a function that shows estimates as they come: a table that changes, or lines where there is none."""
        from rich.live import Live

        moving = sys.stdout.isatty() and not self.quiet
        waiting = "Devices begin to report ..."
        shown = Live(waiting, console=self._out, transient=True, auto_refresh=False) if moving else None

        def watch(found: dict[str, Any], seconds: float) -> None:
            users, rows = found["users"], found["dimensions"]
            head = f"{users:,} of {campaign.users:,} devices after {seconds:.0f} s"
            if shown is None:
                self._out.print(f"{head}: {_estimate(rows[_LIVE[0]])}")
                return
            made = table(head, ">estimate", f">{LEVEL:.0%} interval", ">plan says")
            for place in _LIVE:
                row = rows[place]
                if row["value"] is None or row["std_error"] is None:
                    continue
                radius = (row["high"] - row["low"]) / 2
                cells = (number(row["value"], row["std_error"]), f"± {number(radius, row['std_error'])}")
                made.add_row(literal(row["name"]), *cells, f"± {number(1.96 * row['predicted_std_error'], radius)}")
            shown.update(made, refresh=True)

        if shown is None:
            yield watch
        else:
            with shown:
                yield watch

    def results(self, outcome: Outcome, planned: tuple[Plan, Plan]) -> None:
        """Print truth against estimate, what enhancing changed, and what is guaranteed."""
        accepted, seconds = outcome.reported.accepted, outcome.reported.seconds
        self._out.print(
            f"{accepted:,} devices reported in {seconds:.0f} s, {accepted / seconds:,.0f} a second. "
            f"The collector counts {outcome.users:,}."
        )
        self._chapter("3. Estimate: against the truth, which only a simulation knows")
        self._numbers(outcome)
        self._sports(outcome)
        self._errors(outcome, planned)
        self._verdict(outcome)
        self._chapter("4. What is guaranteed")
        guarantee = outcome.campaign.mechanism.guarantee
        odds = np.exp(guarantee.epsilon)
        self._out.print(describe(guarantee))
        self._out.print(
            f"Whatever a device holds, any report it sends is at most e^{guarantee.epsilon:g} = {odds:.0f} times as "
            "likely as from any other device: no server has to be trusted. The guarantee is for one answer: asking "
            "again with fresh noise adds ε. That a device takes part is not hidden."
        )

    def _numbers(self, outcome: Outcome) -> None:
        shown = table("signal", "unit", ">truth", ">estimate", f">{LEVEL:.0%} from", ">to", "holds")
        columns = (outcome.truth, *(outcome.column(name) for name in ("value", "low", "high")))
        errors = outcome.column("std_error")
        for place, signal in enumerate(SIGNALS):
            cells = [number(float(values[place]), float(errors[place])) for values in columns]
            shown.add_row(signal.name, signal.unit, *cells, _tick(bool(outcome.covered[place])))
        self._out.print(shown)

    def _sports(self, outcome: Outcome) -> None:
        shown = table(SPORT, ">truth", ">estimate", f">{LEVEL:.0%} from", ">to", "holds", ">enhanced")
        columns = (outcome.truth, *(outcome.column(name) for name in ("value", "low", "high")))
        enhanced = outcome.column("value", enhanced=True)
        for place, name in enumerate(SPORTS, start=len(SIGNALS)):
            cells = [f"{100 * float(values[place]):.1f} %" for values in columns]
            shown.add_row(name, *cells, _tick(bool(outcome.covered[place])), f"{100 * float(enhanced[place]):.1f} %")
        self._out.print(shown)

    def _errors(self, outcome: Outcome, planned: tuple[Plan, Plan]) -> None:
        """Say what was planned and what was seen: one quantity, twice."""
        half = planned_half_width(outcome.campaign, planned)
        self._out.print(f"± of a mean, in % of its range: {half:.2f} planned, {outcome.half_width:.2f} seen.")

    def _verdict(self, outcome: Outcome) -> None:
        raw, better = (outcome.errors(outcome.column("value", enhanced=which)) for which in (False, True))
        count = len(SIGNALS)
        self._out.print(
            f"{int(outcome.covered.sum())} of {outcome.covered.size} intervals hold the truth, where "
            f"{LEVEL * outcome.covered.size:.0f} are expected. Enhancing, which costs no privacy, changes the error of "
            f"the shares from {root_mean_square(raw[count:]):.2f} to {root_mean_square(better[count:]):.2f} points, of "
            f"the means from {root_mean_square(raw[:count]):.2f} % of the range to "
            f"{root_mean_square(better[:count]):.2f} %."
        )

    def keeping(self, collector: Collector) -> None:
        """Say that the collector stays, and how to end it."""
        self._out.print(f"\nThe collector stays up at [bold]{collector.url}/dashboard[/]. Ctrl-C ends it.")

    def closing(self, output: Path, clean: bool, seconds: float) -> None:
        """Say where the report is."""
        self._chapter("Report")
        self._out.print(f"Charts, in one file that loads nothing: [bold]{literal(output.resolve())}[/]", soft_wrap=True)
        ended = "The collector has stopped." if clean else "[red]The collector did not stop as it should.[/]"
        self._out.print(f"{ended} Done in {seconds:.1f} s.\n")


def _estimate(row: dict[str, Any]) -> str:
    if row["value"] is None or row["std_error"] is None:
        return f"{row['name']} -"
    radius = (row["high"] - row["low"]) / 2
    return f"{row['name']} {number(row['value'], row['std_error'])} ± {number(radius, row['std_error'])}"


def _tick(holds: bool) -> str:
    return "[green]yes[/]" if holds else "[red]no[/]"
