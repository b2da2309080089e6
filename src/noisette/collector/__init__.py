"""The collector: campaigns that ask, devices that answer privately, and a service that loses and doubles nothing.

`Campaign` says what is asked and with which mechanism, `Client` and `AsyncClient` answer on a device, `ShuffledClient`
and `AsyncShuffledClient` through a shuffler, `create_app` serves, `Store` keeps, `split_campaign` cuts what is kept
into partitions. They need the packages of ``noisette[collector]``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noisette.collector.campaigns import Campaign

if TYPE_CHECKING:
    from noisette.collector.client import AsyncClient, Client
    from noisette.collector.partitions import split_campaign
    from noisette.collector.sealed import AsyncShuffledClient, ShuffledClient
    from noisette.collector.service import create_app
    from noisette.collector.store import Store

__all__ = [
    "AsyncClient",
    "AsyncShuffledClient",
    "Campaign",
    "Client",
    "ShuffledClient",
    "Store",
    "create_app",
    "split_campaign",
]

_HOMES = {
    "AsyncClient": "client",
    "AsyncShuffledClient": "sealed",
    "Client": "client",
    "ShuffledClient": "sealed",
    "Store": "store",
    "create_app": "service",
    "split_campaign": "partitions",
}


def __getattr__(name: str) -> Any:
    """Import a part, and what it needs, when it is first used: a device needs no database."""
    if name not in _HOMES:
        raise AttributeError(f"module 'noisette.collector' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"noisette.collector.{_HOMES[name]}"), name)
