"""Federated learning in which nothing but private reports leaves a client.

The core needs no Flower: `Channel` clips and privatises an update, `Aggregator` adds up reports as they come,
`calibrate` and `lines` go from a target to a budget and back. On Flower, `LocalPrivacy` is the client's mod and
`PrivateFedAvg` the server's strategy; they need the packages of ``noisette[federated]``.

Flower tells its makers of every run unless ``FLWR_TELEMETRY_ENABLED`` is 0 when it is imported, and Ray does unless
``RAY_USAGE_STATS_ENABLED`` is. Importing this package sets both to 0 where they are not set: say 1 if you want it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from noisette.federated.aggregator import Aggregator, TooFew, enhanced
from noisette.federated.channel import Channel, RejectedReport, Release, channel_from
from noisette.federated.clipping import Length, Norm, Ranges
from noisette.federated.layout import Layout
from noisette.federated.lines import Lines, calibrate, lines
from noisette.federated.terms import Terms

if TYPE_CHECKING:
    from noisette.federated.mod import LocalPrivacy
    from noisette.federated.strategy import PrivateFedAvg

__all__ = [
    "Aggregator",
    "Channel",
    "Layout",
    "Length",
    "Lines",
    "LocalPrivacy",
    "Norm",
    "PrivateFedAvg",
    "Ranges",
    "RejectedReport",
    "Release",
    "Terms",
    "TooFew",
    "calibrate",
    "channel_from",
    "enhanced",
    "lines",
]

for _name in ("FLWR_TELEMETRY_ENABLED", "RAY_USAGE_STATS_ENABLED"):
    os.environ.setdefault(_name, "0")

_HOMES = {"LocalPrivacy": "mod", "PrivateFedAvg": "strategy"}


def __getattr__(name: str) -> Any:
    """Import Flower's side, and Flower, when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module 'noisette.federated' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"noisette.federated.{_HOMES[name]}"), name)
