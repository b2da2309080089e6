"""The device: one answer to a question, a budget that holds, a queue that survives, and retries that count once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
from tests.collector.helpers import COMMUTE, KEYS, PERSON

from noisette import _retry
from noisette.accounting import BudgetExceeded
from noisette.collector import Store
from noisette.device import AsyncClient, Client, conversation, state
from noisette.device import client as module
from noisette.survey.campaigns import Campaign
from noisette.survey.survey import Survey

Result = TypeVar("Result")


class Wire(httpx.BaseTransport, httpx.AsyncBaseTransport):
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

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Pass a request on for a client that does not wait for it."""
        await request.aread()
        answer = await asyncio.to_thread(self.handle_request, request)
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.read(), request=request)

    def close(self) -> None:
        """Close what is behind it."""
        self.real.close()

    async def aclose(self) -> None:
        """Close what is behind it."""
        self.real.close()


def in_a_loop(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine in a thread of its own: Playwright leaves its loop running in ours."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


class Awaited:
    """An `AsyncClient` whose every call is awaited: the tests then ask the same of both clients."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._runner = asyncio.Runner()
        self._client = self._run(self._build(*args, **options))

    async def _build(self, *args: Any, **options: Any) -> AsyncClient:
        return AsyncClient(*args, **options)

    def _run(self, work: Any) -> Any:
        return self._thread.submit(self._runner.run, work).result()

    @property
    def left(self) -> Mapping[str, Any]:
        return self._run(self._client.left())

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **options: self._run(getattr(self._client, name)(*args, **options))

    def close(self) -> None:
        """Close the client and its loop, once."""
        if self._client is not None:
            self._run(self._client.close())
            self._client = None
            self._thread.submit(self._runner.close).result()
            self._thread.shutdown()


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture(params=[Client, Awaited], ids=["sync", "async"])
def device(
    service: httpx.Client,
    tmp_path: Path,
    wire: Wire,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Iterator[Callable[..., Client]]:
    monkeypatch.setattr(_retry, "_FIRST_PAUSE", 0.0)
    made: list[Client] = []

    def build(**changes: Any) -> Client:
        options = {"state": tmp_path / "device", "api_key": KEYS["device"], "epsilon": 2.0, "transport": wire}
        made.append(request.param(str(service.base_url), **(options | changes)))
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


@pytest.mark.long
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
        patch.setattr(Survey, "answer", dies)
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
    tmp_path: Path,
    answers: str,
    left: float,
) -> None:
    """A permanent answer is the same every day and is paid once; fresh ones are paid daily until nothing is left."""
    number = {"attributes": COMMUTE["attributes"][:1], "mechanism": "piecewise", "report": None}  # no two are alike
    daily = Campaign.from_dict(COMMUTE | number | {"period": "day", "answers": answers})
    mine = {"minutes": 35}
    client = device(epsilon=4.0)

    def fetch(*_: Any, **__: Any) -> conversation.Conversation[Campaign]:
        yield from ()
        return daily

    monkeypatch.setattr(module, "fetch", fetch)
    sent = []
    for day in ("2026-01-01", "2026-01-02"):
        monkeypatch.setattr(state, "period_at", lambda _, day=day: day)
        client.answer("commute", mine)
        with state.transaction(tmp_path / "device" / "answers.db") as database:
            sent.append(database.execute("SELECT report, key FROM queue JOIN answers USING (question)").fetchall()[-1])
    assert client.left["epsilon"] == left
    assert (sent[0][0] == sent[1][0]) == (answers == "permanent")
    assert sent[0][1] != sent[1][1]
    monkeypatch.setattr(state, "period_at", lambda _: "2026-01-03")
    if answers == "fresh":
        with pytest.raises(BudgetExceeded):
            client.answer("commute", mine)
    else:
        assert client.answer("commute", mine) is False


def test_what_the_collector_refuses_is_told(device: Callable[..., Client], wire: Wire) -> None:
    client = device(api_key=KEYS["analyst"])
    client.answer("commute", PERSON)
    assert client.send() == module.Sent(sent=0, refused=0, waiting=1)  # the key may be mended
    assert [reason for *_, reason in client.delayed()] == [
        "This key does not have the role of device. Ask an operator for one that has."
    ]
    assert client.refusals() == []
    assert len(wire.posted) == 1


def test_both_clients_share_a_folder(service: httpx.Client, tmp_path: Path, campaign: Campaign, store: Store) -> None:
    """What one has answered and spent, the other knows."""
    options: dict[str, Any] = {"state": tmp_path / "one", "api_key": KEYS["device"], "epsilon": 2.0}

    async def later() -> tuple[bool, module.Sent]:
        async with AsyncClient(str(service.base_url), **options) as client:
            return await client.answer("commute", PERSON), await client.send()

    with Client(str(service.base_url), **options) as client:
        assert client.answer("commute", PERSON)
    assert in_a_loop(later()) == (False, module.Sent(1, 0, 0))
    assert store.periods(campaign) == {"once": 1}


@pytest.mark.long
def test_many_devices_at_once(service: httpx.Client, tmp_path: Path, campaign: Campaign, store: Store) -> None:
    """The loop turns while a device waits, and answers of one device at the same time are one answer."""

    async def one(name: str) -> int:
        options = {"state": tmp_path / name, "api_key": KEYS["device"], "epsilon": 2.0, "timeout": 60.0}
        async with AsyncClient(str(service.base_url), **options) as client:
            fresh = await asyncio.gather(*(client.answer("commute", PERSON) for _ in range(3)))
            assert (await client.send()).sent == 1
            return sum(fresh)

    async def all_of_them() -> list[int]:
        return await asyncio.gather(*(one(f"device-{number}") for number in range(8)))

    assert in_a_loop(all_of_them()) == [1] * 8
    assert store.periods(campaign) == {"once": 8}
