"""GradedLaplace: Laplace noise whose scale is that of the value's level."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np

from noisette import _validate
from noisette._search import narrowed
from noisette._special import xlog1py, xlogy
from noisette._validate import FloatArray, IntArray
from noisette.cells import Cells
from noisette.core import Capabilities, Moments
from noisette.domains import Interval
from noisette.guarantees import Claim, Guarantee, warn_unsound
from noisette.mechanisms.graded import _levels
from noisette.mechanisms.graded._levels import Levels, Matrix
from noisette.mechanisms.scalar._additive import AdditiveMechanism, LaplaceNoise

_ROUNDING = 2.0**-42  # of a sum of chances, which float64 misses by less: its exponents are below 1,000
_COMPARED = 32  # levels of which the verifier compares every two
_FINE = 2.0**-20  # steps to a noise's scale where only the ratio of two scales matters

_ANY_R = (
    "A baseline of the paper, said to solve the same problem. Definition 2 leaves r open, but noise of two scales "
    "has no finite r between their levels: far out one is any number of times likelier. With a delta one holds, "
    "here by default."
)


@dataclass(frozen=True)
class GradedLaplace(AdditiveMechanism):
    """Add Laplace noise of scale diameter / e_t, t the level of the value.

    Formula: report = x + Lap(b_t), b_t = (high - low) / e_t, on a power-of-two lattice far below every b_t.

    *Guarantee*: (epsilon, ``delta``)-LDP, with the least epsilon for that delta; ``guarantee.matrix`` has it for each
    two levels. No epsilon holds with delta = 0: far out, a report is any number of times likelier from the level with
    more noise. ``as_published=True`` is pure as the paper claims, so its epsilon is infinite. `exact_delta` gives delta
    at every epsilon.
    *Utility*: unbiased; variance 2 b_t^2, 8 / e_t^2 on [-1, 1]: more than Duchi's at budgets up to 2. Levels can hardly
    differ: for (epsilon, delta) in total their budgets may be a factor of about 1 + epsilon / ln(1 / delta) apart.
    Hao, Wu, Wan 2023, section 3.1.

    >>> m = GradedLaplace(edges=[-1, -0.6, 0, 1], epsilons=[3.0, 2.0, 1.0], delta=1e-6)
    >>> round(m.guarantee.epsilon, 3), [round(r, 3) for r in m.guarantee.matrix[2]]
    (27.432, [27.432, 13.376, 0.5])
    >>> float(m.moments([-0.7, 0.3]).variance.round(4)[1])
    8.0
    """

    edges: tuple[float, ...]
    epsilons: tuple[float, ...]
    _: KW_ONLY
    delta: float = 1e-6
    as_published: bool = False
    name: ClassVar[str] = "graded-laplace"
    capabilities: ClassVar[Capabilities] = Capabilities((Interval,), delta="needed", levels=True, unbounded=True)
    citation: ClassVar[str] = "hao2023hierarchical"
    uncertified: ClassVar[str] = f"the verifier compares at most {_COMPARED} levels, and each value has its own one"

    def __post_init__(self) -> None:
        levels = Levels.build(self.edges)
        object.__setattr__(self, "edges", levels.edges)
        object.__setattr__(self, "epsilons", _levels.budgets(self.epsilons, levels.size))
        object.__setattr__(self, "delta", _validate.delta(self.delta))
        _ = self._noises
        if self.as_published and not self.guarantee.claim_holds:
            warn_unsound(f"{type(self).__name__}(as_published=True)", self.guarantee)

    @classmethod
    def example(cls, epsilon: float) -> GradedLaplace:
        """Return three levels whose outer ones have half the budget of the middle one, calibrated to ``epsilon``."""
        levels = cls((-1.0, -0.5, 0.5, 1.0), (1.0, 2.0, 1.0))
        return levels.fitted(domain=levels.domain, epsilon=epsilon, delta=levels.delta)

    @classmethod
    def by_level(cls, epsilon: float, levels: Iterable[Sequence[float]]) -> GradedLaplace:
        """Return the mechanism for values of any level, its budgets drawn together so that (epsilon, 1e-6) holds."""
        from noisette.mechanisms.graded.chosen import ChosenLevelLaplace

        edges, epsilons = _levels.sorted_levels(levels)
        graded = ChosenLevelLaplace(tuple(edges), tuple(epsilons))
        return graded.fitted(domain=graded.domain, epsilon=epsilon, delta=graded.delta)

    def fitted(self, *, domain: Interval, epsilon: float, delta: float) -> GradedLaplace:
        """Stretch the levels to another interval, draw the budgets together as far as (epsilon, delta) asks, and scale.

        Budgets are replaced by their roots, square roots first, until some factor of them holds.
        """
        epsilons = self.epsilons
        while True:
            levels = replace(self, edges=self._levels.stretched(domain), delta=delta, epsilons=epsilons)
            if levels._reachable(_levels.one_target(epsilon, None, self._levels.size)):
                return levels.calibrate(total=epsilon)
            epsilons = tuple(math.sqrt(e) for e in epsilons)

    def calibrate(self, *, total: float | None = None, matrix: Any = None) -> GradedLaplace:
        """Scale all budgets by the largest factor at which every two levels keep, at delta, the epsilon asked.

        The ratio of two noises stays: where it alone costs more than is asked, no factor helps and the budgets must be
        brought together, to within a factor of about 1 + epsilon / ln(1 / delta).
        """
        target = _levels.one_target(total, matrix, self._levels.size)
        if not self._reachable(target):
            raise ValueError(
                f"Budgets {self.epsilons} have noises too unlike each other for what is asked at delta={self.delta:g}, "
                "whatever their scale. Bring the budgets nearer to each other, or ask for a larger epsilon or delta."
            )
        return replace(self, epsilons=_scaled(replace(self, as_published=False), target))

    def _reachable(self, target: Matrix) -> bool:
        """Tell whether laws with the ratios of these noises, about one centre, keep what is asked."""
        size = range(self._levels.size)
        rates = [_FINE * epsilon / max(self.epsilons) for epsilon in self.epsilons]
        return all(hockey_stick(rates[i], rates[j], 0, target[i][j]) <= self.delta for i in size for j in size)

    def _keeps(self, target: Matrix) -> bool:
        size = range(self._levels.size)
        return all(self._divergence(i, j, target[i][j]) <= self.delta for i in size for j in size)

    @cached_property
    def _levels(self) -> Levels:
        return Levels(self.edges)

    @property
    def domain(self) -> Interval:  # type: ignore[override]
        """The whole interval."""
        return self._levels.domain

    @property
    def epsilon(self) -> float:  # type: ignore[override]
        """Least epsilon, at delta, between any two values."""
        return self.guarantee.epsilon

    @cached_property
    def guarantee(self) -> Guarantee:
        """Return the graded guarantee of one report, rounding included."""
        if self.as_published:
            return Guarantee(math.inf, claim=Claim(max(self.epsilons), source=self.citation, reading=_ANY_R))
        size, delta = range(self._levels.size), self.delta
        matrix = tuple(tuple(self._least_epsilon(i, j, delta) for j in size) for i in size)
        return Guarantee(max(map(max, matrix)), delta, matrix=matrix)

    @property
    def _spread(self) -> float:
        return self.domain.diameter / max(self.epsilons)

    @cached_property
    def _noises(self) -> list[LaplaceNoise]:
        """The noise of each level."""
        return [LaplaceNoise(epsilon / self._steps) for epsilon in self.epsilons]

    @cached_property
    def _noise(self) -> LaplaceNoise:
        """The widest noise, to which lattice and sums are fitted."""
        return LaplaceNoise(min(self.epsilons) / self._steps)

    def _perturb(self, x: FloatArray, rng: np.random.Generator) -> FloatArray:
        return self._drawn(x, self._levels.of(x), rng)

    def _drawn(self, x: FloatArray, level: FloatArray | IntArray, rng: np.random.Generator) -> FloatArray:
        """Return a report for each value, with the noise of the level that is named for it."""
        index, rest = self._position(x)
        index += rng.random(x.size) < rest
        for own, noise in enumerate(self._noises):
            here = np.flatnonzero(level == own)
            index[here] += noise.sample(rng, here.size)
        return np.asarray(self.support.value(index))

    def written_law(self) -> dict[str, Any] | None:  # type: ignore[override]
        """Return the lattice, between which of its points each level lies, and the rate of the level's noise."""
        if self._levels.size > _COMPARED:
            return None
        start = self._lattice_ends[0][0]
        lows, highs = ([end - start for end in ends] for ends in zip(*self._lattice_ends, strict=True))
        levels = {"lows": lows, "highs": highs, "rates": [noise.rate for noise in self._noises]}
        return super().written_law() | {"noise": {"kind": "levels"} | levels}

    def moments(self, x: Any) -> Moments:
        values = self._inputs(x)
        return self._moments_at(values, self._levels.of(values))

    def _moments_at(self, values: FloatArray, level: IntArray) -> Moments:
        """Return the moments where noise is that of the level that is named for each value."""
        _, rest = self._position(values)
        each = [self._noisy(noise, rest) for noise in self._noises]
        variance, third = (np.choose(level, [getattr(m, name) for m in each]) for name in ("variance", "third"))
        return Moments(np.zeros_like(rest), variance, third)

    def log_prob(self, report: Any, x: Any) -> FloatArray:
        reports, values = np.broadcast_arrays(np.asarray(report, dtype=float), self._inputs(x))
        below, rest = self._position(values)
        rate = np.asarray([noise.rate for noise in self._noises])[self._levels.of(values)]
        noise = self.support.index(reports) - below
        mass = np.logaddexp(xlog1py(1.0, -rest) - rate * np.abs(noise), xlogy(1.0, rest) - rate * np.abs(noise - 1))
        return np.asarray(mass + np.log(np.tanh(rate / 2)) - math.log(self._step))

    @cached_property
    def _lattice_ends(self) -> list[tuple[int, int]]:
        """The lattice points around each level, as positions."""
        ends = (self._levels.ends - self._origin) / self._step
        return [(math.floor(low), math.ceil(high)) for low, high in ends]

    def _farthest(self, i: int, j: int) -> int:
        """Return the largest distance between points of two levels, in steps."""
        (low, high), (start, end) = self._lattice_ends[i], self._lattice_ends[j]
        return max(abs(high - start), abs(end - low))

    def _divergence(self, i: int, j: int, epsilon: float) -> float:
        """Return the largest delta(epsilon) of a value of level i against one of level j.

        It is one less the overlap of two symmetric densities that fall on both sides, which only shrinks as they move
        apart; a value between lattice points mixes theirs.
        """
        return hockey_stick(self._noises[i].rate, self._noises[j].rate, self._farthest(i, j), epsilon)

    def _least_epsilon(self, i: int, j: int, delta: float) -> float:
        """Return the least epsilon at which the divergence is at most delta, rounded up."""
        own, other = self._noises[i].rate, self._noises[j].rate
        # where the own noise is narrower the ratio is largest at its centre
        centre = math.log(math.tanh(own / 2) / math.tanh(other / 2)) + other * self._farthest(i, j)
        if delta == 0:
            return centre * (1 + 1e-14) if own >= other else math.inf
        if self._divergence(i, j, 0.0) <= delta:
            return 0.0
        low, high = 0.0, 1.0
        while self._divergence(i, j, high) > delta:
            low, high = high, 2 * high
        return narrowed(lambda e: self._divergence(i, j, e) > delta, low, high, tolerance=1e-13)[1]

    def witnesses(self) -> tuple[FloatArray, FloatArray]:
        """Return the ends of all levels, and the reports around them."""
        inputs = self._levels.ends.reshape(-1)
        around = np.add.outer(np.asarray(self._lattice_ends, dtype=np.float64).reshape(-1), np.arange(-2.0, 3.0))
        return inputs, self.support.value(np.unique(around))

    def dissect(self) -> Iterator[Cells]:
        """Cut the lattice at the centres of both laws, for values of every two levels that are farthest apart.

        The overlap of two symmetric densities that fall on both sides shrinks as they move apart. Between two lattice
        points the law is a mixture of theirs, in which divergences are convex: the largest is at lattice points or at
        an end of a level.
        """
        ends = self._levels.ends
        size = self._levels.size
        for i in range(size):
            for j in range(i, size):  # levels rise, so the farthest points are the low end of i and the high end of j
                for first in self._inner(ends[i, 0], 1, i):
                    for second in self._inner(ends[j, 1], 0, j):
                        if first < second:
                            cells = self._cells(np.asarray([first, second]))
                            yield replace(cells, bound=None)

    def _inner(self, end: float, above: int, level: int) -> list[float]:
        """Return the end of a level, and the lattice point next to it inside where that is another one."""
        below, rest = self._position(np.asarray([end]))
        inner = self._origin + self._step * float(below[0] + above)
        low, high = self._levels.ends[level]
        return [end, inner] if rest[0] > 0 and low <= inner <= high else [end]


