"""Federated learning in which what leaves a client is private: the core here, Flower's side in `flower`."""

from noisette.federated.aggregator import Aggregator, TooFew, enhanced
from noisette.federated.channel import Channel, RejectedReport, Release, channel_from
from noisette.federated.clipping import Length, Norm, Ranges
from noisette.federated.layout import Layout
from noisette.federated.lines import Lines, calibrate, lines

__all__ = [
    "Aggregator",
    "Channel",
    "Layout",
    "Length",
    "Lines",
    "Norm",
    "Ranges",
    "RejectedReport",
    "Release",
    "TooFew",
    "calibrate",
    "channel_from",
    "enhanced",
    "lines",
]
