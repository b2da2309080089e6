"""Federated descent in which all devices step at once, and either the last gradient or the whole update is private."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from experiments.federated.simulation import TOGETHER, Clients, Vector, gradients_of

Teller = Callable[[Vector, np.random.Generator], Vector]  # rows of length one at most -> an estimate of their mean


class Task(Protocol):
    """A model in the hands of devices, as vectors of weights."""

    def start(self, seed: int) -> Vector:
        """Return the weights that training starts with."""

    def gradients(self, weights: Vector, rng: np.random.Generator) -> Vector:
        """Return each device's gradient at its own weights, on a batch of its own."""

    def score(self, weights: Vector) -> float:
        """Return the loss or the accuracy of a model."""


@dataclass(frozen=True)
class Descent:
    """Rounds, steps a round, the first step size, and the length that gradients, or updates, are clipped to."""

    rounds: int
    steps: int
    rate: float
    gradient: float = 0.1
    update: float = 0.1

    @cached_property
    def rates(self) -> Vector:
        """The size of every step of the run, one after the other."""
        return np.asarray(self.rate / (1 + np.arange(self.rounds * self.steps) * _DECAY))

    @property
    def reach(self) -> Vector:
        """For each round, the sum of its rates over the rate of its last step.

        If every gradient is clipped to C, two devices' models differ by 2 C times the sum of the rates at most, and
        the noise on the last gradient is in the model times the last rate: this is by how much the model moves
        further, in units of its noise, than the last gradient alone.
        """
        rates = self.rates.reshape(self.rounds, self.steps)
        return np.asarray(rates.sum(axis=1) / rates[:, -1])


def descend(
    task: Task, plan: Descent, tell: Teller | None, *, whole: bool, seed: int, every: bool = False
) -> list[float]:
    """Return the score after each round; without ``tell`` nothing is private.

    Where the ``whole`` update is not told, the last gradient of a round is. ``every`` gradient is clipped as in
    equation 6.3 of the thesis, or the last one alone. A run whose gradients overflow ends there, with its last score.
    """
    rng = np.random.default_rng(seed)
    weights = task.start(seed)
    devices = len(task.gradients(weights[None], np.random.default_rng(0)))
    scores, done = [], 0
    for _ in range(plan.rounds):
        own = np.repeat(weights[None], devices, axis=0)
        for step in range(plan.steps):
            rate, done = plan.rates[done], done + 1
            gradients = task.gradients(own, rng)
            if not np.isfinite(gradients).all():  # the run has failed: the noise made the weights too large
                return scores + [task.score(weights)] * (plan.rounds - len(scores))
            if step == plan.steps - 1 and tell is not None and not whole:
                sent = tell(clipped(gradients, plan.gradient), rng) * plan.gradient
                weights = own.mean(axis=0) - rate * sent
                break
            own -= rate * (clipped(gradients, plan.gradient) * plan.gradient if every else gradients)
        else:
            moved = own - weights
            if tell is None:
                weights = own.mean(axis=0)
            else:
                weights = weights + tell(clipped(moved, plan.update), rng) * plan.update
        scores.append(task.score(weights))
    return scores


_DECAY = 0.01  # the thesis's 1 / (1 + t) stops at once: steps fall tenfold in 900


def clipped(rows: Vector, length: float) -> Vector:
    """Return rows divided by ``length``, shortened to one where they are longer."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.maximum(norms, length) * (1 - 2.0**-40)


@dataclass(frozen=True)
class Logistic:
    """Digits below five against the others, by logistic regression on pixels and a constant."""

    people: Clients
    batch: int = 32

    @cached_property
    def _inputs(self) -> Tensor:
        return _with_constant(self.people.inputs.flatten(1))

    def start(self, seed: int) -> Vector:
        return np.zeros(785)

    def gradients(self, weights: Vector, rng: np.random.Generator) -> Vector:
        places = _batches(self.people, self.batch, rng)
        each = torch.from_numpy(np.broadcast_to(weights, (len(places), 785)).astype(np.float32))
        found = []
        for own, part in zip(each.split(TOGETHER), places.split(TOGETHER), strict=True):
            inputs, labels = self._inputs[part], (self.people.labels[part] >= 5).float()
            errors = torch.sigmoid(torch.bmm(inputs, own[:, :, None])[:, :, 0]) - labels
            found.append(torch.bmm(errors[:, None], inputs)[:, 0])
        return np.asarray(torch.cat(found).double().numpy() / self.batch)

    def score(self, weights: Vector) -> float:
        scores = _with_constant(self.people.test_inputs.flatten(1)).double().numpy() @ weights
        signed = np.where(self.people.test_labels.numpy() >= 5, scores, -scores)
        return float(np.logaddexp(0, -signed).mean())


def _with_constant(pixels: Tensor) -> Tensor:
    return torch.cat([torch.ones(*pixels.shape[:-1], 1), pixels + 0.5], dim=-1)


def _batches(people: Clients, size: int, rng: np.random.Generator) -> Tensor:
    """Return places of so many examples of each device, drawn anew."""
    return torch.stack([own[torch.from_numpy(rng.integers(0, len(own), size))] for own in people.owned])


@dataclass(frozen=True)
class Network:
    """Any torch model in the hands of devices; its score is the test accuracy in percent, or the loss."""

    people: Clients
    model: nn.Module
    batch: int = 32
    loss: bool = False

    def start(self, seed: int) -> Vector:
        torch.manual_seed(seed)
        for layer in self.model.modules():
            if hasattr(layer, "reset_parameters"):
                layer.reset_parameters()
        return np.asarray(nn.utils.parameters_to_vector(self.model.parameters()).detach().double().numpy())

    def gradients(self, weights: Vector, rng: np.random.Generator) -> Vector:
        places = _batches(self.people, self.batch, rng)
        each = torch.from_numpy(np.broadcast_to(weights, (len(places), weights.shape[1])).astype(np.float32))
        slopes = gradients_of(self.model)
        found = [
            slopes(own, self.people.inputs[part], self.people.labels[part])
            for own, part in zip(each.split(TOGETHER), places.split(TOGETHER), strict=True)
        ]
        return np.asarray(torch.cat(found).double().numpy())

    def _load(self, weights: Vector) -> None:
        nn.utils.vector_to_parameters(torch.tensor(weights, dtype=torch.float32), self.model.parameters())

    def score(self, weights: Vector) -> float:
        self._load(weights)
        with torch.no_grad():
            scores, truth = self.model(self.people.test_inputs), self.people.test_labels
        if self.loss:
            return float(cross_entropy(scores, truth))
        return 100 * float((scores.argmax(1) == truth).double().mean())
