"""What frequency mechanisms share: category codes in, laws of integer weights, supported categories counted out."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import numpy.typing as npt

from noisette import _random, _validate
from noisette._random import ULP, Rng
from noisette._validate import FloatArray, IntArray
from noisette.cells import Cells, largest_ratio
from noisette.core import Aggregate, Capabilities, Law, Moments, Readout, Tail, Tally
from noisette.domains import BoolArray, Categorical
from noisette.mechanisms._base import BLOCK, BaseMechanism, blocks

_SHORT_REPORT = 16  # numbers, above which a report is called long
UNIT = 1 << 53  # weights of a law that one call of rng.random() samples are integers that add up to at most this
_LEAST_EPSILON = 1e-9
_EPSILON_MARGIN = 2.0**-46


def just_below(epsilon: float) -> float:
    """Return a budget slightly below ``epsilon``, so that rounding of weights and of logs stays inside it."""
    return epsilon - _EPSILON_MARGIN * (1 + epsilon)


def keep_weight(log_odds: float) -> int:
    """Return w, 0 < w < 2^53, for which the odds w : 2^53 - w come nearest to exp(log_odds) from below."""
    small = math.exp(-abs(log_odds))
    share = UNIT * small / (1 + small)
    weight = math.floor(share) if log_odds < 0 else UNIT - math.ceil(share)
    return min(max(weight, 1), UNIT - 1)


def log_fraction(value: Fraction) -> float:
    """Return the log of a fraction, precisely near 1 too."""
    return math.log1p(value - 1) if abs(value - 1) < Fraction(1, 2) else math.log(value)


def log_mass(common: FloatArray, change: FloatArray, epsilon: float) -> FloatArray:
    """Return ``common + change``, rounded so that no two changes of opposite sign move apart.

    The logs of the masses of a long report are so large that their rounding could pass for a loss of privacy. Here
    both terms are rounded to multiples of a step at which the sum is exact, the change toward zero.
    """
    step = 2 * np.spacing(np.abs(common) + epsilon)
    return np.asarray(np.rint(common / step) * step + np.trunc(change / step) * step)


class CategoryLaw(Law, Protocol):
    """A table of reports about categories."""

    def sample(self, codes: IntArray, reports: Any, rng: np.random.Generator) -> None:
        """Write one report for each category."""


@dataclass(frozen=True)
class KeepOrReplace(CategoryLaw):
    """Keep an integer below ``size`` with weight ``keep``, else draw one below ``size``, each with weight ``other``."""

    size: int
    keep: int
    other: int

    @classmethod
    def build(cls, size: int, epsilon: float) -> KeepOrReplace:
        """Return weights, at most 2^53 in all, for which (keep + other) / other is near exp(epsilon) from below."""
        excess = math.expm1(min(just_below(epsilon), 40.0))  # exp(40) is above 2^53
        other = max(1, math.floor(UNIT / (size + excess)))
        keep = min(math.floor(other * excess), UNIT - size * other)
        if keep < 1:
            raise ValueError(
                f"Expected a larger epsilon than {epsilon!r} for {size} categories: "
                "not one of 2^53 draws would keep the true one. Raise epsilon or merge categories."
            )
        return cls(size, keep, other)

    @property
    def total(self) -> int:
        return self.keep + self.size * self.other

    @property
    def p_same(self) -> Fraction:
        """Probability that the input itself is reported."""
        return Fraction(self.keep + self.other, self.total)

    @property
    def p_different(self) -> Fraction:
        """Probability of each other report."""
        return Fraction(self.other, self.total)

    def written(self) -> dict[str, Any]:
        return self.table()

    def table(self) -> dict[str, Any]:
        """Return the weights."""
        return {"kind": "keep-or-replace", "size": self.size, "keep": self.keep, "other": self.other}

    def kinds(self, place: Any) -> tuple[tuple[int, int], ...]:
        """Return the weights of the input itself and of the others."""
        return (1, self.keep + self.other), (self.size - 1, self.other)

    def sample(self, values: IntArray, reports: IntArray, rng: np.random.Generator) -> None:
        """Write one report for each value."""
        for block in blocks(values.size):
            self._sample(values[block], reports[block], rng)

    def _sample(self, values: IntArray, reports: IntArray, rng: np.random.Generator) -> None:
        uniform = rng.random(values.size)
        end = self.total * ULP
        while end < 1 and uniform.max() >= end:
            again = np.flatnonzero(uniform >= end)
            uniform[again] = rng.random(again.size)
        # j / other, for integers j < 2^53, lies at least 1 / other below the next integer and is rounded by less:
        # its floor is exact
        uniform /= self.other * ULP
        reports[...] = uniform
        np.copyto(reports, values, where=uniform >= self.size)


@dataclass(frozen=True)
class Codes:
    """The integers 0, ..., size - 1."""

    size: int

    def __str__(self) -> str:
        return f"the integers 0 ... {self.size - 1}"

    def contains(self, reports: npt.NDArray[Any]) -> BoolArray:
        """Tell which reports are among them."""
        if reports.dtype == np.int64:  # one comparison: negative numbers are huge as unsigned ones
            return np.asarray(reports.view(np.uint64) < self.size)
        return np.asarray((reports >= 0) & (reports < self.size) & whole(reports))


def whole(reports: npt.NDArray[Any]) -> BoolArray:
    """Tell which numbers are integers."""
    return np.asarray(reports == np.floor(reports)) if reports.dtype.kind == "f" else np.ones(reports.shape, dtype=bool)


class CodedReports(BaseMechanism):
    """A mechanism whose reports are arrays of one shape and type, usually of integers."""

    @property
    def report_dtype(self) -> npt.DTypeLike:
        return np.int64

    @abstractmethod
    def _inputs(self, x: Any) -> IntArray:
        """Return admissible inputs."""

    def _reports(self, reports: Any) -> npt.NDArray[Any]:
        """Return reports with their leading axes flattened, refusing what has another shape or type."""
        array = np.asarray(reports)
        wanted = np.dtype(self.report_dtype).kind
        if array.dtype.kind not in ("iufb" if wanted == "f" else "iub"):
            numbers = "numbers" if wanted == "f" else "integers"
            raise TypeError(f"Expected reports of {self.name} to be {numbers}, got an array of {array.dtype}.")
        if array.size == 0:
            raise ValueError(f"Expected at least one report, got an empty array of shape {array.shape}.")
        _validate.trailing(array, self.report_shape, "reports")
        array = array.astype(np.int64, copy=False) if self.report_dtype == np.int64 else array
        return array.reshape(-1, *self.report_shape)


class Supporting(CodedReports):
    """A mechanism whose law is a table, and whose reports support some categories or options.

    One that the user has is supported with probability ``p_own``, any other one with ``p_other``.
    """

    @abstractmethod
    def law(self) -> Law:
        """Return the table."""

    def place(self, x: Any) -> IntArray:
        """Return the inputs themselves: the law knows no more of them."""
        return self._inputs(x)

    def written_law(self) -> dict[str, Any]:
        """Return the table's numbers."""
        return self.law().written()

    @property
    @abstractmethod
    def _support_law(self) -> tuple[Fraction, Fraction]:
        """Exact probabilities that a report supports what the user has, and anything else.

        Where a report is about one option only, they are those of a report about the option.
        """

    @property
    def _joint_law(self) -> tuple[Fraction, Fraction] | None:
        """Exact probabilities that a report supports one of the user's and another one, and two others, if alike."""
        return None

    @property
    def covariances(self) -> tuple[float, float] | None:
        """Covariances of what one report estimates: of one that the user has and another one, and of two others.

        None where they differ from category to category, or are not known.
        """
        if self._joint_law is None:
            return None
        (own, other), (mixed, others) = self._support_law, self._joint_law
        square = (own - other) ** 2
        return float((mixed - own * other) / square), float((others - other * other) / square)

    @property
    def p_own(self) -> float:
        """Probability that a report supports what its user has."""
        return float(self._support_law[0])

    @property
    def p_other(self) -> float:
        """Probability that a report supports anything else."""
        return float(self._support_law[1])


