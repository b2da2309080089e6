"""Private linear and logistic regression in the local model: each user answers once, about her whole record.

`Training` is the protocol of devices and a server that learn by gradients; `OneShot` is the one without rounds, from
second moments; `Inference` gives coefficients with error bars. `PrivateLinearRegression` and
`PrivateLogisticRegression` run the first, or with ``error_bars`` the last, as scikit-learn estimators.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
