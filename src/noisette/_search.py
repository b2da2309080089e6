"""Searches along a line: where a condition changes, and where a function is least."""

from __future__ import annotations

import math
from collections.abc import Callable

_GOLDEN = (math.sqrt(5) - 1) / 2


def narrowed(
    below: Callable[[float], bool], low: float, high: float, *, tolerance: float = 0.0, absolute: float = 0.0
) -> tuple[float, float]:
    """Halve the stretch between a low number, where ``below`` is true, and a high one, where it is false.

    It ends when the stretch is at most ``tolerance`` times the high number, or ``absolute``, or when no float is left
    between. ``below`` stays true at the low number that is returned, and false at the high one: a caller takes the one
    that is on the safe side.

    >>> narrowed(lambda x: x * x < 2, 1.0, 2.0, tolerance=1e-3)
    (1.4140625, 1.4150390625)
    """
    while high - low > max(tolerance * abs(high), absolute):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (middle, high) if below(middle) else (low, middle)
    return low, high


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
