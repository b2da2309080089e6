"""How near audits come to the truth: ours beside two known ones, at equal samples; power and false alarms as figures.

python benchmarks/audit.py             all of it, four minutes of one core; writes docs/auditing.md's table and figures
python benchmarks/audit.py --small     what the tests run: prints the table, writes nothing

The two others are written here from their papers. DP-Sniper (Bichsel, Steffen, Bogunovic, Vechev 2021) trains a
logistic regression on half of the samples and takes the event of the largest scores that has probability 0.01 under the
other input. LDP-Auditor (Arcolezi, Gambs 2024) guesses the category behind a report as an adversary who knows the
mechanism would; the event is that the guess is the first input. Both bound epsilon by a Clopper-Pearson limit of each
rate. All three get the same inputs, as many reports and the same confidence.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from scipy.special import expit

import noisette as nz
from noisette.auditing.features import table
from noisette.auditing.intervals import rate_above, rate_below

DOCS = Path(__file__).resolve().parent.parent / "docs"
CONFIDENCE = 0.999
RARE = 0.01  # probability of DP-Sniper's event under the other input
SMALL, LARGE = 8, 100  # categories


@dataclass(frozen=True)
class Row:
    """Mean share of the exact epsilon that each audit showed; NaN where an audit does not apply."""

    mechanism: str
    epsilon: float
    samples: int
    ours: float
    sniper: float
    guess: float

    @property
    def ahead(self) -> bool:
        """Whether ours is at least as tight as both others."""
        return self.ours >= np.nanmax([self.sniper, self.guess])


def numbers(epsilon: float) -> list[Any]:
    """Return mechanisms for numbers."""
    return [cls(epsilon) for cls in (nz.Duchi, nz.Piecewise, nz.Hybrid, nz.Laplace, nz.Staircase)]


def categories(epsilon: float, size: int) -> list[Any]:
    """Return mechanisms for so many categories."""
    frequencies = (
        nz.GeneralizedRandomizedResponse,
        nz.SymmetricUnaryEncoding,
        nz.UnaryEncoding,
        nz.LocalHashing,
        nz.SubsetSelection,
    )
    return [cls(epsilon, nz.Categorical(size)) for cls in frequencies]


def reports(mechanism: Any, x: Any, size: int, rng: np.random.Generator) -> np.ndarray:
    """Draw reports; of local hashing what they support, which all audits may look at."""
    drawn = mechanism.privatize(np.full(size, x), rng=rng)
    return mechanism.readable(drawn, np.arange(mechanism.domain.size)) if mechanism.kind == "frequency" else drawn


def sniper(mechanism: Any, samples: int, seed: int) -> float:
    """Return DP-Sniper's bound: the better of both directions, each at half of what the confidence leaves."""
    rng = np.random.default_rng(seed)
    inputs = mechanism.witnesses()[0]
    pair, half = (inputs[0], inputs[-1] if mechanism.kind == "mean" else inputs[1]), samples // 2
    learn = [table(reports(mechanism, x, half, rng)) for x in pair]
    check = [table(reports(mechanism, x, samples - half, rng)) for x in pair]
    bounds = []
    for first, second in ((0, 1), (1, 0)):
        score = logistic(learn[first], learn[second])
        level, share = threshold(score(learn[second]))

        def hits(rows: np.ndarray, score: Any = score, level: float = level, share: float = share) -> int:
            scores = score(rows)
            ties = (scores == level) & (rng.random(scores.size) < share)
            return int(((scores > level) | ties).sum())

        counts = hits(check[first]), hits(check[second])
        bounds.append(clopper_pearson(*counts, samples - half, (1 + CONFIDENCE) / 2))
    return max(bounds)


def clopper_pearson(hits: int, others: int, size: int, confidence: float) -> float:
    """Return ln(p / q) for a lower limit of p and an upper one of q, each at half of the risk."""
    share = (1 - confidence) / 2
    low, high = float(rate_below(hits, size, share)), float(rate_above(others, size, share))
    return max(float(np.log(low / high)), 0.0) if low > 0 else 0.0


