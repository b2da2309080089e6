"""`noisette train`: a private model, by the command of the family that the model belongs to."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

# The module beside this one whose `command` trains a model, and what the model is.
MODELS: dict[str, tuple[str, str]] = {
    "linear": ("train_table", "linear regression of a column of FILE"),
    "logistic": ("train_table", "logistic regression of a column of FILE with two classes"),
    "softmax": ("train_images", "logistic regression on the images of --data"),
    "cnn": ("train_images", "two convolutions and two linear layers, on the images of --data"),
    "lenet": ("train_images", "LeNet-5, on the images of --data"),
    "resnet": ("train_images", "three residual blocks, on the images of --data"),
}


class _ByModel(click.Command):
    """A command whose arguments are those of the family that --model names."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> click.Context:
        """Look for --model, and let the family's own command read everything."""
        model = _model(args)
        if model is None:
            return super().make_context(info_name, args, parent, **extra)
        if model not in MODELS:
            raise ValueError(f"Unknown model {model!r}. Expected one of {', '.join(MODELS)}.")
        family = import_module(f"noisette.cli.learning.{MODELS[model][0]}").command
        context: click.Context = family.make_context(info_name, args, parent, **extra)
        return context

    def format_help(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Add the list of models."""
        super().format_help(context, formatter)
        with formatter.section("Models"):
            formatter.write_dl([(name, what) for name, (_, what) in MODELS.items()])


def _model(args: list[str]) -> str | None:
    """Return what stands behind --model, if it is there."""
    for place, word in enumerate(args):
        if word == "--model" and place + 1 < len(args):
            return args[place + 1]
        if word.startswith("--model="):
            return word.removeprefix("--model=")
    return None


@click.command(cls=_ByModel)
@click.argument("arguments", nargs=-1, metavar="[ARGUMENTS]...")
@click.option("--model", required=True, metavar="NAME", help="What to train; `--model NAME --help` for its options.")
def train(arguments: tuple[str, ...], model: str) -> None:
    """Train a private model.

    What else can be given depends on the model: `noisette train --model linear --help`. Every model is shown as a
    table, or with --json as a record that holds the seed and the guarantee.
    """
    raise AssertionError(f"The family of {model!r} has its own command, got {arguments}.")  # pragma: no cover
