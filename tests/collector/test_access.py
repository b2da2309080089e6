"""Who may do what: ends of keys, when a file is read again, and buckets of requests, by a clock that the test sets."""

from __future__ import annotations

import base64
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from noisette.collector.web import access
from noisette.collector.web.access import ROLES, Keys, KnownKey, RateLimit, digest, new_keys
from noisette.collector.web.operation import give_key, viewing_link


def test_ends_of_keys() -> None:
    assert Keys({"device": ["k" * 16]}).roles("k" * 16) == {"device"}
    wrong: list[Any] = [{"device": ["k" * 16, "k" * 15]}, {}, [], {"other": ["k" * 16]}, {"device": "k" * 16}]
    for given in (*wrong, {"device": ["k" * 16, 7]}):
        with pytest.raises(ValueError, match="Expected"):
            Keys(given)
    known = Keys({"device": ["a" * 16, "b" * 16], "analyst": ["a" * 16], "enrolment": ["c" * 16]})
    assert known.known("b" * 16) == ("file/device-2", {"device"})
    assert known.known("a" * 16) == ("file/device-1", {"device", "analyst"})
    assert known.known("c" * 16) == ("", frozenset())
    assert known.enrolment == ("c" * 16,)
    assert known.refresh() is False  # of no file


def test_new_keys_have_24_bytes_each() -> None:
    made = new_keys()
    assert list(made) == list(ROLES)
    assert {len(base64.urlsafe_b64decode(one)) for (one,) in made.values()} == {24}
    assert len({one for (one,) in made.values()}) == len(ROLES)


def test_a_key_with_an_end_is_known_until_then() -> None:
    keys = Keys({"device": ["k" * 16]})
    now = datetime.now(UTC)
    ends = {"past": now - timedelta(hours=1), "future": now + timedelta(hours=1), "never": None}
    keys.name_keys([KnownKey(name, "analyst", digest(name * 4), end) for name, end in ends.items()])
    assert [keys.roles(name * 4) for name in ends] == [frozenset(), {"analyst"}, {"analyst"}]
    assert keys.name("future" * 4) == "future"
    keys.name_keys([])
    assert keys.roles("future" * 4) == frozenset()
    assert keys.roles("k" * 16) == {"device"}


def test_a_file_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    path.write_text("device: [aaaaaaaaaaaaaaaa]\n")
    keys = Keys.read(path)
    assert keys.refresh() is False
    path.write_text("device: [bbbbbbbbbbbbbbbb]\n")
    os.utime(path, ns=(1, 1))
    assert keys.refresh() is True
    assert (keys.roles("a" * 16), keys.roles("b" * 16)) == (frozenset(), {"device"})
    assert keys.refresh() is False
    for text, message in (("device: [short]\n", "at least 16"), ("a: [", "not a YAML file")):
        path.write_text(text)
        os.utime(path, ns=(5 + len(text), 5 + len(text)))
        with pytest.raises(ValueError, match=message):
            keys.refresh()
        assert keys.roles("b" * 16) == {"device"}  # all as it was


def test_a_bucket_holds_two_seconds_and_one_request_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [50.0]
    limit = RateLimit(2.0, clock=lambda: now[0])
    assert [limit.wait("a") for _ in range(5)] == [0.0, 0.0, 0.0, 0.0, 0.5]
    now[0] += 0.25
    assert limit.wait("a") == 0.25
    now[0] += 0.25
    assert limit.wait("a") == 0.0  # just filled
    assert limit.wait("a") == 0.5
    now[0] += 1000.0
    assert [limit.wait("a") for _ in range(5)] == [0.0, 0.0, 0.0, 0.0, 0.5]  # no more than four are saved
    slow = RateLimit(0.25, clock=lambda: now[0])
    assert [slow.wait("a"), slow.wait("a")] == [0.0, 4.0]
    monkeypatch.setattr(access, "_KEPT_ADDRESSES", 2)
    few = RateLimit(0.5, clock=lambda: now[0])
    assert [few.wait(one) for one in "abab"] == [0.0, 0.0, 2.0, 2.0]  # two are kept
    assert few.wait("c") == 0.0  # and the one that was seen longest ago is forgotten
    assert few.wait("b") == 2.0
    assert few.wait("a") == 0.0
    for wrong in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="rate="):
            RateLimit(wrong)


class Noted:
    """A registry that notes what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def add_key(self, *given: Any) -> None:
        self.told.append(given)


def test_every_key_that_is_made_has_192_random_bits_and_ends_when_it_is_said() -> None:
    """Names that are made have 32, so that two of them are hardly ever alike; the registry gets a digest."""
    registry, name = Noted(), "a" * 45
    made: dict[str, list[str]] = {"key": [], "link": [], "name": []}
    for days in (None, 1, 30):
        given = give_key(registry, "mine", "analyst", days, "me")
        link = viewing_link(registry, name, days, "me")
        path, _, key = link["path"].partition("?key=")
        assert path == f"/dashboard#{name}"
        assert re.fullmatch(r"link-a{40}-[0-9a-f]{8}", link["name"])
        (first, role, stored, ends, by), (second, viewer, other, _, _) = registry.told[-2:]
        assert (first, role, by, given["role"], given["name"]) == ("mine", "analyst", "me", "analyst", "mine")
        assert (second, viewer) == (link["name"], f"viewer/{name}")
        assert (stored, other) == (digest(given["key"]), digest(key))
        assert ends == given["ends"]
        for end in (given["ends"], link["ends"]):
            if days is None:
                assert end is None
            else:
                left = datetime.fromisoformat(end) - datetime.now(UTC)
                assert timedelta(days=days) - timedelta(hours=1) < left <= timedelta(days=days)
        made["key"].append(given["key"])
        made["link"].append(key)
        made["name"].append(link["name"])
    made["key"] += [key for keys in new_keys().values() for key in keys]
    assert all(len(set(kind)) == len(kind) for kind in made.values())
    assert {len(base64.urlsafe_b64decode(key)) for key in made["key"] + made["link"]} == {24}
    with pytest.raises(ValueError, match="role='owner' to be one of"):
        give_key(registry, "mine", "owner", None, "me")
