"""The contract of a mechanism, and the values that travel from it to an estimate."""

from __future__ import annotations

import base64
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt

from noisette._bounded import bounded_interval, noisy_interval, score_of
from noisette._random import Rng
from noisette._validate import FloatArray, IntArray
from noisette.domains import BoolArray, Domain
from noisette.guarantees import Guarantee

_NEAR = 2.0  # deviations of a report that is called near
STRAY = 2.0**-20  # chance that an honest report with unbounded noise is beyond `Readout.reach`, and moved to its end
OVERFLOW = "The sums no longer fit 64 bits. Estimate these shards apart and average the estimates by count."


@dataclass(frozen=True)
class Moments:
    """Bias, variance and third absolute central moment of a report, elementwise in the input."""

    bias: FloatArray
    variance: FloatArray
    third: FloatArray


@runtime_checkable
class Support(Protocol):
    """The reports a mechanism can send."""

    def contains(self, reports: npt.NDArray[Any]) -> BoolArray:
        """Tell which reports could have been sent."""

    def __str__(self) -> str: ...


@dataclass(frozen=True)
class Capabilities:
    """What a mechanism can do, declared on its class. Builders, plans and collectors read this and probe nothing.

    What it estimates is the class's ``kind``. `noisette.testing.check_mechanism` holds the declarations against what
    the mechanism does.

    - ``domains``: the kinds of domain that it takes, its usual one first.
    - ``delta``: "none" where the guarantee is pure, "optional", or "needed" where nothing pure holds.
    - ``gaussian``: its noise is Gaussian, so that a budget may be given as mu.
    - ``model``: "local" where each user answers alone, "central" where a curator holds the records.
    - ``unbiased``: the mean of reports, once decoded, is the value itself.
    - ``unbounded``: its noise has no bound. Reports farther out than noise goes with chance `STRAY` are moved nearer.
    - ``decoded``: a report is no estimate of the value until ``decode`` has read it.
    - ``tabled``: its law is a table of whole numbers: `law` returns it, `place` what it knows of each input, and
      nothing but its sampler makes reports, so that law and sampler cannot differ.
    - ``tells_category``: a report is itself a category, the own one with chance ``p_own``, each other with ``p_other``.
    - ``slow_start``: some budgets take seconds before the first report; an instance with one has ``slow_start`` true.
    - ``composite``: it is built from other mechanisms, which its ``inner`` names.
    - ``levels``: it has a budget for each level of the value; ``fitted`` scales all to an interval and a total, and
      ``by_level`` builds it for values whose level is not their own.
    - ``entrywise``: it answers about each entry of a vector alone. ``by_entry`` builds it from the budget of one entry,
      and ``entry`` is the mechanism of one.
    - ``claims_entry``: its source states the budget of one entry for the whole vector and any number of rounds.
    - ``adjustable``: options that may be left to the other side, because none of their values weakens the guarantee.
    """

    domains: tuple[type[Any], ...]
    delta: Literal["none", "optional", "needed"] = "none"
    gaussian: bool = False
    model: Literal["local", "central"] = "local"
    unbiased: bool = True
    unbounded: bool = False
    decoded: bool = False
    tabled: bool = False
    tells_category: bool = False
    slow_start: bool = False
    composite: bool = False
    levels: bool = False
    entrywise: bool = False
    claims_entry: bool = False
    adjustable: frozenset[str] = frozenset()

    def takes(self, domain: Any) -> bool:
        """Tell whether the mechanism is built on a domain of this kind as it is."""
        return isinstance(domain, self.domains)


@runtime_checkable
class Mechanism(Protocol):
    """A randomised answer about one user's value.

    ``witnesses`` returns inputs and reports among which the largest log-likelihood ratio is
    attained; the exact calculator evaluates ``log_prob`` on all their pairs. ``log_prob`` is the log mass of a
    report, or for a report on a fine grid its mass divided by the grid's step: a density.
    """

    name: ClassVar[str]
    kind: ClassVar[str]

    @property
    def domain(self) -> Domain:
        """Admissible inputs."""

    @property
    def guarantee(self) -> Guarantee:
        """What is protected."""

    @property
    def support(self) -> Support:
        """Possible reports."""

    def privatize(self, x: Any, *, clip: bool = False, rng: Rng = None) -> Any:
        """Return one report for each element of ``x``."""

    def moments(self, x: Any) -> Moments:
        """Return exact moments of the estimate that one report gives."""

    def log_prob(self, report: Any, x: Any) -> FloatArray:
        """Return the exact log mass or density of ``report`` given ``x``."""

    def witnesses(self) -> tuple[Any, Any]:
        """Return inputs and reports among which the worst ratio is attained."""

    def spec(self) -> dict[str, Any]:
        """Return a JSON description."""

    @classmethod
    def example(cls, epsilon: float) -> Self:
        """Return a small instance, for checks, plots and tables."""


