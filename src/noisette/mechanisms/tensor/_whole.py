"""What mechanisms for whole tensors share: numpy and torch in, the same kind out; integer sums per entry."""

from __future__ import annotations

import math
import sys
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from noisette import _random, _validate
from noisette._random import Rng
from noisette._validate import FloatArray
from noisette.core import OVERFLOW, Capabilities, Tally
from noisette.domains import BoolArray, TensorDomain
from noisette.mechanisms._base import BaseMechanism
from noisette.mechanisms.vector._vectors import row_blocks

_LARGEST_SUM = 2**61  # the sum of one block is far below: codes of a support stay below 2^44


class TensorReports(BaseMechanism):
    """A mechanism whose reports are tensors of one shape; leading axes are users."""

    kind: ClassVar[str] = "vector-mean"
    capabilities: ClassVar[Capabilities] = Capabilities((TensorDomain,))
    domain: Any

    @property
    def size(self) -> int:
        """Entries of one tensor."""
        return math.prod(self.domain.dims)

    @property
    def report_shape(self) -> tuple[int, ...]:
        """The shape of the tensors."""
        shape: tuple[int, ...] = self.domain.dims
        return shape

    @abstractmethod
    def _codes(self, rows: FloatArray) -> FloatArray:
        """Return the integers that stand for reports of the support, as float64."""

    def tally(self, reports: Any) -> Tally:
        """Reduce a batch of reports to integer sums per entry, entries in row-major order."""
        values, _ = open_array(reports, "reports")
        rows = self._rows(values, "reports")
        total, squares = np.zeros((2, self.size), dtype=np.int64)
        for block in row_blocks(len(rows), self.size):
            self.check_support(rows[block].reshape(-1, *self.domain.dims))
            codes = self._codes(rows[block])
            codes = self.readout.within_reach(codes) if self.capabilities.unbounded else codes
            total += codes.astype(np.int64).sum(axis=0)
            squares += np.rint(np.square(codes / self.readout.coarse)).astype(np.int64).sum(axis=0)
            if max(int(np.abs(total).max()), int(squares.max())) > _LARGEST_SUM:
                raise OverflowError(OVERFLOW)
        return Tally(len(rows), np.full(self.size, len(rows), dtype=np.int64), total, squares)

    def _rows(self, values: FloatArray, name: str) -> FloatArray:
        """Return tensors as flat rows."""
        _validate.trailing(values, self.domain.dims, name)
        return values.reshape(-1, self.size)

    def _admit(self, rows: FloatArray, *, clip: bool) -> FloatArray:
        """Return rows whose entries lie in the domain, moved into it where asked."""
        low, high = float(rows.min()), float(rows.max())  # NaN spreads to both
        if not (math.isfinite(low) and math.isfinite(high)):
            raise ValueError(
                f"Expected finite values, got {self._first(rows, ~np.isfinite(rows))}. "
                "Remove or impute missing values before privatising."
            )
        if self.domain.low <= low and high <= self.domain.high:
            return rows
        if clip:
            return np.clip(rows, self.domain.low, self.domain.high)
        outside = (rows < self.domain.low) | (rows > self.domain.high)
        raise ValueError(
            f"Expected entries in [{self.domain.low:g}, {self.domain.high:g}], got {self._first(rows, outside)}. "
            "Give the public range of the data in the domain, or pass clip=True to move entries to the nearer end."
        )

    def _first(self, rows: FloatArray, bad: npt.NDArray[np.bool_]) -> str:
        """Show the first bad entry and where it is."""
        row, column = np.argwhere(bad)[0]
        place = tuple(int(index) for index in np.unravel_index(int(column), self.domain.dims))
        return f"{rows[row, column]} at {place}"


@dataclass(frozen=True)
class TensorGrid:
    """Tensors whose entries are origin + step k for integers k, or any number, within reach of noise."""

    dims: tuple[int, ...]
    origin: float
    step: float
    reach: tuple[float, float]
    real: bool = False

    def __str__(self) -> str:
        entries = "reals" if self.real else f"{self.origin:g} + {self.step:g} k"
        return f"tensors of shape {self.dims} of {entries} in [{self.reach[0]:g}, {self.reach[1]:g}]"

    def index(self, reports: npt.NDArray[Any]) -> FloatArray:
        """Return k, a whole number unless the entries are real."""
        position = (np.asarray(reports, dtype=float) - self.origin) / self.step
        return position if self.real else np.rint(position)

    def contains(self, reports: npt.NDArray[Any]) -> BoolArray:
        """Tell which tensors could have been sent; float32 may have rounded their last bits."""
        values = np.asarray(reports, dtype=float)
        inside = np.isfinite(values) & (values >= self.reach[0]) & (values <= self.reach[1])
        if not self.real:
            nearest = self.origin + self.step * self.index(np.where(inside, values, 0.0))
            inside &= np.abs(values - nearest) <= 1e-6 * (np.abs(values) + self.step)
        axes = tuple(range(values.ndim - len(self.dims), values.ndim))
        return np.asarray(inside.all(axis=axes))


class WholeTensorMechanism(TensorReports):
    """A mechanism that turns each tensor into a report at once."""

    domain: TensorDomain

    def _settle(self) -> None:
        """Check what every mechanism on tensors has."""
        object.__setattr__(self, "epsilon", _validate.epsilon(self.epsilon))
        if not isinstance(self.domain, TensorDomain):
            raise TypeError(
                f"Expected domain={self.domain!r} to be a TensorDomain, e.g. TensorDomain((28, 28), 0, 255)."
            )

    @abstractmethod
    def _perturb(self, rows: FloatArray, rng: np.random.Generator, reports: FloatArray) -> None:
        """Write the reports of admissible tensors, one flat tensor a row."""

    def _answer(self, x: Any, *, clip: bool, rng: Rng) -> Any:
        """Return one report for each tensor along the last axes: an array of the same shape, or a torch tensor."""
        values, restore = open_array(x)
        rows = self._rows(values, "x")
        source = _random.generator(rng)
        reports = np.empty(rows.shape)
        for block in row_blocks(len(rows), self.size):
            self._perturb(self._admit(rows[block], clip=clip), source, reports[block])
        return restore(reports.reshape(values.shape))

    def _inputs(self, x: Any) -> FloatArray:
        """Return admissible tensors."""
        values, _ = open_array(x)
        return self._admit(self._rows(values, "x"), clip=False).reshape(values.shape)


def open_array(x: Any, name: str = "x") -> tuple[FloatArray, Callable[[FloatArray], Any]]:
    """Return ``x`` as float64, and the function that turns results into what ``x`` was: an array or a torch tensor.

    A torch tensor comes back on its device, in its own type if that is a floating one. torch is never imported here.
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(x, torch.Tensor):
        return _validate.reals(x, name), lambda result: result
    dtype = x.dtype if x.dtype.is_floating_point else torch.get_default_dtype()
    device = x.device
    return _validate.reals(x.detach().cpu().double().numpy(), name), lambda result: torch.from_numpy(result).to(
        device, dtype
    )
