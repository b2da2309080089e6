"""`noisette train --data mnist --model cnn`: an image classifier by private SGD."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from noisette._files import need_packages
from noisette._terminal import console, describe, number, progress, save_json, table, to_json
from noisette.cli._options import warn_of_seed


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
def command(data: str, model: str, certificate: Path | None, output: Path | None, as_json: bool, **asked: Any) -> None:
    """Train a classifier of images under (epsilon, delta) for one example, and judge it on the test images.

    Images are read from the folder in NOISETTE_DATA, or fetched. Needs the extra: pip install 'noisette[sgd]'.
    """
    need_packages("Training", ("torch",), "sgd")
    from noisette.sgd.images import train_images

    if asked["limit"] is not None and asked["limit"] < 1:
        raise ValueError(f"Expected --limit {asked['limit']} of at least 1.")
    with progress(f"Training {model} on {data}") as advance:
        record, private = train_images(data, model, advance=advance, **asked)
    if certificate is not None:
        private.certificate().save(certificate)
    if output is not None:
        save_json(record, output)
    click.echo(to_json(record)) if as_json else _show(record, private.guarantee)
    warn_of_seed(asked["seed"])


def _show(record: Mapping[str, Any], guarantee: Any) -> None:
    """Print the curve, the guarantee and the accuracy."""
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
    shown = table(">step", ">cosine, predicted", ">measured", ">magnitude, predicted", ">measured")
    for row in analysis["comparisons"]:
        cells = (row[kind][name] for name in ("cosine", "magnitude") for kind in ("predicted", "measured"))
        shown.add_row(str(row["step"]), *map(number, cells))
    out.print("\nNoisy against clipped gradient; magnitude is a mean squared error. Not private.", style="bold")
    out.print(shown)
    for name in ("item_a", "item_b"):
        made, mean = (sum(step[kind][name] for step in analysis["steps"]) for kind in ("made", "expected"))
        out.print(f"Efficiency difference, {name[-1].upper()}, of all steps: {number(made)}, expected {number(mean)}.")
