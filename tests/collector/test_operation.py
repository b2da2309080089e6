"""What an operator relies on: limits, TLS, the plan before anything is collected, and a document that does not lie."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
import os
import re
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from tests.collector.helpers import COMMUTE, KEYS, PERSON, auth, entry, running

from noisette.cli import verbs
from noisette.collector import Store, create_app
from noisette.collector.web.access import Keys, RateLimit
from noisette.collector.web.planpage import plan_page
from noisette.survey import batches
from noisette.survey.campaigns import Campaign

EVIL = '<script>alert("x")</script>'


def test_a_bucket_fills_at_its_rate() -> None:
    now = [0.0]
    limit = RateLimit(2.0, clock=lambda: now[0])
    assert [limit.wait("a") for _ in range(5)] == [0.0, 0.0, 0.0, 0.0, 0.5]
    now[0] = 0.5
    assert [limit.wait("a"), limit.wait("a") > 0] == [0.0, True]
    now[0] = 1e9  # it never holds more than two seconds' worth
    assert [limit.wait("a") > 0 for _ in range(5)] == [False] * 4 + [True]
    for number in range(20_000):
        limit.wait(str(number))
    assert len(limit._buckets) == 10_000
    with pytest.raises(ValueError, match="rate=0"):
        RateLimit(0)


@pytest.fixture
def slow_service(tmp_path: Path, campaign: Campaign) -> Iterator[httpx.Client]:
    app = create_app(
        [campaign], Store(f"sqlite:///{tmp_path / 'x.db'}"), Keys({role: [key] for role, key in KEYS.items()}), rate=1.0
    )
    with running(app) as url, httpx.Client(base_url=url, timeout=300) as client:
        yield client


def test_too_many_requests(slow_service: httpx.Client, campaign: Campaign) -> None:
    body = json.dumps({"version": 1} | entry(campaign.privatize(PERSON, rng=1)))
    path = "/campaigns/commute/reports"
    answers = [slow_service.post(path, content=body, headers=auth("device")) for _ in range(6)]
    assert [one.status_code for one in answers][:2] == [201, 200]
    limited = [one for one in answers if one.status_code == 429]
    assert limited
    assert (limited[0].json()["reason"], limited[0].headers["retry-after"]) == ("too-many", "1")
    assert slow_service.get("/health").status_code == 200  # whoever watches is not counted


def _certificate(folder: Path) -> tuple[Path, Path]:
    """Make a certificate for this machine, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "collector")])
    now = datetime.datetime.now(datetime.UTC)
    here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number()).add_extension(here, critical=False)
    builder = builder.not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(
        now + datetime.timedelta(days=1)
    )
    made = builder.sign(key, hashes.SHA256())
    certificate, private = folder / "cert.pem", folder / "key.pem"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    private.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))
    return certificate, private


@pytest.mark.long
def test_tls_by_configuration(tmp_path: Path) -> None:
    """The command serves HTTPS with the given certificate, and plain HTTP is not answered."""
    certificate, private = _certificate(tmp_path)
    (tmp_path / "campaign.yaml").write_text(json.dumps(COMMUTE), encoding="utf-8")
    (tmp_path / "keys.yaml").write_text(json.dumps({role: [key] for role, key in KEYS.items()}), encoding="utf-8")
    options = ["--tls-cert", str(certificate), "--tls-key", str(private), "--keys", "keys.yaml", "--port", "0"]
    command = [sys.executable, "-c", "from noisette.cli import main; main()", "serve", "campaign.yaml", *options]
    run: Any = {"cwd": tmp_path, "text": True, "env": os.environ | {"PYTHONUNBUFFERED": "1"}}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, **run) as process:
        try:
            assert process.stdout is not None
            url = next(found[0] for line in process.stdout if (found := re.search(r"https://[\d.:]+", line)))
            trusted = ssl.create_default_context(cafile=str(certificate))
            answer = httpx.get(f"{url}/campaigns/commute", headers=auth("device"), verify=trusted)
            assert answer.json()["id"] == "commute"
            with pytest.raises(httpx.ConnectError):
                httpx.get(f"{url}/health", verify=ssl.create_default_context())
            with pytest.raises(httpx.TransportError):
                httpx.get(f"{url.replace('https', 'http')}/health")
        finally:
            process.send_signal(signal.SIGTERM)
    assert process.returncode == 0
    failed = CliRunner().invoke(verbs, ["serve", str(tmp_path / "campaign.yaml"), "--tls-cert", str(certificate)])
    assert "--tls-cert and --tls-key together" in " ".join(failed.stderr.split())


