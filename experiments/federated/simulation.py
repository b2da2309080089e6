"""Clients that train on their own examples, many at once, and a server that averages what they send.

What leaves a client goes through `noisette.federated.Channel` and is added up by its `Aggregator`: the code of the
Flower app, without Flower.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from noisette import datasets
from noisette.federated import Aggregator, Channel, ModelLayout, Ranges, enhanced

Vector = npt.NDArray[np.float64]
Told = Literal["weights", "update"]
Slopes = Callable[[Tensor, Tensor, Tensor], Tensor]  # weights, inputs and labels of many clients -> their gradients
TOGETHER = 50  # clients that train side by side: the cost of a call is shared, and their work stays in the cache
LARGE = 20_000  # weights of a network from which on clients train one after the other, which then is faster


@dataclass(frozen=True)
class Clients:
    """Training examples in the hands of clients, and examples to test on."""

    inputs: Tensor
    labels: Tensor
    owned: list[Tensor]  # places of each client's examples
    test_inputs: Tensor
    test_labels: Tensor


@dataclass(frozen=True)
class Recipe:
    """How clients train and what they tell: their weights, or how far these moved."""

    model: Callable[[], nn.Module]
    rounds: int
    rate: float
    epochs: int = 1
    batch: int = 10
    share: float = 1.0  # of the clients take part in a round
    told: Told = "weights"
    shrink: str = "none"
    stands: int = 1  # clients for which one that trains reports, each time anew: noise is theirs, training is not


# what clients tell in a round: through a channel, clipped and without noise, or as it is
Channels = Callable[[int, Vector, ModelLayout], Channel | Ranges | None]


def clients(name: str, count: int, *, examples: int, tests: int, seed: int, classes: int | None = None) -> Clients:
    """Deal out images of a data set; with ``classes``, each client gets images of so many classes only."""
    found = datasets.images(name)
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(len(found.train_labels))[:examples]
    labels = found.train_labels[chosen]
    if classes is not None:  # deal out runs of one class, some to each client
        order = np.argsort(labels, kind="stable")
        runs = np.array_split(order, count * classes)
        hands = rng.permutation(len(runs)).reshape(count, classes)
        owned = [np.concatenate([runs[run] for run in hand]) for hand in hands]
    else:  # as many to each as to the others
        owned = list(np.arange(len(chosen) // count * count).reshape(count, -1))
    return Clients(
        _pixels(found.train[chosen]),
        torch.from_numpy(labels.astype(np.int64)),
        [torch.from_numpy(places) for places in owned],
        _pixels(found.test[:tests]),
        torch.from_numpy(found.test_labels[:tests].astype(np.int64)),
    )


def _pixels(images: npt.NDArray[np.uint8]) -> Tensor:
    scaled = torch.from_numpy(images.astype(np.float32) / 255 - 0.5)
    return scaled[:, None] if scaled.ndim == 3 else scaled.movedim(-1, 1)


def federate(people: Clients, recipe: Recipe, channels: Channels, *, seed: int) -> list[float]:
    """Train and return the test accuracy after each round, in percent; ``channels`` gives each round's channel."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    model = recipe.model()
    layout = ModelLayout(
        tuple(name for name, _ in model.named_parameters()),
        tuple(tuple(own.shape) for own in model.parameters()),
    )
    weights, slopes = _read(model), gradients_of(model)
    invited = max(1, round(recipe.share * len(people.owned)) // recipe.stands)  # those that train
    scores = []
    for number in range(recipe.rounds):
        channel = channels(number, weights, layout)
        total, aggregator = np.zeros(layout.dims), Aggregator(channel) if isinstance(channel, Channel) else None
        called = rng.permutation(len(people.owned))[:invited]
        for part in np.array_split(called, -(-invited // TOGETHER)):
            hands = [people.owned[client] for client in part]
            if layout.dims < LARGE:
                learned = _learn(slopes, weights, people, hands, recipe, rng)
            else:
                learned = _learn_in_turn(model, weights, people, hands, recipe, rng)
            for client, own in zip(part.tolist(), learned, strict=True):
                told = own - (weights if recipe.told == "update" else 0)
                if aggregator is not None:
                    for other in range(recipe.stands):
                        sender = client * recipe.stands + other
                        aggregator.add(aggregator.channel.privatize(told, rng=rng).payload, sender=sender)
                    continue
                if isinstance(channel, Ranges):
                    channel.inward(told, layout)
                    told = channel.outward(told, layout)
                total += told / invited
        if aggregator is not None:
            total = enhanced(aggregator.estimate(), aggregator.channel, recipe.shrink)
        weights = weights + total if recipe.told == "update" else total
        _write(model, weights)
        scores.append(accuracy(model, people))
    return scores


def _learn(
    slopes: Slopes, weights: Vector, people: Clients, hands: list[Tensor], recipe: Recipe, rng: np.random.Generator
) -> Vector:
    """Return the weights of clients that train by plain stochastic gradient descent, side by side, as rows."""
    found = torch.from_numpy(weights).float().repeat(len(hands), 1)
    for _ in range(recipe.epochs):
        order = torch.stack([own[torch.from_numpy(rng.permutation(len(own)))] for own in hands])
        for places in order.split(recipe.batch, dim=1):
            found -= recipe.rate * slopes(found, people.inputs[places], people.labels[places])
    return np.asarray(found.double().numpy())


def _learn_in_turn(
    model: nn.Module, weights: Vector, people: Clients, hands: list[Tensor], recipe: Recipe, rng: np.random.Generator
) -> Vector:
    """Return what `_learn` does, one client after the other; the model's weights are those of the last one then."""
    orders = [
        [own[torch.from_numpy(rng.permutation(len(own)))] for own in hands] for _ in range(recipe.epochs)
    ]  # drawn as `_learn` draws them
    learned = []
    for client in range(len(hands)):
        _write(model, weights)
        for order in orders:
            for places in order[client].split(recipe.batch):
                model.zero_grad()
                cross_entropy(model(people.inputs[places]), people.labels[places]).backward()
                with torch.no_grad():
                    for own in model.parameters():
                        own -= recipe.rate * own.grad
        learned.append(_read(model))
    return np.stack(learned)


def gradients_of(model: nn.Module) -> Slopes:
    """Return what gives the gradients of many clients at once, each at weights of its own, on a batch of its own."""
    names = [name for name, _ in model.named_parameters()]
    shapes = [own.shape for own in model.parameters()]
    sizes = [own.numel() for own in model.parameters()]

    def loss(weights: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
        parts = [part.view(shape) for part, shape in zip(weights.split(sizes), shapes, strict=True)]
        return cross_entropy(functional_call(model, dict(zip(names, parts, strict=True)), (inputs,)), labels)

    slopes: Slopes = vmap(grad(loss))
    return slopes


def accuracy(model: nn.Module, people: Clients) -> float:
    """Return the share of test examples that are told right, in percent."""
    with torch.no_grad():
        told = torch.cat([model(part).argmax(1) for part in people.test_inputs.split(1000)])
    return 100 * float((told == people.test_labels).double().mean())


def _read(model: nn.Module) -> Vector:
    flat = torch.nn.utils.parameters_to_vector(model.parameters())
    return np.asarray(flat.detach().double().numpy())


def _write(model: nn.Module, weights: Vector) -> None:
    with warnings.catch_warnings():
        torch.nn.utils.vector_to_parameters(torch.from_numpy(weights).float(), model.parameters())
