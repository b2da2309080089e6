"""The lines of chapter 6 of Duan 2024 on the page of all papers: its figures and tables."""

from __future__ import annotations

from typing import Any

from experiments.federated.ldpvec.studies import NOTABLE, far_better
from experiments.page import NOTHING, Found, Line, Results, span

_FOLDER = "federated.ldpvec"
_CLIPPED = "last gradient, all clipped"
_ALONE = "last gradient, it alone clipped"
_NOISES = ("laplace", "piecewise", "gaussian")
_PANELS = "E = 20 and N = 500 only; the thesis varies both"


def lines(results: Results) -> list[Line]:
    """Return the lines."""
    logistic, limit, perceptron, network = (
        results(_FOLDER, name) for name in ("fig-6-2", "fig-6-2-limit", "fig-6-3", "table-6-4")
    )
    own, net, told = perceptron.setting, network.setting, results(_FOLDER, "one-round")
    fewer = f"{own['devices']} devices, {own['rounds']} rounds of {own['steps a round']} steps"
    smaller = (
        f"{net['weights']:,} of 70,340 weights, {net['devices']} of 1,000 devices, {net['rounds']} rounds of "
        f"{net['steps a round']} steps; MNIST, as the table says, for CIFAR-10, as the text does"
    )
    return [
        Line("Figure 6.1", "", "diagram", "overview", "docs/federate-with-a-budget.md has ours", verdict=NOTHING),
        _setting("Table 6.1", "fig-6-2", "Figure 6.2"),
        _setting("Table 6.2", "fig-6-3", "Figure 6.3"),
        _setting("Table 6.3", "table-6-4", "Table 6.4"),
        _losses("Figure 6.2", logistic, _PANELS, 1.5),
        _losses("Figure 6.2, five devices", limit, "", 15.3),
        _losses("Figure 6.3", perceptron, fewer, 48.5, "Yes by 6.1.4; Gaussian no"),
        _table(network, smaller),
        *(_round(item, told) for item in dict.fromkeys(row["item"] for row in told.rows)),
    ]


def _round(item: str, found: Found) -> Line:
    """Return the line of what one round tells of the last gradients, with the thesis's weights and devices."""
    rows = found.where(item=item)
    numbers, angles = ([row for row in rows if row["mechanism"].endswith(kind)] for kind in ("numbers", "angles"))
    reach = max(5 / row["weights"] ** 0.5 for row in rows)
    lost = sum(abs(row["cosine"]) < reach for row in angles)
    turned = []
    for name in _NOISES:
        own = [row for row in angles if row["mechanism"].startswith(name)]
        cosines = [f"{row['cosine']:.3f} (ε {row['ε a round']:g})" for row in own]
        turned.append(f"{name} {', '.join(cosines)}")
    return Line(
        f"{item}, one round",
        "ldpvec one-round",
        found.size(f"one round; {rows[0]['weights']:,} weights and {rows[0]['devices']:,} devices are the thesis's"),
        "numbers hide the mean gradient, angles keep its direction",
        f"error over C: numbers {span([row['error over C'] for row in numbers])}, angles "
        f"{span([row['error over C'] for row in angles])}, nothing told {rows[0]['of it, nothing told']:.3g}; "
        f"cosine of angles: {'; '.join(turned)}",
        "none for angles and Piecewise",
        "",
        "Less harm; direction mostly lost" if 2 * lost > len(angles) else "Less harm; direction partly kept",
    )


def _setting(item: str, study: str, shown: str) -> Line:
    told = f"settings of {shown}"
    return Line(item, f"ldpvec {study}", f"see {shown}", told, "used as said", verdict=f"Setting, see {shown}")


