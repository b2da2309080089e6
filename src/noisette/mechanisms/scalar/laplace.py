"""Laplace noise, on a fine lattice or on a grid of your own."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any, ClassVar

from noisette.core import Capabilities
from noisette.domains import Grid, Interval
from noisette.mechanisms.scalar._additive import AdditiveMechanism, LaplaceNoise

_ROUNDED_DOWN = 1 - 2.0**-50  # keeps rounding of the rate on the private side


@dataclass(frozen=True)
class Laplace(AdditiveMechanism):
    """Add Laplace noise of scale diameter / epsilon.

    Formula: report = x + Lap(b), b = (high - low) / epsilon, on a power-of-two lattice below b / 2^23.

    *Guarantee*: epsilon-LDP for one value, exactly, rounding included.
    *Utility*: unbiased; variance 2 b^2 (8 / epsilon^2 on [-1, 1]) at every value.
    Dwork, McSherry, Nissim, Smith 2006, Proposition 1; exact sampling as in Canonne, Kamath, Steinke 2020.

    >>> m = Laplace(epsilon=1.0)
    >>> float(m.moments(0.3).variance.round(6))
    8.0
    >>> m.privatize([0.3, -0.2], rng=7).shape
    (2,)
    """

    epsilon: float
    _: KW_ONLY
    domain: Interval = Interval()  # noqa: RUF009
    name: ClassVar[str] = "laplace"
    citation: ClassVar[str] = "dwork2006calibrating"

    @property
    def _spread(self) -> float:
        return self.domain.diameter / self.epsilon

    @cached_property
    def _noise(self) -> LaplaceNoise:
        return LaplaceNoise(self.epsilon / self._steps * _ROUNDED_DOWN)

    def table(self) -> dict[str, Any]:
        """Return the lattice and the rate of the noise in its steps."""
        return {"kind": "laplace", "origin": self._origin, "step": self._step, "rate": self._noise.rate}


@dataclass(frozen=True)
class DiscreteLaplace(AdditiveMechanism):
    """Add exact discrete Laplace noise to values of a grid.

    Formula: P(k) = tanh(e / 2K) exp(-e |k| / K), k in steps of the grid, K its diameter in steps.

    *Guarantee*: epsilon-LDP for one value, exactly.
    *Utility*: unbiased; variance 2a / (1-a)^2 squared steps, a = exp(-e / K).
    Ghosh, Roughgarden, Sundararajan 2012, section 2.

    >>> m = DiscreteLaplace(epsilon=1.0, domain=Grid(0, 10))
    >>> bool((m.privatize([3, 10], rng=7) % 1 == 0).all())
    True
    """

    epsilon: float
    _: KW_ONLY
    domain: Grid = Grid(-1.0, 1.0, 2.0**-6)  # noqa: RUF009
    name: ClassVar[str] = "discrete-laplace"
    citation: ClassVar[str] = "ghosh2012universally"
    capabilities: ClassVar[Capabilities] = Capabilities((Grid,), unbounded=True)
    fine: ClassVar[bool] = False
    _spread, _noise = Laplace._spread, Laplace._noise
