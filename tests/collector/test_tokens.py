"""Blind tokens: signed without being seen, good once, for one campaign and period, and forged ones are told."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from tests.collector.helpers import COMMUTE, KEYS, OPERATOR, PERSON, SECRET, auth, entry, known_keys, running

from noisette.cli import verbs
from noisette.collector import Store, create_app
from noisette.collector.campaigns.issuing import Issuer
from noisette.collector.campaigns.life import Life
from noisette.collector.web.access import Keys
from noisette.device.blind import SigningKey, VerifyingKey, checked_code, new_code
from noisette.survey import batches
from noisette.survey.campaigns import Campaign
from noisette.survey.periods import period_at

BLIND = COMMUTE | {"tokens": "blind"}


@pytest.fixture(scope="module")
def key() -> SigningKey:
    return SigningKey.new()


@pytest.fixture
def campaigns() -> list[Campaign]:
    return [Campaign.from_dict(BLIND), Campaign.from_dict(BLIND | {"id": "weekly", "period": "week"})]


@pytest.fixture
def blind_service(tmp_path: Path, campaigns: list[Campaign]) -> Iterator[httpx.Client]:
    app = create_app(campaigns, Store(f"sqlite:///{tmp_path / 'x.db'}"), known_keys())
    with (
        running(app) as url,
        httpx.Client(base_url=url, timeout=300, headers=auth("device")) as client,
    ):
        yield client


def _ask(service: httpx.Client, code: str, token: bytes, name: str = "commute", period: str = "once") -> Any:
    public = VerifyingKey(int(service.get(f"/campaigns/{name}/tokens/{period}").json()["modulus"], 16))
    blinded, inverse = public.blind(token)
    body = {"code": code, "period": period, "blinded": base64.b64encode(blinded).decode()}
    answer = service.post(f"/campaigns/{name}/tokens", json=body)
    if answer.status_code != 200:
        return answer
    return public.finish(token, base64.b64decode(answer.json()["signed"]), inverse)


def _send(service: httpx.Client, campaign: Campaign, token: bytes, signature: bytes | None, **changes: Any) -> Any:
    more = {} if signature is None else {"signature": base64.b64encode(signature).decode()}
    body = {"version": 1} | entry(campaign.privatize(PERSON, rng=1), token=token.hex(), **more) | changes
    return service.post(f"/campaigns/{campaign.id}/reports", content=json.dumps(body))


def test_a_signature_is_what_the_standard_says(key: SigningKey) -> None:
    """What comes out of blinding, signing and unblinding is the RSA-PSS signature that OpenSSL makes itself."""
    token = secrets.token_bytes(32)
    blinded, inverse = key.public.blind(token)
    signature = key.public.finish(token, key.sign(blinded), inverse)
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    private = load_pem_private_key(key.pem, password=None)
    assert isinstance(private, rsa.RSAPrivateKey)
    direct = private.sign(token, padding.PSS(padding.MGF1(hashes.SHA384()), salt_length=0), hashes.SHA384())
    assert signature == direct  # without a salt there is one signature of a token
    assert not key.public.verifies(token[::-1], signature)
    assert not SigningKey.new().public.verifies(token, signature)


def test_blinding_hides_the_token(key: SigningKey) -> None:
    """Two blindings of one token differ, and each could have come from any token: for any other token there is a factor
    that leads to the same blinded one, namely the quotient's root, which only the holder of the key can take."""
    token, other = secrets.token_bytes(32), secrets.token_bytes(32)
    first, second = key.public.blind(token)[0], key.public.blind(token)[0]
    assert first != second
    modulus = key.public.modulus
    plain = int.from_bytes(key.public.finish(other, *_signed_blind(key, other)), "big")  # m(other) ** d
    factor = int.from_bytes(key.sign(first), "big") * pow(plain, -1, modulus) % modulus
    assert pow(factor, 65537, modulus) * pow(plain, 65537, modulus) % modulus == int.from_bytes(first, "big")


def _signed_blind(key: SigningKey, token: bytes) -> tuple[bytes, int]:
    blinded, inverse = key.public.blind(token)
    return key.sign(blinded), inverse


