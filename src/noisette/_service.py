"""What every HTTP service of ours does: listen, end gracefully, count and log requests, bound their bodies."""

from __future__ import annotations

import json
import logging
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.middleware.cors import CORSMiddleware
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from starlette.requests import ClientDisconnect

_PATIENCE = 10  # seconds that requests have to end once a service is told to stop


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


def run(app: FastAPI, bound: socket.socket, log: logging.Logger, *, tls: Tls | None = None) -> None:
    """Serve until SIGTERM or SIGINT, then finish the requests that have begun."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    for own in (log, logging.getLogger("uvicorn.error")):
        own.addHandler(handler)
        own.propagate = False
    log.setLevel(logging.INFO)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    serving = server(app, tls=tls)
    try:
        serving.run(sockets=[bound])
    except SystemExit:  # uvicorn raises the signal once more when it has ended as it should
        if not serving.should_exit:
            raise


def server(app: FastAPI, *, tls: Tls | None = None) -> uvicorn.Server:
    """Return what will serve: HTTP or HTTPS alone, with our own log."""
    settings = uvicorn.Config(
        app,
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=_PATIENCE,
        ssl_certfile=tls.certificate if tls else None,
        ssl_keyfile=tls.key if tls else None,
    )
    return uvicorn.Server(settings)


def admit_pages(app: FastAPI, origins: Sequence[str], headers: Sequence[str]) -> None:
    """Let web pages of these sites send requests with these headers; browsers keep those of others out."""
    if origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=list(origins), allow_methods=["GET", "POST"], allow_headers=list(headers)
        )


async def read_body(request: Request, most: int) -> bytes:
    """Return the body of a request, giving up as soon as it is too large."""
    parts, size = [], 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > most:
                raise Problem(413, "too-large", f"Expected a body of at most {most} bytes. Send smaller batches.")
            parts.append(part)
    except ClientDisconnect as error:
        raise Problem(400, "cut-short", "The connection ended before the body did. Send it again.") from error
    return b"".join(parts)


def answers(*codes: int) -> dict[int | str, dict[str, Any]]:
    """Describe the answers that are not a success: a reason in one word, and in a sentence."""
    told = {"type": "object", "properties": {"reason": {"type": "string"}, "detail": {"type": "string"}}}
    content = {"application/json": {"schema": told}}
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
    """ASGI middleware that counts and logs every request by its route's template, never by its content."""

    def __init__(self, app: Any, metrics: Metrics, log: logging.Logger) -> None:
        self._app, self._metrics, self._log = app, metrics, log

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
            seconds = time.perf_counter() - started
            route = getattr(scope.get("route"), "path", "unknown")
            method = scope["method"] if scope["method"] in ("GET", "POST", "HEAD", "OPTIONS") else "other"
            self._metrics.requests.labels(method, route, str(status)).inc()
            self._metrics.seconds.labels(route).observe(seconds)
            self._log.info("request", extra={"told": _told(scope, method, route, status, seconds)})


def _told(scope: Any, method: str, route: str, status: int, seconds: float) -> dict[str, Any]:
    own = {"method": method, "route": route, "status": status, "ms": round(seconds * 1000, 2)}
    more: dict[str, Any] = scope.get("state", {}).get("told", {})
    return own | more


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        head = {"time": self.formatTime(record), "level": record.levelname.lower(), "event": record.getMessage()}
        if record.exc_info and record.exc_info[0] is not None:
            head["error"] = record.exc_info[0].__name__  # its message could hold what was sent
        return json.dumps(head | getattr(record, "told", {}), ensure_ascii=False)
