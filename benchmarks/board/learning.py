"""Models trained under a budget: by one trusted machine, and across clients that trust nobody."""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from benchmarks.board import alone, data, evidence
from benchmarks.board.frame import AUTO, Cell, Evidence, Outcome, method
from noisette import datasets

CENTRAL, FEDERATED = "central learning", "federated learning"
DELTA = 1e-5
SEEDS = 2
MEASURE = "wrong answers on the test set, percent"


@lru_cache(maxsize=4)
def people(name: str) -> tuple[Any, Any, Any, Any]:
    """Return rows of length at most one and classes, to learn from and to judge by."""
    if name.endswith("digits") or name.endswith("clothes"):
        found = datasets.images("mnist" if name.endswith("digits") else "fashion-mnist")

        def pooled(pictures: Any) -> Any:
            rows = pictures.reshape(-1, 7, 4, 7, 4).mean(axis=(2, 4)).reshape(len(pictures), -1) / 255
            return _short(rows)

        return pooled(found.train[:20_000]), found.train_labels[:20_000], pooled(found.test), found.test_labels
    table = datasets.table("adult" if name[0] == "A" else "credit-fraud").to_pandas()
    if name[0] == "A":
        label = (table["income"].str.contains(">")).to_numpy().astype(int)
        numbers = table[["age", "education_num", "hours_per_week"]].to_numpy(float) / [90, 16, 100]
        columns = [numbers]
        for one in ("marital_status", "occupation", "sex", "relationship"):
            columns.append(np.eye(table[one].nunique())[table[one].astype("category").cat.codes])
        rows = np.concatenate(columns, axis=1)
    else:
        label = table["Class"].to_numpy().astype(int)
        rows = np.clip(table[[f"V{number}" for number in range(1, 29)]].to_numpy(float) / 10, -1, 1)
    order = np.random.default_rng(data.SEED).permutation(len(rows))
    rows, label = _short(rows[order]), label[order]
    cut = len(rows) * 4 // 5
    return rows[:cut], label[:cut], rows[cut:], label[cut:]


def _short(rows: Any) -> Any:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)


def cells() -> list[Cell]:
    """Four data sets for a trusted machine, two for clients."""
    central = [("Adult income", 1.0), ("card fraud", 1.0), ("MNIST digits", 2.0), ("Fashion-MNIST clothes", 2.0)]
    found = [_cell(CENTRAL, name, epsilon) for name, epsilon in central]
    return found + [_cell(FEDERATED, name, epsilon) for name, epsilon in (("MNIST digits", 8.0), ("Adult income", 8.0))]


def _cell(task: str, name: str, epsilon: float) -> Cell:
    source = "credit fraud" if name[0] == "c" else name.split()[0]
    return Cell(task, name, source, epsilon, partial(people, name), MEASURE, delta=DELTA)


def _sgd(cell: Cell, seed: int, **options: Any) -> tuple[float, Any]:
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    from noisette.sgd import make_private
    from noisette.sgd.training import fit

    rows, labels, test, truth = cell.load()
    torch.manual_seed(seed)
    tensors = [
        TensorDataset(torch.tensor(a).float(), torch.tensor(b).long()) for a, b in ((rows, labels), (test, truth))
    ]
    model = torch.nn.Linear(rows.shape[1], int(labels.max()) + 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=4.0, momentum=0.5)
    private = make_private(
        model,
        optimizer,
        DataLoader(tensors[0], batch_size=1000),
        target=(cell.epsilon, cell.delta),
        epochs=4,
        rng=seed,
        **options,
    )
    curve = fit(private, tensors[1], epochs=4)
    return 100 * (1 - curve[-1].accuracy), private.guarantee


def _central(cell: Cell, **options: Any) -> Outcome:
    began, found, stated = time.process_time(), [], None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(SEEDS):
            wrong, stated = _sgd(cell, seed, **options)
            found.append(wrong)
    seconds = (time.process_time() - began) / len(found)
    claim = stated.claim if stated is not None else None
    if claim is not None and not stated.claim_holds:
        words = f"claims ({claim.epsilon:g}, {claim.delta:g}); what holds is epsilon {stated.epsilon:.4g}"
        why = Evidence("refuted", words, float(stated.epsilon))
    else:
        why = evidence.accounted("privacy loss distributions of both directions, exact noise on a lattice")
    users = len(cell.load()[0])
    return Outcome(float(np.mean(found)), _scatter(found), len(found), users, 0.0, 1e6 * seconds / users, why)


