"""A campaign: a survey with an id, a period, tokens and a life at a collector."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noisette import _validate
from noisette._random import Rng
from noisette._validate import FloatArray
from noisette.mechanisms.written import other_law
from noisette.survey.draws import PublicDraws
from noisette.survey.periods import PERIODS, period_at, periods_from
from noisette.survey.questions import text
from noisette.survey.survey import FIELDS, LIFE, OLD_NAMES, Rows, Survey, named_errors, read_fields

if TYPE_CHECKING:
    from noisette.survey.plans import SurveyPlan

__all__ = ["ANSWERS", "TOKENS", "VERSION", "Campaign", "PublicGroup", "Rows"]

VERSION = 1  # of campaigns and reports on the wire
ANSWERS = ("permanent", "fresh", "tracked")
TOKENS = ("open", "blind", "drawn")
_MOST_PERIODS = 10_000  # of a campaign that is tracked

_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_KNOWN = FIELDS | LIFE | OLD_NAMES.keys()
_MADE = frozenset(
    {"version", "spec", "guarantee", "predicted", "sealed", "minimum", "life"}
)  # what `to_wire` and the service add to the terms
_SPLIT_ROUNDING = 1 + 2.0**-50  # floats of a budget that was split and added up again
_HOPED = 10_000  # users of a survey that does not say how many
_OWN = ("record", "local", "any-pair")  # what a promise to a user is about: the whole answer, whatever it is


@dataclass(frozen=True)
class PublicGroup:
    """A group that users state in the clear with their reports, and the values it may have."""

    name: str
    values: tuple[str, ...]


def _of_survey(name: str) -> property:
    """Return a property that is the survey's."""
    return property(lambda self: getattr(self.survey, name), doc=f"`Survey.{name}` of the survey.")


