"""Accepted means durable: a real server is killed under load, and afterwards every count is exact."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx
import numpy as np
import pytest
from tests.collector.helpers import COMMUTE, KEYS, PERSON, accept, auth, digests, entries, entry, reconcile

from noisette.collector import Campaign, Store
from noisette.collector.seen import key_digests, pieces

REPORTS = "/campaigns/commute/reports"
THREADS, KILLS = 3, 2
# digests wait in the log a million at a time; here so few that a kill comes while some go on into the tree
SERVE = "from noisette.collector import fresh; fresh.MOST = 300; from noisette.cli import main; main()"


class Server:
    """`noisette serve` in a process of its own."""

    def __init__(self, folder: Path, database: str) -> None:
        self._folder, self.database = folder, database
        self.process: Any = None
        (folder / "campaign.yaml").write_text(json.dumps(COMMUTE), encoding="utf-8")  # JSON is YAML
        (folder / "keys.yaml").write_text(json.dumps({role: [key] for role, key in KEYS.items()}), encoding="utf-8")

    def start(self) -> str:
        """Start it and return its address."""
        command = ["serve", "campaign.yaml", "--keys", "keys.yaml", "--port", "0", "--database", self.database]
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVE, *command],
            cwd=self._folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if found := re.search(r"http://\S+", line):
                return found[0]
        raise AssertionError(self.process.communicate()[1])

    def kill(self) -> None:
        """End it if a test left it running."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.communicate()

    def stop(self, number: int) -> tuple[int, str]:
        """End it with a signal and return its exit code and what it logged."""
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=30)
        return self.process.returncode, errors


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path, f"sqlite:///{tmp_path / 'reports.db'}")
    yield made
    made.kill()


def _load(url: str, batches: list[list[dict[str, Any]]], acknowledged: set[str], stop: Event) -> None:
    """Send one batch after the other until told to stop or the server is gone, and note what was acknowledged."""
    with httpx.Client(base_url=url, headers=auth("device"), timeout=10) as client:
        while batches and not stop.is_set():
            try:
                answer = client.post(REPORTS, json={"version": 1, "reports": batches[0]})
            except httpx.TransportError:
                return
            assert answer.is_success, answer.text
            acknowledged.update(one["key"] for one in batches.pop(0))


def test_killed_under_load(server: Server, campaign: Campaign) -> None:
    """Acknowledged is stored, stored is in the sums, and retries count nothing twice: exactly, after every kill."""
    clock, rng = random.Random(11), np.random.default_rng(11)
    reports = [campaign.privatize(PERSON, rng=rng) for _ in range(50)]  # many users may send the same
    acknowledged: set[str] = set()
    unsent: list[list[list[dict[str, Any]]]] = [[] for _ in range(THREADS)]
    sent: set[str] = set()
    for _ in range(KILLS):
        for batches in unsent:  # those at the head may or may not have been stored before the kill
            batches += [[entry(report) for report in reports[: clock.choice((1, 7, 50))]] for _ in range(400)]
            sent.update(one["key"] for batch in batches for one in batch)
        url, stop = server.start(), Event()
        threads = [Thread(target=_load, args=(url, batches, acknowledged, stop)) for batches in unsent]
        for thread in threads:
            thread.start()
        before, deadline = len(acknowledged), time.monotonic() + 30
        while len(acknowledged) < before + 300 and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(clock.uniform(0, 0.2))
        code, _ = server.stop(signal.SIGKILL)
        for thread in threads:
            thread.join()
        assert code == -signal.SIGKILL
        assert any(unsent), "everything was sent before the kill: nothing was tested"
        _reconcile(server.database, campaign, acknowledged, sent)
    for batches in unsent:  # what was under way at the last kill is sent again, and a part of what was acknowledged
        del batches[5:]
    url = server.start()
    for batches in unsent:
        _load(url, batches, acknowledged, Event())
    stored = _reconcile(server.database, campaign, acknowledged, sent)
    assert stored == acknowledged
    assert _in_tree(server.database) > 0, "no digest went on from the log: that was not tested"
    code, errors = server.stop(signal.SIGTERM)
    assert code == 0, errors
    assert [json.loads(line)["event"] for line in errors.splitlines()][-1] == "stopped"


