"""Shares of cells that were estimated together: sums of them, and ratios of such sums with Fieller's interval."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from noisette._bounded import added, bounded_interval, inverted, jump_of_sum, moves_of, score_of
from noisette._special import ndtri
from noisette._validate import FloatArray, IntArray
from noisette.core import Aggregate, Estimate

_NOTHING = np.zeros(0)
_SIGNS = np.asarray([[-1.0, -1, 1, 1], [-1, 1, -1, 1]])  # of two numbers in each cell, rounded to ends of their ranges
_CORRELATIONS = np.linspace(-1, 1, 401)  # that are tried for an interval
_STEPS_AROUND = np.linspace(-4.5, 4.5, 46)  # standard errors around the estimate of a variance that are tried


@dataclass(frozen=True)
class Supports:
    """What one report says of cells: ``offset`` of each, and ``scale`` more of those that it supports.

    It supports from ``least`` to ``most`` of them.
    """

    offset: float
    scale: float
    least: int
    most: int

    @classmethod
    def of(cls, mechanism: Any) -> Supports:
        """Return what a report of a mechanism that counts categories says."""
        return cls(float(mechanism.readout.offset), float(mechanism.readout.scale), *mechanism.supported)

    def ends(self, weights: FloatArray, many: Any = 1) -> tuple[FloatArray, FloatArray]:
        """Return the least and the largest that a report says of weighted sums of the cells.

        The last axis of the weights runs over the cells, or over kinds of cells; ``many`` is the number of each kind.
        """
        numbers = np.broadcast_to(np.asarray(many, dtype=np.float64), weights.shape)
        base = self.offset * np.sum(weights * numbers, axis=-1)
        low, high = (-self._most(-weights, numbers), self._most(weights, numbers))
        return np.asarray(base + self.scale * low), np.asarray(base + self.scale * high)

    def _most(self, weights: FloatArray, numbers: FloatArray) -> FloatArray:
        """Return the largest sum of the weights of cells that a report may support."""
        order = np.argsort(-weights, axis=-1)
        falling, sizes = (np.take_along_axis(one, order, axis=-1) for one in (weights, numbers))
        wanted = np.clip(np.sum(np.where(weights > 0, numbers, 0.0), axis=-1), self.least, self.most)
        taken = np.clip(wanted[..., None] - (np.cumsum(sizes, axis=-1) - sizes), 0.0, sizes)
        return np.asarray(np.sum(falling * taken, axis=-1))


@dataclass(frozen=True)
class DrawnSupports(Supports):
    """The same of a report about one cell that was drawn, of ``most``: it says nothing of the others."""

    def ends(self, weights: FloatArray, many: Any = 1) -> tuple[FloatArray, FloatArray]:
        said = self.most * np.stack([weights * self.offset, weights * (self.offset + self.scale)])
        return np.asarray(np.minimum(said, 0.0).min(axis=(0, -1))), np.asarray(np.maximum(said, 0.0).max(axis=(0, -1)))


@dataclass(frozen=True, eq=False)
class CellShares:
    """The estimated shares of cells, and how the estimates vary together.

    Formula: one report estimates the shares of two cells i and j with a covariance of c where the person is in one of
    them and of d where she is in neither, so over people the covariance is d + (c - d)(f_i + f_j) - f_i f_j, divided by
    their number. The estimated shares stand for f, which makes that too small by a factor of 1 - 1 / n.
    """

    users: int
    value: FloatArray
    variance: FloatArray
    mixed: float
    others: float
    supports: Supports

    @classmethod
    def of(cls, mechanism: Any, sums: IntArray) -> CellShares:
        """Return the shares from rows of counts, totals and squares."""
        users = int(sums[0, 0])
        made = Aggregate(mechanism, users, *sums).estimate()
        mixed, others = mechanism.covariances
        return cls(users, made.value, made.std_error**2, mixed, others, Supports.of(mechanism))

    def sums(self, weights: FloatArray) -> FloatArray:
        """Return weighted sums of the shares, one for each row of weights."""
        return np.asarray(weights @ self.value)

    def covariance(self, first: FloatArray, second: FloatArray) -> FloatArray:
        """Return the covariance of the weighted sums of each row of weights of one kind and of the other."""
        share = self.value
        both = first * second
        if self.users < 2:
            return np.full(np.shape(both)[:-1], np.inf)
        apart = first.sum(axis=-1) * second.sum(axis=-1) - both.sum(axis=-1)
        one, two = first @ share, second @ share
        crossed = first.sum(axis=-1) * two + second.sum(axis=-1) * one - 2 * both @ share
        return self._spread(both @ self.variance, apart, crossed, one * two - both @ share**2)

    def _spread(self, own: Any, apart: Any, crossed: Any, products: Any) -> FloatArray:
        """Return a covariance from the variances of common cells, and what pairs of different ones add up to."""
        if self.users < 2:
            return np.full(np.shape(products), np.inf)
        rest = self.others * apart + (self.mixed - self.others) * crossed - products
        return np.asarray(own + rest / (self.users - 1))

    def linear(self, weights: FloatArray, names: tuple[str, ...], low: float = 0.0, high: float = 1.0) -> Estimate:
        """Return weighted sums as an estimate."""
        variance = self.covariance(weights, weights)
        stated: dict[str, Any] = {"names": names, "ends": self.supports.ends(weights)}
        error = np.sqrt(np.maximum(variance, 0.0))
        return Estimate(self.sums(weights), error, self._counts(len(weights)), low, high, **stated)

    def single(self, names: tuple[str, ...]) -> Estimate:
        """Return the shares themselves as an estimate."""
        ends = (self.supports.offset, self.supports.offset + self.supports.scale)
        error, count = np.sqrt(self.variance), self._counts(self.value.size)
        return Estimate(self.value, error, count, 0.0, 1.0, names=names, ends=(min(ends), max(ends)))

    def ratio(
        self, top: FloatArray, bottom: FloatArray, names: tuple[str, ...], low: float = 0.0, high: float = 1.0
    ) -> RatioEstimate:
        """Return ratios of weighted sums as an estimate; its standard errors are those of the delta method.

        All rows of weights hold the same numbers, in different orders of the cells.
        """
        over, under = self.sums(top), self.sums(bottom)
        spread = np.stack([self.covariance(top, top), self.covariance(top, bottom), self.covariance(bottom, bottom)])
        kinds, many = np.unique(np.stack([top[0], bottom[0]], axis=-1), axis=0, return_counts=True)
        said = Contrast(self.supports, kinds[:, 0], kinds[:, 1], many)
        return RatioEstimate.of(over, under, spread, self._counts(len(top)), names, low, high, said)

    def among(self, last: int, names: tuple[str, ...]) -> RatioEstimate:
        """Return the shares of all cells before the ``last`` ones among the people who are in one of them."""
        size = self.value.size - last
        share, own = self.value[:size], self.variance[:size]
        everybody = (np.arange(self.value.size) < size).astype(np.float64)[None]
        under, square = float(self.sums(everybody)[0]), float(self.covariance(everybody, everybody)[0])
        mixed = self._spread(own, size - 1, under + (size - 2) * share, share * under - share**2)
        spread = np.stack([own, mixed, np.full(size, square)])
        many = np.asarray([1, size - 1, last])
        said = Contrast(self.supports, np.asarray([1.0, 0, 0]), np.asarray([1.0, 1, 0]), many)
        return RatioEstimate.of(share, np.full(size, under), spread, self._counts(size), names, 0.0, 1.0, said)

    def outside(self, number: tuple[float, float], most: float) -> tuple[RatioEstimate, RatioEstimate]:
        """Return the shares of all cells but the last, and how many of them a person is in, outside of the last cell.

        A person who is in the last cell is in no other one; else she may be in several. ``number`` is the estimated
        mean number of cells that a person is in, the last one too, and its variance.

        Formula: the shares are f_i / (1 - f), f that of the last cell. The number is (N - f) / (1 - f). As a sum over
        all cells N has the covariance var(f) + C with f, C the sum of the covariances of f and each f_i.
        """
        share, own, last, square = self.value[:-1], self.variance[:-1], self.value[-1], self.variance[-1]
        size = share.size
        if isinstance(self.supports, DrawnSupports):  # others report about the last cell
            mixed = np.zeros(size)
        else:
            mixed = self._spread(0.0, 1, share + last, share * last)
        mean, variance = number
        over, under = np.append(share, mean - last), np.full(size + 1, 1 - last)
        spread = np.full((3, size + 1), np.inf)
        if self.users > 1:
            spread[0] = np.append(own, max(variance - square - 2 * float(mixed.sum()), 0.0))
            spread[1], spread[2] = -np.append(mixed, mixed.sum()), square
        found = []
        for part, many, high in ((slice(size), 1, 1.0), (slice(size, None), size, most)):
            said = Contrast(self.supports, np.asarray([1.0, 0]), np.asarray([0.0, -1]), np.asarray([many, 1]), 1.0)
            counts = self._counts(over[part].size)
            given = (over[part], under[part], spread[:, part], counts, ())
            found.append(RatioEstimate.of(*given, 0.0, high, said))
        return found[0], found[1]

    def _counts(self, rows: int) -> IntArray:
        return np.full(rows, self.users, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Contrast:
    """What one report says of numerator - m denominator: the weights of each kind of cell in both, and their number.

    ``known`` is a part of the denominator that no report changes.
    """

    supports: Supports
    top: FloatArray
    bottom: FloatArray
    many: IntArray
    known: float = 0.0

    def ends(self, ratio: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the least and the largest, for each ratio m."""
        low, high = self.supports.ends(self.top - ratio[..., None] * self.bottom, self.many)
        return low - ratio * self.known, high - ratio * self.known


