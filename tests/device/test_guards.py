"""What a device refuses before anything leaves it: another key, another campaign, a group that nobody asked for."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest

from noisette._sqlite import transaction
from noisette.device import Client
from noisette.device.blind import SigningKey, VerifyingKey
from noisette.device.client import check_code
from noisette.device.conversation import ahead_of, judged, shown, signature_of
from noisette.device.gateway import Gateway
from noisette.device.sealed import ShuffledClient, pad
from noisette.device.state import SENT, Verdict, check_group, check_time, note_law
from noisette.device.tokens import WALLET, Wallet
from noisette.shuffler import Clients, ServerKey
from noisette.shuffler.clients import CLIENT, MINIMUM
from noisette.survey.campaigns import Campaign

COMMUTE: dict[str, Any] = {
    "id": "commute",
    "epsilon": 2.0,
    "users": 1000,
    "attributes": [{"name": "minutes", "range": [0, 120]}],
    "mechanism": {"minutes": "piecewise"},
}
DRAWN = {"id": "drinks", "epsilon": 4.0, "users": 10, "attributes": [{"name": "drink", "text": 6}], "tokens": "drawn"}


def told(campaign: dict[str, Any], **more: Any) -> httpx.Response:
    """Return how a collector shows a campaign."""
    return httpx.Response(200, json=Campaign.from_dict(campaign).to_wire() | more)


def wallet(folder: Path, owner: bytes = b"") -> Wallet:
    with transaction(folder / "wallet.db") as database:
        database.execute(WALLET)
    return Wallet(folder / "wallet.db", owner)


@cache
def keys() -> dict[str, SigningKey]:
    """Return two keys, the smaller first: what is blinded under it can be signed under both."""
    return dict(zip(("first", "second"), sorted([SigningKey.new(), SigningKey.new()], key=_modulus), strict=True))


def _modulus(key: SigningKey) -> int:
    return key.public.modulus


def modulus(name: str) -> str:
    return f"{_modulus(keys()[name]):x}"


def test_a_collector_that_shows_another_key_gets_no_second_token(tmp_path: Path) -> None:
    """A key for each user would mark who sent which report: a period has one key, whatever is asked later."""
    own = wallet(tmp_path)
    first = own.blind("commute", "once", modulus("first"))
    assert own.blind("commute", "once", modulus("first")) == first  # the same blinded token, however often
    with pytest.raises(ValueError, match=r"another key than before.*may mark users"):
        own.blind("commute", "once", modulus("second"))
    assert own.blind("commute", "once", modulus("first")) == first
    assert own.blind("commute", "next", modulus("second")) != first
    assert own.blind("other", "once", modulus("second")) != first
    assert Wallet(own.path, b"another user").blind("commute", "once", modulus("second")) != first


def test_a_signature_by_another_key_is_not_kept(tmp_path: Path) -> None:
    own = wallet(tmp_path)
    blinded = base64.b64decode(own.blind("commute", "once", modulus("first")))
    wrong, right = (base64.b64encode(keys()[name].sign(blinded)).decode() for name in ("second", "first"))
    with pytest.raises(ValueError, match="signature"):
        own.unblind("commute", "once", wrong)
    assert own.signed("commute", "once") is None
    own.unblind("commute", "once", right)
    token, signature = own.signed("commute", "once") or (b"", b"")
    assert keys()["first"].public.verifies(token, signature)
    assert not keys()["second"].public.verifies(token, signature)


@pytest.mark.parametrize(
    ("answer", "sealed", "words"),
    [
        (told(COMMUTE | {"id": "other"}), False, "the collector sent 'other'"),
        (told(COMMUTE, sealed=True), False, "from its shuffler alone"),
        (told(COMMUTE, sealed=False), True, "no shuffler in front"),
        (told(COMMUTE), True, "no shuffler in front"),
        (httpx.Response(404, json={"detail": "there is none"}), False, "does not show"),
        (httpx.Response(201, json={}), False, "does not show"),
    ],
)
def test_a_campaign_that_is_not_the_one_asked_for_is_refused(answer: httpx.Response, sealed: bool, words: str) -> None:
    with pytest.raises((ValueError, RuntimeError), match=words):
        shown(answer, "commute", sealed=sealed)


def test_the_campaign_asked_for_is_returned() -> None:
    assert shown(told(COMMUTE), "commute", sealed=False).id == "commute"
    assert shown(told(COMMUTE, sealed=False), "commute", sealed=False).id == "commute"
    assert shown(told(COMMUTE, sealed=True), "commute", sealed=True).id == "commute"


def test_a_public_group_is_one_that_the_campaign_knows() -> None:
    plain = Campaign.from_dict(COMMUTE)
    grouped = Campaign.from_dict(COMMUTE | {"groups": {"region": ["north", "south"]}})
    check_group(plain, None)
    check_group(grouped, "south")
    with pytest.raises(ValueError, match=r"asks for no public group: leave group='north' out"):
        check_group(plain, "north")
    for wrong in (None, "east", ""):
        with pytest.raises(ValueError, match="region, to be one of north, south"):
            check_group(grouped, wrong)


@pytest.mark.parametrize(
    ("status", "word", "state"),
    [
        (200, "", "sent"),
        (201, "", "sent"),
        (401, "", "waiting"),
        (403, "", "waiting"),
        (404, "", "waiting"),
        (425, "", "waiting"),
        (409, "wrong-period", "waiting"),
        (409, "post-reused", "waiting"),
        (409, "copied", "waiting"),
        (403, "unknown-code", "refused"),
        (400, "", "refused"),
        (409, "repeated", "refused"),
        (410, "", "refused"),
        (422, "", "refused"),
    ],
)
def test_what_an_answer_means_for_a_report(status: int, word: str, state: str) -> None:
    """What an operator or time can mend keeps the report; whatever else is refused stays refused."""
    body = {"detail": "why"} | ({"reason": word} if word else {})
    verdict = judged(httpx.Response(status, json=body))
    assert verdict is not None
    assert (verdict == SENT) == (state == "sent")
    if state != "sent":
        assert (verdict.state, "why" in verdict.reason) == (state, True)
    assert judged(None) is None


def test_a_clock_is_compared_with_the_collectors() -> None:
    late = httpx.Response(200, headers={"date": "Wed, 01 Jan 2020 00:00:00 GMT"})
    assert ahead_of(late) > 365 * 24 * 60 * 60
    assert ahead_of(httpx.Response(200)) == 0.0
    assert ahead_of(httpx.Response(200, headers={"date": "no date"})) == 0.0


def replied(talk: Any, verdict: Verdict | None) -> None:
    """Answer what a conversation asks, or be away."""
    if verdict is None:
        talk.throw(httpx.ConnectError("nobody"))
    else:
        talk.send(httpx.Response(422, json={"detail": verdict.reason}))


@pytest.mark.parametrize(
    ("verdict", "words"), [(None, "does not answer"), (Verdict("refused", "no such code"), "no s")]
)
def test_nothing_is_drawn_without_a_signature(tmp_path: Path, verdict: Verdict | None, words: str) -> None:
    device: Any = SimpleNamespace(wallet=wallet(tmp_path))
    talk = signature_of(device, Campaign.from_dict(DRAWN), "code", 1)
    asked = next(talk)
    assert (asked.method, asked.path) == ("GET", "/campaigns/drinks/tokens/once")
    with pytest.raises(RuntimeError, match=f"not signed the token that draws for this user: .*{words}"):
        replied(talk, verdict)
    with pytest.raises(StopIteration) as stopped:  # where nothing is drawn, nobody is asked
        next(signature_of(device, Campaign.from_dict(COMMUTE), None, 1))
    assert stopped.value.value is None


class Collector:
    """A collector that shows a campaign, and answers a batch as it is told."""

    def __init__(self, campaign: dict[str, Any], status: int, answer: Any) -> None:
        self.campaign, self.status, self.answer, self.bodies = campaign, status, answer, list[bytes]()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return told(self.campaign)
        self.bodies.append(request.read())
        return httpx.Response(self.status, content=json.dumps(self.answer).encode())


def gateway(folder: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch) -> Gateway:
    plain = httpx.Client

    def made(**options: Any) -> httpx.Client:
        return plain(**options | {"transport": httpx.MockTransport(collector)})

    with monkeypatch.context() as patched:
        patched.setattr("noisette.device.gateway.httpx.Client", made)
        return Gateway("http://collector", collector.campaign["id"], state=folder, api_key="k", epsilon=4, attempts=1)


def answered(through: Gateway) -> None:
    assert through.answer([b"one", b"two", b"three"], {"minutes": np.asarray([1.0, 2.0, 3.0])}) == 3


def test_a_collector_that_counts_otherwise_than_was_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it did not count stays in the queue, and the operator is told."""
    for number, counts in enumerate([(2, 0), (3, 1)]):
        collector = Collector(COMMUTE, 200, dict(zip(("accepted", "repeated"), counts, strict=True)))
        with gateway(tmp_path / str(number), collector, monkeypatch) as through:
            answered(through)
            with pytest.raises(RuntimeError, match="Sent 3 reports, the collector counted"):
                through.send()
            assert (through.tally().sent, through.tally().waiting) == (0, 3)
    for number, counts in enumerate([(2, 1)]):
        collector = Collector(COMMUTE, 200, dict(zip(("accepted", "repeated"), counts, strict=True)))
        with gateway(tmp_path / f"right{number}", collector, monkeypatch) as through:
            answered(through)
            assert (through.send().sent, len(collector.bodies)) == (3, 1)


