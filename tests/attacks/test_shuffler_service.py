"""Attacks on a shuffler and the collector behind it, each in a process of its own: before, each of these worked."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from tests.attacks.servers import collector, dialled, memory, started
from tests.collector.helpers import COMMUTE, KEYS, PERSON, auth, entry, until
from tests.shuffler.helpers import fresh
from tests.shuffler.processes import shuffler

from noisette.cli import verbs
from noisette.device import ShuffledClient
from noisette.device.sealed import label, pad
from noisette.shuffler import PublicKey, ServerKey
from noisette.shuffler.clients import enrol, keys_of, read_credentials, sign
from noisette.shuffler.wire import Frame, Round
from noisette.survey.campaigns import Campaign

pytestmark = pytest.mark.long

MINIMUM, CLIENTS = 8, 12
OPERATOR = {"Authorization": "Bearer the-key-of-olga-the-operator"}
CAMPAIGN = Campaign.from_dict(COMMUTE)


@dataclass
class Services:
    """A collector that states a minimum of 8, and the shuffler before it that waits for 2 only."""

    collector: str
    collector_pid: int
    shuffler: str
    shuffler_pid: int
    folder: Path
    key: PublicKey
    secret_of: dict[str, str]

    def device(self, number: int) -> ShuffledClient:
        """Return an honest device."""
        own = (f"c{number}", self.secret_of[f"c{number}"])
        state = self.folder / "devices" / own[0]
        through = {"shuffler": self.shuffler, "credentials": own, "public_key": self.key.text}
        return ShuffledClient(self.collector, state=state, api_key=KEYS["device"], epsilon=2.0, **through)

    def post(self, number: int, sealed: bytes, context: Round, minimum: int = 0) -> httpx.Response:
        """Post a packet as a client that does as it likes."""
        name, body = f"c{number}", Frame(context, [(0, sealed)]).encode()
        headers = sign(self.secret_of[name], "/posts", name, fresh(), body, minimum=minimum)
        return httpx.post(self.shuffler + "/posts", content=body, headers=headers, timeout=300)

    def arrived(self) -> dict[str, Any]:
        """Return what the collector says has arrived."""
        found = httpx.get(f"{self.collector}/campaigns/commute/shuffler", headers=auth("analyst"), timeout=300).json()
        return dict(found["arrived"])

    def users(self) -> int:
        """Return how many reports the collector has stored."""
        url = f"{self.collector}/campaigns/commute/estimates"
        return int(httpx.get(url, headers=auth("analyst"), timeout=300).json()["users"])

    def batches(self) -> list[dict[str, Any]]:
        """Return what the shuffler's operator sees."""
        return list(httpx.get(self.shuffler + "/batches", headers=OPERATOR, timeout=300).json()["batches"])

    def operate(self, *words: str) -> str:
        """Run `noisette shuffler` as its operator."""
        key = OPERATOR["Authorization"].split()[1]
        done = CliRunner().invoke(verbs, ["shuffler", *words, "--url", self.shuffler, "--key", key])
        assert done.exit_code == 0, done.output
        return str(done.stdout)


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    """Start both; what they need is in one folder."""
    enrol(tmp_path / "clients.json", [f"c{number}" for number in range(CLIENTS)], folder=tmp_path / "own")
    enrol(tmp_path / "shufflers.json", ["shuffler"], folder=tmp_path)
    ServerKey.generate().write(tmp_path / "server.pem")
    (tmp_path / "operators.json").write_text(json.dumps({"olga": OPERATOR["Authorization"].split()[1]}))
    secret_of = dict(read_credentials(tmp_path / "own" / f"c{number}.json") for number in range(CLIENTS))
    options = ("--shufflers", "shufflers.json", "--server-key", "server.pem", "--minimum", str(MINIMUM))
    with ExitStack() as stack:
        behind, behind_pid = stack.enter_context(started(collector(tmp_path, options=options)))
        front = shuffler(tmp_path, behind, "--minimum", "2", "--operators", "operators.json")
        url, pid = stack.enter_context(started(front))
        key = ServerKey.read(tmp_path / "server.pem").public
        yield Services(behind, behind_pid, url, pid, tmp_path, key, secret_of)


