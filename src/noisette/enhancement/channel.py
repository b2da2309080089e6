"""A mechanism as a table: the chance of each bin of reports, for each bin of inputs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from noisette import _validate
from noisette._validate import FloatArray, IntArray
from noisette.core import Mechanism
from noisette.domains import Categorical, Grid, Interval
from noisette.mechanisms._base import Points
from noisette.mechanisms.categorical._base import Codes
from noisette.mechanisms.graded.levelled import Pairs

_HALVINGS, _AGREED = 14, 2e-6  # of a bin of inputs; change of a chance that is small enough
_LISTED, _SEPARATE = 1 << 16, 1 << 10  # reports up to these numbers are listed, and get a bin each
_REACH, _COUNTED_REACH = 6.0, 25.0  # deviations that get bins of their own, and that are counted at all
_LARGEST_TABLE = 50_000_000  # entries of a table
_WORTH_A_GRID = 1000  # reports to be put into bins
# Lobatto's rule of five points: it looks at both ends, where a jump could hide
_NODES = np.asarray([-1.0, -math.sqrt(3 / 7), 0.0, math.sqrt(3 / 7), 1.0])
_WEIGHTS = np.asarray([1 / 10, 49 / 90, 32 / 45, 49 / 90, 1 / 10])


@dataclass(frozen=True)
class BinnedChannel:
    """Probabilities ``matrix[o, i]`` of a report in bin o for an input spread evenly over bin i.

    ``inputs`` holds the ends of the input bins, or the inputs themselves where they are separate; ``edges`` the ends of
    the bins of reports, the first and last taking all that lies beyond, or None where reports are codes 0, 1, ...
    """

    mechanism: Mechanism
    matrix: FloatArray
    inputs: FloatArray
    edges: FloatArray | None

    @classmethod
    def of(cls, mechanism: Mechanism, *, bins: int = 64) -> BinnedChannel:
        """Build the table of a mechanism whose report is one number or one code.

        >>> import noisette as nz
        >>> BinnedChannel.of(nz.GeneralizedRandomizedResponse(epsilon=1.0, domain=nz.Categorical(3))).matrix.round(3)
        array([[0.576, 0.212, 0.212],
               [0.212, 0.576, 0.212],
               [0.212, 0.212, 0.576]])
        """
        domain = mechanism.domain
        if isinstance(domain, Categorical):
            return cls._of_codes(mechanism, domain)
        if isinstance(domain, Grid):
            inputs = np.asarray(domain.low + domain.step * np.arange(domain.size), dtype=np.float64)
            edges, columns = _report_bins(mechanism, inputs, bins)
            matrix = columns(inputs)
        elif isinstance(domain, Interval):
            _validate.integer(bins, "bins", low=2, high=4096)
            inputs = np.asarray(np.linspace(domain.low, domain.high, bins + 1), dtype=np.float64)
            edges, columns = _report_bins(mechanism, inputs, bins)
            matrix = _averaged(columns, inputs)
        else:
            raise TypeError(
                f"Expected a mechanism for one number or one category, got {mechanism.name} on {domain}. "
                "Reconstruct each dimension by itself."
            )
        total = matrix.sum(axis=0)
        off = float(np.max(np.abs(total - 1)))
        if off > 1e-4:
            raise ArithmeticError(f"The chances of all reports of {mechanism.name} miss one by {off:.2g}.")
        return cls(mechanism, matrix / total, inputs, edges)

    @classmethod
    def _of_codes(cls, mechanism: Any, domain: Categorical) -> BinnedChannel:
        if not isinstance(mechanism.support, Codes):
            raise TypeError(
                f"The reports of {mechanism.name} are vectors and cannot be counted in bins. "
                "Give the reports themselves to reconstruct."
            )
        size = mechanism.support.size
        check_size(size * domain.size)
        codes = np.arange(domain.size)
        matrix = np.exp(mechanism.log_prob(np.arange(size)[:, None], codes))
        return cls(mechanism, matrix, codes.astype(np.float64), None)

    @property
    def values(self) -> FloatArray:
        """One value for each input bin: its middle, or the input itself."""
        separate = self.inputs.size == self.matrix.shape[1]
        return self.inputs if separate else (self.inputs[:-1] + self.inputs[1:]) / 2

    def count(self, reports: Any) -> IntArray:
        """Count reports by bin; counts of batches add up."""
        array = np.asarray(reports)
        inside = self.mechanism.support.contains(array)
        if not np.all(inside):
            bad = array[np.unravel_index(int(np.argmin(inside)), inside.shape)]
            raise ValueError(
                f"Report {bad} is outside the support of {self.mechanism.name}: {self.mechanism.support}. "
                "Was it made by another mechanism, budget or domain?"
            )
        size = self.matrix.shape[0]
        if isinstance(self.mechanism.support, Pairs):
            return np.asarray(self.mechanism.tally(array).total)  # type: ignore[attr-defined]  # pairs are counted by kind
        if self.edges is None:
            return np.bincount(array.ravel().astype(np.int64), minlength=size)
        return np.bincount(places_of(self.edges, array.ravel()), minlength=size)


def report_edges(mechanism: Mechanism, *, bins: int = 64) -> FloatArray | None:
    """Return the ends of the bins in which `BinnedChannel.of` counts the reports of a mechanism for numbers.

    They are known at once, while the table takes up to seconds: reports can be counted long before it is needed.
    """
    domain: Any = mechanism.domain
    return _report_bins(mechanism, np.linspace(domain.low, domain.high, bins + 1), bins)[0]


def places_of(edges: FloatArray, reports: npt.NDArray[Any]) -> IntArray:
    """Return the bin of each report, the first and the last bin taking all that lies beyond.

    Formula: that of ``np.searchsorted(edges[1:-1], reports, side="right")``, several times as fast where bins are of
    similar widths: a report's place in a fine grid leads to a bin near its own, not above it, and few steps remain.

    >>> places_of(np.asarray([0.0, 1.0, 2.0, 4.0]), np.asarray([-7.0, 1.0, 1.5, 3.0, 9.0])).tolist()
    [0, 1, 1, 2, 2]
    """
    inner = edges[1:-1]
    if inner.size < 2 or reports.size < _WORTH_A_GRID:
        return np.searchsorted(inner, reports, side="right")
    low, cells = float(inner[0]), 4 * inner.size
    step = (float(inner[-1]) - low) / cells
    below = np.searchsorted(inner, low + step * np.arange(-1, cells + 1), side="right")
    cell = np.clip((reports - low) / step, 1, cells - 1).astype(np.int64)
    found = below[cell - 1]  # a cell lower, whatever rounding did
    ends = np.append(inner, np.inf)
    for _ in range(inner.size):
        more = reports >= ends[found]
        if not more.any():
            break
        found += more
    return np.asarray(found)


def chances_at(mechanism: Mechanism, inputs: FloatArray, *, bins: int = 64) -> FloatArray:
    """Return the chance of each bin of reports, those of `report_edges`, for single numbers: one column for each."""
    domain: Any = mechanism.domain
    return _report_bins(mechanism, np.linspace(domain.low, domain.high, bins + 1), bins)[1](inputs)


def check_size(entries: float) -> None:
    """Refuse tables that would not fit the memory of a small machine."""
    if entries > _LARGEST_TABLE:
        raise ValueError(
            f"Expected a table of at most {_LARGEST_TABLE} entries, got {entries:.0f}. Use fewer bins or reports."
        )


def _averaged(columns: Callable[[FloatArray], FloatArray], inputs: FloatArray) -> FloatArray:
    """Average the columns over each bin of inputs by Simpson's rule, halving stretches until both halves agree."""
    home = np.arange(inputs.size - 1)
    low, high = inputs[:-1], inputs[1:]
    ends, middles = columns(inputs), columns((low + high) / 2)
    first, centre, last = ends[:, :-1], middles, ends[:, 1:]
    matrix = np.zeros_like(centre)
    for depth in range(_HALVINGS):
        left, right = np.split(columns(np.concatenate([(3 * low + high) / 4, (low + 3 * high) / 4])), 2, axis=1)
        whole = (first + 4 * centre + last) / 6
        halves = (first + 4 * left + 2 * centre + 4 * right + last) / 12
        share = 0.5**depth
        fine = share * np.max(np.abs(whole - halves), axis=0) <= (0.0 if depth == 0 else _AGREED)
        fine |= depth == _HALVINGS - 1
        np.add.at(matrix.T, home[fine], share * halves[:, fine].T)
        rough = ~fine
        if not np.any(rough):
            break
        middle = (low + high) / 2
        low, high = np.concatenate([low[rough], middle[rough]]), np.concatenate([middle[rough], high[rough]])
        first, centre, last = (
            np.concatenate([first[:, rough], centre[:, rough]], axis=1),
            np.concatenate([left[:, rough], right[:, rough]], axis=1),
            np.concatenate([centre[:, rough], last[:, rough]], axis=1),
        )
        home = np.tile(home[rough], 2)
    return matrix