def test_a_collector_that_signs_something_else_is_found_out(key: SigningKey) -> None:
    token = secrets.token_bytes(32)
    _, inverse = key.public.blind(token)
    with pytest.raises(ValueError, match="Do not answer"):
        key.public.finish(token, key.sign(key.public.blind(bytes(32))[0]), inverse)
    for wrong in (b"", bytes(256), b"\xff" * 256, bytes(255)):
        with pytest.raises(ValueError, match="blinded token"):
            key.sign(wrong)


@pytest.mark.parametrize("code", ["", "7", "7.", "x.y", "-1.0", "7." + "0" * 32, "٧." + "0" * 32, "9" * 40 + ".0"])
def test_codes_that_nobody_gave_out(code: str) -> None:
    assert checked_code(SECRET, code) is None
    assert checked_code(SECRET, new_code(SECRET, 12)) == 12
    assert checked_code(SECRET + "x", new_code(SECRET, 12)) is None


def test_one_answer_for_one_code(blind_service: httpx.Client, campaigns: list[Campaign]) -> None:
    campaign, weekly = campaigns
    code, token = new_code(SECRET, 1), secrets.token_bytes(32)
    signature = _ask(blind_service, code, token)
    assert _send(blind_service, campaign, token, signature).status_code == 201
    again = _ask(blind_service, code, secrets.token_bytes(32))
    assert (again.status_code, again.json()["reason"]) == (409, "token-issued")
    stranger = _ask(blind_service, "2." + "0" * 32, token)
    assert (stranger.status_code, stranger.json()["reason"]) == (403, "unknown-code")
    second = _send(blind_service, campaign, token, signature, report=[[0, 1.0]])
    assert second.status_code in (409, 422)
    for wrong, name in (
        (_send(blind_service, campaign, secrets.token_bytes(32), None), "no signature"),
        (_send(blind_service, campaign, secrets.token_bytes(32), signature), "that of another token"),
        (_send(blind_service, campaign, token, b"\x00" * 256), "none at all"),
        (_send(blind_service, weekly, token, signature, period=period_at("week")), "that of another campaign"),
    ):
        assert (wrong.status_code, wrong.json()["reason"]) == (422, "forged"), name
    text = blind_service.get("/metrics", headers=auth("auditor")).text
    assert 'noisette_reports_rejected_total{reason="forged"} 4.0' in text


def test_the_same_blinded_token_is_signed_again(blind_service: httpx.Client) -> None:
    """A device that lost the answer asks again and gets the same."""
    public = VerifyingKey(int(blind_service.get("/campaigns/commute/tokens/once").json()["modulus"], 16))
    blinded, _ = public.blind(secrets.token_bytes(32))
    body = {"code": new_code(SECRET, 3), "period": "once", "blinded": base64.b64encode(blinded).decode()}
    answers = [blind_service.post("/campaigns/commute/tokens", json=body) for _ in range(2)]
    assert [one.status_code for one in answers] == [200, 200]
    assert answers[0].json() == answers[1].json()
    for change in ({"blinded": "!"}, {"blinded": ""}, {"period": "2026"}, {"code": 7}):
        assert blind_service.post("/campaigns/commute/tokens", json=body | change).status_code in (403, 422)
    assert blind_service.get("/campaigns/weekly/tokens/2999-W01").status_code == 422


def test_binary_batches_carry_signatures(blind_service: httpx.Client, campaigns: list[Campaign]) -> None:
    campaign = campaigns[0]
    tokens = [secrets.token_bytes(32) for _ in range(3)]
    signed = [_ask(blind_service, new_code(SECRET, 10 + place), token) for place, token in enumerate(tokens)]
    rows = campaign.privatize_coded({"minutes": np.full(3, 30.0), "by": np.zeros(3, dtype=np.int64)}, rng=1)
    wrong = batches.pack(campaign, "once", b"".join(tokens), rows, signatures=b"".join(reversed(signed)))
    answer = blind_service.post("/campaigns/commute/reports", content=wrong)
    assert (answer.status_code, [one["index"] for one in answer.json()["reports"]]) == (422, [0, 2])
    body = batches.pack(campaign, "once", b"".join(tokens), rows, signatures=b"".join(signed))
    assert blind_service.post("/campaigns/commute/reports", content=body).json() == {"accepted": 3, "repeated": 0}
    unsigned = batches.pack(campaign, "once", b"".join(tokens), rows)
    assert blind_service.post("/campaigns/commute/reports", content=unsigned).json()["reason"] == "forged"


