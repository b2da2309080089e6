"""LevelledResponse: a noisy level, and a noisy bit about the value at the budget of that level."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import combinations
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from noisette import _random, _validate
from noisette._random import Rng
from noisette._validate import FloatArray, IntArray
from noisette.cells import Cells
from noisette.core import Capabilities, Moments, Readout, Tail, Tally
from noisette.domains import BoolArray, Box, Interval
from noisette.guarantees import Claim, Guarantee, warn_unsound
from noisette.mechanisms._base import BaseMechanism, admit, blocks
from noisette.mechanisms.graded import _levels
from noisette.mechanisms.graded._levels import Laws, Levels, Matrix
from noisette.mechanisms.scalar.duchi import TwoPoint

_UNIT = 1 << 53

_OPEN = (
    "Definition 2 bounds the log ratio of levels i and j by r(e_i, e_j) and leaves r open; the proof of Theorem 2 "
    "ends with the larger budget, which is the claim shown. Read as the sum of both budgets it fails too, between "
    "the middle level and the others of this example. Some r always holds: `guarantee.matrix` is the least one."
)


@dataclass(frozen=True)
class Pairs:
    """Reports (level, sign): an integer from 0 to size - 1, and -1 or 1."""

    size: int

    def __str__(self) -> str:
        return f"pairs of a level from 0 to {self.size - 1} and a sign, -1 or 1"

    @property
    def all(self) -> IntArray:
        """Every pair, in the order in which they are counted."""
        return np.asarray([(level, sign) for level in range(self.size) for sign in (-1, 1)], dtype=np.int64)

    def contains(self, reports: npt.NDArray[Any]) -> BoolArray:
        """Tell which reports are such pairs."""
        pairs = np.asarray(reports)
        if pairs.ndim == 0 or pairs.shape[-1] != 2:
            raise ValueError(f"Expected reports of shape (..., 2), pairs of a level and a sign, got {pairs.shape}.")
        level, sign = pairs[..., 0], pairs[..., 1]
        known = (level >= 0) & (level < self.size) & (np.abs(sign) == 1)
        return np.asarray(known if pairs.dtype.kind in "iu" else known & (level == np.floor(level)))


@dataclass(frozen=True)
class LevelledResponse(BaseMechanism):
    """Report a level by generalised randomised response, and a sign by randomised response at the reported level.

    Formula, on [-1, 1] with k levels of budgets e_1, ..., e_k: t is the level of x; report t* = t with probability
    E_t / (E_t + k - 1), each other level with 1 / (E_t + k - 1), E_t = exp(e_t); and s = 1 with probability
    (1 + (2 p - 1) x) / 2, p = P / (P + 1), P = exp(e_{t*}). The estimate from one report is s / (2 p - 1).

    *Guarantee*: ``guarantee.matrix``, exactly: entry (t, t') is the largest log ratio of the chances of a pair (t*, s)
    for x of level t against x' of level t'. Both parts leak, so its largest entry exceeds the paper's max e_t;
    `calibrate` scales the budgets until a matrix or a total holds. ``as_published=True`` states the paper's claim
    beside the truth.
    *Utility*: unbiased; the variance at x is the average over t* of 1 / (2 p - 1)^2 - x^2. At the same total epsilon
    Duchi is better; what levels buy is that some are protected more than others.
    Hao, Wu, Wan 2023, Algorithm 3 (LHP), with the misprint in its step 2 mended.

    A report is a pair of small integers, (level, sign), along a last axis of length two; levels count from 0, in the
    order of ``edges``. With ``personalised=True`` users choose their levels: x has a last axis (value, level), and the
    matrix takes any value at any level.

    >>> m = LevelledResponse(edges=[-1, -0.6, 0, 1], epsilons=[3.0, 2.0, 1.0])
    >>> m.privatize([-0.7, 0.3], rng=7).tolist()
    [[0, -1], [2, 1]]
    >>> print(round(m.guarantee.epsilon, 4), [round(r, 4) for r in m.guarantee.matrix[2]])
    4.4565 [3.5435, 2.3927, 2.3554]
    >>> round(m.calibrate(total=1.0).guarantee.epsilon, 9)
    1.0
    """

    edges: tuple[float, ...]
    epsilons: tuple[float, ...]
    _: KW_ONLY
    personalised: bool = False
    as_published: bool = False
    name: ClassVar[str] = "levelled"
    kind: ClassVar[str] = "mean"
    capabilities: ClassVar[Capabilities] = Capabilities((Interval,), decoded=True, levels=True)
    citation: ClassVar[str] = "hao2023hierarchical"

    def __post_init__(self) -> None:
        levels = Levels.build(self.edges)
        object.__setattr__(self, "edges", levels.edges)
        object.__setattr__(self, "epsilons", _levels.budgets(self.epsilons, levels.size))
        _ = self._pairs  # an interval too narrow for its place is refused now, not at the first report
        if self.as_published and not self.guarantee.claim_holds:
            warn_unsound(f"{type(self).__name__}(as_published=True)", self.guarantee)

    @classmethod
    def from_levels(cls, levels: Iterable[Sequence[float]], **options: Any) -> Self:
        """Build from (low, high, epsilon) of each level, in any order; overlaps and gaps are refused.

        >>> LevelledResponse.from_levels([(0, 1, 1.0), (-1, 0, 2.0)]).epsilons
        (2.0, 1.0)
        """
        edges, epsilons = _levels.sorted_levels(levels)
        return cls(tuple(edges), tuple(epsilons), **options)

    @classmethod
    def example(cls, epsilon: float) -> LevelledResponse:
        """Return three levels whose outer ones have half the budget of the middle one, calibrated to ``epsilon``."""
        return cls((-1.0, -0.5, 0.5, 1.0), (1.0, 2.0, 1.0)).calibrate(total=epsilon)

    @classmethod
    def declared(cls, **options: Any) -> Capabilities:
        """Return what the mechanism can do: where users choose their levels, inputs are pairs."""
        return replace(cls.capabilities, domains=(Box,)) if options.get("personalised") else cls.capabilities

    @classmethod
    def by_level(cls, epsilon: float, levels: Iterable[Sequence[float]]) -> LevelledResponse:
        """Return the mechanism for values of any level, its budgets scaled so that ``epsilon`` holds in total."""
        edges, epsilons = _levels.sorted_levels(levels)
        return cls(tuple(edges), tuple(epsilons), personalised=True).calibrate(total=epsilon)

    def fitted(self, *, domain: Interval, epsilon: float) -> LevelledResponse:
        """Stretch the levels to another interval, and scale the budgets so that ``epsilon`` holds in total."""
        return replace(self, edges=self._levels.stretched(domain)).calibrate(total=epsilon)

    def calibrate(self, *, total: float | None = None, matrix: Any = None) -> LevelledResponse:
        """Scale all budgets by the largest factor at which the exact matrix stays within what is asked."""
        target = _levels.one_target(total, matrix, self._levels.size)
        return replace(self, epsilons=_scaled(replace(self, as_published=False), target))

    def _keeps(self, target: Matrix) -> bool:
        above = np.max(self._near_matrix - np.asarray(target))
        return bool(above < 0) if abs(above) > _levels.TIES else _levels.within(self._matrix, target)

    @cached_property
    def _levels(self) -> Levels:
        return Levels(self.edges)

    @property
    def _interval(self) -> Interval:
        """The interval of the values."""
        return self._levels.domain

    @property
    def domain(self) -> Interval | Box:
        """The interval, or values with their levels where users choose these."""
        inside = self._interval
        if not self.personalised:
            return inside
        return Box(2, (inside.low, 0.0), (inside.high, max(1.0, self._levels.size - 1.0)))

    @property
    def epsilon(self) -> float:  # type: ignore[override]
        """Exact epsilon of the pair between any two values: the largest entry of the matrix."""
        return self.guarantee.epsilon

    @cached_property
    def guarantee(self) -> Guarantee:
        """Return the exact graded guarantee of one report."""
        claim = Claim(max(self.epsilons), source=self.citation, reading=_OPEN) if self.as_published else None
        return Guarantee(max(map(max, self._matrix)), claim=claim, matrix=self._matrix)

    @cached_property
    def _weights(self) -> list[tuple[int, int]]:
        """For each level how many of 2^53 draws keep it, and how many go to each level besides, at most exp(e) as one.

        A level is kept with weight keep + other, replaced by each other one with weight other.
        """
        size = self._levels.size
        pairs = []
        for epsilon in self.epsilons:
            excess = np.expm1(min(epsilon, 40.0))  # exp(40) is above 2^53
            other = min(-int(-_UNIT // (size + excess)), _UNIT // size)
            pairs.append((_UNIT - size * other, other))
        return pairs

    @cached_property
    def _chances(self) -> FloatArray:
        """The chance of each reported level (column) at each true one (row): multiples of 2^-53."""
        table = np.asarray([[other * _random.ULP] * self._levels.size for _, other in self._weights])
        np.fill_diagonal(table, [(keep + other) * _random.ULP for keep, other in self._weights])
        return table

    @cached_property
    def _pairs(self) -> list[TwoPoint]:
        """For each reported level the two numbers that its signs stand for."""
        return [TwoPoint.build(self._interval, epsilon) for epsilon in self.epsilons]

    @cached_property
    def _points(self) -> tuple[FloatArray, FloatArray]:
        """The numbers of sign -1 and 1, by reported level."""
        return np.asarray([pair.low for pair in self._pairs]), np.asarray([pair.high for pair in self._pairs])

    @property
    def p_keep(self) -> FloatArray:
        """The chance that a sign is not flipped, by reported level: P / (P + 1), P = exp(e_{t*})."""
        low, high = self._points
        return np.asarray(0.5 + self._interval.diameter / (2 * (high - low)))

    @property
    def atoms(self) -> tuple[FloatArray, IntArray, FloatArray]:
        """Values, levels and chances of all pairs of the inputs whose laws every other law is a mixture of."""
        chances = np.exp(self.log_prob(self.support.all, self._ends[:, None]))
        levels = np.repeat(np.arange(self._levels.size), 2)
        return self._split(self._ends)[0], levels, chances

    @property
    def support(self) -> Pairs:
        """All pairs of a level and a sign."""
        return Pairs(self._levels.size)

    def _split(self, x: FloatArray, *, clip: bool = False) -> tuple[FloatArray, npt.NDArray[np.intp]]:
        """Return admissible values and their levels."""
        if not self.personalised:
            values = admit(x, self._interval, clip=clip)
            return values, self._levels.of(values)
        _validate.trailing(x, (2,), "x")
        values, own = admit(x[..., 0], self._interval, clip=clip), x[..., 1]
        known = (own >= 0) & (own < self._levels.size) & (own == np.floor(own))
        if not np.all(known):
            raise ValueError(
                f"Expected levels from 0 to {self._levels.size - 1}, got {own[~known].flat[0]:g}. "
                "Personalised values are rows (value, level)."
            )
        return values, own.astype(np.intp)

    @property
    def report_shape(self) -> tuple[int, ...]:
        """A pair."""
        return (2,)

    @property
    def report_dtype(self) -> npt.DTypeLike:
        """The smallest type that holds all levels."""
        return np.int8 if self._levels.size <= 127 else np.int16

    def _answer(self, x: Any, *, clip: bool, rng: Rng) -> Any:
        """Return one pair (level, sign) for each value, along a last axis."""
        numbers = _validate.numbers(x)
        rows = numbers.reshape(-1, 2) if self.personalised else numbers.reshape(-1)
        source = _random.generator(rng)
        size = self._levels.size
        reports = np.empty((len(rows), 2), dtype=self.report_dtype)
        share = np.asarray([other * _random.ULP for _, other in self._weights])
        low, rate = self._points[0], 1 / (self._points[1] - self._points[0])
        for block in blocks(len(rows)):
            values, level = self._split(np.asarray(rows[block], dtype=np.float64), clip=clip)
            # j / other, for integers j < 2^53, lies at least 1 / other below the next integer and is rounded by less
            draw = source.random(values.size)
            draw /= share[level]
            np.copyto(level, draw, where=draw < size, casting="unsafe")
            p_high = values - low[level]
            p_high *= rate[level]
            reports[block, 0] = level
            reports[block, 1] = 2 * (source.random(values.size) < p_high).view(np.int8) - 1
        shape = numbers.shape[:-1] if self.personalised else numbers.shape
        return reports.reshape(*shape, 2)

    def _p_high(self, values: FloatArray, level: Any) -> FloatArray:
        """Return the chance of sign 1 at reported levels, as the sampler has it: a multiple of 2^-53."""
        low, high = self._points
        p_high = np.subtract(values, low[level])
        return _random.bernoulli_threshold(p_high * (1 / (high - low))[level])

    def log_prob(self, report: Any, x: Any) -> FloatArray:
        """Return the exact log mass of a pair, -inf for anything that is not a report."""
        values, level = self._split(_validate.reals(x))
        reports = np.asarray(report)
        known = self.support.contains(reports)
        reported = np.where(known, reports[..., 0], 0).astype(np.intp)
        known, reported, up, values, level = np.broadcast_arrays(known, reported, reports[..., 1] > 0, values, level)
        p_high = self._p_high(values, reported)
        with np.errstate(divide="ignore"):
            mass = np.log(self._chances[level, reported]) + np.log(np.where(up, p_high, 1 - p_high))
        return np.where(known, mass, -np.inf)

    def moments(self, x: Any) -> Moments:
        """Return the exact moments of the estimate from one report: given the reported level its mean is the value."""
        values, level = self._split(_validate.reals(x))
        variance, third = np.zeros(values.shape), np.zeros(values.shape)
        low, high = self._points
        for reported in range(self._levels.size):
            p_high, span = self._p_high(values, reported), high[reported] - low[reported]
            chance = self._chances[level, reported]
            spread = chance * p_high * (1 - p_high)
            variance += span**2 * spread
            third += span**3 * spread * (p_high**2 + (1 - p_high) ** 2)
        return Moments(np.zeros(values.shape), variance, third)

    @cached_property
    def _ends(self) -> FloatArray:
        """The extreme inputs, level by level: the ends of each, or those of the interval at each chosen level."""
        if not self.personalised:
            return self._levels.ends.reshape(-1)
        levels = np.repeat(np.arange(self._levels.size, dtype=np.float64), 2)
        return np.stack([np.tile([self._interval.low, self._interval.high], self._levels.size), levels], axis=1)

    @cached_property
    def _laws(self) -> Laws:
        """The chances of all pairs at the extreme inputs."""
        values, level = self._split(self._ends)
        rows = []
        for value, own in zip(values, level, strict=True):
            high = [Fraction(p) for p in self._p_high(value, np.arange(self._levels.size)).tolist()]
            kept = [Fraction(p) for p in self._chances[own].tolist()]
            rows.append([p * q for p, up in zip(kept, high, strict=True) for q in (1 - up, up)])
        return Laws(rows)

    def written_law(self) -> dict[str, Any]:
        """Return the weights of all pairs at the extreme inputs, in 2^106 draws: chances lie between those of ends."""
        rows = [[int(chance * (1 << 106)) for chance in row] for row in self._laws.masses]
        levels = [level for level in range(self._levels.size) for _ in range(2)]
        return {"kind": "table", "levels": levels, "outputs": str(self.support), "rows": rows}

    def table(self) -> dict[str, Any] | None:
        """Return edges, weights of the own level and of others, and what signs stand for; None with chosen levels."""
        if self.personalised:
            return None
        pairs = [[pair.low, pair.high] for pair in self._pairs]
        return {
            "kind": "levels",
            "edges": list(self.edges),
            "weights": [list(p) for p in self._weights],
            "pairs": pairs,
        }

    @property
    def _near_matrix(self) -> FloatArray:
        """The matrix to nearly all digits of a float64, which says whether it is worth computing exactly."""
        size = self._levels.size
        values, level = self._split(self._ends)
        high = self._p_high(values[:, None], np.arange(size))
        logs = np.log(self._chances[level]) + np.log(np.stack([1 - high, high]))
        gaps = (logs[:, :, None] - logs[:, None]).max(axis=(0, 3))
        return np.asarray(gaps.reshape(size, 2, size, 2).max(axis=(1, 3)))

    @cached_property
    def _matrix(self) -> Matrix:
        """Chances are affine in x within a level, so the largest ratio is at two ends."""
        return self._laws.matrix([(2 * level, 2 * level + 1) for level in range(self._levels.size)])

    def witnesses(self) -> tuple[FloatArray, IntArray]:
        """Return the ends of all levels, and all pairs."""
        return self._ends, self.support.all

    def dissect(self) -> Iterator[Cells]:
        """Return all pairs, for every two ends of levels: between ends the law is a mixture of theirs."""
        every = self.support.all
        for i, j in combinations(range(len(self._ends)), 2):
            bound = self._laws.ratio_above([(i, j), (j, i)])
            yield Cells.constant((self._ends[i], self._ends[j]), every, np.zeros(len(every)), bound)

    @cached_property
    def readout(self) -> Readout:
        """The mean of what the pairs stand for."""
        low, high = self._points
        middle = self._interval.low + self._interval.diameter / 2
        weights = np.stack([low, high], axis=1).reshape(-1) - middle
        span = float((high - low).max())
        return Readout(
            offset=middle,
            scale=1.0,
            low=self._interval.low,
            high=self._interval.high,
            tail=Tail(span**2 / 4, 0.0),  # Hoeffding: bounded reports are sub-Gaussian with span^2 / 4
            weights=weights,
        )

    def decode(self, reports: Any) -> FloatArray:
        """Return what each pair stands for."""
        pairs, weights = np.asarray(reports), np.asarray(self.readout.weights)
        return np.asarray(self.readout.offset + weights[2 * pairs[..., 0].astype(np.int64) + (pairs[..., 1] > 0)])

    def tally(self, reports: Any) -> Tally:
        """Count each pair."""
        pairs = _validate.numbers(reports, "reports")
        _validate.trailing(pairs, (2,), "reports")
        rows = pairs.reshape(-1, 2)
        counts = np.zeros(2 * self._levels.size, dtype=np.int64)
        for block in blocks(len(rows)):
            self.check_support(rows[block])
            cell = 2 * rows[block, 0].astype(np.int64) + (rows[block, 1] > 0)
            counts += np.bincount(cell, minlength=counts.size)
        return Tally(len(rows), np.full(counts.size, len(rows), dtype=np.int64), counts, counts)


@lru_cache(maxsize=256)  # every plan and survey asks for the same levels again
def _scaled(mechanism: LevelledResponse, target: Matrix) -> tuple[float, ...]:
    """Return the budgets by the largest factor that keeps what is asked."""
    return _levels.largest_scale(mechanism.epsilons, lambda scaled: replace(mechanism, epsilons=scaled)._keeps(target))
