"""The service over HTTP: who may send, what is refused and why, what an operator sees, and what the server gets."""

from __future__ import annotations

import json
import logging
import sqlite3
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi import Request
from tests.shuffler.conftest import OPERATOR, Running
from tests.shuffler.helpers import KEY, LAYOUT, fresh, post_of

from noisette._files import ChangingFile
from noisette._service import Problem
from noisette.shuffler import Clients, PacketLayout, Round, Shuffler, create_app, new_secret, receiving, service
from noisette.shuffler._http import Operators
from noisette.shuffler.clients import SIGNATURE, sign
from noisette.shuffler.sender import Http
from noisette.shuffler.wire import LARGEST_BLOCKS, Frame


def _post(url: str, path: str, client: str, secret: str, body: bytes, number: str | None = None) -> httpx.Response:
    return httpx.post(url + path, content=body, headers=sign(secret, path, client, number or fresh(), body))


def _counter(url: str, line: str) -> float:
    text = httpx.get(url + "/metrics", headers=OPERATOR).text
    return next((float(one.rsplit(" ", 1)[1]) for one in text.splitlines() if one.startswith(line + " ")), 0.0)


def test_from_clients_to_the_server(running: Running) -> None:
    for number in range(2):
        running.send(number)
    assert not running.receipt.wait("run", 1, timeout=0.7)  # two of three: nothing leaves
    running.send(2)
    assert running.receipt.wait("run", 1, timeout=300)
    for one in running.receipt.read("run", 1, LAYOUT, KEY):
        got = np.sort(one.values, axis=0)
        positions = one.position + np.arange(one.values.shape[1])
        assert got.tolist() == [[1000.0 * client + p for p in positions] for client in range(3)]
    assert _counter(running.shuffler, "noisette_packets_accepted_total") == 9
    assert _counter(running.shuffler, "noisette_packets_forwarded_total") == 9
    assert _counter(running.shuffler, 'noisette_packets_stored{state="waiting"}') == 0
    assert _counter(running.receiver, "noisette_packets_accepted_total") == 9


def test_what_is_refused(running: Running) -> None:
    secret, body = running.secret_of["client-0"], post_of(0)
    number = fresh()
    url = running.shuffler
    assert _post(url, "/posts", "client-0", secret, body, number).status_code == 201
    again = _post(url, "/posts", "client-0", secret, body, number)
    assert (again.status_code, again.json()) == (200, {"accepted": 0, "repeated": 3})
    cases = [
        (_post(url, "/posts", "client-0", new_secret(), body), 401, "forged"),
        (_post(url, "/posts", "stranger", secret, body), 401, "forged"),
        (_post(url, "/posts", "client-0", secret, body), 409, "already-sent"),
        (_post(url, "/posts", "client-0", secret, post_of(0, number=2), number), 409, "post-reused"),
        (_post(url, "/posts", "client-0", secret, b"nonsense"), 400, "malformed"),
        (_post(url, "/posts", "client-0", secret, b""), 400, "malformed"),
        (_post(url, "/posts", "client-0", secret, bytes(100_001)), 413, "too-large"),
        (_post(running.receiver, "/shuffled", "client-0", secret, body), 401, "forged"),
        (_post(running.receiver, "/shuffled", "shuffler", running.own["shuffler"], body), 400, "malformed"),
    ]
    for answer, status, reason in cases:
        assert (answer.status_code, answer.json()["reason"]) == (status, reason)
    assert httpx.post(url + "/posts", content=body).status_code == 401
    assert httpx.get(url + "/posts").status_code == 405
    for reason, count in (("forged", 3), ("already-sent", 1), ("malformed", 2), ("too-large", 1)):
        assert _counter(url, f'noisette_posts_rejected_total{{reason="{reason}"}}') == count
    assert _counter(url, 'noisette_packets_stored{state="waiting"}') == 3


@pytest.mark.long
def test_anything_signed_is_answered_with_a_reason(running: Running) -> None:
    """Bodies that a broken or malicious client may sign: each is accepted or a 4xx with a reason, never a fault."""
    rng = np.random.default_rng(3)
    name, secret = "client-1", running.secret_of["client-1"]
    strange = [Round(text, 1, 3) for text in ("x'; DROP TABLE waves; --", "\x00", "<b>é</b>\n", "a" * 200)]
    bodies = [Frame(own, [(0, bytes(60)), (2, bytes(60))]).encode() for own in strange]
    bodies.append(Frame(Round("huge", 2**32 - 1, LARGEST_BLOCKS), [(LARGEST_BLOCKS - 1, b"x")]).encode())
    seeds = [post_of(1, number=9), *bodies]
    for _ in range(150):
        body = bytearray(seeds[rng.integers(len(seeds))])
        for place in rng.integers(0, min(len(body), 40), size=rng.integers(1, 4)):
            body[place] = rng.integers(256)
        bodies.append(bytes(body[: rng.integers(1, len(body) + 1)]) if rng.random() < 0.3 else bytes(body))
    statuses = set()
    with httpx.Client(base_url=running.shuffler) as client:
        for body in bodies:
            answer = client.post("/posts", content=body, headers=sign(secret, "/posts", name, fresh(), body))
            assert answer.status_code in (201, 400, 409), answer.text
            assert answer.is_success or answer.json()["reason"] in ("malformed", "already-sent")
            statuses.add(answer.status_code)
    assert statuses == {201, 400, 409}
    assert httpx.get(running.shuffler + "/ready").status_code == 200


