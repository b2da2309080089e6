"""What every HTTP service of ours does: listen, end gracefully, count and log requests, bound what a client may cost.

A client owes bytes: the head of a request, its body. `BoundedConnection` gives it a stated time for each, sheds the
connection that has owed for longest when there are too many, and drops a client that does not read. `read_body` bounds
one body and, over all requests of the process, the bytes that bodies hold; `off_loop` parses what is large in two
threads of its own.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar

import uvicorn
from fastapi import FastAPI, Request
from fastapi.middleware.cors import CORSMiddleware
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from pydantic import BaseModel, ValidationError
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from noisette._files import posix_module

resource = posix_module("resource", "A service (collector, shuffler)")

_ENDING = (signal.SIGTERM, signal.SIGINT)
_PATIENCE = 10  # seconds that requests have to end once a service stops
_OTHERS = 256  # open files that are no connections: databases, logs
_PIPELINED = 16  # requests of one connection that wait for the one before
_SPAN = 600  # seconds whose requests are logged together, where the log must not tell when each came
_LINGER = 2.0  # seconds in which the rest of a body is thrown away that was answered before its end
_FREE = 1 << 14  # bytes of every body that do not count as held: most reports are smaller
SMALL = 1 << 16  # bytes of a body that is parsed without another thread
_HELD = "noisette.held"  # bytes that a request holds, in its scope

_parsers = ThreadPoolExecutor(2, thread_name_prefix="noisette-parser")
_Result = TypeVar("_Result")
_Model = TypeVar("_Model", bound=BaseModel)


@dataclass(frozen=True)
class Limits:
    """What clients may cost one process: open connections, time, and bytes that wait in memory.

    A body has ``body_seconds`` in all, and has to come at ``slowest`` bytes a second after ``grace`` seconds.
    """

    connections: int = 1000
    head_bytes: int = 1 << 16
    head_seconds: float = 10.0
    idle_seconds: float = 75.0
    body_seconds: float = 60.0
    grace: float = 10.0
    slowest: int = 1 << 14
    held_bytes: int = 1 << 26


LIMITS = Limits()
_held = 0  # bytes of bodies in this process; changed on event loops alone


class Problem(Exception):
    """A request that is refused before its content is looked at."""

    def __init__(self, status: int, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.status, self.reason = status, reason


@dataclass(frozen=True)
class Tls:
    """The files of a certificate and of its private key."""

    certificate: Path
    key: Path


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that already takes connections; port 0 takes a free one."""
    try:
        return socket.create_server((host, port), backlog=1024)
    except OSError as error:
        raise OSError(f"Cannot listen on {host}:{port}: {error.strerror}. Choose another --port") from error


def address(host: str, bound: socket.socket, tls: Tls | None = None) -> str:
    """Return the URL of a service on a socket."""
    return f"{'https' if tls else 'http'}://{host}:{bound.getsockname()[1]}"


def run(
    app: FastAPI, bound: socket.socket, log: logging.Logger, *, tls: Tls | None = None, limits: Limits = LIMITS
) -> None:
    """Serve until SIGTERM or SIGINT, then finish the requests that have begun."""
    _log_lines(log)
    serving = server(app, tls=tls, limits=fitting(limits))
    try:
        serving.run(sockets=[bound])
    except SystemExit:  # uvicorn raises the signal once more when it has ended as it should
        if not serving.should_exit:
            raise


