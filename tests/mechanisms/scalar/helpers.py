"""How the tests of scalar mechanisms make one, by the name of the law that its paper prints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import noisette as nz

BUILD: dict[str, Callable[..., Any]] = {
    "laplace": nz.Laplace,
    "gaussian": nz.Gaussian,
    "staircase": nz.Staircase,
    "scdf": nz.Scdf,
    "duchi": nz.Duchi,
    "piecewise": nz.Piecewise,
    "piecewise-optimal": nz.PiecewiseOptimal,
    "hybrid": nz.Hybrid,
    "square-wave": nz.SquareWave,
    "square-wave-debiased": lambda epsilon, **options: nz.SquareWave(epsilon, debiased=True, **options),
}
