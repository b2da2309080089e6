"""Names of the periods in which a user answers once: days, weeks and months of UTC, or one period for ever."""

from __future__ import annotations

from datetime import UTC, datetime
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


def check_period(kind: str, name: str, now: datetime | None = None) -> None:
    """Refuse what names no period of this kind, or one that has not begun."""
    if kind == "once":
        if name != "once":
            raise ValueError(f"Expected period={name!r} to be 'once': this campaign has a single period.")
        return
    current = period_at(kind, now)
    if name == current:
        return
    day, shape = (f"{name}-1", f"{_NAMES[kind]}-%u") if kind == "week" else (name, _NAMES[kind])
    try:
        known = datetime.strptime(day, shape).strftime(_NAMES[kind]) == name
    except ValueError:
        known = False
    if not known:
        raise ValueError(f"Expected period={name!r} to name a {kind}, such as {current!r}.")
    if name > current:
        raise ValueError(f"Expected period={name!r} to have begun; now is {current!r} in UTC. Set the device's clock.")
