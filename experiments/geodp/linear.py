"""Private softmax regression on all examples at every step: the gradient of an example is an outer product.

Its norm is ||p - y|| ||x||, so that clipping needs no example's gradient, and a step is two products of matrices. All
examples take part in each step: nothing is gained by sampling, and the noise on the mean is the smallest there is for
a number of steps. Several settings are trained side by side, for little more than the time of one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from noisette.accounting.conversions import gdp_epsilon, gdp_mu

CLASSES = 10
_BLOCK = 8192
_ROUNDING = 1 - 2.0**-16  # what single precision may add to a norm is taken off first
_BIAS = 0.1
_MEMORY = 0.9  # of the running average of the weights, which is what is kept


@dataclass(frozen=True)
class Plan:
    """One run: what it may spend, and how it descends. The mean of the features has been paid for with ``mean_mu``."""

    epsilon: float
    delta: float
    rate: float
    seed: int
    steps: int = 40
    clip: float = 0.3
    momentum: float = 0.9
    mean_mu: float = 0.04

    @property
    def multiplier(self) -> float:
        """The noise of a step over the clipping norm: squares of mu add up, and the mean's is taken off."""
        left = gdp_mu(self.epsilon, self.delta) ** 2 - self.mean_mu**2
        if left <= 0:
            raise ValueError(f"Expected mean_mu={self.mean_mu!r} to leave something of epsilon={self.epsilon!r}.")
        return math.sqrt(self.steps / left)

    def spent(self) -> float:
        """Return epsilon of the mean and of all steps, composed."""
        return gdp_epsilon(math.sqrt(self.mean_mu**2 + self.steps / self.multiplier**2), self.delta)


@dataclass(frozen=True)
class Model:
    """A linear model on centred features of norm 1."""

    centre: Tensor
    weights: Tensor  # (features + 1, classes)

    def accuracy(self, features: Tensor, labels: Tensor) -> float:
        """Return the share of examples that are classified as their labels say."""
        right = 0
        for start in range(0, len(features), _BLOCK):
            inputs = centred(features[start : start + _BLOCK], self.centre)
            answers = (inputs @ self.weights).argmax(1)
            right += int((answers == labels[start : start + _BLOCK]).sum())
        return right / len(features)


def centred(features: Tensor, centre: Tensor) -> Tensor:
    """Return features less their mean, scaled to norm 1, with a small constant behind them for the bias.

    A constant of 1 would be the one direction that is far steeper than all others, and descent would swing along it.
    """
    moved = functional.normalize(features - centre, dim=1)
    return torch.cat([moved, moved.new_full((len(moved), 1), _BIAS)], 1)


def noisy_mean(features: Tensor, mean_mu: float, *, seed: int = 0) -> Tensor:
    """Return the mean of features of norm 1 with noise that makes it ``mean_mu``-Gaussian private."""
    noise = np.random.default_rng((seed, 1)).standard_normal(features.shape[1])
    return (features.sum(0) + torch.from_numpy(noise).float() / mean_mu) / len(features)


def residuals(weights: Tensor, inputs: Tensor, labels: Tensor, clips: Tensor) -> Tensor:
    """Return what multiplies an example's inputs in its clipped gradient, for each plan: (examples, plans, classes)."""
    plans = len(clips)
    scores = (inputs @ weights).unflatten(1, (plans, CLASSES))
    errors = scores.softmax(2) - functional.one_hot(labels, CLASSES)[:, None]
    norms = errors.norm(dim=2) * inputs.norm(dim=1, keepdim=True)
    return errors * (clips * _ROUNDING / norms).clamp(max=1.0)[:, :, None]


@contextmanager
def _without_denormals() -> Iterator[None]:
    """Take numbers below 1e-38 for zero meanwhile: chances of e-40 slow products down tenfold."""
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


@torch.no_grad()
def train(
    features: Tensor,
    labels: Tensor,
    plans: Sequence[Plan],
    centre: Tensor,
    *,
    advance: Callable[[float], object] = lambda _: None,
) -> list[Model]:
    """Return a model for each plan; plans share their steps and momentum.

    *Guarantee*: each model is (epsilon, delta)-private as its plan says, for adding or removing one
    example; the number of examples is public.
    """
    steps, momentum = plans[0].steps, plans[0].momentum
    if any((plan.steps, plan.momentum) != (steps, momentum) for plan in plans):
        raise ValueError("Expected plans with the same steps and momentum: they are trained side by side.")
    inputs, size = centred(features, centre), (len(centre) + 1, CLASSES)
    clips = torch.tensor([plan.clip for plan in plans])
    noises = [np.random.default_rng((plan.seed, 2)) for plan in plans]
    weights = torch.zeros(size[0], len(plans) * CLASSES)
    velocity, kept = torch.zeros_like(weights), torch.zeros_like(weights)
    rates, scales = (
        torch.tensor(values).repeat_interleave(CLASSES)
        for values in (
            [plan.rate / (plan.clip * len(features)) for plan in plans],
            [plan.multiplier * plan.clip for plan in plans],
        )
    )
    with _without_denormals():
        for step in range(steps):
            total = (
                torch.cat([torch.from_numpy(rng.standard_normal(size, dtype=np.float32)) for rng in noises], 1) * scales
            )
            for start in range(0, len(features), _BLOCK):
                some = inputs[start : start + _BLOCK]
                total += some.T @ residuals(weights, some, labels[start : start + _BLOCK], clips).flatten(1)
            velocity = momentum * velocity + total
            weights = weights - rates * velocity
            memory = min(_MEMORY, step / (step + 10))
            kept = memory * kept + (1 - memory) * weights
            advance((step + 1) / steps)
    return [Model(centre, own) for own in kept.chunk(len(plans), 1)]
