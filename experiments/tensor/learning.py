"""What the experiments on tensors share: real data with a public part, small tanh models, training, scores."""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from scipy.stats import rankdata
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn import functional
from torch.utils.data import TensorDataset

from noisette import datasets
from noisette._validate import FloatArray

SEED = 2021
_WORD = re.compile(r"[a-z']+")


@dataclass(frozen=True, eq=False)
class Task:
    """A data set in three parts that share nobody: public ones train what extracts features, the others are private."""

    name: str
    public: TensorDataset
    train: TensorDataset
    test: TensorDataset
    build: Callable[[], nn.Sequential]
    cut: int  # layers before it extract features with entries in [-1, 1]


def pictures(name: str, sizes: Sequence[int]) -> tuple[TensorDataset, ...]:
    """Return parts of these sizes of a set of images: the last from its test images, pixels in [-1, 1]."""
    found = datasets.images(name)
    order = np.random.default_rng(SEED).permutation(len(found.train))
    *front, last = sizes
    edges = np.cumsum([0, *front])
    parts = [(found.train, found.train_labels, order[low:high]) for low, high in pairwise(edges)]
    order = np.random.default_rng(SEED).permutation(len(found.test))
    parts.append((found.test, found.test_labels, order[:last]))
    return tuple(_pixels(pixels[chosen], labels[chosen]) for pixels, labels, chosen in parts)


def _pixels(pixels: Any, labels: Any) -> TensorDataset:
    values = torch.from_numpy(pixels.astype("float32") / 127.5 - 1)
    values = values[:, None] if values.ndim == 3 else values.permute(0, 3, 1, 2).contiguous()
    return TensorDataset(values, torch.from_numpy(labels.astype("int64")))


def house_numbers(full: bool) -> str:
    """Return svhn where it can be had, else the name of what stands in for it; the small setting never fetches it."""
    if full:
        try:
            datasets.images("svhn")
        except FileNotFoundError:
            return "fashion-mnist"
        return "svhn"
    return "fashion-mnist"


@cache
def reviews(sizes: tuple[int, ...], words: int) -> tuple[TensorDataset, ...]:
    """Return parts of IMDB as bags of words: log(1 + count) of the public part's commonest, of length one."""
    table = datasets.table("imdb", ["split", "label", "text"])
    trained = np.asarray(table["split"].to_pylist()) == "train"
    label = table["label"].to_numpy().astype("int64")
    *front, last = sizes
    order = np.random.default_rng(SEED).permutation(np.flatnonzero(trained))
    edges = np.cumsum([0, *front])
    chosen = [order[low:high] for low, high in pairwise(edges)]
    chosen.append(np.random.default_rng(SEED).permutation(np.flatnonzero(~trained))[:last])
    texts = [[_WORD.findall(str(table["text"][int(k)]).lower()) for k in part] for part in chosen]
    common = Counter(word for text in texts[0] for word in text).most_common(words)
    place = {word: k for k, (word, _) in enumerate(common)}
    made = []
    for part, own in zip(chosen, texts, strict=True):
        bags = np.zeros((len(part), words), dtype=np.float32)
        for row, text in zip(bags, own, strict=True):
            np.add.at(row, [place[word] for word in text if word in place], 1.0)
        bags = np.log1p(bags)
        bags /= np.maximum(np.linalg.norm(bags, axis=1, keepdims=True), 1e-6)
        made.append(TensorDataset(torch.from_numpy(bags), torch.from_numpy(label[part])))
    return tuple(made)


def rows(values: FloatArray, labels: Any, sizes: Sequence[int]) -> tuple[TensorDataset, ...]:
    """Return parts of a table, drawn at random; columns are centred and scaled by the first part, then cut at 4."""
    order = np.random.default_rng(SEED).permutation(len(values))
    edges = np.cumsum([0, *sizes])
    chosen = [order[low:high] for low, high in pairwise(edges)]
    centre, spread = values[chosen[0]].mean(axis=0), values[chosen[0]].std(axis=0)
    scaled = np.clip((values - centre) / np.maximum(spread, 1e-9), -4, 4).astype("float32")
    target = np.asarray(labels).astype("int64")
    return tuple(TensorDataset(torch.from_numpy(scaled[part]), torch.from_numpy(target[part])) for part in chosen)


def lenet() -> nn.Sequential:
    """Return LeNet-5 with tanh; six layers give features of 16 x 5 x 5, as in Table III of Yang et al. 2021."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10),
    )  # fmt: skip


def small_vgg() -> nn.Sequential:
    """Return four convolutions with tanh for 32 x 32 x 3; eleven layers give features of 128 x 1 x 1."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.Tanh(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.Tanh(), nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 3, padding=1), nn.Tanh(), nn.MaxPool2d(2),
        nn.Conv2d(64, 128, 4), nn.Tanh(),
        nn.Flatten(), nn.Linear(128, 64), nn.Tanh(), nn.Linear(64, 10),
    )  # fmt: skip


