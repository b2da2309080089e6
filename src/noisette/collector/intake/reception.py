"""The one route that is called for every report: it reads, hands over to the writer, and answers when all is stored.

It is an ASGI application of its own, and `Lane` leads to it past FastAPI: looking through routes, parameters and
dependencies took FastAPI longer than all that is done here. The writer is one thread: whatever has arrived while it
waited for the disk goes into the next transaction.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.routing import Route

from noisette._service import SMALL, off_loop, read_body
from noisette.collector.campaigns.life import Life
from noisette.collector.intake import reading as intake
from noisette.collector.intake.reading import outside
from noisette.collector.storage.store import Accepted, Refusal, Refused, Store
from noisette.collector.telemetry import CollectorMetrics
from noisette.survey.batches import Batch
from noisette.survey.campaigns import Campaign

PATH = "/campaigns/{campaign_id}/reports"

_MOST = 20_000  # reports in one transaction, unless a single batch has more

Outcome = Accepted | Refused | BaseException


class Reception:
    """Takes reports for campaigns that ``find`` knows, from whom ``admit`` and ``verify`` let in."""

    path = PATH

    def __init__(
        self,
        find: Callable[[str], Campaign],
        admit: Callable[[Request], object],
        verify: Callable[[Sequence[Batch]], None],
        writer: Writer,
        metrics: CollectorMetrics,
        largest_body: int,
        life: Callable[[str], Life],
    ) -> None:
        self._find, self._admit, self._verify, self._writer, self._life = find, admit, verify, writer, life
        self._metrics, self._largest = metrics, largest_body

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request; what it raises is turned into an answer where all errors are."""
        scope["route"] = self  # what the log and the counters go by
        request = Request(scope, receive)
        self._admit(request)
        campaign = self._find(scope["path_params"]["campaign_id"])
        body = await read_body(request, self._largest)
        small = len(body) <= SMALL
        batches = self.read(campaign, body) if small else await off_loop(self.read, campaign, body)
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
        batches = intake.parse(campaign, body, self._life(campaign.id))
        self._verify(batches)
        return batches


class Lane:
    """ASGI middleware that takes reports straight to the reception; errors are answered as those of other routes."""

    def __init__(self, app: Any, reception: Reception, handlers: Any) -> None:
        self._app, self._reception = app, ExceptionMiddleware(reception, handlers)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request that brings reports; pass any other request on."""
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


class Writer:
    """Stores the batches of bodies, many bodies to a transaction, and answers when they are on the disk."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._queue: queue.SimpleQueue[tuple[Sequence[Batch], asyncio.Future[Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="noisette-writer", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Write what has been submitted, and end."""
        self._queue.put(None)
        self._thread.join()

    async def write(self, body: Sequence[Batch]) -> Accepted:
        """Return when all of a body is on the disk; raise `Refused`, or what went wrong, when nothing is."""
        waiting: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._queue.put((body, waiting))
        outcome: Accepted | BaseException = await waiting
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            taken, size, ended = [first], sum(map(len, first[0])), False
            while size < _MOST and not ended:
                try:
                    more = self._queue.get_nowait()
                except queue.Empty:
                    break
                if more is None:
                    ended = True
                else:
                    taken.append(more)
                    size += sum(map(len, more[0]))
            outcomes = store_all(self._store, [body for body, _ in taken])
            loops: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Outcome]]] = {}
            for (_, waiting), outcome in zip(taken, outcomes, strict=True):
                loops.setdefault(waiting.get_loop(), []).append((waiting, outcome))
            for loop, answers in loops.items():
                loop.call_soon_threadsafe(_answer, answers)
            if ended:
                return


def _answer(answers: list[tuple[asyncio.Future[Any], Outcome]]) -> None:
    for waiting, outcome in answers:
        if not waiting.done():  # whoever asked may have gone
            waiting.set_result(outcome)


def store_all(store: Store, bodies: Sequence[Sequence[Batch]]) -> list[Outcome]:
    """Store bodies together and tell for each how it fared; one that cannot be summed is found by trying each alone."""
    try:
        return list(store.accept(bodies))
    except (TypeError, ValueError, OverflowError):
        if len(bodies) > 1:
            return [outcome for one in bodies for outcome in store_all(store, [one])]
        full = Refusal(0, "overflow", "The sums of this campaign no longer fit 64 bits. Ask again under another id.")
        return [Refused(outside(bodies[0]) or [full])]
    except Exception as error:  # the database: whoever asked is told, and the thread goes on
        return [error] * len(bodies)