def test_a_store_that_fails_asks_to_try_again(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(Shuffler, "accept", broken)
    answer = _post(running.shuffler, "/posts", "client-0", running.secret_of["client-0"], post_of(0))
    assert (answer.status_code, answer.json()["reason"]) == (503, "unavailable")


def test_health(running: Running) -> None:
    assert httpx.get(running.shuffler + "/health").json() == {"status": "ok"}
    assert httpx.get(running.shuffler + "/ready").json() == {"status": "ready", "batches_aside": 0}
    assert httpx.get(running.receiver + "/health").json() == {"status": "ok"}


@pytest.mark.long
def test_ready_is_false_when_packets_would_be_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full store, and a server that does not answer: nothing that was accepted is lost, and /ready says why not."""
    monkeypatch.setattr("noisette.shuffler.service._SECONDS_BETWEEN", 0.0)
    secret_of = {f"client-{number}": new_secret() for number in range(60)}
    nobody = Http("http://127.0.0.1:9", client="shuffler", secret=new_secret(), attempts=1)
    shuffler, layout = Shuffler(tmp_path / "s.db", minimum=2, largest=2**18), PacketLayout(500, 500)
    with receiving(create_app(shuffler, Clients(secret_of), nobody)) as url:
        assert httpx.get(url + "/ready").status_code == 200
        found = [
            _post(url, "/posts", name, secret, post_of(number, layout=layout)).status_code
            for number, (name, secret) in enumerate(secret_of.items())
        ]
        assert set(found) == {201, 507}
        full = httpx.get(url + "/ready")
        assert (full.status_code, full.json()["reason"]) == (503, "cannot-store")
        assert sum(one["packets"] for one in shuffler.batches()) == found.count(201)
        first, *others = (one["name"] for one in shuffler.batches())
        shuffler.operate(first, "drop")
        ready = httpx.get(url + "/ready")
        assert (ready.status_code, ready.json()["reason"]) == (503, "not-forwarding")
        for name in others:
            shuffler.operate(name, "drop")
        deadline = time.monotonic() + 300
        while httpx.get(url + "/ready").status_code != 200:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_operators_follow_their_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that is added opens at once, one that is taken out does no more, and a broken file changes nothing."""
    monkeypatch.setattr("noisette.shuffler._http.ChangingFile", partial(ChangingFile, every=0.0))
    path = tmp_path / "operators.json"
    path.write_text(json.dumps({"olga": "key-of-olga-in-tests"}), encoding="utf-8")
    operators = Operators.read(path)

    def known(key: str) -> str:
        try:
            return operators(Request({"type": "http", "headers": [(b"authorization", f"Bearer {key}".encode())]}))
        except Problem as error:
            return error.reason

    assert (known("key-of-olga-in-tests"), known("key-of-omar-in-tests")) == ("olga", "unauthorised")
    path.write_text(json.dumps({"omar": "key-of-omar-in-tests"}), encoding="utf-8")
    assert (known("key-of-olga-in-tests"), known("key-of-omar-in-tests")) == ("unauthorised", "omar")
    path.write_text("broken", encoding="utf-8")
    assert known("key-of-omar-in-tests") == "omar"
    for wrong in ('{"olga": "short"}', "[]x", '["olga"]'):
        path.write_text(wrong, encoding="utf-8")
        with pytest.raises(ValueError, match=r"operators\.json"):
            Operators.read(path)


def test_logs_and_metrics_tell_no_origin(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="noisette")
    for number in range(3):
        running.send(number)
    headers = sign(running.secret_of["client-4"], "/posts", "client-4", "number-of-the-post", b"x")
    httpx.post(running.shuffler + "/posts", content=b"x", headers=headers)
    assert running.receipt.wait("run", 1, timeout=300)
    told = [vars(record).get("fields", {}) for record in caplog.records if record.name.startswith("noisette")]
    assert not [one for one in told if one.get("route") == "/posts"]  # posts are logged ten minutes at a time
    assert {"context": "run", "round": 1, "smallest_set": 3} in told
    written = json.dumps(told) + httpx.get(running.shuffler + "/metrics", headers=OPERATOR).text
    for secret in ("client-", "number-of-the-post", headers[SIGNATURE], *running.secret_of.values()):
        assert secret not in written


def test_keys_of_operators_have_sixteen_letters_and_shorter_ones_are_refused() -> None:
    Operators({"long": "k" * 16})
    wrong: list[Any] = [{"long": "k" * 16, "short": "k" * 15}, {"short": "k" * 15}, ["k" * 16]]
    for keys in wrong:
        with pytest.raises(ValueError, match="keys of at least 16 letters"):
            Operators(keys)


def test_whether_packets_can_be_stored_is_looked_at_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now, pings = [50.0], []
    shuffler = SimpleNamespace(ping=lambda: pings.append(now[0]), batches=lambda: [{"state": "aside"}] * 2)
    ready = service._Ready(shuffler, SimpleNamespace(trouble=""))  # type: ignore[arg-type]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    for now[0] in (50.0, 50.5, 50.75, 51.0, 51.5, 52.0):
        assert json.loads(ready.answer().body) == {"status": "needs-attention", "batches_aside": 2}
    assert pings == [50.0, 51.0, 52.0]