def logistic(first: np.ndarray, second: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Fit the log odds of the first input as a linear function of the report, by Newton's method."""
    rows = np.concatenate([first, second])
    middle, scale = rows.mean(axis=0), rows.std(axis=0) + 1e-12

    def features(x: np.ndarray) -> np.ndarray:
        return np.column_stack([np.ones(len(x)), (x - middle) / scale])

    design, label = features(rows), np.repeat([1.0, 0.0], [len(first), len(second)])
    weight = np.zeros(design.shape[1])
    for _ in range(25):
        chance = expit(design @ weight)
        curvature = design.T @ (design * (chance * (1 - chance))[:, None]) + 1e-6 * np.eye(weight.size)
        change = np.linalg.solve(curvature, design.T @ (label - chance) - 1e-6 * weight)
        weight += change
        if np.abs(change).max() < 1e-6:
            break
    return lambda x: features(x) @ weight


def threshold(scores: np.ndarray) -> tuple[float, float]:
    """Return the score above which RARE of the scores lie, and the share of ties that makes it exactly that."""
    level = float(np.quantile(scores, 1 - RARE, method="inverted_cdf"))
    above, ties = float((scores > level).mean()), float((scores == level).mean())
    return level, (RARE - above) / ties


def guess(mechanism: Any, samples: int, seed: int) -> float:
    """Return LDP-Auditor's bound, NaN for numbers; it learns nothing, so all samples test."""
    if mechanism.kind != "frequency":
        return float("nan")
    rng = np.random.default_rng(seed)
    size = mechanism.domain.size
    hits = [int((attack(reports(mechanism, x, samples, rng), size, rng) == 0).sum()) for x in (0, 1)]
    return clopper_pearson(*hits, samples, CONFIDENCE)


def attack(drawn: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
    """Guess the category: the one reported, or any that the report supports, or any at all."""
    if drawn.ndim == 1:
        return drawn
    supported = drawn.astype(bool)
    if drawn.shape[1] != size:  # a set of categories
        supported = np.zeros((len(drawn), size), dtype=bool)
        np.put_along_axis(supported, drawn.astype(np.int64), True, axis=1)
    supported[~supported.any(axis=1)] = True
    return np.argmax(supported * rng.random(supported.shape), axis=1)


def ours(mechanism: Any, samples: int, seed: int) -> float:
    """Return the bound of nz.audit on the same inputs."""
    return nz.audit(mechanism, samples=samples, confidence=CONFIDENCE, rng=seed).lower_bound


def compare(samples: int, size: int, repeats: int, *, only_categories: bool = False) -> list[Row]:
    """Measure all three, the mean over some seeds."""
    rows = []
    for epsilon in (1.0, 3.0):
        for mechanism in [*([] if only_categories else numbers(epsilon)), *categories(epsilon, size)]:
            exact = nz.exact_epsilon(mechanism)
            shares = [
                float(np.mean([method(mechanism, samples, seed) for seed in range(repeats)])) / exact
                for method in (ours, sniper, guess)
            ]
            label = f"{mechanism.name}, {size} categories" if mechanism.kind == "frequency" else mechanism.name
            rows.append(Row(label, epsilon, samples, *shares))
    return rows


def markdown(rows: list[Row]) -> str:
    """Return the table."""
    lines = [
        "| mechanism | ε | reports about each input | nz.audit | DP-Sniper | LDP-Auditor |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        others = ("" if np.isnan(share) else f"{share:.3f}" for share in (row.sniper, row.guess))
        shown = " | ".join([f"{row.ours:.3f}", *others])
        lines.append(f"| {row.mechanism} | {row.epsilon:g} | {row.samples:,} | {shown} |")
    return "\n".join(lines)


def power_figure(path: Path, repeats: int) -> None:
    """Draw the share of epsilon shown against the number of samples."""
    from matplotlib.figure import Figure

    sizes = np.unique(np.geomspace(1000, 1_000_000, 7).astype(int))
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    for panel, epsilon in zip(figure.subplots(1, 2, sharey=True), (1.0, 3.0), strict=True):
        for mechanism in (
            nz.GeneralizedRandomizedResponse(epsilon, nz.Categorical(5)),
            nz.Duchi(epsilon),
            nz.Piecewise(epsilon),
            nz.Laplace(epsilon),
            nz.LocalHashing(epsilon, nz.Categorical(100)),
        ):
            shares = [np.mean([ours(mechanism, int(n), s) for s in range(repeats)]) / epsilon for n in sizes]
            panel.plot(sizes, shares, marker="o", markersize=3, label=mechanism.name)
        panel.axhline(0.85 if epsilon == 1 else 0.8, color="grey", linestyle=":", label="wanted at a million")
        panel.set(xscale="log", xlabel="reports about each input", title=f"ε = {epsilon:g}", ylim=(0, 1.02))
        panel.grid(alpha=0.3)
    figure.axes[0].set_ylabel("lower bound / exact ε, mean")
    figure.axes[1].legend(loc="lower right", fontsize="small")
    _save(figure, path)


def alarm_figure(path: Path, repeats: int) -> None:
    """Draw how often the bound is above the truth, with 95 % limits, against how often it may be."""
    from matplotlib.figure import Figure

    rates = np.asarray([0.01, 0.05, 0.1, 0.2, 0.5])
    figure = Figure(figsize=(5, 3.6), layout="constrained")
    panel = figure.subplots()
    panel.plot(rates, rates, color="grey", linestyle=":", label="allowed")
    for shift, mechanism in zip((0.96, 1.0, 1.04), (nz.Duchi(1.0), nz.Laplace(1.0), nz.Piecewise(3.0)), strict=True):
        exact = nz.exact_epsilon(mechanism)
        alarms = np.asarray(
            [
                sum(
                    nz.audit(mechanism, samples=1000, confidence=1 - rate, rng=seed).lower_bound > exact
                    for seed in range(repeats)
                )
                for rate in rates
            ]
        )
        share = alarms / repeats
        ends = rate_below(alarms, repeats, 0.025), rate_above(alarms, repeats, 0.025)
        panel.errorbar(
            rates * shift,  # side by side, to be read
            share,
            yerr=(share - ends[0], ends[1] - share),
            marker="o",
            markersize=3,
            capsize=2,
            linewidth=0.8,
            label=f"{mechanism.name}, ε = {mechanism.epsilon:g}",
        )
    panel.set(xlabel="1 - confidence", ylabel="share of lower bounds above the exact ε", xscale="log")
    panel.grid(alpha=0.3)
    panel.legend(fontsize="small")
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    import matplotlib

    matplotlib.rcParams["svg.hashsalt"] = "noisette"  # the same figure is the same file
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, format="svg", metadata={"Date": None})


def between(text: str, start: str, end: str, new: str) -> str:
    """Replace what stands between two marks of a page."""
    head, _, rest = text.partition(start)
    _, _, tail = rest.partition(end)
    return f"{head}{start}\n\n{new}\n\n{end}{tail}"


def main() -> None:
    """Measure, print, and write the documentation's part."""
    parser = argparse.ArgumentParser(description="How near audits come to the truth.")
    parser.add_argument("--small", action="store_true", help="few samples, one seed, nothing written")
    small = parser.parse_args().small
    repeats = 1 if small else 3
    rows = compare(20_000, SMALL, repeats)
    if not small:
        rows += compare(20_000, LARGE, repeats, only_categories=True) + compare(200_000, SMALL, repeats)
    print(markdown(rows))
    behind = [row for row in rows if not row.ahead]
    print(f"\nnz.audit is at least as tight in {len(rows) - len(behind)} of {len(rows)} rows.")
    for row in behind:
        print(f"behind: {row}")
    if not small:
        power_figure(DOCS / "figures" / "audit-power.svg", repeats)
        alarm_figure(DOCS / "figures" / "audit-alarms.svg", 200)
        guide = DOCS / "auditing.md"
        text = guide.read_text(encoding="utf-8")
        guide.write_text(between(text, "<!-- comparison -->", "<!-- end -->", markdown(rows)), encoding="utf-8")


if __name__ == "__main__":
    main()
