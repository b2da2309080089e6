"""A device whose token is signed: admitted once by its code, and sent again after trouble with the same token."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.collector.helpers import COMMUTE, KEYS, PERSON, SECRET, known_keys, running

from noisette import _retry
from noisette.collector import Store, create_app
from noisette.device import AsyncClient, Client
from noisette.device import client as module
from noisette.device.blind import new_code
from noisette.survey.campaigns import Campaign


class Lossy(httpx.HTTPTransport):
    """A network that loses the first answers to each path."""

    def __init__(self, lost: int) -> None:
        super().__init__()
        self.lost, self.seen = lost, dict[str, list[bytes]]()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Pass a request on, and lose its answer."""
        answer = super().handle_request(request)
        bodies = self.seen.setdefault(request.url.path, [])
        bodies.append(request.read())
        if len(bodies) <= self.lost:
            answer.read()
            raise httpx.ReadError("the answer was lost", request=request)
        return answer


def test_a_code_answers_once(tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_retry, "_FIRST_PAUSE", 0.0)
    campaign = Campaign.from_dict(COMMUTE | {"tokens": "blind"})
    with running(create_app([campaign], store, known_keys())) as url:

        def options(name: str, **more: Any) -> dict[str, Any]:
            return {"state": tmp_path / name, "api_key": KEYS["device"], "epsilon": 2.0} | more

        wire = Lossy(2)
        with Client(url, **options("one", code=new_code(SECRET, 1), transport=wire)) as device:
            with pytest.raises(httpx.ReadError):
                device.campaign("commute")
            with pytest.raises(httpx.ReadError):
                device.campaign("commute")
            device.answer("commute", PERSON)
            assert device.send().sent == 1
            assert len(set(wire.seen["/campaigns/commute/tokens"])) == 1  # the same blinded token every time
            assert len(set(wire.seen["/campaigns/commute/reports"])) == 1
        assert store.periods(campaign) == {"once": 1}

        with Client(url, **options("again", code=new_code(SECRET, 1))) as second:  # the code, on another device
            second.answer("commute", PERSON)
            assert second.send().refused == 1
            assert "has had its token" in second.refusals()[0][2]
        with Client(url, **options("guess", code="1.0000")) as guess:
            guess.answer("commute", PERSON)
            assert guess.send().refused == 1
        with Client(url, **options("none")) as none, pytest.raises(ValueError, match="admits users by enrolment code"):
            none.answer("commute", PERSON)

        async def later() -> module.Sent:
            async with AsyncClient(url, **options("two", code=new_code(SECRET, 2))) as device:
                await device.answer("commute", PERSON)
                return await device.send()

        with ThreadPoolExecutor(1) as thread:
            assert thread.submit(asyncio.run, later()).result() == module.Sent(1, 0, 0)
        assert store.periods(campaign) == {"once": 2}