@dataclass(frozen=True)
class GaussianEvent:
    """One release is mu-GDP: as hard to tell apart as N(0, 1) and N(mu, 1)."""

    mu: float


@dataclass(frozen=True)
class ConcentratedEvent:
    """One release is rho-zCDP."""

    rho: float


@dataclass(frozen=True)
class RepeatedEvent:
    """One release is this many independent releases of another mechanism about the same unit."""

    mechanism: Any
    times: int


PrivacyEvent = GaussianEvent | ConcentratedEvent | RepeatedEvent


class EventDeclared(ABC):
    """Inherited by a mechanism that states the event of one release, which says more than its guarantee.

    The event is what accounting composes, so it has to be true under the relation of the mechanism's guarantee. It is
    declared by inheritance and never read off an attribute: ``mu``, ``rho`` or ``sigma`` mean other things elsewhere.
    """

    @abstractmethod
    def privacy_event(self) -> PrivacyEvent | None:
        """Return the event, or None where this one has none."""


class PubliclyDrawn(ABC):
    """Inherited by a mechanism whose reports show something that is drawn without looking at the value.

    It is a seed, a group or an attribute. A user who could choose it could choose where her report counts most. So
    where tokens are signed it is derived from the signature, and the server derives it again to compare.
    """

    @abstractmethod
    def draw(self, users: int, rng: np.random.Generator) -> IntArray:
        """Draw for this many users, along the first axis."""

    @abstractmethod
    def drawn(self, reports: Any) -> IntArray:
        """Return what was drawn for each report."""

    @abstractmethod
    def privatize_drawn(self, x: Any, drawn: IntArray, *, rng: Rng = None) -> Any:
        """Return one report for each value, given what was drawn for it."""


class Sketched(ABC):
    """Inherited by a mechanism whose reports are few numbers in another basis than the value's.

    A server adds them up there, and turns the sum into one of estimates once, at the end.
    """

    @abstractmethod
    def sketch(self) -> FloatArray:
        """Return an empty sum."""

    @abstractmethod
    def add_to(self, sketch: FloatArray, report: FloatArray, weight: float = 1.0) -> None:
        """Add what one report says to a sum."""

    @abstractmethod
    def unfold(self, sketch: FloatArray) -> FloatArray:
        """Return the sum of the estimates whose reports were added."""


class Law(Protocol):
    """A law made of integers, and the sampler that draws from these very integers.

    Reports about an input are of a few kinds, and all reports of one kind have the same weight; weights are whole
    numbers, and those of all reports add up to ``total`` whatever the input.
    """

    @property
    def total(self) -> int:
        """Sum of the weights of all reports."""

    def kinds(self, place: Any) -> tuple[tuple[int, int], ...]:
        """Return for one place of an input how many reports have which weight."""

    def written(self) -> dict[str, Any]:
        """Return the integers from which reports are drawn, as a certificate states them."""


class Estimating(Mechanism, Protocol):
    """A mechanism whose reports add up to an estimate of a mean or of frequencies."""

    @property
    def groups(self) -> tuple[int, ...] | None:
        """How many quantities an estimate has for each attribute of a record, None where the value is no record."""

    def target(self, x: Any) -> FloatArray:
        """Return what is estimated when everybody holds ``x``."""

    @property
    def readout(self) -> Readout:
        """How sums of reports become an estimate."""

    @property
    def report_ends(self) -> tuple[Any, Any]:
        """The least and the largest that one report says of each quantity."""

    def tally(self, reports: Any) -> Tally:
        """Reduce a batch of reports to integer sums."""


@dataclass(frozen=True)
class Tail:
    """A bound on how far one report is from its mean: sub-gamma with this variance and scale.

    The mean of n reports stays within sqrt(2 v L / n) + c L / n of its expectation with probability at least
    1 - 2 exp(-L), at any n (Boucheron, Lugosi, Massart 2013, section 2.4).
    """

    variance: float | FloatArray
    scale: float | FloatArray

    def radius(self, count: FloatArray, level: float) -> FloatArray:
        """Return the half-width that holds with probability ``level`` for a mean of ``count`` reports."""
        exponent = math.log(2 / (1 - level))
        with np.errstate(divide="ignore", invalid="ignore"):  # without reports the first term is infinite
            share = np.divide(exponent, count)
            linear = np.nan_to_num(np.asarray(self.scale) * share, posinf=np.inf)
        return np.asarray(np.sqrt(2 * np.asarray(self.variance) * share) + linear)


