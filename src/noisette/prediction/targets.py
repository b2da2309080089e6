"""How many users a wanted error takes, how likely a difference is seen, and whether there is anything to see."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from noisette import _validate
from noisette._search import narrowed
from noisette.core import Mechanism
from noisette.domains import Attributes, Categorical, Domain, Grid, Interval, Selection
from noisette.mechanisms.vector.attributes import SampledAttributes
from noisette.prediction.curves import ErrorCurve, Known, curve
from noisette.prediction.model import populations
from noisette.prediction.model.records import Group, groups, record_curve
from noisette.prediction.model.responses import scalar_domain

WORTH, DOUBTFUL, NOT_WORTH = "worth collecting", "doubtful", "not worth collecting"
_CLEAR = 2.0  # times the noise, from which on a signal is called clear
_LARGEST_POPULATION = 1e18  # users, beyond which a target counts as out of reach
_ROUNDING = 1 + 1e-9  # of a predicted error


def verdict(mse: float, signal: float) -> str:
    """Judge a predicted error against the signal: "worth collecting", "doubtful" or "not worth collecting".

    The signal is the root mean square distance of one user's value from what one would say without asking: the middle
    of the domain, or equal frequencies. No mean or frequency is farther from that guess on average. So an error above
    the signal is worse than the guess, and nothing is worth collecting; below half of it the collection is clear.

    >>> verdict(0.5, 1.0), verdict(0.01, 1.0)
    ('doubtful', 'worth collecting')
    """
    ratio = signal / math.sqrt(mse) if mse > 0 else math.inf
    return NOT_WORTH if ratio < 1 else DOUBTFUL if ratio < _CLEAR else WORTH


def signal_of(domain: Domain, population: Any) -> float:
    """Return the signal, see `verdict`: from what is known about the values, or the largest there can be."""
    if isinstance(domain, Attributes):
        return _record_signal(population)
    if isinstance(domain, Categorical):
        return math.sqrt((domain.size - 1) / domain.size**2)
    if isinstance(domain, Selection):
        share = min(domain.most / domain.size, 0.5)
        return math.sqrt(share * (1 - share))
    assert isinstance(domain, Interval | Grid)
    if population is None:
        return domain.diameter / 2
    middle = domain.low + domain.diameter / 2
    return math.sqrt(max(float(population.pooled @ (population.points - middle) ** 2), 0.0))


def _record_signal(known: list[Group]) -> float:
    """Average the squares over all quantities; the numbers of a record may have different units."""
    squares = quantities = 0.0
    for group in known:
        total = group.size * group.members.size
        if isinstance(group.domain, Categorical) or group.weights is None:
            square = signal_of(group.domain, None) ** 2
        else:
            middle = group.domain.low + group.domain.diameter / 2
            square = float(np.mean(group.weights @ (group.points - middle) ** 2))
        squares, quantities = squares + total * square, quantities + total
    return math.sqrt(squares / quantities)


def power(std: float, effect: float, significance: float = 0.05) -> float:
    """Return the chance that a two-sided test of one mean or frequency sees that it is ``effect`` off.

    Formula: the test rejects when estimate and supposed value are z std apart, z the normal quantile of
    1 - significance / 2; its power is Phi(effect / std - z) + Phi(-effect / std - z). For the difference of two
    collections of this size, give the difference divided by sqrt(2).

    >>> round(power(1.0, 2.8015852), 6), round(power(1.0, 1e-12), 6)
    (0.8, 0.05)
    """
    quantile = float(ndtri(1 - significance / 2))
    ratio = effect / std if std > 0 else math.inf
    return float(ndtr(ratio - quantile) + ndtr(-ratio - quantile))


def needed_ratio(target: float, significance: float) -> float:
    """Return effect / std at which a test has the wanted power."""
    high = float(ndtri(1 - significance / 2) + ndtri(max(target, 0.5))) + 1
    return narrowed(lambda ratio: power(1.0, ratio, significance) < target, 0.0, high, tolerance=1e-12)[1]


def users_for_error(errors: ErrorCurve, target: float) -> int | None:
    """Return the least number of users at which a curve is at most ``target``, None if a bias keeps it above."""
    target *= _ROUNDING
    if isinstance(errors, Known):
        if errors.square >= target:
            return None
        guess = errors.noise / (target - errors.square)
        return max(1, math.ceil(guess)) if guess < _LARGEST_POPULATION else None
    if errors.at(_LARGEST_POPULATION) > target:
        return None
    low, high = 0, 1
    while errors.at(high) > target:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if errors.at(middle) > target else (low, middle)
    return high


def users_for_power(errors: ErrorCurve, target: float, effect: float, significance: float) -> int | None:
    """Return the least number of users at which a difference is seen often enough, None for a biased average."""
    if not errors.unbiased:
        return None
    return users_for_error(errors, (effect / needed_ratio(target, significance)) ** 2)


def check_targets(mse: Any, wanted: Any, effect: Any, significance: Any) -> None:
    """Refuse targets that make no sense."""
    if mse is not None:
        _validate.positive(mse, "target_mse")
    level = _validate.number(significance, "significance")
    if not 0 < level < 1:
        raise ValueError(f"Expected significance={significance!r} in (0, 1), e.g. 0.05.")
    if effect is not None:
        _validate.positive(effect, "effect")
    if wanted is not None:
        chance = _validate.number(wanted, "target_power")
        if not level < chance < 1:
            raise ValueError(f"Expected target_power={wanted!r} between significance={level:g} and 1, e.g. 0.8.")
        if effect is None:
            raise ValueError("Expected an effect beside target_power: how large a difference is to be seen, e.g. 0.05?")


def population_needed(
    mechanism: Mechanism,
    *,
    mse: float | None = None,
    power: float | None = None,
    effect: float | None = None,
    significance: float = 0.05,
    values: Any = None,
    probs: Any = None,
    distribution: str | None = None,
) -> int | None:
    """Return the least number of users for a mean squared error, or for the power to see an ``effect``.

    None if no number is enough: a bias stays. The true values are given as for `deviation`; unknown, the worst case
    has to do. See `noisette.prediction.targets.power` for what the power is of.

    >>> from noisette import Laplace
    >>> population_needed(Laplace(epsilon=1.0), mse=0.01)
    800
    >>> population_needed(Laplace(epsilon=1.0), power=0.8, effect=0.1)
    6280
    """
    check_targets(mse, power, effect, significance)
    if (mse is None) == (power is None):
        raise ValueError("Expected either mse or power, e.g. mse=0.01.")
    errors: Any
    if isinstance(mechanism, SampledAttributes):
        errors = record_curve(mechanism, groups(mechanism.domain, values, probs, distribution))
    else:
        domain = scalar_domain(mechanism)
        dims = math.prod(mechanism.domain.shape)
        errors = curve(mechanism, populations.known(values, probs, distribution, domain, dims=dims))
    if mse is not None:
        return users_for_error(errors, mse)
    assert power is not None
    assert effect is not None
    return users_for_power(errors, power, effect, significance)
