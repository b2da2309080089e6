"""The shuffler as an HTTP service: authenticated posts in, batches without origin out, and what operators may do."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Literal

from fastapi import Depends, FastAPI, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import Counter, Gauge
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from noisette._service import Problem, admit_pages, read_body
from noisette.shuffler._http import LARGEST_BODY, Operators, PacketMetrics, new_app, take
from noisette.shuffler.clients import HEADERS, Caller, Clients
from noisette.shuffler.forwarding import Forwarder, log
from noisette.shuffler.sender import PATH, Http
from noisette.shuffler.store import PostAccepted, Shuffler

_SECONDS_BETWEEN = 1.0  # seconds between two trials whether packets can be stored, however often /ready is asked
_LARGEST_LIST = 1 << 20  # bytes of names to enrol


class Names(BaseModel):
    """The names of clients that are to be enrolled."""

    model_config = ConfigDict(extra="forbid", strict=True)
    names: Annotated[list[Annotated[str, Field(max_length=64)]], Field(min_length=1, max_length=10_000)]


def create_app(
    shuffler: Shuffler,
    clients: Clients,
    server: Http,
    *,
    largest_body: int = LARGEST_BODY,
    origins: Sequence[str] = (),
    operators: Operators | None = None,
) -> FastAPI:
    """Return the service of a shuffler that forwards to ``server``; it closes the shuffler when it ends.

    ``origins`` are the sites whose web pages may send to it. ``operators`` may read its counters, enrol and revoke
    clients, and drop, skip or retry batches; without them nobody may.
    """
    metrics = PacketMetrics()
    forwarded = metrics.make(Counter, "packets_forwarded", "Packets that the server has acknowledged.")
    failed = metrics.make(Counter, "forwarding_failed", "Times that the server took nothing.")
    stored = metrics.make(Gauge, "packets_stored", "Packets on the disk.", "state")
    aside = metrics.make(Gauge, "batches_aside", "Batches that the server refuses, and that wait for an operator.")
    enrolled = metrics.make(Gauge, "clients_enrolled", "Clients that may send.")
    forwarder = Forwarder(shuffler, server, forwarded=forwarded, failed=failed)
    ready = _Ready(shuffler, forwarder)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        log.info("started", extra={"fields": {"clients": len(clients), "minimum": shuffler.minimum}})
        forwarder.start()
        yield
        await run_in_threadpool(forwarder.stop)
        shuffler.close()
        log.info("stopped")

    app = new_app("Noisette shuffler", metrics, log, lifespan, PATH)
    admit_pages(app, origins, [*HEADERS, "Content-Type"])

    def store(caller: Caller, body: bytes) -> PostAccepted:
        done = shuffler.accept(caller.mark, caller.post, body, minimum=caller.minimum)
        forwarder.wake()
        return done

    @app.get("/ready")
    def show_ready() -> Response:
        """Tell whether packets can be stored and forwarded now, and how many batches wait for an operator."""
        return ready.answer()

    @app.post(PATH)
    async def receive(request: Request) -> Response:
        """Store the sealed packets of one post."""
        return await take(request, clients, metrics, largest_body, store)

    may = operators or Operators()

    @app.get("/metrics", dependencies=[Depends(may)])
    def prometheus() -> Response:
        """Return the counters in Prometheus' text format; they name no client and no round."""
        batches = shuffler.batches()
        for state in ("waiting", "released", "aside"):
            stored.labels(state).set(sum(one["packets"] for one in batches if one["state"] == state))
        aside.set(sum(one["state"] == "aside" for one in batches))
        enrolled.set(len(clients))
        return Response(metrics.text(), media_type="text/plain; version=0.0.4")

    _add_operation(app, shuffler, clients, forwarder, may)
    return app


class _Ready:
    """Whether packets can be stored and forwarded; it looks at most once a second."""

    def __init__(self, shuffler: Shuffler, forwarder: Forwarder) -> None:
        self._shuffler, self._forwarder = shuffler, forwarder
        self._turn, self._looked, self._aside = threading.Lock(), -_SECONDS_BETWEEN, 0

    def answer(self) -> Response:
        """Return 503 while packets would be refused or none can be forwarded; otherwise how many batches are aside."""
        with self._turn:
            if time.monotonic() - self._looked >= _SECONDS_BETWEEN:
                try:
                    self._shuffler.ping()
                except (OSError, sqlite3.Error) as error:
                    return JSONResponse({"reason": "cannot-store", "detail": str(error)}, 503)
                self._aside = sum(one["state"] == "aside" for one in self._shuffler.batches())
                self._looked = time.monotonic()
        if trouble := self._forwarder.trouble:
            return JSONResponse({"reason": "not-forwarding", "detail": trouble, "batches_aside": self._aside}, 503)
        status = "needs-attention" if self._aside else "ready"
        return JSONResponse({"status": status, "batches_aside": self._aside})


def _add_operation(
    app: FastAPI, shuffler: Shuffler, clients: Clients, forwarder: Forwarder, operators: Operators
) -> None:
    """Add what operators may do; every change is written down with the name of who made it."""
    only = [Depends(operators)]

    def noted(operator: str, change: str) -> None:
        shuffler.note(operator, change)
        log.info("changed", extra={"fields": {"operator": operator, "change": change}})

    @app.get("/batches", dependencies=only)
    def list_batches() -> Response:
        """List the batches that are here, and why one is not taken."""
        return JSONResponse({"batches": shuffler.batches()})

    @app.post("/batches/{name}/{action}")
    def change_batch(name: str, action: Literal["drop", "skip", "retry"], request: Request) -> Response:
        """Drop a batch, set it aside, or try it again."""
        operator = operators(request)
        try:
            shuffler.operate(name, action)
        except LookupError as error:
            raise Problem(404, "unknown-batch", str(error.args[0])) from error
        except ValueError as error:
            raise Problem(409, "below-minimum", str(error)) from error
        noted(operator, f"{action} batch {name}")
        forwarder.wake()
        return JSONResponse({"batch": name, "done": action})

    @app.get("/clients", dependencies=only)
    def list_clients() -> Response:
        """List the names of the enrolled clients."""
        return JSONResponse({"clients": clients.names})

    @app.post("/clients")
    async def enrol_clients(request: Request) -> Response:
        """Enrol clients, and return their secrets, which are shown this once and kept nowhere."""
        operator = operators(request)
        body = await read_body(request, _LARGEST_LIST)
        try:
            made = await run_in_threadpool(lambda: clients.enrol(Names.model_validate_json(body).names))
        except ValueError as error:  # of pydantic too, whose messages would repeat what was sent
            detail = str(error) if type(error) is ValueError else 'Expected {"names": ["phone-1", ...]}.'
            raise Problem(422, "bad-names", detail) from error
        await run_in_threadpool(noted, operator, f"enrol {', '.join(made)}")
        return JSONResponse({"secrets": made}, 201)

    @app.delete("/clients/{name}")
    def revoke_client(name: str, request: Request) -> Response:
        """Take a client off the list; its posts are refused from now on."""
        operator = operators(request)
        try:
            clients.revoke(name)
        except ValueError as error:
            raise Problem(404, "unknown-client", str(error)) from error
        noted(operator, f"revoke {name}")
        return JSONResponse({"revoked": name, "clients": len(clients)})

    @app.get("/changes", dependencies=only)
    def list_changes() -> Response:
        """List who changed what, and when."""
        return JSONResponse({"changes": shuffler.changes()})
