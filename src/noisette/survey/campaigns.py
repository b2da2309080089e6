"""A campaign: what is asked, of how many, at which budget, and the mechanisms that answer."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from noisette import _random, _validate
from noisette._random import Rng
from noisette._validate import FloatArray
from noisette.survey import questions as schema
from noisette.survey.parts import Part, Together, read_parts
from noisette.survey.periods import PERIODS
from noisette.survey.questions import Attribute

VERSION = 1  # of campaigns and reports on the wire
ANSWERS = ("permanent", "fresh")
TOKENS = ("open", "blind")

_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_REQUIRED = frozenset({"id", "attributes", "epsilon", "users"})
_OPTIONAL = frozenset(
    {"title", "delta", "period", "answers", "mechanism", "report", "public_group", "breakdown", "tokens"}
)
_MADE = frozenset(
    {"version", "spec", "guarantee", "predicted", "sealed"}
)  # what `to_wire` and the service add to the terms
_MOST_GROUPS = 1000
_SLACK = 1 + 2.0**-50  # floats of a budget that was split and added up again
_OWN = ("record", "local", "any-pair")  # what a promise to a user is about: the whole answer, whatever it is

Rows = npt.NDArray[Any]  # structured: one row a user, one field a part


@dataclass(frozen=True)
class PublicGroup:
    """A group that users state in the clear with their reports, and the values it may have."""

    name: str
    values: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Campaign:
    """What an analyst asks, with the mechanisms through which every device answers.

    ``epsilon`` and ``delta`` are spent by one user in one period. With ``answers="permanent"`` a device makes one
    report and sends the same one in every period, so the budget is spent once; with ``"fresh"`` every period costs it
    again. ``asked`` is the mechanism that the analyst wrote, `mechanism` the one that this became.

    >>> campaign = Campaign.from_dict(
    ...     {
    ...         "id": "commute",
    ...         "epsilon": 2.0,
    ...         "users": 10_000,
    ...         "attributes": [
    ...             {"name": "minutes", "range": [0, 120]},
    ...             {"name": "by", "categories": ["car", "bike", "bus"]},
    ...         ],
    ...     }
    ... )
    >>> campaign.quantities
    ('minutes', 'by=car', 'by=bike', 'by=bus')
    >>> reports = [campaign.privatize({"minutes": 35, "by": "bike"}, rng=seed) for seed in range(5)]
    >>> campaign.decode(reports).shape
    (5,)
    """

    id: str
    title: str
    attributes: tuple[Attribute, ...]
    epsilon: float
    delta: float
    users: int
    period: str
    answers: str
    asked: str | dict[str, str]
    report: int | None
    public_group: PublicGroup | None
    breakdown: tuple[str, ...]
    tokens: str
    parts: tuple[Part, ...] = ()

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Campaign:
        """Read a campaign from a YAML file."""
        import yaml

        try:
            found = yaml.load(Path(path).read_text(encoding="utf-8"), _loader())
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ValueError(f"{path} is not a YAML file: {' '.join(str(error).split())}.") from error
        try:
            return cls.from_dict(found)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path}: {error}") from error

    @classmethod
    def from_dict(cls, fields: Any) -> Campaign:
        """Check a campaign as it was written, and choose its mechanisms."""
        from noisette.survey.choosing import Budget, choose  # a device chooses nothing

        terms = _terms(fields)
        budget = Budget(terms.epsilon, terms.delta, terms.users)
        return replace(terms, parts=choose(terms.attributes, budget, terms.asked, terms.report, terms.breakdown))

    @classmethod
    def from_wire(cls, fields: Any) -> Campaign:
        """Read back `to_wire`, and refuse a mechanism that does not keep what the campaign promises."""
        if not isinstance(fields, Mapping) or fields.get("version") != VERSION:
            raise ValueError(f"Expected a campaign of version {VERSION}. Update noisette on the older side.")
        terms = _terms({key: value for key, value in fields.items() if key not in _MADE})
        made = replace(terms, parts=read_parts(terms.attributes, fields.get("spec", {})))
        for own in (part.mechanism.guarantee for part in made.parts):
            if (own.unit, own.model, own.relation) != _OWN:
                raise ValueError(
                    f"Campaign {terms.id!r} promises {' '.join(_OWN)} privacy, but its mechanism has {own}. "
                    "Do not answer it."
                )
        guarantee = made.mechanism.guarantee
        if guarantee.epsilon > terms.epsilon * _SLACK or guarantee.delta > terms.delta * _SLACK:
            raise ValueError(
                f"Campaign {terms.id!r} promises epsilon={terms.epsilon:g}, delta={terms.delta:g}, "
                f"but its mechanism spends {guarantee}. Do not answer it."
            )
        return made

    def terms(self) -> dict[str, Any]:
        """Return the campaign as an analyst would write it, with every default spelt out."""
        group = self.public_group
        return {
            "id": self.id,
            "title": self.title,
            "attributes": [one.written() for one in self.attributes],
            "epsilon": self.epsilon,
            "delta": self.delta,
            "users": self.users,
            "period": self.period,
            "answers": self.answers,
            "mechanism": self.asked,
            "report": self.report,
            "public_group": None if group is None else {"name": group.name, "values": list(group.values)},
            "breakdown": list(self.breakdown),
            "tokens": self.tokens,
        }

    def to_wire(self) -> dict[str, Any]:
        """Return what a device needs: the terms, the mechanism and its guarantee."""
        made = {"spec": self.mechanism.spec(), "guarantee": self.mechanism.guarantee.spec()}
        return {"version": VERSION} | self.terms() | made

    @cached_property
    def mechanism(self) -> Any:
        """The one mechanism, or all of them together."""
        return self.parts[0].mechanism if len(self.parts) == 1 else Together(self.parts)

    @cached_property
    def quantities(self) -> tuple[str, ...]:
        """Names of the means and frequencies that are estimated, part by part."""
        return tuple(name for part in self.parts for name in part.quantities)

    def predict(self, users: int | None = None) -> FloatArray:
        """Return the standard error of each quantity for so many reporting users, the target population by default.

        It is that of the worst distribution: of the numbers, or of the categories on average. A single category that
        many users share can have a somewhat larger error, the others then have a smaller one.
        """
        from noisette.prediction import deviation

        count = self.users if users is None else users
        found = [(deviation(part.mechanism, users=count).std, len(part.quantities)) for part in self.parts]
        return np.concatenate([np.broadcast_to(np.asarray(std, dtype=np.float64), (size,)) for std, size in found])

    def encode(self, values: Mapping[str, Any], *, clip: bool = False) -> dict[str, npt.NDArray[Any]]:
        """Return a user's values as mechanisms take them: labels as codes, numbers clipped where asked."""
        names = [one.name for one in self.attributes]
        if not isinstance(values, Mapping) or set(values) != set(names):
            got = sorted(map(str, values)) if isinstance(values, Mapping) else type(values).__name__
            raise ValueError(f"Expected a value for each of {', '.join(names)}, got {got}.")
        return {one.name: one.code(values[one.name], clip=clip) for one in self.attributes}

    def privatize(self, values: Mapping[str, Any], *, clip: bool = False, rng: Rng = None) -> Any:
        """Return one user's report as JSON: a number, or lists of numbers, or a list of these where parts differ."""
        coded = {name: value[None] for name, value in self.encode(values, clip=clip).items()}
        return self.written(self.privatize_coded(coded, rng=rng)[0])

    def written(self, row: Any) -> Any:
        """Return the row of one report as JSON has it."""
        sent = [row[name].tolist() for name in self.row.names or ()]
        return sent[0] if len(sent) == 1 else sent

    def privatize_coded(self, coded: Mapping[str, npt.NDArray[Any]], *, rng: Rng = None) -> Rows:
        """Return the reports of many users as rows; each attribute has its values, labels as codes, along one axis."""
        source = _random.generator(rng)
        sent = [part.privatize([coded[one.name] for one in part.attributes], rng=source) for part in self.parts]
        found = np.zeros(len(sent[0]), dtype=self.row)
        for name, reports in zip(self.row.names or (), sent, strict=True):
            found[name] = reports
        return found

    @cached_property
    def row(self) -> np.dtype[Any]:
        """The type of one user's report in memory, in a binary batch and in the database."""
        return np.dtype([(f"part{place}", part.dtype, part.shape) for place, part in enumerate(self.parts)])

    def rows(self, reports: Sequence[Any]) -> Rows:
        """Return reports that were JSON as rows, refusing what has another shape or type."""
        found = np.zeros(len(reports), dtype=self.row)
        several = len(self.parts) > 1
        if several and not all(isinstance(one, list) and len(one) == len(self.parts) for one in reports):
            raise ValueError(f"Expected a report to be a list of {len(self.parts)}, one for each part of the campaign.")
        for place, part in enumerate(self.parts):
            own = [one[place] for one in reports] if several else reports
            found[f"part{place}"] = _array(part, own)
        return found

    def decode(self, reports: Sequence[Any]) -> Rows:
        """Return reports that were JSON as rows, refusing what the mechanisms cannot have sent."""
        found = self.rows(reports)
        self.check(found)
        return found

    def check(self, rows: Rows) -> None:
        """Refuse rows that the mechanisms cannot have sent."""
        for place, part in enumerate(self.parts):
            values = rows[f"part{place}"]
            if values.dtype.kind == "f" and not np.isfinite(values).all():
                raise ValueError("Expected the numbers of a report to be finite.")
            part.aggregate(values)


