"""What releases give away together: events, composition, calibration, shuffling, and a ledger of budgets."""

from lazy_loader import attach_stub

from noisette._moved import names_of

_find, __dir__, __all__ = attach_stub(__name__, __file__)
__getattr__ = names_of(__name__, first=_find, renamed={"Receipt": "DebitReceipt"})
