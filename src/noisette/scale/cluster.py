"""Aggregation on a Ray cluster: a task for each partition, done again elsewhere if its worker is lost.

A task gives integer sums of its partition and changes nothing, so it may run any number of times; its result is added
once. So the result has the same bits on any number of nodes, whichever of them fail, as long as the head and one
worker stay.
"""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from itertools import islice
from typing import Any

from noisette.aggregation.partitions import Partition, Partitioned, S, added, summed

_RETRIES = 5  # times that a partition may be lost with its worker
_AHEAD = 2  # partitions handed out for each core, so that none waits for the next
_PATIENCE = 60.0  # seconds without any core before the workers are given up
_GLANCE = 5.0  # seconds between two looks at how many cores there are
_CONNECTING = 5.0  # seconds for the head to answer
_STORE = 200_000_000  # bytes that a cluster of our own may hold; sums are all that goes through it
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # RFC 9113, section 3.4
_MANNERS = {
    "RAY_USAGE_STATS_ENABLED": "0",  # no word to Ray's makers
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # no word on standard output of a worker that was lost: results go there
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # no hiding of GPUs, and no warning about it
    "RAY_DASHBOARD_STARTUP_TIMEOUT_S": "900",  # seconds on a busy machine; one minute by default
}
_START = "Start it with `ray start --head`, or use --ray local for a cluster on this machine."


def aggregate_on_ray(
    reports: Partitioned[S], *, address: str | None, on_progress: Callable[[int], None] | None = None
) -> S:
    """Sum all partitions on a Ray cluster, to the same bits as `aggregate_partitions` in one process.

    ``address`` is ``HOST:PORT`` of the head, ``ray://HOST:PORT`` from a machine outside the cluster, ``auto`` for the
    one that this machine belongs to, or ``local`` for one that is started here and ends with the call; None takes the
    cluster that this process is connected to. Each node reads its partitions itself, so all must see the same paths or
    the same database. ``on_progress`` is called with the users of each partition as it is done.
    """
    ray = _ray()
    with _connected(ray, address):
        return reports.finished(_collected(ray, reports, on_progress))


def _collected(ray: Any, reports: Partitioned[S], on_progress: Callable[[int], None] | None) -> S | None:
    """Keep every core busy and add up what comes back."""
    task = ray.remote(num_cpus=1, max_retries=_RETRIES, scheduling_strategy="SPREAD")(_task)
    shared = ray.put((reports.summing, version("noisette")))
    waiting, running = iter(reports.partitions), dict[Any, Partition]()
    total: S | None = None
    left, cores = len(reports.partitions), _Cores(ray)
    while left:
        for partition in islice(waiting, max(0, _AHEAD * cores.now() - len(running))):
            running[task.remote(shared, partition)] = partition
        if not running:
            time.sleep(_GLANCE)
            continue
        done, _ = ray.wait(list(running), num_returns=1, timeout=_GLANCE)
        for one in done:
            sums: S = _result(ray, one, running.pop(one))
            total, left = added(total, sums), left - 1
            if on_progress is not None:
                on_progress(sums.users)
    return total


class _Cores:
    """How many cores the cluster has, and for how long it has had none."""

    def __init__(self, ray: Any) -> None:
        self._ray, self._count, self._looked, self._last = ray, 0, -math.inf, time.monotonic()

    def now(self) -> int:
        """Return the number of a few seconds ago at most; raise if it has been zero for a while."""
        moment = time.monotonic()
        if moment - self._looked >= _GLANCE:
            self._count, self._looked = int(self._ray.cluster_resources().get("CPU", 0)), moment
        if self._count:
            self._last = moment
        elif moment - self._last > _PATIENCE:
            raise RuntimeError(
                f"the cluster has had no core to work on for {_PATIENCE:.0f} s. "
                "Add workers with `ray start --address=HEAD:PORT` and run it again"
            )
        return self._count


def _task(shared: tuple[Callable[[Any], S], str], partition: Partition) -> S:
    """Sum a partition on a worker."""
    summing, wanted = shared
    if version("noisette") != wanted:
        raise ValueError(
            f"{_here()} has noisette {version('noisette')}, where the run started it is {wanted}. "
            "Install that version on every node."
        )
    try:
        return summed(summing, partition)
    except ValueError as error:
        raise ValueError(f"{error} ({_here()})") from error


def _here() -> str:
    return f"Node {_ray().util.get_node_ip_address()}"


def _result(ray: Any, reference: Any, partition: Partition) -> Any:
    """Return the sums of a partition, or say in our words what went wrong."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, ValueError | OverflowError):
            raise error.cause from None
        reason = str(error).strip().splitlines()[-1]
        raise RuntimeError(
            f"{partition} failed on a worker: {reason}. Every node needs noisette {version('noisette')} and its extras"
        ) from error
    except ray.exceptions.RayError as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise RuntimeError(
            f"{partition} was lost {_RETRIES + 1} times with the worker that read it: {reason}. "
            "Look at the memory and the logs of the nodes"
        ) from error


def _ray() -> Any:
    """Import Ray with manners that it reads from the environment."""
    for name, value in _MANNERS.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise ValueError("A cluster needs ray: pip install 'noisette[scale]'.") from error
    return ray


@contextmanager
def _connected(ray: Any, address: str | None) -> Iterator[None]:
    """Connect to a cluster, or start one, and leave it at the end."""
    if address is None:
        if not ray.is_initialized():
            raise ValueError("This process is connected to no cluster. Give the address of one, or 'local'.")
        yield
        return
    if ray.is_initialized():
        raise ValueError(f"This process is connected to a cluster already, not to {address!r}. Pass address=None.")
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address == "local":
        own = {"num_cpus": _cores(), "include_dashboard": False, "object_store_memory": _STORE}
        quiet |= own
    elif address != "auto":
        _check_reachable(address)
    try:
        try:
            ray.init(address=address, **quiet)
        except (ConnectionError, ImportError, RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split()).rstrip(".")
            raise ConnectionError(f"cannot join the Ray cluster at {address}: {reason}. {_START}") from error
        yield
    finally:
        ray.shutdown()


def _check_reachable(address: str) -> None:
    """Refuse an address at which no Ray cluster answers; Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not (host and colon and port.isdecimal() and 0 < int(port) < 1 << 16) or "/" in host:
        raise ValueError(f"Expected --ray {address} to be HOST:PORT, ray://HOST:PORT, auto or local.")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECTING) as connection:
            if os.environ.get("RAY_USE_TLS", "0") == "1":
                return
            connection.sendall(_PREFACE)
            answer = connection.recv(4)
    except OSError as error:
        raise ConnectionError(f"no Ray cluster answers at {address}: {error}. {_START}") from error
    if answer[3:] != b"\x04":  # the first frame of any such server is its settings
        raise ConnectionError(f"what answers at {address} is no Ray cluster. {_START}")


def _cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
