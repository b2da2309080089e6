"""What a service gives a connection and a body, at the limit and one beyond it, by a clock that the test sets."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI, Request
from prometheus_client import generate_latest
from pydantic import BaseModel
from uvicorn.server import ServerState

from noisette import _service
from noisette._service import (
    BoundedConnection,
    JsonLines,
    Limits,
    Metrics,
    Observed,
    Problem,
    Tls,
    address,
    answers,
    body_of,
    fitting,
    listen,
    read_body,
    read_model,
    server,
)

LIMITS = Limits(
    connections=2, head_bytes=40, head_seconds=3.0, idle_seconds=7.5, body_seconds=6.0, grace=2.0, slowest=5
)
HEAD = b"POST /a HTTP/1.1\r\nHost: b\r\nContent-Length: %d\r\n\r\n"
GET = b"GET /a HTTP/1.1\r\n\r\n"


class Clock(asyncio.SelectorEventLoop):
    """An event loop whose time stands still until it is set."""

    now = 100.0

    def time(self) -> float:
        return self.now

    def step(self) -> None:
        """Run what is due, and what that has started."""
        for _ in range(5):
            self.call_soon(self.stop)
            self.run_forever()


class Wire(asyncio.Transport):
    """Notes what is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.sent, self.closing, self.aborted = b"", False, False

    def write(self, data: Any) -> None:
        self.sent += bytes(data)

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.aborted = True

    def pause_reading(self) -> None:
        """Nothing is read here."""

    def resume_reading(self) -> None:
        """Nothing is read here."""


