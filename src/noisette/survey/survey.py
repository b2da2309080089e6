"""A survey: what is asked of people and at which budget, the mechanisms that answer, and the way to results."""

from __future__ import annotations

import math
import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from noisette import _random, _validate
from noisette._random import Rng
from noisette._validate import FloatArray, IntArray
from noisette.guarantees import Guarantee
from noisette.mechanisms.written import law_sha256
from noisette.survey.coding.items import Item, Topic
from noisette.survey.coding.sections import Section, Together, read_sections
from noisette.survey.draws import PublicDraws
from noisette.survey.questions import Question, read_question, text, texts

if TYPE_CHECKING:
    from noisette.survey.coding.columns import Columns
    from noisette.survey.plans import SurveyPlan
    from noisette.survey.reports import SurveyReports
    from noisette.survey.results import Results, SurveyAggregate
    from noisette.survey.sums import Layout

MOST_CELLS = 1000  # of public groups, all combinations of their values
FIELDS = frozenset({"questions", "epsilon", "delta", "groups", "joint", "breakdown", "mechanism", "report", "users"})
OLD_NAMES = {"attributes": "questions", "public_group": "groups"}  # in files, which both are read
# what a campaign adds, and what a collector's operator decides about it, see noisette.collector.campaigns.life
LIFE = frozenset({"id", "title", "period", "answers", "tokens", "begins", "periods", "form"}) | frozenset(
    {"opens", "closes", "late", "skew", "least", "keep", "liars", "wanted", "webhook"}
)
_NUMBERS = {int, float}  # of a report in JSON: true and false are none
_LEAST = 1e-6  # budget of a survey: a hundred trillion people would tell a mean to within a hundredth
_USUAL_USERS = 10_000  # to compare mechanisms for, where nobody says how many are hoped for

T = TypeVar("T")
Rows = npt.NDArray[Any]  # structured: one row a user, one field a section


