"""The shuffler in front of the collector: sealed reports in, estimates out, and nothing that tells whose they are."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest
from sqlalchemy.exc import OperationalError
from tests.collector.helpers import (
    COMMUTE,
    KEYS,
    OPERATOR,
    PERSON,
    SECRET,
    Both,
    auth,
    behind_a_shuffler,
    entry,
    reconcile,
    until,
)

from noisette.accounting import shuffled as amplified
from noisette.collector.intake.reception import Writer
from noisette.collector.intake.shuffled import Shuffled, opened
from noisette.collector.storage.mixed import MixedBatch, MixedBatches
from noisette.collector.storage.store import Refused
from noisette.device import AsyncShuffledClient, Client, ShuffledClient
from noisette.device.blind import new_code
from noisette.device.sealed import label, pad
from noisette.device.state import Sent
from noisette.shuffler import PublicKey, Round, ServerKey, new_secret
from noisette.shuffler.clients import sign
from noisette.shuffler.receiver import PATH
from noisette.shuffler.wire import Frame
from noisette.survey.batches import pack
from noisette.survey.campaigns import Campaign

USERS = 12


def deliver(both: Both, packets: list[bytes], context: Round, post: str = "a" * 32 + ".0.1") -> httpx.Response:
    """Bring packets as the shuffler does."""
    body = Frame(context, [(0, one) for one in packets]).encode()
    return httpx.post(both.collector + PATH, content=body, headers=sign(both.own, PATH, "shuffler", post, body))


@pytest.fixture
def both(tmp_path: Path, campaign: Campaign) -> Iterator[Both]:
    with behind_a_shuffler(tmp_path, campaign, USERS) as made:
        yield made


def options(both: Both, name: str, folder: Path) -> dict[str, Any]:
    """Return how a device of this name is built."""
    return {
        "shuffler": both.shuffler,
        "credentials": (name, both.secret_of[name]),
        "public_key": both.shuffled.key.public.text,
        "state": folder / name,
        "api_key": KEYS["device"],
        "epsilon": 5.0,
    }


def in_a_loop(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine in a thread of its own: the browser's tests may have a loop in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


@pytest.mark.parametrize("tokens", ["open", "blind"])
def test_from_devices_to_estimates(tokens: str, tmp_path: Path) -> None:
    """Devices with and without asyncio, whose tokens are signed or not, are mixed and counted alike."""
    campaign = Campaign.from_dict(COMMUTE | {"tokens": tokens})

    async def later(made: dict[str, Any]) -> tuple[bool, Sent]:
        async with AsyncShuffledClient(both.collector, **made) as client:
            return await client.answer("commute", PERSON), await client.send()

    def now(made: dict[str, Any]) -> tuple[bool, Sent]:
        with ShuffledClient(both.collector, **made) as client:
            return client.answer("commute", PERSON), client.send()

    with behind_a_shuffler(tmp_path, campaign, users=2) as both:
        for number, name in enumerate(both.secret_of):
            assert not both.store.periods(campaign)  # nothing before all have sent
            made = options(both, name, tmp_path) | {"code": new_code(SECRET, number)}
            for fresh in (True, False):
                done = in_a_loop(later(made)) if number % 2 else now(made)
                assert done == (fresh, Sent(1, 0, 0))
        until(lambda: both.store.periods(campaign) == {"once": 2})
        found = httpx.get(f"{both.collector}/campaigns/commute/estimates", headers=auth("analyst")).json()
        assert found["users"] == 2
        told = httpx.get(f"{both.collector}/metrics", headers=auth("auditor")).text
        assert 'noisette_reports_accepted_total{campaign="commute"} 2.0' in told


def test_who_would_come_past_the_shuffler_spends_nothing(both: Both, service: httpx.Client, tmp_path: Path) -> None:
    own: dict[str, Any] = {"state": tmp_path / "open", "api_key": KEYS["device"], "epsilon": 2.0}
    with Client(both.collector, **own) as client:
        with pytest.raises(ValueError, match="from its shuffler alone: answer with ShuffledClient"):
            client.answer("commute", PERSON)
        assert client.left["epsilon"] == 2.0
    with ShuffledClient(str(service.base_url), **options(both, "device-0", tmp_path)) as sealed:
        with pytest.raises(ValueError, match="no shuffler in front of it: answer with Client"):
            sealed.answer("commute", PERSON)
        assert sealed.left["epsilon"] == 5.0


def test_a_shuffler_that_does_not_know_a_device(both: Both, tmp_path: Path) -> None:
    """What it refuses is told; while it does not answer at all, the report waits."""
    stranger = options(both, "device-0", tmp_path) | {"credentials": ("stranger", new_secret()), "attempts": 1}
    with ShuffledClient(both.collector, **stranger) as client:
        client.answer("commute", PERSON)
        assert client.send() == Sent(0, 0, 1)  # it may be enrolled yet
        assert "an enrolled client" in client.delayed()[0][2]
        assert client.refusals() == []
    away = options(both, "device-1", tmp_path) | {"shuffler": "http://127.0.0.1:9", "attempts": 1}
    with ShuffledClient(both.collector, **away) as client:
        client.answer("commute", PERSON)
        assert client.send() == Sent(0, 0, 1)
    with ShuffledClient(both.collector, **options(both, "device-1", tmp_path)) as client:
        assert client.send() == Sent(1, 0, 0)


def test_a_report_is_there_from_an_attempt_whose_answer_was_lost(both: Both, tmp_path: Path) -> None:
    with ShuffledClient(both.collector, **options(both, "device-0", tmp_path)) as client:
        client.answer("commute", PERSON)
        (waiting,) = client._device.waiting()
        client.send()
        with client._device._open() as database:
            database.execute("UPDATE queue SET state = 'waiting'")  # as if the device had died before it wrote it down
        assert client._device.waiting() == [waiting]
        assert client.send().sent == 1


def test_the_amplified_guarantee_is_stated(both: Both, campaign: Campaign) -> None:
    """For the minimum less the declared number who collude: a tenth, and at least one."""
    found = httpx.get(f"{both.collector}/campaigns/commute/shuffler", headers=auth("device")).json()
    assert (found["minimum"], found["colluding"]) == (USERS, 1)
    assert found["public_key"] == both.shuffled.key.public.text
    assert found["local"]["epsilon"] == 2.0
    expected = amplified(campaign.mechanism, USERS - 1, 1e-6)
    assert found["shuffled"] == (None if expected.epsilon >= 2.0 else expected.spec())
    assert found["arrived"] == {"batches": 0, "smallest": 0, "shuffled": None}
    many = Shuffled(both.shuffled.key, both.shuffled.shufflers, minimum=100_000)
    stated = many.statement(campaign)["shuffled"]
    assert stated["model"] == "shuffled"
    assert stated["epsilon"] == amplified(campaign.mechanism, 90_000, 1e-6).epsilon
    assert 0 < stated["epsilon"] < 0.1
    nobody = Shuffled(both.shuffled.key, both.shuffled.shufflers, minimum=100_000, colluding=0)
    assert nobody.statement(campaign)["shuffled"]["epsilon"] == amplified(campaign.mechanism, 100_000, 1e-6).epsilon
    arrived = [MixedBatch("a", "commute", "once", 1, "released", count, count) for count in (150_000, 120_000)]
    told = many.statement(campaign, arrived)["arrived"]
    assert (told["batches"], told["smallest"]) == (2, 120_000)
    assert told["shuffled"]["epsilon"] == amplified(campaign.mechanism, 110_000, 1e-6).epsilon < stated["epsilon"]
    grouped = COMMUTE | {"public_group": {"name": "city", "values": ["A", "B"]}}
    assert many.guarantee(Campaign.from_dict(grouped)) is None  # who is alone in a group stands out
    for wrong in (-1, 12, 2.5):
        with pytest.raises((TypeError, ValueError), match="colluding"):
            Shuffled(both.shuffled.key, both.shuffled.shufflers, minimum=12, colluding=wrong)  # type: ignore[arg-type]


def test_reports_that_come_past_the_shuffler_are_refused(both: Both, campaign: Campaign) -> None:
    body = {"version": 1} | entry(campaign.privatize(PERSON, rng=1))
    answer = httpx.post(f"{both.collector}/campaigns/commute/reports", json=body, headers=auth("device"))
    assert (answer.status_code, answer.json()["reason"]) == (403, "shuffler-only")
    assert not both.store.periods(campaign)


def sealed_for(both: Both, campaign: Campaign, body: Any, to: Any = None) -> bytes:
    """Return a packet as a device seals it, or as whoever seals something else."""
    padded = pad(campaign, body) if isinstance(body, dict) else body
    return bytes((to or both.shuffled.key.public).seal(padded, label(campaign, "once").label(0)))


def reports(campaign: Campaign, count: int, seed: int = 1) -> list[dict[str, Any]]:
    """Return sound reports of so many users."""
    rng = np.random.default_rng(seed)
    return [{"version": 1} | entry(campaign.privatize(PERSON, rng=rng)) for _ in range(count)]


def test_what_the_shuffler_may_bring(both: Both, campaign: Campaign) -> None:
    """Sound reports count once however often they come; what is wrong is counted, and does not hinder the others."""
    context, good = label(campaign, "once"), reports(campaign, USERS)
    wrong = [
        sealed_for(both, campaign, good[0], ServerKey.generate().public),
        sealed_for(both, campaign, b"nonsense".ljust(len(pad(campaign, good[0])))),
        sealed_for(both, campaign, {"version": 1} | entry([[0, 1e9]])),
        sealed_for(both, campaign, {"version": 1} | entry(good[0]["report"], period="2026-11-16")),
    ]
    packets = [sealed_for(both, campaign, one) for one in good]
    answer = deliver(both, packets + wrong, context)
    assert (answer.status_code, answer.json()) == (201, RELEASED | {"accepted": USERS, "rejected": 4})
    again = deliver(both, packets + wrong, context)
    assert (again.status_code, again.json()) == (200, RELEASED)
    assert both.store.periods(campaign) == {"once": USERS}
    assert reconcile(both.store, campaign) == USERS
    told = httpx.get(f"{both.collector}/metrics", headers=auth("auditor")).text
    for reason in ("cannot-open", "malformed", "out-of-support", "wrong-period"):
        assert f'noisette_reports_rejected_total{{reason="{reason}"}} 1.0' in told
    elsewhere = deliver(both, packets, Round("other/once", 0, 1))
    assert elsewhere.status_code == 404
    for odd in (Round("commute/once", 1, 1), Round("commute/once", 0, 2)):
        assert deliver(both, packets, odd).status_code == 400
    for letters, status in ((16, 200), (17, 400)):  # of a period
        odd = Round(f"commute/{'x' * letters}", 0, 1)
        assert deliver(both, packets, odd, secrets.token_hex(16) + ".0.1").status_code == status
    assert deliver(both, packets, context, "a" * 32 + ".0.2").json()["reason"] == "malformed"  # another total
    forged = httpx.post(both.collector + PATH, content=b"x", headers=sign(new_secret(), PATH, "shuffler", "p", b"x"))
    assert (forged.status_code, forged.json()["reason"]) == (401, "forged")
    malformed = httpx.post(both.collector + PATH, content=b"x", headers=sign(both.own, PATH, "shuffler", "p", b"x"))
    assert (malformed.status_code, malformed.json()["reason"]) == (400, "malformed")


RELEASED = {"state": "released", "accepted": 0, "repeated": 0, "rejected": 0}


def test_below_the_minimum_nothing_is_stored(both: Both, campaign: Campaign) -> None:
    """Packets that do not open, copies, and reports that came before make up no minimum."""
    context, bodies = label(campaign, "once"), reports(campaign, 3 * USERS)
    good, size = [sealed_for(both, campaign, one) for one in bodies], len(pad(campaign, bodies[0]))
    junk = [sealed_for(both, campaign, b"x" * size, ServerKey.generate().public) for _ in range(USERS)]

    def brought(packets: list[bytes]) -> str:
        return str(deliver(both, packets, context, secrets.token_hex(16) + ".0.1").json()["state"])

    assert brought(good[: USERS - 1]) == "refused"  # a shuffler with a lower minimum
    assert brought(good[: USERS - 2] + junk[:2]) == "refused"  # more of them than were declared to collude
    assert brought(good[: USERS - 1] * 2) == "refused"  # copies
    assert brought(good[: USERS - 1] + junk[:1]) == "held"
    assert not both.store.periods(campaign)
    assert brought(good[: USERS - 1] + junk) == "refused"  # these came before, though they are not stored
    assert not both.store.periods(campaign)
    assert brought(good[USERS : 2 * USERS - 1] + junk[:1]) == "released"  # with those that were held
    assert both.store.periods(campaign) == {"once": 2 * (USERS - 1)}
    assert brought(good[: USERS - 1] + good[2 * USERS : 2 * USERS + 1]) == "refused"
    assert brought(good[2 * USERS :]) == "released"
    assert reconcile(both.store, campaign) == 2 * (USERS - 1) + USERS
    found = httpx.get(f"{both.collector}/campaigns/commute/shuffler", headers=auth("device")).json()["arrived"]
    assert (found["batches"], found["smallest"]) == (3, USERS - 1)
    told = httpx.get(f"{both.collector}/metrics", headers=auth("auditor")).text
    for state, count in (("released", 2), ("held", 1), ("refused", 5)):
        assert f'noisette_batches_total{{state="{state}"}} {count}.0' in told


def test_a_batch_in_parts_is_stored_as_a_whole_or_not_at_all(both: Both, campaign: Campaign) -> None:
    context, name = label(campaign, "once"), secrets.token_hex(16)
    packets = [sealed_for(both, campaign, one) for one in reports(campaign, USERS)]
    parts = [packets[:5], packets[5:10], packets[10:]]
    for sequence, part in enumerate(parts[:2]):
        for _ in range(2):  # a part that comes again is no news
            assert deliver(both, part, context, f"{name}.{sequence}.3").json() == {"state": "coming"}
    assert not both.store.periods(campaign)
    assert deliver(both, parts[2], context, f"{name}.2.3").json() == RELEASED | {"accepted": USERS}
    assert reconcile(both.store, campaign) == USERS
    assert deliver(both, parts[0], context, f"{name}.0.3").json() == RELEASED


def test_a_report_that_cannot_be_stored_is_not_lost(
    both: Both, campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch is not erased: the part that comes again has all of it stored."""
    packets = [sealed_for(both, campaign, one) for one in reports(campaign, USERS)]

    async def fails(*_: object) -> None:
        raise OperationalError("store", {}, Exception("the disk is full"))

    with monkeypatch.context() as patched:
        patched.setattr(Writer, "write", fails)
        assert deliver(both, packets, label(campaign, "once")).status_code == 503
    assert not both.store.periods(campaign)
    assert deliver(both, packets, label(campaign, "once")).json() == RELEASED | {"accepted": USERS}


