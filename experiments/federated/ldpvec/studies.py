"""Figures 6.2 and 6.3 and Table 6.4 of Duan 2024."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from torch import nn

import noisette as nz
from experiments.federated.ldpvec.descent import Descent, Logistic, Network, Task, Teller, descend
from experiments.federated.simulation import Vector, clients
from experiments.frame import Advance, Chart, Series, Study
from noisette.accounting import compose
from noisette.guarantees import PrivacyWarning

_DELTA = 1e-5
_SEED = 1
_NOISES = ("laplace", "piecewise", "gaussian")


def gaussian(epsilon: float, dims: int) -> nz.TensorGaussian:
    """Return Gaussian noise on a vector of length one at most."""
    return nz.TensorGaussian(nz.TensorBall((dims,)), epsilon=epsilon, delta=_DELTA)


def numbers(noise: str, epsilon: float, dims: int) -> Teller:
    """Tell each coordinate by itself, in the range of an even vector; Gaussian noise is on the vector."""
    if noise == "gaussian":
        whole = gaussian(epsilon, dims)
        return lambda rows, rng: np.asarray(whole.privatize(rows, rng=rng).mean(axis=0))
    reach = 1 / math.sqrt(dims)
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


def _rows(
    task: Task, plan: Descent, dims: int, epsilons: tuple[float, ...], beta: float, advance: Advance
) -> tuple[float, list[list[Any]], dict[str, list[float]]]:
    """Run everything: without noise, as published, and with the whole update private."""
    curves = {"no noise": descend(task, plan, None, whole=True, seed=_SEED)}
    ways: list[tuple[str, float, Teller, bool]] = []
    for epsilon in epsilons:
        for noise in _NOISES:
            ways.append((f"{noise}, numbers", epsilon, numbers(noise, epsilon, dims), False))
            ways.append((f"{noise}, angles", epsilon, angles(noise, epsilon, dims, beta), False))
        ways.append(("gaussian, numbers", epsilon, numbers("gaussian", epsilon, dims), True))
        ways.append(("privunit-g", epsilon, direction(epsilon, dims), True))
    rows: list[list[Any]] = []
    for place, (label, epsilon, tell, whole) in enumerate(ways):
        private = "whole update" if whole else "last gradient"
        scores = descend(task, plan, tell, whole=whole, seed=_SEED)
        curves[f"{label}, {private}, ε = {epsilon:g}"] = scores
        true = f"{composed(label, epsilon, dims, plan.rounds):.4g}" if whole else "none"
        rows.append([epsilon, label, private, scores[-1], true])
        advance((place + 1) / len(ways))
    return curves["no noise"][-1], rows, curves


def _loss_finding(clean: float, rows: list[list[Any]]) -> str:
    """Say how far from training without noise each kind of run ends."""
    parts = {"angles": "as published", "numbers": "as published"}
    said = [f"Without noise the loss is {clean:.3f}."]
    for kind, how in parts.items():
        own = [row[3] for row in rows if row[2] == "last gradient" and row[1].endswith(kind)]
        said.append(f"With noise on {kind}, {how}, it ends between {min(own):.3f} and {max(own):.3f}.")
    best = min((row for row in rows if row[2] == "whole update"), key=lambda row: float(row[3]))
    said.append(
        "Noise on angles can only turn one gradient of length 0.1 in a round whose other steps are not private at all. "
        f"With the whole update private the best is {best[1]} with {best[3]:.3f} at epsilon {best[0]:g} a round, "
        f"{best[4]} in all."
    )
    return " ".join(said)


def _chart(name: str, title: str, y: str, curves: dict[str, list[float]], epsilon: float) -> Chart:
    kept = {
        label: scores for label, scores in curves.items() if label == "no noise" or label.endswith(f"= {epsilon:g}")
    }
    series = [
        Series(label.rpartition(", ε")[0] or label, list(range(1, len(y_) + 1)), y_, predicted=label == "no noise")
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
        _loss_finding(clean, rows),
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


def _setting(devices: int, plan: Descent, dims: int) -> dict[str, object]:
    sizes = {"devices": devices, "rounds": plan.rounds, "steps a round": plan.steps, "batch": 32}
    return sizes | {"first step": plan.rate, "weights": dims, "delta": _DELTA}


def fig_6_3(full: bool, advance: Advance) -> Study:
    """Loss of a perceptron with a hidden layer on CIFAR-10, two classes a device."""
    devices, hidden = (10, 200) if full else (4, 5)
    plan = Descent(4, 10, 0.1) if full else Descent(2, 2, 0.1)
    people = clients("cifar10", devices, examples=200 * devices, tests=2000, seed=_SEED, classes=2)
    model = nn.Sequential(nn.Flatten(), nn.Linear(3072, hidden), nn.Tanh(), nn.Linear(hidden, 10))
    dims = sum(parameter.numel() for parameter in model.parameters())
    clean, rows, curves = _rows(Network(people, model, loss=True), plan, dims, (48.5,), 1.0, advance)
    return Study(
        "Figure 6.3: a perceptron on CIFAR-10",
        "At epsilon 48.5 a round LDPVec comes close to training without noise, and noise on numbers may fail.",
        _loss_finding(clean, rows),
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


def table_6_4(full: bool, advance: Advance) -> Study:
    """Accuracy of a convolutional network, two digits a device."""
    devices, plan = (100, Descent(12, 20, 0.5, update=0.5)) if full else (10, Descent(2, 2, 0.5, update=0.5))
    people = clients("mnist", devices, examples=200 * devices, tests=2000, seed=_SEED, classes=2)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 5, 3), nn.ReLU(), nn.Conv2d(8, 16, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10)
    )
    dims = sum(parameter.numel() for parameter in model.parameters())
    epsilons = (15.3, 48.5) if full else (15.3,)
    clean, rows, curves = _rows(Network(people, model), plan, dims, epsilons, 0.05, advance)
    shown = [
        [row[0], row[1], row[2], _CLAIMED.get((row[0], row[1])) if row[2] == "last gradient" else None, *row[3:]]
        for row in rows
    ]
    ends = {
        kind: [row[4] for row in shown if row[2] == private and row[1].endswith(end)]
        for kind, private, end in (
            ("numbers", "last gradient", "numbers"),
            ("angles", "last gradient", "angles"),
            ("whole", "whole update", ""),
        )
    }
    best = max((row for row in shown if row[2] == "whole update"), key=lambda row: float(row[4]))
    return Study(
        "Table 6.4: a convolutional network on MNIST",
        "At epsilon 15.3 a round 43 to 71 % with noise on numbers, 72 to 88 % with LDPVec; 95 % without noise.",
        f"Without noise {clean:.1f} %. As published, noise on numbers gives {min(ends['numbers']):.1f} to "
        f"{max(ends['numbers']):.1f} % and noise on angles {min(ends['angles']):.1f} to {max(ends['angles']):.1f} %: "
        "what these runs learn they learn from the steps that are not private. With the whole update private it is "
        f"{min(ends['whole']):.1f} to {max(ends['whole']):.1f} %, best by {best[1]} at epsilon {best[0]:g} a round, "
        f"{best[5]} in all: {devices} devices are few for {dims:,} weights.",
        ["ε a round", "mechanism", "what is private", "thesis %", "obtained %", _TRUE],
        shown,
        _setting(devices, plan, dims) | {"β": 0.05},
        [_chart("table-6-4", "Convolutional network on MNIST, ε = 15.3 a round", "test accuracy, %", curves, 15.3)],
    )
