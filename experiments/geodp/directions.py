"""Figures 5.1, 5.3 and 5.4: how far noise moves a gradient and its direction."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
from torch.nn import functional

from experiments.frame import Advance, Chart, Series, Study
from noisette import datasets
from noisette.mechanisms.geometric.spherical import from_spherical, to_spherical
from noisette.sgd import zoo
from noisette.sgd.training import tensors

CLIP = 0.1  # the thesis's C
KEYS = ("DP angle", "printed angle", "sound angle", "DP gradient", "printed gradient", "sound gradient")
LINES = {"DP": "DP angle", "GeoDP as printed": "printed angle", "GeoDP, sound": "sound angle"}


@lru_cache(maxsize=4)
def gradients(count: int, dims: int) -> np.ndarray:
    """Return clipped gradients of single images, from one pass of training a CNN on CIFAR-10, in some dimensions."""
    torch.manual_seed(5)
    train, _ = tensors(datasets.images("cifar10"), limit=count)
    model = zoo.cnn(3, 32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    made = []
    chosen = None
    for image, label in zip(*train.tensors, strict=True):
        optimizer.zero_grad()
        functional.cross_entropy(model(image[None]), label[None]).backward()
        whole = torch.cat([parameter.grad.flatten() for parameter in model.parameters()]).double().numpy()
        if chosen is None:
            chosen = np.sort(np.random.default_rng(6).choice(whole.size, min(dims, whole.size), replace=False))
        part = whole[chosen]
        made.append(part * min(1.0, CLIP / max(np.linalg.norm(part), 1e-300)))
        optimizer.step()
    return np.array(made)


def errors(
    mean: np.ndarray, sigma: float, batch: int, beta: float, repeats: int, rng: np.random.Generator
) -> dict[str, float]:
    """Return mean squared errors of direction (angles) and gradient: plain noise, GeoDP as printed, GeoDP sound.

    Plain noise is N(0, (C sigma / B)^2). GeoDP's angles get N(0, (reach sigma)^2) with reach sqrt(d+2) beta pi / B as
    printed; sound noise follows the whole diameter, sqrt(d+2) beta pi, and both releases share the budget.
    """
    magnitude, angles = to_spherical(mean)
    kept = np.clip(angles, (1 - beta) * math.pi, math.pi)
    kept[-1] = np.clip(angles[-1], -beta * math.pi, beta * math.pi)
    diameter = math.sqrt(mean.size + 2) * beta * math.pi
    totals = dict.fromkeys(KEYS, 0.0)
    for _ in range(repeats):
        plain = mean + rng.normal(0, CLIP * sigma / batch, mean.size)
        totals["DP angle"] += _turn(to_spherical(plain)[1], angles)
        totals["DP gradient"] += float(np.square(plain - mean).mean())
        for name, reach, spread in (("printed", diameter / batch, sigma), ("sound", diameter, sigma * math.sqrt(2))):
            turned = kept + rng.normal(0, reach * spread, kept.size)
            size = magnitude + rng.normal(0, CLIP * spread / batch)
            moved = from_spherical(size, turned)
            totals[f"{name} angle"] += _turn(to_spherical(moved)[1], angles)
            totals[f"{name} gradient"] += float(np.square(moved - mean).mean())
    return {name: total / repeats for name, total in totals.items()}


def outside(mean: np.ndarray, beta: float) -> float:
    """Return the share of angles that the printed clipping moves, whatever the noise."""
    angles = to_spherical(mean)[1][:-1]
    return float((angles < (1 - beta) * math.pi).mean())


def _turn(first: np.ndarray, second: np.ndarray) -> float:
    """Return the mean square of the differences between angles, the last taken around the circle."""
    apart = first - second
    apart[-1] = (apart[-1] + math.pi) % (2 * math.pi) - math.pi
    return float(np.square(apart).mean())


def fig_5_3(full: bool, advance: Advance) -> Study:
    """Vary the noise at three bounding factors."""
    dims, batch, repeats = (5000, 2048, 20) if full else (300, 64, 4)
    multipliers = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
    mean = gradients(batch, dims).mean(0)
    rng = np.random.default_rng(7)
    rows, charts = [], []
    for beta in (1.0, 0.1, 0.01):
        found = []
        for sigma in multipliers:
            found.append(errors(mean, sigma, batch, beta, repeats, rng))
            rows.append((beta, sigma, *(found[-1][key] for key in KEYS)))
            advance(len(rows) / 15)
        charts.append(
            Chart(
                f"fig-5-3-beta-{beta:g}",
                f"Direction, d = {dims:,}, B = {batch:,}, β = {beta:g}",
                "noise multiplier σ",
                "mean squared error of an angle (rad²)",
                [Series(label, multipliers, [one[key] for one in found]) for label, key in LINES.items()],
                log_x=True,
                log_y=True,
            )
        )
    better, sound = (sum(row[place] < row[2] for row in rows) for place in (3, 4))
    return Study(
        "Figures 5.1 and 5.3(a-c): error of direction and gradient against the noise",
        "GeoDP keeps directions better than DP in most settings; with a smaller β it keeps gradients better, too.",
        f"GeoDP's direction is better than DP's in {better} of {len(rows)} settings as printed, and in {sound} with "
        "noise that follows what one example can do. At β = 0.1 the printed clipping alone moves "
        f"{outside(mean, 0.1):.0%} of the angles: in many dimensions they lie near π/2, and it keeps those above "
        "(1 - β) π.",
        ("β", "σ", *KEYS),
        rows,
        {"dims": dims, "batch": batch, "repeats": repeats, "clip": CLIP},
        charts,
    )


def fig_5_4(full: bool, advance: Advance) -> Study:
    """Vary the bounding factor."""
    dims, batch, repeats = (10_000, 4096, 20) if full else (300, 64, 4)
    sigma, betas = 8.0, (0.01, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
    mean = gradients(batch, dims).mean(0)
    rng = np.random.default_rng(8)
    found = []
    for beta in betas:
        found.append(errors(mean, sigma, batch, beta, repeats, rng))
        advance(len(found) / len(betas))
    rows = [(beta, *(one[key] for key in KEYS)) for beta, one in zip(betas, found, strict=True)]
    chart = Chart(
        "fig-5-4",
        f"Direction against the bounding factor, d = {dims:,}, B = {batch:,}, σ = {sigma:g}",
        "bounding factor β",
        "mean squared error of an angle (rad²)",
        [Series(label, betas, [one[key] for one in found]) for label, key in LINES.items()],
        log_y=True,
    )
    printed, sound = ([row[0] for row in rows if row[place] < row[1]] for place in (2, 3))
    return Study(
        "Figure 5.4: the bounding factor",
        "There is always a bounding factor at which GeoDP beats DP in direction and gradient.",
        f"GeoDP's direction is better than DP's for {_listed(printed)} as printed, for {_listed(sound)} when sound.",
        ("β", *KEYS),
        rows,
        {"dims": dims, "batch": batch, "sigma": sigma, "repeats": repeats, "clip": CLIP},
        [chart],
    )


def _listed(betas: list[float]) -> str:
    return "no β" if not betas else "β = " + ", ".join(f"{beta:g}" for beta in betas)
