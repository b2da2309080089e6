"""The device: one answer to a question, a budget that holds, a queue that survives, and retries that count once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.collector.helpers import COMMUTE, KEYS, PERSON

from noisette.accounting import BudgetExceeded
from noisette.collector import Campaign, Client, Store
from noisette.collector import client as module


class Wire(httpx.BaseTransport):
    """A network that can be cut, that can lose answers, and that remembers what went over it."""

    def __init__(self) -> None:
        self.real = httpx.HTTPTransport()
        self.cut = False
        self.broken = False
        self.lost_answers = 0
        self.posted: list[bytes] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Pass a request on, unless the network is down."""
        if self.cut:
            raise httpx.ConnectError("no network", request=request)
        if self.broken:
            return httpx.Response(503, json={"detail": "The database does not answer."})
        answer = self.real.handle_request(request)
        if request.method == "POST":
            self.posted.append(request.read())
            if self.lost_answers:
                self.lost_answers -= 1
                answer.read()
                raise httpx.ReadError("the answer was lost", request=request)
        return answer

    def close(self) -> None:
        """Close what is behind it."""
        self.real.close()


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def device(
    service: httpx.Client, tmp_path: Path, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Client]]:
    monkeypatch.setattr(module.time, "sleep", lambda _: None)
    made: list[Client] = []

    def build(**changes: Any) -> Client:
        options = {"state": tmp_path / "device", "api_key": KEYS["device"], "epsilon": 2.0, "transport": wire}
        made.append(Client(str(service.base_url), **(options | changes)))
        return made[-1]

    yield build
    for one in made:
        one.close()


def test_one_answer_however_often_it_is_asked(
    device: Callable[..., Client], campaign: Campaign, store: Store, wire: Wire
) -> None:
    client = device()
    assert client.answer("commute", PERSON) is True
    assert client.answer("commute", PERSON | {"minutes": 99}) is False
    assert (client.send().sent, client.send().waiting) == (1, 0)
    assert len(wire.posted) == 1
    assert client.left["epsilon"] == 0
    client.close()
    again = device()  # the same device after a restart
    assert again.answer("commute", PERSON) is False
    assert again.send().sent == 1
    assert store.periods(campaign) == {"once": 1}


def test_an_answer_that_was_lost_counts_once(
    device: Callable[..., Client], campaign: Campaign, store: Store, wire: Wire
) -> None:
    client = device()
    client.answer("commute", PERSON)
    wire.lost_answers = 2
    assert client.send().sent == 1
    assert len(wire.posted) == 3
    assert len(set(wire.posted)) == 1  # the same bytes, key included
    assert store.periods(campaign) == {"once": 1}


@pytest.mark.parametrize("trouble", ["cut", "broken"])
def test_the_queue_survives_without_a_collector(
    device: Callable[..., Client], campaign: Campaign, store: Store, wire: Wire, trouble: str
) -> None:
    client = device()
    client.campaign("commute")
    setattr(wire, trouble, True)
    assert client.answer("commute", PERSON) is True
    assert client.send().waiting == 1
    client.close()
    setattr(wire, trouble, False)
    assert device().send().sent == 1
    assert store.periods(campaign) == {"once": 1}


def test_a_campaign_that_was_never_seen(device: Callable[..., Client], wire: Wire) -> None:
    client = device()
    with pytest.raises(RuntimeError, match="no such campaign"):
        client.answer("other", PERSON)
    wire.cut = True
    with pytest.raises(httpx.ConnectError):
        client.answer("commute", PERSON)


def test_what_the_budget_does_not_allow_is_not_sent(
    device: Callable[..., Client], campaign: Campaign, store: Store
) -> None:
    client = device(epsilon=1.9)
    with pytest.raises(BudgetExceeded):
        client.answer("commute", PERSON)
    assert client.send() == module.Sent(0, 0, 0)
    assert store.periods(campaign) == {}


def test_a_wrong_value_costs_nothing(device: Callable[..., Client]) -> None:
    client = device()
    for wrong in (PERSON | {"minutes": 500}, PERSON | {"by": "plane"}, {}):
        with pytest.raises(ValueError, match="Expected"):
            client.answer("commute", wrong)
    assert client.left["epsilon"] == 2
    assert client.answer("commute", PERSON | {"minutes": 500}, clip=True)


def test_a_debit_whose_report_was_never_written(device: Callable[..., Client], monkeypatch: pytest.MonkeyPatch) -> None:
    """The device dies between the debit and the report: nothing was sent, so the report may be made now, once."""
    client = device()

    def dies(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Campaign, "privatize", dies)
        with pytest.raises(KeyboardInterrupt):
            client.answer("commute", PERSON)
    assert client.left["epsilon"] == 0
    assert client.answer("commute", PERSON) is True
    assert client.send().sent == 1


@pytest.mark.parametrize(("answers", "left"), [("permanent", 2), ("fresh", 0)])
def test_over_the_days(
    device: Callable[..., Client],
    service: httpx.Client,
    monkeypatch: pytest.MonkeyPatch,
    wire: Wire,
    answers: str,
    left: float,
) -> None:
    """A permanent answer is the same every day and is paid once; fresh ones are paid daily until nothing is left."""
    daily = Campaign.from_dict(COMMUTE | {"period": "day", "answers": answers})
    client = device(epsilon=4.0)
    monkeypatch.setattr(client, "campaign", lambda _: daily)
    sent = []
    for day in ("2026-01-01", "2026-01-02"):
        monkeypatch.setattr(module, "period_at", lambda _, day=day: day)
        client.answer("commute", PERSON)
        with client._open() as database:
            sent.append(database.execute("SELECT report, key FROM queue JOIN answers USING (question)").fetchall()[-1])
    assert client.left["epsilon"] == left
    assert (sent[0][0] == sent[1][0]) == (answers == "permanent")
    assert sent[0][1] != sent[1][1]
    monkeypatch.setattr(module, "period_at", lambda _: "2026-01-03")
    if answers == "fresh":
        with pytest.raises(BudgetExceeded):
            client.answer("commute", PERSON)
    else:
        assert client.answer("commute", PERSON) is False


def test_what_the_collector_refuses_is_told(device: Callable[..., Client], wire: Wire) -> None:
    client = device(api_key=KEYS["analyst"])
    client.answer("commute", PERSON)
    assert client.send() == module.Sent(sent=0, refused=1, waiting=0)
    assert [reason for *_, reason in client.refusals()] == ["This key has not the role of device."]
    assert len(wire.posted) == 1