class CategoricalMechanism(CodedReports):
    """A mechanism that takes a category and whose reports add up to the frequencies of all categories."""

    kind: ClassVar[str] = "frequency"
    capabilities: ClassVar[Capabilities] = Capabilities((Categorical,))
    domain: Categorical

    def __post_init__(self) -> None:
        epsilon = _validate.epsilon(self.epsilon)
        if epsilon < _LEAST_EPSILON:
            raise ValueError(f"Expected epsilon={epsilon!r} >= {_LEAST_EPSILON}: below it a report says nothing.")
        if not self.capabilities.takes(self.domain):
            kind = self.capabilities.domains[0].__name__
            remedy = " Build it as Categorical(size) or Categorical(labels=[...])." if kind == "Categorical" else ""
            raise TypeError(f"Expected domain={self.domain!r} to be {kind}.{remedy}")
        object.__setattr__(self, "epsilon", epsilon)

    @classmethod
    def example(cls, epsilon: float) -> Self:
        """Return the mechanism on five categories."""
        return cls(epsilon=epsilon, domain=Categorical(5))  # type: ignore[call-arg]

    @property
    def covariances(self) -> tuple[float, float] | None:
        """Covariances of what one report estimates: of the own and another frequency, and of two others.

        None where they differ from category to category, or are not known.
        """
        return None

    @property
    def bulky(self) -> bool:
        """Whether a report has more than a few numbers."""
        return math.prod(self.report_shape) > _SHORT_REPORT

    @property
    def moments_alike(self) -> Moments | None:
        """Moments for a user of another category and of the own one, None where they differ among categories."""
        return None

    def target(self, x: Any) -> FloatArray:
        """Return the frequencies of all categories."""
        return np.asarray(self._inputs(x)[..., None] == np.arange(self.domain.size), dtype=float)

    @abstractmethod
    def _fill(self, codes: IntArray, reports: npt.NDArray[Any], rng: np.random.Generator) -> None:
        """Write the reports of admissible categories, block by block."""

    @abstractmethod
    def moments(self, x: Any) -> Moments:
        """Return the exact moments of what one report estimates."""

    def _answer(self, x: Any, *, clip: bool, rng: Rng) -> Any:
        """Return one report for each category; a category has no nearest one, so ``clip`` moves nothing."""
        codes = self._inputs(x)
        source = _random.generator(rng)
        flat = codes.reshape(-1)
        reports = np.empty((flat.size, *self.report_shape), dtype=self.report_dtype)
        self._fill(flat, reports, source)
        return reports.reshape(codes.shape + self.report_shape)[()]

    def aggregate(self, reports: Any) -> Aggregate:
        """Sum a batch of reports; the domain's labels name the estimated frequencies."""
        return replace(super().aggregate(reports), names=self.domain.labels)

    def _inputs(self, x: Any) -> IntArray:
        """Return category codes as an array, refusing what names no category."""
        array = np.asarray(x)
        last = self.domain.size - 1
        if array.size == 0:
            raise ValueError(f"Expected at least one category, got an empty array of shape {array.shape}.")
        if array.dtype.kind not in "iu":
            flat = array.reshape(-1)
            odd = flat[flat != np.rint(flat)] if array.dtype.kind == "f" else flat
            bad = (odd if odd.size else flat)[0]
            remedy = "Number the values first" if self.domain.labels is None else "Call domain.encode first"
            raise TypeError(
                f"Expected categories as integers 0 ... {last}, got {bad!r} in an array of {array.dtype}. "
                f"{remedy}; give missing values a category of their own."
            )
        codes = array.astype(np.int64, copy=False)
        low, high = int(codes.min()), int(codes.max())
        if low < 0 or high > last:
            raise ValueError(
                f"Expected categories 0 ... {last}, got {low if low < 0 else high}. "
                "There is no nearest category to clip to: map unknown values to one of their own, such as 'other'."
            )
        return codes


