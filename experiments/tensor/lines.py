"""The lines of Yang et al. 2021 on the page of all papers: its figures and tables."""

from __future__ import annotations

from experiments.page import NOTHING, Found, Line, Results, span

_FEATURES = "10,000 public, 10,240 training, 2,048 test people, small networks, one seed; no SVHN"


def lines(results: Results) -> list[Line]:
    """Return the lines."""
    errors, descent, ctg = (results("tensor", name) for name in ("table-iv", "type-1", "ctg"))
    kinds = {number: results("tensor", f"type-{number}") for number in (2, 3)}
    largest = max(row["I"] for row in errors.rows)
    times = {row["mechanism"]: row["times ours"] for row in errors.where(I=largest)}
    examples = ", ".join(f"{name} {count:,}" for name, count in descent.setting["examples"].items())
    return [
        Line(
            "Table I",
            setting="notation",
            claimed="symbols",
            obtained="ours are in docs/notation.md",
            verdict=NOTHING,
        ),
        Line(
            "Table II",
            "tensor type-1",
            descent.size(f"examples: {examples}"),
            "settings of Figure 3",
            "used, smaller",
            verdict="Setting, see Figure 3",
        ),
        Line(
            "Table III",
            "tensor type-2",
            kinds[2].size(_FEATURES),
            "settings of Figures 4 and 5",
            "used, smaller",
            verdict="Setting, see Figures 4, 5",
        ),
        Line(
            "Table IV",
            "tensor table-iv",
            errors.size(),
            "E|Z|²: Gaussian and IDN I³, UDN I_1 I³, MVG ln² more, Optimized I²",
            f"I = {largest:,}, times ours: "
            + ", ".join(f"{name} {value:,.0f}" for name, value in times.items() if not name.startswith("ours")),
            "(1, 1e-5) for all but Optimized as printed",
            "1, grows with I²",
            "Orders yes, noise needless",
        ),
        Line(
            "Figure 1",
            setting="diagram",
            claimed="reshaping a tensor",
            obtained="see Corollary 1",
            verdict=NOTHING,
        ),
        Line(
            "Figure 2",
            setting="diagram",
            claimed="noise along one mode",
            obtained="see Theorem 2",
            verdict=NOTHING,
        ),
        _descent(descent, examples),
        _features("Figure 4", 2, kinds[2]),
        _features("Figure 5", 3, kinds[3]),
        Line(
            "Figure 5, CTG",
            "tensor ctg",
            ctg.size(),
            "IDN and UDN beat JL and MM at every ε",
            "RSS at ε = 1: "
            + ", ".join(
                f"{row['mechanism']} {row['mean RSS']:.3g}"
                for row in ctg.where(claimed_epsilon=1.0)
                if not row["mechanism"].startswith("ours")
            ),
            f"IDN {ctg.one('true epsilon', mechanism='IDN', claimed_epsilon=1.0):.3g}",
            f"{ctg.one('mean RSS', mechanism='ours', claimed_epsilon=1.0):.3g} at ε = 1",
            "Better than MM, not JL",
        ),
    ]


def _descent(found: Found, examples: str) -> Line:
    by = {(row["data"], row["mechanism"], row["claimed epsilon"]): row for row in found.rows}
    points = [(data, e) for data, name, e in by if name == "IDN"]
    near = [by[data, "Optimized", e]["mean score"] - by[data, "IDN", e]["mean score"] for data, e in points]
    ahead = sum(by[d, "ours at IDN's truth", e]["mean score"] > by[d, "IDN", e]["mean score"] for d, e in points)
    return Line(
        "Figure 3",
        "tensor type-1",
        found.size(f"examples: {examples}"),
        "IDN is close to Optimized; UDN slightly worse; both beat MM and MVG",
        f"IDN is {span(near, '{:.2f}'.format)} below Optimized",
        f"IDN {span([by[d, 'IDN', e]['true epsilon'] for d, e in points])}",
        f"above IDN at {ahead} of {len(points)} points",
        "No: IDN is far behind",
    )


def _features(item: str, kind: int, found: Found) -> Line:
    idn = [row for row in found.rows if row["mechanism"] == "IDN"]
    ours = [row for row in found.rows if row["mechanism"] == "ours, batch"]
    ahead = sum(a["accuracy"] >= b["accuracy"] for a, b in zip(ours, idn, strict=True))
    clean = {row["data"]: row["accuracy"] for row in found.rows if row["mechanism"] == "no noise"}
    best = {data: max(row["accuracy"] for row in idn if row["data"] == data) for data in clean}
    return Line(
        item,
        f"tensor type-{kind}",
        found.size(_FEATURES),
        "IDN is best, then Gaussian; useful at small ε",
        "IDN at the largest ε: " + ", ".join(f"{data} {best[data]:.2f} of {clean[data]:.2f}" for data in clean),
        f"IDN {span([row['true epsilon, batch'] for row in idn])} for a batch",
        f"not below IDN at {ahead} of {len(idn)} points, same claimed ε",
        "Order yes, at large epsilon",
    )