@dataclass
class SomeReports:
    """As much of a batch of reports as what opens packets looks at."""

    count: int
    period: str

    def __len__(self) -> int:
        return self.count


@pytest.mark.parametrize(
    ("batches", "reason"),
    [
        ([(1, "2026-11-16")], None),
        ([(1, "2026-11-17")], "wrong-period"),  # another one of the campaign: there it would have other company
        ([(1, "")], "wrong-period"),
        ([(2, "2026-11-16")], "several-reports"),
        ([(1, "2026-11-16"), (1, "2026-11-16")], "several-reports"),
        ([(0, "2026-11-16")], "several-reports"),
    ],
)
def test_a_packet_holds_one_report_for_the_period_that_it_was_sealed_for(
    batches: list[tuple[int, str]], reason: str | None
) -> None:
    key, context = ServerKey.generate(), Round("days/2026-11-16", 0, 1)
    sealed = [(0, key.public.seal(text.ljust(9), context.label(0))) for text in (b"sound", b"odd", b"sound too")]
    found = {b"odd": tuple(SomeReports(*own) for own in batches)}
    usual = (SomeReports(1, "2026-11-16"),)
    seen = opened(key, SimpleNamespace(id="days"), Frame(context, sealed), lambda _, body: found.get(body, usual))  # type: ignore[arg-type, return-value]
    assert (seen[0], seen[2]) == (usual, usual)
    assert ([one.reason for one in seen[1].refusals] if isinstance(seen[1], Refused) else None) == (reason and [reason])


