"""Mean squared error as a function of the number of users, and where two such curves cross."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Protocol

import numpy as np

from noisette._search import narrowed
from noisette.core import Mechanism
from noisette.mechanisms.categorical._base import CategoricalMechanism
from noisette.mechanisms.categorical.selections._base import SelectionMechanism
from noisette.mechanisms.vector.attributes import SampledAttributes
from noisette.mechanisms.vector.sampled import Sampled
from noisette.prediction.model import populations
from noisette.prediction.model.deviations import describe, extreme_shares, selected_variance
from noisette.prediction.model.extremes import extreme_weights, largest_error, trial_points
from noisette.prediction.model.populations import Population
from noisette.prediction.model.responses import ROUNDING, Response, respond, scalar_domain

_WHOLE = 9  # points that stand for a population where each is a whole vector to evaluate
_LARGEST_POPULATION = 1e12  # users, beyond which no crossing of worst cases is sought


class ErrorCurve(Protocol):
    """Mean squared error against the number of users."""

    @property
    def unbiased(self) -> bool:
        """Whether the error falls to zero as users are added."""

    def at(self, users: float) -> float:
        """Return the mean squared error."""


@dataclass(frozen=True)
class Known:
    """noise / users + bias^2, both averaged over the estimated quantities; ``bias`` is their mean bias.

    ``unbiased`` says whether the bias is zero for all distributions, not just for this one.
    """

    noise: float
    square: float
    bias: float
    unbiased: bool

    @classmethod
    def of(cls, response: Response, population: Population) -> Known:
        """Average a response over a population."""
        if response.variance.ndim == 2:  # frequencies: many quantities, one distribution
            one = describe(response, response.weigh(population.pooled), 1.0)
            noise, bias, shares = (
                float(np.mean(np.square(one.std))),
                one.bias,
                np.full(one.bias.size, 1 / one.bias.size),
            )
        else:
            shares, weights, spread = population.shares, population.weights, population.spread
            bias = np.zeros(shares.size)
            if not response.unbiased:
                columns = np.stack([response.bias, response.centred, response.centred**2], axis=1)
                bias, mean, square = (weights @ columns).T  # one pass over what may be a large table
                spread = float(shares @ np.maximum(square - mean**2, 0.0))
            noise = (float(population.pooled @ response.variance) + (1 - response.share) * spread) / response.share
        bias = np.where(np.abs(bias) > ROUNDING * response.scale, bias, 0.0)
        return cls(max(noise, 0.0), float(shares @ bias**2), float(shares @ bias), response.unbiased)

    def at(self, users: float) -> float:
        """Return the mean squared error."""
        return self.noise / users + self.square


@dataclass(frozen=True, eq=False)
class WorstCase:
    """The largest mean squared error over all distributions of the true values."""

    response: Response

    @property
    def unbiased(self) -> bool:
        """Whether the error falls to zero as users are added."""
        return self.response.unbiased

    @cached_property
    def _remembered(self) -> Callable[[float], float]:
        """Errors that were asked for before: one curve is compared with many."""
        return lru_cache(maxsize=256)(self._error)

    def at(self, users: float) -> float:
        """Return the mean squared error, proportional to 1 / users without bias."""
        return self._remembered(1.0) / users if self.unbiased else self._remembered(users)

    def _error(self, users: float) -> float:
        if self.response.variance.ndim == 2:
            return self.response.error_range()[1] / users
        return largest_error(self.response, users)

    def describe(self, users: float) -> tuple[float, float, float]:
        """Return bias and standard deviation at the worst distribution, and the mean squared error at the best one."""
        if self.response.variance.ndim == 2:  # frequencies add up to one: they are not at their worst all at once
            lowest, largest = self.response.error_range()
            return 0.0, math.sqrt(largest / users), lowest / users
        least, worst = (describe(self.response, w, users) for w in extreme_weights(self.response, users))
        return 0.0 if self.unbiased else worst.bias, worst.std, least.mse


@dataclass(frozen=True)
class SelectedErrors:
    """Least and largest variance that one user leaves in the share of an option, averaged over the options."""

    least: float
    largest: float
    unbiased: bool = True

    @classmethod
    def of(cls, mechanism: SelectionMechanism) -> SelectedErrors:
        """Return the variances at the best and at the worst shares: those of nobody, or of as many as there may be."""
        shares = extreme_shares(mechanism)
        least, largest = np.sort(selected_variance(mechanism, shares))[[0, -1]].tolist()
        return cls(least, largest)

    def at(self, users: float) -> float:
        """Return the mean squared error."""
        return self.largest / users

    def describe(self, users: float) -> tuple[float, float, float]:
        """Return bias and standard deviation at the worst distribution, and the mean squared error at the best one."""
        return 0.0, math.sqrt(self.largest / users), self.least / users


def share_error(mechanism: Mechanism, users: int, answering: float = 1.0) -> float:
    """Return the standard error of a category's share, the root of the mean square over all categories.

    ``answering`` is the share of the users who report about these categories. The distribution is the worst one for the
    mean over the categories: shares add up to one, so they are not at their worst all at once. A category that many
    users share has a larger error, and leaves the others a smaller one.
    """
    points = np.zeros(1) if _alike(mechanism) else trial_points(mechanism)
    return math.sqrt(WorstCase(replace(respond(mechanism, points), share=answering)).at(users))


def _alike(mechanism: Mechanism) -> bool:
    """Tell whether a mechanism treats all categories alike, so that any one will do."""
    return isinstance(mechanism, CategoricalMechanism) and mechanism.moments_alike is not None


def curve(mechanism: Mechanism, population: Population | None) -> Known | WorstCase | SelectedErrors:
    """Return the error of a mechanism against the number of users."""
    if isinstance(mechanism, SelectionMechanism):
        if population is not None:
            raise ValueError("Expected no values: the error of a selection is that of the worst distribution.")
        return SelectedErrors.of(mechanism)
    whole = mechanism.domain.shape != () and not isinstance(mechanism, Sampled)
    if population is not None:
        population = population.coarsened(_WHOLE) if whole else population
        return Known.of(respond(mechanism, population.points), population)
    if _alike(mechanism):
        return WorstCase(respond(mechanism, np.zeros(1)))
    return WorstCase(respond(mechanism, trial_points(mechanism, _WHOLE if whole else 33)))


def crossing(first: ErrorCurve, second: ErrorCurve) -> float | None:
    """Return the number of users at which two curves cross, or None if one lies below the other everywhere."""
    if first.unbiased and second.unbiased:
        return None  # both are proportional to 1 / users
    if isinstance(first, Known) and isinstance(second, Known):
        # Duan 2024, equation 4.14, with the reports of both mechanisms counted in users
        gap = first.square - second.square
        users = (second.noise - first.noise) / gap if gap != 0 else 0.0
        return users if users > 0 else None
    return _search(first, second)


def break_even(
    first: Mechanism, second: Mechanism, *, values: Any = None, probs: Any = None, distribution: str | None = None
) -> float | None:
    """Return the population at which two mechanisms have the same mean squared error, or None if one always wins.

    Formula: n' = (V_b - V_a) / (delta_a^2 - delta_b^2), V the variance that one user's reports leave in the average and
    delta its bias. The mechanism of smaller variance wins below n', the one of smaller bias above. Two unbiased
    mechanisms never cross. The distribution is given as for `deviation`; unknown, the worst cases are compared.

    *Utility*: of plain averages of reports, as in `deviation`.
    Duan 2024, equation 4.14 and Algorithm 3; its example, 26,960 users, rests on a misprinted variance.

    >>> from noisette import Interval, Piecewise, SquareWave
    >>> tenths = [i / 10 for i in range(1, 11)]
    >>> a, b = SquareWave(epsilon=1.0, domain=Interval(0, 1)), Piecewise(epsilon=1.0)
    >>> round(break_even(a, b, values=tenths), 1)
    4131.7
    """
    curves: list[Any] = []
    for mechanism in (first, second):
        if isinstance(mechanism, SampledAttributes):
            from noisette.prediction.model.records import groups, record_curve  # which is built from this module

            curves.append(record_curve(mechanism, groups(mechanism.domain, values, probs, distribution)))
            continue
        domain = scalar_domain(mechanism)
        if distribution is not None and domain != scalar_domain(first):
            raise ValueError(
                f"Expected both mechanisms on one domain for distribution={distribution!r}, "
                f"got {scalar_domain(first)} and {domain}. Give values and probs instead."
            )
        curves.append(curve(mechanism, populations.known(values, probs, distribution, domain)))
    return crossing(*curves)


def _search(first: ErrorCurve, second: ErrorCurve) -> float | None:
    """Find the last crossing of two curves by looking at populations far apart, then by bisection."""

    def lead(log_users: float) -> bool:
        return first.at(math.exp(log_users)) < second.at(math.exp(log_users))

    grid = np.linspace(0.0, math.log(_LARGEST_POPULATION), 25)
    leads = [lead(point) for point in grid.tolist()]
    changes = [i for i in range(1, len(leads)) if leads[i] != leads[i - 1]]
    if not changes:
        return None
    low, high = float(grid[changes[-1] - 1]), float(grid[changes[-1]])
    before = leads[changes[-1] - 1]
    return math.exp(narrowed(lambda point: lead(point) == before, low, high, absolute=1e-8)[1])
