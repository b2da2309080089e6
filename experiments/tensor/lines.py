"""The lines of Yang et al. 2021 on the page of all papers: its figures and tables."""

from __future__ import annotations

from math import log
from statistics import median

from experiments.page import NOTHING, Found, Line, Results, span

_MODELS = "a small VGG for VGG-16, a bag of words for BiLSTM; no SVHN"
_TRAINED = {"MNIST": 55_000, "Credit": 199_364, "Adult": 32_561}  # examples in Table II of the paper
_RIVALS = ("Gaussian", "UDN", "MVG")  # in the order that the paper has behind IDN


def lines(results: Results) -> list[Line]:
    """Return the lines."""
    errors, descent, ctg = (results("tensor", name) for name in ("table-iv", "type-1", "ctg"))
    kinds = {number: results("tensor", f"type-{number}") for number in (2, 3)}
    largest = max(row["I"] for row in errors.rows)
    times = {row["mechanism"]: row["times ours"] for row in errors.where(I=largest)}
    slopes = _slopes(errors)
    ours = slopes.pop("ours, batch")
    fewer = {name: count for name, count in descent.setting["examples"].items() if count < _TRAINED[name]}
    examples = ", ".join(f"{name} {count:,} of {_TRAINED[name]:,}" for name, count in fewer.items())
    learned = descent.one("mean score", data="MNIST", mechanism="no noise")
    examples += f" examples, with which MNIST ends at {learned:.2f} without noise; LeNet-5 for a larger LeNet"
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
            "see Figure 3",
            "settings of Figure 3",
            "used as said",
            verdict="Setting, see Figure 3",
        ),
        Line(
            "Table III",
            "tensor type-2",
            "see Figures 4 and 5",
            "settings of Figures 4 and 5",
            "used as said",
            verdict="Setting, see Figures 4, 5",
        ),
        Line(
            "Table IV",
            "tensor table-iv",
            errors.size(),
            "E|Z|²: Gaussian and IDN I³, UDN I_1 I³, MVG ln² more, Optimized I²",
            "as I to the power " + ", ".join(f"{name} {slope:.2f}" for name, slope in slopes.items()),
            "(1, 1e-5) for all but Optimized as printed",
            f"as I to the power {ours:.2f}; at I = {largest:,} Gaussian has {times['Gaussian']:,.0f} and IDN "
            f"{times['IDN']:,.0f} times as much",
            "Orders yes, MVG's excepted" if slopes["MVG"] > 3.5 else "Orders yes, noise needless",
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
        _descent(descent, examples, learned),
        _features(
            "Figure 4",
            kinds[2],
            _features_size(kinds[2]),
            "IDN best overall, above Gaussian where ε is small; UDN and MVG worse; MM on IMDB like UDN",
        ),
        _features(
            "Figure 5",
            kinds[3],
            _features_size(kinds[3]),
            "IDN best, then Gaussian on images; UDN worse, no worse than MVG; MM on IMDB below IDN, like it at large ε",
        ),
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
            _covariance(ctg),
        ),
    ]


def _slopes(found: Found) -> dict[str, float]:
    """Return with which power of the number of entries the error of each mechanism grows, between the ends."""
    ends = [{row["mechanism"]: row["formula"] for row in found.where(I=size)} for size in _ends(found)]
    first, last = _ends(found)
    return {name: log(ends[1][name] / ends[0][name]) / log(last / first) for name in ends[0]}


def _ends(found: Found) -> tuple[int, int]:
    sizes = [row["I"] for row in found.rows]
    return min(sizes), max(sizes)


def _covariance(found: Found) -> str:
    """Say whether IDN and UDN are better than JL, as its authors print it, and MM at every epsilon."""
    by = {(row["mechanism"], row["claimed epsilon"]): row["mean RSS"] for row in found.rows}
    claims = [e for mechanism, e in by if mechanism == "IDN"]
    behind = [sum(by[own, e] < by[other, e] for e in claims) for own in ("IDN", "UDN") for other in ("JL", "MM")]
    if all(count == len(claims) for count in behind):
        return "True of JL as published"
    return "IDN yes; UDN not always" if behind[:2] == [len(claims)] * 2 else "Not at every epsilon"


