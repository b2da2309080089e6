"""The models whose private step is timed, with how a batch of each is drawn and its usual size."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from noisette.sgd import zoo


class Last(nn.Module):
    """A text classifier: embedding, recurrence in both directions, linear layer on the mean state."""

    def __init__(self, recurrence: nn.Module) -> None:
        super().__init__()
        self.embedding, self.recurrence, self.out = nn.Embedding(2000, 32), recurrence, nn.Linear(64, 2)

    def forward(self, words: Tensor) -> Tensor:
        states = self.recurrence(self.embedding(words))[0]
        return self.out(states.mean(1))


class Block(nn.Module):
    """Attention with four heads and two linear layers, each with a way around it."""

    def __init__(self, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.mixed, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])

    def forward(self, x: Tensor) -> Tensor:
        parts = self.mixed(self.norms[0](x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(*parts)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.narrow(torch.relu(self.wide(self.norms[1](x))))


class Transformer(nn.Module):
    """A text classifier: embedding, two blocks, linear layer on the mean."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.blocks, self.out = (
            nn.Embedding(2000, 64),
            nn.Sequential(Block(), Block()),
            nn.Linear(64, 2),
        )

    def forward(self, words: Tensor) -> Tensor:
        return self.out(self.blocks(self.embedding(words)).mean(1))


def resnet20() -> nn.Module:
    """Return the ResNet-20 of He et al. 2016, section 4.2, with group normalisation: three blocks at each width."""
    blocks = [
        zoo._Block(entering, leaving, stride)
        for width, first in ((16, 1), (32, 2), (64, 2))
        for entering, leaving, stride in ((width // first, width, first), (width, width, 1), (width, width, 1))
    ]
    entry = (nn.Conv2d(3, 16, 3, 1, 1), nn.GroupNorm(4, 16), nn.ReLU())
    return nn.Sequential(*entry, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def mlp(width: int = 1024) -> nn.Module:
    """Return two hidden layers on pixels; 1.9 million weights at a width of 1,024."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
    )


def images(*shape: int) -> Callable[[int], Tensor]:
    """Return a function that draws a batch of images."""
    return lambda batch: torch.randn(batch, *shape)


def words(batch: int) -> Tensor:
    """Return a batch of texts of 40 words."""
    return torch.randint(0, 2000, (batch, 40))


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Tensor], int]] = {
    "logistic": (zoo.softmax, images(1, 28, 28), 256),
    "cnn": (zoo.cnn, images(1, 28, 28), 256),
    "lenet": (zoo.lenet, images(1, 28, 28), 256),
    "resnet": (lambda: zoo.resnet(3, 32), images(3, 32, 32), 64),
    "resnet20": (resnet20, images(3, 32, 32), 64),
    "bilstm": (lambda: Last(nn.LSTM(32, 32, batch_first=True, bidirectional=True)), words, 64),
    "transformer": (Transformer, words, 64),
    "mlp": (mlp, images(1, 28, 28), 256),
}
