"""Private learning in PyTorch: bounded gradients, noise, Poisson samples and a budget that is kept.

The names are in `__init__.pyi`; torch is imported when one of them is first used, so that `noisette.sgd.theory` works
without it.
"""

from lazy_loader import attach_stub

from noisette._moved import names_of

_find, __dir__, __all__ = attach_stub(__name__, __file__)
_RENAMED = {"Gaussian": "GaussianPerturbation", "TensorGaussian": "TensorPerturbation"}
__getattr__ = names_of(__name__, first=_find, renamed=_RENAMED)