@dataclass(frozen=True, eq=False, repr=False)
class Survey:
    """Questions, and the budget that one person's answers to all of them spend.

    ``groups`` are public: people state theirs openly, and everything is estimated within each. ``joint`` names pairs of
    questions that are asked together, as one: two choices give their crosstab, a choice and a number the means within
    the choice (which stays private), two numbers their correlation. ``mechanism`` is "auto", one name for all questions
    that it fits, or a name for each question; ``report`` is how many numbers and choices each person reports, chosen
    for you by default. ``users`` is how many people are hoped for. ``breakdown`` is an old word for joint pairs of a
    choice and every number.

    >>> from noisette.survey.questions import Choice, Number
    >>> survey = Survey([Number("age", 18, 99), Choice("diet", ["none", "vegan"])], epsilon=4.0)
    >>> reports = survey.privatize({"age": [30, 41, 55, 60], "diet": ["none", "vegan", "none", "none"]}, rng=7)
    >>> results = survey.estimate(reports)
    >>> results["diet"].shares.index.tolist()
    ['none', 'vegan']
    """

    questions: Sequence[Question]
    _: KW_ONLY
    epsilon: float
    delta: float = 0.0
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    joint: Sequence[Sequence[str]] = ()
    mechanism: str | Mapping[str, str] = "auto"
    report: int | None = None
    users: int | None = None
    breakdown: InitVar[Sequence[str]] = ()
    answering: Together = None  # type: ignore[assignment]  # __post_init__ chooses the mechanisms

    def __post_init__(self, breakdown: Sequence[str]) -> None:
        questions = _questions(self.questions)
        checked: dict[str, Any] = {
            "questions": questions,
            "epsilon": _epsilon(self.epsilon),
            "delta": _validate.delta(self.delta),
            "groups": _groups(self.groups, {one.name for one in questions}),
            "joint": _joint([*_pairs(self.joint), *_breakdown(breakdown, questions)], questions),
            "mechanism": _asked(self.mechanism),
            "users": None if self.users is None else _validate.integer(self.users, "users", low=1),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        _distinct([one.name for item in self.items for one in item.questions])
        plain = sum(one.plain for one in self.items)
        if self.report is not None:
            object.__setattr__(self, "report", _validate.integer(self.report, "report", low=1, high=plain or None))
        if self.answering is None:
            from noisette.survey.choosing import Allowance, choose  # a device chooses nothing

            budget = Allowance(self.epsilon, self.delta, self.users or _USUAL_USERS)
            made = choose(self.items, budget, checked["mechanism"], self.report)
            object.__setattr__(self, "answering", made)

    # --- what is asked, in a file and for another process

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Survey:
        """Read a survey from a YAML file; of a campaign's file it is what is asked."""
        return named_errors(path, lambda: cls.from_dict(read_fields(path)))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the survey to a YAML file, which appears whole or not at all."""
        import yaml

        from noisette._files import whole_file

        fields = {name: value for name, value in self.terms().items() if value not in (None, [], {})}
        written = yaml.dump(fields, Dumper=_yaml_classes()[1], sort_keys=False, allow_unicode=True)
        with whole_file(Path(path)) as stream:
            stream.write(written.encode())

    @classmethod
    def from_dict(cls, fields: Any) -> Survey:
        """Check a survey as it was written, and choose its mechanisms."""
        return cls(**_terms(fields))

    def terms(self) -> dict[str, Any]:
        """Return the survey as an analyst would write it, with every default spelt out."""
        return {
            "questions": [one.written() for one in self.questions],
            "epsilon": self.epsilon,
            "delta": self.delta,
            "groups": {name: list(values) for name, values in self.groups.items()},
            "joint": [list(pair) for pair in self.joint],
            "mechanism": self.mechanism if isinstance(self.mechanism, str) else dict(self.mechanism),
            "report": self.report,
            "users": self.users,
        }

    def spec(self) -> dict[str, Any]:
        """Return a JSON description with the mechanisms as they were chosen; `from_spec` reads it back."""
        return self.terms() | {"spec": self.randomizer.spec()}

    @classmethod
    def from_spec(cls, fields: Any) -> Survey:
        """Rebuild a survey with the mechanisms that its description names; nothing is chosen anew."""
        if not isinstance(fields, Mapping):
            raise TypeError(f"Expected the description of a survey, got {fields!r:.60}.")
        terms = _terms({name: value for name, value in fields.items() if name != "spec"})
        return cls(**terms, answering=read_sections(cls._items_of(terms), fields.get("spec", {})))

    @staticmethod
    def _items_of(terms: Mapping[str, Any]) -> tuple[Item, ...]:
        """Return what is asked by terms that may still be wrong."""
        asked = _questions(terms["questions"])
        pairs = [*_pairs(terms.get("joint", ())), *_breakdown(terms.get("breakdown", ()), asked)]
        return items_of(asked, _joint(pairs, asked))

    def __eq__(self, other: object) -> bool:
        return self.spec() == other.spec() if isinstance(other, Survey) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # equal by content

    def __repr__(self) -> str:
        groups = f", groups: {', '.join(self.groups)}" if self.groups else ""
        return f"Survey({', '.join(one.name for one in self.questions)}; epsilon={self.epsilon:g}{groups})"

    # --- what answers

    @cached_property
    def items(self) -> tuple[Item, ...]:
        """What is really asked: the questions, coded where they need it."""
        return items_of(self.questions, self.joint)

    @cached_property
    def topics(self) -> tuple[Topic, ...]:
        """What results contain: the questions, then what follows from them, such as crosstabs and response rates."""
        asked = {one.name for one in self.questions}
        return (*self.questions, *(one for item in self.items for one in item.questions if one.name not in asked))

    @property
    def sections(self) -> tuple[Section, ...]:
        """The items that are answered together, with their mechanisms."""
        return self.answering.sections

    @property
    def draw(self) -> tuple[int, ...]:
        """Weights of the sections where each person answers one of them; none where she answers all."""
        return self.answering.draw

    @property
    def randomizer(self) -> Any:
        """The one mechanism, or those of all sections together."""
        return self.sections[0].mechanism if len(self.sections) == 1 else self.answering

    @property
    def guarantee(self) -> Guarantee:
        """What one person's answers to all questions spend."""
        found: Guarantee = self.randomizer.guarantee
        return found

    @property
    def domain(self) -> Any:
        """What the mechanism is asked about, or those of all sections are."""
        return self.randomizer.domain

    def written_law(self) -> dict[str, Any] | None:
        """Return the law of one person's reports, as a certificate states it, None where a mechanism has none."""
        law: dict[str, Any] | None = self.randomizer.written_law()
        return law

    @cached_property
    def law_sha256(self) -> str:
        """Hash of the law, which goes with every report."""
        return law_sha256(self)

    @property
    def uncertified(self) -> str:
        """Why there is no certificate, where there is none."""
        return str(self.randomizer.uncertified)

    @cached_property
    def quantities(self) -> tuple[str, ...]:
        """Names of the means and shares that are estimated, section by section."""
        return tuple(name for section in self.sections for name in section.quantities)

    def topic(self, name: str) -> Topic:
        """Return the part of the results with this name: a question, or what follows from several."""
        return next(one for one in self.topics if one.name == name)

    def question(self, name: str) -> Question:
        """Return a question by its name."""
        for one in self.questions:
            if one.name == name:
                return one
        if name in [one.name for one in self.topics]:
            raise KeyError(f"{name!r} is not asked by itself: take the questions whose answers it follows from.")
        raise KeyError(f"No question {name!r}; the questions are {', '.join(one.name for one in self.questions)}.")

    @cached_property
    def layout(self) -> Layout:
        """Where each sum of reports lies."""
        from noisette.survey.sums import Layout

        return Layout(self)

    # --- public groups

    @property
    def cells(self) -> int:
        """How many combinations of public groups there are."""
        return math.prod(len(values) for values in self.groups.values())

    def members(self, group: str) -> dict[str, IntArray]:
        """Return for each value of a public group the cells that it is made of."""
        if group not in self.groups:
            raise KeyError(f"No public group {group!r}; the groups are {', '.join(self.groups) or 'none'}.")
        shape = [len(values) for values in self.groups.values()]
        place = list(self.groups).index(group)
        own = np.moveaxis(np.arange(self.cells).reshape(shape), place, 0)
        return {label: cells.ravel() for label, cells in zip(self.groups[group], own, strict=True)}

    def cells_of(self, columns: Columns) -> npt.NDArray[Any] | None:
        """Return the combination of public groups of each row."""
        if not self.groups:
            return None
        found = np.zeros(columns.rows, dtype=np.int64)
        for name, values in self.groups.items():
            found = found * len(values) + columns.codes(name, values)
        return found.astype(np.uint16)

    # --- before collecting

    def plan(self, users: int | None = None, *, shares: Mapping[str, Mapping[str, float]] | None = None) -> SurveyPlan:
        """Predict the error of every quantity in every group, and judge whether it is worth asking.

        ``shares`` says for a group how many of the users have each value; they are as many for each by default.
        """
        from noisette.survey.plans import SurveyPlan

        count = self.users if users is None else _validate.integer(users, "users", low=1)
        if count is None:
            raise ValueError("Expected how many users will answer, e.g. users=20000 (--users 20000).")
        return SurveyPlan.of(self, count, shares or {})

    def predict(self, users: int, periods: int = 1) -> FloatArray:
        """Return the standard error of each quantity if each of ``users`` people reports in one of ``periods`` periods.

        It is that of the worst distribution: of the numbers, or of the choices on average, the root mean square over
        the labels. If many users share a label its error is larger, and those of the other labels are smaller.
        """
        return self.answering.predict(users, periods)

    # --- on the device

    def encode(self, values: Mapping[str, Any], *, clip: bool = False) -> dict[str, npt.NDArray[Any]]:
        """Return one person's answers as mechanisms take them: labels as codes, numbers clipped where asked."""
        names = [one.name for one in self.questions]
        if isinstance(values, Mapping):
            values = {one.name: None for one in self.questions if one.optional} | dict(values)
        if not isinstance(values, Mapping) or set(values) != set(names):
            got = sorted(map(str, values)) if isinstance(values, Mapping) else type(values).__name__
            raise ValueError(f"Expected a value for each of {', '.join(names)}, got {got}.")
        return {one.name: one.code(values[one.name], clip=clip) for one in self.questions}

    def answer(
        self, values: Mapping[str, Any], *, clip: bool = False, signature: bytes | None = None, rng: Rng = None
    ) -> Any:
        """Return one person's report as JSON: a number or lists of numbers, or a list of these, one for a section.

        With a ``signature`` all that is drawn in public for her follows from it, as `follows` checks.
        """
        coded = {name: value[None] for name, value in self.encode(values, clip=clip).items()}
        return self.written(self.privatize_coded(coded, signature=signature, rng=rng)[0])

    def written(self, row: Any) -> Any:
        """Return the row of one report as JSON has it."""
        if self.draw:
            drawn = int(row["drawn"])
            return [drawn, row[f"part{drawn}"].tolist()]
        sent = [row[name].tolist() for name in self.row.names or ()]
        return sent[0] if len(sent) == 1 else sent

    def privatize(self, data: Any, *, clip: bool = False, rng: Rng = None) -> SurveyReports:
        """Return a report for each row of a DataFrame, an Arrow table, a dict of columns or a list of dicts.

        Columns have the names of the questions and of the public groups; others are left alone. Nothing is reported
        unless every answer is admissible; numbers outside their range are moved to its nearer end where ``clip``.
        """
        from noisette.survey.coding.columns import columns_of

        return self._privatized(columns_of(data, self.questions, self.groups), clip=clip, rng=rng)

    def _privatized(self, columns: Columns, *, clip: bool, rng: Rng) -> SurveyReports:
        from noisette.survey.reports import SurveyReports

        coded = {one.name: one.column(columns, clip=clip) for one in self.questions}
        return SurveyReports(self, self.privatize_coded(coded, rng=rng), self.cells_of(columns))

    def privatize_file(
        self,
        path: str | os.PathLike[str],
        output: str | os.PathLike[str],
        *,
        clip: bool = False,
        rng: Rng = None,
        on_progress: Callable[[float], None] | None = None,
    ) -> int:
        """Turn a CSV or Parquet file of any size into a file of reports, and return the number of reports.

        The memory does not grow with the file. The reports appear whole or not at all. ``on_progress`` is
        called with the share of the file that was read.
        """
        from noisette.survey.coding.columns import columns_of_file
        from noisette.survey.reports import write

        if os.path.exists(output) and os.path.realpath(output) == os.path.realpath(path):
            raise ValueError(f"The output {output} is the input: it would replace the raw data. Name another file.")
        source = _random.generator(rng)

        def batches() -> Iterator[SurveyReports]:
            for columns in columns_of_file(Path(path), self.questions, self.groups):
                yield self._privatized(columns, clip=clip, rng=source)
                if on_progress is not None:
                    on_progress(columns.share)

        return write(Path(output), self, batches())

    def privatize_coded(
        self, coded: Mapping[str, npt.NDArray[Any]], *, signature: bytes | None = None, rng: Rng = None
    ) -> Rows:
        """Return the reports of many users as rows; each question has its values, labels as codes, along one axis.

        A ``signature`` is that of one user's token.
        """
        source = _random.generator(rng)
        found = np.zeros(len(next(iter(coded.values()))), dtype=self.row)
        if signature is not None and len(found) != 1:
            raise ValueError(f"Expected the answers of one user for a signature, got {len(found)}.")
        if self.draw:
            found["drawn"] = self.answering.drawn(
                self._public(signature, "section", source).integers(0, sum(self.draw), size=len(found))
            )
        for place, section in enumerate(self.sections):
            drawn = None if signature is None else section.draw(1, self._public(signature, f"part{place}", source))
            if not self.draw:
                found[f"part{place}"] = section.privatize(coded, rng=source, drawn=drawn)
            elif (own := np.flatnonzero(found["drawn"] == place)).size:
                answers = {name: values[own] for name, values in coded.items()}
                found[f"part{place}"][own] = section.privatize(answers, rng=source, drawn=drawn)
        return found

    def _public(self, signature: bytes | None, purpose: str, source: np.random.Generator) -> Any:
        """Return what draws in public: the signature where there is one."""
        return source if signature is None else PublicDraws(signature, purpose)

    def follows(self, row: Rows, signature: bytes) -> bool:
        """Tell whether all that one user's report shows as drawn follows from the signature of her token."""
        rows = np.asarray(row).reshape(1)
        if self.draw:
            wanted = self.answering.drawn(PublicDraws(signature, "section").integers(0, sum(self.draw), 1))
            if rows["drawn"][0] != wanted[0]:
                return False
        for place, section in enumerate(self.sections):
            own = section.draw(1, PublicDraws(signature, f"part{place}"))
            sent = self.part(rows, place)
            if own is not None and len(sent):
                shown = section.mechanism.drawn(section.reports(sent))
                if not np.array_equal(np.asarray(shown).reshape(-1), np.asarray(own).reshape(-1)):
                    return False
        return True

    def part(self, rows: Rows, place: int) -> npt.NDArray[Any]:
        """Return the reports about one section: those of all people, or of those who drew it."""
        sent: npt.NDArray[Any] = rows[f"part{place}"]
        return sent.take(np.flatnonzero(rows["drawn"] == place), axis=0) if self.draw else sent  # sooner than a mask

    # --- reports

    @cached_property
    def row(self) -> np.dtype[Any]:
        """The type of one user's report in memory, in a file, in a binary batch and in the database."""
        parts: list[Any] = [(f"part{place}", own.dtype, own.shape) for place, own in enumerate(self.sections)]
        return np.dtype(parts + ([("drawn", np.min_scalar_type(len(parts)).newbyteorder("<"))] if self.draw else []))

    def rows(self, reports: Sequence[Any]) -> Rows:
        """Return reports that were JSON as rows, refusing what has another shape or type."""
        found = np.zeros(len(reports), dtype=self.row)
        if self.draw:
            return self._drawn_rows(reports, found)
        several = len(self.sections) > 1
        if several and not all(isinstance(one, list) and len(one) == len(self.sections) for one in reports):
            raise ValueError(f"Expected a report to be a list of {len(self.sections)}, one for each section.")
        for place, section in enumerate(self.sections):
            own = [one[place] for one in reports] if several else reports
            found[f"part{place}"] = _array(section, own)
        return found

    def _drawn_rows(self, reports: Sequence[Any], found: Rows) -> Rows:
        """Fill in reports, each about the one section that its person drew."""
        known = range(len(self.sections))
        if not all(type(one) is list and len(one) == 2 and type(one[0]) is int and one[0] in known for one in reports):
            raise ValueError(f"Expected a report to be the number of a section below {len(known)} and a report on it.")
        found["drawn"] = [one[0] for one in reports]
        for place, section in enumerate(self.sections):
            own = np.flatnonzero(found["drawn"] == place)
            if own.size:
                found[f"part{place}"][own] = _array(section, [reports[row][1] for row in own.tolist()])
        return found

    def decode(self, reports: Sequence[Any]) -> Rows:
        """Return reports that were JSON as rows, refusing what the mechanisms cannot have sent."""
        found = self.rows(reports)
        self.check(found)
        return found

    def check(self, rows: Rows) -> None:
        """Refuse rows that the mechanisms cannot have sent."""
        for section, values in zip(self.sections, self.parts(rows), strict=True):
            if values.dtype.kind == "f" and not np.isfinite(values).all():
                raise ValueError("Expected the numbers of a report to be finite.")
            if len(values):
                section.tally(values)

    def parts(self, rows: Rows) -> Iterator[npt.NDArray[Any]]:
        """Yield the reports about each section; refuse rows about several, where each person answers one."""
        if self.draw and rows["drawn"].max(initial=0) >= len(self.sections):
            raise ValueError(f"Expected a report on one of {len(self.sections)} sections.")
        for place in range(len(self.sections)):
            sent = self.part(rows, place)
            if self.draw and np.count_nonzero(rows[f"part{place}"]) > np.count_nonzero(sent):
                raise ValueError("Expected a report on the section that was drawn, and zeros for the others.")
            yield sent

    def aggregate(self, reports: Any) -> SurveyAggregate:
        """Sum reports, a file of them, or several of either; the sums of any cut into batches add up to the same bits.

        ``a + b`` and ``a.merge(b)`` add aggregates, ``results()`` estimates.
        """
        from noisette.survey.reports import SurveyReports, batches_of
        from noisette.survey.results import SurveyAggregate

        found = SurveyAggregate.nothing(self)
        several = not isinstance(reports, SurveyReports | str | os.PathLike)
        for one in reports if several else [reports]:
            for batch in batches_of(self, one):
                found += SurveyAggregate.of(batch)
        return found

    def estimate(self, reports: Any, *, enhance: str = "none", level: float = 0.95) -> Results:
        """Return what reports say: estimates with intervals of confidence ``level``, within groups, and differences.

        ``enhance`` names a free post-processing, see `noisette.enhance`.
        """
        return self.aggregate(reports).results(enhance=enhance, level=level)


def named_errors(path: Any, make: Callable[[], T]) -> T:
    """Do what may find fault with a file, naming the file then."""
    try:
        return make()
    except (TypeError, ValueError) as error:
        message = str(error)
        raise ValueError(message if message.startswith(f"{path}") else f"{path}: {message}") from error


def read_fields(path: str | os.PathLike[str]) -> Any:
    """Return what a YAML file holds."""
    import yaml

    try:
        return yaml.load(Path(path).read_text(encoding="utf-8"), Loader=_yaml_classes()[0])
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{path} is not a YAML file: {' '.join(str(error).split())}. "
            "Correct that line, or write the file by survey.save()."
        ) from error