@dataclass(frozen=True)
class RatioEstimate(Estimate):
    """Ratios of estimates that vary together, with Fieller's interval, cut to the range that they may have.

    Formula: all m for which zero is in the interval of numerator - m denominator. That interval is one of a mean of
    reports bounded as ``said`` states, or of a sum over ``parts``, or else a normal one. Where the denominator is far
    from zero that is the delta method's interval, and where it is not it is the whole range (Fieller 1954).
    """

    numerator: FloatArray = field(default_factory=lambda: _NOTHING)
    denominator: FloatArray = field(default_factory=lambda: _NOTHING)
    spread: FloatArray = field(default_factory=lambda: _NOTHING)  # rows: variance, covariance, variance
    said: Contrast | None = None
    parts: tuple[RatioEstimate, ...] = ()
    weights: FloatArray = field(default_factory=lambda: _NOTHING)  # of the parts
    scatter: FloatArray = field(default_factory=lambda: _NOTHING)  # variance that the parts do not have

    @classmethod
    def of(
        cls,
        over: FloatArray,
        under: FloatArray,
        spread: FloatArray,
        count: IntArray,
        names: tuple[str, ...],
        low: float,
        high: float,
        said: Contrast | None = None,
    ) -> RatioEstimate:
        """Return the ratios and their standard errors by the delta method."""
        with np.errstate(divide="ignore", invalid="ignore"):
            value = over / under
            variance = (spread[0] - 2 * value * spread[1] + value**2 * spread[2]) / under**2
            error = np.where(np.isfinite(variance), np.sqrt(np.maximum(variance, 0.0)), np.inf)
        stated = {"names": names, "numerator": over, "denominator": under, "spread": spread, "said": said}
        return cls(np.where(np.isfinite(value), value, np.nan), error, count, low, high, **stated)  # type: ignore[arg-type]

    def interval(self, level: float = 0.95, *, method: str = "bounded") -> tuple[FloatArray, FloatArray]:
        """Return Fieller's interval of each ratio."""
        if method == "bounded":
            return self.ends_at(score_of(level))
        if method != "normal":
            raise ValueError(f"Expected method={method!r} to be 'bounded' or 'normal': a ratio has no other interval.")
        low, high = fieller(self.numerator, self.denominator, self.spread, level)
        return np.clip(low, self.low, self.high), np.clip(high, self.low, self.high)

    @property
    def jump(self) -> FloatArray:
        """How far one report can move each ratio, to the first order."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.nan_to_num(self._jump(self.value) / np.abs(self.denominator), nan=0.0))

    def _jump(self, ratio: FloatArray) -> FloatArray:
        """Return how far one report can move numerator - m denominator for each ratio m."""
        if self.parts:
            parts = list(zip(self.weights, self.parts, strict=True))
            errors = [own * one._error(ratio) for own, one in parts]
            return jump_of_sum([own * one._jump(ratio) for own, one in parts], errors)
        if self.said is None:
            return np.zeros(np.shape(ratio))
        low, high = self.said.ends(ratio)
        with np.errstate(divide="ignore"):
            return np.asarray((high - low) / self.count)

    def _error(self, ratio: FloatArray) -> FloatArray:
        """Return the standard error of numerator - m denominator for each ratio m."""
        with np.errstate(invalid="ignore"):
            variance = self.spread[0] - 2 * ratio * self.spread[1] + ratio**2 * self.spread[2]
            return np.asarray(np.sqrt(np.maximum(variance, 0.0)))

    def ends_at(self, score: Any, moves: Any = None) -> tuple[FloatArray, FloatArray]:
        """Return the least and the largest ratio that is kept; all of the range where nobody reported."""

        def keeps(ratio: FloatArray) -> Any:
            low, high = self.contrast(ratio, score, moves)
            return ~(low > 0) & ~(high < 0)

        return inverted(keeps, self.value, float(self.low), float(self.high))  # type: ignore[arg-type]  # set in `of`

    def contrast(self, ratio: FloatArray, score: Any, moves: Any = None) -> tuple[FloatArray, FloatArray]:
        """Return the ends of the interval of numerator - m denominator for each ratio m."""
        value, error = self.numerator - ratio * self.denominator, self._error(ratio)
        if self.parts:
            moves = moves_of(error, self._jump(ratio)) if moves is None else moves
            each = [one.contrast(ratio, score, moves) for one in self.parts]
            values = np.stack([one.numerator - ratio * one.denominator for one in self.parts])
            lows, highs = (np.stack(side) for side in zip(*each, strict=True))
            return added(values, lows, highs, self.weights, np.asarray(score) ** 2 * self.scatter)
        if self.said is None:
            with np.errstate(invalid="ignore"):
                return value - score * error, value + score * error
        return bounded_interval(value, error, self.count, *self.said.ends(ratio), score, moves)


@dataclass(frozen=True)
class BoundedEstimate(Estimate):
    """Quantities whose intervals are cut to their range; where nothing is known the interval is the whole range."""

    def ends_at(self, score: Any, moves: Any = None) -> tuple[FloatArray, FloatArray]:
        """Return the ends, within the range."""
        low, high = self._ends_at(score, moves)
        unknown = ~np.isfinite(low) | ~np.isfinite(high)
        bottom, top = np.asarray(self.low, dtype=np.float64), np.asarray(self.high, dtype=np.float64)
        return (
            np.where(unknown, bottom, np.clip(np.where(unknown, 0, low), bottom, top)),
            np.where(unknown, top, np.clip(np.where(unknown, 0, high), bottom, top)),
        )

    def _ends_at(self, score: Any, moves: Any) -> tuple[FloatArray, FloatArray]:
        """Return the ends, wherever they are."""
        return super().ends_at(score, moves)


@dataclass(frozen=True)
class CorrelationEstimate(BoundedEstimate):
    """The correlation of two numbers, and other quantities after it; its interval is a set that a test does not reject.

    Formula: the estimates of covariance c and variances s, t are normal with a known covariance matrix. A correlation r
    is kept if some variances s', t' > 0 have a point (r sqrt(s' t'), s', t') whose squared distance from the estimates,
    in units of that matrix, is at most the square of the normal quantile. Where the variances are far from zero
    that is about the delta method's interval; where they are not, it still leaves out the correlations that the
    covariance contradicts.
    """

    moments: FloatArray = field(default_factory=lambda: _NOTHING)  # c, s, t
    spread: FloatArray = field(default_factory=lambda: _NOTHING)
    cells: CellShares | None = None
    slopes: FloatArray = field(default_factory=lambda: _NOTHING)  # of c, s and t in the shares of the cells
    squares: Estimate | None = None  # mean squares, last of its quantities
    size: float = 1.0  # of a covariance of one

    def _ends_at(self, score: Any, moves: Any) -> tuple[FloatArray, FloatArray]:
        """Return the ends; all of the range where nothing is known."""
        whole = np.asarray(self.low, dtype=np.float64).copy(), np.asarray(self.high, dtype=np.float64).copy()
        if not np.isfinite(self.spread).all():
            return whole
        low, high = whole
        each = np.maximum(np.abs(np.broadcast_to(score, low.shape)), 1e-9).tolist()
        kept = _CORRELATIONS[self._distances(self._widened(each[0])[1]) <= each[0] ** 2]
        low[0], high[0] = (kept.min(), kept.max()) if kept.size else (-1.0, 1.0)
        radius = self._widened(each[1])[0]
        low[1], high[1] = (self.size * (self.moments[0] + sign * radius) for sign in (-1, 1))
        return low, high

    def _widened(self, score: float) -> tuple[float, FloatArray]:
        """Return how far the covariance may be off, and the covariance matrix of all three that says as much of each.

        Formula: each of the three is linear in the cells, and in mean squares. The distances of the ends of intervals
        of these parts add up as squares; where they are farther than normal ones, errors are made as large.
        """
        error = np.sqrt(np.maximum(np.diag(self.spread), 0.0))
        if self.cells is None or self.squares is None:
            return score * float(error[0]), self.spread
        low, high = self.cells.linear(self.slopes, ()).ends_at(score)
        reach = np.maximum(high - self.cells.sums(self.slopes), self.cells.sums(self.slopes) - low)
        least, most = self.squares.ends_at(score)
        other = np.maximum(most - self.squares.value, self.squares.value - least)[4:]
        reach = np.hypot(reach, [0.0, *other])
        means = self.cells.linear(_SIGNS, ())
        u, v = np.max(np.abs(np.subtract(means.ends_at(score), means.value)), axis=0).tolist()
        reach = np.hypot(reach, [u * v, u * u, v * v])  # what products are off by beyond the slopes
        wide = np.maximum(reach / score, error)
        with np.errstate(divide="ignore", invalid="ignore"):
            alike = np.where(np.outer(error, error) > 0, self.spread / np.outer(error, error), np.eye(3))
        return float(reach[0]), np.asarray(alike * np.outer(wide, wide))

    def _distances(self, spread: FloatArray) -> FloatArray:
        """Return the least squared distance of each correlation, over variances around those that were estimated."""
        error = np.sqrt(np.maximum(np.diag(spread), 1e-300))
        near = np.maximum(self.moments[1:, None] + error[1:, None] * _STEPS_AROUND, 0.0)
        first, second = np.meshgrid(*near, indexing="ij")
        gaps = np.stack([first.ravel() - self.moments[1], second.ravel() - self.moments[2]])
        inverse = np.linalg.pinv(spread)
        fixed = np.einsum("ik,ij,jk->k", gaps, inverse[1:, 1:], gaps)
        linear = 2 * inverse[0, 1:] @ gaps
        root = np.sqrt(first * second).ravel()
        return np.asarray(
            [
                np.min(fixed + gap * (linear + inverse[0, 0] * gap))
                for gap in (r * root - self.moments[0] for r in _CORRELATIONS)
            ]
        )


def fieller(top: Any, bottom: Any, spread: Any, level: float) -> tuple[FloatArray, FloatArray]:
    """Return the interval of a ratio of two normal estimates, infinite where it is not bounded.

    ``spread`` holds the variance of the numerator, the covariance, and the variance of the denominator.

    >>> low, high = fieller(4.0, 2.0, (0.01, 0.0, 0.0), 0.95)
    >>> round(float(low), 4), round(float(high), 4)
    (1.902, 2.098)
    """
    square = float(ndtri((1 + level) / 2)) ** 2
    over, under, (first, mixed, second) = np.asarray(top), np.asarray(bottom), map(np.asarray, spread)
    with np.errstate(divide="ignore", invalid="ignore"):
        a = under**2 - square * second
        b = over * under - square * mixed
        root = b * b - a * (over**2 - square * first)
        bounded = (a > 0) & (root >= 0)
        half = np.sqrt(np.where(bounded, root, 0.0))
        low, high = ((np.where(bounded, b, 0.0) + sign * half) / np.where(bounded, a, 1.0) for sign in (-1, 1))
    return np.where(bounded, low, -np.inf), np.where(bounded, high, np.inf)
