"""What an app answers, without a server: status, headers, and the reason of a refusal or the fields of an answer."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from typing import Any

import httpx

ORIGIN = "https://example.org"
MOVING = {"date", "content-length", "etag", "server", "x-request-id", "last-modified"}
# an hour, a day, a hash, a random name: what differs from run to run
PASSING = re.compile(r"\d{4}-\d\d-\d\d(T[\d:.]+(Z|\+00:00))?|[0-9a-f]{16,}")

Request = tuple[str, str, str, bytes | None, str | None]  # who asks, how, where, with which body and key


def routes(app: Any) -> list[str]:
    """Return all routes of an app as METHOD PATH."""
    found = [
        f"{method} {route.path}"
        for route in app.routes
        for method in sorted(getattr(route, "methods", None) or ())
        if method != "HEAD"
    ]
    return sorted(found)


def answers(app: Any, requests: Iterable[Request], counting: str) -> dict[str, Any]:
    """Return what is answered to each request, and what was counted, which ``counting`` may read."""
    return asyncio.run(_answers(httpx.ASGITransport(app, raise_app_exceptions=False), requests, counting))


async def _answers(to: httpx.ASGITransport, requests: Iterable[Request], counting: str) -> dict[str, Any]:
    client, told = httpx.AsyncClient(transport=to, base_url="http://127.0.0.1"), {}
    for who, method, path, body, key in requests:
        headers = {"Origin": ORIGIN} | ({"Authorization": f"Bearer {key}"} if key else {})
        answer = await client.request(method, path, content=body, headers=headers)
        said: Any = ""
        if answer.headers.get("content-type", "").startswith(("application/json", "application/problem+json")):
            said = answer.json().get("reason", "") if answer.status_code >= 400 else _fields(answer.json())
        shown = {name: PASSING.sub("*", value) for name, value in answer.headers.items() if name not in MOVING}
        told[f"{who} {method} {path} {body!r}"] = [answer.status_code, shown, said]
    counted = await client.get("/metrics", headers={"Authorization": f"Bearer {counting}"})
    told["counted"] = [
        line
        for line in counted.text.splitlines()
        if re.match(r"noisette_\w*(rejected|refused|accepted|enrolled)(_total)?[ {]", line)
    ]
    return told


def _fields(value: Any) -> Any:
    """Return the fields of an answer, or of the first of its elements."""
    first = value[0] if isinstance(value, list) and value else value
    return sorted(first) if isinstance(first, dict) else type(value).__name__
