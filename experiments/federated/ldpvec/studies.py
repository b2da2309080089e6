"""Figures 6.2 and 6.3 and Table 6.4 of Duan 2024."""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import pad

import noisette as nz
from experiments.federated.ldpvec.descent import Descent, Logistic, Network, Perceptron, Task, Teller, clipped, descend
from experiments.federated.simulation import Vector, clients
from experiments.frame import Advance, Chart, Series, Study, remember
from noisette.accounting import compose
from noisette.guarantees import PrivacyWarning, gaussian_epsilon, gaussian_mu

_DELTA = 1e-5
_SEED = 1
_NOISES = ("laplace", "piecewise", "gaussian")
_EVERY, _LAST, _WHOLE = "last gradient, all clipped", "last gradient, it alone clipped", "whole update"


@dataclass(frozen=True)
class Way:
    """A run with noise: its budget a round, what is told and how, and the epsilon that holds for all rounds."""

    epsilon: float
    label: str
    private: str
    tell: Teller
    true: float


def gaussian(epsilon: float, dims: int) -> nz.TensorGaussian:
    """Return Gaussian noise on a vector of length one at most."""
    return nz.TensorGaussian(nz.TensorBall((dims,)), epsilon=epsilon, delta=_DELTA)


def numbers(noise: str, epsilon: float, dims: int, *, wide: bool) -> Teller:
    """Tell each coordinate by itself, with a share of the budget; Gaussian noise is on the vector.

    The ``wide`` range is that of section 6.1.4 of the thesis, which lets a coordinate of a gradient clipped to C be
    anywhere in [-C, C]: the L1 sensitivity is C' = 2 C d. Section 6.1.2 multiplies the gradient by sqrt(d) / C and adds
    noise made for [-1, 1], which has 1 / sqrt(d) of the size; we clip what is outside, so that the noise is enough.
    """
    if noise == "gaussian":
        whole = gaussian(epsilon, dims)
        return lambda rows, rng: np.asarray(whole.privatize(rows, rng=rng).mean(axis=0))
    reach = 1.0 if wide else 1 / math.sqrt(dims)
    one = nz.CATALOGUE[noise](epsilon=epsilon / dims, domain=nz.Interval(-reach, reach))

    def tell(rows: Vector, rng: np.random.Generator) -> Vector:
        sent = one.privatize(rows.reshape(-1), clip=True, rng=rng)  # a coordinate has a share of the budget each
        return np.asarray(sent.reshape(rows.shape).mean(axis=0))

    return tell


