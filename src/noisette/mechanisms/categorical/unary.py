"""Unary encoding: a bit for each category, all of them noisy."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from noisette import _validate
from noisette._random import ULP
from noisette._validate import FloatArray, IntArray
from noisette.domains import BoolArray, Categorical
from noisette.mechanisms._base import BLOCK, blocks
from noisette.mechanisms.categorical._base import (
    UNIT,
    CountingMechanism,
    keep_weight,
    log_fraction,
    log_mass,
    shy,
)
from noisette.mechanisms.categorical._octet import BITS, Octet

_LANE = 255  # zeros and ones that a byte can add up


@dataclass(frozen=True)
class Bits:
    """Vectors of zeros and ones."""

    length: int

    def __str__(self) -> str:
        return f"vectors of {self.length} zeros and ones"

    def contains(self, reports: npt.NDArray[Any]) -> BoolArray:
        """Tell which rows hold nothing but zeros and ones."""
        if reports.dtype.kind in "bu" and reports.max() <= 1:
            return np.ones(reports.shape[:-1], dtype=bool)
        return np.asarray(((reports == 0) | (reports == 1)).all(axis=-1))


@dataclass(frozen=True)
class UnaryEncoding(CountingMechanism):
    """Report a bit for each category, on with one chance for the own category and with a smaller one for the others.

    Formula: own bit on with probability 1/2, each other bit with 1 / (E + 1), E = exp(e). With ``optimized=False`` this
    builds the symmetric encoding: s / (s + 1) and 1 / (s + 1), s = exp(e/2).

    *Guarantee*: epsilon-LDP for one category, exactly: eight bits at a time are drawn from a table of integers.
    *Utility*: unbiased; the variance of a rare category's frequency is 4E / (E - 1)^2 whatever k, as for local hashing,
    which sends a few bytes instead of k bits. Subset selection is a little better; GRR is, below k = 3E + 2.
    Wang, Blocki, Li, Jha 2017, section 4.3 (OUE), with the variance of Theorem 2.

    >>> m = UnaryEncoding(epsilon=2.0, domain=Categorical(100))
    >>> round(float(m.moments(0).variance.sum()), 1)
    73.4
    >>> m.privatize([0, 3], rng=7).shape
    (2, 100)
    """

    epsilon: float
    domain: Categorical
    _: KW_ONLY
    optimized: bool = True
    name: ClassVar[str] = "oue"
    citation: ClassVar[str] = "wang2017locally"

    def __new__(cls, *args: Any, optimized: bool = True, **options: Any) -> Self:
        """Return the symmetric encoding, which has a name of its own, where it is asked for."""
        chosen: Any = SymmetricUnaryEncoding if cls is UnaryEncoding and optimized is False else cls
        built: Self = super().__new__(chosen)
        return built

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.optimized is not type(self).optimized:
            raise ValueError(f"Expected optimized={self.optimized!r} to be {type(self).optimized} for {self.name!r}.")

    @cached_property
    def _own(self) -> Fraction:
        """Exact probability that the own bit is on, a multiple of 2^-53."""
        return Fraction(1, 2)

    @cached_property
    def _others(self) -> Octet:
        """Law of the other bits."""
        return Octet.build(-shy(self.epsilon))

    @property
    def _support_law(self) -> tuple[Fraction, Fraction]:
        return self._own, self._others.p_on

    @property
    def report_shape(self) -> tuple[int, ...]:
        """One number for each category."""
        return (self.domain.size,)

    @property
    def report_dtype(self) -> npt.DTypeLike:
        """A byte for each bit."""
        return np.uint8

    @property
    def support(self) -> Bits:
        """All vectors of zeros and ones."""
        return Bits(self.domain.size)

    def _fill(self, codes: IntArray, reports: npt.NDArray[Any], rng: np.random.Generator) -> None:
        size, octets = self.domain.size, -(-self.domain.size // BITS)
        users = min(codes.size, max(1, 16 * BLOCK // size))
        p_own = int(self._own * UNIT) * ULP
        starts = np.arange(0, users * size, size)
        scratch = np.empty(users * octets, dtype=np.intp)  # made once: fresh memory costs more than the draws
        padded = np.empty((users, octets), dtype=np.uint64)
        for part in blocks(codes.size, users):
            rows = reports[part]
            words = rows.view(np.uint64) if size % BITS == 0 else padded[: len(rows)]
            self._others.sample(words.reshape(-1), scratch[: words.size], rng)
            if size % BITS:
                rows[...] = words.view(np.uint8)[:, :size]
            rows.reshape(-1)[starts[: len(rows)] + codes[part]] = rng.random(len(rows)) < p_own

    def _count(self, reports: npt.NDArray[Any]) -> IntArray:
        rows = reports.astype(np.uint8, copy=False)
        # add 255 rows byte by byte, many rows apart so that the inner loops are long
        depth = len(rows) // _LANE
        deep = rows[: depth * _LANE].reshape(_LANE, depth, self.domain.size)
        lanes = np.add.reduce(deep, axis=0, dtype=np.uint8)
        total: IntArray = lanes.sum(axis=0, dtype=np.int64) + rows[depth * _LANE :].sum(axis=0, dtype=np.int64)
        return total

    def log_prob(self, report: Any, x: Any) -> FloatArray:
        """Return the exact log mass of a report."""
        reports, codes = np.asarray(report), self._inputs(x)
        _validate.trailing(reports, self.report_shape, "report")
        possible = self.support.contains(reports)
        starts = np.arange(0, self.domain.size, BITS)
        ones = np.add.reduceat(np.where(possible[..., None], reports, 0), starts, axis=-1, dtype=np.int64)
        octets = (BITS, self.domain.size - int(starts[-1]))  # the last one may be shorter
        full, last = (self._octet_logs(bits) for bits in octets)
        common = full[ones[..., :-1]].sum(axis=-1) + last[ones[..., -1]]

        shape = np.broadcast_shapes(possible.shape, codes.shape)
        column = np.broadcast_to(codes, shape)[..., None]
        own = (_pick(reports, column) == 1).astype(np.int64)
        around = _pick(ones, column // BITS) - own  # bits that are on in its octet beside the own one
        change = np.stack([self._own_logs(bits) for bits in octets])
        mass = log_mass(common, change[(column[..., 0] >= starts[-1]) * 1, own, around], self.epsilon)
        return np.where(possible, mass, -np.inf)

    def _octet_logs(self, bits: int) -> FloatArray:
        """Return the log mass of ``bits`` bits of an octet, by the number that are on."""
        return np.asarray(
            [log_fraction(Fraction(weight, self._others.total)) for weight in self._others.marginal(bits)]
        )

    def _own_logs(self, bits: int) -> FloatArray:
        """Return what an own bit, off or on, changes in the log mass of ``bits`` bits, by the others that are on."""
        weights = self._others.marginal(bits)
        change = np.full((2, BITS), np.nan)
        for around, (off, on) in enumerate(pairwise(weights)):
            change[0, around] = log_fraction((1 - self._own) * Fraction(off + on, off))
            change[1, around] = log_fraction(self._own * Fraction(off + on, on))
        return change

    def witnesses(self) -> tuple[IntArray, npt.NDArray[Any]]:
        """Return categories of the first octets, and the reports that have only the bit of one of them on."""
        inputs = np.asarray([code for code in (0, 1, BITS, BITS + 1) if code < self.domain.size])
        reports = np.zeros((inputs.size, self.domain.size), dtype=np.uint8)
        reports[np.arange(inputs.size), inputs] = 1
        return inputs, reports


@dataclass(frozen=True)
class SymmetricUnaryEncoding(UnaryEncoding):
    """Report a bit for each category, each of them turned with the same chance.

    Formula: own bit on with probability s / (s + 1), each other bit with 1 / (s + 1), s = exp(e/2).

    *Guarantee*: epsilon-LDP for one category, exactly: eight bits at a time are drawn from a table of integers.
    *Utility*: unbiased; variance s / (s - 1)^2 whatever the category and k. The optimised encoding has less for
    rare categories, and more for those that s / (s + 1)^2 of the users, a quarter at most, have in common.
    Erlingsson, Pihur, Korolova 2014 (basic one-time RAPPOR); variance in Wang, Blocki, Li, Jha 2017, Theorem 2.

    >>> m = SymmetricUnaryEncoding(epsilon=2.0, domain=Categorical(100))
    >>> round(m.p_own + m.p_other, 12)
    1.0
    """

    _: KW_ONLY
    optimized: bool = False
    name: ClassVar[str] = "sue"
    citation: ClassVar[str] = "erlingsson2014rappor"

    @cached_property
    def _own(self) -> Fraction:
        return Fraction(keep_weight(shy(self.epsilon) / 2), UNIT)

    @cached_property
    def _others(self) -> Octet:
        return Octet.build(-shy(self.epsilon) / 2)


def _pick(rows: npt.NDArray[Any], column: IntArray) -> npt.NDArray[Any]:
    """Return one entry of each row, broadcasting the leading axes."""
    wide = np.broadcast_to(rows, (*column.shape[:-1], rows.shape[-1]))
    return np.asarray(np.take_along_axis(wide, column, axis=-1)[..., 0])