@dataclass(frozen=True)
class Readout:
    """How integer sums become an estimate: value = offset + scale * total / count.

    ``coarse``, a power of two or one for each quantity, divides an integer before it is squared and the square is
    rounded; ``low`` and ``high`` bound the estimated quantity. Where reports are counted by kind, ``weights`` is what
    one report of each kind says of a single quantity: value = offset + scale * sum of weights * total / count.
    ``noise`` is the variance of what is added to values between ``low`` and ``high`` where reports are such sums; NaN
    or None where they are not.
    """

    offset: float | FloatArray
    scale: float | FloatArray
    low: float | FloatArray
    high: float | FloatArray
    tail: Tail
    coarse: Any = 1.0
    weights: FloatArray | None = None
    noise: float | FloatArray | None = None

    @cached_property
    def near(self) -> tuple[FloatArray, FloatArray]:
        """What a report that may say anything says at least and at most, but for rare ones.

        Formula: the quantity's own bounds, widened by two deviations of the tail.
        """
        radius = _NEAR * np.sqrt(np.asarray(self.tail.variance, dtype=np.float64))
        return np.asarray(self.low - radius), np.asarray(self.high + radius)

    @cached_property
    def reach(self) -> tuple[FloatArray, FloatArray]:
        """The least and the largest integer that a report of unbounded noise is read as.

        Formula: the quantity's own bounds, widened by the radius that ``tail`` gives one report at 1 - `STRAY`. An
        honest report is beyond with a chance of at most `STRAY`, so an estimate is off by at most `STRAY` times the
        tail's scale, or deviation: far below its standard error. One liar moves a mean of n by the reach over n.
        """
        radius = self.tail.radius(np.asarray(1.0), 1 - STRAY)
        ends = [(np.asarray(end) - self.offset) / self.scale for end in (self.low - radius, self.high + radius)]
        return np.floor(np.minimum(*ends)), np.ceil(np.maximum(*ends))

    def within_reach(self, codes: FloatArray) -> FloatArray:
        """Return integers moved to the nearer end of the reach."""
        return np.clip(codes, *self.reach)


@dataclass(frozen=True)
class Tally:
    """Integer sums of a batch: users, and for each estimated quantity count, sum and sum of squares."""

    users: int
    count: IntArray
    total: IntArray
    squares: IntArray


@dataclass(frozen=True, eq=False)
class Aggregate:
    """What a server keeps: integer sums, so that any order of merging gives the same bits."""

    mechanism: Estimating
    users: int
    count: IntArray
    total: IntArray
    squares: IntArray
    names: tuple[str, ...] | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Aggregate):
            return NotImplemented
        own, its = ((a.mechanism.spec(), a.users, a.names) for a in (self, other))
        return own == its and all(
            np.array_equal(getattr(self, n), getattr(other, n)) for n in ("count", "total", "squares")
        )

    def __add__(self, other: Aggregate) -> Aggregate:
        return self.merge(other)

    def merge(self, other: Aggregate) -> Aggregate:
        """Return the aggregate of both batches."""
        if not isinstance(other, Aggregate):
            raise TypeError(f"Expected an Aggregate to merge, got {type(other).__name__}.")
        if self.mechanism.spec() != other.mechanism.spec():
            raise ValueError(
                f"Expected aggregates of one mechanism, got {self.mechanism.spec()} and {other.mechanism.spec()}."
            )
        if self.names != other.names:
            raise ValueError(f"Expected the same dimension names, got {self.names} and {other.names}.")
        sums = {n: add_sums(getattr(self, n), getattr(other, n)) for n in ("count", "total", "squares")}
        return Aggregate(self.mechanism, self.users + other.users, names=self.names, **sums)

    def estimate(self) -> Estimate:
        """Return the unbiased estimate with its standard error."""
        readout = self.mechanism.readout
        known, total, squares = self.count, self.total.astype(np.float64), self.squares.astype(np.float64)
        if readout.weights is not None:
            known, total, squares = known[:1], total @ readout.weights[:, None], squares @ readout.weights[:, None] ** 2
        count = known.astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = total / count
            # squares were rounded to whole numbers: half of one covers what that may have hidden
            rounding = np.where(np.asarray(readout.coarse) > 1, 0.5, 0.0)
            spread = np.square(readout.coarse) * (squares / count + rounding) - mean**2
            variance = np.maximum(spread, 0.0) * count / (count - 1)
            error = np.abs(readout.scale) * np.sqrt(variance / count)
            value = readout.offset + readout.scale * mean
        return Estimate(
            value=np.where(count > 0, value, np.nan),
            std_error=np.where(count > 1, error, np.inf),
            count=known,
            low=readout.low,
            high=readout.high,
            tail=readout.tail,
            names=self.names,
            kind=self.mechanism.kind,
            groups=self.mechanism.groups,
            ends=self.mechanism.report_ends,
            noise=readout.noise,
        )

    def to_json(self) -> str:
        """Return a portable text; `noisette.aggregation.load` reads it back."""
        arrays = {n: _encode(getattr(self, n)) for n in ("count", "total", "squares")}
        head = {"format": "noisette-aggregate", "version": 1, "mechanism": self.mechanism.spec()}
        names = None if self.names is None else list(self.names)
        return json.dumps(head | {"users": self.users, "names": names} | arrays)