def _scatter(found: list[float]) -> float:
    return float(np.std(found, ddof=1) / len(found) ** 0.5 / max(np.mean(found), 1e-9)) if len(found) > 1 else 0.0


method(CENTRAL, AUTO)(partial(_central))
method(CENTRAL, "clip='auto-s'", fits=lambda cell: True)(partial(_central, clip="auto-s"))
method(CENTRAL, "clip=0.3")(partial(_central, clip=0.3))
method(CENTRAL, "geodp", "papers")(partial(_central, perturb="geodp"))


@method(CENTRAL, "opacus", "opacus")
def opacus(cell: Cell) -> Outcome:
    """The same training by Opacus, with its own accountant's noise."""
    import torch
    from opacus import PrivacyEngine
    from torch.utils.data import DataLoader, TensorDataset

    rows, labels, test, truth = cell.load()
    found, began = [], time.process_time()
    for seed in range(SEEDS):
        torch.manual_seed(seed)
        model = torch.nn.Linear(rows.shape[1], int(labels.max()) + 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=4.0, momentum=0.5)
        loader = DataLoader(TensorDataset(torch.tensor(rows).float(), torch.tensor(labels).long()), batch_size=1000)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model, optimizer, loader = PrivacyEngine(accountant="prv").make_private_with_epsilon(
                module=model,
                optimizer=optimizer,
                data_loader=loader,
                target_epsilon=cell.epsilon,
                target_delta=cell.delta,
                epochs=4,
                max_grad_norm=1.0,
            )
            for _ in range(4):
                for inputs, targets in loader:
                    optimizer.zero_grad()
                    torch.nn.functional.cross_entropy(model(inputs), targets).backward()
                    optimizer.step()
            model.eval()
            with torch.no_grad():
                right = model(torch.tensor(test).float()).argmax(1).numpy() == truth
        found.append(100 * (1 - float(right.mean())))
    seconds = (time.process_time() - began) / len(found)
    why = Evidence("accounted", "by its own accountant (PRV); noise in floating point")
    return Outcome(float(np.mean(found)), _scatter(found), len(found), len(rows), 0.0, 1e6 * seconds / len(rows), why)


def _peer(cell: Cell, name: str) -> Outcome:
    rows, labels, test, truth = cell.load()
    joined = np.column_stack([np.concatenate([rows, test]), np.concatenate([labels, truth])])
    options = {"epsilon": cell.epsilon, "train": len(rows), "norm": 1.0, "low": -1.0, "high": 1.0, "most": 3}
    found, told = alone.ask(f"central diffprivlib {name}", joined, options)
    wrong = (100 * (1 - found)).tolist()
    why = Evidence("stated", "pure epsilon by its authors' statement; no audit of ours was run")
    return Outcome(float(np.mean(wrong)), _scatter(wrong), len(wrong), len(rows), 0.0, 1e6 * told["seconds"], why)


for _name in ("LogisticRegression", "GaussianNB"):
    method(
        CENTRAL,
        f"diffprivlib {_name}",
        "diffprivlib",
        fits=lambda cell: int(cell.load()[1].max()) < 2 or cell.epsilon > 0,
    )(partial(_peer, name=_name))

ROUNDS, CLIENTS, NORM = 8, 1000, 1.0


def _federated(cell: Cell, answer: Any, why: Any, sent: float, rounds: int = ROUNDS) -> Outcome:
    """Softmax regression: each round every client sends one private gradient of her own rows."""
    rows, labels, test, truth = cell.load()
    classes, dims = int(labels.max()) + 1, rows.shape[1]
    parts = np.array_split(np.random.default_rng(data.SEED).permutation(len(rows)), CLIENTS)
    found, began = [], time.process_time()
    for seed in range(SEEDS):
        weights = np.zeros((dims + 1, classes))
        momentum = np.zeros_like(weights)
        for number in range(rounds):
            updates = np.stack([_gradient(weights, rows[part], labels[part]) for part in parts])
            lengths = np.linalg.norm(updates, axis=1, keepdims=True)
            mean = answer(updates * np.minimum(1, NORM / np.maximum(lengths, 1e-12)), cell.rng(100 * seed + number))
            momentum = 0.5 * momentum + mean.reshape(weights.shape)
            weights = weights - 4.0 * momentum
        scores = np.column_stack([test, np.ones(len(test))]) @ weights
        found.append(100 * float(np.mean(scores.argmax(axis=1) != truth)))
    seconds = (time.process_time() - began) / len(found) / rounds
    return Outcome(float(np.mean(found)), _scatter(found), len(found), CLIENTS, sent, 1e6 * seconds / CLIENTS, why)


