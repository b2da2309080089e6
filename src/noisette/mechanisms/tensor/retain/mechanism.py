"""TLDP: keep an entry of a tensor, or add noise to it; sound on a grid, and as published."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from noisette import _validate
from noisette._random import ULP
from noisette._validate import FloatArray
from noisette.cells import Cells
from noisette.core import Capabilities, ConcentratedEvent, EventDeclared, Moments, Readout, Tail
from noisette.domains import TensorDomain
from noisette.guarantees import Claim, Guarantee, warn_unsound
from noisette.mechanisms._base import BLOCK, blocks, check_width, coarseness, power_of_two
from noisette.mechanisms.scalar._additive import GaussianNoise, LaplaceNoise
from noisette.mechanisms.tensor._whole import TensorGrid, WholeTensorMechanism, open_array
from noisette.mechanisms.tensor.retain.calibration import SMOOTH, NoiseChoice, Request, choose, group
from noisette.mechanisms.tensor.retain.cells import Cutter, spiked
from noisette.mechanisms.tensor.retain.laws import AddedNoise, RoundedGaussian, RoundedLaplace
from noisette.mechanisms.tensor.retain.published import Published, RealGaussian, RealLaplace, published_law

_NOISES, _UNITS, _RETENTIONS = ("laplace", "gaussian"), ("element", "record"), ("algorithm-1", "proof")
_MOST_LEVELS = 1 << 24
_FARTHEST = 2.0**13  # spreads of the noise from the domain: a report out there was not sent by the mechanism

_KEPT_ENTRIES = (
    "Definition 2 bounds the ratio of the chances of every output, for whole tensors, and Theorem 1 claims it. An "
    "entry that is kept is exact while noise is a real number, so that no epsilon holds. With Laplace noise, and "
    "outputs read as rounded to the grid, epsilon + ln 2 holds for one entry, and as many times that as there are "
    "entries for a tensor."
)


@dataclass(frozen=True)
class RetainOrNoise(WholeTensorMechanism, EventDeclared):
    """Keep each entry of a tensor with some probability, else add noise to it (TLDP).

    Formula, for entries rounded without bias to the grid 0, ..., K: P(y | x) = p [y = x] + (1-p) c a^|y-x|,
    a = exp(-1/b), c = (1-a)/(1+a). An entry has epsilon K/b + ln(1 + p / ((1-p) c)); given that, b determines p, and b
    is the one of least mean squared error. With ``noise="gaussian"`` discrete Gaussian noise replaces c a^|y-x|.

    *Guarantee*: epsilon-LDP, exactly, for one entry (``unit="element"``) or for the whole tensor (``"record"``, the
    default); with a ``delta`` the entries of a record are composed by Renyi divergences. Weights multiply p by 1 - w,
    relative to the least weight. Public ones cost nothing; what was paid for others is taken from the budget.
    ``as_published=True`` is the paper's algorithm, in both readings of p. Its output is a real number, so a kept entry
    is recognised: no finite epsilon holds. ``rounded=True`` rounds the output to the grid; with Laplace noise some
    e + ln 2 then holds for one entry, and I times as much for the record, for which the paper claims e.
    *Utility*: unbiased; mean squared error (1-p) 2a/(1-a)^2 squared steps an entry. ``choice.helps`` says whether
    keeping entries lowers the error: with Laplace noise it does so from an epsilon an entry of 4.4 on for 5 levels, of
    10.6 for 256. Below, p = 0 and this is discrete Laplace noise. Of mechanisms of the same unit
    (`equal_unit_errors` in experiments/tldp), for a 28x28 image of 256 levels Hybrid or PiecewiseOptimal has the least
    error for an element up to epsilon 20, PrivUnitG for a record at every epsilon from 0.5 to 200. This one has it for
    an element at epsilon 50, where hardly any noise is left.
    Yuan, Tang, Huang, Wu, Wang 2025, Algorithms 1 and 2, mended.

    >>> m = RetainOrNoise(epsilon=1.0, domain=TensorDomain((28, 28), 0, 255), unit="element")
    >>> m.choice.helps, m.privatize(np.zeros((28, 28)), rng=7).shape
    (False, (28, 28))
    """

    epsilon: float
    delta: float = 0.0
    _: KW_ONLY
    domain: TensorDomain
    levels: int = 256
    noise: str = "laplace"
    unit: str = "record"
    weights: Any = None
    weights_epsilon: float | None = None
    as_published: bool = False
    retention: str | None = None
    rounded: bool = False
    name: ClassVar[str] = "retain-or-noise"
    capabilities: ClassVar[Capabilities] = Capabilities(
        (TensorDomain,), delta="optional", unbounded=True, entrywise=True, adjustable=frozenset({"levels"})
    )
    citation: ClassVar[str] = "yuan2025local"
    uncertified: ClassVar[str] = (
        "the verifier adds up kept entries beside Laplace noise without a delta, and Gaussian noise alone, wide enough"
    )

    def __post_init__(self) -> None:
        self._settle()
        check_width(self.domain)
        object.__setattr__(self, "levels", _validate.integer(self.levels, "levels", low=2, high=_MOST_LEVELS))
        for name, allowed in (("noise", _NOISES), ("unit", _UNITS), ("retention", (None, *_RETENTIONS))):
            if getattr(self, name) not in allowed:
                raise ValueError(f"Expected {name}={getattr(self, name)!r} to be one of {allowed}.")
        if not self.as_published and (self.retention is not None or self.rounded):
            raise ValueError(
                f"Expected retention={self.retention!r}, rounded={self.rounded} only with as_published=True: "
                "by default the chance to keep an entry is the best sound one, and reports lie on the grid."
            )
        object.__setattr__(self, "delta", self._checked_delta())
        object.__setattr__(self, "weights", _nested(self._checked_weights()))
        if self.as_published:
            warn_unsound(f"{type(self).__name__}(as_published=True)", self.guarantee)
        else:
            _ = self.choice  # a budget that cannot be met is refused now

    @classmethod
    def example(cls, epsilon: float) -> Self:
        """Return the mechanism on two entries of five levels."""
        return cls(epsilon=epsilon, domain=TensorDomain((1, 2)), levels=5)

    @classmethod
    def declared(cls, **options: Any) -> Capabilities:
        """Return what the mechanism can do: Gaussian noise needs a delta."""
        return replace(cls.capabilities, delta="needed" if options.get("noise") == "gaussian" else "optional")

    @classmethod
    def by_entry(cls, domain: TensorDomain, *, epsilon: float, **options: Any) -> Self:
        """Return the mechanism in which every entry has the budget ``epsilon``."""
        return cls(epsilon=epsilon, domain=domain, unit="element", **options)

    @property
    def entry(self) -> Self:
        """The mechanism of one entry."""
        return replace(self, domain=TensorDomain((1,), self.domain.low, self.domain.high))

    def worst_variance(self) -> float:
        """Return the largest variance of an entry: half-way between two levels rounding adds most."""
        half = (self.domain.high - self.domain.low) / (self.levels - 1) / 2
        x = np.stack([np.full(self.domain.dims, end) for end in (self.domain.low + half, self.domain.high - half)])
        return max(super().worst_variance(), float(np.max(self.moments(x).variance)))

    def _checked_delta(self) -> float:
        delta = _validate.delta(self.delta)
        if self.as_published:
            if delta > 0:
                raise ValueError(f"Expected delta={delta} = 0: the paper claims a pure guarantee. Leave delta out.")
        elif self.noise == "gaussian":
            _validate.delta(delta, positive=True)
        elif delta > 0 and self.unit == "element":
            raise ValueError(f"Expected delta={delta} = 0: Laplace noise has a pure guarantee for an element.")
        return delta

    def _checked_weights(self) -> FloatArray | None:
        """Return the weights, whose origin must be declared."""
        if self.weights is None:
            if self.weights_epsilon is not None:
                raise ValueError(f"Expected weights beside weights_epsilon={self.weights_epsilon!r}.")
            return None
        weights = _validate.reals(self.weights, "weights")
        if weights.shape != self.domain.dims[: weights.ndim]:
            raise ValueError(
                f"Expected weights of the shape of the leading modes of {self.domain.dims}, got {weights.shape}. "
                "They are repeated along the other modes."
            )
        if not np.all((weights >= 0) & (weights <= 1)):
            bad = float(weights[~((weights >= 0) & (weights <= 1))][0])
            raise ValueError(f"Expected weights in [0, 1], got {bad}. Rescale them: 1 means never kept.")
        if self.weights_epsilon is None:
            raise ValueError(
                "Expected weights_epsilon beside weights: weights that are read off a record give it away. If they are "
                "public, say weights_epsilon=0; if a differentially private step computed them from the record, say "
                "what it cost, which is taken from epsilon."
            )
        paid = _validate.number(self.weights_epsilon, "weights_epsilon")
        if not 0 <= paid < self.epsilon:
            raise ValueError(
                f"Expected weights_epsilon={paid} in [0, epsilon={self.epsilon}): nothing is left for the entries. "
                "Give a larger epsilon or cheaper weights."
            )
        object.__setattr__(self, "weights_epsilon", paid)
        return weights

    @cached_property
    def _weights(self) -> FloatArray | None:
        """One weight for each entry, in row-major order."""
        if self.weights is None:
            return None
        given = np.asarray(self.weights, dtype=float)
        spread = given.reshape(given.shape + (1,) * (len(self.domain.dims) - given.ndim))
        return np.broadcast_to(spread, self.domain.dims).reshape(-1)

    @property
    def _steps(self) -> int:
        """K, the largest distance of two values of the grid."""
        return self.levels - 1

    @property
    def step(self) -> float:
        """Distance of neighbouring values of the grid."""
        return (self.domain.high - self.domain.low) / self._steps

    @cached_property
    def choice(self) -> NoiseChoice:
        """Noise and chance to keep an entry that this budget leads to, their error and that of noise alone."""
        if self.as_published:
            raise ValueError(
                "Expected as_published=False: the published form keeps entries as the paper says, with p_keep, and "
                "chooses nothing. Build the mechanism without as_published for the choice."
            )
        shares, counts = group(self._weights, self.size)
        budget = self.epsilon - (self.weights_epsilon or 0.0)
        whole = self.unit == "record"
        return choose(Request(self.noise, self._steps, budget, self.delta, whole, shares, counts))

    @cached_property
    def _published(self) -> Published:
        return published_law(
            self.noise,
            self.retention or _RETENTIONS[0],
            epsilon=self.epsilon,
            levels=self.levels,
            size=self.size,
            rounded=self.rounded,
        )

    @cached_property
    def _noise(self) -> AddedNoise:
        """Noise of an entry that is not kept, in steps."""
        return self._published.noise if self.as_published else self.choice.law.noise

    @cached_property
    def p_keep(self) -> FloatArray:
        """Chance that each entry is kept: one number, or one for each entry in row-major order."""
        largest = self._published.p_keep if self.as_published else self.choice.p_keep
        if self._weights is None:
            return np.asarray(largest)
        if self.as_published:
            return largest * (1 - self._weights)
        least = float(self._weights.min())
        shares = (1 - self._weights) / (1 - least) if least < 1 else np.zeros(self.size)
        # rounded down, as are the samplers' chances
        return np.where(shares == 1, largest, np.floor(np.nextafter(largest * shares, 0.0) * 2.0**53) * ULP)

    @property
    def p_any_kept(self) -> float:
        """Chance that at least one entry is kept; in the published form no finite epsilon holds at a smaller delta."""
        each = np.broadcast_to(np.log1p(-self.p_keep), (self.size,))
        return abs(float(np.expm1(each.sum())))

    @property
    def _real(self) -> bool:
        return self.as_published and not self.rounded

    @property
    def guarantee(self) -> Guarantee:
        """Return what holds for the unit; the claim of the published form is the paper's, for a record."""
        if not self.as_published:
            claim = Claim(self.epsilon, self.delta, unit=self.unit, source=self.citation)  # type: ignore[arg-type]
            return Guarantee(self.epsilon, self.delta, unit=self.unit, claim=claim)  # type: ignore[arg-type]
        claim = Claim(self.epsilon, source=self.citation, reading=_KEPT_ENTRIES)
        proved = self._entry_epsilons()
        total = float(proved.max() if self.unit == "element" else proved.sum()) + (self.weights_epsilon or 0.0)
        return Guarantee(total, unit=self.unit, claim=claim)  # type: ignore[arg-type]

    def _entry_epsilons(self) -> FloatArray:
        """Return the exact epsilon of each entry: infinite with Gaussian noise, or where a kept value is recognised."""
        kept = np.broadcast_to(self.p_keep, (self.size,))
        noise = self._noise
        if isinstance(noise, RealGaussian | RoundedGaussian | GaussianNoise):
            return np.full(self.size, math.inf)
        assert isinstance(noise, RealLaplace | RoundedLaplace | LaplaceNoise)
        away = self._steps * noise.rate
        if isinstance(noise, RealLaplace):
            return np.where(kept > 0, math.inf, away)
        centre, end = (float(noise.log_mass(np.asarray(k))) for k in (0.0, float(self._steps)))
        at_spike = np.log(kept + (1 - kept) * math.exp(centre)) - np.log1p(-kept) - end
        return np.maximum(at_spike, away)

    def privacy_event(self) -> ConcentratedEvent | None:
        """Return what accounting composes, known for Gaussian noise where nothing is kept.

        Canonne, Kamath, Steinke 2020, Theorem 4.
        """
        noise = self._noise
        if not isinstance(noise, GaussianNoise) or np.any(self.p_keep > 0):
            return None
        return ConcentratedEvent((self.size if self.unit == "record" else 1) * (self._steps / noise.sigma) ** 2 / 2)

    @cached_property
    def support(self) -> TensorGrid:
        """Tensors on the grid, which goes on beyond the domain; of real entries as published."""
        far = _FARTHEST * self.step * max(math.sqrt(self._noise.absolute[1]), 1.0)
        reach = (self.domain.low - far, self.domain.high + far)
        return TensorGrid(self.domain.dims, self.domain.low, self.step, reach, self._real)

    def _position(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the grid point below each value and the distance to it, in steps; as published the nearest, and 0."""
        position = (values - self.domain.low) / self.step
        nearest = np.rint(position)
        if self.as_published:
            return nearest, np.zeros_like(position)
        position = np.where(np.abs(position - nearest) < 1e-9, nearest, position)  # rounding of the last bits
        below = np.floor(position)
        return below, position - below

    def written_law(self) -> dict[str, Any] | None:
        """Return the steps of the grid, how many entries are kept how often, and the noise of the others.

        None where weights were paid for, which is beyond the law of the entries, and where a delta is composed.
        """
        noise, kept = self._noise, np.broadcast_to(self.p_keep, (self.size,))
        laplace = isinstance(noise, LaplaceNoise)
        if self.as_published or self.weights_epsilon or (laplace and self.delta > 0):
            return None
        assert isinstance(noise, LaplaceNoise | GaussianNoise)
        narrow = isinstance(noise, GaussianNoise) and self.unit == "record" and self.size > 1 and noise.sigma < SMOOTH
        if narrow or (not laplace and kept.any()):
            return None
        chances, many = np.unique(kept, return_counts=True)
        keep = [int(chance * 2.0**53) for chance in chances]
        entries = {"unit": self.unit, "steps": self._steps, "many": many.tolist(), "keep": keep}
        return {"kind": "entries"} | entries | {"noise": noise.written()}

    def _perturb(self, rows: FloatArray, rng: np.random.Generator, reports: FloatArray) -> None:
        keeping = bool(np.any(self.p_keep > 0))
        for block in blocks(self.size, max(1, BLOCK // len(rows))):
            index, rest = self._position(rows[:, block])
            if not self.as_published:
                index += rng.random(index.shape) < rest
            noise = self._noise.sample(rng, index.size).reshape(index.shape)
            if keeping:
                noise[rng.random(index.shape) < (self.p_keep[block] if self.p_keep.ndim else self.p_keep)] = 0.0
            index += noise
            index *= self.step
            reports[:, block] = index + self.domain.low

    @property
    def _fineness(self) -> float:
        """Codes a step: one on the grid; real reports are rounded to 2^-16 of the noise before they are summed."""
        return 2.0**16 / power_of_two(math.sqrt(self._noise.absolute[1])) if self._real else 1.0

    def _codes(self, rows: FloatArray) -> FloatArray:
        return np.rint(self.support.index(rows) * self._fineness)

    @cached_property
    def readout(self) -> Readout:
        """The plain mean of the reports, entry by entry."""
        _, second, _ = self._noise.absolute
        half = (self.domain.high - self.domain.low) / 2 + self.step
        noise = self._noise
        rate = None if isinstance(noise, RealGaussian | RoundedGaussian | GaussianNoise) else noise.rate  # type: ignore[attr-defined]
        tail = (2 * second + 1, 0.0) if rate is None else (2 / rate**2 + 1, 1 / rate)
        return Readout(
            offset=self.domain.low,
            scale=np.full(self.size, self.step / self._fineness),
            low=self.domain.low,
            high=self.domain.high,
            tail=Tail(tail[0] * self.step**2 + half**2, tail[1] * self.step),
            coarse=coarseness(self._fineness * max(math.sqrt(second), self._steps / 2)),
        )

    def moments(self, x: Any) -> Moments:
        """Return the exact moments of each entry of a report, rounding to the grid included."""
        values = self._inputs(x)
        below, rest = self._position(values)
        kept = np.broadcast_to(self.p_keep, (self.size,)).reshape(self.domain.dims)
        first, second, third = self._noise.absolute
        other, squared = 1 - rest, rest * (1 - rest)
        # the report is off by noise + c, c = -rest or 1 - rest; noise is whole, so E|noise + c|^3 is
        # E|noise|^3 + 3 c^2 E|noise| + P(noise = 0) |c|^3
        p_still = kept + (1 - kept) * math.exp(float(self._noise.log_mass(np.asarray(0.0))))
        cubed = p_still * squared * (rest**2 + other**2) if not self._real else 0.0
        bias = self.domain.low + self.step * below - values if self.as_published else np.zeros_like(values)
        return Moments(
            bias,
            self.step**2 * ((1 - kept) * second + squared),
            self.step**3 * ((1 - kept) * (third + 3 * first * squared) + cubed),
        )

    def log_prob(self, report: Any, x: Any) -> FloatArray:
        """Return the log mass of a report; as published its log density, in steps.

        A real report has a mass at the values of the grid and a density elsewhere. There a density is with respect to
        length plus one for each value of the grid, the same for all inputs.
        """
        reports, _ = open_array(report, "report")
        possible = self.support.contains(reports)
        inside = possible.reshape(possible.shape + (1,) * len(self.domain.dims))
        index = self.support.index(np.where(inside, reports, self.domain.low))
        below, rest = self._position(self._inputs(x))
        kept = np.broadcast_to(self.p_keep, (self.size,)).reshape(self.domain.dims)
        away = index - below
        with np.errstate(divide="ignore"):
            if self._real:
                on_grid = (index == np.rint(index)) & (index >= 0) & (index <= self._steps) & (kept > 0)
                atom = np.where(away == 0, np.log(kept), -np.inf)
                logs = np.where(on_grid, atom, np.log1p(-kept) + self._noise.log_mass(away))
            else:
                logs = np.logaddexp(
                    np.log1p(-rest) + spiked(self._noise, away, kept),
                    np.log(rest) + spiked(self._noise, away - 1, kept),
                )
        axes = tuple(range(logs.ndim - len(self.domain.dims), logs.ndim))
        return np.where(possible, logs.sum(axis=axes), -np.inf)

    @property
    def _worst(self) -> int:
        """An entry that is kept as often as any."""
        return int(np.argmax(self.p_keep)) if self.p_keep.ndim else 0

    def _pair(self) -> FloatArray:
        """Return the two inputs that are easiest to distinguish: one entry, or all, at either end of the range."""
        ends = np.full((2, self.size), self.domain.low)
        ends[1, slice(None) if self.unit == "record" else self._worst] = self.domain.high
        return ends

    def witnesses(self) -> tuple[FloatArray, FloatArray]:
        """Return the worst pair of inputs, also as reports: a kept entry has the largest likelihood ratio."""
        inputs = self._pair().reshape(2, *self.domain.dims)
        return inputs, inputs.copy()

    def dissect(self) -> Iterator[Cells]:
        """Cut the reports about the worst pair.

        No pair is worse. The likelihood of a report falls with its distance from the entry's value, so two values are
        the easier to distinguish the farther apart they are, as for every additive mechanism here. Entries are
        independent, so the worst pair differs in every entry that may differ. Entries in which the inputs agree are
        held fixed, and the cells weigh what is left.
        """
        first, second = self._pair().reshape(2, *self.domain.dims)
        kept = np.broadcast_to(self.p_keep, (self.size,))
        cutter = Cutter(self._noise, kept, self._steps, self._worst, lambda k: self._tensors(k))
        yield cutter.cells((first, second), whole=self.unit == "record", real=self._real)

    def _tensors(self, index: FloatArray) -> FloatArray:
        """Return the reports of rows of positions on the grid."""
        return (self.domain.low + self.step * index).reshape(-1, *self.domain.dims)


def _nested(weights: FloatArray | None) -> Any:
    """Return weights as nested tuples, which compare and travel in JSON."""
    if weights is None:
        return None

    def freeze(nested: Any) -> Any:
        return tuple(map(freeze, nested)) if isinstance(nested, list) else nested

    return freeze(weights.tolist())
