"""How a user's whole vector leaves her device, and how a server reads the mean off the reports."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from noisette import _random
from noisette._random import Rng
from noisette._validate import FloatArray, IntArray
from noisette.core import Aggregate
from noisette.domains import Box, L2Ball
from noisette.guarantees import Guarantee
from noisette.mechanisms import by_name
from noisette.mechanisms.build import build, collecting, fits
from noisette.mechanisms.graded._levels import Levels
from noisette.mechanisms.vector.sampled import Sampled

# Five equal levels with budgets 5e, 4e, 3e, 2e, e: Hao, Wu, Wan 2023, section 6.
FIVE_LEVELS = tuple((-1 + 0.4 * t, -1 + 0.4 * (t + 1), 5.0 - t) for t in range(5))


@dataclass(frozen=True, eq=False)
class EntryReports:
    """Each user's report: which entry, and what the mechanism says of it."""

    indices: npt.NDArray[np.int64]
    reports: npt.NDArray[Any]

    def __len__(self) -> int:
        return len(self.indices)


@dataclass(frozen=True, eq=False)
class EntrySums:
    """For each entry how many reported it, and the sums of what they said: integers, which merge in any order."""

    users: int
    count: IntArray
    total: IntArray

    def merge(self, other: EntrySums) -> EntrySums:
        """Return the sums of both batches."""
        return EntrySums(self.users + other.users, self.count + other.count, self.total + other.total)


class VectorChannel(ABC):
    """A private way for vectors: what a device sends, what a server reads."""

    mechanism: Any

    @property
    def guarantee(self) -> Guarantee:
        """What the mechanism protects."""
        guarantee: Guarantee = self.mechanism.guarantee
        return guarantee

    @cached_property
    @abstractmethod
    def noise(self) -> float:
        """Largest expected squared length of the error of one user's vector."""

    @abstractmethod
    def privatize(self, vectors: FloatArray, levels: FloatArray, *, rng: Rng = None) -> Any:
        """Return one report for each user; ``levels`` are the attributes' values on [-1, 1], where levels matter."""

    @abstractmethod
    def gather(self, reports: Any) -> Any:
        """Refuse reports that the mechanism cannot have sent, and sum the others."""

    @abstractmethod
    def mean(self, gathered: Any) -> FloatArray:
        """Return the unbiased mean: what is reported of an entry, divided by the chance that it is."""

    def spec(self) -> dict[str, Any]:
        """Return the JSON description of the mechanism."""
        spec: dict[str, Any] = self.mechanism.spec()
        return spec


@dataclass(frozen=True)
class OneEntry(VectorChannel):
    """One entry of a vector, drawn at random, by a mechanism for values with a level.

    *Guarantee*: ``matrix[i][j]`` is the mechanism's, for an entry of level i against level j. The entry is drawn
    without looking at the record, so of two records the ratio is at most the largest over their entries.
    """

    mechanism: Any
    levels: Levels
    dims: int
    bound: float

    @cached_property
    def noise(self) -> float:
        """Expected squared length of the error of one user's vector, levels being equally frequent."""
        inputs = np.asarray([(x, t) for t in range(self.levels.size) for x in (-1.0, 0.0, 1.0)])
        moments = self.mechanism.moments(inputs)
        second = (moments.variance + (inputs[:, 0] + moments.bias) ** 2).reshape(-1, 3).max(axis=1)
        return float(second.mean() * self.dims**2 * self.bound**2)

    def privatize(self, vectors: FloatArray, levels: FloatArray, *, rng: Rng = None) -> EntryReports:
        source = _random.generator(rng)
        chosen = source.integers(0, self.dims, len(vectors))
        rows = np.arange(len(vectors))
        value = np.clip(vectors[rows, chosen] / self.bound, -1.0, 1.0)
        level = self.levels.of(levels[rows, chosen])
        return EntryReports(chosen, self.mechanism.privatize(np.stack([value, level], axis=1), rng=source))

    def gather(self, reports: EntryReports) -> EntrySums:
        if not isinstance(reports, EntryReports) or len(reports) == 0:
            raise ValueError(f"Expected the EntryReports of at least one user, got {type(reports).__name__}.")
        if reports.indices.min() < 0 or reports.indices.max() >= self.dims:
            raise ValueError(f"Expected entries from 0 to {self.dims - 1}, got {reports.indices.tolist()[:8]}.")
        order = np.argsort(reports.indices, kind="stable")
        ends = np.searchsorted(reports.indices[order], np.arange(self.dims + 1))
        count = np.diff(ends)
        total = np.zeros((self.dims, self._kinds), dtype=np.int64)
        for entry in np.flatnonzero(count).tolist():
            total[entry] = self.mechanism.tally(reports.reports[order[ends[entry] : ends[entry + 1]]]).total
        return EntrySums(len(reports), count, total)

    @property
    def _kinds(self) -> int:
        """How many sums a tally has."""
        weights = self.mechanism.readout.weights
        return 1 if weights is None else len(weights)

    def mean(self, gathered: EntrySums) -> FloatArray:
        readout = self.mechanism.readout
        weights = np.ones(1) if readout.weights is None else readout.weights
        total = readout.offset * gathered.count + readout.scale * (gathered.total @ weights)
        return np.asarray(total * (self.bound * self.dims / gathered.users))