class Cells(HTMLParser):
    """The texts of a page's cells, and the names of its elements."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.elements: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        """Note an element."""
        self.elements.add(tag)

    def handle_data(self, data: str) -> None:
        """Note a text."""
        self.texts.append(data)


def test_the_plan_page(service: httpx.Client, campaign: Campaign) -> None:
    """A browser is asked for the key as a password, and shows the errors that the campaign predicts."""
    path = "/campaigns/commute/plan"
    asked = service.get(path)
    assert asked.status_code == 401
    assert asked.headers["www-authenticate"].startswith("Basic ")
    for wrong in ("x", base64.b64encode(b"\xff:\xff").decode(), base64.b64encode(b"nobody:wrong-key").decode()):
        assert service.get(path, headers={"Authorization": f"Basic {wrong}"}).status_code == 401
    assert service.get(path, auth=("", KEYS["device"])).status_code == 403
    page = service.get(path, auth=("anyone", KEYS["analyst"]))
    assert page.status_code == 200
    assert page.text == service.get(path, headers=auth("auditor")).text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    from noisette._terminal import number

    cells = Cells(page.text)
    for name, error in zip(campaign.quantities, campaign.predict().tolist(), strict=True):
        place = cells.texts.index(name)
        assert cells.texts[place + 1] == f"± {number(1.959963984540054 * error, error)}"  # as everywhere, not an error
        assert cells.texts[place + 3] == "worth collecting"
    assert "standard error" not in page.text.lower()


def test_names_are_text_on_the_plan_page() -> None:
    odd = COMMUTE | {"title": EVIL, "attributes": [{"name": EVIL, "categories": [EVIL, "&amp;"]}], "mechanism": "auto"}
    page = plan_page(Campaign.from_dict(odd | {"report": None}))
    cells = Cells(page)
    assert "script" not in cells.elements
    assert f"{EVIL}={EVIL}" in cells.texts
    assert f"{EVIL}=&amp;" in cells.texts


def test_the_plan_as_a_file(tmp_path: Path) -> None:
    path, page = tmp_path / "campaign.yaml", tmp_path / "plan.html"
    path.write_text(json.dumps(COMMUTE), encoding="utf-8")
    run = CliRunner().invoke(verbs, ["serve", str(path), "--plan", "--page", str(page)])
    assert run.exit_code == 0, run.output
    assert page.read_text(encoding="utf-8") == plan_page(Campaign.from_dict(COMMUTE))
    failed = CliRunner().invoke(verbs, ["serve", str(path), "--page", str(page)])
    assert failed.exit_code == 2


def test_estimates_as_files(service: httpx.Client, campaign: Campaign) -> None:
    reports = [entry(campaign.privatize(PERSON, rng=seed)) for seed in range(40)]
    service.post("/campaigns/commute/reports", json={"version": 1, "reports": reports}, headers=auth("device"))
    path = "/campaigns/commute/estimates"
    found = service.get(path, params={"format": "csv"}, headers=auth("analyst"))
    assert found.headers["content-type"] == "text/csv; charset=utf-8"
    assert found.headers["content-disposition"] == 'attachment; filename="commute.csv"'
    assert len(found.text.splitlines()) == 1 + len(campaign.quantities)
    table = service.get(path, params={"format": "parquet"}, headers=auth("analyst"))
    assert table.content[:4] == table.content[-4:] == b"PAR1"
    assert service.get(path, params={"format": "xlsx"}, headers=auth("analyst")).status_code == 422


BROKEN_BYTES = {
    "cut": lambda body: body[:-1],
    "changed": lambda body: body[:100] + bytes([body[100] ^ 1]) + body[101:],
    "longer": lambda body: body + b"x",
    "version": lambda body: body[:4] + b"\x03" + body[5:],
    "empty": lambda body: b"NZRB",
}


def _rows(campaign: Campaign, count: int) -> Any:
    return campaign.decode([campaign.privatize(PERSON, rng=seed) for seed in range(count)])


@pytest.mark.parametrize("damage", BROKEN_BYTES)
def test_broken_binary_batches(service: httpx.Client, campaign: Campaign, store: Store, damage: str) -> None:
    body = batches.pack(campaign, "once", os.urandom(32 * 5), _rows(campaign, 5))
    path = "/campaigns/commute/reports"
    answer = service.post(path, content=BROKEN_BYTES[damage](body), headers=auth("device"))
    assert (answer.status_code, answer.json()["reason"]) == (400, "malformed")
    assert store.periods(campaign) == {}


def test_binary_batches_count_once(service: httpx.Client, campaign: Campaign, store: Store) -> None:
    """The same sums as by JSON, the token is the key, and a batch for another campaign or with bad rows is refused."""
    rows, tokens = _rows(campaign, 50), os.urandom(32 * 50)
    path, headers = "/campaigns/commute/reports", auth("device")
    body = batches.pack(campaign, "once", tokens, rows)
    assert service.post(path, content=body, headers=headers).json() == {"accepted": 50, "repeated": 0}
    assert service.post(path, content=body, headers=headers).json() == {"accepted": 0, "repeated": 50}
    other = batches.pack(campaign, "once", tokens, rows[::-1].copy())
    answer = service.post(path, content=other, headers=headers)
    assert (answer.status_code, answer.json()["reason"]) == (409, "already-answered")
    assert store.aggregate(campaign, "once") == store.layout(campaign).tally(rows)
    elsewhere = Campaign.from_dict(COMMUTE | {"id": "elsewhere"})
    answer = service.post(path, content=batches.pack(elsewhere, "once", tokens, rows), headers=headers)
    assert (answer.status_code, answer.json()["reason"]) == (422, "wrong-campaign")
    for value in (1e9, float("nan"), float("inf")):
        wrong = rows[:3].copy()
        wrong["part0"][1] = [[0, value]]
        bad = batches.pack(campaign, "once", os.urandom(32 * 3), wrong)
        answer = service.post(path, content=bad, headers=headers)
        assert (answer.status_code, [one["index"] for one in answer.json()["reports"]]) == (422, [1])
    answer = service.post(path, content=batches.pack(campaign, "2026", os.urandom(32), rows[:1]), headers=headers)
    assert (answer.status_code, answer.json()["reason"]) == (422, "wrong-period")
    assert store.periods(campaign) == {"once": 50}


def test_a_report_for_another_campaign(service: httpx.Client, campaign: Campaign, store: Store) -> None:
    body = {"version": 1, "campaign": "other"} | entry(campaign.privatize(PERSON, rng=1))
    answer = service.post("/campaigns/commute/reports", json=body, headers=auth("device"))
    assert (answer.status_code, answer.json()["reason"]) == (422, "wrong-campaign")
    assert store.periods(campaign) == {}
    right = service.post("/campaigns/commute/reports", json=body | {"campaign": "commute"}, headers=auth("device"))
    assert right.status_code == 201
    text = service.get("/metrics", headers=auth("auditor")).text
    assert 'noisette_reports_rejected_total{reason="wrong-campaign"} 1.0' in text
