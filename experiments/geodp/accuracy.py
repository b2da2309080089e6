"""The headline: the best accuracy reached here at a guarantee, against what is published without further data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from experiments.frame import Advance, Chart, Series, Study, remember
from experiments.geodp import features, linear, sizes
from noisette import datasets

DELTA = 1e-5
SEEDS = (1, 2, 3)
RATES = {1.0: 50.0, 3.0: 70.0, 8.0: 120.0}  # by epsilon
LARGEST, KEPT = sizes.NAMED
CHOICES = {
    "mnist": ("scattering", 1000),
    "fashion-mnist": ("scattering", 1000),
    "cifar10": (f"windows, {LARGEST:,} filters", KEPT),
}
TITLES = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "cifar10": "CIFAR-10"}

# Accuracies in per cent that their authors print, with no images but the data set's own, at delta = 1e-5.
SCATTERED = "Tramèr and Boneh 2021"
PUBLISHED = {
    ("mnist", 3.0): (98.7, SCATTERED + ", scattering + linear"),
    ("fashion-mnist", 3.0): (89.7, SCATTERED + ", scattering + linear"),
    ("cifar10", 1.0): (72.3, "Tang et al. 2023, Wide-ResNet, priors from random images; 60.6 was best before"),
    ("cifar10", 3.0): (72.3, "Tang et al. 2023 at ε = 1, which holds at 3 too; " + SCATTERED + " have 69.3 at 3"),
    ("cifar10", 8.0): (81.4, "De et al. 2022, 40-layer Wide-ResNet"),
}


def loaded(name: str, full: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return features and labels for training and for testing: features along the main directions of dead leaves."""
    if name == "cifar10":
        own = sizes.loaded(*(LARGEST, KEPT) if full else sizes.SMALL, full)
        return own.train, own.labels, own.test, own.answers
    data, (kind, kept) = datasets.images(name), CHOICES[name]
    known = features.leaves(kind, 1, data.train.shape[1], 300 if full else 20)
    scale, axes = features.sizes(known), features.directions(known, kept if full else 100)
    made = []
    for part, images, labels, few in (
        ("train", data.train, data.train_labels, 60),
        ("test", data.test, data.test_labels, 30),
    ):
        count = len(images) if full else few
        raw = features.features(kind, images[:count], keep=f"{name}-{part}" if full else "")
        made += [
            torch.cat([features.prepared(some.float(), scale) @ axes for some in raw.split(4096)]),
            torch.from_numpy(labels[:count].astype(np.int64)),
        ]
    return made[0], made[1], made[2], made[3]


def planned(name: str) -> list[linear.Plan]:
    """Return the plan for each epsilon."""
    own = [linear.Plan(epsilon, DELTA, rate) for epsilon, rate in RATES.items()]
    return list(sizes.PLANS.values()) if name == "cifar10" else own


def reached(name: str, full: bool, advance: Advance) -> list[tuple[linear.Plan, list[float]]]:
    """Return the plan for each epsilon, and its test accuracies in per cent, one for each seed."""
    data = cache(lambda: loaded(name, full))  # not read where all is known
    plans = [plan if full else replace(plan, steps=10, axes=0) for plan in planned(name)]

    def scores(plan: linear.Plan, ahead: Advance) -> list[float]:
        inputs, labels, test, answers = data()
        models = linear.train(inputs, labels, plan, SEEDS, advance=ahead)
        return [100 * model.accuracy(test, answers) for model in models]

    made = []
    for place, plan in enumerate(plans):
        ahead = partial(_ahead, advance, place)
        made.append((plan, remember((name, plan.epsilon), partial(scores, plan, ahead))))
    return made


def _ahead(advance: Advance, place: int, share: float) -> None:
    """Report the share that is done: features first, then one plan after another."""
    advance(0.3 + 0.7 * (place + share) / len(RATES))


def headline(full: bool, advance: Advance) -> Study:
    """MNIST, Fashion-MNIST and CIFAR-10 at three guarantees."""
    rows, lines, other = [], [], planned("cifar10")
    for place, (name, (kind, _)) in enumerate(CHOICES.items()):
        found = reached(name, full, lambda share, place=place: advance((place + share) / len(CHOICES)))
        for plan, scores in found:
            bar, source = PUBLISHED.get((name, plan.epsilon), (None, "-"))
            mean = math.fsum(scores) / len(scores)
            rows.append(
                (
                    TITLES[name],
                    plan.epsilon,
                    mean,
                    min(scores),
                    max(scores),
                    bar,
                    source,
                    kind,
                    plan.rate,
                    plan.spent(),
                )
            )
        own = rows[-len(RATES) :]
        means, low, high = ([row[column] for row in own] for column in (2, 3, 4))
        lines.append(Series(TITLES[name], list(RATES), means, low, high))
    return Study(
        "Headline: the best accuracy at a true guarantee",
        "The thesis has no such table. The bar is private learning without further data: features by hand and a linear "
        "model (Tramèr and Boneh 2021), and deep networks on many accelerators (De et al. 2022; Tang et al. 2023).",
        f"{compared(rows)} Every run here is Gaussian noise on clipped gradients of a linear model, all examples in "
        "each step. The mean of the features and their second moment, which whitens them, are paid for from the same "
        "budget; so are all steps. The features and the directions that are kept of them come from dead leaves and "
        "look at no data. On MNIST and Fashion-MNIST rates, clipping norm, steps and the floor of the whitening were "
        "tried on a held-out tenth of the training images at ε = 1 and 3 (the rate at 8 is a guess from those), and "
        "that choice is not paid for, as in the papers quoted. What the rows of CIFAR-10 rest on is said with the next "
        "table. The test images were scored once with these settings; earlier versions had been scored too: two of all "
        "rows, which were not whitened, and one of CIFAR-10 with 512 filters at one scale, which had 64.8, 69.4 and "
        "70.5 %. The runs of a row share the mean and the moment, so that their spread is that of the steps. A dash "
        "means that we found no published figure to check.",
        (
            "data",
            "ε",
            "test accuracy, %",
            "lowest",
            "highest",
            "published, %",
            "by",
            "features",
            "rate",
            "ε composed",
        ),
        rows,
        {
            "delta": DELTA,
            "steps": f"{linear.Plan.steps}, of CIFAR-10 {sizes.PLANS[1.0].steps}" if full else 10,
            "clip": f"{linear.Plan.clip}, of CIFAR-10 {', '.join(f'{own.clip:g}' for own in other)}",
            "share of the moment": f"{linear.Plan.share}, of CIFAR-10 {', '.join(f'{own.share:g}' for own in other)}",
            "runs of each": len(SEEDS),
            "directions kept": str([kept if full else 100 for _, kept in CHOICES.values()]),
        },
        [Chart("headline", "Linear models on fixed features", "ε at δ = 1e-5", "test accuracy (%)", lines, log_x=True)],
    )


def compared(rows: Sequence[Sequence[Any]]) -> str:
    """Say how each accuracy compares with the published one."""
    known = [row for row in rows if row[5] is not None]
    words = ", ".join(f"{row[0]} at ε = {row[1]:g}: {row[2]:.1f} against {row[5]:.1f}" for row in known)
    above = sum(row[2] >= row[5] - 0.05 for row in known)
    close = [f"{row[0]} at ε = {row[1]:g}" for row in known if abs(row[2] - row[5]) < row[4] - row[3]]
    tied = f" The difference is smaller than the spread of the runs for {' and '.join(close)}." if close else ""
    return f"{words}. At or above the published figure in {above} of {len(known)}.{tied}"
