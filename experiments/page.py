"""The papers, line by line: one page with every algorithm, theorem, figure and table, written from the results.

Statements come from the readings; figures, tables and what is only described come from the ``lines`` of each paper's
folder, functions of `Results` that return a `Line` for each item.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from noisette._terminal import number

ROOT = Path(__file__).resolve().parent
PAGE = ROOT.parent / "docs" / "papers.md"
_COLUMNS = ("item", "where", "setting", "claimed", "obtained", "true guarantee", "ours at that guarantee", "verdict")
_KINDS = ("Algorithm", "Theorem", "Lemma", "Corollary", "Figure", "Table")
_NONE = "-"
NOTHING = "Nothing to reproduce"  # the verdict on notation and diagrams
TOO_SMALL = "Too small to judge"

# the papers by their keys in the bibliography, and the folders that have their figures and tables
PAPERS = {
    "yuan2025local": ("Yuan, Tang, Huang, Wu, Wang 2025: TLDP", ("tldp",)),
    "hao2023hierarchical": ("Hao, Wu, Wan 2023: hierarchical aggregation", ("hierarchical",)),
    "yang2021differential": ("Yang, Xiang, Chen, Li, Li 2021: tensor-valued queries", ("tensor",)),
    "sun2021ldpfl": ("Sun, Qian, Chen 2021: LDP-FL", ("federated.ldpfl",)),
    "duan2024benchmarking": ("Duan 2024: LDPTube, GeoDP, LDPVec", ("ldptube", "geodp", "federated.ldpvec")),
}
# what a reader of a paper's lines should know
_WORDS = {
    "yuan2025local": (
        "A *record* is all that a user sends at once, an *entry* one number of it; Δ is the number of levels of "
        "an entry, I the number of entries. F1 is the weighted F1 score. MVG and IDN are the Gaussian noise of "
        "Chanyaswad et al. 2018 and of Yang et al. 2021, LLAGP and DPHSGD private descent with budgets by layer "
        "and with thresholds from the curvature. TLDP-L has Laplace noise."
    ),
    "hao2023hierarchical": (
        "Five levels of privacy have the budgets 5 e to e. LHP perturbs level and sign, PLC turns reports of one "
        "level into those of another, HierA pools them, each report μ times. Harmony and PM (Piecewise) report a "
        "number. What holds of level and sign together is a matrix: ε for each pair of levels."
    ),
    "yang2021differential": (
        "TVG is tensor-variate Gaussian noise; UDN has directions along one mode, IDN independent ones. MVG is "
        "the noise of Chanyaswad et al. 2018, MM the matrix mechanism, JL the Johnson-Lindenstrauss transform, "
        "Optimized plain Gaussian noise for the whole tensor. I is the number of entries, I_1 that of mode 1, RSS "
        "the residual sum of squares. A *batch* of 256 people is what the paper protects as one."
    ),
    "sun2021ldpfl": (
        "A weight is clipped to a *range* ±r, fixed, or *adaptive*: following the noisy weights. The paper's ε is "
        "that of one weight in one round. The true one is a client's for the whole run, *local*, or *shuffled*: "
        "behind a perfect shuffler."
    ),
    "duan2024benchmarking": (
        "HDR4ME* mixes the raw mean with L1 and L2 shrinkage; `auto` is what Noisette does by default. KS is the "
        "Kolmogorov-Smirnov test at that rate of false alarms. GeoDP puts noise on the angles of a gradient, in a "
        "range of which β is the share that is kept; σ is the noise multiplier, B the batch, d the number of "
        'weights, C the clipping norm. "Around π/2" and "no angle clipped" are ranges kinder than the printed '
        "one. LDPVec does the same in federated learning; *numbers* is noise on the coordinates, calibrated as "
        "section 6.1.4 says, to C' = 2 C d, or as 6.1.2 does, to ±C/√d."
    ),
}

_HEAD = """# The papers, line by line