@dataclass(frozen=True)
class Estimate:
    """Estimated quantities with their errors.

    ``value`` is NaN and ``std_error`` infinite where nothing was reported. ``kind`` is the mechanism's: quantities of
    kind "frequency" belong to the categories of one attribute and add up to one. Those of kind "attributes" come in
    runs, of lengths ``groups``: a run of one is a mean, a longer one holds the frequencies of one attribute. ``method``
    names the enhancement, ``expected_gain`` the estimated fall in mean squared error that it brought. ``ends`` are the
    least and the largest that one report says of each quantity, None where that is not known, and ``noise`` the
    variance of noise that is added to values between ``low`` and ``high``, None where a report is something else.
    """

    value: FloatArray
    std_error: FloatArray
    count: IntArray
    low: float | FloatArray | None = None
    high: float | FloatArray | None = None
    tail: Tail | None = None
    names: Sequence[str] | None = None
    method: str = "none"
    expected_gain: float | None = field(default=None)
    kind: str = "mean"
    groups: tuple[int, ...] | None = None
    ends: tuple[Any, Any] | None = None
    noise: Any = None

    def interval(self, level: float = 0.95, *, method: str = "bounded") -> tuple[FloatArray, FloatArray]:
        """Return lower and upper ends of the confidence interval of each quantity.

        ``"bounded"`` holds from the first report on, as reports say no more than ``ends``, and comes down to
        ``"normal"``, which relies on the central limit theorem, where there are many. ``"finite"`` is proved at any
        number of reports, and wider.
        """
        score = score_of(level)
        if method == "bounded":
            return self.ends_at(score)
        if method == "normal":
            radius = score * self.std_error
        elif method == "finite":
            if self.tail is None:
                raise ValueError(
                    f"No finite-sample interval after enhancement {self.method!r}. Ask the raw estimate for it."
                )
            radius = self.tail.radius(self.count.astype(np.float64), level)
        else:
            raise ValueError(f"Expected method={method!r} to be 'bounded', 'normal' or 'finite'.")
        return self.value - radius, self.value + radius

    @property
    def jump(self) -> FloatArray:
        """How far one report can move each quantity, 0 where that is not known."""
        if self.ends is None:
            return np.zeros(self.value.shape)
        with np.errstate(divide="ignore"):
            return np.asarray(np.broadcast_to((np.asarray(self.ends[1]) - self.ends[0]) / self.count, self.value.shape))

    def ends_at(self, score: Any, moves: Any = None) -> tuple[FloatArray, FloatArray]:
        """Return the ends of intervals whose confidence has this normal quantile, one for all or for each quantity.

        ``moves`` is for a part of a sum, see `bounded_interval`.
        """
        if self.ends is None:
            with np.errstate(invalid="ignore"):  # nothing is known of an infinite error at no confidence at all
                radius = score * self.std_error
            return self.value - radius, self.value + radius
        found = (self.value, self.std_error, self.count)
        low, high = bounded_interval(*found, *self.ends, score, moves)
        if self.noise is not None:
            sums = np.isfinite(np.broadcast_to(self.noise, self.value.shape))
            least, most = noisy_interval(*found, self.low, self.high, self.noise, score)
            low, high = np.where(sums, least, low), np.where(sums, most, high)
        return low, high


def decode_array(text: str) -> IntArray:
    """Read back an array of `Aggregate.to_json`."""
    return np.frombuffer(base64.b64decode(text, validate=True), dtype="<i8").astype(np.int64)


def _encode(array: IntArray) -> str:
    return base64.b64encode(np.ascontiguousarray(array, dtype="<i8").tobytes()).decode("ascii")


def add_sums(first: IntArray, second: IntArray) -> IntArray:
    """Add, refusing to wrap around."""
    if first.shape != second.shape:
        raise ValueError(f"Expected sums of shape {first.shape}, got {second.shape}. Compare the specs.")
    result = first + second
    if np.any(((first ^ result) & (second ^ result)) < 0):
        raise OverflowError(OVERFLOW)
    return np.asarray(result)