class Held:
    """An app that reads a body, waits for a word and answers."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.reads = True

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        more = self.reads
        while more:
            more = (await receive()).get("more_body", False)
        await self.go.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})


class Side:
    """One process with its clock: connections are made by hand."""

    def __init__(self) -> None:
        self.clock, self.app = Clock(), Held()
        config = server(self.app, limits=LIMITS).config  # type: ignore[arg-type]  # any ASGI app
        config.load()
        self.config, self.state, self.owing = config, ServerState(), dict[BoundedConnection, None]()

    def connect(self) -> tuple[BoundedConnection, Wire]:
        own = BoundedConnection(
            LIMITS, self.owing, config=self.config, server_state=self.state, app_state={}, _loop=self.clock
        )
        wire = Wire()
        own.connection_made(wire)
        return own, wire

    def at(self, seconds: float) -> None:
        """Let so many seconds pass since the beginning, one look each."""
        while self.clock.now < 100.0 + seconds:
            self.clock.now = min(self.clock.now + 0.5, 100.0 + seconds)
            self.clock.step()
        self.clock.step()


@pytest.fixture
def side() -> Iterator[Side]:
    own = Side()
    yield own
    for task in asyncio.all_tasks(own.clock):
        task.cancel()
    own.clock.step()
    own.clock.close()


def test_a_head_has_its_seconds_and_no_more(side: Side) -> None:
    own, wire = side.connect()
    assert own._deadline == 103.0
    side.at(1.0)
    own.data_received(b"GET /a")  # no more time than one who sends nothing
    side.at(2.5)
    assert (wire.sent, wire.closing) == (b"", False)
    side.at(3.0)  # looks are a second apart, and the third is at the deadline
    assert wire.sent == b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    assert (wire.closing, wire.aborted) == (True, False)
    side.at(4.5)
    assert not wire.aborted
    side.at(5.0)  # two seconds later, if the client has not closed by then
    assert wire.aborted
    assert wire.sent.count(b"HTTP") == 1


def test_the_connection_that_owes_for_longest_makes_room(side: Side) -> None:
    wires = [side.connect()[1] for _ in range(2)]
    assert [wire.aborted for wire in wires] == [False, False]  # as many as may be
    wires.append(side.connect()[1])
    assert [wire.aborted for wire in wires] == [True, False, False]
    assert len(side.owing) == 2


def test_a_lost_connection_is_forgotten(side: Side) -> None:
    own, wire = side.connect()
    own.connection_lost(None)
    assert not side.owing
    side.at(9.0)
    assert wire.sent == b""


@pytest.mark.parametrize(("length", "refused"), [(40, False), (41, True)])
def test_bytes_of_a_head(side: Side, length: int, refused: bool) -> None:
    """What comes before the end of a line, whether or not the parser has told it yet."""
    own, wire = side.connect()
    own.data_received(b"GET /" + b"a" * (length - 5))
    assert wire.sent.startswith(b"HTTP/1.1 400") is refused
    own.data_received(b"b")
    assert wire.sent.count(b"HTTP/1.1 400") == 1  # once, and not again when it is closing


@pytest.mark.parametrize(("length", "refused"), [(23, False), (24, True)])
def test_a_head_is_its_address_and_its_headers(side: Side, length: int, refused: bool) -> None:
    """The address has 2 bytes, the headers 4 + 1, and 3 + 7 with a value of 23: 40."""
    own, wire = side.connect()
    for part in (b"GET /a HTTP/1.1\r\n", b"Host: b\r\n", b"X-Header-N: ", b"c" * length, b"\r\n\r\n"):
        own._loose = 0  # that is the other limit
        own.data_received(part)
    assert wire.sent.startswith(b"HTTP/1.1 400") is refused


def test_every_request_has_a_head_of_its_own(side: Side) -> None:
    own, wire = side.connect()
    side.app.go.set()
    for answered in (1, 2, 3):
        own.data_received(b"GET /%s HTTP/1.1\r\n\r\n" % (b"a" * 20))
        side.clock.step()
        assert wire.sent.count(b"HTTP/1.1 200") == answered
        assert own._head == 21


def test_a_body_earns_its_time_by_bytes(side: Side) -> None:
    own, _ = side.connect()
    side.at(1.0)
    own.data_received(HEAD % 100)
    assert own._deadline == 103.0  # grace
    own.data_received(bytes(10))
    assert own._deadline == 101.0 + 2.0 + 10 / 5
    own.data_received(bytes(5))
    assert own._deadline == 101.0 + 2.0 + 15 / 5
    own.data_received(bytes(20))
    assert own._deadline == 101.0 + 6.0  # and no more than a body may take in all
    assert list(side.owing) == [own]
    own.data_received(bytes(65))
    assert own._deadline == math.inf  # our turn
    assert not side.owing


def test_a_body_does_not_count_as_a_head(side: Side) -> None:
    own, wire = side.connect()
    own.data_received(HEAD % 100)
    for _ in range(2):
        own.data_received(bytes(50))
        assert own._loose == 0
    assert wire.sent == b""


def test_an_answer_begins_the_wait_for_the_next_request(side: Side) -> None:
    own, wire = side.connect()
    own.data_received(GET)
    assert own._deadline == math.inf
    side.at(20.0)
    assert wire.sent == b""  # our own time is not the client's
    side.app.go.set()
    side.clock.step()
    assert wire.sent.endswith(b"ok")
    assert own._deadline == 120.0 + 7.5
    assert list(side.owing) == [own]
    side.at(22.0)
    own.data_received(b"GET")  # begins a head
    assert own._deadline == 122.0 + 3.0
    side.at(24.0)
    own.data_received(b" /a")  # goes on with it
    assert own._deadline == 122.0 + 3.0


def test_who_is_answered_early_has_two_seconds_to_stop(side: Side) -> None:
    own, _ = side.connect()
    side.app.reads = False
    side.app.go.set()
    own.data_received(HEAD % 1000 + bytes(30))
    side.clock.step()
    assert own._deadline == 102.0
    own.data_received(bytes(30))  # earns nothing any more
    assert own._deadline == 102.0
    own.data_received(bytes(940))
    assert own._deadline == 107.5  # the end of the body: the next request may come


def test_who_does_not_read_has_the_time_of_an_idle_connection(side: Side) -> None:
    own, wire = side.connect()
    own.data_received(GET)
    own.pause_writing()
    assert own._deadline == 107.5
    own.resume_writing()
    assert own._deadline == math.inf
    side.at(1.0)
    side.app.go.set()
    side.clock.step()
    own.pause_writing()
    own.resume_writing()
    assert own._deadline == 108.5  # idle: the next request is owed
    wire.closing = True
    side.at(2.0)
    own.on_response_complete()
    assert own._deadline == 109.5
    side.at(9.0)
    assert not wire.aborted
    side.at(10.0)
    assert wire.aborted  # it was answered: nothing more is written
    assert wire.sent.count(b"HTTP") == 1


def test_an_answer_that_has_begun_is_cut_without_a_word(side: Side) -> None:
    own, wire = side.connect()
    own.data_received(GET)
    own.cycle.response_started = True
    own._deadline = 101.0
    side.at(1.0)
    assert (wire.aborted, wire.sent) == (True, b"")


@pytest.mark.parametrize(("waiting", "refused"), [(16, False), (17, True)])
def test_requests_that_wait_on_one_connection(side: Side, waiting: int, refused: bool) -> None:
    own, wire = side.connect()
    for _ in range(1 + waiting):
        own._loose = 0
        own.data_received(GET)
    assert wire.sent.startswith(b"HTTP/1.1 400") is refused
    assert len(own.pipeline) == 16


def test_settings_of_the_server(tmp_path: Any) -> None:
    config = server(FastAPI(), limits=LIMITS).config
    told = (config.proxy_headers, config.access_log, config.server_header, config.lifespan, config.ws)
    assert told == (False, False, False, "on", "none")
    assert (config.timeout_keep_alive, config.timeout_graceful_shutdown) == (8, 10)
    assert (config.ssl_certfile, config.ssl_keyfile) == (None, None)
    tls = Tls(tmp_path / "certificate", tmp_path / "key")
    config = server(FastAPI(), tls=tls).config
    assert (config.ssl_certfile, config.ssl_keyfile) == (tls.certificate, tls.key)
    assert config.timeout_keep_alive == 75


class Ends:
    """A server that ends as uvicorn does, or before its time."""

    def __init__(self, ended: bool) -> None:
        self.should_exit = ended

    def run(self, sockets: Any) -> None:
        raise SystemExit(3)


def test_a_service_that_could_not_start_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    log = logging.getLogger("noisette.test.run")
    uvicorn_log = logging.getLogger("uvicorn.error")
    usual = uvicorn_log.handlers, uvicorn_log.propagate, uvicorn_log.level
    try:
        for ended in (True, False):
            monkeypatch.setattr(_service, "server", lambda *_, ended=ended, **__: Ends(ended))
            if ended:
                _service.run(FastAPI(), None, log)  # type: ignore[arg-type]  # nothing is served
            else:
                with pytest.raises(SystemExit):
                    _service.run(FastAPI(), None, log)  # type: ignore[arg-type]
        for own in (log, uvicorn_log):
            assert [type(one.formatter) for one in own.handlers] == [JsonLines]
            assert own.propagate is False
        assert (log.level, uvicorn_log.level) == (logging.INFO, logging.WARNING)
    finally:
        uvicorn_log.handlers, uvicorn_log.propagate = usual[:2]
        uvicorn_log.setLevel(usual[2])


def test_a_port_that_is_taken_is_named() -> None:
    with listen("127.0.0.1", 0) as bound:
        port = bound.getsockname()[1]
        assert address("a.example", bound) == f"http://a.example:{port}"
        assert address("a.example", bound, Tls(None, None)) == f"https://a.example:{port}"  # type: ignore[arg-type]
        with pytest.raises(OSError, match=rf"Cannot listen on 127.0.0.1:{port}: .*--port"):
            listen("127.0.0.1", port)
        assert bound.type == socket.SOCK_STREAM


@pytest.mark.parametrize(
    ("soft", "hard", "raised", "connections"),
    [
        (355, 10_000, 356, 100),  # one too few, and they may be raised
        (356, 10_000, None, 100),  # just enough
        (300, 330, 330, 74),  # as far as it goes
        (300, -1, 356, 100),  # without an end
        (-1, -1, None, 100),
        (200, 257, 257, 1),
        (200, 210, 210, 1),  # one at least
    ],
)
def test_connections_fit_the_files_that_may_be_open(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, raised: int | None, connections: int
) -> None:
    changed = list[Any]()
    assert _service.resource.RLIM_INFINITY == -1
    monkeypatch.setattr(_service.resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(_service.resource, "setrlimit", lambda _, pair: changed.append(pair))
    assert fitting(Limits(connections=100)).connections == connections
    assert changed == ([] if raised is None else [(raised, hard)])


def sent(*parts: bytes, declared: str | None = None, ends: bool = True) -> Request:
    """A request whose body comes in parts."""
    messages: list[dict[str, Any]] = [{"type": "http.request", "body": one, "more_body": True} for one in parts]
    messages += [{"type": "http.request"}] if ends else [{"type": "http.disconnect"}]
    headers = [] if declared is None else [(b"content-length", declared.encode())]

    async def receive() -> Any:
        return messages.pop(0)

    return Request({"type": "http", "headers": headers}, receive)


def read(request: Request, most: int, limits: Limits = LIMITS) -> bytes:
    return asyncio.run(read_body(request, most, limits=limits))


def refusal(request: Request, most: int, limits: Limits = LIMITS) -> tuple[int, str]:
    with pytest.raises(Problem) as caught:
        read(request, most, limits)
    return caught.value.status, caught.value.reason


def test_a_body_of_as_many_bytes_as_may_be() -> None:
    assert read(sent(b"abc", b"de"), 5) == b"abcde"
    assert read(sent(), 5) == b""
    assert read(sent(b"abcde", declared="5"), 5) == b"abcde"
    assert refusal(sent(b"abc", b"def"), 5) == (413, "too-large")
    assert refusal(sent(declared="6"), 5) == (413, "too-large")
    assert refusal(sent(declared="9" * 5000), 5) == (413, "too-large")  # no number that Python reads
    assert read(sent(b"abc", declared="-9"), 5) == b"abc"
    assert refusal(sent(b"abc", ends=False), 5) == (400, "cut-short")


def test_what_bodies_hold_is_bounded_over_all_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first 16 KiB of each are free; what comes in parts is counted once."""
    monkeypatch.setattr(_service, "_held", 0)
    free, limits = 1 << 14, Limits(held_bytes=100)
    most = 1 << 20
    small = sent(bytes(free))
    assert len(read(small, most, limits)) == free
    assert (_service._held, small.scope.get("noisette.held")) == (0, None)
    first = sent(bytes(free), bytes(30), bytes(30))
    assert len(read(first, most, limits)) == free + 60
    assert (_service._held, first.scope["noisette.held"]) == (60, 60)
    assert len(read(sent(bytes(free + 40)), most, limits)) == free + 40  # as many as may be held
    assert refusal(sent(bytes(free + 1)), most, limits) == (503, "busy")
    assert len(read(sent(bytes(free)), most, limits)) == free
    assert _service._held == 100
    _service._give_back(first.scope)
    _service._give_back(first.scope)  # once
    assert _service._held == 40
    assert len(read(sent(bytes(free + 60)), most, limits)) == free + 60


