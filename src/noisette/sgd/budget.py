"""What a training run spends: sums with Gaussian noise over Poisson samples, step after step."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from noisette import _validate
from noisette.accounting import noise_multiplier, sampled_gaussian
from noisette.guarantees import Guarantee


class BudgetSpent(RuntimeError):
    """The steps that the guarantee allows are made."""


@dataclass(frozen=True)
class Budget:
    """The privacy of steps with one noise multiplier and one sampling probability.

    >>> budget = Budget.for_target(3.0, 1e-5, steps=1000, sampling_prob=0.01)
    >>> round(budget.multiplier, 2)
    0.81
    >>> budget.spent(1000).epsilon <= 3 < budget.spent(1010).epsilon
    True
    """

    multiplier: float
    sampling_prob: float
    delta: float
    steps: int | None = None  # the most that may be made; None sets no limit
    truth: float = 1.0  # what holds of the multiplier; below 1 for noise that is unsound as published

    @classmethod
    def for_target(cls, epsilon: float, delta: float, *, steps: int, sampling_prob: float) -> Budget:
        """Return the budget with the least noise at which ``steps`` steps meet (epsilon, delta)."""
        epsilon, delta = _validate.epsilon(epsilon), _validate.delta(delta, positive=True)
        return cls(_least_noise(epsilon, delta, steps, sampling_prob), sampling_prob, delta, steps)

    def spent(self, steps: int) -> Guarantee:
        """Return what ``steps`` steps guarantee, by composing privacy loss distributions."""
        return _spent(self.multiplier * self.truth, self.sampling_prob, self.delta, steps)

    def check(self, steps: int) -> None:
        """Refuse a step beyond the last that the guarantee allows."""
        if self.steps is not None and steps >= self.steps:
            raise BudgetSpent(
                f"All {self.steps} steps that {self.spent(self.steps)} allows are made. Stop training here, or plan "
                "more epochs or a larger epsilon from the start."
            )


@lru_cache(maxsize=256)
def _least_noise(epsilon: float, delta: float, steps: int, sampling_prob: float) -> float:
    return noise_multiplier(epsilon, delta, releases=steps, sampling_prob=sampling_prob)


@lru_cache(maxsize=256)
def _spent(multiplier: float, sampling_prob: float, delta: float, steps: int) -> Guarantee:
    if steps == 0:
        return Guarantee(0.0, unit="example", model="central", relation="add-remove")
    return sampled_gaussian(multiplier, delta, releases=steps, sampling_prob=sampling_prob)
