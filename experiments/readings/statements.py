"""What every statement shares: a row with three numbers and a verdict, and the study made of the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.frame import Study

COLUMNS = ("item", "statement", "what is computed", "as printed", "Noisette", "what holds", "verdict", "about")


@dataclass(frozen=True)
class Statement:
    """One statement of a paper: what its formula gives, what the library has, what is true, in five words.

    ``mended`` says that the library departs from the printed formula, which is then another number; ``privacy`` that
    what holds is the epsilon that truly does.
    """

    item: str
    says: str
    computed: str
    printed: float | str | None
    ours: float | str | None
    holds: float | str | None
    verdict: str
    mended: bool = False
    privacy: bool = False

    def row(self) -> list[float | str | None]:
        """Return the cells of the table."""
        return [
            self.item,
            self.says,
            self.computed,
            self.printed,
            self.ours,
            self.holds,
            self.verdict,
            "privacy" if self.privacy else "law",
        ]


def study(title: str, statements: Sequence[Statement]) -> Study:
    """Return the study of a paper's statements."""
    kept, built = (sum(own.verdict.startswith(word) for own in statements) for word in ("Holds", "Built"))
    return Study(
        title=title,
        claim="Each statement, in the second column.",
        finding=f"Of {len(statements)} rows {kept} hold as they stand and {built} are algorithms built as printed; "
        "the last column says what is wrong with the others.",
        columns=COLUMNS,
        rows=[own.row() for own in statements],
        setting={
            "departs from the printed formula": "; ".join(own.item for own in statements if own.mended) or "nothing"
        },
        sizeless=True,
    )