class CountingMechanism(Supporting, CategoricalMechanism):
    """A report supports some categories: the own one with one probability, each other one with another.

    Its law is a table, and what is reported is drawn from that.
    """

    capabilities: ClassVar[Capabilities] = replace(CategoricalMechanism.capabilities, tabled=True)

    @abstractmethod
    def law(self) -> CategoryLaw:
        """Return the table."""

    def _fill(self, codes: IntArray, reports: npt.NDArray[Any], rng: np.random.Generator) -> None:
        self.law().sample(codes, reports, rng)

    @abstractmethod
    def _count(self, reports: npt.NDArray[Any]) -> IntArray:
        """Count for each category the reports that support it."""

    @abstractmethod
    def _alike(self) -> list[tuple[Any, float, Fraction, Fraction]]:
        """Sort all reports by their masses under categories 0 and 1.

        Return a report of each sort, the log of how many there are, and both masses, up to a factor of all.
        """

    def dissect(self) -> Iterator[Cells]:
        """Return the sorts of reports for categories 0 and 1: all pairs of categories are alike."""
        reports, weights, *masses = zip(*self._alike(), strict=True)
        yield Cells.constant((0, 1), np.asarray(reports), weights, largest_ratio(zip(*masses, strict=True)))

    @property
    def code_ends(self) -> tuple[float, float]:
        """A report supports a category or not."""
        return 0.0, 1.0

    @property
    def supported(self) -> tuple[int, int]:
        """How many categories a report supports, at least and at most."""
        return 0, self.domain.size

    @property
    def report_ends(self) -> tuple[Any, Any]:
        """What a report says of a category that it supports or not."""
        return self._said(*self.code_ends)

    def moments(self, x: Any) -> Moments:
        """Return the exact moments of the frequencies that one report estimates.

        The last axis runs over the categories: entry [..., v] is about the estimate of the frequency of v, which
        one report says is (supported - p_other) / (p_own - p_other), when its user's category is x.
        """
        own = self._inputs(x)[..., None] == np.arange(self.domain.size)
        alike = self.moments_alike
        second, third = (np.where(own, row[1], row[0]) for row in (alike.variance, alike.third))
        return Moments(np.zeros(own.shape), second, third)

    @property
    def moments_alike(self) -> Moments:
        gap = float(self._support_law[0] - self._support_law[1])
        second, third = zip(*(central(chance, gap) for chance in self._support_law[::-1]), strict=True)
        return Moments(np.zeros(2), np.asarray(second), np.asarray(third))

    @property
    def readout(self) -> Readout:
        """The share of reports that support a category, less what comes by chance."""
        p_own, p_other = self._support_law
        gap = p_own - p_other
        return Readout(
            offset=float(-p_other / gap),
            scale=float(1 / gap),
            low=0.0,
            high=1.0,
            tail=indicator_tail(p_own, p_other),
        )

    def tally(self, reports: Any) -> Tally:
        flat, size = self._reports(reports), self.domain.size
        total = np.zeros(size, dtype=np.int64)
        # what fits a core's cache, or as much as makes up for a vector of counts
        numbers = max(32 * BLOCK // flat.itemsize, 8 * size)
        for block in blocks(len(flat), max(1, numbers // math.prod(self.report_shape))):
            self.check_support(flat[block])
            total += self._count(flat[block])
        return Tally(len(flat), np.full(size, len(flat), dtype=np.int64), total, total)


def central(probability: Fraction, gap: float) -> tuple[float, float]:
    """Return variance and third absolute central moment of an indicator divided by ``gap``."""
    other = 1 - probability
    variance = probability * other
    return float(variance) / gap**2, float(variance * (probability**2 + other**2)) / gap**3


def indicator_tail(p_own: Fraction, p_other: Fraction) -> Tail:
    """Bound the mean of indicators whose chances lie between p_other and p_own.

    Hoeffding's variance is 1/4; Bernstein's is the largest of p (1 - p), at the price of a scale of 1/3
    (Boucheron, Lugosi, Massart 2013, sections 2.6 and 2.8). The latter is taken where it at least halves the former.
    """
    gap = float(p_own - p_other)
    nearest = min(max(Fraction(1, 2), p_other), p_own)
    variance = float(nearest * (1 - nearest))
    return Tail(variance / gap**2, 1 / (3 * gap)) if variance <= 1 / 8 else Tail(0.25 / gap**2, 0.0)
