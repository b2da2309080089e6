"""What operators may not say: lives, keys and campaigns that are refused, and the moments at which reports are."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from tests.held import Held, refusal

from noisette.collector.campaigns.life import EARLY, LATE, OVER, Life, Untimely, taking
from noisette.collector.web.access import Keys, KnownKey, digest
from noisette.collector.web.operation import _plain, read_campaign

HELD = Held(__file__)
NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
KEY = "a-key-of-many-letters"

REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "an unknown state": (lambda: Life(state="asleep"), "state='asleep'"),
    "an end before the beginning": (lambda: Life(opens=NOON, closes=NOON), "to be after opens"),
    "nobody at the least": (lambda: Life(least=0), "least"),
    "half of all lie": (lambda: Life(liars=0.5), "liars=0.5"),
    "fewer than no liars": (lambda: Life(liars=-0.1), "liars=-0.1"),
    "nothing wanted": (lambda: Life(wanted=0.0), "wanted=0.0"),
    "more than all wanted": (lambda: Life(wanted=100.1), "wanted=100.1"),
    "a webhook that is no address": (lambda: Life(webhook="ftp://example.org"), "to be an address"),
    "an unknown field": (lambda: Life().changed({"colour": "red"}), "Cannot change 'colour'"),
    "a length without a unit": (lambda: Life.read({"late": "7"}), "a length of time"),
    "a length that is too long": (lambda: Life.read({"late": "36501 days"}), "a length of time"),
    "a day that is none": (lambda: Life.read({"closes": "2026-02-30"}), "a day or a moment"),
    "no keys": (lambda: Keys({}), "Expected lists of keys"),
    "keys of an unknown role": (lambda: Keys({"king": [KEY]}), "Expected lists of keys"),
    "a key instead of a list": (lambda: Keys({"device": KEY}), "a list of texts"),
    "a number among keys": (lambda: Keys({"device": [KEY, 3]}), "a list of texts"),  # type: ignore[list-item]
    "one key that is too short": (lambda: Keys({"device": [KEY, "fifteen-letters"]}), "at least 16 characters"),
    "a campaign that is a list": (lambda: read_campaign(b"[1]"), "the fields of a campaign"),
    "aliases": (lambda: _plain(b"a: &x [1]\nb: *x\n"), "without aliases"),
    "levels without end": (lambda: _plain(b"- " * 22 + b"x"), "20 levels"),
    "what is no text": (lambda: _plain(b"\xff\xfe\x00"), "in JSON or YAML"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    made, words = REFUSED[name]
    found = refusal(made)
    assert re.search(words, found)
    HELD.check(name, found)


def test_what_is_just_allowed() -> None:
    assert Life(liars=0.4999, wanted=100.0, least=1, webhook="http://example.org").least == 1
    assert Life.read({"late": "36500 days"}).late == timedelta(days=36500)
    assert Life.read({"closes": "2026-12-31", "opens": "2026-12-31"}).closes == datetime(2027, 1, 1, tzinfo=UTC)
    assert _plain(b"- " * 20 + b"x") is not None
    assert Keys({"device": ["sixteen-letters!"]}).roles("sixteen-letters!") == {"device"}


def once(period: str = "once") -> Any:
    return SimpleNamespace(period=period)


@pytest.mark.parametrize(
    ("life", "period", "now", "reason"),
    [
        (Life(state="closed"), "2026-11-15", NOON, OVER),
        (Life(), "2026-11-16", NOON, EARLY),
        (Life(), "2026-11-16", datetime(2026, 11, 15, 23, 50, tzinfo=UTC), None),
        (Life(), "2026-11-16", datetime(2026, 11, 15, 23, 49, 59, tzinfo=UTC), EARLY),
        (Life(), "2026-11-15", NOON, None),
        (Life(), "2026-11-08", NOON, None),
        (Life(), "2026-11-08", datetime(2026, 11, 15, 23, 59, 59, tzinfo=UTC), None),
        (Life(), "2026-11-08", datetime(2026, 11, 16, tzinfo=UTC), LATE),
        (Life(opens=NOON), "2026-11-15", NOON - timedelta(minutes=11), EARLY),
        (Life(opens=NOON), "2026-11-15", NOON - timedelta(minutes=10), None),
        (Life(closes=NOON, late=timedelta(hours=1)), "2026-11-15", NOON + timedelta(minutes=59), None),
        (Life(closes=NOON, late=timedelta(hours=1)), "2026-11-15", NOON + timedelta(hours=1), OVER),
        (Life(closes=NOON, late=timedelta(0)), "2026-11-16", datetime(2026, 11, 16, tzinfo=UTC), OVER),
    ],
)
def test_a_period_takes_reports_at_its_time(life: Life, period: str, now: datetime, reason: str | None) -> None:
    if reason is None:
        life.check(once("day"), period, now)
        return
    with pytest.raises(Untimely) as refused:
        life.check(once("day"), period, now)
    assert refused.value.reason == reason


def test_reports_are_kept_for_as_long_as_was_said() -> None:
    kept = Life(keep=timedelta(days=3), late=timedelta(days=2), closes=NOON)
    ends = datetime(2026, 11, 11, tzinfo=UTC)
    assert kept.expired(once("day"), "2026-11-10", ends + timedelta(days=5))
    assert not kept.expired(once("day"), "2026-11-10", ends + timedelta(days=5) - timedelta(seconds=1))
    assert kept.expired(once(), "once", NOON + timedelta(days=5))
    assert not kept.expired(once(), "once", NOON + timedelta(days=4))
    assert not Life(keep=timedelta(0)).expired(once(), "once", NOON)  # it has no end
    assert not Life(closes=NOON).expired(once(), "once", NOON + timedelta(days=4000))


def test_the_periods_that_took_reports() -> None:
    since, until = NOON - timedelta(days=1), NOON
    assert list(taking(once("day"), {"late": "1 day"}, since, until)) == ["2026-11-13", "2026-11-14", "2026-11-15"]
    assert list(taking(once("day"), {"late": "1 day", "opens": "2026-11-15"}, since, until)) == ["2026-11-15"]
    assert list(taking(once("day"), {"late": "1 day", "state": "closed"}, since, until)) == []
    assert list(taking(once(), {}, since, until)) == ["once"]
    assert list(taking(once("day"), {"late": "0 seconds"}, NOON, datetime(2026, 11, 15, 23, 50, tzinfo=UTC))) == [
        "2026-11-15",
        "2026-11-16",
    ]


def test_a_key_that_has_ended_opens_nothing() -> None:
    keys = Keys({"device": [KEY]})
    now = datetime.now(UTC)
    named = [
        KnownKey("over", "analyst", digest("over-since-an-hour"), now - timedelta(hours=1)),
        KnownKey("soon", "analyst", digest("ends-in-an-hour"), now + timedelta(hours=1)),
        KnownKey("never", "operator", digest(KEY), None),
    ]
    keys.name_keys(named)
    assert keys.known("over-since-an-hour") == ("", frozenset())
    assert keys.known("ends-in-an-hour") == ("soon", frozenset({"analyst"}))
    assert keys.roles(KEY) == {"device", "operator"}
    assert keys.known("nobody knows it") == ("", frozenset())
    keys.name_keys([])
    assert keys.roles(KEY) == {"device"}


if __name__ == "__main__":
    HELD.write({name: refusal(made) for name, (made, _) in REFUSED.items()})
