"""The angles of many gradients at once, in single precision: what GeoDP sums over the examples of a batch.

Examples lie side by side in a register, so that the running sums of squares do not wait for each other, and every
gradient is read once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

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
class Rows:
    """Rows of numbers with a weight each; with ``right`` each is the outer product of a row here and a row there.

    ``order`` tells where in a row each column lies; as they are, by default.
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
        ends = self.values[:, places].astype(float) * self.weights[:, None]
        if self.right is None:
            return np.asarray(ends)
        beside = self.right[:, -2:].astype(float)
        return np.concatenate([ends[:, [place]] * beside for place in range(ends.shape[1])], axis=1)[:, -2:]


def _turn(entries: Singles, behind: Singles, low: np.float32) -> None:
    """Replace one entry of each row by its angle, at least ``low``, and add its square to those behind."""
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
        entries[row] = angle if angle > low else low


turn = compiled(_turn, fastmath=True)


def _add_angles(
    entries: Singles,
    weights: Singles,
    order: npt.NDArray[np.int64],
    behind: Singles,
    low: np.float32,
    out: FloatArray,
) -> None:
    """Add to ``out`` the sum over rows, times their weights, of the angles at each column.

    Entries are (columns, rows), and overwritten.
    """
    for column in range(order.size - 1, -1, -1):
        place = order[column]
        for row in range(behind.size):
            entries[place, row] *= weights[row]
        turn(entries[place], behind, low)
        total = _ZERO
        for row in range(behind.size):
            total += entries[place, row]
        out[column] += total


def _add_outer_angles(left: Singles, right: Singles, behind: Singles, low: np.float32, out: FloatArray) -> None:
    """Do the same for the outer products of (columns, rows) and (columns, rows), of which none is formed."""
    entries = np.empty_like(behind)
    for one in range(left.shape[0] - 1, -1, -1):
        for other in range(right.shape[0] - 1, -1, -1):
            for row in range(behind.size):
                entries[row] = left[one, row] * right[other, row]
            turn(entries, behind, low)
            total = _ZERO
            for row in range(behind.size):
                total += entries[row]
            out[one * right.shape[0] + other] += total


_add = compiled(_add_angles, fastmath=True)
_add_outer = compiled(_add_outer_angles, fastmath=True)


def clipped_angle_sums(parts: Sequence[Rows], low: float) -> list[FloatArray]:
    """Return the sums over rows of the angles, each at least ``low``, at every column of parts that lie side by side.

    The last angle of all is left to the caller: it is signed. Weights that make rows of length one keep the squares
    within single precision.
    """
    rows = len(parts[0].weights)
    pieces = [slice(start, min(start + _ROWS, rows)) for start in range(0, rows, _ROWS)]
    found = [[np.zeros(part.columns) for part in parts] for _ in pieces]
    orders = [np.arange(part.columns) if part.order is None else part.order for part in parts]

    def work(place: int) -> None:
        piece = pieces[place]
        behind = np.zeros(piece.stop - piece.start, dtype=np.float32)
        for part, order, out in zip(reversed(parts), reversed(orders), reversed(found[place]), strict=True):
            entries, weights = part.values[piece].T.copy(), part.weights[piece]
            if part.right is None:
                _add(entries, weights, order, behind, np.float32(low), out)
            else:
                entries *= weights
                _add_outer(entries, part.right[piece].T.copy(), behind, np.float32(low), out)

    share(work, len(pieces), sum(rows * part.columns for part in parts))
    return [sum((sums[place] for sums in found), np.zeros(part.columns)) for place, part in enumerate(parts)]
