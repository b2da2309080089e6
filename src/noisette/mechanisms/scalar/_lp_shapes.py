"""Which table `LpOptimal` uses at a budget: the programme's solution, in closed form where there is one."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np

from noisette._validate import FloatArray, IntArray
from noisette.mechanisms._search import golden_section
from noisette.mechanisms.scalar._lp_table import WindowTable

PROGRAMME_ABOVE = 0.75  # up to it `exponential` solves the programme
PROGRAMME_BELOW = 8.0  # here `sine` is 0.1 % above the programme (0.4 % at 6), which grows with the budget
LARGEST = 20.0  # above it the table would outgrow a cache

_PAIR_BELOW = 1e-3  # up to it two outputs, Duchi's, lose less than a millionth
_CELLS = 200  # outputs on each side of zero in the programme
_FINE = 128  # outputs per unit in the exponential table
_WINDOW_CELLS = 24  # outputs in the narrowest window of the sine table


@lru_cache(maxsize=64)
def table(epsilon: float) -> WindowTable:
    """Return the table that spends at most ``epsilon``."""
    if epsilon <= PROGRAMME_ABOVE:
        return exponential(epsilon)
    if epsilon <= PROGRAMME_BELOW:
        return programme(epsilon)
    return sine(min(epsilon, LARGEST))


def exponential(epsilon: float) -> WindowTable:
    """Return the optimum for small budgets: outputs +-exp(s)/sinh(T), s uniform on [-T, T], T = tanh(epsilon/2).

    The window holds half of all positions. At equal variance for every x the edges a, b of its window have
    a + b = 2x, which leaves one function free; of those, this one minimises the variance: coth(T)/T - 1.
    """
    half = math.tanh(epsilon / 2)
    low, high = 2 / math.expm1(2 * half), 2 / -math.expm1(-2 * half)
    codes, masses = np.ones(1, dtype=np.int64), np.ones(1)
    if epsilon > _PAIR_BELOW:
        codes = np.arange(round(low * _FINE), round(high * _FINE) + 1)
        masses = np.diff(np.log(np.clip(np.append(codes - 0.5, codes[-1] + 0.5) / _FINE, low, high)))
    return _fit(epsilon, codes, masses, 0.5)


def programme(epsilon: float) -> WindowTable:
    """Return the solution of the linear programme, from the cache if it was solved before."""
    from noisette.mechanisms.scalar import _lp_cache, _lp_solve  # only here, to keep `import noisette` quick

    # no optimum from epsilon 0.75 to 8 has an output beyond this
    step = _round_up((1 / math.tanh(epsilon / 2) + 1.3 * math.exp(-epsilon / 3)) / _CELLS)
    codes = np.arange(_CELLS + 1)
    key = f"lp-optimal 1 {epsilon!r} {step!r} {_CELLS}"
    masses = _lp_cache.load(key, codes.size)
    if masses is None:
        masses = _lp_solve.solve(epsilon, np.asarray(step * codes, dtype=np.float64)).masses
        _lp_cache.store(key, masses)
    total = 2 * float(masses.sum())
    share = (1 - total) / (math.expm1(epsilon) * total)
    # a millionth of room, so that the ends of the interval stay within reach after rounding to integers
    return WindowTable.build(epsilon, step * (1 + 2.0**-20), codes, masses, share)


def sine(epsilon: float) -> WindowTable:
    """Return the table of outputs a sin(k u), u uniform: the smooth mechanism of equal variance for every x.

    For every u the window from u to u + w has edges a sin(k u) and a sin(k (u + w)) that add up to twice its mean if
    tan(k w / 2) = k / (2 (E - 1)). With t = k w / 2 the positions weigh 1 - t / tan(t) in all; t is the angle of least
    variance.
    """
    _, total, width, rate, amplitude = _sine(_sine_angle(epsilon), epsilon)
    reach = amplitude * math.sin(rate * total / 2)
    narrowest = amplitude * (math.sin(rate * total / 2) - math.sin(rate * (total / 2 - width)))
    cells = math.ceil(reach / narrowest * _WINDOW_CELLS)
    codes = np.arange(cells + 1)
    edges = np.append(np.maximum(codes - 0.5, 0.0), cells + 0.5) * (reach / (cells + 0.5))
    masses = np.diff(np.arcsin(np.minimum(edges / amplitude, math.sin(rate * total / 2))))
    return _fit(epsilon, codes, masses, width / total)


def _sine(angle: float, epsilon: float) -> tuple[float, float, float, float, float]:
    """Return variance, mass of all positions, width, rate and amplitude of the sine table of an angle."""
    total = 1 - angle / math.tan(angle)
    width = (1 - total) / math.expm1(epsilon)
    rate = 2 * angle / width
    if rate * total > math.pi:  # the outputs would turn back
        return math.inf, total, width, rate, math.inf
    amplitude = 1 / (math.cos(angle) * math.sin(rate * (total - width) / 2))

    def squares(length: float) -> float:
        return amplitude**2 * (length / 2 - math.sin(rate * length) / (2 * rate))

    return squares(total) + math.expm1(epsilon) * squares(width), total, width, rate, amplitude


def _sine_angle(epsilon: float) -> float:
    """Return the angle of least variance, by golden section up to the angle at which outputs turn back."""
    high = (1.5 * math.pi / math.expm1(epsilon)) ** (1 / 3)
    return golden_section(lambda angle: _sine(angle, epsilon)[0], 0.7 * high, high)


def _fit(epsilon: float, codes: IntArray, masses: FloatArray, share: float) -> WindowTable:
    """Return the table whose step lets the mean reach the ends of [-1, 1], and no farther."""
    draft = WindowTable.build(epsilon, 1.0, codes, masses, share)
    return replace(draft, step=_round_up(1 / draft.reach))


def _round_up(step: float) -> float:
    """Return ``step`` rounded up to 36 bits: the same on every machine, whatever its last digits."""
    unit = math.ldexp(1.0, math.floor(math.log2(step)) - 36)
    return math.ceil(step / unit) * unit
