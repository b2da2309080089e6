"""Reports under another law: they look like the campaign's own, and are refused wherever they would be counted.

The other law has the same outputs and the same form, and more noise or less: of categories by randomised response at
another budget. Estimates for the campaign's law would be wrong by as much as the laws differ.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from tests.collector.helpers import KEYS, auth, entry, running

import noisette as nz
from noisette.aggregation import aggregate_files, write_reports
from noisette.collector import Store, create_app
from noisette.collector.intake.reading import parse
from noisette.collector.storage.store import Refused
from noisette.collector.web.access import Keys
from noisette.device import Client
from noisette.device.gateway import Gateway
from noisette.mechanisms.categorical.grr import GeneralizedRandomizedResponse
from noisette.mechanisms.written import law_sha256
from noisette.survey.batches import WrongLaw, pack, unpack
from noisette.survey.campaigns import Campaign
from noisette.survey.reports import SurveyReports

ASKED: dict[str, Any] = {
    "id": "way",
    "title": "Way",
    "epsilon": 2.0,
    "users": 100,
    "mechanism": "grr",
    "attributes": [{"name": "by", "categories": ["car", "bike", "bus"]}],
}
OWN = Campaign.from_dict(ASKED)
OTHER = Campaign.from_dict(ASKED | {"epsilon": 1.0})
TOKENS = bytes(range(64))


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    store = Store(f"sqlite:///{tmp_path / 'reports.db'}")
    with running(create_app([OWN], store, Keys({role: [key] for role, key in KEYS.items()}))) as made:
        yield made
    store.close()


def changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process draw by another law than its specs say, as a later version might."""
    plain = GeneralizedRandomizedResponse.written_law
    monkeypatch.setattr(
        GeneralizedRandomizedResponse,
        "written_law",
        lambda self: plain(self) | {"keep": plain(self)["keep"] - 1},
    )


def test_the_two_laws_have_the_same_outputs() -> None:
    rows = OTHER.rows([OTHER.privatize({"by": "bus"}, rng=seed) for seed in range(20)])
    OWN.check(rows)  # nothing in the reports themselves tells
    assert OWN.row == OTHER.row
    assert OWN.law_sha256 != OTHER.law_sha256
    assert OWN.law_sha256 == nz.certify(OWN).law_sha256  # the one that the certificate binds
    assert OWN.law_sha256 == law_sha256(OWN.mechanism) == Campaign.from_wire(OWN.to_wire()).law_sha256


def test_the_collector_refuses_a_report_of_another_law(url: str) -> None:
    address, kept = f"{url}/campaigns/way/reports", []
    for law, status in ((OTHER.law_sha256, 422), ("0" * 64, 422), ("short", 400), (OWN.law_sha256, 201)):
        body = {"version": 1} | entry(OTHER.privatize({"by": "bus"}, rng=3), law=law)
        answer = httpx.post(address, json=body, headers=auth("device"))
        assert answer.status_code == status, answer.text
        kept.append(answer.json().get("reason"))
    assert kept[:3] == ["wrong-law", "wrong-law", "malformed"]
    old = httpx.post(address, json={"version": 1} | entry(OWN.privatize({"by": "bus"}, rng=3)), headers=auth("device"))
    assert old.status_code == 201  # a device of 0.1.0 states no law
    several = [entry(OWN.privatize({"by": "car"}, rng=seed), law=OWN.law_sha256) for seed in range(3)]
    several[1]["law"] = OTHER.law_sha256
    with pytest.raises(Refused) as refused:
        parse(OWN, json.dumps({"version": 1, "reports": several}).encode())
    assert [(one.index, one.reason) for one in refused.value.refusals] == [(1, "wrong-law")]