@pytest.mark.parametrize(("status", "answer"), [(422, {"detail": "no"}), (500, {"reports": [{"index": 0}]}), (403, {})])
def test_a_batch_that_is_refused_as_a_whole_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, answer: Any
) -> None:
    with gateway(tmp_path, Collector(COMMUTE, status, answer), monkeypatch) as through:
        answered(through)
        if status < 500:
            with pytest.raises(RuntimeError, match="refuses the batch, which is kept"):
                through.send()
        else:
            through.send()
        assert (through.tally().refused, through.tally().waiting) == (0, 3)


def test_reports_that_are_refused_one_by_one_are_put_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = {"reports": [{"index": number, "detail": "it is late"} for number in range(3)]}
    with gateway(tmp_path, Collector(COMMUTE, 422, answer), monkeypatch) as through:
        answered(through)
        assert through.send().refused == 3


def test_a_gateway_draws_for_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is drawn follows from the user's own token: whoever answers first and signs later could choose it."""
    through = gateway(tmp_path, Collector(DRAWN, 200, {}), monkeypatch)
    with through, pytest.raises(ValueError, match=r"to answer by Client: what is drawn follows"):
        through.check([b"one"])


def test_users_without_a_code_are_refused_before_anything_is_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gateway(tmp_path, Collector(COMMUTE | {"tokens": "blind"}, 200, {}), monkeypatch) as through:
        with pytest.raises(ValueError, match="enrolment code of user 'one'"):
            through.answer([b"one"], {"minutes": np.asarray([1.0])})
        assert through._ledger.balance("each user").epsilon == 0
    with gateway(tmp_path / "open", Collector(COMMUTE, 200, {}), monkeypatch) as through:
        through.check([b"one"])


