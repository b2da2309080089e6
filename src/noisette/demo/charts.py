"""Charts of the report as plain HTML and SVG: rows that wrap on a phone, and drawings of a phone's width that grow."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

import numpy as np

from noisette._validate import FloatArray

_WIDE, _HIGH = 360, 250  # units of a drawing: a phone shows them as pixels
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 12, 26, 42


def _text(x: float, y: float, text: str, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _drawing(title: str, parts: Iterable[str]) -> str:
    label = escape(title, quote=True)
    return f'<svg class="chart" viewBox="0 0 {_WIDE} {_HIGH}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def bars(rows: Sequence[tuple[str, float, str, bool]]) -> str:
    """Draw one bar a row: its name, its length, what stands behind it, and whether it is marked."""
    most = max(value for _, value, _, _ in rows)
    shown = (
        f"<li{' class=own' if marked else ''}><span>{escape(name)}</span>"
        f'<i><b style="width:{100 * value / most:.1f}%"></b></i><em>{escape(text)}</em></li>'
        for name, value, text, marked in rows
    )
    return f'<ul class="bars">{"".join(shown)}</ul>'


def strips(rows: Sequence[tuple[str, float, float, float, str, bool]], ends: tuple[float, float]) -> str:
    """Draw one interval a row, on a line from end to end: name, low, value, high, text, and whether it holds."""
    low_end, high_end = ends

    def at(value: float) -> float:
        return 100 * min(max((value - low_end) / (high_end - low_end), 0.0), 1.0)

    zero = at(0.0)
    shown = (
        f"<li{'' if holds else ' class=out'}><span>{escape(name)}</span>"
        f'<svg viewBox="0 0 100 18" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="zero" x="{zero - 0.2:.2f}" y="0" width="0.4" height="18"/>'
        f'<rect class="band" x="{at(low):.2f}" y="8" width="{max(at(high) - at(low), 0.3):.2f}" height="2"/>'
        f'<rect class="mark" x="{at(value) - 0.5:.2f}" y="4" width="1" height="10"/></svg><em>{escape(text)}</em></li>'
        for name, low, value, high, text, holds in rows
    )
    return f'<ul class="bars strips">{"".join(shown)}</ul>'


def _powers(low: float, high: float) -> list[float]:
    steps = (1, 2, 5) if high / low < 100 else (1,)
    found = [
        step * 10.0**power
        for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        for step in steps
    ]
    return [one for one in found if low <= one <= high]


def lines(curves: Sequence[tuple[str, str, FloatArray, FloatArray]], x_title: str, y_title: str, title: str) -> str:
    """Draw curves on two logarithmic axes: the name and the class of each, and its points."""
    every_x = np.concatenate([xs for _, _, xs, _ in curves])
    every_y = np.concatenate([ys for _, _, _, ys in curves])
    (left, right), (low, high) = ((float(one.min()) * 0.9, float(one.max()) * 1.1) for one in (every_x, every_y))

    def place_x(value: float) -> float:
        return _LEFT + (_WIDE - _LEFT - _RIGHT) * math.log(value / left) / math.log(right / left)

    def place_y(value: float) -> float:
        return _HIGH - _BOTTOM - (_HIGH - _BOTTOM - _TOP) * math.log(value / low) / math.log(high / low)

    parts = [f'<line class="grid" x1="{_LEFT}" x2="{_WIDE - _RIGHT}" y1="{place_y(one):.1f}" y2="{place_y(one):.1f}"/>'
             + _text(_LEFT - 5, place_y(one) + 4, f"{one:g}", "end") for one in _powers(low, high)]  # fmt: skip
    parts += [_text(place_x(one), _HIGH - _BOTTOM + 16, f"{one:,.0f}") for one in _powers(left, right)]
    parts += [_text((_LEFT + _WIDE) / 2, _HIGH - 6, x_title), _text(4, _TOP - 14, y_title, "start")]
    for _, style, xs, ys in curves:
        points = [(place_x(float(x)), place_y(float(y))) for x, y in zip(xs, ys, strict=True)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline class="{style}" points="{path}"/>')
        parts += [f'<circle class="{style}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in points]
    key = "".join(f'<li class="{style}">{escape(name)}</li>' for name, style, _, _ in curves)
    return _drawing(title, parts) + f'<ul class="key">{key}</ul>'


def distribution(edges: FloatArray, truth: FloatArray, found: FloatArray, x_title: str, title: str) -> str:
    """Draw true shares of bins as bars, and those that were found as a line."""
    most, first, last = float(max(truth.max(), found.max())), float(edges[0]), float(edges[-1])

    def place_x(value: float) -> float:
        return _LEFT + (_WIDE - _LEFT - _RIGHT) * (value - first) / (last - first)

    def place_y(value: float) -> float:
        return _HIGH - _BOTTOM - (_HIGH - _BOTTOM - _TOP) * value / most

    parts = []
    for low, high, share in zip(edges[:-1].tolist(), edges[1:].tolist(), truth.tolist(), strict=True):
        x, y = place_x(low), place_y(share)
        parts.append(f'<rect class="truth" x="{x + 0.5:.1f}" y="{y:.1f}" width="{place_x(high) - x - 1:.1f}" '
                     f'height="{place_y(0) - y:.1f}"/>')  # fmt: skip
    middles = (edges[1:] + edges[:-1]) / 2
    path = " ".join(f"{place_x(x):.1f},{place_y(y):.1f}" for x, y in zip(middles.tolist(), found.tolist(), strict=True))
    parts.append(f'<polyline class="seen" points="{path}"/>')
    parts += [_text(place_x(one), _HIGH - _BOTTOM + 16, f"{one:g}") for one in np.linspace(first, last, 5).round(1)]
    parts += [_text(_LEFT - 5, place_y(one) + 4, f"{100 * one:.1f}", "end") for one in np.linspace(0, most, 4)]
    parts += [_text((_LEFT + _WIDE) / 2, _HIGH - 6, x_title), _text(4, _TOP - 14, "% of the devices", "start")]
    key = '<ul class="key"><li class="truth">truth</li><li class="seen">found behind the reports</li></ul>'
    return _drawing(title, parts) + key
