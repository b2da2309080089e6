"""Many releases about the same user: what they give away together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from noisette import _validate
from noisette._validate import FloatArray
from noisette.accounting._numbers import binomial_window, least_above, log_binomial
from noisette.accounting._sums import LossSum, LossTimes, saddle
from noisette.accounting.conversions import gdp_epsilon, zcdp_from_pure
from noisette.accounting.curves import Curve, privacy_curve, stated_by
from noisette.accounting.events import Releasable, concentration, gdp
from noisette.guarantees import Guarantee, changes, gaussian_delta, weakest

_NEGLIGIBLE = 1e-9  # share of delta at which the curve of Gaussian noise is cut off
_MASSES = 1e-12  # relative error of sums of masses
_POINTS = 2.0**22  # losses that a composed distribution may have
_LEAST_LOG = -750.0  # what is less is zero in float64
_ORDERS = 1.002  # times the last order, the next one at which a divergence is computed
_STEPS = 200.0  # losses a standard deviation that a mixed composition should have


def randomized_response_delta(epsilon: float, times: int, total: float) -> float:
    """Return the exact delta of ``times`` binary randomised responses of budget ``epsilon`` at a total budget.

    Formula: delta = sum_j C(k, j) (exp(j e) - exp(total + (k - j) e))_+ / (1 + exp(e))^k, summed in log space.
    It bounds any ``times`` releases that are epsilon-DP, adaptive ones included.
    Kairouz, Oh, Viswanath 2015, Theorem 3.3; Murtagh, Vadhan 2016.

    >>> f"{randomized_response_delta(1.0, 2, 1.0):.6f}"
    '0.337834'
    >>> f"{randomized_response_delta(0.01, 1_000_000, 60.0):.4e}"
    '1.3682e-01'
    """
    epsilon, times = _validate.epsilon(epsilon), _validate.integer(times, "times", low=1)
    total = _validate.number(total, "total")
    if not total >= 0:
        raise ValueError(f"Expected total={total!r} >= 0.")
    small = math.exp(-epsilon)
    p_same, p_other = 1 / (1 + small), small / (1 + small)
    first = max(0, math.floor((times + total / epsilon) / 2) + 1)  # from here on the bracket is positive
    low, high = binomial_window(times, p_same, deviations=20.0)
    low, high = max(low, first), min(times, max(high, first + high - low))
    if low > high:
        return 0.0
    j = np.arange(float(low), high + 1.0)
    log_mass = log_binomial(j, times, p_same, p_other)
    bracket = -np.expm1(np.minimum(total - (2 * j - times) * epsilon, 0.0))
    return float((np.exp(log_mass) * bracket).sum())


def randomized_response_epsilon(epsilon: float, times: int, delta: float) -> float:
    """Return the least total budget of ``times`` randomised responses at delta, from above; see the delta of them.

    >>> round(randomized_response_epsilon(1.0, 100, 1e-6), 4)
    83.5307
    """
    delta = _validate.delta(delta)
    pure = _validate.epsilon(epsilon) * _validate.integer(times, "times", low=1)
    if delta == 0:
        return pure
    usable = delta * (1 - 1e-12)
    return least_above(
        lambda total: randomized_response_delta(epsilon, times, total) <= usable, 0.0, pure, tolerance=1e-12
    )


def compose(released: Releasable | Sequence[Releasable], times: int = 1, *, delta: float = 0.0) -> Guarantee:
    """Return the guarantee of ``times`` independent releases about one unit; of a sequence, ``times`` rounds of it.

    Guarantees of different models and relations are counted in the strongest terms that all of them imply, see
    `Guarantee.implied`, and the result states these; where there are none, they are refused.

    With delta = 0 budgets add up. With a delta, the least epsilon of these: adding up; Gaussian noise exactly,
    mu = sqrt(sum of mu_i^2); randomised response exactly; else the composed privacy loss distribution of the
    mechanisms' own curves. Releases may depend on the answers to earlier ones.

    >>> from noisette import Duchi, Gaussian, Guarantee
    >>> print(compose(Duchi(epsilon=0.1), 100, delta=1e-6))
    (4.77457, 1e-06)-DP, unit record, model local, relation any-pair
    >>> print(compose(Guarantee(0.1), 100))
    10-DP, unit record, model local, relation any-pair
    """
    times, delta = _validate.integer(times, "times", low=1), _validate.delta(delta)
    parts = list(released) if isinstance(released, Sequence) else [released]
    if not parts:
        raise ValueError("Expected at least one release to compose, got an empty sequence.")
    parts = _in_common_terms(parts)
    added = _added([stated_by(part) for part in parts], times)
    if delta == 0:
        return added
    epsilon = _least(parts, times, delta, added)
    if not math.isfinite(epsilon):
        raise ValueError(
            f"No epsilon meets delta={delta!r}: these releases fail with a larger probability, up to {added.delta!r}. "
            "Raise delta, or give each release a smaller one."
        )
    return replace(added, epsilon=epsilon, delta=delta, matrix=None)


def composed_epsilon(released: Releasable, times: int, delta: float) -> float:
    """Return the epsilon that `compose` would return at delta > 0, infinity where it would find none."""
    return _least([released], times, delta, _added([stated_by(released)], times))


def meets(released: Releasable, times: int, epsilon: float, delta: float) -> bool:
    """Tell whether `compose` would return at most this epsilon, at less cost where delta is known in closed form."""
    exact = as_randomized_response(released)
    if exact is not None and delta > 0 and times * exact > epsilon:
        return randomized_response_delta(exact, times, epsilon) <= delta * (1 - 1e-12)
    added = _added([stated_by(released)], times)
    if added.epsilon <= epsilon and added.delta <= delta:
        return True
    return delta > 0 and composed_epsilon(released, times, delta) <= epsilon


def rdp(released: Releasable | Curve, orders: Sequence[float] | FloatArray) -> FloatArray:
    """Return upper bounds on the Renyi divergence of one release at each order.

    >>> from noisette import Guarantee
    >>> rdp(Guarantee(1.0), [2.0, 32.0]).round(4)
    array([0.7352, 0.9899])
    """
    alpha = np.atleast_1d(np.asarray(orders, dtype=float))
    if not np.all(alpha > 1):
        raise ValueError(f"Expected orders above 1, got {alpha.min()}.")
    rho = concentration(released)
    if rho is not None:
        return np.asarray(alpha * rho)
    curve = privacy_curve(released)
    return np.full(alpha.shape, np.inf) if curve.losses[2] > 0 else _renyi(curve, alpha)


def zcdp(released: Releasable) -> float:
    """Return a rho for which one release is rho-zCDP.

    Gaussian noise: mu^2 / 2. Otherwise the largest Renyi divergence D(a) / a: since D rises with a, its values at
    orders 0.2 % apart bound it between them, and the largest loss over the last order bounds it beyond. Orders are
    added until that is no more than what was found: a loss that is rare shows at large orders only.

    >>> from noisette import Guarantee, Laplace
    >>> round(zcdp(Guarantee(1.0)), 4), round(zcdp(Laplace(epsilon=1.0)), 3)
    (0.4621, 0.368)
    """
    rho = concentration(released)
    if rho is not None:
        return rho
    stated = stated_by(released)
    if stated.delta > 0:
        raise ValueError(f"Expected a pure release or one with Gaussian noise, got {stated}: zCDP allows no delta.")
    worst, curve = zcdp_from_pure(stated.epsilon), privacy_curve(released)
    losses, masses, _ = curve.losses
    largest = float(losses[masses > 0][-1])
    orders = 1 + np.geomspace(1e-3, max(2.0, 2 * stated.epsilon / worst), 4000)
    divergences = _renyi(curve, orders)
    found = float(np.append(divergences[0], divergences[1:] / orders[:-1]).max())
    while largest / orders[-1] > found and found < worst:
        orders = orders[-1] * _ORDERS ** np.arange(1001.0)
        found = max(found, float((_renyi(curve, orders[1:]) / orders[:-1]).max()))
    return min(worst, max(found, math.ulp(0.0)))


def _renyi(curve: Curve, orders: FloatArray) -> FloatArray:
    """Return upper bounds on the Renyi divergence of a pure curve at each order.

    Losses l and -l have masses m and m exp(-l). Together they add m (exp(x) - 1) (1 - exp(-l - x)), x = (a - 1) l, to
    the moment less one: a product of positive factors, so that divergences keep their digits however small they are.
    """
    losses, masses, _ = curve.losses
    kept = (losses > 0) & (masses > 0)
    losses, masses = losses[kept], np.log(masses[kept])
    largest = float(losses[-1]) if losses.size else 0.0
    bounds = np.full(orders.shape, largest)
    for number, less in enumerate(orders - 1):
        power = less * losses
        if losses.size == 0 or not power[-1] < math.inf:
            continue
        with np.errstate(divide="ignore"):
            terms = masses + power + np.log(-np.expm1(-power)) + np.log(-np.expm1(-losses - power))
        top = max(float(terms.max()), _LEAST_LOG)
        moment = top + math.log(float(np.exp(terms - top).sum()) + 2.0**-52)
        bounds[number] = min(float(np.logaddexp(0.0, moment)) / less, largest)
    return bounds * (1 + 1e-12) + math.ulp(0.0)


def _in_common_terms(parts: list[Releasable]) -> list[Releasable]:
    """Return the releases, those under add-remove beside others under replace by what they imply; refuse other mixes.

    Where one change is one change under the common terms too, the release is kept: its own curve is composed.
    """
    stated = [stated_by(part) for part in parts]
    terms = _common_terms(stated)
    implied = [own.implied(**terms) for own in stated]
    return [
        part if changes(own.relation, terms["relation"]) == 1 else found
        for part, own, found in zip(parts, stated, implied, strict=True)
    ]


def _common_terms(stated: list[Guarantee]) -> dict[str, Any]:
    """Return the strongest unit, model and relation under which all of the guarantees say something."""
    relations = {g.relation for g in stated}
    return {
        "unit": stated[0].unit,
        "model": weakest({g.model for g in stated}),
        "relation": relations.pop() if len(relations) == 1 else "replace",
    }


def _added(stated: list[Guarantee], times: int) -> Guarantee:
    """Add up budgets, in terms that all of them imply."""
    terms = _common_terms(stated)
    stated = [g.implied(**terms) for g in stated]
    single = len(stated) == 1
    first = stated[0]
    return replace(
        first,
        epsilon=times * math.fsum(g.epsilon for g in stated),
        delta=min(1.0, times * math.fsum(g.delta for g in stated)),
        claim=None,
        matrix=first.repeat(times).matrix if single else None,
    )


def _least(parts: list[Releasable], times: int, delta: float, added: Guarantee) -> float:
    """Return the least epsilon that any way of composing gives at delta > 0, infinity if none holds."""
    exact = (_gaussian(parts, times, delta), _pure(parts, times, delta))
    found = [epsilon for epsilon in exact if epsilon is not None] or [_transformed(parts, times, delta)]
    return min([*found, added.epsilon]) if added.delta <= delta else min(found)


def _gaussian(parts: list[Releasable], times: int, delta: float) -> float | None:
    """Compose Gaussian noise."""
    found = [gdp(part) for part in parts]
    if any(mu is None for mu in found):
        return None
    return gdp_epsilon(math.sqrt(times * math.fsum(mu**2 for mu in found if mu is not None)), delta)


def _pure(parts: list[Releasable], times: int, delta: float) -> float | None:
    """Compose a single release that is as bad as its pure epsilon allows."""
    epsilon = as_randomized_response(parts[0]) if len(parts) == 1 else None
    return None if epsilon is None else randomized_response_epsilon(epsilon, times, delta)


def as_randomized_response(part: Releasable) -> float | None:
    """Return the epsilon of a release whose curve is that of binary randomised response."""
    if gdp(part) is not None:
        return None
    curve = privacy_curve(part, dots=2)
    epsilon = float(curve.epsilons[-1])
    if curve.deltas.size > 2 or curve.deltas[-1] > 0 or curve.deltas[0] < math.tanh(epsilon / 2) * (1 - 1e-7):
        return None
    return epsilon


def _transformed(parts: list[Releasable], times: int, delta: float) -> float:
    """Add up privacy losses."""
    dots = max(50, min(1000, round(20_000 / math.sqrt(times))))
    curves = [None if gdp(part) is not None else privacy_curve(part, dots=dots) for part in parts]
    if len(curves) == 1 and (only := curves[0]) is not None:
        return summed_epsilon([only], times, delta)
    interval = _common_interval(parts, curves, times)
    negligible = max(delta * _NEGLIGIBLE / (times * len(parts)), 1e-320)
    return summed_epsilon(
        [
            _gaussian_curve(gdp(part) or 0.0, interval, negligible) if curve is None else curve.spaced(interval)
            for part, curve in zip(parts, curves, strict=True)
        ],
        times,
        delta,
    )


def _gaussian_curve(mu: float, interval: float, negligible: float) -> Curve:
    """Return the curve of Gaussian noise up to where its delta is negligible."""
    count = math.ceil(gdp_epsilon(mu, negligible) / interval) + 1
    deltas = [min(float(gaussian_delta(mu, interval * k)) * (1 + 1e-9), 1.0) for k in range(count + 1)]
    return Curve(interval, np.asarray(deltas))


def summed_epsilon(curves: Sequence[Curve], times: int, delta: float) -> float:
    """Return the least epsilon of releases of these curves, each so many times, from above; infinity if none holds.

    Their dots are equally far apart. *Guarantee*: an upper bound at any delta: see `_sums`.
    """
    step = curves[0].interval
    alike: dict[bytes, list[Curve]] = {}
    for curve in curves:
        alike.setdefault(curve.deltas.tobytes(), []).append(curve)
    parts, unbounded = [], 0.0
    for group in alike.values():
        losses, masses, infinite = group[0].losses
        count = times * len(group)
        if infinite >= 1:
            return math.inf
        unbounded -= count * math.log1p(-infinite)
        kept = masses > 0
        points = np.rint(losses[kept] / step).astype(np.int64)
        parts.append(LossTimes(points, np.log(masses[kept]), count, _MASSES))
    finite = delta * (1 - _MASSES) + math.expm1(-unbounded) * (1 + _MASSES)
    if not finite > 0:
        return math.inf
    target = math.log(finite)
    tilt, _ = saddle([(part.losses(step), part.logs, part.times) for part in parts], target)
    lattice = LossSum(tuple(parts), step, tilt)
    if lattice.size > _POINTS:
        return summed_epsilon([curve.spaced(2 * step) for curve in curves], times, delta)
    return lattice.epsilon(target)


def _common_interval(parts: list[Releasable], curves: list[Curve | None], times: int) -> float:
    """Return a spacing of losses that is fine for the spread of their sum and for the coarsest part."""
    variance = longest = 0.0
    for part, curve in zip(parts, curves, strict=True):
        if curve is None:
            mu = gdp(part)
            assert mu is not None  # else there is a curve
            variance, longest = variance + mu**2, max(longest, 10 * mu)
        else:
            losses, masses, _ = curve.losses
            variance, longest = variance + float((masses * losses**2).sum()), max(longest, float(losses[-1]))
    spread = math.sqrt(variance / len(parts))
    return max(min(spread / _STEPS, longest / 100), 30 * math.sqrt(times) * longest * len(parts) / _POINTS)
