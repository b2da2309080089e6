"""Cells of the reports about a record, combined from the cells of the mechanisms of its attributes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from noisette.cells import Cells, Dissected, up

if TYPE_CHECKING:
    from noisette.mechanisms.vector.attributes import SampledAttributes

_MOST_CELLS = 1 << 14  # combinations of inner cells that are kept apart


def witnesses(own: SampledAttributes) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return two records that differ most in every attribute, and the reports that distinguish them best."""
    worst = {id(inner): _worst(inner) for inner in own.distinct}
    each = [worst[id(inner)] for inner in own.inner_mechanisms]
    dearest = sorted(np.argsort([-gap for gap, *_ in each], kind="stable")[: own.report].tolist())
    inputs = _record(own, [[high, low] for _, high, low, *_ in each])
    reports = [_pack(own, dearest, [each[j][place] for j in dearest]) for place in (3, 4)]
    return inputs, np.stack(reports)


def dissect(own: SampledAttributes) -> Iterator[Cells]:
    """Combine the cells of the inner mechanisms, for records that differ in every attribute.

    Which attributes are reported does not depend on the record. Given the attributes, the law of a report is a product,
    and two products are farthest apart where all their factors are. If there are too many combinations, or if the laws
    of several attributes have cells that are not constant, only the reports that are worst in every attribute are
    returned.
    """
    if not all(isinstance(inner, Dissected) for inner in own.distinct):
        return
    cut = {id(inner): list(inner.dissect()) for inner in own.distinct}
    if any(len(found) != 1 for found in cut.values()):
        return
    each = [cut[id(inner)][0] for inner in own.inner_mechanisms]
    pair = _record(own, [list(cells.pair) for cells in each])
    bounds = [cells.bound for cells in each]
    bound = None
    if all(b is not None and math.isfinite(b) for b in bounds):
        bound = up(sum(map(Fraction, sorted(bounds)[-own.report :])))
    most = max(cells.log_weight.size for cells in each) ** own.report * math.comb(own.dims, own.report)
    plain = all(len(cells.nodes) == 1 for cells in each)
    if most <= _MOST_CELLS and (plain or own.report == 1):
        yield _products(own, each, (pair[0], pair[1]), bound)
    else:
        inputs, reports = witnesses(own)
        cells = Cells.constant((inputs[0], inputs[1]), reports, np.zeros(2), bound)
        yield replace(cells, complete=False)


def _products(own: SampledAttributes, each: list[Cells], pair: tuple[Any, Any], bound: float | None) -> Cells:
    """Return all combinations of the cells of the attributes reported together."""
    depth = max(len(cells.nodes) for cells in each)
    nodes: list[list[Any]] = [[] for _ in range(depth)]
    weights: list[float] = []
    runs: dict[str, list[float]] = {"places": [], "span": [], "tilt": []}
    for subset in combinations(range(own.dims), own.report):
        sizes = [each[j].log_weight.size for j in subset]
        for chosen in np.ndindex(*sizes):
            picked = [(each[j], i) for j, i in zip(subset, chosen, strict=True)]
            weights.append(sum(cells.log_weight[i] for cells, i in picked))
            first = each[subset[0]]
            for name, column in runs.items():
                column.append(getattr(first, name)[chosen[0]])
            for level in range(depth):
                sent = [cells.nodes[min(level, len(cells.nodes) - 1)][i] for cells, i in picked]
                nodes[level].append(_pack(own, list(subset), sent))
    reports = tuple(np.stack(level) for level in nodes)
    places, span, tilt = (np.asarray(column) for column in runs.values())
    return Cells(pair, reports, np.asarray(weights), places, span, tilt, bound)


def _record(own: SampledAttributes, columns: list[Any]) -> npt.NDArray[Any]:
    """Return records with the given value in each attribute, as codes where all attributes are categories."""
    rows = np.asarray(columns, dtype=np.float64).T
    return rows.astype(np.int64) if own.domain.categorical.all() else rows


def _pack(own: SampledAttributes, attributes: list[int], reports: list[Any]) -> npt.NDArray[Any]:
    """Return one user's rows."""
    rows = np.zeros(own.report_shape, dtype=own.report_dtype)
    for row, (j, report) in enumerate(zip(attributes, reports, strict=True)):
        flat = np.ravel(np.asarray(report))
        rows[row, 0] = j
        rows[row, 1 : 1 + flat.size] = flat
    return rows


def _worst(inner: Any) -> tuple[float, Any, Any, Any, Any]:
    """Return the largest gap of log masses, the two inputs, and reports that favour the first and the second most."""
    inputs, reports = (np.asarray(each) for each in inner.witnesses())
    logs = np.stack([inner.log_prob(reports, x) for x in inputs])
    gaps = logs[:, None] - logs[None]
    first, second, report = np.unravel_index(int(np.argmax(gaps)), gaps.shape)
    back = int(np.argmin(gaps[first, second]))
    return float(gaps[first, second, report]), inputs[first], inputs[second], reports[report], reports[back]
