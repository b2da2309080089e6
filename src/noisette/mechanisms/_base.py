"""What every mechanism shares: its JSON description, its aggregate, and the way scalars are privatised."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import numpy.typing as npt

from noisette import _random, _validate
from noisette._random import Rng
from noisette._validate import FloatArray
from noisette.core import OVERFLOW, Aggregate, Capabilities, Law, Moments, Readout, Support, Tally
from noisette.domains import BoolArray, Box, Domain, Grid, Interval, TensorDomain
from noisette.guarantees import Claim, Guarantee

BLOCK = 1 << 14  # values worked on at a time: what they need stays in a core's cache
_BUDGETS = (1e-7, 1e6)
_WIDTHS = (1e-90, 1e90)  # cubes of noise over them stay within float64
_FARTHEST = 2.0**20  # in units of coarse, so beyond 2^13 spreads: noise goes there with probability below exp(-8000)
_LARGEST_CODE = 2.0**48  # keeps the sum of a block within 64 bits; noise goes there with probability below exp(-200)


@dataclass(frozen=True)
class Lattice:
    """The reports origin + step k for integers k, between ``low`` and ``high``."""

    origin: float
    step: float
    low: float = -math.inf
    high: float = math.inf

    def __str__(self) -> str:
        return f"{self.origin:g} + {self.step:g} k in [{self.low:g}, {self.high:g}]"

    def index(self, reports: npt.NDArray[Any]) -> FloatArray:
        """Return the integer k of the nearest point."""
        with np.errstate(over="ignore"):
            return np.asarray(np.rint((reports - self.origin) / self.step))

    def exact_index(self, reports: FloatArray) -> FloatArray | None:
        """Return the integers k if a quick look finds every report on the lattice and within its ends."""
        with np.errstate(over="ignore"):
            position = reports - self.origin
            position *= 1 / self.step
        index = np.rint(position)
        low, high = float(reports.min()), float(reports.max())
        known = math.isfinite(low) and math.isfinite(high) and self.low <= low and high <= self.high
        return index if known and np.array_equal(position, index) else None

    def value(self, index: Any) -> FloatArray:
        """Return the point of an integer k."""
        return np.asarray(self.origin + self.step * index)

    def contains(self, reports: npt.NDArray[Any]) -> BoolArray:
        """Tell which reports are points of the lattice within its ends."""
        inside = (reports >= self.low) & (reports <= self.high) & np.isfinite(reports)
        with np.errstate(invalid="ignore"):
            return np.asarray(inside & (self.value(self.index(reports)) == reports))


@dataclass(frozen=True)
class Points:
    """Finitely many real reports."""

    values: tuple[float, ...]

    @property
    def low(self) -> float:
        """Least report."""
        return self.values[0]

    @property
    def high(self) -> float:
        """Largest report."""
        return self.values[-1]

    def __str__(self) -> str:
        return "{" + ", ".join(f"{value:g}" for value in self.values) + "}"

    def index(self, reports: npt.NDArray[Any]) -> FloatArray:
        """Return the position of the point that is nearest to each report; the points are sorted."""
        index = np.zeros(np.shape(reports))
        for below, above in pairwise(self.values):
            index += reports > below / 2 + above / 2
        return index

    def exact_index(self, reports: FloatArray) -> FloatArray | None:
        """Return the positions if every report is among the points."""
        index = self.index(reports)
        return index if np.array_equal(self.value(index), reports) else None

    def value(self, index: Any) -> FloatArray:
        """Return the report at a position."""
        return np.asarray(self.values)[np.asarray(index, dtype=np.int64)]

    def contains(self, reports: npt.NDArray[Any]) -> BoolArray:
        """Tell which reports are among the points."""
        return np.isin(reports, self.values)


def blocks(size: int, length: int = BLOCK) -> Iterator[slice]:
    """Cut range(size) into slices that fit a core's cache."""
    return (slice(start, min(start + length, size)) for start in range(0, size, length))


