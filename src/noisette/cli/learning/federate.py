"""`noisette federate`: learning across devices, and the service that stands between them and the server."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from noisette._files import need_packages
from noisette._terminal import console, literal, number, progress, save_json, table, to_json
from noisette.cli.services.shuffler import enrol, key, run_shuffler


@click.command("run")
@click.option("--target-epsilon", "-e", type=float, required=True, help="What the whole run may cost one client.")
@click.option("--target-delta", type=float, default=1e-6, show_default=True, help="0 asks for a pure guarantee.")
@click.option(
    "--unit",
    type=click.Choice(["record", "element"]),
    default="record",
    show_default=True,
    help="What the target protects: all that a client sends, or one weight.",
)
@click.option(
    "--model",
    type=click.Choice(["local", "shuffled"]),
    default="local",
    show_default=True,
    help="Who is trusted: nobody, or a shuffler.",
)
@click.option(
    "--mechanism",
    default="auto",
    show_default=True,
    help="E.g. tensor-gaussian; auto is privunit, or fast-projunit above 2,048 weights.",
)
@click.option(
    "--data", type=click.Choice(["mnist", "fashion-mnist"]), default="mnist", show_default=True, help="Images to learn."
)
@click.option(
    "--network", type=click.Choice(["softmax", "cnn"]), default="softmax", show_default=True, help="What is trained."
)
@click.option("--clients", type=click.IntRange(min=2), default=100, show_default=True, help="Simulated devices.")
@click.option("--clients-per-round", type=click.IntRange(min=1), help="Devices asked in a round; all by default.")
@click.option("--per-client", type=click.IntRange(min=1), help="Images of a device; by default all are dealt out.")
@click.option("--classes", type=click.IntRange(1, 10), default=10, show_default=True, help="Classes a device has.")
@click.option("--rounds", type=click.IntRange(min=1), default=5, show_default=True, help="Rounds of the federation.")
@click.option("--epochs", type=click.IntRange(min=1), default=1, show_default=True, help="Local epochs a round.")
@click.option("--lr", type=float, default=0.1, show_default=True, help="Learning rate of the devices.")
@click.option("--server-rate", type=float, default=1.0, show_default=True, help="Step of the server along the mean.")
@click.option("--clip", type=float, default=1.0, show_default=True, help="Norm that updates are clipped to.")
@click.option(
    "--sends",
    type=click.Choice(["update", "weights"]),
    default="update",
    show_default=True,
    help="What a device reports: how its model changed, or the model itself.",
)
@click.option("--adapt-ranges", is_flag=True, help="Ranges of layers from noisy weights, as in LDP-FL.")
@click.option("--enhance", default="james-stein", show_default=True, help="Shrinkage of the mean; none leaves it.")
@click.option("--minimum", type=click.IntRange(min=1), default=2, show_default=True, help="Reports a round must have.")
@click.option("--batch", type=click.IntRange(min=1), default=64, show_default=True, help="Weights in one packet.")
@click.option("--workers", type=click.IntRange(min=1), default=2, show_default=True, help="Processes of Ray.")
@click.option("--state", type=click.Path(path_type=Path), help="File to go on from after a restart.")
@click.option("--ledger", type=click.Path(path_type=Path), help="File with the devices' budgets; by default a new one.")
@click.option("--seed", type=int, default=0, show_default=True, help="For data and first weights; noise has none.")
@click.option("--plan", "only_plan", is_flag=True, help="Show budget and guarantees and end.")
@click.option("--certificate", type=click.Path(path_type=Path), help="Write a certificate of the run here.")
@click.option("--output", "-o", type=click.Path(path_type=Path), help="Write the record as JSON.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def run(output: Path | None, only_plan: bool, as_json: bool, **asked: Any) -> None:
    """Federate a network over simulated devices so that the whole run costs each of them a stated guarantee.

    The budget of each answer is computed from the target. Shown and stored are three lines: what the source of the
    mechanism claims, what holds with nobody trusted, and what holds behind a shuffler. Devices keep their budgets in a
    ledger and refuse what exceeds them. Needs the extra: pip install 'noisette[federated]'.
    """
    need_packages("Federation", ("flwr", "ray", "torch"), "federated")
    from noisette.federated.runs.run import planned, run_federation
    from noisette.federated.runs.simulation import logged

    with logged(False), progress(f"Federating {asked['network']} on {asked['data']}") as advance:
        record = planned(asked) if only_plan else run_federation(asked, advance)
    if output is not None:
        save_json(record, output)
    click.echo(to_json(record)) if as_json else _show(record)
    if record["rounds"] and not any(entry["released"] for entry in record["rounds"]):
        raise click.exceptions.Exit(1)  # nothing was learnt


def _show(record: Mapping[str, Any]) -> None:
    """Print the curve and the three lines."""
    out = console()
    ((each, spent),) = record["answer"].items()
    out.print(
        literal(
            f"{record['settings']['mechanism']}: {record['weights']:,} weights, {record['answers']:,} "
            f"answer{'s' * (record['answers'] != 1)} an update, {each} = {number(spent)} each"
        ),
        soft_wrap=True,
    )
    if record["verdict"] is not None:
        out.print(literal(record["verdict"]), soft_wrap=True)
    if record["curve"]:
        shown = table(">round", ">accuracy", ">reports", ">left out")
        for entry in record["curve"]:
            seen = next((one for one in record["rounds"] if one["round"] == entry["round"]), None)
            left = "" if seen is None else str(seen["failed"] + seen["missing"] + len(seen["rejected"]))
            counted = "" if seen is None else f"{seen['counted']:,}"
            shown.add_row(str(entry["round"]), f"{entry['accuracy']:.4f}", counted, left)
        out.print(shown)
    for entry in record["rounds"]:
        if not entry["released"]:
            said = f"Round {entry['round']} was not released: {entry['counted']} of {entry['asked']} reports counted."
            out.print(literal(" ".join([said, *entry["reasons"]])), soft_wrap=True)
    for line in record["lines"]:
        out.print(literal(line), soft_wrap=True)


class _RunByDefault(click.Group):
    """A group for which options without a command are those of `run`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the command in where options come first."""
        if args and args[0].startswith("-") and args[0] not in ctx.help_option_names:
            args = [run.name or "run", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_RunByDefault)
def federate() -> None:
    """Learn across devices without collecting their data.

    Options without a command are those of `run`. Every command has --help and --json.
    """


for _command in (run, enrol, key):
    federate.add_command(_command)
federate.add_command(run_shuffler, "shuffler")