class Gathered(Protocol):
    """What a server keeps of reports: sums that merge in any order."""

    @property
    def users(self) -> int:
        """How many users reported."""

    def merge(self, other: Any) -> Any:
        """Return the sums of both batches."""


@dataclass(frozen=True)
class WholeVector(VectorChannel):
    """A mechanism of the catalogue that protects every entry alike."""

    mechanism: Any

    @property
    def _share(self) -> float:
        """Chance that a given entry is in a user's report."""
        return (self.mechanism.report or 0) / self.mechanism.dims if isinstance(self.mechanism, Sampled) else 1.0

    @cached_property
    def noise(self) -> float:
        """Largest expected squared length of the error of one user's vector.

        An entry that is reported with chance s, as Y, and counts Y / s, has variance E[Y^2] / s - x^2; mechanisms of
        one number have their largest E[Y^2] at an end or in the middle.
        """
        if not isinstance(self.mechanism, Sampled):
            return float(self.mechanism.moments(np.zeros(self.mechanism.domain.shape)).variance.sum())
        ends = np.asarray([-1.0, 0.0, 1.0])
        inner = self.mechanism.inner_mechanism.moments(ends)
        second = float((inner.variance + (ends + inner.bias) ** 2).max())
        half = (self.mechanism.domain.highs - self.mechanism.domain.lows) / 2
        return float(second / self._share * (half**2).sum())

    def privatize(self, vectors: FloatArray, levels: FloatArray, *, rng: Rng = None) -> Any:
        return self.mechanism.privatize(vectors, rng=rng)

    def gather(self, reports: Any) -> Aggregate:
        aggregate: Aggregate = self.mechanism.aggregate(reports)
        return aggregate

    def mean(self, gathered: Aggregate) -> FloatArray:
        readout = gathered.mechanism.readout
        total = readout.offset * gathered.count + readout.scale * gathered.total
        return np.asarray(total / (self._share * gathered.users))


def channel_of(
    name: str,
    epsilon: float,
    *,
    dims: int,
    bound: float,
    radius: float,
    report: int | None = None,
    levels: Sequence[Sequence[float]] = FIVE_LEVELS,
) -> VectorChannel:
    """Return the channel of a catalogue name for vectors with entries within ``bound`` and length up to ``radius``.

    ``"auto"`` is the candidate of least noise; ``"harmony"`` is Duchi on one entry drawn at random, as Nguyen et al.
    2016 and Wang et al. 2019 publish it. Graded mechanisms take ``levels``, (low, high, epsilon) each, and scale
    their budgets so that ``epsilon`` holds in total.
    """
    if name == "auto":
        sizes = {"dims": dims, "bound": bound, "radius": radius, "report": report}
        tried = (channel_of(n, epsilon, **sizes) for n in candidates(dims))  # type: ignore[arg-type]  # mypy joins the sizes
        return min(tried, key=lambda one: float(f"{one.noise:.9g}"))  # of those that are alike the first
    if name == "harmony":
        name, report = "duchi", 1 if report is None else report
    cls = by_name(name)
    if cls.capabilities.levels:
        return one_entry(cls.by_level(epsilon, levels), dims=dims, bound=bound)
    domain = L2Ball(dims, radius) if L2Ball in cls.capabilities.domains else Box(dims, -bound, bound)
    found = collecting(name, domain)
    if found.obstacle:
        raise ValueError(
            f"{name} does not take gradients, which are vectors of numbers: {found.obstacle} "
            "Choose another one, or auto for the one of least noise."
        )
    return WholeVector(build(name, domain, epsilon=epsilon, report=report if found.sampled else None))


def candidates(dims: int) -> list[str]:
    """Return the mechanisms among which ``"auto"`` chooses: unbiased, quick to build and made for vectors."""
    found = [one for one in fits(Box(dims)) if one and one.usual]
    return [one.name for one in found if one.able.unbiased and not one.able.slow_start]


def one_entry(mechanism: Any, *, dims: int, bound: float) -> OneEntry:
    """Return the channel of a mechanism for values with a level."""
    if (mechanism.edges[0], mechanism.edges[-1]) != (-1.0, 1.0):
        raise ValueError(
            f"Expected levels from -1 to 1, the range that attributes are mapped on, got {list(mechanism.edges)}."
        )
    return OneEntry(mechanism, Levels(mechanism.edges), dims, bound)
