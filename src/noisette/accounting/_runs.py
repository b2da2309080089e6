"""The privacy losses of a mechanism, from the cells into which it cuts its reports."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from noisette._validate import FloatArray
from noisette.cells import Cells, Dissected
from noisette.core import Mechanism

_LISTED = 1 << 14  # places of a run that are summed one by one
_PIECES = 2048  # of a longer run, which is integrated
_NEGLIGIBLE = 60.0  # a tail ends where the log mass has fallen by this much
_TOLERANCE = 1e-7  # of the total mass; more is missing where some report was left out

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(5)


@dataclass(frozen=True)
class PairLosses:
    """All reports of a pair of inputs in small parts: their chances under both, and the least and largest loss."""

    first: FloatArray
    second: FloatArray
    low: FloatArray
    high: FloatArray

    def swapped(self) -> PairLosses:
        """Return the same seen from the other input."""
        return PairLosses(self.second, self.first, -self.high, -self.low)

    def below(self, limit: float) -> tuple[PairLosses, float]:
        """Return the parts whose losses are at most ``limit``, and the chance of the others under the first input."""
        near = self.high <= limit
        kept = PairLosses(self.first[near], self.second[near], self.low[near], self.high[near])
        return kept, float(self.first[~near].sum())

    def atoms(self) -> tuple[FloatArray, FloatArray]:
        """Return losses, and for each its chance under the second input, of a pair that is at least as far apart.

        A part on which the loss varies becomes two atoms at its extremes that keep both chances: the divergence is
        convex in the ratio, so it can only grow.
        """
        ratio = np.exp(np.stack([self.low, self.high]))
        width = ratio[1] - ratio[0]
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(width > 1e-12 * ratio[1], (self.first / self.second - ratio[0]) / width, 1.0)
        share = np.clip(np.nan_to_num(share, nan=1.0), 0.0, 1.0)
        chances = np.concatenate([self.second * (1 - share), self.second * share])
        kept = chances > 0
        return np.concatenate([self.low, self.high])[kept], chances[kept]


def pair_losses(mechanism: Mechanism) -> list[PairLosses] | None:
    """Return the losses of the worst pairs of inputs, or None if the mechanism does not cut up all of its reports.

    If the chances found do not add up to one, some report was missed and None is returned: nothing is built on a guess.
    """
    if not isinstance(mechanism, Dissected):
        return None
    found = []
    for cells in mechanism.dissect():
        losses = _cut(mechanism, cells) if cells.complete else None
        if losses is None:
            return None
        found.append(losses)
    return found or None


def _cut(mechanism: Mechanism, cells: Cells) -> PairLosses | None:
    """Evaluate the log masses at the nodes of the runs, and sum or integrate along them."""
    values = np.stack(
        [[np.asarray(mechanism.log_prob(node, np.asarray(x)[None])) for node in cells.nodes] for x in cells.pair]
    )  # input, node, run
    if np.any((values == -math.inf).any(axis=0) & (values > -math.inf).any(axis=0)):
        return None  # only one of the two can send some report
    possible = values[0, 0] > -math.inf
    lines = _polynomials(values[:, :, possible], cells.span[possible])  # input, power, run
    places, tilt, weight = (array[possible] for array in (cells.places, cells.tilt, cells.log_weight))
    alone = places == 1
    chances, gap = np.exp(lines[:, 0, alone] + weight[alone]), lines[0, 0, alone] - lines[1, 0, alone]
    parts: list[tuple[FloatArray, ...]] = [(chances[0], chances[1], gap, gap)]
    for run in np.flatnonzero(~alone):
        parts.append(_along(lines[:, :, run], float(places[run]), float(tilt[run]), float(weight[run])))
    first, second, low, high = (np.concatenate(column) for column in zip(*parts, strict=True))
    total = first.sum(), second.sum()
    if max(abs(total[0] - 1), abs(total[1] - 1)) > _TOLERANCE:
        return None
    return PairLosses(first / total[0], second / total[1], low, high)


def _polynomials(values: FloatArray, span: FloatArray) -> FloatArray:
    """Return constant, slope and bend of the log masses, by place along each run."""
    first, zero = values[:, 0], np.zeros_like(values[:, 0])
    if values.shape[1] == 1:
        return np.stack([first, zero, zero], axis=1)
    if values.shape[1] == 2:
        return np.stack([first, (values[:, 1] - first) / span, zero], axis=1)
    bend = (values[:, 2] - 2 * values[:, 1] + first) / (2 * span**2)
    return np.stack([first, (values[:, 1] - first) / span - bend * span, bend], axis=1)


def _along(lines: FloatArray, places: float, tilt: float, log_weight: float) -> tuple[FloatArray, ...]:
    """Return the chances of parts of one run under both inputs, and their least and largest loss."""
    last = _last(lines, places)
    if last < _LISTED:
        starts = stops = np.arange(last + 1)
        position, weights = starts[:, None], np.ones((starts.size, 1))
    else:
        edges = np.linspace(0, last + 1, _PIECES + 1).round()
        starts, stops = edges[:-1], edges[1:] - 1
        length = (edges[1:] - edges[:-1])[:, None]
        position, weights = starts[:, None] - 0.5 + length * (1 + _NODES) / 2, length * _WEIGHTS / 2
    weights = weights * (1 + tilt * position)
    chances = []
    for line in lines:
        mass = np.exp(line[0] + log_weight + position * (line[1] + position * line[2]))
        if last >= _LISTED:  # a sum of exponentials is the integral times (s/2) / sinh(s/2)
            half = (line[1] + 2 * position * line[2]) / 2
            mass = mass * np.where(np.abs(half) > 1e-9, half / np.sinh(np.where(np.abs(half) > 1e-9, half, 1.0)), 1.0)
        chances.append((weights * mass).sum(axis=1))
    gap = lines[0] - lines[1]
    ends = np.stack([gap[0] + starts * gap[1], gap[0] + stops * gap[1]])
    return chances[0], chances[1], ends.min(axis=0), ends.max(axis=0)


def _last(lines: FloatArray, places: float) -> float:
    """Return the last place of a run whose mass is not negligible."""
    if math.isfinite(places):
        return places - 1
    last = 1.0
    while last < 2.0**52:
        peak = [_peak(line, last) for line in lines]
        if all(_at(line, last) < top - _NEGLIGIBLE for line, top in zip(lines, peak, strict=True)):
            break
        last *= 2
    return last


def _at(line: FloatArray, place: float) -> float:
    return float(line[0] + place * (line[1] + place * line[2]))


def _peak(line: FloatArray, last: float) -> float:
    """Return the largest log mass from place 0 to the last one."""
    turn = min(max(-line[1] / (2 * line[2]), 0.0), last) if line[2] < 0 else 0.0
    return max(_at(line, 0.0), _at(line, float(turn)), _at(line, last))
