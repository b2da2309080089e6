"""What a model is trained to make small, and the slope that a user's gradient is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import expit

from noisette import _validate
from noisette._validate import FloatArray


@dataclass(frozen=True)
class Squared:
    """Half the squared residual r = score - target up to ``bound``, and linear beyond: Huber's loss.

    Its slope is r clipped to [-bound, bound], so a gradient r x of a row x within [-1, 1] stays within the bound, and
    the clipped gradients are those of a convex function: its minimum is that of the squared loss wherever no residual
    there exceeds the bound.
    """

    bound: float = 1.0
    curvature: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "bound", _validate.positive(self.bound, "bound"))

    def value(self, score: FloatArray, target: FloatArray) -> FloatArray:
        """Return the loss of each user."""
        residual = np.abs(score - target)
        inner = np.minimum(residual, self.bound)
        return np.asarray(inner * (residual - inner / 2))

    def slope(self, score: FloatArray, target: FloatArray) -> FloatArray:
        """Return the derivative of the loss by the score."""
        return np.clip(score - target, -self.bound, self.bound)

    def mean(self, score: FloatArray) -> FloatArray:
        """Return the predicted target."""
        return score


@dataclass(frozen=True)
class Logistic:
    """Minus the log-likelihood of a target 0 or 1 whose log-odds are the score: ln(1 + exp(score)) - target * score.

    Its slope, probability - target, never leaves [-1, 1]: nothing is clipped.
    """

    bound: ClassVar[float] = 1.0
    curvature: ClassVar[float] = 0.25

    def value(self, score: FloatArray, target: FloatArray) -> FloatArray:
        """Return the loss of each user."""
        return np.asarray(np.logaddexp(0.0, score) - target * score)

    def slope(self, score: FloatArray, target: FloatArray) -> FloatArray:
        """Return the derivative of the loss by the score."""
        return np.asarray(expit(score) - target)

    def mean(self, score: FloatArray) -> FloatArray:
        """Return the probability that the target is 1."""
        return np.asarray(expit(score))


Loss = Squared | Logistic
