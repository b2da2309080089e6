"""The training loop of the command line and of the experiments: images, epochs, accuracy, curves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer
from torch.utils.data import DataLoader, TensorDataset

from noisette.datasets import Images
from noisette.sgd.private import Private

_SIZE = 1000  # examples judged at a time


@dataclass(frozen=True)
class Epoch:
    """Where training stood after an epoch; what was spent is (epsilon, delta) of all steps so far."""

    epoch: int
    steps: int
    epsilon: float
    accuracy: float


def tensors(images: Images, *, limit: int | None = None) -> tuple[TensorDataset, TensorDataset]:
    """Return images for training and for testing, as numbers in [-1, 1] with channels first."""
    made: list[TensorDataset] = []
    for pixels, labels in ((images.train, images.train_labels), (images.test, images.test_labels)):
        count = len(pixels) if limit is None or made else limit
        chosen = torch.from_numpy(pixels[:count].copy()).float() / 127.5 - 1
        chosen = chosen[:, None] if chosen.ndim == 3 else chosen.permute(0, 3, 1, 2).contiguous()
        made.append(TensorDataset(chosen, torch.from_numpy(labels[:count].astype("int64"))))
    return made[0], made[1]


def fit(
    private: Private,
    test: TensorDataset,
    *,
    epochs: int,
    start: int = 0,
    each: Callable[[Epoch], Any] = lambda _: None,
    advance: Callable[[float], Any] = lambda _: None,
) -> list[Epoch]:
    """Train a classifier for the epochs that are left after ``start``, and judge it after each."""
    model, optimizer, loader = private
    curve = []
    for epoch in range(start, epochs):
        model.train()
        for inputs, targets in loader:
            optimizer.zero_grad()
            functional.cross_entropy(model(inputs), targets).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            advance(optimizer.steps / (epochs * loader.steps))
        judged = float((answers(model, test).argmax(1) == test.tensors[1]).float().mean())
        curve.append(Epoch(epoch + 1, optimizer.steps, optimizer.guarantee.epsilon, judged))
        each(curve[-1])
    return curve


def fit_plainly(model: nn.Module, data: TensorDataset, optimizer: Optimizer, *, epochs: int, batch: int) -> None:
    """Train a classifier without privacy, to have an optimum to compare with."""
    model.train()
    order = torch.Generator().manual_seed(1)  # its own, so that nothing else changes
    for _ in range(epochs):
        for inputs, targets in DataLoader(data, batch_size=batch, shuffle=True, generator=order):
            optimizer.zero_grad()
            functional.cross_entropy(model(inputs), targets).backward()  # type: ignore[no-untyped-call]
            optimizer.step()


@torch.no_grad()
def answers(model: nn.Module, data: TensorDataset) -> Tensor:
    """Return the model's outputs on a data set."""
    was = model.training
    model.eval()
    made = torch.cat([model(block) for block in torch.split(data.tensors[0], _SIZE)])
    model.train(was)
    return made


def losses(model: nn.Module, data: TensorDataset) -> Tensor:
    """Return the loss of each example, which a membership attack starts from."""
    return functional.cross_entropy(answers(model, data), data.tensors[1], reduction="none")
