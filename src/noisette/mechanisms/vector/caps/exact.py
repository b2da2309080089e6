"""Entries of a report near the edge of a lattice cell, with further digits until the cell is certain."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np

from noisette._validate import FloatArray
from noisette.domains import BoolArray
from noisette.mechanisms._reals import Digits, NormalBlock, NormalRow, decided, floors, interval_arithmetic, precisions
from noisette.mechanisms.vector.caps.draws import Proposal, Reaches

RUN = 64  # terms that `_cap_loops.sums` adds one after the other: their sum errs by at most 63 roundings


class Gain(Protocol):
    """How the normal vector g is scaled, in intervals."""

    def __call__(self, context: Any, square: Any, across: Any, rest: Any) -> tuple[Any, Any]:
        """Return the factor of g in the cap and outside of it, from |g|^2, its part orthogonal to v, and 1 - T^2."""


@dataclass
class ExactRow:
    """What was drawn for one report."""

    normals: NormalRow
    proposal: Proposal
    reach: Digits
    uniform: Digits
    plain: bool

    def floors(self, vector: list[float], columns: list[int], scale: float, gain: Gain) -> list[int]:
        """Return the lattice points below some entries of scale u + uniform, ``vector`` being along v."""
        exact = [Fraction(entry) for entry in vector]
        unit = max(entry.denominator for entry in exact)
        whole = [entry.numerator * (unit // entry.denominator) for entry in exact]
        for precision in precisions():
            found = self._try(interval_arithmetic(precision), whole, columns, scale, gain)
            if found is not None:
                return found
        raise AssertionError  # precisions never end

    def _try(self, context: Any, whole: list[int], columns: list[int], scale: float, gain: Gain) -> list[int] | None:
        """Return the lattice points if this precision decides them, else None."""
        low, high, digits = self.normals.sizes(context)
        signed = [(a, b) if sign > 0 else (-b, -a) for sign, a, b in zip(self.normals.signs, low, high, strict=True)]
        unit = context.mpf(2) ** -digits
        least = sum(w * (ends[0] if w >= 0 else ends[1]) for w, ends in zip(whole, signed, strict=True))
        most = sum(w * (ends[1] if w >= 0 else ends[0]) for w, ends in zip(whole, signed, strict=True))
        product, own = context.mpf([least, most]) * unit, context.mpf(sum(w * w for w in whole))
        square = context.mpf([sum(a * a for a in low), sum(b * b for b in high)]) * unit * unit
        for number in (self.reach, self.uniform):
            number.reach(context.prec - 64)
        t, rest = self.proposal.within(context, self.reach.within(context))
        across = square - product * product / own
        if self.proposal.bounded and len(whole) > 1 and not (decided(across) and decided(rest)):
            return None
        in_cap, without = gain(context, square, across, rest)
        factor = 0 if self.plain else (t * context.sqrt(own) - in_cap * product) / own
        found = []
        for column in columns:
            g = context.mpf(list(signed[column])) * unit
            value = ((without if self.plain else in_cap) * g + factor * whole[column]) * scale
            below, above = floors(value + self.uniform.within(context))
            if below != above:
                return None
            found.append(below)
        return found


@dataclass
class Drawn:
    """What was drawn for the reports of some people."""

    normals: NormalBlock
    reaches: Reaches
    plain: BoolArray
    uniform: FloatArray

    def row(self, number: int) -> ExactRow:
        """Return what was drawn for one of them."""
        uniform = Digits.of_float(self.normals.rng, float(self.uniform[number]))
        return ExactRow(
            self.normals.row(number),
            self.reaches.proposal,
            self.reaches.digits(number),
            uniform,
            bool(self.plain[number]),
        )


def left_open(noisy: FloatArray, own: FloatArray, uniform: float, entries: FloatArray, error: FloatArray) -> list[int]:
    """Return where an ``error`` and the rounding of the sum may change the floor of noisy + own + uniform."""
    fraction = noisy + own + uniform - entries
    error = 2 * error + 2.0**-48 * (np.abs(noisy) + np.abs(own) + 1)
    return np.flatnonzero(~((fraction > error) & (1 - fraction > error))).tolist()
