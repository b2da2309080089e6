"""Type III: three users train, perturb what they learned, and a server averages it every epoch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.utils.data import DataLoader, TensorDataset

from experiments.frame import Advance, Study, remember
from experiments.tensor import learning
from experiments.tensor.features import better
from experiments.tensor.learning import SEED
from experiments.tldp.data import COLUMNS, NAMES, charts, levels, model_of
from experiments.tldp.ways import DELTA, LEVELS, OURS, TLDP, Way, ways
from noisette import datasets
from noisette.sgd import make_private

USERS = 3
_ROWS = 10  # MVG needs a matrix: so many rows, the last column filled up
_DESCENTS: dict[str, dict[str, Any]] = {
    "LLAGP": {"clip": "per-layer", "perturb": "layered"},
    "DPHSGD": {"clip": "curvature"},
    "ours, example": {"clip": 1.0},
}


@dataclass(frozen=True, eq=False)
class Shared:
    """What three users learn together."""

    name: str
    parts: tuple[TensorDataset, ...]
    test: TensorDataset
    build: Callable[[], nn.Sequential]
    rounds: int
    rate: float = 3e-3


def _sizes(full: bool) -> tuple[int, int, int]:
    """Return examples of a user, examples to be judged by, and rounds."""
    return (300, 1_000, 3) if full else (100, 200, 1)


def shared(full: bool) -> Iterator[Shared]:
    """Yield the five data sets, the training examples in three parts."""
    own, judged, rounds = _sizes(full)
    sizes = (own,) * USERS
    for name in ("mnist", "cifar10", learning.house_numbers(full)):
        *parts, test = learning.pictures(name, (*sizes, judged))
        _, channels, side, _ = test.tensors[0].shape
        yield Shared(NAMES[name], tuple(parts), test, lambda c=channels, s=side: model_of(c, s), rounds)
    words = 500 if full else 100
    _, *parts, test = learning.reviews((own, *sizes, judged), words)
    yield Shared("IMDB", tuple(parts), test, lambda: learning.bag(words, 16), rounds, 2e-2)
    yield darknet(full)


def darknet(full: bool) -> Shared:
    """Return the Darknet sample with a model of one hidden layer."""
    own, judged, rounds = _sizes(full)
    flows, kinds = _flows()
    *parts, test = learning.rows(flows, kinds, (own,) * USERS + (judged,))
    count, width = int(kinds.max()) + 1, flows.shape[1]

    def build() -> nn.Sequential:
        return nn.Sequential(nn.Linear(width, 32), nn.Tanh(), nn.Linear(32, count))

    return Shared("Darknet", tuple(parts), test, build, rounds)


def _flows() -> tuple[Any, Any]:
    """Return the flows of the Darknet sample, numbers by their logarithms, and the kind of traffic."""
    table = datasets.table("darknet")
    names = [name for name in table.column_names if name not in ("orig_row", "app_label", "Label")]
    values = np.stack([table[name].to_numpy().astype(float) for name in names], axis=1)
    _, kinds = np.unique(np.asarray(table["Label"].to_pylist()), return_inverse=True)
    return np.sign(values) * np.log1p(np.abs(np.nan_to_num(values))), kinds


def federated(task: Shared, way: Way | None) -> float:
    """Average the users' perturbed parameters, cut at 1, every epoch; return the weighted F1 of the last average."""
    model = learning.seeded(task.build)
    for turn in range(task.rounds):
        sent = []
        for user, part in enumerate(task.parts):
            own = copy.deepcopy(model)
            learning.train(own, part, epochs=1, rate=task.rate, batch=16, seed=SEED + turn)
            learned = parameters_to_vector(own.parameters()).detach().nan_to_num().clamp(-1, 1)
            sent.append(learned if way is None else _perturbed(learned, way, SEED + 10 * turn + user))
        vector_to_parameters(torch.stack(sent).mean(0), model.parameters())
    return learning.weighted_f1(learning.outputs(model, task.test.tensors[0]), task.test.tensors[1])


def _perturbed(learned: torch.Tensor, way: Way, seed: int) -> torch.Tensor:
    padded = functional.pad(learned, (0, -len(learned) % _ROWS)).reshape(_ROWS, -1)
    half = (LEVELS - 1) / 2
    reports = way.release(levels(padded)[None], seed)[0] / half - 1
    return torch.from_numpy(reports.reshape(-1)[: len(learned)]).to(learned)


