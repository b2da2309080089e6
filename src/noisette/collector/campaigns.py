"""A campaign: what is asked, of how many, at which budget, and the mechanism that answers."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from noisette import _validate
from noisette._random import Rng
from noisette._validate import FloatArray
from noisette.collector.periods import PERIODS
from noisette.core import Aggregate
from noisette.domains import Attributes, Categorical, Interval
from noisette.mechanisms import by_name, from_spec
from noisette.mechanisms.vector.attributes import SampledAttributes
from noisette.utility import combine, deviation, plan

VERSION = 1  # of campaigns and reports on the wire
ANSWERS = ("permanent", "fresh")

_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_REQUIRED = frozenset({"id", "attributes", "epsilon", "users"})
_OPTIONAL = frozenset({"title", "delta", "period", "answers", "mechanism", "report"})
_LONGEST_NAME = 200
_SLACK = 1 + 1e-9  # floats of a budget that was split and added up again


@dataclass(frozen=True, eq=False)
class Campaign:
    """What an analyst asks, with the mechanism through which every device answers.

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
    >>> campaign.aggregate(campaign.decode(reports)).users
    5
    """

    id: str
    title: str
    attributes: Attributes
    epsilon: float
    delta: float
    users: int
    period: str
    answers: str
    asked: str | dict[str, str]
    report: int | None
    mechanism: Any

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Campaign:
        """Read a campaign from a YAML file."""
        import yaml

        try:
            found = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ValueError(f"{path} is not a YAML file: {' '.join(str(error).split())}.") from error
        try:
            return cls.from_dict(found)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path}: {error}") from error

    @classmethod
    def from_dict(cls, fields: Any) -> Campaign:
        """Check a campaign as it was written, and choose its mechanism."""
        terms = _terms(fields)
        return replace(terms, mechanism=terms._choose())

    @classmethod
    def from_wire(cls, fields: Any) -> Campaign:
        """Read back `to_wire`, and refuse a mechanism that does not keep what the campaign promises."""
        if not isinstance(fields, Mapping) or fields.get("version") != VERSION:
            raise ValueError(f"Expected a campaign of version {VERSION}. Update noisette on the older side.")
        own = {key: value for key, value in fields.items() if key not in ("version", "spec", "guarantee", "predicted")}
        terms = _terms(own)
        mechanism = from_spec(fields.get("spec", {}))
        if mechanism.domain.spec() != terms.domain.spec():
            raise ValueError(f"Campaign {terms.id!r} asks for {terms.domain}, its mechanism for {mechanism.domain}.")
        guarantee = mechanism.guarantee
        if guarantee.epsilon > terms.epsilon * _SLACK or guarantee.delta > terms.delta * _SLACK:
            raise ValueError(
                f"Campaign {terms.id!r} promises epsilon={terms.epsilon:g}, delta={terms.delta:g}, "
                f"but its mechanism spends {guarantee}. Do not answer it."
            )
        return replace(terms, mechanism=mechanism)

    def terms(self) -> dict[str, Any]:
        """Return the campaign as an analyst would write it, with every default spelt out."""
        names = self.attributes.names or ()
        asked = [_written(name, part) for name, part in zip(names, self.attributes.parts, strict=True)]
        return {
            "id": self.id,
            "title": self.title,
            "attributes": asked,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "users": self.users,
            "period": self.period,
            "answers": self.answers,
            "mechanism": self.asked,
            "report": self.report,
        }

    def to_wire(self) -> dict[str, Any]:
        """Return what a device needs: the terms, the mechanism and its guarantee."""
        made = {"spec": self.mechanism.spec(), "guarantee": self.mechanism.guarantee.spec()}
        return {"version": VERSION} | self.terms() | made

    @property
    def domain(self) -> Any:
        """What one user holds: the one attribute itself, or the record of all."""
        return self.attributes if self.attributes.dims > 1 else self.attributes.parts[0]

    @property
    def quantities(self) -> tuple[str, ...]:
        """Names of the means and frequencies that are estimated."""
        return self.attributes.quantities

    @cached_property
    def _report_shape(self) -> tuple[int, ...]:
        return tuple(getattr(self.mechanism, "report_shape", ()))

    @cached_property
    def _report_dtype(self) -> np.dtype[Any]:
        return np.dtype(getattr(self.mechanism, "report_dtype", np.float64))

    def predict(self, users: int | None = None) -> FloatArray:
        """Return the standard error of each quantity for so many reporting users, the target population by default.

        It is that of the worst distribution: of the numbers, or of the categories on average. A single category that
        many users share can have a somewhat larger error, the others then have a smaller one.
        """
        found = deviation(self.mechanism, users=self.users if users is None else users)
        return np.broadcast_to(np.asarray(found.std, dtype=np.float64), (len(self.quantities),))

    def encode(self, values: Mapping[str, Any], *, clip: bool = False) -> npt.NDArray[Any]:
        """Return a user's values as the row that the mechanism takes, labels as codes, numbers clipped where asked."""
        names = self.attributes.names or ()
        if not isinstance(values, Mapping) or set(values) != set(names):
            got = sorted(map(str, values)) if isinstance(values, Mapping) else type(values).__name__
            raise ValueError(f"Expected a value for each of {', '.join(names)}, got {got}.")
        parts = zip(names, self.attributes.parts, strict=True)
        return np.asarray([_code(values[name], name, part, clip=clip) for name, part in parts])

    def privatize(self, values: Mapping[str, Any], *, clip: bool = False, rng: Rng = None) -> Any:
        """Return one user's report as JSON: a number, or lists of numbers."""
        row = self.encode(values, clip=clip)
        reports = self.mechanism.privatize(row[None] if self.attributes.dims > 1 else row, rng=rng)
        return np.asarray(reports)[0].tolist()

    def decode(self, reports: Sequence[Any]) -> npt.NDArray[Any]:
        """Return reports that were JSON as an array, refusing what this mechanism cannot have sent."""
        found = np.stack([self._array(report) for report in reports])
        self.mechanism.tally(found)  # checks the support, and how far noise can go
        return found

    def _array(self, report: Any) -> npt.NDArray[Any]:
        """Return one report as an array of the mechanism's shape and type."""
        if not _numeric(report, len(self._report_shape)):
            raise ValueError(f"Expected a report of shape {self._report_shape}, of numbers alone.")
        try:
            found = np.asarray(report)
        except ValueError as error:
            raise ValueError("Expected the lists of a report to have one length.") from error
        if found.shape != self._report_shape:
            raise ValueError(f"Expected a report of shape {self._report_shape}, got {found.shape}.")
        if found.dtype.kind not in "iuf" or not np.isfinite(found).all():
            raise ValueError("Expected the numbers of a report to be finite and within 64 bits.")
        if self._report_dtype.kind in "iu" and found.dtype.kind == "f":
            raise ValueError("Expected a report of whole numbers.")
        cast = found.astype(self._report_dtype)
        if not np.array_equal(cast, found):
            raise ValueError(f"Report {found.tolist()} is outside the support: {self.mechanism.support}.")
        return cast

    def aggregate(self, reports: npt.NDArray[Any]) -> Aggregate:
        """Sum decoded reports."""
        made: Aggregate = self.mechanism.aggregate(reports)
        return replace(made, names=self.quantities)

    def _choose(self) -> Any:
        """Return the mechanism that was asked for, or for "auto" the unbiased one of least predicted error.

        The plan is made with every range scaled to one unit, so that no attribute counts for more because its
        numbers are large.
        """
        units = tuple(part if isinstance(part, Categorical) else Interval(0, 1) for part in self.attributes.parts)
        domain: Any = Attributes(units, names=self.attributes.names) if len(units) > 1 else units[0]
        budget: dict[str, Any] = {"epsilon": self.epsilon, "delta": self.delta}
        if isinstance(self.asked, dict):
            names = self.attributes.names or ()
            if set(self.asked) != set(names):
                raise ValueError(f"Expected a mechanism for each of {', '.join(names)}, got {sorted(self.asked)}.")
            inner = tuple(self.asked[name] for name in names)
            return SampledAttributes(inner, domain=self.attributes, report=self.report, **budget)  # type: ignore[arg-type]
        if self.asked == "auto" and len(units) > 1:
            quick = [name for part in domain.distinct[0] for name in self._unbiased(part)]
            spec = combine(domain, users=self.users, report=self.report, mechanisms=quick, **budget).mechanism.spec()
        else:
            wanted = None if self.asked == "auto" else [self.asked]
            made = plan(users=self.users, domain=domain, report=self.report, mechanisms=wanted, **budget)
            if made.best_unbiased is None:
                raise ValueError(
                    f"Expected mechanism={self.asked!r} to be unbiased: its intervals would not cover the truth. "
                    "Name another one, or auto."
                )
            spec = made.best_unbiased.spec
        return from_spec(spec | {"domain": self.domain.spec()})

    def _unbiased(self, part: Any) -> list[str]:
        """Return the mechanisms for one attribute whose averages are unbiased and which take no time to build."""
        made = plan(users=self.users, domain=part, epsilon=self.epsilon, delta=self.delta)
        return [
            one.mechanism
            for one in made.candidates
            if one.unbiased and not getattr(by_name(one.mechanism), "slow_start", False)
        ]


