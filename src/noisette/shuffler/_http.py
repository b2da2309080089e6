"""What the shuffler and the server's receiver share: signed bodies in, reasons out, and doors for operators."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import Counter
from starlette.concurrency import run_in_threadpool

from noisette import _service
from noisette._files import ChangingFile
from noisette._service import Observed, Problem, read_body
from noisette.shuffler._database import Full
from noisette.shuffler.clients import Caller, Clients, Forged
from noisette.shuffler.store import PostAccepted, PostRefused
from noisette.shuffler.wire import Malformed

LARGEST_BODY = 4 * 2**20
_SHORTEST_KEY = 16  # letters of an operator's key


class Operators:
    """The operators, who may read the counters and change things: a name and a key each, from a JSON file."""

    def __init__(self, keys: Mapping[str, str] | None = None) -> None:
        found = keys or {}
        if not isinstance(found, Mapping) or any(len(str(key)) < _SHORTEST_KEY for key in found.values()):
            raise ValueError(f"Expected operators as an object of names and keys of at least {_SHORTEST_KEY} letters.")
        self._digests = {name: _digest(str(key)) for name, key in found.items()}
        self._file: ChangingFile | None = None

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Operators:
        """Read a JSON file of names and keys, and follow its changes."""
        file = ChangingFile(path)
        try:
            made = cls(json.loads(Path(path).read_text(encoding="utf-8")))
        except json.JSONDecodeError as error:  # its message would show a part of the file
            raise ValueError(f"{path}: not a JSON file. Correct it, or write it anew.") from error
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        made._file = file
        return made

    def _look(self) -> None:
        """Read the file again if it has changed; a file that cannot be read changes nothing."""
        try:
            if self._file is not None and self._file.changed():
                self._digests = Operators.read(self._file.path)._digests
        except (OSError, ValueError) as error:
            logging.getLogger("noisette.shuffler").error("operators not read", extra={"fields": {"detail": str(error)}})

    def __call__(self, request: Request) -> str:
        """Return the name of the operator whose key a request carries, or refuse it: a dependency of routes."""
        self._look()
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        given = _digest(key.strip()) if scheme.lower() == "bearer" else b""
        found = [name for name, known in self._digests.items() if hmac.compare_digest(known, given)]
        if not found:
            raise Problem(401, "unauthorised", "Expected a header 'Authorization: Bearer KEY' with an operator's key.")
        return found[0]


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


class PacketMetrics(_service.Metrics):
    """Counters of a service that takes packets."""

    def __init__(self) -> None:
        super().__init__()
        self.accepted = self.make(Counter, "packets_accepted", "Packets stored.")
        self.repeated = self.make(Counter, "packets_repeated", "Packets that had been stored before.")
        self.rejected = self.make(Counter, "posts_rejected", "Posts refused.", "reason")


def new_app(
    title: str, metrics: PacketMetrics, log: logging.Logger, lifespan: Callable[[FastAPI], Any], door: str
) -> FastAPI:
    """Return an app that logs and counts, answers whether it is healthy, and turns failures into answers with a reason.

    ``door`` is the route by which packets come: the log counts its requests, ten minutes at a time, and times none.
    """
    app = FastAPI(title=title, version="1", lifespan=lifespan, docs_url=None, redoc_url=None)
    app.add_middleware(Observed, metrics=metrics, log=log, unhurried=[door])

    def answer(status: int, reason: str, error: Exception, **more: Any) -> Response:
        metrics.rejected.labels(reason).inc()
        return JSONResponse({"reason": reason, "detail": str(error)} | more, status)

    @app.exception_handler(Problem)
    async def problem(_: Request, error: Problem) -> Response:
        return answer(error.status, error.reason, error)

    @app.exception_handler(Forged)
    async def forged(_: Request, error: Forged) -> Response:
        return answer(401, "forged", error)

    @app.exception_handler(Malformed)
    async def malformed(_: Request, error: Malformed) -> Response:
        return answer(400, "malformed", error)

    @app.exception_handler(PostRefused)
    async def refused(_: Request, error: PostRefused) -> Response:
        return answer(409, error.reason, error, blocks=error.blocks)

    @app.exception_handler(Full)
    async def full(_: Request, error: Full) -> Response:
        return answer(507, "full", error)

    @app.exception_handler(sqlite3.Error)
    async def broken(_: Request, error: sqlite3.Error) -> Response:
        log.error("database", extra={"fields": {"error": type(error).__name__}})
        return answer(503, "unavailable", Exception("The store does not answer. Nothing was stored; try again."))

    @app.get("/health")
    async def health() -> dict[str, str]:
        """Tell that the process answers."""
        return {"status": "ok"}

    return app


async def take(
    request: Request,
    clients: Clients,
    metrics: PacketMetrics,
    most: int,
    store: Callable[[Caller, bytes], PostAccepted],
) -> Response:
    """Check a signed post and store it; the answer comes when it is on the disk.

    The caller is checked before the body is read, so that only an enrolled client can make the service hold one.
    """
    clients.admit(request.headers)
    body = await read_body(request, most)
    caller = clients.verify(request.url.path, request.headers, body)
    done = await run_in_threadpool(store, caller, body)
    metrics.accepted.inc(done.accepted)
    metrics.repeated.inc(done.repeated)
    counts = {"accepted": done.accepted, "repeated": done.repeated}
    request.state.logged = counts
    return JSONResponse(counts, 201 if done.accepted else 200)
