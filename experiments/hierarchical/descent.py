"""The paper's own regression: gradients whose components are clipped, one reported by each user, means by HierA.

Hao, Wu, Wan 2023, sections 5 and 6.3. The loss of a user is (b.x - y)^2 + lambda/2 |b|^2. Each component of its
gradient is moved into [-1, 1]; the user reports one component, drawn at random, at the level of the attribute that it
belongs to. A component's mean is that of the users of the group who reported it; no user is in two groups.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from noisette import LevelledResponse
from noisette._validate import FloatArray
from noisette.mechanisms.graded._levels import Levels
from noisette.mechanisms.graded.estimation import pool_signs

RIDGE = 1e-4
Component = npt.NDArray[np.int64]
# the components, values and levels that a group's users report, how many components there are, a generator -> the means
Means = Callable[[Component, FloatArray, Component, int, np.random.Generator], FloatArray]


@dataclass(frozen=True, eq=False)
class Table:
    """Users' design rows, the level of each of their components, and their targets on [-1, 1]."""

    rows: npt.NDArray[np.float32]
    levels: npt.NDArray[np.int8]
    target: FloatArray

    def __getitem__(self, chosen: Any) -> Table:
        return Table(self.rows[chosen], self.levels[chosen], self.target[chosen])


def table_of(design: Any, edges: tuple[float, ...], attributes: Any, target: FloatArray) -> Table:
    """Encode users once for all methods and folds."""
    rows = np.empty((len(target), design.width), dtype=np.float32)
    levels = np.empty(rows.shape, dtype=np.int8)
    for start in range(0, len(rows), 1 << 16):
        part = slice(start, start + (1 << 16))
        own = design.encode(attributes[part], outside="clip")
        rows[part], levels[part] = own, Levels(edges).of(design.levels(own, target[part]))
    return Table(rows, levels, target)


def group_size(width: int, e: float) -> int:
    """Return the users of a group, d ln(d) / e^2."""
    return math.ceil(width * math.log(width) / e**2)


def descend(table: Table, means: Means, e: float, rng: np.random.Generator) -> FloatArray:
    """Return the last model of steps 1/sqrt(t), one for each whole group of users."""
    width = table.rows.shape[1]
    group, weights = group_size(width, e), np.zeros(width)
    for number in range(len(table.target) // group):
        part = slice(number * group, (number + 1) * group)
        rows = table.rows[part]
        chosen = rng.integers(0, width, group)
        places = np.arange(group)
        slope = 2 * (rows @ weights - table.target[part]) * rows[places, chosen] + RIDGE * weights[chosen]
        levels = table.levels[part][places, chosen].astype(np.int64)
        weights -= means(chosen, np.clip(slope, -1.0, 1.0), levels, width, rng) / math.sqrt(number + 1)
    return weights


def plain(mechanism: Any) -> Means:
    """Average the reports of a mechanism that protects every value alike."""

    def means(chosen: Component, values: FloatArray, _: Component, width: int, rng: np.random.Generator) -> FloatArray:
        return _averages(chosen, np.asarray(mechanism.privatize(values, rng=rng)), width)

    return means


def graded(mechanism: Any) -> Means:
    """Average the reports of a mechanism for rows (value, level)."""

    def means(
        chosen: Component, values: FloatArray, levels: Component, width: int, rng: np.random.Generator
    ) -> FloatArray:
        return _averages(chosen, mechanism.privatize(np.stack([values, levels], axis=1), rng=rng), width)

    return means


def hierarchical(mechanism: LevelledResponse, reuse: int, *, clip: bool = True) -> Means:
    """Estimate each component's mean by HierA; the mechanism's levels have falling budgets."""
    p_keep, size = mechanism.p_keep, len(mechanism.epsilons)

    def means(
        chosen: Component, values: FloatArray, levels: Component, width: int, rng: np.random.Generator
    ) -> FloatArray:
        told = mechanism.privatize(np.stack([values, levels], axis=1), rng=rng)
        cells = (chosen * size + told[:, 0]) * 2 + (told[:, 1] > 0)
        counts = np.bincount(cells, minlength=width * size * 2).reshape(width, size, 2)
        users = np.maximum(counts.sum(axis=(1, 2)), 1)
        return np.asarray(pool_signs(counts, p_keep, reuse, clip=clip, rng=rng).sum(axis=1) / (reuse * users))

    return means


def _averages(chosen: Component, reports: FloatArray, width: int) -> FloatArray:
    """Return the mean report of each component, 0 where there is none."""
    total, count = np.bincount(chosen, reports, width), np.bincount(chosen, minlength=width)
    return np.asarray(total / np.maximum(count, 1))
