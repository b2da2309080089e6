"""The server's door for what the shuffler forwards, alone in a process or in a thread of the server."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from threading import Thread

from fastapi import Depends, FastAPI, Request, Response

from noisette._service import Tls, address, listen, server
from noisette.shuffler._http import LARGEST_BODY, Operators, PacketMetrics, new_app, take
from noisette.shuffler.clients import Clients
from noisette.shuffler.receipt import Receipt

PATH = "/shuffled"

log = logging.getLogger("noisette.receiver")


def create_receiver(
    receipt: Receipt, shufflers: Clients, *, largest_body: int = LARGEST_BODY, operators: Operators | None = None
) -> FastAPI:
    """Return the service that takes batches from a shuffler which knows a secret of ``shufflers``.

    ``operators`` may read its counters.
    """
    metrics = PacketMetrics()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        log.info("started")
        yield
        log.info("stopped")

    app = new_app("Noisette receiver", metrics, log, lifespan, PATH)

    @app.get("/metrics", dependencies=[Depends(operators or Operators())])
    def prometheus() -> Response:
        """Return the counters in Prometheus' text format."""
        return Response(metrics.text(), media_type="text/plain; version=0.0.4")

    @app.post(PATH)
    async def receive(request: Request) -> Response:
        """Store one part of a batch."""
        return await take(request, shufflers, metrics, largest_body, lambda by, body: receipt.accept(by.post, body))

    return app


@contextmanager
def receiving(app: FastAPI, *, host: str = "127.0.0.1", port: int = 0, tls: Tls | None = None) -> Iterator[str]:
    """Serve an app in a thread of this process and give its URL."""
    with listen(host, port) as bound:
        serving = server(app, tls=tls)
        thread = Thread(target=serving.run, kwargs={"sockets": [bound]}, name="receiver", daemon=True)
        thread.start()
        while not serving.started and thread.is_alive():
            time.sleep(0.01)
        try:
            yield address(host, bound, tls)
        finally:
            serving.should_exit = True
            thread.join()
