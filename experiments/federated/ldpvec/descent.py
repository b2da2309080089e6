"""Federated descent in which all devices step at once, and either the last gradient or the whole update is private."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from experiments.federated.simulation import TOGETHER, Clients, Vector, gradients_of

Teller = Callable[[Vector, np.random.Generator], Vector]  # rows of length one at most -> an estimate of their mean


class Models(Protocol):
    """The models of all devices in a round, which begin alike, and a gradient of each."""

    def look(self, rng: np.random.Generator) -> bool:
        """Take each device's gradient at its own weights, on a batch of its own; say whether all are finite."""

    def step(self, rate: float, length: float | None) -> None:
        """Move each model down its gradient, clipped to a length or not."""

    def mean(self) -> Vector:
        """Return the mean of all models."""

    def gradients(self) -> Iterator[Vector]:
        """Return the gradients as rows, of some devices at a time."""

    def moves(self) -> Iterator[Vector]:
        """Return how far each model has moved, likewise."""


class Task(Protocol):
    """A model in the hands of devices, as vectors of weights."""

    @property
    def people(self) -> Clients:
        """The devices and their examples."""

    def start(self, seed: int) -> Vector:
        """Return the weights that training starts with."""

    def begin(self, weights: Vector) -> Models:
        """Give every device these weights."""

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
    devices = len(task.people.owned)
    scores, done = [], 0
    for _ in range(plan.rounds):
        own = task.begin(weights)
        for step in range(plan.steps):
            rate, done = plan.rates[done], done + 1
            if not own.look(rng):  # the run has failed: the noise made the weights too large
                return scores + [task.score(weights)] * (plan.rounds - len(scores))
            if step == plan.steps - 1 and tell is not None and not whole:
                sent = _told(tell, own.gradients(), plan.gradient, devices, rng)
                weights = own.mean() - rate * sent
                break
            own.step(rate, plan.gradient if every else None)
        else:
            weights = own.mean() if tell is None else weights + _told(tell, own.moves(), plan.update, devices, rng)
        scores.append(task.score(weights))
    return scores


def _told(tell: Teller, groups: Iterable[Vector], length: float, devices: int, rng: np.random.Generator) -> Vector:
    """Return what is told of the mean of rows that are clipped to a length, of some devices after others."""
    total: Vector = np.zeros(1)
    for rows in groups:
        total = total + tell(clipped(rows, length), rng) * length * (len(rows) / devices)
    return total


_DECAY = 0.01  # the thesis's 1 / (1 + t) stops at once: steps fall tenfold in 900


def clipped(rows: Vector, length: float) -> Vector:
    """Return rows divided by ``length``, shortened to one where they are longer."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.maximum(norms, length) * (1 - 2.0**-40)


class Rows:
    """Models as rows of weights, of any task that gives gradients of rows."""

    def __init__(self, task: Logistic | Network, weights: Vector) -> None:
        self._task, self._start = task, weights
        self._own = np.repeat(weights[None], len(task.people.owned), axis=0)

    def look(self, rng: np.random.Generator) -> bool:
        self._found = self._task.gradients(self._own, rng)
        return bool(np.isfinite(self._found).all())

    def step(self, rate: float, length: float | None) -> None:
        self._own -= rate * (self._found if length is None else clipped(self._found, length) * length)

    def mean(self) -> Vector:
        return np.asarray(self._own.mean(axis=0))

    def gradients(self) -> Iterator[Vector]:
        yield self._found

    def moves(self) -> Iterator[Vector]:
        yield self._own - self._start


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

    def begin(self, weights: Vector) -> Models:
        return Rows(self, weights)

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
    return torch.stack([own[place] for own, place in zip(people.owned, _drawn(people, size, rng), strict=True)])


def _drawn(people: Clients, size: int, rng: np.random.Generator) -> Tensor:
    """Return which of each device's own examples are in its batch."""
    return torch.from_numpy(np.stack([rng.integers(0, len(own), size) for own in people.owned]))


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

    def begin(self, weights: Vector) -> Models:
        return Rows(self, weights)

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