def _log_lines(log: logging.Logger) -> None:
    """Write one JSON object a line, of our own log and of the server's warnings."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    for own in (log, logging.getLogger("uvicorn.error")):
        own.handlers = [handler]
        own.propagate = False
    log.setLevel(logging.INFO)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)


def run_workers(count: int, work: Callable[[], None], log: logging.Logger) -> None:
    """Do the same work in this many processes until SIGTERM or SIGINT; one that ends by itself is started again.

    Call it before there are threads: processes are copies of this one.
    """
    _log_lines(log)
    children: set[int] = set()
    ending = False

    def end(*_: Any) -> None:
        nonlocal ending
        ending = True
        for child in children:
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(child, signal.SIGTERM)

    def start() -> None:
        # A signal that comes meanwhile waits until the child is known here, and until it would end the child there.
        signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
        if not ending:
            child = os.fork()
            if not child:
                become_worker()
            children.add(child)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)

    def become_worker() -> None:
        status = 1
        try:
            for number in _ENDING:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
            work()
            status = 0
        except BaseException:
            log.exception("worker")
        finally:
            os._exit(status)

    for number in _ENDING:
        signal.signal(number, end)
    for _ in range(count):
        start()
    while children:
        child, status = os.wait()
        children.discard(child)
        if not ending:
            log.error("worker ended", extra={"fields": {"status": os.waitstatus_to_exitcode(status)}})
            time.sleep(1)  # one that cannot start does not keep the machine busy
            start()


def server(app: FastAPI, *, tls: Tls | None = None, limits: Limits = LIMITS) -> uvicorn.Server:
    """Return what will serve: HTTP or HTTPS alone, within limits, with our own log."""
    owing: dict[BoundedConnection, None] = {}
    settings = uvicorn.Config(
        app,
        http=partial(BoundedConnection, limits, owing),  # type: ignore[arg-type]  # anything that makes a protocol
        timeout_keep_alive=math.ceil(limits.idle_seconds),
        ws="none",
        proxy_headers=False,  # whoever says where it comes from may lie: a proxy limits what an address may ask
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=_PATIENCE,
        ssl_certfile=tls.certificate if tls else None,
        ssl_keyfile=tls.key if tls else None,
    )
    return _Server(settings)


class _Server(uvicorn.Server):
    """A server that gives handshakes as little time as the heads of requests."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        if self.config.ssl_certfile:
            loop: Any = asyncio.get_running_loop()
            loop.create_server = partial(loop.create_server, ssl_handshake_timeout=LIMITS.head_seconds)
        await super().startup(sockets)


class BoundedConnection(HttpToolsProtocol):
    """One connection, whose client has to send in time what it owes, and to read what it asked for."""

    def __init__(self, limits: Limits, owing: dict[BoundedConnection, None], **given: Any) -> None:
        super().__init__(**given)
        self._limits, self._owing = limits, owing  # those who owe bytes, the oldest debt first
        self._deadline, self._idle = math.inf, False
        self._head = self._loose = self._received = 0
        self._began: float  # set with each head

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Expect a request; where there are too many connections, end the one that has owed for longest."""
        super().connection_made(transport)
        self._expect(self._limits.head_seconds)
        if len(self.connections) > self._limits.connections:
            oldest = next(iter(self._owing))
            del self._owing[oldest]
            oldest.transport.abort()
        self._timer = self.loop.call_later(1.0, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._timer.cancel()
        self._owing.pop(self, None)
        super().connection_lost(exc)

    def _expect(self, seconds: float) -> None:
        """Note that the client owes bytes, and until when."""
        self._deadline = self.loop.time() + seconds
        self._owing.pop(self, None)
        self._owing[self] = None

    def _look(self) -> None:
        """End the connection if it is late; a request without an answer gets one first."""
        if self.loop.time() >= self._deadline:
            if self.transport.is_closing() or (self.cycle is not None and self.cycle.response_started):
                self.transport.abort()
                return
            line = f"HTTP/1.1 {HTTPStatus.REQUEST_TIMEOUT.value} {HTTPStatus.REQUEST_TIMEOUT.phrase}"
            self.transport.write(f"{line}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode("ascii"))
            self.transport.close()
            self._deadline = self.loop.time() + _LINGER
        self._timer = self.loop.call_later(1.0, self._look)

    def data_received(self, data: bytes) -> None:
        """Take bytes, no more of them than a head may have where no body comes."""
        if self._idle:
            self._idle = False
            self._expect(self._limits.head_seconds)
        self._loose += len(data)
        super().data_received(data)
        if self._loose > self._limits.head_bytes and not self.transport.is_closing():
            self.send_400_response("The head of the request is too long.")

    def on_message_begin(self) -> None:
        """Begin to count the head."""
        self._head = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Take a part of the address."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, before the body or after it."""
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def _count(self, size: int) -> None:
        self._head += size
        if self._head > self._limits.head_bytes:  # the parser stops, and the answer is 400
            raise ValueError("The head of the request is too long. Send fewer or shorter headers.")

    def on_headers_complete(self) -> None:
        """Begin to answer, and give the body its time."""
        if len(self.pipeline) >= _PIPELINED:
            raise ValueError("Too many requests at once on one connection. Wait for answers before you send more.")
        self._loose = self._received = 0
        self._began = self.loop.time()
        self._expect(self._limits.grace)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a part of the body, and give the rest as much time as the part has earned."""
        self._loose = 0
        self._received += len(body)
        if not self.cycle.response_complete:
            earned = self._limits.grace + self._received / self._limits.slowest
            self._deadline = self._began + min(self._limits.body_seconds, earned)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Note that it is our turn, or that the client may ask the next thing."""
        super().on_message_complete()
        self._loose = 0
        if self.cycle.response_complete:
            self._rest()
        else:
            self._owing.pop(self, None)
            self._deadline = math.inf

    def on_response_complete(self) -> None:
        """Wait for the next request, or for the client to read to the end where none can come."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._deadline = self.loop.time() + self._limits.idle_seconds
        elif self.cycle.response_complete and self.cycle.more_body:
            self._expect(_LINGER)
        elif self.cycle.response_complete:
            self._rest()

    def _rest(self) -> None:
        self._idle = True
        self._expect(self._limits.idle_seconds)

    def pause_writing(self) -> None:
        """Give the client time to read."""
        self._deadline = self.loop.time() + self._limits.idle_seconds
        super().pause_writing()

    def resume_writing(self) -> None:
        """Go on."""
        self._deadline = self.loop.time() + self._limits.idle_seconds if self._idle else math.inf
        super().resume_writing()


def fitting(limits: Limits) -> Limits:
    """Return limits whose connections fit the files that this process may open, which are raised where they can be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = limits.connections + _OTHERS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        limits = replace(limits, connections=min(limits.connections, max(1, soft - _OTHERS)))
    return limits


