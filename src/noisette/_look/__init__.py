"""How every page and chart of ours looks: one style sheet, one set of colours, one dress for figures."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

DARK, NUT, TAN, PALE, GREEN, RED = "#5b3a1e", "#b9824a", "#cdae85", "#dcc6a8", "#3f7d58", "#b3261e"
_INK, _GRID = "#2b2118", "#efe8de"


def style() -> str:
    """Return the style sheet that all pages begin with."""
    return files("noisette._look").joinpath("look.css").read_text(encoding="utf-8")


def dress(figure: Any, *, height: int, legend: bool = True) -> Any:
    """Give a plotly figure our fonts, colours and margins, and return it."""
    figure.update_layout(
        height=height,
        showlegend=legend,
        template="plotly_white",
        margin={"l": 10, "r": 10, "t": 40, "b": 10},
        font={"family": "system-ui, sans-serif", "size": 13, "color": _INK},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
    )
    figure.update_xaxes(automargin=True, gridcolor=_GRID, zeroline=False)
    figure.update_yaxes(automargin=True, gridcolor=_GRID, zeroline=False)
    return figure


def figure_html(figure: Any, *, height: int, legend: bool = True) -> str:
    """Return a dressed figure as a piece of a page, without plotly's script, which the page has once."""
    settings = {"displayModeBar": False, "responsive": True}
    dressed = dress(figure, height=height, legend=legend)
    text: str = dressed.to_html(full_html=False, include_plotlyjs=False, include_mathjax=False, config=settings)
    return text
