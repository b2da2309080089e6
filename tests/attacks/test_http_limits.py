"""Clients that owe bytes, send too many or do not read: what every service of ours refuses, on loopback."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from threading import Thread
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from tests.attacks.servers import answered, dialled, head
from tests.collector.helpers import Quick

from noisette import _service
from noisette._service import Limits, Metrics, Observed, Problem, listen, read_body, server
from noisette.collector.telemetry import log

pytestmark = pytest.mark.slow

BRIEF = Limits(
    connections=20, head_bytes=4096, head_seconds=0.25, idle_seconds=3.0, body_seconds=4.0, grace=1.0, slowest=10_000
)


def _app(limits: Limits) -> FastAPI:
    app = FastAPI()
    app.add_middleware(Observed, metrics=Metrics(), log=log)

    @app.exception_handler(Problem)
    async def problem(_: Request, error: Problem) -> Response:
        return JSONResponse({"reason": error.reason}, error.status)

    @app.get("/hello")
    async def hello() -> str:
        return "hello"

    @app.post("/sized")
    async def sized(request: Request) -> int:
        return len(await read_body(request, 1 << 20, limits=limits))

    @app.post("/closed")
    async def closed() -> str:
        raise Problem(401, "unauthorised", "No.")

    @app.get("/large")
    async def large() -> Response:
        return Response(bytes(1 << 25))

    return app


@contextmanager
def served(limits: Limits = BRIEF) -> Iterator[str]:
    """Serve a small app under limits."""
    with listen("127.0.0.1", 0) as bound:
        serving = Quick(server(_app(limits), limits=limits).config)
        thread = Thread(target=serving.run, kwargs={"sockets": [bound]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{bound.getsockname()[1]}"
        finally:
            serving.should_exit = True
            thread.join()


def _cut_off(client: socket.socket, first: bytes, more: bytes, times: int, *, pause: float = 0.0) -> bool:
    """Send one thing and then another again and again; tell whether the other side ended it."""
    try:
        client.sendall(first)
        for _ in range(times):
            client.sendall(more)
            time.sleep(pause)
    except ConnectionError:
        return True
    return False


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served() as own:
        yield own


@pytest.mark.long
@pytest.mark.parametrize("sent", [b"", b"GET /hel", b"GET /hello HTTP/1.1\r\nHost: a\r\nX: "])
def test_a_head_that_does_not_end_is_given_up(url: str, sent: bytes) -> None:
    with dialled(url) as client:
        client.sendall(sent)
        assert answered(client).startswith("HTTP/1.1 408")


def test_a_head_by_the_drop_has_no_more_time_than_another(url: str) -> None:
    with dialled(url) as client:
        assert _cut_off(client, b"GET /hello HTTP/1.1\r\nX-Long: ", b"x", 1000, pause=0.05)


@pytest.mark.parametrize("sent", [b"GET /" + b"a" * 9000, b"GET / HTTP/1.1\r\nX: " + b"a" * 9000])
def test_a_head_that_is_too_long_is_refused(url: str, sent: bytes) -> None:
    with dialled(url) as client:
        client.sendall(sent)
        assert answered(client).startswith("HTTP/1.1 400")


def test_headers_after_a_body_count_as_well(url: str) -> None:
    with dialled(url) as client:
        first = b"POST /sized HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n"
        assert _cut_off(client, first, b"X-After: " + b"b" * 500 + b"\r\n", 100_000)


@pytest.mark.long
def test_a_slow_body_is_given_up_and_a_steady_one_is_not() -> None:
    """The steady one sends 40,000 bytes a second where 100 are asked, for longer than it has to begin."""
    with served(replace(BRIEF, slowest=100, body_seconds=600.0)) as url:
        with dialled(url) as client:
            client.sendall(head("/sized", length=100_000) + b"a")
            assert answered(client).startswith("HTTP/1.1 408")
        with dialled(url) as client:
            client.sendall(head("/sized", "Connection: close", length=60_000))
            for _ in range(12):
                client.sendall(b"a" * 5000)
                time.sleep(0.12)
            assert answered(client).endswith("60000")


def test_a_body_has_only_so_long_in_all() -> None:
    with served(replace(BRIEF, slowest=1, body_seconds=0.3)) as url, dialled(url) as client:
        client.sendall(head("/sized", length=100_000) + b"a")
        assert answered(client).startswith("HTTP/1.1 408")


def test_too_many_connections_cost_the_one_that_owes_for_longest() -> None:
    with served(Limits(connections=20)) as url, ExitStack() as stack:
        held = [stack.enter_context(dialled(url)) for _ in range(60)]
        for client in held:
            client.sendall(b"GET /hello HTTP/1.1\r\n")
        assert httpx.get(f"{url}/hello", timeout=300).json() == "hello"
        assert answered(held[0]) == ""  # ended without a word, long before the others


def test_bodies_together_are_bounded_and_small_ones_go_on() -> None:
    limits = Limits(held_bytes=1 << 20)
    with served(limits) as url, ExitStack() as stack:
        held = [stack.enter_context(dialled(url)) for _ in range(4)]
        for client in held:
            client.sendall(head("/sized", length=1 << 20) + bytes(300_000))
        deadline = time.monotonic() + 600
        while httpx.post(f"{url}/sized", content=bytes(800_000)).status_code != 503:
            assert time.monotonic() < deadline
        assert httpx.post(f"{url}/sized", content=bytes(10_000)).json() == 10_000
    assert _service._held == 0  # all is given back


@pytest.mark.long
def test_who_is_refused_may_not_go_on_to_send(url: str) -> None:
    with dialled(url) as client:
        client.sendall(head("/closed", length=1 << 30))
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 401")
        assert _cut_off(client, b"", bytes(1 << 12), 10_000, pause=0.01)


def test_a_body_that_says_it_is_too_large_is_not_waited_for(url: str) -> None:
    with dialled(url) as client:
        client.sendall(head("/sized", length=1 << 40))
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 413")


@pytest.mark.long
def test_who_does_not_read_is_dropped(url: str) -> None:
    with dialled(url) as client:
        client.sendall(head("/large", method="GET"))
        time.sleep(6.0)  # idle_seconds, and the looks of a second
        got = 0
        try:
            while part := client.recv(1 << 20):
                got += len(part)
        except ConnectionError:
            pass
        assert got < 1 << 25


def test_a_flood_of_requests_on_one_connection_is_cut(url: str) -> None:
    with dialled(url) as client:
        client.sendall(head("/hello", method="GET") * 1000)
        said: Any = answered(client)
    assert said.count("HTTP/1.1 200") < 1000
    assert "HTTP/1.1 400" in said


@pytest.mark.long
def test_an_idle_connection_is_used_again_and_then_ended(url: str) -> None:
    with dialled(url) as client:
        for _ in range(2):
            client.sendall(head("/hello", method="GET"))
            assert client.recv(1 << 16).startswith(b"HTTP/1.1 200")
            time.sleep(0.3)  # more than a head may take
        assert answered(client) == ""
