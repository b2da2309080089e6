"""The distribution of a number with intervals that hold: shares of cells at several levels, made to agree.

Each person reports through one level of a hierarchy, drawn at random, at the whole budget: in which quarter of the
range her number is, in which sixteenth, or in which of all cells. Shares of ranges and the distribution function are
linear in what the levels estimate, so their errors are known whatever the distribution is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from noisette._bounded import added, bounded_interval, jump_of_sum, moves_of, score_of, touching
from noisette._special import ndtr, ndtri
from noisette._validate import FloatArray, IntArray
from noisette.core import Estimate
from noisette.domains import Attributes, Interval
from noisette.survey.coding.items import PLANNED, Answers, Item, Topic, expected
from noisette.survey.estimation.ratios import BoundedEstimate, CellShares, Supports

if TYPE_CHECKING:
    from noisette.survey.choosing import Allowance
    from noisette.survey.questions import Number

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
BRANCHES = 4  # of a cell into those of the next level
CELLS = (16, 64, 256)  # of the last level
_ONE_ERROR = 0.6827  # the level at which half of an interval is called a standard error
_SURE = 1.5  # with both ends of one error and normal estimates, a quantile is missed at most as often as stated
_EXACTLY = 1e-7  # of a cell, within which the function is said to meet a chance
_SIDES: tuple[Literal["left", "right"], ...] = ("left", "right")


def tree(cells: int) -> tuple[int, ...]:
    """Return how many cells each level has: powers of four up to all of them.

    >>> tree(64)
    (4, 16, 64)
    """
    return tuple(BRANCHES ** (level + 1) for level in range(round(math.log(cells, BRANCHES))))


@dataclass(frozen=True)
class CellLevels(Item):
    """A number: the cell that it lies in, at one of several levels."""

    number: Number

    @property
    def questions(self) -> tuple[Topic, ...]:  # type: ignore[override]  # a property is as good
        """The number."""
        return (self.number,)

    @cached_property
    def edges(self) -> FloatArray:
        """Ends of the cells; those of whole numbers hold as many of them each."""
        low, high = self.number.low, self.number.high
        size = self.number.cells
        if self.number.whole:
            count = round(high - low) + 1
            size = min(size, BRANCHES ** max(1, math.ceil(math.log(count, BRANCHES) - 1e-9)))
            return np.asarray(low + math.ceil(count / size) * np.arange(size + 1.0))
        return np.linspace(low, high, size + 1)

    @property
    def used(self) -> int:
        """How many of the finest cells lie in the range."""
        return int(np.searchsorted(self.edges, self.number.high, side="right" if self.number.whole else "left"))

    @cached_property
    def domain(self) -> Any:
        """A cell at each level; a person reports the cell of one level."""
        sizes = tree(self.edges.size - 1)
        return Attributes(sizes, names=tuple(f"{size} cells" for size in sizes))

    @property
    def cells(self) -> tuple[str, ...]:
        """The cells of all levels."""
        return tuple(f"{self.name}#{size}.{cell}" for size in tree(self.edges.size - 1) for cell in range(size))

    def coded(self, answers: Answers, rng: np.random.Generator) -> npt.NDArray[Any]:
        """Return the cell at each level."""
        finest = self.edges.size - 1
        cell = np.clip(np.searchsorted(self.edges, answers[self.number.name], side="right") - 1, 0, finest - 1)
        return np.stack([cell // (finest // size) for size in tree(finest)], axis=-1).astype(np.float64)

    def choose(self, budget: Allowance, asked: str, report: int | None) -> Any:
        """Return the mechanism of least error of each level; a person answers through one of them."""
        from noisette.survey.choosing import one_of

        return one_of(self.domain, budget, asked)

    def read(self, mechanism: Any, sums: IntArray, made: Estimate | None) -> tuple[Estimate, ...]:
        """Return the quantiles, with the distribution function that they are read from."""
        levels, start = [], 0
        for inner, size in zip(mechanism.inner_mechanisms, tree(self.edges.size - 1), strict=True):
            levels.append((inner, CellShares.of(inner, sums[:, start : start + size])))
            start += size
        users = sum(cells.users for _, cells in levels)
        value, spread, reach = agreed(levels, self.used)
        return (CdfEstimate.of(self.number, self.edges, value, spread, users, reach),)

    def predict(self, mechanism: Any, users: int) -> FloatArray:
        """Return the errors of the quantiles of numbers that are evenly spread, from expected sums."""
        each = zip(mechanism.inner_mechanisms, tree(self.edges.size - 1), strict=True)
        levels = [(one, CellShares.of(one, expected(one, np.full(size, 1 / size)))) for one, size in each]
        _, spread, _ = agreed(levels, self.used)
        error = np.sqrt(np.maximum(np.diag(spread), 0.0)) * math.sqrt(len(levels) * PLANNED / users)
        at = np.asarray(QUANTILES) * self.used
        return np.asarray(np.interp(at, np.arange(error.size), error) * (self.number.high - self.number.low))


@dataclass(frozen=True, eq=False)
class CdfSlopes:
    """How the distribution function follows from the shares of the cells of all levels: what one report can do to it.

    ``slopes`` has a row for each end of a cell. ``levels`` has how many people reported at each level, and what one
    report says of its cells.
    """

    slopes: FloatArray
    offset: FloatArray
    levels: tuple[tuple[int, int, Supports], ...]  # people, cells, what a report says

    def ends(self, first: Any, last: Any) -> tuple[FloatArray, FloatArray]:
        """Return the least and the largest that one of all reports says of the share from one end to another."""
        slope, offset = self.slopes[last] - self.slopes[first], self.offset[last] - self.offset[first]
        users, start, found = sum(people for people, _, _ in self.levels), 0, []
        for people, size, supports in self.levels:
            ends = supports.ends(slope[..., start : start + size])
            found.append([offset + users / people * end for end in ends])
            start += size
        return np.min([low for low, _ in found], axis=0), np.max([high for _, high in found], axis=0)


def agreed(levels: list[tuple[Any, CellShares]], used: int) -> tuple[FloatArray, FloatArray, CdfSlopes | None]:
    """Return the distribution function at the ends of the cells, its covariance matrix, and what a report does to it.

    Formula: generalised least squares for the shares of the finest cells, which add up to one, from the estimates of
    all levels; a level weighs by its reports and the variance of an even share. The estimate is linear in the
    levels', so that its covariance follows from theirs, which is estimated from the counts. Nobody is in the cells
    after the ``used`` ones, which lie beyond the range.
    """
    size = levels[-1][1].value.size
    if min(cells.users for _, cells in levels) < 2:
        return np.linspace(0, 1, size + 1), np.full((size + 1, size + 1), np.inf), None
    design = np.concatenate([np.repeat(np.eye(own.value.size), size // own.value.size, axis=1) for _, own in levels])
    design = design[:, :used]
    weight = np.concatenate(
        [np.full(own.value.size, own.users / _even_variance(inner, own.value.size)) for inner, own in levels]
    )
    normal = np.linalg.inv(design.T @ (weight[:, None] * design))
    reach = normal @ (design.T * weight)
    pull = normal.sum(axis=1) / normal.sum()  # how the sum is made to be one
    linear = np.tril(np.ones((used, used))) @ (reach - np.outer(pull, reach.sum(axis=0)))
    offset = np.cumsum(pull)
    seen = np.concatenate([own.value for _, own in levels])
    covariance = np.zeros((seen.size, seen.size))
    start = 0
    for _, own in levels:
        part = slice(start, start + own.value.size)
        covariance[part, part] = _matrix(own)
        start = part.stop
    value = np.ones(size + 1)
    value[:used] = [0.0, *(linear @ seen + offset)[:-1]]
    spread = np.zeros((size + 1, size + 1))
    spread[1:used, 1:used] = (linear @ covariance @ linear.T)[:-1, :-1]
    slopes, fixed = np.zeros((size + 1, seen.size)), np.ones(size + 1)
    slopes[1:used], fixed[:used] = linear[:-1], [0.0, *offset[:-1]]
    stated = tuple((own.users, own.value.size, own.supports) for _, own in levels)
    return value, spread, CdfSlopes(slopes, fixed, stated)


def _even_variance(mechanism: Any, size: int) -> float:
    """Return the variance that one report has about an even share."""
    own, other = mechanism.moments(0).variance[:2]
    return float(own / size + other * (1 - 1 / size))


def _matrix(cells: CellShares) -> FloatArray:
    """Return the covariance matrix of the shares of one level."""
    pairs = cells.value[:, None] + cells.value
    found = cells.others + (cells.mixed - cells.others) * pairs - np.outer(cells.value, cells.value)
    found /= cells.users - 1
    np.fill_diagonal(found, cells.variance)
    return np.asarray(found)


@dataclass(frozen=True)
class CdfEstimate(Estimate):
    """Quantiles of a number, read from its distribution function at the ends of cells.

    ``value`` are the quantiles, ``std_error`` is half of an interval of 68 %: there is no better one that holds at
    every distribution.
    """

    edges: FloatArray = field(default_factory=lambda: np.zeros(0))
    cdf: FloatArray = field(default_factory=lambda: np.zeros(0))
    covariance: FloatArray = field(default_factory=lambda: np.zeros(0))
    whole: bool = False
    reach: CdfSlopes | None = None
    parts: tuple[CdfEstimate, ...] = ()
    weights: FloatArray = field(default_factory=lambda: np.zeros(0))  # of the parts
    scatter: FloatArray = field(default_factory=lambda: np.zeros(0))  # variance that the parts do not have

    @classmethod
    def of(
        cls, number: Number, edges: FloatArray, cdf: FloatArray, spread: FloatArray, users: int, reach: CdfSlopes | None
    ) -> CdfEstimate:
        """Return the usual quantiles."""
        blank = np.full(len(QUANTILES), np.nan)
        stated: dict[str, Any] = {
            "edges": edges,
            "cdf": cdf,
            "covariance": spread,
            "whole": number.whole,
            "reach": reach,
        }
        counts = np.full(len(QUANTILES), users, dtype=np.int64)
        ranges = {"low": number.low, "high": number.high, "names": number.quantities}
        return cls(blank, blank, counts, **ranges, **stated)._filled()

    def _filled(self) -> CdfEstimate:
        """Return the estimate with its quantiles and their errors, none where nothing is known."""
        if not np.isfinite(self.covariance).all():
            unknown = np.full(len(QUANTILES), np.nan)
            return replace(self, value=unknown, std_error=np.full(len(QUANTILES), np.inf))
        value = np.asarray([self.quantile(chance) for chance in QUANTILES])
        ends = self._intervals(QUANTILES, _ONE_ERROR)
        return replace(self, value=value, std_error=(ends[:, 1] - ends[:, 0]) / 2)

    def again(
        self, spread: FloatArray, users: int, parts: tuple[CdfEstimate, ...], weights: FloatArray, scatter: FloatArray
    ) -> CdfEstimate:
        """Return the same quantiles of a weighted mixture of distributions."""
        count = np.full(len(QUANTILES), users, dtype=np.int64)
        cdf = weights @ np.stack([one.cdf for one in parts])
        stated: dict[str, Any] = {"parts": parts, "weights": weights, "scatter": scatter, "reach": None}
        return replace(self, cdf=cdf, covariance=spread, count=count, **stated)._filled()

    def contrast(self, first: Any, last: Any, score: Any, moves: Any = None) -> tuple[FloatArray, FloatArray]:
        """Return the ends of the interval of the share between two ends of cells, for each of several pairs of them."""
        value, error = self.cdf[last] - self.cdf[first], self._error(first, last)
        if self.parts:
            moves = moves_of(error, self._jump(first, last)) if moves is None else moves
            each = [one.contrast(first, last, score, moves) for one in self.parts]
            values = np.stack([one.cdf[last] - one.cdf[first] for one in self.parts])
            lows, highs = (np.stack(side) for side in zip(*each, strict=True))
            known = np.asarray(score) ** 2 * (self.scatter[first] + self.scatter[last])
            return added(values, lows, highs, self.weights, known)
        if self.reach is None:
            return value - score * error, value + score * error
        return bounded_interval(value, error, int(self.count[0]), *self.reach.ends(first, last), score, moves)

    def _error(self, first: Any, last: Any) -> FloatArray:
        """Return the standard error of the share between two ends of cells."""
        spread = self.covariance[first, first] + self.covariance[last, last] - 2 * self.covariance[first, last]
        return np.asarray(np.sqrt(np.maximum(spread, 0.0)))

    def _jump(self, first: Any, last: Any) -> FloatArray:
        """Return how far one report can move the share between two ends of cells."""
        if self.parts:
            parts = list(zip(self.weights, self.parts, strict=True))
            errors = [own * one._error(first, last) for own, one in parts]
            return jump_of_sum([own * one._jump(first, last) for own, one in parts], errors)
        if self.reach is None:
            return np.zeros(np.shape(first))
        low, high = self.reach.ends(first, last)
        return np.asarray((high - low) / int(self.count[0]))

    def band(self, score: Any) -> tuple[FloatArray, FloatArray]:
        """Return the ends of the interval of the distribution function at each end of a cell."""
        ends = np.arange(self.edges.size)
        return self.contrast(np.zeros_like(ends), ends, score)

    @cached_property
    def error(self) -> FloatArray:
        """Standard error of the distribution function at each end of a cell."""
        return np.asarray(np.sqrt(np.maximum(np.diag(self.covariance), 0.0)))

    @cached_property
    def rising(self) -> FloatArray:
        """The distribution function, rearranged so that it rises, which never moves it away from the truth."""
        return np.sort(np.clip(self.cdf, 0, 1))

    def quantile(self, chance: float) -> float:
        """Return the value below which this share of people lies; within a cell they are taken to be even.

        Of whole numbers it is the least one that this share of people does not exceed.
        """
        ramp = self.rising + 1e-12 * np.arange(self.rising.size)
        if not self.whole:
            return self._kept(float(np.interp(chance, ramp, self.edges)))
        place = float(np.interp(chance, ramp, np.arange(ramp.size)))
        cell = max(math.ceil(place - _EXACTLY) - 1, 0)
        steps = (place - cell) * (self.edges[cell + 1] - self.edges[cell])
        return self._kept(float(self.edges[cell]) + max(math.ceil(steps - _EXACTLY) - 1, 0))

    def _kept(self, value: float) -> float:
        return min(max(value, float(self.low)), float(self.high))  # type: ignore[arg-type]  # set in `of`

    def quantile_interval(self, chance: float, level: float) -> tuple[float, float]:
        """Return an interval that holds the quantile with probability ``level`` at least, whatever the distribution.

        Formula: the quantile is in the cell from s to t where F(s) < chance <= F(t). All cells are kept for which
        neither is rejected: the interval of F(s) begins below chance, and that of F(t) ends at it or above. Both fail
        together only in a cell of a small share d: at the score z with Phi(z + d / sd) - Phi(-z) = level the cell that
        holds the quantile is kept often enough (Imbens and Manski 2004). As d is an estimate, `_SURE` of its standard
        errors are taken off it; sd counts what one report can move.
        """
        low, high = self._intervals((chance,), level)[0].tolist()
        return low, high

    def _intervals(self, chances: Sequence[float], level: float) -> FloatArray:
        """Return a row with both ends for each quantile."""
        if not np.isfinite(self.error).all():
            return np.tile([self._kept(-math.inf), self._kept(math.inf)], (len(chances), 1))
        ends = np.arange(self.edges.size)
        share = np.maximum(np.diff(self.cdf) - _SURE * self._error(ends[:-1], ends[1:]), 0.0)
        error = np.hypot(self.error, self._jump(np.zeros_like(ends), ends))
        score = _cell_scores(share, np.maximum(error[:-1], error[1:]), level)
        least = self.contrast(np.zeros_like(ends[:-1]), ends[:-1], score)[0]
        most = self.contrast(np.zeros_like(ends[:-1]), ends[1:], score)[1]
        found = []
        for chance in chances:
            kept = np.flatnonzero((least < chance) & (chance <= most))
            first, last = (int(kept[0]), int(kept[-1])) if kept.size else (0, self.edges.size - 2)
            upper = self.edges[last + 1] - (1 if self.whole else 0)
            found.append((self._kept(float(self.edges[first])), self._kept(float(upper))))
        return np.asarray(found)

    def quantile_cells(self, chance: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the ends of all cells, and by how many standard errors the reports contradict each cell."""
        score = touching(self.band, self.cdf, self.error, np.full(self.cdf.shape, chance))
        above, below = np.where(self.cdf > chance, score, 0.0)[:-1], np.where(self.cdf < chance, score, 0.0)[1:]
        last = self.edges[1:] - (1 if self.whole else 0)
        low, high = (np.clip(ends, self.low, self.high) for ends in (self.edges[:-1], last))
        return low, high, np.maximum(above, below)

    def bins(self, count: int) -> FloatArray:
        """Return the ends of ``count`` bins of the range; bins of whole numbers are made of whole cells."""
        if not self.whole:
            return np.linspace(float(self.edges[0]), float(self.edges[-1]), count + 1)
        beyond = float(self.high) + 1  # type: ignore[arg-type]  # set in `of`
        cells = int(np.searchsorted(self.edges, beyond))
        ends = self.edges[np.unique(np.linspace(0, cells, min(count, cells) + 1).round().astype(int))]
        return np.asarray(np.minimum(ends, beyond))

    def between(self, low: float, high: float, level: float) -> tuple[float, float, float]:
        """Return the share of people from one value up to another, which is left out, and an interval that holds.

        Between ends of cells the interval is that of the estimate. A cell that is cut is left out of the lower end and
        counted whole in the upper one, so that nothing is assumed about people within a cell.
        """
        if not low < high:
            raise ValueError(f"Expected low={low!r} < high={high!r}.")
        z = score_of(level)
        value = float(np.diff(np.interp([low, high], self.edges, self.rising))[0])

        def end(first: int, last: int, sign: float) -> float:
            if last <= first:
                return 0.0
            if not np.isfinite(self.error).all():
                return max(sign, 0.0)
            return float(self.contrast(np.asarray([first]), np.asarray([last]), z)[0 if sign < 0 else 1][0])

        last = self.edges.size - 1
        before, after = (np.searchsorted(self.edges, [low, high], side=side).tolist() for side in _SIDES)
        most = end(max(after[0] - 1, 0), min(before[1], last), 1.0)
        least = end(min(before[0], last), max(after[1] - 1, 0), -1.0)
        return value, min(max(least, 0.0), 1.0), min(max(most, 0.0), 1.0)

    def interval(self, level: float = 0.95, *, method: str = "bounded") -> tuple[FloatArray, FloatArray]:
        """Return the interval of each quantile, see `quantile_interval`."""
        ends = self._intervals(QUANTILES, level)
        return ends[:, 0], ends[:, 1]


