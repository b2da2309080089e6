"""Cyclic difference sets (Singer 1938): the points of a hyperplane of a projective geometry, as shifts of one set.

The geometry PG(t - 1, q), q = p^e, has K = (q^t - 1) / (q - 1) points. Let f be a primitive polynomial of degree e t
over F_p, and u the sequence of its linear recurrence from (0, ..., 0, 1). The points are X^0, ..., X^(K-1) modulo f,
and those m with u(m) = u(m + K) = ... = u(m + (e - 1) K) = 0 are a hyperplane: u is a trace, and X^K generates F_q.
Any two shifts of this set have equally many elements in common.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

from noisette._validate import IntArray
from noisette.mechanisms._base import BLOCK, blocks

_LEAST_SHEARED = 32  # below this q the Fourier transform is faster
_BINARY = (2, 4)  # q for which a transform of q^t signs is the fastest
_SHIFTS_ONE_BY_ONE = 4  # shifts of the set in units of the order, up to which they are counted one by one
_CACHED_ROWS = 16  # of sums that are added to in turn: they stay in a core's cache
_KEPT_NUMBERS = 1 << 24  # numbers of a spectrum that is kept between calls
_DOUBT = 1 / 8  # of a unit, up to which rounding a sum of a Fourier transform is safe


@dataclass(frozen=True)
class Singer:
    """The hyperplanes of PG(dims - 1, prime^power) as shifts of one set of integers modulo ``order``."""

    prime: int
    power: int
    dims: int

    @property
    def field(self) -> int:
        """Number of elements of the field."""
        return int(self.prime**self.power)

    @property
    def order(self) -> int:
        """Number of points, and of hyperplanes."""
        return points(self.field, self.dims)

    @property
    def block(self) -> int:
        """Number of points of a hyperplane."""
        return points(self.field, self.dims - 1)

    @property
    def shared(self) -> int:
        """Number of points that any two hyperplanes share."""
        return points(self.field, self.dims - 2)

    @property
    def taps(self) -> tuple[int, ...]:
        """The coefficients a of X^n = a_0 + a_1 X + ... modulo the primitive polynomial, n = power * dims."""
        return primitive(self.prime, self.power * self.dims)

    @cached_property
    def members(self) -> npt.NDArray[np.int32]:
        """The set, in increasing order."""
        start = [0] * (len(self.taps) - 1) + [1]
        trace = recurrence(self.prime, self.taps, start, self.power * self.order)
        return np.flatnonzero((trace.reshape(self.power, -1) == 0).all(axis=0)).astype(np.int32)

    def contains(self, values: IntArray) -> npt.NDArray[np.bool_]:
        """Tell which integers below ``order`` are in the set."""
        places = np.searchsorted(self.members, values)
        return np.asarray(self.members[np.minimum(places, self.block - 1)] == values)

    # --- which shifts hold how many of some points

    def count(self, values: IntArray, size: int) -> IntArray:
        """Count for x = 0, ..., size - 1 the values v with v + x in the set, modulo ``order``."""
        if values.size * self.block <= _SHIFTS_ONE_BY_ONE * self.order:
            return self._count_each(values, size)
        if self.power == 1 and self.prime >= _LEAST_SHEARED and self.dims > 3:
            return self._count_sheared(values, size)
        if self.field in _BINARY:
            return self._count_by_signs(values, size)
        return self._count_by_fourier(values, size)

    def _count_each(self, values: IntArray, size: int) -> IntArray:
        """Look at all shifts that hold a value, which is quick if the values are few."""
        total = np.zeros(size, dtype=np.int64)
        rows = max(1, 64 * BLOCK // self.block)
        for start in range(0, values.size, rows):
            shifts = self.members - values[start : start + rows, None]
            shifts[shifts < 0] += self.order
            total += np.bincount(shifts[shifts < size], minlength=size)
        return total

    def _count_by_fourier(self, values: IntArray, size: int) -> IntArray:
        """Correlate the histogram of the values with the set laid out twice."""
        from scipy import fft

        found = np.bincount(values, minlength=self.order)
        length = int(fft.next_fast_len(self.order + size - 1, real=True))
        # the error of a correlation is below a few units of rounding times log2(length) times both norms
        scale = 4 * math.log2(length) * math.sqrt(2 * self.block) * math.sqrt(float(found @ found))
        narrow = scale * float(np.finfo(np.float32).eps) < _DOUBT
        kept = _spectrum if length <= _KEPT_NUMBERS else _spectrum.__wrapped__
        spectrum = fft.rfft(found.astype(np.float32 if narrow else np.float64), length)
        np.conjugate(spectrum, out=spectrum)
        spectrum *= kept(self, length, narrow)
        sums = fft.irfft(spectrum, length, overwrite_x=True)[:size]
        total = np.rint(sums)
        sums -= total
        if not narrow and float(np.abs(sums).max()) > 2 * _DOUBT:
            raise OverflowError("These reports are too many for one sum. Aggregate them in parts, and add the parts.")
        return np.asarray(total, dtype=np.int64)

    def _count_by_signs(self, values: IntArray, size: int) -> IntArray:
        """Count by one Walsh-Hadamard transform, in integers; q is a power of two.

        With a bit c_i for each power X^i in X^r, and s_i = u(s + i), u(r + s) is the sum of c_i s_i modulo 2. So the
        transform of the histogram has at s the sum of (-1)^u(r + s) over all values r. Of s = x, x + K, ..., x + (q -
        2) K all give 1 where r + x is in the set, and else all but q / 2 of them do: q times the count is the number
        of values and the sum of the transform at these s.
        """
        from noisette.mechanisms._compiled import plain
        from noisette.mechanisms._walsh import count, walsh

        point, state = self._bits
        found = np.zeros(1 << len(self.taps), dtype=_signed_holding(values.size))
        count(found, point, plain(values))
        walsh(found[None])
        total = np.full(size, values.size, dtype=np.int64)
        for shift in range(self.field - 1):
            total += found[state[shift * self.order : shift * self.order + size]]
        total //= self.field
        return total

    @cached_property
    def _bits(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """The bits of X^r for each point r, and the bits u(s), u(s + 1), ... for each s below (q - 1) K; q is 2^e."""
        degree, order = len(self.taps), self.order
        point = np.zeros(order, dtype=np.int32)
        for place in range(degree):
            row = recurrence(2, self.taps, [int(place == j) for j in range(degree)], order)
            point |= row.astype(np.int32) << place
        trace = recurrence(2, self.taps, [0] * (degree - 1) + [1], (self.field - 1) * order + degree)
        state = np.zeros((self.field - 1) * order, dtype=np.int32)
        for place in range(degree):
            state |= trace[place : place + state.size].astype(np.int32) << place
        return point, state

    def _count_sheared(self, values: IntArray, size: int) -> IntArray:
        """Add up the values on all hyperplanes of the geometry, in integers."""
        points_of, planes_of = self._places
        narrow = _holding(values.size)
        if values.size < self.order:
            found = np.bincount(points_of[values], minlength=self.order).astype(narrow)
        else:
            found = np.empty(self.order, dtype=narrow)
            found[points_of] = np.bincount(values, minlength=self.order)
        return hyperplane_sums(found, self.prime, self.dims)[planes_of[:size]].astype(np.int64)

    @cached_property
    def _places(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Where point X^r, and the hyperplane of shift x, stand among those of `hyperplane_sums`; q is prime.

        Point r is the vector of the coefficients of X^r, shift x the vector u(x), ..., u(x + t - 1): their product is
        u(r + x).
        """
        prime, dims, order = self.prime, self.dims, self.order
        rows = [recurrence(prime, self.taps, [int(i == j) for j in range(dims)], order) for i in range(dims)]
        first = _canonical(rows, prime)[0]
        trace = recurrence(prime, self.taps, [0] * (dims - 1) + [1], order + dims - 1)
        rows = [trace[place : place + order] for place in range(dims)]
        rest, lead = _canonical(rows[1:], prime)
        inverse = _inverses(prime)
        offset = (prime - rows[0].astype(np.int32)) * inverse[lead] % prime
        return first, np.where(lead == 0, order - 1, rest * prime + offset).astype(np.int32)