def _terms(fields: Any) -> Campaign:
    """Check all that an analyst wrote; the mechanism is still to come."""
    if not isinstance(fields, Mapping):
        raise TypeError(f"Expected a campaign with the fields {', '.join(sorted(_REQUIRED))}, got {fields!r}.")
    if unknown := sorted(map(str, set(fields) - _REQUIRED - _OPTIONAL)):
        known = ", ".join(sorted(_REQUIRED | _OPTIONAL))
        raise ValueError(f"Unknown field {unknown[0]!r} in a campaign; expected some of {known}.")
    if lacking := sorted(_REQUIRED - set(fields)):
        raise ValueError(f"Expected a field {lacking[0]!r} in the campaign.")
    name, title = fields["id"], fields.get("title", fields["id"])
    if not isinstance(name, str) or not _ID.fullmatch(name):
        raise ValueError(f"Expected id={name!r} to be small letters, digits and dashes, at most 63, e.g. commute-2026.")
    if not isinstance(title, str) or not 0 < len(title) <= _LONGEST_NAME:
        raise ValueError(f"Expected title={title!r} to be a text of at most {_LONGEST_NAME} characters.")
    period, answers = fields.get("period", "once"), fields.get("answers", "permanent")
    for key, value, allowed in (("period", period, PERIODS), ("answers", answers, ANSWERS)):
        if value not in allowed:
            raise ValueError(f"Expected {key}={value!r} to be one of {', '.join(allowed)}.")
    asked = fields.get("mechanism", "auto")
    if isinstance(asked, Mapping):
        asked = {str(key): value for key, value in asked.items()}
    elif not isinstance(asked, str):
        raise TypeError(f"Expected mechanism={asked!r} to be auto, a name, or a name for each attribute.")
    attributes = _attributes(fields["attributes"])
    report = fields.get("report")
    return Campaign(
        id=name,
        title=title,
        attributes=attributes,
        epsilon=_validate.epsilon(fields["epsilon"]),
        delta=_validate.delta(fields.get("delta", 0.0)),
        users=_validate.integer(fields["users"], "users", low=1),
        period=period,
        answers=answers,
        asked=asked,
        report=None if report is None else _validate.integer(report, "report", low=1, high=attributes.dims),
        mechanism=None,
    )


