"""What the mechanisms on magnitude and angles share: their domain, what they estimate, and the way back to vectors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from noisette import _validate
from noisette._validate import FloatArray
from noisette.core import Capabilities
from noisette.domains import BoolArray, L2Ball
from noisette.mechanisms.geometric.spherical import from_spherical, to_spherical
from noisette.mechanisms.vector._vectors import VectorMechanism

TINY = 1e-200  # length of a vector, over the radius, that has a direction and next to no magnitude


@dataclass(frozen=True)
class SphericalLattice:
    """Rows (magnitude, angles) whose entries are origins + steps k for integers k, between ``least`` and ``most``."""

    origins: FloatArray
    steps: FloatArray
    least: FloatArray
    most: FloatArray

    def __str__(self) -> str:
        first, last = self.steps[0], self.steps[-1]
        return f"rows of a magnitude in steps of {first:g} and {self.steps.size - 1} angles in steps of {last:g}"

    def index(self, reports: npt.NDArray[Any]) -> FloatArray:
        """Return the integers k of the nearest points."""
        return np.asarray(np.rint((reports - self.origins) / self.steps))

    def nearest(self, rows: FloatArray) -> FloatArray:
        """Return the nearest points."""
        return np.asarray(self.origins + self.steps * self.index(rows))

    def contains(self, reports: npt.NDArray[Any]) -> BoolArray:
        """Tell which rows are on the lattice and within its ends."""
        values = np.asarray(reports, dtype=float)
        with np.errstate(invalid="ignore", over="ignore"):
            inside = (values >= self.least) & (values <= self.most) & (self.nearest(values) == values)
        return np.asarray((inside & np.isfinite(values)).all(axis=-1))


class AngleMechanism(VectorMechanism):
    """A mechanism whose report is a row (magnitude, angle 1, ..., angle d - 1), noisy.

    It estimates the mean of `target`, not that of the vectors; `decode` turns reports or estimates into vectors.
    """

    kind: ClassVar[str] = "direction"
    capabilities: ClassVar[Capabilities] = Capabilities((L2Ball,), unbiased=False, decoded=True)
    dtype: ClassVar[type[Any]] = np.float64
    domain: L2Ball
    beta: float
    as_published: bool

    @classmethod
    def example(cls, epsilon: float) -> Self:
        """Return the mechanism on the unit ball in three dimensions, with half of the angles' range."""
        return cls(epsilon=epsilon, dims=3, beta=0.5)  # type: ignore[call-arg]

    def _settle_angles(self) -> None:
        """Check epsilon, domain and the share of the angles' range that is kept."""
        self._settle()
        beta = _validate.number(self.beta, "beta")
        if not 0 < beta <= 1:
            raise ValueError(f"Expected beta={self.beta!r} in (0, 1]: the share of the angles' range that is kept.")
        object.__setattr__(self, "beta", beta)
        if self.dims < 2:
            raise ValueError(f"Expected dims={self.dims} >= 2: one number has no direction. Take nz.Gaussian for it.")
        if not 1e-100 <= self.domain.radius <= 1e100:
            raise ValueError(f"Expected radius={self.domain.radius} in [1e-100, 1e100]. Rescale the vectors first.")

    @cached_property
    def _ends(self) -> tuple[FloatArray, FloatArray]:
        """Least and largest magnitude and angles that are kept."""
        return ranges(self.dims, self.domain.radius, self.beta)

    @property
    def diameter(self) -> float:
        """How far apart two clipped directions can be, as vectors of angles: sqrt(d + 2) beta pi."""
        return math.sqrt(self.dims + 2) * self.beta * math.pi

    def target(self, x: Any) -> FloatArray:
        """Return what is estimated: the magnitude and the clipped angles of each vector."""
        return self._clipped(self._inputs(x), self._ends)

    @staticmethod
    def _clipped(vectors: FloatArray, ends: tuple[FloatArray, FloatArray]) -> FloatArray:
        """Return magnitudes and angles within the given ends."""
        rows = np.empty(vectors.shape)
        rows[..., 0], rows[..., 1:] = to_spherical(vectors)
        return np.clip(rows, *ends, out=rows)

    def decode(self, reports: Any) -> FloatArray:
        """Return the vectors that reports, or an estimate's values, describe; what left its range is moved back.

        As published it stays outside. This is post-processing and costs nothing. The mean of decoded reports is a
        biased estimate of a mean vector.
        """
        rows = _validate.reals(reports, "reports")
        _validate.trailing(rows, (self.dims,), "reports")
        kept = rows if self.as_published else np.clip(rows, *self._ends)
        return np.asarray(from_spherical(kept[..., 0], kept[..., 1:]))

    def worst_variance(self) -> float:
        """Return that of an entry of a vector as long as the radius whose direction is all noise."""
        return self.domain.radius**2 / self.dims

    def _extremes(self, shortest: float, longest: float) -> tuple[FloatArray, FloatArray]:
        """Return a vector of the one length with the least angles, and one of the other length with the largest.

        A zero has a sign, and the angle at a zero with none but zeros behind it is 0 or pi by that sign.
        """
        low, high = np.zeros((2, self.dims))
        high[1:-1] = low[-2:] = -0.0
        low[0], high[0] = shortest if self.dims > 2 else -shortest, -longest
        return low, high


def conceded(beta: float, *, as_published: bool, fails: bool = False) -> str:
    """Return how the published claim is read; ``fails`` says that it does so with the delta that is conceded, too."""
    if not as_published:
        return ""
    kindly = (
        "Read with that much the claim fails, too: the noise is divided by the batch, while one example among others "
        "that cancel turns the mean around."
        if fails
        else f"Read with that much the claim is not refuted, but with a delta of {1 - beta:g} the value itself may be "
        "sent as often as that."
    )
    return (
        "By Theorem 7, which averages the budgets of magnitude and angles, both together cost what each does: the "
        "claim shown. They add up. Lemma 7 and Theorem 11 concede a further delta' "
        f"of up to 1 - beta, {1 - beta:g} here. {kindly}"
    )


def ranges(dims: int, radius: float, beta: float) -> tuple[FloatArray, FloatArray]:
    """Return least and largest magnitude and angles where a share beta of the angles' range is kept."""
    low, high = np.full(dims, (1 - beta) * math.pi), np.full(dims, math.pi)
    low[0], high[0] = 0.0, radius
    low[-1], high[-1] = -beta * math.pi, beta * math.pi
    return low, high
