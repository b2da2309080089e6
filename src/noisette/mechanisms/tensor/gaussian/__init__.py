"""Gaussian noise for whole tensors."""

from noisette._moved import names_of

__getattr__ = names_of(__name__, "noisette.mechanisms.tensor.gaussian.mechanism")