@cache
def _yaml_classes() -> tuple[Any, Any]:
    """Return a safe reader of YAML to which 1e6 and 2E-3 are numbers, as in JSON and in YAML 1.2, and its writer.

    Only a writer that knows so puts a label such as "1e6" in quotes.
    """
    import yaml

    class Loader(yaml.SafeLoader):
        pass

    class Dumper(yaml.SafeDumper):
        pass

    number = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$")
    for one in (Loader, Dumper):
        one.add_implicit_resolver("tag:yaml.org,2002:float", number, list("-+0123456789"))
    return Loader, Dumper


def _terms(fields: Any) -> dict[str, Any]:
    """Return the arguments of `Survey` from the fields of a file; those of a campaign's life are left out."""
    if not isinstance(fields, Mapping):
        raise TypeError(f"Expected a survey with questions and an epsilon, got {fields!r:.60}.")
    for old, new in OLD_NAMES.items():
        if old in fields and new in fields:
            raise ValueError(f"Expected {new!r} or its old name {old!r}, got both.")
    named = {OLD_NAMES.get(str(name), str(name)): value for name, value in fields.items()}
    if unknown := sorted(set(named) - FIELDS - LIFE):
        raise ValueError(f"Unknown field {unknown[0]!r} in a survey; expected some of {', '.join(sorted(FIELDS))}.")
    if lacking := sorted({"questions", "epsilon"} - set(named)):
        raise ValueError(f"Expected a field {lacking[0]!r} in the survey.")
    entries = named["questions"]
    if not isinstance(entries, list) or not entries:
        raise ValueError(f"Expected questions={entries!r} to be a list of at least one question.")
    named["questions"] = tuple(read_question(entry) for entry in entries)
    if "public_group" in fields:
        named["groups"] = _one_group(fields["public_group"])
    if not isinstance(named.get("breakdown", []), list):
        raise ValueError(f"Expected breakdown={named['breakdown']!r} to be a list.")
    return {name: value for name, value in named.items() if name in FIELDS}


