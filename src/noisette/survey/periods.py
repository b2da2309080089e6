"""Names of the periods in which a user answers once: days, weeks and months of UTC, or one period for ever."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Literal

Period = Literal["once", "day", "week", "month"]

_NAMES: dict[str, str] = {"once": "once", "day": "%Y-%m-%d", "week": "%G-W%V", "month": "%Y-%m"}
PERIODS = tuple(_NAMES)


def period_at(kind: str, moment: datetime | None = None) -> str:
    """Return the name of the period that a moment, now by default, falls into.

    >>> period_at("week", datetime(2026, 11, 15, tzinfo=UTC))
    '2026-W46'
    """
    return (datetime.now(UTC) if moment is None else moment.astimezone(UTC)).strftime(_NAMES[kind])


def periods_from(kind: str, first: str, count: int) -> tuple[str, ...]:
    """Return the names of ``count`` periods in a row, the first one included.

    >>> periods_from("month", "2026-11", 3)
    ('2026-11', '2026-12', '2027-01')
    """
    moment = _begin(kind, first)
    found = []
    for _ in range(count):
        found.append(moment.strftime(_NAMES[kind]))
        moment += {"day": timedelta(days=1), "week": timedelta(days=7)}.get(kind, timedelta(days=32))
        moment = moment.replace(day=1) if kind == "month" else moment
    return tuple(found)


def _begin(kind: str, name: str) -> datetime:
    """Return the first day of a period, or raise if no period has that name."""
    day, shape = (f"{name}-1", f"{_NAMES[kind]}-%u") if kind == "week" else (name, _NAMES[kind])
    try:
        moment = datetime.strptime(day, shape).replace(tzinfo=UTC)
    except ValueError:
        moment = datetime.min.replace(tzinfo=UTC)
    if moment.year < 2 or moment.strftime(_NAMES[kind]) != name:
        raise ValueError(f"Expected period={name!r} to name a {kind}, such as {period_at(kind)!r}.")
    return moment


def check_period(kind: str, name: str, now: datetime | None = None) -> None:
    """Refuse what names no period of this kind, or one that has not begun."""
    if kind == "once":
        if name != "once":
            raise ValueError(f"Expected period={name!r} to be 'once': this campaign has a single period.")
        return
    current = period_at(kind, now)
    if name == current:
        return
    _begin(kind, name)
    if name > current:
        raise ValueError(f"Expected period={name!r} to have begun; now is {current!r} in UTC. Set the device's clock.")