def hockey_stick(own: float, other: float, distance: int, epsilon: float) -> float:
    """Return sum over k of (p(k) - exp(epsilon) q(k - distance))_+ for discrete Laplace laws p, q of these rates.

    It is rounded up, so that an exact sum is no more.
    """
    heights = math.log(math.tanh(own / 2)), math.log(math.tanh(other / 2)) + epsilon
    total = 0.0
    # log p = first + slope k and log E q = second + rise k along three stretches of whole numbers k
    for first, slope, second, rise, low, high in (
        (heights[0], own, heights[1] - other * distance, other, -math.inf, -1),
        (heights[0], -own, heights[1] - other * distance, other, 0, distance),
        (heights[0], -own, heights[1] + other * distance, -other, distance + 1, math.inf),
    ):
        start, end = _above_zero(first - second, slope - rise, low, high)
        if start <= end:
            chance = _geometric(first, slope, start, end)
            total += max(chance - _geometric(second, rise, start, end), 0.0) + _ROUNDING * chance
    return total


def _above_zero(value: float, slope: float, low: float, high: float) -> tuple[float, float]:
    """Return the whole numbers from low to high at which value + slope k is above zero."""
    if slope == 0:
        return (low, high) if value > 0 else (1.0, 0.0)
    root = -value / slope
    return (max(low, math.floor(root) + 1), high) if slope > 0 else (low, min(high, math.ceil(root) - 1))


def _geometric(value: float, slope: float, low: float, high: float) -> float:
    """Sum exp(value + slope k) from low to high, one of which may be infinite where the terms fall."""
    largest = high if slope > 0 else low
    terms = high - low + 1
    tail = -math.expm1(-abs(slope) * terms) if math.isfinite(terms) else 1.0
    return math.exp(value + slope * largest) * tail / -math.expm1(-abs(slope))


@lru_cache(maxsize=256)  # every plan and survey asks for the same levels again
def _scaled(mechanism: GradedLaplace, target: Matrix) -> tuple[float, ...]:
    """Return the budgets by the largest factor that keeps what is asked."""
    return _levels.largest_scale(mechanism.epsilons, lambda scaled: replace(mechanism, epsilons=scaled)._keeps(target))