def items_of(questions: Sequence[Question], joint: Sequence[Sequence[str]]) -> tuple[Item, ...]:
    """Return what is really asked: pairs of questions as one, and the others by themselves.

    A question of several pairs is estimated from the first of them.
    """
    from noisette.survey.coding.joints import joint_item

    known = {one.name: one for one in questions}
    left, found = set(known), []
    for first, second in joint:
        found.append(joint_item(known[first], known[second], left))
        left -= {first, second}
    return (*(one.item for one in questions if one.name in left), *found)


def _epsilon(value: float) -> float:
    """Return a budget, refusing one so small that the largest questions would get no mechanism."""
    if (found := _validate.epsilon(value)) < _LEAST:
        raise ValueError(f"Expected epsilon={value!r} >= {_LEAST:g}: below, no number of people tells anything.")
    return found


def _questions(asked: Any) -> tuple[Question, ...]:
    """Return what is asked."""
    questions = tuple(asked) if isinstance(asked, Iterable) and not isinstance(asked, str | Mapping) else ()
    if not questions or not all(isinstance(one, Question) for one in questions):
        raise TypeError(
            f"Expected a list of at least one question, such as nz.Number('age', 18, 99), got {asked!r:.80}."
        )
    names = [one.name for one in questions]
    if len(set(names)) < len(names):
        raise ValueError(f"Expected questions of distinct names, got {names}.")
    return questions


