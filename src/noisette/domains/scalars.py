"""Numbers: an interval, or the points of a grid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from noisette import _validate
from noisette._validate import FloatArray
from noisette.domains._base import BoolArray, Described, bounds, from_canonical, to_canonical


@dataclass(frozen=True)
class Interval(Described):
    """Real numbers from ``low`` to ``high``.

    >>> Interval(0, 100).to_canonical([0, 75])
    array([-1. ,  0.5])
    """

    low: float = -1.0
    high: float = 1.0
    kind: ClassVar[str] = "interval"

    def __post_init__(self) -> None:
        low, high = bounds(self.low, self.high)
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    @property
    def diameter(self) -> float:
        """Length of the interval."""
        return self.high - self.low

    def contains(self, x: Any) -> BoolArray:
        """Tell which values lie inside; NaN does not."""
        values = _validate.reals(x)
        return (values >= self.low) & (values <= self.high)

    def clip(self, x: Any) -> FloatArray:
        """Move values outside to the nearer end."""
        return np.clip(_validate.reals(x), self.low, self.high)

    def to_canonical(self, x: Any) -> FloatArray:
        """Map the interval on [-1, 1]."""
        return to_canonical(_validate.reals(x), self.low, self.high)

    def from_canonical(self, x: Any) -> FloatArray:
        """Map [-1, 1] on the interval."""
        return from_canonical(_validate.reals(x), self.low, self.high)


@dataclass(frozen=True)
class Grid(Described):
    """The numbers low, low + step, ..., high.

    >>> Grid(0, 10).size
    11
    """

    low: float
    high: float
    step: float = 1.0
    kind: ClassVar[str] = "grid"

    def __post_init__(self) -> None:
        low, high = bounds(self.low, self.high)
        step = _validate.positive(self.step, "step")
        count = (high - low) / step
        if not 0.5 <= count < 2**52 or abs(count - round(count)) > _tolerance(low, high, step):
            raise ValueError(f"Expected step={step} to divide high - low = {high - low}, at most 2^52 times.")
        for name, value in (("low", low), ("high", high), ("step", step)):
            object.__setattr__(self, name, value)

    @property
    def size(self) -> int:
        """Number of points."""
        return round((self.high - self.low) / self.step) + 1

    @property
    def diameter(self) -> float:
        """Distance of the ends."""
        return self.high - self.low

    def index(self, x: Any) -> FloatArray:
        """Return the position of the nearest point, counted from ``low``."""
        return np.rint((_validate.reals(x) - self.low) / self.step)

    def contains(self, x: Any) -> BoolArray:
        """Tell which values are points of the grid, up to rounding of the last bits."""
        values = _validate.reals(x)
        with np.errstate(invalid="ignore"):
            position = (values - self.low) / self.step
            near = np.abs(position - np.rint(position)) <= _tolerance(self.low, self.high, self.step)
        return near & (position > -0.5) & (position < self.size - 0.5)

    def clip(self, x: Any) -> FloatArray:
        """Return the nearest points."""
        return self.low + self.step * np.clip(self.index(x), 0, self.size - 1)


def _tolerance(low: float, high: float, step: float) -> float:
    """Return how far, in steps, rounding of the last bits may move a point of the grid."""
    return 1e-9 + 2.0**-50 * max(abs(low), abs(high)) / step
