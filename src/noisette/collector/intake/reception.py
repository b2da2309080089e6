"""The one route that is called for every report: it reads, hands over to the writer, and answers when all is stored.

It is an ASGI application of its own, and `Lane` leads to it past FastAPI: looking through routes, parameters and
dependencies took FastAPI longer than all that is done here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from starlette.concurrency import run_in_threadpool
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.routing import Route

from noisette._service import read_body
from noisette.collector.intake import reading as intake
from noisette.collector.intake.writer import Writer
from noisette.collector.web.telemetry import Metrics
from noisette.survey.batches import Batch
from noisette.survey.campaigns import Campaign

PATH = "/campaigns/{campaign_id}/reports"

_SMALL = 1 << 16  # bytes of a body that is read without another thread


class Reception:
    """Takes reports for campaigns that ``find`` knows, from whom ``admit`` and ``verify`` let in."""

    path = PATH

    def __init__(
        self,
        find: Callable[[str], Campaign],
        admit: Callable[[Request], None],
        verify: Callable[[Sequence[Batch]], None],
        writer: Writer,
        metrics: Metrics,
        largest_body: int,
    ) -> None:
        self._find, self._admit, self._verify, self._writer = find, admit, verify, writer
        self._metrics, self._largest = metrics, largest_body

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request; what it raises is turned into an answer where all errors are."""
        scope["route"] = self  # what the log and the counters go by
        request = Request(scope, receive)
        self._admit(request)
        campaign = self._find(scope["path_params"]["campaign_id"])
        body = await read_body(request, self._largest)
        small = len(body) <= _SMALL
        batches = self.read(campaign, body) if small else await run_in_threadpool(self.read, campaign, body)
        done = await self._writer.write(batches)
        if done.accepted:
            self._metrics.accepted.labels(campaign.id).inc(done.accepted)
        if done.repeated:
            self._metrics.repeated.labels(campaign.id).inc(done.repeated)
        scope.setdefault("state", {})["told"] = {"campaign": campaign.id} | vars(done)
        told = f'{{"accepted":{done.accepted},"repeated":{done.repeated}}}'
        answer = Response(told, 201 if done.accepted else 200, media_type="application/json")
        await answer(scope, receive, send)

    def read(self, campaign: Campaign, body: bytes) -> tuple[Batch, ...]:
        """Return the reports of a body, or raise `Refused`."""
        batches = intake.parse(campaign, body)
        self._verify(batches)
        return batches


class Lane:
    """ASGI middleware that takes reports straight to the reception; errors are answered as those of other routes."""

    def __init__(self, app: Any, reception: Reception, handlers: Any) -> None:
        self._app, self._reception = app, ExceptionMiddleware(reception, handlers)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a report, or pass on what is none."""
        if scope["type"] == "http" and scope["method"] == "POST":
            before, _, rest = scope["path"].partition("/campaigns/")
            name, _, last = rest.partition("/")
            if last == "reports" and name and not before:
                scope["path_params"] = {"campaign_id": name}
                await self._reception(scope, receive, send)
                return
        await self._app(scope, receive, send)


def add_reception(app: FastAPI, reception: Reception, described: dict[int | str, dict[str, Any]]) -> None:
    """Put the lane before all routes, and describe it in the OpenAPI document; the route answers other methods."""
    app.add_middleware(Lane, reception=reception, handlers=app.exception_handlers)
    app.router.routes.insert(0, Route(PATH, reception, methods=["POST"]))
    number = {"type": "integer", "minimum": 0}
    counts = {"type": "object", "properties": {"accepted": number, "repeated": number}}
    stored = {"application/json": {"schema": counts}}
    place = {"name": "campaign_id", "in": "path", "required": True, "schema": {"type": "string", "maxLength": 63}}
    operation = {
        "summary": "Receive",
        "description": "Store one report or a batch; the answer comes when they are on the disk.",
        "operationId": "receive",
        "parameters": [place],
        "requestBody": intake.body_schema(),
        "responses": {
            "200": {"description": "All of it had been stored before.", "content": stored},
            "201": {"description": "Stored.", "content": stored},
        }
        | {str(code): text for code, text in described.items()},
    }

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = get_openapi(title=app.title, version=app.version, routes=app.routes)
            made["paths"][PATH] = {"post": operation}
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's own way of extending the document
