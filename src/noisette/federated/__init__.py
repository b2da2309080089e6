"""Federated learning in which nothing but private reports leaves a client.

The core needs no Flower: `Channel` clips and privatises an update, `Aggregator` adds up reports as they come,
`calibrate` and `lines` go from a target to a budget and back. On Flower, `LocalPrivacy` is the client's mod and
`PrivateFedAvg` the server's strategy; they need the packages of ``noisette[federated]``.

Flower reports every run to its makers unless ``FLWR_TELEMETRY_ENABLED`` is 0 when it is imported, and Ray does unless
``RAY_USAGE_STATS_ENABLED`` is. Importing this package sets both to 0 where they are not set: say 1 if you want it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from noisette._moved import names_of
from noisette.federated.central.rounds import AdaptiveNorm, CentralPlan, PrivateRounds
from noisette.federated.channel import Channel, ClientRelease, RejectedReport, channel_from
from noisette.federated.clipping import Length, Norm, Ranges
from noisette.federated.layout import ModelLayout
from noisette.federated.lines import Lines, calibrate, lines
from noisette.federated.server.aggregator import Aggregator, TooFew, enhanced
from noisette.federated.terms import Terms

if TYPE_CHECKING:
    from noisette.federated.central.strategy import CentralPrivacy
    from noisette.federated.client.mod import LocalPrivacy
    from noisette.federated.server.strategy import PrivateFedAvg

__all__ = [
    "AdaptiveNorm",
    "Aggregator",
    "CentralPlan",
    "CentralPrivacy",
    "Channel",
    "ClientRelease",
    "Length",
    "Lines",
    "LocalPrivacy",
    "ModelLayout",
    "Norm",
    "PrivateFedAvg",
    "PrivateRounds",
    "Ranges",
    "RejectedReport",
    "Terms",
    "TooFew",
    "calibrate",
    "channel_from",
    "enhanced",
    "lines",
]

for _name in ("FLWR_TELEMETRY_ENABLED", "RAY_USAGE_STATS_ENABLED"):
    os.environ.setdefault(_name, "0")


def _flower(name: str) -> Any:
    """Import Flower's side, and Flower, when it is first used."""
    homes = {"CentralPrivacy": "central.strategy", "LocalPrivacy": "client.mod", "PrivateFedAvg": "server.strategy"}
    if name not in homes:
        raise AttributeError(
            f"module 'noisette.federated' has no attribute {name!r}. Look it up in dir(noisette.federated)."
        )
    from importlib import import_module

    return getattr(import_module(f"noisette.federated.{homes[name]}"), name)


__getattr__ = names_of(__name__, first=_flower, renamed={"Layout": "ModelLayout", "Release": "ClientRelease"})
