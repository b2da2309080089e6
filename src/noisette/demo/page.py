"""The demonstration as a web page: one file, with its script inside, that loads nothing from anywhere."""

from __future__ import annotations

from html import escape
from importlib.resources import files
from string import Template
from typing import Any

import numpy as np

from noisette._look import style
from noisette._terminal import HALF_WIDTH_95, describe, number
from noisette.demo import charts
from noisette.demo.outcome import LEVEL, Outcome, chosen, planned_half_width, root_mean_square, widths
from noisette.demo.population import PORTRAIT, SIGNALS, SPORT, SPORTS
from noisette.prediction import Plan

_SHOWN_MECHANISMS = 8  # mechanisms of a plan


def page(outcome: Outcome, planned: tuple[Plan, Plan]) -> str:
    """Return the whole page."""
    campaign, guarantee = outcome.campaign, outcome.campaign.mechanism.guarantee
    template = Template(files("noisette.demo").joinpath("template.html").read_text(encoding="utf-8"))
    return template.substitute(
        users=f"{outcome.users:,}",
        plain_users=outcome.users,
        epsilon=f"{campaign.epsilon:g}",
        seed=outcome.seed,
        count=len(SIGNALS),
        sports=len(SPORTS),
        report=campaign.mechanism.report,
        dims=campaign.mechanism.dims,
        number_mechanism=escape(chosen(campaign, SIGNALS[0].name)),
        sport_mechanism=escape(chosen(campaign, SPORT)),
        odds=f"{np.exp(guarantee.epsilon):,.0f}",
        guarantee=escape(describe(guarantee)),
        seconds=f"{outcome.reported.seconds:.0f}",
        level=f"{LEVEL:.0%}",
        enhanced_by=escape(str(outcome.enhanced["enhance"])),
        portrait_name=escape(PORTRAIT),
        cards=_cards(outcome, planned),
        plan=plans(outcome, planned),
        shrinking=shrinking(outcome, planned),
        errors=errors(outcome),
        table=_table(outcome),
        sport=frequencies(outcome),
        portrait=distribution(outcome),
        rare=_rare(outcome),
        style=style(),
    )


def _cards(outcome: Outcome, planned: tuple[Plan, Plan]) -> str:
    half = planned_half_width(outcome.campaign, planned)
    facts = (
        (f"{outcome.users:,}", "devices, none of which showed its data"),
        (f"ε = {outcome.campaign.epsilon:g}", "per device, over all its answer, in the local model"),
        (f"± {half:.2f} %", "of its range: a mean, as it was planned before anything was collected"),
        (f"± {outcome.half_width:.2f} %", "the same, as the reports themselves tell it"),
        (f"{int(outcome.covered.sum())} of {outcome.covered.size}", f"intervals at {LEVEL:.0%} hold the truth"),
    )
    return "".join(
        f'<div class="card"><b>{escape(value)}</b><span>{escape(label)}</span></div>' for value, label in facts
    )


def _rare(outcome: Outcome) -> str:
    low = outcome.column("low")[len(SIGNALS) :]
    lost = [name for name, value in zip(SPORTS, low, strict=True) if value <= 0]
    return f"Too rare to tell from zero at this budget: {', '.join(lost)}." if lost else ""


