"""A device's clients: `Client`, and `AsyncClient` for asyncio."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Self

import httpx

from noisette._random import Rng
from noisette.device.conversation import (
    Conversation,
    Result,
    bearer,
    deliver,
    fetch,
    hold,
    signature_of,
    step,
    submit,
    trusted,
)
from noisette.device.state import Device, Sent, Verdict
from noisette.survey.campaigns import Campaign

__all__ = ["AsyncClient", "Client", "Sent"]


class _Connected:
    """What both clients begin with, and how they bring a report to the collector, unless a shuffler does."""

    _sealed = False  # whether reports leave through a shuffler
    _http: Callable[..., Any]  # makes a client of httpx

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
        transport: httpx.BaseTransport | httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._device = self._opened(partial(Device, state, epsilon=epsilon, delta=delta))
        self._code, self._attempts, self._timeout = code, attempts, timeout
        self._lines: dict[str, Any] = {}
        self._connect("collector", url, headers=bearer(api_key), transport=transport)

    def _opened(self, make: Callable[[], Device]) -> Device:
        return make()

    def _connect(self, name: str, url: str, **options: Any) -> None:
        self._lines[name] = self._http(base_url=url, timeout=self._timeout, **{"verify": trusted()} | options)

    def _carry(self, _: Device, campaign: str, body: Mapping[str, Any]) -> Conversation[Verdict | None]:
        return submit(campaign, body, self._attempts)


class Client(_Connected):
    """One user's device: it privatises locally, never spends more than its budget, and answers a question once.

    ``state`` is a folder that belongs to this device alone: its ledger, its secret, its answers and its queue.
    ``epsilon`` and ``delta`` are all that it will ever spend, over all campaigns. In one period a campaign gets one
    report, however often `answer` is called and whatever the value then is; a campaign with permanent answers gets the
    same report in every period, debited once. So asking again averages no noise away.

    The debit and the report are on the disk before anything is sent. A report is sent again until the collector has
    answered, always under the same key, so it counts once. ``code`` is the user's enrolment code, for campaigns whose
    tokens are signed: the collector signs one token for each code and period without seeing it.
    """

    _http = httpx.Client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections and the ledger; what waits stays in its file."""
        for line in self._lines.values():
            line.close()
        self._device.close()

    @property
    def left(self) -> Mapping[str, Any]:
        """What is left of the budget."""
        return self._device.left

    def campaign(self, campaign_id: str) -> Campaign:
        """Fetch a campaign; while the collector does not answer, return it as it was last seen."""
        return hold(self._lines, fetch(self._device, campaign_id, sealed=self._sealed))

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
        signature = hold(self._lines, signature_of(self._device, campaign, self._code, self._attempts))
        return self._device.answer(campaign, values, group=group, clip=clip, rng=rng, signature=signature)

    def send(self) -> Sent:
        """Send what waits, trying again with growing pauses; what the collector cannot take now stays in the queue."""
        return hold(self._lines, deliver(self._device, self._code, self._carry, self._attempts))

    def refusals(self) -> list[tuple[str, str, str]]:
        """Return campaign, period and reason of the reports that the collector refused for good."""
        return self._device.refusals()

    def delayed(self) -> list[tuple[str, str, str]]:
        """Return campaign, period and reason of the reports that were not taken, and are kept to be sent later."""
        return self._device.refusals("waiting")


class AsyncClient(_Connected):
    """`Client` for asyncio: the same folder, the same promises, and neither network nor disk holds up the loop.

    Open it with ``async with``. The folder is worked on in one thread of its own, so that what is written comes in
    order.
    """

    _http = httpx.AsyncClient

    def _opened(self, make: Callable[[], Device]) -> Device:
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="noisette-device")
        return self._disk.submit(make).result()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections and the ledger; what waits stays in its file."""
        for line in self._lines.values():
            await line.aclose()
        await self._on_disk(self._device.close)
        self._disk.shutdown()

    async def left(self) -> Mapping[str, Any]:
        """Return what is left of the budget."""
        return await self._on_disk(lambda: self._device.left)

    async def campaign(self, campaign_id: str) -> Campaign:
        """Fetch a campaign; while the collector does not answer, return it as it was last seen."""
        return await self._hold(fetch(self._device, campaign_id, sealed=self._sealed))

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
        signature = await self._hold(signature_of(self._device, campaign, self._code, self._attempts))
        options: dict[str, Any] = {"group": group, "clip": clip, "rng": rng, "signature": signature}
        return await self._on_disk(partial(self._device.answer, campaign, values, **options))

    async def send(self) -> Sent:
        """Send what waits, trying again with growing pauses; what the collector cannot take now stays in the queue."""
        return await self._hold(deliver(self._device, self._code, self._carry, self._attempts))

    async def refusals(self) -> list[tuple[str, str, str]]:
        """Return campaign, period and reason of the reports that the collector refused for good."""
        return await self._on_disk(self._device.refusals)

    async def delayed(self) -> list[tuple[str, str, str]]:
        """Return campaign, period and reason of the reports that were not taken, and are kept to be sent later."""
        return await self._on_disk(partial(self._device.refusals, "waiting"))

    async def _on_disk(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._disk, work)

    async def _hold(self, conversation: Conversation[Result]) -> Result:
        """Hold a conversation: its requests here, what it does with the answers in the thread of the disk."""
        wanted, result = await self._on_disk(partial(step, conversation, None))
        while wanted is not None:
            if wanted.pause:
                await asyncio.sleep(wanted.pause)
            try:
                answer: httpx.Response | httpx.TransportError = await self._lines[wanted.to].request(
                    wanted.method, wanted.path, **wanted.content
                )
            except httpx.TransportError as error:
                answer = error
            wanted, result = await self._on_disk(partial(step, conversation, answer))
        done: Result = result
        return done


def check_code(campaign: Campaign, code: str | None) -> Campaign:
    """Return the campaign, or say that its users need an enrolment code."""
    if campaign.signed and not code:
        raise ValueError(f"Campaign {campaign.id!r} admits users by enrolment code: build the client with code=...")
    return campaign