class Asked(BaseModel):
    """What a request has to say."""

    name: str
    sizes: list[int]


@pytest.mark.parametrize("padding", [(1 << 16) - 26, (1 << 16) - 25])
def test_a_model_is_read_beside_the_loop_where_it_is_large(monkeypatch: pytest.MonkeyPatch, padding: int) -> None:
    body = b'{"name": "%s", "sizes": [3]}' % (b"a" * padding)
    away = list[int]()
    usual = _service.off_loop

    async def watched(work: Any, *given: Any) -> Any:
        away.append(len(given[0]))
        return await usual(work, *given)

    monkeypatch.setattr(_service, "off_loop", watched)
    monkeypatch.setattr(_service, "_held", 0)
    assert asyncio.run(read_model(sent(body), Asked, 1 << 20)).name == "a" * padding
    assert away == ([len(body)] if len(body) > 1 << 16 else [])
    assert len(body) == padding + 26


def test_what_is_wrong_is_told_by_its_place() -> None:
    for body, told in (
        (b'{"name": "a", "sizes": [1, "secret"]}', "sizes.1: Input should be a valid integer"),
        (b"secret", "Invalid JSON"),
        (b'{"sizes": ["secret"]}', "name: Field required."),
    ):
        with pytest.raises(Problem) as caught:
            asyncio.run(read_model(sent(body), Asked, 100))
        assert (caught.value.status, caught.value.reason) == (422, "bad-query")
        assert str(caught.value).startswith(told)
        assert "secret" not in str(caught.value)


