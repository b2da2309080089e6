"""The angles of many gradients at once, in single precision: what GeoDP sums over the examples of a batch.

GeoDP clips angles from below, as a rule far above a right angle, and nearly all angles of a long gradient are near a
right one. So a layer, or an output of it, is passed over where no example has an entry that reaches above the limit.
Elsewhere examples lie side by side in a register, so that the running sums of squares do not wait for each other.

What one example adds depends on that example alone, to the last bit, as the sensitivity of the sums supposes: always as
many rows lie side by side, some of them empty; where a part is computed because of another example, an example that
could have been passed over adds nothing, and its squares go on as if it had been. Sums are in double precision.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from noisette._validate import FloatArray
from noisette.mechanisms._compiled import compiled
from noisette.mechanisms.geometric.spherical import share

Singles = npt.NDArray[np.float32]

_ROWS = 64  # examples of one piece of work
_SHORTEST = np.float32(1e-30)
_ZERO, _PI, _HALF = np.float32(0), np.float32(math.pi), np.float32(math.pi / 2)
# atan(r) / r for r in [0, 1] as a polynomial in r^2, interpolated at Chebyshev nodes: within 7e-8
_A, _B, _C, _D, _E, _F, _G, _H = (
    np.float32(c)
    for c in (
        0.9999998819964931,
        -0.3333181265562783,
        0.19966961829591537,
        -0.1400329018465227,
        0.09868865458132467,
        -0.05882975314306535,
        0.02378051859716587,
        -0.004559791986130455,
    )
)


@dataclass(frozen=True)
class WeightedRows:
    """Rows of numbers, each with a weight; with ``right`` each is the outer product of a row here and a row there.

    ``order`` says where in a row each column lies; by default in its own place.
    """

    values: Singles
    weights: Singles
    right: Singles | None = None
    order: npt.NDArray[np.int64] | None = None

    @property
    def columns(self) -> int:
        """Numbers in a row."""
        return int(self.values.shape[1] * (1 if self.right is None else self.right.shape[1]))

    def last(self) -> FloatArray:
        """Return the last two numbers of every row, or the only one."""
        places = slice(-2, None) if self.order is None else self.order[-2:]
        ends = _read(self.values[:, places].astype(float), self.weights) * self.weights[:, None]
        if self.right is None:
            return np.asarray(ends)
        beside = _read(self.right[:, -2:].astype(float), self.weights)
        return np.concatenate([ends[:, [place]] * beside for place in range(ends.shape[1])], axis=1)[:, -2:]


def _read(values: Any, weights: Singles) -> Any:
    """Return rows of numbers, of zeros where the weight is 0: what such a row holds may be infinite."""
    return np.where((weights == 0)[:, None], values.dtype.type(0), values)


def _filled(values: Singles) -> Singles:
    """Return rows with empty ones behind them, so that there are always as many."""
    if len(values) == _ROWS:
        return values
    return np.concatenate([values, np.zeros((_ROWS - len(values), values.shape[1]), dtype=values.dtype)])


def _excess_of(entries: Singles, behind: Singles, low: np.float32) -> float:
    """Return by how much the angles of one entry of each row are above ``low``, and add its square to those behind."""
    total = 0.0
    for row in range(behind.size):
        entry, squares = entries[row], behind[row]
        size, rest = abs(entry), np.sqrt(squares)
        steep = rest > size
        less = size if steep else rest
        more = rest if steep else size
        ratio = less / (more if more > _SHORTEST else _SHORTEST)
        z = ratio * ratio
        angle = ratio * (_A + z * (_B + z * (_C + z * (_D + z * (_E + z * (_F + z * (_G + z * _H)))))))
        angle = _HALF - angle if steep else angle
        angle = _PI - angle if entry < _ZERO else angle
        behind[row] = squares + entry * entry
        total += np.float64(angle - low if angle > low else _ZERO)
    return total


_excess = compiled(_excess_of, fastmath=True)


def _add_angles(
    entries: Singles, order: npt.NDArray[np.int64], behind: Singles, low: np.float32, out: FloatArray
) -> None:
    """Add to ``out`` what the angles of all rows at each column have above ``low``. Entries are (columns, rows)."""
    for column in range(order.size - 1, -1, -1):
        out[column] += _excess(entries[order[column]], behind, low)


def _add_outer_angles(
    left: Singles,
    right: Singles,
    squares: FloatArray,
    reach: np.float32,
    behind: Singles,
    low: np.float32,
    out: FloatArray,
) -> None:
    """Do the same for the outer products of (columns, rows) and (columns, rows), of which none is formed.

    ``squares`` are the sums of each row on the right; ``reach`` tells what can be passed over.
    """
    lowest, highest, entries = np.zeros_like(behind), np.zeros_like(behind), np.empty_like(behind)
    passed, own = np.empty_like(behind), np.zeros(behind.size, dtype=np.bool_)
    for other in range(right.shape[0]):
        for row in range(behind.size):
            lowest[row] = min(lowest[row], right[other, row])
            highest[row] = max(highest[row], right[other, row])
    for one in range(left.shape[0] - 1, -1, -1):
        above = 0
        for row in range(behind.size):
            factor = left[one, row]
            entry = factor * (lowest[row] if factor > _ZERO else highest[row])
            own[row] = entry * entry * reach > behind[row] or not reach
            above += own[row]
        for row in range(behind.size):
            passed[row] = behind[row] + squares[row] * left[one, row] * left[one, row]
        if above:
            for other in range(right.shape[0] - 1, -1, -1):
                for row in range(behind.size):
                    entry = left[one, row] * right[other, row]
                    entries[row] = entry if own[row] else abs(entry)  # whose angle is acute, and below the limit
                out[one * right.shape[0] + other] += _excess(entries, behind, low)
        if reach:
            behind[:] = passed


_add = compiled(_add_angles, fastmath=True)
_add_outer = compiled(_add_outer_angles, fastmath=True)


def clipped_angle_sums(parts: Sequence[WeightedRows], low: float) -> list[FloatArray]:
    """Return the sums over rows of the angles, each at least ``low``, at every column of parts that lie side by side.

    The last angle of all is left to the caller: it is signed. Weights that make rows of length one keep the squares
    within single precision.
    """
    rows = len(parts[0].weights)
    pieces = [slice(start, min(start + _ROWS, rows)) for start in range(0, rows, _ROWS)]
    found = [[np.zeros(layer.columns) for layer in parts] for _ in pieces]
    limit = np.float32(low)
    # an obtuse angle is a negative entry's, and above the limit where its square, times this, outweighs those behind
    reach = np.float32(math.tan(math.pi - low) ** 2 if low > math.pi / 2 else 0)

    def work(place: int) -> None:
        piece = pieces[place]
        behind = np.zeros(_ROWS, dtype=np.float32)
        for layer, out in zip(reversed(parts), reversed(found[place]), strict=True):
            weights = layer.weights[piece]
            entries = _filled(_read(layer.values[piece], weights) * weights[:, None])
            if layer.right is not None:
                right = _filled(_read(layer.right[piece], weights))
                squares = np.einsum("ij,ij->i", right, right, dtype=float)
                _add_outer(entries.T.copy(), right.T.copy(), squares, reach, behind, limit, out)
                continue
            order = np.arange(layer.columns) if layer.order is None else layer.order
            if not reach:
                _add(entries.T.copy(), order, behind, limit, out)
                continue
            passed = behind + np.einsum("ij,ij->i", entries, entries)
            own = np.minimum(entries.min(1), 0) ** 2 * reach > behind
            if own.any():
                _add(np.where(own, entries.T, np.abs(entries.T)), order, behind, limit, out)
            behind[...] = passed

    size = sum(rows * layer.columns for layer in parts)
    share(work, len(pieces), size // 64 if reach else size)  # what is passed over takes less time
    clipped = rows * float(limit)
    return [sum((sums[place] for sums in found), np.full(layer.columns, clipped)) for place, layer in enumerate(parts)]
