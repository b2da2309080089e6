"""`noisette train --data mnist --model cnn`: an image classifier by private SGD."""

from __future__ import annotations

import copy
import json
import time
import warnings
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

_ADVISED = "advised"
_COMPARED = 10  # steps at which the errors of the noise are predicted and measured
_ATTACKED = 5000  # examples on each side that a membership attack is tried on


@click.command("train")
@click.option(
    "--data", type=click.Choice(["mnist", "fashion-mnist", "cifar10", "svhn"]), required=True, help="Images to learn."
)
@click.option(
    "--model", type=click.Choice(["softmax", "cnn", "lenet", "resnet"]), required=True, help="Network to train."
)
@click.option("--epsilon", "-e", type=float, required=True, help="Budget of the whole run, for one example.")
@click.option("--delta", type=float, default=1e-5, show_default=True, help="Chance that the promise may fail.")
@click.option("--epochs", type=int, default=10, show_default=True, help="Passes over the images.")
@click.option("--batch", type=int, default=512, show_default=True, help="Expected size of a Poisson sample.")
@click.option("--lr", type=float, default=0.5, show_default=True, help="Learning rate of SGD.")
@click.option("--momentum", type=float, default=0.9, show_default=True, help="Momentum of SGD.")
@click.option(
    "--clip",
    default="auto-s",
    show_default=True,
    help="A norm; l2, linf, auto-s, psac, quantile, ...; or advised: a private median.",
)
@click.option("--perturb", default="gaussian", show_default=True, help="gaussian, geodp, layered or tensor.")
@click.option("--limit", type=int, help="Train on the first LIMIT images only.")
@click.option("--attack", is_flag=True, help="Try a membership attack; its result is not covered by the guarantee.")
@click.option("--analyse", is_flag=True, help="Show what the noise does to each step; not covered by the guarantee.")
@click.option("--checkpoint", type=click.Path(path_type=Path), help="Save here after each epoch; go on from it.")
@click.option("--certificate", type=click.Path(path_type=Path), help="Write a certificate of the run here.")
@click.option("--output", "-o", type=click.Path(path_type=Path), help="Write the record as JSON.")
@click.option("--seed", type=int, help="For tests only: noise from a known seed protects nobody.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    data: str,
    model: str,
    epsilon: float,
    delta: float,
    epochs: int,
    batch: int,
    lr: float,
    momentum: float,
    clip: str,
    perturb: str,
    limit: int | None,
    attack: bool,
    analyse: bool,
    checkpoint: Path | None,
    certificate: Path | None,
    output: Path | None,
    seed: int | None,
    as_json: bool,
) -> None:
    """Train a classifier of images under (epsilon, delta) for one example, and judge it on the test images.

    Images are read from the folder in NOISETTE_DATA, or fetched. Needs the extra: pip install 'noisette[sgd]'.
    """
    from noisette._files import whole_file
    from noisette._terminal import progress, to_json

    try:
        import torch
    except ImportError:
        raise ValueError("Training needs PyTorch: pip install 'noisette[sgd]'.") from None
    from torch.utils.data import DataLoader

    from noisette import datasets, sgd
    from noisette.sgd import training, zoo

    if limit is not None and limit < 1:
        raise ValueError(f"Expected --limit {limit} of at least 1.")
    if seed is not None:
        torch.manual_seed(seed)
    train, test = training.tensors(datasets.images(data), limit=limit)
    channels, side = train.tensors[0].shape[1:3]
    network = zoo.ZOO[model](channels, side)
    optimum = copy.deepcopy(network)

    def optimizer(trained: torch.nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(trained.parameters(), lr=lr, momentum=momentum)

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Noise from a known seed")  # told below
        private = sgd.make_private(
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
        advice = asdict(sgd.advise_clip(private, torch.nn.functional.cross_entropy))
    observer = None
    if analyse:
        training.fit_plainly(optimum, train, optimizer(optimum), epochs=epochs, batch=batch)
        every = max(epochs * len(private.loader) // _COMPARED, 1)
        observer = sgd.Observer(private, optimum=optimum, every=every, rng=seed)
    with progress(f"Training {model} on {data}") as advance:

        def keep(epoch: training.Epoch) -> None:
            curve.append(asdict(epoch))
            if checkpoint is not None:
                whole = {
                    "model": network.state_dict(),
                    "optimizer": private.optimizer.state_dict(),
                    "curve": json.dumps(curve),
                    "advice": json.dumps(advice),
                }
                with whole_file(checkpoint) as stream:
                    torch.save(whole, stream)

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
        "attack": _attacked(training, network, train, test, delta) if attack else None,
        "analysis": None if observer is None else observer.record(),
        "seed": seed,
        "seconds": time.monotonic() - started,
    }
    if certificate is not None:
        private.certificate().save(certificate)
    if output is not None:
        with whole_file(output) as stream:
            stream.write((to_json(record) + "\n").encode())
    click.echo(to_json(record)) if as_json else _show(record, private.guarantee)
    if seed is not None:
        click.echo("Warning: --seed makes the noise predictable. Use it for tests only.", err=True)


def _clip(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _attacked(training: Any, network: Any, train: Any, test: Any, delta: float) -> dict[str, Any]:
    """Return the losses of members and others, from which `noisette audit --model` tells how well an attack does."""
    from torch.utils.data import TensorDataset

    sides = {"members": train, "others": test}
    made: dict[str, Any] = {"delta": delta}
    for name, side in sides.items():
        part = TensorDataset(*(tensor[:_ATTACKED] for tensor in side.tensors))
        made[name] = training.losses(network, part).tolist()
    return made


def _show(record: Mapping[str, Any], guarantee: Any) -> None:
    """Print the curve, the guarantee and the accuracy."""
    from noisette._terminal import console, describe, table

    out = console()
    shown = table(">epoch", ">steps", ">epsilon so far", ">test accuracy")
    for row in record["curve"]:
        shown.add_row(str(row["epoch"]), f"{row['steps']:,}", f"{row['epsilon']:.3f}", f"{row['accuracy']:.2%}")
    out.print(f"{record['model']} on {record['data']}: {record['parameters']:,} parameters", style="bold")
    out.print(shown)
    if record["advice"] is not None:
        norm, error = record["advice"]["l2_clip_norm"], record["advice"]["rank_error"]
        out.print(
            f"Clipped to {norm:.3g}, half of the norms at the start give or take {error:.1%}; paid for as a step."
        )
    if record["analysis"] is not None:
        _show_analysis(out, record["analysis"])
    out.print(f"\nTest accuracy {record['accuracy']:.2%} under {describe(guarantee)}.")


def _show_analysis(out: Any, analysis: Mapping[str, Any]) -> None:
    """Print the errors of the noise at some steps, and the efficiency difference of all of them."""
    from noisette._terminal import number, table

    shown = table(">step", ">cosine, predicted", ">measured", ">magnitude, predicted", ">measured")
    for row in analysis["comparisons"]:
        cells = (row[kind][name] for name in ("cosine", "magnitude") for kind in ("predicted", "measured"))
        shown.add_row(str(row["step"]), *map(number, cells))
    out.print("\nNoisy against clipped gradient; magnitude is a mean squared error. Not private.", style="bold")
    out.print(shown)
    for name in ("item_a", "item_b"):
        made, mean = (sum(step[kind][name] for step in analysis["steps"]) for kind in ("made", "expected"))
        out.print(f"Efficiency difference, {name[-1].upper()}, of all steps: {number(made)}, expected {number(mean)}.")
