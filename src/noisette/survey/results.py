"""What reports say: estimates with intervals, distributions, groups and their differences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from noisette import _validate
from noisette._validate import FloatArray
from noisette.core import Estimate
from noisette.enhancement import METHODS
from noisette.survey.coding.axes import axis_of, number_of
from noisette.survey.coding.choices import number_name
from noisette.survey.coding.items import Topic
from noisette.survey.coding.joints import Joint, Within, joint_name, rate_name
from noisette.survey.estimation.comparing import compared, compared_within
from noisette.survey.estimation.distributions import NO_INTERVAL, Shape, quantiles, shape_of
from noisette.survey.estimation.hierarchy import CdfEstimate
from noisette.survey.questions import Number
from noisette.survey.reports import SurveyReports, check_same
from noisette.survey.sums import Sums
from noisette.survey.survey import Survey

if TYPE_CHECKING:
    import pandas as pd

    from noisette.mechanisms.categorical.texts.search import Found
    from noisette.survey.estimation.weighting import WeightedResults

ALL = "all"  # the group of everybody
COLUMNS = ("question", "quantity", "group", "value", "std_error", "low", "high", "reports")


@dataclass(frozen=True, eq=False)
class SurveyAggregate:
    """What a server keeps of a survey's reports: sums for each combination of public groups that has any."""

    survey: Survey
    cells: Mapping[int, Sums]

    @classmethod
    def nothing(cls, survey: Survey) -> SurveyAggregate:
        """Return the sums of no report."""
        return cls(survey, {})

    @classmethod
    def of(cls, reports: SurveyReports) -> SurveyAggregate:
        """Sum reports, refusing those that the mechanisms cannot have sent."""
        survey = reports.survey
        return cls(survey, survey.layout.by_cell(reports.rows, reports.cells)) if len(reports) else cls.nothing(survey)

    def __repr__(self) -> str:
        return f"SurveyAggregate({self.users:,} people, {self.survey!r})"

    @property
    def users(self) -> int:
        """How many people reported."""
        return sum(sums.users for sums in self.cells.values())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SurveyAggregate):
            return NotImplemented
        return self.survey == other.survey and dict(self.cells) == dict(other.cells)

    __hash__ = None  # type: ignore[assignment]  # equal by content

    def __add__(self, other: SurveyAggregate) -> SurveyAggregate:
        return self.merge(other)

    def merge(self, other: SurveyAggregate) -> SurveyAggregate:
        """Return the sums of both."""
        if not isinstance(other, SurveyAggregate):
            raise TypeError(f"Expected an aggregate of a survey to merge, got {type(other).__name__}.")
        check_same(self.survey, other.survey)
        found = dict(self.cells)
        for cell, sums in other.cells.items():
            found[cell] = found[cell] + sums if cell in found else sums
        return SurveyAggregate(self.survey, found)

    def results(self, *, enhance: str = "none", level: float = 0.95) -> Results:
        """Estimate from the sums; ``enhance`` names a free post-processing."""
        if enhance not in METHODS:
            raise ValueError(f"Unknown method {enhance!r}; expected one of {sorted(METHODS)}.")
        if not 0 < level < 1:
            raise ValueError(f"Expected level={level!r} in (0, 1), e.g. 0.95.")
        return Results(self, enhance, level)


