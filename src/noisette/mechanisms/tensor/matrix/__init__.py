"""Linear queries about a histogram, answered from the few that serve them best."""

from noisette._moved import names_of

__getattr__ = names_of(__name__, "noisette.mechanisms.tensor.matrix.mechanism")