@dataclass(frozen=True, eq=False)
class Campaign:
    """What an analyst asks, with the mechanisms through which every device answers.

    The survey's ``epsilon`` and ``delta`` are spent by one user in one period. With ``answers="permanent"`` a device
    makes one report and sends the same one in every period, so the budget is spent once; with ``"fresh"`` every period
    costs it again. With ``"tracked"`` answers may change over ``periods`` periods, the first of which is ``begins``.
    One of them is drawn for each user, who reports in that one only, so the budget is all that her answers ever cost.

    Tokens that are ``"blind"`` are signed without being seen. So are ``"drawn"`` ones; besides, all that is drawn for a
    user (her period, a group, a seed or an attribute) follows from the signature, which the collector checks.

    ``form`` is what a person reads on its page: who asks (``by``), why (``about``), and for some of the ``questions``
    how they are asked (``ask``), in which ``unit`` and in which ``step``.

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
    survey: Survey
    users: int
    period: str
    answers: str
    tokens: str
    begins: str = ""
    periods: int = 1
    form: dict[str, Any] = field(default_factory=dict)

    attributes = _of_survey("questions")
    epsilon = _of_survey("epsilon")
    delta = _of_survey("delta")
    joint = _of_survey("joint")
    sections = _of_survey("sections")
    mechanism = _of_survey("randomizer")
    quantities = _of_survey("quantities")
    layout = _of_survey("layout")
    encode = _of_survey("encode")
    written = _of_survey("written")
    privatize_coded = _of_survey("privatize_coded")
    row = _of_survey("row")
    rows = _of_survey("rows")
    decode = _of_survey("decode")
    check = _of_survey("check")
    # what a certificate is about
    guarantee = _of_survey("guarantee")
    domain = _of_survey("domain")
    spec = _of_survey("spec")
    written_law = _of_survey("written_law")
    law_sha256 = _of_survey("law_sha256")
    uncertified = _of_survey("uncertified")

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Campaign:
        """Read a campaign from a YAML file; a survey without an id is called as its file."""
        return named_errors(path, lambda: cls._named(read_fields(path), Path(path).stem))

    @classmethod
    def _named(cls, fields: Any, stem: str) -> Campaign:
        if isinstance(fields, Mapping) and "questions" in fields and "id" not in fields:
            fields = {"id": re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")[:63], "title": stem, **fields}
        return cls.from_dict(fields)

    @classmethod
    def from_dict(cls, fields: Any) -> Campaign:
        """Check a campaign as it was written, and choose its mechanisms."""
        survey = Survey.from_dict(_asked(fields))
        return cls(survey=survey, form=_form(fields.get("form"), survey), **_life(fields))

    @classmethod
    def from_wire(cls, fields: Any) -> Campaign:
        """Read back `to_wire`, and refuse a mechanism that does not keep what the campaign promises."""
        if not isinstance(fields, Mapping) or fields.get("version") != VERSION:
            raise ValueError(f"Expected a campaign of version {VERSION}. Update noisette on the older side.")
        terms = {key: value for key, value in fields.items() if key not in _MADE}
        asked = _asked(terms)
        life = _life(terms)
        survey = Survey.from_spec(asked | {"spec": fields.get("spec", {})})
        for own in (section.mechanism.guarantee for section in survey.sections):
            if (own.unit, own.model, own.relation) != _OWN:
                raise ValueError(
                    f"Campaign {life['id']!r} promises {' '.join(_OWN)} privacy, but its mechanism has {own}. "
                    "Do not answer it."
                )
        guarantee = survey.guarantee
        if guarantee.epsilon > survey.epsilon * _SPLIT_ROUNDING or guarantee.delta > survey.delta * _SPLIT_ROUNDING:
            raise ValueError(
                f"Campaign {life['id']!r} promises epsilon={survey.epsilon:g}, delta={survey.delta:g}, "
                f"but its mechanism spends {guarantee}. Do not answer it."
            )
        stated = fields.get("guarantee")
        if why := other_law(survey.law_sha256, stated.get("law_sha256") if isinstance(stated, Mapping) else None):
            raise ValueError(f"Campaign {life['id']!r} cannot be answered or read here. {why}")
        return cls(survey=survey, form=_form(terms.get("form"), survey), **life)

    def terms(self) -> dict[str, Any]:
        """Return the campaign as an analyst would write it, with every default spelt out."""
        asked, group = self.survey.terms(), self.public_group
        return {
            "id": self.id,
            "title": self.title,
            "attributes": asked["questions"],
            "epsilon": self.epsilon,
            "delta": self.delta,
            "users": self.users,
            "period": self.period,
            "answers": self.answers,
            "mechanism": asked["mechanism"],
            "report": asked["report"],
            "public_group": None if group is None else {"name": group.name, "values": list(group.values)},
            "joint": asked["joint"],
            "tokens": self.tokens,
            "form": self.form,
        } | ({"begins": self.begins, "periods": self.periods} if self.answers == "tracked" else {})

    def to_wire(self) -> dict[str, Any]:
        """Return what a device needs: the terms, the mechanism and its guarantee."""
        guarantee = self.mechanism.guarantee.spec() | {"law_sha256": self.law_sha256}
        made = {"spec": self.mechanism.spec(), "guarantee": guarantee}
        terms = {name: value for name, value in self.terms().items() if name != "form" or value}
        return {"version": VERSION} | terms | made

    @property
    def public_group(self) -> PublicGroup | None:
        """The group that users state in the clear."""
        return next((PublicGroup(name, tuple(values)) for name, values in self.survey.groups.items()), None)

    def predict(self, users: int | None = None) -> FloatArray:
        """Return the standard error of each quantity in a period, for the campaign's target of users unless given.

        Where users are tracked, a period has the reports of those who drew it: they are a sample of all.
        """
        return self.survey.predict(self.users if users is None else users, self.periods)

    def plan(self, users: int | None = None) -> SurveyPlan:
        """Return the plan of a period, for the campaign's target of users unless given."""
        from noisette.survey.plans import SurveyPlan

        count = self.users if users is None else _validate.integer(users, "users", low=1)
        return SurveyPlan.of(self.survey, count, {}, self.periods)

    @property
    def wanted(self) -> int:
        """How many reports are hoped for in a period: where users are tracked, each reports in one period only."""
        return max(1, round(self.users / self.periods))

    @property
    def signed(self) -> bool:
        """Whether the collector signs tokens without seeing them."""
        return self.tokens != "open"

    def signing_period(self, period: str) -> str:
        """Return the period whose key signs the token of a report: the first one where a user has one for all."""
        return self.begins if self.answers == "tracked" else period

    def drawn_period(self, signature: bytes) -> str | None:
        """Return the only period in which the user of a token reports, None if she may report in every period."""
        if self.answers != "tracked":
            return None
        place = int(PublicDraws(signature, "period").integers(0, self.periods, 1)[0])
        return periods_from(self.period, self.begins, place + 1)[-1]

    def privatize(self, values: Mapping[str, Any], *, clip: bool = False, rng: Rng = None) -> Any:
        """Return one user's report as JSON."""
        return self.survey.answer(values, clip=clip, rng=rng)


