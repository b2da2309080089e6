"""The demonstration as a web page: one file, with its script inside, that loads nothing from anywhere."""

from __future__ import annotations

from html import escape
from importlib.resources import files
from string import Template
from typing import Any

import numpy as np

from noisette._look import DARK, GREEN, NUT, PALE, RED, TAN, figure_html, style
from noisette._terminal import describe, number
from noisette.demo.outcome import LEVEL, Outcome, chosen, root_mean_square, widths
from noisette.demo.population import PORTRAIT, SIGNALS, SPORT, SPORTS
from noisette.prediction import Plan

_ROUND = [0.1, 0.2, 0.3, 0.5, 0.7, 1, 2, 3, 5, 7, 10, 20, 50, 100]
_TICKS: dict[str, Any] = {"tickvals": _ROUND, "ticktext": [f"{tick:g}" for tick in _ROUND]}


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
        plan=plans(outcome, planned),
        shrinking=shrinking(outcome),
        errors=errors(outcome),
        table=_table(outcome),
        sport=frequencies(outcome),
        portrait=distribution(outcome),
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


def plans(outcome: Outcome, planned: tuple[Plan, Plan]) -> str:
    """Draw the predicted error of every mechanism, for a number and for the sport."""
    from plotly.subplots import make_subplots

    figure = make_subplots(rows=1, cols=2, subplot_titles=("a number", "favourite sport"), horizontal_spacing=0.2)
    own = (chosen(outcome.campaign, SIGNALS[0].name), chosen(outcome.campaign, SPORT))
    for column, (part, name, scale) in enumerate(zip(planned, own, (50, 100), strict=True), start=1):
        ordered = part.candidates[:12][::-1]
        errors = [scale * candidate.mse**0.5 for candidate in ordered]
        notes = ["" if candidate.unbiased else " biased" for candidate in ordered]
        figure.add_scatter(
            x=errors,
            y=[candidate.mechanism for candidate in ordered],
            mode="markers+text",
            marker={"size": 13, "color": [DARK if candidate.mechanism == name else TAN for candidate in ordered]},
            text=[f"  {error:.2f} %{note}" for error, note in zip(errors, notes, strict=True)],
            textposition="middle right",
            cliponaxis=False,
            hovertemplate="%{y}: %{x:.3f} % of the range<extra></extra>",
            row=1,
            col=column,
        )
        ends = [np.log10(min(errors)) - 0.08, np.log10(max(errors)) + 0.3 * np.log10(max(errors) / min(errors)) + 0.05]
        figure.update_xaxes(range=ends, row=1, col=column)
    figure.update_xaxes(type="log", title_text="predicted error, % of the range (log scale)", **_TICKS)
    return figure_html(figure, height=430, legend=False)


def shrinking(outcome: Outcome) -> str:
    """Draw how the errors of the means fell as devices reported, beside what the plan said."""
    import plotly.graph_objects as go

    looks = [look for look in (*outcome.reported.looks, outcome.found) if look["users"]]
    scale, count = 100 / widths(), len(SIGNALS)
    figure = go.Figure()
    for field, name, colour, dash in (
        ("predicted_std_error", "planned", NUT, "dot"),
        ("std_error", "seen", GREEN, "solid"),
    ):
        errors = [_average([row[field] for row in look["dimensions"][:count]] * scale[:count]) for look in looks]
        figure.add_scatter(
            x=[look["users"] for look in looks],
            y=errors,
            name=name,
            mode="lines+markers",
            line={"color": colour, "dash": dash, "width": 2.5},
            hovertemplate="%{x:,} devices: %{y:.2f} %",
        )
    figure.update_xaxes(type="log", title_text="devices that have reported (log scale)")
    figure.update_yaxes(type="log", title_text="standard error of a mean, % of the range", **_TICKS)
    return figure_html(figure, height=380)


def _average(errors: Any) -> float:
    known = np.asarray(errors, dtype=np.float64)
    return float(np.nanmean(known)) if np.isfinite(known).any() else float("nan")


def errors(outcome: Outcome) -> str:
    """Draw estimate minus truth for each quantity, with its interval."""
    import plotly.graph_objects as go

    gap = outcome.errors(outcome.column("value"))
    radius = 50 * (outcome.column("high") - outcome.column("low")) / widths()
    names = np.asarray([row["name"] for row in outcome.found["dimensions"]])
    figure = go.Figure()
    for inside, colour, name in (
        (outcome.covered, DARK, "holds the truth"),
        (~outcome.covered, RED, "misses it"),
    ):
        figure.add_scatter(
            x=gap[inside],
            y=names[inside],
            mode="markers",
            name=name,
            marker={"color": colour, "size": 7},
            error_x={"array": radius[inside], "color": colour, "thickness": 1.2, "width": 0},
            hovertemplate="%{y}: %{x:.2f} %<extra></extra>",
        )
    figure.add_vline(x=0, line_color=PALE)
    figure.update_xaxes(title_text=f"estimate minus truth with its {LEVEL:.0%} interval, % of the range")
    figure.update_yaxes(categoryorder="array", categoryarray=names[::-1].tolist())
    return figure_html(figure, height=560)


def frequencies(outcome: Outcome) -> str:
    """Draw the true and the estimated shares of the sports."""
    import plotly.graph_objects as go

    own = slice(len(SIGNALS), None)
    value, high = (100 * outcome.column(name)[own] for name in ("value", "high"))
    names = list(SPORTS)
    figure = go.Figure()
    figure.add_bar(x=names, y=100 * outcome.truth[own], name="truth", marker_color=PALE, hovertemplate="%{y:.2f} %")
    figure.add_bar(
        x=names,
        y=value,
        name=f"estimate, {LEVEL:.0%} interval",
        marker_color=DARK,
        error_y={"array": high - value, "color": NUT, "thickness": 1.6},
        hovertemplate="%{y:.2f} %",
    )
    figure.add_scatter(
        x=names,
        y=100 * outcome.column("value", enhanced=True)[own],
        name="enhanced",
        mode="markers",
        marker={"color": GREEN, "size": 9, "symbol": "diamond"},
        hovertemplate="%{y:.2f} %",
    )
    figure.update_layout(barmode="group", hovermode="x unified")
    figure.update_xaxes(title_text="favourite sport")
    figure.update_yaxes(title_text="share of the devices, %")
    return figure_html(figure, height=400)


def distribution(outcome: Outcome) -> str:
    """Draw the true distribution of a signal and the one found behind the reports; nothing where reports tell none."""
    import plotly.graph_objects as go

    if outcome.portrait is None:
        return "<p>Reports of this mechanism are of two kinds: they tell the mean and no distribution.</p>"
    edges, truth, found = outcome.portrait
    middles = (edges[1:] + edges[:-1]) / 2
    figure = go.Figure()
    figure.add_bar(x=middles, y=100 * truth, name="truth", marker_color=PALE, width=np.diff(edges))
    figure.add_scatter(
        x=middles,
        y=100 * found,
        name="reconstructed",
        mode="lines+markers",
        line={"color": DARK, "width": 2.5, "shape": "spline"},
    )
    figure.update_traces(hovertemplate="%{y:.2f} %")
    figure.update_layout(hovermode="x unified")
    unit = next(signal.unit for signal in SIGNALS if signal.name == PORTRAIT)
    figure.update_xaxes(title_text=f"{PORTRAIT}, {unit}")
    figure.update_yaxes(title_text="share of the devices, %")
    return figure_html(figure, height=360)
