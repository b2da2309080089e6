"""What every route of the collector answers to every role: status, headers, and the reason of a refusal.

Tests of what routes do are beside this one; here no status, header or reason moves unless it is meant to.
python -m tests.collector.test_answers writes anew.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.collector.helpers import COMMUTE, KEYS, OPERATOR, accept, entries, known_keys
from tests.held import Held

from noisette.collector import Store, create_app
from noisette.collector.campaigns.life import Life
from noisette.survey.campaigns import Campaign

HELD = Held(__file__)
CAMPAIGN = Campaign.from_dict(COMMUTE)
ROLES = {"nobody": None, **KEYS, "operator": OPERATOR}
NAMES = {"campaign_id": (CAMPAIGN.id, "nowhere"), "name": ("form.js", "nothing.js"), "period": ("once", "1999-01-01")}
MOVING = {"date", "content-length", "etag", "server", "x-request-id", "last-modified"}
BODIES = {"GET": (None,), "DELETE": (None,), "POST": (b"{}", b"no JSON"), "PATCH": (b'{"title": "Ways"}', b"[]")}
# an hour, a day, a hash, a random name: what differs from run to run
PASSING = re.compile(r"\d{4}-\d\d-\d\d(T[\d:.]+(Z|\+00:00))?|[0-9a-f]{16,}")
ESTIMATED = re.compile(r"estimates|dashboard/campaigns|openapi")  # routes that take a while
STATED = "statuses that are stated"


def service(folder: Path) -> Any:
    """Return a collector without the threads that keep its house."""
    store = Store(f"sqlite:///{folder / 'answers.db'}")
    app = create_app([(CAMPAIGN, Life())], store, known_keys(), rate=None, origins=["https://example.org"])
    accept(store, CAMPAIGN, *entries(CAMPAIGN, 3))
    return app


def routes() -> list[str]:
    """Return all routes as METHOD PATH."""
    with tempfile.TemporaryDirectory() as folder:
        found = [
            f"{method} {route.path}"
            for route in service(Path(folder)).routes
            for method in sorted(getattr(route, "methods", None) or ())
            if method != "HEAD"
        ]
    return sorted({*found, "GET /nothing", "PUT /campaigns", "DELETE /health"})


def asked(route: str) -> Iterator[tuple[str, str, str, bytes | None]]:
    """Yield requests of a route: who asks, how, where and with which body."""
    method, path = route.split(" ")
    for who in ROLES:
        for place in range(2):
            own = re.sub(r"{(\w+)}", lambda found, place=place: NAMES.get(found[1], ("one", "other"))[place], path)  # type: ignore[misc]
            for body in BODIES.get(method, (None,)) if not place else BODIES.get(method, (None,))[:1]:
                if not place or own != path:
                    yield who, method, own, body


def form(value: Any) -> Any:
    """Return the fields of an answer, or of the first of its elements."""
    first = value[0] if isinstance(value, list) and value else value
    return sorted(first) if isinstance(first, dict) else type(value).__name__


def answers(route: str, folder: Path) -> dict[str, Any]:
    """Return what is answered to each request of a route."""
    return asyncio.run(_answers(route, httpx.ASGITransport(service(folder), raise_app_exceptions=False)))


async def _answers(route: str, to: httpx.ASGITransport) -> dict[str, Any]:
    """Ask, and return a refusal's reason and the form of anything else."""
    client, told = httpx.AsyncClient(transport=to, base_url="http://127.0.0.1"), {}
    for who, method, path, body in asked(route):
        key = ROLES[who]
        headers = {"Origin": "https://example.org"} | ({"Authorization": f"Bearer {key}"} if key else {})
        answer = await client.request(method, path, content=body, headers=headers)
        said: Any = ""
        if answer.headers.get("content-type", "").startswith(("application/json", "application/problem+json")):
            said = answer.json().get("reason", "") if answer.status_code >= 400 else form(answer.json())
        shown = {name: PASSING.sub("*", value) for name, value in answer.headers.items() if name not in MOVING}
        told[f"{who} {method} {path} {body!r}"] = [answer.status_code, shown, said]
    counted = await client.get("/metrics", headers={"Authorization": f"Bearer {KEYS['analyst']}"})
    told["counted"] = [
        line for line in counted.text.splitlines() if re.match(r"noisette_\w*(rejected|accepted)_total", line)
    ]
    return told


@pytest.mark.parametrize(
    "route",
    [pytest.param(one, marks=pytest.mark.slow) if ESTIMATED.search(one) else one for one in HELD.kept if one != STATED],
)
def test_every_role_gets_its_answer(route: str, tmp_path: Path) -> None:
    HELD.check(route, answers(route, tmp_path))


def stated(folder: Path) -> dict[str, Any]:
    """Return which statuses the description of the service states for each route."""
    paths = service(folder).openapi()["paths"]
    return {f"{how} {path}": sorted(one["responses"]) for path, own in paths.items() for how, one in own.items()}


@pytest.mark.slow
def test_statuses_are_stated(tmp_path: Path) -> None:
    HELD.check(STATED, stated(tmp_path))


def test_every_route_is_asked() -> None:
    assert list(HELD.kept) == [*routes(), STATED]


if __name__ == "__main__":
    stories = {}
    for one in routes():
        with tempfile.TemporaryDirectory() as place:
            stories[one] = answers(one, Path(place))
    with tempfile.TemporaryDirectory() as place:
        stories[STATED] = stated(Path(place))
    HELD.write(stories)