def _attributes(entries: Any) -> Attributes:
    """Return the domain of what is asked."""
    if not isinstance(entries, list) or not entries:
        raise ValueError(f"Expected attributes={entries!r} to be a list of at least one attribute.")
    parts = [_attribute(entry) for entry in entries]
    return Attributes(tuple(part for _, part in parts), names=tuple(name for name, _ in parts))


def _attribute(entry: Any) -> tuple[str, Any]:
    """Return the name and the domain of one attribute."""
    if not isinstance(entry, Mapping) or set(entry) not in ({"name", "range"}, {"name", "categories"}):
        raise ValueError(f"Expected an attribute with a name and a range or categories, got {entry!r}.")
    name = entry["name"]
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME:
        raise ValueError(f"Expected name={name!r} of an attribute to be a text, at most {_LONGEST_NAME} characters.")
    if "range" in entry:
        limits = entry["range"]
        if not isinstance(limits, list) or len(limits) != 2:
            raise ValueError(f"Expected range={limits!r} of {name!r} to be two numbers, e.g. [0, 120].")
        return name, Interval(*(_validate.number(limit, f"range of {name}") for limit in limits))
    labels = entry["categories"]
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise ValueError(
            f"Expected categories={labels!r} of {name!r} to be texts. YAML reads yes, no and 1 as something else: "
            'put them in quotes, as in ["yes", "no"].'
        )
    if max(map(len, labels), default=0) > _LONGEST_NAME:
        raise ValueError(f"Expected categories of {name!r} of at most {_LONGEST_NAME} characters.")
    return name, Categorical(labels=tuple(labels))


def _written(name: str, part: Any) -> dict[str, Any]:
    """Return an attribute as it is written in a file."""
    if isinstance(part, Categorical):
        return {"name": name, "categories": list(part.labels or ())}
    return {"name": name, "range": [part.low, part.high]}


def _code(value: Any, name: str, part: Any, *, clip: bool) -> float | int:
    """Return one value as an admissible number."""
    if isinstance(part, Categorical):
        labels = part.labels or ()
        if value not in labels:
            raise ValueError(f"Expected {name}={value!r} to be one of {', '.join(labels)}.")
        return labels.index(value)
    number = _validate.number(value, name)
    if math.isnan(number):
        raise ValueError(f"Expected a number for {name}, got {value!r}. Leave the question unanswered instead.")
    if clip:
        return float(min(max(number, part.low), part.high))
    if not part.low <= number <= part.high:
        raise ValueError(f"Expected {name}={value!r} in {part}. Pass clip=True to move it to the nearest end.")
    return number


def _numeric(report: Any, depth: int) -> bool:
    """Tell whether this is a number in so many lists; true and false are none."""
    if depth:
        return isinstance(report, list) and all(_numeric(entry, depth - 1) for entry in report)
    return type(report) in (int, float)
