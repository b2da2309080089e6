"""A round of private federated learning on Flower: what the mod adds, beside Flower's LocalDpMod, and how it scales.

python benchmarks/federated.py             full: 1,000 clients of 100,000 weights; writes the page of docs
python benchmarks/federated.py --small     what the tests run: few clients, no Ray, prints the page
python benchmarks/federated.py --part NAME one measurement ("speed", "rounds 200"), kept in --results; --page writes
                                           what is kept

Rounds run on Flower's simulation, Ray with two processes. Every client does the same: it takes the model, adds a
constant to it and returns it. The ways take turns, round by round, in one simulation, so that all meet the same
machine. Counted are the CPU time of all processes together, which other jobs on the machine change little, and the
clock. The first round of a way opens budgets and does not count; the median of the others does. All ways give the same
guarantee.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import tempfile
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

import noisette as nz
from noisette.federated import Aggregator, Channel, ModelLayout, Norm, Ranges
from noisette.federated.client.mod import LocalPrivacy
from noisette.federated.families import family
from noisette.federated.runs.simulation import logged
from noisette.federated.server.strategy import PrivateFedAvg
from noisette.federated.server.streaming import StreamingGrid

PAGE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks-federated.md"
MEMORY = Path("/dev/shm")
EPSILON, DELTA = 8.0, 1e-6
CLIENTS, ROUNDS = 1000, 4
WEIGHTS = 100_000
NONE, PEER = "no privacy", "LocalDpMod"
OURS = ("tensor-gaussian", "privunit-g", "adaptive-duchi")
WAYS = (NONE, PEER, *OURS)
WAY = "way"  # key of a message's way in its config


def app_with(mods: list[Any]) -> ClientApp:
    """Return an app whose training adds a constant."""
    app = ClientApp(mods=mods)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        arrays = {name: a.numpy() + np.float32(1e-3) for name, a in message.content["arrays"].items()}
        record = ArrayRecord({name: Array(array) for name, array in arrays.items()})
        metrics = MetricRecord({"num-examples": 1})
        return Message(RecordDict({"arrays": record, "metrics": metrics}), reply_to=message)

    return app


def model(weights: int) -> ArrayRecord:
    """Return a model of two layers."""
    half = weights // 2
    layers = {"first": np.zeros((half // 100, 100), np.float32), "second": np.zeros(weights - half, np.float32)}
    return ArrayRecord({name: Array(layer) for name, layer in layers.items()})


def local_dp(weights: int, rounds: int) -> LocalDpMod:
    """Return Flower's mod with the noise of ours: its sensitivity is chosen so that its formula gives our sigma."""
    mu = nz.accounting.gdp_mu(EPSILON, DELTA) / np.sqrt(rounds)
    sigma = Channel("tensor-gaussian", ModelLayout.of(np.zeros(weights)), Norm(1.0), mu=mu).whole.sigma
    return LocalDpMod(1.0, float(sigma) * EPSILON / np.sqrt(2 * np.log(1.25 / DELTA)), EPSILON, DELTA)


def parts(way: str, weights: int, rounds: int, ledger: Path) -> tuple[list[Any], FedAvg]:
    """Return the client's mods and the server's strategy of a way."""
    if way in (NONE, PEER):
        return [] if way == NONE else [local_dp(weights, rounds)], FedAvg(fraction_evaluate=0.0)
    clip = Ranges(0.0, 1e-2) if way == "adaptive-duchi" else Norm(1.0)
    strategy = PrivateFedAvg(way, target_epsilon=EPSILON, target_delta=DELTA, clip=clip)
    return [LocalPrivacy(EPSILON, DELTA, ledger=ledger)], strategy


def by_turns(mods: dict[str, list[Any]]) -> Any:
    """Return a mod that does what the mods of the way do that a message names."""

    def chosen(message: Message, context: Context, call_next: Any) -> Message:
        for mod in mods[str(message.content["config"][WAY])]:
            return mod(message, context, call_next)
        return call_next(message, context)

    return chosen


def cpu_seconds() -> float:
    """Return the CPU time of this process and of those it started: Ray's and Flower's are among them."""
    used: dict[int, float] = {}
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            number, rest = int(stat.parent.name), stat.read_text().rpartition(")")[2].split()
            parents[number], used[number] = int(rest[1]), (int(rest[11]) + int(rest[12])) / os.sysconf("SC_CLK_TCK")
    own = {os.getpid()}
    while more := {number for number, parent in parents.items() if parent in own} - own:
        own |= more
    return sum(used[number] for number in own)


def one_round(way: str, strategy: FedAvg, grid: Grid, number: int, arrays: ArrayRecord) -> ArrayRecord:
    """Ask all clients once, as the strategy's own start() does, and return the new model."""
    sending = StreamingGrid(grid, strategy.in_flight) if isinstance(strategy, PrivateFedAvg) else grid
    messages = strategy.configure_train(number, arrays, ConfigRecord({WAY: way}), sending)
    found, _ = strategy.aggregate_train(number, sending.send_and_receive(messages, timeout=3600))
    if found is None:
        raise RuntimeError(f"{way}: round {number} was not released.")
    return found


