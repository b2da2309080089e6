"""What a release looks like to dp-accounting: an event of its algebra, or a privacy loss distribution."""

from __future__ import annotations

import math
from typing import Any, Protocol, runtime_checkable

from noisette import _validate
from noisette.accounting.curves import DOTS, Curve, privacy_curve
from noisette.core import Mechanism
from noisette.guarantees import Guarantee

_LARGEST = 700.0  # exp(-epsilon) is no longer a float beyond
_FINE = 2.0**20  # lattice steps a sigma from which on a lattice is the real line to 1e-9
_SHY = 1 - 1e-9

Releasable = Mechanism | Guarantee | Curve


@runtime_checkable
class GaussianNoise(Protocol):
    """A mechanism that adds normal noise of scale ``sigma`` to a value of a bounded domain."""

    @property
    def sigma(self) -> float: ...
    @property
    def domain(self) -> Any: ...
    @property
    def support(self) -> Any: ...


def noise_mu(released: Any) -> float | None:
    """Return mu = diameter / sigma of Gaussian noise, rounding of the inputs to a lattice included, or None."""
    if not isinstance(released, GaussianNoise):
        return None
    step = float(getattr(released.support, "step", 0.0)) if released.domain.kind != "grid" else 0.0
    return (float(released.domain.diameter) + 2 * step) / released.sigma / _SHY


def gdp(released: Any) -> float | None:
    """Return the mu for which a mechanism is mu-GDP, or None if it is not one with Gaussian noise on a fine lattice.

    >>> from noisette import Gaussian
    >>> m = Gaussian(epsilon=1.0, delta=1e-6)
    >>> round(gdp(m) * m.sigma, 6)
    2.0
    """
    mu = noise_mu(released)
    if mu is None or float(getattr(released.support, "step", 0.0)) * _FINE > released.sigma:
        return None
    return mu


def event(released: Releasable, times: int = 1) -> Any:
    """Return a dp-accounting DpEvent that is at least as revealing as ``times`` releases.

    Gaussian noise: GaussianDpEvent(sigma / diameter), or on a coarse grid ZCDpEvent(diameter^2 / (2 sigma^2)). A pure
    guarantee: RandomizedResponseDpEvent over as many buckets as the total variation distance allows. Otherwise there is
    no event, and NonPrivateDpEvent says so: take `loss_distribution`.

    Use them with NeighboringRelation.REPLACE_ONE: two inputs of one user differ by the diameter, which is what the
    multiplier is about. (There dp-accounting's PLD accountant counts a GaussianDpEvent at twice its mu, which is safe;
    its RDP accountant counts it once, which is exact.) Repetitions are written out one by one, never as
    SelfComposedDpEvent: dp-accounting 0.6's PLD accountant ignores the count for randomised response.

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
    """Return the event of a single release."""
    exact, bound = gdp(released), noise_mu(released)
    if exact is not None:
        return dp_accounting.GaussianDpEvent(1 / exact)
    if bound is not None:
        return dp_accounting.ZCDpEvent(bound**2 / 2)
    curve = privacy_curve(released)
    epsilon, variation = float(curve.epsilons[-1]), float(curve.deltas[0])
    if curve.deltas[-1] > 0 or epsilon > _LARGEST:
        return dp_accounting.NonPrivateDpEvent()
    if variation == 0:
        return dp_accounting.NoOpDpEvent()
    excess = math.expm1(epsilon)
    # k-ary randomised response has total variation (E - 1) / (E + k - 1)
    buckets = max(2, min(math.floor((1 - variation) * excess / variation * (1 + 1e-8)), 2**53))
    return dp_accounting.RandomizedResponseDpEvent(buckets / (excess + buckets), buckets)


def loss_distribution(released: Releasable, *, interval: float | None = None, dots: int = DOTS) -> Any:
    """Return dp-accounting's PrivacyLossDistribution of one release, which composes.

    ``interval`` is the spacing of the losses; distributions compose if they share it. By default it is one at which
    the curve is exact, or for Gaussian noise 1/1000 of mu.

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
