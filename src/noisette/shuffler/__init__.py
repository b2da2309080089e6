"""The shuffler: a service between clients and a server that hides who sent what.

A client seals fragments (round, position, value) to the server's key and posts them to the shuffler, which knows the
sender and cannot read; the shuffler mixes the fragments of enough clients and forwards them to the server, which can
read and does not learn the sender. `Sender` is the client's side, `Shuffler` and `create_app` the service, `Receipt`
and `create_receiver` the server's side; `InProcess` joins all three for simulations. They need the packages of
``noisette[shuffler]``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noisette.shuffler.layout import Layout
from noisette.shuffler.linkage import shuffled_blocks
from noisette.shuffler.wire import Round

if TYPE_CHECKING:
    from noisette.shuffler.clients import Clients, new_secret
    from noisette.shuffler.inprocess import InProcess
    from noisette.shuffler.receipt import Receipt
    from noisette.shuffler.receiver import create_receiver, receiving
    from noisette.shuffler.sealing import PublicKey, ServerKey
    from noisette.shuffler.sender import Sender
    from noisette.shuffler.service import create_app
    from noisette.shuffler.store import Shuffler

__all__ = [
    "Clients",
    "InProcess",
    "Layout",
    "PublicKey",
    "Receipt",
    "Round",
    "Sender",
    "ServerKey",
    "Shuffler",
    "create_app",
    "create_receiver",
    "new_secret",
    "receiving",
    "shuffled_blocks",
]

_HOMES = {
    "Clients": "clients",
    "InProcess": "inprocess",
    "PublicKey": "sealing",
    "Receipt": "receipt",
    "Sender": "sender",
    "ServerKey": "sealing",
    "Shuffler": "store",
    "create_app": "service",
    "create_receiver": "receiver",
    "new_secret": "clients",
    "receiving": "receiver",
}


def __getattr__(name: str) -> Any:
    """Import a part, and what it needs, when it is first used: a client needs no web framework."""
    if name not in _HOMES:
        raise AttributeError(f"module 'noisette.shuffler' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"noisette.shuffler.{_HOMES[name]}"), name)