def _asked(fields: Any) -> dict[str, Any]:
    """Return the fields of a campaign that are about its survey."""
    if not isinstance(fields, Mapping):
        raise TypeError(f"Expected a campaign with the fields attributes, epsilon, id, users, got {fields!r}.")
    if unknown := sorted(map(str, set(fields) - _KNOWN)):
        raise ValueError(f"Unknown field {unknown[0]!r} in a campaign; expected some of {', '.join(sorted(_KNOWN))}.")
    if not {"attributes", "questions"} & set(fields):
        raise ValueError("Expected a field 'attributes' in the campaign.")
    required = {"id", "epsilon"} | ({"users"} if "attributes" in fields else set())
    if lacking := sorted(required - set(fields)):
        raise ValueError(f"Expected a field {lacking[0]!r} in the campaign.")
    if len(fields.get("groups") or ()) > 1:
        raise ValueError("Expected at most one public group in a campaign. Make one of all combinations.")
    return {name: value for name, value in fields.items() if name not in LIFE}


def _life(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Check what a campaign adds to its survey."""
    name = fields["id"]
    if not isinstance(name, str) or not _ID.fullmatch(name):
        raise ValueError(f"Expected id={name!r} to be small letters, digits and dashes, at most 63, e.g. commute-2026.")
    choices = {"period": ("once", PERIODS), "answers": ("permanent", ANSWERS), "tokens": ("open", TOKENS)}
    chosen = {key: fields.get(key, default) for key, (default, _) in choices.items()}
    for key, (_, allowed) in choices.items():
        if chosen[key] not in allowed:
            raise ValueError(f"Expected {key}={chosen[key]!r} to be one of {', '.join(allowed)}.")
    users = _validate.integer(fields.get("users", _HOPED), "users", low=1)
    chosen |= _tracked(fields, chosen)
    return {"id": name, "title": text(fields.get("title", name), "title"), "users": users} | chosen


def _tracked(fields: Mapping[str, Any], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Check from when on and for how many periods users are tracked, and that their draws can be checked."""
    if chosen["answers"] != "tracked":
        if {"begins", "periods"} & set(fields):
            raise ValueError("Expected begins and periods of a campaign only with answers='tracked'. Leave them out.")
        if chosen["tokens"] == "drawn" and chosen["answers"] == "permanent" and chosen["period"] != "once":
            raise ValueError(
                "Expected answers='fresh' or 'tracked' with tokens='drawn': a report that is sent again in a later "
                "period cannot follow from that period's signature."
            )
        return {}
    if chosen["period"] == "once" or chosen["tokens"] != "drawn":
        raise ValueError(
            "Expected answers='tracked' with a period of day, week or month and with tokens='drawn': the period of a "
            f"user follows from her token's signature. Got period={chosen['period']!r}, tokens={chosen['tokens']!r}."
        )
    if "periods" not in fields:
        raise ValueError("Expected periods, the number of periods that users are tracked for, e.g. 30.")
    count = _validate.integer(fields["periods"], "periods", low=2, high=_MOST_PERIODS)
    first = fields.get("begins", period_at(chosen["period"]))
    periods_from(chosen["period"], text(str(first), "begins"), 1)
    return {"begins": str(first), "periods": count}


def _form(fields: Any, survey: Survey) -> dict[str, Any]:
    """Check what a person reads on the page of a campaign."""
    form = {} if fields is None else fields
    known = [one.name for one in survey.questions]
    asked = form.get("questions", {}) if isinstance(form, Mapping) else None
    if not isinstance(asked, Mapping) or not all(isinstance(one, Mapping) for one in asked.values()):
        raise ValueError(
            f"Expected form={fields!r:.80} to have some of by, about and questions: {{name: {{ask, unit, step}}}}."
        )
    for where, own, allowed in (("form", form, {"by", "about", "questions"}), ("questions of form", asked, {*known})):
        if unknown := sorted(map(str, set(own) - allowed)):
            raise ValueError(f"Unknown {unknown[0]!r} in {where}; expected some of {', '.join(sorted(allowed))}.")
    found = {name: text(form[name], f"{name} of form") for name in ("by", "about") if name in form}
    return found | ({"questions": {name: _wording(name, one) for name, one in asked.items()}} if asked else {})


def _wording(name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Check how one question is put."""
    if unknown := sorted(map(str, set(fields) - {"ask", "unit", "step"})):
        raise ValueError(f"Unknown {unknown[0]!r} for {name!r} in form; expected some of ask, step, unit.")
    step = {"step": _validate.positive(fields["step"], f"step of {name}")} if "step" in fields else {}
    return {key: text(fields[key], f"{key} of {name}") for key in ("ask", "unit") if key in fields} | step
