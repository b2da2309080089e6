"""Coefficients with error bars: each user reports once what a step of Newton's method needs; groups give the error.

A model trained by noisy gradients says nothing of its own error: it has not converged, and nobody knows how far it is.
Here the estimate solves an equation whose terms are unbiased, so that its error is known from how groups of users
differ, noise, sampling and all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.special import expit, stdtrit

from noisette import _random, _validate
from noisette._random import Rng
from noisette._validate import FloatArray, IntArray
from noisette.domains import Categorical, Interval
from noisette.regression.moments import ProductReports
from noisette.regression.training import Model

_GROUPS = 60  # of users, from whose differences the error is estimated
_PHASES = (0.25, 0.25, 0.5)  # shares of users that a logistic model's steps take; the last one has the error bars
_LEAST_SIGNAL = 0.5  # times the noise of the moments, that they must be above in every direction
_LEAST_VARIANCE = 0.25  # of what is seen between groups, that is left once the error of the step is taken off
_REFINED = 4  # times that this is taken off; the first one is nearly right
BLIND = "cannot tell: the noise hides how the columns go together; ask more people, or about fewer columns"
_POWER = 2.8  # standard errors of an effect that differs from zero at 95 % four times in five


@dataclass(frozen=True, eq=False)
class Coefficients:
    """Coefficients in the columns' own units, each with its standard error; infinite where nothing can be said.

    ``model`` has them as weights, for predictions; ``freedom`` is that of Student's law, by which intervals are made.
    ``solution`` is where the noisy equation holds, the middle of the intervals; ``value`` is without its bias, and
    nearer to the truth on average. A category's coefficient is its difference from the first category of its attribute.
    """

    names: tuple[str, ...]
    value: FloatArray
    std_error: FloatArray
    freedom: int
    model: Model
    solution: FloatArray

    def interval(self, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
        """Return lower and upper ends of the confidence interval of each coefficient."""
        if not 0 < level < 1:
            raise ValueError(f"Expected level={level!r} in (0, 1), e.g. 0.95.")
        radius = float(stdtrit(self.freedom, (1 + level) / 2)) * self.std_error
        return self.solution - radius, self.solution + radius

    def table(self, level: float = 0.95) -> list[dict[str, Any]]:
        """Return a row for each coefficient: name, value, std_error, low, high, verdict."""
        low, high = self.interval(level)
        columns = zip(self.names, self.value, self.std_error, low, high, strict=True)
        return [
            {
                "name": name,
                "value": float(value),
                "std_error": float(error),
                "low": float(least),
                "high": float(most),
                "verdict": "above zero" if least > 0 else "below zero" if most < 0 else "cannot tell",
            }
            for name, value, error, least, most in columns
        ]

    def verdict(self, level: float = 0.95) -> str:
        """Say how many effects differ from zero, the intercept aside."""
        if not np.isfinite(self.std_error).all():
            return BLIND
        shown = sum(row["verdict"] != "cannot tell" for row in self.table(level)[1:])
        return f"{shown} of {len(self.names) - 1} effects differ from zero at {100 * level:g} %"


@dataclass(frozen=True)
class Inference(ProductReports):
    """Linear or logistic regression with error bars, from one private report of each user.

    Formula: a user reports, by one mechanism for the whole vector, h x_i x_j for all pairs of columns that are not
    known beforehand and r x_i. For a linear model h = 1 and r = -y, and w = -A^-1 g from the means A and g. For a
    logistic one r = p - y and h = 4 p (1 - p), p the probability by the model so far, and w <- w - (A/4)^-1 g: a step
    of Newton's method. It starts at zero; two steps, by a quarter of the users each, lead near the optimum, and the
    last one, by the others, has the error bars. How A and A w + g vary between 60 groups of users gives the bias of a
    noisy inverse, which is taken off to first order, and the error. The first category of an attribute is left out, the
    others are compared with it.

    *Guarantee*: that of the mechanism, for a user's whole record, in the local model: she reports once.
    *Utility*: `expected` says it beforehand. There are d (d + 3) / 2 numbers to report for d columns, so it is for a
    few columns; `Training` predicts better with many, and has no error bars.

    >>> from noisette.regression import Design
    >>> rng = np.random.default_rng(1)
    >>> rows = rng.uniform(-1, 1, (50_000, 1))
    >>> found = Inference(Design((Interval(),)), Interval(), epsilon=2.0).run(rows, 0.5 * rows[:, 0], rng=7)
    >>> [row["verdict"] for row in found.table()], found.value.round(1).tolist()
    (['cannot tell', 'above zero'], [0.0, 0.5])
    """

    @cached_property
    def kept(self) -> IntArray:
        """The columns of the model: all but the first category of each attribute."""
        owners, first = self.design.owners, np.append(True, np.diff(self.design.owners) > 0)
        return np.flatnonzero(~(first & self.design.categorical & (owners >= 0)))

    def report(self, weights: FloatArray, rows: FloatArray, target: FloatArray, *, rng: Rng = None) -> Any:
        """Return the private reports of some users: what a device does with the public weights and its own record."""
        x = rows[:, self.kept]
        chance = expit(x @ weights) if self._logistic else np.zeros(len(x))
        joined = np.column_stack([x, chance - target])
        products = joined[:, self.pairs[:, 0]] * joined[:, self.pairs[:, 1]]
        if self._logistic:
            products[:, self.pairs[:, 1] < len(self.kept)] *= (4 * chance * (1 - chance))[:, None]
        return self.channel.privatize(products, products, rng=rng)

    def run(self, rows: Any, target: Any, *, clip: bool = False, rng: Rng = None) -> Coefficients:
        """Return the coefficients from a table, each row of it a user; who takes part in which step is drawn."""
        matrix, values = self._encoded(rows, target, clip=clip)
        if len(matrix) < 4 * _GROUPS:
            raise ValueError(f"Expected at least {4 * _GROUPS} users for error bars, got {len(matrix)}.")
        source = _random.generator(rng)
        order = source.permutation(len(matrix))
        shares = _PHASES[:-1] if self._logistic else ()
        cuts = np.cumsum(np.asarray(shares) * len(matrix)).astype(np.int64)
        weights = np.zeros(len(self.kept))
        *early, last = np.split(order, cuts)
        for block in early:
            reports = self.report(weights, matrix[block], values[block], rng=source)
            weights = weights - self._step(self.channel.mean(self.channel.gather(reports)), len(block), safe=True)
        reports = self.report(weights, matrix[last], values[last], rng=source)
        ends = np.linspace(0, len(last), _GROUPS + 1).astype(np.int64)
        groups = [self.channel.gather(reports[low:high]) for low, high in pairwise(ends.tolist())]
        return self._solved(weights, np.stack([self.channel.mean(one) for one in groups]), np.diff(ends), len(matrix))

    def _noise(self, users: float) -> float:
        """Return how far noise moves the eigenvalues of A: 2 s sqrt(d), s the standard error of an entry."""
        return 2 * math.sqrt(self.channel.noise / len(self.pairs) / users * len(self.kept))

    def _step(self, means: FloatArray, users: int, *, safe: bool = False) -> FloatArray:
        """Return (A/4)^-1 g, or A^-1 g; where it is ``safe``, without directions that may be noise alone."""
        gram, slope = self._moments(means)
        if self._logistic:
            gram = gram / 4
        if not safe:
            return np.asarray(np.linalg.solve(gram, slope), dtype=np.float64)
        values, vectors = np.linalg.eigh(gram)
        values = np.maximum(values, self._noise(users))
        return np.asarray(vectors @ ((vectors.T @ slope) / values))

    def _solved(self, start: FloatArray, means: FloatArray, sizes: IntArray, users: int) -> Coefficients:
        """Return the estimate from the means of groups, and its errors."""
        counted = int(sizes.sum())
        total = sizes @ means
        smallest = float(np.linalg.eigvalsh(self._moments(total / counted)[0])[0])  # of 4 H for classes
        blind = smallest < _LEAST_SIGNAL * self._noise(counted)
        step = -self._step(total / counted, counted, safe=blind)
        weights, error = start + step, np.full(step.size, np.inf)
        if not blind:
            bias, error = self._bias_and_errors(step, means)
            weights = weights - bias
        full = np.zeros(self.design.width)
        full[self.kept] = weights
        rounds = len(_PHASES) if self._logistic else 1
        value, solution = self._units(weights), self._units(start + step)
        model = Model(full, full, rounds, users)
        return Coefficients(self._names, value, error, len(sizes) - 1, model, solution)

    def _bias_and_errors(self, step: FloatArray, means: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the bias of a step to first order, and its standard errors in the columns' own units, from groups.

        With the true step u, A u + g is noise about zero, and the error e of the step is A^-1 times that. Its bias is
        the mean of A^-1 A_i A^-1 (A_i u + g_i) over the noise of groups. How far A u + g varies is seen between groups
        at a step that differs from u by some f, where it varies more: by A_i f, which adds the covariance of A_i f over
        f on average. At the step that was found f is e, and where e is large, what is seen is large: intervals there
        are too long. So it is looked at without the bias, where f is (1 - B) e, B the mean of A^-1 A_i A^-1 A_i. The
        covariance of f follows from that of e, which is what is sought.
        """
        grams, slopes = (np.stack(each) for each in zip(*map(self._moments, means), strict=True))
        if self._logistic:
            grams = grams / 4
        inverse = np.linalg.inv(grams.mean(axis=0))

        def varied(values: FloatArray) -> FloatArray:
            """Return values of groups less their mean; squares add up to the variance of that mean."""
            return np.asarray((values - values.mean(axis=0)) / math.sqrt(len(values) * (len(values) - 1)))

        apart = varied(grams)
        bias = inverse @ np.einsum("iab,bc,ic->a", apart, inverse, varied(grams @ step + slopes), optimize=True)
        kept = np.eye(len(step)) - inverse @ np.einsum("iab,bc,icd->ad", apart, inverse, apart, optimize=True)
        noise = varied(grams @ (step - bias) + slopes)
        seen = noise.T @ noise
        least, found = float(np.linalg.eigvalsh(seen)[0]) * _LEAST_VARIANCE, seen
        for _ in range(_REFINED):
            spread = kept @ inverse @ found @ inverse @ kept.T
            more = np.einsum("iab,bc,idc->ad", apart, spread, apart, optimize=True)
            values, axes = np.linalg.eigh(seen - more)
            found = axes * np.maximum(values, least) @ axes.T
        full = np.stack([self._units(row) - self._units(np.zeros(len(step))) for row in np.eye(len(step))], axis=1)
        return bias, np.asarray(np.sqrt(np.diag(full @ inverse @ found @ inverse @ full.T)))

    @property
    def _names(self) -> tuple[str, ...]:
        return ("(intercept)", *(self.design.columns[place] for place in self.kept.tolist()[1:]))

    def _units(self, weights: FloatArray) -> FloatArray:
        """Return the intercept and the coefficients in the columns' own units."""
        full = np.zeros(self.design.width)
        full[self.kept] = weights
        slopes, constant = self.design.plain(full)
        if isinstance(self.target, Interval):
            half = self.target.diameter / 2
            slopes, constant = slopes * half, self.target.low + half + half * constant
        return np.append(constant, slopes[self.kept[1:] - 1])

    def expected(self, users: int, rows: Any = None) -> list[dict[str, Any]]:
        """Return before anybody is asked: name, std_error and the least effect that this many users tell from zero.

        ``rows`` stand for those to come: public ones, or some that you make up. Without them, columns are assumed to
        have nothing to do with each other, numbers to be spread evenly over their ranges and categories to be equally
        frequent. A target is assumed that hardly depends on the columns and takes its ends: that is the most it can
        vary. What users tell an effect is found four times in five at 95 %. Both numbers are infinite where the noise
        would hide how the columns go together.

        >>> from noisette.regression import Design
        >>> design = Design((Interval(0, 100),), names=("age",))
        >>> [round(Inference(design, Interval(), 2.0).expected(n)[1]["std_error"], 5) for n in (50, 10_000, 40_000)]
        [inf, 0.00145, 0.00072]
        """
        users = _validate.integer(users, "users", low=1)
        gram = self._even() if rows is None else self._gram(rows)
        noise = self.channel.noise / len(self.pairs)
        people = users * (_PHASES[-1] if self._logistic else 1.0)
        error = np.full(len(gram), np.inf)
        if float(np.linalg.eigvalsh(gram)[0]) >= _LEAST_SIGNAL * self._noise(people):
            scale = 4.0 if self._logistic else 1.0  # of the inverse; residuals are 1/2 of what they may be, for classes
            inverse = scale * np.linalg.inv(gram)
            spread = inverse @ (noise * np.eye(len(gram)) + gram / scale) @ inverse / people
            full = np.stack([self._units(row) - self._units(np.zeros(len(gram))) for row in np.eye(len(gram))], axis=1)
            error = np.sqrt(np.diag(full @ spread @ full.T))
        return [
            {"name": name, "std_error": float(one), "least_effect": float(_POWER * one)}
            for name, one in zip(self._names, error, strict=True)
        ]

    def _gram(self, rows: Any) -> FloatArray:
        """Return the mean of x x^T over some rows."""
        x = self.design.encode(rows)[:, self.kept]
        return np.asarray(x.T @ x / len(x))

    def _even(self) -> FloatArray:
        """Return the mean of x x^T over independent columns, each of them spread evenly."""
        owners, categorical = self.design.owners[self.kept], self.design.categorical[self.kept]
        sizes = [a.size if isinstance(a, Categorical) else 0 for a in self.design.attributes]
        share = np.asarray([1 / sizes[owner] if flag else 0.0 for owner, flag in zip(owners, categorical, strict=True)])
        mean = np.where(np.arange(len(owners)) == 0, 1.0, share)
        gram = np.outer(mean, mean)
        gram[(owners[:, None] == owners) & categorical[:, None]] = 0.0
        np.fill_diagonal(gram, np.where(categorical, share, np.where(np.arange(len(owners)) == 0, 1.0, 1 / 3)))
        return gram
