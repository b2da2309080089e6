"""How a user's whole vector leaves her device, and how a server reads the mean off the reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from noisette._random import Rng
from noisette._validate import FloatArray
from noisette.core import Aggregate
from noisette.domains import Box, L2Ball
from noisette.guarantees import Guarantee
from noisette.mechanisms import by_name
from noisette.mechanisms.build import build, collecting, fits
from noisette.mechanisms.graded._levels import Levels
from noisette.mechanisms.vector.sampled import Sampled
from noisette.regression import graded


class Gathered(Protocol):
    """What a server keeps of reports: sums that merge in any order."""

    @property
    def users(self) -> int:
        """How many users reported."""

    def merge(self, other: Any) -> Any:
        """Return the sums of both batches."""


class VectorChannel(Protocol):
    """A private way for vectors: what a device sends, what a server reads."""

    @property
    def guarantee(self) -> Guarantee:
        """What is protected."""

    @property
    def noise(self) -> float:
        """Largest expected squared length of the error of one user's vector."""

    def privatize(self, vectors: FloatArray, levels: FloatArray, *, rng: Rng = None) -> Any:
        """Return the reports of users' vectors; ``levels`` decide how much each entry is protected, if any does."""

    def gather(self, reports: Any) -> Any:
        """Check and sum reports."""

    def mean(self, gathered: Any) -> FloatArray:
        """Return the unbiased mean of the vectors."""

    def spec(self) -> dict[str, Any]:
        """Return a JSON description."""


@dataclass(frozen=True)
class WholeVector:
    """A mechanism of the catalogue that protects every entry alike."""

    mechanism: Any

    @property
    def guarantee(self) -> Guarantee:
        """What the mechanism protects: the user's whole vector."""
        guarantee: Guarantee = self.mechanism.guarantee
        return guarantee

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
        """Return one report for each user."""
        return self.mechanism.privatize(vectors, rng=rng)

    def gather(self, reports: Any) -> Aggregate:
        """Refuse reports that the mechanism cannot have sent, and sum the others."""
        aggregate: Aggregate = self.mechanism.aggregate(reports)
        return aggregate

    def mean(self, gathered: Aggregate) -> FloatArray:
        """Return the unbiased mean: what is reported of an entry, divided by the chance that it is."""
        readout = gathered.mechanism.readout
        total = readout.offset * gathered.count + readout.scale * gathered.total
        return np.asarray(total / (self._share * gathered.users))

    def spec(self) -> dict[str, Any]:
        """Return the JSON description of the mechanism."""
        spec: dict[str, Any] = self.mechanism.spec()
        return spec


def channel_of(
    name: str,
    epsilon: float,
    *,
    dims: int,
    bound: float,
    radius: float,
    report: int | None = None,
    levels: Sequence[Sequence[float]] = graded.FIVE_LEVELS,
) -> VectorChannel:
    """Return the channel of a catalogue name for vectors with entries within ``bound`` and length up to ``radius``.

    ``"auto"`` is the candidate of least noise; ``"harmony"`` is Duchi on one entry drawn at random, as Nguyen et al.
    2016 and Wang et al. 2019 publish it. Graded mechanisms take ``levels``, (low, high, epsilon) each, and scale
    their budgets so that ``epsilon`` holds in total.
    """
    if name == "auto":
        sizes = {"dims": dims, "bound": bound, "radius": radius, "report": report}
        return min((channel_of(n, epsilon, **sizes) for n in candidates(dims)), key=lambda one: one.noise)  # type: ignore[arg-type]  # mypy joins the sizes
    if name == "harmony":
        name, report = "duchi", 1 if report is None else report
    cls = by_name(name)
    if cls in graded.MADE:
        return one_entry(graded.MADE[cls](epsilon, levels), dims=dims, bound=bound)
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


def one_entry(mechanism: Any, *, dims: int, bound: float) -> graded.OneEntry:
    """Return the channel of a mechanism for values with a level."""
    if (mechanism.edges[0], mechanism.edges[-1]) != (-1.0, 1.0):
        raise ValueError(
            f"Expected levels from -1 to 1, the range that attributes are mapped on, got {list(mechanism.edges)}."
        )
    return graded.OneEntry(mechanism, Levels(mechanism.edges), dims, bound)
