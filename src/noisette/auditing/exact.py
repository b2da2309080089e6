"""The exact epsilon of a mechanism, from its own log-likelihoods."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from noisette._validate import FloatArray
from noisette.core import Mechanism

_DOUBLINGS = 48  # as far as float64 holds lattice positions exactly


def exact_epsilon(mechanism: Mechanism) -> float:
    """Return the supremum over reports and pairs of inputs of the log-likelihood ratio.

    It is evaluated on the mechanism's witnesses, and along both tails of an unbounded report: a ratio that still grows
    after forty-eight doublings has no bound and gives infinity.

    >>> from noisette import Duchi
    >>> round(exact_epsilon(Duchi(epsilon=1.0)), 9)
    1.0
    """
    inputs, reports = mechanism.witnesses()
    worst = float(_spread(mechanism, reports, inputs).max())
    step, low, high = (getattr(mechanism.support, name, math.nan) for name in ("step", "low", "high"))
    if low == -math.inf and high == math.inf:
        for sign in (-1.0, 1.0):
            tail = sign * np.max(np.abs(reports)) + sign * step * 2.0 ** np.arange(_DOUBLINGS)
            spread = _spread(mechanism, tail, inputs)
            if spread[-1] > 1.5 * max(spread[-4], worst):
                return math.inf
            worst = max(worst, float(spread[: _DOUBLINGS // 2].max()))  # beyond, differences of large numbers
    return worst


def _spread(mechanism: Mechanism, reports: Any, inputs: Any) -> FloatArray:
    """Return, for each report, the gap between its largest and its smallest log-likelihood."""
    gaps = np.empty(len(reports))
    for row in range(len(reports)):
        likelihood = mechanism.log_prob(reports[row : row + 1], inputs)
        highest, lowest = float(np.max(likelihood)), float(np.min(likelihood))
        gaps[row] = 0.0 if highest == -math.inf else highest - lowest
    return gaps