def report(**changes: Any) -> bytes:
    """Return a sound report, padded as a device pads it."""
    body = {"version": 1} | entry(CAMPAIGN.privatize(PERSON, rng=1)) | changes
    return pad(CAMPAIGN, body)


def test_a_batch_that_cannot_be_delivered_stops_no_other(services: Services) -> None:
    """Two clients send for a campaign that is not there: their batch is set aside, and an operator drops it."""
    ghost, mine = Round("ghost/once", 0, 1), label(CAMPAIGN, "once")
    for number in (10, 11):
        assert services.post(number, services.key.seal(report(), ghost.label(0)), ghost).status_code == 201
    until(lambda: [one["state"] for one in services.batches()] == ["aside"])
    told = httpx.get(services.shuffler + "/ready").json()
    assert told == {"status": "needs-attention", "batches_aside": 1}
    assert "unknown-campaign" in services.batches()[0]["reason"]
    for number in range(MINIMUM):
        with services.device(number) as device:
            device.answer("commute", PERSON)
            assert device.send().sent == 1
    until(lambda: services.users() == MINIMUM)
    # letters that are no base64 in a signature, which made the collector fail and the shuffler try for ever
    # from as many clients as make a batch: one more might wait alone for ever
    for number in (MINIMUM, MINIMUM + 1):
        assert services.post(number, services.key.seal(report(signature="é"), mine.label(0)), mine).status_code == 201
    until(lambda: [one["state"] for one in services.batches()] == ["aside"])
    name = services.batches()[0]["name"]
    assert name in services.operate("status")
    assert "retry" in services.operate("retry", name)
    until(lambda: [one["state"] for one in services.batches()] == ["aside"])
    assert "drop" in services.operate("drop", name)
    assert services.batches() == []
    until(lambda: httpx.get(services.shuffler + "/ready").json() == {"status": "ready", "batches_aside": 0})
    assert [one.split("  ")[1:] for one in services.operate("changes").splitlines()] == [
        ["olga", f"retry batch {name}"],
        ["olga", f"drop batch {name}"],
    ]
    assert services.users() == MINIMUM


def test_the_stated_minimum_is_kept_from_end_to_end(services: Services) -> None:
    """The shuffler's own minimum is 2: devices ask for the 8 that were stated, and what comes with fewer is refused."""
    context = label(CAMPAIGN, "once")
    for number in (8, 9, 10):  # who asks for nothing is forwarded in small batches, of which nothing is stored
        services.post(number, services.key.seal(report(), context.label(0)), context)
    for number in range(MINIMUM - 1):
        with services.device(number) as device:
            device.answer("commute", PERSON)
            assert device.send().sent == 1
    until(
        lambda: (
            [(one["state"], one["packets"]) for one in services.batches() if one["minimum"] == 8] == [("waiting", 7)]
        )
    )
    time.sleep(1.0)
    assert services.users() == 0
    assert services.arrived()["batches"] == 0
    with services.device(MINIMUM - 1) as device:
        device.answer("commute", PERSON)
        assert device.send().sent == 1
    until(lambda: services.users() == MINIMUM)
    found = services.arrived()
    assert (found["batches"], found["smallest"]) == (1, MINIMUM)


