"""Covariance by a Johnson-Lindenstrauss sketch, with the exact delta of Gaussian projections."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from noisette import _random, _validate
from noisette._random import Rng
from noisette._search import narrowed
from noisette._special import chdtr, chdtrc, gammaln, gauss_legendre, multigammaln
from noisette._validate import FloatArray
from noisette.cells import Cells
from noisette.core import Capabilities, Moments, Readout, Tail, Tally
from noisette.domains import TensorBall
from noisette.guarantees import Guarantee, gaussian_mu
from noisette.mechanisms._base import BaseMechanism, check_width, coarseness, power_of_two
from noisette.mechanisms.tensor._tensors import TensorLattice
from noisette.mechanisms.tensor._whole import open_array
from noisette.mechanisms.tensor.gaussian._sketches import rounded_sketches

_MOST_PROJECTIONS = 1 << 24
_FINENESS = 2.0**20  # output steps in the least standard deviation of an entry
_HALF = 2.0**21  # an entry of a table is two whole numbers below this, high and low
_CHUNK = 1 << 11  # rows whose products of such numbers float64 adds up exactly
_SHORTER = 1 - 2.0**-38  # more than lengths that float64 finds may be too small by, and that rows may be too long by
_ROOT = 2.0**24  # steps of a sketch in the least deviation of its entries
_BITS, _SLACK = 256, -150  # of tails that are proved; what they are moved by, as a power of two, pays for roundings
_PANELS, _NODES = 2000, 5


def jl_delta(projections: int, leverage: float, epsilon: float) -> float:
    """Return the exact delta of a Gaussian sketch for a row of this leverage.

    Formula, r projections and leverage h: in the direction of the row, a sketch with the row has r variables of
    variance 1, a sketch without it r variables of variance 1 - h. With u+- = 2 (1-h) (+-e - (r/2) ln(1-h)) and
    chi-square laws of r degrees,
    delta = max{sf(u+/h) - exp(e) sf(u+/(h(1-h))), cdf(u-/(h(1-h))) - exp(e) cdf(u-/h)}, the second zero if u- <= 0.

    >>> f"{jl_delta(20, 0.05, 0.5):.4e}"
    '6.2716e-04'
    """
    other = 1 - leverage
    shift = -(projections / 2) * math.log1p(-leverage)
    above, below = 2 * other * (epsilon + shift) / leverage, 2 * other * (shift - epsilon) / leverage
    with_row = _excess(chdtrc(projections, above), chdtrc(projections, above / other), epsilon)
    without = _excess(chdtr(projections, below / other), chdtr(projections, below), epsilon) if below > 0 else 0.0
    return max(with_row, without)


def _excess(own: float, other: float, epsilon: float) -> float:
    """Return (own - exp(epsilon) other)_+ without overflow; from above where the other underflows, at epsilon > 600."""
    return max(float(own) - math.exp(epsilon + math.log(other)), 0.0) if other > 0 else float(own)


def delta_above(projections: int, leverage: float, epsilon: float) -> Any:
    """Return a limit above `jl_delta`, proved, with the digits of mpmath.

    The tails are sums of positive terms, so the error of each is at most the roundings of its terms and the geometric
    series that bounds the terms left out; the limit is moved up by far more than that. At the place where the excess of
    one law over the other is largest its slope is zero, so the rounding of that place changes it by far less, too.
    """
    import mpmath

    with mpmath.workprec(_BITS + 64 + int(4 * epsilon)):
        whole = mpmath.mpf(1)
        h, count = mpmath.mpf(leverage), mpmath.mpf(projections)
        shift, ratio = -count / 2 * mpmath.log1p(-h), mpmath.exp(epsilon)
        above, below = (2 * (1 - h) * (shift + sign * mpmath.mpf(epsilon)) / h for sign in (1, -1))
        more, less = whole + mpmath.ldexp(1, _SLACK), whole - mpmath.ldexp(1, _SLACK)
        (_, first), (_, second) = _tails(projections, above), _tails(projections, above / (1 - h))
        found = first * more - ratio * second * less
        if below > 0:
            (first, _), (second, _) = _tails(projections, below / (1 - h)), _tails(projections, below)
            found = max(found, first * more - ratio * second * less)
        return found + mpmath.ldexp(1, _SLACK)


def _tails(degrees: int, place: Any) -> tuple[Any, Any]:
    """Return the chances that a chi-square variable is below a place, and above it.

    Formula, a = degrees / 2 and x half the place: below a, P = x^a e^-x / Gamma(a + 1) (1 + x/(a+1) + x^2/((a+1)(a+2))
    + ...); above, Q = x^(a-1) e^-x / Gamma(a) (1 + (a-1)/x + (a-1)(a-2)/x^2 + ...), as many terms as there are whole
    numbers below a + 1/2, and erfc(sqrt x) where a is no whole number.
    """
    import mpmath

    a, x = mpmath.mpf(degrees) / 2, place / 2
    low = x < a
    power = a * mpmath.log(x) - x - mpmath.loggamma(a + 1)
    factor = mpmath.exp(power if low else power + mpmath.log(a / x))
    # the terms fall, in whole numbers of 2^-(2 bits); what is left out is below 2^26 times the first one left out
    bits, double = 2 * _BITS, int(mpmath.ldexp(place, _BITS))
    total, term, number = 0, 1 << bits, 0
    while term >> (bits - _BITS - 26) and (low or 2 * number + 1 < degrees):
        total += term
        number += 1
        if low:
            term = (term * double >> _BITS) // (degrees + 2 * number)
        else:
            term = (term * (degrees - 2 * number) << _BITS) // double
    one = factor * mpmath.ldexp(total, -bits) + (mpmath.erfc(mpmath.sqrt(x)) if degrees % 2 and not low else 0)
    return (one, 1 - one) if low else (1 - one, one)


@lru_cache(maxsize=256)
def largest_leverage(projections: int, epsilon: float, delta: float) -> float:
    """Return a leverage at which a sketch is proved to be (epsilon, delta)-DP, nearly the largest one."""
    found, room = _bisected(projections, epsilon, delta), 2.0**-40
    while delta_above(projections, found, epsilon) > delta:
        found *= 1 - room
        room *= 4
    return found


def _bisected(projections: int, epsilon: float, delta: float) -> float:
    """Return the largest leverage by `jl_delta` in float64, by bisection: delta grows with it."""

    def holds(logit: float) -> bool:
        return jl_delta(projections, 1 / (1 + math.exp(-logit)), epsilon) <= delta * (1 - 1e-9)

    return 1 / (1 + math.exp(-narrowed(holds, -60.0, 60.0, absolute=1e-50)[0]))


@dataclass(frozen=True)
class JohnsonLindenstrauss(BaseMechanism):
    """Publish the second-moment matrix X'X / n of a table through random projections of it.

    Formula: r variables from N(0, X'X + w^2 I); the report is the mean of their outer products, less w^2 I, over n.
    w is the least at which a row of the largest length B has a leverage B^2 / (B^2 + w^2) that `jl_delta` allows.

    *Guarantee*: (epsilon, delta)-DP for one row, added or removed (set to zero), n being public, to the last bit: rows
    are rounded towards zero to 2^-41 of B, so that X'X is a matrix of whole numbers; a report is a function of a sketch
    of real numbers that is rounded exactly; delta is a sum of positive terms that is rounded up.
    *Utility*: unbiased; entry (i, j) has variance (M_ij^2 + M_ii M_jj) / (r n^2), M = X'X + w^2 I. More projections are
    better; in the limit of many this is symmetric Gaussian noise, which is therefore never worse, and which
    `noisette.release_covariance` adds by default. The default r is so large that little is lost.
    Blocki, Blum, Datta, Sheffet 2012, Algorithm 3; its delta there is a bound, here it is exact.

    >>> m = JohnsonLindenstrauss(TensorBall((100, 3), radius=1.0, mode=0), epsilon=1.0, delta=1e-5, projections=500)
    >>> round(m.ridge, 2)  # w^2
    63.19
    """

    domain: TensorBall
    epsilon: float
    delta: float = 1e-6
    _: KW_ONLY
    projections: int | None = None
    name: ClassVar[str] = "jl"
    kind: ClassVar[str] = "covariance"
    capabilities: ClassVar[Capabilities] = Capabilities((TensorBall,), delta="needed", model="central")
    citation: ClassVar[str] = "blocki2012johnson"

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", _validate.epsilon(self.epsilon))
        object.__setattr__(self, "delta", _validate.delta(self.delta, positive=True))
        if not isinstance(self.domain, TensorBall) or self.domain.mode != 0 or len(self.domain.dims) != 2:
            raise TypeError(
                f"Expected domain={self.domain!r} to hold tables whose rows have a public bound on their length, "
                "e.g. TensorBall((1000, 20), radius=1.0, mode=0)."
            )
        check_width(self.domain)
        number = self._usual_projections if self.projections is None else self.projections
        number = _validate.integer(number, "projections", low=1, high=_MOST_PROJECTIONS)
        object.__setattr__(self, "projections", number)

    @classmethod
    def example(cls, epsilon: float) -> Self:
        """Return the mechanism for tables of four rows and two columns, with twelve projections."""
        return cls(TensorBall((4, 2), radius=1.0, mode=0), epsilon, projections=12)

    @property
    def _usual_projections(self) -> int:
        """64 times the number at which projecting the data errs as much as Gaussian noise does."""
        rows, columns = self.domain.dims
        balanced = 2 * (rows * gaussian_mu(self.epsilon, self.delta) / columns) ** 2
        return math.ceil(min(max(64 * balanced, columns, 64.0), _MOST_PROJECTIONS))

    @property
    def _count(self) -> int:
        assert self.projections is not None  # settled by __post_init__
        return self.projections

    @property
    def guarantee(self) -> Guarantee:
        """Return the guarantee for one row."""
        return Guarantee(self.epsilon, self.delta, "record", "central", "add-remove")

    @cached_property
    def leverage(self) -> float:
        """Largest leverage of a row."""
        return largest_leverage(self._count, self.epsilon, self.delta)

    @cached_property
    def _unit(self) -> float:
        """Steps of the entries of a table, a power of two."""
        return 2 * power_of_two(self.domain.radius) / _HALF**2

    @cached_property
    def _whole_ridge(self) -> int:
        """w^2 in squares of the unit: a whole number that float64 holds."""
        leverage = Fraction(self.leverage)
        needed = (Fraction(self.domain.radius) / Fraction(self._unit)) ** 2 * (1 - leverage) / leverage
        found = float(math.ceil(needed))
        return int(found if found >= needed else math.nextafter(found, math.inf))

    @property
    def ridge(self) -> float:
        """w^2, added to the diagonal before projecting and taken off after."""
        return self._whole_ridge * self._unit**2

    def written_law(self) -> dict[str, Any]:
        """Return how many variables are drawn, and what is added to the diagonal before, exactly."""
        return {"kind": "sketch", "projections": self._count, "ridge": self._whole_ridge * Fraction(self._unit) ** 2}

    @cached_property
    def _step(self) -> float:
        return power_of_two(self.ridge / math.sqrt(self._count) / self.domain.dims[0]) / _FINENESS

    @cached_property
    def support(self) -> TensorLattice:
        """Matrices on the lattice."""
        columns = self.domain.dims[1]
        return TensorLattice((columns, columns), 0.0, self._step)

    @property
    def report_shape(self) -> tuple[int, ...]:
        """A matrix over the columns."""
        return (self.domain.dims[1],) * 2

    def target(self, x: Any) -> FloatArray:
        """Return what is estimated: X'X / n."""
        values = np.asarray(x, dtype=float)
        return np.asarray(np.swapaxes(values, -1, -2) @ values / self.domain.dims[0])

    def _spread(self, x: Any) -> FloatArray:
        """Return X'X + w^2 I."""
        return np.asarray(self.target(x) * self.domain.dims[0] + self.ridge * np.eye(self.domain.dims[1]))

    def _answer(self, x: Any, *, clip: bool, rng: Rng) -> Any:
        """Return one report for each table along the last two axes."""
        values, restore = open_array(x)
        values = self._admit(values, clip=clip)
        columns, count = self.domain.dims[1], self._count
        lead = values.shape[:-2]
        matrices = self._whole_spread(values.reshape(-1, *self.domain.dims))
        step = power_of_two(math.sqrt(self._whole_ridge)) / _ROOT
        root = rounded_sketches(matrices, count, step, _random.generator(rng)) * self._unit
        # from here on everything follows from the sketch
        mean = root @ np.swapaxes(root, -1, -2) / count
        report = ((mean - self.ridge * np.eye(columns)) / self.domain.dims[0]).reshape(*lead, columns, columns)
        return restore(self.support.nearest((report + np.swapaxes(report, -1, -2)) / 2))

    def _whole_spread(self, values: FloatArray) -> Any:
        """Return X'X + w^2 I in squares of the unit, whole numbers, of rows rounded towards zero."""
        codes = np.trunc(values * (_SHORTER / self._unit))
        high = np.trunc(codes / _HALF)
        halves = (high, codes - high * _HALF)
        total: Any = np.zeros((len(codes), *self.report_shape), dtype=object)
        for start in range(0, codes.shape[1], _CHUNK):
            parts = [half[:, start : start + _CHUNK] for half in halves]
            for (i, one), (j, two) in itertools.product(enumerate(parts), repeat=2):
                total += (np.swapaxes(one, -1, -2) @ two).astype(np.int64).astype(object) * int(_HALF) ** (2 - i - j)
        total[:, *np.diag_indices(self.report_shape[0])] += self._whole_ridge
        return total

    def _admit(self, values: FloatArray, *, clip: bool) -> FloatArray:
        """Return tables whose rows are short enough, shortened where asked."""
        _validate.trailing(values, self.domain.dims, "x")
        if not np.isfinite(values).all():
            raise ValueError(f"Expected finite values, got {values[~np.isfinite(values)][0]}. Remove or impute them.")
        if clip:
            return self.domain.clip(values)
        longest = float(self.domain.norms(values).max())
        if longest > self.domain.radius * (1 + 1e-12):
            raise ValueError(
                f"Expected rows of length at most {self.domain.radius:g}, got {longest:g}. Give the public bound in "
                "the domain, or pass clip=True to shorten longer rows."
            )
        return values

    def moments(self, x: Any) -> Moments:
        """Return exact bias and variance of each entry; the third moment is sqrt(E z^2 E z^4), an upper bound of it."""
        spread = self._spread(self._admit(_validate.reals(x), clip=False))
        diagonal = np.diagonal(spread, axis1=-2, axis2=-1)
        both = diagonal[..., :, None] * diagonal[..., None, :]
        count, rows = self._count, self.domain.dims[0]
        variance = (spread**2 + both) / (count * rows**2)
        fourth = 6 * (both**2 + 6 * both * spread**2 + spread**4) / (count**3 * float(rows) ** 4)
        return Moments(np.zeros_like(variance), variance, np.sqrt(variance * (3 * variance**2 + fourth)))

    def log_prob(self, report: Any, x: Any) -> FloatArray:
        """Return the log density of a report, Wishart's; with fewer projections than columns, up to a common factor."""
        columns, count = self.domain.dims[1], self._count
        scale = float(count * self.domain.dims[0])
        sums = np.asarray(report, dtype=float) * scale + count * self.ridge * np.eye(columns)
        spread = self._spread(x)
        volume = np.linalg.slogdet(spread)[1]
        distance = np.einsum("...ij,...ji->...", np.linalg.inv(spread), sums)
        result = -(count * volume + distance) / 2
        if count < columns:
            return np.asarray(result)
        sign, log_det = np.linalg.slogdet(sums)
        known = (count - columns - 1) / 2 * log_det + columns * (columns + 1) / 2 * math.log(scale)
        normaliser = count * columns / 2 * math.log(2) + float(multigammaln(count / 2, columns))
        return np.where(sign > 0, result + np.where(sign > 0, known, 0.0) - normaliser, -np.inf)

    def witnesses(self) -> tuple[FloatArray, FloatArray]:
        """Return a table with one row of full length and one without it, and reports of both."""
        inputs = np.zeros((2, *self.domain.dims))
        inputs[0, 0, 0] = self.domain.radius
        return inputs, self.support.nearest(np.concatenate([self.target(inputs), self.target(2 * inputs[:1])]))

    def dissect(self) -> Iterator[Cells]:
        """Cut reports by their entry in the direction of the row.

        Only that part of a report depends on the row; it is a multiple of a chi-square variable with the row and
        without it. A row of the largest leverage is the worst: in an exponential family, the farther apart two
        parameters are, the easier they are to distinguish. A shorter row has less leverage, and so has a row in whose
        direction the rest of the table is larger.
        """
        inputs, _ = self.witnesses()
        leverage = self.domain.radius**2 / (self.domain.radius**2 + self.ridge)
        count, small = float(self._count), 1 - leverage
        # t / ridge is chi-square without the row, and 1 / small times that with it
        shift = -(count / 2) * math.log1p(-leverage)
        kinks = [2 * (sign * self.epsilon + shift) / leverage for sign in (1.0, -1.0)]
        spread = 14 * math.sqrt(2 * count) + 110
        edges = np.geomspace(max(count - spread, count * 1e-6, 1e-6), (count + spread) / small, _PANELS)
        edges = np.unique(np.concatenate([edges, [kink for kink in kinks if edges[0] < kink < edges[-1]]]))
        node, weight = gauss_legendre(_NODES)
        half = np.diff(edges)[:, None] / 2
        t = (edges[:-1, None] + half * (node + 1)).reshape(-1)
        log_mass = (count / 2 - 1) * np.log(t) - t / 2 - count / 2 * math.log(2) - float(gammaln(count / 2))
        log_mass += np.log((weight * half).reshape(-1))
        reports = self._along(t)
        log_weight = log_mass - self.log_prob(reports, inputs[1])
        far = self._along(np.asarray([1e3, 2e3]) * edges[-1])
        yield Cells(
            pair=(inputs[0], inputs[1]),
            nodes=(np.concatenate([reports, far[:1]]), np.concatenate([reports, far[1:]])),
            log_weight=np.append(log_weight, -1e5 - np.abs(log_weight).max()),  # a tail that shows how ratios end
            places=np.append(np.ones(t.size), math.inf),
            span=np.append(np.ones(t.size), 1e3 * edges[-1]),
            tilt=np.zeros(t.size + 1),
        )

    def _along(self, t: FloatArray) -> FloatArray:
        """Return reports of sums that hold t w^2 in the first direction and r w^2 in the others."""
        sums = np.zeros((t.size, self.domain.dims[1], self.domain.dims[1]))
        sums[:] = np.eye(self.domain.dims[1]) * self._count
        sums[:, 0, 0] = t
        return np.asarray((sums / self._count - np.eye(self.domain.dims[1])) * self.ridge / self.domain.dims[0])

    def tally(self, reports: Any) -> Tally:
        """Reduce a batch of reports to integer sums per entry, entries in row-major order."""
        values, _ = open_array(reports, "reports")
        _validate.trailing(values, self.support.shape, "reports")
        self.check_support(values.reshape(-1, *self.support.shape))
        codes = np.rint(values.reshape(-1, math.prod(self.support.shape)) / self._step)
        squares = np.rint(np.square(codes / self.readout.coarse)).astype(np.int64).sum(axis=0)
        users = np.full(codes.shape[1], len(codes), dtype=np.int64)
        return Tally(len(codes), users, codes.astype(np.int64).sum(axis=0), squares)

    @cached_property
    def readout(self) -> Readout:
        """The plain mean of the reports."""
        rows, bound = self.domain.dims[0], self.domain.radius**2
        largest = bound + self.ridge / rows
        return Readout(
            offset=0.0,
            scale=self._step,
            low=-bound,
            high=bound,
            tail=Tail(2 * largest**2 / self._count + bound**2, 2 * largest / self._count),
            coarse=coarseness(max(largest * math.sqrt(2 / self._count), bound) / self._step),
        )


def rss(estimate: npt.ArrayLike, truth: npt.ArrayLike) -> float:
    """Return the residual sum of squares of an estimated covariance: sum of (lambda_i - v_i' S v_i)^2.

    lambda_i and v_i are eigenvalues and eigenvectors of the estimate, S is the truth (Yang et al. 2021, eq. 33).

    >>> rss([[2.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]])
    1.0
    """
    found, real = (np.asarray(matrix, dtype=float) for matrix in (estimate, truth))
    if found.shape != real.shape or found.ndim != 2 or found.shape[0] != found.shape[1]:
        raise ValueError(f"Expected two square matrices of one size, got shapes {found.shape} and {real.shape}.")
    values, vectors = np.linalg.eigh((found + found.T) / 2)
    return float(np.square(values - np.einsum("ji,jk,ki->i", vectors, real, vectors)).sum())
