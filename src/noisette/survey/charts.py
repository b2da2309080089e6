"""Pictures of results, by plotly, and the tables that a notebook shows."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from noisette.survey.estimation.hierarchy import CdfEstimate
from noisette.survey.questions import Number

if TYPE_CHECKING:
    import pandas as pd

    from noisette.survey.results import Answer, Results

_INK = "#1b4f72"
_NOTEBOOK_ROWS = 200  # of a table in a notebook
_BARS = 40  # of a histogram
_HELD_BARS = 16  # of one with intervals: its bars are made of whole cells
_HEIGHT = 220  # pixels of one question


def _plotly() -> Any:
    """Return plotly's figures, or say how to get them."""
    try:
        import plotly.graph_objects as figures
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("Pictures need plotly: pip install 'noisette[plot]'.") from error
    return figures


def results_figure(results: Results) -> Any:
    """Return one row of axes for each question."""
    _plotly()
    from plotly.subplots import make_subplots

    names = list(results)
    figure = make_subplots(rows=len(names), cols=1, subplot_titles=[escape(name) for name in names])
    for row, name in enumerate(names, start=1):
        for trace in _traces(results[name]):
            figure.add_trace(trace, row=row, col=1)
        across, up = _axes(results[name])
        figure.update_xaxes(title_text=across, row=row, col=1)
        figure.update_yaxes(title_text=up, row=row, col=1)
    return figure.update_layout(height=80 + _HEIGHT * len(names), showlegend=False, template="plotly_white")


def answer_figure(answer: Answer) -> Any:
    """Return the picture of one question."""
    across, up = _axes(answer)
    figure = _plotly().Figure(data=_traces(answer))
    figure.update_layout(
        title=escape(answer.question.name),
        xaxis_title=across,
        yaxis_title=up,
        showlegend=False,
        template="plotly_white",
    )
    return figure


def _pictured(answer: Answer) -> bool:
    """Tell whether the distribution is drawn."""
    return answer.question.wants_distribution and answer.reports > 0


def _axes(answer: Answer) -> tuple[str, str]:
    """Return what the axes mean."""
    name = escape(answer.question.name)
    if _pictured(answer):
        held = isinstance(answer.estimate, CdfEstimate)
        shown = f"{answer.results.level:.0%} interval" if held else "smoothed: no interval"
        return name, f"share of people, {shown}"
    level = f"{answer.results.level:.0%} interval"
    return (name, f"share of people, {level}") if answer.question.tells != "mean" else ("group", f"mean, {level}")


def _on_axis(answer: Answer, values: Any) -> list[Any]:
    """Return numbers as the question's axis shows them."""
    own = answer.question
    if isinstance(own, Number) and own.axis != "number":
        return [str(own.shown(value)) for value in values]
    return list(values)


def _wide(answer: Answer, width: Any) -> Any:
    """Return the width of bars; that of dates is for plotly to find."""
    return None if isinstance(answer.question, Number) and answer.question.axis != "number" else width


def _traces(answer: Answer) -> list[Any]:
    """Return bars of a distribution, or points with intervals: of the labels, or of the mean in each group."""
    figures = _plotly()
    if _pictured(answer):
        bars = answer.bars(bins=_HELD_BARS if isinstance(answer.estimate, CdfEstimate) else _BARS)
        middles, width = (bars["low"] + bars["high"]) / 2, bars["high"] - bars["low"]
        error = None
        if "share_low" in bars:
            up, down = bars["share_high"] - bars["share"], bars["share"] - bars["share_low"]
            error = {"type": "data", "symmetric": False, "array": up.clip(lower=0), "arrayminus": down.clip(lower=0)}
        shown = _on_axis(answer, middles)
        return [figures.Bar(x=shown, y=bars["share"], width=_wide(answer, width), marker_color=_INK, error_y=error)]
    table = answer.table()
    if answer.question.tells != "mean":
        table = table[table["group"] == answer.results.group]
    where = table["quantity"] if answer.question.tells != "mean" or table["group"].nunique() == 1 else table["group"]
    return [
        figures.Scatter(
            x=[escape(str(label)) for label in where],
            y=table["value"],
            mode="markers",
            marker={"color": _INK, "size": 9},
            error_y={
                "type": "data",
                "symmetric": False,
                "array": table["high"] - table["value"],
                "arrayminus": table["value"] - table["low"],
            },
        )
    ]


def page(head: str, table: pd.DataFrame, note: str) -> str:
    """Return a table as a notebook shows it."""
    shown = table.head(_NOTEBOOK_ROWS).to_html(
        index=False, escape=True, float_format=lambda number: f"{number:.4g}", border=0
    )
    more = f"<p>The first {_NOTEBOOK_ROWS} of {len(table):,} rows.</p>" if len(table) > _NOTEBOOK_ROWS else ""
    return f"<h4>{escape(head)}</h4>{shown}{more}<p>{escape(note)}</p>"
