"""The service over HTTP: who may do what, what is stored, what is refused and why, and what an operator sees."""

from __future__ import annotations

import json
import logging
import socket
from typing import Any

import httpx
import numpy as np
import pytest
from tests.collector.helpers import PERSON, auth, entry, tally, until

from noisette import _service
from noisette.collector import Store
from noisette.survey.campaigns import Campaign

REPORTS = "/campaigns/commute/reports"
ESTIMATES = "/campaigns/commute/estimates"


def _post(service: httpx.Client, body: Any, role: str = "device", path: str = REPORTS) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return service.post(path, content=content, headers=auth(role))


def _one(campaign: Campaign, seed: int = 1, **changes: Any) -> dict[str, Any]:
    return {"version": 1} | entry(campaign.privatize(PERSON, rng=seed), **changes)


def _counter(service: httpx.Client, line: str) -> float:
    text = service.get("/metrics", headers=auth("auditor")).text
    return next((float(one.rsplit(" ", 1)[1]) for one in text.splitlines() if one.startswith(line + " ")), 0.0)


def test_a_report_is_accepted_once(service: httpx.Client, campaign: Campaign, store: Store) -> None:
    body = _one(campaign)
    first, again = _post(service, body), _post(service, body)
    assert (first.status_code, first.json()) == (201, {"accepted": 1, "repeated": 0})
    assert (again.status_code, again.json()) == (200, {"accepted": 0, "repeated": 1})
    other = _post(service, _one(campaign, seed=2, key=body["key"]))
    assert (other.status_code, other.json()["reason"]) == (409, "key-reused")
    same_user = _post(service, _one(campaign, seed=2, token=body["token"]))
    assert (same_user.status_code, same_user.json()["reason"]) == (409, "already-answered")
    assert np.array_equal(store.rows(campaign, "once"), campaign.decode([body["report"]]))


def test_a_batch_and_its_estimates(service: httpx.Client, campaign: Campaign) -> None:
    rng = np.random.default_rng(4)
    people = [{"minutes": float(rng.uniform(0, 60)), "by": str(rng.choice(["car", "bike"]))} for _ in range(600)]
    entries = [entry(campaign.privatize(person, rng=rng)) for person in people]
    assert _post(service, {"version": 1, "reports": entries}).json() == {"accepted": 600, "repeated": 0}
    (expected,) = tally(campaign, [one["report"] for one in entries]).estimates()
    low, high = expected.interval(0.9)
    found = service.get(ESTIMATES, params={"level": 0.9}, headers=auth("analyst")).json()
    assert found["users"] == 600
    for row, name, value, least, most, count in zip(
        found["dimensions"], campaign.quantities, expected.value, low, high, expected.count, strict=True
    ):
        assert (row["name"], row["reports"]) == (name, count)
        assert (row["value"], row["low"], row["high"]) == pytest.approx((value, least, most), rel=1e-12)
        assert 0.3 < row["std_error"] / row["predicted_std_error"] < 1.3
    better = service.get(ESTIMATES, params={"enhance": "simplex"}, headers=auth("analyst")).json()
    shares = [row["value"] for row in better["dimensions"][1:]]
    assert sum(shares) == pytest.approx(1)
    assert min(shares) >= 0
    assert better["enhance"] != "none"


def test_nothing_has_come_yet(service: httpx.Client) -> None:
    for method in ("none", "auto"):
        found = service.get(ESTIMATES, params={"enhance": method}, headers=auth("analyst"))
        assert found.status_code == 200
        assert found.json()["users"] == 0
        assert {row["value"] for row in found.json()["dimensions"]} == {None}


def test_a_device_can_rebuild_the_campaign(service: httpx.Client, campaign: Campaign) -> None:
    wire = service.get("/campaigns/commute", headers=auth("device")).json()
    assert Campaign.from_wire(wire).mechanism.spec() == campaign.mechanism.spec()
    assert list(wire["predicted"].values()) == pytest.approx(campaign.predict().tolist())
    listed = service.get("/campaigns", headers=auth("analyst")).json()
    (one,) = listed["campaigns"]
    assert one == {
        "id": "commute",
        "title": campaign.title,
        "state": "open",
        "users": campaign.users,
        "wanted": None,
        "closes": None,
    }


