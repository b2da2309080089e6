"""Models that the papers train, without layers that mix examples."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


class _Block(nn.Module):
    """Two convolutions with a way around them."""

    def __init__(self, entering: int, leaving: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(entering, leaving, 3, stride, 1)
        self.second = nn.Conv2d(leaving, leaving, 3, 1, 1)
        self.around = nn.Conv2d(entering, leaving, 1, stride) if stride > 1 else nn.Identity()
        self.norms = nn.ModuleList([nn.GroupNorm(4, leaving), nn.GroupNorm(4, leaving)])

    def forward(self, x: Tensor) -> Tensor:
        inner = torch.relu(self.norms[0](self.first(x)))
        return torch.relu(self.norms[1](self.second(inner)) + self.around(x))


def softmax(channels: int = 1, side: int = 28) -> nn.Module:
    """Return multinomial logistic regression on pixels."""
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * side**2, 10))


def cnn(channels: int = 1, side: int = 28) -> nn.Module:
    """Return the CNN of Duan 2024, section 5.3: 10 and 20 filters of 5 x 5, then 50 and 10: 21,840 weights."""
    left = ((side - 4) // 2 - 4) // 2
    return nn.Sequential(
        nn.Conv2d(channels, 10, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(10, 20, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(20 * left**2, 50),
        nn.ReLU(),
        nn.Linear(50, 10),
    )


def lenet(channels: int = 1, side: int = 28) -> nn.Module:
    """Return LeNet-5 with ReLU and averages."""
    left = ((side + 4 * (side == 28) - 4) // 2 - 4) // 2
    return nn.Sequential(
        nn.Conv2d(channels, 6, 5, padding=2 * (side == 28)),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * left**2, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, 10),
    )


def resnet(channels: int = 1, side: int = 28) -> nn.Module:
    """Return a residual network of three blocks with group normalisation."""
    del side  # averaged over
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, 1, 1),
        nn.GroupNorm(4, 16),
        nn.ReLU(),
        _Block(16, 16, 1),
        _Block(16, 32, 2),
        _Block(32, 64, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


ZOO: dict[str, Callable[[int, int], nn.Module]] = {"softmax": softmax, "cnn": cnn, "lenet": lenet, "resnet": resnet}
