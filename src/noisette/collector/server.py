"""Run the service: one process, until it is told to end."""

from __future__ import annotations

import logging
import socket

import uvicorn
from fastapi import FastAPI

from noisette.collector.telemetry import JsonLines, log

_PATIENCE = 10  # seconds that requests have to end once the service is told to stop


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that already takes connections; port 0 takes a free one."""
    try:
        return socket.create_server((host, port), backlog=1024)
    except OSError as error:
        raise OSError(f"Cannot listen on {host}:{port}: {error.strerror}. Choose another --port") from error


def run(app: FastAPI, bound: socket.socket) -> None:
    """Serve until SIGTERM or SIGINT, then finish the requests that have begun."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    for own in (log, logging.getLogger("uvicorn.error")):
        own.addHandler(handler)
        own.propagate = False
    log.setLevel(logging.INFO)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    serving = server(app)
    try:
        serving.run(sockets=[bound])
    except SystemExit:  # uvicorn raises the signal once more when it has ended as it should
        if not serving.should_exit:
            raise


def server(app: FastAPI) -> uvicorn.Server:
    """Return what will serve: HTTP alone, with our own log."""
    settings = uvicorn.Config(
        app,
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=_PATIENCE,
    )
    return uvicorn.Server(settings)
