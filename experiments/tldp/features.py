"""Type II: what knows public images extracts features, and perturbed features train the last layer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import numpy as np
from torch import Tensor, nn

from experiments.frame import Advance, Study, several
from experiments.tensor import learning
from experiments.tensor.learning import SEED
from experiments.tldp.data import COLUMNS as SINGLE
from experiments.tldp.data import NAMES, charts, finding, levels, scaled
from experiments.tldp.ways import DELTA, LEVELS, ways
from noisette import datasets
from noisette._validate import FloatArray

COLUMNS = (*SINGLE[:-1], "sd of F1", SINGLE[-1])
DIMS = (10, 16)  # of the features of an image: MVG needs a matrix
SEEDS = 5
_PUBLIC = 10_000  # images that train the network
_PASSES = ((12, 3e-3), (3, 3e-4))  # epochs and rates of its training
Released = tuple[FloatArray, float]  # reports, and the standard deviation of their noise


@cache
def extracted(name: str, full: bool) -> tuple[FloatArray, Tensor, FloatArray, Tensor]:
    """Return features and labels of private images and of those to be judged by, as levels."""
    rest = len(datasets.images(name).train) - _PUBLIC
    public, train, test = learning.pictures(name, (_PUBLIC, rest, 10_000) if full else (300, 300, 200))
    model = learning.seeded(lambda: learning.mobile(public.tensors[0].shape[1]))
    for epochs, rate in _PASSES if full else ((2, 3e-3),):
        learning.train(model, public, epochs=epochs, rate=rate)
    known, judged = (levels(learning.outputs(model[:-1], part.tensors[0])) for part in (train, test))
    return known, train.tensors[1], judged, test.tensors[1]


def judged(name: str, full: bool, released: Sequence[Released], seed: int) -> list[float]:
    """Return the weighted F1 of the last layers that perturbed features train, all of them side by side."""
    _, labels, test, truth = extracted(name, full)
    heads = [learning.seeded(lambda: nn.Sequential(nn.Linear(test.shape[1], 10)), seed) for _ in released]
    reports = [scaled(own, std) for own, std in released]
    learning.train_together(heads, reports, labels, epochs=10 if full else 3, rate=3e-3, batch=256, seed=seed)
    return [
        learning.weighted_f1(learning.outputs(head, scaled(test, std)), truth)
        for head, (_, std) in zip(heads, released, strict=True)
    ]


def scores(full: bool, claims: Sequence[float], part: tuple[str, int]) -> list[list[Any]]:
    """Return (mechanism, claimed epsilon, score) of one data set and seed."""
    name, seed = part
    known = extracted(name, full)[0]
    made: list[list[Any]] = [["no noise", None, *judged(name, full, [(known, 0.0)], seed)]]
    for claimed in claims:
        own = list(ways(claimed, DIMS))
        released = [
            (way.release(known.reshape(-1, *DIMS), seed + number).reshape(known.shape), way.std)
            for number, way in enumerate(own)
        ]
        found = judged(name, full, released, seed)
        made += [[way.label, claimed, score] for way, score in zip(own, found, strict=True)]
    return made


def rows_of(name: str, made: Sequence[list[list[Any]]]) -> list[tuple[Any, ...]]:
    """Return the rows of one data set: means and standard deviations over the seeds that were run."""
    rows = []
    for lines in zip(*made, strict=True):
        (label, claimed), values = lines[0][:2], [line[2] for line in lines]
        truth: tuple[Any, ...] = (None, None, 0.0)
        if claimed is not None:
            way = next(way for way in ways(claimed, DIMS) if way.label == label)
            truth = (way.record, way.element, way.std)
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else None
        rows.append((NAMES[name], label, claimed, *truth, spread, float(np.mean(values))))
    return rows


def type_2(full: bool, advance: Advance) -> Study:
    """Perturbed features."""
    claims = (1.0, 4.0, 16.0, 64.0, 256.0) if full else (16.0,)
    names = ("mnist", "cifar10", learning.house_numbers(full))
    seeds = range(SEED, SEED + 100 * (SEEDS if full else 1), 100)
    rows: list[tuple[Any, ...]] = []
    least = len(seeds)
    for place, name in enumerate(names):
        made = several([(name, seed) for seed in seeds], partial(scores, full, claims))
        rows += rows_of(name, made)
        least = min(least, len(made))
        advance((place + 1) / len(names))
    weights = sum(own.numel() for own in learning.mobile(3).parameters())
    return Study(
        "Type II: perturbed features train the last layer (Figure 2)",
        "TLDP reaches about 80 % on MNIST and 40 % on CIFAR-10 and SVHN; the others stay extremely low.",
        finding(rows),
        COLUMNS,
        rows,
        {
            "public, training, test images": {
                NAMES[name]: [_PUBLIC if full else 300, *(len(extracted(name, full)[part]) for part in (1, 3))]
                for name in names
            },
            "weights of the network": weights,
            "features": int(np.prod(DIMS)),
            "seeds": least,
            "delta": DELTA,
            "levels": LEVELS,
        },
        charts("type-2", rows),
        fraction="" if least == len(seeds) else f"{least} of {len(seeds)} seeds",
    )