class BaseMechanism(ABC):
    """JSON description, guarantee and aggregation, from the dataclass's own fields."""

    name: ClassVar[str]
    kind: ClassVar[str]
    citation: ClassVar[str]
    capabilities: ClassVar[Capabilities]
    epsilon: float
    as_published: bool = False
    uncertified: ClassVar[str] = "the verifier does not know laws of its kind yet"

    @property
    def form(self) -> str:
        """What sets a published form apart from the method itself; empty for the method."""
        return "as published" if self.as_published else ""

    @classmethod
    def published_forms(cls, epsilon: float) -> Sequence[Any]:
        """Return an example of each published form beside ``as_published``, where there are several."""
        return ()

    @classmethod
    def declared(cls, **options: Any) -> Capabilities:
        """Return what the mechanism can do when it is built with these options."""
        return cls.capabilities

    @property
    def slow_start(self) -> bool:
        """Whether the first use of this budget takes seconds: plans leave the mechanism out then."""
        return False

    @property
    def bulky(self) -> bool:
        """Whether a report is long, or slow to decode: a survey then takes another mechanism that is nearly as good."""
        return False

    def spec(self) -> dict[str, Any]:
        """Return a JSON description that `noisette.from_spec` reads back."""
        own = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        plain = {
            k: v.spec() if isinstance(v, Domain) else list(v) if isinstance(v, tuple) else v for k, v in own.items()
        }
        return {"mechanism": self.name} | plain

    @property
    def guarantee(self) -> Guarantee:
        """Return the pure local guarantee of one report; mechanisms with another one override it."""
        return Guarantee(self.epsilon, claim=Claim(self.epsilon, source=self.citation))

    def privatize(self, x: Any, *, clip: bool = False, rng: Rng = None) -> Any:
        """Return one report for each person: ``x`` is one value of ``domain.shape``, or has one axis of people more.

        Any other shape is refused. With ``clip`` values outside the domain move to the nearest one of it.
        """
        mechanism: Any = self  # every mechanism has a domain, as a field or a property
        return self._answer(_validate.people(x, mechanism.domain.shape), clip=clip, rng=rng)

    @abstractmethod
    def _answer(self, x: Any, *, clip: bool, rng: Rng) -> Any:
        """Return one report for each value."""

    @property
    @abstractmethod
    def support(self) -> Support:
        """Possible reports."""

    @property
    @abstractmethod
    def readout(self) -> Readout:
        """How sums of reports become an estimate."""

    @abstractmethod
    def moments(self, x: Any) -> Moments:
        """Return the exact moments of what one report estimates, elementwise in ``x``."""

    @abstractmethod
    def log_prob(self, report: Any, x: Any) -> FloatArray:
        """Return the exact log mass of a report, per unit of length on a fine lattice."""

    @abstractmethod
    def witnesses(self) -> tuple[Any, Any]:
        """Return inputs and reports among which the worst ratio is attained."""

    @abstractmethod
    def tally(self, reports: Any) -> Tally:
        """Reduce a batch of reports to integer sums."""

    def aggregate(self, reports: Any) -> Aggregate:
        """Sum a batch of reports; aggregates of the same mechanism merge in any order."""
        tally = self.tally(reports)
        return Aggregate(self, tally.users, tally.count, tally.total, tally.squares)  # type: ignore[arg-type]

    @property
    def report_shape(self) -> tuple[int, ...]:
        """Shape of one report: () for a single number."""
        return ()

    @property
    def report_dtype(self) -> npt.DTypeLike:
        """Type of the numbers in a report."""
        return np.float64

    @property
    def code_ends(self) -> tuple[Any, Any]:
        """The least and the largest integer that any report may add to each sum, whoever made it up."""
        return self.readout.reach

    @property
    def report_ends(self) -> tuple[Any, Any]:
        """What one report says of each quantity at least and at most; but for rare reports where nothing bounds it."""
        weights = self.readout.weights
        return self.readout.near if weights is None else self._said(np.min(weights), np.max(weights))

    def _said(self, least: Any, largest: Any) -> tuple[FloatArray, FloatArray]:
        """Return what the ends of the integers of a report say, the lesser one first."""
        readout = self.readout
        ends = [np.asarray(readout.offset + readout.scale * end, dtype=np.float64) for end in (least, largest)]
        return np.minimum(*ends), np.maximum(*ends)

    @property
    def groups(self) -> tuple[int, ...] | None:
        """How many quantities an estimate has for each attribute of a record, None where the value is no record."""
        return None

    def target(self, x: Any) -> FloatArray:
        """Return what is estimated when everybody holds ``x``."""
        return np.asarray(x, dtype=float)

    def decode(self, reports: Any) -> Any:
        """Return what each report estimates: the report itself, unless the class declares that it is ``decoded``."""
        return reports

    def readable(self, reports: Any, inputs: Any) -> Any:
        """Return reports as an auditor who has to distinguish ``inputs`` reads them: decoded where they are a code."""
        return reports

    def worst_variance(self) -> float:
        """Return the largest variance of an entry of what one report estimates.

        Variances are looked at in the middle and at an end of ranges, and at the end of a ball's first axis.
        """
        mechanism: Any = self
        domain = mechanism.domain
        if isinstance(domain, Interval | Grid | Box | TensorDomain):
            low, high = np.asarray(domain.low), np.asarray(domain.high)
            x = np.stack([np.broadcast_to(end, domain.shape) for end in (low + (high - low) / 2, high)])
        else:
            x = np.zeros((1, *domain.shape))
            x.flat[0] = domain.diameter / 2
            x = domain.clip(x)
        return float(np.max(mechanism.moments(x).variance))

    @property
    def two_numbers(self) -> tuple[float, float] | None:
        """The two numbers that a report, or each entry of it, is one of, if there are but two."""
        return None

    def table(self) -> dict[str, Any] | None:
        """Return the numbers from which a device in another language draws the same reports, None if it cannot.

        The ``kind`` of the table names the steps, which ``clients/js/src/laws.js`` follows draw by draw; chances
        are integers or float64 that are used as they are, so that nothing is computed twice.
        """
        return None

    def written_law(self) -> dict[str, Any] | None:
        """Return the law of the reports, as a certificate states it: exact numbers, of a kind that the verifier knows.

        The numbers are those that the sampler draws by, not others that are computed for the certificate. None where
        the law cannot be written down so, for the reason ``uncertified``.
        """
        return None

    def check_support(self, reports: npt.NDArray[Any]) -> None:
        """Refuse reports that this mechanism cannot have sent."""
        inside = self.support.contains(reports)
        if not np.all(inside):
            bad = np.asarray(reports)[np.unravel_index(int(np.argmin(inside)), inside.shape)]
            raise ValueError(
                f"Report {bad} is outside the support of {self.name}: {self.support}. "
                "Was it made by another mechanism, budget or domain? Compare the specs."
            )