def _table(outcome: Outcome) -> str:
    heads = ("quantity", "unit", "truth", "estimate", f"{LEVEL:.0%} from", "to", "enhanced")
    columns = (outcome.truth, *(outcome.column(name) for name in ("value", "low", "high")))
    columns = (*columns, outcome.column("value", enhanced=True))
    errors = outcome.column("std_error")
    units = [signal.unit for signal in SIGNALS] + ["share"] * len(SPORTS)
    rows = []
    for place, (row, unit) in enumerate(zip(outcome.found["dimensions"], units, strict=True)):
        style = "" if outcome.covered[place] else ' class="out"'
        cells = [number(float(values[place]), float(errors[place])) for values in columns]
        body = "".join(f"<td{style}>{cell}</td>" for cell in cells)
        rows.append(f"<tr><td>{escape(row['name'])}</td><td>{escape(unit)}</td>{body}</tr>")
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def plans(outcome: Outcome, planned: tuple[Plan, Plan]) -> str:
    """Draw the predicted ± of the best mechanisms, for a number and for the sport."""
    own = (chosen(outcome.campaign, SIGNALS[0].name), chosen(outcome.campaign, SPORT))
    parts = []
    for title, made, name, scale in zip(("a number", "the favourite sport"), planned, own, (50, 100), strict=True):
        shown = [one for place, one in enumerate(made.candidates) if place < _SHOWN_MECHANISMS or one.mechanism == name]
        rows = []
        for one in shown:
            half = HALF_WIDTH_95 * scale * one.mse**0.5
            note = "" if one.unbiased else ", biased"
            rows.append((one.mechanism, half, f"± {half:.2f} %{note}", one.mechanism == name))
        parts.append(f"<div><h3>{escape(title)}</h3>{charts.bars(rows)}</div>")
    return f'<div class="pair">{"".join(parts)}</div>'


def shrinking(outcome: Outcome, planned: tuple[Plan, Plan]) -> str:
    """Draw how the ± of the means fell as devices reported, beside what the plan said."""
    looks = [look for look in (*outcome.reported.looks, outcome.found) if look["users"]]
    scale, count = 100 / widths(), len(SIGNALS)
    seen = [
        (look["users"], _average([row["std_error"] for row in look["dimensions"][:count]] * scale[:count]))
        for look in looks
    ]
    known = [(users, HALF_WIDTH_95 * error) for users, error in seen if np.isfinite(error)]
    users = np.asarray([one for one, _ in known], dtype=float)
    last = planned_half_width(outcome.campaign, planned)
    ends = np.asarray([min(users.min(), 500.0), float(outcome.campaign.users)])
    expected = last * np.sqrt(outcome.campaign.users / ends)
    curves = [
        ("planned", "plan", ends, expected),
        ("seen", "seen", users, np.asarray([half for _, half in known])),
    ]
    return charts.lines(
        curves, "devices that have reported", "± of a mean, % of its range", "± of a mean against devices"
    )


def _average(errors: Any) -> float:
    known = np.asarray(errors, dtype=np.float64)
    return root_mean_square(known[np.isfinite(known)]) if np.isfinite(known).any() else float("nan")


def errors(outcome: Outcome) -> str:
    """Draw estimate minus truth for each quantity, with its interval."""
    gap = outcome.errors(outcome.column("value"))
    radius = 50 * (outcome.column("high") - outcome.column("low")) / widths()
    far = float(np.max(np.abs(gap) + radius))
    names = [row["name"] for row in outcome.found["dimensions"]]
    rows = [
        (name, value - half, value, value + half, f"{value:+.2f} ± {half:.2f}", bool(holds))
        for name, value, half, holds in zip(names, gap.tolist(), radius.tolist(), outcome.covered, strict=True)
    ]
    return charts.strips(rows, (-far, far))


def frequencies(outcome: Outcome) -> str:
    """Draw the true and the estimated shares of the sports."""
    own = slice(len(SIGNALS), None)
    columns = [100 * outcome.column(name)[own] for name in ("low", "value", "high")]
    enhanced, truth = 100 * outcome.column("value", enhanced=True)[own], 100 * outcome.truth[own]
    rows = [
        (
            name,
            low,
            value,
            high,
            f"{value:.1f} ± {(high - low) / 2:.1f}, enhanced {better:.1f}, truth {true:.1f}",
            low <= true <= high,
        )
        for name, low, value, high, better, true in zip(SPORTS, *columns, enhanced, truth, strict=True)
    ]
    return charts.strips(rows, (0.0, float(columns[2].max())))


def distribution(outcome: Outcome) -> str:
    """Draw the true distribution of a signal and the one found behind the reports; nothing where reports tell none."""
    if outcome.portrait is None:
        return "<p>Reports of this mechanism are of two kinds: they tell the mean and no distribution.</p>"
    unit = next(signal.unit for signal in SIGNALS if signal.name == PORTRAIT)
    return charts.distribution(*outcome.portrait, f"{PORTRAIT}, {unit}", f"Distribution of {PORTRAIT}")