def _reconcile(database: str, campaign: Campaign, acknowledged: set[str], sent: set[str]) -> set[str]:
    """Check that all that was acknowledged is stored once and is in the sums, and return the stored keys."""
    store = Store(database)
    users = reconcile(store, campaign)
    names = sorted(sent)
    known = digests(store)
    keys = {
        name for digest, name in zip(pieces(key_digests(campaign.id, names)), names, strict=True) if digest in known
    }
    store.close()
    assert len(known) == 2 * users, "a token or a key that belongs to no report"
    assert len(keys) == users
    assert acknowledged <= keys <= sent
    return keys


def _in_tree(database: str) -> int:
    store = Store(database)
    with store.reading() as connection:
        found = connection.exec_driver_sql("SELECT count(*) FROM seen").scalar_one()
    store.close()
    return int(found)


def test_a_sum_that_misses_one_is_seen(tmp_path: Path, campaign: Campaign) -> None:
    """The twin: reconciliation rejects a database that lacks one stored report, or one digest."""
    path = tmp_path / "reports.db"
    for damage in ("DELETE FROM blocks WHERE number = 2", "DELETE FROM fresh WHERE number = 2"):
        path.unlink(missing_ok=True)
        store = Store(f"sqlite:///{path}")
        store.register(campaign)
        sent = entries(campaign, 4)
        for one in sent:
            accept(store, campaign, one)
        keys = {one["key"] for one in sent}
        assert _reconcile(f"sqlite:///{path}", campaign, keys, keys) == keys
        with store.writing() as connection:
            connection.exec_driver_sql(damage)
        store.close()
        with pytest.raises(AssertionError):
            _reconcile(f"sqlite:///{path}", campaign, keys, keys)


def test_a_request_that_has_begun_is_finished(server: Server, campaign: Campaign) -> None:
    """SIGTERM while a body is on its way: the report is stored and acknowledged, then the process ends with code 0."""
    url = server.start()
    body = json.dumps({"version": 1} | entry(campaign.privatize(PERSON, rng=1))).encode()

    def slowly() -> Any:
        yield body[:20]
        time.sleep(0.5)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        yield body[20:]

    answer = httpx.post(url + REPORTS, content=slowly(), headers=auth("device"), timeout=30)
    assert answer.status_code == 201
    _, errors = server.process.communicate(timeout=30)
    assert server.process.returncode == 0, errors
    store = Store(server.database)
    assert store.periods(campaign) == {"once": 1}
    store.close()


def test_the_command_line_shows_the_plan_and_what_is_wrong(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from noisette.cli import verbs

    path = tmp_path / "campaign.yaml"
    path.write_text(json.dumps(COMMUTE), encoding="utf-8")
    run = CliRunner().invoke(verbs, ["serve", str(path), "--plan", "--json"])
    assert run.exit_code == 0, run.output
    made = json.loads(run.stdout)["campaigns"][0]
    assert made["predicted"] == dict(
        zip(made["predicted"], Campaign.from_dict(COMMUTE).predict().tolist(), strict=True)
    )
    shown = CliRunner().invoke(verbs, ["serve", str(path), "--plan"])
    assert "by=bike" in shown.output
    path.write_text("id: x\nepsilon: -1\nusers: 5\nattributes: [{name: a, range: [0, 1]}]\n", encoding="utf-8")
    run = CliRunner().invoke(verbs, ["serve", str(path), "--plan"])
    assert run.exit_code == 2
    assert "Expected epsilon=-1 > 0" in " ".join(run.stderr.split())
    path.write_text(json.dumps(COMMUTE), encoding="utf-8")
    (tmp_path / "keys.yaml").write_text("device: [short]", encoding="utf-8")
    run = CliRunner().invoke(verbs, ["serve", str(path), "--keys", str(tmp_path / "keys.yaml")])
    assert run.exit_code == 2
    assert "at least 16 characters" in " ".join(run.stderr.split())