def _report_bins(
    mechanism: Mechanism, inputs: FloatArray, bins: int
) -> tuple[FloatArray | None, Callable[[FloatArray], FloatArray]]:
    """Return the ends of report bins, and the function that gives the chance of each bin for inputs, by column."""
    support: Any = mechanism.support
    if isinstance(support, Pairs):
        return None, lambda nodes: np.exp(mechanism.log_prob(support.all[:, None], nodes))
    if isinstance(support, Points):
        points = np.asarray(support.values, dtype=np.float64)
        return _between(points), lambda nodes: np.exp(mechanism.log_prob(points[:, None], nodes))
    moments = mechanism.moments(inputs)
    reach = math.sqrt(float(np.max(moments.variance)))
    first, last = (inputs + moments.bias)[[0, -1]]
    bounded = math.isfinite(support.low) and math.isfinite(support.high)
    far = _COUNTED_REACH * reach + 3 * mechanism.domain.diameter  # staircases have steps as long as the domain
    ends = (support.low, support.high) if bounded else (first - far, last + far)
    low, high = support.value(support.index(np.asarray(ends)))
    count = round((high - low) / support.step) + 1
    inner = np.linspace(low, high, 2 * bins + 1)[1:-1]
    if not bounded:
        inner = np.linspace(first - _REACH * reach, last + _REACH * reach, 4 * bins + 1)
    # Ends lie between points of the lattice: no report falls on one.
    place = np.rint((np.concatenate([[low - support.step], inner, [high]]) - low) / support.step)
    edges = low + support.step * (place + 0.5)
    if count > _LISTED and not isinstance(mechanism.domain, Grid):
        return edges, lambda nodes: _cells(mechanism, support, edges, nodes)
    check_size(count * inputs.size)
    points = support.value(np.arange(count) + support.index(low))
    points = points[np.isfinite(points)]  # a lattice may have holes
    if count <= _SEPARATE:
        edges = _between(points)
    # bins without a point are joined to the next one
    starts, filled = np.unique(np.searchsorted(points, edges[:-1]), return_index=True)
    edges = np.append(edges[filled], edges[-1])

    def listed(nodes: FloatArray) -> FloatArray:
        masses = np.exp(mechanism.log_prob(points[:, None], nodes))
        return np.asarray(np.add.reduceat(masses / masses.sum(axis=0), starts, axis=0))

    return edges, listed