def _gradient(weights: Any, rows: Any, labels: Any) -> Any:
    inputs = np.column_stack([rows, np.ones(len(rows))])
    scores = inputs @ weights
    chances = np.exp(scores - scores.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    chances[np.arange(len(rows)), labels] -= 1
    return (inputs.T @ chances / len(rows)).reshape(-1)


def _channel(cell: Cell, name: str, rounds: int = ROUNDS) -> Outcome:
    from noisette.accounting import gdp_mu
    from noisette.federated import Aggregator, Channel, ModelLayout, Norm, Ranges
    from noisette.federated.families import family

    rows, labels, *_ = cell.load()
    dims = (rows.shape[1] + 1) * (int(labels.max()) + 1)
    layout = ModelLayout.of(np.zeros(dims))
    gaussian = name == "tensor-gaussian"
    answers = rounds * family(name).count(
        dims
    )  # a budget is that of one answer, of which some methods give one a weight
    spent = {"mu": gdp_mu(cell.epsilon, cell.delta) / answers**0.5} if gaussian else {"epsilon": cell.epsilon / answers}
    clip = Ranges(0.0, 3 * NORM / dims**0.5) if name in ("adaptive-duchi", "duchi-box") else Norm(NORM)
    channel = Channel(name, layout, clip, **spent)
    if not gaussian and rounds * channel.whole.guarantee.epsilon > cell.epsilon * (1 + 1e-9):
        raise ValueError(
            f"{name} spends {rounds * channel.whole.guarantee.epsilon:g}, not the {cell.epsilon:g} of the cell."
        )

    def answer(updates: Any, rng: np.random.Generator) -> Any:
        gathered = Aggregator(channel)
        for number, update in enumerate(updates):
            gathered.add(channel.privatize(update, rng=rng).payload, sender=number)
        return gathered.estimate().value

    own = evidence.of(channel.whole)
    how = "mu adds up in squares" if gaussian else "epsilons add up"
    why = Evidence(own.verdict, f"one round: {own.words}; {rounds} rounds: {how}", own.shown)
    sent = float(channel.privatize(np.zeros(dims), rng=1).payload.nbytes)
    return _federated(cell, answer, why, sent, rounds)


for _name in ("tensor-gaussian", "privunit-g", "privunit", "fast-projunit", "adaptive-duchi", "duchi-box"):
    method(FEDERATED, _name)(partial(_channel, name=_name))
    method(FEDERATED, f"{_name}, one round")(partial(_channel, name=_name, rounds=1))


@method(FEDERATED, AUTO)
def auto(cell: Cell) -> Outcome:
    """What `noisette federate` takes by itself for updates of bounded length."""
    from noisette.federated.families import chosen

    rows, labels, *_ = cell.load()
    name = chosen(AUTO, (rows.shape[1] + 1) * (int(labels.max()) + 1), "ball")
    return replace(_channel(cell, name), chosen=name)


@method(FEDERATED, "flwr LocalDpMod", "flwr")
def flower(cell: Cell) -> Outcome:
    """Flower's mod with the budget of a round as basic composition gives it, and the true sensitivity 2 NORM."""
    share = {"epsilon": cell.epsilon / ROUNDS, "delta": cell.delta / ROUNDS, "norm": NORM, "sensitivity": 2 * NORM}

    def answer(updates: Any, rng: np.random.Generator) -> Any:
        return alone.ask("vector flwr LocalDpMod", updates, share)[0].mean(axis=0)

    why = evidence.of_peer("flwr LocalDpMod, epsilon 1, sensitivity 2")
    return _federated(cell, answer, why, 4.0 * 510)


@method(FEDERATED, "flwr LocalDpMod, sensitivity 1e-4", "flwr")
def flower_example(cell: Cell) -> Outcome:
    """The same with a sensitivity that is not that of its clipping, which the mod takes without a word."""
    share = {"epsilon": cell.epsilon / ROUNDS, "delta": cell.delta / ROUNDS, "norm": NORM, "sensitivity": 1e-4}

    def answer(updates: Any, rng: np.random.Generator) -> Any:
        return alone.ask("vector flwr LocalDpMod", updates, share)[0].mean(axis=0)

    why = evidence.of_peer("flwr LocalDpMod, epsilon 1, sensitivity 0.0001")
    return _federated(cell, answer, why, 4.0 * 510)
