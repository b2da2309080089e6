"""The shuffler in front of the collector: sealed reports in, estimates out, and nothing that tells whose they are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from tests.collector.helpers import COMMUTE, KEYS, PERSON, auth, entry, running

from noisette.accounting import shuffled as amplified
from noisette.collector import Campaign, Store, create_app
from noisette.collector.keys import Keys
from noisette.collector.shuffled import Shuffled, ShuffledClient, label, pad
from noisette.shuffler import Clients, Round, ServerKey, Shuffler, new_secret
from noisette.shuffler import create_app as create_shuffler
from noisette.shuffler.clients import sign
from noisette.shuffler.receiver import PATH
from noisette.shuffler.sender import Http
from noisette.shuffler.wire import Frame

USERS = 12


@dataclass(frozen=True)
class Both:
    """A collector behind a shuffler."""

    collector: str
    shuffler: str
    store: Store
    shuffled: Shuffled
    secret_of: dict[str, str]
    own: str

    def deliver(self, packets: list[bytes], context: Round, post: str = "a" * 32 + ".0.1") -> httpx.Response:
        """Bring packets as the shuffler does."""
        body = Frame(context, [(0, one) for one in packets]).encode()
        return httpx.post(self.collector + PATH, content=body, headers=sign(self.own, PATH, "shuffler", post, body))


@pytest.fixture
def both(tmp_path: Path, campaign: Campaign) -> Iterator[Both]:
    store = Store(f"sqlite:///{tmp_path / 'reports.db'}")
    own, secret_of = new_secret(), {f"device-{number}": new_secret() for number in range(USERS)}
    shuffled = Shuffled(ServerKey.generate(), Clients({"shuffler": own}), minimum=USERS)
    keys = Keys({role: [key] for role, key in KEYS.items()})
    with running(create_app([campaign], store, keys, shuffled=shuffled)) as collector:
        mixing = Shuffler(tmp_path / "shuffler.db", minimum=USERS)
        to = Http(collector, client="shuffler", secret=own, path=PATH, attempts=1)
        with running(create_shuffler(mixing, Clients(secret_of), to)) as url:
            yield Both(collector, url, store, shuffled, secret_of, own)


def test_from_devices_to_estimates(both: Both, campaign: Campaign, tmp_path: Path) -> None:
    clients = []
    for name, secret in both.secret_of.items():
        client = ShuffledClient(
            both.collector,
            shuffler=both.shuffler,
            credentials=(name, secret),
            public_key=both.shuffled.key.public.text,
            state=tmp_path / name,
            api_key=KEYS["device"],
            epsilon=5.0,
        )
        clients.append(client)
        assert client.answer("commute", PERSON)
        assert not both.store.periods(campaign)  # nothing before all have sent
        assert client.send().sent == 1
        assert client.send().waiting == 0
    for client in clients:
        client.close()
    _until(lambda: both.store.periods(campaign) == {"once": USERS})
    found = httpx.get(f"{both.collector}/campaigns/commute/estimates", headers=auth("analyst")).json()
    assert found["users"] == USERS
    told = httpx.get(f"{both.collector}/metrics", headers=auth("auditor")).text
    assert f'noisette_reports_accepted_total{{campaign="commute"}} {float(USERS)}' in told


def _until(done: Any) -> None:
    import time

    deadline = time.monotonic() + 20
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_report_is_there_from_an_attempt_whose_answer_was_lost(both: Both, tmp_path: Path) -> None:
    name, secret = next(iter(both.secret_of.items()))
    options: dict[str, Any] = {"shuffler": both.shuffler, "credentials": (name, secret), "epsilon": 5.0}
    options |= {"public_key": both.shuffled.key.public.text, "api_key": KEYS["device"], "state": tmp_path / "device"}
    with ShuffledClient(both.collector, **options) as client:
        client.answer("commute", PERSON)
        (waiting,) = client._device.waiting()
        client.send()
        with client._device._open() as database:
            database.execute("UPDATE queue SET state = 'waiting'")  # as if the device had died before it wrote it down
        assert client._device.waiting() == [waiting]
        assert client.send().sent == 1


def test_the_amplified_guarantee_is_stated(both: Both, campaign: Campaign) -> None:
    found = httpx.get(f"{both.collector}/campaigns/commute/shuffler", headers=auth("device")).json()
    expected = amplified(campaign.mechanism, USERS, 1e-6)
    assert found["minimum"] == USERS
    assert found["public_key"] == both.shuffled.key.public.text
    assert found["local"]["epsilon"] == 2.0
    stated = None if expected.epsilon >= 2.0 else expected.spec()
    assert found["shuffled"] == stated
    many = Shuffled(both.shuffled.key, both.shuffled.shufflers, minimum=100_000)
    stated = many.statement(campaign)["shuffled"]
    assert stated["model"] == "shuffled"
    assert stated["epsilon"] == amplified(campaign.mechanism, 100_000, 1e-6).epsilon
    assert 0 < stated["epsilon"] < 0.1
    grouped = COMMUTE | {"public_group": {"name": "city", "values": ["A", "B"]}}
    assert many.guarantee(Campaign.from_dict(grouped)) is None  # who is alone in a group stands out


def test_reports_that_come_past_the_shuffler_are_refused(both: Both, campaign: Campaign) -> None:
    body = {"version": 1} | entry(campaign.privatize(PERSON, rng=1))
    answer = httpx.post(f"{both.collector}/campaigns/commute/reports", json=body, headers=auth("device"))
    assert (answer.status_code, answer.json()["reason"]) == (403, "shuffler-only")
    assert not both.store.periods(campaign)


def test_what_the_shuffler_may_bring(both: Both, campaign: Campaign) -> None:
    """Sound reports count once however often they come; what is wrong is counted, and does not hinder the others."""
    context = label(campaign, "once")

    def seal(body: Any, to: Any = both.shuffled.key.public) -> bytes:
        padded = pad(campaign, body) if isinstance(body, dict) else body
        return bytes(to.seal(padded, context.label(0)))

    rng = np.random.default_rng(1)
    good = [{"version": 1} | entry(campaign.privatize(PERSON, rng=rng)) for _ in range(3)]
    wrong = [
        seal(good[0], ServerKey.generate().public),
        seal(b"nonsense".ljust(len(pad(campaign, good[0])))),
        seal({"version": 1} | entry([[0, 1e9]])),
        seal({"version": 1} | entry(good[0]["report"], period="2026-11-16")),
    ]
    packets = [seal(one) for one in good]
    answer = both.deliver(packets + wrong, context)
    assert (answer.status_code, answer.json()) == (201, {"accepted": 3, "repeated": 0, "rejected": 4})
    again = both.deliver(packets, context)
    assert (again.status_code, again.json()) == (200, {"accepted": 0, "repeated": 3, "rejected": 0})
    assert both.store.periods(campaign) == {"once": 3}
    told = httpx.get(f"{both.collector}/metrics", headers=auth("auditor")).text
    for reason in ("cannot-open", "malformed", "out-of-support", "wrong-period"):
        assert f'noisette_reports_rejected_total{{reason="{reason}"}} 1.0' in told
    elsewhere = both.deliver(packets, Round("other/once", 0, 1))
    assert elsewhere.status_code == 404
    forged = httpx.post(both.collector + PATH, content=b"x", headers=sign(new_secret(), PATH, "shuffler", "p", b"x"))
    assert (forged.status_code, forged.json()["reason"]) == (401, "forged")
    malformed = httpx.post(both.collector + PATH, content=b"x", headers=sign(both.own, PATH, "shuffler", "p", b"x"))
    assert (malformed.status_code, malformed.json()["reason"]) == (400, "malformed")


def test_all_reports_have_one_length(campaign: Campaign) -> None:
    rng = np.random.default_rng(2)
    bodies = [{"version": 1} | entry(campaign.privatize(PERSON, rng=rng)) for _ in range(200)]
    assert len({len(json.dumps(one)) for one in bodies}) > 1  # their texts differ in length
    assert len({len(pad(campaign, one)) for one in bodies}) == 1
    assert json.loads(pad(campaign, bodies[0])) == bodies[0]
    with pytest.raises(ValueError, match="at most"):
        pad(campaign, bodies[0] | {"signature": "x" * 9999})


def test_options_go_together(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from noisette.cli import verbs

    path = tmp_path / "campaign.yaml"
    path.write_text(json.dumps(COMMUTE), encoding="utf-8")
    run = CliRunner().invoke(verbs, ["serve", str(path), "--minimum", "5", "--database", f"sqlite:///{tmp_path}/r.db"])
    assert run.exit_code == 2
    assert "together" in run.stderr