def test_the_openapi_document_says_what_is_asked_and_answered() -> None:
    assert body_of(Asked)["requestBody"]["required"] is True
    told = {code: answer["description"] for code, answer in answers(200, 299, 300, 404).items()}
    assert told == {200: "Known before.", 299: "Known before.", 300: "Refused.", 404: "Refused."}


class Route:
    """What a router leaves in the scope."""

    path = "/a/{name}"


async def _answering(scope: Any, receive: Any, send: Any) -> None:
    scope["route"] = Route
    scope.setdefault("state", {})["logged"] = {"kind": "b", "reports": 4}
    if scope["path"] == "/fails":
        raise KeyError("secret")
    await send({"type": "http.response.start", "status": 201})
    await send({"type": "http.response.body", "status": 999})


def observed(app: Observed, path: str = "/", method: str = "GET", kind: str = "http") -> list[Any]:
    told = list[Any]()

    async def send(message: Any) -> None:
        told.append(message)

    asyncio.run(app({"type": kind, "path": path, "method": method}, None, send))
    return told


def test_requests_are_counted_and_logged_by_their_route(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics, log = Metrics(), logging.getLogger("noisette.test.observed")
    ticks = iter([10.0, 10.01234567, 20.0, 20.5, 30.0, 30.0])
    monkeypatch.setattr(_service.time, "perf_counter", lambda: next(ticks))
    app = Observed(_answering, metrics, log)
    with caplog.at_level(logging.INFO, log.name):
        assert len(observed(app)) == 2
        with pytest.raises(KeyError):
            observed(app, "/fails", "POST")
        observed(app, method="BREW")
        assert len(observed(app, kind="lifespan")) == 2  # is neither counted nor logged
    fields: list[Any] = [getattr(record, "fields", None) for record in caplog.records]
    more = {"kind": "b", "reports": 4}
    assert fields == [
        {"method": "GET", "route": Route.path, "status": 201, "ms": 12.35} | more,
        {"method": "POST", "route": Route.path, "status": 500, "ms": 500.0} | more,
        {"method": "other", "route": Route.path, "status": 201, "ms": 0.0} | more,
    ]
    text = generate_latest(metrics.registry).decode()
    assert text == metrics.text().decode()
    assert 'noisette_requests_total{method="GET",route="/a/{name}",status="201"} 1.0' in text
    assert 'noisette_requests_total{method="POST",route="/a/{name}",status="500"} 1.0' in text
    assert 'noisette_request_seconds_sum{route="/a/{name}"} 0.51234567' in text


def test_what_came_when_is_told_for_ten_minutes_together(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = logging.getLogger("noisette.test.unhurried")
    now = list[float]()
    monkeypatch.setattr(_service.time, "time", lambda: now[-1])
    app = Observed(_answering, Metrics(), log, [Route.path])
    with caplog.at_level(logging.INFO, log.name):
        for moment, method in ((1200.0, "GET"), (1799.9, "GET"), (1500.0, "POST")):
            now.append(moment)
            observed(app, method=method)
        assert not caplog.records
        now.append(1800.0)
        observed(app)
    told = {"until": 1800, "route": Route.path, "status": 201, "kind": "b"}
    assert [record.fields for record in caplog.records] == [  # type: ignore[attr-defined]
        told | {"method": "GET", "requests": 2, "reports": 8},
        told | {"method": "POST", "requests": 1, "reports": 4},
    ]


def test_a_line_of_the_log_names_an_error_and_not_its_words() -> None:
    def line(error: Any, name: str = "é") -> Any:
        record = logging.LogRecord("a", logging.ERROR, "", 0, "%s happened", (name,), error)
        record.fields = {"status": 3}
        return JsonLines().format(record)

    told = line((KeyError, KeyError("secret"), None))
    assert "é happened" in told  # as it is, not as \\u00e9
    assert "secret" not in told
    found = json.loads(told)
    assert found.pop("time")
    assert found == {"level": "error", "event": "é happened", "error": "KeyError", "status": 3}
    for nothing in (None, (None, None, None)):
        assert "error" not in json.loads(line(nothing))
