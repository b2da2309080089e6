"""Shares of cells that were estimated together: sums of them, and ratios of such sums with Fieller's interval."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from noisette._special import ndtri
from noisette._validate import FloatArray, IntArray
from noisette.core import Aggregate, Estimate

_NOTHING = np.zeros(0)
_CORRELATIONS = np.linspace(-1, 1, 401)  # that are tried for an interval
_STEPS_AROUND = np.linspace(-4.5, 4.5, 46)  # standard errors around the estimate of a variance that are tried


@dataclass(frozen=True, eq=False)
class CellShares:
    """The estimated shares of cells, and how the estimates vary together.

    Formula: one report estimates the shares of two cells i and j with a covariance of c where the person is in one of
    them and of d where she is in neither, so over people the covariance is d + (c - d)(f_i + f_j) - f_i f_j, divided by
    their number. The estimated shares stand for f.
    """

    users: int
    value: FloatArray
    variance: FloatArray
    mixed: float
    others: float

    @classmethod
    def of(cls, mechanism: Any, sums: IntArray) -> CellShares:
        """Return the shares from rows of counts, totals and squares."""
        users = int(sums[0, 0])
        made = Aggregate(mechanism, users, *sums).estimate()
        mixed, others = mechanism.covariances
        return cls(users, made.value, made.std_error**2, mixed, others)

    def sums(self, weights: FloatArray) -> FloatArray:
        """Return weighted sums of the shares, one for each row of weights."""
        return np.asarray(weights @ self.value)

    def covariance(self, first: FloatArray, second: FloatArray) -> FloatArray:
        """Return the covariance of the weighted sums of each row of weights of one kind and of the other."""
        share = self.value
        both = first * second
        apart = first.sum(axis=-1) * second.sum(axis=-1) - both.sum(axis=-1)
        one, two = first @ share, second @ share
        crossed = first.sum(axis=-1) * two + second.sum(axis=-1) * one - 2 * both @ share
        with np.errstate(divide="ignore", invalid="ignore"):
            rest = self.others * apart + (self.mixed - self.others) * crossed - (one * two - both @ share**2)
            found = both @ self.variance + rest / self.users
        return np.asarray(found if self.users > 1 else np.full(np.shape(one), np.inf))

    def linear(self, weights: FloatArray, names: tuple[str, ...], low: float = 0.0, high: float = 1.0) -> Estimate:
        """Return weighted sums as an estimate."""
        variance = self.covariance(weights, weights)
        return Estimate(
            self.sums(weights), np.sqrt(np.maximum(variance, 0.0)), self._counts(weights), low, high, names=names
        )

    def ratio(
        self, top: FloatArray, bottom: FloatArray, names: tuple[str, ...], low: float = 0.0, high: float = 1.0
    ) -> RatioEstimate:
        """Return ratios of weighted sums as an estimate; its standard errors are those of the delta method."""
        over, under = self.sums(top), self.sums(bottom)
        spread = np.stack([self.covariance(top, top), self.covariance(top, bottom), self.covariance(bottom, bottom)])
        return RatioEstimate.of(over, under, spread, self._counts(top), names, low, high)

    def _counts(self, weights: FloatArray) -> IntArray:
        return np.full(len(weights), self.users, dtype=np.int64)


@dataclass(frozen=True)
class RatioEstimate(Estimate):
    """Ratios of estimates that vary together, with Fieller's interval, cut to the range that they may have.

    Formula: all m for which the estimate of numerator - m denominator is within the normal quantile of its standard
    error. Where the denominator is told well from zero that is the delta method's interval, and where it is not it is
    the whole range (Fieller 1954).
    """

    numerator: FloatArray = field(default_factory=lambda: _NOTHING)
    denominator: FloatArray = field(default_factory=lambda: _NOTHING)
    spread: FloatArray = field(default_factory=lambda: _NOTHING)  # rows: variance, covariance, variance

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
    ) -> RatioEstimate:
        """Return the ratios and their standard errors by the delta method."""
        with np.errstate(divide="ignore", invalid="ignore"):
            value = over / under
            variance = (spread[0] - 2 * value * spread[1] + value**2 * spread[2]) / under**2
            error = np.where(np.isfinite(variance), np.sqrt(np.maximum(variance, 0.0)), np.inf)
        told = {"names": names, "numerator": over, "denominator": under, "spread": spread}
        return cls(np.where(np.isfinite(value), value, np.nan), error, count, low, high, **told)  # type: ignore[arg-type]

    def interval(self, level: float = 0.95, *, method: str = "normal") -> tuple[FloatArray, FloatArray]:
        """Return Fieller's interval of each ratio."""
        if not 0 < level < 1:
            raise ValueError(f"Expected level={level!r} in (0, 1), e.g. 0.95.")
        if method != "normal":
            raise ValueError(f"Expected method={method!r} to be 'normal': a ratio has no other interval.")
        low, high = fieller(self.numerator, self.denominator, self.spread, level)
        return np.clip(low, self.low, self.high), np.clip(high, self.low, self.high)


@dataclass(frozen=True)
class BoundedEstimate(Estimate):
    """Quantities whose intervals are cut to the range that they have, and are all of it where nothing is known."""

    def interval(self, level: float = 0.95, *, method: str = "normal") -> tuple[FloatArray, FloatArray]:
        """Return the ends, within the range."""
        low, high = super().interval(level, method=method)
        unknown = ~np.isfinite(self.std_error) | ~np.isfinite(self.value)
        bottom, top = np.asarray(self.low, dtype=np.float64), np.asarray(self.high, dtype=np.float64)
        return (
            np.where(unknown, bottom, np.clip(np.where(unknown, 0, low), bottom, top)),
            np.where(unknown, top, np.clip(np.where(unknown, 0, high), bottom, top)),
        )


@dataclass(frozen=True)
class CorrelationEstimate(BoundedEstimate):
    """The correlation of two numbers, and other quantities after it; its interval is a set that a test does not reject.

    Formula: the estimates of covariance c and variances s, t are normal with a known covariance matrix. A correlation r
    is kept if some variances s', t' > 0 have a point (r sqrt(s' t'), s', t') whose squared distance from the estimates,
    in units of that matrix, is at most the square of the normal quantile. Where the variances are told well from zero
    that is about the delta method's interval; where they are not, it still leaves out the correlations that the
    covariance contradicts.
    """

    moments: FloatArray = field(default_factory=lambda: _NOTHING)  # c, s, t
    spread: FloatArray = field(default_factory=lambda: _NOTHING)

    def interval(self, level: float = 0.95, *, method: str = "normal") -> tuple[FloatArray, FloatArray]:
        """Return the ends; all of the range where nothing is known."""
        low, high = super().interval(level, method=method)
        if np.isfinite(self.spread).all():
            kept = _CORRELATIONS[self._distances() <= float(ndtri((1 + level) / 2)) ** 2]
            low[0], high[0] = (kept.min(), kept.max()) if kept.size else (-1.0, 1.0)
        return low, high

    def _distances(self) -> FloatArray:
        """Return the least squared distance of each correlation, over variances around those that were estimated."""
        error = np.sqrt(np.maximum(np.diag(self.spread), 1e-300))
        near = np.maximum(self.moments[1:, None] + error[1:, None] * _STEPS_AROUND, 0.0)
        first, second = np.meshgrid(*near, indexing="ij")
        gaps = np.stack([first.ravel() - self.moments[1], second.ravel() - self.moments[2]])
        inverse = np.linalg.pinv(self.spread)
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