def test_a_secret_is_needed(tmp_path: Path, campaigns: list[Campaign]) -> None:
    store = Store(f"sqlite:///{tmp_path / 'x.db'}")
    with pytest.raises(ValueError, match="enrolment"):
        create_app(campaigns, store, Keys({"device": [KEYS["device"]]}))
    store.close()


def test_a_signature_that_came_out_wrong_is_not_given_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """One wrong number of the key would give its factors away (Boneh, DeMillo, Lipton 1997)."""
    key = SigningKey.new()
    blinded = key.public.blind(b"t" * 32)[0]
    right = key._numbers
    changed = {"p": right.p, "q": right.q, "iqmp": right.iqmp, "dmp1": right.dmp1, "dmq1": right.dmq1 ^ 2}
    wrong = SimpleNamespace(public_numbers=right.public_numbers, **changed)
    monkeypatch.setattr(SigningKey, "_numbers", property(lambda self: wrong))
    with pytest.raises(ArithmeticError, match="it was not given away"):
        key.sign(blinded)


def test_signing_keys_rotate_and_older_ones_stay_valid(blind_service: httpx.Client, campaigns: list[Campaign]) -> None:
    campaign, modulus = campaigns[0], "/campaigns/commute/tokens/once"
    first, token = blind_service.get(modulus).json(), secrets.token_bytes(32)
    signature = _ask(blind_service, new_code(SECRET, 21), token)
    assert blind_service.post("/campaigns/commute/rotate").status_code == 403
    assert (
        blind_service.post("/campaigns/commute/rotate", headers={"Authorization": f"Bearer {OPERATOR}"}).status_code
        == 200
    )
    assert blind_service.get(modulus).json() != first
    later = secrets.token_bytes(32)
    for one, own in ((token, signature), (later, _ask(blind_service, new_code(SECRET, 22), later))):
        assert _send(blind_service, campaign, one, own).status_code == 201
    log = blind_service.get("/audit", headers=auth("auditor")).text
    assert "rotate-signing" in log


def test_a_process_takes_tokens_of_a_key_that_another_one_has_just_made(tmp_path: Path) -> None:
    campaign, life = Campaign.from_dict(BLIND), Life()
    stores = [Store(f"sqlite:///{tmp_path / 'x.db'}") for _ in range(2)]
    stores[0].register(campaign, life.written())
    one, other = (Issuer(store, lambda: [SECRET], lambda name: life) for store in stores)
    keys = [other.key(campaign, "once")]
    one.rotate(campaign)
    keys.append(one.key(campaign, "once"))
    token = secrets.token_bytes(32)
    pairs = []
    for key in keys:
        blinded, inverse = key.public.blind(token)
        pairs.append((token, key.public.finish(token, key.sign(blinded), inverse)))
    assert pairs[0] != pairs[1]
    assert other._verified(campaign, "once", [*pairs, (token, b"\x00" * 256)]) == [True, True, False]
    for store in stores:
        store.close()


@pytest.mark.parametrize(("tokens", "message"), [("open", "are not signed"), ("drawn", "a second draw")])
def test_keys_that_cannot_rotate(tokens: str, message: str, tmp_path: Path) -> None:
    campaign, life, where = Campaign.from_dict(COMMUTE | {"tokens": tokens}), Life(), f"sqlite:///{tmp_path / 'x.db'}"
    with closing(Store(where)) as store:
        store.register(campaign, life.written())
        with pytest.raises(ValueError, match=message):
            Issuer(store, lambda: [SECRET], lambda name: life).rotate(campaign)
        assert store.signing_keys(campaign, "once") == []
        told = CliRunner().invoke(verbs, ["collector", "rotate", campaign.id, "--database", where])
        assert told.exit_code != 0
        assert message in told.output


def test_keys_rotate_on_the_command_line(tmp_path: Path) -> None:
    campaign, where = Campaign.from_dict(BLIND), f"sqlite:///{tmp_path / 'x.db'}"
    with closing(Store(where)) as store:
        store.register(campaign, Life().written())
        for count in (1, 2):
            told = CliRunner().invoke(verbs, ["collector", "rotate", "commute", "--as", "eve", "--database", where])
            assert told.exit_code == 0, told.output
            assert len(store.signing_keys(campaign, "once")) == count
        assert [one["who"] for one in store.registry.log(0) if one["action"] == "rotate-signing"] == ["eve", "eve"]
