"""The lines of chapter 5 of Duan 2024 on the page of all papers: its figures and tables."""

from __future__ import annotations

from typing import Any

from experiments.page import NOTHING, Found, Line, Results, percent, span


def lines(results: Results) -> list[Line]:
    """Return the lines."""
    errors, factor, logistic, cnn, residual, attack = (
        results("geodp", name) for name in ("fig-5-3", "fig-5-4", "fig-5-5", "table-5-2", "table-5-3", "table-5-4")
    )
    return [
        Line("Table 5.1", "", "notation", "symbols", "ours are in docs/notation.md", verdict=NOTHING),
        _errors("Figure 5.1", errors, "GeoDP keeps directions better, DP gradients"),
        _errors("Figure 5.3", errors, "GeoDP keeps directions better in most settings"),
        _errors("Figure 5.4", factor, "some β makes GeoDP better in both"),
        _logistic(logistic),
        _accuracies("Table 5.2", cnn, "", "GeoDP beats DP: 98.04 against 95.52 % at σ = 1"),
        _accuracies(
            "Table 5.3",
            residual,
            "half an epoch of half-size images, B = 64",
            "GeoDP beats DP: 65.47 against 60.12 % at σ = 0.1",
        ),
        _attacks(attack),
    ]


def _attacks(found: Found) -> Line:
    original, plain = (
        found.one("learned attack, %", method="original"),
        found.where(method="DP")[0]["learned attack, %"],
    )
    held = [row["ε that holds"] for row in found.rows if row["method"].startswith("GeoDP") and row["ε that holds"]]
    best = max(row["plain DP-SGD at that ε, test accuracy, %"] or 0.0 for row in found.rows)
    return Line(
        "Table 5.4",
        "geodp table-5-4",
        found.size("2,000 members of Fashion-MNIST; no CelebA"),
        "attack right in 56.2 % on the original, 50.0 % on DP, 50.1 % on GeoDP",
        f"{original} on the original, {plain} on DP",
        f"GeoDP {span(held)}",
        f"plain DP-SGD at that ε: {percent(best)} accuracy",
        "Yes; GeoDP learned nothing",
    )


def _errors(item: str, found: Found, claimed: str) -> Line:
    rows = found.rows
    direction, gradient = (
        [
            sum(row[f"{reading} {kind}"] < row[f"DP {kind}"] for row in rows)
            for reading in ("printed", "around π/2", "sound")
        ]
        for kind in ("angle", "gradient")
    )
    return Line(
        item,
        f"geodp {found.study['name']}",
        found.size(),
        claimed,
        f"of {len(rows)} settings better in direction / gradient: printed {direction[0]} / {gradient[0]}, around π/2 "
        f"{direction[1]} / {gradient[1]}, sound {direction[2]} / {gradient[2]}",
        f"printed {span([row['ε that holds as printed'] for row in rows])}",
        "plain Gaussian noise is DP's row",
        "Not at one guarantee",
    )


def _logistic(found: Found) -> Line:
    rows = [row for row in found.rows if row["method"].startswith("GeoDP") and "sound" not in row["method"]]
    worse = sum(row["plain DP-SGD at that ε, loss"] <= row["test loss"] for row in rows)
    return Line(
        "Figure 5.5",
        "geodp fig-5-5",
        found.size("test loss for training loss; panels' σ chosen by us"),
        "GeoDP almost reaches training without noise",
        f"unsound forms end at {span([row['test loss'] for row in rows])}; "
        f"no noise {found.one('test loss', method='no noise'):.3f}",
        span([row["ε that holds"] for row in rows]),
        f"plain DP-SGD no worse in {worse} of {len(rows)}",
        "Not at one guarantee",
    )


def _accuracies(item: str, found: Found, reduced: str, claimed: str) -> Line:
    def best(wanted: str) -> dict[str, Any]:
        return max((row for row in found.rows if row["method"].startswith(wanted)), key=lambda row: row["obtained, %"])

    kind, printed, plain = best("GeoDP, range around"), best("GeoDP as printed"), best("DP")
    return Line(
        item,
        f"geodp {found.study['name']}",
        found.size(reduced),
        claimed,
        f"best: DP {percent(plain['obtained, %'])}, GeoDP as printed {percent(printed['obtained, %'])}, "
        f"its kindest reading {percent(kind['obtained, %'])}",
        f"{kind['ε that holds']:,.0f} for that row ({kind['ε claimed']:,.3g} claimed)",
        f"plain DP-SGD there: {percent(kind['plain DP-SGD at that ε, %'])}",
        "Level at best, unlike guarantees",
    )
