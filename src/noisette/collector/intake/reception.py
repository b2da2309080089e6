"""The one route that is called for every report: it reads, hands over to the writer, and answers when all is stored.

It is an ASGI application of its own, and `Lane` leads to it past FastAPI and what is wrapped around it: routes,
parameters and dependencies took longer than all that is done here. The writer is one thread: whatever has arrived while
it waited for the disk goes into the next transaction, and single reports become one array there.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from starlette.routing import Route

from noisette._service import SMALL, Observed, off_loop, read_body
from noisette.collector.campaigns.life import Life
from noisette.collector.intake import reading as intake
from noisette.collector.intake.reading import Body, Single, outside, together
from noisette.collector.storage.store import Accepted, Refusal, Refused, Store
from noisette.collector.telemetry import CollectorMetrics
from noisette.survey.batches import Batch
from noisette.survey.campaigns import Campaign

PATH = "/campaigns/{campaign_id}/reports"

_BREATH = 0.004  # seconds in which others may come along, where several came with the last transaction
_REPORTS_AT_ONCE = 20_000  # reports in one transaction, unless a single batch has more

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
        found = self.glance(campaign, body) if small else await off_loop(self.read, campaign, body)
        done = await self._writer.write(found)
        if done.accepted:
            self._metrics.accepted.labels(campaign.id).inc(done.accepted)
        if done.repeated:
            self._metrics.repeated.labels(campaign.id).inc(done.repeated)
        scope.setdefault("state", {})["logged"] = {"campaign": campaign.id} | vars(done)
        body = b'{"accepted":%d,"repeated":%d}' % (done.accepted, done.repeated)
        headers = [(b"content-length", b"%d" % len(body)), (b"content-type", b"application/json")]
        status = 201 if done.accepted else 200
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def glance(self, campaign: Campaign, body: bytes) -> Body:
        """Return the reports of a body, a single one as it came, or raise `Refused`."""
        if campaign.signed:
            return self.read(campaign, body)
        return intake.glance(campaign, body, self._life(campaign.id))

    def read(self, campaign: Campaign, body: bytes) -> tuple[Batch, ...]:
        """Return the reports of a body, or raise `Refused`."""
        batches = intake.parse(campaign, body, self._life(campaign.id))
        self._verify(batches)
        return batches


class Lane:
    """ASGI application before all others that takes reports straight to the reception; errors are answered as theirs.

    What a web page sends goes the long way, on which other sites' pages are kept out.
    """

    def __init__(self, app: Any, reception: Reception, observe: Callable[[Any], Observed], handlers: Any) -> None:
        self._app, self._reception, self._handlers = app, reception, handlers
        self._observed = observe(self._answer)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request that brings reports; pass any other request on."""
        if scope["type"] == "http" and scope["method"] == "POST":
            before, _, rest = scope["path"].partition("/campaigns/")
            name, _, last = rest.partition("/")
            if last == "reports" and name and not before and not any(own == b"origin" for own, _ in scope["headers"]):
                scope["path_params"] = {"campaign_id": name}
                await self._observed(scope, receive, send)
                return
        await self._app(scope, receive, send)

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await self._reception(scope, receive, send)
        except Exception as error:
            handler = next((self._handlers[kind] for kind in type(error).__mro__ if kind in self._handlers), None)
            if handler is None:
                raise
            answer = await handler(Request(scope), error)
            await answer(scope, receive, send)


def add_reception(
    app: FastAPI,
    reception: Reception,
    observe: Callable[[Any], Observed],
    described: dict[int | str, dict[str, Any]],
) -> None:
    """Put the lane before everything, and describe it in the OpenAPI document; the route answers what goes past it."""
    inner = app.build_middleware_stack

    def stack() -> Any:
        return Lane(inner(), reception, observe, app.exception_handlers)

    app.build_middleware_stack = stack  # type: ignore[method-assign]  # called once, before the first request
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
        self._queue: queue.SimpleQueue[tuple[Body, asyncio.Future[Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="noisette-writer", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Write what has been submitted, and end."""
        self._queue.put(None)
        self._thread.join()

    async def write(self, body: Body) -> Accepted:
        """Return when all of a body is on the disk; raise `Refused`, or what went wrong, when nothing is."""
        waiting: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._queue.put((body, waiting))
        outcome: Accepted | BaseException = await waiting
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def _stored(self, bodies: Sequence[Body]) -> list[Outcome]:
        """Store bodies, whatever goes wrong: the thread has to go on."""
        try:
            return store_all(self._store, bodies)
        except Exception as error:
            return [error] * len(bodies)

    def _run(self) -> None:
        busy = False
        while (first := self._queue.get()) is not None:
            if busy:  # most of a transaction's work is the same for one report and for a hundred
                time.sleep(_BREATH)
            taken, size, ended = [first], _size(first[0]), False
            while size < _REPORTS_AT_ONCE and not ended:
                try:
                    more = self._queue.get_nowait()
                except queue.Empty:
                    break
                if more is None:
                    ended = True
                else:
                    taken.append(more)
                    size += _size(more[0])
            busy = len(taken) > 1
            outcomes = self._stored([body for body, _ in taken])
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


def _size(body: Body) -> int:
    return 1 if isinstance(body, Single) else sum(map(len, body))


def store_all(store: Store, bodies: Sequence[Body]) -> list[Outcome]:
    """Store bodies together and tell for each how it fared; most often everything is sound and new, and tried so."""
    singles = [one for one in bodies if isinstance(one, Single)]
    try:
        every = [batch for body in bodies if not isinstance(body, Single) for batch in body]
        if store.add([*together(singles), *every]):
            return [Accepted(_size(body), 0) for body in bodies]
        sums = True
    except (TypeError, ValueError, OverflowError, Refused):
        sums = False
    except Exception as error:  # the database: whoever asked gets the error, and the thread goes on
        return [error] * len(bodies)
    found = [_read(body, sums) for body in bodies]
    sound = [one for one in found if not isinstance(one, Refused)]
    outcomes = iter(_store_apart(store, sound) if sound else ())
    return [one if isinstance(one, Refused) else next(outcomes) for one in found]


def _read(body: Body, sums: bool) -> Sequence[Batch] | Refused:
    """Return the batches of a body, or why there are none; ``sums`` is True where all bodies can be summed."""
    try:
        found = body.read() if isinstance(body, Single) else body
    except Refused as refused:
        return refused
    refusals = [] if sums else outside(found)
    return Refused(refusals) if refusals else found


def _store_apart(store: Store, bodies: Sequence[Sequence[Batch]]) -> list[Outcome]:
    """Look every report up; a body that cannot be summed is found by trying each alone."""
    try:
        return list(store.accept(bodies))
    except (TypeError, ValueError, OverflowError):
        if len(bodies) > 1:
            return [outcome for one in bodies for outcome in _store_apart(store, [one])]
        full = Refusal(0, "overflow", "The sums of this campaign no longer fit 64 bits. Ask again under another id.")
        return [Refused([full])]
    except Exception as error:
        return [error] * len(bodies)