def _distinct(names: list[str]) -> None:
    """Refuse a question that has the name of something that is estimated besides, such as a response rate."""
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(
            f"Expected another name than {twice!r} for a question: it is that of what follows from other answers, "
            "such as a response rate, a mean number of options, or a pair."
        )


def _asked(mechanism: Any) -> str | dict[str, str]:
    if isinstance(mechanism, Mapping) and all(isinstance(value, str) for value in mechanism.values()):
        return {str(key): value for key, value in mechanism.items()}
    if not isinstance(mechanism, str):
        raise TypeError(f"Expected mechanism={mechanism!r} to be auto, a name, or a name for each question.")
    return mechanism


def _one_group(group: Any) -> dict[str, Any] | None:
    """Return the one public group of a campaign's file."""
    if group is None:
        return None
    if not isinstance(group, Mapping) or set(group) != {"name", "values"}:
        raise ValueError(f"Expected public_group={group!r} to have a name and values.")
    return {text(group["name"], "name of public_group"): group["values"]}


def _groups(groups: Any, taken: set[str]) -> dict[str, tuple[str, ...]]:
    """Return the public groups and their values."""
    if groups is None:
        return {}
    if not isinstance(groups, Mapping):
        raise TypeError(f"Expected groups={groups!r} to name groups with their values, as {{'region': ['A', 'B']}}.")
    found = {}
    for name, values in groups.items():
        text(name, "name of a public group")
        if name in taken:
            raise ValueError(f"Expected the public group {name!r} to have another name than a question.")
        labels = texts(values, f"values of the public group {name!r}")
        if not 0 < len(set(labels)) == len(labels):
            raise ValueError(f"Expected distinct values of the public group {name!r}, got {list(labels)}.")
        found[name] = labels
    if math.prod(len(values) for values in found.values()) > MOST_CELLS:
        raise ValueError(f"Expected at most {MOST_CELLS:,} combinations of public groups. Ask for fewer groups.")
    return found


