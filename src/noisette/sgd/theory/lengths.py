"""Expected length and direction of a vector with normal noise whose entries have variances of their own."""

from __future__ import annotations

import math

import numpy as np

from noisette._validate import FloatArray

_REACH, _STEP = 60.0, 0.25  # of the logarithm of t: what lies beyond adds less than 1e-13, and so does the step


def length_and_cosine(gradient: FloatArray, variances: FloatArray) -> tuple[float, float]:
    """Return E|x| and E cos(x, g) for x = g + N(0, diag(variances)).

    With phi(t) = E exp(-t |x|^2) = prod_i (1 + 2 t v_i)^(-1/2) exp(-t g_i^2 / (1 + 2 t v_i)):
    E|x| = 1 / (2 sqrt(pi)) int (1 - phi) t^(-3/2) dt, and
    E cos = 1 / (|g| sqrt(pi)) int phi(t) sum_i g_i^2 / (1 + 2 t v_i) t^(-1/2) dt, over t > 0.
    In ln t the integrands are smooth and vanish at both ends: the trapezoidal rule is exact to rounding.
    """
    kinds, place, counts = np.unique(variances, return_inverse=True, return_counts=True)
    powers = np.asarray(np.bincount(place, weights=np.square(gradient)), dtype=float)
    whole = float(powers.sum() + counts @ kinds)
    if whole == 0:
        return 0.0, 0.0
    kinds, powers = kinds / whole, powers / whole
    u = np.arange(-_REACH, _REACH + _STEP, _STEP)
    t = np.exp(u)
    log_phi, along = np.zeros(t.shape), np.zeros(t.shape)
    for count, kind, power in zip(counts, kinds, powers, strict=True):
        spread = 2 * t * kind
        projected = power / (1 + spread)
        log_phi -= count / 2 * np.log1p(spread) + t * projected
        along += projected
    length = _STEP * float((-np.expm1(log_phi) * np.exp(-u / 2)).sum()) / (2 * math.sqrt(math.pi))
    own = math.sqrt(float(powers.sum()))
    facing = _STEP * float((np.exp(log_phi + u / 2) * along).sum()) / math.sqrt(math.pi)
    return math.sqrt(whole) * length, facing / own if own > 0 else 0.0
