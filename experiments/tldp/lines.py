"""The lines of Yuan et al. 2025 on the page of all papers: its figures and tables."""

from __future__ import annotations

from experiments.page import NOTHING, Found, Line, Results, span

_SIZE = (
    "2,000 training, 1,000 test images, a small network for MobileNet, one seed; Fashion-MNIST for SVHN; ε from 1 on, "
    "where the paper begins lower"
)
_USERS = "3 users of 300 examples, 3 rounds, one seed; Fashion-MNIST for SVHN"
_RIVALS = ("Laplace", "Gaussian", "MVG", "IDN")


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
            "see Figure 1",
            "settings of Figure 1",
            "used as far as named",
            verdict="Setting, see Figure 1",
        ),
        Line(
            "Table 3",
            "tldp type-2",
            "see Figure 2",
            "settings of Figure 2",
            "used as far as named",
            verdict="Setting, see Figure 2",
        ),
        Line(
            "Table 4",
            "tldp type-3",
            "see Figure 3",
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
            "Figure 1",
            kinds[0],
            _SIZE,
            "TLDP 90 % on MNIST and SVHN below ε = 1, 70 % on CIFAR-10; others stay low",
            _order(kinds[0]),
        ),
        _figure(
            "Figure 2",
            kinds[1],
            _whole(kinds[1]),
            "TLDP 80 % on MNIST, 40 % on CIFAR-10 and SVHN; others fail",
            _levels(kinds[1], {"MNIST": 0.8, "CIFAR-10": 0.4}),
        ),
        _figure(
            "Figure 3",
            kinds[2],
            _USERS,
            "TLDP best overall, from ε = 100 on; LLAGP near it on SVHN, IMDB, Darknet, DPHSGD on Darknet",
            _order(kinds[2]),
        ),
    ]


def _whole(found: Found) -> str:
    """Say of what Type II has how much."""
    sizes = found.setting["public, training, test images"]
    private = ", ".join(f"{data} {train:,} of {public + train:,}" for data, (public, train, _) in sizes.items())
    return (
        f"training images private: {private}, the rest public; a small MobileNet with {found.setting['features']} "
        "features, which learned from the public ones, for 1,280 from ImageNet; Fashion-MNIST for SVHN"
    )


def _levels(found: Found, claimed: dict[str, float]) -> str:
    """Say whether TLDP reaches the scores that the paper has."""
    best = {data: max(row["weighted F1"] for row in found.where(data=data, mechanism="TLDP-L")) for data in claimed}
    rivals = {
        data: max(row["weighted F1"] for row in found.where(data=data) if row["mechanism"] in _RIVALS)
        for data in claimed
    }
    if any(best[data] < level for data, level in claimed.items()):
        return _order(found)
    near = all(rivals[data] > 0.9 * best[data] for data in claimed)
    return "Levels passed; others catch up" if near else "Levels passed; a record unprotected"


def _order(found: Found) -> str:
    """Say whether TLDP-L is above its rivals at every point, of a study that is too small for the paper's levels."""
    by = {(row["data"], row["mechanism"], row["claimed epsilon"]): row["weighted F1"] for row in found.rows}
    points = [(data, e) for data, mechanism, e in by if mechanism == "TLDP-L"]
    above = [by[data, "TLDP-L", e] > max(by[data, other, e] for other in _RIVALS) for data, e in points]
    return "Order yes; levels too small" if all(above) else "Order mostly; levels too small"


def _errors(table: Found) -> str:
    rows = {row["mechanism"]: row for row in table.where(claimed_epsilon=1.0)}
    return "; ".join(f"{name} {row['formula']:.4g} (printed {row['printed']:.4g})" for name, row in rows.items())


def _figure(item: str, found: Found, reduced: str, claimed: str, verdict: str) -> Line:
    """Return the line of a figure: scores of TLDP-L and of its rivals, what holds of it, and ours at that."""
    own, records, entries = (
        [row for row in found.rows if row["mechanism"] == mechanism]
        for mechanism in ("TLDP-L", "ours at TLDP-L's truth", "ours, element")
    )
    rivals = [row for row in found.rows if row["mechanism"] in _RIVALS]
    claims = sorted({row["claimed epsilon"] for row in own})
    ends = claims[0], claims[-1]
    scores, others = [], []
    for data in dict.fromkeys(row["data"] for row in own):
        clean = found.one("weighted F1", data=data, mechanism="no noise")
        told = span([row["weighted F1"] for row in own if row["data"] == data], _TWO)
        scores.append(f"{data} {told} ({clean:.2f})")
        best = [
            max(row["weighted F1"] for row in rivals if (row["data"], row["claimed epsilon"]) == (data, e))
            for e in ends
        ]
        others.append(f"{data} {best[0]:.2f}, {best[1]:.2f}")
    private = [row for row in found.rows if row["mechanism"] in ("LLAGP", "DPHSGD")]
    said = [
        f"F1 of TLDP-L (no noise), ε {ends[0]:g} to {ends[1]:,.0f}: {', '.join(scores)}",
        f"best of Laplace, Gaussian, MVG, IDN at these two: {'; '.join(others)}",
    ]
    if private:
        most = max(row["claimed epsilon"] for row in private)
        last = [row for row in private if row["claimed epsilon"] == most]
        pairs = {row["data"]: [own["weighted F1"] for own in last if own["data"] == row["data"]] for row in last}
        told = ", ".join(f"{data} {' / '.join(map(_TWO, pair))}" for data, pair in pairs.items())
        said.append(f"LLAGP / DPHSGD at ε {most:g}: {told}")
    ahead = [
        sum(a["weighted F1"] > b["weighted F1"] for a, b in zip(better, own, strict=True))
        for better in (records, entries)
    ]
    true = [
        span([row[f"true epsilon, {unit}"] for row in own], form)
        for unit, form in (("record", "{:,.0f}".format), ("entry", "{:,.3g}".format))
    ]
    return Line(
        item,
        f"tldp {found.study['name']}",
        found.size(reduced),
        claimed,
        "; ".join(said),
        f"record {true[0]}; entry {true[1]}",
        f"above TLDP-L at {ahead[0]} of {len(own)} points for a record, {ahead[1]} for an entry",
        verdict,
    )


_TWO = "{:.2f}".format