def _pairs(joint: Any) -> list[Any]:
    """Return pairs of questions, as they were written."""
    if not isinstance(joint, list | tuple):
        raise TypeError(f"Expected joint={joint!r} to be a list of pairs of questions, as [['diet', 'age']].")
    return list(joint)


def _joint(pairs: list[Any], questions: tuple[Question, ...]) -> tuple[tuple[str, str], ...]:
    """Return the pairs of questions that are asked together."""
    names = [one.name for one in questions]
    found: list[tuple[str, str]] = []
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) != 2 or not all(one in names for one in pair):
            raise ValueError(f"Expected {pair!r} of joint to be the names of two questions, of {', '.join(names)}.")
        if pair[0] == pair[1] or {*pair} in [{*one} for one in found]:
            raise ValueError(f"Expected each pair of joint to be two questions, and once, got {list(pair)}.")
        found.append((pair[0], pair[1]))
    return tuple(found)


def _breakdown(names: Any, questions: tuple[Question, ...]) -> list[tuple[str, str]]:
    """Return the pairs that the old word stands for: each of these choices with every number."""
    if isinstance(names, list | tuple) and not names:
        return []
    known = [one.name for one in questions if one.kind == "category"]
    numbers = [one.name for one in questions if one.kind == "number" and not one.wants_distribution]
    if not isinstance(names, list | tuple) or not all(name in known for name in names) or len(set(names)) < len(names):
        raise ValueError(f"Expected breakdown={names!r} to be a list of categorical questions, of {known}.")
    if not numbers:
        raise ValueError(f"Expected a number to break down by {', '.join(names)}.")
    pairs = [(choice, number) for choice in names for number in numbers]
    warnings.warn(
        f"breakdown={list(names)} is now joint={[list(pair) for pair in pairs]}. "
        "Use that: the old word goes in a later release.",
        DeprecationWarning,
        stacklevel=4,
    )
    return pairs


