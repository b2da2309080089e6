"""Pictures of results, by plotly, and the tables that a notebook shows."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

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


class _Panel(NamedTuple):
    """Axes with one trace; ``clock`` says that they show times of day."""

    title: str
    across: str
    up: str
    trace: Any
    clock: bool = False


def _plotly() -> Any:
    """Return plotly's figures, or say how to get them."""
    try:
        import plotly.graph_objects as figures
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("Pictures need plotly: pip install 'noisette[plot]'.") from error
    return figures


def results_figure(results: Results) -> Any:
    """Return one row of axes for each question, or for each of its quantities that has a unit of its own."""
    return _figure([panel for answer in results.values() for panel in _panels(answer)])


def answer_figure(answer: Answer) -> Any:
    """Return the picture of one question."""
    panels = _panels(answer)
    return _figure(panels) if len(panels) > 1 else _figure(panels).update_layout(height=None)


def _figure(panels: list[_Panel]) -> Any:
    """Return panels below each other."""
    _plotly()
    from plotly.subplots import make_subplots

    figure = make_subplots(rows=len(panels), cols=1, subplot_titles=[panel.title for panel in panels])
    for row, panel in enumerate(panels, start=1):
        figure.add_trace(panel.trace, row=row, col=1)
        clock = {"tickformat": "%H:%M"} if panel.clock else {}
        figure.update_xaxes(title_text=panel.across, **clock, row=row, col=1)
        figure.update_yaxes(title_text=panel.up, row=row, col=1)
    return figure.update_layout(height=80 + _HEIGHT * len(panels), showlegend=False, template="plotly_white")


def _pictured(answer: Answer) -> bool:
    """Tell whether the distribution is drawn."""
    return answer.question.wants_distribution and answer.reports > 0


def _on_axis(answer: Answer, values: Any) -> list[Any]:
    """Return numbers as the question's axis shows them: times of day are those of one day, whose date is not shown."""
    own = answer.question
    if isinstance(own, Number) and own.axis != "number":
        return [f"{'1970-01-01 ' if own.axis == 'time' else ''}{own.shown(value)}" for value in values]
    return list(values)


def _panels(answer: Answer) -> list[_Panel]:
    """Return bars of a distribution, or points with intervals: of the labels, or of each mean in each group."""
    name, level = escape(answer.question.name), f"{answer.results.level:.0%} interval"
    if _pictured(answer):
        return [_bars(answer, name, level)]
    table = answer.table()
    if answer.question.tells != "mean":
        table = table[table["group"] == answer.results.group]
        return [_Panel(name, name, f"share of people,<br>{level}", _points(table, table["quantity"]))]
    one = table["group"].nunique() == 1
    spans = dict(zip(answer.question.estimated, answer.question.spans.tolist(), strict=True))
    panels = []
    for span in dict.fromkeys(spans.values()):  # quantities of different units have axes of their own
        own = table[table["quantity"].map(spans) == span]
        several = own["quantity"].nunique() > 1
        told = own["quantity"].str.removeprefix("mean where ")
        where = told if one else told + ", " + own["group"] if several else own["group"]
        what = "mean" if several else own["quantity"].iloc[0]
        panels.append(_Panel(name, name if one else "group", f"{escape(what)},<br>{level}", _points(own, where)))
    return panels


def _bars(answer: Answer, name: str, level: str) -> _Panel:
    """Return the bars of a distribution."""
    held = isinstance(answer.estimate, CdfEstimate)
    bars = answer.bars(bins=_HELD_BARS if held else _BARS)
    middles, width = (bars["low"] + bars["high"]) / 2, bars["high"] - bars["low"]
    error = None
    if held:
        up, down = bars["share_high"] - bars["share"], bars["share"] - bars["share_low"]
        error = {"type": "data", "symmetric": False, "array": up.clip(lower=0), "arrayminus": down.clip(lower=0)}
    axis = answer.question.axis if isinstance(answer.question, Number) else "number"
    shown = {"x": _on_axis(answer, middles), "width": None if axis != "number" else width}  # plotly finds that of dates
    trace = _plotly().Bar(**shown, y=bars["share"], marker_color=_INK, error_y=error)
    return _Panel(
        name, name, f"share of people,<br>{level if held else 'smoothed: no interval'}", trace, axis == "time"
    )


def _points(table: pd.DataFrame, where: pd.Series) -> Any:
    """Return a point with its interval for each row."""
    return _plotly().Scatter(
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


def page(head: str, table: pd.DataFrame, note: str) -> str:
    """Return a table as a notebook shows it."""
    shown = table.head(_NOTEBOOK_ROWS).to_html(
        index=False, escape=True, float_format=lambda number: f"{number:.4g}", border=0
    )
    more = f"<p>The first {_NOTEBOOK_ROWS} of {len(table):,} rows.</p>" if len(table) > _NOTEBOOK_ROWS else ""
    return f"<h4>{escape(head)}</h4>{shown}{more}<p>{escape(note)}</p>"
