"""The lines of Hao, Wu, Wan 2023 on the page of all papers: its figures and tables."""

from __future__ import annotations

from typing import Any

from experiments.page import NOTHING, Found, Line, Results, span

_DATA = "ACS 2024 for IPUMS US 2010"


def lines(results: Results) -> list[Line]:
    """Return the lines."""
    reuse, means, fit = (results("hierarchical", f"fig-{number}") for number in (1, 2, 3))
    once, more, most = ([row["exact, unclipped"] for row in reuse.rows if row["mu"] == mu] for mu in (1, 2, 5))
    growth = [a / b - 1 for a, b in zip(more, once, strict=True)]
    beyond = [a / b - 1 for a, b in zip(most, once, strict=True)]
    likely = [row["ours: likelihood"] / row["HierA"] for row in reuse.rows if row["mu"] == 1]
    return [
        Line(
            "Table 1",
            setting="notation",
            claimed="symbols",
            obtained="ours are in docs/notation.md",
            verdict=NOTHING,
        ),
        Line(
            "Figure 1",
            "hierarchical fig-1",
            _size(reuse),
            "the error falls as μ grows",
            f"exactly, μ = 2 has {span(growth, '{:.0%}'.format)} more error than μ = 1, μ = 5 "
            f"{span(beyond, '{:.0%}'.format)} more",
            "5.4 to 8.99 times the least budget",
            f"likelihood: {span(likely, '{:.2f}'.format)} of the error",
            "No: reuse adds noise" if min(growth) > 0 else "Not at every budget",
        ),
        _means(means, results("hierarchical", "fig-2-size")),
        _regression(fit),
    ]


def _errors(row: dict[str, Any]) -> list[float]:
    return [cell for name, cell in row.items() if name.startswith(("MAE", "MSE"))]


def _size(found: Found, left_out: str = "") -> str:
    users = found.setting["users"]
    fewer = f"{users:,} users of 1.52 million, " if users < 1_500_000 else ""
    return found.size(f"{fewer}{_DATA}{left_out}")


def _means(found: Found, computed: Found) -> Line:
    wins, total, ratio = _compared(found)
    more, pairs, _ = _compared(computed, "exponential")  # the paper does not say where they begin: the kinder place
    return Line(
        "Figure 2",
        "hierarchical fig-2",
        _size(found),
        "HierA is more accurate than Harmony, PM and graded Laplace",
        f"HierA has the smaller error in {wins} of {total} comparisons, of exponential values from -1 on; computed at "
        f"{computed.setting['users']:,} users, of those from 0 on, in {more} of {pairs}",
        "LHP's matrix, up to 8.99 e; graded Laplace none",
        f"OptimalGraded: {span(ratio, '{:.2f}'.format)} of HierA's error",
        "Yes, at a weaker promise" if more == pairs else "Mostly, at weaker promise",
    )


def _compared(found: Found, without: str = "") -> tuple[int, int, list[float]]:
    """Return in how many comparisons HierA wins, of how many, and ours over it; ``without`` one of the data sets."""
    rows = {(row["data"], row["column"], row["method"]): _errors(row) for row in found.rows}
    data = dict.fromkeys(row["data"] for row in found.rows if row["data"] != without)
    wins = total = 0
    for own in data:
        for other in ("Harmony", "PM", "graded Laplace"):
            pairs = zip(rows[own, "as published", "HierA, mu 2"], rows[own, "as published", other], strict=True)
            won = [a < b for a, b in pairs]
            wins, total = wins + sum(won), total + len(won)
    ratio = [
        a / b
        for own in data
        for a, b in zip(
            rows[own, "same matrix", "ours: OptimalGraded"], rows[own, "as published", "HierA, mu 2"], strict=True
        )
    ]
    return wins, total, ratio


def _regression(found: Found) -> Line:
    rows = {(row["column"], row["method"]): _errors(row) for row in found.rows}
    hiera = next(name for column, name in rows if column == "published" and name.startswith(("HierA, mu 2", "LHP")))
    own = rows["published", hiera]
    wins = [
        sum(a < b for a, b in zip(own, rows["published", other], strict=True))
        for other in ("Harmony", "PM", "graded Laplace")
    ]
    ours = rows["same matrix", "ours: auto"]
    return Line(
        "Figure 3",
        "hierarchical fig-3",
        _size(found, "; no Brazil"),
        "HierA predicts better than Harmony, PM and graded Laplace",
        f"{hiera}: MSE {' / '.join(f'{mse:.3g}' for mse in own)}; below them at {wins[0]}, {wins[1]} and {wins[2]} of "
        f"{len(own)} budgets",
        "LHP's matrix; graded Laplace none",
        f"auto: MSE {' / '.join(f'{mse:.3g}' for mse in ours)}",
        "Yes, at a weaker promise" if min(wins) >= len(own) - 1 else "Not at every budget",
    )
