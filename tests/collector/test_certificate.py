"""A campaign's certificate: the collector serves it, a stranger's program proves it, and devices prove their law."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from tests.collector.helpers import COMMUTE, KEYS, PERSON, auth, running

import noisette as nz
import noisette_verify
from noisette.certificates import Certificate, CertificateError
from noisette.collector import Store, create_app
from noisette.collector.web.access import Keys
from noisette.device import Client
from noisette.device.gateway import Gateway
from noisette.mechanisms.scalar._window import Window
from noisette.mechanisms.scalar.duchi import TwoPoint
from noisette.survey import campaigns
from noisette.survey.campaigns import Campaign

CERTIFICATE = "/campaigns/commute/certificate"


def test_the_collector_serves_a_certificate(service: httpx.Client, campaign: Campaign) -> None:
    answer = service.get(CERTIFICATE, headers=auth("device"))
    assert answer.status_code == 200
    verdict = noisette_verify.verify(answer.content)
    assert verdict.proved, verdict
    Certificate(answer.text).check(campaign.survey)
    assert nz.certify(campaign).text == answer.text
    assert service.get(CERTIFICATE).status_code == 401
    assert service.get("/campaigns/other/certificate", headers=auth("device")).status_code == 404


def test_a_campaign_that_cannot_be_certified_says_why(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every mechanism of the catalogue that a campaign can take has a law; somebody's own may have none."""
    monkeypatch.setattr(nz.Laplace, "written_law", lambda self: None)
    terms = {"id": "way", "title": "Way", "epsilon": 4.0, "mechanism": "laplace", "users": 100}
    asked = Campaign.from_dict(terms | {"attributes": [{"name": "way", "range": [0, 1]}]})
    app = create_app([asked], store, Keys({role: [key] for role, key in KEYS.items()}))
    with running(app) as url:
        answer = httpx.get(f"{url}/campaigns/way/certificate", headers=auth("device"))
    assert (answer.status_code, answer.json()["reason"]) == (404, "not-certified")
    assert "cannot be certified yet: the verifier does not know laws of its kind" in answer.json()["detail"]


def test_a_device_whose_law_breaks_the_promise_does_not_answer(
    service: httpx.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were a number of the law wrong, by a fault or by malice, nothing is debited and nothing drawn."""
    with Client(str(service.base_url), state=tmp_path, api_key=KEYS["device"], epsilon=100.0) as device:
        before = device.left

        def leaking(make: object) -> classmethod:  # type: ignore[type-arg]
            return classmethod(lambda cls, domain, epsilon, *rest: make(domain, 1.1 * epsilon, *rest))  # type: ignore[operator]

        with monkeypatch.context() as patch:
            for law in (Window, TwoPoint):
                patch.setattr(law, "build", leaking(law.build))
            with pytest.raises(ValueError, match="It is about the law"):  # the collector's is another one
                device.answer("commute", PERSON)
            patch.setattr(campaigns, "other_law", lambda own, stated: "")  # were the collector's leaking too
            with pytest.raises(CertificateError, match="is not"):
                device.answer("commute", PERSON)
        assert device.left == before
        assert device.answer("commute", PERSON)
        assert device.left != before


def test_a_file_is_not_reported_by_a_law_that_breaks_the_promise(
    service: httpx.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"state": tmp_path, "api_key": KEYS["device"], "epsilon": 100.0}
    with monkeypatch.context() as patch:
        for law in (Window, TwoPoint):
            make = law.build
            leaking = classmethod(lambda cls, domain, epsilon, *rest, make=make: make(domain, 1.1 * epsilon, *rest))
            patch.setattr(law, "build", leaking)
        with pytest.raises(ValueError, match="It is about the law"):  # the collector's is another one
            Gateway(str(service.base_url), "commute", **options)
        patch.setattr(campaigns, "other_law", lambda own, stated: "")  # were the collector's leaking too
        with (
            Gateway(str(service.base_url), "commute", **options) as gateway,
            pytest.raises(CertificateError, match="is not"),
        ):
            gateway.debit()
    with Gateway(str(service.base_url), "commute", **options) as gateway:
        gateway.debit()


def test_the_campaign_of_these_tests_has_laws_to_break() -> None:
    law = Campaign.from_dict(COMMUTE).survey.written_law()
    assert law is not None
    assert {part["kind"] for part in law["parts"]} & {"window", "two-point", "mixture"}
