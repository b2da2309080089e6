"""A collector in a process of its own under attack, and the honest device that goes on beside."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx
from tests.collector.helpers import COMMUTE, KEYS, PERSON, SECRET, auth, entry
from tests.shuffler.processes import Process

from noisette.survey.campaigns import Campaign

_CLI = "from noisette.cli import main; main()"


def collector(folder: Path, *campaigns: dict[str, Any], options: tuple[str, ...] = ()) -> Process:
    """Return `noisette serve` for campaigns, the one of the tests by default."""
    keys = {role: [key] for role, key in KEYS.items()} | {"enrolment": [SECRET]}
    (folder / "keys.yaml").write_text(json.dumps(keys), encoding="utf-8")
    names = []
    for fields in campaigns or (COMMUTE,):
        names.append(f"{fields['id']}.yaml")
        (folder / names[-1]).write_text(json.dumps(fields), encoding="utf-8")  # JSON is YAML
    return Process(folder, _CLI, "serve", *names, "--keys", "keys.yaml", "--port", "PORT", *options)


@contextmanager
def started(process: Process) -> Iterator[tuple[str, int]]:
    """Give address and pid of a process that is ended afterwards."""
    url = process.start()
    try:
        yield url, process.pid
    finally:
        process.stop()


def memory(pid: int, what: str = "VmRSS") -> int:
    """Return the bytes of memory that a process has, or with ``VmHWM`` has had at most."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith(what)) * 1024


def dialled(url: str) -> socket.socket:
    """Open a connection, with nothing sent."""
    parsed = httpx.URL(url)
    return socket.create_connection((parsed.host, parsed.port), timeout=300)


def head(path: str, *lines: str, method: str = "POST", length: int = 0, key: str | None = "device") -> bytes:
    """Return the head of a request, with a key of a role unless it is None."""
    own = [f"{method} {path} HTTP/1.1", "Host: here", f"Content-Length: {length}", *lines]
    own += [] if key is None else [f"Authorization: Bearer {KEYS[key]}"]
    return "\r\n".join([*own, "", ""]).encode()


def answered(connection: socket.socket) -> str:
    """Return what comes until the other side ends, as far as it can be had."""
    parts = []
    try:
        while part := connection.recv(1 << 16):
            parts.append(part)
    except ConnectionError:
        pass
    return b"".join(parts).decode()


class Honest:
    """A device that sends a report and asks for /health all the while, and what it met with."""

    def __init__(self, url: str, campaign: Campaign | None = None) -> None:
        self._url, self._campaign = url, campaign or Campaign.from_dict(COMMUTE)
        self.slowest, self.answers, self._ended = 0.0, [], Event()
        self._thread = Thread(target=self._run)

    def __enter__(self) -> Honest:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        report = self._campaign.privatize(PERSON, rng=1)
        with httpx.Client(base_url=self._url, headers=auth("device"), timeout=120) as client:
            while not self._ended.wait(0.02):
                began = time.monotonic()
                try:
                    client.get("/health").raise_for_status()
                    sent = client.post("/campaigns/commute/reports", json={"version": 1} | entry(report))
                    self.answers.append(sent.status_code)
                except httpx.TransportError as error:  # a device tries again
                    self.answers.append(type(error).__name__)
                self.slowest = max(self.slowest, time.monotonic() - began)
