"""Private linear and logistic regression in the local model: each user answers once, about her whole record.

`Training` is the protocol of devices and a server that learn by gradients; `OneShot` is the one without rounds, from
second moments; `Inference` gives coefficients with error bars. `PrivateLinearRegression` and
`PrivateLogisticRegression` run the first, or with ``error_bars`` the last, as scikit-learn estimators.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noisette.regression.designs import BadValue, Design, coding_for
from noisette.regression.inference import Coefficients, Inference
from noisette.regression.moments import OneShot, Solution
from noisette.regression.pairs import ClassPairs
from noisette.regression.training import Model, State, Training

if TYPE_CHECKING:
    from noisette.regression.estimators import PrivateLinearRegression, PrivateLogisticRegression

__all__ = [
    "BadValue",
    "ClassPairs",
    "Coefficients",
    "Design",
    "Inference",
    "Model",
    "OneShot",
    "PrivateLinearRegression",
    "PrivateLogisticRegression",
    "Solution",
    "State",
    "Training",
    "coding_for",
]


def __getattr__(name: str) -> Any:
    """Import the estimators, and scikit-learn with them, when they are first used."""
    if name not in __all__:
        raise AttributeError(f"module 'noisette.regression' has no attribute {name!r}")
    from noisette.regression import estimators

    return getattr(estimators, name)
