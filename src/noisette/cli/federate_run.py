"""`noisette federate run`: a federation on this machine that meets a stated guarantee, and says what holds."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

_PACKAGES = ("flwr", "ray", "torch")
_SPREAD = ("ball", "sphere")


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
    lacking = [name for name in _PACKAGES if find_spec(name) is None]
    if lacking:
        raise ValueError(f"Federation needs {', '.join(lacking)}: pip install 'noisette[federated]'.")
    from noisette._files import whole_file
    from noisette._terminal import to_json
    from noisette.federated.simulation import logged

    with logged(False):
        record = _planned(asked) if only_plan else _federated(asked)
    if output is not None:
        with whole_file(output) as stream:
            stream.write((to_json(record) + "\n").encode())
    click.echo(to_json(record)) if as_json else _show(record)
    if record["rounds"] and not any(entry["released"] for entry in record["rounds"]):
        raise click.exceptions.Exit(1)  # nothing was learnt


def _built(asked: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the task and the strategy that were asked for."""
    from noisette.federated import ModelLayout, Norm, Ranges
    from noisette.federated.families import chosen, family
    from noisette.federated.mixing import Simulated
    from noisette.federated.sampling import rounds_of_one
    from noisette.federated.strategy import PrivateFedAvg
    from noisette.federated.task import Task

    task = Task(
        **{name: asked[name] for name in ("data", "network", "clients", "per_client", "classes", "epochs", "seed")},
        rate=asked["lr"],
    )
    dims = ModelLayout.of(task.start()).dims
    mechanism = chosen(
        asked["mechanism"], dims, "box" if asked["adapt_ranges"] or asked["sends"] == "weights" else "ball"
    )
    ball = any(shape in _SPREAD for shape in family(mechanism).shapes)
    if ball and asked["adapt_ranges"]:
        raise ValueError(f"{mechanism} has no ranges: leave --adapt-ranges out.")
    per_round = asked["clients_per_round"] or asked["clients"]
    for name, most in (("clients_per_round", asked["clients"]), ("minimum", per_round)):
        if (asked[name] or 0) > most:
            option = name.replace("_", "-")
            raise ValueError(
                f"Expected --{option} {asked[name]} to be at most {most}: so many clients a round can ask."
            )
    mixed = asked["model"] == "shuffled"
    least = per_round if mixed else asked["minimum"]
    strategy = PrivateFedAvg(
        mechanism,
        clip=Norm(asked["clip"]) if ball else _ranges(Ranges, asked, dims),
        target_epsilon=asked["target_epsilon"],
        target_delta=asked["target_delta"],
        unit=asked["unit"],
        model=asked["model"],
        sends=asked["sends"],
        clients_per_round=per_round,
        rounds_per_client=rounds_of_one(asked["rounds"], per_round, asked["clients"]),
        minimum=least,
        adapt_ranges=asked["adapt_ranges"],
        enhance=asked["enhance"],
        server_rate=asked["server_rate"],
        mixer=Simulated(minimum=max(2, least)) if mixed else None,
        batch=min(asked["batch"], dims) if mixed else 1,
        state=asked["state"],
        min_available_nodes=asked["clients"],
    )
    return task, strategy


def _ranges(made: Any, asked: Mapping[str, Any], dims: int) -> Any:
    """Return the ranges of weights: as they are where weights are sent, else of even updates of the clip's norm."""
    return made(0.0, asked["clip"]) if asked["sends"] == "weights" else made.around_zero(norm=asked["clip"], dims=dims)


def _planned(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a run would guarantee."""
    from noisette.federated.simulation import as_record

    task, strategy = _built(asked)
    strategy.begin(as_record(task.start()), asked["rounds"])
    return _record(asked, strategy, [], 0.0)


def _federated(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Run the federation."""
    from noisette._terminal import progress
    from noisette.federated.simulation import simulate

    task, strategy = _built(asked)
    curve: list[dict[str, Any]] = []
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, progress(f"Federating {asked['network']} on {asked['data']}") as bar:

        def each(number: int, accuracy: float, lines: Any) -> None:
            curve.append({"round": number, "accuracy": accuracy})
            bar(number / asked["rounds"])

        own = asked["target_epsilon"] if asked["model"] == "local" and asked["unit"] == "record" else _UNLIMITED
        simulate(
            task,
            strategy,
            rounds=asked["rounds"],
            epsilon=own,
            delta=max(asked["target_delta"], 0.0),
            ledger=asked["ledger"] or Path(folder) / "budget.db",
            workers=asked["workers"],
            each=each,
        )
    run = strategy.run
    if not curve:  # all rounds were done before
        weights = run.layout.unflatten(run.weights, dtype="float32")
        curve.append({"round": run.done, "accuracy": task.accuracy(weights)})
    return _record(asked, strategy, curve, time.monotonic() - started)


_UNLIMITED = 4e6  # the most a ledger holds: simulated devices trust the simulated shuffler, which is no test of it


def _record(asked: Mapping[str, Any], strategy: Any, curve: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
    """Return what is stored of a run."""
    run = strategy.run
    planned, channel = run.terms.lines(run.layout), run.terms.channel(run.layout)
    prospect = strategy.prospect(asked["rounds"])
    if asked["certificate"] is not None:
        channel.certificate(run.terms.rounds, asked["target_delta"]).save(asked["certificate"])
    settings = {name: str(value) if isinstance(value, Path) else value for name, value in asked.items()}
    settings["mechanism"] = run.terms.mechanism  # what "auto" came to
    return {
        "settings": settings,
        "weights": run.layout.dims,
        "answers": channel.answers,
        "answer": channel.spent,
        "budget": next(iter(channel.spent.values())),  # its old name; goes in a later release
        "planned": planned.spec(),
        "verdict": None if prospect is None else prospect.verdict,  # None: nobody said how many clients a round has
        "guarantee": strategy.guarantee().spec(),
        "lines": str(strategy.guarantee()).splitlines(),
        "accuracy": curve[-1]["accuracy"] if curve else math.nan,
        "curve": curve,
        "rounds": run.rounds,
        "seconds": seconds,
    }


def _show(record: Mapping[str, Any]) -> None:
    """Print the curve and the three lines."""
    from noisette._terminal import console, literal, number, table

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
            told = next((one for one in record["rounds"] if one["round"] == entry["round"]), None)
            left = "" if told is None else str(told["failed"] + told["missing"] + len(told["rejected"]))
            counted = "" if told is None else f"{told['counted']:,}"
            shown.add_row(str(entry["round"]), f"{entry['accuracy']:.4f}", counted, left)
        out.print(shown)
    for entry in record["rounds"]:
        if not entry["released"]:
            said = f"Round {entry['round']} was not released: {entry['counted']} of {entry['asked']} reports counted."
            out.print(literal(" ".join([said, *entry["reasons"]])), soft_wrap=True)
    for line in record["lines"]:
        out.print(literal(line), soft_wrap=True)
