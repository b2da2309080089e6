"""The lines of chapter 6 of Duan 2024 on the page of all papers: its figures and tables."""

from __future__ import annotations

from typing import Any

from experiments.page import NOTHING, Found, Line, Results

_FOLDER = "federated.ldpvec"
_CLIPPED = "last gradient, all clipped"
_NOISES = ("laplace", "piecewise", "gaussian")
_PANELS = "E = 20 and N = 500 only; the thesis varies both"


def lines(results: Results) -> list[Line]:
    """Return the lines."""
    logistic, limit, perceptron, network = (
        results(_FOLDER, name) for name in ("fig-6-2", "fig-6-2-limit", "fig-6-3", "table-6-4")
    )
    own, net = perceptron.setting, network.setting
    fewer = f"{own['devices']} devices, {own['rounds']} rounds of {own['steps a round']} steps"
    smaller = (
        f"{net['weights']:,} of 70,540 weights, {net['devices']} of 1,000 devices, {net['rounds']} rounds of "
        f"{net['steps a round']} steps; MNIST, as the table says, for CIFAR-10, as the text does"
    )
    return [
        Line("Figure 6.1", "", "diagram", "overview", "docs/federate-with-a-budget.md has ours", verdict=NOTHING),
        _setting("Table 6.1", "fig-6-2", logistic.size(_PANELS), "Figure 6.2"),
        _setting("Table 6.2", "fig-6-3", perceptron.size(fewer), "Figure 6.3"),
        _setting("Table 6.3", "table-6-4", network.size(smaller), "Table 6.4"),
        _losses("Figure 6.2", logistic, _PANELS, 1.5),
        _losses("Figure 6.2, five devices", limit, "", 15.3),
        _losses("Figure 6.3", perceptron, fewer, 48.5, "Numbers fail; rest too small"),
        _table(network, smaller),
    ]


def _setting(item: str, study: str, size: str, shown: str) -> Line:
    return Line(item, f"ldpvec {study}", size, f"settings of {shown}", "used as said", verdict=f"Setting, see {shown}")


def _losses(
    item: str, found: Found, reduced: str, epsilon: float, verdict: str = "Yes, but for Gaussian noise"
) -> Line:
    rows = _rows(found, epsilon)
    said = [
        f"{name} {rows[f'{name}, numbers', _CLIPPED]['test loss']:.4g} on numbers, "
        f"{rows[f'{name}, angles', _CLIPPED]['test loss']:.3f} on angles"
        for name in _NOISES
    ]
    laplace, gaussian = (rows[f"{name}, numbers", _CLIPPED]["true ε, all rounds"] for name in ("laplace", "gaussian"))
    ours = rows["privunit-g", "whole update"]
    return Line(
        item,
        f"ldpvec {found.study['name']}",
        found.size(reduced),
        "LDPVec nears training without noise, numbers fail",
        f"loss at ε {epsilon:g} a round: " + "; ".join(said),
        f"none for angles and Piecewise; numbers: Laplace {laplace}, Gaussian {gaussian}",
        f"privunit-g, whole update private, ε {ours['true ε, all rounds']}: {ours['test loss']:.3f}",
        verdict,
    )


def _table(found: Found, reduced: str) -> Line:
    rows = _rows(found, 15.3)
    said = []
    for name in _NOISES:
        numbers, angles = (rows[f"{name}, {told}", _CLIPPED] for told in ("numbers", "angles"))
        said.append(
            f"{name} {numbers['obtained %']:.1f} (thesis {numbers['thesis %']:g}) on numbers, "
            f"{angles['obtained %']:.1f} ({angles['thesis %']:g}) on angles"
        )
    ours = rows["privunit-g", "whole update"]
    return Line(
        "Table 6.4",
        "ldpvec table-6-4",
        found.size(reduced),
        "43 to 71 % on numbers, 72 to 88 % on angles, 95 % without noise",
        "%: " + "; ".join(said),
        "none for angles and Piecewise",
        f"privunit-g, whole update private, ε {ours['true ε, all rounds']}: {ours['obtained %']:.1f} %",
        "Order yes, levels not reached",
    )


def _rows(found: Found, epsilon: float) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the rows of one budget by mechanism and by what is private."""
    return {(row["mechanism"], row["what is private"]): row for row in found.rows if row["ε a round"] == epsilon}
