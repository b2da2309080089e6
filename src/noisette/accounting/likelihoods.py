"""A mechanism's likelihoods laid out over its whole support, and the least of them over all inputs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from noisette._validate import FloatArray, IntArray
from noisette.core import Mechanism
from noisette.domains import Categorical, Grid, Interval
from noisette.mechanisms._base import Lattice, Points
from noisette.mechanisms.categorical._base import Codes

_MOST_POINTS = 1 << 20  # reports that are evaluated one by one
_MOST_SPACED = 1 << 18  # the same on a lattice, where stretches can be integrated instead
_MOST_PAIRS = 1 << 23  # reports times inputs that are searched for the least likelihood
_CELLS = 512  # parts of a stretch on which the likelihoods may vary
_MESH = 33  # inputs looked at beside the witnesses
_CATEGORIES = 6  # categories of which all pairs are compared
_NEGLIGIBLE = 60.0  # a tail ends where the log-likelihood has fallen by this much
_TOLERANCE = 1e-7  # of the total mass; more is missing where some report was not seen
_ROUNDING = 2.0**-40  # of a sum of up to a million likelihoods

_GAUSS = np.polynomial.legendre.leggauss(5)
_NODES = np.concatenate([[0.0], (1 + _GAUSS[0]) / 2, [1.0]])
_WEIGHTS = np.concatenate([[0.0], _GAUSS[1] / 2, [0.0]])


@dataclass(frozen=True)
class Likelihoods:
    """Masses of all parts of the support, and log-likelihoods at a few points of each.

    ``mass[c, i]`` is the chance of part c under the i-th witness, ``logs[c, j, i]`` its log-likelihood at the j-th
    point of the part; the likelihoods are monotone within a part. ``floor`` and ``floor_mass`` are the same for the
    least likelihood over all inputs.
    """

    mass: FloatArray
    logs: FloatArray
    floor: FloatArray
    floor_mass: FloatArray

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Yield every ordered pair of different witnesses."""
        count = self.mass.shape[1]
        return ((i, j) for i in range(count) for j in range(count) if i != j)


def likelihoods(mechanism: Mechanism) -> Likelihoods | None:
    """Return the likelihoods of a mechanism from numbers or categories whose reports are single numbers, or None.

    The parts are single reports where these can be listed. On a fine lattice they are the witnesses themselves, beside
    which a likelihood may jump, and stretches between them, on which it is integrated. If the masses found do not add
    up to one, some report was missed and None is returned: nothing is built on a guess.
    """
    inputs, reports = mechanism.witnesses()
    if not (isinstance(reports, np.ndarray) and reports.ndim == 1):
        return None
    if not isinstance(mechanism.domain, Categorical | Interval | Grid):
        return None  # the least likelihood over other inputs, such as all texts, is not found by trying some
    if isinstance(mechanism.domain, Categorical):
        inputs = np.union1d(inputs, np.arange(min(_CATEGORIES, mechanism.domain.size)))
    support = mechanism.support
    if isinstance(support, Points):
        return _summed(mechanism, np.asarray(support.values), inputs)
    if isinstance(support, Lattice):
        return _laid_out(mechanism, support, reports, inputs)
    if isinstance(support, Codes) and support.size <= _MOST_POINTS:
        return _summed(mechanism, np.arange(support.size), inputs)
    return None


def _summed(mechanism: Mechanism, points: Any, inputs: Any) -> Likelihoods | None:
    """Evaluate every report, under every input or many of them."""
    some = _mesh(mechanism, inputs)
    if points.size * len(some) > _MOST_PAIRS:
        return None
    logs = mechanism.log_prob(points[:, None], inputs)[:, None, :]
    floor = mechanism.log_prob(points[:, None], some).min(axis=1, keepdims=True)
    step = mechanism.support.step if isinstance(mechanism.support, Lattice) else 1.0
    return _checked(np.ones((points.size, 1)), logs, floor, step)