def _cell_scores(share: FloatArray, error: FloatArray, level: float) -> FloatArray:
    """Return at which scores both ends of a cell are tested, see `CdfEstimate.quantile_interval`.

    >>> _cell_scores(np.asarray([0.0, 9.0]), np.ones(2), 0.95).round(3).tolist()
    [1.96, 1.645]
    """
    low, high = np.full(share.shape, max(float(ndtri(level)), 0.0)), np.full(share.shape, score_of(level))
    with np.errstate(divide="ignore", invalid="ignore"):
        wide = np.nan_to_num(share / error)
    for _ in range(30):
        middle = (low + high) / 2
        short = ndtr(middle + wide) - ndtr(-middle) < level
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    return high


@dataclass(frozen=True)
class SpreadEstimate(BoundedEstimate):
    """Mean and variance of a number, from the mean of u and of u^2 that different people reported.

    Formula: the variance is E[u^2] - E[u]^2: from the ends of the intervals of both, their distances from the estimates
    add up as squares.
    """

    made: Estimate | None = None

    def _ends_at(self, score: Any, moves: Any) -> tuple[FloatArray, FloatArray]:
        """Return the ends of both."""
        if self.made is None:
            return super()._ends_at(score, moves)
        first, second = np.broadcast_to(score, (2,)).tolist()
        ends = [end[0] for end in self.made.ends_at(first)]
        low, high = self.made.ends_at(second)
        mean, square = self.made.value
        bottom, top = (np.asarray(end, dtype=np.float64) for end in (self.low, self.high))
        half = float(top[0] - bottom[0]) / 2
        squares = np.square([low[0], high[0]])
        least = 0.0 if low[0] < 0 < high[0] else float(squares.min())
        down = math.hypot(square - low[1], squares.max() - mean**2) * half**2
        up = math.hypot(high[1] - square, mean**2 - least) * half**2
        ends = [(end + 1) * half + bottom[0] for end in ends]
        # the noise of the square is taken off the estimate, and as large as the estimate where there are few reports
        raw = (square - mean**2) * half**2
        least, most = np.fmin(raw, self.value[1]) - down, np.fmax(raw, self.value[1]) + up
        if most <= bottom[1] or least >= top[1]:  # noise alone goes that far, and says nothing
            least, most = bottom[1], top[1]
        return np.asarray([ends[0], least]), np.asarray([ends[1], most])


