"""A private run on images from its settings to its record: the network, the clip, checkpoints, accuracy and attacks."""

from __future__ import annotations

import copy
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from noisette import datasets
from noisette._files import whole_file
from noisette.sgd import training
from noisette.sgd.advice import advise_clip
from noisette.sgd.observer import Observer
from noisette.sgd.private import Private, make_private
from noisette.sgd.zoo import ZOO

_ADVISED = "advised"
_COMPARED_STEPS = 10  # at which the errors of the noise are predicted and measured
_ATTACKED_EXAMPLES = 5000  # on each side, that a membership attack is tried on


def train_images(
    data: str,
    model: str,
    *,
    epsilon: float,
    delta: float,
    epochs: int,
    batch: int,
    lr: float,
    momentum: float,
    clip: str,
    perturb: str,
    limit: int | None = None,
    attack: bool = False,
    analyse: bool = False,
    checkpoint: Path | None = None,
    seed: int | None = None,
    advance: Callable[[float], Any] = lambda share: None,
) -> tuple[dict[str, Any], Private]:
    """Train a network of `noisette.sgd.zoo` on images of `noisette.datasets`; return its record, and what was made.

    ``clip`` is a norm, the name of a clip, or "advised": a private median of the norms, paid for as a step. What
    ``attack`` and ``analyse`` add to the record is not covered by the guarantee. Where ``checkpoint`` exists, the run
    goes on from it.
    """
    if seed is not None:
        torch.manual_seed(seed)
    train, test = training.tensors(datasets.images(data), limit=limit)
    channels, side = train.tensors[0].shape[1:3]
    network = ZOO[model](channels, side)
    optimum = copy.deepcopy(network)

    def optimizer(trained: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(trained.parameters(), lr=lr, momentum=momentum)

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Noise from a known seed")  # the record says so
        private = make_private(
            network,
            optimizer(network),
            DataLoader(train, batch_size=batch),
            target=(epsilon, delta),
            epochs=epochs,
            clip="l2" if clip == _ADVISED else _clip(clip),
            perturb=perturb,
            advice_steps=1 if clip == _ADVISED else 0,
            rng=seed,
        )
    curve: list[dict[str, Any]] = []
    advice: dict[str, Any] | None = None
    if checkpoint is not None and checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        network.load_state_dict(saved["model"])
        private.optimizer.load_state_dict(saved["optimizer"])
        curve, advice = json.loads(saved["curve"]), json.loads(saved["advice"])
    started = time.monotonic()
    if clip == _ADVISED and advice is None:
        advice = asdict(advise_clip(private, nn.functional.cross_entropy))
    observer = None
    if analyse:
        training.fit_plainly(optimum, train, optimizer(optimum), epochs=epochs, batch=batch)
        every = max(epochs * private.loader.steps // _COMPARED_STEPS, 1)
        observer = Observer(private, optimum=optimum, every=every, rng=seed)

    def keep(epoch: training.Epoch) -> None:
        curve.append(asdict(epoch))
        if checkpoint is not None:
            state = {
                "model": network.state_dict(),
                "optimizer": private.optimizer.state_dict(),
                "curve": json.dumps(curve),
                "advice": json.dumps(advice),
            }
            with whole_file(checkpoint) as stream:
                torch.save(state, stream)

    training.fit(private, test, epochs=epochs, start=len(curve), each=keep, advance=advance)
    record = {
        "data": data,
        "model": model,
        "parameters": sum(parameter.numel() for parameter in network.parameters()),
        "examples": len(train),
        "settings": {
            "epochs": epochs,
            "batch": batch,
            "lr": lr,
            "momentum": momentum,
            "clip": clip,
            "perturb": perturb,
            "noise_multiplier": private.optimizer.budget.multiplier,
            "sampling_prob": private.loader.sampling_prob,
        },
        "advice": advice,
        "guarantee": private.guarantee.spec(),
        "spent": private.optimizer.guarantee.spec(),
        "accuracy": curve[-1]["accuracy"],
        "curve": curve,
        "attack": _losses(network, train, test, delta) if attack else None,
        "analysis": None if observer is None else observer.record(),
        "seed": seed,
        "seconds": time.monotonic() - started,
    }
    return record, private


def _clip(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _losses(network: nn.Module, train: TensorDataset, test: TensorDataset, delta: float) -> dict[str, Any]:
    """Return the losses of members and others, from which `noisette audit --model` computes how well an attack does."""
    made: dict[str, Any] = {"delta": delta}
    for name, side in {"members": train, "others": test}.items():
        examples = TensorDataset(*(tensor[:_ATTACKED_EXAMPLES] for tensor in side.tensors))
        made[name] = training.losses(network, examples).tolist()
    return made
