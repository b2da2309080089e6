"""Is a model of two classes better than always naming the larger one? People who did not teach it report privately."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from noisette import _random, _validate
from noisette._random import Rng
from noisette.domains import Categorical
from noisette.mechanisms.build import build

_CELLS = Categorical(4)  # twice the class that the model names, plus the class that a person has
_RIGHT = np.array([1.0, 0.0, 0.0, 1.0])  # the model is right about her
_OVER = np.array([[0.0, 0.0, -1.0, 1.0], [1.0, -1.0, 0.0, 0.0]])  # the gain over always naming either class


@dataclass(frozen=True)
class Judgement:
    """The accuracy of a model by private reports of people it has not learnt from, and how it stands to one class.

    ``gain`` is the accuracy less that of always naming the larger class, ``low`` and ``high`` its 95 % limits.
    """

    users: int
    accuracy: float
    gain: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """Say whether the model is better than always naming the larger class."""
        if self.low > 0:
            return "better than always the larger class"
        if self.high <= 0:
            return "worse than always the larger class"
        return "no better than always the larger class, as far as this many people can tell"


def judge(predicted: Any, classes: Any, epsilon: float, *, rng: Rng = None) -> Judgement:
    """Return how good a model's classes are, from one report of each person whom it has not learnt from.

    A person reports which class the model names for her and which she has, one of four cells, by randomised response.
    A gain is stated at 95 % if it holds over both classes, whichever is larger.

    *Guarantee*: epsilon-LDP for a person's whole record: the model is public, and the cell is what she reports.

    >>> rng = np.random.default_rng(1)
    >>> truth = rng.integers(0, 2, 20_000)
    >>> named = np.where(rng.random(20_000) < 0.9, truth, 1 - truth)
    >>> judge(named, truth, 1.0, rng=7).verdict, judge(0 * named, truth, 1.0, rng=7).verdict.partition(",")[0]
    ('better than always the larger class', 'no better than always the larger class')
    """
    named, own = (np.asarray(values, dtype=np.int64) for values in (predicted, classes))
    if named.shape != own.shape or named.ndim != 1 or not len(own) or not np.isin([named, own], (0, 1)).all():
        raise ValueError("Expected the class that is named and the class of each person, as 0 and 1, and some people.")
    mechanism = build("grr", _CELLS, epsilon=_validate.epsilon(epsilon))
    reports = np.asarray(mechanism.privatize(2 * named + own, rng=_random.generator(rng)), dtype=np.int64)
    cells = np.arange(4)
    chances = np.exp([mechanism.log_prob(cells, np.full(4, cell)) for cell in cells])
    right, *gains = (np.linalg.solve(chances, worth)[reports] for worth in (_RIGHT, *_OVER))
    means = [float(gain.mean()) for gain in gains]
    reaches = [float(ndtri(0.975) * gain.std() / len(own) ** 0.5) for gain in gains]
    low = min(mean - reach for mean, reach in zip(means, reaches, strict=True))
    high = min(mean + reach for mean, reach in zip(means, reaches, strict=True))
    return Judgement(len(own), float(right.mean()), min(means), low, high)
