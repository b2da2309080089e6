"""The life of a campaign: when it opens and closes, how late and how early a period's reports may come, what is shown.

Nothing private depends on any of it, so an operator may change it while devices answer. What was asked, by which
mechanism and for which budget is the campaign itself, and never changes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Any

from noisette import _validate
from noisette.survey.campaigns import Campaign
from noisette.survey.periods import check_period, period_at
from noisette.survey.questions import text

STATES = ("open", "closed", "archived")
OWN = frozenset(
    {"opens", "closes", "late", "skew", "least", "keep", "liars", "wanted", "webhook"}
)  # what a file says beside the campaign
FIELDS = OWN | {"title", "users"}  # that may change
EARLY, LATE, OVER = "too-early", "too-late", "campaign-closed"  # why a report of a sound period is refused

_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 7 * 86400}
_SPAN = re.compile(rf"\s*(\d+)\s*({'|'.join(_UNITS)})s?\s*")
_LONGEST_SPAN = timedelta(days=36500)
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


class Untimely(ValueError):
    """A period that takes no reports now; ``reason`` is one word."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


@dataclass(frozen=True)
class Life:
    """What an operator decides about a campaign, and may change.

    ``opens`` and ``closes`` are moments of UTC, None for no end. A period takes reports for ``late`` after its end, and
    from ``skew`` before its beginning: clocks of devices are off. Nothing is shown of fewer than ``least`` reports.
    Reports, not their sums, are deleted ``keep`` after their period takes no more. ``liars`` is the share of reports
    that intervals allow to be invented. ``wanted`` is the half-width of a 95 % interval at which an answer is known
    well enough, in percent of its range; without it that is what was planned for the target. ``webhook`` is an address
    that is called when the target is reached, when reports stop, or when liars are suspected. ``title`` and ``users``
    are those of the campaign unless changed.

    >>> Life.read({"closes": "2026-12-31", "late": "2 days"}).late
    datetime.timedelta(days=2)
    """

    state: str = "open"
    title: str | None = None
    users: int | None = None
    opens: datetime | None = None
    closes: datetime | None = None
    late: timedelta = timedelta(days=7)
    skew: timedelta = timedelta(minutes=10)
    least: int = 2
    keep: timedelta | None = None
    liars: float = 0.0
    wanted: float | None = None
    webhook: str | None = None

    def __post_init__(self) -> None:
        if self.state not in STATES:
            raise ValueError(f"Expected state={self.state!r} to be one of {', '.join(STATES)}.")
        if self.opens is not None and self.closes is not None and self.opens >= self.closes:
            raise ValueError(f"Expected closes={_moment(self.closes)!r} to be after opens={_moment(self.opens)!r}.")
        _validate.integer(self.least, "least", low=1)
        if not (isinstance(self.liars, int | float) and 0 <= self.liars < 0.5):
            raise ValueError(f"Expected liars={self.liars!r} to be a share in [0, 0.5), e.g. 0.02.")
        if self.wanted is not None and not (_validate.number(self.wanted, "wanted") > 0 and self.wanted <= 100):
            raise ValueError(f"Expected wanted={self.wanted!r} to be percent of a range, in (0, 100], e.g. 5.")
        if self.webhook is not None and not str(self.webhook).startswith(("https://", "http://")):
            raise ValueError(
                f"Expected webhook={self.webhook!r:.80} to be an address, e.g. https://example.org/noisette."
            )

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> Life:
        """Read what a file or a request says; the fields of the campaign itself are left alone."""
        return cls().changed({name: fields[name] for name in OWN & fields.keys()})

    def changed(self, fields: Mapping[str, Any]) -> Life:
        """Return this life with some fields changed."""
        if unknown := sorted(set(fields) - FIELDS - {"state"}):
            known = ", ".join(sorted(FIELDS))
            raise ValueError(f"Cannot change {unknown[0]!r} of a campaign; expected some of {known}.")
        read = {name: _READ[name](name, value) for name, value in fields.items() if name in _READ}
        return replace(self, **dict(fields) | read)

    def written(self) -> dict[str, Any]:
        """Return it as JSON, which `read` reads back."""
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: _WRITTEN.get(type(value), lambda own: own)(value) for name, value in found.items()}

    def applied(self, campaign: Campaign) -> Campaign:
        """Return a campaign under its present title and target."""
        users = campaign.users if self.users is None else self.users
        return replace(campaign, title=self.title or campaign.title, users=users)

    def check(self, campaign: Campaign, period: str, now: datetime | None = None) -> None:
        """Raise `Untimely` where a period takes no reports now, and ValueError where it is none."""
        now = datetime.now(UTC) if now is None else now
        if self.state != "open":
            raise Untimely(OVER, f"This campaign is {self.state}. Ask its operator to open it again.")
        if campaign.period == "once":
            check_period("once", period)
            begins, ends = _FIRST, _LAST
        else:
            begins, ends = span(campaign.period, period)
        begins = max(begins, self.opens or begins)
        if now < begins - min(self.skew, begins - _FIRST):
            raise Untimely(EARLY, f"Period {period!r} begins at {_moment(begins)}. Set the device's clock, or wait.")
        ends = min(ends, self.closes or ends)
        if begins >= ends or now >= ends + min(self.late, _LAST - ends):
            reason = OVER if self.closes is not None and now >= self.closes else LATE
            raise Untimely(
                reason,
                f"Period {period!r} takes reports no more: it ended at {_moment(ends)}. Answer in a later period.",
            )

    def expired(self, campaign: Campaign, period: str, now: datetime) -> bool:
        """Tell whether the reports of a period have been kept for long enough."""
        if self.keep is None:
            return False
        ends = self.closes if campaign.period == "once" else span(campaign.period, period)[1]
        return ends is not None and now - ends >= self.late + self.keep


