"""Figures 5.1, 5.3 and 5.4: how far noise moves a gradient and its direction."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
import torch
from torch.nn import functional

from experiments.frame import Advance, Chart, Series, Study
from experiments.geodp.training import loaded
from noisette.accounting.conversions import gdp_epsilon
from noisette.mechanisms.geometric.spherical import from_spherical, to_spherical
from noisette.sgd import zoo
from noisette.sgd.training import tensors

CLIP = 0.1  # the thesis's C
BETAS = (1.0, 0.1, 0.01)
WAYS = ("DP", "printed", "around π/2", "unclipped", "sound")
KEYS = tuple(f"{way} {what}" for what in ("angle", "gradient") for way in WAYS)
LINES = {
    "DP": "DP",
    "GeoDP as printed": "printed",
    "GeoDP, range around π/2": "around π/2",
    "GeoDP, no angle clipped": "unclipped",
    "GeoDP, sound": "sound",
}
DELTA = 1e-5
SIGMA = 8.0
REPEATS = 100
SIGMAS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
FULL = ((500, 1000, 2000, 5000, 10_000, 20_000), (512, 1024, 2048, 4096, 8192, 16_384))
SMALL = ((100, 300), (32, 64))


@lru_cache(maxsize=2)
def means(dims: Sequence[int], batches: Sequence[int]) -> dict[tuple[int, int], np.ndarray]:
    """Return mean clipped gradients of single images, from training a CNN on CIFAR-10 with batches of one.

    They are collected for each number of dimensions, drawn at random and clipped there, and each number of images.
    """
    torch.manual_seed(5)
    train, _ = tensors(loaded("cifar10"), limit=max(batches))
    model = zoo.cnn(3, 32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    drawn = np.random.default_rng(6).permutation(sum(parameter.numel() for parameter in model.parameters()))
    chosen = {size: torch.from_numpy(np.sort(drawn[:size])) for size in dims}
    sums = {size: np.zeros(size) for size in dims}
    made = {}
    for count, (image, label) in enumerate(zip(*train.tensors, strict=True), 1):
        optimizer.zero_grad()
        functional.cross_entropy(model(image[None]), label[None]).backward()
        whole = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
        for size, places in chosen.items():
            part = whole[places].double().numpy()
            sums[size] += part * min(1.0, CLIP / max(np.linalg.norm(part), 1e-300))
            if count in batches:
                made[size, count] = sums[size] / count
        optimizer.step()
    return made


def errors(
    mean: np.ndarray, sigma: float, batch: int, beta: float, repeats: int, rng: np.random.Generator
) -> dict[str, float]:
    """Return mean squared errors of direction (angles) and gradient: plain noise, and four forms of GeoDP.

    Plain noise is N(0, (C sigma / B)^2). GeoDP's angles get N(0, (reach sigma)^2) with reach sqrt(d+2) beta pi / B as
    printed, whether the range that is kept ends at pi, lies around pi/2, or happens to have all the gradient's own
    angles, as the proof of Lemma 6 takes it, so that none is clipped; sound noise follows the whole diameter,
    sqrt(d+2) beta pi, and both releases share the budget. GeoDP's error of direction is that of the perturbed angles,
    which Definition 7 has, or of the angles of the vector that is made of them, whichever is smaller.
    """
    magnitude, angles = to_spherical(mean)
    printed, around = (kept(angles, beta, low) for low in ((1 - beta) * math.pi, (1 - beta) * math.pi / 2))
    diameter = math.sqrt(mean.size + 2) * beta * math.pi
    forms = (
        ("printed", printed, diameter / batch, sigma),
        ("around π/2", around, diameter / batch, sigma),
        ("unclipped", angles, diameter / batch, sigma),
        ("sound", printed, diameter, sigma * math.sqrt(2)),
    )
    totals = dict.fromkeys(KEYS, 0.0)
    for _ in range(repeats):
        plain = mean + rng.normal(0, CLIP * sigma / batch, mean.size)
        totals["DP angle"] += _turn(to_spherical(plain)[1], angles)
        totals["DP gradient"] += float(np.square(plain - mean).mean())
        for name, centre, reach, spread in forms:
            turned = centre + rng.normal(0, reach * spread, centre.size)
            size = magnitude + rng.normal(0, CLIP * spread / batch)
            moved = from_spherical(size, turned)
            totals[f"{name} angle"] += min(_turn(own, angles) for own in (turned, to_spherical(moved)[1]))
            totals[f"{name} gradient"] += float(np.square(moved - mean).mean())
    return {name: total / repeats for name, total in totals.items()}


def kept(angles: np.ndarray, beta: float, low: float) -> np.ndarray:
    """Return angles clipped to a range of width beta pi above ``low``, the last to twice that around 0."""
    made = np.clip(angles, low, low + beta * math.pi)
    made[-1] = np.clip(angles[-1], -beta * math.pi, beta * math.pi)
    return made


def outside(mean: np.ndarray, beta: float) -> float:
    """Return the share of angles that the printed clipping moves, whatever the noise."""
    angles = to_spherical(mean)[1][:-1]
    return float((angles < (1 - beta) * math.pi).mean())


def _turn(first: np.ndarray, second: np.ndarray) -> float:
    """Return the mean square of the differences between angles, the last taken around the circle."""
    apart = first - second
    apart[-1] = (apart[-1] + math.pi) % (2 * math.pi) - math.pi
    return float(np.square(apart).mean())


Point = tuple[int, int, float, float]  # dimensions, batch, noise multiplier, bounding factor
COLUMNS = ("d", "B", "σ", "β", *KEYS, "ε of DP and sound", "ε that holds as printed")


def _measured(points: Iterable[Point], full: bool, seed: int, advance: Advance) -> list[tuple[float, ...]]:
    """Return (d, B, sigma, beta, errors..., two epsilons of one release) for each point."""
    listed = list(points)
    collected = means(*(FULL if full else SMALL))
    rng = np.random.default_rng(seed)
    rows = []
    for dims, batch, sigma, beta in listed:
        found = errors(collected[dims, batch], sigma, batch, beta, REPEATS if full else 4, rng)
        holds = [gdp_epsilon(mu, DELTA) for mu in (1 / sigma, math.hypot(1, batch) / sigma)]
        rows.append((dims, batch, sigma, beta, *(found[key] for key in KEYS), *holds))
        advance(len(rows) / len(listed))
    return rows


def _length(mean: np.ndarray) -> float:
    """Return the length of a mean gradient, in units of the clipping norm."""
    return float(np.linalg.norm(mean)) / CLIP


def _chart(name: str, title: str, axis: str, rows: Sequence[tuple[float, ...]], place: int, *, log_x: bool) -> Chart:
    """Draw the errors of the direction, and dashed those of the gradient, against one column of the rows."""
    lines = []
    for what, dashed in (("angle", False), ("gradient", True)):
        for label, key in LINES.items():
            at = 4 + KEYS.index(f"{key} {what}")
            symbol = "θ" if what == "angle" else "g"
            lines.append(
                Series(f"{label}, {symbol}", [r[place] for r in rows], [r[at] for r in rows], predicted=dashed)
            )
    return Chart(name, title, axis, "mean squared error (θ in rad²)", lines, log_x=log_x, log_y=True)


def _better(rows: Sequence[tuple[float, ...]], key: str, what: str) -> int:
    """Return in how many rows a form of GeoDP has a smaller error than plain noise."""
    return sum(row[4 + KEYS.index(f"{key} {what}")] < row[4 + KEYS.index(f"DP {what}")] for row in rows)


def fig_5_3(full: bool, advance: Advance) -> Study:
    """Vary noise, dimensions and batch at three bounding factors."""
    dims, batches = FULL if full else SMALL
    middle_d, middle_b, d_b, b_d = (5000, 2048, 4096, 10_000) if full else (300, 64, 64, 300)
    panels = [
        ("abc", "σ", 2, [(middle_d, middle_b, sigma) for sigma in SIGMAS]),
        ("def", "dimensions d", 0, [(d, d_b, SIGMA) for d in dims]),
        ("ghi", "batch size B", 1, [(b_d, b, SIGMA) for b in batches]),
    ]
    points = [(*point, beta) for _, _, _, own in panels for beta in BETAS for point in own]
    rows = _measured(points, full, 7, advance)
    charts, start = [], 0
    for letters, axis, place, own in panels:
        for letter, beta in zip(letters, BETAS, strict=True):
            part = rows[start : start + len(own)]
            start += len(own)
            title = f"Figure 5.3({letter}): β = {beta:g}" + (" (and Figure 5.1)" if letter == "a" else "")
            charts.append(_chart(f"fig-5-3-{letter}", title, axis, part, place, log_x=True))
    counts = {key: (_better(rows, key, "angle"), _better(rows, key, "gradient")) for key in WAYS[1:]}
    narrow = {beta: [row for row in rows if row[3] == beta] for beta in BETAS}
    kind = ", ".join(
        f"{_better(own, 'unclipped', 'angle')} of {len(own)} at β = {beta:g}" for beta, own in narrow.items()
    )
    mean = means(dims, batches)[middle_d, middle_b]
    return Study(
        "Figures 5.1 and 5.3: error of direction and gradient",
        "GeoDP keeps directions better than DP in most settings, DP keeps gradients better; with a smaller β GeoDP "
        "keeps both better.",
        f"Of {len(rows)} settings GeoDP has the smaller error of direction and of the gradient: as printed in "
        f"{counts['printed'][0]} and {counts['printed'][1]}; with the printed noise on a range of the same width "
        f"around π/2 in {counts['around π/2'][0]} and {counts['around π/2'][1]}; with the printed noise and no angle "
        f"clipped in {counts['unclipped'][0]} and {counts['unclipped'][1]}, of the directions {kind}; with noise that "
        f"follows what one example can do, which is what the claim needs, in {counts['sound'][0]} and "
        f"{counts['sound'][1]}. At β = 0.1 (d = {middle_d:,}, B = {middle_b:,}) the printed clipping alone moves "
        f"{outside(mean, 0.1):.0%} of the angles: in many dimensions they lie near π/2, and it keeps those above "
        "(1 - β) π. No angle is clipped if the range, of the same width, lies around the gradient's own angles, which "
        "nobody knows beforehand: the proof of Lemma 6 takes it so, and it is the kindest reading. So is the error of "
        "direction, that of the perturbed angles, as in Definition 7, or of the angles of the vector made of them, "
        f"whichever is smaller. Mean gradients of {middle_d:,} entries have a length of {_length(mean):.2g} C here; "
        "shorter ones are kinder to GeoDP, and the thesis does not say how long its own are. All forms but the sound "
        "one divide by B, and hold only what the last column says; DP and the sound form hold the one before it, each "
        "for one release without sampling.",
        COLUMNS,
        rows,
        {"repeats": REPEATS if full else 4, "clip": CLIP, "images": max(batches), "delta": DELTA},
        charts,
    )


def fig_5_4(full: bool, advance: Advance) -> Study:
    """Vary the bounding factor."""
    scenes = {"a": (5000, 2048), "b": (10_000, 4096), "c": (10_000, 16_384)} if full else {"a": (300, 64)}
    betas = (0.01, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
    rows = _measured([(*scene, SIGMA, beta) for scene in scenes.values() for beta in betas], full, 8, advance)
    charts, found = [], []
    for place, (letter, (dims, batch)) in enumerate(scenes.items()):
        part = rows[place * len(betas) : (place + 1) * len(betas)]
        title = f"Figure 5.4({letter}): d = {dims:,}, B = {batch:,}, σ = {SIGMA:g}"
        charts.append(_chart(f"fig-5-4-{letter}", title, "bounding factor β", part, 3, log_x=False))
        good = [
            _listed([row[3] for row in part if _better([row], key, "angle") and _better([row], key, "gradient")])
            for key in WAYS[1:]
        ]
        found.append(
            f"({letter}) for {good[0]} as printed, {good[1]} on a range around π/2, {good[2]} with no angle clipped, "
            f"{good[3]} when sound"
        )
    return Study(
        "Figure 5.4: the bounding factor",
        "There is always a bounding factor at which GeoDP beats DP in direction and gradient.",
        f"GeoDP beats DP in both: {'; '.join(found)}. The first three are not the ε of DP: see the last two columns.",
        COLUMNS,
        rows,
        {
            "repeats": REPEATS if full else 4,
            "clip": CLIP,
            "delta": DELTA,
            "chosen by us": "d, B and σ of the three panels, which the thesis's text does not say",
        },
        charts,
    )


def _listed(betas: list[float]) -> str:
    return "no β" if not betas else "β = " + ", ".join(f"{beta:g}" for beta in betas)
