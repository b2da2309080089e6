"""Random roots of covariance matrices, as real numbers that are rounded exactly.

Let M be a positive definite matrix of whole numbers and L its Cholesky factor. A sketch by r projections is L T: with
fewer projections than columns T has independent normal entries; else it is the triangle of Bartlett 1933, normal below
the diagonal, the root of a chi-square variable on it, so that L T is the Cholesky factor of a sum of r outer products.
A sketch is a function of that sum, so it is as private as the sum.

The entries of T are real numbers whose digits are drawn as they are needed, see `noisette.mechanisms._reals`. A
chi-square variable of k degrees is 2 d (1 + c x)^3 with x normal, d = k/2 - 1/3, c = 1 / (3 sqrt(d)), kept where
ln u < x^2 / 2 + d (1 - v + ln v), v = (1 + c x)^3, u uniform (Marsaglia, Tsang 2000): decisions that float64 leaves
open are made with more digits. L T is computed in float64 with a bound on the effect of rounding and of the digits not
yet drawn. Where the bound does not decide to which point of the lattice an entry is rounded, the entry is computed with
intervals of ever more digits until one point is left. So what is released is a function of a sketch of real numbers,
and of nothing else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from noisette._validate import FloatArray, IntArray
from noisette.mechanisms._reals import (
    Digits,
    NormalBlock,
    NormalRow,
    decided,
    draw_normals,
    ends,
    floors,
    interval_arithmetic,
    log_of,
    precisions,
)

_LOOSE = 2.0**-44  # of the terms of a comparison: more than float64 and the digits not yet drawn move it by
_TIGHT = 2.0**-48  # of a chi-square root, the same
_NARROW = 2.0**-20  # a base 1 + c x, or a uniform number, below which float64 decides nothing


@dataclass
class KeptNormal:
    """A normal variable that was kept: row ``place`` of a block."""

    block: NormalBlock
    place: int

    @cached_property
    def row(self) -> NormalRow:
        """Its digits, which can be continued."""
        return self.block.row(self.place)

    def within(self, context: Any) -> Any:
        """Return an interval that holds it."""
        return _signed(context, self.row)[0]


@dataclass
class Factor:
    """The Cholesky factor of a matrix of whole numbers, as exactly as it is asked for."""

    matrix: list[list[int]]
    known: dict[int, list[list[Any]] | None] = field(default_factory=dict)

    def context(self, precision: int) -> Any:
        """Return interval arithmetic with as many bits more as the factor takes of them."""
        largest = max(number.bit_length() for row in self.matrix for number in row)
        return interval_arithmetic(precision + 4 * largest + 8 * len(self.matrix))

    def within(self, context: Any) -> list[list[Any]] | None:
        """Return intervals that hold the entries of each row up to its diagonal; None if these bits are too few."""
        if context.prec not in self.known:
            self.known[context.prec] = self._found(context)
        return self.known[context.prec]

    def _found(self, context: Any) -> list[list[Any]] | None:
        found: list[list[Any]] = []
        for i, row in enumerate(self.matrix):
            own: list[Any] = []
            for j in range(i + 1):
                rest = context.mpf(row[j])
                for k in range(j):
                    rest -= own[k] * (own[k] if i == j else found[j][k])
                if i == j and not decided(rest):
                    return None
                own.append(context.sqrt(rest) if i == j else rest / found[j][j])
            found.append(own)
        return found

    def near(self) -> tuple[FloatArray, FloatArray]:
        """Return the factor in float64, and how far each entry may be off."""
        size = len(self.matrix)
        value, error = np.zeros((2, size, size))
        found = next(found for bits in precisions() if (found := self.within(self.context(bits))) is not None)
        for i, row in enumerate(found):
            for j, entry in enumerate(row):
                low, high = (float(end) for end in ends(entry))
                value[i, j] = (low + high) / 2
                error[i, j] = (high - low) + 2.0**-51 * abs(value[i, j])
        return value, error


def _signed(context: Any, row: NormalRow) -> list[Any]:
    """Return intervals that hold the variables of a row."""
    low, high, bits = row.sizes(context)
    unit = context.mpf(2) ** -bits
    return [sign * context.mpf([a, b]) * unit for sign, a, b in zip(row.signs, low, high, strict=True)]


def _scales(context: Any, degrees: int) -> tuple[Any, Any]:
    """Return d and c of chi-square variables."""
    d = context.mpf(3 * degrees - 2) / 6
    return d, 1 / (3 * context.sqrt(d))


def _kept(chosen: KeptNormal, uniform: Digits, degrees: int) -> bool:
    """Tell whether a proposal is kept, with as many digits as that takes."""
    for precision in precisions():
        context = interval_arithmetic(precision)
        uniform.reach(precision - 64)
        if not uniform.digits:
            continue
        (d, c), x = _scales(context, degrees), chosen.within(context)
        base = 1 + c * x
        positive = decided(base)
        if positive is False:
            return False
        if positive:
            gap = x * x / 2 + d * (1 - base**3 + 3 * log_of(context, base)) - log_of(context, uniform.within(context))
            if (found := decided(gap)) is not None:
                return found
    raise AssertionError  # precisions never end


@dataclass
class Roots:
    """Roots of chi-square variables: near values, how far they may be off, and where the numbers themselves are."""

    degrees: int
    near: FloatArray
    error: FloatArray
    blocks: list[NormalBlock]
    block: IntArray  # of each, and its row there
    place: IntArray
    looked_at: dict[int, KeptNormal] = field(default_factory=dict)  # those of which more digits are known

    @classmethod
    def draw(cls, rng: np.random.Generator, many: int, degrees: int) -> Roots:
        """Draw this many of them."""
        near, error = np.empty((2, many))
        found = cls(degrees, near, error, [], *np.zeros((2, many), dtype=np.int64))
        pending = np.arange(many)
        while pending.size:
            pending = found._propose(rng, pending)
        return found

    def _propose(self, rng: np.random.Generator, pending: IntArray) -> IntArray:
        """Propose a number for each of some places, and return the places whose number was not kept."""
        block = draw_normals(rng, pending.size, 1)
        self.blocks.append(block)
        self.block[pending], self.place[pending] = len(self.blocks) - 1, np.arange(pending.size)
        x = block.near[:, 0]
        if self.degrees == 1:
            self.near[:] = np.abs(x)
            self.error[:] = self.near * _TIGHT + 2.0**-66
            return np.asarray(pending[:0])
        d = self.degrees / 2 - 1 / 3
        c, uniform = 1 / (3 * math.sqrt(d)), rng.random(pending.size)
        base = 1 + c * x
        sound = np.maximum(base, _NARROW)
        with np.errstate(divide="ignore"):
            gap = x * x / 2 + d * (1 - sound**3 + 3 * np.log(sound)) - np.log(uniform)
        loose = _LOOSE * (1 + d) * (1 + x * x) * (1 + 1 / sound) + 2.0**-50 / np.maximum(uniform, _NARROW)
        keep = (base > 0) & (gap > 0)
        unsure = (np.abs(base) <= _NARROW) | (uniform <= _NARROW) | (np.abs(gap) <= loose)
        for row in np.flatnonzero(unsure).tolist():
            chosen = KeptNormal(block, row)
            keep[row] = _kept(chosen, Digits.of_float(rng, float(uniform[row])), self.degrees)
            self.looked_at[int(pending[row])] = chosen
        own = pending[keep]
        self.near[own] = math.sqrt(2 * d) * sound[keep] ** 1.5
        self.error[own] = self.near[own] * _TIGHT * (1 + c * np.abs(x[keep])) / sound[keep]
        self.error[own[base[keep] <= _NARROW]] = np.inf
        for row in np.flatnonzero(unsure & ~keep).tolist():
            del self.looked_at[int(pending[row])]
        return np.asarray(pending[~keep])

    def within(self, context: Any, number: int) -> Any:
        """Return an interval that holds one of them."""
        if number not in self.looked_at:
            self.looked_at[number] = KeptNormal(self.blocks[self.block[number]], int(self.place[number]))
        x = self.looked_at[number].within(context)
        if self.degrees == 1:
            return abs(x)
        d, c = _scales(context, self.degrees)
        return context.sqrt(2 * d * (1 + c * x) ** 3)


@dataclass
class Triangles:
    """The random factors T of many sketches: near values, how far they may be off, and the numbers themselves."""

    near: FloatArray
    error: FloatArray
    normals: NormalBlock | None
    roots: list[Roots]
    rows: dict[int, NormalRow] = field(default_factory=dict)  # of the normal variables, with more digits

    @classmethod
    def draw(cls, rng: np.random.Generator, many: int, columns: int, projections: int) -> Triangles:
        """Draw this many of them."""
        wide = projections < columns
        near = np.zeros((many, columns, projections if wide else columns))
        error = np.zeros_like(near)
        places = _places(columns, projections)
        normals = draw_normals(rng, many, len(places[0])) if len(places[0]) else None
        if normals is not None:
            near[:, *places] = normals.near
            error[:, *places] = np.abs(normals.near) * 2.0**-51 + 2.0**-66
        roots = [] if wide else [Roots.draw(rng, many, projections - place) for place in range(columns)]
        for place, own in enumerate(roots):
            near[:, place, place], error[:, place, place] = own.near, own.error
        return cls(near, error, normals, roots)

    def within(self, context: Any, number: int) -> dict[tuple[int, int], Any]:
        """Return intervals that hold the entries of one of them that are not zero."""
        found: dict[tuple[int, int], Any] = {}
        if self.normals is not None:
            if number not in self.rows:
                self.rows[number] = self.normals.row(number)
            rows, columns = (one.tolist() for one in _places(*self.near.shape[1:]))
            found |= dict(zip(zip(rows, columns, strict=True), _signed(context, self.rows[number]), strict=True))
        for place, own in enumerate(self.roots):
            found[place, place] = own.within(context, number)
        return found


def _places(columns: int, projections: int) -> tuple[IntArray, IntArray]:
    """Return where the normal entries of T stand: everywhere, or below the diagonal."""
    if projections < columns:
        rows, own = np.indices((columns, projections)).reshape(2, -1)
        return rows, own
    below, left = np.tril_indices(columns, -1)
    return np.asarray(below), np.asarray(left)


def rounded_sketches(matrices: Any, projections: int, step: float, rng: np.random.Generator) -> FloatArray:
    """Return a sketch of each matrix of whole numbers, in multiples of ``step``, a power of two: the nearest ones."""
    size = matrices.shape[-1]
    order: dict[tuple[int, ...], int] = {}
    keys = matrices.reshape(-1, size * size).tolist()
    owner = np.asarray([order.setdefault(tuple(key), len(order)) for key in keys])
    factors = [Factor([list(key[i * size : (i + 1) * size]) for i in range(size)]) for key in order]
    drawn = Triangles.draw(rng, len(keys), size, projections)
    value, off = (np.stack(parts)[owner] for parts in zip(*(factor.near() for factor in factors), strict=True))
    large, triangle = np.abs(value), np.abs(drawn.near)
    codes = value @ drawn.near / step
    error = (large @ drawn.error + off @ (triangle + drawn.error) + (size + 8) * 2.0**-53 * (large @ triangle)) / step
    error = error * (1 + 2.0**-20) + np.abs(codes) * 2.0**-51
    with np.errstate(invalid="ignore"):
        found, other = np.floor(codes - error + 0.5), np.floor(codes + error + 0.5)
    for number, i, j in np.argwhere(~(found == other)).tolist():
        found[number, i, j] = _rounded(factors[owner[number]], drawn, number, (i, j), step)
    return np.asarray(found * step)


def _rounded(factor: Factor, drawn: Triangles, number: int, place: tuple[int, int], step: float) -> int:
    """Return one entry in steps, rounded, with as many digits as that takes."""
    i, j = place
    for precision in precisions():
        context = factor.context(precision)
        left, right = factor.within(context), drawn.within(context, number)
        if left is None:
            continue
        total = context.mpf(0)
        for k in range(i + 1):
            total += left[i][k] * right.get((k, j), context.mpf(0))
        low, high = floors(total / context.mpf(step) + context.mpf(0.5))
        if low == high:
            return low
    raise AssertionError  # precisions never end
