"""What stopped a collector from outside, tried on a process of its own while an honest device goes on."""

from __future__ import annotations

import base64
import json
import secrets
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from tests.attacks.servers import Honest, collector, dialled, head, memory, started
from tests.collector.helpers import COMMUTE, PERSON, auth, entry

from noisette.survey import batches
from noisette.survey.campaigns import Campaign

pytestmark = pytest.mark.long

MIB = 1 << 20
BOUND = 400 * MIB  # of memory that an attack may add, whatever it is; see docs/run-it-for-years.md
BLIND = COMMUTE | {"id": "blind", "period": "day", "answers": "fresh", "tokens": "blind"}
DAILY = COMMUTE | {"id": "daily", "period": "day", "answers": "fresh"}
TENSOR: dict[str, Any] = {
    "id": "tensor",
    "epsilon": 1.0,
    "delta": 1e-6,
    "users": 1000,
    "attributes": [{"name": "scan", "tensor": [2, 3], "range": [-1, 1]}],
    "mechanism": {"scan": "tensor-gaussian"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("collector")


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[tuple[str, int]]:
    with started(collector(folder, COMMUTE, BLIND, DAILY, TENSOR)) as found:
        yield found


@pytest.fixture
def honest(served: tuple[str, int]) -> Iterator[Honest]:
    """A device beside the attack: all its reports are taken, and memory stays within the bound."""
    url, pid = served
    before = memory(pid)
    with Honest(url) as device:
        yield device
    print(f"slowest {device.slowest:.2f} s, memory {(memory(pid, 'VmHWM') - before) / MIB:+.0f} MiB")
    assert set(device.answers) <= {201, "ReadError", "RemoteProtocolError", "ConnectError"}, set(device.answers)
    assert device.answers.count(201) > 0.9 * len(device.answers)
    assert device.slowest < 120  # it is answered, be the machine as busy as it is
    assert memory(pid) - before < BOUND


def test_junk_for_a_token_is_not_read_before_the_key(served: tuple[str, int], honest: Honest) -> None:
    url, pid = served
    for key in (None, "device"):
        with dialled(url) as client:
            client.sendall(head("/campaigns/blind/tokens", length=512 * MIB, key=key))
            said = client.recv(1 << 16)
            assert said.startswith(b"HTTP/1.1 401" if key is None else b"HTTP/1.1 413"), said
            try:
                for _ in range(512):
                    client.sendall(b"[[],[]," * (MIB // 7))
            except OSError:
                pass
    assert memory(pid, "VmHWM") < memory(pid) + BOUND


def test_nested_lists_are_refused_before_they_are_parsed(served: tuple[str, int], honest: Honest) -> None:
    url, _ = served
    one = json.dumps({"version": 1} | entry(None))
    for report in ("[" + "[]," * 1_300_000 + "[]]", "[" * 2_000_000, "[" + "{}," * 1_300_000 + "{}]"):
        body = one.replace('"report": null', f'"report": {report}')
        answer = httpx.post(f"{url}/campaigns/commute/reports", content=body, headers=auth("device"), timeout=300)
        assert (answer.status_code, answer.json()["reason"]) == (400, "malformed")
    body = json.dumps({"code": "1.x", "period": "once", "blinded": [[]] * 1000})
    answer = httpx.post(f"{url}/campaigns/blind/tokens", content=body, headers=auth("device"), timeout=300)
    assert answer.status_code in (413, 422)


def test_no_signing_key_is_made_for_what_a_report_names(served: tuple[str, int], honest: Honest, folder: Path) -> None:
    url, _ = served
    campaign = Campaign.from_dict(BLIND)
    signature = base64.b64encode(bytes(256)).decode()
    today = datetime.now(UTC)
    days = [(today - timedelta(days=days)).strftime("%Y-%m-%d") for days in range(350)]
    report = campaign.privatize(PERSON, rng=1)
    reports = [entry(report, period=day, signature=signature) for day in days]
    path = "/campaigns/blind/reports"
    answer = httpx.post(f"{url}{path}", json={"version": 1, "reports": reports}, headers=auth("device"), timeout=300)
    assert answer.status_code == 410
    for day in days[:5]:  # these take late reports
        body = {"version": 1} | entry(report, period=day, signature=signature)
        answer = httpx.post(f"{url}{path}", json=body, headers=auth("device"), timeout=300)
        assert (answer.status_code, answer.json()["reason"]) == (422, "forged")
    for wrong in ("é", "\x00", "="):
        body = {"version": 1} | entry(report, period=days[0], signature=wrong)
        assert httpx.post(f"{url}{path}", json=body, headers=auth("device"), timeout=300).status_code == 422
        asked = {"code": f"1.{wrong}", "period": days[0], "blinded": wrong}
        told = httpx.post(f"{url}/campaigns/blind/tokens", json=asked, headers=auth("device"), timeout=300)
        assert told.status_code == 403
    with sqlite3.connect(folder / "noisette.db") as database:
        assert database.execute("SELECT count(*) FROM signing").fetchone() == (0,)


def test_past_periods_are_closed(served: tuple[str, int], honest: Honest) -> None:
    url, _ = served
    report = Campaign.from_dict(DAILY).privatize(PERSON, rng=1)
    first = datetime(1000, 1, 1)
    days = [(first + timedelta(days=30 * place)).strftime("%Y-%m-%d") for place in range(8000)]
    path = "/campaigns/daily/reports"
    body = {"version": 1, "reports": [entry(report, period=day) for day in days]}
    answer = httpx.post(f"{url}{path}", json=body, headers=auth("device"), timeout=300)
    assert (answer.status_code, answer.json()["reason"]) == (410, "too-late")
    found = httpx.get(f"{url}/campaigns/daily/estimates", headers=auth("analyst"), timeout=300).json()
    assert found["periods"] == {}
    text = httpx.get(f"{url}/metrics", headers=auth("auditor"), timeout=300).text
    assert 'campaign="daily",period' not in text


def test_half_open_connections_do_not_stop_it(served: tuple[str, int], honest: Honest) -> None:
    url, _ = served
    with ExitStack() as stack:
        for place in range(1500):
            client = stack.enter_context(dialled(url))
            client.sendall(b"POST /campaigns/commute/reports HTTP/1.1\r\nHost: a\r\n"[: place % 40])
        began = len(honest.answers)
        deadline = time.monotonic() + 600
        while len(honest.answers) < began + 20:
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.mark.parametrize("key", [None, "device"])
def test_uploads_do_not_fill_the_memory(served: tuple[str, int], honest: Honest, key: str | None) -> None:
    url, pid = served
    with ExitStack() as stack:
        for _ in range(150):
            client = stack.enter_context(dialled(url))
            client.sendall(head("/campaigns/commute/reports", length=4 * MIB, key=key))
            client.setblocking(False)
            part, sent = memoryview(bytes(4 * MIB - 1)), 0
            try:
                while sent < len(part):
                    sent += client.send(part[sent : sent + (1 << 16)])
            except OSError:
                pass
        began = len(honest.answers)
        deadline = time.monotonic() + 600
        while len(honest.answers) < began + 20:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert memory(pid) < BOUND + 400 * MIB


def test_one_report_does_not_kill_a_tensor_campaign(served: tuple[str, int], honest: Honest) -> None:
    url, _ = served
    campaign = Campaign.from_wire(httpx.get(f"{url}/campaigns/tensor", headers=auth("device")).json())
    path = f"{url}/campaigns/tensor/reports"

    def send(rows: Any) -> httpx.Response:
        packed = batches.pack(campaign, "once", secrets.token_bytes(32 * len(rows)), rows)
        return httpx.post(path, content=packed, headers=auth("device"), timeout=300)

    good = campaign.rows([campaign.privatize({"scan": np.zeros((2, 3))}, rng=seed) for seed in range(20)])
    for bad in (np.inf, -np.inf, np.nan):
        wrong = good.copy()
        wrong["part0"][0] = bad
        answer = send(wrong)
        assert (answer.status_code, answer.json()["reason"]) == (422, "out-of-support"), bad
    far = good.copy()
    far["part0"][0] = 2.0**60
    assert send(far).status_code in (201, 422)
    assert send(good).status_code == 201
    found = httpx.get(f"{url}/campaigns/tensor/estimates", headers=auth("analyst"), timeout=300).json()
    for row in found["dimensions"]:
        assert abs(row["value"]) < 60
        assert 0 < row["std_error"] < 60