def test_a_device_does_not_answer_another_campaign_than_it_asked_for(tmp_path: Path) -> None:
    transport = httpx.MockTransport(Collector(COMMUTE, 200, {}))
    options: dict[str, Any] = {"api_key": "k", "epsilon": 4.0, "attempts": 1, "transport": transport}
    with Client("http://collector", state=tmp_path, **options) as client:
        with pytest.raises(ValueError, match="the collector sent 'commute'"):
            client.answer("other", {"minutes": 3.0})
        assert client.left["epsilon"] == 4


def test_a_campaign_that_changes_under_its_id_is_not_answered(tmp_path: Path) -> None:
    """Who could try one range after the other would learn from silence where a value is not."""
    collector = Collector(COMMUTE, 200, {})
    options: dict[str, Any] = {"api_key": "k", "epsilon": 4.0, "attempts": 1}
    with Client("http://c", state=tmp_path, transport=httpx.MockTransport(collector), **options) as client:
        assert client.campaign("commute").id == "commute"
        for changed in ({"attributes": [{"name": "minutes", "range": [0, 121]}]}, {"epsilon": 1.0}):
            collector.campaign = COMMUTE | changed
            with pytest.raises(ValueError, match=r"than before\. Do not answer it"):
                client.answer("commute", {"minutes": 3.0})
        collector.campaign = COMMUTE
        assert client.answer("commute", {"minutes": 3.0})