def _array(part: Part, reports: Sequence[Any]) -> npt.NDArray[Any]:
    """Return reports about one part as an array of its shape and type."""
    if not all(_numeric(report, len(part.shape)) for report in reports):
        raise ValueError(f"Expected a report of shape {part.shape}, of numbers alone.")
    try:
        found = np.asarray(reports)
    except (ValueError, OverflowError) as error:
        raise ValueError("Expected the lists of a report to have one length.") from error
    if found.shape[1:] != part.shape:
        raise ValueError(f"Expected a report of shape {part.shape}, got {found.shape[1:]}.")
    if found.dtype.kind not in "iuf" or not np.isfinite(found).all():
        raise ValueError("Expected the numbers of a report to be finite and within 64 bits.")
    if part.dtype.kind in "iu" and found.dtype.kind == "f":
        raise ValueError("Expected a report of whole numbers.")
    cast = found.astype(part.dtype)
    if not np.array_equal(cast, found):
        raise ValueError(f"A report is outside the support: {part.mechanism.support}.")
    return cast


def _numeric(report: Any, depth: int) -> bool:
    """Tell whether this is a number in so many lists; true and false are none."""
    if depth:
        return isinstance(report, list) and all(_numeric(entry, depth - 1) for entry in report)
    return type(report) in (int, float)


