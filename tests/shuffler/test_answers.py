"""What every route of the shuffler answers to an operator and to anybody else: status, headers and reason.

Tests of what routes do are beside this one; here no status, header or reason moves unless it is meant to.
python -m tests.shuffler.test_answers writes anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from tests.answers import ORIGIN, Request, answers, routes
from tests.held import Held
from tests.shuffler.helpers import fresh, post_of

from noisette.shuffler import Clients, Shuffler, create_app
from noisette.shuffler._http import Operators
from noisette.shuffler.sender import Http

HELD = Held(__file__)
KEY = "key-of-olga-in-tests"
SECRET = "5" * 64
BODIES = {"GET": (None,), "DELETE": (None,), "POST": (b"{}", b"no JSON", b'{"name": "new", "secret": "short"}')}


def service() -> Any:
    """Return a shuffler with two posts, which forwards nothing."""
    shuffler = Shuffler(":memory:", minimum=2)
    for number, client in enumerate("ab"):
        shuffler.accept(client, fresh(), post_of(number))
    nowhere = Http("http://127.0.0.1:9", client="shuffler", secret=SECRET, attempts=1)
    clients = Clients({"a": SECRET, "b": SECRET})
    return create_app(shuffler, clients, nowhere, origins=[ORIGIN], operators=Operators({"olga": KEY}))


def asked(route: str) -> Iterator[Request]:
    """Yield requests of a route."""
    method, path = route.split(" ")
    for who, key in (("nobody", None), ("a stranger", KEY + "!"), ("olga", KEY)):
        for action in ("drop", "eat") if "{action}" in path else ("",):
            own = re.sub("{name}", "nothing", path).replace("{action}", action)
            for body in BODIES[method]:
                yield who, method, own, body, key


@pytest.mark.parametrize("route", HELD.kept)
def test_everybody_gets_the_answer(route: str) -> None:
    HELD.check(route, answers(service(), asked(route), KEY))


def test_every_route_is_asked() -> None:
    assert list(HELD.kept) == [*routes(service()), "DELETE /health", "GET /nothing"]


if __name__ == "__main__":
    every = [*routes(service()), "DELETE /health", "GET /nothing"]
    HELD.write({one: answers(service(), asked(one), KEY) for one in every})