def bag(words: int, hidden: int = 150) -> nn.Sequential:
    """Return a model of bags of words with one hidden layer, in place of a BiLSTM."""
    return nn.Sequential(nn.Linear(words, hidden), nn.Tanh(), nn.Flatten(), nn.Linear(hidden, 2))


class Bottleneck(nn.Module):
    """A block of MobileNet with tanh: wider, each channel by itself, narrower; added to what entered where it fits."""

    def __init__(self, entering: int, leaving: int, stride: int, times: int = 3) -> None:
        super().__init__()
        wide = times * entering
        self.layers = nn.Sequential(
            nn.Conv2d(entering, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.Tanh(),
            nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False), nn.BatchNorm2d(wide), nn.Tanh(),
            nn.Conv2d(wide, leaving, 1, bias=False), nn.BatchNorm2d(leaving),
        )  # fmt: skip
        self.added = entering == leaving and stride == 1

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the block's maps."""
        made: Tensor = self.layers(inputs)
        return inputs + made if self.added else made


def mobile(channels: int, features: int = 160) -> nn.Sequential:
    """Return a small MobileNet V2 with tanh in place of ReLU6; all layers but the last give features in [-1, 1]."""
    blocks = [Bottleneck(*own) for own in ((16, 16, 1), (16, 32, 2), (32, 32, 1), (32, 64, 2), (64, 64, 1))]
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.Tanh(), *blocks,
        nn.Conv2d(64, features, 1, bias=False), nn.BatchNorm2d(features), nn.Tanh(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(features, 10),
    )  # fmt: skip


def seeded(build: Callable[[], nn.Sequential], seed: int = SEED) -> nn.Sequential:
    """Build a model whose first weights depend on the seed only."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return build()


def train(
    model: nn.Module, data: TensorDataset, *, epochs: int, rate: float = 1e-3, batch: int = 64, seed: int = SEED
) -> nn.Module:
    """Train a classifier by Adam, without privacy."""
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    inputs, targets = data.tensors
    generator = torch.Generator().manual_seed(seed)
    model.train()
    for _ in range(epochs):
        for chosen in torch.randperm(len(targets), generator=generator).split(batch):
            optimizer.zero_grad()
            functional.cross_entropy(model(inputs[chosen]), targets[chosen]).backward()
            optimizer.step()
    return model


def train_together(
    models: Sequence[nn.Module],
    inputs: Sequence[Tensor],
    targets: Tensor,
    *,
    epochs: int,
    rate: float = 1e-3,
    batch: int = 64,
    seed: int = SEED,
) -> None:
    """Train classifiers of one build side by side, each on inputs of its own with the same labels, as `train` does.

    Each gets the weights that training it alone would give it, up to rounding.
    """
    weights, _ = stack_module_state(list(models))  # type: ignore[arg-type]
    base, whole = copy.deepcopy(models[0]), torch.stack(list(inputs))

    def loss(own: dict[str, Tensor], some: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(functional_call(base, own, (some,)), labels)

    losses = vmap(loss, in_dims=(0, 0, None))
    optimizer = torch.optim.Adam(weights.values(), lr=rate)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for chosen in torch.randperm(len(targets), generator=generator).split(batch):
            optimizer.zero_grad()
            losses(weights, whole[:, chosen], targets[chosen]).sum().backward()
            optimizer.step()
    with torch.no_grad():
        for place, model in enumerate(models):
            for name, parameter in model.named_parameters():
                parameter.copy_(weights[name][place])


@torch.no_grad()
def outputs(model: nn.Module, inputs: Tensor) -> Tensor:
    """Return what a model makes of inputs, some at a time."""
    model.eval()
    return torch.cat([model(part) for part in inputs.split(500)])


def accuracy(scores: Tensor, labels: Tensor) -> float:
    """Return the share of right answers."""
    return float((scores.argmax(1) == labels).double().mean())


def area_under_curve(scores: Tensor, labels: Tensor) -> float:
    """Return the chance that a positive example scores above a negative one, ties counted half."""
    rank, positive = rankdata((scores[:, 1] - scores[:, 0]).numpy()), labels.numpy() == 1
    count, others = int(positive.sum()), int((~positive).sum())
    return float((rank[positive].sum() - count * (count + 1) / 2) / (count * others))


def weighted_f1(scores: Tensor, labels: Tensor) -> float:
    """Return the mean of the classes' F1 scores, weighted by the size of each class (Yuan et al. 2025, eqs. 13-16).

    >>> round(weighted_f1(torch.eye(3)[[0, 0, 1, 2]], torch.tensor([0, 1, 1, 2])), 4)
    0.75
    """
    answers, truth = scores.argmax(1).numpy(), labels.numpy()
    total = 0.0
    for kind in np.unique(truth):
        hits = int(np.sum((answers == kind) & (truth == kind)))
        sizes = int(np.sum(answers == kind)) + int(np.sum(truth == kind))
        total += 2 * hits / sizes * float(np.mean(truth == kind))
    return total
