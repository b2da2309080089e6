"""A federation on one machine, by Flower's simulation: real client and server apps, devices simulated."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from noisette.federated.client.mod import LocalPrivacy
from noisette.federated.runs.task import Task
from noisette.federated.server.strategy import PrivateFedAvg

Each = Callable[[int, float, Any], None]


def client_app(task: Task, privacy: LocalPrivacy) -> ClientApp:
    """Return the app of a device: training on its share, and the mod that lets private reports out only."""
    app = ClientApp(mods=[privacy])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        arrays = {name: array.numpy() for name, array in message.content.array_records["arrays"].items()}
        trained = task.train(arrays, int(context.node_config["partition-id"]))
        content = RecordDict({"arrays": as_record(trained)})
        return Message(content, reply_to=message)

    return app


def server_app(task: Task, strategy: PrivateFedAvg, rounds: int, each: Each, timeout: float) -> ServerApp:
    """Return the app of the server: the strategy, judged on the test images after each round."""
    app = ServerApp()

    def judged(number: int, arrays: ArrayRecord) -> MetricRecord:
        accuracy = task.accuracy({name: array.numpy() for name, array in arrays.items()})
        each(number, accuracy, strategy.guarantee())
        return MetricRecord({"accuracy": accuracy})

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        strategy.start(grid, as_record(task.start()), num_rounds=rounds, timeout=timeout, evaluate_fn=judged)

    return app


def simulate(
    task: Task,
    strategy: PrivateFedAvg,
    *,
    rounds: int,
    epsilon: float,
    delta: float,
    ledger: str | os.PathLike[str],
    workers: int = 2,
    timeout: float = 3600.0,
    each: Each = lambda number, accuracy, lines: None,
    quiet: bool = True,
) -> None:
    """Run a federation of ``task.clients`` simulated devices in ``workers`` processes; ``ledger`` keeps their budgets.

    ``each`` is called with the number of a round, the accuracy on the test images and the three lines so far.
    """
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_DASHBOARD_STARTUP_TIMEOUT_S", "900")  # a busy machine; one minute by default
    from flwr.simulation import run_simulation

    privacy = LocalPrivacy(epsilon, delta, ledger=Path(ledger).absolute())
    try:
        with logged(not quiet), warnings.catch_warnings():
            warnings.simplefilter("ignore", (DeprecationWarning, FutureWarning, ResourceWarning))  # Ray's own
            run_simulation(
                server_app(task, strategy, rounds, each, timeout),
                client_app(task, privacy),
                num_supernodes=task.clients,
                backend_config={
                    "init_args": {
                        "num_cpus": workers,
                        "include_dashboard": False,
                        "logging_level": "error",
                        "log_to_driver": not quiet,
                    },
                    "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
                },
            )
    finally:
        _shut_down()


@contextmanager
def logged(wanted: bool) -> Iterator[None]:
    """Let Flower write to its log, or let it write errors only."""
    log = logging.getLogger("flwr")
    level = log.level
    log.setLevel(level if wanted else logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


def _shut_down() -> None:
    """End Ray's processes."""
    import ray

    if ray.is_initialized():
        ray.shutdown()


def as_record(arrays: Any) -> ArrayRecord:
    """Return arrays as Flower sends them."""
    return ArrayRecord({name: Array(array) for name, array in arrays.items()})
