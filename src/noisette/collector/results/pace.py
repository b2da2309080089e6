"""A guess when enough users will have come, from how many came lately, with an interval."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from noisette._validate import FloatArray
from noisette.collector.campaigns.life import Life, span
from noisette.survey.campaigns import Campaign

_DAY = 86400.0
_WINDOWS = (_DAY, 7 * _DAY, math.inf)  # the shortest of them in which enough users came is looked at
_ENOUGH_USERS = 30  # users who make a pace
_FEWEST_USERS = 3  # users from whom a guess is made at all
_BINS = 12  # parts of a window, whose counts tell how unevenly users come
_FINE, _COARSE = 1800.0, 3600.0  # a window up to the first has a count each few seconds, a longer one each hour
_FAR = 3650 * _DAY  # beyond which nothing is guessed


@dataclass(frozen=True)
class Pace:
    """How many users came within this many seconds, and how unevenly: the variance of counts divided by their mean."""

    users: int
    seconds: float
    unevenness: float = 1.0

    def until(self, needed: int, level: float = 0.95) -> tuple[float, float]:
        """Return an interval of the seconds until this many more users will have come.

        Formula: if users come at random at one rate, n of them in W seconds, then the time of k more is W k / n times
        a variable that follows F with 2 k and 2 n degrees of freedom. Where counts vary u times as much as counts of
        random arrivals do, n / u and k / u take the place of n and k.

        >>> [round(one) for one in Pace(100, 3600.0).until(100)]
        [2726, 4754]
        """
        from scipy.special import fdtri

        more, came = 2 * needed / self.unevenness, 2 * self.users / self.unevenness
        middle = self.seconds * needed / self.users
        low, high = (middle * float(fdtri(more, came, chance)) for chance in ((1 - level) / 2, (1 + level) / 2))
        return low, high if math.isfinite(high) else math.inf


def pace_of(points: Sequence[tuple[float, int]], users: int, now: float) -> Pace | None:
    """Return how fast users come, from moments and how many there were then; None where too few came."""
    if not points:
        return None
    moments, counts = (np.asarray(column, dtype=np.float64) for column in zip(*points, (now, users), strict=True))
    found = None
    for window in _WINDOWS:
        start = max(float(moments[0]), now - window)
        came = users - float(np.interp(start, moments, counts))
        if now - start > 0 and came >= _FEWEST_USERS:
            found = Pace(round(came), now - start, _unevenness(moments, counts, start, now))
        if (found is not None and found.users >= _ENOUGH_USERS) or start == moments[0]:
            return found
    return found


def _unevenness(moments: FloatArray, counts: FloatArray, start: float, now: float) -> float:
    """Return the variance of how many came in parts of a window, divided by their mean; 1 at least."""
    window = now - start
    bins = min(_BINS, int(window / (window / _BINS if window <= _FINE else _COARSE)))
    if bins < 3:
        return 1.0
    each = np.diff(np.interp(np.linspace(start, now, bins + 1), moments, counts))
    return max(1.0, float(each.var(ddof=1) / each.mean()))


def in_words(pace: Pace | None, needed: int, left: float | None = None) -> str:
    """Say when this many more users will have come; ``left`` is how many seconds are left to come in.

    >>> in_words(Pace(100, 3600.0), 100)
    'in 45 to 80 min at the pace of the last hour'
    """
    if needed <= 0:
        return ""
    if pace is None:
        return "too few came lately to guess when"
    low, high = pace.until(needed)
    if left is not None and low > left:
        return "not before it ends, at the pace of the " + _window(pace.seconds)
    if low > _FAR:
        return "not within ten years at the pace of the " + _window(pace.seconds)
    return f"in {_between(low, high)} at the pace of the {_window(pace.seconds)}"


def guessed(
    campaign: Campaign,
    life: Life,
    period: str,
    points: Sequence[tuple[float, int]],
    users: int,
    now: float | None = None,
) -> Callable[[int], str]:
    """Return what says when this many more users of a period will have come; nothing where none can come any more."""
    moment = time.time() if now is None else now
    ends = [life.closes] if life.closes else []
    if campaign.period != "once":
        ends.append(span(campaign.period, period)[1] + life.late)
    left = min((one.timestamp() - moment for one in ends), default=None)
    if life.state != "open" or (left is not None and left <= 0):
        return lambda needed: ""
    pace = pace_of(points, users, moment)
    return lambda needed: in_words(pace, needed, left)


_UNITS = ((86400.0, "days", 2.0), (3600.0, "h", 2.0), (60.0, "min", 0.0))  # each used from this many of it on


def _unit(seconds: float) -> tuple[float, str]:
    return next((size, name) for size, name, least in _UNITS if seconds >= least * size)


def _between(low: float, high: float) -> str:
    """Write an interval of time in units that suit it, ends rounded outward."""
    size, name = _unit(high if high < _FAR else low)
    if high >= _FAR:
        return f"{max(1, math.floor(low / size)):,} {name} or much later"
    first, last = math.floor(low / size), math.ceil(high / size)
    if first == 0 and name != "min":
        small, other = _unit(low)
        return f"{max(1, math.floor(low / small))} {other} to {last:,} {name}"
    return f"{max(1, first):,} to {last:,} {name}" if max(1, first) < last else f"about {last:,} {name}"


def _window(seconds: float) -> str:
    """Name a window of time."""
    named = {_DAY: "last day", 7 * _DAY: "last week", 3600.0: "last hour", 60.0: "last minute"}
    for size, name in named.items():
        if abs(seconds - size) < 0.01 * size:
            return name
    if seconds < 90:
        return "last minute"
    size, unit = _unit(seconds)
    count = max(1, round(seconds / size))
    return f"last {count:,} {unit}"
