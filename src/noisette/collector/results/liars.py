"""Reports that somebody made up: intervals that hold although a declared share of them is, and signs that some are.

A liar sends any report that the mechanism could have sent. Intervals say how far that can move an estimate. The tests
notice what no honest population can send. They find crude forgeries only: a liar who runs the mechanism on a false
value sends what an honest person might send, and only the declared share covers that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from noisette._validate import FloatArray
from noisette.core import Aggregate, Tail
from noisette.mechanisms.categorical._base import CountingMechanism
from noisette.survey.sums import Binned, Sums

FALSE_ALARM = 1e-4  # chance that any test of a period speaks although all are honest


def intervals(sums: Sums, level: float, share: float) -> dict[str, tuple[float, float]]:
    """Return for each quantity an interval that holds if at most this share of all users lies, in whatever way.

    Formula: of n_j reports about a quantity up to lambda = share * users / n_j are lies: liars choose what they report
    about. With s_min and s_max the least and the largest that one report says, and [L, U] the interval of the mean of
    all reports, the honest mean is in [(L - lambda s_max) / (1 - lambda), (U - lambda s_min) / (1 - lambda)], and in
    the quantity's own range. A quantity that is read from several sums has no such interval here, and is left out.
    """
    found: dict[str, tuple[float, float]] = {}
    for one in sums.aggregates:
        estimate, readout = one.estimate(), one.mechanism.readout
        ends = readout.offset + _ends(one) * readout.scale
        least, largest = ends.min(axis=0), ends.max(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            lying = np.minimum(share * sums.users / estimate.count, 1.0)
            low, high = estimate.interval(level)
            low, high = (low - lying * largest) / (1 - lying), (high - lying * least) / (1 - lying)
        low = np.where(lying < 1, np.fmax(low, readout.low), readout.low)
        high = np.where(lying < 1, np.fmin(high, readout.high), readout.high)
        if one.names is not None and len(one.names) == low.size:
            found |= zip(one.names, zip(low.tolist(), high.tolist(), strict=True), strict=True)
    return found


def _ends(one: Aggregate) -> FloatArray:
    """Return the least and the largest that one report adds to each sum, as two rows."""
    mechanism: Any = one.mechanism
    weights = mechanism.readout.weights
    ends = mechanism.code_ends if weights is None else (weights.min(), weights.max())
    return np.asarray(ends, dtype=np.float64).reshape(2, -1)


def suspicions(sums: Sums) -> dict[str, Any]:
    """Test what every honest population passes, and return the tests that it fails, if any.

    For each category: reports support it no more rarely than if nobody held it, and no more often than if everybody did
    (exact binomial tails). Estimated shares whose entries are independent add up to one, and means lie in their range
    (the sub-gamma tail that the mechanism states). For each bin of a number's reports: its chance is within the bounds
    that e^epsilon allows about any other input's. All p-values are true bounds, adjusted by Holm's method.
    """
    found = [one for one in _tests(sums) if one["p_value"] < 1] if sums.users else []
    found.sort(key=lambda one: one["p_value"])
    failed, count = [], sum(1 for _ in _tests(sums)) if sums.users else 0
    for place, one in enumerate(found):
        adjusted = min(1.0, one["p_value"] * (count - place))
        if adjusted >= FALSE_ALARM:
            break
        failed.append(one | {"adjusted": adjusted})
    return {"false_alarm": FALSE_ALARM, "tests": count, "failed": failed}


def _tests(sums: Sums) -> Iterator[dict[str, Any]]:
    for one in sums.aggregates:
        for mechanism, own in _parts(one):
            names = (one.names or ())[own]
            count, total = one.count[own], one.total[own]
            if not count.size or count.min() <= 0:
                continue
            if isinstance(mechanism, CountingMechanism):
                yield from _cells(mechanism, names, count, total)
            elif mechanism.readout.weights is None:
                yield from _means(mechanism, names, count, total)
            if mechanism.kind == "frequency" and mechanism.covariances == (0.0, 0.0):
                yield _shares(mechanism, names, count, total)
    for number in sums.layout.numbers:
        yield from _bins(number, sums)


def _parts(one: Aggregate) -> Iterator[tuple[Any, slice]]:
    """Yield the mechanism of each attribute of a record and where its sums lie, or the mechanism itself."""
    mechanism: Any = one.mechanism
    if mechanism.kind != "attributes":
        yield mechanism, slice(0, one.count.size)
        return
    start = 0
    for inner, size in zip(mechanism.inner_mechanisms, mechanism.groups, strict=True):
        yield inner, slice(start, start + size)
        start += size


def _cells(mechanism: CountingMechanism, names: Any, count: Any, total: Any) -> Iterator[dict[str, Any]]:
    """Compare how often each category is supported with the rarest and the most often that could be."""
    from scipy.special import bdtr, bdtrc

    few = bdtr(total, count, mechanism.p_other)  # at most this many, if nobody held it
    many = np.where(total > 0, bdtrc(np.maximum(total - 1, 0), count, mechanism.p_own), 1.0)
    for name, rare, often in zip(names, few.tolist(), many.tolist(), strict=True):
        yield {"about": name, "test": "supported too rarely", "p_value": rare}
        yield {"about": name, "test": "supported too often", "p_value": often}


def _means(mechanism: Any, names: Any, count: Any, total: Any) -> Iterator[dict[str, Any]]:
    """Compare each mean with the range that it must lie in."""
    readout = mechanism.readout
    value = readout.offset + readout.scale * total / count
    outside = np.maximum(np.maximum(value - readout.high, readout.low - value), 0.0)
    chances = chance_of(readout.tail, outside, count)
    for name, chance in zip(names, np.broadcast_to(chances, value.shape).tolist(), strict=True):
        yield {"about": name, "test": "mean outside its range", "p_value": chance}


def _shares(mechanism: Any, names: Any, count: Any, total: Any) -> dict[str, Any]:
    """Compare the sum of all shares with one."""
    readout = mechanism.readout
    value = float(np.sum(readout.offset + readout.scale * total / count))
    tail = Tail(float(np.sum(np.broadcast_to(readout.tail.variance, total.shape))), float(np.max(readout.tail.scale)))
    chance = float(chance_of(tail, np.asarray(abs(value - 1)), count[:1])[0])
    about = ", ".join(names[:1]) + (f" and {len(names) - 1} others" if len(names) > 1 else "")
    return {"about": about, "test": f"shares add up to {value:.3f}", "p_value": min(1.0, 2 * chance)}


def chance_of(tail: Tail, away: FloatArray, count: FloatArray) -> FloatArray:
    """Return the largest chance that the mean of this many reports is so far, on one side, from its expectation.

    Formula: exp(-x), with away = sqrt(2 v x / n) + c x / n.
    """
    first = np.sqrt(2 * np.asarray(tail.variance) / count)
    second = np.asarray(tail.scale) / count
    root = 2 * away / (first + np.sqrt(first**2 + 4 * second * away))
    return np.asarray(np.exp(-(root**2)))


def _bins(number: Binned, sums: Sums) -> Iterator[dict[str, Any]]:
    """Compare how many reports fell into each bin with the least and the largest chance of any input."""
    from scipy.special import bdtr, bdtrc

    guarantee = number.mechanism.guarantee
    counts = sums.histogram(number) if number.bins else np.zeros(0)
    if guarantee.delta > 0 or guarantee.matrix is not None or not counts.sum():
        return
    matrix, ratio = number.channel.matrix, math.exp(guarantee.epsilon)
    if len(matrix) != len(counts):
        return
    lowest = np.clip(matrix.max(axis=1) / ratio * _SLACK_LOW, 0.0, 1.0)
    highest = np.clip(matrix.min(axis=1) * ratio * _SLACK_HIGH, 0.0, 1.0)
    users = int(counts.sum())
    few = bdtr(counts, users, lowest)
    many = np.where((counts > 0) & (highest < 1), bdtrc(np.maximum(counts - 1, 0), users, highest), 1.0)
    for place, (rare, often) in enumerate(zip(few.tolist(), many.tolist(), strict=True)):
        yield {"about": number.question.name, "test": f"too few reports in bin {place + 1}", "p_value": rare}
        yield {"about": number.question.name, "test": f"too many reports in bin {place + 1}", "p_value": often}


_SLACK_LOW, _SLACK_HIGH = 1 - 1e-9, 1 + 1e-9  # of chances that are sums of floats
