"""The shuffler and the receiver in processes of their own, to be killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

_RECEIVER = """
import sys
from noisette._service import listen, run
from noisette.shuffler import Clients, Receipt, create_receiver
from noisette.shuffler.receiver import log
bound = listen("127.0.0.1", int(sys.argv[1]))
print(f"http://127.0.0.1:{bound.getsockname()[1]}", flush=True)
run(create_receiver(Receipt("receipt.db"), Clients.read("shufflers.json")), bound, log)
"""
_CLI = "from noisette.cli import main; main()"


class Process:
    """A service of ours that listens on a port, always the same one after the first start."""

    def __init__(self, folder: Path, code: str, *arguments: str) -> None:
        self._folder, self._code, self._arguments = folder, code, arguments
        self._running: Any = None
        self._log = folder / f"log-{id(self)}.txt"  # a pipe that nobody reads would stop it
        self.port = 0

    def start(self) -> str:
        """Start it and return its address."""
        with self._log.open("w", encoding="utf-8") as log:
            self._running = subprocess.Popen(
                [sys.executable, "-c", self._code, *(one.replace("PORT", str(self.port)) for one in self._arguments)],
                cwd=self._folder,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=os.environ | {"PYTHONUNBUFFERED": "1"},
            )
        for line in self._running.stdout:
            if found := re.search(r"https?://[^:]+:(\d+)", line):
                self.port = int(found[1])
                return found[0]
        raise AssertionError(self._log.read_text(encoding="utf-8"))

    @property
    def pid(self) -> int:
        """Number of the process."""
        return int(self._running.pid)

    def stop(self, number: int = signal.SIGKILL) -> tuple[int, str]:
        """End it with a signal, if it runs, and return its exit code and what it logged."""
        if self._running is None:
            return 0, ""
        running, self._running = self._running, None
        running.send_signal(number)
        running.communicate(timeout=300)
        return running.returncode, self._log.read_text(encoding="utf-8")


def shuffler(folder: Path, server: str, *options: str) -> Process:
    """Return `noisette federate shuffler` in a folder with its clients and credentials."""
    words = ["federate", "shuffler", "--clients", "clients.json", "--credentials", "shuffler.json", "--server", server]
    return Process(folder, _CLI, *words, "--port", "PORT", *options)


def receiver(folder: Path) -> Process:
    """Return a receiver in a folder with the shuffler's secret."""
    return Process(folder, _RECEIVER, "PORT")