def test_uploads_of_strangers_are_not_held(services: Services) -> None:
    """150 uploads of 4 MB to either service, signed by nobody, are not held, and a device is answered meanwhile."""
    stranger = sign("0" * 64, "/posts", "c0", "post", b"x")
    half = stranger | {"Noisette-Mark": keys_of("1" * 64)[1]}
    for url, path, pid in (
        (services.shuffler, "/posts", services.shuffler_pid),
        (services.collector, "/shuffled", services.collector_pid),
    ):
        httpx.get(url + "/health", timeout=300)
        before = memory(pid)
        with ExitStack() as stack:
            for number in range(150):
                connection = stack.enter_context(dialled(url))
                _upload(connection, path, ({}, stranger, half)[number % 3])
            began = time.monotonic()
            assert httpx.get(url + "/health", timeout=300).status_code == 200
            waited = time.monotonic() - began
            grown = (memory(pid) - before) / 2**20
        print(f"{path}: {grown:.0f} MiB, /health after {waited:.2f} s")
        assert grown < 64
    with services.device(0) as device:
        device.answer("commute", PERSON)
        assert device.send().sent == 1


def _upload(connection: socket.socket, path: str, headers: dict[str, str]) -> None:
    """Send the head of a post and as much of 4 MB as the other side takes."""
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: here",
        "Content-Length: 4000000",
        *(f"{k}: {v}" for k, v in headers.items()),
    ]
    connection.sendall("\r\n".join([*lines, "", ""]).encode())
    connection.settimeout(1)
    try:
        for _ in range(60):
            connection.sendall(bytes(65536))
    except OSError:
        pass


def test_clients_come_and_go_while_it_runs(services: Services) -> None:
    """A device that is enrolled live may send at once, one that is revoked may not, and nobody else may do either."""
    context = label(CAMPAIGN, "once")
    for call in (
        lambda: httpx.get(services.shuffler + "/metrics"),
        lambda: httpx.get(services.shuffler + "/batches"),
        lambda: httpx.get(services.shuffler + "/clients", headers={"Authorization": "Bearer " + "x" * 30}),
        lambda: httpx.post(services.shuffler + "/clients", json={"names": ["mallory"]}),
        lambda: httpx.delete(services.shuffler + "/clients/c0", headers=auth("device")),
    ):
        answer: httpx.Response = call()
        assert (answer.status_code, answer.json()["reason"]) == (401, "unauthorised")
    services.operate("enrol", "newcomer", "--to", str(services.folder / "own"))
    _, services.secret_of["newcomer"] = read_credentials(services.folder / "own" / "newcomer.json")
    assert services.operate("clients").split() == sorted(services.secret_of)
    sealed: Callable[[], bytes] = lambda: services.key.seal(report(), context.label(0))  # noqa: E731
    body = Frame(context, [(0, sealed())]).encode()
    signed = sign(services.secret_of["newcomer"], "/posts", "newcomer", fresh(), body, minimum=9)
    assert httpx.post(services.shuffler + "/posts", content=body, headers=signed).status_code == 201
    services.operate("revoke", "c0")
    refused = services.post(0, sealed(), context, minimum=9)
    assert (refused.status_code, refused.json()["reason"]) == (401, "forged")
    assert services.post(1, sealed(), context, minimum=9).status_code == 201
    assert "c0" not in json.loads((services.folder / "clients.json").read_text())
    told = httpx.get(services.shuffler + "/metrics", headers=OPERATOR).text
    assert "noisette_clients_enrolled 12.0" in told
    assert 'noisette_packets_stored{state="waiting"} 2.0' in told
    for wrong in (["no name"], [], ["c1"], [5]):
        answer = httpx.post(services.shuffler + "/clients", json={"names": wrong}, headers=OPERATOR)
        assert (answer.status_code, answer.json()["reason"]) == (422, "bad-names")
    assert httpx.delete(services.shuffler + "/clients/nobody", headers=OPERATOR).status_code == 404
    assert httpx.post(services.shuffler + "/batches/nothing/drop", headers=OPERATOR).status_code == 404
    (waiting,) = services.batches()
    early = httpx.post(f"{services.shuffler}/batches/{waiting['name']}/retry", headers=OPERATOR)
    assert (early.status_code, early.json()["reason"]) == (409, "below-minimum")
