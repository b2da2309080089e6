"""The device's conversation with a collector: written once, and held with or without asyncio."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self, TypeVar

import httpx

from noisette._random import Rng
from noisette.collector.batches import MEDIA_TYPE
from noisette.collector.campaigns import Campaign
from noisette.collector.device import Device, Sent

__all__ = ["AsyncClient", "Client", "Sent"]

_FIRST_PAUSE = 0.2  # seconds before the second attempt; each pause is twice the one before
_LONGEST_PAUSE = 30.0
_PERHAPS_LATER = frozenset({408, 425, 429})

Result = TypeVar("Result")


@dataclass(frozen=True)
class _Request:
    """What to ask the collector, after a pause."""

    method: str
    path: str
    body: Mapping[str, Any] | bytes | None = None
    pause: float = 0.0

    @property
    def content(self) -> dict[str, Any]:
        """The body as httpx takes it: JSON, or the bytes of a batch."""
        if isinstance(self.body, bytes):
            return {"content": self.body, "headers": {"Content-Type": MEDIA_TYPE}}
        return {"json": self.body}


# It yields requests, is sent responses or thrown `httpx.TransportError`, and returns a result.
Conversation = Generator[_Request, httpx.Response, Result]


def fetch(device: Device, campaign_id: str) -> Conversation[Campaign]:
    """Fetch a campaign; while the collector does not answer, return it as it was last seen."""
    try:
        answer = yield _Request("GET", f"/campaigns/{campaign_id}")
        if answer.is_server_error:
            answer.raise_for_status()
    except httpx.HTTPError:
        seen = device.recall(campaign_id)
        if seen is None:
            raise
        return seen
    if answer.status_code != 200:
        raise RuntimeError(f"The collector does not show campaign {campaign_id!r}: {reason_of(answer)}")
    found = Campaign.from_wire(answer.json())
    if found.id != campaign_id:
        raise ValueError(f"Expected campaign {campaign_id!r}, the collector sent {found.id!r}.")
    device.remember(found, answer.text)
    return found


def deliver(device: Device, code: str | None, attempts: int) -> Conversation[Sent]:
    """Send what waits; what the collector cannot take now stays in the queue."""
    for campaign, body in device.waiting():
        if "token" not in body:
            refusal = yield from admit(device, campaign, body["period"], code or "", attempts)
            if refusal is None:
                break
            if refusal:
                device.settle(body["key"], refusal)
                continue
            body |= device.signed(campaign, body["period"]) or {}
        answer = yield from post(campaign, body, attempts)
        if answer is None:
            break
        device.settle(body["key"], None if answer.is_success else reason_of(answer))
    return device.counts()


def post(campaign: str, body: Mapping[str, Any] | bytes, attempts: int) -> Conversation[httpx.Response | None]:
    """Post reports until the collector has decided about them, or return None when all attempts failed."""
    return (yield from ask(_Request("POST", f"/campaigns/{campaign}/reports", body), attempts))


def admit(device: Device, campaign: str, period: str, code: str, attempts: int) -> Conversation[str | None]:
    """Have the device's token signed without showing it; return "", why it is not signed, or None if nobody answers."""
    if device.signed(campaign, period) is not None:
        return ""
    shown = yield from ask(_Request("GET", f"/campaigns/{campaign}/tokens/{period}"), attempts)
    if shown is None or not shown.is_success:
        return None if shown is None else reason_of(shown)
    blinded = device.blind(campaign, period, shown.json()["modulus"])
    asked = {"code": code, "period": period, "blinded": blinded}
    answer = yield from ask(_Request("POST", f"/campaigns/{campaign}/tokens", asked), attempts)
    if answer is None or not answer.is_success:
        return None if answer is None else reason_of(answer)
    device.unblind(campaign, period, answer.json()["signed"])
    return ""


def ask(request: _Request, attempts: int) -> Conversation[httpx.Response | None]:
    """Ask until the collector has decided, with growing pauses, or return None when all attempts failed."""
    for attempt in range(attempts):
        longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** (attempt - 1)) if attempt else 0.0
        try:
            answer = yield replace(request, pause=longest * random.uniform(0.5, 1.0))
        except httpx.TransportError:
            continue
        if answer.status_code < 500 and answer.status_code not in _PERHAPS_LATER:
            return answer
    return None


