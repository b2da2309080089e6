"""A published claim about errors that does not hold: that re-calibration lowers them with a stated probability."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from noisette._validate import FloatArray
from noisette.enhancement.hdr4me import l1

_SPREAD = 12  # standard errors to either side over which gains are averaged
_POINTS = 40_001
_TILTS = 100


@dataclass(frozen=True)
class ErrorClaim:
    """What Duan 2024, Theorem 4, promises in one case, and what is obtained.

    ``promised`` is the least probability of a lower error, ``all_beyond`` what its proof supports, ``chance_at_most`` a
    bound on the true probability, and ``improved`` how many of ``collections`` simulated ones had a lower error.
    """

    dims: int
    mean: float
    std_error: float
    promised: float
    all_beyond: float
    chance_at_most: float
    improved: int
    collections: int

    @property
    def holds(self) -> bool:
        """Whether the promise is not refuted."""
        return self.promised <= self.chance_at_most


def lower_error(
    dims: int = 100, mean: float = 0.9, std_error: float = 0.35, *, collections: int = 4000, seed: int = 7
) -> ErrorClaim:
    """Examine the promise that L1 re-calibration lowers the error of ``dims`` equal means.

    Formula: promised 1 - P(|D| <= 1)^d for deviations D ~ N(0, s^2). The error falls where the gains
    G = D^2 - (y* - m)^2 add up to more than 0, y* the re-calibrated m + D, and P(sum G > 0) <= E[exp(t G)]^d for each
    t > 0 (Chernoff). The expectation is a sum over a fine grid.

    >>> found = lower_error(collections=100)
    >>> round(found.promised, 3), found.improved, found.holds
    (0.348, 0, False)
    """
    within = math.erf(1 / (std_error * math.sqrt(2)))
    drawn = std_error * np.random.default_rng(seed).standard_normal((collections, dims))
    grid = np.linspace(-_SPREAD * std_error, _SPREAD * std_error, _POINTS)
    weights = np.exp(-0.5 * np.square(grid / std_error))
    weights /= weights.sum()
    gain = _gain(grid, mean, std_error)
    tilts = np.linspace(0, 0.45 / std_error**2, _TILTS)[1:]
    return ErrorClaim(
        dims,
        mean,
        std_error,
        promised=1 - within**dims,
        all_beyond=(1 - within) ** dims,
        chance_at_most=min(1.0, *(float(np.exp(tilt * gain) @ weights) ** dims for tilt in tilts)),
        improved=int((_gain(drawn, mean, std_error).sum(axis=1) > 0).sum()),
        collections=collections,
    )


def _gain(deviation: FloatArray, mean: float, std_error: float) -> FloatArray:
    """Return by how much re-calibration lowers each squared error."""
    raw = mean + deviation.reshape(-1)
    made = l1(raw, np.full_like(raw, std_error)).value.reshape(deviation.shape)
    return np.asarray(np.square(deviation) - np.square(made - mean))
