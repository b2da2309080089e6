"""Scores that rank reports by how much likelier one input makes them than another, learned from samples."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from noisette._validate import FloatArray, IntArray
from noisette.mechanisms.vector.sampled import Reports

Scorer = Callable[[FloatArray], FloatArray]

_BINS = (16, 64, 256)  # resolutions at which densities are compared: coarse ones see small differences
_PLANE_BINS = 24
_FEW_COLUMNS = 32  # beyond, one resolution has to do for each
_MOST_COLUMNS = 1024  # up to here the covariance of the columns is used, beyond it their variances
_MOST_VALUES = 4096  # whole numbers up to here are kept apart wherever they stand in a report
_CLEAR = 4.0  # standard deviations by which a column or a value must differ to be taken for more than chance
_FARTHEST = 1e300  # stands for infinity in sums


def table(reports: Any) -> FloatArray:
    """Return reports as a matrix with a row each, whatever they are.

    Of compact reports every dimension gets a column, with NaN where it was not reported. What is not a number is
    numbered by a checksum of its text: two that share one are merged, which may hide something but invents nothing.
    """
    if isinstance(reports, Reports):
        dense = np.full((len(reports), int(reports.indices.max()) + 1), np.nan)
        np.put_along_axis(dense, reports.indices.astype(np.int64), reports.values, axis=1)
        return dense
    array = _array(reports)
    if array.dtype.kind == "c":
        array = np.stack([array.real, array.imag], axis=-1)
    if array.dtype.kind not in "biuf":
        texts, inverse = np.unique([str(report) for report in array.reshape(-1)], return_inverse=True)
        array = np.asarray([zlib.crc32(text.encode()) for text in texts])[inverse.reshape(array.shape)]
    rows = np.asarray(array, dtype=float).reshape(len(array), -1)
    return np.asarray(np.clip(rows, -_FARTHEST, _FARTHEST))


def _array(reports: Any) -> Any:
    """Return an array with a report in each row; reports of unlike lengths stay objects."""
    try:
        return np.asarray(reports)
    except ValueError:
        rows = np.empty(len(reports), dtype=object)
        rows[:] = list(reports)
        return rows


def scorers(first: FloatArray, second: FloatArray) -> Iterator[Scorer]:
    """Learn scores that are high where the first input is the likelier one.

    Whole reports that were seen more than once are counted: for categories the counts say everything; elsewhere they
    find atoms. A single number is looked at from either end, for tails, and by the ratio of two densities. Of several
    numbers the ratios are added up, as if they were independent, of all columns or of those that differ by more than
    chance; of sets of whole numbers those of what they hold. The direction that separates the two means best is looked
    at like a single number, and together with the direction of the common mean.
    """
    yield _compose(row_keys, _repeated(row_keys(first), row_keys(second)))
    if first.shape[1] == 1:
        yield from _compose_all(lambda rows: rows[:, 0], _single(first[:, 0], second[:, 0]))
        return
    for bins in _BINS if first.shape[1] <= _FEW_COLUMNS else _BINS[:1]:
        yield _independent(first, second, bins)
    yield _independent(first, second, _BINS[0], clear=_CLEAR)
    yield from _members(first, second)
    across, along = _directions(first, second)
    project = _projection(across)
    yield from _compose_all(project, _single(project(first), project(second)))
    yield _plane(first, second, _projection(across), _projection(along))


def _single(first: FloatArray, second: FloatArray) -> Iterator[Scorer]:
    """Learn from one number a report."""
    yield lambda values: np.nan_to_num(values)
    yield lambda values: -np.nan_to_num(values)
    for bins in _BINS:
        yield _density(first, second, bins)


def _compose(feature: Callable[[FloatArray], Any], scorer: Callable[[Any], FloatArray]) -> Scorer:
    return lambda rows: scorer(feature(rows))


def _compose_all(feature: Callable[[FloatArray], FloatArray], inner: Iterator[Scorer]) -> Iterator[Scorer]:
    return (_compose(feature, scorer) for scorer in inner)


def row_keys(rows: FloatArray) -> IntArray:
    """Number the rows: equal ones alike, others differently but for one chance in 2^64."""
    odd = np.random.default_rng(0).integers(0, 2**62, rows.shape[1], dtype=np.int64) * 2 + 1
    bits = np.ascontiguousarray(rows + 0.0).view(np.int64)  # + 0.0: there is one zero
    bits = bits ^ (bits >> 29)
    with np.errstate(over="ignore"):
        return np.asarray((bits * odd).sum(axis=1))


def _ratio(counts: tuple[IntArray, IntArray]) -> FloatArray:
    """Return the log ratio of two histograms, drawn toward zero where little was seen."""
    one, two = ((count + 0.5) / (count.sum() + 0.5 * count.size) for count in counts)
    return np.asarray(np.log(one) - np.log(two))


def _repeated(first: IntArray, second: IntArray) -> Callable[[IntArray], FloatArray]:
    """Compare how often each key was seen, of those seen more than once; the others say nothing."""
    seen, often = np.unique(np.concatenate([first, second]), return_counts=True)
    known = seen[often > 1] if np.any(often > 1) else seen[:1]

    def place(keys: IntArray) -> IntArray:
        index = np.minimum(np.searchsorted(known, keys), known.size - 1)
        return np.where(known[index] == keys, index, known.size)

    one, two = (np.bincount(place(keys), minlength=known.size + 1) for keys in (first, second))
    score = _ratio((one, two))
    score[-1] = 0.0
    return lambda keys: np.asarray(score[place(keys)])


def _density(first: FloatArray, second: FloatArray, bins: int) -> Scorer:
    """Compare two histograms over quantiles of both samples; what is missing has a bin of its own."""
    place, counts = _histograms(first, second, bins)
    score = _ratio(counts)
    return lambda values: np.asarray(score[place(values)])


def _histograms(
    first: FloatArray, second: FloatArray, bins: int
) -> tuple[Callable[[FloatArray], IntArray], tuple[IntArray, IntArray]]:
    """Return the function that puts numbers in bins, and how many of each sample lie in each."""
    place, size = _binning(first, second, bins)
    return place, (np.bincount(place(first), minlength=size), np.bincount(place(second), minlength=size))


def _binning(first: FloatArray, second: FloatArray, bins: int) -> tuple[Callable[[FloatArray], IntArray], int]:
    """Return the function that puts numbers in bins, and how many there are."""
    pooled = np.concatenate([first, second])
    pooled = pooled[~np.isnan(pooled)]
    inner = np.unique(np.quantile(pooled, np.arange(1, bins) / bins, method="inverted_cdf")) if pooled.size else pooled

    def place(values: FloatArray) -> IntArray:
        return np.where(np.isnan(values), inner.size + 1, np.searchsorted(inner, values, side="right"))

    return place, inner.size + 2


def _independent(first: FloatArray, second: FloatArray, bins: int, *, clear: float = -math.inf) -> Scorer:
    """Add up the log ratios of all columns, or of those that differ by ``clear`` standard deviations and more."""
    ratios = []
    for column in range(first.shape[1]):
        place, (one, two) = _histograms(first[:, column], second[:, column], bins)
        seen = one + two > 0
        excess = ((one - two)[seen] ** 2 / (one + two)[seen] - 1).sum()  # chi-square less its mean
        if excess >= clear * math.sqrt(2 * seen.sum()):
            ratios.append((column, place, _ratio((one, two))))

    def score(rows: FloatArray) -> FloatArray:
        total = np.zeros(len(rows))
        for column, place, ratio in ratios:
            total += ratio[place(rows[:, column])]
        return total

    return score


def _members(first: FloatArray, second: FloatArray) -> Iterator[Scorer]:
    """Add up the log odds of the whole numbers that a report holds, wherever they stand in it."""
    low, high = min(first.min(), second.min()), max(first.max(), second.max())
    if not first.shape[1] <= high - low <= _MOST_VALUES or np.any(np.mod(first, 1)) or np.any(np.mod(second, 1)):
        return
    size = int(high - low) + 1

    def place(rows: FloatArray) -> IntArray:
        whole = (rows >= low) & (rows <= high) & (np.mod(rows, 1) == 0)
        return np.where(whole, rows - low, size).astype(np.int64)

    one, two = (np.bincount(place(rows).reshape(-1), minlength=size + 1) for rows in (first, second))
    rest = (len(first) * first.shape[1] - one, len(second) * second.shape[1] - two)
    weight = np.log((one + 0.5) / (two + 0.5)) - np.log((rest[0] + 0.5) / (rest[1] + 0.5))
    weight[np.abs(one - two) < _CLEAR * np.sqrt(one + two)] = 0.0
    yield lambda rows: np.asarray(weight[place(rows)].sum(axis=1))


def _directions(first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the direction that separates the two means best for the covariance, and that of their sum."""
    one, two = np.nan_to_num(first), np.nan_to_num(second)
    gap, total = one.mean(axis=0) - two.mean(axis=0), one.mean(axis=0) + two.mean(axis=0)
    if one.shape[1] > _MOST_COLUMNS:
        spread = one.var(axis=0) + two.var(axis=0)
        return gap / np.maximum(spread, 1e-12 * spread.max() + 1e-300), total
    pooled = np.atleast_2d(np.cov(one, rowvar=False) + np.cov(two, rowvar=False))
    ridge = (1e-6 * np.trace(pooled) / len(pooled) + 1e-300) * np.eye(len(pooled))
    return np.linalg.solve(pooled + ridge, gap), total


def _projection(direction: FloatArray) -> Callable[[FloatArray], FloatArray]:
    return lambda rows: np.asarray(np.nan_to_num(rows) @ direction)


def _plane(first: FloatArray, second: FloatArray, across: Scorer, along: Scorer) -> Scorer:
    """Compare densities over two directions at once."""
    horizontal, width = _binning(across(first), across(second), _PLANE_BINS)
    vertical, height = _binning(along(first), along(second), _PLANE_BINS)

    def place(rows: FloatArray) -> IntArray:
        return np.asarray(horizontal(across(rows)) * height + vertical(along(rows)))

    one, two = (np.bincount(place(sample), minlength=width * height) for sample in (first, second))
    score = _ratio((one, two))
    return lambda rows: np.asarray(score[place(rows)])
