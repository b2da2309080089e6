"""Expected errors of angles under normal noise on the angles themselves."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import ndtr

from noisette._validate import FloatArray

_ONE_ENDED_DEVIATION = (
    0.2  # deviation below which noise reaches one end of an angle's range only: the other is 7 of them away
)


def folded(angles: FloatArray, std: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return E u, E u^2 and E sign(sin v) for v = angle + N(0, std^2), u in [0, pi] with cos u = cos v."""
    if std < _ONE_ENDED_DEVIATION:
        near = np.minimum(angles, math.pi - angles)  # distance of the nearer end, at which v is reflected
        beyond = ndtr(-near / std)
        length = std * math.sqrt(2 / math.pi) * np.exp(-((near / std) ** 2) / 2) + near * (1 - 2 * beyond)
        low = angles <= math.pi / 2
        first = np.where(low, length, math.pi - length)
        square = near**2 + std**2
        return first, np.where(low, square, math.pi**2 - 2 * math.pi * length + square), 1 - 2 * beyond
    first, square, sign = np.full(angles.shape, math.pi / 2), wrapped(angles, std), np.zeros(angles.shape)
    for n in range(1, _terms(std), 2):
        damped = math.exp(-((n * std) ** 2) / 2)
        first -= 4 / math.pi * damped / n**2 * np.cos(n * angles)
        sign += 4 / math.pi * damped / n * np.sin(n * angles)
    return first, square, sign


def wrapped(apart: Any, std: float) -> Any:
    """Return E w^2 for w in (-pi, pi] equal to apart + N(0, std^2) up to whole turns."""
    away = np.abs((np.asarray(apart) + math.pi) % (2 * math.pi) - math.pi)
    if std < _ONE_ENDED_DEVIATION:
        # a turn is lost where the sum passes pi: (v - 2 pi)^2 - v^2 = 4 pi (pi - v)
        room = math.pi - away
        passed = room * ndtr(-room / std) - std / math.sqrt(2 * math.pi) * np.exp(-((room / std) ** 2) / 2)
        return (away**2 + std**2 + 4 * math.pi * passed)[()]
    square = np.full(np.shape(away), math.pi**2 / 3)
    for n in range(1, _terms(std)):
        square += 4 * (-1) ** n / n**2 * math.exp(-((n * std) ** 2) / 2) * np.cos(n * away)
    return square[()]


def _terms(std: float) -> int:
    """The first term of a Fourier series of which normal noise leaves nothing."""
    return math.ceil(9 / std)