def admit_pages(app: FastAPI, origins: Sequence[str], headers: Sequence[str]) -> None:
    """Let web pages of these sites send requests with these headers; browsers keep those of others out."""
    if origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=list(origins), allow_methods=["GET", "POST"], allow_headers=list(headers)
        )


async def read_body(request: Request, most: int, *, limits: Limits = LIMITS) -> bytes:
    """Return the body of a request, giving up as soon as it is too large, or all bodies together are.

    Call it when the client is known. What it holds is given back when `Observed` sees the request end.
    """
    declared = request.headers.get("content-length", "0")

    def large() -> Problem:
        return Problem(413, "too-large", f"Expected a body of at most {most} bytes. Send smaller batches.")

    if declared.isdecimal() and int(declared[:20]) > most:
        raise large()
    parts, size, more = [], 0, True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise Problem(400, "cut-short", "The connection ended before the body did. Send it again.")
        part, more = message.get("body", b""), message.get("more_body", False)
        size += len(part)
        if size > most:
            raise large()
        if size > _FREE:
            _hold(request.scope, size - _FREE, limits)
        parts.append(part)
    return b"".join(parts)


def _hold(scope: Any, size: int, limits: Limits) -> None:
    """Count this many bytes as held by a request, or refuse it where the process would hold too many."""
    global _held
    more = size - scope.get(_HELD, 0)
    if _held + more > limits.held_bytes:
        raise Problem(503, "busy", "Too many large bodies are on their way. Nothing was stored; try again.")
    _held += more
    scope[_HELD] = size


def _give_back(scope: Any) -> None:
    global _held
    _held -= scope.pop(_HELD, 0)


async def off_loop(work: Callable[..., _Result], *given: Any) -> _Result:
    """Return what a function makes of a large body; two of them at a time are worked on, beside the event loop."""
    return await asyncio.get_running_loop().run_in_executor(_parsers, partial(work, *given))


