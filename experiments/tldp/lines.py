"""The lines of Yuan et al. 2025 on the page of all papers: its figures and tables."""

from __future__ import annotations

from experiments.page import NOTHING, Found, Line, Results, span

_SIZE = (
    "3,000 public, 2,000 training, 1,000 test images, a small network for MobileNet, one seed; Fashion-MNIST for SVHN"
)


def lines(results: Results) -> list[Line]:
    """Return the lines."""
    table, equal = results("tldp", "table-5"), results("tldp", "equal-unit")
    kinds = [results("tldp", f"type-{number}") for number in (1, 2, 3)]
    best = equal.where(unit="record", epsilon=1.0)[0]
    return [
        Line(
            "Table 1",
            setting="notation",
            claimed="symbols",
            obtained="ours are in docs/notation.md",
            verdict=NOTHING,
        ),
        Line(
            "Table 2",
            "tldp type-1",
            kinds[0].size(_SIZE),
            "settings of Figure 1",
            "used as far as named",
            verdict="Setting, see Figure 1",
        ),
        Line(
            "Table 3",
            "tldp type-2",
            kinds[1].size(_SIZE),
            "settings of Figure 2",
            "used as far as named",
            verdict="Setting, see Figure 2",
        ),
        Line(
            "Table 4",
            "tldp type-3",
            kinds[2].size("3 users of 300 examples, 3 rounds, one seed"),
            "settings of Figure 3",
            "used as far as named",
            verdict="Setting, see Figure 3",
        ),
        Line(
            "Table 5",
            "tldp table-5",
            table.size(),
            "TLDP's error is 1/I of the others or less, I = 784",
            _errors(table),
            "Laplace for a record, TLDP for an entry",
            f"record, ε = 1: {best['mechanism']} has the least squared error an entry, {best['formula']:.3g}",
            "True of unlike units",
        ),
        _figure(
            "Figure 1", "tldp type-1", kinds[0], _SIZE, "TLDP 90 % on MNIST and SVHN, 70 % on CIFAR-10; others stay low"
        ),
        _figure(
            "Figure 2", "tldp type-2", kinds[1], _SIZE, "TLDP 80 % on MNIST, 40 % on CIFAR-10 and SVHN; others fail"
        ),
        _figure(
            "Figure 3",
            "tldp type-3",
            kinds[2],
            "3 users of 300 examples, 3 rounds, one seed; Fashion-MNIST for SVHN",
            "TLDP best at every ε; LLAGP near it on SVHN, IMDB, Darknet",
        ),
    ]


def _errors(table: Found) -> str:
    rows = {row["mechanism"]: row for row in table.where(claimed_epsilon=1.0)}
    return "; ".join(f"{name} {row['formula']:.4g} (printed {row['printed']:.4g})" for name, row in rows.items())


def _figure(item: str, where: str, found: Found, reduced: str, claimed: str) -> Line:
    """Return the line of a figure: TLDP-L's scores, what holds of it, and ours at that."""
    own = [row for row in found.rows if row["mechanism"] == "TLDP-L"]
    ours = [row for row in found.rows if row["mechanism"] == "ours at TLDP-L's truth"]
    scores = []
    for data in dict.fromkeys(row["data"] for row in own):
        scores.append(f"{data} {span([row['weighted F1'] for row in own if row['data'] == data], '{:.2f}'.format)}")
    ahead = sum(a["weighted F1"] > b["weighted F1"] for a, b in zip(ours, own, strict=True))
    return Line(
        item,
        where,
        found.size(reduced),
        claimed,
        "F1 of TLDP-L: " + ", ".join(scores),
        f"{span([row['true epsilon, record'] for row in own], '{:,.0f}'.format)} for a record",
        f"Gaussian noise above TLDP-L at {ahead} of {len(own)} points",
        "Scores yes, protection no",
    )
