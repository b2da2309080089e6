"""Users who choose their own budget and the region of values among which they want to hide."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, Literal

import numpy as np

from noisette import _random, _validate
from noisette._random import Rng
from noisette._validate import FloatArray, IntArray
from noisette.core import Aggregate, Estimate
from noisette.domains import Box, Interval
from noisette.mechanisms import by_name
from noisette.mechanisms.vector.sampled import Sampled
from noisette.prediction.model import populations
from noisette.prediction.model.deviations import Deviation, deviation, plain
from noisette.prediction.model.extremes import trial_points
from noisette.prediction.model.responses import ROUNDING, respond, scalar_domain

Weights = Literal["plain", "inverse-variance"]
_UNLIKE = 0.5600 / 0.33554  # Shevtsova 2010, for summands that are not alike, over the constant in `Deviation`


@dataclass(frozen=True)
class Personalised:
    """Groups of users, each with a mechanism of its own budget on its own region of the values.

    A user states her group, which is public, and reports by the mechanism of the group. Two ways to put the groups'
    estimates together:

    - ``"plain"``: each group weighs as much as it has users, which is the average of all reports. Unbiased for the mean
      of all users, whoever chose what.
    - ``"inverse-variance"``: the same among regions; within a region a group weighs users / (V + S^2), V the worst
      variance of its reports and S^2 that of uniform values. All of it is public. Unbiased if, within a region, the
      choice of a budget has nothing to do with the value; then a few users with large budgets save the many.

    *Guarantee*: each user has her own epsilon, among the values of her region only: the region itself is public.
    Xue, Zhu, Wang 2022; Duan 2024, section 4.1.3.

    >>> choices = Personalised.of("piecewise", epsilons=[0.5, 4.0], regions=[Interval(-1, 0), Interval(0, 1)])
    >>> [f"{m.epsilon:g} on {m.domain.low:g}..{m.domain.high:g}" for m in choices.mechanisms]
    ['0.5 on -1..0', '0.5 on 0..1', '4 on -1..0', '4 on 0..1']
    >>> simple, better = (choices.deviation([1000] * 4, weights=w).std for w in ("plain", "inverse-variance"))
    >>> round(simple / better, 1)
    2.8
    """

    mechanisms: tuple[Any, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "mechanisms", tuple(self.mechanisms))
        if not self.mechanisms:
            raise ValueError("Expected at least one group of users, got none.")
        for mechanism in self.mechanisms:
            if mechanism.kind not in ("mean", "vector-mean"):
                raise ValueError(f"Expected mechanisms that estimate means, got {mechanism.name!r}.")
            if mechanism.domain.shape != self.mechanisms[0].domain.shape:
                raise ValueError("Expected all groups to have as many dimensions as the first.")

    @classmethod
    def of(
        cls,
        inner: str,
        *,
        epsilons: Sequence[float],
        regions: Sequence[Interval] | None = None,
        dims: int = 1,
        report: int | None = None,
        **options: Any,
    ) -> Personalised:
        """Return a group for every budget and region, by one mechanism; of several dimensions some are reported."""
        dims = _validate.integer(dims, "dims", low=1)
        found: list[Any] = []
        for epsilon, region in product(epsilons, regions or [Interval()]):
            if dims == 1:
                found.append(by_name(inner)(epsilon=epsilon, domain=region, **options))
            else:
                box = Box(dims, region.low, region.high)
                found.append(Sampled(inner, epsilon=epsilon, dims=dims, report=report, domain=box, options=options))
        return cls(tuple(found))

    @cached_property
    def _regions(self) -> list[list[int]]:
        """Groups of the same region."""
        found: dict[Any, list[int]] = {}
        for place, mechanism in enumerate(self.mechanisms):
            found.setdefault(mechanism.domain, []).append(place)
        return list(found.values())

    def privatize(self, x: Any, choice: Any, *, clip: bool = False, rng: Rng = None) -> tuple[Any, ...]:
        """Return the reports of each group, None where nobody chose it; ``choice`` is each user's group."""
        values, chosen = _validate.reals(x), _validate.integers(choice, "choice")
        if chosen.shape != values.shape[:1]:
            raise ValueError(f"Expected one choice for each of {values.shape[0]} users, got {chosen.shape}.")
        last = len(self.mechanisms) - 1
        if chosen.min() < 0 or chosen.max() > last:
            bad = int(chosen[(chosen < 0) | (chosen > last)][0])
            raise ValueError(f"Expected choices from 0 to {last}, got {bad}.")
        source = _random.generator(rng)
        return tuple(
            mechanism.privatize(values[chosen == place], clip=clip, rng=source) if np.any(chosen == place) else None
            for place, mechanism in enumerate(self.mechanisms)
        )

    def aggregate(self, reports: Sequence[Any]) -> PersonalisedAggregate:
        """Sum the reports of each group."""
        if len(reports) != len(self.mechanisms):
            raise ValueError(f"Expected reports of {len(self.mechanisms)} groups, got {len(reports)}.")
        pairs = zip(self.mechanisms, reports, strict=True)
        return PersonalisedAggregate(self, tuple(None if r is None else m.aggregate(r) for m, r in pairs))

    def weights(self, users: Sequence[int] | IntArray, kind: Weights = "inverse-variance") -> FloatArray:
        """Return how much the estimate of each group counts: public, from budgets, regions and numbers of users."""
        counts = self._users(users)
        shares = counts / counts.sum()
        if kind == "plain":
            return np.asarray(shares)
        if kind != "inverse-variance":
            raise ValueError(f"Expected weights={kind!r} to be 'plain' or 'inverse-variance'.")
        result = np.zeros(len(self.mechanisms))
        for places in self._regions:
            own = np.asarray([counts[z] / self._one_user[z] for z in places])
            if own.sum() > 0:
                result[places] = shares[places].sum() * own / own.sum()
        return result

    @cached_property
    def _one_user(self) -> FloatArray:
        """Variance that one user of each group leaves in an average, at worst, with uniform values."""
        return np.asarray([self._cost(mechanism) for mechanism in self.mechanisms])

    @staticmethod
    def _cost(mechanism: Any) -> float:
        domain: Any = scalar_domain(mechanism)
        answer = respond(mechanism, trial_points(mechanism))
        return float((answer.variance.max() + domain.diameter**2 / 12) / answer.share)

    def _users(self, users: Sequence[int] | IntArray) -> FloatArray:
        counts = _validate.integers(users, "users")
        if counts.shape != (len(self.mechanisms),) or counts.min() < 0 or counts.sum() == 0:
            raise ValueError(f"Expected the number of users of {len(self.mechanisms)} groups, got users={users}.")
        return counts.astype(np.float64)

    def deviation(
        self,
        users: Sequence[int] | IntArray,
        *,
        values: Sequence[Any] | None = None,
        distribution: str | None = None,
        weights: Weights = "inverse-variance",
    ) -> Deviation:
        """Predict the deviation of the estimate from the mean of all users (Theorem 3, with weights).

        delta = sum w_z delta_z, sigma^2 = sum w_z^2 sigma_z^2 + S^2 sum (w_z - n_z/n)^2 / n_z: the second sum is the
        chance of which values chose which budget, and zero for plain weights. ``values`` has a list for each group,
        ``distribution`` is a family on each region; without either the worst case is predicted.
        """
        counts, chosen = self._users(users), self.weights(users, weights)
        if values is not None and len(values) != len(self.mechanisms):
            raise ValueError(f"Expected values of {len(self.mechanisms)} groups, got {len(values)} lists.")
        shares = counts / counts.sum()
        bias = variance = cubes = least = 0.0
        reports = 0.0
        for place in np.flatnonzero(counts).tolist():
            own = None if values is None else values[place]
            one = deviation(self.mechanisms[place], users=int(counts[place]), values=own, distribution=distribution)
            weight = chosen[place]
            shift, spread = abs(weight - shares[place]), self._spread(place, own, distribution)
            length = scalar_domain(self.mechanisms[place]).diameter
            chance_variance = shift**2 * spread / counts[place]
            bias = bias + weight * one.bias
            variance = variance + weight**2 * one.std**2 + chance_variance
            cube = weight**3 * one.third / one.reports**2
            if shift > 0:  # (a + b)^3 <= 4 (a^3 + b^3), and a value is no farther from its mean than the region is long
                cube = 4 * (cube + shift**3 * length * spread / counts[place] ** 2)
            cubes = cubes + cube
            # values that are all equal leave nothing to chance; a bias may vanish for some values
            least = least + weight**2 * (one.range[0] if np.all(np.abs(one.bias) <= ROUNDING * length) else 0.0)
            reports += one.reports
        error = plain(bias**2 + variance)
        limits = (error, error) if values is not None or distribution is not None else (plain(least), error)
        third = cubes * reports**2 * _UNLIKE
        return Deviation(plain(bias), plain(np.sqrt(variance)), plain(third), reports, limits)

    def _spread(self, place: int, values: Any, distribution: str | None) -> Any:
        """Variance of the true values of a group, at most that of two halves at the ends of the region."""
        domain: Any = scalar_domain(self.mechanisms[place])
        if np.ndim(values) == 2:
            return np.var(np.asarray(values, dtype=float), axis=0)
        population = populations.known(values, None, distribution, domain)
        return domain.diameter**2 / 4 if population is None else population.spread


