"""A task to federate: images on simulated devices, a network, and what a device does with the model it gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from noisette import _validate, datasets


def softmax(channels: int, side: int) -> nn.Module:
    """Return logistic regression."""
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * side * side, 10))


def cnn(channels: int, side: int) -> nn.Module:
    """Return two convolutions and a linear layer, some 13,000 weights for MNIST."""
    return nn.Sequential(
        *(nn.Conv2d(channels, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 32, 3, stride=2), nn.ReLU()),
        *(nn.Flatten(), nn.LazyLinear(10)),
    )


_JUDGED = 2000  # test images that are classified at a time

NETWORKS: dict[str, Callable[[int, int], nn.Module]] = {"softmax": softmax, "cnn": cnn}


@lru_cache(maxsize=2)
def _loaded(data: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return training and test images in [0, 1] with their labels."""
    images = datasets.images(data)

    def prepared(pixels: npt.NDArray[np.uint8], labels: npt.NDArray[np.uint8]) -> tuple[Tensor, Tensor]:
        values = torch.from_numpy(pixels.astype(np.float32) / 255)
        values = values.unsqueeze(1) if values.ndim == 3 else values.permute(0, 3, 1, 2).contiguous()
        return values, torch.from_numpy(labels.astype(np.int64))

    return *prepared(images.train, images.train_labels), *prepared(images.test, images.test_labels)


@dataclass(frozen=True)
class Task:
    """Images cut into the shares of ``clients`` devices, each with ``per_client`` images of ``classes`` classes."""

    data: str = "mnist"
    network: str = "softmax"
    clients: int = 100
    per_client: int | None = None
    classes: int = 10
    epochs: int = 1
    batch: int = 32
    rate: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("clients", "epochs", "batch"):
            _validate.integer(getattr(self, name), name, low=1)
        _validate.integer(self.classes, "classes", low=1, high=10)
        _validate.positive(self.rate, "rate")
        if self.network not in NETWORKS:
            raise ValueError(f"Expected network={self.network!r} to be one of {', '.join(NETWORKS)}.")

    @cached_property
    def _shares(self) -> list[npt.NDArray[np.int64]]:
        """Indices of each client's images: runs of classes, cut into as many pieces as all clients need together."""
        labels = _loaded(self.data)[1].numpy()
        rng = np.random.default_rng(self.seed)
        order = rng.permutation(len(labels))
        if self.classes < 10:
            order = order[np.argsort(labels[order], kind="stable")]
        pieces = np.array_split(order, self.clients * self.classes)
        dealt = rng.permutation(len(pieces)) if self.classes < 10 else np.arange(len(pieces))
        hands = dealt.reshape(self.clients, self.classes)
        shares = [np.concatenate([pieces[piece] for piece in hand]) for hand in hands]
        size = self.per_client
        if size is not None and min(map(len, shares)) < _validate.integer(size, "per_client", low=1):
            raise ValueError(
                f"Expected per_client={size} of at most {min(map(len, shares))}: there are no more images."
            )
        return [share if size is None else rng.permutation(share)[:size] for share in shares]

    def start(self) -> dict[str, npt.NDArray[np.float32]]:
        """Return the weights that training starts from."""
        torch.manual_seed(self.seed)
        return _weights(self._built())

    def _built(self) -> nn.Module:
        images = _loaded(self.data)[0]
        made = NETWORKS[self.network](images.shape[1], images.shape[2])
        made(images[:1])  # lazy layers learn their sizes
        return made

    def _with(self, weights: Mapping[str, npt.NDArray[Any]]) -> nn.Module:
        network = self._built()
        network.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in weights.items()})
        return network

    def train(self, weights: Mapping[str, npt.NDArray[Any]], client: int) -> dict[str, npt.NDArray[np.float32]]:
        """Return a client's weights after its local epochs of SGD."""
        images, labels = _loaded(self.data)[:2]
        own = torch.from_numpy(self._shares[client])
        network = self._with(weights)
        optimizer = torch.optim.SGD(network.parameters(), lr=self.rate)
        for _ in range(self.epochs):
            order = own[torch.randperm(len(own))]
            for first in range(0, len(order), self.batch):
                batch = order[first : first + self.batch]
                optimizer.zero_grad()
                torch.autograd.backward(nn.functional.cross_entropy(network(images[batch]), labels[batch]))
                optimizer.step()
        return _weights(network)

    def accuracy(self, weights: Mapping[str, npt.NDArray[Any]]) -> float:
        """Return the share of test images that a model classifies right."""
        images, labels = _loaded(self.data)[2:]
        network = self._with(weights).eval()
        with torch.no_grad():
            starts = range(0, len(labels), _JUDGED)
            guesses = torch.cat([network(images[first : first + _JUDGED]).argmax(dim=1) for first in starts])
        return float((guesses == labels).float().mean())


def _weights(network: nn.Module) -> dict[str, npt.NDArray[np.float32]]:
    return {name: tensor.detach().numpy().copy() for name, tensor in network.state_dict().items()}
