"""Confidence intervals of the mean of bounded reports, which hold at any number of them.

The normal interval has no width where all reports are the same, such as 300 of which none is false. Here one imaginary
report is added, the least or the largest that a report can be, and reports get random weights (Gaffke 2005). Where one
report hardly moves the mean, half of a report is added at either end (Jeffreys): a whole one makes intervals too wide.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from noisette._special import betaincinv, ndtr, ndtri
from noisette._validate import FloatArray

_BLOCK = 1 << 16  # quantities at a time
_LARGE_SHAPE = 1000.0  # parameters of a beta law from which on its quantiles are those of a series
_LAPLACE_KURTOSIS = 3.0  # excess of the kurtosis of Laplace noise
_CAREFUL, _LEAST_SCORE = 2.0, 2.0  # moves of one report in a score's error up to which intervals hold for sure
_ROUNDS, _FARTHEST = 12, 38.0  # in which a score is found, and the largest one
_TRIED, _HALVINGS = 17, 24  # numbers that a test tries on a grid; halvings of its steps at the ends of what it keeps


def bounded_interval(
    value: Any, error: Any, count: Any, low: Any, high: Any, score: Any, moves: Any = None
) -> tuple[FloatArray, FloatArray]:
    """Return both ends of the interval of a mean of ``count`` reports between ``low`` and ``high``.

    ``error`` is the standard error of the mean, ``score`` the normal quantile of the confidence: 1.96 for 95 %.
    ``moves`` is the error divided by what one report can move, of a sum that the mean is a part of: of itself if None.

    Formula: the upper end is a quantile of the mean of the reports, of a weight of a at ``high`` and of 1 - a at
    ``low``, weighted by Dirichlet(1, ..., 1, a, 1 - a). That mean has expectation m = (n v + a high + (1 - a) low) /
    (n + 1) and variance s^2 / (n + 2), with s^2 the variance of these n + 1 numbers; the beta law on [low, high] with
    both stands for its law. The lower end likewise, with both turned around. Where one report can move the mean by a
    quarter of its error, a = 1: for reports of two values that is Clopper and Pearson's interval, which holds at least
    as often as it says. Where it moves the mean by less than an eighth, a = 1/2: that is Jeffreys' interval, which
    holds as often as it says on average. In between a falls evenly; at a score z above 2 both parts are 2 / z of that.

    >>> low, high = bounded_interval(0.0, 0.0, 10, 0.0, 1.0, 1.959963984540054)
    >>> round(float(low), 4), round(float(high), 4)  # none of ten: 1 - 0.025^(1 / 10)
    (0.0, 0.3085)
    """
    if moves is None:
        with np.errstate(divide="ignore", invalid="ignore"):
            moves = np.where(np.asarray(count) > 1, moves_of(error, np.subtract(high, low) / count), 0.0)
    every = (value, error, count, low, high, score, moves)
    given = np.broadcast_arrays(*(np.asarray(one, dtype=np.float64) for one in every))
    flat = [one.reshape(-1) for one in given]
    ends = np.empty((2, flat[0].size))
    for start in range(0, flat[0].size, _BLOCK):
        own = slice(start, start + _BLOCK)
        ends[:, own] = _ends(*_once([one[own] for one in flat]))
    return ends[0].reshape(given[0].shape), ends[1].reshape(given[0].shape)


def jump_of_sum(jumps: Any, errors: Any) -> FloatArray:
    """Return how far one report moves a sum of independent parts: the first axis runs over what it moves each of them.

    Formula: the mean of the jumps by the parts' variances, which bounds the third moments that keep a sum from being
    normal (Lyapunov). A part counts for at least the square of its jump, so that few people who say the same do count.
    """
    jumps, squares = np.asarray(jumps), np.square(errors) + np.square(jumps)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.sum(jumps * squares, axis=0) / np.sum(squares, axis=0)
    return np.asarray(np.where(np.isnan(found), np.max(jumps, axis=0), found))


def moves_of(error: Any, jump: Any) -> FloatArray:
    """Return a standard error divided by how far one report can move what is estimated, 0 if the error is unknown."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.asarray(error) / jump
    return np.asarray(np.where(np.isfinite(error) & ~np.isnan(found), found, 0.0))


