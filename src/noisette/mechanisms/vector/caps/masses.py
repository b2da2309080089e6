"""Lower and upper limits of the mass of a cap: proved, to many digits.

All terms of the series are positive, so the error of a sum is at most the roundings of its terms and the geometric
series that bounds the terms left out. Sums are computed with far more bits than the limits claim. The limits are moved
apart by 2^`_LIMIT_EXPONENT` of themselves, which covers the roundings of up to 2^40 terms and the errors of mpmath's
gamma, error and power functions.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

_BITS = 256
_LIMIT_EXPONENT = -150  # relative, as a power of two
_LARGEST_LOG_MASS = 5000.0  # beyond this log mass 1/2 less the rest would need too many bits


@lru_cache(maxsize=256)
def normal_mass(gamma: float) -> tuple[Any, Any]:
    """Return limits of P(T >= gamma) for a standard normal T."""
    import mpmath

    with mpmath.workprec(_BITS):
        return _around(mpmath.erfc(mpmath.mpf(gamma) / mpmath.sqrt(2)) / 2)


@lru_cache(maxsize=256)
def sphere_mass(dims: int, gamma: float, log_mass: float) -> tuple[Any, Any]:
    """Return limits of P(T >= gamma) for one coordinate T of the unit sphere; ``log_mass`` is its log, nearly.

    With x = 1 - gamma^2, a = (d-1)/2 and B = B(a, 1/2) the mass is gamma x^a / (2aB) times the sum of the terms
    1, (a+1/2)/(a+1) x, (a+1/2)(a+3/2)/((a+1)(a+2)) x^2, ..., and what it lacks to 1/2 is gamma x^a / B times the sum
    of 1, (a+1/2)/(3/2) gamma^2, (a+1/2)(a+3/2)/((3/2)(5/2)) gamma^4, ... (Euler's transformation of 2F1).
    """
    import mpmath

    if dims == 1 or gamma == 0:
        return mpmath.mpf(0.5), mpmath.mpf(0.5)
    near = gamma**2 < 0.5 and log_mass > -_LARGEST_LOG_MASS
    bits = _BITS + int(2 * abs(log_mass)) if near else _BITS
    with mpmath.workprec(bits):
        square = mpmath.mpf(gamma) ** 2
        rest, half = (1 - mpmath.mpf(gamma)) * (1 + mpmath.mpf(gamma)), mpmath.mpf(dims - 1) / 2
        factor = gamma * mpmath.power(rest, half) / mpmath.beta(half, mpmath.mpf(0.5))
        if near:
            low, high = _around(factor * _series(dims, 3, square, bits), int(1.5 * log_mass))
            return 1 / mpmath.mpf(2) - high, 1 / mpmath.mpf(2) - low
        return _around(factor / (2 * half) * _series(dims, dims + 1, rest, bits))


def _series(above: int, below: int, factor: Any, bits: int) -> Any:
    """Return the sum of t_0 = 1, t_{n+1} = t_n factor (above + 2n)/(below + 2n), ..., to 2^-(bits-64) of itself."""
    import mpmath

    total, term, number = mpmath.mpf(0), mpmath.mpf(1), 0
    while True:
        total += term
        ratio = factor * (above + 2 * number) / (below + 2 * number)
        term *= ratio
        number += 1
        limit = max(ratio, factor)  # of all ratios to come: they go to ``factor`` from one side
        if limit < 1 and term < (1 - limit) * mpmath.ldexp(total, 64 - bits):
            return total


def _around(value: Any, finer: int = 0) -> tuple[Any, Any]:
    """Return a value moved down and up by the slack, or by 2^finer of the slack."""
    import mpmath

    slack = mpmath.ldexp(1, _LIMIT_EXPONENT + finer)
    return value * (1 - slack), value * (1 + slack)