def _terms(fields: Any) -> Campaign:
    """Check all that an analyst wrote; the mechanisms are still to come."""
    if not isinstance(fields, Mapping):
        raise TypeError(f"Expected a campaign with the fields {', '.join(sorted(_REQUIRED))}, got {fields!r}.")
    if unknown := sorted(map(str, set(fields) - _REQUIRED - _OPTIONAL)):
        known = ", ".join(sorted(_REQUIRED | _OPTIONAL))
        raise ValueError(f"Unknown field {unknown[0]!r} in a campaign; expected some of {known}.")
    if lacking := sorted(_REQUIRED - set(fields)):
        raise ValueError(f"Expected a field {lacking[0]!r} in the campaign.")
    name = fields["id"]
    if not isinstance(name, str) or not _ID.fullmatch(name):
        raise ValueError(f"Expected id={name!r} to be small letters, digits and dashes, at most 63, e.g. commute-2026.")
    choices = {"period": ("once", PERIODS), "answers": ("permanent", ANSWERS), "tokens": ("open", TOKENS)}
    chosen = {key: fields.get(key, default) for key, (default, _) in choices.items()}
    for key, (_, allowed) in choices.items():
        if chosen[key] not in allowed:
            raise ValueError(f"Expected {key}={chosen[key]!r} to be one of {', '.join(allowed)}.")
    attributes = _attributes(fields["attributes"])
    plain = sum(one.plain for one in attributes)
    report = fields.get("report")
    return Campaign(
        id=name,
        title=schema.text(fields.get("title", name), "title"),
        attributes=attributes,
        epsilon=_validate.epsilon(fields["epsilon"]),
        delta=_validate.delta(fields.get("delta", 0.0)),
        users=_validate.integer(fields["users"], "users", low=1),
        asked=_asked(fields.get("mechanism", "auto")),
        report=None if report is None else _validate.integer(report, "report", low=1, high=plain or None),
        public_group=_public_group(fields.get("public_group")),
        breakdown=_breakdown(fields.get("breakdown", []), attributes),
        **chosen,
    )


def _attributes(entries: Any) -> tuple[Attribute, ...]:
    """Return what is asked."""
    if not isinstance(entries, list) or not entries:
        raise ValueError(f"Expected attributes={entries!r} to be a list of at least one attribute.")
    found = tuple(Attribute.read(entry) for entry in entries)
    names = [one.name for one in found]
    if len(set(names)) < len(names):
        raise ValueError(f"Expected attributes of distinct names, got {names}.")
    return found


def _asked(mechanism: Any) -> str | dict[str, str]:
    if isinstance(mechanism, Mapping) and all(isinstance(value, str) for value in mechanism.values()):
        return {str(key): value for key, value in mechanism.items()}
    if not isinstance(mechanism, str):
        raise TypeError(f"Expected mechanism={mechanism!r} to be auto, a name, or a name for each attribute.")
    return mechanism


def _public_group(group: Any) -> PublicGroup | None:
    if group is None:
        return None
    if not isinstance(group, Mapping) or set(group) != {"name", "values"}:
        raise ValueError(f"Expected public_group={group!r} to have a name and values.")
    values = schema.labels(group["values"], "values of public_group")
    if not 0 < len(set(values)) == len(values) <= _MOST_GROUPS:
        raise ValueError(f"Expected 1 to {_MOST_GROUPS} distinct values of public_group, got {len(values)}.")
    return PublicGroup(schema.text(group["name"], "name of public_group"), values)


def _breakdown(names: Any, attributes: tuple[Attribute, ...]) -> tuple[str, ...]:
    """Return the categories by which numbers are broken down."""
    known = [one.name for one in attributes if one.kind == "category"]
    if not isinstance(names, list) or not all(name in known for name in names) or len(set(names)) < len(names):
        raise ValueError(f"Expected breakdown={names!r} to be a list of categorical attributes, of {known}.")
    if names and not any(one.kind == "number" for one in attributes):
        raise ValueError(f"Expected a number to break down by {', '.join(names)}.")
    return tuple(names)


@cache
def _loader() -> Any:
    """Return a safe reader of YAML to which 1e6 and 2E-3 are numbers, as in JSON and in YAML 1.2."""
    import yaml

    class Loader(yaml.SafeLoader):
        pass

    number = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$")
    Loader.add_implicit_resolver("tag:yaml.org,2002:float", number, list("-+0123456789"))
    return Loader
