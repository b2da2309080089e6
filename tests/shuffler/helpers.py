"""Clients, keys and posts that tests share."""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np

from noisette.shuffler import PacketLayout, Round, ServerKey
from noisette.shuffler.wire import Frame

LAYOUT = PacketLayout(dims=10, batch=4)
KEY = ServerKey.generate()


def values_of(client: int, layout: PacketLayout = LAYOUT) -> Any:
    """Return values that name their client and position."""
    return 1000.0 * client + np.arange(layout.dims)


def post_of(client: int, *, number: int = 1, layout: PacketLayout = LAYOUT, blocks: list[int] | None = None) -> bytes:
    """Return a client's sealed blocks of a round in one frame."""
    found = Round("run", number, layout.blocks)
    payloads = layout.split(values_of(client, layout))
    chosen = range(layout.blocks) if blocks is None else blocks
    return Frame(found, [(b, KEY.public.seal(payloads[b], found.label(b))) for b in chosen]).encode()


def fresh() -> str:
    """Return a new number of a post."""
    return secrets.token_hex(16)
