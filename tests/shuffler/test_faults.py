"""Accepted means durable, and forwarded once: real processes are killed under load, and no value is lost."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from tests.shuffler.certificates import make_certificates
from tests.shuffler.helpers import KEY, values_of
from tests.shuffler.processes import Process, receiver, shuffler

from noisette.shuffler import PacketLayout, Receipt, Sender
from noisette.shuffler.clients import enrol, read_credentials

CLIENTS, ROUNDS = 12, 3
LAYOUT = PacketLayout(dims=600, batch=10)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    enrol(tmp_path / "clients.json", [f"c{number}" for number in range(CLIENTS)], folder=tmp_path / "own")
    enrol(tmp_path / "shufflers.json", ["shuffler"], folder=tmp_path)
    return tmp_path


@pytest.fixture
def started() -> Iterator[list[Process]]:
    """Processes that end with the test."""
    made: list[Process] = []
    yield made
    for one in made:
        one.stop()


def _work(folder: Path, url: str, client: int, sent: list[int]) -> None:
    """Send the values of all rounds as one client, however often the shuffler dies."""
    name, secret = read_credentials(folder / "own" / f"c{client}.json")
    to: dict[str, Any] = {"client": name, "secret": secret, "server": KEY.public.text, "attempts": 40, "timeout": 5.0}
    with Sender.over_http(url, **to, sleep=lambda seconds: time.sleep(min(seconds, 0.2))) as sender:
        for number in range(ROUNDS):
            done = sender.send(values_of(client, LAYOUT), LAYOUT, context="run", number=number, spread=0.2)
            assert done.known == 0  # an attempt whose answer was lost is not taken for a replay
            sent.append(done.packets)


@pytest.mark.long
def test_killed_under_load(folder: Path, started: list[Process]) -> None:
    """Kill shuffler and receiver at random moments while twelve clients send: each value arrives once, none is lost."""
    clock = random.Random(5)
    behind = receiver(folder)
    front = shuffler(folder, behind.start(), "--minimum", str(CLIENTS))
    started += [front, behind]
    url = front.start()
    sent: list[list[int]] = [[] for _ in range(CLIENTS)]
    threads = [Thread(target=_work, args=(folder, url, client, sent[client])) for client in range(CLIENTS)]
    for thread in threads:
        thread.start()
    kills = 0
    while kills < 4:
        time.sleep(clock.uniform(0.1, 0.5))
        victim = clock.choice([front, front, behind])
        code, _ = victim.stop(signal.SIGKILL)
        assert code == -signal.SIGKILL
        kills += any(thread.is_alive() for thread in threads) or victim is behind
        victim.start()
    for thread in threads:
        thread.join()
    assert sent == [[LAYOUT.blocks] * ROUNDS] * CLIENTS
    receipt = Receipt(folder / "receipt.db")
    for number in range(ROUNDS):
        assert receipt.wait("run", number, timeout=300)
        _reconcile(receipt, number)
    receipt.close()
    code, errors = front.stop(signal.SIGTERM)
    assert code == 0, errors
    assert [json.loads(line)["event"] for line in errors.splitlines()][-1] == "stopped"


def _reconcile(receipt: Receipt, number: int) -> None:
    """Check that every position of a round has every client's value exactly once."""
    everyone = np.sort(np.stack([values_of(client, LAYOUT) for client in range(CLIENTS)]), axis=0)
    positions = 0
    for one in receipt.read("run", number, LAYOUT, KEY):
        width = one.values.shape[1]
        assert one.rejected == 0
        assert np.sort(one.values, axis=0).tolist() == everyone[:, one.position : one.position + width].tolist()
        positions += width
    assert positions == LAYOUT.dims


def test_a_missing_or_double_value_is_seen(tmp_path: Path) -> None:
    """The twin: reconciliation rejects a receipt that lacks a client's packet, and one with another in its place."""
    from noisette.shuffler import InProcess

    for clients in (range(CLIENTS - 1), [*range(CLIENTS - 1), 0]):
        with InProcess(minimum=2, key=KEY) as simulated:
            for index, client in enumerate(clients):
                sender = simulated.sender(f"s{index}")
                sender.send(values_of(client, LAYOUT), LAYOUT, context="run", number=0)
            simulated.deliver()
            with pytest.raises(AssertionError):
                _reconcile(simulated.receipt, 0)


