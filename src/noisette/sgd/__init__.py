"""Private learning in PyTorch: bounded gradients, noise, Poisson samples and a budget that is kept.

The names are in `__init__.pyi`; torch is imported when one of them is first used, so that `noisette.sgd.theory` works
without it.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
