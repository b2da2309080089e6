"""TLDP: keep an entry of a tensor, or add noise to it."""

from noisette._moved import names_of

__getattr__ = names_of(__name__, "noisette.mechanisms.tensor.retain.mechanism")