@dataclass(frozen=True)
class Spread(Item):
    """A number of which mean and variance are wanted: some people report the number, the others its square.

    In units of half the range about its middle the number is u: one half of the people report u, one half u^2.
    """

    number: Number

    @property
    def questions(self) -> tuple[Topic, ...]:  # type: ignore[override]  # a property is as good
        """The number."""
        return (self.number,)

    @cached_property
    def domain(self) -> Any:
        """The number in its unit, and its square."""
        return Attributes((Interval(-1, 1), Interval(0, 1)), names=("number", "square"))

    @property
    def cells(self) -> tuple[str, ...]:
        """Both."""
        return f"{self.name}#number", f"{self.name}#square"

    @property
    def _half(self) -> float:
        return float(self.number.high - self.number.low) / 2

    def coded(self, answers: Answers, rng: np.random.Generator) -> npt.NDArray[Any]:
        """Return the number in its unit, and its square."""
        unit = np.clip((answers[self.number.name] - self.number.low) / self._half - 1, -1, 1)
        return np.stack([unit, unit**2], axis=-1)

    def choose(self, budget: Allowance, asked: str, report: int | None) -> Any:
        """Return the mechanisms of least error; each person answers through one of them."""
        from noisette.survey.choosing import one_of

        return one_of(self.domain, budget, asked)

    def read(self, mechanism: Any, sums: IntArray, made: Estimate | None) -> tuple[Estimate, ...]:
        """Return mean and variance."""
        from noisette.core import Aggregate

        found = Aggregate(mechanism, int(sums[0].sum()), *sums).estimate()
        return (self._told(found.value, found.std_error**2, sums[0], found),)

    def _told(self, mean: FloatArray, variance: FloatArray, count: IntArray, made: Estimate | None = None) -> Estimate:
        """Formula: E[u^2] - E[u]^2, corrected for the noise in the squared mean; errors by the delta method."""
        half, number = self._half, self.number
        spread = mean[1] - (mean[0] ** 2 - variance[0]) if math.isfinite(variance[0]) else math.nan
        with np.errstate(invalid="ignore"):
            error = np.sqrt([variance[0], variance[1] + 4 * mean[0] ** 2 * variance[0] + 2 * variance[0] ** 2])
        scale = np.asarray([half, half**2])
        return SpreadEstimate(
            np.asarray([number.low + half, 0.0]) + scale * np.asarray([mean[0], spread]),
            np.where(np.isnan(error), np.inf, scale * error),
            np.asarray([count[0], count.sum()]),
            np.asarray([number.low, 0.0]),
            np.asarray([number.high, half**2]),
            names=number.quantities,
            made=made,
        )

    def predict(self, mechanism: Any, users: int) -> FloatArray:
        """Return the errors for reports that vary most, and a mean halfway from the middle of the range to an end."""
        from noisette.prediction import deviation

        error = np.asarray(deviation(mechanism, users=users).std, dtype=np.float64)
        return self._told(np.asarray([0.5, 0.25]), error**2, np.full(2, users)).std_error


def quantile_names() -> tuple[str, ...]:
    """Return what the usual quantiles are called."""
    return tuple("median" if chance == 0.5 else f"quantile {chance:g}" for chance in QUANTILES)


ITEMS: dict[str, Callable[[Any], Item]] = {"quantiles": CellLevels, "variance": Spread}  # of what is wanted of a number