def test_a_binary_batch_of_another_law_is_refused(url: str) -> None:
    rows = OTHER.rows([OTHER.privatize({"by": "bus"}, rng=seed) for seed in range(2)])
    theirs, ours = pack(OTHER, "once", TOKENS, rows), pack(OWN, "once", TOKENS, rows)
    with pytest.raises(WrongLaw, match=OTHER.law_sha256[:16]):
        unpack(OWN, theirs, most=10)
    assert len(unpack(OWN, ours, most=10)) == 2
    address = f"{url}/campaigns/way/reports"
    answers = [httpx.post(address, content=body, headers=auth("device")) for body in (theirs, ours)]
    assert [answer.status_code for answer in answers] == [422, 201]
    assert answers[0].json()["reason"] == "wrong-law"


def test_a_device_states_the_law_it_drew_by(url: str, tmp_path: Path) -> None:
    """Also later: what was drawn by an older version keeps the older law, and the collector refuses it."""
    with Client(url, state=tmp_path / "device", api_key=KEYS["device"], epsilon=5.0) as device:
        assert device.answer("way", {"by": "bus"})
        (_, body), *_ = device._device.waiting()
        assert body["law"] == OWN.law_sha256
        with sqlite3.connect(tmp_path / "device" / "answers.db") as database:
            database.execute("UPDATE laws SET law = ?", (OTHER.law_sha256,))
        database.close()
        assert device.send().refused == 1
        assert OTHER.law_sha256[:16] in device.refusals()[0][2]


def test_a_device_of_another_version_does_not_answer(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = httpx.get(f"{url}/campaigns/way", headers=auth("device")).json()
    assert shown["guarantee"]["law_sha256"] == OWN.law_sha256
    changed(monkeypatch)
    with pytest.raises(ValueError, match="cannot be answered or read here"):
        Campaign.from_wire(shown)
    with pytest.raises(ValueError, match="cannot be answered or read here"):
        Campaign.from_wire(shown | {"guarantee": {"law_sha256": 7}})
    for stated in ({}, None, 7, "none"):  # a collector of 0.1.0 states none
        Campaign.from_wire(shown | {"guarantee": stated})


def test_a_gateway_sends_nothing_of_another_law(url: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"state": tmp_path / "gateway", "api_key": KEYS["device"], "epsilon": 5.0}
    with Gateway(url, "way", **options) as gateway:
        gateway.answer([b"anna", b"ben"], {"by": np.array([0, 2])})
        with sqlite3.connect(tmp_path / "gateway" / "reports.db") as database:
            database.execute("UPDATE laws SET law = ?", (OTHER.law_sha256,))
        database.close()
        sent = gateway.send()
        assert (sent.sent, sent.refused, sent.waiting) == (0, 2, 0)
        with pytest.raises(ValueError, match="by another law"):
            gateway.answer([b"carl"], {"by": np.array([1])})


def test_a_file_of_another_law_is_not_estimated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    survey = OWN.survey
    people = survey.privatize({"by": ["car", "bus"] * 20}, rng=1)
    people.save(tmp_path / "survey.parquet")
    mechanism = nz.GeneralizedRandomizedResponse(epsilon=1.0, domain=nz.Categorical(3))
    write_reports(tmp_path / "reports.parquet", mechanism, [mechanism.privatize([0, 1, 2], rng=1)])
    assert len(SurveyReports.read(tmp_path / "survey.parquet")) == 40
    assert aggregate_files([tmp_path / "reports.parquet"]).users == 3
    with pytest.raises(ValueError, match="differ in epsilon"):
        OTHER.survey.estimate(tmp_path / "survey.parquet")
    changed(monkeypatch)
    with pytest.raises(ValueError, match="It is about the law"):
        SurveyReports.read(tmp_path / "survey.parquet")
    with pytest.raises(ValueError, match="It is about the law"):
        aggregate_files([tmp_path / "reports.parquet"])


def test_what_has_no_written_law_is_bound_by_its_description(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = (nz.Laplace(epsilon=epsilon) for epsilon in (1.0, 2.0))
    monkeypatch.setattr(nz.Laplace, "written_law", lambda self: None)
    assert law_sha256(one) != law_sha256(other)
    assert law_sha256(one) == law_sha256(nz.Laplace(epsilon=1.0))