def _losses(item: str, found: Found, reduced: str, epsilon: float, verdict: str = "") -> Line:
    rows = _rows(found, epsilon)
    said = []
    for name in _NOISES:
        kinds = [rows.get((f"{name}, {told}", _CLIPPED)) for told in ("numbers", "numbers in ±C/√d", "angles")]
        losses = ["-" if row is None else f"{row['test loss']:.3g}" for row in kinds]
        said.append(f"{name} {' / '.join(losses)}")
    laplace, gaussian = (rows[f"{name}, numbers", _CLIPPED]["true ε, all rounds"] for name in ("laplace", "gaussian"))
    ours = rows["privunit-g", "whole update"]
    return Line(
        item,
        f"ldpvec {found.study['name']}",
        found.size(reduced),
        "LDPVec nears training without noise, numbers fail",
        f"loss at ε {epsilon:g} a round, numbers by 6.1.4 / by 6.1.2 / angles: {'; '.join(said)}; no noise "
        f"{_clean(found):.3g}",
        f"none for angles and Piecewise; numbers: Laplace {laplace}, Gaussian {gaussian}",
        f"privunit-g, whole update private, ε {ours['true ε, all rounds']}: {ours['test loss']:.3f}",
        verdict or _judged(rows, _clean(found)),
    )


def _clean(found: Found) -> float:
    """Return the loss without noise, every gradient clipped."""
    lines = {line["label"]: line["y"] for line in found.study["charts"][0]["series"]}
    return float(lines["no noise, every gradient clipped"][-1])


def _judged(rows: dict[tuple[str, str], dict[str, Any]], clean: float) -> str:
    """Say with which calibration, and for which noise, angles end far nearer to training without noise."""

    def ahead(name: str, kind: str) -> bool:
        angle, number = (rows[f"{name}, {told}", _CLIPPED]["test loss"] for told in ("angles", kind))
        return far_better(angle, number, clean)

    wide, even = ([ahead(name, kind) for name in _NOISES[:2]] for kind in ("numbers", "numbers in ±C/√d"))
    gauss = "Gaussian too" if ahead("gaussian", "numbers") else "Gaussian no"
    if not all(wide):
        return "Not for every noise"
    return f"Yes by both; {gauss}" if all(even) else f"Yes by 6.1.4; {gauss}"


def _table(found: Found, reduced: str) -> Line:
    rows = _rows(found, 15.3)
    said: list[str] = []
    ahead: list[bool] = []
    level: list[bool] = []
    for name in _NOISES:
        numbers, angles = (rows[f"{name}, {told}", _CLIPPED] for told in ("numbers", "angles"))
        alone = [rows[f"{name}, {told}", _ALONE]["obtained %"] for told in ("numbers", "angles")]
        said.append(
            f"{name} {numbers['obtained %']:.1f} / {angles['obtained %']:.1f}, {alone[0]:.1f} / {alone[1]:.1f} "
            f"({numbers['thesis %']:g} / {angles['thesis %']:g})"
        )
        ahead.append(alone[1] > alone[0] + NOTABLE)
        level.append(alone[1] > angles["thesis %"] - NOTABLE)
    ours = rows["privunit-g", "whole update"]
    return Line(
        "Table 6.4",
        "ldpvec table-6-4",
        found.size(reduced),
        "43 to 71 % on numbers, 72 to 88 % on angles, 95 % without noise",
        "% on numbers / angles, every gradient clipped, the last alone (thesis): " + "; ".join(said),
        "none for angles and Piecewise",
        f"privunit-g, whole update private, ε {ours['true ε, all rounds']}: {ours['obtained %']:.1f} %",
        _order(ahead, level),
    )


def _order(ahead: list[bool], level: list[bool]) -> str:
    """Say for which noise angles are above numbers, and whether they reach the thesis's level; Gaussian comes last.

    Gaussian noise on numbers grows with the root of the weights: with few it does no harm, and is not judged.
    """
    if all(ahead):
        return "Yes, levels too" if all(level) else "Order yes, levels not reached"
    if not all(ahead[:2]):
        return "Not for every noise"
    return "Yes; Gaussian too small" if all(level[:2]) else "Order yes; Gaussian too small"


def _rows(found: Found, epsilon: float) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the rows of one budget by mechanism and by what is private."""
    return {(row["mechanism"], row["what is private"]): row for row in found.rows if row["ε a round"] == epsilon}
