"""The plan of a survey: the error of every quantity in every group before anybody is asked, and a verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtr, ndtri

from noisette import _validate
from noisette.guarantees import Guarantee
from noisette.prediction.targets import DOUBTFUL, NOT_WORTH, WORTH, verdict
from noisette.survey.estimation.distributions import mechanisms
from noisette.survey.results import ALL
from noisette.survey.survey import Survey

if TYPE_CHECKING:
    import pandas as pd

_NEAR_ONE = 1e-6  # shares of groups whose sum is off by no more are taken for rounded ones


@dataclass(frozen=True)
class Predicted:
    """The error of one quantity in one group, for the worst distribution of answers."""

    question: str
    quantity: str
    group: str
    std_error: float
    verdict: str


@dataclass(frozen=True, eq=False)
class SurveyPlan:
    """What to expect of a survey with so many users: the standard error of every quantity in every group.

    Errors are about the people who answer, for the distribution of answers that is worst on average. If these people
    are a sample of a larger population, the error of sampling comes on top, as it does in results. A verdict compares
    an error with how far the quantity can be from a guess made without asking: "worth collecting" where the error is at
    most half of that, "not worth collecting" where it is more.
    """

    survey: Survey
    users: int
    rows: tuple[Predicted, ...]
    sizes: Mapping[str, float]  # of each group

    @classmethod
    def of(cls, survey: Survey, users: int, shares: Mapping[str, Mapping[str, float]], periods: int = 1) -> SurveyPlan:
        """Predict one of ``periods`` periods, where one is drawn for each user; ``shares`` are those of groups."""
        if unknown := sorted(set(shares) - set(survey.groups)):
            raise ValueError(f"Expected shares of public groups, {list(survey.groups)}, got {unknown[0]!r}.")
        sizes = {ALL: float(users)}
        for name, values in survey.groups.items():
            own = _shares(name, values, shares.get(name))
            sizes |= {f"{name}={label}": users * own[label] for label in values}
        found: dict[int, Any] = {}
        places, start = {}, 0  # where the quantities of each topic begin
        for one in (one for section in survey.sections for one in section.questions):
            places[one.name], start = start, start + len(one.quantities)
        rows: list[Predicted] = []
        for group, size in sizes.items():
            count = max(1, round(size))
            if count not in found:
                found[count] = survey.predict(count, periods)
            for question in survey.topics:
                errors = found[count][places[question.name] :].tolist()
                for quantity, error, signal in zip(question.estimated, errors, question.signals.tolist(), strict=False):
                    error = error if size >= 1 else math.inf
                    if question.tells == "texts":
                        quantity = survey.answering.planned_name(question, quantity, max(1, round(count / periods)))
                    rows.append(Predicted(question.name, quantity, group, error, verdict(error**2, signal)))
        return cls(survey, users, tuple(rows), sizes)

    @property
    def guarantee(self) -> Guarantee:
        """What one person's answers spend."""
        return self.survey.guarantee

    @property
    def verdict(self) -> str:
        """The verdict in a sentence: what is worth asking, and what is not."""
        if all(row.verdict == WORTH for row in self.rows):
            where = ", in every group," if any(row.group != ALL for row in self.rows) else ""
            return f"Worth collecting: every answer{where} will be clearly better than a guess."
        remarks = []
        for word in (NOT_WORTH, DOUBTFUL):
            names: dict[str, list[str]] = {}
            for row in self.rows:
                if row.verdict == word and row.group not in names.setdefault(row.question, []):
                    names[row.question].append(row.group)
            listed = [
                f"{question} ({'everywhere' if ALL in where else ', '.join(where)})"
                for question, where in names.items()
                if where
            ]
            remarks += [f"{word.capitalize()}: {'; '.join(listed)}."] if listed else []
        good = sum(row.verdict == WORTH for row in self.rows)
        remedy = "Ask more people, ask less, make groups larger, or raise epsilon."
        return f"{good} of {len(self.rows)} answers are worth collecting. {' '.join(remarks)} {remedy}"

    def compare(
        self,
        name: str,
        differences: Mapping[str, float] | float,
        *,
        alpha: float = 0.05,
        power: float = 0.8,
        spread: Mapping[str, float] | None = None,
    ) -> pd.DataFrame:
        """Return how likely a difference between two values of a public group is seen, and how many people that needs.

        ``differences`` is a share of what each question could differ by (its signal), or for some questions the
        difference itself, in its unit. Formula: with s the standard error of the difference and z the normal quantiles
        of a two-sided test at level ``alpha``, the power is Phi(d / s - z) + Phi(-d / s - z), and ``users`` is how many
        people, in all groups, give the power asked for. Besides the noise people differ: by ``spread``, the standard
        deviation of a question's answers, taken to be evenly spread otherwise. Texts are left out: which there are is
        not known yet.
        """
        import pandas as pd

        survey = self.survey
        labels = list(survey.members(name))
        for share, what in ((alpha, "alpha"), (power, "power")):
            if not 0 < _validate.number(share, what) < 1:
                raise ValueError(f"Expected {what}={share!r} in (0, 1).")
        told = [one.name for one in survey.topics if one.tells != "texts"]  # which texts there are is not known before
        for given, what, least in ((differences, "differences", -math.inf), (spread or {}, "spread", 0.0)):
            for own, value in given.items() if isinstance(given, Mapping) else [(None, given)]:
                if own not in (None, *told):
                    raise ValueError(f"Expected {what} of {_validate.few(told) or 'no question'}, got {own!r}.")
                if not least <= _validate.number(value, what) < math.inf or math.isinf(value):
                    raise ValueError(f"Expected {what}={value!r} to be finite{' and >= 0' if least == 0 else ''}.")
        z, wanted = float(ndtri(1 - alpha / 2)), float(ndtri(power))
        found = {(row.question, row.quantity, row.group): row.std_error for row in self.rows}
        rows = []
        for one in survey.topics:
            if one.tells == "texts" or (isinstance(differences, Mapping) and one.name not in differences):
                continue
            for quantity, signal in zip(one.estimated, one.signals.tolist(), strict=True):
                gap = differences[one.name] if isinstance(differences, Mapping) else differences * signal
                differ = (spread or {}).get(one.name, signal if one.tells == "shares" else signal / math.sqrt(3))
                for first, second in combinations(labels, 2):
                    both = 0.0
                    for label in (first, second):
                        error = found[one.name, quantity, f"{name}={label}"]
                        both += error**2 + differ**2 / max(self.sizes[f"{name}={label}"], 1.0)
                    ratio = abs(gap) / math.sqrt(both)
                    needed = self.users * ((z + wanted) / ratio) ** 2 if ratio > 0 else math.inf
                    chance = float(ndtr(ratio - z) + ndtr(-ratio - z))
                    users = math.ceil(needed) if math.isfinite(needed) else math.inf
                    rows.append((one.name, quantity, first, second, gap, math.sqrt(both), chance, users))
        columns = ("question", "quantity", "a", "b", "difference", "std_error", "power", "users")
        return pd.DataFrame.from_records(rows, columns=list(columns))

    def table(self) -> pd.DataFrame:
        """Return a row for every quantity in every group."""
        import pandas as pd

        columns = ("question", "quantity", "group", "std_error", "verdict")
        return pd.DataFrame.from_records([tuple(vars(row).values()) for row in self.rows], columns=list(columns))

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON description."""
        return {
            "users": self.users,
            "guarantee": self.guarantee.spec(),
            "mechanisms": mechanisms(self.survey),
            "verdict": self.verdict,
            "rows": [vars(row).copy() for row in self.rows],
        }

    def __repr__(self) -> str:
        return f"SurveyPlan({self.users:,} users, {len(self.rows)} quantities: {self.verdict})"

    def _repr_html_(self) -> str:
        from noisette.survey.charts import page

        return page(f"Plan for {self.users:,} users", self.table(), f"{self.verdict} {self.guarantee}.")


def _shares(name: str, values: Any, given: Mapping[str, float] | None) -> dict[str, float]:
    """Return the share of each value of a group."""
    if given is None:
        return dict.fromkeys(values, 1 / len(values))
    if set(given) != set(values):
        raise ValueError(f"Expected a share for each value of {name!r}, {list(values)}, got {list(given)}.")
    found = {label: _validate.number(given[label], f"share of {label}") for label in values}
    if min(found.values()) < 0 or not abs(float(np.sum(list(found.values()))) - 1) <= _NEAR_ONE:
        raise ValueError(f"Expected shares of {name!r} >= 0 that add up to 1, got {dict(given)}.")
    return found