def descended(task: Shared, epsilon: float, options: dict[str, Any]) -> float:
    """Train by private gradient descent at every user, average every epoch; (epsilon, 1e-5) for a user's example."""
    models = [learning.seeded(task.build) for _ in task.parts]
    runs = []
    for user, (model, part) in enumerate(zip(models, task.parts, strict=True)):
        optimizer = torch.optim.Adam(model.parameters(), lr=task.rate)
        loader = DataLoader(part, batch_size=32)
        target = (epsilon, DELTA)
        runs.append(
            make_private(model, optimizer, loader, target=target, epochs=task.rounds, rng=SEED + user, **options)
        )
    for _ in range(task.rounds):
        for run in runs:
            run.model.train()
            for inputs, targets in run.loader:
                run.optimizer.zero_grad()
                functional.cross_entropy(run.model(inputs), targets).backward()
                run.optimizer.step()
        with torch.no_grad():
            mean = torch.stack([parameters_to_vector(model.parameters()) for model in models]).mean(0)
            for model in models:
                vector_to_parameters(mean, model.parameters())
    for run in runs:
        run.optimizer.recorder.remove()
    return learning.weighted_f1(learning.outputs(models[0], task.test.tensors[0]), task.test.tensors[1])


def rows_of(task: Shared, claims: Sequence[float], descents: Sequence[float]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of one data set; private descent only at the epsilons where it can be calibrated."""
    count = sum(parameter.numel() for parameter in learning.seeded(task.build).parameters())
    dims = (_ROWS, -(-count // _ROWS))
    clean = remember((task.name, "no noise"), lambda: federated(task, None))
    yield (task.name, "no noise", None, None, None, 0.0, clean)
    for claimed in claims:
        for way in ways(claimed, dims, times=task.rounds):
            std = way.std / ((LEVELS - 1) / 2)
            score = remember((task.name, way.label, claimed), partial(federated, task, way))
            yield (task.name, way.label, claimed, way.record, way.element, std, score)
    for claimed in descents:
        for label, options in _DESCENTS.items():
            score = remember((task.name, label, claimed), partial(descended, task, claimed, options))
            yield (task.name, label, claimed, claimed, None, None, score)


def type_3(full: bool, advance: Advance) -> Study:
    """Perturbed parameters."""
    claims, descents = ((1e2, 1e3, 1e4), (1.0, 10.0, 100.0)) if full else ((1e3,), (10.0,))
    rows: list[tuple[Any, ...]] = []
    for place, task in enumerate(shared(full)):
        for number, line in enumerate(rows_of(task, claims, descents)):
            rows.append(line)
            advance((place + number / (9 * len(claims) + 3 * len(descents) + 1)) / 5)
    truth = [line[3] / line[2] for line in rows if line[1] in TLDP]
    beside, count = better(rows, OURS[1], TLDP[0])
    entry, _ = better(rows, OURS[2], TLDP[0])
    clean = {line[0]: line[-1] for line in rows if line[1] == "no noise"}
    reached = {data: max(line[-1] for line in rows if line[0] == data and line[1] == "ours, example") for data in clean}
    return Study(
        "Type III: perturbed parameters are averaged every epoch (Figure 3)",
        "Methods become comparable when epsilon exceeds 100. TLDP is best, LLAGP comes near it on SVHN, IMDB and "
        "Darknet, DPHSGD on Darknet; Laplace, Gaussian, MVG and IDN stay low.",
        f"The true epsilon of what one user sends in the run is {min(truth):,.0f} to {max(truth):,.0f} times TLDP's "
        f"claimed one. Gaussian noise at TLDP-L's true guarantee scores above it at {beside} of {count} points, "
        f"the best mechanism for an entry at {entry}. "
        "Private descent protects an example of a user, not all that the user holds, and needs far less epsilon for "
        f"it: at epsilon {max(descents):g} or less `make_private` reaches "
        + ", ".join(f"{reached[data]:.2f} on {data} ({clean[data]:.2f} without noise)" for data in clean)
        + ". Its rows, LLAGP's and DPHSGD's have that unit; all others have the user's whole model for the record.",
        COLUMNS,
        rows,
        {
            "users": USERS,
            "examples of a user": _sizes(full)[0],
            "rounds": _sizes(full)[2],
            "delta": DELTA,
            "levels": LEVELS,
            "seed": SEED,
            "noise std": "in units of a parameter",
        },
        charts("type-3", rows, tuple(_DESCENTS)),
    )
