"""Private softmax regression on all examples at every step: the gradient of an example is an outer product.

Its norm is ||p - y|| ||x||, so that clipping needs no example's gradient, and a step is two products of matrices. All
examples take part in each step: nothing is gained by sampling, and the noise on the mean is the smallest there is for
a number of steps. Features are whitened first, as far as a noisy second moment tells their axes: descent is then not
held up by a few steep directions (Mehta et al. 2023 share such a moment and divide the gradient by it).
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
_TINY = 1e-12  # norm of an example at the centre, which has no direction
_MEMORY = 0.9  # of the running average of the weights, which is what is kept


@dataclass(frozen=True)
class Plan:
    """One run: what it may spend on the mean, on the second moment and on the steps, and how it descends.

    Squares of mu add up: the mean takes ``mean_mu``, the moment a ``share`` of the whole square, the steps the rest.
    """

    epsilon: float
    delta: float
    rate: float
    steps: int = 100
    clip: float = 0.02
    momentum: float = 0.9
    mean_mu: float = 0.04
    share: float = 0.15
    floor: float = 0.4  # added to eigenvalues of the moment, in norms of its noise
    coarse: bool = False  # scores are in bfloat16: they say what an example's gradient is, not how it is bounded
    axes: int = 0  # the moment is told of so many features, the first ones; 0: of all

    @property
    def moment_mu(self) -> float:
        """What the second moment takes."""
        return math.sqrt(self.share) * gdp_mu(self.epsilon, self.delta)

    @property
    def multiplier(self) -> float:
        """The noise of a step over the clipping norm."""
        left = gdp_mu(self.epsilon, self.delta) ** 2 - self.mean_mu**2 - self.moment_mu**2
        if left <= 0:
            raise ValueError(
                f"Expected mean_mu={self.mean_mu!r} and share={self.share!r} to leave something of "
                f"epsilon={self.epsilon!r}."
            )
        return math.sqrt(self.steps / left)

    def spent(self) -> float:
        """Return epsilon of the mean, of the moment and of all steps, composed."""
        squares = self.mean_mu**2 + self.moment_mu**2 + self.steps / self.multiplier**2
        return gdp_epsilon(math.sqrt(squares), self.delta)


@dataclass(frozen=True)
class Model:
    """A linear model on features that are centred, whitened and scaled to norm 1."""

    centre: Tensor
    white: Tensor  # (features, features), or of the first ones
    weights: Tensor  # (features, classes)
    tail: float = 1.0  # what features beyond those are multiplied by

    def accuracy(self, features: Tensor, labels: Tensor) -> float:
        """Return the share of examples that are classified as their labels say."""
        right = 0
        for some, answers in zip(features.split(_BLOCK), labels.split(_BLOCK), strict=True):
            scores = shaped(some, self.centre, self.white, self.tail) @ self.weights
            right += int((scores.argmax(1) == answers).sum())
        return right / len(features)


def bounded(rows: Tensor) -> Tensor:
    """Return rows, each shortened to norm 1 if it is longer."""
    return rows * (_ROUNDING / rows.norm(dim=1, keepdim=True)).clamp(max=1.0)


def centred(features: Tensor, centre: Tensor) -> Tensor:
    """Return features less their mean, scaled to norm 1."""
    moved = features - centre
    return moved.mul_(_ROUNDING / moved.norm(dim=1, keepdim=True).clamp(min=_TINY))


def shaped(features: Tensor, centre: Tensor, white: Tensor, tail: float = 1.0) -> Tensor:
    """Return features centred, whitened and scaled to norm 1; what ``white`` leaves out is multiplied by ``tail``."""
    moved, told = centred(features, centre), len(white)
    moved[:, :told] = moved[:, :told] @ white
    moved[:, told:] *= tail
    return moved.div_(moved.norm(dim=1, keepdim=True).clamp(min=_TINY))


def noisy_mean(features: Tensor, mean_mu: float, *, seed: int = 0) -> Tensor:
    """Return the mean of features, of norm 1 at most, with noise that makes it ``mean_mu``-Gaussian private."""
    noise = np.random.default_rng((seed, 1)).standard_normal(features.shape[1])
    total = torch.stack([bounded(some).sum(0) for some in features.split(_BLOCK)]).sum(0)
    return (total + torch.from_numpy(noise).float() / mean_mu) / len(features)


def noisy_moment(inputs: Tensor, moment_mu: float, *, seed: int = 0) -> Tensor:
    """Return the sum of x x^T over inputs of norm 1 at most, with symmetric noise.

    *Guarantee*: ``moment_mu``-Gaussian private for adding or removing one example. x x^T has the norm ||x||^2 <= 1
    among all matrices, so that noise of scale 1 / moment_mu on each of d^2 entries suffices; the mean of the matrix
    and its transpose looks at no data.
    """
    size = inputs.shape[1]
    noise = torch.from_numpy(np.random.default_rng((seed, 2)).standard_normal((size, size)) / moment_mu).float()
    total = (noise + noise.T) / 2
    for some in inputs.split(_BLOCK):
        total += some.T @ some
    return total


def moment_noise(size: int, moment_mu: float) -> float:
    """Return the spectral norm that symmetric noise on a (size, size) moment tends to: sqrt(2 size) / mu."""
    return math.sqrt(2 * size) / moment_mu


def whitening(moment: Tensor, floor: float) -> Tensor:
    """Return V (max(L, 0) + floor)^(-1/2) of a moment V L V^T: axes with their sizes made alike, down to the floor."""
    values, axes = torch.linalg.eigh(moment)
    return axes * (values.clamp(min=0) + floor).rsqrt()


def tail_scale(moment: Tensor, examples: int, size: int, floor: float) -> float:
    """Return (l + floor)^(-1/2): l is the mean eigenvalue of what the moment leaves out of inputs of norm 1."""
    left = max(examples - float(moment.trace()), 0.0) / max(size - len(moment), 1)
    return (left + floor) ** -0.5


def residuals(weights: Tensor, inputs: Tensor, labels: Tensor, clip: float, coarse: Tensor | None = None) -> Tensor:
    """Return what multiplies an example's inputs in its clipped gradient, for each run: (examples, runs, classes).

    ``coarse`` are the inputs in bfloat16, from which scores are taken sooner.
    """
    found = inputs @ weights if coarse is None else (coarse @ weights.bfloat16()).float()
    scores = found.unflatten(1, (-1, CLASSES))
    errors = scores.softmax(2) - functional.one_hot(labels, CLASSES)[:, None]
    norms = errors.norm(dim=2) * inputs.norm(dim=1, keepdim=True)
    return errors * (clip * _ROUNDING / norms).clamp(max=1.0)[:, :, None]


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
    plan: Plan,
    seeds: Sequence[int],
    *,
    advance: Callable[[float], object] = lambda _: None,
) -> list[Model]:
    """Return a model for each seed of the steps; the mean and the second moment are drawn once, with the first seed.

    *Guarantee*: each model, with the mean and the moment, is (epsilon, delta)-private as the plan says, for adding or
    removing one example; the number of examples is public.
    """
    centre = noisy_mean(features, plan.mean_mu, seed=seeds[0])
    told = plan.axes or len(centre)
    moment = noisy_moment(centred(features, centre)[:, :told], plan.moment_mu, seed=seeds[0])
    floor = plan.floor * moment_noise(told, plan.moment_mu)
    white, tail = whitening(moment, floor), tail_scale(moment, len(features), len(centre), floor)
    inputs, size = shaped(features, centre, white, tail), (len(centre), CLASSES)
    noises = [np.random.default_rng((seed, 3)) for seed in seeds]
    weights = torch.zeros(size[0], len(seeds) * CLASSES)
    velocity, kept = torch.zeros_like(weights), torch.zeros_like(weights)
    scale, rate = plan.multiplier * plan.clip, plan.rate / (plan.clip * len(features))
    coarse = inputs.bfloat16() if plan.coarse else None
    with _without_denormals():
        for step in range(plan.steps):
            total = scale * torch.from_numpy(
                np.concatenate([rng.standard_normal(size, dtype=np.float32) for rng in noises], 1)
            )
            for start in range(0, len(inputs), _BLOCK):
                part = slice(start, start + _BLOCK)
                rough = None if coarse is None else coarse[part]
                told_apart = residuals(weights, inputs[part], labels[part], plan.clip, rough)
                total += inputs[part].T @ told_apart.flatten(1)
            velocity = plan.momentum * velocity + total
            weights = weights - rate * velocity
            memory = min(_MEMORY, step / (step + 10))
            kept = memory * kept + (1 - memory) * weights
            advance((step + 1) / plan.steps)
    return [Model(centre, white, own, tail) for own in kept.chunk(len(seeds), 1)]
