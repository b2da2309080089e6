"""LDP-FL's mechanism for the weights of a model: one of two numbers for each, around a public range."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from noisette import _validate
from noisette._search import narrowed
from noisette._special import betainc, gammaln
from noisette._validate import FloatArray
from noisette.cells import Cells, largest_ratio, up
from noisette.core import Capabilities, Moments, Readout, Tail
from noisette.domains import BoolArray, Box, Interval
from noisette.guarantees import Claim, Guarantee, warn_unsound
from noisette.mechanisms._base import blocks, check_width
from noisette.mechanisms.scalar.duchi import Duchi, TwoPoint
from noisette.mechanisms.vector._vectors import VectorMechanism

_CANONICAL = Interval()
_SMALLEST_BUDGET = 9e-13  # budget of a weight below which the two numbers are too far out for float64
_ENUMERATED = 1024  # weights up to which all reports are sorted by how many are high


def composed_delta(count: int, epsilon: float, total: float) -> float:
    """Return the exact delta at ``total`` of ``count`` two-point answers of budget ``epsilon`` each.

    Formula: with k of the answers high the loss is (2k - n) e, and k is binomial with p = 1 / (1 + exp(-e)) or 1 - p;
    delta = P(K >= m) - exp(total) P(K' >= m), m the least k of a loss above ``total``.

    >>> round(composed_delta(1, 1.0, 0.0), 6)  # tanh(1/2)
    0.462117
    """
    first = math.floor((count + total / epsilon) / 2) + 1
    if first > count:
        return 0.0
    p_high = 1 / (1 + math.exp(-epsilon))
    own = float(betainc(first, count - first + 1, p_high)) if first > 0 else 1.0
    other = float(betainc(first, count - first + 1, math.exp(-epsilon) * p_high)) if first > 0 else 1.0
    return max(own - math.exp(total + math.log(other)), 0.0) if other > 0 else own


@lru_cache(maxsize=256)
def _budget_of_one(count: int, epsilon: float, delta: float) -> float:
    """Return the largest budget of each of ``count`` answers that are (epsilon, delta)-DP together, by bisection."""

    def holds(one: float) -> bool:
        return composed_delta(count, one, epsilon) <= delta * (1 - 1e-8)

    return narrowed(holds, epsilon / count, epsilon + 40.0, tolerance=1e-13)[0]


_SHUFFLED = (
    "Theorem 1 is about one weight. For a whole model the authors rely on parameter shuffling, by which the "
    "server cannot link a client's weights, and concede T d epsilon without it: d epsilon for one round, which is "
    "what holds in the local model of this row. Behind a shuffler the weights of a client still compose; "
    "`noisette federate` prints what holds then."
)


@dataclass(frozen=True)
class Ends:
    """Vectors that hold one of two numbers in each dimension."""

    dims: int
    low: FloatArray
    high: FloatArray

    def __str__(self) -> str:
        ends = ", ".join(f"{float(np.reshape(end, -1)[0]):g}" for end in (self.low, self.high))
        return f"{{{ends}}}^{self.dims}" if self.low.ndim == 0 else f"{{{ends}}} x ..., {self.dims} dimensions"

    def contains(self, reports: npt.NDArray[Any]) -> BoolArray:
        """Tell which vectors hold nothing else."""
        return np.asarray(((reports == self.low) | (reports == self.high)).all(axis=-1))


def adaptive_range(weights: Any) -> Interval:
    """Return the range [c - r, c + r] that weights span, to be published for the next round.

    Formula: c = (largest + least) / 2, r = (largest - least) / 2. Give it the *noisy* weights of the last round, or
    their mean, never clean ones: the range is public.
    Sun, Qian, Chen 2021, Algorithm 1.

    >>> adaptive_range([0.1, -0.3, 0.2])
    Interval(low=-0.3, high=0.2)
    """
    values = _validate.reals(weights, "weights")
    low, high = float(values.min()), float(values.max())
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"Expected finite weights that differ, got a range from {low} to {high}. Keep the last range.")
    return Interval(low, high)


@dataclass(frozen=True)
class AdaptiveDuchi(VectorMechanism):
    """Report one of two numbers for each weight of a layer, around the layer's public centre and radius.

    Formula, weight w in [c - r, c + r]: report c +- r (exp(b) + 1) / (exp(b) - 1),
    P(+) = ((w - c)(exp(b) - 1) + r (exp(b) + 1)) / (2 r (exp(b) + 1)), b the budget of one weight.
    The domain is the box of all [c - r, c + r]; `adaptive_range` gives the next one from noisy weights.

    *Guarantee*: epsilon-LDP for the whole vector: each of d weights gets b = epsilon / d. With ``delta`` each gets the
    largest b at which d answers are (epsilon, delta)-LDP together, by the exact binomial law of the loss.
    ``as_published=True`` gives every weight b = epsilon and claims that for the model. What holds is epsilon for one
    weight (unit element, see `per_weight`) and d epsilon for the vector. Splitting the vector and shuffling its weights
    does not change that, and the budgets of rounds add up.
    *Utility*: unbiased; variance r^2 ((exp(b) + 1) / (exp(b) - 1))^2 - (w - c)^2 a weight (Lemma 2 forgets the last
    term). At epsilon = 1 for the vector that is about 4 d^2 r^2, where sampling one weight (`Sampled` with Duchi) costs
    4.7 d r^2. It pays with a delta, or where one weight is the unit.
    Sun, Qian, Chen 2021, Algorithm 2, Theorem 1; the two numbers are those of Duchi, Jordan, Wainwright 2018.

    >>> m = AdaptiveDuchi(epsilon=4.0, domain=Box(4, -0.3, 0.1))
    >>> m.per_weight.epsilon, np.unique(m.privatize(np.zeros((50, 4)), rng=7)).round(4).tolist()
    (1.0, [-0.5328, 0.3328])
    """

    epsilon: float
    dims: int = None  # type: ignore[assignment]  # taken from the domain
    _: KW_ONLY
    domain: Box = None  # type: ignore[assignment]  # __post_init__ puts Box(dims)
    delta: float = 0.0
    as_published: bool = False
    coupling: ClassVar[float] = 0.0  # weights are answered independently
    name: ClassVar[str] = "adaptive-duchi"
    citation: ClassVar[str] = "sun2021ldpfl"
    uncertified: ClassVar[str] = "the verifier does not sum the binomial law of a delta yet; leave delta out"
    dtype: ClassVar[type[Any]] = np.float64
    capabilities: ClassVar[Capabilities] = Capabilities((Box,), delta="optional", entrywise=True, claims_entry=True)

    def __post_init__(self) -> None:
        self._settle()
        check_width(self.domain)
        object.__setattr__(self, "delta", _validate.delta(self.delta))
        if self.as_published and self.delta > 0:
            raise ValueError(
                f"Expected delta=0 for the published form, got delta={self.delta}: it claims a pure epsilon."
            )
        if self.weight_epsilon < _SMALLEST_BUDGET:
            raise ValueError(
                f"Expected epsilon={self.epsilon!r} to leave each of {self.dims:,} weights 1e-12 or more, got "
                f"{self.weight_epsilon:.3g}. Give a delta such as 1e-6, or report fewer weights."
            )
        if not self.guarantee.claim_holds:
            warn_unsound(f"{type(self).__name__}(as_published=True)", self.guarantee)

    @classmethod
    def example(cls, epsilon: float) -> Self:
        """Return the mechanism for three weights in [-1, 1]."""
        return cls(epsilon=epsilon, dims=3)

    @classmethod
    def by_entry(cls, domain: Box, *, epsilon: float) -> Self:
        """Return the mechanism in which every weight has the budget ``epsilon``."""
        return cls(epsilon=epsilon * domain.dims, domain=domain)

    @property
    def entry(self) -> Duchi:
        """The mechanism of one weight on [-1, 1]."""
        return Duchi(epsilon=self.weight_epsilon)

    @property
    def two_numbers(self) -> tuple[float, float] | None:
        """The numbers of each weight, if all have the same."""
        return (float(self.support.low), float(self.support.high)) if self._shared else None

    @cached_property
    def weight_epsilon(self) -> float:
        """Budget b of one weight."""
        if self.as_published:
            return self.epsilon
        if self.delta == 0:
            return self.epsilon / self.dims
        return _budget_of_one(self.dims, self.epsilon, self.delta)

    @property
    def guarantee(self) -> Guarantee:
        """Return the guarantee for the whole vector, and the published claim."""
        claim = Claim(self.epsilon, self.delta, source=self.citation, reading=_SHUFFLED if self.as_published else "")
        return Guarantee(self.dims * self.epsilon if self.as_published else self.epsilon, self.delta, claim=claim)

    @property
    def per_weight(self) -> Guarantee:
        """Return what holds for one weight, the others being known: Theorem 1."""
        return Guarantee(self.weight_epsilon, unit="element")

    @cached_property
    def _pair(self) -> TwoPoint:
        """The two reports of a weight on [-1, 1]."""
        return TwoPoint.build(_CANONICAL, self.weight_epsilon)

    def written_law(self) -> dict[str, Any] | None:
        """Return the two possible numbers of every weight; a report has one for each weight."""
        law = self._pair.written()
        return {"kind": "sampled", "dims": self.dims, "report": self.dims, "part": law} if self.delta == 0 else None

    @cached_property
    def _scale(self) -> tuple[FloatArray, FloatArray]:
        """Centre and radius: numbers where they are the same in every dimension."""
        low, high = np.asarray(self.domain.low), np.asarray(self.domain.high)
        return np.asarray(low + (high - low) / 2), np.asarray((high - low) / 2)

    @property
    def _shared(self) -> bool:
        """Tell whether all dimensions have the same two numbers."""
        return self._scale[0].ndim == self._scale[1].ndim == 0

    @cached_property
    def support(self) -> Ends:
        """The two numbers of each dimension."""
        centre, radius = self._scale
        return Ends(
            self.dims, np.asarray(centre + radius * self._pair.low), np.asarray(centre + radius * self._pair.high)
        )

    def _canonical(self, rows: FloatArray, columns: slice = slice(None)) -> FloatArray:
        """Map some dimensions of vectors on [-1, 1]."""
        centre, radius = (_cut(end, columns) for end in self._scale)
        if self._shared and centre == 0 and radius == 1:
            return rows
        canonical = rows - centre
        canonical /= radius
        return np.clip(canonical, -1.0, 1.0, out=canonical)  # the division may round past an end

    def _perturb(self, rows: FloatArray, rng: np.random.Generator, reports: npt.NDArray[Any]) -> None:
        for block in blocks(self.dims):
            p_high = self._pair.p_high(self._canonical(rows[:, block], block))
            high = rng.random(p_high.shape) < p_high
            if self._shared:  # faster than choosing, as nobody can guess which it will be
                np.take((self.support.low, self.support.high), high.view(np.int8), out=reports[:, block], mode="clip")
            else:
                reports[:, block] = np.where(high, _cut(self.support.high, block), _cut(self.support.low, block))

    def _codes(self, rows: npt.NDArray[Any]) -> FloatArray:
        return np.asarray(rows == self.support.high, dtype=np.float64)

    def moments(self, x: Any) -> Moments:
        """Return the exact moments of a report, which takes two values."""
        p_low, p_high = self._pair.masses(self._canonical(self._inputs(x)))
        span = self._scale[1] * (self._pair.high - self._pair.low)
        variance = span**2 * p_low * p_high
        return Moments(np.zeros_like(variance), variance, span * variance * (p_low**2 + p_high**2))

    def log_prob(self, report: Any, x: Any) -> FloatArray:
        """Return the log mass of a vector of reports, -inf for others."""
        reports = np.asarray(report, dtype=float)
        possible = self.support.contains(reports)
        p_low, p_high = self._pair.masses(self._canonical(self._inputs(x)))
        mass = np.where(reports == self.support.high, np.log(p_high), np.log(p_low)).sum(axis=-1)
        return np.where(possible, mass, -np.inf)

    def witnesses(self) -> tuple[FloatArray, FloatArray]:
        """Return two opposite corners of the box and the reports on their sides."""
        corners = np.stack([self.domain.lows, self.domain.highs])
        return corners, np.stack([np.broadcast_to(end, self.dims) for end in (self.support.low, self.support.high)])

    def dissect(self) -> Iterator[Cells]:
        """Sort the reports by how many of their numbers are high, for opposite corners of the box.

        Given the vector, answers are independent. Laws that are products are farthest apart where all their factors
        are, and each factor is affine in its weight. Above 1,024 weights only the two worst reports are returned.
        """
        first, second = np.stack([self.domain.lows, self.domain.highs])
        complete = self.dims <= _ENUMERATED
        number = np.arange(self.dims + 1) if complete else np.asarray([0, self.dims])
        reports = np.where(np.arange(self.dims) < number[:, None], self.support.high, self.support.low)
        weights = gammaln(self.dims + 1) - gammaln(number + 1) - gammaln(self.dims - number + 1)
        one = largest_ratio(self._pair.exact_masses((-1.0, 1.0)))
        cells = Cells.constant((first, second), reports, weights, up(self.dims * Fraction(one)))
        yield replace(cells, complete=complete)

    @property
    def report_ends(self) -> tuple[FloatArray, FloatArray]:
        """The two numbers that a report has."""
        return self._said(0.0, 1.0)

    @cached_property
    def readout(self) -> Readout:
        """The plain mean of the reports, from the count of high ones."""
        span = self.support.high - self.support.low
        return Readout(
            offset=self.support.low,
            scale=span,
            low=np.asarray(self.domain.low),
            high=np.asarray(self.domain.high),
            tail=Tail(span**2 / 4, 0.0),  # Hoeffding: the estimate takes two values
        )


def _cut(end: FloatArray, columns: slice) -> FloatArray:
    """Return the numbers of some dimensions, or the one that all share."""
    return end if end.ndim == 0 else end[columns]
