"""Texts that nobody listed, in a survey: how they are asked, counted and found."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from noisette._validate import FloatArray, IntArray
from noisette.core import Estimate
from noisette.mechanisms import CATALOGUE
from noisette.mechanisms.build import build
from noisette.survey.coding.items import Direct

if TYPE_CHECKING:
    import pandas as pd

    from noisette.mechanisms.categorical.texts.search import Found
    from noisette.survey.choosing import Allowance


@dataclass(frozen=True)
class TextItem(Direct):
    """A question for a text: its reports are counted, and the counters are searched when somebody looks.

    Its only quantity beforehand is the share of a text that is just frequent enough to be found.
    """

    counted: ClassVar[bool] = False

    def choose(self, budget: Allowance, asked: str, report: int | None) -> Any:
        """Return the mechanism for texts that was asked for."""
        names = [name for name, cls in CATALOGUE.items() if cls.capabilities.takes(self.domain)]
        if asked not in ("auto", *names):
            raise ValueError(f"Expected mechanism={asked!r} for the texts of {self.name!r} to be {' or '.join(names)}.")
        return build(names[0] if asked == "auto" else asked, self.domain, epsilon=budget.epsilon)

    def size(self, mechanism: Any) -> int:
        """Return how many counters there are: one for each report."""
        return int(mechanism.support.size)

    def tally(self, mechanism: Any, reports: Any) -> IntArray:
        """Count the reports of each kind."""
        total: IntArray = mechanism.tally(reports).total
        return total

    def read(self, mechanism: Any, sums: IntArray, made: Estimate | None) -> tuple[Estimate, ...]:
        """Return how many users reported and measure, and the standard error that a rare text has; no value."""
        users = int(sums.sum())
        error = self.predict(mechanism, users) if users else np.asarray([np.inf])
        return (Estimate(np.asarray([np.nan]), error, np.asarray([users]), names=self.question.quantities),)

    def predict(self, mechanism: Any, users: int) -> FloatArray:
        """Return the standard error of the share of a text that is just found."""
        from noisette.prediction.texts import TextPrediction

        made = TextPrediction(mechanism, users)
        return np.asarray([float(made.std_error(min(made.findable(), 1.0)))])

    def planned_name(self, mechanism: Any, users: int, quantity: str) -> str:
        """Name the share from which on a text is found."""
        from noisette.prediction.texts import TextPrediction

        share = TextPrediction(mechanism, users).findable()
        return "no text is found" if math.isinf(share) else f"a text of {share:.2%} or more"


def top_texts(found: Found, level: float) -> pd.DataFrame:
    """Return the texts that passed search and check and whose intervals leave out zero, most frequent first."""
    import pandas as pd

    low, high = found.interval(level)
    rows = np.flatnonzero(found.shown & (low > 0))[: found.asked]
    rows = rows[np.argsort(-found.share[rows], kind="stable")]
    columns = {"text": [found.texts[row] for row in rows], "share": found.share[rows]}
    columns |= {"low": low[rows], "high": high[rows], "std_error": found.std_error[rows]}
    table = pd.DataFrame(columns)
    table.attrs["reports"] = found.users
    if not found.reports:
        note = "No reports yet."
    elif found.threshold > 1:
        note = f"{found.reports:,} reports are too few: no text would be shown, even if everybody had it."
    elif found.chosen is not None:
        note = (
            f"{found.reports:,} reports. Texts whose share was below {found.threshold:.2%} are not shown. All people "
            f"choose and measure; each {level:.0%} interval makes up for the choice, and holds for each text by itself."
        )
    else:
        note = (
            f"{found.reports:,} reports. Texts whose share among those who check was below {found.threshold:.2%} are "
            f"not shown. Each share is measured by {found.users:,} people who had no part in the choice: its "
            f"{level:.0%} interval holds for each text by itself."
        )
    table.attrs["note"] = note
    return table