def _descent(found: Found, examples: str, learned: float) -> Line:
    by = {(row["data"], row["mechanism"], row["claimed epsilon"]): row for row in found.rows}
    points = [(data, e) for data, name, e in by if name == "IDN"]
    near: dict[str, list[float]] = {}  # how far IDN is below Optimized
    for data, e in points:
        near.setdefault(data, []).append(by[data, "Optimized", e]["mean score"] - by[data, "IDN", e]["mean score"])
    ahead = sum(by[d, "ours at IDN's truth", e]["mean score"] > by[d, "IDN", e]["mean score"] for d, e in points)
    pairs = [(first, other) for first in ("IDN", "UDN") for other in ("MVG", "MM")]
    apart = [
        by[d, first, e]["mean score"] - by[d, other, e]["mean score"]
        for d, e in points
        for first, other in [("IDN", "UDN"), *pairs]
        if (d, other, e) in by
    ]
    ordered, turned = (sum(sign * gap > _ALIKE for gap in apart) for sign in (1, -1))
    close = [data for data, own in near.items() if median(own) <= _CLOSE]
    verdict = "close" if len(close) == len(near) else f"close on {' and '.join(close)}" if close else "IDN not close"
    if learned < _LEARNED:  # more images would let IDN come nearer to Optimized
        verdict = "MNIST too small"
    return Line(
        "Figure 3",
        "tensor type-1",
        found.size(examples),
        "IDN is close to Optimized; UDN slightly worse; both beat MM and MVG",
        f"IDN is below Optimized by {', '.join(f'{data} {span(own, _TWO)}' for data, own in near.items())}; of "
        f"{len(apart)} comparisons of IDN, UDN, MM and MVG {ordered} have the claimed order, {turned} the other, "
        f"{len(apart) - ordered - turned} are within {_ALIKE:g}",
        f"IDN {span([by[d, 'IDN', e]['true epsilon'] for d, e in points])}",
        f"above IDN at {ahead} of {len(points)} points",
        f"Order {'mostly' if turned else 'yes'}; {verdict}",
    )


def _features_size(found: Found) -> str:
    """Say of what Types II and III have how much."""
    sizes = found.setting["public, training, test people"]
    if not isinstance(sizes, dict):  # the same of each data set
        public, train, test = sizes
        return f"{public:,} public, {train:,} training, {test:,} test people, one seed; {_MODELS}"
    if found.study["name"] == "type-3":
        return _MODELS
    private = ", ".join(f"{data} {train:,}" for data, (_, train, _) in sizes.items())
    return f"private: {private}, the rest public; {_MODELS}"


def _features(item: str, found: Found, reduced: str, claimed: str) -> Line:
    by = {(row["data"], row["mechanism"], row["claimed epsilon"]): row["accuracy"] for row in found.rows}
    points = [(data, e) for data, mechanism, e in by if mechanism == "IDN"]
    clean = {data: by[data, "no noise", None] for data, _ in points}
    best = {data: max(by[data, "IDN", e] for own, e in points if own == data) for data in clean}
    worse = {name: sum(by[d, "IDN", e] > by[d, name, e] + _ALIKE for d, e in points) for name in _RIVALS}
    above = {name: sum(by[d, name, e] > by[d, "IDN", e] + _ALIKE for d, e in points) for name in _RIVALS}
    ahead = sum(by[d, "ours, batch", e] >= by[d, "IDN", e] - _ALIKE for d, e in points)
    idn = [row["true epsilon, batch"] for row in found.where(mechanism="IDN")]
    largest = max(e for _, e in points)
    matrix = found.where(data="IMDB", mechanism="MM", claimed_epsilon=largest)[0]
    true = matrix["true epsilon, batch"]
    beside = f"; there MM has {matrix['accuracy']:.2f} on IMDB, UDN {by['IMDB', 'UDN', largest]:.2f}"
    beside += f", MM at a true ε of {true:,.0f}" if true > largest else ""
    least = min(e for _, e in points)
    return Line(
        item,
        f"tensor {found.study['name']}",
        found.size(reduced),
        claimed,
        f"of {len(points)} points IDN is above / below by {_ALIKE:g} or more: "
        + ", ".join(f"{name} {worse[name]} / {above[name]}" for name in _RIVALS)
        + "; at the largest ε IDN has "
        + ", ".join(f"{data} {best[data]:.2f} of {clean[data]:.2f}" for data in clean)
        + beside
        + f"; with the sensitivity that Theorem 3 prints, which does not hold, at ε = {least:g} "
        + ", ".join(f"{data} {by[data, 'IDN as printed', least]:.2f}" for data in clean),
        f"IDN {span(idn)} for a batch",
        f"within {_ALIKE:g} of IDN or above at {ahead} of {len(points)} points, at the ε that IDN claims",
        "Order yes, at large epsilon" if not any(above.values()) else "Order mostly, at large epsilon",
    )


_TWO = "{:.2f}".format
_ALIKE = 0.02  # accuracies that are nearer count as alike
_LEARNED = 0.95  # of MNIST's test images: a network without noise that has less was given too little
_CLOSE = 0.05  # up to this distance IDN counts as close to Optimized