BROKEN: list[tuple[Any, int, str]] = [
    (b"", 400, "malformed"),
    (b"{", 400, "malformed"),
    (b"[" * 100_000, 400, "malformed"),
    (b"\xff\xfe", 400, "malformed"),
    (b"null", 400, "malformed"),
    (b'"reports"', 400, "malformed"),
    ({"version": 1, "reports": []}, 400, "malformed"),
    (b"x" * 200_001, 413, "too-large"),
    ({"version": 2}, 400, "malformed"),
    ({"version": True}, 400, "malformed"),
    ({"version": 1.0}, 400, "malformed"),
    ({"key": "short"}, 400, "malformed"),
    ({"key": "k" * 65}, 400, "malformed"),
    ({"key": "'; DROP TABLE reports; --"}, 400, "malformed"),
    ({"token": "z" * 64}, 400, "malformed"),
    ({"token": 7}, 400, "malformed"),
    ({"extra": 1}, 400, "malformed"),
    ({"period": "2026-W46"}, 422, "wrong-period"),
    ({"period": "\x00"}, 422, "wrong-period"),
    ({"report": None}, 422, "out-of-support"),
    ({"report": [[0, 1e9]]}, 422, "out-of-support"),
    ({"report": [[1, 4]]}, 422, "out-of-support"),
    ({"report": [[7, 0]]}, 422, "out-of-support"),
    ({"report": "1e999"}, 422, "out-of-support"),
]


@pytest.mark.parametrize(("broken", "status", "reason"), BROKEN)
def test_refusals(
    untouched: tuple[httpx.Client, Store], campaign: Campaign, broken: Any, status: int, reason: str
) -> None:
    """Each is a 4xx with its reason, counted, and nothing is stored: not even the sound half of a batch."""
    service, store = untouched
    counted = f'noisette_reports_rejected_total{{reason="{reason}"}}'
    before = _counter(service, counted)
    whole = isinstance(broken, bytes) or "reports" in broken
    answer = _post(service, broken if whole else _one(campaign) | broken)
    assert (answer.status_code, answer.json()["reason"]) == (status, reason)
    assert _counter(service, counted) == before + 1
    if status == 422:
        batch = [entry(campaign.privatize(PERSON, rng=2)), entry(campaign.privatize(PERSON, rng=3)) | broken]
        answer = _post(service, {"version": 1, "reports": batch})
        assert (answer.status_code, [one["index"] for one in answer.json()["reports"]]) == (422, [1])
    assert store.periods(campaign) == {}
    assert len(store.rows(campaign, "once")) == 0


def test_numbers_that_json_does_not_have(service: httpx.Client, campaign: Campaign, store: Store) -> None:
    for text in ("NaN", "Infinity", "1e999", "1" * 400):
        body = json.dumps(_one(campaign) | {"report": "HERE"}).replace('"HERE"', f"[[0, {text}]]").encode()
        assert 400 <= _post(service, body).status_code < 500
    assert store.periods(campaign) == {}


def test_a_connection_that_ends_too_early(service: httpx.Client, campaign: Campaign, store: Store) -> None:
    """Half a body and then nothing: not stored, counted, and no error of the server's."""
    body = json.dumps(_one(campaign)).encode()
    address = (service.base_url.host, service.base_url.port)
    head = f"POST {REPORTS} HTTP/1.1\r\nHost: x\r\nAuthorization: {auth('device')['Authorization']}\r\n"
    with socket.create_connection(address) as line:
        line.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body[:50])
    until(lambda: _counter(service, 'noisette_reports_rejected_total{reason="cut-short"}') == 1)
    assert 'status="500"' not in service.get("/metrics", headers=auth("auditor")).text
    assert store.periods(campaign) == {}


def test_unknown_campaign(service: httpx.Client, campaign: Campaign) -> None:
    answer = _post(service, _one(campaign), path="/campaigns/other/reports")
    assert (answer.status_code, answer.json()["reason"]) == (404, "unknown-campaign")


