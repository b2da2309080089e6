"""From the guarantee that is wanted to the parameters that meet it, and back.

Every search bisects a monotone function and returns a parameter at which the guarantee was found to hold: the error of
the search is a little too much privacy, never too little.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, get_args

from noisette import _validate
from noisette.accounting._numbers import largest_below, least_meeting
from noisette.accounting.composition import as_randomized_response, composed_epsilon, meets
from noisette.accounting.conversions import gdp_mu
from noisette.accounting.sampling import LEAST_DELTA, SampledRelation, sampled_epsilon
from noisette.accounting.shuffling import shuffled
from noisette.guarantees import Guarantee

_SMALLEST_BUDGET = 1e-6  # budgets below it are not searched for
_LEAST_NOISE = 1e-6  # the multiplier to return where any will do


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

    low = max(epsilon / times * (1 - 1e-9), _SMALLEST_BUDGET)
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
    rounds; with ``users``, each weight's reports are shuffled among this many clients a round.

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
    sum by up to twice that. Without sampling, and for one release, it is exact; otherwise the least of what is known:
    see `noisette.accounting.sampling`. It holds for Poisson sampling only: shuffled epochs are another thing.

    *Guarantee*: never below the truth, rounding included, for delta down to 1e-300; above it by less than 2e-3 of
    epsilon where that was checked, with a multiplier of 0.3 or more: by quadrature for 2 and 3 releases, beside
    dp-accounting for 50 to 1,000 (within 1e-3 at delta 1e-6), on a finer lattice of this code for 10,000.

    >>> print(sampled_gaussian(1.0, 1e-6, releases=1000, sampling_prob=0.01))
    (2.12473, 1e-06)-DP, unit example, model central, relation add-remove
    """
    noise_multiplier, delta, releases, sampling_prob = _checked(noise_multiplier, delta, releases, sampling_prob)
    _check_relation(relation)
    epsilon = sampled_epsilon(noise_multiplier, delta, releases, sampling_prob, relation)
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

    def spent(multiplier: float) -> float:
        return sampled_epsilon(multiplier, delta, releases, sampling_prob, relation)

    reach = (1.0 if relation == "add-remove" else 2.0) * math.sqrt(releases)
    full, more = reach / gdp_mu(epsilon, delta), 1e-12
    while spent(full) > epsilon:  # enough without sampling, hence with it; but for rounding
        full, more = full * (1 + more), 2 * more
    if sampling_prob == 1:
        return full
    if -math.expm1(releases * math.log1p(-sampling_prob)) <= delta and spent(_LEAST_NOISE) <= epsilon:
        return _LEAST_NOISE  # any noise is enough: delta covers that the example is drawn at all
    # in the limit of many releases mu = q sqrt(releases (exp(1/z^2) - 1)): a guess
    guess = 1 / math.sqrt(math.log1p((full * sampling_prob) ** -2))
    return least_meeting(spent, epsilon, full, guess=guess, tolerance=tolerance)


def _checked(multiplier: float, delta: float, releases: int, sampling_prob: float) -> tuple[float, float, int, float]:
    """Return valid parameters."""
    sampling_prob = _validate.number(sampling_prob, "sampling_prob")
    if not 0 < sampling_prob <= 1:
        raise ValueError(f"Expected sampling_prob={sampling_prob!r} in (0, 1]: batch size over number of examples.")
    delta = _validate.delta(delta, positive=True)
    if delta < LEAST_DELTA:
        raise ValueError(f"Expected delta={delta!r} >= {LEAST_DELTA!r}: floats do not hold smaller chances to the end.")
    return (
        _validate.positive(multiplier, "noise_multiplier"),
        delta,
        _validate.integer(releases, "releases", low=1),
        sampling_prob,
    )


def _check_relation(relation: str) -> None:
    if relation not in get_args(SampledRelation):
        raise ValueError(f"Expected relation={relation!r} to be one of {get_args(SampledRelation)}.")
