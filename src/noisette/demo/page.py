"""The demonstration as a web page: one file, with its script inside, that loads nothing from anywhere."""

from __future__ import annotations

from html import escape
from importlib.resources import files
from string import Template

import numpy as np

from noisette._look import style
from noisette._terminal import describe, number
from noisette.demo import charts
from noisette.demo.outcome import LEVEL, Outcome, chosen, root_mean_square, widths
from noisette.demo.population import PORTRAIT, SIGNALS, SPORT, SPORTS
from noisette.prediction import Plan


def page(outcome: Outcome, planned: tuple[Plan, Plan]) -> str:
    """Return the whole page."""
    from plotly.offline import get_plotlyjs

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
        cards=_cards(outcome),
        plan=charts.plans(outcome, planned),
        shrinking=charts.shrinking(outcome),
        errors=charts.errors(outcome),
        table=_table(outcome),
        sport=charts.frequencies(outcome),
        portrait=charts.distribution(outcome),
        rare=_rare(outcome),
        plotly=get_plotlyjs(),
        style=style(),
    )


def _cards(outcome: Outcome) -> str:
    count = len(SIGNALS)
    measured = root_mean_square(outcome.errors(outcome.column("value"))[:count])
    planned = root_mean_square((100 * outcome.column("predicted_std_error") / widths())[:count])
    facts = (
        (f"{outcome.users:,}", "devices, none of which showed its data"),
        (f"ε = {outcome.campaign.epsilon:g}", "per device, over all its answer, in the local model"),
        (f"{measured:.2f} %", f"of its range: error of a mean, planned {planned:.2f} % at the worst"),
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