def angles(noise: str, epsilon: float, dims: int, beta: float = 1.0) -> Teller:
    """Tell the angles as Algorithm 6 does, and the length as it is."""
    options: dict[str, Any] = {"noise": noise, "beta": beta, "delta": _DELTA if noise == "gaussian" else 0.0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        mechanism = nz.AngleNoise(epsilon, dims, as_published=True, **options)
    return lambda rows, rng: np.asarray(mechanism.decode(mechanism.privatize(rows, rng=rng)).mean(axis=0))


def direction(epsilon: float, dims: int) -> Teller:
    """Tell the direction by PrivUnitG."""
    mechanism = nz.PrivUnitG(epsilon, dims)

    def tell(rows: Vector, rng: np.random.Generator) -> Vector:
        units = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
        return np.asarray(mechanism.privatize(units, rng=rng).mean(axis=0))

    return tell


def composed(label: str, epsilon: float, dims: int, rounds: int) -> float:
    """Return the epsilon that holds for all that a device says in the rounds of a run with the whole update private."""
    mechanism = nz.PrivUnitG(epsilon, dims) if label == "privunit-g" else gaussian(epsilon, dims)
    return compose(mechanism, rounds, delta=_DELTA).epsilon


def published_epsilon(noise: str, epsilon: float, dims: int, plan: Descent, *, wide: bool) -> float:
    """Return the epsilon that holds for all rounds of a device that clips every gradient and tells the last one.

    Only the perturbed model leaves, and it moves by `Descent.reach` times as much as the last gradient in it. Gaussian
    noise: mu of the gradient times the reach, squares added over rounds. Laplace: a vector of length 2 has an L1 norm
    of 2 sqrt(d), where the noise is made for 2 d (``wide``) or 2 sqrt(d). Piecewise reports have a bounded range
    that moves with the model: nothing holds.
    """
    if noise == "gaussian":
        mu = gaussian_mu(epsilon, _DELTA) * math.sqrt(float(np.sum(plan.reach**2)))
        return float(gaussian_epsilon(mu, _DELTA))
    if noise == "laplace":
        return epsilon * float(plan.reach.sum()) / (math.sqrt(dims) if wide else 1)
    return math.inf


def _ways(dims: int, epsilons: tuple[float, ...], beta: float, plan: Descent, alone: Collection[str]) -> Iterator[Way]:
    """Return all runs with noise: with both calibrations and readings of the thesis, and with the update private.

    ``alone`` names those that are run with only the last gradient clipped, too.
    """
    for epsilon in epsilons:
        for noise in _NOISES:
            told = {
                "numbers": (
                    numbers(noise, epsilon, dims, wide=True),
                    published_epsilon(noise, epsilon, dims, plan, wide=True),
                ),
                "angles": (angles(noise, epsilon, dims, beta), math.inf),
            }
            for kind, (tell, finite) in told.items():
                label = f"{noise}, {kind}"
                yield Way(epsilon, label, _EVERY, tell, finite)
                if label in alone:
                    yield Way(epsilon, label, _LAST, tell, math.inf)
            if noise != "gaussian":
                tell = numbers(noise, epsilon, dims, wide=False)
                finite = published_epsilon(noise, epsilon, dims, plan, wide=False)
                yield Way(epsilon, f"{noise}, numbers in ±C/√d", _EVERY, tell, finite)
        whole = {
            "gaussian, numbers": numbers("gaussian", epsilon, dims, wide=True),
            "privunit-g": direction(epsilon, dims),
        }
        for label, tell in whole.items():
            yield Way(epsilon, label, _WHOLE, tell, composed(label, epsilon, dims, plan.rounds))


def _rows(
    task: Task,
    plan: Descent,
    dims: int,
    epsilons: tuple[float, ...],
    beta: float,
    advance: Advance,
    alone: Collection[str] = ("laplace, numbers",),
) -> tuple[tuple[float, float], list[list[Any]], dict[str, list[float]]]:
    """Run everything: without noise, plain and with every gradient clipped, and with noise."""
    clean = {"no noise": False, "no noise, every gradient clipped": True}
    curves: dict[str, list[float]] = {
        label: remember(label, partial(descend, task, plan, None, whole=True, seed=_SEED, every=every))
        for label, every in clean.items()
    }
    ways = list(_ways(dims, epsilons, beta, plan, alone))
    rows: list[list[Any]] = []
    for place, way in enumerate(ways):
        label = f"{way.label}, {way.private}, ε = {way.epsilon:g}"
        which = {"whole": way.private == _WHOLE, "every": way.private == _EVERY}
        curves[label] = scores = remember(label, partial(descend, task, plan, way.tell, **which, seed=_SEED))
        true = f"{way.true:.4g}" if math.isfinite(way.true) else "none"
        rows.append([way.epsilon, way.label, way.private, scores[-1], true])
        advance((place + 1) / len(ways))
    plain, clipped = (scores[-1] for label, scores in curves.items() if label.startswith("no noise"))
    return (plain, clipped), rows, curves


def _ends(rows: Sequence[Sequence[Any]], private: str, kind: str) -> list[float]:
    """Return how the runs of one kind end."""
    return [float(row[3]) for row in rows if row[2] == private and row[1].endswith(kind)]


def far_better(angle: float, number: float, clean: float) -> bool:
    """Say whether noise on numbers fails, by 5 % of the clean loss or more, and noise on angles by less than half."""
    return number > 1.05 * clean and angle - clean < (number - clean) / 2


def _loss_finding(clean: tuple[float, float], rows: list[list[Any]], classes: int) -> str:
    """Say how far from training without noise each kind of run ends, at the least budget.

    Where that training ends within a twentieth of the loss of guessing, to come close to it is no success.
    """
    guess = math.log(classes)
    begun = clean[1] < 0.95 * guess
    least = min(row[0] for row in rows)
    ends = {(row[1], row[2]): float(row[3]) for row in rows if row[0] == least}
    said = [
        f"Without noise the loss is {clean[1]:.3f} with every gradient clipped, {clean[0]:.3f} with none clipped. At "
        f"epsilon {least:g} a round, every gradient clipped, numbers by section 6.1.4 against angles:"
    ]
    pairs = {noise: [ends[f"{noise}, {kind}", _EVERY] for kind in ("numbers", "angles")] for noise in _NOISES}
    said.append("; ".join(f"{noise} {own[0]:.3f} against {own[1]:.3f}" for noise, own in pairs.items()) + ".")
    ahead = [noise for noise, (number, angle) in pairs.items() if far_better(angle, number, clean[1])]
    level = [noise for noise in pairs if noise not in ahead]
    if ahead and begun:
        said.append(f"So the claim is reproduced for {' and '.join(ahead)}: there angles are far better.")
    if level and begun:
        said.append(f"It is not reproduced for {' and '.join(level)}.")
    if not begun:
        said.append(
            f"Guessing has {guess:.3f}, so that training has hardly begun with every gradient clipped. Numbers fail "
            f"for {' and '.join(ahead) or 'no mechanism'}; whether angles come close to training without noise is too "
            "small to judge."
        )
    even = {noise: ends[f"{noise}, numbers in ±C/√d", _EVERY] for noise in _NOISES[:2]}
    still = [noise for noise, end in even.items() if far_better(pairs[noise][1], end, clean[1])]
    told = "the claim is reproduced" if begun else "they fail"
    said.append(
        "That section lets each coordinate be as large as the whole gradient. By section 6.1.2, whose noise is for "
        "coordinates in ±C/√d, numbers end at "
        + " and ".join(f"{end:.3f} ({noise})" for noise, end in even.items())
        + f", and {told} for {' and '.join(still) or 'neither'}. The noise hides the last gradient of "
        "a round; the last column has the epsilon that holds for all that leaves a device, none for angles, whose "
        "length is told as it is."
    )
    best = min((row for row in rows if row[2] == _WHOLE), key=lambda row: float(row[3]))
    said.append(
        f"With the whole update private the best is {best[1]} with {best[3]:.3f} at epsilon {best[0]:g} a round, "
        f"{best[4]} in all."
    )
    return " ".join(said)


def _chart(name: str, title: str, y: str, curves: dict[str, list[float]], epsilon: float) -> Chart:
    kept = {
        label: scores
        for label, scores in curves.items()
        if label.startswith("no noise") or label.endswith(f"= {epsilon:g}")
    }
    series = [
        Series(
            label.rpartition(", ε")[0] or label, list(range(1, len(y_) + 1)), y_, predicted=label.startswith("no noise")
        )
        for label, y_ in kept.items()
    ]
    return Chart(name, title, "round", y, series)


def _logistic(
    title: str, claim: str, devices: int, plan: Descent, epsilons: tuple[float, ...], chart: str, advance: Advance
) -> Study:
    """Run a panel of Figure 6.2."""
    people = clients("mnist", devices, examples=120 * devices, tests=2000, seed=_SEED, classes=2)
    clean, rows, curves = _rows(Logistic(people), plan, 785, epsilons, 1.0, advance)
    drawn = f"Logistic regression on MNIST, {devices} devices, ε = {epsilons[-1]:g} a round"
    return Study(
        title,
        claim,
        _loss_finding(clean, rows, 2),
        ["ε a round", "mechanism", "what is private", "test loss", _TRUE],
        rows,
        _setting(devices, plan, 785),
        [_chart(chart, drawn, "test loss", curves, epsilons[-1])],
    )


def fig_6_2(full: bool, advance: Advance) -> Study:
    """Loss of logistic regression on MNIST, two digits a device."""
    devices, plan = (500, Descent(25, 20, 0.1, update=0.5)) if full else (20, Descent(3, 5, 0.1, update=0.5))
    return _logistic(
        "Figure 6.2: logistic regression on MNIST",
        "LDPVec comes close to training without noise at every budget; noise on numbers fails to converge, most of all "
        "Laplace and Piecewise.",
        *(devices, plan, (1.5, 4.9, 15.3) if full else (15.3,), "fig-6-2", advance),
    )


def fig_6_2_limit(full: bool, advance: Advance) -> Study:
    """Loss of the same regression with five devices that report after every second step."""
    return _logistic(
        "Figure 6.2, (j) and (k): five devices, two steps a round",
        "With noise on numbers it cannot converge; LDPVec converges later, and to nearly the loss without noise.",
        *(5, Descent(250 if full else 5, 2, 0.1, update=0.5), (15.3,), "fig-6-2-limit", advance),
    )


_TRUE = "true ε, all rounds"
NOTABLE = 3.0  # points of accuracy; a difference of less is left to chance, as there is one seed


def _setting(devices: int, plan: Descent, dims: int) -> dict[str, object]:
    sizes = {"devices": devices, "rounds": plan.rounds, "steps a round": plan.steps, "batch": 32}
    return sizes | {"first step": plan.rate, "weights": dims, "delta": _DELTA}


def perceptron(hidden: int) -> nn.Sequential:
    """Return the network of Table 6.2: 616,610 weights with 200 neurons."""
    return nn.Sequential(nn.Flatten(), nn.Linear(3072, hidden), nn.Tanh(), nn.Linear(hidden, 10))


def fig_6_3(full: bool, advance: Advance) -> Study:
    """Loss of a perceptron with a hidden layer on CIFAR-10, two classes a device."""
    devices, hidden = (20, 200) if full else (4, 5)
    plan = Descent(10, 50, 0.1) if full else Descent(2, 2, 0.1)
    people = clients("cifar10", devices, examples=100 * devices, tests=2000, seed=_SEED, classes=2)
    model = perceptron(hidden)
    dims = sum(parameter.numel() for parameter in model.parameters())
    clean, rows, curves = _rows(Perceptron(people, model, loss=True), plan, dims, (48.5,), 1.0, advance)
    return Study(
        "Figure 6.3: a perceptron on CIFAR-10",
        "At epsilon 48.5 a round LDPVec comes close to training without noise, and noise on numbers may fail.",
        _loss_finding(clean, rows, 10),
        ["ε a round", "mechanism", "what is private", "test loss", _TRUE],
        rows,
        _setting(devices, plan, dims),
        [_chart("fig-6-3", "Perceptron on CIFAR-10, ε = 48.5 a round", "test loss", curves, 48.5)],
    )


_CLAIMED = {
    (15.3, "laplace, numbers"): 43.3,
    (15.3, "piecewise, numbers"): 44.9,
    (15.3, "gaussian, numbers"): 71.3,
    (15.3, "laplace, angles"): 72.1,
    (15.3, "piecewise, angles"): 76.3,
    (15.3, "gaussian, angles"): 88.4,
    (48.5, "laplace, numbers"): 48.2,
    (48.5, "piecewise, numbers"): 51.4,
    (48.5, "gaussian, numbers"): 77.3,
    (48.5, "laplace, angles"): 75.6,
    (48.5, "piecewise, angles"): 79.6,
    (48.5, "gaussian, angles"): 91.7,
}


_PRINTED = [[epsilon, way, _EVERY, accuracy] for (epsilon, way), accuracy in _CLAIMED.items()]  # as rows


def _leads(rows: Sequence[Sequence[Any]], private: str) -> dict[str, float]:
    """Return by how many points noise on angles ends above noise on numbers, on average."""
    ends = {noise: [_ends(rows, private, f"{noise}, {kind}") for kind in ("angles", "numbers")] for noise in _NOISES}
    return {noise: float(np.mean(own[0]) - np.mean(own[1])) for noise, own in ends.items() if all(own)}


def _accuracy_finding(clean: tuple[float, float], rows: Sequence[Sequence[Any]], few: str) -> str:
    """Say where each kind of run of Table 6.4 ends, and where angles are above numbers."""
    said = [f"Without noise {clean[1]:.1f} % with every gradient clipped, {clean[0]:.1f} % with none clipped."]
    kinds = {
        "numbers by section 6.1.4": (_EVERY, "numbers"),
        "numbers by section 6.1.2": (_EVERY, "numbers in ±C/√d"),
        "angles": (_EVERY, "angles"),
        "numbers by section 6.1.4 with the last gradient alone clipped": (_LAST, "numbers"),
        "angles with the last gradient alone clipped": (_LAST, "angles"),
        "the whole update": (_WHOLE, ""),
    }
    for kind, (private, end) in kinds.items():
        if own := _ends(rows, private, end):
            said.append(f"Noise on {kind}: {min(own):.1f} to {max(own):.1f} %.")
    printed = ", ".join(f"{noise} {lead:.1f}" for noise, lead in _leads(_PRINTED, _EVERY).items())
    said.append(f"In the thesis angles are above numbers by, in points: {printed}.")
    for what, private in (("every gradient", _EVERY), ("the last gradient alone", _LAST)):
        if leads := _leads(rows, private):
            ahead = [noise for noise, lead in leads.items() if lead > NOTABLE]
            said.append(
                f"With {what} clipped and section 6.1.4's calibration they are by "
                f"{', '.join(f'{noise} {lead:.1f}' for noise, lead in leads.items())}: the order is reproduced for "
                f"{' and '.join(ahead) or 'none'}."
            )
    best = max((row for row in rows if row[2] == _WHOLE), key=lambda row: float(row[3]))
    said.append(
        f"Best with the whole update private is {best[1]} at epsilon {best[0]:g} a round, {best[4]} in all: {few}"
    )
    return " ".join(said)


def table_6_4(full: bool, advance: Advance) -> Study:
    """Accuracy of a convolutional network, two digits a device."""
    devices, plan = (100, Descent(12, 20, 0.5, update=0.5)) if full else (10, Descent(2, 2, 0.5, update=0.5))
    people = clients("mnist", devices, examples=200 * devices, tests=2000, seed=_SEED, classes=2)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 5, 3), nn.ReLU(), nn.Conv2d(8, 16, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10)
    )
    dims = sum(parameter.numel() for parameter in model.parameters())
    epsilons = (15.3, 48.5) if full else (15.3,)
    alone = {way for _, way in _CLAIMED} if full else ("laplace, numbers",)
    clean, rows, curves = _rows(Network(people, model), plan, dims, epsilons, 0.05, advance, alone)
    shown = [[*row[:3], _CLAIMED.get((row[0], row[1])) if row[2] != _WHOLE else None, *row[3:]] for row in rows]
    return Study(
        "Table 6.4: a convolutional network on MNIST",
        "At epsilon 15.3 a round 43 to 71 % with noise on numbers, 72 to 88 % with LDPVec; 95 % without noise.",
        _accuracy_finding(clean, rows, f"{devices} devices are few for {dims:,} weights."),
        ["ε a round", "mechanism", "what is private", "thesis %", "obtained %", _TRUE],
        shown,
        _setting(devices, plan, dims) | {"β": 0.05},
        [_chart("table-6-4", "Convolutional network on MNIST, ε = 15.3 a round", "test accuracy, %", curves, 15.3)],
    )


