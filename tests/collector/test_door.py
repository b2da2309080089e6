"""The door of a campaign's page and what is given out over HTTP, without a browser."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from tests.collector.helpers import COMMUTE, KEYS, auth, running

from noisette.collector.storage.store import Store
from noisette.collector.web.access import Keys
from noisette.collector.web.console import qr_code
from noisette.collector.web.forms import FORM, Door
from noisette.collector.web.operation import _plain
from noisette.collector.web.service import create_app
from noisette.survey.campaigns import Campaign

Answer = tuple[int, str, bool]  # status, path and whether it is known to come from a form
LARGEST = 64 * 1024


def through(path: str, method: str = "GET", kind: str = "http", **headers: str) -> Answer:
    """Send a request through the door and return what the application behind it saw, or what it was answered."""
    seen: list[Answer] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert scope["raw_path"].decode() == scope["path"]
        seen.append((0, scope["path"], bool(scope.get(FORM))))

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            seen.append((message["status"], "", False))

    given = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": kind, "method": method, "path": path, "raw_path": path.encode(), "headers": given}
    asyncio.run(Door(app)(scope, None, send))
    (found,) = seen
    return found


@pytest.mark.parametrize("place", ["table", "certificate", "reports", "tokens", "tokens/2026-11-18"])
def test_the_door_leads_to_what_a_form_needs(place: str) -> None:
    assert through(f"/c/walk/{place}") == (0, f"/campaigns/walk/{place}", True)


@pytest.mark.parametrize(
    "path", ["/c/walk", "/c/walk/", "/c/walk/estimates", "/c/walk/plan", "/campaigns/walk/table", "/d/walk/table", "/c"]
)
def test_the_door_leads_nowhere_else(path: str) -> None:
    assert through(path) == (0, path, False)
    assert through("/c/walk/table", kind="websocket") == (0, "/c/walk/table", False)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 0),
        ({"sec_fetch_site": "same-origin"}, 0),
        ({"sec_fetch_site": "none"}, 0),
        ({"sec_fetch_site": "same-site"}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
    ],
)
def test_pages_of_other_sites_are_kept_out(headers: dict[str, str], status: int) -> None:
    assert through("/c/walk/table", **headers)[0] == status
    assert through("/c/walk/reports", "POST", content_length="10", **headers)[0] == status


@pytest.mark.parametrize(
    ("size", "status"),
    [("0", 0), (str(LARGEST), 0), (str(LARGEST + 1), 413), ("99999999", 413), ("-1", 413), ("1e3", 413), ("", 413)],
)
def test_a_body_has_a_length_that_is_small(size: str, status: int) -> None:
    assert through("/c/walk/reports", "POST", content_length=size)[0] == status
    assert through("/c/walk/table", "GET", content_length=size)[0] == 0


def test_a_body_without_a_length_is_refused() -> None:
    assert through("/c/walk/reports", "POST")[0] == 413


def test_the_kinds_of_a_code() -> None:
    address = "http://localhost/c/walk"
    assert qr_code(address, "svg").startswith(b"<?xml")
    assert qr_code(address, "png").startswith(b"\x89PNG")
    shown = qr_code(address, "txt").decode().splitlines()
    assert len(shown) < len({*shown}) + 12  # no letter of it is a picture's
    assert set("".join(shown)) <= set(" \u2580\u2584\u2588\x1b[0123456789;m")
    assert len(shown) <= 20  # two rows of squares to a line, so that it fits a screen


def test_levels_parts_and_aliases_of_a_campaign() -> None:
    assert _plain(b'{"a": [1, 2]}') == _plain(b"a: [1, 2]") == {"a": [1, 2]}
    for wrong in (b"a: &x [1]\nb: *x", b"- " * 500 + b"1", b"a: [", b"a: \xff"):
        with pytest.raises(ValueError, match="Expected a campaign"):
            _plain(wrong)
    deepest = _plain(b"- " * 20 + b"x")
    for _ in range(20):
        (deepest,) = deepest
    assert deepest == "x"
    with pytest.raises(ValueError, match="Expected a campaign of 20 levels"):
        _plain(b"- " * 21 + b"x")


def test_what_is_given_out_says_so(store: Store) -> None:
    """A key and a link are made with 201 and shown once, end after so many days, and are gone with 204."""
    keys = Keys({role: [key] for role, key in KEYS.items()} | {"operator": ["o" * 32]})
    app = create_app([Campaign.from_dict(COMMUTE)], store, keys)
    operator = {"Authorization": f"Bearer {'o' * 32}"}
    with running(app) as url, httpx.Client(base_url=url, timeout=300) as client:
        made = client.post("/keys", json={"name": "ann", "role": "analyst", "days": 3}, headers=operator)
        assert made.status_code == 201
        assert client.get("/campaigns/commute/estimates", headers={"Authorization": f"Bearer {made.json()['key']}"})
        assert [one["name"] for one in client.get("/keys", headers=operator).json()["keys"]] == ["ann"]
        assert client.delete("/keys/ann", headers=operator).status_code == 204
        assert client.get("/keys", headers=operator).json() == {"keys": []}
        for days in (0, 36501, True, 1.5):
            assert client.post("/keys", json={"name": "b", "role": "analyst", "days": days}, headers=operator).is_error
        link = client.post("/campaigns/commute/links", json={"days": 1}, headers=operator)
        assert link.status_code == 201
        assert link.json()["link"].startswith(f"{url}/dashboard#commute?key=")
        assert client.post("/campaigns/commute/links", json={}, headers=auth("analyst")).status_code == 403
        assert client.post("/campaigns/commute/close", headers=operator).json()["life"]["state"] == "closed"
        assert client.delete("/campaigns/commute", headers=operator).status_code == 204
        assert client.get("/campaigns/commute", headers=auth("device")).status_code == 404


def test_the_answer_to_a_report_is_described(store: Store) -> None:
    """None accepted and none repeated are counts, too."""
    app = create_app([Campaign.from_dict(COMMUTE)], store, Keys({role: [key] for role, key in KEYS.items()}))
    told = app.openapi()["paths"]["/campaigns/{campaign_id}/reports"]["post"]
    assert [one["name"] for one in told["parameters"]] == ["campaign_id"]
    for status in ("200", "201"):
        counts = told["responses"][status]["content"]["application/json"]["schema"]["properties"]
        assert counts == {name: {"type": "integer", "minimum": 0} for name in ("accepted", "repeated")}