@dataclass(frozen=True, eq=False)
class PersonalisedAggregate:
    """Integer sums of each group; any order of merging gives the same bits."""

    plan: Personalised
    parts: tuple[Aggregate | None, ...]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PersonalisedAggregate) and self.parts == other.parts

    def __add__(self, other: PersonalisedAggregate) -> PersonalisedAggregate:
        return self.merge(other)

    def merge(self, other: PersonalisedAggregate) -> PersonalisedAggregate:
        """Return the aggregate of both batches."""
        if not isinstance(other, PersonalisedAggregate) or len(other.parts) != len(self.parts):
            raise TypeError(f"Expected the aggregate of the same groups, got {type(other).__name__}.")
        pairs = zip(self.parts, other.parts, strict=True)
        merged = (one + two if one is not None and two is not None else one or two for one, two in pairs)
        return PersonalisedAggregate(self.plan, tuple(merged))

    @property
    def users(self) -> IntArray:
        """Users of each group."""
        return np.asarray([0 if group is None else group.users for group in self.parts], dtype=np.int64)

    def _estimates(self, weights: FloatArray) -> Iterator[tuple[float, Estimate]]:
        for weight, group in zip(weights.tolist(), self.parts, strict=True):
            if group is not None and weight > 0:
                yield weight, group.estimate()

    def estimate(self, weights: Weights = "inverse-variance") -> Estimate:
        """Return the mean of all users with its standard error, see `Personalised` for the weights.

        The estimate of each group is unbiased, that of square wave too: its aggregate undoes the bias.
        """
        chosen = self.plan.weights(self.users, weights)
        value: Any = 0.0
        variance: Any = 0.0
        counts = []
        for weight, one in self._estimates(chosen):
            value = value + weight * one.value
            variance = variance + (weight * one.std_error) ** 2
            counts.append(one.count)
        domains = [mechanism.domain for mechanism in self.plan.mechanisms]
        return Estimate(
            value=np.asarray(value),
            std_error=np.sqrt(np.asarray(variance)),
            count=np.sum(counts, axis=0),
            low=min(map(_low, domains)),
            high=max(map(_high, domains)),
            kind=self.plan.mechanisms[0].kind,
        )


def _low(domain: Any) -> float:
    return float(domain.lows.min()) if isinstance(domain, Box) else float(domain.low)


def _high(domain: Any) -> float:
    return float(domain.highs.max()) if isinstance(domain, Box) else float(domain.high)