def _once(given: list[FloatArray]) -> tuple[list[FloatArray], Any]:
    """Return the different rows of what is given and the place of each, or all rows where that would take long."""
    value = given[0]
    if value.size < 64:
        return given, slice(None)
    _, first, place = np.unique(value, return_index=True, return_inverse=True)
    if 2 * first.size > value.size or not all(np.array_equal(one, one[first][place]) for one in given[1:]):
        return given, slice(None)
    return [one[first] for one in given], place


def _ends(given: list[FloatArray], place: Any) -> FloatArray:
    value, error, count, low, high, score, moves = given
    low, high = np.fmin(low, value), np.fmax(high, value)
    careful = np.clip(2 - moves / (_CAREFUL * np.maximum(np.abs(score), _LEAST_SCORE)), 0.0, 1.0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        spread = np.where(count > 1, (count - 1) * error**2, 0.0)
        chance = ndtr(-np.abs(score))
        near = (1 + np.where(np.isnan(careful), 1.0, careful)) / 2  # of the imaginary report, at the end in question
        down = _quantile(value - low, spread, count, high - low, high - value, chance, near)
        up = _quantile(high - value, spread, count, high - low, value - low, chance, near)
        found = np.stack([value - down, value + up])
    found[:, ~(count > 0)] = np.nan
    return np.asarray(found[:, place])


def _quantile(
    room: FloatArray,
    spread: FloatArray,
    count: FloatArray,
    width: FloatArray,
    other: FloatArray,
    chance: FloatArray,
    near: FloatArray,
) -> FloatArray:
    """Return how far the end is from the value: ``room`` is as far as it can be, ``other`` the room on its other side.

    In units of the width the mean of the beta law lies at a share of the width from the nearer end of the room.
    """
    shift = (near * room - (1 - near) * other) / (count + 1)  # of the mean, by the imaginary report
    left = (room - shift) / width  # from the mean to the end of the room
    passed = (other + shift) / width
    squares = near * room**2 + (1 - near) * other**2 - (count + 1) * shift**2
    variance = (count * spread + squares) / (count + 1) / (count + 2) / width**2
    total = np.maximum(left * passed / variance - 1, count + 1)
    first, second = left * total, passed * total  # the law of the distance to the end of the room
    found = np.where(left > 0, 0.0, 1.0)
    wide = np.minimum(first, second) > _LARGE_SHAPE
    few = (first > 0) & ~wide
    # the distance that is left to the end of the room is exceeded with all but this chance
    found[few] = betaincinv(first[few], second[few], chance[few])
    found[wide] = _series(first[wide], second[wide], chance[wide])
    return np.asarray(np.where(first > 0, np.maximum(room - width * found, 0.0), 0.0))


def _series(first: FloatArray, second: FloatArray, chance: FloatArray) -> FloatArray:
    """Return a quantile of a beta law of large parameters by the series of Cornish and Fisher."""
    z, total = ndtri(chance), first + second
    mean = first / total
    spread = np.sqrt(mean * (1 - mean) / (total + 1))
    skew = 2 * (second - first) * np.sqrt(total + 1) / ((total + 2) * np.sqrt(first * second))
    excess = 6 * ((first - second) ** 2 * (total + 1) - first * second * (total + 2))
    excess /= first * second * (total + 2) * (total + 3)
    bent = z + (z**2 - 1) * skew / 6 + (z**3 - 3 * z) * excess / 24 - (2 * z**3 - 5 * z) * skew**2 / 36
    return np.asarray(np.clip(mean + spread * bent, 0.0, 1.0))


def noisy_interval(
    value: Any, error: Any, count: Any, low: Any, high: Any, noise: Any, score: Any
) -> tuple[FloatArray, FloatArray]:
    """Return both ends of the interval of a mean to whose reports noise of a known variance was added.

    Formula: the mean of the values, which lie between ``low`` and ``high``, has the interval of `bounded_interval`, the
    mean of the noise +- t sqrt(noise / n) with t = z + (z^3 - 3 z) k / (24 n), k the excess of Laplace's law. Both are
    independent: their distances from the estimate add up as squares.
    """
    value, error, count, score = (np.asarray(one, dtype=np.float64) for one in (value, error, count, score))
    with np.errstate(divide="ignore", invalid="ignore"):
        known = np.asarray(noise) / count
        rest = np.sqrt(np.maximum(np.where(count > 1, error**2, 0.0) - known, 0.0))
        middle = np.clip(value, low, high)
        least, most = bounded_interval(middle, rest, count, low, high, score)
        z = np.abs(score)
        radius = (z + np.maximum(z**3 - 3 * z, 0.0) * _LAPLACE_KURTOSIS / (24 * count)) * np.sqrt(known)
    return value - np.hypot(middle - least, radius), value + np.hypot(most - middle, radius)


def added(
    values: FloatArray, lows: FloatArray, highs: FloatArray, weights: FloatArray, known: Any = 0.0
) -> tuple[FloatArray, FloatArray]:
    """Return both ends of the interval of a weighted sum of independent estimates from the ends of each of them.

    Formula: the distances of the ends from the estimates, weighted, add up as squares (Zou and Donner 2008): where all
    are normal that is the normal interval of the sum. ``known`` is the square of another distance. The first axis runs
    over the estimates.
    """
    shape = (-1,) + (1,) * (np.ndim(values) - 1)
    weight = np.asarray(weights, dtype=np.float64).reshape(shape)
    with np.errstate(invalid="ignore"):
        down, up = (weight * values - weight * lows) ** 2, (weight * highs - weight * values) ** 2
        middle = np.sum(weight * values, axis=0)
        below = np.sqrt(np.sum(np.where(weight > 0, down, up), axis=0) + known)
        above = np.sqrt(np.sum(np.where(weight > 0, up, down), axis=0) + known)
    return middle - below, middle + above


def touching(
    ends_at: Callable[[FloatArray], tuple[FloatArray, FloatArray]],
    value: FloatArray,
    error: FloatArray,
    target: FloatArray,
) -> FloatArray:
    """Return for each estimate the score at which its interval just reaches a number, 0 where every interval holds it.

    Formula: the distance of the end grows about as the score, so z is multiplied by (value - target) / distance until
    both agree.
    """
    gap = np.abs(value - target)
    with np.errstate(divide="ignore", invalid="ignore"):
        start = gap / error
        z = np.where(np.isfinite(start), np.clip(start, 0.0, _FARTHEST), np.where(gap > 0, 1.0, 0.0))
        for _ in range(_ROUNDS):
            low, high = ends_at(z)
            far = np.where(value > target, value - low, high - value)
            z = np.clip(np.where(far > 0, z * gap / far, np.where(gap > 0, _FARTHEST, 0.0)), 0.0, _FARTHEST)
    return np.asarray(np.where(np.isfinite(value), np.where(gap > 0, z, 0.0), np.nan))


def score_of(level: float) -> float:
    """Return the normal quantile of a confidence.

    >>> round(score_of(0.95), 4)
    1.96
    """
    if not 0 < level < 1:
        raise ValueError(f"Expected level={level!r} in (0, 1), e.g. 0.95.")
    return float(ndtri((1 + level) / 2))


def inverted(
    keeps: Callable[[FloatArray], Any], value: FloatArray, low: float, high: float
) -> tuple[FloatArray, FloatArray]:
    """Return the least and the largest number of [low, high] that a test keeps, for each of several quantities.

    ``keeps(tried)`` says whether the test keeps numbers, whose last axis runs over the quantities. They are tried on a
    grid, to which ``value`` belongs; at both ends of what is kept the end is found by halving. Where the test keeps
    nothing, the number nearest to ``value`` is both ends.
    """
    middle = np.clip(np.where(np.isfinite(value), value, low), low, high)
    even = np.broadcast_to(np.linspace(low, high, _TRIED)[:, None], (_TRIED, value.size))
    grid = np.sort(np.concatenate([even, middle[None]]), axis=0)
    kept = np.asarray(keeps(grid))
    columns = np.arange(value.size)
    first, last = np.argmax(kept, axis=0), _TRIED - np.argmax(kept[::-1], axis=0)
    some = kept.any(axis=0)
    inside = np.where(some, np.stack([grid[first, columns], grid[last, columns]]), middle)
    outside = np.stack([grid[np.maximum(first - 1, 0), columns], grid[np.minimum(last + 1, _TRIED), columns]])
    outside = np.where(some, outside, middle)
    for _ in range(_HALVINGS):
        tried = (inside + outside) / 2
        good = keeps(tried)
        inside, outside = np.where(good, tried, inside), np.where(good, outside, tried)
    return inside[0], inside[1]