async def read_model(request: Request, model: type[_Model], most: int) -> _Model:
    """Return a JSON body as a model, or say what is wrong without repeating what was sent.

    FastAPI itself would read and parse the whole body before it looks at the key.
    """
    body = await read_body(request, most)
    try:
        return (
            model.model_validate_json(body) if len(body) <= SMALL else await off_loop(model.model_validate_json, body)
        )
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise Problem(422, "bad-query", f"{place}: {first['msg']}." if place else f"{first['msg']}.") from error


def body_of(model: type[BaseModel]) -> dict[str, Any]:
    """Describe the body that `read_model` reads, for the OpenAPI document."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": model.model_json_schema()}}}}


def answers(*codes: int) -> dict[int | str, dict[str, Any]]:
    """Describe the answers that are not a success: a reason in one word, and in a sentence."""
    reason = {"type": "object", "properties": {"reason": {"type": "string"}, "detail": {"type": "string"}}}
    content = {"application/json": {"schema": reason}}
    return {code: {"description": "Refused." if code >= 300 else "Known before.", "content": content} for code in codes}


class Metrics:
    """The counters of one service, of which every service has those of its requests."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = self.make(Counter, "requests", "Requests.", "method", "route", "status")
        self.seconds = self.make(Histogram, "request_seconds", "Time to answer.", "route")

    def make(self, kind: Any, name: str, text: str, *labels: str) -> Any:
        """Add a counter, a gauge or a histogram."""
        return kind(f"noisette_{name}", text, labels, registry=self.registry)

    def text(self) -> bytes:
        """Return all of them in Prometheus' format."""
        return generate_latest(self.registry)


class Observed:
    """ASGI middleware that counts and logs every request by its route's template, never by its content.

    Requests of ``unhurried`` routes are logged together, every ten minutes: what arrived when is nobody's business.
    """

    def __init__(self, app: Any, metrics: Metrics, log: logging.Logger, unhurried: Sequence[str] = ()) -> None:
        self._app, self._metrics, self._log = app, metrics, log
        self._unhurried, self._span = frozenset(unhurried), 0
        self._waiting: dict[tuple[Any, ...], dict[str, int]] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request and write down how it went."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500

        async def watch(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watch)
        finally:
            _give_back(scope)
            seconds = time.perf_counter() - started
            route = getattr(scope.get("route"), "path", "unknown")
            method = scope["method"] if scope["method"] in ("GET", "POST", "HEAD", "OPTIONS") else "other"
            self._metrics.requests.labels(method, route, str(status)).inc()
            self._metrics.seconds.labels(route).observe(seconds)
            fields = _fields(scope, method, route, status, seconds)
            if route in self._unhurried:
                self._gather(fields)
            else:
                self._log.info("request", extra={"fields": fields})

    def _gather(self, fields: dict[str, Any]) -> None:
        """Add a request to those of its ten minutes, and log those of ten minutes that are over."""
        span = int(time.time()) // _SPAN
        if span != self._span:
            for texts, numbers in self._waiting.items():
                self._log.info(
                    "requests", extra={"fields": {"until": self._span * _SPAN + _SPAN} | dict(texts) | numbers}
                )
            self._span, self._waiting = span, {}
        texts = tuple((name, own) for name, own in fields.items() if isinstance(own, str) or name == "status")
        numbers = self._waiting.setdefault(texts, {"requests": 0})
        numbers["requests"] += 1
        for name, own in fields.items():
            if isinstance(own, int) and name != "status":
                numbers[name] = numbers.get(name, 0) + own


def _fields(scope: Any, method: str, route: str, status: int, seconds: float) -> dict[str, Any]:
    own = {"method": method, "route": route, "status": status, "ms": round(seconds * 1000, 2)}
    more: dict[str, Any] = scope.get("state", {}).get("logged", {})
    return own | more


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        head = {"time": self.formatTime(record), "level": record.levelname.lower(), "event": record.getMessage()}
        error, *_ = record.exc_info or (None,)
        if error is not None:
            head["error"] = error.__name__  # its message could hold what was sent
        return json.dumps(head | getattr(record, "fields", {}), ensure_ascii=False)