class ScalarMechanism(BaseMechanism):
    """A mechanism whose input and report are one real number each."""

    kind: ClassVar[str] = "mean"
    capabilities: ClassVar[Capabilities] = Capabilities((Interval,))
    domain: Interval | Grid

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", _validate.epsilon(self.epsilon))
        if not self.capabilities.takes(self.domain):
            kind = self.capabilities.domains[0].__name__
            raise TypeError(f"Expected domain={self.domain!r} to be of type {kind}. Give one, e.g. {kind}(0, 100).")
        if not _BUDGETS[0] <= self.epsilon <= _BUDGETS[1]:
            raise ValueError(
                f"Expected epsilon={self.epsilon!r} in [{_BUDGETS[0]:g}, {_BUDGETS[1]:g}]: "
                "beyond, chances of 53 bits cannot keep the promise."
            )
        check_width(self.domain)
        check_step(float(np.spacing(max(abs(self.domain.low), abs(self.domain.high)))), self.domain)

    @classmethod
    def example(cls, epsilon: float) -> Self:
        """Return the mechanism on its default domain."""
        return cls(epsilon=epsilon)  # type: ignore[call-arg]

    @property
    @abstractmethod
    def support(self) -> Lattice | Points:
        """Possible reports."""

    @abstractmethod
    def _perturb(self, x: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Return the reports of one block of admissible values."""

    def _answer(self, x: Any, *, clip: bool, rng: Rng) -> Any:
        values = _validate.numbers(x)
        source = _random.generator(rng)
        flat = values.reshape(-1)
        reports = np.empty(flat.size)
        for piece in blocks(flat.size):
            block = np.asarray(flat[piece], dtype=np.float64)
            reports[piece] = self._perturb(self._admit(block, clip=clip), source)
        return reports.reshape(values.shape)[()]

    @property
    def two_numbers(self) -> tuple[float, float] | None:
        """The two points of the support, if there are but two."""
        points = self.support.values if isinstance(self.support, Points) else ()
        return (points[0], points[1]) if len(points) == 2 else None

    @property
    def code_ends(self) -> tuple[Any, Any]:
        """The integers of the ends of the support, or of what is read where it has none."""
        if self.capabilities.unbounded:
            return self.readout.reach
        least, largest = self.support.index(np.asarray([self.support.low, self.support.high]))
        return least, largest

    @property
    def report_ends(self) -> tuple[Any, Any]:
        """The ends of the support, where it has any."""
        if self.capabilities.unbounded or self.readout.weights is not None:
            return super().report_ends
        return self._said(*self.code_ends)

    def codes(self, reports: npt.NDArray[Any]) -> FloatArray:
        """Return the integers that stand for the reports on the support, as float64."""
        codes = self.support.exact_index(reports)
        if codes is None:
            self.check_support(reports)
            codes = self.support.index(reports)
        if math.isfinite(self.support.high):
            return codes
        if float(max(codes.max(), -codes.min())) > min(_FARTHEST * self.readout.coarse, _LARGEST_CODE):
            bad = float(reports.flat[int(np.argmax(np.abs(codes)))])
            raise ValueError(
                f"Report {bad:g} is farther from {self.domain} than noise ever goes. "
                "It was not sent by this mechanism: leave it out, and ask where it comes from."
            )
        return self.readout.within_reach(codes)

    def tally(self, reports: Any) -> Tally:
        flat = _validate.reals(reports, "reports").reshape(-1)
        total = squares = 0
        for block in blocks(flat.size):
            codes = self.codes(flat[block])
            total += int(codes.astype(np.int64).sum())
            squares += int(np.rint(np.square(codes / self.readout.coarse)).astype(np.int64).sum())
        if max(abs(total), squares) >= 2**63:
            raise OverflowError(OVERFLOW)
        sums = (np.asarray([number], dtype=np.int64) for number in (flat.size, total, squares))
        return Tally(flat.size, *sums)

    def _inputs(self, x: Any) -> FloatArray:
        """Return admissible inputs as an array."""
        values = _validate.reals(x)
        return self._admit(values, clip=False)

    def _admit(self, x: FloatArray, *, clip: bool) -> FloatArray:
        """Return ``x`` if it lies in the domain, or clipped into it where asked."""
        return admit(x, self.domain, clip=clip)


class ScalarLaw(Law, Protocol):
    """A table of reports about numbers."""

    def sample(self, place: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Draw one report for each place."""


class TableMechanism(ScalarMechanism):
    """A mechanism for numbers whose law is a table; what is reported is drawn from that."""

    capabilities: ClassVar[Capabilities] = replace(ScalarMechanism.capabilities, tabled=True)

    @abstractmethod
    def law(self) -> ScalarLaw:
        """Return the table."""

    @abstractmethod
    def _placed(self, x: FloatArray) -> FloatArray:
        """Return the places of admissible values."""

    def place(self, x: Any) -> FloatArray:
        """Return all that the law knows of each value."""
        return self._placed(self._inputs(x))

    def written_law(self) -> dict[str, Any]:
        """Return the table's numbers."""
        return self.law().written()

    def _perturb(self, x: FloatArray, rng: np.random.Generator) -> FloatArray:
        return self.law().sample(self._placed(x), rng)


def admit(x: FloatArray, domain: Interval | Grid, *, clip: bool) -> FloatArray:
    """Return ``x`` if it lies in the domain, or clipped into it where asked."""
    low, high = float(x.min()), float(x.max())  # NaN spreads to both
    if not (math.isfinite(low) and math.isfinite(high)):
        bad = float(x[~np.isfinite(x)][0])
        raise ValueError(f"Expected finite values, got {bad}. Remove or impute missing values before privatising.")
    if isinstance(domain, Interval) and low >= domain.low and high <= domain.high:
        return x
    inside = domain.contains(x)
    if np.all(inside):
        return x
    if clip:
        return domain.clip(x)
    bad = float(x[~inside][0])
    raise ValueError(
        f"Expected values in {domain}, got {bad}. Pass clip=True to move it to the nearest admissible value."
    )


def power_of_two(size: float) -> float:
    """Return the largest power of two that is at most ``size``."""
    return float(2.0 ** math.floor(math.log2(size)))


def coarseness(spread: float) -> float:
    """Return the power of two by which codes are divided before squaring: it leaves 2^6 to 2^7 of a spread."""
    return max(1.0, power_of_two(max(spread, 1.0)) / 2.0**6)


def check_width(domain: Any) -> None:
    """Refuse a domain so narrow or so wide that squares and cubes of its noise would leave float64."""
    if not _WIDTHS[0] <= domain.diameter <= _WIDTHS[1]:
        raise ValueError(f"Expected {domain} to be {_WIDTHS[0]:g} to {_WIDTHS[1]:g} wide: rescale the values first.")


def check_step(step: float, domain: Interval | Grid) -> float:
    """Refuse a domain so far from zero that float64 cannot hold a useful grid on it."""
    if step > domain.diameter / 2**10:
        raise ValueError(
            f"{domain} is too far from zero for its width: subtract a public offset from the values first."
        )
    return step
