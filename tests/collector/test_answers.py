"""What every route of the collector answers to every role: status, headers, and the reason of a refusal.

Tests of what routes do are beside this one; here no status, header or reason moves unless it is meant to.
python -m tests.collector.test_answers writes anew.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.answers import ORIGIN, Request, answers, routes
from tests.collector.helpers import COMMUTE, KEYS, OPERATOR, accept, entries, known_keys
from tests.held import Held

from noisette.collector import Store, create_app
from noisette.collector.campaigns.life import Life
from noisette.survey.campaigns import Campaign

HELD = Held(__file__)
CAMPAIGN = Campaign.from_dict(COMMUTE)
ROLES = {"nobody": None, **KEYS, "operator": OPERATOR}
NAMES = {"campaign_id": (CAMPAIGN.id, "nowhere"), "name": ("form.js", "nothing.js"), "period": ("once", "1999-01-01")}
BODIES = {"GET": (None,), "DELETE": (None,), "POST": (b"{}", b"no JSON"), "PATCH": (b'{"title": "Ways"}', b"[]")}
ESTIMATED = re.compile(r"estimates|dashboard/campaigns|openapi")  # routes that take a while
STATED = "statuses that are stated"


def service(folder: Path) -> Any:
    """Return a collector without the threads that keep its house."""
    store = Store(f"sqlite:///{folder / 'answers.db'}")
    app = create_app([(CAMPAIGN, Life())], store, known_keys(), rate=None, origins=[ORIGIN])
    accept(store, CAMPAIGN, *entries(CAMPAIGN, 3))
    return app


def all_routes() -> list[str]:
    """Return all routes as METHOD PATH, and some that there are not."""
    with tempfile.TemporaryDirectory() as folder:
        return sorted({*routes(service(Path(folder))), "GET /nothing", "PUT /campaigns", "DELETE /health"})


def asked(route: str) -> Iterator[Request]:
    """Yield requests of a route."""
    method, path = route.split(" ")
    for who, key in ROLES.items():
        for place in range(2):
            own = re.sub(r"{(\w+)}", lambda found, place=place: NAMES.get(found[1], ("one", "other"))[place], path)  # type: ignore[misc]
            for body in BODIES.get(method, (None,)) if not place else BODIES.get(method, (None,))[:1]:
                if not place or own != path:
                    yield who, method, own, body, key


def answered(route: str, folder: Path) -> dict[str, Any]:
    """Return what is answered to each request of a route."""
    return answers(service(folder), asked(route), KEYS["analyst"])


@pytest.mark.parametrize(
    "route",
    [pytest.param(one, marks=pytest.mark.slow) if ESTIMATED.search(one) else one for one in HELD.kept if one != STATED],
)
def test_every_role_gets_its_answer(route: str, tmp_path: Path) -> None:
    HELD.check(route, answered(route, tmp_path))


def stated(folder: Path) -> dict[str, Any]:
    """Return which statuses the description of the service states for each route."""
    paths = service(folder).openapi()["paths"]
    return {f"{how} {path}": sorted(one["responses"]) for path, own in paths.items() for how, one in own.items()}


@pytest.mark.slow
def test_statuses_are_stated(tmp_path: Path) -> None:
    HELD.check(STATED, stated(tmp_path))


def test_every_route_is_asked() -> None:
    assert list(HELD.kept) == [*all_routes(), STATED]


if __name__ == "__main__":
    stories = {}
    for one in all_routes():
        with tempfile.TemporaryDirectory() as place:
            stories[one] = answered(one, Path(place))
    with tempfile.TemporaryDirectory() as place:
        stories[STATED] = stated(Path(place))
    HELD.write(stories)
