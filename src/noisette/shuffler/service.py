"""The shuffler as an HTTP service: authenticated posts in, waves without origin out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response
from prometheus_client import Counter, Gauge
from starlette.concurrency import run_in_threadpool

from noisette._service import admit_pages
from noisette.shuffler._http import LARGEST_BODY, PacketMetrics, new_app, take
from noisette.shuffler.clients import CLIENT, POST, SIGNATURE, Clients
from noisette.shuffler.forwarding import Forwarder, log
from noisette.shuffler.sender import PATH, Http
from noisette.shuffler.store import PostAccepted, Shuffler


def create_app(
    shuffler: Shuffler,
    clients: Clients,
    server: Http,
    *,
    largest_body: int = LARGEST_BODY,
    origins: Sequence[str] = (),
) -> FastAPI:
    """Return the service of a shuffler that forwards to ``server``; it closes the shuffler when it ends.

    ``origins`` are the sites whose web pages may send to it.
    """
    metrics = PacketMetrics()
    forwarded = metrics.make(Counter, "packets_forwarded", "Packets that the server has acknowledged.")
    failed = metrics.make(Counter, "forwarding_failed", "Times that the server took nothing.")
    stored = metrics.make(Gauge, "packets_stored", "Packets on the disk.", "state")
    forwarder = Forwarder(shuffler, server, forwarded=forwarded, failed=failed)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        log.info("started", extra={"told": {"clients": len(clients), "minimum": shuffler.minimum}})
        forwarder.start()
        yield
        await run_in_threadpool(forwarder.stop)
        shuffler.close()
        log.info("stopped")

    app = new_app("Noisette shuffler", metrics, log, lifespan)
    admit_pages(app, origins, [CLIENT, POST, SIGNATURE, "Content-Type"])

    def store(client: str, post: str, body: bytes) -> PostAccepted:
        done = shuffler.accept(client, post, body)
        forwarder.wake()
        return done

    @app.get("/ready")
    def ready() -> dict[str, str]:
        """Tell that packets can be stored now."""
        shuffler.ping()
        return {"status": "ready"}

    @app.get("/metrics")
    def prometheus() -> Response:
        """Return the counters in Prometheus' text format; they name no client and no round."""
        for state, count in shuffler.waiting().items():
            stored.labels(state).set(count)
        return Response(metrics.text(), media_type="text/plain; version=0.0.4")

    @app.post(PATH)
    async def receive(request: Request) -> Response:
        """Store the sealed packets of one post."""
        return await take(request, clients, metrics, largest_body, store)

    return app