@pytest.mark.long
def test_below_the_minimum_nothing_leaves_even_after_a_restart(folder: Path, started: list[Process]) -> None:
    behind = receiver(folder)
    front = shuffler(folder, behind.start(), "--minimum", "3")
    started += [front, behind]
    for client in (0, 1):
        url = front.start()
        _send_one(folder, url, client)
        time.sleep(0.5)
        front.stop(signal.SIGKILL)
    receipt = Receipt(folder / "receipt.db")
    assert receipt.batches("run", 0) == 0
    _send_one(folder, front.start(), 2)
    assert receipt.wait("run", 0, timeout=300)
    assert [one.values.shape[0] for one in receipt.read("run", 0, LAYOUT, KEY)] == [3] * LAYOUT.blocks
    receipt.close()


def _send_one(folder: Path, url: str, client: int) -> None:
    name, secret = read_credentials(folder / "own" / f"c{client}.json")
    with Sender.over_http(url, client=name, secret=secret, server=KEY.public.text) as sender:
        sender.send(values_of(client, LAYOUT), LAYOUT, context="run", number=0)


def _megabytes(pid: int) -> float:
    """Return the largest memory that a process has had."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024


@pytest.mark.long
def test_memory_is_bounded(folder: Path, started: list[Process]) -> None:
    """After a batch of 25 MB one of 50 passes, and memory grows by less than half of that."""
    layout = PacketLayout(dims=2**19, batch=2**13)
    behind = receiver(folder)
    front = shuffler(folder, behind.start(), "--minimum", str(CLIENTS))
    started += [front, behind]
    url = front.start()
    time.sleep(0.3)
    receipt = Receipt(folder / "receipt.db")
    _post_all(folder, url, PacketLayout(dims=2**18, batch=2**13), number=0)  # full posts and batches on every thread
    assert receipt.wait("run", 0, timeout=300)
    before = _megabytes(front.pid), _megabytes(behind.pid)
    _post_all(folder, url, layout, number=1)
    assert receipt.wait("run", 1, timeout=300)
    assert (folder / "receipt.db").stat().st_size > 45e6
    grown = _megabytes(front.pid) - before[0], _megabytes(behind.pid) - before[1]
    assert max(grown) < 24, grown
    receipt.close()


def _post_all(folder: Path, url: str, layout: PacketLayout, *, number: int) -> None:
    """Send as every client, the same sealed values: what they are does not matter here."""
    for client in range(CLIENTS):
        name, secret = read_credentials(folder / "own" / f"c{client}.json")
        with Sender.over_http(url, client=name, secret=secret, server=KEY.public.text) as sender:
            sender.send(np.zeros(layout.dims), layout, context="run", number=number)


@pytest.mark.long
def test_https(folder: Path, started: list[Process]) -> None:
    """Clients that know the authority send; those that do not, do not."""
    from noisette.shuffler.sender import NotSent

    make_certificates(folder)
    behind = receiver(folder)
    tls = ("--certificate", "cert.pem", "--key", "key.pem")
    front = shuffler(folder, behind.start(), "--minimum", "2", *tls)
    started += [front, behind]
    url = front.start()
    assert url.startswith("https://")
    name, secret = read_credentials(folder / "own" / "c0.json")
    to: dict[str, Any] = {"client": name, "secret": secret, "server": KEY.public.text}
    with Sender.over_http(url, **to, authority=folder / "ca.pem") as sender:
        assert sender.send(values_of(0, LAYOUT), LAYOUT, context="run", number=0).packets == LAYOUT.blocks
    with (
        Sender.over_http(url, **to, attempts=1) as sender,
        pytest.raises(NotSent, match="ConnectError"),
    ):
        sender.send(values_of(0, LAYOUT), LAYOUT, context="run", number=1)


def test_the_command_line(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from noisette.cli import verbs

    def run(*words: Any) -> Any:
        return CliRunner().invoke(verbs, ["federate", *map(str, words)])

    made = run("enrol", tmp_path / "clients.json", "a", "b", "--to", tmp_path / "own", "--json")
    assert json.loads(made.stdout)["files"] == [str(tmp_path / "own" / f"{name}.json") for name in "ab"]
    first = run("key", tmp_path / "server.pem")
    assert len(first.stdout.strip()) == 44
    assert json.loads(run("key", tmp_path / "server.pem", "--json").stdout)["public_key"] == first.stdout.strip()
    options = ["--clients", tmp_path / "clients.json", "--server", "http://127.0.0.1:1", "--credentials"]
    few = run("shuffler", *options, tmp_path / "own" / "a.json", "--minimum", 3)
    assert few.exit_code == 2
    assert "--minimum 3 <= 2" in " ".join(few.stderr.split())
    both = run("shuffler", *options, tmp_path / "clients.json", "--minimum", 2)
    assert both.exit_code == 2
    assert "expected one name" in " ".join(both.stderr.split())
    half = run("shuffler", *options, tmp_path / "own" / "a.json", "--minimum", 2, "--key", "key.pem")
    assert half.exit_code == 2
    assert not os.path.exists("shuffler.db")
