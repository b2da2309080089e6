"""The lines of chapter 5 of Duan 2024 on the page of all papers: its figures and tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments.geodp.training import NO_NOISE
from experiments.page import NOTHING, Found, Line, Results, percent, span

_SELDOM = "Seldom, even at equal σ"
_WAYS = {"printed": "as printed", "around π/2": "around π/2", "unclipped": "no angle clipped", "sound": "sound"}


def lines(results: Results) -> list[Line]:
    """Return the lines."""
    errors, factor, logistic, cnn, residual, attack = (
        results("geodp", name) for name in ("fig-5-3", "fig-5-4", "fig-5-5", "table-5-2", "table-5-3", "table-5-4")
    )
    return [
        Line("Table 5.1", "", "notation", "symbols", "ours are in docs/notation.md", verdict=NOTHING),
        _errors("Figure 5.1", errors, "GeoDP keeps directions better, DP gradients", _most(errors)),
        _errors(
            "Figure 5.3",
            errors,
            "GeoDP keeps directions better at most points; with a small β gradients too",
            _most(errors),
        ),
        _errors("Figure 5.4", factor, "some β makes GeoDP better in both", _always(factor)),
        _logistic(logistic),
        _accuracies(
            "Table 5.2",
            cnn,
            _cells(cnn),
            "GeoDP beats DP: 98.04 against 95.52 % at σ = 1, B = 16,384, 90.31 against 87.93 % at σ = 10, B = 8,192",
            _beaten(cnn),
            (10.0, 1.0),
        ),
        _accuracies(
            "Table 5.3",
            residual,
            "half an epoch of half-size images, B = 64",
            "GeoDP beats DP: 65.47 against 60.12 % at σ = 0.1",
            "Too small to judge",
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
        f"%, with 95 % intervals: {original} on the original, {plain} on DP",
        f"GeoDP {span(held)}",
        f"plain DP-SGD at that ε: {percent(best)} accuracy",
        "DP yes; GeoDP untrained, unjudged",
    )


def _most(found: Found) -> str:
    """Say whether GeoDP on its kindest reading, no angle clipped, at the same σ keeps most directions better."""
    rows = found.rows
    least = [row for row in rows if row["β"] == min(row["β"] for row in rows)]
    overall, narrow = (
        2 * sum(row["unclipped angle"] < row["DP angle"] for row in own) > len(own) for own in (rows, least)
    )
    return "At one σ, range known" if overall else "At small β, range known" if narrow else _SELDOM


def _always(found: Found) -> str:
    """Say whether in every panel some β makes GeoDP, on its kindest reading, better in direction and gradient."""
    best: dict[tuple[Any, Any], bool] = {}
    for row in found.rows:
        better = all(row[f"unclipped {kind}"] < row[f"DP {kind}"] for kind in ("angle", "gradient"))
        best[row["d"], row["B"]] = best.get((row["d"], row["B"]), False) or better
    return "At some β, range known" if all(best.values()) else "Not always; unlike guarantees"


def _beaten(found: Found) -> str:
    """Say of Table 5.2 whether GeoDP, range around π/2, beats DP, and where too little was learned without noise."""
    best = {
        (kind, sigma): max(
            row["obtained, %"] for row in found.rows if row["method"].startswith(kind) and row["σ"] == sigma
        )
        for kind in ("DP", "GeoDP, range")
        for sigma in (1, 10)
    }
    worse = best["GeoDP, range", 10] < best["DP", 10] - 5
    ceiling = max(row["plain DP-SGD at that ε, %"] for row in found.rows if row["ε that holds"] > NO_NOISE)
    low = "unjudged" if ceiling < 99.11 - 1 else "ahead" if best["GeoDP, range", 1] > best["DP", 1] + 1 else "level"
    return f"{'Worse' if worse else 'Level'} at σ=10; σ=1 {low}"


def _cells(found: Found) -> str:
    """Say how many cells of Table 5.2 have been run, and how often."""
    cells = len({row["thesis at this σ/B, %"] for row in found.rows} - {None})
    return f"{cells} of 14 cells, {span([row['runs'] for row in found.rows], '{:d}'.format)} of 100 repeats"


def _repeats(found: Found) -> str:
    """Say how often, on how many gradients, and what the thesis leaves open."""
    repeats, said = found.setting["repeats"], []
    if repeats < 100:
        said.append(f"{repeats} of 100 repeats")
    if "images" in found.setting:
        said.append(f"gradients of {found.setting['images']:,} images for 450,000")
    if "chosen by us" in found.setting:
        said.append("panels' d, B and σ chosen by us")
    return "; ".join(said)


def _errors(item: str, found: Found, claimed: str, verdict: str) -> Line:
    rows = found.rows
    counts = {
        kind: [sum(row[f"{way} {kind}"] < row[f"DP {kind}"] for row in rows) for way in _WAYS]
        for kind in ("angle", "gradient")
    }
    narrow = [row for row in rows if row["β"] == min(row["β"] for row in rows)]
    ahead = sum(row["unclipped angle"] < row["DP angle"] for row in narrow)
    return Line(
        item,
        f"geodp {found.study['name']}",
        found.size(_repeats(found)),
        claimed,
        f"points of {len(rows)} where GeoDP is better ({', '.join(_WAYS.values())}): direction "
        f"{', '.join(map(str, counts['angle']))}; gradient {', '.join(map(str, counts['gradient']))}; direction, no "
        f"angle clipped, β = {narrow[0]['β']:g}: {ahead} of {len(narrow)}",
        f"printed {span([row['ε that holds as printed'] for row in rows])}",
        "plain Gaussian noise is DP's row",
        verdict,
    )


def _logistic(found: Found) -> Line:
    rows = [row for row in found.rows if row["method"].startswith("GeoDP") and "sound" not in row["method"]]
    worse = sum(row["plain DP-SGD at that ε, loss"] <= row["test loss"] for row in rows)
    same = {(row["panel"], row["σ"], row["B"]): row["test loss"] for row in found.where(method="DP")}
    ahead = sum(row["test loss"] < same[row["panel"], row["σ"], row["B"]] for row in rows)
    return Line(
        "Figure 5.5",
        "geodp fig-5-5",
        found.size("test loss for training loss; panels' σ chosen by us"),
        "GeoDP almost reaches training without noise, DP stays behind",
        f"unsound forms end at {span([row['test loss'] for row in rows])}, below DP of the same σ in {ahead} of "
        f"{len(rows)} settings; DP ends at {span(list(same.values()))}, no noise at "
        f"{found.one('test loss', method='no noise'):.3f}",
        span([row["ε that holds"] for row in rows]),
        f"plain DP-SGD no worse in {worse} of {len(rows)}",
        "At one σ, unlike guarantees" if 2 * ahead > len(rows) else _SELDOM,
    )


def _accuracies(
    item: str, found: Found, reduced: str, claimed: str, verdict: str, sigmas: Sequence[float] = ()
) -> Line:
    """Return the line of a table of accuracies; ``sigmas`` tells its noise multipliers apart."""

    def best(wanted: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
        return max((row for row in rows if row["method"].startswith(wanted)), key=lambda row: row["obtained, %"])

    said = []
    for rows, where in [(found.where(σ=sigma), f"σ = {sigma:g}: ") for sigma in sigmas] or [(found.rows, "")]:
        plain, printed, kind = (best(way, rows) for way in ("DP", "GeoDP as printed", "GeoDP, range around"))
        scores = [percent(row["obtained, %"]) for row in (plain, printed, kind)]
        said.append("{}DP {}, GeoDP as printed {}, around π/2 {}".format(where, *scores))
    return Line(
        item,
        f"geodp {found.study['name']}",
        found.size(reduced),
        claimed,
        f"the best of each: {'; '.join(said)}",
        f"{kind['ε that holds']:,.0f} for that row ({kind['ε claimed']:,.3g} claimed)",
        f"plain DP-SGD there: {percent(kind['plain DP-SGD at that ε, %'])}",
        verdict,
    )