ALLOWED = {
    ("GET", "/campaigns"): {"analyst", "auditor"},
    ("GET", "/campaigns/commute"): {"device", "analyst", "auditor"},
    ("GET", ESTIMATES): {"analyst", "auditor"},
    ("GET", "/metrics"): {"analyst", "auditor"},
    ("POST", REPORTS): {"device"},
}


@pytest.mark.parametrize(("method", "path"), ALLOWED)
def test_roles(untouched: tuple[httpx.Client, Store], method: str, path: str) -> None:
    service, _ = untouched
    for role in ("device", "analyst", "auditor"):
        status = service.request(method, path, headers=auth(role), content=b"{}").status_code
        assert (status != 403) == (role in ALLOWED[method, path])
        assert status not in (401, 500)
    for header in ({}, {"Authorization": "Bearer wrong-key-of-some-length"}, {"Authorization": "Basic eDp5"}):
        answer = service.request(method, path, headers=header, content=b"{}")
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")


@pytest.mark.parametrize(
    "query", [{"level": "1"}, {"level": "nan"}, {"enhance": "magic"}, {"period": "2026"}, {"period": "x" * 17}]
)
def test_bad_queries(untouched: tuple[httpx.Client, Store], query: dict[str, str]) -> None:
    service, _ = untouched
    assert service.get(ESTIMATES, params=query, headers=auth("analyst")).status_code == 422


def test_health_and_readiness(
    service: httpx.Client, campaign: Campaign, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sqlalchemy.exc import OperationalError

    assert service.get("/health").json() == {"status": "ok"}
    assert service.get("/ready").json() == {"status": "ready"}

    def gone(*_: Any) -> None:
        raise OperationalError("SELECT 1", {}, Exception("gone"))

    monkeypatch.setattr(store, "ping", gone)
    monkeypatch.setattr(store, "add", gone)
    answer = service.get("/ready")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert _post(service, _one(campaign)).status_code == 503
    assert _counter(service, 'noisette_reports_rejected_total{reason="unavailable"}') == 2
    assert service.get("/health").status_code == 200


def test_metrics_and_logs_hold_no_secret(
    service: httpx.Client, campaign: Campaign, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG, logger="noisette.collector")
    body = _one(campaign)
    _post(service, body)
    _post(service, body)
    assert not [one for one in caplog.records if "accepted" in vars(one).get("fields", {})]  # not when they come
    monkeypatch.setattr(_service, "_SPAN", 1e-6)  # ten minutes are over
    _post(service, body | {"report": [[0, 987654.25]]})
    assert _counter(service, 'noisette_reports_accepted_total{campaign="commute"}') == 1
    assert _counter(service, 'noisette_users{campaign="commute",period="once"}') == 1
    name = 'noisette_requests_total{method="POST",route="/campaigns/{campaign_id}/reports",status="422"}'
    assert _counter(service, name) == 1
    told = [vars(record)["fields"] for record in caplog.records if record.getMessage() in ("request", "requests")]
    kept = {"method": "POST", "route": "/campaigns/{campaign_id}/reports", "campaign": "commute", "requests": 1}
    assert [one | {"until": 0} for one in told if "accepted" in one] == [
        kept | {"until": 0, "status": 201, "accepted": 1, "repeated": 0},
        kept | {"until": 0, "status": 200, "accepted": 0, "repeated": 1},
    ]
    written = json.dumps(told) + service.get("/metrics", headers=auth("auditor")).text
    for secret in (body["key"], body["token"], "987654", auth("device")["Authorization"].split()[1]):
        assert secret not in written


def test_openapi_describes_the_reports(service: httpx.Client) -> None:
    document = service.get("/openapi.json").json()
    assert {
        "/health",
        "/ready",
        "/metrics",
        "/campaigns",
        "/campaigns/{campaign_id}",
        "/campaigns/{campaign_id}/estimates",
        "/campaigns/{campaign_id}/plan",
        "/campaigns/{campaign_id}/reports",
        "/campaigns/{campaign_id}/tokens",
    } <= set(document["paths"])
    body = document["paths"]["/campaigns/{campaign_id}/reports"]["post"]["requestBody"]["content"]["application/json"]
    one, batch = body["schema"]["oneOf"]
    assert set(one["required"]) == {"version", "key", "period", "token", "report"}
    assert set(batch["required"]) == {"version", "reports"}
