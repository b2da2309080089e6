"""A device's clients behind a shuffler: the collector reads their reports and does not learn whose they are."""

from __future__ import annotations

import json
import math
import secrets
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from noisette.device.client import AsyncClient, Client
from noisette.device.conversation import Conversation, HttpRequest, ask, judged
from noisette.device.state import SENT, Device, Verdict
from noisette.shuffler.clients import check_secret, sign
from noisette.shuffler.sealing import PublicKey
from noisette.shuffler.sender import PATH
from noisette.shuffler.wire import MEDIA_TYPE, Frame, Round
from noisette.survey.campaigns import Campaign

_NAMES = 2560  # bytes for key, token, period, group and signature
_NUMBER = 32  # bytes for a number in JSON


def label(campaign: Campaign, period: str) -> Round:
    """Return what a report is sealed for: its campaign and period."""
    return Round(f"{campaign.id}/{period}", 0, 1)


def pad(campaign: Campaign, body: Mapping[str, Any]) -> bytes:
    """Return a report as JSON of the one length that all reports of the campaign have."""
    size = _NAMES + _NUMBER * _numbers(campaign.row)
    text = json.dumps(body, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    if len(text) > size:
        raise ValueError(f"Expected a report of at most {size} bytes, got {len(text)}.")
    return text.ljust(size)


def _numbers(dtype: np.dtype[Any]) -> int:
    """Return how many numbers a row holds."""
    if dtype.names:
        return sum(_numbers(dtype[name]) for name in dtype.names)
    return math.prod(dtype.shape)


@dataclass(frozen=True)
class Seal:
    """How one user's reports go through a shuffler: her name and secret there, and the collector's public key."""

    client: str
    secret: str
    key: PublicKey

    def __post_init__(self) -> None:
        check_secret(self.client, self.secret)

    def carry(
        self, campaign: Campaign, body: Mapping[str, Any], attempts: int, minimum: int
    ) -> Conversation[Verdict | None]:
        """Seal a report and post it to the shuffler, to be mixed with at least this many; return what becomes of it."""
        own = label(campaign, body["period"])
        frame = Frame(own, [(0, self.key.seal(pad(campaign, body), own.label(0)))]).encode()
        signed = sign(self.secret, PATH, self.client, secrets.token_hex(16), frame, minimum=minimum)
        request = HttpRequest("POST", PATH, frame, to="shuffler", headers=signed | {"Content-Type": MEDIA_TYPE})
        answer = yield from ask(request, attempts)
        # one that has come before is there from an attempt whose answer was lost
        known = answer is not None and answer.status_code == 409 and answer.json().get("reason") == "already-sent"
        return SENT if known else judged(answer)


class _ThroughShuffler:
    """What turns a client into one whose reports leave through a shuffler."""

    _sealed = True
    _connect: Callable[..., None]
    _attempts: int

    def __init__(
        self,
        url: str,
        *,
        shuffler: str,
        credentials: tuple[str, str],
        public_key: str,
        authority: Path | None = None,
        minimum: int = 0,
        **options: Any,
    ) -> None:
        self._minimum = minimum
        self._seal = Seal(*credentials, PublicKey(public_key))
        super().__init__(url, **options)  # type: ignore[call-arg]  # the client that this is mixed into
        own = {"verify": ssl.create_default_context(cafile=str(authority))} if authority else {}
        self._connect("shuffler", shuffler, **own)

    def _carry(self, device: Device, campaign: str, body: Mapping[str, Any]) -> Conversation[Verdict | None]:
        known = device.recall(campaign)
        assert known is not None  # whoever answers a campaign has seen it
        return self._seal.carry(known, body, self._attempts, max(self._minimum, device.clients_mixed(campaign)))


class ShuffledClient(_ThroughShuffler, Client):
    """A `Client` whose reports leave through a shuffler: the collector reads them and does not learn whose they are.

    ``shuffler`` is its URL, ``credentials`` the device's name and secret there, ``public_key`` that of the collector;
    ``authority`` the file of the certificate that signed the shuffler's. All else is as for `Client`. A report counts
    as sent when the shuffler has it on its disk. It is forwarded among those of as many clients as the campaign states,
    or as ``minimum`` if that is more.
    """


class AsyncShuffledClient(_ThroughShuffler, AsyncClient):
    """An `AsyncClient` whose reports leave through a shuffler, as those of `ShuffledClient` do."""