def simulated(clients: int, rounds: int = ROUNDS) -> dict[str, list[list[float]]]:
    """Return the CPU seconds and the clock's of each way's rounds on Flower's simulation, all but its first."""
    from flwr.simulation import run_simulation

    found: dict[str, list[list[float]]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        made = {way: parts(way, WEIGHTS, rounds, Path(folder) / f"{way}.db") for way in WAYS}
        app, server = app_with([by_turns({way: mods for way, (mods, _) in made.items()})]), ServerApp()

        @server.main()
        def main(grid: Grid, context: Context) -> None:
            models = {way: model(WEIGHTS) for way in WAYS}
            for strategy in (made[way][1] for way in OURS):
                strategy.begin(model(WEIGHTS), rounds)
            for number in range(1, rounds + 1):
                for way in (*WAYS[number % len(WAYS) :], *WAYS[: number % len(WAYS)]):  # another one begins each time
                    began = cpu_seconds(), time.monotonic()
                    models[way] = one_round(way, made[way][1], grid, number, models[way])
                    found[way].append([cpu_seconds() - began[0], time.monotonic() - began[1]])
                    print(f"round {number} of {rounds}, {way}: {found[way][-1][0]:.1f} s of CPU", flush=True)

        resources = {"num_cpus": 1, "num_gpus": 0.0}
        started = {"num_cpus": 2, "include_dashboard": False, "log_to_driver": False}
        run_simulation(server, app, clients, backend_config={"init_args": started, "client_resources": resources})
    if any(entry["counted"] != clients for way in OURS for entry in made[way][1].run.rounds):
        raise RuntimeError("A client was left out: the rounds are not comparable.")
    return {way: times[1:] for way, times in found.items()}


def privatising(weights: int, repeats: int = 3) -> dict[str, float]:
    """Return the CPU seconds that it takes to clip, privatise and pack an update, by mechanism: the least of some."""
    layout = ModelLayout.of(np.zeros(weights))
    update = np.random.default_rng(7).normal(0, 1 / np.sqrt(weights), weights)
    ranges = Ranges(0.0, 3 / np.sqrt(weights))
    terms = {"adaptive-duchi": (ranges, 1.0), "privunit-g": (Norm(1.0), EPSILON)}
    terms |= {"tensor-gaussian": (Norm(1.0), 1.0), "laplace": (ranges, 1.0), "piecewise": (ranges, 1.0)}
    found = {}
    for name, (clip, spent) in terms.items():
        channel = Channel(name, layout, clip, **{family(name).price: spent})
        channel.privatize(update)
        times = []
        for _ in range(repeats):
            started = time.process_time()
            channel.privatize(update)
            times.append(time.process_time() - started)
        found[name] = min(times)
    return found


def scaling(numbers: list[int], weights: int) -> list[tuple[int, float, float]]:
    """Return clients, CPU seconds of both sides of a round, and the server's peak memory in MB."""
    layout = ModelLayout.of(np.zeros(weights))
    channel, update = Channel("privunit-g", layout, Norm(1.0), epsilon=EPSILON), np.full(weights, 1e-3)
    channel.privatize(update)
    rows = []
    for clients in numbers:
        aggregator = Aggregator(channel)
        started = time.process_time()
        for client in range(clients):
            aggregator.add(channel.privatize(update).payload, sender=client)
        taken = time.process_time() - started
        measured = Aggregator(channel)
        tracemalloc.start()
        for client in range(clients):
            measured.add(channel.privatize(update).payload, sender=client)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        rows.append((clients, taken, peak / 2**20))
    return rows


PROJECTED = {
    "privunit-g": {},
    "fast-projunit": {},
    "fast-projunit, bits=12": {"bits": 12},
}


def projecting(weights: int, repeats: int = 5) -> list[list[Any]]:
    """Return bytes a report, CPU seconds of a client and of the server a report, and the error over PrivUnitG's."""
    layout = ModelLayout.of(np.zeros(weights))
    update = np.random.default_rng(7).normal(0, 1 / np.sqrt(weights), weights)
    rows: list[list[Any]] = []
    for label, options in PROJECTED.items():
        channel = Channel(label.partition(",")[0], layout, Norm(1.0), epsilon=EPSILON, options=options)
        payload, aggregator = channel.privatize(update).payload, Aggregator(channel)
        aggregator.add(payload)
        client, server = [], []
        for _ in range(repeats):
            began = time.process_time()
            payload = channel.privatize(update).payload
            client.append(time.process_time() - began)
            began = time.process_time()
            aggregator.add(payload)
            server.append(time.process_time() - began)
        rows.append([label, payload.nbytes, statistics.median(client), statistics.median(server), channel.deviation**2])
    return [[*row[:-1], row[-1] / rows[0][-1]] for row in rows]


def unsimulated(privatised: int, clients: list[int], weights: int) -> dict[str, Any]:
    """Return what is measured without Flower."""
    found: dict[str, Any] = {"speed": privatising(privatised), "speed_weights": privatised}
    found |= {"projected": projecting(privatised * 7 // 10), "projected_weights": privatised * 7 // 10}
    return found | {"scaling": scaling(clients, weights), "scaling_weights": weights}


def rows_of(rounds: dict[str, list[list[float]]]) -> list[str]:
    """Return a line for each way: medians of CPU and clock, and CPU against the others."""
    cpu, clock = ({way: statistics.median(one[k] for one in times) for way, times in rounds.items()} for k in (0, 1))
    return [
        f"| {way} | {cpu[way]:.1f} | {100 * (cpu[way] / cpu[NONE] - 1):+.0f} % | {cpu[way] / cpu[PEER]:.2f} "
        f"| {clock[way]:.1f} | {100 * (clock[way] / clock[NONE] - 1):+.0f} % |"
        for way in rounds
    ]


def page(results: dict[str, Any]) -> str:
    """Return the tables as a page."""
    lines = "\n".join
    head = "| way | CPU seconds a round | added | against LocalDpMod | seconds by the clock | added |"
    head += "\n| :-- | --: | --: | --: | --: | --: |"
    rounds = "\n\n".join(
        f"{int(clients):,} clients, medians of {len(ways[NONE])} rounds:\n\n{head}\n{lines(rows_of(ways))}"
        for clients, ways in sorted(results["rounds"].items(), key=lambda item: int(item[0]))
    )
    weights = results["speed_weights"]
    speed = [f"| {name} | {taken:.3f} | {weights / taken / 1e6:.0f} |" for name, taken in results["speed"].items()]
    short = [
        f"| {name} | {size:,} | {client:.3f} | {1e3 * server:.2f} | {ratio:.4f} |"
        for name, size, client, server, ratio in results["projected"]
    ]
    scale = [f"| {n:,} | {t:.2f} | {1e3 * t / n:.3f} | {peak:.1f} |" for n, t, peak in results["scaling"]]
    return f"""# Speed of private federation

One round on Flower 1.41's simulation, two processes, {results["weights"]:,} weights, a training that only adds a
constant. Every private way gives ({EPSILON:g}, {DELTA:g}) to a client over the run; LocalDpMod has the noise of
`tensor-gaussian`. Ours keep budgets in a ledger, in memory as all simulated clients share one disk here (on a disk of
its own a client waits for one more flush a round), and check every report. Measured by `python benchmarks/federated.py`
on two cores. The ways take turns, round by round, in one simulation; the first round of each does not count. CPU
seconds are of all processes of the run. "Added" compares with no privacy.

{rounds}

{REMARK}
Clipping, privatising and packing one update of {weights:,} weights, CPU seconds on one core:

| mechanism | seconds | million weights a second |
| :-- | --: | --: |
{lines(speed)}

One update of {results["projected_weights"]:,} weights at epsilon {EPSILON:g}: what `auto` sends, `fast-projunit`,
beside `privunit-g`. A report is a seed of four bytes and 1,024 numbers of a byte, or with `bits=12` a seed and the
number of a word; the server adds so many numbers a report and transforms their sum once a round. Errors are those
predicted, with rounding to bytes; medians of CPU seconds on one core.

| mechanism | bytes a report | seconds a client | server, milliseconds a report | squared error over privunit-g's |
| :-- | --: | --: | --: | --: |
{lines(short)}

Both sides of a round with `privunit-g` and {results["scaling_weights"]:,} weights, without Flower: CPU seconds, and the
peak of what the server and one client at a time hold.

| clients | seconds | milliseconds a client | peak MB |
| --: | --: | --: | --: |
{lines(scale)}
"""


REMARK = """Flower's simulation searches all messages under way once for every client, up to ten times a second and
for as long as the round lasts: on a busy machine rounds last longer and cost more, with privacy and without.
`PrivateFedAvg` begins with 16 messages under way and FedAvg with all of them. A report of LocalDpMod, or of no privacy,
is four bytes a weight; of `tensor-gaussian` and `privunit-g` two; of `adaptive-duchi` an eighth of one.
"""


def measured(part: str, results: dict[str, Any]) -> None:
    """Add one measurement to the results."""
    kind, _, rest = part.partition(" ")
    if kind == "rounds":
        results.setdefault("rounds", {})[rest] = simulated(int(rest))
        results["weights"] = WEIGHTS
    else:
        results |= unsimulated(10_000_000, [100, 1000, 10_000], 10_000)


def main() -> None:
    """Measure and write the page, or with --small print a small one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--part")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--results", type=Path, default=Path("federated-benchmark.json"))
    asked = parser.parse_args()
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    with logged(False):
        run(asked)


def run(asked: argparse.Namespace) -> None:
    """Do what the command line asks for."""
    if asked.small:
        print(page({"weights": WEIGHTS, "rounds": {}} | unsimulated(10_000, [10, 20], 1000)))
        return
    results = json.loads(asked.results.read_text()) if asked.results.exists() else {}
    for part in [] if asked.page else [asked.part] if asked.part else ["speed", f"rounds {CLIENTS}"]:
        measured(part, results)
        asked.results.write_text(json.dumps(results))
    if not asked.part:
        PAGE.write_text(page(results))
        print(f"Wrote {PAGE}.")


if __name__ == "__main__":
    main()
