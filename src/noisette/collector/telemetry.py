"""What an operator sees: counters for Prometheus, one JSON line a request. They hold no value, no key and no token."""

from __future__ import annotations

import json
import logging
import time
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

log = logging.getLogger("noisette.collector")


class Metrics:
    """Counters of one service."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = self._make(Counter, "requests", "Requests.", "method", "route", "status")
        self.seconds = self._make(Histogram, "request_seconds", "Time to answer.", "route")
        self.accepted = self._make(Counter, "reports_accepted", "Reports stored.", "campaign")
        self.repeated = self._make(Counter, "reports_repeated", "Reports that had been stored before.", "campaign")
        self.rejected = self._make(Counter, "reports_rejected", "Reports and requests refused.", "reason")
        self.users = self._make(Gauge, "users", "Users in the sums of a period.", "campaign", "period")

    def _make(self, kind: Any, name: str, text: str, *labels: str) -> Any:
        return kind(f"noisette_{name}", text, labels, registry=self.registry)

    def text(self) -> bytes:
        """Return all of them in Prometheus' format."""
        return generate_latest(self.registry)


class Observed:
    """ASGI middleware that counts and logs every request by its route's template, never by its content."""

    def __init__(self, app: Any, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

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
            log.info("request", extra={"told": _told(scope, method, route, status, seconds)})


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