@dataclass(frozen=True, eq=False)
class Results(Mapping[str, "Answer"]):
    """Everything that reports say about a survey: ``results["age"]`` about one question, ``by`` within groups.

    ``level`` is the confidence of intervals: each quantity's holds alone, not all of them together.
    """

    aggregate: SurveyAggregate
    method: str = "none"
    level: float = 0.95
    group: str = ALL

    @property
    def survey(self) -> Survey:
        """What was asked."""
        return self.aggregate.survey

    @property
    def users(self) -> int:
        """How many people reported."""
        return self.aggregate.users

    @cached_property
    def sums(self) -> Sums:
        """The sums of all people in these results."""
        first, *others = self.aggregate.cells.values() or [self.survey.layout.nothing()]
        return sum(others, start=first)

    @cached_property
    def _kept(self) -> dict[Any, Any]:
        """Results within groups, and searches for texts, which can take seconds: done once."""
        return {}

    @cached_property
    def _answers(self) -> dict[str, Answer]:
        found = self.sums.by_question(self.method)
        return {one.name: Answer(one, found[one.name], self) for one in self.survey.topics}

    def __getitem__(self, name: str) -> Answer:
        if name not in self._answers:
            self.survey.question(name)  # raises, naming the questions there are
        return self._answers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._answers)

    def __len__(self) -> int:
        return len(self._answers)

    def __repr__(self) -> str:
        return f"Results({len(self.survey.questions)} questions, {self.users:,} reports)"

    # --- groups

    def by(self, name: str) -> GroupedResults:
        """Return the results within each value of a public group, or of a choice that is asked jointly with numbers."""
        if private := within(self.survey, name):
            return GroupedResults(name, {}, tuple(self._within(private)))
        if name not in self._kept:
            found = {}
            for label, cells in self.survey.members(name).items():
                own = {cell: sums for cell, sums in self.aggregate.cells.items() if cell in set(cells.tolist())}
                aggregate = SurveyAggregate(self.survey, own)
                found[label] = Results(aggregate, self.method, self.level, f"{name}={label}")
            self._kept[name] = GroupedResults(name, found, ())
        known: GroupedResults = self._kept[name]
        return known

    def _within(self, private: list[Within]) -> Iterator[tuple[Any, ...]]:
        """Yield rows about the numbers within each label of a private choice."""
        for item in private:
            found = self[item.name].estimate
            low, high = found.interval(self.level)
            rows = zip(item.choice.labels, found.value, found.std_error, low, high, found.count, strict=True)
            for label, *numbers, count in rows:
                yield item.number.name, "mean", f"{item.choice.name}={label}", *map(float, numbers), int(count)

    def joint(self, first: str, second: str) -> Answer:
        """Return what two questions say together, where the survey asked for it."""
        for pair in self.survey.joint:
            if {*pair} == {first, second}:
                return self[joint_name(pair)]
        asked = ", ".join(joint_name(pair) for pair in self.survey.joint) or "none"
        raise KeyError(
            f"The survey did not ask {first!r} and {second!r} together; it asked {asked}. "
            f"Give joint=[({first!r}, {second!r})] to Survey before collecting."
        )

    def crosstab(self, first: str, second: str, what: str = "share") -> pd.DataFrame:
        """Return the share of each pair of labels of two choices: rows are the first one's labels.

        ``what`` may be "std_error", "low" or "high" instead.
        """
        import pandas as pd

        answer = self.joint(first, second)
        if answer.question.tells != "shares":
            raise ValueError(
                f"{first!r} and {second!r} are not both choices. Take results.joint, which has what they say together."
            )
        if what not in ("share", "std_error", "low", "high"):
            raise ValueError(f"Expected what={what!r} to be share, std_error, low or high.")
        low, high = answer.estimate.interval(self.level)
        found = {"share": answer.estimate.value, "std_error": answer.estimate.std_error, "low": low, "high": high}
        rows, columns = next(pair for pair in self.survey.joint if {*pair} == {first, second})
        one, two = (pd.Index(self.survey.question(name).estimated, name=name) for name in (rows, columns))
        table = pd.DataFrame(found[what].reshape(len(one), len(two)), index=one, columns=two)
        return table if rows == first else table.T

    def compare(
        self,
        what: str | Results | Mapping[str, Results],
        *,
        level: float | None = None,
        correct: str = "holm",
        looks: Sequence[float] | None = None,
    ) -> pd.DataFrame:
        """Return the difference of every quantity between every two values of a public group, with a test.

        ``what`` is a public group, a private choice that numbers were asked jointly with, other results (of another
        period, or another arm of an experiment, at any budget: estimates are compared, never reports), or several by
        name. Their people must not be the same.

        Formula: the difference of two estimates from different people has the variance of both together; ``p_value`` is
        that of the two-sided z test of no difference. Many differences are looked at: all intervals of the table hold
        together with probability ``level`` (Bonferroni), and ``adjusted`` are Holm's p-values: each below 0.05 shows a
        difference, with a chance of 0.05 for any false alarm in the whole table; ``correct`` may be "bh" (Benjamini and
        Hochberg) or "none". To look while answers are still arriving, give ``looks``, the shares of the planned people
        that had answered at each look so far; p-values and intervals then hold at all looks together. `attrs` says so
        too. Quantiles, whose estimates are not normal, have intervals and p-values of their own, which hold whatever
        the distributions are.
        """
        level = self.level if level is None else level
        if isinstance(what, str):
            if private := within(self.survey, what):
                return compared_within(private, self, level, correct)
            return compared(self.by(what), level, correct, looks, repr(what))
        arms = {"this": self, "other": what} if isinstance(what, Results) else what
        if not isinstance(arms, Mapping) or not arms or not all(isinstance(one, Results) for one in arms.values()):
            raise TypeError("Expected a public group, other results, or several results by name to compare with.")
        return compared(arms, level, correct, looks, f"{', '.join(arms)}")

    def weighted(self, margins: Mapping[str, Mapping[str, float]]) -> WeightedResults:
        """Return results about a population of known margins, from people who are not a fair sample of it.

        ``margins`` has for each of some public groups the share of each value in the population: one group is
        post-stratified, several are raked. Or it has those of one private choice, which sharpens the questions that
        were asked jointly with it. The design effect is in the intervals.
        """
        from noisette.survey.estimation.weighting import weighted

        return weighted(self, margins)

    # --- tables and pictures

    def _parts(self, level: float) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of each question: its name, its quantities, the group, and columns of numbers."""
        for answer in self.values():
            name, estimate = answer.question.name, answer.estimate
            if answer.question.tells == "texts":
                found = answer.top(level=level)
                columns = [found[one].to_numpy(float) for one in ("share", "std_error", "low", "high")]
                counts = np.full(len(found), found.attrs["reports"])
                yield name, found["text"].tolist(), self.group, *columns, counts
            else:
                numbers = (estimate.value, estimate.std_error, *estimate.interval(level), estimate.count)
                yield name, answer.question.estimated, self.group, *numbers

    def table(self, *, level: float | None = None) -> pd.DataFrame:
        """Return a tidy table: everybody first, then each value of each public group."""
        level = self.level if level is None else level
        parts = list(self._parts(level))
        if self.group == ALL:
            for name in self.survey.groups:
                for one in self.by(name).values():
                    parts += one._parts(level)
        return self._noted(parts, level)

    def _noted(self, parts: list[tuple[Any, ...]], level: float, *more: str) -> pd.DataFrame:
        """Return the table of some rows, with what its numbers mean."""
        table = _frame(parts)
        table.attrs["note"] = " ".join([_note(level), *more, *units(self.survey)])
        return table

    def plot(self) -> Any:
        """Return a figure of all questions with 95 % intervals, one row for each; needs plotly."""
        from noisette.survey.charts import results_figure

        return results_figure(self)

    def _repr_html_(self) -> str:
        from noisette.survey.charts import page

        head = f"{self.users:,} reports" + ("" if self.group == ALL else f", {self.group}")
        table = self.table()
        return page(head, table, f"{table.attrs['note']} {self.survey.guarantee}.")


@dataclass(frozen=True, eq=False)
class GroupedResults(Mapping[str, Results]):
    """Results within each value of a group, by value; a private choice has only a table, as nobody's group is known."""

    name: str
    groups: Mapping[str, Results]
    private: tuple[tuple[Any, ...], ...] = ()

    def __getitem__(self, label: str) -> Results:
        if self.private:
            raise KeyError(f"The group {self.name!r} is private. Take table(), which has the means within it.")
        if label not in self.groups:
            raise KeyError(f"No value {label!r} of {self.name!r}; the values are {', '.join(self.groups)}.")
        return self.groups[label]

    def __iter__(self) -> Iterator[str]:
        return iter(self.groups)

    def __len__(self) -> int:
        return len(self.groups)

    def table(self) -> pd.DataFrame:
        """Return a tidy table of all values of the group."""
        private = [(row[0], [row[1]], row[2], *([number] for number in row[3:])) for row in self.private]
        return _frame([own for one in self.values() for own in one._parts(one.level)] + private)

    def _repr_html_(self) -> str:
        from noisette.survey.charts import page

        return page(f"By {self.name}", self.table(), "")