@lru_cache(maxsize=2)
def _spectrum(design: Singer, length: int, narrow: bool) -> npt.NDArray[Any]:
    """Return the Fourier transform of the set laid out twice."""
    from scipy import fft

    twice = np.zeros(length, dtype=np.float32 if narrow else np.float64)
    twice[design.members] = 1
    again = design.members + np.int64(design.order)
    twice[again[again < length]] = 1
    return np.asarray(fft.rfft(twice))


def _canonical(rows: list[npt.NDArray[Any]], prime: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Return the places of vectors among the points of their geometry, and their first entries that are not 0.

    Points are vectors whose first entry other than 0 is 1: first those that begin with 1, then with 0, 1, and so on,
    each kind ordered by the entries that follow.
    """
    dims = len(rows)
    lead = np.zeros(rows[0].size, dtype=np.int32)
    for row in rows:
        np.copyto(lead, row, where=lead == 0)
    factor = _inverses(prime)[lead]
    place = np.zeros(lead.size, dtype=np.int32)
    start = 0
    pending = np.ones(lead.size, dtype=bool)  # all entries so far were 0
    for dim, row in enumerate(rows):
        place *= np.where(pending, 1, prime).astype(np.int32)
        place += np.where(pending, 0, row.astype(np.int32) * factor % prime).astype(np.int32)
        begins = pending & (row != 0)
        place[begins] = 0
        pending &= ~begins
        if dim == 0:
            offsets = np.zeros(lead.size, dtype=np.int32)
        offsets[begins] = start
        start += prime ** (dims - 1 - dim)
    return place + offsets, lead


@lru_cache(maxsize=8)
def _inverses(prime: int) -> npt.NDArray[np.int32]:
    """Return the inverses modulo a prime; 0 stands for that of 0."""
    return np.asarray([0, *(pow(number, -1, prime) for number in range(1, prime))], dtype=np.int32)


def hyperplane_sums(values: npt.NDArray[Any], prime: int, dims: int) -> npt.NDArray[Any]:
    """Add up values at the points of PG(dims - 1, prime) on each of its hyperplanes.

    Points are ordered as by `_canonical`. The hyperplane (v, a w), w a point of one dimension less and a = 1, stands at
    place(w) * prime + z, z = -v modulo the prime; (1, 0, ..., 0) is the last one. A point (1, u) lies on it if the
    product of u and w is z, a point (0, u) if that product is 0.
    """
    cube = prime ** (dims - 1)
    out = np.empty(values.size, dtype=values.dtype)
    out[-1] = values[cube:].sum(dtype=values.dtype)
    sums = out[:-1].reshape(-1, prime)
    _line_sums(values[:cube].reshape((prime,) * (dims - 1)), sums)
    if dims > 2:
        inner = hyperplane_sums(values[cube:], prime, dims - 1)
        # hyperplane w of the smaller geometry: its place there, from its place as a point
        sums += inner[_point_to_plane(prime, dims - 1)][:, None]
    return out


def _line_sums(values: npt.NDArray[Any], out: npt.NDArray[Any]) -> None:
    """Add up values(u) over all u whose product with w is z, for each point w (first axis) and z (second)."""
    prime, dims = values.shape[0], values.ndim
    sums = values
    for axis in range(1, dims):
        moved = np.moveaxis(sums, axis, 0)
        plain = moved.astype(_holding(int(sums.max()) * prime), order="C")
        sums = np.moveaxis(_sheared(plain.reshape(prime, prime, -1)).reshape(moved.shape), 0, axis)
    whole = prime ** (dims - 1)
    out[:whole] = np.moveaxis(sums, 0, -1).reshape(whole, prime)
    if dims > 1:
        _line_sums(values.sum(axis=0, dtype=values.dtype), out[whole:])


def _sheared(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return out[w, s] = sum over u of values[u, s - w u], indices modulo the prime: contiguous additions."""
    prime = len(values)
    twice = np.concatenate([values, values], axis=1)
    out = np.zeros_like(values)
    for block in blocks(prime, _CACHED_ROWS):
        rows = list(enumerate(out[block], block.start))
        for u, shifted in enumerate(twice):
            for w, row in rows:
                start = -w * u % prime
                np.add(row, shifted[start : start + prime], out=row)
    return out


def _holding(largest: int) -> type[np.unsignedinteger[Any]]:
    """Return the shortest type that holds a sum."""
    return np.uint16 if largest < 1 << 16 else np.uint32 if largest < 1 << 32 else np.uint64


def _signed_holding(largest: int) -> type[np.signedinteger[Any]]:
    """Return the shortest type that holds a sum and its negative."""
    return np.int16 if largest < 1 << 15 else np.int32 if largest < 1 << 31 else np.int64


@lru_cache(maxsize=8)
def _point_to_plane(prime: int, dims: int) -> IntArray:
    """Return for each point of a geometry where `hyperplane_sums` has the hyperplane of the same vector."""
    if dims == 1:
        return np.zeros(1, dtype=np.int64)
    digits = np.asarray(list(_vectors(prime, dims))).T
    rest, lead = _canonical(list(digits[1:]), prime)
    offset = (prime - digits[0]) * _inverses(prime)[lead] % prime
    return np.where(lead == 0, points(prime, dims) - 1, rest.astype(np.int64) * prime + offset)


def _vectors(prime: int, dims: int) -> Iterator[tuple[int, ...]]:
    """Yield the points of a geometry in their order."""
    for zeros in range(dims):
        free = dims - 1 - zeros
        for number in range(prime**free):
            yield (0,) * zeros + (1,) + tuple(number // prime**place % prime for place in reversed(range(free)))


# --- numbers and polynomials


def points(field: int, dims: int) -> int:
    """Return the number of points of PG(dims - 1, field)."""
    return int(field**dims - 1) // (field - 1)


def recurrence(prime: int, taps: tuple[int, ...], start: list[int], length: int) -> npt.NDArray[Any]:
    """Return the sequence s(m + n) = taps_0 s(m) + ... + taps_(n-1) s(m + n - 1) modulo a prime, from s(0) on.

    What is known is doubled: if X^L = r_0 + r_1 X + ... then s(m + L) = r_0 s(m) + r_1 s(m + 1) + ...
    """
    degree = len(taps)
    largest = degree * (prime - 1) ** 2
    short = np.min_scalar_type(largest)
    out: npt.NDArray[Any] = np.empty(max(length, degree), dtype=short)
    out[:degree] = start
    known = degree
    while known < length:
        more = min(known - degree + 1, length - known)
        new: npt.NDArray[Any] = out[known : known + more]
        new[...] = 0
        for place, factor in enumerate(_power(known, prime, taps)):
            if factor == 1:
                new += out[place : place + more]
            elif factor:
                new += out[place : place + more] * short.type(factor)
        new %= short.type(prime)
        known += more
    return out[:length]


@lru_cache(maxsize=256)
def primitive(prime: int, degree: int) -> tuple[int, ...]:
    """Return a for which X^degree = a_0 + a_1 X + ... defines a field that the powers of X exhaust, but for 0."""
    order = prime**degree - 1
    one = (1,) + (0,) * (degree - 1)
    parts = [order // factor for factor in factors(order)]
    spread = int(prime**degree * 0.618) // prime * prime + 1  # candidates far apart, all of them in a fixed order
    for number in count(1):
        code = number * spread % prime**degree
        taps = tuple(code // prime**place % prime for place in range(degree))
        if taps[0] and _power(order, prime, taps) == one and all(_power(p, prime, taps) != one for p in parts):
            return taps
    raise AssertionError("there are primitive polynomials of every degree")


def _power(exponent: int, prime: int, taps: tuple[int, ...]) -> tuple[int, ...]:
    """Return X^exponent modulo the polynomial."""
    degree = len(taps)
    result = [1] + [0] * (degree - 1)
    for bit in bin(exponent)[2:]:
        square = [0] * (2 * degree)
        for i, a in enumerate(result):
            if a:
                for j, b in enumerate(result):
                    square[i + j + (bit == "1")] += a * b
        for place in range(2 * degree - 1, degree - 1, -1):
            high = square[place] % prime
            if high:
                for i, tap in enumerate(taps):
                    square[place - degree + i] += high * tap
        result = [number % prime for number in square[:degree]]
    return tuple(result)


def factors(number: int) -> list[int]:
    """Return the primes that divide a number.

    >>> factors(2**24 - 1)
    [3, 5, 7, 13, 17, 241]
    """
    found, divisor = [], 2
    while divisor * divisor <= number:
        if number % divisor == 0:
            found.append(divisor)
            while number % divisor == 0:
                number //= divisor
        divisor += 1
    return found + ([number] if number > 1 else [])


@lru_cache(maxsize=8)
def prime_powers(limit: int) -> tuple[tuple[int, int, int], ...]:
    """Return all (q, p, e) with q = p^e up to a limit, in order of q.

    >>> prime_powers(9)
    ((2, 2, 1), (3, 3, 1), (4, 2, 2), (5, 5, 1), (7, 7, 1), (8, 2, 3), (9, 3, 2))
    """
    sieve = np.ones(limit + 1, dtype=bool)
    for number in range(2, math.isqrt(limit) + 1):
        sieve[number * number :: number] &= not sieve[number]
    primes = [number for number in range(2, limit + 1) if sieve[number]]
    found = [(p**e, p, e) for p in primes for e in range(1, int(math.log(limit, p) + 1e-9) + 1)]
    return tuple(sorted(found))
