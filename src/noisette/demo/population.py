"""A simulated population: wearables that measure sixteen signals in four parts of the day, and a favourite sport."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logit

from noisette._validate import FloatArray, IntArray

PARTS = ("night", "morning", "afternoon", "evening")

# Signal, unit, public range, and the usual place within it (0 to 1) in each part of the day.
_SIGNALS = (
    ("heart rate", "bpm", 40, 200, (0.13, 0.22, 0.28, 0.24)),
    ("heart variability", "ms", 0, 200, (0.33, 0.26, 0.22, 0.25)),
    ("skin temperature", "°C", 28, 40, (0.58, 0.44, 0.47, 0.52)),
    ("respiration", "breaths/min", 5, 40, (0.26, 0.31, 0.36, 0.33)),
    ("blood oxygen", "%", 80, 100, (0.74, 0.83, 0.84, 0.82)),
    ("steps", "steps/h", 0, 6000, (0.01, 0.14, 0.18, 0.11)),
    ("distance", "km", 0, 30, (0.01, 0.09, 0.12, 0.07)),
    ("stairs", "floors", 0, 60, (0.01, 0.12, 0.14, 0.09)),
    ("energy", "kcal", 0, 2000, (0.20, 0.27, 0.33, 0.29)),
    ("sitting", "min", 0, 360, (0.06, 0.47, 0.52, 0.60)),
    ("standing", "min", 0, 360, (0.02, 0.23, 0.25, 0.17)),
    ("walking", "min", 0, 360, (0.01, 0.13, 0.16, 0.09)),
    ("stress", "points", 0, 100, (0.17, 0.38, 0.46, 0.32)),
    ("noise", "dB", 20, 110, (0.14, 0.42, 0.48, 0.44)),
    ("light", "lux", 0, 1000, (0.01, 0.35, 0.46, 0.15)),
    ("screen time", "min", 0, 360, (0.03, 0.16, 0.19, 0.34)),
)
SPORTS = {
    "walking": 0.27, "cycling": 0.16, "running": 0.13, "gym": 0.11, "swimming": 0.08, "yoga": 0.07,
    "football": 0.06, "hiking": 0.045, "dancing": 0.03, "tennis": 0.025, "climbing": 0.012, "rowing": 0.008,
}  # fmt: skip
_PERSON, _MOMENT = 0.35, 0.5  # how far people differ from each other, and from themselves, on the logistic scale


@dataclass(frozen=True)
class Attribute:
    """One number that every device holds: what it is, in which unit and within which public range."""

    name: str
    unit: str
    low: float
    high: float

    def from_canonical(self, x: float | FloatArray) -> FloatArray:
        """Map [-1, 1] to the attribute's own range."""
        return np.asarray(self.low + (np.asarray(x) + 1) / 2 * (self.high - self.low))

    def from_length(self, length: float) -> float:
        """Map a length on [-1, 1] to the attribute's unit."""
        return length / 2 * (self.high - self.low)


ATTRIBUTES = tuple(
    Attribute(f"{signal}, {part}", unit, float(low), float(high))
    for signal, unit, low, high, _ in _SIGNALS
    for part in PARTS
)
_CENTRES = logit(np.asarray([places for *_, places in _SIGNALS]).reshape(-1))


@dataclass(frozen=True)
class Shard:
    """Some devices: a row of attributes mapped on [-1, 1] for each, and the number of its sport."""

    numbers: FloatArray
    sports: IntArray


def shards(users: int, size: int, rng: np.random.Generator) -> Iterator[Shard]:
    """Simulate ``users`` devices, ``size`` at a time."""
    for start in range(0, users, size):
        yield simulate(min(size, users - start), rng)


def simulate(users: int, rng: np.random.Generator) -> Shard:
    """Draw devices: active people move more in every signal, and no two moments are alike."""
    numbers = rng.standard_normal((users, len(ATTRIBUTES)))
    numbers *= _MOMENT
    numbers += _CENTRES + _PERSON * rng.standard_normal((users, 1))
    expit(numbers, out=numbers)
    numbers *= 2
    numbers -= 1
    shares = np.asarray(list(SPORTS.values()))
    sports = rng.choice(len(SPORTS), users, p=shares / shares.sum())
    return Shard(numbers, sports)
