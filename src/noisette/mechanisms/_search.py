"""Search along a line, without the second that importing an optimiser takes."""

from __future__ import annotations

import math
from collections.abc import Callable

_GOLDEN = (math.sqrt(5) - 1) / 2


def golden_section(
    f: Callable[[float], float], low: float, high: float, *, tolerance: float = 1e-9, floor: float = 0.0
) -> float:
    """Return where a unimodal function is least between two ends, to this share of the place, or of ``floor``.

    >>> round(golden_section(lambda x: (x - 2) ** 2, 0.0, 5.0), 6)
    2.0
    """
    while high - low > tolerance * max(floor, high):
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        if f(left) < f(right):
            high = right
        else:
            low = left
    return (low + high) / 2