def _array(section: Section, reports: Sequence[Any]) -> npt.NDArray[Any]:
    """Return reports about one section as an array of its shape and type."""
    if not all(_numeric(report, len(section.shape)) for report in reports):
        raise ValueError(f"Expected a report of shape {section.shape}, of numbers alone.")
    try:
        found = np.asarray(reports)
    except (ValueError, OverflowError) as error:
        raise ValueError("Expected the lists of a report to have one length.") from error
    if found.shape[1:] != section.shape:
        raise ValueError(f"Expected a report of shape {section.shape}, got {found.shape[1:]}.")
    if found.dtype.kind not in "iuf" or not np.isfinite(found).all():
        raise ValueError("Expected the numbers of a report to be finite and within 64 bits.")
    if section.dtype.kind in "iu" and found.dtype.kind == "f":
        raise ValueError("Expected a report of whole numbers.")
    cast = found.astype(section.dtype, copy=False)
    if cast is not found and not (cast == found).all():
        raise ValueError(
            f"A report is outside the support: {section.mechanism.support}. Give reports of this very survey."
        )
    return cast


def _numeric(report: Any, depth: int) -> bool:
    """Tell whether this is a number in ``depth`` nested lists; true and false are not numbers."""
    if depth > 1:
        return type(report) is list and all(_numeric(entry, depth - 1) for entry in report)
    return type(report) is list and {*map(type, report)} <= _NUMBERS if depth else type(report) in _NUMBERS