def _between(points: FloatArray) -> FloatArray:
    """Ends of bins that hold one point each."""
    middles = (points[:-1] + points[1:]) / 2
    return np.concatenate([[-np.inf], middles, [np.inf]])


def _cells(mechanism: Mechanism, support: Any, edges: FloatArray, nodes: FloatArray) -> FloatArray:
    """Integrate the density over report bins, halving stretches until both halves agree with the whole.

    Jumps of the density are closed in on down to the lattice. Stretches end at the input and at the mean report, where
    a narrow peak would be, and around the mechanism's witnesses, among which are reports that stand out by themselves.
    """
    step = support.step
    moments = mechanism.moments(nodes)
    deviation = math.sqrt(float(np.min(moments.variance)))
    tolerance = max(1e-8, 4 * step / max(deviation, step))
    special = support.value(support.index(np.unique(mechanism.witnesses()[1])))
    common = np.unique(np.concatenate([edges, special - step / 2, special + step / 2]))
    common = common[(common >= edges[0]) & (common <= edges[-1])]
    peaks = np.clip(np.column_stack([nodes, nodes + moments.bias]), edges[0] + step, edges[-1] - step)
    own = support.value(support.index(peaks)) + step / 2
    cuts = np.sort(np.column_stack([np.tile(common, (nodes.size, 1)), own]), axis=1)
    low, high = cuts[:, :-1].ravel(), cuts[:, 1:].ravel()
    column = np.repeat(np.arange(nodes.size), cuts.shape[1] - 1)
    row = np.clip(np.searchsorted(edges, (low + high) / 2, side="right") - 1, 0, edges.size - 2)
    place = row * nodes.size + column
    x = nodes[column]
    table = np.zeros((edges.size - 1) * nodes.size)

    def integral(low: FloatArray, high: FloatArray, x: FloatArray) -> FloatArray:
        half = (high - low)[:, None] / 2
        spots = np.clip(low[:, None] + half * (1 + _NODES), low[:, None] + step / 2, high[:, None] - step / 2)
        density = np.exp(mechanism.log_prob(support.value(support.index(spots)), x[:, None]))
        return np.asarray((half * _WEIGHTS * density).sum(axis=1))

    whole = integral(low, high, x)
    while place.size:
        middle = (low + high) / 2
        left, right = integral(low, middle, x), integral(middle, high, x)
        both = np.where(high - low < 1.5 * step, whole, left + right)
        fine = (np.abs(both - whole) <= tolerance * both + 1e-10) | (high - low <= 4 * step)
        np.add.at(table, place[fine], both[fine])
        rough = ~fine
        place, x, whole = np.tile(place[rough], 2), np.tile(x[rough], 2), np.concatenate([left[rough], right[rough]])
        low, high = (
            np.concatenate([low[rough], middle[rough]]),
            np.concatenate([middle[rough], high[rough]]),
        )
    return table.reshape(edges.size - 1, nodes.size)
