"""Reports to an aggregate, streaming: from memory, from report files, and from tables of raw data."""

from lazy_loader import attach_stub

from noisette._moved import names_of

_find, __dir__, __all__ = attach_stub(__name__, __file__)
__getattr__ = names_of(__name__, "noisette.mechanisms.graded.estimation", "noisette._files", first=_find)
