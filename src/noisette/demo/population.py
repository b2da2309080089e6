"""A simulated population: wearables that measure eight signals of the evening, and a favourite sport."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, logit

from noisette._validate import FloatArray, IntArray
from noisette.survey.questions import Choice, Number
from noisette.survey.survey import Survey


@dataclass(frozen=True)
class Signal:
    """One number that every device holds: unit, public range, and the usual place within it, from 0 to 1."""

    name: str
    unit: str
    low: float
    high: float
    usual: float

    @property
    def width(self) -> float:
        """Length of the range."""
        return self.high - self.low


SIGNALS = (
    Signal("heart rate", "bpm", 40, 200, 0.24),
    Signal("skin temperature", "°C", 28, 40, 0.52),
    Signal("blood oxygen", "%", 80, 100, 0.82),
    Signal("steps", "steps/h", 0, 6000, 0.11),
    Signal("sitting", "min", 0, 360, 0.60),
    Signal("stress", "points", 0, 100, 0.32),
    Signal("noise", "dB", 20, 110, 0.44),
    Signal("screen time", "min", 0, 360, 0.34),
)
PORTRAIT = "screen time"  # the signal whose distribution is wanted
SPORT = "sport"
SPORTS = {
    "walking": 0.27, "cycling": 0.16, "running": 0.13, "gym": 0.11, "swimming": 0.08, "yoga": 0.07,
    "football": 0.06, "hiking": 0.045, "dancing": 0.03, "tennis": 0.025, "climbing": 0.012, "rowing": 0.008,
}  # fmt: skip
_PERSON, _MOMENT = 0.35, 0.5  # how far people differ from each other, and from themselves, on the logistic scale


@dataclass(frozen=True)
class Devices:
    """What all devices hold: a row of numbers in their own units for each, and the code of its sport."""

    numbers: FloatArray
    sports: IntArray

    @property
    def coded(self) -> dict[str, Any]:
        """The values by attribute, as a campaign takes them."""
        columns: dict[str, Any] = {signal.name: self.numbers[:, place] for place, signal in enumerate(SIGNALS)}
        return columns | {SPORT: self.sports}

    @property
    def truth(self) -> FloatArray:
        """What a campaign estimates: the mean of each number, the share of each sport."""
        shares = np.bincount(self.sports, minlength=len(SPORTS)) / len(self.sports)
        return np.concatenate([self.numbers.mean(axis=0), shares])


def simulate(users: int, rng: np.random.Generator) -> Devices:
    """Draw devices: active people move more in every signal, and no two moments are alike."""
    centres = logit(np.asarray([signal.usual for signal in SIGNALS]))
    places = expit(
        _MOMENT * rng.standard_normal((users, len(SIGNALS))) + centres + _PERSON * rng.standard_normal((users, 1))
    )
    low, width = (np.asarray([getattr(signal, name) for signal in SIGNALS]) for name in ("low", "width"))
    shares = np.asarray(list(SPORTS.values()))
    return Devices(low + width * places, rng.choice(len(SPORTS), users, p=shares / shares.sum()))


def campaign(users: int, epsilon: float) -> dict[str, Any]:
    """Return the survey, with the id and the title that make it a campaign."""
    words = {one.name: {"ask": f"Last evening: {one.name}", "unit": one.unit} for one in SIGNALS}
    form = {"by": "a demonstration of Noisette", "about": "Everybody else who answers is simulated."}
    questions: dict[str, Any] = words | {SPORT: {"ask": "What is your favourite sport?"}}
    life = {"id": "wearables", "title": "Evenings of people with wearables", "form": form | {"questions": questions}}
    return life | survey(users, epsilon).terms()


def survey(users: int, epsilon: float) -> Survey:
    """Return what is asked of the devices."""
    numbers = [
        Number(one.name, one.low, one.high, want="distribution" if one.name == PORTRAIT else "mean") for one in SIGNALS
    ]
    return Survey([*numbers, Choice(SPORT, tuple(SPORTS))], epsilon=epsilon, users=users)