@dataclass(frozen=True, eq=False)
class Answer:
    """What the reports say about one question."""

    question: Topic
    estimate: Estimate
    results: Results

    def __repr__(self) -> str:
        return f"Answer({self.question.name!r}, {int(self.estimate.count.max()):,} reports)"

    @property
    def reports(self) -> int:
        """How many reports are about the question; fewer than people where each answers some questions only."""
        return int(self.estimate.count.max())

    @property
    def mean(self) -> Any:
        """The mean: a number, an array of the shape of a vector or tensor, a date or a time of day.

        Of several choices it is the mean number of options.
        """
        if (number := number_name(self.question.name)) in self.results:
            return self.results[number].mean
        return self._shown(self._shaped(self.estimate.value))

    @property
    def variance(self) -> float:
        """The variance of a number whose question asks for it."""
        return float(self.estimate.value[self._place("variance")])

    def _place(self, quantity: str) -> int:
        known = self.question.estimated
        if quantity not in known:
            raise AttributeError(
                f"{self.question.name!r} has no {quantity}: take what it was asked for, {', '.join(known[:3])}."
            )
        return known.index(quantity)

    def _shown(self, value: Any) -> Any:
        """Return a value as the question's axis shows it."""
        own = self.question
        return own.shown(value) if isinstance(own, Number) and own.axis != "number" else value

    def _on_axis(self, value: float) -> Any:
        """Return a value that somebody may have: a date, a time of day, a whole number where they are whole."""
        return self.question.shown(value) if isinstance(self.question, Number) else value

    @property
    def std_error(self) -> Any:
        """The standard error of the mean, or of each share or quantile, or of what a pair has."""
        if self._several:
            return self._series(self.estimate.std_error)
        return self._shaped(self.estimate.std_error)

    def _shaped(self, values: FloatArray) -> Any:
        if self.question.tells != "mean":
            instead = "shares" if self.question.tells == "shares" else "top()"
            raise AttributeError(f"{self.question.name!r} has no mean. Take its {instead}.")
        shape = self.question.domain.shape
        place = self._place("mean") if not shape and values.size > 1 else 0
        return values.reshape(shape) if shape else float(values[place])

    @property
    def response_rate(self) -> float:
        """The share of people who answered an optional question; the mean and the shares are among them."""
        name = rate_name(self.question.name)
        return float(self.results[name].estimate.value[0]) if name in self.results else 1.0

    @property
    def shares(self) -> pd.Series:
        """The share of each label, unbiased: a rare one may come out below zero."""
        if self.question.tells != "shares":
            others = "a table()" if self._pair else "quantiles" if self._several else "a mean"
            instead = "top()" if self.question.tells == "texts" else others
            raise AttributeError(f"{self.question.name!r} is no choice: take {instead}.")
        return self._series(self.estimate.value)

    def top(self, texts: int = 20, *, level: float | None = None) -> pd.DataFrame:
        """Return the most frequent texts that were found, at most this many: text, share, low, high, std_error.

        The interval of each single text holds, although the text was chosen for its large share: it comes from people
        who had no part in choosing it, or is corrected for the choice. All rows together are another matter: of ten
        equally frequent texts the first row is too large. With ``level=1 - 0.05 / 10`` ten intervals hold together.
        Texts too rare to differ from chance are not shown; ``attrs["note"]`` gives that share.
        """
        if self.question.tells != "texts":
            raise AttributeError(
                f"{self.question.name!r} asks for no texts, so it has no top(). Take .shares or .mean."
            )
        from noisette.survey.coding.texts import top_texts

        return top_texts(self._found(texts), self._level(level))

    def _found(self, texts: int = 20, apart: bool = False) -> Found:
        """Return up to ``texts`` frequent texts; with ``apart``, without the people who measure shares."""
        known: dict[Any, Found] = self.results._kept
        if (self.question.name, texts, apart) not in known:
            section, sums = self.results.sums.about(self.question.name)
            found = section.items[0].found(section.mechanism, sums, texts, apart=apart)
            known[self.question.name, texts, apart] = found
        return known[self.question.name, texts, apart]

    def chosen(self) -> list[str]:
        """Return the texts that are frequent among the people who do not measure."""
        found = self._found(apart=True)
        return [found.texts[row] for row in np.flatnonzero(found.shown)[: found.asked]]

    def measured(self, texts: Sequence[str]) -> Estimate:
        """Return the shares of texts, by the people who had no part in choosing what is shown."""
        section, sums = self.results.sums.about(self.question.name)
        made: Estimate = section.items[0].measured(section.mechanism, sums, texts)
        return made

    @property
    def _pair(self) -> bool:
        """Whether it is about two questions together."""
        return isinstance(self.question, Joint)

    @property
    def _several(self) -> bool:
        """Whether there are several quantities, by name, rather than a mean."""
        return self._pair or self.question.tells == "shares" or isinstance(self.estimate, CdfEstimate)

    def _series(self, values: FloatArray) -> pd.Series:
        import pandas as pd

        what = "share" if self.question.tells == "shares" else "value" if self._pair else "quantile"
        return pd.Series(values, index=pd.Index(self.question.estimated, name=self.question.name), name=what)

    def interval(self, level: float | None = None) -> Any:
        """Return both ends of the interval of the mean, or a table of those of shares, quantiles or what a pair has."""
        low, high = self.estimate.interval(self._level(level))
        if not self._several:
            return self._shown(self._shaped(low)), self._shown(self._shaped(high))
        import pandas as pd

        ends = {"low": self._series(low), "high": self._series(high)}
        return pd.DataFrame(
            {name: one if self.question.tells == "shares" else one.map(self._on_axis) for name, one in ends.items()}
        )

    @cached_property
    def _shape(self) -> Shape:
        found = shape_of(self.results.sums, self.question)
        if isinstance(found, str):
            raise ValueError(f"The distribution of {self.question.name!r} is not estimated. {found}")
        return found

    @cached_property
    def _bins(self) -> FloatArray:
        return self._shape.shares()

    def quantile(self, chance: float) -> Any:
        """Return the value below which this share of people lies: 0.5 gives the median.

        It is read off the distribution function where quantiles are wanted, else off the smoothed distribution.
        """
        if isinstance(self.estimate, CdfEstimate):
            return self._on_axis(self.estimate.quantile(_chance(chance)))
        return self._on_axis(float(quantiles(self._shape.edges, self._bins, (_chance(chance),))[0]))

    def quantile_interval(self, chance: float, level: float | None = None) -> tuple[Any, Any]:
        """Return an interval for a quantile that holds with probability ``level`` at least, at any distribution.

        Nothing is assumed about smoothness. Where want="quantiles" it is as narrow as that allows, elsewhere wide.
        """
        level = self._level(level)
        if isinstance(self.estimate, CdfEstimate):
            low, high = self.estimate.quantile_interval(_chance(chance), level)
            return self._on_axis(low), self._on_axis(high)
        low, high = self._shape.quantile_interval(_chance(chance), level)
        value = float(quantiles(self._shape.edges, self._bins, (_chance(chance),))[0])
        return self._on_axis(min(low, value)), self._on_axis(max(high, value))

    def _level(self, level: float | None) -> float:
        level = self.results.level if level is None else level
        if not 0 < level < 1:
            raise ValueError(f"Expected level={level!r} in (0, 1), e.g. 0.95.")
        return level

    def share_between(self, low: Any, high: Any, level: float | None = None) -> tuple[float, float, float]:
        """Return the share of people from one value up to another, which is left out, and its interval.

        The interval holds at any distribution; it needs want="quantiles". ``-inf`` and ``inf`` are the ends.
        """
        if not isinstance(self.estimate, CdfEstimate):
            raise ValueError(
                f'Shares of ranges of {self.question.name!r} need another question: ask it with want="quantiles".'
            )
        axis = self.question.axis if isinstance(self.question, Number) else "number"
        first, last = (end if axis_of(end) == "number" else number_of(end, axis, "end") for end in (low, high))
        value, least, most = self.estimate.between(first, last, self._level(level))
        return min(max(value, least), most), least, most

    def histogram(self, bins: int = 20) -> pd.DataFrame:
        """Return the share of people in each of ``bins`` equal bins of the range.

        Where want="quantiles" each share has an interval that holds at any distribution. Elsewhere it is a picture,
        smoothed, without an interval, and `attrs` says so.
        """
        table = self.bars(bins)
        if isinstance(self.question, Number) and self.question.axis != "number":
            for end in ("low", "high"):
                table[end] = [self.question.shown(value) for value in table[end]]
        return table

    def bars(self, bins: int) -> pd.DataFrame:
        """Return the same with dates and times of day as numbers."""
        import pandas as pd

        count = _validate.integer(bins, "bins", low=1, high=1000)
        if isinstance(self.estimate, CdfEstimate):
            found = self.estimate
            ends = found.bins(count)
            rows = [found.between(a, b, self.results.level) for a, b in pairwise(ends.tolist())]
            share, least, most = zip(*rows, strict=True)
            columns = {"share": share, "share_low": least, "share_high": most}
            table = pd.DataFrame({"low": ends[:-1], "high": ends[1:]} | columns)
            table.attrs["note"] = f"Each {self.results.level:.0%} interval holds by itself, at any distribution."
            return table
        edges, shares = self._shape.edges, self._bins
        ends = np.linspace(edges[0], edges[-1], count + 1)
        below = np.interp(ends, edges, np.concatenate([[0.0], np.cumsum(shares / shares.sum())]))
        table = pd.DataFrame({"low": ends[:-1], "high": ends[1:], "share": np.diff(below)})
        table.attrs["note"] = NO_INTERVAL
        return table

    def table(self) -> pd.DataFrame:
        """Return the rows of `Results.table` about this question."""
        found = self.results.table()
        return found[found["question"] == self.question.name].reset_index(drop=True)

    def plot(self) -> Any:
        """Return a figure: the distribution where it is wanted, else the estimates with intervals; needs plotly."""
        from noisette.survey.charts import answer_figure

        return answer_figure(self)

    def _repr_html_(self) -> str:
        from noisette.survey.charts import page

        return page(self.question.name, self.table(), "")