@pytest.mark.long
def test_a_collector_that_dies_while_it_stores(both: Both, campaign: Campaign, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was decided stands: the part that the shuffler sends again has the rest stored, each report once."""
    context, name = label(campaign, "once"), secrets.token_hex(16)
    bodies = reports(campaign, 2 * USERS)
    good, size = [sealed_for(both, campaign, one) for one in bodies], len(pad(campaign, bodies[0]))
    junk = sealed_for(both, campaign, b"x" * size, ServerKey.generate().public)
    assert deliver(both, [*good[: USERS - 1], junk], context, secrets.token_hex(16) + ".0.1").json()["state"] == "held"

    def dies(*_: object) -> None:
        raise OperationalError("erase", {}, Exception("it died"))

    with monkeypatch.context() as patched:
        patched.setattr(MixedBatches, "erase", dies)
        assert deliver(both, good[USERS:], context, f"{name}.0.1").status_code == 503
    answer = deliver(both, good[USERS:], context, f"{name}.0.1")
    assert answer.status_code in (200, 201)
    assert reconcile(both.store, campaign) == 2 * USERS - 1


def test_one_sealed_packet_holds_one_report(both: Both, campaign: Campaign) -> None:
    """As many votes as fit in one packet are none, in JSON and as a binary batch."""
    good = reports(campaign, USERS)
    size = len(pad(campaign, good[0]))
    votes = [{name: value for name, value in one.items() if name != "version"} for one in reports(campaign, 40, seed=2)]
    rows = campaign.survey.rows([one["report"] for one in votes])
    packed = pack(campaign, "once", b"".join(bytes.fromhex(one["token"]) for one in votes), rows)
    several = json.dumps({"version": 1, "reports": votes[:10]}).encode()
    assert max(len(packed), len(several)) < size
    packets = [sealed_for(both, campaign, one) for one in [*good, several.ljust(size), packed.ljust(size)]]
    assert deliver(both, packets, label(campaign, "once")).json() == RELEASED | {"accepted": USERS, "rejected": 2}
    assert both.store.periods(campaign) == {"once": USERS}


def test_a_signature_that_is_no_text_of_base64_is_refused(tmp_path: Path) -> None:
    campaign = Campaign.from_dict(COMMUTE | {"tokens": "blind"})
    with behind_a_shuffler(tmp_path, campaign, 2) as both:
        bodies = [one | {"signature": text} for one, text in zip(reports(campaign, 3), ("é", "=", "AAAA"), strict=True)]
        answer = deliver(both, [sealed_for(both, campaign, one) for one in bodies], label(campaign, "once"))
        assert (answer.status_code, answer.json()["state"], answer.json()["rejected"]) == (200, "refused", 3)


def test_the_key_that_reports_are_sealed_for_rotates_live(both: Both, campaign: Campaign) -> None:
    """Reports that were sealed for the old key are stored until it is retired; who did it is in the log."""
    context, bodies = label(campaign, "once"), reports(campaign, 3 * USERS)
    old = both.shuffled.key.public

    def brought(some: list[dict[str, Any]], key: Any) -> str:
        packets = [sealed_for(both, campaign, one, key) for one in some]
        return str(deliver(both, packets, context, secrets.token_hex(16) + ".0.1").json()["state"])

    def change(action: str, key: str = OPERATOR) -> httpx.Response:
        return httpx.post(f"{both.collector}/server-key/{action}", headers={"Authorization": f"Bearer {key}"})

    assert change("rotate", KEYS["analyst"]).status_code == 403
    rotated = change("rotate").json()["public_keys"]
    assert rotated == [both.shuffled.key.public.text, old.text]
    shown = httpx.get(f"{both.collector}/campaigns/commute/shuffler", headers=auth("device")).json()
    assert shown["public_keys"] == rotated
    assert brought(bodies[:USERS], old) == "released"
    assert brought(bodies[USERS : 2 * USERS], PublicKey(rotated[0])) == "released"
    assert change("retire").json()["public_keys"] == rotated[:1]
    assert brought(bodies[2 * USERS :], old) == "refused"
    assert reconcile(both.store, campaign) == 2 * USERS
    log = httpx.get(f"{both.collector}/audit", headers=auth("auditor")).json()
    assert "rotate-server-key" in json.dumps(log)
    assert change("sell").status_code == 422


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
