"""What the mechanisms for whole vectors share: checks, blocks of users, integer sums per dimension."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from noisette import _random, _validate
from noisette._random import Rng
from noisette._validate import FloatArray
from noisette.core import Capabilities, Tally
from noisette.domains import Box, L2Ball, Sphere
from noisette.mechanisms._base import BaseMechanism

_ENTRIES = 1 << 16  # entries of vectors worked on at a time


class VectorMechanism(BaseMechanism):
    """A mechanism whose input and whose report are vectors of ``dims`` entries: a user has one vector and sends one."""

    kind: ClassVar[str] = "vector-mean"
    capabilities: ClassVar[Capabilities] = Capabilities((Box,))
    dtype: ClassVar[type[Any]]
    dims: int
    domain: Any

    @classmethod
    def example(cls, epsilon: float) -> Self:
        """Return the mechanism on its default domain in four dimensions."""
        return cls(epsilon=epsilon, dims=4)  # type: ignore[call-arg]

    @property
    def report_shape(self) -> tuple[int, ...]:
        """One number for each dimension."""
        return (self.dims,)

    @property
    def report_dtype(self) -> npt.DTypeLike:
        return self.dtype

    @property
    def coupling(self) -> float | None:
        """The c for which two entries of the estimate of x have covariance c x_j x_k, x from the middle, if known."""
        return None

    def _settle(self) -> None:
        """Check epsilon, and make dims and domain agree."""
        object.__setattr__(self, "epsilon", _validate.epsilon(self.epsilon))
        dims, domain, kinds = self.dims, self.domain, self.capabilities.domains
        if dims is None and domain is None:
            raise TypeError(f"Expected dims or domain: how long are the vectors? E.g. dims=4 or domain={kinds[0](4)}.")
        if domain is None:
            domain = kinds[0](_validate.integer(dims, "dims", low=1))
        if not self.capabilities.takes(domain):
            raise TypeError(f"Expected domain={domain!r} to be a {kinds[-1].__name__}, e.g. {kinds[0](4)}.")
        dims = domain.dims if dims is None else _validate.integer(dims, "dims", low=1)
        if domain.dims != dims:
            raise ValueError(f"Expected dims={dims} to be that of the domain, {domain.dims}. Give one of them only.")
        object.__setattr__(self, "dims", dims)
        object.__setattr__(self, "domain", domain)

    @abstractmethod
    def _perturb(self, rows: FloatArray, rng: np.random.Generator, reports: npt.NDArray[Any]) -> None:
        """Write the reports of a block of admissible vectors."""

    @abstractmethod
    def _codes(self, rows: npt.NDArray[Any]) -> FloatArray:
        """Return the integers that stand for reports of the support, as float64."""

    def _answer(self, x: Any, *, clip: bool, rng: Rng) -> Any:
        """Return one report for each vector along the last axis, in an array of the same shape."""
        values = self._vectors(x)
        source = _random.generator(rng)
        rows = values.reshape(-1, self.dims)
        reports = np.empty(rows.shape, dtype=self.dtype)
        for block in row_blocks(len(rows), self.dims):
            self._perturb(self._admit(rows[block], clip=clip), source, reports[block])
        return reports.reshape(values.shape)

    def check_support(self, reports: npt.NDArray[Any]) -> None:
        """Refuse reports that this mechanism cannot have sent; the message shows the ends of a long one."""
        with np.printoptions(threshold=8):
            super().check_support(reports)

    def tally(self, reports: Any) -> Tally:
        """Reduce a batch of reports to integer sums per dimension."""
        array = np.asarray(reports)
        if array.dtype.kind not in "iuf":
            raise TypeError(f"Expected reports to hold numbers, got dtype {array.dtype}.")
        _validate.trailing(array, (self.dims,), "reports")
        rows = array.reshape(-1, self.dims)
        if len(rows) == 0:
            raise ValueError(f"Expected at least one report, got an array of shape {array.shape}.")
        total, squares = np.zeros((2, self.dims), dtype=np.int64)
        for block in row_blocks(len(rows), self.dims):
            self.check_support(rows[block])
            codes = self._codes(rows[block])
            codes = self.readout.within_reach(codes) if self.capabilities.unbounded else codes
            total += codes.astype(np.int64).sum(axis=0)
            codes /= self.readout.coarse
            squares += np.rint(np.square(codes, out=codes)).astype(np.int64).sum(axis=0)
        return Tally(len(rows), np.full(self.dims, len(rows), dtype=np.int64), total, squares)

    def _vectors(self, x: Any) -> FloatArray:
        """Return ``x`` as vectors along the last axis."""
        values = _validate.reals(x)
        _validate.trailing(values, (self.dims,), "x")
        return values

    def _inputs(self, x: Any) -> FloatArray:
        """Return admissible vectors."""
        values = self._vectors(x)
        return self._admit(values.reshape(-1, self.dims), clip=False).reshape(values.shape)

    def _admit(self, rows: FloatArray, *, clip: bool) -> FloatArray:
        """Return vectors of the domain, moved into it where asked."""
        return admitted(rows, self.domain, clip=clip)


def admitted(rows: FloatArray, domain: Box | L2Ball, *, clip: bool) -> FloatArray:
    """Return rows if they are vectors of the domain, or moved into it where asked."""
    low, high = float(rows.min()), float(rows.max())  # NaN spreads to both
    if not (math.isfinite(low) and math.isfinite(high)):
        row, column = np.argwhere(~np.isfinite(rows))[0]
        raise ValueError(
            f"Expected finite values, got {rows[row, column]} in dimension {column}. "
            "Remove or impute missing values before privatising."
        )
    if isinstance(domain, Box) and low >= np.max(domain.low) and high <= np.min(domain.high):
        return rows
    complaint = _outside(domain, rows)
    if complaint is None:
        return rows
    if clip:
        return domain.clip(rows)
    nearest = "value" if isinstance(domain, Box) else "vector"
    raise ValueError(f"{complaint} Pass clip=True to move it to the nearest admissible {nearest}.")


def _outside(domain: Box | L2Ball, rows: FloatArray) -> str | None:
    """Say why the first inadmissible vector is outside the domain; nothing where all are inside."""
    if isinstance(domain, Box):
        outside = (rows < np.asarray(domain.low)) | (rows > np.asarray(domain.high))
        if not outside.any():
            return None
        row, column = np.argwhere(outside)[0]
        ends = f"[{domain.lows[column]:g}, {domain.highs[column]:g}]"
        return f"Expected values in {ends} in dimension {column}, got {rows[row, column]}."
    inside = domain.contains(rows)
    if inside.all():
        return None
    length = float(np.linalg.norm(rows[int(np.argmin(inside))]))
    if not isinstance(domain, Sphere):
        return f"Expected vectors of length at most {domain.radius:g}, got one of length {length:g}."
    return (
        f"Expected vectors of length {domain.radius:g}, got one of length {length:g}. "
        f"For shorter ones take domain=L2Ball({domain.dims}, {domain.radius:g})."
    )


def row_blocks(users: int, dims: int) -> Iterator[slice]:
    """Cut range(users) into slices of vectors that fit a core's cache together, or of one vector."""
    size = max(1, _ENTRIES // dims)
    return (slice(start, min(start + size, users)) for start in range(0, users, size))


def log_half_beta(a: float) -> float:
    """Return ln B(a, 1/2) to double precision for any a > 0.

    Its recurrence leads to a >= 20, where the asymptotic series of Gamma(a + 1/2) / Gamma(a) errs by less than 1e-16.
    """
    lower = 0.0
    while a < 20:
        lower += math.log1p(0.5 / a)
        a += 1
    series = -1 / 8 + (1 / 192 + (-1 / 640 + (17 / 14336 - 31 / 18432 / a**2) / a**2) / a**2) / a**2
    return 0.5 * math.log(math.pi / a) - series / a + lower