@dataclass(frozen=True)
class Perceptron(Network):
    """A network with one hidden layer of tanh, whose devices are followed by what they add to the first weights.

    A gradient of the first layer is a sum of a device's own inputs x_k, so its weights stay W + sum_k a_k x_k^T: a row
    a_k for each of its examples says all, and forward needs the products of its examples with W, taken once a round,
    and with each other, taken once. That is 3,072 / 100 times less to compute and to hold than the weights are.
    """

    @cached_property
    def inputs(self) -> tuple[Tensor, Tensor, Tensor]:
        """Each device's examples, filled up with zeros where others have more; their products; their labels."""
        held = [self.people.inputs[own].flatten(1) for own in self.people.owned]
        found = nn.utils.rnn.pad_sequence(held, batch_first=True)
        labels = [self.people.labels[own] for own in self.people.owned]
        return found, found @ found.mT, nn.utils.rnn.pad_sequence(labels, batch_first=True)

    def begin(self, weights: Vector) -> Models:
        return Spanned(self, weights)


class Spanned:
    """Models of a `Perceptron`, as what its devices have added to the weights they began with."""

    def __init__(self, task: Perceptron, weights: Vector) -> None:
        self._task = task
        self._inputs, self._products, self._labels = task.inputs
        shapes = [own.shape for own in task.model.parameters()]
        start = torch.from_numpy(weights).float().split([shape.numel() for shape in shapes])
        self._start = [own.view(shape) for own, shape in zip(start, shapes, strict=True)]
        devices, count, _ = self._inputs.shape
        self._before = self._inputs @ self._start[0].T  # of the first layer, for every example
        self._rows = torch.zeros(devices, count, shapes[0][0])
        self._moved = [torch.zeros(devices, *shape) for shape in shapes[1:]]  # all but the first layer's weights

    def look(self, rng: np.random.Generator) -> bool:
        drawn = _drawn(self._task.people, self._task.batch, rng)
        ways = torch.arange(len(drawn))[:, None]
        bias, second, last = (start + moved for start, moved in zip(self._start[1:], self._moved, strict=True))
        scores = self._before[ways, drawn] + self._products[ways, drawn] @ self._rows + bias[:, None]
        hidden = torch.tanh(scores)
        errors = torch.softmax(hidden @ second.mT + last[:, None], dim=-1)
        errors[ways, torch.arange(self._task.batch), self._labels[ways, drawn]] -= 1
        errors /= self._task.batch
        slopes = (errors @ second) * (1 - hidden**2)
        self._drawn, self._slopes = drawn, slopes
        self._found = [slopes.sum(1), errors.mT @ hidden, errors.sum(1)]
        within = self._products[ways, drawn].gather(2, drawn[:, None].expand(-1, self._task.batch, -1)).double()
        squares = ((slopes.double() @ slopes.double().mT) * within).sum((1, 2))  # of the first layer's gradient
        squares += sum(part.double().flatten(1).square().sum(1) for part in self._found)
        self._norms = squares.clamp(min=0).sqrt()
        return bool(torch.isfinite(squares).all())

    def step(self, rate: float, length: float | None) -> None:
        scale = -rate * torch.ones(len(self._norms), dtype=torch.float64)
        if length is not None:
            scale *= length / self._norms.clamp(min=length)
        each = scale.float()[:, None, None]
        places = self._drawn[:, :, None].expand_as(self._slopes)
        self._rows.scatter_add_(1, places, each * self._slopes)
        for moved, part in zip(self._moved, self._found, strict=True):
            moved += each.view(-1, *[1] * (part.ndim - 1)) * part

    def mean(self) -> Vector:
        first = self._rows.flatten(0, 1).T @ self._inputs.flatten(0, 1) / len(self._rows)
        moved = [first, *(part.mean(0) for part in self._moved)]
        return _flat([start + own for start, own in zip(self._start, moved, strict=True)])

    def gradients(self) -> Iterator[Vector]:
        for group in torch.arange(len(self._norms)).split(_GROUP):
            held = self._inputs[group[:, None], self._drawn[group]]
            yield _joined([self._slopes[group].mT @ held, *(part[group] for part in self._found)])

    def moves(self) -> Iterator[Vector]:
        for group in torch.arange(len(self._norms)).split(_GROUP):
            first = self._rows[group].mT @ self._inputs[group]
            yield _joined([first, *(part[group] for part in self._moved)])


_GROUP = 10  # devices whose weights are in memory at a time


def _flat(parts: Iterable[Tensor]) -> Vector:
    return np.asarray(torch.cat([part.flatten() for part in parts]).double().numpy())


def _joined(parts: Iterable[Tensor]) -> Vector:
    return np.asarray(torch.cat([part.flatten(1) for part in parts], dim=1).double().numpy())