def _laid_out(mechanism: Mechanism, support: Lattice, reports: FloatArray, inputs: FloatArray) -> Likelihoods | None:
    """Evaluate the witnesses and the stretches between them, or every report where they are few."""
    first, last = _ends(mechanism, support, reports, inputs)
    if last - first < _MOST_SPACED:
        summed = _summed(mechanism, support.value(np.arange(first, last + 1)), inputs)
        if summed is not None:
            return summed
    known = np.unique(np.rint(support.index(reports)).astype(np.int64))
    starts, counts = _stretches(np.unique(np.concatenate([[first - 1], known, [last + 1]])), known)
    # a stretch is integrated from half a step before its first point to half a step behind its last one
    ends = (_NODES == 0) | (_NODES == 1)
    spread = np.where(ends, _NODES * (counts - 1)[:, None], _NODES * counts[:, None] - 0.5)
    position = starts[:, None] + spread
    nearest = starts[:, None] + np.clip(np.rint(spread), 0, (counts - 1)[:, None])
    points = support.value(nearest)[..., None]
    logs = mechanism.log_prob(points, inputs)
    with np.errstate(invalid="ignore"):
        slope = (logs[:, -1] - logs[:, 0]) / np.maximum(counts - 1, 1)[:, None]
    logs = logs + np.nan_to_num(slope)[:, None, :] * (position - nearest)[..., None]
    floor = np.minimum(mechanism.log_prob(points, _mesh(mechanism, inputs)).min(axis=-1), logs.min(axis=-1))
    return _checked(_WEIGHTS * counts[:, None], logs, floor, support.step)


def _ends(mechanism: Mechanism, support: Lattice, reports: FloatArray, inputs: Any) -> tuple[int, int]:
    """Return the first and last lattice point whose chance is not negligible."""
    known = support.index(reports)
    ends = []
    for sign, limit in ((-1, support.low), (1, support.high)):
        edge = sign * float((sign * known).max())
        if math.isfinite(limit):
            ends.append(int(support.index(np.asarray(limit))))
            continue
        distance = 1.0
        top = float(np.max(mechanism.log_prob(reports[:, None], inputs)))
        while distance < 2.0**52:
            if float(np.max(mechanism.log_prob(support.value(edge + sign * distance), inputs))) < top - _NEGLIGIBLE:
                break
            distance *= 2
        ends.append(int(edge + sign * distance))
    return ends[0], ends[1]


def _stretches(marks: IntArray, known: IntArray) -> tuple[IntArray, IntArray]:
    """Return start and number of points of each part: the known points one by one, the rest in up to 512 cells each."""
    starts, counts = [known], [np.ones_like(known)]
    for before, after in pairwise(marks):
        size = int(after - before - 1)
        if size > 0:
            edges = before + 1 + np.unique(np.linspace(0, size, min(size, _CELLS) + 1).round().astype(np.int64))
            starts.append(edges[:-1])
            counts.append(np.diff(edges))
    return np.concatenate(starts), np.concatenate(counts)


def _mesh(mechanism: Mechanism, inputs: Any) -> Any:
    """Return the witnesses and inputs between them: every category, or points spread over an interval."""
    domain: Any = mechanism.domain
    if np.asarray(inputs).dtype.kind in "iu":
        return np.arange(domain.size)
    return np.union1d(inputs, domain.clip(np.linspace(domain.low, domain.high, _MESH)))


def _checked(weights: FloatArray, logs: FloatArray, floor: FloatArray, step: float) -> Likelihoods | None:
    """Return the likelihoods with masses that add up to one, if they do so but for rounding.

    A likelihood may be a chance or a chance per unit of length: the sum says which.
    """
    mass = np.einsum("cj,cji->ci", weights, np.exp(logs))
    for unit in (1.0, step):
        total = mass.sum(axis=0) * unit
        if np.all(np.abs(total - 1) <= _TOLERANCE):
            kept = mass.max(axis=1) > 0
            # what the sums are off by is taken from the least likelihood: less of it is sound
            held = (weights * np.exp(floor)).sum(axis=1) * unit * (1 - np.abs(total - 1).max() - _ROUNDING)
            return Likelihoods((mass * unit / total)[kept], logs[kept], floor[kept], held[kept])
    return None
