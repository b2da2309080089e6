"""check_mechanism passes the catalogue and rejects every kind of wrong mechanism."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import noisette as nz
from noisette.core import Moments, Readout
from noisette.mechanisms.scalar.duchi import TwoPoint


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 5.0])
@pytest.mark.parametrize("name", sorted(nz.CATALOGUE))
def test_catalogue(name: str, epsilon: float) -> None:
    nz.testing.check_mechanism(nz.CATALOGUE[name].example(epsilon))


@dataclass(frozen=True)
class TooSharp(nz.Duchi):
    """Flips less than it says, and its likelihood tells."""

    @property
    def _pair(self) -> TwoPoint:
        return TwoPoint.build(self.domain, 1.1 * self.epsilon)


@dataclass(frozen=True)
class Liar(nz.Duchi):
    """Flips less than it says, and its likelihood does not tell."""

    def _perturb(self, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return TwoPoint(self._pair.low, self._pair.high).sample(np.clip(1.3 * x, -1, 1), rng)


@dataclass(frozen=True)
class WrongVariance(nz.Duchi):
    def moments(self, x: Any) -> Moments:
        right = super().moments(x)
        return Moments(right.bias, 1.3 * right.variance, right.third)


@dataclass(frozen=True)
class Biased(nz.Duchi):
    @property
    def readout(self) -> Readout:
        right = super().readout
        return Readout(right.offset, 1.03 * float(right.scale), right.low, right.high, right.tail)


@dataclass(frozen=True)
class Mutating(nz.Duchi):
    def privatize(self, x: Any, *, clip: bool = False, rng: Any = None) -> Any:
        reports = super().privatize(x, clip=clip, rng=rng)
        x *= 0.5
        return reports


@dataclass(frozen=True)
class Unseeded(nz.Duchi):
    def privatize(self, x: Any, *, clip: bool = False, rng: Any = None) -> Any:
        return super().privatize(x, clip=clip)


@dataclass(frozen=True)
class OffSupport(nz.Duchi):
    def _perturb(self, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return super()._perturb(x, rng) * (1 + 2.0**-40)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (TooSharp, "exact epsilon"),
        (Liar, "disagree|biased"),
        (WrongVariance, "stated variance"),
        (Biased, "biased"),
        (Mutating, "changed its input"),
        (Unseeded, "same seed"),
        (OffSupport, "outside"),
    ],
)
def test_wrong_mechanisms_are_rejected(wrong: type[nz.Duchi], message: str) -> None:
    with pytest.raises((AssertionError, ValueError), match=message):
        nz.testing.check_mechanism(wrong(epsilon=1.0))
