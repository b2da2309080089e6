"""The mean of a number within each value of a category, where both were reported privately by the same user."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import ndtri

from noisette._validate import FloatArray
from noisette.survey.sums import Binned, Layout, Sums


def broken_down(layout: Layout, sums: Sums, category: str, level: float) -> list[dict[str, Any]]:
    """Return for each value of a category its share, and the mean of every number within it.

    Formula: a user of value c reports code k with probability p if k = c and q otherwise, independently of her report y
    about the number. With z = [code is k] and w = (z - q) / (p - q), E[w] is the share of k and E[w y] the share times
    the mean, so their ratio estimates the mean within k. Its interval is Fieller's: all means m for which the average
    of w (y - m) lies within the normal quantile of its standard error, cut to the number's range. Where the share is
    hardly told from zero that is the whole range.
    """
    mechanism = layout.survey.sections[0].inner(layout.column(category))
    labels = mechanism.domain.labels or ()
    rows: list[dict[str, Any]] = [{"value": label, "share": None, "dimensions": []} for label in labels]
    for name, number in layout.pairs:
        if name != category:
            continue
        moments = _moments(number, sums.crossed(category, number))
        for code, row in enumerate(rows):
            share, found = _ratio(number, moments, code, mechanism.p_own, mechanism.p_other, level)
            row["share"] = share
            row["dimensions"].append(found)
    return rows


def _moments(number: Binned, crossed: Any) -> FloatArray:
    """Return count, sum and sum of squares of what reports of each code say about the number, in its unit."""
    readout = number.mechanism.readout
    count, total, squares = crossed.astype(np.float64).T
    coarse = float(np.max(readout.coarse))
    # squares were rounded to whole numbers: half of one covers what that may have hidden
    second = coarse**2 * (squares + (0.5 * count if coarse > 1 else 0.0))
    offset, scale = float(np.ravel(readout.offset)[0]), float(np.ravel(readout.scale)[0])
    first = offset * count + scale * total
    return np.stack([count, first, offset**2 * count + 2 * offset * scale * total + scale**2 * second])


def _ratio(
    number: Binned, moments: FloatArray, code: int, p_own: float, p_other: float, level: float
) -> tuple[float | None, dict[str, Any]]:
    """Return the share of a value and the mean within it."""
    users, gap = float(moments[0].sum()), p_own - p_other
    blank = {"name": number.question.name, "value": None, "std_error": None, "low": None, "high": None}
    if users < 2:
        return None, blank | {"reports": int(users)}
    own, rest = moments[:, code], moments.sum(axis=1) - moments[:, code]
    near, far = (1 - p_other) / gap, -p_other / gap  # w of reports with this code, and with another one
    share, joint = (near * own[:2] + far * rest[:2]) / users
    squares, products, seconds = (near**2 * own + far**2 * rest) / users  # of w, w times w y, w y
    mixed = products - joint * share
    spread = np.asarray([[seconds - joint**2, mixed], [mixed, squares - share**2]]) / (users - 1)
    domain: Any = number.question.domain
    low, high = fieller(joint, share, spread, level)
    value = joint / share if share != 0 else math.nan
    variance = spread[0, 0] - 2 * value * spread[0, 1] + value**2 * spread[1, 1]
    error = math.sqrt(max(variance, 0.0)) / abs(share) if share != 0 else math.inf
    return float(share), {
        "name": number.question.name,
        "value": float(value),
        "std_error": float(error),
        "low": max(low, domain.low),
        "high": min(high, domain.high),
        "reports": int(users),
    }


def fieller(numerator: float, denominator: float, spread: FloatArray, level: float) -> tuple[float, float]:
    """Return the interval of a ratio of two normal estimates with this covariance, infinite where it is not bounded.

    >>> low, high = fieller(4.0, 2.0, np.asarray([[0.01, 0.0], [0.0, 0.0]]), 0.95)
    >>> round(low, 4), round(high, 4)
    (1.902, 2.098)
    """
    square = float(ndtri((1 + level) / 2)) ** 2
    a = denominator**2 - square * float(spread[1, 1])
    b = numerator * denominator - square * float(spread[0, 1])
    c = numerator**2 - square * float(spread[0, 0])
    root = b * b - a * c
    if a <= 0 or root < 0:
        return -math.inf, math.inf
    return (b - math.sqrt(root)) / a, (b + math.sqrt(root)) / a
