"""From the guarantee that is wanted to the parameters that meet it, and back.

Every search bisects a monotone function and returns a parameter at which the guarantee was found to hold: the error of
the search is a little too much privacy, never too little.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal, get_args

from noisette import _validate
from noisette.accounting._numbers import largest_below, least_meeting
from noisette.accounting.composition import as_randomized_response, composed_epsilon, epsilon_at, meets, repeated
from noisette.accounting.conversions import gdp_epsilon, gdp_mu
from noisette.accounting.shuffling import shuffled
from noisette.guarantees import Guarantee

SampledRelation = Literal["add-remove", "replace"]

_LEAST = 1e-6  # budgets below it are not searched for
_INTERVAL = 1e-3
_NO_GAIN = 0.1  # with so little noise sampling hides next to nothing, and what holds without it is the bound
_COARSEST, _COARSE = 12.0, 3.0  # how much coarser the first searches are


def calibrate(
    build: Callable[[float], Any],
    epsilon: float,
    delta: float = 0.0,
    *,
    times: int = 1,
    users: int | None = None,
    tolerance: float = 1e-3,
) -> Any:
    """Return ``build(e)`` for the largest budget e at which ``times`` of its releases meet (epsilon, delta).

    With ``users``, reports of that many users are shuffled, see `shuffled`. ``build`` maps a budget to a mechanism, or
    is `Guarantee` itself: then any pure mechanism of the budget found will do.

    *Guarantee*: the result was checked to meet the target; its budget is within a relative ``tolerance`` of the
    largest that does.

    >>> from noisette import Duchi
    >>> m = calibrate(Duchi, 1.0, 1e-6, times=100)
    >>> round(m.epsilon, 3), meets(m, 100, 1.0, 1e-6)
    (0.024, True)
    """
    epsilon, delta = _validate.epsilon(epsilon), _validate.delta(delta, positive=users is not None)
    times, tolerance = _validate.integer(times, "times", low=1), _validate.positive(tolerance, "tolerance")

    def holds(budget: float) -> bool:
        made = build(budget)
        if users is None:
            return meets(made, times, epsilon, delta)
        return shuffled(made, users, delta, times=times).epsilon <= epsilon

    low = max(epsilon / times * (1 - 1e-9), _LEAST)
    if not holds(low):
        raise ValueError(
            f"No budget of {low!r} or more meets ({epsilon!r}, {delta!r}) {times} times. "
            "Raise epsilon or delta, or make fewer releases."
        )
    if users is None and delta > 0 and as_randomized_response(build(low)) is None:
        # one look costs a composition here, and secants need few; noise of that many releases is all but normal
        guess = math.sqrt(times) / gdp_mu(epsilon, delta)

        def spent(inverse: float) -> float:
            return composed_epsilon(build(1 / inverse), times, delta)

        return build(max(low, 1 / least_meeting(spent, epsilon, 1 / low, guess=guess, tolerance=tolerance)))
    high = 2 * low
    while holds(high):
        low, high = high, 2 * high
    return build(largest_below(holds, low, high, tolerance=tolerance))


def report_epsilon(epsilon: float, delta: float = 0.0, *, times: int, users: int | None = None) -> float:
    """Return the budget of each of ``times`` reports, by any pure mechanism, that together meet (epsilon, delta).

    For federated learning by randomised response on every weight, ``times`` is the number of weights times that of
    rounds; with ``users``, each weight's reports are shuffled among so many clients a round.

    >>> round(report_epsilon(1.0, times=50), 6)
    0.02
    >>> round(report_epsilon(8.0, 1e-6, times=1000), 4)
    0.0485
    """
    found: Guarantee = calibrate(Guarantee, epsilon, delta, times=times, users=users)
    return found.epsilon


def sampled_gaussian(
    noise_multiplier: float,
    delta: float,
    *,
    releases: int = 1,
    sampling_prob: float = 1.0,
    relation: SampledRelation = "add-remove",
) -> Guarantee:
    """Return the guarantee of sums with Gaussian noise, each over a Poisson sample of the examples.

    ``noise_multiplier`` is sigma over the largest norm of one example's contribution; replacing an example changes the
    sum by up to twice that. With ``sampling_prob`` 1 it is exact, mu = sqrt(releases) / noise_multiplier (add-remove);
    below, the privacy loss distributions of both directions are composed by dp-accounting and the worse one counts.
    It holds for Poisson sampling only: shuffled epochs are another thing.

    >>> print(sampled_gaussian(1.0, 1e-6, releases=1000, sampling_prob=0.01))
    (2.12459, 1e-06)-DP, unit example, model central, relation add-remove
    """
    noise_multiplier, delta, releases, sampling_prob = _checked(noise_multiplier, delta, releases, sampling_prob)
    _check_relation(relation)
    reach = 1.0 if relation == "add-remove" else 2.0
    epsilon = gdp_epsilon(reach * math.sqrt(releases) / noise_multiplier, delta)
    if sampling_prob < 1 and noise_multiplier >= _NO_GAIN:  # what holds without sampling holds with it
        interval = _interval(noise_multiplier, sampling_prob)
        epsilon = min(epsilon, _sampled_epsilon(noise_multiplier, delta, releases, sampling_prob, relation, interval))
    return Guarantee(epsilon, delta, unit="example", model="central", relation=relation)


def noise_multiplier(
    epsilon: float,
    delta: float,
    *,
    releases: int = 1,
    sampling_prob: float = 1.0,
    relation: SampledRelation = "add-remove",
    tolerance: float = 1e-3,
) -> float:
    """Return the least noise multiplier for which `sampled_gaussian` meets (epsilon, delta).

    *Guarantee*: it was checked to meet the target, and is within a relative ``tolerance`` of the least.

    >>> z = noise_multiplier(2.0, 1e-6, releases=100)
    >>> round(z, 4), round(sampled_gaussian(z, 1e-6, releases=100).epsilon, 4)
    (22.3048, 2.0)
    """
    epsilon = _validate.epsilon(epsilon)
    _, delta, releases, sampling_prob = _checked(1.0, delta, releases, sampling_prob)
    _check_relation(relation)
    reach = (1.0 if relation == "add-remove" else 2.0) * math.sqrt(releases)
    full = reach / gdp_mu(epsilon, delta) * (1 + 1e-12)  # enough without sampling, hence with it
    if sampling_prob == 1 or full <= _NO_GAIN:
        return full

    # in the limit of many releases mu = q sqrt(releases (exp(1/z^2) - 1)): a guess
    found = max(1 / math.sqrt(math.log1p((full * sampling_prob) ** -2)), _NO_GAIN)
    for coarse, precision in ((_COARSEST, 5e-3), (_COARSE, tolerance / 2), (1.0, tolerance)):

        def spent(multiplier: float, coarse: float = coarse) -> float:
            if multiplier < _NO_GAIN:
                return math.inf
            interval = coarse * _interval(multiplier, sampling_prob)
            return _sampled_epsilon(multiplier, delta, releases, sampling_prob, relation, interval)

        found = least_meeting(spent, epsilon, full, guess=found, tolerance=precision)
    return found


@lru_cache(maxsize=256)
def _sampled_epsilon(
    multiplier: float, delta: float, releases: int, sampling_prob: float, relation: SampledRelation, interval: float
) -> float:
    """Compose the subsampled Gaussian mechanism."""
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

    neighbours = {
        "add-remove": NeighboringRelation.ADD_OR_REMOVE_ONE,
        "replace": NeighboringRelation.REPLACE_ONE,
    }[relation]
    one = from_gaussian_mechanism(
        multiplier,
        value_discretization_interval=interval,
        sampling_prob=sampling_prob,
        neighboring_relation=neighbours,
    )
    return epsilon_at(repeated(one, releases, min(1e-15, delta * 1e-7)), delta)


def _interval(multiplier: float, sampling_prob: float) -> float:
    """Return a spacing that is fine for the spread of one loss: it costs less than 1e-4 of epsilon."""
    spread = sampling_prob * math.sqrt(math.expm1(min(1 / multiplier**2, 50.0)))
    return min(_INTERVAL, max(spread / 40, 1e-6))


def _checked(multiplier: float, delta: float, releases: int, sampling_prob: float) -> tuple[float, float, int, float]:
    """Return valid parameters."""
    sampling_prob = _validate.number(sampling_prob, "sampling_prob")
    if not 0 < sampling_prob <= 1:
        raise ValueError(f"Expected sampling_prob={sampling_prob!r} in (0, 1]: batch size over number of examples.")
    return (
        _validate.positive(multiplier, "noise_multiplier"),
        _validate.delta(delta, positive=True),
        _validate.integer(releases, "releases", low=1),
        sampling_prob,
    )


def _check_relation(relation: str) -> None:
    if relation not in get_args(SampledRelation):
        raise ValueError(f"Expected relation={relation!r} to be one of {get_args(SampledRelation)}.")
