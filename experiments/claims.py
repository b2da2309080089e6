"""The page of claims: what was published of each method, what holds, and a theorem about errors that does not."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from noisette._validate import FloatArray
from noisette.auditing.claims import Finding, budget
from noisette.enhancement.hdr4me import l1
from noisette.mechanisms.categorical.memoised import published

_PERIODS = 30  # over which kept answers are linked
_HYPHENATED = {"soriacomas": "Soria-Comas"}  # authors whose name a key cannot spell
_SPREAD = 12  # standard errors to either side over which gains are averaged
_POINTS = 40_001
_TILTS = 100


def page(findings: Iterable[Finding]) -> str:
    """Return the table of claims as a page of the documentation."""
    rows = list(findings)
    first = rows[0]
    lines = [
        "# Claims",
        "",
        "What was published of each method, what holds exactly, and what an auditor who only sees reports can prove. "
        "`noisette audit --all --page docs/claims.md` writes this page, and `make docs` does so each time.",
        "",
        f"Each method stands on its example domain. The auditor saw {first.samples:,} reports about each input; its "
        f"lower bound is above the truth with probability {1 - first.confidence:.2g} at most. A bound far below is no "
        "flaw: with a δ, epsilon shows only in events too rare to be sampled. *Model* names the trust: local, where "
        "nobody but the device is trusted, or central, where whoever holds the data is. All of one record is "
        "protected, against any other that it might be, unless another unit or other neighbours are named. *Nothing* "
        "is published where the calibration is ours, and its source states no budget for it. Sources are read as "
        "printed, and where they leave a choice as [below](#how-the-papers-are-read).",
        "",
        "| method | source | model | published | holds exactly | found at least | verdict |",
        "| --- | --- | --- | ---: | ---: | ---: | --- |",
        *map(_row, rows),
        "",
        "What is violated is reached by `as_published=True`, or by naming a published calibration, only. Both warn; by "
        "default the method is mended.",
        "",
        "## How the papers are read",
        "",
        "A claim that fails as printed may hold in another reading, or under the trust that its authors ask for. Each "
        "is given its kindest reading here.",
        "",
    ]
    for row in (row for row in rows if row.reading):
        lines += [f"**{_named(row)}**, {_cited(row.source)}. {row.reading}", ""]
    return "\n".join([*lines, *_changing(), *_errors()])


def _named(row: Finding) -> str:
    return f"[{row.method}](mechanisms/{row.method}.md) {row.form}".rstrip()


def _cited(key: str) -> str:
    """Return author and year of a key of the bibliography, as a link."""
    found = re.match(r"([a-z]+)([0-9]{4})", key)
    if found is None:
        return ""
    return f"[{_HYPHENATED.get(found[1], found[1].title())} {found[2]}](bibliography.md#{key})"


def _row(row: Finding) -> str:
    exact = budget(row.exact_epsilon, row.delta)
    verdict = "**violated**" if row.verdict == "violated" else "holds"
    noted = ", [as read](#how-the-papers-are-read)" if row.reading else ""
    cells = (
        _named(row),
        _cited(row.source),
        ", ".join(word for word in (row.model, row.unit, row.relation) if word not in ("record", "any-pair")),
        row.published.removesuffix(" per record"),
        exact,
        f"{row.lower_bound:.3f}",
        f"{verdict}{noted}",
    )
    return f"| {' | '.join(cells)} |"


def _changing() -> list[str]:
    """Return the claims about answers that change, whose reports are kept and sent again."""
    rows = []
    for one in published(_PERIODS):
        linked = one.linked_epsilon()
        shown = "∞" if math.isinf(linked) else f"{linked:.4g}"
        verdict = "**violated**" if linked > one.claimed else "holds"
        cells = f"{one.epsilon:g}, {one.once:g} | {one.once:g} | {one.claimed:g} | {shown}"
        rows.append(f"| {one.name} | {_cited(one.citation)} | {cells} | {verdict} |")
    return [
        "## Claims about answers that change",
        "",
        "A kept answer is sent again whenever its value recurs. All are of the local model. "
        f"{published(_PERIODS)[0].size} values, {_PERIODS} periods; *claimed* is what is published for whatever values "
        "a user has, *linked* is the "
        "log-likelihood ratio of two sequences of two values for whoever sees all reports of a user, found by "
        "enumeration, exact for biloloha and a lower bound for l-osue.",
        "",
        "| method | source | kept, once | one period | claimed | linked | verdict |",
        "| --- | --- | ---: | ---: | ---: | ---: | --- |",
        *rows,
        "",
        "The authors count a kept answer for each value, and state the sum. That holds among sequences that change at "
        "the same times. Against one that never changes, the reports tell that and when a value changed, and tell it "
        "better with every period. `answers: tracked` reports in one period that is drawn for a user: its budget holds "
        "for any sequences.",
        "",
    ]


def _errors() -> list[str]:
    """Return the claims that are about the error, and not about privacy."""
    found, source = lower_error(), _cited("duan2024benchmarking")
    return [
        "## Claims about error",
        "",
        "| claim | source | case | promised | obtained | verdict |",
        "| --- | --- | --- | ---: | ---: | --- |",
        f"| L1 re-calibration (HDR4ME\\*) lowers the error | {source}, Theorem 4 | d = {found.dims}, every "
        f"mean {found.mean:g}, standard error {found.std_error:g} | at least {found.promised:.3f} | "
        f"{found.improved} of {found.collections:,} | **violated** |",
        "",
        "The theorem promises that the re-calibrated means are nearer to the truth with the probability that not all "
        "deviations are within 1. Its proof uses Lemma 4, which needs every deviation beyond 1; the complement of *all "
        "within* is *some beyond*. Read with *all beyond* the proof is right, and the promise is "
        f"{_power(found.all_beyond)} here. The weight λ is the supremum of the deviation, which for a normal one is a "
        "level of confidence: at 95 %, as here and in `hdr4me-l1`, the error falls with a probability of at most "
        f"{_power(found.chance_at_most)}, by Chernoff's bound; larger weights do worse.",
        "",
    ]


def _power(value: float) -> str:
    """Write a tiny number as a power of ten, rounded up."""
    return f"10<sup>{math.ceil(math.log10(value))}</sup>"


@dataclass(frozen=True)
class ErrorClaim:
    """What Duan 2024, Theorem 4, promises in one case, and what is obtained.

    ``promised`` is the least probability of a lower error, ``all_beyond`` what its proof supports, ``chance_at_most`` a
    bound on the true probability, and ``improved`` how many of ``collections`` simulated ones had a lower error.
    """

    dims: int
    mean: float
    std_error: float
    promised: float
    all_beyond: float
    chance_at_most: float
    improved: int
    collections: int

    @property
    def holds(self) -> bool:
        """Whether the promise is not refuted."""
        return self.promised <= self.chance_at_most


def lower_error(
    dims: int = 100, mean: float = 0.9, std_error: float = 0.35, *, collections: int = 4000, seed: int = 7
) -> ErrorClaim:
    """Examine the promise that L1 re-calibration lowers the error of ``dims`` equal means.

    Formula: promised 1 - P(|D| <= 1)^d for deviations D ~ N(0, s^2). The error falls where the gains
    G = D^2 - (y* - m)^2 add up to more than 0, y* the re-calibrated m + D, and P(sum G > 0) <= E[exp(t G)]^d for each
    t > 0 (Chernoff). The expectation is a sum over a fine grid.

    >>> found = lower_error(collections=100)
    >>> round(found.promised, 3), found.improved, found.holds
    (0.348, 0, False)
    """
    within = math.erf(1 / (std_error * math.sqrt(2)))
    drawn = std_error * np.random.default_rng(seed).standard_normal((collections, dims))
    grid = np.linspace(-_SPREAD * std_error, _SPREAD * std_error, _POINTS)
    weights = np.exp(-0.5 * np.square(grid / std_error))
    weights /= weights.sum()
    gain = _gain(grid, mean, std_error)
    tilts = np.linspace(0, 0.45 / std_error**2, _TILTS)[1:]
    return ErrorClaim(
        dims,
        mean,
        std_error,
        promised=1 - within**dims,
        all_beyond=(1 - within) ** dims,
        chance_at_most=min(1.0, *(float(np.exp(tilt * gain) @ weights) ** dims for tilt in tilts)),
        improved=int((_gain(drawn, mean, std_error).sum(axis=1) > 0).sum()),
        collections=collections,
    )


def _gain(deviation: FloatArray, mean: float, std_error: float) -> FloatArray:
    """Return by how much re-calibration lowers each squared error."""
    raw = mean + deviation.reshape(-1)
    made = l1(raw, np.full_like(raw, std_error)).value.reshape(deviation.shape)
    return np.asarray(np.square(deviation) - np.square(made - mean))