class _Coloured(nn.Module):
    """Digits as images of three equal colours and 32 x 32 pixels, which is what the printed network takes."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return pad(images, (2, 2, 2, 2)).expand(*images.shape[:-3], 3, 32, 32)


def convolutional() -> nn.Sequential:
    """Return the network that Table 6.3 prints: 70,340 weights."""
    return nn.Sequential(
        _Coloured(), nn.Conv2d(3, 10, 5, 2, 2), nn.ReLU(), nn.Conv2d(10, 20, 5, 2, 2), nn.ReLU(),
        nn.Flatten(), nn.Linear(1280, 50), nn.ReLU(), nn.Linear(50, 10),
    )  # fmt: skip


def one_round(full: bool, advance: Advance) -> Study:
    """What is left of the devices' gradients in one round, with the thesis's own networks and numbers of devices."""
    scenes = {
        "Table 6.4": ("mnist", convolutional(), 1000 if full else 5, 0.05, (15.3, 48.5) if full else (15.3,)),
        "Figure 6.3": ("cifar10", perceptron(200 if full else 5), 500 if full else 5, 1.0, (48.5,)),
    }
    rows: list[list[Any]] = []
    for place, (item, (data, model, devices, beta, epsilons)) in enumerate(scenes.items()):
        people = clients(data, devices, examples=60 * devices if full else 600, tests=10, seed=_SEED, classes=2)
        task = Network(people, model)
        dims = task.start(_SEED).size
        tellers = {
            (epsilon, f"{noise}, {kind}"): tell
            for epsilon in epsilons
            for noise in _NOISES
            for kind, tell in (
                ("numbers", numbers(noise, epsilon, dims, wide=True)),
                ("angles", angles(noise, epsilon, dims, beta)),
            )
        }

        def share(done: float, place: int = place) -> None:
            advance((place + done) / len(scenes))

        told = remember(item, partial(_told, task, list(tellers.values()), share))
        rows += [[item, dims, devices, *key, *own] for key, own in zip(tellers, told, strict=True)]
    return Study(
        "One round at the thesis's size: what is left of the last gradient",
        "Noise on numbers hides the mean gradient of all devices; noise on angles keeps its direction.",
        _told_finding(rows),
        ["item", "weights", "devices", "ε a round", "mechanism", "error over C", "of it, nothing told", "cosine"],
        rows,
        {
            "gradients": "each device's at the first weights, on 32 of its images, clipped to C",
            "numbers": "by section 6.1.4",
            "β": "0.05 in Table 6.4, 1 in Figure 6.3",
        },
    )


def _told(task: Network, tellers: Sequence[Teller], advance: Advance) -> list[list[float]]:
    """Return for each teller: the length of its error on the mean clipped gradient, that of telling zero, the cosine.

    Devices come in small groups, for the gradients of all need not fit into memory.
    """
    rng, weights, devices = np.random.default_rng(_SEED), task.start(_SEED)[None], task.people.owned
    groups = [devices[start : start + _GROUP] for start in range(0, len(devices), _GROUP)]
    mean, said = np.zeros(weights.size), np.zeros((len(tellers), weights.size))
    for place, group in enumerate(groups):
        own = replace(task, people=replace(task.people, owned=group))
        gradients = clipped(own.gradients(weights, rng), _CLIP)
        mean += gradients.sum(axis=0) / len(devices)
        for total, tell in zip(said, tellers, strict=True):
            total += tell(gradients, rng) * (len(group) / len(devices))
        advance((place + 1) / len(groups))
    length = float(np.linalg.norm(mean))
    return [
        [float(np.linalg.norm(own - mean)), length, float(own @ mean / (np.linalg.norm(own) * length))] for own in said
    ]


_GROUP = 20  # devices whose gradients are in memory together
_CLIP = 0.1  # the thesis's C


def _told_finding(rows: Sequence[Sequence[Any]]) -> str:
    """Say what reports by numbers and by angles keep of the gradient, and whether zero would be nearer."""
    said = []
    for item in dict.fromkeys(row[0] for row in rows):
        own = [row for row in rows if row[0] == item]
        kinds = {kind: [row for row in own if row[4].endswith(kind)] for kind in ("numbers", "angles")}
        away = {kind: [row[5] for row in part] for kind, part in kinds.items()}
        turned = ", ".join(f"{row[4].partition(',')[0]} {row[7]:.3f} at ε {row[3]:g}" for row in kinds["angles"])
        said.append(
            f"{item}, {own[0][1]:,} weights, {own[0][2]:,} devices: in units of C the mean gradient is told with an "
            f"error of {min(away['numbers']):.3g} to {max(away['numbers']):.3g} by numbers and "
            f"{min(away['angles']):.3g} to {max(away['angles']):.3g} by angles; telling zero would err by "
            f"{own[0][6]:.3g}, and {sum(row[5] < row[6] for row in own)} of {len(own)} do better than that. Angles "
            f"have a cosine with the truth of {turned}."
        )
    lost = [row for row in rows if row[4].endswith("angles") and abs(row[7]) < 5 / math.sqrt(row[1])]
    plain = [row for row in rows if row[4].endswith("angles") and row[7] > 0.9]
    said.append(
        f"A direction drawn at random has a cosine of about 1/√d; {len(lost)} of "
        f"{sum(row[4].endswith('angles') for row in rows)} rows of angles have less than five times that, and have "
        "lost the direction. Angles do far less harm than numbers, as the thesis says, but there because a report is "
        "never longer than C, whatever the noise: the clean steps before it train the model."
    )
    if plain:
        said.append(
            f"{len(plain)} with a cosine above 0.9 hide nothing: Algorithm 6 multiplies Piecewise noise of the whole ε "
            "by the sensitivity, and that noise falls as exp(-ε/2)."
        )
    return " ".join(said)
