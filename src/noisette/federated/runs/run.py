"""A federation on this machine as it is asked for by the names of the command line's options, and its record."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from noisette.federated.clipping import Norm, Ranges
from noisette.federated.families import chosen, family
from noisette.federated.layout import ModelLayout
from noisette.federated.runs.simulation import as_record, simulate
from noisette.federated.runs.task import Task
from noisette.federated.server.mixing import Simulated
from noisette.federated.server.sampling import rounds_of_one
from noisette.federated.server.strategy import PrivateFedAvg

_BALLS = ("ball", "sphere")  # shapes of updates that are clipped by their norm
_UNLIMITED = 4e6  # the most a ledger holds: simulated devices trust the simulated shuffler, which is no test of it


def _built(asked: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the task and the strategy that were asked for."""
    task = Task(
        **{name: asked[name] for name in ("data", "network", "clients", "per_client", "classes", "epochs", "seed")},
        rate=asked["lr"],
    )
    dims = ModelLayout.of(task.start()).dims
    mechanism = chosen(
        asked["mechanism"], dims, "box" if asked["adapt_ranges"] or asked["sends"] == "weights" else "ball"
    )
    ball = any(shape in _BALLS for shape in family(mechanism).shapes)
    if ball and asked["adapt_ranges"]:
        raise ValueError(f"{mechanism} has no ranges: leave --adapt-ranges out.")
    per_round = asked["clients_per_round"] or asked["clients"]
    for name, most in (("clients_per_round", asked["clients"]), ("minimum", per_round)):
        if (asked[name] or 0) > most:
            option = name.replace("_", "-")
            raise ValueError(
                f"Expected --{option} {asked[name]} to be at most {most}: a round can ask no more clients."
            )
    mixed = asked["model"] == "shuffled"
    least = per_round if mixed else asked["minimum"]
    strategy = PrivateFedAvg(
        mechanism,
        clip=Norm(asked["clip"]) if ball else _ranges(asked, dims),
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


def _ranges(asked: Mapping[str, Any], dims: int) -> Ranges:
    """Return the ranges of weights: as they are where weights are sent, else of even updates of the clip's norm."""
    if asked["sends"] == "weights":
        return Ranges((0.0,), (asked["clip"],))
    return Ranges.around_zero(norm=asked["clip"], dims=dims)


def planned(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a run would guarantee."""
    task, strategy = _built(asked)
    strategy.begin(as_record(task.start()), asked["rounds"])
    return record_of(asked, strategy, [], 0.0)


def run_federation(asked: Mapping[str, Any], advance: Callable[[float], None]) -> dict[str, Any]:
    """Run the federation; ``advance`` is called with the share of the rounds that are done."""
    task, strategy = _built(asked)
    curve: list[dict[str, Any]] = []
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:

        def each(number: int, accuracy: float, lines: Any) -> None:
            curve.append({"round": number, "accuracy": accuracy})
            advance(number / asked["rounds"])

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
    return record_of(asked, strategy, curve, time.monotonic() - started)


def record_of(asked: Mapping[str, Any], strategy: Any, curve: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
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
        "planned": planned.spec(),
        "verdict": None if prospect is None else prospect.verdict,  # None: nobody said how many clients a round has
        "guarantee": strategy.guarantee().spec(),
        "lines": str(strategy.guarantee()).splitlines(),
        "accuracy": curve[-1]["accuracy"] if curve else math.nan,
        "curve": curve,
        "rounds": run.rounds,
        "seconds": seconds,
    }
