"""Accepted means durable: a real server is killed under load, and afterwards every count is exact."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event

import httpx
import pytest
from tests.collector.faults import REPORTS, Counts, Load, collector
from tests.collector.helpers import COMMUTE, PERSON, accept, auth, entries, entry, until
from tests.shuffler.processes import Process

from noisette.collector import Store
from noisette.survey.campaigns import Campaign


@pytest.fixture
def database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'reports.db'}"


@pytest.fixture
def server(tmp_path: Path, database: str) -> Iterator[Process]:
    made = collector(tmp_path, database)
    yield made
    made.stop()


@pytest.mark.long
def test_killed_under_load(server: Process, database: str, campaign: Campaign) -> None:
    """Acknowledged is stored, stored is in the sums, and retries count nothing twice: exactly, after every kill."""
    load = Load(campaign, threads=3)
    for _ in range(2):
        load.until_killed(server.start(), server.stop)
        assert load.reconcile(database).exact
    url = server.start()
    for queue in load.unsent:  # what was under way at the last kill is sent again
        load.send(url, queue, Event())
    found = load.reconcile(database)
    assert found.exact
    assert found.stored == found.acknowledged
    assert _in_tree(database) > 0, "no digest went on from the log: that was not tested"
    code, errors = server.stop(signal.SIGTERM)
    assert code == 0, errors
    assert [json.loads(line)["event"] for line in errors.splitlines()][-1] == "stopped"


def _in_tree(database: str) -> int:
    store = Store(database)
    with store.reading() as connection:
        found = connection.exec_driver_sql("SELECT count(*) FROM seen").scalar_one()
    store.close()
    return int(found)


def test_a_sum_that_misses_one_is_seen(tmp_path: Path, campaign: Campaign) -> None:
    """The twin: reconciliation rejects a database that lacks one stored report, or the digests of one."""
    path = tmp_path / "reports.db"
    for table in ("blocks", "digest_log"):
        damage = f"DELETE FROM {table} WHERE number = (SELECT max(number) FROM {table})"  # numbers are drawn at random
        path.unlink(missing_ok=True)
        store = Store(f"sqlite:///{path}")
        store.register(campaign)
        sent = entries(campaign, 4)
        for one in sent:
            accept(store, campaign, one)
        keys = {one["key"] for one in sent}
        load = Load(campaign, threads=1, acknowledged=keys, sent=keys)
        assert load.reconcile(f"sqlite:///{path}") == Counts(4, 4, 0, 0)
        with store.writing() as connection:
            connection.exec_driver_sql(damage)
        store.close()
        with pytest.raises(AssertionError):
            assert load.reconcile(f"sqlite:///{path}").exact


def test_an_acknowledged_report_that_is_gone_is_seen(database: str, campaign: Campaign) -> None:
    """The twin: one that was acknowledged and is not there is counted as lost, one that nobody sent as invented."""
    store = Store(database)
    store.register(campaign)
    sent = entries(campaign, 4)
    accept(store, campaign, *sent)
    store.close()
    keys = {one["key"] for one in sent}
    assert Load(campaign, 1, acknowledged=keys | {"k" * 16}, sent=keys | {"k" * 16}).reconcile(database).lost == 1
    assert Load(campaign, 1, acknowledged=set(), sent=set(sorted(keys)[1:])).reconcile(database).invented == 1


def _refuses(port: int) -> bool:
    """Tell whether nobody listens any more."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=300).close()
    except ConnectionError:
        return True
    return False


@pytest.mark.long
def test_a_request_that_has_begun_is_finished(server: Process, database: str, campaign: Campaign) -> None:
    """SIGTERM while a body is on its way: the report is stored and acknowledged, then the process ends with code 0."""
    server.start()
    body = json.dumps({"version": 1} | entry(campaign.privatize(PERSON, rng=1))).encode()
    headers = {"host": "localhost", "content-length": len(body), "expect": "100-continue", **auth("device")}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    with socket.create_connection(("127.0.0.1", server.port), timeout=300) as wire, wire.makefile("rb") as answers:
        wire.sendall(f"POST {REPORTS} HTTP/1.1\r\n{head}content-type: application/json\r\n\r\n".encode())
        assert answers.readline() + answers.readline() == b"HTTP/1.1 100 Continue\r\n\r\n"  # it waits for the body
        wire.sendall(body[:20])
        os.kill(server.pid, signal.SIGTERM)
        until(lambda: _refuses(server.port))
        wire.sendall(body[20:])
        assert answers.readline().startswith(b"HTTP/1.1 201 ")
    code, errors = server.stop(0)  # no more than waiting for its end
    assert code == 0, errors
    store = Store(database)
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


def _workers(parent: int) -> list[int]:
    """Return the processes that a parent has and that run; one that was killed is gone at any moment."""
    found = []
    for child in Path(f"/proc/{parent}/task/{parent}/children").read_text(encoding="ascii").split():
        with suppress(FileNotFoundError, ProcessLookupError):
            found += [int(child)] if Path(f"/proc/{child}/cmdline").read_bytes() else []
    return found


EARLY = """
import logging, os, signal, time
from noisette._service import run_workers

def fork(real=os.fork):
    child = real()
    if not child:  # the service is told to end before this worker is known to it, or ready for a signal itself
        os.kill(os.getppid(), signal.SIGTERM)
        time.sleep(0.5)
    return child

os.fork = fork
run_workers(2, lambda: time.sleep(3600), logging.getLogger("workers"))
"""


@pytest.mark.long
def test_workers_end_even_while_they_start() -> None:
    # a worker that is not told to end sleeps for an hour
    assert subprocess.run([sys.executable, "-c", EARLY], check=False, timeout=600).returncode == 0


@pytest.mark.long
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_several_workers_lose_and_double_nothing(
    campaign: Campaign, tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    """Two processes behind one port, one of which is killed now and then and comes back."""
    database = f"sqlite:///{tmp_path / 'r.db'}"
    if kind == "postgresql":
        database = request.getfixturevalue("postgres").new_database()
    process = collector(tmp_path, database, "--workers", "2")
    load = Load(campaign, threads=4)
    url = process.start()
    try:
        for _ in range(3):
            until(lambda: len(_workers(process.pid)) == 2)
            load.until_killed(url, lambda: os.kill(_workers(process.pid)[0], signal.SIGKILL), least=100)
        until(lambda: httpx.get(f"{url}/ready", timeout=60).status_code == 200)
    finally:
        code, _ = process.stop(signal.SIGTERM)
    assert code == 0
    assert load.reconcile(database).exact
