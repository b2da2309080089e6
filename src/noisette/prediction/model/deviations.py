"""The Gaussian model of an estimate's deviation from the truth."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from noisette import _validate
from noisette._validate import FloatArray
from noisette.core import Mechanism
from noisette.mechanisms.categorical.selections._base import SelectionMechanism
from noisette.mechanisms.vector.attributes import SampledAttributes
from noisette.prediction.model import populations
from noisette.prediction.model.extremes import extreme_weights, trial_points
from noisette.prediction.model.responses import Response, respond, scalar_domain

Real = Any  # a float, or an array with one number for each estimated quantity


@dataclass(frozen=True)
class Deviation:
    """Estimate minus truth, approximately N(bias, std^2): one number each, or one for each estimated quantity.

    ``third`` is the third absolute central moment of one report, averaged over the data, and ``reports`` the number of
    reports. ``range`` holds the least and the largest mean squared error over the distributions that are possible; both
    are ``mse`` when the distribution is known.
    """

    bias: Real
    std: Real
    third: Real
    reports: float
    range: tuple[Real, Real]

    @property
    def mse(self) -> Real:
        """Mean squared error bias^2 + std^2 (Duan 2024, equation 4.10)."""
        return self.bias**2 + self.std**2

    @property
    def berry_esseen(self) -> Real:
        """Largest error of the Gaussian model's distribution function (Duan 2024, Theorem 2; Shevtsova 2011).

        0.33554 (rho + 0.415 s^3) / (s^3 sqrt(r)), s = std sqrt(r) the standard deviation of one report.
        """
        spread = np.asarray(self.std) * math.sqrt(self.reports)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(spread > 0, self.third / spread**3, 1.0)
        return plain(0.33554 * (ratio + 0.415) / math.sqrt(self.reports))

    def pdf(self, x: Any) -> Any:
        """Return the density of the deviation at ``x``."""
        standard = (np.asarray(x, dtype=float) - self.bias) / self.std
        return plain(np.exp(-0.5 * standard**2) / (math.sqrt(2 * math.pi) * np.asarray(self.std)))

    def cdf(self, x: Any) -> Any:
        """Return the probability that the deviation is at most ``x``."""
        return plain(ndtr((np.asarray(x, dtype=float) - self.bias) / self.std))

    def probability_within(self, xi: Any) -> Any:
        """Return the probability that the deviation is at most ``xi`` in absolute value."""
        radius = np.asarray(xi, dtype=float)
        if not np.all(radius >= 0):
            raise ValueError(f"Expected xi={xi!r} >= 0: it bounds an absolute deviation.")
        # both tails are taken on the side where they are small, so that no digits are lost
        near, far = (radius - np.abs(self.bias)) / self.std, (-radius - np.abs(self.bias)) / self.std
        return plain(ndtr(near) - ndtr(far))

    def supremum(self, level: float = 0.95) -> Any:
        """Return the bound that the absolute deviation keeps with probability ``level``."""
        if not 0 < level < 1:
            raise ValueError(f"Expected level={level!r} in (0, 1), e.g. 0.95.")
        offset = np.abs(self.bias) / np.asarray(self.std)
        low = np.maximum(offset + ndtri(level), 0.0)
        high = offset + ndtri((1 + level) / 2)
        for _ in range(64):  # halves the bracket to the last bit
            middle = (low + high) / 2
            short = ndtr(middle - offset) - ndtr(-middle - offset) < level
            low, high = np.where(short, middle, low), np.where(short, high, middle)
        return plain(high * self.std)


def deviation(
    mechanism: Mechanism, *, users: int, values: Any = None, probs: Any = None, distribution: str | None = None
) -> Deviation:
    """Predict how far the average of the reports of ``users`` users falls from the true mean, without any experiment.

    Formula: N(delta, sigma^2), delta = E[bias(t)], sigma^2 = (E[variance(t)] + (1 - m/d) Var[t + bias(t)]) / r over
    the distribution of t, with r = n m / d reports. The second term is the spread of the users who happen to report a
    dimension; Duan 2024 drops it. It is Var(t) (1/r - 1/n) for an unbiased mechanism.

    The distribution is a histogram (``values`` and ``probs``), a sample (``values``), a named family (``distribution``,
    see `noisette.prediction.named`), or unknown: then the result is that of the distribution of the largest mean
    squared error, and ``range`` spans all of them. A mechanism for categories gives one number a category; one for
    vectors takes the values of one dimension, or rows that are whole vectors and then gives one number a dimension.

    *Utility*: of the plain average of the reports, as ``mechanism.moments`` describes them. Square wave as published is
    biased; ``aggregate`` undoes that bias, at the price of the variance that ``SquareWave(debiased=True)`` has.
    Duan, Ye, Hu 2022; Duan 2024, Lemmas 1-3 and Theorem 2.

    >>> from noisette import Laplace
    >>> dev = deviation(Laplace(epsilon=1.0), users=1000, values=[0.1, 0.5])
    >>> round(dev.std, 5), round(dev.berry_esseen, 4)
    (0.08944, 0.0269)
    >>> round(dev.probability_within(0.1), 4), round(dev.supremum(0.95), 4)
    (0.7364, 0.1753)
    """
    users = _validate.integer(users, "users", low=1)
    if isinstance(mechanism, SelectionMechanism):
        return _selected(mechanism, users, values, probs)
    if mechanism.domain.shape != () and np.ndim(values) == 1 + len(mechanism.domain.shape):
        rows = _validate.reals(values, "values")
        populations.check_inside(rows, mechanism.domain)
        return describe(respond(mechanism, rows), populations.probabilities(probs, len(rows)), users)
    if isinstance(mechanism, SampledAttributes):
        from noisette.prediction.model.records import groups, record_deviation  # which is built from this module

        return record_deviation(mechanism, users, groups(mechanism.domain, values, probs, distribution))
    domain = scalar_domain(mechanism)
    population = populations.known(values, probs, distribution, domain)
    if population is not None:
        response = respond(mechanism, population.points)
        return describe(response, response.weigh(population.pooled), users)
    response = respond(mechanism, trial_points(mechanism))
    least, worst = (describe(response, weights, users) for weights in extreme_weights(response, users))
    return replace(worst, range=(least.mse, worst.mse))


def selected_variance(mechanism: SelectionMechanism, share: Any) -> Any:
    """Return the variance that one user leaves in the share of an option that such a share of users chose.

    Where each user is asked about some of the options only, the draw of these users adds the variance of a sample.
    """
    none, every = mechanism.spread
    return none + share * (every - none) + share * (1 - share) * (1 / mechanism.share - 1)


def extreme_shares(mechanism: SelectionMechanism) -> FloatArray:
    """Return the shares of an option among which the least and the largest variance are, if all options are alike.

    The variance is a parabola in the share that opens downwards, or a line: its extremes are at both ends, and where
    it has its peak, if that is between them.
    """
    most, (none, every), times = (
        mechanism.domain.most / mechanism.domain.size,
        mechanism.spread,
        1 / mechanism.share - 1,
    )
    peak = 0.5 + (every - none) / (2 * times) if times > 0 else 0.0
    return np.asarray([0.0, min(max(peak, 0.0), most), most])


def _selected(mechanism: SelectionMechanism, users: int, values: Any, probs: Any) -> Deviation:
    """Describe shares of options, and last their mean number, of selections that are known or the worst."""
    domain = mechanism.domain
    if values is None:
        tried = extreme_shares(mechanism)
        worst = tried[np.argmax(selected_variance(mechanism, tried))]
        shares, number = np.full(domain.size, worst), mechanism.number_variance()
        third = max(
            float(mechanism.moments(row).third[-1]) for row in (np.arange(domain.most), np.full(domain.most, -1))
        )
        thirds = np.append(mechanism.moments(np.arange(domain.most)).third[:-1].max().repeat(domain.size), third)
    else:
        rows = _validate.integers(values, "values")
        populations.check_inside(rows, domain)
        weights, moments = populations.probabilities(probs, len(rows)), mechanism.moments(rows)
        shares, number = weights @ domain.members(rows), float(weights @ moments.variance[:, -1])
        thirds = weights @ moments.third
    std = np.sqrt(np.append(selected_variance(mechanism, shares), number) / users)
    return Deviation(np.zeros(std.size), std, thirds, users, (std**2, std**2))


def describe(response: Response, weights: FloatArray, users: float) -> Deviation:
    """Average a response over ``weights`` of the true values, the same for all quantities or one column for each."""

    def average(of: FloatArray) -> FloatArray:
        return np.asarray(((weights if weights.ndim == of.ndim else weights[:, None]) * of).sum(axis=0))

    reports, share = users * response.share, response.share
    bias, centre = average(response.bias), average(response.centred)
    strays = response.centred - centre
    variance = average(response.variance) + (1 - share) * average(strays**2)
    std = np.sqrt(np.maximum(variance, 0.0) / reports)
    # Minkowski: a report strays by its own noise, and by the value of whoever happens to report
    factor = math.cbrt((1 - share) * ((1 - share) ** 2 + share**2))
    third = average((np.cbrt(response.third) + factor * np.abs(strays)) ** 3 if factor else response.third)
    mse = plain(bias**2 + std**2)
    return Deviation(plain(bias), plain(std), plain(third), reports, (mse, mse))


def plain(number: Any) -> Any:
    """Return a float where there is one number."""
    array = np.asarray(number)
    return float(array) if array.ndim == 0 else array