def taking(campaign: Campaign, fields: Mapping[str, Any], since: datetime, until: datetime) -> Iterator[str]:
    """Yield the periods of a campaign with such a life that took reports at some time between two moments.

    >>> from types import SimpleNamespace
    >>> daily, noon = SimpleNamespace(period="day"), datetime(2026, 3, 10, 12, tzinfo=UTC)
    >>> list(taking(daily, {"late": "2 days"}, noon, noon))
    ['2026-03-08', '2026-03-09', '2026-03-10']
    """
    life = Life.read(fields)
    if fields.get("state", "open") != "open":
        return
    if campaign.period == "once":
        yield "once"
        return
    moment = since - life.late
    while True:
        name = period_at(campaign.period, moment)
        begins, ends = span(campaign.period, name)
        moment = ends
        if max(begins, life.opens or begins) - life.skew > until:
            return
        ends = min(ends, life.closes or ends)
        if max(begins, life.opens or begins) < ends and ends + life.late > since:
            yield name


ALWAYS = Life(late=_LONGEST_SPAN)  # for whoever reads what was stored long ago


@lru_cache(maxsize=1024)
def span(kind: str, name: str) -> tuple[datetime, datetime]:
    """Return beginning and end of a day, week or month, or raise if there is none of this name.

    >>> [end.isoformat() for end in span("month", "2026-12")]
    ['2026-12-01T00:00:00+00:00', '2027-01-01T00:00:00+00:00']
    """
    try:
        if kind == "week":
            begins = datetime.strptime(f"{name}-1", "%G-W%V-%u")
        else:
            begins = datetime.strptime(name, {"day": "%Y-%m-%d", "month": "%Y-%m"}[kind])
        begins = begins.replace(tzinfo=UTC)
        known = period_at(kind, begins) == name
    except ValueError:
        known = False
    if not known:
        raise ValueError(f"Expected period={name!r} to name a {kind}, such as {period_at(kind)!r}.")
    if kind == "month":
        return begins, (begins + timedelta(days=32)).replace(day=1)
    return begins, begins + timedelta(days=7 if kind == "week" else 1)


def _read_moment(name: str, value: Any) -> datetime | None:
    """Read a day or a moment of UTC; the day of an end is included."""
    if value is None:
        return None
    try:
        if isinstance(value, str):
            value = datetime.fromisoformat(value) if len(value) > 10 else date.fromisoformat(value)
        if isinstance(value, datetime):
            return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        midnight = datetime(value.year, value.month, value.day, tzinfo=UTC)
        return midnight + timedelta(days=1) if name == "closes" else midnight
    except (AttributeError, ValueError, OverflowError) as error:
        raise ValueError(f"Expected {name}={value!r} to be a day or a moment of UTC, e.g. 2026-12-31.") from error


def _read_span(name: str, value: Any) -> timedelta | None:
    """Read a length of time."""
    if value is None and name == "keep":
        return None
    found = _SPAN.fullmatch(value) if isinstance(value, str) else None
    # more than ten digits are too long in any unit
    seconds = math.inf if found is None or len(found[1]) > 10 else int(found[1]) * _UNITS[found[2]]
    if seconds > _LONGEST_SPAN.total_seconds():
        raise ValueError(f"Expected {name}={value!r} to be a length of time, e.g. 7 days, 12 hours or 10 minutes.")
    return timedelta(seconds=seconds)


def _moment(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


_READ: dict[str, Any] = {
    "title": lambda name, value: None if value is None else text(value, name),
    "users": lambda name, value: None if value is None else _validate.integer(value, name, low=1),
    "opens": _read_moment,
    "closes": _read_moment,
    "late": _read_span,
    "skew": _read_span,
    "keep": _read_span,
}
_WRITTEN: dict[type, Any] = {
    datetime: lambda moment: moment.isoformat(),
    timedelta: lambda length: f"{int(length.total_seconds())} seconds",
}
