"""What a release looks like to dp-accounting: an event of its algebra, or a privacy loss distribution."""

from __future__ import annotations

import math
from typing import Any

from noisette import _validate
from noisette.accounting.curves import DOTS, Curve, declared, privacy_curve, stated_by
from noisette.core import ConcentratedEvent, GaussianEvent, Mechanism
from noisette.guarantees import Guarantee, changes

_LARGEST_EPSILON = 700.0  # exp(-epsilon) is no longer a float beyond

Releasable = Mechanism | Guarantee


def gdp(released: Any) -> float | None:
    """Return the mu for which a mechanism declares to be mu-GDP, None if it declares nothing of the sort.

    >>> from noisette import Gaussian
    >>> m = Gaussian(epsilon=1.0, delta=1e-6)
    >>> round(gdp(m) * m.sigma, 6)
    2.0
    """
    happened = declared(released)
    return float(happened.mu) if isinstance(happened, GaussianEvent) else None


def concentration(released: Any) -> float | None:
    """Return the rho for which a mechanism declares to be rho-zCDP, None if it declares nothing of the sort."""
    happened = declared(released)
    if isinstance(happened, GaussianEvent):
        return float(happened.mu) ** 2 / 2
    return float(happened.rho) if isinstance(happened, ConcentratedEvent) else None


def event(released: Releasable, times: int = 1) -> Any:
    """Return a dp-accounting DpEvent that is at least as revealing as ``times`` releases.

    Gaussian noise: GaussianDpEvent(sigma / diameter), or on a grid ZCDpEvent(diameter^2 / (2 sigma^2)). A pure
    guarantee: RandomizedResponseDpEvent over as many buckets as the total variation distance allows. Otherwise there is
    no event, and NonPrivateDpEvent says so: take `loss_distribution`.

    Use them with NeighboringRelation.REPLACE_ONE: two inputs of one user differ by the diameter, which is what the
    multiplier is about. Of a release under add-remove the event is that of two changes, which replace a record. (There
    dp-accounting's PLD accountant counts a GaussianDpEvent at twice its mu, which is safe; its RDP accountant counts it
    once, which is exact.) Repetitions are written out one by one, never as SelfComposedDpEvent: dp-accounting 0.6's PLD
    accountant ignores the count for randomised response.

    >>> from noisette import Duchi, Gaussian
    >>> event(Duchi(epsilon=1.0))
    RandomizedResponseDpEvent(noise_parameter=0.5378828427399902, num_buckets=2)
    >>> len(event(Duchi(epsilon=1.0), times=3).events)
    3
    """
    import dp_accounting

    times = _validate.integer(times, "times", low=1)
    one = _one_event(released, dp_accounting)
    return one if times == 1 else dp_accounting.ComposedDpEvent([one] * times)


def _one_event(released: Releasable, dp_accounting: Any) -> Any:
    """Return the event of a single release, of which a record is replaced."""
    mu, rho, counted = gdp(released), concentration(released), released
    stated = stated_by(released)
    count = changes(stated.relation, "replace")
    if mu is not None:
        return dp_accounting.GaussianDpEvent(1 / (count * mu))
    if rho is not None:
        return dp_accounting.ZCDpEvent(count**2 * rho)
    if count > 1:
        counted = stated.implied(unit=stated.unit, model=stated.model, relation="replace")
    curve = privacy_curve(counted)
    epsilon, variation = float(curve.epsilons[-1]), float(curve.deltas[0])
    if curve.deltas[-1] > 0 or epsilon > _LARGEST_EPSILON:
        return dp_accounting.NonPrivateDpEvent()
    if variation == 0:
        return dp_accounting.NoOpDpEvent()
    excess = math.expm1(epsilon)
    # k-ary randomised response has total variation (E - 1) / (E + k - 1)
    buckets = max(2, min(math.floor((1 - variation) * excess / variation * (1 + 1e-8)), 2**53))
    return dp_accounting.RandomizedResponseDpEvent(buckets / (excess + buckets), buckets)


def loss_distribution(released: Releasable | Curve, *, interval: float | None = None, dots: int = DOTS) -> Any:
    """Return dp-accounting's PrivacyLossDistribution of one release, which composes.

    ``interval`` is the spacing of the losses; distributions compose if they share it. By default it is one at which
    the curve is exact, or for Gaussian noise 1/1000 of mu. It says nothing of its unit, model and relation, which are
    those of the release: compose distributions of equal ones.

    *Guarantee*: pessimistic, see `privacy_curve`.

    >>> from noisette import Duchi
    >>> pld = loss_distribution(Duchi(epsilon=0.1))
    >>> round(pld.self_compose(100).get_epsilon_for_delta(1e-6), 2)
    4.77
    """
    mu = gdp(released)
    if mu is not None:
        from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

        return from_gaussian_mechanism(1 / mu, value_discretization_interval=interval or mu / 1000)
    curve = privacy_curve(released, dots=dots)
    return (curve if interval is None else curve.spaced(_validate.positive(interval, "interval"))).distribution()