def test_a_collector_that_was_never_seen_is_not_guessed(tmp_path: Path) -> None:
    def away(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("nobody")

    options: dict[str, Any] = {"api_key": "k", "epsilon": 4.0, "attempts": 1}
    with (
        Client("http://c", state=tmp_path, transport=httpx.MockTransport(away), **options) as client,
        pytest.raises(httpx.ConnectError),
    ):
        client.campaign("commute")


def test_a_campaign_that_admits_by_code_needs_one() -> None:
    signed = Campaign.from_dict(COMMUTE | {"tokens": "blind"})
    with pytest.raises(ValueError, match="admits users by enrolment code"):
        check_code(signed, None)
    assert check_code(signed, "a code") is signed
    plain = Campaign.from_dict(COMMUTE)
    assert check_code(plain, None) is plain


def test_all_sealed_reports_of_a_campaign_have_one_length() -> None:
    campaign = Campaign.from_dict(COMMUTE)
    short, long = (pad(campaign, {"report": "x" * size}) for size in (1, 100))
    assert len(short) == len(long) > 2560
    assert json.loads(long) == {"report": "x" * 100}
    longest = len(short) - len('{"report":""}')
    assert len(pad(campaign, {"report": "x" * longest})) == len(short)
    with pytest.raises(ValueError, match=f"at most {len(short)} bytes, got {len(short) + 1}"):
        pad(campaign, {"report": "x" * (longest + 1)})


def test_a_gateway_reports_from_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with gateway(tmp_path, Collector(COMMUTE, 200, {}), monkeypatch) as through:
        through.same_source("one")
        through.same_source("one")
        with pytest.raises(ValueError, match="row numbers would name other users"):
            through.same_source("two")


@pytest.mark.parametrize("wrong", [3, 2**2047, 2**2048 + 1, 2**2047 - 1])
def test_a_key_that_is_too_small_or_even_is_refused(wrong: int) -> None:
    VerifyingKey(2**2047 + 1)
    with pytest.raises(ValueError, match="odd modulus of 2048 bits"):
        VerifyingKey(wrong)


@pytest.mark.parametrize("number", [0, 1])
def test_what_is_no_blinded_token_is_not_signed(number: int) -> None:
    key = keys()["first"]
    for wrong in (number.to_bytes(256, "big"), key.public.modulus.to_bytes(256, "big"), bytes([1] * 255)):
        with pytest.raises(ValueError, match="Expected a blinded token of 256 bytes"):
            key.sign(wrong)


STATED = {"public_key": ServerKey.generate().public.text, "minimum": 7}
SECRET = "5a" * 32


@pytest.mark.parametrize(("own", "stated", "asked"), [(0, None, 0), (0, 7, 7), (9, 7, 9), (5, 7, 7), (3, None, 3)])
def test_a_report_asks_to_be_mixed_with_as_many_as_stated_or_more(
    tmp_path: Path, own: int, stated: int | None, asked: int
) -> None:
    """By default that is what the campaign states; nobody is mixed with fewer because a device asks for fewer."""
    options: dict[str, Any] = {} if own == 0 else {"minimum": own}
    client = ShuffledClient(
        "http://collector",
        shuffler="http://shuffler",
        credentials=("anna", SECRET),
        public_key=STATED["public_key"],
        state=tmp_path,
        api_key="k",
        epsilon=4.0,
        **options,
    )
    with client:
        shown_as = told(COMMUTE, sealed=True, **({} if stated is None else {"minimum": stated}))
        client._device.remember(shown(shown_as, "commute", sealed=True), shown_as.text)
        request = next(client._carry(client._device, "commute", {"period": "once", "report": {"minutes": 1.0}}))
    assert (request.to, request.path, request.headers[MINIMUM]) == ("shuffler", "/posts", str(asked))
    caller = Clients({"anna": SECRET}).verify("/posts", request.headers, request.body)  # type: ignore[arg-type]
    assert caller.minimum == asked


def test_a_gateway_asks_for_as_many_as_the_collector_states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    posts, plain = list[httpx.Request](), httpx.Client

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.host == "shuffler":
            posts.append(request)
            return httpx.Response(201, json={"accepted": 1, "repeated": 0})
        if request.url.path.endswith("/shuffler"):
            return httpx.Response(200, json=STATED)
        return told(COMMUTE, sealed=True, minimum=7)

    with monkeypatch.context() as patched:
        patched.setattr(
            "noisette.device.gateway.httpx.Client",
            lambda **options: plain(**options | {"transport": httpx.MockTransport(answer)}),
        )
        through = Gateway(
            "http://collector",
            "commute",
            state=tmp_path,
            api_key="k",
            epsilon=4,
            shuffler="http://shuffler",
            secrets={"one": SECRET, "two": "7b" * 32},
        )
    with through:
        with pytest.raises(ValueError, match="secret at the shuffler of user 'three'"):
            through.check([b"one", b"three"])
        through.answer([b"one", b"two"], {"minutes": np.asarray([1.0, 2.0])})
        assert through.send().sent == 2
    assert [request.headers[MINIMUM] for request in posts] == ["7", "7"]
    assert {request.headers[CLIENT] for request in posts} == {"one", "two"}
    assert len({len(request.read()) for request in posts}) == 1


def test_a_factor_that_hides_nothing_blinds_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """By 0 and 1 a token is not hidden, and what shares a prime with the modulus cannot be taken off again."""
    key = keys()["first"]
    prime = key._numbers.p
    drawn = [0, 1, prime, 3 * prime, 2]
    monkeypatch.setattr("noisette.device.blind.secrets.randbelow", lambda below: drawn.pop(0))
    token = bytes(range(32))
    blinded, inverse = key.public.blind(token)
    assert drawn == []
    assert (blinded, inverse) == key.public.blind_by(2, token)
    assert 2 * inverse % key.public.modulus == 1
    monkeypatch.undo()
    assert key.public.verifies(token, key.public.finish(token, key.sign(blinded), inverse))


@pytest.mark.parametrize("ends", ["first", "second", "last"])
def test_what_is_signed_is_blinded_by_any_number_from_two_on(ends: str, monkeypatch: pytest.MonkeyPatch) -> None:
    key, asked = keys()["first"], list[int]()
    modulus = key.public.modulus

    def below(bound: int) -> int:
        asked.append(bound)
        return {"first": 0, "second": 2, "last": modulus - 3}[ends]

    monkeypatch.setattr("noisette.device.blind.secrets.randbelow", below)
    for hidden in (2, 3, modulus - 1):  # the ends of what is signed
        signature = int.from_bytes(key.sign(hidden.to_bytes(256, "big")), "big")
        assert pow(signature, 65537, modulus) == hidden
    assert asked == [modulus - 2] * 3


def test_one_question_is_answered_by_one_law(tmp_path: Path) -> None:
    """The law that is written down first stays; what was drawn by it is not sent as another's."""
    first, second = (Campaign.from_dict(COMMUTE | {"epsilon": epsilon}) for epsilon in (2.0, 3.0))
    with transaction(tmp_path / "answers.db") as database:
        database.execute("CREATE TABLE laws (question TEXT PRIMARY KEY, law TEXT NOT NULL)")
        note_law(database, first, "q")
        note_law(database, first, "q")
        with pytest.raises(ValueError, match="'commute' was answered from this folder by another law"):
            note_law(database, second, "q")
        note_law(database, second, "another question")
        assert database.execute("SELECT law FROM laws WHERE question = 'q'").fetchall() == [(first.law_sha256,)]


NOON = datetime(2026, 11, 17, 12, tzinfo=UTC)
MIDNIGHT = datetime(2026, 11, 17, 0, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("life", "ahead", "now", "words"),
    [
        ({}, 0.0, NOON, ""),
        ({"state": "open"}, 0.0, NOON, ""),
        ({"state": "paused"}, 0.0, NOON, "is paused, and takes no reports"),
        ({"state": "closed"}, 0.0, NOON, "is closed, and takes no reports"),
        ({"opens": "2026-11-17T12:00:00"}, 0.0, NOON, ""),  # from that moment on
        ({"opens": "2026-11-17T12:00:01"}, 0.0, NOON, "opens at"),
        ({"closes": "2026-11-17T12:00:01"}, 0.0, NOON, ""),
        ({"closes": "2026-11-17T12:00:00"}, 0.0, NOON, "closes at"),  # and not at that moment
        ({"opens": "2026-11-17T11:00:00", "closes": "2026-11-17T12:00:00"}, 0.0, NOON, "closes at"),
        ({"opens": "2026-11-17T13:00:00", "closes": "2026-11-17T14:00:00"}, 0.0, NOON, "opens at"),
        ({"opens": "2026-11-17T12:00:00", "closes": "2026-11-17T14:00:00"}, 0.0, NOON, ""),
        ({"closes": "2026-11-17T12:00:00"}, 1.0, NOON, ""),  # by the collector's clock
        ({"opens": "2026-11-17T12:00:00"}, 1.0, NOON, "opens at"),
        ({}, 600.0, MIDNIGHT, ""),  # ten minutes are no harm
        ({}, 600.5, MIDNIGHT, "10 minutes ahead of the collector's, and in another day"),
        ({}, -86_400.0, MIDNIGHT, "1,440 minutes behind the collector's"),
        ({}, 3 * 3600.0, NOON, ""),  # far off, on the same day
    ],
)
def test_what_is_over_or_off_spends_nothing(life: dict[str, str], ahead: float, now: datetime, words: str) -> None:
    campaign = Campaign.from_dict(COMMUTE | {"id": "daily", "period": "day"})
    if words:
        with pytest.raises(ValueError, match=words):
            check_time(campaign, life, ahead, now)
    else:
        check_time(campaign, life, ahead, now)
    once = Campaign.from_dict(COMMUTE)
    if "minutes" in words:
        check_time(once, life, ahead, now)  # one period for ever: no clock matters
