"""Histogram encoding: Laplace noise on every entry of the one-hot vector."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from noisette import _validate
from noisette._validate import FloatArray, IntArray
from noisette.cells import Cells, up
from noisette.core import Capabilities, Moments, Readout, Tail, Tally
from noisette.domains import BoolArray, Categorical
from noisette.mechanisms._base import BLOCK, Lattice, blocks, coarseness, power_of_two
from noisette.mechanisms.categorical._base import CategoricalMechanism, just_below, log_mass
from noisette.mechanisms.scalar._additive import LaplaceNoise


@dataclass(frozen=True)
class LatticeVectors:
    """Vectors whose entries are points of a lattice."""

    length: int
    lattice: Lattice

    def __str__(self) -> str:
        return f"vectors of {self.length} numbers {self.lattice}"

    @property
    def step(self) -> float:
        """Distance of neighbouring points in an entry."""
        return self.lattice.step

    def contains(self, reports: npt.NDArray[Any]) -> BoolArray:
        """Tell which rows hold points of the lattice only."""
        return np.asarray((self.lattice.contains(reports) & np.isfinite(reports)).all(axis=-1))


@dataclass(frozen=True)
class HistogramEncoding(CategoricalMechanism):
    """Add Laplace noise to every entry of the vector that is 1 at the category and 0 elsewhere.

    Formula: report = one-hot(x) + Lap(2/e) in each entry, on a power-of-two lattice below 2^-23 of the noise: e/2 an
    entry, since two of them tell one category from another.

    *Guarantee*: epsilon-LDP for one category, exactly.
    *Utility*: unbiased; variance 8/e^2 for every category. OUE has half of it for small epsilon and far less for large
    ones; use this where a mean of numbers is expected, as by the enhancers for high-dimensional means.
    Dwork, McSherry, Nissim, Smith 2006, Proposition 1; Wang, Blocki, Li, Jha 2017, section 4.2 (SHE).

    >>> m = HistogramEncoding(epsilon=1.0, domain=Categorical(5))
    >>> m.moments(0).variance.round(6)
    array([8., 8., 8., 8., 8.])
    >>> m.privatize([0, 3], rng=7).shape
    (2, 5)
    """

    epsilon: float
    domain: Categorical
    name: ClassVar[str] = "histogram"
    citation: ClassVar[str] = "wang2017locally"
    capabilities: ClassVar[Capabilities] = replace(CategoricalMechanism.capabilities, unbounded=True)

    @cached_property
    def _step(self) -> float:
        """Length of a step; 0 and 1 are points of the lattice."""
        return min(1.0, power_of_two(2 / self.epsilon) / 2**24)

    @cached_property
    def _noise(self) -> LaplaceNoise:
        return LaplaceNoise(just_below(self.epsilon) / 2 * self._step)

    @property
    def report_shape(self) -> tuple[int, ...]:
        """One number for each category."""
        return (self.domain.size,)

    @property
    def report_dtype(self) -> npt.DTypeLike:
        """Real numbers."""
        return np.float64

    @cached_property
    def support(self) -> LatticeVectors:
        """All vectors on the lattice."""
        return LatticeVectors(self.domain.size, Lattice(0.0, self._step))

    def written_law(self) -> dict[str, Any]:
        """Return the lattice of the entries, and the noise."""
        return {"kind": "one-hot", "size": self.domain.size, "step": self._step, "noise": self._noise.written()}

    def _fill(self, codes: IntArray, reports: npt.NDArray[Any], rng: np.random.Generator) -> None:
        flat = reports.reshape(-1)
        for block in blocks(flat.size):
            np.multiply(self._noise.sample(rng, block.stop - block.start), self._step, out=flat[block])
        flat[np.arange(0, flat.size, self.domain.size) + codes] += 1

    def moments(self, x: Any) -> Moments:
        """Return the exact moments of the frequencies that one report estimates.

        The last axis runs over the categories: entry [..., v] is about the estimate of the frequency of v, which
        is the report's own entry, when its user's category is x. They are the same for all v and x.
        """
        shape = (*self._inputs(x).shape, self.domain.size)
        alike = self.moments_alike
        return Moments(np.zeros(shape), np.full(shape, alike.variance[0]), np.full(shape, alike.third[0]))

    @property
    def moments_alike(self) -> Moments:
        """Moments for a user of another category and of the own one: the noise is the same."""
        _, second, third = self._noise.absolute
        return Moments(np.zeros(2), np.full(2, second * self._step**2), np.full(2, third * self._step**3))

    @property
    def covariances(self) -> tuple[float, float]:
        """Covariances of entries of a report: their noises are independent."""
        return 0.0, 0.0

    @cached_property
    def readout(self) -> Readout:
        """The plain mean of the reports."""
        tail = self._noise.tail
        return Readout(
            offset=0.0,
            scale=self._step,
            low=0.0,
            high=1.0,
            # a user's own 0 or 1 is bounded, hence sub-Gaussian with variance 1/4
            tail=Tail(float(tail.variance) * self._step**2 + 0.25, float(tail.scale) * self._step),
            coarse=coarseness(max(math.sqrt(self._noise.absolute[1]), 0.5 / self._step)),
            noise=self._noise.absolute[1] * self._step**2,
        )

    def tally(self, reports: Any) -> Tally:
        flat = self._reports(reports)
        size = self.domain.size
        total, squares = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
        for block in blocks(len(flat), max(1, BLOCK // size)):
            self.check_support(flat[block])
            codes = self.readout.within_reach(self.support.lattice.index(flat[block]))
            total += codes.sum(axis=0).astype(np.int64)
            squares += np.square(np.rint(codes / self.readout.coarse)).sum(axis=0).astype(np.int64)
        return Tally(len(flat), np.full(size, len(flat), dtype=np.int64), total, squares)

    def log_prob(self, report: Any, x: Any) -> FloatArray:
        """Return the exact log mass of a report, per unit of volume."""
        reports, codes = np.asarray(report, dtype=np.float64), self._inputs(x)
        _validate.trailing(reports, self.report_shape, "report")
        shape = np.broadcast_shapes(reports.shape[:-1], codes.shape)
        size, noise = self.domain.size, self._noise
        possible = self.support.contains(reports)
        reports = np.where(possible[..., None], reports, 0.0)
        away = np.abs(self.support.lattice.index(reports)).sum(axis=-1)
        column = np.broadcast_to(codes, shape)[..., None]
        own = np.take_along_axis(np.broadcast_to(reports, (*shape, size)), column, axis=-1)[..., 0] / self._step
        constant = size * (math.log(math.tanh(noise.rate / 2)) - math.log(self._step))
        change = noise.rate * (np.abs(own) - np.abs(own - 1 / self._step))
        mass = log_mass(constant - noise.rate * away, change, self.epsilon)
        return np.where(possible, mass, -np.inf)

    def witnesses(self) -> tuple[IntArray, FloatArray]:
        """Return two categories and the reports without noise."""
        return np.arange(2), np.eye(2, self.domain.size)

    def dissect(self) -> Iterator[Cells]:
        """Cut the plane of two entries into what lies beside, below and above the unit square; all pairs are alike.

        Below 0 and above 1 both laws of an entry fall alike, so all that is there weighs as much as the edge times
        1 / (1 - exp(-rate)), and the same holds for all other entries about 0. Between 0 and 1 one law rises and the
        other falls: inside the square both masses depend on the difference of the two entries only.
        """
        size, rate, step = self.domain.size, self._noise.rate, self._step
        last = round(1 / step) - 1  # steps strictly between 0 and 1
        beyond = -math.log(-math.expm1(-rate))
        volume = size * math.log(step) - (size - 2) * math.log(math.tanh(rate / 2))
        # first place, last place, log weight, weight lost a place, of runs in the plane of entries 0 and 1, in steps
        runs = [((i, j), (i, j), 2 * beyond, 0.0) for i in (0, last + 1) for j in (0, last + 1)]
        if last >= 1:
            runs += [((1, edge), (last, edge), beyond, 0.0) for edge in (0, last + 1)]
            runs += [((edge, 1), (edge, last), beyond, 0.0) for edge in (0, last + 1)]
            runs += [((1, 1), (last, 1), math.log(last), 1 / last)]
        if last >= 2:
            runs += [((1, 2), (1, last), math.log(last - 1), 1 / (last - 1))]
        starts, stops = (np.asarray([run[end] for run in runs], dtype=float) for end in (0, 1))
        length = (stops - starts).sum(axis=1)
        yield Cells(
            pair=(0, 1),
            nodes=tuple(np.pad(ends * step, ((0, 0), (0, size - 2))) for ends in (starts, stops)),
            log_weight=np.asarray([run[2] for run in runs]) + volume,
            places=length + 1,
            span=np.maximum(length, 1),
            tilt=-np.asarray([run[3] for run in runs]),
            bound=up(2 * Fraction(rate) * (last + 1)),
        )