def _note(level: float) -> str:
    """Return what the intervals of a table hold for."""
    return f"Intervals of {level:.0%} hold for each quantity by itself."


def units(survey: Survey) -> list[str]:
    """Return what the numbers of a table mean where they stand for dates or times of day."""
    words = {"date": "days since 1970-01-01", "time": "seconds since midnight"}
    dated = [one for one in survey.questions if isinstance(one, Number) and one.axis != "number"]
    return [f"{one.name} is in {words[one.axis]}." for one in dated]


def within(survey: Survey, name: str) -> list[Within]:
    """Return how numbers are asked together with a choice, which is private."""
    return [item for item in survey.items if isinstance(item, Within) and item.choice.name == name]


def _chance(chance: float) -> float:
    if not 0 <= _validate.number(chance, "quantile") <= 1:
        raise ValueError(f"Expected a quantile in [0, 1], got {chance!r}. The median is 0.5.")
    return float(chance)


def _frame(parts: list[tuple[Any, ...]]) -> pd.DataFrame:
    """Return the table of the rows of several questions."""
    import pandas as pd

    sizes = [len(own[1]) for own in parts]
    names, groups = (np.repeat(np.asarray([own[at] for own in parts], dtype=object), sizes) for at in (0, 2))
    alone = len(parts) == 1  # nothing is copied
    quantities = parts[0][1] if alone else [one for own in parts for one in own[1]]
    numbers = [
        np.ravel(parts[0][at]) if alone else np.concatenate([np.ravel(own[at]) for own in parts])
        for at in range(3, len(COLUMNS))
    ]
    return pd.DataFrame(dict(zip(COLUMNS, (names, quantities, groups, *numbers), strict=True)))