Every algorithm, theorem, lemma, corollary, figure and table of the five papers that Noisette grew from, one line each.
This page is written by `noisette reproduce --page` from the committed results; typed in are the claims, what a setting
is reduced by, and verdicts that no single number decides. *Where* names the command: `tldp type-1` is `noisette
reproduce tldp --full --only type-1`, and its tables and charts are in the repository under `experiments/`. *Setting* is
the paper's, or says what it is reduced by. *Obtained* is what we measured or computed in the paper's own way. *True
guarantee* is the ε that holds for what was released (δ = 1e-5 where Gaussian noise or composition needs one), which may
be far from the one printed. *Ours* is the best that Noisette reaches at that same guarantee. Of a statement, *obtained*
says what the text's own formula gives (printed), what the library has (Noisette) and what holds, exact or measured
(truth). A verdict with "too small" or "open" is none: the run is too small for it. How each claim was read is in
[Claims](claims.md#how-the-papers-are-read).
"""


@dataclass(frozen=True)
class Line:
    """One item of a paper; cells that do not apply are left empty."""

    item: str
    where: str = ""
    setting: str = ""
    claimed: str = ""
    obtained: str = ""
    guarantee: str = ""
    ours: str = ""
    verdict: str = ""

    def cells(self) -> list[str]:
        """Return the cells of the table."""
        own = (self.item, f"`{self.where}`" if self.where else "", self.setting, self.claimed, self.obtained)
        return [cell.replace("|", "\\|") or _NONE for cell in (*own, self.guarantee, self.ours, self.verdict)]


@dataclass(frozen=True)
class Found:
    """A study of the committed results."""

    study: dict[str, Any]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows, by the names of their columns."""
        return [dict(zip(self.study["columns"], row, strict=True)) for row in self.study["rows"]]

    def where(self, **cells: Any) -> list[dict[str, Any]]:
        """Return the rows with these cells; ``_`` in a name stands for a space."""
        wanted = {key.replace("_", " "): value for key, value in cells.items()}
        return [row for row in self.rows if all(row[key] == value for key, value in wanted.items())]

    def one(self, column: str, **cells: Any) -> Any:
        """Return a cell of the only row with these cells."""
        rows = self.where(**cells)
        if len(rows) != 1:
            raise ValueError(f"Expected one row of {self.study['name']} with {cells}, got {len(rows)}.")
        return rows[0][column]

    @property
    def judged(self) -> bool:
        """Whether the study has a size that says something about the paper; a small setting shows that it runs."""
        return bool(self.study["full"] or self.study.get("sizeless"))

    @property
    def setting(self) -> dict[str, Any]:
        """What the study says of its setting."""
        return dict(self.study["setting"])

    def size(self, reduced: str = "") -> str:
        """Return the setting of a line: the paper's own, or reduced by what; and the fraction that has been run."""
        said = f"reduced: {reduced}" if reduced else "the paper's"
        fraction = self.study.get("fraction")
        return said + (f" ({fraction})" if fraction else "") + ("" if self.study["full"] else "; small setting")


class Results:
    """The committed results of all experiments."""

    def __init__(self, root: Path = ROOT) -> None:
        self._root = root

    def __call__(self, folder: str, name: str) -> Found:
        """Return one study; ``folder`` as in `PAPERS`."""
        path = self._root.joinpath(*folder.split("."), "results.json")
        record = json.loads(path.read_text("utf-8"))
        return Found(next(study for study in record["studies"] if study["name"] == name))


def span(values: Sequence[float], form: Callable[[float], str] = number) -> str:
    """Write the least and the largest of some numbers."""
    low, high = form(min(values)), form(max(values))
    return low if low == high else f"{low} to {high}"


def percent(value: float) -> str:
    """Write a percentage."""
    return f"{value:.1f} %"


def lines(key: str, results: Results) -> list[Line]:
    """Return all lines of a paper, algorithms first, in the order of their numbers."""
    found = _statements(key, results)
    for folder in PAPERS[key][1]:
        found += [_fair(line, folder, results) for line in import_module(f"experiments.{folder}.lines").lines(results)]
    return sorted(found, key=_order)


def _fair(line: Line, folder: str, results: Results) -> Line:
    """Return a line without a verdict if it shows a small setting, whatever its paper's folder says of it."""
    paper, _, study = line.where.partition(" ")
    if paper == "readings" or not study or results(folder, study).judged:
        return line
    return replace(line, verdict=TOO_SMALL)


def _order(line: Line) -> tuple[Any, ...]:
    kind, place = label(line.item).split(" ")
    return _KINDS.index(kind), [_roman(part) for part in place.split(".")], line.item


def label(item: str) -> str:
    """Return the item of the paper that a line is about: 'Theorem 1, one entry' is about Theorem 1."""
    found = re.match(rf"({'|'.join(_KINDS)}) ([0-9]+(?:\.[0-9]+)?|[IVX]+)", item)
    if found is None:
        raise ValueError(f"Expected a line to begin with one of {', '.join(_KINDS)} and its number, got {item!r}.")
    return f"{found[1]} {found[2]}"


def _roman(place: str) -> int:
    romans = {"I": 1, "II": 2, "III": 3, "IV": 4, "V": 5}
    return romans[place] if place in romans else int(place)


def _statements(key: str, results: Results) -> list[Line]:
    """Return the lines of the statements, from the readings."""
    found = []
    for row in results("readings", key).rows:
        private = row["about"] == "privacy"
        said = (("as printed", "printed"), ("Noisette", "Noisette"), ("what holds", "truth"))
        cells: dict[str, list[str]] = {}  # what says it, by what is said
        for column, word in said:
            if row[column] is not None and not (private and column == "what holds"):
                cells.setdefault(number_or_text(row[column]), []).append(word)
        found.append(
            Line(
                row["item"],
                where=f"readings {key}",
                setting=row["what is computed"],
                claimed=row["statement"],
                obtained="; ".join(f"{cell} ({', '.join(words)})" for cell, words in cells.items()),
                guarantee=number_or_text(row["what holds"]) if private else "",
                verdict=row["verdict"],
            )
        )
    return found


def number_or_text(cell: Any) -> str:
    """Write a cell of a results table."""
    return number(cell) if isinstance(cell, float) else str(cell)


def write() -> str:
    """Return the whole page."""
    results, parts = Results(), [_HEAD.strip()]
    for key, (title, _) in PAPERS.items():
        table = [_COLUMNS, [":--"] * len(_COLUMNS), *(line.cells() for line in lines(key, results))]
        parts += [
            f"## {title}",
            f"[{key}](bibliography.md#{key}). {_WORDS[key]}",
            "\n".join("| " + " | ".join(row) + " |" for row in table),
        ]
    return "\n\n".join(parts) + "\n"
