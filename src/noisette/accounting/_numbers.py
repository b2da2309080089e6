"""Numerics that accounting rests on: binomial laws in log space, and searches that end on the safe side."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln

from noisette._search import narrowed
from noisette._validate import FloatArray

_SERIES_FROM = 32.0  # from here on five terms of Stirling's series are exact in float64
_SLOPE, _STEEPEST = 1.0, 50.0  # of ln epsilon against ln noise: the flattest that secants assume, and the steepest
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188)


def log_binomial(k: npt.ArrayLike, trials: npt.ArrayLike, p: float, q: float) -> FloatArray:
    """Return ln P(Bin(trials, p) = k), q = 1 - p, to about 1e-14 however many the trials.

    C. Loader's form (2000): a log-gamma function would lose as many digits as ``trials`` has.
    """
    k, n = np.broadcast_arrays(np.asarray(k, dtype=float), np.asarray(trials, dtype=float))
    rest = n - k
    with np.errstate(divide="ignore", invalid="ignore"):
        inner = (
            _stirling_error(n)
            - _stirling_error(k)
            - _stirling_error(rest)
            - _deviance(k, n * p)
            - _deviance(rest, n * q)
            - np.log(2 * math.pi * k * (rest / n)) / 2
        )
        ends = np.where(k == 0, n * _log_of(q, p), n * _log_of(p, q))
    mass = np.where((k == 0) | (rest == 0), np.where(n == 0, 0.0, ends), inner)
    return np.where((k < 0) | (rest < 0), -np.inf, mass)


def binomial_window(trials: int, p: float, *, deviations: float = 40.0) -> tuple[int, int]:
    """Return the first and last count that a binomial law takes but for a chance below 2 exp(-deviations^2 / 2)."""
    centre = trials * p
    reach = deviations * math.sqrt(trials * p * (1 - p)) + deviations**2
    return max(0, math.floor(centre - reach)), min(trials, math.ceil(centre + reach))


def _stirling_error(n: FloatArray) -> FloatArray:
    """Return ln n! less Stirling's formula, n ln n - n + ln(2 pi n) / 2."""
    large = np.maximum(n, _SERIES_FROM)
    series = np.zeros_like(large)
    for coefficient in reversed(_STIRLING):
        series = coefficient + series / (large * large)
    small = np.minimum(np.maximum(n, 1.0), _SERIES_FROM)
    exact = gammaln(small + 1) - (small * np.log(small) - small + np.log(2 * math.pi * small) / 2)
    return np.where(n >= _SERIES_FROM, series / large, exact)


def _deviance(k: FloatArray, mean: FloatArray) -> FloatArray:
    """Return k ln(k / mean) + mean - k, which is small where k is near the mean."""
    gap = k - mean
    ratio = gap / (k + mean)
    near = np.abs(ratio) < 0.1
    v = np.where(near, ratio, 0.0)
    total, term = gap * v, 2 * k * v
    for order in range(3, 21, 2):
        term = term * v * v
        total = total + term / order
    above = np.where(k > 0, k, 1.0)
    with np.errstate(over="ignore"):
        quotient = np.log(above / mean)
    if np.isinf(quotient).any():  # of a mean that is all but zero: epsilons from 709 on have such chances
        quotient = np.log(above) - np.log(mean)
    return np.where(near, total, k * quotient + mean - k)


def _log_of(value: float, other: float) -> float:
    """Return ln value for value + other = 1, precisely near 1 too."""
    if value <= 0:
        return -math.inf
    return math.log1p(-other) if value > 0.5 else math.log(value)


def least_above(
    holds: Callable[[float], bool],
    low: float,
    high: float,
    *,
    tolerance: float = 1e-9,
    guess: float | None = None,
    trust: float = 0.05,
) -> float:
    """Return a number for which ``holds`` is true, at most ``tolerance`` (relatively) above the least such one.

    ``holds`` is false below some point and true above it, and true at ``high``. Only a number that was found to hold
    is returned, so that the error of the search is on the safe side. A ``guess``, which one may ``trust`` to so much,
    saves evaluations.
    """
    if guess is not None and low < guess < high:
        start = low
        low, high = _bracket(holds, low, high, guess, 1 + trust)
        if low > start:
            return narrowed(lambda x: not holds(x), low, high, tolerance=tolerance)[1]
    return low if holds(low) else narrowed(lambda x: not holds(x), low, high, tolerance=tolerance)[1]


def _bracket(
    holds: Callable[[float], bool], low: float, high: float, guess: float, factor: float
) -> tuple[float, float]:
    """Widen an interval around a guess until it holds at its upper end and not at its lower one."""
    if holds(guess):
        high = guess
        while high / factor > low and holds(high / factor):
            high, factor = high / factor, factor**2
        return max(low, high / factor), high
    low = guess
    while low * factor < high and not holds(low * factor):
        low, factor = low * factor, factor**2
    return low, min(high, low * factor)


def largest_below(holds: Callable[[float], bool], low: float, high: float, *, tolerance: float = 1e-9) -> float:
    """Return a number for which ``holds`` is true, at most ``tolerance`` (relatively) below the largest such one.

    ``holds`` is true at ``low`` and up to some point, and false above it.
    """
    if holds(high):
        return high
    while high - low > tolerance * low:
        middle = math.sqrt(low * high) if low > 0 and high > 2 * low else (low + high) / 2
        if not low < middle < high:
            break
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def least_meeting(
    function: Callable[[float], float], limit: float, high: float, *, guess: float, tolerance: float
) -> float:
    """Return a number at which a falling smooth function is at most ``limit``, about ``tolerance`` above the least one.

    The function is at most ``limit`` at ``high``. Secants of the logarithms find the place in a few evaluations. Only
    ``high`` or a number at which the function was evaluated and found to be low enough is returned.
    """
    low, slope, leap = 0.0, _SLOPE, 1.2
    place, before = min(guess, high), None
    for count in itertools.count(1):
        value = function(place)
        gap = math.log(value / limit) if 0 < value < math.inf else math.copysign(math.inf, value - limit)
        low, high = (place, high) if gap > 0 else (low, place)
        if before is not None and math.isfinite(gap):
            steepness = (before[1] - gap) / math.log(place / before[0])
            slope = min(max(steepness, _SLOPE), _STEEPEST)
        if -tolerance * slope <= gap <= 0 or high - low <= tolerance * high:
            break
        if math.isfinite(gap):  # half a tolerance above the place where the secant meets the limit
            before = place, gap
            place *= math.exp(gap / slope + tolerance / 2)
        else:  # no secant yet
            place *= leap if gap > 0 else 1 / leap
            leap *= leap
        if low > 0 and (count % 3 == 0 or not low < place < high):
            place = math.sqrt(low * high)
        elif not low < place < high:
            place = high / 2
    return high