class Client:
    """One user's device: it privatises locally, never spends more than its budget, and answers a question once.

    ``state`` is a folder that belongs to this device alone: its ledger, its secret, its answers and its queue.
    ``epsilon`` and ``delta`` are all that it will ever spend, over all campaigns. In one period a campaign gets one
    report, however often `answer` is called and whatever the value then is; a campaign with permanent answers gets the
    same report in every period, debited once. So asking again averages no noise away.

    The debit and the report are on the disk before anything is sent. A report is sent again until the collector has
    answered, always under the same key, so it counts once. ``code`` is the user's enrolment code, for campaigns whose
    tokens are signed: the collector signs one token for each code and period without seeing it.
    """

    def __init__(
        self,
        url: str,
        *,
        state: str | os.PathLike[str],
        api_key: str,
        epsilon: float,
        delta: float = 0.0,
        code: str | None = None,
        attempts: int = 4,
        timeout: float = 10.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._device = Device(state, epsilon=epsilon, delta=delta)
        self._code, self._attempts = code, attempts
        self._http = httpx.Client(base_url=url, headers=bearer(api_key), timeout=timeout, transport=transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection and the ledger; what waits stays in its file."""
        self._http.close()
        self._device.close()

    @property
    def left(self) -> Mapping[str, Any]:
        """What is left of the budget."""
        return self._device.left

    def campaign(self, campaign_id: str) -> Campaign:
        """Fetch a campaign; while the collector does not answer, return it as it was last seen."""
        return hold(self._http, fetch(self._device, campaign_id))

    def answer(
        self,
        campaign_id: str,
        values: Mapping[str, Any],
        *,
        group: str | None = None,
        clip: bool = False,
        rng: Rng = None,
    ) -> bool:
        """Answer a campaign for the current period and put the report into the queue; `send` sends it.

        ``group`` is the public group, where the campaign asks for one: it is sent in the clear. Returns whether a new
        report was made. Raises `noisette.accounting.BudgetExceeded` when the budget does not allow another one.
        ``rng`` is for tests: leave it out on a device.
        """
        campaign = check_code(self.campaign(campaign_id), self._code)
        return self._device.answer(campaign, values, group=group, clip=clip, rng=rng)

    def send(self) -> Sent:
        """Send what waits, trying again with growing pauses; what the collector cannot take now stays in the queue."""
        return hold(self._http, deliver(self._device, self._code, self._attempts))

    def refusals(self) -> list[tuple[str, str, str]]:
        """Return campaign, period and reason of the reports that the collector refused."""
        return self._device.refusals()


class AsyncClient:
    """`Client` for asyncio: the same folder, the same promises, and neither network nor disk holds up the loop.

    Open it with ``async with``. The folder is worked on in one thread of its own, so that what is written comes in
    order.
    """

    def __init__(
        self,
        url: str,
        *,
        state: str | os.PathLike[str],
        api_key: str,
        epsilon: float,
        delta: float = 0.0,
        code: str | None = None,
        attempts: int = 4,
        timeout: float = 10.0,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="noisette-device")
        self._device = self._disk.submit(Device, state, epsilon=epsilon, delta=delta).result()
        self._code, self._attempts = code, attempts
        self._http = httpx.AsyncClient(base_url=url, headers=bearer(api_key), timeout=timeout, transport=transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection and the ledger; what waits stays in its file."""
        await self._http.aclose()
        await self._on_disk(self._device.close)
        self._disk.shutdown()

    async def left(self) -> Mapping[str, Any]:
        """Return what is left of the budget."""
        return await self._on_disk(lambda: self._device.left)

    async def campaign(self, campaign_id: str) -> Campaign:
        """Fetch a campaign; while the collector does not answer, return it as it was last seen."""
        return await self._hold(fetch(self._device, campaign_id))

    async def answer(
        self,
        campaign_id: str,
        values: Mapping[str, Any],
        *,
        group: str | None = None,
        clip: bool = False,
        rng: Rng = None,
    ) -> bool:
        """Answer a campaign for the current period and put the report into the queue, as `Client.answer` does."""
        campaign = check_code(await self.campaign(campaign_id), self._code)
        return await self._on_disk(partial(self._device.answer, campaign, values, group=group, clip=clip, rng=rng))

    async def send(self) -> Sent:
        """Send what waits, trying again with growing pauses; what the collector cannot take now stays in the queue."""
        return await self._hold(deliver(self._device, self._code, self._attempts))

    async def refusals(self) -> list[tuple[str, str, str]]:
        """Return campaign, period and reason of the reports that the collector refused."""
        return await self._on_disk(self._device.refusals)

    async def _on_disk(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._disk, work)

    async def _hold(self, conversation: Conversation[Result]) -> Result:
        """Hold a conversation: its requests here, what it does with the answers in the thread of the disk."""
        wanted, result = await self._on_disk(partial(_step, conversation, None))
        while wanted is not None:
            if wanted.pause:
                await asyncio.sleep(wanted.pause)
            try:
                answer: httpx.Response | httpx.TransportError = await self._http.request(
                    wanted.method, wanted.path, **wanted.content
                )
            except httpx.TransportError as error:
                answer = error
            wanted, result = await self._on_disk(partial(_step, conversation, answer))
        done: Result = result
        return done


def hold(http: httpx.Client, conversation: Conversation[Result]) -> Result:
    """Hold a conversation over a connection."""
    wanted, result = _step(conversation, None)
    while wanted is not None:
        if wanted.pause:
            time.sleep(wanted.pause)
        try:
            answer: httpx.Response | httpx.TransportError = http.request(wanted.method, wanted.path, **wanted.content)
        except httpx.TransportError as error:
            answer = error
        wanted, result = _step(conversation, answer)
    done: Result = result
    return done


def _step(conversation: Conversation[Result], answer: Any) -> tuple[_Request | None, Any]:
    """Go on with a conversation; return what it asks next, or None and its result."""
    try:
        if isinstance(answer, httpx.TransportError):
            return conversation.throw(answer), None
        return conversation.send(answer), None
    except StopIteration as end:  # which no future may carry
        return None, end.value


def check_code(campaign: Campaign, code: str | None) -> Campaign:
    """Return the campaign, or say that its users need an enrolment code."""
    if campaign.tokens == "blind" and not code:
        raise ValueError(f"Campaign {campaign.id!r} admits users by enrolment code: build the client with code=...")
    return campaign


def bearer(api_key: str) -> dict[str, str]:
    """Return the header that carries an API key."""
    return {"Authorization": f"Bearer {api_key}"}


def reason_of(answer: httpx.Response) -> str:
    """Return the collector's words."""
    try:
        return str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return f"status {answer.status_code}"
