"""Texts that nobody listed, in a survey: how they are asked, counted and found."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from noisette import _validate
from noisette._bounded import inverted
from noisette._validate import FloatArray, IntArray
from noisette.core import Estimate
from noisette.domains import Texts
from noisette.mechanisms import CATALOGUE
from noisette.mechanisms.build import build
from noisette.mechanisms.categorical.texts.search import MOST_TEXTS, Found, measured, search, share_of_ended
from noisette.survey.coding.items import Direct, Topic
from noisette.survey.coding.joints import ANSWER, ResponseRate, rate_name
from noisette.survey.estimation.ratios import RatioEstimate

if TYPE_CHECKING:
    import pandas as pd

    from noisette.survey.choosing import Allowance

NO_TEXT = " "  # is sent in place of no answer: of a text the spaces at its ends are taken off, so nobody has it


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

    def found(self, mechanism: Any, sums: IntArray, texts: int, *, apart: bool = False) -> Found:
        """Return up to ``texts`` frequent texts; with ``apart``, without the people who measure shares."""
        return search(mechanism, sums, texts, apart=apart)

    def measured(self, mechanism: Any, sums: IntArray, texts: Sequence[str]) -> Estimate:
        """Return the shares of texts, by the people who measure."""
        return measured(mechanism, sums, texts)

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


@dataclass(frozen=True)
class OptionalText(TextItem):
    """A text that may be left out: a space is sent in place of no answer.

    Formula: a share among those who answered is f / R, f the text's share of all reports and R the response rate, which
    all reports estimate. From n reports the two have the covariance f (1 - R) / n: the opposite of that of f and 1 - R,
    which exclude each other.
    """

    @property
    def questions(self) -> tuple[Topic, ...]:  # type: ignore[override]  # a property is as good
        """The question, and how many people answered it."""
        return self.question, ResponseRate(rate_name(self.question.name))

    @cached_property
    def domain(self) -> Texts:
        """The texts, and a space."""
        own: Texts = self.question.domain
        letters = own.alphabet
        return Texts(own.longest, letters if letters is None or NO_TEXT in letters else letters + NO_TEXT)

    def read(self, mechanism: Any, sums: IntArray, made: Estimate | None) -> tuple[Estimate, ...]:
        """Return the same of a rare text, no value, and the response rate."""
        (text,) = super().read(mechanism, sums, made)
        return replace(text, names=self.question.quantities), self._rate(mechanism, sums)

    def _rate(self, mechanism: Any, sums: IntArray) -> Estimate:
        """Return the share of people who sent a text."""
        silent = share_of_ended(mechanism, sums, NO_TEXT)
        low, high = silent.ends or (np.zeros(1), np.ones(1))
        names = self.questions[1].quantities
        return replace(silent, value=1 - silent.value, ends=(1 - high, 1 - low), names=names)

    def found(self, mechanism: Any, sums: IntArray, texts: int, *, apart: bool = False) -> Found:
        """Return what was found, without "no answer", as shares among the people who answered."""
        most = _validate.integer(texts, "texts", low=1, high=MOST_TEXTS)
        made = search(mechanism, sums, min(most + 1, MOST_TEXTS), apart=apart)
        own: Texts = self.question.domain
        rows = np.asarray([text == text.strip() and own.fault(text) is None for text in made.texts], dtype=bool)
        return FoundAmong.of(made, rows, texts, self._rate(mechanism, sums))

    def measured(self, mechanism: Any, sums: IntArray, texts: Sequence[str]) -> Estimate:
        """Return the shares of texts among those who answered, by the people who measure."""
        made, rate = measured(mechanism, sums, [*texts, NO_TEXT]), self._rate(mechanism, sums)
        return _among(made.value[:-1], made.std_error[:-1], made.count[:-1], rate)

    def predict(self, mechanism: Any, users: int) -> FloatArray:
        """Return the standard errors of the share of a text that is just found, and of the response rate."""
        from noisette.prediction.texts import TextPrediction

        made = TextPrediction(mechanism, users)
        share = min(made.findable(), ANSWER)
        error, rate = float(made.std_error(share)), float(made.std_error(1 - ANSWER, len(mechanism.lengths)))
        counts, answering = np.asarray([users]), Estimate(np.asarray([ANSWER]), np.asarray([rate]), np.asarray([users]))
        among = _among(np.asarray([share]), np.asarray([error]), counts, answering)
        return np.append(among.std_error, rate)

    def planned_name(self, mechanism: Any, users: int, quantity: str) -> str:
        """Name the share among those who answer from which on a text is found."""
        from noisette.prediction.texts import TextPrediction

        if quantity not in self.question.estimated:
            return quantity
        share = TextPrediction(mechanism, users).findable() / ANSWER
        return "no text is found" if share > 1 else f"a text of {share:.2%} or more"


def _among(share: FloatArray, error: FloatArray, count: IntArray, rate: Estimate) -> RatioEstimate:
    """Return shares of all people as shares among those who answered."""
    answer, users = float(rate.value[0]), float(rate.count[0])
    together = np.clip(share, 0, 1) * min(max(1 - answer, 0.0), 1.0) / max(users, 1.0)
    spread = np.stack([error**2, together, np.full(share.size, float(rate.std_error[0]) ** 2)])
    return RatioEstimate.of(share, np.full(share.size, answer), spread, count, (), 0.0, 1.0)


@dataclass(frozen=True, eq=False)
class FoundAmong(Found):
    """Texts with their shares among those who answered: ``whole`` has those of all people, ``rows`` the kept ones.

    Formula: the interval holds all m for which 0 is in the interval of f - m R. Its ends follow from those of f and of
    R, whose distances from the estimates add up as squares, less what both have in common (Zou and Donner 2008).
    """

    whole: Found | None = None
    rows: IntArray | None = None
    rate: Estimate | None = None

    @classmethod
    def of(cls, whole: Found, kept: Any, texts: int, rate: Estimate) -> FoundAmong:
        """Return the texts that are kept."""
        rows = np.flatnonzero(kept)
        made = _among(whole.share[rows], whole.std_error[rows], whole.made.count[rows], rate)
        answer = max(float(rate.value[0]), 0.0) if np.isfinite(rate.value[0]) else 0.0
        with np.errstate(divide="ignore"):
            level = float(np.divide(whole.threshold, answer))
        people = {"users": whole.users, "asked": texts, "reports": whole.reports, "chosen": whole.chosen}
        names, checked = tuple(whole.texts[row] for row in rows), whole.checked[rows]
        return cls(names, made, checked, whole.shown[rows], level, **people, whole=whole, rows=rows, rate=rate)  # type: ignore[arg-type]

    def interval(self, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
        """Return both ends of the interval of each share among those who answered."""
        assert self.whole is not None
        assert self.rate is not None
        low, high = (end[self.rows] for end in self.whole.interval(level))
        least, most = (float(end[0]) for end in self.rate.interval(level))
        share, answer = self.whole.share[self.rows], float(self.rate.value[0])
        spread = self.made.spread  # type: ignore[attr-defined]  # made in `of`
        with np.errstate(divide="ignore", invalid="ignore"):
            alike = np.nan_to_num(np.clip(spread[1] / np.sqrt(spread[0] * spread[2]), 0.0, 1.0))

        def keeps(ratio: FloatArray) -> Any:
            def far(own: FloatArray, other: float) -> FloatArray:
                rest = ratio * other
                return np.asarray(np.sqrt(np.maximum(own**2 + rest**2 - 2 * alike * own * rest, 0.0)))

            gap = share - ratio * answer
            return (gap <= far(share - low, most - answer)) & (gap >= -far(high - share, answer - least))

        ends = inverted(keeps, self.made.value, 0.0, 1.0)
        unknown = np.isnan(low) | np.isnan(high)
        return np.where(unknown, np.nan, ends[0]), np.where(unknown, np.nan, ends[1])


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
