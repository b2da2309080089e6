"""A Ray cluster of two nodes on this machine: real processes with ports and folders of their own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Self

# A killed node refuses the next connection, so that the cluster notices within seconds. A live one has ten minutes to
# answer: with a limit of a second, a busy machine let the cluster take a live node for dead and give it no work.
QUICK = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "600000",
    "RAY_health_check_failure_threshold": "3",
}
ENVIRONMENT = os.environ | QUICK | {"RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1", "COLUMNS": "80"}
RAY = Path(sys.executable).with_name("ray")


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as bound:
        return int(bound.getsockname()[1])


def children(pid: int) -> list[int]:
    """Return the processes that a process has started, and theirs."""
    found = []
    for path in Path("/proc").glob(f"{pid}/task/*/children"):
        for child in map(int, path.read_text(encoding="ascii").split()):
            found += [child, *children(child)]
    return found


def title(pid: int) -> str:
    """Return what a process calls itself; nothing if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except (FileNotFoundError, ProcessLookupError):
        return ""


class Cluster:
    """A head and one more node, each with one core."""

    def __enter__(self) -> Self:
        self._home = Path(tempfile.mkdtemp(prefix="nz-ray-"))
        self.address = f"127.0.0.1:{free_port()}"
        self._nodes: list[subprocess.Popen[bytes]] = []
        port, outside = self.address.rpartition(":")[2], free_port()
        only_head = ("--head", f"--port={port}", f"--ray-client-server-port={outside}", "--include-dashboard=false")
        try:
            self.head = self._start("head", *only_head)
            self.second = self._start("second", f"--address={self.address}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self, name: str, *options: str) -> subprocess.Popen[bytes]:
        common = ["--block", "--node-ip-address=127.0.0.1", "--num-cpus=1", "--object-store-memory=100000000"]
        common += ["--include-log-monitor=false", f"--temp-dir={self._home / name}"]
        log = self._home / f"{name}.log"
        with log.open("wb") as stream:
            command = [str(RAY), "start", *common, *options]
            node = subprocess.Popen(
                command, stdout=stream, stderr=stream, env=ENVIRONMENT, cwd=self._home, start_new_session=True
            )
        self._nodes.append(node)
        waited = time.monotonic()
        while b"Ray runtime started" not in log.read_bytes():
            if node.poll() is not None or time.monotonic() - waited > 600:
                raise RuntimeError(f"The {name} did not start: {log.read_text(encoding='utf-8')}")
            time.sleep(0.1)
        return node

    def __exit__(self, *_: object) -> None:
        for node in reversed(self._nodes):
            self.kill(node)
        shutil.rmtree(self._home)

    def kill(self, node: subprocess.Popen[bytes]) -> None:
        """End all processes of a node at once, as if its machine had lost its power."""
        for pid in (node.pid, *children(node.pid)):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        node.wait()

    def working(self, node: subprocess.Popen[bytes]) -> list[int]:
        """Return the workers of a node that are in the middle of a partition."""
        return [pid for pid in children(node.pid) if title(pid).startswith("ray::_task")]
