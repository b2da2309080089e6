"""Interactive charts of the demonstration, as pieces of a page."""

from __future__ import annotations

from typing import Any

import numpy as np

from noisette.demo.collection import LEVEL, Outcome, Part, Portrait, covered, root_mean_square
from noisette.demo.population import ATTRIBUTES, Attribute

_DARK, _NUT, _TAN, _PALE, _GREEN, _RED = "#5b3a1e", "#b9824a", "#cdae85", "#dcc6a8", "#3f7d58", "#b3261e"
_ROUND = [0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1, 2, 3, 5, 7, 10, 20, 50]
_TICKS: dict[str, Any] = {"tickvals": _ROUND, "ticktext": [f"{tick:g}" for tick in _ROUND]}
_LINES = (_DARK, "#b9824a", "#3f7d58", "#4b6a9b", "#8d5b8f", "#7a7a3a", "#c0563f", "#3d8d91")


def percent(part: Part, error: float) -> float:
    """Return an error in % of the range: numbers span [-1, 1], frequencies [0, 1]."""
    return 100 * error / (1 if part.mechanism.kind == "frequency" else 2)


def plans(outcome: Outcome) -> str:
    """Draw the predicted error of every mechanism, for both questions."""
    from plotly.subplots import make_subplots

    titles = (f"{len(ATTRIBUTES)} numbers", "favourite sport")
    figure = make_subplots(rows=1, cols=2, subplot_titles=titles, horizontal_spacing=0.2)
    for column, part in enumerate((outcome.numbers, outcome.sport), start=1):
        ordered = part.plan.candidates[::-1]
        errors = [percent(part, candidate.mse**0.5) for candidate in ordered]
        notes = ["" if candidate.unbiased else " biased" for candidate in ordered]
        figure.add_scatter(
            x=errors,
            y=[candidate.mechanism for candidate in ordered],
            mode="markers+text",
            marker={"size": 13, "color": [_DARK if candidate is part.chosen else _TAN for candidate in ordered]},
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
    return _html(figure, height=430, showlegend=False)


def populations(part: Part) -> str:
    """Draw the predicted error against the number of devices."""
    import plotly.graph_objects as go

    users = np.geomspace(1e3, 1e8, 61)
    figure = go.Figure()
    best = list(part.plan.candidates[:6])
    biased = [candidate for candidate in part.plan.candidates[6:] if not candidate.unbiased]
    for place, candidate in enumerate(best + biased[:1]):
        square = max(candidate.mse - candidate.std**2, 0.0)
        errors = [percent(part, e) for e in np.sqrt(square + candidate.std**2 * part.plan.users / users)]
        figure.add_scatter(
            x=users,
            y=errors,
            name=candidate.mechanism + ("" if candidate.unbiased else " (biased)"),
            line={"color": _LINES[place % len(_LINES)], "width": 3 if candidate is part.chosen else 1.6},
            hovertemplate="%{x:,.0f} devices: %{y:.3f} %<extra>" + candidate.mechanism + "</extra>",
        )
    _mark(figure, part.plan.users)
    figure.update_xaxes(type="log", title_text="devices (log scale)", dtick=1)
    figure.update_yaxes(type="log", title_text="predicted error, % of the range (log scale)", dtick=1)
    return _html(figure, height=420)


def scatter(part: Part) -> str:
    """Draw estimates against the truth."""
    import plotly.graph_objects as go

    truth, value = (50 * (v + 1) for v in (part.truth, part.raw.value))
    low, high = (50 * (v + 1) for v in part.raw.interval(LEVEL))
    ends = [float(min(truth.min(), value.min())) - 3, float(max(truth.max(), value.max())) + 3]
    figure = go.Figure()
    figure.add_scatter(x=ends, y=ends, mode="lines", line={"color": _PALE, "width": 2}, hoverinfo="skip")
    figure.add_scatter(
        x=truth,
        y=value,
        mode="markers",
        marker={"color": _DARK, "size": 6},
        error_y={"array": high - value, "arrayminus": value - low, "color": _NUT, "thickness": 1.2, "width": 0},
        text=[_in_units(part, place) for place in range(len(ATTRIBUTES))],
        hovertemplate="%{text}<extra></extra>",
    )
    figure.update_xaxes(title_text="true mean, % of the range")
    figure.update_yaxes(title_text=f"estimate with its {LEVEL:.0%} interval, % of the range")
    return _html(figure, height=460, showlegend=False)


def errors(part: Part) -> str:
    """Draw estimate minus truth for each attribute: about one interval in twenty misses zero."""
    import plotly.graph_objects as go

    inside = covered(part.raw, part.truth)
    _, high = part.raw.interval(LEVEL)
    gap, radius = 50 * (part.raw.value - part.truth), 50 * (high - part.raw.value)
    figure = go.Figure()
    for chosen, colour, name in ((inside, _DARK, "holds the truth"), (~inside, _RED, "misses it")):
        places = np.flatnonzero(chosen)
        figure.add_scatter(
            x=gap[places],
            y=places,
            mode="markers",
            name=name,
            marker={"color": colour, "size": 6},
            error_x={"array": radius[places], "color": colour, "thickness": 1, "width": 0},
            text=[_in_units(part, place) for place in places.tolist()],
            hovertemplate="%{text}<extra></extra>",
        )
    figure.add_vline(x=0, line_color=_PALE)
    figure.update_xaxes(title_text="estimate minus truth, % of the range")
    figure.update_yaxes(title_text="attribute", showticklabels=False, autorange="reversed")
    return _html(figure, height=460)


def frequencies(part: Part) -> str:
    """Draw the true and the estimated frequencies."""
    import plotly.graph_objects as go

    _, high = part.raw.interval(LEVEL)
    names = list(part.names)
    figure = go.Figure()
    figure.add_bar(x=names, y=100 * part.truth, name="truth", marker_color=_PALE, hovertemplate="%{y:.2f} %")
    figure.add_bar(
        x=names,
        y=100 * part.raw.value,
        name=f"estimate, {LEVEL:.0%} interval",
        marker_color=_DARK,
        error_y={"array": 100 * (high - part.raw.value), "color": _NUT, "thickness": 1.6},
        hovertemplate="%{y:.2f} %",
    )
    figure.update_layout(barmode="group", hovermode="x unified")
    figure.update_xaxes(title_text="favourite sport")
    figure.update_yaxes(title_text="share of the devices, %")
    return _html(figure, height=400)


def distribution(portrait: Portrait, attribute: Attribute) -> str:
    """Draw the true distribution of an attribute and the one found behind the reports."""
    import plotly.graph_objects as go

    edges = attribute.from_canonical(portrait.edges)
    middles = (edges[1:] + edges[:-1]) / 2
    figure = go.Figure()
    figure.add_bar(x=middles, y=100 * portrait.truth, name="truth", marker_color=_PALE, width=np.diff(edges))
    figure.add_scatter(
        x=middles,
        y=100 * portrait.found,
        name="reconstructed",
        mode="lines+markers",
        line={"color": _DARK, "width": 2.5, "shape": "spline"},
    )
    figure.update_traces(hovertemplate="%{y:.2f} %")
    figure.update_layout(hovermode="x unified")
    figure.update_xaxes(title_text=f"{attribute.name}, {attribute.unit}")
    figure.update_yaxes(title_text="share of the devices, %")
    return _html(figure, height=360)


def budgets(outcome: Outcome) -> str:
    """Draw the error against the budget, before and after enhancing."""
    import plotly.graph_objects as go

    part = outcome.numbers
    own = [root_mean_square(estimate.value - part.truth) for estimate in (part.raw, part.enhanced)]
    rows = sorted([(a.epsilon, a.raw, a.enhanced) for a in outcome.alternatives] + [(outcome.epsilon, own[0], own[1])])
    epsilons = [row[0] for row in rows]
    figure = go.Figure()
    for place, name, colour, dash in ((1, "raw estimate", _NUT, "dot"), (2, "enhanced", _GREEN, "solid")):
        figure.add_scatter(
            x=epsilons,
            y=[percent(part, row[place]) for row in rows],
            name=name,
            mode="lines+markers",
            line={"color": colour, "dash": dash, "width": 2.5},
            hovertemplate="ε = %{x:g}: %{y:.2f} %",
        )
    _mark(figure, outcome.epsilon)
    ticks: dict[str, Any] = {"tickvals": epsilons, "ticktext": [f"{e:g}" for e in epsilons]}
    figure.update_xaxes(type="log", title_text="total budget ε of a device (log scale)", **ticks)
    figure.update_yaxes(type="log", title_text="measured error, % of the range (log scale)", **_TICKS)
    return _html(figure, height=380)


def _mark(figure: Any, place: float) -> None:
    """Draw a line at this collection's place on a logarithmic axis."""
    figure.add_vline(x=place, line_dash="dot", line_color=_NUT)
    label = {"text": "this collection", "showarrow": False, "font": {"color": _NUT}}
    figure.add_annotation(x=np.log10(place), y=1, yref="paper", xanchor="right", yanchor="top", xshift=-4, **label)


def _in_units(part: Part, place: int) -> str:
    """Write a mean in the attribute's own unit."""
    attribute = ATTRIBUTES[place]
    truth, value = (float(attribute.from_canonical(v[place])) for v in (part.truth, part.raw.value))
    return f"<b>{attribute.name}</b><br>truth {truth:,.4g} {attribute.unit}<br>estimate {value:,.4g} {attribute.unit}"


def _html(figure: Any, *, height: int, showlegend: bool = True) -> str:
    """Return a figure in the house style, without the script, which the page has once."""
    figure.update_layout(
        height=height,
        showlegend=showlegend,
        template="plotly_white",
        margin={"l": 10, "r": 10, "t": 40, "b": 10},
        font={"family": "system-ui, sans-serif", "size": 13, "color": "#2b2118"},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
    )
    figure.update_xaxes(automargin=True, gridcolor="#efe8de", zeroline=False)
    figure.update_yaxes(automargin=True, gridcolor="#efe8de", zeroline=False)
    settings = {"displayModeBar": False, "responsive": True}
    text: str = figure.to_html(full_html=False, include_plotlyjs=False, include_mathjax=False, config=settings)
    return text
